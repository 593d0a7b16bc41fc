//! Visits every state of saves beside gc rounds that take, forget and meet the same bytes again.
#![expect(
    clippy::print_stdout,
    reason = "how much was explored belongs into the test's output"
)]

use stasis_testkit::explore::{Order, explore};
use stasis_testkit::mark_world::{Bug, Config, MarkWorld, Start};

const LIMIT: usize = 2_000_000;

/// Explores everything, and fails on a broken promise or on a sight that never came up.
#[track_caller]
fn holds(name: &str, config: Config, observations: &[&str]) {
    let report = explore(MarkWorld::new(config), Order::Frugal, LIMIT);
    println!("{name}: {report}");
    assert!(report.violation.is_none() && report.exhausted, "{report}");
    for observation in observations {
        assert!(
            report.observations.contains(observation),
            "never seen: {observation}"
        );
    }
}

/// Sets a mutant loose and expects this promise to be broken.
#[track_caller]
fn breaks(bug: Bug, promise: &str, config: Config) {
    let bug = Some(bug);
    let world = MarkWorld::new(Config { bug, ..config });
    let report = explore(world, Order::Shortest, LIMIT);
    println!("{bug:?}: {report}");
    let (what, _) = report.violation.expect("a mutant is found");
    assert_eq!(what, promise, "{bug:?}");
}

/// What was deleted days ago, two collectors, and a save of the same bytes.
const OVERLAP: Config = Config {
    start: Start::Deleted,
    saves: "x",
    rounds: [1, 2],
    deletes: 0,
    choices: 0,
    reaps: 0,
    steps: 3,
    bug: None,
};

/// What was removed days ago comes back, is replaced, deleted, and comes back once more.
const RETURN: Config = Config {
    start: Start::Removed,
    saves: "xyx",
    deletes: 1,
    steps: 0,
    ..OVERLAP
};

/// Two programs use one lease while a gc round forgets, and the lease may be taken from both.
const SHARED: Config = Config {
    saves: "xb",
    rounds: [2, 0],
    reaps: 1,
    ..OVERLAP
};

/// An operator deletes, goes back and pins beside a gc round and a save.
const OPERATED: Config = Config {
    start: Start::Stored,
    rounds: [2, 0],
    deletes: 2,
    choices: 2,
    ..OVERLAP
};

const DANGLES: &str = "a removal arrived at what is not tombstoned";
const GONE: &str = "the pointer leads to bytes that are gone";

#[test]
fn two_gc_rounds_may_overlap_beside_a_save_of_the_same_bytes() {
    let observations = [
        "a removal arrived late",
        "a gc round took too long",
        "a mark was dropped",
        "an owner kept a mark from being dropped",
        "a tombstone kept a save out",
        "x was published",
    ];
    holds("overlap", OVERLAP, &observations);
}

#[test]
fn bytes_that_come_back_and_go_again_are_never_taken_from_under_a_pointer() {
    let observations = ["a mark that had changed stayed", "x was published"];
    holds("return", RETURN, &observations);
}

#[test]
fn two_programs_may_share_a_lease_while_a_gc_round_forgets() {
    let observations = ["a save lost its lease", "x was published"];
    holds("shared", SHARED, &observations);
}

#[test]
fn what_an_operator_chose_or_pinned_stays() {
    let observations = [
        "the operator chose what had been seen",
        "a mark was dropped",
    ];
    holds("operated", OPERATED, &observations);
}

#[test]
fn mutants_of_the_gc_are_found() {
    breaks(Bug::NoFence, GONE, SHARED);
    breaks(Bug::WhileHeld, "a gc round threw an owner out", OVERLAP);
    breaks(Bug::Hasty, DANGLES, OVERLAP);
    breaks(Bug::AnyDate, DANGLES, RETURN);
    breaks(Bug::Undated, DANGLES, OVERLAP);
    breaks(Bug::Stalls, DANGLES, OVERLAP);
    breaks(
        Bug::SetsAnew,
        "a gc round marked what nobody deleted",
        OVERLAP,
    );
    breaks(Bug::Unmarked, GONE, RETURN);
}
