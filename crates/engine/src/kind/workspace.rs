//! A live working tree with checkpoints that an agent can use itself.
//!
//! A *workspace* is a directory; its *session directory* lies elsewhere and holds `auto_snapshots/`, `undo/`, `session.db` and
//! `config.toml`. Everything here is blocking disk work, done on threads that may block.
//!
//! *Always true:* whoever changes the live tree, or makes or deletes a checkpoint, holds the session's lock, in whatever process
//! it runs. Before a revert, a restore or an undo touches the live tree, what it will change is kept in an undo checkpoint. What
//! an interrupted restore began is brought to its end before anything else happens to the tree.

mod answers;
mod browse;
mod check;
mod commands;
mod compare;
mod create;
mod diff;
mod fork;
mod fork_results;
mod forks;
mod git;
mod keep;
mod known_sessions;
mod leave;
mod left_alone;
mod paced;
mod plan;
mod promote;
mod prompt_mark;
mod restore;
mod room_for;
mod session;
mod show;
pub(crate) mod unasked;
mod undo;
mod watch;

pub use crate::error::{Freeable, LostWorkspace, NoRoom, RoomUse, WorkspaceError};
pub use crate::restore::{LeftAloneEntry, LeftAloneReason};
pub use answers::{
    AgentEventRow, ChangeOp, ChangePlan, ChangesSummary, CheckedCheckpoint, CheckedWorkspace,
    CheckpointRow, CheckpointUse, Checkpointed, Checkpoints, CheckpointsUse, Compacted,
    DatabaseRow, DeletedCheckpoint, DiffKind, DiffSide, EventCounts, ExcludedNow, ForgetReason,
    ForgottenUndo, ForkMark, GapMark, GitChange, GitCommit, GitPlan, PathChange, PathDiff,
    PathHistory, PathStatus, PathVersion, PromptRow, RemovedWorkspace, RestoredWorkspace,
    RevertAction, RevertedPath, SessionForm, UndoRow, UndoneChange, UnreadableSlot, VersionStatus,
    Watched, WorkspaceChanges, WorkspaceMade, WorkspaceRow, WorkspaceStatus,
};
pub use commands::{
    CompactCheckpoints, CreateCheckpoint, ForkPlace, ForkWorkspace, InitWorkspace, Maker,
    MaterializeCheckpoint, PromoteFork, RemoveFork, RestoreWorkspace, RevertPath, RunMode,
    UndoChange,
};
pub use compare::{CompareTrees, ComparedTrees, TreeChange, TreeRef};
pub use fork_results::{
    ForkRow, ForkStatus, ForkedWorkspace, Forks, MaterializedCheckpoint, OverwrittenEntry,
    PromotedFork, RemovedFork,
};
pub(crate) use known_sessions::session_of;
pub use paced::BeforeCall;
pub use session::HostEnv;
pub(crate) use show::summed;

use crate::bridge;
use crate::error::{Error, OPEN_DIRECTORY};
use crate::restore::recover;
pub use crate::tree_patch::{
    ComparedContent, ContentDiff, DiffStat, FileStat, PatchGap, PatchGapReason,
};
use known_sessions::KnownSession;
use session::Session;
use stasis_disk::form::slots::{Eviction, Manifest, Pool, PoolSettings, StatCache, fact, manifest};
use stasis_disk::fs::free_space;
use stasis_disk::fs::lock_file::{LockAttempt, LockFile};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::progress::Progress;
use stasis_disk::tree::walk::{WalkReport, WalkSettings};
use stasis_model::failure::AtPath;
use stasis_model::time::{Clock, Timestamp};
use stasis_model::tree::EntryPath;
use stasis_model::workspace::{CheckpointRef, Settings, next_sequence};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Every workspace of this host whose session can be read, by its directory.
pub(crate) fn workspaces(state: &Path) -> Vec<WorkspaceRow> {
    let all = KnownSession::all(state);
    let mut rows: Vec<WorkspaceRow> = all.iter().map(|one| one.row(&all)).collect();
    rows.sort_by(|one, other| one.workspace.cmp(&other.workspace));
    rows
}

