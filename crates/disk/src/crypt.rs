//! Keys, and what they close: a tenant's key wraps data keys, a data key encrypts pieces of its lineage or its pool.
//!
//! ```text
//! tenant's key ──HKDF──▶ wrapping key ──AES-256-GCM──▶ key.json        random nonce, said there
//! data key     ──HKDF──▶ naming key   ──BLAKE3 keyed──▶ a piece's id   32 bytes, of the piece's plaintext
//!              ──HKDF(id)──▶ a key for this piece alone ──AES-256-GCM──▶ the piece
//!              ──HKDF──▶ another naming key ──HMAC-SHA-256──▶ the name of a chunk, of its plaintext
//! ```
//!
//! **Pieces** (`pieces.rs`) are encrypted deterministically: the same piece of the same owner gives the same bytes, so
//! that what did not change can be copied. The key of a piece is made from the id of its plaintext, hence
//! *always true:* a key with its one nonce encrypts one plaintext only. The id is a keyed hash of exactly the bytes that
//! are encrypted, not of what they were made from: whether a compressor always gives the same bytes, or an older archive
//! was honest, does not matter here. What belongs to it (owner, kind, id, and for
//! chunks and manifests what they are in their pool) is authenticated with each piece.
//!
//! **Pools** (`pool.rs`): the pieces of a pool are its chunks and its manifests.
//!
//! Nothing here draws random bytes: the caller hands them in. Keys are cleared when they are dropped and are never shown.

mod data_key;
mod pieces;
mod pool;
mod tenant_key;

pub use data_key::DataKey;
pub(crate) use pieces::{ID, Kind, PieceId, Pieces, TAG};
pub use pool::PoolCipher;
pub use tenant_key::TenantKey;

use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk, Salt};
use stasis_model::format::key::{KeyId, KeyOwner};
use std::io;
use zeroize::Zeroizing;

/// The length of every key.
const KEY: usize = 32;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text of a key is none; it is not repeated here.
    #[error("a key is 64 hexadecimal digits, or 32 bytes in base64, on a line of its own")]
    NoKey,
    /// The text of a key could not be read.
    #[error("could not read the key")]
    Unread(#[source] io::Error),
    /// Another tenant key wrapped the data key.
    #[error("the data key of `{owner}` is wrapped by key {expected}, and the given key is {given}")]
    WrongKey {
        /// Whose data key.
        owner: KeyOwner,
        /// Which key is needed.
        expected: KeyId,
        /// Which was given.
        given: KeyId,
    },
    /// The document belongs somewhere else.
    #[error("the data key of `{found}` lies where that of `{expected}` should be")]
    OtherOwner {
        /// Whose data key was wanted.
        expected: KeyOwner,
        /// Whose it is.
        found: KeyOwner,
    },
    /// The right key does not open it.
    #[error(
        "the wrapped data key of `{0}` was changed: it does not open with the key that wrapped it"
    )]
    Damaged(KeyOwner),
}

/// Where keys are derived from `secret`, each use of it in its own domain.
fn root(domain: &[u8], secret: &[u8; KEY]) -> Prk {
    Salt::new(HKDF_SHA256, domain).extract(secret)
}

/// Derives 32 bytes for the use that `info` names.
fn derive(root: &Prk, info: &[u8]) -> Zeroizing<[u8; KEY]> {
    let (mut key, info) = (Zeroizing::new([0; KEY]), [info]);
    let derived = root.expand(&info, HKDF_SHA256);
    let filled = derived.and_then(|derived| derived.fill(&mut *key));
    filled.expect("HKDF gives as much as one digest");
    key
}

/// Derives a key of AES-256-GCM for the use that `info` names.
fn cipher(root: &Prk, info: &[u8]) -> LessSafeKey {
    let key = derive(root, info);
    let key = UnboundKey::new(&AES_256_GCM, &*key);
    LessSafeKey::new(key.expect("a key of AES-256 has 32 bytes"))
}

/// Spells fields so that no two lists of fields are spelled alike.
fn fields(all: &[&[u8]]) -> Vec<u8> {
    let mut spelled = Vec::with_capacity(all.iter().map(|field| field.len() + 4).sum());
    for field in all {
        let length = u32::try_from(field.len()).expect("fields are short");
        spelled.extend_from_slice(&length.to_le_bytes());
        spelled.extend_from_slice(field);
    }
    spelled
}

#[cfg(test)]
mod tests;
