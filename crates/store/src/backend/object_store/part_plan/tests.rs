use super::*;
use crate::layout;
use proptest::prelude::*;
use stasis_model::shared_range::SharedRanges;

const MIB: u64 = 1 << 20;

fn planned(
    size: u64,
    ranges: &SharedRanges,
    source_size: u64,
    limits: &PartLimits,
) -> Option<Vec<PlannedPart>> {
    let source = CopySource {
        key: &layout::probe_result(),
        size: source_size,
        ranges,
    };
    plan(size, &source, limits)
}

fn sent(parts: &[PlannedPart]) -> u64 {
    let sent = |part: &PlannedPart| match part {
        PlannedPart::Copied(_) => 0,
        PlannedPart::Sent(range) => range.end - range.start,
    };
    parts.iter().map(sent).sum()
}

fn shared(ranges: &[(u64, u64, u64)]) -> SharedRanges {
    let range = |(at, from, length): &(u64, u64, u64)| SharedRange {
        at: *at,
        from: *from,
        length: *length,
    };
    ranges.iter().map(range).collect()
}

/// An archive of `size` bytes of which 256 KiB at `changed` and an index of 64 KiB at its end are new.
fn changed_at(changed: u64, size: u64) -> Vec<PlannedPart> {
    let behind = changed + MIB / 4;
    let index = size - MIB / 16;
    let ranges = shared(&[(0, 0, changed), (behind, behind, index - behind)]);
    planned(size, &ranges, size, &PartLimits::of_s3(8 * MIB)).unwrap()
}

#[test]
fn one_change_in_an_archive_of_thirty_mebibytes_sends_less_than_six_wherever_it_is() {
    for changed in 0..118 {
        let parts = changed_at(changed * MIB / 4, 30 * MIB);

        assert!(sent(&parts) < 6 * MIB, "{changed}: {parts:?}");
    }
}

#[test]
fn a_large_archive_is_copied_in_parts_that_go_side_by_side() {
    let parts = changed_at(1000 * MIB, 2000 * MIB);

    let copied = parts
        .iter()
        .filter(|part| matches!(part, PlannedPart::Copied(_)));
    assert_eq!(copied.count(), 32);
    assert!(sent(&parts) < 6 * MIB, "{parts:?}");
}

#[test]
fn nothing_is_planned_where_nothing_long_enough_is_shared() {
    let limits = PartLimits::of_s3(8 * MIB);
    for ranges in [
        shared(&[]),
        shared(&[(0, 0, 4 * MIB)]),
        shared(&[(0, 0, 4 * MIB), (6 * MIB, 6 * MIB, 4 * MIB)]),
        // A last part may be short, but this one saves too little.
        shared(&[(16 * MIB, 16 * MIB, 4 * MIB)]),
    ] {
        assert_eq!(planned(20 * MIB, &ranges, 20 * MIB, &limits), None);
    }
}

#[test]
fn parts_of_one_length_copy_what_lies_within_one_run() {
    let size = 191 * MIB;
    let (changed, index) = (77 * MIB, size - MIB / 16);
    let behind = changed + MIB / 4;
    // What lies behind the change lies elsewhere in the source.
    let ranges = shared(&[(0, 0, changed), (behind, behind - 17, index - behind)]);
    let source = CopySource {
        key: &layout::probe_result(),
        size,
        ranges: &ranges,
    };

    let parts = plan_of_one_length(size, &source, &PartLimits::of_s3(8 * MIB)).unwrap();

    let lengths = parts.iter().map(|part| match part {
        PlannedPart::Copied(range) => range.length,
        PlannedPart::Sent(range) => range.end - range.start,
    });
    let lengths: Vec<u64> = lengths.collect();
    let (last, others) = lengths.split_last().unwrap();
    assert!(others.iter().all(|length| *length == 5 * MIB));
    assert_eq!(last + others.iter().sum::<u64>(), size);
    // The part of the change, and the last one, of a mebibyte.
    assert_eq!(sent(&parts), 6 * MIB);
    let first_behind = PlannedPart::Copied(SharedRange {
        at: 80 * MIB,
        from: 80 * MIB - 17,
        length: 5 * MIB,
    });
    assert_eq!(parts[16], first_behind);
}

#[test]
fn more_runs_than_parts_are_no_plan() {
    let limits = PartLimits {
        smallest: 1,
        sent: 4,
        largest_copied: 8,
        most: 3,
    };
    let runs = [(0, 8, 1), (1, 6, 1), (2, 4, 1), (3, 2, 1)];

    assert!(planned(3, &shared(&runs[..3]), 9, &limits).is_some());
    assert_eq!(planned(4, &shared(&runs), 9, &limits), None);
}

