//! Saves a project: ten steps, each visible here, in the trace and in the result.
//!
//! *Always true:* a step that fails ends the save: `current/` is untouched, the last good snapshot is what it was, nothing
//! leads to what was stored, the directory of the capture is gone, and programs that were paused run again.

use super::capture::Capture;
use super::steps::{Step, StepTaken, Steps};
use super::{Declared, Project};
use crate::bridge;
use crate::error::Error;
use crate::repo::{RepoSave, RepoSaved};
use crate::warning::Warning;
use serde::Serialize;
use stasis_disk::progress::Progress;
use stasis_model::id::{Label, ProjectId};
use stasis_model::manifest::{Consistency, Reason, VolumeManifest};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Why and how a project is saved.
#[derive(Clone, Debug)]
pub struct ProjectSave {
    /// What made somebody save.
    pub reason: Reason,
    /// Words of the user's.
    pub labels: BTreeMap<String, Label>,
    /// Whether a snapshot is made although nothing changed.
    pub allow_empty: bool,
    /// Whether it may have become much smaller than it was.
    pub allow_shrink: bool,
    /// Gitignore-style patterns of what is left out of a plain directory.
    pub excludes: Vec<String>,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
    /// How far it has come.
    pub progress: Arc<Progress>,
}

impl ProjectSave {
    /// A save for a reason, with nothing special about it.
    pub fn new(reason: Reason) -> Self {
        Self {
            reason,
            labels: BTreeMap::new(),
            allow_empty: false,
            allow_shrink: false,
            excludes: Vec::new(),
            cancel: Arc::default(),
            progress: Arc::default(),
        }
    }
}

