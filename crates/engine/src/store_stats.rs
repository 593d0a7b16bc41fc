//! How much is in a store, of all tenants together or of one: what a service counts now and then, because it is expensive.
//!
//! Every subject's index, session document, pointer and lock is read once, or known from before and listed unchanged, and
//! everything that is stored is listed once.
//!
//! *Always true:* what cannot be read is counted as that, and never as nothing; a store that does not answer is an error. What the
//! documents read here do not say (the length of the files in a profile's archive; which kind a chunk belongs to, for all kinds of a
//! tenant share its pool) is not counted at all.

use crate::catalog::references::is_damage;
use crate::error::Error;
use crate::kind::profile::{LockWord, ProfileRow};
use crate::open::Engine;
use crate::proofs::ProofStats;
use crate::subjects::SubjectKind;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::format::key::PoolId;
use stasis_model::id::{ProfileId, TenantId};
use stasis_model::metrics::{self, Sample, Series};
use stasis_store::documents::containers::containers;
use stasis_store::documents::proofs;
use stasis_store::documents::roots::Root;
use stasis_store::layout::{ChunkRoot, Key, ProofSubject};
use stasis_store::part::Part;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What there is of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct KindStats {
    /// How many subjects, those that cannot be read among them.
    pub subjects: u64,
    /// How many of them have documents that cannot be read.
    pub unreadable: u64,
    /// How many snapshots the others have.
    pub snapshots: u64,
    /// The length of all files of those; not known of profiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logical_bytes: Option<u64>,
    /// Which of them were really restored.
    pub proofs: ProofStats,
}

/// What there is of one profile, over all majors of its browser.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProfileStats {
    /// How many snapshots.
    pub snapshots: u64,
    /// How many bytes their archives have.
    pub stored_bytes: u64,
}

/// How much is in a store.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct StoreStats {
    /// Of each kind.
    pub kinds: BTreeMap<SubjectKind, KindStats>,
    /// Of each profile.
    #[serde(skip)]
    pub profiles: BTreeMap<(TenantId, ProfileId), ProfileStats>,
    /// Bytes of the archives of profiles.
    pub archive_bytes: u64,
    /// How many chunks there are.
    pub chunks: u64,
    /// How many bytes they have.
    pub chunk_bytes: u64,
    /// Leases of profiles that somebody holds.
    pub leases_held: u64,
    /// Those whose holder did not renew in time, and that nobody freed.
    pub leases_expired: u64,
}

/// What is found on the way.
#[derive(Default)]
struct Found {
    /// The pools in which chunks of subjects lie, each with one of the roots that share it.
    pools: HashMap<PoolId, Root>,
    /// The subjects of which a snapshot was tried.
    tried: BTreeSet<Key>,
}

impl Engine {
    /// Counts what is in the store, of one tenant or of all.
    pub async fn store_stats(&self, tenant: Option<&TenantId>) -> Result<StoreStats, Error> {
        self.for_listing().count_stored(tenant).await
    }

    async fn count_stored(&self, tenant: Option<&TenantId>) -> Result<StoreStats, Error> {
        let mut stats = StoreStats::default();
        let mut found = Found {
            tried: proofs::all(&*self.bucket).await?,
            ..Found::default()
        };
        let dirs = self.dir_stats(tenant, &mut found).await?;
        stats.kinds.insert(SubjectKind::Dir, dirs);
        let mut proven = ProofStats::default();
        for row in self.profiles().list(tenant).await?.profiles {
            stats.add_profile(&row);
            let lineage = ProofSubject::Profile(row.subject);
            self.count_proofs(&mut proven, &lineage, &found.tried)
                .await?;
        }
        let profiles = stats.kinds.entry(SubjectKind::Profile).or_default();
        profiles.proofs = proven;
        let sessions = self.session_stats(tenant, &mut found).await?;
        stats.kinds.insert(SubjectKind::Session, sessions);
        let containers = self.container_stats(tenant, &mut found).await?;
        stats.kinds.insert(SubjectKind::Container, containers);
        for pool in found.pools.values() {
            let (chunks, bytes) = pool.chunk_totals().await?;
            stats.chunks += chunks;
            stats.chunk_bytes += bytes;
        }
        Ok(stats)
    }

    async fn dir_stats(
        &self,
        tenant: Option<&TenantId>,
        found: &mut Found,
    ) -> Result<KindStats, Error> {
        let mut stats = KindStats::chunked();
        for (layout, _, _) in self.directories(tenant).await? {
            let root = Root::new(self.bucket.clone(), layout);
            match self.dirs().index(&root).await {
                Ok(index) if index.deleted_at_ms.is_some() => {}
                Ok(index) => {
                    let bytes = index.snapshots.iter().map(|one| one.bytes).sum();
                    stats.add(index.snapshots.len() as u64, bytes);
                    let subject = ProofSubject::Chunked(root.layout().clone());
                    self.count_proofs(&mut stats.proofs, &subject, &found.tried)
                        .await?;
                }
                Err(error) if is_damage(&error) => stats.add_unreadable(1),
                Err(error) => return Err(error),
            }
            // Chunks of one that was deleted stay until gc.
            found.note_pool(root);
        }
        Ok(stats)
    }

    async fn session_stats(
        &self,
        tenant: Option<&TenantId>,
        found: &mut Found,
    ) -> Result<KindStats, Error> {
        let mut stats = KindStats::chunked();
        let list = self.sessions().list(tenant).await?;
        for row in &list.items {
            let has_one = row.snapshot_id.is_some();
            stats.add(u64::from(has_one), if has_one { row.bytes } else { 0 });
            let layout = ChunkRoot::session(&row.session);
            let subject = ProofSubject::Chunked(layout.clone());
            self.count_proofs(&mut stats.proofs, &subject, &found.tried)
                .await?;
            found.note_pool(Root::new(self.bucket.clone(), layout));
        }
        stats.add_unreadable(list.unreadable.len() as u64);
        Ok(stats)
    }

