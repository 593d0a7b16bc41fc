//! Trees that change at random, saved again and again: every snapshot comes back exactly, however it was saved.
//!
//! Each series is saved side by side with and without a memory of the tree, by one worker and by four: all must say the same
//! digest, and what they stored must restore to the same entries and bytes. `STASIS_SERIES` says how many series; a
//! series that fails prints its seed, and `STASIS_SERIES_SEED` runs that one.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests make the trees that they look at"
)]

use stasis_disk::form::chunked::list_cache::ListCacheKey;
use stasis_disk::form::chunked::restore::{RestoreParts, VersionProof, restore};
use stasis_disk::form::chunked::save::{Parent, SaveParts, SaveSettings, Saved, save};
use stasis_disk::form::chunked::{
    ChunkCodec, ChunkError, ChunkSink, ChunkSource, EncodedChunk, PlacedChunk,
};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::walk::{self, WalkSettings};
use stasis_disk::tree::write::{TreeWriter, WriteSettings};
use stasis_model::digest::{ChunkDigest, TreeDigest};
use stasis_model::id::{OpId, SnapshotId};
use stasis_model::protocol::gc::{ChunkName, GcEpoch};
use stasis_model::time::Timestamp;
use stasis_model::tree::Entry;
use stasis_model::tree::chunking::Chunker;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// How often a tree is changed and saved.
const STEPS: usize = 10;

/// Lengths at which something begins or ends.
const LENGTHS: [u64; 13] = [
    0,
    1,
    100,
    4096,
    16_383,
    16_384,
    16_385,
    200_000,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 1,
    (2 << 20) + 17,
    3 << 20,
];

/// Numbers that look random, the same for the same seed.
struct Draw(u64);

impl Draw {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let at = usize::try_from(self.below(of.len() as u64)).unwrap();
        of.get(at)
    }

    /// Bytes that compress, or do not, or begin as a database does.
    fn bytes(&mut self, length: u64) -> Vec<u8> {
        let length = usize::try_from(length).unwrap();
        let mut bytes = match self.below(4) {
            0 => format!("line {} of a text\n", self.below(9))
                .into_bytes()
                .repeat(length / 16 + 1),
            _ => std::iter::repeat_with(|| self.next())
                .take(length / 8 + 1)
                .flat_map(u64::to_le_bytes)
                .collect(),
        };
        bytes.truncate(length);
        if self.below(3) == 0 && length >= 16 {
            bytes[..16].copy_from_slice(b"SQLite format 3\0");
        }
        bytes
    }
}

#[derive(Default)]
struct Chunks(Mutex<BTreeMap<ChunkName, Vec<u8>>>);

impl ChunkSink for Chunks {
    fn codec(&self) -> &ChunkCodec {
        &ChunkCodec::Plain
    }

    fn place(
        &self,
        digest: ChunkDigest,
        known: Option<ChunkName>,
    ) -> Result<PlacedChunk, ChunkError> {
        let name = known.unwrap_or(ChunkName::new(digest, GcEpoch::FIRST));
        let is_stored = self.0.lock().unwrap().contains_key(&name);
        assert!(
            is_stored || known.is_none(),
            "a name that is known is there"
        );
        Ok(PlacedChunk { name, is_stored })
    }

    fn put(&self, chunk: EncodedChunk) -> Result<(), ChunkError> {
        self.0.lock().unwrap().insert(chunk.name, chunk.bytes);
        Ok(())
    }
}

impl ChunkSource for Chunks {
    fn codec(&self) -> &ChunkCodec {
        &ChunkCodec::Plain
    }

    fn fetch(&self, name: &ChunkName) -> Result<Vec<u8>, ChunkError> {
        let chunks = self.0.lock().unwrap();
        chunks.get(name).cloned().ok_or(ChunkError::Absent(*name))
    }
}

/// One way to save a series.
struct Line {
    chunks: Chunks,
    workers: usize,
    cache: Option<PathBuf>,
    parent: Option<Parent>,
    saved: Vec<Saved>,
}

