//! Builds the clone, entry by entry, as the walker shows them.

mod databases;

use super::{CloneError, CloneReport, CloneWitness, ClonedFile, Fallback, Method};
use crate::fs::metadata::{self, Has, Rights, Seen, Withheld};
use crate::fs::root_dir::RootDir;
use crate::progress::Progress;
use crate::tree::content::{self, CarryError, CarryLimit, Filled};
use crate::tree::database_set::SetWaitBudget;
use crate::tree::walk::{Visitor, WalkError, WalkSkip, WalkedDir, WalkedEntry};
use crate::worker_pool::{into_inner, lock};
use databases::WaitingFile;
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::tree::{Attribute, EntryKind, EntryPath, Metadata, acl};
use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::ffi::CStr;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

/// How often a file that changes while it is read is read again.
const ATTEMPTS: usize = 3;

/// The tree that grows.
pub(super) struct Builder<'a> {
    target: RootDir,
    fallback: Fallback,
    cancel: &'a AtomicBool,
    rights: Rights,
    pub(super) witness: Option<&'a dyn CloneWitness>,
    report: Mutex<CloneReport>,
    /// Who hears of every file that is there.
    pub(super) progress: Option<&'a Progress>,
    /// The directory of the clone that was filled last.
    last: Mutex<Option<(EntryPath, OwnedFd)>>,
    /// First names of files with several that are not, in the clone, the file we were shown: nothing links to them.
    strangers: Mutex<BTreeSet<EntryPath>>,
    /// Access lists of directories that were not left yet; few have one.
    access: Mutex<HashMap<EntryPath, Vec<Attribute>>>,
    /// Whether a database is cloned together with what belongs to it.
    pub(super) takes_sets: bool,
    /// Files that wait for the others of their directory.
    aside: Mutex<HashMap<EntryPath, Vec<WaitingFile>>>,
    wait_budget: SetWaitBudget,
}

impl<'a> Builder<'a> {
    pub(super) fn new(target: RootDir, fallback: Fallback, cancel: &'a AtomicBool) -> Self {
        Self {
            target,
            fallback,
            cancel,
            rights: Rights::of_this_process(),
            witness: None,
            report: Mutex::default(),
            progress: None,
            last: Mutex::default(),
            strangers: Mutex::default(),
            access: Mutex::default(),
            takes_sets: false,
            aside: Mutex::default(),
            wait_budget: SetWaitBudget::default(),
        }
    }

    pub(super) fn finish(self) -> CloneReport {
        let report = into_inner(self.report);
        let method = match (report.bytes_shared, report.bytes_copied) {
            (0, 1..) => Method::Copy,
            _ => Method::Reflink,
        };
        CloneReport { method, ..report }
    }

    /// Counts a file that is there; whoever watches has heard of some of its bytes.
    fn count(&self, bytes: u64, reported: u64, counts: &mut CloneReport) {
        counts.files += 1;
        counts.bytes = counts.bytes.saturating_add(bytes);
        if let Some(progress) = self.progress {
            progress.advance(1, bytes.saturating_sub(reported));
        }
    }

    fn add(&self, counts: &CloneReport) {
        lock(&self.report).add(counts);
    }

    fn open(&self, path: &EntryPath) -> Result<OwnedFd, CloneError> {
        let opened = self.target.directory(path.as_bytes());
        Ok(opened.on("open in the clone", path)?)
    }

    fn entry(
        &self,
        at: &At<'_>,
        found: &WalkedEntry<'_>,
        counts: &mut CloneReport,
    ) -> Result<(), CloneError> {
        match &found.kind {
            EntryKind::Directory => {
                // Nobody else gets past the staging directory, so it may be open to others from the start.
                let permissions = Mode::from_raw_mode(found.seen.raw_mode & 0o777);
                let made = fs::mkdirat(at.target, found.name, permissions | Mode::RWXU);
                made.on("make the directory", at.path(found.name))?;
                counts.directories += 1;
            }
            EntryKind::Symlink { target } => {
                let made = fs::symlinkat(&**target, at.target, found.name);
                made.on("make the link", at.path(found.name))?;
                let wanted = found.seen.metadata();
                let given = metadata::give_link(at.target, found.name, &wanted, self.rights);
                counts.withhold(given.on("set owner and time of", at.path(found.name))?);
                counts.symlinks += 1;
                if let Some(witness) = self.witness {
                    witness.symlink(at.place.child(found.name)?, target);
                }
            }
            EntryKind::File { .. } if self.waits(found) => self.put_aside(at, found, false),
            EntryKind::File { .. } => self.file(at, found, counts)?,
            EntryKind::HardLink { to } => self.link(at, found, to, counts)?,
            EntryKind::Fifo => at.place.skip(found.name, WalkSkip::Fifo)?,
            _ => at.place.skip(found.name, WalkSkip::Device)?,
        }
        Ok(())
    }

