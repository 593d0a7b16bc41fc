//! Mutants: what a careless implementation would do. A simulation that does not find them is worth nothing.

use super::host::Host;
use super::oracle::Promise;
use bytes::Bytes;
use stasis_model::format::document::{self, Versioned};
use stasis_model::format::pointer::{Pointer, PointerAct};
use stasis_model::id::Generation;
use stasis_model::protocol::operation::{OperationKind, Unsettled};
use stasis_model::protocol::settle::UnknownWrite;
use stasis_model::protocol::step::{Doc, Lost, Refusal};
use stasis_store::bucket::{Bucket, Swap};
use stasis_store::documents::lineages::LineageError;
use stasis_store::documents::pointers::PublishSnapshot;
use stasis_store::layout;

/// A mutant of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mutant {
    /// The store accepts conditions and does not check them.
    IgnoresConditions,
    /// A refused or unanswered flip is reported as failed, without reading.
    TrustsLost,
    /// After a refused or unanswered flip the pointer is read once; what is not there yet is reported as failed.
    HastyVerdict,
    /// A refused flip is repeated on whatever is there now.
    RetriesBlindly,
    /// A flip checks its base, but not its fence.
    SkipsFence,
    /// A writer whose flip is unknown removes what it had stored.
    CleansUp,
    /// A run that fell back to a fresh profile publishes over the snapshot it could not load.
    FlipsFresh,
    /// The reaper reads the lock, then deletes it.
    ReaperDeletes,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::IgnoresConditions,
        Self::TrustsLost,
        Self::HastyVerdict,
        Self::RetriesBlindly,
        Self::SkipsFence,
        Self::CleansUp,
        Self::FlipsFresh,
        Self::ReaperDeletes,
    ];

    /// The promises that this bug may break.
    pub fn breaks(self) -> &'static [Promise] {
        match self {
            Self::IgnoresConditions => &[Promise::Growing, Promise::Linear, Promise::Fenced],
            Self::TrustsLost | Self::HastyVerdict => &[Promise::Truthful],
            Self::RetriesBlindly => &[Promise::Linear, Promise::Fenced],
            Self::SkipsFence => &[Promise::Fenced],
            Self::CleansUp => &[Promise::Closed],
            Self::FlipsFresh => &[Promise::Linear],
            Self::ReaperDeletes => &[Promise::Growing],
        }
    }

    /// Whether flips are done by hand.
    pub(crate) fn is_a_flip(self) -> bool {
        matches!(
            self,
            Self::TrustsLost | Self::HastyVerdict | Self::RetriesBlindly | Self::SkipsFence
        )
    }
}

/// A flip by hand, with the bug.
pub(crate) async fn careless_flip(
    host: &Host,
    flip: &PublishSnapshot,
    mutant: Mutant,
) -> Result<(), LineageError> {
    let mut sent = None;
    for attempt in 0..3 {
        let Ok(Some(found)) = host.lineages.pointer(&host.world.lineage).await else {
            return Err(unknown_outcome(host, flip, sent));
        };
        if found.value.remembers(flip.op_id) {
            return Ok(());
        }
        if attempt > 0 && mutant == Mutant::HastyVerdict {
            return Err(refused(host, Refusal::Contended));
        }
        let blind = attempt > 0 && mutant == Mutant::RetriesBlindly;
        if let Some(refusal) = objection(&found.value, flip, mutant).filter(|_| !blind) {
            return Err(if sent.is_some() {
                unknown_outcome(host, flip, sent)
            } else {
                refused(host, refusal)
            });
        }
        sent = Some(found.value.generation.next());
        match swap(host, flip, &found).await {
            Some(Swap::Won(_)) => return Ok(()),
            _ if mutant == Mutant::TrustsLost => return Err(refused(host, Refusal::Contended)),
            _ => {}
        }
    }
    Err(unknown_outcome(host, flip, sent))
}

fn objection(pointer: &Pointer, flip: &PublishSnapshot, mutant: Mutant) -> Option<Refusal> {
    let (base, active) = (flip.base, pointer.active_archive());
    if pointer.fence != flip.fence && mutant != Mutant::SkipsFence {
        return Some(Refusal::LockLost(Lost::Fenced(pointer.fence)));
    }
    if active != base {
        return Some(Refusal::Diverged { base, active });
    }
    let dead = pointer.is_tombstoned(flip.to.archive);
    dead.then_some(Refusal::Tombstoned(flip.to.archive))
}

async fn swap(host: &Host, flip: &PublishSnapshot, found: &Versioned<Pointer>) -> Option<Swap> {
    let (now, to) = (host.lineages.now(), &flip.to);
    let mut next = found
        .value
        .successor(flip.op_id, PointerAct::Publish, Some(to.archive), now);
    next.point_at(to.clone(), now);
    let key = layout::pointer(&host.world.lineage);
    let body = Bytes::from(document::render(&next));
    host.bucket.swap(&key, &found.version, body).await.ok()
}

fn refused(host: &Host, refusal: Refusal) -> LineageError {
    LineageError::Refused {
        lineage: host.world.lineage.clone(),
        kind: OperationKind::Publish,
        refusal,
    }
}

fn unknown_outcome(host: &Host, flip: &PublishSnapshot, sent: Option<Generation>) -> LineageError {
    let Some(generation) = sent else {
        return refused(host, Refusal::NoPointer);
    };
    let doubt = UnknownWrite {
        doc: Doc::Pointer,
        generation,
        since: generation,
    };
    let lineage = host.world.lineage.clone();
    let now = host.lineages.now();
    LineageError::Unknown(Box::new(Unsettled::new(
        flip.op_id,
        OperationKind::Publish,
        lineage,
        doubt,
        now,
    )))
}
