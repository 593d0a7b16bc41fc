//! A checkpoint in the making.

use super::cost;
use super::error::{CloneContext, SlotError};
use super::manifest::Gatherer;
use super::packed::DOCUMENTS;
use super::place::{BeforeRemoval, SlotDir, name_of};
use super::{MANIFEST, METADATA, SYSTEM, WORKSPACE};
use crate::fs::atomic_write::atomic_write;
use crate::fs::fd::open_dir;
use crate::fs::metadata::{self, Rights};
use crate::fs::root_dir;
use crate::fs::staging::Staging;
use crate::tree::clone::{CloneReport, CloneSettings, FileByFile, clone, clone_before};
use crate::tree::content::{self, CarryError};
use crate::tree::stat_cache::StatCache;
use crate::tree::walk::{WalkError, WalkReport};
use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use stasis_model::digest::WorkspaceDigest;
use stasis_model::failure::AtPath;
use stasis_model::format::manifest::StoredAs;
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use stasis_model::workspace::{Slot, SlotDatabase, SlotForm, SlotMetadata};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a checkpoint is made of.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointSource<'a> {
    /// The workspace.
    pub workspace: &'a Path,
    /// A directory or an image that goes with it.
    pub system: Option<&'a Path>,
    /// The file in which the [`StatCache`](super::StatCache) of the workspace is: with it, a clone is listed while it is made.
    pub stats: Option<&'a Path>,
    /// Whether it is the workspace of the session, so that what the session caches is of it.
    pub is_own: bool,
}

impl<'a> CheckpointSource<'a> {
    /// A workspace alone, of which nothing is known.
    pub fn of(workspace: &'a Path) -> Self {
        Self {
            workspace,
            system: None,
            stats: None,
            is_own: true,
        }
    }

    /// A tree that is not the workspace of the session.
    pub fn of_another(tree: &'a Path) -> Self {
        Self {
            is_own: false,
            ..Self::of(tree)
        }
    }
}

/// A directory beside its slot; dropped before it is published, it is removed.
#[derive(Debug)]
pub(super) struct StagedSlot<'a> {
    place: &'a SlotDir,
    slot: Slot,
    staging: Staging,
    report: Option<SlotReport>,
    /// Whether it is somebody else's to remove.
    is_left: bool,
}

/// What a system was.
pub(super) enum System {
    Tree(Box<CloneReport>),
    /// Of so many bytes.
    Image(u64),
}

pub(super) type SlotReport = (SlotMetadata, CloneReport, Option<CloneReport>);

impl<'a> StagedSlot<'a> {
    /// Makes an empty one.
    pub(super) fn empty(place: &'a SlotDir, slot: Slot) -> Result<Self, SlotError> {
        let made = Staging::make(place.again()?, &name_of(slot));
        let path = place.slot(slot);
        let staging = made.at("make a temporary directory for", &path)?;
        Ok(Self {
            place,
            slot,
            staging,
            report: None,
            is_left: false,
        })
    }

    /// Where it is now.
    pub(super) fn path(&self) -> PathBuf {
        let name = OsStr::from_bytes(self.staging.name().to_bytes());
        self.place.path().join(name)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.staging.root()
    }

    /// More than this it does not hold; `None` before it is filled.
    pub(super) fn at_most(&self) -> Option<u64> {
        self.report.as_ref()?.0.bytes_at_most
    }

    /// Clones everything into it and writes down what it is.
    pub(super) fn fill(
        mut self,
        settings: &CloneSettings,
        source: &CheckpointSource<'_>,
        metadata: SlotMetadata,
    ) -> Result<Self, SlotError> {
        let path = self.path();
        let at = Timestamp::from_millis(metadata.epoch_millis);
        let (mut report, contents) = self.workspace(source, settings, at)?;
        forget_journals(&mut report.walk, &report.databases);
        let mut at_most = cost::at_most(&report, &path);
        let sum = |one: Option<u64>, other: Option<u64>| Some(one?.saturating_add(other?));
        // A system is a directory of clones whatever it is.
        let of_system = CloneSettings {
            file_by_file: FileByFile::Clone,
            ..settings.clone()
        };
        let system = match source
            .system
            .map(|system| self.system(system, &of_system))
            .transpose()?
        {
            Some(System::Tree(report)) => {
                at_most = sum(at_most, cost::at_most(&report, &path));
                Some(*report)
            }
            Some(System::Image(bytes)) => {
                at_most = sum(at_most, Some(cost::whole(1, bytes)));
                None
            }
            None => None,
        };
        let databases = match &*metadata.databases {
            [] => databases_of(&report, system.as_ref()),
            known => known.to_vec(),
        };
        let is_whole = |report: &CloneReport| report.walk.gaps() == 0;
        let is_torn = databases.iter().any(|one| one.state == StoredAs::Torn);
        let is_copy_whole = metadata.left_out_count == 0;
        let metadata = SlotMetadata {
            hash: contents,
            complete: is_whole(&report)
                && system.as_ref().is_none_or(is_whole)
                && !is_torn
                && is_copy_whole,
            databases,
            files_count: report.files + report.hard_links,
            bytes: report.bytes,
            bytes_at_most: at_most,
            form: SlotForm::Clone,
            ..with_gaps(metadata, &report.walk)
        };
        atomic_write(&path.join(METADATA), &metadata.to_json())?;
        self.report = Some((metadata, report, system));
        Ok(self)
    }

