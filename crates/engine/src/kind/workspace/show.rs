//! Looking at checkpoints and at what changed; nothing is locked, and nothing is written but caches, and those only where there is room.

use super::Workspace;
use super::answers::{
    AgentEventRow, ChangeOp, ChangesSummary, CheckpointRow, Checkpoints, DatabaseRow, EventCounts,
    PathChange, PathHistory, PathVersion, PromptRow, UndoRow, UnreadableSlot, VersionStatus,
    WorkspaceChanges, WorkspaceStatus,
};
use crate::error::{Error, WorkspaceError};
use crate::result::EntryType;
use stasis_disk::form::slots::{Manifest, ManifestEntry, ManifestKind, portion};
use stasis_disk::fs::free_space;
use stasis_disk::fs::lock_file::LockFile;
use stasis_disk::fs::root_dir::RootDir;
use stasis_disk::tree::walk::WalkSettings;
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use stasis_model::tree::diff::ChangeKind;
use stasis_model::workspace::{
    self, AgentEvent, CheckpointOrigin, CheckpointRef, Occupant, Slot, SlotForm, SlotMetadata,
};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// How much of what was set aside is named.
const SET_ASIDE_NAMED: usize = 20;

/// How long ago something was, as people say it.
pub(super) fn age(then: u64, now: Timestamp) -> String {
    Timestamp::from_millis(then).age(now)
}

/// What a checkpoint is called: `cp-3`, or `u-4` for what takes a change back.
pub(super) fn called(one: &SlotMetadata) -> String {
    match one.origin {
        CheckpointOrigin::Undo => format!("u-{}", one.slot.index()),
        _ => one.slot.to_string(),
    }
}

pub(super) fn kind(listed: &ManifestEntry) -> EntryType {
    match listed.what {
        ManifestKind::File { .. } => EntryType::File,
        ManifestKind::Directory => EntryType::Directory,
        ManifestKind::Symlink { .. } => EntryType::Symlink,
    }
}

/// How long a file is.
pub(super) fn size(listed: &ManifestEntry) -> Option<u64> {
    match listed.what {
        ManifestKind::File { size, .. } => Some(size),
        _ => None,
    }
}

pub(super) fn op(change: ChangeKind) -> ChangeOp {
    match change {
        ChangeKind::Added => ChangeOp::Created,
        ChangeKind::Removed => ChangeOp::Deleted,
        _ => ChangeOp::Modified,
    }
}

/// What became of the entries of `was` in `is`; a directory that came or went is not told beside what is in it.
pub(super) fn differences(was: &Manifest, is: &Manifest) -> Vec<(EntryPath, ChangeKind)> {
    let all = was.diff(is);
    let holds = |at: usize, path: &EntryPath| {
        let next = all.get(at + 1).and_then(|(next, _)| next.split_last());
        next.is_some_and(|(above, _)| above == *path)
    };
    let is_whole = |change: ChangeKind| matches!(change, ChangeKind::Added | ChangeKind::Removed);
    let reported = all.iter().enumerate();
    let reported = reported.filter(|(at, (path, change))| !(is_whole(*change) && holds(*at, path)));
    reported.map(|(_, one)| one.clone()).collect()
}

/// Differences in numbers.
pub(super) fn summary(ops: impl Iterator<Item = ChangeOp>) -> ChangesSummary {
    let mut summary = ChangesSummary::default();
    for op in ops {
        summary.total += 1;
        match op {
            ChangeOp::Created => summary.created += 1,
            ChangeOp::Modified => summary.edited += 1,
            ChangeOp::Deleted => summary.deleted += 1,
        }
    }
    summary
}

/// What became of a tree, in numbers; what is in `.git` is one difference.
pub(crate) fn summed(was: &Manifest, is: &Manifest) -> ChangesSummary {
    let (changes, _) = super::git::collapsed(differences(was, is));
    let count = |wanted: ChangeOp| {
        let all = changes.iter().filter(|(_, change)| op(*change) == wanted);
        all.count() as u64
    };
    ChangesSummary {
        created: count(ChangeOp::Created),
        edited: count(ChangeOp::Modified),
        deleted: count(ChangeOp::Deleted),
        total: changes.len() as u64,
    }
}

