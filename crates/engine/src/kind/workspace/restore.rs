//! What changes the live tree: revert, restore, undo.
//!
//! 1. lock the session; bring an interrupted restore to its end
//! 2. compare the live tree with what it will become: the plan
//! 3. an agent that would delete many files must have seen this very plan
//! 4. make an undo checkpoint, which holds nothing yet
//! 5. announce the change in the session database   6. change the tree in place: what comes out is the backup (`disk::restore`)
//! 7. give the backup to the undo checkpoint; write down what was put back
//!
//! A crash before the journal of 6 leaves the tree as it was, and an undo checkpoint without a backup, which goes. After it the next
//! one who locks the session brings the restore to its end, and finds the backup by its label. A crash before the end of 7 leaves it
//! to the watcher to tell what happened, as if somebody else had done it. Whatever others write to the tree meanwhile is afterwards in
//! the tree or in the undo checkpoint; what was not what the plan says is named in the result.

use super::answers::{
    ChangePlan, ExcludedNow, ForgottenUndo, LeftAloneEntry, LeftAloneReason, RestoredWorkspace,
    RevertAction, RevertedPath,
};
use super::commands::{RestoreWorkspace, RevertPath, RunMode};
use super::error::WorkspaceError;
use super::room_for::RoomFor;
use super::show::{BeforeAfter, called};
use super::{Actor, Workspace};
use crate::error::Error;
use stasis_disk::form::chunked::databases::{COMPANIONS, HEADER, holds_changes};
use stasis_disk::form::slots::{self, Manifest, ManifestEntry, ManifestKind, StatCache, fact};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::session_db::{RestoredFile, RestoredFrom};
use stasis_disk::tree::restore::{self, RestoreChanges};
use stasis_disk::tree::walk::WalkSettings;
use stasis_model::digest::StoreDigest;
use stasis_model::time::Timestamp;
use stasis_model::tree::diff::ChangeKind;
use stasis_model::tree::{EntryKind, EntryPath, FileTime};
use stasis_model::workspace::{CheckpointOrigin, SlotMetadata};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

/// A model deletes no more files than this without having seen which.
const MOST_DELETED: u64 = 20;
/// How many entries of a plan are shown.
const SHOWN: usize = 100;

/// A change of the live tree.
pub(super) struct LiveChange<'a> {
    pub(super) word: &'static str,
    /// What the tree, or an entry of it, becomes.
    pub(super) from: &'a SlotMetadata,
    /// The entry; else the whole tree.
    pub(super) path: Option<&'a EntryPath>,
    /// What belongs to the entry, if that is a database: its WAL and its journals.
    pub(super) beside: Vec<EntryPath>,
    pub(super) is: Manifest,
    pub(super) becomes: Manifest,
    /// What is left as it is.
    pub(super) except: Vec<EntryPath>,
    /// What of that nobody asked for.
    pub(super) left_alone: Vec<LeftAloneEntry>,
    /// What is excluded from checkpoints by now, and left as it is for that.
    pub(super) excluded_now: Option<ExcludedNow>,
}

/// A change that was made.
pub(super) struct ChangeDone {
    /// What takes it back: `u-4`.
    pub(super) undo: Option<String>,
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
        let act = LiveChange {
            path: Some(&command.path),
            beside,
            ..LiveChange::new("revert", &from, Manifest::of(live), Manifest::of(then))
        };
        let plan = self.plan(&act);
        let is_same = act.is == act.becomes;
        let action = match (is_same, act.becomes.entries().is_empty()) {
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
            plan,
            dry_run: command.run == RunMode::Dry,
            elapsed_ms: 0,
        };
        if !is_same && command.run == RunMode::Real {
            // Whoever reverts an entry of the repository has named it.
            let is_agreed = self.actor() == Actor::Owner;
            self.confirm(&result.plan, command.confirm.as_deref(), is_agreed)?;
            let done = self.carry_out(&act)?.whole()?;
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
        let act = self.whole_less(&from, &command.except)?;
        let plan = self.plan(&act);
        let is_same = act.is == act.becomes;
        let mut result = RestoredWorkspace {
            restored: false,
            checkpoint: from.slot.to_string(),
            undo: None,
            untouched: act.untouched(),
            changed_meanwhile: Vec::new(),
            undo_forgotten: Vec::new(),
            left_alone: act.left_alone.clone(),
            excluded_now: act.excluded_now.clone(),
            plan,
            dry_run: command.run == RunMode::Dry,
            elapsed_ms: 0,
        };
        if !is_same && command.run == RunMode::Real {
            self.confirm(&result.plan, command.confirm.as_deref(), command.agreed)?;
            let done = self.carry_out(&act)?;
            result.left_alone.extend(done.refused());
            (result.undo, result.changed_meanwhile) = (done.undo, done.changed_meanwhile);
            result.undo_forgotten = done.forgotten;
            result.restored = true;
        }
        result.elapsed_ms = self.elapsed(started);
        Ok(result)
    }

