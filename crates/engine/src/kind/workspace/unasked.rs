//! Checkpoints that a server makes without being asked for any.
//!
//! They are those of a watch, in the same ring and by the same rules: none where nothing changed since the last automatic one. Where
//! somebody watches, that watch makes them; where somebody wants no automatic ones, there are none. An agent waits for the checkpoint before
//! its prompt, and nobody for this one: it gives way, at the next file.

use super::Workspace;
use super::commands::{CreateCheckpoint, Maker};
use super::session::HostEnv;
use crate::bridge::{self, CancelOnDrop};
use crate::error::{Error, ErrorKind};
use stasis_disk::fs::lock_file::LockFile;
use stasis_disk::progress::Progress;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often is looked whether the hook of an agent waits.
const AGAIN: Duration = Duration::from_millis(50);

/// What came of a checkpoint that nobody asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnaskedCheckpoint {
    /// There is a new one.
    Made,
    /// Nothing changed since the last one.
    Unchanged,
    /// A watch makes them.
    Watched,
    /// Somebody said that there are to be no automatic ones.
    Off,
    /// The directory is not there.
    Gone,
    /// Others are at the workspace.
    Busy,
}

/// The workspaces that a host knows, each with what decides already that it has no checkpoint, if anything does.
pub(crate) async fn registered(host: &HostEnv) -> Vec<(String, Option<UnaskedCheckpoint>)> {
    let state = host.state.clone();
    bridge::blocking(move || {
        let decided = |row: super::WorkspaceRow| {
            let decided = match (row.is_there, row.hooks_off) {
                (false, _) => Some(UnaskedCheckpoint::Gone),
                (true, true) => Some(UnaskedCheckpoint::Off),
                (true, false) => None,
            };
            (row.workspace, decided)
        };
        super::workspaces(&state).into_iter().map(decided).collect()
    })
    .await
}

/// Makes a checkpoint of a workspace if it changed. Whoever drops this stops it at the next file.
pub(crate) async fn checkpoint_unasked(
    directory: &Path,
    host: &HostEnv,
) -> Result<UnaskedCheckpoint, Error> {
    let workspace = Workspace::find(directory, host).await?;
    let watch = workspace.watch_lock();
    if bridge::blocking(move || LockFile::holder(&watch))
        .await
        .is_some()
    {
        return Ok(UnaskedCheckpoint::Watched);
    }
    if is_hook_at_work(&workspace).await {
        return Ok(UnaskedCheckpoint::Busy);
    }
    let cancel = CancelOnDrop::default();
    let command = CreateCheckpoint::automatic(Maker::Serve);
    let (progress, flag) = (Arc::new(Progress::default()), cancel.flag());
    let making = workspace.create_watched(command, progress, flag.clone());
    let (made, gave_way) = giving_way(&workspace, &flag, making).await;
    match made {
        Ok(made) if made.created => Ok(UnaskedCheckpoint::Made),
        Ok(_) => Ok(UnaskedCheckpoint::Unchanged),
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(UnaskedCheckpoint::Busy),
        Err(error) if gave_way && error.kind() == ErrorKind::Cancelled => {
            Ok(UnaskedCheckpoint::Busy)
        }
        Err(error) => Err(error),
    }
}

/// Does what ends when `cancel` is set; that is set when the hook of an agent waits. Says whether it was.
pub(crate) async fn giving_way<T>(
    workspace: &Workspace,
    cancel: &AtomicBool,
    work: impl Future<Output = T>,
) -> (T, bool) {
    let mut gave_way = false;
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return (done, gave_way),
            () = tokio::time::sleep(AGAIN) => {}
        }
        if !gave_way && is_hook_at_work(workspace).await {
            gave_way = true;
            cancel.store(true, Ordering::Relaxed);
        }
    }
}

async fn is_hook_at_work(workspace: &Workspace) -> bool {
    let workspace = workspace.clone();
    bridge::blocking(move || workspace.hook_at_work().is_some()).await
}
