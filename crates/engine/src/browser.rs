//! Subjects, their snapshots, and what is in those, for whoever walks and reads a little here and there: the mounted filesystem.
//!
//! A snapshot's list of entries is read when it is opened, and a file's content when it is asked for: the chunks or frames that the
//! range lies in, which stay in one cache of bounded bytes for all snapshots. Whoever reads on is read ahead of.
//!
//! *Always true:* nothing is written, neither to the store nor to this host, and no lease is taken. What was forgotten and collected
//! meanwhile is an error, as damage is; never other bytes.

mod blocks;
mod form;
mod lru;
mod tree;

pub use crate::result::BrowsedSnapshot;
pub use tree::{NodeFacts, NodeId, NodeKind, SnapshotTree};

use crate::bridge::{self, Crossing};
use crate::catalog::reader::SnapshotReader;
use crate::catalog::references;
use crate::error::{Error, ErrorKind};
use crate::kind::project::Project;
use crate::kind::workspace::Workspace;
use crate::open::Engine;
use blocks::{Block, BlockKey, SharedCache};
use form::{ArchiveForm, ChunkedForm, SnapshotForm, Stretch, WantedFile};
use lru::WeighedLru;
use stasis_model::failure::Failure;
use stasis_model::format::manifest::{Indexed, SnapshotManifest};
use stasis_model::id::{Lineage, ProjectId, SnapshotId, TenantId};
use stasis_store::location::StoreLocation;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;

/// Where the content of files lies: so many stretches stay known for each open snapshot.
const KNOWN_STRETCHES: u64 = 200_000;
/// How many blocks are fetched before they are asked for, from a store that is near, and from one that is far away.
const AHEAD_NEAR: usize = 4;
const AHEAD_FAR: usize = 16;
/// Reads that begin so near to where the last one ended go on from there; the kernel asks for several at once, in any order.
const NEXT: u64 = 1 << 20;

/// How much a browser may keep.
#[derive(Clone, Copy, Debug)]
pub struct BrowserSettings {
    /// Bytes of chunks and frames that stay unpacked.
    pub cache_bytes: u64,
    /// Bytes of entries of snapshots that stay read; the last one stays, however many it has.
    pub tree_bytes: u64,
}

impl Default for BrowserSettings {
    fn default() -> Self {
        Self {
            cache_bytes: 32 << 20,
            tree_bytes: 32 << 20,
        }
    }
}

/// Whose snapshots are looked at.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BrowsedSubject {
    /// A directory of a store.
    Dir(Box<Engine>),
    /// A profile, under one major version of the browser.
    Profile(Box<Engine>, Lineage),
    /// The checkpoints of a workspace, on this host.
    Checkpoints(Workspace),
}

impl From<&Project> for BrowsedSubject {
    fn from(project: &Project) -> Self {
        Self::Dir(Box::new(project.engine.clone()))
    }
}

impl BrowsedSubject {
    /// Where its snapshots lie: nobody else's lie there.
    fn place(&self) -> String {
        match self {
            Self::Dir(engine) => format!("{} {}", engine.location, engine.chunk_root.name()),
            Self::Profile(engine, lineage) => format!("{} {lineage}", engine.location),
            Self::Checkpoints(workspace) => format!("{}", workspace.directory().display()),
        }
    }
}

/// Looks into snapshots. Its methods block: they are for threads that may.
#[derive(Debug)]
pub struct Browser {
    shared: Arc<BrowserParts>,
    /// Snapshots that were opened lately.
    snapshots: SharedCache<String, OpenSnapshot>,
    /// A number for every pool and every archive, so that their blocks are told apart.
    spaces: Mutex<HashMap<String, u32>>,
}

#[derive(Debug)]
struct BrowserParts {
    crossing: Crossing,
    blocks: SharedCache<BlockKey, Vec<u8>>,
    ahead: Arc<Semaphore>,
}

impl Browser {
    /// From within the async world.
    pub fn new(settings: BrowserSettings) -> Self {
        Self {
            shared: Arc::new(BrowserParts {
                crossing: Crossing::here(),
                blocks: SharedCache::new(settings.cache_bytes),
                ahead: Arc::new(Semaphore::new(AHEAD_FAR)),
            }),
            snapshots: SharedCache::new(settings.tree_bytes),
            spaces: Mutex::default(),
        }
    }

