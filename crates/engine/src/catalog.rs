//! The catalogue of a root: which snapshots there are, which one is meant, and what is in it.

pub(crate) mod pool;
pub(crate) mod port;
pub(crate) mod reader;
pub(crate) mod references;
mod show;

use pool::NewPool;
pub(crate) use port::ChunkFetcher;
pub(crate) use show::no_entry;
pub use show::{ListedEntry, RepoSnapshotRow, RepoStats};

use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::DirRepo;
use crate::open::Engine;
use crate::system::typed_at;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::chunked::ChunkCodec;
use stasis_disk::tree::restore::KeepIf;
use stasis_disk::tree::walk;
use stasis_model::digest::TreeDigest;
use stasis_model::failure::Failure;
use stasis_model::format::manifest::{
    FileList, IndexRefusal, RepoDocument, SnapshotIndex, SnapshotManifest,
};
use stasis_model::id::{SnapshotId, SubjectName};
use stasis_model::invalid::Invalid;
use stasis_model::protocol::operation::IndexOperation;
use stasis_model::snapshot_ref::{SnapshotRef, Unresolved};
use stasis_model::tree::Attribute;
use stasis_store::bucket::Swap;
use stasis_store::documents::roots::{ChangeError, Root};
use stasis_store::layout::ChunkRoot;

/// How often a subject's index is begun while others begin or delete it too.
const BEGINNINGS: usize = 20;

/// A repository that was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RepoMade {
    /// Where.
    pub repo: String,
    /// How bytes are cut and stored in it.
    #[schemars(with = "serde_json::Value")]
    pub settings: RepoDocument,
}

/// Which snapshot is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotSelector {
    /// How the user named it.
    pub snapshot: SnapshotRef,
    /// Under which name; without, any.
    pub name: Option<SubjectName>,
}

impl SnapshotSelector {
    /// A snapshot of any name.
    pub fn new(snapshot: impl Into<SnapshotRef>) -> Self {
        Self {
            snapshot: snapshot.into(),
            name: None,
        }
    }
}

/// A snapshot that was found and read.
#[derive(Clone, Debug)]
pub(crate) struct OpenedSnapshot {
    pub(crate) manifest: SnapshotManifest,
    pub(crate) list: FileList,
    /// How the chunks of its pool are named and stored.
    pub(crate) codec: ChunkCodec,
}

/// What metadata says besides the list, in a form that a restore can use.
pub(crate) struct Readable {
    /// The attributes of the root directory.
    pub(crate) root_attributes: Vec<Attribute>,
    /// What was left out on purpose.
    pub(crate) is_left_out: KeepIf,
}

/// Refuses a repository that this build may only read.
pub(crate) fn ensure_writable(repo: &RepoDocument) -> Result<(), Error> {
    repo.check_writable().map_err(Error::UnfitRepo)
}

impl OpenedSnapshot {
    /// Where its chunks come from.
    pub(crate) fn fetcher(&self, root: &Root) -> ChunkFetcher {
        ChunkFetcher::new(root.clone(), self.codec.clone())
    }

    /// Everything that a restore needs of the metadata, or why it could not be used.
    pub(crate) fn readable(&self) -> Result<Readable, Error> {
        let unfit = |source| Error::UnfitSnapshot {
            snapshot: self.manifest.snapshot_id.clone(),
            source,
        };
        let root_attributes = self.manifest.root_attributes().map_err(unfit)?;
        let is_left_out = walk::matcher(&self.manifest.patterns());
        let is_left_out = is_left_out.map_err(|error| {
            let why = error_chain(&error);
            unfit(Invalid::new(format!(
                "the snapshot was saved without what matches a pattern that is none: {why}"
            )))
        })?;
        Ok(Readable {
            root_attributes,
            is_left_out: Box::new(is_left_out),
        })
    }

    /// Whether this is the tree that was saved.
    pub(crate) fn ensure_tree(&self, digest: TreeDigest) -> Result<(), Error> {
        if digest == self.manifest.state_digest {
            return Ok(());
        }
        Err(Error::WrongTree(self.manifest.snapshot_id.clone()))
    }
}

/// A snapshot that was found, and where.
pub(crate) struct FoundSnapshot {
    pub(crate) root: Root,
    pub(crate) index: SnapshotIndex,
    pub(crate) id: SnapshotId,
}

