//! One entry of a live tree becomes again what it was in a checkpoint.
//!
//! 1. find it beneath both roots, by descriptors; see whether it holds the same already
//! 2. make the directories above it that are missing
//! 3. build it in `.NAME.stasis-tmp-PID` beside: bytes, attributes, owner, permissions, time; make it durable
//! 4. rename it over what is there, or exchange the two; `fsync` the directory; remove the temporary one and what is in it
//!
//! What did not exist then is moved into such a temporary directory, and goes with it. What a dead process left of one is removed by
//! the next revert of the same entry.
//!
//! *Always true:* at every moment the entry is what it was or what it becomes. Every way is opened beneath the root's descriptor
//! through no symbolic link, so whoever swaps directories for links meanwhile gets an error out of us and nothing else. Something above
//! the entry that is no directory any more is in the way, and stays: nobody asked for it to go.

use super::cache::StatCache;
use super::manifest::{content_of, manifest};
use crate::beneath::{self, Beneath, Mounts};
use crate::clone::{self, CloneError, CloneSettings, Fallback};
use crate::content::{self, Trouble};
use crate::metadata::{self, Rights, Seen};
use crate::staging::{self, Staging};
use crate::walk::{WalkError, WalkSettings};
use rustix::fs::{self, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// What is built is called that in the temporary directory.
const ENTRY: &CStr = c"entry";
/// How often something is tried again while somebody else changes what it is about.
const PATIENCE: usize = 16;

/// What became of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "it says what was done to the live tree"]
pub enum Reverted {
    /// It is again what it was.
    Restored,
    /// It did not exist then, and does not any more.
    Deleted,
    /// It holds what it held, or is in neither.
    Unchanged,
}

/// Why an entry was not reverted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RevertError {
    /// The root is not an entry.
    #[error("the whole tree is restored, not reverted")]
    Root,
    /// It was changed by somebody else when everything was ready, and was not touched.
    #[error("`{0}` was changed by somebody else meanwhile")]
    Changed(EntryPath),
    /// Something above it is no directory any more.
    #[error("`{0}` is in the way: it is not a directory any more; revert it first")]
    InTheWay(EntryPath),
    /// It is something that no checkpoint has, or that nothing can take the place of.
    #[error("`{0}` is neither a file nor a directory nor a symbolic link")]
    Special(EntryPath),
    /// A directory could not be read.
    #[error("could not compare `{path}` with the checkpoint")]
    Compare {
        /// Which one.
        path: EntryPath,
        /// Why.
        #[source]
        source: WalkError,
    },
    /// A directory could not be built again.
    #[error("could not build `{path}` from the checkpoint")]
    Build {
        /// Which one.
        path: EntryPath,
        /// Why.
        #[source]
        source: Box<CloneError>,
    },
    /// The system refused something.
    #[error("could not {doing} `{path}`")]
    Failed {
        /// What we were doing.
        doing: &'static str,
        /// To which entry.
        path: EntryPath,
        /// What it said.
        #[source]
        source: io::Error,
    },
}

fn failed(doing: &'static str, path: &EntryPath) -> impl FnOnce(Errno) -> RevertError {
    let path = path.clone();
    move |error| RevertError::Failed {
        doing,
        path,
        source: error.into(),
    }
}

/// An entry in a directory that is open.
struct At {
    directory: OwnedFd,
    name: CString,
    seen: Seen,
}

/// Makes `path` in the workspace what it is in the tree of a checkpoint.
pub fn revert(
    workspace: &Beneath,
    tree: &Beneath,
    path: &EntryPath,
) -> Result<Reverted, RevertError> {
    revert_if(workspace, tree, path, &|| true)
}

