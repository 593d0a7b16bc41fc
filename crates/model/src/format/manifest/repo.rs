//! `repo.json`: how a chunked root cuts, names and stores. Created once.

use super::encrypted::ENCRYPTION;
use crate::digest::PoolCheck;
use crate::format::document::Document;
use crate::id::OpId;
use crate::invalid::Invalid;
use crate::time::Timestamp;
use crate::tree::chunking::{Chunker, PIECE};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The document `repo.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RepoDocument {
    version: u64,
    /// The format of everything in the root.
    pub format: u64,
    /// Features without which nothing can be read: an unknown one means "do not touch".
    #[serde(default)]
    pub incompat: Vec<String>,
    /// Features without which nothing may be written: an unknown one means "read only".
    #[serde(default)]
    pub compat_write: Vec<String>,
    /// How large files are cut.
    pub chunker: Chunker,
    /// How long the pieces are in which files changed in place are compared.
    pub piece_size: u32,
    /// The digests in use, by what they are of.
    pub hashes: Hashes,
    /// How chunks are packed.
    pub compression: RepoCompression,
    /// How everything in it is encrypted; a pool without is plain, and stays so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<PoolEncryption>,
    /// When it was made.
    pub created_at_ms: Timestamp,
    /// Who made it.
    pub op_id: OpId,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// How everything in a pool is encrypted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PoolEncryption {
    /// What encrypts chunks and manifests.
    pub cipher: String,
    /// Made from the data key and this document: another `key.json`, or another document, does not fit.
    pub check: PoolCheck,
}

/// The digests in use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Hashes {
    /// Of a chunk's plaintext.
    pub chunk: String,
    /// Of a file's content.
    pub file: String,
}

/// How chunks are packed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RepoCompression {
    /// The codec, where bytes can be packed at all.
    pub codec: String,
    /// Its level.
    pub level: i32,
}

impl Document for RepoDocument {
    const NAME: &'static str = "repo.json";
}

const FORMAT: u64 = 1;
const CIPHER: &str = "aes-256-gcm";
const KEYED: &str = "hmac-sha256";

impl RepoDocument {
    /// What a new root says.
    pub fn new(created_at_ms: Timestamp, op_id: OpId) -> Self {
        Self {
            version: Self::VERSION,
            format: FORMAT,
            incompat: Vec::new(),
            compat_write: Vec::new(),
            chunker: Chunker::default(),
            piece_size: 16 << 10,
            hashes: Hashes {
                chunk: "sha256".to_owned(),
                file: "blake3".to_owned(),
            },
            compression: RepoCompression {
                codec: "zstd".to_owned(),
                level: 3,
            },
            encryption: None,
            created_at_ms,
            op_id,
            extra: Map::new(),
        }
    }

    /// The same of a pool whose data key gives `check` for this document.
    #[must_use = "the document is not changed in place"]
    pub fn encrypted(mut self, check: PoolCheck) -> Self {
        self.incompat = vec![ENCRYPTION.to_owned()];
        KEYED.clone_into(&mut self.hashes.chunk);
        self.encryption = Some(PoolEncryption {
            cipher: CIPHER.to_owned(),
            check,
        });
        self
    }

    /// What tells this pool from every other one, in names of files: a pool that says it is plain is another than one that is
    /// encrypted, whoever copied its operation id.
    pub fn spelled(&self) -> String {
        match &self.encryption {
            Some(encryption) => format!("{}-{}", self.op_id, encryption.check),
            None => self.op_id.to_string(),
        }
    }

    /// Whether everything in the pool is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.encryption.is_some()
    }

    /// Whether this build may read what is in the root.
    pub fn check_readable(&self) -> Result<(), Invalid> {
        let needs = |what: &str| {
            Err(Invalid::new(format!(
                "the repository needs `{what}`, which this build does not know"
            )))
        };
        let Hashes { chunk, file } = &self.hashes;
        let named = if self.is_encrypted() { KEYED } else { "sha256" };
        match self {
            _ if self.format != FORMAT => needs(&format!("format {}", self.format)),
            _ if chunk != named || file != "blake3" => needs(&format!("{chunk} and {file}")),
            _ if self.compression.codec != "zstd" => needs(&self.compression.codec),
            _ if let Some(one) = self.encryption.as_ref().filter(|one| one.cipher != CIPHER) => {
                needs(&one.cipher)
            }
            _ if self.is_encrypted() != self.incompat.iter().any(|one| one == ENCRYPTION) => Err(
                Invalid::new("the repository does not say in one way whether it is encrypted"),
            ),
            _ => {
                let mut unknown = self.incompat.iter().filter(|one| *one != ENCRYPTION);
                unknown.next().map_or(Ok(()), |one| needs(one))
            }
        }
    }

    /// Whether this build may also write to it.
    pub fn check_writable(&self) -> Result<(), Invalid> {
        self.check_readable()?;
        let not = |what: &str| {
            Err(Invalid::new(format!(
                "the repository may not be written by this build: it uses `{what}`"
            )))
        };
        if let Some(one) = self.compat_write.first() {
            return not(one);
        }
        if !self.chunker.is_sound() || self.piece_size as usize != PIECE {
            return not(&format!("chunker {:?}", self.chunker));
        }
        Ok(())
    }
}
