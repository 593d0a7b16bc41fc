//! How checkpoints come to be.

use super::chunks::names_to_bytes;
use super::error::{SlotError, failed};
use super::manifest::SealedManifest;
use super::packed::{self, NAMES, Packed, Packing, SYSTEM_DOCUMENT, WORKSPACE_DOCUMENT};
use super::revert::{Reverted, revert};
use super::staged::{Staged, Told};
use super::{
    Eviction, MANIFEST, METADATA, Manifest, Pool, PoolSettings, SYSTEM, WORKSPACE, measure,
};
use crate::atomic_write::atomic_write;
use crate::beneath::{Beneath, Mounts};
use crate::chunked::save::Saved;
use crate::clone::{CloneReport, Fallback};
use crate::walk::{WalkReport, WalkSettings};
use stasis_model::digest::ChunkDigest;
use stasis_model::document;
use stasis_model::id::SnapshotId;
use stasis_model::manifest::SnapshotManifest;
use stasis_model::sweep::{ChunkName, Names};
use stasis_model::tree::EntryPath;
use stasis_model::workspace::{Form, Occupant, Origin, OverBudget, Slot, SlotMetadata};
use std::collections::HashSet;
use std::path::Path;

/// How often room is made for a checkpoint in chunks before it is given up.
const ATTEMPTS: usize = 4;
/// Where the trees are remembered that are kept in chunks.
const MEMORIES: [&str; 2] = ["remembered", "remembered-system"];

/// What became of a checkpoint that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "what was left out, and what had to go, is said only here"]
pub struct Created {
    /// As it was written.
    pub metadata: SlotMetadata,
    /// How the workspace was cloned, and what was left out.
    pub workspace: CloneReport,
    /// How the system was cloned, if it was a directory.
    pub system: Option<CloneReport>,
    /// The automatic checkpoints that went because of the budget, the oldest first.
    pub evicted: Vec<Slot>,
    /// Whether it took the place of an older one.
    pub replaced: Option<SlotMetadata>,
}

/// What a checkpoint is made of.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The workspace.
    pub workspace: &'a Path,
    /// A directory or an image that goes with it.
    pub system: Option<&'a Path>,
    /// The file in which the [`StatCache`](super::StatCache) of the workspace is: with it, a clone is listed while it is made.
    pub stats: Option<&'a Path>,
}

impl<'a> Source<'a> {
    /// A workspace alone, of which nothing is known.
    pub fn of(workspace: &'a Path) -> Self {
        Self {
            workspace,
            system: None,
            stats: None,
        }
    }
}

/// What is to be made.
struct Wanted<'a> {
    source: &'a Source<'a>,
    metadata: SlotMetadata,
    /// What is in its slot now, and goes.
    replaced: Option<SlotMetadata>,
}

/// What came of an attempt to store a checkpoint in chunks.
enum Attempt {
    Made(Box<Told>),
    /// It needs these chunks, and so many bytes that are not there yet; then all checkpoints would hold `needed`.
    TooMuch {
        needs: HashSet<ChunkDigest>,
        bytes: u64,
        needed: u64,
    },
}

/// The trees of a checkpoint in chunks.
struct Trees {
    documents: Vec<(&'static str, SnapshotManifest)>,
    /// What is in the workspace.
    contents: SealedManifest,
    names: Names,
    walk: WalkReport,
    memories: Vec<Saved>,
}

impl Pool {
    /// Makes a checkpoint in the slot that its metadata says; an automatic one that is there is replaced.
    pub fn create(
        &self,
        source: &Source<'_>,
        metadata: SlotMetadata,
    ) -> Result<Created, SlotError> {
        self.create_instead(source, metadata, None)
    }

    /// The same, in the place of a checkpoint that stays until then whatever it is.
    pub fn create_instead(
        &self,
        source: &Source<'_>,
        metadata: SlotMetadata,
        instead_of: Option<&SlotMetadata>,
    ) -> Result<Created, SlotError> {
        let _lock = self.lock()?;
        let occupants = self.place(metadata.origin).list()?;
        let replaced = may_take(&occupants, &metadata, instead_of)?;
        let wanted = Wanted {
            source,
            metadata,
            replaced,
        };
        let may_share = self.settings.fallback == Fallback::Copy
            || measure::is_shared(source.workspace, self.path());
        if !may_share {
            return self.create_chunked(wanted);
        }
        match self.create_clone(&wanted) {
            Err(SlotError::Unsupported { .. }) => self.create_chunked(wanted),
            created => created,
        }
    }

