use super::CalendarPeriod::{Daily, Hourly, Monthly, Weekly, Yearly};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;
const NOW: u64 = 1_000 * DAY;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// An automatic snapshot of 1 byte, `age` milliseconds old.
fn snapshot(id: &str, age: u64) -> Snapshot {
    Snapshot {
        created: at(NOW - age),
        id: id.parse().unwrap(),
        group: Label::nobody(),
        bytes: 1,
        origin: SnapshotOrigin::Auto,
        active: false,
        pinned: false,
        verified: false,
        rolled_back_at: None,
        needed_for: None,
    }
}

fn of_group(group: &str, id: &str, age: u64) -> Snapshot {
    Snapshot {
        group: group.parse().unwrap(),
        ..snapshot(id, age)
    }
}

fn now() -> Clocks {
    Clocks::local(at(NOW))
}

fn going(policy: &RetentionPolicy, all: &[Snapshot], clocks: &Clocks) -> Vec<String> {
    let judgement = judge(policy, all, clocks);
    judgement.going().map(|gone| gone.id.to_string()).collect()
}

#[test]
fn a_session_keeps_exactly_one_and_each_session_its_own() {
    let all = [
        of_group("a", "a1", 3),
        of_group("a", "a2", 2),
        of_group("b", "b1", 9),
        of_group("a", "a3", 1),
    ];

    assert_eq!(going(&RetentionPolicy::KeepOne, &all, &now()), ["a2", "a1"]);
}

#[test]
fn containers_are_judged_by_age_then_count_then_bytes() {
    let policy = RetentionPolicy::AgeCountBytes(AgeCountBytes {
        per_group: 2,
        in_all: 4,
        max_bytes: 103,
        ..AgeCountBytes::default()
    });
    let mut all = vec![
        of_group("a", "old", 7 * DAY + 1),
        of_group("a", "a3", 30),
        of_group("a", "a2", 20),
        of_group("a", "a1", 10),
        of_group("b", "b1", 40),
        of_group("c", "c1", 50),
        of_group("d", "d1", 60),
    ];
    all[4].bytes = 101;

    let judgement = judge(&policy, &all, &now());

    let mut said: Vec<(&str, Excess)> = Vec::new();
    for verdict in &judgement.verdicts {
        let id = verdict.snapshot.id.as_str();
        said.extend(verdict.goes_because.map(|excess| (id, excess)));
    }
    let limit = 7 * Duration::from_hours(24);
    let expected = [
        ("a3", Excess::GroupCount { limit: 2 }),
        ("c1", Excess::Bytes { limit: 103 }),
        ("d1", Excess::Count { limit: 4 }),
        ("old", Excess::TooOld { limit }),
    ];
    assert_eq!(said, expected);
    assert_eq!((judgement.unmet, judgement.clock), (vec![], None));
}

#[test]
fn a_group_whose_days_are_over_ends_but_the_newest_of_all_stays() {
    let policy = RetentionPolicy::AgeCountBytes(AgeCountBytes::default());
    let all = [of_group("a", "a1", 9 * DAY), of_group("b", "b1", 8 * DAY)];

    assert_eq!(going(&policy, &all, &now()), ["a1"]);
}

#[test]
fn what_takes_back_the_last_restore_stays_against_every_limit() {
    let mut all = [
        snapshot("safety", 9 * DAY),
        snapshot("a", 2),
        snapshot("b", 1),
    ];
    all[0].needed_for = Some(SnapshotNeed::Undo);
    let one = RetentionPolicy::Repository(Repository {
        keep_last: Some(1),
        max_bytes: Some(1),
        ..Repository::default()
    });
    for policy in [one, RetentionPolicy::KeepOne] {
        assert_eq!(going(&policy, &all, &now()), ["a"]);
    }
    let old = RetentionPolicy::AgeCountBytes(AgeCountBytes::default());
    assert_eq!(going(&old, &all, &now()), [""; 0]);
}

