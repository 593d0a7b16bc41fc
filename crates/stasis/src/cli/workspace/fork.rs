//! `stasis fork`: make forks, list, compare, promote and remove them

use super::back::{
    done, excluded_text, exit_of, from_here, git_lines, is_nothing, planned, warn_left_alone,
    with_forgotten, with_meanwhile, with_paths, with_undo,
};
use super::compare::ComparedArgs;
use super::{DryRunArgs, WorkspaceSelector, entry};
use crate::cli::CliContext;
use crate::cli::ask::{self, is_interactive};
use crate::cli::byte_size::size;
use crate::cli::change::ChangeArgs;
use crate::cli::output::{plural, printable, table};
use crate::cli::plan::{ADD, SHOWN};
use crate::cli::progress::watched;
use crate::report::Exit;
use anyhow::bail;
use clap::{Args, Subcommand};
use stasis_engine::kind::workspace::{
    ChangeOp, ForkPlace, ForkRow, ForkStatus, ForkWorkspace, ForkedWorkspace, Forks,
    OverwrittenEntry, PromoteFork, PromotedFork, RemoveFork, RemovedFork, RunMode, TreeRef,
    Workspace,
};
use stasis_engine::model::workspace::{CheckpointRef, ForkName, ForkSide};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, Args)]
pub(in crate::cli) struct ForkArgs {
    #[command(flatten)]
    which: WorkspaceSelector,
    #[command(subcommand)]
    command: Option<ForkCommand>,
    #[command(flatten)]
    make: ForkMakeArgs,
}

#[derive(Debug, Subcommand)]
enum ForkCommand {
    /// List the forks of the workspace: where they are, what changed in them, what they take
    List,
    /// Show what differs between two forks, or between a fork and what it was made from
    Diff(ForkDiffArgs),
    /// Make the workspace what a fork is; leaves an undo
    ///
    /// With --yes, what changed in the workspace since the fork was made is overwritten without a question; the undo has it.
    Promote(ForkPromoteArgs),
    /// Remove forks with their checkpoints; refuses if work in one is nowhere else
    Rm(ForkRmArgs),
}

impl ForkArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        if self.command.is_some() {
            self.make.check_unused()?;
        }
        let which = &self.which.or(self.make.dir.clone())?;
        match self.command {
            None => self.make.run(context, which).await,
            Some(ForkCommand::List) => list(context, which).await,
            Some(ForkCommand::Diff(diff)) => diff.run(context, which).await,
            Some(ForkCommand::Promote(promote)) => promote.run(context, which).await,
            Some(ForkCommand::Rm(rm)) => rm.run(context, which).await,
        }
    }
}

#[derive(Debug, Args)]
struct ForkMakeArgs {
    /// The workspace; one that is called like a command is written ./list [default: the one that the current directory lies in]
    dir: Option<PathBuf>,
    /// Fork this checkpoint: cp-N, or its name [default: the workspace as it is now, of which a checkpoint is made]
    #[arg(long, value_name = "CP")]
    from: Option<CheckpointRef>,
    /// The name of the fork; with --count, -1, -2, … are put behind it [default: fork-1, fork-2, …]
    #[arg(long)]
    name: Option<ForkName>,
    /// The new directory; nothing may be there yet [default: beside the workspace, as WORKSPACE-NAME]
    #[arg(long, value_name = "PATH")]
    to: Option<PathBuf>,
    /// Make this many
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    #[command(flatten)]
    dry: DryRunArgs,
}

impl ForkMakeArgs {
    /// Refuses what only a new fork can have.
    fn check_unused(&self) -> anyhow::Result<()> {
        let is_any = self.from.is_some()
            || self.name.is_some()
            || self.to.is_some()
            || self.count != 1
            || self.dry.dry_run;
        anyhow::ensure!(
            !is_any,
            "--from, --name, --to and --count are for a new fork; options of a command stand behind it"
        );
        Ok(())
    }

    async fn run(self, context: &CliContext, which: &WorkspaceSelector) -> anyhow::Result<Exit> {
        let workspace = which.open(context).await?;
        let command = ForkWorkspace {
            from: self.from,
            name: self.name,
            place: self.to.map_or(ForkPlace::Beside, ForkPlace::At),
            count: self.count,
            run: self.dry.how(),
        };
        make(command, context, &workspace).await
    }
}

#[derive(Debug, Args)]
pub(super) struct WorkspaceForkArgs {
    /// cp-N, or its name
    #[arg(value_name = "CP")]
    checkpoint: CheckpointRef,
    /// The new directory; nothing may be there yet
    dir: PathBuf,
    /// Make this many, called DIR-1, DIR-2, …
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    n: u32,
    #[command(flatten)]
    dry: DryRunArgs,
}

