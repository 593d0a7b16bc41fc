//! Reads a tree and stores what is new of it.
//!
//! 1. look at everything   2. join it with what is known of the last snapshot: a file that looks the same keeps its content
//! 3. read the others, in parallel: small ones into bundles, large ones cut by content or compared piece by piece; where files can be
//!    cloned, each is held whole instead; what another tree on this host holds of a file is read in its place
//! 4. write the list, using the sections that the last one has
//!
//! *Always true:* a content that is kept or found again is one that a snapshot in the index has; the digest of a file is
//! that of the very bytes that were stored. A file that changes while it is read is read again, twice; one that still
//! changes is stored as it was read last and reported. A file whose metadata was stated by somebody ([`save_stated`]) is
//! never cached: what the system says of it says nothing of what was saved.

mod bundle;
mod compare;
mod cut;
mod database;
mod held;
mod large;
mod large_file;
mod large_read;
mod new_blocks;
mod plan;
mod rewrite;
mod small;
mod stream;
mod version;
mod workers;

use super::databases::{DatabaseCapture, Inconsistent, SavedDatabase};
use super::encoder::ChunkEncoder;
use super::list::{Bundler, ListReader, ListWriter, root_of};
use super::list_cache::{self, CachedStat, ListCacheKey, ListCacheReader, ListCacheWriter};
use super::scan::{Scan, ScannedDir, ScannedKind, Spot};
use super::{ChunkError, ChunkSink, ChunkSource, VersionSink};
use crate::fs::root_dir::RootDir;
use crate::progress::Progress;
use crate::tree::stat_cache::FileStat;
use crate::tree::stated::StatedMetadata;
use crate::tree::walk::{WalkReport, WalkSettings, WalkSkip};
use plan::{FileState, PlannedDatabases, SavePlan};
use stasis_model::digest::{FileDigest, TreeDigest};
use stasis_model::format::manifest::{FileList, Totals};
use stasis_model::id::SnapshotId;
use stasis_model::protocol::gc::{ChunkName, Names};
use stasis_model::time::Timestamp;
use stasis_model::tree::blocks::RECORD;
use stasis_model::tree::blocks::layout::TABLE_RECORDS;
use stasis_model::tree::canonical::TreeHasher;
use stasis_model::tree::chunking::Chunker;
use stasis_model::tree::list::{FileContent, ListRoot, ListRow};
use stasis_model::tree::{Attribute, Entry, EntryKind, EntryPath, Metadata};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;

/// How often a list is written again because gc has overtaken what it leads to; then it is left to whoever publishes it.
pub(super) const OVERTAKEN_ROUNDS: usize = 16;

/// How a tree is saved.
#[derive(Clone, Debug)]
pub struct SaveSettings {
    /// How it is walked, and by how many workers it is read.
    pub walk: WalkSettings,
    /// How large files are cut.
    pub chunker: Chunker,
    /// How hard chunks are compressed.
    pub level: i32,
    /// When the save began.
    pub started: Timestamp,
    /// Where this host caches the list of the tree; without, everything is read.
    pub cache: Option<ListCacheKey>,
    /// How far it has come.
    pub progress: Arc<Progress>,
}

/// A snapshot that the index leads to.
#[derive(Clone, Debug)]
pub struct Parent {
    /// Which.
    pub snapshot: SnapshotId,
    /// Its entries.
    pub list: FileList,
    /// What it is.
    pub digest: TreeDigest,
    /// How much it is.
    pub totals: Totals,
    /// Its root directory.
    pub root: Metadata,
    /// The attributes of that.
    pub root_attributes: Vec<Attribute>,
}

/// What a save works with.
pub struct SaveParts<'s> {
    /// The tree.
    pub root: &'s RootDir,
    /// Where chunks go.
    pub sink: &'s dyn ChunkSink,
    /// Where older ones come from.
    pub source: &'s dyn ChunkSource,
    /// The snapshot it derives from.
    pub parent: Option<&'s Parent>,
    /// Whether the index leads to a snapshot.
    pub is_indexed: &'s (dyn Fn(&SnapshotId) -> bool + Sync),
    /// The snapshot that is being made.
    pub snapshot: &'s SnapshotId,
    /// Chunks that are known to be damaged.
    pub damaged: &'s HashSet<ChunkName>,
    /// Whoever wants to see the entries as they are listed, in the order of paths; none are when nothing differs from the parent.
    pub witness: Option<&'s (dyn Fn(&ListRow) + Sync)>,
    /// Who copies live databases; without, they are files like others.
    pub databases: Option<&'s dyn DatabaseCapture>,
    /// Where versions of files are held whole, as far as they can be cloned there; without, everything goes into chunks.
    pub versions: Option<&'s dyn VersionSink>,
    /// The tree as this host holds it besides; without, everything that must be stored is read from the tree.
    pub held: Option<&'s HeldTree<'s>>,
}

