//! Archives that somebody forged: each is refused whole, and nothing is left or touched.

#![expect(
    clippy::too_many_lines,
    clippy::type_complexity,
    reason = "long tables of short lines"
)]

use crate::forge::{Forged, ForgedFrame};
use crate::raw::{Block, Raw, spell};
use stasis_disk::form::archive::{Archive, ArchiveError, ReadSettings, UnpackSettings, unpack};
use stasis_disk::tree::restore::RestoreOrigin;
use stasis_model::time::Timestamp;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// A name for people, and the bytes of an archive.
type Forgery = (String, Vec<u8>);

const KINDS: [(u8, &str); 5] = [
    (b'0', "file"),
    (b'5', "directory"),
    (b'2', "symlink"),
    (b'1', "hard link"),
    (b'6', "pipe"),
];

fn entry(kind: u8, name: &[u8]) -> Block {
    let block = Block::new(kind, name);
    match kind {
        b'1' => block.to(b"honest"),
        b'2' => block.to(b"anywhere"),
        _ => block,
    }
}

/// What every forgery begins with.
fn honest() -> Raw {
    Raw::new().directory("./").file("honest", b"content")
}

/// Names that lead somewhere else, or nowhere, in each way a name can be given, for each kind of entry.
fn names() -> Vec<(String, Raw)> {
    let names: [&[u8]; 12] = [
        b"/tmp/absolute",
        b"//absolute",
        b"..",
        b"../outside",
        b"a/../../outside",
        b"a/..",
        b"./../outside",
        b"a//b",
        b"a/./b",
        b"a/.",
        b".//absolute",
        b"../../../../../../../../tmp/outside",
    ];
    let mut all = Vec::new();
    for (kind, what) in KINDS {
        for name in names {
            let told = name.escape_ascii();
            let block = entry(kind, name);
            all.push((format!("{what} `{told}`"), honest().block(&block)));
        }
        let plain = entry(kind, b"plain");
        for name in [
            b"/absolute".as_slice(),
            b"../outside",
            b"a/../b",
            b"",
            b"nul\0l",
        ] {
            let told = name.escape_ascii();
            let pax = honest().pax(&[(b"path", name)]).block(&plain);
            all.push((format!("{what} `{told}` by pax"), pax));
            let gnu = honest().gnu_long(b'L', name).block(&plain);
            all.push((format!("{what} `{told}` by GNU"), gnu));
        }
        let long = vec![b'n'; 256];
        let long = honest().pax(&[(b"path", &long)]).block(&plain);
        all.push((format!("{what} with a name of 256 bytes"), long));
        let mut prefix = entry(kind, b"outside");
        prefix.prefix = b"a/..".to_vec();
        all.push((
            format!("{what} with `..` in its prefix"),
            honest().block(&prefix),
        ));
        all.push((
            format!("{what} without a name"),
            honest().block(&entry(kind, b"")),
        ));
    }
    all
}