impl WorkspaceForkArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        which: &WorkspaceSelector,
    ) -> anyhow::Result<Exit> {
        let workspace = which.open(context).await?;
        let command = ForkWorkspace {
            from: Some(self.checkpoint),
            name: None,
            place: ForkPlace::At(self.dir),
            count: self.n,
            run: self.dry.how(),
        };
        make(command, context, &workspace).await
    }
}

async fn make(
    command: ForkWorkspace,
    context: &CliContext,
    workspace: &Workspace,
) -> anyhow::Result<Exit> {
    let progress = Arc::default();
    let workspace = workspace.watched(Arc::clone(&progress)).await?;
    let work = workspace.fork(command);
    let forked = watched(context.output, "forking", progress, work).await?;
    context.output.result(&forked, forked_text)?;
    Ok(Exit::Done)
}

fn forked_text(forked: &ForkedWorkspace) -> String {
    let verb = if forked.dry_run {
        "Would fork"
    } else {
        "Forked"
    };
    let count = forked.names.len() as u64;
    let (files, bytes) = (plural(forked.files, "file"), size(forked.bytes));
    let each = if count == 1 { "" } else { " each" };
    let mut lines = vec![format!(
        "{verb} {} as {}: {files}, {bytes}{each} by {} ({} ms)",
        forked.checkpoint,
        forked.names.join(", "),
        forked.method,
        forked.elapsed_ms
    )];
    let directories = forked.directories.iter();
    lines.extend(directories.map(|path| format!("  {}", shown_path(path))));
    if let (false, Some(first)) = (forked.dry_run, forked.names.first()) {
        lines.push(format!("Compare with: stasis fork diff {first}"));
        lines.push(format!("Keep it with: stasis fork promote {first}"));
    }
    lines.join("\n")
}

async fn list(context: &CliContext, which: &WorkspaceSelector) -> anyhow::Result<Exit> {
    let forks = which.open(context).await?.forks().await?;
    if forks.forks.is_empty() {
        context
            .output
            .say("there are no forks yet: `stasis fork` makes one");
    }
    context.output.result(&forks, list_text)?;
    Ok(Exit::Done)
}

fn list_text(all: &Forks) -> String {
    if all.forks.is_empty() {
        return String::new();
    }
    let row = |row: &ForkRow| {
        vec![
            row.name.clone(),
            row.checkpoint.clone(),
            row.age.clone(),
            changes_text(row),
            size(row.own_bytes),
            shown_path(&row.directory),
        ]
    };
    let head = ["NAME", "FROM", "AGE", "CHANGES", "OWN", "DIRECTORY"];
    let table = table(&head, all.forks.iter().map(row).collect());
    let (own, kept) = (size(all.own_bytes), size(all.held_bytes));
    let budget = size(all.budget_bytes);
    format!("{table}\n{own} in forks and at most {kept} in checkpoints, of {budget}")
}

fn changes_text(row: &ForkRow) -> String {
    match (row.status, row.changes) {
        (ForkStatus::Gone, _) => "gone".to_owned(),
        (ForkStatus::Replaced, _) => "not there".to_owned(),
        (_, Some(changes)) if changes.total > 0 && row.is_workspace => "same as main".to_owned(),
        (_, Some(changes)) if changes.total > 0 => {
            let signs = [
                (changes.created, '+'),
                (changes.edited, '~'),
                (changes.deleted, '-'),
            ];
            let signs = signs.iter().filter(|(count, _)| *count > 0);
            let signs: Vec<String> = signs
                .map(|(count, sign)| format!("{sign}{count}"))
                .collect();
            signs.join(" ")
        }
        _ => "none".to_owned(),
    }
}

/// A path as it is typed from here, if that is shorter.
fn shown_path(path: &str) -> String {
    let short = super::here().ok().and_then(|here| {
        let path = Path::new(path);
        if let Ok(inside) = path.strip_prefix(&here) {
            return Some(inside.display().to_string());
        }
        let beside = path.strip_prefix(here.parent()?).ok()?;
        Some(format!("../{}", beside.display()))
    });
    short
        .filter(|short| !short.is_empty())
        .unwrap_or_else(|| path.to_owned())
}

#[derive(Debug, Args)]
struct ForkDiffArgs {
    /// A fork, or the workspace itself as `main` or `.`; alone, a fork is compared with what it was made from
    #[arg(value_name = "A")]
    first: ForkSide,
    /// Another one
    #[arg(value_name = "B")]
    second: Option<ForkSide>,
    #[command(flatten)]
    content: ComparedArgs,
}

