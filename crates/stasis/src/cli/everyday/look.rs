//! `stasis log`, `show`, `diff`, `ls`, `cat`, `find` and `du`

use super::words::{NoSnapshot, OneSnapshot, TypedWords};
use crate::cli::byte_size::size;
use crate::cli::directory::entry_path;
use crate::cli::output::{OutputLost, plural, printable, short, table};
use crate::cli::profile::everyday as profile;
use crate::cli::project::{show, timeline};
use crate::cli::workspace::ComparedArgs;
use crate::cli::{CliContext, container, envelope, system_clock, workspace};
use crate::report::{Exit, or_read_enough};
use anyhow::{Context as _, ensure};
use clap::Args;
use stasis_engine::address::shell_word;
use stasis_engine::catalog::ListedEntry;
use stasis_engine::find::{FoundVersion, FoundVersions};
use stasis_engine::kind::directory::{
    DirDiff, DirSnapshot, Directory, DirectoryUse, EntryIn, Timeline, TimelineQuery,
};
use stasis_engine::model::snapshot_ref::SnapshotRef;
use stasis_engine::model::time::{Clock as _, Timestamp};
use stasis_engine::model::tree::EntryPath;
use std::ffi::OsString;

/// `stasis log`
#[derive(Debug, Args)]
pub(in crate::cli) struct LogArgs {
    #[command(flatten)]
    which: NoSnapshot,
    /// Show this many, the newest first
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    number: usize,
    /// Show all; of a session also what was stored and not published
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
            published_only: typed.is_session() && !self.all,
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
        let text = |timeline: &Timeline| match typed.session() {
            Some(session) if timeline.items.is_empty() => {
                format!("nothing is saved of it yet: `stasis session snapshot {session}` saves it")
            }
            of => timeline::text(timeline, now, of.is_some()),
        };
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
        if let Some(of) = typed.container() {
            let host = container::default_host(context);
            return container::show(context, &host, &typed.snapshot(), Some(of)).await;
        }
        let directory = typed.directory(context).await?;
        match typed
            .located(context, &directory, &typed.snapshot())
            .await?
        {
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
    /// The directory [default: the one you are in], `dir:NAME`, `session:TENANT/SESSION` or `container:NAME`; the older snapshot or checkpoint [default: the newest]; and the newer one
    /// [default: what is there now]
    #[arg(value_name = "SUBJECT|SNAPSHOT", num_args = 0..=3)]
    words: Vec<OsString>,
    #[command(flatten)]
    shown: ComparedArgs,
}

impl DiffArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let typed = TypedWords::read(context, &self.words, 2)?;
        if let Some(profile) = typed.profile() {
            ensure!(
                !self.shown.is_any(),
                "what differs in a profile is no text: leave out --patch and --stat"
            );
            return profile::diff(context, profile, &typed.snapshots).await;
        }
        if let Some(of) = typed.container() {
            ensure!(
                !self.shown.is_any(),
                "what differs in a container is no text: leave out --patch and --stat"
            );
            let host = container::default_host(context);
            let both = (&typed.snapshot(), typed.snapshots.get(1));
            return container::diff(context, &host, both, Some(of)).await;
        }
        let directory = typed.directory(context).await?;
        let before = before(context, &typed, &directory).await?;
        envelope::about_snapshot(before.to_string());
        let after = match typed.snapshots.get(1) {
            Some(after) => Some(typed.located(context, &directory, after).await?),
            None => None,
        };
        let wanted = self.shown.content();
        let diff = directory.diff(&before, after.as_ref(), wanted).await?;
        let lacks_entry = workspace::say_gaps(context, &diff.content.not_in_patch);
        if diff.items.is_empty() {
            let after = diff.after.as_ref().map(short);
            let after = after.unwrap_or_else(|| "what is there now".to_owned());
            let before = short(&diff.before);
            let said = format!("nothing differs between {before} and {after}");
            context.output.say(&said);
        }
        context.output.result(&diff, diff_text)?;
        Ok(if lacks_entry {
            Exit::Incomplete
        } else {
            Exit::Done
        })
    }
}

/// The older side: where none is named, what the directory was last known to be. Which that is, is said.
async fn before(
    context: &CliContext,
    typed: &TypedWords,
    directory: &Directory,
) -> anyhow::Result<DirSnapshot> {
    let newest = if typed.snapshots.is_empty() {
        directory.newest().await?
    } else {
        None
    };
    let Some((newest, at)) = newest else {
        return typed.located(context, directory, &typed.snapshot()).await;
    };
    let age = at.age(system_clock().now());
    let name = short(&newest);
    context.output.say(&format!("compared with {name} ({age})"));
    Ok(newest)
}

