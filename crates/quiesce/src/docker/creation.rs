//! A container is made like another one, except for what is said otherwise.

use super::client::Docker;
use super::container::ContainerFacts;
use super::error::CallError;
use super::network::{check_network, connect};
use super::pausing::check_container_name;
use bollard::models::{
    ContainerConfig, ContainerCreateBody, EndpointSettings, HostConfig, Mount, MountType,
    MountVolumeOptions, NetworkingConfig,
};
use bollard::query_parameters::{CreateContainerOptionsBuilder, RemoveContainerOptionsBuilder};
use serde_json::{Value, json};
use stasis_model::failure::{ErrorKind, Failure};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Networks that a container has without being put into them, or that have no settings.
const BUILT_IN: [&str; 5] = ["", "default", "bridge", "host", "none"];

/// A container to be made: configurations as [`ContainerFacts`] has them, and what is different.
#[derive(Clone, PartialEq, Debug)]
pub struct ContainerCreation {
    /// Its name; the engine chooses one if it is empty.
    pub name: String,
    /// `Config`.
    pub config: Value,
    /// `HostConfig`.
    pub host_config: Value,
    /// `NetworkSettings.Networks`: only addresses that somebody chose, aliases, links and options are used.
    pub networks: Value,
    /// What is different.
    pub overrides: ContainerOverrides,
}

/// What is different in a container from the configuration that it is made of.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ContainerOverrides {
    /// Another image, by its name or id.
    pub image: Option<String>,
    /// Variables that are added or replaced.
    pub environment: BTreeMap<String, String>,
    /// Labels that are added or replaced.
    pub labels: BTreeMap<String, String>,
    /// Ports instead of those of the configuration, as in `HostConfig.PortBindings`.
    pub ports: Option<Value>,
    /// Volumes by the place where they are mounted, instead of what was mounted there. The engine copies nothing of the image
    /// into them.
    pub volumes: BTreeMap<String, String>,
    /// Places where nothing is mounted any more.
    pub without_mounts: BTreeSet<String>,
    /// Places that get an empty volume, which the engine names, instead of what was mounted there.
    pub fresh_volumes: BTreeSet<String>,
}

impl ContainerCreation {
    /// One like another. A host name that was made of the other's id is not kept.
    pub fn like(other: &ContainerFacts, name: impl Into<String>) -> Self {
        let mut config = other.config.clone();
        let made_up = |name: &str| !name.is_empty() && other.id.starts_with(name);
        if config["Hostname"].as_str().is_some_and(made_up) {
            config["Hostname"] = json!("");
        }
        let mut networks = other.networks.clone();
        for network in networks
            .as_object_mut()
            .into_iter()
            .flat_map(|all| all.values_mut())
        {
            let aliases = network["Aliases"].as_array_mut();
            if let Some(aliases) = aliases {
                aliases.retain(|alias| !alias.as_str().is_some_and(made_up));
            }
        }
        Self {
            name: name.into(),
            config,
            host_config: other.host_config.clone(),
            networks,
            overrides: ContainerOverrides::default(),
        }
    }

    /// One of an image, with nothing else said.
    pub fn from_image(name: impl Into<String>, image: &str) -> Self {
        Self {
            name: name.into(),
            config: json!({ "Image": image }),
            host_config: json!({}),
            networks: json!({}),
            overrides: ContainerOverrides::default(),
        }
    }

    /// What the engine is asked for, and into which networks the container is put afterwards.
    fn request(&self) -> Result<(ContainerCreateBody, Vec<(String, EndpointSettings)>), Failure> {
        let strange = |error| {
            let op = "understand the configuration of container";
            Failure::new(ErrorKind::Invalid, op, &self.name).because(Box::new(error))
        };
        let config = serde_json::from_value(self.config.clone()).map_err(strange)?;
        let host = serde_json::from_value(self.host_config.clone()).map_err(strange)?;
        let config = self.overrides.config(config);
        let host = self.overrides.host(host).map_err(strange)?;
        let (first, more) = self.endpoints(&host).map_err(strange)?;
        let mut body = serde_json::to_value(config).map_err(strange)?;
        body["HostConfig"] = serde_json::to_value(host).map_err(strange)?;
        let networking = NetworkingConfig {
            endpoints_config: Some(first),
        };
        body["NetworkingConfig"] = serde_json::to_value(networking).map_err(strange)?;
        Ok((serde_json::from_value(body).map_err(strange)?, more))
    }

    /// The network that a container is made in, and the others.
    #[expect(clippy::type_complexity, reason = "two lists of the same")]
    fn endpoints(
        &self,
        host: &HostConfig,
    ) -> serde_json::Result<(
        HashMap<String, EndpointSettings>,
        Vec<(String, EndpointSettings)>,
    )> {
        let mode = host.network_mode.as_deref().unwrap_or_default();
        let networks: BTreeMap<String, EndpointSettings> = match &self.networks {
            Value::Null => BTreeMap::new(),
            networks => serde_json::from_value(networks.clone())?,
        };
        let chosen = networks
            .into_iter()
            .filter(|(name, _)| !BUILT_IN.contains(&name.as_str()));
        let chosen = chosen.map(|(name, settings)| (name, asked_for(settings)));
        let (first, others): (Vec<_>, Vec<_>) = chosen.partition(|(name, _)| name == mode);
        Ok((first.into_iter().collect(), others))
    }
}

