//! Every failure, folded into what the caller must do about it.

use stasis_disk::check::CheckError;
use stasis_disk::form::archive::ArchiveError;
use stasis_disk::form::chunked::ChunkError;
use stasis_disk::tree::clone::CloneError;
use stasis_disk::tree::restore::RestoreError as PlaceError;
use stasis_disk::tree::walk::WalkError;
use stasis_disk::tree::write::TreeWriteError;
use stasis_model::failure::{Failure, Kinded};
use stasis_model::format::manifest::IndexRefusal;
use stasis_model::protocol::step::Refusal;
use stasis_store::bucket::{BucketError, BucketErrorKind};
use stasis_store::copying::CopyError;
use stasis_store::documents::lineages::{LineageError, ReadError};
use stasis_store::documents::policies::PolicyError;
use stasis_store::documents::roots::ChangeError;
use std::io;

pub use stasis_model::failure::ErrorKind;

pub(crate) fn lineage(error: &LineageError) -> ErrorKind {
    match error {
        LineageError::Unknown(_) => ErrorKind::Unknown,
        LineageError::Store { source, .. } => read(source),
        LineageError::Refused { refusal, .. } => refused(refusal),
        _ => ErrorKind::Bug,
    }
}

pub(crate) fn refused(refusal: &Refusal) -> ErrorKind {
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
        Refusal::PointerLost(_) => ErrorKind::Corrupt,
        Refusal::NotExpired => ErrorKind::Invalid,
        Refusal::IsActive(_) | Refusal::IsPinned(_) | Refusal::IsLast(_) | Refusal::Full { .. } => {
            ErrorKind::Limit
        }
        Refusal::Contended | Refusal::Outrun { .. } => ErrorKind::Retry,
        _ => ErrorKind::Bug,
    }
}

pub(crate) fn read(error: &ReadError) -> ErrorKind {
    match error {
        ReadError::Bucket(error) => bucket(error),
        _ => ErrorKind::Corrupt,
    }
}

pub(crate) fn bucket(error: &BucketError) -> ErrorKind {
    match error.kind {
        BucketErrorKind::Absent => ErrorKind::NotFound,
        BucketErrorKind::Denied => ErrorKind::Denied,
        BucketErrorKind::Corrupt => ErrorKind::Corrupt,
        BucketErrorKind::Full | BucketErrorKind::TooLarge => ErrorKind::Limit,
        BucketErrorKind::Unsupported => ErrorKind::Invalid,
        _ => ErrorKind::Unreachable,
    }
}

pub(crate) fn policy(error: &PolicyError) -> ErrorKind {
    match error {
        PolicyError::Read { source, .. } => read(source),
        PolicyError::Setting(_) => ErrorKind::Invalid,
        PolicyError::Write { source, .. } => bucket(source),
        PolicyError::Contended { .. } => ErrorKind::Retry,
        _ => ErrorKind::Unknown,
    }
}

pub(crate) fn clone(error: &CloneError) -> ErrorKind {
    match error {
        CloneError::Walk(error) => walk(error),
        CloneError::Failed(failure) => failure_kind(failure),
        CloneError::CannotShare { .. } => ErrorKind::Limit,
        CloneError::Exists(_)
        | CloneError::SourceIsSymlink(_)
        | CloneError::SourceIsEverything
        | CloneError::Nameless(_)
        | CloneError::Overlap { .. } => ErrorKind::Invalid,
        _ => ErrorKind::Bug,
    }
}

pub(crate) fn check(error: &CheckError) -> ErrorKind {
    match error {
        CheckError::Walk(error) => walk(error),
        CheckError::Archive(error) => archive(error),
        CheckError::Failed(failure) => failure.kind(),
        CheckError::TooMany { .. } => ErrorKind::Limit,
        CheckError::Cancelled => ErrorKind::Cancelled,
        _ => ErrorKind::Bug,
    }
}

pub(crate) fn archive(error: &ArchiveError) -> ErrorKind {
    match error {
        ArchiveError::Walk(error) => walk(error),
        ArchiveError::Failed(failure) => failure_kind(failure),
        ArchiveError::Sink { source, .. } => io_kind(source),
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

pub(crate) fn walk(error: &WalkError) -> ErrorKind {
    match error {
        WalkError::Failed(failure) => failure_kind(failure),
        WalkError::TooDeep { .. } => ErrorKind::Limit,
        WalkError::Incomplete { reason, .. } => match reason {
            stasis_disk::tree::walk::WalkSkip::Unreadable => ErrorKind::Denied,
            _ => ErrorKind::Retry,
        },
        WalkError::Pattern { .. } => ErrorKind::Invalid,
        WalkError::Cancelled => ErrorKind::Cancelled,
        _ => ErrorKind::Bug,
    }
}

pub(crate) fn chunk(error: &ChunkError) -> ErrorKind {
    match error {
        ChunkError::Moving { source, .. } => match source.downcast_ref::<BucketError>() {
            Some(error) => bucket(error),
            None => source
                .downcast_ref::<io::Error>()
                .map_or(ErrorKind::Bug, io_kind),
        },
        ChunkError::Walk(error) => walk(error),
        ChunkError::Write(error) => tree_write(error),
        ChunkError::NoSuchEntry(_) => ErrorKind::NotFound,
        ChunkError::Tools(_) => ErrorKind::Bug,
        _ => ErrorKind::Corrupt,
    }
}

pub(crate) fn copy(error: &CopyError) -> ErrorKind {
    match error {
        CopyError::Bucket(error) => bucket(error),
        CopyError::Diverged(_) => ErrorKind::Diverged,
        _ => ErrorKind::Retry,
    }
}

pub(crate) fn change(error: &ChangeError) -> ErrorKind {
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

pub(crate) fn place(error: &PlaceError) -> ErrorKind {
    match error {
        PlaceError::Write(error) => tree_write(error),
        PlaceError::Failed(failure) => failure_kind(failure),
        PlaceError::CannotExchange { source, .. } => io_kind(source),
        PlaceError::HalfDone { .. } => ErrorKind::Retry,
        PlaceError::BadJournal(_) => ErrorKind::Corrupt,
        PlaceError::NothingKept(_) => ErrorKind::NotFound,
        PlaceError::NotOurs(_) => ErrorKind::Denied,
        PlaceError::Busy(_) | PlaceError::DatabaseOpen { .. } => ErrorKind::Conflict,
        PlaceError::Cancelled => ErrorKind::Cancelled,
        _ => ErrorKind::Invalid,
    }
}

/// A tree that could not be written: what is wrong with it is wrong where it came from.
pub(crate) fn tree_write(error: &TreeWriteError) -> ErrorKind {
    match error {
        TreeWriteError::Failed(failure) => failure_kind(failure),
        TreeWriteError::TooManyBytes(_)
        | TreeWriteError::TooManyEntries(_)
        | TreeWriteError::NoRoom { .. } => ErrorKind::Limit,
        TreeWriteError::Cancelled => ErrorKind::Cancelled,
        _ => ErrorKind::Corrupt,
    }
}

/// The failure's own kind; or a store's, where bytes of a store are read as if they were a file's.
pub(crate) fn failure_kind(failure: &Failure) -> ErrorKind {
    failure.io_source().map_or(failure.kind(), io_kind)
}

/// What the system said; or a store, where bytes of a store are read as if they were a file's.
pub(crate) fn io_kind(error: &io::Error) -> ErrorKind {
    let inner = error.get_ref();
    if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<BucketError>()) {
        return bucket(error);
    }
    Kinded::kind(error)
}
