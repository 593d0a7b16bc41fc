//! Brings the state of a project to a moment that can be kept, without changing it.
//!
//! What is captured lies in a directory of ours in the state directory: databases as copies, servers as dumps, the other
//! volumes as clones. They are grafted onto the live state, and everything else is read where it is, after the databases, so
//! that a row that names a file was written before the file was looked for. So nothing in `current/` is left out.
//!
//! A tree that did not change must be the same tree again, so that it makes no new snapshot. Directories in which SQLite
//! makes and removes journals get the time of their newest database, and dumps no time at all.

mod postgres;
mod sqlite;

pub(super) use postgres::dump_in;

use super::{Declared, Project, ProjectError};
use crate::bridge;
use crate::error::{Error, ErrorKind};
use crate::repo::{Graft, VolumeFacts};
use stasis_disk::clone::{self, CloneSettings};
use stasis_disk::skeleton::{self, Skeleton};
use stasis_disk::walk::WalkSettings;
use stasis_model::digest::TreeDigest;
use stasis_model::id::VolumeName;
use stasis_model::manifest::{Consistency, VolumeManifest};
use stasis_model::tree::EntryPath;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A state that holds still.
#[derive(Debug)]
pub(super) struct Capture {
    /// The live state: everything that was not captured is read there.
    pub(super) root: PathBuf,
    /// The copies; gone when this is dropped.
    pub(super) skeleton: Skeleton,
    /// What is read instead of what is there.
    pub(super) grafts: Vec<Graft>,
    /// What is known of the volumes.
    pub(super) volumes: BTreeMap<String, VolumeFacts>,
}

impl Capture {
    /// Begins with everything as it is.
    pub(super) async fn begin(project: &Project, declared: &Declared) -> Result<Self, Error> {
        let place = declared.state.join(".stasis");
        let elsewhere = project.engine.profile_spool().await?;
        let (root, id) = (declared.current(), project.home.id.clone());
        let volumes: Vec<(VolumeName, Consistency)> = declared
            .config
            .volumes
            .iter()
            .map(|(name, volume)| (name.clone(), volume.consistency))
            .collect();
        bridge::blocking(move || {
            let Ok(seen) = skeleton::look_at(&root) else {
                let (project, path) = (id, root);
                return Err(ProjectError::NoState { project, path }.into());
            };
            let looks = seen.metadata();
            let mut capture = Self {
                // Who only compares may not be allowed to write beside the state.
                skeleton: Skeleton::make(&place, looks).or_else(|error| {
                    let is_denied = crate::error::io_kind(&error.source) == ErrorKind::Denied;
                    let elsewhere = is_denied.then(|| Skeleton::make(&elsewhere, looks));
                    elsewhere.unwrap_or(Err(error))
                })?,
                root,
                grafts: Vec::new(),
                volumes: BTreeMap::new(),
            };
            let all = capture.root.join("volumes");
            let inner = match skeleton::look_at(&all) {
                Ok(seen) => seen.metadata(),
                Err(_) => looks,
            };
            let place = capture.skeleton.directory("volumes", inner)?;
            let is_there = all.symlink_metadata().is_ok();
            if !is_there && !volumes.is_empty() {
                capture.graft("volumes", place);
            }
            for (name, consistency) in &volumes {
                capture.check(name, *consistency)?;
            }
            Ok(capture)
        })
        .await
    }

    /// A volume must be a directory; that of a server must have nothing in it, because nothing of it would be saved.
    fn check(&self, name: &VolumeName, consistency: Consistency) -> Result<(), Error> {
        let directory = self.root.join("volumes").join(name.as_str());
        if consistency == Consistency::Postgres {
            let is_empty = match std::fs::read_dir(&directory) {
                Ok(mut entries) => entries.next().is_none(),
                Err(error) => error.kind() == std::io::ErrorKind::NotFound,
            };
            let volume = name.clone();
            return is_empty
                .then_some(())
                .ok_or_else(|| ProjectError::ServerData { volume, directory }.into());
        }
        skeleton::look_at(&directory)?;
        Ok(())
    }

    /// Something that is read in the place of what is there.
    fn graft(&mut self, way: &str, directory: PathBuf) {
        let at = EntryPath::parse(way.as_bytes()).expect("it is made of names");
        self.grafts.push(Graft { at, directory });
    }

    /// Clones a volume as it is at this moment.
    pub(super) fn clone_volume(
        &mut self,
        name: &VolumeName,
        source: &Path,
        cancel: &Arc<AtomicBool>,
    ) -> Result<(), Error> {
        let target = self.place_of(name);
        let settings = CloneSettings {
            walk: WalkSettings {
                cancel: cancel.clone(),
                ..WalkSettings::default()
            },
            ..CloneSettings::default()
        };
        let report = clone::clone(source, &target, &settings)?;
        let mut facts = facts(name, Consistency::Generic, "files", "unchecked");
        let details = &mut facts.manifest.details;
        details.insert("clonedBy".to_owned(), report.method.word().into());
        self.volumes.insert(name.to_string(), facts);
        Ok(())
    }

    /// Notes for how long the writers of volumes stood still.
    pub(super) fn paused(&mut self, names: &[VolumeName], paused_for: Duration) {
        let millis = u64::try_from(paused_for.as_millis()).unwrap_or(u64::MAX);
        for name in names {
            if let Some(facts) = self.volumes.get_mut(name.as_str()) {
                let details = &mut facts.manifest.details;
                details.insert("pausedMs".to_owned(), millis.into());
            }
        }
    }

    /// Where the copy of a volume goes, which is read instead of the volume.
    fn place_of(&mut self, name: &VolumeName) -> PathBuf {
        let place = self.skeleton.root().join("volumes").join(name.as_str());
        self.graft(&format!("volumes/{name}"), place.clone());
        place
    }
}

/// What is known of a volume before it is measured.
fn facts(
    name: &VolumeName,
    consistency: Consistency,
    format: &str,
    integrity: &str,
) -> VolumeFacts {
    let at = format!("volumes/{name}");
    VolumeFacts {
        at: EntryPath::parse(at.as_bytes()).expect("it is made of names"),
        manifest: VolumeManifest {
            consistency,
            format: format.to_owned(),
            size: 0,
            digest: TreeDigest::from_document([0; 32]),
            integrity: integrity.to_owned(),
            details: serde_json::Map::new(),
        },
    }
}