#[test]
fn a_ring_turns_beside_names_that_are_never_overwritten() {
    let policy = RetentionPolicy::Ring(Ring { auto: 2, named: 1 });
    let named = |id, age| Snapshot {
        origin: SnapshotOrigin::Named,
        ..snapshot(id, age)
    };
    let all = [
        named("n2", 9),
        named("n1", 8),
        snapshot("a3", 3),
        snapshot("a2", 2),
        snapshot("a1", 1),
    ];

    let judgement = judge(&policy, &all, &now());

    let gone: Vec<&str> = judgement.going().map(|gone| gone.id.as_str()).collect();
    assert_eq!(gone, ["a3"]);
    let too_many_names = Unmet {
        limit: Excess::GroupCount { limit: 1 },
        group: Some(Label::nobody()),
        protected: 2,
    };
    assert_eq!(judgement.unmet, [too_many_names]);
}

#[test]
fn a_name_that_takes_over_a_protection_leaves_its_place_in_the_ring_to_another() {
    let policy = RetentionPolicy::Ring(Ring { auto: 2, named: 1 });
    let mut all = vec![snapshot("v", 3), snapshot("a2", 2), snapshot("a1", 1)];
    all[0].verified = true;
    let before = going(&policy, &all, &now());
    all.push(Snapshot {
        origin: SnapshotOrigin::Named,
        verified: true,
        ..snapshot("n", 0)
    });

    assert_eq!(before, ["a2"]);
    assert_eq!(going(&policy, &all, &now()), ["v"]);
}

#[test]
fn a_profile_keeps_the_newest_and_in_addition_pins_and_what_was_rolled_back_to() {
    let policy = RetentionPolicy::Newest(Newest {
        keep: 2,
        ..Newest::default()
    });
    let mut all: Vec<Snapshot> = (1..=6).map(|n| snapshot(&format!("s{n}"), n)).collect();
    all[3].pinned = true;
    all[4].rolled_back_at = Some(at(NOW - 30 * DAY));
    all[5].rolled_back_at = Some(at(NOW - 30 * DAY - 1));

    assert_eq!(going(&policy, &all, &now()), ["s3", "s6"]);
}

#[test]
fn a_project_keeps_so_many_and_what_is_protected_takes_its_share() {
    let mut all: Vec<Snapshot> = (1..=5).map(|n| snapshot(&format!("s{n}"), n)).collect();
    all[4].active = true;

    assert_eq!(
        going(&RetentionPolicy::MaxSnapshots(3), &all, &now()),
        ["s3", "s4"]
    );
    assert_eq!(
        going(&RetentionPolicy::MaxSnapshots(0), &all, &now()),
        ["s2", "s3", "s4"]
    );
    assert!(going(&RetentionPolicy::KeepAll, &all, &now()).is_empty());
}

#[test]
fn a_repository_keeps_what_any_of_its_rules_asks_for() {
    let all: Vec<Snapshot> = (1..=4)
        .map(|n| snapshot(&format!("s{n}"), n * DAY))
        .collect();
    let policy = |keep_last, days: Option<u64>, max_bytes| {
        RetentionPolicy::Repository(Repository {
            keep_last,
            keep_within: days.map(|days| Duration::from_millis(days * DAY)),
            max_bytes,
            ..Repository::default()
        })
    };
    let going = |policy: RetentionPolicy| going(&policy, &all, &now());

    assert_eq!(going(policy(Some(1), None, None)), ["s2", "s3", "s4"]);
    assert_eq!(going(policy(Some(1), Some(3), None)), ["s4"]);
    assert_eq!(going(policy(None, None, Some(2))), ["s3", "s4"]);
    assert_eq!(going(policy(Some(3), None, Some(1))), ["s2", "s3", "s4"]);
    assert!(going(policy(None, None, None)).is_empty());
}

