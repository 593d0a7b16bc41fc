//! `stasis workspace revert`, `restore` and `undo`

use super::{DryRunArgs, WorkspaceSelector, entry};
use crate::cli::CliContext;
use crate::cli::ask::{self, is_interactive};
use crate::cli::change::ChangeArgs;
use crate::cli::output::{plural, printable};
use crate::cli::plan::{self, BRING_BACK, CHANGE, DELETE, PlanAct, PlanLine, SHOWN};
use crate::cli::progress::{timed, watched};
use crate::report::Exit;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::address::shell_word;
use stasis_engine::kind::workspace::{
    self, ChangeOp, ChangePlan, ExcludedNow, ForgetReason, ForgottenUndo, GitPlan, LeftAloneEntry,
    LeftAloneReason, PathChange, RestoreWorkspace, RestoredWorkspace, RevertAction, RevertPath,
    RevertedPath, RunMode, UndoneChange,
};
use stasis_engine::model::workspace::CheckpointRef;
use std::ffi::OsString;
use std::sync::Arc;

#[derive(Debug, Args)]
pub(super) struct WorkspaceRevertArgs {
    /// A file, a symbolic link or a directory, from here or from the top of the workspace
    path: OsString,
    /// cp-N, or its name [default: the newest that holds it and differs]
    #[arg(value_name = "CP")]
    checkpoint: Option<CheckpointRef>,
    #[command(flatten)]
    undo: NoUndoArgs,
    #[command(flatten)]
    dry: DryRunArgs,
}

/// Whether what is replaced is kept.
#[derive(Debug, Args, Clone, Copy)]
struct NoUndoArgs {
    /// Keep nothing of what is replaced, whatever the budget says: the change cannot be undone. What others wrote meanwhile is kept all the same
    #[arg(long)]
    no_undo: bool,
}

impl WorkspaceRevertArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        which: &WorkspaceSelector,
    ) -> anyhow::Result<()> {
        let workspace = which.open(context).await?;
        let command = RevertPath {
            path: entry(&workspace, &self.path)?,
            checkpoint: self.checkpoint,
            no_undo: self.undo.no_undo,
            confirm: None,
            run: self.dry.how(),
        };
        revert(context, &workspace, command).await
    }
}

/// Makes one entry of a workspace what it was.
pub(in crate::cli) async fn revert(
    context: &CliContext,
    workspace: &workspace::Workspace,
    command: RevertPath,
) -> anyhow::Result<()> {
    let no_undo = command.no_undo;
    let reverted = workspace.revert(command).await?;
    let is_final = reverted.reverted && reverted.undo.is_none();
    warn_no_undo(context, no_undo && is_final);
    let text = |reverted: &RevertedPath| from_here(reverted_text(reverted), workspace);
    context.output.result(&reverted, text)
}

fn reverted_text(result: &RevertedPath) -> String {
    let (path, checkpoint) = (printable(&result.path), &result.checkpoint);
    let would = if result.dry_run { "would be " } else { "" };
    let what = match result.action {
        RevertAction::Unchanged => return format!("{path} is what it was in {checkpoint}"),
        RevertAction::Deleted => {
            format!("{path}: {would}deleted, it did not exist in {checkpoint}")
        }
        RevertAction::Restored => format!("{path}: {would}restored from {checkpoint}"),
    };
    if result.dry_run {
        return with_paths(&what, &result.plan, BRING_BACK);
    }
    let what = format!("{what}; {} ms", result.elapsed_ms);
    let what = with_meanwhile(what, &result.changed_meanwhile);
    with_undo(
        with_forgotten(what, &result.undo_forgotten),
        result.undo.as_deref(),
    )
}

#[derive(Debug, Args)]
pub(super) struct WorkspaceRestoreArgs {
    /// cp-N, or its name
    #[arg(value_name = "CP")]
    checkpoint: CheckpointRef,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    undo: NoUndoArgs,
    #[command(flatten)]
    dry: DryRunArgs,
}

impl WorkspaceRestoreArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        which: &WorkspaceSelector,
    ) -> anyhow::Result<Exit> {
        let workspace = which.open(context).await?;
        let command = RestoreWorkspace {
            except: self.change.except(|path| entry(&workspace, path))?,
            no_undo: self.undo.no_undo,
            agreed: self.change.yes,
            checkpoint: self.checkpoint,
            confirm: None,
            run: self.dry.how(),
        };
        restore(context, &workspace, command).await
    }
}

