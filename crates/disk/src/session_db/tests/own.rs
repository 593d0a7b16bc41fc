//! What we did ourselves, and what somebody else did at the same time.

use super::*;

const LEFT: LeftEntry = LeftEntry {
    inode: u64::MAX - 3,
    size: 5,
    modified: -1,
    changed: 42,
};

fn recorded(written: usize, own: usize, held: usize) -> RecordedEvents {
    RecordedEvents { written, own, held }
}

/// Makes the announcement of `act` that of a process that has ended.
fn kill(home: &Home, act: &str) {
    let connection = Connection::open(home.path()).unwrap();
    let sql = "UPDATE stasis_own_changes SET started = started - 1 WHERE act = ?1";
    assert_ne!(connection.execute(sql, [act]).unwrap(), 0);
}

#[test]
fn what_we_put_back_is_written_once_as_restored_and_never_as_modified() {
    let home = Home::new();
    home.ledger.announce("act", &[path("src/main.py")]).unwrap();
    let act = [restored("src/main.py", 3, Some(LEFT))];
    home.ledger.settle("act", NOON, &act).unwrap();

    for _ in 0..2 {
        let told = tell(&home.ledger, &[(Modified, "src/main.py")], &mut |at| {
            assert_eq!(*at, path("src/main.py"));
            Some(LEFT)
        });
        assert_eq!(told, recorded(0, 1, 0));
    }

    assert_eq!(home.written(), ["restored src/main.py (from cp-3)"]);
    let event = &home.ledger.events(0, None, 1).unwrap()[0];
    assert_eq!((event.size, &event.timestamp), (Some(5), &NOON.to_string()));
}

#[test]
fn a_file_that_is_not_as_we_left_it_is_written_and_so_is_all_that_follows() {
    let others = [
        None,
        Some(LeftEntry { inode: 1, ..LEFT }),
        Some(LeftEntry { size: 6, ..LEFT }),
        Some(LeftEntry {
            modified: 0,
            ..LEFT
        }),
        Some(LeftEntry {
            changed: 43,
            ..LEFT
        }),
    ];
    for now in others {
        let home = Home::new();
        let act = [restored("a", 3, Some(LEFT))];
        home.ledger.settle("act", NOON, &act).unwrap();

        let first = tell(&home.ledger, &[(Modified, "a")], &mut |_| now);
        let later = home.tell(&[(Modified, "a")]);

        assert_eq!(first, recorded(1, 0, 0), "{now:?}");
        assert_eq!(later, recorded(1, 0, 0), "nobody looks any more");
    }
}

#[test]
fn what_we_removed_is_ours_until_somebody_makes_it_again() {
    let home = Home::new();
    let act = [restored("dir", 3, None)];
    home.ledger.settle("act", NOON, &act).unwrap();

    let gone = tell(
        &home.ledger,
        &[(Deleted, "dir/a"), (Deleted, "dir")],
        &mut |_| None,
    );
    let neighbour = home.tell(&[(Created, "dirt")]);
    let again = tell(
        &home.ledger,
        &[(Created, "dir/a"), (Deleted, "dir/b")],
        &mut |at| (*at == path("dir/a")).then_some(LEFT),
    );
    let later = home.tell(&[(Deleted, "dir/a")]);

    assert_eq!(gone, recorded(0, 2, 0));
    assert_eq!(neighbour, recorded(1, 0, 0));
    assert_eq!(again, recorded(1, 1, 0), "the other one is still ours");
    assert_eq!(later, recorded(1, 0, 0));
}

#[test]
fn a_directory_that_we_left_says_nothing_of_the_files_in_it() {
    let home = Home::new();
    home.ledger.announce("act", &[path("dir")]).unwrap();
    let act = [
        restored("dir", 3, Some(LEFT)),
        restored("dir/a", 3, Some(LEFT)),
    ];
    home.ledger.settle("act", NOON, &act).unwrap();

    let told = tell(
        &home.ledger,
        &[(Created, "dir/a"), (Created, "dir/b")],
        &mut |_| Some(LEFT),
    );

    assert_eq!(told, recorded(1, 1, 0));
    assert_eq!(home.written().last().unwrap(), "created dir/b");
}

#[test]
fn while_we_are_at_it_events_are_held_back_also_across_a_restart_and_then_judged() {
    let home = Home::new();
    home.ledger
        .announce("act", &[path("dir"), path("file")])
        .unwrap();
    let watcher = home.again();
    let mut nobody = |_: &EntryPath| panic!("nobody looks while it is not over");
    let events = [
        (Modified, "dir/deep/a"),
        (Modified, "file"),
        (Created, "other"),
    ];

    let first = tell(&watcher, &events, &mut nobody);
    drop(watcher);
    let second = tell(&home.again(), &[], &mut nobody);
    let before = home.written();
    home.ledger
        .settle("act", NOON, &[restored("file", 3, Some(LEFT))])
        .unwrap();
    let third = tell(&home.again(), &[(Modified, "file")], &mut |_| Some(LEFT));
    let fourth = home.tell(&[]);

    assert_eq!(first, recorded(1, 0, 2));
    assert_eq!(second, recorded(0, 0, 2));
    assert_eq!(before, ["created other"]);
    assert_eq!(third, recorded(1, 2, 0));
    assert_eq!(fourth, recorded(0, 0, 0));
    let all = [
        "created other",
        "restored file (from cp-3)",
        "modified dir/deep/a",
    ];
    assert_eq!(home.written(), all);
    let held = home.ledger.events(2, None, 9).unwrap().remove(0);
    assert_eq!((held.size, held.timestamp), (Some(7), NOON.to_string()));
}