/// Entries that pass through others, twice the same, links that lead out.
fn places() -> Vec<(String, Raw)> {
    let deep = vec!["d"; 1002].join("/");
    let all = [
        (
            "through a link",
            honest().symlink("l", "/tmp").file("l/x", b"x"),
        ),
        (
            "through a link to ..",
            honest().symlink("l", "..").file("l/x", b"x"),
        ),
        (
            "through a later link",
            honest().file("l/x", b"x").symlink("l", "/tmp"),
        ),
        (
            "a directory through a link",
            honest().symlink("l", "/tmp").directory("l/x/"),
        ),
        (
            "a link through a link",
            honest().symlink("l", "/tmp").symlink("l/x", "y"),
        ),
        (
            "a hard link through a link",
            honest().symlink("l", "/tmp").hard_link("l/x", "honest"),
        ),
        (
            "a pipe through a link",
            honest().symlink("l", "/tmp").block(&entry(b'6', b"l/x")),
        ),
        (
            "through two links",
            honest()
                .symlink("a", "b")
                .symlink("b", "/tmp")
                .file("a/x", b"x"),
        ),
        ("through a file", honest().file("honest/x", b"x")),
        (
            "through a later file",
            honest().file("f/x", b"x").file("f", b"y"),
        ),
        (
            "through a pipe",
            honest().block(&entry(b'6', b"p")).file("p/x", b"x"),
        ),
        (
            "through a hard link",
            honest().hard_link("h", "honest").file("h/x", b"x"),
        ),
        ("a file twice", honest().file("honest", b"other")),
        ("a file twice with ./", honest().file("./honest", b"other")),
        (
            "a directory twice",
            honest().directory("d/").directory("d/"),
        ),
        ("the root twice", honest().directory("./")),
        ("a link twice", honest().symlink("l", "a").symlink("l", "b")),
        (
            "a pipe twice",
            honest().block(&entry(b'6', b"p")).block(&entry(b'6', b"p")),
        ),
        ("a file, then a link", honest().symlink("honest", "/tmp/x")),
        (
            "a link, then a file",
            honest().symlink("l", "/tmp/x").file("l", b"x"),
        ),
        (
            "a link, then a directory",
            honest().symlink("l", "/tmp").directory("l/"),
        ),
        (
            "a directory, then a link",
            honest().directory("d/").symlink("d", "/tmp"),
        ),
        (
            "a directory, then a file",
            honest().directory("d/").file("d", b"x"),
        ),
        ("a file, then a directory", honest().directory("honest/")),
        (
            "a hard link, then a file",
            honest().hard_link("h", "honest").file("h", b"x"),
        ),
        ("a hard link out", honest().hard_link("h", "/etc/passwd")),
        ("a hard link up", honest().hard_link("h", "../canary")),
        ("a hard link to nothing", honest().hard_link("h", "absent")),
        ("a hard link to an empty name", honest().hard_link("h", "")),
        ("a hard link to the root", honest().hard_link("h", "./")),
        (
            "a hard link to a directory",
            honest().directory("d/").hard_link("h", "d"),
        ),
        (
            "a hard link to a link",
            honest().symlink("l", "/etc/passwd").hard_link("h", "l"),
        ),
        (
            "a hard link to a pipe",
            honest().block(&entry(b'6', b"p")).hard_link("h", "p"),
        ),
        ("a hard link to itself", honest().hard_link("h", "h")),
        (
            "a hard link through a link",
            honest().symlink("l", "..").hard_link("h", "l/canary"),
        ),
        (
            "a hard link out by pax",
            honest()
                .pax(&[(b"linkpath", b"/etc/passwd")])
                .hard_link("h", "honest"),
        ),
        (
            "a hard link out by GNU",
            honest()
                .gnu_long(b'K', b"../canary")
                .hard_link("h", "honest"),
        ),
        ("a link without a target", honest().symlink("l", "")),
        (
            "a link to a NUL",
            honest().pax(&[(b"linkpath", b"a\0b")]).symlink("l", "x"),
        ),
        (
            "a path of 1002 names",
            honest().pax(&[(b"path", deep.as_bytes())]).file("x", b"x"),
        ),
        (
            "the root as a file",
            honest().file("./", b"x").file(".", b"x"),
        ),
        ("the root as a link", honest().symlink(".", "/tmp")),
    ];
    all.map(|(what, raw)| (what.to_owned(), raw)).into()
}

/// Types that are never made, or not known.
fn kinds() -> Vec<(String, Raw)> {
    let kinds = b"34SMDNXAZz8/ \x01\x80\xff";
    let kinds = kinds.iter().map(|kind| {
        let what = format!("the type `{}`", kind.escape_ascii());
        (what, honest().block(&Block::new(*kind, b"entry")))
    });
    let contents = KINDS.iter().skip(1).map(|(kind, what)| {
        let block = entry(*kind, b"entry").sized(5);
        (
            format!("a {what} with content"),
            honest().block(&block).body(b"12345"),
        )
    });
    kinds.chain(contents).collect()
}

