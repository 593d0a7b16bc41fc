use super::manifests::{
    ListedManifest, ManifestFate, ManifestGc, ManifestGcAnswer, ManifestGcStep, Manifests,
};
use super::*;
use crate::chunk_name::{no_epoch, no_hash};
use crate::format::document::{self, Version, Versioned};
use crate::id::{Epoch, OpId};
use serde_json::{Value, json};

fn digest(text: &str) -> ChunkDigest {
    ChunkDigest::of(text.as_bytes())
}

fn epoch(number: usize) -> GcEpoch {
    (0..number).fold(GcEpoch::FIRST, |epoch, _| epoch.next())
}

fn chunk(text: &str, born: usize) -> ChunkName {
    ChunkName::new(digest(text), epoch(born))
}

fn names<const N: usize>(names: [ChunkName; N]) -> Names {
    names.into_iter().collect()
}

fn op(byte: u8) -> OpId {
    OpId::from_random([byte; 16])
}

/// A `gc.json` after `rounds` finished rounds, with a list in.
fn gc<const N: usize>(rounds: usize, condemned: [ChunkName; N]) -> GcState {
    let finished = (0..rounds).fold(GcState::empty(), |gc, _| gc.finish(op(0)));
    match N {
        0 => finished,
        _ => finished.condemn(op(9), names(condemned)),
    }
}

fn read(gc: GcState) -> GcAnswer {
    let version = Version::new(gc.generation.to_string());
    GcAnswer::Gc(Some(Versioned { value: gc, version }))
}

#[test]
fn a_chunk_has_exactly_one_spelling_for_each_birth() {
    let hex = digest("a").to_string();
    let (plain, tagged) = (format!("sha256:{hex}"), format!("sha256:{hex}.0000000c"));

    assert_eq!(chunk("a", 0).to_string(), plain);
    assert_eq!(chunk("a", 12).to_string(), tagged);
    assert_eq!(plain.parse(), Ok(chunk("a", 0)));
    assert_eq!(tagged.parse(), Ok(chunk("a", 12)));
}

#[test]
fn crafted_texts_are_not_chunk_names() {
    let hex = digest("a").to_string();
    for (text, why) in [
        (hex.clone(), no_hash()),
        (format!("SHA256:{hex}"), no_hash()),
        (format!("sha256:{hex}."), no_epoch()),
        (format!("sha256:{hex}.00000000"), no_epoch()),
        (format!("sha256:{hex}.0000000C"), no_epoch()),
        (format!("sha256:{hex}.+000000c"), no_epoch()),
        (format!("sha256:{hex}.c"), no_epoch()),
        (format!("sha256:{hex}.0000000c.1"), no_epoch()),
    ] {
        assert_eq!(text.parse::<ChunkName>(), Err(why), "{text}");
    }
    for text in ["sha256:../../x", "sha256:", "sha256:ab"] {
        let refused = text.parse::<ChunkName>().unwrap_err();
        let is_digest = refused.to_string() == "a chunk's name holds its digest";
        assert!(is_digest || refused == no_epoch(), "{refused}");
    }
}

/// What is read of what was written.
fn again(gc: &GcState) -> GcState {
    let document = document::parse(&document::render(&gc.document())).unwrap();
    GcState::read(document, &gc.list()).unwrap()
}

#[test]
fn gc_json_keeps_fields_it_does_not_know() {
    let text = json!({ "version": 1, "epoch": 3, "op_id": op(1), "generation": 7, "note": "kept" });
    let found: GcDocument = document::parse(text.to_string().as_bytes()).unwrap();
    let found = GcState::read(found, &[]).unwrap();

    let finished = found.finish(op(2)).document();
    let written: Value = serde_json::from_slice(&document::render(&finished)).unwrap();

    assert_eq!(written["note"], "kept");
    assert_eq!(
        (&written["epoch"], &written["generation"]),
        (&json!(4), &json!(8))
    );
    assert_eq!(written["condemned_sha256"], Value::Null);
}

