//! A live workspace becomes what it was at a checkpoint, in the directory that it is.
//!
//! 1. begin a restore in place: an interrupted one is brought to its end first
//! 2. walk the tree of the checkpoint; stage its directories, links and every file that is not right in the workspace; a
//!    staged file shares its bytes with the checkpoint if the filesystem can, otherwise it is a copy
//! 3. compare, write the journal, and move, as every restore in place does ([`crate::restore`])
//!
//! *Always true:* the root stays the same directory, and what was right the same inodes. A file is right if its content is said to be the same, and
//! size, owner, permissions, time and attributes are seen to be. Names of one file are left only if they are names of one
//! file on both sides, and the file has no other name that the checkpoint gives to something else. Nothing of the workspace is
//! touched before the journal is durable: a crash before leaves it as it was, a crash after it is made good by
//! [`recover`](crate::restore::recover), or the next restore. Nothing is opened through a symbolic link, on either side.
//!
//! Whoever changes the workspace meanwhile may find that a file he changed was left as he made it.

use crate::beneath::Beneath;
use crate::metadata::{self, Seen};
use crate::restore::{Changes, Origin, Placed, Placement, RestoreError, Spared, Stage};
use crate::tree_writer::{TreeWriter, WriteError, WriteReport, WriteSettings};
use crate::walk::{self, Found, Place, Visitor, WalkError, WalkSettings};
use rustix::io::Errno;
use stasis_model::tree::{EntryKind, EntryPath, Metadata};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

/// How a workspace is put back.
pub struct PutBack {
    /// Set by anybody at any time to end it soon; not any more when the journal is written.
    pub cancel: Arc<AtomicBool>,
    /// What stays in the workspace although the checkpoint does not have it.
    pub spared: Option<Spared>,
    /// When this happens, and from what.
    pub origin: Origin,
}

impl PutBack {
    /// Puts everything back.
    pub fn new(origin: Origin) -> Self {
        Self {
            cancel: Arc::default(),
            spared: None,
            origin,
        }
    }
}

impl std::fmt::Debug for PutBack {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = out.debug_struct("PutBack");
        out.field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// What is known of the workspace.
pub struct Live<'a> {
    /// Whether both have the same content at a path; may be asked by several workers at once.
    pub same: &'a (dyn Fn(&EntryPath) -> bool + Sync),
    /// Whether the workspace is still what it was when it was decided to put it back; asked last of all.
    pub still: &'a dyn Fn() -> bool,
}

/// What became of a workspace that was put back.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "what was withheld is said only here"]
pub struct WasPutBack {
    /// What was done to it; where there was none, one directory came.
    pub changes: Changes,
    /// Files that were right and not even staged, each name counted.
    pub left: u64,
    /// What was staged, and what could not be given to it.
    pub written: WriteReport,
}

/// Why a workspace was not put back. It is as it was, but for [`RestoreError::HalfDone`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PutBackError {
    /// The checkpoint could not be read, or not all of it.
    #[error("could not read the checkpoint")]
    Checkpoint(#[source] WalkError),
    /// The workspace could not be made what it was.
    #[error(transparent)]
    Workspace(#[from] RestoreError),
    /// Somebody asked us to stop.
    #[error("putting the workspace back was cancelled")]
    Cancelled,
}

impl From<WalkError> for PutBackError {
    fn from(error: WalkError) -> Self {
        match error {
            WalkError::Cancelled => Self::Cancelled,
            error => Self::Checkpoint(error),
        }
    }
}

impl From<WriteError> for PutBackError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Cancelled => Self::Cancelled,
            error => Self::Workspace(error.into()),
        }
    }
}

