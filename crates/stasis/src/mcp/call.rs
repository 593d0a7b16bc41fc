//! A call: parameters → command → engine → answer.

use super::failure::{Failure, Refused};
use super::lean::lean;
use super::page::{Listing, page};
use super::wire::{self, Paging};
use super::{escape, misfit, words};
use rmcp::model::{CallToolResult, JsonObject};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stasis_engine::kind::workspace::{
    Compact, Create, Fork, Maker, RestoreWorkspace, RevertPath, Run, Undo, Workspace,
};
use stasis_engine::model::tree::EntryPath;
use stasis_engine::model::workspace::{CheckpointName, CheckpointOrigin, CheckpointRef};
use std::path::PathBuf;

/// The longest name of a fork.
const LONGEST_FORK_NAME: usize = 64;
/// The most forks that one call makes.
pub(super) const MOST_FORKS: u32 = 16;

/// What is served.
#[derive(Debug)]
pub(super) struct Served {
    /// As a model may use it.
    pub(super) workspace: Workspace,
    /// The directory in which forks are made, if the operator named one.
    pub(super) forks: Option<PathBuf>,
}

type Answer = Result<CallToolResult, Failure>;

impl Served {
    /// Does what a client asks for.
    pub(super) async fn call(&self, tool: &str, arguments: JsonObject) -> Answer {
        match tool {
            "snapshots_create" => self.create(read(tool, arguments)?).await,
            "snapshots_list" => self.list(read(tool, arguments)?).await,
            "snapshots_changes" => self.changes(read(tool, arguments)?).await,
            "snapshots_diff" => self.diff(read(tool, arguments)?).await,
            "snapshots_revert" => self.revert(read(tool, arguments)?).await,
            "snapshots_restore" => self.restore(read(tool, arguments)?).await,
            "snapshots_history" => self.history(read(tool, arguments)?).await,
            "snapshots_delete" => self.delete(read(tool, arguments)?).await,
            "snapshots_compact" => self.compact(read(tool, arguments)?).await,
            "snapshots_undo" => self.undo(read(tool, arguments)?).await,
            "snapshots_fork" => self.fork(read(tool, arguments)?).await,
            _ => Err(Failure::Params(format!(
                "there is no tool `{tool}`; tools/list shows those there are"
            ))),
        }
    }

    async fn create(&self, wire: wire::Create) -> Answer {
        let command = Create {
            name: name(wire.name.as_deref())?,
            pool: CheckpointOrigin::Manual,
            maker: Maker::Mcp,
            call: None,
            run: run(wire.dry_run),
        };
        Ok(self.plain(&self.workspace.create(command).await?))
    }

    async fn list(&self, wire: wire::List) -> Answer {
        let paging = paging(wire.format, wire.start_index, wire.max_length)?;
        let include_changes = wire.include_changes.unwrap_or_default();
        let all = self.workspace.list(include_changes).await?;
        let listing = words::checkpoints(&all, wire.digests.unwrap_or_default());
        Ok(self.paged(listing, paging))
    }

    async fn changes(&self, wire: wire::Changes) -> Answer {
        let paging = paging(wire.format, wire.start_index, wire.max_length)?;
        let since = optional_checkpoint(wire.since.as_deref())?;
        let git = wire.git.unwrap_or_default();
        let all = self.workspace.changes(since, git).await?;
        Ok(self.paged(words::changes(&all), paging))
    }

    async fn diff(&self, wire: wire::Diff) -> Answer {
        let paging = paging(wire.format, wire.start_index, wire.max_length)?;
        let path = self.entry(&wire.path)?;
        let checkpoint = optional_checkpoint(wire.checkpoint.as_deref())?;
        let diff = self.workspace.diff(path, checkpoint).await?;
        let listing = words::diff(&diff, wire.digests.unwrap_or_default());
        Ok(self.paged(listing, paging))
    }

    async fn revert(&self, wire: wire::Revert) -> Answer {
        let command = RevertPath {
            path: self.entry(&wire.path)?,
            checkpoint: optional_checkpoint(wire.checkpoint.as_deref())?,
            confirm: wire.confirm,
            run: run(wire.dry_run),
        };
        Ok(self.plain(&self.workspace.revert(command).await?))
    }