/// A tree as this host holds it elsewhere: what is in a file that looks as it did then is known, and can be had without the file.
pub struct HeldTree<'s> {
    /// Its list, with the stat of each file.
    pub cache: &'s ListCacheKey,
    /// Whether a snapshot is held still.
    pub is_held: &'s (dyn Fn(&SnapshotId) -> bool + Sync),
    /// Where contents come from; what is not there any more is read from the tree.
    pub source: &'s dyn ChunkSource,
}

/// What a save read and stored.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "what was left out is said only here"]
pub struct SaveReport {
    /// What was met, and what was left out.
    pub walk: WalkReport,
    /// Files that were read, because they are new or may have changed.
    pub files_read: u64,
    /// Bytes of those.
    pub bytes_read: u64,
    /// Files that may have changed since the last snapshot, and of which another tree on this host said what is in them.
    pub files_held: u64,
    /// Files whose content is new.
    pub files_new: u64,
    /// Chunks that were given to the sink.
    pub chunks_new: u64,
    /// Bytes of those, as they are stored.
    pub bytes_stored: u64,
    /// Attributes that are not the user's, of directories and of files that were read: they are left out.
    pub attributes_left_out: u64,
    /// Bytes that were stored again because most of their bundle is not needed any more.
    pub bytes_moved: u64,
    /// Databases that no consistent copy was made of.
    pub inconsistent: Vec<Inconsistent>,
    /// Chunks that turned out damaged or missing, and are not rebuilt yet.
    damaged: HashSet<ChunkName>,
}

impl SaveReport {
    fn merge(&mut self, other: Self) {
        self.walk.merge(other.walk);
        self.files_read += other.files_read;
        self.bytes_read += other.bytes_read;
        self.files_held += other.files_held;
        self.files_new += other.files_new;
        self.chunks_new += other.chunks_new;
        self.bytes_stored += other.bytes_stored;
        self.attributes_left_out += other.attributes_left_out;
        self.bytes_moved += other.bytes_moved;
        self.inconsistent.extend(other.inconsistent);
        self.damaged.extend(other.damaged);
    }
}

/// A tree that was saved, but not published.
#[derive(Debug)]
#[must_use = "a save counts only when it is published"]
pub struct Saved {
    /// Its entries.
    pub list: FileList,
    /// What it is.
    pub digest: TreeDigest,
    /// The root directory itself.
    pub root: Metadata,
    /// Its attributes.
    pub root_attributes: Vec<Attribute>,
    /// How much it is.
    pub totals: Totals,
    /// The databases in it; those of the parent if nothing differs.
    pub databases: Vec<SavedDatabase>,
    /// Every chunk that the list leads to.
    pub names: Names,
    /// Every version of a file that is held whole, with its size; none are named when nothing differs from the parent.
    pub versions: BTreeMap<FileDigest, u64>,
    /// What was read and stored.
    pub report: SaveReport,
    /// Whether nothing differs from the parent, so that its list is this one's.
    pub is_same: bool,
    cache_update: CacheUpdate,
}

/// What becomes of the cached list of the tree when the snapshot is published.
#[derive(Debug)]
enum CacheUpdate {
    /// There is none.
    None,
    /// It is written anew.
    New(Box<ListCacheWriter>, ListCacheKey),
    /// It stays, as that of this snapshot.
    Same(ListCacheKey, SnapshotId),
}

impl Saved {
    /// Caches the list of the tree on this host, now that the snapshot is published. Failing costs only time at the next save.
    pub fn keep_cache(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.cache_update, CacheUpdate::None) {
            CacheUpdate::None => Ok(()),
            CacheUpdate::New(writer, _) => writer.finish(),
            CacheUpdate::Same(key, snapshot) => list_cache::belongs_to(&key, &snapshot),
        }
    }

    /// Caches the list as that of a snapshot that is there already, because this one was not published.
    pub fn keep_cache_as(&mut self, snapshot: &SnapshotId) -> io::Result<()> {
        match std::mem::replace(&mut self.cache_update, CacheUpdate::None) {
            CacheUpdate::None => Ok(()),
            CacheUpdate::New(writer, key) => {
                let is_fit = writer.can_belong_to(snapshot);
                writer.finish()?;
                // Under an id that the index does not lead to, nothing of it would count.
                if is_fit {
                    list_cache::belongs_to(&key, snapshot)?;
                }
                Ok(())
            }
            CacheUpdate::Same(key, _) => list_cache::belongs_to(&key, snapshot),
        }
    }
}