/// Only what somebody asks for; the rest is what the engine made of it.
fn asked_for(settings: EndpointSettings) -> EndpointSettings {
    EndpointSettings {
        ipam_config: settings.ipam_config,
        links: settings.links,
        aliases: settings.aliases,
        driver_opts: settings.driver_opts,
        ..EndpointSettings::default()
    }
}

impl ContainerOverrides {
    fn config(&self, mut config: ContainerConfig) -> ContainerConfig {
        if let Some(image) = &self.image {
            config.image = Some(image.clone());
        }
        let variables = config.env.get_or_insert_default();
        variables.retain(|variable| {
            let name = variable.split('=').next().unwrap_or_default();
            !self.environment.contains_key(name)
        });
        let added = self.environment.iter();
        variables.extend(added.map(|(name, value)| format!("{name}={value}")));
        let labels = config.labels.get_or_insert_default();
        labels.extend(self.labels.clone());
        if let Some(volumes) = &mut config.volumes {
            volumes.retain(|place| !self.without_mounts.contains(place));
        }
        if !self.fresh_volumes.is_empty() {
            let volumes = config.volumes.get_or_insert_default();
            let fresh = self.fresh_volumes.iter();
            let fresh: Vec<&String> = fresh.filter(|place| !volumes.contains(place)).collect();
            volumes.extend(fresh.into_iter().cloned());
        }
        config
    }

    fn host(&self, mut host: HostConfig) -> serde_json::Result<HostConfig> {
        if let Some(ports) = &self.ports {
            host.port_bindings = serde_json::from_value(ports.clone())?;
        }
        let is_gone = |place: &str| {
            let place = plain(place);
            self.without_mounts.contains(place) || self.fresh_volumes.contains(place)
        };
        let mut volumes = self.volumes.clone();
        let binds = host.binds.get_or_insert_default();
        binds.retain(|bind| !is_gone(bind.split(':').nth(1).unwrap_or_default()));
        for bind in binds.iter_mut() {
            let mut parts = bind.split(':').skip(1);
            let place = plain(parts.next().unwrap_or_default()).to_owned();
            let options = parts.next().unwrap_or_default();
            if let Some(volume) = volumes.remove(&place) {
                *bind = volume_bind(&volume, &place, options);
            }
        }
        if let Some(mounts) = &mut host.mounts {
            mounts.retain(|mount| !is_gone(mount.target.as_deref().unwrap_or_default()));
            for mount in mounts {
                let place = plain(mount.target.as_deref().unwrap_or_default());
                if let Some(volume) = volumes.remove(place) {
                    *mount = volume_mount(mount, volume);
                }
            }
        }
        if let Some(memory) = &mut host.tmpfs {
            memory.retain(|place, _| !is_gone(place) && !volumes.contains_key(plain(place)));
        }
        let others = volumes.iter();
        binds.extend(others.map(|(place, volume)| volume_bind(volume, place, "")));
        Ok(host)
    }
}

/// A place as the engine shows it.
fn plain(place: &str) -> &str {
    place.trim_end_matches('/')
}

/// A volume in the place of another mount. What was read-only stays so; how a path of the host is shared with it means nothing here.
fn volume_bind(volume: &str, place: &str, options: &str) -> String {
    let of_volumes = ["ro", "rw", "z", "Z"];
    let kept = options.split(',').filter(|one| of_volumes.contains(one));
    let options: Vec<&str> = kept.chain(["nocopy"]).collect();
    format!("{volume}:{place}:{}", options.join(","))
}

/// The same where mounts are written at length: the directory of the volume that is mounted stays the same, too.
fn volume_mount(mount: &Mount, volume: String) -> Mount {
    let subpath = mount.volume_options.as_ref();
    let subpath = subpath.and_then(|options| options.subpath.clone());
    Mount {
        typ: Some(MountType::VOLUME),
        source: Some(volume),
        target: mount.target.clone(),
        read_only: mount.read_only,
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            subpath,
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    }
}

impl Docker {
    /// Makes a container, which is not started; returns its id. A name that another one has is a conflict.
    ///
    /// A network that the engine does not know is not found, before anything is made. If the container cannot be put into one of
    /// its networks, it is removed again.
    pub async fn create_container(&self, wanted: &ContainerCreation) -> Result<String, Failure> {
        self.work("create container", &wanted.name, async |client| {
            let (body, networks) = wanted.request()?;
            let mut options = CreateContainerOptionsBuilder::new();
            if !wanted.name.is_empty() {
                check_container_name(&wanted.name)?;
                options = options.name(&wanted.name);
            }
            for network in networks_of(&body).chain(networks.iter().map(|(name, _)| name)) {
                check_network(&client, network).await?;
            }
            let made = client.create_container(Some(options.build()), body).await?;
            for (network, settings) in networks {
                let connected = connect(&client, &made.id, &network, settings).await;
                if let Err(error) = connected {
                    undo(&client, &made.id).await;
                    return Err(error);
                }
            }
            Ok::<_, CallError>(made.id)
        })
        .await
    }
}

