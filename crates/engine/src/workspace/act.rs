//! What changes the live tree: revert, restore, undo.
//!
//! 1. lock the session; bring an interrupted restore to its end
//! 2. compare the live tree with what it will become: the plan
//! 3. a model that would delete many files must have seen this very plan
//! 4. keep what will change in an undo checkpoint
//! 5. announce the change in the ledger   6. make everything ready; see that the tree is still what the plan was made for, and
//!    change it   7. write down what was put back
//!
//! A crash before 6 leaves the tree as it was, and an undo checkpoint that takes nothing back. A revert is one rename: a crash in 6
//! leaves the old entry or the new one. A restore has a journal: the next one who locks the session brings it to its end.
//! A crash before 7 leaves it to the watcher to tell what happened, as if somebody else had done it.

use super::answers::{Plan, RestoredWorkspace, RevertedPath};
use super::commands::{RestoreWorkspace, RevertPath, Run};
use super::error::WorkspaceError;
use super::show::called;
use super::{Actor, Workspace};
use crate::error::Error;
use stasis_disk::compare::Change;
use stasis_disk::ledger::{Restored, Source};
use stasis_disk::slots::{self, Listed, Manifest, RevertError, Reverted, What, fact};
use stasis_model::digest::StoreDigest;
use stasis_model::tree::EntryPath;
use stasis_model::workspace::{Origin, SlotMetadata};
use std::cell::RefCell;

/// A model deletes no more files than this without having seen which.
const MOST_DELETED: u64 = 20;
/// How many entries of a plan are shown.
const SHOWN: usize = 100;

/// A change of the live tree.
pub(super) struct Act<'a> {
    pub(super) word: &'static str,
    /// What the tree, or an entry of it, becomes.
    pub(super) from: &'a SlotMetadata,
    /// The entry; else the whole tree.
    pub(super) path: Option<&'a EntryPath>,
    pub(super) is: Manifest,
    pub(super) becomes: Manifest,
}

impl Workspace {
    pub(super) fn revert_now(&self, command: &RevertPath) -> Result<RevertedPath, Error> {
        let started = self.clock().uptime();
        let _lock = self.lock("reverting")?;
        if command.path.is_root() {
            return Err(WorkspaceError::BadPath {
                path: ".".to_owned(),
                why: "the whole workspace is restored, not reverted".to_owned(),
            }
            .into());
        }
        let live = self.now(&command.path)?;
        let from = match &command.checkpoint {
            Some(which) => self.resolve(which)?,
            None => self.usual_source(&command.path, &live)?,
        };
        let then = self.then(&from, &command.path)?;
        if live.is_empty() && then.is_empty() {
            return Err(WorkspaceError::NoSuchEntry(command.path.clone()).into());
        }
        let act = Act {
            word: "revert",
            from: &from,
            path: Some(&command.path),
            is: Manifest::of(live),
            becomes: Manifest::of(then),
        };
        let plan = self.plan(&act);
        let is_same = act.is == act.becomes;
        let action = match (is_same, act.becomes.entries().is_empty()) {
            (true, _) => "unchanged",
            (false, true) => "deleted",
            (false, false) => "restored",
        };
        let mut told = RevertedPath {
            reverted: false,
            path: command.path.to_string(),
            action,
            checkpoint: from.slot.to_string(),
            undo: None,
            plan,
            dry_run: command.run == Run::Dry,
            elapsed_ms: 0,
        };
        if !is_same && command.run == Run::Real {
            self.confirm(&told.plan, command.confirm.as_deref())?;
            told.undo = Some(self.carry_out(&act)?);
            told.reverted = true;
        }
        told.elapsed_ms = self.elapsed(started);
        Ok(told)
    }

