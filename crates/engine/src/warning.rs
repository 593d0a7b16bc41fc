//! What went less well than it should have, as data in the result.

use serde::Serialize;
use std::fmt;

/// Something the caller should know although the operation was applied.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "code", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Warning {
    /// Our clock and the store's differ by more than half a minute; the store's was used.
    ClockSkew {
        /// The store's clock minus ours.
        offset_ms: i64,
    },
    /// The act was applied, but the events log does not show it.
    EventNotRecorded {
        /// Why.
        reason: String,
    },
    /// The act was applied and every writer is fenced, but the lock still names its old holder until it expires.
    LockNotTold,
    /// The store is this process's memory: nobody else sees it, and it ends with us.
    Ephemeral,
    /// Somebody owned the lineage and was thrown out.
    HolderEvicted {
        /// The run that lost it.
        holder_run_id: String,
    },
    /// The lock had expired; its former holder will find that out.
    TookOver {
        /// The run that lost it.
        holder_run_id: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClockSkew { offset_ms } => {
                write!(
                    out,
                    "this host's clock differs from the store's by {offset_ms} ms; the store's was used"
                )
            }
            Self::EventNotRecorded { reason } => {
                write!(out, "the event could not be recorded: {reason}")
            }
            Self::Ephemeral => {
                out.write_str("the store `memory:` ends with this command; nobody else sees it")
            }
            Self::LockNotTold => out.write_str(
                "every writer is fenced, but lock.json still names its old holder until it expires",
            ),
            Self::HolderEvicted { holder_run_id } => {
                write!(
                    out,
                    "run `{holder_run_id}` owned the lineage and was thrown out; it cannot publish any more"
                )
            }
            Self::TookOver { holder_run_id } => {
                write!(
                    out,
                    "the lock had expired and was taken over from run `{holder_run_id}`"
                )
            }
        }
    }
}

/// Half a minute: more than this is worth a warning.
const SKEW_LIMIT_MS: u64 = 30_000;

/// The warning that an offset deserves, if it deserves one.
pub fn skew(offset_ms: Option<i64>) -> Option<Warning> {
    let offset_ms = offset_ms.filter(|offset| offset.unsigned_abs() > SKEW_LIMIT_MS)?;
    Some(Warning::ClockSkew { offset_ms })
}
