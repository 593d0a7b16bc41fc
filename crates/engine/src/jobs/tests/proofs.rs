//! The proof that goes round, and the sweep, on real snapshots.

use super::containers::ENGINE;
use super::{Server, World, settings};
use crate::jobs::{JobSettings, RunningJobs};
use crate::rigged::pool::{self, noise};
use crate::subjects::SubjectKind;
use futures_util::TryStreamExt as _;
use stasis_model::format::event::EventKind;
use stasis_model::format::job::{JobLane, JobName, JobOutcome, JobRecord};
use stasis_model::format::proof::ProofDocument;
use stasis_store::bucket::{Bucket, objects};
use stasis_store::documents::{jobs, proofs};
use stasis_store::layout::{ChunkRoot, Key, Prefix, ProofSubject};
use std::time::Duration;

fn root(name: &str) -> ChunkRoot {
    ChunkRoot::project(&"acme".parse().unwrap(), &name.parse().unwrap())
}

/// A host of the store that the savers have.
fn server(savers: &pool::World) -> (World, Server) {
    let world = World {
        objects: savers.bucket.clone(),
        ..World::new()
    };
    let server = world.server("one");
    (world, server)
}

/// Runs one job once.
pub(super) async fn run(server: &Server, name: JobName) -> JobRecord {
    run_with(server, name, settings(super::LIMIT)).await
}

/// The same with other settings.
pub(super) async fn run_with(server: &Server, name: JobName, how: JobSettings) -> JobRecord {
    // It is due because nobody knows of a run, and not again.
    let bucket = server.engine.bucket();
    let everything = Prefix::everything();
    let everything = objects(bucket, &everything);
    let everything: Vec<Key> = everything
        .map_ok(|row| row.key)
        .try_collect()
        .await
        .unwrap();
    for record in everything
        .iter()
        .filter(|key| key.as_str().ends_with("/last.json"))
    {
        bucket.delete(record).await.unwrap();
    }
    let lane = match name {
        JobName::ContainerCleanup | JobName::ContainerSnapshot => JobLane::at(name, ENGINE),
        name if name.is_of_a_place() => JobLane::at(name, server.host.sessions.name.as_str()),
        name => JobLane::of_store(name),
    };
    assert!(jobs::last(bucket, lane).await.unwrap().is_none());
    let only = JobSettings {
        plans: [(name, how.plans[&name])].into(),
        ..how
    };
    let running: RunningJobs = server.engine.jobs().start(server.host.clone(), &only);
    for _ in 0..6_000 {
        let last = jobs::last(bucket, lane).await.unwrap();
        if let Some(last) = last {
            running.end(Duration::from_secs(30)).await;
            return last;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{name} was not run");
}

async fn known(server: &Server, name: &str) -> Option<ProofDocument> {
    let subject = ProofSubject::Chunked(root(name));
    proofs::of(server.engine.bucket(), &subject).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_subject_has_its_turn_and_a_snapshot_that_does_not_come_back_is_an_event() {
    let savers = pool::World::new();
    for (seed, name) in ["one", "two", "three"].iter().enumerate() {
        let saver = savers.subject("host", name).await;
        saver
            .write("file", &noise(seed as u64 + 1, 50_000))
            .save()
            .await;
    }
    let (_world, server) = server(&savers);

    let first = run(&server, JobName::Proof).await;
    assert_eq!(first.outcome, JobOutcome::Done, "{first:?}");
    assert_eq!(first.counts["restored"], 2);
    let second = run(&server, JobName::Proof).await;
    assert_eq!(second.counts["restored"], 2);
    for name in ["one", "two", "three"] {
        let known = known(&server, name).await.unwrap();
        let proof = known.snapshots.values().next().unwrap();
        assert!(proof.restored_at_ms.is_some() && proof.problem.is_none());
    }

    // A chunk is lost that no index and no list says to be lost.
    let prefix = ChunkRoot::pool(&"acme".parse().unwrap()).pool_prefix();
    let all: Vec<Key> = objects(&*savers.bucket, &prefix)
        .map_ok(|row| row.key)
        .try_collect()
        .await
        .unwrap();
    for key in all.iter().filter(|key| key.as_str().contains("/chunks/")) {
        savers.bucket.delete(key).await.unwrap();
    }
    let third = run(&server, JobName::Proof).await;
    assert_eq!(third.outcome, JobOutcome::Incomplete, "{third:?}");
    assert_eq!(third.counts["failed"], 2);
    let tenant = "acme".parse().unwrap();
    let log = server
        .engine
        .events()
        .latest(Some(&tenant), 10)
        .await
        .unwrap();
    let failed = log
        .events
        .iter()
        .filter(|(_, event)| event.kind == EventKind::ProofFailed);
    assert_eq!(failed.count(), 2);
    let mut problems = 0;
    for name in ["one", "two", "three"] {
        let known = known(&server, name).await.unwrap();
        let proof = known.snapshots.values().next().unwrap();
        // When it last came back is still known.
        assert!(proof.restored_at_ms.is_some());
        problems += usize::from(proof.problem.is_some());
    }
    assert_eq!(problems, 2);
    let counted = server.engine.store_stats(None).await.unwrap();
    let counted = counted.kinds[&SubjectKind::Dir].proofs;
    assert!(counted.restored_at_ms.is_some());
    assert_eq!((counted.tried, counted.broken), (3, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_snapshot_needs_is_swept_from_every_pool_and_the_rest_stays() {
    let savers = pool::World::new();
    let saver = savers.subject("host", "one").await;
    saver.write("file", &noise(1, 300_000)).save().await;
    let index = saver.engine.dirs().index_to_look().await.unwrap();
    let old = index.snapshots[0].id.clone();
    saver.write("file", &noise(2, 300_000)).save().await;
    saver.engine.dirs().forget(&[old]).await.unwrap();
    let (_world, server) = server(&savers);

    let swept = run(&server, JobName::Gc).await;

    assert_eq!(swept.outcome, JobOutcome::Done, "{swept:?}");
    assert_eq!(swept.counts["pools"], 1);
    assert!(swept.counts["bytes_removed"] > 100_000, "{swept:?}");
    saver.restores().await;
    saver.is_sound().await;
}
