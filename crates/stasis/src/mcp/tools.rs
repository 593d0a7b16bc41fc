//! The tools, as a client is told of them.
//!
//! Descriptions are written for a model: what it does, when to use it, what undoes it. Hints are only hints: what a model may not do
//! is refused by the engine.

use super::schema::{self, answer, list, nullable, number, parameters, text, truth};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::Value;
use std::sync::{Arc, LazyLock};

/// All of them.
pub(super) static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    vec![
        create(),
        all(),
        changes(),
        diff(),
        revert(),
        restore(),
        history(),
        delete(),
        compact(),
        undo(),
        fork(),
    ]
});

/// What a call does to the world.
#[derive(Clone, Copy)]
enum Effect {
    /// Nothing.
    Reads,
    /// Something new.
    Adds,
    /// Something is replaced or removed; doing it again does more.
    Replaces,
    /// Something is replaced or removed; doing it again does nothing.
    ReplacesOnce,
}

fn tool(name: &'static str, title: &str, effect: Effect, description: &'static str) -> Tool {
    let (reads, replaces, once) = match effect {
        Effect::Reads => (true, false, true),
        Effect::Adds => (false, false, false),
        Effect::Replaces => (false, true, false),
        Effect::ReplacesOnce => (false, true, true),
    };
    let hints = ToolAnnotations::with_title(title)
        .read_only(reads)
        .destructive(replaces)
        .idempotent(once)
        .open_world(false);
    Tool::new(name, description, JsonObject::new())
        .with_title(title)
        .with_annotations(hints)
}

fn with(mut tool: Tool, input: Value, output: Value) -> Tool {
    tool.input_schema = Arc::new(fields(input));
    tool.with_raw_output_schema(Arc::new(fields(output)))
}

fn fields(schema: Value) -> JsonObject {
    match schema {
        Value::Object(fields) => fields,
        _ => JsonObject::new(),
    }
}

fn create() -> Tool {
    let about = tool(
        "snapshots_create",
        "Create a checkpoint",
        Effect::Adds,
        "Keeps the whole workspace as it is now as a checkpoint, which stays until it is deleted. Use it before risky or \
         sweeping changes. Takes little room and changes no file. The number of checkpoints is limited; a full pool is an error.",
    );
    let input = parameters(
        &[],
        [
            (
                "name",
                schema::described("A short name that no other checkpoint has; not `cp-…`"),
            ),
            ("dry_run", schema::dry_run()),
        ],
    );
    let output = answer([
        ("created", truth()),
        ("checkpoint", text()),
        ("slot", number()),
        ("origin", schema::origin()),
        ("name", nullable("string")),
        ("hash", nullable("string")),
        ("available", number()),
        ("files_count", number()),
        ("bytes", number()),
        ("form", text()),
        ("skipped", text()),
        ("evicted", list(&text())),
        (
            "left_out",
            schema::list(&serde_json::json!({ "type": "object" })),
        ),
        ("left_out_count", number()),
        (
            "databases",
            schema::list(&serde_json::json!({ "type": "object" })),
        ),
        ("dry_run", truth()),
        ("elapsed_ms", number()),
    ]);
    with(about, input, output)
}

fn all() -> Tool {
    let about = tool(
        "snapshots_list",
        "List checkpoints",
        Effect::Reads,
        "Lists all checkpoints, the newest first: automatic ones, made by a timer and overwritten in turn, and manual ones. With \
         include_changes each also says what changed since the one before it, which is slower.",
    );
    let input = parameters(
        &[],
        [
            ("format", schema::format()),
            ("start_index", schema::start_index()),
            ("max_length", schema::max_length()),
            (
                "include_changes",
                serde_json::json!({
                    "type": "boolean", "default": false,
                    "description": "Also what changed between checkpoints; at most 20 paths each",
                }),
            ),
            ("digests", schema::digests()),
        ],
    );
    let output = answer([
        ("snapshots", list(&schema::row())),
        ("unreadable", list(&serde_json::json!({ "type": "object" }))),
        ("auto_max", number()),
        ("manual_max", number()),
        ("manual_available", number()),
        ("notice", text()),
        ("total", number()),
        ("start_index", number()),
        ("next_index", schema::next_index()),
    ]);
    with(about, input, output)
}

