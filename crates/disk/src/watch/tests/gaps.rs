//! More than the kernel reports.

use super::*;

fn limited(most_watches: usize) -> MonitorSettings {
    MonitorSettings {
        most_watches,
        rescan_every: Duration::from_millis(50),
        ..MonitorSettings::default()
    }
}

#[test]
fn a_hundred_thousand_events_that_overflow_the_queue_are_explained_by_a_rescan() {
    let mut tree = Watched::with(
        |root| {
            for name in ["kept", "edited", "gone", "d/in"] {
                fs::create_dir_all(root.join("d")).unwrap();
                fs::write(root.join(name), "1").unwrap();
            }
        },
        MonitorSettings::default(),
    );

    // Each file is created, written, closed and half of them deleted: more than three events per file.
    for number in 0..30_000 {
        let name = format!("file{number}");
        tree.write(&name, "12345");
        if number % 2 == 1 {
            fs::remove_file(tree.at(&name)).unwrap();
        }
    }
    tree.write("edited", "after");
    fs::remove_file(tree.at("gone")).unwrap();
    fs::rename(tree.at("d"), tree.at("moved")).unwrap();
    fs::create_dir_all(tree.at("new/er")).unwrap();
    tree.write("new/er/file", "1");
    let batch = tree.monitor.flush().unwrap();

    tree.replay(&batch);
    tree.must_be_explained();
    let gap = batch.gap.unwrap();
    assert_eq!(gap.why, GapReason::Overflow);
    assert!((5..batch.events.len()).contains(&gap.missed), "{gap:?}");
    assert_eq!(batch.events.len(), 15_000 + 5);
    tree.write("moved/in", "222");
    tree.write("new/er/file", "222");
    let after = tree.flush();
    assert_eq!(after, ["modified moved/in 3", "modified new/er/file 3"]);
}

#[test]
fn directories_beyond_the_limit_are_read_again_and_again() {
    let mut tree = Watched::with(
        |root| {
            for name in ["a", "b/c", "d"] {
                fs::create_dir_all(root.join(name)).unwrap();
            }
        },
        limited(2),
    );
    let first = tree.monitor.next(LONG).unwrap();
    assert_eq!(tree.reach(), (2, 3));

    tree.write("b/c/file", "1");
    fs::create_dir_all(tree.at("d/x/y")).unwrap();
    tree.write("d/x/y/file", "1");
    tree.write("a/watched", "1");
    let mut events = Vec::new();
    let mut gaps = Vec::new();
    while events.len() < 3 {
        let batch = tree.monitor.next(LONG).unwrap();
        tree.replay(&batch);
        gaps.extend(batch.gap.map(|gap| gap.why));
        events.extend(words(&batch));
    }

    let why = GapReason::WatchLimit;
    assert_eq!(first.gap, Some(Gap { why, missed: 0 }));
    events.sort();
    let expected = [
        "created a/watched 1",
        "created b/c/file 1",
        "created d/x/y/file 1",
    ];
    assert_eq!(events, expected);
    assert_eq!(gaps, [GapReason::WatchLimit]);
    tree.must_be_explained();
}

#[test]
fn a_blind_directory_is_watched_as_soon_as_there_is_room() {
    let mut tree = Watched::with(
        |root| {
            for name in ["a", "b"] {
                fs::create_dir(root.join(name)).unwrap();
            }
        },
        limited(2),
    );
    let _ = tree.monitor.flush().unwrap();
    assert_eq!(tree.reach(), (2, 1));

    fs::remove_dir(tree.at("a")).unwrap();
    let _ = tree.monitor.flush().unwrap();

    assert_eq!(tree.reach(), (2, 0));
    tree.write("b/file", "1");
    assert_eq!(tree.flush(), ["created b/file 1"]);
}

