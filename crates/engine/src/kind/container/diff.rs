//! What differs between two snapshots of a container, or between one and the container as it is.

use super::fill::part_of;
use super::find::FoundSnapshot;
use super::image::original_image;
use super::own_files::OwnFiles;
use super::volumes::VolumePlace;
use super::{ContainerHost, SeenEngine};
use crate::catalog::SnapshotSelector;
use crate::error::Error;
use crate::handle::Containers;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use stasis_model::container::mount::{ContainerMount, ContainerMountKind};
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
    /// What is mounted in it, by place.
    mounts: Value,
    networks: Value,
    environment: Environment,
    /// What its own image is called, or the first one in its chain of snapshots.
    image: String,
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
            mounts: mounted(&live.mounts, &live.host_config),
            networks: asked_networks(&live.networks, &live.id),
            environment: environment.unwrap_or_default(),
            image: original_image(&live),
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
            mounts: mounted(&self.container.mounts, &self.container.host_config),
            networks: asked_networks(&self.container.networks, &self.container.container_id),
            environment: self.environment().await?,
            image: self.container.original_image.clone(),
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
            ("Mounts", &self.mounts, &new.mounts),
            ("Networks", &self.networks, &new.networks),
        ];
        for (name, before, after) in parts {
            compare(name, before, after, &mut found);
        }
        found.extend(labels(&self.config, &new.config));
        if self.image != new.image {
            found.push(SettingDifference {
                setting: "Config.Image".to_owned(),
                before: Some(self.image.as_str().into()),
                after: Some(new.image.as_str().into()),
            });
        }
        found.extend(environment(&self.environment, &new.environment));
        found
    }
}

/// What an engine or a restore makes of each container anew, and what is compared in a way of its own.
const OWN: [&str; 6] = [
    "Config.Env",
    "Config.Image",
    "Config.Hostname",
    "Config.Labels",
    "HostConfig.Binds",
    "HostConfig.Mounts",
];

/// How all labels begin that are ours.
const OWN_LABELS: &str = "stasis.";

/// What somebody asked for in a network; the rest an engine makes of each container anew.
const ASKED: [&str; 5] = ["Aliases", "DriverOpts", "GwPriority", "IPAMConfig", "Links"];

/// The networks of a container, with what somebody asked for in each. Engines before 25 add the beginning of its id to its names.
pub(super) fn asked_networks(networks: &Value, id: &str) -> Value {
    let mut networks = networks.clone();
    let all = networks.as_object_mut();
    for network in all.into_iter().flat_map(|all| all.values_mut()) {
        if let Some(settings) = network.as_object_mut() {
            settings.retain(|name, _| ASKED.contains(&name.as_str()));
        }
        if let Some(aliases) = network.get_mut("Aliases").and_then(Value::as_array_mut) {
            aliases.retain(|alias| !alias.as_str().is_some_and(|alias| is_short(alias, id)));
        }
    }
    networks
}

/// What is mounted in a container, by place. A restore writes mounts in another way, which means the same.
fn mounted(mounts: &[ContainerMount], host_config: &Value) -> Value {
    let rows = mounts.iter().map(|mount| {
        let place = &mount.destination;
        let what = match (mount.kind, &mount.volume) {
            // The engine names it, anew for each container.
            (ContainerMountKind::AnonymousVolume, _) => None,
            (_, Some(volume)) => Some(volume),
            (_, None) => Some(&mount.source),
        };
        let row = json!({
            "kind": mount.kind,
            "from": what,
            "writable": mount.writable,
            "driver": mount.driver,
            "options": mount_options(host_config, place),
        });
        (place.clone(), row)
    });
    Value::Object(rows.collect())
}

/// How something is mounted, but for what the engine says of it, and for what a restore adds: its volumes are not empty.
fn mount_options(host_config: &Value, place: &str) -> Value {
    let all = |name: &str| host_config[name].as_array().into_iter().flatten();
    let is_here = |one: &str| one.trim_end_matches('/') == place;
    for bind in all("Binds").filter_map(Value::as_str) {
        let parts: Vec<&str> = bind.split(':').collect();
        if let [_, there, options] = parts[..]
            && is_here(there)
        {
            let own = ["nocopy", "ro", "rw"];
            let options = options.split(',').filter(|one| !own.contains(one));
            return options.collect::<BTreeSet<_>>().into_iter().collect();
        }
    }
    let is_it = |mount: &&Value| mount["Target"].as_str().is_some_and(is_here);
    let Some(mount) = all("Mounts").find(is_it) else {
        return Value::Null;
    };
    let said = [
        ("bind", &mount["BindOptions"]),
        ("subpath", &mount["VolumeOptions"]["Subpath"]),
        ("memory", &mount["TmpfsOptions"]),
    ];
    let said = said.into_iter().filter(|(_, value)| !is_nothing(value));
    let said = said.map(|(name, value)| (name.to_owned(), value.clone()));
    Value::Object(said.collect())
}

