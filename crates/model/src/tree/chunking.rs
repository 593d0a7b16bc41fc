//! Where files are cut: pure functions over bytes, part of the format.
//!
//! *Always true:* the pieces, one after the other, are the input; the same bytes with the same settings are cut at the same
//! places; and where a cut falls depends only on bytes since the cut before, so that an insertion moves few of them.

use serde::{Deserialize, Serialize};

/// Files of at least this many bytes are cut by content; smaller ones are gathered into bundles.
pub const LARGE: u64 = 1 << 20;
/// A bundle is never closed before it holds this much.
pub const BUNDLE_MIN: usize = 512 << 10;
/// A bundle never holds more than this, unless a single file does.
pub const BUNDLE_MAX: usize = 2 << 20;
/// No chunk is ever larger than this.
pub const CHUNK_MAX: usize = 8 << 20;
/// Databases, and files changed in place, are compared in pieces of this many bytes.
pub const PIECE: usize = 16 << 10;
/// Databases are cut into chunks of this many bytes: whole pieces, at fixed places.
pub const PIECES_CUT: u64 = 1 << 20;

/// How a repository cuts large files; chosen once, in `repo.json`, and never changed: it is what makes chunks meet again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Chunker {
    /// The only one we know is [`FASTCDC`].
    pub algorithm: String,
    /// No cut before this many bytes. Even.
    pub min: u32,
    /// Cuts come about this far apart. A power of two.
    pub avg: u32,
    /// A cut at the latest after this many bytes. Even.
    pub max: u32,
    /// Moves the cuts of one repository against those of others.
    pub seed: u64,
}

/// `FastCDC` of 2020, two bytes at a time, normalised by one bit.
pub const FASTCDC: &str = "fastcdc-2020";

impl Default for Chunker {
    fn default() -> Self {
        Self {
            algorithm: FASTCDC.to_owned(),
            min: 256 << 10,
            avg: 1 << 20,
            max: 4 << 20,
            seed: 0,
        }
    }
}

impl Chunker {
    /// Whether this build can cut like that.
    pub fn is_sound(&self) -> bool {
        let even = |size: u32| size.is_multiple_of(2);
        self.algorithm == FASTCDC
            && (64..=1 << 20).contains(&self.min)
            && (256..=4 << 20).contains(&self.avg)
            && self.avg.is_power_of_two()
            && self.max as usize <= CHUNK_MAX
            && even(self.min)
            && even(self.max)
            && self.min < self.avg
            && self.avg < self.max
    }

    /// Makes the tables once, for many cuts.
    pub fn cutter(&self) -> Cutter {
        let (small, large) =
            fastcdc::v2020::select_masks(self.avg as usize, fastcdc::v2020::Normalization::Level1);
        let (gear, shifted) = fastcdc::v2020::get_gear_with_seed(self.seed);
        Cutter {
            sizes: [self.min as usize, self.avg as usize, self.max as usize],
            masks: [small, large],
            gear: gear.into_owned(),
            shifted: shifted.into_owned(),
        }
    }
}

/// Cuts bytes.
#[derive(Clone, Debug)]
pub struct Cutter {
    sizes: [usize; 3],
    masks: [u64; 2],
    gear: Vec<u64>,
    shifted: Vec<u64>,
}

impl Cutter {
    /// The most bytes that [`Cutter::cut`] looks at.
    pub fn reach(&self) -> usize {
        self.sizes[2]
    }

    /// How long the first piece of `bytes` is. Unless they are the end of the file there must be [`Cutter::reach`] of them.
    pub fn cut(&self, bytes: &[u8]) -> usize {
        let [min, avg, max] = self.sizes;
        let [small, large] = self.masks;
        let (gear, shifted) = (&self.gear, &self.shifted);
        let (small_ls, large_ls) = (small << 1, large << 1);
        fastcdc::v2020::cut_gear(
            bytes, min, avg, max, small, large, small_ls, large_ls, gear, shifted,
        )
        .1
    }
}

/// Whether a bundle that holds `held` bytes ends after a file of `length` bytes with this digest.
///
/// The likelihood grows with the file's length, so that bundles are about as long whatever files they hold.
pub fn ends_bundle(held: usize, length: usize, digest: &[u8; 32]) -> bool {
    if held < BUNDLE_MIN {
        return false;
    }
    let drawn = u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]);
    let likelihood = (length as u64 + 1) * (u64::from(u32::MAX) / BUNDLE_MIN as u64);
    held >= BUNDLE_MAX || u64::from(drawn) < likelihood
}

#[cfg(test)]
mod tests;
