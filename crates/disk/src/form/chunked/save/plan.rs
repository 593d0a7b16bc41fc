//! Which files keep their content, and which are read.

use super::new_blocks::NewBlocks;
use crate::form::chunked::ChunkError;
use crate::form::chunked::databases::{holds_changes, owner_name, set_owner_name};
use crate::form::chunked::list::ListReader;
use crate::form::chunked::list_cache::{CachedStat, ListCacheReader};
use crate::form::chunked::scan::{Scan, ScannedDir, ScannedKind, Spot};
use crate::form::chunked::table::{ChunkTable, StoredContent};
use crate::fs::metadata::Seen;
use crate::progress::Progress;
use stasis_model::digest::FileDigest;
use stasis_model::format::manifest::StoredAs;
use stasis_model::id::SnapshotId;
use stasis_model::protocol::gc::ChunkName;
use stasis_model::tree::list::{Extent, FileContent, ListRow, Slice};
use stasis_model::tree::{Attribute, EntryKind, EntryPath, FileTime};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// This much may be stored again in every save, to leave bundles that are mostly unused; more in large trees.
const MOVED_MIN: u64 = 64 << 20;

/// What is known of a tree from before.
pub(super) enum Previous<'s> {
    Nothing,
    Cache(ListCacheReader),
    List(Box<ListReader<'s>>),
}

impl Previous<'_> {
    fn next(&mut self) -> Result<Option<(ListRow, Option<CachedStat>)>, ChunkError> {
        match self {
            Self::Nothing => Ok(None),
            Self::Cache(cache) => Ok(cache.next_row()),
            Self::List(list) => match list.next_row() {
                Err(error @ ChunkError::Moving { .. }) => Err(error),
                // A list that is damaged ends there: what it knew of the rest is only read again.
                row => Ok(row.ok().flatten().map(|row| (row, None))),
            },
        }
    }
}

/// What is known of a tree.
pub(super) struct KnownTrees<'s> {
    /// From the last snapshot.
    pub(super) previous: Previous<'s>,
    /// From what this host holds of it besides.
    pub(super) held: Option<ListCacheReader>,
}

/// A file whose content is known. There may be a million of them: what few have is kept apart.
#[derive(Debug)]
pub(super) struct ReadFile {
    pub(super) content: StoredContent,
    rare: Option<Box<Rare>>,
}

/// What few files have.
#[derive(Debug, Default)]
pub(super) struct Rare {
    pub(super) attributes: Vec<Attribute>,
    /// What it was when it was read, if it was not what the scan saw.
    pub(super) fresh: Option<Seen>,
    /// Fingerprints that are not stored yet.
    pub(super) blocks: Option<NewBlocks>,
    /// How it is stored, if it is a database.
    pub(super) database: Option<StoredAs>,
}

impl ReadFile {
    pub(super) fn new(content: StoredContent, rare: Rare) -> Self {
        let has_any = !rare.attributes.is_empty()
            || rare.fresh.is_some()
            || rare.blocks.is_some()
            || rare.database.is_some();
        let rare = has_any.then(|| Box::new(rare));
        Self { content, rare }
    }

    pub(super) fn attributes(&self) -> &[Attribute] {
        self.rare.as_ref().map_or(&[], |rare| &rare.attributes)
    }

    pub(super) fn fresh(&self) -> Option<&Seen> {
        self.rare.as_ref()?.fresh.as_ref()
    }

    pub(super) fn database(&self) -> Option<StoredAs> {
        self.rare.as_ref()?.database
    }

    pub(super) fn blocks(&self) -> Option<&NewBlocks> {
        self.rare.as_ref()?.blocks.as_ref()
    }

    /// Says where the fingerprints lie: their layout, and the tables that were not stored before.
    pub(super) fn place_fingerprints(&mut self, layout: Slice, tables: &[Slice]) {
        let blocks = self.rare.as_mut().and_then(|rare| rare.blocks.take());
        if let StoredContent::Many(content) = &mut self.content
            && let Some(blocks) = blocks
        {
            content.pieces = [&[layout], &blocks.kept[..], tables].concat();
        }
    }
}

/// What became of a file.
#[derive(Debug)]
pub(super) enum FileState {
    Kept(ReadFile),
    Done(ReadFile),
    /// It could not be read, and that was reported.
    Left,
}

