//! What can go wrong in a use case.
//!
//! Beneath every verb and every kind: what only one kind can meet is a leaf here, so that [`Error`] names it without the kind.

mod operator;
mod profile;
mod project;
mod workspace;

pub use operator::OperatorError;
pub use profile::ProfileError;
pub use project::ProjectError;
pub use workspace::{Freeable, NoRoom, RoomUse, WorkspaceError};

use crate::error_kind;
pub use crate::error_kind::ErrorKind;
pub(crate) use crate::error_kind::bucket as bucket_kind;
pub use stasis_model::failure::error_chain;
use stasis_model::failure::{Failure, Kinded};

use stasis_disk::check::CheckError;
use stasis_disk::form::archive::ArchiveError;
pub use stasis_disk::form::chunked::ChunkError;
use stasis_disk::form::slots::SlotError;
use stasis_disk::session_db::SessionDbError;
use stasis_disk::tree::clone::CloneError;
pub use stasis_disk::tree::restore::RestoreError as PlaceError;
use stasis_disk::tree::staging_view::StagingViewError;
use stasis_disk::watch::MonitorError;
use stasis_model::format::manifest::{BadInline, BadRepo};
use stasis_model::id::{Lineage, OpId, SnapshotId, TenantId};
use stasis_model::policy::tenant::BadSetting;
use stasis_model::protocol::operation::UnsettledChange;
use stasis_model::workspace::{BadReference, NoSlot};
pub use stasis_quiesce::group::GroupError;
pub use stasis_store::bucket::{BucketError, BucketErrorKind};
use stasis_store::copying::CopyError;
pub use stasis_store::documents::lineages::{LineageError, ReadError};
use stasis_store::documents::policies::PolicyError;
use stasis_store::documents::profiles::ManifestError;
pub use stasis_store::documents::roots::ChangeError;
use stasis_store::location::BadLocation;
use stasis_store::probe::ProbeReport;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A use case that did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation on a lineage.
    #[error(transparent)]
    Lineage(Box<LineageError>),
    /// A document could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store itself.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// A tenant's policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The store's address.
    #[error(transparent)]
    Location(#[from] BadLocation),
    /// A command we run.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// What nobody branches on.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// A clone of a directory.
    #[error(transparent)]
    Clone(#[from] CloneError),
    /// A tree in chunks.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// The index of a repository.
    #[error(transparent)]
    Index(#[from] ChangeError),
    /// A copy of a store.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// A repository that this build must leave alone.
    #[error(transparent)]
    UnfitRepo(#[from] BadRepo),
    /// The entries of a small snapshot.
    #[error("the snapshot `{snapshot}` cannot be used")]
    UnfitSnapshot {
        /// Which.
        snapshot: SnapshotId,
        /// Why.
        #[source]
        source: BadInline,
    },
    /// There is no repository.
    #[error("there is no repository in `{0}`")]
    NoRepo(String),
    /// There is one already.
    #[error("there is a repository in `{0}` already")]
    RepoExists(String),
    /// Nothing was saved under that name, or with that id.
    #[error("there is no snapshot `{wanted}` in `{repo}`")]
    NoSuchSnapshot {
        /// What was asked for.
        wanted: String,
        /// Where.
        repo: String,
    },
    /// The beginning of an id fits more than one.
    #[error("`{wanted}` is the beginning of {count} snapshots' ids")]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// How many fit.
        count: usize,
    },
    /// There is no such entry in a snapshot.
    #[error("there is no {what} `{path}` in snapshot `{snapshot}`")]
    NoSuchEntry {
        /// What was looked for.
        what: &'static str,
        /// Under which path.
        path: String,
        /// In which snapshot.
        snapshot: SnapshotId,
    },
    /// What the index leads to is not there, or not what it was.
    #[error("the metadata of snapshot `{0}` is missing or not what the index says")]
    LostManifest(SnapshotId),
    /// Snapshots were saved, and what leads to them is not there.
    #[error(
        "the index of `{0}` is missing: what it led to cannot be listed, and nothing may be saved or deleted"
    )]
    LostIndex(String),
    /// Snapshots were saved, and what says how is not there.
    #[error("`repo.json` of `{0}` is missing, though there is an index")]
    LostRepo(String),
    /// A snapshot that something depends on cannot be read.
    #[error("snapshot `{snapshot}` cannot be read")]
    Damaged {
        /// Which.
        snapshot: SnapshotId,
        /// Why not.
        #[source]
        source: Box<Error>,
    },
    /// What was said to be damaged is not.
    #[error("snapshot `{0}` can be read, or at least is what it was; nothing was changed")]
    NotDamaged(SnapshotId),
    /// What would become the newest is damaged as well.
    #[error(
        "snapshot `{snapshot}`, which would become the newest of its name, is damaged too ({why}); nothing was changed"
    )]
    DamagedToo {
        /// Which.
        snapshot: SnapshotId,
        /// What is wrong with it.
        why: String,
    },
    /// Whether a change was applied.
    #[error("whether operation `{}` changed the index is not known", .0.op_id)]
    UnknownChange(Box<UnsettledChange>),
    /// What was written is not the tree that was saved.
    #[error("the tree of snapshot `{0}` is not what its metadata says; nothing was put in place")]
    WrongTree(SnapshotId),
    /// The store is in the directory that would be replaced.
    #[error("the store is in `{}`: it would be moved away with what is there", .0.display())]
    StoreInside(PathBuf),
    /// A sweep was faster than the save, again and again.
    #[error("the save was given up: {0}")]
    SaveGaveUp(&'static str),
    /// A sweep did not come to its end; what it began is finished by the next one.
    #[error("the sweep was given up: {0}")]
    SweepGaveUp(&'static str),
    /// A tree could not be put in place.
    #[error(transparent)]
    Restore(#[from] PlaceError),
    /// The tree became much smaller.
    #[error("`{}` has {entries} entries, and the last snapshot has {before}: a directory that is not mounted, or was emptied, looks like this", .path.display())]
    Shrunk {
        /// Which tree.
        path: PathBuf,
        /// How many entries it has.
        entries: u64,
        /// How many it had.
        before: u64,
    },
    /// A check of the databases in a directory.
    #[error(transparent)]
    Check(CheckError),
    /// A profile.
    #[error(transparent)]
    Profile(Box<ProfileError>),
    /// A project.
    #[error(transparent)]
    Project(Box<ProjectError>),
    /// A workspace.
    #[error(transparent)]
    Workspace(Box<WorkspaceError>),
    /// There is no such archive.
    #[error("there is no archive `{0}`")]
    NoArchive(String),
    /// An archive.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The store does not keep its word.
    #[error("the store `{store}` is refused for more than one writer: {}", stasis_store::probe::summary(.report))]
    Untrustworthy {
        /// Which store.
        store: String,
        /// What it did.
        report: Box<ProbeReport>,
    },
    /// There are no credentials for the store.
    #[error("there are no credentials for the store `{store}`")]
    NoCredentials {
        /// Which store.
        store: String,
    },
    /// What is stored as a tenant's policy cannot be used.
    #[error("the stored policy of tenant `{tenant}` cannot be used")]
    UnfitPolicy {
        /// Whose.
        tenant: TenantId,
        /// Why.
        #[source]
        source: BadSetting,
    },
    /// A signal came before the lease did.
    #[error("interrupted while the lease of `{0}` was being acquired")]
    Interrupted(Lineage),
    /// A lease would run out between two renewals.
    #[error(
        "renewing every {every:?} is too seldom for a lease of {ttl:?}: it must be at least twice per lease"
    )]
    RenewsTooSlowly {
        /// How often it was to be renewed.
        every: Duration,
        /// How long it lasts.
        ttl: Duration,
    },
    /// A lease may not last that long.
    #[error(
        "a lease of {0:?} is too long: a dead holder would block the lineage; at most 7 days are allowed"
    )]
    TooLong(Duration),
    /// The operation belongs to another store than the one that was asked.
    #[error("operation `{op_id}` was recorded for the store `{store}`, not for this one")]
    OtherStore {
        /// Which operation.
        op_id: OpId,
        /// Where it was carried out.
        store: String,
    },
    /// The lineage was never owned.
    #[error("`{0}` has no lock: nobody ever acquired it")]
    NeverLocked(Lineage),
    /// What an operator asked of a profile.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// Nobody recorded such an operation.
    #[error("no record of operation `{0}` on this host or in the store")]
    NoSuchOperation(OpId),
}

