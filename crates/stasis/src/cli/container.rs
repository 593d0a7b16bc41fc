//! `stasis container …`

mod args;
mod text;

pub(super) use args::container_host;

use super::progress::{cancel_on_signals, watched};
use super::project::is_absent;
use super::{CliContext, ask, duration, envelope};
use crate::report::Exit;
use anyhow::{anyhow, ensure};
use args::{LimitArgs, WishesArgs};
use clap::{Args, Subcommand, ValueEnum};
use stasis_engine::kind::container::{
    CleanupContainers, ContainerHealth, ContainerHost, ContainerSnapshots, CreateSnapshot,
    MAX_FREEZE, MountChoice, NetworkChoice, PortChoice, RestoreContainer, RestoreMode,
    SnapshotTrigger, validate,
};
use stasis_engine::model::id::{Label, TenantId};
use stasis_engine::model::snapshot_ref::SnapshotRef;
use stasis_engine::subjects::SubjectList;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Args)]
pub(super) struct ContainerArgs {
    /// Whose snapshots, in a store that others use too
    #[arg(long, global = true, value_name = "TENANT", default_value = "default")]
    tenant: TenantId,
    #[command(subcommand)]
    command: ContainerCommand,
}

#[derive(Debug, Subcommand)]
enum ContainerCommand {
    /// Save a container with its volumes
    ///
    /// It goes on meanwhile, but for a moment in which it stands still. A paused one stays paused.
    Create(Box<CreateArgs>),
    /// Make a container of a snapshot: beside the one that was saved, or instead of it
    Restore(Box<RestoreArgs>),
    /// List snapshots of containers
    List {
        /// Only those of this container
        container: Option<String>,
    },
    /// Show everything that is known of a snapshot; values of the environment are masked
    Show {
        #[command(flatten)]
        which: WhichArgs,
    },
    /// Delete a snapshot with its image
    Delete {
        #[command(flatten)]
        which: WhichArgs,
        /// Only show what would be done
        #[arg(long)]
        dry_run: bool,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Remove snapshots beyond the limits, and what interrupted work left
    Cleanup(CleanupArgs),
    /// Show how many snapshots there are, and what they take
    Stats {
        #[command(flatten)]
        limits: LimitArgs,
    },
    /// Show what differs between two snapshots, or between one and the container as it is
    Diff {
        /// The older snapshot: an id or the beginning of one, or `latest`
        before: SnapshotRef,
        /// The newer one [default: the container as it is]
        after: Option<SnapshotRef>,
        /// Of which container, where that is not clear
        #[arg(long, value_name = "CONTAINER")]
        of: Option<String>,
    },
    /// Say what a snapshot of a container would have, and what not, without making one
    ///
    /// Exits with 1 when none can be made of it. The engine is the one that `DOCKER_HOST` names, else the one of this machine.
    Validate(ValidateArgs),
}

#[derive(Debug, Args)]
struct WhichArgs {
    /// The snapshot: an id or the beginning of one, a label, or with a container `latest`, `latest~2`, a time (@-2h)
    snapshot: SnapshotRef,
    /// Of which container, where that is not clear
    container: Option<String>,
}

#[derive(Debug, Args)]
struct ValidateArgs {
    /// The container: its name, or its id
    container: String,
    #[command(flatten)]
    wishes: WishesArgs,
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// The container: its name, or its id
    container: String,
    /// What it is made for: manual, run_start, run_end, before_action, after_action, on_error, periodic
    #[arg(long, value_name = "TRIGGER", default_value = "manual")]
    trigger: SnapshotTrigger,
    /// Words that say what it is
    #[arg(long, value_name = "TEXT", default_value = "")]
    description: Label,
    /// What the agent is about to do, or has done
    #[arg(long, value_name = "TEXT")]
    context: Option<Label>,
    /// The run of an agent that it belongs to
    #[arg(long, value_name = "ID")]
    run_id: Option<Label>,
    /// A label of the snapshot; may be given more than once
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,
    /// Store the layers of the image, too, so that any engine that sees the store can run it
    #[arg(long)]
    portable: bool,
    /// For how long the container may stand still
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::positive)]
    max_freeze: Duration,
    #[command(flatten)]
    wishes: WishesArgs,
    #[command(flatten)]
    limits: LimitArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    /// Beside the container that was saved, with a name and volumes of its own
    New,
    /// Instead of it: it is saved, stopped and replaced, and comes back if the new one does not work
    Replace,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
struct RestoreArgs {
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
    /// How long the one that is replaced may take to end
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::positive)]
    stop_timeout: Duration,
    /// Do not ask before a container is replaced
    #[arg(long, short)]
    yes: bool,
}

