//! Whether everything that the index leads to is there, and is what it was.
//!
//! Every snapshot's metadata is compared with the index, every list read, every chunk looked for; with `read_data` every chunk
//! is read and compared with its name. A damaged chunk is copied to quarantine and stays where it is: the next save that
//! has its bytes stores them again, so that old snapshots heal.

use super::damaged::spoiled;
use super::port::Fetching;
use crate::bridge;
use crate::error::{Error, ErrorKind, whole};
use crate::open::Engine;
use serde::Serialize;
use stasis_disk::chunked::list::{ListReader, root_of};
use stasis_disk::chunked::{ChunkError, ChunkSource, open};
use stasis_disk::progress::Progress;
use stasis_model::file_list::FileContent;
use stasis_model::id::SnapshotId;
use stasis_model::manifest::{FileList, Index};
use stasis_model::sweep::ChunkName;
use stasis_store::roots::Root;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How many hurt files are named for one damaged thing.
const NAMED: usize = 100;

/// What is wrong with a chunk or a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Damage {
    /// The chunk, or the snapshot's metadata.
    pub what: String,
    /// What is wrong with it.
    pub why: String,
    /// Snapshots that are hurt.
    pub snapshots: Vec<SnapshotId>,
    /// Files that are hurt, a hundred at most.
    pub files: Vec<String>,
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[must_use = "what is damaged is said only here"]
pub struct RepoChecked {
    /// Snapshots that were looked at.
    pub snapshots: u64,
    /// Chunks that they need.
    pub chunks: u64,
    /// Chunks that were read; none without `read_data`.
    pub chunks_read: u64,
    /// Bytes of those, as they are stored.
    pub bytes_read: u64,
    /// What is wrong. Nothing, if all is well.
    pub damage: Vec<Damage>,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// Who needs which chunk.
#[derive(Debug, Default)]
struct Needs {
    by_chunk: HashMap<ChunkName, BTreeSet<usize>>,
    lists: Vec<(SnapshotId, FileList)>,
    damage: Vec<Damage>,
    /// Damaged chunks of lists, with a snapshot that is hurt.
    spoiled: BTreeMap<ChunkName, SnapshotId>,
}

impl Engine {
    /// Checks the repository.
    pub async fn repo_check(
        &self,
        read_data: bool,
        progress: Arc<Progress>,
    ) -> Result<RepoChecked, Error> {
        let started = self.clock.uptime();
        let root = self.repo_root();
        self.repo_settings(&root).await?;
        let index = self.repo_index(&root).await?;
        let needs = self.needs(&root, &index).await?;
        let mut bad: BTreeMap<ChunkName, String> = BTreeMap::new();
        let stored: HashMap<ChunkName, u64> = root.chunks().await?.into_iter().collect();
        for name in needs
            .by_chunk
            .keys()
            .filter(|name| !stored.contains_key(*name))
        {
            bad.insert(*name, "is missing".to_owned());
        }
        for name in root.quarantined().await? {
            if needs.by_chunk.contains_key(&name) && !read_data {
                let why = "was found damaged, and nobody who has its bytes has saved since";
                bad.entry(name).or_insert_with(|| why.to_owned());
            }
        }
        let (mut chunks_read, mut bytes_read) = (0, 0);
        if read_data {
            let there: Vec<(ChunkName, u64)> = needs
                .by_chunk
                .keys()
                .filter_map(|name| stored.get(name).map(|size| (*name, *size)))
                .collect();
            chunks_read = there.len() as u64;
            bytes_read = there.iter().map(|(_, size)| size).sum();
            progress.expect(chunks_read, bytes_read);
            bad.extend(self.read_chunks(&root, there, progress).await?);
        }
        let chunks = needs.by_chunk.len() as u64;
        let damage = self.tell_damage(&root, needs, bad).await?;
        let elapsed = self.clock.uptime().saturating_sub(started);
        Ok(RepoChecked {
            snapshots: index.snapshots().count() as u64,
            chunks,
            chunks_read,
            bytes_read,
            damage,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Reads every snapshot's metadata and list.
    async fn needs(&self, root: &Root, index: &Index) -> Result<Needs, Error> {
        let mut needs = Needs::default();
        let ids: Vec<SnapshotId> = index.snapshots().map(|(_, one)| one.id.clone()).collect();
        for id in ids {
            let opened = match self.open_snapshot(root, index, &id).await {
                Ok(opened) => opened,
                Err(error) if !is_damage(&error) => return Err(error),
                Err(error) => {
                    needs.damage.push(Damage {
                        what: format!("metadata of {id}"),
                        why: whole(&error),
                        snapshots: vec![id],
                        files: Vec::new(),
                    });
                    continue;
                }
            };
            let (source, list) = (Fetching::new(root.clone()), opened.list.clone());
            let number = needs.lists.len();
            let read = bridge::blocking(move || chunks_of(&source, &list)).await;
            match read.map_err(Error::from) {
                Ok(names) => {
                    for name in names {
                        needs.by_chunk.entry(name).or_default().insert(number);
                    }
                    needs.lists.push((id, opened.list));
                }
                Err(error) if !is_damage(&error) => return Err(error),
                Err(error) => {
                    let source = Fetching::new(root.clone());
                    let names = bridge::blocking(move || spoiled(&source, &opened.list)).await;
                    let names = names.unwrap_or_default().into_keys();
                    needs.spoiled.extend(names.map(|name| (name, id.clone())));
                    needs.damage.push(Damage {
                        what: format!("list of {id}"),
                        why: whole(&error),
                        snapshots: vec![id],
                        files: Vec::new(),
                    });
                }
            }
        }
        Ok(needs)
    }

    /// Reads chunks in parallel; says what is wrong with those that are not what they should be.
    async fn read_chunks(
        &self,
        root: &Root,
        chunks: Vec<(ChunkName, u64)>,
        progress: Arc<Progress>,
    ) -> Result<BTreeMap<ChunkName, String>, Error> {
        let (source, workers) = (Fetching::new(root.clone()), self.restore_workers());
        bridge::blocking(move || {
            let (next, bad) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
            let failed: Mutex<Option<ChunkError>> = Mutex::default();
            let work = || {
                while let Some((name, size)) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let read = source
                        .fetch(name)
                        .and_then(|stored| open(name, &stored).map(|_| ()));
                    match read {
                        Ok(()) => {}
                        Err(error @ ChunkError::Moving { .. }) => {
                            failed
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .get_or_insert(error);
                            return;
                        }
                        Err(error) => {
                            let mut bad = bad.lock().unwrap_or_else(PoisonError::into_inner);
                            bad.insert(*name, whole(&error));
                        }
                    }
                    progress.advance(1, *size);
                }
            };
            std::thread::scope(|scope| {
                for _ in 1..workers.get() {
                    scope.spawn(work);
                }
                work();
            });
            match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
                Some(error) => Err(error.into()),
                None => Ok(bad.into_inner().unwrap_or_else(PoisonError::into_inner)),
            }
        })
        .await
    }

    /// Puts damaged chunks into quarantine, and names what they hurt.
    async fn tell_damage(
        &self,
        root: &Root,
        needs: Needs,
        bad: BTreeMap<ChunkName, String>,
    ) -> Result<Vec<Damage>, Error> {
        let mut damage = needs.damage;
        if damage.is_empty() && bad.is_empty() {
            return Ok(damage);
        }
        // What was forgotten and swept while we looked is not damaged.
        let index = self.repo_index(root).await?;
        let is_there = |id: &SnapshotId| index.find(id).is_some();
        damage.retain(|one| one.snapshots.iter().any(is_there));
        let spoiled = needs.spoiled.iter().filter(|(_, id)| is_there(id));
        self.quarantine(root, &spoiled.map(|(name, _)| *name).collect())
            .await?;
        let known = root.quarantined().await?;
        for (name, why) in bad {
            let hurt = needs.by_chunk.get(&name).into_iter().flatten();
            let hurt: Vec<(SnapshotId, FileList)> = hurt
                .map(|number| needs.lists[*number].clone())
                .filter(|(id, _)| is_there(id))
                .collect();
            if hurt.is_empty() {
                continue;
            }
            if !known.contains(&name) {
                let bytes = root.chunk(&name).await?.unwrap_or_default();
                root.quarantine(&name, bytes).await?;
            }
            let snapshots = hurt.iter().map(|(id, _)| id.clone()).collect();
            let source = Fetching::new(root.clone());
            let files = bridge::blocking(move || files_in(&source, &hurt, &name)).await;
            damage.push(Damage {
                what: format!("chunk {name}"),
                why,
                snapshots,
                files: files.into_iter().collect(),
            });
        }
        Ok(damage)
    }
}

/// Whether what could not be read is wrong in itself: a store that does not answer says nothing about it.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Limit)
}

/// Every chunk that a list leads to; all of the list is read.
pub(super) fn chunks_of(
    source: &dyn ChunkSource,
    list: &FileList,
) -> Result<BTreeSet<ChunkName>, ChunkError> {
    let mut names = BTreeSet::new();
    if let FileList::Stored(at) = list {
        names.insert(at.root);
        names.extend(
            root_of(source, list)?
                .sections
                .iter()
                .map(|place| place.slice.chunk.name),
        );
    }
    let mut reader = ListReader::new(source, list)?;
    while let Some(row) = reader.next_row()? {
        let slices = row.content.iter().flat_map(FileContent::slices);
        names.extend(slices.map(|slice| slice.chunk.name));
    }
    Ok(names)
}

/// The files of some snapshots that lie in a chunk.
fn files_in(
    source: &dyn ChunkSource,
    lists: &[(SnapshotId, FileList)],
    name: &ChunkName,
) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for (_, list) in lists {
        let Ok(mut reader) = ListReader::new(source, list) else {
            continue;
        };
        while let Ok(Some(row)) = reader.next_row() {
            let mut slices = row.content.iter().flat_map(FileContent::slices);
            if slices.any(|slice| slice.chunk.name == *name) && files.len() < NAMED {
                files.insert(row.entry.path.to_string());
            }
        }
    }
    files
}
