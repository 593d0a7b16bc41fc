//! The everyday verbs of a directory: `stasis save`, `restore`, `undo`, `log`, `show`, `diff`, `ls`, `cat`, `find`, `du`, `check`, `pin`, `forget`, `gc`

use super::{ProjectSelector, is_absent, restore, save, show, timeline, upkeep};
use crate::cli::byte_size::size;
use crate::cli::damage::DamageHints;
use crate::cli::directory::entry_path;
use crate::cli::first_checkpoint::is_no_workspace;
use crate::cli::output::{OutputLost, plural, printable, short, table};
use crate::cli::progress::{cancel_on_signals, watched};
use crate::cli::repo::{self, RepoCheckArgs};
use crate::cli::{CliContext, ask, envelope, system_clock, workspace};
use crate::report::{Exit, or_read_enough};
use anyhow::{Context as _, bail, ensure};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::catalog::ListedEntry;
use stasis_engine::check::RepoChecked;
use stasis_engine::kind::directory::{
    DirDiff, DirPlace, DirSnapshot, Directory, FoundVersion, FoundVersions, LastChange,
    TimelineQuery,
};
use stasis_engine::kind::project::{
    Home, Project, ProjectRestore, RestoreRecord, SubjectUse, UndoRestore,
};
use stasis_engine::kind::workspace::{CheckedWorkspace, RunMode, UndoChange, Workspace};
use stasis_engine::model::format::manifest::SaveReason;
use stasis_engine::model::snapshot_ref::SnapshotRef;
use stasis_engine::model::subject_ref::{self, DIR_PREFIX, SubjectRef};
use stasis_engine::model::time::{Clock as _, Timestamp};
use stasis_engine::model::tree::EntryPath;
use stasis_engine::model::workspace::{CheckpointRef, Slot};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory and snapshots of it, as they were typed.
struct TypedWords {
    dir: PathBuf,
    snapshots: Vec<SnapshotRef>,
}

impl TypedWords {
    /// Understands what was typed where a directory and at most so many snapshots are meant.
    fn read(
        context: &CliContext,
        words: &[OsString],
        most_snapshots: usize,
    ) -> anyhow::Result<Self> {
        let state = context.environment.local_dirs.state.as_deref();
        let is_dir = |path: &Path| Home::is_named(path, state);
        let read = subject_ref::read(words, most_snapshots, is_dir)?;
        let dir = match read.subject {
            SubjectRef::Here => PathBuf::from("."),
            SubjectRef::Path(path) => path,
            SubjectRef::Dir(name) => PathBuf::from(name),
            SubjectRef::Profile(profile) => bail!(
                "`profile:{profile}` is a browser profile, and this verb is not for profiles yet: `stasis profile --help` has what there is"
            ),
            _ => bail!("this verb is for directories"),
        };
        let snapshots = read.snapshots;
        Ok(Self { dir, snapshots })
    }

    async fn look(&self, context: &CliContext) -> anyhow::Result<Project> {
        ProjectSelector::of(&self.dir).look(context).await
    }

    /// The directory that is meant: where nobody named one, the nearest that is a workspace or was saved.
    async fn place(&self, context: &CliContext) -> anyhow::Result<PathBuf> {
        if self.dir != Path::new(".") {
            return Ok(self.dir.clone());
        }
        Ok(place(context, None).await?.dir)
    }

    /// The directory with its snapshots and its checkpoints. Where only checkpoints are named, no store is needed.
    async fn directory(&self, context: &CliContext) -> anyhow::Result<Directory> {
        let is_here = |one: &SnapshotRef| matches!(one, SnapshotRef::Checkpoint(_));
        let needs_store = self.snapshots.is_empty() || !self.snapshots.iter().all(is_here);
        if self
            .dir
            .to_str()
            .is_some_and(|dir| dir.starts_with(DIR_PREFIX))
        {
            let project = self.look(context).await?;
            let dir = project.home().dir.clone();
            let place = place(context, Some(&dir)).await?;
            return Ok(Directory::new(Some(project), place.workspace));
        }
        let named = Some(&*self.dir).filter(|dir| *dir != Path::new("."));
        let place = place(context, named).await?;
        if !needs_store {
            return Ok(Directory::new(None, place.workspace));
        }
        let project = match ProjectSelector::of(&place.dir).look(context).await {
            // Whoever has only checkpoints, or nothing yet, needs no store.
            Err(error)
                if context.is_usual_store()
                    && is_absent(&error)
                    && !is_saved(context, &place.dir).await? =>
            {
                None
            }
            project => Some(project?),
        };
        Ok(Directory::new(project, place.workspace))
    }