#[derive(Debug, Args)]
struct CleanupArgs {
    #[command(flatten)]
    limits: LimitArgs,
    /// Also snapshots whose image is gone, and what other hosts left
    #[arg(long)]
    orphans: bool,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
}

impl ContainerArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let host = container_host(context, &self.tenant);
        match self.command {
            ContainerCommand::Create(create) => Box::pin(create.run(context, &host)).await,
            ContainerCommand::Restore(restore) => Box::pin(restore.run(context, &host)).await,
            ContainerCommand::List { container } => {
                list(context, &host, container.as_deref()).await
            }
            ContainerCommand::Show { which } => {
                show(context, &host, &which.snapshot, which.container.as_deref()).await
            }
            ContainerCommand::Delete {
                which,
                dry_run,
                yes,
            } => delete(context, &host, &which, (dry_run, yes)).await,
            ContainerCommand::Cleanup(cleanup) => Box::pin(cleanup.run(context, &host)).await,
            ContainerCommand::Stats { limits } => {
                let engine = context.engine().await?;
                let limits = limits.limits(context, &engine, &host.tenant).await?;
                let stats = engine.containers().stats(&host, &limits).await?;
                context.output.result(&stats, text::stats)?;
                Ok(Exit::Done)
            }
            ContainerCommand::Diff { before, after, of } => {
                diff(context, &host, (&before, after.as_ref()), of.as_deref()).await
            }
            ContainerCommand::Validate(args) => args.run(context, &host).await,
        }
    }
}

impl ValidateArgs {
    async fn run(self, context: &CliContext, host: &ContainerHost) -> anyhow::Result<Exit> {
        let wishes = self.wishes.wishes();
        let strict = self.wishes.strict;
        let validated = validate(&host.docker, &self.container, &wishes, strict).await?;
        context.output.result(&validated, text::validated)?;
        Ok(if validated.is_valid {
            Exit::Done
        } else {
            Exit::Failed
        })
    }
}

impl CreateArgs {
    async fn run(self, context: &CliContext, host: &ContainerHost) -> anyhow::Result<Exit> {
        let engine = context.writable_engine().await?;
        let limits = self.limits.limits(context, &engine, &host.tenant).await?;
        let create = CreateSnapshot {
            trigger: self.trigger,
            description: self.description,
            run_id: self.run_id,
            action_context: self.context,
            labels: super::project::labels(&self.labels)?,
            wishes: self.wishes.wishes(),
            strict: self.wishes.strict,
            portable: self.portable,
            max_freeze: self.max_freeze,
            limits: Some(limits),
            ..CreateSnapshot::new(self.container)
        };
        save(context, host, create).await
    }
}

/// Saves a container, however somebody asked for it.
pub(super) async fn save(
    context: &CliContext,
    host: &ContainerHost,
    mut create: CreateSnapshot,
) -> anyhow::Result<Exit> {
    let engine = context.writable_engine().await?;
    create.cancel = cancel_on_signals()?;
    let progress = Arc::clone(&create.progress);
    let work = Box::pin(engine.containers().create(host, &create));
    let saved = watched(context.output, "saving", progress, work).await?;
    envelope::about(saved.subject.clone());
    envelope::about_snapshot(saved.snapshot_id.to_string());
    context.output.warn(&saved.warnings);
    context.output.result(&saved, text::saved)?;
    Ok(if saved.unsound_databases.is_empty() {
        Exit::Done
    } else {
        Exit::Incomplete
    })
}

/// The engine that the everyday verbs work with.
pub(super) fn default_host(context: &CliContext) -> anyhow::Result<ContainerHost> {
    Ok(container_host(context, &"default".parse()?))
}