/// Makes the whole workspace what it was; shows the plan first and asks, where somebody is there to answer and has not agreed yet.
pub(in crate::cli) async fn restore(
    context: &CliContext,
    workspace: &workspace::Workspace,
    command: RestoreWorkspace,
) -> anyhow::Result<Exit> {
    let no_undo = command.no_undo;
    let is_asked = !command.agreed && command.run == RunMode::Real && is_interactive(context);
    let confirm = if is_asked {
        let look = RestoreWorkspace {
            run: RunMode::Dry,
            ..command.clone()
        };
        let shown = workspace.restore(look).await?;
        warn(context, &shown);
        if no_undo {
            let said =
                "warning: --no-undo: what is replaced will be gone, and this cannot be undone";
            context.output.insist(said);
        }
        match agreed(context, &shown.plan, &restored_text(&shown))? {
            Answer::Yes(digest) => digest,
            Answer::No => {
                context.output.say(ask::NOTHING_CHANGED);
                return Ok(Exit::Cancelled);
            }
        }
    } else {
        None
    };
    let command = RestoreWorkspace { confirm, ..command };
    let progress = Arc::default();
    let live = workspace.watched(Arc::clone(&progress)).await?;
    let work = live.restore(command);
    let restored = watched(context.output, "restoring", progress, work).await?;
    if !is_asked {
        warn(context, &restored);
    }
    let is_final = restored.restored && restored.undo.is_none();
    warn_no_undo(context, no_undo && is_final);
    let text = |restored: &RestoredWorkspace| from_here(restored_text(restored), workspace);
    context.output.result(&restored, text)?;
    Ok(exit_of(&restored.left_alone))
}

/// Says of a change that was made that there is no way back.
fn warn_no_undo(context: &CliContext, is_final: bool) {
    if is_final {
        context
            .output
            .say("warning: what was replaced is gone: this cannot be undone");
    }
}

/// What left something alone although nobody asked for that says so to scripts too.
pub(super) fn exit_of(left_alone: &[LeftAloneEntry]) -> Exit {
    if left_alone.is_empty() {
        Exit::Done
    } else {
        Exit::Incomplete
    }
}

/// Names what was left alone.
pub(super) fn warn(context: &CliContext, result: &RestoredWorkspace) {
    warn_left_alone(context, &result.left_alone, &result.checkpoint);
    if let Some(excluded) = &result.excluded_now {
        context
            .output
            .say(&excluded_text(excluded, &result.checkpoint));
    }
}

pub(super) fn warn_left_alone(context: &CliContext, all: &[LeftAloneEntry], from: &str) {
    for one in all.iter().take(SHOWN) {
        let words = left_alone_text(one, from);
        context.output.say(&format!("warning: {words}"));
    }
    let more = all.len().saturating_sub(SHOWN);
    if more > 0 {
        context.output.say(&format!(
            "warning: {more} more entries were left alone; --json lists them"
        ));
    }
    if !all.is_empty() {
        context
            .output
            .say("hint: nothing else was left out; --except PATH leaves an entry alone without a warning");
    }
}

/// A result with what can be undone no longer.
pub(super) fn with_forgotten(words: String, gone: &[ForgottenUndo]) -> String {
    let line = |words: String, one: &ForgottenUndo| {
        let why = match one.why {
            ForgetReason::Old => "it was kept for 7 days",
            ForgetReason::Budget => "all checkpoints together are over the budget",
        };
        format!("{words}\n{} can be undone no longer: {why}", one.undo)
    };
    gone.iter().fold(words, line)
}

fn left_alone_text(one: &LeftAloneEntry, checkpoint: &str) -> String {
    let path = printable(&one.path);
    let why = match one.why {
        LeftAloneReason::Unreadable => {
            "may not be read, so that no undo could bring it back".to_owned()
        }
        LeftAloneReason::NotInCheckpoint => {
            format!("is not in {checkpoint}, because it could not be read then")
        }
        LeftAloneReason::HoldsExcluded => "is excluded from checkpoints".to_owned(),
        LeftAloneReason::NotOurs => {
            "belongs to another user, or lies in a directory that does, and may not be moved"
                .to_owned()
        }
    };
    let whole = one.within.as_deref().map(printable);
    match whole {
        Some(whole) => format!("`{path}` {why}; `{whole}` was left alone with everything in it"),
        None => format!("`{path}` {why}; it was left alone"),
    }
}

pub(super) fn excluded_text(excluded: &ExcludedNow, checkpoint: &str) -> String {
    let paths: Vec<String> = excluded.paths.iter().map(|path| printable(path)).collect();
    let (paths, entries) = (paths.join(", "), excluded.entries);
    let (noun, verb) = if entries == 1 {
        ("entry", "is")
    } else {
        ("entries", "are")
    };
    format!(
        "note: {entries} {noun} of {checkpoint} {verb} excluded from checkpoints by now, and left alone: {paths}\n\
         to get them back, take the pattern out of `exclude` in config.toml of the session, and restore again"
    )
}

