//! A unit of work on one lineage: what a command needs to know of it, read once.
//!
//! Policy and lease are read when the work begins; the pointer comes with the lease; the data key and the manifest of the
//! snapshot before are read when somebody first asks for them. Nothing of it is asked for a second time, with one
//! exception: that a directory is unchanged is said only after the lease proved to be ours to the end, see
//! [`SubjectSession::ends_with_its_lease`].
//!
//! *Always true:* nothing here is more than the last reading. Whatever is written depends on the version of a document,
//! so a reading that is old by then is refused by the store and made again.

use crate::bridge;
use crate::error::Error;
use crate::handle::Profiles;
use crate::lease::{Acquire, LeaseWait};
use crate::warning::Warning;
use stasis_disk::crypt::DataKey;
use stasis_disk::fs::atomic_write::{read_bounded, replace_unsynced};
use stasis_model::digest::{ArchiveDigest, ManifestDigest, StoreDigest};
use stasis_model::format::document::{self, Document};
use stasis_model::format::lease::{Fence, Holder};
use stasis_model::format::manifest::ProfileManifest;
use stasis_model::format::pointer::{Active, Pointer};
use stasis_model::id::Lineage;
use stasis_model::policy::tenant::TenantPolicy;
use stasis_store::documents::leases::Lease;
use stasis_store::documents::profiles::LineageSnapshots;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// What is known of a lineage while one command works on it.
#[derive(Debug)]
pub(super) struct SubjectSession {
    pub(super) lease: Lease,
    pub(super) policy: TenantPolicy,
    /// What went less well than it should have when the lease was acquired.
    pub(super) warnings: Vec<Warning>,
    keeping: Keeping,
    key: OnceCell<Option<Arc<DataKey>>>,
    before: OnceCell<Option<Arc<ProfileManifest>>>,
}

/// Whose the lease is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keeping {
    /// This work's own: it is given back when the work ends.
    Own,
    /// A caller's, or a run's, which goes on.
    Borrowed,
}

/// Who asks for the lease of a piece of work.
pub(super) struct SessionClaim<'a> {
    pub(super) holder: &'a Holder,
    /// How long to wait for another holder.
    pub(super) wait: Option<&'a LeaseWait>,
    /// A lease that is ours already.
    pub(super) token: Option<Fence>,
}

impl SubjectSession {
    fn new(lease: Lease, policy: TenantPolicy, keeping: Keeping) -> Self {
        Self {
            lease,
            policy,
            warnings: Vec::new(),
            keeping,
            key: OnceCell::new(),
            before: OnceCell::new(),
        }
    }

    pub(super) fn lineage(&self) -> &Lineage {
        &self.lease.lineage
    }

    /// How often the lease is renewed while the work lasts.
    pub(super) fn renew_every(&self) -> Duration {
        self.policy.renew_every().min(self.lease.ttl / 3)
    }

    /// Whether the lease is given back when the work ends. Giving it back is a conditional write of the lock as we left it,
    /// which succeeds only if nobody became the owner meanwhile: no other proof is needed then.
    pub(super) fn ends_with_its_lease(&self) -> bool {
        self.keeping == Keeping::Own
    }
}

