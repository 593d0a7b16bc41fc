//! Names that can be told at a glance, and fingerprints that see through them.
//!
//! Operation ids and digests start with a mark and the number of their actor. The writers do the same things, so two
//! worlds that differ only in which writer is which are one: a fingerprint is taken under every renaming of the writers,
//! and the smallest one stands for all.

use stasis_model::digest::{ArchiveDigest, ManifestDigest};
use stasis_model::format::pointer::Active;
use stasis_model::id::OpId;
use std::hash::{Hash, Hasher};

/// How names that carry an actor begin.
const MARK: u8 = 0xA5;
/// How many renamings of three writers there are.
const RENAMINGS: usize = 6;

/// The actor that stands for everything that happened before the world began.
pub(crate) const PAST: u8 = 0xFE;

/// Where each writer's number goes, for every renaming; the first one changes nothing.
const TABLE: [[u8; 3]; RENAMINGS] = [
    [0, 1, 2],
    [1, 0, 2],
    [0, 2, 1],
    [1, 2, 0],
    [2, 0, 1],
    [2, 1, 0],
];

/// The renamings of `writers` writers.
pub(crate) fn renamings(writers: usize) -> &'static [[u8; 3]] {
    match writers {
        0 | 1 => &TABLE[..1],
        2 => &TABLE[..2],
        _ => &TABLE,
    }
}

/// The operation id of an actor's task number `serial`.
pub fn op_id(actor: u8, serial: u8) -> OpId {
    let mut bytes = [0; 16];
    bytes[..3].copy_from_slice(&[MARK, actor, serial]);
    OpId::from_random(bytes)
}

/// The snapshot number `serial` that an actor made.
pub fn snapshot(actor: u8, serial: u8) -> Active {
    let hex = format!("{MARK:02x}{actor:02x}{serial:02x}{:058}", 0);
    let archive: ArchiveDigest = hex.parse().expect("64 hexadecimal digits");
    let manifest: ManifestDigest = hex.parse().expect("64 hexadecimal digits");
    Active {
        archive,
        manifest,
        archive_key: String::new(),
        manifest_key: String::new(),
    }
}

/// A fingerprint under every renaming of the writers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Print([u128; RENAMINGS]);

impl Print {
    /// Takes the fingerprint of `value`.
    pub(crate) fn of(value: &impl Hash, renamings: &[[u8; 3]]) -> Self {
        let mut all = [0; RENAMINGS];
        for (print, renaming) in all.iter_mut().zip(renamings) {
            let mut mixer = Mixer::new(*renaming);
            value.hash(&mut mixer);
            *print = mixer.print();
        }
        Self(all)
    }

    /// The fingerprint under one renaming.
    #[inline]
    pub(crate) fn under(&self, renaming: usize) -> u128 {
        self.0[renaming]
    }
}

/// A value with its fingerprint, taken once.
#[derive(Debug)]
pub(crate) struct Printed<T> {
    pub(crate) value: T,
    pub(crate) print: Print,
}

impl<T: Hash> Printed<T> {
    pub(crate) fn new(value: T, renamings: &[[u8; 3]]) -> Self {
        let print = Print::of(&value, renamings);
        Self { value, print }
    }
}

impl<T: Hash> Hash for Printed<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value.hash(state);
    }
}

/// Joins prints, which are hashes already, into one.
#[derive(Default)]
pub(crate) struct Joint(u128);

impl Joint {
    #[inline]
    pub(crate) fn add(&mut self, print: u128) {
        const BASE: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
        self.0 = self.0.wrapping_mul(BASE).wrapping_add(print);
    }

    #[inline]
    pub(crate) fn print(self) -> u128 {
        self.0 ^ (self.0 >> 64)
    }
}

/// A fast 128-bit hash that renames the writers in what it is given.
pub(crate) struct Mixer {
    lanes: [u64; 2],
    renaming: [u8; 3],
}

const FIRST: u64 = 0x9E37_79B9_7F4A_7C15;
const SECOND: u64 = 0xD6E8_FEB8_6659_FD93;

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the halves of a product")]
fn folded(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

impl Mixer {
    #[inline]
    pub(crate) fn new(renaming: [u8; 3]) -> Self {
        Self {
            lanes: [0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344],
            renaming,
        }
    }

    #[inline]
    pub(crate) fn word(&mut self, word: u64) {
        let [first, second] = self.lanes;
        self.lanes = [
            folded(first ^ word, FIRST).wrapping_add(second),
            folded(second.rotate_left(29) ^ word, SECOND) ^ first,
        ];
    }

    #[inline]
    pub(crate) fn print(mut self) -> u128 {
        self.word(SECOND);
        self.word(FIRST);
        u128::from(self.lanes[0]) << 64 | u128::from(self.lanes[1])
    }
}

impl Hasher for Mixer {
    #[inline]
    fn finish(&self) -> u64 {
        self.lanes[0] ^ self.lanes[1]
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        let mut first = bytes.len() == 16 || bytes.len() == 32;
        for chunk in &mut chunks {
            let mut word: [u8; 8] = chunk.try_into().expect("eight bytes");
            if first
                && word[0] == MARK
                && let Some(new) = self.renaming.get(usize::from(word[1]))
            {
                word[1] = *new;
            }
            first = false;
            self.word(u64::from_le_bytes(word));
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.word(u64::from(number));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.word(u64::from(number));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.word(number);
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.word(number as u64);
    }

    #[inline]
    fn write_isize(&mut self, number: isize) {
        self.word(number.cast_unsigned() as u64);
    }
}