/// Two states of the tree that are compared.
#[derive(Clone, Copy)]
pub(super) struct BeforeAfter<'a> {
    pub(super) before: &'a Manifest,
    pub(super) after: &'a Manifest,
}

/// An entry of a tree, with everything in it.
pub(super) fn portion_of(
    tree: &RootDir,
    path: &EntryPath,
    walk: &WalkSettings,
) -> Result<Vec<ManifestEntry>, Error> {
    Ok(portion(tree, path, walk).map_err(WorkspaceError::from)?)
}

impl Workspace {
    /// The checkpoints that can be used, the newest first.
    pub(super) fn newest_first(&self) -> Result<Vec<SlotMetadata>, Error> {
        let occupants = self.pool().list()?;
        let known = occupants.into_iter().filter_map(|one| match one {
            Occupant::Known(metadata) => Some(metadata),
            Occupant::Unreadable { .. } => None,
        });
        let mut known: Vec<SlotMetadata> = known.collect();
        known.sort_by_key(|one| std::cmp::Reverse(one.age_key()));
        Ok(known)
    }

    /// The checkpoint that somebody means.
    pub(super) fn resolve(&self, which: &CheckpointRef) -> Result<SlotMetadata, Error> {
        let occupants = self.pool().list()?;
        match stasis_model::workspace::find(&occupants, which) {
            None => Err(WorkspaceError::NoCheckpoint(which.clone()).into()),
            Some(Occupant::Known(metadata)) => Ok(metadata.clone()),
            Some(Occupant::Unreadable { slot, why }) => {
                let (slot, why) = (*slot, why.clone());
                Err(
                    WorkspaceError::from(stasis_disk::form::slots::SlotError::Unreadable {
                        slot,
                        why,
                    })
                    .into(),
                )
            }
        }
    }

    pub(super) fn contents(&self, of: &SlotMetadata) -> Result<Manifest, Error> {
        Ok(self.pool().contents(of)?)
    }

    /// What one change looks like to whoever asked.
    pub(super) fn change(
        &self,
        path: &EntryPath,
        change: ChangeKind,
        trees: BeforeAfter<'_>,
        than: &SlotMetadata,
    ) -> PathChange {
        let (was, is) = (trees.before, trees.after);
        let listed = is.find(path).or_else(|| was.find(path));
        let kind = listed.map_or(EntryType::File, kind);
        PathChange {
            path: path.to_string(),
            op: op(change),
            kind,
            size: is.find(path).and_then(size),
            is_symlink: kind == EntryType::Symlink,
            checkpoint: called(than),
            checkpoint_age: age(than.epoch_millis, self.clock().now()),
            checkpoint_origin: than.origin,
            checkpoint_name: than.name.as_ref().map(ToString::to_string),
        }
    }

    pub(super) fn list_now(&self, include_changes: bool) -> Result<Checkpoints, Error> {
        let occupants = self.pool().list()?;
        let counts = self
            .session()
            .db
            .counts(&|slot| occupants.iter().any(|one| one.slot() == slot))?;
        let counts: HashMap<_, _> = counts.into_iter().map(|one| (one.slot, one)).collect();
        let newest_first = self.newest_first()?;
        let now = self.clock().now();
        let mut snapshots = Vec::with_capacity(newest_first.len());
        for one in &newest_first {
            let events = counts.get(&one.slot).map(|counts| EventCounts {
                created: counts.created,
                modified: counts.modified,
                deleted: counts.deleted,
                restored: counts.restored,
            });
            snapshots.push(CheckpointRow {
                checkpoint: one.slot.to_string(),
                slot: one.slot.index(),
                origin: one.origin,
                name: one.name.as_ref().map(ToString::to_string),
                hash: one.hash.map(|hash| hash.to_string()),
                timestamp: one.timestamp.clone(),
                epoch_millis: one.epoch_millis,
                age: age(one.epoch_millis, now),
                files_count: one.files_count,
                bytes: one.bytes,
                form: one.form,
                complete: one.complete,
                made_by: one.made_by.clone(),
                agent_events: one.agent_events.iter().map(event_row).collect(),
                databases: DatabaseRow::of(one),
                left_out: one.left_out.clone(),
                left_out_count: Some(one.left_out_count).filter(|count| *count > 0),
                events: events.unwrap_or_default(),
                changes_summary: None,
                changes: None,
            });
        }
        if include_changes {
            self.add_changes(&newest_first, &mut snapshots)?;
        }
        Ok(Checkpoints {
            snapshots,
            unreadable: unreadable(&occupants),
            auto_max: self.settings().auto_max(),
            manual_max: self.settings().manual_max(),
            manual_available: self.available(&occupants),
            hook_warning: self.hook_warning()?,
        })
    }

