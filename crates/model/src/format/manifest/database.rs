//! What a snapshot says of a SQLite database in its tree.

use crate::digest::FileDigest;
use serde::{Deserialize, Serialize};

/// How a database is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StoredAs {
    /// As one committed state that passed `integrity_check`.
    Consistent,
    /// As its files were while they were read, because it could not be copied; in a checkpoint, as they were at one moment.
    CrashConsistent,
    /// As its files were at different moments: SQLite may find it damaged. Only checkpoints say that.
    Torn,
}

crate::display_as_serialized!(StoredAs);

/// A database in the tree of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseManifest {
    /// How it is stored.
    pub state: StoredAs,
    /// How long it is.
    pub size: u64,
    /// What it is.
    pub digest: FileDigest,
}
