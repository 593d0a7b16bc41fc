//! Opens things beneath a root, and never anything else.
//!
//! Every way starts at the root's descriptor and passes through no symbolic link, so that nobody who moves things
//! about while we look can lead us out. The kernel enforces it (`openat2`); where that call is blocked each component
//! is opened by itself, and a link in the way fails the open just the same.

use crate::fs::metadata;
use crate::fs::sys::open::{self, PLACE, Reach};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, Result};
use stasis_model::tree::EntryPath;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// More than this and the kernel refuses a path, whatever it leads to.
const LONGEST_WAY: usize = 4000;
/// How often an open is tried again while somebody renames directories.
const MOST_RETRIES: usize = 1000;

/// Whether other filesystems below the root belong to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mounts {
    /// They do not.
    #[default]
    Stay,
    /// They do.
    Cross,
}

/// A directory, and the only door to what is in it.
#[derive(Debug)]
pub struct RootDir {
    root: OwnedFd,
    device: u64,
    mounts: Mounts,
    has_openat2: AtomicBool,
    overlays: Vec<Overlay>,
}

/// A directory that stands in for one beneath the root.
#[derive(Debug)]
struct Overlay {
    at: EntryPath,
    root: OwnedFd,
    device: u64,
}

impl RootDir {
    /// Opens the directory `path`; its last component must not be a symbolic link.
    pub fn open(path: &Path, mounts: Mounts) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Self::new(fs::open(path, flags, Mode::empty())?, mounts)
    }

    /// Makes an open directory the root.
    pub fn new(root: OwnedFd, mounts: Mounts) -> Result<Self> {
        let device = metadata::of(&root)?.device;
        let has_openat2 = AtomicBool::new(true);
        Ok(Self {
            root,
            device,
            mounts,
            has_openat2,
            overlays: Vec::new(),
        })
    }

    /// The same with another directory at `at`, wherever it lies: in the place of whatever is there, or of nothing. The
    /// directory above `at` must be there, or be an overlay itself.
    ///
    /// So a tree can be read as one that is in several places; nothing is mounted and nobody else sees it.
    pub fn with_overlay(mut self, at: EntryPath, directory: OwnedFd) -> Result<Self> {
        let device = metadata::of(&directory)?.device;
        self.overlays.push(Overlay {
            at,
            root: directory,
            device,
        });
        // The deepest one is found first.
        self.overlays
            .sort_by_key(|overlay| usize::MAX - overlay.at.as_bytes().len());
        Ok(self)
    }

    /// The same without the help of `openat2`, as in a sandbox that blocks it.
    #[cfg(test)]
    pub(crate) fn without_openat2(self) -> Self {
        self.has_openat2.store(false, Ordering::Relaxed);
        self
    }

    /// Whether other filesystems belong to the tree.
    pub fn mounts(&self) -> Mounts {
        self.mounts
    }

    /// The filesystem of the root.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Opens a directory by its way from the root, components joined by slashes; no bytes mean the root.
    pub fn directory(&self, way: &[u8]) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (root, way) = self.standing_in(way);
        if way.is_empty() {
            return fs::openat(root, c".", flags, Mode::empty());
        }
        let (mut reached, mut rest): (Option<OwnedFd>, &[u8]) = (None, way);
        while rest.len() > LONGEST_WAY {
            let slash = rest[..LONGEST_WAY].iter().rposition(|byte| *byte == b'/');
            let slash = slash.ok_or(Errno::NAMETOOLONG)?;
            let from = reached.as_ref().unwrap_or(root).as_fd();
            let on_the_way = PLACE | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let next = self.step(from, &rest[..slash], on_the_way)?;
            (reached, rest) = (Some(next), &rest[slash + 1..]);
        }
        let from = reached.as_ref().unwrap_or(root).as_fd();
        self.step(from, rest, flags)
    }

    /// Whether anything stands in for something else.
    pub(crate) fn has_overlays(&self) -> bool {
        !self.overlays.is_empty()
    }

    /// What stands in for the entry at `path`, if something does.
    pub(crate) fn overlay_at(&self, path: &[u8]) -> Option<Result<metadata::Seen>> {
        let overlay = self.overlays.iter().find(|one| one.at.as_bytes() == path)?;
        Some(metadata::of(&overlay.root))
    }

    /// The names of what is overlaid right into the directory at `path`.
    pub(crate) fn grafts_in<'s>(&'s self, path: &'s [u8]) -> impl Iterator<Item = &'s [u8]> {
        let in_it = move |overlay: &'s Overlay| {
            let (above, name) = overlay.at.split_last()?;
            (above.as_bytes() == path).then_some(name)
        };
        self.overlays.iter().filter_map(in_it)
    }

    /// The directory from which a way goes on, and the rest of the way.
    fn standing_in<'w>(&self, way: &'w [u8]) -> (&OwnedFd, &'w [u8]) {
        let inside = |overlay: &Overlay| match way.strip_prefix(overlay.at.as_bytes())? {
            [] => Some(&way[..0]),
            [b'/', rest @ ..] => Some(rest),
            _ => None,
        };
        let mut overlays = self.overlays.iter();
        overlays
            .find_map(|overlay| Some((&overlay.root, inside(overlay)?)))
            .unwrap_or((&self.root, way))
    }

    /// Opens a regular file in a directory that was opened here, for reading; never waits for a pipe's other end.
    pub fn file(&self, directory: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        self.step(directory, name.to_bytes(), flags)
    }

    fn step(&self, from: BorrowedFd<'_>, way: &[u8], flags: OFlags) -> Result<OwnedFd> {
        if self.has_openat2.load(Ordering::Relaxed) {
            match self.by_kernel(from, way, flags) {
                Err(Errno::NOSYS | Errno::PERM) => self.has_openat2.store(false, Ordering::Relaxed),
                answer => return answer,
            }
        }
        self.by_component(from, way, flags)
    }

    fn by_kernel(&self, from: BorrowedFd<'_>, way: &[u8], flags: OFlags) -> Result<OwnedFd> {
        let reach = match self.mounts {
            Mounts::Stay => Reach::OneFilesystem,
            Mounts::Cross => Reach::AnyFilesystem,
        };
        for _ in 0..MOST_RETRIES {
            match open::inside(from, way, flags, reach) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                answer => return answer,
            }
        }
        Err(Errno::AGAIN)
    }

    fn by_component(&self, from: BorrowedFd<'_>, way: &[u8], flags: OFlags) -> Result<OwnedFd> {
        let on_the_way = PLACE | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut reached: Option<OwnedFd> = None;
        let mut names = way.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            if matches!(name, b"" | b"." | b"..") {
                return Err(Errno::XDEV);
            }
            let here = reached.as_ref().map_or(from, AsFd::as_fd);
            let how = if names.peek().is_some() {
                on_the_way
            } else {
                flags
            };
            reached = Some(fs::openat(here, name, how, Mode::empty())?);
        }
        let reached = reached.ok_or(Errno::NOENT)?;
        let device = metadata::of(&reached)?.device;
        let belongs = device == self.device || self.overlays.iter().any(|one| one.device == device);
        if !belongs && self.mounts == Mounts::Stay {
            return Err(Errno::XDEV);
        }
        Ok(reached)
    }
}

