//! Saves a tree into a repository.
//!
//! 1. read `gc.json`, then the index   2. read the tree and store what is new   3. put the manifest
//! 4. read `gc.json` again and judge every name ([`SaveGuard`])   5. publish by one conditional write of the index
//! 6. remember the tree
//!
//! *Always true:* the index leads only to manifests whose every chunk is durable. A crash before 5 leaves chunks, and a
//! manifest nobody leads to, for the sweep; after 5 the snapshot exists, heard or not. No lease is taken: of two saves under one
//! name that began alike, the index lets one publish and tells the other that it diverged.

mod command;
mod databases;
mod lost;
mod volumes;

pub use command::{NotConsistent, RepoSave, RepoSaved, SaveOverlay, VolumeFacts};
pub use lost::{LostDatabase, LostHow};

use crate::bridge;
use crate::catalog::port::{ChunkFetcher, Storing};
use crate::catalog::{OpenedSnapshot, references};
use crate::error::{Error, OPEN_DIRECTORY, SaveError, refused};
use crate::handle::DirRepo;
use databases::{DamagedDatabases, LiveDatabases};
use stasis_disk::form::chunked::databases::SavedDatabase;
use stasis_disk::form::chunked::list::relocate;
use stasis_disk::form::chunked::list_cache::ListCacheKey;
use stasis_disk::form::chunked::save::{self, Parent, SaveParts, SaveSettings, Saved};
use stasis_disk::fs::remove;
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::walk::{self, WalkSettings};
use stasis_model::digest::{StoreDigest, TreeDigest};
use stasis_model::failure::AtPath;
use stasis_model::format::manifest::{
    Consistency, DatabaseManifest, Indexed, Publish, RepoDocument, SnapshotIndex, SnapshotManifest,
};
use stasis_model::id::SnapshotId;
use stasis_model::policy::shrink;
use stasis_model::protocol::gc::{
    GaveUp, GcState, Names, Replacement, SaveAnswer, SaveGuard, SaveStep,
};
use stasis_model::protocol::operation::IndexOperation;
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use stasis_store::documents::roots::Root;
use stasis_store::layout::ChunkRoot;
use stasis_store::location::StoreLocation;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The file in a directory that says what of it is left out, as a `.gitignore` does.
pub const IGNORE_FILE: &str = ".stasisignore";

/// More than this is no list of patterns.
const LARGEST_IGNORE_FILE: u64 = 1 << 20;

/// How far ahead of the clock the last snapshot of a chain may be and still be followed: a week, after which the clock has
/// caught up.
const FOLLOWED: Duration = Duration::from_hours(7 * 24);

/// How often a save begins again when a sweep takes what it was about to use.
const ATTEMPTS: usize = 5;

/// What a save found when it began.
struct Began {
    root: Root,
    repo: RepoDocument,
    index: SnapshotIndex,
    parent: Option<Parent>,
    /// Snapshots that make another one of the same tree needless, with their digests.
    equals: Vec<(SnapshotId, TreeDigest)>,
    /// Patterns of what is left out: what was asked for, and what is remembered.
    excludes: Vec<String>,
    /// Those of the ignore file.
    ignores: Vec<String>,
    /// Whether the snapshot before says otherwise, so that later saves would not know them.
    has_new_patterns: bool,
    /// The databases of the parent.
    parent_databases: BTreeMap<String, DatabaseManifest>,
    snapshot: SnapshotId,
}

/// A tree whose chunks are all stored; nothing leads to them yet.
pub(crate) struct GatheredTree {
    command: RepoSave,
    began: Began,
    guard: SaveGuard,
    storing: Arc<Storing>,
    saved: Saved,
    damaged: DamagedDatabases,
    started: Duration,
}

impl GatheredTree {
    /// Whether a snapshot that would do is this very tree, and nobody wants another one of it.
    pub(crate) fn is_nothing_new(&self) -> bool {
        self.command.skip_unchanged && !self.began.has_new_patterns && self.equal().is_some()
    }

    /// The snapshot that has this very tree.
    fn equal(&self) -> Option<&SnapshotId> {
        let mut equals = self.began.equals.iter();
        let found = equals.find(|(_, digest)| *digest == self.saved.digest);
        found.map(|(id, _)| id)
    }

