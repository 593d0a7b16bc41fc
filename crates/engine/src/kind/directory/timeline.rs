//! What happened to a directory, in one line of time: snapshots in the store, checkpoints here, and what can be taken back.

use super::{DirSnapshot, Directory, LastChange, SnapshotPlace};
use crate::bridge;
use crate::error::Error;
use crate::kind::project::ProjectSnapshot;
use crate::kind::workspace::{
    ChangesSummary, CheckpointRow, ForkMark, GapMark, UndoRow, UnreadableSlot, Workspace, summed,
};
use crate::proofs::ProofShown;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::slots::Manifest;
use stasis_model::time::Timestamp;
use stasis_model::workspace::Slot;

/// More entries than this are compared only if somebody asks for that.
const COMPARED: u64 = 200_000;

/// What of a timeline is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimelineQuery {
    /// At most so many items, the newest.
    pub most: usize,
    /// Whether it is counted what changed in each; without a word, where that takes no long time.
    pub changes: Option<bool>,
    /// Only the snapshot that is published, where exactly one is: of a session.
    pub published_only: bool,
}

/// Everything that is known of what happened to a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Timeline {
    /// The newest first.
    pub items: Vec<TimelineItem>,
    /// How many older ones there are.
    pub older: u64,
    /// How many checkpoints are kept of it that are not listed, because the directory is gone.
    #[serde(skip_serializing_if = "is_none")]
    pub lost_checkpoints: u64,
    /// Checkpoints that cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableSlot>,
    /// Why a prompt of an agent has no checkpoint, if the last ones have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook_warning: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

/// One item of a timeline.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct TimelineItem {
    /// What it is called: an id, `cp-3`, or `u-4`; of a restore from the store what was restored, of a fork what it was made from, of a gap
    /// nothing.
    pub snapshot: String,
    /// Where it is.
    pub place: SnapshotPlace,
    /// When it was made.
    pub at: String,
    /// The same in milliseconds.
    pub at_ms: u64,
    /// What it is.
    #[serde(flatten)]
    pub entry: TimelineEntry,
    /// What differs from the snapshot or checkpoint before it, in numbers; none if that was not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<ChangesSummary>,
    /// Of a snapshot in the store: what became of the last attempt to restore it into a scratch place, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<ProofShown>,
}

/// What is in a timeline.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum TimelineEntry {
    /// A snapshot in the store.
    Snapshot(Box<ProjectSnapshot>),
    /// A checkpoint on this host.
    Checkpoint(Box<CheckpointRow>),
    /// What was there before a revert, a restore or an undo.
    Undo(Box<UndoRow>),
    /// The last restore from the store.
    Restore(RestoreMark),
    /// A fork that was made.
    Fork(Box<ForkMark>),
    /// Changes that were not seen as they happened.
    Gap(Box<GapMark>),
}

/// A restore from the store that can be taken back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RestoreMark {
    /// What was there before.
    pub before: String,
    /// Whether the next `undo` takes it back: nothing else was done since that can be undone.
    pub is_next_undo: bool,
}

impl TimelineItem {
    fn new(snapshot: String, place: SnapshotPlace, at_ms: u64, entry: TimelineEntry) -> Self {
        let (at, at_ms) = Timestamp::from_millis(at_ms).spelled();
        Self {
            snapshot,
            place,
            at,
            at_ms,
            entry,
            changed: None,
            proof: None,
        }
    }

    /// The snapshot that it is; none for what takes a change back.
    fn snapshot(&self) -> Option<DirSnapshot> {
        match &self.entry {
            TimelineEntry::Snapshot(row) => Some(DirSnapshot::Stored(row.snapshot_id.clone())),
            TimelineEntry::Checkpoint(row) => Some(DirSnapshot::Checkpoint(Slot::new(row.slot))),
            _ => None,
        }
    }

    /// How many entries it has, or files.
    fn size(&self) -> u64 {
        match &self.entry {
            TimelineEntry::Snapshot(row) => row.entries,
            TimelineEntry::Checkpoint(row) => row.files_count,
            _ => 0,
        }
    }
}

impl From<ProjectSnapshot> for TimelineItem {
    fn from(row: ProjectSnapshot) -> Self {
        let (snapshot, at) = (row.snapshot_id.to_string(), row.timestamp_ms);
        let entry = TimelineEntry::Snapshot(Box::new(row));
        Self::new(snapshot, SnapshotPlace::Store, at, entry)
    }
}

impl From<CheckpointRow> for TimelineItem {
    fn from(row: CheckpointRow) -> Self {
        let (snapshot, at) = (row.checkpoint.clone(), row.epoch_millis);
        let entry = TimelineEntry::Checkpoint(Box::new(row));
        Self::new(snapshot, SnapshotPlace::Here, at, entry)
    }
}

impl From<UndoRow> for TimelineItem {
    fn from(row: UndoRow) -> Self {
        let (snapshot, at) = (row.undo.clone(), row.epoch_millis);
        let entry = TimelineEntry::Undo(Box::new(row));
        Self::new(snapshot, SnapshotPlace::Here, at, entry)
    }
}

