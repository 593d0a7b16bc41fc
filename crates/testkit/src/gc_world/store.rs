//! What lies in the store: chunks, manifests, the indexes, and the requests that may still land.
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
pub(super) const ROUNDS: u8 = 7;
/// The manifests that were there before: one of each subject.
pub(super) const OLD: u8 = 2 * ROUNDS;
pub(super) const OLD_DONOR: u8 = OLD + 1;
const MANIFESTS: usize = OLD_DONOR as usize + 1;

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

/// The first manifest that a save can put.
pub(super) fn first_manifest(save: usize) -> u8 {
    if save == 0 { 0 } else { ROUNDS }
}

/// All manifests that a save can put.
pub(super) fn manifests_of(save: usize) -> u16 {
    0b111_1111 << first_manifest(save)
}

/// The save that put a manifest; `None` for those that were there before.
pub(super) fn maker(manifest: u8) -> Option<usize> {
    (manifest < OLD).then(|| usize::from(manifest / ROUNDS))
}

/// Every subset.
pub(super) fn subsets(bits: u16) -> impl Iterator<Item = u16> {
    let mut next = Some(0_u16);
    std::iter::from_fn(move || {
        let subset = next?;
        let after = subset.wrapping_sub(bits) & bits;
        next = (after != 0).then_some(after);
        Some(subset)
    })
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

    /// What somebody has decided to delete.
    pub(super) fn deleted(self) -> u16 {
        self.deletes
    }

    /// Everything that may be found by looking once.
    pub(super) fn looks(self) -> impl Iterator<Item = u16> + use<> {
        self.looks_at(u16::MAX)
    }

    /// Everything that may be found by looking once at some of them.
    pub(super) fn looks_at(self, things: u16) -> impl Iterator<Item = u16> + use<> {
        let certain = self.certain & things;
        subsets(self.open() & things).map(move |found| certain | found)
    }
}

/// Chunks and manifests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Store {
    pub chunks: Shelf,
    pub manifests: Shelf,
    /// What each manifest names; 0 if it was never sent.
    pub contents: [Bits; MANIFESTS],
    /// Under what each save makes its manifests, as those say.
    pub made: [Lease; 2],
    /// Manifests of saves that had not gathered everything.
    pub provisional: u16,
}

impl Store {
    /// What these manifests name.
    pub(super) fn named_by(&self, manifests: u16) -> Bits {
        ones(manifests).fold(0, |all, at| all | self.contents[usize::from(at)])
    }

    /// Under what a manifest was made; those that were there before by an owner before the first.
    pub(super) fn lease_of(&self, manifest: u8) -> Lease {
        maker(manifest).map_or_else(Lease::default, |save| self.made[save])
    }
}

/// Under what a save works: the life of its subject, and the fence of its index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Lease {
    pub incarnation: u8,
    pub fence: u8,
}

/// The index of a subject: one conditionally written cell.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Index {
    pub version: u8,
    pub lease: Lease,
    pub deleted: bool,
    pub active: u16,
    pub tombstones: u16,
    /// What was published in this incarnation, as `recent` tells.
    pub recent: u16,
}

/// One conditional write of an index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Change {
    Publish(u8),
    /// The same of a save that makes the subject again with it.
    Found(u8),
    Tombstone(u16),
    DropTombstones(u16),
    TakeOver,
    Delete,
    MakeAgain,
}

impl Index {
    pub(super) const NEW: Self = Self {
        version: 1,
        lease: Lease {
            incarnation: 0,
            fence: 1,
        },
        deleted: false,
        active: 0,
        tombstones: 0,
        recent: 0,
    };

    pub(super) fn apply(&mut self, change: Change) {
        self.version += 1;
        match change {
            Change::Publish(manifest) => {
                self.active |= 1 << manifest;
                self.recent |= 1 << manifest;
                self.lease.fence += 1;
            }
            Change::Found(manifest) => {
                self.begin_again();
                self.apply(Change::Publish(manifest));
            }
            Change::Tombstone(manifests) => {
                self.active &= !manifests;
                self.tombstones |= manifests;
            }
            Change::DropTombstones(manifests) => self.tombstones &= !manifests,
            Change::TakeOver => self.lease.fence += 1,
            Change::Delete => {
                self.active = 0;
                self.deleted = true;
            }
            Change::MakeAgain => self.begin_again(),
        }
    }

    fn begin_again(&mut self) {
        *self = Self {
            version: self.version,
            lease: Lease {
                incarnation: self.lease.incarnation + 1,
                fence: Self::NEW.lease.fence,
            },
            ..Self::NEW
        };
    }
}
