//! What can go wrong in a use case, folded into what the caller must do about it.

use stasis_disk::archive::ArchiveError;
use stasis_disk::atomic_write::WriteError;
use stasis_disk::clone::CloneError;
use stasis_disk::restore::RestoreError;
use stasis_disk::tree_writer;
use stasis_disk::walk::WalkError;
use stasis_model::id::{Lineage, OpId, TenantId};
use stasis_model::policy::BadSetting;
use stasis_model::step::Refusal;
pub use stasis_quiesce::group::GroupError;
pub use stasis_store::bucket::{BucketError, BucketErrorKind};
pub use stasis_store::lineages::{LineageError, ReadError};
use stasis_store::location::BadLocation;
use stasis_store::policies::PolicyError;
use stasis_store::probe::ProbeReport;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// What the caller must do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Try again, a little later.
    Retry,
    /// Ask about the operation later; do not clean up.
    Unknown,
    /// Wait for the holder, or throw it out.
    Conflict,
    /// Stop: the lease is not ours any more.
    Fenced,
    /// Decide which of two snapshots counts.
    Diverged,
    /// Name something that exists.
    NotFound,
    /// Look at the network or the store.
    Unreachable,
    /// Look at credentials and permissions.
    Denied,
    /// Correct the request or the configuration.
    Invalid,
    /// Make room, or change the policy.
    Limit,
    /// Look at the damage; nothing was overwritten.
    Corrupt,
    /// Nothing: somebody asked us to stop, and nothing is left of the attempt.
    Cancelled,
    /// Tell us.
    Bug,
}

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
    /// A small file on this host.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A clone of a directory.
    #[error(transparent)]
    Clone(#[from] CloneError),
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
    /// A file on this host could not be read.
    #[error("could not read `{}`", .path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
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
    /// Nobody recorded such an operation.
    #[error("no record of operation `{0}` on this host or in the store")]
    NoSuchOperation(OpId),
}

impl From<LineageError> for Error {
    fn from(error: LineageError) -> Self {
        Self::Lineage(Box::new(error))
    }
}

impl Error {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Lineage(error) => lineage(error),
            Self::Read(error) => read(error),
            Self::Bucket(error) => bucket(error),
            Self::Policy(error) => policy(error),
            Self::Location(_)
            | Self::NoCredentials { .. }
            | Self::RenewsTooSlowly { .. }
            | Self::TooLong(_)
            | Self::OtherStore { .. } => ErrorKind::Invalid,
            Self::Interrupted(_) => ErrorKind::Cancelled,
            Self::Write(error) => io_kind(&error.source),
            Self::Clone(error) => clone(error),
            Self::Archive(error) => archive(error),
            Self::Unreadable { source, .. } => io_kind(source),
            Self::Untrustworthy { .. } | Self::UnfitPolicy { .. } => ErrorKind::Limit,
            Self::NeverLocked(_)
            | Self::NoSuchOperation(_)
            | Self::Group(GroupError::Start { .. }) => ErrorKind::NotFound,
            Self::Group(_) => ErrorKind::Bug,
        }
    }
}

fn lineage(error: &LineageError) -> ErrorKind {
    match error {
        LineageError::Unknown(_) => ErrorKind::Unknown,
        LineageError::Store { source, .. } => read(source),
        LineageError::Refused { refusal, .. } => refused(refusal),
        _ => ErrorKind::Bug,
    }
}

fn refused(refusal: &Refusal) -> ErrorKind {
    match refusal {
        Refusal::Held(_) | Refusal::HolderChanged { .. } | Refusal::PointerMoved { .. } => {
            ErrorKind::Conflict
        }
        Refusal::LockLost(_) => ErrorKind::Fenced,
        Refusal::Diverged { .. } => ErrorKind::Diverged,
        Refusal::NotHeld
        | Refusal::NoPointer
        | Refusal::Tombstoned(_)
        | Refusal::NoSuchSnapshot(_) => ErrorKind::NotFound,
        Refusal::NotExpired => ErrorKind::Invalid,
        Refusal::IsActive(_) | Refusal::IsPinned(_) | Refusal::IsLast(_) | Refusal::Full { .. } => {
            ErrorKind::Limit
        }
        Refusal::Contended | Refusal::Outrun { .. } => ErrorKind::Retry,
        _ => ErrorKind::Bug,
    }
}

fn read(error: &ReadError) -> ErrorKind {
    match error {
        ReadError::Bucket(error) => bucket(error),
        _ => ErrorKind::Corrupt,
    }
}