    /// Clones the workspace; lists what is in the clone if that can be done along the way, and says what it hashes to.
    fn workspace(
        &self,
        source: &CheckpointSource<'_>,
        settings: &CloneSettings,
        at: Timestamp,
    ) -> Result<(CloneReport, Option<WorkspaceDigest>), SlotError> {
        let (workspace, target) = (source.workspace, self.path().join(WORKSPACE));
        // What is new takes time to read, for which a system does not wait.
        let stats = source.stats.filter(|_| source.system.is_none());
        let Some(stats) = stats else {
            let cloned = clone(workspace, &target, settings);
            return Ok((cloned.of_checkpoint(workspace)?, None));
        };
        let mut cache = StatCache::open(stats, at);
        let gatherer = Gatherer::new(&cache, &settings.walk.cancel);
        let report = clone_before(workspace, &target, settings, Some(&gatherer));
        let report = report.of_checkpoint(workspace)?;
        let Some(listed) = gatherer.into_contents() else {
            return Ok((report, None));
        };
        let contents = listed.remember(&mut cache);
        // What is not remembered is read again.
        let _ = cache.save();
        atomic_write(&self.path().join(MANIFEST), &contents.bytes)?;
        Ok((report, Some(contents.hash)))
    }

    /// Clones the system: a directory, or an image that gets a directory around it.
    pub(super) fn system(
        &self,
        system: &Path,
        settings: &CloneSettings,
    ) -> Result<System, SlotError> {
        let target = self.path().join(SYSTEM);
        let seen = fs::stat(system).at("look at", system)?;
        if metadata::Seen::from(&seen).file_type().is_dir() {
            let cloned = clone(system, &target, settings);
            let report = cloned.of_checkpoint(system)?;
            return Ok(System::Tree(Box::new(report)));
        }
        self.image(system, &target, settings)
    }

    fn image(
        &self,
        system: &Path,
        target: &Path,
        settings: &CloneSettings,
    ) -> Result<System, SlotError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let source = fs::open(system, flags, Mode::empty()).at("open", system)?;
        let seen = metadata::of(&source).at("look at", system)?;
        if !seen.file_type().is_file() {
            return Ok(Err(Errno::INVAL).at("clone", system)?);
        }
        fs::mkdirat(self.fd(), SYSTEM, Mode::RWXU).at("make", target)?;
        let name = system
            .file_name()
            .map_or(OsString::from("image"), OsStr::to_owned);
        let (directory, target) = (target, target.join(name));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = fs::open(&target, flags, Mode::RUSR | Mode::WUSR);
        let made = made.at("create", &target)?;
        let (fallback, cancel) = (settings.fallback, &settings.walk.cancel);
        let carried = content::carry(source.as_fd(), made.as_fd(), seen.size, fallback, cancel);
        check_image(carried, system)?;
        let given = metadata::give(&made, &seen.metadata(), Rights::of_this_process());
        given.at("set owner, mode and time of", &target)?;
        fs::fsync(&made).at("make durable", &target)?;
        let synced = open_dir(directory).and_then(fs::fsync);
        synced.at("make durable", directory)?;
        Ok(System::Image(seen.size))
    }

    /// Writes a file into it, which is durable when its filesystem is synced.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), SlotError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = fs::openat(self.fd(), name, flags, Mode::RUSR | Mode::WUSR);
        let written = made
            .map_err(std::io::Error::from)
            .and_then(|file| File::from(file).write_all(bytes));
        Ok(written.at("write", self.path().join(name))?)
    }

    /// Gives a file of another slot a name in this one; `false` where it cannot have another.
    pub(super) fn link(&self, from: &Path, name: &str) -> Result<bool, SlotError> {
        match fs::linkat(fs::CWD, from.join(name), self.fd(), name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT | Errno::MLINK | Errno::PERM | Errno::XDEV | Errno::OPNOTSUPP) => {
                Ok(false)
            }
            Err(error) => Ok(Err(error).at("link into", self.path().join(name))?),
        }
    }

    /// Makes the documents of a list durable that lie in it, and their names: no more than that, however busy the disk is.
    pub(super) fn sync_documents(&self) -> Result<(), SlotError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for name in DOCUMENTS.into_iter().chain([METADATA]) {
            let path = || self.path().join(name);
            match fs::openat(self.fd(), name, flags, Mode::empty()) {
                Err(Errno::NOENT) => {}
                opened => {
                    let opened = opened.at("open", path())?;
                    fs::fsync(opened).at("make durable", path())?;
                }
            }
        }
        let synced = fs::fsync(self.fd());
        Ok(synced.at("make durable", self.path())?)
    }

    /// Makes durable what was written.
    pub(super) fn sync(&self) -> Result<(), SlotError> {
        let synced = self.staging.sync();
        Ok(synced.at("make durable", self.path())?)
    }

    /// Says what it is, when somebody else has filled it.
    pub(super) fn set_report(&mut self, report: SlotReport) {
        self.report = Some(report);
    }

    /// What it is, once it is filled.
    pub(super) fn metadata(&self) -> &SlotMetadata {
        let report = self.report.as_ref();
        &report.expect("it is filled before anybody asks").0
    }

    /// Gives it its name; what had that name is removed.
    pub(super) fn publish(
        &mut self,
        is_taken: bool,
        before: BeforeRemoval<'_>,
    ) -> Result<(), SlotError> {
        let name = name_of(self.slot);
        let path = self.place.slot(self.slot);
        if !is_taken {
            match self.staging.publish(&name) {
                Err(Errno::EXIST) => return Err(SlotError::Occupied(self.slot)),
                published => published.at("rename into place", &path)?,
            }
            self.place.sync().inspect_err(|_| {
                // Not durable is not done.
                let _ = self.place.discard(&name, before);
            })?;
            return Ok(());
        }
        let temp = self.staging.name().to_owned();
        let place = self.place.fd();
        let exchange = || fs::renameat_with(place, &*temp, place, &*name, RenameFlags::EXCHANGE);
        exchange().at("exchange", &path)?;
        if let Err(error) = self.place.sync() {
            // Not durable is not done.
            let _ = exchange();
            return Err(error.into());
        }
        // The new one is there; what stays of the old one is removed when the pool is opened the next time.
        let _ = self.place.discard(&temp, before);
        Ok(())
    }

    /// Leaves it to whoever opens the pool next, who removes it with what it names.
    pub(super) fn leave(mut self) {
        self.staging.disarm();
        self.is_left = true;
    }

    /// What became of it.
    pub(super) fn into_report(mut self) -> SlotReport {
        self.report
            .take()
            .expect("it was filled before it was published")
    }
}