    fn create_clone(&self, wanted: &Wanted<'_>) -> Result<Created, SlotError> {
        let Wanted {
            source,
            metadata,
            replaced,
        } = wanted;
        let mut evicted = Vec::new();
        let may_copy = self.settings.fallback == Fallback::Copy;
        if may_copy && !measure::is_shared(source.workspace, self.path()) {
            // What is copied is on the disk before it can be measured.
            let expected = measure::expected(source.workspace, source.system, &self.settings.walk)?;
            evicted = self.make_room(metadata, measure::New::Expected(expected))?;
        }
        let (occupants, undos) = (self.list()?, self.undos()?);
        let pools = [(&self.slots, &*occupants), (&self.undo, &*undos)];
        let accounts = measure::Accounts::new(&self.chunks, pools, measure::New::Expected(0))?;
        let budget = self.settings.budget.bytes();
        let cloning = self
            .settings
            .cloning(measure::survey(&accounts, self.path(), budget));
        let staged = Staged::empty(self.place(metadata.origin), metadata.slot)?;
        let staged = staged.fill(&cloning, source, metadata.clone())?;
        self.publish(staged, (replaced.clone(), evicted))
    }

    fn publish(
        &self,
        mut staged: Staged<'_>,
        (replaced, mut evicted): (Option<SlotMetadata>, Vec<Slot>),
    ) -> Result<Created, SlotError> {
        let target = staged.metadata().clone();
        evicted.extend(self.make_room(&target, measure::New::Staged(&staged))?);
        staged.publish(replaced.is_some())?;
        if replaced
            .as_ref()
            .is_some_and(|old| old.form == Form::Chunked)
            || !evicted.is_empty()
        {
            self.sweep(&HashSet::new())?;
        }
        let (metadata, workspace, system) = staged.told();
        Ok(Created {
            metadata,
            workspace,
            system,
            evicted,
            replaced,
        })
    }

    /// Lets the oldest automatic checkpoints go until a new one fits in, or says that it never does.
    fn make_room(
        &self,
        target: &SlotMetadata,
        new: measure::New<'_>,
    ) -> Result<Vec<Slot>, SlotError> {
        let (occupants, undos) = (self.list()?, self.undos()?);
        let candidates: &[Occupant] = match self.settings.eviction {
            Eviction::Oldest => &occupants,
            Eviction::Nothing => &[],
        };
        // Something that takes a change back has a number of its own, in no pool.
        let target = match target.origin {
            Origin::Undo => Slot::new(u32::MAX),
            _ => target.slot,
        };
        let pools = [(&self.slots, &*occupants), (&self.undo, &*undos)];
        let mut accounts = measure::Accounts::new(&self.chunks, pools, new)?;
        let budget = self.settings.budget;
        let gone = budget.make_room(candidates, target, |gone| {
            accounts.held(&[gone, &[target]].concat(), budget.bytes())
        })?;
        for slot in &gone {
            self.slots.remove(*slot)?;
        }
        Ok(gone)
    }

