//! A checkpoint that is a list, from the trees to the slot.

use super::super::chunks::{Incoming, names_to_bytes};
use super::super::cost;
use super::super::error::SlotError;
use super::super::manifest::EncodedManifest;
use super::super::measure::SlotNeeds;
use super::super::packed::{self, NAMES, Packed, Packing, SYSTEM_DOCUMENT, WORKSPACE_DOCUMENT};
use super::super::staged::{SlotReport, StagedSlot, System, forget_journals, with_gaps};
use super::super::versions::{self, VERSIONS, VersionCosts};
use super::super::{MANIFEST, METADATA, Manifest, Pool, measure};
use super::{Created, LIST_CACHES, WantedSlot};
use crate::form::chunked::databases::OPENED_MEANWHILE;
use crate::form::chunked::save::Saved;
use crate::fs::fd::open_dir;
use crate::tree::clone::{CloneReport, SourceSurvey};
use crate::tree::walk::WalkReport;
use stasis_model::digest::{ChunkDigest, FileDigest, TreeDigest};
use stasis_model::failure::AtPath;
use stasis_model::format::document;
use stasis_model::format::manifest::{SnapshotManifest, StoredAs};
use stasis_model::id::SnapshotId;
use stasis_model::protocol::gc::{ChunkName, GcEpoch, Names};
use stasis_model::tree::EntryPath;
use stasis_model::workspace::{
    CheckpointOrigin, OF_SYSTEM, Occupant, OverBudget, Slot, SlotDatabase, SlotForm, SlotMetadata,
};
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::Ordering;

/// How often room is made for a checkpoint before it is given up.
const ATTEMPTS: usize = 4;

/// How closely all checkpoints are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Count {
    /// At most, if that is within the budget.
    AtMost,
    Exact,
}

impl Count {
    /// What may be counted at most.
    fn limit(self, budget: u64) -> u64 {
        match self {
            Self::AtMost => budget,
            Self::Exact => 0,
        }
    }
}

/// A list beside its slot, and what its own documents take.
struct StagedList<'a> {
    slot: StagedSlot<'a>,
    own_cost: u64,
}

/// What came of an attempt to make a checkpoint that is a list.
enum ListAttempt {
    Made(Box<SlotReport>),
    /// What the tree contains is in a checkpoint already.
    Known,
    /// All checkpoints would have held `needed`: these had to go, and these chunks are needed again.
    Evicted {
        slots: Vec<Slot>,
        chunks: HashSet<ChunkDigest>,
        needed: u64,
    },
}

/// The trees of a checkpoint that is a list.
struct Trees {
    documents: Vec<(&'static str, SnapshotManifest)>,
    /// What is in the workspace.
    contents: EncodedManifest,
    names: Names,
    walk: WalkReport,
    /// That of the workspace alone.
    own_walk: WalkReport,
    saved: Vec<Saved>,
    databases: Vec<SlotDatabase>,
    /// The versions that they need; none are named where nothing differs.
    versions: VersionCosts,
    /// The checkpoint that nothing differs from.
    same_as: Option<SlotMetadata>,
    /// What each of them was in the newest checkpoint.
    newest: Vec<Option<(SnapshotId, TreeDigest)>>,
}

impl Trees {
    fn new() -> Self {
        Self {
            documents: Vec::new(),
            contents: Manifest::default().encoded(),
            names: Names::new(),
            walk: WalkReport::default(),
            own_walk: WalkReport::default(),
            saved: Vec::new(),
            databases: Vec::new(),
            versions: VersionCosts::new(),
            same_as: None,
            newest: Vec::new(),
        }
    }

    /// Adds a tree that was stored, under the name of its document.
    fn add(&mut self, name: &'static str, packed: Packed, databases: Vec<SlotDatabase>) {
        let Packed {
            document, saved, ..
        } = packed;
        let mut walk = saved.report.walk.clone();
        forget_journals(&mut walk, &databases);
        if name == WORKSPACE_DOCUMENT {
            self.own_walk = walk.clone();
        }
        self.walk.merge(walk);
        self.databases.extend(databases);
        self.names.extend(saved.names.iter().copied());
        self.documents.push((name, document));
        self.saved.push(saved);
    }

    /// Finds out what every version takes of the disk that it needs; most are those of the checkpoint before.
    fn count_versions(&mut self, incoming: &Incoming<'_>, before: Option<&Path>) {
        let before = before.and_then(|before| open_dir(before).ok());
        let before = before.and_then(|slot| incoming.names_of(slot.as_fd()));
        let before = before.unwrap_or_default();
        let all = self.saved.iter().flat_map(|saved| saved.versions.keys());
        // One that is missing takes nothing; what lacks it is found by whoever checks.
        let counted = all.map(|digest| {
            let cost = before.cost(digest);
            let cost = cost.or_else(|| incoming.version_cost(digest));
            (*digest, cost.unwrap_or_default())
        });
        self.versions = counted.collect();
    }