/// What is done to a directory that is to be read.
pub(crate) const OPEN_DIRECTORY: &str = "open the directory";

/// A path that is refused as the system would refuse it, without asking it.
pub(crate) fn refused(op: &'static str, path: &Path, why: io::ErrorKind) -> Error {
    let why = io::Error::from(why);
    Failure::new(Kinded::kind(&why), op, path.display())
        .because(why)
        .into()
}

impl From<ProfileError> for Error {
    fn from(error: ProfileError) -> Self {
        Self::Profile(Box::new(error))
    }
}

impl From<ProjectError> for Error {
    fn from(error: ProjectError) -> Self {
        Self::Project(Box::new(error))
    }
}

impl From<WorkspaceError> for Error {
    fn from(error: WorkspaceError) -> Self {
        Self::Workspace(Box::new(error))
    }
}

impl From<StagingViewError> for Error {
    fn from(error: StagingViewError) -> Self {
        ProjectError::from(error).into()
    }
}

impl From<LineageError> for Error {
    fn from(error: LineageError) -> Self {
        Self::Lineage(Box::new(error))
    }
}

impl Error {
    /// The same, as the reason why a snapshot cannot be read.
    pub(crate) fn damaged(snapshot: &SnapshotId, source: Self) -> Self {
        Self::Damaged {
            snapshot: snapshot.clone(),
            source: Box::new(source),
        }
    }

