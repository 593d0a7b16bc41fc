//! The name of a stored chunk: what it is, and since when.

use crate::digest::ChunkDigest;
use crate::invalid::{Invalid, InvalidPart};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Counts the finished gc rounds of one `chunks/`; never decreases.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct GcEpoch(u32);

impl GcEpoch {
    /// No round was ever finished.
    pub const FIRST: Self = Self(0);

    /// The one after this.
    #[must_use = "epochs are values; this one is not changed in place"]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The count itself, as binary lists keep it.
    pub fn number(self) -> u32 {
        self.0
    }

    /// An epoch from a binary list.
    pub fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// Whether there are no epochs left for another round: names must still be able to be born in the next one.
    pub fn is_last(self) -> bool {
        self.0 >= u32::MAX - 1
    }
}

impl fmt::Display for GcEpoch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The name of a stored chunk: `sha256:<64 hex>` if born in epoch 0, else `sha256:<64 hex>.<epoch, 8 hex>`.
///
/// *Always true:* once a name was deleted no save relies on it again; the same bytes get a name with a later birth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct ChunkName {
    digest: ChunkDigest,
    born: GcEpoch,
}

impl ChunkName {
    /// Names a chunk that is stored in the epoch `born`.
    pub fn new(digest: ChunkDigest, born: GcEpoch) -> Self {
        Self { digest, born }
    }

    /// What the chunk is.
    pub fn digest(&self) -> ChunkDigest {
        self.digest
    }

    /// The epoch the name was made in.
    pub fn born(&self) -> GcEpoch {
        self.born
    }
}

/// The length of a name in a list of names.
pub const NAME_ROW: usize = 36;

/// Names as lists keep them: for each its digest and the epoch of its birth, little endian.
pub fn to_rows<'n>(names: impl IntoIterator<Item = &'n ChunkName>) -> Vec<u8> {
    let row = |name: &ChunkName| {
        let mut row = [0; NAME_ROW];
        row[..32].copy_from_slice(name.digest.as_bytes());
        row[32..].copy_from_slice(&name.born.0.to_le_bytes());
        row
    };
    names.into_iter().flat_map(row).collect()
}

/// The names in a list; bytes that two builds would write differently are refused.
pub fn from_rows(rows: &[u8]) -> Result<Vec<ChunkName>, Invalid> {
    let (rows, rest) = rows.as_chunks::<NAME_ROW>();
    if !rest.is_empty() {
        return Err(Invalid::new("the list of names ends within a name"));
    }
    let name = |row: &[u8; NAME_ROW]| {
        let (digest, born) = row.split_at(32);
        let digest = digest.try_into().expect("a row has 36 bytes");
        let born = born.try_into().expect("a row has 36 bytes");
        let born = GcEpoch(u32::from_le_bytes(born));
        ChunkName::new(ChunkDigest::from_document(digest), born)
    };
    let names: Vec<ChunkName> = rows.iter().map(name).collect();
    if !names.is_sorted_by(|a, b| a < b) {
        return Err(Invalid::new(
            "the names in the list are not sorted, or one is there twice",
        ));
    }
    Ok(names)
}

impl fmt::Display for ChunkName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "sha256:{}", self.digest)?;
        match self.born {
            GcEpoch::FIRST => Ok(()),
            GcEpoch(born) => write!(out, ".{born:08x}"),
        }
    }
}

impl fmt::Debug for ChunkName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ChunkName({}.{})", self.digest.prefix(), self.born)
    }
}

impl FromStr for ChunkName {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let rest = text.strip_prefix("sha256:").ok_or_else(no_hash)?;
        let (digest, born) = match rest.split_once('.') {
            Some((digest, born)) => (digest, parse_born(born)?),
            None => (rest, GcEpoch::FIRST),
        };
        let digest = digest.parse().invalid("a chunk's name holds its digest")?;
        Ok(Self { digest, born })
    }
}

/// Only SHA-256 is known.
pub(crate) fn no_hash() -> Invalid {
    Invalid::new("a chunk's name begins with `sha256:`")
}

/// What follows the dot is not an epoch, or is one that is never written.
pub(crate) fn no_epoch() -> Invalid {
    Invalid::new("after the dot of a chunk's name stand 8 lower-case hexadecimal digits, not all 0")
}

fn parse_born(text: &str) -> Result<GcEpoch, Invalid> {
    let plain = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 8 || !text.bytes().all(plain) {
        return Err(no_epoch());
    }
    match u32::from_str_radix(text, 16) {
        Ok(born) if born > 0 => Ok(GcEpoch(born)),
        _ => Err(no_epoch()),
    }
}

impl TryFrom<String> for ChunkName {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl From<ChunkName> for String {
    fn from(name: ChunkName) -> Self {
        name.to_string()
    }
}
