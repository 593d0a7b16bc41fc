//! Proves that a snapshot in chunks comes back: restores it to a scratch place, and checks every database in it.

use crate::bridge;
use crate::catalog::SnapshotSelector;
use crate::check::Spawn;
use crate::error::{Error, OPEN_DIRECTORY};
use crate::handle::DirRepo;
use crate::restore::RepoRestore;
use stasis_disk::check::{self, CheckSettings};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::progress::Progress;
use stasis_model::digest::TreeDigest;
use stasis_model::failure::AtPath;
use std::sync::Arc;

/// A tree that came back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ProvedTree {
    /// What it is.
    pub(crate) state_digest: TreeDigest,
    /// Files that came back, and their bytes.
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Databases that were checked.
    pub(crate) databases: u64,
    /// Those that are damaged.
    pub(crate) damaged: Vec<String>,
}

impl DirRepo<'_> {
    /// Brings a snapshot back to a scratch place, which is removed then.
    pub(crate) async fn prove(
        self,
        wanted: SnapshotSelector,
        spawn: Spawn,
        progress: Arc<Progress>,
    ) -> Result<ProvedTree, Error> {
        let place = self.looking_place().await?;
        let scratch = self.scratch().await?;
        let target = scratch.root().join("tree");
        let restore = RepoRestore {
            progress,
            ..RepoRestore::new(wanted, &target)
        };
        let restored = self.restore(restore).await?;
        let report = bridge::blocking(move || {
            let tree = RootDir::open(&target, Mounts::Stay);
            let tree = tree.at(OPEN_DIRECTORY, &target)?;
            let report = check::tree(&tree, &CheckSettings::new(place), &spawn)?;
            drop(scratch);
            Ok::<_, Error>(report)
        });
        let report = report.await?;
        let damaged = report
            .databases
            .iter()
            .filter(|one| one.verdict.is_damaged());
        Ok(ProvedTree {
            state_digest: restored.state_digest,
            files: restored.files,
            bytes: restored.bytes,
            databases: report.databases.len() as u64,
            damaged: damaged.map(|one| one.path.to_string()).collect(),
        })
    }
}