    /// Whether nothing has to be made, because all that is there is in a checkpoint already.
    fn are_known(&mut self, wanted: &WantedSlot<'_>, incoming: &Incoming<'_>) -> bool {
        let is_whole = self.walk.gaps() == 0;
        let is_known = wanted.is_known.filter(|_| is_whole);
        let is_known = is_known.is_some_and(|is_known| is_known(&self.contents.hash));
        // A cache must not lead to what goes with `incoming`: the same tree may have been stored in another way.
        if is_known && incoming.is_empty() {
            self.keep_caches_of_newest();
        }
        is_known
    }

    /// Keeps what was read for the next one although nothing is made, as far as the newest checkpoint is the very same tree, its times
    /// included: some files may have been too young to be cached when that was made.
    fn keep_caches_of_newest(&mut self) {
        for (saved, newest) in self.saved.iter_mut().zip(&self.newest) {
            if let Some((id, digest)) = newest
                && !saved.is_same
                && saved.digest == *digest
            {
                // What is not cached is read again.
                let _ = saved.keep_cache_as(id);
            }
        }
    }

    /// Whether the system is one of them.
    fn has_system(&self) -> bool {
        let mut names = self.documents.iter().map(|(name, _)| *name);
        names.any(|name| name == SYSTEM_DOCUMENT)
    }

    fn report(&self) -> CloneReport {
        let totals = self.documents[0].1.totals;
        CloneReport {
            files: totals.files,
            directories: totals.directories,
            symlinks: totals.symlinks,
            hard_links: totals.hard_links,
            bytes: totals.bytes,
            walk: self.walk.clone(),
            ..CloneReport::default()
        }
    }
}

impl Pool {
    /// Makes a checkpoint that is a list, of files that are held whole or of chunks.
    pub(super) fn create_listed(
        &self,
        wanted: &WantedSlot<'_>,
        form: SlotForm,
    ) -> Result<Option<Created>, SlotError> {
        self.sweep(&HashSet::new())?;
        let (mut evicted, mut most) = (Vec::new(), 0);
        for attempt in 0..ATTEMPTS {
            // What is counted at most may be more than there is: the second time it is looked at.
            let count = if attempt == 0 {
                Count::AtMost
            } else {
                Count::Exact
            };
            match self.attempt(wanted, form, count)? {
                ListAttempt::Known => return Ok(None),
                ListAttempt::Made(report) => {
                    if wanted.replaced.is_some() {
                        // It is made; chunks that stay are swept by the next one.
                        let _ = self.sweep(&HashSet::new());
                    }
                    let (metadata, workspace, system) = *report;
                    let replaced = wanted.replaced.clone();
                    return Ok(Some(Created {
                        metadata,
                        workspace,
                        system,
                        evicted,
                        replaced,
                    }));
                }
                ListAttempt::Evicted {
                    slots,
                    chunks,
                    needed,
                } => {
                    most = needed;
                    evicted.extend(slots);
                    self.sweep(&chunks)?;
                }
            }
        }
        let budget = self.settings.budget.bytes();
        Err(OverBudget {
            needed: most,
            budget,
        }
        .into())
    }

