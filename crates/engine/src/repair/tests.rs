//! Repairs that stop at any request, and what somebody does next.

use super::*;
use crate::catalog::SnapshotSelector;
use crate::error::error_chain;
use crate::restore::RepoRestore;
use crate::rigged::pool::{Saver, World, all, key, noise};
use crate::rigged::{Rigged, Turn};
use bytes::Bytes;
use stasis_model::id::SnapshotId;
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_store::bucket::Bucket;
use stasis_store::layout::Prefix;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What happened to the documents of a subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hurt {
    LostIndex,
    DamagedIndex,
    DamagedGc,
    EveryDocument,
}

/// How a repair stops at one of its requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    /// Nothing is applied from this one on.
    Killed,
    /// This one is applied, and nothing after it.
    KilledAfter,
    /// This one is refused.
    Refused,
    /// This one is applied, and its answer is lost.
    Unanswered,
    /// This one is lost.
    Lost,
}

const STOPS: [Stop; 5] = [
    Stop::Killed,
    Stop::KilledAfter,
    Stop::Refused,
    Stop::Unanswered,
    Stop::Lost,
];

impl Stop {
    fn turn(self, number: usize, at: usize) -> Turn {
        let is_dead = matches!(self, Self::Killed | Self::KilledAfter);
        match self {
            _ if number < at || (number > at && !is_dead) => Turn::Work,
            Self::KilledAfter | Self::Unanswered if number == at => Turn::ApplySilently,
            Self::Lost => Turn::Vanish,
            _ => Turn::Fail,
        }
    }
}

/// The contents of a tree.
type Tree = BTreeMap<String, Vec<u8>>;

/// A subject with two snapshots in a pool that was swept and that somebody else uses too.
struct Fixture {
    world: World,
    encrypted: bool,
    snapshots: Vec<(SnapshotId, Tree)>,
}

impl Fixture {
    async fn new(encrypted: bool) -> Self {
        let world = World::new();
        let tenant = || encrypted.then(|| key(b'a'));
        let saver = world.host("one", "notes", tenant());
        let dirs = saver.engine.dirs();
        dirs.make_pool(&dirs.root()).await.map(drop).unwrap();
        let other = world.host("one", "other", tenant());
        other.end_epoch().await;
        let mut snapshots = Vec::new();
        for number in 0..2 {
            saver.write("plan", &noise(number, 2_000));
            let made = dirs.save(saver.command()).await.unwrap();
            snapshots.push((made.snapshot_id, all(&saver.tree)));
        }
        Self {
            world,
            encrypted,
            snapshots,
        }
    }

    /// The same objects, damaged, in another bucket.
    async fn hurt(&self, hurt: Hurt) -> Arc<Rigged> {
        let (from, to) = (&self.world.bucket, Arc::new(Rigged::default()));
        let everything = Prefix::everything();
        for row in from.list(&everything, None, usize::MAX).await.unwrap() {
            let object = from.get(&row.key, u64::MAX).await.unwrap().unwrap();
            to.inner.put(&row.key, object.body).await.unwrap();
        }
        let layout = self.saver(&to, "looking").engine.chunk_root.clone();
        let spoil = async |key| to.inner.put(&key, Bytes::from("{\"ver")).await.unwrap();
        match hurt {
            Hurt::LostIndex => to.inner.delete(&layout.index()).await.unwrap(),
            Hurt::DamagedIndex => spoil(layout.index()).await,
            Hurt::DamagedGc => spoil(layout.gc()).await,
            Hurt::EveryDocument => {
                for key in [layout.index(), layout.repo_json(), layout.gc()] {
                    assert!(to.inner.exists(&key).await.unwrap(), "{key}");
                    spoil(key).await;
                }
            }
        }
        to
    }

    /// A host that has the tree of the newest snapshot.
    fn saver(&self, bucket: &Arc<Rigged>, host: &str) -> Saver {
        let tenant = self.encrypted.then(|| key(b'a'));
        let saver = self.world.host_in(bucket.clone(), host, "notes", tenant);
        let tree = self.world.home.path().join("one/notes");
        Saver { tree, ..saver }
    }

    async fn restored(&self, saver: &Saver, id: &SnapshotId) -> Result<Tree, Error> {
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("restored");
        let id: SnapshotRef = id.as_str().parse().unwrap();
        let restore = RepoRestore::new(SnapshotSelector::new(id), &target);
        let _ = saver.engine.dirs().restore(restore).await?;
        Ok(all(&target))
    }

