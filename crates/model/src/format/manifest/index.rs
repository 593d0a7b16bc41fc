//! `index.json`: what leads to every snapshot of one subject, and the rules to change it.
//!
//! A save reads the fence and the active snapshot before it begins, and publishes only if neither has moved: publishing
//! raises the fence, so that of two saves that began alike one learns that it diverged, and so that a manifest whose lease is
//! behind the fence can never be published any more ([`crate::protocol::gc::manifests`]).
//!
//! `latest` has one meaning: the active snapshot. A save that a user asked for makes its snapshot active, and so does a restore of
//! the whole subject ([`SnapshotIndex::adopt`]). Automatic and safety snapshots join the chain without moving it
//! ([`Publish::activates`]); they raise the fence like any other.
//!
//! The chain goes back only by [`SnapshotIndex::step_back`], which an operator asks for. It raises the fence too, so that no save that
//! began before it publishes after it. A chain that has lost all its snapshots keeps its fence: were that to begin anew, a
//! manifest of its first life could be published in its second.
//!
//! A subject that is deleted keeps its index, marked ([`SnapshotIndex::delete`]); what is saved under its name later is another
//! subject, with an incarnation of its own ([`SnapshotIndex::begun`]). Nothing of one incarnation is published into another.

use super::encrypted::StoredManifest;
use super::snapshot::{CopiedFrom, SaveReason, SnapshotManifest};
use crate::digest::ManifestDigest;
use crate::format::document::Document;
use crate::id::{Epoch, Generation, Incarnation, Label, OpId, SnapshotId};
use crate::snapshot_ref::{Candidate, SnapshotRef, TypedAt, Unresolved};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// How many recent writers are recorded.
const RECENT: usize = 16;

/// The document `index.json`; where there is none, [`SnapshotIndex::empty`] holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SnapshotIndex {
    version: u64,
    /// Counts the writes.
    pub generation: Generation,
    /// The operation that wrote these bytes.
    pub op_id: OpId,
    /// Which life of the subject this is.
    pub incarnation: Incarnation,
    /// Since when the subject is deleted, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at_ms: Option<Timestamp>,
    /// What a publish must find unmoved.
    pub fence: SubjectFence,
    /// What `latest` means: what the last explicit save made, or the last whole restore chose. None before the first.
    #[serde(default)]
    pub active: Option<SnapshotId>,
    /// All snapshots that are kept, oldest first.
    pub snapshots: Vec<Indexed>,
    /// Snapshots that were forgotten or never published: the index leads to none of them, ever again.
    #[serde(default)]
    pub tombstones: BTreeMap<SnapshotId, Tombstone>,
    /// The last operations that wrote it, the newest last: how a lost answer is settled.
    #[serde(default)]
    pub recent: Vec<OpId>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Document for SnapshotIndex {
    const NAME: &'static str = "index.json";
    const LIMIT: usize = 8 << 20;
    const FIRST_EDITION: Option<&'static str> = Some("subjects");
}

/// Who may publish next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SubjectFence {
    /// Raised by every publish.
    pub epoch: Epoch,
    /// Who raised it.
    pub op_id: OpId,
}

/// A snapshot that the index leads to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Indexed {
    /// Which.
    pub id: SnapshotId,
    /// What its `metadata.json` is.
    pub manifest_sha256: ManifestDigest,
    /// When it was made.
    pub at_ms: Timestamp,
    /// The length of all its files.
    pub bytes: u64,
    /// How many entries it has.
    pub entries: u64,
    /// Whether it is kept whatever a policy says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// What the save was made for.
    #[serde(default)]
    pub reason: SaveReason,
    /// The save that made it: found here, it proves that the save was applied, however long ago.
    #[serde(default)]
    pub op_id: OpId,
    /// Words of the user's; they may change, while what its document says stays.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Label>,
    /// The snapshot of another store that it is a copy of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied_from: Option<CopiedFrom>,
}

impl Indexed {
    /// The row that leads to a manifest as it is stored.
    pub fn of(manifest: &SnapshotManifest, stored: &StoredManifest) -> Self {
        Self::new(manifest, ManifestDigest::of(&stored.render()))
    }

