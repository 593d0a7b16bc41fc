//! `index.json`: what leads to every snapshot of a chunked root, and the rules to change it.
//!
//! A save reads a subject's fence and its active snapshot before it begins, and publishes only if neither has moved:
//! publishing raises the fence, so that of two saves that began alike one learns that it diverged, and so that a
//! manifest whose lease is behind the fence can never be published any more ([`crate::protocol::gc::manifests`]).
//!
//! `latest` has one meaning: the active snapshot of a chain. A save that a user asked for makes its snapshot active, and so
//! does a restore of the whole subject ([`SnapshotIndex::adopt`]). Automatic and safety snapshots join the chain without moving it
//! ([`Publish::activates`]); they raise the fence like any other.
//!
//! A chain goes back only by [`SnapshotIndex::step_back`], which an operator asks for. It raises the fence too, so that no save that
//! began before it publishes after it. A chain that has lost all its snapshots stays in the index with its fence: were that
//! to begin anew, a manifest of its first life could be published in its second.

use super::snapshot::SaveReason;
use crate::digest::ManifestDigest;
use crate::format::document::Document;
use crate::id::{Epoch, Generation, Label, OpId, SnapshotId, SubjectName};
use crate::snapshot_ref::{Candidate, SnapshotRef, Unresolved};
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
    /// Every chain of snapshots, by name.
    pub subjects: BTreeMap<SubjectName, Subject>,
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
}

/// One chain of snapshots.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Subject {
    /// What a publish must find unmoved.
    pub fence: SubjectFence,
    /// What `latest` means: what the last explicit save made, or the last whole restore chose. None before the first.
    #[serde(default)]
    pub active: Option<SnapshotId>,
    /// All snapshots that are kept, oldest first.
    pub snapshots: Vec<Indexed>,
    #[serde(flatten)]
    extra: Map<String, Value>,
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
    /// Words of the user's; they may change, while what its document says stays.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Label>,
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
    /// In which chain.
    pub subject: SubjectName,
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
    /// What must be the active snapshot of each chain that loses some; `None` when no explicit one is left of it.
    pub newest: BTreeMap<SubjectName, Option<SnapshotId>>,
    /// Manifests that the index does not lead to, and shall never lead to.
    pub unpublished: Vec<SnapshotId>,
}

/// Why the index is not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexRefusal {
    /// Another save was published meanwhile.
    #[error("`{subject}` was saved by somebody else meanwhile: its newest snapshot is `{active}`")]
    Diverged {
        /// Which chain.
        subject: SubjectName,
        /// Its newest snapshot now.
        active: String,
    },
    /// It was forgotten or given up.
    #[error("snapshot `{0}` is gone")]
    Gone(SnapshotId),
    /// There is none of that name.
    #[error("there is no snapshot `{0}`")]
    Absent(SnapshotId),
    /// The newest of its chain stays.
    #[error("snapshot `{0}` is the newest of its chain and is kept")]
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

    fn is_labelled(&self, text: &str) -> bool {
        let mut labels = self.labels.iter();
        labels.any(|(key, value)| {
            value.as_str() == text || text.split_once('=') == Some((key, value.as_str()))
        })
    }
}

impl Subject {
    /// What is active once some snapshots are gone: what is active now, else the newest explicit one that is left.
    pub fn active_without(&self, gone: &[SnapshotId]) -> Option<SnapshotId> {
        let left = || self.snapshots.iter().filter(|one| !gone.contains(&one.id));
        let active = left().find(|one| self.active.as_ref() == Some(&one.id));
        let explicit = || left().rfind(|one| one.reason.is_explicit());
        active.or_else(explicit).map(|one| one.id.clone())
    }
}

impl SnapshotIndex {
    /// What holds before the first save.
    pub fn empty() -> Self {
        Self {
            version: Self::VERSION,
            generation: Generation::default(),
            op_id: OpId::default(),
            subjects: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            recent: Vec::new(),
            extra: Map::new(),
        }
    }

    /// A chain; one that was never saved is empty.
    pub fn subject(&self, name: &SubjectName) -> Subject {
        self.subjects.get(name).cloned().unwrap_or_default()
    }

    /// All snapshots with their chains, oldest first within a chain.
    pub fn snapshots(&self) -> impl Iterator<Item = (&SubjectName, &Indexed)> {
        self.subjects
            .iter()
            .flat_map(|(name, subject)| subject.snapshots.iter().map(move |one| (name, one)))
    }

    /// One snapshot and its chain.
    pub fn find(&self, id: &SnapshotId) -> Option<(&SubjectName, &Indexed)> {
        self.snapshots().find(|(_, one)| one.id == *id)
    }

    /// Whether the operation wrote the index, as far back as it records them.
    pub fn remembers(&self, op_id: OpId) -> bool {
        self.recent.contains(&op_id)
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
        let found = self.subject(&publish.subject);
        if found.fence.epoch != publish.lease || found.active != publish.base {
            return Err(IndexRefusal::Diverged {
                subject: publish.subject.clone(),
                active: found.active.map_or_else(|| "none".to_owned(), String::from),
            });
        }
        if self.tombstones.contains_key(&publish.snapshot.id) {
            return Err(IndexRefusal::Gone(publish.snapshot.id.clone()));
        }
        let mut next = self.successor(op_id);
        let subject = next.subjects.entry(publish.subject.clone()).or_default();
        subject.fence = SubjectFence {
            epoch: publish.lease.next(),
            op_id,
        };
        if publish.activates {
            subject.active = Some(publish.snapshot.id.clone());
        }
        subject.snapshots.push(publish.snapshot.clone());
        Ok(next)
    }