    /// The one snapshot that is meant.
    fn snapshot(&self) -> SnapshotRef {
        self.snapshots
            .first()
            .cloned()
            .unwrap_or(SnapshotRef::Latest)
    }
}

/// Whether a directory was saved before, so that a store that is not there is missed; also one that is not there itself.
async fn is_saved(context: &CliContext, dir: &Path) -> anyhow::Result<bool> {
    let state = context.environment.local_dirs.state.as_deref();
    Ok(!dir.is_dir() || Home::is_subject(dir, state).await?)
}

/// Where a directory lies, and whether it has checkpoints.
async fn place(context: &CliContext, named: Option<&Path>) -> anyhow::Result<DirPlace> {
    // Without a place for what this host knows, it knows no workspaces.
    let Ok(host) = context.environment.host_env() else {
        let dir = named.unwrap_or(Path::new(".")).to_owned();
        let workspace = None;
        return Ok(DirPlace { dir, workspace });
    };
    Ok(DirPlace::find(named, &host).await?)
}

/// A directory, and a snapshot of it.
#[derive(Debug, Args)]
struct OneSnapshot {
    /// The directory [default: the one you are in] or `dir:NAME` as `stasis list` shows it; and the snapshot: `latest`, `latest~2`, a
    /// checkpoint (cp-3), a time (@10:30, @-2h, @2026-11-15), an id or the beginning of one, or a label [default: latest]
    #[arg(value_name = "SUBJECT|SNAPSHOT", num_args = 0..=2)]
    words: Vec<OsString>,
}

/// A directory.
#[derive(Debug, Args)]
struct NoSnapshot {
    /// The directory, or `dir:NAME` as `stasis list` shows it [default: the one you are in]
    #[arg(value_name = "SUBJECT")]
    subject: Option<OsString>,
}

impl OneSnapshot {
    fn read(&self, context: &CliContext) -> anyhow::Result<TypedWords> {
        TypedWords::read(context, &self.words, 1)
    }
}

impl NoSnapshot {
    fn read(&self, context: &CliContext) -> anyhow::Result<TypedWords> {
        TypedWords::read(context, self.subject.as_slice(), 0)
    }
}

/// `stasis save`
#[derive(Debug, Args)]
pub(in crate::cli) struct SaveArgs {
    #[command(flatten)]
    which: NoSnapshot,
    #[command(flatten)]
    how: save::SaveOptions,
}

impl SaveArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let dir = self.which.read(context)?.place(context).await?;
        let project = ProjectSelector::of(&dir).open(context).await?;
        self.how.save(context, &project, SaveReason::Manual).await
    }
}

/// `stasis restore`
#[derive(Debug, Args)]
pub(in crate::cli) struct RestoreArgs {
    #[command(flatten)]
    which: OneSnapshot,
    #[command(flatten)]
    how: restore::RestoreOptions,
    /// Leave .git as it is: branch, commits and index
    #[arg(long, conflicts_with = "to")]
    keep_git: bool,
    /// Do not ask before a checkpoint is restored and anything is deleted
    #[arg(long, short)]
    yes: bool,
}

impl RestoreArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let typed = self.which.read(context)?;
        let directory = typed.directory(context).await?;
        let how = if self.keep_git {
            self.how.but_for(".git")
        } else {
            self.how
        };
        // Of a checkpoint too, entries are named from the top of what was saved.
        if let DirSnapshot::Checkpoint(slot) = located(&directory, &typed.snapshot()).await? {
            let (of, checkpoint) = (directory.workspace()?, CheckpointRef::Slot(slot));
            return how
                .restore_checkpoint(context, of, checkpoint, self.yes)
                .await;
        }
        let command = ProjectRestore::new(typed.snapshot());
        how.restore(context, directory.project()?, command).await
    }
}

