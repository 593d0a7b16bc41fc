//! `latest.json`: which snapshot of a lineage is the one, and who may move it.
//!
//! *Always true:* every write adds one to `generation` and enters its operation in `recent`, so the last 16 writes can
//! be told apart from writes that never happened. An empty `active_*` means "no snapshot", everywhere.

use crate::digest::{ArchiveDigest, ManifestDigest};
use crate::format::document::Document;
use crate::format::lease::Fence;
use crate::id::{Epoch, Generation, OpId};
use crate::invalid::Invalid;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;

/// How many operations a pointer records.
pub const RECENT_LIMIT: usize = 16;
/// Within this time after its date a tombstone lets requests be sent that remove what it is about.
pub const REMOVAL_WINDOW: Duration = Duration::from_hours(12);
/// This long after its date a tombstone may be dropped: a request has half of it to be sent, and half to arrive.
pub const TOMBSTONE_REST: Duration = Duration::from_hours(24);

/// The snapshot a pointer names.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Active {
    /// The archive's identity.
    pub archive: ArchiveDigest,
    /// The manifest's identity.
    pub manifest: ManifestDigest,
    /// Where the archive lies; readers derive it themselves and only compare.
    pub archive_key: String,
    /// Where the manifest lies; readers derive it themselves and only compare.
    pub manifest_key: String,
}

/// What an operation did to a pointer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PointerAct {
    /// A new owner wrote its fence.
    Acquire,
    /// The owner published a snapshot.
    #[serde(rename = "flip")]
    Publish,
    /// An operator chose an older snapshot.
    Rollback,
    /// An operator threw the owner out.
    ForceUnlock,
    /// A snapshot was marked for removal.
    Delete,
    /// A snapshot was protected from removal.
    Pin,
    /// That protection was lifted.
    Unpin,
    /// What a check of a snapshot found was recorded.
    Check,
    /// The marks of snapshots of which nothing is left were dropped.
    Forget,
    /// The document was lost, and an operator made it anew from the manifests.
    Repair,
}

/// One recorded operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Recent {
    /// Which operation.
    pub op_id: OpId,
    /// What it did.
    pub kind: PointerAct,
    /// The snapshot it was about, or the active one for acts that are about none.
    #[serde(with = "blank")]
    pub sha256: Option<ArchiveDigest>,
    /// The generation it wrote.
    pub generation: Generation,
    /// When, by the writer's clock.
    pub at_ms: Timestamp,
}

/// A snapshot and a moment: it was rolled back to, tombstoned or pinned then.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct PointerMark {
    /// Which snapshot.
    pub sha256: ArchiveDigest,
    /// When, by the writer's clock.
    pub at_ms: Timestamp,
}

/// What a check of a snapshot found, after its save.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct CheckFinding {
    /// Which snapshot.
    pub sha256: ArchiveDigest,
    /// Whether it came back whole, its databases included.
    pub sound: bool,
    /// When, by the writer's clock.
    pub at_ms: Timestamp,
}

impl PointerMark {
    /// Whether a tombstone of this date still lets requests be sent that remove what it is about.
    pub fn lets_remove(&self, now: Timestamp) -> bool {
        now.since(self.at_ms) < REMOVAL_WINDOW
    }

    /// Whether no request that a tombstone of this date let be sent can be under way any more.
    pub fn is_spent(&self, now: Timestamp) -> bool {
        now.since(self.at_ms) >= TOMBSTONE_REST
    }
}

/// The document `latest.json`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "PointerWire", into = "PointerWire")]
pub struct Pointer {
    /// The snapshot that counts, if any.
    pub active: Option<Active>,
    /// When `active` last changed.
    pub published_at: Timestamp,
    /// What `active` was before.
    pub published_from: Option<ArchiveDigest>,
    /// Counts the writes.
    pub generation: Generation,
    /// The only lease that may publish.
    pub fence: Fence,
    /// The operation that wrote these bytes.
    pub op_id: OpId,
    /// The last operations, oldest first.
    pub recent: Vec<Recent>,
    /// Snapshots an operator chose, for retention.
    pub rollbacks: Vec<PointerMark>,
    /// Snapshots that gc may remove and that are never chosen again.
    pub tombstones: Vec<PointerMark>,
    /// Snapshots that retention must keep.
    pub pins: Vec<PointerMark>,
    /// What loads and `verify` found, where it says more than the manifests do; the oldest first.
    pub checks: Vec<CheckFinding>,
    published_from_prefix: String,
    extra: Map<String, Value>,
}

