//! Writes a snapshot back as a directory.
//!
//! 1. find the snapshot; refuse what this build cannot read   2. stage beside the target
//! 3. fetch and write, every chunk checked against its name
//! 4. compare the digest of the whole list with the snapshot's   5. swap

use crate::bridge;
use crate::catalog::{ChunkFetcher, OpenedSnapshot, Readable, SnapshotSelector, no_entry};
use crate::error::{Error, PlaceError, error_chain};
use crate::handle::DirRepo;
use crate::result::PlacedAs;
use crate::save::{RepoSave, ignores, matcher};
use serde::Serialize;
use stasis_disk::form::chunked::databases::owner_name;
use stasis_disk::form::chunked::list::ListReader;
use stasis_disk::form::chunked::restore::{RestoreParts, WrittenTree, restore};
use stasis_disk::fs::metadata::{Rights, Seen};
use stasis_disk::fs::root_dir::RootDir;
use stasis_disk::progress::Progress;
pub use stasis_disk::tree::restore::Placement;
use stasis_disk::tree::restore::{
    KeepIf, PlacedTree, RecoveredRestore, RestoreLimits, RestoreOrigin, RestoreStage, RestoredTree,
};
use stasis_disk::tree::write::{WriteReport, WriteSettings};
use stasis_model::digest::TreeDigest;
use stasis_model::format::manifest::{FileList, SaveReason, SnapshotIndex, SnapshotManifest};
use stasis_model::id::{SnapshotId, SubjectName};
use stasis_model::tree::EntryPath;
use stasis_store::documents::roots::Root;
use stasis_store::location::StoreLocation;
use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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
    /// Entries that a restore in place leaves as they are, with everything in them; a database with its journals.
    pub except: Vec<EntryPath>,
    /// Whether owners, setuid and setgid are given.
    pub owner: bool,
    /// Whether what a restore in place changes is saved first.
    pub save_before: bool,
    /// Where the store lies in the target, if it does; found out by whoever restores.
    pub store: Option<EntryPath>,
    /// Patterns of what is no part of the tree any more, besides those of the snapshot; found out by whoever restores.
    pub left_alone: Vec<String>,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
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
            except: Vec::new(),
            owner: false,
            save_before: false,
            store: None,
            left_alone: Vec::new(),
            cancel: Arc::default(),
            progress: Arc::default(),
        }
    }
}

/// A snapshot that was restored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
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
    /// A snapshot of what was there before, if the directory stayed and had something in it.
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

/// What became of the entries of a directory that stayed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct InPlaceChanges {
    /// Entries that were put in place.
    pub placed: u64,
    /// Entries that were removed, because the snapshot does not have them.
    pub removed: u64,
    /// Entries that only got other owners, permissions or times.
    pub dressed: u64,
    /// Entries that were not touched.
    pub untouched: u64,
    /// Entries that others changed meanwhile: what they wrote is in the backup.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed_meanwhile: Vec<String>,
    /// Entries that saves leave out by now: they stay as they are, because no snapshot has what they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_alone: Vec<String>,
    /// Entries that are not what the snapshot has because this user may not read or change them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_permitted: Vec<String>,
    /// Whether some of these are not what the snapshot has, though nobody could know that beforehand.
    #[serde(skip)]
    pub is_partial: bool,
    /// Where what was replaced is kept, for seven days; undoing the restore brings it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
}

/// Tells whoever comes next that a restore was interrupted, and where that which it replaced is.
pub(crate) fn tell_finished(finished: &RecoveredRestore) {
    let changed: Vec<String> = finished.changed.iter().map(ToString::to_string).collect();
    let (kept, changed) = (finished.kept.display(), changed.join(", "));
    for path in &finished.not_permitted {
        tracing::warn!(%path, "this user may not change it: it is as it was before the restore that was interrupted");
    }
    tracing::warn!(%kept, changed, "an interrupted restore was brought to its end; what it replaced, and what was changed since, is kept");
}

impl InPlaceChanges {
    /// Whether everything was as it should be already, or was left as it is.
    pub fn is_nothing(&self) -> bool {
        self.placed + self.removed + self.dressed == 0
    }