    fn attempt(
        &self,
        wanted: &WantedSlot<'_>,
        form: SlotForm,
        count: Count,
    ) -> Result<ListAttempt, SlotError> {
        let (occupants, undos) = (self.list()?, self.undos()?);
        let pools = [(&self.slots, &*occupants), (&self.undo, &*undos)];
        let target = match wanted.metadata.origin {
            CheckpointOrigin::Undo => Vec::new(),
            _ => vec![wanted.metadata.slot],
        };
        let budget = self.settings.budget.bytes();
        let room = || {
            let new = measure::New::Expected(0);
            let held = measure::Accounts::new(&self.chunks, pools, new);
            let held = held.and_then(|mut held| held.held(&target, count.limit(budget)));
            // Whoever counts again afterwards meets the same error, and may say so.
            held.map_or(u64::MAX, |held| budget.saturating_sub(held))
        };
        let incoming = self.chunks.incoming(&room)?;
        let all: Vec<&SlotMetadata> = occupants
            .iter()
            .chain(&undos)
            .filter_map(Occupant::known)
            .collect();
        let mut trees = match self.pack(wanted, form, &incoming, &all) {
            Ok(trees) => trees,
            Err(error) => {
                // Whoever interrupted it may want it after all; what failed would only take room.
                if self.settings.walk.cancel.load(Ordering::Relaxed) {
                    incoming.leave();
                }
                return Err(error);
            }
        };
        // The second time some of those that are known are gone.
        if count == Count::AtMost && trees.are_known(wanted, &incoming) {
            return Ok(ListAttempt::Known);
        }
        let staged = self.stage(wanted, form, &trees)?;
        // What differs from nothing adds nothing, and is made however much the others hold.
        if !(trees.same_as.is_some() && wanted.source.system.is_none()) {
            let needs = SlotNeeds {
                chunks: trees.names.iter().map(ChunkName::digest).collect(),
                versions: trees.versions.clone(),
            };
            let bytes = incoming.wanted().saturating_add(staged.own_cost);
            let open = |digest: &FileDigest| incoming.open_version(digest);
            let new = || measure::New::Packed {
                needs: &needs,
                bytes,
                staged: &staged.slot,
                open: &open,
            };
            // Chunks of what is replaced may be needed again, so that all is counted anew.
            let mut accounts = measure::Accounts::new(&self.chunks, pools, new())?;
            let needed = accounts.held(&target, count.limit(budget))?;
            if needed > budget || incoming.wanted() > incoming.allowance() {
                return Ok(ListAttempt::Evicted {
                    slots: self.make_room(&wanted.metadata, new())?,
                    chunks: needs.chunks,
                    needed,
                });
            }
        }
        let report = self.publish_trees(wanted, staged, (trees, incoming))?;
        Ok(ListAttempt::Made(Box::new(report)))
    }

