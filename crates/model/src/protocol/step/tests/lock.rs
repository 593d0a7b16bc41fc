//! The rules that change `lock.json`.

use super::*;
use crate::format::lease::LockState;

fn take(found: &Documents, now: Timestamp) -> Result<DocumentChange, Refusal> {
    let take = Op::Take {
        holder: holder("new"),
        ttl: TTL,
    };
    step(found, &take, op(7), now)
}

#[test]
fn an_empty_lineage_is_taken_at_epoch_one() {
    let lock = new_lock(take(&Documents::default(), NOW));

    assert_eq!(lock.fence(), fence(1, 7));
    assert_eq!(
        (lock.state, lock.generation),
        (LockState::Held, Generation(1))
    );
    assert_eq!((lock.acquired_at, lock.expires_at), (NOW, NOW.plus(TTL)));
    assert_eq!(lock.holder, holder("new"));
}

#[test]
fn a_held_lock_is_refused_with_its_holder_to_the_last_millisecond() {
    let lock = held("old", fence(4, 1));
    let found = documents(lock.clone(), pointing_at("s", fence(4, 1)));

    let refused = take(&found, lock.expires_at);

    assert_eq!(refused, Err(Refusal::Held(Box::new(lock))));
}

#[test]
fn an_expired_lock_is_taken_over_above_its_epoch() {
    let lock = held("old", fence(4, 1));
    let found = documents(lock.clone(), pointing_at("s", fence(4, 1)));

    let taken = new_lock(take(&found, lock.expires_at.plus(A_MILLISECOND)));

    assert_eq!(taken.fence(), fence(5, 7));
    assert_eq!(taken.generation, lock.generation.next());
    assert_eq!(taken.renewal_count, 0);
}

#[test]
fn a_free_lock_is_taken_at_once_and_above_the_fence() {
    let found = documents(freed_lock(fence(4, 1)), pointing_at("s", fence(9, 2)));

    assert_eq!(new_lock(take(&found, NOW)).fence(), fence(10, 7));
}

#[test]
fn a_forced_lock_is_taken_at_once() {
    let mut lock = held("operator", fence(4, 1));
    lock.state = LockState::Forced;

    let pointer = pointing_at("s", fence(4, 1));
    let taken = new_lock(take(&documents(lock, pointer), NOW));

    assert_eq!((taken.fence(), taken.state), (fence(5, 7), LockState::Held));
}

#[test]
fn a_lost_answer_to_taking_is_recognised_by_its_operation() {
    let found = documents(held("new", fence(5, 7)), pointing_at("s", fence(4, 1)));

    assert_eq!(take(&found, NOW), Ok(DocumentChange::Already));
}

#[test]
fn a_lock_of_ours_that_a_fence_has_passed_is_taken_again_higher() {
    let found = documents(held("new", fence(5, 7)), pointing_at("s", fence(5, 2)));

    assert_eq!(new_lock(take(&found, NOW)).fence(), fence(6, 7));
}

fn renew(found: &Documents) -> Result<DocumentChange, Refusal> {
    let renew = Op::Renew {
        fence: fence(4, 1),
        ttl: TTL,
    };
    step(found, &renew, op(8), NOW.plus(GRACE))
}

#[test]
fn a_renewal_prolongs_the_lease_and_counts() {
    let lock = held("old", fence(4, 1));

    let renewed = new_lock(renew(&documents(
        lock.clone(),
        pointing_at("s", fence(4, 1)),
    )));

    assert_eq!(renewed.expires_at, NOW.plus(GRACE).plus(TTL));
    assert_eq!(
        (renewed.renewal_count, renewed.renewed_at),
        (1, NOW.plus(GRACE))
    );
    assert_eq!((renewed.fence(), renewed.acquired_at), (lock.fence(), NOW));
}

#[test]
fn a_lost_answer_to_a_renewal_is_recognised_by_its_operation() {
    let mut lock = held("old", fence(4, 1));
    lock.write_id = op(8);

    let again = renew(&documents(lock, pointing_at("s", fence(4, 1))));

    assert_eq!(again, Ok(DocumentChange::Already));
}

