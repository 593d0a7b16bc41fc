//! The workers that read files.
//!
//! A task is a run of small files or one large file. Whoever reads a large file cuts it and offers the chunks to the
//! others; what nobody takes at once it encodes itself, so that memory stays bounded and nobody waits for nothing.

use super::large_file::LargeFile;
use super::plan::{Before, FileState, Job, ReadFile, SavePlan};
use super::{SaveParts, SaveReport, SaveRun, SaveSettings};
use crate::form::chunked::encoder::ChunkEncoder;
use crate::form::chunked::scan::{Scan, ScannedDir, Spotted};
use crate::form::chunked::table::StoredContent;
use crate::form::chunked::{ChunkError, ChunkLook};
use crate::fs::fd::c_name;
use crate::fs::metadata::{self, Seen};
use crate::fs::root_dir::RootDir;
use crate::tree::stat_cache::FileStat;
use crate::tree::walk::{WalkError, WalkSkip};
use crate::worker_pool::{WorkerPool, into_inner, lock};
use rustix::io::Errno;
use stasis_model::digest::FileDigest;
use stasis_model::failure::AtPath;
use stasis_model::format::manifest::StoredAs;
use stasis_model::protocol::gc::ChunkName;
use stasis_model::tree::chunking::{Cutter, LARGE};
use stasis_model::tree::list::StoredChunk;
use stasis_model::tree::{Attribute, EntryPath};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Small files are handed out in runs of about this many.
const RUN: usize = 256;
/// And no more bytes than this.
const RUN_BYTES: u64 = 16 << 20;
/// How often a file that changes is read.
pub(super) const ATTEMPTS: usize = 3;

enum SaveTask {
    Small(Range<usize>),
    Large(usize),
    Database(DatabaseTask),
    /// Urgent: whoever read the chunk may wait for it.
    Encode(Offered),
}

/// A file that turned out to be a database.
#[derive(Clone, Debug)]
pub(super) struct FoundDatabase {
    /// The file.
    pub(super) file: u32,
    pub(super) attributes: Vec<Attribute>,
    pub(super) identity: (u64, u64),
}

/// A database, and what lies beside it.
#[derive(Clone, Debug)]
pub(super) struct DatabaseTask {
    /// The job of the database, then those of what lies beside it.
    pub(super) jobs: Range<usize>,
    pub(super) aside: FoundDatabase,
}

/// What is read in the place of a file.
#[derive(Clone, Debug)]
pub(super) enum ReadSource {
    /// A copy: of a database, one committed state.
    Copy(Arc<CopiedFile>),
    /// The file itself, which is a copy of one committed state already.
    Still,
    /// The file itself, because there is no copy; what it is called then, if it is the database.
    AsItIs(Option<StoredAs>),
}

/// A copy of a file, and what the live one is.
#[derive(Debug)]
pub(super) struct CopiedFile {
    pub(super) file: OwnedFd,
    /// What the live one was when it was copied; nothing if that is what the scan saw.
    pub(super) live: Option<Seen>,
    pub(super) attributes: Vec<Attribute>,
    /// What it is called; nothing for what is no database.
    pub(super) database: Option<StoredAs>,
}

/// A chunk that waits for somebody to encode it.
pub(super) struct Offered {
    pub(super) bytes: Vec<u8>,
    pub(super) number: usize,
    pub(super) of: Arc<LargeFile>,
}

/// Everything workers share.
pub(super) struct SaveWorkers<'a> {
    pub(super) parts: &'a SaveParts<'a>,
    pub(super) settings: &'a SaveSettings,
    pub(super) scan: &'a Scan,
    pub(super) plan: &'a SavePlan,
    pub(super) cutter: Cutter,
    /// The first files with a content, by the beginning of its digest: the same content is stored once. Two contents that begin
    /// alike are told apart by their digests, and the second is stored as often as it is met.
    twins: Mutex<HashMap<u32, u32>>,
    pub(super) report: Mutex<SaveReport>,
    /// Files that turned out to be databases: they are read when the others have been.
    pub(super) aside: Mutex<Vec<FoundDatabase>>,
    /// Chunks that were to be used again and turned out damaged or missing.
    damaged: Mutex<HashSet<ChunkName>>,
    pool: WorkerPool<SaveTask, ChunkError>,
}

/// Reads every file that must be read; says which of them turned out to be databases, and were not read on.
pub(super) fn read(run: &SaveRun<'_>) -> Result<(SaveReport, Vec<FoundDatabase>), ChunkError> {
    let tasks = tasks(&run.scan, &run.plan.jobs);
    SaveWorkers::new(run, tasks).run()
}