/// `stasis log`
#[derive(Debug, Args)]
pub(in crate::cli) struct LogArgs {
    #[command(flatten)]
    which: NoSnapshot,
    /// Show this many, the newest first
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    number: usize,
    /// Show all
    #[arg(long, conflicts_with = "number")]
    all: bool,
    /// Count what changed in each, however many files that are [default: where it takes no long time]
    #[arg(long)]
    changes: bool,
    /// Do not count what changed
    #[arg(long, conflicts_with = "changes")]
    no_changes: bool,
}

impl LogArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let directory = self.which.read(context)?.directory(context).await?;
        let query = TimelineQuery {
            most: if self.all { usize::MAX } else { self.number },
            changes: match (self.changes, self.no_changes) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
        };
        let timeline = directory.timeline(query).await?;
        workspace::warn_unreadable(context, &timeline.unreadable);
        workspace::warn_of_hooks(context, timeline.hook_warning.as_deref());
        let now = system_clock().now();
        let text = |timeline: &_| timeline::text(timeline, now);
        context.output.result(&timeline, text)?;
        Ok(Exit::Done)
    }
}

/// The snapshot that is meant.
async fn located(directory: &Directory, wanted: &SnapshotRef) -> anyhow::Result<DirSnapshot> {
    Ok(directory.locate(wanted).await?)
}

/// `stasis undo`
#[derive(Debug, Args)]
pub(in crate::cli) struct UndoArgs {
    /// The directory [default: the one you are in]; and what is undone, as `stasis log` lists it: u-4 [default: the last restore,
    /// rewind, revert or undo]
    #[arg(value_name = "SUBJECT|u-N", num_args = 0..=2)]
    words: Vec<OsString>,
    /// Leave this entry as it is, with everything in it; may be given more than once
    #[arg(long, value_name = "PATH")]
    except: Vec<OsString>,
    /// Leave .git as it is: branch, commits and index
    #[arg(long)]
    keep_git: bool,
    /// Do not ask before anything is changed
    #[arg(long, short)]
    yes: bool,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
}

impl UndoArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let is_undo = |word: &&OsString| {
            let number = word.to_str().map(workspace::undo_number);
            number.is_some_and(|number| number.is_ok())
        };
        let undo = self.words.last().filter(is_undo);
        let words = &self.words[..self.words.len() - usize::from(undo.is_some())];
        ensure!(
            words.len() <= 1,
            "name one directory, and after it at most one undo, as in `u-4`"
        );
        let mut typed = TypedWords::read(context, words, 0)?;
        if undo.is_some() {
            // What a workspace takes back needs no store.
            typed.snapshots.push(SnapshotRef::Checkpoint(0));
        }
        let directory = typed.directory(context).await?;
        let number = undo.and_then(|word| word.to_str()?.strip_prefix("u-")?.parse().ok());
        let last = match number {
            Some(_) => None,
            None => directory.last_change().await?,
        };
        match (number, last) {
            (None, Some(LastChange::Final)) => Err(anyhow::anyhow!(
                "what was done last to the workspace was done without an undo; `stasis log` lists what there is"
            )),
            (None, Some(LastChange::Restore(record))) => {
                self.undo_restore(context, directory.project()?, Some(&record))
                    .await
            }
            (None, None) if directory.workspace().is_err() => {
                // It says that there is none, and what helps.
                self.undo_restore(context, directory.project()?, None).await
            }
            (number, _) => {
                let workspace = directory.workspace()?;
                let mut except = entries(&self.except)?;
                except.extend(self.keep_git.then(|| workspace.git_directory()));
                let command = UndoChange {
                    which: number,
                    except,
                    agreed: self.yes,
                    confirm: None,
                    run: if self.dry_run {
                        RunMode::Dry
                    } else {
                        RunMode::Real
                    },
                };
                workspace::undo(context, workspace, command).await
            }
        }
    }

    /// Takes back a restore from the store; where somebody is there to answer, it is shown first and asked for.
    async fn undo_restore(
        self,
        context: &CliContext,
        project: &Project,
        record: Option<&RestoreRecord>,
    ) -> anyhow::Result<Exit> {
        let progress = Arc::default();
        let mut except = entries(&self.except)?;
        if self.keep_git {
            except.push(entry_path(Some(&".git".into()))?);
        }
        let command = UndoRestore {
            dry_run: self.dry_run,
            except,
            cancel: cancel_on_signals()?,
            progress: Arc::clone(&progress),
        };
        if !self.yes && !self.dry_run && ask::is_interactive(context) {
            let look = UndoRestore {
                dry_run: true,
                ..command.clone()
            };
            let shown = Box::pin(project.undo_restore(record, look)).await?;
            context.output.insist(&restore::would(&shown));
            if !shown.changes.is_empty() && !ask::is_yes("Continue?")? {
                context.output.say("nothing was changed");
                return Ok(Exit::Cancelled);
            }
        }
        let work = Box::pin(project.undo_restore(record, command));
        let undone = watched(context.output, "undoing", progress, work).await?;
        restore::say_undone(context, project, &undone)
    }
}