impl From<ForkMark> for TimelineItem {
    fn from(mark: ForkMark) -> Self {
        let (snapshot, at) = (mark.from.clone(), mark.made_ms);
        let entry = TimelineEntry::Fork(Box::new(mark));
        Self::new(snapshot, SnapshotPlace::Here, at, entry)
    }
}

impl From<GapMark> for TimelineItem {
    fn from(mark: GapMark) -> Self {
        let (snapshot, at) = (String::new(), mark.seen_ms);
        let entry = TimelineEntry::Gap(Box::new(mark));
        Self::new(snapshot, SnapshotPlace::Here, at, entry)
    }
}

impl Directory {
    /// What happened to it, the newest first.
    pub async fn timeline(&self, query: TimelineQuery) -> Result<Timeline, Error> {
        let mut items: Vec<TimelineItem> = Vec::new();
        if let Some(project) = &self.project {
            match project.list().await {
                Err(error) if self.is_only_here(&error) => {}
                rows => {
                    let rows = rows?.into_iter();
                    let rows = rows.filter(|row| row.active || !query.published_only);
                    let known = project.proofs().await?;
                    items.extend(rows.map(TimelineItem::from).map(|item| TimelineItem {
                        proof: known.get(&item.snapshot).cloned(),
                        ..item
                    }));
                }
            }
        }
        let (mut unreadable, mut hook_warning) = (Vec::new(), None);
        if let Some(workspace) = &self.workspace {
            let listed = workspace.list(false).await?;
            items.extend(listed.snapshots.into_iter().map(TimelineItem::from));
            let undos = workspace.undo_list().await?.into_iter();
            items.extend(undos.map(TimelineItem::from));
            items.extend(marks(workspace, query.most).await?);
            (unreadable, hook_warning) = (listed.unreadable, listed.hook_warning);
        }
        items.extend(self.restore_mark().await?);
        // Of two at the same time, the one that was listed later is the newer one.
        items.sort_by_key(|item| item.at_ms);
        items.reverse();
        let shown = items.len().min(query.most);
        self.count_changes(&mut items, shown, query.changes).await?;
        let older = items.len() - shown;
        items.truncate(shown);
        Ok(Timeline {
            items,
            older: older as u64,
            lost_checkpoints: self.lost,
            unreadable,
            hook_warning,
        })
    }

    /// The last restore from this store, if it can be taken back.
    async fn restore_mark(&self) -> Result<Option<TimelineItem>, Error> {
        let Some(project) = &self.project else {
            return Ok(None);
        };
        let record = project.last_restore().await?;
        let Some(record) = record.filter(|record| record.is_from(project.location())) else {
            return Ok(None);
        };
        let Some((restored, before)) = record.restored() else {
            return Ok(None);
        };
        let last = self.last_change().await?;
        let mark = RestoreMark {
            before: before.to_string(),
            is_next_undo: matches!(last, Some(LastChange::Restore(_))),
        };
        let (restored, entry) = (restored.to_string(), TimelineEntry::Restore(mark));
        let place = SnapshotPlace::Here;
        Ok(Some(TimelineItem::new(
            restored,
            place,
            record.at_ms,
            entry,
        )))
    }

    /// Counts what changed in the newest ones, each against what was before it.
    async fn count_changes(
        &self,
        items: &mut [TimelineItem],
        shown: usize,
        wanted: Option<bool>,
    ) -> Result<(), Error> {
        let snapshots: Vec<usize> = (0..items.len())
            .filter(|at| items[*at].snapshot().is_some())
            .collect();
        let wanted_of = snapshots.iter().filter(|at| **at < shown).count();
        // One more, to compare the oldest that is shown with.
        let compared = &snapshots[..snapshots.len().min(wanted_of + 1)];
        let entries: u64 = compared.iter().map(|at| items[*at].size()).sum();
        if !wanted.unwrap_or(entries <= COMPARED) {
            return Ok(());
        }
        let mut before: Option<Manifest> = None;
        for at in compared.iter().rev() {
            let snapshot = items[*at].snapshot().expect("it is one");
            // What is damaged is listed all the same; `check` says what is wrong with it.
            let Ok(contents) = self.contents(&snapshot).await else {
                before = None;
                continue;
            };
            let is_oldest = snapshots.last() == Some(at);
            let nothing = is_oldest.then(Manifest::default);
            if let Some(before) = before.as_ref().or(nothing.as_ref()) {
                items[*at].changed = Some(summed(before, &contents));
            }
            before = Some(contents);
        }
        Ok(())
    }
}

/// What happened to a workspace that is neither a checkpoint nor an undo.
async fn marks(workspace: &Workspace, most: usize) -> Result<Vec<TimelineItem>, Error> {
    let workspace = workspace.clone();
    bridge::blocking(move || {
        let mut all: Vec<TimelineItem> = Vec::new();
        all.extend(workspace.fork_marks()?.into_iter().map(TimelineItem::from));
        // What was found afterwards in a gap with nothing in it, nobody missed.
        let gaps = workspace.gap_marks(most)?.into_iter();
        all.extend(gaps.filter(|gap| gap.missed > 0).map(TimelineItem::from));
        Ok(all)
    })
    .await
}
