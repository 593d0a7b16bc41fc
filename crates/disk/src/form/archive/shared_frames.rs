//! Finds the frames of a new archive in an older one, as ranges of bytes.

use stasis_model::shared_range::{SharedRange, SharedRanges};
use std::collections::HashMap;
use std::hash::Hash;

/// Compares the frames of a file that is being written with those of an older one. `Id` is equal only where the stored
/// bytes are.
#[derive(Clone, Debug)]
pub(super) struct SharedFrames<Id> {
    /// The frames of the older file in their order: each with where it begins and how long it is.
    older: Vec<(Id, u64, u64)>,
    places: HashMap<Id, usize>,
    /// Where the next frame of the new file begins.
    at: u64,
    /// The frame that would continue the last range.
    next: Option<usize>,
    ranges: SharedRanges,
}

impl<Id: Clone + Eq + Hash> SharedFrames<Id> {
    /// Takes the frames of the older file, with their lengths.
    pub(super) fn with(older: impl IntoIterator<Item = (Id, u64)>) -> Self {
        let (mut all, mut places, mut start) = (Vec::new(), HashMap::new(), 0);
        for (number, (id, length)) in older.into_iter().enumerate() {
            places.entry(id.clone()).or_insert(number);
            all.push((id, start, length));
            start += length;
        }
        Self {
            older: all,
            places,
            at: 0,
            next: None,
            ranges: SharedRanges::default(),
        }
    }

    /// Adds the next frame of the new file.
    pub(super) fn add(&mut self, id: &Id, length: u64) {
        // A frame that the older file has several times, such as one of zeros, is the one that makes the range longer.
        let follows = self
            .next
            .filter(|next| self.older.get(*next).is_some_and(|(there, ..)| there == id));
        let found = follows.or_else(|| self.places.get(id).copied());
        let found = found.filter(|found| self.older[*found].2 == length);
        if let Some(found) = found {
            self.ranges.push(SharedRange {
                at: self.at,
                from: self.older[found].1,
                length,
            });
        }
        self.next = found.map(|found| found + 1);
        self.at += length;
    }

    /// Forgets every frame beyond the first `length` bytes of the new file.
    pub(super) fn return_to(&mut self, length: u64) {
        self.ranges.truncate(length);
        (self.at, self.next) = (length, None);
    }

    /// The bytes that both files have.
    pub(super) fn finish(self) -> SharedRanges {
        self.ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(older: &str, new: &str) -> Vec<(u64, u64, u64)> {
        let mut shared = SharedFrames::with(older.chars().map(|id| (id, 10)));
        for id in new.chars() {
            shared.add(&id, 10);
        }
        let ranges = shared.finish();
        let ranges = ranges.as_slice().iter();
        ranges.map(|one| (one.at, one.from, one.length)).collect()
    }

    #[test]
    fn frames_that_stayed_are_one_range_on_each_side_of_the_one_that_changed() {
        assert_eq!(ranges("abcdef", "abXdef"), [(0, 0, 20), (30, 30, 30)]);
        assert_eq!(ranges("abcdef", "aXYbcdef"), [(0, 0, 10), (30, 10, 50)]);
        assert_eq!(ranges("abcdef", "efab"), [(0, 40, 20), (20, 0, 20)]);
        assert_eq!(ranges("abc", "xyz"), []);
        assert_eq!(ranges("", "xyz"), []);
    }

    #[test]
    fn frames_that_repeat_stay_one_range() {
        assert_eq!(ranges("a000b00c", "a000b00c"), [(0, 0, 80)]);
        assert_eq!(ranges("a000b00c", "X000b00c"), [(10, 10, 70)]);
    }

    #[test]
    fn a_frame_of_another_length_is_another_frame() {
        let mut shared = SharedFrames::with([('a', 10), ('b', 10)]);
        shared.add(&'a', 11);
        shared.add(&'b', 10);

        let expected = SharedRange {
            at: 11,
            from: 10,
            length: 10,
        };
        assert_eq!(shared.finish().as_slice(), [expected]);
    }

    #[test]
    fn what_was_taken_back_is_not_shared() {
        let mut shared = SharedFrames::with("abcd".chars().map(|id| (id, 10)));
        for id in ['a', 'b', 'c'] {
            shared.add(&id, 10);
        }

        shared.return_to(10);
        shared.add(&'X', 10);
        shared.add(&'d', 10);

        let ranges = shared.finish();
        let ranges: Vec<_> = ranges
            .as_slice()
            .iter()
            .map(|one| (one.at, one.from))
            .collect();
        assert_eq!(ranges, [(0, 0), (20, 30)]);
    }
}
