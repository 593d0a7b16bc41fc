//! `stasis serve`

use super::container::container_host;
use super::mcp::forks_directory;
use super::output::OutputLost;
use super::{CliContext, duration, jobs, project, session, system_clock, system_rng};
use crate::http::{
    AllowedHosts, Listener, MetricsSettings, NoTokens, OwnDirectory, RequestLimits, Service,
    ServiceParts, Tls, TlsFiles, Workspaces, openapi, serve,
};
use crate::mcp::{OverHttp, Server, Stop};
use crate::report::Exit;
use anyhow::{Context as _, bail};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use stasis_engine::host_roots::HostRoots;
use stasis_engine::jobs::RunningJobs;
use stasis_engine::kind::workspace::Workspace;
use stasis_engine::metrics::MetricsPrefix;
use stasis_engine::model::format::token::BearerToken;
use stasis_engine::model::id::TenantId;
use stasis_engine::open::Engine;
use stasis_engine::stored::LookingHost;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::oneshot;

/// Where it listens when nobody says it.
const USUAL: &str = "127.0.0.1:7070";

/// How long jobs that run may go on when the service is asked to end, before they are given back.
const JOBS_GRACE: Duration = Duration::from_secs(10);

/// So many bytes of documents are remembered for lists: those of some ten thousand subjects.
const DOCUMENT_MEMORY: usize = 64 << 20;

