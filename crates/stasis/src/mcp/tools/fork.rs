//! Tools for forks: make them, look at them, promote one, remove them.

use super::super::call::{Served, object, shorten_beside};
use super::super::failure::CallFailure;
use super::super::page::{Items, PageFormat, PagedListing};
use super::look::summary_text;
use super::parameters::{
    Confirm, DryRun, ExceptPaths, MaxLength, StartIndex, confirmed, optional_checkpoint, paging,
    run,
};
use super::{CallAnswer, Effect, SnapshotTool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use stasis_engine::kind::workspace::{
    CompareTrees, ComparedContent, ComparedTrees, ForkPlace, ForkRow, ForkWorkspace,
    ForkedWorkspace, Forks, PromoteFork, PromotedFork, RemoveFork, RemovedFork, TreeChange,
    TreeRef,
};
use stasis_engine::model::invalid::Invalid;
use stasis_engine::model::workspace::{ForkName, ForkSide};

/// The most forks that one call makes.
const MOST_FORKS: u32 = 16;

fn fork_name(text: &str) -> Result<ForkName, CallFailure> {
    text.parse()
        .map_err(|bad: Invalid| CallFailure::Params(format!("`name` cannot be used: {bad}")))
}

fn fork_side(text: &str) -> Result<ForkSide, CallFailure> {
    text.parse().map_err(|bad: Invalid| {
        CallFailure::Params(format!(
            "`{text}` is neither a fork nor `main`, the workspace: {bad}"
        ))
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ForkTool {
    /// What to fork: `cp-N` or its name; else the workspace as it is now
    checkpoint: Option<String>,
    /// Name of the fork, and of its directory: letters, digits, `-`, `_`, `.`; no path. Else `fork-N`
    name: Option<String>,
    /// How many directories
    #[schemars(extend("minimum" = 1, "maximum" = MOST_FORKS, "default" = 1))]
    n: Option<u32>,
    dry_run: Option<DryRun>,
}

impl SnapshotTool for ForkTool {
    const NAME: &'static str = "snapshots_fork";
    const TITLE: &'static str = "Fork the workspace";
    const EFFECT: Effect = Effect::Adds;
    const DESCRIPTION: &'static str = "Makes new directories from a checkpoint, to try something without touching the workspace. They are made where the user \
         allowed it; with n > 1, `-1`, `-2`, … are put behind the name. The answer has the paths. Their number and size are limited.";
    type Answer = ForkedWorkspace;

    async fn call(self, served: &Served) -> CallAnswer {
        let (from, count) = (
            optional_checkpoint(self.checkpoint.as_deref())?,
            self.n.unwrap_or(1),
        );
        let name = self.name.as_deref().map(fork_name).transpose()?;
        if !(1..=MOST_FORKS).contains(&count) {
            return Err(CallFailure::Params(format!(
                "`n` must be from 1 to {MOST_FORKS}"
            )));
        }
        let forks = served.forks.clone().ok_or_else(CallFailure::no_forks)?;
        let command = ForkWorkspace {
            from,
            name,
            place: ForkPlace::In(forks),
            count,
            run: run(self.dry_run),
        };
        Ok(served.plain(&served.workspace.fork(command).await?))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ForkListTool {
    format: Option<PageFormat>,
    start_index: Option<StartIndex>,
    max_length: Option<MaxLength>,
}

impl SnapshotTool for ForkListTool {
    const NAME: &'static str = "snapshots_fork_list";
    const TITLE: &'static str = "List forks";
    const EFFECT: Effect = Effect::Reads;
    const DESCRIPTION: &'static str = "Lists the forks of the workspace, the oldest first: where each is, what it was made from, what changed in it and how many \
         bytes of its own it takes.";
    const IS_PAGED: bool = true;
    type Answer = Forks;

    async fn call(self, served: &Served) -> CallAnswer {
        let paging = paging(self.format, self.start_index, self.max_length)?;
        let all = served.workspace.forks().await?;
        Ok(served.paged(forks(&all), paging))
    }
}

fn forks(all: &Forks) -> PagedListing {
    let mut head = object(all);
    head.remove("items");
    let lead = vec![format!(
        "{} forks, the oldest first; {} bytes of their own, {} of checkpoints at most, of {} together.",
        all.forks.len(),
        all.own_bytes,
        all.held_bytes,
        all.budget_bytes
    )];
    let item = |row: &ForkRow| {
        let changes = row.changes.as_ref().map(summary_text);
        let changes = changes.unwrap_or_else(|| row.status.to_string());
        let text = format!(
            "{}  from {}  {}  {changes}  {} bytes  {}",
            row.name, row.checkpoint, row.age, row.own_bytes, row.directory
        );
        (json!(row), text)
    };
    PagedListing {
        head,
        lead,
        digests: false,
        field: "items",
        items: Items::Things(all.forks.iter().map(item).collect()),
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ForkDiffTool {
    /// A fork by its name, or `main`, the workspace
    a: String,
    /// Another one; else what fork `a` was made from is compared with it
    b: Option<String>,
    /// One patch, as `git apply` takes it, instead of a list of paths
    #[schemars(extend("default" = false))]
    patch: Option<bool>,
    format: Option<PageFormat>,
    start_index: Option<StartIndex>,
    max_length: Option<MaxLength>,
}

impl SnapshotTool for ForkDiffTool {
    const NAME: &'static str = "snapshots_fork_diff";
    const TITLE: &'static str = "Compare forks";
    const EFFECT: Effect = Effect::Reads;
    const DESCRIPTION: &'static str = "Shows what differs from `a` to `b`, two forks or the workspace (`main`), as paths or as one patch. With `a` alone: what \
         changed in that fork since it was made. Use it to choose which fork to promote.";
    const IS_PAGED: bool = true;
    type Answer = ComparedTrees;

    async fn call(self, served: &Served) -> CallAnswer {
        let paging = paging(self.format, self.start_index, self.max_length)?;
        let tree = |side: ForkSide| match side {
            ForkSide::Workspace => TreeRef::Workspace,
            ForkSide::Fork(name) => TreeRef::Fork(name),
        };
        let second = self.b.as_deref().map(fork_side).transpose()?;
        let (before, after) = match (fork_side(&self.a)?, second) {
            (first, Some(second)) => (tree(first), tree(second)),
            (ForkSide::Fork(name), None) => (TreeRef::ForkBase(name.clone()), TreeRef::Fork(name)),
            (ForkSide::Workspace, None) => {
                return Err(CallFailure::Params(
                    "give a fork as `b`; snapshots_changes shows what changed in the workspace"
                        .to_owned(),
                ));
            }
        };
        let content = match self.patch {
            Some(true) => ComparedContent::Patch,
            _ => ComparedContent::None,
        };
        let command = CompareTrees {
            before,
            after,
            content,
        };
        let found = served.workspace.compare(command).await?;
        Ok(served.paged(compared(&found), paging))
    }
}

fn compared(found: &ComparedTrees) -> PagedListing {
    let mut head = object(found);
    for name in ["patch", "stat"] {
        head.remove(name);
    }
    if found.content.patch.is_some() {
        // Beside a patch only the first are listed.
        shorten_beside(head.get_mut("items"));
    } else {
        head.remove("items");
    }
    shorten_beside(head.get_mut("not_in_patch"));
    shorten_beside(head.get_mut("not_compared"));
    let mut lead = vec![format!(
        "From {} to {}: {}.",
        found.before,
        found.after,
        summary_text(&found.summary)
    )];
    let missing = found.content.not_in_patch.len() + found.not_compared.len();
    if missing > 0 {
        lead.push(format!("{missing} entries differ in what is not shown."));
    }
    let (field, items) = if let Some(patch) = &found.content.patch {
        let lines = patch.split_terminator('\n').map(str::to_owned);
        ("patch", Items::Lines(lines.collect()))
    } else {
        let changes = found.changes.iter().map(change);
        ("items", Items::Things(changes.collect()))
    };
    PagedListing {
        head,
        lead,
        digests: false,
        field,
        items,
    }
}

fn change(change: &TreeChange) -> (Value, String) {
    let size = change.size.map(|size| format!("  ({size} bytes)"));
    let size = size.unwrap_or_default();
    let text = format!("{}  {}{size}", change.op, change.path);
    (json!(change), text)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ForkPromoteTool {
    /// Which fork
    name: String,
    /// Leave what changed in the workspace since the fork was made as it is
    #[schemars(extend("default" = false))]
    keep_own: Option<bool>,
    except: Option<ExceptPaths>,
    dry_run: Option<DryRun>,
    confirm: Option<Confirm>,
}

impl SnapshotTool for ForkPromoteTool {
    const NAME: &'static str = "snapshots_fork_promote";
    const TITLE: &'static str = "Promote a fork";
    const EFFECT: Effect = Effect::ReplacesOnce;
    const DESCRIPTION: &'static str = "Makes the workspace what a fork is, and deletes what the fork does not have. Call with dry_run first: `overwrites` names work \
         of the workspace itself that would go, which needs plan.digest as confirm, as deleting more than 20 files does. \
         snapshots_undo takes it back.";
    type Answer = PromotedFork;

    async fn call(self, served: &Served) -> CallAnswer {
        let command = PromoteFork {
            fork: fork_name(&self.name)?,
            except: served.entries(&self.except.unwrap_or_default().0)?,
            keep_own: self.keep_own.unwrap_or_default(),
            agreed: false,
            confirm: confirmed(self.confirm),
            run: run(self.dry_run),
        };
        Ok(served.plain(&served.workspace.promote(command).await?))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ForkRmTool {
    /// Which fork
    name: String,
    dry_run: Option<DryRun>,
    /// `digest` of a dry run; needed when work goes that is nowhere else
    confirm: Option<String>,
}

impl SnapshotTool for ForkRmTool {
    const NAME: &'static str = "snapshots_fork_rm";
    const TITLE: &'static str = "Remove a fork";
    const EFFECT: Effect = Effect::ReplacesOnce;
    const DESCRIPTION: &'static str = "Removes a fork that was made through these tools, with its checkpoints, to free its room. It cannot be undone. If work in it \
         is nowhere else, it is refused until you pass the digest of a dry run as confirm.";
    type Answer = RemovedFork;

    async fn call(self, served: &Served) -> CallAnswer {
        let command = RemoveFork {
            fork: fork_name(&self.name)?,
            discard: false,
            confirm: self.confirm,
            run: run(self.dry_run),
        };
        Ok(served.plain(&served.workspace.remove_fork(command).await?))
    }
}
