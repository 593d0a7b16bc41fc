//! Every failure, folded into what the caller must do about it.

use crate::error::Error;
use stasis_disk::check::CheckError;
use stasis_disk::form::archive::ArchiveError;
use stasis_disk::form::chunked::ChunkError;
use stasis_disk::tree::clone::CloneError;
use stasis_disk::tree::restore::RestoreError as PlaceError;
use stasis_disk::tree::walk::WalkError;
use stasis_disk::tree::write::TreeWriteError;
use stasis_model::failure::{Failure, Kinded};
use stasis_store::bucket::BucketError;
use std::io;

pub use stasis_model::failure::ErrorKind;

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
            Some(error) => Kinded::kind(error),
            None => source
                .downcast_ref::<io::Error>()
                .map(io_kind)
                .or_else(|| source.downcast_ref::<Error>().map(Error::kind))
                .unwrap_or(ErrorKind::Bug),
        },
        ChunkError::Walk(error) => walk(error),
        ChunkError::Write(error) => tree_write(error),
        ChunkError::NoSuchEntry(_) => ErrorKind::NotFound,
        ChunkError::Tools(_) => ErrorKind::Bug,
        _ => ErrorKind::Corrupt,
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
        return Kinded::kind(error);
    }
    Kinded::kind(error)
}