/// Headers that are malformed, stray, or contradict one another.
fn headers() -> Vec<(String, Raw)> {
    let bodies: [(&str, &[u8]); 13] = [
        ("without a newline", b"10 path=ab"),
        ("with a wrong length", b"12 path=a\n"),
        ("of length 0", b"0 path=a\n"),
        ("of no length", b"path=a\n"),
        ("of a huge length", b"99999999999999999999 path=a\n"),
        ("of a negative length", b"-9 path=a\n"),
        ("with a leading zero", b"010 path=a\n"),
        ("without an equals sign", b"9 pathab\n"),
        ("without a key", b"5 =a\n"),
        ("with something behind it", b"10 path=a\njunk"),
        ("that is empty", b"\n"),
        ("that is binary", b"\0\0\0\0"),
        ("that only begins", b"1"),
    ];
    let records: [(&str, &[(&[u8], &[u8])]); 17] = [
        ("two paths", &[(b"path", b"a"), (b"path", b"b")]),
        ("two times", &[(b"mtime", b"1"), (b"mtime", b"1")]),
        (
            "two equal attributes",
            &[
                (b"SCHILY.xattr.user.a", b"1"),
                (b"SCHILY.xattr.user.a", b"1"),
            ],
        ),
        ("an unknown key", &[(b"surprise", b"1")]),
        ("a negative size", &[(b"size", b"-1")]),
        ("a size in hex", &[(b"size", b"0x5")]),
        ("a size too large", &[(b"size", b"99999999999999999999")]),
        ("no size", &[(b"size", b"")]),
        ("a size with a sign", &[(b"size", b"+1")]),
        ("another size", &[(b"size", b"4")]),
        ("a larger size", &[(b"size", b"512")]),
        ("a uid too large", &[(b"uid", b"4294967296")]),
        ("a negative gid", &[(b"gid", b"-1")]),
        ("a time that is none", &[(b"mtime", b"yesterday")]),
        ("a time too far", &[(b"mtime", b"99999999999999999999")]),
        (
            "a sparse map",
            &[(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0")],
        ),
        ("a dump directory", &[(b"GNU.dumpdir", b"Yx\0")]),
    ];
    let mut all = Vec::new();
    for (what, body) in bodies {
        let raw = honest().extended(b'x', body).file("next", b"12345");
        all.push((format!("a pax record {what}"), raw));
        let raw = honest().extended(b'g', body).file("next", b"12345");
        all.push((format!("a global pax record {what}"), raw));
    }
    for (what, records) in records {
        let raw = honest().pax(records).file("next", b"12345");
        all.push((format!("pax with {what}"), raw));
    }
    for key in [b"path".as_slice(), b"linkpath", b"size", b"surprise"] {
        let raw = honest().global(&[(key, b"5")]).file("next", b"12345");
        all.push((format!("a global {}", key.escape_ascii()), raw));
    }
    all.extend(strays());
    all
}

fn strays() -> Vec<(String, Raw)> {
    let huge = Block::new(b'x', b"././@PaxHeader").sized(9 << 20);
    let huge_name = Block::new(b'L', b"././@LongLink").sized(1 << 33);
    let path = spell(&[(b"path", b"x")]);
    let all = [
        ("pax, then the end", honest().pax(&[(b"path", b"x")])),
        (
            "pax twice",
            honest()
                .extended(b'x', &path)
                .extended(b'x', &path)
                .file("y", b""),
        ),
        ("a long name, then the end", honest().gnu_long(b'L', b"x")),
        (
            "a name by pax and another one by GNU",
            honest()
                .pax(&[(b"path", b"one")])
                .gnu_long(b'L', b"other")
                .file("y", b""),
        ),
        (
            "a target by GNU and another one by pax",
            honest()
                .gnu_long(b'K', b"honest")
                .pax(&[(b"linkpath", b"elsewhere")])
                .block(&entry(b'2', b"link")),
        ),
        (
            "a long name twice",
            honest()
                .gnu_long(b'L', b"x")
                .gnu_long(b'L', b"x")
                .file("y", b""),
        ),
        (
            "a long name without its NUL",
            honest().extended(b'L', b"abc").file("y", b""),
        ),
        (
            "an empty long name",
            honest().extended(b'L', b"").file("y", b""),
        ),
        ("pax of 9 MiB", honest().block(&huge)),
        ("a long name of 8 GiB", honest().block(&huge_name)),
    ];
    all.map(|(what, raw)| (what.to_owned(), raw)).into()
}

/// Sparse files whose maps lie.
fn sparse() -> Vec<(String, Raw)> {
    let maps: [(&str, &[u8], usize, &[u8]); 17] = [
        ("no map", b"", 0, b"100"),
        ("an empty map", b"\n", 0, b"100"),
        ("no count", b"x\n", 0, b"100"),
        ("a negative count", b"-1\n", 0, b"100"),
        ("a huge count", b"99999999999999999999\n", 0, b"100"),
        ("many parts", b"999999\n0\n1\n", 0, b"100"),
        ("a missing number", b"2\n0\n1\n5\n", 1, b"100"),
        ("a line that never ends", &[b'1'; 512], 0, b"100"),
        ("parts that overlap", b"2\n0\n10\n5\n10\n", 20, b"100"),
        ("parts out of order", b"2\n50\n10\n5\n10\n", 20, b"100"),
        ("a part behind the end", b"1\n200\n10\n", 10, b"100"),
        ("a part over the end", b"1\n95\n10\n", 10, b"100"),
        (
            "a part of endless length",
            b"1\n5\n18446744073709551615\n",
            10,
            b"100",
        ),
        ("less data than parts", b"1\n0\n10\n", 5, b"100"),
        ("more data than parts", b"1\n0\n10\n", 15, b"100"),
        ("something behind the map", b"1\n0\n10\njunk", 10, b"100"),
        ("8 EiB", b"0\n", 0, b"9223372036854775807"),
    ];
    let all = maps.iter().map(|(what, map, data, size)| {
        let mut content = map.to_vec();
        content.resize(content.len().next_multiple_of(512), 0);
        content.resize(content.len() + data, b'd');
        let raw = honest().pax(&[
            (b"GNU.sparse.major", b"1"),
            (b"GNU.sparse.minor", b"0"),
            (b"GNU.sparse.name", b"sparse"),
            (b"GNU.sparse.realsize", size),
        ]);
        (
            format!("a sparse file with {what}"),
            raw.file("GNUSparseFile.0/x", &content),
        )
    });
    let old: [&[(&[u8], &[u8])]; 4] = [
        &[(b"GNU.sparse.map", b"0,1"), (b"GNU.sparse.size", b"5")],
        &[(b"GNU.sparse.numblocks", b"0"), (b"GNU.sparse.size", b"5")],
        &[(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"1")],
        &[
            (b"GNU.sparse.name", b"../out"),
            (b"GNU.sparse.realsize", b"5"),
        ],
    ];
    let old = old.iter().map(|records| {
        let what = format!("a sparse file with {}", records[0].0.escape_ascii());
        (what, honest().pax(records).file("next", b"12345"))
    });
    let out = honest().pax(&[
        (b"GNU.sparse.major", b"1"),
        (b"GNU.sparse.minor", b"0"),
        (b"GNU.sparse.name", b"../out"),
        (b"GNU.sparse.realsize", b"5"),
    ]);
    let mut content = b"0\n".to_vec();
    content.resize(512, 0);
    let out = ("a sparse file outside".to_owned(), out.file("x", &content));
    let for_all = honest()
        .global(&[(b"GNU.sparse.major", b"1")])
        .file("x", b"");
    let for_all = ("all files sparse".to_owned(), for_all);
    all.chain(old).chain([out, for_all]).collect()
}

/// Numbers and checksums.
fn numbers() -> Vec<(String, Raw)> {
    let file = || Block::new(b'0', b"next");
    let with = |change: &dyn Fn(&mut Block)| {
        let mut block = file();
        change(&mut block);
        honest().block(&block)
    };
    let huge = [&[0x80, 0, 0, 0, 0x7f][..], &[0xff; 7]].concat();
    let all = [
        (
            "a size that is no number",
            with(&|block| block.size = b"0000000zzzz\0".to_vec()),
        ),
        (
            "a size with a sign",
            with(&|block| block.size = b"-0000000001\0".to_vec()),
        ),
        (
            "a size in two parts",
            with(&|block| block.size = b"001 0000001\0".to_vec()),
        ),
        (
            "a negative size",
            with(&|block| block.size = vec![0xff; 12]),
        ),
        ("a huge size", with(&|block| block.size.clone_from(&huge))),
        (
            "5 TiB",
            with(&|block| block.size = [&[0x80, 0, 0, 0, 0, 0, 5][..], &[0; 5]].concat()),
        ),
        (
            "a mode that is no number",
            with(&|block| block.mode = b"rw-r--r-".to_vec()),
        ),
        (
            "a uid too large",
            with(&|block| block.uid = vec![0x80, 0, 1, 0, 0, 0, 0, 0]),
        ),
        ("a negative uid", with(&|block| block.uid = vec![0xff; 8])),
        (
            "a time that is no number",
            with(&|block| block.mtime = b"yesterday\0\0\0".to_vec()),
        ),
        (
            "a wrong checksum",
            with(&|block| block.checksum = Some(b"000001\0 ".to_vec())),
        ),
        (
            "no checksum",
            with(&|block| block.checksum = Some(b"        ".to_vec())),
        ),
        (
            "a checksum that is no number",
            with(&|block| block.checksum = Some(b"zzzzzz\0 ".to_vec())),
        ),
        ("a block of 0xff", honest().bytes(&[0xff; 512])),
        (
            "a block of text",
            honest().body(b"this is not a header at all"),
        ),
    ];
    all.map(|(what, raw)| (what.to_owned(), raw)).into()
}

/// Ends that are none, or not the end.
fn ends() -> Vec<Forgery> {
    let raw = honest().0;
    let whole = honest().end();
    let cut = |length: usize| whole[..length].to_vec();
    let all = [
        ("no end", raw.clone()),
        ("half an end", [&raw[..], &[0; 512]].concat()),
        ("an end of 1023 bytes", [&raw[..], &[0; 1023]].concat()),
        ("an end in a header", cut(512 + 100)),
        ("an end in a content", cut(1024 + 3)),
        ("an end in the padding", cut(1024 + 7)),
        ("an end after a header", cut(1024)),
        (
            "an entry after the end",
            [&whole[..], &honest().file("late", b"x").end()].concat(),
        ),
        ("a byte after the end", [&whole[..], b"x"].concat()),
        (
            "a byte after zeros",
            [&whole[..], &[0; 5000], b"x"].concat(),
        ),
        (
            "one zero block between",
            [&raw[..], &[0; 512], &Raw::new().file("late", b"x").end()].concat(),
        ),
        ("nothing", Vec::new()),
        ("text", b"hello, I am not an archive".to_vec()),
    ];
    all.map(|(what, bytes)| (what.to_owned(), bytes)).into()
}

/// Compressed streams that lie or break off.
fn streams() -> Vec<Forgery> {
    let tar = honest().end();
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let (gz, zst) = (gzip(&tar), zstd::encode_all(&*tar, 1).unwrap());
    let spoiled = |bytes: &[u8], at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 0x55;
        bytes
    };
    // A frame that wants a window of 2 GiB: no content size, window descriptor 21 << 3.
    let mut window = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3];
    window.extend_from_slice(&[1 | 2 << 1, 0, 0]);
    let mut rich = honest();
    rich.0.resize(rich.0.len() + (3 << 20), 0x41);
    vec![
        (
            "gzip that ends early".to_owned(),
            gz[..gz.len() - 9].to_vec(),
        ),
        (
            "gzip with a wrong checksum".to_owned(),
            spoiled(&gz, gz.len() - 6),
        ),
        (
            "gzip with a wrong length".to_owned(),
            spoiled(&gz, gz.len() - 2),
        ),
        ("gzip and junk".to_owned(), [&gz[..], b"junk"].concat()),
        ("gzip of junk".to_owned(), gzip(b"junk")),
        ("only a gzip header".to_owned(), gz[..10].to_vec()),
        (
            "zstd that ends early".to_owned(),
            zst[..zst.len() - 3].to_vec(),
        ),
        ("zstd that is spoiled".to_owned(), spoiled(&zst, 8)),
        ("zstd and junk".to_owned(), [&zst[..], b"junk"].concat()),
        (
            "zstd of junk".to_owned(),
            zstd::encode_all(&b"junk"[..], 1).unwrap(),
        ),
        ("zstd with a window of 2 GiB".to_owned(), window),
        (
            "many empty frames".to_owned(),
            zstd::encode_all(&b""[..], 1).unwrap().repeat(10_000),
        ),
        (
            "junk that packs well".to_owned(),
            zstd::encode_all(&*rich.0, 1).unwrap(),
        ),
    ]
}

