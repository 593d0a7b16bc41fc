//! What a save reads and stores before anything leads to it: steps 1 and 2 of a [save](super).

use super::command::{RepoSave, SaveOverlay, StatedBy, VolumeFacts};
use super::databases::{DamagedDatabases, LiveDatabases};
use super::donors::Donors;
use super::provisional::LongSave;
use crate::bridge;
use crate::catalog::port::{ChunkFetcher, Storing};
use crate::catalog::{OpenedSnapshot, ensure_writable};
use crate::clone::LeftOut;
use crate::error::{ChunkError, Error, ErrorKind, OPEN_DIRECTORY, refused};
use crate::handle::DirRepo;
use crate::kind::workspace;
use crate::open::Engine;
use crate::own_places;
use crate::quota::StorageRoom;
use crate::result::SkipReason;
use rustix::fs::{Mode, OFlags};
use stasis_disk::form::chunked::ChunkCodec;
use stasis_disk::form::chunked::list_cache::ListCacheKey;
use stasis_disk::form::chunked::save::{self, HeldTree, Parent, SaveParts, SaveSettings, Saved};
use stasis_disk::form::slots::HeldCheckpoint;
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::walk::{self, WalkSettings};
use stasis_model::digest::{ChunkDigest, StoreDigest, TreeDigest};
use stasis_model::failure::{AtPath, Failure};
use stasis_model::format::key::PoolId;
use stasis_model::format::manifest::{
    Consistency, ContainerManifest, DatabaseManifest, RepoDocument, SaveReason, SnapshotIndex,
};
use stasis_model::id::{Epoch, SnapshotId};
use stasis_model::policy::tenant::{Quotas, TenantPolicy};
use stasis_model::protocol::gc::{GcEpoch, GcState, SaveAnswer, SaveGuard};
use stasis_model::tree::EntryPath;
use stasis_store::documents::roots::Root;
use stasis_store::layout::ChunkRoot;
use stasis_store::location::StoreLocation;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The file in a directory that says what of it is left out, as a `.gitignore` does.
pub const IGNORE_FILE: &str = ".stasisignore";

/// More than this is no list of patterns.
const LARGEST_IGNORE_FILE: u64 = 1 << 20;

/// What a save found when it began.
pub(super) struct SaveBasis {
    pub(super) root: Root,
    pub(super) codec: ChunkCodec,
    pub(super) repo: RepoDocument,
    pub(super) index: SnapshotIndex,
    pub(super) parent: Option<Parent>,
    /// Snapshots that make another one of the same tree needless, with their digests.
    pub(super) equals: Vec<(SnapshotId, TreeDigest)>,
    /// Patterns of what is left out: what was asked for, and what is remembered.
    pub(super) excludes: Vec<String>,
    /// Those of the ignore file.
    pub(super) ignores: Vec<String>,
    /// What is ours in the tree, and left out as well.
    pub(super) own: Vec<EntryPath>,
    /// How much the tenant may store, where that was read already.
    pub(super) quotas: Option<Quotas>,
    /// Whether the snapshot before says otherwise, so that later saves would not know them.
    pub(super) has_new_patterns: bool,
    /// The databases of the parent.
    pub(super) parent_databases: BTreeMap<String, DatabaseManifest>,
    pub(super) snapshot: SnapshotId,
}

/// Where chunks are stored, and what was there before.
#[derive(Clone, Copy)]
pub(crate) struct StoringPlace<'p> {
    pub(crate) root: &'p Root,
    pub(crate) repo: &'p RepoDocument,
    pub(crate) codec: &'p ChunkCodec,
    pub(crate) index: &'p SnapshotIndex,
    /// How much the tenant may store, where that was read already.
    pub(crate) quotas: Option<&'p Quotas>,
    /// Why there is the snapshot.
    pub(crate) reason: SaveReason,
}

