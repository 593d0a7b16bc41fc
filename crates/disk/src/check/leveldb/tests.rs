//! A small writer of the format, and what becomes of its files when they are damaged.

use super::block::TRAILER;
use super::cursor::masked;
use super::log::{BLOCK, HEADER};
use super::table::MAGIC;
use super::*;
use std::collections::BTreeMap;

type Tree = BTreeMap<String, Vec<u8>>;

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

fn string(bytes: &[u8], out: &mut Vec<u8>) {
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Writes records as the format says: in pieces where they do not fit into a block.
fn log(records: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        let (mut rest, mut begun) = (&record[..], false);
        loop {
            let left = BLOCK - out.len() % BLOCK;
            if left < HEADER {
                out.resize(out.len() + left, 0);
                continue;
            }
            let (piece, more) = rest.split_at(rest.len().min(left - HEADER));
            let kind = match (begun, more.is_empty()) {
                (false, true) => 1,
                (false, false) => 2,
                (true, false) => 3,
                (true, true) => 4,
            };
            let checked = [&[kind], piece].concat();
            out.extend_from_slice(&masked(crc32c::crc32c(&checked)).to_le_bytes());
            out.extend_from_slice(&u16::try_from(piece.len()).unwrap().to_le_bytes());
            out.extend_from_slice(&checked);
            (rest, begun) = (more, true);
            if rest.is_empty() {
                break;
            }
        }
    }
    out
}

fn batch(sequence: u64, writes: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut out = sequence.to_le_bytes().to_vec();
    out.extend_from_slice(&u32::try_from(writes.len()).unwrap().to_le_bytes());
    for (key, value) in writes {
        out.push(1);
        string(key, &mut out);
        string(value, &mut out);
    }
    out
}

/// A block of entries that share beginnings, with a restart every four.
fn block(entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let (mut out, mut restarts, mut last) = (Vec::new(), Vec::new(), Vec::new());
    for (index, (key, value)) in entries.iter().enumerate() {
        let mut shared = key.iter().zip(&last).take_while(|(a, b)| a == b).count();
        if index % 4 == 0 {
            shared = 0;
            restarts.push(u32::try_from(out.len()).unwrap());
        }
        for number in [shared, key.len() - shared, value.len()] {
            varint(number as u64, &mut out);
        }
        out.extend_from_slice(&key[shared..]);
        out.extend_from_slice(value);
        last.clone_from(key);
    }
    for restart in &restarts {
        out.extend_from_slice(&restart.to_le_bytes());
    }
    out.extend_from_slice(&u32::try_from(restarts.len()).unwrap().to_le_bytes());
    out
}

fn append(block: &[u8], packing: u8, out: &mut Vec<u8>) -> Vec<u8> {
    let mut checked = match packing {
        1 => snap::raw::Encoder::new().compress_vec(block).unwrap(),
        2 => zstd::bulk::compress(block, 1).unwrap(),
        _ => block.to_vec(),
    };
    let mut handle = Vec::new();
    varint(out.len() as u64, &mut handle);
    varint(checked.len() as u64, &mut handle);
    checked.push(packing);
    out.extend_from_slice(&checked);
    out.extend_from_slice(&masked(crc32c::crc32c(&checked)).to_le_bytes());
    handle
}

fn internal(key: &str, sequence: u64) -> Vec<u8> {
    [key.as_bytes(), &(sequence << 8 | 1).to_le_bytes()].concat()
}

/// A table with three blocks, one for each way of packing.
fn table() -> Vec<u8> {
    let (mut out, mut index) = (Vec::new(), Vec::new());
    for packing in 0..3_u8 {
        let entry = |n: usize| {
            let key = internal(&format!("key-{packing}-{n:02}"), 9);
            (key, format!("value {n}").repeat(5).into_bytes())
        };
        let entries: Vec<_> = (0..20).map(entry).collect();
        let handle = append(&block(&entries), packing, &mut out);
        index.push((entries[19].0.clone(), handle));
    }
    let filter = append(b"any filter", 0, &mut out);
    let metaindex = block(&[(b"filter.leveldb.BuiltinBloomFilter2".to_vec(), filter)]);
    let mut footer = append(&metaindex, 0, &mut out);
    footer.extend(append(&block(&index), 1, &mut out));
    footer.resize(40, 0);
    footer.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&footer);
    out
}

fn edit(tag: u64, numbers: &[u64], out: &mut Vec<u8>) {
    varint(tag, out);
    for number in numbers {
        varint(*number, out);
    }
}

