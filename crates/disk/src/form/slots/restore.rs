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
//! [`recover`](fn@crate::tree::restore::recover), or the next restore. Nothing is opened through a symbolic link, on either side.
//!
//! Whoever changes the workspace meanwhile finds what it wrote in the live tree, or in the backup that the restore leaves.

use super::error::SlotError;
use crate::fs::fd::c_name;
use crate::fs::metadata::{self, Seen};
use crate::fs::root_dir::{Mounts, RootDir};
use crate::fs::staging::OWN_PATTERNS;
use crate::progress::Progress;
use crate::tree::restore::{
    PlacedTree, Placement, RestoreChanges, RestoreError, RestoreLimits, RestoreOrigin, RestoreStage,
};
use crate::tree::walk::{self, Visitor, WalkError, WalkSettings, WalkedDir, WalkedEntry};
use crate::tree::write::{TreeWriteError, TreeWriter, WriteReport, WriteSettings};
use crate::worker_pool::{into_inner, lock};
use rustix::fs::FileType;
use rustix::io::Errno;
use stasis_model::failure::AtPath;
use stasis_model::tree::{EntryKind, EntryPath, Metadata};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// How a workspace is put back.
pub struct WorkspaceRestore {
    /// Set by anybody at any time to end it soon; not any more when the journal is written.
    pub cancel: Arc<AtomicBool>,
    /// What is left alone.
    pub limits: RestoreLimits,
    /// When this happens, and from what.
    pub origin: RestoreOrigin,
    /// Where files are counted, each name of them, and bytes.
    pub progress: Arc<Progress>,
}

impl WorkspaceRestore {
    /// Puts everything back.
    pub fn new(origin: RestoreOrigin) -> Self {
        Self {
            cancel: Arc::default(),
            limits: RestoreLimits::default(),
            origin,
            progress: Arc::default(),
        }
    }
}