/// Makes the workspace what `tree` is.
pub fn put_back(
    tree: &Beneath,
    workspace: &Path,
    live: &Live<'_>,
    settings: PutBack,
) -> Result<WasPutBack, PutBackError> {
    let PutBack {
        cancel,
        spared,
        origin,
    } = settings;
    let mut stage = Stage::begin(workspace, Placement::InPlace, cancel.clone())?;
    if let Some(spared) = spared {
        stage.spare(spared);
    }
    let writer = stage.writer(WriteSettings {
        cancel: cancel.clone(),
        ..WriteSettings::default()
    })?;
    let loader = Loader {
        tree,
        stage: &stage,
        writer,
        same: live.same,
        linked: Mutex::default(),
        left: Mutex::default(),
    };
    let walking = WalkSettings {
        strict: true,
        cancel,
        ..WalkSettings::default()
    };
    // Strict: nothing was left out.
    let _ = walk::walk(tree, &loader, &walking)?;
    let (written, left) = loader.finish()?;
    let restored = stage.swap_if(written, &origin, live.still);
    let restored = restored.map_err(|error| match error {
        RestoreError::Cancelled => PutBackError::Cancelled,
        error => error.into(),
    })?;
    let changes = match restored.placed {
        Placed::InPlace(changes) => changes,
        Placed::New | Placed::Replaced { .. } => Changes {
            placed: 1,
            ..Changes::default()
        },
    };
    Ok(WasPutBack {
        changes,
        left,
        written: restored.written,
    })
}

/// A name of a file that has several, here or there.
struct Name {
    path: EntryPath,
    /// In the checkpoint.
    was: Seen,
    /// In the workspace, if there is a file.
    is: Option<Seen>,
    is_right: bool,
}

/// Stages what the walker shows of the checkpoint.
struct Loader<'a> {
    tree: &'a Beneath,
    stage: &'a Stage,
    writer: TreeWriter,
    same: &'a (dyn Fn(&EntryPath) -> bool + Sync),
    linked: Mutex<Vec<Name>>,
    left: Mutex<u64>,
}

impl Loader<'_> {
    /// Decides on files with several names, and completes the staged tree.
    fn finish(self) -> Result<(WriteReport, u64), PutBackError> {
        let mut linked = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
        let names = std::mem::take(&mut *linked);
        drop(linked);
        self.settle(names)?;
        let root = self.tree.directory(b"").and_then(metadata::of);
        let root = root.map_err(unreadable("look at", &EntryPath::root()))?;
        let left = self
            .left
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        Ok((self.writer.finish(Some(&root.metadata()))?, left))
    }

    fn settle(&self, linked: Vec<Name>) -> Result<(), PutBackError> {
        let mut names_of: HashMap<(u64, u64), usize> = HashMap::new();
        for is in linked.iter().filter_map(|name| name.is) {
            *names_of.entry(is.identity()).or_default() += 1;
        }
        let mut files: BTreeMap<(u64, u64), Vec<Name>> = BTreeMap::new();
        for name in linked {
            files.entry(name.was.identity()).or_default().push(name);
        }
        for mut names in files.into_values() {
            names.sort_unstable_by(|one, other| one.path.cmp(&other.path));
            let file = |name: &Name| name.is.filter(|_| name.is_right).map(|is| is.identity());
            let first = file(&names[0]);
            let is_one_file = names.iter().all(|name| file(name) == first);
            let has_no_other = first.and_then(|file| names_of.get(&file)) == Some(&names.len());
            if is_one_file && has_no_other {
                for name in &names {
                    self.leave(&name.path);
                }
                continue;
            }
            let first = &names[0].path;
            self.stage_at(first)?;
            for name in &names[1..] {
                self.writer.hard_link(&name.path, first)?;
            }
        }
        Ok(())
    }

    fn leave(&self, path: &EntryPath) {
        self.stage.leave(path);
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// Leaves a file, stages it, or waits until all its names are known.
    fn file(&self, here: &Here<'_>, found: &Found<'_>) -> Result<(), PutBackError> {
        let path = here.place.child(found.name)?;
        let is = here.live(found.name);
        let is_right = is.is_some_and(|is| self.is_right(here, found, &is, &path));
        let has_names = found.seen.links > 1 || is.is_some_and(|is| is.links > 1);
        if has_names {
            let was = found.seen;
            let mut linked = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
            linked.push(Name {
                path,
                was,
                is,
                is_right,
            });
        } else if is_right {
            self.leave(&path);
        } else if let Some((source, seen)) = here.place.open_file(found.name)? {
            self.stage_file(&path, &source, &seen)?;
        }
        Ok(())
    }

    /// Whether the file in the workspace is what the checkpoint's is; what cannot be read is not.
    fn is_right(&self, here: &Here<'_>, found: &Found<'_>, is: &Seen, path: &EntryPath) -> bool {
        let was = &found.seen;
        let looks_right = is.metadata() == was.metadata() && is.size == was.size && !is.is_mount;
        let attributes = |root: &Beneath, directory: BorrowedFd<'_>| {
            let file = root.file(directory, found.name)?;
            metadata::attributes(file).map(|attributes| attributes.user)
        };
        looks_right
            && (self.same)(path)
            && here.live.as_ref().is_some_and(|(old, live)| {
                let (is, was) = (
                    attributes(old, live.as_fd()),
                    attributes(self.tree, here.place.fd),
                );
                is.is_ok() && is == was
            })
    }

    fn stage_at(&self, path: &EntryPath) -> Result<(), PutBackError> {
        let opened = path.split_last().ok_or(Errno::ISDIR);
        let opened = opened.and_then(|(above, name)| {
            let directory = self.tree.directory(above.as_bytes())?;
            let name = CString::new(name).map_err(|_| Errno::INVAL)?;
            let file = self.tree.file(directory.as_fd(), &name)?;
            let seen = metadata::of(&file)?;
            Ok((file, seen))
        });
        let (source, seen) = opened.map_err(unreadable("open", path))?;
        self.stage_file(path, &source, &seen)
    }

    fn stage_file(
        &self,
        path: &EntryPath,
        source: &OwnedFd,
        seen: &Seen,
    ) -> Result<(), PutBackError> {
        let attributes = metadata::attributes(source);
        let attributes = attributes.map_err(unreadable("read the attributes of", path))?;
        let file = self.writer.file(path, seen.size)?;
        file.fill_from(source.as_fd(), seen.size)?;
        Ok(file.finish(&seen.metadata(), &attributes.user)?)
    }
}

