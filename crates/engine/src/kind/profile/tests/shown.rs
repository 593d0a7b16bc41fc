//! What is said of the snapshot that a run begins with: other places, other versions of its browser; and of proofs.

use super::World;
use crate::kind::profile::load::ProfileLoad;
use crate::lease::Acquire;
use crate::warning::Warning;
use stasis_disk::tree::restore::Placement;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::event::EventKind;
use stasis_model::format::lease::Holder;
use stasis_model::format::manifest::Geo;
use stasis_model::format::proof::SnapshotProof;
use stasis_model::id::{Label, OpId};
use stasis_store::documents::proofs;
use stasis_store::layout::ProofSubject;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_hours(1);

impl World {
    /// Saves from a host of a region that the world sees in a country.
    async fn saved_in(&self, region: &str, country: &str, text: &str) -> ArchiveDigest {
        self.change(text);
        let mut save = self.saving();
        save.capture.captured_in.host_region = Some(region.parse().unwrap());
        save.capture.captured_in.egress_ip_geo = Some(Geo {
            country: country.parse().unwrap(),
            region: Label::nobody(),
        });
        self.engine.profiles().save(save).await.unwrap().sha256
    }

    /// Saves what another version of the browser left in a directory of its own.
    async fn saved_with(&self, major: u32) -> ArchiveDigest {
        let dir = self.home.path().join(format!("other-{major}"));
        fs::create_dir_all(dir.join("Default")).unwrap();
        fs::write(dir.join("Last Version"), format!("{major}.0.1.2")).unwrap();
        fs::write(dir.join("Default/state"), major.to_string()).unwrap();
        let mut save = self.saving();
        save.subject = format!("acme/alice@{major}").parse().unwrap();
        save.capture.dir = dir;
        self.engine.profiles().save(save).await.unwrap().sha256
    }

    async fn warned(&self, subject: &str) -> Vec<Warning> {
        let engine = self.elsewhere();
        let shown = engine
            .profiles()
            .show(&subject.parse().unwrap(), None)
            .await;
        shown.unwrap().warnings
    }
}

#[tokio::test]
async fn a_snapshot_that_was_captured_elsewhere_than_the_one_before_it_is_a_warning() {
    let world = World::new();
    world.saved_in("us-east-1", "US", "one").await;
    assert_eq!(world.warned("acme/alice").await, []);
    world.later(HOUR);
    let moved = world.saved_in("eu-west-1", "DE", "two").await;

    let warned = world.warned("acme/alice@131").await;

    let elsewhere = Warning::CapturedElsewhere {
        subject: "acme/alice@131".to_owned(),
        sha256: moved.prefix(),
        from: "us-east-1, seen in US".to_owned(),
        here: "eu-west-1, seen in DE".to_owned(),
    };
    assert_eq!(warned, [elsewhere]);
    // The world sees it elsewhere, although the host has not moved.
    world.later(HOUR);
    world.saved_in("eu-west-1", "FR", "three").await;
    assert_eq!(world.warned("acme/alice").await.len(), 1);
    // From the same place, and from another one when what was in it was old.
    world.later(HOUR);
    world.saved_in("eu-west-1", "FR", "four").await;
    assert_eq!(world.warned("acme/alice").await, []);
    world.later(HOUR * 30);
    world.saved_in("us-east-1", "US", "five").await;
    assert_eq!(world.warned("acme/alice").await, []);
}

#[tokio::test]
async fn a_newer_snapshot_of_another_browser_is_a_warning_and_one_of_this_one_silences_that() {
    let world = World::new();
    world.saved("one").await;
    world.later(HOUR);
    let newer = world.saved_with(132).await;

    let of_older = world.warned("acme/alice@131").await;
    let of_newer = world.warned("acme/alice@132").await;

    let other = Warning::OtherMajorIsNewer {
        subject: "acme/alice@131".to_owned(),
        major: world.lineage.major,
        other: "acme/alice@132".to_owned(),
        sha256: newer.prefix(),
    };
    assert_eq!((of_older, of_newer), (vec![other.clone()], Vec::new()));
    assert_eq!(world.warned("acme/alice").await, [other]);
    world.later(HOUR);
    world.saved("two").await;
    assert_eq!(world.warned("acme/alice@131").await, []);
}