impl SaveBasis {
    fn place(&self, reason: SaveReason) -> StoringPlace<'_> {
        StoringPlace {
            root: &self.root,
            repo: &self.repo,
            codec: &self.codec,
            index: &self.index,
            quotas: self.quotas.as_ref(),
            reason,
        }
    }
}

/// A tree whose chunks are all stored; nothing leads to them yet.
pub(crate) struct GatheredTree {
    pub(super) command: RepoSave,
    pub(super) began: SaveBasis,
    pub(super) storing: Arc<LongSave>,
    /// Who has lent chunks, if anybody may have.
    pub(super) donors: Option<Arc<Donors>>,
    pub(super) saved: Saved,
    pub(super) damaged: DamagedDatabases,
    pub(super) started: Duration,
}

impl GatheredTree {
    /// What somebody could expect in it and would not find there.
    pub(crate) fn missing(&self) -> Option<String> {
        let left = LeftOut::of(&self.saved.report.walk);
        let is_missing = |one: &&LeftOut| {
            let is_gap = matches!(
                one.reason,
                SkipReason::Changed | SkipReason::OtherFilesystem
            );
            one.is_missing() || is_gap
        };
        if let Some(one) = left.iter().find(is_missing) {
            return Some(format!("`{}`: {}", one.path, one.words));
        }
        // Of those that are not listed any more the worst is believed.
        let unlisted = self.saved.report.walk.unlisted();
        (unlisted > 0).then(|| format!("{unlisted} entries besides those that can be listed"))
    }

    /// Sockets and devices in it, of which nothing is stored.
    pub(crate) fn specials(&self) -> Vec<LeftOut> {
        let mut left = LeftOut::of(&self.saved.report.walk);
        left.retain(|one| matches!(one.reason, SkipReason::Socket | SkipReason::Device));
        left
    }

    /// Nothing will ever lead to it.
    pub(crate) async fn give_up(self) {
        self.storing.remove_documents().await;
    }

    /// Says of which container it is, now that all of that is known.
    pub(crate) fn is_of(&mut self, container: ContainerManifest) {
        self.command.container = Some(Box::new(container));
    }

    /// Whether a snapshot that would do is this very tree, and nobody wants another one of it.
    pub(crate) fn is_nothing_new(&self) -> bool {
        self.command.skip_unchanged
            && !self.began.has_new_patterns
            && !self.avoids_damage()
            && self.equal().is_some()
    }

    /// Whether the tree lies elsewhere than in its parent because chunks of that are damaged for good: then only a new snapshot brings the
    /// tree back.
    fn avoids_damage(&self) -> bool {
        let parent = self.began.parent.as_ref();
        let lies_elsewhere = parent.is_some_and(|parent| parent.list != self.saved.list);
        lies_elsewhere && self.storing.leaves_damage()
    }

    /// The snapshot that has this very tree.
    pub(super) fn equal(&self) -> Option<&SnapshotId> {
        let mut equals = self.began.equals.iter();
        let found = equals.find(|(_, digest)| *digest == self.saved.digest);
        found.map(|(id, _)| id)
    }

    /// Takes the chunks out of quarantine that were stored anew; says how many.
    pub(super) async fn release_healed(&self) -> Result<u64, Error> {
        let healed = self.storing.healed();
        for name in &healed {
            self.began.root.release(name).await?;
        }
        Ok(healed.len() as u64)
    }
}

