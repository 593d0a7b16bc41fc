//! Large files that are edited in every way, saved over what they were: they come back bit by bit, and what is stored is
//! bounded by what was edited.

use super::*;
use stasis_model::tree::chunking::{LARGE, PIECE};
use stasis_model::tree::list::{Extent, FileContent};
use std::os::unix::fs::FileExt;

/// Numbers that look random, the same for the same seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % bound.max(1)
    }

    fn noise(&mut self, length: usize) -> Vec<u8> {
        let seed = self.below(usize::MAX) as u64;
        noise(seed ^ self.0, length)
    }
}

/// What an edit may cost: bytes that are new, and places where something begins that was not there before.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    new: usize,
    breaks: usize,
}

/// Edits a file in one way.
fn edit(file: &mut Vec<u8>, draw: &mut Draw) -> (&'static str, Cost) {
    let (at, length) = (draw.below(file.len()), 1 + draw.below(20_000));
    let cost = |new: usize, breaks: usize| Cost { new, breaks };
    match draw.below(8) {
        0 => {
            file.splice(at..at, draw.noise(length));
            ("insert", cost(length, 1))
        }
        1 => {
            let end = (at + length * 5).min(file.len());
            file.drain(at..end);
            ("delete", cost(0, 1))
        }
        2 => {
            let end = (at + length * 20).min(file.len());
            let moved: Vec<u8> = file.drain(at..end).collect();
            let to = draw.below(file.len());
            file.splice(to..to, moved);
            ("move", cost(0, 3))
        }
        3 => {
            let end = (at + length).min(file.len());
            let new = draw.noise(end - at);
            file[at..end].copy_from_slice(&new);
            ("overwrite", cost(end - at, 1))
        }
        4 => {
            file.extend(draw.noise(length));
            ("append", cost(length, 1))
        }
        5 => {
            let shorter = file.len() - file.len() / 10;
            file.truncate(shorter);
            ("truncate", cost(0, 1))
        }
        6 => {
            let page = 4 * PIECE;
            let first = draw.below(file.len() / page - 8) * page;
            for place in 0..8 {
                let (one, other) = (first + place * page, first + draw.below(8) * page);
                for byte in 0..page {
                    file.swap(one + byte, other + byte);
                }
            }
            ("shuffle", cost(0, 9))
        }
        _ => {
            let end = (at + 300_000).min(file.len());
            file[at..end].fill(0);
            ("hole", cost(0, 2))
        }
    }
}

impl World {
    /// Writes a file so that long zeros in it are holes.
    fn write_sparse(&self, name: &str, bytes: &[u8]) {
        let file = fs::File::create(self.tree().join(name)).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        for (block, number) in bytes.chunks(4096).zip(0..) {
            if block.iter().any(|byte| *byte != 0) {
                file.write_all_at(block, number * 4096).unwrap();
            }
        }
    }

    /// The content of the only file.
    fn content(&self, saved: &Saved) -> FileContent {
        let mut reader = list::ListReader::new(&self.chunks, &saved.list).unwrap();
        reader.next_row().unwrap().unwrap().content.unwrap()
    }
}

fn chunks_of(content: &FileContent) -> usize {
    let stored = content.extents.iter().filter_map(|extent| match extent {
        Extent::Stored(slice) => Some(slice.chunk.name),
        Extent::Hole(_) | Extent::Version(_) => None,
    });
    stored.collect::<HashSet<_>>().len()
}

