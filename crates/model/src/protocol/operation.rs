//! Operations whose outcome was unknown when they ended, and how it is settled later.
//!
//! 1. an operation ends as `Unsettled`: its id, what it was to do and the generations it may have written are recorded
//! 2. later both documents are read again
//! 3. the operation id among the recent writes means applied; a document that has moved past all those generations and does not
//!    name the id means not applied; anything else stays unknown
//!
//! *Always true:* a settled outcome never changes. What was not written by then cannot be written later, because its condition
//! names a version that is gone.

use crate::format::document::Document;
use crate::format::lease::Lock;
use crate::format::manifest::SnapshotIndex;
use crate::format::pointer::Pointer;
use crate::id::{Generation, Lineage, OpId};
use crate::protocol::settle::UnknownWrite;
use crate::protocol::step::Doc;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// What kind of operation it was, in the words of the command that started it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// Owning a lineage.
    Acquire,
    /// Prolonging a lease.
    Renew,
    /// Giving a lease back.
    Release,
    /// Freeing the lock of a dead holder.
    Reap,
    /// Publishing a snapshot.
    #[serde(rename = "flip")]
    Publish,
    /// Choosing an older snapshot.
    Rollback,
    /// Fencing the owner out.
    ForceUnlock,
    /// Marking a snapshot for removal.
    Delete,
    /// Protecting a snapshot, or ceasing to.
    Pin,
    /// Recording what a check of a snapshot found.
    Check,
    /// Dropping the marks of snapshots of which nothing is left.
    Forget,
}

/// The document `operations/<id>.json`: all that is needed to ask again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Unsettled {
    version: u64,
    /// Which operation.
    pub op_id: OpId,
    /// What it was to do.
    pub kind: OperationKind,
    /// To which lineage.
    pub lineage: Lineage,
    /// In which store; empty where the writer of the record did not know it.
    #[serde(default)]
    pub store: String,
    /// Whether the unknown write went to the lock; otherwise it went to the pointer.
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OperationFate {
    /// It took effect.
    Applied,
    /// It did not, and will not.
    NotApplied,
    /// It may have, or may yet.
    #[serde(rename = "still_unknown")]
    Unknown,
}

impl Unsettled {
    /// Records the unknown writes.
    pub fn new(
        op_id: OpId,
        kind: OperationKind,
        lineage: Lineage,
        unknown: UnknownWrite,
        at: Timestamp,
    ) -> Self {
        let on_lock = unknown.doc == Doc::Lock;
        let (generation, since) = (unknown.generation, unknown.since);
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
    pub fn settle(&self, lock: Option<&Lock>, pointer: Option<&Pointer>) -> OperationFate {
        if pointer.is_some_and(|pointer| pointer.remembers(self.op_id)) {
            return OperationFate::Applied;
        }
        if self.on_lock {
            self.settle_lock(lock)
        } else {
            self.settle_pointer(pointer)
        }
    }

    fn settle_pointer(&self, pointer: Option<&Pointer>) -> OperationFate {
        match pointer {
            Some(pointer)
                if pointer.generation >= self.generation && pointer.covers(self.since) =>
            {
                OperationFate::NotApplied
            }
            _ => OperationFate::Unknown,
        }
    }

    fn settle_lock(&self, lock: Option<&Lock>) -> OperationFate {
        match lock {
            // A lock that was taken without a fence in the pointer owns nothing, and no process will write that fence.
            _ if self.kind == OperationKind::Acquire => OperationFate::NotApplied,
            Some(lock) if lock.write_id == self.op_id => OperationFate::Applied,
            Some(lock) if lock.generation == self.generation && self.since == self.generation => {
                OperationFate::NotApplied
            }
            _ => OperationFate::Unknown,
        }
    }
}

/// What a change of a repository's index was to do, in the words of the command that started it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexOperation {
    /// Publishing a snapshot.
    Save,
    /// Forgetting snapshots.
    Forget,
    /// Forgetting snapshots that cannot be read any more.
    ForgetDamaged,
    /// Forgetting all snapshots of a name.
    #[serde(rename = "retire")]
    ForgetAll,
    /// Protecting a snapshot, or ceasing to.
    Pin,
    /// Collecting what nothing needs.
    Gc,
    /// Going on from an older snapshot.
    Restore,
    /// Giving a snapshot a label, or taking one away.
    Label,
}

/// Which writes of an index have an unknown outcome.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct UnknownIndexWrite {
    /// The highest generation that would have been written.
    pub generation: Generation,
    /// The lowest generation that would have been written.
    pub since: Generation,
}

