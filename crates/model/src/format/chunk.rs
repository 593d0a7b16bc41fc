//! A chunk as it is stored: a small header, then the payload.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | `STCK` |
//! | 1 | version, 1 |
//! | 1 | codec: 0 as it is, 1 zstd |
//! | 2 | flags, none known: 0 |
//! | 4 | length of the plaintext, little endian |
//!
//! The name of a chunk is the digest of its *plaintext*, so codec and level may differ between builds.
//!
//! In an encrypted pool all of that is encrypted, and something else stands before it:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | `STCE` |
//! | 1 | version, 1 |
//! | 3 | 0 |
//! | 32 | the keyed digest of what is encrypted |
//! | … | a chunk as above, encrypted, and a tag of 16 bytes |

use crate::digest::PieceDigest;
use crate::invalid::Invalid;
use crate::tree::chunking::CHUNK_MAX;

/// How many bytes the header has.
pub const HEADER: usize = 12;
const MAGIC: &[u8; 4] = b"STCK";
const VERSION: u8 = 1;
const ENCRYPTED: [u8; 8] = *b"STCE\x01\0\0\0";
/// How many bytes stand before what is encrypted.
const ENCRYPTED_HEADER: usize = 8 + 32;
/// By so much an encrypted chunk is longer than a plain one, its tag included.
pub const ENCRYPTED_GROWTH: usize = ENCRYPTED_HEADER + 16;

/// How the payload was made from the plaintext.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// It is the plaintext.
    Raw,
    /// One zstd frame.
    Zstd,
}

/// What stands before the payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkHeader {
    /// How the payload was made.
    pub codec: Codec,
    /// How long the plaintext is; never more than [`CHUNK_MAX`].
    pub plain_len: u32,
}

/// An encrypted chunk as it is stored, with room for what is encrypted.
pub fn encrypted_header(id: PieceDigest, length: usize) -> Vec<u8> {
    let mut stored = Vec::with_capacity(ENCRYPTED_HEADER + length);
    stored.extend_from_slice(&ENCRYPTED);
    stored.extend_from_slice(id.as_bytes());
    stored
}

/// Whether a stored chunk begins like an encrypted one.
pub fn is_encrypted(stored: &[u8]) -> bool {
    stored.starts_with(&ENCRYPTED[..4])
}

/// Whether a stored chunk begins like one that is not.
pub fn is_plain(stored: &[u8]) -> bool {
    stored.starts_with(&MAGIC[..])
}

/// Splits an encrypted chunk into the digest of what is encrypted, and that.
pub fn split_encrypted(stored: &[u8]) -> Result<(PieceDigest, &[u8]), Invalid> {
    let inner = stored.strip_prefix(&ENCRYPTED[..]);
    let split = inner.and_then(|inner| inner.split_first_chunk());
    match split {
        Some((id, encrypted)) => Ok((PieceDigest::from_document(*id), encrypted)),
        None => Err(Invalid::new("it does not begin like an encrypted chunk")),
    }
}

/// The refusal of a chunk whose payload does not give what its header says.
pub fn other_payload() -> Invalid {
    Invalid::new("its payload is not what its header says")
}

/// The refusal of a chunk whose bytes are not those that its name stands for.
pub fn other_content() -> Invalid {
    Invalid::new("its bytes are not those that it is named for")
}

impl ChunkHeader {
    /// The header as it is stored.
    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4] = VERSION;
        bytes[5] = match self.codec {
            Codec::Raw => 0,
            Codec::Zstd => 1,
        };
        bytes[8..].copy_from_slice(&self.plain_len.to_le_bytes());
        bytes
    }

    /// Splits a stored chunk into its header and its payload.
    pub fn split(stored: &[u8]) -> Result<(Self, &[u8]), Invalid> {
        let other_file = || Invalid::new("it does not begin like a chunk");
        let (header, payload) = stored
            .split_first_chunk::<HEADER>()
            .ok_or_else(other_file)?;
        let [m0, m1, m2, m3, version, codec, f0, f1, l0, l1, l2, l3] = *header;
        if [m0, m1, m2, m3] != *MAGIC {
            return Err(other_file());
        }
        let flags = u16::from_le_bytes([f0, f1]);
        let unknown = || {
            Invalid::new(format!(
                "it is of version {version}, with codec {codec} and flags {flags}: a later build wrote it, or it is damaged"
            ))
        };
        let codec = match codec {
            0 => Codec::Raw,
            1 => Codec::Zstd,
            _ => return Err(unknown()),
        };
        if version != VERSION || flags != 0 {
            return Err(unknown());
        }
        let plain_len = u32::from_le_bytes([l0, l1, l2, l3]);
        if plain_len as usize > CHUNK_MAX {
            return Err(Invalid::new(format!(
                "it claims to be {plain_len} bytes long; no chunk is longer than {CHUNK_MAX}"
            )));
        }
        Ok((Self { codec, plain_len }, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_nothing_else_passes_for_one() {
        let header = ChunkHeader {
            codec: Codec::Zstd,
            plain_len: 70_000,
        };
        let mut stored = header.to_bytes().to_vec();
        stored.extend_from_slice(b"payload");

        assert_eq!(ChunkHeader::split(&stored), Ok((header, &b"payload"[..])));
        assert_eq!(stored[..HEADER], *b"STCK\x01\x01\0\0\x70\x11\x01\0");
        for at in 0..8 {
            let mut bent = stored.clone();
            bent[at] ^= 0x40;
            assert!(ChunkHeader::split(&bent).is_err(), "{at}");
        }
        assert_eq!(
            ChunkHeader::split(&stored[..11]),
            Err(Invalid::new("it does not begin like a chunk"))
        );
    }

    #[test]
    fn a_chunk_that_claims_too_much_is_refused_before_it_is_unpacked() {
        let header = ChunkHeader {
            codec: Codec::Zstd,
            plain_len: u32::MAX,
        };
        assert_eq!(
            ChunkHeader::split(&header.to_bytes()),
            Err(Invalid::new(format!(
                "it claims to be 4294967295 bytes long; no chunk is longer than {CHUNK_MAX}"
            )))
        );
    }
}
