//! The rules that change `latest.json`.

use super::*;
use crate::format::pointer::{PointerMark, REMOVAL_WINDOW, TOMBSTONE_REST};

fn on(pointer: impl Into<Option<Pointer>>, rule: &Op) -> Result<DocumentChange, Refusal> {
    step(&documents(None, pointer), rule, op(8), NOW)
}

#[test]
fn the_first_owner_creates_an_empty_pointer_with_its_fence() {
    let lease = fence(1, 7);

    let pointer = new_pointer(on(None, &Op::Fence { fence: lease }));

    assert_eq!((pointer.fence, pointer.active.clone()), (lease, None));
    assert_eq!(pointer.generation, Generation(1));
    assert!(pointer.remembers(op(7)));
}

#[test]
fn a_fence_replaces_only_an_older_one() {
    let ours = Op::Fence { fence: fence(5, 7) };
    let outrun = |by| Err(Refusal::Outrun { by });

    let written = new_pointer(on(pointing_at("s", fence(4, 1)), &ours));

    assert_eq!(written.fence, fence(5, 7));
    assert_eq!(written.active_archive(), Some(archive("s")));
    assert_eq!(on(written, &ours), Ok(DocumentChange::Already));
    assert_eq!(
        on(pointing_at("s", fence(5, 1)), &ours),
        outrun(fence(5, 1))
    );
    assert_eq!(
        on(pointing_at("s", fence(6, 1)), &ours),
        outrun(fence(6, 1))
    );
}

fn flip_from(base: Option<&str>) -> Op {
    Op::Publish {
        fence: fence(4, 1),
        base: base.map(archive),
        to: snapshot("new"),
    }
}

#[test]
fn a_flip_replaces_the_snapshot_that_was_loaded() {
    let before = pointing_at("s", fence(4, 1));

    let after = new_pointer(on(before.clone(), &flip_from(Some("s"))));

    assert_eq!(after.active, Some(snapshot("new")));
    assert_eq!(after.published_from, Some(archive("s")));
    assert_eq!((after.fence, after.op_id), (before.fence, op(8)));
    assert_eq!(after.generation, before.generation.next());
    assert!(after.remembers(op(8)));
}

#[test]
fn the_first_flip_of_a_lineage_needs_no_base() {
    let mut fenced = Pointer::empty();
    fenced.fence = fence(4, 1);

    let after = new_pointer(on(fenced, &flip_from(None)));

    assert_eq!(
        (after.active, after.published_from),
        (Some(snapshot("new")), None)
    );
}

#[test]
fn a_fresh_fallback_cannot_flip_over_an_existing_snapshot() {
    let (base, active) = (None, Some(archive("s")));

    let refused = on(pointing_at("s", fence(4, 1)), &flip_from(None));

    assert_eq!(refused, Err(Refusal::Diverged { base, active }));
}

#[test]
fn a_flip_from_another_snapshot_has_diverged() {
    let (base, active) = (Some(archive("s")), Some(archive("t")));

    let refused = on(pointing_at("t", fence(4, 1)), &flip_from(Some("s")));

    assert_eq!(refused, Err(Refusal::Diverged { base, active }));
}

#[test]
fn a_flip_under_another_fence_has_lost_the_lock_even_at_the_same_epoch() {
    for other in [fence(5, 2), fence(4, 2), fence(3, 1)] {
        let refused = on(pointing_at("s", other), &flip_from(Some("s")));

        assert_eq!(refused, Err(Refusal::LockLost(Lost::Fenced(other))));
    }
}

#[test]
fn a_flip_that_was_applied_is_recognised_whatever_came_after() {
    let flipped = new_pointer(on(pointing_at("s", fence(4, 1)), &flip_from(Some("s"))));
    let fenced = new_pointer(on(flipped, &Op::Fence { fence: fence(5, 2) }));

    assert_eq!(
        on(fenced, &flip_from(Some("s"))),
        Ok(DocumentChange::Already)
    );
}

#[test]
fn a_flip_needs_a_pointer_and_a_snapshot_that_was_not_deleted() {
    let mut marked = pointing_at("s", fence(4, 1));
    let mark = |text| PointerMark {
        sha256: archive(text),
        at_ms: NOW,
    };
    marked.tombstones.push(mark("new"));

    assert_eq!(on(None, &flip_from(Some("s"))), Err(Refusal::NoPointer));
    let refused = on(marked, &flip_from(Some("s")));
    assert_eq!(refused, Err(Refusal::Tombstoned(archive("new"))));
}

fn rollback(seen: Option<u64>) -> Op {
    Op::Rollback {
        to: snapshot("old"),
        seen: seen.map(Generation),
    }
}