/// A tar as we write it: the headers of an archive of ours.
fn our_tar() -> Vec<u8> {
    Raw::new()
        .directory("./")
        .file("a", b"content")
        .hard_link("b", "a")
        .directory("c/")
        .file("c/d", b"more")
        .end()
}

fn ours() -> Forged {
    Forged::new(&our_tar(), [5, 2, 11])
}

/// Indexes that lie.
fn indexes() -> Vec<Forgery> {
    type Change = fn(&mut Forged);
    let changes: [(&str, Change); 33] = [
        ("another version", |forged| forged.version = 2),
        ("an encoder that is no text", |forged| {
            forged.encoder = vec![0xff];
        }),
        ("an encoder that is too long", |forged| {
            forged.encoder = vec![b'x'; 5000];
        }),
        ("more entries", |forged| forged.counts[0] += 1),
        ("fewer files", |forged| forged.counts[1] -= 1),
        ("more bytes", |forged| forged.counts[2] += 1),
        ("no frames", |forged| forged.frames.clear()),
        ("one frame fewer", |forged| forged.frame_count = Some(0)),
        ("one frame more", |forged| forged.frame_count = Some(2)),
        ("a huge number of frames", |forged| {
            forged.frame_count = Some(u64::MAX);
        }),
        ("something behind its frames", |forged| {
            forged.after_body = vec![0];
        }),
        ("another magic", |forged| forged.skippable = 0x184D_2A58),
        ("no magic", |forged| forged.skippable = 0),
        ("a wrong length of its frame", |forged| forged.lie = 1),
        ("a longer body", |forged| forged.body_length = Some(10_000)),
        ("a shorter body", |forged| forged.body_length = Some(10)),
        ("a huge body", |forged| forged.body_length = Some(u32::MAX)),
        ("a wrong digest", |forged| forged.spoil_digest = true),
        ("a longer frame", |forged| forged.frames[0].stored += 1),
        ("a shorter frame", |forged| forged.frames[0].stored -= 1),
        ("an empty frame", |forged| forged.frames[0].stored = 0),
        ("more tar in a frame", |forged| forged.frames[0].tar += 512),
        ("less tar in a frame", |forged| forged.frames[0].tar -= 512),
        ("no tar in a frame", |forged| forged.frames[0].tar = 0),
        ("2 GiB of tar in a frame", |forged| {
            forged.frames[0].tar = 1 << 31;
        }),
        ("another frame digest", |forged| {
            forged.frames[0].digest[3] ^= 1;
        }),
        ("no first entry", |forged| forged.frames[0].start = None),
        ("a later first entry", |forged| {
            forged.frames[0].start = Some((512, b"a".to_vec()));
        }),
        ("another first name", |forged| {
            forged.frames[0].start = Some((0, b"z".to_vec()));
        }),
        ("a first name that leads out", |forged| {
            forged.frames[0].start = Some((0, b"../z".to_vec()));
        }),
        ("an absolute first name", |forged| {
            forged.frames[0].start = Some((0, b"/z".to_vec()));
        }),
        ("an entry behind its frame", |forged| {
            forged.frames[0].start = Some((1 << 30, b"".to_vec()));
        }),
        ("bytes before the first frame", |forged| {
            forged.frames[0].bytes.insert(0, 0);
        }),
    ];
    let all = changes.iter().map(|(what, change)| {
        let mut forged = ours();
        change(&mut forged);
        (format!("an index with {what}"), forged.bytes())
    });
    all.chain(frames()).collect()
}

