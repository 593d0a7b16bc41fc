//! Roots that go away, and monitors that stop and go on.

use super::*;

fn end(monitor: &mut Monitor) -> RootGone {
    match monitor.next(LONG) {
        Err(MonitorError::RootGone { why }) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_deleted_root_ends_it_after_its_files_were_told() {
    let mut tree = Watched::with(
        |root| {
            fs::create_dir(root.join("d")).unwrap();
            fs::write(root.join("d/file"), "1").unwrap();
        },
        MonitorSettings::default(),
    );

    fs::remove_dir_all(tree.at("")).unwrap();

    let last = tree.monitor.next(LONG).unwrap();
    assert_eq!(words(&last), ["deleted d/file"]);
    assert_eq!(end(&mut tree.monitor), RootGone::Deleted);
    assert_eq!(end(&mut tree.monitor), RootGone::Deleted);
    assert_eq!(tree.monitor.flush().unwrap(), EventBatch::default());
}

#[test]
fn an_empty_root_that_is_deleted_while_we_wait_ends_it() {
    let mut tree = Watched::new();
    let root = tree.at("");

    let remover = std::thread::spawn(move || {
        sleep(Duration::from_millis(20));
        fs::remove_dir(root).unwrap();
    });

    assert_eq!(end(&mut tree.monitor), RootGone::Deleted);
    remover.join().unwrap();
}

#[test]
fn a_root_that_is_moved_or_replaced_ends_it() {
    let mut tree = Watched::new();
    fs::rename(tree.at(""), tree.place.path().join("elsewhere")).unwrap();
    assert_eq!(end(&mut tree.monitor), RootGone::Moved);

    fs::create_dir(tree.at("")).unwrap();

    assert_eq!(end(&mut tree.monitor), RootGone::Moved);
}

#[test]
fn a_root_that_is_a_link_or_not_there_is_refused() {
    let place = a_place();
    symlink(place.path(), place.path().join("link")).unwrap();
    for name in ["link", "absent"] {
        let root = place.path().join(name);
        let refused = Monitor::start(&root, Arc::new(Ticking), MonitorSettings::default());
        assert!(
            matches!(&refused, Err(MonitorError::Failed(failure)) if failure.op() == "open the root"),
            "{name}"
        );
    }
}

#[test]
fn a_pattern_that_is_none_is_refused() {
    let place = a_place();
    let settings = MonitorSettings {
        ignore: vec!["[".to_owned()],
        ..MonitorSettings::default()
    };

    let refused = Monitor::start(place.path(), Arc::new(Ticking), settings);

    assert!(matches!(refused, Err(MonitorError::Ignore(_))));
}

#[test]
fn a_later_monitor_tells_exactly_what_was_missed() {
    let mut tree = Watched::with(
        |root| {
            fs::create_dir_all(root.join("d/e")).unwrap();
            for name in ["same", "edited", "d/gone", "d/e/moved"] {
                fs::write(root.join(name), "1").unwrap();
            }
        },
        MonitorSettings::default(),
    );
    tree.write("outgoing", "1");
    tree.flush();
    let saved_state = tree.monitor.saved_state();

    fs::remove_file(tree.at("d/gone")).unwrap();
    tree.write("edited", "2");
    fs::rename(tree.at("d/e"), tree.at("f")).unwrap();
    tree.write("f/new", "1");
    let root = tree.at("");
    let settings = MonitorSettings::default();
    tree.monitor = Monitor::resume(&root, Arc::new(Ticking), settings, &saved_state).unwrap();

    let batch = tree.monitor.next(LONG).unwrap();
    tree.replay(&batch);
    let gap = Gap {
        why: GapReason::Resumed,
        missed: 5,
    };
    assert_eq!((batch.events.len(), batch.gap), (5, Some(gap)));
    tree.must_be_explained();
    tree.write("f/new", "22");
    assert_eq!(tree.flush(), ["modified f/new 2"]);
}

#[test]
fn beliefs_that_are_damaged_in_any_byte_are_refused() {
    let mut tree = Watched::new();
    fs::create_dir(tree.at("d")).unwrap();
    tree.write("d/file", "1");
    tree.flush();
    let saved_state = tree.monitor.saved_state();
    let table = saved_state::decode(&saved_state).unwrap();
    assert_eq!(saved_state::encode(&table), saved_state);
    assert_eq!(table.len(), 2);

    for at in 0..saved_state.len() {
        let mut damaged = saved_state.clone();
        damaged[at] ^= 1;
        assert_eq!(
            saved_state::decode(&damaged),
            Err(saved_state::Damaged),
            "byte {at}"
        );
        assert_eq!(
            saved_state::decode(&saved_state[..at]),
            Err(saved_state::Damaged)
        );
    }
}

#[test]
fn a_tree_that_is_too_large_is_refused() {
    let place = a_place();
    for name in ["a", "b", "c"] {
        fs::write(place.path().join(name), "").unwrap();
    }
    let settings = MonitorSettings {
        most_entries: 2,
        ..MonitorSettings::default()
    };

    let refused = Monitor::start(place.path(), Arc::new(Ticking), settings);

    assert!(matches!(refused, Err(MonitorError::TooMany { limit: 2 })));
}

#[test]
fn what_was_found_before_something_failed_is_told_when_it_is_well_again() {
    let settings = MonitorSettings {
        most_entries: 2,
        ..MonitorSettings::default()
    };
    let mut tree = Watched::with(|root| fs::write(root.join("old"), "").unwrap(), settings);

    for name in ["a", "b", "c"] {
        tree.write(name, "1");
    }
    for _ in 0..2 {
        let refused = tree.monitor.flush().unwrap_err();
        assert!(matches!(refused, MonitorError::TooMany { limit: 2 }));
    }
    let found = tree.monitor.next(SOON).unwrap();
    tree.replay(&found);
    fs::remove_file(tree.at("a")).unwrap();
    fs::remove_file(tree.at("b")).unwrap();
    let rest = tree.monitor.next(LONG).unwrap();
    tree.replay(&rest);

    assert_eq!(words(&found), ["created a 1"]);
    assert_eq!(words(&rest), ["deleted a", "created c 1"]);
    let why = GapReason::Failed;
    assert_eq!(rest.gap, Some(Gap { why, missed: 1 }));
    tree.must_be_explained();
}