    /// The index without some snapshots, which are tombstoned; all or none.
    pub fn forget(
        &self,
        ids: &[SnapshotId],
        at_ms: Timestamp,
        op_id: OpId,
    ) -> Result<Self, IndexRefusal> {
        let mut next = self.successor(op_id);
        for id in ids {
            let (name, found) = self
                .find(id)
                .ok_or_else(|| IndexRefusal::Absent(id.clone()))?;
            if found.pinned {
                return Err(IndexRefusal::Pinned(id.clone()));
            }
            let subject = next.subjects.entry(name.clone()).or_default();
            if subject.active.as_ref() == Some(id) {
                return Err(IndexRefusal::Active(id.clone()));
            }
            subject.snapshots.retain(|one| one.id != *id);
            next.tombstones.insert(id.clone(), Tombstone { at_ms });
        }
        Ok(next)
    }

    /// The index without some snapshots, which are tombstoned, even the newest of their chains; all or none.
    ///
    /// An active snapshot that stays, stays active; otherwise the newest explicit one takes its place. Refused when that
    /// is anything else than was foreseen: another process saved meanwhile. A chain whose active snapshot changes gets a
    /// new fence.
    pub fn step_back(
        &self,
        back: &StepBack,
        at_ms: Timestamp,
        op_id: OpId,
    ) -> Result<Self, IndexRefusal> {
        let mut next = self.successor(op_id);
        for id in &back.gone {
            let (name, found) = self
                .find(id)
                .ok_or_else(|| IndexRefusal::Absent(id.clone()))?;
            if found.pinned {
                return Err(IndexRefusal::Pinned(id.clone()));
            }
            let subject = next.subjects.entry(name.clone()).or_default();
            subject.snapshots.retain(|one| one.id != *id);
            next.tombstones.insert(id.clone(), Tombstone { at_ms });
        }
        for id in &back.unpublished {
            if let Some((subject, _)) = self.find(id) {
                return Err(IndexRefusal::Diverged {
                    subject: subject.clone(),
                    active: id.to_string(),
                });
            }
            next.tombstones.insert(id.clone(), Tombstone { at_ms });
        }
        for (name, newest) in &back.newest {
            let subject = next.subjects.entry(name.clone()).or_default();
            let left = subject.active_without(&back.gone);
            if left != *newest {
                return Err(IndexRefusal::Diverged {
                    subject: name.clone(),
                    active: left.map_or_else(|| "none".to_owned(), String::from),
                });
            }
            if subject.active != left {
                subject.active = left;
                subject.fence = SubjectFence {
                    epoch: subject.fence.epoch.next(),
                    op_id,
                };
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
    /// A manifest that comes back afterwards is behind the fence of its chain, and is tombstoned again.
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

    /// The index after a restore chose a snapshot for the state of a chain, or took that choice back: `latest` means it,
    /// and the next save derives from it.
    ///
    /// Refused when the chain moved since `seen`, its active snapshot then. It gets a new fence, so that no save that began
    /// before it publishes after it.
    pub fn adopt(
        &self,
        name: &SubjectName,
        chosen: Option<&SnapshotId>,
        seen: Option<&SnapshotId>,
        op_id: OpId,
    ) -> Result<Self, IndexRefusal> {
        let found = self.subject(name);
        if let Some(id) = chosen.filter(|id| !found.snapshots.iter().any(|one| one.id == **id)) {
            return Err(IndexRefusal::Absent(id.clone()));
        }
        if found.active.as_ref() != seen {
            return Err(IndexRefusal::Diverged {
                subject: name.clone(),
                active: found.active.map_or_else(|| "none".to_owned(), String::from),
            });
        }
        let mut next = self.successor(op_id);
        let subject = next.subjects.entry(name.clone()).or_default();
        subject.active = chosen.cloned();
        subject.fence = SubjectFence {
            epoch: subject.fence.epoch.next(),
            op_id,
        };
        Ok(next)
    }

    /// The snapshot that `latest` means in a chain; none where no user saved it explicitly.
    pub fn latest(&self, name: &SubjectName) -> Option<&Indexed> {
        let subject = self.subjects.get(name)?;
        let active = subject.active.as_ref()?;
        subject.snapshots.iter().find(|one| one.id == *active)
    }

    /// Finds the snapshot that a user means, in one chain or in all. Every verb of every surface asks here.
    pub fn resolve(
        &self,
        name: Option<&SubjectName>,
        wanted: &SnapshotRef,
    ) -> Result<&Indexed, Unresolved<&Indexed>> {
        let is_asked = |found: &SubjectName| name.is_none_or(|name| name == found);
        let own = self.snapshots().filter(|(found, _)| is_asked(found));
        let latest = || {
            let names = self.subjects.keys().filter(|found| is_asked(found));
            let latest = names.filter_map(|name| self.latest(name));
            latest.max_by_key(|one| one.at_ms)
        };
        wanted.resolve(own.map(|(_, one)| one), latest)
    }

    fn find_mut(&mut self, id: &SnapshotId) -> Result<&mut Indexed, IndexRefusal> {
        self.subjects
            .values_mut()
            .flat_map(|subject| &mut subject.snapshots)
            .find(|one| one.id == *id)
            .ok_or_else(|| IndexRefusal::Absent(id.clone()))
    }
}

#[cfg(test)]
mod tests;
