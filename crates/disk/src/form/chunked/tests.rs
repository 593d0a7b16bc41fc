#![expect(
    clippy::disallowed_methods,
    reason = "tests make and change the trees that are saved"
)]

mod edits;
mod stated;
mod tar;

use super::list::ListReader;
use super::list_cache::ListCacheKey;
use super::restore::{RestoreParts, VersionProof, restore};
use super::save::{Parent, SaveParts, SaveSettings, Saved, save, save_stated};
use super::*;
use crate::fs::root_dir::{Mounts, RootDir};
use crate::tree::stated::StatedMetadata;
use crate::tree::walk::{self, WalkSettings};
use crate::tree::write::{TreeWriter, WriteSettings};
use stasis_model::digest::TreeDigest;
use stasis_model::id::{OpId, SnapshotId};
use stasis_model::protocol::gc::GcEpoch;
use stasis_model::time::Timestamp;
use stasis_model::tree::Entry;
use stasis_model::tree::chunking::Chunker;
use stasis_model::tree::list::FileContent;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

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
        let is_stored = self
            .0
            .lock()
            .unwrap()
            .get(&name)
            .is_some_and(|bytes| ChunkCodec::Plain.open(&name, bytes).is_ok());
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

impl Chunks {
    fn bytes(&self) -> u64 {
        self.0
            .lock()
            .unwrap()
            .values()
            .map(|chunk| chunk.len() as u64)
            .sum()
    }
}

struct World {
    scratch: tempfile::TempDir,
    chunks: Chunks,
    parent: Option<Parent>,
    saves: u32,
    caches: bool,
    damaged: HashSet<ChunkName>,
    /// A directory that is saved in the place of another one.
    overlay: Option<(EntryPath, PathBuf)>,
}

