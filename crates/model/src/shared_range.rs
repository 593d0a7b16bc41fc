//! Which bytes of a new file an older file has too, and where.

/// Bytes that are the same in two files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedRange {
    /// Where they begin in the new file.
    pub at: u64,
    /// Where they begin in the older one.
    pub from: u64,
    /// How many they are.
    pub length: u64,
}

impl SharedRange {
    /// Where they end in the new file.
    pub fn end(&self) -> u64 {
        self.at + self.length
    }

    fn is_followed_by(&self, next: &Self) -> bool {
        self.end() == next.at && self.from + self.length == next.from
    }
}

/// All bytes that two files share, in the order of the new one.
///
/// *Always true:* no two ranges overlap in the new file, none is empty, and two that follow each other in both files are
/// one range.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SharedRanges(Vec<SharedRange>);

impl SharedRanges {
    /// Adds a range that begins where the last one ends in the new file, or later.
    pub fn push(&mut self, range: SharedRange) {
        debug_assert!(self.0.last().is_none_or(|last| last.end() <= range.at));
        match self.0.last_mut() {
            _ if range.length == 0 => {}
            Some(last) if last.is_followed_by(&range) => last.length += range.length,
            _ => self.0.push(range),
        }
    }

    /// Forgets what lies beyond the first `length` bytes of the new file.
    pub fn truncate(&mut self, length: u64) {
        while let Some(last) = self.0.last_mut() {
            if last.end() <= length {
                break;
            }
            last.length = length.saturating_sub(last.at);
            if last.length > 0 {
                break;
            }
            self.0.pop();
        }
    }

    /// The ranges, in order.
    pub fn as_slice(&self) -> &[SharedRange] {
        &self.0
    }

    /// How many bytes are shared.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|range| range.length).sum()
    }
}

impl FromIterator<SharedRange> for SharedRanges {
    /// Takes ranges in the order of the new file.
    fn from_iter<I: IntoIterator<Item = SharedRange>>(ranges: I) -> Self {
        let mut all = Self::default();
        for range in ranges {
            all.push(range);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(at: u64, from: u64, length: u64) -> SharedRange {
        SharedRange { at, from, length }
    }

    #[test]
    fn what_follows_in_both_files_is_one_range() {
        let all: SharedRanges = [
            range(0, 10, 5),
            range(5, 15, 5),
            range(10, 30, 5),
            range(16, 36, 4),
            range(20, 40, 0),
        ]
        .into_iter()
        .collect();

        let expected = [range(0, 10, 10), range(10, 30, 5), range(16, 36, 4)];
        assert_eq!(all.as_slice(), expected);
        assert_eq!(all.bytes(), 19);
    }

    #[test]
    fn what_was_taken_back_is_not_shared() {
        let whole: SharedRanges = [range(0, 10, 10), range(10, 30, 5), range(16, 36, 4)]
            .into_iter()
            .collect();
        let cut = |length| {
            let mut ranges = whole.clone();
            ranges.truncate(length);
            ranges.as_slice().to_vec()
        };

        assert_eq!(cut(20), whole.as_slice());
        assert_eq!(
            cut(17),
            [range(0, 10, 10), range(10, 30, 5), range(16, 36, 1)]
        );
        assert_eq!(cut(16), [range(0, 10, 10), range(10, 30, 5)]);
        assert_eq!(cut(7), [range(0, 10, 7)]);
        assert_eq!(cut(0), []);
    }
}
