use super::*;
use crate::tree::blocks::record;
use proptest::prelude::*;

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

/// The index of a file that was fingerprinted from its beginning.
fn index(file: &[u8]) -> BlockIndex {
    let table: Vec<u8> = file
        .chunks(PIECE)
        .zip(0..)
        .flat_map(|(block, number)| record(&value(number, block), block))
        .collect();
    let mut layout = BlockLayout::default();
    layout.push(BlockRun {
        at: 0,
        length: file.len() as u64,
        number: 0,
        table: 0,
        record: 0,
    });
    BlockIndex::new(layout, &[&table]).unwrap()
}

fn find(index: &BlockIndex, bytes: &[u8], from: usize) -> Option<(usize, usize)> {
    index.find(bytes, from, &mut SearchBudget::default(), |_, _| true)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn a_block_is_found_wherever_it_went(seed: u64, moved in 0_usize..6, before in 0_usize..70_000, from in 0_usize..70_000) {
        let file = noise(seed, 6 * PIECE + 100);
        let mut bytes = noise(seed ^ 1, before);
        bytes.extend_from_slice(&file[moved * PIECE..(moved + 1) * PIECE]);
        bytes.extend_from_slice(&noise(seed ^ 2, 500));

        let found = find(&index(&file), &bytes, from);

        prop_assert_eq!(found, (from <= before).then_some((before, moved)));
    }

    #[test]
    fn the_first_of_several_blocks_is_found(seed: u64, gap in 1_usize..100) {
        let file = noise(seed, 3 * PIECE);
        let mut bytes = file[2 * PIECE..].to_vec();
        bytes.extend_from_slice(&noise(seed ^ 1, gap));
        bytes.extend_from_slice(&file[PIECE..2 * PIECE]);
        let index = index(&file);

        prop_assert_eq!(find(&index, &bytes, 0), Some((0, 2)));
        prop_assert_eq!(find(&index, &bytes, 1), Some((PIECE + gap, 1)));
    }
}

#[test]
fn a_key_alone_is_not_believed() {
    let file = noise(1, 3 * PIECE);
    let mut forged = file[PIECE..2 * PIECE].to_vec();
    forged[5] ^= 1; // no key looks at this byte
    assert_eq!(key(&forged), key(&file[PIECE..2 * PIECE]));
    let index = index(&file);

    assert_eq!(find(&index, &forged, 0), None);
    assert!(!index.begins(1, &forged));
    assert!(index.begins(1, &file[PIECE..]));
}

#[test]
fn attempts_in_vain_are_few_and_then_earned_again() {
    let file = vec![7; PIECE];
    // Keys of the block everywhere, but never its bytes: every thirty-first byte is not the same after a shift.
    let mut bytes = vec![7; 40 * PIECE];
    for at in (5..bytes.len()).step_by(PIECE / 2) {
        bytes[at] = 9;
    }
    let (index, mut budget) = (index(&file), SearchBudget::default());

    let found = index.find(&bytes, 0, &mut budget, |_, _| true);

    assert_eq!(found, None);
    assert!(budget.0 < SAVINGS);
}

#[test]
fn blocks_know_where_they_were() {
    let file = noise(3, 4 * PIECE + 100);
    let index = index(&file);

    assert_eq!((index.len(), index.is_empty()), (5, false));
    assert_eq!(index.beginning_at(2 * PIECE as u64), Some(2));
    assert_eq!(index.beginning_at(2 * PIECE as u64 + 1), None);
    assert_eq!(index.beginning_at(file.len() as u64), None);
    let last = index.block(4);
    assert_eq!(
        (last.length, last.run.at, last.run.number),
        (100, 4 * PIECE as u64, 4)
    );
    assert!(index.begins(4, &file[4 * PIECE..]));
    assert!(!index.begins(4, &file[4 * PIECE..4 * PIECE + 99]));
}

#[test]
fn a_layout_that_its_tables_do_not_fit_is_refused() {
    let run = BlockRun {
        at: 0,
        length: 2 * PIECE as u64,
        number: 0,
        table: 0,
        record: 1,
    };
    let refused = |run: BlockRun| {
        let layout = BlockLayout { runs: vec![run] };
        BlockIndex::new(layout, &[&[0; 2 * RECORD]]).is_err()
    };
    assert!(refused(run));
    assert!(refused(BlockRun {
        record: 0,
        table: 1,
        ..run
    }));
    assert!(refused(BlockRun {
        length: 1 << 40,
        ..run
    }));
    assert!(!refused(BlockRun { record: 0, ..run }));
}

#[test]
fn of_blocks_that_are_alike_the_first_is_found() {
    let file = vec![0; 400 * PIECE];

    assert_eq!(find(&index(&file), &file, 0), Some((0, 0)));
}

#[test]
fn an_index_of_nothing_finds_nothing() {
    let empty = BlockIndex::new(BlockLayout::default(), &[]).unwrap();

    assert_eq!(find(&empty, &vec![0; 3 * PIECE], 0), None);
}
