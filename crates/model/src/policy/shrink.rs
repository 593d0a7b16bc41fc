//! When a state has become suspiciously little: the one rule for every kind that is saved.
//!
//! An empty mount point, a wrong directory or a failed `git clean` looks like a state of which nearly everything is gone. Such
//! a save is refused unless `--accept-shrink` says that it is meant.

/// Below this many entries a tree may lose most of them: it is small, and users tidy up.
const SMALL: u64 = 20;

/// Of so many entries one must be left.
const ONE_OF: u64 = 10;

/// Whether a state of `now` entries is suspiciously little after one of `before`.
///
/// Nothing at all is suspicious after anything; otherwise nine of ten must be gone, of twenty or more.
pub fn is_suspicious(before: u64, now: u64) -> bool {
    let is_nothing = now == 0 && before > 0;
    is_nothing || before >= SMALL && now.saturating_mul(ONE_OF) < before
}

/// Below this many bytes a state may lose most of them.
const FEW_BYTES: u64 = 4096;

/// Whether a state of `now` bytes is suspiciously little after one of `before`: less than a tenth of what is more than a few.
pub fn is_much_less(before: u64, now: u64) -> bool {
    before >= FEW_BYTES && now.saturating_mul(ONE_OF) < before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_bytes_is_much_less() {
        assert!(is_much_less(1 << 20, 0));
        assert!(is_much_less(4096, 409));
        assert!(!is_much_less(4096, 410));
        assert!(!is_much_less(4095, 0));
    }

    #[test]
    fn nothing_after_something_and_a_tenth_of_much_are_suspicious() {
        assert!(is_suspicious(1, 0));
        assert!(is_suspicious(20, 1));
        assert!(is_suspicious(1000, 99));
        assert!(!is_suspicious(0, 0));
        assert!(!is_suspicious(19, 1));
        assert!(!is_suspicious(20, 2));
        assert!(!is_suspicious(1000, 100));
        assert!(!is_suspicious(u64::MAX, u64::MAX));
    }
}