    /// What a user types next gives the right tree or says that something is damaged; the repair is run again, and all is well.
    async fn goes_on(&self, bucket: &Arc<Rigged>, context: &str) {
        let saver = self.saver(bucket, "two");
        let dirs = saver.engine.dirs();
        let listed = saver.engine.subjects(None).await.unwrap();
        assert_eq!(listed.items.len(), 2, "{context}");
        for (id, tree) in &self.snapshots {
            match self.restored(&saver, id).await {
                Ok(restored) => assert_eq!(restored, *tree, "{context}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{context}: {error}"),
            }
        }
        if let Err(error) = dirs.save(saver.command()).await {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{context}: {error}");
        }

        let repaired = dirs.repair(&Label::nobody(), false).await;
        let repaired =
            repaired.unwrap_or_else(|error| panic!("{context}: {}", error_chain(&error)));
        let again = dirs.repair(&Label::nobody(), false).await.unwrap();

        assert!(repaired.left_out.is_empty(), "{context}: {repaired:?}");
        assert!(again.documents.is_empty(), "{context}: {again:?}");
        for (id, tree) in &self.snapshots {
            let restored = self.restored(&saver, id).await;
            let restored = restored.unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(restored, *tree, "{context}");
        }
        saver.save().await;
        saver.restores().await;
        saver.is_sound().await;
        saver.gc().await.unwrap();
        assert_eq!(dirs.stats().await.unwrap().chunks_unused, 0, "{context}");
        saver.is_sound().await;
        self.saver_of("other", bucket).is_sound().await;
    }

    fn saver_of(&self, name: &str, bucket: &Arc<Rigged>) -> Saver {
        let tenant = self.encrypted.then(|| key(b'a'));
        self.world.host_in(bucket.clone(), "two", name, tenant)
    }

    /// Stops a repair at each of its requests; says how often it stopped.
    async fn stop_at_each(&self, hurt: Hurt, stop: Stop) -> usize {
        let mut stopped = 0;
        for at in 0.. {
            let bucket = self.hurt(hurt).await;
            let saver = self.saver(&bucket, "one");
            saver.engine.store().ensure_trusted().await.unwrap();
            let asked = Arc::new(AtomicUsize::new(0));
            let count = asked.clone();
            bucket.decide(move |_| stop.turn(count.fetch_add(1, Ordering::Relaxed), at));

            let repaired = saver.engine.dirs().repair(&Label::nobody(), false).await;

            bucket.mend();
            let context = format!("{hurt:?}, {stop:?} at {at}");
            if let Err(error) = &repaired {
                stopped += 1;
                let kind = error.kind();
                let is_of_store = matches!(
                    kind,
                    ErrorKind::Unreachable | ErrorKind::Retry | ErrorKind::Unknown
                );
                let said = error_chain(error);
                assert!(is_of_store, "{context}: {kind:?} {said}");
            }
            self.goes_on(&bucket, &context).await;
            if asked.load(Ordering::Relaxed) <= at {
                assert!(repaired.is_ok(), "{context}");
                return stopped;
            }
        }
        unreachable!("it ends")
    }
}

async fn stopped_at_any_request(encrypted: bool) {
    let fixture = Fixture::new(encrypted).await;
    for hurt in [Hurt::LostIndex, Hurt::DamagedIndex, Hurt::EveryDocument] {
        for stop in STOPS {
            let stopped = Box::pin(fixture.stop_at_each(hurt, stop)).await;
            let fewest = if stop == Stop::Unanswered { 0 } else { 5 };
            assert!(stopped >= fewest, "{hurt:?}, {stop:?}: {stopped}");
        }
    }
}

#[tokio::test]
async fn stopped_at_any_request_it_is_run_again() {
    Box::pin(stopped_at_any_request(false)).await;
}

#[tokio::test]
async fn stopped_at_any_request_in_an_encrypted_pool_it_is_run_again() {
    Box::pin(stopped_at_any_request(true)).await;
}

#[tokio::test]
async fn a_check_that_fails_hides_neither_a_plan_nor_what_was_done() {
    let fixture = Fixture::new(false).await;
    let bucket = fixture.hurt(Hurt::DamagedGc).await;
    let saver = fixture.saver(&bucket, "one");
    let dirs = saver.engine.dirs();
    saver.engine.store().ensure_trusted().await.unwrap();
    // Nothing but a check looks there.
    bucket.decide(|asked| {
        if asked.reads("quarantine/") {
            Turn::Fail
        } else {
            Turn::Work
        }
    });

    let planned = dirs.plan_repair().await.unwrap();
    let done = dirs.repair(&Label::nobody(), false).await.unwrap();
    let nothing = dirs.plan_repair().await;

    for repair in [&planned, &done] {
        assert_eq!(repair.documents.len(), 1, "{repair:?}");
        assert_eq!(repair.unchecked(), Some(ErrorKind::Unreachable));
    }
    assert_eq!(nothing.unwrap_err().kind(), ErrorKind::Unreachable);
    bucket.mend();
    let again = dirs.plan_repair().await.unwrap();
    assert!(again.documents.is_empty() && again.remaining.is_empty());
    assert_eq!(again.unchecked(), None);
}