fn changes() -> Tool {
    let about = tool(
        "snapshots_changes",
        "List changes",
        Effect::Reads,
        "Lists every path whose content, mode or kind differs now from the newest checkpoint, or from the one that `since` \
         names. It sees what shell commands did, too. Use it to see what happened before you revert or restore.",
    );
    let input = parameters(
        &[],
        [
            ("format", schema::format()),
            ("start_index", schema::start_index()),
            ("max_length", schema::max_length()),
            (
                "since",
                schema::checkpoint("Compare with this checkpoint only"),
            ),
            (
                "git",
                serde_json::json!({
                    "type": "boolean",
                    "description": "List what differs inside .git, too; else it is one entry",
                }),
            ),
        ],
    );
    let output = answer([
        ("changes", list(&schema::change())),
        ("summary", schema::summary()),
        (
            "git",
            serde_json::json!({
                "type": ["object", "null"],
                "description": "Commits since, branch, and how many entries differ in .git",
            }),
        ),
        ("compared_with", list(&text())),
        ("not_compared", list(&text())),
        ("not_compared_count", number()),
        ("notice", text()),
        ("total", number()),
        ("start_index", number()),
        ("next_index", schema::next_index()),
    ]);
    with(about, input, output)
}

fn diff() -> Tool {
    let about = tool(
        "snapshots_diff",
        "Show a difference",
        Effect::Reads,
        "Shows how one path differs from a checkpoint: a unified diff of text (from the checkpoint to now), a summary of binary \
         files, a list for directories. Without a checkpoint: against the newest one that holds the path and differs.",
    );
    let input = parameters(
        &["path"],
        [
            ("path", schema::path()),
            ("checkpoint", schema::checkpoint("What to compare with")),
            ("digests", schema::digests()),
            ("format", schema::format()),
            ("start_index", schema::start_index()),
            ("max_length", schema::max_length()),
        ],
    );
    let output = answer([
        ("path", text()),
        ("checkpoint", text()),
        ("status", text()),
        ("kind", text()),
        ("unified", nullable("string")),
        ("truncated", truth()),
        ("before", schema::side()),
        ("after", schema::side()),
        ("inside", list(&schema::change())),
        ("notice", text()),
        ("total", number()),
        ("start_index", number()),
        ("next_index", schema::next_index()),
    ]);
    with(about, input, output)
}

fn revert() -> Tool {
    let about = tool(
        "snapshots_revert",
        "Revert a path",
        Effect::Replaces,
        "Makes one file, link or directory what it was in a checkpoint: content, mode and time; what did not exist then is deleted. \
         Without a checkpoint: from the newest one that holds the path and differs. Use snapshots_diff first. The answer's `undo` \
         is taken back by snapshots_undo. Deleting more than 20 files needs dry_run first, then confirm.",
    );
    let input = parameters(
        &["path"],
        [
            ("path", schema::path()),
            ("checkpoint", schema::checkpoint("Where to take it from")),
            ("dry_run", schema::dry_run()),
            ("confirm", schema::confirm()),
        ],
    );
    let output = answer([
        ("reverted", truth()),
        ("path", text()),
        ("action", text()),
        ("checkpoint", text()),
        ("undo", nullable("string")),
        ("changed_meanwhile", list(&text())),
        ("undo_forgotten", schema::undo_forgotten()),
        ("plan", schema::plan()),
        ("dry_run", truth()),
        ("elapsed_ms", number()),
    ]);
    with(about, input, output)
}

fn restore() -> Tool {
    let about = tool(
        "snapshots_restore",
        "Restore the workspace",
        Effect::ReplacesOnce,
        "Makes the whole workspace what it was in a checkpoint, and deletes what was added since. Use it when much went wrong; for \
         single paths use snapshots_revert. Call with dry_run first; deleting more than 20 files needs its digest as confirm. What is \
         there now is kept: snapshots_undo brings it back.",
    );
    let input = parameters(
        &["checkpoint"],
        [
            ("checkpoint", schema::checkpoint("What to go back to")),
            ("except", schema::except()),
            ("dry_run", schema::dry_run()),
            ("confirm", schema::confirm()),
        ],
    );
    let output = answer([
        ("restored", truth()),
        ("checkpoint", text()),
        ("undo", nullable("string")),
        ("changed_meanwhile", list(&text())),
        ("undo_forgotten", schema::undo_forgotten()),
        ("left_alone", schema::left_alone()),
        ("excluded_now", schema::excluded_now()),
        ("plan", schema::plan()),
        ("untouched", number()),
        ("dry_run", truth()),
        ("elapsed_ms", number()),
    ]);
    with(about, input, output)
}