/// Captures and reads databases, and what was held back only because of the files beside it, which are none: the jobs
/// before the first database.
pub(super) fn read_databases(
    run: &SaveRun<'_>,
    databases: Vec<DatabaseTask>,
) -> Result<SaveReport, ChunkError> {
    let plan = &run.plan;
    let first = databases
        .first()
        .map_or(plan.jobs.len(), |one| one.jobs.start);
    let mut all: VecDeque<SaveTask> = databases.into_iter().map(SaveTask::Database).collect();
    all.extend(tasks(&run.scan, &plan.jobs[..first]));
    let pool = SaveWorkers::new(run, all);
    pool.run().map(|(report, _)| report)
}

/// Large files first, because they take longest; then runs of small ones, which end where a name says so.
fn tasks(scan: &Scan, jobs: &[Job]) -> VecDeque<SaveTask> {
    let (mut large, mut small) = (VecDeque::new(), VecDeque::new());
    let (mut start, mut bytes) = (0, 0);
    let mut end = |range: Range<usize>| {
        if !range.is_empty() {
            small.push_back(SaveTask::Small(range));
        }
    };
    for (at, job) in jobs.iter().enumerate() {
        let (listing, spotted) = scan.get(job.spot);
        let size = spotted.size();
        if size >= LARGE {
            large.push_back(SaveTask::Large(at));
            end(start..at);
            (start, bytes) = (at + 1, 0);
            continue;
        }
        bytes += size;
        let drawn = *blake3::hash(listing.name(spotted))
            .as_bytes()
            .first()
            .expect("a digest has bytes");
        let is_long = at + 1 - start >= 2 * RUN || bytes >= RUN_BYTES;
        if is_long || at + 1 - start >= RUN / 2 && drawn < 2 {
            end(start..at + 1);
            (start, bytes) = (at + 1, 0);
        }
    }
    end(start..jobs.len());
    large.extend(small);
    large
}

/// What one worker has in its hands.
pub(super) struct Tools<'a> {
    pub(super) encoder: ChunkEncoder<'a>,
    /// The same for small files side by side.
    pub(super) bundles: ChunkEncoder<'a>,
    /// The directory it read from last.
    directory: Option<(u32, OwnedFd)>,
    /// What is read in the place of the file.
    pub(super) source: Option<ReadSource>,
    /// The chunk that was read last of what this host holds elsewhere.
    pub(super) held_chunk: Option<(ChunkName, Vec<u8>)>,
}

impl<'a> SaveWorkers<'a> {
    fn new(run: &'a SaveRun<'a>, tasks: VecDeque<SaveTask>) -> Self {
        Self {
            parts: run.parts,
            settings: run.settings,
            scan: &run.scan,
            plan: &run.plan,
            cutter: run.settings.chunker.cutter(),
            twins: Mutex::default(),
            report: Mutex::default(),
            aside: Mutex::default(),
            damaged: Mutex::default(),
            pool: WorkerPool::new(tasks),
        }
    }

    /// Has everything done.
    fn run(self) -> Result<(SaveReport, Vec<FoundDatabase>), ChunkError> {
        let workers = self.settings.walk.workers;
        self.pool.run(workers, |pool| self.work(pool))?;
        let mut report = into_inner(self.report);
        report.damaged = into_inner(self.damaged);
        Ok((report, into_inner(self.aside)))
    }

    fn work(&self, pool: &WorkerPool<SaveTask, ChunkError>) {
        let mut tools = match self.tools() {
            Ok(tools) => tools,
            Err(error) => return pool.fail(error),
        };
        pool.work(|task| self.perform(task, &mut tools));
    }

