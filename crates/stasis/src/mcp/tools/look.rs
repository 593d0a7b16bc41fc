//! Tools that read: what there is, what changed, each item also as a line of text.

use super::super::call::{BESIDE, Served, name_databases, object, shorten, shorten_beside};
use super::super::page::{Items, LONGEST, PageFormat, PagedListing};
use super::parameters::{
    EntryText, MaxLength, StartIndex, WithDigests, optional_checkpoint, paging, with_digests,
};
use super::{CallAnswer, Effect, SnapshotTool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stasis_engine::kind::workspace::{
    ChangesSummary, CheckpointRow, Checkpoints, DiffSide, PathChange, PathDiff, PathHistory,
    PathVersion, WorkspaceChanges,
};
use stasis_engine::result::EntryType;

/// How many changes are listed with one checkpoint.
const CHANGES_PER_ROW: usize = 20;
/// How many events of agents are shown of one checkpoint.
const EVENTS_PER_ROW: usize = 3;
/// How long those may be.
const ROW_LENGTH: usize = LONGEST / 4;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListTool {
    format: Option<PageFormat>,
    start_index: Option<StartIndex>,
    max_length: Option<MaxLength>,
    /// Also what changed between checkpoints; at most 20 paths each
    #[schemars(extend("default" = false))]
    include_changes: Option<bool>,
    digests: Option<WithDigests>,
}

impl SnapshotTool for ListTool {
    const NAME: &'static str = "snapshots_list";
    const TITLE: &'static str = "List checkpoints";
    const EFFECT: Effect = Effect::Reads;
    const DESCRIPTION: &'static str = "Lists all checkpoints, the newest first: automatic ones, made by a timer and overwritten in turn, and manual ones. With \
         include_changes each also says what changed since the one before it, which is slower.";
    const IS_PAGED: bool = true;
    type Answer = Checkpoints;

    async fn call(self, served: &Served) -> CallAnswer {
        let paging = paging(self.format, self.start_index, self.max_length)?;
        let include_changes = self.include_changes.unwrap_or_default();
        let all = served.workspace.list(include_changes).await?;
        Ok(served.paged(checkpoints(&all, with_digests(self.digests)), paging))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangesTool {
    format: Option<PageFormat>,
    start_index: Option<StartIndex>,
    max_length: Option<MaxLength>,
    /// Compare with this checkpoint only: `cp-N` or its name
    since: Option<String>,
    /// List what differs inside .git, too; else it is one entry
    git: Option<bool>,
}

/// What differs, with the number of entries that were not compared: their list is cut.
#[derive(Serialize, JsonSchema)]
pub(super) struct ChangesAnswer<'a> {
    #[serde(flatten)]
    changes: &'a WorkspaceChanges,
    not_compared_count: usize,
}

impl SnapshotTool for ChangesTool {
    const NAME: &'static str = "snapshots_changes";
    const TITLE: &'static str = "List changes";
    const EFFECT: Effect = Effect::Reads;
    const DESCRIPTION: &'static str = "Lists every path whose content, mode or kind differs now from the newest checkpoint, or from the one that `since` \
         names. It sees what shell commands did, too. Use it to see what happened before you revert or restore.";
    const IS_PAGED: bool = true;
    type Answer = ChangesAnswer<'static>;

    async fn call(self, served: &Served) -> CallAnswer {
        let paging = paging(self.format, self.start_index, self.max_length)?;
        let since = optional_checkpoint(self.since.as_deref())?;
        let git = self.git.unwrap_or_default();
        let all = served.workspace.changes(since, git).await?;
        Ok(served.paged(changes(&all), paging))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DiffTool {
    path: EntryText,
    /// What to compare with: `cp-N` or its name
    checkpoint: Option<String>,
    digests: Option<WithDigests>,
    format: Option<PageFormat>,
    start_index: Option<StartIndex>,
    max_length: Option<MaxLength>,
}

impl SnapshotTool for DiffTool {
    const NAME: &'static str = "snapshots_diff";
    const TITLE: &'static str = "Show a difference";
    const EFFECT: Effect = Effect::Reads;
    const DESCRIPTION: &'static str = "Shows how one path differs from a checkpoint: a unified diff of text (from the checkpoint to now), a summary of binary \
         files, a list for directories. Without a checkpoint: against the newest one that holds the path and differs.";
    const IS_PAGED: bool = true;
    type Answer = PathDiff;

    async fn call(self, served: &Served) -> CallAnswer {
        let paging = paging(self.format, self.start_index, self.max_length)?;
        let path = served.entry(&self.path.0)?;
        let checkpoint = optional_checkpoint(self.checkpoint.as_deref())?;
        let found = served.workspace.diff(path, checkpoint).await?;
        Ok(served.paged(diff(&found, with_digests(self.digests)), paging))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryTool {
    path: EntryText,
    format: Option<PageFormat>,
    start_index: Option<StartIndex>,
    max_length: Option<MaxLength>,
}

impl SnapshotTool for HistoryTool {
    const NAME: &'static str = "snapshots_history";
    const TITLE: &'static str = "Show a path's history";
    const EFFECT: Effect = Effect::Reads;
    const DESCRIPTION: &'static str = "Shows one path through all checkpoints, the newest first: where it is new, modified, unchanged or deleted. Use it to choose \
         the checkpoint to revert to.";
    const IS_PAGED: bool = true;
    type Answer = PathHistory;

    async fn call(self, served: &Served) -> CallAnswer {
        let paging = paging(self.format, self.start_index, self.max_length)?;
        let path = served.entry(&self.path.0)?;
        let found = served.workspace.history(path).await?;
        Ok(served.paged(history(&found), paging))
    }
}

/// All checkpoints.
fn checkpoints(all: &Checkpoints, digests: bool) -> PagedListing {
    let mut head = object(all);
    head.remove("items");
    shorten_beside(head.get_mut("unreadable"));
    let (auto, manual) = (all.auto_max, all.manual_max);
    let free = all.manual_available;
    let mut lead = vec![format!(
        "{} checkpoints, the newest first; at most {auto} automatic and {manual} manual, {free} manual free.",
        all.snapshots.len()
    )];
    let broken = all.unreadable.iter();
    lead.extend(
        broken
            .take(BESIDE)
            .map(|slot| format!("{} cannot be used: {}", slot.checkpoint, slot.why)),
    );
    let item = |row: &CheckpointRow| {
        let mut value = json!(row);
        shorten_beside(value.get_mut("left_out"));
        if let Some(events) = value.get_mut("agent_events") {
            shorten(events, EVENTS_PER_ROW, ROW_LENGTH);
        }
        name_databases(&mut value);
        if value["databases"].as_array().is_some_and(Vec::is_empty)
            && let Some(fields) = value.as_object_mut()
        {
            fields.remove("databases");
        }
        if let Some(changes) = value.get_mut("changes") {
            shorten(changes, CHANGES_PER_ROW, ROW_LENGTH);
        }
        let shown = value["changes"].as_array().map_or(0, Vec::len);
        (value, row_text(row, shown))
    };
    PagedListing {
        head,
        lead,
        digests,
        field: "items",
        items: Items::Things(all.snapshots.iter().map(item).collect()),
    }
}

fn row_text(row: &CheckpointRow, shown: usize) -> String {
    let mut text = format!("{}  {}", row.checkpoint, row.origin);
    let mut more = Vec::new();
    more.extend(row.name.as_ref().map(|name| format!("\"{name}\"")));
    more.push(row.age.clone());
    more.push(format!("{} files", row.files_count));
    more.push(format!("{} bytes", row.bytes));
    more.extend(row.made_by.as_ref().map(|maker| format!("by {maker}")));
    more.extend(row.agent_events.first().map(|event| {
        let text = event.text.as_deref().unwrap_or_default();
        format!("before {} {}: {text}", event.agent, event.event)
    }));
    more.extend(row.changes_summary.as_ref().map(summary_text));
    if !row.complete {
        more.push("not complete".to_owned());
    }
    let wanting = row.databases.iter().filter(|one| one.is_wanting());
    more.extend(wanting.map(|one| format!("database {} is {}", one.path, one.stored_as)));
    for part in more {
        text = format!("{text}  {part}");
    }
    let changes = row.changes.iter().flatten();
    for change in changes.clone().take(shown) {
        text = format!("{text}\n    {}  {}", change.op, change.path);
    }
    match changes.count() - shown {
        0 => text,
        more => format!("{text}\n    and {more} more"),
    }
}

pub(super) fn summary_text(summary: &ChangesSummary) -> String {
    let ChangesSummary {
        created,
        edited,
        deleted,
        ..
    } = summary;
    format!("{created} created, {edited} edited, {deleted} deleted")
}

/// What differs from the checkpoints.
fn changes(all: &WorkspaceChanges) -> PagedListing {
    let not_compared = all.not_compared.len();
    let mut head = object(&ChangesAnswer {
        changes: all,
        not_compared_count: not_compared,
    });
    head.remove("items");
    shorten_beside(head.get_mut("not_compared"));
    let with = if all.compared_with.is_empty() {
        "No checkpoints available yet.".to_owned()
    } else {
        let age = all.changes.first().map(|change| &change.checkpoint_age);
        let age = age.map_or_else(String::new, |age| format!(" ({age})"));
        format!("Compared with {}{age}.", all.compared_with.join(", "))
    };
    let mut lead = vec![with, format!("{}.", summary_text(&all.summary))];
    if let Some(git) = &all.git {
        let commits = git
            .commits
            .map_or("?".to_owned(), |count| count.to_string());
        let branch = git.branch.as_deref().unwrap_or("none");
        lead.push(format!(".git: {commits} commits, branch {branch}."));
    }
    if not_compared > 0 {
        lead.push(format!(
            "{not_compared} entries could not be read, and so were not compared."
        ));
    }
    PagedListing {
        head,
        lead,
        digests: false,
        field: "items",
        items: Items::Things(all.changes.iter().map(change).collect()),
    }
}

fn change(change: &PathChange) -> (Value, String) {
    let size = match (change.kind, change.size) {
        (EntryType::File, Some(size)) => format!("file, {size} bytes"),
        (kind, _) => kind.to_string(),
    };
    let text = format!("{}  {}  ({size})", change.op, change.path);
    (json!(change), text)
}

/// What differs in one entry.
fn diff(diff: &PathDiff, digests: bool) -> PagedListing {
    let mut head = object(diff);
    head.remove("inside");
    head.remove("unified");
    let mut lead = vec![format!(
        "{}: {} since {} ({})",
        diff.path, diff.status, diff.checkpoint, diff.kind
    )];
    let sides = [("before", &diff.before), ("after", &diff.after)];
    lead.extend(sides.into_iter().filter_map(|(word, side)| {
        Some(format!("{word}: {}", side_text(side.as_ref()?, digests)))
    }));
    if diff.truncated {
        lead.push("The diff is too long; its end was cut off.".to_owned());
    }
    let (field, items) = if let Some(text) = &diff.unified {
        let lines = text.split_terminator('\n').map(str::to_owned);
        ("unified", Items::Lines(lines.collect()))
    } else {
        let inside = diff.inside.iter().map(change);
        ("inside", Items::Things(inside.collect()))
    };
    PagedListing {
        head,
        lead,
        digests,
        field,
        items,
    }
}

fn side_text(side: &DiffSide, digests: bool) -> String {
    let mut text = vec![side.kind.to_string()];
    text.extend(side.size.map(|size| format!("{size} bytes")));
    text.extend(side.mode.as_ref().map(|mode| format!("mode {mode}")));
    let digest = side.digest.as_ref().filter(|_| digests);
    text.extend(digest.map(|digest| format!("blake3 {digest}")));
    text.join(", ")
}

/// One entry through all checkpoints.
fn history(history: &PathHistory) -> PagedListing {
    let mut head = object(history);
    head.remove("items");
    let now = match (history.current_kind, history.current_size) {
        (None, _) => "not there now".to_owned(),
        (Some(kind), None) => format!("now a {kind}"),
        (Some(kind), Some(size)) => format!("now a {kind} of {size} bytes"),
    };
    let lead = vec![format!(
        "{}: {now}; against the newest checkpoint: {}",
        history.path, history.current_status
    )];
    PagedListing {
        head,
        lead,
        digests: false,
        field: "items",
        items: Items::Things(history.versions.iter().map(version).collect()),
    }
}

fn version(version: &PathVersion) -> (Value, String) {
    let mut text = format!("{}  {}", version.checkpoint, version.status);
    let more = [
        version.size.map(|size| format!("{size} bytes")),
        Some(version.origin.to_string()),
        version.name.as_ref().map(|name| format!("\"{name}\"")),
        Some(version.age.clone()),
    ];
    for part in more.into_iter().flatten() {
        text = format!("{text}  {part}");
    }
    (json!(version), text)
}
