//! The one walker of the house: every tree that is saved, cloned or compared is read through it.
//!
//! Directories are read in parallel. A worker takes a directory, opens it *by its way from the root* ([`RootDir`]: no
//! symbolic link is ever passed through), reads and sorts its names, looks at each entry, and shows a [`Visitor`] a
//! batch of them; only then are its subdirectories queued. The last ones queued are taken first.
//!
//! *Always true:* a directory was shown as an entry before anything in it is; it is left after everything in it, and in
//! its subdirectories, was shown; at most two descriptors per worker are open here, however deep or wide the tree.
//!
//! A file with several names is shown when the rest has been: under its first name in order as a file, under the others
//! as hard links to the first, whichever worker met which first. What is kept in memory is the names of directories
//! still to be read, of one listing per worker, and of files with several names.
//!
//! What disappears between being listed and being looked at has vanished: it is counted, and an error only when
//! [`WalkSettings::strict`]. Sockets and devices are reported and never opened.

mod collect;
mod names;
mod node;
mod ordered;
mod report;
mod workers;

pub use collect::list;
pub use ordered::{InOrder, walk_in_order};
pub use report::{LONGEST_LIST, SkippedEntry, WalkReport, WalkSkip};

use crate::fs::metadata::{self, Seen};
use crate::fs::root_dir::{Mounts, RootDir};
use crate::worker_pool::all_processors;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use report::Notes;
use rustix::fs::{self, FileType};
use rustix::io::Errno;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::tree::{EntryKind, EntryPath};
use std::ffi::{CStr, OsStr};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How a tree is walked.
#[derive(Clone, Debug)]
pub struct WalkSettings {
    /// How many directories are read at once; each worker costs a thread and two descriptors.
    pub workers: NonZeroUsize,
    /// How many directories may lie inside one another; deeper is an error.
    pub deepest: usize,
    /// Whether what vanished, or may not be read, is an error instead of a line in the report.
    pub strict: bool,
    /// Gitignore-style patterns of what does not belong to the tree.
    pub excludes: Vec<String>,
    /// Whether named pipes are left out and reported, as sockets always are.
    pub skip_fifos: bool,
    /// A directory that is not entered: device and inode.
    pub avoid: Option<(u64, u64)>,
    /// Set by anybody at any time to end the walk soon.
    pub cancel: Arc<AtomicBool>,
}

impl Default for WalkSettings {
    fn default() -> Self {
        Self {
            workers: all_processors(),
            deepest: 1000,
            strict: false,
            excludes: Vec::new(),
            skip_fifos: false,
            avoid: None,
            cancel: Arc::default(),
        }
    }
}

/// Why a walk did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalkError {
    /// The system refused something.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// Directories lie deeper in one another than allowed.
    #[error("more than {limit} directories lie inside one another, beginning with `{top}`")]
    TooDeep {
        /// The limit.
        limit: usize,
        /// The outermost of them.
        top: EntryPath,
    },
    /// The walk is strict, and something could not be read.
    #[error("`{path}` would be skipped ({reason}), and everything was asked for")]
    Incomplete {
        /// What is missing.
        path: EntryPath,
        /// Why.
        reason: WalkSkip,
    },
    /// A pattern is not one.
    #[error("`{pattern}` is not a pattern")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        #[source]
        source: ignore::Error,
    },
    /// Somebody asked us to stop.
    #[error("the walk was cancelled")]
    Cancelled,
}

/// A directory that is being read.
#[derive(Debug)]
pub struct WalkedDir<'a> {
    /// Where it is.
    pub path: &'a EntryPath,
    /// Its descriptor.
    pub fd: BorrowedFd<'a>,
    root: &'a RootDir,
    notes: &'a Notes,
    strict: bool,
}