#[test]
fn a_rollback_chooses_a_snapshot_and_fences_everybody() {
    let found = documents(held("w", fence(9, 2)), pointing_at("s", fence(4, 1)));

    let after = new_pointer(step(&found, &rollback(Some(1)), op(8), NOW));

    assert_eq!(after.active_archive(), Some(archive("old")));
    assert_eq!(after.fence, fence(10, 8));
    assert_eq!(after.rollbacks[0].sha256, archive("old"));
}

#[test]
fn a_rollback_forgets_older_ones_after_their_time() {
    let mut before = pointing_at("s", fence(4, 1));
    let long_ago = Timestamp::from_millis(0);
    before.rollbacks.push(PointerMark {
        sha256: archive("ancient"),
        at_ms: long_ago,
    });
    let later = long_ago.plus(ROLLBACK_MEMORY).plus(A_MILLISECOND);

    let after = new_pointer(step(
        &documents(None, before),
        &rollback(None),
        op(8),
        later,
    ));

    assert_eq!(after.rollbacks.len(), 1);
}

#[test]
fn a_rollback_is_refused_where_it_cannot_be_meant() {
    let pointer = pointing_at("s", fence(4, 1));
    let mut marked = pointer.clone();
    marked.tombstones.push(PointerMark {
        sha256: archive("old"),
        at_ms: NOW,
    });
    let (seen, found) = (Generation(7), Generation(1));

    let moved = on(pointer, &rollback(Some(7)));

    assert_eq!(moved, Err(Refusal::PointerMoved { seen, found }));
    assert_eq!(on(None, &rollback(None)), Err(Refusal::NoPointer));
    let deleted = on(marked, &rollback(None));
    assert_eq!(deleted, Err(Refusal::Tombstoned(archive("old"))));
}

fn unlock(found: &Documents) -> Result<DocumentChange, Refusal> {
    step(found, &Op::ForceUnlock { seen: fence(4, 1) }, op(8), NOW)
}

#[test]
fn a_force_unlock_fences_the_holder_and_leaves_the_snapshot() {
    let found = documents(held("w", fence(4, 1)), pointing_at("s", fence(4, 1)));

    let after = new_pointer(unlock(&found));

    assert_eq!(after.fence, fence(5, 8));
    assert_eq!(after.active_archive(), Some(archive("s")));
}

#[test]
fn a_force_unlock_before_the_holder_wrote_its_fence_creates_the_pointer() {
    let after = new_pointer(unlock(&documents(held("w", fence(4, 1)), None)));

    assert_eq!((after.fence, after.active), (fence(5, 8), None));
}

#[test]
fn a_force_unlock_never_throws_out_another_holder_than_the_one_seen() {
    let pointer = pointing_at("s", fence(4, 1));
    let (seen, found) = (fence(4, 1), fence(4, 2));

    let changed = unlock(&documents(held("new", found), pointer.clone()));
    let nobody = unlock(&documents(None, pointer.clone()));
    let free = unlock(&documents(freed_lock(seen), pointer));

    assert_eq!(changed, Err(Refusal::HolderChanged { seen, found }));
    assert_eq!(nobody, Err(Refusal::NotHeld));
    assert_eq!(free, Err(Refusal::NotHeld));
}

fn delete(text: &str, known: &[&str]) -> Op {
    Op::Delete {
        target: archive(text),
        known: known.iter().map(|text| archive(text)).collect(),
    }
}

#[test]
fn a_delete_marks_a_snapshot_once() {
    let rule = delete("old", &["old", "s"]);

    let after = new_pointer(on(pointing_at("s", fence(4, 1)), &rule));

    assert!(after.is_tombstoned(archive("old")));
    assert_eq!(after.fence, fence(4, 1));
    let again = step(&documents(None, after), &rule, op(9), NOW);
    assert_eq!(again, Ok(DocumentChange::Already));
}

#[test]
fn a_delete_spares_the_active_the_pinned_the_last_and_the_unknown() {
    let mut pointer = pointing_at("s", fence(4, 1));
    pointer.pins.push(PointerMark {
        sha256: archive("pinned"),
        at_ms: NOW,
    });
    let refused = |rule: &Op| on(pointer.clone(), rule).unwrap_err();

    let active = refused(&delete("s", &["s", "old"]));
    let pinned = refused(&delete("pinned", &["s", "pinned"]));
    let last = refused(&delete("old", &["old"]));
    let unknown = refused(&delete("never", &["s", "old"]));

    assert_eq!(active, Refusal::IsActive(archive("s")));
    assert_eq!(pinned, Refusal::IsPinned(archive("pinned")));
    assert_eq!(last, Refusal::IsLast(archive("old")));
    assert_eq!(unknown, Refusal::NoSuchSnapshot(archive("never")));
}

