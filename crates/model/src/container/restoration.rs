//! That a container was made of a snapshot: one small document for each time, written once.

use crate::format::document::Document;
use crate::id::OpId;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// A container that was made of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Restoration {
    version: u64,
    /// The restore.
    pub op_id: OpId,
    /// The container that came of it.
    pub container_id: String,
    /// What it was called then.
    pub container_name: String,
    /// When it was there.
    pub at_ms: Timestamp,
}

impl Document for Restoration {
    const NAME: &'static str = "restoration.json";
}

impl Restoration {
    /// The record of a restore.
    pub fn new(op_id: OpId, container_id: &str, container_name: &str, at_ms: Timestamp) -> Self {
        Self {
            version: Self::VERSION,
            op_id,
            container_id: container_id.to_owned(),
            container_name: container_name.to_owned(),
            at_ms,
        }
    }
}