/// How long somebody waits for others who are at the same workspace.
const LOCK_TIMEOUT: Duration = Duration::from_mins(1);
/// How often it looks.
const AGAIN: Duration = Duration::from_millis(20);
/// How many checkpoints are compared with the live tree for whoever wants to go back and does not say where to.
const LOOKED_AT: usize = 5;

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Actor {
    /// A person, or what a person started.
    Owner,
    /// A model.
    Model,
}

/// A workspace and its checkpoints.
#[derive(Clone, Debug)]
pub struct Workspace {
    session: Arc<Session>,
    pool: Arc<Pool>,
    /// The same checkpoints, none of which goes to make room.
    careful: Arc<Pool>,
    clock: Arc<dyn Clock>,
    actor: Actor,
}

impl Workspace {
    /// Makes a directory known as a workspace; one that is known stays as it is.
    pub async fn init(init: InitWorkspace, host: &HostEnv) -> Result<WorkspaceMade, Error> {
        let host = host.clone();
        bridge::blocking(move || session::init(&init, &host)).await
    }

    /// The workspace that a directory is, or lies in.
    pub async fn find(directory: &Path, host: &HostEnv) -> Result<Self, Error> {
        let (directory, host) = (directory.to_owned(), host.clone());
        bridge::blocking(move || Self::find_now(&directory, &host)).await
    }

    fn find_now(directory: &Path, host: &HostEnv) -> Result<Self, Error> {
        let session = Session::find(directory, host)?;
        let pool = session.pool(Eviction::Oldest)?;
        let careful = pool.again(PoolSettings {
            eviction: Eviction::Nothing,
            ..pool.settings().clone()
        })?;
        let own = Self {
            session: Arc::new(session),
            pool: Arc::new(pool),
            careful: Arc::new(careful),
            clock: host.clock.clone(),
            actor: Actor::Owner,
        };
        // Whoever changes something is told; whoever looks may look.
        if let Err(error) = own.recover_if_free() {
            let error = crate::error::error_chain(&error);
            tracing::warn!(error, "could not bring to its end what was interrupted");
        }
        if let Err(error) = own.recover_forks_if_free() {
            let error = crate::error::error_chain(&error);
            tracing::warn!(
                error,
                "could not bring a fork to its end that was interrupted"
            );
        }
        Ok(own)
    }

    /// The same workspace for a model, which may not delete or push out what it did not make, and must have seen a plan before
    /// many files are deleted.
    #[must_use = "the workspace itself is not changed"]
    pub fn for_model(&self) -> Self {
        Self {
            pool: self.careful.clone(),
            actor: Actor::Model,
            ..self.clone()
        }
    }

    /// The entry that is its Git repository, if it has one.
    pub fn git_directory(&self) -> EntryPath {
        EntryPath::root().child(b".git").expect("it is a name")
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.session.directory
    }

    /// The entry that somebody means by a path: one beneath the workspace, or relative to `from` in it. `\xNN` and `\\` are read as
    /// results write them; only where no such entry was ever seen, a name that is there as it was typed is meant.
    pub fn entry(&self, typed: &[u8], from: &Path) -> Result<EntryPath, Error> {
        let decoded = decoded(typed);
        let read = self.entry_within(&decoded, from);
        if decoded == typed {
            return Ok(read?);
        }
        let is_live = |path: &EntryPath| Ok::<_, Error>(fact(&self.root()?, path).is_some());
        match self.entry_within(typed, from) {
            Ok(literal) if is_live(&literal)? => match read {
                Ok(read) if is_live(&read)? || self.is_kept(&read)? => Ok(read),
                _ => Ok(literal),
            },
            _ => Ok(read?),
        }
    }

