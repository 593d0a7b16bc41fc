//! Answers that hold lists, each item also as a line of words.

use super::page::{Items, Listing, length};
use super::wire::LONGEST;
use serde::Serialize;
use serde_json::{Map, Value, json};
use stasis_engine::kind::workspace::{
    Changes, ChangesSummary, CheckpointRow, Checkpoints, History, PathChange, PathDiff, Side,
    Version,
};
use stasis_engine::result::EntryType;

/// How many changes are listed with one checkpoint.
const CHANGES_PER_ROW: usize = 20;
/// How many events of agents are told of one checkpoint.
const EVENTS_PER_ROW: usize = 3;
/// How long those may be.
const ROW_LENGTH: usize = LONGEST / 4;
/// How many paths are listed besides a list.
const BESIDE: usize = 20;
/// How long those may be.
const BESIDE_LENGTH: usize = 8_000;

/// A value as an object; what we answer always is one.
pub(super) fn object(answer: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(answer) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// Takes away the end of a list until it is short enough.
pub(super) fn shorten(list: &mut Value, most: usize, longest: usize) {
    let Value::Array(items) = list else {
        return;
    };
    items.truncate(most);
    let mut room = longest;
    let fits = items.iter().take_while(|item| {
        let needed = length(item) + 1;
        let has_room = needed <= room;
        room = room.saturating_sub(needed);
        has_room
    });
    let kept = fits.count();
    items.truncate(kept);
}

/// The same for a list that stands beside what was asked for.
pub(super) fn shorten_beside(list: Option<&mut Value>) {
    if let Some(list) = list {
        shorten(list, BESIDE, BESIDE_LENGTH);
    }
}

/// All checkpoints.
pub(super) fn checkpoints(all: &Checkpoints, digests: bool) -> Listing {
    let mut head = object(all);
    head.remove("snapshots");
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
        (value, row_words(row, shown))
    };
    Listing {
        head,
        lead,
        digests,
        field: "snapshots",
        items: Items::Things(all.snapshots.iter().map(item).collect()),
    }
}

/// Of the databases of a checkpoint, only those are told that could not be made consistent.
pub(super) fn name_databases(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else {
        return;
    };
    if let Some(Value::Array(databases)) = fields.get_mut("databases") {
        databases.retain(|one| one.get("why").is_some());
    }
}

fn row_words(row: &CheckpointRow, shown: usize) -> String {
    let mut words = format!("{}  {}", row.checkpoint, row.origin);
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
    more.extend(row.changes_summary.as_ref().map(summary_words));
    if !row.complete {
        more.push("not complete".to_owned());
    }
    let wanting = row.databases.iter().filter(|one| one.is_wanting());
    more.extend(wanting.map(|one| format!("database {} is {}", one.path, one.stored_as)));
    for part in more {
        words = format!("{words}  {part}");
    }
    let changes = row.changes.iter().flatten();
    for change in changes.clone().take(shown) {
        words = format!("{words}\n    {}  {}", change.op, change.path);
    }
    match changes.count() - shown {
        0 => words,
        more => format!("{words}\n    and {more} more"),
    }
}

fn summary_words(summary: &ChangesSummary) -> String {
    let ChangesSummary {
        created,
        edited,
        deleted,
        ..
    } = summary;
    format!("{created} created, {edited} edited, {deleted} deleted")
}

/// What differs from the checkpoints.
pub(super) fn changes(all: &Changes) -> Listing {
    let mut head = object(all);
    head.remove("changes");
    let not_compared = all.not_compared.len();
    head.insert("not_compared_count".to_owned(), json!(not_compared));
    shorten_beside(head.get_mut("not_compared"));
    let with = if all.compared_with.is_empty() {
        "No checkpoints available yet.".to_owned()
    } else {
        let age = all.changes.first().map(|change| &change.checkpoint_age);
        let age = age.map_or_else(String::new, |age| format!(" ({age})"));
        format!("Compared with {}{age}.", all.compared_with.join(", "))
    };
    let mut lead = vec![with, format!("{}.", summary_words(&all.summary))];
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
    Listing {
        head,
        lead,
        digests: false,
        field: "changes",
        items: Items::Things(all.changes.iter().map(change).collect()),
    }
}

fn change(change: &PathChange) -> (Value, String) {
    let size = match (change.kind, change.size) {
        (EntryType::File, Some(size)) => format!("file, {size} bytes"),
        (kind, _) => kind.to_string(),
    };
    let words = format!("{}  {}  ({size})", change.op, change.path);
    (json!(change), words)
}

/// What differs in one entry.
pub(super) fn diff(diff: &PathDiff, digests: bool) -> Listing {
    let mut head = object(diff);
    head.remove("inside");
    head.remove("unified");
    let mut lead = vec![format!(
        "{}: {} since {} ({})",
        diff.path, diff.status, diff.checkpoint, diff.kind
    )];
    let sides = [("before", &diff.before), ("after", &diff.after)];
    lead.extend(sides.into_iter().filter_map(|(word, side)| {
        Some(format!("{word}: {}", side_words(side.as_ref()?, digests)))
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
    Listing {
        head,
        lead,
        digests,
        field,
        items,
    }
}

fn side_words(side: &Side, digests: bool) -> String {
    let mut words = vec![side.kind.to_string()];
    words.extend(side.size.map(|size| format!("{size} bytes")));
    words.extend(side.mode.as_ref().map(|mode| format!("mode {mode}")));
    let digest = side.digest.as_ref().filter(|_| digests);
    words.extend(digest.map(|digest| format!("blake3 {digest}")));
    words.join(", ")
}

/// One entry through all checkpoints.
pub(super) fn history(history: &History) -> Listing {
    let mut head = object(history);
    head.remove("versions");
    let now = match (history.current_kind, history.current_size) {
        (None, _) => "not there now".to_owned(),
        (Some(kind), None) => format!("now a {kind}"),
        (Some(kind), Some(size)) => format!("now a {kind} of {size} bytes"),
    };
    let lead = vec![format!(
        "{}: {now}; against the newest checkpoint: {}",
        history.path, history.current_status
    )];
    Listing {
        head,
        lead,
        digests: false,
        field: "versions",
        items: Items::Things(history.versions.iter().map(version).collect()),
    }
}

fn version(version: &Version) -> (Value, String) {
    let mut words = format!("{}  {}", version.checkpoint, version.status);
    let more = [
        version.size.map(|size| format!("{size} bytes")),
        Some(version.origin.to_string()),
        version.name.as_ref().map(|name| format!("\"{name}\"")),
        Some(version.age.clone()),
    ];
    for part in more.into_iter().flatten() {
        words = format!("{words}  {part}");
    }
    (json!(version), words)
}
