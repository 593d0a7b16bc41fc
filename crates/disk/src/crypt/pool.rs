//! What a pool's data key does: names chunks, and encrypts chunks and manifests.
//!
//! A chunk is named by HMAC-SHA-256 of its plaintext, so that the same bytes meet in one chunk, and nobody without the key can
//! test a guess of them. It is encrypted as it would be stored in a plain pool, header and all, under a key made from those very bytes: two
//! compressors may give two payloads for one name, and each has a key of its own. A manifest is encrypted whole; everything
//! that stands in the clear beside it is authenticated along with it.

use super::data_key::DOMAIN;
use super::pieces::{Kind, PieceId, Pieces};
use super::{KEY, derive, fields, root};
use aws_lc_rs::hmac;
use stasis_model::digest::{ChunkDigest, PieceDigest, PoolCheck};
use stasis_model::format::chunk::{encrypted_header, split_encrypted};
use stasis_model::format::document::{self, Document};
use stasis_model::format::key::KeyOwner;
use stasis_model::format::manifest::{EncryptedManifest, ManifestReferences, SnapshotManifest};
use stasis_model::id::OpId;
use stasis_model::invalid::Invalid;
use stasis_model::protocol::gc::Names;
use std::fmt;
use zeroize::Zeroizing;

/// A manifest is as long as a multiple of this when it is encrypted: how long a few names are is not told to the byte.
const STEP: usize = 1 << 10;

/// Names, encrypts and decrypts everything in one pool.
pub struct PoolCipher {
    pieces: Pieces,
    naming: hmac::Key,
    secret: Zeroizing<[u8; KEY]>,
    owner: String,
}

impl PoolCipher {
    pub(super) fn new(pieces: Pieces, secret: &[u8; KEY], owner: &KeyOwner) -> Self {
        let owner = owner.to_string();
        let info = fields(&[b"chunk name", owner.as_bytes()]);
        let naming = derive(&root(DOMAIN, secret), &info);
        Self {
            pieces,
            naming: hmac::Key::new(hmac::HMAC_SHA256, &*naming),
            secret: Zeroizing::new(*secret),
            owner,
        }
    }

    /// What a `repo.json` says if it belongs to this data key: its operation id is the pool's identity.
    pub fn check(&self, repo: OpId) -> PoolCheck {
        let (owner, repo) = (self.owner.as_bytes(), repo.to_string());
        let info = fields(&[b"pool check", owner, repo.as_bytes()]);
        PoolCheck::from_document(*derive(&root(DOMAIN, &self.secret), &info))
    }

    /// The digest in the name of a chunk with this plaintext.
    pub fn digest(&self, plain: &[u8]) -> ChunkDigest {
        let tag = hmac::sign(&self.naming, plain);
        let tag = tag.as_ref().try_into().expect("a tag has 32 bytes");
        ChunkDigest::from_document(tag)
    }

    /// Encrypts a chunk that is packed as plain pools store it.
    pub fn close_chunk(&self, digest: ChunkDigest, mut packed: Vec<u8>) -> Vec<u8> {
        let place = Some(digest.as_bytes().as_slice());
        let id = self.pieces.close(Kind::Chunk, place, &mut packed);
        let id = PieceDigest::from_document(*id.as_bytes());
        let mut stored = encrypted_header(id, packed.len());
        stored.extend_from_slice(&packed);
        stored
    }

    /// Decrypts a chunk that is stored under this name; what comes out is packed.
    pub fn open_chunk(&self, digest: ChunkDigest, stored: &[u8]) -> Result<Vec<u8>, Invalid> {
        let (id, encrypted) = split_encrypted(stored)?;
        let (id, mut packed) = (PieceId::from_document(*id.as_bytes()), encrypted.to_vec());
        let place = Some(digest.as_bytes().as_slice());
        let opened = self.pieces.open(Kind::Chunk, place, &id, &mut packed);
        opened.map_err(|_| {
            Invalid::new(
                "it does not open with the key of the pool as the chunk that it is named for",
            )
        })?;
        Ok(packed)
    }

    /// Encrypts a manifest of the subject `subject`, which needs the chunks `names`.
    pub fn close_manifest(
        &self,
        subject: &str,
        manifest: &SnapshotManifest,
        names: &Names,
    ) -> EncryptedManifest {
        let shown = EncryptedManifest::of(manifest, ManifestReferences::new(names));
        let mut contents = document::render(manifest);
        contents.resize(contents.len().next_multiple_of(STEP), b'\n');
        let place = place(subject, &shown);
        let id = self
            .pieces
            .close(Kind::Manifest, Some(&place), &mut contents);
        shown.with_contents(PieceDigest::from_document(*id.as_bytes()), &contents)
    }

    /// Decrypts a manifest of the subject `subject`.
    pub fn open_manifest(
        &self,
        subject: &str,
        stored: &EncryptedManifest,
    ) -> Result<SnapshotManifest, Invalid> {
        stored.check()?;
        let (id, mut contents) = (
            PieceId::from_document(*stored.contents_id.as_bytes()),
            stored.contents()?,
        );
        let place = place(subject, stored);
        let opened = self
            .pieces
            .open(Kind::Manifest, Some(&place), &id, &mut contents);
        opened.map_err(|_| {
            Invalid::new("it does not open with the key of the pool: it was changed, or moved here from elsewhere")
        })?;
        let manifest: SnapshotManifest = document::parse(&contents)
            .map_err(|error| Invalid::new(format!("its encrypted part cannot be used: {error}")))?;
        if stored.is_about(&manifest) {
            Ok(manifest)
        } else {
            Err(Invalid::new(
                "its encrypted part is about another snapshot than what stands in the clear",
            ))
        }
    }
}

/// Everything that stands in the clear beside an encrypted manifest, in one spelling, and where it lies.
fn place(subject: &str, shown: &EncryptedManifest) -> Vec<u8> {
    let features = shown.incompat.iter().map(String::as_bytes);
    let features = fields(&features.collect::<Vec<_>>());
    let (snapshot, incarnation) = (shown.snapshot_id.to_string(), shown.incarnation.to_string());
    let (op_id, references) = (shown.op_id.to_string(), &shown.references);
    fields(&[
        &EncryptedManifest::VERSION.to_le_bytes(),
        &features,
        subject.as_bytes(),
        snapshot.as_bytes(),
        incarnation.as_bytes(),
        &shown.lease_epoch.0.to_le_bytes(),
        op_id.as_bytes(),
        &references.count.to_le_bytes(),
        references.sha256.as_bytes(),
    ])
}

impl fmt::Debug for PoolCipher {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PoolCipher(of {})", self.owner)
    }
}

#[cfg(test)]
mod tests;