    /// Whether some checkpoint has an entry.
    fn is_kept(&self, path: &EntryPath) -> Result<bool, Error> {
        for one in self.newest_first()? {
            if !self.then(&one, path)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The entry at a path, which is relative to `from` if that is in the workspace.
    fn entry_within(&self, typed: &[u8], from: &Path) -> Result<EntryPath, WorkspaceError> {
        let bad = |why: &str| {
            let path = String::from_utf8_lossy(typed).escape_debug().to_string();
            let why = why.to_owned();
            WorkspaceError::BadPath { path, why }
        };
        if typed.is_empty() {
            return Err(bad("it is empty"));
        }
        let path = Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(typed));
        let from = from.canonicalize().unwrap_or_else(|_| from.to_owned());
        let whole = if from.starts_with(self.directory()) {
            from.join(path)
        } else {
            self.directory().join(path)
        };
        let Ok(beneath) = whole.strip_prefix(self.directory()) else {
            return Err(bad("it is not in the workspace"));
        };
        let mut entry = EntryPath::root();
        for component in beneath.components() {
            entry = match component {
                Component::CurDir => entry,
                Component::ParentDir => match entry.split_last() {
                    Some((above, _)) => above,
                    None => return Err(bad("it leads out of the workspace")),
                },
                Component::Normal(name) => entry
                    .child(name.as_encoded_bytes())
                    .map_err(|error| bad(&error.to_string()))?,
                Component::RootDir | Component::Prefix(_) => {
                    return Err(bad("it is not in the workspace"));
                }
            };
        }
        Ok(entry)
    }

    /// Does blocking work on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let own = self.clone();
        bridge::blocking(move || work(&own)).await
    }

    /// Makes a checkpoint.
    #[tracing::instrument(skip_all, err(level = "info"), fields(workspace = %self.directory().display()))]
    pub async fn create(&self, command: CreateCheckpoint) -> Result<Checkpointed, Error> {
        self.blocking(move |own| own.create_now(&command)).await
    }

    /// Makes a checkpoint whose maker watches how far it has come, and may cancel it; what it stored until then serves the next one.
    pub async fn create_watched(
        &self,
        command: CreateCheckpoint,
        progress: Arc<Progress>,
        cancel: Arc<AtomicBool>,
    ) -> Result<Checkpointed, Error> {
        self.blocking(move |own| {
            let mut settings = own.pool.settings().clone();
            settings.progress = progress;
            settings.walk.cancel = cancel;
            own.with_settings(settings)?.create_now(&command)
        })
        .await
    }

    /// The same workspace for somebody who watches how far its checkpoints have come that are made, restored, forked, written out or
    /// read.
    pub async fn watched(&self, progress: Arc<Progress>) -> Result<Self, Error> {
        self.blocking(move |own| {
            let settings = own.pool.settings().clone();
            own.with_settings(PoolSettings {
                progress,
                ..settings
            })
        })
        .await
    }

    fn with_settings(&self, settings: PoolSettings) -> Result<Self, Error> {
        let pool = Arc::new(self.pool.again(settings)?);
        Ok(Self {
            pool,
            ..self.clone()
        })
    }

    /// All checkpoints, with what each changed if that is asked for.
    pub async fn list(&self, include_changes: bool) -> Result<Checkpoints, Error> {
        self.blocking(move |own| own.list_now(include_changes))
            .await
    }

    /// The prompts of agents that can be gone back to, the last one first.
    pub async fn prompts(&self) -> Result<Vec<PromptRow>, Error> {
        self.blocking(Self::prompts_now).await
    }

    /// The last prompt; an error if that has no checkpoint.
    pub async fn last_prompt(&self) -> Result<PromptRow, Error> {
        self.blocking(Self::last_prompt_now).await
    }

    /// The newest checkpoint that is another tree than the live one, where no agent was ever seen: what somebody means who wants to go back,
    /// and has said nothing else. Looks at a few; where an agent was seen, nothing is taken for the state before its prompt.
    pub async fn last_differing(&self) -> Result<Option<CheckpointRef>, Error> {
        for slot in self
            .blocking(Self::without_agents)
            .await?
            .into_iter()
            .take(LOOKED_AT)
        {
            let checkpoint = CheckpointRef::Slot(slot);
            let look = RestoreWorkspace {
                checkpoint: checkpoint.clone(),
                except: Vec::new(),
                run: RunMode::Dry,
                agreed: false,
                confirm: None,
                no_undo: false,
            };
            let plan = self.restore(look).await?.plan;
            if plan.creates + plan.replaces + plan.deletes > 0 {
                return Ok(Some(checkpoint));
            }
        }
        Ok(None)
    }

    /// The prompt that is so many back; 1 is the last one that has a checkpoint.
    pub async fn prompt_before(&self, back: u32) -> Result<PromptRow, Error> {
        self.blocking(move |own| own.prompt_before_now(back)).await
    }

