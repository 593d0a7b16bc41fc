//! What a long save puts before it is over, so that gc leaves what it has stored.
//!
//! *Always true:* it names chunks and nothing else, in plain pools and in encrypted ones; no index ever leads to it. It counts
//! like every manifest that is not published: as long as its lease is not behind the fence (ADR 55, ADR 69).

use super::encrypted::ManifestReferences;
use crate::chunk_name::ChunkName;
use crate::format::document::Document;
use crate::id::{Epoch, Incarnation, OpId, SnapshotId};
use crate::invalid::Invalid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The feature that tells such a document from a snapshot's.
pub(super) const PROVISIONAL: &str = "provisional";

/// One document names so many chunks at most; further ones stand in the next.
pub const PROVISIONAL_NAMES: usize = 1 << 16;

/// What a save has stored since the last such document of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionalManifest {
    version: u64,
    /// Features without which it cannot be understood: `provisional`, and an unknown one means "refuse".
    pub incompat: Vec<String>,
    /// An id of its own, never that of a snapshot.
    pub snapshot_id: SnapshotId,
    /// The life of its subject in which it was put.
    pub incarnation: Incarnation,
    /// The fence's epoch as the save found it.
    pub lease_epoch: Epoch,
    /// The write of this document.
    pub op_id: OpId,
    references: ManifestReferences,
}

impl Document for ProvisionalManifest {
    const NAME: &'static str = "metadata.json";
    const LIMIT: usize = 4 << 20;
}

impl ProvisionalManifest {
    /// What a save has stored under these names, [`PROVISIONAL_NAMES`] at most.
    pub fn new(
        snapshot_id: SnapshotId,
        op_id: OpId,
        incarnation: Incarnation,
        lease_epoch: Epoch,
        names: &BTreeSet<ChunkName>,
    ) -> Self {
        Self {
            version: Self::VERSION,
            incompat: vec![PROVISIONAL.to_owned()],
            snapshot_id,
            incarnation,
            lease_epoch,
            op_id,
            references: ManifestReferences::within(names),
        }
    }

    /// Refuses what only a later build understands.
    pub fn check(&self) -> Result<(), Invalid> {
        match self.incompat.iter().find(|one| *one != PROVISIONAL) {
            None => Ok(()),
            Some(feature) => Err(Invalid::new(format!(
                "what a save has stored so far needs `{feature}`, which this build does not know"
            ))),
        }
    }

    /// The chunks that it keeps.
    pub fn names(&self) -> Result<Vec<ChunkName>, Invalid> {
        self.check()?;
        self.references.inline()
    }
}

#[cfg(test)]
mod tests {
    use super::super::StoredManifest;
    use super::*;
    use crate::chunk_name::GcEpoch;
    use crate::digest::ChunkDigest;
    use crate::format::document;
    use crate::format::manifest::{EncryptedManifest, SnapshotManifest};

    fn provisional(count: usize) -> (BTreeSet<ChunkName>, StoredManifest) {
        let name = |number: usize| {
            let digest = ChunkDigest::of(&number.to_le_bytes());
            ChunkName::new(digest, GcEpoch::from_number(3))
        };
        let names = (0..count).map(name).collect();
        let op_id = OpId::from_random([7; 16]);
        let (id, life) = ("one".parse().unwrap(), Incarnation::default());
        let document = ProvisionalManifest::new(id, op_id, life, Epoch(4), &names);
        (names, StoredManifest::Provisional(Box::new(document)))
    }

    #[test]
    fn it_comes_back_as_what_it_is_and_is_never_a_snapshot() {
        let (names, stored) = provisional(100);

        let bytes = stored.render();

        let StoredManifest::Provisional(read) = StoredManifest::parse(&bytes).unwrap() else {
            panic!("it is provisional");
        };
        assert_eq!(read.names().unwrap(), names.into_iter().collect::<Vec<_>>());
        assert_eq!(read.lease_epoch, Epoch(4));
        assert!(document::parse::<SnapshotManifest>(&bytes).is_err());
        assert!(document::parse::<EncryptedManifest>(&bytes).is_err());
    }

    #[test]
    fn the_longest_can_be_read_and_one_name_takes_48_bytes() {
        let (_, longest) = provisional(PROVISIONAL_NAMES);

        let bytes = longest.render().len();

        assert!(bytes < ProvisionalManifest::LIMIT, "{bytes}");
        assert!(bytes / PROVISIONAL_NAMES <= 48, "{bytes}");
    }

    #[test]
    fn a_damaged_or_later_one_names_nothing() {
        let (_, stored) = provisional(2);
        let text = String::from_utf8(stored.render()).unwrap();
        let at = text.find("\"names\"").unwrap() + 12;

        let mut flipped = text.clone().into_bytes();
        flipped[at] = if flipped[at] == b'A' { b'B' } else { b'A' };
        let later = text.replace("\"provisional\"", "\"provisional\",\"colours\"");
        let without = text.replace("\"names\"", "\"other\"");

        for bytes in [&flipped[..], later.as_bytes(), without.as_bytes()] {
            let StoredManifest::Provisional(read) = StoredManifest::parse(bytes).unwrap() else {
                panic!("it is provisional");
            };
            assert!(read.names().is_err());
        }
        assert!(StoredManifest::parse(&text.as_bytes()[..text.len() - 3]).is_err());
    }
}