fn unreadable(doing: &'static str, path: &EntryPath) -> impl FnOnce(Errno) -> WalkError {
    let path = path.clone();
    move |error| WalkError::Failed {
        doing,
        path,
        source: error.into(),
    }
}

impl Visitor for Loader<'_> {
    type Error = PutBackError;

    fn enter(&self, place: &Place<'_>) -> Result<(), PutBackError> {
        let seen = metadata::of(place.fd).map_err(unreadable("look at", place.path))?;
        let attributes = metadata::attributes(place.fd);
        let attributes = attributes.map_err(unreadable("read the attributes of", place.path))?;
        let wanted: Metadata = seen.metadata();
        Ok(self
            .writer
            .directory(place.path, &wanted, &attributes.user)?)
    }

    fn visit(&self, place: &Place<'_>, entries: &[Found<'_>]) -> Result<(), PutBackError> {
        let here = Here::new(place, self.stage.old());
        for found in entries {
            let wanted = found.seen.metadata();
            match &found.kind {
                // Each is staged when it is entered.
                EntryKind::Directory => {}
                EntryKind::File { .. } | EntryKind::HardLink { .. } => self.file(&here, found)?,
                EntryKind::Symlink { target } => {
                    let path = place.child(found.name)?;
                    self.writer.symlink(&path, target, &wanted)?;
                }
                EntryKind::Fifo => self.writer.fifo(&place.child(found.name)?, &wanted)?,
                _ => place.skip(found.name, walk::Reason::Device)?,
            }
        }
        Ok(())
    }
}

/// A directory of the checkpoint, and what is at its place in the workspace.
struct Here<'a> {
    place: &'a Place<'a>,
    /// If that is a directory that can be read: another one is replaced with all that is in it.
    live: Option<(&'a Beneath, OwnedFd)>,
}

impl<'a> Here<'a> {
    fn new(place: &'a Place<'a>, old: Option<&'a Beneath>) -> Self {
        let live = old.and_then(|old| {
            let directory = old.directory(place.path.as_bytes()).ok()?;
            Some((old, directory))
        });
        Self { place, live }
    }

    /// The file of that name in the workspace.
    fn live(&self, name: &CStr) -> Option<Seen> {
        let (_, directory) = self.live.as_ref()?;
        let seen = metadata::look(directory.as_fd(), name).ok()?;
        seen.file_type().is_file().then_some(seen)
    }
}