impl Drop for StagedSlot<'_> {
    fn drop(&mut self) {
        let name = self.staging.name();
        // Under that name there may be something else by now, and under the slot's there is what was published.
        let is_own = root_dir::find(self.place.fd(), name).ok().flatten();
        let own = metadata::of(self.fd()).map(|seen| seen.identity());
        let is_own = is_own.is_some_and(|seen| Ok(seen.identity()) == own);
        if is_own && !self.is_left && name != &*name_of(self.slot) {
            // Faster than what the staging directory would do: subvolumes go at once.
            let _ = self.place.discard(name, &|_| Ok(()));
        }
    }
}

/// What is known of a checkpoint, with what a walk could not put into it; a copy of another one lacks what that lacks.
pub(super) fn with_gaps(metadata: SlotMetadata, walk: &WalkReport) -> SlotMetadata {
    if metadata.left_out_count > 0 {
        return metadata;
    }
    let count = walk.missing().count() as u64 + walk.unlisted();
    metadata.without(walk.missing().map(ToString::to_string), count)
}

/// A journal comes and goes with every transaction: without it a database that was taken lacks nothing.
pub(super) fn forget_journals(walk: &mut WalkReport, databases: &[SlotDatabase]) {
    if walk.vanished.is_empty() || databases.is_empty() {
        return;
    }
    let names: HashSet<&str> = databases.iter().map(|one| &*one.path).collect();
    let before = walk.vanished.len();
    walk.vanished.retain(|path| {
        let path = path.to_string();
        let owner = path
            .strip_suffix("-journal")
            .or_else(|| path.strip_suffix("-wal"))
            .or_else(|| path.strip_suffix("-shm"));
        owner.is_none_or(|owner| !names.contains(owner))
    });
    walk.vanished_count -= (before - walk.vanished.len()) as u64;
}

/// The databases of a workspace and of its system.
fn databases_of(workspace: &CloneReport, system: Option<&CloneReport>) -> Vec<SlotDatabase> {
    let mut all = workspace.databases.clone();
    all.extend(system.into_iter().flat_map(|system| {
        let databases = system.databases.iter().cloned();
        databases.map(SlotDatabase::of_system)
    }));
    SlotDatabase::listed(all)
}

/// Says of an image that was not cloned why.
fn check_image<T>(carried: Result<T, CarryError>, system: &Path) -> Result<T, SlotError> {
    match carried {
        Ok(carried) => Ok(carried),
        Err(CarryError::CannotShare(error)) => Err(SlotError::Unsupported {
            path: system
                .file_name()
                .and_then(|name| EntryPath::parse(name.as_bytes()).ok())
                .unwrap_or_default(),
            source: error.into(),
        }),
        Err(CarryError::Failed(error)) => Ok(Err(error).at("clone", system)?),
        Err(CarryError::Late) => Ok(Err(Errno::TIMEDOUT).at("clone", system)?),
        Err(CarryError::Cancelled) => Err(WalkError::Cancelled.into()),
    }
}
