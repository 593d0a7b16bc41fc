//! A btrfs subvolume, cloned at once.
//!
//! 1. see that the source is a whole subvolume: none nested in it, nothing mounted in it, nothing to be excluded
//! 2. snapshot it, beside the target   3. survey the snapshot: count what is in it, and take out what a clone never has
//!
//! *Always true:* what is told was counted in the snapshot itself, which no program of the source reaches; nothing vanishes or changes
//! while it is read, so that a strict clone is never refused here. A snapshot keeps more than a clone made file by file:
//! owners, privileges and all attributes, whoever we are. Under its temporary name it is as open to others as the source is,
//! which is no more than it will be under its own. Pipes, sockets and devices are removed from it and reported.
//!
//! The survey costs one look at every entry, and the kernel has none of them at hand yet: with 50,000 files it is by far the
//! longest part, where the snapshot alone takes some hundredths of a second;
//! it is what makes the report as truthful as any other's. [`SourceSurvey::Skip`] does without: the clone is then all that the subvolume was,
//! but for subvolumes in it, of which the kernel says before and after that there are none. Whatever is not as expected (no right to make a snapshot, a
//! subvolume made inside meanwhile, more special files than a report lists) means file by file, and nothing is lost but time.

use super::{CloneError, CloneReport, CloneSettings, Method, SourceSurvey};
use crate::fs::metadata::{self, Rights};
use crate::fs::root_dir::{Mounts, RootDir};
use crate::fs::staging::Staging;
use crate::fs::sys::mounts::mounts_inside;
use crate::fs::sys::subvolume;
use crate::tree::walk::{
    self, Visitor, WalkReport, WalkSettings, WalkSkip, WalkedDir, WalkedEntry,
};
use rustix::fs::{self, AtFlags};
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Snapshots the source beside the target; `None` when it has to be cloned file by file.
pub(super) fn take(
    source: &RootDir,
    parent: &OwnedFd,
    name: &CStr,
    settings: &CloneSettings,
) -> Result<Option<(Staging, CloneReport)>, CloneError> {
    if !settings.walk.excludes.is_empty() {
        return Ok(None);
    }
    let Some(root) = whole_subvolume(source) else {
        return Ok(None);
    };
    // Things of others in a snapshot could not be removed again, should we be asked to stop.
    if Rights::of_this_process() == Rights::Own && !survey(source, settings)?.1.is_ours {
        return Ok(None);
    }
    let Ok(parent) = parent.try_clone() else {
        return Ok(None);
    };
    let made = Staging::make_by(parent, name, |parent, temp| {
        subvolume::snapshot(root.as_fd(), parent, temp)
    });
    let Ok(staging) = made else {
        return Ok(None);
    };
    let Ok(copy) = super::own_root(&staging).map(|(copy, _)| copy) else {
        return Ok(None);
    };
    if settings.survey == SourceSurvey::Skip && Rights::of_this_process() == Rights::All {
        return Ok(unsurveyed(&root).map(|report| (staging, report)));
    }
    let (walk, traits) = survey(&copy, settings)?;
    if traits.has_nested || !clean(&copy, &walk) {
        return Ok(None);
    }
    Ok(Some((staging, report(walk))))
}

/// Whether a tree can be snapshotted at once: a whole subvolume of which nothing is left out.
pub fn is_whole_subvolume(source: &Path, walk: &WalkSettings) -> bool {
    let root = RootDir::open(source, Mounts::Stay).ok();
    walk.excludes.is_empty() && root.is_some_and(|root| whole_subvolume(&root).is_some())
}

/// What is told of a snapshot that nobody looks at; nothing when a subvolume was made in the source meanwhile.
fn unsurveyed(source: &OwnedFd) -> Option<CloneReport> {
    let is_whole = subvolume::has_nested(source.as_fd()) == Ok(false);
    is_whole.then(|| CloneReport {
        method: Method::Subvolume,
        survey: SourceSurvey::Skip,
        ..CloneReport::default()
    })
}

fn report(walk: WalkReport) -> CloneReport {
    CloneReport {
        method: Method::Subvolume,
        files: walk.files,
        directories: walk.directories,
        symlinks: walk.symlinks,
        hard_links: walk.hard_links,
        bytes: walk.bytes,
        bytes_shared: walk.bytes,
        walk,
        ..CloneReport::default()
    }
}

/// The root of the source, when everything that is seen in it belongs to one subvolume.
fn whole_subvolume(source: &RootDir) -> Option<OwnedFd> {
    let root = source.directory(b"").ok()?;
    let is_whole = subvolume::is_subvolume(root.as_fd(), c".")
        && !subvolume::has_nested(root.as_fd()).unwrap_or_default()
        && mounts_inside(root.as_fd())?.is_empty();
    is_whole.then_some(root)
}

/// What a survey finds besides counts.
struct Traits {
    has_nested: bool,
    /// Whether everything belongs to the user we are.
    is_ours: bool,
}

/// Walks a tree without touching it.
fn survey(root: &RootDir, settings: &CloneSettings) -> Result<(WalkReport, Traits), CloneError> {
    let surveyor = Surveyor {
        user: rustix::process::geteuid().as_raw(),
        has_nested: AtomicBool::new(false),
        has_strangers: AtomicBool::new(false),
    };
    // What cannot be read leads to a clone file by file, which then knows whether that is an error.
    let settings = WalkSettings {
        strict: false,
        ..settings.walk.clone()
    };
    let walk = walk::walk(root, &surveyor, &settings)?;
    let traits = Traits {
        has_nested: surveyor.has_nested.into_inner(),
        is_ours: !surveyor.has_strangers.into_inner(),
    };
    Ok((walk, traits))
}

struct Surveyor {
    user: u32,
    has_nested: AtomicBool,
    has_strangers: AtomicBool,
}

impl Visitor for Surveyor {
    type Error = CloneError;

    fn visit(&self, place: &WalkedDir<'_>, entries: &[WalkedEntry<'_>]) -> Result<(), CloneError> {
        for WalkedEntry { name, seen, .. } in entries {
            if seen.uid != self.user {
                self.has_strangers.store(true, Ordering::Relaxed);
            }
            if seen.file_type().is_dir() && seen.inode == subvolume::EMPTY_SUBVOLUME {
                self.has_nested.store(true, Ordering::Relaxed);
            }
            if seen.file_type().is_fifo() {
                place.skip(name, WalkSkip::Fifo)?;
            }
        }
        Ok(())
    }
}

/// Takes out what a clone never has; says whether the report is then the whole truth.
fn clean(copy: &RootDir, walk: &WalkReport) -> bool {
    let is_special =
        |reason| matches!(reason, WalkSkip::Fifo | WalkSkip::Socket | WalkSkip::Device);
    walk.vanished_count == 0
        && walk.skipped_count == walk.skipped.len() as u64
        && walk.skipped.iter().all(|skipped| {
            is_special(skipped.reason)
                && skipped.path.split_last().is_some_and(|(directory, name)| {
                    unlink_unseen(copy, directory.as_bytes(), name).is_ok()
                })
        })
}

/// Removes an entry from a directory, which keeps its time.
fn unlink_unseen(copy: &RootDir, directory: &[u8], name: &[u8]) -> rustix::io::Result<()> {
    let directory = copy.directory(directory)?;
    let before = metadata::of(&directory)?;
    fs::unlinkat(&directory, name, AtFlags::empty())?;
    fs::futimens(&directory, &metadata::times(before.modified))
}
