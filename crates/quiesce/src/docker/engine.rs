//! The engine itself.

use super::client::Docker;
use serde::{Deserialize, Serialize};
use stasis_model::failure::Failure;
use std::path::{Path, PathBuf};

/// What an engine says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DockerEngine {
    /// Its own id, which stays the same for as long as its data.
    pub id: String,
    /// The version of the engine, as in `20.10.24`.
    pub version: String,
    /// The version of the API that is used, as in `1.41`.
    pub api: String,
    /// What keeps its layers, as in `overlay2`.
    pub storage_driver: String,
    /// Where its data are, on its own host.
    pub root: PathBuf,
    /// Whether that host is this one, its data can be seen from here, and files have the same owners for both: volumes can be read where
    /// they are.
    pub local: bool,
}

impl Docker {
    /// Describes the engine.
    pub async fn engine(&self) -> Result<DockerEngine, Failure> {
        let op = "describe the Docker engine at";
        let host = self.host().display();
        let info = self
            .ask(op, host, async |client| Ok(client.info().await?))
            .await?;
        let root = PathBuf::from(info.docker_root_dir.unwrap_or_default());
        let same_host = is_this_host(info.name.as_deref(), info.kernel_version.as_deref());
        // Owners of files in a container are others for the host.
        let options = info.security_options.unwrap_or_default();
        let is_mapped = options
            .iter()
            .any(|one| one.contains("name=userns") || one.contains("name=rootless"));
        Ok(DockerEngine {
            id: info.id.unwrap_or_default(),
            version: info.server_version.unwrap_or_default(),
            api: self.api().await?.to_string(),
            storage_driver: info.driver.unwrap_or_default(),
            local: self.is_socket() && same_host && is_there(&root) && !is_mapped,
            root,
        })
    }

    /// Asks for a sign of life.
    pub async fn ping(&self) -> Result<(), Failure> {
        let host = self.host().display();
        self.ask("ping the Docker daemon at", host, async |client| {
            client.ping().await?;
            Ok(())
        })
        .await
    }
}

/// An engine in a virtual machine has another kernel; a process in a container has another host name.
fn is_this_host(name: Option<&str>, kernel: Option<&str>) -> bool {
    let here = rustix::system::uname();
    let same = |said: Option<&str>, ours: &std::ffi::CStr| {
        said.is_some_and(|said| ours.to_str() == Ok(said))
    };
    same(name, here.nodename()) && same(kernel, here.release())
}

/// Whether there is a directory, which we need not be allowed to read.
fn is_there(root: &Path) -> bool {
    root.is_absolute() && root.is_dir()
}
