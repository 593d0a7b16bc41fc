//! More than the kernel tells.

use super::*;

fn limited(most_watches: usize) -> MonitorSettings {
    MonitorSettings {
        hearer: Hearer::Inotify,
        most_watches,
        rescan_every: Duration::from_millis(50),
        ..MonitorSettings::default()
    }
}

fn a_hundred_thousand_events_that_overflow_the_queue_are_explained_by_a_rescan(by: Hearer) {
    let mut tree = Watched::with(
        |root| {
            for name in ["kept", "edited", "gone", "d/in"] {
                fs::create_dir_all(root.join("d")).unwrap();
                fs::write(root.join(name), "1").unwrap();
            }
        },
        heard(by),
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
    assert_eq!(gap.why, Why::Overflow);
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
    assert_eq!(tree.monitor.reach(), (2, 3));

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

    let why = Why::WatchLimit;
    assert_eq!(first.gap, Some(Gap { why, missed: 0 }));
    events.sort();
    let expected = [
        "created a/watched 1",
        "created b/c/file 1",
        "created d/x/y/file 1",
    ];
    assert_eq!(events, expected);
    assert_eq!(gaps, [Why::WatchLimit]);
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
    assert_eq!(tree.monitor.reach(), (2, 1));

    fs::remove_dir(tree.at("a")).unwrap();
    let _ = tree.monitor.flush().unwrap();

    assert_eq!(tree.monitor.reach(), (2, 0));
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
    let why = Why::WatchLimit;
    assert_eq!(batch.gap, Some(Gap { why, missed: 1 }));
    assert_eq!(words(&gone), ["deleted a/b/file"]);
    tree.must_be_explained();
    assert_eq!(tree.monitor.reach(), (0, 1));
}

fn after_a_rescan_we_rest_and_go_on_telling_what_we_hear_of(by: Hearer) {
    let mut tree = Watched::new(by);
    let overflowed = || Some((Why::Overflow, read_clock(ClockId::Boottime)));
    tree.monitor.rest = read_clock(ClockId::Boottime) + LONG;
    tree.monitor.lost = overflowed();

    tree.write("file", "1");
    let heard = tree.monitor.next(LONG).unwrap();
    let resting = tree.monitor.next(Duration::from_millis(150)).unwrap();
    let asked = tree.monitor.flush().unwrap();

    assert_eq!(words(&heard), ["created file 1"]);
    assert_eq!((heard.gap, resting), (None, Batch::default()));
    let (why, missed) = (Why::Overflow, 0);
    assert_eq!(asked.gap, Some(Gap { why, missed }));
    tree.monitor.lost = overflowed();
    assert_eq!(tree.monitor.next(LONG).unwrap().gap, asked.gap);
}

with_each_hearer! {
    a_hundred_thousand_events_that_overflow_the_queue_are_explained_by_a_rescan,
    after_a_rescan_we_rest_and_go_on_telling_what_we_hear_of,
}
