//! Hints for what goes wrong with workspaces, and what a program needs to know of it.

mod forks;

use crate::cli::byte_size::size;
use serde_json::{Value, json};
use stasis_engine::address::shell_word;
use stasis_engine::error::{Error, ErrorKind};
use stasis_engine::kind::workspace::{LostWorkspace, NoRoom, WorkspaceError};
use stasis_engine::model::workspace::NoSlot;
use std::path::Path;

/// What to do now.
pub(super) fn hint(error: &WorkspaceError, kind: ErrorKind) -> Option<String> {
    let text = match error {
        WorkspaceError::NotAWorkspace { lost, .. } => return Some(no_workspace_hint(lost)),
        WorkspaceError::Refused { .. } => {
            "a workspace is a directory of its own, such as a checkout; its session directory lies elsewhere"
        }
        WorkspaceError::OtherSession { .. } => {
            "choose another --session-dir; if the workspace was moved and something else lies at its path, move that away first"
        }
        WorkspaceError::Config { .. } => {
            "correct the file; docs/guides/workspace.md lists its keys, and what is not in it has its default"
        }
        WorkspaceError::BadReference(_) => {
            "a checkpoint is cp-N or its name; `stasis log` shows both"
        }
        WorkspaceError::BadPath { .. } => {
            "name an entry of the workspace that is not excluded, from where you are or by its whole path"
        }
        WorkspaceError::NoCheckpoint(_) => "`stasis log` lists what there is",
        WorkspaceError::NoCheckpoints => {
            "`stasis workspace create NAME` makes one, `stasis protect` makes them by itself"
        }
        WorkspaceError::NoPrompts(_) => {
            "`stasis rewind --to CP` goes to a checkpoint; `stasis hook install AGENT` has prompts recorded from now on"
        }
        WorkspaceError::PromptMissed { .. } => {
            "`stasis rewind --list` shows the prompts that have a checkpoint: say --prompts N, or --to CP"
        }
        WorkspaceError::FewPrompts { .. } => "`stasis rewind --list` shows them",
        WorkspaceError::NoSlot(error) => return slot_hint(error),
        WorkspaceError::NamedAuto => "leave out the name, or --auto",
        WorkspaceError::Slots(_) => return kept_hint(kind),
        WorkspaceError::NoRoom(error) => return Some(room_hint(error)),
        WorkspaceError::NoSuchEntry(_) => {
            "check the spelling: a path is taken from where you are; an absolute one is good from everywhere"
        }
        WorkspaceError::NothingDiffers(_) | WorkspaceError::NotInCheckpoint { .. } => {
            "`stasis workspace history PATH` shows it in every checkpoint"
        }
        _ => return act_hint(error, kind),
    };
    Some(text.to_owned())
}

/// How to go on with the checkpoints of a workspace that was moved, if this may be one.
fn no_workspace_hint(lost: &[LostWorkspace]) -> String {
    let Some(likeliest) = lost.first() else {
        return "`stasis protect DIR` makes a directory one; --workspace DIR says which one is meant; `stasis list` shows the workspaces of this machine".to_owned();
    };
    let word = |path: &Path| shell_word(&path.display().to_string()).into_owned();
    let (was, session) = (likeliest.workspace.display(), word(&likeliest.session));
    if let Some(found) = &likeliest.found {
        return format!(
            "`{}` was the workspace `{was}`, where another directory lies now: `stasis workspace init {} --session-dir {session}` goes on with its checkpoints",
            found.display(),
            word(found)
        );
    }
    let (this, dir) = match &likeliest.named {
        Some(named) => (format!("`{}`", named.display()), word(named)),
        None => ("DIR".to_owned(), "DIR".to_owned()),
    };
    format!(
        "the workspace `{was}` is gone: if {this} is it, `stasis workspace init {dir} --session-dir {session}` goes on with its checkpoints; `stasis list` shows the workspaces of this machine, `stasis workspace init DIR` makes a new one"
    )
}

