//! What calls have in common: the workspace they are about, and how its answers are cut and made harmless.

use super::escape;
use super::failure::CallFailure;
use super::lean::lean;
use super::page::{PagedListing, Paging, length, page};
use rmcp::model::CallToolResult;
use serde::Serialize;
use serde_json::{Map, Value};
use stasis_engine::kind::workspace::Workspace;
use stasis_engine::model::tree::EntryPath;
use std::path::PathBuf;

/// How many paths are listed besides a list.
pub(super) const BESIDE: usize = 20;
/// How long those may be.
const BESIDE_LENGTH: usize = 8_000;

/// What is served.
#[derive(Debug)]
pub(super) struct Served {
    /// As a model may use it.
    pub(super) workspace: Workspace,
    /// The directory in which forks are made, if the operator named one.
    pub(super) forks: Option<PathBuf>,
}

impl Served {
    /// The workspace that every answer is about: an agent may have started this server elsewhere than its user thinks.
    pub(super) fn root(&self) -> String {
        self.workspace.directory().display().to_string()
    }

    /// An answer without a list that could be long.
    pub(super) fn plain(&self, answer: &impl Serialize) -> CallToolResult {
        let mut answer = Value::Object(object(answer));
        shorten_beside(answer.get_mut("left_out"));
        shorten_beside(answer.get_mut("left_alone"));
        name_databases(&mut answer);
        shorten_beside(answer.get_mut("overwrites"));
        shorten_beside(answer.get_mut("only_here"));
        shorten_beside(answer.pointer_mut("/plan/sample"));
        lean(&mut answer, false);
        answer["workspace"] = Value::String(self.root());
        escape::scrub(&mut answer);
        CallToolResult::structured(answer)
    }

    /// A page of an answer with a list.
    pub(super) fn paged(&self, mut listing: PagedListing, paging: Paging) -> CallToolResult {
        let root = self.root();
        if let Some(first) = listing.lead.first_mut() {
            *first = format!("{first} Workspace: {root}");
        }
        let root = Value::String(root);
        listing.head.insert("workspace".to_owned(), root);
        page(listing, paging)
    }

    pub(super) fn entry(&self, path: &str) -> Result<EntryPath, CallFailure> {
        if path.is_empty() {
            return Err(CallFailure::Params(
                "`path` is empty; give a path relative to the workspace".to_owned(),
            ));
        }
        let from = self.workspace.directory();
        Ok(self.workspace.entry(path.as_bytes(), from)?)
    }

    /// The entries that a call leaves alone.
    pub(super) fn entries(&self, paths: &[String]) -> Result<Vec<EntryPath>, CallFailure> {
        paths.iter().map(|path| self.entry(path)).collect()
    }
}

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

/// Of the databases of a checkpoint, only those are sent that could not be made consistent.
pub(super) fn name_databases(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else {
        return;
    };
    if let Some(Value::Array(databases)) = fields.get_mut("databases") {
        databases.retain(|one| one.get("why").is_some());
    }
}
