//! Randomness that can be had again: everything random in a simulated run comes from one seed.

use stasis_model::id::OpId;
use stasis_model::rng::Rng;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A generator of numbers (xoshiro256**, seeded by splitmix64) that says the same after the same seed, everywhere.
#[derive(Clone, Debug)]
pub struct SeededRng {
    state: [u64; 4],
}

/// One step of splitmix64: spreads a number over all 64 bits.
fn spread(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *seed;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

impl SeededRng {
    /// The generator that belongs to `seed`.
    pub fn new(mut seed: u64) -> Self {
        Self {
            state: std::array::from_fn(|_| spread(&mut seed)),
        }
    }

    /// Another generator, whose numbers have nothing to do with the ones still to come from this.
    #[must_use = "forking draws a number"]
    pub fn fork(&mut self) -> Self {
        Self::new(self.draw())
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let drawn = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        drawn
    }

    /// A number in `0..bound`, or 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.draw()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("the upper half of a product of two u64")
    }

    /// A number in `range`.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = range.into_inner();
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// One of `things`.
    pub fn one_of<T: Copy, const COUNT: usize>(&mut self, things: [T; COUNT]) -> T {
        let at = self.below(COUNT as u64);
        things[usize::try_from(at).expect("less than a length")]
    }

    /// True `permille` times in a thousand.
    pub fn happens(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }
}

/// A seeded [`Rng`] that one actor of a simulation uses for everything it does.
pub struct ActorRng {
    state: Mutex<State>,
}

struct State {
    rng: SeededRng,
    previewed: Option<OpId>,
}

impl ActorRng {
    /// Randomness that comes from `rng`.
    pub fn new(rng: SeededRng) -> Self {
        let previewed = None;
        Self {
            state: Mutex::new(State { rng, previewed }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says which operation id the next call of [`Rng::op_id`] will return.
    pub fn preview_op_id(&self) -> OpId {
        let drawn = self.fresh_op_id();
        self.state().previewed = Some(drawn);
        drawn
    }

    /// A new operation id, whatever was announced.
    pub fn fresh_op_id(&self) -> OpId {
        let mut state = self.state();
        let mut bytes = [0; 16];
        for half in bytes.chunks_exact_mut(8) {
            half.copy_from_slice(&state.rng.draw().to_le_bytes());
        }
        OpId::from_random(bytes)
    }

    /// A number in `range`.
    pub fn within(&self, range: RangeInclusive<u64>) -> u64 {
        self.state().rng.within(range)
    }

    /// True `permille` times in a thousand.
    pub fn happens(&self, permille: u64) -> bool {
        self.state().rng.happens(permille)
    }

    /// One of `things`, or `None` when there are none.
    pub fn pick<'a, T>(&self, things: &'a [T]) -> Option<&'a T> {
        let at = self.below(things.len() as u64);
        things.get(usize::try_from(at).expect("less than a length"))
    }
}

impl Rng for ActorRng {
    fn op_id(&self) -> OpId {
        let previewed = self.state().previewed.take();
        previewed.unwrap_or_else(|| self.fresh_op_id())
    }

    fn below(&self, bound: u64) -> u64 {
        self.state().rng.below(bound)
    }
}

impl fmt::Debug for ActorRng {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ActorRng")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_says_the_same_and_another_says_something_else() {
        let said = |seed| {
            let mut rng = SeededRng::new(seed);
            [(); 8].map(|()| rng.draw())
        };

        assert_eq!(said(7), said(7));
        assert_ne!(said(7), said(8));
    }

    #[test]
    fn numbers_stay_within_their_bounds_and_reach_them() {
        let mut rng = SeededRng::new(1);
        let drawn: Vec<u64> = (0..1000).map(|_| rng.within(3..=6)).collect();

        assert_eq!(drawn.iter().min(), Some(&3));
        assert_eq!(drawn.iter().max(), Some(&6));
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn what_was_announced_comes_next_and_only_once() {
        let random = ActorRng::new(SeededRng::new(1));
        let previewed = random.preview_op_id();

        assert_eq!(random.op_id(), previewed);
        assert_ne!(random.op_id(), previewed);
    }
}
