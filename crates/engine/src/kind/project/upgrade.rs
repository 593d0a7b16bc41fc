//! A new version of the application, and a copy of the whole project.

use super::restore::{KeptDatabase, ProjectRestored};
use super::save::ProjectSave;
use super::{Declared, FILE, Project, ProjectRestore, or_cancelled};
use crate::bridge;
use crate::error::{Error, ProjectError, error_chain};
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::fs::atomic_write;
use stasis_disk::progress::Progress;
use stasis_model::failure::AtPath;
use stasis_model::format::manifest::SaveReason;
use stasis_model::id::{ProjectId, ServiceName, SnapshotId};
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_quiesce::group::ProcessGroup;
use std::ffi::OsString;
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// An application that was upgraded, or is what it was.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "whether it was upgraded is said only here"]
pub struct ProjectUpgraded {
    /// Which project.
    pub project: ProjectId,
    /// What it was before: the way back.
    pub safety_snapshot_id: SnapshotId,
    /// How the command ended, if it is upgraded.
    pub exit_code: Option<i32>,
    /// Whether the state before came back.
    pub rolled_back: bool,
    /// Why it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Databases on servers that going back left beside those in use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub databases_kept: Vec<KeptDatabase>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

/// How long a command that is not wanted any more may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);

/// A project that was made of another one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProjectDuplicated {
    /// Which it was made of.
    pub project: ProjectId,
    /// What it is called.
    pub duplicate: ProjectId,
    /// Where it is.
    pub dir: String,
    /// The snapshot that it begins with.
    pub snapshot_id: SnapshotId,
}

impl Project {
    /// Saves, runs the command that upgrades it, sees whether all is well, and goes back if not.
    pub async fn upgrade(
        &self,
        command: &[OsString],
        cancel: &AtomicBool,
    ) -> Result<ProjectUpgraded, Error> {
        let declared = self.home.declared()?.clone();
        let _lock = self.exclusive("upgrade").await?;
        let ran = self.running(&declared).await;
        let save = ProjectSave {
            allow_shrink: true,
            ..ProjectSave::new(SaveReason::BeforeUpgrade)
        };
        let saved = self.save_locked(save).await?;
        self.end_record("an upgrade was run since").await;
        let outcome = self.try_upgrade(&declared, &ran, command, cancel).await;
        let mut result = ProjectUpgraded {
            project: self.home.id.clone(),
            safety_snapshot_id: saved.saved.snapshot_id.clone(),
            exit_code: outcome.as_ref().ok().copied(),
            rolled_back: false,
            because: None,
            databases_kept: Vec::new(),
            warnings: saved.left_copy().cloned().collect(),
        };
        if let Err(because) = outcome {
            let back = ProjectRestore {
                safety: false,
                becomes_latest: false,
                ..ProjectRestore::new(saved.saved.snapshot_id.to_string())
            };
            let restored = Box::pin(self.restore_locked(back)).await?;
            self.end_record("an upgrade was run since, and rolled back")
                .await;
            self.start_those(&declared, &ran).await?;
            result.rolled_back = true;
            result.because = Some(because);
            result.databases_kept = restored.databases_kept;
            result.warnings.extend(restored.warnings);
        }
        Ok(result)
    }

    /// Runs the command and asks whoever ran before whether they are well; says in words what went wrong.
    async fn try_upgrade(
        &self,
        declared: &Declared,
        ran: &[ServiceName],
        command: &[OsString],
        cancel: &AtomicBool,
    ) -> Result<i32, String> {
        let variables = [("STASIS_PROJECT", self.home.id.to_string())];
        let started = ProcessGroup::start(command, &variables);
        let mut group = started.map_err(|error| error_chain(&error))?;
        let ended = or_cancelled(cancel, group.wait()).await;
        let Ok(ended) = ended else {
            let _ = group.stop(STOP_TIMEOUT).await;
            return Err("it was interrupted".to_owned());
        };
        let code = ended.map_err(|error| error_chain(&error))?.code();
        if code != 0 {
            return Err(format!("the command ended with {code}"));
        }
        let well = self.healthy(declared, ran).await;
        well.map_err(|error| error_chain(&error)).map(|()| code)
    }

    /// Makes another project of this one, with the state of a snapshot, in a directory that is not there.
    pub async fn duplicate(
        &self,
        wanted: &SnapshotRef,
        dir: &Path,
        id: &ProjectId,
        progress: Arc<Progress>,
    ) -> Result<ProjectDuplicated, Error> {
        let declared = self.home.declared()?;
        let snapshot = self.resolve(&self.index().await?, wanted)?;
        if let Some(why) = shared(declared, id) {
            let project = self.home.id.clone();
            return Err(ProjectError::NotDuplicable { project, why }.into());
        }
        if dir.exists() {
            return Err(ProjectError::Exists(dir.to_owned()).into());
        }
        let text = duplicate_file(&self.home.dir.join(FILE), id).await?;
        let file = dir.join(FILE);
        let target = if declared.is_in_place() {
            dir.to_owned()
        } else {
            let (state, made) = (dir.join(declared.config.state()), dir.to_owned());
            let target = state.join("current");
            bridge::blocking(move || {
                atomic_write::make_directory(&made)?;
                atomic_write::make_directory(&state)
            })
            .await?;
            target
        };
        let restore = ProjectRestore {
            to: Some(target),
            progress,
            ..ProjectRestore::new(snapshot.to_string())
        };
        let _: ProjectRestored = Box::pin(self.restore(restore)).await?;
        bridge::blocking(move || atomic_write::replace_public(&file, text.as_bytes())).await?;
        Ok(ProjectDuplicated {
            project: self.home.id.clone(),
            duplicate: id.clone(),
            dir: dir.display().to_string(),
            snapshot_id: snapshot,
        })
    }
}

/// What a copy of the project's file would share with the project.
fn shared(declared: &Declared, id: &ProjectId) -> Option<String> {
    let config = &declared.config;
    let state = config.state();
    let mut parts = state.components();
    if parts.any(|part| matches!(part, Component::ParentDir | Component::RootDir)) {
        return Some("its `state` lies outside its directory".to_owned());
    }
    if config.id == *id {
        return Some("both would have the same id".to_owned());
    }
    if config.servers().next().is_some()
        || config
            .volumes
            .values()
            .any(|one| one.url.is_some() || one.url_env.is_some())
    {
        return Some("both would use the same database server".to_owned());
    }
    let mut services = config.services.iter();
    let shared = services.find(|(_, one)| one.container.is_some() || one.pid_file.is_some());
    shared.map(|(name, _)| format!("both would use the same service `{name}`"))
}

/// The project's file, with another id.
async fn duplicate_file(path: &Path, id: &ProjectId) -> Result<String, Error> {
    let asked = path.to_owned();
    let text = bridge::blocking(move || std::fs::read_to_string(asked)).await;
    let text = text.at("read", path)?;
    let mut is_said = false;
    let lines = text.lines().map(|line| {
        let is_id = line
            .split_once('=')
            .is_some_and(|(key, _)| key.trim() == "id");
        // The history of the one is not that of the other.
        let is_subject = line
            .split_once('=')
            .is_some_and(|(key, _)| key.trim() == "subject");
        if is_subject {
            return String::new();
        }
        if is_id && !is_said {
            is_said = true;
            return format!("id = \"{id}\"");
        }
        line.to_owned()
    });
    Ok(lines.collect::<Vec<_>>().join("\n") + "\n")
}