#[test]
fn a_list_that_contradicts_itself_is_refused() {
    let (first, second) = {
        let sorted: Vec<_> = names([chunk("a", 0), chunk("b", 0)]).into_iter().collect();
        (sorted[0], sorted[1])
    };
    let list = |names: &[ChunkName]| -> Vec<u8> {
        let one = |name: &ChunkName| gc(8, [*name]).list();
        names.iter().flat_map(one).collect()
    };
    let many = list(&[first]).repeat(CONDEMNED_LIMIT + 1);
    let of_a_later_epoch = list(&[chunk("a", 5)]);
    for bad in [
        list(&[second, first]),
        list(&[first, first]),
        of_a_later_epoch,
        many,
        list(&[first])[1..].to_vec(),
    ] {
        assert!(GcState::read(gc(4, []).document(), &bad).is_err());
    }
    assert!(GcState::read(gc(4, []).document(), &list(&[first, second])).is_ok());
}

#[test]
fn the_longest_list_is_read_as_it_was_written() {
    let listed: Names = (0..CONDEMNED_LIMIT + 5)
        .map(|n| chunk(&n.to_string(), 1))
        .collect();
    let gc = gc(1, []);

    let condemned = mark(&listed, &Names::new(), &gc);
    let written = gc.condemn(op(1), condemned.clone());

    assert_eq!(condemned.len(), CONDEMNED_LIMIT);
    assert_eq!(written.list().len(), CONDEMNED_BYTES);
    assert_eq!(again(&written), written);
    let named = written.document().condemned_sha256;
    assert_ne!(named, None);
    assert_ne!(named, gc.document().condemned_sha256);
}

#[test]
fn a_save_uses_the_indexed_name_unless_it_is_condemned() {
    let old = chunk("a", 0);

    assert_eq!(place(digest("a"), Some(old), &gc(2, [])), old);
    assert_eq!(place(digest("a"), Some(old), &gc(2, [old])), chunk("a", 2));
    assert_eq!(place(digest("a"), None, &gc(2, [])), chunk("a", 2));
    assert_eq!(
        place(digest("a"), Some(chunk("b", 0)), &gc(2, [])),
        chunk("a", 2)
    );
}

#[test]
fn a_name_condemned_in_its_own_epoch_is_followed_by_one_of_the_next() {
    let condemning = gc(2, [chunk("a", 2)]);

    assert_eq!(newborn(digest("a"), &condemning), chunk("a", 3));
    assert_eq!(
        judge(&chunk("a", 3), epoch(2), &condemning),
        ChunkStatus::Proved
    );
    assert_eq!(
        judge(&chunk("a", 3), epoch(2), &gc(3, [])),
        ChunkStatus::Proved
    );
}

#[test]
fn an_epoch_that_went_by_makes_older_names_doubtful() {
    let used = names([chunk("a", 0), chunk("b", 1), chunk("c", 2)]);

    assert_eq!(
        before_publish(epoch(2), &gc(2, []), &used),
        PublishVerdict::Publish
    );
    assert_eq!(
        before_publish(epoch(1), &gc(2, []), &used),
        PublishVerdict::CheckIndexed {
            doubtful: names([chunk("a", 0), chunk("b", 1)]),
            condemned: Names::new(),
        }
    );
    assert_eq!(
        before_publish(epoch(2), &gc(2, [chunk("b", 1)]), &used),
        PublishVerdict::StoreAnew(names([chunk("b", 1)]))
    );
}

#[test]
fn only_unnamed_chunks_that_are_born_are_condemned() {
    let listed = names([chunk("a", 0), chunk("b", 1), chunk("c", 2)]);

    let condemned = mark(&listed, &names([chunk("a", 0)]), &gc(1, []));

    assert_eq!(condemned, names([chunk("b", 1)]));
    assert_eq!(unreferenced(&condemned, &condemned), Names::new());
}

#[test]
fn a_save_that_meets_no_gc_reads_twice_and_publishes() {
    let mut guard = SaveGuard::new();

    assert_eq!(guard.next(SaveAnswer::Begin), SaveStep::ReadGc);
    assert_eq!(guard.next(SaveAnswer::Gc(gc(0, []))), SaveStep::Gather);
    let gathered = SaveAnswer::Gathered(names([chunk("a", 0)]));
    assert_eq!(guard.next(gathered), SaveStep::PutManifest);
    assert_eq!(guard.next(SaveAnswer::Stored), SaveStep::ReadGc);
    assert_eq!(guard.next(SaveAnswer::Gc(gc(0, []))), SaveStep::Publish);
}

