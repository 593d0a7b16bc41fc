//! What differs between two snapshots of a container, or between one and the container as it is.

use super::fill::part_of;
use super::find::FoundSnapshot;
use super::own_files::OwnFiles;
use super::volumes::VolumePlace;
use super::{ContainerHost, SeenEngine};
use crate::catalog::SnapshotSelector;
use crate::error::Error;
use crate::handle::Containers;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use stasis_model::format::manifest::Environment;
use stasis_model::id::SnapshotId;
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_model::tree::EntryPath;
use stasis_model::tree::diff::ChangeKind;
use std::collections::{BTreeMap, BTreeSet};

/// What is written for a value that may be a secret.
pub(super) const MASKED: &str = "********";

/// A setting of a container that differs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SettingDifference {
    /// Which, as in `HostConfig.Memory`. Values of the environment are masked.
    pub setting: String,
    /// What it was; none if it was not there.
    pub before: Option<Value>,
    /// What it is.
    pub after: Option<Value>,
}

/// An entry of a volume that differs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct VolumeDifference {
    /// Which volume.
    pub volume: String,
    /// Which entry of it; nothing if the whole volume is there only once.
    pub path: String,
    /// In what it differs.
    pub change: ChangeKind,
}

/// What differs in a container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ContainerDiff {
    /// The older snapshot.
    pub before: SnapshotId,
    /// The newer one; none is the container as it is.
    pub after: Option<SnapshotId>,
    /// Settings.
    pub config: Vec<SettingDifference>,
    /// Entries of volumes, by content.
    pub volumes: Vec<VolumeDifference>,
    /// Files of the container itself, as far as they are in no volume.
    pub image: Vec<ImageDifference>,
    /// What was not compared, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_compared: Vec<String>,
}

/// A file of a container itself that differs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ImageDifference {
    /// Where in the container.
    pub path: String,
    /// `added`, `modified` or `deleted`, as `docker diff` says it.
    pub change: String,
}

/// The settings of a container, as far as they are compared.
struct Settings {
    config: Value,
    host_config: Value,
    networks: Value,
    environment: Environment,
}

impl Containers<'_> {
    /// What differs between a snapshot and another one, or the container as it is.
    pub async fn diff(
        self,
        host: &ContainerHost,
        before: &SnapshotRef,
        after: Option<&SnapshotRef>,
        container: Option<&str>,
    ) -> Result<ContainerDiff, Error> {
        let seen = host.look().await?;
        let here = Some(seen.digits.as_str());
        let tenant = &host.tenant;
        let container = host.name_of(container).await;
        let of = container.as_deref();
        let old = self.snapshot(tenant, before, of, here).await?;
        let of = old.of.subject.as_str().to_owned();
        let mut diff = ContainerDiff {
            before: old.id.clone(),
            after: None,
            config: Vec::new(),
            volumes: Vec::new(),
            image: Vec::new(),
            not_compared: Vec::new(),
        };
        let old_settings = old.settings().await?;
        if let Some(after) = after {
            let new = self.snapshot(tenant, after, Some(&of), here).await?;
            diff.after = Some(new.id.clone());
            diff.config = old_settings.compare(&new.settings().await?);
            diff.volumes = old.volume_changes(&new).await?;
            if old.container.image.layers != new.container.image.layers {
                let files = (
                    old.own_files(self, &seen).await?,
                    new.own_files(self, &seen).await?,
                );
                diff.own_files(files);
            }
            return Ok(diff);
        }
        let live = seen.container(&old.container.container_name).await?;
        let environment = serde_json::from_value(live.config["Env"].clone());
        diff.config = old_settings.compare(&Settings {
            config: live.config.clone(),
            host_config: live.host_config.clone(),
            networks: live.networks.clone(),
            environment: environment.unwrap_or_default(),
        });
        old.live_changes(&seen, &mut diff).await?;
        let files = match old.own_files(self, &seen).await? {
            Some(files) => (Some(files), Some(OwnFiles::of(&seen, &live.id).await?)),
            None => (None, None),
        };
        diff.own_files(files);
        Ok(diff)
    }
}

impl ContainerDiff {
    /// Compares files that are in no volume; says that they were not compared, where some are missing.
    fn own_files(&mut self, (old, new): (Option<OwnFiles>, Option<OwnFiles>)) {
        if let (Some(old), Some(new)) = (old, new) {
            self.image = old.compare(&new);
            return;
        }
        let said = "files of the container that are in no volume: the image is not on this engine";
        self.not_compared.push(said.to_owned());
    }
}

impl FoundSnapshot {
    async fn settings(&self) -> Result<Settings, Error> {
        Ok(Settings {
            config: self.container.config.clone(),
            host_config: self.container.host_config.clone(),
            networks: self.container.networks.clone(),
            environment: self.environment().await?,
        })
    }

