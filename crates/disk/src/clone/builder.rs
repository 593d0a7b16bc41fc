//! Builds the clone, entry by entry, as the walker shows them.

use super::{CloneError, CloneReport, Fallback};
use crate::beneath::Beneath;
use crate::content::{self, Filled, Trouble};
use crate::metadata::{self, Rights, Seen, Withheld};
use crate::walk::{Found, Place, Reason, Visitor, WalkError};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use stasis_model::tree::{EntryKind, EntryPath};
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

/// How often a file that changes while it is read is read again.
const PATIENCE: usize = 3;

/// The tree that grows.
pub(super) struct Builder<'a> {
    target: Beneath,
    fallback: Fallback,
    cancel: &'a AtomicBool,
    rights: Rights,
    report: Mutex<CloneReport>,
    /// First names of files with several that are not, in the clone, the file we were shown: nothing links to them.
    strangers: Mutex<BTreeSet<EntryPath>>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(target: Beneath, fallback: Fallback, cancel: &'a AtomicBool) -> Self {
        Self {
            target,
            fallback,
            cancel,
            rights: Rights::of_this_process(),
            report: Mutex::default(),
            strangers: Mutex::default(),
        }
    }

    pub(super) fn finish(self) -> CloneReport {
        self.report
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, counts: &CloneReport) {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.add(counts);
    }

    fn open(&self, path: &EntryPath) -> Result<OwnedFd, CloneError> {
        let opened = self.target.directory(path.as_bytes());
        opened.map_err(CloneError::entry("open in the clone", path))
    }

    fn entry(
        &self,
        at: &At<'_>,
        found: &Found<'_>,
        counts: &mut CloneReport,
    ) -> Result<(), CloneError> {
        match &found.kind {
            EntryKind::Directory => {
                // Nobody else gets past the staging directory, so it may be open to others from the start.
                let permissions = Mode::from_raw_mode(found.seen.raw_mode & 0o777);
                let made = fs::mkdirat(at.target, found.name, permissions | Mode::RWXU);
                made.map_err(at.failed("make the directory", found.name))?;
                counts.directories += 1;
            }
            EntryKind::Symlink { target } => {
                let made = fs::symlinkat(&**target, at.target, found.name);
                made.map_err(at.failed("make the link", found.name))?;
                let wanted = found.seen.metadata();
                let given = metadata::give_link(at.target, found.name, &wanted, self.rights);
                counts.withhold(given.map_err(at.failed("set owner and time of", found.name))?);
                counts.symlinks += 1;
            }
            EntryKind::File { .. } => self.file(at, found, counts)?,
            EntryKind::HardLink { to } => self.link(at, found, to, counts)?,
            EntryKind::Fifo => at.place.skip(found.name, Reason::Fifo)?,
            _ => at.place.skip(found.name, Reason::Device)?,
        }
        Ok(())
    }

    fn file(
        &self,
        at: &At<'_>,
        found: &Found<'_>,
        counts: &mut CloneReport,
    ) -> Result<(), CloneError> {
        let opened = at.place.open_file(found.name)?;
        let has_names = found.seen.links > 1;
        let is_same = |(_, seen): &(OwnedFd, Seen)| seen.identity() == found.seen.identity();
        if has_names && !opened.as_ref().is_some_and(is_same) {
            let mut strangers = self
                .strangers
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            strangers.insert(at.place.child(found.name)?);
        }
        let Some((source, seen)) = opened else {
            return Ok(());
        };
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(seen.raw_mode & 0o777);
        let target = fs::openat(at.target, found.name, flags, mode);
        let target = target.map_err(at.failed("create", found.name))?;
        let name = found.name;
        let file = File {
            name,
            source,
            target,
        };
        let seen = self.content(at, &file, seen, counts)?;
        self.dress(at, &file, &seen, counts)?;
        counts.files += 1;
        counts.bytes = counts.bytes.saturating_add(seen.size);
        Ok(())
    }

    /// Carries the bytes over, again if they changed meanwhile; returns what the file was when they were right.
    fn content(
        &self,
        at: &At<'_>,
        file: &File<'_>,
        mut seen: Seen,
        counts: &mut CloneReport,
    ) -> Result<Seen, CloneError> {
        let File {
            name,
            source,
            target,
        } = file;
        for attempt in 1.. {
            let (from, to) = (source.as_fd(), target.as_fd());
            let carried = content::carry(from, to, seen.size, self.fallback, self.cancel);
            let carried = carried.map_err(|trouble| at.trouble(name, trouble))?;
            let now = metadata::of(source).map_err(at.failed("look at", name))?;
            let is_right = now.is_unchanged_since(&seen);
            if !is_right && attempt < PATIENCE {
                fs::ftruncate(target, 0).map_err(at.failed("empty", name))?;
                seen = now;
                continue;
            }
            if !is_right {
                at.place.skip(name, Reason::Changed)?;
            }
            match carried {
                Filled::Shared(bytes) => counts.bytes_shared += bytes,
                Filled::Copied(bytes) => counts.bytes_copied += bytes,
            }
            break;
        }
        Ok(seen)
    }

    /// Gives attributes, owner, permissions and time.
    fn dress(
        &self,
        at: &At<'_>,
        file: &File<'_>,
        seen: &Seen,
        counts: &mut CloneReport,
    ) -> Result<(), CloneError> {
        let File {
            name,
            source,
            target,
        } = file;
        let attributes = metadata::attributes(source);
        let attributes = attributes.map_err(at.failed("read the attributes of", name))?;
        counts.attributes_left_out += attributes.others;
        let given = metadata::give_attributes(target, &attributes.user);
        given.map_err(at.failed("set the attributes of", name))?;
        let given = metadata::give(target, &seen.metadata(), self.rights);
        counts.withhold(given.map_err(at.failed("set owner, mode and time of", name))?);
        Ok(())
    }

    fn link(
        &self,
        at: &At<'_>,
        found: &Found<'_>,
        to: &EntryPath,
        counts: &mut CloneReport,
    ) -> Result<(), CloneError> {
        let strangers = self
            .strangers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_stranger = strangers.contains(to);
        drop(strangers);
        let Some((directory, name)) = to.split_last().filter(|_| !is_stranger) else {
            return self.file(at, found, counts);
        };
        let directory = self.open(&directory)?;
        match fs::linkat(&directory, name, at.target, found.name, AtFlags::empty()) {
            Ok(()) => counts.hard_links += 1,
            Err(Errno::MLINK) => self.file(at, found, counts)?,
            Err(error) => return Err(at.failed("link", found.name)(error)),
        }
        Ok(())
    }
}

