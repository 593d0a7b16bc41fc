//! Operations whose outcome was unknown when they ended, and how the truth is found later.

use crate::format::document::Document;
use crate::format::lease::Lock;
use crate::format::manifest::Index;
use crate::format::pointer::Pointer;
use crate::id::{Generation, Lineage, OpId};
use crate::protocol::settle::Doubt;
use crate::protocol::step::Doc;
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
    /// Recording what a check of a snapshot found.
    Check,
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

/// What a change of a repository's index was to do, in the words of the command that started it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Publishing a snapshot.
    Save,
    /// Forgetting snapshots.
    Forget,
    /// Forgetting snapshots that cannot be read any more.
    ForgetDamaged,
    /// Letting all snapshots of a name go.
    Retire,
    /// Protecting a snapshot, or ceasing to.
    Pin,
    /// Collecting what nothing needs.
    Gc,
    /// Going on from an older snapshot.
    Restore,
    /// Giving a snapshot a label, or taking one away.
    Label,
}

/// Which writes of an index had no clear answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct IndexDoubt {
    /// The highest generation that would have been written.
    pub generation: Generation,
    /// The lowest generation that would have been written.
    pub since: Generation,
}

impl IndexDoubt {
    /// Judges by what the index says now: every write enters its `recent`, so that one which is not there, as far back as
    /// the doubt goes, was not applied.
    pub fn settle(&self, op_id: OpId, index: Option<&Index>) -> Fate {
        match index {
            Some(index) if index.remembers(op_id) => Fate::Applied,
            Some(index) if index.generation >= self.generation && index.covers(self.since) => {
                Fate::NotApplied
            }
            _ => Fate::StillUnknown,
        }
    }
}

/// The document `operations/<id>.json` of a change of a repository's index.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnsettledChange {
    version: u64,
    /// Which operation.
    pub op_id: OpId,
    /// What it was to do to the repository.
    pub change: Change,
    /// In which store.
    pub store: String,
    /// Where in it; empty for a repository at its root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub root: String,
    /// Which writes are in doubt.
    #[serde(flatten)]
    pub doubt: IndexDoubt,
    /// When it gave up.
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
}

impl UnsettledChange {
    /// Records what is in doubt.
    pub fn new(op_id: OpId, change: Change, doubt: IndexDoubt, at: Timestamp) -> Self {
        Self {
            version: Unsettled::VERSION,
            op_id,
            change,
            store: String::new(),
            root: String::new(),
            doubt,
            at,
        }
    }
}

/// Whatever lies in `operations/<id>.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Record {
    /// Of a lineage.
    Lineage(Box<Unsettled>),
    /// Of a repository.
    Index(Box<UnsettledChange>),
}

impl Document for Record {
    const NAME: &'static str = Unsettled::NAME;
}

impl Record {
    /// Which operation.
    pub fn op_id(&self) -> OpId {
        match self {
            Self::Lineage(record) => record.op_id,
            Self::Index(record) => record.op_id,
        }
    }

    /// In which store; empty when the one who recorded it did not know.
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

    fn written(times: u8) -> Index {
        let bury = |index: Index, number| index.bury(&[], Timestamp::default(), op(number));
        (1..=times).fold(Index::empty(), bury)
    }

    fn doubt(since: u64, generation: u64) -> IndexDoubt {
        let [since, generation] = [since, generation].map(Generation);
        IndexDoubt { generation, since }
    }

    #[test]
    fn a_change_is_settled_by_what_the_index_remembers() {
        let fate = |index: &Index, doubt: IndexDoubt, number| doubt.settle(op(number), Some(index));

        assert_eq!(fate(&written(3), doubt(3, 3), 3), Fate::Applied);
        assert_eq!(fate(&written(3), doubt(3, 3), 99), Fate::NotApplied);
        assert_eq!(
            fate(&written(2), doubt(3, 3), 99),
            Fate::StillUnknown,
            "it may yet land"
        );
        assert_eq!(fate(&written(18), doubt(3, 3), 99), Fate::NotApplied);
        assert_eq!(
            fate(&written(19), doubt(3, 3), 99),
            Fate::StillUnknown,
            "the index has forgotten who wrote generation 3"
        );
        assert_eq!(fate(&written(19), doubt(3, 7), 99), Fate::StillUnknown);
        assert_eq!(doubt(1, 1).settle(op(1), None), Fate::StillUnknown);
    }

    #[test]
    fn records_of_both_kinds_are_told_apart() {
        let at = Timestamp::from_millis(7);
        let change = UnsettledChange::new(op(1), Change::Save, doubt(2, 3), at);
        let record = Record::Index(Box::new(change));
        let lineage = "acme/alice@131".parse().unwrap();
        let protocol_doubt = Doubt {
            doc: Doc::Lock,
            generation: Generation(2),
            since: Generation(1),
        };
        let other = Unsettled::new(op(2), Kind::Flip, lineage, protocol_doubt, at);
        let other = Record::Lineage(Box::new(other));

        for record in [record, other] {
            let read: Record = document::parse(&document::render(&record)).unwrap();
            assert_eq!(read, record);
        }
    }
}
