//! `stasis container restore`, and what takes a restore back.

use super::{WhichArgs, default_host, show, text};
use crate::cli::progress::{cancel_on_signals, watched};
use crate::cli::{CliContext, ask, duration, envelope};
use crate::report::Exit;
use anyhow::{anyhow, ensure};
use clap::{Args, ValueEnum};
use stasis_engine::kind::container::{
    ContainerHealth, ContainerHost, MountChoice, NetworkChoice, PortChoice, RestoreContainer,
    RestoreMode,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    /// Beside the container that was saved, with a name and volumes of its own
    New,
    /// Instead of it: it is saved, stopped and replaced, and comes back if the new one does not work
    Replace,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Beside the container that was saved, or instead of it
    #[arg(long, value_name = "MODE", default_value = "new")]
    mode: ModeArg,
    /// What the new container is called [default: <name>_restored_<time>]
    #[arg(long)]
    name: Option<String>,
    /// A variable that is added or replaced; may be given more than once
    #[arg(long = "env", value_name = "KEY=VALUE")]
    environment: Vec<String>,
    /// A port, [ADDRESS:]PORT:CONTAINER_PORT, instead of those that it had; `auto` takes others for those that are taken
    #[arg(long = "port", value_name = "PORT|auto")]
    ports: Vec<String>,
    /// Leave out what was mounted and is in no snapshot
    #[arg(long)]
    drop_mounts: bool,
    /// Make networks that are not there
    #[arg(long)]
    make_networks: bool,
    /// Do not start it
    #[arg(long)]
    no_start: bool,
    /// How long one without a health check must run to count as working
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration::positive)]
    healthy_after: Duration,
    /// How long its health check may take to succeed
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration::positive)]
    health_timeout: Duration,
    /// A command of the shell in the new container that must succeed before the other one goes
    #[arg(long, value_name = "CMD")]
    health_cmd: Option<String>,
    /// How long the one that is replaced may take to end [default: what it says itself, or 10s]
    #[arg(long, value_name = "TIME", value_parser = duration::positive)]
    stop_timeout: Option<Duration>,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before a container is replaced
    #[arg(long, short)]
    yes: bool,
}

impl RestoreArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        host: &ContainerHost,
    ) -> anyhow::Result<Exit> {
        let mode = match self.mode {
            ModeArg::New => RestoreMode::New,
            ModeArg::Replace => RestoreMode::Replace,
        };
        ensure!(
            mode == RestoreMode::New || self.name.is_none(),
            "a container that takes the place of another one has its name: leave out --name"
        );
        let restore = RestoreContainer {
            container: self.which.container,
            mode,
            name: self.name,
            environment: variables(&self.environment)?,
            ports: ports(&self.ports)?,
            mounts: if self.drop_mounts {
                MountChoice::Drop
            } else {
                MountChoice::Keep
            },
            networks: if self.make_networks {
                NetworkChoice::Make
            } else {
                NetworkChoice::Refuse
            },
            no_start: self.no_start,
            dry_run: self.dry_run,
            health: ContainerHealth {
                command: self.health_cmd,
                running_for: self.healthy_after,
                total_timeout: self.health_timeout,
                ..ContainerHealth::default()
            },
            stop_timeout: self.stop_timeout,
            ..RestoreContainer::new(self.which.snapshot)
        };
        self::restore(context, host, restore, self.yes).await
    }
}

/// Makes a container of a snapshot, however somebody asked for it.
pub(in crate::cli) async fn restore(
    context: &CliContext,
    host: &ContainerHost,
    mut restore: RestoreContainer,
    yes: bool,
) -> anyhow::Result<Exit> {
    let engine = context.writable_engine().await?;
    if restore.mode == RestoreMode::Replace
        && !restore.dry_run
        && !yes
        && ask::is_interactive(context)
    {
        let of = restore.container.as_deref();
        let shown = engine.containers().show(host, &restore.snapshot, of);
        let row = shown.await?.row;
        context.output.insist(&format!(
            "{} is saved, stopped and replaced by what it was at {}; its volumes too",
            row.container_name, row.created_at
        ));
        if !ask::is_yes("Continue?")? {
            context.output.say(ask::NOTHING_CHANGED);
            return Ok(Exit::Cancelled);
        }
    }
    restore.cancel = cancel_on_signals()?;
    let progress = Arc::clone(&restore.progress);
    let work = Box::pin(engine.containers().restore(host, &restore));
    let restored = watched(context.output, "restoring", progress, work).await?;
    envelope::about_snapshot(restored.snapshot_id.to_string());
    context.output.warn(&restored.warnings);
    context.output.result(&restored, text::restored)?;
    Ok(Exit::Done)
}

fn variables(typed: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let one = |text: &String| {
        let (name, value) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| anyhow!("write a variable as KEY=VALUE"))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    typed.iter().map(one).collect()
}

fn ports(typed: &[String]) -> anyhow::Result<PortChoice> {
    if typed.is_empty() {
        return Ok(PortChoice::AsBefore);
    }
    if typed.iter().any(|one| one == "auto") {
        ensure!(typed.len() == 1, "`--port auto` stands alone");
        return Ok(PortChoice::Auto);
    }
    let parsed: Result<Vec<_>, _> = typed.iter().map(|one| one.parse()).collect();
    Ok(PortChoice::These(parsed?))
}

/// Takes the last replacement of a container back.
pub(in crate::cli) async fn undo(
    context: &CliContext,
    container: &str,
    (dry_run, yes): (bool, bool),
) -> anyhow::Result<Exit> {
    let host = default_host(context);
    let engine = context.engine().await?;
    let safety = engine.containers().last_replaced(&host, container).await?;
    if dry_run {
        return show(context, &host, &safety, Some(container)).await;
    }
    let back = RestoreContainer {
        container: Some(container.to_owned()),
        mode: RestoreMode::Replace,
        ..RestoreContainer::new(safety)
    };
    restore(context, &host, back, yes).await
}