    /// Takes the chunks out of quarantine that were stored anew; says how many.
    async fn release_healed(&self) -> Result<u64, Error> {
        let healed = self.storing.healed();
        for name in &healed {
            self.began.root.release(name).await?;
        }
        Ok(healed.len() as u64)
    }
}

/// A snapshot that only the index does not lead to yet.
pub(crate) struct Ready {
    gathered: GatheredTree,
    settled: SettledManifest,
    /// Databases that should be in it and are not.
    lost: Vec<LostDatabase>,
}

/// A manifest that may be published.
struct SettledManifest {
    manifest: SnapshotManifest,
    /// Whether chunks had to be stored under other names than the save gave them.
    has_moved: bool,
}

impl DirRepo<'_> {
    /// Saves a directory.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %command.name))]
    ///
    /// A sweep that takes what it was about to use makes it begin again, a few times.
    pub async fn save(self, command: RepoSave) -> Result<RepoSaved, Error> {
        for _ in 1..ATTEMPTS {
            match Box::pin(self.try_save(command.clone())).await {
                Err(Error::SaveGaveUp(why)) => tracing::info!(why, "once more"),
                saved => return saved,
            }
        }
        self.try_save(command).await
    }

    async fn try_save(self, command: RepoSave) -> Result<RepoSaved, Error> {
        let gathered = self.save_gather(command).await?;
        if gathered.is_nothing_new() {
            return self.save_nothing(gathered).await;
        }
        let ready = self.save_describe(gathered).await?;
        self.save_publish(ready).await
    }

    /// Reads the tree and stores what is new of it: steps 1 and 2.
    pub(crate) async fn save_gather(self, command: RepoSave) -> Result<GatheredTree, Error> {
        let started = self.clock.uptime();
        self.store().ensure_trusted().await?;
        let source = open_source(&command).await?;
        let ignores = ignores(&command.source).await?;
        let root = self.root();
        let repo = self.settings(&root).await?;
        repo.check_writable()?;
        let mut guard = SaveGuard::new();
        let _ = guard.next(SaveAnswer::Begin);
        let _ = guard.next(SaveAnswer::Gc(gc_of(&root).await?));
        let began = Began {
            ignores,
            ..self.begin(root, repo, &command).await?
        };
        let storing = self.storing(&began, &guard).await?;
        let live = self.live_databases(&command);
        let damaged = live.damaged.clone();
        let settings = self.save_settings(&command, &began).await;
        let read = read_tree(source, &began, &storing, live, settings).await;
        let saved = match read {
            Ok(saved) => saved,
            Err(error) => {
                storing.abandon().await;
                let parent = began.parent.as_ref().map(|parent| &parent.snapshot);
                return Err(Box::pin(self.blame(&began.root, parent, error)).await);
            }
        };
        storing.finish().await?;
        self.mark_damaged(&began.root, &storing.unhealed()).await;
        Ok(GatheredTree {
            command,
            began,
            guard,
            storing,
            saved,
            damaged,
            started,
        })
    }

    /// Puts the manifest, and makes sure that no sweep can hurt what it names: steps 3 and 4.
    pub(crate) async fn save_describe(self, gathered: GatheredTree) -> Result<Ready, Error> {
        let GatheredTree {
            command,
            began,
            saved,
            ..
        } = &gathered;
        check_shrink(command, began, saved)?;
        let mut manifest = self.manifest(command, began, saved);
        let source = ChunkFetcher::new(began.root.clone());
        manifest.volume_manifests =
            volumes::measured(&command.volumes, &saved.list, source).await?;
        volumes::settle(
            &command.volumes,
            &manifest.databases,
            &mut manifest.volume_manifests,
        );
        let lost = lost::databases(command, began, saved, &manifest, &gathered.damaged.paths())?;
        let guard = gathered.guard.clone();
        let settled = self.settle(guard, began, manifest, &saved.names).await?;
        Ok(Ready {
            gathered,
            settled,
            lost,
        })
    }

    /// Makes the snapshot exist: steps 5 and 6.
    pub(crate) async fn save_publish(self, ready: Ready) -> Result<RepoSaved, Error> {
        let Ready {
            mut gathered,
            settled,
            lost,
        } = ready;
        gathered.command.activates &= lost.is_empty() || gathered.command.force;
        let activates = gathered.command.activates && gathered.command.reason.is_explicit();
        self.publish(&gathered, &settled.manifest).await?;
        let chunks_healed = gathered.release_healed().await?;
        let chunks_damaged = gathered.storing.unhealed().len() as u64;
        let GatheredTree {
            began,
            saved,
            started,
            ..
        } = gathered;
        let elapsed_ms = self.elapsed_ms(started);
        let parent = began.equals.first().map(|(_, digest)| *digest);
        let mut result = RepoSaved::new(&settled.manifest, parent, &saved.report, elapsed_ms);
        result.chunks_healed = chunks_healed;
        result.is_latest = activates;
        result.lost_databases = lost;
        self.collect_unpublished(&began.root, &settled.manifest)
            .await;
        result.chunks_damaged = chunks_damaged;
        if !settled.has_moved {
            remember(saved, None).await;
        }
        Ok(result)
    }

    /// Removes what killed saves of this chain left in a store on this host: documents that the index does not lead to, and
    /// never will, because the fence has passed them. What cannot be removed is left to gc.
    async fn collect_unpublished(self, root: &Root, published: &SnapshotManifest) {
        // A listing costs a directory here, and a request elsewhere: there gc does it.
        let is_here = matches!(self.location, StoreLocation::File(_));
        if !is_here || !self.chunk_root.is_dated() {
            return;
        }
        self.remove_empty().await;
        let (Ok(ids), Ok(index)) = (root.manifest_ids().await, self.index(root).await) else {
            return;
        };
        for id in ids {
            if index.find(&id).is_some() || index.tombstones.contains_key(&id) {
                continue;
            }
            let is_dead = match root.manifest(&id).await {
                Ok(Some((found, _))) => {
                    found.name == published.name && found.lease_epoch <= published.lease_epoch
                }
                _ => false,
            };
            if is_dead && let Err(error) = root.remove_manifest(&id).await {
                tracing::warn!(snapshot = %id, %error, "what a killed save left could not be removed");
            }
        }
    }

    /// Removes directories of snapshots in which a killed save had not even put a document. Only in a project's own state
    /// directory: there its lock says that nobody else is about to put one.
    async fn remove_empty(self) {
        let StoreLocation::File(store) = &self.location else {
            return;
        };
        if self.chunk_root != ChunkRoot::state() {
            return;
        }
        let place = store.join(self.chunk_root.manifests().to_string());
        bridge::blocking(move || remove::empty_directories(&place)).await;
    }

    /// Says that the snapshot before is this very tree, and makes none.
    pub(crate) async fn save_nothing(self, gathered: GatheredTree) -> Result<RepoSaved, Error> {
        let chunks_healed = gathered.release_healed().await?;
        let equal = gathered.equal().cloned();
        let equal = equal.expect("it is the tree of a snapshot");
        let chunks_damaged = gathered.storing.unhealed().len() as u64;
        let GatheredTree {
            command,
            began,
            saved,
            started,
            ..
        } = gathered;
        let databases = databases_of(&began, &saved);
        let (op_id, now) = (self.chance.op_id(), self.lineages.now());
        let mut manifest = SnapshotManifest::new(command.name, equal, op_id, now);
        manifest.state_digest = saved.digest;
        manifest.totals = saved.totals;
        manifest.set_databases(databases, now);
        let elapsed_ms = self.elapsed_ms(started);
        let mut result = RepoSaved::new(&manifest, Some(saved.digest), &saved.report, elapsed_ms);
        result.published = false;
        result.chunks_healed = chunks_healed;
        result.chunks_damaged = chunks_damaged;
        let equal = result.snapshot_id.clone();
        remember(saved, Some(equal)).await;
        Ok(result)
    }

    pub(crate) fn elapsed_ms(self, started: Duration) -> u64 {
        let elapsed = self.clock.uptime().saturating_sub(started);
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }

    async fn begin(
        self,
        root: Root,
        repo: RepoDocument,
        command: &RepoSave,
    ) -> Result<Began, Error> {
        let index = self.index(&root).await?;
        let subject = index.subject(&command.name);
        let (mut parent, mut equals) = (None, Vec::new());
        let mut parent_databases = BTreeMap::new();
        let (mut excludes, mut patterns_before) = (Vec::new(), None);
        if let Some(id) = &subject.active {
            let opened = match self.open_snapshot(&root, &index, id).await {
                Ok(opened) => opened,
                Err(error) => return Err(Box::pin(self.blame(&root, Some(id), error)).await),
            };
            equals.push((id.clone(), opened.manifest.state_digest));
            parent_databases.clone_from(&opened.manifest.databases);
            patterns_before = Some(opened.manifest.excludes.clone());
            if command.inherits_excludes {
                drop(opened.readable()?);
                excludes.clone_from(&opened.manifest.excludes);
            }
            parent = Some(parent_of(opened));
        }
        // An explicit save must end with what `latest` means; an automatic one is content with any snapshot of the tree.
        let newest = subject.snapshots.last().map(|one| one.id.clone());
        let newest = newest.filter(|id| subject.active.as_ref() != Some(id));
        if let Some(id) = newest.filter(|_| !command.reason.is_explicit())
            && let Ok(opened) = self.open_snapshot(&root, &index, &id).await
        {
            equals.push((id, opened.manifest.state_digest));
            if parent.is_none() {
                parent_databases.clone_from(&opened.manifest.databases);
                parent = Some(parent_of(opened));
            }
        }
        let excludes = joined(excludes, &command.excludes);
        let snapshot = self.new_snapshot_id(&root);
        Ok(Began {
            root,
            repo,
            index,
            parent,
            equals,
            parent_databases,
            has_new_patterns: command.reason.is_explicit()
                && patterns_before.is_some_and(|before| before != excludes),
            excludes,
            ignores: Vec::new(),
            snapshot,
        })
    }

    async fn storing(self, began: &Began, guard: &SaveGuard) -> Result<Arc<Storing>, Error> {
        let is_empty = began.index.subjects.is_empty();
        let damaged = if is_empty {
            Vec::new()
        } else {
            began.root.quarantined().await?
        };
        let batch = self.chance.op_id();
        let storing = Storing::new(began.root.clone(), batch, guard.clone());
        let is_near = !matches!(self.location, StoreLocation::S3(_));
        Ok(Arc::new(storing.knowing(damaged, is_empty).near(is_near)))
    }

    async fn save_settings(self, command: &RepoSave, began: &Began) -> SaveSettings {
        SaveSettings {
            walk: WalkSettings {
                strict: command.strict,
                excludes: [&began.ignores[..], &began.excludes].concat(),
                cancel: command.cancel.clone(),
                avoid: self.store_identity().await,
                ..WalkSettings::default()
            },
            chunker: began.repo.chunker.clone(),
            level: began.repo.compression.level,
            started: self.clock.now(),
            cache: {
                let remembered = command.remembered_as.as_ref().unwrap_or(&command.source);
                self.memory_of(&began.repo, remembered).await
            },
            progress: command.progress.clone(),
        }
    }

    /// Who copies the databases of the tree.
    fn live_databases(self, command: &RepoSave) -> LiveDatabases {
        let cache = self.places.cache.clone();
        let spool = cache.unwrap_or_else(std::env::temp_dir).join("captures");
        let is_copied = |facts: &&VolumeFacts| {
            facts.is_copy && facts.manifest.consistency == Consistency::Sqlite
        };
        let volumes = command.volumes.values().filter(is_copied);
        let (source, cancel) = (command.source.clone(), command.cancel.clone());
        let mut live = LiveDatabases::new(source, spool, cancel);
        live.captured = volumes.map(|facts| facts.at.clone()).collect();
        live
    }

    /// The directory of the store, which does not belong to any tree: device and inode.
    async fn store_identity(self) -> Option<(u64, u64)> {
        let StoreLocation::File(path) = &self.location else {
            return None;
        };
        let path = path.clone();
        let seen = bridge::blocking(move || std::fs::metadata(path))
            .await
            .ok()?;
        Some((seen.dev(), seen.ino()))
    }

    /// Where this host remembers the tree, if it has a place for that.
    pub(crate) async fn memory_of(self, repo: &RepoDocument, tree: &Path) -> Option<ListCacheKey> {
        let (directory, tree) = (self.places.cache.clone()?.join("trees"), tree.to_owned());
        let op_id = repo.op_id;
        bridge::blocking(move || {
            let tree = tree.canonicalize().ok()?;
            let made = std::fs::DirBuilder::new()
                .recursive(true)
                .create(&directory);
            made.ok()?;
            let identity = format!("{op_id} {}", tree.display());
            let name = StoreDigest::of(identity.as_bytes());
            Some(ListCacheKey {
                file: directory.join(name.to_string()),
                repo: op_id,
            })
        })
        .await
    }

    fn manifest(self, command: &RepoSave, began: &Began, saved: &Saved) -> SnapshotManifest {
        let (op_id, mut now) = (self.chance.op_id(), self.lineages.now());
        let id = began.snapshot.clone();
        let subject = began.index.subject(&command.name);
        if let Some(last) = subject.snapshots.last() {
            now = after(last.at_ms, now);
        }
        let mut manifest = SnapshotManifest::new(command.name.clone(), id, op_id, now);
        manifest.parent_snapshot_id = subject.active;
        manifest.lease_epoch = subject.fence.epoch;
        manifest.reason = command.reason;
        manifest.labels = command.labels.clone();
        manifest.excludes.clone_from(&began.excludes);
        manifest.ignores.clone_from(&began.ignores);
        manifest.is_part = command.is_part;
        manifest.app_version.clone_from(&command.app_version);
        manifest.state_digest = saved.digest;
        manifest.totals = saved.totals;
        manifest.set_root(&saved.root, &saved.root_attributes);
        manifest.set_list(&saved.list);
        manifest.set_databases(databases_of(began, saved), now);
        manifest
    }

    /// Puts the manifest, and goes on until no sweep can hurt what it names.
    async fn settle(
        self,
        mut guard: SaveGuard,
        began: &Began,
        manifest: SnapshotManifest,
        names: &Names,
    ) -> Result<SettledManifest, Error> {
        let root = &began.root;
        let mut settled = SettledManifest {
            manifest,
            has_moved: false,
        };
        let mut step = guard.next(SaveAnswer::Gathered(names.clone()));
        loop {
            let answer = match step {
                SaveStep::PutManifest => {
                    root.put_manifest(&settled.manifest).await?;
                    SaveAnswer::Stored
                }
                SaveStep::ReadGc => SaveAnswer::Gc(gc_of(root).await?),
                SaveStep::CheckIndexed(asked) => {
                    let index = self.index(root).await?;
                    let found = references::named_by_indexed(root, &index, &asked).await;
                    SaveAnswer::Indexed(found.map_err(references::Unread::into_error)?)
                }
                SaveStep::StoreAnew(moves) => {
                    self.store_anew(began, &mut settled, &moves).await?;
                    SaveAnswer::Stored
                }
                SaveStep::Publish => return Ok(settled),
                SaveStep::GiveUp(why) => return Err(Error::SaveGaveUp(words(why))),
                SaveStep::Gather => SaveAnswer::Gathered(names.clone()),
            };
            step = guard.next(answer);
        }
    }

    /// Stores chunks under new names and rewrites the list, under a snapshot id that was never used.
    async fn store_anew(
        self,
        began: &Began,
        settled: &mut SettledManifest,
        moves: &[Replacement],
    ) -> Result<(), Error> {
        let root = &began.root;
        let batch = self.chance.op_id();
        for one in moves {
            let Some(bytes) = root.chunk(&one.from).await? else {
                return Err(Error::SaveGaveUp(
                    "a sweep took a chunk that it was about to use; run it again",
                ));
            };
            root.stage_chunk(batch, &one.to, bytes).await?;
        }
        root.commit(batch).await?;
        let list = references::list_of(&settled.manifest)?;
        let guard = SaveGuard::after(gc_of(root).await?);
        let storing = Arc::new(Storing::new(root.clone(), self.chance.op_id(), guard));
        let (sink, source) = (storing.clone(), ChunkFetcher::new(root.clone()));
        let map: BTreeMap<_, _> = moves.iter().map(|one| (one.from, one.to)).collect();
        let level = began.repo.compression.level;
        let list =
            bridge::blocking(move || relocate(&list, &map, (&*sink, level), &source)).await?;
        storing.finish().await?;
        settled.has_moved = true;
        settled.manifest.set_list(&list);
        settled.manifest.snapshot_id = self.new_snapshot_id(root);
        Ok(())
    }

    fn new_snapshot_id(self, root: &Root) -> SnapshotId {
        root.layout().new_id(self.lineages.now(), &*self.chance)
    }

    async fn publish(
        self,
        gathered: &GatheredTree,
        manifest: &SnapshotManifest,
    ) -> Result<(), Error> {
        let GatheredTree { command, began, .. } = gathered;
        let manifest_sha256 = stasis_model::digest::ManifestDigest::of(
            &stasis_model::format::document::render(manifest),
        );
        let publish = Publish {
            subject: manifest.name.clone(),
            lease: manifest.lease_epoch,
            base: manifest.parent_snapshot_id.clone(),
            snapshot: Indexed {
                id: manifest.snapshot_id.clone(),
                manifest_sha256,
                at_ms: manifest.timestamp_ms,
                bytes: manifest.totals.bytes,
                entries: manifest.totals.entries(),
                pinned: false,
                reason: manifest.reason,
                labels: manifest.labels.clone(),
            },
            activates: command.activates && command.reason.is_explicit(),
        };
        let op_id = manifest.op_id;
        let changed = began
            .root
            .change(op_id, |index| index.publish(&publish, op_id))
            .await;
        self.operations()
            .known(IndexOperation::Save, changed)
            .await?;
        tracing::info!(snapshot = %manifest.snapshot_id, bytes = manifest.totals.bytes, "published");
        Ok(())
    }
}

