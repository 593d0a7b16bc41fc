//! What a save elsewhere takes from the newest checkpoint of a session.

use crate::{LATER, on_each, pool};
use stasis_disk::form::chunked::save::{HeldTree, SaveParts, SaveReport, SaveSettings, save};
use stasis_disk::form::chunked::{
    ChunkCodec, ChunkError, ChunkSink, ChunkSource, EncodedChunk, PlacedChunk,
};
use stasis_disk::form::slots::{CheckpointSource, HeldCheckpoint, Pool};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::walk::WalkSettings;
use stasis_model::digest::{ChunkDigest, FileDigest};
use stasis_model::protocol::gc::{ChunkName, GcEpoch};
use stasis_model::time::Timestamp;
use stasis_model::tree::chunking::Chunker;
use stasis_model::workspace::{CheckpointOrigin, Slot, SlotMetadata};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A store in memory.
#[derive(Default)]
struct Stored(Mutex<HashMap<ChunkName, Vec<u8>>>);

impl ChunkSource for Stored {
    fn codec(&self) -> &ChunkCodec {
        &ChunkCodec::Plain
    }

    fn fetch(&self, name: &ChunkName) -> Result<Vec<u8>, ChunkError> {
        let chunks = self.0.lock().unwrap();
        chunks.get(name).cloned().ok_or(ChunkError::Absent(*name))
    }
}

impl ChunkSink for Stored {
    fn codec(&self) -> &ChunkCodec {
        &ChunkCodec::Plain
    }

    fn place(&self, digest: ChunkDigest, _: Option<ChunkName>) -> Result<PlacedChunk, ChunkError> {
        let name = ChunkName::new(digest, GcEpoch::FIRST);
        let is_stored = self.0.lock().unwrap().contains_key(&name);
        Ok(PlacedChunk { name, is_stored })
    }

    fn put(&self, chunk: EncodedChunk) -> Result<(), ChunkError> {
        self.0.lock().unwrap().insert(chunk.name, chunk.bytes);
        Ok(())
    }
}

/// What a session holds, but its versions cannot be read.
struct Unreadable<'a>(&'a dyn ChunkSource, PathBuf);

impl ChunkSource for Unreadable<'_> {
    fn codec(&self) -> &ChunkCodec {
        self.0.codec()
    }

    fn fetch(&self, name: &ChunkName) -> Result<Vec<u8>, ChunkError> {
        self.0.fetch(name)
    }

    fn version(&self, digest: &FileDigest) -> Result<OwnedFd, ChunkError> {
        // What is open to be written refuses to be read.
        let path = self.1.join(digest.to_string());
        let file = File::options().write(true).open(path);
        Ok(file.unwrap().into())
    }
}

/// Saves the workspace into a store in memory with the help of the session's newest checkpoint.
fn saved(session: &Path) -> SaveReport {
    saved_from(session, false)
}

fn saved_from(session: &Path, is_unreadable: bool) -> SaveReport {
    let root = RootDir::open(&session.join("workspace"), Mounts::Stay).unwrap();
    let settings = SaveSettings {
        walk: WalkSettings {
            strict: true,
            ..WalkSettings::default()
        },
        chunker: Chunker::default(),
        level: 1,
        started: Timestamp::from_millis(LATER),
        cache: None,
        progress: std::sync::Arc::default(),
    };
    let (stored, snapshot) = (Stored::default(), "elsewhere".parse().unwrap());
    let held = HeldCheckpoint::open(session).unwrap();
    held.with_tree(|held| {
        let unreadable = Unreadable(held.source, session.join("objects"));
        let damaged = HeldTree {
            source: &unreadable,
            ..*held
        };
        let held = if is_unreadable { &damaged } else { held };
        let parts = SaveParts {
            root: &root,
            sink: &stored,
            source: &stored,
            parent: None,
            is_indexed: &|_| true,
            snapshot: &snapshot,
            damaged: &HashSet::new(),
            witness: None,
            databases: None,
            versions: None,
            held: Some(held),
        };
        save(&parts, &settings).unwrap().report
    })
}

/// Makes a checkpoint so many milliseconds after the files were written.
fn checkpoint(pool: &Pool, slot: u32, age: u64) {
    let workspace = pool.path().parent().unwrap().join("workspace");
    let written = fs::metadata(workspace.join("file")).unwrap().modified();
    let written = written.unwrap().duration_since(std::time::UNIX_EPOCH);
    let written = u64::try_from(written.unwrap().as_millis()).unwrap();
    let at = Timestamp::from_millis(written + age);
    let origin = CheckpointOrigin::Manual;
    let metadata = SlotMetadata::new(Slot::new(slot), origin, at, slot.into());
    let _ = pool
        .create(&CheckpointSource::of(&workspace), metadata)
        .unwrap();
}

#[test]
fn of_what_is_not_cloned_only_files_are_taken_that_were_old_when_they_were_read() {
    on_each(&["xfs", "btrfs", "ext4"], |session| {
        let workspace = session.join("workspace");
        fs::write(workspace.join("empty"), "").unwrap();
        fs::write(workspace.join("file"), "content").unwrap();
        let is_shared = workspace_is_shared(session);

        let pool = pool(session);
        checkpoint(&pool, 10, 59_000);
        let young = saved(session);
        // It was not read again, so that it is what it was.
        fs::write(workspace.join("added"), "added").unwrap();
        checkpoint(&pool, 11, 600_000);
        let kept = saved(session);
        fs::remove_file(session.join("remembered")).unwrap();
        checkpoint(&pool, 12, 700_000);
        let old = saved(session);

        let held = [&young, &kept, &old].map(|report| report.files_held);
        assert_eq!(held, if is_shared { [2, 3, 3] } else { [1, 2, 3] });
        let read = [&young, &kept, &old].map(|report| report.files_read);
        assert_eq!(read, if is_shared { [0, 0, 0] } else { [1, 1, 0] });
    });
}

fn workspace_is_shared(session: &Path) -> bool {
    let [from, to] = ["workspace/file", "cloned"].map(|name| session.join(name));
    let copied = std::process::Command::new("cp")
        .arg("--reflink=always")
        .args([&from, &to])
        .output();
    let is_shared = copied.unwrap().status.success();
    let _ = fs::remove_file(to);
    is_shared
}

#[test]
fn a_version_that_cannot_be_read_is_read_from_the_tree() {
    on_each(&["xfs", "btrfs"], |session| {
        let workspace = session.join("workspace");
        let large: Vec<u8> = (0..800_000_u32)
            .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
            .collect();
        fs::write(workspace.join("large"), &large).unwrap();
        fs::write(workspace.join("file"), "content").unwrap();
        let pool = pool(session);
        checkpoint(&pool, 10, 600_000);

        let whole = saved(session);
        let unreadable = saved_from(session, true);
        let object = session.join("objects");
        let object = object.join(FileDigest::of(&large).to_string());
        fs::remove_file(&object).unwrap();
        fs::create_dir(&object).unwrap();
        let no_file = saved(session);

        let counted = |report: &SaveReport| {
            let SaveReport {
                files_held,
                files_read,
                bytes_read,
                ..
            } = *report;
            (files_held, files_read, bytes_read)
        };
        let all = large.len() as u64;
        assert_eq!(counted(&whole), (2, 0, 0));
        assert_eq!(counted(&unreadable), (0, 2, all + 7));
        assert_eq!(counted(&no_file), (1, 1, all));
    });
}
