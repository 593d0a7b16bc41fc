//! Writes a snapshot of chunks back as a directory: every chunk is checked against its name, and the digest of the whole
//! list against the snapshot's, before anything of the target is touched.

use super::{InPlaceChanges, Placement, RestoreKind, RestorePlan, carry_out, is_named};
use crate::bridge;
use crate::catalog::{
    ChunkFetcher, FoundSnapshot, OpenedSnapshot, Readable, SnapshotSelector, name_of, no_entry,
};
use crate::error::{Error, ErrorKind, PlaceError, error_chain};
use crate::handle::DirRepo;
use crate::result::PlacedAs;
use crate::save::{RepoSave, matcher};
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::chunked::databases::owner_name;
use stasis_disk::form::chunked::list::ListReader;
use stasis_disk::form::chunked::restore::{RestoreParts, VersionProof, WrittenTree, restore};
use stasis_disk::fs::metadata::{Rights, Seen};
use stasis_disk::fs::root_dir::RootDir;
use stasis_disk::progress::Progress;
use stasis_disk::tree::restore::{
    KeepIf, PlacedTree, RestoreLimits, RestoreOrigin, RestoreStage, RestoredTree,
};
use stasis_disk::tree::write::{WriteReport, WriteSettings};
use stasis_model::digest::TreeDigest;
use stasis_model::failure::Failure;
use stasis_model::format::manifest::{SaveReason, SnapshotIndex, SnapshotManifest};
use stasis_model::id::{SnapshotId, SubjectName};
use stasis_model::tree::{Attribute, EntryKind, EntryPath, Metadata};
use stasis_store::documents::roots::Root;
use stasis_store::location::StoreLocation;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many chunks are fetched at once from a store that is far away.
const FAR: usize = 16;

/// What is restored, and how.
#[derive(Clone, Debug)]
pub struct RepoRestore {
    /// Which snapshot.
    pub wanted: SnapshotSelector,
    /// Where to.
    pub target: PathBuf,
    /// How it takes its place.
    pub placement: Placement,
    /// Only these entries and what is in them; everything if none is named.
    pub only: Vec<EntryPath>,
    /// The directory of the snapshot that becomes the target, instead of the whole of it.
    pub part: Option<EntryPath>,
    /// Whether those may be missing in the snapshot: then they go where it is restored in place.
    pub may_be_missing: bool,
    /// Entries that a restore in place leaves as they are, with everything in them; a database with its journals.
    pub except: Vec<EntryPath>,
    /// Whether owners, setuid and setgid are given.
    pub owner: bool,
    /// Whether what a restore in place changes is saved first.
    pub save_before: bool,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
    /// After which moment, in milliseconds of this machine's running time, nothing takes its place any more: somebody else may have it.
    pub swap_until: Option<Arc<AtomicU64>>,
    /// How far it has come.
    pub progress: Arc<Progress>,
}

impl RepoRestore {
    /// A restore to where nothing is, with nothing special about it.
    pub fn new(wanted: SnapshotSelector, target: impl Into<PathBuf>) -> Self {
        Self {
            wanted,
            target: target.into(),
            placement: Placement::New,
            only: Vec::new(),
            part: None,
            may_be_missing: false,
            except: Vec::new(),
            owner: false,
            save_before: false,
            cancel: Arc::default(),
            swap_until: None,
            progress: Arc::default(),
        }
    }
}

/// A snapshot that was restored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "what was withheld is said only here"]
pub struct RepoRestored {
    /// Which.
    pub snapshot_id: SnapshotId,
    /// Its name.
    pub name: SubjectName,
    /// What the tree is.
    pub state_digest: TreeDigest,
    /// Where it is.
    pub target: String,
    /// How it took its place.
    pub placed: PlacedAs,
    /// Where the tree that was there is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// What became of the entries of a directory that stayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<InPlaceChanges>,
    /// A snapshot of what was there before, if the directory stayed, had something in it, and was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<BeforeRestore>,
    /// Regular files, each counted once.
    pub files: u64,
    /// Directories, without the root.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// The length of all files.
    pub bytes: u64,
    /// Files that were right already.
    pub files_reused: u64,
    /// Bytes of those.
    pub bytes_reused: u64,
    /// Chunks that were fetched.
    pub chunks_fetched: u64,
    /// Entries whose owner was not given.
    pub owners_not_kept: u64,
    /// Entries whose setuid or setgid was not given.
    pub privileges_not_kept: u64,
    /// Attributes that the filesystem would not take.
    pub attributes_not_kept: u64,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// A snapshot of what was there before a restore: the way back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct BeforeRestore {
    /// Its id.
    pub snapshot_id: SnapshotId,
    /// Its name.
    pub name: SubjectName,
    /// What the caller should know of having saved it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// The snapshot that a tree becomes, and where.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotSource {
    opened: OpenedSnapshot,
    /// Where the store lies in the target, if it does.
    store: Option<EntryPath>,
    /// Patterns of what is no part of the tree any more, besides those of the snapshot.
    patterns: Vec<String>,
    /// Whether entries that are asked for may be missing.
    may_be_missing: bool,
}

