//! What can go wrong in a use case.
//!
//! Beneath every verb and every kind: what only one kind can meet is a leaf here, so that [`Error`] names it without the kind.

mod encryption;
mod profile;
mod project;
mod workspace;

pub use encryption::{EncryptionError, NotOfKey};
pub use profile::ProfileError;
pub use project::ProjectError;
pub use workspace::{Freeable, LostWorkspace, NoRoom, RoomUse, WorkspaceError};

use crate::error_kind;
pub use crate::error_kind::ErrorKind;
pub(crate) use stasis_model::failure::OPEN_DIRECTORY;
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
use stasis_model::id::{Lineage, OpId, SnapshotId, TenantId};
use stasis_model::invalid::Invalid;
use stasis_model::protocol::operation::UnsettledChange;
use stasis_model::workspace::NoSlot;
pub use stasis_quiesce::group::GroupError;
pub use stasis_store::bucket::{BucketError, BucketErrorKind};
pub use stasis_store::documents::lineages::{LineageError, ReadError};
pub use stasis_store::documents::roots::ChangeError;
use stasis_store::location::StoreLocation;
use stasis_store::probe::{self, ProbeReport};
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
    Chunk(ChunkError),
    /// The index of a repository.
    #[error(transparent)]
    Index(#[from] ChangeError),
    /// A repository that this build must leave alone.
    #[error(transparent)]
    UnfitRepo(Invalid),
    /// The entries of a small snapshot.
    #[error("the snapshot `{snapshot}` cannot be used")]
    UnfitSnapshot {
        /// Which.
        snapshot: SnapshotId,
        /// Why.
        #[source]
        source: Invalid,
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
    /// Which chunks a snapshot of an encrypted pool needs is not known any more.
    #[error("the list of chunks that snapshot `{0}` needs is missing")]
    LostReferences(SnapshotId),
    /// Snapshots were saved, and what leads to them is not there.
    #[error(
        "the index of `{0}` is missing: what it led to cannot be listed, and nothing may be saved or deleted"
    )]
    LostIndex(String),
    /// Snapshots were saved, and what says how is not there.
    #[error("`repo.json` of `{0}` is missing, though something was saved there")]
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
    /// Keys, and what they encrypt.
    #[error(transparent)]
    Encryption(Box<EncryptionError>),
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
    /// What is stored as a tenant's policy cannot be used.
    #[error("the stored policy of tenant `{tenant}` cannot be used")]
    UnfitPolicy {
        /// Whose.
        tenant: TenantId,
        /// Why.
        #[source]
        source: Invalid,
    },
}

/// A path that is refused as the system would refuse it, without asking it.
pub(crate) fn refused(op: &'static str, path: &Path, why: io::ErrorKind) -> Error {
    let why = io::Error::from(why);
    Failure::new(Kinded::kind(&why), op, path.display())
        .because(why)
        .into()
}

impl From<EncryptionError> for Error {
    fn from(error: EncryptionError) -> Self {
        Self::Encryption(Box::new(error))
    }
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
    pub(crate) fn unusable(error: ReadError) -> Self {
        match error {
            ReadError::Bucket(error) => error.into(),
            error => ProfileError::UnusableManifest(error).into(),
        }
    }

    /// It is not the address of a store.
    pub fn bad_location(refused: Invalid) -> Self {
        let hint =
            "a store is file:///path, memory: or s3://bucket/prefix?endpoint=URL&region=NAME";
        Failure::of(ErrorKind::Invalid, refused)
            .with_hint(hint)
            .into()
    }

    /// A path that does not look like one: it may as well be a name that was meant for something else.
    pub fn relative_store(named: &str) -> Self {
        let named = named.escape_debug();
        let said = format!("`{named}` is neither a URL nor a path that begins with `/` or `./`");
        let hint = format!("for the directory of that name, write ./{named}");
        Failure::of(ErrorKind::Invalid, said).with_hint(hint).into()
    }

    /// There are no credentials for the store.
    pub(crate) fn no_credentials(store: &StoreLocation) -> Self {
        let said = format!("there are no credentials for the store `{store}`");
        let hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a profile in ~/.aws/credentials";
        Failure::of(ErrorKind::Invalid, said).with_hint(hint).into()
    }

