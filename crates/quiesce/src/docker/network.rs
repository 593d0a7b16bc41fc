//! The networks that containers are in.

use super::client::Docker;
use super::container::labelled;
use super::error::{CallError, present};
use super::pausing::check_container_name;
use bollard::models::{EndpointSettings, NetworkConnectRequest, NetworkCreateRequest};
use bollard::query_parameters::ListNetworksOptionsBuilder;
use stasis_model::failure::{ErrorKind, Failure};
use std::collections::BTreeMap;

impl Docker {
    /// Whether there is a network of that name.
    pub async fn has_network(&self, name: &str) -> Result<bool, Failure> {
        self.ask("inspect network", name, async |client| {
            check_container_name(name)?;
            let found = client.inspect_network(name, None).await;
            Ok(present(found)?.is_some())
        })
        .await
    }

    /// Makes a network of the engine's usual driver, with labels; returns its id.
    pub async fn create_network(
        &self,
        name: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<String, Failure> {
        self.ask("create network", name, async |client| {
            check_container_name(name)?;
            let request = NetworkCreateRequest {
                name: name.to_owned(),
                labels: Some(labels.clone().into_iter().collect()),
                ..NetworkCreateRequest::default()
            };
            Ok(client.create_network(request).await?.id)
        })
        .await
    }

    /// The names of the networks with a label: `name`, or `name=value`.
    pub async fn networks_labelled(&self, label: &str) -> Result<Vec<String>, Failure> {
        self.ask("list the networks with label", label, async |client| {
            let options = ListNetworksOptionsBuilder::new().filters(&labelled(label));
            let listed = client.list_networks(Some(options.build())).await?;
            Ok(listed.into_iter().filter_map(|one| one.name).collect())
        })
        .await
    }

    /// Removes a network; says whether there was one. One that a container is in is refused.
    pub async fn remove_network(&self, name: &str) -> Result<bool, Failure> {
        self.ask("remove network", name, async |client| {
            check_container_name(name)?;
            Ok(present(client.remove_network(name).await)?.is_some())
        })
        .await
    }
}

/// Refuses a network that is not there: the engine would find out when the container is started.
pub(super) async fn check_network(client: &bollard::Docker, name: &str) -> Result<(), CallError> {
    check_container_name(name)?;
    if present(client.inspect_network(name, None).await)?.is_some() {
        return Ok(());
    }
    let failure = Failure::new(ErrorKind::NotFound, "find network", name);
    let hint = format!("create it: docker network create {name}");
    Err(failure
        .because("the engine has none")
        .with_hint(hint)
        .into())
}

/// Puts a container into one more network: engines before API 1.44 take only one when a container is made.
pub(super) async fn connect(
    client: &bollard::Docker,
    container: &str,
    network: &str,
    settings: EndpointSettings,
) -> Result<(), CallError> {
    let request = NetworkConnectRequest {
        container: container.to_owned(),
        endpoint_config: Some(settings),
    };
    Ok(client.connect_network(network, request).await?)
}