/// Cuts the tree into chunks and stores those that are new.
async fn read_tree(
    source: RootDir,
    began: &Began,
    storing: &Arc<Storing>,
    live: LiveDatabases,
    settings: SaveSettings,
) -> Result<Saved, Error> {
    let fetching = ChunkFetcher::new(began.root.clone());
    let (storing, parent) = (storing.clone(), began.parent.clone());
    let (index, snapshot) = (began.index.clone(), began.snapshot.clone());
    let saved = bridge::blocking(move || {
        let parts = SaveParts {
            root: &source,
            sink: &*storing,
            source: &fetching,
            parent: parent.as_ref(),
            is_indexed: &|id| index.find(id).is_some(),
            snapshot: &snapshot,
            damaged: storing.damaged(),
            witness: None,
            databases: Some(&live),
        };
        save::save(&parts, &settings)
    });
    Ok(saved.await?)
}

/// What a save shares lists and contents with.
fn parent_of(opened: OpenedSnapshot) -> Parent {
    let OpenedSnapshot { manifest, list } = opened;
    Parent {
        snapshot: manifest.snapshot_id.clone(),
        digest: manifest.state_digest,
        totals: manifest.totals,
        root: manifest.root(),
        root_attributes: manifest.root_attributes().unwrap_or_default(),
        list,
    }
}