/// Frames that are not what they should be.
fn frames() -> Vec<Forgery> {
    let tar = our_tar();
    let (first, second) = tar.split_at(1024);
    let two = || {
        let mut forged = ours();
        forged.frames = vec![
            ForgedFrame::new(first, Some((0, b""))),
            ForgedFrame::new(second, Some((512, b"b"))),
        ];
        forged
    };
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0][..], b"skip"].concat();
    let change = |change: &dyn Fn(&mut Forged)| {
        let mut forged = two();
        change(&mut forged);
        forged.bytes()
    };
    let frame = |tar: &[u8]| ForgedFrame::new(tar, None);
    let all = [
        (
            "frames that changed places",
            change(&|forged| {
                forged.frames.swap(0, 1);
                let start = forged.frames[1].start.take();
                forged.frames[1].start = std::mem::replace(&mut forged.frames[0].start, start);
            }),
        ),
        (
            "a frame twice",
            change(&|forged| forged.frames.push(forged.frames[1].clone())),
        ),
        (
            "the first frame alone",
            change(&|forged| drop(forged.frames.pop())),
        ),
        (
            "a frame of zeros behind the end",
            change(&|forged| forged.frames.push(frame(&[0; 512]))),
        ),
        (
            "a frame that is to be skipped",
            change(&|forged| forged.frames[1].replace(skippable.clone())),
        ),
        (
            "a frame with one to be skipped",
            change(&|forged| {
                let bytes = [&forged.frames[1].bytes[..], &skippable].concat();
                forged.frames[1].replace(bytes);
            }),
        ),
        (
            "two frames in one",
            change(&|forged| {
                let half = zstd::bulk::compress(&tar[1024..1536], 1).unwrap();
                let rest = zstd::bulk::compress(&tar[1536..], 1).unwrap();
                forged.frames[1].replace([half, rest].concat());
            }),
        ),
        (
            "a frame that does not say its length",
            change(&|forged| {
                forged.frames[1].replace(zstd::encode_all(second, 1).unwrap());
            }),
        ),
        (
            "a frame of junk",
            change(&|forged| forged.frames[1].replace(b"junk".to_vec())),
        ),
        (
            "no names in the second frame",
            change(&|forged| forged.frames[1].start = None),
        ),
        (
            "a wrong place in the second frame",
            change(&|forged| {
                forged.frames[1].start = Some((0, b"b".to_vec()));
            }),
        ),
        (
            "a wrong name in the second frame",
            change(&|forged| {
                forged.frames[1].start = Some((512, b"bb".to_vec()));
            }),
        ),
        (
            "names that are not sorted",
            change(&|forged| {
                forged.frames[0].start = Some((0, b"z".to_vec()));
            }),
        ),
    ];
    all.map(|(what, bytes)| (what.to_owned(), bytes)).into()
}