/// The same, for what changes something and is refused for now.
fn act_hint(error: &WorkspaceError, kind: ErrorKind) -> Option<String> {
    let text = match error {
        WorkspaceError::UndosFull { .. } => {
            "a person lets them go with `stasis workspace undo --forget`"
        }
        WorkspaceError::NeedsConfirmation { .. } => {
            "do a dry run first, look at its plan, and give its digest back"
        }
        WorkspaceError::MovesGit { .. } => {
            "nothing was changed; --dry-run names the commits, --yes agrees, --keep-git leaves .git as it is"
        }
        WorkspaceError::Unreadable(_) => {
            "nothing was changed; make it readable, or move it out of the workspace first"
        }
        WorkspaceError::Excluded(_) => {
            "nothing was changed; move it away first, revert smaller parts that it is not in, or leave it alone with --except where that is taken"
        }
        WorkspaceError::PlanChanged => {
            "nothing was changed; look again with --dry-run, then decide anew"
        }
        WorkspaceError::NotYours(checkpoint) => {
            return Some(format!(
                "a person deletes it with `stasis workspace delete {checkpoint}`"
            ));
        }
        WorkspaceError::NothingToUndo | WorkspaceError::NoUndo(_) => {
            "`stasis workspace status` shows what can be undone"
        }
        WorkspaceError::TooFew => {
            "name the checkpoints that become one, as in `stasis workspace compact cp-10 cp-11`"
        }
        WorkspaceError::Busy(_) | WorkspaceError::Held { .. } => {
            "wait until it is done, and try again"
        }
        WorkspaceError::Lock(_) if kind == ErrorKind::Conflict => {
            "wait until it is done, and try again"
        }
        WorkspaceError::Watched(_) => "one watch is enough; end that one first",
        WorkspaceError::Monitor(_) => {
            "checkpoints are made without a watch too: `stasis workspace create`"
        }
        _ => return forks::hint(error),
    };
    Some(text.to_owned())
}

fn slot_hint(error: &NoSlot) -> Option<String> {
    Some(match error {
        NoSlot::ManualFull { .. } => {
            "`stasis workspace delete CP` or `compact CP CP…` frees slots; `manual_max` in config.toml of the session allows more"
                .to_owned()
        }
        NoSlot::AutoBlocked { .. } => {
            "`stasis workspace list` says what is in their slots and cannot be used".to_owned()
        }
        NoSlot::NameTaken { slot, .. } => {
            format!("choose another name, or `stasis workspace delete {slot}` first")
        }
        _ => return None,
    })
}

/// What could be let go so that there is room.
fn room_hint(error: &NoRoom) -> String {
    let freeing = error.checkpoints.iter().filter(|one| one.bytes > 0);
    let mut words: Vec<String> = freeing
        .take(3)
        .map(|one| {
            let name = one.name.as_ref().map(|name| format!(" \"{name}\""));
            format!(
                "`stasis workspace delete {}` frees {}{}",
                one.checkpoint,
                size(one.bytes),
                name.unwrap_or_default()
            )
        })
        .collect();
    if error.undo_bytes > 0 {
        let frees = size(error.undo_bytes);
        words.push(format!("`stasis workspace undo --forget` frees {frees}"));
    }
    let less = match error.need_bytes.saturating_sub(error.free_bytes) {
        // What is free cannot be had: inodes, a quota, or room for metadata is what is missing.
        0 => "make room".to_owned(),
        less => format!("make room for {} more", size(less)),
    };
    if words.is_empty() {
        return format!("nothing was changed; {less}, and try again");
    }
    let words = words.join(", ");
    format!("nothing was changed; {less}: {words}")
}

