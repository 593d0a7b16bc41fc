//! A snapshot of an encrypted pool: what everybody may know of it, and everything else encrypted.
//!
//! In the clear stand the names of the chunks that it needs, so that gc and copies need no key, and what gc must know of a manifest
//! that nobody published. They are authenticated along with the encrypted part, so that whoever has the key notices when one was
//! changed. *Always true:* the encrypted part is a whole [`SnapshotManifest`], and what both say they say alike.

use super::provisional::{PROVISIONAL, ProvisionalManifest};
use super::snapshot::SnapshotManifest;
use crate::base64;
use crate::chunk_name::{ChunkName, NAME_ROW, from_rows, to_rows};
use crate::digest::{PieceDigest, ReferencesDigest};
use crate::format::document::{self, BadDocument, Document};
use crate::id::{Epoch, Incarnation, OpId, SnapshotId};
use crate::invalid::Invalid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The feature that documents of an encrypted pool need.
pub const ENCRYPTION: &str = "encryption";

/// Lists of up to this many names stand in the document itself.
const INLINE_NAMES: usize = 64;

/// No list of names is longer: chunks of some 2 TiB.
pub const REFERENCES_LIMIT: usize = NAME_ROW << 21;

/// The document `metadata.json` in an encrypted pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EncryptedManifest {
    version: u64,
    /// Features without which it cannot be understood: [`ENCRYPTION`], and an unknown one means "refuse".
    pub incompat: Vec<String>,
    /// Which snapshot.
    pub snapshot_id: SnapshotId,
    /// The life of its subject in which it was made.
    pub incarnation: Incarnation,
    /// The fence's epoch as the save found it.
    pub lease_epoch: Epoch,
    /// The save.
    pub op_id: OpId,
    /// Which chunks it needs.
    pub references: ManifestReferences,
    /// The keyed digest of the encrypted part.
    pub contents_id: PieceDigest,
    /// A whole [`SnapshotManifest`], encrypted, in base64.
    contents: String,
}

impl Document for EncryptedManifest {
    const NAME: &'static str = "metadata.json";
    const LIMIT: usize = 8 << 20;
}

/// Which chunks a snapshot needs, all of them, those of its list too.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestReferences {
    /// How many.
    pub count: u64,
    /// The digest of the sorted names.
    pub sha256: ReferencesDigest,
    /// The names themselves, in base64; a longer list lies beside the document, under its digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    names: Option<String>,
}

impl ManifestReferences {
    /// The references to some chunks.
    pub fn new(names: &BTreeSet<ChunkName>) -> Self {
        let rows = to_rows(names);
        Self {
            count: names.len() as u64,
            sha256: ReferencesDigest::of(&rows),
            names: (names.len() <= INLINE_NAMES).then(|| base64::encode(&rows)),
        }
    }

    /// The same with the names in the document, however many they are.
    pub(super) fn within(names: &BTreeSet<ChunkName>) -> Self {
        Self {
            names: Some(base64::encode(&to_rows(names))),
            ..Self::new(names)
        }
    }

    /// Whether the names lie beside the document.
    pub fn is_beside(&self) -> bool {
        self.names.is_none()
    }

    /// The names that stand in the document.
    pub fn inline(&self) -> Result<Vec<ChunkName>, Invalid> {
        let rows = self.names.as_deref().and_then(base64::decode);
        let rows = rows.ok_or_else(|| Invalid::new("its list of chunks is not base64"))?;
        self.read(&rows)
    }

    /// The names in a list, which must be the one that this is about.
    pub fn read(&self, rows: &[u8]) -> Result<Vec<ChunkName>, Invalid> {
        if ReferencesDigest::of(rows) != self.sha256 {
            return Err(Invalid::new(
                "its list of chunks is not the one that it names",
            ));
        }
        let names = from_rows(rows)?;
        if names.len() as u64 != self.count {
            return Err(Invalid::new(
                "its list of chunks has another length than it says",
            ));
        }
        Ok(names)
    }
}

impl EncryptedManifest {
    /// What everybody may know of a manifest, without its encrypted part.
    pub fn of(manifest: &SnapshotManifest, references: ManifestReferences) -> Self {
        Self {
            version: Self::VERSION,
            incompat: vec![ENCRYPTION.to_owned()],
            snapshot_id: manifest.snapshot_id.clone(),
            incarnation: manifest.incarnation,
            lease_epoch: manifest.lease_epoch,
            op_id: manifest.op_id,
            references,
            contents_id: PieceDigest::from_document([0; 32]),
            contents: String::new(),
        }
    }