#[tokio::test]
async fn that_only_other_browsers_have_a_snapshot_is_a_warning() {
    let world = World::new();
    world.saved("one").await;
    let lease = Acquire {
        lineage: "acme/alice@133".parse().unwrap(),
        holder: Holder {
            run_id: "run".parse().unwrap(),
            host: "host".parse().unwrap(),
            host_run_id: Label::nobody(),
        },
        ttl: None,
    };
    world.engine.leases().acquire(lease).await.unwrap();

    let warned = world.warned("acme/alice").await;

    let only_others = Warning::OnlyOtherMajors {
        subject: "acme/alice@133".to_owned(),
        others: vec!["acme/alice@131".to_owned()],
    };
    assert_eq!(warned, [only_others]);
}

#[tokio::test]
async fn a_load_in_another_region_is_in_the_log_and_one_in_the_same_is_not() {
    let world = World::new();
    let sha = world.saved_in("us-east-1", "US", "one").await;
    let load = |region: &str| ProfileLoad {
        lineage: world.lineage.clone(),
        dir: world.home.path().join("loaded"),
        placement: Placement::Replace,
        exactly: None,
        on_failure: None,
        upgrade: super::UpgradeWish::default(),
        cold_only: false,
        region: Some(region.parse().unwrap()),
        actor: "run-7".parse().unwrap(),
        spawn: World::spawn(),
        progress: Arc::default(),
        cancel: Arc::default(),
    };
    let profiles = world.engine.profiles();
    let _ = profiles.load(load("us-east-1")).await.unwrap();
    let _ = profiles.load(load("eu-west-1")).await.unwrap();

    let tenant = &world.lineage.tenant;
    let log = world.engine.events().latest(Some(tenant), 10).await;

    let log = log.unwrap().events;
    let mut moved = log
        .iter()
        .filter(|(_, one)| one.kind == EventKind::RegionChanged);
    let (_, event) = moved.next().unwrap();
    assert!(moved.next().is_none(), "{log:?}");
    assert_eq!(event.subject.as_ref(), Some(&world.lineage));
    assert_eq!(event.details["from"], "us-east-1");
    assert_eq!(event.details["here"], "eu-west-1");
    assert_eq!(event.details["sha256"], sha.to_string());
    assert_eq!(event.actor.as_str(), "run-7");
}

#[tokio::test]
async fn every_list_of_snapshots_says_which_one_a_proof_restored() {
    let world = World::new();
    let (first, second) = (world.saved("one").await, world.saved("two").await);
    let at = world.engine.lineages.now();
    let proof = SnapshotProof {
        tried_at_ms: at,
        restored_at_ms: Some(at),
        problem: None,
        broken: false,
        host: Label::nobody(),
    };
    let subject = ProofSubject::Profile(world.lineage.clone());
    let (of, all) = ((first.to_string(), &proof), [first.to_string()]);
    let recorded = proofs::record(
        &*world.bucket,
        &subject,
        (&of.0, of.1),
        &all,
        OpId::default(),
    );
    recorded.await.unwrap();

    let profile = "acme/alice".parse().unwrap();
    let profiles = world.engine.profiles();
    let list = profiles.snapshots(&profile).await.unwrap().snapshots;
    let log = profiles.log(&profile, 9).await.unwrap().items;
    let shown = profiles.show(&profile, Some(&first.into())).await.unwrap();

    let restored = |proof: Option<&crate::proofs::ProofShown>| proof?.restored_at_ms;
    for rows in [list, log] {
        for row in rows {
            let is_first = row.manifest.archive_sha256 == first;
            let expected = is_first.then(|| at.millis());
            assert_eq!(restored(row.proof.as_ref()), expected, "{second}");
        }
    }
    let row = shown.lineages[0].snapshot.as_ref().unwrap();
    assert_eq!(restored(row.proof.as_ref()), Some(at.millis()));
}
