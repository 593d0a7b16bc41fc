//! The configuration file, and the order in which settings win: flag, variable, file, default.

use crate::env::Environment;
use anyhow::{Context, bail};
use serde::Deserialize;
use stasis_engine::open::StoreLocation;
use std::io;
use std::path::{Path, PathBuf};

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

/// Which store is meant.
pub(crate) fn store(
    flag: Option<&str>,
    environment: &Environment,
    config: &Config,
) -> anyhow::Result<StoreLocation> {
    let asked = [
        ("--store", flag),
        ("STASIS_STORE", environment.store.as_deref()),
        ("`store` in the configuration file", config.store.as_deref()),
    ];
    if let Some((origin, Some(url))) = asked.into_iter().find(|(_, url)| url.is_some()) {
        return url
            .parse()
            .with_context(|| format!("{origin} is not the URL of a store"));
    }
    let Some(data) = &environment.data_directory else {
        bail!(
            "neither HOME nor XDG_DATA_HOME is set, so there is no default store; give one with --store URL"
        );
    };
    Ok(StoreLocation::File(PathBuf::from(data).join("store")))
}