    fn file(
        &self,
        at: &At<'_>,
        found: &WalkedEntry<'_>,
        counts: &mut CloneReport,
    ) -> Result<(), CloneError> {
        let Some(source) = self.source(at, found)? else {
            return Ok(());
        };
        if self.is_set(found, &source.file) {
            self.put_aside(at, found, true);
            return Ok(());
        }
        self.whole_file(at, found.name, source, counts)
    }

    /// Clones an open file, whatever it is.
    fn whole_file(
        &self,
        at: &At<'_>,
        name: &CStr,
        source: CloneSource,
        counts: &mut CloneReport,
    ) -> Result<(), CloneError> {
        let CloneSource { file: source, seen } = source;
        let mode = seen.raw_mode & 0o777;
        let target = at.create(name, mode)?;
        let file = FileClone {
            name,
            source,
            target,
            mode,
        };
        let Some(carried) = self.content(at, &file, seen, counts)? else {
            let removed = fs::unlinkat(at.target, name, AtFlags::empty());
            removed.on("remove", at.path(name))?;
            return Ok(at.place.skip(name, WalkSkip::Replaced)?);
        };
        let CarriedFile {
            seen,
            is_still,
            reported,
        } = carried;
        let given = self.dress(at, &file, &seen, counts)?;
        self.count(seen.size, reported, counts);
        self.show(at, &file, is_still.then_some(seen), given)
    }

    /// Shows a file to the witness, if there is one.
    fn show(
        &self,
        at: &At<'_>,
        file: &FileClone<'_>,
        source: Option<Seen>,
        given: GivenMode,
    ) -> Result<(), CloneError> {
        let Some(witness) = self.witness else {
            return Ok(());
        };
        let GivenMode { mut mode, withheld } = given;
        let mut size = source.map(|source| source.size);
        if withheld.privileges || size.is_none() {
            let given = metadata::of(&file.target).on("look at", at.path(file.name))?;
            (mode, size) = (given.metadata().mode, Some(given.size));
        }
        let shown = ClonedFile {
            source,
            size: size.unwrap_or_default(),
            mode,
        };
        witness.file(at.place.child(file.name)?, &shown);
        Ok(())
    }

    /// Opens a file. What is said of it is what the walker saw: whether it still is that is seen when its bytes were carried over.
    fn source(
        &self,
        at: &At<'_>,
        found: &WalkedEntry<'_>,
    ) -> Result<Option<CloneSource>, CloneError> {
        if found.seen.links == 1 {
            let opened = at.place.open_unseen(found.name)?;
            return Ok(opened.map(|file| CloneSource {
                file,
                seen: found.seen,
            }));
        }
        let opened = at.place.open_file(found.name)?;
        let is_same = |(_, seen): &(OwnedFd, Seen)| seen.identity() == found.seen.identity();
        if !opened.as_ref().is_some_and(is_same) {
            lock(&self.strangers).insert(at.place.child(found.name)?);
        }
        Ok(opened.map(|(file, seen)| CloneSource { file, seen }))
    }

    /// Carries the bytes over, again if they changed meanwhile; `None` if it is no file any more.
    fn content(
        &self,
        at: &At<'_>,
        file: &FileClone<'_>,
        mut seen: Seen,
        counts: &mut CloneReport,
    ) -> Result<Option<CarriedFile>, CloneError> {
        let FileClone {
            name,
            source,
            target,
            ..
        } = file;
        for attempt in 1.. {
            let Some(carried) = self.carry(at, file, seen.size)? else {
                return Ok(None);
            };
            let now = metadata::of(source).on("look at", at.path(name))?;
            if !now.file_type().is_file() {
                return Ok(None);
            }
            let is_right = now.is_unchanged_since(&seen);
            if !is_right && attempt < ATTEMPTS {
                fs::ftruncate(target, 0).on("empty", at.path(name))?;
                seen = now;
                continue;
            }
            if !is_right {
                at.place.skip(name, WalkSkip::Changed)?;
            }
            counts.carried(carried);
            return Ok(Some(CarriedFile {
                seen,
                is_still: is_right,
                reported: match carried {
                    Filled::Copied(bytes) => bytes,
                    Filled::Shared(_) => 0,
                },
            }));
        }
        Ok(None)
    }