/// Entries as people type them, from the top of what was saved.
fn entries(typed: &[OsString]) -> anyhow::Result<Vec<EntryPath>> {
    typed.iter().map(|path| entry_path(Some(path))).collect()
}

/// `stasis show`
#[derive(Debug, Args)]
pub(in crate::cli) struct ShowArgs {
    #[command(flatten)]
    which: OneSnapshot,
}

impl ShowArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let typed = self.which.read(context)?;
        let directory = typed.directory(context).await?;
        match located(&directory, &typed.snapshot()).await? {
            DirSnapshot::Stored(id) => {
                let id = SnapshotRef::Text(id.to_string());
                show::show(context, directory.project()?, &id).await?;
            }
            DirSnapshot::Checkpoint(slot) => {
                let row = directory.checkpoint(slot).await?;
                context.output.result(&row, workspace::checkpoint_text)?;
            }
        }
        Ok(Exit::Done)
    }
}

/// `stasis diff`
#[derive(Debug, Args)]
pub(in crate::cli) struct DiffArgs {
    /// The directory [default: the one you are in] or `dir:NAME`; the older snapshot or checkpoint [default: latest]; and the newer one
    /// [default: what is there now]
    #[arg(value_name = "SUBJECT|SNAPSHOT", num_args = 0..=3)]
    words: Vec<OsString>,
}

impl DiffArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let typed = TypedWords::read(context, &self.words, 2)?;
        let directory = typed.directory(context).await?;
        let before = located(&directory, &typed.snapshot()).await?;
        envelope::about_snapshot(before.to_string());
        let after = match typed.snapshots.get(1) {
            Some(after) => Some(located(&directory, after).await?),
            None => None,
        };
        let is_here = |one: &DirSnapshot| matches!(one, DirSnapshot::Checkpoint(_));
        if is_here(&before) || after.as_ref().is_some_and(is_here) {
            let diff = directory.diff(&before, after.as_ref()).await?;
            let text = |diff: &DirDiff| show::differences(&diff.entries).join("\n");
            context.output.result(&diff, text)?;
            return Ok(Exit::Done);
        }
        let (before, after) = (before.into(), after.map(SnapshotRef::from));
        show::diff(context, directory.project()?, &before, after.as_ref()).await?;
        Ok(Exit::Done)
    }
}

/// `stasis ls`
#[derive(Debug, Args)]
pub(in crate::cli) struct LsArgs {
    #[command(flatten)]
    which: OneSnapshot,
    /// Only this entry and what is in it
    #[arg(long, value_name = "PATH")]
    path: Option<OsString>,
    /// Everything in the directories too
    #[arg(long, short)]
    recursive: bool,
}

