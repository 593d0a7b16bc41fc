//! The real lineage code, on a bad network, with wrong clocks, on hosts that die: ten thousand seeds keep every promise,
//! and every mutant is found.
//!
//! `STASIS_SIM_SEEDS` sets how many seeds there are in all.

use stasis_model::format::lease::Holder;
use stasis_model::id::{Label, Lineage};
use stasis_model::protocol::settle::{Protocol, ProtocolStep, StoreAnswer};
use stasis_model::protocol::step::{Doc, Op, Refusal};
use stasis_store::backend::memory::MemoryBucket;
use stasis_store::documents::lineages::Lineages;
use stasis_testkit::seeded_rng::{ActorRng, SeededRng};
use stasis_testkit::sim::mutant::Mutant;
use stasis_testkit::sim::observations::Observations;
use stasis_testkit::sim::{Settings, run};
use stasis_testkit::sim_clock::SimClock;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const SHARDS: u64 = 8;
const SEEDS: u64 = 10_000;
/// So many seeds show everything that there is to see.
const TELLING: u64 = 1_000;

fn seeds() -> u64 {
    let setting = std::env::var("STASIS_SIM_SEEDS").ok();
    setting.map_or(SEEDS, |text| {
        text.parse().expect("STASIS_SIM_SEEDS is a number")
    })
}

fn every_promise_holds_in_shard(shard: u64) {
    let count = seeds().div_ceil(SHARDS);
    let mut observations = Observations::default();
    for seed in shard * count..(shard + 1) * count {
        let report = run(seed, Settings::default());
        assert!(report.breach.is_none(), "{report}");
        observations.merge(&report.observations);
    }
    if count >= TELLING {
        assert_eq!(
            observations.missing(),
            [""; 0],
            "never seen; seen were:\n{observations}"
        );
    }
}

#[test]
fn every_promise_holds_in_the_first_eighth_of_the_seeds() {
    every_promise_holds_in_shard(0);
}

#[test]
fn every_promise_holds_in_the_second_eighth_of_the_seeds() {
    every_promise_holds_in_shard(1);
}

#[test]
fn every_promise_holds_in_the_third_eighth_of_the_seeds() {
    every_promise_holds_in_shard(2);
}

#[test]
fn every_promise_holds_in_the_fourth_eighth_of_the_seeds() {
    every_promise_holds_in_shard(3);
}

#[test]
fn every_promise_holds_in_the_fifth_eighth_of_the_seeds() {
    every_promise_holds_in_shard(4);
}

#[test]
fn every_promise_holds_in_the_sixth_eighth_of_the_seeds() {
    every_promise_holds_in_shard(5);
}

#[test]
fn every_promise_holds_in_the_seventh_eighth_of_the_seeds() {
    every_promise_holds_in_shard(6);
}

#[test]
fn every_promise_holds_in_the_last_eighth_of_the_seeds() {
    every_promise_holds_in_shard(7);
}

#[test]
fn one_seed_gives_the_same_events_twice() {
    let settings = Settings {
        keeps_diary: true,
        ..Settings::default()
    };
    for seed in 0..40 {
        let (once, again) = (run(seed, settings), run(seed, settings));

        assert_eq!(once.diary, again.diary, "seed {seed}");
        assert_eq!(once.hash, again.hash, "seed {seed}");
    }
}

#[test]
fn two_seeds_give_different_events() {
    let hash = |seed| run(seed, Settings::default()).hash;

    assert_ne!(hash(1), hash(2));
}

#[test]
fn keeping_a_diary_changes_nothing() {
    let kept = Settings {
        keeps_diary: true,
        ..Settings::default()
    };

    assert_eq!(run(3, kept).hash, run(3, Settings::default()).hash);
}

/// Sets a mutant loose and asserts that one of the first seeds finds it, and says which promise it broke.
fn is_found(mutant: Mutant, within: u64) {
    let settings = Settings {
        mutant: Some(mutant),
        ..Settings::default()
    };
    let found = (0..within).map(|seed| run(seed, settings));
    let found = found.filter_map(|report| Some((report.seed, report.breach?)));
    let found = found.into_iter().next();

    let (seed, breach) = found.unwrap_or_else(|| panic!("{mutant:?} was not found"));
    let expected = mutant.breaks().contains(&breach.promise);
    assert!(expected, "{mutant:?}: seed {seed}: {breach}");
}

#[test]
fn a_store_that_ignores_conditions_is_found() {
    is_found(Mutant::IgnoresConditions, 50);
}

#[test]
fn a_client_that_takes_lost_for_not_applied_is_found() {
    is_found(Mutant::TrustsLost, 50);
}

#[test]
fn a_client_that_settles_an_unknown_publish_by_one_look_is_found() {
    is_found(Mutant::HastyVerdict, 200);
}

#[test]
fn a_publish_that_is_repeated_on_whatever_is_there_is_found() {
    is_found(Mutant::RetriesBlindly, 200);
}

#[test]
fn a_publish_without_a_fence_is_found() {
    is_found(Mutant::SkipsFence, 50);
}

#[test]
fn a_client_that_cleans_up_after_an_unknown_publish_is_found() {
    is_found(Mutant::CleansUp, 200);
}

#[test]
fn a_fresh_fallback_that_is_published_is_found() {
    is_found(Mutant::PublishesFresh, 50);
}

#[test]
fn a_reaper_that_deletes_is_found() {
    is_found(Mutant::ReaperDeletes, 50);
}

fn in_memory() -> Lineages {
    let clock = SimClock::new(Instant::now(), 0, Duration::ZERO);
    let random = ActorRng::new(SeededRng::new(1));
    Lineages::new(
        Arc::new(MemoryBucket::new()),
        Arc::new(clock),
        Arc::new(random),
    )
}

fn a_run() -> Holder {
    Holder {
        run_id: Label::nobody(),
        host: Label::nobody(),
        host_run_id: Label::nobody(),
    }
}

async fn look(lineages: &Lineages, lineage: &Lineage, step: &ProtocolStep) -> StoreAnswer {
    let answer = match step {
        ProtocolStep::Read(Doc::Lock) => lineages.lock(lineage).await.map(StoreAnswer::Lock),
        ProtocolStep::Read(Doc::Pointer) => {
            lineages.pointer(lineage).await.map(StoreAnswer::Pointer)
        }
        other => panic!("expected a read, not {other:?}"),
    };
    answer.expect("memory does not fail")
}

/// Found by the simulator: the operator slept between its two reads, while somebody took the lease over.
#[tokio::test(start_paused = true)]
async fn a_force_unlock_that_slept_between_its_reads_spares_a_newer_owner() {
    let (lineages, lineage) = (in_memory(), "acme/alice@131".parse().unwrap());
    let ttl = Duration::from_secs(1);
    let seen = lineages
        .acquire(&lineage, a_run(), ttl)
        .await
        .unwrap()
        .fence;
    let op = Op::ForceUnlock { seen };
    let mut unlock = Protocol::forced(lineages.op_id(), op, Label::nobody(), Duration::ZERO);
    let first = unlock.next(StoreAnswer::Begin, lineages.now());
    let answer = look(&lineages, &lineage, &first).await;

    sleep(2 * ttl).await;
    lineages.acquire(&lineage, a_run(), ttl).await.unwrap();
    let second = unlock.next(answer, lineages.now());
    let answer = look(&lineages, &lineage, &second).await;
    let step = unlock.next(answer, lineages.now());

    let preserved = matches!(step, ProtocolStep::Refused(Refusal::HolderChanged { .. }));
    assert!(preserved, "{step:?}");
}
