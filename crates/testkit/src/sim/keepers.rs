//! The reaper, which frees the locks of the dead, and the operator, who knows better.

use super::host::{Host, Setback};
use super::mutant::Mutant;
use super::oracle::Means;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::lease::LockState;
use stasis_model::format::pointer::Active;
use stasis_model::protocol::operation::Unsettled;
use stasis_store::bucket::Bucket;
use stasis_store::documents::leases::locked;
use stasis_store::documents::pointers::Moved;
use stasis_store::layout::{self, Prefix};

/// One round of the reaper.
pub(crate) async fn reap(host: &Host) {
    host.pause(100..=3_000).await;
    let Ok(lineages) = locked(&*host.bucket).await else {
        return;
    };
    for lineage in lineages {
        if host.world.mutant == Some(Mutant::ReaperDeletes) {
            read_then_delete(host).await;
            continue;
        }
        let op_id = host.random.preview_op_id();
        let reap = host.lineages.reap(&lineage, host.world.grace);
        if let Err(Setback::Unknown(record)) = host.perform(op_id, Means::Reap, reap).await {
            ask(host, &record).await;
        }
    }
}

/// The mutant of the reaper.
async fn read_then_delete(host: &Host) {
    let lineage = &host.world.lineage;
    if let Ok(Some(found)) = host.lineages.lock(lineage).await {
        let (lock, now) = (found.value, host.lineages.now());
        if lock.state == LockState::Held && lock.expires_at < now.minus(host.world.grace) {
            let _removed = host.bucket.delete(&layout::lock(lineage)).await;
        }
    }
}

async fn ask(host: &Host, record: &Unsettled) {
    if let Ok(fate) = host.lineages.settle(record).await {
        host.world.oracle().settled(record, fate);
    }
}

/// One act of the operator.
pub(crate) async fn meddle(host: &Host) {
    host.pause(300..=8_000).await;
    let doubt = match host.random.within(0..=9) {
        0..=2 => roll_back(host).await,
        3..=4 => force_unlock(host).await,
        5..=7 => delete(host).await,
        _ => pin(host).await,
    };
    if let Some(Setback::Unknown(record)) = doubt {
        ask(host, &record).await;
    }
}

/// Every snapshot of the lineage, as far as a listing shows.
async fn listed(host: &Host) -> Vec<Active> {
    let prefix = Prefix::lineage(&host.world.lineage);
    let rows = host.bucket.list(&prefix, None, 10_000).await;
    let rows = rows.unwrap_or_default();
    let known = host.world.oracle().catalog().to_vec();
    let shown = |active: &Active| {
        rows.iter()
            .any(|row| row.key.as_str() == active.manifest_key)
    };
    known.into_iter().filter(shown).collect()
}

async fn roll_back(host: &Host) -> Option<Setback> {
    let (lineage, known) = (&host.world.lineage, listed(host).await);
    let to = host.random.pick(&known)?.clone();
    let seen = host.lineages.pointer(lineage).await.ok()??.value.generation;
    host.pause(0..=1_000).await;
    for key in [
        layout::archive(lineage, to.archive),
        layout::manifest(lineage, to.archive),
    ] {
        host.bucket.head(&key).await.ok()??;
    }
    let op_id = host.random.preview_op_id();
    let seen = host.happens(400).then_some(seen);
    let means = Means::Rollback(to.archive);
    let act = host.lineages.rollback(lineage, to, seen, host.label());
    observe_forced(host, host.perform(op_id, means, act).await)
}

async fn force_unlock(host: &Host) -> Option<Setback> {
    let lineage = &host.world.lineage;
    let seen = host.lineages.lock(lineage).await.ok()??.value.fence();
    host.pause(0..=1_500).await;
    let op_id = host.random.preview_op_id();
    let act = host.lineages.force_unlock(lineage, seen, host.label());
    observe_forced(
        host,
        host.perform(op_id, Means::ForceUnlock(seen), act).await,
    )
}

/// A forced act may be done without the lock's having been told.
fn observe_forced(host: &Host, ending: Result<Moved, Setback>) -> Option<Setback> {
    match ending {
        Ok(moved) => {
            if !moved.lock_marked {
                let mut oracle = host.world.oracle();
                oracle
                    .observations
                    .add("forced act whose lock was not told");
            }
            None
        }
        Err(setback) => Some(setback),
    }
}

/// Marks a snapshot for removal; once that is certain, its bytes go.
async fn delete(host: &Host) -> Option<Setback> {
    let (lineage, known) = (&host.world.lineage, listed(host).await);
    let target = host.random.pick(&known)?.archive;
    let all: Vec<ArchiveDigest> = known.iter().map(|active| active.archive).collect();
    let op_id = host.random.preview_op_id();
    let act = host.lineages.delete(lineage, target, all);
    if let Err(setback) = host.perform(op_id, Means::Delete(target), act).await {
        return Some(setback);
    }
    host.pause(0..=2_000).await;
    for key in [
        layout::archive(lineage, target),
        layout::manifest(lineage, target),
    ] {
        let _removed = host.bucket.delete(&key).await;
    }
    None
}

async fn pin(host: &Host) -> Option<Setback> {
    let (lineage, known) = (&host.world.lineage, listed(host).await);
    let target = host.random.pick(&known)?.archive;
    let pinned = host.happens(700);
    let op_id = host.random.preview_op_id();
    let act = host.lineages.pin(lineage, target, pinned);
    let ending = host.perform(op_id, Means::Pin(target, pinned), act).await;
    ending.err()
}