/// The same, if `still` says so when everything is ready and nothing is touched yet.
pub fn revert_if(
    workspace: &Beneath,
    tree: &Beneath,
    path: &EntryPath,
    still: &dyn Fn() -> bool,
) -> Result<Reverted, RevertError> {
    let still = || {
        let is_still = still().then_some(());
        is_still.ok_or_else(|| RevertError::Changed(path.clone()))
    };
    if path.is_root() {
        return Err(RevertError::Root);
    }
    clear_up(workspace, path);
    let was = find(tree, path)?;
    let is = find(workspace, path)?;
    match (was, is) {
        (None, None) => Ok(Reverted::Unchanged),
        (None, Some(is)) => {
            still()?;
            delete(&is, path).map(|()| Reverted::Deleted)
        }
        (Some(was), is) => {
            if let Some(is) = &is
                && is_same((workspace, is), (tree, &was), path)?
            {
                return Ok(Reverted::Unchanged);
            }
            let above = make_above(workspace, tree, path)?;
            let staging = build(&above, (tree, &was), path)?;
            still()?;
            place(&staging, &was.name, path)?;
            Ok(Reverted::Restored)
        }
    }
}

/// Removes what dead reverts of an entry left beside it, as far as that goes.
pub fn clear_up(workspace: &Beneath, path: &EntryPath) {
    let Some((above, name)) = path.split_last() else {
        return;
    };
    if let (Ok(above), Ok(name)) = (workspace.directory(above.as_bytes()), CString::new(name)) {
        staging::collect(above, &name);
    }
}

/// Finds an entry; one behind something that is no directory does not exist.
fn find(root: &Beneath, path: &EntryPath) -> Result<Option<At>, RevertError> {
    let (above, name) = path.split_last().ok_or(RevertError::Root)?;
    let name = CString::new(name).expect("no name of an entry has a NUL");
    let directory = match root.directory(above.as_bytes()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        directory => directory.map_err(failed("open what holds", path))?,
    };
    let seen = beneath::find(&directory, &name).map_err(failed("look at", path))?;
    Ok(seen.map(|seen| At {
        directory,
        name,
        seen,
    }))
}

/// Whether both hold the same; times do not count.
fn is_same(
    (workspace, is): (&Beneath, &At),
    (tree, was): (&Beneath, &At),
    path: &EntryPath,
) -> Result<bool, RevertError> {
    let (kind, other) = (is.seen.file_type(), was.seen.file_type());
    if kind != other {
        return Ok(false);
    }
    if kind.is_symlink() {
        return Ok(target_of(is, path)? == target_of(was, path)?);
    }
    if is.seen.metadata().mode != was.seen.metadata().mode {
        return Ok(false);
    }
    match kind {
        FileType::Directory => same_trees(workspace, tree, path),
        FileType::RegularFile if is.seen.size == was.seen.size => {
            let digest = |root: &Beneath, at: &At| {
                let file = root.file(at.directory.as_fd(), &at.name)?;
                if !metadata::of(&file)?.file_type().is_file() {
                    return Err(io::Error::from(Errno::INVAL));
                }
                content_of(file)
            };
            let was = digest(tree, was).map_err(|source| RevertError::Failed {
                doing: "read in the checkpoint",
                path: path.clone(),
                source,
            })?;
            // What cannot be read cannot be called the same.
            Ok(digest(workspace, is).is_ok_and(|is| is == was))
        }
        _ => Ok(false),
    }
}

fn target_of(at: &At, path: &EntryPath) -> Result<CString, RevertError> {
    let target = fs::readlinkat(&at.directory, &*at.name, Vec::new());
    target.map_err(failed("read the link", path))
}

fn same_trees(workspace: &Beneath, tree: &Beneath, path: &EntryPath) -> Result<bool, RevertError> {
    let list = |root: &Beneath| {
        let opened = root.directory(path.as_bytes());
        let opened = opened.and_then(|fd| Beneath::new(fd, Mounts::Stay));
        let opened = opened.map_err(failed("open", path))?;
        // Nothing is remembered: a file is read for this once.
        let mut nothing = StatCache::open(Path::new(""), Timestamp::default());
        let listed = manifest(&opened, &mut nothing, &WalkSettings::default());
        listed.map_err(|source| RevertError::Compare {
            path: path.clone(),
            source,
        })
    };
    let ((is, report), (was, _)) = (list(workspace)?, list(tree)?);
    Ok(report.vanished_count + report.skipped_count == 0 && is == was)
}

