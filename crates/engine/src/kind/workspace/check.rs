//! Whether the checkpoints are what they were when they were made.

use super::Workspace;
use super::answers::{CheckedCheckpoint, CheckedWorkspace};
use crate::error::{Error, WorkspaceError, error_chain};
use stasis_disk::form::slots::CheckedContent;
use stasis_model::workspace::Occupant;

/// How many files of a damaged checkpoint are named.
const NAMED: usize = 20;

impl Workspace {
    /// Reads all checkpoints, what they share once; names those that are damaged.
    pub(super) fn check_now(&self) -> Result<CheckedWorkspace, Error> {
        let mut checked = CheckedContent::default();
        let occupants = self.pool().list()?;
        let mut result = CheckedWorkspace {
            checkpoints: 0,
            damaged: Vec::new(),
        };
        for one in &occupants {
            result.checkpoints += 1;
            let (name, problem, files) = match one {
                Occupant::Unreadable { why, .. } => (None, Some(why.clone()), Vec::new()),
                Occupant::Known(known) => match self.pool().check(known, &mut checked) {
                    Ok(files) => (known.name.clone(), None, files),
                    Err(error) => {
                        let error = WorkspaceError::from(error);
                        (known.name.clone(), Some(error_chain(&error)), Vec::new())
                    }
                },
            };
            if problem.is_none() && files.is_empty() {
                continue;
            }
            let named = files.iter().take(NAMED).map(ToString::to_string);
            result.damaged.push(CheckedCheckpoint {
                checkpoint: one.slot().to_string(),
                name: name.map(|name| name.to_string()),
                problem,
                files: named.collect(),
                files_count: files.len() as u64,
            });
        }
        Ok(result)
    }
}