#[test]
fn ranges_beyond_either_object_are_not_believed() {
    let limits = PartLimits::of_s3(8 * MIB);
    for ranges in [
        shared(&[(0, 10 * MIB, 15 * MIB)]),
        shared(&[(10 * MIB, 0, 15 * MIB)]),
        shared(&[(0, u64::MAX - 5, 15 * MIB)]),
    ] {
        assert_eq!(planned(20 * MIB, &ranges, 20 * MIB, &limits), None);
    }
}

#[test]
fn more_parts_than_a_store_takes_are_no_plan() {
    let limits = PartLimits {
        smallest: 2,
        sent: 4,
        largest_copied: 8,
        most: 3,
    };

    assert!(planned(24, &shared(&[(0, 0, 24)]), 24, &limits).is_some());
    assert_eq!(planned(25, &shared(&[(0, 0, 25)]), 25, &limits), None);
}

/// A file cut into stretches, each shared or not; what is shared may lie anywhere in a source of 64 bytes.
fn files(longest: u64, stretches: usize) -> impl Strategy<Value = (u64, SharedRanges)> {
    let stretch = (1..=longest, prop::option::of(0..64 - longest));
    prop::collection::vec(stretch, 1..=stretches).prop_map(|stretches| {
        let (mut at, mut ranges) = (0, SharedRanges::default());
        for (length, from) in stretches {
            if let Some(from) = from {
                ranges.push(SharedRange { at, from, length });
            }
            at += length;
        }
        (at, ranges)
    })
}

/// The fewest bytes that any choice sends: every byte is copied or sent, and all ways are tried.
fn fewest(size: u64, ranges: &SharedRanges, smallest: u64) -> u64 {
    let run_of = |byte: u64| {
        let runs = ranges.as_slice();
        runs.iter()
            .position(|run| (run.at..run.end()).contains(&byte))
    };
    let runs: Vec<Option<usize>> = (0..size).map(run_of).collect();
    let mut fewest = size;
    for copied in 0..1_u32 << size {
        let part = |byte: usize| (copied >> byte & 1 == 1).then(|| runs[byte]);
        let parts: Vec<Option<Option<usize>>> = (0..runs.len()).map(part).collect();
        if parts.contains(&Some(None)) {
            continue;
        }
        let stretches: Vec<_> = parts.chunk_by(|a, b| a == b).collect();
        let (_, all_but_last) = stretches.split_last().unwrap();
        if all_but_last.iter().all(|one| one.len() as u64 >= smallest) {
            fewest = fewest.min(size - u64::from(copied.count_ones()));
        }
    }
    fewest
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn parts_tile_the_object_and_keep_the_limits((size, ranges) in files(40, 12), sent in 5..12_u64) {
        let limits = PartLimits { smallest: 5, sent, largest_copied: 12, most: 100 };
        let Some(parts) = planned(size, &ranges, 64, &limits) else {
            return Ok(());
        };
        let mut at = 0;
        for (number, part) in parts.iter().enumerate() {
            let (start, length) = match part {
                PlannedPart::Copied(copied) => {
                    let is_within = |run: &SharedRange| {
                        run.at <= copied.at && copied.end() <= run.end()
                            && copied.from - run.from == copied.at - run.at
                    };
                    prop_assert!(ranges.as_slice().iter().any(is_within), "{parts:?}");
                    prop_assert!(copied.length <= limits.largest_copied);
                    (copied.at, copied.length)
                }
                PlannedPart::Sent(range) => {
                    let length = range.end - range.start;
                    prop_assert!(length <= sent.max(2 * limits.smallest - 1), "{parts:?}");
                    (range.start, length)
                }
            };
            prop_assert_eq!(start, at);
            prop_assert!(length > 0);
            let is_last = number + 1 == parts.len();
            prop_assert!(length >= limits.smallest || is_last, "{parts:?}");
            at += length;
        }
        prop_assert_eq!(at, size);
        prop_assert!(parts.len() <= limits.most);
    }

    #[test]
    fn no_other_choice_sends_fewer_bytes((size, ranges) in files(4, 4)) {
        let limits = PartLimits { smallest: 3, sent: 6, largest_copied: 6, most: 100 };
        prop_assume!(size <= 13);
        let parts = planned(size, &ranges, 64, &limits);

        let fewest = fewest(size, &ranges, limits.smallest);

        match parts {
            Some(parts) => prop_assert_eq!(sent(&parts), fewest),
            None => prop_assert!(size - fewest < limits.smallest),
        }
    }
}
