//! `index.json`: what leads to every snapshot of a chunked root, and the rules to change it.
//!
//! A save reads a subject's fence and its active snapshot before it begins, and publishes only if neither has moved:
//! whoever publishes raises the fence, so that of two saves that began alike one is told that it diverged, and so that a
//! manifest whose lease is behind the fence can never be published any more ([`crate::sweep::burial`]).
//!
//! A chain goes back only by [`Index::step_back`], which an operator asks for. It raises the fence too, so that no save that
//! began before it publishes after it. A chain that has lost all its snapshots stays in the index with its fence: were that
//! to begin anew, a manifest of its first life could be published in its second.

use super::snapshot::Reason;
use crate::digest::ManifestDigest;
use crate::document::Document;
use crate::id::{Epoch, Generation, Label, OpId, SnapshotId, SubjectName};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// How many recent writers are remembered.
const RECENT: usize = 16;

/// The document `index.json`; where there is none, [`Index::empty`] holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Index {
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

impl Document for Index {
    const NAME: &'static str = "index.json";
    const LIMIT: usize = 8 << 20;
}

/// One chain of snapshots.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Subject {
    /// What a publish must find unmoved.
    pub fence: SubjectFence,
    /// The newest state; none before the first.
    #[serde(default)]
    pub active: Option<SnapshotId>,
    /// All snapshots that are kept, oldest first.
    pub snapshots: Vec<Indexed>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// Who may publish next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
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
    /// What made somebody save.
    #[serde(default)]
    pub reason: Reason,
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
}

/// What an operator wants to go, be it the newest of its chain or not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StepBack {
    /// Which snapshots.
    pub gone: Vec<SnapshotId>,
    /// What must be the newest of each chain that loses some; `None` when nothing may be left of it.
    pub newest: BTreeMap<SubjectName, Option<SnapshotId>>,
    /// Manifests that the index does not lead to, and shall never lead to.
    pub unpublished: Vec<SnapshotId>,
}

/// Why the index is not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexRefusal {
    /// Somebody else published meanwhile.
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
    /// Somebody asked to keep it.
    #[error("snapshot `{0}` is pinned")]
    Pinned(SnapshotId),
}

impl Index {
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

    /// Whether the operation wrote the index, as far back as it remembers.
    pub fn remembers(&self, op_id: OpId) -> bool {
        self.recent.contains(&op_id)
    }

    /// Whether it remembers who wrote this generation and all later ones.
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
        subject.active = Some(publish.snapshot.id.clone());
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
    /// Refused when a chain would then end with anything else than was foreseen: somebody saved meanwhile. A chain whose
    /// newest snapshot changes gets a new fence.
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
            let last = subject.snapshots.last().map(|one| one.id.clone());
            if last != *newest {
                return Err(IndexRefusal::Diverged {
                    subject: name.clone(),
                    active: last.map_or_else(|| "none".to_owned(), String::from),
                });
            }
            if subject.active != last {
                subject.active = last;
                subject.fence = SubjectFence {
                    epoch: subject.fence.epoch.next(),
                    op_id,
                };
            }
        }
        Ok(next)
    }

    /// The index with manifests tombstoned that nobody will ever publish.
    #[must_use = "the index is not changed in place"]
    pub fn bury<'i>(
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
    /// A manifest that comes back afterwards is behind the fence of its chain, and is buried again.
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
        (key, value): (&str, Option<&Label>),
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

    /// The index after the state of a chain became an older snapshot again: the next save derives from that.
    ///
    /// Refused when the chain moved since `seen`, its active snapshot then. It gets a new fence, so that no save that began
    /// before it publishes after it.
    pub fn adopt(
        &self,
        id: &SnapshotId,
        seen: Option<&SnapshotId>,
        op_id: OpId,
    ) -> Result<Self, IndexRefusal> {
        let (name, _) = self
            .find(id)
            .ok_or_else(|| IndexRefusal::Absent(id.clone()))?;
        let found = self.subject(name);
        if found.active.as_ref() != seen {
            return Err(IndexRefusal::Diverged {
                subject: name.clone(),
                active: found.active.map_or_else(|| "none".to_owned(), String::from),
            });
        }
        let mut next = self.successor(op_id);
        let subject = next.subjects.entry(name.clone()).or_default();
        subject.active = Some(id.clone());
        subject.fence = SubjectFence {
            epoch: subject.fence.epoch.next(),
            op_id,
        };
        Ok(next)
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