fn history() -> Tool {
    let about = tool(
        "snapshots_history",
        "Show a path's history",
        Effect::Reads,
        "Shows one path through all checkpoints, the newest first: where it is new, modified, unchanged or deleted. Use it to choose \
         the checkpoint to revert to.",
    );
    let input = parameters(
        &["path"],
        [
            ("path", schema::path()),
            ("format", schema::format()),
            ("start_index", schema::start_index()),
            ("max_length", schema::max_length()),
        ],
    );
    let output = answer([
        ("path", text()),
        ("current_kind", nullable("string")),
        ("current_size", nullable("integer")),
        ("current_status", text()),
        ("versions", list(&schema::version())),
        ("notice", text()),
        ("total", number()),
        ("start_index", number()),
        ("next_index", schema::next_index()),
    ]);
    with(about, input, output)
}

fn delete() -> Tool {
    let about = tool(
        "snapshots_delete",
        "Delete a checkpoint",
        Effect::ReplacesOnce,
        "Deletes a manual checkpoint that was made through these tools, to free its place. It cannot be undone; no file of the \
         workspace changes. Checkpoints that the user or the timer made are refused.",
    );
    let input = parameters(
        &["checkpoint"],
        [
            ("checkpoint", schema::checkpoint("Which one")),
            ("dry_run", schema::dry_run()),
        ],
    );
    let output = answer([
        ("deleted", truth()),
        ("checkpoint", text()),
        ("name", nullable("string")),
        ("dry_run", truth()),
    ]);
    with(about, input, output)
}

fn compact() -> Tool {
    let about = tool(
        "snapshots_compact",
        "Merge checkpoints",
        Effect::Replaces,
        "Makes one manual checkpoint of several: the newest state of them is kept, and what was deleted in it stays deleted. The \
         others go after that succeeded, which cannot be undone. Use it to free places. Only checkpoints made through these tools.",
    );
    let input = parameters(
        &["checkpoints"],
        [
            ("checkpoints", schema::checkpoints()),
            ("name", schema::described("What the result is called")),
            ("dry_run", schema::dry_run()),
        ],
    );
    let output = answer([
        ("compacted", truth()),
        ("checkpoint", text()),
        ("name", nullable("string")),
        ("hash", nullable("string")),
        ("merged_count", number()),
        ("deleted_checkpoints", list(&text())),
        ("files_count", number()),
        ("dry_run", truth()),
    ]);
    with(about, input, output)
}

fn undo() -> Tool {
    let about = tool(
        "snapshots_undo",
        "Undo a revert or restore",
        Effect::Replaces,
        "Takes back the last revert, restore or undo, or the one whose `undo` value is given: what was there before is there again. \
         The answer's `redo` takes the undo back in turn. Deleting more than 20 files needs dry_run first, then confirm.",
    );
    let input = parameters(
        &[],
        [
            (
                "undo",
                schema::described("`u-N`, as a revert or restore answered it; else the last"),
            ),
            ("except", schema::except()),
            ("dry_run", schema::dry_run()),
            ("confirm", schema::confirm()),
        ],
    );
    let output = answer([
        ("undone", truth()),
        ("undo", text()),
        ("act", text()),
        ("path", nullable("string")),
        ("redo", nullable("string")),
        ("changed_meanwhile", list(&text())),
        ("undo_forgotten", schema::undo_forgotten()),
        ("left_alone", schema::left_alone()),
        ("plan", schema::plan()),
        ("dry_run", truth()),
    ]);
    with(about, input, output)
}

fn fork() -> Tool {
    let about = tool(
        "snapshots_fork",
        "Fork a checkpoint",
        Effect::Adds,
        "Makes new directories from a checkpoint, to try something without touching the workspace. They are made where the user \
         allowed it; with n > 1, `-1`, `-2`, … are put behind the name. The answer has the paths.",
    );
    let input = parameters(
        &["checkpoint", "name"],
        [
            ("checkpoint", schema::checkpoint("What to fork")),
            (
                "name",
                schema::described(
                    "Name of the new directory: letters, digits, `-`, `_`, `.`; no path",
                ),
            ),
            ("n", schema::forks()),
            ("dry_run", schema::dry_run()),
        ],
    );
    let output = answer([
        ("forked", truth()),
        ("checkpoint", text()),
        ("directories", list(&text())),
        ("method", text()),
        ("files", number()),
        ("bytes", number()),
        ("dry_run", truth()),
        ("elapsed_ms", number()),
    ]);
    with(about, input, output)
}

#[cfg(test)]
mod tests;