/// A series of edits from one seed.
fn series(seed: u64) {
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut world = World::new();
    let mut file = draw.noise(4 << 20);
    if seed.is_multiple_of(2) {
        file[..16].copy_from_slice(b"SQLite format 3\0");
    }
    world.write_sparse("file", &file);
    let _ = world.save();
    for step in 0..8 {
        let (mut what, mut cost) = (Vec::new(), Cost::default());
        for _ in 0..=draw.below(3) {
            let (name, more) = edit(&mut file, &mut draw);
            what.push(name);
            (cost.new, cost.breaks) = (cost.new + more.new, cost.breaks + more.breaks);
        }
        if (file.len() as u64) < 2 * LARGE {
            file.extend(draw.noise(2 << 20));
            cost.new += 2 << 20;
        }
        world.write_sparse("file", &file);

        let saved = world.save();

        // Around each break up to two blocks are not found; chunks that are little used are left.
        let moved = usize::try_from(saved.report.bytes_moved).unwrap();
        let bound = cost.new + cost.breaks * 3 * PIECE + 2 * moved + 24_000;
        let stored = usize::try_from(saved.report.bytes_stored).unwrap();
        assert!(
            stored <= bound,
            "seed {seed}, step {step}, {what:?}: stored {stored} of at most {bound} for {cost:?}"
        );
        world.comes_back(&saved);
    }
}

#[test]
fn edited_files_come_back_and_cost_what_was_edited() {
    for seed in 1..=12 {
        series(seed);
    }
}

#[test]
fn an_insertion_into_a_database_costs_a_block_and_the_next_change_too() {
    let mut world = World::new();
    let mut file = database(3, 16 << 20);
    world.write("app.db", &file);
    let _ = world.save();

    file.splice(100_000..100_000, *b"seven..");
    world.write("app.db", &file);
    let inserted = world.save();
    file[9_000_000] ^= 1;
    world.write("app.db", &file);
    let changed = world.save();

    assert!(
        inserted.report.bytes_stored < 40_000,
        "{:?}",
        inserted.report
    );
    assert!(changed.report.bytes_stored < 20_000, "{:?}", changed.report);
    world.comes_back(&changed);
}

#[test]
fn pages_in_another_order_cost_no_more_than_where_they_are() {
    let mut world = World::new();
    let file = database(4, 8 << 20);
    world.write("app.db", &file);
    let _ = world.save();
    let pages: Vec<&[u8]> = file.chunks(PIECE).collect();
    let other: Vec<u8> = (0..pages.len())
        .flat_map(|page| pages[page * 7 % pages.len()].iter().copied())
        .collect();
    world.write("app.db", &other);

    let saved = world.save();

    assert!(saved.report.bytes_stored < 60_000, "{:?}", saved.report);
    world.comes_back(&saved);
}

#[test]
fn bytes_that_no_key_looks_at_are_not_overlooked() {
    let mut world = World::new();
    let mut file = noise(5, 4 << 20);
    world.write("file", &file);
    let _ = world.save();
    // Shifted, so that nothing is where it was, and every block differs in one byte that is not in its key.
    for block in file.chunks_mut(PIECE) {
        block[5] ^= 1;
    }
    file.splice(0..0, [7; 13]);
    world.write("file", &file);

    let saved = world.save();

    world.comes_back(&saved);
}

#[test]
fn a_file_that_grows_a_little_every_time_lies_in_few_chunks() {
    let mut world = World::new();
    let mut file = noise(6, 2 << 20);
    world.write("log", &file);
    let mut saved = world.save();
    for round in 0..60 {
        file.extend(noise(100 + round, 3000));
        world.write("log", &file);
        saved = world.save();
    }

    let content = world.content(&saved);

    assert!(chunks_of(&content) < 30, "{}", chunks_of(&content));
    world.comes_back(&saved);
}

#[test]
fn a_file_that_grows_while_it_is_overwritten_leaves_chunks_that_are_little_used() {
    let mut world = World::new();
    let (mut draw, mut file) = (Draw(11), noise(9, 4 << 20));
    world.write("app.db", &file);
    let mut saved = world.save();
    for _ in 0..24 {
        for block in file.chunks_mut(PIECE) {
            if draw.below(4) == 0 {
                block.copy_from_slice(&draw.noise(block.len()));
            }
        }
        file.extend(draw.noise(3000));
        world.write("app.db", &file);
        saved = world.save();
    }

    let content = world.content(&saved);

    let chunks = content.extents.iter().filter_map(|extent| match extent {
        Extent::Stored(slice) => Some(slice.chunk),
        Extent::Hole(_) | Extent::Version(_) => None,
    });
    let chunks: HashSet<_> = chunks.collect();
    let held: u64 = chunks.iter().map(|chunk| u64::from(chunk.plain_len)).sum();
    // Half of a chunk may be unused before it is left, and what is stored last has not been looked at.
    let most = file.len() as u64 * 2 + (2 << 20);
    assert!(held <= most, "{held} of at most {most}");
    world.comes_back(&saved);
}

