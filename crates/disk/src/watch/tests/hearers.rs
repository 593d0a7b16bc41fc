//! Who hears of what, and what only one of them does.

use super::*;
use std::io::Write;

/// The limits of inotify reached at once, and fanotify beyond them.
fn beyond(most_watches: usize) -> MonitorSettings {
    MonitorSettings {
        hearer: Hearer::Auto,
        most_watches,
        rescan_every: LONG,
        ..MonitorSettings::default()
    }
}

fn furnish(root: &Path) {
    for name in ["a", "b/c", "d/e/f"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
}

/// How many directories inotify and fanotify hear of, and how many are blind.
fn hearing(tree: &Watched) -> (usize, usize, usize) {
    let hearing = tree.monitor.hearing();
    (hearing.inotify, hearing.fanotify, hearing.blind)
}

#[test]
fn beyond_the_limit_no_directory_is_blind_where_fanotify_is_permitted() {
    if !is_fanotify_permitted() {
        return;
    }
    for most in 0..8 {
        let mut tree = Watched::with(furnish, beyond(most));
        let heard = most.min(7);
        assert_eq!(hearing(&tree), (heard, 7 - heard, 0));

        for name in ["top", "a/1", "b/2", "b/c/3", "d/4", "d/e/5", "d/e/f/6"] {
            tree.write(name, "1");
        }
        fs::create_dir_all(tree.at("new/er")).unwrap();
        tree.write("new/er/file", "1");
        assert_eq!(tree.flush().len(), 8);
        fs::rename(tree.at("d"), tree.at("b/d")).unwrap();
        fs::rename(tree.at("a"), tree.place.path().join("outside")).unwrap();
        tree.write("b/d/e/f/6", "22");
        tree.flush();
        tree.must_be_explained();
        tree.write("b/d/e/f/6", "333");
        assert_eq!(tree.flush(), ["modified b/d/e/f/6 3"]);

        assert_eq!(tree.monitor.reach(), (8, 0));
    }
}

#[test]
fn what_is_done_is_explained_whoever_hears_of_it() {
    if !is_fanotify_permitted() {
        return;
    }
    for seed in 0..10 {
        let mut tree = Watched::with(furnish, beyond(3));
        let mut dice = races::Dice(seed);
        for _ in 0..40 {
            for _ in 0..=dice.below(20) {
                races::do_anything(&tree.at(""), &mut dice);
            }
            tree.flush();
            tree.must_be_explained();
            let (near, far, blind) = hearing(&tree);
            assert!(near <= 3 && blind == 0, "{near} {far} {blind}");
        }
    }
}

#[test]
fn the_mark_is_there_only_while_it_is_needed() {
    if !is_fanotify_permitted() {
        return;
    }
    let mut tree = Watched::with(|root| fs::create_dir(root.join("a")).unwrap(), beyond(2));
    let is_marked = |tree: &Watched| tree.monitor.belief.watches.is_marked();
    assert!(!is_marked(&tree));

    for _ in 0..3 {
        fs::create_dir(tree.at("b")).unwrap();
        tree.flush();
        assert!(is_marked(&tree) && hearing(&tree) == (2, 1, 0));
        fs::remove_dir(tree.at("b")).unwrap();
        tree.flush();
        assert!(!is_marked(&tree) && hearing(&tree) == (2, 0, 0));
    }
    tree.write("a/file", "1");
    assert_eq!(tree.flush(), ["created a/file 1"]);
}

#[test]
fn where_fanotify_is_not_reliable_directories_are_blind_and_it_is_said() {
    // Not one of the filesystems whose handles are steady.
    let settings = |hearer| MonitorSettings {
        hearer,
        ..beyond(0)
    };
    let start = |hearer| {
        let root = Path::new("/proc/sys/fs");
        Monitor::start(root, Arc::new(Ticking), settings(hearer))
    };

    let hearing = start(Hearer::Auto).unwrap().hearing();
    let refused = start(Hearer::Fanotify).unwrap_err();

    assert_eq!((hearing.inotify, hearing.fanotify), (0, 0));
    assert!(hearing.blind > 0);
    assert_eq!(hearing.refused, Some(std::io::ErrorKind::Unsupported));
    assert!(
        matches!(refused, MonitorError::Failed { .. }),
        "{refused:?}"
    );
}

#[test]
fn noise_elsewhere_on_the_filesystem_is_not_told_and_delays_nothing() {
    if !is_fanotify_permitted() {
        return;
    }
    let mut tree = Watched::with(furnish, heard(Hearer::Fanotify));
    let noisy = tree.place.path().join("noisy");
    fs::create_dir(&noisy).unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::SeqCst;

    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                fs::write(noisy.join(format!("{}", round % 100)), "noise").unwrap();
                if is_done.load(order) {
                    break;
                }
            }
        });
        for round in 0..10 {
            let name = format!("a/{round}");
            let began = read_clock(ClockId::Monotonic);
            tree.write(&name, "1");
            let batch = tree.monitor.next(LONG).unwrap();
            let took = read_clock(ClockId::Monotonic).checked_sub(began).unwrap();
            assert_eq!(words(&batch), [format!("created {name} 1")]);
            assert!(took < Duration::from_secs(5), "{took:?}");
            tree.replay(&batch);
        }
        is_done.store(true, order);
    });

    fs::remove_dir_all(&noisy).unwrap();
    assert_eq!(tree.flush(), [""; 0]);
    tree.must_be_explained();
}

