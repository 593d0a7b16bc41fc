//! The real lineage code, on a bad network, with wrong clocks, on hosts that die: ten thousand seeds keep every promise,
//! and every planted bug is found.
//!
//! `STASIS_SIM_SEEDS` sets how many seeds there are in all.

use stasis_testkit::sim::plant::Plant;
use stasis_testkit::sim::sights::Sights;
use stasis_testkit::sim::{Settings, run};

const SHARDS: u64 = 8;
const SEEDS: u64 = 10_000;
/// So many seeds show everything that there is to see.
const TELLING: u64 = 1_000;

fn seeds() -> u64 {
    let told = std::env::var("STASIS_SIM_SEEDS").ok();
    told.map_or(SEEDS, |text| {
        text.parse().expect("STASIS_SIM_SEEDS is a number")
    })
}

fn every_promise_holds_in_shard(shard: u64) {
    let count = seeds().div_ceil(SHARDS);
    let mut sights = Sights::default();
    for seed in shard * count..(shard + 1) * count {
        let report = run(seed, Settings::default());
        assert!(report.breach.is_none(), "{report}");
        sights.merge(&report.sights);
    }
    if count >= TELLING {
        assert_eq!(
            sights.missing(),
            [""; 0],
            "never seen; seen were:\n{sights}"
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

/// Plants a bug and asserts that one of the first seeds finds it, and says which promise it broke.
fn is_found(plant: Plant, within: u64) {
    let settings = Settings {
        plant: Some(plant),
        ..Settings::default()
    };
    let found = (0..within).map(|seed| run(seed, settings));
    let found = found.filter_map(|report| Some((report.seed, report.breach?)));
    let found = found.into_iter().next();

    let (seed, breach) = found.unwrap_or_else(|| panic!("{plant:?} was not found"));
    println!("{plant:?}: seed {seed}: {breach}");
    assert!(plant.breaks().contains(&breach.promise), "{breach}");
}

#[test]
fn a_store_that_ignores_conditions_is_found() {
    is_found(Plant::IgnoresConditions, 50);
}

#[test]
fn a_client_that_takes_lost_for_not_applied_is_found() {
    is_found(Plant::TrustsLost, 50);
}

#[test]
fn a_client_that_settles_an_unknown_flip_by_one_look_is_found() {
    is_found(Plant::HastyVerdict, 200);
}

#[test]
fn a_flip_that_is_repeated_on_whatever_is_there_is_found() {
    is_found(Plant::RetriesBlindly, 200);
}

#[test]
fn a_flip_without_a_fence_is_found() {
    is_found(Plant::SkipsFence, 50);
}

#[test]
fn a_client_that_cleans_up_after_an_unknown_flip_is_found() {
    is_found(Plant::CleansUp, 200);
}

#[test]
fn a_fresh_fallback_that_is_published_is_found() {
    is_found(Plant::FlipsFresh, 50);
}

#[test]
fn a_reaper_that_deletes_is_found() {
    is_found(Plant::ReaperDeletes, 50);
}
