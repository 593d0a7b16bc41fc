//! `stasis serve`

use super::output::OutputLost;
use super::{CliContext, session, system_clock, system_rng};
use crate::http::{AllowedHosts, Listener, NoTokens, RequestLimits, Service, openapi, serve};
use crate::mcp::Stop;
use crate::report::Exit;
use anyhow::{Context as _, bail};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::io::Write as _;
use std::net::SocketAddr;

/// Where it listens when nobody says it.
const USUAL: &str = "127.0.0.1:7070";

/// `stasis serve`
#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// Listen at this address and port; port 0 is any that is free [default: $STASIS_LISTEN, then `listen` below [serve] in the
    /// configuration file, then 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// A name by which clients call the service, as their Host header has it: `stasis.example` or `stasis.example:8443`; may be repeated.
    /// Addresses of loopback are always allowed
    #[arg(long = "allow-host", value_name = "HOST[:PORT]")]
    hosts: Vec<String>,
    /// Whoever reaches it needs no token and may do everything; only where it listens on loopback
    #[arg(long)]
    insecure_loopback: bool,
    /// How many requests one tenant may make in a second
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Print the OpenAPI document of the service, and serve nothing
    #[arg(long, exclusive = true)]
    print_openapi: bool,
}

/// What `stasis serve` says when it listens.
#[derive(Serialize, JsonSchema)]
pub(super) struct Listening {
    /// The address and port.
    listen: String,
    /// Where clients begin.
    url: String,
}

impl ServeArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        if self.print_openapi {
            let document: Value = openapi();
            writeln!(std::io::stdout(), "{document:#}").map_err(OutputLost)?;
            return Ok(Exit::Done);
        }
        let address = self.address(context)?;
        let no_tokens = match (self.insecure_loopback, address.ip().is_loopback()) {
            (false, _) => NoTokens::Refused,
            (true, true) => NoTokens::AllowedOnLoopback,
            (true, false) => bail!(
                "`{address}` is not on loopback: there every request needs a token, so leave out --insecure-loopback"
            ),
        };
        let stop = Stop::on_signals()?;
        let engine = context.writable_engine().await?;
        // A store that cannot be asked is found out now, and not by the first client.
        engine.store().reach().await?;
        let listener = Listener::open(address)
            .await
            .with_context(|| format!("could not listen at {address}"))?;
        let address = listener.address();
        if !address.ip().is_loopback() {
            context.output.say(
                "warning: requests are not encrypted here, tokens included: put a proxy with TLS before it",
            );
        }
        let limits = RequestLimits {
            per_second: self.rate,
            ..RequestLimits::default()
        };
        let hosts = AllowedHosts::new(address, &self.hosts);
        let system = (system_clock() as _, system_rng() as _);
        let service = Service::new(engine, system, hosts, limits, no_tokens);
        let service = service.on_host(session::host(context, None)?);
        let listening = Listening {
            listen: address.to_string(),
            url: format!("http://{address}"),
        };
        context.output.result(&listening, |one| {
            format!("Listening at {}; Ctrl-C ends it", one.url)
        })?;
        let mut stop = stop;
        serve(listener, service, stop.asked()).await;
        Ok(Exit::Done)
    }

    fn address(&self, context: &CliContext) -> anyhow::Result<SocketAddr> {
        let variable = context.environment.variables.get("STASIS_LISTEN");
        let variable = variable.map(|text| ("STASIS_LISTEN", text));
        let file = context.config.serve.listen.as_ref();
        let file = file.map(|text| ("`listen` below [serve] in the configuration file", text));
        match (self.listen, variable.or(file)) {
            (Some(address), _) => Ok(address),
            (None, Some((origin, text))) => text
                .parse()
                .with_context(|| format!("{origin}: `{text}` is no address with a port")),
            (None, None) => Ok(USUAL.parse().expect("it is an address")),
        }
    }
}
