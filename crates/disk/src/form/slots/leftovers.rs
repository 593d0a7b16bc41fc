//! What commands that were killed left: in the session directory, and beside the directories that they were about to make.
//!
//! Whoever makes a tree outside of the session writes down where, in `making.PID-N`, and holds that file as long as it lives. Whoever
//! opens the session next, and finds such a file that nobody holds, removes the half-made tree beside that place, and the file.
//!
//! *Always true:* what a living process makes is not removed, because it holds both the file and the tree; a tree that has its name
//! is nobody's leftover.

use super::create::LIST_CACHES;
use crate::fs::fd::open_dir;
use crate::fs::{atomic_write, staging, stale};
use rustix::fs::{self, Mode, OFlags};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const MAKING: &str = "making.";
/// No path of Linux is longer.
const LONGEST: u64 = 4096;

/// Says in the session directory where a tree is about to be made, until it is dropped.
#[derive(Debug)]
pub(super) struct PendingTree {
    record: PathBuf,
    _held: File,
}

impl PendingTree {
    /// Announces a tree. Where that cannot be written down, what a crash leaves is removed by the next tree of that name.
    pub(super) fn announce(session: &Path, target: &Path) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let target = std::path::absolute(target).ok()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let (process, number) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let record = session.join(format!("{MAKING}{process}-{number}"));
        let mut file = File::from(fs::open(&record, flags, Mode::RUSR | Mode::WUSR).ok()?);
        let is_held = stale::hold(&file).ok()?;
        let pending = Self {
            record,
            _held: file.try_clone().ok()?,
        };
        file.write_all(target.as_os_str().as_bytes()).ok()?;
        is_held.then_some(pending)
    }
}

impl Drop for PendingTree {
    fn drop(&mut self) {
        // One that stays leads to nothing, and goes when the session is opened the next time.
        let _ = fs::unlink(&self.record);
    }
}

/// Removes what killed commands left in a session directory, and where its records lead.
pub(super) fn collect(session: &Path) {
    let Ok(directory) = open_dir(session) else {
        return;
    };
    collect_pending(session, &directory);
    atomic_write::collect(&directory);
    stale::collect(&directory, is_list_cache);
}

/// Whether a name is that of a list cache that was not finished: `remembered.PID`.
fn is_list_cache(name: &[u8]) -> bool {
    LIST_CACHES.iter().any(|cache| {
        let rest = name.strip_prefix(cache.as_bytes());
        let process = rest.and_then(|rest| rest.strip_prefix(b"."));
        process.is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
    })
}

fn collect_pending(session: &Path, directory: &OwnedFd) {
    let is_any = |_: &[u8]| true;
    let records = staging::named(directory, MAKING.as_bytes(), is_any).unwrap_or_default();
    for name in records {
        // Locked until the tree is gone, so that nobody else takes it for his to remove.
        let Ok(Some(left)) = staging::abandoned(directory, name) else {
            continue;
        };
        let record = session.join(OsStr::from_bytes(left.name.to_bytes()));
        if let Ok(bytes) = atomic_write::read_bounded(&record, LONGEST) {
            collect_beside(Path::new(OsStr::from_bytes(&bytes)));
        }
        let _ = left.remove(directory);
    }
}

/// Removes what dead processes left of a tree that was to be made.
fn collect_beside(target: &Path) {
    let name = target.file_name();
    let name = name.and_then(|name| CString::new(name.as_bytes()).ok());
    let parent = target.parent().and_then(|parent| open_dir(parent).ok());
    if let (Some(name), Some(parent)) = (name, parent) {
        staging::collect(&parent, &name);
    }
}
