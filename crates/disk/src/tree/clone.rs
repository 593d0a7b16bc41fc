//! A tree that shares its bytes with another one.
//!
//! 1. make `.NAME.stasis-tmp-PID` beside the target, closed to others   2. build the clone in it, files in parallel
//! 3. give each directory its owner, mode and time when everything in it is there   4. `syncfs`
//! 5. rename it to its name, unless something has that name   6. `fsync` the directory it is in
//!
//! A whole btrfs subvolume takes another way through 1 to 3: it is snapshotted beside the target (`snapshot`).
//!
//! *Always true:* the target is absent or whole. A failure, or being asked to stop, removes what was built; a crash
//! before 5 leaves the temporary tree, which the next clone to that name removes, and after 5 the clone. The source is only read.
//! Symbolic links are copied as they are and never followed, on either side.

mod builder;
mod snapshot;
mod witness;

pub use snapshot::is_whole_subvolume;
pub use witness::{CloneWitness, ClonedFile};

use crate::fs::fd::{open_dir, reopen_dir};
use crate::fs::metadata::{self, Withheld};
use crate::fs::root_dir::{self, Mounts, RootDir};
use crate::fs::staging::Staging;
use crate::progress::Progress;
pub use crate::tree::content::Fallback;
use crate::tree::content::Filled;
use crate::tree::walk::{self, WalkError, WalkReport, WalkSettings};
use builder::Builder;
use rustix::fs::{self, AtFlags};
use rustix::io::Errno;
use stasis_model::failure::{AtPath, Failure, OPEN_DIRECTORY};
use stasis_model::tree::EntryPath;
use stasis_model::workspace::SlotDatabase;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a clone came to have its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Method {
    /// File by file; what could not be shared was copied, and is counted.
    #[default]
    Reflink,
    /// File by file, and nothing could be shared.
    Copy,
    /// All at once, as a snapshot of a btrfs subvolume: the clone is a subvolume itself.
    Subvolume,
}

impl Method {
    /// The word for it in results.
    pub fn word(self) -> &'static str {
        match self {
            Self::Reflink => "reflink",
            Self::Copy => "copy",
            Self::Subvolume => "subvolume",
        }
    }
}

/// Whether the entries of a clone are looked at one by one where it could be made without.
///
/// It makes a difference only to a whole btrfs subvolume, and only for root.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SourceSurvey {
    /// They are, so that the report says everything; with 50,000 files it takes about a second.
    #[default]
    Count,
    /// They are not. The report has no numbers then, and pipes, sockets and devices stay in the clone, as does a tree that is deeper
    /// than allowed: whoever reads the clone meets them.
    Skip,
}

/// What is done with SQLite databases that are cloned file by file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DatabaseMode {
    /// They are files like others.
    #[default]
    AreFiles,
    /// Each is cloned together with its journal and its WAL, while nobody writes to them.
    AreSets,
}

/// How a tree is cloned.
#[derive(Clone, Debug, Default)]
pub struct CloneSettings {
    /// What to do where nothing can be shared.
    pub fallback: Fallback,
    /// Whether other filesystems in the source are cloned too.
    pub mounts: Mounts,
    /// Whether everything is counted where that costs more than the clone.
    pub survey: SourceSurvey,
    /// What is done with databases.
    pub databases: DatabaseMode,
    /// Whether file by file will do where no snapshot of a subvolume can be made.
    pub file_by_file: FileByFile,
    /// How the source is walked.
    pub walk: WalkSettings,
    /// Where files and bytes are counted that came across.
    pub progress: Arc<Progress>,
}

/// What is done where no snapshot of a subvolume can be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileByFile {
    /// Every file is cloned.
    #[default]
    Clone,
    /// Nothing is: the source is said to share nothing.
    Refuse,
}