async fn open_source(command: &RepoSave) -> Result<RootDir, Error> {
    let mounts = if command.across_filesystems {
        Mounts::Cross
    } else {
        Mounts::Stay
    };
    let (path, grafts) = (command.source.clone(), command.grafts.clone());
    let opened = bridge::blocking(move || {
        let mut root = RootDir::open(&path, mounts).at(OPEN_DIRECTORY, &path)?;
        for SaveOverlay { at, directory } in grafts {
            let stood_in = RootDir::open(&directory, mounts)
                .and_then(|opened| opened.directory(b""))
                .and_then(|opened| root.with_overlay(at, opened));
            root = stood_in.at(OPEN_DIRECTORY, &directory)?;
        }
        Ok(root)
    });
    opened.await
}

/// Patterns of which none stands there twice.
fn joined(mut before: Vec<String>, more: &[String]) -> Vec<String> {
    for pattern in more {
        // One that is said again counts from where it is said now.
        before.retain(|one| one != pattern);
        before.push(pattern.clone());
    }
    before
}

/// What the ignore file of a directory says.
pub(crate) async fn ignores(dir: &Path) -> Result<Vec<String>, Error> {
    let path = dir.join(IGNORE_FILE);
    bridge::blocking(move || patterns_in(&path, true)).await
}

