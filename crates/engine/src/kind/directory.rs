//! A directory as one subject: its snapshots in the store and its checkpoints on this host.
//!
//! Which of the two a command is about follows from the name of the snapshot. `cp-3` is here, `latest` and what begins like an id are in the
//! store, a time is the newest of both, and a name is looked for in the store first.
//!
//! *Always true:* no checkpoint is `latest`, and none is taken for a snapshot that is in the store.

mod diff;
mod entry;
mod find;
mod in_place;
mod near;
mod timeline;
mod usage;

pub use diff::DirDiff;
pub use entry::EntryIn;
pub use in_place::{ChangedInPlace, InPlace};
pub use timeline::{RestoreMark, Timeline, TimelineEntry, TimelineItem, TimelineQuery};
pub use usage::DirectoryUse;

use crate::address::shell_word;
use crate::bridge;
use crate::catalog::ListedEntry;
use crate::error::{Error, ErrorKind, WorkspaceError};
use crate::kind::project::{Home, Project, RestoreRecord};
use crate::kind::workspace::{
    CheckpointRow, HostEnv, UndoRow, Workspace, WorkspaceRow, workspaces,
};
use crate::system::typed_at;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::slots::{Manifest, contents_of_list};
use stasis_model::failure::{AtPath as _, Failure};
use stasis_model::format::manifest::Indexed;
use stasis_model::id::SnapshotId;
use stasis_model::snapshot_ref::{Candidate, SnapshotRef};
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use stasis_model::workspace::{CheckpointRef, Slot};
use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// How many checkpoints are named to somebody who asked for none.
const NAMED: usize = 5;

/// A directory, with what it has: snapshots in a store, checkpoints on this host, or both.
#[derive(Clone, Debug)]
pub struct Directory {
    project: Option<Project>,
    workspace: Option<Workspace>,
    /// How many checkpoints are kept of it, if it is gone.
    lost: u64,
}

/// Where a directory lies, and what is known of it before a store is opened.
#[derive(Clone, Debug)]
pub struct DirPlace {
    /// The directory.
    pub dir: PathBuf,
    /// Its checkpoints, if it is a workspace.
    pub workspace: Option<Workspace>,
    /// How many checkpoints are kept of it, if it is gone.
    pub lost: u64,
}

/// A snapshot of a directory, wherever it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DirSnapshot {
    /// In the store.
    Stored(SnapshotId),
    /// On this host.
    Checkpoint(Slot),
}

/// Where a snapshot is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotPlace {
    /// In the store: durable, and on any machine.
    Store,
    /// On this host.
    Here,
}

/// The last change that a command of ours made to a directory, and that can be taken back.
#[derive(Clone, Debug)]
pub enum LastChange {
    /// A revert, a restore or an undo of a workspace.
    Workspace(UndoRow),
    /// A restore of a snapshot of the store.
    Restore(RestoreRecord),
    /// A change of a workspace without an undo.
    Final,
}

impl fmt::Display for DirSnapshot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stored(id) => id.fmt(out),
            Self::Checkpoint(slot) => slot.fmt(out),
        }
    }
}

impl From<DirSnapshot> for SnapshotRef {
    fn from(snapshot: DirSnapshot) -> Self {
        Self::from(snapshot.to_string())
    }
}

impl DirPlace {
    /// The directory that somebody names, or that they stand in: then the nearest one, from there up, that is a workspace, has a file of ours,
    /// or was saved from this host.
    pub async fn find(named: Option<&Path>, host: &HostEnv) -> Result<Self, Error> {
        let here = named.unwrap_or(Path::new("."));
        if !here.is_dir() {
            // One that is gone is known by what was saved of it.
            let lost = lost_workspace(here, host).await;
            if let Some(lost) = &lost
                && !Home::is_subject(here, Some(&host.state)).await?
            {
                return Err(only_lost(lost));
            }
            return Ok(Self {
                dir: here.to_owned(),
                workspace: None,
                lost: lost.map_or(0, |lost| lost.checkpoints),
            });
        }
        let workspace = match Workspace::find(here, host).await {
            Ok(workspace) => Some(workspace),
            Err(Error::Workspace(error))
                if matches!(*error, WorkspaceError::NotAWorkspace { .. }) =>
            {
                None
            }
            Err(error) => return Err(error),
        };
        let dir = match named {
            Some(named) => named.to_owned(),
            None => Home::around(here, Some(&host.state)).await?,
        };
        let whole = whole(&dir).await;
        let Some(workspace) = workspace else {
            return Ok(Self::with(dir, None));
        };
        let around = workspace.directory().to_owned();
        if whole == around {
            return Ok(Self::with(dir, Some(workspace)));
        }
        // Nobody named a directory, and the one that we are in is nothing of its own: the workspace around it is meant.
        let is_nearer = around.starts_with(&whole);
        let is_own = Home::is_subject(&dir, Some(&host.state)).await?;
        if named.is_none() && (is_nearer || !is_own) {
            return Ok(Self::with(around, Some(workspace)));
        }
        Ok(Self::with(dir, None))
    }

