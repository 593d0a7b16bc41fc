//! What takes changes back: made before an act, used by `undo`, cleared up after the dead.
//!
//! An undo checkpoint holds what came out of the live tree (`disk::restore`), and nothing else. Taking it back exchanges the same
//! inodes again. To take back a change of the whole tree that is not the last one, those after it are taken back first, the newest
//! before the others: the tree is then what it was before all of them, but for what others changed since.

use super::answers::{ForgetReason, ForgottenUndo, UndoneChange};
use super::commands::{RunMode, UndoChange};
use super::plan::{ChangeVerb, WorkspacePlan};
use super::restore::ChangeDone;
use super::show::{called, portion_of};
use super::{Actor, Workspace};
use crate::error::{Error, WorkspaceError};
use crate::restore::{LeftAloneEntry, LeftAloneReason};
use stasis_disk::form::slots::{Manifest, ManifestEntry, ManifestKind, SlotError};
use stasis_disk::fs::atomic_write::atomic_write;
use stasis_disk::tree::restore::{self, OpenBackup, Returned};
use stasis_model::invalid::Invalid;
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use stasis_model::tree::attributes::AttributesDigest;
use stasis_model::workspace::{CheckpointOrigin, Slot, SlotMetadata, UndoNote};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long undo checkpoints are kept of what people do.
const KEPT: Duration = Duration::from_hours(7 * 24);
/// How many of those stay also when everything together is over the budget.
const UNDOS: usize = 10;
/// How many there are at most before a model changes nothing more.
const MOST_UNDOS: usize = 200;
/// Where the number of the last undo checkpoint is kept.
const LAST_UNDO: &str = "last_undo";

/// When something was changed last that cannot be taken back, in the session directory.
pub(super) const FINAL: &str = "last_final";

impl Workspace {
    pub(super) fn undo_now(&self, command: &UndoChange) -> Result<UndoneChange, Error> {
        let _lock = self.lock("undoing")?;
        let chosen = self.chosen_undos(command.which)?;
        let from = chosen.last().ok_or(WorkspaceError::NothingToUndo)?;
        let note = from.undo.clone().ok_or(WorkspaceError::NothingToUndo)?;
        let path = note.path.as_deref().map(entry).transpose()?;
        let (is, left_alone) = match &path {
            None => self.live_but(&chosen, &command.except)?,
            Some(path) => (Manifest::of(self.now(path)?), Vec::new()),
        };
        let mut except = command.except.clone();
        except.extend(left_alone.iter().filter_map(|one| entry(&one.path).ok()));
        let mut states = vec![is.clone()];
        for (at, one) in chosen.iter().enumerate() {
            let becomes = self.taken_back(one, &states[at], &except)?;
            states.push(becomes);
        }
        let becomes = states[chosen.len()].clone();
        let plan = WorkspacePlan {
            only: path.into_iter().collect(),
            except,
            ..WorkspacePlan::new(ChangeVerb::Undo, from, is, becomes)
        };
        let mut result = UndoneChange {
            undone: false,
            undo: called(from),
            act: note.act.clone(),
            path: note.path.clone(),
            redo: None,
            changed_meanwhile: Vec::new(),
            undo_forgotten: Vec::new(),
            left_alone,
            plan: self.described(&plan),
            dry_run: command.run == RunMode::Dry,
        };
        if command.run == RunMode::Real {
            if !plan.is_nothing() {
                self.confirm(&result.plan, command.confirm.as_deref(), command.agreed)?;
                result.undone = true;
            }
            self.take_back_all(&chosen, &states, &plan, &mut result)?;
        }
        Ok(result)
    }

