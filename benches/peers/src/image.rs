//! A filesystem of our own on a loop device, for those who share blocks.

use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Room for a tree, a full copy of it, and what a filesystem needs for itself.
const SIZE: u64 = 6 << 30;

/// A mounted image, unmounted and removed when dropped.
#[derive(Debug)]
pub(crate) struct Image {
    file: PathBuf,
    at: PathBuf,
}

fn call(program: &str, arguments: &[&Path]) -> Result<()> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("could not start `{program}`"))?;
    if !output.status.success() {
        bail!(
            "`{program}` said: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

impl Image {
    /// Makes and mounts one; an error says what is missing for it.
    pub(crate) fn new(scratch: &Path, filesystem: &str) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            bail!("only root mounts a {filesystem}");
        }
        let file = scratch.join(format!("{filesystem}.img"));
        let at = scratch.join(filesystem);
        fs::create_dir_all(&at)?;
        File::create(&file)?.set_len(SIZE)?;
        let image = Self { file, at };
        call(&format!("mkfs.{filesystem}"), &["-q".as_ref(), &image.file])?;
        call(
            "mount",
            &["-o".as_ref(), "loop".as_ref(), &image.file, &image.at],
        )?;
        Ok(image)
    }

    /// Puts a copy of a tree there; on btrfs it is a subvolume.
    pub(crate) fn take(&self, tree: &Path, is_subvolume: bool) -> Result<PathBuf> {
        let copy = self.at.join("tree");
        if is_subvolume {
            call("btrfs", &["subvolume".as_ref(), "create".as_ref(), &copy])?;
        } else {
            fs::create_dir(&copy)?;
        }
        call("cp", &["-a".as_ref(), "-T".as_ref(), tree, &copy])?;
        Ok(copy)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // What was never mounted cannot be unmounted; a leftover image lies in the scratch directory.
        let _ = call("umount", &[&self.at]);
        let _ = fs::remove_file(&self.file);
    }
}