impl std::fmt::Debug for WorkspaceRestore {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = out.debug_struct("WorkspaceRestore");
        out.field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// Whether the workspace and the checkpoint have the same content at a path; may be asked by several workers at once.
pub type SameContent<'a> = &'a (dyn Fn(&EntryPath) -> bool + Sync);

/// What became of a workspace that was put back.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "what was withheld is said only here"]
pub struct WorkspaceRestored {
    /// What was done to it; where there was none, one directory came.
    pub changes: RestoreChanges,
    /// Files that were right and not even staged, each name counted.
    pub left: u64,
    /// What was staged, and what could not be given to it.
    pub written: WriteReport,
}

/// Says of whatever ends a restore whether the checkpoint is why, or somebody asked us to stop.
fn ended(error: SlotError) -> SlotError {
    match error {
        SlotError::Walk(WalkError::Cancelled)
        | SlotError::Place(
            RestoreError::Cancelled | RestoreError::Write(TreeWriteError::Cancelled),
        ) => SlotError::Cancelled,
        SlotError::Walk(error) => SlotError::Checkpoint(error),
        error => error,
    }
}

/// Makes the workspace what `tree` is, or one entry of it. After an error it is as it was, but for [`RestoreError::HalfDone`].
pub fn restore_in_place(
    tree: &RootDir,
    workspace: &Path,
    same: SameContent<'_>,
    settings: WorkspaceRestore,
) -> Result<WorkspaceRestored, SlotError> {
    put_in_place(tree, workspace, same, settings).map_err(ended)
}

fn put_in_place(
    tree: &RootDir,
    workspace: &Path,
    same: SameContent<'_>,
    settings: WorkspaceRestore,
) -> Result<WorkspaceRestored, SlotError> {
    let WorkspaceRestore {
        cancel,
        limits,
        origin,
        progress,
    } = settings;
    let (only, beside) = (limits.only.clone(), limits.beside.clone());
    let mut stage = RestoreStage::begin(workspace, Placement::InPlace, cancel.clone())?;
    stage.limit(limits);
    let writer = stage.writer(WriteSettings {
        cancel: cancel.clone(),
        progress,
        ..WriteSettings::default()
    })?;
    let loader = Loader {
        tree,
        stage: &stage,
        writer,
        same,
        above: only.clone().unwrap_or_default(),
        linked: Mutex::default(),
        left: Mutex::default(),
    };
    let walking = WalkSettings {
        strict: true,
        cancel,
        // The snapshot of a subvolume has what is kept in it of earlier restores.
        excludes: OWN_PATTERNS.map(str::to_owned).to_vec(),
        ..WalkSettings::default()
    };
    match &only {
        Some(only) => {
            stage_above(&stage, &loader.writer, Some(tree), only)?;
            let mut all = std::iter::once(only).chain(&beside);
            all.try_for_each(|one| loader.one(one, &walking))?;
        }
        // Strict: nothing was left out.
        None => drop(walk::walk(tree, &loader, &walking)?),
    }
    let (written, left) = loader.finish()?;
    let restored = stage.swap(written, &origin)?;
    Ok(WorkspaceRestored {
        changes: changes_of(restored.placed),
        left,
        written: restored.written,
    })
}

/// What was done to a workspace; where there was none, one directory came.
fn changes_of(placed: PlacedTree) -> RestoreChanges {
    match placed {
        PlacedTree::InPlace(changes) => changes,
        PlacedTree::New | PlacedTree::Replaced { .. } => RestoreChanges {
            placed: 1,
            ..RestoreChanges::default()
        },
    }
}

/// Stages the directories above an entry: what they are matters only where the workspace has none.
pub(super) fn stage_above(
    stage: &RestoreStage,
    writer: &TreeWriter,
    tree: Option<&RootDir>,
    path: &EntryPath,
) -> Result<(), SlotError> {
    let (above, _) = path.split_last().unwrap_or_default();
    let mut here = EntryPath::root();
    for name in above.components() {
        here = here.child(name).expect("it is part of a good path");
        let opened = tree.map(|tree| tree.directory(here.as_bytes()));
        let opened = opened.and_then(Result::ok).or_else(|| {
            let old = stage.old()?;
            old.directory(here.as_bytes()).ok()
        });
        // Where neither has one, nothing of it is there, and nothing was.
        let Some(opened) = opened else { break };
        let seen = metadata::of(&opened).of_checkpoint("look at", &here)?;
        let attributes = metadata::attributes(&opened);
        let attributes = attributes.of_checkpoint("read the attributes of", &here)?;
        writer.directory(&here, &seen.metadata(), &attributes.user)?;
    }
    Ok(())
}

/// A name of a file that has several, here or there.
struct LinkedName {
    path: EntryPath,
    /// In the checkpoint.
    was: Seen,
    /// In the workspace, if there is a file.
    is: Option<Seen>,
    is_right: bool,
}

/// Stages what the walker shows of the checkpoint.
struct Loader<'a> {
    tree: &'a RootDir,
    stage: &'a RestoreStage,
    writer: TreeWriter,
    same: SameContent<'a>,
    /// Where what is walked lies in the tree.
    above: EntryPath,
    linked: Mutex<Vec<LinkedName>>,
    left: Mutex<u64>,
}

