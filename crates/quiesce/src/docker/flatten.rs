//! One layer instead of many.
//!
//! Each commit adds a layer, and an engine takes 127 at most. A container near the limit is committed by its files:
//!
//! 1. export the container's files, and import them as an image of one layer, without holding them in memory
//! 2. make a container of that image, which is never started
//! 3. commit it with the configuration of the first container, and the wanted name and labels
//! 4. remove what 2 made
//!
//! *Always true:* the wanted name is given in 3, to a whole image. A crash before leaves an image or a container that has
//! the wanted labels, for whoever cleans up by them.

use super::client::Docker;
use super::creation::ContainerCreation;
use super::image::{ContainerCommit, DockerImage, commit_as};
use super::lifecycle::VolumeRemoval;
use super::pausing::check_container_name;
use super::stream::UploadSource;
use bollard::models::ContainerConfig;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::TryStreamExt;
use stasis_model::failure::{ErrorKind, Failure};

impl Docker {
    /// The same as [`Docker::commit`], as an image of one layer; with the configuration of an image instead of the container's, if one is
    /// named.
    pub async fn flatten(
        &self,
        container: &str,
        configured_as: Option<&DockerImage>,
        commit: &ContainerCommit,
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
        let files = self.import_files(container, commit).await?;
        let committed = self.commit_files(&files, config, commit).await;
        if committed.is_err() {
            // It has no name, and nobody else knows it.
            let _ = self.remove_image(&files).await;
        }
        committed
    }

    /// Imports the files of a container as an image without a name; returns its id.
    async fn import_files(
        &self,
        container: &str,
        commit: &ContainerCommit,
    ) -> Result<String, Failure> {
        let files = self.export_container(container).await?;
        let labels = commit
            .labels
            .iter()
            .map(|(name, value)| format!("LABEL {}={}", quoted(name), quoted(value)));
        self.work("import the files of container", container, async |client| {
            let options = CreateImageOptionsBuilder::new()
                .from_src("-")
                .message(&commit.comment)
                .changes(labels.collect());
            let source = UploadSource::default();
            let body = bollard::body_try_stream(source.watch(files));
            let lines = client.create_image(Some(options.build()), Some(body), None);
            let lines: Vec<_> = source.blame(lines.try_collect().await)?;
            // The last line is the id.
            let id = lines.into_iter().filter_map(|line| line.status).next_back();
            let id = id.filter(|id| id.starts_with("sha256:"));
            id.ok_or_else(|| Failure::of(ErrorKind::Failed, "the engine named no image").into())
        })
        .await
    }

    /// Gives an image without a configuration the wanted one, and the wanted name.
    async fn commit_files(
        &self,
        files: &str,
        mut config: ContainerConfig,
        commit: &ContainerCommit,
    ) -> Result<String, Failure> {
        let mut helper = ContainerCreation::from_image("", files);
        helper.overrides.labels.clone_from(&commit.labels);
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

/// A word of an instruction, in quotes.
fn quoted(word: &str) -> String {
    let mut quoted = String::from("\"");
    for character in word.chars() {
        if matches!(character, '"' | '\\' | '$') {
            quoted.push('\\');
        }
        // An instruction is one line.
        quoted.push(if character == '\n' { ' ' } else { character });
    }
    quoted.push('"');
    quoted
}