    fn create_chunked(&self, wanted: Wanted<'_>) -> Result<Created, SlotError> {
        self.sweep(&HashSet::new())?;
        let (mut evicted, mut most) = (Vec::new(), 0);
        for _ in 0..ATTEMPTS {
            match self.attempt(&wanted)? {
                Attempt::Made(told) => {
                    if wanted.replaced.is_some() {
                        self.sweep(&HashSet::new())?;
                    }
                    let (metadata, workspace, system) = *told;
                    let replaced = wanted.replaced;
                    return Ok(Created {
                        metadata,
                        workspace,
                        system,
                        evicted,
                        replaced,
                    });
                }
                Attempt::TooMuch {
                    needs,
                    bytes,
                    needed,
                } => {
                    most = needed;
                    let new = measure::New::Packed {
                        needs: &needs,
                        bytes,
                    };
                    evicted.extend(self.make_room(&wanted.metadata, new)?);
                    self.sweep(&needs)?;
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

    fn attempt(&self, wanted: &Wanted<'_>) -> Result<Attempt, SlotError> {
        let (occupants, undos) = (self.list()?, self.undos()?);
        let pools = [(&self.slots, &*occupants), (&self.undo, &*undos)];
        let mut accounts = measure::Accounts::new(&self.chunks, pools, measure::New::Expected(0))?;
        let target = match wanted.metadata.origin {
            Origin::Undo => Vec::new(),
            _ => vec![wanted.metadata.slot],
        };
        let budget = self.settings.budget.bytes();
        let held = accounts.held(&target, 0)?;
        let incoming = self.chunks.incoming(budget.saturating_sub(held))?;
        let all: Vec<&SlotMetadata> = occupants
            .iter()
            .chain(&undos)
            .filter_map(Occupant::known)
            .collect();
        let mut trees = self.pack(wanted, &incoming, &all)?;
        let entries: u64 = trees
            .documents
            .iter()
            .map(|(_, one)| one.totals.entries())
            .sum();
        let own = measure::names(entries);
        let bytes = incoming.wanted().saturating_add(own);
        let needs: HashSet<ChunkDigest> = trees.names.iter().map(ChunkName::digest).collect();
        // Chunks of what is replaced may be needed again, so that all is counted anew.
        let new = measure::New::Packed {
            needs: &needs,
            bytes,
        };
        let needed = measure::Accounts::new(&self.chunks, pools, new)?.held(&target, 0)?;
        if needed > budget || incoming.wanted() > incoming.allowance() {
            return Ok(Attempt::TooMuch {
                needs,
                bytes,
                needed,
            });
        }
        let mut staged = self.furnish(wanted, &trees, own)?;
        // Both lie on one filesystem, and become durable together.
        incoming.keep()?;
        staged.publish(wanted.replaced.is_some())?;
        let told = staged.told();
        for memory in &mut trees.memories {
            // What is not remembered is read again.
            let _ = memory.remember();
        }
        Ok(Attempt::Made(Box::new(told)))
    }

    /// Stores what is new of the trees.
    fn pack(
        &self,
        wanted: &Wanted<'_>,
        incoming: &super::chunks::Incoming<'_>,
        all: &[&SlotMetadata],
    ) -> Result<Trees, SlotError> {
        let mut whole: Vec<&&SlotMetadata> = all
            .iter()
            .filter(|one| {
                one.form == Form::Chunked
                    && one.undo.as_ref().is_none_or(|undo| undo.path.is_none())
            })
            .collect();
        whole.sort_by_key(|one| (one.epoch_millis, one.sequence));
        let known: HashSet<SnapshotId> = whole.iter().map(|one| packed::id_of(one)).collect();
        let mut trees = Trees {
            documents: Vec::new(),
            contents: Manifest::default().sealed(),
            names: Names::new(),
            walk: WalkReport::default(),
            memories: Vec::new(),
        };
        let sources = [
            (WORKSPACE_DOCUMENT, Some(wanted.source.workspace)),
            (SYSTEM_DOCUMENT, wanted.source.system),
        ];
        for ((document, path), memory) in sources.into_iter().zip(MEMORIES) {
            let Some(path) = path else {
                continue;
            };
            let newest = whole.last().copied().copied();
            let parent = newest
                .and_then(|newest| packed::read(&self.home_of(newest), document).ok().flatten());
            let packing = Packing {
                metadata: &wanted.metadata,
                walk: &self.settings.walk,
                parent: parent.as_ref(),
                known: &known,
                memory: Some(self.session.join(memory)),
            };
            let packed = packed::pack(path, incoming, &packing)?;
            if document == WORKSPACE_DOCUMENT {
                trees.contents = self.contents_of(&packed, newest)?;
            }
            let Packed {
                document: made,
                saved,
                ..
            } = packed;
            trees.names.extend(saved.names.iter().copied());
            trees.walk.merge(saved.report.walk.clone());
            trees.documents.push((document, made));
            trees.memories.push(saved);
        }
        Ok(trees)
    }

    /// What is in a tree that was stored; the same as in the newest checkpoint, if nothing differs from that.
    fn contents_of(
        &self,
        packed: &Packed,
        newest: Option<&SlotMetadata>,
    ) -> Result<SealedManifest, SlotError> {
        if !packed.saved.is_same {
            return Ok(packed.contents.sealed());
        }
        let recorded = newest.and_then(|newest| {
            let bytes = std::fs::read(self.home_of(newest).join(MANIFEST)).ok()?;
            SealedManifest::known(bytes, newest.hash?)
        });
        match recorded {
            Some(recorded) => Ok(recorded),
            None => Ok(packed::contents(&self.chunks, &packed.document)?.sealed()),
        }
    }

    /// Writes down what a checkpoint in chunks is, beside its slot. Not durable before everything is, which is before it is published.
    fn furnish(
        &self,
        wanted: &Wanted<'_>,
        trees: &Trees,
        own: u64,
    ) -> Result<Staged<'_>, SlotError> {
        let place = self.place(wanted.metadata.origin);
        let mut staged = Staged::empty(place, wanted.metadata.slot)?;
        for (name, one) in &trees.documents {
            staged.write(name, &document::render(one))?;
        }
        staged.write(NAMES, &names_to_bytes(&trees.names))?;
        staged.write(MANIFEST, &trees.contents.bytes)?;
        let totals = trees.documents[0].1.totals;
        let metadata = SlotMetadata {
            hash: Some(trees.contents.hash),
            complete: trees.walk.gaps() == 0,
            files_count: totals.files + totals.hard_links,
            bytes: totals.bytes,
            bytes_at_most: Some(own),
            form: Form::Chunked,
            ..wanted.metadata.clone()
        };
        let report = CloneReport {
            files: totals.files,
            directories: totals.directories,
            symlinks: totals.symlinks,
            hard_links: totals.hard_links,
            bytes: totals.bytes,
            walk: trees.walk.clone(),
            ..CloneReport::default()
        };
        staged.write(METADATA, &metadata.to_json())?;
        staged.tell((metadata, report, None));
        Ok(staged)
    }

    /// Keeps one entry of a workspace as it is, and nothing else, for whoever wants it back.
    pub fn keep_entry(
        &self,
        workspace: &Beneath,
        path: &EntryPath,
        metadata: SlotMetadata,
    ) -> Result<Created, SlotError> {
        let _lock = self.lock()?;
        let mut staged = Staged::empty(self.place(metadata.origin), metadata.slot)?;
        let tree = staged.path().join(WORKSPACE);
        let made = rustix::fs::mkdir(&tree, rustix::fs::Mode::RWXU);
        made.map_err(failed("make", &tree))?;
        let into = Beneath::open(&tree, Mounts::Stay).map_err(failed("open", &tree))?;
        let expected = measure::entry(workspace, path, &WalkSettings::default())?;
        // What cannot be shared is on the disk before it can be measured.
        let evicted = self.make_room(&metadata, measure::New::Expected(expected))?;
        let kept: Result<Reverted, _> = revert(&into, workspace, path);
        let _ = kept.map_err(|source| SlotError::Keep {
            path: path.clone(),
            source: Box::new(source),
        })?;
        let metadata = SlotMetadata {
            form: Form::Clone,
            bytes_at_most: Some(expected),
            ..metadata
        };
        atomic_write(&staged.path().join(METADATA), &metadata.to_json())?;
        staged.tell((metadata, CloneReport::default(), None));
        self.publish(staged, (None, evicted))
    }

    /// Makes a checkpoint of what another one holds, in the place of `instead_of` if that is said.
    pub fn copy(
        &self,
        from: &SlotMetadata,
        metadata: SlotMetadata,
        instead_of: Option<&SlotMetadata>,
    ) -> Result<Created, SlotError> {
        let home = self.home_of(from);
        self.still(from)?;
        // All of it: what is left out of new checkpoints by now is in this one. Nothing goes for it, least of all what it is made from.
        let whole = self.again(PoolSettings {
            eviction: Eviction::Nothing,
            walk: WalkSettings {
                strict: true,
                ..WalkSettings::default()
            },
            ..self.settings.clone()
        })?;
        if from.form == Form::Clone {
            let system = Some(home.join(SYSTEM)).filter(|system| system.is_dir());
            let source = Source {
                workspace: &home.join(WORKSPACE),
                system: system.as_deref(),
                stats: None,
            };
            return whole.create_instead(&source, metadata, instead_of);
        }
        let _lock = self.lock()?;
        let occupants = self.list()?;
        let replaced = may_take(&occupants, &metadata, instead_of)?;
        let mut staged = Staged::empty(self.place(metadata.origin), metadata.slot)?;
        for name in [WORKSPACE_DOCUMENT, SYSTEM_DOCUMENT, NAMES, MANIFEST] {
            copy_file(&home.join(name), &staged.path().join(name))?;
        }
        atomic_write(&staged.path().join(METADATA), &metadata.to_json())?;
        staged.tell((metadata, CloneReport::default(), None));
        whole.publish(staged, (replaced, Vec::new()))
    }
}

fn copy_file(from: &Path, to: &Path) -> Result<(), SlotError> {
    match std::fs::read(from) {
        Ok(bytes) => Ok(atomic_write(to, &bytes)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(SlotError::Failed {
            doing: "read",
            path: from.to_owned(),
            source,
        }),
    }
}

/// Whether a checkpoint may be put where its metadata says; what it would replace.
fn may_take(
    occupants: &[Occupant],
    new: &SlotMetadata,
    instead_of: Option<&SlotMetadata>,
) -> Result<Option<SlotMetadata>, SlotError> {
    let is_meant =
        |old: &SlotMetadata| instead_of.is_some_and(|meant| meant.is_same_checkpoint(old));
    match occupants.iter().find(|one| one.slot() == new.slot) {
        None => Ok(None),
        Some(Occupant::Known(old)) if (old.may_go() && new.may_go()) || is_meant(old) => {
            Ok(Some(old.clone()))
        }
        Some(Occupant::Known(old)) => Err(SlotError::Occupied(old.slot)),
        Some(Occupant::Unreadable { slot, why }) => Err(SlotError::Unreadable {
            slot: *slot,
            why: why.clone(),
        }),
    }
}