/// Tars in frames, with an index that fits, that are not as we write them.
fn unlike_ours() -> Vec<Forgery> {
    let start = || Raw::new().directory("./");
    let file = Block::new(b'0', b"a");
    let mut spelled = file.clone();
    spelled.mode = b"   644 \0".to_vec();
    let mut v7 = file.clone();
    v7.magic = b"ustar  \0".to_vec();
    let all: [(&str, Raw, [u64; 3]); 17] = [
        (
            "not sorted",
            start().file("b", b"").file("a", b""),
            [3, 2, 0],
        ),
        (
            "a file twice",
            start().file("a", b"").file("a", b""),
            [3, 2, 0],
        ),
        ("no root", Raw::new().file("a", b""), [1, 1, 0]),
        ("a missing directory", start().file("a/b", b""), [2, 1, 0]),
        (
            "through a file",
            start().file("a", b"").file("a/b", b""),
            [3, 2, 0],
        ),
        (
            "through a link",
            start().symlink("a", "/tmp").file("a/b", b""),
            [3, 1, 0],
        ),
        (
            "a link back to nothing",
            start().hard_link("b", "a"),
            [2, 0, 0],
        ),
        (
            "a link forward",
            start().hard_link("a", "b").file("b", b""),
            [3, 1, 0],
        ),
        (
            "a link to a directory",
            start().directory("a/").hard_link("b", "a"),
            [3, 0, 0],
        ),
        ("a name with ./", start().file("./a", b""), [2, 1, 0]),
        (
            "a directory without its slash",
            start().directory("a"),
            [2, 0, 0],
        ),
        (
            "another spelling of a number",
            start().block(&spelled),
            [2, 1, 0],
        ),
        ("another magic", start().block(&v7), [2, 1, 0]),
        (
            "a pax header that is not needed",
            start().pax(&[(b"path", b"a")]).file("a", b""),
            [2, 1, 0],
        ),
        (
            "a global header",
            start().global(&[(b"comment", b"x")]).file("a", b""),
            [2, 1, 0],
        ),
        (
            "a long name of GNU",
            start().gnu_long(b'L', b"a").file("a", b""),
            [2, 1, 0],
        ),
        (
            "padding that is not zero",
            start().block(&file.clone().sized(1)).bytes(&[1; 512]),
            [2, 1, 1],
        ),
    ];
    let all = all.into_iter().map(|(what, raw, counts)| {
        let mut forged = Forged::new(&raw.end(), counts);
        if what == "no root" {
            forged.frames[0].start = Some((0, b"a".to_vec()));
        }
        (format!("ours, but {what}"), forged.bytes())
    });
    all.collect()
}