    /// A directory that is there.
    pub fn with(dir: PathBuf, workspace: Option<Workspace>) -> Self {
        Self {
            dir,
            workspace,
            lost: 0,
        }
    }

    /// Whether a directory does without the usual store, which could not be opened: it is not there, and nothing was saved of the directory,
    /// so that there are only checkpoints, or nothing yet. Of one that is gone itself, the store may have all there is.
    pub async fn does_without(&self, missing: &Error, state: Option<&Path>) -> Result<bool, Error> {
        let is_absent = missing.kind() == ErrorKind::NotFound;
        Ok(is_absent && self.dir.is_dir() && !Home::is_subject(&self.dir, state).await?)
    }

    /// Makes a directory again that is gone and of which there are checkpoints, empty; says whether it did.
    pub async fn make_again(gone: &Path, host: &HostEnv) -> Result<bool, Error> {
        if gone.symlink_metadata().is_ok() || lost_workspace(gone, host).await.is_none() {
            return Ok(false);
        }
        let gone = gone.to_owned();
        bridge::blocking(move || std::fs::create_dir(&gone).at("make the directory", &gone))
            .await?;
        Ok(true)
    }

    /// Takes that back, if nothing was put into it.
    pub async fn unmake(dir: &Path) {
        let dir = dir.to_owned();
        // Whatever is in it by now stays.
        let _ = bridge::blocking(move || std::fs::remove_dir(dir)).await;
    }
}

/// The workspace that lay where nothing is any more, if checkpoints of it are kept.
async fn lost_workspace(gone: &Path, host: &HostEnv) -> Option<WorkspaceRow> {
    let (path, state) = (std::path::absolute(gone).ok()?, host.state.clone());
    let rows = bridge::blocking(move || workspaces(&state)).await;
    let is_lost = |row: &WorkspaceRow| !row.is_there && Path::new(&row.workspace) == path;
    let mut lost = rows.into_iter().filter(is_lost);
    lost.find(|row| row.checkpoints > 0)
}

/// Says of a directory that is gone, and of which there are only checkpoints, how those come back.
fn only_lost(lost: &WorkspaceRow) -> Error {
    let dir = shell_word(&lost.workspace);
    let said = format!(
        "`{}` is gone; its checkpoints are kept ({})",
        lost.workspace, lost.checkpoints
    );
    let hint = format!(
        "`stasis restore {dir} cp-N --yes` makes it again; `mkdir {dir}`, and `stasis log {dir}` lists which there are"
    );
    Failure::of(ErrorKind::NotFound, said)
        .with_hint(hint)
        .into()
}

async fn whole(dir: &Path) -> PathBuf {
    let dir = dir.to_owned();
    bridge::blocking(move || dir.canonicalize().unwrap_or(dir)).await
}

/// A snapshot, as far as its time is concerned.
struct Moment {
    at: Timestamp,
    snapshot: DirSnapshot,
}

impl Candidate for &Moment {
    fn id(&self) -> Cow<'_, str> {
        self.snapshot.to_string().into()
    }

    fn at(&self) -> Timestamp {
        self.at
    }
}

impl Directory {
    /// A directory with what was found of it: its project in a store that was opened, its checkpoints, or both. Checkpoints of more, or
    /// less, than what the project saves are another subject's.
    pub fn new(project: Option<Project>, workspace: Option<Workspace>) -> Self {
        let is_same = |one: &Workspace| {
            let live = project.as_ref().map(Project::live);
            live.is_none_or(|live| {
                live.canonicalize()
                    .is_ok_and(|live| live == one.directory())
            })
        };
        let workspace = workspace.filter(is_same);
        Self {
            project,
            workspace,
            lost: 0,
        }
    }

    /// The same of one that is gone, and of which so many checkpoints are kept.
    #[must_use]
    pub fn with_lost(self, lost: u64) -> Self {
        Self { lost, ..self }
    }

