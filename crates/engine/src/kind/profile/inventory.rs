//! How the snapshots of one lineage stand to its pointer.

use crate::address::as_typed;
use crate::error::Error;
use crate::handle::Profiles;
use crate::proofs::ProofShown;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::lease::{Lock, LockState};
use stasis_model::format::manifest::ProfileManifest;
use stasis_model::format::pointer::{Active, Pointer};
use stasis_model::id::Lineage;
use stasis_model::protocol::publish::published;
use stasis_model::time::Timestamp;
use stasis_store::documents::profiles::{StoredSnapshot, StoredSnapshots};
use stasis_store::layout::ProofSubject;
use std::collections::BTreeSet;

/// What is to be known of a snapshot besides its manifest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SnapshotStatus {
    /// The next run starts from it.
    Active,
    /// Retention keeps it.
    Pinned,
    /// An operator went back to it within the last 30 days.
    RolledBackTo,
    /// It was stored and nothing shows that it was ever active.
    #[serde(rename = "unpromoted")]
    Unpublished,
    /// It was deleted, and goes with the next sweep.
    Tombstoned,
    /// Its archive is missing, or has another size than its manifest says.
    Damaged,
    /// Its save found damaged databases in it, and did not publish it.
    DamagedDatabases,
    /// It is encrypted with the tenant's key.
    Encrypted,
}

/// One snapshot in a listing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SnapshotRow {
    /// Of which lineage.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// The first digits of its digest, as they stand in its name.
    pub sha256_prefix: String,
    /// How it stands to the pointer.
    pub marks: Vec<SnapshotStatus>,
    /// What is missing of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// What became of the last attempt to restore it into a scratch place, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<ProofShown>,
    /// Everything that was written down about it.
    #[schemars(with = "serde_json::Value")]
    pub manifest: ProfileManifest,
}

impl SnapshotRow {
    /// Whether it was deleted, and goes with the next gc.
    pub fn is_tombstoned(&self) -> bool {
        self.marks.contains(&SnapshotStatus::Tombstoned)
    }
}

/// Who owns a lineage, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LockWord {
    /// Nobody ever did.
    None,
    /// Somebody does.
    Held,
    /// Somebody did and has not renewed in time.
    Expired,
    /// Nobody does.
    Free,
    /// An operator threw the last one out.
    Forced,
}

impl LockWord {
    /// The word for a lock at a moment.
    pub fn of(lock: Option<&Lock>, now: Timestamp) -> Self {
        match lock.map(|lock| (lock.state, lock.is_live(now))) {
            None => Self::None,
            Some((LockState::Held, true)) => Self::Held,
            Some((LockState::Held, false)) => Self::Expired,
            Some((LockState::Free, _)) => Self::Free,
            Some((LockState::Forced, _)) => Self::Forced,
        }
    }
}

/// Everything that lies in one lineage, as it was seen.
#[derive(Debug)]
pub(super) struct Inventory {
    pub(super) lineage: Lineage,
    pub(super) pointer: Option<Pointer>,
    pub(super) lock: Option<Lock>,
    pub(super) stored: StoredSnapshots,
    /// Why the pointer or the lock could not be understood.
    pub(super) damage: Vec<String>,
}

impl Inventory {
    pub(super) fn active(&self) -> Option<ArchiveDigest> {
        self.pointer.as_ref().and_then(Pointer::active_archive)
    }

    pub(super) fn is_tombstoned(&self, archive: ArchiveDigest) -> bool {
        let pointer = self.pointer.as_ref();
        pointer.is_some_and(|pointer| pointer.is_tombstoned(archive))
    }

    /// The lock, when somebody would be thrown out of it.
    pub(super) fn holder(&self) -> Option<&Lock> {
        let lock = self.lock.as_ref();
        lock.filter(|lock| lock.state == LockState::Held)
    }

    /// Those that were active once, as far as anything tells.
    pub(super) fn published(&self) -> BTreeSet<ArchiveDigest> {
        let Some(pointer) = &self.pointer else {
            return BTreeSet::new();
        };
        let each = self.stored.snapshots.iter();
        let predecessors = each.map(|one| (one.active.archive, one.manifest.predecessor_sha256));
        published(pointer, &predecessors.collect())
    }