    /// The newest checkpoint that holds an entry, and in which it differs from what it is now.
    fn usual_source(&self, path: &EntryPath, live: &[Listed]) -> Result<SlotMetadata, Error> {
        let checkpoints = self.newest_first()?;
        if checkpoints.is_empty() {
            return Err(WorkspaceError::NoCheckpoints.into());
        }
        let mut is_anywhere = !live.is_empty();
        for one in checkpoints {
            let then = self.then(&one, path)?;
            is_anywhere |= !then.is_empty();
            if !then.is_empty() && then != live {
                return Ok(one);
            }
        }
        Err(if is_anywhere {
            WorkspaceError::NothingDiffers(path.clone())
        } else {
            WorkspaceError::NoSuchEntry(path.clone())
        }
        .into())
    }

    pub(super) fn restore_now(
        &self,
        command: &RestoreWorkspace,
    ) -> Result<RestoredWorkspace, Error> {
        let started = self.clock().uptime();
        let _lock = self.lock("restoring")?;
        let from = self.resolve(&command.checkpoint)?;
        let act = self.whole("restore", &from)?;
        let plan = self.plan(&act);
        let is_same = act.is == act.becomes;
        let mut told = RestoredWorkspace {
            restored: false,
            checkpoint: from.slot.to_string(),
            undo: None,
            untouched: act.is.entries().len() as u64 - plan.replaces - plan.deletes,
            plan,
            dry_run: command.run == Run::Dry,
            elapsed_ms: 0,
        };
        if !is_same && command.run == Run::Real {
            self.confirm(&told.plan, command.confirm.as_deref())?;
            told.undo = Some(self.carry_out(&act)?);
            told.restored = true;
        }
        told.elapsed_ms = self.elapsed(started);
        Ok(told)
    }

