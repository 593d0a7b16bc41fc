//! How much a tenant may store, as its policy says, and what is left of it.
//!
//! What is stored are the archives of profiles and the chunks of everything else, as a listing shows them; documents beside them
//! are not counted. A save counts once, before it stores its first byte, and goes on from there by what it stores itself: saves
//! that run at the same time do not know of one another.
//!
//! *Always true:* a save that stores nothing new asks nothing and is never refused; what would go beyond a quota is refused
//! before it is sent.

use crate::error::{Error, ErrorKind};
use crate::open::Engine;
use stasis_model::failure::Failure;
use stasis_model::format::manifest::ProfileManifest;
use stasis_model::id::{Lineage, TenantId};
use stasis_model::policy::tenant::{Quotas, TenantPolicy};
use stasis_store::documents::profiles::{archive_bytes, profile_manifests};
use stasis_store::documents::roots::Root;
use stasis_store::layout::ChunkRoot;
use tokio::sync::Mutex;

/// What one save may still store.
pub(crate) struct StorageRoom {
    engine: Engine,
    tenant: TenantId,
    quotas: Option<Quotas>,
    room: Mutex<Room>,
}

#[derive(Clone, Copy)]
enum Room {
    /// Nothing was stored yet.
    NotAsked,
    NoQuota,
    /// How much may be stored, and how much is.
    Quota {
        most: u64,
        stored: u64,
    },
}

impl StorageRoom {
    pub(crate) fn new(engine: Engine, tenant: TenantId) -> Self {
        Self {
            engine,
            tenant,
            quotas: None,
            room: Mutex::new(Room::NotAsked),
        }
    }

    /// Says what the policy allows, if that was read already.
    pub(crate) fn knowing(mut self, quotas: Option<&Quotas>) -> Self {
        self.quotas = quotas.cloned();
        self
    }

    /// Takes room for so many bytes that are about to be stored.
    pub(crate) async fn take(&self, bytes: u64) -> Result<(), Error> {
        let mut room = self.room.lock().await;
        if matches!(*room, Room::NotAsked) {
            *room = self.ask().await?;
        }
        let Room::Quota { most, stored } = *room else {
            return Ok(());
        };
        let then = stored.saturating_add(bytes);
        if then > most {
            return Err(no_room(&self.tenant, most, stored).into());
        }
        *room = Room::Quota { most, stored: then };
        Ok(())
    }

    async fn policy_now(&self) -> Result<TenantPolicy, Error> {
        self.engine.tenants().policy(&self.tenant).await
    }

    async fn ask(&self) -> Result<Room, Error> {
        let most = match &self.quotas {
            Some(quotas) => quotas.max_bytes,
            None => self.policy_now().await?.quotas.max_bytes,
        };
        match most {
            0 => Ok(Room::NoQuota),
            most => Ok(Room::Quota {
                most,
                stored: self.engine.stored_bytes(&self.tenant).await?,
            }),
        }
    }
}

impl Engine {
    /// How many bytes of content a tenant has stored.
    pub(crate) async fn stored_bytes(&self, tenant: &TenantId) -> Result<u64, Error> {
        let pool = Root::new(self.bucket.clone(), ChunkRoot::pool(tenant));
        let (_, chunks) = pool.chunk_totals().await?;
        Ok(chunks + archive_bytes(&*self.bucket, tenant).await?)
    }

    /// Refuses one more snapshot of a profile, or its bytes, if a quota of its tenant does not allow it.
    pub(crate) async fn ensure_profile_room(
        &self,
        quotas: &Quotas,
        lineage: &Lineage,
        new: &ProfileManifest,
    ) -> Result<(), Error> {
        let most = quotas.max_snapshots_per_profile;
        if *quotas == Quotas::default() {
            return Ok(());
        }
        let there = profile_manifests(&*self.bucket, lineage).await?;
        let archive = new.archive_sha256.to_string();
        let is_there =
            |(of, digits): &(Lineage, String)| of == lineage && archive.starts_with(digits);
        if there.iter().any(is_there) {
            return Ok(());
        }
        let count = there.len() as u64;
        if most > 0 && count >= most {
            return Err(too_many(lineage, most, count).into());
        }
        let room = StorageRoom::new(self.clone(), lineage.tenant.clone());
        let room = room.knowing(Some(quotas));
        room.take(new.archive_size_bytes).await
    }
}

fn no_room(tenant: &TenantId, most: u64, stored: u64) -> Failure {
    let said = format!(
        "tenant `{tenant}` may store {most} bytes and has stored {stored}: there is no room for what is new in this snapshot"
    );
    let hint = format!(
        "`stasis gc` removes what no snapshot needs any more, what was stored of this one among it; delete or forget snapshots before, or allow more: stasis tenant policy set {tenant} quotas.max_bytes=N"
    );
    Failure::of(ErrorKind::Limit, said).with_hint(hint)
}

fn too_many(lineage: &Lineage, most: u64, count: u64) -> Failure {
    let (tenant, profile) = (&lineage.tenant, lineage.any_major());
    let said = format!(
        "`{profile}` has {count} snapshots, and tenant `{tenant}` may have {most} of a profile"
    );
    let hint = format!(
        "delete one (`stasis log profile:{profile}` names them), or allow more: stasis tenant policy set {tenant} quotas.max_snapshots_per_profile=N"
    );
    Failure::of(ErrorKind::Limit, said).with_hint(hint)
}

#[cfg(test)]
mod tests;