    /// What differs from the newest checkpoint, or from another one; what is in `.git` is one difference unless `git` asks for all.
    pub async fn changes(
        &self,
        since: Option<CheckpointRef>,
        git: bool,
    ) -> Result<WorkspaceChanges, Error> {
        self.blocking(move |own| own.changes_now(since.as_ref(), git))
            .await
    }

    /// What differs in one entry from a checkpoint; else from the newest one that holds it and differs.
    pub async fn diff(
        &self,
        path: EntryPath,
        checkpoint: Option<CheckpointRef>,
    ) -> Result<PathDiff, Error> {
        self.blocking(move |own| own.diff_now(&path, checkpoint.as_ref()))
            .await
    }

    /// What differs between two whole trees: checkpoints, forks, the workspace.
    pub async fn compare(&self, command: CompareTrees) -> Result<ComparedTrees, Error> {
        self.blocking(move |own| own.compare_now(&command)).await
    }

    /// Makes one entry what it was.
    #[tracing::instrument(skip_all, err(level = "info"), fields(workspace = %self.directory().display(), path = %command.path))]
    pub async fn revert(&self, command: RevertPath) -> Result<RevertedPath, Error> {
        self.blocking(move |own| own.revert_now(&command)).await
    }

    /// Makes the whole workspace what it was.
    #[tracing::instrument(skip_all, err(level = "info"), fields(workspace = %self.directory().display()))]
    pub async fn restore(&self, command: RestoreWorkspace) -> Result<RestoredWorkspace, Error> {
        self.blocking(move |own| own.restore_now(&command)).await
    }

    /// One entry through all checkpoints.
    pub async fn history(&self, path: EntryPath) -> Result<PathHistory, Error> {
        self.blocking(move |own| own.history_now(&path)).await
    }

    /// Deletes a checkpoint.
    #[tracing::instrument(skip_all, err(level = "info"), fields(workspace = %self.directory().display(), %checkpoint))]
    pub async fn delete(
        &self,
        checkpoint: CheckpointRef,
        run: RunMode,
    ) -> Result<DeletedCheckpoint, Error> {
        self.blocking(move |own| own.delete_now(&checkpoint, run))
            .await
    }

    /// Refuses where other checkpoints lie in their slots by now than were shown.
    pub async fn ensure_still(&self, shown: &[DeletedCheckpoint]) -> Result<(), Error> {
        let shown = shown.to_vec();
        self.blocking(move |own| own.ensure_still_now(&shown)).await
    }

    /// Deletes a checkpoint that was shown, if it is still that one.
    #[tracing::instrument(skip_all, err(level = "info"), fields(workspace = %self.directory().display(), checkpoint = shown.checkpoint))]
    pub async fn delete_shown(&self, shown: &DeletedCheckpoint) -> Result<(), Error> {
        let shown = shown.clone();
        self.blocking(move |own| own.delete_shown_now(&shown)).await
    }

    /// Makes one checkpoint of several: the newest state wins.
    #[tracing::instrument(skip_all, err(level = "info"), fields(workspace = %self.directory().display()))]
    pub async fn compact(&self, command: CompactCheckpoints) -> Result<Compacted, Error> {
        self.blocking(move |own| own.compact_now(&command)).await
    }

    /// Makes forks: new directories from a checkpoint, each a workspace of its own, which this one knows.
    #[tracing::instrument(skip_all, err(level = "info"), fields(workspace = %self.directory().display()))]
    pub async fn fork(&self, command: ForkWorkspace) -> Result<ForkedWorkspace, Error> {
        self.blocking(move |own| own.fork_now(&command)).await
    }

    /// The forks of this workspace, the oldest first.
    pub async fn forks(&self) -> Result<Forks, Error> {
        self.blocking(Self::forks_now).await
    }

    /// Makes the workspace what a fork of it is.
    #[tracing::instrument(skip_all, err(level = "info"), fields(workspace = %self.directory().display(), fork = %command.fork))]
    pub async fn promote(&self, command: PromoteFork) -> Result<PromotedFork, Error> {
        self.blocking(move |own| own.promote_now(&command)).await
    }