/// A file that is to be read.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) file: u32,
    pub(super) spot: Spot,
    /// What was in it before.
    pub(super) previous: Option<Box<Before>>,
    /// What is in it, because it looks as it does elsewhere on this host.
    pub(super) held: Option<Box<HeldFile>>,
}

/// What is in a file of which this host holds the content elsewhere.
#[derive(Debug)]
pub(super) struct HeldFile {
    /// Where it lies there: chunks by their numbers among those that are held.
    pub(super) content: StoredContent,
    pub(super) attributes: Vec<Attribute>,
}

/// A file that belongs to a database beside it, if that is one: its log, its journal or its shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Companion {
    pub(super) file: u32,
    pub(super) spot: Spot,
}

/// What was in a file before.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) content: StoredContent,
    pub(super) size: u64,
    /// When it had been written last, if that is known.
    pub(super) modified: Option<FileTime>,
}

impl Before {
    /// Whether the file is compared with it block by block, so that most of it may stay even if its length changed.
    fn is_compared(&self) -> bool {
        match &self.content {
            StoredContent::One { .. } | StoredContent::Version(_) => false,
            StoredContent::Many(content) => !content.pieces.is_empty(),
        }
    }
}

/// What is to be done.
#[derive(Debug)]
pub(super) struct SavePlan {
    /// Every file in the order of paths; set by whoever knows.
    pub(super) files: Vec<OnceLock<FileState>>,
    pub(super) jobs: Vec<Job>,
    /// What lies beside files that may be databases, by the number of the file. Those of a job are no jobs yet: whether
    /// they are read depends on what the file turns out to be.
    pub(super) companions: HashMap<u32, Vec<Companion>>,
    /// The files that are stored together with what lies beside them, if they are databases.
    set_owners: HashMap<u32, Spot>,
    table: RwLock<ChunkTable>,
    /// The chunks of what this host holds elsewhere.
    pub(super) held: ChunkTable,
    /// Contents whose paths are gone: found again where a file was renamed.
    pub(super) orphans: HashMap<FileDigest, Before>,
    /// Chunks that are mostly unused: what is still needed of them is stored anew.
    pub(super) abandoned: HashSet<u32>,
    /// Chunks that are damaged and could not be rebuilt.
    pub(super) lost: HashSet<u32>,
    /// Versions that were to be used again and are not held any more.
    missing: HashSet<FileDigest>,
    pub(super) bytes_moved: u64,
    /// The snapshot that the tree does not differ from in anything that is cached.
    pub(super) same_as: Option<SnapshotId>,
    /// The numbers of files that are kept and were young when they were read.
    pub(super) kept_young: HashSet<usize>,
    /// How many entries were known from before.
    pub(super) entries_known: u64,
}

/// What is done with databases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PlannedDatabases {
    /// They are files like others.
    Files,
    /// A copy is stored, and nothing of what lies beside them.
    Copies,
    /// Their files are stored together.
    Sets,
}

/// Joins what is there with what was there, both in the order of paths.
pub(super) fn join(
    scan: &Scan,
    known: KnownTrees<'_>,
    databases: PlannedDatabases,
) -> Result<SavePlan, ChunkError> {
    let KnownTrees { previous, held } = known;
    let owners = match databases {
        PlannedDatabases::Files => HashMap::new(),
        PlannedDatabases::Copies => scan.companions(owner_name),
        PlannedDatabases::Sets => scan.companions(set_owner_name),
    };
    let mut beside: HashMap<Spot, Vec<Spot>> = HashMap::new();
    for (companion, owner) in &owners {
        beside.entry(*owner).or_default().push(*companion);
    }
    let mut joiner = Joiner {
        scan,
        previous,
        held: held.map(|cache| HeldRows {
            cache,
            waiting: None,
        }),
        waiting: None,
        ended: false,
        plan: SavePlan {
            files: Vec::new(),
            jobs: Vec::new(),
            companions: HashMap::new(),
            set_owners: HashMap::new(),
            table: RwLock::default(),
            held: ChunkTable::default(),
            orphans: HashMap::new(),
            abandoned: HashSet::new(),
            lost: HashSet::new(),
            missing: HashSet::new(),
            bytes_moved: 0,
            same_as: None,
            kept_young: HashSet::new(),
            entries_known: 0,
        },
        is_same: true,
        databases,
        owners,
        beside,
        owner_files: HashMap::new(),
    };
    scan.for_each(|spot, path, below| joiner.entry(spot, path, below))?;
    joiner.rest()?;
    let same_as = match &joiner.previous {
        Previous::Cache(cache) if joiner.is_same => Some(cache.snapshot.clone()),
        _ => None,
    };
    let mut plan = joiner.plan;
    plan.same_as = same_as;
    if databases == PlannedDatabases::Sets {
        let owners = joiner.owner_files.into_iter();
        plan.set_owners = owners.map(|(spot, file)| (file, spot)).collect();
    }
    plan.abandon(scan);
    plan.keep_sets_together(scan);
    Ok(plan)
}

