//! Owning a lineage: acquire, renew, release, reap.

use crate::bucket::{Bucket, BucketError};
use crate::documents::lineages::{Applied, LineageError, Lineages};
use crate::layout::{self, Prefix};
use stasis_model::format::lease::{Fence, Holder, Lock};
use stasis_model::format::pointer::Active;
use stasis_model::id::{Lineage, OpId};
use stasis_model::protocol::operation::OperationKind;
use stasis_model::protocol::settle::{Protocol, ProtocolOutcome};
use stasis_model::protocol::step::Op;
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
        let (lineage, sent_at) = (lineage.clone(), applied.sent_at);
        Ok(Lease {
            lineage,
            fence,
            base,
            took_over,
            ttl,
            sent_at,
        })
    }

    /// Prolongs a lease; the lock it leaves says until when.
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

    /// Gives a lease back.
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
///
/// Asked for at once: an S3 store reads its whole listing for every page.
pub async fn locked(bucket: &dyn Bucket) -> Result<Vec<Lineage>, BucketError> {
    let rows = bucket.list(&Prefix::lineages(), None, usize::MAX).await?;
    let owners = rows.iter().filter_map(|row| layout::lock_owner(&row.key));
    Ok(owners.collect())
}