/// Opens the directory that is to hold an entry; makes it, and those above it, as they are in the checkpoint.
fn make_above(
    workspace: &Beneath,
    tree: &Beneath,
    path: &EntryPath,
) -> Result<OwnedFd, RevertError> {
    let (above, _) = path.split_last().ok_or(RevertError::Root)?;
    let mut opened = open_above(workspace, &EntryPath::root())?;
    let mut reached = EntryPath::root();
    for name in above.components() {
        reached = reached.child(name).expect("it is part of a good path");
        let mut made = open_above(workspace, &reached);
        for _ in 0..PATIENCE {
            let is_missing = matches!(&made, Err(RevertError::Failed { source, .. })
                if source.kind() == io::ErrorKind::NotFound);
            if !is_missing {
                break;
            }
            make_like(&opened, tree, (&reached, name))?;
            made = open_above(workspace, &reached);
        }
        opened = made?;
    }
    Ok(opened)
}

fn open_above(workspace: &Beneath, path: &EntryPath) -> Result<OwnedFd, RevertError> {
    workspace.directory(path.as_bytes()).map_err(|error| {
        if matches!(error, Errno::NOTDIR | Errno::LOOP) {
            return RevertError::InTheWay(path.clone());
        }
        failed("open the directory", path)(error)
    })
}

