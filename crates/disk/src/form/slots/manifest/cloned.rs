//! What a checkpoint contains that was just cloned from a live tree, without reading what is known of that.
//!
//! A file of the checkpoint is not read if the live tree has, at the same path, a file that the cache knows and that looks as it
//! did, with the size and time of the clone. Three things make that a proof:
//!
//! - it looks as it did when it was remembered, and anything done to it would have given it another ctime: what is remembered is what
//!   it holds. That ctime is more than two seconds older than the clone: it held the same then
//! - renaming a file, or giving it another name, changes its ctime too: it was in the same directory then
//! - that directory was at the same place. In a snapshot this is seen by the number of the file, which is the same. Elsewhere
//!   the file was at this path when it was remembered already, or no directory above it was renamed since before
//!   the clone began, which would have changed the ctime of that directory
//!
//! What was read is remembered for the live file under the same proof. Not seen is only a directory that was moved away
//! and back while the tree was cloned, and another one to its place meanwhile, in which a file has the same name, size and time.

use super::{GatheredEntries, Manifest, list, read};
use crate::fs::metadata::{self, Seen};
use crate::fs::root_dir::RootDir;
use crate::fs::sys::open::PLACE;
use crate::fs::sys::subvolume;
use crate::tree::stat_cache::{CachedFile, FileStat, HeldContent, RacyLimit, StatCache};
use crate::tree::walk::{
    self, Visitor, WalkError, WalkReport, WalkSettings, WalkedDir, WalkedEntry,
};
use crate::worker_pool::{into_inner, lock};
use rustix::fs::{self, Mode, OFlags};
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use std::cell::OnceCell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

/// How many directories lie inside one another at most, where we go up.
const HIGHEST: usize = 1000;

/// Lists `tree`, a clone of `live` that was begun at `began`; `cache` is that of `live`.
///
/// Afterwards the cache remembers the files of `live` that are still where they were cloned from.
pub fn manifest_of_clone(
    tree: &RootDir,
    live: &RootDir,
    cache: &mut StatCache,
    began: Timestamp,
    settings: &WalkSettings,
) -> Result<(Manifest, WalkReport), WalkError> {
    let look = |root: &RootDir| {
        let root = root.directory(b"").ok()?;
        let is_subvolume = subvolume::is_subvolume(root.as_fd(), c".");
        Some((metadata::of(&root).ok()?, is_subvolume))
    };
    let (tree_root, live_root) = (look(tree), look(live));
    let is_whole = |root: &Option<(Seen, bool)>| root.is_some_and(|(_, is_subvolume)| is_subvolume);
    let reader = CloneReader {
        cache,
        live,
        root: live_root.map(|(seen, _)| seen.identity()),
        is_snapshot: is_whole(&tree_root) && is_whole(&live_root),
        racy: RacyLimit::at(began),
        found: Mutex::default(),
    };
    let report = walk::walk(tree, &reader, settings)?;
    let found = into_inner(reader.found);
    let (manifest, known) = found.finish();
    cache.replace(known);
    Ok((manifest, report))
}

struct CloneReader<'a> {
    cache: &'a StatCache,
    live: &'a RootDir,
    /// The root of the live tree.
    root: Option<(u64, u64)>,
    is_snapshot: bool,
    /// What is older did not change since before the clone.
    racy: RacyLimit,
    found: Mutex<GatheredEntries>,
}