/// A snapshot of a moment, as in `2026-02-28T23`.
fn of_hour(text: &str) -> Snapshot {
    let number = |range: std::ops::Range<usize>| text[range].parse::<u64>().unwrap();
    let small = |range| u8::try_from(number(range)).unwrap();
    let midnight = Timestamp::of_date(number(0..4), small(5..7), small(8..10)).unwrap();
    Snapshot {
        created: midnight.plus(Duration::from_hours(number(11..13))),
        id: text.to_lowercase().parse().unwrap(),
        ..snapshot("x", 0)
    }
}

/// What is kept of these hours because of calendar periods, the newest first, with the periods.
fn by_calendar(periods: KeepPeriods, hours: &[&str]) -> Vec<(String, Vec<CalendarPeriod>)> {
    let all: Vec<Snapshot> = hours.iter().map(|hour| of_hour(hour)).collect();
    let policy = RetentionPolicy::Repository(Repository {
        periods,
        ..Repository::default()
    });
    let judgement = judge(&policy, &all, &now());
    let reasons = |verdict: &RetentionVerdict<'_>| {
        let reasons = verdict.kept_because.iter().filter_map(|one| match one {
            KeepReason::Period { period } => Some(*period),
            _ => None,
        });
        (verdict.snapshot.id.to_string(), reasons.collect::<Vec<_>>())
    };
    let verdicts = judgement.verdicts.iter().filter(|one| one.is_kept());
    verdicts.map(reasons).collect()
}

#[test]
fn the_newest_of_each_of_the_last_days_is_kept_and_days_without_any_do_not_count() {
    let daily = KeepPeriods {
        daily: 3,
        ..KeepPeriods::default()
    };
    let hours = [
        "2026-03-09T23",
        "2026-03-10T00",
        "2026-03-10T23",
        "2026-03-01T05",
        "2026-02-28T12",
    ];

    let kept = by_calendar(daily, &hours);

    let days: Vec<&str> = kept.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(days, ["2026-03-10t23", "2026-03-09t23", "2026-03-01t05"]);
}

#[test]
fn a_week_begins_on_monday_and_a_year_with_january_whatever_the_week() {
    let periods = KeepPeriods {
        weekly: 2,
        yearly: 2,
        ..KeepPeriods::default()
    };
    // 2027-01-03 was a Sunday, in the week that began in 2026.
    let hours = [
        "2027-01-04T00",
        "2027-01-03T23",
        "2026-12-28T00",
        "2026-12-27T23",
    ];

    let kept = by_calendar(periods, &hours);

    let expected = [
        ("2027-01-04t00".to_owned(), vec![Weekly, Yearly]),
        ("2027-01-03t23".to_owned(), vec![Weekly]),
        ("2026-12-28t00".to_owned(), vec![Yearly]),
    ];
    assert_eq!(kept, expected);
}

#[test]
fn a_snapshot_that_several_periods_ask_for_counts_for_each() {
    let periods = KeepPeriods {
        hourly: 2,
        daily: 2,
        monthly: 2,
        ..KeepPeriods::default()
    };
    let hours = [
        "2026-03-01T10",
        "2026-03-01T09",
        "2026-02-28T22",
        "2026-02-28T21",
        "2026-01-31T00",
    ];

    let kept = by_calendar(periods, &hours);

    let expected = [
        ("2026-03-01t10".to_owned(), vec![Hourly, Daily, Monthly]),
        ("2026-03-01t09".to_owned(), vec![Hourly]),
        ("2026-02-28t22".to_owned(), vec![Daily, Monthly]),
    ];
    assert_eq!(kept, expected);
    assert_eq!(
        KeepReason::Period { period: Daily }.to_string(),
        "daily snapshot"
    );
}

#[test]
fn a_small_old_snapshot_does_not_outlive_a_large_newer_one() {
    let mut all = [snapshot("new", 1), snapshot("large", 2), snapshot("old", 3)];
    all[1].bytes = 100;
    let policy = RetentionPolicy::Repository(Repository {
        max_bytes: Some(50),
        ..Repository::default()
    });

    assert_eq!(going(&policy, &all, &now()), ["large", "old"]);
}

