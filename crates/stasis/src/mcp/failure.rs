//! What a client is told when something does not work.
//!
//! A request that could never work is refused by the protocol (`-32602`); what the state of the workspace stands against is an
//! answer that a model reads and can act on (`isError`); what is our fault is neither (`-32603`), and is in the log.

use super::escape;
use crate::report;
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use stasis_engine::error::{Error, ErrorKind};
use stasis_engine::kind::workspace::WorkspaceError;
use stasis_engine::model::workspace::NoSlot;
use std::error::Error as StdError;

/// Why a call has no answer.
#[derive(Debug)]
pub(super) enum CallFailure {
    /// The parameters cannot be used, whatever there is.
    Params(String),
    /// It was not done; the model is told why, and what it can do.
    Refused(Box<Refused>),
    /// It is our fault.
    Internal,
}

/// Why it was not done
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Refused {
    /// What kind of failure: notfound, limit, conflict, denied, retry, ...
    kind: String,
    /// One word for it, such as `needs_confirmation`
    // Listed in the schema of every tool they would be an eighth of it.
    #[schemars(with = "String")]
    reason: RefusalReason,
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
    /// Numbers that belong to it
    #[schemars(with = "Option<Map<String, Value>>")]
    details: Value,
}

/// Why a call was refused, for a client that decides by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RefusalReason {
    BadFork,
    Busy,
    Excluded,
    Failed,
    ForksNotAllowed,
    ForksFull,
    NameTaken,
    NeedsConfirmation,
    NoCheckpoints,
    NoSuchCheckpoint,
    NoSuchEntry,
    NoSuchFork,
    NoSuchUndo,
    NotYours,
    NothingDiffers,
    NothingToUndo,
    OnlyCopy,
    OverBudget,
    PlanChanged,
    PoolFull,
    Unreadable,
}

impl CallFailure {
    /// As the protocol has it; it names the workspace, as every answer does.
    pub(super) fn into_result(self, workspace: &str) -> Result<CallToolResult, ErrorData> {
        let mut data = json!({ "workspace": workspace });
        escape::scrub(&mut data);
        match self {
            Self::Params(message) => Err(ErrorData::invalid_params(
                escape::line(&message),
                Some(data),
            )),
            Self::Refused(refused) => Ok(refused.into_result(workspace)),
            Self::Internal => Err(ErrorData::internal_error(
                "something is wrong inside the server; its log says more",
                Some(data),
            )),
        }
    }
}

impl Refused {
    fn into_result(self, workspace: &str) -> CallToolResult {
        let mut lines = vec![format!("error: {}", self.message)];
        lines.extend(self.causes.iter().map(|cause| format!("because: {cause}")));
        lines.extend(self.hint.iter().map(|hint| format!("hint: {hint}")));
        lines.push(format!("workspace: {workspace}"));
        let lines: Vec<String> = lines.iter().map(|line| escape::line(line)).collect();
        let mut answer = json!({ "workspace": workspace, "error": self });
        escape::scrub(&mut answer);
        let mut result = CallToolResult::error(vec![ContentBlock::text(lines.join("\n"))]);
        result.structured_content = Some(answer);
        result
    }
}

impl CallFailure {
    /// The operator named no directory that forks go to.
    pub(super) fn no_forks() -> Self {
        Self::Refused(Box::new(Refused {
            kind: "denied".to_owned(),
            reason: RefusalReason::ForksNotAllowed,
            message: "this server makes no forks".to_owned(),
            causes: Vec::new(),
            hint: Some(
                "the user can allow them by starting the server with `--forks DIR`, the directory they go to".to_owned(),
            ),
            details: Value::Null,
        }))
    }
}

impl From<Error> for CallFailure {
    fn from(error: Error) -> Self {
        if let Error::Workspace(inside) = &error
            && is_about_parameters(inside)
        {
            return Self::Params(inside.to_string());
        }
        if error.kind() == ErrorKind::Bug {
            let chain = causes(&error).join(": ");
            tracing::error!(%error, chain, "a call failed inside");
            return Self::Internal;
        }
        let (reason, hint, details) = match &error {
            Error::Workspace(inside) => advice(inside, error.kind()),
            _ => (RefusalReason::Failed, None, Value::Null),
        };
        let hint = hint.map(str::to_owned).or_else(|| report::hint(&error));
        Self::Refused(Box::new(Refused {
            kind: report::kind_word(error.kind()),
            reason,
            message: error.to_string(),
            causes: causes(&error),
            hint,
            details,
        }))
    }
}

fn causes(error: &Error) -> Vec<String> {
    let mut causes = Vec::new();
    let mut next = StdError::source(error);
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    causes
}

/// What no state of the workspace could make right.
fn is_about_parameters(error: &WorkspaceError) -> bool {
    matches!(
        error,
        WorkspaceError::BadPath { .. }
            | WorkspaceError::BadReference(_)
            | WorkspaceError::NamedAuto
            | WorkspaceError::TooFew
    )
}