impl ForkDiffArgs {
    async fn run(self, context: &CliContext, which: &WorkspaceSelector) -> anyhow::Result<Exit> {
        let tree = |side: ForkSide| match side {
            ForkSide::Workspace => TreeRef::Workspace,
            ForkSide::Fork(name) => TreeRef::Fork(name),
        };
        let (before, after) = match (self.first, self.second) {
            (first, Some(second)) => (tree(first), tree(second)),
            (ForkSide::Fork(name), None) => (TreeRef::ForkBase(name.clone()), TreeRef::Fork(name)),
            (ForkSide::Workspace, None) => {
                bail!(
                    "name a fork to compare the workspace with: stasis fork diff main NAME; `stasis workspace changes` shows what changed in it"
                )
            }
        };
        let workspace = which.open(context).await?;
        self.content
            .compare(context, &workspace, before, after)
            .await
    }
}

#[derive(Debug, Args)]
struct ForkPromoteArgs {
    /// Which fork
    name: ForkName,
    /// Leave what changed in the workspace since the fork was made as it is
    #[arg(long)]
    keep_mine: bool,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    dry: DryRunArgs,
}

impl ForkPromoteArgs {
    async fn run(self, context: &CliContext, which: &WorkspaceSelector) -> anyhow::Result<Exit> {
        let workspace = which.open(context).await?;
        let mut command = PromoteFork {
            fork: self.name,
            except: self.change.except(|path| entry(&workspace, path))?,
            keep_own: self.keep_mine,
            agreed: self.change.yes,
            confirm: None,
            run: self.dry.how(),
        };
        if !command.agreed && command.run == RunMode::Real && is_interactive(context) {
            let look = PromoteFork {
                run: RunMode::Dry,
                ..command.clone()
            };
            let shown = workspace.promote(look).await?;
            if !is_nothing(&shown.plan) {
                context.output.insist(&promoted_text(&shown));
                if !ask::is_yes("Continue?")? {
                    context.output.say(ask::NOTHING_CHANGED);
                    return Ok(Exit::Cancelled);
                }
                command.confirm = Some(shown.plan.digest);
            }
        }
        let progress = Arc::default();
        let workspace = workspace.watched(Arc::clone(&progress)).await?;
        let work = workspace.promote(command);
        let promoted = watched(context.output, "promoting", progress, work).await?;
        warn_left_alone(context, &promoted.left_alone, &promoted.fork);
        if let Some(excluded) = &promoted.excluded_now {
            context.output.say(&excluded_text(excluded, &promoted.fork));
        }
        let text = |promoted: &PromotedFork| from_here(promoted_text(promoted), &workspace);
        context.output.result(&promoted, text)?;
        Ok(exit_of(&promoted.left_alone))
    }
}

fn promoted_text(result: &PromotedFork) -> String {
    let fork = &result.fork;
    if is_nothing(&result.plan) {
        return format!("Nothing differs: the workspace is what {fork} is");
    }
    if result.dry_run {
        let what = format!("Promoting {fork} will {}", planned(&result.plan, ADD));
        let what = with_paths(&what, &result.plan, ADD);
        return with_own_work(what, result);
    }
    let what = format!(
        "Promoted {fork}: {} ({} ms)",
        done(&result.plan, ADD),
        result.elapsed_ms
    );
    let what = with_own_work(what, result);
    let what = with_meanwhile(what, &result.changed_meanwhile);
    let moved = result.plan.git.iter().filter(|git| !git.moves.is_empty());
    let before = result.checkpoint_before.iter();
    let before = before.map(|one| format!("The workspace as it was before is {one}"));
    let lines = moved.flat_map(git_lines).chain(before);
    let what = lines.fold(what, |what, line| what + "\n" + &line);
    with_undo(
        with_forgotten(what, &result.undo_forgotten),
        result.undo.as_deref(),
    )
}

/// A plan with what it does to work of the workspace itself.
fn with_own_work(words: String, result: &PromotedFork) -> String {
    let mut lines = vec![words];
    if result.kept_own > 0 {
        let kept = plural(result.kept_own, "entry");
        lines.push(format!(
            "Left as it is, because it changed in the workspace since then: {kept}"
        ));
    }
    if result.overwrites_count == 0 {
        return lines.join("\n");
    }
    let verb = if result.dry_run {
        "will overwrite"
    } else {
        "overwrote"
    };
    let fork = &result.fork;
    lines.push(format!(
        "This {verb} what changed in the workspace since {fork} was made:"
    ));
    let shown = result.overwrites.iter().take(SHOWN);
    lines.extend(shown.clone().map(|one| {
        let path = printable(&one.path);
        format!("  {path} ({})", own_work_text(one, fork))
    }));
    let more = result.overwrites_count.saturating_sub(shown.len() as u64);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    if result.dry_run {
        lines.push("--keep-mine leaves these as they are".to_owned());
    }
    lines.join("\n")
}