    /// What a change does, and a digest that stands for it.
    pub(super) fn plan(&self, act: &LiveChange<'_>) -> ChangePlan {
        let changes = act.is.diff(&act.becomes);
        let git = self.git_plan(&changes, act.from);
        let (changes, _) = super::git::collapsed(changes);
        let count = |wanted: fn(&ChangeKind) -> bool| {
            changes.iter().filter(|(_, change)| wanted(change)).count() as u64
        };
        let is_file = |path: &EntryPath| {
            act.is
                .find(path)
                .is_some_and(|one| one.what != ManifestKind::Directory)
        };
        let going = changes
            .iter()
            .filter(|(_, change)| *change == ChangeKind::Removed);
        let creates = count(|change| *change == ChangeKind::Added);
        let deletes = count(|change| *change == ChangeKind::Removed);
        let shown = super::show::differences(&act.is, &act.becomes);
        let (shown, _) = super::git::collapsed(shown);
        let all = shown.len();
        let shown = shown.iter().take(SHOWN);
        let both = BeforeAfter {
            before: &act.is,
            after: &act.becomes,
        };
        let shown = shown.map(|(path, change)| self.change(path, *change, both, act.from));
        let identity = format!(
            "{} {} {}",
            act.from.origin, act.from.slot, act.from.sequence
        );
        let path = act.path.map(ToString::to_string).unwrap_or_default();
        // What is in the live tree may change at any time, and is kept whatever it is: the digest stands for what the tree becomes,
        // and for what is deleted for it.
        let becomes = act.becomes.hash().to_string();
        let mut digest = vec![identity, path, becomes];
        digest.extend(going.clone().map(|(path, _)| path.to_string()));
        let digest = StoreDigest::of(digest.join("\n").as_bytes());
        ChangePlan {
            creates,
            replaces: changes.len() as u64 - creates - deletes,
            deletes,
            deletes_files: going.filter(|(path, _)| is_file(path)).count() as u64,
            sample_is_cut: all > SHOWN,
            sample: shown.collect(),
            git,
            digest: digest.to_string(),
        }
    }

    /// Whether a plan may be carried out by whoever asks.
    pub(super) fn confirm(
        &self,
        plan: &ChangePlan,
        said: Option<&str>,
        is_agreed: bool,
    ) -> Result<(), Error> {
        let git = plan.git.as_ref().filter(|git| !git.moves.is_empty());
        match said {
            Some(said) if said != plan.digest => Err(WorkspaceError::PlanChanged.into()),
            None if self.actor() == Actor::Model && plan.deletes_files > MOST_DELETED => {
                Err(WorkspaceError::NeedsConfirmation {
                    deletes: plan.deletes_files,
                    most: MOST_DELETED,
                }
                .into())
            }
            // Commits are the user's: nobody takes them away without having been told.
            None if git.is_some_and(|git| self.actor() == Actor::Model || git.takes_commits())
                && !is_agreed =>
            {
                let git = git.expect("it was just looked at");
                Err(WorkspaceError::MovesGit {
                    moves: git.moves.join(", "),
                    commits: git.commits_leaving,
                }
                .into())
            }
            _ => Ok(()),
        }
    }

