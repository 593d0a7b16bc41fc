//! A checkpoint in chunks, from the trees to the slot.

use super::super::chunks::{Incoming, names_to_bytes};
use super::super::cost;
use super::super::error::SlotError;
use super::super::manifest::EncodedManifest;
use super::super::packed::{self, NAMES, Packed, Packing, SYSTEM_DOCUMENT, WORKSPACE_DOCUMENT};
use super::super::staged::{SlotReport, StagedSlot, forget_journals, with_gaps};
use super::super::{MANIFEST, METADATA, Manifest, Pool, measure};
use super::{Created, LIST_CACHES, WantedSlot};
use crate::form::chunked::databases::OPENED_MEANWHILE;
use crate::form::chunked::save::Saved;
use crate::tree::clone::CloneReport;
use crate::tree::walk::WalkReport;
use stasis_model::digest::ChunkDigest;
use stasis_model::format::document;
use stasis_model::format::manifest::{SnapshotManifest, StoredAs};
use stasis_model::id::SnapshotId;
use stasis_model::protocol::gc::{ChunkName, Names};
use stasis_model::tree::EntryPath;
use stasis_model::workspace::{
    CheckpointOrigin, OF_SYSTEM, Occupant, OverBudget, SlotDatabase, SlotForm, SlotMetadata,
};
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::Ordering;

/// How often room is made for a checkpoint in chunks before it is given up.
const ATTEMPTS: usize = 4;

/// What came of an attempt to store a checkpoint in chunks.
enum ChunkedAttempt {
    Made(Box<SlotReport>),
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
    contents: EncodedManifest,
    names: Names,
    walk: WalkReport,
    /// That of the workspace alone.
    own_walk: WalkReport,
    saved: Vec<Saved>,
    databases: Vec<SlotDatabase>,
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

    /// What its names cost, besides its chunks.
    fn own_cost(&self) -> u64 {
        let documents = self.documents.iter();
        cost::names(documents.map(|(_, one)| one.totals.entries()).sum())
    }
}

