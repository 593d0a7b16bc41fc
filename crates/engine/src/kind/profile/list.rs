//! Which profiles there are, and which snapshots of them.

use super::inventory::{LockWord, SnapshotRow};
use super::subject::readable;
use crate::address::as_typed;
use crate::error::{Error, error_chain};
use crate::handle::Profiles;
use crate::warning::Warning;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::key::KeyOwner;
use stasis_model::format::pointer::Pointer;
use stasis_model::id::{Label, Lineage, ProfileRef, TenantId};
use stasis_model::time::Timestamp;
use stasis_store::layout::{self, Prefix};
use stasis_store::part::Part;
use std::collections::BTreeMap;

/// How many lineages are looked at together.
const TOGETHER: usize = 16;

/// One lineage in a listing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProfileRow {
    /// Which.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// The snapshot that counts.
    pub active_sha256: Option<ArchiveDigest>,
    /// When it came to count.
    pub flipped_at: Option<String>,
    /// The same in milliseconds.
    pub flipped_at_ms: Option<Timestamp>,
    /// How many snapshots lie there, whether they count or not.
    pub snapshots: u64,
    /// How many bytes their archives have.
    pub bytes: u64,
    /// Whether they are encrypted.
    pub encrypted: bool,
    /// Who owns it.
    pub lock: LockWord,
    /// The run that owns it, or owned it last.
    pub holder_run_id: Option<Label>,
    /// Documents that cannot be understood.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<String>,
}

/// All profiles of one tenant, or of all.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProfileList {
    /// One row per lineage.
    #[serde(rename = "items")]
    pub profiles: Vec<ProfileRow>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

/// A manifest that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DamagedManifest {
    /// Of which lineage.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// Where it lies.
    pub key: String,
    /// What is wrong with it.
    pub reason: String,
}

/// An archive without a manifest: a save that has not come to its end, or never did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Orphan {
    /// Of which lineage.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// Where it lies.
    pub key: String,
    /// How large it is.
    pub size_bytes: u64,
}

/// All snapshots of one profile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SnapshotList {
    /// The oldest first.
    #[serde(rename = "items")]
    pub snapshots: Vec<SnapshotRow>,
    /// Manifests that cannot be used.
    pub damaged: Vec<DamagedManifest>,
    /// Archives without a manifest.
    pub orphans: Vec<Orphan>,
    /// Pointers and locks that cannot be understood.
    pub damage: Vec<String>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

/// The snapshots of a profile as a timeline.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProfileLog {
    /// The newest first.
    pub items: Vec<SnapshotRow>,
    /// How many older ones there are.
    pub older: u64,
    /// Manifests that cannot be used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<DamagedManifest>,
    /// Archives without a manifest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orphans: Vec<Orphan>,
    /// Pointers and locks that cannot be understood.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<String>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl ProfileLog {
    /// Whether anything here cannot be what was written.
    pub fn is_damaged(&self) -> bool {
        let hurt = self.items.iter().any(|row| row.damage.is_some());
        hurt || !self.damaged.is_empty() || !self.damage.is_empty()
    }
}

/// What the snapshots of a profile take of the store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProfileUse {
    /// The newest first.
    pub items: Vec<ProfileSnapshotUse>,
    /// What all of them take.
    pub bytes_stored: u64,
}

/// What one snapshot of a profile takes: an archive shares nothing with others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProfileSnapshotUse {
    /// Of which lineage.
    #[serde(serialize_with = "as_typed")]
    pub subject: Lineage,
    /// Which.
    pub snapshot: String,
    /// When it was captured.
    pub timestamp: String,
    /// The same in milliseconds.
    pub timestamp_ms: u64,
    /// The length of its files.
    pub bytes: u64,
    /// What it takes.
    pub bytes_stored: u64,
    /// What is free without it.
    pub bytes_freed: u64,
}

impl From<&SnapshotRow> for ProfileSnapshotUse {
    fn from(row: &SnapshotRow) -> Self {
        let manifest = &row.manifest;
        Self {
            subject: row.subject.clone(),
            snapshot: manifest.archive_sha256.to_string(),
            timestamp: manifest.captured_at_ms.to_string(),
            timestamp_ms: manifest.captured_at_ms.millis(),
            bytes: manifest.uncompressed_size_bytes,
            bytes_stored: manifest.archive_size_bytes,
            bytes_freed: manifest.archive_size_bytes,
        }
    }
}

impl SnapshotList {
    /// Whether anything here cannot be what was written.
    pub fn is_damaged(&self) -> bool {
        let hurt = self.snapshots.iter().any(|row| row.damage.is_some());
        hurt || !self.damaged.is_empty() || !self.damage.is_empty()
    }
}

/// What a listing shows of one lineage.
#[derive(Clone, Copy, Default)]
pub(crate) struct LineageTotals {
    snapshots: u64,
    bytes: u64,
    has_data_key: bool,
}