    /// Makes what takes a change back, makes the change, and writes that down.
    pub(super) fn carry_out(&self, act: &LiveChange<'_>) -> Result<ChangeDone, Error> {
        let began = self.locked_at();
        self.check_excluded(act)?;
        self.check_undos()?;
        self.check_room(act)?;
        let no_room = |error| self.no_room(error, &RoomFor::Change(act));
        let undo = self.begin_undo(act).map_err(no_room)?;
        let changed = act.is.diff(&act.becomes).into_iter();
        let changed: Vec<EntryPath> = changed.map(|(path, _)| path).collect();
        let id = format!(
            "{}-{}-{}",
            undo.epoch_millis,
            undo.slot.index(),
            std::process::id()
        );
        let session_db = &self.session().db;
        let announced = match act.path {
            Some(path) => {
                session_db.announce(&id, &[std::slice::from_ref(path), &act.beside].concat())
            }
            None => session_db.announce(&id, &changed),
        };
        let done = announced
            .map_err(Error::from)
            .and_then(|()| self.change_tree(act, &undo));
        let done = match done {
            Err(error) => {
                let _ = session_db.abandon(&id);
                // A restore that is brought to its end later must be undone.
                if is_half_done(&error) {
                    return Err(error);
                }
                let _ = self.pool().delete_undo(undo.slot.index());
                return Err(no_room(error));
            }
            Ok(done) => done,
        };
        let Some(backup) = &done.backup else {
            // Somebody else had made it what it was to become.
            let _ = (
                session_db.abandon(&id),
                self.pool().delete_undo(undo.slot.index()),
            );
            return Ok(ChangeDone {
                undo: None,
                changed_meanwhile: Vec::new(),
                forgotten: Vec::new(),
                not_permitted: Vec::new(),
            });
        };
        let changed_meanwhile = self.changed_meanwhile(act, &done, began);
        let adopted = self.pool().adopt(&undo, backup);
        adopted?;
        self.settle(&id, act, &changed);
        let forgotten = self.forget_old_undos();
        self.keep_reserve();
        tracing::info!(act = act.word, from = %called(act.from), entries = changed.len(), "changed the workspace");
        Ok(ChangeDone {
            undo: Some(called(&undo)),
            changed_meanwhile,
            forgotten,
            not_permitted: done.refused,
        })
    }

    /// When the session was locked, by the clock that files are stamped by.
    fn locked_at(&self) -> Option<SystemTime> {
        let seen = std::fs::metadata(self.lock_path());
        seen.and_then(|seen| seen.modified()).ok()
    }

    /// What came out of the live tree and is not what the plan says, because somebody else was there first.
    fn changed_meanwhile(
        &self,
        act: &LiveChange<'_>,
        done: &RestoreChanges,
        began: Option<SystemTime>,
    ) -> Vec<String> {
        let mut changed: BTreeSet<EntryPath> = done.changed_meanwhile.iter().cloned().collect();
        // Not what came out of the live tree: it was to come, and did not, or waits for a later undo.
        let is_other = |path: &EntryPath| {
            let mut excepted = act.except.iter();
            let mut waiting = done.waiting.iter();
            excepted.any(|one| restore::is_part_of(path, one))
                || waiting.any(|one| path.is_within(one))
        };
        let began = began.and_then(|began| began.duration_since(SystemTime::UNIX_EPOCH).ok());
        let kept = done.backup.as_deref().map(restore::returned);
        if let (Some(Ok((_, tree))), Some(began)) = (kept, began)
            && let Ok((entries, _)) = stasis_disk::tree::walk::list(&tree, &self.session().walk())
        {
            for entry in entries {
                let EntryKind::File { size } = entry.kind else {
                    continue;
                };
                if is_other(&entry.path) {
                    continue;
                }
                let known = act.is.find(&entry.path).and_then(super::show::size);
                let FileTime { seconds, nanos } = entry.metadata.modified;
                let began = (began.as_secs().cast_signed(), began.subsec_nanos());
                if known != Some(size) || (seconds, nanos) > began {
                    changed.insert(entry.path);
                }
            }
        }
        changed.iter().map(ToString::to_string).collect()
    }

    /// Writes down what was put back. It has been done: that nobody could write it down is told in the log.
    fn settle(&self, id: &str, act: &LiveChange<'_>, changed: &[EntryPath]) {
        let session_db = &self.session().db;
        let settled = self.restored_rows(act, changed).and_then(|restored| {
            let settled = session_db.settle(id, self.clock().now(), &restored);
            Ok(settled.map_err(WorkspaceError::from)?)
        });
        if let Err(error) = settled {
            let _ = session_db.abandon(id);
            let error = crate::error::error_chain(&error);
            tracing::error!(error, "could not write down what was put back");
        }
    }

