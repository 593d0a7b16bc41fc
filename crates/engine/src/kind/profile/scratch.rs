//! Directories for profiles that nobody keeps: removed when the work ends, or by the next command when its process died.

use super::record::Record;
use crate::error::Error;
use crate::handle::Profiles;
use stasis_disk::fs::remove;
use std::path::{Path, PathBuf};

/// How directories of `verify` are called, before the number of the process.
pub(super) const VERIFIED: &str = "verify-";
/// How directories of runs are called that save nothing.
pub(super) const DISCARDED: &str = "discard-";

/// A directory that is removed in the end, with its record.
#[derive(Debug)]
pub(super) struct ScratchProfile(PathBuf);

impl ScratchProfile {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchProfile {
    fn drop(&mut self) {
        let removed = remove::tree_at(&self.0).and(remove::file_at(&Record::path(&self.0)));
        if let Err(error) = removed {
            tracing::warn!(%error, path = %self.0.display(), "not removed");
        }
    }
}

impl Profiles<'_> {
    /// A directory of its own for this piece of work, which is not there yet.
    pub(super) async fn scratch_profile(self, stem: &str) -> Result<ScratchProfile, Error> {
        let name = format!("{stem}{}-{}", std::process::id(), self.lineages.op_id());
        Ok(ScratchProfile(self.spool().await?.join(name)))
    }
}

/// Removes what processes that died left of such directories.
pub(super) fn remove_abandoned(spool: &Path) {
    for stem in [VERIFIED, DISCARDED] {
        remove::left_by_the_dead(spool, stem);
    }
}