    /// A manifest that cannot be used, unless it was only the store that failed.
    pub(crate) fn unusable(error: ManifestError) -> Self {
        match error {
            ManifestError::Bucket(error) => error.into(),
            error => OperatorError::Manifest(error).into(),
        }
    }
}

impl Error {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Lineage(error) => error_kind::lineage(error),
            Self::Operator(error) => error.kind(),
            Self::Read(error) => error_kind::read(error),
            Self::Bucket(error) => error_kind::bucket(error),
            Self::Policy(error) => error_kind::policy(error),
            Self::Location(_)
            | Self::NoCredentials { .. }
            | Self::RenewsTooSlowly { .. }
            | Self::TooLong(_)
            | Self::RepoExists(_)
            | Self::Ambiguous { .. }
            | Self::NotDamaged(_)
            | Self::DamagedToo { .. }
            | Self::StoreInside(_)
            | Self::OtherStore { .. } => ErrorKind::Invalid,
            Self::Interrupted(_) => ErrorKind::Cancelled,
            Self::Failed(failure) => error_kind::failure_kind(failure),
            Self::Clone(error) => error_kind::clone(error),
            Self::Check(error) => error_kind::check(error),
            Self::Archive(error) => error_kind::archive(error),
            Self::Profile(error) => error.kind(),
            Self::Project(error) => error.kind(),
            Self::Workspace(error) => error.kind(),
            Self::Untrustworthy { .. }
            | Self::UnfitPolicy { .. }
            | Self::UnfitRepo(_)
            | Self::Shrunk { .. } => ErrorKind::Limit,
            Self::NeverLocked(_)
            | Self::NoRepo(_)
            | Self::NoArchive(_)
            | Self::NoSuchSnapshot { .. }
            | Self::NoSuchEntry { .. }
            | Self::NoSuchOperation(_)
            | Self::Group(GroupError::Start { .. }) => ErrorKind::NotFound,
            Self::Group(_) => ErrorKind::Bug,
            Self::Chunk(error) => error_kind::chunk(error),
            Self::Index(error) => error_kind::change(error),
            Self::Copy(error) => error_kind::copy(error),
            Self::UnfitSnapshot { .. }
            | Self::LostManifest(_)
            | Self::LostIndex(_)
            | Self::LostRepo(_)
            | Self::WrongTree(_)
            | Self::Damaged { .. } => ErrorKind::Corrupt,
            Self::UnknownChange(_) => ErrorKind::Unknown,
            Self::SaveGaveUp(_) | Self::SweepGaveUp(_) => ErrorKind::Retry,
            Self::Restore(error) => error_kind::place(error),
        }
    }
}

impl From<CheckError> for Error {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::Archive(error) => error.into(),
            error => Self::Check(error),
        }
    }
}

/// What a workspace meets on its way is an error of the workspace.
macro_rules! of_workspace {
    ($($error:ty),*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                WorkspaceError::from(error).into()
            }
        }
    )*};
}

of_workspace!(
    SlotError,
    SessionDbError,
    MonitorError,
    NoSlot,
    BadReference
);