#[test]
fn a_renewal_after_an_eviction_is_told_that_the_lock_is_lost() {
    let ours = pointing_at("s", fence(4, 1));
    let lost = |lost| Err(Refusal::LockLost(lost));

    let gone = renew(&documents(None, ours.clone()));
    let taken = renew(&documents(held("new", fence(5, 2)), ours.clone()));
    let same_number = renew(&documents(held("new", fence(4, 2)), ours));
    let fenced = renew(&documents(
        held("old", fence(4, 1)),
        pointing_at("s", fence(5, 2)),
    ));

    assert_eq!(gone, lost(Lost::NoLock));
    assert_eq!(taken, lost(Lost::TakenOver(fence(5, 2))));
    assert_eq!(same_number, lost(Lost::TakenOver(fence(4, 2))));
    assert_eq!(fenced, lost(Lost::Fenced(fence(5, 2))));
}

#[test]
fn a_renewal_of_a_forced_lock_is_told_that_the_lock_is_lost() {
    let mut lock = held("operator", fence(4, 1));
    lock.state = LockState::Forced;

    let lost = renew(&documents(lock, pointing_at("s", fence(4, 1))));

    assert_eq!(lost, Err(Refusal::LockLost(Lost::TakenOver(fence(4, 1)))));
}

#[test]
fn a_lock_that_only_the_reaper_took_comes_back_to_its_holder() {
    let found = documents(freed_lock(fence(4, 1)), pointing_at("s", fence(4, 1)));

    let renewed = new_lock(renew(&found));

    assert_eq!(
        (renewed.state, renewed.fence()),
        (LockState::Held, fence(4, 1))
    );
}

fn release(lock: impl Into<Option<Lock>>) -> Result<DocumentChange, Refusal> {
    let release = Op::Release { fence: fence(4, 1) };
    step(&documents(lock, None), &release, op(8), NOW)
}

#[test]
fn a_release_frees_the_lock_and_keeps_its_epoch() {
    let freed = new_lock(release(held("old", fence(4, 1))));

    assert_eq!((freed.state, freed.fence()), (LockState::Free, fence(4, 1)));
    assert!(!freed.is_live(NOW));
    assert_eq!(freed.expires_at, NOW);
}

#[test]
fn a_release_of_a_free_lock_is_done_already() {
    assert_eq!(
        release(freed_lock(fence(4, 1))),
        Ok(DocumentChange::Already)
    );
}

#[test]
fn a_release_never_frees_somebody_elses_lease() {
    let lost = |fence| Err(Refusal::LockLost(Lost::TakenOver(fence)));
    let mut forced = held("operator", fence(4, 1));
    forced.state = LockState::Forced;

    assert_eq!(release(held("new", fence(5, 2))), lost(fence(5, 2)));
    assert_eq!(release(held("new", fence(4, 2))), lost(fence(4, 2)));
    assert_eq!(release(forced), lost(fence(4, 1)));
    assert_eq!(release(None), Err(Refusal::LockLost(Lost::NoLock)));
}

fn reap(lock: impl Into<Option<Lock>>, now: Timestamp) -> Result<DocumentChange, Refusal> {
    step(
        &documents(lock, None),
        &Op::Reap { grace: GRACE },
        op(8),
        now,
    )
}

#[test]
fn the_reaper_evicts_a_lock_that_is_past_its_grace() {
    let lock = held("dead", fence(4, 1));
    let past = lock.expires_at.plus(GRACE).plus(A_MILLISECOND);

    let freed = new_lock(reap(lock.clone(), past));

    assert_eq!(
        (freed.state, freed.fence()),
        (LockState::Free, lock.fence())
    );
    assert_eq!(freed.generation, lock.generation.next());
    assert_eq!(freed.expires_at, lock.expires_at);
}