impl DirRepo<'_> {
    /// Reads the tree and stores what is new of it: steps 1 and 2.
    pub(crate) async fn save_gather(self, command: RepoSave) -> Result<GatheredTree, Error> {
        let started = self.clock.uptime();
        self.store().ensure_trusted().await?;
        let source = open_source(&command).await?;
        self.ensure_not_the_store(&command.source).await?;
        let (ignores, own) = self.ignores(&command.source).await?;
        let root = self.root_of(&command.name);
        let repo = self.settings(&root).await?;
        ensure_writable(&repo)?;
        let codec = self.codec_of(&root, &repo).await?;
        let policy = self.policy_before_save(&root, &repo).await?;
        let mut guard = SaveGuard::new();
        let _ = guard.next(SaveAnswer::Begin);
        let gc = gc_of(&root).await?;
        let may_borrow = may_borrow(&root, &gc);
        let _ = guard.next(SaveAnswer::Gc(gc));
        let began = SaveBasis {
            ignores,
            own,
            quotas: policy.map(|policy| policy.quotas),
            ..self.begin(root, codec, repo, &command).await?
        };
        let donors = may_borrow.then(|| {
            let (engine, is_first) = (self.engine.clone(), began.parent.is_none());
            let donors = Donors::new(engine, began.root.clone(), began.repo.clone(), is_first);
            Arc::new(donors)
        });
        let place = began.place(command.reason);
        let storing = self.storing(place, &guard, donors.clone()).await?;
        let live = self.live_databases(&command);
        let damaged = live.damaged.clone();
        let reading = TreeReading {
            source,
            live,
            held: self.held_checkpoint(&command).await,
            stated: command.stated.clone(),
            settings: self.save_settings(&command, &began).await,
        };
        let read = read_tree(reading, &began, &storing).await;
        let saved = match read {
            Ok(saved) => saved,
            Err(error) => {
                storing.abandon().await;
                storing.give_up(&error).await;
                let parent = began.parent.as_ref().map(|parent| &parent.snapshot);
                return Err(Box::pin(self.blame(&began.root, parent, error)).await);
            }
        };
        storing.finish().await?;
        self.mark_damaged(&began.root, &storing.unhealed()).await;
        Ok(GatheredTree {
            command,
            began,
            storing,
            donors,
            saved,
            damaged,
            started,
        })
    }

    async fn begin(
        self,
        root: Root,
        codec: ChunkCodec,
        repo: RepoDocument,
        command: &RepoSave,
    ) -> Result<SaveBasis, Error> {
        let index = self.living_index(&root, &repo).await?;
        let (mut parent, mut equals) = (None, Vec::new());
        let mut parent_databases = BTreeMap::new();
        let (mut excludes, mut patterns_before) = (Vec::new(), None);
        if let Some(id) = &index.active {
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
        let newest = index.snapshots.last().map(|one| one.id.clone());
        let newest = newest.filter(|id| !index.is_active(id));
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
        let snapshot = match &command.snapshot_id {
            Some(id) => id.clone(),
            None => ChunkRoot::new_id(self.lineages.now(), &*self.rng),
        };
        Ok(SaveBasis {
            root,
            codec,
            repo,
            index,
            parent,
            equals,
            parent_databases,
            has_new_patterns: command.reason.is_explicit()
                && patterns_before.is_some_and(|before| before != excludes),
            excludes,
            ignores: Vec::new(),
            own: Vec::new(),
            quotas: None,
            snapshot,
        })
    }

    /// The policy of a pool that is not encrypted; of another one nothing depends on it yet.
    async fn policy_before_save(
        self,
        root: &Root,
        repo: &RepoDocument,
    ) -> Result<Option<TenantPolicy>, Error> {
        if repo.is_encrypted() {
            return Ok(None);
        }
        self.policy_of_plain(&root.layout().pool_id()).await
    }

    /// Where the chunks of a snapshot go.
    pub(crate) async fn storing(
        self,
        place: StoringPlace<'_>,
        guard: &SaveGuard,
        donors: Option<Arc<Donors>>,
    ) -> Result<Arc<LongSave>, Error> {
        let StoringPlace {
            root, codec, index, ..
        } = place;
        let is_empty = root.layout().is_alone() && index.fence.epoch == Epoch::default();
        let damaged = if is_empty {
            Vec::new()
        } else {
            root.quarantined().await?
        };
        let rng = self.rng.clone();
        let storing = Storing::new(root.clone(), codec.clone(), rng, guard.clone());
        let is_near = !matches!(self.location, StoreLocation::S3(_));
        let lent_by = donors.clone();
        let lend = lent_by.map(|donors| -> Box<dyn Fn(&ChunkDigest) -> _ + Send + Sync> {
            Box::new(move |digest| donors.find(digest))
        });
        let room = match root.layout().pool_id() {
            PoolId::Tenant(tenant) => {
                let room = StorageRoom::new(self.engine.clone(), tenant);
                // A session has one snapshot: the one before goes when there is another.
                let replaced = root.layout().as_session().map(|_| root.layout());
                let room = room.for_reason(place.reason).knowing(place.quotas);
                Some(room.replacing(replaced))
            }
            PoolId::State => None,
        };
        let storing = storing.knowing(damaged, is_empty).near(is_near);
        let storing = storing.within(room.clone());
        let (engine, storing) = (self.engine.clone(), storing.borrowing(lend));
        let long = LongSave::new(engine, storing, place, guard.clone(), donors);
        Ok(Arc::new(long.within(room)))
    }

    async fn save_settings(self, command: &RepoSave, began: &SaveBasis) -> SaveSettings {
        SaveSettings {
            walk: WalkSettings {
                strict: command.strict,
                skip_fifos: command.skip_fifos,
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

    /// What the checkpoints of a workspace hold of the tree, if it is one. Without, the tree is read.
    async fn held_checkpoint(self, command: &RepoSave) -> Option<HeldCheckpoint> {
        let directory = command.remembered_as.as_ref().unwrap_or(&command.source);
        let (directory, state) = (directory.clone(), self.local_dirs.state.clone()?);
        let held = bridge::blocking(move || {
            let session = workspace::session_of(&directory.canonicalize().ok()?, &state);
            let session = session.ok().flatten()?;
            Some(HeldCheckpoint::open(&session))
        });
        match held.await? {
            Ok(held) => Some(held),
            Err(error) => {
                let error = crate::error::error_chain(&error);
                tracing::debug!(error, "the checkpoints of the workspace are not used");
                None
            }
        }
    }

    /// Who copies the databases of the tree.
    fn live_databases(self, command: &RepoSave) -> LiveDatabases {
        let spool = self.captures();
        let is_copied = |facts: &&VolumeFacts| {
            facts.is_copy && facts.manifest.consistency == Consistency::Sqlite
        };
        let volumes = command.volumes.values().filter(is_copied);
        let (source, cancel) = (command.source.clone(), command.cancel.clone());
        let mut live = LiveDatabases::new(source, spool, cancel);
        live.captured = volumes.map(|facts| facts.at.clone()).collect();
        live.is_still = command.is_still;
        live
    }

    /// Refuses a directory that is the store itself: it would be saved into itself, and a restore would put an older store in its place.
    async fn ensure_not_the_store(self, source: &Path) -> Result<(), Error> {
        let path = source.to_owned();
        let seen = bridge::blocking(move || std::fs::metadata(path)).await;
        let identity = seen.ok().map(|seen| (seen.dev(), seen.ino()));
        if identity.is_none() || identity != self.store_identity().await {
            return Ok(());
        }
        let said = format!(
            "`{}` is the directory of the store itself",
            source.display()
        );
        let hint = "save into a store that lies elsewhere, with --store";
        Err(Failure::of(ErrorKind::Invalid, said).with_hint(hint).into())
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
        let (directory, tree) = (
            self.local_dirs.cache.clone()?.join("trees"),
            tree.to_owned(),
        );
        let (op_id, pool) = (repo.op_id, repo.spelled());
        bridge::blocking(move || {
            let tree = tree.canonicalize().ok()?;
            let made = std::fs::DirBuilder::new()
                .recursive(true)
                .create(&directory);
            made.ok()?;
            let identity = format!("{pool} {}", tree.display());
            let name = StoreDigest::of(identity.as_bytes());
            Some(ListCacheKey {
                file: directory.join(name.to_string()),
                repo: op_id,
            })
        })
        .await
    }
}

/// Whether names of other subjects help: as long as nothing was swept, a chunk that anybody has is found by its name.
pub(crate) fn may_borrow(root: &Root, gc: &GcState) -> bool {
    gc.epoch != GcEpoch::FIRST && !root.layout().is_alone()
}

/// A tree, and how it is read.
struct TreeReading {
    source: RootDir,
    live: LiveDatabases,
    /// The newest checkpoint of it, if it is a workspace.
    held: Option<HeldCheckpoint>,
    stated: Option<StatedBy>,
    settings: SaveSettings,
}

/// Cuts the tree into chunks and stores those that are new.
async fn read_tree(
    reading: TreeReading,
    began: &SaveBasis,
    storing: &Arc<LongSave>,
) -> Result<Saved, Error> {
    let fetching = ChunkFetcher::new(began.root.clone(), began.codec.clone());
    let (storing, parent) = (storing.clone(), began.parent.clone());
    let (index, snapshot) = (began.index.clone(), began.snapshot.clone());
    let saved = bridge::blocking(move || {
        let TreeReading {
            source,
            live,
            held,
            stated,
            settings,
        } = reading;
        let save = |held: Option<&HeldTree<'_>>| {
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
                versions: None,
                held,
            };
            match &stated {
                Some(stated) => save::save_stated(&parts, &settings, stated.metadata()),
                None => save::save(&parts, &settings),
            }
        };
        match &held {
            Some(held) => held.with_tree(|tree| save(Some(tree))),
            None => save(None),
        }
    });
    Ok(saved.await?)
}

/// What a save shares lists and contents with.
fn parent_of(opened: OpenedSnapshot) -> Parent {
    let OpenedSnapshot { manifest, list, .. } = opened;
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

impl Engine {
    /// The patterns of a directory's ignore file and of what in it is ours, and which that is: stores, and what this host
    /// keeps of workspaces.
    pub(crate) async fn ignores(&self, dir: &Path) -> Result<(Vec<String>, Vec<EntryPath>), Error> {
        let (dir, state) = (dir.to_owned(), self.local_dirs.state.clone());
        // Of a session its roots alone decide, and of a container its volumes: whatever an agent fetched may have such a file.
        let root = &self.chunk_root;
        let has_file = root.as_session().is_none() && root.as_container().is_none();
        bridge::blocking(move || {
            let mut patterns = if has_file {
                patterns_in(&dir.join(IGNORE_FILE), true)?
            } else {
                Vec::new()
            };
            let mut own = Vec::new();
            if let (Some(state), Ok(whole)) = (state, dir.canonicalize()) {
                own = own_places::within(&whole, &state);
                patterns.extend(own.iter().map(own_places::pattern));
            }
            Ok((patterns, own))
        })
        .await
    }
}

/// Whether a save with such patterns would leave an entry out.
pub(crate) fn matcher(
    patterns: &[String],
) -> Result<impl Fn(&EntryPath, bool) -> bool + Send + Sync + use<>, Error> {
    Ok(walk::matcher(patterns).map_err(ChunkError::from)?)
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
    let opened = if may_be_absent {
        // It lies in a tree that others write to: a link that took its place since would show what it leads to.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())
            .map(File::from)
            .map_err(io::Error::from)
    } else {
        File::open(path)
    };
    let (mut opened, mut text) = (opened.at("read", path)?, String::new());
    opened.read_to_string(&mut text).at("read", path)?;
    let says_something = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    let lines = text.lines().filter(says_something);
    Ok(lines.map(str::to_owned).collect())
}

pub(crate) async fn gc_of(root: &Root) -> Result<GcState, Error> {
    let found = root.gc().await?;
    Ok(found.map_or_else(GcState::empty, |found| found.value))
}