/// Whether a save with such patterns would leave an entry out.
pub(crate) fn matcher(
    patterns: &[String],
) -> Result<impl Fn(&EntryPath, bool) -> bool + Send + Sync + use<>, Error> {
    Ok(walk::matcher(patterns).map_err(SaveError::from)?)
}

/// The patterns that a file has, one in each line, as in a `.gitignore`.
pub fn patterns_in(path: &Path, may_be_absent: bool) -> Result<Vec<String>, Error> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && may_be_absent => {
            return Ok(Vec::new());
        }
        Ok(seen) if !seen.is_file() && may_be_absent => return Ok(Vec::new()),
        Ok(seen) if seen.len() > LARGEST_IGNORE_FILE => {
            return Err(refused("read", path, io::ErrorKind::FileTooLarge));
        }
        seen => seen.at("read", path)?,
    };
    let text = std::fs::read_to_string(path).at("read", path)?;
    let says_something = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    let lines = text.lines().filter(says_something);
    Ok(lines.map(str::to_owned).collect())
}

async fn gc_of(root: &Root) -> Result<GcState, Error> {
    let found = root.gc().await?;
    Ok(found.map_or_else(GcState::empty, |found| found.value))
}

/// When a snapshot was made that follows another one of its chain.
///
/// Clocks go back a little, and a store's is known to a second only: within a chain time goes on all the same. A last
/// snapshot that lies far in the future was made by a clock that was wrong: it is not followed, or one such save would make
/// every later one as wrong. The order of a chain is that of its index, not of its times.
fn after(last: Timestamp, now: Timestamp) -> Timestamp {
    if last > now.plus(FOLLOWED) {
        return now;
    }
    now.max(last.plus(Duration::from_millis(1)))
}