impl LsArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let typed = self.which.read(context)?;
        let path = entry_path(self.path.as_ref())?;
        let directory = typed.directory(context).await?;
        let of = located(&directory, &typed.snapshot()).await?;
        envelope::about_snapshot(of.to_string());
        let mut entries = directory.ls(&of, &path).await?;
        if !self.recursive {
            let above = if path.is_root() {
                String::new()
            } else {
                path.to_string()
            };
            entries.retain(|entry| is_directly_in(&entry.path, &above));
        }
        context.output.result(&entries, |all| ls_text(all))?;
        Ok(Exit::Done)
    }
}

/// Whether an entry is what was asked for, or lies in it without another directory between.
fn is_directly_in(path: &str, above: &str) -> bool {
    if path == above {
        return !path.is_empty();
    }
    let rest = match above {
        "" => Some(path),
        above => path
            .strip_prefix(above)
            .and_then(|rest| rest.strip_prefix('/')),
    };
    rest.is_some_and(|rest| !rest.contains('/'))
}

fn ls_text(entries: &[ListedEntry]) -> String {
    let rows = entries.iter().map(|entry| {
        let size = entry.size.map(size).unwrap_or_default();
        let mode = format!("{:04o}", entry.mode);
        vec![entry.kind.to_string(), mode, size, entry.path.clone()]
    });
    table(&["KIND", "MODE", "SIZE", "PATH"], rows.collect())
}

/// `stasis cat`
#[derive(Debug, Args)]
pub(in crate::cli) struct CatArgs {
    /// The directory [default: the one you are in], the snapshot [default: latest], and last the file, as it is called in the snapshot
    #[arg(value_name = "SUBJECT|SNAPSHOT|PATH", num_args = 1..=3, required = true)]
    words: Vec<OsString>,
}

impl CatArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let (path, words) = self.words.split_last().context("a path is needed")?;
        let typed = TypedWords::read(context, words, 1)?;
        let path = entry_path(Some(path))?;
        let directory = typed.directory(context).await?;
        let of = located(&directory, &typed.snapshot()).await?;
        let written = directory.cat(&of, &path, std::io::stdout()).await?;
        or_read_enough(written.map(drop).map_err(|error| OutputLost(error).into()))?;
        Ok(Exit::Done)
    }
}

/// `stasis find`
#[derive(Debug, Args)]
pub(in crate::cli) struct FindArgs {
    /// A name, or a pattern as in a .gitignore: `*.rs`, `src/*.rs`, `/README`
    pattern: String,
    #[command(flatten)]
    which: NoSnapshot,
}

impl FindArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let directory = self.which.read(context)?.directory(context).await?;
        let found = directory.find_all(&self.pattern).await?;
        for one in &found.unreadable {
            let why = printable(&one.why);
            let warning = format!("warning: {} could not be read: {why}", one.snapshot);
            context.output.say(&warning);
        }
        context.output.result(&found, found_text)?;
        Ok(match (&*found.items, &*found.unreadable) {
            (_, [_, ..]) => Exit::Corrupt,
            ([], []) => Exit::NotFound,
            _ => Exit::Done,
        })
    }
}

fn found_text(found: &FoundVersions) -> String {
    if found.items.is_empty() {
        let all = plural(found.snapshots, "snapshot");
        return format!("nothing like that is in {all}");
    }
    let now = system_clock().now();
    let row = |one: &FoundVersion| {
        let snapshots = if one.first == one.last {
            short(&one.first)
        } else {
            format!("{} to {}", short(&one.first), short(&one.last))
        };
        vec![
            Timestamp::from_millis(one.first_at_ms).age(now),
            snapshots,
            one.entry.size.map(size).unwrap_or_default(),
            one.entry.path.clone(),
        ]
    };
    let rows = found.items.iter().map(row).collect();
    table(&["SINCE", "SNAPSHOTS", "SIZE", "PATH"], rows)
}

/// `stasis du`
#[derive(Debug, Args)]
pub(in crate::cli) struct DuArgs {
    #[command(flatten)]
    which: NoSnapshot,
}

impl DuArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let dir = self.which.read(context)?.place(context).await?;
        let project = ProjectSelector::of(&dir).look(context).await?;
        let used = project.du().await?;
        context.output.result(&used, used_text)?;
        Ok(Exit::Done)
    }
}