struct Joiner<'a, 's> {
    scan: &'a Scan,
    previous: Previous<'s>,
    held: Option<HeldRows>,
    waiting: Option<(ListRow, Option<CachedStat>)>,
    ended: bool,
    plan: SavePlan,
    /// Whether nothing differed so far.
    is_same: bool,
    databases: PlannedDatabases,
    /// The file that each companion would belong to.
    owners: HashMap<Spot, Spot>,
    /// The other way round.
    beside: HashMap<Spot, Vec<Spot>>,
    /// The numbers of files that have companions.
    owner_files: HashMap<Spot, u32>,
}

/// The entries of a tree that is held elsewhere, in the order of paths.
struct HeldRows {
    cache: ListCacheReader,
    waiting: Option<(ListRow, Option<CachedStat>)>,
}

impl HeldRows {
    /// The entry at a path; none is asked for twice, nor after a later one.
    fn find(&mut self, path: &EntryPath) -> Option<(ListRow, Option<CachedStat>)> {
        loop {
            if self.waiting.is_none() {
                self.waiting = self.cache.next_row();
            }
            match self.waiting.as_ref()?.0.entry.path.cmp(path) {
                Ordering::Greater => return None,
                Ordering::Equal => return self.waiting.take(),
                Ordering::Less => self.waiting = None,
            }
        }
    }
}

impl Joiner<'_, '_> {
    fn entry(
        &mut self,
        spot: Spot,
        path: &EntryPath,
        below: Option<&ScannedDir>,
    ) -> Result<(), ChunkError> {
        let before = self.before(path)?;
        let (_, spotted) = self.scan.get(spot);
        if spotted.what == ScannedKind::File && self.companion(spot, before.is_some()) {
            return Ok(());
        }
        let row = before.as_ref().map(|(row, _)| &row.entry);
        self.is_same &= row.is_some_and(|entry| spotted.is_still(entry, below));
        if spotted.what != ScannedKind::File {
            return Ok(());
        }
        let file = u32::try_from(self.plan.files.len()).expect("there are fewer files than that");
        if self.beside.contains_key(&spot) {
            self.owner_files.insert(spot, file);
        }
        let state = OnceLock::new();
        let previous = match before {
            Some((row, cached)) => self.judge(row, cached, spot, &state),
            None => None,
        };
        if state.get().is_none() {
            self.is_same = false;
            let held = self.held(spot, path);
            self.plan.jobs.push(Job {
                file,
                spot,
                previous,
                held,
            });
        }
        self.plan.files.push(state);
        Ok(())
    }

    /// Whether a file belongs to a database, or to a file that may turn out to be one. It is no job of its own then.
    fn companion(&mut self, spot: Spot, was_saved: bool) -> bool {
        let Some(owner) = self.owners.get(&spot) else {
            return false;
        };
        // Its name is longer, so it comes after the file that it belongs to.
        let Some(owner) = self.owner_files.get(owner).copied() else {
            return false;
        };
        if self.databases == PlannedDatabases::Sets {
            let file = u32::try_from(self.plan.files.len());
            let file = file.expect("there are fewer files than that");
            let beside = self.plan.companions.entry(owner).or_default();
            beside.push(Companion { file, spot });
            return false;
        }
        let left = match self.plan.files[owner as usize].get() {
            Some(FileState::Kept(kept)) if kept.database().is_none() => return false,
            Some(_) => OnceLock::from(FileState::Left),
            None => OnceLock::new(),
        };
        self.is_same &= left.get().is_some() && !was_saved;
        let file = u32::try_from(self.plan.files.len()).expect("there are fewer files than that");
        let beside = self.plan.companions.entry(owner).or_default();
        beside.push(Companion { file, spot });
        self.plan.files.push(left);
        true
    }

