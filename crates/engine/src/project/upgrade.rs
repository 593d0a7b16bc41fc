//! A new version of the application, and a copy of the whole project.

use super::restore::ProjectRestored;
use super::save::ProjectSave;
use super::{Declared, FILE, Project, ProjectError, ProjectRestore};
use crate::bridge;
use crate::error::{Error, whole};
use serde::Serialize;
use stasis_disk::atomic_write;
use stasis_model::id::{ProjectId, SnapshotId};
use stasis_model::manifest::Reason;
use stasis_quiesce::group::Group;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// An application that was upgraded, or is what it was.
#[derive(Clone, Debug, Serialize)]
#[must_use = "whether it was upgraded is said only here"]
pub struct ProjectUpgraded {
    /// Which project.
    pub project: ProjectId,
    /// What it was before: the way back.
    pub safety_snapshot_id: SnapshotId,
    /// How the command ended.
    pub exit_code: i32,
    /// Whether the state before came back.
    pub rolled_back: bool,
    /// Why it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// A project that was made of another one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
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
    pub async fn upgrade(&self, command: &[OsString]) -> Result<ProjectUpgraded, Error> {
        let declared = self.home.declared()?.clone();
        let lock = self.exclusive("upgrade").await?;
        let save = ProjectSave {
            allow_shrink: true,
            ..ProjectSave::new(Reason::BeforeUpgrade)
        };
        let saved = self.save_locked(save).await?;
        let variables = [("STASIS_PROJECT", self.home.id.to_string())];
        let mut group = Group::start(command, &variables)?;
        let exit_code = group.wait().await?.code();
        let outcome = self.upgraded(&declared, exit_code).await;
        drop(lock);
        let mut told = ProjectUpgraded {
            project: self.home.id.clone(),
            safety_snapshot_id: saved.saved.snapshot_id.clone(),
            exit_code,
            rolled_back: false,
            because: None,
        };
        if let Err(because) = outcome {
            let back = ProjectRestore {
                safety: false,
                ..ProjectRestore::new(saved.saved.snapshot_id.to_string())
            };
            let _: ProjectRestored = self.restore(back).await?;
            told.rolled_back = true;
            told.because = Some(because);
        }
        Ok(told)
    }

    async fn upgraded(&self, declared: &Declared, exit_code: i32) -> Result<(), String> {
        if exit_code != 0 {
            return Err(format!("the command ended with {exit_code}"));
        }
        let well = self.healthy(declared).await;
        well.map_err(|error| whole(&error))
    }

    /// Makes another project of this one, with the state of a snapshot, in a directory that is not there.
    pub async fn duplicate(
        &self,
        wanted: &str,
        dir: &Path,
        id: &ProjectId,
    ) -> Result<ProjectDuplicated, Error> {
        let declared = self.home.declared()?;
        let snapshot = self.resolve(&self.index().await?, wanted)?;
        if dir.exists() {
            return Err(ProjectError::Exists(dir.to_owned()).into());
        }
        let text = duplicate_file(&self.home.dir.join(FILE), id).await?;
        let (state, made) = (dir.join(&declared.config.state), dir.to_owned());
        let (file, above) = (dir.join(FILE), state.clone());
        bridge::blocking(move || {
            atomic_write::make_directory(&made)?;
            atomic_write::make_directory(&above)?;
            atomic_write::replace_public(&file, text.as_bytes())
        })
        .await?;
        let restore = ProjectRestore {
            to: Some(state.join("current")),
            ..ProjectRestore::new(snapshot.to_string())
        };
        let _: ProjectRestored = self.restore(restore).await?;
        Ok(ProjectDuplicated {
            project: self.home.id.clone(),
            duplicate: id.clone(),
            dir: dir.display().to_string(),
            snapshot_id: snapshot,
        })
    }
}

/// The project's file, with another id.
async fn duplicate_file(path: &Path, id: &ProjectId) -> Result<String, Error> {
    let path: PathBuf = path.to_owned();
    let asked = path.clone();
    let text = bridge::blocking(move || std::fs::read_to_string(asked)).await;
    let text = text.map_err(|source| Error::Unreadable { path, source })?;
    let mut is_said = false;
    let lines = text.lines().map(|line| {
        let is_id = line
            .split_once('=')
            .is_some_and(|(key, _)| key.trim() == "id");
        if is_id && !is_said {
            is_said = true;
            return format!("id = \"{id}\"");
        }
        line.to_owned()
    });
    Ok(lines.collect::<Vec<_>>().join("\n") + "\n")
}
