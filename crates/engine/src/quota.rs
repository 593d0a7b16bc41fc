//! How much a tenant may store, as its policy says, and what is left of it.
//!
//! What is stored are the archives of profiles and the chunks of everything else, as a listing shows them; documents beside them
//! are not counted. A save counts once, before it stores its first byte, and goes on from there by what it stores itself: saves
//! that run at the same time do not know of one another. Snapshots are counted then too ([`snapshots`]); deleted ones are none.
//!
//! *Always true:* what would go beyond a quota is refused before it is sent; what is sent again to where it lies already needs no room;
//! and nobody is kept from going back by how many snapshots there are.

mod snapshots;

use crate::error::{Error, ErrorKind};
use crate::open::Engine;
use stasis_model::failure::Failure;
use stasis_model::format::manifest::SaveReason;
use stasis_model::id::TenantId;
use stasis_model::policy::tenant::{Quotas, TenantPolicy};
use stasis_store::documents::profiles::{ListedObject, profile_objects};
use stasis_store::documents::roots::Root;
use stasis_store::layout::ChunkRoot;
use std::sync::Arc;
use tokio::sync::Mutex;

/// What one save may still store.
#[derive(Clone)]
pub(crate) struct StorageRoom {
    engine: Engine,
    tenant: TenantId,
    quotas: Option<Quotas>,
    replaced: Option<ChunkRoot>,
    /// Whether the snapshot takes a place among those that the tenant may have.
    takes_place: bool,
    room: Arc<Mutex<Room>>,
}

#[derive(Clone, Copy)]
enum Room {
    /// Nothing was stored yet.
    NotAsked,
    /// There was room for the snapshot, and its bytes need none.
    NoQuota,
    /// How much may be stored, and how much is, once that was counted.
    Quota { most: u64, stored: Option<u64> },
}

impl StorageRoom {
    pub(crate) fn new(engine: Engine, tenant: TenantId) -> Self {
        Self {
            engine,
            tenant,
            quotas: None,
            replaced: None,
            takes_place: true,
            room: Arc::new(Mutex::new(Room::NotAsked)),
        }
    }

    /// Says why there is the snapshot. One that a restore needs, or that only prepares another one, is never one too many: whoever has as
    /// many as he may have could not go back.
    pub(crate) fn for_reason(mut self, reason: SaveReason) -> Self {
        self.takes_place = !matches!(reason, SaveReason::BeforeRestore | SaveReason::FirstPass);
        self
    }

    /// Says what the policy allows, if that was read already.
    pub(crate) fn knowing(mut self, quotas: Option<&Quotas>) -> Self {
        self.quotas = quotas.cloned();
        self
    }

    /// Says whose snapshots go once there is the new one: they take no room from it.
    pub(crate) fn replacing(mut self, subject: Option<&ChunkRoot>) -> Self {
        self.replaced = subject.cloned();
        self
    }

    /// Takes room for so many bytes that are about to be stored, and before the first of them for their snapshot.
    pub(crate) async fn take(&self, bytes: u64) -> Result<(), Error> {
        let mut room = self.room.lock().await;
        self.begin(&mut room, 1).await?;
        let Room::Quota { most, stored } = *room else {
            return Ok(());
        };
        let stored = match stored {
            Some(stored) => stored,
            None => self.engine.stored_bytes(&self.tenant).await?,
        };
        let then = stored.saturating_add(bytes);
        if bytes > 0 && then > most {
            return Err(no_room(&self.tenant, most, stored).into());
        }
        *room = Room::Quota {
            most,
            stored: Some(then),
        };
        Ok(())
    }

    /// Takes room for the snapshot, unless its first byte has done that.
    pub(crate) async fn take_snapshot(&self) -> Result<(), Error> {
        self.take_snapshots(1).await
    }

    /// The same for several at once.
    async fn take_snapshots(&self, more: u64) -> Result<(), Error> {
        let mut room = self.room.lock().await;
        self.begin(&mut room, more).await
    }

    async fn policy_now(&self) -> Result<TenantPolicy, Error> {
        self.engine.tenants().policy(&self.tenant).await
    }

    async fn begin(&self, room: &mut Room, more: u64) -> Result<(), Error> {
        if !matches!(room, Room::NotAsked) {
            return Ok(());
        }
        let quotas = match &self.quotas {
            Some(quotas) => quotas.clone(),
            None => self.policy_now().await?.quotas,
        };
        if self.takes_place {
            self.ensure_snapshots(quotas.max_snapshots, more).await?;
        }
        *room = match quotas.max_bytes {
            0 => Room::NoQuota,
            most => Room::Quota { most, stored: None },
        };
        Ok(())
    }
}

impl Engine {
    /// How many bytes of content a tenant has stored.
    pub(crate) async fn stored_bytes(&self, tenant: &TenantId) -> Result<u64, Error> {
        let pool = Root::new(self.bucket.clone(), ChunkRoot::pool(tenant));
        let (_, chunks) = pool.chunk_totals().await?;
        let objects = profile_objects(&*self.bucket, tenant, None).await?;
        let archives = objects.iter().filter(|one| !one.object.is_manifest);
        Ok(chunks + bytes_of(archives))
    }
}

fn bytes_of<'a>(objects: impl Iterator<Item = &'a ListedObject>) -> u64 {
    objects.map(|one| one.size).sum()
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

#[cfg(test)]
mod tests;