    /// Removes a fork: its directory, its checkpoints, and what is known of it.
    #[tracing::instrument(skip_all, err(level = "info"), fields(workspace = %self.directory().display(), fork = %command.fork))]
    pub async fn remove_fork(&self, command: RemoveFork) -> Result<RemovedFork, Error> {
        self.blocking(move |own| own.remove_fork_now(&command))
            .await
    }

    /// Writes a checkpoint out as a plain directory; everything is read, and must be what it was.
    pub async fn materialize(
        &self,
        command: MaterializeCheckpoint,
    ) -> Result<MaterializedCheckpoint, Error> {
        self.blocking(move |own| own.materialize_now(&command))
            .await
    }

    /// Takes back the last revert, restore or undo.
    #[tracing::instrument(skip_all, err(level = "info"), fields(workspace = %self.directory().display()))]
    pub async fn undo(&self, command: UndoChange) -> Result<UndoneChange, Error> {
        self.blocking(move |own| own.undo_now(&command)).await
    }

    /// Lets go of everything that could be undone, which frees its bytes; says how many.
    pub async fn forget_undos(&self) -> Result<u64, Error> {
        self.blocking(Self::forget_undos_now).await
    }

    /// Reads every checkpoint, and names those that cannot be given back as they were.
    pub async fn check(&self) -> Result<CheckedWorkspace, Error> {
        self.blocking(Self::check_now).await
    }

    /// What all checkpoints hold on the disk, bytes that they share counted once: reads where the blocks of every file are.
    pub(crate) async fn measured_bytes(&self) -> Result<u64, Error> {
        self.blocking(|own| Ok(own.pool().usage()?.held)).await
    }

    /// What can be taken back, the newest first.
    pub(crate) async fn undo_list(&self) -> Result<Vec<UndoRow>, Error> {
        self.blocking(Self::undo_rows).await
    }

    /// Whether taking back a change, or the last one, brings an entry back, takes it away, or changes what is in it.
    pub(crate) async fn is_moved_by_undo(
        &self,
        which: Option<u32>,
        entry: EntryPath,
    ) -> Result<bool, Error> {
        self.blocking(move |workspace| workspace.moves_back(which, &entry))
            .await
    }

    /// How it is.
    pub async fn status(&self) -> Result<WorkspaceStatus, Error> {
        self.blocking(Self::status_now).await
    }

    /// Makes automatic checkpoints and records file events until `stop` is set; `ready` is called when everything that happens
    /// from then on is seen.
    pub async fn watch(
        &self,
        stop: Arc<AtomicBool>,
        ready: impl FnOnce() + Send + 'static,
    ) -> Result<Watched, Error> {
        self.blocking(move |own| own.watch_now(&stop, ready)).await
    }