impl Loader<'_> {
    /// The whole path of something that the walker shows.
    fn path(&self, shown: &EntryPath) -> EntryPath {
        shown.components().fold(self.above.clone(), |at, name| {
            at.child(name).expect("it is part of a good path")
        })
    }

    /// Stages one entry, if the checkpoint has it; the directories above it are staged.
    fn one(&self, path: &EntryPath, walking: &WalkSettings) -> Result<(), SlotError> {
        let (above, name) = path.split_last().unwrap_or_default();
        let name = CString::new(name).expect("no name of an entry has a NUL");
        let directory = match self.tree.directory(above.as_bytes()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            directory => directory.of_checkpoint("open", &above)?,
        };
        let seen = metadata::look(directory.as_fd(), &name);
        let seen = match seen {
            Err(Errno::NOENT) => return Ok(()),
            seen => seen.of_checkpoint("look at", path)?,
        };
        match seen.file_type() {
            FileType::Directory => {
                let inside = self.tree.directory(path.as_bytes());
                let inside = inside.and_then(|fd| RootDir::new(fd, Mounts::Stay));
                let inside = inside.of_checkpoint("open", path)?;
                let _ = walk::walk(&inside, self, walking)?;
                Ok(())
            }
            FileType::RegularFile => self.stage_at(path),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&directory, &*name, Vec::new());
                let target = target.of_checkpoint("read the link", path)?;
                let (target, wanted) = (target.into_bytes(), seen.metadata());
                Ok(self.writer.symlink(path, &target, &wanted)?)
            }
            FileType::Fifo => Ok(self.writer.fifo(path, &seen.metadata())?),
            _ => Err(Errno::INVAL).of_checkpoint("put back", path),
        }
    }

    /// Decides on files with several names, and completes the staged tree.
    fn finish(self) -> Result<(WriteReport, u64), SlotError> {
        let mut linked = lock(&self.linked);
        let names = std::mem::take(&mut *linked);
        drop(linked);
        self.settle(names)?;
        let root = self.tree.directory(b"").and_then(metadata::of);
        let root = root.of_checkpoint("look at", &EntryPath::root())?;
        let left = into_inner(self.left);
        Ok((self.writer.finish(Some(&root.metadata()))?, left))
    }

    fn settle(&self, linked: Vec<LinkedName>) -> Result<(), SlotError> {
        let mut names_of: HashMap<(u64, u64), usize> = HashMap::new();
        for is in linked.iter().filter_map(|name| name.is) {
            *names_of.entry(is.identity()).or_default() += 1;
        }
        let mut files: BTreeMap<(u64, u64), Vec<LinkedName>> = BTreeMap::new();
        for name in linked {
            files.entry(name.was.identity()).or_default().push(name);
        }
        for mut names in files.into_values() {
            names.sort_unstable_by(|one, other| one.path.cmp(&other.path));
            let file =
                |name: &LinkedName| name.is.filter(|_| name.is_right).map(|is| is.identity());
            let first = file(&names[0]);
            let is_one_file = names.iter().all(|name| file(name) == first);
            let has_no_other = first.and_then(|file| names_of.get(&file)) == Some(&names.len());
            if is_one_file && has_no_other {
                for name in &names {
                    self.leave(&name.path, name.was.size);
                }
                continue;
            }
            let first = &names[0].path;
            self.stage_at(first)?;
            for name in &names[1..] {
                self.writer.hard_link(&name.path, first)?;
                self.writer.has_left(name.was.size);
            }
        }
        Ok(())
    }

    fn leave(&self, path: &EntryPath, size: u64) {
        self.stage.leave(path);
        self.writer.has_left(size);
        *lock(&self.left) += 1;
    }

    /// Leaves a file, stages it, or waits until all its names are known.
    fn file(&self, here: &StagedDir<'_>, found: &WalkedEntry<'_>) -> Result<(), SlotError> {
        let path = self.path(&here.place.child(found.name)?);
        let is = here.live(found.name);
        let is_right = is.is_some_and(|is| self.is_right(here, found, &is, &path));
        let has_names = found.seen.links > 1 || is.is_some_and(|is| is.links > 1);
        if has_names {
            let was = found.seen;
            let mut linked = lock(&self.linked);
            linked.push(LinkedName {
                path,
                was,
                is,
                is_right,
            });
        } else if is_right {
            self.leave(&path, found.seen.size);
        } else if let Some((source, seen)) = here.place.open_file(found.name)? {
            self.stage_file(&path, &source, &seen)?;
        }
        Ok(())
    }

    /// Whether the file in the workspace is what the checkpoint's is; what cannot be read is not.
    fn is_right(
        &self,
        here: &StagedDir<'_>,
        found: &WalkedEntry<'_>,
        is: &Seen,
        path: &EntryPath,
    ) -> bool {
        let was = &found.seen;
        let looks_right = is.metadata() == was.metadata() && is.size == was.size && !is.is_mount;
        let attributes = |root: &RootDir, directory: BorrowedFd<'_>| {
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

    fn stage_at(&self, path: &EntryPath) -> Result<(), SlotError> {
        let opened = path.split_last().ok_or(Errno::ISDIR);
        let opened = opened.and_then(|(above, name)| {
            let directory = self.tree.directory(above.as_bytes())?;
            let name = c_name(name)?;
            let file = self.tree.file(directory.as_fd(), &name)?;
            let seen = metadata::of(&file)?;
            Ok((file, seen))
        });
        let (source, seen) = opened.of_checkpoint("open", path)?;
        self.stage_file(path, &source, &seen)
    }

    fn stage_file(&self, path: &EntryPath, source: &OwnedFd, seen: &Seen) -> Result<(), SlotError> {
        let attributes = metadata::attributes(source);
        let attributes = attributes.of_checkpoint("read the attributes of", path)?;
        let file = self.writer.file(path, seen.size)?;
        file.fill_from(source.as_fd(), seen.size)?;
        Ok(file.finish(&seen.metadata(), &attributes.user)?)
    }
}

