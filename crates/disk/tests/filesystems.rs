//! Clones on real filesystems: xfs and btrfs on loop devices, and what is mounted inside a tree.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests make the trees that they look at"
)]

use stasis_disk::beneath::{Beneath, Mounts};
use stasis_disk::clone::{CloneError, CloneSettings, Fallback, clone};
use stasis_disk::walk::{self, Reason, WalkSettings};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A filesystem of its own, unmounted when dropped.
struct Mounted {
    home: TempDir,
}

impl Mounted {
    /// Mounts what `mount` says, or says why this test is skipped.
    fn new(filesystem: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root mounts a {filesystem}");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let mounted = Self { home };
        fs::create_dir(mounted.root()).unwrap();
        if filesystem == "tmpfs" {
            return mounted.mount(&["-t", "tmpfs", "stasis-test"]);
        }
        let image = mounted.home.path().join("image");
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
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        mounted.mount(&["-o", "loop", image.to_str().unwrap()])
    }

    fn mount(self, arguments: &[&str]) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(arguments)
            .arg(self.root())
            .output()
            .unwrap();
        if !mounted.status.success() {
            println!(
                "skipped: not allowed to mount: {}",
                String::from_utf8_lossy(&mounted.stderr)
            );
            return None;
        }
        Some(self)
    }

    fn root(&self) -> PathBuf {
        self.home.path().join("mounted")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.root()).output();
    }
}

fn refusing() -> CloneSettings {
    CloneSettings {
        fallback: Fallback::Refuse,
        ..CloneSettings::default()
    }
}

/// Several files, one of them large and one sparse; returns how long they are together.
fn furnish(source: &Path) -> u64 {
    fs::create_dir_all(source.join("deep/er")).unwrap();
    fs::write(source.join("small"), "a few bytes").unwrap();
    fs::write(source.join("deep/empty"), "").unwrap();
    fs::write(source.join("deep/er/large"), vec![7; 20 << 20]).unwrap();
    fs::hard_link(source.join("small"), source.join("deep/again")).unwrap();
    let sparse = File::create(source.join("sparse")).unwrap();
    sparse.write_all_at(b"end", (1 << 30) - 3).unwrap();
    11 + (20 << 20) + (1 << 30)
}

fn every_byte_is_shared(filesystem: &str) {
    let Some(mounted) = Mounted::new(filesystem) else {
        return;
    };
    let (source, target) = (mounted.root().join("source"), mounted.root().join("target"));
    let bytes = furnish(&source);
    let used = |path: &Path| rustix::fs::statvfs(path).unwrap().f_bfree;
    rustix::fs::syncfs(File::open(&source).unwrap()).unwrap();
    let (before, block) = (used(&source), rustix::fs::statvfs(&source).unwrap().f_bsize);

    let report = clone(&source, &target, &refusing()).unwrap();

    assert_eq!((report.bytes_shared, report.bytes_copied), (bytes, 0));
    assert_eq!((report.files, report.hard_links), (4, 1));
    let spent = before.saturating_sub(used(&source)) * block;
    assert!(
        spent < 8 << 20,
        "{spent} bytes were spent on sharing {bytes}"
    );
    let list = |root: &Path| {
        let root = Beneath::open(root, Mounts::Stay).unwrap();
        walk::list(&root, &WalkSettings::default()).unwrap().0
    };
    assert_eq!(list(&target), list(&source));
    assert_eq!(
        fs::read(target.join("deep/er/large")).unwrap(),
        vec![7; 20 << 20]
    );
    assert!(fs::metadata(target.join("sparse")).unwrap().blocks() < 1000);
    fs::write(target.join("small"), "changed").unwrap();
    assert_eq!(fs::read(source.join("small")).unwrap(), b"a few bytes");
}

#[test]
fn on_xfs_every_byte_is_shared() {
    every_byte_is_shared("xfs");
}

#[test]
fn on_btrfs_every_byte_is_shared() {
    every_byte_is_shared("btrfs");
}

#[test]
fn on_ext4_and_tmpfs_a_clone_that_may_not_copy_is_refused() {
    for filesystem in ["ext4", "tmpfs"] {
        let Some(mounted) = Mounted::new(filesystem) else {
            continue;
        };
        let (source, target) = (mounted.root().join("source"), mounted.root().join("target"));
        let bytes = furnish(&source);

        let refused = clone(&source, &target, &refusing()).unwrap_err();
        let left = fs::read_dir(mounted.root()).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        let copied = clone(&source, &target, &CloneSettings::default()).unwrap();

        assert!(
            matches!(refused, CloneError::CannotShare { .. }),
            "{refused}"
        );
        let expected = ["lost+found", "source"];
        assert!(
            left.iter()
                .all(|name| expected.iter().any(|one| name == one)),
            "{left:?}"
        );
        assert_eq!((copied.bytes, copied.bytes_shared), (bytes, 0));
        assert!(copied.bytes_copied < 22 << 20, "{}", copied.bytes_copied);
    }
}

#[test]
fn between_two_filesystems_bytes_are_copied() {
    let Some(mounted) = Mounted::new("tmpfs") else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("source");
    let bytes = furnish(&source);

    let report = clone(
        &source,
        &mounted.root().join("target"),
        &CloneSettings::default(),
    )
    .unwrap();

    assert_eq!((report.bytes, report.bytes_shared), (bytes, 0));
    let copied = fs::read(mounted.root().join("target/deep/er/large")).unwrap();
    assert_eq!(copied, vec![7; 20 << 20]);
}

#[test]
fn what_is_mounted_in_a_tree_is_crossed_only_when_asked_for() {
    let Some(mounted) = Mounted::new("tmpfs") else {
        return;
    };
    fs::write(mounted.root().join("inside"), "elsewhere").unwrap();
    let source = mounted.home.path();
    let list = |mounts| {
        let root = Beneath::open(source, mounts).unwrap();
        walk::list(&root, &WalkSettings::default()).unwrap()
    };

    let (stayed, report) = list(Mounts::Stay);
    let (crossed, _) = list(Mounts::Cross);

    assert!(stayed.is_empty(), "{stayed:?}");
    assert_eq!(report.skipped[0].reason, Reason::OtherFilesystem);
    let crossed: Vec<_> = crossed.iter().map(|entry| entry.path.to_string()).collect();
    assert_eq!(crossed, ["mounted", "mounted/inside"]);
}
