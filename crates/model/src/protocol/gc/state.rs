//! `gc.json`: how far the gc of one `chunks/` has come.
//!
//! The condemned names stand in the document itself, not behind a reference: then one conditional write says everything,
//! and there is no second object to be late or lost. A round condemns at most [`CONDEMNED_LIMIT`]; more garbage takes
//! more rounds, whose cost (two swaps and two looks at the manifests) is small beside that many deletions.

use super::{ChunkName, GcEpoch, Names};
use crate::format::document::Document;
use crate::id::{Generation, OpId};
use crate::invalid::Invalid;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How many names are condemned at a time, so that the document stays below its size limit.
pub const CONDEMNED_LIMIT: usize = 2_000;

/// The document `gc.json`; where there is none, [`GcState::empty`] holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "GcWire", into = "GcWire")]
pub struct GcState {
    /// How many rounds were finished.
    pub epoch: GcEpoch,
    /// The operation that wrote these bytes.
    pub op_id: OpId,
    /// Counts the writes.
    pub generation: Generation,
    condemned: Names,
    extra: Map<String, Value>,
}

impl Document for GcState {
    const NAME: &'static str = "gc.json";
}

impl GcState {
    /// What holds before the first round.
    pub fn empty() -> Self {
        Self {
            epoch: GcEpoch::FIRST,
            op_id: OpId::default(),
            generation: Generation::default(),
            condemned: Names::new(),
            extra: Map::new(),
        }
    }

    /// The names that a round of this epoch may be deleting; empty while none is under way.
    pub fn condemned(&self) -> &Names {
        &self.condemned
    }

    /// Whether the name is on the list.
    pub fn condemns(&self, name: &ChunkName) -> bool {
        self.condemned.contains(name)
    }

    /// Whether a round is under way, or died.
    pub fn is_collecting(&self) -> bool {
        !self.condemned.is_empty()
    }

    /// The same document one write later, with a list chosen by [`mark`](super::mark).
    #[must_use = "the document is not changed in place"]
    pub fn condemn(&self, op_id: OpId, names: Names) -> Self {
        Self {
            condemned: names,
            ..self.successor(op_id)
        }
    }

    /// The same document one write later, with the round finished.
    #[must_use = "the document is not changed in place"]
    pub fn finish(&self, op_id: OpId) -> Self {
        Self {
            epoch: self.epoch.next(),
            condemned: Names::new(),
            ..self.successor(op_id)
        }
    }

    fn successor(&self, op_id: OpId) -> Self {
        Self {
            epoch: self.epoch,
            op_id,
            generation: self.generation.next(),
            condemned: Names::new(),
            extra: self.extra.clone(),
        }
    }
}

/// The document as it is written.
#[derive(Clone, Serialize, Deserialize)]
struct GcWire {
    version: u64,
    epoch: GcEpoch,
    condemned: Vec<ChunkName>,
    op_id: OpId,
    generation: Generation,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl TryFrom<GcWire> for GcState {
    type Error = Invalid;
    fn try_from(wire: GcWire) -> Result<Self, Invalid> {
        let found = wire.condemned.len();
        if found > CONDEMNED_LIMIT {
            // No round condemns that many.
            let why = format!("it condemns {found} names; at most {CONDEMNED_LIMIT} are allowed");
            return Err(Invalid::new(why));
        }
        if !wire.condemned.is_sorted_by(|a, b| a < b) {
            // Bytes that two builds would write differently are refused.
            let why = "its condemned names are not sorted, or one is there twice";
            return Err(Invalid::new(why.to_owned()));
        }
        let epoch = wire.epoch;
        if let Some(&name) = wire.condemned.iter().find(|name| name.born() > epoch) {
            // A list holds only what was listed before it was written.
            let why = format!("it condemns `{name}`, which is born after its epoch {epoch}");
            return Err(Invalid::new(why));
        }
        Ok(Self {
            epoch,
            op_id: wire.op_id,
            generation: wire.generation,
            condemned: wire.condemned.into_iter().collect(),
            extra: wire.extra,
        })
    }
}

impl From<GcState> for GcWire {
    fn from(gc: GcState) -> Self {
        Self {
            version: GcState::VERSION,
            epoch: gc.epoch,
            condemned: gc.condemned.into_iter().collect(),
            op_id: gc.op_id,
            generation: gc.generation,
            extra: gc.extra,
        }
    }
}
