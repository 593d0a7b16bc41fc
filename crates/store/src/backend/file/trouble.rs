//! What can go wrong in a directory, and what the caller of a bucket can do about it.

use crate::bucket::{BucketError, BucketErrorKind};
use rustix::io::Errno;
use std::fmt::Display;
use std::io;

/// Why a file operation failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileTrouble {
    #[error("the system says: {0}")]
    Io(#[from] io::Error),
    #[error("`{0}` is a symbolic link, and links are never followed")]
    Symlink(String),
    #[error("`{0}` is neither a file nor a directory")]
    Special(String),
    #[error("directories are nested deeper than any store of ours")]
    TooDeep,
    #[error("the store's directory was removed")]
    RootGone,
    #[error("`{0}` does not exist")]
    NoStore(String),
    #[error("the object has {0} bytes")]
    TooLarge(u64),
    #[error("names beneath `.stasis` are not objects")]
    Reserved,
    #[error("another process has held the lock `{0}` for too long")]
    LockHeld(String),
    #[error("the filesystem does not tell upper case from lower case")]
    CaseInsensitive,
    #[error("the writer went away before the last byte")]
    Abandoned,
    #[error("`{key}` was written, could not be made durable, and could not be written anew")]
    NotDurable {
        key: String,
        #[source]
        cause: Box<FileTrouble>,
    },
}

impl FileTrouble {
    fn kind(&self) -> BucketErrorKind {
        match self {
            Self::Io(source) => kind_of(source),
            Self::Symlink(_) | Self::Special(_) | Self::TooDeep => BucketErrorKind::Corrupt,
            Self::RootGone | Self::NoStore(_) => BucketErrorKind::Absent,
            Self::TooLarge(_) => BucketErrorKind::TooLarge,
            Self::Reserved | Self::CaseInsensitive => BucketErrorKind::Unsupported,
            Self::NotDurable { cause, .. } => cause.kind(),
            Self::LockHeld(_) | Self::Abandoned => BucketErrorKind::Unreachable,
        }
    }

    /// Whether there is no room.
    pub(super) fn is_full(&self) -> bool {
        self.kind() == BucketErrorKind::Full
    }

    /// The error a caller sees: what we were doing, to what, and this as the reason.
    pub(super) fn while_(self, doing: &'static str, what: impl Display) -> BucketError {
        BucketError::new(self.kind(), doing, what).because(self)
    }
}

impl From<Errno> for FileTrouble {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

fn kind_of(source: &io::Error) -> BucketErrorKind {
    match Errno::from_io_error(source) {
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => BucketErrorKind::Denied,
        Some(Errno::NOSPC | Errno::DQUOT) => BucketErrorKind::Full,
        // The key cannot be a path here: too long, or beneath another object.
        Some(Errno::NAMETOOLONG | Errno::NOTDIR | Errno::ISDIR | Errno::XDEV | Errno::INVAL) => {
            BucketErrorKind::Unsupported
        }
        _ => BucketErrorKind::Unreachable,
    }
}