/// Makes a directory with the owner and permissions that it has in the checkpoint.
fn make_like(
    parent: &OwnedFd,
    tree: &Beneath,
    (path, name): (&EntryPath, &[u8]),
) -> Result<(), RevertError> {
    let like = tree.directory(path.as_bytes()).and_then(metadata::of);
    let like = like.map_err(failed("look in the checkpoint at", path))?;
    match fs::mkdirat(parent, name, Mode::RWXU) {
        Err(Errno::EXIST) => return Ok(()),
        made => made.map_err(failed("make the directory", path))?,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = fs::openat(parent, name, flags, Mode::empty());
    let given = made.and_then(|made| {
        metadata::give(&made, &like.metadata(), Rights::of_this_process())?;
        fs::fsync(parent)
    });
    given.map_err(failed("set owner and mode of", path))
}

/// Builds what was, beside what is.
fn build(
    above: &OwnedFd,
    (tree, was): (&Beneath, &At),
    path: &EntryPath,
) -> Result<Staging, RevertError> {
    let staging = stage(above.as_fd(), &was.name, path)?;
    match was.seen.file_type() {
        FileType::RegularFile => file(&staging, (tree, was), path)?,
        FileType::Symlink => link(&staging, was, path)?,
        FileType::Directory => directory(&staging, tree, path)?,
        _ => return Err(RevertError::Special(path.clone())),
    }
    Ok(staging)
}

/// Makes a directory beside an entry, when what the dead left there has been removed; dropped, it goes with all that is in it.
fn stage(above: BorrowedFd<'_>, name: &CStr, path: &EntryPath) -> Result<Staging, RevertError> {
    let again = above.try_clone_to_owned().map_err(|_| Errno::MFILE);
    let staging = again.and_then(|above| Staging::make(above, name));
    staging.map_err(failed("make a temporary directory for", path))
}

/// Makes a file that has everything that the one in the checkpoint has.
fn file(
    staging: &Staging,
    (tree, was): (&Beneath, &At),
    path: &EntryPath,
) -> Result<(), RevertError> {
    let source = tree.file(was.directory.as_fd(), &was.name);
    let source = source.map_err(failed("open in the checkpoint", path))?;
    let seen = metadata::of(&source).map_err(failed("look in the checkpoint at", path))?;
    if !seen.file_type().is_file() {
        return Err(RevertError::Special(path.clone()));
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = fs::openat(staging.root(), ENTRY, flags, Mode::RUSR | Mode::WUSR);
    let made = made.map_err(failed("create a temporary", path))?;
    let goes_on = AtomicBool::new(false);
    let (from, to) = (source.as_fd(), made.as_fd());
    let carried = content::carry(from, to, seen.size, Fallback::Copy, &goes_on);
    carried.map_err(|trouble| match trouble {
        Trouble::Failed(error) | Trouble::CannotShare(error) => failed("write", path)(error),
        Trouble::Cancelled => failed("write", path)(Errno::CANCELED),
    })?;
    let given = metadata::attributes(&source).and_then(|attributes| {
        metadata::give_user_attributes(&made, &attributes.user)?;
        metadata::give(&made, &seen.metadata(), Rights::of_this_process())
    });
    given.map_err(failed("set owner, mode and time of", path))?;
    fs::fsync(&made).map_err(failed("make durable", path))
}

fn link(staging: &Staging, was: &At, path: &EntryPath) -> Result<(), RevertError> {
    let target = target_of(was, path)?;
    let made = fs::symlinkat(&*target, staging.root(), ENTRY);
    made.map_err(failed("create a temporary", path))?;
    let rights = Rights::of_this_process();
    let given = metadata::give_link(staging.root(), ENTRY, &was.seen.metadata(), rights);
    given.map_err(failed("set owner and time of", path))?;
    Ok(())
}

fn directory(staging: &Staging, tree: &Beneath, path: &EntryPath) -> Result<(), RevertError> {
    let from = tree.directory(path.as_bytes());
    let from = from.and_then(|fd| Beneath::new(fd, Mounts::Stay));
    let from = from.map_err(failed("open in the checkpoint", path))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let into = fs::mkdirat(staging.root(), ENTRY, Mode::RWXU)
        .and_then(|()| fs::openat(staging.root(), ENTRY, flags, Mode::empty()));
    let into = into.map_err(failed("make a temporary", path))?;
    let settings = CloneSettings {
        fallback: Fallback::Copy,
        walk: WalkSettings {
            strict: true,
            ..WalkSettings::default()
        },
        ..CloneSettings::default()
    };
    let grown = clone::grow(&from, into, &settings);
    // Strict: nothing was left out.
    let _ = grown.map_err(|source| RevertError::Build {
        path: path.clone(),
        source: Box::new(source),
    })?;
    staging.sync().map_err(failed("make durable", path))
}

/// Puts what was built in the place of `name`; what was there goes with the temporary directory.
fn place(staging: &Staging, name: &CStr, path: &EntryPath) -> Result<(), RevertError> {
    let failed = || failed("put into place", path);
    let (from, above) = (staging.root(), staging.parent());
    for _ in 0..PATIENCE {
        match fs::renameat(from, ENTRY, above, name) {
            // A directory with something in it, or one kind of thing instead of the other.
            Err(Errno::ISDIR | Errno::NOTDIR | Errno::NOTEMPTY | Errno::EXIST) => {}
            renamed => {
                renamed.map_err(failed())?;
                return staging.sync_name().map_err(failed());
            }
        }
        match fs::renameat_with(from, ENTRY, above, name, RenameFlags::EXCHANGE) {
            Err(Errno::NOENT) => {}
            exchanged => {
                exchanged.map_err(failed())?;
                return staging.sync_name().map_err(failed());
            }
        }
    }
    Err(failed()(Errno::AGAIN))
}

/// Deletes what did not exist then, at once: what is in a directory goes with the temporary one.
fn delete(is: &At, path: &EntryPath) -> Result<(), RevertError> {
    let staging = stage(is.directory.as_fd(), &is.name, path)?;
    match fs::renameat(staging.parent(), &*is.name, staging.root(), ENTRY) {
        // Somebody else was faster.
        Err(Errno::NOENT) => {}
        moved => moved.map_err(failed("delete", path))?,
    }
    staging.sync_name().map_err(failed("make durable", path))
}
