//! What helps against damage: said once, for whoever checks a store, repairs a subject or lists all of them.

use crate::error::{EncryptionError, Error};
use crate::handle::DirRepo;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::id::SnapshotId;
use stasis_store::documents::roots::Root;

/// What helps against something that is damaged or missing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Remedy {
    /// `repair` makes the document anew from what lies beside it.
    Repair,
    /// The document is an earlier one than this host has seen, or a key is gone beside which nothing is encrypted: `repair
    /// --accept-rollback` goes on from what is there, if that is meant.
    AcceptRollback,
    /// A save from where the bytes still are stores them again.
    SaveAgain,
    /// It is proven that the snapshots cannot be read: `repo forget --damaged` lets go of what no copy of the store has.
    Forget,
    /// Nothing that is left in the store tells what it was: only a copy of the store has it.
    Copy,
    /// A data key lies beside what is plain: it encrypts nothing and may go, unless something was encrypted here once.
    StrayKey,
    /// Another build of Stasis wrote it, and may read it.
    OtherBuild,
}

impl Remedy {
    /// What helps against an index, a pointer, or a document of a pool that cannot be used. `repair` decides by the same
    /// distinction: it makes nothing anew that another build wrote, nor what a key is about.
    pub(crate) fn for_document(error: &Error) -> Self {
        match error {
            Error::Encryption(_) => Self::Copy,
            Error::UnfitRepo(_) => Self::OtherBuild,
            Error::Read(error) if error.is_of_another_build() => Self::OtherBuild,
            _ => Self::Repair,
        }
    }

    /// What helps against an index that went back beside which these snapshots lie: whoever goes on from it loses them.
    pub(crate) fn for_rollback(newer: &[SnapshotId]) -> Self {
        if newer.is_empty() {
            Self::AcceptRollback
        } else {
            Self::Repair
        }
    }
}

impl DirRepo<'_> {
    /// What helps against a key that does not fit its pool. Where nothing is encrypted, it is the key that is too much.
    pub(crate) async fn remedy_for_key(
        self,
        root: &Root,
        error: &EncryptionError,
    ) -> Result<Remedy, Error> {
        let remedy = match error {
            EncryptionError::Downgraded(_) | EncryptionError::Mixed { opens: None, .. } => {
                Remedy::StrayKey
            }
            EncryptionError::KeyVanished(_) => match root.repo().await? {
                Some(repo) if !repo.is_encrypted() => Remedy::AcceptRollback,
                _ => return Ok(Remedy::Copy),
            },
            _ => return Ok(Remedy::Copy),
        };
        let found = self.evidence(root, None, |found| found.is_encrypted);
        Ok(if found.await?.is_encrypted {
            Remedy::Copy
        } else {
            remedy
        })
    }
}