/// Says of what the system refused that the checkpoint could not be read, and where.
trait CheckpointContext<T> {
    fn of_checkpoint(self, doing: &'static str, path: &EntryPath) -> Result<T, SlotError>;
}

impl<T> CheckpointContext<T> for Result<T, Errno> {
    fn of_checkpoint(self, doing: &'static str, path: &EntryPath) -> Result<T, SlotError> {
        let read = self.on(doing, path).map_err(WalkError::from);
        read.map_err(SlotError::Checkpoint)
    }
}

impl Visitor for Loader<'_> {
    type Error = SlotError;

    fn enter(&self, place: &WalkedDir<'_>) -> Result<(), SlotError> {
        let seen = metadata::of(place.fd).of_checkpoint("look at", place.path)?;
        let attributes = metadata::attributes(place.fd);
        let attributes = attributes.of_checkpoint("read the attributes of", place.path)?;
        let wanted: Metadata = seen.metadata();
        Ok(self
            .writer
            .directory(&self.path(place.path), &wanted, &attributes.user)?)
    }

    fn visit(&self, place: &WalkedDir<'_>, entries: &[WalkedEntry<'_>]) -> Result<(), SlotError> {
        let here = StagedDir::new(place, self.stage.old(), &self.path(place.path));
        for found in entries {
            let wanted = found.seen.metadata();
            match &found.kind {
                // Each is staged when it is entered.
                EntryKind::Directory => {}
                EntryKind::File { .. } | EntryKind::HardLink { .. } => self.file(&here, found)?,
                EntryKind::Symlink { target } => {
                    let path = self.path(&place.child(found.name)?);
                    self.writer.symlink(&path, target, &wanted)?;
                }
                EntryKind::Fifo => {
                    let path = self.path(&place.child(found.name)?);
                    self.writer.fifo(&path, &wanted)?;
                }
                _ => place.skip(found.name, walk::WalkSkip::Device)?,
            }
        }
        Ok(())
    }
}

/// A directory of the checkpoint, and what is at its place in the workspace.
struct StagedDir<'a> {
    place: &'a WalkedDir<'a>,
    /// If that is a directory that can be read: another one is replaced with all that is in it.
    live: Option<(&'a RootDir, OwnedFd)>,
}

impl<'a> StagedDir<'a> {
    fn new(place: &'a WalkedDir<'a>, old: Option<&'a RootDir>, path: &EntryPath) -> Self {
        let live = old.and_then(|old| {
            let directory = old.directory(path.as_bytes()).ok()?;
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
