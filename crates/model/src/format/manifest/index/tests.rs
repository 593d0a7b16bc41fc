use super::*;
use crate::format::document;
use crate::time_ref::Utc;

fn op(number: u8) -> OpId {
    OpId::from_random([number; 16])
}

fn snapshot(id: &str) -> Indexed {
    Indexed {
        id: id.parse().unwrap(),
        manifest_sha256: ManifestDigest::of(id.as_bytes()),
        at_ms: Timestamp::from_millis(5),
        bytes: 1,
        entries: 1,
        pinned: false,
        reason: SaveReason::Manual,
        op_id: OpId::default(),
        labels: BTreeMap::new(),
        copied_from: None,
    }
}

fn begun() -> SnapshotIndex {
    SnapshotIndex::empty().begun(op(0))
}

fn publish(index: &SnapshotIndex, id: &str) -> Publish {
    Publish {
        incarnation: index.incarnation,
        lease: index.fence.epoch,
        base: index.active.clone(),
        snapshot: snapshot(id),
        activates: true,
    }
}

const NOW: TypedAt<'static> = TypedAt {
    now: Timestamp::from_millis(0),
    zone: &Utc,
};

#[test]
fn nothing_of_one_life_is_published_into_another() {
    let index = begun();
    let early = publish(&index, "early");
    let index = index.publish(&publish(&index, "one"), op(1)).unwrap();
    let late = publish(&index, "late");

    let deleted = index.delete(Timestamp::from_millis(7), op(2)).unwrap();
    let again = deleted.begun(op(3));

    assert!(deleted.snapshots.is_empty() && !deleted.is_alive() && again.is_alive());
    assert_ne!(again.incarnation, index.incarnation);
    for index in [&deleted, &again, &SnapshotIndex::empty()] {
        for save in [&early, &late] {
            let refused = index.publish(save, op(4));
            assert_eq!(refused, Err(IndexRefusal::OtherLife));
        }
    }
    assert!(again.publish(&publish(&again, "new"), op(5)).is_ok());
    assert!(again.generation > index.generation, "it never goes back");
}

#[test]
fn a_subject_with_a_pinned_snapshot_is_not_deleted() {
    let index = begun();
    let index = index.publish(&publish(&index, "one"), op(1)).unwrap();
    let [one] = ids(["one"]);
    let index = index.pin(&one, true, op(2)).unwrap();

    let refused = index.delete(Timestamp::default(), op(3));

    assert_eq!(refused, Err(IndexRefusal::Pinned(one)));
}

