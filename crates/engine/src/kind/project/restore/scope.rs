//! What of a project a safety save and a plan capture: a restore must not need what it is there to replace.
//!
//! Volumes that are not restored are not captured. One that cannot be (a damaged database, a server that is down) is left
//! out, and everything else is captured all the same.

use super::plan::RestorePlan;
use crate::error::{Error, ErrorKind, error_chain};
use crate::kind::project::{Declared, ProjectError};
use stasis_model::format::manifest::Consistency;
use stasis_model::id::VolumeName;

/// A project's declaration, less what is not captured of it.
#[derive(Clone, Debug)]
pub(in crate::kind::project) struct CaptureScope {
    /// What is captured in its own way.
    pub(super) declared: Declared,
    /// Patterns of what is not read at all.
    pub(super) excludes: Vec<String>,
    /// What could not be captured, and why.
    pub(super) failed: Vec<(VolumeName, String)>,
}

impl CaptureScope {
    /// The volumes that a plan touches, as far as they are there.
    pub(super) fn of(declared: &Declared, plan: &RestorePlan) -> Self {
        let mut scope = Self {
            declared: declared.clone(),
            excludes: Vec::new(),
            failed: Vec::new(),
        };
        for (name, volume) in &declared.config.volumes {
            let is_server = volume.consistency == Consistency::Postgres;
            let at = declared.config.place_of(name);
            let is_touched = plan.is_whole()
                || plan.servers.contains(name)
                || plan
                    .files
                    .iter()
                    .any(|one| one.is_within(&at) || at.is_within(one));
            if !is_touched || plan.leaves(&at) {
                scope.leave_out(name);
            } else if !is_server && !declared.volume_directory(name).exists() {
                // Nothing is there to be captured.
                scope.declared.config.volumes.remove(name);
            }
        }
        scope
    }

    fn leave_out(&mut self, name: &VolumeName) {
        let place = self.declared.config.place_of(name);
        self.declared.config.volumes.remove(name);
        self.excludes.push(format!("/{place}"));
    }

    /// Goes on without what an error is about; the error comes back when that is nothing that can be left out.
    pub(super) fn without(&mut self, error: Error) -> Result<(), Error> {
        let kind = error.kind();
        let Error::Project(inner) = &error else {
            return self.without_clones(error);
        };
        if kind == ErrorKind::Cancelled {
            return Err(error);
        }
        let volume = match &**inner {
            ProjectError::Sqlite { volume, .. }
            | ProjectError::Postgres { volume, .. }
            | ProjectError::Url { volume, .. }
            | ProjectError::NoVariable { volume, .. } => volume.clone(),
            ProjectError::Pause(..) | ProjectError::PauseBroken { .. } | ProjectError::Place(_) => {
                return self.without_clones(error);
            }
            _ => return Err(error),
        };
        if !self.declared.config.volumes.contains_key(&volume) {
            return Err(error);
        }
        self.leave_out(&volume);
        self.failed.push((volume, error_chain(&error)));
        Ok(())
    }

    /// Volumes that could not be cloned are read where they are, as every other file.
    fn without_clones(&mut self, error: Error) -> Result<(), Error> {
        if !matches!(error, Error::Project(_) | Error::Clone(_)) {
            return Err(error);
        }
        let volumes = &mut self.declared.config.volumes;
        let before = volumes.len();
        volumes.retain(|_, volume| volume.consistency != Consistency::Generic);
        if volumes.len() == before {
            return Err(error);
        }
        Ok(())
    }
}