#[test]
fn nothing_goes_because_of_its_age_while_the_clocks_disagree() {
    let policy = RetentionPolicy::AgeCountBytes(AgeCountBytes {
        per_group: 3,
        ..AgeCountBytes::default()
    });
    let all: Vec<Snapshot> = (1..=5)
        .map(|n| snapshot(&format!("s{n}"), n * 5 * DAY))
        .collect();
    let clocks = |store, on_doubt| Clocks {
        store: Some(at(store)),
        on_doubt,
        ..now()
    };
    let apart = clocks(NOW - HOUR, OnDoubt::RefuseAges);

    let judgement = judge(&policy, &all, &apart);

    let (local, store) = (at(NOW), at(NOW - HOUR));
    assert_eq!(judgement.clock, Some(ClockDoubt::Apart { local, store }));
    assert_eq!(judgement.verdicts[1].kept_because, [KeepReason::AgeRefused]);
    let gone: Vec<&str> = judgement.going().map(|gone| gone.id.as_str()).collect();
    assert_eq!(gone, ["s4", "s5"], "counting needs no clock");
    let believed = clocks(NOW - HOUR, OnDoubt::JudgeAnyway);
    assert_eq!(going(&policy, &all, &believed).len(), 4);
    let close = clocks(NOW + HOUR - 1, OnDoubt::RefuseAges);
    assert_eq!(going(&policy, &all, &close).len(), 4);
}

#[test]
fn nothing_goes_because_of_its_age_before_the_newest_was_made() {
    let policy = RetentionPolicy::Repository(Repository {
        keep_within: Some(Duration::from_hours(24)),
        ..Repository::default()
    });
    let mut all = vec![snapshot("s1", 0), snapshot("s2", 9 * DAY)];
    all[0].created = at(NOW + 1);

    let judgement = judge(&policy, &all, &now());

    assert!(judgement.going().next().is_none());
    let doubt = judgement.clock.unwrap().to_string();
    assert!(
        doubt.contains("but the newest snapshot was made at"),
        "{doubt}"
    );
}

#[test]
fn verdicts_are_told_in_words_and_as_data() {
    let limit = Duration::from_hours(48);
    let excess = Excess::TooOld { limit };

    let json = serde_json::to_value(excess).unwrap();

    assert_eq!(
        json,
        serde_json::json!({"reason": "too_old", "limit_s": 172_800})
    );
    assert_eq!(excess.to_string(), "it is older than 48 hours");
    let kept = serde_json::to_value(KeepReason::NewestVerified).unwrap();
    assert_eq!(kept, serde_json::json!({"reason": "newest_verified"}));
}

/// Often none, so that the other rules are seen alone.
fn any_periods() -> impl Strategy<Value = KeepPeriods> {
    let some = (0..4_u64, 0..4_u64, 0..4_u64, 0..4_u64, 0..4_u64);
    let some = some.prop_map(|(hourly, daily, weekly, monthly, yearly)| KeepPeriods {
        hourly,
        daily,
        weekly,
        monthly,
        yearly,
    });
    prop_oneof![Just(KeepPeriods::default()), some]
}

fn any_policy() -> impl Strategy<Value = RetentionPolicy> {
    let age = || (0..20 * DAY).prop_map(Duration::from_millis);
    let limits = (age(), 0..5_u64, 0..9_u64, 0..300_u64);
    let limits = limits.prop_map(|(max_age, per_group, in_all, max_bytes)| AgeCountBytes {
        max_age,
        per_group,
        in_all,
        max_bytes,
    });
    let asked = (
        prop::option::of(0..5_u64),
        prop::option::of(age()),
        any_periods(),
        prop::option::of(0..300_u64),
    );
    let asked = asked.prop_map(|(keep_last, keep_within, periods, max_bytes)| Repository {
        keep_last,
        keep_within,
        periods,
        max_bytes,
    });
    let newest = (0..5_u64, any_periods(), age());
    prop_oneof![
        Just(RetentionPolicy::KeepAll),
        Just(RetentionPolicy::KeepOne),
        limits.prop_map(RetentionPolicy::AgeCountBytes),
        (0..5_u64, 0..5_u64).prop_map(|(auto, named)| RetentionPolicy::Ring(Ring { auto, named })),
        newest.prop_map(
            |(keep, periods, keep_rolled_back)| RetentionPolicy::Newest(Newest {
                keep,
                periods,
                keep_rolled_back
            })
        ),
        (0..5_u64).prop_map(RetentionPolicy::MaxSnapshots),
        asked.prop_map(RetentionPolicy::Repository),
    ]
}

