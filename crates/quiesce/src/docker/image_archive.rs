//! Images as files: `docker save` and `docker load`.

use super::client::Docker;
use super::image::check_image_name;
use super::stream::{DockerStream, UploadSource};
use bollard::query_parameters::{CreateImageOptionsBuilder, ImportImageOptionsBuilder};
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use stasis_model::failure::{ErrorKind, Failure};
use std::collections::BTreeMap;
use std::io;

/// What the engine says before the name or id of each image that it loaded.
const LOADED: [&str; 2] = ["Loaded image: ", "Loaded image ID: "];

/// An image that is made of files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageImport {
    /// What it is called.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// A remark, shown by `docker history`.
    pub comment: String,
}

impl Docker {
    /// Reads an image with all its layers as a tar archive, as `docker save` writes it.
    pub async fn save_image(&self, name: &str) -> Result<DockerStream, Failure> {
        self.download("save image", name, |client| {
            check_image_name(name)?;
            Ok(client.export_image(name))
        })
        .await
    }

    /// Makes an image of one layer of a tar of files; returns its id.
    pub async fn import_image(
        &self,
        import: &ImageImport,
        tar: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<String, Failure> {
        self.work("import image", &import.name, async |client| {
            check_image_name(&import.name)?;
            let labels = import.labels.iter();
            let labels =
                labels.map(|(name, value)| format!("LABEL {}={}", quoted(name), quoted(value)));
            let options = CreateImageOptionsBuilder::new()
                .from_src("-")
                .repo(&import.name)
                .message(&import.comment)
                .changes(labels.collect());
            let source = UploadSource::default();
            let body = bollard::body_try_stream(source.watch(tar));
            let lines = client.create_image(Some(options.build()), Some(body), None);
            let lines: Vec<_> = source.blame(lines.try_collect().await)?;
            // The last line is the id.
            let id = lines.into_iter().filter_map(|line| line.status).next_back();
            let id = id.filter(|id| id.starts_with("sha256:"));
            id.ok_or_else(|| Failure::of(ErrorKind::Failed, "the engine named no image").into())
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