fn pin(text: &str, pinned: bool) -> Op {
    let target = archive(text);
    Op::Pin { target, pinned }
}

#[test]
fn a_pin_is_set_once_and_lifted_once() {
    let before = pointing_at("s", fence(4, 1));

    let pinned = new_pointer(on(before.clone(), &pin("old", true)));
    let lifted = step(
        &documents(None, pinned.clone()),
        &pin("old", false),
        op(9),
        NOW,
    );

    assert!(pinned.is_pinned(archive("old")));
    assert_eq!(
        (pinned.fence, &pinned.active),
        (before.fence, &before.active)
    );
    assert!(!new_pointer(lifted).is_pinned(archive("old")));
    assert_eq!(on(before, &pin("old", false)), Ok(DocumentChange::Already));
    let again = step(&documents(None, pinned), &pin("old", true), op(9), NOW);
    assert_eq!(again, Ok(DocumentChange::Already));
}

#[test]
fn a_deleted_snapshot_cannot_be_pinned() {
    let rule = delete("old", &["old", "s"]);
    let deleted = new_pointer(on(pointing_at("s", fence(4, 1)), &rule));

    let refused = step(&documents(None, deleted), &pin("old", true), op(9), NOW);

    assert_eq!(refused, Err(Refusal::Tombstoned(archive("old"))));
}

#[test]
fn a_pointer_holds_only_so_many_marks() {
    let mut full = pointing_at("s", fence(4, 1));
    let mark = |number: usize| PointerMark {
        sha256: archive(&number.to_string()),
        at_ms: NOW,
    };
    full.pins = (0..MARK_LIMIT).map(mark).collect();
    full.tombstones.clone_from(&full.pins);
    full.pins[0].sha256 = archive("other");

    let pins = on(full.clone(), &pin("old", true));
    let tombstones = on(full, &delete("old", &["old", "s"]));

    assert_eq!(pins, Err(Refusal::Full { what: "pins" }));
    assert_eq!(tombstones, Err(Refusal::Full { what: "tombstones" }));
}

#[test]
fn a_document_without_a_pointer_takes_no_marks() {
    assert_eq!(on(None, &pin("s", true)), Err(Refusal::NoPointer));
    let refused = on(None, &delete("s", &["s", "t"]));
    assert_eq!(refused, Err(Refusal::NoPointer));
}

#[test]
fn refusals_say_what_they_mean() {
    let (base, active) = (None, Some(archive("s")));
    let prefix = archive("s").prefix();

    let diverged = Refusal::Diverged { base, active }.to_string();
    let held = Refusal::Held(Box::new(held("run-1", fence(4, 1)))).to_string();

    let expected = format!("the active snapshot is {prefix}, not the base no snapshot");
    assert_eq!(diverged, expected);
    assert_eq!(held, "held by run `run-1` on `host`");
}

fn forget(text: &str) -> Op {
    let gone = with_tombstone(text).tombstones;
    Op::Forget { gone }
}

fn with_tombstone(text: &str) -> Pointer {
    let mut pointer = pointing_at("s", fence(4, 1));
    pointer.tombstones.push(PointerMark {
        sha256: archive(text),
        at_ms: NOW,
    });
    pointer
}

#[test]
fn a_mark_is_dropped_and_whoever_saw_the_bytes_can_never_flip_to_them() {
    let given_back = super::super::lock::release(
        &documents(held("w", fence(4, 1)), None),
        fence(4, 1),
        op(7),
        NOW,
    );
    let found = documents(new_lock(given_back), with_tombstone("old"));

    let after = new_pointer(step(&found, &forget("old"), op(8), NOW));

    assert!(!after.is_tombstoned(archive("old")));
    assert_eq!(after.fence, fence(5, 8));
    assert_eq!(after.active_archive(), Some(archive("s")));
    let late = Op::Publish {
        fence: fence(4, 1),
        base: Some(archive("s")),
        to: snapshot("old"),
    };
    let refused = step(&documents(None, after.clone()), &late, op(9), NOW);
    assert_eq!(refused, Err(Refusal::LockLost(Lost::Fenced(fence(5, 8)))));
    let again = step(&documents(None, after), &forget("old"), op(9), NOW);
    assert_eq!(again, Ok(DocumentChange::Already));
}