/// A database with a table, an older live log, and a newest log of several blocks.
fn database() -> Tree {
    let table = table();
    let mut first = Vec::new();
    varint(1, &mut first);
    string(b"leveldb.BytewiseComparator", &mut first);
    edit(2, &[3], &mut first);
    edit(3, &[9], &mut first);
    edit(4, &[40], &mut first);
    let mut second = Vec::new();
    edit(7, &[0, 5, table.len() as u64], &mut second);
    string(&internal("key-0-00", 9), &mut second);
    string(&internal("key-2-19", 9), &mut second);
    edit(7, &[0, 4, 1], &mut second);
    string(b"12345678", &mut second);
    string(b"12345678", &mut second);
    let mut third = Vec::new();
    edit(6, &[0, 4], &mut third);
    let old: Vec<Vec<u8>> = (0..9).map(|n| batch(n, &[(b"old", b"value")])).collect();
    let large = vec![7; 50_000];
    let new: Vec<Vec<u8>> = (9..20)
        .map(|n| batch(n, &[(b"k", &large), (b"small", b"")]))
        .collect();
    let named = |name: &str, bytes| (name.to_owned(), bytes);
    Tree::from([
        named("CURRENT", b"MANIFEST-000002\n".to_vec()),
        named("MANIFEST-000002", log(&[first, second, third])),
        named("000005.ldb", table),
        named("000003.log", log(&old)),
        named("000006.log", log(&new)),
        named("000001.log", b"garbage of the past".to_vec()),
        named("LOCK", Vec::new()),
        named("LOG", b"anything".to_vec()),
    ])
}

fn judged(tree: &Tree, depth: Depth) -> Verdict {
    let cancel = AtomicBool::new(false);
    let settings = LevelDbSettings {
        depth,
        messages: 5,
        cancel: &cancel,
    };
    judge(&Bytes::from(tree.clone()), &settings).unwrap()
}

fn sound(recovered: Recovered) -> Verdict {
    Verdict::Sound {
        pages: 3,
        recovered,
        unchecked: Messages::default(),
    }
}

fn message(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Damaged { messages } => messages.kept().join("; "),
        other => format!("{other:?}"),
    }
}

