//! Says what a snapshot of a container would have, and what not, without making one.

use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::progress::Progress;
use stasis_disk::tree::survey::{TreeSurvey, survey};
use stasis_disk::tree::walk::WalkSettings;
use stasis_model::container::capture::{CaptureWishes, NotCaptured, judge, never_captured, unmet};
use stasis_model::failure::{AtPath as _, Failure, OPEN_DIRECTORY};
use stasis_quiesce::docker::{ContainerFacts, ContainerMount, ContainerMountKind, Docker};
use std::path::PathBuf;

/// What a snapshot of a container would have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "what would not be saved is said only here"]
pub struct ContainerValidated {
    /// What it is called.
    pub container: String,
    /// Its whole id.
    pub container_id: String,
    /// What its image was called when it was made.
    pub image: String,
    /// What it does.
    pub status: String,
    /// Whether a snapshot can be made of it.
    pub is_valid: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// What is mounted in it, by the place where.
    pub mounts: Vec<MountValidated>,
    /// Everything of it that would be in no snapshot.
    pub not_captured: Vec<NotCaptured>,
}

/// One mount of a container, and whether it would be saved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct MountValidated {
    /// Where in the container.
    pub destination: String,
    /// `named_volume`, `anonymous_volume`, `bind`, `tmpfs` or `other`.
    pub kind: String,
    /// The name of the volume, or the path on the engine's host.
    pub source: String,
    /// Whether it would be saved.
    pub travels: bool,
    /// How many files it has, where that can be seen from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// How long they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Why they were not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_counted: Option<String>,
}

/// Says what a snapshot of a container would have; with `strict`, one that would not have all of its mounts is not valid.
pub async fn validate(
    docker: &Docker,
    container: &str,
    wishes: &CaptureWishes,
    strict: bool,
) -> Result<ContainerValidated, Error> {
    let facts = docker.container(container).await?;
    let facts = facts.ok_or_else(|| {
        let host = docker.host().display();
        let said = format!("the Docker engine at {host} has no container `{container}`");
        let hint = "`docker ps --all` lists those that there are";
        Failure::of(ErrorKind::NotFound, said).with_hint(hint)
    })?;
    let is_local = docker.engine().await?.local;
    let (mut mounts, mut left) = (Vec::new(), Vec::new());
    for mount in &facts.mounts {
        let judged = judge(mount, wishes);
        mounts.push(measured(mount, judged.is_ok(), is_local).await);
        left.extend(judged.err());
    }
    let refused = refused(&facts, wishes, left.first().filter(|_| strict));
    left.extend(never_captured());
    Ok(ContainerValidated {
        container: facts.name,
        container_id: facts.id,
        image: facts.image,
        status: facts.status.to_string(),
        is_valid: refused.is_none(),
        refused,
        mounts,
        not_captured: left,
    })
}

/// Why no snapshot can be made as somebody wants it.
fn refused(
    facts: &ContainerFacts,
    wishes: &CaptureWishes,
    left: Option<&NotCaptured>,
) -> Option<String> {
    if let Some(state) = facts.status.refusal() {
        return Some(format!(
            "it is {state}; one that is created, running, paused or exited can be saved"
        ));
    }
    if let Some(place) = unmet(wishes, &facts.mounts) {
        return Some(format!("nothing of the host is bound at `{place}`"));
    }
    let left = left?;
    Some(format!("`{}` would not be saved (--strict)", left.what))
}

async fn measured(mount: &ContainerMount, travels: bool, is_local: bool) -> MountValidated {
    let counted = match mount.kind {
        ContainerMountKind::Tmpfs | ContainerMountKind::Other => None,
        _ if !is_local => Some(Err("the engine is not on this host".to_owned())),
        _ => Some(counted(&mount.source).await),
    };
    let (survey, not_counted) = match counted {
        Some(Ok(survey)) => (Some(survey), None),
        Some(Err(why)) => (None, Some(why)),
        None => (None, None),
    };
    MountValidated {
        destination: mount.destination.clone(),
        kind: mount.kind.to_string(),
        source: mount.volume.clone().unwrap_or(mount.source.clone()),
        travels,
        files: survey.as_ref().map(|survey| survey.files),
        bytes: survey.as_ref().map(|survey| survey.bytes),
        not_counted,
    }
}

async fn counted(dir: &str) -> Result<TreeSurvey, String> {
    let dir = PathBuf::from(dir);
    let counted = bridge::blocking(move || {
        let root = RootDir::open(&dir, Mounts::Cross).at(OPEN_DIRECTORY, &dir);
        let root = root.map_err(|error| error_chain(&error))?;
        let settings = WalkSettings::default();
        survey(&root, &settings, &Progress::default()).map_err(|error| error_chain(&error))
    });
    counted.await
}