/// `stasis serve`
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub(super) struct ServeArgs {
    /// Listen at this address and port; port 0 is any that is free [default: $STASIS_LISTEN, then `listen` below [serve] in the
    /// configuration file, then 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// A name by which clients call the service, as their Host header has it: `stasis.example` or `stasis.example:8443`; may be repeated.
    /// Addresses of loopback are always allowed
    #[arg(long = "allow-host", value_name = "HOST[:PORT]")]
    hosts: Vec<String>,
    /// Speak TLS, with the certificate in this file and those that follow it there (PEM); it may be exchanged while the service runs
    /// [default: `tls_cert` below [serve] in the configuration file]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM, not encrypted) [default: `tls_key` below [serve] in the configuration file]
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Save directories beneath DIR, and restore to new ones there, for tokens made with --host; may be repeated
    /// [default: `roots` below [serve] in the configuration file, else none]
    #[arg(long = "root", value_name = "DIR")]
    roots: Vec<PathBuf>,
    /// Whoever reaches it needs no token and may do everything; only where it listens on loopback
    #[arg(long)]
    insecure_loopback: bool,
    /// How many requests one tenant may make in a second
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// What the names of metrics begin with, such as `mantis` for dashboards that exist already
    #[arg(long, value_name = "PREFIX", default_value = "stasis")]
    metrics_prefix: MetricsPrefix,
    /// Also show the sizes of each profile in the metrics, to tokens of its tenant
    #[arg(long)]
    metrics_per_profile: bool,
    /// How often the whole store is counted for the metrics; a count that takes long is made less often
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = scan_interval)]
    metrics_scan_interval: Duration,
    /// Only answer requests: do nothing without being asked (`stasis jobs` shows what that would be)
    #[arg(long)]
    no_jobs: bool,
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
        let settings = jobs::settings(&context.config.serve)?;
        let tls = self.tls(context).await?;
        let workspaces = workspaces(context).await?;
        let stop = Stop::on_signals()?;
        let engine = context.writable_engine().await?;
        let engine = engine.with_document_memory(DOCUMENT_MEMORY);
        // A store that cannot be asked is found out now, and not by the first client.
        engine.store().reach().await?;
        let roots = self.roots(context, &engine).await?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let listener = Listener::open(address, tls)
            .await
            .with_context(|| format!("could not listen at {address}"))?;
        let address = listener.address();
        if scheme == "http" && !address.ip().is_loopback() {
            context.output.say(
                "warning: requests are not encrypted here, tokens included: give it a certificate with --tls-cert, or put a proxy with TLS before it",
            );
        }
        let has_jobs = !self.no_jobs;
        let service = self.service(context, engine.clone(), address, no_tokens)?;
        let running = if has_jobs {
            let counted = service.sample_sink();
            Some(jobs::start(context, &engine, &settings, counted).await?)
        } else {
            None
        };
        let service = service.with_workspaces(workspaces);
        let service = service.with_roots(roots);
        let listening = Listening {
            listen: address.to_string(),
            url: format!("{scheme}://{address}"),
        };
        context.output.result(&listening, |one| {
            format!("Listening at {}; Ctrl-C ends it", one.url)
        })?;
        until_stopped(listener, service, stop, running).await;
        Ok(Exit::Done)
    }

    /// The directories beneath which it acts for others.
    async fn roots(&self, context: &CliContext, engine: &Engine) -> anyhow::Result<HostRoots> {
        let named = match &*self.roots {
            [] => &*context.config.serve.roots,
            given => given,
        };
        Ok(engine.host_roots(named).await?)
    }

    /// How requests are encrypted, if they are to be.
    async fn tls(&self, context: &CliContext) -> anyhow::Result<Option<Tls>> {
        let config = &context.config.serve;
        let files = match (&self.tls_cert, &self.tls_key) {
            (None, None) => (&config.tls_cert, &config.tls_key),
            given => given,
        };
        let files = match files {
            (Some(certificate), Some(key)) => TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
            },
            (None, None) => return Ok(None),
            _ => bail!(
                "`tls_cert` and `tls_key` below [serve] in the configuration file belong together"
            ),
        };
        if files.everybody_reads_the_key().await? {
            let key = files.key.display();
            context.output.say(&format!(
                "warning: everybody on this host can read the key `{key}`; run: chmod o= {key}"
            ));
        }
        Ok(Some(Tls::open(files).await?))
    }

    fn service(
        self,
        context: &CliContext,
        engine: Engine,
        address: SocketAddr,
        no_tokens: NoTokens,
    ) -> anyhow::Result<Service> {
        let metrics = MetricsSettings {
            prefix: self.metrics_prefix,
            per_profile: self.metrics_per_profile,
            host: context.host(None)?,
            scan_interval: self.metrics_scan_interval,
        };
        let limits = RequestLimits {
            per_second: self.rate,
            ..RequestLimits::default()
        };
        let service = Service::new(ServiceParts {
            engine,
            clock: system_clock(),
            rng: system_rng(),
            hosts: AllowedHosts::new(address, &self.hosts),
            limits,
            no_tokens,
            looking: looking_host(context)?,
        });
        let service = service.with_metrics(metrics);
        Ok(service.on_host(session::host(context, None)?))
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

/// The page of one directory, for whoever works in it.
pub(super) struct OwnPage {
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// What whoever opens it shows.
    pub(super) token: BearerToken,
    /// What it shows.
    pub(super) directory: OwnDirectory,
}

impl OwnPage {
    pub(super) fn service(self, context: &CliContext, engine: Engine) -> anyhow::Result<Service> {
        let service = Service::new(ServiceParts {
            engine,
            clock: system_clock(),
            rng: system_rng(),
            hosts: AllowedHosts::new(self.address, &[]),
            limits: RequestLimits::default(),
            no_tokens: NoTokens::Refused,
            looking: looking_host(context)?,
        });
        Ok(service.with_directory(self.directory, &self.token))
    }
}

/// The workspaces of this host that models may work in.
async fn workspaces(context: &CliContext) -> anyhow::Result<Workspaces> {
    let mut all = Workspaces::default();
    for (name, said) in &context.config.serve.workspaces {
        let opened = async {
            if !said.dir.is_absolute() {
                bail!("`{}` is no absolute path", said.dir.display());
            }
            let host = context.environment.host_env()?;
            let workspace = Workspace::find(&said.dir, &host).await?;
            let forks = said.forks.as_deref();
            let forks = forks.map(|forks| forks_directory(forks, workspace.directory()));
            anyhow::Ok(OverHttp::new(Server::new(&workspace, forks.transpose()?)))
        };
        let opened = opened.await.with_context(|| {
            format!("`dir` below [serve.workspaces.{name}] in the configuration file")
        })?;
        all.0.insert((said.tenant.clone(), name.clone()), opened);
    }
    Ok(all)
}

/// What looking into snapshots takes of this host.
fn looking_host(context: &CliContext) -> anyhow::Result<LookingHost> {
    Ok(LookingHost {
        name: context.host(None)?,
        docker: container_host(context, &TenantId::default()).docker,
        project: project::host(context)?,
        scratch: context.spool()?,
    })
}

/// An interval that leaves the store some rest.
fn scan_interval(text: &str) -> Result<Duration, String> {
    let interval = duration::parse(text)?;
    if interval < Duration::from_secs(1) {
        return Err("the store is counted once a second at most".to_owned());
    }
    Ok(interval)
}

/// Answers until somebody asks it to end; then requests and jobs have their time at once.
pub(super) async fn until_stopped(
    listener: Listener,
    service: Service,
    mut stop: Stop,
    running: Option<RunningJobs>,
) {
    let (asked, ending) = oneshot::channel();
    let serving = serve(listener, service, async {
        stop.asked().await;
        let _ = asked.send(());
    });
    let jobs = async {
        let _ = ending.await;
        if let Some(running) = running {
            running.end(JOBS_GRACE).await;
        }
    };
    tokio::join!(serving, jobs);
}
