//! A run that loads a profile, works, and publishes what came of it.

use super::careless::careless_publish;
use super::host::{Host, Setback};
use super::mutant::Mutant;
use super::oracle::Means;
use bytes::Bytes;
use futures_util::future::join;
use stasis_model::digest::{ArchiveDigest, ManifestDigest};
use stasis_model::format::pointer::Active;
use stasis_model::protocol::operation::{OperationFate, Unsettled};
use stasis_model::time::Clock;
use stasis_store::bucket::{Bucket, Swap};
use stasis_store::documents::leases::Lease;
use stasis_store::documents::lineages::LineageError;
use stasis_store::documents::pointers::PublishSnapshot;
use stasis_store::layout::{self, Key};
use std::time::Duration;

/// What a run starts from.
#[derive(Clone, Copy)]
struct Start {
    base: Option<ArchiveDigest>,
    /// Whether it starts with nothing because it could not load what there was.
    fresh: bool,
}

/// One run, from acquiring to giving back.
pub(crate) async fn session(host: &Host) {
    host.pause(1..=1_500).await;
    let Some(lease) = acquire(host).await else {
        return;
    };
    let mut start = load(host, &lease).await;
    // A careless run does not watch its own clock, and does not stop when it cannot renew.
    let (careful, mut sent_at) = (host.happens(500), lease.sent_at);
    for _ in 0..host.random.within(1..=3) {
        host.pause(0..=800).await;
        if host.happens(400) {
            match renew(host, &lease).await {
                Some(sent) => sent_at = sent,
                None if careful => return,
                None => {}
            }
        }
        if careful && host.clock.uptime().saturating_sub(sent_at) > lease.ttl {
            host.world.note(format_args!("{} fences itself", host.name));
            return;
        }
        let next = if host.happens(80) {
            // Whoever shows the lease may use it: two programs do, and only one of them can win.
            let one = Box::pin(save(host, &lease, start));
            let (one, other) = join(one, Box::pin(save(host, &lease, start))).await;
            one.or(other)
        } else {
            save(host, &lease, start).await
        };
        match next {
            Some(next) => start = next,
            None => break,
        }
    }
    if host.happens(800) {
        let (op_id, fence) = (host.random.preview_op_id(), lease.fence);
        let release = host.lineages.release(&lease.lineage, fence);
        let _ended = host.perform(op_id, Means::Release(fence), release).await;
    }
}

/// Tries to own the lineage.
pub(crate) async fn acquire(host: &Host) -> Option<Lease> {
    let (world, op_id) = (&host.world, host.random.preview_op_id());
    let acquire = host
        .lineages
        .acquire(&world.lineage, host.holder(), world.ttl);
    match host.perform(op_id, Means::Acquire, acquire).await {
        Ok(lease) => {
            world.oracle().owned(&lease);
            Some(lease)
        }
        Err(Setback::Denied) => None,
        Err(Setback::Unknown(record)) => {
            ask(host, &record).await;
            None
        }
    }
}

async fn renew(host: &Host, lease: &Lease) -> Option<Duration> {
    let (op_id, fence) = (host.random.preview_op_id(), lease.fence);
    let renew = host.lineages.renew(&lease.lineage, fence, lease.ttl);
    match host.perform(op_id, Means::Renew(fence), renew).await {
        Ok((_, sent_at)) => Some(sent_at),
        Err(Setback::Denied) => None,
        Err(Setback::Unknown(record)) => {
            ask(host, &record).await;
            None
        }
    }
}

/// Asks what became of an operation, if it feels like it.
async fn ask(host: &Host, record: &Unsettled) -> OperationFate {
    if host.happens(500) {
        return OperationFate::Unknown;
    }
    host.pause(0..=400).await;
    match host.lineages.settle(record).await {
        Ok(fate) => {
            host.world.oracle().settled(record, fate);
            fate
        }
        Err(_) => OperationFate::Unknown,
    }
}

/// Loads the base; a run that cannot goes on with nothing.
async fn load(host: &Host, lease: &Lease) -> Start {
    let fresh = Start {
        base: None,
        fresh: true,
    };
    let Some(base) = &lease.base else {
        return Start {
            fresh: false,
            ..fresh
        };
    };
    let key = layout::archive(&lease.lineage, base.archive);
    match host.bucket.get(&key, 1 << 20).await {
        Ok(Some(_)) if !host.happens(60) => Start {
            base: Some(base.archive),
            fresh: false,
        },
        _ => fresh,
    }
}

