//! A directory that becomes what it was, wherever that is kept: planned first, and then done as it was planned.
//!
//! *Always true:* a change is made only where, looked at once more just before, it is the one that was agreed to: the same entries come,
//! change and go, and the same happens to the Git repository. What is deleted from a workspace is compared again under its lock.

use super::{DirSnapshot, Directory, LastChange};
use crate::diff::TreeDifference;
use crate::error::{Error, ErrorKind};
use crate::kind::project::{Project, ProjectRestore, ProjectRestored, RestoreRecord, UndoRestore};
use crate::kind::workspace::{
    ChangeOp, ChangePlan, GitPlan, LeftAloneEntry, PathChange, RestoreWorkspace, RunMode,
    UndoChange, Workspace,
};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::progress::Progress;
use stasis_model::digest::StoreDigest;
use stasis_model::failure::Failure;
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_model::tree::diff::ChangeKind;
use stasis_model::workspace::{CheckpointRef, Slot};
use std::sync::Arc;

/// How many entries of a plan are named, and of what was left.
const NAMED: usize = 100;
/// Where a repository keeps what it knows.
const GIT: &str = ".git";

/// What somebody wants to be done to a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InPlace {
    /// It becomes what it was in a snapshot or a checkpoint.
    Restore(DirSnapshot),
    /// The last change that a command of ours made to it is taken back.
    Undo,
}

/// What is done to a directory, or would be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ChangedInPlace {
    /// Whether it was done; else this is the plan.
    pub done: bool,
    /// The snapshot or the checkpoint that it becomes; of an undo what takes it back: `u-4`, or the snapshot made before a restore.
    pub snapshot: String,
    /// Entries that come back.
    pub creates: u64,
    /// Entries that become what they were.
    pub replaces: u64,
    /// Entries that go, because they did not exist then.
    pub deletes: u64,
    /// The first hundred of the entries, those that go before the others: `removed` goes, `added` comes back.
    pub items: Vec<TreeDifference>,
    /// What is done to the Git repository, which counts as one entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<GitPlan>,
    /// What whoever agrees to the plan gives back.
    pub digest: String,
    /// Whether an undo takes back what was done.
    pub can_be_undone: bool,
    /// Entries that are left as they are, because they are not ours, cannot be read, or are left out by now; the first hundred.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_alone: Vec<String>,
    /// Entries that others changed while this was done; the first hundred.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed_meanwhile: Vec<String>,
    /// What else there is to know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Directory {
    /// Says what a change would do, or does it if `agreed` is the digest of what it says.
    pub async fn change_in_place(
        &self,
        what: &InPlace,
        agreed: Option<String>,
        progress: &Arc<Progress>,
    ) -> Result<ChangedInPlace, Error> {
        let change = match what {
            InPlace::Restore(DirSnapshot::Checkpoint(slot)) => {
                Change::Checkpoint(self.workspace()?, *slot)
            }
            InPlace::Restore(DirSnapshot::Stored(id)) => {
                let restore = ProjectRestore {
                    progress: progress.clone(),
                    ..ProjectRestore::new(SnapshotRef::Text(id.to_string()))
                };
                Change::Stored(self.project()?, Box::new(restore))
            }
            InPlace::Undo => self.last_undo().await?,
        };
        let (plan, seen) = change.run(None, progress).await?;
        match agreed {
            None => Ok(plan),
            Some(agreed) if agreed != plan.digest => {
                let said = "something else would be changed now than what was agreed to";
                let failure = Failure::of(ErrorKind::Retry, said);
                let hint = "nothing was changed; look at the plan again";
                Err(failure.with_hint(hint).into())
            }
            Some(_) => {
                let (done, _) = change.run(Some(seen), progress).await?;
                Ok(ChangedInPlace {
                    done: done.done,
                    can_be_undone: done.can_be_undone,
                    left_alone: done.left_alone,
                    changed_meanwhile: done.changed_meanwhile,
                    warnings: done.warnings,
                    ..plan
                })
            }
        }
    }

    /// Refuses a checkpoint that is another one by now: their names are used again.
    pub async fn ensure_made_at(&self, of: &DirSnapshot, at_ms: u64) -> Result<(), Error> {
        let DirSnapshot::Checkpoint(slot) = of else {
            return Ok(());
        };
        if self.checkpoint(*slot).await?.epoch_millis == at_ms {
            return Ok(());
        }
        let said = format!("{of} is another checkpoint by now than the one that was chosen");
        let failure = Failure::of(ErrorKind::Retry, said);
        let hint = "nothing was changed; look at the timeline again";
        Err(failure.with_hint(hint).into())
    }

    async fn last_undo(&self) -> Result<Change<'_>, Error> {
        let none = match self.last_change().await? {
            Some(LastChange::Restore(record)) => {
                return Ok(Change::StoredUndo(self.project()?, Box::new(record)));
            }
            Some(LastChange::Workspace(_)) => return Ok(Change::Undo(self.workspace()?)),
            Some(LastChange::Final) => {
                "what was done last to the workspace was done without an undo"
            }
            None => "nothing was restored here that could be taken back",
        };
        Err(Failure::of(ErrorKind::NotFound, none).into())
    }
}

