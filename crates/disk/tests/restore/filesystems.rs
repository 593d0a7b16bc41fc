//! The same on xfs, btrfs, ext4 and in memory.

use crate::support::*;
use stasis_disk::tree::restore::{self, Placement, RestoreError};
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

/// A filesystem of its own, unmounted when dropped.
pub(crate) struct Mounted(Home);

impl Mounted {
    /// Makes and mounts one, or says why not.
    pub(crate) fn new(filesystem: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root mounts a {filesystem}");
            return None;
        }
        let mounted = Self(Home::new());
        let image = mounted.0.path().join("image");
        std::fs::create_dir(mounted.root()).unwrap();
        let mut mount = Command::new("mount");
        if filesystem == "tmpfs" {
            mount.args(["-t", "tmpfs", "stasis-test"]);
        } else {
            File::create(&image).unwrap().set_len(512 << 20).unwrap();
            let made = Command::new(format!("mkfs.{filesystem}"))
                .arg("-q")
                .arg(&image)
                .output();
            let Ok(made) = made else {
                let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
                assert!(!needed, "mkfs.{filesystem} is not there: run scripts/test");
                println!("skipped: mkfs.{filesystem} is not there");
                return None;
            };
            assert!(made.status.success(), "{made:?}");
            mount.args(["-o", "loop"]).arg(&image);
        }
        let done = mount.arg(mounted.root()).output().unwrap();
        if !done.status.success() {
            println!("skipped: not allowed to mount: {done:?}");
            return None;
        }
        Some(mounted)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.0.path().join("mounted")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.root()).output();
    }
}

fn every_way_works(filesystem: &str) {
    let Some(mounted) = Mounted::new(filesystem) else {
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
    let Some(mounted) = Mounted::new("btrfs") else {
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
