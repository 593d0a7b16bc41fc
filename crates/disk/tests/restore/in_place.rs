//! Into a directory that stays.

use crate::support::*;
use stasis_disk::tree::restore::{PlacedTree, Placement, RestoreError, RestoreStage};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

fn identity(path: &Path) -> (u64, i64, i64) {
    let seen = std::fs::symlink_metadata(path).unwrap();
    (seen.ino(), seen.ctime(), seen.ctime_nsec())
}

#[test]
fn a_live_tree_becomes_the_new_one_and_what_was_right_is_not_touched() {
    let home = Home::new();
    let target = home.path().join("target");
    let _ = restore(&target, &old(), Placement::New).unwrap();
    let right = [
        "deep",
        "deep/er/same",
        "hard-1",
        "hard-2",
        "link-same",
        "locked/same",
        "same",
        "untouched",
        "untouched/inner",
    ];
    let seen = || right.map(|name| identity(&target.join(name)));
    let (before, root) = (seen(), identity(&target).0);

    let restored = restore(&target, &new(), Placement::InPlace).unwrap();

    assert_eq!(show(&target), ideal(&new()));
    assert_eq!(seen(), before);
    assert_eq!(identity(&target).0, root);
    let PlacedTree::InPlace(changes) = restored.placed else {
        unreachable!("{restored:?}")
    };
    assert_eq!((changes.untouched, changes.removed), (8, 3));
    assert_eq!(names(home.path()), ["target"]);
    let all = || walk(&target).into_iter().map(|path| identity(&path));
    let before: Vec<_> = all().collect();

    let again = restore(&target, &new(), Placement::InPlace).unwrap();

    assert_eq!(all().collect::<Vec<_>>(), before);
    let PlacedTree::InPlace(changes) = again.placed else {
        unreachable!("{again:?}")
    };
    assert_eq!(
        (changes.placed, changes.removed, changes.dressed),
        (0, 0, 0)
    );
}

fn walk(root: &Path) -> Vec<std::path::PathBuf> {
    let entries = show(root).into_iter();
    let path = |text: String| root.join(text);
    entries
        .map(|(entry, _)| path(entry.path.to_string()))
        .collect()
}

#[test]
fn what_the_caller_says_is_right_need_not_be_staged() {
    let home = Home::new();
    let target = home.path().join("target");
    let _ = restore(&target, &old(), Placement::New).unwrap();
    let left = ["same", "hard-1", "hard-2", "deep/er/same", "locked/same"];
    let before = left.map(|name| identity(&target.join(name)));

    let begun = RestoreStage::begin(&target, Placement::InPlace, Arc::default()).unwrap();
    let written = stage(&begun, &new(), &left).unwrap();
    let _ = begun.swap(written, &origin()).unwrap();

    assert_eq!(show(&target), ideal(&new()));
    assert_eq!(left.map(|name| identity(&target.join(name))), before);
}

#[test]
fn there_and_back_again() {
    let home = Home::new();
    let target = home.path().join("target");
    let _ = restore(&target, &old(), Placement::InPlace).unwrap();
    let root = identity(&target).0;
    for tree in [new(), old(), tree(&[], (0o700, 5)), new()] {
        let _ = restore(&target, &tree, Placement::InPlace).unwrap();

        assert_eq!(show(&target), ideal(&tree));
        assert_eq!(identity(&target).0, root);
    }
    assert_eq!(names(home.path()), ["target"]);
}

#[test]
fn names_outside_the_tree_are_no_reason_to_touch_a_file() {
    let home = Home::new();
    let (target, store) = (home.path().join("target"), home.path().join("store"));
    let _ = restore(&target, &old(), Placement::New).unwrap();
    std::fs::hard_link(target.join("same"), &store).unwrap();
    let before = identity(&store);

    let _ = restore(&target, &new(), Placement::InPlace).unwrap();

    assert_eq!(show(&target), ideal(&new()));
    assert_eq!(identity(&target.join("same")), before);
}

