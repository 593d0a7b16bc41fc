//! What the snapshots of a directory take of the store, and its checkpoints of this host.

use super::Directory;
use crate::error::Error;
use crate::kind::project::SubjectUse;
use crate::kind::workspace::CheckpointsUse;
use schemars::JsonSchema;
use serde::Serialize;

/// What a directory takes, in the store and on this host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DirectoryUse {
    /// Of the store.
    #[serde(flatten)]
    pub stored: SubjectUse,
    /// Of this host, if it has checkpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<CheckpointsUse>,
}

impl Directory {
    /// What its snapshots and its checkpoints take.
    pub async fn du(&self) -> Result<DirectoryUse, Error> {
        let stored = match &self.project {
            Some(project) => match project.du().await {
                Err(error) if self.is_only_here(&error) => SubjectUse::default(),
                used => used?,
            },
            None => SubjectUse::default(),
        };
        let checkpoints = match &self.workspace {
            Some(workspace) => Some(workspace.du().await?),
            None => None,
        };
        Ok(DirectoryUse {
            stored,
            checkpoints,
        })
    }
}
