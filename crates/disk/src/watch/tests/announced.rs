//! Changes of our own.

use super::*;

#[test]
fn an_announced_change_is_not_told_and_the_next_one_is() {
    let mut tree = Watched::new();
    for name in ["edited", "gone", "other"] {
        tree.write(name, "1");
    }
    tree.flush();

    let names = ["edited", "gone", "new"];
    let announced = tree.monitor.announcer().announce(names.map(path));
    tree.write("edited", "restored");
    fs::remove_file(tree.at("gone")).unwrap();
    tree.write("new", "restored");
    tree.write("other", "not ours");
    drop(announced);
    assert_eq!(tree.flush(), ["modified other 8"]);

    tree.write("edited", "by somebody else");
    tree.write("gone", "again");
    assert_eq!(tree.monitor.announcer().open().count(), 0);
    let outgoing = words(&tree.monitor.flush().unwrap());
    assert_eq!(outgoing, ["modified edited 16", "created gone 5"]);
}

#[test]
fn a_change_goes_on_over_several_windows() {
    let mut tree = Watched::new();
    tree.write("file", "1");
    tree.flush();

    let announced = tree.monitor.announcer().announce([path("file")]);
    fs::remove_file(tree.at("file")).unwrap();
    let first = words(&tree.monitor.flush().unwrap());
    tree.write("file", "restored");
    let second = words(&tree.monitor.flush().unwrap());

    assert_eq!(announced.generation(), 1);
    drop(announced);
    assert_eq!((first.len(), second.len()), (0, 0));
    assert_eq!(tree.monitor.flush().unwrap(), EventBatch::default());
}

#[test]
fn an_edit_by_somebody_else_right_after_ours_is_told() {
    let mut tree = Watched::new();
    tree.write("file", "1");
    tree.write("gone", "1");
    tree.flush();

    let announced = tree
        .monitor
        .announcer()
        .announce(["file", "gone"].map(path));
    tree.write("file", "ours");
    fs::remove_file(tree.at("gone")).unwrap();
    drop(announced);
    tree.write("file", "theirs");
    tree.write("gone", "back");

    assert_eq!(tree.flush(), ["modified file 6", "modified gone 4"]);
}

#[test]
fn an_edit_heard_of_before_ours_is_told() {
    let mut tree = Watched::new();
    tree.write("file", "1");
    tree.flush();

    tree.write("file", "theirs");
    assert_eq!(tree.monitor.next(SOON).unwrap(), EventBatch::default());
    let announced = tree.monitor.announcer().announce([path("file")]);
    tree.write("file", "ours");
    drop(announced);

    assert_eq!(tree.flush(), ["modified file 4"]);
}

#[test]
fn an_announced_directory_covers_what_is_in_it_until_it_is_heard_of() {
    let mut tree = Watched::new();
    fs::create_dir(tree.at("d")).unwrap();
    tree.flush();

    let announced = tree.monitor.announcer().announce([path("d")]);
    fs::create_dir(tree.at("d/e")).unwrap();
    tree.write("d/e/file", "ours");
    tree.write("dd", "not ours");
    drop(announced);
    assert_eq!(tree.flush(), ["created dd 8"]);
    tree.write("d/e/file", "theirs");

    let outgoing = words(&tree.monitor.flush().unwrap());
    assert_eq!(outgoing, ["modified d/e/file 6"]);
}

#[test]
fn a_change_that_was_announced_and_not_made_is_forgotten() {
    let mut tree = Watched::new();
    fs::create_dir(tree.at("d")).unwrap();
    tree.flush();

    drop(tree.monitor.announcer().announce([path("d")]));
    assert_eq!(tree.monitor.next(SOON).unwrap(), EventBatch::default());
    tree.write("d/file", "theirs");

    assert_eq!(tree.flush(), ["created d/file 6"]);
}

#[test]
fn what_only_a_rescan_finds_is_ours_too() {
    let settings = MonitorSettings {
        most_watches: 0,
        rescan_every: LONG,
        ..MonitorSettings::default()
    };
    let mut unwatched = Watched::with(|_| {}, settings);
    let _ = unwatched.monitor.flush().unwrap();
    let mut resting = Watched::new();
    resting.monitor.rest = read_clock(ClockId::Boottime) + LONG;

    for tree in [&mut unwatched, &mut resting] {
        let announced = tree.monitor.announcer().announce([path("ours")]);
        tree.write("ours", "1");
        tree.write("theirs", "1");
        drop(announced);
        let mut heard = [""; 0].to_vec();
        if tree.reach().0 > 0 {
            // The events so far were lost, and others are heard.
            tree.monitor.state.watches.read_events().unwrap();
            tree.monitor.lost = Some((GapReason::Overflow, read_clock(ClockId::Boottime)));
            tree.write("heard", "1");
            heard.push("created heard 1");
        }
        let early = tree.monitor.next(Duration::from_millis(500)).unwrap();
        let found = tree.monitor.flush().unwrap();

        assert_eq!(words(&early), heard);
        assert_eq!(words(&found), ["created theirs 1"]);
        assert_eq!(tree.monitor.announcer().open().count(), 0);
    }
}