/// A directory that is restored.
struct DirectoryRestore<'a> {
    repo: DirRepo<'a>,
    root: Root,
    index: SnapshotIndex,
    command: RepoRestore,
    plan: Arc<RestorePlan<SnapshotSource>>,
}

impl DirectoryRestore<'_> {
    fn manifest(&self) -> &SnapshotManifest {
        &self.plan.source.opened.manifest
    }

    /// Makes `latest` mean what a whole restore in place chose. The tree is what it should be, whatever becomes of that.
    async fn adopt(&self) {
        let chosen = Some(&self.manifest().snapshot_id);
        let seen = self.index.active.as_ref();
        if let Err(error) = self.repo.adopt(&self.root, chosen, seen).await {
            tracing::warn!(
                error = error_chain(&error),
                "the restored tree is in place, but `latest` does not mean it"
            );
        }
    }
}

impl RestoreKind for DirectoryRestore<'_> {
    type Kept = Option<BeforeRestore>;
    type Staged = StagedSnapshot;
    type Swapped = (WrittenTree, RestoredTree);
    type Restored = RepoRestored;

    async fn guard(&mut self) -> Result<(), Error> {
        let (target, except) = (&self.command.target, &self.plan.except);
        let opened = &self.plan.source.opened;
        self.repo
            .ensure_known(&self.root, opened, target, except)
            .await
    }

    async fn keep(&mut self) -> Result<Option<BeforeRestore>, Error> {
        let name = name_of(&self.root);
        self.repo.save_before(&self.command, name).await
    }

    async fn stage(&mut self) -> Result<StagedSnapshot, Error> {
        let (plan, command) = (self.plan.clone(), self.command.clone());
        self.repo.staged(&self.root, command, plan).await
    }

    async fn swap(
        &mut self,
        staged: StagedSnapshot,
        _: &Self::Kept,
    ) -> Result<(WrittenTree, RestoredTree), Error> {
        let manifest = self.manifest();
        let origin = RestoreOrigin {
            at: self.repo.clock.now(),
            from: format!("snapshot {} of {}", manifest.snapshot_id, manifest.name),
        };
        let (clock, until) = (self.repo.clock.clone(), self.command.swap_until.clone());
        let swapped = bridge::blocking(move || {
            let now = u64::try_from(clock.uptime().as_millis()).unwrap_or(u64::MAX);
            if until.is_some_and(|until| now > until.load(Ordering::Relaxed)) {
                let said = "it took so long that another one may act on the directory: nothing was replaced";
                return Err(Failure::of(ErrorKind::Fenced, said).into());
            }
            staged.swap(&origin)
        });
        match swapped.await {
            Ok(swapped) => Ok(swapped),
            Err(error) => Err(self.repo.mark_cause(&self.root, error).await),
        }
    }

    async fn settle(
        self,
        swapped: (WrittenTree, RestoredTree),
        before: Option<BeforeRestore>,
    ) -> Result<RepoRestored, Error> {
        let (tree, restored) = swapped;
        let is_whole =
            self.plan.is_whole() && self.plan.except.is_empty() && self.command.part.is_none();
        if is_whole && !self.manifest().is_part && restored.is_whole_in_place() {
            self.adopt().await;
        }
        let target = self.command.target.display().to_string();
        let result = RepoRestored::new(self.manifest().clone(), target, &tree, &restored);
        // Where nothing was replaced there is nothing to go back to.
        let is_unchanged = result
            .changes
            .as_ref()
            .is_some_and(InPlaceChanges::is_nothing);
        let before = before.filter(|_| !is_unchanged);
        Ok(RepoRestored { before, ..result })
    }
}