impl Visitor for Builder<'_> {
    type Error = CloneError;

    fn enter(&self, place: &Place<'_>) -> Result<(), CloneError> {
        let attributes = metadata::attributes(place.fd);
        let attributes =
            attributes.map_err(CloneError::entry("read the attributes of", place.path))?;
        if !attributes.user.is_empty() {
            let target = self.open(place.path)?;
            let given = metadata::give_attributes(&target, &attributes.user);
            given.map_err(CloneError::entry("set the attributes of", place.path))?;
        }
        if attributes.others > 0 {
            let attributes_left_out = attributes.others;
            self.add(&CloneReport {
                attributes_left_out,
                ..CloneReport::default()
            });
        }
        Ok(())
    }

    fn visit(&self, place: &Place<'_>, entries: &[Found<'_>]) -> Result<(), CloneError> {
        let target = self.open(place.path)?;
        let at = At {
            place,
            target: target.as_fd(),
        };
        let mut counts = CloneReport::default();
        for found in entries {
            if self.cancel.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(WalkError::Cancelled.into());
            }
            self.entry(&at, found, &mut counts)?;
        }
        self.add(&counts);
        Ok(())
    }

    fn leave(&self, path: &EntryPath, seen: &Seen) -> Result<(), CloneError> {
        let target = self.open(path)?;
        let given = metadata::give(&target, &seen.metadata(), self.rights);
        let withheld: Withheld =
            given.map_err(CloneError::entry("set owner, mode and time of", path))?;
        if withheld != Withheld::default() {
            let mut counts = CloneReport::default();
            counts.withhold(withheld);
            self.add(&counts);
        }
        Ok(())
    }
}

/// One file, here and there.
struct File<'a> {
    name: &'a CStr,
    source: OwnedFd,
    target: OwnedFd,
}

/// One directory, here and there.
struct At<'a> {
    place: &'a Place<'a>,
    target: BorrowedFd<'a>,
}

impl At<'_> {
    fn failed<'b>(
        &'b self,
        doing: &'static str,
        name: &'b CStr,
    ) -> impl FnOnce(Errno) -> CloneError + 'b {
        move |error| match self.place.child(name) {
            Ok(path) => CloneError::entry(doing, &path)(error),
            Err(unnameable) => unnameable.into(),
        }
    }

    fn trouble(&self, name: &CStr, trouble: Trouble) -> CloneError {
        match (trouble, self.place.child(name)) {
            (Trouble::Cancelled, _) => WalkError::Cancelled.into(),
            (Trouble::Failed(error), _) => self.failed("carry over the content of", name)(error),
            (Trouble::CannotShare(error), Ok(path)) => CloneError::CannotShare {
                path,
                source: error.into(),
            },
            (Trouble::CannotShare(_), Err(unnameable)) => unnameable.into(),
        }
    }
}