    /// Gives the checkpoint its slot, once its chunks and what names them are durable.
    fn publish_trees(
        &self,
        wanted: &WantedSlot<'_>,
        staged: StagedList<'_>,
        (trees, incoming): (Trees, Incoming<'_>),
    ) -> Result<SlotReport, SlotError> {
        let mut staged = staged.slot;
        let is_same = trees.same_as.is_some() && wanted.source.system.is_none();
        let kept = if is_same && incoming.is_empty() {
            // Everything but a few small files was durable before, also what the workspace held when it was read. That is so because
            // every checkpoint is durable when it has its slot; one that would be published earlier could not be relied on here.
            staged.sync_documents()
        } else {
            // Both become durable together, if nobody mounted something between them.
            let synced = if incoming.is_beside(staged.fd()) {
                Ok(())
            } else {
                staged.sync()
            };
            synced.and_then(|()| incoming.keep())
        };
        let release = |left: BorrowedFd<'_>| self.release(left);
        let published = kept.and_then(|()| staged.publish(wanted.replaced.is_some(), &release));
        if let Err(error) = published {
            // What has its name already is needed by nobody. What cannot be removed now is found by what the slot was to be.
            if self.release(staged.fd()).is_err() {
                staged.leave();
            }
            return Err(error);
        }
        let report = staged.into_report();
        for mut saved in trees.saved {
            // What is not cached is read again.
            let _ = saved.keep_cache();
        }
        Ok(report)
    }

    /// Stores what is new of the trees.
    fn pack(
        &self,
        wanted: &WantedSlot<'_>,
        form: SlotForm,
        incoming: &Incoming<'_>,
        all: &[&SlotMetadata],
    ) -> Result<Trees, SlotError> {
        let mut whole: Vec<&&SlotMetadata> = all
            .iter()
            .filter(|one| {
                one.form.is_list() && one.undo.as_ref().is_none_or(|undo| undo.path.is_none())
            })
            .collect();
        whole.sort_by_key(|one| (one.epoch_millis, one.sequence));
        // What cannot say what it is is nothing to go on from: its successor could not say it either.
        while let Some(newest) = whole.last()
            && self.problem(newest).is_some()
        {
            whole.pop();
        }
        let known: HashSet<SnapshotId> = whole.iter().map(|one| packed::id_of(one)).collect();
        let newest = whole.last().copied().copied();
        let missing = newest.map(|newest| self.missing_chunks(newest));
        let missing = missing.transpose()?.unwrap_or_default();
        let mut trees = Trees::new();
        // A system is cloned as a directory where it can be: nobody waits until it is read.
        let system = wanted.source.system.filter(|_| form == SlotForm::Chunked);
        let sources = [
            (WORKSPACE_DOCUMENT, Some(wanted.source.workspace)),
            (SYSTEM_DOCUMENT, system),
        ];
        for ((document, path), cache) in sources.into_iter().zip(LIST_CACHES) {
            let Some(path) = path else {
                continue;
            };
            let before = newest.and_then(|newest| {
                let read = packed::read(&self.home_of(newest), newest, document);
                read.ok().flatten()
            });
            let parent = before.as_ref().zip(newest.map(packed::id_of));
            let packing = Packing {
                metadata: &wanted.metadata,
                walk: &self.settings.walk,
                progress: &self.settings.progress,
                parent,
                known: &known,
                // That of the workspace must not become one of another tree.
                cache: wanted.source.is_own.then(|| self.session.join(cache)),
                spool: &self.session,
                is_listed: document == WORKSPACE_DOCUMENT,
                holds_versions: form == SlotForm::Versions,
                missing: &missing,
            };
            let packed = pack_again_if_opened(path, incoming, &packing)?;
            if document == WORKSPACE_DOCUMENT {
                trees.contents = self.contents_of(&packed, newest)?;
            }
            let of_newest = newest.map_or(&[][..], |newest| &newest.databases);
            let databases = databases_of(&packed.saved, document, of_newest);
            trees.add(document, packed, databases);
            let newest = before.as_ref().zip(newest.map(packed::id_of));
            let newest = newest.map(|(before, id)| (id, before.state_digest));
            trees.newest.push(newest);
        }
        let is_same = trees.saved.iter().all(|saved| saved.is_same);
        trees.same_as = newest.filter(|_| is_same).cloned();
        let before = newest.map(|newest| self.home_of(newest));
        trees.count_versions(incoming, before.as_deref());
        Ok(trees)
    }

    /// The chunks that a checkpoint needs and that are not there any more.
    pub(in super::super) fn missing_chunks(
        &self,
        checkpoint: &SlotMetadata,
    ) -> Result<HashSet<ChunkName>, SlotError> {
        let mut missing = HashSet::new();
        for digest in measure::named(&self.home_of(checkpoint)).unwrap_or_default() {
            let name = ChunkName::new(digest, GcEpoch::FIRST);
            if !self.chunks.has(&name)? {
                missing.insert(name);
            }
        }
        Ok(missing)
    }

    /// What is in a tree that was stored; the same as in the newest checkpoint, if nothing differs from that.
    fn contents_of(
        &self,
        packed: &Packed,
        newest: Option<&SlotMetadata>,
    ) -> Result<EncodedManifest, SlotError> {
        if !packed.saved.is_same {
            return Ok(packed.contents.encoded());
        }
        let recorded = newest.and_then(|newest| {
            let bytes = std::fs::read(self.home_of(newest).join(MANIFEST)).ok()?;
            EncodedManifest::known(bytes, newest.hash?)
        });
        match recorded {
            Some(recorded) => Ok(recorded),
            None => Ok(packed::contents(&self.chunks, &packed.document)?.encoded()),
        }
    }

    /// Writes down what a list is, beside its slot. Not durable before everything is, which is before it is published.
    fn stage(
        &self,
        wanted: &WantedSlot<'_>,
        form: SlotForm,
        trees: &Trees,
    ) -> Result<StagedList<'_>, SlotError> {
        let place = self.place(wanted.metadata.origin);
        let mut staged = StagedSlot::empty(place, wanted.metadata.slot)?;
        // A list that keeps versions from before has them also where none is made any more.
        let form = match &trees.same_as {
            Some(before) => before.form,
            None if !trees.versions.is_empty() => SlotForm::Versions,
            None => form,
        };
        let mut own_cost = self.write_documents(&staged, form, trees)?;
        let [workspace_digest, system_digest] =
            [WORKSPACE_DOCUMENT, SYSTEM_DOCUMENT].map(|name| digest_in(&staged, trees, name));
        let system = match wanted.source.system {
            Some(system) if !trees.has_system() => {
                let cloning = self.settings.cloning(SourceSurvey::Count);
                Some(staged.system(system, &cloning)?)
            }
            _ => None,
        };
        let system_at_most = match &system {
            None => Some(0),
            Some(System::Tree(report)) => cost::at_most(report, &staged.path()),
            Some(System::Image(bytes)) => Some(cost::whole(1, *bytes)),
        };
        let metadata = SlotMetadata {
            bytes_at_most: system_at_most,
            form,
            workspace_digest: workspace_digest?,
            system_digest: system_digest?,
            ..described(trees, &wanted.metadata, system.as_ref())
        };
        let document = metadata.to_json();
        staged.write(METADATA, &document)?;
        own_cost += cost::file(document.len() as u64);
        let system = match system {
            Some(System::Tree(report)) => Some(*report),
            _ => None,
        };
        staged.set_report((metadata, trees.report(), system));
        Ok(StagedList {
            slot: staged,
            own_cost,
        })
    }

