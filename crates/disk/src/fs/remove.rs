//! Removes a tree of our own through descriptors only.
//!
//! Whatever lies deeper than one level is first moved up to the top of the tree: no way is ever longer than one name,
//! so neither depth nor breadth costs descriptors, and no symbolic link is ever followed. What is mounted in the tree is
//! not part of it: it is left alone, and so are the directories above it. On a disk so full that nothing can be moved, everything is
//! removed where it is.

use crate::fs::fd::{c_name, open_dir, reopen_dir};
use crate::fs::free_space;
use crate::fs::sys::listing::Listing;
use crate::fs::sys::{open as sys_open, processes, subvolume};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, Result, retry_on_intr};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the kernel fills with names in one call.
const BUFFER: usize = 32 << 10;

/// Removes every directory in `parent` that is called `STEM<pid>` or `STEM<pid>-…` after a process that does not live.
pub fn left_by_the_dead(parent: &Path, stem: &str) {
    left_by_the_dead_unless(parent, stem, |_| false);
}

/// The same, but leaves those of which `is_used` says that somebody still needs them.
pub fn left_by_the_dead_unless(parent: &Path, stem: &str, is_used: impl Fn(&Path) -> bool) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(stem));
        let pid = rest.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !processes::exists(pid)) && !is_used(&entry.path()) {
            // What stays is looked for again the next time.
            let _ = tree_at(&entry.path());
        }
    }
}

/// Removes every directory in `parent` that has nothing in it.
pub fn empty_directories(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            // One that has something in it stays, and that is meant.
            let _ = rustix::fs::rmdir(entry.path());
        }
    }
}

/// Removes the file at `path`; one that is not there is no error.
pub fn file_at(path: &Path) -> Result<()> {
    match rustix::fs::unlink(path) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

/// Removes the directory at `path` with everything in it; one that is not there is no error.
pub fn tree_at(path: &Path) -> Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL);
    };
    let name = c_name(name.as_bytes())?;
    tree(open_dir(parent)?, &name)
}

/// Removes the directory `name` with everything in it; one that is not there is no error.
pub fn tree(parent: impl AsFd, name: &CStr) -> Result<()> {
    // A subvolume goes at once, if we may; otherwise it is emptied like any other directory.
    if subvolume::is_subvolume(parent.as_fd(), name)
        && subvolume::destroy(parent.as_fd(), name).is_ok()
    {
        return Ok(());
    }
    let top = match open(parent.as_fd(), name) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut moved = 0;
    loop {
        let directories = unlink_files(&top)?;
        if directories.is_empty() {
            break;
        }
        for directory in &directories {
            let inside = open(top.as_fd(), directory)?;
            for deeper in unlink_files(&inside)? {
                // A directory can be moved only by somebody who may write in it.
                drop(open(inside.as_fd(), &deeper)?);
                match move_up(&inside, &deeper, &top, &mut moved) {
                    // Where a btrfs is full nothing can be moved, and what is unlinked makes room.
                    Err(error) if free_space::is_errno(error) => in_place(inside.as_fd(), &deeper)?,
                    moved => moved?,
                }
            }
            fs::unlinkat(&top, &**directory, AtFlags::REMOVEDIR)?;
        }
    }
    fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Removes a directory with everything in it where it is, by unlinking alone; each level costs a descriptor.
fn in_place(parent: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    let inside = open(parent, name)?;
    for deeper in unlink_files(&inside)? {
        in_place(inside.as_fd(), &deeper)?;
    }
    fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Opens a directory of ours and makes it ours to change; one on which something else is mounted is not ours.
fn open(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd> {
    let opened = match open_here(parent, name) {
        // Its owner took away his own right to read it: only an owner who is not root gets here.
        Err(Errno::ACCESS) => {
            fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
            open_here(parent, name)?
        }
        opened => opened?,
    };
    let mode = Mode::from_raw_mode(fs::fstat(&opened)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        fs::fchmod(&opened, Mode::RWXU)?;
    }
    Ok(opened)
}

fn open_here(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match retry_on_intr(|| sys_open::entry_of(parent, name, flags)) {
        Err(Errno::NOSYS | Errno::PERM) => {}
        opened => return opened,
    }
    let opened = fs::openat(parent, name, flags, Mode::empty())?;
    if fs::fstat(&opened)?.st_dev != fs::fstat(parent)?.st_dev {
        return Err(Errno::XDEV);
    }
    Ok(opened)
}

/// Unlinks everything in a directory that is no directory; returns the names of those.
fn unlink_files(directory: &OwnedFd) -> Result<Vec<CString>> {
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    let listed = reopen_dir(directory)?;
    let mut buffer = Vec::with_capacity(BUFFER);
    let mut entries = Listing::new(&listed, buffer.spare_capacity_mut());
    while let Some(entry) = entries.read() {
        let entry = entry?;
        let name = entry.file_name();
        match entry.file_type() {
            _ if matches!(name.to_bytes(), b"." | b"..") => {}
            FileType::Directory => directories.push(name.to_owned()),
            _ => files.push(name.to_owned()),
        }
    }
    for file in files {
        match fs::unlinkat(directory, &*file, AtFlags::empty()) {
            // A filesystem that does not say in a listing what is a directory.
            Err(Errno::ISDIR) => directories.push(file),
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(directories)
}

fn move_up(from: &OwnedFd, name: &CStr, top: &OwnedFd, moved: &mut u64) -> Result<()> {
    loop {
        *moved += 1;
        let fresh = format!("stasis-removed-{moved}");
        match fs::renameat_with(from, name, top, &*fresh, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            Err(Errno::NOENT) => return Ok(()),
            answer => return answer,
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests make the trees that they look at"
)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_deep_and_awkward_tree_is_removed_and_nothing_outside_it() {
        let home = tempfile::tempdir().unwrap();
        let outside = home.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("canary"), "alive").unwrap();
        let mut deep = home.path().join("tree");
        for level in 0..200 {
            std::fs::create_dir(&deep).unwrap();
            symlink(&outside, deep.join("link")).unwrap();
            std::fs::write(deep.join("stasis-removed-1"), level.to_string()).unwrap();
            deep.push("stasis-removed-2");
        }
        let parent = fs::open(home.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();

        tree(&parent, c"tree").unwrap();
        tree(&parent, c"tree").unwrap();

        assert!(!home.path().join("tree").exists());
        assert_eq!(std::fs::read(outside.join("canary")).unwrap(), b"alive");
    }
}