/// What somebody said to a plan.
enum Answer {
    /// Go on; with the digest of the plan if they saw one, so that what is done is what was shown.
    Yes(Option<String>),
    No,
}

/// Shows what would be done and asks; where nothing is deleted nobody is asked.
fn agreed(context: &CliContext, plan: &ChangePlan, words: &str) -> anyhow::Result<Answer> {
    if plan.deletes == 0 && plan.git.is_none() {
        return Ok(Answer::Yes(None));
    }
    context.output.insist(words);
    Ok(if ask::is_yes("Continue?")? {
        Answer::Yes(Some(plan.digest.clone()))
    } else {
        Answer::No
    })
}

/// Whether something was left alone although nobody asked for that.
fn is_less(result: &RestoredWorkspace) -> bool {
    !result.left_alone.is_empty() || result.excluded_now.is_some()
}

pub(super) fn restored_text(result: &RestoredWorkspace) -> String {
    let checkpoint = &result.checkpoint;
    if is_nothing(&result.plan) {
        let (else_, but) = if is_less(result) {
            (" else", "but for what was left alone, ")
        } else {
            ("", "")
        };
        return format!("Nothing{else_} differs: {but}the workspace is {checkpoint}");
    }
    if result.dry_run {
        let what = format!(
            "Restoring {checkpoint} will {}",
            planned(&result.plan, BRING_BACK)
        );
        return with_paths(&what, &result.plan, BRING_BACK);
    }
    let less = if is_less(result) {
        ", but for what was left alone"
    } else {
        ""
    };
    let what = format!(
        "Restored the workspace to {checkpoint}{less}: {} ({} ms)",
        done(&result.plan, BRING_BACK),
        result.elapsed_ms
    );
    let what = with_meanwhile(what, &result.changed_meanwhile);
    let moved = result.plan.git.iter().filter(|git| !git.moves.is_empty());
    let moved = moved
        .flat_map(git_lines)
        .fold(what, |what, line| what + "\n" + &line);
    with_undo(
        with_forgotten(moved, &result.undo_forgotten),
        result.undo.as_deref(),
    )
}

#[derive(Debug, Args)]
pub(super) struct WorkspaceUndoArgs {
    /// Which one, as `stasis workspace status` lists them [default: the last]
    #[arg(value_name = "u-N", value_parser = undo_number)]
    which: Option<u32>,
    #[command(flatten)]
    change: ChangeArgs,
    /// Undo nothing, but delete everything that could be undone, and free its bytes
    #[arg(long, conflicts_with_all = ["which", "dry_run", "except", "keep_git"])]
    forget: bool,
    #[command(flatten)]
    dry: DryRunArgs,
}

/// What could be undone, and is deleted.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct ForgottenUndos {
    /// How many undo checkpoints.
    forgotten: u64,
}

pub(in crate::cli) fn undo_number(text: &str) -> Result<u32, String> {
    let number = text
        .strip_prefix("u-")
        .and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("`{}` is not like u-4", text.escape_debug()))
}

impl WorkspaceUndoArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        which: &WorkspaceSelector,
    ) -> anyhow::Result<Exit> {
        let workspace = which.open(context).await?;
        if self.forget {
            let forgotten = workspace.forget_undos().await?;
            let words = |result: &ForgottenUndos| {
                format!("Deleted {}", plural(result.forgotten, "undo checkpoint"))
            };
            context
                .output
                .result(&ForgottenUndos { forgotten }, words)?;
            return Ok(Exit::Done);
        }
        let command = workspace::UndoChange {
            which: self.which,
            except: self.change.except(|path| entry(&workspace, path))?,
            agreed: self.change.yes,
            confirm: None,
            run: self.dry.how(),
        };
        undo(context, &workspace, command).await
    }
}

/// Takes back a change of a workspace; shows the plan first and asks, where somebody is there to answer and has not agreed yet.
pub(in crate::cli) async fn undo(
    context: &CliContext,
    workspace: &workspace::Workspace,
    mut command: workspace::UndoChange,
) -> anyhow::Result<Exit> {
    if !command.agreed && command.run == RunMode::Real && is_interactive(context) {
        let look = workspace::UndoChange {
            run: RunMode::Dry,
            ..command.clone()
        };
        let shown = workspace.undo(look).await?;
        match agreed(context, &shown.plan, &undone_text(&shown))? {
            Answer::Yes(digest) => command.confirm = digest,
            Answer::No => {
                context.output.say(ask::NOTHING_CHANGED);
                return Ok(Exit::Cancelled);
            }
        }
    }
    let undone = timed(context.output, "undoing", workspace.undo(command)).await?;
    warn_left_alone(context, &undone.left_alone, &undone.undo);
    let text = |undone: &UndoneChange| from_here(undone_text(undone), workspace);
    context.output.result(&undone, text)?;
    Ok(exit_of(&undone.left_alone))
}

