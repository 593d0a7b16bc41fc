//! Whether everything that was saved can be restored, and saved to again.
//!
//! 1. every root of the store: `repo.json`, `gc.json`, `index.json`
//! 2. every snapshot's metadata and list, read by the code that restores them
//! 3. every chunk looked for; with `read_data` every chunk read and compared with its name
//! 4. what is damaged or missing is entered in the quarantine, so that the next save that has its bytes stores them again
//!
//! *Always true:* what restore refuses is reported. A store that does not answer is an error and never damage. A damaged
//! chunk stays where it is; a store that cannot be written is checked all the same, and says that nothing was marked.

use super::Remedy;
use super::damaged::spoiled;
use crate::address::SubjectAddress;
use crate::bridge;
use crate::catalog::references::is_damage;
use crate::catalog::{ChunkFetcher, OpenedSnapshot};
use crate::error::{EncryptionError, Error, error_chain};
use crate::handle::DirRepo;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::chunked::list::{ListReader, root_of};
use stasis_disk::form::chunked::restore::{fetch_stored, read_list};
use stasis_disk::form::chunked::{ChunkCodec, ChunkError, ChunkSource};
use stasis_disk::progress::Progress;
use stasis_disk::worker_pool::{self, WorkerPool};
use stasis_model::format::chunk::HEADER;
use stasis_model::format::manifest::{
    FileList, Indexed, RepoDocument, SnapshotIndex, StoredManifest,
};
use stasis_model::id::SnapshotId;
use stasis_model::protocol::gc::{ChunkName, GcEpoch};
use stasis_model::tree::list::{FileContent, StoredChunk};
use stasis_store::documents::roots::Root;
use stasis_store::layout::Prefix;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// How many hurt files are named for one damaged thing.
const NAMED: usize = 100;

/// Something that is damaged or missing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RepoDamage {
    /// The root it belongs to, as `subjects/TENANT/dir/NAME`; empty for a repository and for a project's own store.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub root: String,
    /// A document, a chunk, a snapshot's metadata or its list.
    pub what: String,
    /// What is wrong with it.
    pub why: String,
    /// Snapshots that are hurt.
    pub snapshots: Vec<SnapshotId>,
    /// Files that are hurt, a hundred at most.
    pub files: Vec<String>,
    /// What helps against it.
    pub remedy: Remedy,
    /// Whose it is, as a command is told; a document of a pool is that of the first subject of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<SubjectAddress>,
}

impl RepoDamage {
    pub(crate) fn new(what: impl Into<String>, why: impl Into<String>, remedy: Remedy) -> Self {
        Self {
            root: String::new(),
            what: what.into(),
            why: why.into(),
            snapshots: Vec::new(),
            files: Vec::new(),
            remedy,
            address: None,
        }
    }

    fn of_snapshot(what: &str, id: &SnapshotId, error: &Error) -> Self {
        Self {
            snapshots: vec![id.clone()],
            ..Self::new(format!("{what} of {id}"), error_chain(error), Remedy::Copy)
        }
    }
}

