//! Directories for profiles that nobody keeps: removed when the work ends, or by a later command when its process died.
//!
//! *Always true:* none is removed under a process that still uses it, say a browser that outlived the command that started it. A
//! later command finds it again, and removes it when the last of those has ended.

use super::directory::DIR_VARIABLE;
use crate::bridge;
use crate::error::Error;
use crate::handle::Profiles;
use stasis_disk::fs::atomic_write::make_directory;
use stasis_disk::fs::remove;
use stasis_quiesce::browser;
use std::path::{Path, PathBuf};

/// How directories of `verify` are called, before the number of the process.
pub(super) const VERIFIED: &str = "verify-";
/// How directories of runs are called that save nothing.
pub(super) const DISCARDED: &str = "discard-";
/// How directories are called in which a profile gets a storage state.
pub(super) const IMPORTED: &str = "import-";

/// What the profile is called within the directory that is made for it; its record lies there, too.
const PROFILE: &str = "profile";

/// A directory that is removed in the end, with everything beside it.
#[derive(Debug)]
pub(super) struct ScratchProfile {
    root: PathBuf,
    dir: PathBuf,
}

impl ScratchProfile {
    pub(super) fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for ScratchProfile {
    fn drop(&mut self) {
        if is_used(&self.root) {
            tracing::warn!(path = %self.root.display(), "not removed yet: a process still works in it");
            return;
        }
        if let Err(error) = remove::tree_at(&self.root) {
            tracing::warn!(%error, path = %self.root.display(), "not removed");
        }
    }
}

impl Profiles<'_> {
    /// A directory of its own for this piece of work, which is not there yet.
    pub(super) async fn scratch_profile(self, stem: &str) -> Result<ScratchProfile, Error> {
        let name = format!("{stem}{}-{}", std::process::id(), self.lineages.op_id());
        let root = self.spool().await?.join(name);
        let made = root.clone();
        bridge::blocking(move || make_directory(&made)).await?;
        let dir = root.join(PROFILE);
        Ok(ScratchProfile { root, dir })
    }
}

/// Removes what processes that died left of such directories, unless somebody goes on working there.
pub(super) fn remove_abandoned(spool: &Path) {
    for stem in [VERIFIED, DISCARDED, IMPORTED] {
        remove::left_by_the_dead_unless(spool, stem, is_used);
    }
}

/// Whether a process works in the profile of such a directory, or was started to.
fn is_used(root: &Path) -> bool {
    browser::is_used(&root.join(PROFILE), DIR_VARIABLE)
}