fn undone_text(result: &UndoneChange) -> String {
    let of = result.path.as_deref().unwrap_or("the whole workspace");
    let (act, of, undo) = (&result.act, printable(of), &result.undo);
    if is_nothing(&result.plan) {
        return format!("Nothing differs from what was there before the {act} of {of} ({undo})");
    }
    if result.dry_run {
        let plan = planned(&result.plan, BRING_BACK);
        let what = format!("Undoing the {act} of {of} ({undo}) will {plan}");
        return with_paths(&what, &result.plan, BRING_BACK);
    }
    let what = format!(
        "Undid the {act} of {of} ({undo}): {}",
        done(&result.plan, BRING_BACK)
    );
    let what = with_meanwhile(what, &result.changed_meanwhile);
    with_undo(
        with_forgotten(what, &result.undo_forgotten),
        result.redo.as_deref(),
    )
}

pub(super) fn is_nothing(plan: &ChangePlan) -> bool {
    plan.creates + plan.replaces + plan.deletes == 0
}

/// What a plan will do: `change 1 entry, bring back 2 and delete 3`.
pub(super) fn planned(plan: &ChangePlan, comes: PlanAct) -> String {
    plan::will(&counts(plan, comes), "entry")
}

/// What was done by a plan: `1 entry changed, 2 brought back and 3 deleted`.
pub(super) fn done(plan: &ChangePlan, comes: PlanAct) -> String {
    plan::did(&counts(plan, comes), "entry")
}

fn counts(plan: &ChangePlan, comes: PlanAct) -> [(PlanAct, u64); 3] {
    [
        (CHANGE, plan.replaces),
        (comes, plan.creates),
        (DELETE, plan.deletes),
    ]
}

/// A result with what other processes wrote while it came about.
pub(super) fn with_meanwhile(words: String, changed: &[String]) -> String {
    if changed.is_empty() {
        return words;
    }
    let shown = changed.iter().take(SHOWN).map(|path| printable(path));
    let mut shown: Vec<String> = shown.map(|path| format!("  {path}")).collect();
    let more = changed.len().saturating_sub(SHOWN);
    if more > 0 {
        shown.push(format!("  and {more} more"));
    }
    let shown = shown.join("\n");
    format!("{words}\nchanged by another process meanwhile, kept in the undo:\n{shown}")
}

/// A result with the line that says how to take it back.
pub(super) fn with_undo(words: String, undo: Option<&str>) -> String {
    match undo {
        Some(undo) => format!("{words}\nUndo with: stasis undo {undo}"),
        None => words,
    }
}

/// What a result says, with the workspace in its commands where they are typed outside of it.
pub(super) fn from_here(words: String, workspace: &workspace::Workspace) -> String {
    let directory = workspace.directory();
    if std::env::current_dir().is_ok_and(|here| here.starts_with(directory)) {
        return words;
    }
    let directory = directory.display().to_string();
    let directory = printable(&shell_word(&directory));
    words.replace("stasis undo u-", &format!("stasis undo {directory} u-"))
}

/// A plan with its first paths, those that go before the others.
pub(super) fn with_paths(what: &str, plan: &ChangePlan, comes: PlanAct) -> String {
    let shown = plan.sample.iter().filter(|change| change.path != ".git");
    let things = shown.map(|change| PlanLine::new(act(change, comes), &change.path));
    // The repository has lines of its own.
    let all = plan.creates + plan.replaces + plan.deletes;
    let all = all.saturating_sub(u64::from(plan.git.is_some()));
    let mut lines = vec![plan::with_lines(what, things.collect(), all)];
    lines.extend(plan.git.iter().flat_map(git_lines));
    lines.join("\n")
}