/// A change by those who know how to make it.
enum Change<'a> {
    Checkpoint(&'a Workspace, Slot),
    Undo(&'a Workspace),
    Stored(&'a Project, Box<ProjectRestore>),
    StoredUndo(&'a Project, Box<RestoreRecord>),
}

/// What they were shown to agree to.
enum Seen {
    Digest(String),
    Changes(Vec<TreeDifference>),
}

impl Change<'_> {
    /// Does what was seen, or only looks.
    async fn run(
        &self,
        seen: Option<Seen>,
        progress: &Arc<Progress>,
    ) -> Result<(ChangedInPlace, Seen), Error> {
        let (confirm, agreed) = match seen {
            Some(Seen::Digest(digest)) => (Some(digest), None),
            Some(Seen::Changes(changes)) => (None, Some(changes)),
            None => (None, None),
        };
        match self {
            Self::Checkpoint(workspace, slot) => restored(workspace, *slot, confirm).await,
            Self::Undo(workspace) => undone(workspace, confirm).await,
            Self::Stored(project, restore) => {
                let command = ProjectRestore {
                    dry_run: agreed.is_none(),
                    agreed,
                    ..(**restore).clone()
                };
                let restored = Box::pin(project.restore(command)).await?;
                Ok(ChangedInPlace::of_store(restored))
            }
            Self::StoredUndo(project, record) => {
                let command = UndoRestore {
                    dry_run: agreed.is_none(),
                    except: Vec::new(),
                    agreed,
                    cancel: Arc::default(),
                    progress: progress.clone(),
                };
                let undone = Box::pin(project.undo_restore(Some(record), command)).await?;
                Ok(ChangedInPlace::of_store(undone))
            }
        }
    }
}

async fn restored(
    workspace: &Workspace,
    slot: Slot,
    confirm: Option<String>,
) -> Result<(ChangedInPlace, Seen), Error> {
    let command = RestoreWorkspace {
        checkpoint: CheckpointRef::Slot(slot),
        except: Vec::new(),
        no_undo: false,
        agreed: false,
        run: run(confirm.as_deref()),
        confirm,
    };
    let done = workspace.restore(command).await?;
    let seen = Seen::Digest(done.plan.digest.clone());
    let excluded = done.excluded_now.into_iter().flat_map(|one| one.paths);
    let changed = ChangedInPlace {
        done: done.restored,
        can_be_undone: done.undo.is_some(),
        left_alone: first(paths(done.left_alone).chain(excluded)),
        changed_meanwhile: first(done.changed_meanwhile),
        ..ChangedInPlace::of_workspace(done.plan, done.checkpoint)
    };
    Ok((changed, seen))
}

async fn undone(
    workspace: &Workspace,
    confirm: Option<String>,
) -> Result<(ChangedInPlace, Seen), Error> {
    let command = UndoChange {
        which: None,
        except: Vec::new(),
        agreed: false,
        run: run(confirm.as_deref()),
        confirm,
    };
    let done = workspace.undo(command).await?;
    let seen = Seen::Digest(done.plan.digest.clone());
    let changed = ChangedInPlace {
        done: !done.dry_run,
        can_be_undone: done.redo.is_some(),
        left_alone: first(paths(done.left_alone)),
        changed_meanwhile: first(done.changed_meanwhile),
        ..ChangedInPlace::of_workspace(done.plan, done.undo)
    };
    Ok((changed, seen))
}

fn run(agreed: Option<&str>) -> RunMode {
    match agreed {
        Some(_) => RunMode::Real,
        None => RunMode::Dry,
    }
}

fn paths(left_alone: Vec<LeftAloneEntry>) -> impl Iterator<Item = String> {
    left_alone.into_iter().map(|one| one.path)
}

fn first<T>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    all.into_iter().take(NAMED).collect()
}

/// What a change does to the directory that changed so since the snapshot.
fn taken_back(change: ChangeKind) -> ChangeKind {
    match change {
        ChangeKind::Added => ChangeKind::Removed,
        ChangeKind::Removed => ChangeKind::Added,
        other => other,
    }
}

impl ChangedInPlace {
    /// What a workspace says of it.
    fn of_workspace(plan: ChangePlan, snapshot: String) -> Self {
        let item = |one: PathChange| TreeDifference {
            path: one.path,
            change: match one.op {
                ChangeOp::Created => ChangeKind::Added,
                ChangeOp::Modified => ChangeKind::Content,
                ChangeOp::Deleted => ChangeKind::Removed,
            },
        };
        let items = plan.sample.into_iter().map(item).collect();
        let git = plan.git.as_ref();
        let git = git.map(|git| (&git.moves, git.commits_leaving, git.entries));
        let identity = format!("{} {} {git:?}", plan.digest, plan.replaces);
        Self {
            creates: plan.creates,
            replaces: plan.replaces,
            deletes: plan.deletes,
            ..Self::planned(snapshot, items, &identity)
        }
        .with_git(plan.git)
    }

    /// What a project says of a change whose contents come from the store: what it was, against what is there now.
    fn of_store(restored: ProjectRestored) -> (Self, Seen) {
        let items = restored.changes.iter().map(|one| TreeDifference {
            path: one.path.clone(),
            change: taken_back(one.change),
        });
        let items: Vec<_> = items.collect();
        let is_git = |one: &TreeDifference| one.path.split('/').next() == Some(GIT);
        let mut warnings: Vec<String> = restored.warnings.iter().map(ToString::to_string).collect();
        if items.iter().any(is_git) {
            let said = "the Git repository changes with it: commits that were made since leave their branches";
            warnings.push(said.to_owned());
        }
        let in_place = restored.in_place;
        let set_aside = restored.set_aside.into_iter();
        warnings.extend(set_aside.map(|one| {
            format!(
                "{} is in no snapshot ({}), but kept beside the directory",
                one.path, one.reason
            )
        }));
        let stayed = in_place.iter().flat_map(|all| {
            let refused = all.not_permitted.iter();
            refused.chain(&all.left_alone).cloned()
        });
        let meanwhile = in_place.iter().flat_map(|all| all.changed_meanwhile.iter());
        let count =
            |wanted: ChangeKind| items.iter().filter(|one| one.change == wanted).count() as u64;
        let (creates, deletes) = (count(ChangeKind::Added), count(ChangeKind::Removed));
        let snapshot = restored.snapshot_id.to_string();
        let changed = Self {
            done: !restored.dry_run && !restored.undone,
            creates,
            deletes,
            replaces: items.len() as u64 - creates - deletes,
            can_be_undone: restored.can_be_undone,
            left_alone: first(stayed.chain(restored.changed_since)),
            changed_meanwhile: first(meanwhile.cloned()),
            warnings,
            ..Self::planned(snapshot, items, "")
        };
        (changed, Seen::Changes(restored.changes))
    }

    /// A plan of these entries; its digest stands for them, and for what else tells it from another plan.
    fn planned(snapshot: String, mut items: Vec<TreeDifference>, identity: &str) -> Self {
        let lines = items.iter();
        let lines = lines.map(|one| format!("{} {}\n", one.change, one.path));
        let whole = format!("{snapshot}\n{identity}\n{}", lines.collect::<String>());
        items.sort_by_key(|one| one.change != ChangeKind::Removed);
        items.truncate(NAMED);
        Self {
            done: false,
            snapshot,
            creates: 0,
            replaces: 0,
            deletes: 0,
            items,
            git: None,
            digest: StoreDigest::of(whole.as_bytes()).to_string(),
            can_be_undone: false,
            left_alone: Vec::new(),
            changed_meanwhile: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn with_git(self, git: Option<GitPlan>) -> Self {
        Self { git, ..self }
    }
}