/// One root that was checked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CheckedRoot {
    /// Where it lies in the store: `subjects/TENANT/dir/NAME`, or nothing for the store's own root.
    pub root: String,
    /// Its snapshots.
    pub snapshots: u64,
    /// How many things are damaged.
    pub damage: u64,
    /// Why this build cannot save here, though it can read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<String>,
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "what is damaged is said only here"]
pub struct RepoChecked {
    /// Every root of the store.
    pub roots: Vec<CheckedRoot>,
    /// Snapshots that were looked at.
    pub snapshots: u64,
    /// Chunks that they need.
    pub chunks: u64,
    /// Chunks that were read; none without `read_data`.
    pub chunks_read: u64,
    /// Bytes of those, as they are stored.
    pub bytes_read: u64,
    /// What is wrong. Nothing, if all is well.
    pub damage: Vec<RepoDamage>,
    /// Whether contents of encrypted pools were not looked at because no key was given: only that everything is there which
    /// snapshots need.
    pub without_key: bool,
    /// Whether damaged chunks were entered in the quarantine, so that the next save repairs what it can.
    pub marked: bool,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// Who needs which chunk.
#[derive(Debug, Default)]
struct Needs {
    /// How chunks are named and stored; none if nothing can be opened.
    codec: Option<ChunkCodec>,
    by_chunk: HashMap<StoredChunk, BTreeSet<usize>>,
    lists: Vec<(SnapshotId, FileList)>,
    damage: Vec<RepoDamage>,
    /// Damaged chunks of lists, with a snapshot that is hurt.
    spoiled: BTreeMap<ChunkName, SnapshotId>,
}

/// A check under way.
struct Checking {
    /// Whether every chunk is read.
    read_data: bool,
    /// Where snapshots are counted that were looked at, and bytes of chunks that were read.
    progress: Arc<Progress>,
    /// Whether damaged chunks are entered in the quarantine.
    marks: bool,
    checked: RepoChecked,
    pool: PoolSeen,
}

impl Checking {
    fn new(read_data: bool, progress: Arc<Progress>) -> Self {
        Self {
            read_data,
            progress,
            marks: true,
            checked: RepoChecked {
                marked: true,
                ..RepoChecked::default()
            },
            pool: PoolSeen::default(),
        }
    }
}

/// What was seen of a pool, which the next subject may share.
#[derive(Default)]
struct PoolSeen {
    /// Which one.
    chunks: Option<Prefix>,
    /// What it says of itself.
    repo: Option<RepoDocument>,
    /// Whether a key was named that does not fit.
    has_named_key: bool,
    /// Whether nothing is encrypted though there is a key, or was one: then plain snapshots are what they should be.
    is_all_plain: bool,
    /// Why it cannot be saved to, if only that is so.
    read_only: Option<String>,
    /// The chunks in it, with their sizes.
    stored: HashMap<ChunkName, u64>,
    /// Those that a snapshot needs.
    needed: HashSet<StoredChunk>,
    /// What is wrong with those that were read and are not what they should be.
    bad: BTreeMap<ChunkName, String>,
}

impl PoolSeen {
    /// Looks at the pool of a root, unless the root before lies in it too; says whether it was not known.
    async fn look(&mut self, root: &Root) -> Result<bool, Error> {
        let chunks = Some(root.layout().chunks());
        if self.chunks == chunks {
            return Ok(false);
        }
        let stored = root.chunks().await?.into_iter().collect();
        *self = Self {
            chunks,
            stored,
            ..Self::default()
        };
        Ok(true)
    }
}

impl DirRepo<'_> {
    /// Checks every root of the store, or the one that this engine is rooted in.
    pub async fn check(
        self,
        read_data: bool,
        progress: Arc<Progress>,
    ) -> Result<RepoChecked, Error> {
        self.check_with(Checking::new(read_data, progress)).await
    }

    /// What is wrong with the subject that this engine is about, without a look into its chunks. Nothing is changed, nor marked.
    pub(crate) async fn damage_here(self) -> Result<Vec<RepoDamage>, Error> {
        let looking = Checking {
            marks: false,
            ..Checking::new(false, Arc::default())
        };
        Ok(self.check_with(looking).await?.damage)
    }

    async fn check_with(self, mut checking: Checking) -> Result<RepoChecked, Error> {
        let started = self.clock.uptime();
        for layout in self.roots().await? {
            let name = layout.name().trim_end_matches('/').to_owned();
            let address = SubjectAddress::of_root(&self.location, &layout);
            let engine = self.rooted(layout);
            let before = &checking.checked;
            let (snapshots, damaged) = (before.snapshots, before.damage.len());
            let read_only = engine.dirs().check_root(&mut checking).await?;
            let checked = &mut checking.checked;
            for one in &mut checked.damage[damaged..] {
                one.root.clone_from(&name);
                one.address.clone_from(&address);
            }
            checked.roots.push(CheckedRoot {
                root: name,
                snapshots: checked.snapshots - snapshots,
                damage: (checked.damage.len() - damaged) as u64,
                read_only,
            });
        }
        let mut checked = checking.checked;
        checked.marked &= !checked.damage.is_empty();
        checked.elapsed_ms = self.elapsed_ms(started);
        Ok(checked)
    }