/// A save that has put a manifest of these names, having begun in epoch 0.
fn judging<const N: usize>(used: [ChunkName; N]) -> SaveGuard {
    let mut guard = SaveGuard::new();
    for answer in [
        SaveAnswer::Begin,
        SaveAnswer::Gc(gc(0, [])),
        SaveAnswer::Gathered(names(used)),
        SaveAnswer::Stored,
    ] {
        let _ = guard.next(answer);
    }
    guard
}

#[test]
fn a_save_stores_condemned_chunks_anew_and_proves_only_those_again() {
    let (a, b) = (chunk("a", 0), chunk("b", 0));
    let mut guard = judging([a, b]);

    let step = guard.next(SaveAnswer::Gc(gc(0, [a])));
    let to = chunk("a", 1);
    assert_eq!(step, SaveStep::StoreAnew(vec![Replacement { from: a, to }]));
    assert_eq!(guard.next(SaveAnswer::Stored), SaveStep::PutManifest);
    assert_eq!(guard.next(SaveAnswer::Stored), SaveStep::ReadGc);

    let rounds_later = guard.next(SaveAnswer::Gc(gc(1, [])));
    assert_eq!(rounds_later, SaveStep::Publish, "`b` was proved before");
}

#[test]
fn a_save_keeps_doubtful_names_only_if_the_index_has_them() {
    let (a, b) = (chunk("a", 0), chunk("b", 0));
    let mut guard = judging([a, b]);

    let step = guard.next(SaveAnswer::Gc(gc(1, [])));
    assert_eq!(step, SaveStep::CheckIndexed(names([a, b])));
    let step = guard.next(SaveAnswer::Indexed(names([a])));
    let to = chunk("b", 1);
    assert_eq!(step, SaveStep::StoreAnew(vec![Replacement { from: b, to }]));
    let _ = (
        guard.next(SaveAnswer::Stored),
        guard.next(SaveAnswer::Stored),
    );

    let next_epoch = guard.next(SaveAnswer::Gc(gc(2, [])));
    assert_eq!(next_epoch, SaveStep::CheckIndexed(names([a, to])));
    assert_eq!(
        guard.next(SaveAnswer::Indexed(names([a, to]))),
        SaveStep::ReadGc
    );
    assert_eq!(guard.next(SaveAnswer::Gc(gc(2, []))), SaveStep::Publish);
}

/// A save in epoch 0 that has put a provisional manifest of `so_far`.
fn provisional<const N: usize>(so_far: [ChunkName; N]) -> SaveGuard {
    let mut guard = SaveGuard::new();
    let _ = guard.next(SaveAnswer::Begin);
    let _ = guard.next(SaveAnswer::Gc(gc(0, [])));
    let step = guard.next(SaveAnswer::GatheredSoFar(names(so_far)));
    assert_eq!(step, SaveStep::PutManifest);
    assert_eq!(guard.next(SaveAnswer::Stored), SaveStep::ReadGc);
    guard
}

#[test]
fn what_a_provisional_manifest_proved_is_not_judged_again() {
    let (a, b) = (chunk("a", 0), chunk("b", 0));
    let mut guard = provisional([a]);

    assert_eq!(guard.next(SaveAnswer::Gc(gc(0, []))), SaveStep::Gather);
    let _ = guard.next(SaveAnswer::Gathered(names([a, b])));
    let _ = guard.next(SaveAnswer::Stored);
    let step = guard.next(SaveAnswer::Gc(gc(1, [])));

    assert_eq!(step, SaveStep::CheckIndexed(names([b])));
}