    /// The directories of a tenant that a store has.
    pub fn directories(
        &self,
        engine: &Engine,
        tenant: &TenantId,
    ) -> Result<Vec<(ProjectId, BrowsedSubject)>, Error> {
        let all = self
            .shared
            .crossing
            .wait(engine.directories(Some(tenant)))?;
        let subject = |root| BrowsedSubject::Dir(Box::new(engine.rooted(root)));
        let named = all.into_iter().map(|(root, _, id)| (id, subject(root)));
        Ok(named.collect())
    }

    /// The profiles that a store has, of one tenant or of all.
    pub fn profiles(
        &self,
        engine: &Engine,
        tenant: Option<&TenantId>,
    ) -> Result<Vec<(Lineage, BrowsedSubject)>, Error> {
        let lineages = engine.profiles().browsed_lineages(tenant);
        let all = self.shared.crossing.wait(lineages)?.into_iter();
        let subject =
            |lineage: &Lineage| BrowsedSubject::Profile(Box::new(engine.clone()), lineage.clone());
        Ok(all.map(|one| (one.clone(), subject(&one))).collect())
    }

    /// The snapshots of a subject, the oldest first. One that was deleted has none.
    pub fn snapshots(&self, subject: &BrowsedSubject) -> Result<Vec<BrowsedSnapshot>, Error> {
        let mut found = match subject {
            BrowsedSubject::Dir(engine) => {
                let index = self.shared.crossing.wait(engine.dirs().index_to_look())?;
                let row = |row: &Indexed| BrowsedSnapshot {
                    id: row.id.to_string(),
                    name: None,
                    at: row.at_ms,
                    labels: row.labels.values().map(ToString::to_string).collect(),
                    pinned: row.pinned,
                    latest: index.is_active(&row.id),
                };
                let is_deleted = index.deleted_at_ms.is_some();
                let rows = index.snapshots.iter().filter(|_| !is_deleted);
                rows.map(row).collect()
            }
            BrowsedSubject::Profile(engine, lineage) => {
                let look = engine.profiles().browsed_snapshots(lineage);
                self.shared.crossing.wait(look)?
            }
            BrowsedSubject::Checkpoints(workspace) => workspace.browsed_checkpoints()?,
        };
        found.sort_by(|one, other| (one.at, &one.id).cmp(&(other.at, &other.id)));
        Ok(found)
    }

    fn space(&self, name: String) -> u32 {
        let mut spaces = lock(&self.spaces);
        let next = u32::try_from(spaces.len()).expect("no host has so many pools and archives");
        *spaces.entry(name).or_insert(next)
    }

    /// Opens a snapshot: its entries are read, and none of its files. One that was opened lately is still open.
    pub fn open(&self, subject: &BrowsedSubject, id: &str) -> Result<Arc<OpenSnapshot>, Error> {
        let key = format!("{} {id}", subject.place());
        let weight = |open: &OpenSnapshot| open.tree.weight();
        let read = || self.read(subject, id);
        self.snapshots.get(&key, weight, read)
    }

