//! The workers that fill files.

use super::linked::LinkedFile;
use super::reading::fetch_stored;
use super::rows::{FileRow, RestoreRows, Use};
use super::{RestoreParts, VersionProof, WrittenTree};
use crate::form::chunked::{ChunkError, VersionDamage, same};
use crate::fs::metadata;
use crate::tree::write::NewFile;
use crate::worker_pool::{WorkerPool, lock};
use stasis_model::digest::TreeDigest;
use stasis_model::failure::AtPath;
use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// How many files a worker takes at once when it needs no chunk for them.
const RUN: usize = 256;

/// What became of a file of the old tree.
enum Reuse {
    Taken,
    /// It is right; whether it stays is known when all names of files are.
    Later,
    Not,
}

/// A file that lies in several places, while it is being filled.
struct SharedFile<'s> {
    file: Mutex<Option<NewFile<'s>>>,
    left: AtomicUsize,
}

/// Everything workers share.
pub(super) struct Filling<'s> {
    pub(super) parts: &'s RestoreParts<'s>,
    pub(super) rows: RestoreRows,
    /// What was taken from the old tree.
    reused: Vec<AtomicBool>,
    several: HashMap<u32, SharedFile<'s>>,
    /// Files that have several names, in the old tree or in the new one.
    pub(super) linked: Mutex<Vec<LinkedFile>>,
    /// Files that were begun and came to nothing.
    begun: Mutex<HashMap<u32, NewFile<'s>>>,
    /// Where the uses of each chunk begin, the last one being their end.
    starts: Vec<usize>,
    chunks_fetched: AtomicU64,
    files_reused: AtomicU64,
    bytes_reused: AtomicU64,
    files_left: AtomicU64,
    bytes_left: AtomicU64,
}

