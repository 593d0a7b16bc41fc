//! What helps against damage: said once, for whoever checks a store, repairs a subject or lists all of them.

use crate::error::Error;
use schemars::JsonSchema;
use serde::Serialize;

/// What helps against something that is damaged or missing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Remedy {
    /// `repair` makes the document anew from what lies beside it.
    Repair,
    /// The document is an earlier one than this host has seen: `repair --accept-rollback` goes on from it, if that is meant.
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
}