    fn session(&self) -> &Session {
        &self.session
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The same under the rules of now: what is left out may have changed since the session was opened.
    fn pool_now(&self) -> Result<Arc<Pool>, Error> {
        let (settings, excludes) = (self.pool.settings(), self.session.excludes());
        if settings.walk.excludes == excludes {
            return Ok(self.pool.clone());
        }
        let walk = WalkSettings {
            excludes,
            ..settings.walk.clone()
        };
        let settings = settings.clone();
        Ok(Arc::new(
            self.pool.again(PoolSettings { walk, ..settings })?,
        ))
    }

    fn actor(&self) -> Actor {
        self.actor
    }

    /// What is written down as the maker of what is not asked for by anybody else.
    fn maker(&self) -> Maker {
        match self.actor {
            Actor::Owner => Maker::Cli,
            Actor::Model => Maker::Mcp,
        }
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    fn shared_clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn settings(&self) -> &Settings {
        self.session.settings()
    }

    /// The live tree, opened anew: nobody holds a workspace that was moved away.
    fn root(&self) -> Result<RootDir, Error> {
        let root = RootDir::open(self.directory(), Mounts::Stay);
        Ok(root.at(OPEN_DIRECTORY, self.directory())?)
    }

    /// What is known of the files of the live tree, to be looked at since `began`.
    fn stat_cache(&self, began: Timestamp) -> StatCache {
        StatCache::open(&self.stats(), began)
    }

    /// Where that is kept.
    fn stats(&self) -> PathBuf {
        self.session.path.join("stats")
    }

    /// What the live tree contains.
    fn live(&self) -> Result<(Manifest, WalkReport), Error> {
        let mut cache = self.stat_cache(self.clock.now());
        let listed = manifest(&self.root()?, &mut cache, &self.session.walk());
        let listed = listed.map_err(WorkspaceError::from)?;
        // What is not remembered is read again.
        let _ = cache.save();
        Ok(listed)
    }

    fn lock_path(&self) -> PathBuf {
        self.session.path.join("session.lock")
    }

    /// Makes the workspace ours alone, when whoever is at it is done, and brings to its end what a dead one began. One whose session was
    /// removed meanwhile is no workspace, and nothing of it is made anew.
    fn lock(&self, doing: &'static str) -> Result<LockFile, Error> {
        let words = format!(
            "{doing} by process {} since {}",
            std::process::id(),
            self.clock.now()
        );
        let (path, until) = (self.lock_path(), self.clock.uptime() + LOCK_TIMEOUT);
        let taken = loop {
            // Before each attempt, because that makes the directory of a lock which has none.
            self.check_session()?;
            let attempt = LockFile::take(&path, &words);
            match attempt.map_err(WorkspaceError::Lock)? {
                LockAttempt::Taken(lock) => break lock,
                LockAttempt::Held(holder) if self.clock.uptime() >= until => {
                    return Err(WorkspaceError::Busy(holder).into());
                }
                LockAttempt::Held(_) => std::thread::sleep(AGAIN),
            }
        };
        if let Err(gone) = self.check_session() {
            self.unmake_session(&path);
            return Err(gone.into());
        }
        self.pool.reserve().lend(|| self.recover())?;
        Ok(taken)
    }

    /// The same for somebody who frees room: what cannot be brought to its end for want of it waits until there is some. Says whether
    /// something waits.
    fn lock_to_free(&self, doing: &'static str) -> Result<(LockFile, bool), Error> {
        match self.lock(doing) {
            Err(error) if free_space::is_want_of_room(&error) => {
                let path = self.lock_path();
                let attempt = self.pool.reserve().lend(|| LockFile::take(&path, ""));
                match attempt.map_err(WorkspaceError::Lock)? {
                    LockAttempt::Taken(lock) => Ok((lock, true)),
                    LockAttempt::Held(holder) => Err(WorkspaceError::Held { path, holder }.into()),
                }
            }
            taken => Ok((taken?, false)),
        }
    }

    /// A number that no checkpoint has, in any pool.
    fn next_sequence(&self) -> Result<u64, Error> {
        let mut all = self.pool.list()?;
        all.extend(self.pool.undos()?);
        Ok(next_sequence(&all))
    }

    /// Makes the reserve again, if it was used up and there is room for it.
    fn keep_reserve(&self) {
        self.pool.reserve().make();
    }

    /// Brings an interrupted restore to its end, and removes what an interrupted revert left; `false` when no restore was begun.
    fn recover(&self) -> Result<bool, Error> {
        let was_begun = recover(self.directory())?;
        self.clear_up()?;
        Ok(was_begun)
    }

    /// The same if nobody is at the workspace.
    fn recover_if_free(&self) -> Result<bool, Error> {
        // Without words: whoever looks writes nothing.
        let attempt = LockFile::take(&self.lock_path(), "");
        match attempt.map_err(WorkspaceError::Lock)? {
            LockAttempt::Taken(_lock) => self.recover(),
            LockAttempt::Held(_) => Ok(false),
        }
    }
}

/// A path as it was typed: escapes are read as results write them; what is none is taken as it is.
fn decoded(typed: &[u8]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(typed) else {
        return typed.to_vec();
    };
    let whole = text.split('/').map(|part| match part {
        "" | "." | ".." => Some(part.as_bytes().to_vec()),
        part => part
            .parse::<EntryPath>()
            .ok()
            .map(|entry| entry.as_bytes().to_vec()),
    });
    let whole: Option<Vec<Vec<u8>>> = whole.collect();
    whole.map_or_else(|| typed.to_vec(), |parts| parts.join(&b'/'))
}
