//! A fast 128-bit hash for the states of small worlds; not for anything an adversary can choose.

use std::hash::{Hash, Hasher};

/// Hashes a state.
pub fn of<T: Hash + ?Sized>(state: &T) -> u128 {
    let mut hasher = Fingerprint::default();
    state.hash(&mut hasher);
    hasher.whole()
}

/// Two lanes of multiply-and-fold, each with its own constants.
struct Fingerprint(u64, u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "both halves are kept")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Fingerprint {
    fn whole(&self) -> u128 {
        let high = fold(self.0 ^ 0xa409_3822_299f_31d0, 0x9e37_79b9_7f4a_7c15);
        let low = fold(self.1 ^ 0x082e_fa98_ec4e_6c89, 0xd6e8_feb8_6659_fd93);
        u128::from(high) << 64 | u128::from(low)
    }
}

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
        self.write_u64(bytes.len() as u64);
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = fold(self.0 ^ value, 0xa076_1d64_78bd_642f).wrapping_add(value);
        let turned = value.rotate_left(32) ^ 0x4528_21e6_38d0_1377;
        self.1 = fold(self.1 ^ turned, 0xe703_7ed1_a0b4_28db).wrapping_add(self.0 >> 32);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn different_small_states_have_different_fingerprints() {
        let states = (0_u16..300).flat_map(|a| (0_u8..100).map(move |b| (a, [b, 0], "x")));

        let prints: HashSet<u128> = states.map(|state| of(&state)).collect();
        let halves: HashSet<u64> = prints.iter().map(|print| (print >> 64) as u64).collect();

        assert_eq!((prints.len(), halves.len()), (30_000, 30_000));
    }
}
