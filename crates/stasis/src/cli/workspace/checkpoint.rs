//! `stasis workspace create`, `delete`, `compact`, `materialize` and `check`

use super::{DryRunArgs, WorkspaceSelector, checkpoint_label};
use crate::cli::CliContext;
use crate::cli::byte_size::size;
use crate::cli::output::{plural, printable};
use crate::cli::progress::{Doing, cancel_on_signals, watched};
use crate::report::Exit;
use clap::Args;
use stasis_engine::clone::LeftOut;
use stasis_engine::kind::workspace::{
    self, CheckedWorkspace, Checkpointed, Compacted, DatabaseRow, DeletedCheckpoint, Maker,
    MaterializedCheckpoint,
};
use stasis_engine::model::format::manifest::StoredAs;
use stasis_engine::model::workspace::{CheckpointName, CheckpointOrigin, CheckpointRef};
use stasis_engine::progress::Progress;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, Args)]
pub(super) struct WorkspaceCreateArgs {
    /// Its name: unique, and not beginning with cp-
    name: Option<CheckpointName>,
    /// Make an automatic one: skipped if nothing changed since the last, and the oldest makes room for it
    #[arg(long)]
    auto: bool,
    #[command(flatten)]
    dry: DryRunArgs,
}

impl WorkspaceCreateArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        which: &WorkspaceSelector,
    ) -> anyhow::Result<Exit> {
        let command = workspace::CreateCheckpoint {
            name: self.name,
            pool: if self.auto {
                CheckpointOrigin::Auto
            } else {
                CheckpointOrigin::Manual
            },
            maker: Maker::Cli,
            call: None,
            run: self.dry.how(),
        };
        let workspace = which.open(context).await?;
        let (progress, cancel) = (Arc::<Progress>::default(), cancel_on_signals()?);
        let work = workspace.create_watched(command, Arc::clone(&progress), cancel);
        let made = watched(context.output, "checkpoint", progress, work).await?;
        let named = context.output.left_out(&made.left_out);
        for line in warnings(&made, named) {
            context.output.say(&format!("warning: {line}"));
        }
        context.output.result(&made, created_text)?;
        Ok(exit_of(&made))
    }
}

/// A checkpoint that lacks what a user could expect says so to scripts too.
fn exit_of(made: &Checkpointed) -> Exit {
    let lacks_entry = made.left_out.iter().any(LeftOut::is_missing);
    if lacks_entry || made.databases.iter().any(DatabaseRow::is_wanting) {
        Exit::Incomplete
    } else {
        Exit::Done
    }
}

/// Names a database that could not be made consistent.
pub(super) fn database_text(one: &DatabaseRow) -> Option<String> {
    let why = printable(one.why.as_deref()?);
    let path = printable(&one.path);
    let how = match one.stored_as {
        StoredAs::CrashConsistent => {
            "is in it as a power cut would have left it (crash_consistent), which SQLite recovers from"
        }
        _ => "is in it as it was at different moments (torn), and may be damaged",
    };
    Some(format!("database {path} {how}: {why}"))
}

fn warnings(made: &Checkpointed, named: u64) -> Vec<String> {
    let mut lines = Vec::new();
    let more = made.left_out_count.saturating_sub(named);
    if more > 0 {
        lines.push(format!(
            "{more} more entries were left out; --json lists a thousand"
        ));
    }
    lines.extend(made.databases.iter().filter_map(database_text));
    if !made.evicted.is_empty() {
        let goes = if made.dry_run { "would go" } else { "went" };
        let evicted = made.evicted.join(", ");
        lines.push(format!("{evicted} {goes} because of the budget"));
    }
    lines
}

fn created_text(made: &Checkpointed) -> String {
    let checkpoint = checkpoint_label(&made.checkpoint, made.name.as_deref());
    if let Some(why) = &made.skipped {
        let why = printable(why);
        return format!("No new checkpoint is needed: {checkpoint} has it all; {why}");
    }
    let verb = if made.dry_run {
        "Would make checkpoint"
    } else {
        "Checkpoint"
    };
    let (files, bytes) = (plural(made.files_count, "file"), size(made.bytes));
    let name = made.name.as_deref().map(printable);
    let name = name.map_or_else(String::new, |name| format!(" \"{name}\""));
    format!("{verb} {}{name}: {files}, {bytes}", made.checkpoint)
}

#[derive(Debug, Args)]
pub(super) struct WorkspaceDeleteArgs {
    /// cp-N, or its name
    #[arg(value_name = "CP")]
    checkpoint: CheckpointRef,
    #[command(flatten)]
    dry: DryRunArgs,
}

impl WorkspaceDeleteArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        which: &WorkspaceSelector,
    ) -> anyhow::Result<()> {
        let workspace = which.open(context).await?;
        let gone = workspace.delete(self.checkpoint, self.dry.how()).await?;
        context.output.result(&gone, deleted_text)
    }
}

fn deleted_text(gone: &DeletedCheckpoint) -> String {
    let verb = if gone.dry_run {
        "would delete"
    } else {
        "deleted"
    };
    let label = checkpoint_label(&gone.checkpoint, gone.name.as_deref());
    format!("{verb} {label}")
}