impl DirRepo<'_> {
    /// Restores a snapshot.
    #[tracing::instrument(skip_all, err(level = "info"), fields(target = %command.target.display()))]
    pub async fn restore(self, command: RepoRestore) -> Result<RepoRestored, Error> {
        let started = self.clock.uptime();
        let store = self.store_in(&command).await?;
        let found = self.find(&command.wanted).await?;
        let plan = self.plan_restore(&command, store, &found).await?;
        let FoundSnapshot { root, index, .. } = found;
        let restored = carry_out(DirectoryRestore {
            repo: self,
            root,
            index,
            command,
            plan: Arc::new(plan),
        });
        let restored = restored.await?;
        Ok(RepoRestored {
            elapsed_ms: self.elapsed_ms(started),
            ..restored
        })
    }

    /// Writes a snapshot beside its target, and verifies it; nothing of the target is touched.
    pub(crate) async fn stage(
        self,
        command: RepoRestore,
        id: &SnapshotId,
    ) -> Result<StagedSnapshot, Error> {
        let store = self.store_in(&command).await?;
        let root = self.root();
        let (index, id) = (self.index(&root).await?, id.clone());
        let found = FoundSnapshot { root, index, id };
        let plan = self.plan_restore(&command, store, &found).await?;
        self.staged(&found.root, command, Arc::new(plan)).await
    }

    /// Reads what a restore needs to know of its snapshot.
    async fn plan_restore(
        self,
        command: &RepoRestore,
        store: Option<EntryPath>,
        found: &FoundSnapshot,
    ) -> Result<RestorePlan<SnapshotSource>, Error> {
        let FoundSnapshot { root, index, id } = found;
        let opened = self.open_snapshot(root, index, id).await?;
        // What saves leave out by now no snapshot since then has, so that nothing else could bring it back.
        let patterns = match command.placement {
            Placement::InPlace => self.patterns_now(root, index, &command.target).await?,
            _ => Vec::new(),
        };
        let source = SnapshotSource {
            opened,
            store,
            patterns,
            may_be_missing: command.may_be_missing,
        };
        Ok(RestorePlan {
            only: command.only.clone(),
            except: command.except.clone(),
            ..RestorePlan::whole(source)
        })
    }

    /// Refuses to leave something alone that is neither there nor in the snapshot: somebody meant something else.
    pub(crate) async fn ensure_known(
        self,
        root: &Root,
        opened: &OpenedSnapshot,
        live: &Path,
        except: &[EntryPath],
    ) -> Result<(), Error> {
        if except.is_empty() {
            return Ok(());
        }
        let (live, list, asked) = (live.to_owned(), opened.list.clone(), except.to_vec());
        let source = opened.fetcher(root);
        let unknown = bridge::blocking(move || {
            let is_absent = |path: &EntryPath| {
                let path = live.join(OsStr::from_bytes(path.as_bytes()));
                path.symlink_metadata().is_err()
            };
            let mut absent: Vec<EntryPath> = asked.into_iter().filter(is_absent).collect();
            if absent.is_empty() {
                return Ok(None);
            }
            let mut reader = ListReader::new(&source, &list)?;
            while let Some(row) = reader.next_row()? {
                absent.retain(|one| !row.entry.path.is_within(one));
            }
            Ok::<_, Error>(absent.into_iter().next())
        });
        match unknown.await? {
            Some(path) => Err(no_entry("entry", &path, &opened.manifest.snapshot_id)),
            None => Ok(()),
        }
    }

    async fn staged(
        self,
        root: &Root,
        command: RepoRestore,
        plan: Arc<RestorePlan<SnapshotSource>>,
    ) -> Result<StagedSnapshot, Error> {
        let (workers, source) = (self.restore_workers(), plan.source.opened.fetcher(root));
        let staged = bridge::blocking(move || stage(&command, &plan, &source, workers));
        match staged.await {
            Ok(staged) => Ok(staged),
            Err(error) => Err(self.mark_cause(root, error).await),
        }
    }

    /// Patterns of what the next save of a subject would leave out.
    pub(crate) async fn patterns_now(
        self,
        root: &Root,
        index: &SnapshotIndex,
        dir: &Path,
    ) -> Result<Vec<String>, Error> {
        let (mut patterns, _) = self.ignores(dir).await?;
        if let Some(id) = &index.active
            && let Ok(opened) = self.open_snapshot(root, index, id).await
        {
            patterns.extend(opened.manifest.excludes);
        }
        Ok(patterns)
    }

    /// Where this store lies in the target of a restore; refused where it would be moved away with it.
    async fn store_in(self, command: &RepoRestore) -> Result<Option<EntryPath>, Error> {
        let StoreLocation::File(store) = &self.location else {
            return Ok(None);
        };
        let (store, target) = (store.clone(), command.target.clone());
        let within = bridge::blocking(move || {
            let (store, target) = (store.canonicalize().ok()?, target.canonicalize().ok()?);
            let within = store.strip_prefix(&target).ok()?;
            EntryPath::parse(within.as_os_str().as_bytes()).ok()
        });
        let within = within.await;
        if within.is_some() && command.placement != Placement::InPlace {
            return Err(Error::StoreInside(command.target.clone()));
        }
        Ok(within)
    }

    /// Saves what a restore in place is about to change. It joins the subject's snapshots, and `latest` stays what it is.
    async fn save_before(
        self,
        command: &RepoRestore,
        name: SubjectName,
    ) -> Result<Option<BeforeRestore>, Error> {
        let is_asked = command.placement == Placement::InPlace && command.save_before;
        if !is_asked || !has_entries(&command.target).await {
            return Ok(None);
        }
        let saved = self
            .save(RepoSave {
                reason: SaveReason::BeforeRestore,
                allow_shrink: true,
                cancel: command.cancel.clone(),
                ..RepoSave::new(&command.target, name.clone())
            })
            .await?;
        Ok(Some(BeforeRestore {
            snapshot_id: saved.snapshot_id,
            name,
            warnings: saved.warnings,
        }))
    }

    /// A disk is kept busy by as many workers as there are cores; a distant store needs more.
    pub(crate) fn restore_workers(self) -> NonZeroUsize {
        let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        match self.location {
            StoreLocation::S3(_) => cores.max(NonZeroUsize::new(FAR).unwrap_or(cores)),
            _ => cores,
        }
    }
}

