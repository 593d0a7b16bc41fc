//! `stasis workspace init`, `watch` and `status`

use super::{WorkspaceSelector, checkpoint_label, here};
use crate::cli::byte_size::size;
use crate::cli::output::{plural, printable};
use crate::cli::progress::cancel_on_signals;
use crate::cli::{CliContext, byte_size, first_checkpoint, hook};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::kind::workspace::{
    self, Checkpointed, UndoRow, UnreadableSlot, Watched, WorkspaceMade, WorkspaceStatus,
};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct WorkspaceInitArgs {
    /// The directory
    dir: PathBuf,
    /// Where its checkpoints and events are kept: not in the workspace, best on the same filesystem [default: a directory
    /// under $XDG_STATE_HOME/stasis/workspaces]
    #[arg(long, value_name = "DIR")]
    session_dir: Option<PathBuf>,
    /// A directory or an image that every checkpoint contains besides
    #[arg(long, value_name = "PATH")]
    system: Option<PathBuf>,
    /// The most that all checkpoints hold together, as in 10GB [default: 10GB, or a tenth of the disk if that is less]
    #[arg(long, value_name = "SIZE", value_parser = byte_size::positive)]
    budget: Option<u64>,
    /// Do not make the first checkpoint now; then the first prompt or the first watch has to wait for it
    #[arg(long)]
    no_checkpoint: bool,
}

impl WorkspaceInitArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        which: &WorkspaceSelector,
    ) -> anyhow::Result<()> {
        which.or(Some(self.dir.clone()))?;
        let here = here()?;
        let init = workspace::InitWorkspace {
            directory: here.join(self.dir),
            session: self.session_dir.map(|path| here.join(path)),
            system: self.system.map(|path| here.join(path)),
            budget: self.budget,
        };
        let directory = init.directory.clone();
        let made = workspace::Workspace::init(init, &context.environment.host_env()?).await?;
        for hint in &made.hints {
            context.output.say(&format!("hint: {}", printable(hint)));
        }
        let first = if self.no_checkpoint {
            None
        } else {
            first_checkpoint::make(context, &directory).await?
        };
        let made = Initiated { made, first };
        context.output.result(&made, initiated_text)
    }
}

/// A new workspace, and its first checkpoint if it was made now.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct Initiated {
    #[serde(flatten)]
    made: WorkspaceMade,
    first: Option<Checkpointed>,
}

fn initiated_text(initiated: &Initiated) -> String {
    let words = made_text(&initiated.made);
    match &initiated.first {
        None => words,
        Some(first) => format!(
            "{words}\nfirst checkpoint: {}, {}, {}",
            first.checkpoint,
            plural(first.files_count, "file"),
            size(first.bytes)
        ),
    }
}

fn made_text(made: &WorkspaceMade) -> String {
    let is = if made.existed {
        "was already"
    } else {
        "is now"
    };
    format!(
        "{} {is} a workspace; checkpoints in {} ({}, {}), {} at most\n\
         next: `stasis protect` makes them by itself, `stasis workspace create NAME` makes one now",
        printable(&made.workspace),
        printable(&made.session),
        made.form,
        made.filesystem,
        size(made.budget_bytes)
    )
}

#[derive(Debug, Args)]
pub(super) struct WorkspaceWatchArgs {
    /// The workspace [default: the one that the current directory lies in]
    dir: Option<PathBuf>,
}

impl WorkspaceWatchArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        which: &WorkspaceSelector,
    ) -> anyhow::Result<()> {
        let stop = cancel_on_signals()?;
        let workspace = which.or(self.dir)?.open(context).await?;
        let status = workspace.status().await?;
        warn_of(context, &status);
        let line = format!(
            "watching {}; checkpoints in {}",
            printable(&status.workspace),
            printable(&status.session)
        );
        let output = context.output;
        let watched = workspace.watch(stop, move || output.say(&line)).await?;
        context.output.result(&watched, watched_text)
    }
}

fn watched_text(watched: &Watched) -> String {
    let Watched {
        checkpoints,
        skipped,
        events,
        gaps,
        ..
    } = watched;
    let gaps = match gaps {
        0 => String::new(),
        gaps => format!("; signs were missed {gaps} times, and what was missed was found"),
    };
    format!(
        "made {checkpoints} checkpoints, {skipped} were not needed; recorded {events} file events{gaps}"
    )
}