    /// The prompts that can be gone back to, the last one first.
    pub(super) fn prompts_now(&self) -> Result<Vec<PromptRow>, Error> {
        let occupants = self.pool().list()?;
        let now = self.clock().now();
        let known = || occupants.iter().filter_map(Occupant::known);
        let mut commands: HashMap<u64, u64> = HashMap::new();
        for event in known().flat_map(|one| &one.agent_events) {
            if let Some(turn) = event.turn.filter(|_| event.prompt().is_none()) {
                *commands.entry(turn).or_default() += 1;
            }
        }
        let rows = workspace::prompts(&occupants)
            .into_iter()
            .map(|(event, one)| {
                let row = event_row(event);
                let prompt = row.prompt.unwrap_or_default();
                PromptRow {
                    prompt,
                    checkpoint: one.slot.to_string(),
                    agent: row.agent,
                    session: row.session,
                    turn_id: row.turn_id,
                    text: row.text,
                    timestamp: row.timestamp,
                    timestamp_ms: row.timestamp_ms,
                    age: age(event.at_ms, now),
                    commands: commands.get(&prompt).copied().unwrap_or_default(),
                    late_ms: row.late_ms,
                }
            });
        Ok(rows.collect())
    }

    /// The checkpoints, the newest first, where no hook of an agent made any of them, or was to.
    pub(super) fn without_agents(&self) -> Result<Vec<Slot>, Error> {
        let all = self.newest_first()?;
        let is_agents = |one: &SlotMetadata| one.origin.is_agents();
        if self.missed_last_prompt()?.is_some() || all.iter().any(is_agents) {
            return Ok(Vec::new());
        }
        Ok(all.into_iter().map(|one| one.slot).collect())
    }

    /// The last prompt. If that has no checkpoint, nothing else is taken for it.
    pub(super) fn last_prompt_now(&self) -> Result<PromptRow, Error> {
        match self.missed_last_prompt()? {
            Some(missed) => Err(WorkspaceError::PromptMissed {
                when: age(missed.at_ms, self.clock().now()),
                why: missed.why,
            }
            .into()),
            None => self.prompt_before_now(1),
        }
    }

    /// The prompt that is so many back; 1 is the last one that has a checkpoint.
    pub(super) fn prompt_before_now(&self, back: u32) -> Result<PromptRow, Error> {
        let mut all = self.prompts_now()?;
        let (known, at) = (all.len(), back.saturating_sub(1) as usize);
        if at < known {
            return Ok(all.swap_remove(at));
        }
        if known > 0 {
            let wanted = back;
            return Err(WorkspaceError::FewPrompts { wanted, known }.into());
        }
        let checkpoints = self.newest_first()?;
        let words = match checkpoints.first() {
            None => "there are no checkpoints either".to_owned(),
            Some(newest) => {
                let count = match checkpoints.len() {
                    1 => "is 1 checkpoint".to_owned(),
                    count => format!("are {count} checkpoints"),
                };
                let age = age(newest.epoch_millis, self.clock().now());
                let name = newest.name.as_ref().map(|name| format!(" \"{name}\""));
                let name = name.unwrap_or_default();
                format!("there {count}, the newest is {}{name}, {age}", newest.slot)
            }
        };
        Err(WorkspaceError::NoPrompts(words).into())
    }

