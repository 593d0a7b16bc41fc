//! The same on xfs, btrfs, ext4 and in memory.

use crate::support::*;
use stasis_disk::tree::restore::{self, Placement, RestoreError};
use stasis_testkit::mounted_image::MountedImage;
use std::process::Command;

/// An image of half a gigabyte, or a tmpfs.
pub(crate) fn mounted(filesystem: &str) -> Option<MountedImage> {
    MountedImage::new(filesystem, 512 << 20)
}

fn every_way_works(filesystem: &str) {
    let Some(mounted) = mounted(filesystem) else {
        return;
    };
    let home = Home::on(&mounted.root());
    let target = home.path().join("target");
    let is = |tree: &Tree| {
        let (shown, mut wanted) = (show(&target), ideal(tree));
        if shown.iter().all(|(entry, _)| entry.attributes.is_empty()) {
            // A kernel whose tmpfs has no attributes of the user.
            for (entry, _) in &mut wanted {
                entry.attributes.clear();
            }
        }
        assert_eq!(shown, wanted, "{filesystem}");
    };

    for (tree, placement) in [
        (old(), Placement::New),
        (new(), Placement::InPlace),
        (old(), Placement::Replace),
        (new(), Placement::Replace),
        (old(), Placement::InPlace),
    ] {
        let _ = restore(&target, &tree, placement).unwrap();
        is(&tree);
    }
    assert!(restore::forget(&target).unwrap());
    let _ = restore(&target, &new(), Placement::InPlace).unwrap();
    for back in [old(), new()] {
        let _ = restore::undo(&target, &origin()).unwrap();
        is(&back);
    }
    assert!(restore::forget(&target).unwrap());
    assert_eq!(all_names(home.path()), ["target"]);
    // The root of the filesystem itself: staged inside.
    let _ = restore(&mounted.root(), &new(), Placement::InPlace).unwrap();
    assert_eq!(show(&mounted.root()).len(), ideal(&new()).len());
    assert!(!target.exists());
}

#[test]
fn every_way_works_on_xfs() {
    every_way_works("xfs");
}

#[test]
fn every_way_works_on_btrfs() {
    every_way_works("btrfs");
}

#[test]
fn every_way_works_on_ext4() {
    every_way_works("ext4");
}

#[test]
fn every_way_works_in_memory() {
    every_way_works("tmpfs");
}

#[test]
fn a_btrfs_subvolume_is_replaced_or_restored_in_place_and_one_inside_refused() {
    let Some(mounted) = mounted("btrfs") else {
        return;
    };
    let target = mounted.root().join("target");
    let subvolume = |at: &std::path::Path| {
        let made = Command::new("btrfs")
            .args(["subvolume", "create"])
            .arg(at)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
    };
    subvolume(&target);
    let _ = restore(&target, &old(), Placement::InPlace).unwrap();
    assert_eq!(show(&target), ideal(&old()));
    std::fs::remove_file(target.join("untouched/inner")).unwrap();
    std::fs::remove_dir(target.join("untouched")).unwrap();
    subvolume(&target.join("untouched"));

    let inside = restore(&target, &new(), Placement::InPlace).unwrap_err();
    let _ = restore(&target, &new(), Placement::Replace).unwrap();

    assert!(matches!(inside, RestoreError::MountInside(_)), "{inside}");
    assert_eq!(show(&target), ideal(&new()));
    assert!(restore::forget(&target).unwrap());
    assert_eq!(names(&mounted.root()), ["target"]);
}