/// A snapshot that was written beside its target, and is the tree that it should be.
#[derive(Debug)]
#[must_use = "a tree that is not swapped in is removed"]
pub(crate) struct StagedSnapshot {
    stage: RestoreStage,
    written: WriteReport,
    tree: WrittenTree,
}

impl StagedSnapshot {
    /// The staged tree, to look at it.
    pub(crate) fn tree(&self) -> &RootDir {
        self.stage.tree()
    }

    /// Takes a file out of the staged tree, if it is there.
    pub(crate) fn remove(&self, path: &EntryPath) -> Result<(), Error> {
        self.stage.remove(path)?;
        Ok(())
    }

    /// Puts it in its place.
    pub(crate) fn swap(self, origin: &RestoreOrigin) -> Result<(WrittenTree, RestoredTree), Error> {
        let restored = self.stage.swap(self.written, origin)?;
        Ok((self.tree, restored))
    }
}

/// Stages, writes and verifies.
fn stage(
    command: &RepoRestore,
    plan: &RestorePlan<SnapshotSource>,
    source: &ChunkFetcher,
    workers: NonZeroUsize,
) -> Result<StagedSnapshot, Error> {
    let opened = &plan.source.opened;
    let Readable {
        root_attributes,
        is_left_out,
    } = opened.readable()?;
    let mut stage =
        RestoreStage::begin(&command.target, command.placement, command.cancel.clone())?;
    let is_left_alone = matcher(&plan.source.patterns)?;
    stage.limit(RestoreLimits {
        keep_if: Some(preserved(plan, command.part.as_ref(), is_left_out)?),
        except: plan.except.clone(),
        left_alone: Some(unless_named(&plan.only, is_left_alone)),
        looks_into: true,
        ..RestoreLimits::default()
    });
    let settings = WriteSettings {
        rights: if command.owner {
            Rights::of_this_process()
        } else {
            Rights::Own
        },
        cancel: command.cancel.clone(),
        progress: command.progress.clone(),
        ..WriteSettings::default()
    };
    let writer = stage.writer(settings)?;
    let leave = |path: &EntryPath, seen: &Seen| stage.leave_as_seen(path, seen);
    let is_in_place = stage.placement() == Placement::InPlace;
    let parts = RestoreParts {
        source,
        list: &opened.list,
        writer: &writer,
        only: match &command.part {
            Some(part) => std::slice::from_ref(part),
            None => &plan.only,
        },
        part: command.part.as_ref(),
        may_be_missing: plan.source.may_be_missing,
        old: stage.old(),
        leave: is_in_place.then_some(&leave),
        same: None,
        versions: VersionProof::Digest,
        workers,
    };
    let (head, root_attributes) = match &command.part {
        Some(part) => head_of(source, opened, part)?,
        None => (opened.manifest.root(), root_attributes),
    };
    let root = EntryPath::root();
    writer
        .directory(&root, &head, &root_attributes)
        .map_err(PlaceError::from)?;
    let tree = restore(&parts)?;
    opened.ensure_tree(tree.digest)?;
    let written = writer.finish(Some(&head)).map_err(PlaceError::from)?;
    Ok(StagedSnapshot {
        stage,
        written,
        tree,
    })
}

