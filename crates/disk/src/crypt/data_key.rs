//! The key of a lineage.

use super::{KEY, Pieces, derive, fields, root};
use stasis_model::digest::TreeDigest;
use stasis_model::id::Lineage;
use std::fmt;
use zeroize::{Zeroize, Zeroizing};

pub(super) const DOMAIN: &[u8] = b"stasis data key 1";

/// The key that encrypts everything of one lineage: 32 bytes that leave this type only wrapped.
pub struct DataKey {
    secret: Zeroizing<[u8; KEY]>,
    lineage: Lineage,
}

impl DataKey {
    /// Makes a key of random bytes, which are cleared.
    pub fn from_random(random: &mut [u8; KEY], lineage: Lineage) -> Self {
        let mut secret = Zeroizing::new([0; KEY]);
        secret.copy_from_slice(random);
        random.zeroize();
        Self { secret, lineage }
    }

    /// Whose key it is.
    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    pub(super) fn secret(&self) -> &[u8; KEY] {
        &self.secret
    }

    /// What may stand for a tree's digest where others read: equal for equal trees of the lineage, and of no use to
    /// somebody who guesses the tree.
    pub fn veil(&self, tree: &TreeDigest) -> TreeDigest {
        let lineage = self.lineage.to_string();
        let info = fields(&[b"tree digest", lineage.as_bytes(), tree.as_bytes()]);
        TreeDigest::from_document(*derive(&root(DOMAIN, &self.secret), &info))
    }

    /// What encrypts and decrypts the pieces of the lineage.
    pub(crate) fn pieces(&self) -> Pieces {
        Pieces::new(&self.secret, &self.lineage)
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DataKey(of {})", self.lineage)
    }
}