/// Stores a snapshot and publishes it; `None` means that the run is over.
async fn save(host: &Host, lease: &Lease, start: Start) -> Option<Start> {
    let again = if host.happens(40) {
        older(host).await
    } else {
        None
    };
    let to = store(host, again).await?;
    publish(host, lease, start, to).await
}

/// Loads, and publishes one snapshot; a run without faults always can.
pub(crate) async fn publish_once(host: &Host, lease: &Lease) -> bool {
    let start = Start {
        base: lease.base.as_ref().map(|base| base.archive),
        fresh: false,
    };
    match store(host, None).await {
        Some(to) => publish(host, lease, start, to).await.is_some(),
        None => false,
    }
}

/// Makes a stored snapshot the active one; `None` means that the run is over.
async fn publish(host: &Host, lease: &Lease, start: Start, to: Active) -> Option<Start> {
    if host.happens(200) {
        host.pause(0..=3_000).await;
    }
    let op_id = host.random.fresh_op_id();
    let overwrites = start.fresh && host.world.mutant == Some(Mutant::PublishesFresh);
    let loaded = lease.base.as_ref().map(|base| base.archive);
    let publish = PublishSnapshot {
        op_id,
        fence: lease.fence,
        base: if overwrites { loaded } else { start.base },
        to: to.clone(),
    };
    let means = Means::Publish {
        fence: lease.fence,
        loaded: start.base,
        fresh: start.fresh,
        to: to.archive,
    };
    let published = Start {
        base: Some(to.archive),
        fresh: false,
    };
    match host.perform(op_id, means, send(host, lease, publish)).await {
        Ok(()) => Some(published),
        Err(Setback::Denied) => None,
        Err(Setback::Unknown(record)) => {
            if host.world.mutant == Some(Mutant::CleansUp) {
                let key = layout::archive(&lease.lineage, to.archive);
                let _removed = host.bucket.delete(&key).await;
            }
            match ask(host, &record).await {
                OperationFate::Applied => Some(published),
                _ => host.happens(500).then_some(start),
            }
        }
    }
}

async fn send(host: &Host, lease: &Lease, publish: PublishSnapshot) -> Result<(), LineageError> {
    if let Some(mutant) = host.world.mutant.filter(|mutant| mutant.is_a_publish()) {
        return careless_publish(host, &publish, mutant).await;
    }
    let moved = host.lineages.publish(&lease.lineage, publish).await?;
    assert!(moved.lock_marked, "a publish has nothing to tell the lock");
    Ok(())
}

/// Makes a snapshot durable, of these bytes or of new ones: its archive, then its manifest.
async fn store(host: &Host, bytes: Option<Bytes>) -> Option<Active> {
    let lineage = &host.world.lineage;
    let new = || Bytes::from(format!("archive {}", host.random.fresh_op_id()));
    let archive = bytes.unwrap_or_else(new);
    let digest = ArchiveDigest::of(&archive);
    let manifest = Bytes::from(format!("manifest of {digest}"));
    let (archive_key, manifest_key) = (
        layout::archive(lineage, digest),
        layout::manifest(lineage, digest),
    );
    let active = Active {
        archive: digest,
        manifest: ManifestDigest::of(&manifest),
        archive_key: archive_key.to_string(),
        manifest_key: manifest_key.to_string(),
    };
    host.world.oracle().announce(&active);
    let durable =
        settle(host, &archive_key, archive).await && settle(host, &manifest_key, manifest).await;
    durable.then_some(active)
}

/// The bytes of a snapshot that was stored before.
async fn older(host: &Host) -> Option<Bytes> {
    let known = host.world.oracle().catalog().to_vec();
    let key = layout::archive(&host.world.lineage, host.random.pick(&known)?.archive);
    let found = host.bucket.get(&key, 1 << 20).await.ok()??;
    host.world
        .oracle()
        .observations
        .add("same bytes published again");
    Some(found.body)
}

/// Writes an object whose name says what is in it; whether it is there is settled by looking.
async fn settle(host: &Host, key: &Key, body: Bytes) -> bool {
    for _ in 0..4 {
        match host.bucket.create(key, body.clone()).await {
            Ok(Swap::Won(_) | Swap::Lost) => return true,
            Ok(Swap::Unknown) | Err(_) => {}
        }
        host.pause(5..=100).await;
        if let Ok(Some(_)) = host.bucket.head(key).await {
            return true;
        }
    }
    false
}