    /// Says of each what differs from the one before it.
    fn add_changes(
        &self,
        newest_first: &[SlotMetadata],
        rows: &mut [CheckpointRow],
    ) -> Result<(), Error> {
        let mut before = Manifest::default();
        for (one, row) in newest_first.iter().zip(rows).rev() {
            let contents = self.contents(one)?;
            let (found, _) = super::git::collapsed(differences(&before, &contents));
            let both = BeforeAfter {
                before: &before,
                after: &contents,
            };
            let changes = found
                .iter()
                .map(|(path, change)| self.change(path, *change, both, one));
            let changes: Vec<PathChange> = changes.collect();
            row.changes_summary = Some(summary(changes.iter().map(|one| one.op)));
            row.changes = Some(changes);
            before = contents;
        }
        Ok(())
    }

    pub(super) fn changes_now(
        &self,
        since: Option<&CheckpointRef>,
        with_git: bool,
    ) -> Result<WorkspaceChanges, Error> {
        let checkpoints = match since {
            Some(which) => vec![self.resolve(which)?],
            None => self.newest_first()?.into_iter().take(1).collect(),
        };
        if checkpoints.is_empty() {
            return Err(WorkspaceError::NoCheckpoints.into());
        }
        let (live, report) = self.live()?;
        let mut changes = Vec::new();
        let mut git = None;
        let (mut reported, mut compared) = (HashSet::new(), HashSet::new());
        for one in &checkpoints {
            if one.hash.is_some_and(|hash| !compared.insert(hash)) {
                continue;
            }
            let was = self.included(self.contents(one)?)?;
            let mut found = differences(&was, &live);
            let inside = found.iter().filter(|(path, _)| super::git::is_inside(path));
            let inside = inside.count() as u64;
            if inside > 0 {
                git = git.or_else(|| self.git_change(inside, &self.head_of(one)));
            }
            if !with_git {
                found = super::git::collapsed(found).0;
            }
            let both = BeforeAfter {
                before: &was,
                after: &live,
            };
            for (path, change) in found {
                if reported.insert(path.clone()) {
                    changes.push((path.clone(), self.change(&path, change, both, one)));
                }
            }
        }
        changes.sort_by(|(one, _), (other, _)| one.cmp(other));
        let changes: Vec<PathChange> = changes.into_iter().map(|(_, change)| change).collect();
        let left_out = crate::clone::LeftOut::of(&report).into_iter();
        Ok(WorkspaceChanges {
            summary: summary(changes.iter().map(|one| one.op)),
            changes,
            git,
            compared_with: checkpoints.iter().map(|one| one.slot.to_string()).collect(),
            not_compared: left_out
                .map(|one| format!("{}: {}", one.path, one.words))
                .collect(),
        })
    }

    /// What is in a checkpoint and would be in one that is made now: what is excluded by now differs from nothing.
    pub(super) fn included(&self, contents: Manifest) -> Result<Manifest, Error> {
        let Some(is_excluded) = self.session().excluded()? else {
            return Ok(contents);
        };
        let mut entries = contents.entries().to_vec();
        entries.retain(|one| !is_excluded(&one.path, one.what == ManifestKind::Directory));
        Ok(Manifest::of(entries))
    }

    pub(super) fn history_now(&self, path: &EntryPath) -> Result<PathHistory, Error> {
        let checkpoints = self.newest_first()?;
        let now = self.clock().now();
        let mut versions = Vec::with_capacity(checkpoints.len());
        let mut before: Vec<ManifestEntry> = Vec::new();
        for one in checkpoints.iter().rev() {
            let then = self.then(one, path)?;
            if let Some(status) = status(&before, &then) {
                versions.push(PathVersion {
                    checkpoint: one.slot.to_string(),
                    origin: one.origin,
                    name: one.name.as_ref().map(ToString::to_string),
                    age: age(one.epoch_millis, now),
                    timestamp: one.timestamp.clone(),
                    timestamp_ms: one.epoch_millis,
                    size: then.first().and_then(size),
                    status,
                });
            }
            before = then;
        }
        versions.reverse();
        let live = self.now(path)?;
        if versions.is_empty() && live.is_empty() {
            return Err(WorkspaceError::NoSuchEntry(path.clone()).into());
        }
        Ok(PathHistory {
            path: path.to_string(),
            current_kind: live.first().map(kind),
            current_size: live.first().and_then(size),
            current_status: status(&before, &live).unwrap_or(VersionStatus::Absent),
            versions,
        })
    }