    pub(crate) fn of(placed: &PlacedTree) -> Option<Self> {
        let names = |paths: &[EntryPath]| paths.iter().map(ToString::to_string).collect();
        match placed {
            PlacedTree::InPlace(changes) => Some(Self {
                placed: changes.placed,
                removed: changes.removed,
                dressed: changes.dressed,
                untouched: changes.untouched,
                changed_meanwhile: names(&changes.changed_meanwhile),
                left_alone: names(&changes.left_alone),
                not_permitted: names(&changes.not_permitted),
                is_partial: !changes.refused.is_empty(),
                backup: changes
                    .backup
                    .as_ref()
                    .map(|path| path.display().to_string()),
            }),
            _ => None,
        }
    }
}

/// A snapshot of what was there before a restore: the way back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BeforeRestore {
    /// Its id.
    pub snapshot_id: SnapshotId,
    /// Its name.
    pub name: SubjectName,
}

impl DirRepo<'_> {
    /// Restores a snapshot.
    #[tracing::instrument(skip_all, err(level = "info"), fields(target = %command.target.display()))]
    pub async fn restore(self, mut command: RepoRestore) -> Result<RepoRestored, Error> {
        let started = self.clock.uptime();
        command.store = self.store_in(&command).await?;
        let root = self.root();
        self.settings(&root).await?;
        let index = self.index(&root).await?;
        let id = self.resolve(&index, &command.wanted)?;
        let opened = self.open_snapshot(&root, &index, &id).await?;
        command.left_alone = self.left_alone(&index, &opened.manifest, &command).await?;
        let target = command.target.display().to_string();
        let manifest = opened.manifest.clone();
        self.ensure_known(&command.target, &command.except, &id, &opened.list)
            .await?;
        let before = self.save_before(&command, &manifest.name).await?;
        let is_whole = command.only.is_empty() && command.except.is_empty();
        let staged = self.staged(&root, command, opened).await?;
        let origin = RestoreOrigin {
            at: self.clock.now(),
            from: format!("snapshot {id} of {}", manifest.name),
        };
        let swapped = bridge::blocking(move || staged.swap(&origin)).await;
        let (tree, restored) = match swapped {
            Ok(swapped) => swapped,
            Err(error) => return Err(self.mark_cause(&root, error).await),
        };
        if is_whole && !manifest.is_part && restored.is_whole_in_place() {
            self.adopt_restored(&index, &manifest).await;
        }
        let elapsed = self.clock.uptime().saturating_sub(started);
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        Ok(RepoRestored {
            before,
            elapsed_ms,
            ..RepoRestored::new(manifest, target, &tree, &restored)
        })
    }

    /// Makes `latest` mean what a whole restore in place chose. The tree is what it should be, whatever becomes of that.
    async fn adopt_restored(self, index: &SnapshotIndex, manifest: &SnapshotManifest) {
        let seen = index.subject(&manifest.name).active;
        let (name, chosen) = (&manifest.name, Some(&manifest.snapshot_id));
        if let Err(error) = self.adopt(name, chosen, seen.as_ref()).await {
            tracing::warn!(
                error = error_chain(&error),
                "the restored tree is in place, but `latest` does not mean it"
            );
        }
    }

    /// Writes a snapshot beside its target, and verifies it; nothing of the target is touched.
    pub(crate) async fn stage(
        self,
        mut command: RepoRestore,
        id: &SnapshotId,
    ) -> Result<(SnapshotManifest, StagedSnapshot), Error> {
        command.store = self.store_in(&command).await?;
        let root = self.root();
        let index = self.index(&root).await?;
        let opened = self.open_snapshot(&root, &index, id).await?;
        command.left_alone = self.left_alone(&index, &opened.manifest, &command).await?;
        let manifest = opened.manifest.clone();
        Ok((manifest, self.staged(&root, command, opened).await?))
    }

    /// Refuses to leave something alone that is neither there nor in the snapshot: somebody meant something else.
    pub(crate) async fn ensure_known(
        self,
        live: &Path,
        except: &[EntryPath],
        id: &SnapshotId,
        list: &FileList,
    ) -> Result<(), Error> {
        if except.is_empty() {
            return Ok(());
        }
        let (live, list, asked) = (live.to_owned(), list.clone(), except.to_vec());
        let source = ChunkFetcher::new(self.root());
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
            Some(path) => Err(no_entry("entry", &path, id)),
            None => Ok(()),
        }
    }

    async fn staged(
        self,
        root: &Root,
        command: RepoRestore,
        opened: OpenedSnapshot,
    ) -> Result<StagedSnapshot, Error> {
        let totals = opened.manifest.totals;
        command.progress.expect(totals.files, totals.bytes);
        let (workers, source) = (self.restore_workers(), ChunkFetcher::new(root.clone()));
        let staged = bridge::blocking(move || stage(&command, &opened, &source, workers));
        match staged.await {
            Ok(staged) => Ok(staged),
            Err(error) => Err(self.mark_cause(root, error).await),
        }
    }

    /// What saves of the subject leave out by now: no snapshot since then has it, so that nothing else could bring it back.
    async fn left_alone(
        self,
        index: &SnapshotIndex,
        manifest: &SnapshotManifest,
        command: &RepoRestore,
    ) -> Result<Vec<String>, Error> {
        if command.placement != Placement::InPlace {
            return Ok(Vec::new());
        }
        self.patterns_now(index, &manifest.name, &command.target)
            .await
    }

    /// Patterns of what the next save of a subject would leave out.
    pub(crate) async fn patterns_now(
        self,
        index: &SnapshotIndex,
        name: &SubjectName,
        dir: &Path,
    ) -> Result<Vec<String>, Error> {
        let mut patterns = ignores(dir).await?;
        if let Some(id) = index.subject(name).active
            && let Ok(opened) = self.open_snapshot(&self.root(), index, &id).await
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

    /// Saves what a restore in place is about to change, under a name of its own.
    async fn save_before(
        self,
        command: &RepoRestore,
        name: &SubjectName,
    ) -> Result<Option<BeforeRestore>, Error> {
        let is_asked = command.placement == Placement::InPlace && command.save_before;
        if !is_asked || !has_entries(&command.target).await {
            return Ok(None);
        }
        let short: String = name.as_str().chars().take(40).collect();
        let name: SubjectName = format!("{short}.before-restore")
            .parse()
            .unwrap_or_else(|_| name.clone());
        let saved = self
            .save(RepoSave {
                reason: SaveReason::BeforeRestore,
                allow_shrink: true,
                cancel: command.cancel.clone(),
                ..RepoSave::new(&command.target, name.clone())
            })
            .await?;
        let snapshot_id = saved.snapshot_id;
        Ok(Some(BeforeRestore { snapshot_id, name }))
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
    opened: &OpenedSnapshot,
    source: &ChunkFetcher,
    workers: NonZeroUsize,
) -> Result<StagedSnapshot, Error> {
    let Readable {
        root_attributes,
        is_left_out,
    } = opened.readable()?;
    let mut stage =
        RestoreStage::begin(&command.target, command.placement, command.cancel.clone())?;
    let is_left_alone = matcher(&command.left_alone)?;
    stage.limit(RestoreLimits {
        keep_if: Some(preserved(command, &opened.manifest, is_left_out)?),
        except: command.except.clone(),
        left_alone: Some(unless_named(&command.only, is_left_alone)),
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
        only: &command.only,
        old: stage.old(),
        leave: is_in_place.then_some(&leave),
        workers,
    };
    let head = opened.manifest.root();
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
    command: &RepoRestore,
    manifest: &SnapshotManifest,
    is_left_out: KeepIf,
) -> Result<KeepIf, Error> {
    let is_left_alone = matcher(&command.left_alone)?;
    let is_owner_left = matcher(&command.left_alone)?;
    let is_owner_left = unless_named(&command.only, is_owner_left);
    let databases = manifest.databases.clone();
    let (only, store) = (command.only.clone(), command.store.clone());
    Ok(Box::new(move |path, is_directory| {
        let owner = owner_of(path);
        // With a database that stays as it is stays what waits beside it.
        if owner
            .as_ref()
            .is_some_and(|owner| is_owner_left(owner, false))
        {
            return true;
        }
        // The log of a database that is replaced would be replayed into the other one.
        let is_named = |one: &EntryPath| path.is_within(one) || path.is_companion_of(one);
        let is_unwanted = !only.is_empty() && !only.iter().any(is_named);
        let holds_store = store
            .as_ref()
            .is_some_and(|store| store.is_within(path) || path.is_within(store));
        // The log or journal of another state would be played into a database that is restored.
        let is_companion = owner.is_some_and(|owner| {
            databases.contains_key(&owner.to_string())
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