/// Saves the tree beneath a root.
pub fn save(parts: &SaveParts<'_>, settings: &SaveSettings) -> Result<Saved, ChunkError> {
    save_as(parts, settings, None)
}

/// Saves the tree beneath a root, with the metadata that is stated of its entries, the root among them. Kinds, sizes and
/// contents are those that are read.
pub fn save_stated(
    parts: &SaveParts<'_>,
    settings: &SaveSettings,
    stated: &StatedMetadata<'_>,
) -> Result<Saved, ChunkError> {
    save_as(parts, settings, Some(stated))
}

fn save_as(
    parts: &SaveParts<'_>,
    settings: &SaveSettings,
    stated: Option<&StatedMetadata<'_>>,
) -> Result<Saved, ChunkError> {
    let (scan, walk) = Scan::of(parts.root, &settings.walk)?;
    let databases = match parts.databases {
        None => PlannedDatabases::Files,
        Some(capture) if capture.takes_sets() => PlannedDatabases::Sets,
        Some(_) => PlannedDatabases::Copies,
    };
    let known = plan::KnownTrees {
        previous: previous(parts, settings)?,
        held: held(parts),
    };
    let plan = plan::join(&scan, known, databases)?;
    let mut run = SaveRun {
        parts,
        settings,
        stated,
        scan,
        plan,
        stated_left_out: 0,
    };
    // Before anything is called the same: what lacks something would hand that down.
    if let Some(sink) = parts.versions {
        run.plan.read_missing(&run.scan, &sink.held()?);
    }
    if let Some(parent) = parts.parent
        && let Some(key) = &settings.cache
        && run.is_the_same(parent, &walk)
    {
        return run.same(parent, key, walk);
    }
    run.rewrite_damaged(parts.damaged)?;
    run.plan.announce(&run.scan, &settings.progress);
    let mut parent = parent_root(parts)?;
    for section in &parent.sections {
        run.plan.table_mut().know(section.slice.chunk);
    }
    if let Some(FileList::Stored(at)) = parts.parent.map(|parent| &parent.list) {
        run.plan.table_mut().know(at.slice().chunk);
    }
    let mut report = run.read()?;
    report.bytes_moved = run.plan.bytes_moved;
    report.walk.merge(walk);
    report.attributes_left_out += run.scan.attributes_left_out;
    for round in 0.. {
        let saved = run.write(&parent, &mut report)?;
        let overtaken = parts.sink.overtaken()?;
        let is_safe = saved.names.iter().all(|name| !overtaken.contains(name));
        // Whether it may be published, whoever judges the names decides.
        if is_safe || round == OVERTAKEN_ROUNDS {
            report.attributes_left_out += run.stated_left_out;
            return Ok(Saved { report, ..saved });
        }
        // What a list shares with the one before may be what was taken.
        parent
            .sections
            .retain(|place| !overtaken.contains(&place.slice.chunk.name));
        run.leave(&overtaken);
        report.merge(run.read()?);
    }
    unreachable!("it ends after so many rounds")
}

/// A save under way: the tree as it was seen, and what is to be done about each of its files.
struct SaveRun<'s> {
    parts: &'s SaveParts<'s>,
    settings: &'s SaveSettings,
    /// What somebody says of the entries.
    stated: Option<&'s StatedMetadata<'s>>,
    scan: Scan,
    plan: SavePlan,
    /// Stated attributes that are no part of a tree.
    stated_left_out: u64,
}