    /// The same with its encrypted part.
    #[must_use = "the document is not changed in place"]
    pub fn with_contents(self, id: PieceDigest, encrypted: &[u8]) -> Self {
        Self {
            contents_id: id,
            contents: base64::encode(encrypted),
            ..self
        }
    }

    /// The encrypted part.
    pub fn contents(&self) -> Result<Vec<u8>, Invalid> {
        let bytes = base64::decode(&self.contents);
        bytes.ok_or_else(|| Invalid::new("its encrypted part is not base64"))
    }

    /// Refuses what only a later build understands.
    pub fn check(&self) -> Result<(), Invalid> {
        match self.incompat.iter().find(|one| *one != ENCRYPTION) {
            None => Ok(()),
            Some(feature) => Err(Invalid::new(format!(
                "the snapshot needs `{feature}`, which this build does not know"
            ))),
        }
    }

    /// Whether a decrypted manifest is the one that this is about.
    pub fn is_about(&self, manifest: &SnapshotManifest) -> bool {
        manifest.snapshot_id == self.snapshot_id
            && manifest.incarnation == self.incarnation
            && manifest.lease_epoch == self.lease_epoch
            && manifest.op_id == self.op_id
    }
}

/// What lies under the name of a snapshot's `metadata.json`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoredManifest {
    /// In the clear.
    Plain(Box<SnapshotManifest>),
    /// Of an encrypted pool.
    Encrypted(Box<EncryptedManifest>),
    /// Of a save that was not over when it put this, in either kind of pool. Never a snapshot.
    Provisional(Box<ProvisionalManifest>),
}

/// What tells one kind from the other.
#[derive(Deserialize)]
struct Features {
    #[serde(default)]
    incompat: Vec<String>,
}

impl StoredManifest {
    /// No document of any kind is longer.
    pub const LIMIT: usize = if EncryptedManifest::LIMIT > SnapshotManifest::LIMIT {
        EncryptedManifest::LIMIT
    } else {
        SnapshotManifest::LIMIT
    };

    /// Reads a document of any kind.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadDocument> {
        let features = serde_json::from_slice::<Features>(bytes);
        let features = features.map_or_else(|_| Vec::new(), |one| one.incompat);
        let needs = |feature: &str| features.iter().any(|one| one == feature);
        Ok(if needs(PROVISIONAL) {
            Self::Provisional(Box::new(document::parse(bytes)?))
        } else if needs(ENCRYPTION) {
            Self::Encrypted(Box::new(document::parse(bytes)?))
        } else {
            Self::Plain(Box::new(document::parse(bytes)?))
        })
    }

    /// The document as it is stored.
    pub fn render(&self) -> Vec<u8> {
        match self {
            Self::Plain(manifest) => document::render(&**manifest),
            Self::Encrypted(manifest) => document::render(&**manifest),
            Self::Provisional(manifest) => document::render(&**manifest),
        }
    }

    /// Refuses what only a later build understands.
    pub fn check(&self) -> Result<(), Invalid> {
        match self {
            Self::Plain(manifest) => manifest.check(),
            Self::Encrypted(manifest) => manifest.check(),
            Self::Provisional(manifest) => manifest.check(),
        }
    }

    /// Which snapshot.
    pub fn snapshot_id(&self) -> &SnapshotId {
        match self {
            Self::Plain(manifest) => &manifest.snapshot_id,
            Self::Encrypted(manifest) => &manifest.snapshot_id,
            Self::Provisional(manifest) => &manifest.snapshot_id,
        }
    }

    /// The life of its subject in which it was made.
    pub fn incarnation(&self) -> Incarnation {
        match self {
            Self::Plain(manifest) => manifest.incarnation,
            Self::Encrypted(manifest) => manifest.incarnation,
            Self::Provisional(manifest) => manifest.incarnation,
        }
    }

    /// The fence's epoch as the save found it.
    pub fn lease_epoch(&self) -> Epoch {
        match self {
            Self::Plain(manifest) => manifest.lease_epoch,
            Self::Encrypted(manifest) => manifest.lease_epoch,
            Self::Provisional(manifest) => manifest.lease_epoch,
        }
    }

    /// The save.
    pub fn op_id(&self) -> OpId {
        match self {
            Self::Plain(manifest) => manifest.op_id,
            Self::Encrypted(manifest) => manifest.op_id,
            Self::Provisional(manifest) => manifest.op_id,
        }
    }
}

#[cfg(test)]
mod tests;