impl<'s> Filling<'s> {
    pub(super) fn new(parts: &'s RestoreParts<'s>, mut rows: RestoreRows) -> Self {
        rows.uses
            .sort_unstable_by_key(|one| (one.chunk, one.file, one.at));
        let mut starts = vec![0; rows.chunks.len() + 1];
        for one in &rows.uses {
            starts[one.chunk as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let several = rows
            .files
            .iter()
            .zip(0_u32..)
            .filter(|(file, _)| file.uses > 1);
        let several = several.map(|(file, number)| {
            let open = SharedFile {
                file: Mutex::new(None),
                left: AtomicUsize::new(file.uses as usize),
            };
            (number, open)
        });
        let several = several.collect();
        let old_files = if parts.old.is_some() {
            rows.files.len()
        } else {
            0
        };
        Self {
            parts,
            rows,
            reused: (0..old_files).map(|_| AtomicBool::new(false)).collect(),
            several,
            linked: Mutex::default(),
            begun: Mutex::default(),
            starts,
            chunks_fetched: AtomicU64::new(0),
            files_reused: AtomicU64::new(0),
            bytes_reused: AtomicU64::new(0),
            files_left: AtomicU64::new(0),
            bytes_left: AtomicU64::new(0),
        }
    }

    pub(super) fn run(self) -> Result<WrittenTree, ChunkError> {
        let runs = self.rows.files.len().div_ceil(RUN);
        let workers = self.parts.workers;
        WorkerPool::for_each(workers, 0..runs, |run| self.without_chunks(run))?;
        self.settle_linked()?;
        // Only now is it known what the old tree does not have; holes and what is left where it is need no room.
        let uses = self.rows.uses.iter();
        let missing = uses.filter(|one| !self.is_reused(one.file));
        let needed = missing.map(|one| u64::from(one.length)).sum();
        self.parts.writer.check_room(needed)?;
        let chunks = 0..self.rows.chunks.len();
        WorkerPool::for_each(workers, chunks, |chunk| self.chunk(chunk))?;
        Ok(WrittenTree {
            digest: TreeDigest::from_document([0; 32]),
            chunks_fetched: self.chunks_fetched.into_inner(),
            files_reused: self.files_reused.into_inner(),
            bytes_reused: self.bytes_reused.into_inner(),
            files_left: self.files_left.into_inner(),
            bytes_left: self.bytes_left.into_inner(),
        })
    }

    /// Makes files that lie in no chunk, and takes what is right from the old tree.
    fn without_chunks(&self, run: usize) -> Result<(), ChunkError> {
        let files = self.rows.files.iter().enumerate();
        for (number, file) in files.skip(run * RUN).take(RUN) {
            let at = u32::try_from(number).unwrap_or(u32::MAX);
            // What is empty, or nothing but holes, is made sooner than it is read.
            let is_nowhere = file.uses == 0 && !file.is_version;
            let reused = if is_nowhere && self.parts.same.is_none() {
                Reuse::Not
            } else {
                self.reuse(at, file)?
            };
            match reused {
                Reuse::Taken => self.has_reused(at, file),
                Reuse::Later => {}
                Reuse::Not => self.make(at, file)?,
            }
        }
        Ok(())
    }

    /// Makes a file that lies in no chunk: from the version that is held of it, as a clone where that is possible, or empty.
    pub(super) fn make(&self, number: u32, file: &FileRow) -> Result<(), ChunkError> {
        if file.is_version {
            self.make_of_version(number, file)?;
        } else if file.uses == 0 {
            finish(self.begin(number)?, file)?;
        }
        Ok(())
    }

    fn make_of_version(&self, number: u32, file: &FileRow) -> Result<(), ChunkError> {
        let lost = |damage| ChunkError::LostVersion {
            path: self.rows.path(file),
            digest: file.digest,
            damage,
        };
        let version = match self.parts.source.version(&file.digest) {
            Err(ChunkError::NoVersion(_)) => return Err(lost(VersionDamage::Missing)),
            version => version?,
        };
        let seen = metadata::of(&version).on("look at the version of", self.rows.path(file))?;
        if seen.size != file.size {
            return Err(lost(VersionDamage::Size));
        }
        let made = self.begin(number)?;
        match self.parts.versions {
            VersionProof::Size => {
                made.fill_from(version.as_fd(), file.size)?;
            }
            VersionProof::Digest => {
                let wanted = blake3::Hash::from_bytes(*file.digest.as_bytes());
                if !made.reuse(version.as_fd(), &wanted)? {
                    return Err(lost(VersionDamage::Content));
                }
            }
        }
        finish(made, file)
    }

    pub(super) fn has_reused(&self, number: u32, file: &FileRow) {
        self.reused[number as usize].store(true, Ordering::Relaxed);
        self.files_reused.fetch_add(1, Ordering::Relaxed);
        self.bytes_reused.fetch_add(file.size, Ordering::Relaxed);
    }

    pub(super) fn has_left(&self, file: &FileRow) {
        self.files_left.fetch_add(1, Ordering::Relaxed);
        self.bytes_left.fetch_add(file.size, Ordering::Relaxed);
        self.parts.writer.has_left(file.size);
    }

    /// Takes a file from the old tree, if it holds the same under the same name.
    fn reuse(&self, number: u32, file: &FileRow) -> Result<Reuse, ChunkError> {
        let Some(old) = self.parts.old else {
            return Ok(Reuse::Not);
        };
        let path = self.rows.path(file);
        let Some((directory, name)) = path.split_last() else {
            return Ok(Reuse::Not);
        };
        let opened = CString::new(name).ok().and_then(|name| {
            let directory = old.directory(directory.as_bytes()).ok()?;
            old.file(directory.as_fd(), &name).ok()
        });
        let Some(opened) = opened else {
            return Ok(Reuse::Not);
        };
        let seen = match metadata::of(&opened) {
            Ok(seen) if seen.file_type().is_file() => seen,
            _ => return Ok(Reuse::Not),
        };
        let has_names = seen.links > 1 || self.rows.links.contains_key(&path);
        let is_right = seen.size == file.size
            && match self.parts.same {
                // Who knows the old tree has read what it had to: its times say whether that still holds.
                Some(same) => same(&path, &file.digest) && seen.metadata() == file.metadata,
                None => same::holds(&opened, &file.digest),
            };
        if let Some(leave) = self.parts.leave {
            let may_stay = is_right
                && seen.metadata() == file.metadata
                && same::has_attributes(&opened, file.attributes());
            if has_names {
                lock(&self.linked).push(LinkedFile {
                    number,
                    seen,
                    may_stay,
                });
                if may_stay {
                    return Ok(Reuse::Later);
                }
            } else if may_stay {
                leave(&path, &seen);
                self.has_left(file);
                return Ok(Reuse::Taken);
            }
        }
        if !is_right {
            return Ok(Reuse::Not);
        }
        let made = self.parts.writer.file(&path, file.size)?;
        let wanted = blake3::Hash::from_bytes(*file.digest.as_bytes());
        if !made.reuse(opened.as_fd(), &wanted)? {
            // It changed since it was looked at: what was begun is filled from chunks.
            lock(&self.begun).insert(number, made);
            return Ok(Reuse::Not);
        }
        finish(made, file)?;
        Ok(Reuse::Taken)
    }

    fn is_reused(&self, file: u32) -> bool {
        self.reused
            .get(file as usize)
            .is_some_and(|reused| reused.load(Ordering::Relaxed))
    }

    /// Fetches a chunk and writes what lies in it.
    fn chunk(&self, number: usize) -> Result<(), ChunkError> {
        let uses = &self.rows.uses[self.starts[number]..self.starts[number + 1]];
        if uses.iter().all(|one| self.is_reused(one.file)) {
            return Ok(());
        }
        let chunk = self.rows.chunks[number];
        let plain = fetch_stored(self.parts.source, &chunk)?;
        self.chunks_fetched.fetch_add(1, Ordering::Relaxed);
        for one in uses.iter().filter(|one| !self.is_reused(one.file)) {
            let from = one.offset as usize;
            self.write(one, &plain[from..from + one.length as usize])?;
        }
        Ok(())
    }

    fn begin(&self, number: u32) -> Result<NewFile<'s>, ChunkError> {
        if self.parts.old.is_some()
            && let Some(begun) = lock(&self.begun).remove(&number)
        {
            return Ok(begun);
        }
        let file = &self.rows.files[number as usize];
        Ok(self.parts.writer.file(&self.rows.path(file), file.size)?)
    }

    fn write(&self, one: &Use, bytes: &[u8]) -> Result<(), ChunkError> {
        let file = &self.rows.files[one.file as usize];
        let Some(open) = self.several.get(&one.file) else {
            let made = self.begin(one.file)?;
            made.write_at(one.at, bytes)?;
            return finish(made, file);
        };
        let mut made = lock(&open.file);
        if made.is_none() {
            *made = Some(self.begin(one.file)?);
        }
        if let Some(made) = &*made {
            made.write_at(one.at, bytes)?;
        }
        if open.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(made) = made.take()
        {
            finish(made, file)?;
        }
        Ok(())
    }
}

fn finish(made: NewFile<'_>, file: &FileRow) -> Result<(), ChunkError> {
    made.finish(&file.metadata, file.attributes())?;
    Ok(())
}