impl SaveRun<'_> {
    /// Reads every file that must be read. A chunk that turns out damaged or missing meanwhile is rebuilt, or what lies in it is
    /// read too, and so is what lies in one that gc has overtaken: nothing that is published refers to it.
    fn read(&mut self) -> Result<SaveReport, ChunkError> {
        let mut report = self.round()?;
        let mut known = HashSet::new();
        loop {
            let mut damaged = std::mem::take(&mut report.damaged);
            damaged.retain(|name| known.insert(*name));
            self.rewrite_damaged(&damaged)?;
            if damaged.is_empty() {
                let mut overtaken = self.parts.sink.overtaken()?;
                overtaken.retain(|name| known.insert(*name));
                if overtaken.is_empty() {
                    return Ok(report);
                }
                self.leave(&overtaken);
            }
            if !self.plan.jobs.is_empty() {
                report.merge(self.round()?);
            }
        }
    }

    /// Reads files, then those of them that turned out to be databases.
    fn round(&mut self) -> Result<SaveReport, ChunkError> {
        let (mut report, aside) = workers::read(self)?;
        // Now, while it is known what was in each file before.
        let rebuilt = self.rebuild(&report.damaged)?;
        report.damaged.retain(|name| !rebuilt.contains(name));
        let databases = database::second_round(&mut self.plan, aside);
        if !self.plan.jobs.is_empty() {
            report.merge(workers::read_databases(self, databases.clone())?);
            database::refresh(&mut self.scan, &self.plan, &databases, self.parts.root);
        }
        Ok(report)
    }

    /// Whether nothing at all differs from the parent, so that its list is the list.
    fn is_the_same(&self, parent: &Parent, walk: &WalkReport) -> bool {
        let (parts, scan, plan) = (self.parts, &self.scan, &self.plan);
        // What the system says was compared, not what is stated.
        self.stated.is_none()
            // A cache that is torn ends early; then it knows less than the parent has.
            && plan.same_as.as_ref() == Some(&parent.snapshot)
            && plan.entries_known == parent.totals.entries()
            && list_cache::can_belong_to(&parent.snapshot, parts.snapshot)
            && plan.leaves_nothing()
            && parts.damaged.is_empty()
            && scan.root == parent.root
            && scan.root_attributes() == parent.root_attributes
            && parent.totals.left_out == walk.vanished_count + gaps(walk)
    }

    /// The parent's list, once more.
    fn same(
        &self,
        parent: &Parent,
        key: &ListCacheKey,
        walk: WalkReport,
    ) -> Result<Saved, ChunkError> {
        let parts = self.parts;
        let mut names: Names = self.plan.table().names().collect();
        if let FileList::Stored(at) = &parent.list {
            names.insert(at.root);
            let sections = root_of(parts.source, &parent.list)?.sections;
            names.extend(sections.iter().map(|place| place.slice.chunk.name));
        }
        Ok(Saved {
            list: parent.list.clone(),
            digest: parent.digest,
            root: parent.root,
            root_attributes: parent.root_attributes.clone(),
            totals: parent.totals,
            databases: Vec::new(),
            names,
            versions: BTreeMap::new(),
            report: SaveReport {
                walk,
                ..SaveReport::default()
            },
            is_same: true,
            cache_update: CacheUpdate::Same(key.clone(), parts.snapshot.clone()),
        })
    }

    /// Writes the list, using the sections that the parent's has; the report is for whoever called.
    fn write(&mut self, parent: &ListRoot, report: &mut SaveReport) -> Result<Saved, ChunkError> {
        let (parts, settings) = (self.parts, self.settings);
        let mut encoder = ChunkEncoder::new(parts.sink, settings.level)?;
        store_fingerprints(&mut self.plan, &mut encoder, report)?;
        let (scan, plan) = (&self.scan, &self.plan);
        let cache = settings.cache.as_ref();
        let cache = cache.map(|key| ListCacheWriter::create(key, parts.snapshot, settings.started));
        let known = |digest: &_| plan.table().known(digest);
        let mut out = SaveOutput {
            scan,
            plan,
            list: ListWriter::new(encoder, &known, parent),
            hasher: TreeHasher::new(),
            totals: Totals::default(),
            // A host that cannot cache saves all the same.
            cache: cache.and_then(Result::ok),
            dropped: HashSet::new(),
            databases: Vec::new(),
            file: 0,
            witness: parts.witness,
            stated: self.stated,
            stated_left_out: 0,
        };
        let mut root = Entry {
            path: EntryPath::root(),
            kind: EntryKind::Directory,
            metadata: scan.root,
            attributes: scan.root_attributes(),
        };
        out.state(&mut root);
        scan.for_each(|spot, path, below| out.entry(spot, path, below))?;
        let SaveOutput {
            list,
            hasher,
            mut totals,
            cache,
            databases,
            stated_left_out,
            ..
        } = out;
        self.stated_left_out = stated_left_out;
        totals.left_out = report.walk.vanished_count + gaps(&report.walk);
        let written = list.finish(parts.source)?;
        report.bytes_stored += written.stored_bytes;
        report.chunks_new += written.chunks_new;
        Ok(Saved {
            list: written.list,
            digest: hasher.finish(),
            root: root.metadata,
            root_attributes: root.attributes,
            totals,
            databases,
            names: written.names,
            versions: written.versions,
            report: SaveReport::default(),
            is_same: false,
            cache_update: match (cache, &settings.cache) {
                (Some(writer), Some(key)) => CacheUpdate::New(Box::new(writer), key.clone()),
                _ => CacheUpdate::None,
            },
        })
    }
}