    /// Writes the documents of a list into its slot, or gives those of the checkpoint that it does not differ from a second name; says
    /// what the new ones take.
    fn write_documents(
        &self,
        staged: &StagedSlot<'_>,
        form: SlotForm,
        trees: &Trees,
    ) -> Result<u64, SlotError> {
        let before = trees.same_as.as_ref().map(|before| self.home_of(before));
        let mut own_cost = 0;
        let mut put = |name: &str, bytes: &dyn Fn() -> Vec<u8>| {
            let bytes = match &before {
                Some(before) if staged.link(before, name)? => return Ok(()),
                Some(before) => {
                    let path = before.join(name);
                    std::fs::read(&path).at("read", &path)?
                }
                None => bytes(),
            };
            own_cost += cost::file(bytes.len() as u64);
            staged.write(name, &bytes)
        };
        for (name, one) in &trees.documents {
            put(name, &|| document::render(one))?;
        }
        put(NAMES, &|| names_to_bytes(&trees.names))?;
        put(MANIFEST, &|| trees.contents.bytes.clone())?;
        if form == SlotForm::Versions {
            put(VERSIONS, &|| versions::to_bytes(&trees.versions))?;
        }
        Ok(own_cost)
    }
}

/// The digest of a document that was written or linked into a list beside its slot; nothing if it has no such document.
fn digest_in(
    staged: &StagedSlot<'_>,
    trees: &Trees,
    name: &str,
) -> Result<Option<FileDigest>, SlotError> {
    if !trees.documents.iter().any(|(one, _)| *one == name) {
        return Ok(None);
    }
    // What it was linked to may have been exchanged since it was looked at.
    let said = trees.same_as.as_ref();
    if let Some(said) = said.and_then(|same| packed::digest_of(same, name)) {
        return Ok(Some(said));
    }
    let path = staged.path().join(name);
    let bytes = std::fs::read(&path).at("read", &path)?;
    Ok(Some(FileDigest::of(&bytes)))
}

/// What is known of a list before its form is.
fn described(trees: &Trees, wanted: &SlotMetadata, system: Option<&System>) -> SlotMetadata {
    let totals = trees.documents[0].1.totals;
    let mut databases = trees.databases.clone();
    let mut is_whole = trees.walk.gaps() == 0 && wanted.left_out_count == 0;
    if let Some(System::Tree(report)) = system {
        let of_system = report.databases.iter().cloned();
        databases.extend(of_system.map(SlotDatabase::of_system));
        is_whole &= report.walk.gaps() == 0;
    }
    let databases = SlotDatabase::listed(databases);
    let is_torn = databases.iter().any(|one| one.state == StoredAs::Torn);
    SlotMetadata {
        hash: Some(trees.contents.hash),
        complete: is_whole && !is_torn,
        databases,
        files_count: totals.files + totals.hard_links,
        bytes: totals.bytes,
        ..with_gaps(wanted.clone(), &trees.own_walk)
    }
}

/// Stores what is new of a tree, from another look at it if the first missed the WAL of a database that was opened meanwhile.
fn pack_again_if_opened(
    path: &Path,
    incoming: &Incoming<'_>,
    packing: &Packing<'_>,
) -> Result<Packed, SlotError> {
    let packed = packed::pack(path, incoming, packing)?;
    if was_opened_meanwhile(&packed.saved) {
        return packed::pack(path, incoming, packing);
    }
    Ok(packed)
}

/// Whether a database was opened between the look at the tree and its turn.
fn was_opened_meanwhile(saved: &Saved) -> bool {
    let mut named = saved.report.inconsistent.iter();
    named.any(|one| one.why == OPENED_MEANWHILE)
}

/// The databases of a tree that was stored; those of the newest checkpoint if nothing differs from that.
fn databases_of(saved: &Saved, document: &str, newest: &[SlotDatabase]) -> Vec<SlotDatabase> {
    let is_system = document == SYSTEM_DOCUMENT;
    if saved.is_same {
        let is_own = |one: &&SlotDatabase| one.path.starts_with(OF_SYSTEM) == is_system;
        return newest.iter().filter(is_own).cloned().collect();
    }
    let why = |path: &EntryPath| {
        let mut named = saved.report.inconsistent.iter();
        let named = named.find(|one| one.path == *path);
        named.map(|one| one.why.clone())
    };
    let databases = saved.databases.iter().map(|one| SlotDatabase {
        path: one.path.to_string(),
        state: one.state,
        why: why(&one.path),
    });
    if is_system {
        return databases.map(SlotDatabase::of_system).collect();
    }
    databases.collect()
}