/// The networks that a container is made in.
fn networks_of(body: &ContainerCreateBody) -> impl Iterator<Item = &String> {
    let networking = body.networking_config.as_ref();
    let endpoints = networking.and_then(|networking| networking.endpoints_config.as_ref());
    endpoints.into_iter().flat_map(HashMap::keys)
}

/// Removes a container that was just made. If that fails too, the first failure is the one that matters.
async fn undo(client: &bollard::Docker, id: &str) {
    let options = RemoveContainerOptionsBuilder::new().v(true).build();
    let removed = client.remove_container(id, Some(options)).await;
    if let Err(error) = removed {
        tracing::warn!(container = id, %error, "a container that could not be finished is left");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like_a_shop() -> ContainerCreation {
        ContainerCreation {
            name: "shop".to_owned(),
            config: json!({
                "Image": "old", "Env": ["A=1", "AB=2", "C=3"], "Labels": {"x": "1"},
                "Volumes": {"/cache": {}, "/data": {}}, "Cmd": ["run"],
            }),
            host_config: json!({
                "Binds": ["vol:/data/:ro", "/etc/shop:/conf", "other:/other", "0a:/fresh:nocopy"],
                "Mounts": [
                    {"Type": "volume", "Source": "m", "Target": "/mnt"},
                    {"Type": "volume", "Source": "n", "Target": "/part", "ReadOnly": true,
                     "VolumeOptions": {"Subpath": "sub", "NoCopy": false}},
                ],
                "Tmpfs": {"/tmp": ""}, "NetworkMode": "front", "Memory": 1000,
            }),
            networks: json!({
                "front": {"Aliases": ["shop"], "IPAddress": "10.0.0.2", "NetworkID": "x"},
                "back": {},
            }),
            overrides: ContainerOverrides::default(),
        }
    }

    #[test]
    fn nothing_is_lost_of_a_configuration_that_is_used_again() {
        let (body, more) = like_a_shop().request().unwrap();

        let host = body.host_config.unwrap();
        assert_eq!(body.image.as_deref(), Some("old"));
        assert_eq!(body.env.unwrap(), ["A=1", "AB=2", "C=3"]);
        assert_eq!(host.memory, Some(1000));
        assert_eq!(host.binds.unwrap().len(), 4);
        assert_eq!(more[0].0, "back");
        let first = &body.networking_config.unwrap().endpoints_config.unwrap()["front"];
        assert_eq!(first.aliases.as_deref().unwrap(), ["shop"]);
        assert_eq!(first.ip_address, None, "the engine chooses another one");
    }

    #[test]
    fn what_is_said_otherwise_is_otherwise() {
        let mut shop = like_a_shop();
        let places = ["/mnt", "/conf", "/tmp", "/cache"].map(str::to_owned);
        shop.overrides = ContainerOverrides {
            image: Some("new".to_owned()),
            environment: BTreeMap::from([("A".to_owned(), "9=9".to_owned())]),
            labels: BTreeMap::from([("y".to_owned(), "2".to_owned())]),
            ports: Some(json!({"80/tcp": [{"HostIp": "", "HostPort": "0"}]})),
            volumes: BTreeMap::from(
                [("/data", "copy"), ("/part", "copy2"), ("/new", "copy3")]
                    .map(|(place, volume)| (place.to_owned(), volume.to_owned())),
            ),
            without_mounts: BTreeSet::from(places),
            fresh_volumes: BTreeSet::from(["/fresh".to_owned()]),
        };

        let (body, _) = shop.request().unwrap();

        let host = body.host_config.unwrap();
        assert_eq!(body.image.as_deref(), Some("new"));
        assert_eq!(body.env.unwrap(), ["AB=2", "C=3", "A=9=9"]);
        assert_eq!(body.labels.unwrap().len(), 2);
        // They come out of a map, in any order.
        let volumes = BTreeSet::from_iter(body.volumes.unwrap());
        assert_eq!(Vec::from_iter(volumes), ["/data", "/fresh"]);
        assert_eq!(
            host.binds.unwrap(),
            ["copy:/data:ro,nocopy", "other:/other", "copy3:/new:nocopy"]
        );
        let mounts = host.mounts.unwrap();
        assert_eq!(
            (mounts.len(), mounts[0].source.as_deref()),
            (1, Some("copy2"))
        );
        let options = mounts[0].volume_options.as_ref().unwrap();
        assert_eq!(
            (options.no_copy, options.subpath.as_deref()),
            (Some(true), Some("sub"))
        );
        assert!(mounts[0].read_only == Some(true) && host.tmpfs.unwrap().is_empty());
        assert!(host.port_bindings.unwrap().contains_key("80/tcp"));
    }

    #[test]
    fn a_configuration_that_is_none_is_refused() {
        let mut shop = like_a_shop();
        shop.host_config = json!({"Binds": 7});

        assert_eq!(shop.request().unwrap_err().kind(), ErrorKind::Invalid);
    }
}