    /// The row that leads to a manifest, as its save has it.
    pub fn new(manifest: &SnapshotManifest, manifest_sha256: ManifestDigest) -> Self {
        Self {
            id: manifest.snapshot_id.clone(),
            manifest_sha256,
            at_ms: manifest.timestamp_ms,
            bytes: manifest.totals.bytes,
            entries: manifest.totals.entries(),
            pinned: false,
            reason: manifest.reason,
            op_id: manifest.op_id,
            labels: manifest.labels.clone(),
            copied_from: manifest.copied_from.clone(),
        }
    }
}

/// Why a snapshot is gone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tombstone {
    /// Since when.
    pub at_ms: Timestamp,
}

/// What a save wants to publish.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Publish {
    /// The life of the subject that the save began in.
    pub incarnation: Incarnation,
    /// The fence's epoch as the save found it.
    pub lease: Epoch,
    /// The active snapshot as the save found it.
    pub base: Option<SnapshotId>,
    /// The new one.
    pub snapshot: Indexed,
    /// Whether `latest` means it from now on.
    pub activates: bool,
}

/// What an operator wants to go, be it the newest of its chain or not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StepBack {
    /// Which snapshots.
    pub gone: Vec<SnapshotId>,
    /// What must be the active snapshot afterwards; `None` when no explicit one is left.
    pub newest: Option<SnapshotId>,
    /// Manifests that the index does not lead to, and shall never lead to.
    pub unpublished: Vec<SnapshotId>,
}

/// Why the index is not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexRefusal {
    /// Another save was published meanwhile.
    #[error("it was saved by somebody else meanwhile: its newest snapshot is `{active}`")]
    Diverged {
        /// The newest snapshot now.
        active: String,
    },
    /// The subject was deleted, or is another one by now.
    #[error("it was deleted meanwhile, or its index was made anew")]
    OtherLife,
    /// It was changed since somebody looked.
    #[error("the index moved from generation {seen} to {found}")]
    Moved {
        /// What was seen.
        seen: Generation,
        /// What there is.
        found: Generation,
    },
    /// It was forgotten or given up.
    #[error("snapshot `{0}` is gone")]
    Gone(SnapshotId),
    /// There is none of that name.
    #[error("there is no snapshot `{0}`")]
    Absent(SnapshotId),
    /// What `latest` means stays.
    #[error("snapshot `{0}` is what `latest` means, and is kept")]
    Active(SnapshotId),
    /// It is pinned.
    #[error("snapshot `{0}` is pinned")]
    Pinned(SnapshotId),
}

impl Candidate for &Indexed {
    fn id(&self) -> Cow<'_, str> {
        self.id.as_str().into()
    }

    fn at(&self) -> Timestamp {
        self.at_ms
    }

    fn is_automatic(&self) -> bool {
        !self.reason.is_explicit()
    }

    fn is_labelled(&self, text: &str) -> bool {
        let mut labels = self.labels.iter();
        labels.any(|(key, value)| {
            value.as_str() == text || text.split_once('=') == Some((key, value.as_str()))
        })
    }
}

impl SnapshotIndex {
    /// What holds where there is no index: nothing can be published into it.
    pub fn empty() -> Self {
        Self {
            version: Self::VERSION,
            generation: Generation::default(),
            op_id: OpId::default(),
            incarnation: Incarnation::default(),
            deleted_at_ms: None,
            fence: SubjectFence::default(),
            active: None,
            snapshots: Vec::new(),
            tombstones: BTreeMap::new(),
            recent: Vec::new(),
            extra: Map::new(),
        }
    }

    /// Whether snapshots can be published into it.
    pub fn is_alive(&self) -> bool {
        self.incarnation != Incarnation::default() && self.deleted_at_ms.is_none()
    }

    /// The index of a subject that begins, or begins again after it was deleted: the operation names its incarnation.
    ///
    /// It must be in place before the first manifest is put: a manifest of another incarnation than its index's may go.
    #[must_use = "the index is not changed in place"]
    pub fn begun(&self, op_id: OpId) -> Self {
        let mut next = self.successor(op_id);
        next.incarnation = Incarnation::new(op_id);
        next.deleted_at_ms = None;
        next
    }