#[test]
fn no_mark_is_dropped_while_somebody_owns_the_lineage_or_may_come_back() {
    for lock in [held("w", fence(4, 1)), freed_lock(fence(4, 1))] {
        let found = documents(lock.clone(), with_tombstone("old"));

        let refused = step(&found, &forget("old"), op(8), NOW);

        assert_eq!(refused, Err(Refusal::Held(Box::new(lock))));
    }
    // Whoever becomes the owner after the pointer was read makes the write fail.
    assert_eq!(forget("old").reads(), [Doc::Pointer, Doc::Lock]);
}

#[test]
fn a_mark_that_was_dated_since_it_was_read_is_not_dropped() {
    let read = forget("old");
    let later = NOW.plus(TOMBSTONE_FRESH);
    let again = delete("old", &[]);

    let fresh = step(&documents(None, with_tombstone("old")), &again, op(8), NOW);
    let found = documents(None, with_tombstone("old"));
    let dated = new_pointer(step(&found, &again, op(8), later));

    assert_eq!(fresh, Ok(DocumentChange::Already));
    assert_eq!(dated.tombstones.len(), 1);
    assert_eq!(dated.tombstones[0].at_ms, later);
    assert_eq!(dated.fence, fence(4, 1));
    let found = documents(None, dated);
    assert_eq!(
        step(&found, &read, op(9), later),
        Ok(DocumentChange::Already)
    );
    // A mark that is gone is not set anew by somebody who only meant to date it.
    let unmarked = documents(None, pointing_at("s", fence(4, 1)));
    let refused = step(&unmarked, &again, op(9), later);
    assert_eq!(refused, Err(Refusal::NoSuchSnapshot(archive("old"))));
}

#[test]
fn a_mark_is_spent_only_when_what_it_let_be_sent_has_had_half_a_day_to_arrive() {
    let mark = &with_tombstone("old").tombstones[0];
    let last_sent = NOW.plus(REMOVAL_WINDOW).minus(Duration::from_millis(1));
    let half_a_day = TOMBSTONE_REST.saturating_sub(REMOVAL_WINDOW);

    assert!(mark.lets_remove(last_sent) && !mark.lets_remove(NOW.plus(REMOVAL_WINDOW)));
    assert!(!mark.is_spent(last_sent.plus(half_a_day)));
    assert!(mark.is_spent(NOW.plus(TOMBSTONE_REST)));
}

#[test]
fn what_a_check_found_is_recorded_once_and_the_last_one_counts() {
    let found = |pointer: &Pointer| Documents {
        lock: None,
        pointer: Some(pointer.clone()),
    };
    let check = |pointer: &Pointer, text: &str, sound| {
        let target = archive(text);
        step(&found(pointer), &Op::Check { target, sound }, op(40), NOW)
    };
    let pointer = pointing_at("a", fence(1, 1));
    assert!(pointer.is_proven(archive("a"), Some(NOW)), "by its save");
    assert!(
        !pointer.is_proven(archive("a"), None),
        "being active proves nothing"
    );

    let Ok(DocumentChange::Pointer(damaged)) = check(&pointer, "a", false) else {
        panic!("it is recorded")
    };
    assert!(!damaged.is_proven(archive("a"), Some(NOW)));
    assert_eq!(check(&damaged, "a", false), Ok(DocumentChange::Already));
    let again = step(
        &found(&damaged),
        &Op::Check {
            target: archive("a"),
            sound: true,
        },
        op(41),
        NOW,
    );
    let Ok(DocumentChange::Pointer(sound)) = again else {
        panic!("it is recorded")
    };
    assert!(sound.is_proven(archive("a"), None));
    assert_eq!(sound.checks.len(), 1);
    assert_eq!(sound.active, pointer.active);
    assert_eq!(sound.fence, pointer.fence);
}

#[test]
fn a_pointer_holds_so_many_findings_and_the_oldest_go() {
    let mut pointer = pointing_at("a", fence(1, 1));
    for number in 0..=CHECK_LIMIT {
        let found = Documents {
            lock: None,
            pointer: Some(pointer.clone()),
        };
        let target = archive(&number.to_string());
        let op_id = OpId::from_random(u128::to_be_bytes(number as u128 + 1000));
        let Ok(DocumentChange::Pointer(next)) = step(
            &found,
            &Op::Check {
                target,
                sound: true,
            },
            op_id,
            NOW,
        ) else {
            panic!("it is recorded")
        };
        pointer = next;
    }

    assert_eq!(pointer.checks.len(), CHECK_LIMIT);
    assert!(pointer.finding(archive("0")).is_none());
    assert!(pointer.finding(archive("1")).is_some());
}