/// Snapshots of one subject.
pub(crate) struct HeldSnapshots {
    /// The engine of the subject.
    pub(crate) engine: Engine,
    pub(crate) ids: Vec<SnapshotId>,
}

/// What a subject is called: by its id, or as the one whose own state a store is.
pub(crate) fn name_of(root: &Root) -> SubjectName {
    let name = root.layout().id().unwrap_or("state").parse();
    name.expect("the names of directories and of subjects follow one rule")
}

impl DirRepo<'_> {
    /// The subject that this engine is about, or the pool of all of them.
    pub(crate) fn root(self) -> Root {
        Root::new(self.bucket.clone(), self.chunk_root.clone())
    }

    /// The subject that is called so; where the engine is about one subject only, that one.
    pub(crate) fn root_of(self, name: &SubjectName) -> Root {
        let id = name.as_str().parse();
        let id = id.expect("the names of directories and of subjects follow one rule");
        let root = self.root();
        if root.layout().is_pool() {
            root.beside(root.layout().beside(&id))
        } else {
            root
        }
    }

    /// Every subject that this engine is about, or the one of them that is called so, with its index.
    pub(crate) async fn subjects_here(
        self,
        name: Option<&SubjectName>,
    ) -> Result<Vec<(Root, SnapshotIndex)>, Error> {
        let root = self.root();
        let roots = match name {
            Some(name) => vec![self.root_of(name)],
            None if root.layout().is_pool() => root.pool_roots().await?,
            None => vec![root],
        };
        let repo = self.settings(&self.root()).await?;
        let mut subjects = Vec::new();
        for root in roots {
            let index = self.believed_index(&root, &repo).await?;
            subjects.push((root, index));
        }
        Ok(subjects)
    }

    /// Finds the snapshot that is meant, among all subjects that this engine is about.
    pub(crate) async fn find(self, wanted: &SnapshotSelector) -> Result<FoundSnapshot, Error> {
        let subjects = self.subjects_here(wanted.name.as_ref()).await?;
        let id = self.resolve(&subjects, wanted)?;
        let mut subjects = subjects.into_iter();
        let found = subjects.find(|(_, index)| index.find(&id).is_some());
        let (root, index) = found.ok_or_else(|| Error::LostManifest(id.clone()))?;
        Ok(FoundSnapshot { root, index, id })
    }

    /// Makes a repository in the store.
    pub async fn init(self) -> Result<RepoMade, Error> {
        self.store().ensure_trusted().await?;
        let root = self.root();
        let repo = self.location.to_string();
        if root.repo().await?.is_some() {
            return Err(Error::RepoExists(repo));
        }
        if let lost @ Error::LostRepo(_) = self.missing(&root).await? {
            return Err(lost);
        }
        match self.make_pool(&root).await? {
            NewPool::Made(settings) => Ok(RepoMade {
                repo,
                settings: *settings,
            }),
            NewPool::There => Err(Error::RepoExists(repo)),
        }
    }

    /// Makes the pool of the subject, if it is not there yet.
    pub(crate) async fn ensure_pool(self) -> Result<(), Error> {
        let root = self.root();
        if root.repo().await?.is_some() {
            return Ok(());
        }
        if let lost @ Error::LostRepo(_) = self.missing(&root).await? {
            return Err(lost);
        }
        self.store().ensure_trusted().await?;
        self.make_pool(&root).await?;
        Ok(())
    }

    /// Why there is no `repo.json`: because nobody made a root here, or because it was lost.
    pub(crate) async fn missing(self, root: &Root) -> Result<Error, Error> {
        let was_used = if root.layout().is_pool() {
            false
        } else {
            match root.index().await {
                Ok(index) => index.is_some_and(|index| !index.value.snapshots.is_empty()),
                Err(error) => {
                    let error = Error::from(error);
                    if !references::is_damage(&error) {
                        return Err(error);
                    }
                    true
                }
            }
        };
        let is_used = was_used || root.has_pool().await?;
        // Whoever makes the pool right now writes its document before any chunk.
        if is_used && root.repo().await?.is_none() {
            return Ok(Error::LostRepo(self.root_name(root)));
        }
        self.ensure_edition().await?;
        Ok(Error::NoRepo(self.location.to_string()))
    }

    /// Refuses a store with snapshots of the first edition: they must not look as if there were none.
    pub(crate) async fn ensure_edition(self) -> Result<(), Error> {
        let first = ChunkRoot::first_edition();
        if self.bucket.list(&first, None, 1).await?.is_empty() {
            return Ok(());
        }
        let store = &self.location;
        let said = format!(
            "`{store}` has snapshots of the first edition of Stasis, which this one does not read"
        );
        let hint =
            "restore them with the version that made them, and save into another store (--store)";
        let failure = Failure::of(ErrorKind::Invalid, said);
        Err(failure.with_hint(hint).into())
    }

    /// The index. A subject has one before its first snapshot, so that metadata without one have lost it, and so has a root
    /// that shares its pool with nobody; where neither is, nothing was saved.
    pub(crate) async fn index(self, root: &Root) -> Result<SnapshotIndex, Error> {
        if let Some(found) = root.index().await? {
            return Ok(found.value);
        }
        let has_root = root.layout().is_alone() && root.repo().await?.is_some();
        // Whoever makes the root right now writes the index first.
        match root.index().await? {
            Some(found) => Ok(found.value),
            None if has_root || !root.manifest_ids().await?.is_empty() => {
                Err(Error::LostIndex(self.root_name(root)))
            }
            None => Ok(SnapshotIndex::empty()),
        }
    }

    /// The index, unless this host has seen a later one.
    pub(crate) async fn believed_index(
        self,
        root: &Root,
        repo: &RepoDocument,
    ) -> Result<SnapshotIndex, Error> {
        let memory = self.memory_of_index(root).await;
        let index = self.index(root).await?;
        match memory.index_went_back(repo, &index).await {
            Some(back) => Err(back.index_error(&self.newer_snapshots(root, &index).await?)),
            None => Ok(index),
        }
    }

    /// The index of the subject that this engine is about, for somebody who only looks; empty before the first save.
    pub(crate) async fn index_to_look(self) -> Result<SnapshotIndex, Error> {
        let root = self.root();
        match root.repo().await? {
            Some(repo) => {
                repo.check_readable().map_err(Error::UnfitRepo)?;
                self.believed_index(&root, &repo).await
            }
            // Nothing was saved here yet, or what says how is lost.
            None => self.index(&root).await,
        }
    }

    /// Snapshots that lie beside an index which went back, and may have been published after it. One that cannot be read is among
    /// them; what killed saves left is not, as far as the fence of that index has passed them.
    pub(crate) async fn newer_snapshots(
        self,
        root: &Root,
        index: &SnapshotIndex,
    ) -> Result<Vec<SnapshotId>, Error> {
        let mut newer = Vec::new();
        for id in root.manifest_ids().await? {
            if index.find(&id).is_some() || index.tombstones.contains_key(&id) {
                continue;
            }
            let is_newer = match root.manifest(&id).await.map_err(Error::from) {
                Ok(found) => found.is_some_and(|(found, _)| index.may_have_published(&found)),
                Err(error) if references::is_damage(&error) => true,
                Err(error) => return Err(error),
            };
            if is_newer {
                newer.push(id);
            }
        }
        Ok(newer)
    }

    /// What people call a root: where it lies in which store.
    pub(crate) fn root_name(self, root: &Root) -> String {
        match root.layout().name() {
            "" => self.location.to_string(),
            name => format!("{}, {}", self.location, name.trim_end_matches('/')),
        }
    }

    /// The index of a subject that is about to be saved: one that has none yet, or was deleted, begins.
    pub(crate) async fn living_index(
        self,
        root: &Root,
        repo: &RepoDocument,
    ) -> Result<SnapshotIndex, Error> {
        let mut memory = Some(self.memory_of_index(root).await);
        for _ in 0..BEGINNINGS {
            let (index, version) = match root.index().await? {
                Some(found) => (found.value, Some(found.version)),
                None => (self.index(root).await?, None),
            };
            if let Some(memory) = memory.take()
                && let Some(back) = memory.index_went_back(repo, &index).await
            {
                let newer = self.newer_snapshots(root, &index).await?;
                return Err(back.index_error(&newer));
            }
            if index.is_alive() {
                return Ok(index);
            }
            let begun = index.begun(self.rng.op_id());
            if let Swap::Won(_) = root.swap_index(version.as_ref(), &begun).await? {
                self.note_begun(root, repo, &begun).await;
                return Ok(begun);
            }
        }
        Err(ChangeError::Contended.into())
    }

    /// The roots that this engine is about: its own, or all of a store that it was opened on as a whole.
    pub(crate) async fn roots(self) -> Result<Vec<ChunkRoot>, Error> {
        if !self.chunk_root.is_pool() {
            return Ok(vec![self.chunk_root.clone()]);
        }
        let roots = stasis_store::documents::roots::all(&self.bucket).await?;
        if roots.is_empty() {
            self.settings(&self.root()).await?;
        }
        Ok(roots)
    }

    /// The subjects that have these snapshots, be they published or not. One that none has is an error.
    pub(crate) async fn holding(self, ids: &[SnapshotId]) -> Result<Vec<HeldSnapshots>, Error> {
        if !self.chunk_root.is_pool() {
            let (engine, ids) = (self.engine.clone(), ids.to_vec());
            return Ok(vec![HeldSnapshots { engine, ids }]);
        }
        let mut wanted: Vec<SnapshotId> = ids.to_vec();
        let mut held = Vec::new();
        for layout in self.roots().await? {
            if wanted.is_empty() {
                break;
            }
            let engine = self.rooted(layout);
            let root = engine.dirs().root();
            let index = root.index().await.ok().flatten().map(|found| found.value);
            let listed = root.manifest_ids().await?;
            let is_here = |id: &SnapshotId| {
                let is_published = index.as_ref().is_some_and(|index| index.find(id).is_some());
                is_published || listed.contains(id)
            };
            let (ids, others) = wanted.into_iter().partition(is_here);
            wanted = others;
            if !Vec::is_empty(&ids) {
                held.push(HeldSnapshots { engine, ids });
            }
        }
        match wanted.into_iter().next() {
            Some(id) => Err(ChangeError::from(IndexRefusal::Absent(id)).into()),
            None => Ok(held),
        }
    }

    /// Finds the snapshot that is meant.
    pub(crate) fn resolve(
        self,
        subjects: &[(Root, SnapshotIndex)],
        wanted: &SnapshotSelector,
    ) -> Result<SnapshotId, Error> {
        let none = || Error::NoSuchSnapshot {
            wanted: match &wanted.name {
                Some(name) => format!("{}` of `{name}", wanted.snapshot),
                None => wanted.snapshot.to_string(),
            },
            repo: self.location.to_string(),
        };
        let indexes = || subjects.iter().map(|(_, index)| index);
        let all = indexes().flat_map(|index| &index.snapshots);
        let latest = || {
            let each = indexes().filter_map(SnapshotIndex::latest);
            each.max_by_key(|one| one.at_ms)
        };
        match wanted.snapshot.resolve(all, latest, typed_at(&*self.clock)) {
            Ok(one) => Ok(one.id.clone()),
            Err(Unresolved::Absent | Unresolved::NoLatest) => Err(none()),
            Err(Unresolved::Ambiguous(fits)) => Err(Error::Ambiguous {
                wanted: wanted.snapshot.to_string(),
                count: fits.len(),
            }),
        }
    }

    /// Makes `latest` of a subject mean `chosen`, unless another one than `seen` was chosen meanwhile.
    pub(crate) async fn adopt(
        self,
        root: &Root,
        chosen: Option<&SnapshotId>,
        seen: Option<&SnapshotId>,
    ) -> Result<(), Error> {
        let op_id = self.rng.op_id();
        let changed = root
            .change(op_id, |index| index.adopt(chosen, seen, op_id))
            .await;
        self.operations()
            .known(IndexOperation::Restore, root, changed)
            .await?;
        Ok(())
    }

    /// Reads a snapshot that the index leads to, and checks that it is the one.
    pub(crate) async fn open_snapshot(
        self,
        root: &Root,
        index: &SnapshotIndex,
        id: &SnapshotId,
    ) -> Result<OpenedSnapshot, Error> {
        let gone = || Error::LostManifest(id.clone());
        let row = index.find(id).ok_or_else(gone)?;
        let (manifest, digest) = root.manifest(id).await?.ok_or_else(gone)?;
        if digest != row.manifest_sha256 {
            return Err(gone());
        }
        self.understand(root, manifest).await
    }
}
