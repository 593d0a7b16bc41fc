//! How checkpoints come to be.

mod listed;

use super::error::SlotError;
use super::packed::DOCUMENTS;
use super::staged::{CheckpointSource, StagedSlot};
use super::{Eviction, METADATA, Pool, PoolSettings, SYSTEM, WORKSPACE, measure};
use crate::fs::atomic_write::atomic_write;
use crate::tree::clone::{self, CloneReport, CloneSettings, Fallback, FileByFile, SourceSurvey};
use crate::tree::walk::WalkSettings;
use stasis_model::digest::WorkspaceDigest;
use stasis_model::failure::AtPath;
use stasis_model::workspace::{
    CheckpointOrigin, Occupant, Slot, SlotForm, SlotMetadata, eviction_order,
};
use std::collections::HashSet;
use std::path::Path;

/// Where this host caches the lists of the trees that are kept in chunks, in the session directory.
pub(super) const LIST_CACHES: [&str; 2] = ["remembered", "remembered-system"];

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
    /// The automatic checkpoints that went because of the budget, in the order in which they did.
    pub evicted: Vec<Slot>,
    /// Whether it took the place of an older one.
    pub replaced: Option<SlotMetadata>,
}

/// Whether what a tree contains is in a checkpoint that will do.
type IsKnown<'a> = &'a dyn Fn(&WorkspaceDigest) -> bool;

/// What is to be made.
struct WantedSlot<'a> {
    source: &'a CheckpointSource<'a>,
    metadata: SlotMetadata,
    /// What is in its slot now, and goes.
    replaced: Option<SlotMetadata>,
    /// Whether nothing is made because what the tree contains is in a checkpoint already.
    is_known: Option<IsKnown<'a>>,
}

impl Pool {
    /// Makes a checkpoint in the slot that its metadata says; an automatic one that is there is replaced.
    pub fn create(
        &self,
        source: &CheckpointSource<'_>,
        metadata: SlotMetadata,
    ) -> Result<Created, SlotError> {
        self.create_instead(source, metadata, None)
    }

    /// The same, in the place of a checkpoint that stays until then whatever it is.
    pub fn create_instead(
        &self,
        source: &CheckpointSource<'_>,
        metadata: SlotMetadata,
        instead_of: Option<&SlotMetadata>,
    ) -> Result<Created, SlotError> {
        let made = self.create_wanted(source, metadata, instead_of, None)?;
        Ok(made.expect("nothing is known already"))
    }

    /// Makes a checkpoint, unless all of the tree could be read and is what a checkpoint contains that `is_known` says. Only where
    /// checkpoints are [lists](Self::makes_lists).
    pub fn create_if_new(
        &self,
        source: &CheckpointSource<'_>,
        metadata: SlotMetadata,
        is_known: IsKnown<'_>,
    ) -> Result<Option<Created>, SlotError> {
        self.create_wanted(source, metadata, None, Some(is_known))
    }

    /// Whether a checkpoint of a workspace is a list here.
    pub fn makes_lists(&self, workspace: &Path) -> Result<bool, SlotError> {
        let form = self.usual_form(&CheckpointSource::of(workspace))?;
        Ok(form.is_list())
    }