    /// Takes changes back, the newest first, each from the state that the one before it left.
    fn take_back_all(
        &self,
        chosen: &[SlotMetadata],
        states: &[Manifest],
        plan: &WorkspacePlan<'_>,
        result: &mut UndoneChange,
    ) -> Result<(), Error> {
        let is_same = plan.is_nothing();
        for (one, state) in chosen.iter().zip(states.windows(2)) {
            let (leaves_out, has_left_out) = {
                let backup = self.open_backup(one)?;
                (backup.leaves_out(&plan.except), backup.has_left_out())
            };
            if is_same && leaves_out {
                // Nothing came back of what it keeps.
                continue;
            }
            if !is_same || has_left_out {
                let first = result.redo.as_deref();
                let since = first.and_then(|first| first.strip_prefix("u-")?.parse().ok());
                let done = self.take_back(one, plan, state, since)?;
                result.left_alone.extend(done.refused());
                // Taking back the first of these takes back all of them.
                result.redo = result.redo.take().or(done.undo);
                result.changed_meanwhile.extend(done.changed_meanwhile);
                result.undo_forgotten.extend(done.forgotten);
            }
            // What it kept is live again. As the oldest of all, it may have gone already.
            match self.pool().delete_undo(one.slot.index()) {
                Err(SlotError::Empty(_)) => {}
                deleted => deleted?,
            }
        }
        Ok(())
    }

    /// What the live tree contains, and what is left alone of what taking these back would move: what may not be read, so that nobody could
    /// say what a redo brings back, and what belongs to others.
    fn live_but(
        &self,
        chosen: &[SlotMetadata],
        asked: &[EntryPath],
    ) -> Result<(Manifest, Vec<LeftAloneEntry>), Error> {
        let (is, report) = self.live()?;
        let root = self.root()?;
        let mut permissions = restore::Permissions::new(&root);
        let mut left_alone: BTreeMap<EntryPath, LeftAloneEntry> = BTreeMap::new();
        for one in chosen {
            for step in self.open_backup(one)?.returned() {
                let (Returned::Back(path) | Returned::Away(path)) = step else {
                    continue;
                };
                if restore::is_left(&path, true, asked) {
                    continue;
                }
                let mut unreadable = report.unreadable();
                let found = unreadable.find(|one| one.is_within(&path) || path.is_within(one));
                let (found, why) = match found {
                    Some(found) => (found.clone(), LeftAloneReason::Unreadable),
                    None if !permissions.may_move(&path) => {
                        (path.clone(), LeftAloneReason::NotOurs)
                    }
                    None => continue,
                };
                left_alone.entry(found.clone()).or_insert(LeftAloneEntry {
                    path: found.to_string(),
                    why,
                    within: (path != found).then(|| path.to_string()),
                });
            }
        }
        Ok((is, left_alone.into_values().collect()))
    }

    /// What is taken back, in this order, so that one change is; the last one if none is named.
    fn chosen_undos(&self, which: Option<u32>) -> Result<Vec<SlotMetadata>, Error> {
        let undos = self.undos_newest_first()?;
        let Some(number) = which else {
            let last = last_act(&undos);
            return Ok(undos.into_iter().take(last).collect());
        };
        let at = undos.iter().position(|one| one.slot.index() == number);
        let at = at.ok_or(WorkspaceError::NoUndo(number))?;
        let is_whole = undos[at]
            .undo
            .as_ref()
            .is_some_and(|note| note.path.is_none());
        let first = if is_whole { 0 } else { at };
        Ok(undos[first..=at].to_vec())
    }