#[derive(Debug, Args)]
pub(super) struct WorkspaceCompactArgs {
    /// The checkpoints that become one: cp-N, or their names
    #[arg(value_name = "CP", required = true, num_args = 1..)]
    checkpoints: Vec<CheckpointRef>,
    /// The name of the merged checkpoint
    #[arg(long, value_name = "NAME")]
    name: Option<CheckpointName>,
    #[command(flatten)]
    dry: DryRunArgs,
}

impl WorkspaceCompactArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        which: &WorkspaceSelector,
    ) -> anyhow::Result<()> {
        let command = workspace::CompactCheckpoints {
            checkpoints: self.checkpoints,
            name: self.name,
            run: self.dry.how(),
        };
        let one = which.open(context).await?.compact(command).await?;
        context.output.result(&one, |one: &Compacted| {
            let (verb, go) = if one.dry_run {
                ("would make", "would go")
            } else {
                ("made", "are gone")
            };
            format!(
                "{verb} {} of {}: {}; {} {go}",
                checkpoint_label(&one.checkpoint, one.name.as_deref()),
                plural(one.merged_count as u64, "checkpoint"),
                plural(one.files_count, "file"),
                one.deleted_checkpoints.join(", ")
            )
        })
    }
}

#[derive(Debug, Args)]
pub(super) struct WorkspaceMaterializeArgs {
    /// cp-N, or its name
    #[arg(value_name = "CP")]
    checkpoint: CheckpointRef,
    /// The new directory; nothing may be there yet
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    #[command(flatten)]
    dry: DryRunArgs,
}

impl WorkspaceMaterializeArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        which: &WorkspaceSelector,
    ) -> anyhow::Result<()> {
        let command = workspace::MaterializeCheckpoint {
            checkpoint: self.checkpoint,
            directory: self.to,
            run: self.dry.how(),
        };
        let workspace = which.open(context).await?;
        materialize(context, &workspace, command).await
    }
}

/// Writes a checkpoint of a workspace out as a plain directory.
pub(in crate::cli) async fn materialize(
    context: &CliContext,
    of: &workspace::Workspace,
    command: workspace::MaterializeCheckpoint,
) -> anyhow::Result<()> {
    let progress = Arc::default();
    let of = of.watched(Arc::clone(&progress)).await?;
    let work = of.materialize(command);
    let made = watched(context.output, "writing", progress, work).await?;
    context
        .output
        .result(&made, |made: &MaterializedCheckpoint| {
            let verb = if made.dry_run { "would be" } else { "is" };
            format!(
                "{} {verb} {}: {}, {}; by {}; {} ms",
                printable(&made.directory),
                made.checkpoint,
                plural(made.files, "file"),
                size(made.bytes),
                made.method,
                made.elapsed_ms
            )
        })
}

/// Reads every checkpoint, and names those that are damaged.
pub(super) async fn check(context: &CliContext, which: &WorkspaceSelector) -> anyhow::Result<Exit> {
    let workspace = which.open(context).await?;
    let checked = checked(context, &workspace).await?;
    context.output.result(&checked, checked_text)?;
    Ok(if checked.damaged.is_empty() {
        Exit::Done
    } else {
        Exit::Corrupt
    })
}

/// The same, shown while it goes on; what was found is said by the caller.
pub(in crate::cli) async fn checked(
    context: &CliContext,
    workspace: &workspace::Workspace,
) -> anyhow::Result<CheckedWorkspace> {
    let progress = Arc::default();
    let workspace = workspace.watched(Arc::clone(&progress)).await?;
    let doing = Doing::new("checking checkpoints", "objects");
    Ok(watched(context.output, doing, progress, workspace.check()).await?)
}

pub(in crate::cli) fn checked_text(checked: &CheckedWorkspace) -> String {
    let all = plural(checked.checkpoints, "checkpoint");
    let mut lines = vec![if checked.damaged.is_empty() {
        format!("OK: {all}, all data verified")
    } else {
        format!("{} of {all} damaged", checked.damaged.len())
    }];
    if checked.healed_count > 0 {
        let files = plural(checked.healed_count, "lost file");
        lines.push(format!("{files} taken again from the workspace"));
        let healed = checked.healed.iter();
        lines.extend(healed.map(|path| format!("  {}", printable(path))));
    }
    if checked.damaged.is_empty() {
        return lines.join("\n");
    }
    for one in &checked.damaged {
        let label = checkpoint_label(&one.checkpoint, one.name.as_deref());
        if let Some(problem) = &one.problem {
            lines.push(format!("{label}: {}", printable(problem)));
        }
        if one.files_count > 0 {
            lines.push(format!("{label}: {} lost", plural(one.files_count, "file")));
        }
        lines.extend(
            one.files
                .iter()
                .map(|path| format!("  {}", printable(path))),
        );
    }
    lines.push(
        "hint: `stasis workspace create` stores what the workspace still has of them; check again after that. What else is in them can be reverted; delete them only when that is done"
            .to_owned(),
    );
    lines.join("\n")
}