#[test]
fn a_file_has_no_more_parts_than_it_may() {
    let mut world = World::new();
    let mut file = noise(7, 6 << 20);
    world.write("file", &file);
    let mut saved = world.save();
    // Insertions 4 KiB apart leave no whole block, 20 KiB apart one between two of them.
    for (round, distance) in [20_000, 17_000, 33_000, 20_001, 4_000]
        .into_iter()
        .enumerate()
    {
        let mut at = round * 100;
        while at < file.len() {
            file.splice(at..at, *b"x");
            at += distance;
        }
        world.write("file", &file);
        saved = world.save();
        let parts = world.content(&saved).extents.len();
        let most = 1024 + file.len() / PIECE * 5 / 4;
        assert!(parts <= most, "{parts} of {most}");
    }
    world.comes_back(&saved);
}

#[test]
fn fingerprints_that_cannot_be_read_cost_only_bytes() {
    let mut world = World::new();
    let mut file = noise(8, 4 << 20);
    world.write("file", &file);
    let first = world.save();
    let layout = world.content(&first).pieces[0].chunk.name;
    world.chunks.0.lock().unwrap().remove(&layout);
    file.splice(50..50, *b"new");
    world.write("file", &file);

    let saved = world.save();

    world.comes_back(&saved);
}

#[test]
fn holes_between_short_stretches_stay_holes() {
    let mut world = World::new();
    let mut file = vec![0; 8 << 20];
    for (stretch, seed) in file.chunks_mut(4 * PIECE).zip(20..) {
        stretch[..PIECE].copy_from_slice(&noise(seed, PIECE));
    }
    world.write_sparse("file", &file);
    let _ = world.save();
    let first = 5 * 4 * PIECE;
    file[first] ^= 1;
    world.write_sparse("file", &file);

    let saved = world.save();

    let holes = world.content(&saved).extents;
    let holes = holes.iter().filter_map(|extent| match extent {
        Extent::Hole(length) => Some(length),
        Extent::Stored(_) | Extent::Version(_) => None,
    });
    assert_eq!(holes.sum::<u64>(), 6 << 20);
    world.comes_back(&saved);
}

#[test]
fn many_short_stretches_are_not_all_stored_again_for_one_byte() {
    let mut world = World::new();
    let (stretch, step) = (48 << 10, 96 << 10);
    let mut file = vec![0; 40 << 20];
    for (place, seed) in file.chunks_mut(step).zip(50..) {
        let length = stretch.min(place.len());
        place[..length].copy_from_slice(&noise(seed, length));
    }
    world.write_sparse("file", &file);
    let _ = world.save();
    file[2] ^= 1;
    world.write_sparse("file", &file);

    let saved = world.save();

    assert!(saved.report.bytes_stored < 9 << 20, "{:?}", saved.report);
    world.comes_back(&saved);
}

#[test]
fn what_comes_after_much_that_is_new_is_found_all_the_same() {
    let mut world = World::new();
    let old = noise(30, 24 << 20);
    world.write("file", &old);
    let _ = world.save();
    // Much that is new, then some that moved, then much that is new again in the place of as much, then what did not move.
    let mut file = noise(31, 12 << 20);
    file.extend_from_slice(&old[5_000_007..9_000_000]);
    file.extend(noise(32, (20 << 20) - file.len()));
    file.extend_from_slice(&old[20 << 20..]);
    world.write("file", &file);

    let saved = world.save();

    let new = (20 << 20) - (9_000_000 - 5_000_007);
    let lost = usize::try_from(saved.report.bytes_stored).unwrap() - new;
    assert!(lost < (1 << 20), "{lost} of what was there");
    world.comes_back(&saved);
}
