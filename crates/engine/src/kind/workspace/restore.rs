//! Reverts and restores: the live tree becomes what it was, or one entry of it does.
//!
//! As every restore ([`crate::restore`]), after the session was locked, and an interrupted restore brought to its end:
//!
//! 1. *plan*: compare the live tree with what it will become; an agent that would delete many files must have seen this very plan
//! 2. *guard*: what is in no checkpoint must not go, and there must be room
//! 3. *keep*: make an undo checkpoint, which holds nothing yet; announce the change in the session database
//! 4. *swap*: change the tree in place (`disk` stages, and follows a journal): what comes out is the backup
//! 5. *settle*: give the backup to the undo checkpoint; write down what was put back
//!
//! A crash before the journal of 4 leaves the tree as it was, and an undo checkpoint without a backup, which goes. After it the next
//! one who locks the session brings the restore to its end, and finds the backup by its label. A crash before the end of 5 leaves it
//! to the watcher to tell what happened, as if somebody else had done it. Whatever others write to the tree meanwhile is afterwards in
//! the tree or in the undo checkpoint; what was not what the plan says is named in the result.

use super::answers::{ForgottenUndo, RestoredWorkspace, RevertAction, RevertedPath};
use super::commands::{RestoreWorkspace, RevertPath, RunMode};
use super::plan::{ChangeVerb, CheckpointChange, WorkspacePlan};
use super::room_for::RoomFor;
use super::show::called;
use super::{Actor, Workspace};
use crate::bridge;
use crate::error::{Error, WorkspaceError, error_chain};
use crate::restore::{LeftAloneEntry, LeftAloneReason, RestoreKind, carry_out};
use stasis_disk::form::chunked::databases::{COMPANIONS, HEADER, holds_changes};
use stasis_disk::form::slots::{self, Manifest, ManifestEntry, ManifestKind, StatCache, fact};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::session_db::{RestoredFile, RestoredFrom};
use stasis_disk::tree::restore::{self, RestoreChanges};
use stasis_disk::tree::walk::{self, WalkSettings};
use stasis_model::time::Timestamp;
use stasis_model::tree::{EntryKind, EntryPath, FileTime};
use stasis_model::workspace::{CheckpointOrigin, SlotMetadata};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

/// A change that was made.
pub(super) struct ChangeDone {
    /// What takes it back: `u-4`.
    pub(super) undo: Option<String>,
    /// The number of that, if it is known to have only what was replaced.
    slot: Option<u32>,
    pub(super) changed_meanwhile: Vec<String>,
    /// What can be undone no longer.
    pub(super) forgotten: Vec<ForgottenUndo>,
    /// What the system refused to move.
    pub(super) not_permitted: Vec<EntryPath>,
}

impl ChangeDone {
    /// Refuses what was done in part: everything else can be undone.
    fn whole(self) -> Result<Self, Error> {
        if self.not_permitted.is_empty() {
            return Ok(self);
        }
        let error = restore::RestoreError::NotOurs(self.not_permitted);
        Err(WorkspaceError::from(slots::SlotError::Place(error)).into())
    }

