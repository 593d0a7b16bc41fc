//! Operations whose outcome was unknown when they ended, and how the truth is found later.

use crate::document::Document;
use crate::id::{Generation, Lineage, OpId};
use crate::lease::Lock;
use crate::pointer::Pointer;
use crate::protocol::Doubt;
use crate::step::Doc;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// What kind of operation it was, in the words of the command that started it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Owning a lineage.
    Acquire,
    /// Prolonging a lease.
    Renew,
    /// Giving a lease back.
    Release,
    /// Freeing the lock of a dead holder.
    Reap,
    /// Publishing a snapshot.
    Flip,
    /// Choosing an older snapshot.
    Rollback,
    /// Throwing the owner out.
    ForceUnlock,
    /// Marking a snapshot for removal.
    Delete,
    /// Protecting a snapshot, or ceasing to.
    Pin,
    /// Dropping the marks of snapshots of which nothing is left.
    Forget,
}

/// The document `operations/<id>.json`: all that is needed to ask again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unsettled {
    version: u64,
    /// Which operation.
    pub op_id: OpId,
    /// What it was to do.
    pub kind: Kind,
    /// To which lineage.
    pub lineage: Lineage,
    /// In which store; empty when the one who recorded it did not know.
    #[serde(default)]
    pub store: String,
    /// Whether the lock is the document in doubt; otherwise the pointer is.
    pub on_lock: bool,
    /// The highest generation it would have written.
    pub generation: Generation,
    /// The lowest generation it would have written.
    pub since: Generation,
    /// When it gave up.
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
}

impl Document for Unsettled {
    const NAME: &'static str = "the operation's record";
}

/// What became of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It took effect.
    Applied,
    /// It did not, and will not.
    NotApplied,
    /// It may have, or may yet.
    StillUnknown,
}

impl Unsettled {
    /// Records what is in doubt.
    pub fn new(op_id: OpId, kind: Kind, lineage: Lineage, doubt: Doubt, at: Timestamp) -> Self {
        let on_lock = doubt.doc == Doc::Lock;
        let (generation, since) = (doubt.generation, doubt.since);
        Self {
            version: Self::VERSION,
            op_id,
            kind,
            lineage,
            store: String::new(),
            on_lock,
            generation,
            since,
            at,
        }
    }

    /// Judges by what the two documents say now.
    pub fn settle(&self, lock: Option<&Lock>, pointer: Option<&Pointer>) -> Fate {
        if pointer.is_some_and(|pointer| pointer.remembers(self.op_id)) {
            return Fate::Applied;
        }
        if self.on_lock {
            self.settle_lock(lock)
        } else {
            self.settle_pointer(pointer)
        }
    }

    fn settle_pointer(&self, pointer: Option<&Pointer>) -> Fate {
        match pointer {
            Some(pointer)
                if pointer.generation >= self.generation && pointer.covers(self.since) =>
            {
                Fate::NotApplied
            }
            _ => Fate::StillUnknown,
        }
    }

    fn settle_lock(&self, lock: Option<&Lock>) -> Fate {
        match lock {
            // A lock that was taken without a fence in the pointer owns nothing, and nobody will write that fence.
            _ if self.kind == Kind::Acquire => Fate::NotApplied,
            Some(lock) if lock.write_id == self.op_id => Fate::Applied,
            Some(lock) if lock.generation == self.generation && self.since == self.generation => {
                Fate::NotApplied
            }
            _ => Fate::StillUnknown,
        }
    }
}