    /// A change of the whole tree. What could not be read is not known to be the same, and no restore goes over it.
    pub(super) fn whole<'a>(
        &self,
        word: &'static str,
        from: &'a SlotMetadata,
    ) -> Result<Act<'a>, Error> {
        let (is, report) = self.live()?;
        if let Some(path) = report.unreadable() {
            return Err(WorkspaceError::Unreadable(path.clone()).into());
        }
        Ok(Act {
            word,
            from,
            path: None,
            is,
            becomes: self.contents(from)?,
        })
    }

    /// What a change does, and a digest that stands for it.
    pub(super) fn plan(&self, act: &Act<'_>) -> Plan {
        let changes = act.is.diff(&act.becomes);
        let count = |wanted: fn(&Change) -> bool| {
            changes.iter().filter(|(_, change)| wanted(change)).count() as u64
        };
        let is_file = |path: &EntryPath| {
            act.is
                .find(path)
                .is_some_and(|one| one.what != What::Directory)
        };
        let going = changes
            .iter()
            .filter(|(_, change)| *change == Change::Removed);
        let creates = count(|change| *change == Change::Added);
        let deletes = count(|change| *change == Change::Removed);
        let shown = super::show::differences(&act.is, &act.becomes);
        let all = shown.len();
        let shown = shown.iter().take(SHOWN);
        let shown = shown
            .map(|(path, change)| self.change((path, *change), (&act.is, &act.becomes), act.from));
        let identity = format!(
            "{} {} {}",
            act.from.origin.word(),
            act.from.slot,
            act.from.sequence
        );
        let path = act.path.map(ToString::to_string).unwrap_or_default();
        let (is, becomes) = (act.is.hash().to_string(), act.becomes.hash().to_string());
        let digest = StoreDigest::of([identity, path, is, becomes].join("\n").as_bytes());
        Plan {
            creates,
            replaces: changes.len() as u64 - creates - deletes,
            deletes,
            deletes_files: going.filter(|(path, _)| is_file(path)).count() as u64,
            sample_is_cut: all > SHOWN,
            sample: shown.collect(),
            digest: digest.to_string(),
        }
    }

    /// Whether a plan may be carried out by whoever asks.
    pub(super) fn confirm(&self, plan: &Plan, said: Option<&str>) -> Result<(), Error> {
        match said {
            Some(said) if said != plan.digest => Err(WorkspaceError::PlanChanged.into()),
            None if self.actor() == Actor::Model && plan.deletes_files > MOST_DELETED => {
                Err(WorkspaceError::NeedsConfirmation {
                    deletes: plan.deletes_files,
                    most: MOST_DELETED,
                }
                .into())
            }
            _ => Ok(()),
        }
    }

    /// Keeps what will change, changes it, and writes that down; says what takes it back.
    pub(super) fn carry_out(&self, act: &Act<'_>) -> Result<String, Error> {
        self.check_excluded(act)?;
        self.check_undos()?;
        let undo = self.keep(act)?;
        if !self.is_kept_whole(act, &undo)? {
            let _ = self.pool().delete_undo(undo.slot.index());
            return Err(WorkspaceError::PlanChanged.into());
        }
        let changed: Vec<EntryPath> = act
            .is
            .diff(&act.becomes)
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        let id = format!(
            "{}-{}-{}",
            undo.epoch_millis,
            undo.slot.index(),
            std::process::id()
        );
        let ledger = &self.session().ledger;
        let announced = match act.path {
            Some(path) => ledger.announce(&id, std::slice::from_ref(path)),
            None => ledger.announce(&id, &changed),
        };
        let done = announced
            .map_err(WorkspaceError::from)
            .map_err(Error::from)
            .and_then(|()| self.change_tree(act));
        if let Err(error) = done {
            let _ = ledger.abandon(&id);
            // What was changed all the same must be undone, and so must a restore that is brought to its end later.
            let is_untouched = was_refused(&error)
                || !is_half_done(&error) && self.is_as_it_was(act).unwrap_or(false);
            if is_untouched {
                let _ = self.pool().delete_undo(undo.slot.index());
            }
            return Err(error);
        }
        self.pool().was_done(&undo).map_err(WorkspaceError::from)?;
        self.settle(&id, act, &changed);
        self.forget_old_undos()?;
        tracing::info!(act = act.word, from = %called(act.from), entries = changed.len(), "changed the workspace");
        Ok(called(&undo))
    }

    /// Whether what will be changed is still what the plan was made for: what somebody changed since is in no undo checkpoint.
    fn is_as_it_was(&self, act: &Act<'_>) -> Result<bool, Error> {
        Ok(match act.path {
            Some(path) => Manifest::of(self.now(path)?) == act.is,
            None => self.live()?.0 == act.is,
        })
    }

    /// Whether an undo checkpoint of the whole tree holds what the plan was made for, as far as that is known.
    fn is_kept_whole(&self, act: &Act<'_>, undo: &SlotMetadata) -> Result<bool, Error> {
        let Some(hash) = undo.hash.filter(|_| act.path.is_none()) else {
            return Ok(true);
        };
        if hash == act.is.hash() {
            return Ok(true);
        }
        // What reverts make for a moment is in it, and in no plan.
        let is_excluded = stasis_disk::walk::matcher(&self.session().walk().excludes);
        let is_excluded = is_excluded.map_err(WorkspaceError::from)?;
        let mut kept = self.contents(undo)?.entries().to_vec();
        kept.retain(|one| !is_excluded(&one.path, one.what == What::Directory));
        Ok(Manifest::of(kept) == act.is)
    }

    /// Writes down what was put back. It has been done: that nobody could write it down is told in the log.
    fn settle(&self, id: &str, act: &Act<'_>, changed: &[EntryPath]) {
        let ledger = &self.session().ledger;
        let settled = self.put_back_rows(act, changed).and_then(|restored| {
            let settled = ledger.settle(id, self.clock().now(), &restored);
            Ok(settled.map_err(WorkspaceError::from)?)
        });
        if let Err(error) = settled {
            let _ = ledger.abandon(id);
            let error = crate::error::whole(&error);
            tracing::error!(error, "could not write down what was put back");
        }
    }

    /// Refuses what would take away, or write over, something that is in no checkpoint and so in no undo.
    fn check_excluded(&self, act: &Act<'_>) -> Result<(), Error> {
        let patterns = &self.session().config.exclude;
        if patterns.is_empty() {
            return Ok(());
        }
        let is_excluded = stasis_disk::walk::matcher(patterns).map_err(WorkspaceError::from)?;
        let is_directory = |one: &Listed| one.what == What::Directory;
        let mut written = act.becomes.entries().iter();
        if let Some(one) = written.find(|one| is_excluded(&one.path, is_directory(one))) {
            return Err(WorkspaceError::Excluded(one.path.clone()).into());
        }
        let root = EntryPath::root();
        let at = act.path.unwrap_or(&root);
        let found =
            slots::excluded_in(&self.root()?, at, patterns).map_err(WorkspaceError::from)?;
        for path in found {
            let (above, _) = path.split_last().unwrap_or_default();
            let stays = above.is_root() || act.becomes.find(&above).is_some_and(is_directory);
            // An entry that is reverted is exchanged whole, with all that is in it.
            if act.path.is_some() || !stays {
                return Err(WorkspaceError::Excluded(path).into());
            }
        }
        Ok(())
    }

    fn change_tree(&self, act: &Act<'_>) -> Result<(), Error> {
        // What somebody changed since, and what is in no checkpoint, could not be brought back.
        let trouble = RefCell::new(None);
        let still = || {
            let is_excluded = self.check_excluded(act);
            let is_still = is_excluded.and_then(|()| self.is_as_it_was(act));
            is_still.unwrap_or_else(|error| {
                trouble.replace(Some(error));
                false
            })
        };
        let changed = || {
            let trouble = trouble.take();
            trouble.unwrap_or_else(|| WorkspaceError::PlanChanged.into())
        };
        let Some(path) = act.path else {
            let done = self
                .pool()
                .put_back(act.from, self.directory(), &act.is, &still);
            let _ = done.map_err(|error| match error {
                error if changed_meanwhile(&error) => changed(),
                error => WorkspaceError::from(error).into(),
            })?;
            return Ok(());
        };
        let view = self
            .pool()
            .view(act.from, std::slice::from_ref(path))
            .map_err(WorkspaceError::from)?;
        let reverted: Result<Reverted, _> =
            slots::revert_if(&self.root()?, view.tree(), path, &still);
        let _ = reverted.map_err(|source| match source {
            RevertError::Changed(_) => changed(),
            source => Error::from(WorkspaceError::Revert {
                path: path.clone(),
                source: Box::new(source),
            }),
        })?;
        Ok(())
    }

    /// The files that were put back, or taken away, as the ledger has them.
    fn put_back_rows(&self, act: &Act<'_>, changed: &[EntryPath]) -> Result<Vec<Restored>, Error> {
        let root = self.root()?;
        let from = match act.from.origin {
            Origin::Undo => Source::Word("undo"),
            _ => Source::Checkpoint(act.from.slot),
        };
        let is_file = |path: &&EntryPath| {
            let one = act.becomes.find(path).or_else(|| act.is.find(path));
            one.is_some_and(|one| one.what != What::Directory)
        };
        let rows = changed.iter().filter(is_file).map(|path| Restored {
            path: path.clone(),
            from,
            size: act.becomes.find(path).and_then(super::show::size),
            left: fact(&root, path),
        });
        Ok(rows.collect())
    }
}

/// Whether somebody else was faster, so that nothing was done.
fn was_refused(error: &Error) -> bool {
    matches!(error, Error::Workspace(error) if matches!(**error, WorkspaceError::PlanChanged))
}

fn changed_meanwhile(error: &slots::SlotError) -> bool {
    use stasis_disk::restore::RestoreError::Changed;
    matches!(
        error,
        slots::SlotError::Place(Changed(_))
            | slots::SlotError::PutBack(slots::PutBackError::Workspace(Changed(_)))
    )
}

/// Whether a restore was begun and not ended.
fn is_half_done(error: &Error) -> bool {
    use stasis_disk::restore::RestoreError::HalfDone;
    let Error::Workspace(error) = error else {
        return false;
    };
    let WorkspaceError::Slots(error) = &**error else {
        return false;
    };
    matches!(
        **error,
        slots::SlotError::Place(HalfDone { .. })
            | slots::SlotError::PutBack(slots::PutBackError::Workspace(HalfDone { .. }))
    )
}
