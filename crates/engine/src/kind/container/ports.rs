//! The ports of the host that a container is given.

use super::{SeenEngine, failure};
use crate::error::{Error, ErrorKind};
use serde_json::{Map, Value, json};
use stasis_model::format::manifest::ContainerManifest;
use stasis_model::invalid::Invalid;
use stasis_quiesce::docker::ContainerFacts;
use std::collections::BTreeMap;
use std::str::FromStr;

/// Which ports of the host a container gets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum PortChoice {
    /// Those that it had; one that is taken is refused.
    #[default]
    AsBefore,
    /// Those that it had; others instead of those that are taken.
    Auto,
    /// These instead of those that it had.
    These(Vec<PublishedPort>),
}

/// `[ADDRESS:]PORT:CONTAINER_PORT[/PROTOCOL]`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishedPort {
    /// The address of the host; all if it is empty.
    pub address: String,
    /// The port of the host.
    pub port: u16,
    /// That of the container with its protocol, as in `80/tcp`.
    pub inside: String,
}

impl FromStr for PublishedPort {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let bad = || {
            Invalid::new(format!(
                "`{text}` is not of the form [ADDRESS:]PORT:CONTAINER_PORT[/PROTOCOL]"
            ))
        };
        let (outside, inside) = text.rsplit_once(':').ok_or_else(bad)?;
        let (address, port) = outside.rsplit_once(':').unwrap_or(("", outside));
        let (number, protocol) = inside.split_once('/').unwrap_or((inside, "tcp"));
        let number: u16 = number.parse().map_err(|_| bad())?;
        if !["tcp", "udp", "sctp"].contains(&protocol) {
            return Err(bad());
        }
        Ok(Self {
            address: address.to_owned(),
            port: port.parse().map_err(|_| bad())?,
            inside: format!("{number}/{protocol}"),
        })
    }
}

/// The ports of a container as the engine is told them; none where they stay what they were.
///
/// `replaced` is the container whose place it takes: what that has is free by then.
pub(super) async fn chosen_ports(
    seen: &SeenEngine,
    container: &ContainerManifest,
    choice: &PortChoice,
    replaced: Option<&str>,
) -> Result<Option<Value>, Error> {
    let taken = taken(seen, replaced).await?;
    let before = &container.host_config["PortBindings"];
    let chosen = match choice {
        PortChoice::These(ports) => these(ports),
        _ => before.clone(),
    };
    let mut result = chosen.clone();
    for (inside, bindings) in chosen.as_object().unwrap_or(&Map::new()) {
        for (at, binding) in bindings.as_array().into_iter().flatten().enumerate() {
            let Some(holder) = holder_of(&taken, inside, binding) else {
                continue;
            };
            if *choice == PortChoice::Auto {
                result[inside.as_str()][at]["HostPort"] = json!("");
                continue;
            }
            let port = binding["HostPort"].as_str().unwrap_or_default();
            let said = format!("the port {port} is taken by the container `{holder}`");
            let hint = format!(
                "`--port auto` takes another one, `--port PORT:{inside}` the one that you name"
            );
            return Err(failure(ErrorKind::Conflict, said).with_hint(hint).into());
        }
    }
    Ok((result != *before).then_some(result))
}

fn these(ports: &[PublishedPort]) -> Value {
    let mut bindings = Map::new();
    for one in ports {
        let binding = json!({"HostIp": one.address, "HostPort": one.port.to_string()});
        let all = bindings.entry(&one.inside).or_insert_with(|| json!([]));
        if let Some(all) = all.as_array_mut() {
            all.push(binding);
        }
    }
    Value::Object(bindings)
}

/// A port of the host that a container has.
struct TakenPort {
    address: String,
    port: String,
    protocol: String,
    holder: String,
}