    async fn restore(&self, wire: wire::Restore) -> Answer {
        let except = wire.except.unwrap_or_default();
        let except: Result<Vec<_>, Failure> = except.iter().map(|path| self.entry(path)).collect();
        let command = RestoreWorkspace {
            checkpoint: checkpoint(&wire.checkpoint)?,
            except: except?,
            agreed: false,
            confirm: wire.confirm,
            run: run(wire.dry_run),
        };
        Ok(self.plain(&self.workspace.restore(command).await?))
    }

    async fn history(&self, wire: wire::History) -> Answer {
        let paging = paging(wire.format, wire.start_index, wire.max_length)?;
        let history = self.workspace.history(self.entry(&wire.path)?).await?;
        Ok(self.paged(words::history(&history), paging))
    }

    async fn delete(&self, wire: wire::Delete) -> Answer {
        let checkpoint = checkpoint(&wire.checkpoint)?;
        Ok(self.plain(&self.workspace.delete(checkpoint, run(wire.dry_run)).await?))
    }

    async fn compact(&self, wire: wire::Compact) -> Answer {
        let checkpoints: Result<Vec<CheckpointRef>, Failure> = wire
            .checkpoints
            .iter()
            .map(|text| checkpoint(text))
            .collect();
        let command = Compact {
            checkpoints: checkpoints?,
            name: name(wire.name.as_deref())?,
            run: run(wire.dry_run),
        };
        Ok(self.plain(&self.workspace.compact(command).await?))
    }

    async fn undo(&self, wire: wire::Undo) -> Answer {
        let except = wire.except.unwrap_or_default();
        let except: Result<Vec<_>, Failure> = except.iter().map(|path| self.entry(path)).collect();
        let command = Undo {
            which: wire.which.as_deref().map(undo_number).transpose()?,
            except: except?,
            agreed: false,
            confirm: wire.confirm,
            run: run(wire.dry_run),
        };
        Ok(self.plain(&self.workspace.undo(command).await?))
    }

    async fn fork(&self, wire: wire::Fork) -> Answer {
        let (checkpoint, count) = (checkpoint(&wire.checkpoint)?, wire.n.unwrap_or(1));
        if !is_fork_name(&wire.name) {
            return Err(Failure::Params(format!(
                "`name` must be a plain name of at most {LONGEST_FORK_NAME} letters, digits, `-`, `_` or `.`, beginning with a \
                 letter or a digit: the operator chose the directory that forks go to"
            )));
        }
        if !(1..=MOST_FORKS).contains(&count) {
            return Err(Failure::Params(format!(
                "`n` must be from 1 to {MOST_FORKS}"
            )));
        }
        let forks = self.forks.as_ref().ok_or_else(no_forks)?;
        let command = Fork {
            checkpoint,
            directory: forks.join(&wire.name),
            count,
            run: run(wire.dry_run),
        };
        Ok(self.plain(&self.workspace.fork(command).await?))
    }

    /// The workspace that every answer is about: an agent may have started this server elsewhere than its user thinks.
    pub(super) fn root(&self) -> String {
        self.workspace.directory().display().to_string()
    }

    /// An answer without a list that could be long.
    fn plain(&self, answer: &impl Serialize) -> CallToolResult {
        let mut answer = Value::Object(words::object(answer));
        words::shorten_beside(answer.get_mut("left_out"));
        words::shorten_beside(answer.get_mut("left_alone"));
        words::name_databases(&mut answer);
        words::shorten_beside(answer.pointer_mut("/plan/sample"));
        lean(&mut answer, false);
        answer["workspace"] = Value::String(self.root());
        escape::scrub(&mut answer);
        CallToolResult::structured(answer)
    }

    /// A page of an answer with a list.
    fn paged(&self, mut listing: Listing, paging: Paging) -> CallToolResult {
        let root = self.root();
        if let Some(first) = listing.lead.first_mut() {
            *first = format!("{first} Workspace: {root}");
        }
        let root = Value::String(root);
        listing.head.insert("workspace".to_owned(), root);
        page(listing, paging)
    }

    fn entry(&self, path: &str) -> Result<EntryPath, Failure> {
        if path.is_empty() {
            return Err(Failure::Params(
                "`path` is empty; give a path relative to the workspace".to_owned(),
            ));
        }
        let from = self.workspace.directory();
        Ok(self.workspace.entry(path.as_bytes(), from)?)
    }
}