impl Document for Pointer {
    const NAME: &'static str = "latest.json";
}

impl Pointer {
    /// A pointer to no snapshot that was not written yet.
    pub fn empty() -> Self {
        Self {
            active: None,
            published_at: Timestamp::default(),
            published_from: None,
            generation: Generation::default(),
            fence: Fence::default(),
            op_id: OpId::default(),
            recent: Vec::new(),
            rollbacks: Vec::new(),
            tombstones: Vec::new(),
            pins: Vec::new(),
            checks: Vec::new(),
            published_from_prefix: String::new(),
            extra: Map::new(),
        }
    }

    /// A pointer to a snapshot, where the one that there was is lost; no owner before it may publish.
    ///
    /// `epoch` is the highest that anything tells of. What only the lost pointer knew is gone: pins, tombstones, rollbacks.
    #[must_use = "a rebuilt pointer is not in place yet"]
    pub fn rebuilt(to: Option<Active>, epoch: Epoch, op_id: OpId, now: Timestamp) -> Self {
        let mut lost = Self::empty();
        lost.generation = Generation::far_ahead(now);
        let about = to.as_ref().map(|to| to.archive);
        let mut next = lost.successor(op_id, PointerAct::Repair, about, now);
        next.fence = Fence {
            epoch: epoch.next(),
            op_id,
        };
        if let Some(to) = to {
            next.point_at(to, now);
        }
        next
    }

    /// The identity of the active snapshot.
    pub fn active_archive(&self) -> Option<ArchiveDigest> {
        self.active.as_ref().map(|active| active.archive)
    }

    /// Whether the operation is among the recorded ones.
    pub fn remembers(&self, op_id: OpId) -> bool {
        self.recent.iter().any(|entry| entry.op_id == op_id)
    }

    /// Whether every write from `generation` on is recorded, so that absence from `recent` is proof.
    pub fn covers(&self, generation: Generation) -> bool {
        let oldest = self.recent.first().map(|entry| entry.generation);
        generation <= self.generation && oldest.is_some_and(|oldest| oldest <= generation)
    }

    /// Whether the snapshot was marked for removal.
    pub fn is_tombstoned(&self, archive: ArchiveDigest) -> bool {
        self.tombstones.iter().any(|mark| mark.sha256 == archive)
    }

    /// What the last check of the snapshot found, if one was recorded.
    pub fn finding(&self, archive: ArchiveDigest) -> Option<&CheckFinding> {
        self.checks.iter().find(|finding| finding.sha256 == archive)
    }

    /// Whether the snapshot is known to come back: by the last check of it, else by its save (`checked_at` of its
    /// manifest). That it was published proves nothing.
    pub fn is_proven(&self, archive: ArchiveDigest, checked_at: Option<Timestamp>) -> bool {
        let found = self.finding(archive).map(|finding| finding.sound);
        found.unwrap_or(checked_at.is_some())
    }

    /// Whether the snapshot is protected from removal.
    pub fn is_pinned(&self, archive: ArchiveDigest) -> bool {
        self.pins.iter().any(|mark| mark.sha256 == archive)
    }

    /// The same document one write later, with `entry`'s generation set and the oldest ones dropped.
    #[must_use = "the pointer is not changed in place"]
    pub fn successor(
        &self,
        op_id: OpId,
        kind: PointerAct,
        sha256: Option<ArchiveDigest>,
        now: Timestamp,
    ) -> Self {
        let generation = self.generation.next();
        let mut next = Self {
            generation,
            op_id,
            ..self.clone()
        };
        next.recent.push(Recent {
            op_id,
            kind,
            sha256,
            generation,
            at_ms: now,
        });
        let surplus = next.recent.len().saturating_sub(RECENT_LIMIT);
        next.recent.drain(..surplus);
        next
    }

    /// Makes `to` the active snapshot.
    pub fn point_at(&mut self, to: Active, now: Timestamp) {
        self.published_from = self.active_archive();
        self.published_from_prefix = self
            .published_from
            .map(|from| from.prefix())
            .unwrap_or_default();
        self.published_at = now;
        self.active = Some(to);
    }
}

