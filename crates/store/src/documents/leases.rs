//! Owning a lineage: acquire, renew, release, reap.

use crate::bucket::{Bucket, BucketError, objects};
use crate::documents::lineages::{Applied, LastSeen, LineageError, Lineages};
use crate::layout::{self, Prefix};
use futures_util::TryStreamExt;
use stasis_model::format::document::Versioned;
use stasis_model::format::lease::{Fence, Holder, Lock};
use stasis_model::format::pointer::{Active, Pointer};
use stasis_model::id::{Lineage, OpId, TenantId};
use stasis_model::protocol::operation::OperationKind;
use stasis_model::protocol::settle::{Protocol, ProtocolOutcome};
use stasis_model::protocol::step::Op;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A lease that is ours.
#[derive(Clone, Debug)]
pub struct Lease {
    /// What it is.
    pub lineage: Lineage,
    /// Its identity; whoever shows it may renew and release.
    pub fence: Fence,
    /// The snapshot to start from.
    pub base: Option<Active>,
    /// Whom it was taken from, if its former holder had not given it back.
    pub took_over: Option<Box<Lock>>,
    /// How long it lasts without a renewal.
    pub ttl: Duration,
    /// Uptime from which `ttl` counts.
    pub sent_at: Duration,
    /// The lock and the pointer as the owner last saw them, shared by all copies of the lease.
    pub(crate) seen: Arc<Mutex<LastSeen>>,
}

impl Lease {
    fn seen(&self) -> MutexGuard<'_, LastSeen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pointer as it was last read or written under this lease, if that is known. It may have moved since.
    pub fn last_pointer(&self) -> Option<Pointer> {
        let seen = self.seen();
        seen.pointer.as_ref().map(|pointer| pointer.value.clone())
    }

    /// What to begin the next operation on the lock with; forgotten, because that makes another one of it.
    fn take_lock(&self) -> Option<Versioned<Lock>> {
        self.seen().lock.take()
    }

    /// What to begin the next operation on the pointer with.
    pub(crate) fn take_pointer(&self) -> Option<Versioned<Pointer>> {
        self.seen().pointer.take()
    }

    /// Keeps what an operation under this lease left behind.
    pub(crate) fn note(&self, seen: &LastSeen) {
        self.seen().update(seen.clone());
    }
}

impl Lineages {
    /// Makes `holder` the owner.
    pub async fn acquire(
        &self,
        lineage: &Lineage,
        holder: Holder,
        ttl: Duration,
    ) -> Result<Lease, LineageError> {
        let protocol = Protocol::acquire(self.op_id(), holder, ttl);
        let applied = self
            .carry_out(lineage, OperationKind::Acquire, protocol)
            .await?;
        let ProtocolOutcome::Acquired {
            fence,
            base,
            took_over,
        } = applied.outcome
        else {
            unreachable!("acquiring ends acquired")
        };
        Ok(Lease {
            lineage: lineage.clone(),
            fence,
            base,
            took_over,
            ttl,
            sent_at: applied.sent_at,
            seen: Arc::new(Mutex::new(applied.seen)),
        })
    }

    /// Renews a lease that is known only by its fence, and takes it up where its owner left it.
    pub async fn adopt(
        &self,
        lineage: &Lineage,
        fence: Fence,
        ttl: Duration,
    ) -> Result<Lease, LineageError> {
        let protocol = Protocol::new(self.op_id(), Op::Renew { fence, ttl });
        let applied = self
            .carry_out(lineage, OperationKind::Renew, protocol)
            .await?;
        let pointer = applied.seen.pointer.as_ref();
        Ok(Lease {
            lineage: lineage.clone(),
            fence,
            base: pointer.and_then(|pointer| pointer.value.active.clone()),
            took_over: None,
            ttl,
            sent_at: applied.sent_at,
            seen: Arc::new(Mutex::new(applied.seen)),
        })
    }

    /// Prolongs a lease that is known only by its fence; the lock it leaves says until when.
    pub async fn renew(
        &self,
        lineage: &Lineage,
        fence: Fence,
        ttl: Duration,
    ) -> Result<(Lock, Duration), LineageError> {
        let protocol = Protocol::new(self.op_id(), Op::Renew { fence, ttl });
        let applied = self
            .carry_out(lineage, OperationKind::Renew, protocol)
            .await?;
        Ok((lock_after(&applied), applied.sent_at))
    }

    /// Prolongs a lease that is ours; returns its lock, and the uptime from which it counts anew.
    pub async fn renew_lease(&self, lease: &Lease) -> Result<(Lock, Duration), LineageError> {
        let (fence, ttl) = (lease.fence, lease.ttl);
        let protocol = Protocol::new(self.op_id(), Op::Renew { fence, ttl });
        let applied = self.carry_out(&lease.lineage, OperationKind::Renew, protocol);
        let applied = applied.await?;
        lease.note(&applied.seen);
        Ok((lock_after(&applied), applied.sent_at))
    }

    /// Gives a lease back that is ours: one request, unless somebody touched the lock since its owner did.
    pub async fn release_lease(&self, lease: &Lease) -> Result<Lock, LineageError> {
        let fence = lease.fence;
        let protocol = Protocol::new(self.op_id(), Op::Release { fence });
        let protocol = protocol.from_lock(lease.take_lock());
        let applied = self.carry_out(&lease.lineage, OperationKind::Release, protocol);
        Ok(lock_after(&applied.await?))
    }

    /// Gives a lease back that is known only by its fence.
    pub async fn release(&self, lineage: &Lineage, fence: Fence) -> Result<Lock, LineageError> {
        let protocol = Protocol::new(self.op_id(), Op::Release { fence });
        let applied = self
            .carry_out(lineage, OperationKind::Release, protocol)
            .await?;
        Ok(lock_after(&applied))
    }

    /// Frees the lock of a holder that has been expired for `grace`; says which operation did it.
    pub async fn reap(
        &self,
        lineage: &Lineage,
        grace: Duration,
    ) -> Result<(OpId, Lock), LineageError> {
        let protocol = Protocol::new(self.op_id(), Op::Reap { grace });
        let applied = self
            .carry_out(lineage, OperationKind::Reap, protocol)
            .await?;
        Ok((applied.op_id, lock_after(&applied)))
    }
}

fn lock_after(applied: &Applied) -> Lock {
    match &applied.outcome {
        ProtocolOutcome::Lock(lock) => (**lock).clone(),
        _ => unreachable!("an operation on the lock ends with the lock"),
    }
}

/// Every lineage that has a lock, in order.
pub async fn locked(bucket: &dyn Bucket) -> Result<Vec<Lineage>, BucketError> {
    locked_below(bucket, Prefix::lineages()).await
}

/// Those of one tenant.
pub async fn locked_of(
    bucket: &dyn Bucket,
    tenant: &TenantId,
) -> Result<Vec<Lineage>, BucketError> {
    locked_below(bucket, Prefix::lineages_of(tenant)).await
}

async fn locked_below(bucket: &dyn Bucket, prefix: Prefix) -> Result<Vec<Lineage>, BucketError> {
    let listed = objects(bucket, &prefix);
    let owners = listed.try_filter_map(async |row| Ok(layout::lock_owner(&row.key)));
    let owners: BTreeSet<Lineage> = owners.try_collect().await?;
    Ok(owners.into_iter().collect())
}