impl Line {
    fn new(workers: usize, cache: Option<PathBuf>) -> Self {
        Self {
            chunks: Chunks::default(),
            workers,
            cache,
            parent: None,
            saved: Vec::new(),
        }
    }

    fn save(&mut self, tree: &Path) -> &Saved {
        let root = RootDir::open(tree, Mounts::Stay).unwrap();
        let snapshot: SnapshotId = format!("s{}", self.saved.len()).parse().unwrap();
        let settings = SaveSettings {
            walk: WalkSettings {
                workers: NonZeroUsize::new(self.workers).unwrap(),
                strict: true,
                ..WalkSettings::default()
            },
            chunker: Chunker::default(),
            level: 1,
            // Far in the future: every file counts as old. The series takes care that no two changes share an instant.
            started: Timestamp::from_millis(5_000_000_000_000),
            cache: self.cache.clone().map(|file| ListCacheKey {
                file,
                repo: OpId::default(),
            }),
            progress: std::sync::Arc::default(),
        };
        let parts = SaveParts {
            root: &root,
            sink: &self.chunks,
            source: &self.chunks,
            parent: self.parent.as_ref(),
            is_indexed: &|_| true,
            snapshot: &snapshot,
            damaged: &HashSet::new(),
            witness: None,
            databases: None,
            versions: None,
            held: None,
        };
        let mut saved = save(&parts, &settings).unwrap();
        saved.keep_cache().unwrap();
        self.parent = Some(Parent {
            snapshot,
            list: saved.list.clone(),
            digest: saved.digest,
            totals: saved.totals,
            root: saved.root,
            root_attributes: saved.root_attributes.clone(),
        });
        let stored = self.chunks.0.lock().unwrap();
        assert!(
            saved.names.iter().all(|name| stored.contains_key(name)),
            "a chunk dangles"
        );
        drop(stored);
        self.saved.push(saved);
        self.saved.last().unwrap()
    }

    fn restore(&self, saved: &Saved, target: &Path) {
        fs::create_dir(target).unwrap();
        let root = File::open(target).unwrap().into();
        let writer = TreeWriter::new(root, WriteSettings::default()).unwrap();
        let parts = RestoreParts {
            part: None,
            may_be_missing: false,
            source: &self.chunks,
            list: &saved.list,
            writer: &writer,
            only: &[],
            old: None,
            leave: None,
            same: None,
            versions: VersionProof::Digest,
            workers: NonZeroUsize::new(self.workers).unwrap(),
        };
        let written = restore(&parts).unwrap();
        assert_eq!(written.digest, saved.digest);
        let _ = writer.finish(Some(&saved.root)).unwrap();
    }
}

/// All entries with their metadata, and what is in the files.
type Shown = (Vec<Entry>, BTreeMap<PathBuf, blake3::Hash>);

fn show(tree: &Path) -> Shown {
    let root = RootDir::open(tree, Mounts::Stay).unwrap();
    let (entries, _) = walk::list(&root, &WalkSettings::default()).unwrap();
    let contents = files(tree).into_iter().map(|path| {
        let hash = blake3::hash(&fs::read(&path).unwrap());
        (path.strip_prefix(tree).unwrap().to_owned(), hash)
    });
    (entries, contents.collect())
}

/// What a restore gives back: everything to root, and everything but setuid and setgid to an ordinary user.
fn restorable(entries: &[Entry]) -> Vec<Entry> {
    let kept = if rustix::process::geteuid().is_root() {
        0o7777
    } else {
        0o1777
    };
    let mut entries = entries.to_vec();
    for entry in &mut entries {
        entry.metadata.mode &= kept;
    }
    entries
}

fn all(tree: &Path, wanted: fn(&fs::FileType) -> bool) -> Vec<PathBuf> {
    let (mut found, mut waiting) = (Vec::new(), vec![tree.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                waiting.push(entry.path());
            }
            found.extend(wanted(&kind).then(|| entry.path()));
        }
    }
    found.sort();
    found
}

