//! `key.json`: the data key of a lineage or of a pool, wrapped by its tenant's key.
//!
//! Every archive of a lineage, and everything in a pool, is encrypted with one data key. It lies beside them, encrypted
//! itself, so that a tenant's new key costs one small write and no archive or chunk. Nothing in the document is secret.
//!
//! *Always true:* the data key never changes while the document is rewritten; only its wrapping does. A document that is
//! lost takes everything with it that its key encrypts, so it is created once, before the first snapshot, and never deleted.

use crate::base64;
use crate::format::document::Document;
use crate::id::{Generation, Lineage, OpId, TenantId};
use crate::invalid::Invalid;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::str::FromStr;

/// The length of the number that makes two wrappings different.
pub const NONCE: usize = 12;
/// The length of a wrapped data key: 32 bytes and a tag of 16.
pub const WRAPPED: usize = 48;

/// Which tenant key it is: says nothing of the key, and may be shown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyId([u8; 8]);

impl KeyId {
    /// The id that begins with these bytes of a digest.
    pub fn from_digest(first: [u8; 8]) -> Self {
        Self(first)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "KeyId({self})")
    }
}

impl FromStr for KeyId {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let bad = || Invalid::new("the id of a key has 16 lower-case hexadecimal digits");
        let number = u64::from_str_radix(text, 16).ok().ok_or_else(bad)?;
        let id = Self(number.to_be_bytes());
        let is_its_spelling = id.to_string() == text;
        is_its_spelling.then_some(id).ok_or_else(bad)
    }
}

impl TryFrom<String> for KeyId {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl From<KeyId> for String {
    fn from(id: KeyId) -> Self {
        id.to_string()
    }
}

/// How a data key is wrapped; a build refuses what it does not know.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Wrapping {
    /// AES-256-GCM under a key that HKDF-SHA-256 makes of the tenant's key and the owner of the data key.
    #[serde(rename = "hkdf-sha256+aes-256-gcm")]
    HkdfAesGcm,
}

impl fmt::Display for Wrapping {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HkdfAesGcm => out.write_str("hkdf-sha256+aes-256-gcm"),
        }
    }
}

/// Bytes of a known length, in base64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Octets<const N: usize>([u8; N]);

impl<const N: usize> TryFrom<String> for Octets<N> {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = base64::decode(&text).ok_or("not base64 as it is spelled here")?;
        let bytes = bytes.try_into().map_err(|_| "not as long as it must be")?;
        Ok(Self(bytes))
    }
}

impl<const N: usize> From<Octets<N>> for String {
    fn from(octets: Octets<N>) -> Self {
        base64::encode(&octets.0)
    }
}

/// A data key as only its tenant's key can read it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct WrappedKey {
    /// How it is wrapped.
    pub algorithm: Wrapping,
    /// Which tenant key wrapped it.
    pub key_id: KeyId,
    nonce: Octets<NONCE>,
    wrapped: Octets<WRAPPED>,
}

impl WrappedKey {
    /// What a wrapping gave.
    pub fn new(key_id: KeyId, nonce: [u8; NONCE], wrapped: [u8; WRAPPED]) -> Self {
        Self {
            algorithm: Wrapping::HkdfAesGcm,
            key_id,
            nonce: Octets(nonce),
            wrapped: Octets(wrapped),
        }
    }

    /// The number that makes this wrapping different from others of the same key.
    pub fn nonce(&self) -> &[u8; NONCE] {
        &self.nonce.0
    }

    /// The encrypted key and its tag.
    pub fn bytes(&self) -> &[u8; WRAPPED] {
        &self.wrapped.0
    }
}

/// A pool of chunks: that of a tenant, or the one that a directory's own state is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PoolId {
    /// The pool that everything chunked of a tenant lies in.
    Tenant(TenantId),
    /// The pool of a store that is one directory's own state.
    State,
}

impl fmt::Display for PoolId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant(tenant) => write!(out, "pools/{tenant}"),
            Self::State => out.write_str("state"),
        }
    }
}

impl TryFrom<String> for PoolId {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        match text.strip_prefix("pools/") {
            Some(tenant) => Ok(Self::Tenant(tenant.parse()?)),
            None if text == "state" => Ok(Self::State),
            None => Err(Invalid::new("a pool is `pools/<tenant>`, or `state`")),
        }
    }
}

impl From<PoolId> for String {
    fn from(id: PoolId) -> Self {
        id.to_string()
    }
}

/// What a data key encrypts. No two owners are spelled alike: a lineage has an `@`, a pool never.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyOwner {
    /// The archives of a profile's lineage.
    Lineage(Lineage),
    /// The chunks and manifests of a pool.
    Pool(PoolId),
}

impl fmt::Display for KeyOwner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lineage(lineage) => lineage.fmt(out),
            Self::Pool(pool) => pool.fmt(out),
        }
    }
}

impl From<Lineage> for KeyOwner {
    fn from(lineage: Lineage) -> Self {
        Self::Lineage(lineage)
    }
}

impl From<PoolId> for KeyOwner {
    fn from(pool: PoolId) -> Self {
        Self::Pool(pool)
    }
}

/// The document `key.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyDocument {
    version: u64,
    /// The operation that wrote these bytes.
    pub op_id: OpId,
    /// Counts the writes.
    pub generation: Generation,
    /// The data key.
    #[serde(flatten)]
    pub key: WrappedKey,
    /// What it encrypts.
    #[serde(flatten)]
    pub owner: KeyOwner,
    /// When the data key was made.
    #[serde(rename = "created_at_ms")]
    pub created_at: Timestamp,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Document for KeyDocument {
    const NAME: &'static str = "key.json";
}

impl KeyDocument {
    /// The first document of a lineage or a pool.
    pub fn first(owner: KeyOwner, key: WrappedKey, op_id: OpId, now: Timestamp) -> Self {
        Self {
            version: Self::VERSION,
            op_id,
            generation: Generation(1),
            key,
            owner,
            created_at: now,
            extra: Map::new(),
        }
    }

    /// The same data key in another wrapping, one write later; unknown fields stay.
    #[must_use = "the document is not changed in place"]
    pub fn rewrapped(&self, key: WrappedKey, op_id: OpId) -> Self {
        Self {
            op_id,
            generation: self.generation.next(),
            key,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests;