#[test]
fn the_reaper_leaves_a_fresh_lock_alone() {
    let lock = held("alive", fence(4, 1));

    let within_grace = reap(lock.clone(), lock.expires_at.plus(GRACE));
    let fresh = reap(lock, NOW);

    assert_eq!(within_grace, Err(Refusal::NotExpired));
    assert_eq!(fresh, Err(Refusal::NotExpired));
}

#[test]
fn the_reaper_has_nothing_to_do_where_nobody_holds() {
    assert_eq!(reap(None, NOW), Err(Refusal::NotHeld));
    assert_eq!(reap(freed_lock(fence(4, 1)), NOW), Err(Refusal::NotHeld));
}

#[test]
fn a_lost_answer_to_reaping_is_recognised_by_its_operation() {
    let mut lock = freed_lock(fence(4, 1));
    lock.write_id = op(8);

    assert_eq!(reap(lock, NOW), Ok(DocumentChange::Already));
}

fn mark(lock: impl Into<Option<Lock>>) -> Result<DocumentChange, Refusal> {
    let mark = Op::MarkForced {
        fence: fence(6, 8),
        reason: label("stuck"),
        ttl: GRACE,
    };
    step(&documents(lock, None), &mark, op(8), NOW)
}

#[test]
fn a_forced_act_marks_the_lock_of_whoever_it_threw_out() {
    let marked = new_lock(mark(held("old", fence(4, 1))));

    assert_eq!(
        (marked.state, marked.fence()),
        (LockState::Forced, fence(6, 8))
    );
    assert_eq!(marked.holder.run_id.as_str(), OPERATOR);
    assert_eq!(marked.reason.as_str(), "stuck");
    assert_eq!(marked.expires_at, NOW.plus(GRACE));
}

#[test]
fn a_forced_act_leaves_locks_alone_that_it_does_not_concern() {
    assert_eq!(mark(None), Ok(DocumentChange::Already));
    assert_eq!(mark(freed_lock(fence(4, 1))), Ok(DocumentChange::Already));
    assert_eq!(mark(held("new", fence(6, 2))), Ok(DocumentChange::Already));
    assert_eq!(
        mark(held("newer", fence(7, 2))),
        Ok(DocumentChange::Already)
    );
}

#[test]
fn a_lease_that_was_given_back_cannot_be_renewed() {
    let lease = fence(4, 1);
    let given_back = match step(
        &documents(held("run", lease), None),
        &Op::Release { fence: lease },
        op(8),
        NOW,
    ) {
        Ok(DocumentChange::Lock(lock)) => lock,
        other => panic!("{other:?}"),
    };

    let renewed = step(
        &documents(given_back, None),
        &Op::Renew {
            fence: lease,
            ttl: TTL,
        },
        op(9),
        NOW,
    );

    assert_eq!(renewed, Err(Refusal::LockLost(Lost::GivenBack)));
}

#[test]
fn a_lock_that_only_an_owner_can_have_written_is_not_taken_without_its_pointer() {
    let taking = Op::Take {
        holder: holder("new"),
        ttl: TTL,
    };
    let taken = |lock: Lock| {
        let found = Documents {
            lock: Some(lock),
            pointer: None,
        };
        step(&found, &taking, op(7), NOW.plus(TTL).plus(TTL))
    };
    let died = held("first", fence(1, 1));
    let mut renewed = died.clone();
    renewed.renewal_count = 1;
    let mut given_back = freed_lock(fence(1, 1));
    given_back.released = true;
    let mut forced = died.clone();
    forced.state = LockState::Forced;

    for owned in [renewed, given_back, forced] {
        assert_eq!(taken(owned), Err(Refusal::PointerLost(Epoch(1))));
    }
    // A first owner that died between its two writes, also one that the reaper freed.
    for begun in [died, freed_lock(fence(3, 1))] {
        let Ok(DocumentChange::Lock(lock)) = taken(begun.clone()) else {
            panic!("{begun:?} can be taken")
        };
        assert_eq!(lock.epoch, begun.epoch.next());
    }
}
