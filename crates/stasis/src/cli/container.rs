//! `stasis container …`

mod args;
mod create;
mod restore;
mod text;
mod transfer;

pub(super) use args::container_host;
pub(super) use create::{save, usual_save};
pub(super) use restore::{restore, undo};

use super::project::is_absent;
use super::{CliContext, ask, envelope};
use crate::report::Exit;
use args::{LimitArgs, WishesArgs};
use clap::{Args, Subcommand};
use stasis_engine::kind::container::{
    CleanupContainers, ContainerHost, ContainerSnapshots, validate,
};
use stasis_engine::model::id::TenantId;
use stasis_engine::model::snapshot_ref::SnapshotRef;
use stasis_engine::subjects::SubjectList;

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
    Create(Box<create::CreateArgs>),
    /// Make a container of a snapshot: beside the one that was saved, or instead of it
    Restore(Box<restore::RestoreArgs>),
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
    /// Write a snapshot, with its volumes and its image, as one file that another host can import
    ///
    /// The file has the values of the environment, too: only its owner can read it. Whoever gets it can read them.
    Export(transfer::ExportArgs),
    /// Make a snapshot of what an export wrote, on this engine and in this store
    ///
    /// A container that is made of it has every right that the one had that was exported: import only what you trust.
    Import(transfer::ImportArgs),
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
            } => {
                let of = which.container.as_deref();
                let snapshots = (&[which.snapshot][..], of);
                delete_snapshots(context, &host, snapshots, (dry_run, yes)).await
            }
            ContainerCommand::Cleanup(cleanup) => Box::pin(cleanup.run(context, &host)).await,
            ContainerCommand::Stats { limits } => {
                let engine = context.engine().await?;
                let limits = limits.limits(context, &engine, &host.tenant).await?;
                let stats = engine.containers().stats(&host, &limits).await?;
                for one in &stats.unreadable {
                    context.output.say(&format!("warning: {one}"));
                }
                context.output.result(&stats, text::stats)?;
                Ok(if stats.unreadable.is_empty() {
                    Exit::Done
                } else {
                    Exit::Corrupt
                })
            }
            ContainerCommand::Diff { before, after, of } => {
                diff(context, &host, (&before, after.as_ref()), of.as_deref()).await
            }
            ContainerCommand::Export(args) => Box::pin(args.run(context, &host)).await,
            ContainerCommand::Import(args) => Box::pin(args.run(context, &host)).await,
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

/// The engine that the everyday verbs work with.
pub(super) fn default_host(context: &CliContext) -> ContainerHost {
    container_host(context, &TenantId::default())
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

/// Deletes snapshots of a container, however somebody asked for it: all of them, or none.
pub(super) async fn delete_snapshots(
    context: &CliContext,
    host: &ContainerHost,
    (snapshots, container): (&[SnapshotRef], Option<&str>),
    (dry_run, yes): (bool, bool),
) -> anyhow::Result<Exit> {
    let engine = context.writable_engine().await?;
    let containers = engine.containers();
    if !dry_run && !yes && ask::is_interactive(context) {
        for snapshot in snapshots {
            let shown = containers.show(host, snapshot, container).await?;
            context.output.insist(&format!(
                "{} of {}, made at {}, goes with its image",
                shown.row.snapshot_id, shown.row.container_name, shown.row.created_at
            ));
        }
        if !ask::is_yes("Continue?")? {
            context.output.say(ask::NOTHING_CHANGED);
            return Ok(Exit::Cancelled);
        }
    }
    let deleted = containers.delete(host, snapshots, container, dry_run);
    context.output.result(&deleted.await?, text::deleted)?;
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
