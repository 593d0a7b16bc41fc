//! The configuration file, and the order in which settings win: flag, variable, file, default.

use crate::env::Environment;
use crate::profile_settings::ProfileDefaults;
use anyhow::{Context, bail};
use serde::Deserialize;
use stasis_engine::error::Error;
use stasis_engine::model::format::job::JobName;
use stasis_engine::model::id::{Label, TenantId};
use stasis_engine::open::StoreLocation;
use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

/// `config.toml`: every key may be left out, none may be misspelt.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// The store's URL.
    pub(crate) store: Option<String>,
    /// What this host is called in locks and manifests.
    pub(crate) host: Option<String>,
    /// A file with the tenant's key.
    pub(crate) key_file: Option<PathBuf>,
    /// A command that prints the tenant's key.
    pub(crate) key_command: Option<String>,
    /// Which log events are shown.
    pub(crate) log: Option<String>,
    /// What `stasis serve` takes where neither a flag nor a variable says it.
    #[serde(default)]
    pub(crate) serve: ServeDefaults,
    /// What commands about browser profiles take where neither a flag nor a variable says it.
    #[serde(default)]
    pub(crate) profile: ProfileDefaults,
}

/// Settings of `stasis serve`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServeDefaults {
    /// The address and port it listens at.
    pub(crate) listen: Option<String>,
    /// The certificate with which it speaks TLS, and those that lead from it to one that clients know.
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate.
    pub(crate) tls_key: Option<PathBuf>,
    /// Workspaces of this host that models may work in over HTTP, by name.
    #[serde(default)]
    pub(crate) workspaces: BTreeMap<Label, WorkspaceDefaults>,
    /// Directories of this host beneath which it saves and restores for whoever has a token for that.
    #[serde(default)]
    pub(crate) roots: Vec<PathBuf>,
    /// What it does without being asked.
    #[serde(default)]
    pub(crate) jobs: BTreeMap<JobName, JobDefaults>,
    /// Projects of this host that it saves without being asked, by name.
    #[serde(default)]
    pub(crate) projects: BTreeMap<Label, ProjectDefaults>,
    /// Containers of the host's Docker engine of which it makes snapshots without being asked, by name.
    #[serde(default)]
    pub(crate) containers: BTreeMap<Label, ContainerDefaults>,
    /// How much content its jobs move in a second, such as `20MiB/s`.
    pub(crate) background_bandwidth: Option<String>,
}

/// A workspace that models work in over HTTP.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkspaceDefaults {
    /// Where it is.
    pub(crate) dir: PathBuf,
    /// Whose tokens open it; `default` when not given.
    #[serde(default)]
    pub(crate) tenant: TenantId,
    /// Where forks of its checkpoints are made; without, models make none.
    pub(crate) forks: Option<PathBuf>,
}

/// A project that is saved without being asked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProjectDefaults {
    /// Where it is.
    pub(crate) dir: PathBuf,
    /// Whose it is, in a store that others use too; `default` when not given.
    #[serde(default)]
    pub(crate) tenant: TenantId,
    /// Whether its programs may be paused for a save, and its hooks run.
    #[serde(default)]
    pub(crate) hold_services: bool,
}

/// A container of which snapshots are made without being asked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ContainerDefaults {
    /// Its name, or its id; what it is called here when not given.
    pub(crate) container: Option<String>,
    /// Whose snapshots they are; `default` when not given.
    #[serde(default)]
    pub(crate) tenant: TenantId,
    /// How often, such as `30m`; every hour when not given.
    pub(crate) every: Option<String>,
    /// For how long it may stand still each time, such as `5s`.
    pub(crate) max_freeze: Option<String>,
}

/// Settings of one job.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobDefaults {
    /// How often it begins, such as `5m`.
    pub(crate) every: Option<String>,
    /// Whether it does not run at all on this server.
    #[serde(default)]
    pub(crate) off: bool,
}

impl Config {
    /// Reads the file that was asked for, or the usual one if it is there.
    pub(crate) fn read(asked: Option<&Path>, environment: &Environment) -> anyhow::Result<Self> {
        let usual = environment.config_file.as_deref();
        let Some(path) = asked.or(usual) else {
            return Ok(Self::default());
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if asked.is_none() && error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("could not read the configuration `{}`", path.display())
                });
            }
        };
        toml::from_str(&text)
            .with_context(|| format!("the configuration `{}` is not valid", path.display()))
    }
}