/// The sections of the parent's list that can be used again.
fn parent_root(parts: &SaveParts<'_>) -> Result<ListRoot, ChunkError> {
    let Some(parent) = parts.parent else {
        return Ok(ListRoot::default());
    };
    let mut root = match root_of(parts.source, &parent.list) {
        Err(ChunkError::Moving { name, source }) => {
            return Err(ChunkError::Moving { name, source });
        }
        // Whatever is wrong with it, all of the new list is stored then.
        root => root.unwrap_or_default(),
    };
    root.sections
        .retain(|place| !parts.damaged.contains(&place.slice.chunk.name));
    Ok(root)
}

/// What is known of the tree: what this host has cached, else what the parent says.
fn previous<'s>(
    parts: &SaveParts<'s>,
    settings: &SaveSettings,
) -> Result<plan::Previous<'s>, ChunkError> {
    let cached = settings.cache.as_ref().and_then(ListCacheReader::open);
    let cached = cached.filter(|cache| (parts.is_indexed)(&cache.snapshot));
    Ok(match (cached, parts.parent) {
        (Some(cache), _) => plan::Previous::Cache(cache),
        (None, Some(parent)) => match ListReader::new(parts.source, &parent.list) {
            Ok(list) => plan::Previous::List(Box::new(list)),
            Err(error @ ChunkError::Moving { .. }) => return Err(error),
            Err(_) => plan::Previous::Nothing,
        },
        (None, None) => plan::Previous::Nothing,
    })
}

/// What this host holds of the tree besides.
fn held(parts: &SaveParts<'_>) -> Option<ListCacheReader> {
    let held = parts.held?;
    let cache = ListCacheReader::open(held.cache)?;
    (held.is_held)(&cache.snapshot).then_some(cache)
}

/// Puts the fingerprints of large files into bundles of their own.
fn store_fingerprints(
    plan: &mut SavePlan,
    encoder: &mut ChunkEncoder<'_>,
    report: &mut SaveReport,
) -> Result<(), ChunkError> {
    let mut bundler = Bundler::default();
    let known = |digest: &_| plan.table().known(digest);
    let mut numbers = Vec::new();
    for (at, file) in plan.files.iter().enumerate() {
        if let Some(FileState::Done(done)) = file.get()
            && let Some(blocks) = done.blocks()
        {
            let layout = bundler.add(&blocks.layout.to_bytes(), encoder, &known)?;
            let tables = blocks.records.chunks(TABLE_RECORDS * RECORD);
            let count = tables.len();
            for table in tables {
                bundler.add(table, encoder, &known)?;
            }
            numbers.push((at, layout, count));
        }
    }
    let slices = bundler.finish(encoder, &known)?;
    for (at, layout, count) in numbers {
        if let Some(FileState::Done(done)) = plan.files[at].get_mut() {
            done.place_fingerprints(slices[layout], &slices[layout + 1..=layout + count]);
        }
    }
    report.bytes_stored += bundler.stored_bytes;
    report.chunks_new += bundler.chunks_new;
    Ok(())
}

/// How many entries are missing, or not to be trusted, though they belong to the tree.
fn gaps(report: &WalkReport) -> u64 {
    let is_gap = |reason: WalkSkip| !matches!(reason, WalkSkip::Fifo | WalkSkip::OwnTarget);
    report
        .skipped
        .iter()
        .filter(|one| is_gap(one.reason))
        .count() as u64
}