    /// Whether something of an entry is moved when changes are taken back.
    pub(super) fn moves_back(&self, which: Option<u32>, entry: &EntryPath) -> Result<bool, Error> {
        let walk = self.session().walk();
        for one in self.chosen_undos(which)? {
            let backup = self.open_backup(&one)?;
            for step in backup.returned() {
                let (Returned::Back(path)
                | Returned::Away(path)
                | Returned::Unmade(path)
                | Returned::Dressed(path, ..)) = &step;
                let is_in_it = |step: &Returned| match step {
                    Returned::Back(path) if entry.is_within(path) => {
                        let kept = portion_of(backup.tree(), entry, &walk)?;
                        Ok::<_, Error>(!kept.is_empty())
                    }
                    _ => Ok(false),
                };
                if path.is_within(entry) || is_in_it(&step)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// What a tree becomes when a change of it is taken back.
    fn taken_back(
        &self,
        undo: &SlotMetadata,
        is: &Manifest,
        except: &[EntryPath],
    ) -> Result<Manifest, Error> {
        let backup = self.open_backup(undo)?;
        let walk = self.session().walk();
        let mut all: BTreeMap<EntryPath, ManifestEntry> = is
            .entries()
            .iter()
            .map(|one| (one.path.clone(), one.clone()))
            .collect();
        let take = |all: &mut BTreeMap<EntryPath, ManifestEntry>, path: &EntryPath| {
            let gone = all.remove(path);
            if gone.is_some_and(|gone| gone.what == ManifestKind::Directory) {
                all.retain(|one, _| !is_in(one, path));
            }
        };
        for step in backup.returned().filter(|step| !step.is_left(except)) {
            match step {
                Returned::Back(path) => {
                    take(&mut all, &path);
                    let kept = portion_of(backup.tree(), &path, &walk)?;
                    all.extend(kept.into_iter().map(|one| (one.path.clone(), one)));
                }
                Returned::Away(path) => take(&mut all, &path),
                Returned::Dressed(path, before, attributes) => {
                    let one = all.get_mut(&path);
                    if let Some(one) = one.filter(|one| one.what == ManifestKind::Directory) {
                        one.mode = before.mode;
                        if let Some(attributes) = attributes {
                            one.attributes = AttributesDigest::of(&attributes);
                        }
                    }
                }
                Returned::Unmade(path) => {
                    let is_empty = !all.keys().any(|one| *one != path && is_in(one, &path));
                    if is_empty {
                        all.remove(&path);
                    }
                }
            }
        }
        Ok(Manifest::of(all.into_values().collect()))
    }

    /// What taking one change back would do.
    pub(super) fn open_backup(&self, undo: &SlotMetadata) -> Result<OpenBackup, Error> {
        let backup = self.pool().backup_of(undo);
        let backup = backup.ok_or(WorkspaceError::NothingToUndo)?;
        Ok(OpenBackup::open(&backup)?)
    }

    /// Takes one change back, as part of one that may take back several.
    fn take_back(
        &self,
        from: &SlotMetadata,
        whole: &WorkspacePlan<'_>,
        state: &[Manifest],
        since: Option<u32>,
    ) -> Result<ChangeDone, Error> {
        let (is, becomes) = (state[0].clone(), state[1].clone());
        let mut plan = WorkspacePlan {
            only: whole.only.clone(),
            except: whole.except.clone(),
            ..WorkspacePlan::new(whole.source.verb, from, is, becomes)
        };
        plan.source.since = since;
        self.carry_out(&plan)
    }

    /// Whether there is room for another undo checkpoint: those of models go only when a person lets them.
    pub(super) fn check_undos(&self) -> Result<(), Error> {
        if self.actor() != Actor::Model {
            return Ok(());
        }
        let own = Some(self.maker().word());
        let undos = self.undos_newest_first()?;
        let own = undos.iter().filter(|one| one.made_by.as_deref() == own);
        if own.count() >= MOST_UNDOS {
            return Err(WorkspaceError::UndosFull { max: MOST_UNDOS }.into());
        }
        Ok(())
    }

    /// Notes that something was changed that cannot be taken back: what was done before it is not the last change any more.
    pub(super) fn note_final(&self) {
        let now = self.clock().now().millis().to_string();
        let written = atomic_write(&self.session().path.join(FINAL), now.as_bytes());
        if let Err(error) = written {
            tracing::warn!(%error, "could not note that a change cannot be taken back");
        }
    }

    /// When something was changed last that cannot be taken back, in milliseconds since 1970.
    pub(crate) fn last_final(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.session().path.join(FINAL)).ok()?;
        text.parse().ok()
    }

    /// Lets go of everything that could be undone; says how many.
    pub(super) fn forget_undos_now(&self) -> Result<u64, Error> {
        let (_lock, something_waits) = self.lock_to_free("forgetting what could be undone")?;
        let mut undos = self.pool().undos()?;
        // What a change needs that waits for room is not let go.
        undos.retain(|one| {
            let needed = one.known().is_none_or(|one| self.pool().is_needed(one));
            !(something_waits && needed)
        });
        for one in &undos {
            let deleted = self.pool().delete_undo(one.slot().index());
            deleted?;
        }
        if !undos.is_empty() {
            self.note_final();
        }
        self.keep_reserve();
        Ok(undos.len() as u64)
    }

    /// The number of the next undo checkpoint: none is ever used again.
    fn next_undo(&self) -> Result<u32, Error> {
        let session_db = &self.session().db;
        let kept = session_db.kept(LAST_UNDO)?;
        let kept = kept.and_then(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)));
        let all = self.pool().undos()?;
        let last = all.iter().map(|one| one.slot().index()).chain(kept).max();
        let next = last.unwrap_or_default().saturating_add(1);
        session_db.keep(LAST_UNDO, &next.to_le_bytes())?;
        Ok(next)
    }

