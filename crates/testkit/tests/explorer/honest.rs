//! The production protocol keeps every promise.

use stasis_testkit::explore::{Order, Report, explore};
use stasis_testkit::lineage_world::LineageWorld;
use stasis_testkit::lineage_world::cast::Command::{
    Adopt, Delete, ForceUnlock, Pin, Rollback, RollbackIfUnmoved,
};
use stasis_testkit::lineage_world::cast::{Cast, Command, Start};
use stasis_testkit::lineage_world::conduct::Honest;
use stasis_testkit::lineage_world::observation;

const EVERYTHING: &[Command] = &[Rollback, RollbackIfUnmoved, Adopt, ForceUnlock, Delete, Pin];

/// Visits every state, and asserts that no promise was broken and that all the observations were seen.
#[track_caller]
fn exhausted(cast: Cast, observations: &[&str]) -> Report {
    let report = explore(LineageWorld::<Honest>::new(cast), Order::Frugal, usize::MAX);
    println!("{report}");
    assert!(report.exhausted, "{report}");
    for observation in observations {
        assert!(
            report.observations.contains(observation),
            "never seen: {observation}"
        );
    }
    report
}

/// One attempt for everybody.
fn brief() -> Cast {
    Cast {
        attempts: 1,
        ..Cast::default()
    }
}

#[test]
fn two_writers_a_reaper_and_an_operator_who_may_do_anything() {
    let cast = Cast {
        fresh: true,
        reaps: 2,
        acts: 1,
        repertoire: EVERYTHING,
        ..brief()
    };

    exhausted(
        cast,
        &[
            observation::PUBLISHED,
            observation::TAKEN_OVER,
            observation::TAKEN_AFTER_FORCE,
            observation::LOCK_LOST,
            observation::DIVERGED,
            observation::UNSETTLED,
            observation::SETTLED_APPLIED,
            observation::SETTLED_NOT,
            observation::MARKED,
            observation::NOT_TOLD,
            observation::HELD,
            observation::RELEASED,
            observation::REAPED,
            observation::NOT_EXPIRED,
            observation::CONTENDED,
            observation::ROLLED_BACK,
            observation::FORCED,
            observation::HOLDER_CHANGED,
            observation::POINTER_MOVED,
            observation::DELETED,
            observation::IS_ACTIVE,
            observation::TOMBSTONED,
            observation::PINNED,
            observation::LANDED_LATE,
        ],
    );
}

#[test]
fn two_writers_that_renew_a_reaper_and_an_operator_who_rolls_back() {
    let cast = Cast {
        renewals: 1,
        fresh: true,
        reaps: 1,
        acts: 1,
        repertoire: &[Rollback],
        ..brief()
    };

    exhausted(
        cast,
        &[
            observation::RENEWED,
            observation::HANDED_BACK,
            observation::ROLLED_BACK,
            observation::LOCK_LOST,
        ],
    );
}

#[test]
fn two_writers_that_renew_a_reaper_and_an_operator_who_unlocks() {
    let cast = Cast {
        renewals: 1,
        reaps: 1,
        acts: 1,
        repertoire: &[ForceUnlock],
        ..brief()
    };

    exhausted(
        cast,
        &[
            observation::RENEWED,
            observation::HANDED_BACK,
            observation::FORCED,
            observation::MARKED,
        ],
    );
}

#[test]
fn two_writers_that_renew_a_reaper_and_an_operator_who_deletes_or_pins() {
    let cast = Cast {
        renewals: 1,
        reaps: 1,
        acts: 1,
        repertoire: &[Delete, Pin],
        ..brief()
    };

    exhausted(
        cast,
        &[
            observation::RENEWED,
            observation::DELETED,
            observation::PINNED,
            observation::TOMBSTONED,
        ],
    );
}

#[test]
fn an_operator_who_acts_twice_meets_his_own_marks() {
    let cast = Cast {
        writers: 1,
        acts: 2,
        repertoire: EVERYTHING,
        ..brief()
    };

    exhausted(
        cast,
        &[
            observation::IS_PINNED,
            observation::TOMBSTONED,
            observation::IS_ACTIVE,
        ],
    );
}

#[test]
fn two_stubborn_writers_and_a_reaper() {
    let cast = Cast {
        attempts: 2,
        reaps: 2,
        ..Cast::default()
    };

    exhausted(
        cast,
        &[
            observation::OUTRUN,
            observation::TAKEN_OVER,
            observation::REAPED,
            observation::CONTENDED,
        ],
    );
}

