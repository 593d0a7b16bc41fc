//! The first checkpoint of a workspace, which `workspace init` and `hook install` make while somebody waits.

use super::CliContext;
use super::output::printable;
use super::progress::{cancel_on_signals, watched};
use anyhow::Context as _;
use stasis_engine::error::Error;
use stasis_engine::kind::workspace::{
    Checkpointed, CreateCheckpoint, Maker, Workspace, WorkspaceError,
};
use stasis_engine::progress::Progress;
use std::path::Path;
use std::sync::Arc;

/// Makes the first checkpoint of the workspace that holds `directory`, where somebody sees how far it has come: it reads everything, and so takes
/// longer than any hook can wait. `None` when there are some already.
pub(super) async fn make(
    context: &CliContext,
    directory: &Path,
) -> anyhow::Result<Option<Checkpointed>> {
    let workspace = Workspace::find(directory, &context.environment.host_env()?).await?;
    if !workspace.list(false).await?.snapshots.is_empty() {
        return Ok(None);
    }
    let (progress, cancel) = (Arc::<Progress>::default(), cancel_on_signals()?);
    let create = CreateCheckpoint::automatic(Maker::Cli);
    let work = workspace.create_watched(create, progress.clone(), cancel);
    let made = watched(context.output, "first checkpoint", progress, work).await;
    Ok(Some(made.context(
        "the workspace is known, but its first checkpoint was not made",
    )?))
}

/// Makes the first checkpoint of the workspace that the current directory lies in, if it is one without: an agent's first prompt should not wait
/// for it. That it was not made is told, and no failure of what was asked for.
pub(super) async fn make_here(context: &CliContext) {
    let Ok(here) = std::env::current_dir() else {
        return;
    };
    match make(context, &here).await {
        Ok(Some(first)) => {
            let checkpoint = &first.checkpoint;
            let line = format!("first checkpoint of this workspace: {checkpoint}");
            context.output.say(&line);
        }
        Ok(None) => {}
        Err(error) if is_no_workspace(&error) => context.output.say(
            "note: this directory is not inside a workspace, so hooks make no checkpoints here. Protect it with: stasis protect",
        ),
        Err(error) => {
            let error = printable(&format!("{error:#}"));
            context.output.say(&format!("warning: {error}"));
        }
    }
}

pub(super) fn is_no_workspace(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<Error>();
    let Some(Error::Workspace(error)) = error else {
        return false;
    };
    matches!(**error, WorkspaceError::NotAWorkspace { .. })
}