    /// What differs in the volumes of two snapshots.
    async fn volume_changes(&self, new: &Self) -> Result<Vec<VolumeDifference>, Error> {
        let select = |id: &SnapshotId| SnapshotSelector::new(SnapshotRef::Text(id.to_string()));
        let dirs = self.of.engine.dirs();
        let found = dirs.diff(&select(&self.id), &select(&new.id)).await?;
        let mut volumes: BTreeMap<EntryPath, String> = BTreeMap::new();
        for one in self.container.volumes.iter().chain(&new.container.volumes) {
            volumes.insert(part_of(one)?, one.name.clone());
        }
        let rows = found.into_iter().filter_map(|one| {
            let path: EntryPath = one.path.parse().ok()?;
            let (part, volume) = volumes.iter().find(|(part, _)| path.is_within(part))?;
            let inside = path.seen_from(part);
            Some(VolumeDifference {
                volume: volume.clone(),
                path: inside.map_or_else(|| ".".to_owned(), |path| path.to_string()),
                change: one.change,
            })
        });
        Ok(rows.collect())
    }

    /// What differs in the volumes as they are.
    async fn live_changes(&self, seen: &SeenEngine, diff: &mut ContainerDiff) -> Result<(), Error> {
        for volume in &self.container.volumes {
            let Some(place) = seen.place_if_there(volume).await? else {
                diff.volumes.push(VolumeDifference {
                    volume: volume.name.clone(),
                    path: String::new(),
                    change: ChangeKind::Removed,
                });
                continue;
            };
            match place {
                VolumePlace::Directory(directory) => {
                    let part = part_of(volume)?;
                    let found = self.differing(&part, &directory).await?;
                    let rows = found.into_iter().map(|(path, change)| VolumeDifference {
                        volume: volume.name.clone(),
                        path: path.to_string(),
                        change,
                    });
                    diff.volumes.extend(rows);
                }
                VolumePlace::Engine(why) => {
                    diff.not_compared.push(format!("{}: {why}", volume.name));
                }
            }
        }
        Ok(())
    }
}

impl Settings {
    /// What differs, by setting.
    fn compare(&self, new: &Self) -> Vec<SettingDifference> {
        let mut found = Vec::new();
        let parts = [
            ("Config", &self.config, &new.config),
            ("HostConfig", &self.host_config, &new.host_config),
            ("Networks", &self.networks, &new.networks),
        ];
        for (name, before, after) in parts {
            compare(name, before, after, &mut found);
        }
        found.extend(environment(&self.environment, &new.environment));
        found
    }
}

/// What the engine makes of each container anew.
const OWN: [&str; 4] = [
    "Config.Env",
    "Config.Image",
    "Config.Hostname",
    "Config.Labels",
];

/// Settings that differ, down to those that have no parts.
fn compare(name: &str, before: &Value, after: &Value, found: &mut Vec<SettingDifference>) {
    if before == after || OWN.contains(&name) || (is_nothing(before) && is_nothing(after)) {
        return;
    }
    if let (Value::Object(before), Value::Object(after)) = (before, after) {
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for one in names {
            let value = |all: &Map<String, Value>| all.get(one).cloned().unwrap_or_default();
            compare(
                &format!("{name}.{one}"),
                &value(before),
                &value(after),
                found,
            );
        }
        return;
    }
    let there = |value: &Value| (!value.is_null()).then(|| value.clone());
    found.push(SettingDifference {
        setting: name.to_owned(),
        before: there(before),
        after: there(after),
    });
}

/// Whether a setting says nothing: engines write that in several ways.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        _ => false,
    }
}

/// Variables that differ; their values may be secrets.
fn environment(before: &Environment, after: &Environment) -> Vec<SettingDifference> {
    let values = |all: &Environment| -> BTreeMap<String, String> {
        let all = all
            .iter()
            .map(|one| one.split_once('=').unwrap_or((one, "")));
        all.map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    };
    let (before, after) = (values(before), values(after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differing = names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name));
    let masked = |there: bool| there.then(|| Value::from(MASKED));
    differing
        .map(|name| SettingDifference {
            setting: format!("Config.Env.{name}"),
            before: masked(before.contains_key(name)),
            after: masked(after.contains_key(name)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn settings(config: Value, environment: &[&str]) -> Settings {
        Settings {
            config,
            host_config: json!({"Memory": 0}),
            networks: json!({}),
            environment: environment.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn settings_are_compared_and_values_of_the_environment_are_not_shown() {
        let before = settings(
            json!({"Cmd": ["a"], "User": "", "Env": ["A=1"]}),
            &["A=1", "B=2"],
        );
        let after = settings(
            json!({"Cmd": ["b"], "User": null, "Env": ["A=9"]}),
            &["A=9", "C=3"],
        );

        let found = before.compare(&after);

        let names: Vec<&str> = found.iter().map(|one| one.setting.as_str()).collect();
        let wanted = ["Config.Cmd", "Config.Env.A", "Config.Env.B", "Config.Env.C"];
        assert_eq!(names, wanted);
        assert_eq!(found[0].before, Some(json!(["a"])));
        assert_eq!(found[1].after, Some(json!(MASKED)));
        assert_eq!(
            (found[2].after.clone(), found[3].before.clone()),
            (None, None)
        );
        assert!(before.compare(&before).is_empty());
    }
}