    fn create_wanted<'a>(
        &self,
        source: &'a CheckpointSource<'a>,
        metadata: SlotMetadata,
        instead_of: Option<&SlotMetadata>,
        is_known: Option<IsKnown<'a>>,
    ) -> Result<Option<Created>, SlotError> {
        let _lock = self.lock()?;
        let occupants = self.place(metadata.origin).list()?;
        let replaced = may_take(&occupants, &metadata, instead_of)?;
        let wanted = WantedSlot {
            source,
            metadata,
            replaced,
            is_known,
        };
        // What cannot be kept in one form is kept in the next.
        let mut form = self.usual_form(source)?;
        loop {
            let created = match form {
                SlotForm::Clone => self.create_clone(&wanted).map(Some),
                form => self.create_listed(&wanted, form),
            };
            form = match (created, form) {
                (Err(SlotError::Unsupported { .. }), SlotForm::Clone) => SlotForm::Versions,
                (Err(SlotError::Unsupported { .. }), SlotForm::Versions) => SlotForm::Chunked,
                (created, _) => return created,
            };
        }
    }

    /// How a checkpoint of a workspace is kept here.
    fn usual_form(&self, source: &CheckpointSource<'_>) -> Result<SlotForm, SlotError> {
        let is_shared = measure::is_shared(source.workspace, self.path())?;
        Ok(match (is_shared, self.settings.fallback) {
            (true, _) if clone::is_whole_subvolume(source.workspace, &self.settings.walk) => {
                SlotForm::Clone
            }
            (true, _) => SlotForm::Versions,
            (false, Fallback::Copy) => SlotForm::Clone,
            (false, Fallback::Refuse) => SlotForm::Chunked,
        })
    }

    fn create_clone(&self, wanted: &WantedSlot<'_>) -> Result<Created, SlotError> {
        let WantedSlot {
            source,
            metadata,
            replaced,
            ..
        } = wanted;
        let mut evicted = Vec::new();
        let may_copy = self.settings.fallback == Fallback::Copy;
        let is_shared = measure::is_shared(source.workspace, self.path())?;
        if may_copy && !is_shared {
            // What is copied is on the disk before it can be measured.
            let expected = measure::expected(source.workspace, source.system, &self.settings.walk)?;
            evicted = self.make_room(metadata, measure::New::Expected(expected))?;
        }
        let (occupants, undos) = (self.list()?, self.undos()?);
        let pools = [(&self.slots, &*occupants), (&self.undo, &*undos)];
        let accounts = measure::Accounts::new(&self.chunks, pools, measure::New::Expected(0))?;
        let budget = self.settings.budget.bytes();
        let survey = measure::survey(&accounts, self.path(), budget);
        let cloning = CloneSettings {
            // What can be shared file by file is a list.
            file_by_file: if is_shared {
                FileByFile::Refuse
            } else {
                FileByFile::Clone
            },
            ..self.settings.cloning(survey)
        };
        let staged = StagedSlot::empty(self.place(metadata.origin), metadata.slot)?;
        let staged = staged.fill(&cloning, source, metadata.clone())?;
        self.publish(staged, replaced.clone(), evicted)
    }

    fn publish(
        &self,
        mut staged: StagedSlot<'_>,
        replaced: Option<SlotMetadata>,
        mut evicted: Vec<Slot>,
    ) -> Result<Created, SlotError> {
        let target = staged.metadata().clone();
        evicted.extend(self.make_room(&target, measure::New::Staged(&staged))?);
        staged.publish(replaced.is_some(), &|left| self.release(left))?;
        if replaced.as_ref().is_some_and(|old| old.form.is_list()) || !evicted.is_empty() {
            // It is made; chunks that stay are swept by the next one.
            let _ = self.sweep(&HashSet::new());
        }
        let (metadata, workspace, system) = staged.into_report();
        Ok(Created {
            metadata,
            workspace,
            system,
            evicted,
            replaced,
        })
    }

    /// Lets automatic checkpoints go until a new one fits in, or says that it never does.
    fn make_room(
        &self,
        target: &SlotMetadata,
        new: measure::New<'_>,
    ) -> Result<Vec<Slot>, SlotError> {
        let (occupants, undos) = (self.list()?, self.undos()?);
        let candidates = match self.settings.eviction {
            Eviction::Oldest => eviction_order(&occupants, target),
            Eviction::Nothing => Vec::new(),
        };
        // Something that takes a change back has a number of its own, in no pool.
        let target = match target.origin {
            CheckpointOrigin::Undo => Slot::new(u32::MAX),
            _ => target.slot,
        };
        let pools = [(&self.slots, &*occupants), (&self.undo, &*undos)];
        let mut accounts = measure::Accounts::new(&self.chunks, pools, new)?;
        let budget = self.settings.budget;
        let gone = budget.make_room(&candidates, |gone| {
            accounts.held(&[gone, &[target]].concat(), budget.bytes())
        })?;
        for slot in &gone {
            self.slots.remove(*slot, &|left| self.release(left))?;
        }
        Ok(gone)
    }

    /// Makes what will take a change back, before that is made: what comes out of the live tree goes into it afterwards.
    pub fn begin_undo(&self, metadata: SlotMetadata) -> Result<SlotMetadata, SlotError> {
        let _lock = self.lock()?;
        let mut staged = StagedSlot::empty(&self.undo, metadata.slot)?;
        let tree = staged.path().join(WORKSPACE);
        let made = rustix::fs::mkdir(&tree, rustix::fs::Mode::RWXU);
        made.at("make", &tree)?;
        let metadata = SlotMetadata {
            form: SlotForm::Clone,
            ..metadata
        };
        atomic_write(&staged.path().join(METADATA), &metadata.to_json())?;
        staged.set_report((metadata.clone(), CloneReport::default(), None));
        staged.publish(false, &|_| Ok(()))?;
        Ok(metadata)
    }

    /// Makes a checkpoint of what another one holds, in the place of `instead_of` if that is said.
    pub fn copy(
        &self,
        from: &SlotMetadata,
        metadata: SlotMetadata,
        instead_of: Option<&SlotMetadata>,
    ) -> Result<Created, SlotError> {
        let home = self.home_of(from);
        let now = self.still(from)?;
        // How its databases fit together was decided when they were taken from the live tree.
        let metadata = SlotMetadata {
            databases: from.databases.clone(),
            workspace_digest: now.workspace_digest,
            system_digest: now.system_digest,
            ..metadata
        };
        // All of it: what is left out of new checkpoints by now is in this one. Nothing goes for it, least of all what it is made from.
        let whole = self.again(PoolSettings {
            eviction: Eviction::Nothing,
            walk: WalkSettings {
                strict: true,
                ..WalkSettings::default()
            },
            ..self.settings.clone()
        })?;
        if from.form == SlotForm::Clone {
            let system = Some(home.join(SYSTEM)).filter(|system| system.is_dir());
            let source = CheckpointSource {
                workspace: &home.join(WORKSPACE),
                system: system.as_deref(),
                stats: None,
                is_own: false,
            };
            return whole.create_instead(&source, metadata, instead_of);
        }
        let _lock = self.lock()?;
        let occupants = self.list()?;
        let replaced = may_take(&occupants, &metadata, instead_of)?;
        let mut staged = StagedSlot::empty(self.place(metadata.origin), metadata.slot)?;
        for name in DOCUMENTS {
            // It does not change any more, so that one file will do for both.
            if !staged.link(&home, name)? {
                copy_file(&home.join(name), &staged.path().join(name))?;
            }
        }
        if from.form == SlotForm::Versions && home.join(SYSTEM).is_dir() {
            let cloning = whole.settings.cloning(SourceSurvey::Count);
            let _ = staged.system(&home.join(SYSTEM), &cloning)?;
        }
        atomic_write(&staged.path().join(METADATA), &metadata.to_json())?;
        staged.set_report((metadata, CloneReport::default(), None));
        whole.publish(staged, replaced, Vec::new())
    }
}

fn copy_file(from: &Path, to: &Path) -> Result<(), SlotError> {
    match std::fs::read(from) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        bytes => Ok(atomic_write(to, &bytes.at("read", from)?)?),
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
