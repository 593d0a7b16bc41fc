//! A mark for the time in which the checkpoint before a prompt is made: a hook that is killed meanwhile cannot say that the
//! prompt has none.
//!
//! 1. the hook of a prompt begins: a file in `prompts/` of the session, locked by the process
//! 2. the checkpoint is made, or it is written down that there is none: the file goes
//!
//! *Always true:* a file that no process locks is of one that ended between 1 and 2. A mark that cannot be made hinders no
//! checkpoint.

use stasis_disk::fs::lock_file::{LockAttempt, LockFile};
use stasis_disk::fs::remove;
use std::path::{Path, PathBuf};

const DIRECTORY: &str = "prompts";

/// A prompt whose checkpoint is being made by this process.
pub(super) struct PromptMark {
    path: PathBuf,
    _lock: LockFile,
}

/// A mark that its process left.
pub(super) struct AbandonedMark {
    /// When the prompt came.
    pub(super) at_ms: u64,
    path: PathBuf,
}

impl PromptMark {
    /// Marks a prompt of `at_ms`, in the directory of a session.
    pub(super) fn begin(session: &Path, at_ms: u64) -> Option<Self> {
        let name = format!("{at_ms}-{}", std::process::id());
        let path = session.join(DIRECTORY).join(name);
        match LockFile::take(&path, "") {
            Ok(LockAttempt::Taken(lock)) => Some(Self { path, _lock: lock }),
            Ok(LockAttempt::Held(holder)) => {
                tracing::debug!(holder, "a prompt is not marked");
                None
            }
            Err(error) => {
                let error = crate::error::error_chain(&error);
                tracing::debug!(error, "a prompt is not marked");
                None
            }
        }
    }

    /// What became of the prompt is written down.
    pub(super) fn end(self) {
        remove_mark(&self.path);
    }
}

impl AbandonedMark {
    /// All of a session.
    pub(super) fn all(session: &Path) -> Vec<Self> {
        let Ok(entries) = std::fs::read_dir(session.join(DIRECTORY)) else {
            return Vec::new();
        };
        let mark = |entry: std::io::Result<std::fs::DirEntry>| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?;
            let at_ms = name.split_once('-')?.0.parse().ok()?;
            LockFile::holder(&path)
                .is_none()
                .then_some(Self { at_ms, path })
        };
        entries.filter_map(mark).collect()
    }

    /// What became of the prompt is written down.
    pub(super) fn end(self) {
        remove_mark(&self.path);
    }
}

fn remove_mark(path: &Path) {
    if let Err(error) = remove::file_at(path) {
        tracing::debug!(%error, path = %path.display(), "the mark of a prompt was not removed");
    }
}