    /// Shares the bytes, or copies them if that is allowed; `None` if there is no file to read them from.
    fn carry(
        &self,
        at: &At<'_>,
        file: &FileClone<'_>,
        size: u64,
    ) -> Result<Option<Filled>, CloneError> {
        let (from, to) = (file.source.as_fd(), file.target.as_fd());
        let stop = CarryLimit {
            cancel: self.cancel,
            deadline: None,
            progress: self.progress,
        };
        let carry = |fallback| content::carry_until(from, to, size, fallback, stop);
        let carried = match carry(Fallback::Refuse) {
            Ok(filled) => return Ok(Some(filled)),
            Err(trouble) => {
                let now = metadata::of(from).on("look at", at.path(file.name))?;
                if !now.file_type().is_file() {
                    return Ok(None);
                }
                match trouble {
                    CarryError::CannotShare(_) => carry(self.fallback),
                    trouble => Err(trouble),
                }
            }
        };
        carried
            .map(Some)
            .map_err(|trouble| at.trouble(file.name, trouble))
    }

    /// Gives attributes, owner, permissions and time.
    fn dress(
        &self,
        at: &At<'_>,
        file: &FileClone<'_>,
        seen: &Seen,
        counts: &mut CloneReport,
    ) -> Result<GivenMode, CloneError> {
        let FileClone {
            name,
            source,
            target,
            ..
        } = file;
        let attributes = metadata::attributes(source);
        let attributes = attributes.on("read the attributes of", at.path(name))?;
        counts.attributes_left_out += attributes.others;
        let given = metadata::give_attributes(target, &attributes.user);
        given.on("set the attributes of", at.path(name))?;
        let plain = metadata::before_access(&seen.metadata(), &attributes.user);
        let given = at
            .has(file)
            .and_then(|has| metadata::give_to(target, has, &plain, self.rights));
        let withheld = given.on("set owner, mode and time of", at.path(name))?;
        counts.withhold(withheld);
        let refused = metadata::give_access(target, &attributes.user, self.rights);
        counts.attributes_left_out += refused.on("set the access list of", at.path(name))?;
        let mode = seen.metadata().mode;
        Ok(GivenMode { mode, withheld })
    }

    fn show_directory(
        &self,
        path: &EntryPath,
        seen: &Seen,
        target: &OwnedFd,
        withheld: Withheld,
    ) -> Result<(), CloneError> {
        let Some(witness) = self.witness.filter(|_| !path.is_root()) else {
            return Ok(());
        };
        let mut mode = seen.metadata().mode;
        if withheld.privileges {
            let given = metadata::of(target).on("look at", path)?;
            mode = given.metadata().mode;
        }
        let given = metadata::attributes(target);
        let given = given.on("read the attributes of", path)?;
        witness.directory(path, mode, &given.user);
        Ok(())
    }

    fn link(
        &self,
        at: &At<'_>,
        found: &WalkedEntry<'_>,
        to: &EntryPath,
        counts: &mut CloneReport,
    ) -> Result<(), CloneError> {
        let is_stranger = lock(&self.strangers).contains(to);
        let Some((directory, name)) = to.split_last().filter(|_| !is_stranger) else {
            return self.file(at, found, counts);
        };
        let directory = self.open(&directory)?;
        match fs::linkat(&directory, name, at.target, found.name, AtFlags::empty()) {
            Ok(()) => {
                counts.hard_links += 1;
                if let Some(witness) = self.witness {
                    witness.link(at.place.child(found.name)?, to);
                }
            }
            Err(Errno::MLINK) => self.file(at, found, counts)?,
            Err(error) => return Err(Failure::from_io(error, "link", at.path(found.name)).into()),
        }
        Ok(())
    }
}

