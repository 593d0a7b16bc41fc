//! Databases written by LevelDB itself, through its Python binding.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests damage the databases that they look at"
)]

use stasis_disk::check::{CheckSettings, Depth, Recovered, Verdict, leveldb};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_model::tree::EntryPath;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Debian's own interpreter: the package is for that one.
const PYTHON: &str = "/usr/bin/python3";

/// Writes 20,000 keys, overwrites some, removes some, and takes in what was written, in two compactions. Then writes
/// more, which stays in the log, and ends without closing anything.
const WRITE: &str = "
import os, sys, plyvel
db = plyvel.DB(sys.argv[1], create_if_missing=True, write_buffer_size=1 << 18, compression=sys.argv[2] or None,
               bloom_filter_bits=10)
for turn in range(2):
    for n in range(20000):
        db.put(b'key %08d' % n, (b'value %d of turn %d ' % (n, turn)) * 8)
    for n in range(0, 20000, 7):
        db.delete(b'key %08d' % n)
    db.compact_range()
for n in range(300):
    with db.write_batch() as batch:
        for m in range(5):
            batch.put(b'late %d %d' % (n, m), os.urandom(100))
os._exit(0)
";

/// A database, or nothing where the binding is not there.
fn database(compression: &str) -> Option<TempDir> {
    let home = tempfile::tempdir().unwrap();
    let written = Command::new(PYTHON)
        .args(["-c", WRITE])
        .arg(home.path().join("db"))
        .arg(compression)
        .output();
    let reason = match written {
        Ok(output) if output.status.success() => return Some(home),
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
    assert!(!needed, "python3-plyvel does not work: {reason}");
    println!("skipped: python3-plyvel is not there");
    None
}

fn check(home: &TempDir, depth: Depth) -> Verdict {
    let root = RootDir::open(home.path(), Mounts::Stay).unwrap();
    let settings = CheckSettings {
        depth,
        ..CheckSettings::new(home.path())
    };
    leveldb::check(&root, &EntryPath::parse(b"db").unwrap(), &settings).unwrap()
}

fn files(home: &TempDir, suffix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.path().join("db")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| path.to_str().unwrap().ends_with(suffix))
        .collect();
    paths.sort();
    paths
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn what_leveldb_writes_is_sound_packed_or_not() {
    for compression in ["snappy", ""] {
        let Some(home) = database(compression) else {
            return;
        };

        for depth in [Depth::Quick, Depth::Full] {
            let verdict = check(&home, depth);

            let recovered = Recovered::Nothing;
            assert!(
                matches!(&verdict, Verdict::Sound { pages: 2.., recovered: found, .. } if *found == recovered),
                "{verdict:?}"
            );
        }
    }
}

#[test]
fn every_kind_of_damage_to_what_leveldb_wrote_is_found() {
    let Some(home) = database("snappy") else {
        return;
    };
    let tables = files(&home, ".ldb");
    let newest = files(&home, ".log").pop().unwrap();
    let length = usize::try_from(fs::metadata(&newest).unwrap().len()).unwrap();
    assert!(!tables.is_empty() && length > 100_000);

    // A byte in each of fifty places of a table.
    let size = usize::try_from(fs::metadata(&tables[0]).unwrap().len()).unwrap();
    for at in (0..size - 48).step_by(size / 50) {
        flip(&tables[0], at);
        assert!(check(&home, Depth::Full).is_damaged(), "byte {at}");
        flip(&tables[0], at);
    }
    // The middle of the log, and its end.
    flip(&newest, length / 2);
    assert!(check(&home, Depth::Quick).is_damaged());
    flip(&newest, length / 2);
    let whole = fs::read(&newest).unwrap();
    fs::write(&newest, &whole[..length - 50]).unwrap();
    let torn = check(&home, Depth::Quick);
    let recovered = Recovered::TornTail;
    assert!(
        matches!(&torn, Verdict::Sound { recovered: found, .. } if *found == recovered),
        "{torn:?}"
    );
    // A table that is gone.
    fs::remove_file(&tables[0]).unwrap();
    assert!(check(&home, Depth::Quick).is_damaged());
}