fn used_text(used: &SubjectUse) -> String {
    let now = system_clock().now();
    let rows = used.items.iter().map(|one| {
        vec![
            short(&one.snapshot.snapshot_id),
            Timestamp::from_millis(one.snapshot.timestamp_ms).age(now),
            size(one.snapshot.bytes),
            size(one.bytes_stored),
            size(one.bytes_freed),
        ]
    });
    let table = table(
        &["SNAPSHOT", "AGE", "CONTENTS", "STORED", "FREED WITHOUT IT"],
        rows.collect(),
    );
    let (all, own) = (size(used.bytes_stored), size(used.bytes_own));
    format!("{table}\n{all} stored, {own} of them needed by no other directory")
}

/// `stasis check`
#[derive(Debug, Args)]
pub(in crate::cli) struct CheckArgs {
    #[command(flatten)]
    which: NoSnapshot,
    /// The whole store, instead of one directory
    #[arg(long, conflicts_with = "subject")]
    all: bool,
    #[command(flatten)]
    how: RepoCheckArgs,
}

/// What a check of a directory found: of its snapshots in the store, and of its checkpoints here.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct CheckedDirectory {
    #[serde(flatten)]
    snapshots: Option<RepoChecked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<CheckedWorkspace>,
}

impl CheckArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        if self.all {
            return self.how.run(context, None).await;
        }
        let typed = self.which.read(context)?;
        let checked = checked_snapshots(context, &typed, self.how.read_data).await;
        let (dir, snapshots) = match checked {
            Ok((dir, snapshots)) => (dir, Ok(snapshots)),
            Err(error) => (typed.dir, Err(error)),
        };
        let workspace = match checked_workspace(context, &dir).await {
            Err(error) if is_no_workspace(&error) => None,
            checked => Some(checked?),
        };
        let snapshots = match snapshots {
            // A workspace need not be saved: then there are only its checkpoints.
            Err(error) if workspace.is_some() && is_absent(&error) => None,
            snapshots => Some(snapshots?),
        };
        let checked = CheckedDirectory {
            snapshots,
            workspace,
        };
        context.output.result(&checked, CheckedDirectory::text)?;
        Ok(if checked.is_whole() {
            Exit::Done
        } else {
            Exit::Corrupt
        })
    }
}

/// Checks the snapshots of a directory in the store; says which directory that is.
async fn checked_snapshots(
    context: &CliContext,
    typed: &TypedWords,
    read_data: bool,
) -> anyhow::Result<(PathBuf, RepoChecked)> {
    let project = typed.look(context).await?;
    let progress = Arc::default();
    let check = project.check(read_data, Arc::clone(&progress));
    let checked = watched(context.output, "checking", progress, check).await?;
    Ok((project.home().dir.clone(), checked))
}

async fn checked_workspace(context: &CliContext, dir: &Path) -> anyhow::Result<CheckedWorkspace> {
    let dir = std::path::absolute(dir)?;
    let workspace = Workspace::find(&dir, &context.environment.host_env()?).await?;
    Ok(workspace.check().await?)
}

impl CheckedDirectory {
    fn is_whole(&self) -> bool {
        let snapshots = self.snapshots.as_ref();
        let workspace = self.workspace.as_ref();
        snapshots.is_none_or(|checked| checked.damage.is_empty())
            && workspace.is_none_or(|checked| checked.damaged.is_empty())
    }

    fn text(&self) -> String {
        let snapshots = self.snapshots.as_ref().map(|checked| {
            let hints = DamageHints {
                store: None,
                has_marked: checked.marked,
            };
            repo::checked_text(checked, &hints)
        });
        let workspace = self.workspace.as_ref().map(workspace::checked_text);
        let both = snapshots.into_iter().chain(workspace);
        both.collect::<Vec<_>>().join("\n")
    }
}

/// `stasis pin`
#[derive(Debug, Args)]
pub(in crate::cli) struct PinArgs {
    #[command(flatten)]
    which: OneSnapshot,
    /// Remove the pin
    #[arg(long)]
    off: bool,
}