/// The databases of a saved tree, by their paths.
fn databases_of(began: &Began, saved: &Saved) -> BTreeMap<String, DatabaseManifest> {
    if saved.is_same {
        return began.parent_databases.clone();
    }
    let described = |one: &SavedDatabase| {
        let described = DatabaseManifest {
            state: one.state.stored_as(),
            size: one.size,
            digest: one.digest,
        };
        (one.path.to_string(), described)
    };
    saved.databases.iter().map(described).collect()
}

/// A tree that has become suspiciously little is not saved unless that was meant.
fn check_shrink(command: &RepoSave, began: &Began, saved: &Saved) -> Result<(), Error> {
    let active = began.index.subject(&command.name).active;
    let before = active.and_then(|id| began.index.find(&id).map(|(_, one)| one.entries));
    let (before, entries) = (before.unwrap_or_default(), saved.totals.entries());
    if command.allow_shrink || !shrink::is_suspicious(before, entries) {
        return Ok(());
    }
    Err(Error::Shrunk {
        path: command.source.clone(),
        entries,
        before,
    })
}

/// Remembers the tree, as that of a snapshot that was there before if none was made.
async fn remember(mut saved: Saved, equal: Option<SnapshotId>) {
    let remembered = bridge::blocking(move || match equal {
        Some(equal) => saved.remember_as(&equal),
        None => saved.remember(),
    });
    if let Err(error) = remembered.await {
        tracing::warn!(%error, "this host could not remember the tree; the next save reads all of it");
    }
}

fn words(why: GaveUp) -> &'static str {
    match why {
        GaveUp::Unreachable => "the store does not answer",
        GaveUp::Outrun => "sweeps were faster again and again; run it again when they are over",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_within_a_chain_and_a_clock_that_was_far_ahead_is_not_followed() {
        let at = |seconds: u64| Timestamp::from_millis(seconds * 1000);
        let (now, year) = (at(1_800_000_000), 365 * 24 * 3600);

        assert_eq!(after(at(1_700_000_000), now), now);
        let back = after(at(1_800_000_060), now);
        assert_eq!(back, Timestamp::from_millis(1_800_000_060_001));
        assert_eq!(after(at(1_800_000_000 + 9 * year), now), now);
    }
}