fn no_forks() -> Failure {
    Failure::Refused(Box::new(Refused {
        kind: "denied".to_owned(),
        reason: "forks_not_allowed",
        message: "this server makes no forks".to_owned(),
        causes: Vec::new(),
        hint: Some(
            "the user can allow them by starting the server with `--forks DIR`, the directory they go to".to_owned(),
        ),
        details: Value::Null,
    }))
}

/// One component that no shell and no tool takes for anything else.
fn is_fork_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    name.len() <= LONGEST_FORK_NAME
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(is_plain)
}

/// Reads parameters; what is wrong with them is said by name.
fn read<T: DeserializeOwned>(tool: &str, arguments: JsonObject) -> Result<T, Failure> {
    let wrong = misfit::wrong_parameter(tool, &arguments);
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| Failure::Params(wrong.unwrap_or_else(|| format!("{tool}: {error}"))))
}

fn run(dry: Option<bool>) -> Run {
    match dry {
        Some(true) => Run::Dry,
        _ => Run::Real,
    }
}

fn name(text: Option<&str>) -> Result<Option<CheckpointName>, Failure> {
    let parsed = text.map(str::parse).transpose();
    parsed.map_err(|bad: stasis_engine::model::workspace::BadReference| {
        Failure::Params(format!("`name` cannot be used: {bad}"))
    })
}

fn checkpoint(text: &str) -> Result<CheckpointRef, Failure> {
    text.parse()
        .map_err(|bad: stasis_engine::model::workspace::BadReference| {
            Failure::Params(format!(
                "{bad}; give a checkpoint as `cp-N` or by its name, as snapshots_list shows it"
            ))
        })
}

fn optional_checkpoint(text: Option<&str>) -> Result<Option<CheckpointRef>, Failure> {
    text.map(checkpoint).transpose()
}

fn undo_number(text: &str) -> Result<u32, Failure> {
    let number = text.strip_prefix("u-").and_then(|rest| {
        let number: u32 = rest.parse().ok()?;
        (number.to_string() == rest).then_some(number)
    });
    number.ok_or_else(|| {
        Failure::Params(format!(
            "`{text}` is no undo checkpoint; give `u-N` as a revert or restore answered it, or leave it out for the last"
        ))
    })
}

fn paging(
    format: Option<wire::Format>,
    start: Option<usize>,
    max_length: Option<usize>,
) -> Result<Paging, Failure> {
    Paging::new(format, start, max_length).map_err(Failure::Params)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_fork_gets_a_plain_name_or_none() {
        for name in ["a", "try-2", "v1.2_x", "0"] {
            assert!(is_fork_name(name), "{name}");
        }
        let long = "a".repeat(LONGEST_FORK_NAME + 1);
        for name in [
            "", ".", "..", ".git", "-rf", "a/b", "a\\b", "a b", "ä", "a\n", "a\0", &long,
        ] {
            assert!(!is_fork_name(name), "{name:?}");
        }
    }

    #[test]
    fn one_undo_checkpoint_has_one_spelling() {
        assert_eq!(undo_number("u-4").ok(), Some(4));
        for text in [
            "",
            "4",
            "u-",
            "u-04",
            "u-+4",
            "cp-4",
            "u-4 ",
            "u-99999999999",
        ] {
            assert!(
                matches!(undo_number(text), Err(Failure::Params(_))),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_wrong_parameter_is_named() {
        let cases = [
            ("snapshots_create", json!({ "nmae": "x" }), "nmae"),
            (
                "snapshots_list",
                json!({ "start_index": "5" }),
                "start_index",
            ),
            (
                "snapshots_list",
                json!({ "start_index": -1 }),
                "start_index",
            ),
            ("snapshots_list", json!({ "format": "xml" }), "format"),
            (
                "snapshots_compact",
                json!({ "checkpoints": "cp-1" }),
                "checkpoints",
            ),
            (
                "snapshots_compact",
                json!({ "checkpoints": [1] }),
                "checkpoints",
            ),
            ("snapshots_restore", json!({}), "checkpoint"),
            ("snapshots_revert", json!({ "path": 5 }), "path"),
        ];

        for (tool, arguments, named) in cases {
            let Value::Object(arguments) = arguments else {
                unreachable!("these are objects")
            };
            let said = misfit::wrong_parameter(tool, &arguments).unwrap();
            assert!(said.contains(&format!("`{named}`")), "{said}");
        }
    }
}