/// Why it was refused, what an agent can do about it, and its numbers.
#[expect(clippy::too_many_lines, reason = "one line of advice for each error")]
fn advice(error: &WorkspaceError, kind: ErrorKind) -> (RefusalReason, Option<&'static str>, Value) {
    let (reason, hint) = match error {
        WorkspaceError::NoCheckpoint(_) => (
            RefusalReason::NoSuchCheckpoint,
            "snapshots_list shows the checkpoints there are",
        ),
        WorkspaceError::NoCheckpoints => (
            RefusalReason::NoCheckpoints,
            "make one with snapshots_create",
        ),
        WorkspaceError::NoSlot(NoSlot::ManualFull { max }) => {
            let hint = "delete one that you made with snapshots_delete, or merge some of yours with snapshots_compact";
            return (RefusalReason::PoolFull, Some(hint), json!({ "max": max }));
        }
        WorkspaceError::NoSlot(NoSlot::NameTaken { .. }) => {
            (RefusalReason::NameTaken, "give another name, or none")
        }
        WorkspaceError::NotInCheckpoint { .. } => (
            RefusalReason::NoSuchEntry,
            "snapshots_history shows which checkpoints have it",
        ),
        WorkspaceError::NoSuchEntry(_) => (
            RefusalReason::NoSuchEntry,
            "check the spelling; snapshots_changes lists paths as they must be written",
        ),
        WorkspaceError::NothingDiffers(_) => (
            RefusalReason::NothingDiffers,
            "it is in the newest state that was kept; snapshots_history shows its versions",
        ),
        WorkspaceError::NeedsConfirmation { deletes, most } => {
            let hint = "call again with dry_run=true, show the user what would be deleted, then call with confirm set to plan.digest";
            let details = json!({ "deletes": deletes, "most_without_confirm": most });
            return (RefusalReason::NeedsConfirmation, Some(hint), details);
        }
        WorkspaceError::MovesGit { moves, commits } => {
            let hint = "call again with dry_run=true, show the user plan.git, then call with confirm set to plan.digest; or let snapshots_restore leave it with except [\".git\"]";
            let details = json!({ "moves": moves, "commits_leaving": commits });
            return (RefusalReason::NeedsConfirmation, Some(hint), details);
        }
        WorkspaceError::Unreadable(_) => (
            RefusalReason::Unreadable,
            "nothing was changed; ask the user to make it readable or to move it away",
        ),
        WorkspaceError::Excluded(_) => (
            RefusalReason::Excluded,
            "nothing was changed; revert smaller parts that it is not in, or ask the user to move it away",
        ),
        WorkspaceError::BadFork { .. } | WorkspaceError::ForkTaken(_) => {
            (RefusalReason::BadFork, "choose another name")
        }
        WorkspaceError::NoFork { .. } | WorkspaceError::ForkGone { .. } => (
            RefusalReason::NoSuchFork,
            "snapshots_fork_list shows the forks there are",
        ),
        WorkspaceError::ForksFull { max, forks } => {
            let hint = "remove forks that you do not need with snapshots_fork_rm; details.forks names them";
            let details = json!({ "max": max, "forks": forks });
            return (RefusalReason::ForksFull, Some(hint), details);
        }
        WorkspaceError::ForksOverBudget {
            needs,
            budget,
            forks,
        } => {
            let hint = "remove forks with snapshots_fork_rm, the largest first as details.forks has them, or ask the user for more room";
            let details = json!({ "needs": needs, "budget": budget, "forks": forks });
            return (RefusalReason::OverBudget, Some(hint), details);
        }
        WorkspaceError::OverwritesWork { count, paths, .. } => {
            let hint = "call again with dry_run=true, show the user `overwrites`, then call with confirm set to plan.digest; or pass keep_own=true";
            let details = json!({ "overwrites": count, "paths": paths });
            return (RefusalReason::NeedsConfirmation, Some(hint), details);
        }
        WorkspaceError::ForkHasWork { files, commits, .. } => {
            let hint = "promote it first, or call again with dry_run=true, show the user `only_here`, then call with confirm set to digest";
            let details = json!({ "files": files, "commits": commits });
            return (RefusalReason::OnlyCopy, Some(hint), details);
        }
        WorkspaceError::ForkHasMore {
            checkpoints,
            excluded,
            ..
        } => {
            let hint = "call again with dry_run=true, show the user `checkpoints` and `excluded`, then call with confirm set to digest";
            let details = json!({ "checkpoints": checkpoints, "excluded": excluded });
            return (RefusalReason::OnlyCopy, Some(hint), details);
        }
        WorkspaceError::ForkNotYours(_) => (
            RefusalReason::NotYours,
            "leave it: only the user can remove it, with `stasis fork rm`",
        ),
        WorkspaceError::PlanChanged => (
            RefusalReason::PlanChanged,
            "call again with dry_run=true and look at the new plan; nothing was changed",
        ),
        WorkspaceError::NotYours(_) => (
            RefusalReason::NotYours,
            "leave it: only the user can delete it, with `stasis workspace delete`",
        ),
        WorkspaceError::NothingToUndo => (
            RefusalReason::NothingToUndo,
            "nothing was reverted or restored yet",
        ),
        WorkspaceError::NoUndo(_) => (
            RefusalReason::NoSuchUndo,
            "leave out `undo` to take back the last revert, restore or undo",
        ),
        WorkspaceError::Slots(_) if kind == ErrorKind::Limit => (
            RefusalReason::OverBudget,
            "delete or compact checkpoints that you made, or ask the user for more room",
        ),
        _ if kind == ErrorKind::Conflict => (RefusalReason::Busy, "try again in a moment"),
        _ => return (RefusalReason::Failed, None, Value::Null),
    };
    (reason, Some(hint), Value::Null)
}

#[cfg(test)]
mod tests;