    /// The index of a subject that is no more. Refused while one of its snapshots is pinned.
    pub fn delete(&self, at_ms: Timestamp, op_id: OpId) -> Result<Self, IndexRefusal> {
        if let Some(pinned) = self.snapshots.iter().find(|one| one.pinned) {
            return Err(IndexRefusal::Pinned(pinned.id.clone()));
        }
        let mut next = self.successor(op_id);
        let gone = next.snapshots.drain(..);
        let gone = gone.map(|one| (one.id, Tombstone { at_ms }));
        next.tombstones.extend(gone);
        next.active = None;
        next.deleted_at_ms = Some(at_ms);
        next.raise_fence(op_id);
        Ok(next)
    }

    /// An index that leads to these manifests, where the one that did is lost.
    ///
    /// It begins another life, so that no save that knew the lost one publishes here; the manifests are kept because the index
    /// leads to them. They are in the order in which their saves began. `latest` is what the last of them says: itself if a
    /// user asked for it, else what it derives from. What only the lost index knew is gone: pins, later labels, tombstones.
    #[must_use = "a rebuilt index is not in place yet"]
    pub fn rebuilt(
        mut manifests: Vec<(SnapshotManifest, ManifestDigest)>,
        now: Timestamp,
        op_id: OpId,
    ) -> Self {
        manifests.sort_by_key(|(one, _)| (one.lease_epoch, one.timestamp_ms));
        let rows = manifests
            .iter()
            .map(|(one, digest)| Indexed::new(one, *digest));
        let last_lease = manifests.last().map(|(last, _)| last.lease_epoch);
        let mut index = Self {
            snapshots: rows.collect(),
            ..Self::empty()
        };
        let last = manifests.last().map(|(last, _)| last);
        let says = last.and_then(|last| {
            if last.may_be_latest() {
                Some(last.snapshot_id.clone())
            } else {
                last.parent_snapshot_id.clone()
            }
        });
        index.active = says.filter(|id| index.find(id).is_some());
        index.active = index.active_without(&[]);
        let epoch = last_lease.unwrap_or_default().next();
        index.generation = Generation::far_ahead(now);
        index.fence = SubjectFence { epoch, op_id };
        index.raise_fence(op_id);
        index.begun(op_id)
    }

    /// The same where this index is there, but is an earlier one that came back: what it knows of its snapshots, and what it says is
    /// gone, is kept.
    #[must_use = "a rebuilt index is not in place yet"]
    pub fn rebuilt_with(
        &self,
        manifests: Vec<(SnapshotManifest, ManifestDigest)>,
        now: Timestamp,
        op_id: OpId,
    ) -> Self {
        let mut next = Self::rebuilt(manifests, now, op_id);
        for row in &mut next.snapshots {
            if let Some(known) = self.find(&row.id) {
                row.clone_from(known);
            }
        }
        next.tombstones.clone_from(&self.tombstones);
        next
    }

    /// Whether a manifest that this index does not lead to may be that of a snapshot which was published after it: the fence has not
    /// passed its save, and nothing says that it is gone.
    pub fn may_have_published(&self, manifest: &StoredManifest) -> bool {
        let id = manifest.snapshot_id();
        if self.find(id).is_some() || self.tombstones.contains_key(id) {
            return false;
        }
        let is_passed =
            manifest.incarnation() == self.incarnation && manifest.lease_epoch() < self.fence.epoch;
        !is_passed && !matches!(manifest, StoredManifest::Provisional(_))
    }

    /// The same index with an active snapshot that is among its snapshots.
    #[must_use = "the index is not changed in place"]
    pub fn with_a_head(&self, op_id: OpId) -> Self {
        let mut next = self.successor(op_id);
        next.active = self.active_without(&[]);
        next.raise_fence(op_id);
        next
    }

    /// What is active once some snapshots are gone: what is active now, else the newest explicit one that is left.
    pub fn active_without(&self, gone: &[SnapshotId]) -> Option<SnapshotId> {
        let left = || self.snapshots.iter().filter(|one| !gone.contains(&one.id));
        let active = left().find(|one| self.active.as_ref() == Some(&one.id));
        let explicit = || left().rfind(|one| one.reason.is_explicit());
        active.or_else(explicit).map(|one| one.id.clone())
    }

    /// All snapshots that are something to go back to, oldest first: without what only prepares one.
    pub fn finished(&self) -> impl DoubleEndedIterator<Item = &Indexed> + Clone {
        let all = self.snapshots.iter();
        all.filter(|one| one.reason != SaveReason::FirstPass)
    }