    /// The store does not keep its word.
    pub(crate) fn untrustworthy(store: &str, report: &ProbeReport) -> Self {
        let why = probe::summary(report);
        let said = format!("the store `{store}` is refused for more than one writer: {why}");
        let hint = "use a store that honours conditional writes; `stasis store probe` shows what this one does";
        Failure::of(ErrorKind::Limit, said).with_hint(hint).into()
    }

    /// A signal came before the lease did.
    pub(crate) fn interrupted(lineage: &Lineage) -> Self {
        let said = format!("interrupted while the lease of `{lineage}` was being acquired");
        let hint = "if the lock had been taken already, nobody owns it and it expires by itself";
        Failure::of(ErrorKind::Cancelled, said)
            .with_hint(hint)
            .into()
    }

    /// The lineage was never owned.
    pub(crate) fn never_locked(lineage: &Lineage) -> Self {
        let said = format!("`{lineage}` has no lock: nobody ever acquired it");
        let hint =
            "check the spelling: <tenant>/<profile>@<chrome-major>; names are case-sensitive";
        Failure::of(ErrorKind::NotFound, said)
            .with_hint(hint)
            .into()
    }

    /// A lease would run out between two renewals.
    pub(crate) fn renews_too_slowly(every: Duration, ttl: Duration) -> Self {
        let said = format!(
            "renewing every {every:?} is too seldom for a lease of {ttl:?}: it must be at least twice per lease"
        );
        let hint = "renew more often, or ask for a longer lease";
        Failure::of(ErrorKind::Invalid, said).with_hint(hint).into()
    }

    /// A lease may not last that long.
    pub(crate) fn lease_too_long(ttl: Duration) -> Self {
        let said = format!(
            "a lease of {ttl:?} is too long: a dead holder would block the lineage; at most 7 days are allowed"
        );
        Failure::of(ErrorKind::Invalid, said).into()
    }

    /// Nobody recorded such an operation.
    pub(crate) fn no_such_operation(op_id: OpId) -> Self {
        let said = format!("no record of operation `{op_id}` on this host or in the store");
        let hint = "ask on the host that ran the operation, with the same --store";
        Failure::of(ErrorKind::NotFound, said)
            .with_hint(hint)
            .into()
    }

    /// The operation belongs to another store than the one that was asked.
    pub(crate) fn other_store(op_id: OpId, store: &str) -> Self {
        let said =
            format!("operation `{op_id}` was recorded for the store `{store}`, not for this one");
        let hint = format!(
            "ask with --store '{store}', or say --same-store if this is another address of it"
        );
        Failure::of(ErrorKind::Invalid, said).with_hint(hint).into()
    }
}

impl From<ChunkError> for Error {
    fn from(error: ChunkError) -> Self {
        match error {
            // Not the store refused to keep it, but whoever stores.
            ChunkError::Moving { name, source } => match source.downcast::<Self>() {
                Ok(refused) => *refused,
                Err(source) => Self::Chunk(ChunkError::Moving { name, source }),
            },
            error => Self::Chunk(error),
        }
    }
}

impl Error {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Lineage(error) => error.kind(),
            Self::Read(error) => error.kind(),
            Self::Bucket(error) => Kinded::kind(error),
            Self::RepoExists(_)
            | Self::Ambiguous { .. }
            | Self::NotDamaged(_)
            | Self::DamagedToo { .. }
            | Self::StoreInside(_) => ErrorKind::Invalid,
            Self::Failed(failure) => error_kind::failure_kind(failure),
            Self::Clone(error) => error_kind::clone(error),
            Self::Check(error) => error_kind::check(error),
            Self::Archive(error) => error_kind::archive(error),
            Self::Encryption(error) => error.kind(),
            Self::Profile(error) => error.kind(),
            Self::Project(error) => error.kind(),
            Self::Workspace(error) => error.kind(),
            Self::UnfitPolicy { .. } | Self::UnfitRepo(_) | Self::Shrunk { .. } => ErrorKind::Limit,
            Self::NoRepo(_)
            | Self::NoArchive(_)
            | Self::NoSuchSnapshot { .. }
            | Self::NoSuchEntry { .. }
            | Self::Group(GroupError::Start { .. }) => ErrorKind::NotFound,
            Self::Group(_) => ErrorKind::Bug,
            Self::Chunk(error) => error_kind::chunk(error),
            Self::Index(error) => error.kind(),
            Self::UnfitSnapshot { .. }
            | Self::LostManifest(_)
            | Self::LostReferences(_)
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

of_workspace!(SlotError, SessionDbError, MonitorError, NoSlot);