impl WalkedDir<'_> {
    /// Opens the regular file `name` for reading, and says what it is by now.
    ///
    /// `None` when it vanished, became something else or may not be read: that is in the report already.
    pub fn open_file(&self, name: &CStr) -> Result<Option<(OwnedFd, Seen)>, WalkError> {
        let opened = self.root.file(self.fd, name);
        let opened = opened.and_then(|file| metadata::of(&file).map(|seen| (file, seen)));
        match opened {
            Ok((_, seen)) if !seen.file_type().is_file() => self.skip(name, WalkSkip::Replaced)?,
            Ok(opened) => return Ok(Some(opened)),
            Err(error) => self.could_not("open", name, error)?,
        }
        Ok(None)
    }

    /// The same without a look at what it is by now: for whoever looks later anyway.
    pub(crate) fn open_unseen(&self, name: &CStr) -> Result<Option<OwnedFd>, WalkError> {
        match self.root.file(self.fd, name) {
            Ok(opened) => Ok(Some(opened)),
            Err(error) => self.could_not("open", name, error).map(|()| None),
        }
    }

    /// What the walk is beneath.
    pub(crate) fn root(&self) -> &RootDir {
        self.root
    }

    /// Whether everything must be right.
    pub(crate) fn is_strict(&self) -> bool {
        self.strict
    }

    /// Reports an entry that is left out.
    pub fn skip(&self, name: &CStr, reason: WalkSkip) -> Result<(), WalkError> {
        let path = self.child(name)?;
        self.notes.skip(path, reason, self.strict)
    }

    /// The path of the entry `name`.
    pub fn child(&self, name: &CStr) -> Result<EntryPath, WalkError> {
        let child = self.path.child(name.to_bytes());
        let child = child.map_err(|bad| io::Error::new(io::ErrorKind::InvalidData, bad));
        Ok(child.on("name an entry of", self.path)?)
    }

    /// Sorts a refusal of the system into what is reported and what ends the walk.
    pub fn could_not(
        &self,
        doing: &'static str,
        name: &CStr,
        error: Errno,
    ) -> Result<(), WalkError> {
        let path = self.child(name)?;
        refused(self.notes, self.strict, doing, path, error)
    }
}

/// Sorts a refusal into what is reported and what ends the walk.
fn refused(
    notes: &Notes,
    strict: bool,
    doing: &'static str,
    path: EntryPath,
    error: Errno,
) -> Result<(), WalkError> {
    let reason = match error {
        Errno::NOENT => WalkSkip::Vanished,
        Errno::LOOP | Errno::NOTDIR | Errno::NXIO => WalkSkip::Replaced,
        Errno::ACCESS | Errno::PERM => WalkSkip::Unreadable,
        Errno::XDEV => WalkSkip::OtherFilesystem,
        _ => return Err(Failure::from_io(error, doing, path).into()),
    };
    notes.skip(path, reason, strict)
}

/// Opens a directory; `None` for one that is left out, which is reported.
fn open(
    root: &RootDir,
    path: &EntryPath,
    notes: &Notes,
    strict: bool,
) -> Result<Option<OwnedFd>, WalkError> {
    match root.directory(path.as_bytes()) {
        Ok(fd) => Ok(Some(fd)),
        Err(error) => {
            let (doing, path) = ("open the directory", path.clone());
            refused(notes, strict, doing, path, error).map(|()| None)
        }
    }
}

/// What kind of entry it is; `None` for what is in no tree, or not in this one, which is reported.
fn kind_of(
    place: &WalkedDir<'_>,
    name: &CStr,
    seen: &Seen,
    settings: &WalkSettings,
) -> Result<Option<EntryKind>, WalkError> {
    let left_out = |reason| place.skip(name, reason).map(|()| None);
    let kind = match seen.file_type() {
        FileType::Socket => return left_out(WalkSkip::Socket),
        FileType::BlockDevice | FileType::CharacterDevice | FileType::Unknown => {
            return left_out(WalkSkip::Device);
        }
        _ if place.root.mounts() == Mounts::Stay && seen.is_mount => {
            return left_out(WalkSkip::OtherFilesystem);
        }
        FileType::Directory if settings.avoid == Some(seen.identity()) => {
            return left_out(WalkSkip::OwnTarget);
        }
        FileType::Directory => EntryKind::Directory,
        FileType::Fifo if settings.skip_fifos => return left_out(WalkSkip::Fifo),
        FileType::Fifo => EntryKind::Fifo,
        FileType::Symlink => match fs::readlinkat(place.fd, name, Vec::new()) {
            Ok(target) => EntryKind::Symlink {
                target: target.to_bytes().into(),
            },
            Err(Errno::INVAL) => return left_out(WalkSkip::Replaced),
            Err(error) => return place.could_not("read the link", name, error).map(|()| None),
        },
        FileType::RegularFile => EntryKind::File { size: seen.size },
    };
    Ok(Some(kind))
}

/// One entry of a directory that is being read.
#[derive(Debug)]
pub struct WalkedEntry<'a> {
    /// Its name.
    pub name: &'a CStr,
    /// What it is.
    pub kind: EntryKind,
    /// What the system said of it; of a hard link, what it said of this name.
    pub seen: Seen,
}

