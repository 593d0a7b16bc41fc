//! Which snapshot somebody means.

use super::{Project, ProjectError};
use crate::error::Error;
use stasis_model::id::SnapshotId;
use stasis_model::manifest::{Index, Indexed, Reason};

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

    /// Finds `latest` (the newest that was not only made before a restore), an id or the beginning of one, a label `key=value`, or a label's value.
    pub(super) fn resolve(&self, index: &Index, wanted: &str) -> Result<SnapshotId, Error> {
        let own = self.own(index);
        let none = || {
            let (project, wanted) = (self.home.id.clone(), wanted.to_owned());
            Error::from(ProjectError::NoSnapshot { project, wanted })
        };
        if wanted.is_empty() {
            return Err(none());
        }
        if wanted == "latest" {
            // What was saved only because something took its place is not what people mean.
            let is_wanted = |one: &&&Indexed| one.reason != Reason::BeforeRestore;
            let newest = own.iter().filter(is_wanted).max_by_key(|one| one.at_ms);
            let newest = newest.or_else(|| own.iter().max_by_key(|one| one.at_ms));
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

    /// The same, for somebody who must not be told "there is none" by a damaged index.
    pub(super) async fn find(&self, index: &Index, wanted: &str) -> Result<SnapshotId, Error> {
        let found = self.resolve(index, wanted);
        let is_none = matches!(&found, Err(Error::Project(error)) if matches!(**error, ProjectError::NoSnapshot { .. }));
        if !is_none {
            return found;
        }
        let stored = self.engine.repo_root().manifest_ids().await?;
        let is_lost =
            |id: &SnapshotId| id.as_str().starts_with(wanted) && !index.tombstones.contains_key(id);
        match stored.into_iter().find(is_lost) {
            Some(id) => Err(Error::LostManifest(id)),
            None => found,
        }
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
