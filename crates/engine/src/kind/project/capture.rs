//! Brings the state of a project to a moment that can be kept, without changing it.
//!
//! What is captured lies in a directory of ours in the state directory: databases as copies, servers as dumps, the other
//! volumes as clones. They are laid over the live state, and everything else is read where it is, after the databases, so
//! that a row that names a file was written before the file was looked for. So nothing in `current/` is left out.
//!
//! A tree that did not change must be the same tree again, so that it makes no new snapshot. Directories in which SQLite
//! makes and removes journals get the time of their newest database, and dumps no time at all.

mod postgres;
mod sqlite;

pub(super) use postgres::dump_in;

use super::{Declared, Project};
use crate::bridge;
use crate::error::{Error, ErrorKind, ProjectError};
use crate::save::{SaveOverlay, VolumeFacts};
use stasis_disk::tree::clone::{self, CloneSettings};
use stasis_disk::tree::staging_view::{self, StagingView};
use stasis_disk::tree::walk::WalkSettings;
use stasis_model::digest::TreeDigest;
use stasis_model::failure::Kinded;
use stasis_model::format::manifest::{Consistency, VolumeManifest};
use stasis_model::id::VolumeName;
use stasis_model::project::{ProjectConfig, VolumeConfig};
use stasis_model::tree::{EntryPath, FileTime, Metadata};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A state that holds still.
#[derive(Debug)]
pub(super) struct ProjectCapture {
    /// The live state: everything that was not captured is read there.
    pub(super) root: PathBuf,
    /// The copies; gone when this is dropped.
    pub(super) view: StagingView,
    /// What is read instead of what is there.
    pub(super) grafts: Vec<SaveOverlay>,
    /// What is known of the volumes.
    pub(super) volumes: BTreeMap<String, VolumeFacts>,
    /// Where each lies in the tree.
    places: BTreeMap<VolumeName, EntryPath>,
}

impl ProjectCapture {
    /// Begins with everything as it is.
    pub(super) async fn begin(project: &Project, declared: &Declared) -> Result<Self, Error> {
        let place = declared.state.join(".stasis");
        let elsewhere = project.engine.spool().await?;
        let (root, id) = (declared.current(), project.home.id.clone());
        let config = declared.config.clone();
        let is_in_place = declared.is_in_place();
        bridge::blocking(move || {
            let Ok(seen) = staging_view::look_at(&root) else {
                let (project, path) = (id, root);
                return Err(ProjectError::NoState { project, path }.into());
            };
            let looks = seen.metadata();
            let mut capture = Self {
                // Who only compares may not be allowed to write beside the state.
                view: StagingView::make(&place, looks).or_else(|error| {
                    let is_denied = error.kind() == ErrorKind::Denied;
                    let elsewhere = is_denied.then(|| StagingView::make(&elsewhere, looks));
                    elsewhere.unwrap_or(Err(error))
                })?,
                root,
                grafts: Vec::new(),
                volumes: BTreeMap::new(),
                places: BTreeMap::new(),
            };
            for name in config.volumes.keys() {
                capture.places.insert(name.clone(), config.place_of(name));
            }
            if is_in_place {
                capture.begin_in_place(&config, looks)?;
                return Ok(capture);
            }
            let all = capture.root.join("volumes");
            let inner = match staging_view::look_at(&all) {
                Ok(seen) => seen.metadata(),
                Err(_) => looks,
            };
            let place = capture.view.directory("volumes", inner)?;
            let is_there = all.symlink_metadata().is_ok();
            if !is_there && !config.volumes.is_empty() {
                capture.graft("volumes", place);
            }
            for (name, volume) in &config.volumes {
                capture.check(name, volume.consistency)?;
            }
            Ok(capture)
        })
        .await
    }

    /// Volumes that lie in the application's own tree: dumps and clones get a directory each, everything else is read
    /// where it is.
    fn begin_in_place(&mut self, config: &ProjectConfig, looks: Metadata) -> Result<(), Error> {
        let is_server = |one: &VolumeConfig| one.consistency == Consistency::Postgres;
        if config.volumes.values().any(is_server) {
            // A directory of ours has no time of its own: an unchanged tree must be the same tree again.
            let quiet = Metadata {
                mode: 0o700,
                modified: FileTime::default(),
                ..looks
            };
            let place = self.view.directory(".stasis", quiet)?;
            self.view.directory(".stasis/volumes", quiet)?;
            self.graft(".stasis", place);
        }
        self.view.directory("clones", looks)?;
        for (name, volume) in &config.volumes {
            if volume.consistency == Consistency::Generic {
                staging_view::look_at(&self.live(name))?;
            }
        }
        Ok(())
    }

    /// Where a volume lies in the tree.
    fn place(&self, name: &VolumeName) -> &EntryPath {
        &self.places[name]
    }

    /// Where the files of a volume are.
    pub(super) fn live(&self, name: &VolumeName) -> PathBuf {
        let place = self.place(name).as_bytes();
        self.root.join(std::ffi::OsStr::from_bytes(place))
    }

    /// A volume of databases that are copied when the tree is read.
    pub(super) fn sqlite_in_place(&mut self, name: &VolumeName) {
        let mut facts = self.facts(name, Consistency::Sqlite, "files", "ok");
        facts.is_copy = false;
        self.volumes.insert(name.to_string(), facts);
    }

    /// A volume must be a directory; that of a server must have nothing in it, because nothing of it would be saved.
    fn check(&self, name: &VolumeName, consistency: Consistency) -> Result<(), Error> {
        let directory = self.live(name);
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
        staging_view::look_at(&directory)?;
        Ok(())
    }

    /// Something that is read in the place of what is there.
    fn graft(&mut self, way: &str, directory: PathBuf) {
        let at = EntryPath::parse(way.as_bytes()).expect("it is made of names");
        self.grafts.push(SaveOverlay { at, directory });
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
        let mut facts = self.facts(name, Consistency::Generic, "files", "unchecked");
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
        let at = self.place(name).clone();
        let is_in_state = at.as_bytes().starts_with(b"volumes/");
        let above = if is_in_state { "volumes" } else { "clones" };
        let directory = self.view.root().join(above).join(name.as_str());
        self.grafts.push(SaveOverlay {
            at,
            directory: directory.clone(),
        });
        directory
    }

    /// What is known of a volume before it is measured.
    fn facts(
        &self,
        name: &VolumeName,
        consistency: Consistency,
        format: &str,
        integrity: &str,
    ) -> VolumeFacts {
        VolumeFacts {
            at: self.place(name).clone(),
            is_copy: true,
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
}
