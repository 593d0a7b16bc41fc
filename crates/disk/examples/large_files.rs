//! What a large file costs when it is saved again after a change, and how long it takes to restore.
//!
//! `large_files DIRECTORY [MEBIBYTES [FIRST BYTES]]` makes a file that compresses like a database, saves it, changes it in one
//! way, and saves it again; each way begins anew. `content` is what cutting by content into chunks of about 1 MiB would store.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measurement that cannot go on has failed; it makes what it measures, takes the time and prints it"
)]

use stasis_disk::form::chunked::restore::{RestoreParts, VersionProof, restore};
use stasis_disk::form::chunked::save::{Parent, SaveParts, SaveSettings, Saved, save};
use stasis_disk::form::chunked::{
    ChunkCodec, ChunkError, ChunkSink, ChunkSource, EncodedChunk, PlacedChunk,
};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::walk::WalkSettings;
use stasis_disk::tree::write::{TreeWriter, WriteSettings};
use stasis_model::digest::ChunkDigest;
use stasis_model::format::manifest::FileList;
use stasis_model::id::SnapshotId;
use stasis_model::protocol::gc::{ChunkName, GcEpoch};
use stasis_model::time::Timestamp;
use stasis_model::tree::chunking::Chunker;
use std::collections::HashSet;
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Instant;

const PAGE: usize = 4096;

/// A directory of chunks.
struct ChunkDir(PathBuf);

impl ChunkDir {
    fn path(&self, name: &ChunkName) -> PathBuf {
        self.0.join(name.to_string().replace('/', "_"))
    }
}

impl ChunkSink for ChunkDir {
    fn codec(&self) -> &ChunkCodec {
        &ChunkCodec::Plain
    }

    fn place(
        &self,
        digest: ChunkDigest,
        known: Option<ChunkName>,
    ) -> Result<PlacedChunk, ChunkError> {
        let name = known.unwrap_or(ChunkName::new(digest, GcEpoch::FIRST));
        let is_stored = self.path(&name).exists();
        Ok(PlacedChunk { name, is_stored })
    }

    fn put(&self, chunk: EncodedChunk) -> Result<(), ChunkError> {
        fs::write(self.path(&chunk.name), chunk.bytes).unwrap();
        Ok(())
    }
}

impl ChunkSource for ChunkDir {
    fn codec(&self) -> &ChunkCodec {
        &ChunkCodec::Plain
    }

    fn fetch(&self, name: &ChunkName) -> Result<Vec<u8>, ChunkError> {
        fs::read(self.path(name)).map_err(|_| ChunkError::Absent(*name))
    }
}

struct Bench {
    home: PathBuf,
    chunks: ChunkDir,
    parent: Option<Parent>,
    saves: u32,
}

impl Bench {
    fn new(home: &Path) -> Self {
        let _ = fs::remove_dir_all(home);
        fs::create_dir_all(home.join("tree")).unwrap();
        fs::create_dir_all(home.join("chunks")).unwrap();
        Self {
            home: home.to_owned(),
            chunks: ChunkDir(home.join("chunks")),
            parent: None,
            saves: 0,
        }
    }

    fn file(&self) -> PathBuf {
        self.home.join("tree/app.db")
    }

    fn save(&mut self) -> Saved {
        let root = RootDir::open(&self.home.join("tree"), Mounts::Stay).unwrap();
        let snapshot: SnapshotId = format!("s{}", self.saves).parse().unwrap();
        let settings = SaveSettings {
            walk: WalkSettings {
                workers: NonZeroUsize::new(2).unwrap(),
                ..WalkSettings::default()
            },
            chunker: Chunker::default(),
            level: 3,
            started: Timestamp::from_millis(5_000_000_000_000),
            cache: None,
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
        let saved = save(&parts, &settings).unwrap();
        self.saves += 1;
        self.parent = Some(Parent {
            snapshot,
            list: saved.list.clone(),
            digest: saved.digest,
            totals: saved.totals,
            root: saved.root,
            root_attributes: saved.root_attributes.clone(),
        });
        saved
    }

    fn restore(&self, saved: &Saved) -> f64 {
        let target = self.home.join("back");
        fs::create_dir(&target).unwrap();
        let began = Instant::now();
        let root = File::open(&target).unwrap().into();
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
            workers: NonZeroUsize::new(2).unwrap(),
        };
        let written = restore(&parts).unwrap();
        assert_eq!(written.digest, saved.digest);
        let _ = writer.finish(Some(&saved.root)).unwrap();
        let seconds = began.elapsed().as_secs_f64();
        let is_same = fs::read(target.join("app.db")).unwrap() == fs::read(self.file()).unwrap();
        assert!(is_same, "what comes back is not what was saved");
        fs::remove_dir_all(target).unwrap();
        seconds
    }
}

/// Numbers that look random, the same for the same seed.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap()
    }

    /// Rows of a third noise and two thirds filler.
    fn page(&mut self, page: &mut [u8]) {
        for row in page.chunks_mut(96) {
            let noise = row.len() / 3;
            for byte in &mut row[..noise] {
                *byte = self.next().to_le_bytes()[3];
            }
            row[noise..].fill(b'.');
        }
    }
}

