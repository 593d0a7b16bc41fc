//! `gc.json`: how far the gc of one `chunks/` has come.
//!
//! The condemned names lie beside it, in a list that is named for its epoch and its digest: the document says which list is in, so
//! that one conditional write says everything. A list is put before the document that names it, and removed only when its epoch is
//! over, so that its name is never used again. A round condemns at most [`CONDEMNED_LIMIT`]; more garbage takes more rounds,
//! each of which looks at all manifests twice.

use super::{ChunkName, GcEpoch, Names};
use crate::chunk_name::{NAME_ROW, from_rows, to_rows};
use crate::digest::CondemnedDigest;
use crate::format::document::Document;
use crate::id::{Generation, OpId};
use crate::invalid::Invalid;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How many names are condemned at a time.
pub const CONDEMNED_LIMIT: usize = 200_000;
/// No list is longer.
pub const CONDEMNED_BYTES: usize = CONDEMNED_LIMIT * NAME_ROW;

/// The document `gc.json`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GcDocument {
    version: u64,
    /// How many rounds were finished.
    pub epoch: GcEpoch,
    /// Which list is in; none while no round is under way.
    #[serde(default)]
    pub condemned_sha256: Option<CondemnedDigest>,
    /// The operation that wrote these bytes.
    pub op_id: OpId,
    /// Counts the writes.
    pub generation: Generation,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Document for GcDocument {
    const NAME: &'static str = "gc.json";
}

/// What `gc.json` says, with the names that it condemns; where there is none, [`GcState::empty`] holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
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

    /// What holds where the document is lost, and no chunk was born after `newest`.
    ///
    /// Its epoch is far ahead of the lost one, whatever that was: a save that knew the lost one finds that epochs went by, and asks
    /// donors for every name; a round that knew it loses its swap, and had found what it deletes unnamed.
    #[must_use = "a rebuilt document is not in place yet"]
    pub fn rebuilt(newest: GcEpoch, now: Timestamp, op_id: OpId) -> Self {
        let minutes = u32::try_from(now.millis() / 60_000).unwrap_or(u32::MAX);
        let number = newest.number().saturating_add(1 << 20).max(minutes);
        Self {
            epoch: GcEpoch::from_number(number),
            op_id,
            generation: Generation::far_ahead(now),
            ..Self::empty()
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

impl GcState {
    /// What a document and the list that it names say.
    pub fn read(document: GcDocument, list: &[u8]) -> Result<Self, Invalid> {
        let found = list.len() / NAME_ROW;
        if found > CONDEMNED_LIMIT {
            // No round condemns that many.
            let why = format!("it condemns {found} names; at most {CONDEMNED_LIMIT} are allowed");
            return Err(Invalid::new(why));
        }
        let names = from_rows(list)?;
        let epoch = document.epoch;
        if let Some(&name) = names.iter().find(|name| name.born() > epoch) {
            // A list holds only what was listed before it was written.
            let why = format!("it condemns `{name}`, which is born after its epoch {epoch}");
            return Err(Invalid::new(why));
        }
        Ok(Self {
            epoch,
            op_id: document.op_id,
            generation: document.generation,
            condemned: names.into_iter().collect(),
            extra: document.extra,
        })
    }

    /// The list of condemned names as it is stored; empty while nothing is condemned.
    pub fn list(&self) -> Vec<u8> {
        to_rows(&self.condemned)
    }

    /// The document that says this, once its list is stored.
    pub fn document(&self) -> GcDocument {
        let list = self.is_collecting().then(|| self.list());
        GcDocument {
            version: GcDocument::VERSION,
            epoch: self.epoch,
            condemned_sha256: list.map(|list| CondemnedDigest::of(&list)),
            op_id: self.op_id,
            generation: self.generation,
            extra: self.extra.clone(),
        }
    }
}