/// What became of a clone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "what was left out is said only here"]
pub struct CloneReport {
    /// How it was made.
    pub method: Method,
    /// Whether it was counted what is in it; if not, all numbers here are 0.
    pub survey: SourceSurvey,
    /// Regular files made, each counted once.
    pub files: u64,
    /// Directories made, without the root.
    pub directories: u64,
    /// Symbolic links made.
    pub symlinks: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// The length of all files, holes included.
    pub bytes: u64,
    /// Bytes of files that share their blocks with the source.
    pub bytes_shared: u64,
    /// Bytes that were copied.
    pub bytes_copied: u64,
    /// Entries with another owner or group than in the source, because only root gives things away.
    pub owners_not_kept: u64,
    /// Entries without the setuid or setgid of the source, because we are not root.
    pub privileges_not_kept: u64,
    /// Attributes that are not the user's: access lists, capabilities, labels.
    pub attributes_left_out: u64,
    /// The databases, where they are cloned as sets.
    pub databases: Vec<SlotDatabase>,
    /// What was met in the source, and left out.
    pub walk: WalkReport,
}

impl CloneReport {
    fn add(&mut self, more: &Self) {
        self.files += more.files;
        self.directories += more.directories;
        self.symlinks += more.symlinks;
        self.hard_links += more.hard_links;
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.bytes_shared = self.bytes_shared.saturating_add(more.bytes_shared);
        self.bytes_copied = self.bytes_copied.saturating_add(more.bytes_copied);
        self.owners_not_kept += more.owners_not_kept;
        self.privileges_not_kept += more.privileges_not_kept;
        self.attributes_left_out += more.attributes_left_out;
        self.databases.extend_from_slice(&more.databases);
    }

    /// Counts what came across of a file.
    fn carried(&mut self, filled: Filled) {
        match filled {
            Filled::Shared(bytes) => self.bytes_shared += bytes,
            Filled::Copied(bytes) => self.bytes_copied += bytes,
        }
    }

    fn withhold(&mut self, withheld: Withheld) {
        self.owners_not_kept += u64::from(withheld.owner);
        self.privileges_not_kept += u64::from(withheld.privileges);
    }
}