impl Profiles<'_> {
    /// The newest snapshots of a profile, at most so many.
    pub async fn log(self, subject: &ProfileRef, most: usize) -> Result<ProfileLog, Error> {
        let list = self.snapshots(subject).await?;
        let mut items = list.snapshots;
        items.sort_by_key(|row| std::cmp::Reverse(row.manifest.captured_at_ms));
        let older = items.len().saturating_sub(most) as u64;
        items.truncate(most);
        Ok(ProfileLog {
            items,
            older,
            damaged: list.damaged,
            orphans: list.orphans,
            damage: list.damage,
            warnings: list.warnings,
        })
    }

    /// What each snapshot of a profile takes of the store.
    pub async fn du(self, subject: &ProfileRef) -> Result<ProfileUse, Error> {
        let log = self.log(subject, usize::MAX).await?;
        let items: Vec<ProfileSnapshotUse> = log.items.iter().map(Into::into).collect();
        let bytes_stored = items.iter().map(|one| one.bytes_stored).sum();
        Ok(ProfileUse {
            items,
            bytes_stored,
        })
    }

    /// Lists profiles: one row per lineage.
    pub async fn list(self, tenant: Option<&TenantId>) -> Result<ProfileList, Error> {
        let counted = self.counted(tenant, &Part::Whole).await?;
        let mut profiles = self.rows(counted).await?;
        profiles.sort_by(|one, other| one.subject.cmp(&other.subject));
        let warnings = self.clock_warnings();
        Ok(ProfileList { profiles, warnings })
    }

    /// The lineages in a part of the listing, with what that says of them; of a part, in the order of the store.
    pub(crate) async fn counted(
        self,
        tenant: Option<&TenantId>,
        part: &Part,
    ) -> Result<Vec<(Lineage, LineageTotals)>, Error> {
        let prefix = tenant.map_or_else(Prefix::lineages, Prefix::lineages_of);
        let mut listed = part.objects(&*self.bucket, &prefix, layout::lineage_of);
        let mut places: BTreeMap<Lineage, usize> = BTreeMap::new();
        let mut counted: Vec<(Lineage, LineageTotals)> = Vec::new();
        while let Some((lineage, row)) = listed.try_next().await? {
            let object = layout::snapshot_object(&lineage, &row.key);
            let is_data_key = row.key == layout::data_key(&KeyOwner::Lineage(lineage.clone()));
            let place = *places.entry(lineage.clone()).or_insert(counted.len());
            if place == counted.len() {
                counted.push((lineage, LineageTotals::default()));
            }
            let total = &mut counted[place].1;
            match object {
                Some(object) if object.is_manifest => total.snapshots += 1,
                Some(_) => total.bytes += row.size,
                None => total.has_data_key |= is_data_key,
            }
        }
        Ok(counted)
    }

    /// What is known of each, in the same order.
    pub(crate) async fn rows(
        self,
        counted: Vec<(Lineage, LineageTotals)>,
    ) -> Result<Vec<ProfileRow>, Error> {
        let looks = stream::iter(counted).map(|(lineage, totals)| {
            let engine = self.engine.clone();
            async move { engine.profiles().row(lineage, totals).await }
        });
        looks.buffered(TOGETHER).try_collect().await
    }

    /// The same, read anew.
    pub(crate) async fn row_again(self, row: ProfileRow) -> Result<ProfileRow, Error> {
        let totals = LineageTotals {
            snapshots: row.snapshots,
            bytes: row.bytes,
            has_data_key: row.encrypted,
        };
        self.row(row.subject, totals).await
    }

    async fn row(self, subject: Lineage, totals: LineageTotals) -> Result<ProfileRow, Error> {
        let (pointer, lock) = tokio::join!(
            self.lineages.pointer(&subject),
            self.lineages.lock(&subject)
        );
        let mut damage = Vec::new();
        let pointer = readable(pointer, &mut damage)?.map(|found| found.value);
        let lock = readable(lock, &mut damage)?.map(|found| found.value);
        let active = pointer.as_ref().filter(|pointer| pointer.active.is_some());
        Ok(ProfileRow {
            active_sha256: active.and_then(Pointer::active_archive),
            flipped_at: active.map(|pointer| pointer.published_at.to_string()),
            flipped_at_ms: active.map(|pointer| pointer.published_at),
            snapshots: totals.snapshots,
            bytes: totals.bytes,
            encrypted: totals.has_data_key,
            lock: LockWord::of(lock.as_ref(), self.lineages.now()),
            holder_run_id: lock.map(|lock| lock.holder.run_id),
            damage,
            subject,
        })
    }

    /// Lists all snapshots of a profile, in the order in which they were captured.
    pub async fn snapshots(self, subject: &ProfileRef) -> Result<SnapshotList, Error> {
        let mut list = SnapshotList {
            snapshots: Vec::new(),
            damaged: Vec::new(),
            orphans: Vec::new(),
            damage: Vec::new(),
            warnings: Vec::new(),
        };
        for lineage in self.lineages_of(subject).await? {
            let inventory = self.inventory(&lineage).await?;
            let mut rows = inventory.rows();
            self.add_proofs(&lineage, &mut rows).await?;
            list.snapshots.extend(rows);
            let subject = || lineage.clone();
            for (key, error) in &inventory.stored.unfit {
                list.damaged.push(DamagedManifest {
                    subject: subject(),
                    key: key.to_string(),
                    reason: error_chain(error),
                });
            }
            for (key, size_bytes) in &inventory.stored.orphans {
                list.orphans.push(Orphan {
                    subject: subject(),
                    key: key.to_string(),
                    size_bytes: *size_bytes,
                });
            }
            list.damage.extend(inventory.damage);
        }
        let moment = |row: &SnapshotRow| (row.manifest.captured_at_ms, row.manifest.archive_sha256);
        list.snapshots.sort_by_key(moment);
        list.warnings = self.clock_warnings();
        Ok(list)
    }
}