    /// Checks one root; says why it cannot be saved to, if only that is so.
    async fn check_root(self, checking: &mut Checking) -> Result<Option<String>, Error> {
        let root = self.root();
        let is_new = checking.pool.look(&root).await?;
        if is_new {
            self.check_pool(&root, checking).await?;
        }
        let checked = &mut checking.checked;
        let read_only = checking.pool.read_only.clone();
        let memory = self.memory_of_index(&root).await;
        let index = match self.index(&root).await {
            Ok(index) => index,
            Err(error) => {
                document("index.json", error, checked)?;
                // A key that does not fit is named all the same.
                return match self.codec_to_check(&root, checking).await {
                    Err(error) if !is_damage(&error) => Err(error),
                    _ => Ok(read_only),
                };
            }
        };
        if let Some(repo) = &checking.pool.repo
            && let Some(back) = memory.index_went_back(repo, &index).await
        {
            let newer = self.newer_snapshots(&root, &index).await?;
            let (why, remedy) = (back.said(&newer), Remedy::for_rollback(&newer));
            let damage = RepoDamage::new("index.json", why, remedy);
            checked.damage.push(damage);
        }
        checked.damage.extend(lost_head(&index));
        checked.snapshots += index.snapshots.len() as u64;
        checking.progress.expect(index.snapshots.len() as u64, 0);
        let codec = self.codec_to_check(&root, checking).await?;
        let needs = match &codec {
            Some(codec) => {
                let progress = &checking.progress;
                self.needs(&root, &index, codec, progress).await?
            }
            None => self.needs_without_key(&root, &index, checking).await?,
        };
        let bad = self.bad_chunks(&root, &needs, checking).await?;
        self.tell_damage(&root, needs, bad, checking).await?;
        Ok(read_only)
    }

    /// Checks what all subjects of a pool share.
    async fn check_pool(self, root: &Root, checking: &mut Checking) -> Result<(), Error> {
        match self.settings(root).await {
            Ok(repo) => {
                let unfit = repo.check_writable().err();
                checking.pool.read_only = unfit.map(|error| error_chain(&error));
                checking.pool.repo = Some(repo);
            }
            Err(Error::Encryption(error)) => self.name_key(root, *error, checking).await?,
            Err(error) => document("repo.json", error, &mut checking.checked)?,
        }
        let Checking { checked, pool, .. } = checking;
        match root.gc().await {
            Ok(Some(_)) => {}
            // As `repair` sees it: chunks of later epochs tell that there was one.
            Ok(None) if pool.stored.keys().all(|name| name.born() == GcEpoch::FIRST) => {}
            Ok(None) => {
                let damage = RepoDamage::new("gc.json", "is missing", Remedy::Repair);
                checked.damage.push(damage);
            }
            Err(error) => document("gc.json", error.into(), checked)?,
        }
        Ok(())
    }

    /// How chunks are named and stored; none if nothing can be opened.
    async fn codec_to_check(
        self,
        root: &Root,
        checking: &mut Checking,
    ) -> Result<Option<ChunkCodec>, Error> {
        let error = match self.codec(root).await {
            Ok(codec) => return Ok(Some(codec)),
            Err(Error::Encryption(error)) => error,
            Err(error) => return Err(error),
        };
        let error = match *error {
            EncryptionError::KeyNeeded {
                key_id: Some(_), ..
            } => {
                checking.checked.without_key = true;
                return Ok(None);
            }
            // Nobody can say which key is needed: the document that says it is gone.
            EncryptionError::KeyNeeded { owner, .. } => EncryptionError::NoKey(owner),
            error => error,
        };
        self.name_key(root, error, checking).await?;
        Ok(None)
    }

    /// Names, once for a pool, a key that does not fit it: one document that is too much, or another one than it was.
    async fn name_key(
        self,
        root: &Root,
        error: EncryptionError,
        checking: &mut Checking,
    ) -> Result<(), Error> {
        if checking.pool.has_named_key {
            return Ok(());
        }
        checking.pool.has_named_key = true;
        let remedy = self.remedy_for_key(root, &error).await?;
        checking.pool.is_all_plain = remedy != Remedy::Copy;
        let is_downgraded = matches!(error, EncryptionError::Downgraded(_));
        let what = if is_downgraded && remedy == Remedy::Copy {
            "repo.json"
        } else {
            "key.json"
        };
        document(what, error.into(), &mut checking.checked)?;
        if let Some(named) = checking.checked.damage.last_mut() {
            named.remedy = remedy;
        }
        Ok(())
    }