/// Why a tree was not cloned. Nothing is left of the attempt.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloneError {
    /// The source could not be read.
    #[error(transparent)]
    Walk(#[from] WalkError),
    /// An entry of the clone, or something around it, could not be made.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The bytes cannot be shared, and copying was not allowed.
    #[error("the filesystem cannot share the bytes of `{path}` with a clone")]
    CannotShare {
        /// The first file for which that was found.
        path: EntryPath,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The target has a tree, a file or something else in its place.
    #[error("`{}` exists already", .0.display())]
    Exists(PathBuf),
    /// The source is a symbolic link.
    #[error("`{}` is a symbolic link; name the directory it leads to", .0.display())]
    SourceIsSymlink(PathBuf),
    /// The source is the root of the whole system.
    #[error("the root of the system is not cloned; name a directory in it")]
    SourceIsEverything,
    /// The target has no name of its own.
    #[error("`{}` does not name something that could be made", .0.display())]
    Nameless(PathBuf),
    /// One of the two lies in the other.
    #[error("source and destination overlap")]
    Overlap {
        /// The source.
        source_path: PathBuf,
        /// The target.
        target: PathBuf,
    },
}

/// Makes `target` a clone of the directory `source`.
pub fn clone(
    source: &Path,
    target: &Path,
    settings: &CloneSettings,
) -> Result<CloneReport, CloneError> {
    clone_before(source, target, settings, None)
}

/// The same before a witness.
pub fn clone_before(
    source: &Path,
    target: &Path,
    settings: &CloneSettings,
    witness: Option<&dyn CloneWitness>,
) -> Result<CloneReport, CloneError> {
    // Without a trailing slash, which would follow a symbolic link.
    let (source, target) = (source.components(), target.components());
    let (source, target) = (source.as_path(), target.as_path());
    let from = open_source(source, settings.mounts)?;
    let (parent, name) = open_parent(source, target)?;
    let taken = snapshot::take(&from, &parent, &name, settings)?;
    let (mut staging, report) = if let Some((staging, report)) = taken {
        settings.progress.advance(report.files, report.bytes);
        (staging, report)
    } else if settings.file_by_file == FileByFile::Refuse {
        return Err(CloneError::CannotShare {
            path: EntryPath::root(),
            source: Errno::OPNOTSUPP.into(),
        });
    } else {
        let staging = Staging::make(parent, &name);
        let staging = staging.at("make a temporary directory for", target)?;
        let report = build(&from, &staging, target, settings, witness)?;
        (staging, report)
    };

    let durable = match witness {
        None => staging.sync(),
        Some(witness) => sync_beside(&staging, witness),
    };
    durable.at("make durable", target)?;
    match staging.publish(&name) {
        Err(Errno::EXIST) => return Err(CloneError::Exists(target.to_owned())),
        published => published.at("rename into place", target)?,
    }
    let durable = staging.sync_name();
    durable.at("make durable the name of", target)?;
    Ok(report)
}

/// Makes a clone durable while the witness looks at it.
fn sync_beside(staging: &Staging, witness: &dyn CloneWitness) -> rustix::io::Result<()> {
    let (root, _) = own_root(staging)?;
    std::thread::scope(|scope| {
        let durable = scope.spawn(|| staging.sync());
        witness.finish(&root);
        durable.join().unwrap_or(Err(Errno::IO))
    })
}

/// Builds the clone file by file, in a directory of its own.
fn build(
    from: &RootDir,
    staging: &Staging,
    target: &Path,
    settings: &CloneSettings,
    witness: Option<&dyn CloneWitness>,
) -> Result<CloneReport, CloneError> {
    let (root, own) = own_root(staging).at("open the temporary", target)?;
    let walk_settings = WalkSettings {
        avoid: Some(own),
        ..settings.walk.clone()
    };
    let mut builder = Builder::new(root, settings.fallback, &walk_settings.cancel);
    builder.witness = witness;
    builder.progress = Some(&settings.progress);
    builder.takes_sets = settings.databases == DatabaseMode::AreSets;
    let walk = walk::walk(from, &builder, &walk_settings)?;
    Ok(CloneReport {
        walk,
        ..builder.finish()
    })
}

/// The staging directory as a root, and what it is.
fn own_root(staging: &Staging) -> rustix::io::Result<(RootDir, (u64, u64))> {
    let root = reopen_dir(staging.root())?;
    let own = metadata::of(&root)?.identity();
    Ok((RootDir::new(root, Mounts::Stay)?, own))
}

fn open_source(source: &Path, mounts: Mounts) -> Result<RootDir, CloneError> {
    let seen = fs::statat(fs::CWD, source, AtFlags::SYMLINK_NOFOLLOW);
    let seen = seen.at(OPEN_DIRECTORY, source)?;
    if metadata::Seen::from(&seen).file_type().is_symlink() {
        return Err(CloneError::SourceIsSymlink(source.to_owned()));
    }
    let opened = RootDir::open(source, mounts);
    let opened = opened.at(OPEN_DIRECTORY, source)?;
    let everything = fs::stat("/").at("find", Path::new("/"))?;
    if metadata::Seen::from(&everything).identity() == metadata::Seen::from(&seen).identity() {
        return Err(CloneError::SourceIsEverything);
    }
    Ok(opened)
}

/// Opens the directory in which the target will be; the target must not be there yet, nor in the source.
fn open_parent(source: &Path, target: &Path) -> Result<(OwnedFd, CString), CloneError> {
    let nameless = || CloneError::Nameless(target.to_owned());
    let name = target.file_name().ok_or_else(nameless)?;
    let name = CString::new(name.as_bytes()).ok().ok_or_else(nameless)?;
    let parent = target.parent().filter(|path| !path.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new("."));
    let opened = open_dir(parent).at(OPEN_DIRECTORY, parent)?;

    let comparing = "compare with the source";
    let source_fd = open_dir(source).at(comparing, target)?;
    let overlap = || CloneError::Overlap {
        source_path: source.to_owned(),
        target: target.to_owned(),
    };
    if root_dir::is_within(&opened, &source_fd).at(comparing, target)? {
        return Err(overlap());
    }
    if let Some(seen) = root_dir::find(&opened, &name).at(comparing, target)? {
        let holds_source = seen.file_type().is_dir()
            && root_dir::holds(seen.identity(), &source_fd).at(comparing, target)?;
        return Err(if holds_source {
            overlap()
        } else {
            CloneError::Exists(target.to_owned())
        });
    }
    Ok((opened, name))
}

#[cfg(test)]
mod tests;