    /// Its checkpoints.
    pub fn workspace(&self) -> Result<&Workspace, Error> {
        self.workspace.as_ref().ok_or_else(|| {
            let dir = self.project.as_ref().map(|one| one.home().dir.display());
            let dir = dir.map_or_else(|| "the directory".to_owned(), |dir| format!("`{dir}`"));
            let said = format!("{dir} has no checkpoints");
            let failure = Failure::of(ErrorKind::NotFound, said);
            failure
                .with_hint("`stasis protect DIR` makes them from now on; `stasis log` lists what is saved of it")
                .into()
        })
    }

    /// Where it lies.
    pub fn dir(&self) -> Result<&Path, Error> {
        match &self.workspace {
            Some(workspace) => Ok(workspace.directory()),
            None => Ok(&self.project()?.home().dir),
        }
    }

    /// Its snapshots in the store.
    pub fn project(&self) -> Result<&Project, Error> {
        self.project.as_ref().ok_or_else(|| {
            {
                let failure = Failure::of(
                    ErrorKind::NotFound,
                    "nothing was saved of it yet, and there is no store",
                );
                failure.with_hint("`stasis save` saves it; `stasis log` lists its checkpoints")
            }
            .into()
        })
    }

    /// The snapshot that somebody means. Where there is none, the error says which may have been meant.
    pub async fn locate(&self, wanted: &SnapshotRef) -> Result<DirSnapshot, Error> {
        match self.located(wanted).await {
            Err(error) => Err(self.or_near(wanted, error).await),
            found => found,
        }
    }