    fn read(&self, subject: &BrowsedSubject, id: &str) -> Result<OpenSnapshot, Error> {
        let crossing = &self.shared.crossing;
        let (form, space, ahead): (Arc<dyn SnapshotForm>, String, usize) = match subject {
            BrowsedSubject::Dir(engine) => {
                let form = crossing.wait(opened_chunks(engine, id))?;
                // Subjects of one pool share their chunks.
                let space = format!("{} {:?}", engine.location, engine.chunk_root.pool_id());
                (Arc::new(form), space, ahead_of(engine))
            }
            BrowsedSubject::Profile(engine, lineage) => {
                let archive = engine.profiles().archive_in_store(lineage, id);
                let form = ArchiveForm::new(crossing.wait(archive)?);
                let space = format!("{} {id}", subject.place());
                (Arc::new(form), space, ahead_of(engine))
            }
            BrowsedSubject::Checkpoints(workspace) => {
                let reader = workspace.checkpoint_reader(id)?;
                let manifest = reader.document().clone();
                let list = references::list_of(&manifest)?;
                let form = chunked_form(SnapshotReader::new(list, Arc::new(reader)), &manifest)?;
                (Arc::new(form), subject.place(), AHEAD_NEAR)
            }
        };
        Ok(OpenSnapshot {
            tree: form.tree()?,
            reading: Reading {
                form,
                space: self.space(space),
                shared: self.shared.clone(),
            },
            ahead,
            files: Mutex::new(WeighedLru::new(KNOWN_STRETCHES)),
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ahead_of(engine: &Engine) -> usize {
    match engine.location {
        StoreLocation::S3(_) => AHEAD_FAR,
        _ => AHEAD_NEAR,
    }
}

fn chunked_form(reader: SnapshotReader, manifest: &SnapshotManifest) -> Result<ChunkedForm, Error> {
    let unfit = |source| Error::UnfitSnapshot {
        snapshot: manifest.snapshot_id.clone(),
        source,
    };
    let attributes = manifest.root_attributes().map_err(unfit)?;
    let (root, digest) = (manifest.root(), manifest.state_digest);
    Ok(ChunkedForm::new(reader, root, attributes, digest))
}

async fn opened_chunks(engine: &Engine, id: &str) -> Result<ChunkedForm, Error> {
    let (dirs, root) = (engine.dirs(), engine.dirs().root());
    let gone = || {
        let said = format!("there is no snapshot `{id}` any more");
        Error::from(Failure::of(ErrorKind::NotFound, said))
    };
    let index = dirs.index_to_look().await?;
    let id: SnapshotId = id.parse().map_err(|_| gone())?;
    index.find(&id).ok_or_else(gone)?;
    let opened = dirs.open_snapshot(&root, &index, &id).await?;
    let source = Arc::new(opened.fetcher(&root));
    let reader = SnapshotReader::new(opened.list.clone(), source);
    chunked_form(reader, &opened.manifest)
}

/// Everything that it takes to have a block.
#[derive(Clone, Debug)]
struct Reading {
    form: Arc<dyn SnapshotForm>,
    space: u32,
    shared: Arc<BrowserParts>,
}

impl Reading {
    fn key(&self, block: Block) -> BlockKey {
        let space = self.space;
        BlockKey { space, block }
    }

    fn block(&self, block: Block) -> Result<Arc<Vec<u8>>, Error> {
        let (weight, fetch) = (
            |bytes: &Vec<u8>| bytes.len() as u64,
            || self.form.fetch(block),
        );
        self.shared.blocks.get(&self.key(block), weight, fetch)
    }

    /// Fetches a block that will be asked for, if somebody is free to do so.
    fn fetch_ahead(&self, block: Block) {
        if self.shared.blocks.is_known(&self.key(block)) {
            return;
        }
        let Ok(permit) = self.shared.ahead.clone().try_acquire_owned() else {
            return;
        };
        let reading = self.clone();
        let fetch = bridge::blocking(move || {
            // Whoever asks for it is told what is wrong with it.
            let _ = reading.block(block);
            drop(permit);
        });
        drop(self.shared.crossing.start(fetch));
    }
}

/// A snapshot whose entries were read. Its methods block, as those of [`Browser`] do.
#[derive(Debug)]
pub struct OpenSnapshot {
    tree: SnapshotTree,
    reading: Reading,
    ahead: usize,
    files: Mutex<WeighedLru<NodeId, Arc<FileMap>>>,
}

/// Where the content of a file lies, and how far somebody has read it.
#[derive(Debug)]
struct FileMap {
    stretches: Vec<Stretch>,
    /// Where each stretch begins in the file.
    starts: Vec<u64>,
    /// Where the last read ended.
    next: AtomicU64,
    /// The first stretch that nobody was sent ahead for.
    not_asked: AtomicUsize,
}

impl FileMap {
    fn new(stretches: Vec<Stretch>) -> Self {
        let starts = stretches.iter().scan(0, |at, stretch| {
            let start = *at;
            *at += stretch.length();
            Some(start)
        });
        Self {
            starts: starts.collect(),
            stretches,
            next: AtomicU64::new(0),
            not_asked: AtomicUsize::new(0),
        }
    }

    fn length(&self) -> u64 {
        let last = self.stretches.last().zip(self.starts.last());
        last.map_or(0, |(stretch, start)| start + stretch.length())
    }

    /// The stretch that a byte lies in.
    fn at(&self, offset: u64) -> usize {
        let behind = self.starts.partition_point(|start| *start <= offset);
        behind.saturating_sub(1)
    }
}

impl OpenSnapshot {
    /// Its entries.
    pub fn tree(&self) -> &SnapshotTree {
        &self.tree
    }

    /// So many bytes of a file, fewer where it ends. Every one of them was checked against a digest of the snapshot.
    pub fn read(&self, node: NodeId, offset: u64, length: usize) -> Result<Vec<u8>, Error> {
        let no_file = || Failure::of(ErrorKind::Invalid, "it is no file");
        let facts = self.tree.facts(node).ok_or_else(no_file)?;
        if facts.kind != NodeKind::File {
            return Err(no_file().into());
        }
        let left = facts.size.saturating_sub(offset);
        let length = usize::try_from(left).map_or(length, |left| left.min(length));
        if length == 0 {
            return Ok(Vec::new());
        }
        let map = self.map(&facts)?;
        let end = offset + length as u64;
        self.read_on(&map, offset, end);
        let mut bytes = Vec::with_capacity(length);
        let first = map.at(offset);
        for (stretch, start) in map.stretches[first..].iter().zip(&map.starts[first..]) {
            let from = offset.max(*start) - start;
            let until = end.min(start + stretch.length()).saturating_sub(*start);
            if *start >= end {
                break;
            }
            self.copy(stretch, from, until, &mut bytes)?;
        }
        Ok(bytes)
    }

    fn copy(
        &self,
        stretch: &Stretch,
        from: u64,
        until: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let wanted = usize::try_from(until - from).expect("no more than was asked for");
        match *stretch {
            Stretch::Hole(_) => bytes.resize(bytes.len() + wanted, 0),
            Stretch::Stored { block, offset, .. } => {
                let found = self.reading.block(block)?;
                let from = offset as usize + usize::try_from(from).expect("less than a block");
                let short = || Failure::of(ErrorKind::Corrupt, "what is stored is too short");
                let part = found.get(from..from + wanted).ok_or_else(short)?;
                bytes.extend_from_slice(part);
            }
        }
        Ok(())
    }

    fn map(&self, facts: &NodeFacts) -> Result<Arc<FileMap>, Error> {
        if let Some(known) = lock(&self.files).get(&facts.node) {
            return Ok(known);
        }
        let wanted = WantedFile {
            number: facts.node.number(),
            path: self.tree.path(facts.node),
            size: facts.size,
        };
        let get = |block| self.reading.block(block);
        let map = FileMap::new(self.reading.form.stretches(&wanted, &get)?);
        if map.length() != facts.size {
            let said = format!("what is stored of `{}` is too short", wanted.path);
            return Err(Failure::of(ErrorKind::Corrupt, said).into());
        }
        let weight = 1 + map.stretches.len() as u64;
        let map = Arc::new(map);
        lock(&self.files).add(facts.node, map.clone(), weight);
        Ok(map)
    }

    /// Notes a read; one that goes on from the last sends somebody ahead.
    fn read_on(&self, map: &FileMap, offset: u64, end: u64) {
        let expected = map.next.fetch_max(end, Ordering::Relaxed);
        if offset == 0 || offset.abs_diff(expected) > NEXT {
            map.next.store(end, Ordering::Relaxed);
            map.not_asked.store(0, Ordering::Relaxed);
            return;
        }
        let first = map.at(end.saturating_sub(1)) + 1;
        let until = map.stretches.len().min(first + self.ahead);
        let asked = map.not_asked.fetch_max(until, Ordering::Relaxed);
        for stretch in map
            .stretches
            .get(first.max(asked)..until)
            .unwrap_or_default()
        {
            if let Stretch::Stored { block, .. } = stretch {
                self.reading.fetch_ahead(*block);
            }
        }
    }
}

#[cfg(test)]
mod tests;
