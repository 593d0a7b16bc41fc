//! Where this host keeps what no store has: large files without a name, and the journals of pauses.

use crate::bridge;
use crate::error::{Error, error_chain};
use crate::open::Engine;
use stasis_disk::fs::atomic_write::make_directory;
use stasis_disk::fs::free_space;
use stasis_disk::tree::staging_view::{self, StagingView};
use stasis_quiesce::freeze::thaw_abandoned;
use std::io;
use std::path::PathBuf;

/// Less than this beside the cache is no room.
const LITTLE: u64 = 1 << 20;

impl Engine {
    /// Where databases are copied to; made by whoever copies one, so that nothing is written where there is none.
    pub(crate) fn captures(&self) -> PathBuf {
        let cache = self.local_dirs.cache.clone();
        cache.unwrap_or_else(std::env::temp_dir).join("captures")
    }

    /// Where large files without a name lie; beside the cache, so that they can be kept there.
    pub(crate) async fn spool(&self) -> Result<PathBuf, Error> {
        match &self.local_dirs.cache {
            Some(cache) => {
                let spool = cache.join("archives");
                let made = spool.clone();
                bridge::blocking(move || make_directory(&made)).await?;
                Ok(spool)
            }
            None => Ok(std::env::temp_dir()),
        }
    }

    /// A place for what is only looked at: elsewhere, if there is no room beside the cache.
    pub(crate) async fn looking_place(&self) -> Result<PathBuf, Error> {
        match self.spool().await {
            Ok(spool) => {
                let place = spool.clone();
                let has_room =
                    bridge::blocking(move || free_space::has(&place, LITTLE).is_ok()).await;
                Ok(if has_room {
                    spool
                } else {
                    std::env::temp_dir()
                })
            }
            Err(error) if is_no_room(&error) => Ok(std::env::temp_dir()),
            Err(error) => Err(error),
        }
    }

    /// A directory for a tree that is only looked at; gone when it is dropped.
    pub(crate) async fn scratch(&self) -> Result<StagingView, Error> {
        let place = self.looking_place().await?;
        let made = bridge::blocking(move || {
            let looks = staging_view::look_at(&place)?.metadata();
            StagingView::make(&place, looks)
        });
        Ok(made.await?)
    }

    /// Lets run what somebody who died had held still.
    pub(crate) async fn thaw_left(&self) {
        let journals = self.freezes();
        let thawed = bridge::blocking(move || thaw_abandoned(&journals)).await;
        if let Err(error) = thawed {
            let error = error_chain(&error);
            tracing::warn!(error, "could not look for what was left standing still");
        }
    }

    /// Where the journals of freezes are: the same for all engines of this host.
    pub(crate) fn freezes(&self) -> PathBuf {
        let state = self.local_dirs.state.clone();
        state.unwrap_or_else(std::env::temp_dir).join("freezes")
    }
}

/// Whether a place on this host could not be written: full, read-only, somebody else's, or no directory.
pub(crate) fn is_no_room(error: &Error) -> bool {
    let first: &(dyn std::error::Error + 'static) = error;
    let mut causes = std::iter::successors(Some(first), |cause| cause.source());
    causes.any(|cause| {
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        matches!(
            kind,
            Some(
                io::ErrorKind::StorageFull
                    | io::ErrorKind::QuotaExceeded
                    | io::ErrorKind::ReadOnlyFilesystem
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::AlreadyExists
            )
        )
    })
}
