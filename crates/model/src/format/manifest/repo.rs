//! `repo.json`: how a chunked root cuts, names and stores. Created once.

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
    /// Reserved: a root that says anything here cannot be read by this build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Value>,
    /// When it was made.
    pub created_at_ms: Timestamp,
    /// Who made it.
    pub op_id: OpId,
    #[serde(flatten)]
    extra: Map<String, Value>,
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

    /// Whether this build may read what is in the root.
    pub fn check_readable(&self) -> Result<(), Invalid> {
        let needs = |what: &str| {
            Err(Invalid::new(format!(
                "the repository needs `{what}`, which this build does not know"
            )))
        };
        let Hashes { chunk, file } = &self.hashes;
        match self {
            _ if self.format != FORMAT => needs(&format!("format {}", self.format)),
            _ if self.encryption.is_some() => needs("encryption"),
            _ if chunk != "sha256" || file != "blake3" => needs(&format!("{chunk} and {file}")),
            _ if self.compression.codec != "zstd" => needs(&self.compression.codec),
            _ => self.incompat.first().map_or(Ok(()), |one| needs(one)),
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
