//! What stands for the extended attributes of an entry, where a list does not hold the attributes themselves.

use super::Attribute;

/// What separates this digest from all others.
const DOMAIN: &str = "stasis workspace attributes v1";
const LENGTH: usize = 16;

/// What stands for the extended attributes that a user gave an entry: those whose names begin with `user.`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttributesDigest([u8; LENGTH]);

impl AttributesDigest {
    /// How many bytes it has.
    pub const LENGTH: usize = LENGTH;

    /// That of these attributes, which are sorted; nothing where none is a user's.
    pub fn of(all: &[Attribute]) -> Option<Self> {
        let mut own = all.iter().filter(|one| one.name.starts_with(b"user."));
        let first = own.next()?;
        let mut bytes = Vec::new();
        for one in std::iter::once(first).chain(own) {
            put(&mut bytes, &one.name);
            put(&mut bytes, &one.value);
        }
        let mut hasher = blake3::Hasher::new_derive_key(DOMAIN);
        hasher.update(&bytes);
        let digest = hasher.finalize();
        let digest = digest.as_bytes().first_chunk();
        digest.copied().map(Self)
    }

    /// One that was written down.
    pub fn from_document(bytes: [u8; LENGTH]) -> Self {
        Self(bytes)
    }

    /// As it is written down.
    pub fn as_bytes(&self) -> &[u8; LENGTH] {
        &self.0
    }

    /// As it is cached; nothing is all zeros.
    pub fn to_cached(this: Option<Self>) -> [u8; LENGTH] {
        this.map_or([0; LENGTH], |this| this.0)
    }

    /// From a cache.
    pub fn from_cached(bytes: [u8; LENGTH]) -> Option<Self> {
        (bytes != [0; LENGTH]).then_some(Self(bytes))
    }
}

impl std::fmt::Display for AttributesDigest {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

fn put(bytes: &mut Vec<u8>, text: &[u8]) {
    let length = u32::try_from(text.len()).expect("no attribute of Linux is that long");
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(text);
}
