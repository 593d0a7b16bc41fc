//! Moving a lineage's pointer: publish, rollback, force-unlock, delete, pin, check, forget.

use crate::documents::leases::Lease;
use crate::documents::lineages::{Applied, LineageError, Lineages};
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::lease::Fence;
use stasis_model::format::pointer::{Active, Pointer, PointerMark};
use stasis_model::id::{Generation, Label, Lineage, OpId};
use stasis_model::protocol::operation::OperationKind;
use stasis_model::protocol::settle::{Protocol, ProtocolOutcome};
use stasis_model::protocol::step::Op;
use std::time::Duration;

/// A pointer that was moved.
#[derive(Clone, Debug)]
pub struct Moved {
    /// By which operation.
    pub op_id: OpId,
    /// What it says now.
    pub pointer: Pointer,
    /// Whether the lock was told as well; `false` is a warning on forced acts.
    pub lock_marked: bool,
}

/// A snapshot to be published.
#[derive(Clone, Debug)]
pub struct PublishSnapshot {
    /// Chosen by the caller, because the snapshot's manifest carries it too.
    pub op_id: OpId,
    /// The lease that allows it.
    pub fence: Fence,
    /// What the snapshot derives from: what was loaded, `None` after a fresh start.
    pub base: Option<ArchiveDigest>,
    /// The snapshot.
    pub to: Active,
}

impl Lineages {
    /// Publishes a snapshot that is already durable, under a lease that is ours: one request, unless somebody touched the
    /// pointer since its owner did.
    pub async fn publish_leased(
        &self,
        lease: &Lease,
        op_id: OpId,
        base: Option<ArchiveDigest>,
        to: Active,
    ) -> Result<Moved, LineageError> {
        let fence = lease.fence;
        let protocol = Protocol::new(op_id, Op::Publish { fence, base, to });
        let protocol = protocol.from_pointer(lease.take_pointer());
        let applied = self.carry_out(&lease.lineage, OperationKind::Publish, protocol);
        let applied = applied.await?;
        lease.note(&applied.seen);
        Ok(moved(applied))
    }

    /// Publishes a snapshot that is already durable.
    pub async fn publish(
        &self,
        lineage: &Lineage,
        publish: PublishSnapshot,
    ) -> Result<Moved, LineageError> {
        let PublishSnapshot {
            op_id,
            fence,
            base,
            to,
        } = publish;
        let protocol = Protocol::new(op_id, Op::Publish { fence, base, to });
        self.carry_out(lineage, OperationKind::Publish, protocol)
            .await
            .map(moved)
    }

    /// Makes `to`, which was proved to exist, the active snapshot and fences every writer.
    pub async fn rollback(
        &self,
        lineage: &Lineage,
        to: Active,
        seen: Option<Generation>,
        reason: Label,
    ) -> Result<Moved, LineageError> {
        let protocol = Protocol::forced(
            self.op_id(),
            Op::Rollback { to, seen },
            reason,
            Duration::ZERO,
        );
        self.carry_out(lineage, OperationKind::Rollback, protocol)
            .await
            .map(moved)
    }

    /// Throws out the holder the operator saw, and fences every writer.
    pub async fn force_unlock(
        &self,
        lineage: &Lineage,
        seen: Fence,
        reason: Label,
    ) -> Result<Moved, LineageError> {
        let protocol = Protocol::forced(
            self.op_id(),
            Op::ForceUnlock { seen },
            reason,
            Duration::ZERO,
        );
        self.carry_out(lineage, OperationKind::ForceUnlock, protocol)
            .await
            .map(moved)
    }

    /// Marks `target` for removal; `known` are all snapshots of the lineage.
    pub async fn delete(
        &self,
        lineage: &Lineage,
        target: ArchiveDigest,
        known: Vec<ArchiveDigest>,
    ) -> Result<Moved, LineageError> {
        let protocol = Protocol::new(self.op_id(), Op::Delete { target, known });
        self.carry_out(lineage, OperationKind::Delete, protocol)
            .await
            .map(moved)
    }

    /// Protects `target` from removal, or stops doing so.
    pub async fn pin(
        &self,
        lineage: &Lineage,
        target: ArchiveDigest,
        pinned: bool,
    ) -> Result<Moved, LineageError> {
        let protocol = Protocol::new(self.op_id(), Op::Pin { target, pinned });
        self.carry_out(lineage, OperationKind::Pin, protocol)
            .await
            .map(moved)
    }

    /// Records whether `target` came back whole when it was last checked.
    pub async fn record_check(
        &self,
        lineage: &Lineage,
        target: ArchiveDigest,
        sound: bool,
    ) -> Result<Moved, LineageError> {
        let protocol = Protocol::new(self.op_id(), Op::Check { target, sound });
        self.carry_out(lineage, OperationKind::Check, protocol)
            .await
            .map(moved)
    }

    /// Drops the marks of removed snapshots of which no listing shows anything, as they were read; refused while
    /// somebody owns the lineage.
    pub async fn forget(
        &self,
        lineage: &Lineage,
        gone: Vec<PointerMark>,
    ) -> Result<Moved, LineageError> {
        let protocol = Protocol::new(self.op_id(), Op::Forget { gone });
        self.carry_out(lineage, OperationKind::Forget, protocol)
            .await
            .map(moved)
    }
}

fn moved(applied: Applied) -> Moved {
    match applied.outcome {
        ProtocolOutcome::Pointer {
            pointer,
            lock_marked,
        } => Moved {
            op_id: applied.op_id,
            pointer: *pointer,
            lock_marked,
        },
        _ => unreachable!("an operation on the pointer ends with the pointer"),
    }
}