fn bucket(error: &BucketError) -> ErrorKind {
    match error.kind {
        BucketErrorKind::Absent => ErrorKind::NotFound,
        BucketErrorKind::Denied => ErrorKind::Denied,
        BucketErrorKind::Corrupt => ErrorKind::Corrupt,
        BucketErrorKind::Full | BucketErrorKind::TooLarge => ErrorKind::Limit,
        BucketErrorKind::Unsupported => ErrorKind::Invalid,
        _ => ErrorKind::Unreachable,
    }
}

fn policy(error: &PolicyError) -> ErrorKind {
    match error {
        PolicyError::Read { source, .. } => read(source),
        PolicyError::Setting(_) => ErrorKind::Invalid,
        PolicyError::Write { source, .. } => bucket(source),
        PolicyError::Contended { .. } => ErrorKind::Retry,
        _ => ErrorKind::Unknown,
    }
}

fn clone(error: &CloneError) -> ErrorKind {
    match error {
        CloneError::Walk(error) => walk(error),
        CloneError::Entry { source, .. } | CloneError::Failed { source, .. } => io_kind(source),
        CloneError::CannotShare { .. } => ErrorKind::Limit,
        CloneError::Exists(_)
        | CloneError::SourceIsSymlink(_)
        | CloneError::SourceIsEverything
        | CloneError::Nameless(_)
        | CloneError::Overlap { .. } => ErrorKind::Invalid,
        _ => ErrorKind::Bug,
    }
}

fn archive(error: &ArchiveError) -> ErrorKind {
    match error {
        ArchiveError::Walk(error) => walk(error),
        ArchiveError::Entry { source, .. }
        | ArchiveError::Failed { source, .. }
        | ArchiveError::Sink { source, .. } => io_kind(source),
        ArchiveError::Refused { problem, .. } if problem.is_a_limit() => ErrorKind::Limit,
        ArchiveError::Refused { .. } => ErrorKind::Corrupt,
        ArchiveError::Write(error) => written(error),
        ArchiveError::Restore(error) => restored(error),
        ArchiveError::NotFramed(_) | ArchiveError::NotAFile(_) => ErrorKind::Invalid,
        ArchiveError::NoSuchEntry { .. } => ErrorKind::NotFound,
        ArchiveError::TooLarge => ErrorKind::Limit,
        ArchiveError::Cancelled => ErrorKind::Cancelled,
        _ => ErrorKind::Bug,
    }
}

fn restored(error: &RestoreError) -> ErrorKind {
    match error {
        RestoreError::Write(error) => written(error),
        RestoreError::Failed { source, .. }
        | RestoreError::Entry { source, .. }
        | RestoreError::CannotExchange { source, .. } => io_kind(source),
        RestoreError::HalfDone { source, .. } => restored(source),
        RestoreError::BadJournal(_) => ErrorKind::Corrupt,
        RestoreError::NothingKept(_) => ErrorKind::NotFound,
        RestoreError::Cancelled => ErrorKind::Cancelled,
        _ => ErrorKind::Invalid,
    }
}

/// A tree from elsewhere that could not be written: what is wrong with it is wrong where it came from.
fn written(error: &tree_writer::WriteError) -> ErrorKind {
    use tree_writer::WriteError;
    match error {
        WriteError::Failed { source, .. } => io_kind(source),
        WriteError::TooManyBytes(_) | WriteError::TooManyEntries(_) => ErrorKind::Limit,
        WriteError::Cancelled => ErrorKind::Cancelled,
        _ => ErrorKind::Corrupt,
    }
}

fn walk(error: &WalkError) -> ErrorKind {
    match error {
        WalkError::Failed { source, .. } => io_kind(source),
        WalkError::TooDeep { .. } => ErrorKind::Limit,
        WalkError::Incomplete { reason, .. } => match reason {
            stasis_disk::walk::Reason::Unreadable => ErrorKind::Denied,
            _ => ErrorKind::Retry,
        },
        WalkError::Pattern { .. } => ErrorKind::Invalid,
        WalkError::Cancelled => ErrorKind::Cancelled,
        _ => ErrorKind::Bug,
    }
}

fn io_kind(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Denied,
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::NotADirectory => ErrorKind::Invalid,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Limit,
        _ => ErrorKind::Unreachable,
    }
}

/// An error with all its causes, in one line.
pub fn whole(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