    /// What a path is in the live tree, with everything in it.
    ///
    /// What is excluded from checkpoints is not there; named by itself it is refused.
    pub(super) fn now(&self, path: &EntryPath) -> Result<Vec<ManifestEntry>, Error> {
        let bad = |why: &str| WorkspaceError::BadPath {
            path: path.to_string(),
            why: why.to_owned(),
        };
        if path.is_root() {
            return Err(bad("it is the whole workspace; name an entry of it").into());
        }
        let is_excluded = stasis_disk::tree::walk::matcher(&self.session().walk().excludes);
        let is_excluded = is_excluded.map_err(WorkspaceError::from)?;
        let is_directory = self.root()?.directory(path.as_bytes()).is_ok();
        if is_excluded(path, is_directory) {
            return Err(bad("it is excluded from checkpoints").into());
        }
        if is_directory {
            // Most of it is known. What may not be read is refused where it would be lost, and hinders nobody who only looks.
            return Ok(self.live()?.0.portion(path).to_vec());
        }
        let all = WalkSettings::default();
        let mut found = portion_of(&self.root()?, path, &all)?;
        found.retain(|one| !is_excluded(&one.path, one.what == ManifestKind::Directory));
        Ok(found)
    }

    /// What a path is in a checkpoint, with everything in it.
    pub(super) fn then(
        &self,
        of: &SlotMetadata,
        path: &EntryPath,
    ) -> Result<Vec<ManifestEntry>, Error> {
        if of.form == SlotForm::Clone {
            let view = self.pool().view(of, &[])?;
            // One file is read sooner than the list of all of them.
            if view.tree().directory(path.as_bytes()).is_err() {
                let walk = WalkSettings::default();
                return portion_of(view.tree(), path, &walk);
            }
        }
        if let Some(recorded) = self.pool().recorded(of) {
            return Ok(recorded.portion(path).to_vec());
        }
        if of.form.is_list() {
            return Ok(self.contents(of)?.portion(path).to_vec());
        }
        let view = self.pool().view(of, &[])?;
        let walk = WalkSettings::default();
        portion_of(view.tree(), path, &walk)
    }

    pub(super) fn status_now(&self) -> Result<WorkspaceStatus, Error> {
        let finished_restore = match self.recover_if_free() {
            // Whoever looks may look; what waits for room is finished by whoever changes something when there is some.
            Err(error) if free_space::is_want_of_room(&error) => false,
            recovered => recovered?,
        };
        let session = self.session();
        let occupants = self.pool().list()?;
        let count = |origin: CheckpointOrigin| {
            let known = occupants.iter().filter_map(Occupant::known);
            u32::try_from(known.filter(|one| one.origin == origin).count()).unwrap_or(u32::MAX)
        };
        let newest = self.newest_first()?.into_iter().next();
        let mut unreadable = unreadable(&occupants);
        if let Some(newest) = &newest
            && let Some(why) = self.pool().problem(newest)
        {
            let checkpoint = newest.slot.to_string();
            unreadable.push(UnreadableSlot { checkpoint, why });
        }
        let skipped = session.db.last_skipped()?;
        let held = self.pool().held_at_most()?;
        let set_aside = self.pool().damaged_aside()?;
        let named = set_aside.iter().take(SET_ASIDE_NAMED);
        Ok(WorkspaceStatus {
            workspace: session.directory.display().to_string(),
            session: session.path.display().to_string(),
            form: session.form().0,
            auto_max: self.settings().auto_max(),
            manual_max: self.settings().manual_max(),
            auto_interval: self.settings().auto_interval(),
            auto_count: count(CheckpointOrigin::Auto),
            manual_count: count(CheckpointOrigin::Manual),
            prompt_count: count(CheckpointOrigin::Prompt),
            command_count: count(CheckpointOrigin::Command),
            manual_available: self.available(&occupants),
            held_bytes: held.bytes,
            held_is_exact: held.is_exact,
            budget_bytes: session.budget.bytes(),
            hook_at_work: self.hook_at_work(),
            hook_warning: self.hook_warning()?,
            watched_by: self.watched_by(),
            newest: newest.as_ref().map(|one| one.slot.to_string()),
            newest_at_ms: newest.as_ref().map(|one| one.epoch_millis),
            newest_at: newest.map(|one| one.timestamp),
            set_aside: named.map(|one| one.path.display().to_string()).collect(),
            set_aside_count: set_aside.len() as u64,
            set_aside_bytes: set_aside.iter().map(|one| one.bytes).sum(),
            last_skipped: skipped
                .map(|skipped| format!("{}: {}", skipped.timestamp, skipped.because)),
            forks: self.fork_count()?,
            undo: self.undo_rows()?,
            last_event_id: session.db.last_event_id()?,
            finished_restore,
            unreadable,
        })
    }