/// The ports that running containers have.
async fn taken(seen: &SeenEngine, except: Option<&str>) -> Result<Vec<TakenPort>, Error> {
    let mut taken = Vec::new();
    for listed in seen.docker.running_containers().await? {
        if Some(listed.id.as_str()) == except {
            continue;
        }
        // One that ended since has none.
        let Some(facts) = seen.docker.container(&listed.id).await? else {
            continue;
        };
        let bindings = facts.host_config["PortBindings"].as_object();
        for (inside, all) in bindings.into_iter().flatten() {
            for binding in all.as_array().into_iter().flatten() {
                taken.push(TakenPort {
                    address: binding["HostIp"].as_str().unwrap_or_default().to_owned(),
                    port: binding["HostPort"].as_str().unwrap_or_default().to_owned(),
                    protocol: protocol(inside).to_owned(),
                    holder: facts.name.clone(),
                });
            }
        }
    }
    Ok(taken)
}

fn protocol(inside: &str) -> &str {
    inside
        .split_once('/')
        .map_or("tcp", |(_, protocol)| protocol)
}

fn holder_of<'t>(taken: &'t [TakenPort], inside: &str, binding: &Value) -> Option<&'t str> {
    let (address, port) = (&binding["HostIp"], &binding["HostPort"]);
    let (address, port) = (address.as_str().unwrap_or_default(), port.as_str()?);
    // The engine chooses where none is named.
    if port.is_empty() || port == "0" {
        return None;
    }
    let is_all = |address: &str| address.is_empty() || address == "0.0.0.0" || address == "::";
    let holder = taken.iter().find(|one| {
        one.port == port
            && one.protocol == protocol(inside)
            && (one.address == address || is_all(&one.address) || is_all(address))
    });
    holder.map(|one| one.holder.as_str())
}

/// The ports of the host that a container has, by its own; those that it asks for, as long as it does not run.
pub(super) fn shown(facts: &ContainerFacts) -> BTreeMap<String, Vec<String>> {
    let has = asked_for(&facts.ports);
    if has.is_empty() {
        return asked_for(&facts.host_config["PortBindings"]);
    }
    has
}

/// Ports as the engine writes them; an empty one is its choice.
pub(super) fn asked_for(bindings: &Value) -> BTreeMap<String, Vec<String>> {
    let bindings = bindings.as_object().into_iter().flatten();
    let bindings = bindings.filter(|(_, all)| all.is_array());
    let rows = bindings.map(|(inside, all)| {
        let all = all.as_array().into_iter().flatten();
        let outside = all.map(|one| {
            let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
            match (text("HostIp"), text("HostPort")) {
                (address, port) if address.is_empty() => port,
                (address, port) => format!("{address}:{port}"),
            }
        });
        (inside.clone(), outside.collect())
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_read_as_docker_reads_it() {
        let port: PublishedPort = "127.0.0.1:8080:80".parse().unwrap();
        assert_eq!((port.port, port.inside.as_str()), (8080, "80/tcp"));
        assert_eq!(port.address, "127.0.0.1");
        let port: PublishedPort = "53:53/udp".parse().unwrap();
        assert_eq!(
            (port.address.as_str(), port.inside.as_str()),
            ("", "53/udp")
        );
        for bad in ["80", "x:80", "80:x", "80:80/http", "99999:1", ""] {
            assert!(bad.parse::<PublishedPort>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_port_is_taken_by_whoever_listens_at_that_address_or_at_all() {
        let taken = [TakenPort {
            address: "127.0.0.1".to_owned(),
            port: "80".to_owned(),
            protocol: "tcp".to_owned(),
            holder: "web".to_owned(),
        }];
        let of = |address: &str, port: &str, inside: &str| {
            let binding = json!({"HostIp": address, "HostPort": port});
            holder_of(&taken, inside, &binding).is_some()
        };
        assert!(of("", "80", "8000/tcp") && of("127.0.0.1", "80", "8000/tcp"));
        assert!(!of("10.0.0.1", "80", "8000/tcp"));
        assert!(!of("", "80", "8000/udp") && !of("", "", "8000/tcp"));
    }
}