#[test]
fn two_stubborn_writers_and_an_operator_who_pins() {
    let cast = Cast {
        attempts: 2,
        acts: 1,
        repertoire: &[Pin],
        ..Cast::default()
    };

    exhausted(cast, &[observation::PINNED, observation::OUTRUN]);
}

#[test]
fn two_writers_that_publish_and_release_from_what_they_saw_last() {
    let cast = Cast {
        keeps_readings: true,
        reaps: 1,
        acts: 1,
        repertoire: &[Rollback, ForceUnlock],
        ..brief()
    };
    exhausted(
        cast,
        &[
            observation::UNREAD,
            observation::UNREAD_REFUSED,
            observation::PUBLISHED,
            observation::RELEASED,
            observation::LOCK_LOST,
            observation::ROLLED_BACK,
            observation::FORCED,
        ],
    );

    let stubborn = Cast {
        keeps_readings: true,
        attempts: 2,
        acts: 1,
        repertoire: &[Pin],
        ..Cast::default()
    };
    exhausted(
        stubborn,
        &[
            observation::UNREAD,
            observation::UNREAD_REFUSED,
            observation::PINNED,
        ],
    );
}

#[test]
fn two_writers_in_a_lineage_that_is_still_empty() {
    let cast = Cast {
        renewals: 1,
        reaps: 1,
        start: Start::Empty,
        ..brief()
    };
    exhausted(cast, &[observation::PUBLISHED, observation::TAKEN_OVER]);

    let cast = Cast {
        acts: 1,
        repertoire: &[ForceUnlock, Adopt],
        start: Start::Empty,
        ..brief()
    };
    exhausted(
        cast,
        &[
            observation::FORCED,
            observation::MARKED,
            observation::ROLLED_BACK,
        ],
    );
}

#[test]
fn two_writers_a_reaper_and_an_operator_who_cannot_always_read() {
    let cast = Cast {
        fresh: true,
        reaps: 1,
        acts: 1,
        repertoire: &[Rollback],
        unreadable: 1,
        ..brief()
    };

    exhausted(cast, &[observation::UNREACHABLE, observation::NOT_TOLD]);
}

#[test]
fn three_writers_and_an_operator_who_rolls_back() {
    let cast = Cast {
        writers: 3,
        fresh: true,
        acts: 1,
        repertoire: &[Rollback],
        ..brief()
    };

    exhausted(
        cast,
        &[
            observation::PUBLISHED,
            observation::ROLLED_BACK,
            observation::LOCK_LOST,
        ],
    );
}

#[test]
#[ignore = "15 million states take minutes; scripts/full runs it"]
fn three_writers_a_reaper_and_an_operator_who_rolls_back() {
    let cast = Cast {
        writers: 3,
        reaps: 1,
        acts: 1,
        repertoire: &[Rollback],
        ..brief()
    };

    exhausted(
        cast,
        &[
            observation::PUBLISHED,
            observation::ROLLED_BACK,
            observation::REAPED,
        ],
    );
}

#[test]
#[ignore = "17 million states take minutes; scripts/full runs it"]
fn two_writers_that_renew_a_reaper_and_an_operator_who_may_do_anything() {
    let cast = Cast {
        renewals: 1,
        fresh: true,
        reaps: 1,
        acts: 1,
        repertoire: EVERYTHING,
        ..brief()
    };

    exhausted(
        cast,
        &[
            observation::RENEWED,
            observation::HANDED_BACK,
            observation::MARKED,
        ],
    );
}

#[test]
#[ignore = "millions of states take minutes; scripts/full runs it"]
fn two_stubborn_writers_and_an_operator_who_rolls_back() {
    let cast = Cast {
        attempts: 2,
        acts: 1,
        repertoire: &[Rollback],
        ..Cast::default()
    };

    exhausted(cast, &[observation::OUTRUN, observation::ROLLED_BACK]);
}

#[test]
#[ignore = "millions of states take minutes; scripts/full runs it"]
fn two_stubborn_writers_and_an_operator_who_unlocks() {
    let cast = Cast {
        attempts: 2,
        acts: 1,
        repertoire: &[ForceUnlock],
        ..Cast::default()
    };

    exhausted(cast, &[observation::OUTRUN, observation::FORCED]);
}

#[test]
fn the_short_cuts_of_the_explorer_leave_nothing_out() {
    let quick = Cast {
        fresh: true,
        reaps: 1,
        acts: 1,
        repertoire: &[Rollback],
        ..brief()
    };
    let thorough = Cast {
        thorough: true,
        ..quick
    };

    let quick = exhausted(quick, &[]);
    let thorough = exhausted(thorough, &[]);

    assert_eq!(quick.observations, thorough.observations);
}