#[test]
fn names_of_a_file_that_come_with_a_missing_directory_are_names_of_one_file_again() {
    let home = Home::new();
    let target = home.path().join("target");
    let items = [
        ("a", Item::Directory(0o755)),
        ("a/b", Item::Directory(0o755)),
        ("a/b/f", file("one file")),
        ("a/b/g", Item::Hard("a/b/f")),
        ("hard", Item::Hard("a/b/f")),
        ("other-1", file("another one")),
        ("other-2", Item::Hard("other-1")),
    ];
    let linked = tree(&items, (0o755, 3_000));
    for gone in ["a", "a/b", "hard"] {
        let _ = restore(&target, &linked, Placement::InPlace).unwrap();
        let others = identity(&target.join("other-1"));
        let path = target.join(gone);
        let removed = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
        removed.unwrap();

        let _ = restore(&target, &linked, Placement::InPlace).unwrap();

        assert_eq!(show(&target), ideal(&linked), "{gone}");
        let names = ["a/b/f", "a/b/g", "hard"].map(|name| identity(&target.join(name)).0);
        assert_eq!(names, [names[0]; 3], "{gone}");
        // A file whose names all are there is not touched for that.
        assert_eq!(identity(&target.join("other-1")), others, "{gone}");
    }
}

#[test]
fn attributes_are_part_of_what_is_compared() {
    let home = Home::new();
    let target = home.path().join("target");
    let _ = restore(&target, &old(), Placement::New).unwrap();
    for (name, attribute) in [
        ("same", "user.note"),
        ("hard-1", "user.more"),
        ("untouched", "user.dir"),
        (".", "user.root"),
    ] {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(target.join(name), attribute, b"other", flags).unwrap();
    }

    let restored = restore(&target, &old(), Placement::InPlace).unwrap();

    assert_eq!(show(&target), ideal(&old()));
    let none = rustix::fs::listxattr(&target, &mut [0_u8; 100]).unwrap();
    assert_eq!(none, 0);
    let PlacedTree::InPlace(changes) = restored.placed else {
        unreachable!("{restored:?}")
    };
    assert_eq!((changes.placed, changes.removed), (3, 0));
    assert_eq!(changes.dressed, 2);
}

#[test]
fn two_at_once_are_one_after_the_other_or_refused() {
    let home = Home::new();
    let target = home.path().join("target");
    let _ = restore(&target, &old(), Placement::New).unwrap();
    let held = std::fs::File::open(&target).unwrap();
    held.lock().unwrap();

    let busy = restore(&target, &new(), Placement::InPlace).unwrap_err();

    assert!(matches!(busy, RestoreError::Busy(_)), "{busy}");
    assert_eq!(show(&target), ideal(&old()));
    assert_eq!(names(home.path()), ["target"]);
}

/// A filesystem in memory, unmounted when dropped.
struct Memory<'a>(&'a Path);

impl<'a> Memory<'a> {
    fn mount(at: &'a Path) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "stasis-test"])
            .arg(at)
            .output()
            .unwrap();
        if !mounted.status.success() {
            println!("skipped: not allowed to mount");
            return None;
        }
        Some(Self(at))
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).output();
    }
}

#[test]
fn a_mount_point_is_restored_in_place_and_shows_nothing_of_it() {
    let home = Home::new();
    let target = home.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let Some(_mounted) = Memory::mount(&target) else {
        return;
    };
    for tree in [old(), new()] {
        let _ = restore(&target, &tree, Placement::InPlace).unwrap();
        let begun = RestoreStage::begin(&target, Placement::InPlace, Arc::default()).unwrap();
        drop(begun);

        let (shown, mut wanted) = (show(&target), ideal(&tree));
        if shown[1..]
            .iter()
            .all(|(entry, _)| entry.attributes.is_empty())
        {
            // A kernel whose tmpfs has no attributes of the user.
            for (entry, _) in &mut wanted {
                entry.attributes.clear();
            }
        }
        assert_eq!(shown, wanted);
        assert_eq!(names(home.path()), ["target"]);
    }
    let mount = restore(&target, &new(), Placement::Replace).unwrap_err();
    assert!(matches!(mount, RestoreError::TargetIsMount(_)), "{mount}");
}

#[test]
fn what_is_mounted_inside_is_never_moved_or_emptied() {
    let home = Home::new();
    let target = home.path().join("target");
    let _ = restore(&target, &old(), Placement::New).unwrap();
    let inside = target.join("untouched");
    let Some(_mounted) = Memory::mount(&inside) else {
        return;
    };
    std::fs::write(inside.join("theirs"), "alive").unwrap();
    let mut without = new();
    without.items.remove("untouched/inner");

    for placement in [Placement::Replace, Placement::InPlace] {
        let refused = restore(&target, &new(), placement).unwrap_err();
        assert!(matches!(refused, RestoreError::MountInside(_)), "{refused}");
    }
    let _ = restore(&target, &without, Placement::InPlace).unwrap();

    assert_eq!(std::fs::read(inside.join("theirs")).unwrap(), b"alive");
    assert_eq!(std::fs::read(target.join("changed")).unwrap(), b"new");
    assert_eq!(names(home.path()), ["target"]);
}
