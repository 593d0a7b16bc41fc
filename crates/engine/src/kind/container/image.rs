//! The image that a snapshot has of a container's own files.

use super::SeenEngine;
use super::helper_mount::HelperMount;
use crate::error::{Error, ErrorKind, error_chain};
use stasis_model::failure::Failure;
use stasis_model::format::manifest::SnapshotImage;
use stasis_model::id::{ContainerSubject, Label, OpId, SnapshotId};
use stasis_model::time::Timestamp;
use stasis_quiesce::docker::{
    ContainerCommit, ContainerCreation, ContainerFacts, Docker, DockerImage, FlattenScratch,
    VolumeRemoval,
};
use std::collections::BTreeMap;

/// What images of snapshots are called, with the snapshot's id for a tag.
const REPOSITORY: &str = "stasis-snapshot";
/// Which snapshot an image is of.
pub(super) const SNAPSHOT_LABEL: &str = "stasis.snapshot";
/// The pool of the store that has the snapshot: the images of other stores are none of ours.
pub(super) const POOL_LABEL: &str = "stasis.pool";
/// The lock under which it was made: whoever holds it still needs it.
pub(super) const SUBJECT_LABEL: &str = "stasis.subject";
/// The host that has the lock.
pub(super) const BY_LABEL: &str = "stasis.by";
/// When, in milliseconds since 1970.
pub(super) const AT_LABEL: &str = "stasis.at";
/// A container of ours that is never started, and goes when it was used.
pub(super) const HELPER_LABEL: &str = "stasis.helper";
/// Which snapshot a container or a volume was made of.
pub(super) const RESTORED_LABEL: &str = "stasis.restored-from";
/// Which restore made it.
pub(super) const RESTORE_LABEL: &str = "stasis.restore";
/// What the image was called of which the first container in a chain of snapshots was made.
pub(super) const ORIGINAL_LABEL: &str = "stasis.original-image";
/// The id of that.
pub(super) const ORIGINAL_ID_LABEL: &str = "stasis.original-image-id";
/// An engine takes 127 layers; above this the image becomes one.
const MOST_LAYERS: usize = 100;

/// Names that are there only while an image becomes one layer: what it is called itself, and its files.
pub(super) fn passing_names(snapshot: &SnapshotId) -> [String; 2] {
    [layered_tag(snapshot), files_tag(snapshot)].map(|tag| format!("{REPOSITORY}:{tag}"))
}

fn layered_tag(snapshot: &SnapshotId) -> String {
    format!("{snapshot}-layers")
}

fn files_tag(snapshot: &SnapshotId) -> String {
    format!("{snapshot}-files")
}

/// What the image of a snapshot is called.
pub(super) fn image_name(snapshot: &SnapshotId) -> String {
    format!("{REPOSITORY}:{snapshot}")
}

/// For which snapshot, of which pool, and under whose lock something is made on an engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MadeFor {
    pub(super) snapshot: SnapshotId,
    pub(super) pool: OpId,
    pub(super) subject: ContainerSubject,
    pub(super) by: String,
    pub(super) at: Timestamp,
}

impl MadeFor {
    fn image_labels(&self) -> BTreeMap<String, String> {
        let labels = [
            (SNAPSHOT_LABEL, self.snapshot.to_string()),
            (POOL_LABEL, self.pool.to_string()),
            (SUBJECT_LABEL, self.subject.to_string()),
            (BY_LABEL, self.by.clone()),
            (AT_LABEL, self.at.millis().to_string()),
            // What the container has that is committed is not what containers of the image are: a label can only be emptied.
            (HELPER_LABEL, String::new()),
            (RESTORE_LABEL, String::new()),
            (RESTORED_LABEL, String::new()),
        ];
        let labels = labels.map(|(name, value)| (name.to_owned(), value));
        labels.into()
    }

