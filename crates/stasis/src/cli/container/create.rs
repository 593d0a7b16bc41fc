//! `stasis container create`

use super::args::{LimitArgs, WishesArgs};
use super::text;
use crate::cli::progress::{cancel_on_signals, watched};
use crate::cli::{CliContext, duration, envelope, project};
use crate::report::Exit;
use anyhow::Context as _;
use clap::Args;
use stasis_engine::kind::container::{ContainerHost, CreateSnapshot, MAX_FREEZE, SnapshotTrigger};
use stasis_engine::model::id::{Label, SnapshotId};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Args)]
pub(super) struct CreateArgs {
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
    /// Do not wait: say what the snapshot will be called, and let a process of its own make it
    #[arg(long)]
    detach: bool,
    /// What the snapshot is called
    #[arg(long, hide = true, value_name = "ID")]
    snapshot_id: Option<SnapshotId>,
    /// For how long the container may stand still
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::positive)]
    max_freeze: Duration,
    #[command(flatten)]
    wishes: WishesArgs,
    #[command(flatten)]
    limits: LimitArgs,
}

impl CreateArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        host: &ContainerHost,
    ) -> anyhow::Result<Exit> {
        let engine = context.writable_engine().await?;
        // What is said wrongly is refused here, and not by a process that nobody hears.
        let limits = self.limits.limits(context, &engine, &host.tenant).await?;
        let labels = project::labels(&self.labels)?;
        if self.detach {
            return detach(context, host, &self.container).await;
        }
        let create = CreateSnapshot {
            trigger: self.trigger,
            description: self.description,
            run_id: self.run_id,
            action_context: self.context,
            labels,
            wishes: self.wishes.wishes(),
            strict: self.wishes.strict,
            portable: self.portable,
            max_freeze: self.max_freeze,
            limits: Some(limits),
            snapshot_id: self.snapshot_id,
            ..CreateSnapshot::new(self.container)
        };
        save(context, host, create).await
    }
}

/// Saves a container, however somebody asked for it.
pub(in crate::cli) async fn save(
    context: &CliContext,
    host: &ContainerHost,
    mut create: CreateSnapshot,
) -> anyhow::Result<Exit> {
    let engine = context.writable_engine().await?;
    create.cancel = cancel_on_signals()?;
    let progress = Arc::clone(&create.progress);
    let note = match &create.snapshot_id {
        Some(id) => Some(engine.containers().take_detached(id).await?),
        None => None,
    };
    let work = Box::pin(engine.containers().create(host, &create));
    let saved = watched(context.output, "saving", progress, work).await;
    if let Some(note) = note {
        note.end(saved.as_ref().map(|saved| &saved.snapshot_id))
            .await;
    }
    let saved = saved?;
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

/// Has a process of its own save a container.
async fn detach(
    context: &CliContext,
    host: &ContainerHost,
    container: &str,
) -> anyhow::Result<Exit> {
    let engine = context.writable_engine().await?;
    let begun = engine
        .containers()
        .begin_detached(&host.tenant, container)
        .await?;
    let id = &begun.snapshot_id;
    let words = std::env::args_os().skip(1);
    let words = words.map(|word| match word.to_str() {
        Some("--detach") => format!("--snapshot-id={id}").into(),
        _ => word,
    });
    let program = std::env::current_exe().context("find this program")?;
    let child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    child.context("start a process that makes the snapshot")?;
    envelope::about_snapshot(id.to_string());
    context.output.result(&begun, text::begun)?;
    Ok(Exit::Done)
}

/// A save of a container with the usual limits.
pub(in crate::cli) async fn usual_save(
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
