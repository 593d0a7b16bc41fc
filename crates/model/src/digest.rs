//! Digests: what a thing *is*, as opposed to where it lies.

use crate::invalid::Invalid;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

fn parse_hex(text: &str) -> Result<[u8; 32], Invalid> {
    let bad = text
        .char_indices()
        .find(|(_, c)| !matches!(c, '0'..='9' | 'a'..='f'));
    if let Some((position, c)) = bad {
        let offending = c.escape_debug();
        return Err(Invalid::new(format!(
            "`{offending}` at position {position} is not a lower-case hexadecimal digit"
        )));
    }
    if text.len() != 64 {
        return Err(Invalid::new(format!(
            "a digest has 64 hexadecimal digits, this one has {}",
            text.len()
        )));
    }
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit - b'a' + 10,
    };
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = nibble(pair[0]) << 4 | nibble(pair[1]);
    }
    Ok(bytes)
}

macro_rules! digest {
    ($(#[$doc:meta])* $name:ident) => {
        digest!(@bare $(#[$doc])* $name);

        impl $name {
            /// Digests `bytes`.
            pub fn of(bytes: &[u8]) -> Self {
                Self(Sha256::digest(bytes).into())
            }
        }
    };
    (@bare $(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(try_from = "String", into = "String")]
        pub struct $name([u8; 32]);

        impl $name {
            /// The digest itself, as it is written into other documents.
            pub fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }

            /// A digest that was written into another document; what it is a digest of is that document's claim.
            pub fn from_document(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// The first 12 hex digits, as they stand in object names; never an identity.
            pub fn prefix(&self) -> String {
                self.to_string()[..12].to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, "{}({})", stringify!($name), self.prefix())
            }
        }

        impl FromStr for $name {
            type Err = Invalid;
            fn from_str(text: &str) -> Result<Self, Invalid> {
                parse_hex(text).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Invalid;
            fn try_from(text: String) -> Result<Self, Invalid> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(digest: $name) -> Self {
                digest.to_string()
            }
        }
    };
}

digest! {
    /// SHA-256 of an archive's stored (compressed) bytes: the identity of a profile snapshot.
    ArchiveDigest
}
digest! {
    /// SHA-256 of a manifest's bytes.
    ManifestDigest
}
digest! {
    /// SHA-256 of a chunk's plaintext, in encrypted pools keyed (HMAC): two chunks are the same chunk iff these are equal.
    ChunkDigest
}
digest! {
    /// SHA-256 of a list of condemned names.
    CondemnedDigest
}
digest! {
    /// SHA-256 of the names of all chunks that a snapshot of an encrypted pool needs.
    ReferencesDigest
}
digest! {
    @bare
    /// A keyed digest of bytes that are encrypted: without the key it says only whether two of them are the same.
    PieceDigest
}
digest! {
    @bare
    /// What shows that a `repo.json` and a data key belong together; made from both, and of no use to whoever has neither.
    PoolCheck
}
digest! {
    /// SHA-256 of everything that a request to the service asks for.
    RequestDigest
}
digest! {
    /// SHA-256 of a store's address, to name what this host caches of it.
    StoreDigest
}
digest! {
    @bare
    /// BLAKE3 of a file's content, holes read as zeros: two files hold the same bytes iff these are equal.
    FileDigest
}
digest! {
    @bare
    /// BLAKE3 of a workspace's manifest: two workspaces hold the same, times aside, iff these are equal.
    WorkspaceDigest
}
digest! {
    @bare
    /// SHA-256 of a canonical tree: two trees are the same tree iff these are equal. Made by
    /// [`TreeHasher`](crate::tree::canonical::TreeHasher).
    TreeDigest
}

impl FileDigest {
    /// Digests `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl TreeDigest {
    pub(crate) fn finish(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }
}

/// A [`FileDigest`] in the making, for contents that come piece by piece.
#[derive(Clone, Debug, Default)]
pub struct FileHasher(blake3::Hasher);

impl FileHasher {
    /// Adds the next bytes of the content.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of everything added.
    pub fn finish(&self) -> FileDigest {
        FileDigest(*self.0.finalize().as_bytes())
    }
}

/// An [`ArchiveDigest`] in the making, for archives that come piece by piece.
#[derive(Clone, Debug, Default)]
pub struct ArchiveHasher(Sha256);

impl ArchiveHasher {
    /// Adds the next stored bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of everything added.
    pub fn finish(self) -> ArchiveDigest {
        ArchiveDigest(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_exactly_one_spelling() {
        let digest = ArchiveDigest::of(b"abc");
        let spelled = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

        assert_eq!(digest.to_string(), spelled);
        assert_eq!(spelled.parse(), Ok(digest));
        assert_eq!(digest.prefix(), "ba7816bf8f01");
        assert!(spelled.to_uppercase().parse::<ArchiveDigest>().is_err());
    }

    #[test]
    fn a_digest_made_piece_by_piece_is_the_same() {
        let (mut file, mut archive) = (FileHasher::default(), ArchiveHasher::default());
        for piece in [b"a".as_slice(), b"", b"bc"] {
            file.update(piece);
            archive.update(piece);
        }

        assert_eq!(file.finish(), FileDigest::of(b"abc"));
        assert_eq!(archive.finish(), ArchiveDigest::of(b"abc"));
        let spelled = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";
        assert_eq!(FileDigest::of(b"abc").to_string(), spelled);
        let read_back = FileDigest::from_document(*FileDigest::of(b"abc").as_bytes());
        assert_eq!(read_back.to_string(), spelled);
    }

    #[test]
    fn crafted_names_are_not_digests() {
        let slashes = "../../x".parse::<ChunkDigest>().unwrap_err();
        assert_eq!(
            slashes.to_string(),
            "`.` at position 0 is not a lower-case hexadecimal digit"
        );
        let short = "ab12".parse::<ChunkDigest>().unwrap_err();
        assert_eq!(
            short.to_string(),
            "a digest has 64 hexadecimal digits, this one has 4"
        );
    }
}
