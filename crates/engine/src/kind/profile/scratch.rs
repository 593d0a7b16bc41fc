//! Directories for profiles that nobody keeps: removed when the work ends, or by the next command when its process died.

use crate::bridge;
use crate::error::Error;
use crate::handle::Profiles;
use stasis_disk::fs::atomic_write::make_directory;
use stasis_disk::fs::remove;
use std::path::{Path, PathBuf};

/// How directories of `verify` are called, before the number of the process.
pub(super) const VERIFIED: &str = "verify-";
/// How directories of runs are called that save nothing.
pub(super) const DISCARDED: &str = "discard-";

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

/// Removes what processes that died left of such directories.
pub(super) fn remove_abandoned(spool: &Path) {
    for stem in [VERIFIED, DISCARDED] {
        remove::left_by_the_dead(spool, stem);
    }
}