#[test]
fn an_act_on_the_whole_tree_holds_everything_back() {
    let home = Home::new();
    home.ledger.announce("act", &[EntryPath::root()]).unwrap();

    let told = tell(&home.ledger, &[(Modified, "deep/er/file")], &mut |_| None);

    assert_eq!(told, recorded(0, 0, 1));
}

#[test]
fn when_the_process_that_announced_ended_everything_is_written() {
    let home = Home::new();
    home.ledger
        .announce("act", &[path("a"), path("b")])
        .unwrap();
    let held = tell(&home.ledger, &[(Modified, "a")], &mut |_| None);

    kill(&home, "act");
    let freed = home.tell(&[(Modified, "b")]);

    assert_eq!((held.held, freed), (1, recorded(2, 0, 0)));
    assert_eq!(home.written(), ["modified a", "modified b"]);
    let left = home.ask::<i64>("SELECT COUNT(*) FROM stasis_own_changes");
    assert_eq!(left.concat(), [0]);
}

#[test]
fn an_act_that_is_abandoned_explains_nothing() {
    let home = Home::new();
    home.ledger.announce("one", &[path("a")]).unwrap();
    home.ledger.announce("two", &[path("b")]).unwrap();
    tell(
        &home.ledger,
        &[(Modified, "a"), (Modified, "b")],
        &mut |_| None,
    );

    home.ledger.abandon("one").unwrap();
    let told = home.tell(&[]);

    assert_eq!(told, recorded(1, 0, 1));
    assert_eq!(home.written(), ["modified a"]);
}

#[test]
fn a_later_act_on_a_path_takes_the_place_of_an_earlier_one() {
    let home = Home::new();
    let later = LeftEntry { inode: 9, ..LEFT };
    home.ledger.announce("one", &[path("a")]).unwrap();
    home.ledger.announce("two", &[path("a")]).unwrap();
    home.ledger
        .settle("one", NOON, &[restored("a", 1, Some(LEFT))])
        .unwrap();
    let held = tell(&home.ledger, &[(Modified, "a")], &mut |_| None);
    home.ledger
        .settle("two", NOON, &[restored("a", 2, Some(later))])
        .unwrap();

    let told = tell(&home.ledger, &[], &mut |_| Some(later));

    assert_eq!(held, recorded(0, 0, 1), "the second is still at it");
    assert_eq!(told, recorded(0, 1, 0));
    assert_eq!(
        home.written(),
        ["restored a (from cp-1)", "restored a (from cp-2)"]
    );
}

#[test]
fn what_was_left_in_a_directory_is_forgotten_with_the_directory() {
    let home = Home::new();
    let files = ["dir/a", "dir/b/c", "dir.txt", "dir0"];
    let act = files.map(|file| restored(file, 1, Some(LEFT)));
    home.ledger.settle("one", NOON, &act).unwrap();
    home.ledger
        .settle("two", NOON, &[restored("dir", 2, None)])
        .unwrap();

    let gone = tell(
        &home.ledger,
        &[(Deleted, "dir/a"), (Deleted, "dir/b/c")],
        &mut |_| None,
    );
    let beside = tell(
        &home.ledger,
        &[(Created, "dir.txt"), (Created, "dir0")],
        &mut |_| Some(LEFT),
    );

    assert_eq!(gone, recorded(0, 2, 0));
    assert_eq!(beside, recorded(0, 2, 0));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test makes its tree")]
fn a_real_file_is_as_we_left_it_until_somebody_touches_it() {
    let home = Home::new();
    let file = home.directory.path().join("file");
    let look = || {
        let seen = rustix::fs::lstat(&file).ok()?;
        Some(LeftEntry::from(&crate::fs::metadata::Seen::from(&seen)))
    };
    std::fs::write(&file, "old").unwrap();
    home.ledger
        .settle("act", NOON, &[restored("file", 1, look())])
        .unwrap();

    let untouched = tell(&home.ledger, &[(Modified, "file")], &mut |_| look());
    std::fs::remove_file(&file).unwrap();
    let touched = tell(&home.ledger, &[(Deleted, "file")], &mut |_| look());

    assert_eq!(untouched, recorded(0, 1, 0));
    assert_eq!(touched, recorded(1, 0, 0));
}
