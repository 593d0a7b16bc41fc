//! The everyday verbs of a directory: `stasis save`, `restore`, `log`, `show`, `diff`, `ls`, `cat`, `find`, `du`, `check`, `pin`, `forget`, `gc`

use super::{ProjectSelector, is_absent, restore, save, show, upkeep};
use crate::cli::CliContext;
use crate::cli::byte_size::size;
use crate::cli::damage::DamageHints;
use crate::cli::directory::entry_path;
use crate::cli::first_checkpoint::is_no_workspace;
use crate::cli::output::{OutputLost, plural, printable, short, table};
use crate::cli::progress::watched;
use crate::cli::repo::{self, RepoCheckArgs};
use crate::cli::workspace;
use crate::report::{Exit, or_read_enough};
use anyhow::{Context as _, bail};
use clap::Args;
use serde::Serialize;
use stasis_engine::catalog::ListedEntry;
use stasis_engine::check::RepoChecked;
use stasis_engine::kind::project::{
    FoundVersion, FoundVersions, Home, Project, ProjectRestore, SubjectUse,
};
use stasis_engine::kind::workspace::{CheckedWorkspace, Workspace};
use stasis_engine::model::format::manifest::SaveReason;
use stasis_engine::model::snapshot_ref::SnapshotRef;
use stasis_engine::model::subject_ref::{self, SubjectRef};
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

    /// The one snapshot that is meant.
    fn snapshot(&self) -> SnapshotRef {
        self.snapshots
            .first()
            .cloned()
            .unwrap_or(SnapshotRef::Latest)
    }
}

/// A directory, and a snapshot of it.
#[derive(Debug, Args)]
struct OneSnapshot {
    /// The directory [default: the one you are in] or `dir:NAME` as `stasis list` shows it; and the snapshot: `latest`, `latest~2`, a
    /// time (@10:30, @-2h, @2026-11-15), an id or the beginning of one, or a label [default: latest]
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
        let dir = self.which.read(context)?.dir;
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
}

impl RestoreArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let typed = self.which.read(context)?;
        let command = ProjectRestore::new(typed.snapshot());
        let project = typed.look(context).await?;
        self.how.restore(context, &project, command).await
    }
}

/// `stasis log`
#[derive(Debug, Args)]
pub(in crate::cli) struct LogArgs {
    #[command(flatten)]
    which: NoSnapshot,
}

impl LogArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let project = self.which.read(context)?.look(context).await?;
        show::list(context, &project).await?;
        Ok(Exit::Done)
    }
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
        show::show(context, &typed.look(context).await?, &typed.snapshot()).await?;
        Ok(Exit::Done)
    }
}

/// `stasis diff`
#[derive(Debug, Args)]
pub(in crate::cli) struct DiffArgs {
    /// The directory [default: the one you are in] or `dir:NAME`; the older snapshot [default: latest]; and the newer one [default: what
    /// is there now]
    #[arg(value_name = "SUBJECT|SNAPSHOT", num_args = 0..=3)]
    words: Vec<OsString>,
}

impl DiffArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let typed = TypedWords::read(context, &self.words, 2)?;
        let project = typed.look(context).await?;
        show::diff(context, &project, &typed.snapshot(), typed.snapshots.get(1)).await?;
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
        let project = typed.look(context).await?;
        let mut entries = project.ls(&typed.snapshot(), &path).await?;
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
        let project = typed.look(context).await?;
        let written = project
            .cat(&typed.snapshot(), &path, std::io::stdout())
            .await?;
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
        let project = self.which.read(context)?.look(context).await?;
        let found = project.find_all(&self.pattern).await?;
        for one in &found.unreadable {
            let why = printable(&one.why);
            let warning = format!("warning: {} could not be read: {why}", one.snapshot_id);
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
    let row = |one: &FoundVersion| {
        let snapshots = if one.first == one.last {
            short(&one.first)
        } else {
            format!("{} to {}", short(&one.first), short(&one.last))
        };
        vec![
            one.first_at.clone(),
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
        let project = self.which.read(context)?.look(context).await?;
        let used = project.du().await?;
        context.output.result(&used, used_text)?;
        Ok(Exit::Done)
    }
}

fn used_text(used: &SubjectUse) -> String {
    let rows = used.items.iter().map(|one| {
        vec![
            short(&one.snapshot.snapshot_id),
            one.snapshot.timestamp.clone(),
            size(one.snapshot.bytes),
            size(one.bytes_stored),
            size(one.bytes_freed),
        ]
    });
    let table = table(
        &["SNAPSHOT", "TIME", "CONTENTS", "STORED", "FREED WITHOUT IT"],
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
#[derive(Serialize)]
struct CheckedDirectory {
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
        upkeep::pin(
            context,
            &typed.look(context).await?,
            &typed.snapshot(),
            !self.off,
        )
        .await?;
        Ok(Exit::Done)
    }
}

/// `stasis forget`
#[derive(Debug, Args)]
pub(in crate::cli) struct ForgetArgs {
    /// The directory [default: the one you are in] or `dir:NAME`; and the snapshot: an id or the beginning of one, a label, a time or
    /// `latest~2`
    #[arg(value_name = "SUBJECT|SNAPSHOT", num_args = 1..=2, required = true)]
    words: Vec<OsString>,
}

impl ForgetArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let typed = TypedWords::read(context, &self.words, 1)?;
        let [snapshot] = &*typed.snapshots else {
            bail!("name the snapshot that is to be forgotten; `stasis log` lists them");
        };
        upkeep::delete(context, &typed.look(context).await?, snapshot).await?;
        Ok(Exit::Done)
    }
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
        let dir = self.which.read(context)?.dir;
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
