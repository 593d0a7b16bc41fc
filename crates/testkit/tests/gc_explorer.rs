//! Visits every state of saves beside gc rounds: two saves, two collectors, one or two subjects of a pool, and everything
//! that can go wrong between them.
#![expect(
    clippy::print_stdout,
    reason = "how much was explored belongs into the test's output"
)]

use stasis_testkit::explore::{Order, Report, explore};
use stasis_testkit::gc_world::{Bug, Config, GcWorld, Start, Survey};

const LIMIT: usize = 80_000_000;
const A: u8 = 0b001;
const AB: u8 = 0b011;
const B: u8 = 0b010;
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
        "a gc round found its epoch over before it deleted",
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

/// A save of subject 0 that borrows chunk `a` from a snapshot of subject 1, and nothing else: a fork.
fn fork() -> Config {
    Config {
        start: Start::Donor,
        wants: [A, 0],
        borrows: true,
        survey: Survey::BySubject,
        manifest_gc: true,
        forgets: 1,
        ..Config::default()
    }
}

/// The same of a snapshot that is made meanwhile of a chunk that lay around.
fn fork_of_a_new_snapshot() -> Config {
    Config {
        start: Start::Orphan,
        wants: [A, A],
        manifest_gc: false,
        removals: 1,
        ..fork()
    }
}

#[test]
fn a_fork_of_a_new_snapshot_survives_that_being_forgotten() {
    let observations = [
        "a gc round kept what an unpublished manifest names",
        "a save borrowed all its names",
        "a save found its donor live again",
        "a manifest was removed",
        "garbage was deleted",
    ];
    let config = fork_of_a_new_snapshot();
    holds("a fork of a new snapshot", config, &observations);
}

#[test]
fn a_fork_survives_its_donor_being_forgotten() {
    let observations = [
        "a save borrowed all its names",
        "a save stored a chunk anew",
        "a manifest was removed",
        "a gc round found its epoch over before it deleted",
        "garbage was deleted",
    ];
    holds("a fork, two collectors", fork(), &observations);
}

#[test]
fn a_save_that_borrows_from_parent_and_donor_survives_both_being_forgotten() {
    let config = Config {
        start: Start::ParentAndDonor,
        wants: [AB, 0],
        collectors: 1,
        forgets: 2,
        drops: 1,
        ..fork()
    };
    let observations = [
        "a save used a name from the index",
        "a save borrowed a name from a donor",
        "tombstones were dropped",
        "garbage was deleted",
    ];
    holds("parent and donor, one collector", config, &observations);
}

#[test]
fn a_stalled_save_of_a_deleted_subject_cannot_publish_into_its_successor() {
    let config = Config {
        start: Start::Snapshot,
        wants: [AB, B],
        subjects: [0, 0],
        collectors: 1,
        manifest_gc: true,
        deletions: 1,
        ..Config::default()
    };
    let observations = [
        "a subject was made again",
        "a manifest of another incarnation was found",
        "a save was refused by another incarnation",
        "a save was fenced",
        "garbage was deleted",
    ];
    holds("a subject deleted and made again", config, &observations);
}

#[test]
fn a_deleted_donor_lends_nothing() {
    let config = Config {
        forgets: 0,
        deletions: 1,
        silences: 1,
        collectors: 1,
        ..fork()
    };
    let observations = [
        "a manifest of another incarnation was found",
        "a save stored a chunk anew",
        "garbage was deleted",
    ];
    holds(
        "a fork of a deleted subject, silence",
        config,
        &observations,
    );
}

#[test]
fn what_a_provisional_manifest_names_is_safe() {
    let config = Config {
        wants: [AB, 0],
        provisional: true,
        manifest_gc: true,
        takeovers: 1,
        ..Config::default()
    };
    let observations = [
        "a save put a provisional manifest",
        "a save stored a chunk anew",
        "a manifest behind the fence was tombstoned",
        "garbage was deleted",
    ];
    holds(
        "a provisional manifest, two collectors",
        config,
        &observations,
    );
}

/// Two collectors that list page by page, beside a save of two manifests.
fn pages() -> Config {
    Config {
        wants: [AB, 0],
        provisional: true,
        removals: 1,
        survey: Survey::ByPage,
        ..Config::default()
    }
}

#[test]
fn listing_page_by_page_misses_no_manifest() {
    let observations = ["a manifest vanished while it was looked at"];
    holds("a provisional manifest, pages", pages(), &observations);
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
#[ignore = "minutes; part of scripts/full"]
fn a_fork_survives_silence() {
    let config = Config {
        silences: 1,
        drops: 1,
        ..fork()
    };
    holds("a fork, two collectors, silence", config, &[]);
}

#[test]
#[ignore = "minutes; part of scripts/full"]
fn a_subject_made_again_survives_two_collectors_and_silence() {
    let config = Config {
        start: Start::Snapshot,
        wants: [AB, B],
        subjects: [0, 0],
        collectors: 1,
        manifest_gc: true,
        deletions: 1,
        silences: 1,
        ..Config::default()
    };
    holds("a subject made again, silence", config, &[]);
    let config = Config {
        collectors: 2,
        silences: 0,
        wants: [A, A],
        ..config
    };
    holds("a subject made again, two collectors", config, &[]);
}

#[test]
#[ignore = "minutes; part of scripts/full"]
fn a_long_fork_survives_pages() {
    let config = Config {
        wants: [AB, 0],
        provisional: true,
        survey: Survey::ByPage,
        ..fork()
    };
    holds("a fork with a provisional manifest, pages", config, &[]);
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

#[test]
fn every_mutant_of_borrowing_is_found() {
    for bug in [
        Bug::ManifestFirst,
        Bug::DonorNotReadAgain,
        Bug::DonorFromCache,
        Bug::DonorReadFirst,
        Bug::NamesCopied,
        Bug::OneSubjectListed,
    ] {
        let collectors = 1;
        broken_by(
            bug,
            Config {
                collectors,
                ..fork()
            },
        );
    }
}

#[test]
fn every_mutant_of_incarnations_is_found() {
    let config = Config {
        wants: [A, 0],
        collectors: 1,
        manifest_gc: true,
        deletions: 1,
        ..Config::default()
    };
    for bug in [
        Bug::IncarnationIgnored,
        Bug::ManifestBeforeIndex,
        Bug::IndexRemoved,
        Bug::IndexReadFirst,
    ] {
        broken_by(bug, config);
    }
}

#[test]
fn a_provisional_manifest_protects_what_its_save_has_stored() {
    let config = Config {
        provisional: true,
        manifest_gc: true,
        collectors: 1,
        ..one_save()
    };
    broken_by(Bug::ProvisionalTaken, config);
}

#[test]
fn looking_at_one_subject_after_the_other_is_not_looking_at_one_moment() {
    let report = broken_by(Bug::NotConfirmed, fork_of_a_new_snapshot());
    let (_, moves) = report.violation.unwrap();
    let both = |who: &str| moves.iter().any(|step| step.starts_with(who));
    assert!(
        both("Collector(0)") && both("Collector(1)"),
        "a slow collector and one that ended its epoch"
    );
}

#[test]
fn listing_and_then_reading_is_not_looking_at_one_moment() {
    for bug in [Bug::VanishedIgnored, Bug::IndexNotSurveyed] {
        broken_by(bug, pages());
        // A save that stores a chunk anew puts a second manifest too.
        let provisional = false;
        broken_by(
            bug,
            Config {
                provisional,
                ..pages()
            },
        );
    }
}