struct SaveOutput<'p, 's, 'k> {
    witness: Option<&'p (dyn Fn(&ListRow) + Sync)>,
    scan: &'p Scan,
    plan: &'p SavePlan,
    list: ListWriter<'s, 'k>,
    hasher: TreeHasher,
    totals: Totals,
    cache: Option<ListCacheWriter>,
    dropped: HashSet<EntryPath>,
    databases: Vec<SavedDatabase>,
    file: usize,
    stated: Option<&'p StatedMetadata<'p>>,
    stated_left_out: u64,
}

impl SaveOutput<'_, '_, '_> {
    fn entry(
        &mut self,
        spot: Spot,
        path: &EntryPath,
        below: Option<&ScannedDir>,
    ) -> Result<(), ChunkError> {
        let (_, spotted) = self.scan.get(spot);
        let mut entry = Entry {
            path: path.clone(),
            kind: EntryKind::Directory,
            metadata: spotted.metadata(),
            attributes: Vec::new(),
        };
        match &spotted.what {
            ScannedKind::File => return self.file(entry, spotted.stat()),
            ScannedKind::Directory => {
                self.totals.directories += 1;
                let attributes = below.map(|below| below.attributes.clone());
                entry.attributes = attributes.unwrap_or_default();
            }
            ScannedKind::Symlink(target) => {
                self.totals.symlinks += 1;
                entry.metadata.mode = 0o777;
                entry.kind = EntryKind::Symlink {
                    target: (**target).clone(),
                };
            }
            ScannedKind::HardLink(to) if self.dropped.contains(&**to) => return Ok(()),
            ScannedKind::HardLink(to) => {
                self.totals.hard_links += 1;
                entry.kind = EntryKind::HardLink { to: (**to).clone() };
            }
            ScannedKind::Fifo => {
                self.totals.fifos += 1;
                entry.kind = EntryKind::Fifo;
            }
        }
        self.row(entry, None, None)
    }

    fn file(&mut self, mut entry: Entry, mut stat: FileStat) -> Result<(), ChunkError> {
        let state = self.plan.files[self.file].get();
        // What was kept is as old as it was when it was read.
        let was_old = match state {
            Some(FileState::Kept(_)) => Some(!self.plan.kept_young.contains(&self.file)),
            _ => None,
        };
        self.file += 1;
        let done = match state {
            Some(FileState::Kept(done) | FileState::Done(done)) => done,
            Some(FileState::Left) | None => {
                self.dropped.insert(entry.path);
                return Ok(());
            }
        };
        if let Some(seen) = done.fresh() {
            entry.metadata = seen.metadata();
            stat = FileStat::from(seen);
        }
        let size = stat.size;
        entry.kind = EntryKind::File { size };
        entry.attributes = done.attributes().to_vec();
        self.totals.files += 1;
        self.totals.bytes = self.totals.bytes.saturating_add(size);
        let content = self.plan.table().unpack(&done.content, size);
        let state = done.database();
        if let Some(state) = state {
            self.databases.push(SavedDatabase {
                path: entry.path.clone(),
                state,
                size,
                digest: content.digest,
            });
        }
        let cache = self.cache.as_ref();
        let was_old = was_old.or_else(|| Some(cache?.is_old(&stat)));
        let cached = CachedStat {
            stat,
            database: state,
            was_old: was_old.unwrap_or_default(),
        };
        self.row(entry, Some(content), Some(&cached))
    }

    /// Takes what somebody says of an entry; says whether anything is said of it.
    fn state(&mut self, entry: &mut Entry) -> bool {
        let path = match &entry.kind {
            EntryKind::HardLink { to } => to,
            _ => &entry.path,
        };
        let Some(stated) = self.stated.and_then(|stated| stated(path)) else {
            return false;
        };
        let (stated, left_out) = stated.fit_for(&entry.kind);
        self.stated_left_out += left_out;
        (entry.metadata, entry.attributes) = (stated.metadata, stated.attributes);
        true
    }

    fn row(
        &mut self,
        mut entry: Entry,
        content: Option<FileContent>,
        cached: Option<&CachedStat>,
    ) -> Result<(), ChunkError> {
        let is_stated = self.state(&mut entry);
        let cached = cached.filter(|_| !is_stated);
        let digest = content.as_ref().map(|content| &content.digest);
        self.hasher.entry(&entry, digest);
        let row = ListRow { entry, content };
        if let Some(witness) = self.witness {
            witness(&row);
        }
        if let Some(cache) = &mut self.cache
            && cache.push(&row, cached).is_err()
        {
            self.cache = None;
        }
        self.list.push(row)
    }
}