    /// Every snapshot that can be chosen: whole, and not deleted.
    pub(super) fn choices(&self) -> Vec<ArchiveDigest> {
        let whole = |one: &&StoredSnapshot| {
            one.damage().is_none() && !self.is_tombstoned(one.active.archive)
        };
        let each = self.stored.snapshots.iter().filter(whole);
        each.map(|one| one.active.archive).collect()
    }

    /// Snapshots that were active before `archive`, and are whole by their sizes: the newest first.
    pub(super) fn published_before(&self, archive: ArchiveDigest) -> impl Iterator<Item = &Active> {
        let published = self.published();
        let stored = self.stored.snapshots.iter().rev();
        stored
            .filter(move |one| one.active.archive != archive)
            .filter(move |one| published.contains(&one.active.archive))
            .filter(|one| one.damage().is_none() && !self.is_tombstoned(one.active.archive))
            .map(|one| &one.active)
    }

    /// All snapshots, the oldest first, with their marks.
    pub(super) fn rows(&self) -> Vec<SnapshotRow> {
        let published = self.published();
        let row = |one: &StoredSnapshot| self.row_among(one, &published);
        self.stored.snapshots.iter().map(row).collect()
    }

    /// One snapshot with its marks.
    pub(super) fn row(&self, one: &StoredSnapshot) -> SnapshotRow {
        self.row_among(one, &self.published())
    }

    fn row_among(&self, one: &StoredSnapshot, published: &BTreeSet<ArchiveDigest>) -> SnapshotRow {
        let archive = one.active.archive;
        let marked = |marks: fn(&Pointer) -> &[stasis_model::format::pointer::PointerMark]| {
            let pointer = self.pointer.as_ref();
            pointer.is_some_and(|pointer| marks(pointer).iter().any(|mark| mark.sha256 == archive))
        };
        let damage = one.damage();
        let all = [
            (SnapshotStatus::Active, self.active() == Some(archive)),
            (SnapshotStatus::Pinned, marked(|pointer| &pointer.pins)),
            (
                SnapshotStatus::RolledBackTo,
                marked(|pointer| &pointer.rollbacks),
            ),
            (SnapshotStatus::Unpublished, !published.contains(&archive)),
            (
                SnapshotStatus::Tombstoned,
                marked(|pointer| &pointer.tombstones),
            ),
            (SnapshotStatus::Damaged, damage.is_some()),
            (
                SnapshotStatus::DamagedDatabases,
                !one.manifest.damaged_databases.is_empty(),
            ),
            (SnapshotStatus::Encrypted, one.manifest.is_encrypted()),
        ];
        let marks = all.into_iter().filter(|(_, holds)| *holds);
        SnapshotRow {
            subject: self.lineage.clone(),
            sha256_prefix: archive.prefix(),
            marks: marks.map(|(mark, _)| mark).collect(),
            damage,
            proof: None,
            manifest: one.manifest.clone(),
        }
    }
}

impl Profiles<'_> {
    /// Says of some snapshots of a lineage what became of the last attempts to restore them.
    pub(super) async fn add_proofs<'row>(
        self,
        lineage: &Lineage,
        rows: impl IntoIterator<Item = &'row mut SnapshotRow>,
    ) -> Result<(), Error> {
        let subject = ProofSubject::Profile(lineage.clone());
        let known = self.proofs_of(&subject).await?;
        for row in rows {
            row.proof = known.get(&row.manifest.archive_sha256.to_string()).cloned();
        }
        Ok(())
    }
}

/// What is missing of a snapshot.
pub(super) trait Damage {
    /// What is missing; `None` when it is whole by its sizes.
    fn damage(&self) -> Option<String>;
}

impl Damage for StoredSnapshot {
    fn damage(&self) -> Option<String> {
        let promised = self.manifest.archive_size_bytes;
        match self.archive_size {
            Some(size) if size == promised => None,
            Some(size) => Some(format!(
                "its archive has {size} bytes, its manifest says {promised}"
            )),
            None => Some("its archive is missing".to_owned()),
        }
    }
}
