//! A snapshot of a directory, a session or a profile, written to a new directory beneath a root of this host.
//!
//! 1. the snapshot is found   2. what is at the place is looked at: nothing, or an empty directory   3. the tree is written and verified
//!    beside it   4. it gets its name
//!
//! *Always true:* nothing that is there is replaced, not even if it comes while the tree is written. A crash before 4 leaves nothing under
//! the name; what it leaves beside it is removed by the next restore to that name. What is written belongs to the user that this process
//! runs as, without setuid and setgid.

use super::{Found, Of, StoredSubject, mixed};
use crate::bridge;
use crate::error::Error;
use crate::host_roots::HostPlace;
use crate::kind::directory::DirSnapshot;
use crate::kind::profile::{LocatedProfile, OnFailure, ProfileLoad, UpgradeWish, Wanted};
use crate::kind::project::{Project, ProjectRestore};
use crate::kind::workspace::RunMode;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::progress::Progress;
use stasis_disk::tree::restore::{self, Placement};
use stasis_model::id::Label;
use stasis_model::snapshot_ref::SnapshotRef;
use std::sync::Arc;

/// Which snapshot is written to a new directory.
#[derive(Clone, Debug)]
pub struct RestoreStored {
    /// Which.
    pub wanted: SnapshotRef,
    /// Where to.
    pub to: HostPlace,
    /// Whether it is written, or only said what would be.
    pub run: RunMode,
    /// Who asks, for the log.
    pub actor: Label,
    /// How far it has come.
    pub progress: Arc<Progress>,
}

/// A snapshot that was written to a new directory, or would be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct StoredRestored {
    /// Whether it was done.
    pub applied: bool,
    /// What the snapshot is called.
    pub snapshot: String,
    /// How many entries it has, or files.
    pub entries: u64,
    /// The length of all files.
    pub bytes: u64,
    /// Regular files that were written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
}

impl StoredSubject {
    /// Writes a snapshot to a new directory beneath a root.
    pub async fn restore(&self, command: &RestoreStored) -> Result<StoredRestored, Error> {
        let found = self.find(&command.wanted).await?;
        let name = match &found {
            Found::Chunks(found) => found.to_string(),
            Found::Profile(found) => found.archive.to_string(),
        };
        let row = self.show(&SnapshotRef::from(name)).await?.row;
        let place = command.to.clone();
        bridge::blocking(move || restore::ensure_free(&place.path())).await?;
        let mut restored = StoredRestored {
            applied: false,
            snapshot: row.snapshot,
            entries: row.entries,
            bytes: row.bytes,
            files: None,
        };
        if command.run == RunMode::Dry {
            return Ok(restored);
        }
        let written = match (&self.of, found) {
            (Of::Chunks(directory), Found::Chunks(found)) => {
                let project = directory.project()?;
                Box::pin(restore_tree(project, found, command)).await?
            }
            (Of::Profile(_), Found::Profile(found)) => {
                Box::pin(self.restore_profile(found, command)).await?
            }
            _ => return Err(mixed()),
        };
        restored.applied = true;
        (restored.files, restored.bytes) = (Some(written.0), written.1);
        Ok(restored)
    }

    /// Files that were written, and their length.
    async fn restore_profile(
        &self,
        found: LocatedProfile,
        command: &RestoreStored,
    ) -> Result<(u64, u64), Error> {
        let load = ProfileLoad {
            exactly: Some(Wanted::from(found.archive)),
            lineage: found.lineage,
            dir: command.to.path(),
            placement: Placement::New,
            on_failure: Some(OnFailure::Refuse),
            upgrade: UpgradeWish::Stay,
            cold_only: false,
            region: None,
            actor: command.actor.clone(),
            spawn: self.host.project.check.clone(),
            progress: command.progress.clone(),
            cancel: Arc::default(),
        };
        let loaded = self.engine.profiles().load(load).await?;
        Ok((loaded.files, loaded.bytes))
    }
}

/// Files that were written, and their length.
async fn restore_tree(
    project: &Project,
    found: DirSnapshot,
    command: &RestoreStored,
) -> Result<(u64, u64), Error> {
    let restore = ProjectRestore {
        to: Some(command.to.path()),
        owner: false,
        progress: command.progress.clone(),
        ..ProjectRestore::new(found)
    };
    let restored = project.restore(restore).await?;
    Ok(restored.written.unwrap_or_default())
}
