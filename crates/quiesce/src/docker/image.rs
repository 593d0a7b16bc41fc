//! Images: made of containers, described, listed, tagged and removed.

use super::client::Docker;
use super::container::labelled;
use super::error::present;
use super::pausing::check_container_name;
use bollard::models::{ContainerConfig, ImageInspect, ImageSummary};
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, ListImagesOptionsBuilder, RemoveImageOptionsBuilder,
    TagImageOptionsBuilder,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stasis_model::failure::{ErrorKind, Failure};
use std::collections::BTreeMap;

/// An image as it is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DockerImage {
    /// Its id, as in `sha256:…`.
    pub id: String,
    /// What it is called, as in `name:tag`.
    pub tags: Vec<String>,
    /// When it was made, as the engine writes it.
    pub created: String,
    /// How many bytes its layers have when they are unpacked, also those that other images have too.
    pub size_bytes: u64,
    /// The digests of its layers as they are unpacked (diff ids), the lowest first. An engine takes 127 at most.
    pub layers: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What containers of it are given, as the engine writes it. Environment values can be secrets.
    pub config: Value,
    /// For which machines it is, as in `linux/amd64`.
    pub platform: String,
}

impl DockerImage {
    fn of(found: ImageInspect) -> Self {
        let config = found.config.unwrap_or_default();
        let text = Option::unwrap_or_default;
        Self {
            id: found.id.unwrap_or_default(),
            tags: found.repo_tags.unwrap_or_default(),
            created: found.created.unwrap_or_default(),
            size_bytes: bytes(found.size.unwrap_or_default()),
            layers: found
                .root_fs
                .and_then(|root| root.layers)
                .unwrap_or_default(),
            labels: config
                .labels
                .clone()
                .unwrap_or_default()
                .into_iter()
                .collect(),
            config: serde_json::to_value(&config).unwrap_or_default(),
            platform: format!("{}/{}", text(found.os), text(found.architecture)),
        }
    }
}

/// An image in a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListedImage {
    /// Its id, as in `sha256:…`.
    pub id: String,
    /// What it is called; nothing if it has no name.
    pub tags: Vec<String>,
    /// When it was made, in seconds since 1970.
    pub created: i64,
    /// How many bytes its layers have when they are unpacked.
    pub size_bytes: u64,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

impl ListedImage {
    fn of(listed: ImageSummary) -> Self {
        let is_name = |tag: &String| tag != "<none>:<none>";
        Self {
            id: listed.id,
            tags: listed.repo_tags.into_iter().filter(is_name).collect(),
            created: listed.created,
            size_bytes: bytes(listed.size),
            labels: listed.labels.into_iter().collect(),
        }
    }
}

fn bytes(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}

/// What an image that is made of a container is called.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ContainerCommit {
    /// Its name, without a tag.
    pub repository: String,
    /// Its tag.
    pub tag: String,
    /// Labels besides those of the container.
    pub labels: BTreeMap<String, String>,
    /// A remark, shown by `docker history`.
    pub comment: String,
}

impl Docker {
    /// Makes an image of a container's files and configuration, with labels and a name; returns its id.
    ///
    /// The container is not paused for it, because whoever wants that has paused it already. Volumes are not part of it.
    pub async fn commit(
        &self,
        container: &str,
        commit: &ContainerCommit,
    ) -> Result<String, Failure> {
        self.work("commit container", container, async |client| {
            check_container_name(container)?;
            let found = client.inspect_container(container, None).await?;
            // The engine fills in what is left out here, but not everything: the stop signal, say, it forgets.
            let config = found.config.unwrap_or_default();
            commit_as(&client, container, config, commit).await
        })
        .await
    }

    /// Describes an image by its name or id, or `None` when the engine has none.
    pub async fn image(&self, name: &str) -> Result<Option<DockerImage>, Failure> {
        self.ask("inspect image", name, async |client| {
            check_image_name(name)?;
            let found = present(client.inspect_image(name).await)?;
            Ok(found.map(DockerImage::of))
        })
        .await
    }

    /// Lists the images with a label: `name`, or `name=value`.
    pub async fn images_labelled(&self, label: &str) -> Result<Vec<ListedImage>, Failure> {
        self.ask("list the images with label", label, async |client| {
            // Also those that have no name, and of which others were made.
            let options = ListImagesOptionsBuilder::new()
                .all(true)
                .filters(&labelled(label));
            let listed = client.list_images(Some(options.build())).await?;
            Ok(listed.into_iter().map(ListedImage::of).collect())
        })
        .await
    }

    /// Gives an image one more name; another image that has it loses it.
    pub async fn tag_image(&self, image: &str, repository: &str, tag: &str) -> Result<(), Failure> {
        self.ask("tag image", image, async |client| {
            check_image_name(image)?;
            let options = TagImageOptionsBuilder::new().repo(repository).tag(tag);
            Ok(client.tag_image(image, Some(options.build())).await?)
        })
        .await
    }

    /// Removes a name of an image, and the image with the last one; says whether there was one.
    ///
    /// An image that a container uses, or an id with several names, is a conflict.
    pub async fn remove_image(&self, name: &str) -> Result<bool, Failure> {
        self.work("remove image", name, async |client| {
            check_image_name(name)?;
            let options = RemoveImageOptionsBuilder::new().force(false).build();
            let removed = client.remove_image(name, Some(options), None).await;
            Ok(present(removed)?.is_some())
        })
        .await
    }
}

/// Commits a container with a configuration that is not its own.
pub(super) async fn commit_as(
    client: &bollard::Docker,
    container: &str,
    mut config: ContainerConfig,
    commit: &ContainerCommit,
) -> Result<String, super::error::CallError> {
    let labels = config.labels.get_or_insert_default();
    labels.extend(commit.labels.clone());
    let options = CommitContainerOptionsBuilder::new()
        .container(container)
        .repo(&commit.repository)
        .tag(&commit.tag)
        .comment(&commit.comment)
        .pause(false);
    let made = client.commit_container(options.build(), config).await?;
    Ok(made.id)
}

/// Refuses what would name another part of the API.
pub(super) fn check_image_name(name: &str) -> Result<(), Failure> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-/:@".contains(&byte);
    let begins = name
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    let parts = name.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if begins && parts && name.bytes().all(allowed) {
        return Ok(());
    }
    let why = "an image is named as in name:tag, or by its id";
    Err(Failure::of(ErrorKind::Invalid, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_reach_another_part_of_the_api_is_refused() {
        for name in ["", "../containers/x", "a/../b", "a//b", "a?b", "/a", "a b"] {
            assert!(check_image_name(name).is_err(), "{name}");
        }
        for name in ["sha256:0123", "host:5000/a/b:c", "a@sha256:0123"] {
            assert!(check_image_name(name).is_ok(), "{name}");
        }
    }
}
