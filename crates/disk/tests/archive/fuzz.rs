//! The fuzz bodies, on a corpus that is made here and on its mutations.

use crate::differential::settings;
use crate::raw::Raw;
use crate::seed::{Seed, cases};
use crate::tree::{Taste, grow};
use stasis_disk::form::archive::{create, fuzz};

/// An archive of ours, whole.
fn ours(seed: u64) -> Vec<u8> {
    let home = tempfile::tempdir().unwrap();
    let (tree, file) = (home.path().join("tree"), home.path().join("file"));
    grow(&tree, &mut Seed::new(seed), Taste::All);
    let _ = create(&tree, &file, &settings(1)).unwrap();
    std::fs::read(file).unwrap()
}

/// Changes a few bytes, cuts some out, or doubles some.
fn mutate(bytes: &mut Vec<u8>, seed: &mut Seed) {
    for _ in 0..=seed.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = usize::try_from(seed.below(bytes.len() as u64)).unwrap();
        let end = bytes
            .len()
            .min(at + usize::try_from(seed.below(600)).unwrap());
        match seed.below(6) {
            0 => drop(bytes.drain(at..end)),
            1 => {
                let twice = bytes[at..end].to_vec();
                bytes.splice(at..at, twice);
            }
            2 => bytes.truncate(at),
            3 => bytes[at] = *seed.pick(&[0, 1, 0x7f, 0x80, 0xff, b'/', b'0', b'7', b' ']),
            _ => bytes[at] ^= 1 << seed.below(8),
        }
    }
}

fn throw(body: fn(&[u8]), corpus: &[Vec<u8>], rounds: u64) {
    for (number, bytes) in corpus.iter().enumerate() {
        body(bytes);
        for round in 0..rounds {
            let mut mutated = bytes.clone();
            mutate(&mut mutated, &mut Seed::new(round << 8 | number as u64));
            body(&mutated);
        }
    }
}

#[test]
fn no_bytes_make_the_tar_parser_panic() {
    let mut corpus: Vec<Vec<u8>> = (0..4)
        .map(|seed| zstd::decode_all(&*ours(seed)).unwrap())
        .collect();
    corpus.push(
        Raw::new()
            .pax(&[
                (b"path", b"long"),
                (b"mtime", b"-1.5"),
                (b"SCHILY.xattr.user.a", b"b"),
            ])
            .file("cut", b"content")
            .global(&[(b"comment", b"git")])
            .pax(&[
                (b"GNU.sparse.major", b"1"),
                (b"GNU.sparse.minor", b"0"),
                (b"GNU.sparse.name", b"sparse"),
                (b"GNU.sparse.realsize", b"100"),
            ])
            .file(
                "cut",
                &[&b"2\n10\n3\n50\n5\n"[..], &[0; 498], b"12345678"].concat(),
            )
            .gnu_long(b'L', &[b'n'; 300])
            .file("short", b"")
            .end(),
    );
    throw(fuzz::tar, &corpus, cases(20) * 20);
}

#[test]
fn no_bytes_make_the_pax_reader_panic() {
    let corpus: [&[u8]; 5] = [
        b"10 path=a\n",
        b"30 mtime=1700000000.987654321\n",
        b"18 path=a b=c\n\n\n\n\n13 size=1234\n",
        b"-1700000000.000000001",
        b"19 SCHILY.xattr.a=\n\n",
    ];
    throw(fuzz::pax, &corpus.map(<[u8]>::to_vec), cases(20) * 500);
}

#[test]
fn no_bytes_make_the_index_or_a_frame_panic() {
    let archives: Vec<Vec<u8>> = (0..3).map(ours).collect();
    throw(fuzz::footer, &archives, cases(20) * 20);
    let mut bodies = Vec::new();
    let mut frames = Vec::new();
    for archive in &archives {
        let stored = u32::from_le_bytes(archive[archive.len() - 48..][..4].try_into().unwrap());
        let end = archive.len() - 48;
        let start = end - stored as usize;
        let body = zstd::decode_all(&archive[start..end]).unwrap();
        bodies.push([&(start as u64 - 8).to_le_bytes(), &*body].concat());
        let first = zstd::zstd_safe::find_frame_compressed_size(archive).unwrap();
        let length = zstd::decode_all(&archive[..first]).unwrap().len();
        let length = u32::try_from(length).unwrap().to_le_bytes();
        frames.push([&length, &archive[..first]].concat());
    }
    throw(fuzz::index, &bodies, cases(20) * 200);
    throw(fuzz::frame, &frames, cases(20) * 20);
}

#[test]
fn no_bytes_make_the_index_of_an_encrypted_archive_panic() {
    let frame = |length: &[u8], id: u8| [length, &[id; 32]].concat();
    let body = [
        &[1, 3][..],
        &frame(&[10], 1),
        &frame(&[0x80, 0x02], 2),
        &frame(&[30], 3),
        b"the end of an archive",
    ];
    let before = 10 + 256 + 30 + 3 * 16_u64;
    let corpus = [[&before.to_le_bytes(), &*body.concat()].concat()];
    throw(fuzz::encrypted_index, &corpus, cases(20) * 500);
}
