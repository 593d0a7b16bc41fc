//! What names and bytes take on the disk, before anybody looks there.

use crate::tree::clone::{CloneReport, SourceSurvey};
use rustix::fs;
use std::path::Path;

/// What an entry costs besides its bytes: its inode, and its name.
pub(super) const ENTRY: u64 = 512;
/// The last block of a file, of which it may use only one byte.
pub(super) const BLOCK: u64 = 4096;

/// What a file of ours with that many bytes takes.
pub(super) fn file(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK) + ENTRY
}

/// What so many entries with so many bytes hold at most.
pub(super) fn whole(entries: u64, bytes: u64) -> u64 {
    let names = entries.saturating_add(1).saturating_mul(BLOCK + ENTRY);
    bytes.saturating_add(names)
}

/// What a clone beneath `path` holds at most.
pub(super) fn at_most(report: &CloneReport, path: &Path) -> Option<u64> {
    if report.survey == SourceSurvey::Skip {
        return everything(path);
    }
    let entries = report.files + report.directories + report.symlinks + report.hard_links;
    Some(whole(entries, report.bytes))
}

/// More than this no snapshot in a filesystem holds: all that is in use there, and as much again for names.
pub(super) fn everything(path: &Path) -> Option<u64> {
    let space = fs::statvfs(path).ok()?;
    let used = space.f_blocks.saturating_sub(space.f_bfree);
    Some(used.saturating_mul(space.f_frsize).saturating_mul(2))
}