    fn tools(&self) -> Result<Tools<'a>, ChunkError> {
        let (sink, level) = (self.parts.sink, self.settings.level);
        Ok(Tools {
            encoder: ChunkEncoder::new(sink, level)?,
            bundles: ChunkEncoder::new(sink, bundle_level(level))?,
            directory: None,
            source: None,
            held_chunk: None,
        })
    }

    pub(super) fn has_failed(&self) -> bool {
        self.pool.has_ended()
    }

    fn perform(&self, task: SaveTask, tools: &mut Tools<'a>) -> Result<(), ChunkError> {
        if self.settings.walk.cancel.load(Ordering::Relaxed) {
            return Err(WalkError::Cancelled.into());
        }
        match task {
            SaveTask::Encode(offered) => self.encode(&offered, tools),
            SaveTask::Small(range) => self.small(range, tools),
            SaveTask::Large(at) => self.large(at, tools),
            SaveTask::Database(task) => self.database(&task, tools),
        }
    }

    /// Gives a chunk to whoever has time; encodes it here when nobody has.
    pub(super) fn offer(&self, offered: Offered, tools: &mut Tools<'a>) -> Result<(), ChunkError> {
        let limit = self.settings.walk.workers.get();
        match self.pool.try_push_urgent(SaveTask::Encode(offered), limit) {
            Some(back) => self.perform(back, tools),
            None => Ok(()),
        }
    }

    fn encode(&self, offered: &Offered, tools: &mut Tools<'a>) -> Result<(), ChunkError> {
        let chunk = self.encode_bytes(&offered.bytes, &mut tools.encoder)?;
        offered.of.put(offered.number, chunk);
        Ok(())
    }

    /// Encodes until every chunk of a file is encoded, or something failed.
    pub(super) fn wait_for(&self, file: &LargeFile, tools: &mut Tools<'a>) {
        let is_encoded = || file.is_encoded();
        self.pool
            .help_until(is_encoded, |task| self.perform(task, tools));
    }

    /// Makes a chunk of some bytes, unless there is one.
    pub(super) fn encode_bytes(
        &self,
        bytes: &[u8],
        encoder: &mut ChunkEncoder<'a>,
    ) -> Result<StoredChunk, ChunkError> {
        let done = encoder.encode(bytes, |digest| self.plan.table().known(digest))?;
        if let Some(stored) = done.stored_bytes {
            let mut report = lock(&self.report);
            report.chunks_new += 1;
            report.bytes_stored += stored;
        }
        Ok(done.chunk)
    }

    /// Opens the file of a job; `None` when it cannot be read, which is reported.
    pub(super) fn open(
        &self,
        job: &Job,
        tools: &mut Tools<'a>,
    ) -> Result<Option<OpenedFile<'a>>, ChunkError> {
        let (listing, spotted) = self.scan.get(job.spot);
        let opened = self.open_file(job, listing, spotted, tools);
        match opened {
            Ok((_, seen)) if !seen.file_type().is_file() => {
                self.leave(job, WalkSkip::Replaced)?;
                Ok(None)
            }
            Ok((file, seen)) => Ok(Some(OpenedFile {
                file,
                seen,
                path: (listing, spotted),
                source: tools.source.clone(),
            })),
            Err(error) => {
                tools.directory = None;
                self.could_not(job, "open", error)?;
                Ok(None)
            }
        }
    }

    fn open_file(
        &self,
        job: &Job,
        listing: &ScannedDir,
        spotted: &Spotted,
        tools: &mut Tools<'a>,
    ) -> rustix::io::Result<(OwnedFd, Seen)> {
        if let Some(ReadSource::Copy(copied)) = &tools.source {
            let file = rustix::io::dup(&copied.file)?;
            let seen = metadata::of(&file)?;
            return Ok((file, seen));
        }
        let root: &RootDir = self.parts.root;
        let directory = match tools.directory.take() {
            Some((number, directory)) if number == job.spot.listing => directory,
            _ => root.directory(listing.path.as_bytes())?,
        };
        let name = c_name(listing.name(spotted))?;
        let file = root.file(directory.as_fd(), &name);
        tools.directory = Some((job.spot.listing, directory));
        let file = file?;
        let seen = metadata::of(&file)?;
        Ok((file, seen))
    }

    /// Sorts a refusal of the system into what is reported and what ends the save.
    pub(super) fn could_not(
        &self,
        job: &Job,
        doing: &'static str,
        error: Errno,
    ) -> Result<(), ChunkError> {
        let reason = match error {
            Errno::NOENT => WalkSkip::Vanished,
            Errno::LOOP | Errno::NOTDIR | Errno::NXIO => WalkSkip::Replaced,
            Errno::ACCESS | Errno::PERM => WalkSkip::Unreadable,
            Errno::XDEV => WalkSkip::OtherFilesystem,
            _ => {
                return Ok(Err(error).on(doing, self.path(job))?);
            }
        };
        self.leave(job, reason)
    }

    pub(super) fn path(&self, job: &Job) -> EntryPath {
        let (listing, spotted) = self.scan.get(job.spot);
        listing.path_of(spotted)
    }

    /// Leaves a file out, and reports it.
    pub(super) fn leave(&self, job: &Job, reason: WalkSkip) -> Result<(), ChunkError> {
        self.note(job, reason)?;
        let _ = self.plan.files[job.file as usize].set(FileState::Left);
        Ok(())
    }

    /// Reports a file.
    pub(super) fn note(&self, job: &Job, reason: WalkSkip) -> Result<(), ChunkError> {
        let path = self.path(job);
        if self.settings.walk.strict {
            return Err(WalkError::Incomplete { path, reason }.into());
        }
        lock(&self.report).walk.note(path, reason);
        Ok(())
    }

    /// Whether a content that was stored before is this one, and may be used again.
    pub(super) fn is_again(&self, before: &Before, digest: &FileDigest, size: u64) -> bool {
        before.size == size
            && before.content.digest() == digest
            && !self.plan.is_abandoned(&before.content)
    }

    /// A content that was stored before and is still whole, or one that another worker stored just now.
    pub(super) fn again(
        &self,
        job: &Job,
        digest: &FileDigest,
        size: u64,
    ) -> Result<Option<StoredContent>, ChunkError> {
        let before = job.previous.as_deref();
        for before in before.into_iter().chain(self.plan.orphans.get(digest)) {
            if self.is_again(before, digest, size) && self.is_held(&before.content, size)? {
                return Ok(Some(before.content.clone()));
            }
        }
        Ok(self.twin(digest))
    }

    fn twin(&self, digest: &FileDigest) -> Option<StoredContent> {
        let twin = *lock(&self.twins).get(&beginning(digest))?;
        match self.plan.files[twin as usize].get()? {
            FileState::Done(done) if done.content.digest() == digest && done.blocks().is_none() => {
                Some(done.content.clone())
            }
            _ => None,
        }
    }

    /// Whether every chunk that a content lies in is whole.
    fn is_held(&self, content: &StoredContent, size: u64) -> Result<bool, ChunkError> {
        let mut is_held = true;
        for name in self.plan.names_of(content, size) {
            is_held &= self.holds(&name, ChunkLook::Whole)?;
        }
        Ok(is_held)
    }

    /// Whether a chunk can be referred to again; one that cannot is noted.
    pub(super) fn holds(&self, name: &ChunkName, look: ChunkLook) -> Result<bool, ChunkError> {
        let is_held = self.parts.sink.holds(name, look)?;
        if !is_held {
            lock(&self.damaged).insert(*name);
        }
        Ok(is_held)
    }

    /// Settles a file that was read.
    pub(super) fn done(&self, job: &Job, done: ReadFile, is_new: bool) {
        if is_new {
            lock(&self.twins)
                .entry(beginning(done.content.digest()))
                .or_insert(job.file);
            lock(&self.report).files_new += 1;
        }
        let _ = self.plan.files[job.file as usize].set(FileState::Done(done));
    }

    /// Counts what was read.
    pub(super) fn count(&self, files: u64, bytes: u64) {
        let mut report = lock(&self.report);
        report.files_read += files;
        report.bytes_read += bytes;
        drop(report);
        self.settings.progress.advance(files, bytes);
    }

    /// The user's attributes of an open file.
    pub(super) fn attributes(
        &self,
        job: &Job,
        opened: &OpenedFile<'_>,
    ) -> Result<Vec<Attribute>, ChunkError> {
        if let Some(ReadSource::Copy(copied)) = &opened.source {
            return Ok(copied.attributes.clone());
        }
        let read = metadata::attributes(&opened.file);
        let read = read.on("read the attributes of", self.path(job))?;
        if read.others > 0 {
            lock(&self.report).attributes_left_out += read.others;
        }
        Ok(read.user)
    }
}