/// What a plan does to a repository: one line, and the commits that leave.
pub(super) fn git_lines(git: &GitPlan) -> Vec<String> {
    let branch = git.branch.as_deref().unwrap_or("(no branch)");
    let moves = if git.moves.is_empty() {
        format!("{} entries", git.entries)
    } else {
        format!("moves {}", git.moves.join(", "))
    };
    let leaving = match git.commits_leaving {
        Some(0) => String::new(),
        Some(1) => "; 1 commit leaves its branch".to_owned(),
        Some(count) => format!("; {count} commits leave their branches"),
        None => "; which commits leave is not known".to_owned(),
    };
    let then = git
        .branch_then
        .as_ref()
        .filter(|then| git.branch.as_ref() != Some(*then));
    let then = then.map_or(String::new(), |then| {
        format!("; branch {} then", printable(then))
    });
    let mut lines = vec![format!(
        "  .git: {moves}, branch {}{leaving}{then} (--keep-git leaves it as it is)",
        printable(branch)
    )];
    let named = git.commits.iter();
    lines.extend(named.map(|one| format!("    {} {}", one.id, printable(&one.subject))));
    let more = git.commits_leaving.unwrap_or_default();
    let more = more.saturating_sub(git.commits.len() as u64);
    if more > 0 && !git.commits.is_empty() {
        lines.push(format!("    and {more} more"));
    }
    lines
}

/// What a plan does to an entry.
fn act(change: &PathChange, comes: PlanAct) -> PlanAct {
    match change.op {
        ChangeOp::Deleted => DELETE,
        ChangeOp::Created => comes,
        ChangeOp::Modified => CHANGE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_engine::model::workspace::CheckpointOrigin;
    use stasis_engine::result::EntryType;

    fn change(op: ChangeOp, path: &str) -> PathChange {
        PathChange {
            path: path.to_owned(),
            op,
            kind: EntryType::File,
            size: None,
            is_symlink: false,
            checkpoint: "cp-3".to_owned(),
            checkpoint_age: "1 min ago".to_owned(),
            checkpoint_origin: CheckpointOrigin::Auto,
            checkpoint_name: None,
        }
    }

    fn restored(sample: Vec<PathChange>) -> RestoredWorkspace {
        let count = |op: ChangeOp| sample.iter().filter(|change| change.op == op).count() as u64;
        RestoredWorkspace {
            restored: true,
            checkpoint: "cp-3".to_owned(),
            undo: Some("u-4".to_owned()),
            changed_meanwhile: Vec::new(),
            undo_forgotten: Vec::new(),
            left_alone: Vec::new(),
            excluded_now: None,
            plan: ChangePlan {
                creates: count(ChangeOp::Created),
                replaces: count(ChangeOp::Modified),
                deletes: count(ChangeOp::Deleted),
                deletes_files: count(ChangeOp::Deleted),
                sample,
                sample_is_cut: false,
                git: None,
                digest: String::new(),
            },
            untouched: 7,
            dry_run: false,
            elapsed_ms: 5,
        }
    }

    #[test]
    fn a_restore_says_what_it_did_and_how_to_take_it_back() {
        let result = restored(vec![
            change(ChangeOp::Modified, "a"),
            change(ChangeOp::Deleted, "b"),
        ]);

        assert_eq!(
            restored_text(&result),
            "Restored the workspace to cp-3: 1 entry changed and 1 deleted (5 ms)\n\
             Undo with: stasis undo u-4"
        );
        let busy = RestoredWorkspace {
            changed_meanwhile: vec!["log".to_owned()],
            ..result
        };
        assert!(
            restored_text(&busy)
                .contains("\nchanged by another process meanwhile, kept in the undo:\n  log\n"),
            "{}",
            restored_text(&busy)
        );
        assert_eq!(
            restored_text(&restored(Vec::new())),
            "Nothing differs: the workspace is cp-3"
        );
    }

    #[test]
    fn a_plan_shows_what_goes_first_and_no_more_than_ten_paths() {
        let others = (0..11).map(|number| change(ChangeOp::Created, &format!("lost-{number}")));
        let all = others.chain([
            change(ChangeOp::Modified, "a"),
            change(ChangeOp::Deleted, "odd\u{1b}name"),
        ]);
        let result = RestoredWorkspace {
            dry_run: true,
            ..restored(all.collect())
        };

        let words = restored_text(&result);

        let lines: Vec<&str> = words.lines().collect();
        assert_eq!(
            lines[0],
            "Restoring cp-3 will change 1 entry, bring back 11 and delete 1"
        );
        assert_eq!(lines[1], r"  delete     odd\u{1b}name");
        assert_eq!(lines[2], "  bring back lost-0");
        assert_eq!((lines.len(), lines[11]), (12, "  and 3 more"));
    }

    #[test]
    fn an_undo_checkpoint_is_named_as_it_is_listed() {
        assert_eq!(undo_number("u-4"), Ok(4));
        for text in ["", "4", "u4", "u-", "u--1", "U-4"] {
            assert!(undo_number(text).is_err(), "{text:?}");
        }
    }
}