    async fn container_stats(
        &self,
        tenant: Option<&TenantId>,
        found: &mut Found,
    ) -> Result<KindStats, Error> {
        let mut stats = KindStats::chunked();
        let named = containers(&*self.bucket, tenant, &Part::Whole).await?;
        for row in self.containers().subjects(named).await? {
            found.note_pool(row.engine.dirs().root());
            match row.error {
                Some(_) => stats.add_unreadable(1),
                // Nothing is left of one whose snapshots are all gone.
                None if row.newest.is_none() => {}
                None => {
                    stats.add(row.snapshots, row.bytes);
                    let root = row.engine.dirs().root();
                    let subject = ProofSubject::Chunked(root.layout().clone());
                    self.count_proofs(&mut stats.proofs, &subject, &found.tried)
                        .await?;
                }
            }
        }
        Ok(stats)
    }
}

impl Found {
    /// The pool of a root is counted once, however many subjects share it.
    fn note_pool(&mut self, root: Root) {
        self.pools.entry(root.layout().pool_id()).or_insert(root);
    }
}

impl KindStats {
    /// Nothing yet of a kind whose indexes say how long its files are.
    fn chunked() -> Self {
        Self {
            logical_bytes: Some(0),
            ..Self::default()
        }
    }

    fn add(&mut self, snapshots: u64, bytes: u64) {
        self.subjects += 1;
        self.snapshots += snapshots;
        if let Some(all) = &mut self.logical_bytes {
            *all += bytes;
        }
    }

    /// How many snapshots no proof has restored yet: at least so many, for one that was deleted counts among those that came back until
    /// another one of its subject is tried.
    fn unproved(&self) -> u64 {
        self.snapshots.saturating_sub(self.proofs.restored)
    }

    fn add_unreadable(&mut self, count: u64) {
        self.subjects += count;
        self.unreadable += count;
    }
}

#[expect(clippy::cast_precision_loss, reason = "a metric is a measure")]
fn number(count: u64) -> f64 {
    count as f64
}

impl StoreStats {
    fn add_profile(&mut self, row: &ProfileRow) {
        let kind = self.kinds.entry(SubjectKind::Profile).or_default();
        if row.damage.is_empty() {
            kind.add(row.snapshots, 0);
        } else {
            kind.add_unreadable(1);
        }
        self.archive_bytes += row.bytes;
        match row.lock {
            LockWord::Held => self.leases_held += 1,
            LockWord::Expired => self.leases_expired += 1,
            LockWord::None | LockWord::Free | LockWord::Forced => {}
        }
        let name = (row.subject.tenant.clone(), row.subject.profile.clone());
        let one = self.profiles.entry(name).or_default();
        one.snapshots += row.snapshots;
        one.stored_bytes += row.bytes;
    }

    /// The length of all files of everything chunked, divided by what is stored of it; none where nothing is stored.
    pub fn dedup_ratio(&self) -> Option<f64> {
        let logical = self.kinds.values().filter_map(|kind| kind.logical_bytes);
        let logical: u64 = logical.sum();
        (self.chunk_bytes > 0).then(|| number(logical) / number(self.chunk_bytes))
    }

    /// The same for Prometheus, without the name of anybody.
    pub fn samples(&self) -> Vec<Sample> {
        let mut samples = Vec::new();
        for (kind, stats) in &self.kinds {
            let kind = kind.to_string();
            let labels = [("kind", kind.as_str())];
            let mut add = |series, value| {
                samples.push(Sample::of(series, &labels, number(value)));
            };
            add(metrics::STORE_SUBJECTS, stats.subjects);
            add(metrics::STORE_UNREADABLE, stats.unreadable);
            add(metrics::STORE_SNAPSHOTS, stats.snapshots);
            if let Some(bytes) = stats.logical_bytes {
                add(metrics::STORE_LOGICAL, bytes);
            }
            if stats.snapshots > 0 {
                add(metrics::PROOF_UNPROVED, stats.unproved());
            }
            if stats.proofs.tried > 0 {
                add(metrics::PROOF_BROKEN, stats.proofs.broken);
            }
        }
        let stored = metrics::STORE_STORED;
        let ratio = self.dedup_ratio();
        let alone = |series, value| Sample::of(series, &[], number(value));
        samples.extend([
            Sample::of(stored, &[("form", "archive")], number(self.archive_bytes)),
            Sample::of(stored, &[("form", "chunked")], number(self.chunk_bytes)),
            alone(metrics::STORE_CHUNKS, self.chunks),
            alone(metrics::LEASES_HELD, self.leases_held),
            alone(metrics::LEASES_EXPIRED, self.leases_expired),
        ]);
        samples.extend(ratio.map(|ratio| Sample::of(metrics::STORE_DEDUP, &[], ratio)));
        samples
    }

    /// What is known of each profile, with the names of tenants and profiles.
    pub fn profile_samples(&self) -> Vec<Sample> {
        let mut samples = Vec::new();
        for ((tenant, profile), stats) in &self.profiles {
            let labels = [
                (metrics::TENANT_LABEL, tenant.as_str()),
                ("profile_id", profile.as_str()),
            ];
            let mut add = |series: Series, value| {
                samples.push(Sample::of(series, &labels, number(value)));
            };
            add(metrics::STORE_PROFILE_SNAPSHOTS, stats.snapshots);
            add(metrics::STORE_PROFILE_STORED, stats.stored_bytes);
        }
        samples
    }
}