    /// Who watches, if anybody does.
    pub(super) fn watched_by(&self) -> Option<String> {
        LockFile::holder(&self.watch_lock())
    }

    /// What takes changes back, the newest first.
    pub(super) fn undos_newest_first(&self) -> Result<Vec<SlotMetadata>, Error> {
        let undos = self.pool().undos()?;
        let known = undos.iter().filter_map(Occupant::known).cloned();
        let mut known: Vec<SlotMetadata> = known.collect();
        known.sort_by_key(|one| std::cmp::Reverse(one.slot));
        Ok(known)
    }

    pub(super) fn undo_rows(&self) -> Result<Vec<UndoRow>, Error> {
        let now = self.clock().now();
        let undos = self.undos_newest_first()?.into_iter();
        let rows = undos.filter_map(|one| {
            let called = called(&one);
            let note = one.undo?;
            Some(UndoRow {
                undo: called,
                act: note.act,
                path: note.path,
                checkpoint: note.from,
                timestamp: one.timestamp,
                epoch_millis: one.epoch_millis,
                age: age(one.epoch_millis, now),
            })
        });
        Ok(rows.collect())
    }

    pub(super) fn elapsed(&self, started: Duration) -> u64 {
        let elapsed = self.clock().uptime().saturating_sub(started);
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }
}

fn event_row(event: &AgentEvent) -> AgentEventRow {
    let call = &event.call;
    let (timestamp, timestamp_ms) = Timestamp::from_millis(event.at_ms).spelled();
    AgentEventRow {
        event: call.kind,
        agent: call.agent.to_string(),
        session: call.session.as_ref().map(ToString::to_string),
        prompt: event.turn,
        turn_id: call.turn_id.as_ref().map(ToString::to_string),
        text: call.text.as_ref().map(ToString::to_string),
        timestamp,
        timestamp_ms,
        late_ms: event.late_ms,
    }
}

fn unreadable(occupants: &[Occupant]) -> Vec<UnreadableSlot> {
    let unreadable = occupants.iter().filter_map(|one| match one {
        Occupant::Known(_) => None,
        Occupant::Unreadable { slot, why } => Some(UnreadableSlot {
            checkpoint: slot.to_string(),
            why: why.clone(),
        }),
    });
    unreadable.collect()
}

/// What became of an entry from one checkpoint to the next; nothing when it is in neither.
fn status(before: &[ManifestEntry], then: &[ManifestEntry]) -> Option<VersionStatus> {
    match (before.is_empty(), then.is_empty()) {
        (true, true) => None,
        (true, false) => Some(VersionStatus::New),
        (false, true) => Some(VersionStatus::Deleted),
        (false, false) if before == then => Some(VersionStatus::Unchanged),
        (false, false) => Some(VersionStatus::Modified),
    }
}