    /// One snapshot.
    pub fn find(&self, id: &SnapshotId) -> Option<&Indexed> {
        self.snapshots.iter().find(|one| one.id == *id)
    }

    /// A snapshot that was saved here, and not copied from another store.
    pub fn saved_here(&self) -> Option<&Indexed> {
        self.snapshots.iter().find(|one| one.copied_from.is_none())
    }

    /// Whether it has snapshots, and all of them were copied from another store.
    pub fn is_copy(&self) -> bool {
        !self.snapshots.is_empty() && self.saved_here().is_none()
    }

    /// Whether a snapshot is what `latest` means.
    pub fn is_active(&self, id: &SnapshotId) -> bool {
        self.active.as_ref() == Some(id)
    }

    fn raise_fence(&mut self, op_id: OpId) {
        self.fence = SubjectFence {
            epoch: self.fence.epoch.next(),
            op_id,
        };
    }

    fn diverged(&self) -> IndexRefusal {
        let active = self.active.as_ref();
        IndexRefusal::Diverged {
            active: active.map_or_else(|| "none".to_owned(), ToString::to_string),
        }
    }

    /// Whether the operation wrote the index, as far back as it records them; of saves, as long as it leads to their snapshots.
    pub fn remembers(&self, op_id: OpId) -> bool {
        self.recent.contains(&op_id) || self.snapshots.iter().any(|one| one.op_id == op_id)
    }

    /// Whether it records who wrote this generation and all later ones.
    pub fn covers(&self, generation: Generation) -> bool {
        self.generation.0 < generation.0.saturating_add(self.recent.len() as u64)
    }

    fn successor(&self, op_id: OpId) -> Self {
        let mut next = self.clone();
        next.generation = self.generation.next();
        next.op_id = op_id;
        next.recent.push(op_id);
        let old = next.recent.len().saturating_sub(RECENT);
        next.recent.drain(..old);
        next
    }

    /// The index with a new snapshot at the end of its chain.
    pub fn publish(&self, publish: &Publish, op_id: OpId) -> Result<Self, IndexRefusal> {
        if !self.is_alive() || self.incarnation != publish.incarnation {
            return Err(IndexRefusal::OtherLife);
        }
        if self.fence.epoch != publish.lease || self.active != publish.base {
            return Err(self.diverged());
        }
        if self.tombstones.contains_key(&publish.snapshot.id) {
            return Err(IndexRefusal::Gone(publish.snapshot.id.clone()));
        }
        let mut next = self.successor(op_id);
        next.raise_fence(op_id);
        if publish.activates {
            next.active = Some(publish.snapshot.id.clone());
        }
        next.snapshots.push(publish.snapshot.clone());
        Ok(next)
    }

    /// The index without some snapshots, which are tombstoned; all or none.
    pub fn forget(
        &self,
        ids: &[SnapshotId],
        at_ms: Timestamp,
        op_id: OpId,
    ) -> Result<Self, IndexRefusal> {
        if let Some(id) = ids.iter().find(|id| self.is_active(id)) {
            return Err(IndexRefusal::Active(id.clone()));
        }
        let mut next = self.successor(op_id);
        next.tombstone(ids, at_ms)?;
        Ok(next)
    }

    /// Tombstones snapshots that the index leads to, unless one of them is pinned.
    fn tombstone(&mut self, ids: &[SnapshotId], at_ms: Timestamp) -> Result<(), IndexRefusal> {
        for id in ids {
            match self.find(id) {
                None => return Err(IndexRefusal::Absent(id.clone())),
                Some(found) if found.pinned => return Err(IndexRefusal::Pinned(id.clone())),
                Some(_) => {}
            }
            self.snapshots.retain(|one| one.id != *id);
            self.tombstones.insert(id.clone(), Tombstone { at_ms });
        }
        Ok(())
    }