fn forgeries() -> Vec<Forgery> {
    let tars = [names(), places(), kinds(), headers(), sparse(), numbers()].concat();
    let mut all: Vec<Forgery> = Vec::new();
    for (what, raw) in tars {
        let tar = raw.end();
        if tar.len() < 1 << 20 {
            all.push((
                format!("{what}, in frames"),
                Forged::new(&tar, [3, 1, 7]).bytes(),
            ));
        }
        all.push((what, tar));
    }
    all.extend(ends());
    all.extend(streams());
    all.extend(indexes());
    all.extend(unlike_ours());
    all
}

fn attempt(archive: &Path, target: &Path) -> Result<(), ArchiveError> {
    let archive = Archive::open(archive)?;
    let origin = RestoreOrigin {
        at: Timestamp::from_millis(0),
        from: "a test".to_owned(),
    };
    unpack(&archive, target, &UnpackSettings::default(), &origin).map(|_| ())
}

/// Everything in a directory, with its content.
fn everything(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            all.insert(format!("{name}/"), Vec::new());
            let inside = everything(&entry.path());
            all.extend(
                inside
                    .into_iter()
                    .map(|(below, bytes)| (format!("{name}/{below}"), bytes)),
            );
        } else {
            all.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
    all
}

#[test]
fn every_forgery_is_refused_and_touches_nothing() {
    let forgeries = forgeries();
    assert!(forgeries.len() >= 150, "{}", forgeries.len());
    let home = tempfile::tempdir().unwrap();
    let around = home.path().join("around");
    std::fs::create_dir(&around).unwrap();
    std::fs::write(around.join("canary"), "alive").unwrap();
    std::fs::write(around.join("outside"), "untouched").unwrap();
    let archive = home.path().join("archive");
    let before = everything(&around);

    for (what, bytes) in &forgeries {
        std::fs::write(&archive, bytes).unwrap();
        let target = around.join("target");
        let refused = attempt(&archive, &target);

        let refused = refused.expect_err(what);
        let is_told = matches!(
            refused,
            ArchiveError::Refused { .. } | ArchiveError::Write(_)
        );
        assert!(is_told, "{what}: {refused:?}");
        assert_eq!(everything(&around), before, "{what}");
        if let Ok(archive) = Archive::open(&archive) {
            let listed = archive.list(&ReadSettings::default(), |_| Ok::<_, ArchiveError>(()));
            let verified = archive.verify(&ReadSettings::default());
            assert!(
                listed.is_err() || verified.is_err() || matches!(refused, ArchiveError::Write(_)),
                "{what}"
            );
        }
    }
    println!(
        "{} forgeries refused as uid {}",
        forgeries.len(),
        rustix::process::geteuid().as_raw()
    );
}

