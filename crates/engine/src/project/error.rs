//! What can go wrong with a project, and with nothing else.

use crate::error::ErrorKind;
use stasis_disk::exclusive::ExclusiveError;
use stasis_disk::skeleton::SkeletonError;
use stasis_model::id::{ProjectId, VolumeName};
use stasis_model::project::BadProject;
use stasis_quiesce::sqlite::SqliteError;
use std::path::PathBuf;

/// Why a project was not saved, restored, started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectError {
    /// It is not what one writes in such a file.
    #[error("`{}` cannot be read: {detail}", .path.display())]
    NotToml {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and where.
        detail: String,
    },
    /// It does not fit together.
    #[error("`{}` cannot be used", .path.display())]
    Config {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: BadProject,
    },
    /// There is no file.
    #[error("`{}` has no stasis.toml: it is a plain directory", .0.display())]
    Plain(PathBuf),
    /// There is no state.
    #[error("project `{project}` has no state in `{}`", .path.display())]
    NoState {
        /// Which project.
        project: ProjectId,
        /// Where it should be.
        path: PathBuf,
    },
    /// Somebody is at it.
    #[error("save_in_progress: project `{project}` is busy: {holder}")]
    InProgress {
        /// Which project.
        project: ProjectId,
        /// Who, doing what, since when.
        holder: String,
    },
    /// A database could not be copied.
    #[error("volume `{volume}` could not be captured")]
    Sqlite {
        /// Which volume.
        volume: VolumeName,
        /// Why.
        #[source]
        source: Box<SqliteError>,
    },
    /// There is no place for the capture.
    #[error("there is no place for the capture")]
    Place(#[from] SkeletonError),
    /// It could not be found out whether somebody is at it.
    #[error(transparent)]
    Lock(ExclusiveError),
}

impl ProjectError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotToml { .. } | Self::Config { .. } | Self::Plain(_) => ErrorKind::Invalid,
            Self::NoState { .. } => ErrorKind::NotFound,
            Self::InProgress { .. } => ErrorKind::Conflict,
            Self::Lock(ExclusiveError::Failed { source, .. }) => crate::error::io_kind(source),
            Self::Lock(_) => ErrorKind::Conflict,
            Self::Sqlite { source, .. } => sqlite(source),
            Self::Place(error) => crate::error::io_kind(&error.source),
        }
    }
}

fn sqlite(error: &SqliteError) -> ErrorKind {
    match error {
        SqliteError::NotAFile { source, .. } | SqliteError::Write { source, .. } => {
            crate::error::io_kind(source)
        }
        SqliteError::Busy { .. } | SqliteError::SchemaChanging { .. } => ErrorKind::Retry,
        SqliteError::NotADatabase { .. } | SqliteError::Damaged { .. } => ErrorKind::Corrupt,
        SqliteError::Cancelled { .. } => ErrorKind::Cancelled,
        _ => ErrorKind::Bug,
    }
}
