//! The key that a tenant keeps, and with which data keys are wrapped.

use super::data_key::DataKey;
use super::{KEY, KeyError, cipher, derive, fields, root};
use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce};
use aws_lc_rs::hkdf::Prk;
use stasis_model::format::document::Document;
use stasis_model::format::key::{KeyDocument, KeyId, KeyOwner, NONCE, WRAPPED, WrappedKey};
use stasis_model::id::OpId;
use stasis_model::time::Timestamp;
use std::fmt;
use std::io::Read;
use zeroize::{Zeroize, Zeroizing};

const DOMAIN: &[u8] = b"stasis tenant key 1";
/// More is not read of what should be a key.
const LONGEST: usize = 66;

/// A tenant's key: 32 bytes that never leave this type.
pub struct TenantKey {
    root: Prk,
    id: KeyId,
}

impl TenantKey {
    /// Reads the text of a key: 64 hexadecimal digits, or 32 bytes in base64; one newline may follow.
    pub fn parse(text: &[u8]) -> Result<Self, KeyError> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let mut key = Zeroizing::new([0; KEY]);
        let read = match text.len() {
            64 => read_hex(text, &mut key),
            44 => read_base64(text, &mut key),
            _ => None,
        };
        read.ok_or(KeyError::NoKey)?;
        Ok(Self::new(&key))
    }

    /// Reads the text of a key from a file, a pipe or whatever else holds it and nothing more.
    pub fn read(mut from: impl Read) -> Result<Self, KeyError> {
        let (mut text, mut length) = (Zeroizing::new([0; LONGEST + 1]), 0);
        loop {
            match from.read(&mut text[length..]) {
                Ok(0) => return Self::parse(&text[..length]),
                Ok(read) => length += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(KeyError::Unread(error)),
            }
        }
    }

    fn new(key: &[u8; KEY]) -> Self {
        let root = root(DOMAIN, key);
        let digest = derive(&root, b"id");
        let first = digest.first_chunk().expect("a digest has 32 bytes");
        let id = KeyId::from_digest(*first);
        Self { root, id }
    }

    /// The text of a new key, made of random bytes, which are cleared.
    pub fn spell(random: &mut [u8; KEY]) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * KEY + 1));
        for byte in random.iter() {
            let digit = |value: u8| char::from_digit(u32::from(value), 16);
            text.extend(digit(byte >> 4).into_iter().chain(digit(byte & 15)));
        }
        text.push('\n');
        random.zeroize();
        text
    }

    /// Which key this is; says nothing of the key itself.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Wraps a data key. `nonce` is random, and never used twice.
    pub fn wrap(&self, key: &DataKey, nonce: [u8; NONCE]) -> WrappedKey {
        let mut wrapped = [0; WRAPPED];
        let (secret, tag) = wrapped.split_at_mut(KEY);
        secret.copy_from_slice(key.secret());
        let (cipher, bound) = self.wrapping(key.owner());
        let (nonce_here, bound) = (Nonce::assume_unique_for_key(nonce), Aad::from(bound));
        let closed = cipher.seal_in_place_separate_tag(nonce_here, bound, secret);
        tag.copy_from_slice(closed.expect("32 bytes can be encrypted").as_ref());
        WrappedKey::new(self.id, nonce, wrapped)
    }

    /// Makes the first document of the key's owner. `nonce` is random.
    pub fn first_document(
        &self,
        key: &DataKey,
        nonce: [u8; NONCE],
        op_id: OpId,
        now: Timestamp,
    ) -> KeyDocument {
        KeyDocument::first(key.owner().clone(), self.wrap(key, nonce), op_id, now)
    }

    /// Reads the data key of `owner` from its document; which key is needed is checked before anything else.
    pub fn unwrap(&self, document: &KeyDocument, owner: &KeyOwner) -> Result<DataKey, KeyError> {
        if document.owner != *owner {
            return Err(KeyError::OtherOwner {
                expected: owner.clone(),
                found: document.owner.clone(),
            });
        }
        if document.key.key_id != self.id {
            return Err(KeyError::WrongKey {
                owner: owner.clone(),
                expected: document.key.key_id,
                given: self.id,
            });
        }
        let mut wrapped = Zeroizing::new(*document.key.bytes());
        let (cipher, bound) = self.wrapping(owner);
        let nonce = Nonce::assume_unique_for_key(*document.key.nonce());
        let opened = cipher.open_in_place(nonce, Aad::from(bound), &mut *wrapped);
        let opened = opened.map_err(|_| KeyError::Damaged(owner.clone()))?;
        let secret = opened.first_chunk_mut().expect("the tag has 16 bytes");
        Ok(DataKey::from_random(secret, owner.clone()))
    }

    /// Wraps the data key of a document by `new` instead of by this key. `nonce` is random.
    pub fn rewrap(
        &self,
        document: &KeyDocument,
        new: &Self,
        nonce: [u8; NONCE],
        op_id: OpId,
    ) -> Result<KeyDocument, KeyError> {
        let key = self.unwrap(document, &document.owner)?;
        Ok(document.rewrapped(new.wrap(&key, nonce), op_id))
    }

    /// The key that wraps for a lineage or a pool, and what is authenticated along with it.
    pub(super) fn wrapping(&self, owner: &KeyOwner) -> (LessSafeKey, Vec<u8>) {
        let (owner, id) = (owner.to_string(), self.id.to_string());
        let version = KeyDocument::VERSION.to_le_bytes();
        let cipher = cipher(&self.root, &fields(&[b"wrap", owner.as_bytes()]));
        let bound = [DOMAIN, &version, owner.as_bytes(), id.as_bytes()];
        (cipher, fields(&bound))
    }
}

impl fmt::Debug for TenantKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "TenantKey({})", self.id)
    }
}

fn read_hex(text: &[u8], key: &mut [u8; KEY]) -> Option<()> {
    for (byte, pair) in key.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
    }
    Some(())
}

/// Reads 43 digits and a `=` without a copy elsewhere that nobody clears.
fn read_base64(text: &[u8], key: &mut [u8; KEY]) -> Option<()> {
    let digits = text.strip_suffix(b"=")?;
    let (mut bits, mut count, mut at) = (0_u32, 0, 0);
    for digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, count) = (bits << 6 | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            *key.get_mut(at)? = (bits >> count).to_le_bytes()[0];
            (bits, at) = (bits & ((1 << count) - 1), at + 1);
        }
    }
    let is_its_spelling = at == KEY && bits == 0;
    bits.zeroize();
    is_its_spelling.then_some(())
}