    /// Refuses what would take away, or write over, something that is in no checkpoint and so in no undo.
    fn check_excluded(&self, act: &LiveChange<'_>) -> Result<(), Error> {
        let patterns = self.session().excludes();
        if patterns.is_empty() {
            return Ok(());
        }
        let is_excluded =
            stasis_disk::tree::walk::matcher(&patterns).map_err(WorkspaceError::from)?;
        let is_directory = |one: &ManifestEntry| one.what == ManifestKind::Directory;
        let mut written = act.becomes.entries().iter();
        if let Some(one) = written.find(|one| is_excluded(&one.path, is_directory(one))) {
            return Err(WorkspaceError::Excluded(one.path.clone()).into());
        }
        // What a tool installs for itself goes with the directory that it is in, and is kept with it until the undo is forgotten.
        let Some(patterns) = &self.session().config.exclude else {
            return Ok(());
        };
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

    fn change_tree(
        &self,
        act: &LiveChange<'_>,
        undo: &SlotMetadata,
    ) -> Result<RestoreChanges, Error> {
        let label = self.pool().label_of(undo);
        let at = self.clock().now();
        let done = if act.from.origin == CheckpointOrigin::Undo {
            let backup = self.pool().backup_of(act.from);
            let backup = backup.ok_or(WorkspaceError::NothingToUndo)?;
            let origin = restore::RestoreOrigin {
                at,
                from: called(act.from),
            };
            let taken =
                restore::take_back(self.directory(), &backup, (&origin, &label), &act.except);
            taken.map_err(slots::SlotError::from)
        } else {
            let restore_in_place = |except: &[EntryPath]| {
                let back = slots::Return {
                    workspace: self.directory(),
                    live: &act.is,
                    only: act.path,
                    beside: &act.beside,
                    except,
                    at,
                    label: &label,
                };
                self.pool().restore_in_place(act.from, back)
            };
            match restore_in_place(&act.except) {
                // What the plan knows of and belongs to others is left alone already. These hold what they held, and have only another
                // time or owner, which nobody but their owners can change.
                Err(error) if act.path.is_none() && !not_ours(&error).is_empty() => {
                    restore_in_place(&[&act.except, not_ours(&error)].concat())
                }
                done => done,
            }
        };
        Ok(done?)
    }

    /// The files that were put back, or taken away, as the session database has them.
    fn restored_rows(
        &self,
        act: &LiveChange<'_>,
        changed: &[EntryPath],
    ) -> Result<Vec<RestoredFile>, Error> {
        let root = self.root()?;
        let from = match act.from.origin {
            CheckpointOrigin::Undo => RestoredFrom::Word("undo"),
            _ => RestoredFrom::Checkpoint(act.from.slot),
        };
        let is_file = |path: &&EntryPath| {
            let one = act.becomes.find(path).or_else(|| act.is.find(path));
            one.is_some_and(|one| one.what != ManifestKind::Directory)
        };
        let rows = changed.iter().filter(is_file).map(|path| RestoredFile {
            path: path.clone(),
            from,
            size: act.becomes.find(path).and_then(super::show::size),
            left: fact(&root, path),
        });
        Ok(rows.collect())
    }
}

impl<'a> LiveChange<'a> {
    /// A change of the whole tree.
    pub(super) fn new(
        word: &'static str,
        from: &'a SlotMetadata,
        is: Manifest,
        becomes: Manifest,
    ) -> Self {
        Self {
            word,
            from,
            path: None,
            beside: Vec::new(),
            is,
            becomes,
            except: Vec::new(),
            left_alone: Vec::new(),
            excluded_now: None,
        }
    }

    /// How many entries stay what they are.
    fn untouched(&self) -> u64 {
        let changed = self.is.diff(&self.becomes).into_iter();
        let changed = changed.filter(|(_, change)| *change != ChangeKind::Added);
        (self.is.entries().len() - changed.count()) as u64
    }

    /// The same change, but for some entries, which stay what they are.
    pub(super) fn without(mut self, except: &[EntryPath]) -> Self {
        if except.is_empty() {
            return self;
        }
        let is_excepted = |path: &EntryPath| {
            except
                .iter()
                .any(|except| restore::is_part_of(path, except))
        };
        let stays = self
            .is
            .entries()
            .iter()
            .filter(|one| is_excepted(&one.path));
        let comes = self.becomes.entries().iter();
        let comes = comes.filter(|one| !is_excepted(&one.path));
        let mut all: Vec<ManifestEntry> = stays.chain(comes).cloned().collect();
        all.sort_by(|one, other| one.path.cmp(&other.path));
        self.becomes = Manifest::of(all);
        self.except.extend_from_slice(except);
        self
    }
}

/// What could not be moved, so that nothing was begun.
fn not_ours(error: &slots::SlotError) -> &[EntryPath] {
    use stasis_disk::tree::restore::RestoreError::NotOurs;
    match error {
        slots::SlotError::Place(NotOurs(paths))
        | slots::SlotError::Restore(slots::WorkspaceRestoreError::Workspace(NotOurs(paths))) => {
            paths
        }
        _ => &[],
    }
}

/// Whether a restore was begun and not ended.
fn is_half_done(error: &Error) -> bool {
    use stasis_disk::tree::restore::RestoreError::HalfDone;
    let Error::Workspace(error) = error else {
        return false;
    };
    let WorkspaceError::Slots(error) = &**error else {
        return false;
    };
    matches!(
        **error,
        slots::SlotError::Place(HalfDone { .. })
            | slots::SlotError::Restore(slots::WorkspaceRestoreError::Workspace(HalfDone { .. }))
    )
}