    async fn located(&self, wanted: &SnapshotRef) -> Result<DirSnapshot, Error> {
        match wanted {
            SnapshotRef::Checkpoint(number) => {
                let which = CheckpointRef::Slot(Slot::new(*number));
                let row = self.workspace()?.row(&which).await?;
                Ok(DirSnapshot::Checkpoint(Slot::new(row.slot)))
            }
            SnapshotRef::Time(_) if self.workspace.is_some() => self.by_time(wanted).await,
            SnapshotRef::Text(text) => match self.stored(wanted).await {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.named_checkpoint(text).await?.ok_or(error)
                }
                found => found,
            },
            _ => match self.stored(wanted).await {
                // Of what was saved, an earlier one may be missing: that is another matter.
                Err(error)
                    if self.is_only_here(&error)
                        && self.stored(&SnapshotRef::Latest).await.is_err() =>
                {
                    Err(self.only_checkpoints().await?)
                }
                found => found,
            },
        }
    }

    /// Says to somebody who wants what was saved last that there are only checkpoints, and which.
    async fn only_checkpoints(&self) -> Result<Error, Error> {
        let rows = self.workspace()?.list(false).await?.snapshots;
        let newest = rows.iter().take(NAMED).map(|row| {
            let name = row.name.as_ref().map(|name| format!(" \"{name}\""));
            let (checkpoint, age) = (&row.checkpoint, &row.age);
            format!("{checkpoint}{} ({age})", name.unwrap_or_default())
        });
        let newest: Vec<String> = newest.collect();
        let Some(first) = rows.first() else {
            let said = "nothing of it was saved yet, and it has no checkpoints";
            let failure = Failure::of(ErrorKind::NotFound, said);
            return Ok(failure.with_hint("`stasis save` saves it").into());
        };
        let said = format!(
            "nothing of it was saved in the store, so that there is no `latest`; it has checkpoints: {}",
            newest.join(", ")
        );
        let hint = format!(
            "`stasis diff {0}` shows what differs from the newest of them, `stasis restore {0}` restores it; `stasis log` lists all",
            first.checkpoint
        );
        Ok(Failure::of(ErrorKind::NotFound, said)
            .with_hint(hint)
            .into())
    }

    async fn stored(&self, wanted: &SnapshotRef) -> Result<DirSnapshot, Error> {
        let id = self.project()?.located(wanted).await?;
        Ok(DirSnapshot::Stored(id))
    }

    async fn named_checkpoint(&self, text: &str) -> Result<Option<DirSnapshot>, Error> {
        let (Some(workspace), Ok(which)) = (&self.workspace, text.parse::<CheckpointRef>()) else {
            return Ok(None);
        };
        match workspace.row(&which).await {
            Ok(row) => Ok(Some(DirSnapshot::Checkpoint(Slot::new(row.slot)))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The newest of both that was made by then.
    async fn by_time(&self, wanted: &SnapshotRef) -> Result<DirSnapshot, Error> {
        let all = self.moments().await?;
        let clock = self.workspace()?.clock();
        let found = wanted.resolve(&all, || None, typed_at(clock));
        found.map(|one| one.snapshot.clone()).map_err(|_| {
            let said = format!("no snapshot of it was made by {wanted}");
            let failure = Failure::of(ErrorKind::NotFound, said);
            failure
                .with_hint("`stasis log` lists them, with their times")
                .into()
        })
    }

    /// All snapshots, with their times.
    async fn moments(&self) -> Result<Vec<Moment>, Error> {
        let mut all = match &self.project {
            Some(project) => self.stored_moments(project).await?,
            None => Vec::new(),
        };
        if let Some(workspace) = &self.workspace {
            let rows = workspace.list(false).await?.snapshots.into_iter();
            all.extend(rows.map(|row| Moment {
                at: Timestamp::from_millis(row.epoch_millis),
                snapshot: DirSnapshot::Checkpoint(Slot::new(row.slot)),
            }));
        }
        Ok(all)
    }

    async fn stored_moments(&self, project: &Project) -> Result<Vec<Moment>, Error> {
        let rows = match project.indexed().await {
            Err(error) if self.is_only_here(&error) => Vec::new(),
            rows => rows?,
        };
        let moment = |row: Indexed| Moment {
            at: row.at_ms,
            snapshot: DirSnapshot::Stored(row.id),
        };
        Ok(rows.into_iter().map(moment).collect())
    }

    /// Whether an error only says that the store has nothing of a directory that has checkpoints.
    fn is_only_here(&self, error: &Error) -> bool {
        self.workspace.is_some() && error.kind() == ErrorKind::NotFound
    }

    /// A checkpoint, as a list shows it.
    pub async fn checkpoint(&self, slot: Slot) -> Result<CheckpointRow, Error> {
        self.workspace()?.row(&CheckpointRef::Slot(slot)).await
    }

    /// The entries of a snapshot in `path`, in order.
    pub async fn ls(&self, of: &DirSnapshot, path: &EntryPath) -> Result<Vec<ListedEntry>, Error> {
        match of {
            DirSnapshot::Stored(id) => self.project()?.ls(&id_ref(id), path).await,
            DirSnapshot::Checkpoint(slot) => {
                let which = CheckpointRef::Slot(*slot);
                self.workspace()?.ls(&which, path).await
            }
        }
    }

    /// Writes the content of one file of a snapshot; the inner error is that of `out`.
    pub async fn cat(
        &self,
        of: &DirSnapshot,
        path: &EntryPath,
        out: impl Write + Send + 'static,
    ) -> Result<io::Result<u64>, Error> {
        match of {
            DirSnapshot::Stored(id) => self.project()?.cat(&id_ref(id), path, out).await,
            DirSnapshot::Checkpoint(slot) => {
                let which = CheckpointRef::Slot(*slot);
                self.workspace()?.cat(&which, path, out).await
            }
        }
    }

    /// Everything that a snapshot has.
    async fn contents(&self, of: &DirSnapshot) -> Result<Manifest, Error> {
        match of {
            DirSnapshot::Stored(id) => {
                let (opened, source) = self.project()?.opened(id).await?;
                let work = move || contents_of_list(&source, &opened.list);
                Ok(bridge::blocking(work).await.map_err(WorkspaceError::from)?)
            }
            DirSnapshot::Checkpoint(slot) => {
                let which = CheckpointRef::Slot(*slot);
                self.workspace()?.contents_of(&which).await
            }
        }
    }

    /// The last change that can be taken back; none if nothing was changed by a command of ours.
    pub async fn last_change(&self) -> Result<Option<LastChange>, Error> {
        let undo = match &self.workspace {
            Some(workspace) => workspace.undo_list().await?.into_iter().next(),
            None => None,
        };
        let record = match &self.project {
            Some(project) => project.last_restore().await?,
            None => None,
        };
        let last_final = self.workspace.as_ref().and_then(Workspace::last_final);
        let all = [
            last_final.map(|at| (at, LastChange::Final)),
            undo.map(|undo| (undo.epoch_millis, LastChange::Workspace(undo))),
            record.map(|record| (record.at_ms, LastChange::Restore(record))),
        ];
        // Of two at the same time, one that can be taken back.
        let last = all.into_iter().flatten().max_by_key(|(at, _)| *at);
        Ok(last.map(|(_, change)| change))
    }
}

/// A snapshot of the store by its whole id.
fn id_ref(id: &SnapshotId) -> SnapshotRef {
    SnapshotRef::Text(id.to_string())
}