/// The level of zstd at which small files are compressed together.
///
/// At the usual level 3 they take two thirds more time than at level 2, for a twentieth of the bytes.
fn bundle_level(level: i32) -> i32 {
    if level > 1 { level - 1 } else { level }
}

fn beginning(digest: &FileDigest) -> u32 {
    let bytes = digest
        .as_bytes()
        .first_chunk()
        .expect("a digest is longer than that");
    u32::from_le_bytes(*bytes)
}

/// A file that is being read.
pub(super) struct OpenedFile<'a> {
    pub(super) file: OwnedFd,
    pub(super) seen: Seen,
    pub(super) path: (&'a ScannedDir, &'a Spotted),
    /// What is read in the place of the file.
    pub(super) source: Option<ReadSource>,
}

impl OpenedFile<'_> {
    /// What must be kept of the file's stat: nothing if the scan saw the same.
    pub(super) fn fresh(&self, size: u64) -> Option<Seen> {
        let seen = match &self.source {
            Some(ReadSource::Copy(copied)) => copied.live?,
            _ => self.seen,
        };
        let seen = Seen { size, ..seen };
        let same = FileStat::from(&seen) == self.path.1.stat()
            && seen.metadata() == self.path.1.metadata();
        (!same).then_some(seen)
    }

    /// How it is stored, if it is a database.
    pub(super) fn database(&self) -> Option<StoredAs> {
        match &self.source {
            None => None,
            Some(ReadSource::Copy(copied)) => copied.database,
            Some(ReadSource::Still) => Some(StoredAs::Consistent),
            Some(ReadSource::AsItIs(state)) => *state,
        }
    }
}