fn diff_text(diff: &DirDiff) -> String {
    match (&diff.content.patch, &diff.content.stat) {
        (Some(patch), _) => workspace::patch_text(patch),
        (None, Some(_)) if diff.items.is_empty() => String::new(),
        (None, Some(stat)) => workspace::stat_text(stat),
        (None, None) => show::listed_text(&diff.items, &diff.tables, &diff.uncounted),
    }
}

/// `stasis ls`
#[derive(Debug, Args)]
pub(in crate::cli) struct LsArgs {
    #[command(flatten)]
    which: OneSnapshot,
    /// Only this entry and what is in it: from where you stand in the directory, else from its top
    #[arg(long, value_name = "PATH")]
    path: Option<OsString>,
    /// Everything in the directories too
    #[arg(long, short)]
    recursive: bool,
}

impl LsArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let typed = self.which.read(context)?;
        let mut path = EntryPath::root();
        let mut entries = if let Some(profile) = typed.profile() {
            path = entry_path(self.path.as_ref())?;
            profile::ls(context, profile, &typed.snapshot(), &path).await?
        } else {
            let directory = typed.directory(context).await?;
            let of = typed
                .located(context, &directory, &typed.snapshot())
                .await?;
            envelope::about_snapshot(of.to_string());
            if let Some(named) = &self.path {
                let within = EntryIn::Snapshot(&of);
                path = typed.entry(&directory, named, within).await?;
            }
            directory.ls(&of, &path).await?
        };
        if !self.recursive {
            entries.retain(|entry| entry.is_directly_in(&path));
        }
        context.output.result(&entries, |all| ls_text(all))?;
        Ok(Exit::Done)
    }
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
    /// The directory [default: the one you are in], the snapshot [default: latest], and last the file: from where you stand in the directory,
    /// else from its top
    #[arg(value_name = "SUBJECT|SNAPSHOT|PATH", num_args = 1..=3, required = true)]
    words: Vec<OsString>,
}

impl CatArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let (path, words) = self.words.split_last().context("a path is needed")?;
        let typed = TypedWords::read(context, words, 1)?;
        let written = if let Some(profile) = typed.profile() {
            let path = entry_path(Some(path))?;
            profile::cat(context, profile, &typed.snapshot(), &path).await?
        } else {
            let directory = typed.directory(context).await?;
            let of = typed
                .located(context, &directory, &typed.snapshot())
                .await?;
            let path = typed
                .entry(&directory, path, EntryIn::Snapshot(&of))
                .await?;
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
        let used = typed.directory(context).await?.du().await?;
        context.output.result(&used, used_text)?;
        Ok(Exit::Done)
    }
}

fn used_text(used: &DirectoryUse) -> String {
    let now = system_clock().now();
    let age = |ms: u64| Timestamp::from_millis(ms).age(now);
    let stored = used.stored.items.iter().map(|one| {
        vec![
            short(&one.snapshot.snapshot_id),
            age(one.snapshot.timestamp_ms),
            "store".to_owned(),
            size(one.snapshot.bytes),
            size(one.bytes_stored),
            size(one.bytes_freed),
        ]
    });
    let here = used.checkpoints.iter().flat_map(|all| &all.items);
    let here = here.map(|one| {
        vec![
            one.checkpoint.clone(),
            age(one.timestamp_ms),
            "here".to_owned(),
            size(one.bytes),
            size(one.bytes_held),
            size(one.bytes_freed),
        ]
    });
    let head = [
        "SNAPSHOT",
        "AGE",
        "WHERE",
        "CONTENTS",
        "STORED",
        "FREED WITHOUT IT",
    ];
    let mut lines = vec![table(&head, stored.chain(here).collect())];
    if !used.stored.items.is_empty() {
        let (all, own) = (size(used.stored.bytes_stored), size(used.stored.bytes_own));
        lines.push(format!(
            "{all} in the store, {own} of them needed by no other directory"
        ));
    }
    if let Some(here) = &used.checkpoints {
        let undos = match here.bytes_of_undos {
            0 => String::new(),
            bytes => format!(", {} of them for what can be undone", size(bytes)),
        };
        lines.push(format!(
            "{} of checkpoints here{undos}",
            size(here.bytes_held)
        ));
    }
    lines.join("\n")
}