#[test]
fn what_a_long_save_leaves_out_is_not_proved_and_what_is_left_is_judged() {
    let (a, b, c) = (chunk("a", 0), chunk("b", 0), chunk("c", 0));
    let mut guard = provisional([a, b]);

    // `a` is condemned, `b` stands in a live donor.
    let step = guard.next(SaveAnswer::Gc(gc(1, [a])));
    assert_eq!(step, SaveStep::CheckIndexed(names([b])));
    let step = guard.next(SaveAnswer::Indexed(names([b])));
    let to = chunk("a", 1);
    assert_eq!(step, SaveStep::StoreAnew(vec![Replacement { from: a, to }]));
    assert_eq!(guard.next(SaveAnswer::LeftOut), SaveStep::ReadGc);
    assert_eq!(guard.next(SaveAnswer::Gc(gc(1, [a]))), SaveStep::Gather);

    // Each provisional manifest names only what is new; the last one need not name `b` again.
    let _ = guard.next(SaveAnswer::GatheredSoFar(names([c])));
    let _ = guard.next(SaveAnswer::Stored);
    let step = guard.next(SaveAnswer::Gc(gc(1, [a, c])));
    assert!(matches!(step, SaveStep::StoreAnew(_)), "{step:?}");
    assert_eq!(guard.next(SaveAnswer::LeftOut), SaveStep::Gather);

    let _ = guard.next(SaveAnswer::Gathered(names([a, b, c, to])));
    let _ = guard.next(SaveAnswer::Stored);
    let step = guard.next(SaveAnswer::Gc(gc(2, [])));
    assert_eq!(
        step,
        SaveStep::CheckIndexed(names([a, c, to])),
        "all but `b`"
    );
}

#[test]
fn a_provisional_manifest_that_was_not_judged_proves_nothing() {
    let (a, b) = (chunk("a", 0), chunk("b", 0));
    let mut guard = provisional([a]);
    assert_eq!(guard.next(SaveAnswer::Gc(gc(0, []))), SaveStep::Gather);
    let _ = guard.next(SaveAnswer::GatheredSoFar(names([b])));

    guard.go_on_without(&names([b]));

    let _ = guard.next(SaveAnswer::Gathered(names([a, b])));
    let _ = guard.next(SaveAnswer::Stored);
    let step = guard.next(SaveAnswer::Gc(gc(1, [])));
    assert_eq!(step, SaveStep::CheckIndexed(names([b])));
}

#[test]
fn the_end_of_a_save_leaves_nothing_out() {
    let mut guard = judging([chunk("a", 0)]);
    let step = guard.next(SaveAnswer::Gc(gc(0, [chunk("a", 0)])));
    assert!(matches!(step, SaveStep::StoreAnew(_)), "{step:?}");

    assert_eq!(guard.next(SaveAnswer::LeftOut), step);
}

#[test]
fn names_gathered_beside_a_provisional_manifest_are_as_old_as_the_save() {
    let (a, b) = (chunk("a", 0), chunk("b", 0));
    let mut guard = provisional([a]);

    let step = guard.next(SaveAnswer::Gc(gc(1, [])));
    assert_eq!(step, SaveStep::CheckIndexed(names([a])));
    let step = guard.next(SaveAnswer::Indexed(Names::new()));
    let to = chunk("a", 1);
    assert_eq!(step, SaveStep::StoreAnew(vec![Replacement { from: a, to }]));
    let _ = (
        guard.next(SaveAnswer::Stored),
        guard.next(SaveAnswer::Stored),
    );
    assert_eq!(guard.next(SaveAnswer::Gc(gc(1, []))), SaveStep::Gather);
    let _ = guard.next(SaveAnswer::Gathered(names([to, b])));
    let _ = guard.next(SaveAnswer::Stored);

    // `b` may have been chosen before the epoch moved, though `gc.json` was read since.
    let step = guard.next(SaveAnswer::Gc(gc(1, [])));
    assert_eq!(step, SaveStep::CheckIndexed(names([b])));
}

#[test]
fn a_save_gives_up_when_the_store_stays_silent() {
    let mut guard = judging([chunk("a", 0)]);

    let steps: Vec<_> = (0..3).map(|_| guard.next(SaveAnswer::Silence)).collect();

    let gave_up = SaveStep::GiveUp(GaveUp::Unreachable);
    assert_eq!(steps, [SaveStep::ReadGc, SaveStep::ReadGc, gave_up.clone()]);
    assert_eq!(guard.next(SaveAnswer::Gc(gc(0, []))), gave_up, "for good");
}

