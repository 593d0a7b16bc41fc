use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn small() -> Chunker {
    Chunker {
        min: 1 << 10,
        avg: 4 << 10,
        max: 16 << 10,
        ..Chunker::default()
    }
}

fn pieces<'b>(cutter: &Cutter, mut bytes: &'b [u8]) -> Vec<&'b [u8]> {
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(cutter.cut(bytes));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

/// Bytes that look random, the same for the same seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_pieces_are_the_input_and_keep_their_limits(seed: u64, length in 0_usize..200_000) {
        let bytes = noise(seed, length);

        let cut = pieces(&small().cutter(), &bytes);

        prop_assert_eq!(&cut.concat(), &bytes);
        prop_assert!(cut.iter().all(|piece| piece.len() <= 16 << 10));
        prop_assert!(cut.iter().rev().skip(1).all(|piece| (1 << 10..=16 << 10).contains(&piece.len())));
    }

    #[test]
    fn an_insertion_changes_few_pieces(seed: u64, at in 0_usize..400_000, inserted in 1_usize..64) {
        let before = noise(seed, 400_000);
        let mut after = before.clone();
        after.splice(at..at, noise(seed ^ 7, inserted));

        let cutter = small().cutter();
        let known: BTreeSet<&[u8]> = pieces(&cutter, &before).into_iter().collect();
        let new = pieces(&cutter, &after).into_iter().filter(|piece| !known.contains(piece)).count();

        prop_assert!(new <= 8, "{} of {} pieces are new", new, known.len());
    }

    #[test]
    fn a_window_of_its_reach_is_cut_like_the_whole(seed: u64, length in 0_usize..100_000) {
        let (bytes, cutter) = (noise(seed, length), small().cutter());

        let window = &bytes[..bytes.len().min(cutter.reach())];

        prop_assert_eq!(cutter.cut(window), cutter.cut(&bytes));
    }
}

#[test]
fn cuts_are_part_of_the_format() {
    let bytes = noise(42, 3 << 20);

    let lengths: Vec<usize> = pieces(&Chunker::default().cutter(), &bytes)
        .iter()
        .map(|piece| piece.len())
        .collect();

    assert_eq!(lengths, GOLDEN, "a change here is a new format");
}

const GOLDEN: [usize; 3] = [1_368_193, 1_560_625, 216_910];

#[test]
fn bundles_of_files_of_any_length_come_out_about_one_mebibyte() {
    for length in [100_usize, 9_000, 200_000] {
        let (mut held, mut bundles, mut total) = (0, 0_usize, 0);
        for file in 0..(64_usize << 20) / length {
            let digest = *blake3::hash(&(file as u64).to_le_bytes()).as_bytes();
            (held, total) = (held + length, total + length);
            if ends_bundle(held, length, &digest) {
                (held, bundles) = (0, bundles + 1);
            }
        }
        let mean = total / bundles;
        assert!((700 << 10..1400 << 10).contains(&mean), "{length}: {mean}");
    }
}

#[test]
fn unsound_settings_are_refused() {
    let bad = [
        Chunker { min: 3, ..small() },
        Chunker {
            max: 64 << 20,
            ..small()
        },
        Chunker {
            avg: 5000,
            ..small()
        },
        Chunker {
            min: 8 << 10,
            ..small()
        },
        Chunker {
            algorithm: "rabin".to_owned(),
            ..small()
        },
    ];
    assert!(bad.iter().all(|chunker| !chunker.is_sound()));
    assert!(small().is_sound() && Chunker::default().is_sound());
}
