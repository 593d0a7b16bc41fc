//! Files of a container, as a tar archive.
//!
//! Both directions work while the container is paused, and with one that was never started: its volumes are mounted for the
//! call. A volume of a remote engine is read and written so, through a container that nobody ever starts.

use super::client::Docker;
use super::pausing::check_container_name;
use super::stream::{DockerStream, UploadSource};
use bollard::query_parameters::{
    DownloadFromContainerOptionsBuilder, UploadToContainerOptionsBuilder,
};
use bytes::Bytes;
use futures_util::Stream;
use stasis_model::failure::Failure;
use std::io;

impl Docker {
    /// Reads a path of a container as a tar archive. The first part of each name in it is the last part of `path`; with
    /// `/.` at its end, a single dot.
    pub async fn read_archive(&self, container: &str, path: &str) -> Result<DockerStream, Failure> {
        let target = format!("{container}:{path}");
        self.download("read the files of", &target, |client| {
            check_container_name(container)?;
            let options = DownloadFromContainerOptionsBuilder::new().path(path);
            Ok(client.download_from_container(container, Some(options.build())))
        })
        .await
    }

    /// Unpacks a tar archive below a directory of a container, which exists. Owners are those of the archive, by number.
    pub async fn write_archive(
        &self,
        container: &str,
        path: &str,
        tar: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<(), Failure> {
        let target = format!("{container}:{path}");
        self.work("write the files of", &target, async |client| {
            check_container_name(container)?;
            let options = UploadToContainerOptionsBuilder::new().path(path).build();
            let source = UploadSource::default();
            let body = bollard::body_try_stream(source.watch(tar));
            let sent = client
                .upload_to_container(container, Some(options), body)
                .await;
            source.blame(sent)
        })
        .await
    }

    /// Reads all files of a container, without its volumes, as a tar archive: `docker export`.
    pub async fn export_container(&self, container: &str) -> Result<DockerStream, Failure> {
        self.download("export container", container, |client| {
            check_container_name(container)?;
            Ok(client.export_container(container))
        })
        .await
    }
}
