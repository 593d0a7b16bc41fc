//! The key of a lineage or a pool.

use super::{KEY, Pieces, PoolCipher, derive, fields, root};
use stasis_model::digest::TreeDigest;
use stasis_model::format::key::KeyOwner;
use std::fmt;
use zeroize::{Zeroize, Zeroizing};

pub(super) const DOMAIN: &[u8] = b"stasis data key 1";

/// The key that encrypts everything of one lineage, or of one pool: 32 bytes that leave this type only wrapped.
pub struct DataKey {
    secret: Zeroizing<[u8; KEY]>,
    owner: KeyOwner,
}

impl DataKey {
    /// Makes a key of random bytes, which are cleared.
    pub fn from_random(random: &mut [u8; KEY], owner: KeyOwner) -> Self {
        let mut secret = Zeroizing::new([0; KEY]);
        secret.copy_from_slice(random);
        random.zeroize();
        Self { secret, owner }
    }

    /// Whose key it is.
    pub fn owner(&self) -> &KeyOwner {
        &self.owner
    }

    pub(super) fn secret(&self) -> &[u8; KEY] {
        &self.secret
    }

    /// What may stand for a tree's digest where others read: equal for equal trees of the owner, and of no use to
    /// somebody who guesses the tree.
    pub fn veil(&self, tree: &TreeDigest) -> TreeDigest {
        let owner = self.owner.to_string();
        let info = fields(&[b"tree digest", owner.as_bytes(), tree.as_bytes()]);
        TreeDigest::from_document(*derive(&root(DOMAIN, &self.secret), &info))
    }

    /// What encrypts and decrypts the pieces of the owner.
    pub(crate) fn pieces(&self) -> Pieces {
        Pieces::new(&self.secret, &self.owner)
    }

    /// What names, encrypts and decrypts everything in the pool whose key this is.
    pub fn pool(&self) -> PoolCipher {
        PoolCipher::new(self.pieces(), &self.secret, &self.owner)
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DataKey(of {})", self.owner)
    }
}