    /// What snapshots of an encrypted pool need, as their metadata says it in the clear.
    async fn needs_without_key(
        self,
        root: &Root,
        index: &SnapshotIndex,
        checking: &Checking,
    ) -> Result<Needs, Error> {
        let mut needs = Needs::default();
        for one in &index.snapshots {
            let read = self.references_of(root, one).await;
            checking.progress.advance(1, 0);
            let names = match read {
                Ok(names) => names,
                Err(Error::Encryption(error))
                    if checking.pool.is_all_plain && error.is_of_one_snapshot() =>
                {
                    continue;
                }
                Err(error) if !is_damage(&error) => return Err(error),
                Err(error) => {
                    let mut damage = RepoDamage::of_snapshot("metadata", &one.id, &error);
                    damage.remedy = self.remedy_for(root, index, &one.id).await;
                    needs.damage.push(damage);
                    continue;
                }
            };
            let number = needs.lists.len();
            for name in names {
                // Nobody says in the clear how long it is.
                let chunk = StoredChunk { name, plain_len: 0 };
                needs.by_chunk.entry(chunk).or_default().insert(number);
            }
            let nothing = FileList::Inline(Vec::new());
            needs.lists.push((one.id.clone(), nothing));
        }
        Ok(needs)
    }

    /// Says what is wrong with the list, in the clear, of the chunks that a snapshot of an encrypted pool needs: gc believes it.
    async fn unlisted(
        self,
        root: &Root,
        indexed: &Indexed,
        needed: &BTreeSet<StoredChunk>,
    ) -> Result<Option<RepoDamage>, Error> {
        let id = &indexed.id;
        let names = match self.references_of(root, indexed).await {
            Ok(names) => names,
            Err(error) if !is_damage(&error) => return Err(error),
            Err(error) => return Ok(Some(RepoDamage::of_snapshot("references", id, &error))),
        };
        let unlisted = needed.iter().find(|chunk| !names.contains(&chunk.name));
        Ok(unlisted.map(|chunk| RepoDamage {
            snapshots: vec![id.clone()],
            ..RepoDamage::new(
                format!("references of {id}"),
                format!("chunk {} is needed and not among them", chunk.name),
                Remedy::Copy,
            )
        }))
    }

    async fn references_of(
        self,
        root: &Root,
        indexed: &Indexed,
    ) -> Result<HashSet<ChunkName>, Error> {
        let lost = || Error::LostManifest(indexed.id.clone());
        let found = root.manifest(&indexed.id).await?;
        let is_it = |digest| digest == indexed.manifest_sha256;
        let (stored, _) = found
            .filter(|(_, digest)| is_it(*digest))
            .ok_or_else(lost)?;
        let StoredManifest::Encrypted(stored) = stored else {
            let owner = root.layout().pool_id().into();
            return Err(EncryptionError::PlainInEncrypted(owner).into());
        };
        let names = root.references(&stored).await?;
        let names = names.ok_or_else(|| Error::LostReferences(indexed.id.clone()))?;
        Ok(names.into_iter().collect())
    }

    /// The chunks that are missing, and those that turn out damaged if they are to be read.
    async fn bad_chunks(
        self,
        root: &Root,
        needs: &Needs,
        checking: &mut Checking,
    ) -> Result<BTreeMap<ChunkName, String>, Error> {
        let Checking {
            checked,
            pool,
            progress,
            ..
        } = checking;
        let mut bad: BTreeMap<ChunkName, String> = BTreeMap::new();
        let needed: BTreeSet<ChunkName> = needs.by_chunk.keys().map(|chunk| chunk.name).collect();
        for name in &needed {
            match pool.stored.get(name) {
                // One that was stored since the pool was listed is not missing.
                None if root.has_chunk(name).await? => None,
                None => bad.insert(*name, "is missing".to_owned()),
                Some(size) if *size <= HEADER as u64 => bad.insert(*name, "is empty".to_owned()),
                Some(_) => None,
            };
        }
        // What another subject of the pool needs too was counted, and read, with that one.
        let chunks = needs.by_chunk.keys().copied();
        let new: Vec<StoredChunk> = chunks.filter(|chunk| pool.needed.insert(*chunk)).collect();
        checked.chunks += new.len() as u64;
        let Some(codec) = needs.codec.as_ref().filter(|_| checking.read_data) else {
            let marked = root.quarantined().await?.into_iter();
            let marked = marked.filter(|name| needed.contains(name)).collect();
            for (name, why) in self.still_bad(root, needs, marked).await? {
                bad.entry(name).or_insert(why);
            }
            return Ok(bad);
        };
        let there: Vec<(StoredChunk, u64)> = new
            .into_iter()
            .filter_map(|chunk| pool.stored.get(&chunk.name).map(|size| (chunk, *size)))
            .collect();
        let bytes = there.iter().map(|(_, size)| size).sum();
        checked.chunks_read += there.len() as u64;
        checked.bytes_read += bytes;
        progress.expect(0, bytes);
        let read = self
            .read_chunks(root, codec, there, progress.clone())
            .await?;
        pool.bad.extend(read);
        let own = pool.bad.iter().filter(|(name, _)| needed.contains(*name));
        bad.extend(own.map(|(name, why)| (*name, why.clone())));
        Ok(bad)
    }

