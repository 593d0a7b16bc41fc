//! What can go wrong with keys, and with what they encrypt.

use crate::error_kind::{self, ErrorKind};
use stasis_disk::crypt::KeyError;
use stasis_model::failure::Failure;
use stasis_model::format::key::{KeyId, KeyOwner};
use stasis_model::id::{OpId, TenantId};

/// Why something encrypted was not opened, or nothing was encrypted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncryptionError {
    /// It is encrypted, and nobody gave a key.
    #[error("`{owner}` is encrypted, and no key was given{}", named(.key_id.as_ref()))]
    KeyNeeded {
        /// What is encrypted.
        owner: KeyOwner,
        /// Which tenant key is needed, where that is known.
        key_id: Option<KeyId>,
    },
    /// A key was given, but nothing is encrypted.
    #[error("`{0}` has snapshots that are not encrypted, and a key was given")]
    Plain(KeyOwner),
    /// Everything is encrypted but what was met.
    #[error("`{0}` is encrypted, but this snapshot of it is not: somebody may have replaced it")]
    PlainInEncrypted(KeyOwner),
    /// Nothing is encrypted but what was met.
    #[error(
        "`{0}` is not encrypted, but this snapshot of it is: `repo.json` or the snapshot may have been replaced"
    )]
    EncryptedInPlain(KeyOwner),
    /// A pool with a key has something in it that is not of that key.
    #[error(
        "`{owner}` has a data key{}, and {other}: what it was cannot be told",
        opening(.opens.as_deref())
    )]
    Mixed {
        /// The pool.
        owner: KeyOwner,
        /// Something that the key opens, if anything.
        opens: Option<String>,
        /// Something that is not of it.
        other: NotOfKey,
    },
    /// A pool says that it is plain, and has a key.
    #[error(
        "`repo.json` of `{0}` says that nothing is encrypted there, though it has a data key: somebody may have replaced it"
    )]
    Downgraded(KeyOwner),
    /// The wrapped key is gone.
    #[error("the wrapped data key of `{0}` is not there: its snapshots cannot be opened")]
    NoKey(KeyOwner),
    /// This host saw a wrapped key that is gone.
    #[error(
        "this host has seen the data key of `{0}`, and the store does not have it any more: it may have been encrypted, and what is there now may be somebody else's"
    )]
    KeyVanished(KeyOwner),
    /// The wrapped key is that of another pool, or the pool's own document is.
    #[error(
        "`key.json` and `repo.json` of `{0}` do not belong together: somebody may have replaced one of them"
    )]
    OtherKey(KeyOwner),
    /// Nothing says which key belongs here, and the one that lies here opens nothing.
    #[error(
        "`key.json` of `{0}` opens nothing that is stored there, and `repo.json` cannot be read: somebody may have replaced the key"
    )]
    OpensNothing(KeyOwner),
    /// It is not known which key wraps the data key.
    #[error(
        "it is unknown whether the data key of `{owner}` is wrapped by the new key (operation {op_id})"
    )]
    RekeyUnknown {
        /// Of what.
        owner: KeyOwner,
        /// Which operation.
        op_id: OpId,
    },
    /// The tenant's policy wants everything encrypted.
    #[error("the policy of tenant `{tenant}` requires encryption, and {what}")]
    Required {
        /// Whose policy.
        tenant: TenantId,
        /// What is not encrypted.
        what: String,
    },
    /// The tenant's key could not be read.
    #[error(transparent)]
    Unread(Failure),
    /// The key does not fit.
    #[error(transparent)]
    Key(KeyError),
}

/// Something in a pool that is not of its key, by where it lies.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotOfKey {
    /// It is not encrypted.
    #[error("`{0}` is not encrypted")]
    Plain(String),
    /// It is encrypted with another key.
    #[error("`{0}` does not open with it")]
    Closed(String),
}

fn opening(opens: Option<&str>) -> String {
    opens
        .map(|opens| format!(" that opens `{opens}`"))
        .unwrap_or_default()
}

fn named(key: Option<&KeyId>) -> String {
    key.map(|key| format!("; it needs key {key}"))
        .unwrap_or_default()
}

impl EncryptionError {
    /// Whether it is about one snapshot, and not about all of its pool.
    pub(crate) fn is_of_one_snapshot(&self) -> bool {
        matches!(self, Self::PlainInEncrypted(_) | Self::EncryptedInPlain(_))
    }

    /// What the caller must do.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::KeyNeeded { .. } | Self::Plain(_) | Self::Key(KeyError::WrongKey { .. }) => {
                ErrorKind::Denied
            }
            Self::Key(KeyError::NoKey | KeyError::Unread(_)) => ErrorKind::Invalid,
            Self::Unread(failure) => match error_kind::failure_kind(failure) {
                // "Not found" is said of snapshots: without its key file nobody knows whether there is one.
                ErrorKind::NotFound => ErrorKind::Invalid,
                kind => kind,
            },
            Self::RekeyUnknown { .. } => ErrorKind::Unknown,
            Self::Required { .. } => ErrorKind::Limit,
            Self::PlainInEncrypted(_)
            | Self::EncryptedInPlain(_)
            | Self::Mixed { .. }
            | Self::Downgraded(_)
            | Self::NoKey(_)
            | Self::KeyVanished(_)
            | Self::OtherKey(_)
            | Self::OpensNothing(_)
            | Self::Key(_) => ErrorKind::Corrupt,
        }
    }
}