/// Somebody to whom a tree is shown. Called by several workers at once.
pub trait Visitor: Sync {
    /// Why it would not go on.
    type Error: From<WalkError> + Send;

    /// Sees an open directory, once, before any of its entries.
    fn enter(&self, _place: &WalkedDir<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Sees some entries of a directory, sorted by name. Further ones, even earlier names, may come in other calls.
    fn visit(&self, place: &WalkedDir<'_>, entries: &[WalkedEntry<'_>]) -> Result<(), Self::Error>;

    /// Whether a directory is wanted once more, now that everything in it has been shown.
    fn wants_again(&self, _path: &EntryPath) -> bool {
        false
    }

    /// Sees a directory that was wanted once more, right before it is left.
    fn again(&self, _place: &WalkedDir<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Hears that everything in a directory, at any depth, has been shown. The root is the last.
    fn leave(&self, _path: &EntryPath, _seen: &Seen) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// Shows everything beneath `root` to `visitor`.
pub fn walk<V: Visitor>(
    root: &RootDir,
    visitor: &V,
    settings: &WalkSettings,
) -> Result<WalkReport, V::Error> {
    let excludes = Excludes::new(&settings.excludes)?;
    workers::WalkWorkers::new(root, visitor, settings, &excludes).run()
}

/// What does not belong to the tree.
#[derive(Debug)]
pub(crate) struct Excludes(Option<Gitignore>);

/// Says of paths whether patterns leave them out, as a walk would: also of what lies in a directory that they leave out.
pub fn matcher(
    patterns: &[String],
) -> Result<impl Fn(&EntryPath, bool) -> bool + Send + Sync + use<>, WalkError> {
    let patterns = Excludes::new(patterns)?;
    Ok(move |path: &EntryPath, is_directory: bool| {
        let path = Path::new(OsStr::from_bytes(path.as_bytes()));
        let patterns = patterns.0.as_ref();
        patterns.is_some_and(|all| {
            all.matched_path_or_any_parents(path, is_directory)
                .is_ignore()
        })
    })
}

impl Excludes {
    pub(crate) fn new(patterns: &[String]) -> Result<Self, WalkError> {
        if patterns.is_empty() {
            return Ok(Self(None));
        }
        let mut builder = GitignoreBuilder::new("");
        builder.allow_unclosed_class(false);
        let bad = |pattern: &str, source| WalkError::Pattern {
            pattern: pattern.to_owned(),
            source,
        };
        for pattern in patterns {
            if let Some(why) = says_nothing(pattern) {
                let err = why.to_owned();
                return Err(bad(pattern, ignore::Error::Glob { glob: None, err }));
            }
            let added = builder.add_line(None, pattern);
            added.map_err(|source| bad(pattern, source))?;
        }
        let built = builder
            .build()
            .map_err(|source| bad(&patterns.join(" "), source))?;
        Ok(Self(Some(built)))
    }

    fn has(&self, place: &WalkedDir<'_>, name: &CStr, seen: &Seen) -> Result<bool, WalkError> {
        // What a restore in place kept in somebody's tree, or beside a directory in it, is no part of that.
        if seen.file_type().is_dir() && crate::fs::staging::is_backup(name.to_bytes()) {
            return Ok(true);
        }
        if self.0.is_none() {
            return Ok(false);
        }
        Ok(self.names(&place.child(name)?, seen.file_type().is_dir()))
    }

    /// Whether a pattern names `path` itself; what holds it was asked about before.
    pub(crate) fn names(&self, path: &EntryPath, is_directory: bool) -> bool {
        let path = Path::new(OsStr::from_bytes(path.as_bytes()));
        let patterns = self.0.as_ref();
        patterns.is_some_and(|patterns| patterns.matched(path, is_directory).is_ignore())
    }
}

/// Why a line that a `.gitignore` may well have is not a pattern; `None` when it is one.
fn says_nothing(pattern: &str) -> Option<&'static str> {
    let rest = pattern.trim_end();
    let rest = rest.strip_prefix('!').unwrap_or(rest);
    if pattern.starts_with('#') {
        Some("it is a comment; a name that begins with `#` is written `\\#`")
    } else if rest.chars().all(|letter| letter == '/') {
        Some("it names nothing")
    } else {
        None
    }
}

fn go_on(cancel: &AtomicBool) -> Result<(), WalkError> {
    if cancel.load(Ordering::Relaxed) {
        return Err(WalkError::Cancelled);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
