//! The schemas of what tools take and answer.

use super::call::MOST_FORKS;
use super::wire::{LONGEST, SHORTEST};
use serde_json::{Map, Value, json};

/// Parameters: exactly these.
pub(super) fn parameters<const N: usize>(
    required: &[&str],
    properties: [(&str, Value); N],
) -> Value {
    let properties = properties.map(|(name, schema)| (name.to_owned(), schema));
    json!({
        "type": "object",
        "properties": Map::from_iter(properties),
        "required": required,
        "additionalProperties": false,
    })
}

/// An answer: these, or an `error`.
pub(super) fn answer<const N: usize>(properties: [(&str, Value); N]) -> Value {
    // What would be null is left out.
    let is_nullable = |schema: &Value| {
        let types = schema["type"].as_array();
        types.is_some_and(|types| types.iter().any(|one| one == "null"))
    };
    let always =
        |(name, schema): &&(&str, Value)| !MAY_BE_ABSENT.contains(name) && !is_nullable(schema);
    let required = properties.iter().filter(always).map(|(name, _)| *name);
    let mut required: Vec<&str> = required.collect();
    required.push("workspace");
    let properties = properties.map(|(name, schema)| (name.to_owned(), schema));
    let mut properties = Map::from_iter(properties);
    properties.insert("error".to_owned(), error());
    properties.insert(
        "workspace".to_owned(),
        described("The workspace's directory"),
    );
    json!({
        "type": "object",
        "properties": properties,
        "anyOf": [{ "required": required }, { "required": ["error"] }],
    })
}

/// Fields that some answers have and some have not.
const MAY_BE_ABSENT: [&str; 5] = [
    "skipped",
    "inside",
    "left_alone",
    "excluded_now",
    "undo_forgotten",
];

fn error() -> Value {
    json!({
        "type": "object",
        "description": "Why it was not done",
        "properties": {
            "kind": described("What kind of failure: notfound, limit, conflict, denied, retry, ..."),
            "reason": described("One word for it, such as needs_confirmation"),
            "message": text(),
            "causes": list(&text()),
            "hint": nullable("string"),
            "details": { "type": ["object", "null"] },
        },
        "required": ["kind", "reason", "message"],
    })
}

/// What is left as it is.
pub(super) fn except() -> Value {
    json!({
        "type": "array",
        "items": { "type": "string" },
        "description": "Paths that are left as they are, with everything in them",
    })
}

/// Undo checkpoints that went.
pub(super) fn undo_forgotten() -> Value {
    json!({
        "type": "array",
        "description": "What can be undone no longer",
        "items": {
            "type": "object",
            "properties": { "undo": text(), "why": one_of(&["old", "budget"]) },
        },
    })
}

/// What a restore left alone though nobody asked for that.
pub(super) fn left_alone() -> Value {
    json!({
        "type": "array",
        "description": "Entries left as they are though nobody asked for that",
        "items": {
            "type": "object",
            "properties": {
                "path": text(),
                "why": one_of(&["unreadable", "not_in_checkpoint", "not_ours", "holds_excluded"]),
                "within": described("What stays with it, and everything in that"),
            },
        },
    })
}

/// What a checkpoint holds that is excluded by now.
pub(super) fn excluded_now() -> Value {
    json!({
        "type": "object",
        "description": "What the checkpoint holds and is excluded from checkpoints by now: left as it is",
        "properties": { "entries": number(), "paths": list(&text()) },
    })
}

pub(super) fn text() -> Value {
    json!({ "type": "string" })
}

