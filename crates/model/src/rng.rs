//! Randomness as an argument: where fresh operation ids and jitter come from.

use crate::id::OpId;
use std::fmt::Debug;

/// A source of randomness; the simulator's is seeded, production's is the kernel.
pub trait Rng: Debug + Send + Sync {
    /// Returns an operation id that was never returned before.
    fn op_id(&self) -> OpId;

    /// Returns a number in `0..bound`, or 0 when `bound` is 0.
    fn below(&self, bound: u64) -> u64;

    /// Fills `bytes` with what cannot be guessed; a key can be made of it.
    fn fill(&self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = u8::try_from(self.below(256)).expect("it is below 256");
        }
    }
}