#[test]
fn an_overflow_that_others_caused_is_a_gap_in_which_nothing_was_missed() {
    if !is_fanotify_permitted() {
        return;
    }
    let mut tree = Watched::with(furnish, heard(Hearer::Fanotify));
    tree.write("b/c/file", "1");
    tree.flush();

    for number in 0..20_000 {
        fs::write(tree.place.path().join(format!("{number}")), "").unwrap();
    }
    tree.write("b/c/file", "22");
    let batch = tree.monitor.next(LONG).unwrap();

    assert_eq!(words(&batch), ["modified b/c/file 2"]);
    assert_eq!(batch.gap.map(|gap| gap.why), Some(Why::Overflow));
    assert!(tree.monitor.rest > Duration::ZERO);
    tree.replay(&batch);
    tree.write("b/c/file", "333");
    assert_eq!(tree.flush(), ["modified b/c/file 3"]);
}

#[test]
fn what_is_heard_of_while_directories_are_read_is_not_forgotten() {
    if !is_fanotify_permitted() {
        return;
    }
    let mut tree = Watched::with(furnish, heard(Hearer::Fanotify));
    tree.write("a/file", "1");
    let directory = fs::File::open(tree.at("d")).unwrap();
    let watches = &mut tree.monitor.belief.watches;
    let directory = std::os::fd::AsFd::as_fd(&directory);

    // Whoever reads a directory reads the queue as well.
    watches.watch(&path("d"), directory).unwrap();

    assert_eq!(tree.flush(), ["created a/file 1"]);
}

#[test]
fn a_directory_deleted_behind_a_blind_one_is_no_longer_heard_of() {
    if !is_fanotify_permitted() {
        return;
    }
    let mut tree = Watched::with(furnish, heard(Hearer::Fanotify));
    let watches = &mut tree.monitor.belief.watches;
    watches.cannot_see(&path("b"), Why::Unreadable);

    fs::remove_dir(tree.at("b/c")).unwrap();
    let signs = tree.monitor.belief.watches.hear().unwrap();

    assert!(matches!(&signs[..], [watches::Sign::Lost(lost)] if *lost == path("b/c")));
    assert!(!tree.monitor.belief.watches.sees(&path("b/c")));
}

#[test]
fn a_write_to_a_file_that_is_unlinked_tells_nothing() {
    if !is_fanotify_permitted() {
        return;
    }
    let mut tree = Watched::new(Hearer::Fanotify);
    let mut file = fs::File::create(tree.at("file")).unwrap();
    tree.flush();

    fs::remove_file(tree.at("file")).unwrap();
    assert_eq!(tree.flush(), ["deleted file"]);
    file.write_all(b"unseen").unwrap();
    drop(file);

    assert_eq!(tree.flush(), [""; 0]);
}