#[test]
fn a_save_that_gc_outruns_forever_gives_up() {
    let mut guard = judging([chunk("a", 0)]);
    let mut answers = 0;

    let gave_up = loop {
        answers += 1;
        let epoch = answers;
        match guard.next(SaveAnswer::Gc(gc(epoch, []))) {
            SaveStep::CheckIndexed(_) => {}
            other => break other,
        }
        if let SaveStep::GiveUp(why) = guard.next(SaveAnswer::Indexed(Names::new())) {
            break SaveStep::GiveUp(why);
        }
        let _ = (
            guard.next(SaveAnswer::Stored),
            guard.next(SaveAnswer::Stored),
        );
    };

    assert_eq!(gave_up, SaveStep::GiveUp(GaveUp::Outrun));
}

#[test]
fn a_round_asks_the_manifests_again_before_it_deletes() {
    let (a, b, c) = (chunk("a", 0), chunk("b", 0), chunk("c", 0));
    let mut round = GcRound::new(op(9));

    let _ = round.next(GcAnswer::Begin);
    assert_eq!(round.next(GcAnswer::Gc(None)), GcStep::ListChunks);
    let _ = round.next(GcAnswer::Listed(names([a, b, c])));
    let step = round.next(GcAnswer::Referenced(names([c])));
    let list = gc(0, [a, b]);
    let write = GcStep::Write {
        expected: None,
        gc: Box::new(list.clone()),
    };
    assert_eq!(step, write);
    let step = round.next(GcAnswer::Won);
    assert_eq!(step, GcStep::FindReferenced(names([a, b])));
    let step = round.next(GcAnswer::Referenced(names([b])));
    assert_eq!(step, GcStep::ReadGc);
    let step = round.next(read(list.clone()));
    assert_eq!(step, GcStep::Delete(names([a])));
    assert_eq!(round.next(GcAnswer::Deleted), GcStep::ReadGc);
    let finish = round.next(read(list.clone()));
    let gc = Box::new(list.finish(op(9)));
    let expected = Some(Version::new("1"));
    assert_eq!(finish, GcStep::Write { expected, gc });
    let GcStep::Done(report) = round.next(GcAnswer::Won) else {
        panic!("the round is over")
    };

    assert_eq!((report.deleted, report.preserved), (names([a]), names([b])));
    assert!(!report.resumed && !report.more);
}

#[test]
fn a_round_that_finds_a_list_finishes_it_first() {
    let a = chunk("a", 0);
    let mut round = GcRound::new(op(3));
    let _ = round.next(GcAnswer::Begin);

    let step = round.next(read(gc(0, [a])));
    assert_eq!(step, GcStep::FindReferenced(names([a])));
    let _ = round.next(GcAnswer::Referenced(Names::new()));
    let _ = round.next(read(gc(0, [a])));
    let _ = round.next(GcAnswer::Deleted);
    let done = round.next(read(gc(1, [])));

    let GcStep::Done(report) = done else {
        panic!("somebody else ended the epoch")
    };
    assert!(report.resumed);
}

#[test]
fn a_round_whose_epoch_ended_while_it_looked_at_manifests_deletes_nothing() {
    let (a, b) = (chunk("a", 0), chunk("b", 1));
    for now in [gc(1, []), gc(1, [b])] {
        let mut round = GcRound::new(op(3));
        let _ = round.next(GcAnswer::Begin);
        let _ = round.next(read(gc(0, [a])));
        let _ = round.next(GcAnswer::Referenced(Names::new()));

        let GcStep::Done(report) = round.next(read(now)) else {
            panic!("the round is over")
        };

        assert_eq!(report.deleted, Names::new());
    }
}

#[test]
fn a_manifest_that_vanishes_makes_a_round_look_again() {
    let a = chunk("a", 0);
    let mut round = GcRound::new(op(3));
    let _ = round.next(GcAnswer::Begin);
    let _ = round.next(read(gc(0, [a])));

    let again = round.next(GcAnswer::Vanished);

    assert_eq!(again, GcStep::FindReferenced(names([a])));
}

