//! From an archive to a directory, whole or not at all.

use super::{Archive, ArchiveError, ReadSettings};
use crate::fs::metadata::Rights;
use crate::fs::root_dir::RootDir;
use crate::fs::sys::sync;
use crate::progress::Progress;
use crate::tree::restore::{Placement, RestoreOrigin, RestoreStage, RestoredTree};
use crate::tree::write::{WriteLimits, WriteReport, WriteSettings};
use stasis_model::tree::EntryPath;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// After so many bytes the disk is asked to take them.
const SYNCED: u64 = 64 << 20;
/// How often we look how many there are.
const PAUSE: Duration = Duration::from_millis(10);

/// How an archive is unpacked.
#[derive(Clone, Debug)]
pub struct UnpackSettings {
    /// How the tree takes its place.
    pub placement: Placement,
    /// One entry, with what lies in it, instead of all.
    pub only: Option<EntryPath>,
    /// Whether owners, setuid and setgid are given.
    pub rights: Rights,
    /// How the archive is read.
    pub read: ReadSettings,
    /// Where files and bytes are counted while they are written.
    pub progress: Arc<Progress>,
}

impl Default for UnpackSettings {
    fn default() -> Self {
        Self {
            placement: Placement::New,
            only: None,
            rights: Rights::of_this_process(),
            read: ReadSettings::default(),
            progress: Arc::default(),
        }
    }
}

/// A tree that was unpacked beside its place, and has not taken it yet. Dropped, it is removed.
#[derive(Debug)]
#[must_use = "a tree that is not swapped in is removed"]
pub struct UnpackedArchive {
    stage: RestoreStage,
    written: WriteReport,
}

impl UnpackedArchive {
    /// The new tree, to look at before it takes its place.
    pub fn tree(&self) -> &RootDir {
        self.stage.tree()
    }

    /// Does `work` while the disk takes what was written, so that it has little to do when the tree takes its place.
    ///
    /// Only the sync of the swap counts: its descriptor is older than anything that was written, so that it hears of
    /// everything that failed here.
    pub fn while_synced<R>(&self, work: impl FnOnce() -> R) -> R {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let root = self.tree().directory(b"");
                root.and_then(sync::filesystem)
            });
            work()
        })
    }

    /// Puts the tree in its place.
    pub fn swap(self, origin: &RestoreOrigin) -> Result<RestoredTree, ArchiveError> {
        Ok(self.stage.swap(self.written, origin)?)
    }
}

/// Makes `target` the tree that is in `archive`. Nothing of it is touched before the whole archive was read.
pub fn unpack(
    archive: &Archive,
    target: &Path,
    settings: &UnpackSettings,
    origin: &RestoreOrigin,
) -> Result<RestoredTree, ArchiveError> {
    unpack_beside(archive, target, settings)?.swap(origin)
}

/// Unpacks the tree that is in `archive` beside `target`, whole; nothing of the target is touched.
pub fn unpack_beside(
    archive: &Archive,
    target: &Path,
    settings: &UnpackSettings,
) -> Result<UnpackedArchive, ArchiveError> {
    let limits = settings.read.limits;
    let cancel = settings.read.cancel.clone();
    let stage = RestoreStage::begin(target, settings.placement, cancel.clone())?;
    let writer = stage.writer(WriteSettings {
        rights: settings.rights,
        limits: WriteLimits {
            entries: limits.entries,
            bytes: limits.bytes,
            deepest: limits.deepest,
        },
        cancel,
        progress: settings.progress.clone(),
    })?;
    let is_written = AtomicBool::new(false);
    let root = std::thread::scope(|scope| {
        let disk = scope.spawn(|| sync_along(stage.tree(), &settings.progress, &is_written));
        let ended = UnpackEnd(&is_written, disk.thread());
        let root = match &settings.only {
            Some(path) => archive.extract_one(path, &writer, &settings.read),
            None => archive.extract(&writer, &settings.read),
        };
        drop(ended);
        root
    });
    let written = writer.finish(root?.as_ref())?;
    Ok(UnpackedArchive { stage, written })
}

/// Lets the disk take what is written while more is coming, so that it does not have everything to do in the end.
///
/// Only the sync before the tree takes its place counts: it hears of everything that failed here.
fn sync_along(tree: &RootDir, progress: &Progress, is_written: &AtomicBool) {
    let Ok(root) = tree.directory(b"") else {
        return;
    };
    let mut next = SYNCED;
    while !is_written.load(Ordering::Relaxed) {
        std::thread::park_timeout(PAUSE);
        let reached = progress.reached().bytes;
        if reached >= next {
            let _ = sync::filesystem(&root);
            next = reached + SYNCED;
        }
    }
}

/// Says so when the writing has ended, in whatever way.
struct UnpackEnd<'a>(&'a AtomicBool, &'a Thread);

impl Drop for UnpackEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}
