//! `stasis jobs`, and how `stasis serve` runs them.

use super::output::{printable, table};
use super::profile::spawn;
use super::{CliContext, byte_size, duration, project, session, system_clock, whole_machine};
use crate::config::{ContainerDefaults, ServeDefaults};
use crate::report::Exit;
use anyhow::{Context as _, bail};
use stasis_engine::jobs::{JobHost, JobList, JobPlan, JobRow, JobSettings, RunningJobs, TurnOrder};
use stasis_engine::kind::container::AutosavedContainer;
use stasis_engine::kind::project::{AutosavedProject, ServiceUse};
use stasis_engine::metrics::SampleSink;
use stasis_engine::model::format::job::{JobName, JobOutcome};
use stasis_engine::model::id::Label;
use stasis_engine::model::time::{Clock as _, Timestamp};
use stasis_engine::open::{Engine, StoreLocation};
use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

/// Where a Docker engine listens if nobody says otherwise.
const USUAL_ENGINE: &str = "/var/run/docker.sock";

/// `stasis jobs`
pub(super) async fn run(context: &CliContext) -> anyhow::Result<Exit> {
    let settings = settings(&context.config.serve)?;
    let list = context.engine().await?.jobs().list(&settings).await?;
    let now = system_clock().now();
    context.output.result(&list, |list| text(list, now))?;
    let is_bad = |row: &JobRow| {
        let bad = [JobOutcome::Failed, JobOutcome::Incomplete];
        row.stuck || row.outcome.is_some_and(|outcome| bad.contains(&outcome))
    };
    Ok(if list.items.iter().any(is_bad) {
        Exit::Incomplete
    } else {
        Exit::Done
    })
}

/// What the configuration says of jobs.
pub(super) fn settings(serve: &ServeDefaults) -> anyhow::Result<JobSettings> {
    let said = serve.background_bandwidth.as_deref().map(bandwidth);
    let mut settings = JobSettings {
        bandwidth: said.transpose()?,
        ..JobSettings::default()
    };
    for (name, job) in &serve.jobs {
        if job.off {
            settings.plans.remove(name);
            continue;
        }
        if let Some(every) = &job.every {
            let every = duration::positive(every).map_err(anyhow::Error::msg);
            let every = every.with_context(|| {
                format!("`every` below [serve.jobs.{name}] in the configuration file")
            })?;
            let usual = JobPlan::usual(*name);
            settings.plans.insert(*name, JobPlan { every, ..usual });
        }
    }
    Ok(settings)
}

/// How many bytes a second somebody wrote.
fn bandwidth(text: &str) -> anyhow::Result<NonZeroU64> {
    let bad = || {
        let text = text.escape_debug();
        format!("`{text}` is no number of bytes in a second; write it like 20MiB/s or 4MB/s")
    };
    let bytes = text
        .strip_suffix("/s")
        .and_then(|size| byte_size::positive(size).ok());
    let bytes = bytes.and_then(NonZeroU64::new).with_context(bad);
    bytes.context("`background_bandwidth` below [serve] in the configuration file")
}

/// Begins to run them, over a connection to the store that no request shares; what they do is counted with what requests do.
pub(super) async fn start(
    context: &CliContext,
    engine: &Engine,
    settings: &JobSettings,
    counted: SampleSink,
) -> anyhow::Result<RunningJobs> {
    let host = host(context, settings).await?;
    let own = if *engine.location() == StoreLocation::Memory {
        // Another one would be another store.
        engine.clone()
    } else {
        context.writable_engine().await?
    };
    Ok(own.with_samples(counted).jobs().start(host, settings))
}

/// What jobs need to know of this host.
async fn host(context: &CliContext, settings: &JobSettings) -> anyhow::Result<JobHost> {
    let sessions = session::host(context, None)?;
    let variable = context.environment.variables.get("DOCKER_HOST");
    let containers = containers(context)?;
    // An engine whose containers are named may be started after us.
    let is_there = variable.is_some_and(|host| !host.is_empty())
        || Path::new(USUAL_ENGINE).exists()
        || !containers.is_empty();
    let saves = settings.plans.contains_key(&JobName::ProjectAutosave);
    Ok(JobHost {
        docker: is_there.then(|| sessions.docker.clone()),
        sessions,
        check: spawn()?,
        containers,
        // Without a place for state nothing was ever registered.
        workspaces: context.environment.host_env().ok(),
        projects: if saves {
            projects(context).await?
        } else {
            Vec::new()
        },
        tried: TurnOrder::default(),
    })
}

