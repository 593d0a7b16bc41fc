//! Which snapshot somebody means.

use super::{Project, ProjectError};
use crate::error::Error;
use stasis_model::id::SnapshotId;
use stasis_model::manifest::{Index, Indexed};

impl Project {
    /// The index of its snapshots; empty before the first save.
    pub(super) async fn index(&self) -> Result<Index, Error> {
        self.engine.repo_index(&self.engine.repo_root()).await
    }

    /// Its snapshots, the oldest first.
    pub(super) fn own<'i>(&self, index: &'i Index) -> Vec<&'i Indexed> {
        let name = self.name();
        let own = index.snapshots().filter(|(of, _)| **of == name);
        own.map(|(_, one)| one).collect()
    }

    /// Finds `latest`, an id or the beginning of one, a label `key=value`, or a label's value.
    pub(super) fn resolve(&self, index: &Index, wanted: &str) -> Result<SnapshotId, Error> {
        let own = self.own(index);
        let none = || Error::NoSuchSnapshot {
            wanted: wanted.to_owned(),
            repo: format!("{} of project {}", self.engine.location, self.home.id),
        };
        if wanted.is_empty() {
            return Err(none());
        }
        if wanted == "latest" {
            let newest = own.iter().max_by_key(|one| one.at_ms);
            return newest.map(|one| one.id.clone()).ok_or_else(none);
        }
        let fits: Vec<&&Indexed> = own
            .iter()
            .filter(|one| one.id.as_str().starts_with(wanted))
            .collect();
        match fits[..] {
            [one] => return Ok(one.id.clone()),
            [] => {}
            _ => {
                return Err(Error::Ambiguous {
                    wanted: wanted.to_owned(),
                    count: fits.len(),
                });
            }
        }
        let is_labelled = |one: &&&Indexed| {
            let mut labels = one.labels.iter();
            labels.any(|(key, value)| {
                value.as_str() == wanted || wanted.split_once('=') == Some((key, value.as_str()))
            })
        };
        let labelled = own.iter().filter(is_labelled).max_by_key(|one| one.at_ms);
        if let Some(one) = labelled {
            return Ok(one.id.clone());
        }
        self.somebody_elses(index, wanted)?;
        Err(none())
    }

    /// A snapshot of another project is named as such, and not as missing.
    fn somebody_elses(&self, index: &Index, wanted: &str) -> Result<(), ProjectError> {
        let mut others = index.snapshots();
        match others.find(|(_, one)| one.id.as_str().starts_with(wanted)) {
            Some((name, one)) => Err(ProjectError::OtherProject {
                snapshot: one.id.clone(),
                found: name.to_string(),
                project: self.home.id.clone(),
            }),
            None => Ok(()),
        }
    }
}
