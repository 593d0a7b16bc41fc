//! How the chunks of a pool are named, and what of them is stored.

use super::ChunkError;
use crate::crypt::PoolCipher;
use stasis_model::digest::ChunkDigest;
use stasis_model::format::chunk::{ChunkHeader, Codec, other_content, other_payload};
use stasis_model::invalid::Invalid;
use stasis_model::protocol::gc::ChunkName;
use std::sync::Arc;

/// Names chunks, and turns what is stored into what was saved.
///
/// *Always true:* what comes out of [`ChunkCodec::open`] is what the name stands for; an encrypted pool takes nothing plain, and
/// a plain one nothing encrypted.
#[derive(Clone, Debug)]
pub enum ChunkCodec {
    /// Chunks are named by SHA-256, and stored packed.
    Plain,
    /// Chunks are named by HMAC, and stored packed and encrypted.
    Encrypted(Arc<PoolCipher>),
}

impl ChunkCodec {
    /// The digest in the name of a chunk with this plaintext.
    pub fn digest(&self, plain: &[u8]) -> ChunkDigest {
        match self {
            Self::Plain => ChunkDigest::of(plain),
            Self::Encrypted(cipher) => cipher.digest(plain),
        }
    }

    /// What is stored of a chunk that was packed.
    pub(super) fn close(&self, digest: ChunkDigest, packed: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Plain => packed,
            Self::Encrypted(cipher) => cipher.close_chunk(digest, packed),
        }
    }

    /// The plaintext of a stored chunk, checked against its name.
    pub fn open(&self, name: &ChunkName, stored: &[u8]) -> Result<Vec<u8>, ChunkError> {
        let opened = match self {
            Self::Plain => unpacked(stored),
            Self::Encrypted(cipher) => cipher
                .open_chunk(name.digest(), stored)
                .and_then(|packed| unpacked(&packed)),
        };
        let checked = opened.and_then(|plain| {
            let is_it = self.digest(&plain) == name.digest();
            is_it.then_some(plain).ok_or_else(other_content)
        });
        checked.map_err(|source| ChunkError::Damaged {
            name: *name,
            source,
        })
    }
}

fn unpacked(stored: &[u8]) -> Result<Vec<u8>, Invalid> {
    let (header, payload) = ChunkHeader::split(stored)?;
    let length = header.plain_len as usize;
    let plain = match header.codec {
        Codec::Raw => payload.to_vec(),
        Codec::Zstd => {
            // The buffer is as long as the header says and not a byte longer, whatever the frame claims.
            let unpacked = zstd::bulk::decompress(payload, length);
            unpacked.map_err(|_| other_payload())?
        }
    };
    let is_as_long = plain.len() == length;
    is_as_long.then_some(plain).ok_or_else(other_payload)
}
