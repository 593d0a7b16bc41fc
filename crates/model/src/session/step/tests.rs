use super::*;
use crate::digest::TreeDigest;
use proptest::prelude::*;

const HOUR: u64 = 3_600_000;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn op(number: u8) -> OpId {
    OpId::from_random([number; 16])
}

fn place(host: &str) -> SessionPlace {
    SessionPlace {
        host: host.parse().unwrap(),
        dir: "/srv/42".to_owned(),
    }
}

fn registration() -> Registration {
    Registration {
        session: "acme/42".parse().unwrap(),
        place: place("one"),
        roots: None,
        sandbox: None,
        idle_timeout: None,
    }
}

fn running(now: u64) -> SessionDocument {
    SessionDocument::register(None, &registration(), at(now), op(1)).unwrap()
}

fn who(by: &str, now: u64) -> ClaimRequest {
    ClaimRequest {
        by: by.parse().unwrap(),
        now: at(now),
        ttl: Duration::from_secs(1),
    }
}

fn snapshot() -> DurableSnapshot {
    DurableSnapshot {
        snapshot_id: "s1".parse().unwrap(),
        state_digest: TreeDigest::from_document([7; 32]),
        bytes: 1,
        entries: 1,
        at: at(1),
    }
}

fn asleep() -> SessionDocument {
    let noted = running(0).note_snapshot(&snapshot(), op(2)).unwrap();
    let claimed = noted
        .claim_sleep(&who("reaper", HOUR), SleepReason::Idle, op(3))
        .unwrap();
    claimed
        .slept(claimed.attempt, &SleepEnding::Asleep, op(4))
        .unwrap()
}

#[test]
fn a_session_sleeps_when_it_is_idle_and_wakes_elsewhere() {
    let asleep = asleep();
    assert_eq!(asleep.state, SessionState::Sleeping);
    assert_eq!(asleep.snapshot, Some(snapshot()));
    assert!(asleep.to_prune, "nobody has said that nothing is left");
    let kept = snapshot().snapshot_id;
    assert!(!asleep.pruned(&kept, op(7)).unwrap().to_prune);
    assert!(
        asleep
            .pruned(&"another".parse().unwrap(), op(7))
            .unwrap()
            .to_prune
    );

    let waking = asleep.begin_wake(&who("two", HOUR), op(5)).unwrap();
    let awake = waking
        .woken(waking.attempt, (&place("two"), None), at(HOUR + 5), op(6))
        .unwrap();

    assert_eq!(awake.state, SessionState::Running);
    assert_eq!(awake.place, place("two"));
    assert!(!awake.is_idle(at(2 * HOUR)));
    assert!(awake.is_idle(at(2 * HOUR + 5)));
    assert_eq!(
        awake.snapshot,
        Some(snapshot()),
        "it is still what there is"
    );
}

#[test]
fn a_heartbeat_before_the_claim_refuses_it_and_one_after_it_is_refused() {
    let idle = running(0);
    let beaten = idle.heartbeat(at(HOUR), op(2)).unwrap();
    let refused = beaten.claim_sleep(&who("reaper", HOUR), SleepReason::Idle, op(3));
    assert!(matches!(refused, Err(SessionRefusal::InUse { .. })));

    let claimed = idle
        .claim_sleep(&who("reaper", HOUR), SleepReason::Idle, op(3))
        .unwrap();
    let late = claimed.heartbeat(at(HOUR + 1), op(4)).unwrap_err();
    assert!(matches!(late, SessionRefusal::Claimed { .. }), "{late}");
    assert_eq!(late.kind(), ErrorKind::Conflict);
    // Whoever claimed it ends nothing once that has expired: it is alive.
    let revoked = claimed.heartbeat(at(HOUR + 1_000), op(5)).unwrap();
    assert_eq!(revoked.claim, None);
    let superseded = revoked.slept(claimed.attempt, &SleepEnding::Asleep, op(6));
    assert!(matches!(superseded, Err(SessionRefusal::Superseded { .. })));
}

#[test]
fn somebody_may_put_it_to_sleep_who_does_not_wait() {
    let claimed = running(0).claim_sleep(&who("me", 1), SleepReason::Asked, op(2));
    assert!(claimed.is_ok());
}

#[test]
fn a_second_wake_waits_for_the_first_and_takes_over_when_that_has_expired() {
    let asleep = asleep();
    let first = asleep.begin_wake(&who("one", HOUR), op(5)).unwrap();

    let second = first.begin_wake(&who("two", HOUR + 1), op(6));
    assert!(matches!(second, Err(SessionRefusal::Claimed { .. })));
    let over = first.begin_wake(&who("two", HOUR + 1_000), op(7)).unwrap();

    let problem = SessionProblem::new(SessionTrouble::WakeFailed, "no", at(HOUR));
    let late = over.woken(
        first.attempt,
        (&place("two"), None),
        at(HOUR + 1_001),
        op(8),
    );
    assert!(matches!(late, Err(SessionRefusal::Superseded { .. })));
    assert!(over.wake_failed(first.attempt, &problem, op(8)).is_err());
    let failed = over.wake_failed(over.attempt, &problem, op(9)).unwrap();
    assert_eq!(failed.state, SessionState::Failed);
    assert_eq!(failed.snapshot, Some(snapshot()));
    assert!(failed.begin_wake(&who("one", HOUR + 1_001), op(10)).is_ok());
}

