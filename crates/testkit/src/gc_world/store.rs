//! What lies in the store: chunks, manifests, the index, and the requests that may still land.
//!
//! Sets are bits. Every PUT and DELETE that was ever sent may land at any later time, and again as often as it likes:
//! that covers lost answers, duplicates and delay at once. So whether a thing that was both put and deleted is there is
//! open at every single look, and both answers are tried; moves for landing requests would only add the same twice.

use stasis_model::digest::ChunkDigest;
use stasis_model::id::SnapshotId;
use stasis_model::protocol::gc::{ChunkName, GcEpoch, Names};
use std::sync::LazyLock;

/// Chunk names as bits: digest times [`BIRTHS`] plus epoch of birth.
pub(super) type Bits = u16;

pub(super) const DIGESTS: u16 = 3;
/// Two rounds can condemn, so names are born in epochs 0 to 3 at most.
pub(super) const BIRTHS: u16 = 4;
/// How many manifests one save may write.
pub(super) const ROUNDS: u8 = 6;
/// The manifest that was there before.
pub(super) const OLD: u8 = 2 * ROUNDS;
const MANIFESTS: usize = OLD as usize + 1;

static NAMES: LazyLock<Vec<ChunkName>> = LazyLock::new(|| {
    let mut names = Vec::new();
    for digest in [b"a", b"b", b"c"].map(|text| ChunkDigest::of(text)) {
        let mut epoch = GcEpoch::FIRST;
        for _ in 0..BIRTHS {
            names.push(ChunkName::new(digest, epoch));
            epoch = epoch.next();
        }
    }
    names
});

static IDS: LazyLock<Vec<SnapshotId>> = LazyLock::new(|| {
    let id = |n| format!("manifest-{n}").parse().expect("a plain name");
    (0..MANIFESTS).map(id).collect()
});

pub(super) fn bit_of(name: &ChunkName) -> Bits {
    let digest = (0..DIGESTS).find(|digest| digest_of(*digest) == name.digest());
    let first = digest.expect("only our digests are named") * BIRTHS;
    let born = (0..BIRTHS).find(|born| NAMES[usize::from(first + born)] == *name);
    1 << (first + born.expect("no name is born after the last epoch"))
}

pub(super) fn bits_of(names: &Names) -> Bits {
    names.iter().map(bit_of).fold(0, |all, bit| all | bit)
}

pub(super) fn names_of(bits: Bits) -> Names {
    ones(bits).map(|at| NAMES[usize::from(at)]).collect()
}

pub(super) fn digest_of(digest: u16) -> ChunkDigest {
    NAMES[usize::from(digest * BIRTHS)].digest()
}

/// All names a digest can have.
pub(super) fn any_birth(digest: u16) -> Bits {
    0b1111 << (digest * BIRTHS)
}

/// The names of the same digests, as if born in epoch 0.
pub(super) fn plain(bits: Bits) -> Bits {
    ones(bits).fold(0, |all, at| all | 1 << (u16::from(at) / BIRTHS * BIRTHS))
}

pub(super) fn ones(bits: u16) -> impl Iterator<Item = u8> {
    (0..16).filter(move |at| bits & (1 << at) != 0)
}

pub(super) fn id_of(manifest: u8) -> SnapshotId {
    IDS[usize::from(manifest)].clone()
}

pub(super) fn manifest_of(id: &SnapshotId) -> u8 {
    let at = IDS.iter().position(|known| known == id);
    u8::try_from(at.expect("only our manifests are named")).expect("few manifests")
}

/// Every subset.
pub(super) fn subsets(bits: u16) -> impl Iterator<Item = u16> {
    (0..=bits).filter(move |subset| subset & !bits == 0)
}

/// Things of one kind, and the requests that were sent about them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Shelf {
    /// A PUT was sent.
    puts: u16,
    /// A PUT was acknowledged and no DELETE was sent.
    certain: u16,
    deletes: u16,
}

impl Shelf {
    pub(super) fn put(&mut self, things: u16) {
        self.puts |= things;
        self.certain |= things & !self.deletes;
    }

    /// Sends a PUT that may land, or not.
    pub(super) fn put_unanswered(&mut self, things: u16) {
        self.puts |= things;
    }

    pub(super) fn delete(&mut self, things: u16) {
        self.deletes |= things;
        self.certain &= !things;
    }

    /// Whether these are there is not certain any more.
    pub(super) fn doubt(&mut self, things: u16) {
        self.certain &= !things;
    }

    /// What is there and stays there until somebody decides to delete it.
    pub(super) fn certain(self) -> u16 {
        self.certain
    }

    /// What may be there or not.
    pub(super) fn open(self) -> u16 {
        self.puts & !self.certain
    }

    /// Everything that may be found by looking once.
    pub(super) fn looks(self) -> impl Iterator<Item = u16> + use<> {
        let certain = self.certain;
        subsets(self.open()).map(move |found| certain | found)
    }
}

/// Chunks and manifests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Store {
    pub chunks: Shelf,
    pub manifests: Shelf,
    /// What each manifest names; 0 if it was never sent.
    pub contents: [Bits; MANIFESTS],
}

impl Store {
    /// What these manifests name.
    pub(super) fn named_by(&self, manifests: u16) -> Bits {
        ones(manifests).fold(0, |all, at| all | self.contents[usize::from(at)])
    }
}

/// The index: one conditionally written cell.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Index {
    pub version: u8,
    /// Of each save's subject; a save's lease has epoch 1.
    pub fences: [u8; 2],
    pub active: u16,
    pub tombstones: u16,
    /// What was ever published, as `recent` tells.
    pub ever: u16,
}

/// One conditional write of the index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Change {
    Publish(u8),
    Tombstone(u16),
    TakeOver(u8),
}

impl Index {
    pub(super) fn apply(&mut self, change: Change) {
        self.version += 1;
        match change {
            Change::Publish(manifest) => {
                self.active |= 1 << manifest;
                self.ever |= 1 << manifest;
            }
            Change::Tombstone(manifests) => {
                self.active &= !manifests;
                self.tombstones |= manifests;
            }
            Change::TakeOver(subject) => self.fences[usize::from(subject)] += 1,
        }
    }
}

/// Whose lease a manifest was made under; the old manifest's subject is the first save's, one owner earlier.
pub(super) fn maker(manifest: u8) -> (usize, u8) {
    match manifest {
        OLD => (0, 0),
        _ => (usize::from(manifest / ROUNDS), 1),
    }
}