fn own_work_text(one: &OverwrittenEntry, fork: &str) -> String {
    let what = match one.op {
        ChangeOp::Created => "created here",
        ChangeOp::Modified => "changed here",
        ChangeOp::Deleted => "deleted here",
    };
    if one.changed_in_fork {
        format!("{what}, and other in {fork}")
    } else {
        what.to_owned()
    }
}

#[derive(Debug, Args)]
struct ForkRmArgs {
    /// Which forks: all of them go, or none
    #[arg(value_name = "NAME", required = true)]
    names: Vec<ForkName>,
    /// Remove them although work in them is nowhere else
    #[arg(long)]
    discard: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    dry: DryRunArgs,
}

impl ForkRmArgs {
    async fn run(self, context: &CliContext, which: &WorkspaceSelector) -> anyhow::Result<Exit> {
        let workspace = which.open(context).await?;
        let mut names: Vec<ForkName> = Vec::new();
        for name in self.names {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let look = |fork: ForkName| RemoveFork {
            fork,
            discard: self.discard,
            confirm: None,
            run: RunMode::Dry,
        };
        let mut shown: Vec<(ForkName, RemovedFork)> = Vec::new();
        for fork in names {
            let found = workspace.remove_fork(look(fork.clone())).await?;
            shown.push((fork, found));
        }
        let plan: Vec<RemovedFork> = shown.iter().map(|(_, found)| found.clone()).collect();
        if self.dry.how() == RunMode::Dry {
            context.output.result(&plan, |all| all_removed_text(all))?;
            return Ok(Exit::Done);
        }
        let is_asked = !self.yes && !self.discard && is_interactive(context);
        if is_asked {
            context.output.insist(&all_removed_text(&plan));
            if !ask::is_yes("Continue?")? {
                context.output.say(ask::NOTHING_CHANGED);
                return Ok(Exit::Cancelled);
            }
        }
        // One that is refused is refused before any other goes.
        shown.sort_by_key(|(_, found)| !found.loses_work());
        let mut removed = Vec::new();
        for (fork, found) in shown {
            let command = RemoveFork {
                confirm: is_asked.then_some(found.digest),
                run: RunMode::Real,
                ..look(fork)
            };
            removed.push(workspace.remove_fork(command).await?);
        }
        context
            .output
            .result(&removed, |all| all_removed_text(all))?;
        Ok(Exit::Done)
    }
}

fn all_removed_text(all: &[RemovedFork]) -> String {
    let all: Vec<String> = all.iter().map(removed_text).collect();
    all.join("\n")
}

fn removed_text(result: &RemovedFork) -> String {
    let fork = &result.fork;
    let what = match result.status {
        ForkStatus::Ready => {
            let files = plural(result.files, "file");
            let own = format!("{} of its own", size(result.own_bytes));
            let kept = plural(result.checkpoints, "checkpoint");
            let kept = (result.checkpoints > 0).then_some(kept);
            let all: Vec<String> = [files, own].into_iter().chain(kept).collect();
            all.join(", ")
        }
        _ => "its directory is gone already".to_owned(),
    };
    let directory = shown_path(&result.directory);
    let mut lines = vec![if result.dry_run {
        format!("Removing {fork} will delete {directory}: {what}")
    } else {
        format!("Removed {fork}: {what}")
    }];
    if result.loses_work() {
        let verb = if result.dry_run { "is" } else { "was" };
        let files = result.only_here_count;
        let files = (files > 0).then(|| plural(files, "file"));
        let commits = match result.commits_only_here {
            Some(0) => None,
            Some(count) => Some(plural(count, "commit")),
            None => Some("perhaps commits".to_owned()),
        };
        let all: Vec<String> = files.into_iter().chain(commits).collect();
        lines.push(format!(
            "Work that {verb} nowhere else: {}",
            all.join(" and ")
        ));
        let shown = result.only_here.iter().take(SHOWN);
        lines.extend(shown.clone().map(|path| format!("  {}", printable(path))));
        let more = result.only_here_count.saturating_sub(shown.len() as u64);
        if more > 0 {
            lines.push(format!("  and {more} more"));
        }
    }
    if !result.excluded.is_empty() {
        let excluded: Vec<String> = result.excluded.iter().map(|path| printable(path)).collect();
        lines.push(format!(
            "Excluded from checkpoints, and not looked at: {}",
            excluded.join(", ")
        ));
    }
    lines.join("\n")
}