/// The containers of this host's engine that the configuration names.
fn containers(context: &CliContext) -> anyhow::Result<Vec<AutosavedContainer>> {
    let all = context.config.serve.containers.iter();
    let all = all.map(|(name, said)| {
        let named = container(name, said);
        named.with_context(|| format!("[serve.containers.{name}] in the configuration file"))
    });
    all.collect()
}

fn container(name: &Label, said: &ContainerDefaults) -> anyhow::Result<AutosavedContainer> {
    let of = said.container.clone().unwrap_or_else(|| name.to_string());
    if of.is_empty() {
        bail!("`container` is the name of a container, or its id");
    }
    let mut saved = AutosavedContainer::new(name.clone(), of, said.tenant.clone());
    let time = |key: &str, text: &str| {
        let time = duration::positive(text).map_err(anyhow::Error::msg);
        time.with_context(|| format!("`{key}`"))
    };
    if let Some(every) = &said.every {
        saved.every = time("every", every)?;
    }
    if let Some(longest) = &said.max_freeze {
        saved.max_freeze = time("max_freeze", longest)?;
    }
    Ok(saved)
}

/// The projects of this host that the configuration names.
async fn projects(context: &CliContext) -> anyhow::Result<Vec<AutosavedProject>> {
    let mut all = Vec::new();
    for (name, said) in &context.config.serve.projects {
        let opened = async {
            let dir = &said.dir;
            if !dir.is_absolute() {
                bail!("`{}` is no absolute path", dir.display());
            }
            if !dir.is_dir() {
                bail!("`{}` is no directory", dir.display());
            }
            whole_machine::refuse(context, dir, false)?;
            project::served(context, dir, &said.tenant).await
        };
        let opened = opened.await.with_context(|| {
            format!("`dir` below [serve.projects.{name}] in the configuration file")
        })?;
        let services = if said.hold_services {
            ServiceUse::Held
        } else {
            ServiceUse::LeftAlone
        };
        all.push(AutosavedProject::new(name.clone(), opened, services));
    }
    Ok(all)
}

fn text(list: &JobList, now: Timestamp) -> String {
    let row = |row: &JobRow| {
        let began = row.last_began_at_ms.map(|at| at.age(now));
        let host = row.last_host.as_ref().map(|host| printable(host.as_str()));
        vec![
            row.name.to_string(),
            row.place
                .as_ref()
                .map(|place| printable(place.as_str()))
                .unwrap_or_default(),
            duration::text(Duration::from_millis(row.every_ms)),
            began.unwrap_or_else(|| "never".to_owned()),
            host.unwrap_or_default(),
            row.outcome
                .map(|outcome| outcome.to_string())
                .unwrap_or_default(),
            next(row, now),
            said(row),
        ]
    };
    let head = [
        "JOB", "PLACE", "EVERY", "LAST", "BY", "OUTCOME", "NEXT", "WHAT",
    ];
    table(&head, list.items.iter().map(row).collect())
}

fn next(row: &JobRow, now: Timestamp) -> String {
    match (&row.running, row.next_due_at_ms) {
        (Some(running), _) => {
            let (host, age) = (printable(running.host.as_str()), running.since_ms.age(now));
            format!("runs on {host}, begun {age}")
        }
        (None, Some(at)) => {
            let seconds = at.since(now).as_secs();
            format!("in {}", duration::text(Duration::from_secs(seconds)))
        }
        // Whether there is a place for it is known at that place.
        (None, None) if row.place.is_none() && row.name.is_of_a_place() => String::new(),
        (None, None) => "due".to_owned(),
    }
}

fn said(row: &JobRow) -> String {
    let counts = row.counts.iter().filter(|(_, count)| **count > 0);
    let counts = counts.map(|(name, count)| format!("{} {count}", name.replace('_', " ")));
    let mut said: Vec<String> = counts.collect();
    if row.stuck {
        said.insert(0, "stuck".to_owned());
    }
    said.extend(row.message.as_deref().map(printable));
    said.join(", ")
}