pub(super) async fn status(context: &CliContext, which: &WorkspaceSelector) -> anyhow::Result<()> {
    let status = which.open(context).await?.status().await?;
    warn_of(context, &status);
    if status.watched_by.is_none() {
        context.output.say(
            "warning: no watcher is running, so there are no automatic checkpoints. Start one with: stasis protect",
        );
    }
    let hooks = hook::records(context, std::path::Path::new(&status.workspace));
    for warning in hooks.iter().filter_map(hook::AgentRecord::warning) {
        context.output.say(&printable(&warning));
    }
    let shown = StatusShown { status, hooks };
    context.output.result(&shown, |shown| {
        let hooks = shown.hooks.iter().map(|one| printable(&one.line()));
        let lines = [status_text(&shown.status)].into_iter().chain(hooks);
        lines.collect::<Vec<_>>().join("\n")
    })
}

/// What `status` shows.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct StatusShown {
    #[serde(flatten)]
    status: WorkspaceStatus,
    /// What the hooks of coding agents did here last.
    hooks: Vec<hook::AgentRecord>,
}

/// What somebody should know before they go on.
fn warn_of(context: &CliContext, status: &WorkspaceStatus) {
    if status.finished_restore {
        context
            .output
            .say("warning: a restore that was interrupted was brought to its end just now");
    }
    warn_unreadable(context, &status.unreadable);
    warn_of_hooks(context, status.hook_warning.as_deref());
}

pub(in crate::cli) fn warn_of_hooks(context: &CliContext, warning: Option<&str>) {
    if let Some(warning) = warning {
        context
            .output
            .say(&format!("warning: {}", printable(warning)));
    }
}

pub(in crate::cli) fn warn_unreadable(context: &CliContext, unreadable: &[UnreadableSlot]) {
    for slot in unreadable {
        let (checkpoint, why) = (&slot.checkpoint, printable(&slot.why));
        context.output.say(&format!(
            "warning: {checkpoint} cannot be used, and is not overwritten: {why}"
        ));
    }
}

fn status_text(status: &WorkspaceStatus) -> String {
    let nothing = || "none yet".to_owned();
    let newest = status.newest.as_ref().map(|newest| {
        let at = status.newest_at.as_deref().unwrap_or_default();
        checkpoint_label(newest, Some(at))
    });
    let mut lines = vec![
        format!("workspace   {}", printable(&status.workspace)),
        format!("session     {}", printable(&status.session)),
        format!("form        {}", status.form),
        format!(
            "automatic   {} of {}, one every {} s",
            status.auto_count, status.auto_max, status.auto_interval
        ),
        format!(
            "manual      {} of {}",
            status.manual_count, status.manual_max
        ),
        format!(
            "agents      {} before prompts, {} before commands and edits",
            status.prompt_count, status.command_count
        ),
        format!(
            "held        {}{} of {}",
            if status.held_is_exact { "" } else { "at most " },
            size(status.held_bytes),
            size(status.budget_bytes)
        ),
        format!("newest      {}", newest.unwrap_or_else(nothing)),
        format!(
            "watched by  {}",
            printable(status.watched_by.as_deref().unwrap_or("nobody"))
        ),
    ];
    if status.forks > 0 {
        lines.push(format!(
            "forks       {}; see: stasis fork list",
            status.forks
        ));
    }
    if let Some(holder) = &status.hook_at_work {
        lines.push(format!("hook        {}", printable(holder)));
    }
    if status.set_aside_count > 0 {
        let (count, bytes) = (status.set_aside_count, size(status.set_aside_bytes));
        let first = status.set_aside.first().map(|path| printable(path));
        lines.push(format!(
            "set aside   {count} damaged, {bytes}: {}{}",
            first.unwrap_or_default(),
            if count > 1 { ", …" } else { "" }
        ));
    }
    if let Some(skipped) = &status.last_skipped {
        lines.push(format!("not needed  {skipped}, nothing had changed"));
    }
    lines.push(format!("events      {}", status.last_event_id));
    lines.extend(status.undo.iter().map(undo_line));
    lines.join("\n")
}

fn undo_line(row: &UndoRow) -> String {
    let of = row.path.as_deref().unwrap_or("the whole workspace");
    format!(
        "undo        {} takes back the {} of {} with {}, {}",
        row.undo,
        row.act,
        printable(of),
        printable(&row.checkpoint),
        row.age
    )
}
