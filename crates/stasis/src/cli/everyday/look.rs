//! `stasis log`, `show`, `diff`, `ls`, `cat`, `find` and `du`

use super::words::{NoSnapshot, OneSnapshot, TypedWords, located};
use crate::cli::byte_size::size;
use crate::cli::directory::entry_path;
use crate::cli::output::{OutputLost, plural, printable, short, table};
use crate::cli::profile::everyday as profile;
use crate::cli::project::{ProjectSelector, show, timeline};
use crate::cli::{CliContext, envelope, system_clock, workspace};
use crate::report::{Exit, or_read_enough};
use anyhow::Context as _;
use clap::Args;
use stasis_engine::address::shell_word;
use stasis_engine::catalog::ListedEntry;
use stasis_engine::find::{FoundVersion, FoundVersions};
use stasis_engine::kind::directory::{DirDiff, DirSnapshot, TimelineQuery};
use stasis_engine::kind::project::SubjectUse;
use stasis_engine::model::snapshot_ref::SnapshotRef;
use stasis_engine::model::time::{Clock as _, Timestamp};
use std::ffi::OsString;

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
        let typed = self.which.read(context)?;
        let most = if self.all { usize::MAX } else { self.number };
        if let Some(profile) = typed.profile() {
            return profile::log(context, profile, most).await;
        }
        let directory = typed.directory(context).await?;
        let query = TimelineQuery {
            most,
            changes: match (self.changes, self.no_changes) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
        };
        let timeline = directory.timeline(query).await?;
        workspace::warn_unreadable(context, &timeline.unreadable);
        workspace::warn_of_hooks(context, timeline.hook_warning.as_deref());
        if timeline.lost_checkpoints > 0 {
            let (kept, dir) = (timeline.lost_checkpoints, typed.dir()?);
            let dir = dir.display().to_string();
            let dir = shell_word(&dir);
            context.output.say(&format!(
                "warning: the directory is gone, and {} of it on this host are not listed: `mkdir {dir}` first, or `stasis restore {dir} cp-N --yes`",
                plural(kept, "checkpoint")
            ));
        }
        let now = system_clock().now();
        let text = |timeline: &_| timeline::text(timeline, now);
        context.output.result(&timeline, text)?;
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
        if let Some(profile) = typed.profile() {
            return profile::show(context, profile, typed.snapshots.first()).await;
        }
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
        if let Some(profile) = typed.profile() {
            return profile::diff(context, profile, &typed.snapshots).await;
        }
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
        let mut entries = if let Some(profile) = typed.profile() {
            profile::ls(context, profile, &typed.snapshot(), &path).await?
        } else {
            let directory = typed.directory(context).await?;
            let of = located(&directory, &typed.snapshot()).await?;
            envelope::about_snapshot(of.to_string());
            directory.ls(&of, &path).await?
        };
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
        let written = if let Some(profile) = typed.profile() {
            profile::cat(context, profile, &typed.snapshot(), &path).await?
        } else {
            let directory = typed.directory(context).await?;
            let of = located(&directory, &typed.snapshot()).await?;
            directory.cat(&of, &path, std::io::stdout()).await?
        };
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
        let typed = self.which.read(context)?;
        let found = if let Some(profile) = typed.profile() {
            profile::find(context, profile, &self.pattern).await?
        } else {
            let directory = typed.directory(context).await?;
            directory.find_all(&self.pattern).await?
        };
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
        let typed = self.which.read(context)?;
        if let Some(profile) = typed.profile() {
            return profile::du(context, profile).await;
        }
        let dir = typed.place(context).await?;
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
