//! `proofs/…`: which snapshots of a subject were really restored, and when.

use crate::format::document::Document;
use crate::id::{Label, OpId};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What became of the last attempt to restore a snapshot into a scratch place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SnapshotProof {
    /// When that was.
    pub tried_at_ms: Timestamp,
    /// When it last came back whole; never, if this is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_at_ms: Option<Timestamp>,
    /// Why it did not come back at the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Whether the snapshot did not come back when somebody could last try it; who cannot, for want of a key, say, changes nothing of that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub broken: bool,
    /// The host that tried.
    pub host: Label,
}

/// The document `proofs/<where the subject lies>.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProofDocument {
    version: u64,
    /// The snapshots of the subject that there still are, as far as one was tried: by id, or by digest.
    pub snapshots: BTreeMap<String, SnapshotProof>,
    /// The operation that wrote these bytes.
    pub op_id: OpId,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Document for ProofDocument {
    const NAME: &'static str = "the proofs of a subject";
    /// A hundred thousand snapshots of one subject.
    const LIMIT: usize = 16 << 20;
}

impl ProofDocument {
    /// Of a subject of which nothing was tried.
    pub fn empty(op_id: OpId) -> Self {
        Self {
            version: Self::VERSION,
            snapshots: BTreeMap::new(),
            op_id,
            extra: Map::new(),
        }
    }

    /// When a snapshot of the subject was last tried.
    pub fn last_tried(&self) -> Option<Timestamp> {
        self.snapshots.values().map(|one| one.tried_at_ms).max()
    }

    /// The snapshot whose last attempt is the oldest: one that was never tried before all others, and among those the first.
    pub fn next<'all>(&self, all: &'all [String]) -> Option<&'all String> {
        let tried = |one: &&String| self.snapshots.get(*one).map(|proof| proof.tried_at_ms);
        all.iter().min_by_key(tried)
    }

    /// The same with one more attempt, and without snapshots that are gone.
    #[must_use = "the document is not changed in place"]
    pub fn with(&self, snapshot: &str, proof: SnapshotProof, all: &[String], op_id: OpId) -> Self {
        let mut next = self.clone();
        next.op_id = op_id;
        next.snapshots.retain(|one, _| all.contains(one));
        let before = self.snapshots.get(snapshot);
        let restored_at_ms = proof
            .restored_at_ms
            .or_else(|| before.and_then(|before| before.restored_at_ms));
        // Whoever could not try it has found out nothing better of one that did not come back.
        let found_out = proof.restored_at_ms.is_some() || proof.broken;
        let was_broken = before.is_some_and(|before| before.broken);
        let proof = SnapshotProof {
            broken: proof.broken || (was_broken && !found_out),
            restored_at_ms,
            ..proof
        };
        next.snapshots.insert(snapshot.to_owned(), proof);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(at: u64, problem: Option<&str>) -> SnapshotProof {
        let at = Timestamp::from_millis(at);
        SnapshotProof {
            tried_at_ms: at,
            restored_at_ms: problem.is_none().then_some(at),
            problem: problem.map(str::to_owned),
            broken: problem.is_some(),
            host: Label::nobody(),
        }
    }

    #[test]
    fn every_snapshot_has_its_turn_and_one_that_fails_keeps_when_it_came_back() {
        let all = ["active", "older", "oldest"].map(str::to_owned);
        let mut proofs = ProofDocument::empty(OpId::default());
        let mut turns = Vec::new();

        for at in 1..=4 {
            let next = proofs.next(&all).unwrap().clone();
            let problem = (at == 4).then_some("a chunk is gone");
            proofs = proofs.with(&next, tried(at, problem), &all, OpId::default());
            turns.push(next);
        }

        assert_eq!(turns, ["active", "older", "oldest", "active"]);
        let active = &proofs.snapshots["active"];
        assert_eq!(active.restored_at_ms, Some(Timestamp::from_millis(1)));
        assert_eq!(active.problem.as_deref(), Some("a chunk is gone"));
        assert_eq!(proofs.last_tried(), Some(Timestamp::from_millis(4)));
        let left = proofs.with("older", tried(5, None), &all[1..], OpId::default());
        assert_eq!(left.snapshots.len(), 2);
        let keyless = SnapshotProof {
            broken: false,
            ..tried(6, Some("this host has no key"))
        };
        let passed = proofs.with("active", keyless, &all, OpId::default());
        assert!(passed.snapshots["active"].broken);
        let mended = passed.with("active", tried(7, None), &all, OpId::default());
        assert!(!mended.snapshots["active"].broken);
    }
}