/// Moments that are likely to be equal, and some that no calendar knows.
fn any_moment() -> impl Strategy<Value = Timestamp> + Clone {
    prop_oneof![
        8 => (0..30_u64).prop_map(|days| at(NOW - days * DAY)),
        1 => Just(at(0)),
        1 => Just(at(u64::MAX)),
        1 => any::<u64>().prop_map(at),
    ]
}

fn ordinary_moment() -> impl Strategy<Value = Timestamp> + Clone {
    (0..30_u64).prop_map(|days| at(NOW - days * DAY))
}

fn snapshots(
    moment: impl Strategy<Value = Timestamp> + Clone,
) -> impl Strategy<Value = Vec<Snapshot>> {
    let flags = (
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.15),
        prop::bool::weighted(0.3),
        any::<bool>(),
    );
    let bytes = prop_oneof![9 => 0..90_u64, 1 => Just(u64::MAX)];
    let rolled = prop::option::weighted(0.2, moment.clone());
    let one = (moment, 0..3_usize, bytes, flags, rolled);
    let one = one.prop_map(|(created, group, bytes, flags, rolled_back_at)| Snapshot {
        created,
        bytes,
        active: flags.0,
        pinned: flags.1,
        verified: flags.2,
        origin: if flags.3 {
            SnapshotOrigin::Auto
        } else {
            SnapshotOrigin::Named
        },
        rolled_back_at,
        ..of_group(["", "a", "b"][group], "x", 0)
    });
    prop::collection::vec(one, 0..16).prop_map(|mut all| {
        for (number, snapshot) in all.iter_mut().enumerate() {
            // Ids that do not follow the order of creation.
            let number = number * 7 % 16;
            snapshot.id = format!("s{number:02}").parse().unwrap();
        }
        all
    })
}

fn any_clocks() -> impl Strategy<Value = Clocks> {
    let doubt = prop_oneof![Just(OnDoubt::RefuseAges), Just(OnDoubt::JudgeAnyway)];
    let clocks = (any_moment(), prop::option::of(any_moment()), doubt);
    clocks.prop_map(|(local, store, on_doubt)| Clocks {
        local,
        store,
        on_doubt,
    })
}

fn kept(policy: &RetentionPolicy, all: &[Snapshot], clocks: &Clocks) -> BTreeSet<Snapshot> {
    let verdicts = judge(policy, all, clocks).verdicts;
    let kept = verdicts.into_iter().filter(RetentionVerdict::is_kept);
    kept.map(|verdict| verdict.snapshot.clone()).collect()
}