impl World {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir(scratch.path().join("tree")).unwrap();
        Self {
            scratch,
            chunks: Chunks::default(),
            parent: None,
            saves: 0,
            caches: true,
            damaged: HashSet::new(),
            overlay: None,
        }
    }

    fn tree(&self) -> PathBuf {
        self.scratch.path().join("tree")
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.tree().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Lets all files look old, so that a memory of them counts.
    fn settle(&self) {
        let tree = self.tree();
        let status = Command::new("find")
            .arg(&tree)
            .args([
                "-type",
                "f",
                "-exec",
                "touch",
                "-d",
                "2020-01-02 03:04:05.678901234",
                "{}",
                "+",
            ])
            .status();
        assert!(status.unwrap().success());
    }

    fn save(&mut self) -> Saved {
        self.save_with(2)
    }

    fn save_with(&mut self, workers: usize) -> Saved {
        self.save_as(workers, None)
    }

    fn save_as(&mut self, workers: usize, stated: Option<&StatedMetadata<'_>>) -> Saved {
        let mut root = RootDir::open(&self.tree(), Mounts::Stay).unwrap();
        if let Some((at, directory)) = &self.overlay {
            let directory = fs::File::open(directory).unwrap();
            root = root.with_overlay(at.clone(), directory.into()).unwrap();
        }
        let snapshot: SnapshotId = format!("s{}", self.saves).parse().unwrap();
        let cache = self.caches.then(|| ListCacheKey {
            file: self.scratch.path().join("memory"),
            repo: OpId::default(),
        });
        let settings = SaveSettings {
            walk: WalkSettings {
                workers: NonZeroUsize::new(workers).unwrap(),
                ..WalkSettings::default()
            },
            chunker: Chunker::default(),
            level: 3,
            // Far in the future: ctime cannot be set, and every file counts as old.
            started: Timestamp::from_millis(5_000_000_000_000),
            cache,
            progress: std::sync::Arc::default(),
        };
        let parts = SaveParts {
            root: &root,
            sink: &self.chunks,
            source: &self.chunks,
            parent: self.parent.as_ref(),
            is_indexed: &|_| true,
            snapshot: &snapshot,
            damaged: &self.damaged,
            witness: None,
            databases: None,
            versions: None,
            held: None,
        };
        let saved = match stated {
            Some(stated) => save_stated(&parts, &settings, stated),
            None => save(&parts, &settings),
        };
        let mut saved = saved.unwrap();
        saved.keep_cache().unwrap();
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

    fn restore(&self, saved: &Saved, name: &str) -> (PathBuf, TreeDigest) {
        let target = self.scratch.path().join(name);
        fs::create_dir(&target).unwrap();
        let writer = TreeWriter::new(
            fs::File::open(&target).unwrap().into(),
            WriteSettings::default(),
        )
        .unwrap();
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
        let _ = writer.finish(Some(&saved.root)).unwrap();
        (target, written.digest)
    }

    fn comes_back(&self, saved: &Saved) {
        let (target, digest) = self.restore(saved, &format!("back{}", self.saves));
        assert_eq!(digest, saved.digest);
        assert_eq!(entries(&target), entries(&self.tree()));
        let diff = Command::new("diff")
            .args(["-r", "--no-dereference"])
            .arg(&target)
            .arg(self.tree())
            .output()
            .unwrap();
        assert!(
            diff.status.success(),
            "{}",
            String::from_utf8_lossy(&diff.stdout)
        );
    }
}

fn entries(path: &Path) -> Vec<Entry> {
    let root = RootDir::open(path, Mounts::Stay).unwrap();
    walk::list(&root, &WalkSettings::default()).unwrap().0
}

/// Runs a test of this file again as somebody who is not root.
fn as_nobody(test: &str) {
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root becomes somebody else");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let output = Command::new(&program)
        .args(["--exact", test])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir(home.path())
        .env("TMPDIR", home.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("1 passed"), "{printed}");
}

/// Bytes that do not compress, the same for the same seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    let mut bytes = vec![0; length];
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

fn database(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = noise(seed, length);
    bytes[..16].copy_from_slice(b"SQLite format 3\0");
    bytes
}

fn a_tree(world: &World) {
    for number in 0..300_u32 {
        world.write(
            &format!("src/d{}/f{number}.rs", number % 17),
            &noise(number.into(), 100 + number as usize * 37),
        );
    }
    world.write("empty", b"");
    world.write("large.bin", &noise(1, 5 << 20));
    world.write("data/app.db", &database(2, 3 << 20));
    fs::create_dir_all(world.tree().join("void/inner")).unwrap();
    std::os::unix::fs::symlink("../nowhere", world.tree().join("src/link")).unwrap();
    fs::hard_link(
        world.tree().join("large.bin"),
        world.tree().join("void/again.bin"),
    )
    .unwrap();
    let sparse = fs::File::create(world.tree().join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 40 << 20).unwrap();
    world.settle();
}

#[test]
fn a_tree_comes_back_as_it_was() {
    let mut world = World::new();
    a_tree(&world);

    let saved = world.save();

    world.comes_back(&saved);
    assert_eq!(
        (
            saved.totals.files,
            saved.totals.hard_links,
            saved.totals.symlinks
        ),
        (304, 1, 1)
    );
    let names = world.chunks.0.lock().unwrap().keys().copied().collect();
    assert_eq!(
        saved.names, names,
        "every chunk is named, and every name is there"
    );
    let blocks = std::os::unix::fs::MetadataExt::blocks(
        &fs::metadata(world.scratch.path().join("back1/sparse")).unwrap(),
    );
    assert!(blocks < 200, "holes stay holes: {blocks}");
}

#[test]
fn more_entries_than_a_document_holds_lie_in_chunks_and_come_back() {
    let mut world = World::new();
    for number in 0..2500_u32 {
        world.write(
            &format!("d{}/file{number}", number % 50),
            &number.to_le_bytes(),
        );
    }
    world.settle();

    let saved = world.save();

    assert!(matches!(
        saved.list,
        stasis_model::format::manifest::FileList::Stored(_)
    ));
    world.comes_back(&saved);
}

#[test]
fn an_unchanged_tree_is_not_read_and_costs_nothing() {
    let mut world = World::new();
    for number in 0..1500_u32 {
        world.write(
            &format!("d{}/file{number}", number % 50),
            &number.to_le_bytes(),
        );
    }
    world.settle();
    let first = world.save();
    let bytes = world.chunks.bytes();

    let second = world.save();

    assert_eq!((second.report.files_read, second.report.chunks_new), (0, 0));
    assert_eq!((second.digest, &second.list), (first.digest, &first.list));
    assert_eq!(world.chunks.bytes(), bytes);
}

#[test]
fn without_a_memory_everything_is_read_and_nothing_stored() {
    let mut world = World::new();
    a_tree(&world);
    let first = world.save();
    world.caches = false;

    let second = world.save();

    assert_eq!(second.report.files_read, 304);
    assert_eq!(second.report.chunks_new, 0, "{:?}", second.report);
    assert_eq!(second.list, first.list);
}

#[test]
fn files_that_moved_or_were_touched_are_not_stored_again() {
    let mut world = World::new();
    a_tree(&world);
    let _ = world.save();
    fs::rename(world.tree().join("src"), world.tree().join("lib")).unwrap();
    fs::rename(
        world.tree().join("data/app.db"),
        world.tree().join("data/new.db"),
    )
    .unwrap();
    fs::File::open(world.tree().join("large.bin"))
        .unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();

    let saved = world.save();

    // Nothing but the list, which says where they are now.
    assert_eq!(saved.report.files_new, 0, "{:?}", saved.report);
    assert!(saved.report.bytes_stored < 20_000, "{:?}", saved.report);
    world.comes_back(&saved);
}

#[test]
fn one_page_of_a_database_costs_one_piece() {
    let mut world = World::new();
    let mut bytes = database(3, 6 << 20);
    world.write("app.db", &bytes);
    world.settle();
    let _ = world.save();
    bytes[3_000_000..3_000_010].copy_from_slice(b"0123456789");
    bytes.extend_from_slice(&noise(9, 5000));
    world.write("app.db", &bytes);
    world.settle();

    let saved = world.save();

    assert!(saved.report.bytes_stored < 60_000, "{:?}", saved.report);
    world.comes_back(&saved);
}

#[test]
fn a_file_changed_in_place_is_compared_piece_by_piece_whatever_it_is() {
    let mut world = World::new();
    let mut bytes = noise(4, 8 << 20);
    world.write("cache.bin", &bytes);
    world.settle();
    let _ = world.save();
    for at in (0..bytes.len()).step_by(1 << 20) {
        bytes[at] ^= 1;
    }
    world.write("cache.bin", &bytes);

    let saved = world.save();

    assert!(saved.report.bytes_stored < 200_000, "{:?}", saved.report);
    world.comes_back(&saved);
}

#[test]
fn an_insertion_into_a_large_file_costs_few_chunks() {
    let mut world = World::new();
    let mut bytes = noise(5, 20 << 20);
    world.write("video", &bytes);
    let _ = world.save();
    bytes.splice(1000..1000, *b"seven..");
    world.write("video", &bytes);

    let saved = world.save();

    assert!(saved.report.bytes_stored < 5 << 20, "{:?}", saved.report);
    world.comes_back(&saved);
}

#[test]
fn the_same_bytes_under_many_names_are_stored_once() {
    let mut world = World::new();
    for number in 0..50 {
        world.write(&format!("copy{number}"), &noise(6, 70_000));
    }

    let saved = world.save_with(1);

    assert!(saved.report.bytes_stored < 80_000, "{:?}", saved.report);
    world.comes_back(&saved);
}

#[test]
fn the_digest_of_a_tree_does_not_depend_on_who_reads_it() {
    let mut world = World::new();
    a_tree(&world);
    let one = world.save_with(1).digest;
    let mut other = World::new();
    std::mem::swap(&mut other.scratch, &mut world.scratch);
    other.caches = false;

    assert_eq!(other.save_with(7).digest, one);
}

#[test]
fn churn_leaves_old_bundles_behind() {
    let mut world = World::new();
    for number in 0..400_u64 {
        world.write(&format!("f{number:03}"), &noise(number, 10_000));
    }
    world.settle();
    let mut saved = world.save();
    for round in 0..40_u64 {
        for number in 0..20 {
            let file = (round * 20 + number) * 7 % 400;
            world.write(
                &format!("f{file:03}"),
                &noise(1000 + round * 20 + number, 10_000),
            );
        }
        world.settle();
        saved = world.save();
    }

    let needed: u64 = {
        let chunks = world.chunks.0.lock().unwrap();
        saved
            .names
            .iter()
            .map(|name| chunks[name].len() as u64)
            .sum()
    };

    assert!(
        needed < 2 * 4_000_000,
        "a snapshot of 4 MB lies in {needed} bytes"
    );
    world.comes_back(&saved);
}

#[test]
fn a_damaged_chunk_is_never_written() {
    let mut world = World::new();
    a_tree(&world);
    let saved = world.save();
    let (name, bytes) = world
        .chunks
        .0
        .lock()
        .unwrap()
        .iter()
        .next()
        .map(|(name, bytes)| (*name, bytes.clone()))
        .unwrap();
    for at in [0, 5, 9, bytes.len() / 2, bytes.len() - 1] {
        let mut bent = bytes.clone();
        bent[at] ^= 0x10;
        assert!(
            matches!(
                ChunkCodec::Plain.open(&name, &bent),
                Err(ChunkError::Damaged { .. })
            ),
            "{at}"
        );
    }
    assert_eq!(
        ChunkCodec::Plain
            .open(&name, &bytes)
            .map(|plain| ChunkDigest::of(&plain))
            .unwrap(),
        name.digest()
    );
    drop(saved);
}

#[test]
fn a_damaged_chunk_is_rebuilt_by_the_next_save_that_has_its_bytes() {
    let mut world = World::new();
    a_tree(&world);
    let first = world.save();
    world.write("src/d1/new.rs", b"something else changed");
    // Those of files: nobody has the bytes of a list of a tree that has changed.
    let mut names = std::collections::BTreeSet::new();
    let mut reader = ListReader::new(&world.chunks, &first.list).unwrap();
    while let Some(row) = reader.next_row().unwrap() {
        let slices = row.content.iter().flat_map(FileContent::slices);
        names.extend(slices.map(|slice| slice.chunk.name));
    }
    for name in &names {
        world
            .chunks
            .0
            .lock()
            .unwrap()
            .insert(*name, b"rubbish".to_vec());
    }
    world.damaged = names.iter().copied().collect();

    let second = world.save();

    world.comes_back(&second);
    let (target, digest) = world.restore(&first, "old");
    assert_eq!(digest, first.digest, "the old snapshot is whole again");
    assert!(target.join("large.bin").exists());
}

#[test]
fn what_lies_in_a_chunk_that_cannot_be_rebuilt_is_stored_anew() {
    let mut world = World::new();
    for number in 0..100_u64 {
        world.write(&format!("f{number:02}"), &noise(number, 5_000));
    }
    let first = world.save();
    world.write(
        "f07",
        b"what was here is gone, and with it a part of the bundle",
    );
    let names: Vec<ChunkName> = world.chunks.0.lock().unwrap().keys().copied().collect();
    for name in &names {
        world
            .chunks
            .0
            .lock()
            .unwrap()
            .insert(*name, b"rubbish".to_vec());
    }
    world.damaged = names.into_iter().collect();

    let second = world.save();

    world.comes_back(&second);
    assert!(second.names.is_disjoint(&first.names));
}

#[test]
fn a_tree_that_only_lost_an_entry_is_not_taken_for_the_same() {
    let mut world = World::new();
    for number in 0..1500_u32 {
        world.write(
            &format!("d{}/file{number:04}", number % 50),
            &number.to_le_bytes(),
        );
    }
    world.settle();
    let first = world.save();
    let memory = world.scratch.path().join("memory");
    let whole = fs::read(&memory).unwrap();
    fs::remove_file(world.tree().join("d9/file1459")).unwrap();
    // Torn, so that what was removed is not remembered either.
    fs::write(&memory, &whole[..whole.len() - 10]).unwrap();

    let second = world.save();

    assert_ne!(second.digest, first.digest);
    assert_eq!(second.totals.files, 1499);
    world.comes_back(&second);
}

#[test]
fn every_kind_of_change_is_noticed_by_a_host_that_remembers() {
    let mut world = World::new();
    a_tree(&world);
    let mut last = world.save().digest;
    let tree = world.tree();
    let steps: [(&str, &dyn Fn()); 6] = [
        ("a link that leads elsewhere", &|| {
            fs::remove_file(tree.join("src/link")).unwrap();
            std::os::unix::fs::symlink("elsewhere", tree.join("src/link")).unwrap();
        }),
        ("permissions of a directory", &|| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o710);
            fs::set_permissions(tree.join("void"), mode).unwrap();
        }),
        ("the time of a directory", &|| {
            let directory = fs::File::open(tree.join("void/inner")).unwrap();
            directory
                .set_modified(std::time::SystemTime::UNIX_EPOCH)
                .unwrap();
        }),
        ("a new empty directory", &|| {
            fs::create_dir(tree.join("void/more")).unwrap();
        }),
        ("a name of a file that is gone", &|| {
            fs::remove_file(tree.join("void/again.bin")).unwrap();
        }),
        ("a file of the same length", &|| {
            fs::write(tree.join("src/d1/f1.rs"), noise(77, 137)).unwrap();
        }),
    ];
    for (what, step) in steps {
        step();
        let saved = world.save();
        assert_ne!(saved.digest, last, "{what}");
        world.comes_back(&saved);
        last = saved.digest;
        assert_eq!(world.save().digest, last, "{what}: and then nothing");
    }
}