pub(super) fn described(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

pub(super) fn number() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

pub(super) fn truth() -> Value {
    json!({ "type": "boolean" })
}

fn described_truth(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

/// Whether digests are in an answer.
pub(super) fn digests() -> Value {
    json!({ "type": "boolean", "default": false, "description": "Also BLAKE3 digests" })
}

pub(super) fn nullable(of: &str) -> Value {
    json!({ "type": [of, "null"] })
}

pub(super) fn list(items: &Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn one_of(words: &[&str]) -> Value {
    json!({ "type": "string", "enum": words })
}

pub(super) fn format() -> Value {
    json!({ "type": "string", "enum": ["text", "json"], "default": "text", "description": "Form of the answer's text" })
}

pub(super) fn start_index() -> Value {
    json!({
        "type": "integer", "minimum": 0, "default": 0,
        "description": "Item to begin with; the answer before says which comes next",
    })
}

pub(super) fn max_length() -> Value {
    json!({
        "type": "integer", "minimum": SHORTEST, "maximum": LONGEST,
        "description": "Most characters of the answer: 5000 in text and 20000 in JSON by default; only whole items are shown",
    })
}

pub(super) fn dry_run() -> Value {
    json!({ "type": "boolean", "default": false, "description": "Only show what would be done" })
}

pub(super) fn confirm() -> Value {
    described(
        "`plan.digest` of a dry run of the same call; needed when more than 20 files would be deleted",
    )
}

pub(super) fn path() -> Value {
    described(
        "Path relative to the workspace, as answers write it (`\\xNN` for bytes that are no text)",
    )
}

pub(super) fn checkpoint(description: &str) -> Value {
    described(&format!("{description}: `cp-N` or its name"))
}

pub(super) fn checkpoints() -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "minItems": 2, "description": "At least two checkpoints: `cp-N` or names" })
}

pub(super) fn forks() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": MOST_FORKS, "default": 1, "description": "How many directories" })
}

pub(super) fn origin() -> Value {
    one_of(&["auto", "manual", "prompt", "command"])
}

/// What the numbers of a page are.
pub(super) fn next_index() -> Value {
    json!({ "type": ["integer", "null"], "description": "start_index of the next page; absent at the end" })
}

pub(super) fn summary() -> Value {
    json!({
        "type": "object",
        "properties": { "created": number(), "edited": number(), "deleted": number(), "total": number() },
        "required": ["created", "edited", "deleted", "total"],
    })
}

pub(super) fn change() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": text(),
            "op": one_of(&["created", "modified", "deleted"]),
            "kind": described("`directory` or `symlink`; absent for files"),
            "size": number(),
        },
        "required": ["path", "op"],
    })
}

pub(super) fn row() -> Value {
    json!({
        "type": "object",
        "properties": {
            "checkpoint": text(),
            "origin": origin(),
            "name": text(),
            "hash": described("BLAKE3 of its manifest; with digests=true"),
            "age": text(),
            "files_count": number(),
            "bytes": number(),
            "complete": described_truth("Only if it is false"),
            "made_by": text(),
            "agent_events": list(&agent_event()),
            "left_out": list(&described("What could not be read, and is not in it")),
            "left_out_count": number(),
            "events": { "type": "object" },
            "changes_summary": summary(),
            "changes": list(&change()),
        },
        "required": ["checkpoint", "origin", "age", "files_count"],
    })
}

fn agent_event() -> Value {
    json!({
        "type": "object",
        "description": "What an agent was about to do while the tree was this one",
        "properties": {
            "event": one_of(&["prompt", "command", "edit"]),
            "agent": text(),
            "session": text(),
            "prompt": number(),
            "turn_id": text(),
            "text": text(),
            "timestamp": text(),
        },
        "required": ["event", "agent"],
    })
}

pub(super) fn version() -> Value {
    json!({
        "type": "object",
        "properties": {
            "checkpoint": text(),
            "origin": origin(),
            "name": text(),
            "age": text(),
            "size": number(),
            "status": one_of(&["new", "modified", "unchanged", "deleted"]),
        },
        "required": ["checkpoint", "origin", "age", "status"],
    })
}

pub(super) fn plan() -> Value {
    json!({
        "type": "object",
        "description": "What is done to the live tree",
        "properties": {
            "creates": number(),
            "replaces": number(),
            "deletes": number(),
            "deletes_files": number(),
            "sample": list(&change()),
            "sample_is_cut": { "type": "boolean" },
            "git": {
                "type": ["object", "null"],
                "description": "What moves in .git, and the commits that would leave the branch",
            },
            "digest": described("Give it back as `confirm`"),
        },
        "required": ["creates", "replaces", "deletes", "deletes_files", "sample", "digest"],
    })
}

pub(super) fn side() -> Value {
    json!({ "type": ["object", "null"] })
}