#[test]
fn an_index_of_the_first_edition_is_told_from_a_damaged_one() {
    let first = br#"{"version": 1, "generation": 3, "op_id": "00000000-0000-4000-8000-000000000000", "subjects": {}}"#;

    let refused = document::parse::<SnapshotIndex>(first).unwrap_err();
    let damaged = document::parse::<SnapshotIndex>(br#"{"version": 1}"#).unwrap_err();

    assert!(refused.to_string().contains("first edition"), "{refused}");
    assert!(!damaged.to_string().contains("edition"), "{damaged}");
}

#[test]
fn of_two_saves_that_began_alike_one_diverged() {
    let index = begun();
    let (one, other) = (publish(&index, "one"), publish(&index, "other"));

    let index = index.publish(&one, op(1)).unwrap();

    let refused = index.publish(&other, op(2)).unwrap_err();
    assert!(
        matches!(refused, IndexRefusal::Diverged { ref active, .. } if active == "one"),
        "{refused}"
    );
    assert_eq!(index.active, Some("one".parse().unwrap()));
}

#[test]
fn a_chain_grows() {
    let index = begun();
    let index = index.publish(&publish(&index, "one"), op(1)).unwrap();

    let index = index.publish(&publish(&index, "two"), op(3)).unwrap();

    assert_eq!(chain(&index), ["one", "two"]);
    assert!(index.remembers(op(1)) && index.generation == Generation(3));
    let again: SnapshotIndex = document::parse(&document::render(&index)).unwrap();
    assert_eq!(again, index);
}

fn chain(index: &SnapshotIndex) -> Vec<&str> {
    index.snapshots.iter().map(|one| one.id.as_str()).collect()
}

#[test]
fn what_is_forgotten_never_comes_back() {
    let index = begun();
    let first = publish(&index, "one");
    let index = index.publish(&first, op(1)).unwrap();
    let index = index.publish(&publish(&index, "two"), op(2)).unwrap();
    let one: SnapshotId = "one".parse().unwrap();

    let index = index
        .forget(std::slice::from_ref(&one), Timestamp::from_millis(9), op(3))
        .unwrap();

    assert!(index.find(&one).is_none() && index.tombstones.contains_key(&one));
    let mut again = publish(&index, "one");
    again.snapshot = snapshot("one");
    assert_eq!(
        index.publish(&again, op(4)),
        Err(IndexRefusal::Gone(one.clone()))
    );
    assert_eq!(
        index.forget(std::slice::from_ref(&one), Timestamp::default(), op(5)),
        Err(IndexRefusal::Absent(one))
    );
}

#[test]
fn the_newest_and_the_pinned_are_not_forgotten() {
    let index = begun();
    let index = index.publish(&publish(&index, "one"), op(1)).unwrap();
    let index = index.publish(&publish(&index, "two"), op(2)).unwrap();
    let (one, two): (SnapshotId, SnapshotId) = ("one".parse().unwrap(), "two".parse().unwrap());
    let index = index.pin(&one, true, op(3)).unwrap();

    let forget =
        |id: &SnapshotId| index.forget(std::slice::from_ref(id), Timestamp::default(), op(4));

    assert_eq!(forget(&one), Err(IndexRefusal::Pinned(one.clone())));
    assert_eq!(forget(&two), Err(IndexRefusal::Active(two.clone())));
    assert!(
        index
            .pin(&one, false, op(5))
            .unwrap()
            .forget(&[one], Timestamp::default(), op(6))
            .is_ok()
    );
}

#[test]
fn only_what_nothing_leads_to_is_tombstoned() {
    let index = begun();
    let index = index.publish(&publish(&index, "one"), op(1)).unwrap();
    let ids: Vec<SnapshotId> = ["one", "lost"]
        .iter()
        .map(|id| id.parse().unwrap())
        .collect();

    let index = index.tombstone_unpublished(&ids, Timestamp::from_millis(2), op(2));

    let tombstoned: Vec<&str> = index.tombstones.keys().map(SnapshotId::as_str).collect();
    assert_eq!(tombstoned, ["lost"]);
    assert!(index.find(&ids[0]).is_some());
}

#[test]
fn recent_writers_are_remembered_and_the_oldest_forgotten() {
    let mut index = begun();
    for number in 0..20 {
        index = index.tombstone_unpublished(&[], Timestamp::default(), op(number));
    }
    assert!(index.remembers(op(19)) && index.remembers(op(4)) && !index.remembers(op(3)));
}

#[test]
fn a_save_is_remembered_as_long_as_its_snapshot_is_there() {
    let mut save = publish(&begun(), "one");
    save.snapshot.op_id = op(77);
    let mut index = begun().publish(&save, op(77)).unwrap();
    for number in 0..20 {
        index = index.tombstone_unpublished(&[], Timestamp::default(), op(number));
    }

    assert!(index.remembers(op(77)) && !index.remembers(op(78)));
}

#[test]
fn old_tombstones_go_when_nothing_is_left_of_what_they_say() {
    let ids: Vec<SnapshotId> = ["old", "listed"]
        .iter()
        .map(|id| id.parse().unwrap())
        .collect();
    let index = begun().tombstone_unpublished(&ids, Timestamp::from_millis(5), op(1));
    let young: SnapshotId = "young".parse().unwrap();
    let index = index.tombstone_unpublished([&young], Timestamp::from_millis(50), op(2));

    let listed = BTreeSet::from([ids[1].clone()]);
    let index = index.without_tombstones(Timestamp::from_millis(10), &listed, op(3));

    let left: Vec<&str> = index.tombstones.keys().map(SnapshotId::as_str).collect();
    assert_eq!(left, ["listed", "young"]);
}

fn ids<const N: usize>(ids: [&str; N]) -> [SnapshotId; N] {
    ids.map(|id| id.parse().unwrap())
}

/// A chain of two snapshots, and a step back that leaves `newest`.
fn two_and_back(gone: &[SnapshotId], newest: Option<&SnapshotId>) -> (SnapshotIndex, StepBack) {
    let index = begun();
    let index = index.publish(&publish(&index, "one"), op(1)).unwrap();
    let index = index.publish(&publish(&index, "two"), op(2)).unwrap();
    let back = StepBack {
        gone: gone.to_vec(),
        newest: newest.cloned(),
        ..StepBack::default()
    };
    (index, back)
}

#[test]
fn a_chain_that_steps_back_goes_on_from_there_and_no_older_save_publishes() {
    let [one, two] = ids(["one", "two"]);
    let (index, back) = two_and_back(std::slice::from_ref(&two), Some(&one));
    let began_before = publish(&index, "late");

    let index = index.step_back(&back, Timestamp::from_millis(9), op(3));
    let index = index.unwrap();

    assert_eq!(index.active, Some(one.clone()));
    assert_eq!(index.fence.epoch, Epoch(3), "the fence is raised");
    assert!(index.tombstones.contains_key(&two) && index.remembers(op(3)));
    let late = index.publish(&began_before, op(4));
    assert!(matches!(late, Err(IndexRefusal::Diverged { .. })));
    let index = index.publish(&publish(&index, "three"), op(5)).unwrap();
    assert_eq!(chain(&index), ["one", "three"]);
}

#[test]
fn a_step_back_that_did_not_foresee_the_newest_is_refused() {
    let [one, two] = ids(["one", "two"]);
    let (index, back) = two_and_back(std::slice::from_ref(&two), Some(&one));
    let saved = index.publish(&publish(&index, "three"), op(3)).unwrap();

    let refused = saved.step_back(&back, Timestamp::default(), op(4));
    let without = StepBack {
        newest: None,
        ..back
    };
    let alone = index.step_back(&without, Timestamp::default(), op(4));

    for refused in [refused, alone] {
        assert!(
            matches!(refused, Err(IndexRefusal::Diverged { .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn a_middle_one_goes_without_a_new_fence() {
    let [one, two] = ids(["one", "two"]);
    let (index, back) = two_and_back(std::slice::from_ref(&one), Some(&two));
    let saving = publish(&index, "three");

    let index = index.step_back(&back, Timestamp::default(), op(3)).unwrap();

    assert!(index.find(&one).is_none());
    assert!(index.publish(&saving, op(4)).is_ok());
}

#[test]
fn a_chain_without_snapshots_keeps_its_fence_so_that_its_first_life_stays_over() {
    let [one, two] = ids(["one", "two"]);
    let first = publish(&begun(), "very-late");
    let (index, back) = two_and_back(&[one, two], None);

    let index = index.step_back(&back, Timestamp::default(), op(3)).unwrap();

    assert_eq!(index.snapshots.len(), 0);
    let late = index.publish(&first, op(4));
    assert!(matches!(late, Err(IndexRefusal::Diverged { .. })));
    assert!(index.publish(&publish(&index, "new"), op(5)).is_ok());
}

#[test]
fn a_step_back_keeps_what_is_pinned_and_tombstones_what_nothing_leads_to() {
    let [one, two, stray] = ids(["one", "two", "stray"]);
    let (index, mut back) = two_and_back(&[], Some(&two));
    back.unpublished = vec![stray.clone()];

    let tombstoned = index.step_back(&back, Timestamp::default(), op(3)).unwrap();
    back.unpublished = vec![one.clone()];
    let published = index.step_back(&back, Timestamp::default(), op(3));
    let pinned = index.pin(&two, true, op(4)).unwrap();
    let (_, back) = two_and_back(std::slice::from_ref(&two), Some(&one));
    let pinned = pinned.step_back(&back, Timestamp::default(), op(5));

    assert!(tombstoned.tombstones.contains_key(&stray));
    assert!(
        tombstoned.fence.epoch > index.fence.epoch,
        "its save is over"
    );
    assert!(matches!(published, Err(IndexRefusal::Diverged { .. })));
    assert_eq!(pinned, Err(IndexRefusal::Pinned(two)));
}

#[test]
fn a_safety_snapshot_joins_the_chain_and_latest_stays_what_it_was() {
    let index = begun();
    let index = index.publish(&publish(&index, "asked"), op(1)).unwrap();
    let mut safety = publish(&index, "safety");
    safety.activates = false;
    safety.snapshot.reason = SaveReason::BeforeRestore;
    safety.snapshot.at_ms = Timestamp::from_millis(9);
    let began_before = publish(&index, "late");

    let index = index.publish(&safety, op(2)).unwrap();

    let latest = |index: &SnapshotIndex| {
        index
            .resolve(&SnapshotRef::Latest, NOW)
            .unwrap()
            .id
            .to_string()
    };
    assert_eq!(latest(&index), "asked");
    assert_eq!(index.snapshots.len(), 2, "it is listed");
    let late = index.publish(&began_before, op(3));
    assert!(
        matches!(late, Err(IndexRefusal::Diverged { .. })),
        "{late:?}"
    );
    let [asked, safety] = ids(["asked", "safety"]);
    let went = index.forget(std::slice::from_ref(&safety), Timestamp::default(), op(4));
    assert_eq!(latest(&went.unwrap()), "asked", "it may be collected");
    let chosen = index.adopt(Some(&safety), Some(&asked), op(5));
    assert_eq!(
        latest(&chosen.unwrap()),
        "safety",
        "a whole restore may choose it"
    );
}

#[test]
fn what_was_never_saved_explicitly_has_no_latest() {
    fn of<'i>(index: &'i SnapshotIndex, wanted: &str) -> Result<String, Unresolved<&'i Indexed>> {
        let found = index.resolve(&wanted.into(), NOW);
        found.map(|one| one.id.to_string())
    }

    let mut automatic = publish(&begun(), "automatic");
    automatic.activates = false;
    automatic.snapshot.reason = SaveReason::Autosave;

    let index = begun().publish(&automatic, op(1)).unwrap();

    assert_eq!(
        of(&SnapshotIndex::empty(), "latest"),
        Err(Unresolved::Absent)
    );
    assert_eq!(of(&index, "latest"), Err(Unresolved::NoLatest));
    assert_eq!(of(&index, "auto"), Ok("automatic".to_owned()));
    assert_eq!(of(&index, ""), Err(Unresolved::Absent));
}

#[test]
fn a_step_back_leaves_the_active_one_and_never_makes_a_safety_snapshot_active() {
    let index = begun();
    let index = index.publish(&publish(&index, "one"), op(1)).unwrap();
    let index = index.publish(&publish(&index, "two"), op(2)).unwrap();
    let mut safety = publish(&index, "safety");
    safety.activates = false;
    safety.snapshot.reason = SaveReason::BeforeRestore;
    let index = index.publish(&safety, op(3)).unwrap();
    let [one, two] = ids(["one", "two"]);

    assert_eq!(
        index.active_without(std::slice::from_ref(&two)),
        Some(one.clone())
    );
    assert_eq!(
        index.active_without(std::slice::from_ref(&one)),
        Some(two.clone())
    );
    assert_eq!(index.active_without(&[one, two]), None);
}

fn manifest(id: &str, lease: u64, reason: SaveReason, parent: Option<&str>) -> SnapshotManifest {
    let at = Timestamp::from_millis(lease);
    let (name, id) = ("notes".parse().unwrap(), id.parse().unwrap());
    let mut manifest = SnapshotManifest::new(name, id, op(9), at);
    manifest.lease_epoch = Epoch(lease);
    manifest.reason = reason;
    manifest.parent_snapshot_id = parent.map(|id| id.parse().unwrap());
    manifest
}

fn rebuilt(manifests: Vec<SnapshotManifest>) -> SnapshotIndex {
    let digest = ManifestDigest::of(b"metadata");
    let manifests = manifests.into_iter().map(|one| (one, digest)).collect();
    SnapshotIndex::rebuilt(manifests, Timestamp::from_millis(1 << 40), op(50))
}

#[test]
fn a_rebuilt_index_leads_to_all_manifests_in_the_order_of_their_saves() {
    let index = rebuilt(vec![
        manifest("three", 2, SaveReason::Manual, Some("two")),
        manifest("one", 0, SaveReason::Manual, None),
        manifest("two", 1, SaveReason::Autosave, Some("one")),
    ]);

    assert_eq!(chain(&index), ["one", "two", "three"]);
    assert_eq!(index.active, Some("three".parse().unwrap()));
    assert!(index.is_alive() && index.fence.epoch > Epoch(3));
    let stalled = Publish {
        incarnation: Incarnation::new(op(9)),
        lease: Epoch(3),
        base: index.active.clone(),
        snapshot: snapshot("stalled"),
        activates: true,
    };
    assert_eq!(index.publish(&stalled, op(1)), Err(IndexRefusal::OtherLife));
    let index = index.publish(&publish(&index, "next"), op(2)).unwrap();
    assert_eq!(chain(&index).last(), Some(&"next"));
}

#[test]
fn after_a_restore_a_rebuilt_index_says_latest_of_what_the_last_save_derives_from() {
    let saved = || {
        vec![
            manifest("one", 0, SaveReason::Manual, None),
            manifest("two", 1, SaveReason::Manual, Some("one")),
        ]
    };
    let with = |last: SnapshotManifest| {
        let index = rebuilt([saved(), vec![last]].concat());
        index.active.unwrap().to_string()
    };

    let chosen = with(manifest("auto", 4, SaveReason::Autosave, Some("one")));
    let lost = with(manifest("auto", 4, SaveReason::Autosave, Some("gone")));
    let mut part = manifest("part", 4, SaveReason::Manual, Some("one"));
    part.is_part = true;
    let mut held_back = manifest("held-back", 4, SaveReason::Manual, Some("one"));
    held_back.is_held_back = true;

    assert_eq!(chosen, "one");
    assert_eq!(lost, "two", "the newest that a user asked for");
    assert_eq!(with(part), "one");
    assert_eq!(with(held_back), "one");
    assert!(rebuilt(Vec::new()).is_alive());
}

#[test]
fn what_came_back_tells_what_may_have_been_published_after_it() {
    let index = begun();
    let index = index.publish(&publish(&index, "one"), op(1)).unwrap();
    let index = index.publish(&publish(&index, "two"), op(2)).unwrap();
    let at = Timestamp::from_millis(7);
    let index = index.forget(&["one".parse().unwrap()], at, op(3)).unwrap();
    let says = |id: &str, lease: Epoch, incarnation: Incarnation| {
        let mut manifest = manifest(id, lease.0, SaveReason::Manual, None);
        manifest.incarnation = incarnation;
        index.may_have_published(&StoredManifest::Plain(Box::new(manifest)))
    };
    let (now, life) = (index.fence.epoch, index.incarnation);

    assert!(says("three", now, life) && says("four", now.next(), life));
    assert!(!says("killed", Epoch(0), life), "the fence has passed it");
    assert!(says("other", Epoch(0), Incarnation::new(op(40))));
    for known in ["one", "two"] {
        assert!(!says(known, now, life), "{known}");
    }
}

#[test]
fn an_index_rebuilt_with_one_that_came_back_keeps_what_that_knows() {
    let index = begun();
    let index = index.publish(&publish(&index, "gone"), op(1)).unwrap();
    let mut index = index.publish(&publish(&index, "one"), op(2)).unwrap();
    index.snapshots[1].pinned = true;
    let at = Timestamp::from_millis(7);
    let index = index.forget(&["gone".parse().unwrap()], at, op(3)).unwrap();
    let digest = ManifestDigest::of(b"metadata");
    let manifests = ["one", "two"].map(|id| (manifest(id, 4, SaveReason::Manual, None), digest));

    let next = index.rebuilt_with(manifests.to_vec(), at, op(50));

    assert_eq!(chain(&next), ["one", "two"]);
    assert!(next.snapshots[0].pinned && !next.snapshots[1].pinned);
    assert_eq!(next.tombstones, index.tombstones);
    assert_ne!(next.incarnation, index.incarnation);
}