#[test]
fn a_running_session_is_not_woken_and_a_sleeping_one_not_registered_over() {
    let twice = running(0).begin_wake(&who("two", 1), op(2));
    assert!(matches!(twice, Err(SessionRefusal::Running { .. })));
    let again = SessionDocument::register(Some(&asleep()), &registration(), at(HOUR), op(9));
    assert!(matches!(again, Err(SessionRefusal::HasSnapshot { .. })));
    let elsewhere = Registration {
        place: place("two"),
        ..registration()
    };
    let moved = SessionDocument::register(Some(&running(0)), &elsewhere, at(1), op(2));
    assert!(matches!(moved, Err(SessionRefusal::Running { .. })));
    let same = SessionDocument::register(Some(&running(0)), &registration(), at(7), op(2));
    assert_eq!(same.unwrap().heartbeat_at, at(7));
}

#[test]
fn a_deleted_session_begins_again_and_an_old_attempt_does_not_reach_it() {
    let waking = asleep().begin_wake(&who("one", HOUR), op(5)).unwrap();
    let deleted = waking.delete(at(HOUR + 1_000), op(6)).unwrap();

    assert!(deleted.heartbeat(at(HOUR + 1_001), op(7)).is_err());
    let new = SessionDocument::register(Some(&deleted), &registration(), at(2 * HOUR), op(8));
    let new = new.unwrap();

    assert_eq!(new.snapshot, None);
    assert!(
        new.woken(waking.attempt, (&place("two"), None), at(2 * HOUR), op(9))
            .is_err()
    );
    assert!(new.generation > deleted.generation);
}

#[test]
fn what_is_said_of_a_problem_is_fit_to_be_kept() {
    let said = format!("a\nb\u{202e}{}", "x".repeat(500));
    let problem = SessionProblem::new(SessionTrouble::SnapshotFailed, &said, at(1));
    assert!(problem.message.as_str().starts_with("a b"));
}

/// What somebody does to a session.
#[derive(Clone, Copy, Debug)]
enum Move {
    Pass(u16),
    Beat,
    Claim(usize),
    Kill(usize),
    Slept(usize),
    GiveUp(usize),
    Wake(usize),
    Woken(usize),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let who = 0..2_usize;
    let one = prop_oneof![
        (1..3_000_u16).prop_map(Move::Pass),
        Just(Move::Beat),
        who.clone().prop_map(Move::Claim),
        who.clone().prop_map(Move::Kill),
        who.clone().prop_map(Move::Slept),
        who.clone().prop_map(Move::GiveUp),
        who.clone().prop_map(Move::Wake),
        who.prop_map(Move::Woken),
    ];
    proptest::collection::vec(one, 1..60)
}

proptest! {
    /// Two hosts put to sleep and wake, and a user beats: whoever obeys its claim's deadline never ends a sandbox after a heartbeat that
    /// was acknowledged, nor one that somebody else has woken since.
    #[test]
    fn nobody_ends_what_is_in_use(all in moves()) {
        let mut session = running(0);
        session.idle_timeout_ms = 2_000;
        let mut now = 0_u64;
        let mut number = 10_u8;
        let mut holds: [Option<SessionClaim>; 2] = [None, None];
        let mut last_sign_of_life = 0_u64;
        for one in all {
            number = number.wrapping_add(1);
            let id = op(number);
            match one {
                Move::Pass(millis) => now += u64::from(millis),
                Move::Beat => {
                    if let Ok(next) = session.heartbeat(at(now), id) {
                        session = next;
                        last_sign_of_life = now;
                    }
                }
                Move::Claim(who_am_i) => {
                    let by = who(["one", "two"][who_am_i], now);
                    if let Ok(next) = session.claim_sleep(&by, SleepReason::Idle, id) {
                        holds[who_am_i] = next.claim.clone();
                        session = next;
                    }
                }
                Move::Kill(who_am_i) => {
                    let own = holds[who_am_i].as_ref();
                    let mine = own.filter(|claim| claim.act == SessionAct::Sleep && at(now) < claim.expires_at);
                    if let Some(claim) = mine {
                        let idle_from = at(last_sign_of_life).plus(Duration::from_secs(2));
                        prop_assert!(
                            idle_from <= claim.at,
                            "ended at {now} what was alive at {last_sign_of_life}"
                        );
                    }
                }
                Move::Slept(who_am_i) => {
                    let attempt = holds[who_am_i].take().map_or(0, |claim| claim.attempt);
                    if let Ok(next) = session.slept(attempt, &SleepEnding::Asleep, id) {
                        prop_assert!(session.claim.is_some());
                        session = next;
                    }
                }
                Move::GiveUp(who_am_i) => {
                    let attempt = holds[who_am_i].take().map_or(0, |claim| claim.attempt);
                    if let Ok(next) = session.sleep_given_up(attempt, None, id) {
                        session = next;
                    }
                }
                Move::Wake(who_am_i) => {
                    let by = who(["one", "two"][who_am_i], now);
                    if let Ok(next) = session.begin_wake(&by, id) {
                        holds[who_am_i] = next.claim.clone();
                        session = next;
                    }
                }
                Move::Woken(who_am_i) => {
                    let attempt = holds[who_am_i].take().map_or(0, |claim| claim.attempt);
                    if let Ok(next) = session.woken(attempt, (&place("two"), None), at(now), id) {
                        session = next;
                        last_sign_of_life = now;
                    }
                }
            }
            let live = holds.iter().flatten().filter(|claim| at(now) < claim.expires_at);
            prop_assert!(live.count() <= 1, "two act on one session at a time");
        }
    }
}