#[test]
fn nobody_is_fooled_either() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(home.path(), Some(65_534), Some(65_534)).unwrap();
    let program = home.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::os::unix::fs::chown(&program, Some(65_534), Some(65_534)).unwrap();

    let done = Command::new(&program)
        .args([
            "--exact",
            "hostile::every_forgery_is_refused_and_touches_nothing",
            "--nocapture",
        ])
        .env("TMPDIR", home.path())
        .current_dir(home.path())
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();

    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(said.contains("refused as uid 65534"), "{said}");
}

#[test]
fn an_archive_of_ours_that_is_forged_well_is_accepted() {
    let home = tempfile::tempdir().unwrap();
    let archive = home.path().join("archive");
    std::fs::write(&archive, ours().bytes()).unwrap();

    attempt(&archive, &home.path().join("target")).unwrap();

    assert_eq!(
        std::fs::read(home.path().join("target/c/d")).unwrap(),
        b"more"
    );
}

#[test]
fn stored_bytes_that_others_were_written_as_are_found_by_verify() {
    let home = tempfile::tempdir().unwrap();
    let archive = home.path().join("archive");
    let mut forged = ours();
    forged.frames[0].stored_digest[3] ^= 1;
    std::fs::write(&archive, forged.bytes()).unwrap();

    // The tar bytes have a digest of their own, so that the tree is right all the same.
    attempt(&archive, &home.path().join("target")).unwrap();
    let archive = Archive::open(&archive).unwrap();
    let refused = archive.verify(&ReadSettings::default()).unwrap_err();

    let why = std::error::Error::source(&refused).unwrap().to_string();
    assert!(why.contains("its stored bytes have changed"), "{why}");
}
