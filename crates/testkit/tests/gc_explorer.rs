//! Visits every state of saves beside gc rounds: two saves, two collectors, and everything that can go wrong between them.
#![expect(
    clippy::print_stdout,
    reason = "how much was explored belongs into the test's output"
)]

use stasis_testkit::explore::{Order, Report, explore};
use stasis_testkit::gc_world::{Bug, Config, GcWorld, Start};

const LIMIT: usize = 80_000_000;
const A: u8 = 0b001;
const AB: u8 = 0b011;
const BC: u8 = 0b110;

/// Explores everything, and fails on a broken promise or on a sight that never came up.
fn holds(name: &str, config: Config, observations: &[&str]) {
    let report = explore(GcWorld::new(config), Order::Frugal, LIMIT);
    println!("{name}: {report}");
    assert!(report.violation.is_none(), "{report}");
    assert!(report.exhausted, "{report}");
    for observation in observations {
        assert!(
            report.observations.contains(observation),
            "never seen: {observation}"
        );
    }
}

/// Sets a mutant loose and returns the shortest way to a broken promise.
fn broken_by(bug: Bug, config: Config) -> Report {
    let bug = Some(bug);
    let report = explore(
        GcWorld::new(Config { bug, ..config }),
        Order::Shortest,
        LIMIT,
    );
    println!("{bug:?}: {report}");
    assert!(report.violation.is_some(), "{bug:?} was not noticed");
    report
}

fn one_save() -> Config {
    Config {
        wants: [AB, 0],
        ..Config::default()
    }
}

const USUAL: [&str; 4] = [
    "garbage was deleted",
    "a save used a chunk that lay around",
    "a save met a new epoch",
    "a save stored a chunk anew",
];

#[test]
fn two_saves_and_two_collectors_keep_every_promise() {
    let observations = [
        "a gc round kept what an unpublished manifest names",
        "a gc round found a list that was left",
        "a gc round finished what another had begun",
        "a gc round lost a swap of gc.json",
        "a save found names in the index again",
    ];
    let config = Config {
        wants: [A, AB],
        ..Config::default()
    };
    let observations = [&USUAL[..], &observations].concat();
    holds("two saves, two collectors", config, &observations);
}

#[test]
fn two_saves_beside_a_gc_round_survive_silence_unreadable_manifests_and_forgetting() {
    let config = Config {
        wants: [AB, AB],
        collectors: 1,
        silences: 2,
        unreadable: 1,
        forgets: 1,
        ..Config::default()
    };
    let observations = [
        "a gc round could not read a manifest",
        "a swap of gc.json landed late",
        "a save lost a swap of the index",
        "a save found its own swap applied",
    ];
    holds("two saves, one collector, silence", config, &observations);
}

#[test]
fn two_collectors_settle_swaps_that_nobody_had_an_answer_to() {
    let config = Config {
        wants: [A, 0],
        silences: 1,
        ..Config::default()
    };
    let observations = [
        "a swap of gc.json landed late",
        "a gc round finished what another had begun",
    ];
    holds("one save, two collectors, silence", config, &observations);
}

#[test]
fn names_taken_from_a_snapshot_survive_its_being_forgotten() {
    let config = Config {
        start: Start::Snapshot,
        forgets: 1,
        manifest_gc: true,
        takeovers: 1,
        ..one_save()
    };
    let observations = [
        "a save used a name from the index",
        "a save found names in the index again",
        "a save was fenced",
        "a manifest behind the fence was tombstoned",
        "a manifest was removed",
        "garbage was deleted",
    ];
    holds(
        "one save, two collectors of manifests",
        config,
        &observations,
    );
}

#[test]
fn manifest_gc_settles_swaps_that_nobody_had_an_answer_to() {
    let config = Config {
        start: Start::Snapshot,
        collectors: 1,
        manifest_gc: true,
        silences: 2,
        forgets: 1,
        takeovers: 1,
        ..one_save()
    };
    let observations = [
        "a manifest behind the fence was tombstoned",
        "a manifest was removed",
        "a save was fenced",
    ];
    holds(
        "one save, one collector of manifests, silence",
        config,
        &observations,
    );
}

#[test]
#[ignore = "minutes; part of scripts/full"]
fn two_saves_of_two_chunks_and_two_collectors_keep_every_promise() {
    for (name, wants) in [("ab and ab", [AB, AB]), ("ab and bc", [AB, BC])] {
        let config = Config {
            wants,
            ..Config::default()
        };
        holds(name, config, &USUAL);
    }
}

#[test]
#[ignore = "minutes; part of scripts/full"]
fn two_saves_and_two_collectors_of_manifests_survive_forgetting() {
    let config = Config {
        start: Start::Snapshot,
        wants: [A, A],
        manifest_gc: true,
        forgets: 1,
        takeovers: 1,
        ..Config::default()
    };
    let observations = ["a manifest was removed", "garbage was deleted"];
    holds(
        "two saves, two collectors of manifests",
        config,
        &observations,
    );
}

#[test]
#[ignore = "minutes; part of scripts/full"]
fn two_saves_and_two_collectors_survive_silence() {
    let config = Config {
        wants: [A, A],
        silences: 1,
        ..Config::default()
    };
    holds("two saves, two collectors, silence", config, &USUAL);
}

#[test]
fn every_mutant_of_the_gc_is_found() {
    for bug in [
        Bug::NoSecondListing,
        Bug::DeletedFirst,
        Bug::EpochKept,
        Bug::AgeGrace,
        Bug::ListForgotten,
    ] {
        broken_by(bug, Config::default());
    }
    let unreadable = Config {
        unreadable: 1,
        ..Config::default()
    };
    broken_by(Bug::UnreadableIgnored, unreadable);
    let manifest_gc = Config {
        manifest_gc: true,
        ..Config::default()
    };
    broken_by(Bug::NoTombstone, manifest_gc);
}

#[test]
fn every_mutant_of_a_save_is_found() {
    for bug in [Bug::NoSecondRead, Bug::SameName, Bug::EpochIgnored] {
        broken_by(bug, one_save());
    }
}

#[test]
fn a_plain_name_that_was_deleted_once_is_not_safe_to_use_again() {
    let collectors = 1;
    let config = Config {
        collectors,
        ..one_save()
    };

    broken_by(Bug::PlainNames, config);
}

#[test]
fn that_a_chunk_exists_does_not_prove_that_it_stays() {
    broken_by(Bug::RevivalTrusted, one_save());

    let report = broken_by(Bug::ExistenceTrusted, one_save());
    let (_, moves) = report.violation.unwrap();
    let both = |who: &str| moves.iter().any(|step| step.starts_with(who));
    assert!(
        both("Collector(0)") && both("Collector(1)"),
        "a slow collector and its helper"
    );
}

#[test]
fn a_manifest_must_never_be_rewritten_in_place() {
    broken_by(Bug::ManifestRewritten, one_save());
}
