//! A filesystem of its own for a test: an image on a loop device, or a tmpfs.
//!
//! Only root mounts one. A machine that cannot is no failure: the test says that it was skipped and returns, unless
//! `STASIS_REQUIRE_PARTS` says that the parts must be there.

#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]
#![expect(
    clippy::disallowed_methods,
    reason = "a fixture writes where no other process looks"
)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A mounted filesystem, unmounted and removed when dropped.
#[derive(Debug)]
#[must_use = "the filesystem is unmounted when this is dropped"]
pub struct MountedImage {
    home: TempDir,
}

impl MountedImage {
    /// Makes and mounts an image of `bytes` with `filesystem` (`xfs`, `btrfs`, `ext4`), or a `tmpfs`; `None`, after saying why,
    /// where that is not possible.
    pub fn new(filesystem: &str, bytes: u64) -> Option<Self> {
        Self::with_options(filesystem, bytes, &["-q"])
    }

    /// The same with other options of `mkfs`.
    pub fn with_options(filesystem: &str, bytes: u64, options: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root mounts a {filesystem}");
            return None;
        }
        let home = tempfile::tempdir().expect("a directory for the test");
        let mounted = Self { home };
        fs::create_dir(mounted.root()).expect("a directory to mount on");
        if filesystem == "tmpfs" {
            return mounted.mount(&["-t", "tmpfs", "stasis-test"]);
        }
        let image = mounted.home().join("image");
        let sized = File::create(&image).and_then(|file| file.set_len(bytes));
        sized.expect("room for a sparse image");
        let mut mkfs = Command::new(format!("mkfs.{filesystem}"));
        let Ok(made) = mkfs.args(options).arg(&image).output() else {
            let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
            assert!(!needed, "mkfs.{filesystem} is not there: run scripts/test");
            println!("skipped: mkfs.{filesystem} is not there");
            return None;
        };
        let stderr = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{stderr}");
        let image = image.to_str().expect("a path that is text");
        mounted.mount(&["-o", "loop", image])
    }

    fn mount(self, arguments: &[&str]) -> Option<Self> {
        let mut mount = Command::new("mount");
        let mounted = mount.args(arguments).arg(self.root()).output();
        let mounted = mounted.expect("`mount` is part of every system");
        if !mounted.status.success() {
            let stderr = String::from_utf8_lossy(&mounted.stderr);
            println!("skipped: not allowed to mount: {stderr}");
            return None;
        }
        Some(self)
    }

    /// The root of the filesystem.
    pub fn root(&self) -> PathBuf {
        self.home().join("mounted")
    }

    /// The directory that [`MountedImage::root`] is in, on the filesystem outside.
    pub fn home(&self) -> &Path {
        self.home.path()
    }
}

impl Drop for MountedImage {
    fn drop(&mut self) {
        let unmount = |options: &[&str]| {
            let done = Command::new("umount")
                .args(options)
                .arg(self.root())
                .output();
            done.is_ok_and(|done| done.status.success())
        };
        // What is still open, say by a test that failed, can only be unmounted lazily.
        let _ = unmount(&[]) || unmount(&["-l"]);
    }
}