impl PinArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let typed = self.which.read(context)?;
        let directory = typed.directory(context).await?;
        let id = match located(&directory, &typed.snapshot()).await? {
            DirSnapshot::Stored(id) => SnapshotRef::Text(id.to_string()),
            DirSnapshot::Checkpoint(slot) => bail!(
                "{slot} is a checkpoint of this machine, and checkpoints are not pinned: `stasis workspace create NAME` makes one that stays, `stasis save` keeps the state in the store"
            ),
        };
        upkeep::pin(context, directory.project()?, &id, !self.off).await?;
        Ok(Exit::Done)
    }
}

/// `stasis forget`
#[derive(Debug, Args)]
pub(in crate::cli) struct ForgetArgs {
    /// The directory [default: the one you are in] or `dir:NAME`; and the snapshots: an id or the beginning of one, a label, a time,
    /// `latest~2`, or a checkpoint (cp-3)
    #[arg(value_name = "SUBJECT|SNAPSHOT", num_args = 1.., required = true)]
    words: Vec<OsString>,
    /// Only show what would go
    #[arg(long)]
    dry_run: bool,
}

/// What is forgotten, or would be.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct Forgotten {
    forgotten: Vec<String>,
    dry_run: bool,
}

impl ForgetArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let typed = TypedWords::read(context, &self.words, usize::MAX)?;
        if typed.snapshots.is_empty() {
            bail!("name the snapshot that is to be forgotten; `stasis log` lists them");
        }
        let directory = typed.directory(context).await?;
        // All or nothing is found before anything goes.
        let (mut stored, mut here): (Vec<_>, Vec<Slot>) = (Vec::new(), Vec::new());
        for snapshot in &typed.snapshots {
            match located(&directory, snapshot).await? {
                DirSnapshot::Stored(id) if !stored.contains(&id) => stored.push(id),
                DirSnapshot::Checkpoint(slot) if !here.contains(&slot) => here.push(slot),
                _ => {}
            }
        }
        let run = if self.dry_run {
            RunMode::Dry
        } else {
            RunMode::Real
        };
        let mut forgotten = Vec::new();
        if !stored.is_empty() {
            let project = directory.project()?;
            forgotten.extend(stored.iter().map(ToString::to_string));
            project.forget(&stored, run).await?;
        }
        for slot in here {
            let checkpoint = CheckpointRef::Slot(slot);
            let gone = directory.workspace()?.delete(checkpoint, run).await?;
            forgotten.push(gone.checkpoint);
        }
        let dry_run = self.dry_run;
        let result = Forgotten { forgotten, dry_run };
        context.output.result(&result, forgotten_text)?;
        Ok(Exit::Done)
    }
}

fn forgotten_text(result: &Forgotten) -> String {
    let names: Vec<String> = result.forgotten.iter().map(short).collect();
    let names = names.join(", ");
    if result.dry_run {
        return format!("would forget {names}");
    }
    let is_here = |name: &String| SnapshotRef::from(&**name).is_spelt_out();
    let rest = if result.forgotten.iter().all(is_here) {
        ""
    } else {
        "; `stasis gc` frees the bytes in the store"
    };
    format!("forgot {names}{rest}")
}

/// `stasis gc`
#[derive(Debug, Args)]
pub(in crate::cli) struct GcArgs {
    #[command(flatten)]
    which: NoSnapshot,
    #[command(flatten)]
    how: upkeep::ProjectGcArgs,
}

impl GcArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let dir = self.which.read(context)?.place(context).await?;
        self.how.run(context, &ProjectSelector::of(&dir)).await?;
        Ok(Exit::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_shows_one_level() {
        assert!(is_directly_in("src", ""));
        assert!(!is_directly_in("src/main.rs", ""));
        assert!(is_directly_in("src", "src"));
        assert!(is_directly_in("src/main.rs", "src"));
        assert!(!is_directly_in("src/cli/mod.rs", "src"));
        assert!(!is_directly_in("srcs", "src"));
        assert!(!is_directly_in("", ""));
    }
}