    /// What is wrong with chunks that were found damaged before. They are few and are read again: one that came back is whole, though
    /// its mark stays until the next gc.
    async fn still_bad(
        self,
        root: &Root,
        needs: &Needs,
        marked: BTreeSet<ChunkName>,
    ) -> Result<BTreeMap<ChunkName, String>, Error> {
        let Some(codec) = &needs.codec else {
            let why = "was found damaged, and no save that has its bytes was made since";
            return Ok(marked
                .into_iter()
                .map(|name| (name, why.to_owned()))
                .collect());
        };
        let mut there = Vec::new();
        for chunk in needs
            .by_chunk
            .keys()
            .filter(|one| marked.contains(&one.name))
        {
            // One that is missing is named as that already.
            if root.has_chunk(&chunk.name).await? {
                there.push((*chunk, 0));
            }
        }
        self.read_chunks(root, codec, there, Arc::default()).await
    }

    /// Reads every snapshot's metadata and list, as a restore does.
    async fn needs(
        self,
        root: &Root,
        index: &SnapshotIndex,
        codec: &ChunkCodec,
        progress: &Progress,
    ) -> Result<Needs, Error> {
        let mut needs = Needs {
            codec: Some(codec.clone()),
            ..Needs::default()
        };
        for one in &index.snapshots {
            self.add_needs(root, index, one, &mut needs).await?;
            progress.advance(1, 0);
        }
        Ok(needs)
    }

    /// Adds what one snapshot needs, or what is wrong with it.
    async fn add_needs(
        self,
        root: &Root,
        index: &SnapshotIndex,
        indexed: &Indexed,
        needs: &mut Needs,
    ) -> Result<(), Error> {
        let id = &indexed.id;
        let opened = match self.open_snapshot(root, index, id).await {
            Ok(opened) => opened,
            Err(error) if !is_damage(&error) => return Err(error),
            Err(error) => {
                let mut damage = RepoDamage::of_snapshot("metadata", id, &error);
                damage.remedy = self.remedy_for(root, index, id).await;
                needs.damage.push(damage);
                return Ok(());
            }
        };
        let list = opened.list.clone();
        let source = opened.fetcher(root);
        match self.read_as_restore(root, opened).await {
            Ok(chunks) => {
                if let Some(ChunkCodec::Encrypted(_)) = &needs.codec {
                    let damage = self.unlisted(root, indexed, &chunks).await?;
                    needs.damage.extend(damage);
                }
                let number = needs.lists.len();
                for chunk in chunks {
                    needs.by_chunk.entry(chunk).or_default().insert(number);
                }
                needs.lists.push((id.clone(), list));
            }
            Err(error) if !is_damage(&error) => return Err(error),
            Err(error) => {
                let mut damage = RepoDamage::of_snapshot("list", id, &error);
                damage.remedy = self.remedy_for(root, index, id).await;
                needs.damage.push(damage);
                let names = bridge::blocking(move || spoiled(&source, &list)).await;
                let names = names.unwrap_or_default().into_keys();
                needs.spoiled.extend(names.map(|name| (name, id.clone())));
            }
        }
        Ok(())
    }

    /// Reads everything of a snapshot that a restore reads but the chunks of its files; says which those are.
    pub(crate) async fn read_as_restore(
        self,
        root: &Root,
        opened: OpenedSnapshot,
    ) -> Result<BTreeSet<StoredChunk>, Error> {
        let source = opened.fetcher(root);
        bridge::blocking(move || {
            drop(opened.readable()?);
            let mut chunks = list_chunks(&source, &opened.list)?;
            let tree = read_list(&source, &opened.list)?;
            opened.ensure_tree(tree.digest)?;
            chunks.extend(tree.chunks);
            Ok(chunks)
        })
        .await
    }

    /// What helps against a snapshot that cannot be read: it may be forgotten only if that is proven.
    async fn remedy_for(self, root: &Root, index: &SnapshotIndex, id: &SnapshotId) -> Remedy {
        match self.proof(root, index, id).await {
            Ok(Some(_)) => Remedy::Forget,
            _ => Remedy::Copy,
        }
    }