/// A checkpoint could not be made, read or removed.
fn kept_hint(kind: ErrorKind) -> Option<String> {
    let text = match kind {
        ErrorKind::Limit => {
            "`stasis workspace delete CP` makes room; `budget_bytes` in config.toml of the session allows more"
        }
        ErrorKind::NotFound => "`stasis log` lists what there is",
        ErrorKind::Denied => {
            "nothing was changed; see that the workspace is readable, and its session directory writable"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// What a program would otherwise have to read out of the words.
pub(super) fn fields(error: &anyhow::Error) -> Vec<(&'static str, Value)> {
    let Some(Error::Workspace(error)) = error.downcast_ref::<Error>() else {
        return Vec::new();
    };
    match error.as_ref() {
        WorkspaceError::NotAWorkspace { directory, lost } => {
            let sessions = lost.iter().map(|one| one.session.display().to_string());
            vec![
                ("directory", json!(directory.display().to_string())),
                ("sessions", json!(sessions.collect::<Vec<_>>())),
            ]
        }
        WorkspaceError::NoCheckpoint(which) => vec![("checkpoint", json!(which.to_string()))],
        WorkspaceError::NotYours(slot) => vec![("checkpoint", json!(slot.to_string()))],
        WorkspaceError::NoRoom(error) => vec![
            ("need_bytes", json!(error.need_bytes)),
            ("free_bytes", json!(error.free_bytes)),
            ("frees", json!(error.checkpoints)),
            ("undo_frees", json!(error.undo_bytes)),
        ],
        WorkspaceError::NoSlot(NoSlot::ManualFull { max } | NoSlot::AutoBlocked { max }) => {
            vec![("max", json!(max))]
        }
        WorkspaceError::NoSlot(NoSlot::NameTaken { name, slot }) => vec![
            ("name", json!(name)),
            ("checkpoint", json!(slot.to_string())),
        ],
        WorkspaceError::NeedsConfirmation { deletes, most } => {
            vec![("deletes", json!(deletes)), ("max", json!(most))]
        }
        WorkspaceError::NoUndo(number) => vec![("undo", json!(format!("u-{number}")))],
        WorkspaceError::Busy(holder) | WorkspaceError::Watched(holder) => {
            vec![("holder", json!(holder))]
        }
        WorkspaceError::MovesGit { moves, commits } => {
            vec![("moves", json!(moves)), ("commits_leaving", json!(commits))]
        }
        WorkspaceError::NoSuchEntry(path)
        | WorkspaceError::NothingDiffers(path)
        | WorkspaceError::NotInCheckpoint { path, .. } => {
            vec![("path", json!(path.to_string()))]
        }
        error => forks::fields(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_engine::model::workspace::Slot;

    fn reported(error: WorkspaceError) -> (Option<String>, Value) {
        let error = Error::from(error);
        let Error::Workspace(inner) = &error else {
            unreachable!("it was made of one")
        };
        let hint = hint(inner, error.kind());
        let fields = fields(&anyhow::Error::from(error));
        (hint, fields.into_iter().collect())
    }

    #[test]
    fn programs_get_the_numbers_and_users_what_to_do() {
        let full = NoSlot::ManualFull { max: 12 };
        let taken = NoSlot::NameTaken {
            name: "good".parse().unwrap(),
            slot: Slot::new(11),
        };
        let (deletes, most) = (40, 20);

        let full = reported(full.into());
        let taken = reported(taken.into());
        let many = reported(WorkspaceError::NeedsConfirmation { deletes, most });
        let held = reported(WorkspaceError::Watched("process 7".to_owned()));

        assert_eq!(full.1, json!({ "max": 12 }));
        assert!(full.0.unwrap().contains("manual_max"));
        assert_eq!(taken.1, json!({ "name": "good", "checkpoint": "cp-11" }));
        assert!(taken.0.unwrap().contains("delete cp-11"));
        assert_eq!(many.1, json!({ "deletes": 40, "max": 20 }));
        assert_eq!(held.1, json!({ "holder": "process 7" }));
    }
}