impl Profiles<'_> {
    /// Begins a piece of work under a lease of its own, or under the one whose token is shown.
    pub(super) async fn begin_session(
        self,
        lineage: &Lineage,
        policy: TenantPolicy,
        claim: SessionClaim<'_>,
    ) -> Result<SubjectSession, Error> {
        let ttl = policy.lease_ttl();
        let SessionClaim {
            holder,
            wait,
            token,
        } = claim;
        let Some(token) = token else {
            let acquire = Acquire {
                lineage: lineage.clone(),
                holder: holder.clone(),
                ttl: Some(ttl),
            };
            let acquired = self.leases().acquire_within(acquire, wait).await?;
            return Ok(SubjectSession {
                warnings: acquired.warnings,
                ..SubjectSession::new(acquired.lease, policy, Keeping::Own)
            });
        };
        let lease = self.leases().adopt(lineage, token, ttl).await?;
        Ok(SubjectSession {
            warnings: self.clock_warnings(),
            ..SubjectSession::new(lease, policy, Keeping::Borrowed)
        })
    }

    /// Begins a piece of work under a lease that lasts longer than it.
    pub(super) async fn session_under(self, lease: &Lease) -> Result<SubjectSession, Error> {
        let policy = self.tenants().policy(&lease.lineage.tenant).await?;
        Ok(SubjectSession::new(
            lease.clone(),
            policy,
            Keeping::Borrowed,
        ))
    }

    /// The pointer as this session last saw it.
    pub(super) async fn session_pointer(
        self,
        session: &SubjectSession,
    ) -> Result<Option<Pointer>, Error> {
        match session.lease.last_pointer() {
            Some(pointer) => Ok(Some(pointer)),
            None => self.session_pointer_now(session).await,
        }
    }

    /// The pointer as it is now.
    pub(super) async fn session_pointer_now(
        self,
        session: &SubjectSession,
    ) -> Result<Option<Pointer>, Error> {
        let read = self.lineages.pointer(session.lineage()).await?;
        Ok(read.map(|found| found.value))
    }

    /// The key to write with; see [`Profiles::key_to_save`].
    pub(super) async fn session_key(
        self,
        session: &SubjectSession,
    ) -> Result<Option<Arc<DataKey>>, Error> {
        let key = session.key.get_or_try_init(|| self.key_to_save(session));
        key.await.cloned()
    }

    /// The key to archive with. A lineage whose active snapshot is plain is archived without one, and asked for its key only
    /// when something is about to be stored: where nothing changed, that is never.
    pub(super) async fn key_to_archive(
        self,
        session: &SubjectSession,
    ) -> Result<Option<Arc<DataKey>>, Error> {
        if self.tenant_key.is_none() {
            let before = self.session_manifest(session).await;
            if before.is_some_and(|manifest| !manifest.is_encrypted()) {
                return Ok(None);
            }
        }
        self.session_key(session).await
    }

    /// The manifest of the snapshot that the lease began with; `None` when there is none, or it cannot be used.
    ///
    /// Its digest is in the pointer, so it may come from this host's cache.
    pub(super) async fn session_manifest(
        self,
        session: &SubjectSession,
    ) -> Option<Arc<ProfileManifest>> {
        let active = session.lease.base.as_ref()?;
        let read = session.before.get_or_init(async || {
            let manifest = self.manifest_of(session.lineage(), active).await;
            manifest.map(Arc::new)
        });
        read.await.clone()
    }

    /// The manifest of a snapshot that a pointer names, from this host or from the store.
    pub(super) async fn manifest_of(
        self,
        lineage: &Lineage,
        active: &Active,
    ) -> Option<ProfileManifest> {
        let snapshots = LineageSnapshots::of(&*self.bucket, lineage);
        if let Some(bytes) = self.cached_manifest(lineage).await
            && let Ok(manifest) = snapshots.understand(active, &bytes)
        {
            return Some(manifest);
        }
        let manifest = snapshots.manifest(active).await.ok()?;
        self.cache_manifest(lineage, active, &manifest).await;
        Some(manifest)
    }

    async fn cached_manifest(self, lineage: &Lineage) -> Option<Vec<u8>> {
        let path = self.manifest_path(lineage)?;
        let limit = ProfileManifest::LIMIT as u64;
        let read = bridge::blocking(move || read_bounded(&path, limit));
        read.await.ok()
    }

    /// Keeps the manifest of a snapshot for the next save on this host. Losing it costs one request.
    pub(super) async fn cache_manifest(
        self,
        lineage: &Lineage,
        active: &Active,
        manifest: &ProfileManifest,
    ) {
        let bytes = document::render(manifest);
        // Of a newer build's manifest we know less than it says: what we would write has another digest.
        if ManifestDigest::of(&bytes) != active.manifest {
            return;
        }
        if let Some(path) = self.manifest_path(lineage) {
            let written = bridge::blocking(move || replace_unsynced(&path, &bytes));
            if let Err(error) = written.await {
                tracing::debug!(%error, "the manifest was not cached");
            }
        }
    }

    /// One file for each lineage: the manifest that was read or written last.
    fn manifest_path(self, lineage: &Lineage) -> Option<PathBuf> {
        let name = StoreDigest::of(format!("{} {lineage}", self.location).as_bytes());
        let cache = self.local_dirs.cache.as_ref()?;
        Some(cache.join("manifests").join(format!("{name}.json")))
    }

    /// The manifest of the active snapshot, if that is `base` and the pointer still ours to move.
    pub(super) async fn active_base(
        self,
        session: &SubjectSession,
        pointer: Option<Pointer>,
        base: Option<ArchiveDigest>,
    ) -> Option<Arc<ProfileManifest>> {
        let ours = pointer.filter(|pointer| pointer.fence == session.lease.fence);
        let active = ours.and_then(|pointer| pointer.active);
        let active = active.filter(|active| Some(active.archive) == base)?;
        if session.lease.base.as_ref() == Some(&active) {
            return self.session_manifest(session).await;
        }
        // A run that saves in between has moved the pointer since its lease began.
        let manifest = self.manifest_of(session.lineage(), &active).await;
        manifest.map(Arc::new)
    }
}