/// Whether `inner` is `outer` or lies somewhere in it, as far as one can see going up from `inner`.
pub fn is_within(inner: impl AsFd, outer: impl AsFd) -> Result<bool> {
    holds(metadata::of(outer)?.identity(), inner)
}

/// The same, with the outer one known by device and inode.
pub fn holds(outer: (u64, u64), inner: impl AsFd) -> Result<bool> {
    let mut at = metadata::of(&inner)?.identity();
    let mut here = inner
        .as_fd()
        .try_clone_to_owned()
        .map_err(|_| Errno::MFILE)?;
    loop {
        if at == outer {
            return Ok(true);
        }
        let flags = PLACE | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = fs::openat(&here, c"..", flags, Mode::empty())?;
        let above_at = metadata::of(&above)?.identity();
        if above_at == at {
            return Ok(false);
        }
        (here, at) = (above, above_at);
    }
}

/// What something new at `path` takes the place of: what is there, or whatever on the way to it is no directory. `None` when nothing is
/// there, and nothing but directories on the way to where it would be.
pub fn in_place_of(root: &RootDir, path: &EntryPath) -> Result<Option<EntryPath>> {
    let mut reached = EntryPath::root();
    for name in path.components() {
        let directory = root.directory(reached.as_bytes())?;
        let called = CString::new(name).expect("no name of an entry has a NUL");
        let Some(seen) = find(&directory, &called)? else {
            return Ok(None);
        };
        reached = reached.child(name).expect("it is part of a good path");
        if seen.file_type() != FileType::Directory {
            break;
        }
    }
    Ok(Some(reached))
}

/// What is called `name` in a directory, without following it; `None` when nothing is.
pub fn find(directory: impl AsFd, name: &CStr) -> Result<Option<metadata::Seen>> {
    match fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(metadata::Seen::from(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}