    /// What the system refused to move, as it is told.
    pub(super) fn refused(&self) -> impl Iterator<Item = LeftAloneEntry> {
        self.not_permitted.iter().map(|path| LeftAloneEntry {
            path: path.to_string(),
            why: LeftAloneReason::NotOurs,
            within: None,
        })
    }
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
        let mut live = self.now(&command.path)?;
        let from = match &command.checkpoint {
            Some(which) => self.resolve(which)?,
            None => self.usual_source(&command.path, &live)?,
        };
        let mut then = self.then(&from, &command.path)?;
        if live.is_empty() && then.is_empty() {
            return Err(WorkspaceError::NotInCheckpoint {
                path: command.path.clone(),
                checkpoint: called(&from),
            }
            .into());
        }
        self.check_readable(&command.path)?;
        let beside = self.add_beside(&command.path, &from, &mut live, &mut then)?;
        let (is, becomes) = (Manifest::of(live), Manifest::of(then));
        let plan = WorkspacePlan {
            only: [vec![command.path.clone()], beside].concat(),
            ..WorkspacePlan::new(ChangeVerb::Revert, &from, is, becomes)
        };
        let is_same = plan.is_nothing();
        let action = match (is_same, plan.source.becomes.entries().is_empty()) {
            (true, _) => RevertAction::Unchanged,
            (false, true) => RevertAction::Deleted,
            (false, false) => RevertAction::Restored,
        };
        let mut result = RevertedPath {
            reverted: false,
            path: command.path.to_string(),
            action,
            checkpoint: from.slot.to_string(),
            undo: None,
            changed_meanwhile: Vec::new(),
            undo_forgotten: Vec::new(),
            plan: self.described(&plan),
            dry_run: command.run == RunMode::Dry,
            elapsed_ms: 0,
        };
        if !is_same && command.run == RunMode::Real {
            // Whoever reverts an entry of the repository has named it.
            let is_agreed = self.actor() == Actor::Owner;
            self.confirm(&result.plan, command.confirm.as_deref(), is_agreed)?;
            let mut done = self.carry_out_keeping(&plan, !command.no_undo)?.whole()?;
            if command.no_undo {
                self.drop_undo(&mut done);
            }
            (result.undo, result.changed_meanwhile) = (done.undo, done.changed_meanwhile);
            result.undo_forgotten = done.forgotten;
            result.reverted = true;
        }
        result.elapsed_ms = self.elapsed(started);
        Ok(result)
    }

    /// Adds what belongs to a database to what it is and becomes; says what that is.
    fn add_beside(
        &self,
        path: &EntryPath,
        from: &SlotMetadata,
        live: &mut Vec<ManifestEntry>,
        then: &mut Vec<ManifestEntry>,
    ) -> Result<Vec<EntryPath>, Error> {
        let beside = self.beside_database(path, from)?;
        for one in &beside {
            self.check_readable(one)?;
            live.extend(self.now(one)?);
            then.extend(self.then(from, one)?);
        }
        Ok(beside)
    }

    /// What SQLite keeps beside an entry, now or in a checkpoint, if that is a database: a WAL of another state would be played into it.
    fn beside_database(
        &self,
        path: &EntryPath,
        from: &SlotMetadata,
    ) -> Result<Vec<EntryPath>, Error> {
        let (root, shown) = (self.root()?, path.to_string());
        let start = slots::read_file(&root, path, HEADER.len() as u64);
        let is_database = start.is_ok_and(|start| start.is_some_and(|start| start == HEADER))
            || from.databases.iter().any(|one| one.path == shown);
        if !is_database {
            return Ok(Vec::new());
        }
        let mut beside = Vec::new();
        for suffix in COMPANIONS {
            let Ok(one) = EntryPath::parse(&[path.as_bytes(), suffix].concat()) else {
                continue;
            };
            if !self.now(&one)?.is_empty() || !self.then(from, &one)?.is_empty() {
                beside.push(one);
            }
        }
        Ok(beside)
    }

    /// Refuses to take away what may not be read: nobody could say what an undo brings back.
    fn check_readable(&self, path: &EntryPath) -> Result<(), Error> {
        let root = self.root()?;
        let refused = |path: EntryPath| Err(WorkspaceError::Unreadable(path).into());
        let Ok(directory) = root.directory(path.as_bytes()) else {
            return match slots::read_file(&root, path, 1) {
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    refused(path.clone())
                }
                // What is no file has nothing to be read.
                _ => Ok(()),
            };
        };
        let Ok(inside) = RootDir::new(directory, Mounts::Stay) else {
            return refused(path.clone());
        };
        let mut cache = StatCache::open(Path::new(""), Timestamp::default());
        let walk = WalkSettings::default();
        let listed = slots::manifest(&inside, &mut cache, &walk).map_err(WorkspaceError::from)?;
        match listed.1.unreadable().next() {
            Some(found) => {
                let whole = found.components().fold(path.clone(), |at, name| {
                    at.child(name).expect("it is part of a good path")
                });
                refused(whole)
            }
            None => Ok(()),
        }
    }

    /// The newest checkpoint that holds an entry, and in which it differs from what it is now.
    fn usual_source(
        &self,
        path: &EntryPath,
        live: &[ManifestEntry],
    ) -> Result<SlotMetadata, Error> {
        let checkpoints = self.newest_first()?;
        if checkpoints.is_empty() {
            return Err(WorkspaceError::NoCheckpoints.into());
        }
        let mut is_anywhere = !live.is_empty();
        for one in checkpoints {
            let then = self.then(&one, path)?;
            is_anywhere |= !then.is_empty();
            if !then.is_empty() && (then != live || self.differs_beside(path, &one)?) {
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

    /// Whether a database differs by what waits beside it.
    fn differs_beside(&self, path: &EntryPath, from: &SlotMetadata) -> Result<bool, Error> {
        for one in self.beside_database(path, from)? {
            if holds_changes(one.as_bytes(), 1) && self.now(&one)? != self.then(from, &one)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn restore_now(
        &self,
        command: &RestoreWorkspace,
    ) -> Result<RestoredWorkspace, Error> {
        let started = self.clock().uptime();
        let _lock = self.lock("restoring")?;
        let from = self.resolve(&command.checkpoint)?;
        let plan = self.whole_less(&from, &command.except)?;
        let mut result = RestoredWorkspace {
            restored: false,
            checkpoint: from.slot.to_string(),
            undo: None,
            untouched: plan.untouched(),
            changed_meanwhile: Vec::new(),
            undo_forgotten: Vec::new(),
            left_alone: plan.left_alone.clone(),
            excluded_now: plan.source.excluded_now.clone(),
            plan: self.described(&plan),
            dry_run: command.run == RunMode::Dry,
            elapsed_ms: 0,
        };
        if !plan.is_nothing() && command.run == RunMode::Real {
            self.confirm(&result.plan, command.confirm.as_deref(), command.agreed)?;
            let mut done = self.carry_out_keeping(&plan, !command.no_undo)?;
            if command.no_undo {
                self.drop_undo(&mut done);
            }
            result.left_alone.extend(done.refused());
            (result.undo, result.changed_meanwhile) = (done.undo, done.changed_meanwhile);
            result.undo_forgotten = done.forgotten;
            result.restored = true;
        }
        result.elapsed_ms = self.elapsed(started);
        Ok(result)
    }

    /// Makes what takes a change back, makes the change, and writes that down.
    pub(super) fn carry_out(&self, plan: &WorkspacePlan<'_>) -> Result<ChangeDone, Error> {
        self.carry_out_keeping(plan, true)
    }

    /// The same, or without room for what takes it back.
    fn carry_out_keeping(
        &self,
        plan: &WorkspacePlan<'_>,
        keeps_undo: bool,
    ) -> Result<ChangeDone, Error> {
        let changed = plan.source.is.diff(&plan.source.becomes).into_iter();
        bridge::ready(carry_out(LiveRestore {
            workspace: self,
            plan,
            changed: changed.map(|(path, _)| path).collect(),
            began: self.locked_at(),
            keeps_undo,
        }))
    }

    /// Removes what would take a change back, as whoever asked for the change wants it. It stays if it has what others wrote meanwhile,
    /// or cannot be removed: then it can be undone after all.
    fn drop_undo(&self, done: &mut ChangeDone) {
        let Some(slot) = done.slot.filter(|_| done.changed_meanwhile.is_empty()) else {
            return;
        };
        match self.pool().delete_undo(slot) {
            Ok(()) => {
                done.undo = None;
                self.note_final();
            }
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(error, "what was replaced could not be removed");
            }
        }
    }

    /// When the session was locked, by the clock that files are stamped by.
    fn locked_at(&self) -> Option<SystemTime> {
        let seen = std::fs::metadata(self.lock_path());
        seen.and_then(|seen| seen.modified()).ok()
    }
}

/// A live tree that is changed.
struct LiveRestore<'a> {
    workspace: &'a Workspace,
    plan: &'a WorkspacePlan<'a>,
    /// Every entry that differs from what it becomes.
    changed: Vec<EntryPath>,
    began: Option<SystemTime>,
    /// Whether what takes it back is kept.
    keeps_undo: bool,
}

/// What takes a change back, once it was made.
struct AnnouncedUndo {
    undo: SlotMetadata,
    /// Under which the session database knows the change.
    id: String,
}

impl RestoreKind for LiveRestore<'_> {
    type Kept = AnnouncedUndo;
    type Staged = ();
    type Swapped = RestoreChanges;
    type Restored = ChangeDone;

    async fn guard(&mut self) -> Result<(), Error> {
        self.check_excluded()?;
        if !self.keeps_undo {
            // What is replaced is moved, and removed.
            return Ok(());
        }
        self.workspace.check_undos()?;
        self.workspace.check_room(self.plan)
    }

    async fn keep(&mut self) -> Result<AnnouncedUndo, Error> {
        let (workspace, plan) = (self.workspace, self.plan);
        let undo = workspace.begin_undo(plan);
        let undo = undo.map_err(|error| self.no_room(error))?;
        let (number, process) = (undo.slot.index(), std::process::id());
        let id = format!("{}-{number}-{process}", undo.epoch_millis);
        let paths = if plan.is_whole() {
            &self.changed
        } else {
            &plan.only
        };
        let announced = workspace.session().db.announce(&id, paths);
        let kept = AnnouncedUndo { undo, id };
        match announced {
            Ok(()) => Ok(kept),
            Err(error) => Err(self.not_done(error.into(), &kept)),
        }
    }

    /// Nothing of its own: `disk` stages what it swaps.
    async fn stage(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn swap(&mut self, (): (), kept: &AnnouncedUndo) -> Result<RestoreChanges, Error> {
        let done = self.change_tree(&kept.undo);
        done.map_err(|error| self.not_done(error, kept))
    }

    async fn settle(self, done: RestoreChanges, kept: AnnouncedUndo) -> Result<ChangeDone, Error> {
        let (workspace, source) = (self.workspace, &self.plan.source);
        let AnnouncedUndo { undo, id } = kept;
        let Some(backup) = &done.backup else {
            // Somebody else had made it what it was to become.
            let _ = (
                workspace.session().db.abandon(&id),
                workspace.pool().delete_undo(undo.slot.index()),
            );
            return Ok(ChangeDone {
                undo: None,
                slot: None,
                changed_meanwhile: Vec::new(),
                forgotten: Vec::new(),
                not_permitted: Vec::new(),
            });
        };
        let (changed_meanwhile, is_looked_at) = self.changed_meanwhile(&done);
        let adopted = workspace.pool().adopt(&undo, backup);
        adopted?;
        self.record(&id);
        let forgotten = if self.keeps_undo {
            workspace.forget_old_undos()
        } else {
            Vec::new()
        };
        workspace.keep_reserve();
        tracing::info!(act = source.verb.word(), from = %called(source.from), entries = self.changed.len(), "changed the workspace");
        Ok(ChangeDone {
            undo: Some(called(&undo)),
            slot: Some(undo.slot.index()).filter(|_| is_looked_at),
            changed_meanwhile,
            forgotten,
            not_permitted: done.refused,
        })
    }
}

impl LiveRestore<'_> {
    fn no_room(&self, error: Error) -> Error {
        self.workspace.no_room(error, &RoomFor::Change(self.plan))
    }

    /// Forgets what was to take back a change that was not made.
    fn not_done(&self, error: Error, kept: &AnnouncedUndo) -> Error {
        let _ = self.workspace.session().db.abandon(&kept.id);
        // A restore that is brought to its end later must be undone.
        if is_half_done(&error) {
            return error;
        }
        let number = kept.undo.slot.index();
        let _ = self.workspace.pool().delete_undo(number);
        self.no_room(error)
    }

    /// What came out of the live tree and is not what the plan says, because somebody else was there first.
    /// Also whether all of that was looked at.
    fn changed_meanwhile(&self, done: &RestoreChanges) -> (Vec<String>, bool) {
        let mut changed: BTreeSet<EntryPath> = done.changed_meanwhile.iter().cloned().collect();
        // Not what came out of the live tree: it was to come, and did not, or waits for a later undo.
        let is_other = |path: &EntryPath| {
            let mut waiting = done.waiting.iter();
            self.plan.is_excepted(path) || waiting.any(|one| path.is_within(one))
        };
        let began = self.began;
        let began = began.and_then(|began| began.duration_since(SystemTime::UNIX_EPOCH).ok());
        let kept = done.backup.as_deref().map(restore::OpenBackup::open);
        // Where nothing is kept, also what is in no checkpoint must be found.
        let walk = if self.keeps_undo {
            self.workspace.session().walk()
        } else {
            WalkSettings::default()
        };
        let mut is_looked_at = false;
        if let (Some(Ok(kept)), Some(began)) = (kept, began)
            && let Ok((entries, _)) = walk::list(kept.tree(), &walk)
        {
            is_looked_at = true;
            for entry in entries {
                let EntryKind::File { size } = entry.kind else {
                    continue;
                };
                if is_other(&entry.path) {
                    continue;
                }
                let known = self.plan.source.is.find(&entry.path);
                let known = known.and_then(super::show::size);
                let FileTime { seconds, nanos } = entry.metadata.modified;
                let began = (began.as_secs().cast_signed(), began.subsec_nanos());
                if known != Some(size) || (seconds, nanos) > began {
                    changed.insert(entry.path);
                }
            }
        }
        let changed = changed.iter().map(ToString::to_string).collect();
        (changed, is_looked_at)
    }

    /// Writes down what was put back. It has been done: that nobody could write it down is told in the log.
    fn record(&self, id: &str) {
        let session_db = &self.workspace.session().db;
        let settled = self.restored_rows().and_then(|restored| {
            Ok(session_db.settle(id, self.workspace.clock().now(), &restored)?)
        });
        if let Err(error) = settled {
            let _ = session_db.abandon(id);
            let error = error_chain(&error);
            tracing::error!(error, "could not write down what was put back");
        }
    }

    /// Refuses what would take away, or write over, something that is in no checkpoint and so in no undo.
    fn check_excluded(&self) -> Result<(), Error> {
        let (session, becomes) = (self.workspace.session(), &self.plan.source.becomes);
        let Some(is_excluded) = session.excluded()? else {
            return Ok(());
        };
        let is_directory = |one: &ManifestEntry| one.what == ManifestKind::Directory;
        let mut written = becomes.entries().iter();
        if let Some(one) = written.find(|one| is_excluded(&one.path, is_directory(one))) {
            return Err(WorkspaceError::Excluded(one.path.clone()).into());
        }
        // What a tool installs for itself goes with the directory that it is in, and is kept with it until the undo is forgotten.
        let patterns = session.kept_out();
        if patterns.is_empty() {
            return Ok(());
        }
        let root = EntryPath::root();
        let at = self.plan.path().unwrap_or(&root);
        let found = slots::excluded_in(&self.workspace.root()?, at, &patterns);
        for path in found.map_err(WorkspaceError::from)? {
            let (above, _) = path.split_last().unwrap_or_default();
            let stays = above.is_root() || becomes.find(&above).is_some_and(is_directory);
            // An entry that is reverted is exchanged whole, with all that is in it.
            if !self.plan.is_whole() || !stays {
                return Err(WorkspaceError::Excluded(path).into());
            }
        }
        Ok(())
    }

    fn change_tree(&self, undo: &SlotMetadata) -> Result<RestoreChanges, Error> {
        let (workspace, plan) = (self.workspace, self.plan);
        let CheckpointChange { from, is, .. } = &plan.source;
        let pool = workspace.pool_now()?;
        let label = pool.label_of(undo);
        let at = workspace.clock().now();
        let done = if from.origin == CheckpointOrigin::Undo {
            let backup = workspace.pool().backup_of(from);
            let backup = backup.ok_or(WorkspaceError::NothingToUndo)?;
            let origin = restore::RestoreOrigin {
                at,
                from: called(from),
            };
            let directory = workspace.directory();
            let taken = restore::take_back(directory, &backup, &origin, &label, &plan.except);
            taken.map_err(slots::SlotError::from)
        } else {
            let restore_in_place = |except: &[EntryPath]| {
                let back = slots::Return {
                    workspace: workspace.directory(),
                    live: is,
                    only: plan.path(),
                    beside: plan.only.get(1..).unwrap_or_default(),
                    except,
                    at,
                    label: &label,
                };
                pool.restore_in_place(from, back)
            };
            match restore_in_place(&plan.except) {
                // What the plan knows of and belongs to others is left alone already. These hold what they held, and have only another
                // time or owner, which nobody but their owners can change.
                Err(error) if plan.is_whole() && !not_ours(&error).is_empty() => {
                    restore_in_place(&[&plan.except, not_ours(&error)].concat())
                }
                done => done,
            }
        };
        Ok(done?)
    }

    /// The files that were restored, or removed, as the session database has them.
    fn restored_rows(&self) -> Result<Vec<RestoredFile>, Error> {
        let root = self.workspace.root()?;
        let CheckpointChange {
            from, is, becomes, ..
        } = &self.plan.source;
        let from = match from.origin {
            CheckpointOrigin::Undo => RestoredFrom::Word("undo"),
            _ => RestoredFrom::Checkpoint(from.slot),
        };
        let is_file = |path: &&EntryPath| {
            let one = becomes.find(path).or_else(|| is.find(path));
            one.is_some_and(|one| one.what != ManifestKind::Directory)
        };
        let files = self.changed.iter().filter(is_file);
        let rows = files.map(|path| RestoredFile {
            path: path.clone(),
            from,
            size: becomes.find(path).and_then(super::show::size),
            left: fact(&root, path),
        });
        Ok(rows.collect())
    }
}

/// What could not be moved, so that nothing was begun.
fn not_ours(error: &slots::SlotError) -> &[EntryPath] {
    use stasis_disk::tree::restore::RestoreError::NotOurs;
    match error {
        slots::SlotError::Place(NotOurs(paths)) => paths,
        _ => &[],
    }
}

/// Whether a restore was begun and not ended.
pub(super) fn is_half_done(error: &Error) -> bool {
    use stasis_disk::tree::restore::RestoreError::HalfDone;
    let Error::Workspace(error) = error else {
        return false;
    };
    let WorkspaceError::Slots(error) = &**error else {
        return false;
    };
    matches!(**error, slots::SlotError::Place(HalfDone { .. }))
}