impl Visitor for Builder<'_> {
    type Error = CloneError;

    fn enter(&self, place: &WalkedDir<'_>) -> Result<(), CloneError> {
        let attributes = metadata::attributes(place.fd);
        let attributes = attributes.on("read the attributes of", place.path)?;
        if !attributes.user.is_empty() {
            let target = self.open(place.path)?;
            let given = metadata::give_attributes(&target, &attributes.user);
            given.on("set the attributes of", place.path)?;
            // What is made in it would inherit: its list comes when it is left.
            let mut access = attributes.user;
            access.retain(|one| acl::is_access(&one.name));
            if !access.is_empty() {
                lock(&self.access).insert(place.path.clone(), access);
            }
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

    fn visit(&self, place: &WalkedDir<'_>, entries: &[WalkedEntry<'_>]) -> Result<(), CloneError> {
        let target = self.open(place.path)?;
        let at = At {
            place,
            target: target.as_fd(),
            made: Cell::default(),
        };
        let mut counts = CloneReport::default();
        for found in entries {
            if self.cancel.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(WalkError::Cancelled.into());
            }
            self.entry(&at, found, &mut counts)?;
        }
        self.add(&counts);
        // Most directories have nothing but files, and are left next.
        *lock(&self.last) = Some((place.path.clone(), target));
        Ok(())
    }

    fn wants_again(&self, path: &EntryPath) -> bool {
        self.takes_sets && lock(&self.aside).contains_key(path)
    }

    fn again(&self, place: &WalkedDir<'_>) -> Result<(), CloneError> {
        let target = self.open(place.path)?;
        let at = At {
            place,
            target: target.as_fd(),
            made: Cell::default(),
        };
        let mut counts = CloneReport::default();
        self.waiting(&at, &mut counts)?;
        self.add(&counts);
        Ok(())
    }

    fn leave(&self, path: &EntryPath, seen: &Seen) -> Result<(), CloneError> {
        let last = lock(&self.last).take();
        let target = match last {
            Some((last, target)) if last == *path => target,
            _ => self.open(path)?,
        };
        let access = lock(&self.access).remove(path).unwrap_or_default();
        let plain = metadata::before_access(&seen.metadata(), &access);
        let given = metadata::give(&target, &plain, self.rights);
        let withheld: Withheld = given.on("set owner, mode and time of", path)?;
        let refused = metadata::give_access(&target, &access, self.rights);
        let refused = refused.on("set the access list of", path)?;
        self.show_directory(path, seen, &target, withheld)?;
        if withheld != Withheld::default() || refused > 0 {
            let mut counts = CloneReport::default();
            counts.withhold(withheld);
            counts.attributes_left_out += refused;
            self.add(&counts);
        }
        Ok(())
    }
}

/// An open file of the source.
struct CloneSource {
    file: OwnedFd,
    /// What it was when the walker saw it, or when it was opened.
    seen: Seen,
}

/// A file whose bytes came across.
struct CarriedFile {
    /// What it was then.
    seen: Seen,
    /// Whether they are right.
    is_still: bool,
    /// How many of them whoever watches has heard of.
    reported: u64,
}

/// The permissions that a file of the clone should have, and which of them it did not get.
#[derive(Clone, Copy)]
struct GivenMode {
    mode: u32,
    withheld: Withheld,
}

/// The path of an entry, put together only where a message needs it.
struct PathIn<'a> {
    directory: &'a EntryPath,
    name: &'a CStr,
}

impl fmt::Display for PathIn<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.directory.child(self.name.to_bytes()) {
            Ok(path) => path.fmt(out),
            Err(_) => write!(out, "{}/{}", self.directory, self.name.to_string_lossy()),
        }
    }
}

/// One file, here and there.
struct FileClone<'a> {
    name: &'a CStr,
    source: OwnedFd,
    target: OwnedFd,
    /// The permissions that were asked for when it was made.
    mode: u32,
}

/// One directory, here and there.
struct At<'a> {
    place: &'a WalkedDir<'a>,
    target: BorrowedFd<'a>,
    /// What the last file had that was made here with these permissions.
    made: Cell<Option<(u32, Has)>>,
}

impl At<'_> {
    /// Makes an empty file in the clone.
    fn create(&self, name: &CStr, mode: u32) -> Result<OwnedFd, CloneError> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = fs::openat(self.target, name, flags, Mode::from_raw_mode(mode));
        Ok(target.on("create", self.path(name))?)
    }

    /// What a file that was just made has: the same as the last one, if the same was asked for.
    fn has(&self, file: &FileClone<'_>) -> rustix::io::Result<Has> {
        if let Some((mode, has)) = self.made.get()
            && mode == file.mode
        {
            return Ok(has);
        }
        let Metadata { mode, uid, gid, .. } = metadata::of(&file.target)?.metadata();
        let has = Has { uid, gid, mode };
        self.made.set(Some((file.mode, has)));
        Ok(has)
    }

    /// Where an entry is, for messages.
    fn path<'b>(&'b self, name: &'b CStr) -> PathIn<'b> {
        PathIn {
            directory: self.place.path,
            name,
        }
    }

    fn trouble(&self, name: &CStr, trouble: CarryError) -> CloneError {
        let failed = |error: Errno| {
            Failure::from_io(error, "carry over the content of", self.path(name)).into()
        };
        match (trouble, self.place.child(name)) {
            (CarryError::Cancelled, _) => WalkError::Cancelled.into(),
            (CarryError::Failed(error), _) => failed(error),
            (CarryError::Late, _) => failed(Errno::TIMEDOUT),
            (CarryError::CannotShare(error), Ok(path)) => CloneError::CannotShare {
                path,
                source: error.into(),
            },
            (CarryError::CannotShare(_), Err(unnameable)) => unnameable.into(),
        }
    }
}
