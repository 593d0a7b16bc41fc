//! The proof that goes round, and the sweep, on real snapshots.

use super::containers::ENGINE;
use super::{Server, World, settings};
use crate::jobs::{JobSettings, RunningJobs};
use crate::rigged::pool::{self, noise};
use crate::save::RepoSave;
use crate::subjects::SubjectKind;
use futures_util::TryStreamExt as _;
use stasis_model::format::event::EventKind;
use stasis_model::format::job::{JobLane, JobName, JobOutcome, JobRecord};
use stasis_model::format::proof::ProofDocument;
use stasis_model::id::SnapshotId;
use stasis_model::metrics::MetricsRegistry;
use stasis_store::bucket::{Bucket, objects};
use stasis_store::documents::{jobs, proofs};
use stasis_store::layout::{ChunkRoot, Key, Prefix, ProofSubject};
use std::collections::BTreeSet;
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

/// Saves a directory as what lies at a root of the tenant's pool.
async fn saved_at(saver: &pool::Saver, root: ChunkRoot, name: &str, file: &[u8]) -> SnapshotId {
    saver.write("file", file);
    let engine = saver.engine.rooted(root);
    let save = RepoSave::new(&saver.tree, name.parse().unwrap());
    engine.dirs().save(save).await.unwrap().snapshot_id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_is_proven_by_its_volumes_and_by_the_layers_that_the_store_has() {
    let savers = pool::World::new();
    let saver = savers.subject("host", "one").await;
    let tenant = "acme".parse().unwrap();
    let web = "web.0123456789ab";
    let container = ChunkRoot::container(&tenant, &web.parse().unwrap());
    let id = saved_at(&saver, container.clone(), web, &noise(1, 60_000)).await;
    let image = ChunkRoot::image(&tenant, &id);
    let before = chunks(&savers).await;
    saved_at(&saver, image, id.as_str(), &noise(2, 60_000)).await;
    let (_world, server) = server(&savers);
    let counted = async || {
        let counted = server.engine.store_stats(None).await.unwrap();
        let counted = counted.kinds[&SubjectKind::Container];
        (counted.snapshots, counted.proofs)
    };
    let (snapshots, none) = counted().await;
    assert_eq!((snapshots, none.tried, none.restored), (1, 0, 0));

    let first = run(&server, JobName::Proof).await;

    assert_eq!(first.outcome, JobOutcome::Done, "{first:?}");
    assert_eq!(first.counts["restored"], 1, "an image is no subject");
    let (_, proven) = counted().await;
    assert_eq!((proven.tried, proven.restored, proven.broken), (1, 1, 0));
    assert!(proven.restored_at_ms.is_some());

    // Of the image alone something is lost.
    for key in chunks(&savers).await.difference(&before) {
        savers.bucket.delete(key).await.unwrap();
    }
    let second = run(&server, JobName::Proof).await;
    assert_eq!(second.counts["failed"], 1, "{second:?}");
    let (_, broken) = counted().await;
    assert_eq!((broken.restored, broken.broken), (1, 1));
    let log = server.engine.events().latest(Some(&tenant), 10).await;
    let (_, event) = log.unwrap().events.pop().unwrap();
    assert_eq!(event.kind, EventKind::ProofFailed);
    let subject = format!("container:{web}");
    assert_eq!(event.happened_to(), Some(subject));
}

/// Where the chunks of the tenant lie.
async fn chunks(savers: &pool::World) -> BTreeSet<Key> {
    let prefix = ChunkRoot::pool(&"acme".parse().unwrap()).pool_prefix();
    let all = objects(&*savers.bucket, &prefix).map_ok(|row| row.key);
    let all: BTreeSet<Key> = all.try_collect().await.unwrap();
    let is_chunk = |key: &Key| key.as_str().contains("/chunks/");
    all.into_iter().filter(is_chunk).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_that_no_proof_restored_are_counted_until_one_does() {
    let savers = pool::World::new();
    for (seed, name) in ["one", "two", "three"].iter().enumerate() {
        let saver = savers.subject("host", name).await;
        saver.write("file", &noise(seed as u64 + 1, 50_000));
        saver.save().await;
    }
    let (_world, server) = server(&savers);
    let scraped = async || {
        let counted = server.engine.store_stats(None).await.unwrap();
        let mut all = MetricsRegistry::default();
        counted.samples().iter().for_each(|one| all.add(one));
        all.render("")
    };
    let has = |text: &str, line: &str| text.lines().any(|one| one == line);

    let before = scraped().await;
    run(&server, JobName::Proof).await;
    let after = scraped().await;

    let unproved = |count: u8| format!("proof_unproved_snapshots{{kind=\"dir\"}} {count}");
    assert!(has(&before, &unproved(3)), "{before}");
    // Of what was never tried, and of what there is none of, nothing is said.
    assert!(!before.contains("proof_broken_snapshots{"), "{before}");
    assert!(has(&after, &unproved(1)), "{after}");
    let broken = "proof_broken_snapshots{kind=\"dir\"} 0";
    assert!(has(&after, broken), "{after}");
    assert!(!after.contains("proof_unproved_snapshots{kind=\"session\"}"));
}