impl CloneReader<'_> {
    /// The content of a file of the clone, and what to remember of the live one.
    fn file(
        &self,
        here: &CloneDir<'_>,
        found: &WalkedEntry<'_>,
        path: &EntryPath,
    ) -> Result<Option<ClonedContent>, WalkError> {
        let live = here.live(found);
        let known = live.and_then(|live| self.cache.find(&live));
        let memory = live.zip(known.map(CachedFile::held));
        if let (Some(live), Some(known)) = (&live, known)
            && self.is_cloned(here, live, found, || known.was_at(path))
        {
            let (seen, held) = (found.seen, known.held());
            return Ok(Some(ClonedContent { seen, held, memory }));
        }
        let Some(content) = read(here.place, found)? else {
            return Ok(None);
        };
        let held = content.held;
        let learned = || {
            let live = live.filter(|_| content.is_still)?;
            let is_cloned = self.is_cloned(here, &live, found, || false);
            is_cloned.then_some((live, held))
        };
        Ok(Some(ClonedContent {
            seen: content.seen,
            held,
            // Whatever was cloned, what is known of the live file stays true.
            memory: memory.or_else(learned),
        }))
    }

    /// Whether what a live file holds now is what was cloned; `was_at_path` says that it was here when it was remembered.
    fn is_cloned(
        &self,
        here: &CloneDir<'_>,
        live: &Seen,
        found: &WalkedEntry<'_>,
        was_at_path: impl FnOnce() -> bool,
    ) -> bool {
        let clone = &found.seen;
        self.racy.is_settled(&FileStat::from(live))
            && live.size == clone.size
            && live.modified == clone.modified
            && if self.is_snapshot {
                live.inode == clone.inode
            } else {
                was_at_path() || *here.stayed.get_or_init(|| self.has_stayed(here))
            }
    }

    /// Whether a directory, and every one above it, has had its name since before the clone began.
    fn has_stayed(&self, here: &CloneDir<'_>) -> bool {
        let Some(directory) = &here.directory else {
            return false;
        };
        let Ok(mut seen) = metadata::of(directory) else {
            return false;
        };
        let mut above: Option<OwnedFd> = None;
        for _ in 0..HIGHEST {
            if Some(seen.identity()) == self.root {
                return true;
            }
            if self.racy.is_racy(seen.changed) {
                return false;
            }
            let flags = PLACE | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let from = above.as_ref().unwrap_or(directory);
            let Ok(next) = fs::openat(from, c"..", flags, Mode::empty()) else {
                return false;
            };
            match metadata::of(&next) {
                Ok(next) => seen = next,
                Err(_) => return false,
            }
            above = Some(next);
        }
        false
    }
}

impl Visitor for CloneReader<'_> {
    type Error = WalkError;

    fn enter(&self, place: &WalkedDir<'_>) -> Result<(), WalkError> {
        let mut gathered = lock(&self.found);
        gathered.enter(place);
        Ok(())
    }

    fn visit(&self, place: &WalkedDir<'_>, entries: &[WalkedEntry<'_>]) -> Result<(), WalkError> {
        let here = CloneDir {
            place,
            directory: self.live.directory(place.path.as_bytes()).ok(),
            stayed: OnceCell::new(),
        };
        let mut known = Vec::new();
        let mut listed = list(place, entries, |found, path| {
            let Some(file) = self.file(&here, found, path)? else {
                return Ok(None);
            };
            known.extend(file.memory.map(|(live, held)| {
                let remembered = CachedFile::new(path, &live, held);
                (live.identity(), remembered)
            }));
            Ok(Some((file.seen, file.held)))
        })?;
        let mut gathered = lock(&self.found);
        gathered.entries.append(&mut listed);
        gathered.known.extend(known);
        Ok(())
    }
}

/// A file of the clone, and what is known of the live one.
struct ClonedContent {
    seen: Seen,
    held: HeldContent,
    memory: Option<(Seen, HeldContent)>,
}

/// A directory of the clone, and the live one at the same place.
struct CloneDir<'a> {
    place: &'a WalkedDir<'a>,
    directory: Option<OwnedFd>,
    stayed: OnceCell<bool>,
}

impl CloneDir<'_> {
    /// The live file.
    fn live(&self, found: &WalkedEntry<'_>) -> Option<Seen> {
        let directory = self.directory.as_ref()?;
        let seen = metadata::look(directory.as_fd(), found.name).ok()?;
        (seen.file_type().is_file() && !seen.is_mount).then_some(seen)
    }
}

#[cfg(test)]
mod tests;
