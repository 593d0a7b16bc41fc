//! What a snapshot says of one volume of a project.

use crate::digest::TreeDigest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// How a volume is brought to a state that can be kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Consistency {
    /// Databases in files: each is copied within one read transaction.
    Sqlite,
    /// A database server: it is asked for a dump.
    Postgres,
    /// Anything else: the programs that write it are paused while it is cloned.
    Generic,
}

impl fmt::Display for Consistency {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Generic => "generic",
        })
    }
}

/// One volume in `metadata.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VolumeManifest {
    /// How it was held.
    pub consistency: Consistency,
    /// What it is kept as: `files`, or `pg_dump-custom`.
    pub format: String,
    /// The length of its files.
    pub size: u64,
    /// What its tree is, with paths beneath the volume.
    pub digest: TreeDigest,
    /// What was found when the copy was checked: `ok`, or `unchecked` where there is nothing to check.
    pub integrity: String,
    /// More that is worth knowing, by the way it was held: versions, databases, how long it stood still.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
}