/// What is known of a directory of a snapshot itself.
fn head_of(
    source: &ChunkFetcher,
    opened: &OpenedSnapshot,
    part: &EntryPath,
) -> Result<(Metadata, Vec<Attribute>), Error> {
    let mut reader = ListReader::new(source, &opened.list)?;
    while let Some(row) = reader.next_row()? {
        if row.entry.path == *part && row.entry.kind == EntryKind::Directory {
            return Ok((row.entry.metadata, row.entry.attributes));
        }
    }
    Err(no_entry("directory", part, &opened.manifest.snapshot_id))
}

/// The database that an entry would belong to, going by its name.
fn owner_of(path: &EntryPath) -> Option<EntryPath> {
    let (above, name) = path.split_last()?;
    above.child(owner_name(name)?).ok()
}

/// What saves leave out by now, but for what somebody wants by its name.
fn unless_named(
    only: &[EntryPath],
    is_left_alone: impl Fn(&EntryPath, bool) -> bool + Send + Sync + 'static,
) -> KeepIf {
    let only = only.to_vec();
    Box::new(move |path, is_directory| {
        !only.iter().any(|one| path.is_within(one)) && is_left_alone(path, is_directory)
    })
}

/// What stays in a directory although the snapshot does not have it: the store, what was never part of the tree, and
/// everything else when only a part is wanted.
fn preserved(
    plan: &RestorePlan<SnapshotSource>,
    part: Option<&EntryPath>,
    is_left_out: KeepIf,
) -> Result<KeepIf, Error> {
    let SnapshotSource {
        opened,
        store,
        patterns,
        ..
    } = &plan.source;
    let is_left_alone = matcher(patterns)?;
    let is_owner_left = unless_named(&plan.only, matcher(patterns)?);
    let databases = opened.manifest.databases.keys();
    let databases = databases.filter_map(|path| {
        let path: EntryPath = path.parse().ok()?;
        part.map_or(Some(path.clone()), |part| path.seen_from(part))
    });
    let databases: BTreeSet<EntryPath> = databases.collect();
    let (only, store) = (plan.only.clone(), store.clone());
    Ok(Box::new(move |path, is_directory| {
        let owner = owner_of(path);
        // With a database that stays as it is stays what waits beside it.
        if owner
            .as_ref()
            .is_some_and(|owner| is_owner_left(owner, false))
        {
            return true;
        }
        let is_unwanted = !only.is_empty() && !is_named(path, &only);
        let holds_store = store
            .as_ref()
            .is_some_and(|store| store.is_within(path) || path.is_within(store));
        // The log or journal of another state would be played into a database that is restored.
        let is_companion = owner.is_some_and(|owner| {
            databases.contains(&owner)
                && (only.is_empty() || only.iter().any(|one| owner.is_within(one)))
        });
        !is_companion
            && (is_unwanted
                || holds_store
                || is_left_out(path, is_directory)
                || is_left_alone(path, is_directory))
    }))
}

impl RepoRestored {
    fn new(
        manifest: SnapshotManifest,
        target: String,
        tree: &WrittenTree,
        restored: &RestoredTree,
    ) -> Self {
        let written = &restored.written;
        let (placed, kept) = match &restored.placed {
            PlacedTree::New => (PlacedAs::New, None),
            PlacedTree::Replaced { kept } => (PlacedAs::Replaced, Some(kept.display().to_string())),
            PlacedTree::InPlace(_) => (PlacedAs::InPlace, None),
        };
        let changes = InPlaceChanges::of(&restored.placed);
        Self {
            snapshot_id: manifest.snapshot_id,
            name: manifest.name,
            state_digest: manifest.state_digest,
            target,
            placed,
            kept,
            changes,
            before: None,
            files: written.files + tree.files_left,
            directories: written.directories,
            symlinks: written.symlinks,
            hard_links: written.hard_links,
            bytes: written.bytes + tree.bytes_left,
            files_reused: tree.files_reused,
            bytes_reused: tree.bytes_reused,
            chunks_fetched: tree.chunks_fetched,
            owners_not_kept: written.owners_not_kept,
            privileges_not_kept: written.privileges_not_kept,
            attributes_not_kept: written.attributes_not_kept,
            elapsed_ms: 0,
        }
    }
}

async fn has_entries(target: &Path) -> bool {
    let target = target.to_owned();
    bridge::blocking(move || {
        std::fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_some())
    })
    .await
}