    /// Reads chunks in parallel; says what is wrong with those that are not what they should be.
    async fn read_chunks(
        self,
        root: &Root,
        codec: &ChunkCodec,
        chunks: Vec<(StoredChunk, u64)>,
        progress: Arc<Progress>,
    ) -> Result<BTreeMap<ChunkName, String>, Error> {
        let source = ChunkFetcher::new(root.clone(), codec.clone());
        let workers = self.restore_workers();
        bridge::blocking(move || {
            let bad = Mutex::new(BTreeMap::new());
            WorkerPool::for_each(workers, chunks, |(chunk, size)| {
                match fetch_stored(&source, &chunk) {
                    Ok(_) => {}
                    Err(error @ ChunkError::Moving { .. }) => return Err(error),
                    Err(error) => {
                        worker_pool::lock(&bad).insert(chunk.name, error_chain(&error));
                    }
                }
                progress.advance(0, size);
                Ok(())
            })?;
            Ok(worker_pool::into_inner(bad))
        })
        .await
    }

    /// Enters damaged chunks in the quarantine, and names what they hurt.
    async fn tell_damage(
        self,
        root: &Root,
        needs: Needs,
        bad: BTreeMap<ChunkName, String>,
        checking: &mut Checking,
    ) -> Result<(), Error> {
        let checked = &mut checking.checked;
        if needs.damage.is_empty() && bad.is_empty() {
            return Ok(());
        }
        // What was forgotten and swept while we looked is not damaged.
        let index = self.index(root).await?;
        let is_there = |id: &SnapshotId| index.find(id).is_some();
        let damage = needs.damage.into_iter();
        checked
            .damage
            .extend(damage.filter(|one| one.snapshots.iter().any(is_there)));
        let spoiled = needs.spoiled.iter().filter(|(_, id)| is_there(id));
        let mut marks: BTreeSet<ChunkName> = spoiled.map(|(name, _)| *name).collect();
        for (name, why) in bad {
            let users = needs.by_chunk.iter();
            let users = users.filter(|(chunk, _)| chunk.name == name);
            let numbers: BTreeSet<usize> = users.flat_map(|(_, all)| all).copied().collect();
            let hurt: Vec<(SnapshotId, FileList)> = numbers
                .into_iter()
                .map(|number| needs.lists[number].clone())
                .filter(|(id, _)| is_there(id))
                .collect();
            if hurt.is_empty() {
                continue;
            }
            marks.insert(name);
            let snapshots = hurt.iter().map(|(id, _)| id.clone()).collect();
            let files = match &needs.codec {
                Some(codec) => {
                    let source = ChunkFetcher::new(root.clone(), codec.clone());
                    bridge::blocking(move || files_in(&source, &hurt, &name)).await
                }
                None => BTreeSet::new(),
            };
            checked.damage.push(RepoDamage {
                snapshots,
                files: files.into_iter().collect(),
                ..RepoDamage::new(format!("chunk {name}"), why, Remedy::SaveAgain)
            });
        }
        if checking.marks {
            checked.marked &= self.mark_damaged(root, &marks).await;
        }
        Ok(())
    }
}

/// Notes a document that cannot be used; a store that does not answer is no damage.
fn document(name: &str, error: Error, checked: &mut RepoChecked) -> Result<(), Error> {
    if !is_damage(&error) || matches!(error, Error::UnfitRepo(_)) {
        return Err(error);
    }
    let remedy = Remedy::for_document(&error);
    let damage = RepoDamage::new(name, error_chain(&error), remedy);
    checked.damage.push(damage);
    Ok(())
}

/// An active snapshot that is not among the snapshots: the next save would not find its parent.
fn lost_head(index: &SnapshotIndex) -> Option<RepoDamage> {
    let id = index
        .active
        .as_ref()
        .filter(|id| index.find(id).is_none())?;
    let why = format!("says that the newest snapshot is `{id}`, and does not list it");
    Some(RepoDamage::new("index.json", why, Remedy::Repair))
}

/// The chunks that a list itself lies in.
fn list_chunks(
    source: &dyn ChunkSource,
    list: &FileList,
) -> Result<BTreeSet<StoredChunk>, ChunkError> {
    let mut chunks = BTreeSet::new();
    if let FileList::Stored(at) = list {
        chunks.insert(at.slice().chunk);
        let sections = root_of(source, list)?.sections;
        chunks.extend(sections.iter().map(|place| place.slice.chunk));
    }
    Ok(chunks)
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