fn protected(policy: &RetentionPolicy, all: &[Snapshot], clocks: &Clocks) -> BTreeSet<Snapshot> {
    let verdicts = judge(policy, all, clocks).verdicts.into_iter();
    let protected = verdicts.filter(|verdict| verdict.kept_because.iter().any(|r| r.protects()));
    protected.map(|verdict| verdict.snapshot.clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_must_stay_stays_whatever_the_policy_and_the_clock_say(
        policy in any_policy(), all in snapshots(any_moment()), clocks in any_clocks(),
    ) {
        let judgement = judge(&policy, &all, &clocks);

        prop_assert_eq!(judgement.verdicts.len(), all.len());
        for verdict in &judgement.verdicts {
            prop_assert_ne!(verdict.is_kept(), verdict.goes_because.is_some());
            prop_assert!(verdict.is_kept() || !(verdict.snapshot.active || verdict.snapshot.pinned));
        }
        let kept = kept(&policy, &all, &clocks);
        if let Some(newest) = all.iter().max() {
            prop_assert!(kept.contains(newest), "so not everything ever goes");
        }
        if let Some(verified) = all.iter().filter(|snapshot| snapshot.verified).max() {
            prop_assert!(kept.contains(verified));
        }
    }

    #[test]
    fn judging_again_what_was_kept_lets_nothing_more_go(
        policy in any_policy(), all in snapshots(any_moment()), clocks in any_clocks(),
    ) {
        let once = kept(&policy, &all, &clocks);
        let left: Vec<Snapshot> = once.iter().cloned().collect();

        prop_assert_eq!(kept(&policy, &left, &clocks), once);
    }

    #[test]
    fn the_order_in_which_snapshots_are_given_makes_no_difference(
        policy in any_policy(),
        (all, shuffled) in snapshots(any_moment()).prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        clocks in any_clocks(),
    ) {
        prop_assert_eq!(judge(&policy, &all, &clocks), judge(&policy, &shuffled, &clocks));
    }

    #[test]
    fn limits_are_met_unless_what_is_protected_forbids_it(
        policy in any_policy(), all in snapshots(any_moment()), clocks in any_clocks(),
    ) {
        let (kept, held) = (kept(&policy, &all, &clocks), protected(&policy, &all, &clocks));
        let judgement = judge(&policy, &all, &clocks);
        let bytes = |of: &BTreeSet<Snapshot>| of.iter().map(|s| s.bytes).fold(0, u64::saturating_add);
        let (per_group, in_all, max_bytes) = match &policy {
            RetentionPolicy::KeepOne => (1, u64::MAX, u64::MAX),
            RetentionPolicy::MaxSnapshots(limit) => (*limit, u64::MAX, u64::MAX),
            RetentionPolicy::AgeCountBytes(limits) => (limits.per_group, limits.in_all, limits.max_bytes),
            RetentionPolicy::Repository(asked) => (u64::MAX, u64::MAX, asked.max_bytes.unwrap_or(u64::MAX)),
            _ => (u64::MAX, u64::MAX, u64::MAX),
        };

        let mut excused = 0;
        for group in all.iter().map(|s| &s.group).collect::<BTreeSet<_>>() {
            let of = |set: &BTreeSet<Snapshot>| set.iter().filter(|s| s.group == *group).count() as u64;
            prop_assert!(of(&kept) <= per_group.max(of(&held)));
            excused += usize::from(of(&held) > per_group);
        }
        prop_assert!(kept.len() as u64 <= in_all.max(held.len() as u64));
        prop_assert!(bytes(&kept) <= max_bytes.max(bytes(&held)));
        excused += usize::from(held.len() as u64 > in_all) + usize::from(bytes(&held) > max_bytes);
        if !matches!(policy, RetentionPolicy::Ring(_)) {
            prop_assert_eq!(judgement.unmet.len(), excused, "each limit that is not met is said to be");
        }
    }

    #[test]
    fn a_ring_has_no_more_automatic_ones_than_slots(
        auto in 0..5_u64, all in snapshots(any_moment()), clocks in any_clocks(),
    ) {
        let policy = RetentionPolicy::Ring(Ring { auto, named: 12 });
        let (kept, held) = (kept(&policy, &all, &clocks), protected(&policy, &all, &clocks));

        for group in all.iter().map(|s| &s.group) {
            let mine = |s: &&Snapshot| s.group == *group && s.origin == SnapshotOrigin::Auto;
            let of = |set: &BTreeSet<Snapshot>| set.iter().filter(mine).count() as u64;
            prop_assert!(of(&kept) <= auto.max(of(&held)));
        }
        prop_assert!(all.iter().all(|s| s.origin == SnapshotOrigin::Auto || kept.contains(s)));
    }

    #[test]
    fn a_newer_snapshot_brings_none_of_its_group_back(
        policy in any_policy(), all in snapshots(ordinary_moment()), newcomer in snapshots(ordinary_moment()),
    ) {
        let Some(mut newcomer) = newcomer.first().cloned() else { return Ok(()) };
        (newcomer.created, newcomer.id) = (at(NOW), "zz".parse().unwrap());
        let mut more = all.clone();
        more.push(newcomer.clone());
        let (before, after) = (kept(&policy, &all, &now()), kept(&policy, &more, &now()));
        let mut back = after.difference(&before).filter(|s| **s != newcomer);

        // Where the newcomer takes a place itself, a protection that moves to it frees no other.
        let takes_a_place = match policy {
            RetentionPolicy::KeepAll | RetentionPolicy::KeepOne | RetentionPolicy::MaxSnapshots(_) | RetentionPolicy::Newest(_) => true,
            RetentionPolicy::Ring(_) => newcomer.origin == SnapshotOrigin::Auto,
            _ => false,
        };
        if takes_a_place {
            prop_assert_eq!(back.next(), None, "whatever lost its protection");
        } else if protected(&policy, &all, &now()).is_subset(&protected(&policy, &more, &now())) {
            prop_assert_eq!(back.find(|s| s.group == newcomer.group), None);
        }
    }

    #[test]
    fn more_periods_never_let_more_go(
        asked in (prop::option::of(0..5_u64), any_periods()), more in any_periods(), all in snapshots(any_moment()), clocks in any_clocks(),
    ) {
        let (keep_last, periods) = asked;
        let sum = KeepPeriods {
            hourly: periods.hourly + more.hourly,
            daily: periods.daily + more.daily,
            weekly: periods.weekly + more.weekly,
            monthly: periods.monthly + more.monthly,
            yearly: periods.yearly + more.yearly,
        };
        let policy = |periods| RetentionPolicy::Repository(Repository { keep_last, periods, ..Repository::default() });
        let (few, many) = (kept(&policy(periods), &all, &clocks), kept(&policy(sum), &all, &clocks));

        // Asking for nothing at all keeps everything.
        prop_assert!(few.is_subset(&many) || !(keep_last.is_some() || periods.is_any()));
    }

    #[test]
    fn of_every_period_that_is_kept_the_newest_is(
        daily in 1..5_u64, all in snapshots(ordinary_moment()),
    ) {
        let periods = KeepPeriods { daily, ..KeepPeriods::default() };
        let policy = RetentionPolicy::Repository(Repository { periods, ..Repository::default() });
        let kept = kept(&policy, &all, &now());

        for group in all.iter().map(|s| &s.group) {
            let mine = |s: &&Snapshot| s.group == *group;
            let days: BTreeSet<u64> = all.iter().filter(mine).map(|s| s.created.millis() / DAY).collect();
            for day in days.iter().rev().take(usize::try_from(daily).unwrap()) {
                let that_day = || all.iter().filter(mine).filter(|s| s.created.millis() / DAY == *day);
                let asked_for = that_day().filter(|s| s.origin == SnapshotOrigin::Named).max();
                let newest = asked_for.or_else(|| that_day().max());
                prop_assert!(newest.is_some_and(|newest| kept.contains(newest)));
            }
        }
    }

    #[test]
    fn doubt_about_the_clock_never_lets_more_go(
        policy in any_policy(), all in snapshots(any_moment()), local in any_moment(), store in any_moment(),
    ) {
        let clocks = |on_doubt| Clocks { local, store: Some(store), on_doubt };
        let judgement = judge(&policy, &all, &clocks(OnDoubt::RefuseAges));

        let counts_only = !matches!(policy, RetentionPolicy::AgeCountBytes(_) | RetentionPolicy::Repository(_) | RetentionPolicy::Newest(_));
        prop_assert!(judgement.clock.is_none() || !counts_only);
        if judgement.clock.is_some() {
            let gone_by_age = |v: &RetentionVerdict<'_>| matches!(v.goes_because, Some(Excess::TooOld { .. }));
            prop_assert!(!judgement.verdicts.iter().any(gone_by_age));
        }
    }
}
