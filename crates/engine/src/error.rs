//! What can go wrong in a use case, folded into what the caller must do about it.

use stasis_disk::archive::ArchiveError;
use stasis_disk::atomic_write::WriteError;
use stasis_disk::check::CheckError;
pub use stasis_disk::chunked::ChunkError;
pub use stasis_disk::chunked::restore::RestoreError;
pub use stasis_disk::chunked::save::SaveError;
use stasis_disk::clone::CloneError;
pub use stasis_disk::restore::RestoreError as PlaceError;
use stasis_disk::tree_writer::WriteError as TreeWriteError;
use stasis_disk::walk::WalkError;
use stasis_model::id::{Lineage, OpId, SnapshotId, TenantId};
use stasis_model::manifest::{BadInline, BadRepo, IndexRefusal};
use stasis_model::policy::BadSetting;
use stasis_model::step::Refusal;
pub use stasis_quiesce::group::GroupError;
pub use stasis_store::bucket::{BucketError, BucketErrorKind};
use stasis_store::copying::CopyError;
pub use stasis_store::lineages::{LineageError, ReadError};
use stasis_store::location::BadLocation;
use stasis_store::policies::PolicyError;
use stasis_store::probe::ProbeReport;
pub use stasis_store::roots::ChangeError;
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
    /// A save of a tree into chunks.
    #[error(transparent)]
    Save(#[from] SaveError),
    /// A chunk.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// A tree that was to be written.
    #[error(transparent)]
    RestoreTree(#[from] RestoreError),
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
    /// What was written is not the tree that was saved.
    #[error("the tree of snapshot `{0}` is not what its metadata says; nothing was put in place")]
    WrongTree(SnapshotId),
    /// A sweep was faster than the save, again and again.
    #[error("the save was given up: {0}")]
    SaveGaveUp(&'static str),
    /// A sweep did not come to its end; what it began is finished by the next one.
    #[error("the sweep was given up: {0}")]
    SweepGaveUp(&'static str),
    /// A tree could not be put in place.
    #[error(transparent)]
    Restore(#[from] PlaceError),
    /// The source is not a directory that can be read.
    #[error("could not open the directory `{}`", .path.display())]
    NoDirectory {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
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
    Check(#[from] CheckError),
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
            | Self::RepoExists(_)
            | Self::Ambiguous { .. }
            | Self::OtherStore { .. } => ErrorKind::Invalid,
            Self::Interrupted(_) => ErrorKind::Cancelled,
            Self::Write(error) => io_kind(&error.source),
            Self::Clone(error) => clone(error),
            Self::Check(error) => check(error),
            Self::Archive(error) => archive(error),
            Self::Unreadable { source, .. } | Self::NoDirectory { source, .. } => io_kind(source),
            Self::Untrustworthy { .. }
            | Self::UnfitPolicy { .. }
            | Self::UnfitRepo(_)
            | Self::Shrunk { .. } => ErrorKind::Limit,
            Self::NeverLocked(_)
            | Self::NoSuchOperation(_)
            | Self::Group(GroupError::Start { .. }) => ErrorKind::NotFound,
            Self::Group(_) => ErrorKind::Bug,
            Self::Save(error) => save(error),
            Self::Chunk(error) => chunk(error),
            Self::RestoreTree(error) => restore(error),
            Self::Index(error) => change(error),
            Self::Copy(error) => copy(error),
            Self::UnfitSnapshot { .. } | Self::LostManifest(_) | Self::WrongTree(_) => {
                ErrorKind::Corrupt
            }
            Self::NoRepo(_) | Self::NoSuchSnapshot { .. } | Self::NoSuchEntry { .. } => {
                ErrorKind::NotFound
            }
            Self::SaveGaveUp(_) | Self::SweepGaveUp(_) => ErrorKind::Retry,
            Self::Restore(error) => place(error),
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

fn check(error: &CheckError) -> ErrorKind {
    match error {
        CheckError::Walk(error) => walk(error),
        CheckError::Scratch(error) => io_kind(&error.source),
        CheckError::TooMany { .. } => ErrorKind::Limit,
        CheckError::Cancelled => ErrorKind::Cancelled,
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
        ArchiveError::Write(error) => tree_write(error),
        ArchiveError::Restore(error) => place(error),
        ArchiveError::NotFramed(_) | ArchiveError::NotAFile(_) => ErrorKind::Invalid,
        ArchiveError::NoSuchEntry { .. } => ErrorKind::NotFound,
        ArchiveError::TooLarge => ErrorKind::Limit,
        ArchiveError::Cancelled => ErrorKind::Cancelled,
        _ => ErrorKind::Bug,
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

fn save(error: &SaveError) -> ErrorKind {
    match error {
        SaveError::Walk(error) => walk(error),
        SaveError::Chunk(error) => chunk(error),
        _ => ErrorKind::Bug,
    }
}

fn restore(error: &RestoreError) -> ErrorKind {
    match error {
        RestoreError::Chunk(error) => chunk(error),
        RestoreError::Write(error) => tree_write(error),
        RestoreError::NoSuchEntry(_) => ErrorKind::NotFound,
        _ => ErrorKind::Bug,
    }
}

fn chunk(error: &ChunkError) -> ErrorKind {
    match error {
        ChunkError::Moving { source, .. } => match source.downcast_ref::<BucketError>() {
            Some(error) => bucket(error),
            None => ErrorKind::Bug,
        },
        _ => ErrorKind::Corrupt,
    }
}

fn copy(error: &CopyError) -> ErrorKind {
    match error {
        CopyError::Bucket(error) => bucket(error),
        CopyError::Diverged(_) => ErrorKind::Diverged,
        _ => ErrorKind::Retry,
    }
}

fn change(error: &ChangeError) -> ErrorKind {
    match error {
        ChangeError::Refused(IndexRefusal::Diverged { .. }) => ErrorKind::Diverged,
        ChangeError::Refused(IndexRefusal::Absent(_) | IndexRefusal::Gone(_)) => {
            ErrorKind::NotFound
        }
        ChangeError::Refused(_) => ErrorKind::Limit,
        ChangeError::Read(error) => read(error),
        ChangeError::Write(error) => bucket(error),
        ChangeError::Contended => ErrorKind::Retry,
        _ => ErrorKind::Unknown,
    }
}

fn place(error: &PlaceError) -> ErrorKind {
    match error {
        PlaceError::Write(error) => tree_write(error),
        PlaceError::Failed { source, .. }
        | PlaceError::Entry { source, .. }
        | PlaceError::CannotExchange { source, .. } => io_kind(source),
        PlaceError::HalfDone { .. } => ErrorKind::Retry,
        PlaceError::BadJournal(_) => ErrorKind::Corrupt,
        PlaceError::NothingKept(_) => ErrorKind::NotFound,
        PlaceError::Busy(_) => ErrorKind::Conflict,
        PlaceError::Cancelled => ErrorKind::Cancelled,
        _ => ErrorKind::Invalid,
    }
}

/// A tree that could not be written: what is wrong with it is wrong where it came from.
fn tree_write(error: &TreeWriteError) -> ErrorKind {
    match error {
        TreeWriteError::Failed { source, .. } => io_kind(source),
        TreeWriteError::TooManyBytes(_) | TreeWriteError::TooManyEntries(_) => ErrorKind::Limit,
        TreeWriteError::Cancelled => ErrorKind::Cancelled,
        _ => ErrorKind::Corrupt,
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