    /// The index without some snapshots, which are tombstoned, even the newest; all or none.
    ///
    /// An active snapshot that stays, stays active; otherwise the newest explicit one takes its place. Refused when that
    /// is anything else than was foreseen: another process saved meanwhile. If the active snapshot changes, or something goes that was not published, so does the fence.
    pub fn step_back(
        &self,
        back: &StepBack,
        at_ms: Timestamp,
        op_id: OpId,
    ) -> Result<Self, IndexRefusal> {
        let mut next = self.successor(op_id);
        next.tombstone(&back.gone, at_ms)?;
        for id in &back.unpublished {
            if self.find(id).is_some() {
                let active = id.to_string();
                return Err(IndexRefusal::Diverged { active });
            }
            next.tombstones.insert(id.clone(), Tombstone { at_ms });
        }
        // One that nobody can read may be provisional: its save must not publish what only that kept from gc.
        if !back.unpublished.is_empty() {
            next.raise_fence(op_id);
        }
        if back.gone.is_empty() {
            return Ok(next);
        }
        let left = self.active_without(&back.gone);
        if left != back.newest {
            return Err(self.diverged());
        }
        if self.active != left {
            next.active = left;
            if next.fence == self.fence {
                next.raise_fence(op_id);
            }
        }
        Ok(next)
    }

    /// The index with manifests tombstoned that no save will ever publish.
    #[must_use = "the index is not changed in place"]
    pub fn tombstone_unpublished<'i>(
        &self,
        ids: impl IntoIterator<Item = &'i SnapshotId>,
        at_ms: Timestamp,
        op_id: OpId,
    ) -> Self {
        let mut next = self.successor(op_id);
        for id in ids {
            if self.find(id).is_none() {
                next.tombstones.insert(id.clone(), Tombstone { at_ms });
            }
        }
        next
    }

    /// The index without tombstones that are older than `before` and whose manifests are not among those listed.
    ///
    /// A manifest that comes back afterwards is behind the fence, and is tombstoned again.
    #[must_use = "the index is not changed in place"]
    pub fn without_tombstones(
        &self,
        before: Timestamp,
        listed: &BTreeSet<SnapshotId>,
        op_id: OpId,
    ) -> Self {
        let mut next = self.successor(op_id);
        next.tombstones
            .retain(|id, tombstone| tombstone.at_ms >= before || listed.contains(id));
        next
    }

    /// The index with a snapshot kept for good, or no longer.
    pub fn pin(&self, id: &SnapshotId, pinned: bool, op_id: OpId) -> Result<Self, IndexRefusal> {
        let mut next = self.successor(op_id);
        next.find_mut(id)?.pinned = pinned;
        Ok(next)
    }

    /// The index with a snapshot's label set, or taken away.
    pub fn label(
        &self,
        id: &SnapshotId,
        key: &str,
        value: Option<&Label>,
        op_id: OpId,
    ) -> Result<Self, IndexRefusal> {
        let mut next = self.successor(op_id);
        let labels = &mut next.find_mut(id)?.labels;
        match value {
            Some(value) => labels.insert(key.to_owned(), value.clone()),
            None => labels.remove(key),
        };
        Ok(next)
    }

    /// The index after a restore chose a snapshot for the state of the subject, or took that choice back: `latest` means it,
    /// and the next save derives from it.
    ///
    /// Refused when the chain moved since `seen`, its active snapshot then. It gets a new fence, so that no save that began
    /// before it publishes after it.
    pub fn adopt(
        &self,
        chosen: Option<&SnapshotId>,
        seen: Option<&SnapshotId>,
        op_id: OpId,
    ) -> Result<Self, IndexRefusal> {
        if let Some(id) = chosen.filter(|id| self.find(id).is_none()) {
            return Err(IndexRefusal::Absent(id.clone()));
        }
        if self.active.as_ref() != seen {
            return Err(self.diverged());
        }
        let mut next = self.successor(op_id);
        next.active = chosen.cloned();
        next.raise_fence(op_id);
        Ok(next)
    }

    /// The snapshot that `latest` means; none where no user saved explicitly.
    pub fn latest(&self) -> Option<&Indexed> {
        self.find(self.active.as_ref()?)
    }

    /// Finds the snapshot that a user means. Every verb of every surface asks here.
    pub fn resolve(
        &self,
        wanted: &SnapshotRef,
        typed: TypedAt<'_>,
    ) -> Result<&Indexed, Unresolved<&Indexed>> {
        wanted.resolve(self.finished(), || self.latest(), typed)
    }

    fn find_mut(&mut self, id: &SnapshotId) -> Result<&mut Indexed, IndexRefusal> {
        let mut all = self.snapshots.iter_mut();
        let found = all.find(|one| one.id == *id);
        found.ok_or_else(|| IndexRefusal::Absent(id.clone()))
    }
}

#[cfg(test)]
mod tests;