/// A project that was saved.
#[derive(Clone, Debug, Serialize)]
#[must_use = "what was left out is said only here"]
pub struct ProjectSaved {
    /// Which project.
    pub project: ProjectId,
    /// Why.
    pub reason: Reason,
    /// The snapshot.
    #[serde(flatten)]
    pub saved: RepoSaved,
    /// Its volumes, by name.
    pub volumes: BTreeMap<String, VolumeManifest>,
    /// The steps that were taken, in order.
    pub steps: Vec<StepTaken>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl Project {
    /// Saves the project.
    #[tracing::instrument(skip_all, err(level = "info"), fields(project = %self.home.id))]
    pub async fn save(&self, command: ProjectSave) -> Result<ProjectSaved, Error> {
        let lock = self.exclusive("save").await?;
        let saved = self.save_locked(command).await;
        drop(lock);
        saved
    }

    /// Saves the project, which is ours alone.
    pub(super) async fn save_locked(&self, command: ProjectSave) -> Result<ProjectSaved, Error> {
        let mut steps = Steps::new(self.engine.clock.clone());
        steps.begin(Step::Resolve);
        self.ensure_root().await?;
        steps.begin(Step::Lock);
        match &self.home.declared {
            None => self.save_plain(command, steps).await,
            Some(declared) => Box::pin(self.save_declared(declared, command, steps)).await,
        }
    }

    /// A directory of plain files is read where it is.
    async fn save_plain(
        &self,
        command: ProjectSave,
        mut steps: Steps,
    ) -> Result<ProjectSaved, Error> {
        let save = RepoSave {
            excludes: command.excludes.clone(),
            ..self.repo_save_of(&command, &self.home.dir)
        };
        let saved = self.store(save, &mut steps).await?;
        Ok(self.told(&command, saved, BTreeMap::new(), steps))
    }

    async fn save_declared(
        &self,
        declared: &Declared,
        command: ProjectSave,
        mut steps: Steps,
    ) -> Result<ProjectSaved, Error> {
        steps.begin(Step::PreSaveHooks);
        steps.begin(Step::Quiesce);
        steps.begin(Step::Checkpoint);
        let mut capture = Capture::begin(self, declared).await?;
        capture = self.databases(declared, &command, capture).await?;
        capture = self.clones(declared, &command, capture).await?;
        let save = RepoSave {
            grafts: capture.grafts.clone(),
            remembered_as: Some(declared.current()),
            app_version: declared.config.app_version.clone(),
            volumes: capture.volumes.clone(),
            ..self.repo_save_of(&command, capture.skeleton.root())
        };
        let saved = self.store(save, &mut steps).await?;
        steps.begin(Step::Resume);
        steps.begin(Step::Release);
        let volumes = self.volumes_of(&saved).await?;
        drop(capture);
        Ok(self.told(&command, saved, volumes, steps))
    }

    /// Copies what SQLite keeps, and asks servers for dumps.
    async fn databases(
        &self,
        declared: &Declared,
        command: &ProjectSave,
        mut capture: Capture,
    ) -> Result<Capture, Error> {
        for (name, volume) in &declared.config.volumes {
            let source = declared.current().join("volumes").join(name.as_str());
            let (name, cancel) = (name.clone(), command.cancel.clone());
            match volume.consistency {
                Consistency::Sqlite => {
                    capture = bridge::blocking(move || {
                        capture.sqlite_volume(&name, &source, &cancel)?;
                        Ok::<_, Error>(capture)
                    })
                    .await?;
                }
                Consistency::Postgres | Consistency::Generic => {}
            }
        }
        Ok(capture)
    }

    /// Clones the other volumes, while whoever writes them stands still.
    async fn clones(
        &self,
        declared: &Declared,
        command: &ProjectSave,
        mut capture: Capture,
    ) -> Result<Capture, Error> {
        let generic = declared.config.volumes.iter();
        let generic = generic.filter(|(_, one)| one.consistency == Consistency::Generic);
        let names: Vec<_> = generic.map(|(name, _)| name.clone()).collect();
        let (all, cancel) = (declared.current().join("volumes"), command.cancel.clone());
        bridge::blocking(move || {
            for name in &names {
                capture.clone_volume(name, &all.join(name.as_str()), &cancel)?;
            }
            capture.skeleton.dress()?;
            Ok(capture)
        })
        .await
    }

    fn repo_save_of(&self, command: &ProjectSave, source: &std::path::Path) -> RepoSave {
        RepoSave {
            reason: command.reason,
            labels: command.labels.clone(),
            allow_shrink: command.allow_shrink,
            skip_unchanged: !command.allow_empty,
            cancel: command.cancel.clone(),
            progress: command.progress.clone(),
            ..RepoSave::new(source, self.name())
        }
    }

    /// Stores the tree, says what it is, makes the snapshot exist.
    async fn store(&self, save: RepoSave, steps: &mut Steps) -> Result<RepoSaved, Error> {
        steps.begin(Step::Copy);
        let gathered = self.engine.save_gather(save).await?;
        if gathered.is_nothing_new() {
            return self.engine.save_nothing(gathered).await;
        }
        steps.begin(Step::Metadata);
        let ready = self.engine.save_describe(gathered).await?;
        steps.begin(Step::Index);
        self.engine.save_publish(ready).await
    }

    /// The volumes of a snapshot, as it has them.
    async fn volumes_of(
        &self,
        saved: &RepoSaved,
    ) -> Result<BTreeMap<String, VolumeManifest>, Error> {
        let root = self.engine.repo_root();
        let found = root.manifest(&saved.snapshot_id).await?;
        Ok(found
            .map(|(manifest, _)| manifest.volume_manifests)
            .unwrap_or_default())
    }

    fn told(
        &self,
        command: &ProjectSave,
        saved: RepoSaved,
        volumes: BTreeMap<String, VolumeManifest>,
        steps: Steps,
    ) -> ProjectSaved {
        ProjectSaved {
            project: self.home.id.clone(),
            reason: command.reason,
            saved,
            volumes,
            steps: steps.finish(),
            warnings: self.engine.clock_warnings(),
        }
    }
}