/// Whether a name is the beginning of an id, as engines write it.
fn is_short(name: &str, id: &str) -> bool {
    name.len() == 12 && id.starts_with(name)
}

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

/// Labels that differ. Those of a restore, and those of the image of a snapshot, are none of the user's.
fn labels(before: &Value, after: &Value) -> Vec<SettingDifference> {
    let none = Map::new();
    let before = before["Labels"].as_object().unwrap_or(&none);
    let after = after["Labels"].as_object().unwrap_or(&none);
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differing = names
        .into_iter()
        .filter(|name| !name.starts_with(OWN_LABELS) && before.get(*name) != after.get(*name));
    differing
        .map(|name| SettingDifference {
            setting: format!("Config.Labels.{name}"),
            before: before.get(name).cloned(),
            after: after.get(name).cloned(),
        })
        .collect()
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

    fn settings(config: Value, environment: &[&str]) -> Settings {
        Settings {
            config,
            host_config: json!({"Memory": 0}),
            mounts: json!({}),
            networks: json!({}),
            environment: environment.iter().map(ToString::to_string).collect(),
            image: "base".to_owned(),
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

    #[test]
    fn labels_and_the_image_are_compared_and_what_a_restore_writes_is_not() {
        let before = settings(
            json!({"Image": "base", "Labels": {"app": "shop", "gone": "", "stasis.snapshot": "1"}}),
            &[],
        );
        let mut after = settings(
            json!({"Image": "stasis-snapshot:2", "Labels": {"app": "store", "stasis.restore": "2"}}),
            &[],
        );
        let names = |found: Vec<SettingDifference>| -> Vec<String> {
            found.into_iter().map(|one| one.setting).collect()
        };

        let found = before.compare(&after);
        assert_eq!(found[0].before, Some(json!("shop")));
        assert_eq!(found[0].after, Some(json!("store")));
        assert_eq!(names(found), ["Config.Labels.app", "Config.Labels.gone"]);
        after.image = "other".to_owned();
        let found = before.compare(&after);
        assert_eq!(found[2].after, Some(json!("other")));
        let none = settings(json!({"Labels": null}), &[]);
        assert_eq!(
            names(none.compare(&before)),
            ["Config.Labels.app", "Config.Labels.gone"]
        );
    }

    #[test]
    fn of_networks_only_that_is_compared_which_somebody_asked_for() {
        let network = |endpoint: &str, names: &[&str]| json!({"shop": {"EndpointID": endpoint, "IPAddress": endpoint, "Aliases": names}});
        let of = |networks: &Value, id: &str| Settings {
            networks: asked_networks(networks, id),
            ..settings(json!({}), &[])
        };
        let (id, other) = ("0123456789abcdef", "fedcba9876543210");
        let before = of(&network("1", &["web", &id[..12]]), id);
        let after = of(&network("2", &["web", &other[..12]]), other);
        let renamed = of(&network("2", &["db", &other[..12]]), other);

        assert!(before.compare(&after).is_empty());
        let found = before.compare(&renamed);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].setting, "Networks.shop.Aliases");
        assert_eq!(found[0].after, Some(json!(["db"])));
        let left = of(&json!({}), other);
        assert_eq!(before.compare(&left)[0].setting, "Networks.shop");
    }

    #[test]
    fn mounts_are_compared_as_they_are_and_not_as_they_are_written() {
        let mount = |kind, volume: &str| ContainerMount {
            kind,
            volume: Some(volume.to_owned()),
            source: format!("/volumes/{volume}"),
            destination: "/data".to_owned(),
            writable: true,
            driver: None,
        };
        let of = |mount: ContainerMount, host_config: Value| Settings {
            mounts: mounted(&[mount], &host_config),
            ..settings(json!({}), &[])
        };
        let named = |volume| mount(ContainerMountKind::NamedVolume, volume);
        let before = of(named("a"), json!({"Binds": ["a:/data/"]}));
        let again = of(named("a"), json!({"Binds": ["a:/data:nocopy"]}));
        let long = of(
            named("a"),
            json!({"Mounts": [{"Target": "/data", "VolumeOptions": {"NoCopy": true}}]}),
        );
        let other = of(named("b"), json!({"Binds": ["b:/data:z,nocopy"]}));
        let anonymous = |volume| {
            of(
                mount(ContainerMountKind::AnonymousVolume, volume),
                json!({}),
            )
        };

        assert!(before.compare(&again).is_empty());
        assert!(before.compare(&long).is_empty());
        assert!(anonymous("1").compare(&anonymous("2")).is_empty());
        let found = before.compare(&other);
        let settings: Vec<&str> = found.iter().map(|one| one.setting.as_str()).collect();
        assert_eq!(settings, ["Mounts./data.from", "Mounts./data.options"]);
        assert_eq!(found[0].after, Some(json!("b")));
    }
}