/// Takes the last replacement of a container back.
pub(super) async fn undo(
    context: &CliContext,
    container: &str,
    (dry_run, yes): (bool, bool),
) -> anyhow::Result<Exit> {
    let host = default_host(context)?;
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

/// A save of a container with the usual limits.
pub(super) async fn usual_save(
    context: &CliContext,
    host: &ContainerHost,
    container: &str,
) -> anyhow::Result<CreateSnapshot> {
    let engine = context.writable_engine().await?;
    let limits = LimitArgs::default();
    let limits = limits.limits(context, &engine, &host.tenant).await?;
    Ok(CreateSnapshot {
        limits: Some(limits),
        max_freeze: MAX_FREEZE,
        portable: true,
        ..CreateSnapshot::new(container)
    })
}

impl RestoreArgs {
    async fn run(self, context: &CliContext, host: &ContainerHost) -> anyhow::Result<Exit> {
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
            health: ContainerHealth {
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
pub(super) async fn restore(
    context: &CliContext,
    host: &ContainerHost,
    mut restore: RestoreContainer,
    yes: bool,
) -> anyhow::Result<Exit> {
    let engine = context.writable_engine().await?;
    if restore.mode == RestoreMode::Replace && !yes && ask::is_interactive(context) {
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

/// Whether the usual store was never made.
async fn is_unused(context: &CliContext, error: &anyhow::Error) -> anyhow::Result<bool> {
    let state = context.environment.local_dirs.state.as_deref();
    let is_absent = is_absent(error) && context.is_usual_store();
    Ok(is_absent && SubjectList::is_unused(&context.location()?, state).await)
}

pub(super) async fn list(
    context: &CliContext,
    host: &ContainerHost,
    container: Option<&str>,
) -> anyhow::Result<Exit> {
    let engine = match context.engine().await {
        // Where nothing was ever saved there is nothing to list.
        Err(error) if container.is_none() && is_unused(context, &error).await? => {
            let none = ContainerSnapshots::default();
            context.output.result(&none, text::list)?;
            return Ok(Exit::Done);
        }
        engine => engine?,
    };
    let listed = engine.containers().list(host, container).await?;
    if let Some(why) = &listed.engine_error {
        context.output.say(&format!(
            "warning: whether the images are there is not known: {why}"
        ));
    }
    for one in &listed.unreadable {
        context.output.say(&format!("warning: {one}"));
    }
    context.output.result(&listed, text::list)?;
    Ok(if listed.unreadable.is_empty() {
        Exit::Done
    } else {
        Exit::Corrupt
    })
}

/// Shows a snapshot of a container.
pub(super) async fn show(
    context: &CliContext,
    host: &ContainerHost,
    snapshot: &SnapshotRef,
    container: Option<&str>,
) -> anyhow::Result<Exit> {
    let engine = context.engine().await?;
    let shown = engine.containers().show(host, snapshot, container).await?;
    envelope::about_snapshot(shown.row.snapshot_id.to_string());
    context.output.result(&shown, text::shown)?;
    Ok(Exit::Done)
}

async fn delete(
    context: &CliContext,
    host: &ContainerHost,
    which: &WhichArgs,
    (dry_run, yes): (bool, bool),
) -> anyhow::Result<Exit> {
    delete_snapshot(
        context,
        host,
        (&which.snapshot, which.container.as_deref()),
        (dry_run, yes),
    )
    .await
}

/// Deletes a snapshot of a container, however somebody asked for it.
pub(super) async fn delete_snapshot(
    context: &CliContext,
    host: &ContainerHost,
    (snapshot, container): (&SnapshotRef, Option<&str>),
    (dry_run, yes): (bool, bool),
) -> anyhow::Result<Exit> {
    let engine = context.writable_engine().await?;
    let containers = engine.containers();
    if !dry_run && !yes && ask::is_interactive(context) {
        let shown = containers.show(host, snapshot, container).await?;
        context.output.insist(&format!(
            "{} of {}, made at {}, goes with its image",
            shown.row.snapshot_id, shown.row.container_name, shown.row.created_at
        ));
        if !ask::is_yes("Continue?")? {
            context.output.say(ask::NOTHING_CHANGED);
            return Ok(Exit::Cancelled);
        }
    }
    let deleted = containers
        .delete(host, snapshot, container, dry_run)
        .await?;
    context.output.result(&deleted, text::deleted)?;
    Ok(Exit::Done)
}

impl CleanupArgs {
    async fn run(self, context: &CliContext, host: &ContainerHost) -> anyhow::Result<Exit> {
        let engine = context.writable_engine().await?;
        let cleanup = CleanupContainers {
            limits: self.limits.limits(context, &engine, &host.tenant).await?,
            orphans: self.orphans,
            dry_run: self.dry_run,
        };
        let cleaned = engine.containers().cleanup(host, &cleanup).await?;
        context.output.result(&cleaned, text::cleaned)?;
        Ok(if cleaned.left.is_empty() {
            Exit::Done
        } else {
            Exit::Incomplete
        })
    }
}

/// Compares snapshots of a container.
pub(super) async fn diff(
    context: &CliContext,
    host: &ContainerHost,
    (before, after): (&SnapshotRef, Option<&SnapshotRef>),
    of: Option<&str>,
) -> anyhow::Result<Exit> {
    let engine = context.engine().await?;
    let diff = engine.containers().diff(host, before, after, of).await?;
    if diff.config.is_empty() && diff.volumes.is_empty() && diff.image.is_empty() {
        context.output.say("nothing differs");
    }
    context.output.result(&diff, text::diff)?;
    Ok(if diff.not_compared.is_empty() {
        Exit::Done
    } else {
        Exit::Incomplete
    })
}