fn files(tree: &Path) -> Vec<PathBuf> {
    all(tree, fs::FileType::is_file)
}

fn directories(tree: &Path) -> Vec<PathBuf> {
    let mut found = all(tree, fs::FileType::is_dir);
    found.push(tree.to_owned());
    found
}

/// A name that may be taken, with bytes that are no text now and then.
fn a_place(tree: &Path, draw: &mut Draw) -> PathBuf {
    let directory = draw.one(&directories(tree)).unwrap().clone();
    let number = draw.below(30);
    match draw.below(6) {
        0 => directory.join(OsStr::from_bytes(&[
            b'\xff',
            b'\n',
            65 + u8::try_from(number).unwrap(),
        ])),
        _ => directory.join(format!("n{number}")),
    }
}

fn remove(path: &Path) {
    if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path).unwrap();
    } else {
        let _ = fs::remove_file(path);
    }
}

/// Changes what is in a file.
fn edit(path: &Path, draw: &mut Draw) {
    let seen = fs::metadata(path).unwrap();
    let length = seen.len();
    // Root writes to a read-only file as it is; its owner has to open it first.
    let writable = fs::Permissions::from_mode(seen.permissions().mode() | 0o200);
    fs::set_permissions(path, writable).unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    match draw.below(7) {
        0 => file.set_len(draw.below(length + 1)).unwrap(),
        1 => {
            let more = *draw.one(&LENGTHS).unwrap() / 3;
            file.write_all_at(&draw.bytes(more), length).unwrap();
        }
        // A hole, and something behind it.
        2 => file
            .write_all_at(b"behind", length + draw.below(3 << 20))
            .unwrap(),
        3 => {
            let at = usize::try_from(draw.below(length + 1)).unwrap();
            let mut bytes = fs::read(path).unwrap();
            let new = draw.bytes(777);
            bytes.splice(at..at, new);
            fs::write(path, bytes).unwrap();
        }
        // In place, as a database writes: the length stays, and now and then the time of change does too.
        _ => {
            let before = fs::metadata(path).unwrap().modified().unwrap();
            for _ in 0..=draw.below(4) {
                let at = draw.below(length.max(1)) / 512 * 512;
                let room = length.saturating_sub(at).min(4096);
                file.write_all_at(&draw.bytes(room), at).unwrap();
            }
            if draw.below(2) == 0 {
                file.set_modified(before).unwrap();
            }
        }
    }
}

/// Changes something about the tree.
fn change(tree: &Path, draw: &mut Draw) {
    let (all_files, place) = (files(tree), a_place(tree, draw));
    let Some(file) = draw.one(&all_files).cloned() else {
        let length = *draw.one(&LENGTHS).unwrap();
        remove(&place);
        return fs::write(place, draw.bytes(length)).unwrap();
    };
    match draw.below(16) {
        0..=2 => {
            let length = *draw.one(&LENGTHS).unwrap();
            remove(&place);
            fs::write(place, draw.bytes(length)).unwrap();
        }
        3..=6 => edit(&file, draw),
        7 => remove(&file),
        8 if !file.starts_with(&place) && file != place => {
            remove(&place);
            fs::rename(&file, &place).unwrap();
        }
        9 if !file.starts_with(&place) && file != place => {
            remove(&place);
            fs::hard_link(&file, &place).unwrap();
        }
        10 if !file.starts_with(&place) && file != place => {
            remove(&place);
            fs::copy(&file, &place).unwrap();
        }
        11 => {
            remove(&place);
            std::os::unix::fs::symlink(format!("../to{}", draw.below(99)), place).unwrap();
        }
        12 => {
            remove(&place);
            fs::create_dir(&place).unwrap();
            fs::create_dir(place.join("inner")).unwrap();
        }
        13 => {
            let mode = *draw.one(&[0o600, 0o644, 0o755, 0o400, 0o4755]).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        }
        14 => {
            let value = draw.bytes(50);
            let flags = rustix::fs::XattrFlags::empty();
            let on = draw.one(&[file, tree.to_owned()]).unwrap().clone();
            // Not every filesystem has them.
            let _ = rustix::fs::setxattr(&on, "user.mark", &value, flags);
        }
        _ => {
            let some = directories(tree);
            let directory = draw.one(&some).unwrap();
            if directory != tree {
                let to = tree.join(format!("moved{}", draw.below(9)));
                if !to.exists() && !to.starts_with(directory) {
                    fs::rename(directory, to).unwrap();
                }
            }
        }
    }
}

