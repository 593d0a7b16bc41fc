//! The end of a workspace: its watch stops, and its checkpoints go if that is wanted. The directory itself is not touched.

use super::Workspace;
use super::answers::RemovedWorkspace;
use super::commands::RunMode;
use super::known_sessions::usual;
use crate::error::{Error, ErrorKind, WorkspaceError};
use crate::own_places::IDENTITY;
use stasis_disk::fs::atomic_write::{atomic_write, remove_durably};
use stasis_disk::fs::lock_file::LockFile;
use stasis_disk::fs::remove;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::workspace::CheckpointRef;
use std::path::Path;
use std::time::Duration;

/// What says, in a session directory, that hooks of agents make no checkpoints of the workspace.
pub(super) const HOOKS_OFF: &str = "hooks_off";
/// How long a watch has to end: it may be making a checkpoint.
const WATCH_END: Duration = Duration::from_secs(30);
/// How often somebody who waits for that looks.
const LOOK: Duration = Duration::from_millis(50);

impl Workspace {
    /// Whether hooks of agents make no checkpoints here, because somebody said so.
    pub fn are_hooks_off(&self) -> bool {
        self.session().path.join(HOOKS_OFF).exists()
    }

    /// Says whether hooks of agents make checkpoints here.
    pub async fn set_hooks(&self, on: bool) -> Result<(), Error> {
        self.blocking(move |own| {
            let mark = own.session().path.join(HOOKS_OFF);
            match (on, mark.exists()) {
                (true, true) => Ok(remove_durably(&mark)?),
                (false, false) => Ok(atomic_write(&mark, b"")?),
                _ => Ok(()),
            }
        })
        .await
    }

    /// Ends the watch of this workspace, and waits until it has ended; says whose it was.
    pub async fn stop_watch(&self) -> Result<Option<String>, Error> {
        self.blocking(Self::stop_watch_now).await
    }

    fn stop_watch_now(&self) -> Result<Option<String>, Error> {
        let lock = self.watch_lock();
        let Some(holder) = LockFile::holder(&lock) else {
            return Ok(None);
        };
        let number = holder.strip_prefix("process ");
        let number = number.and_then(|rest| rest.split(' ').next()?.parse().ok());
        let process = number.and_then(rustix::process::Pid::from_raw);
        let Some(process) = process else {
            return Err(WorkspaceError::Watched(holder).into());
        };
        let ended = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        ended
            .map_err(std::io::Error::from)
            .at("end the watch of", self.directory())?;
        let until = self.clock().uptime() + WATCH_END;
        while LockFile::holder(&lock).is_some_and(|now| now == holder) {
            if self.clock().uptime() > until {
                return Err(WorkspaceError::Watched(holder).into());
            }
            std::thread::sleep(LOOK);
        }
        Ok(Some(holder))
    }

    /// Deletes every checkpoint and everything else that is kept of the workspace, which is none any more after that.
    pub async fn remove(&self, run: RunMode) -> Result<RemovedWorkspace, Error> {
        self.blocking(move |own| own.remove_now(run)).await
    }

    fn remove_now(&self, run: RunMode) -> Result<RemovedWorkspace, Error> {
        let session = self.session().path.clone();
        let status = self.status_now()?;
        let checkpoints = self.newest_first()?;
        let result = RemovedWorkspace {
            workspace: self.directory().display().to_string(),
            session: session.display().to_string(),
            checkpoints: checkpoints.len() as u64,
            bytes: status.held_bytes,
            dry_run: run == RunMode::Dry,
        };
        if let Some(watch) = status.watched_by {
            return Err(WorkspaceError::Watched(watch).into());
        }
        if run == RunMode::Dry {
            return Ok(result);
        }
        // Some are subvolumes, which go in their own way.
        for one in &checkpoints {
            self.delete_now(&CheckpointRef::Slot(one.slot), RunMode::Real)?;
        }
        self.forget_undos_now()?;
        let _lock = self.lock("remove")?;
        // Without this it is no session any more, whatever becomes of the rest.
        remove_durably(&session.join(IDENTITY))?;
        remove_all(&session)?;
        let usual = usual(self.directory(), &self.session().host.state);
        if usual != session && usual.exists() {
            remove_all(&usual)?;
        }
        Ok(result)
    }
}

fn remove_all(place: &Path) -> Result<(), Failure> {
    let removed = remove::tree_at(place).map_err(std::io::Error::from);
    removed
        .at("remove", place)
        .map_err(|failure| match failure.kind() {
            ErrorKind::Denied => {
                failure.with_hint("its checkpoints are gone; remove what is left yourself")
            }
            _ => failure,
        })
}
