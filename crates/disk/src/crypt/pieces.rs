//! Pieces of a lineage or a pool: closed in one way only, opened only as what they are.

use super::data_key::DOMAIN;
use super::{KEY, cipher, derive, fields, root};
use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};
use aws_lc_rs::hkdf::Prk;
use stasis_model::format::key::KeyOwner;
use std::fmt;
use zeroize::Zeroizing;

/// By so much a piece grows.
pub(crate) const TAG: usize = 16;
/// The length of an id.
pub(crate) const ID: usize = 32;

/// What a piece is: one kind is never taken for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A stored frame of an archive.
    Frame,
    /// The index of an encrypted archive.
    Index,
    /// A chunk of a pool.
    Chunk,
    /// The manifest of a snapshot in a pool.
    Manifest,
}

impl Kind {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Frame => b"archive frame",
            Self::Index => b"archive index",
            Self::Chunk => b"chunk",
            Self::Manifest => b"manifest",
        }
    }
}

/// A keyed digest of a piece's plaintext: without the key it says only whether two pieces of an owner are the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PieceId([u8; ID]);

impl PieceId {
    /// An id that was written into an encrypted archive.
    pub(crate) fn from_document(bytes: [u8; ID]) -> Self {
        Self(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; ID] {
        &self.0
    }
}

/// Bytes that are not the piece they should be: damaged, of another key, another owner, another kind, another id, or another place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Broken;

/// Closes and opens the pieces of one lineage or pool.
pub(crate) struct Pieces {
    root: Prk,
    owner: String,
    frames: Zeroizing<[u8; KEY]>,
    indexes: Zeroizing<[u8; KEY]>,
    chunks: Zeroizing<[u8; KEY]>,
    manifests: Zeroizing<[u8; KEY]>,
}

impl Pieces {
    pub(super) fn new(secret: &[u8; KEY], owner: &KeyOwner) -> Self {
        let (root, owner) = (root(DOMAIN, secret), owner.to_string());
        let naming = |kind: Kind| {
            let info = fields(&[b"id", kind.name(), owner.as_bytes()]);
            derive(&root, &info)
        };
        let (frames, indexes) = (naming(Kind::Frame), naming(Kind::Index));
        let (chunks, manifests) = (naming(Kind::Chunk), naming(Kind::Manifest));
        Self {
            root,
            owner,
            frames,
            indexes,
            chunks,
            manifests,
        }
    }

    /// Encrypts a piece where it is, and appends the tag. What the piece is besides its kind, if anything, is authenticated
    /// along with it.
    pub(crate) fn close(&self, kind: Kind, place: Option<&[u8]>, piece: &mut Vec<u8>) -> PieceId {
        let naming = match kind {
            Kind::Frame => &self.frames,
            Kind::Index => &self.indexes,
            Kind::Chunk => &self.chunks,
            Kind::Manifest => &self.manifests,
        };
        let id = PieceId(*blake3::keyed_hash(naming, piece).as_bytes());
        let (cipher, bound) = self.cipher(kind, place, &id);
        let closed = cipher.seal_in_place_append_tag(nonce(), bound, piece);
        closed.expect("a piece has less than 64 GiB");
        id
    }

    /// Decrypts a piece where it is, and takes away the tag; what is left of it after a failure means nothing.
    pub(crate) fn open(
        &self,
        kind: Kind,
        place: Option<&[u8]>,
        id: &PieceId,
        piece: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        let (cipher, bound) = self.cipher(kind, place, id);
        let opened = cipher.open_in_place(nonce(), bound, piece);
        let length = opened.map_err(|_| Broken)?.len();
        piece.truncate(length);
        Ok(())
    }

    fn cipher(
        &self,
        kind: Kind,
        place: Option<&[u8]>,
        id: &PieceId,
    ) -> (LessSafeKey, Aad<Vec<u8>>) {
        // What is authenticated along with a piece is part of its key: one piece in two places has two keys.
        let mut info: Vec<&[u8]> = vec![b"piece", kind.name(), &id.0];
        info.extend(place);
        let cipher = cipher(&self.root, &fields(&info));
        let mut bound = vec![DOMAIN, self.owner.as_bytes(), kind.name(), &id.0];
        bound.extend(place);
        (cipher, Aad::from(fields(&bound)))
    }
}

/// The one nonce there is: each key encrypts one plaintext.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

impl fmt::Debug for Pieces {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Pieces(of {})", self.owner)
    }
}