    /// What a container says that is never started.
    fn helper_labels(&self) -> BTreeMap<String, String> {
        let labels = [
            (HELPER_LABEL, self.pool.to_string()),
            (SUBJECT_LABEL, self.subject.to_string()),
            (BY_LABEL, self.by.clone()),
            (AT_LABEL, self.at.millis().to_string()),
        ];
        labels.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// What the tree of its layers says.
    pub(super) fn layer_labels(&self) -> BTreeMap<String, Label> {
        let labels = [
            (SUBJECT_LABEL, self.subject.to_string()),
            (BY_LABEL, self.by.clone()),
            (AT_LABEL, self.at.millis().to_string()),
        ];
        let labels =
            labels.map(|(name, value)| (name.to_owned(), value.parse().unwrap_or_default()));
        labels.into()
    }

    fn commit(&self, facts: &ContainerFacts) -> ContainerCommit {
        ContainerCommit {
            repository: REPOSITORY.to_owned(),
            tag: self.snapshot.to_string(),
            labels: self.image_labels(),
            comment: format!("snapshot of {} by Stasis", facts.name),
        }
    }
}

/// What the image was called of which a container was made, or the first one in its chain of snapshots.
pub(super) fn original_image(facts: &ContainerFacts) -> String {
    original(facts, ORIGINAL_LABEL).unwrap_or_else(|| facts.image.clone())
}

/// The id of that.
pub(super) fn original_image_id(facts: &ContainerFacts) -> String {
    original(facts, ORIGINAL_ID_LABEL).unwrap_or_else(|| facts.image_id.clone())
}

/// What one says that was made of a snapshot.
fn original(facts: &ContainerFacts, label: &str) -> Option<String> {
    let text = facts.config["Labels"][label].as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// Makes the image of a container that stands still.
pub(super) async fn commit(
    docker: &Docker,
    facts: &ContainerFacts,
    made_for: &MadeFor,
) -> Result<String, Error> {
    Ok(docker.commit(&facts.id, &made_for.commit(facts)).await?)
}

/// What the snapshot says of its image, which becomes one layer if it has so many that an engine would soon take no more.
pub(super) async fn described(
    seen: &SeenEngine,
    facts: &ContainerFacts,
    original: &str,
    made_for: &MadeFor,
) -> Result<SnapshotImage, Error> {
    let docker = &seen.docker;
    let name = image_name(&made_for.snapshot);
    let mut image = needed(docker, &name).await?;
    if image.layers.len() > MOST_LAYERS {
        flatten(docker, facts, made_for).await?;
        image = needed(docker, &name).await?;
    }
    let original = docker.image(original).await?;
    let shared = original.filter(|original| image.layers.starts_with(&original.layers));
    let shared = shared.map_or(0, |original| original.size_bytes);
    Ok(SnapshotImage {
        name,
        id: image.id,
        own_bytes: image.size_bytes.saturating_sub(shared),
        layers: image.layers,
        size_bytes: image.size_bytes,
        is_portable: false,
    })
}

async fn needed(docker: &Docker, name: &str) -> Result<DockerImage, Error> {
    let found = docker.image(name).await?;
    found.ok_or_else(|| {
        let said = format!(
            "the image `{name}` was removed from {} while it was made",
            docker.host().display()
        );
        Failure::of(ErrorKind::Conflict, said).into()
    })
}

/// Makes one layer of an image: of a container of it that is never started. The name goes over to the new one.
async fn flatten(docker: &Docker, facts: &ContainerFacts, made_for: &MadeFor) -> Result<(), Error> {
    let name = image_name(&made_for.snapshot);
    let image = needed(docker, &name).await?;
    let many = image.id.clone();
    let tag = layered_tag(&made_for.snapshot);
    docker.tag_image(&many, REPOSITORY, &tag).await?;
    let helper = helper(docker, &many, made_for, &[]).await?;
    let commit = made_for.commit(facts);
    let scratch = FlattenScratch {
        tag: files_tag(&made_for.snapshot),
        helper_labels: made_for.helper_labels(),
    };
    let flat = docker.flatten(&helper, Some(&image), &commit, &scratch);
    let flat = flat.await;
    remove_helper(docker, &helper).await;
    for passing in passing_names(&made_for.snapshot) {
        discard_image(docker, &passing).await;
    }
    flat?;
    Ok(())
}

/// Makes a container of an image that is never started, with some mounts.
pub(super) async fn helper(
    docker: &Docker,
    image: &str,
    made_for: &MadeFor,
    mounts: &[HelperMount],
) -> Result<String, Error> {
    let mut creation = ContainerCreation::from_image("", image);
    // It needs some command, which nobody runs.
    creation.config["Cmd"] = serde_json::json!(["none"]);
    let binds = mounts.iter().map(|one| {
        let how = if one.is_bind { "ro" } else { "nocopy" };
        format!("{}:{}:{how}", one.source, one.destination)
    });
    let binds: Vec<String> = binds.collect();
    creation.host_config = serde_json::json!({ "NetworkMode": "none", "Binds": binds });
    creation.overrides.labels = made_for.helper_labels();
    Ok(docker.create_container(&creation).await?)
}

/// Removes such a container. What stays goes with the next cleanup.
pub(super) async fn remove_helper(docker: &Docker, helper: &str) {
    let removed = docker.remove_container(helper, VolumeRemoval::Anonymous);
    if let Err(error) = removed.await {
        let error = error_chain(&error);
        tracing::warn!(
            helper,
            error,
            "a container of ours is left; cleanup removes it"
        );
    }
}

/// Removes the image of a snapshot that there is not; says whether it is gone. What stays goes with the next cleanup.
pub(super) async fn discard_image(docker: &Docker, image: &str) -> bool {
    let removed = docker.remove_image(image).await;
    if let Err(error) = &removed {
        let error = error_chain(error);
        tracing::warn!(image, error, "an image of ours is left; cleanup removes it");
    }
    removed.is_ok()
}