    /// Whether something waits beside a database that is not in it yet.
    fn has_changes_beside(&self, spot: Spot) -> bool {
        let beside = self.beside.get(&spot).map_or(&[][..], Vec::as_slice);
        beside.iter().any(|companion| {
            let (listing, spotted) = self.scan.get(*companion);
            holds_changes(listing.name(spotted), spotted.size())
        })
    }

    /// Keeps the content of a file that looks the same; otherwise says what was in it.
    fn judge(
        &mut self,
        row: ListRow,
        cached: Option<CachedStat>,
        spot: Spot,
        state: &OnceLock<FileState>,
    ) -> Option<Box<Before>> {
        let (EntryKind::File { size }, Some(content)) = (row.entry.kind, row.content) else {
            return None;
        };
        let content = self.pack(content);
        let now = self.scan.get(spot).1.stat();
        let is_kept = |cached: &CachedStat| match cached.database {
            _ if cached.stat != now => false,
            None => true,
            Some(StoredAs::Consistent) => {
                self.databases == PlannedDatabases::Sets || !self.has_changes_beside(spot)
            }
            Some(StoredAs::CrashConsistent | StoredAs::Torn) => false,
        };
        if let Some(cached) = cached.filter(is_kept) {
            let rare = Rare {
                attributes: row.entry.attributes,
                database: cached.database,
                ..Rare::default()
            };
            let kept = ReadFile::new(content, rare);
            if !cached.was_old {
                self.plan.kept_young.insert(self.plan.files.len());
            }
            let _ = state.set(FileState::Kept(kept));
            return None;
        }
        let modified = Some(row.entry.metadata.modified);
        Some(Box::new(Before {
            content,
            size,
            modified,
        }))
    }

    /// What is in a file that looks as it does elsewhere. A database is copied by other means, whatever it looks like. What was read while
    /// it was young may have been stored into through a mapping since, and looks no different; before a clone the kernel writes it out.
    fn held(&mut self, spot: Spot, path: &EntryPath) -> Option<Box<HeldFile>> {
        let (row, cached) = self.held.as_mut()?.find(path)?;
        let cached = cached.filter(|cached| cached.database.is_none())?;
        let now = self.scan.get(spot).1.stat();
        let content = row.content.filter(|_| cached.stat == now)?;
        if !(cached.was_old || content.is_version() || now.size == 0) {
            return None;
        }
        Some(Box::new(HeldFile {
            content: self.plan.held.pack(content),
            attributes: row.entry.attributes,
        }))
    }

    fn pack(&mut self, content: FileContent) -> StoredContent {
        for slice in content.slices() {
            self.plan.table_mut().know(slice.chunk);
        }
        self.plan.table_mut().pack(content)
    }

    /// What was known under this path. Paths that were passed over are gone: their contents may turn up elsewhere.
    fn before(
        &mut self,
        path: &EntryPath,
    ) -> Result<Option<(ListRow, Option<CachedStat>)>, ChunkError> {
        loop {
            if self.waiting.is_none() && !self.ended {
                self.waiting = self.previous.next()?;
                self.ended = self.waiting.is_none();
            }
            let Some((row, _)) = &self.waiting else {
                return Ok(None);
            };
            match row.entry.path.cmp(path) {
                Ordering::Greater => return Ok(None),
                Ordering::Equal => {
                    self.plan.entries_known += 1;
                    return Ok(self.waiting.take());
                }
                Ordering::Less => self.orphan(),
            }
        }
    }

    fn rest(&mut self) -> Result<(), ChunkError> {
        self.orphan();
        while let Some(row) = self.previous.next()? {
            self.waiting = Some(row);
            self.orphan();
        }
        Ok(())
    }

    fn orphan(&mut self) {
        let Some((row, _)) = self.waiting.take() else {
            return;
        };
        self.is_same = false;
        if let (EntryKind::File { size }, Some(content)) = (row.entry.kind, row.content)
            && size > 0
        {
            let digest = content.digest;
            let content = self.pack(content);
            let modified = None;
            let before = Before {
                content,
                size,
                modified,
            };
            self.plan.orphans.insert(digest, before);
        }
    }
}

impl SavePlan {
    /// The chunks that contents lie in.
    pub(super) fn table(&self) -> RwLockReadGuard<'_, ChunkTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, to add to them.
    pub(super) fn table_mut(&self) -> RwLockWriteGuard<'_, ChunkTable> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says how much there is to read.
    pub(super) fn announce(&self, scan: &Scan, progress: &Progress) {
        let size = |job: &Job| scan.get(job.spot).1.size();
        let bytes = self.jobs.iter().map(size).sum();
        progress.expect(self.jobs.len() as u64, bytes);
    }