/// The database with one file changed.
fn with(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Tree {
    let mut tree = database();
    change(tree.get_mut(name).unwrap());
    tree
}

#[test]
fn a_whole_database_is_sound() {
    assert_eq!(judged(&database(), Depth::Quick), sound(Recovered::Nothing));
    assert_eq!(judged(&database(), Depth::Full), sound(Recovered::Nothing));
}

#[test]
fn every_byte_of_a_table_is_checked() {
    let whole = table();
    let footer = whole.len() - 48;
    let padding = footer + 6..whole.len() - 8;
    for at in 0..whole.len() {
        let tree = with("000005.ldb", |bytes| bytes[at] ^= 0x10);

        let verdict = judged(&tree, Depth::Full);

        let expected = verdict.is_damaged() || padding.contains(&at);
        assert!(expected, "byte {at} of {}: {verdict:?}", whole.len());
    }
}

#[test]
fn a_quick_check_reads_what_leads_to_the_blocks() {
    let whole = table();
    let first_block = with("000005.ldb", |bytes| bytes[3] ^= 1);
    let index = with("000005.ldb", |bytes| bytes[whole.len() - 60] ^= 1);

    assert!(judged(&first_block, Depth::Quick).is_sound());
    assert!(judged(&first_block, Depth::Full).is_damaged());
    assert!(judged(&index, Depth::Quick).is_damaged());
}

#[test]
fn a_table_that_is_missing_or_of_another_size_is_damage() {
    let mut missing = database();
    missing.remove("000005.ldb");
    let short = with("000005.ldb", |bytes| bytes.truncate(bytes.len() - 1));
    let mut renamed = database();
    let table = renamed.remove("000005.ldb").unwrap();
    renamed.insert("000005.sst".to_owned(), table);

    assert_eq!(
        message(&judged(&missing, Depth::Quick)),
        "000005.ldb: it is missing"
    );
    assert!(message(&judged(&short, Depth::Quick)).contains("the manifest says"));
    assert!(judged(&renamed, Depth::Full).is_sound());
}

#[test]
fn the_newest_log_may_be_torn_anywhere_and_only_the_newest() {
    let length = database()["000006.log"].len();
    for cut in (1..400).chain((400..length).step_by(997)) {
        let tree = with("000006.log", |bytes| bytes.truncate(length - cut));

        let verdict = judged(&tree, Depth::Quick);

        assert!(verdict.is_sound(), "{cut}: {verdict:?}");
    }
    let torn = with("000006.log", |bytes| bytes.truncate(length - 3));
    assert_eq!(judged(&torn, Depth::Quick), sound(Recovered::TornTail));
    let older = with("000003.log", |bytes| bytes.truncate(bytes.len() - 3));
    assert!(message(&judged(&older, Depth::Quick)).contains("there is a newer log"));
}

#[test]
fn a_tail_that_was_never_written_is_torn_and_a_hole_in_the_middle_is_damage() {
    let zeros = with("000006.log", |bytes| {
        let from = bytes.len() - 20_000;
        bytes[from..].fill(0);
    });
    let hole = with("000006.log", |bytes| bytes[BLOCK..2 * BLOCK].fill(0));
    let grown = with("000006.log", |bytes| {
        bytes.resize(bytes.len() + 3 * BLOCK, 0);
    });

    assert_eq!(judged(&zeros, Depth::Quick), sound(Recovered::TornTail));
    assert!(judged(&hole, Depth::Quick).is_damaged());
    assert_eq!(judged(&grown, Depth::Quick), sound(Recovered::TornTail));
}

#[test]
fn a_flipped_byte_anywhere_in_a_log_or_the_manifest_is_damage() {
    for name in ["000003.log", "MANIFEST-000002"] {
        let length = database()[name].len();
        for at in 0..length {
            let verdict = judged(&with(name, |bytes| bytes[at] ^= 1), Depth::Quick);

            // A length of the last record that points beyond the end looks like a torn one.
            let is_length = name.starts_with("MANIFEST") && (length - 6..length - 4).contains(&at);
            assert!(
                verdict.is_damaged() || is_length,
                "{name} {at}: {verdict:?}"
            );
        }
    }
    let middle = with("000006.log", |bytes| bytes[BLOCK + 100] ^= 1);
    assert!(message(&judged(&middle, Depth::Quick)).contains("does not match its checksum"));
}

#[test]
fn of_a_very_long_record_each_piece_is_checked() {
    let mut tree = database();
    let long = log(&[
        batch(9, &[(b"k", &vec![3; log::LONGEST])]),
        batch(11, &[(b"k", b"v")]),
    ]);
    tree.insert("000006.log".to_owned(), long);
    let whole = judged(&tree, Depth::Quick);
    tree.get_mut("000006.log").unwrap()[log::LONGEST - 5] ^= 1;

    assert_eq!(whole, sound(Recovered::Nothing));
    assert!(judged(&tree, Depth::Quick).is_damaged());
}

#[test]
fn current_must_name_a_manifest_that_is_there() {
    let mut gone = database();
    gone.remove("CURRENT");
    let mut elsewhere = database();
    elsewhere.insert("CURRENT".to_owned(), b"../MANIFEST-000002\n".to_vec());
    let mut missing = database();
    missing.insert("CURRENT".to_owned(), b"MANIFEST-000007\n".to_vec());

    assert_eq!(
        message(&judged(&gone, Depth::Quick)),
        "CURRENT: it is missing"
    );
    assert!(message(&judged(&elsewhere, Depth::Quick)).contains("does not name a manifest"));
    assert_eq!(
        message(&judged(&missing, Depth::Quick)),
        "MANIFEST-000007: it is missing"
    );
}

#[test]
fn another_kind_of_database_is_not_judged() {
    let mut tree = database();
    tree.insert("OPTIONS-000008".to_owned(), Vec::new());

    assert_eq!(judged(&tree, Depth::Quick).word(), "unable");
}

#[test]
fn a_block_that_claims_to_be_huge_costs_nothing() {
    let mut bomb = Vec::new();
    varint(u64::from(u32::MAX), &mut bomb);
    bomb.extend_from_slice(&[0xfe; 64]);
    bomb.push(1);
    let crc = masked(crc32c::crc32c(&bomb));
    bomb.extend_from_slice(&crc.to_le_bytes());
    let handle = block::Handle {
        offset: 0,
        size: bomb.len() as u64 - TRAILER,
    };

    let refused = block::read(&&bomb[..], "bomb", handle);

    assert!(matches!(
        refused,
        Err(LevelDbTrouble::End(End::Verdict(Verdict::Limit { .. })))
    ));
}

#[test]
fn a_small_table_that_unpacks_to_very_much_is_a_limit() {
    let bomb = block(&[(internal("k", 1), vec![0; 60 << 20])]);
    let (mut out, mut index) = (Vec::new(), Vec::new());
    let packed = zstd::bulk::compress(&bomb, 1).unwrap();
    for n in 0..40_u64 {
        let mut checked = packed.clone();
        let mut handle = Vec::new();
        varint(out.len() as u64, &mut handle);
        varint(checked.len() as u64, &mut handle);
        checked.push(2);
        out.extend_from_slice(&checked);
        out.extend_from_slice(&masked(crc32c::crc32c(&checked)).to_le_bytes());
        index.push((internal(&format!("k{n:02}"), 1), handle));
    }
    let mut footer = append(&block(&[]), 0, &mut out);
    footer.extend(append(&block(&index), 0, &mut out));
    footer.resize(40, 0);
    out.extend_from_slice(&footer);
    out.extend_from_slice(&MAGIC.to_le_bytes());
    let cancel = AtomicBool::new(false);
    let settings = LevelDbSettings {
        depth: Depth::Full,
        messages: 5,
        cancel: &cancel,
    };

    let ended = Findings::new(&settings).table_file(&&out[..], "bomb", false);

    assert!(out.len() < 1 << 20);
    assert!(matches!(
        ended,
        Err(LevelDbTrouble::End(End::Verdict(Verdict::Limit { .. })))
    ));
}

/// A small generator: the same bytes each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % sides
    }
}