fn made(bytes: usize, beginning: &[u8]) -> Vec<u8> {
    let mut draw = Draw(0x9e37_79b9_7f4a_7c15);
    let mut file = vec![0; bytes];
    file.chunks_mut(PAGE).for_each(|page| draw.page(page));
    file[..beginning.len()].copy_from_slice(beginning);
    file
}

fn shuffled(file: &mut Vec<u8>, page: usize) {
    let mut draw = Draw(77);
    let mut order: Vec<usize> = (1..file.len() / page).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, draw.below(at + 1));
    }
    let mut new = file[..page].to_vec();
    for at in order {
        new.extend_from_slice(&file[at * page..(at + 1) * page]);
    }
    *file = new;
}

fn changed_pages(file: &mut [u8], share: usize, seed: u64) {
    let mut draw = Draw(seed);
    let pages = file.len() / PAGE;
    for _ in 0..pages / share {
        let at = (1 + draw.below(pages - 1)) * PAGE;
        draw.page(&mut file[at..at + PAGE]);
    }
}

/// What cutting by content would store: the compressed size of chunks that the old file does not have.
fn by_content(old: &[u8], new: &[u8]) -> u64 {
    let cutter = Chunker::default().cutter();
    let cut = |mut bytes: &[u8], show: &mut dyn FnMut(&[u8])| {
        while !bytes.is_empty() {
            let (chunk, rest) = bytes.split_at(cutter.cut(bytes));
            show(chunk);
            bytes = rest;
        }
    };
    let mut known = HashSet::new();
    cut(old, &mut |chunk| {
        known.insert(blake3::hash(chunk));
    });
    let mut stored = 0;
    cut(new, &mut |chunk| {
        if known.insert(blake3::hash(chunk)) {
            stored += zstd::bulk::compress(chunk, 3).unwrap().len() as u64;
        }
    });
    stored
}

/// The most memory that was in use since the last call, in MiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    let peak: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    let _ = fs::write("/proc/self/clear_refs", "5");
    peak >> 10
}

fn extents(list: &FileList, source: &ChunkDir) -> usize {
    let mut reader = stasis_disk::form::chunked::list::ListReader::new(source, list).unwrap();
    let row = reader.next_row().unwrap().unwrap();
    row.content.map_or(0, |content| content.extents.len())
}

fn measure(bench: &mut Bench, what: &str, by_content: u64) {
    peak();
    let began = Instant::now();
    let saved = bench.save();
    let seconds = began.elapsed().as_secs_f64();
    let peak = peak();
    let stored = saved.report.bytes_stored;
    let extents = extents(&saved.list, &bench.chunks);
    let back = bench.restore(&saved);
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let mb = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "{what:24} stored {:8.2} MB   content {:8.2} MB   {seconds:6.2} s   peak {peak:4} MiB   {extents:6} extents   restore {back:5.2} s",
        mb(stored),
        mb(by_content),
    );
}

type Change = fn(&mut Vec<u8>);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let home = PathBuf::from(arguments.next().expect("a directory to work in"));
    let mebibytes: usize = arguments.next().map_or(256, |size| size.parse().unwrap());
    let kind = arguments.next().unwrap_or_default();
    let beginning: &[u8] = if kind == "sqlite" {
        b"SQLite format 3\0"
    } else {
        b"file"
    };
    let ways: [(&str, Change); 8] = [
        ("1 % of pages", |file| changed_pages(file, 100, 5)),
        ("7 bytes inserted", |file| {
            file.splice(100_000..100_000, *b"seven..");
        }),
        ("inserted, 1 % before", |file| changed_pages(file, 100, 6)),
        ("100 insertions", |file| {
            let (mut draw, length) = (Draw(3), file.len());
            let mut new = Vec::with_capacity(length + 1000);
            let mut cuts: Vec<usize> = (0..100).map(|_| draw.below(length)).collect();
            cuts.sort_unstable();
            let mut at = 0;
            for cut in cuts {
                new.extend_from_slice(&file[at..cut]);
                new.extend_from_slice(b"inserted");
                at = cut;
            }
            new.extend_from_slice(&file[at..]);
            *file = new;
        }),
        ("16 KiB pages shuffled", |file| shuffled(file, 16 << 10)),
        ("64 KiB pages shuffled", |file| shuffled(file, 64 << 10)),
        ("4 KiB pages shuffled", |file| shuffled(file, PAGE)),
        ("everything new", |file| changed_pages(file, 1, 9)),
    ];
    let original = made(mebibytes << 20, beginning);
    for (number, (what, change)) in ways.into_iter().enumerate() {
        let mut bench = Bench::new(&home);
        fs::write(bench.file(), &original).unwrap();
        if number == 0 {
            measure(&mut bench, "first", by_content(&[], &original));
        } else {
            let _ = bench.save();
        }
        let mut before = original.clone();
        let mut file = original.clone();
        change(&mut file);
        if what == "inserted, 1 % before" {
            fs::write(bench.file(), &file).unwrap();
            let _ = bench.save();
            before.clone_from(&file);
            file.splice(100_000..100_000, *b"seven..");
        }
        fs::write(bench.file(), &file).unwrap();
        let expected = by_content(&before, &file);
        measure(&mut bench, what, expected);
    }
    let _ = fs::remove_dir_all(home);
}
