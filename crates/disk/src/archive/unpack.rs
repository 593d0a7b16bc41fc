//! From an archive to a directory, whole or not at all.

use super::{Archive, ArchiveError, ReadSettings};
use crate::metadata::Rights;
use crate::progress::Progress;
use crate::restore::{Origin, Placement, RestoreError, Restored, Stage};
use crate::tree_writer::{WriteError, WriteLimits, WriteSettings};
use stasis_model::tree::EntryPath;
use std::path::Path;
use std::sync::Arc;

/// How an archive is unpacked.
#[derive(Clone, Debug)]
pub struct UnpackSettings {
    /// How the tree takes its place.
    pub placement: Placement,
    /// One entry, with what lies in it, instead of all.
    pub only: Option<EntryPath>,
    /// Whether owners, setuid and setgid are given.
    pub rights: Rights,
    /// How the archive is read.
    pub read: ReadSettings,
    /// Where files and bytes are counted while they are written.
    pub progress: Arc<Progress>,
}

impl Default for UnpackSettings {
    fn default() -> Self {
        Self {
            placement: Placement::New,
            only: None,
            rights: Rights::of_this_process(),
            read: ReadSettings::default(),
            progress: Arc::default(),
        }
    }
}

/// Makes `target` the tree that is in `archive`. Nothing of it is touched before the whole archive was read.
pub fn unpack(
    archive: &Archive,
    target: &Path,
    settings: &UnpackSettings,
    origin: &Origin,
) -> Result<Restored, ArchiveError> {
    let limits = settings.read.limits;
    let cancel = settings.read.cancel.clone();
    let stage = Stage::begin(target, settings.placement, cancel.clone()).map_err(told)?;
    let writer = stage.writer(WriteSettings {
        rights: settings.rights,
        limits: WriteLimits {
            entries: limits.entries,
            bytes: limits.bytes,
            deepest: limits.deepest,
        },
        cancel,
        progress: settings.progress.clone(),
    });
    let writer = writer.map_err(told)?;
    let root = match &settings.only {
        Some(path) => archive.extract_one(path, &writer, &settings.read),
        None => archive.extract(&writer, &settings.read),
    };
    let written = writer.finish(root?.as_ref())?;
    stage.swap(written, origin).map_err(told)
}

/// One way to say that somebody wanted us to stop.
fn told(error: RestoreError) -> ArchiveError {
    match error {
        RestoreError::Cancelled | RestoreError::Write(WriteError::Cancelled) => {
            ArchiveError::Cancelled
        }
        RestoreError::Write(error) => ArchiveError::Write(error),
        error => ArchiveError::Restore(error),
    }
}