    /// Makes the undo checkpoint of a change that is about to be made.
    pub(super) fn begin_undo(&self, plan: &WorkspacePlan<'_>) -> Result<SlotMetadata, Error> {
        let (slot, now) = (Slot::new(self.next_undo()?), self.clock().now());
        let mut metadata =
            SlotMetadata::new(slot, CheckpointOrigin::Undo, now, self.next_sequence()?);
        metadata.made_by = Some(self.maker().word().to_owned());
        metadata.undo = Some(UndoNote {
            act: plan.source.verb.word().to_owned(),
            path: plan.path().map(ToString::to_string),
            made: Vec::new(),
            from: called(plan.source.from),
            since: plan.source.since,
            pending: true,
        });
        let made = self.pool().begin_undo(metadata);
        Ok(made?)
    }

    /// Clears up after an act whose process was killed: gives what came out of the tree to its undo checkpoint, and removes those of
    /// changes that were never made.
    pub(super) fn clear_up(&self) -> Result<(), Error> {
        let settled = self.pool().settle_undos(self.directory());
        Ok(settled?)
    }

    /// Lets go of undo checkpoints that are too old, and of the oldest when everything together is over the budget; says which.
    pub(super) fn forget_old_undos(&self) -> Vec<ForgottenUndo> {
        if self.actor() == Actor::Model {
            // What a model replaced may be all that is left of somebody's work.
            return Vec::new();
        }
        self.forget_by(self.clock().now()).unwrap_or_else(|error| {
            // What was to be done is done.
            let error = crate::error::error_chain(&error);
            tracing::warn!(error, "could not let go of old undo checkpoints");
            Vec::new()
        })
    }

    fn forget_by(&self, now: Timestamp) -> Result<Vec<ForgottenUndo>, Error> {
        // Nobody pushes out what takes back the act of another.
        let own = Some(self.maker().word());
        let mut undos = self.undos_newest_first()?;
        undos.retain(|one| one.made_by.as_deref() == own);
        let mut gone = Vec::new();
        // The oldest first; the newest takes back what was just done.
        while undos.len() > 1 {
            let Some(old) = undos.pop() else { break };
            let made = Timestamp::from_millis(old.epoch_millis);
            let is_old = made.plus(KEPT) < now;
            let why = if is_old {
                ForgetReason::Old
            } else if undos.len() >= UNDOS && self.is_over_budget()? {
                ForgetReason::Budget
            } else {
                break;
            };
            let deleted = self.pool().delete_undo(old.slot.index());
            deleted?;
            let undo = called(&old);
            gone.push(ForgottenUndo { undo, why });
        }
        Ok(gone)
    }

    fn is_over_budget(&self) -> Result<bool, Error> {
        let held = self.pool().usage()?.held;
        Ok(held > self.session().budget.bytes())
    }
}

/// How many of these undo checkpoints, the newest first, the last act left.
fn last_act(undos: &[SlotMetadata]) -> usize {
    let since = |one: &SlotMetadata| one.undo.as_ref().and_then(|note| note.since);
    let Some(first) = undos.first().and_then(since) else {
        return 1;
    };
    let is_of_it = |one: &&SlotMetadata| one.slot.index() == first || since(one) == Some(first);
    undos.iter().take_while(is_of_it).count()
}

/// Whether an entry is another one, or lies in it.
fn is_in(path: &EntryPath, whole: &EntryPath) -> bool {
    let rest = path.as_bytes().strip_prefix(whole.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// A path that we wrote down as it is displayed.
fn entry(shown: &str) -> Result<EntryPath, WorkspaceError> {
    shown
        .parse()
        .map_err(|error: Invalid| WorkspaceError::BadPath {
            path: shown.to_owned(),
            why: error.to_string(),
        })
}