impl Pool {
    pub(super) fn create_chunked(&self, wanted: WantedSlot<'_>) -> Result<Created, SlotError> {
        self.sweep(&HashSet::new())?;
        let (mut evicted, mut most) = (Vec::new(), 0);
        for _ in 0..ATTEMPTS {
            match self.attempt(&wanted)? {
                ChunkedAttempt::Made(report) => {
                    if wanted.replaced.is_some() {
                        self.sweep(&HashSet::new())?;
                    }
                    let (metadata, workspace, system) = *report;
                    let replaced = wanted.replaced;
                    return Ok(Created {
                        metadata,
                        workspace,
                        system,
                        evicted,
                        replaced,
                    });
                }
                ChunkedAttempt::TooMuch {
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

    fn attempt(&self, wanted: &WantedSlot<'_>) -> Result<ChunkedAttempt, SlotError> {
        let (occupants, undos) = (self.list()?, self.undos()?);
        let pools = [(&self.slots, &*occupants), (&self.undo, &*undos)];
        let mut accounts = measure::Accounts::new(&self.chunks, pools, measure::New::Expected(0))?;
        let target = match wanted.metadata.origin {
            CheckpointOrigin::Undo => Vec::new(),
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
        let trees = match self.pack(wanted, &incoming, &all) {
            Ok(trees) => trees,
            Err(error) => {
                // Whoever interrupted it may want it after all; what failed would only take room.
                if self.settings.walk.cancel.load(Ordering::Relaxed) {
                    incoming.leave();
                }
                return Err(error);
            }
        };
        let bytes = incoming.wanted().saturating_add(trees.own_cost());
        let needs: HashSet<ChunkDigest> = trees.names.iter().map(ChunkName::digest).collect();
        // Chunks of what is replaced may be needed again, so that all is counted anew.
        let new = measure::New::Packed {
            needs: &needs,
            bytes,
        };
        let needed = measure::Accounts::new(&self.chunks, pools, new)?.held(&target, 0)?;
        if needed > budget || incoming.wanted() > incoming.allowance() {
            return Ok(ChunkedAttempt::TooMuch {
                needs,
                bytes,
                needed,
            });
        }
        let report = self.publish_trees(wanted, trees, incoming)?;
        Ok(ChunkedAttempt::Made(Box::new(report)))
    }

    /// Gives the checkpoint its slot, once its chunks and what names them are durable.
    fn publish_trees(
        &self,
        wanted: &WantedSlot<'_>,
        trees: Trees,
        incoming: Incoming<'_>,
    ) -> Result<SlotReport, SlotError> {
        let mut staged = self.stage(wanted, &trees)?;
        // Both become durable together, if nobody mounted something between them.
        if !incoming.is_beside(staged.fd()) {
            staged.sync()?;
        }
        incoming.keep()?;
        staged.publish(wanted.replaced.is_some())?;
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
        incoming: &Incoming<'_>,
        all: &[&SlotMetadata],
    ) -> Result<Trees, SlotError> {
        let mut whole: Vec<&&SlotMetadata> = all
            .iter()
            .filter(|one| {
                one.form == SlotForm::Chunked
                    && one.undo.as_ref().is_none_or(|undo| undo.path.is_none())
            })
            .collect();
        whole.sort_by_key(|one| (one.epoch_millis, one.sequence));
        let known: HashSet<SnapshotId> = whole.iter().map(|one| packed::id_of(one)).collect();
        let mut trees = Trees::new();
        let sources = [
            (WORKSPACE_DOCUMENT, Some(wanted.source.workspace)),
            (SYSTEM_DOCUMENT, wanted.source.system),
        ];
        for ((document, path), cache) in sources.into_iter().zip(LIST_CACHES) {
            let Some(path) = path else {
                continue;
            };
            let newest = whole.last().copied().copied();
            let parent = newest
                .and_then(|newest| packed::read(&self.home_of(newest), document).ok().flatten());
            let packing = Packing {
                metadata: &wanted.metadata,
                walk: &self.settings.walk,
                progress: &self.settings.progress,
                parent: parent.as_ref(),
                known: &known,
                cache: Some(self.session.join(cache)),
                spool: &self.session,
                is_listed: document == WORKSPACE_DOCUMENT,
            };
            let packed = pack_again_if_opened(path, incoming, &packing)?;
            if document == WORKSPACE_DOCUMENT {
                trees.contents = self.contents_of(&packed, newest)?;
            }
            let of_newest = newest.map_or(&[][..], |newest| &newest.databases);
            let databases = databases_of(&packed.saved, document, of_newest);
            trees.add(document, packed, databases);
        }
        Ok(trees)
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

    /// Writes down what a checkpoint in chunks is, beside its slot. Not durable before everything is, which is before it is published.
    fn stage(&self, wanted: &WantedSlot<'_>, trees: &Trees) -> Result<StagedSlot<'_>, SlotError> {
        let place = self.place(wanted.metadata.origin);
        let mut staged = StagedSlot::empty(place, wanted.metadata.slot)?;
        for (name, one) in &trees.documents {
            staged.write(name, &document::render(one))?;
        }
        staged.write(NAMES, &names_to_bytes(&trees.names))?;
        staged.write(MANIFEST, &trees.contents.bytes)?;
        let totals = trees.documents[0].1.totals;
        let databases = SlotDatabase::listed(trees.databases.clone());
        let is_torn = databases.iter().any(|one| one.state == StoredAs::Torn);
        let metadata = SlotMetadata {
            hash: Some(trees.contents.hash),
            complete: trees.walk.gaps() == 0 && !is_torn && wanted.metadata.left_out_count == 0,
            databases,
            files_count: totals.files + totals.hard_links,
            bytes: totals.bytes,
            bytes_at_most: Some(trees.own_cost()),
            form: SlotForm::Chunked,
            ..with_gaps(wanted.metadata.clone(), &trees.own_walk)
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
        staged.set_report((metadata, report, None));
        Ok(staged)
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