    /// Whether a content lies, even partly, in a chunk that is being left.
    pub(super) fn is_abandoned(&self, content: &StoredContent) -> bool {
        match content {
            _ if self.leaves_nothing() => false,
            StoredContent::Version(digest) => self.missing.contains(digest),
            StoredContent::One { chunk, .. } => self.is_left(*chunk),
            StoredContent::Many(content)
                if content.pieces.iter().any(|slice| self.is_lost(slice)) =>
            {
                true
            }
            StoredContent::Many(content) => content
                .extents
                .iter()
                .any(|extent| self.lies_abandoned(extent)),
        }
    }

    /// Whether an extent lies in a chunk that is being left.
    pub(super) fn lies_abandoned(&self, extent: &Extent) -> bool {
        match extent {
            Extent::Hole(_) | Extent::Version(_) => false,
            Extent::Stored(slice) => {
                let number = self.table().find(&slice.chunk);
                number.is_some_and(|number| self.is_left(number))
            }
        }
    }

    /// Whether everything may stay where it is.
    pub(super) fn leaves_nothing(&self) -> bool {
        self.abandoned.is_empty() && self.lost.is_empty() && self.missing.is_empty()
    }

    /// Whether a content lies, even partly, in a damaged chunk that could not be rebuilt.
    fn is_in_lost(&self, content: &StoredContent) -> bool {
        match content {
            _ if self.lost.is_empty() => false,
            StoredContent::Version(_) => false,
            StoredContent::One { chunk, .. } => self.lost.contains(chunk),
            StoredContent::Many(content) => content.slices().any(|slice| self.is_lost(slice)),
        }
    }

    /// Drops jobs whose file is settled, so that only what is left to read stays.
    pub(super) fn forget_finished_jobs(&mut self) {
        let files = &self.files;
        self.jobs
            .retain(|job| files[job.file as usize].get().is_none());
    }

    /// Numbers those of some chunks that large files lie in: what was just stored of them has no numbers.
    pub(super) fn number(&self, chunks: &HashSet<ChunkName>) {
        let mut table = self.table_mut();
        for file in &self.files {
            if let Some(FileState::Kept(known) | FileState::Done(known)) = file.get()
                && let StoredContent::Many(content) = &known.content
            {
                let slices = content.slices();
                for slice in slices.filter(|slice| chunks.contains(&slice.chunk.name)) {
                    table.number(slice.chunk);
                }
            }
        }
    }

    /// The names of the chunks that a content of a file of `size` bytes lies in.
    pub(super) fn names_of(&self, content: &StoredContent, size: u64) -> Vec<ChunkName> {
        match content {
            StoredContent::Version(_) => Vec::new(),
            StoredContent::One { .. } if size == 0 => Vec::new(),
            StoredContent::One { chunk, .. } => vec![self.table().get(*chunk).name],
            StoredContent::Many(content) => {
                content.slices().map(|slice| slice.chunk.name).collect()
            }
        }
    }

    fn is_left(&self, chunk: u32) -> bool {
        self.abandoned.contains(&chunk) || self.lost.contains(&chunk)
    }

    fn is_lost(&self, slice: &Slice) -> bool {
        let number = self.table().find(&slice.chunk);
        number.is_some_and(|number| self.lost.contains(&number))
    }

    /// Chooses chunks of which less than half is still needed, and has what is needed of them read and stored again.
    fn abandon(&mut self, scan: &Scan) {
        let (used, total) = self.usage(scan);
        let mut candidates: Vec<(u64, u32)> = used
            .iter()
            .zip(0_u32..)
            .filter(|(used, number)| {
                **used > 0 && **used * 2 < u64::from(self.table().get(*number).plain_len)
            })
            .map(|(used, number)| (*used, number))
            .collect();
        candidates.sort_unstable();
        let mut left = MOVED_MIN.max(total / 10);
        for (used, number) in candidates {
            if used > left {
                break;
            }
            left -= used;
            self.abandoned.insert(number);
            self.bytes_moved += used;
        }
        if !self.abandoned.is_empty() {
            self.read_abandoned(scan);
        }
    }

