//! One layer instead of many.
//!
//! Each commit adds a layer, and an engine takes 127 at most. A container near the limit is committed by its files:
//!
//! 1. export the container's files, and import them as an image of one layer, without holding them in memory
//! 2. make a container of that image, which is never started
//! 3. commit it with the configuration of the first container, and the wanted name and labels
//! 4. remove what 2 made, and the name of what 1 made
//!
//! *Always true:* the wanted name is given in 3, to a whole image. A crash leaves an image or a container that whoever asked can
//! name: by the tag, and by the labels, that he gave.

use super::client::Docker;
use super::creation::ContainerCreation;
use super::image::{ContainerCommit, DockerImage, commit_as};
use super::image_archive::ImageImport;
use super::lifecycle::VolumeRemoval;
use super::pausing::check_container_name;
use bollard::models::ContainerConfig;
use stasis_model::failure::{ErrorKind, Failure};
use std::collections::BTreeMap;

/// What an image and a container are known by that are there only while one layer is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlattenScratch {
    /// The tag of the image, in the repository of the wanted one.
    pub tag: String,
    /// The labels of the container.
    pub helper_labels: BTreeMap<String, String>,
}

impl Docker {
    /// The same as [`Docker::commit`], as an image of one layer; with the configuration of an image instead of the container's, if one is
    /// named.
    pub async fn flatten(
        &self,
        container: &str,
        configured_as: Option<&DockerImage>,
        commit: &ContainerCommit,
        scratch: &FlattenScratch,
    ) -> Result<String, Failure> {
        let config = self.ask("inspect container", container, async |client| {
            check_container_name(container)?;
            let found = client.inspect_container(container, None).await?;
            Ok(found.config.unwrap_or_default())
        });
        let mut config = config.await?;
        if let Some(image) = configured_as {
            let strange = |error| {
                let op = "understand the configuration of image";
                Failure::new(ErrorKind::Invalid, op, &image.id).because(Box::new(error))
            };
            config = serde_json::from_value(image.config.clone()).map_err(strange)?;
        }
        let name = format!("{}:{}", commit.repository, scratch.tag);
        let files = self.import_files(container, &name, commit).await?;
        let committed = self.commit_files(&files, config, (commit, scratch)).await;
        // The image that was made of it has its layer.
        let removed = self.remove_image(&name).await;
        let committed = committed?;
        removed.map(|_| committed)
    }

    /// Imports the files of a container as an image; returns its id.
    async fn import_files(
        &self,
        container: &str,
        name: &str,
        commit: &ContainerCommit,
    ) -> Result<String, Failure> {
        let files = self.export_container(container).await?;
        let import = ImageImport {
            name: name.to_owned(),
            labels: commit.labels.clone(),
            comment: commit.comment.clone(),
        };
        self.import_image(&import, files).await
    }

    /// Gives an image without a configuration the wanted one, and the wanted name.
    async fn commit_files(
        &self,
        files: &str,
        mut config: ContainerConfig,
        (commit, scratch): (&ContainerCommit, &FlattenScratch),
    ) -> Result<String, Failure> {
        let mut helper = ContainerCreation::from_image("", files);
        helper.overrides.labels.clone_from(&scratch.helper_labels);
        // It needs some command, which nobody runs.
        helper.config["Cmd"] = serde_json::json!(["none"]);
        let helper = self.create_container(&helper).await?;
        config.image = Some(files.to_owned());
        let committed = self.work(
            "commit the files as image",
            &commit.repository,
            async |client| commit_as(&client, &helper, config, commit).await,
        );
        let committed = committed.await;
        let removed = self
            .remove_container(&helper, VolumeRemoval::Anonymous)
            .await;
        let committed = committed?;
        removed.map(|_| committed)
    }
}