/// Changes a file so that its checksums are right again: what is behind them must hold by itself.
fn reseal_log(bytes: &mut [u8]) {
    let mut at = 0;
    while at + HEADER <= bytes.len() {
        let length = usize::from(bytes[at + 4]) | usize::from(bytes[at + 5]) << 8;
        let Some(checked) = bytes.get(at + 6..at + HEADER + length) else {
            return;
        };
        let crc = masked(crc32c::crc32c(checked)).to_le_bytes();
        bytes[at..at + 4].copy_from_slice(&crc);
        at += HEADER + length;
    }
}

#[test]
fn no_bytes_make_it_panic() {
    let mut dice = Dice(0x5eed);
    let whole = database();
    for round in 0..4000 {
        let mut tree = whole.clone();
        let names = [
            "CURRENT",
            "MANIFEST-000002",
            "000005.ldb",
            "000003.log",
            "000003.log",
        ];
        let name = names[dice.roll(names.len())];
        let bytes = tree.get_mut(name).unwrap();
        for _ in 0..=dice.roll(4) {
            let at = dice.roll(bytes.len());
            match dice.roll(4) {
                0 => bytes[at] ^= 1 << dice.roll(8),
                1 => bytes[at] = [0, 0x7f, 0x80, 0xff][dice.roll(4)],
                2 => bytes.truncate(at + 1),
                _ => bytes.insert(at, dice.roll(256).to_le_bytes()[0]),
            }
        }
        if dice.roll(2) == 0 && name != "000005.ldb" {
            reseal_log(bytes);
        }

        let verdict = judged(
            &tree,
            if round % 2 == 0 {
                Depth::Full
            } else {
                Depth::Quick
            },
        );

        assert!(
            !matches!(verdict, Verdict::Unable { .. }),
            "{round}: {verdict:?}"
        );
    }
}

#[test]
fn no_block_makes_the_parser_panic() {
    let mut dice = Dice(0xb10c);
    for _ in 0..20_000 {
        let length = dice.roll(40);
        let mut bytes: Vec<u8> = (0..length)
            .map(|_| dice.roll(256).to_le_bytes()[0])
            .collect();
        if dice.roll(2) == 0 {
            bytes.extend_from_slice(&u32::try_from(dice.roll(4)).unwrap().to_le_bytes());
        }
        let mut last = Vec::new();
        let _ = block::entries(&bytes, |key, _| {
            last = key.to_vec();
            Ok(())
        });
        let _ = Live::default().apply(&bytes);
        let _ = batch::check(&bytes);
    }
}

fn keys_of(tree: &Tree, prefix: &[u8]) -> Result<Vec<String>, String> {
    let cancel = AtomicBool::new(false);
    let settings = LevelDbSettings {
        depth: Depth::Quick,
        messages: 5,
        cancel: &cancel,
    };
    let found = keys(&Bytes::from(tree.clone()), prefix, &settings)?;
    let text = |key: &Vec<u8>| String::from_utf8_lossy(key).into_owned();
    Ok(found.iter().map(text).collect())
}

#[test]
fn the_last_write_of_a_key_says_whether_it_is_alive() {
    // Removed by the newest log, and another one written there.
    let mut end = 50_u64.to_le_bytes().to_vec();
    end.extend_from_slice(&2_u32.to_le_bytes());
    end.push(0);
    string(b"key-1-07", &mut end);
    end.push(1);
    string(b"key-1-99", &mut end);
    string(b"value", &mut end);
    let mut tree = database();
    tree.insert("000007.log".to_owned(), log(&[end]));

    let alive = keys_of(&tree, b"key-1-").unwrap();

    assert_eq!(alive.len(), 20);
    assert!(!alive.contains(&"key-1-07".to_owned()));
    assert!(alive.contains(&"key-1-99".to_owned()));
    assert_eq!(keys_of(&tree, b"old").unwrap(), ["old"]);
    assert_eq!(keys_of(&tree, b"nothing").unwrap(), [""; 0]);
}

#[test]
fn keys_of_a_damaged_database_are_not_told() {
    let mut missing = database();
    missing.remove("000005.ldb");
    let flipped = with("000005.ldb", |bytes| bytes[10] ^= 1);

    for tree in [missing, flipped, Tree::new()] {
        assert!(keys_of(&tree, b"key").is_err());
    }
}