#[test]
fn without_any_watch_everything_is_still_told() {
    let mut tree = Watched::with(|_| {}, limited(0));
    let _ = tree.monitor.flush().unwrap();

    fs::create_dir_all(tree.at("a/b")).unwrap();
    tree.write("a/b/file", "1");
    let batch = tree.monitor.flush().unwrap();
    tree.replay(&batch);
    fs::remove_dir_all(tree.at("a")).unwrap();
    let gone = tree.monitor.flush().unwrap();
    tree.replay(&gone);

    assert_eq!(words(&batch), ["created a/b/file 1"]);
    let why = GapReason::WatchLimit;
    assert_eq!(batch.gap, Some(Gap { why, missed: 1 }));
    assert_eq!(words(&gone), ["deleted a/b/file"]);
    tree.must_be_explained();
    assert_eq!(tree.reach(), (0, 1));
}

#[test]
fn after_a_rescan_we_rest_and_go_on_telling_what_we_hear_of() {
    let mut tree = Watched::new();
    let overflowed = || Some((GapReason::Overflow, read_clock(ClockId::Boottime)));
    tree.monitor.rest = read_clock(ClockId::Boottime) + LONG;
    tree.monitor.lost = overflowed();

    tree.write("file", "1");
    let heard = tree.monitor.next(LONG).unwrap();
    let resting = tree.monitor.next(Duration::from_millis(150)).unwrap();
    let asked = tree.monitor.flush().unwrap();

    assert_eq!(words(&heard), ["created file 1"]);
    assert_eq!((heard.gap, resting), (None, EventBatch::default()));
    let (why, missed) = (GapReason::Overflow, 0);
    assert_eq!(asked.gap, Some(Gap { why, missed }));
    tree.monitor.lost = overflowed();
    assert_eq!(tree.monitor.next(LONG).unwrap().gap, asked.gap);
}

#[test]
fn beyond_the_limit_whatever_is_done_is_found_by_rescanning() {
    for most_watches in 0..8 {
        let mut tree = Watched::with(
            |root| {
                for name in ["a", "b/c", "d/e/f"] {
                    fs::create_dir_all(root.join(name)).unwrap();
                }
            },
            limited(most_watches),
        );
        let _ = tree.monitor.flush().unwrap();
        let watched = most_watches.min(7);
        let unwatched = 7 - watched;
        assert_eq!(
            tree.monitor.coverage(),
            WatchCoverage { watched, unwatched }
        );

        for name in ["top", "a/1", "b/2", "b/c/3", "d/4", "d/e/5", "d/e/f/6"] {
            tree.write(name, "1");
        }
        fs::create_dir_all(tree.at("new/er")).unwrap();
        tree.write("new/er/file", "1");
        let made = tree.monitor.flush().unwrap();
        tree.replay(&made);
        fs::rename(tree.at("d"), tree.at("b/d")).unwrap();
        fs::rename(tree.at("a"), tree.place.path().join("outside")).unwrap();
        tree.write("b/d/e/f/6", "22");
        let moved = tree.monitor.flush().unwrap();
        tree.replay(&moved);
        tree.must_be_explained();
        tree.write("b/d/e/f/6", "333");
        let edited = tree.monitor.flush().unwrap();

        assert_eq!(made.events.len(), 8);
        assert_eq!(words(&edited), ["modified b/d/e/f/6 3"]);
        let coverage = tree.monitor.coverage();
        assert_eq!(coverage.watched + coverage.unwatched, 8);
    }
}

#[test]
fn whatever_is_done_beyond_the_limit_is_explained_at_every_flush() {
    for seed in 0..10 {
        let mut tree = Watched::with(|_| {}, limited(3));
        let mut dice = races::Dice(seed);
        for _ in 0..40 {
            for _ in 0..=dice.below(20) {
                races::do_anything(&tree.at(""), &mut dice);
            }
            let batch = tree.monitor.flush().unwrap();
            tree.replay(&batch);
            tree.must_be_explained();
            assert!(tree.monitor.coverage().watched <= 3);
        }
    }
}

#[test]
fn a_write_to_a_file_that_is_unlinked_is_not_reported() {
    let mut tree = Watched::new();
    let mut file = fs::File::create(tree.at("file")).unwrap();
    tree.flush();

    fs::remove_file(tree.at("file")).unwrap();
    assert_eq!(tree.flush(), ["deleted file"]);
    std::io::Write::write_all(&mut file, b"unseen").unwrap();
    drop(file);

    assert_eq!(tree.flush(), [""; 0]);
}