/// Nothing changed: files are read again only to leave bundles that are mostly unused, and soon no more.
fn settles(line: &mut Line, tree: &Path, digest: TreeDigest) {
    let known = line.saved.len();
    for _ in 0..2 {
        let again = line.save(tree);
        assert_eq!(again.digest, digest);
        assert!(again.report.files_read == 0 || again.report.bytes_moved > 0);
    }
    let last = &line.saved[line.saved.len() - 1].report;
    assert_eq!((last.files_read, last.chunks_new), (0, 0));
    line.saved.truncate(known);
}

fn series(seed: u64) {
    let home = tempfile::tempdir().unwrap();
    let tree = home.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let mut draw = Draw::new(seed);
    if seed.is_multiple_of(3) {
        // More entries than a manifest lists itself.
        for number in 0..1200 {
            fs::create_dir_all(tree.join(format!("many{}", number % 7))).unwrap();
            fs::write(
                tree.join(format!("many{}/f{number}", number % 7)),
                format!("{number}").repeat(number % 40),
            )
            .unwrap();
        }
    }
    let memory = |name: &str| Some(home.path().join(name));
    let mut lines = [
        Line::new(1, None),
        Line::new(4, None),
        Line::new(1, memory("memory1")),
        Line::new(4, memory("memory4")),
    ];
    let mut shown = Vec::new();
    for step in 0..STEPS {
        // The kernel's clock ticks in between, so that a change is always seen by its time.
        std::thread::sleep(Duration::from_millis(12));
        for _ in 0..=draw.below(8) {
            change(&tree, &mut draw);
        }
        std::thread::sleep(Duration::from_millis(12));
        shown.push(show(&tree));
        let digests: Vec<_> = lines
            .iter_mut()
            .map(|line| line.save(&tree).digest)
            .collect();
        assert!(
            digests.iter().all(|digest| *digest == digests[0]),
            "step {step}: {digests:?}"
        );
        settles(&mut lines[3], &tree, digests[0]);
    }
    for (number, line) in lines.iter().enumerate() {
        for (step, (saved, shown)) in line.saved.iter().zip(&shown).enumerate() {
            // A restore makes its tree durable, which takes time: each snapshot once, and the last one of every line.
            if step % lines.len() != number && step + 1 != STEPS {
                continue;
            }
            let target = home.path().join("back");
            line.restore(saved, &target);
            let context = format!("step {step}, {} workers, {:?}", line.workers, line.cache);
            let (back, wanted) = (show(&target), restorable(&shown.0));
            assert!(
                back.0 == wanted,
                "{context}: {:#?}",
                differing(&back.0, &wanted)
            );
            assert!(back.1 == shown.1, "{context}");
            fs::remove_dir_all(target).unwrap();
        }
    }
}

fn differing(one: &[Entry], two: &[Entry]) -> Vec<Entry> {
    let mut all: Vec<Entry> = one
        .iter()
        .filter(|entry| !two.contains(entry))
        .cloned()
        .collect();
    all.extend(two.iter().filter(|entry| !one.contains(entry)).cloned());
    all
}

#[test]
fn every_snapshot_of_a_random_series_comes_back_exactly() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    if let Some(seed) = number("STASIS_SERIES_SEED") {
        return series(seed);
    }
    let count = number("STASIS_SERIES").unwrap_or(3);
    for seed in 0..count {
        println!("seed {seed}");
        series(seed);
    }
}