#[test]
fn a_list_whose_swap_was_not_heard_of_is_recognised_as_ours() {
    let a = chunk("a", 0);
    let mut round = GcRound::new(op(9));
    let _ = round.next(GcAnswer::Begin);
    let _ = round.next(GcAnswer::Gc(None));
    let _ = round.next(GcAnswer::Listed(names([a])));
    let _ = round.next(GcAnswer::Referenced(Names::new()));

    assert_eq!(round.next(GcAnswer::Silence), GcStep::ReadGc);
    let step = round.next(read(gc(0, [a])));

    assert_eq!(step, GcStep::FindReferenced(names([a])));
    assert!(!round.is_resumed());
}

#[test]
fn an_unreadable_manifest_ends_a_round_without_a_deletion() {
    let a = chunk("a", 0);
    let aborted = GcStep::Aborted(Abort::UnreadableManifest);
    let mut marking = GcRound::new(op(3));
    let _ = marking.next(GcAnswer::Begin);
    let mut sparing = marking.clone();
    let _ = marking.next(GcAnswer::Gc(None));
    let _ = marking.next(GcAnswer::Listed(names([a])));
    let _ = sparing.next(read(gc(0, [a])));

    assert_eq!(marking.next(GcAnswer::UnreadableManifest), aborted);
    assert_eq!(sparing.next(GcAnswer::UnreadableManifest), aborted);
}

#[test]
fn nothing_is_written_when_there_is_no_garbage() {
    let a = chunk("a", 0);
    let mut round = GcRound::new(op(3));
    let _ = round.next(GcAnswer::Begin);
    let _ = round.next(GcAnswer::Gc(None));
    let _ = round.next(GcAnswer::Listed(names([a])));

    let step = round.next(GcAnswer::Referenced(names([a])));

    assert_eq!(step, GcStep::Done(GcReport::default()));
}

fn listed(id: &str, lease: u64) -> ListedManifest {
    ListedManifest {
        id: id.parse().unwrap(),
        lease: Epoch(lease),
        fence: Some(Epoch(2)),
        foreign: false,
        indexed: false,
        tombstoned: false,
    }
}

#[test]
fn only_a_manifest_behind_the_fence_is_tombstoned() {
    let (behind, live) = (listed("old", 1), listed("new", 2));
    let indexed = ListedManifest {
        indexed: true,
        ..behind.clone()
    };
    let unknown = ListedManifest {
        fence: None,
        ..behind.clone()
    };

    let foreign = ListedManifest {
        foreign: true,
        ..live.clone()
    };

    assert_eq!(manifests::judge(&foreign), ManifestFate::Foreign);
    assert_eq!(manifests::judge(&behind), ManifestFate::Behind);
    assert_eq!(manifests::judge(&live), ManifestFate::MayBePublished);
    assert_eq!(manifests::judge(&indexed), ManifestFate::Indexed);
    assert_eq!(manifests::judge(&unknown), ManifestFate::MayBePublished);
}

#[test]
fn a_manifest_is_removed_only_after_the_index_says_that_it_is_tombstoned() {
    let old = listed("old", 1);
    let manifests: Manifests = [old.id.clone()].into();
    let mut gc_run = ManifestGc::new();
    let _ = gc_run.next(ManifestGcAnswer::Begin);

    let expected = Version::new("7");
    let step = gc_run.next(ManifestGcAnswer::Surveyed(
        expected.clone(),
        vec![old.clone()],
    ));
    let tombstone = ManifestGcStep::Tombstone {
        expected,
        manifests: manifests.clone(),
    };
    assert_eq!(step, tombstone);
    assert_eq!(
        gc_run.next(ManifestGcAnswer::Silence),
        ManifestGcStep::Survey
    );
    let tombstoned_one = ListedManifest {
        tombstoned: true,
        ..old
    };
    let step = gc_run.next(ManifestGcAnswer::Surveyed(
        Version::new("8"),
        vec![tombstoned_one],
    ));

    assert_eq!(step, ManifestGcStep::Remove(manifests.clone()));
    let done = gc_run.next(ManifestGcAnswer::Removed);
    assert_eq!(done, ManifestGcStep::Done(manifests));
}
