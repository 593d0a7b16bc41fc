//! Small JSON documents that are rewritten in place by conditional writes.
//!
//! *Always true:* a document we do not understand is refused, never overwritten: too large (checked before parsing),
//! not JSON, version 0, or a version we do not know. Fields we do not know are kept when a document is rewritten.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The largest document that is read or written, unless it says otherwise.
pub const SIZE_LIMIT: usize = 256 * 1024;

/// A persisted JSON document with a `version` field.
pub trait Document: Serialize + DeserializeOwned {
    /// Its name, as in its object name.
    const NAME: &'static str;
    /// The only version this build reads and writes.
    const VERSION: u64 = 1;
    /// The largest that is read or written.
    const LIMIT: usize = SIZE_LIMIT;
    /// A field that only documents of the first edition have.
    const FIRST_EDITION: Option<&'static str> = None;
}

/// Why bytes are not a document we may use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadDocument {
    /// Refused before parsing.
    #[error("{name} is {found} bytes large; more than {limit} are never read")]
    TooLarge {
        /// Which document.
        name: &'static str,
        /// How large it is.
        found: u64,
        /// How large it may be.
        limit: usize,
    },
    /// The bytes are not a JSON object with a version.
    #[error("{name} is not a JSON document with a version")]
    NotJson {
        /// Which document.
        name: &'static str,
        /// What the parser says.
        #[source]
        source: serde_json::Error,
    },
    /// Another build wrote it; ours must not guess.
    #[error("{name} has version {found}; this build knows only version {known}")]
    Version {
        /// Which document.
        name: &'static str,
        /// The version it carries.
        found: u64,
        /// The version we know.
        known: u64,
    },
    /// It is of the first edition, whose formats nobody reads any more.
    #[error(
        "{name} was written by the first edition of Stasis, whose snapshots this one does not read"
    )]
    FirstEdition {
        /// Which document.
        name: &'static str,
    },
    /// Fields are missing or contradict each other.
    #[error("{name} does not say what such a document must say")]
    Invalid {
        /// Which document.
        name: &'static str,
        /// What the parser says.
        #[source]
        source: serde_json::Error,
    },
}

#[derive(Deserialize)]
struct Envelope {
    version: u64,
}

/// Parses a document.
pub fn parse<D: Document>(bytes: &[u8]) -> Result<D, BadDocument> {
    let name = D::NAME;
    if bytes.len() > D::LIMIT {
        let (found, limit) = (bytes.len() as u64, D::LIMIT);
        return Err(BadDocument::TooLarge { name, found, limit });
    }
    let envelope: Envelope =
        serde_json::from_slice(bytes).map_err(|source| BadDocument::NotJson { name, source })?;
    if envelope.version != D::VERSION {
        let (found, known) = (envelope.version, D::VERSION);
        return Err(BadDocument::Version { name, found, known });
    }
    let parsed = serde_json::from_slice(bytes);
    parsed.map_err(|source| match D::FIRST_EDITION {
        Some(field) if has_field(bytes, field) => BadDocument::FirstEdition { name },
        _ => BadDocument::Invalid { name, source },
    })
}

fn has_field(bytes: &[u8], field: &str) -> bool {
    let parsed = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(bytes);
    parsed.is_ok_and(|document| document.contains_key(field))
}

/// Renders a document for users and programs alike.
pub fn render<D: Document>(document: &D) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(document).expect("documents hold only JSON values");
    bytes.push(b'\n');
    bytes
}

/// A value together with the version (`ETag`) under which the store holds it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Versioned<T> {
    /// What was read.
    pub value: T,
    /// What a conditional write must name to replace exactly this.
    pub version: Version,
}

/// A store's opaque name for one state of an object; equal versions mean the same write.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(String);

impl Version {
    /// Wraps what the store said.
    pub fn new(etag: impl Into<String>) -> Self {
        Self(etag.into())
    }

    /// What the store said, unchanged.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
