//! Somebody who changes the tree while we look.

use super::*;
use rustix::fs::inotify;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Lets `guest` change the tree while its monitor reports, then checks that everything was explained.
fn beside(tree: &mut Watched, guest: impl FnOnce(&Path) + Send) -> Vec<FileEvent> {
    let (root, is_done) = (tree.at(""), AtomicBool::new(false));
    let mut events = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            guest(&root);
            is_done.store(true, Ordering::SeqCst);
        });
        let mut is_last = false;
        while !is_last {
            is_last = is_done.load(Ordering::SeqCst);
            let batch = tree.monitor.flush().unwrap();
            tree.replay(&batch);
            events.extend(batch.events);
        }
    });
    tree.must_be_explained();
    events
}

#[test]
fn files_in_directories_made_at_once_are_never_missed() {
    let mut tree = Watched::new();

    let events = beside(&mut tree, |root| {
        for round in 0..200 {
            let directory = root.join(format!("{round}/a/b/c"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("file"), "1").unwrap();
        }
    });

    let created = events.iter().filter(|e| e.action == Action::Created);
    assert_eq!(created.count(), 200);
}

#[test]
fn directories_renamed_all_the_time_are_explained() {
    let mut tree = Watched::new();

    beside(&mut tree, |root| {
        fs::create_dir_all(root.join("0/deep")).unwrap();
        for round in 0..300 {
            let here = root.join(round.to_string());
            fs::write(here.join("deep/file"), round.to_string()).unwrap();
            fs::rename(&here, root.join((round + 1).to_string())).unwrap();
        }
    });
}

/// A generator of numbers that are the same every time.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

const IGNORED: &str = "node_modules";

/// Does one thing out of many; that it cannot be done is one of them.
pub(super) fn do_anything(root: &Path, dice: &mut Dice) {
    let names = ["a", "b", "c", IGNORED];
    let mut place = || {
        let depth = 1 + dice.below(3);
        let mut path = root.to_owned();
        path.extend((0..depth).map(|_| names[dice.below(names.len())]));
        path
    };
    let (one, other) = (place(), place());
    let _ = match dice.below(7) {
        0 | 1 => fs::write(&one, "x".repeat(dice.below(9))),
        2 => fs::create_dir_all(&one),
        3 => fs::rename(&one, &other),
        4 => fs::remove_dir_all(&one),
        5 => fs::remove_file(&one),
        _ => symlink("a/b", &one),
    };
}

/// Gives a file another name, both where they are watched.
fn link_something(root: &Path, dice: &mut Dice) {
    let mut place = || root.join(["a", "b", "c", "a/b", "b/c"][dice.below(5)]);
    let _ = fs::hard_link(place(), place());
}

#[test]
fn whatever_is_done_is_explained_at_every_flush() {
    for seed in 0..20 {
        let (mut tree, mut dice) = (Watched::new(), Dice(seed));
        for _ in 0..40 {
            for _ in 0..=dice.below(20) {
                do_anything(&tree.at(""), &mut dice);
            }
            tree.flush();
            tree.must_be_explained();
        }
    }
}

#[test]
fn whatever_is_done_to_files_with_many_names_is_explained() {
    for seed in 0..20 {
        let (mut tree, mut dice) = (Watched::new(), Dice(seed));
        for _ in 0..60 {
            do_anything(&tree.at(""), &mut dice);
            // A name that is written through where nobody looks is reported later.
            let _ = fs::remove_dir_all(tree.at("").join(IGNORED));
            tree.flush();
            link_something(&tree.at(""), &mut dice);
            tree.flush();
            tree.must_be_explained();
        }
    }
}

#[test]
fn whatever_is_done_while_we_look_is_explained_in_the_end() {
    for seed in 100..110 {
        beside(&mut Watched::new(), |root| {
            let mut dice = Dice(seed);
            for _ in 0..2_000 {
                do_anything(root, &mut dice);
            }
        });
    }
}

#[test]
fn a_directory_swapped_for_a_link_never_leads_outside() {
    let mut tree = Watched::new();
    let outside = tree.place.path().join("outside");
    fs::create_dir_all(outside.join("sub")).unwrap();
    fs::write(outside.join("sub/secret"), "1").unwrap();
    fs::create_dir_all(tree.at("d/sub")).unwrap();
    let forbidden = [&outside, &outside.join("sub")].map(|path| fs::File::open(path).unwrap());
    // The kernel reports on whoever opens or reads them.
    let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
    let witness = inotify::init(flags).unwrap();
    let seen = inotify::WatchFlags::OPEN | inotify::WatchFlags::ACCESS;
    for path in [&outside, &outside.join("sub")] {
        inotify::add_watch(&witness, path, seen).unwrap();
    }

    let (root, is_done) = (tree.at(""), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            symlink(&outside, root.join("evil")).unwrap();
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            for round in 0..1_000 {
                fs::write(root.join("other"), round.to_string()).unwrap();
                rustix::fs::renameat_with(CWD, root.join("d"), CWD, root.join("evil"), flags)
                    .unwrap();
            }
            is_done.store(true, Ordering::SeqCst);
        });
        let mut is_last = false;
        while !is_last {
            is_last = is_done.load(Ordering::SeqCst);
            let batch = tree.monitor.flush().unwrap();
            tree.replay(&batch);
            let watches = &tree.monitor.state.watches;
            assert!(
                !forbidden
                    .iter()
                    .any(|one| watches.has_kernel_watch(one.as_fd()))
            );
        }
    });

    tree.must_be_explained();
    let has_secret = |path: &EntryPath| path.as_bytes().ends_with(b"secret");
    assert!(!tree.replayed.keys().any(has_secret));
    assert_eq!(rustix::io::ioctl_fionread(&witness).unwrap(), 0);
}