/// The store that a URL or a path names.
pub(crate) fn store_named(named: &str) -> anyhow::Result<StoreLocation> {
    // A path is not mistaken for anything else here, and people type paths.
    if named.starts_with(['/', '.']) {
        return Ok(StoreLocation::File(whole(Path::new(named))?));
    }
    if is_relative(named) {
        return Err(Error::relative_store(named).into());
    }
    located(named)
}

/// Whether this is a path, if anything, that does not look like one. What has a colon may be meant as a URL, and
/// what stands before an `@` may be a password, which is not repeated.
fn is_relative(named: &str) -> bool {
    !named.is_empty() && !named.starts_with(['/', '.', '~']) && !named.contains([':', '@'])
}

/// The whole path of what may not be there yet, without a `..` in it.
fn whole(path: &Path) -> anyhow::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    if !path.components().any(|part| part == Component::ParentDir) {
        return Ok(path);
    }
    // What `..` leads to is known only of what is there.
    let mut there = path.ancestors().filter(|part| part.exists());
    let there = there.next().unwrap_or(Path::new("/"));
    let rest = path.strip_prefix(there).unwrap_or(Path::new(""));
    if rest.components().any(|part| part == Component::ParentDir) {
        bail!(
            "`{}` leads through a directory that is not there",
            path.display()
        );
    }
    let there = there
        .canonicalize()
        .with_context(|| format!("could not find `{}`", there.display()))?;
    Ok(there.join(rest))
}

fn located(url: &str) -> anyhow::Result<StoreLocation> {
    Ok(url.parse().map_err(Error::bad_location)?)
}

/// Which store is meant.
pub(crate) fn store(
    flag: Option<&str>,
    environment: &Environment,
    config: &Config,
) -> anyhow::Result<StoreLocation> {
    if let Some(named) = flag {
        return store_named(named).context("--store does not name a store");
    }
    let remembered = [
        ("STASIS_STORE", environment.store.as_deref()),
        ("`store` in the configuration file", config.store.as_deref()),
    ];
    if let Some((origin, Some(named))) = remembered.into_iter().find(|(_, named)| named.is_some()) {
        // It is meant wherever somebody stands: one that begins with a dot would be another store in each directory.
        let store = if named.starts_with('.') {
            located(named)
        } else if is_relative(named) {
            located(&format!("./{named}"))
        } else {
            store_named(named)
        };
        return store.with_context(|| format!("{origin} does not name a store"));
    }
    let Some(data) = &environment.data_directory else {
        bail!(
            "neither HOME nor XDG_DATA_HOME is set, so there is no default store; give one with --store PATH"
        );
    };
    Ok(StoreLocation::File(PathBuf::from(data).join("store")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Where each of the examples below `deploy/config` leads, with the host that is asked.
    const EXAMPLES: [(&str, Option<&str>, &str); 7] = [
        ("s3", None, "eu-central-1"),
        ("minio", Some("https://minio.example.net:9000"), "us-east-1"),
        (
            "r2",
            Some("https://account.r2.cloudflarestorage.com"),
            "auto",
        ),
        ("tigris", Some("https://t3.storage.dev"), "auto"),
        ("garage", Some("https://garage.example.net"), "garage"),
        ("ceph", Some("https://rgw.example.net"), "default"),
        (
            "seaweedfs",
            Some("https://seaweed.example.net:8333"),
            "us-east-1",
        ),
    ];

    #[test]
    fn the_examples_of_configurations_are_read_as_they_are_meant() {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/config");
        let environment = Environment::read();
        let mut files: BTreeMap<String, PathBuf> = std::fs::read_dir(&place)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path))
            .collect();

        for (name, endpoint, region) in EXAMPLES {
            let config = Config::read(files.remove(name).as_deref(), &environment).unwrap();
            let named = config.store.as_deref().unwrap();
            let StoreLocation::S3(location) = store_named(named).unwrap() else {
                panic!("{name}: {named}");
            };
            let found = location.endpoint.map(|endpoint| endpoint.to_string());
            assert_eq!(found.as_deref(), endpoint, "{name}");
            assert_eq!(location.region.as_deref(), Some(region), "{name}");
            assert_eq!(
                (&*location.bucket, &*location.prefix),
                ("stasis-example", "fleet")
            );
            let serve = config.serve;
            assert!(
                serve.tls_cert.is_some() && serve.tls_key.is_some(),
                "{name}"
            );
            serve
                .listen
                .unwrap()
                .parse::<std::net::SocketAddr>()
                .unwrap();
        }
        assert!(files.is_empty(), "{files:?} are not in this test");
    }
}
