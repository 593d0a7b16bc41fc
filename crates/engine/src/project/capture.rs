//! Brings the state of a project to a moment that can be kept, without changing it.
//!
//! What is captured lies in a directory of ours in the state directory: databases as copies, servers as dumps, the rest of
//! the volumes as clones. Plain files are not copied: they are grafted, and read where they are, after the databases, so
//! that a row that names a file was written before the file was looked for.
//!
//! A tree that did not change must be the same tree again, so that it makes no new snapshot. Directories in which SQLite
//! makes and removes journals get the time of their newest database, and dumps no time at all.

mod postgres;
mod sqlite;

pub(super) use postgres::dump_in;

use super::{Declared, Project, ProjectError};
use crate::bridge;
use crate::error::Error;
use crate::repo::{Graft, VolumeFacts};
use stasis_disk::clone::{self, CloneSettings};
use stasis_disk::skeleton::{self, Skeleton};
use stasis_disk::walk::WalkSettings;
use stasis_model::digest::TreeDigest;
use stasis_model::id::VolumeName;
use stasis_model::manifest::{Consistency, VolumeManifest};
use stasis_model::tree::EntryPath;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A state that holds still.
#[derive(Debug)]
pub(super) struct Capture {
    /// The directories of ours; gone when this is dropped.
    pub(super) skeleton: Skeleton,
    /// What is read where it is.
    pub(super) grafts: Vec<Graft>,
    /// What is known of the volumes.
    pub(super) volumes: BTreeMap<String, VolumeFacts>,
}

impl Capture {
    /// Begins with the directories that every state has, and with everything that nobody declared.
    pub(super) async fn begin(project: &Project, declared: &Declared) -> Result<Self, Error> {
        let place = declared.state.join(".stasis");
        let (current, id) = (declared.current(), project.home.id.clone());
        let volumes: Vec<VolumeName> = declared.config.volumes.keys().cloned().collect();
        bridge::blocking(move || {
            if !current.is_dir() {
                let (project, path) = (id, current);
                return Err(ProjectError::NoState { project, path }.into());
            }
            let looks = skeleton::look_at(&current)?.metadata();
            let mut capture = Self {
                skeleton: Skeleton::make(&place, looks)?,
                grafts: Vec::new(),
                volumes: BTreeMap::new(),
            };
            capture.graft("files", &current.join("files"))?;
            capture.volumes_of(&current.join("volumes"), &volumes)?;
            Ok(capture)
        })
        .await
    }

    /// A directory that is read where it is; one that is not there is not in the snapshot either.
    fn graft(&mut self, way: &str, directory: &Path) -> Result<(), Error> {
        if !directory.is_dir() {
            return Ok(());
        }
        let looks = skeleton::look_at(directory)?.metadata();
        self.skeleton.directory(way, looks)?;
        let at = EntryPath::parse(way.as_bytes()).expect("it is made of names");
        let directory = directory.to_owned();
        self.grafts.push(Graft { at, directory });
        Ok(())
    }

    /// The directory of all volumes, and those in it that nobody declared.
    fn volumes_of(&mut self, all: &Path, declared: &[VolumeName]) -> Result<(), Error> {
        if !all.is_dir() && declared.is_empty() {
            return Ok(());
        }
        let looks = match skeleton::look_at(all) {
            Ok(seen) => seen.metadata(),
            Err(_) => skeleton::look_at(self.skeleton.root())?.metadata(),
        };
        self.skeleton.directory("volumes", looks)?;
        let Ok(entries) = std::fs::read_dir(all) else {
            return Ok(());
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let is_declared = declared
                .iter()
                .any(|one| one.as_str().as_bytes() == name.as_bytes());
            let Some(name) = name.to_str().filter(|_| !is_declared) else {
                continue;
            };
            self.graft(&format!("volumes/{name}"), &entry.path())?;
        }
        Ok(())
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

    /// Where the copy of a volume goes.
    fn place_of(&self, name: &VolumeName) -> PathBuf {
        self.skeleton.root().join("volumes").join(name.as_str())
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