/// The document as it is written: the seed's fields first, then ours, then whatever else was there.
#[derive(Clone, Serialize, Deserialize)]
struct PointerWire {
    version: u64,
    active_sha256_prefix: String,
    active_archive_key: String,
    active_manifest_key: String,
    flipped_at_ms: Timestamp,
    flipped_from_sha256_prefix: String,
    #[serde(default, with = "blank")]
    active_sha256: Option<ArchiveDigest>,
    #[serde(default, with = "blank")]
    active_manifest_sha256: Option<ManifestDigest>,
    #[serde(default, with = "blank")]
    flipped_from_sha256: Option<ArchiveDigest>,
    #[serde(default)]
    generation: Generation,
    #[serde(default)]
    fence: Fence,
    #[serde(default)]
    op_id: OpId,
    #[serde(default)]
    recent: Vec<Recent>,
    #[serde(default)]
    rollbacks: Vec<PointerMark>,
    #[serde(default)]
    tombstones: Vec<PointerMark>,
    #[serde(default)]
    pins: Vec<PointerMark>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    checks: Vec<CheckFinding>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl PointerWire {
    fn active(&self) -> Result<Option<Active>, Invalid> {
        let texts = [
            &self.active_sha256_prefix,
            &self.active_archive_key,
            &self.active_manifest_key,
        ];
        match (self.active_sha256, self.active_manifest_sha256) {
            (None, None) if texts.iter().all(|text| text.is_empty()) => Ok(None),
            (Some(archive), Some(manifest)) if texts.iter().all(|text| !text.is_empty()) => {
                if archive.prefix() != self.active_sha256_prefix {
                    let prefix = "`active_sha256_prefix` is not the start of `active_sha256`";
                    return Err(Invalid::new(prefix.to_owned()));
                }
                let archive_key = self.active_archive_key.clone();
                let manifest_key = self.active_manifest_key.clone();
                Ok(Some(Active {
                    archive,
                    manifest,
                    archive_key,
                    manifest_key,
                }))
            }
            _ => {
                let half = "some of its `active_*` fields are empty and others are not";
                Err(Invalid::new(half.to_owned()))
            }
        }
    }
}

impl TryFrom<PointerWire> for Pointer {
    type Error = Invalid;
    fn try_from(wire: PointerWire) -> Result<Self, Invalid> {
        Ok(Self {
            active: wire.active()?,
            published_at: wire.flipped_at_ms,
            published_from: wire.flipped_from_sha256,
            generation: wire.generation,
            fence: wire.fence,
            op_id: wire.op_id,
            recent: wire.recent,
            rollbacks: wire.rollbacks,
            tombstones: wire.tombstones,
            pins: wire.pins,
            checks: wire.checks,
            published_from_prefix: wire.flipped_from_sha256_prefix,
            extra: wire.extra,
        })
    }
}

impl From<Pointer> for PointerWire {
    fn from(pointer: Pointer) -> Self {
        let archive = pointer.active_archive();
        let manifest = pointer.active.as_ref().map(|active| active.manifest);
        let (archive_key, manifest_key) = pointer
            .active
            .map(|active| (active.archive_key, active.manifest_key))
            .unwrap_or_default();
        Self {
            version: Pointer::VERSION,
            active_sha256_prefix: archive.map(|archive| archive.prefix()).unwrap_or_default(),
            active_archive_key: archive_key,
            active_manifest_key: manifest_key,
            flipped_at_ms: pointer.published_at,
            flipped_from_sha256_prefix: pointer.published_from_prefix,
            active_sha256: archive,
            active_manifest_sha256: manifest,
            flipped_from_sha256: pointer.published_from,
            generation: pointer.generation,
            fence: pointer.fence,
            op_id: pointer.op_id,
            recent: pointer.recent,
            rollbacks: pointer.rollbacks,
            tombstones: pointer.tombstones,
            pins: pointer.pins,
            checks: pointer.checks,
            extra: pointer.extra,
        }
    }
}

/// "None" written as an empty text.
pub(crate) mod blank {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
    use std::fmt::Display;
    use std::str::FromStr;

    #[expect(clippy::ref_option, reason = "serde prescribes the signature")]
    pub(crate) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        value
            .as_ref()
            .map(T::to_string)
            .unwrap_or_default()
            .serialize(out)
    }

    pub(crate) fn deserialize<'de, T, D>(input: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text = String::deserialize(input)?;
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