impl UnknownIndexWrite {
    /// Judges by what the index says now: every write enters its `recent`, so that one which is not there, as far back as
    /// the unknown writes go, was not applied.
    pub fn settle(&self, op_id: OpId, index: Option<&SnapshotIndex>) -> OperationFate {
        match index {
            Some(index) if index.remembers(op_id) => OperationFate::Applied,
            Some(index) if index.generation >= self.generation && index.covers(self.since) => {
                OperationFate::NotApplied
            }
            _ => OperationFate::Unknown,
        }
    }
}

/// The document `operations/<id>.json` of a change of a repository's index.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UnsettledChange {
    version: u64,
    /// Which operation.
    pub op_id: OpId,
    /// What it was to do to the repository.
    pub change: IndexOperation,
    /// In which store.
    pub store: String,
    /// Where in it; empty for a repository at its root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub root: String,
    /// Which writes have an unknown outcome.
    #[serde(flatten)]
    pub unknown: UnknownIndexWrite,
    /// When it gave up.
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
}

impl UnsettledChange {
    /// Records the unknown writes.
    pub fn new(
        op_id: OpId,
        change: IndexOperation,
        unknown: UnknownIndexWrite,
        at: Timestamp,
    ) -> Self {
        Self {
            version: Unsettled::VERSION,
            op_id,
            change,
            store: String::new(),
            root: String::new(),
            unknown,
            at,
        }
    }
}

/// Whatever lies in `operations/<id>.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OperationRecord {
    /// Of a lineage.
    Lineage(Box<Unsettled>),
    /// Of a repository.
    Index(Box<UnsettledChange>),
}

impl Document for OperationRecord {
    const NAME: &'static str = Unsettled::NAME;
}

impl OperationRecord {
    /// Which operation.
    pub fn op_id(&self) -> OpId {
        match self {
            Self::Lineage(record) => record.op_id,
            Self::Index(record) => record.op_id,
        }
    }

    /// In which store; empty where the writer of the record did not know it.
    pub fn store(&self) -> &str {
        match self {
            Self::Lineage(record) => &record.store,
            Self::Index(record) => &record.store,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::document;

    fn op(number: u8) -> OpId {
        OpId::from_random([number; 16])
    }

    fn written(times: u8) -> SnapshotIndex {
        let tombstone_unpublished = |index: SnapshotIndex, number| {
            index.tombstone_unpublished(&[], Timestamp::default(), op(number))
        };
        (1..=times).fold(SnapshotIndex::empty(), tombstone_unpublished)
    }

    fn unknown(since: u64, generation: u64) -> UnknownIndexWrite {
        let [since, generation] = [since, generation].map(Generation);
        UnknownIndexWrite { generation, since }
    }

    #[test]
    fn a_change_is_settled_by_what_the_index_remembers() {
        let fate = |index: &SnapshotIndex, unknown: UnknownIndexWrite, number| {
            unknown.settle(op(number), Some(index))
        };

        assert_eq!(fate(&written(3), unknown(3, 3), 3), OperationFate::Applied);
        assert_eq!(
            fate(&written(3), unknown(3, 3), 99),
            OperationFate::NotApplied
        );
        assert_eq!(
            fate(&written(2), unknown(3, 3), 99),
            OperationFate::Unknown,
            "it may yet land"
        );
        assert_eq!(
            fate(&written(18), unknown(3, 3), 99),
            OperationFate::NotApplied
        );
        assert_eq!(
            fate(&written(19), unknown(3, 3), 99),
            OperationFate::Unknown,
            "the index has forgotten who wrote generation 3"
        );
        assert_eq!(
            fate(&written(19), unknown(3, 7), 99),
            OperationFate::Unknown
        );
        assert_eq!(unknown(1, 1).settle(op(1), None), OperationFate::Unknown);
    }

    #[test]
    fn records_of_both_kinds_are_told_apart() {
        let at = Timestamp::from_millis(7);
        let change = UnsettledChange::new(op(1), IndexOperation::Save, unknown(2, 3), at);
        let record = OperationRecord::Index(Box::new(change));
        let lineage = "acme/alice@131".parse().unwrap();
        let protocol_unknown = UnknownWrite {
            doc: Doc::Lock,
            generation: Generation(2),
            since: Generation(1),
        };
        let other = Unsettled::new(op(2), OperationKind::Publish, lineage, protocol_unknown, at);
        let other = OperationRecord::Lineage(Box::new(other));

        for record in [record, other] {
            let read: OperationRecord = document::parse(&document::render(&record)).unwrap();
            assert_eq!(read, record);
        }
    }
}