    /// How many bytes of each chunk are needed, and of all files.
    fn usage(&self, scan: &Scan) -> (Vec<u64>, u64) {
        let mut used = Vec::new();
        let mut total = 0;
        let mut add = |table: &mut ChunkTable, content: &StoredContent, size: u64| {
            total += size;
            table.usage(content, size, &mut used);
        };
        let mut file = 0;
        let files = &self.files;
        let table = &mut *self.table_mut();
        let _ = scan.for_each(|spot, _, _| {
            let (_, spotted) = scan.get(spot);
            if spotted.what == ScannedKind::File {
                if let Some(FileState::Kept(kept)) = files[file].get() {
                    add(table, &kept.content, spotted.size());
                }
                file += 1;
            }
            Ok::<(), ChunkError>(())
        });
        for job in &self.jobs {
            let size = scan.get(job.spot).1.size();
            match &job.previous {
                Some(before) if before.size == size || before.is_compared() => {
                    add(table, &before.content, size);
                }
                _ => {}
            }
        }
        used.resize(table.len(), 0);
        (used, total)
    }

    /// Has files read again whose versions are not held any more.
    pub(super) fn read_missing(&mut self, scan: &Scan, held: &HashSet<FileDigest>) {
        let version = |state: &FileState| match state {
            FileState::Kept(kept) => match &kept.content {
                StoredContent::Version(digest) => Some(*digest),
                _ => None,
            },
            _ => None,
        };
        let versions = self.files.iter().filter_map(|file| version(file.get()?));
        self.missing = versions.filter(|digest| !held.contains(digest)).collect();
        if !self.missing.is_empty() {
            self.read_abandoned(scan);
        }
    }

    /// Turns files that lie in abandoned chunks into jobs; jobs stay in the order of paths.
    pub(super) fn read_abandoned(&mut self, scan: &Scan) {
        let mut moved = Vec::new();
        let mut file = 0_u32;
        let _ = scan.for_each(|spot, _, _| {
            let (_, spotted) = scan.get(spot);
            if spotted.what == ScannedKind::File {
                let state = &self.files[file as usize];
                let is_left = match state.get() {
                    Some(FileState::Kept(kept)) => self.is_abandoned(&kept.content),
                    Some(FileState::Done(done)) => self.is_in_lost(&done.content),
                    Some(FileState::Left) | None => false,
                };
                if is_left {
                    moved.push((file, spot, spotted.size()));
                }
                file += 1;
            }
            Ok::<(), ChunkError>(())
        });
        for (file, spot, size) in moved {
            let state = &mut self.files[file as usize];
            if let Some(FileState::Kept(known) | FileState::Done(known)) = state.take() {
                let content = known.content;
                let previous = Some(Box::new(Before {
                    content,
                    size,
                    modified: None,
                }));
                self.jobs.push(Job {
                    file,
                    spot,
                    previous,
                    held: None,
                });
            }
        }
        self.jobs.sort_unstable_by_key(|job| job.file);
        self.keep_sets_together(scan);
    }

    /// Has a database taken again with all that lies beside it as soon as one of its files is to be read, and nothing of it otherwise.
    fn keep_sets_together(&mut self, scan: &Scan) {
        let Self {
            files,
            jobs,
            companions,
            set_owners,
            ..
        } = self;
        let mut held: HashSet<u32> = HashSet::new();
        for (owner, spot) in set_owners {
            let beside = companions.get(owner).map_or(&[][..], Vec::as_slice);
            let is_read = |file: u32| files[file as usize].get().is_none();
            let is_database = match files[*owner as usize].get() {
                None => true,
                Some(FileState::Kept(known) | FileState::Done(known)) => known.database().is_some(),
                Some(FileState::Left) => false,
            };
            let is_any_read = is_read(*owner) || beside.iter().any(|one| is_read(one.file));
            if !is_database || !is_any_read {
                continue;
            }
            if let Some(FileState::Kept(known) | FileState::Done(known)) =
                files[*owner as usize].take()
            {
                let (content, size) = (known.content, scan.get(*spot).1.size());
                let previous = Some(Box::new(Before {
                    content,
                    size,
                    modified: None,
                }));
                let (file, spot) = (*owner, *spot);
                jobs.push(Job {
                    file,
                    spot,
                    previous,
                    held: None,
                });
            }
            for one in beside {
                files[one.file as usize].take();
                held.insert(one.file);
            }
        }
        jobs.retain(|job| !held.contains(&job.file));
        jobs.sort_unstable_by_key(|job| job.file);
    }
}
