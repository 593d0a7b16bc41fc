//! Publishing as a careless implementation would do it.

use super::host::Host;
use super::mutant::Mutant;
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

/// A publish by hand, with the bug.
pub(crate) async fn careless_publish(
    host: &Host,
    publish: &PublishSnapshot,
    mutant: Mutant,
) -> Result<(), LineageError> {
    let mut sent = None;
    for attempt in 0..3 {
        let Ok(Some(found)) = host.lineages.pointer(&host.world.lineage).await else {
            return Err(unknown_outcome(host, publish, sent));
        };
        if found.value.remembers(publish.op_id) {
            return Ok(());
        }
        if attempt > 0 && mutant == Mutant::HastyVerdict {
            return Err(refused(host, Refusal::Contended));
        }
        let blind = attempt > 0 && mutant == Mutant::RetriesBlindly;
        if let Some(refusal) = objection(&found.value, publish, mutant).filter(|_| !blind) {
            return Err(if sent.is_some() {
                unknown_outcome(host, publish, sent)
            } else {
                refused(host, refusal)
            });
        }
        sent = Some(found.value.generation.next());
        match swap(host, publish, &found).await {
            Some(Swap::Won(_)) => return Ok(()),
            _ if mutant == Mutant::TrustsLost => return Err(refused(host, Refusal::Contended)),
            _ => {}
        }
    }
    Err(unknown_outcome(host, publish, sent))
}

fn objection(pointer: &Pointer, publish: &PublishSnapshot, mutant: Mutant) -> Option<Refusal> {
    let (base, active) = (publish.base, pointer.active_archive());
    if pointer.fence != publish.fence && mutant != Mutant::SkipsFence {
        return Some(Refusal::LockLost(Lost::Fenced(pointer.fence)));
    }
    if active != base {
        return Some(Refusal::Diverged { base, active });
    }
    let dead = pointer.is_tombstoned(publish.to.archive);
    dead.then_some(Refusal::Tombstoned(publish.to.archive))
}

async fn swap(host: &Host, publish: &PublishSnapshot, found: &Versioned<Pointer>) -> Option<Swap> {
    let (now, to) = (host.lineages.now(), &publish.to);
    let mut next = found
        .value
        .successor(publish.op_id, PointerAct::Publish, Some(to.archive), now);
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

fn unknown_outcome(
    host: &Host,
    publish: &PublishSnapshot,
    sent: Option<Generation>,
) -> LineageError {
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
        publish.op_id,
        OperationKind::Publish,
        lineage,
        doubt,
        now,
    )))
}
