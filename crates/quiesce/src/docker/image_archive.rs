//! Images as files: `docker save` and `docker load`.

use super::client::Docker;
use super::image::check_image_name;
use super::stream::{DockerStream, UploadSource};
use bollard::query_parameters::ImportImageOptionsBuilder;
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use stasis_model::failure::Failure;
use std::io;

/// What the engine says before the name or id of each image that it loaded.
const LOADED: [&str; 2] = ["Loaded image: ", "Loaded image ID: "];

impl Docker {
    /// Reads an image with all its layers as a tar archive, as `docker save` writes it.
    pub async fn save_image(&self, name: &str) -> Result<DockerStream, Failure> {
        self.download("save image", name, |client| {
            check_image_name(name)?;
            Ok(client.export_image(name))
        })
        .await
    }

    /// Loads images from a tar archive of `docker save`; returns the name of each, or its id if it has none.
    pub async fn load_image(
        &self,
        tar: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<Vec<String>, Failure> {
        self.work(
            "load an image into",
            self.host().display(),
            async |client| {
                let options = ImportImageOptionsBuilder::new().quiet(true).build();
                let source = UploadSource::default();
                let body = bollard::body_try_stream(source.watch(tar));
                let lines = client.import_image(options, body, None).try_collect();
                let lines: Vec<_> = source.blame(lines.await)?;
                let lines = lines.into_iter().filter_map(|line| line.stream);
                Ok(lines.filter_map(|line| loaded(&line)).collect())
            },
        )
        .await
    }
}

fn loaded(line: &str) -> Option<String> {
    let name = LOADED.iter().find_map(|before| line.strip_prefix(before));
    name.map(|name| name.trim().to_owned())
}
