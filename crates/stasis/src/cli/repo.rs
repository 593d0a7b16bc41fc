//! `stasis repo`

use super::Context;
use super::output::{OutputLost, printable, table};
use super::progress::{cancel_on_signals, watched};
use crate::report::Exit;
use crate::system;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Serialize;
use stasis_engine::model::id::{Label, SubjectName};
use stasis_engine::model::tree::EntryPath;
use stasis_engine::repo::{RepoSave, RepoSaved, SnapshotRow, Wanted};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// How many left-out entries are shown to people.
const SHOWN: usize = 10;

#[derive(Debug, Args)]
pub(super) struct Repo {
    /// The repository: the same as --store
    #[arg(long, global = true, value_name = "URL")]
    repo: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a repository
    Init,
    /// Save a directory
    Save(Save),
    /// List snapshots
    Snapshots {
        /// Only those saved under this name
        #[arg(long)]
        name: Option<SubjectName>,
    },
    /// List the entries of a snapshot
    Ls {
        #[command(flatten)]
        which: Which,
        /// Only this entry and what is in it
        path: Option<OsString>,
    },
    /// Write the content of one file to standard output
    Cat {
        #[command(flatten)]
        which: Which,
        /// Which file
        path: OsString,
    },
    /// Show what differs between two snapshots
    Diff {
        /// The older one: an id, the beginning of one, or `latest`
        before: String,
        /// The newer one
        after: String,
        /// Only snapshots saved under this name count as `latest`
        #[arg(long)]
        name: Option<SubjectName>,
    },
    /// Show how large the repository is, and why
    Stats,
}

/// Which snapshot is meant.
#[derive(Debug, Args)]
struct Which {
    /// An id, the beginning of one, or `latest`
    snapshot: String,
    /// Look only among those saved under this name
    #[arg(long)]
    name: Option<SubjectName>,
}

impl From<Which> for Wanted {
    fn from(which: Which) -> Self {
        Self {
            snapshot: which.snapshot,
            name: which.name,
        }
    }
}

#[derive(Debug, Args)]
struct Save {
    /// The directory to save
    #[arg(value_name = "DIR")]
    source: PathBuf,
    /// Under which name: snapshots of one name form a chain
    #[arg(long, default_value = "default")]
    name: SubjectName,
    /// A label, KEY=VALUE; may be given more than once
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Leave out what matches, as in a .gitignore; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Fail if anything vanishes, changes while it is read, or may not be read, instead of reporting it
    #[arg(long)]
    strict: bool,
    /// Save even if nine of ten entries are gone since the last snapshot
    #[arg(long)]
    allow_shrink: bool,
    /// Whether to stay on the filesystem of DIR; otherwise what is mounted in it is saved too
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    one_file_system: bool,
}

/// A result with what it cost.
#[derive(Serialize)]
struct Told<T: Serialize> {
    #[serde(flatten)]
    result: T,
    peak_memory_bytes: Option<u64>,
}

fn told<T: Serialize>(result: T) -> Told<T> {
    Told {
        result,
        peak_memory_bytes: system::peak_memory(),
    }
}

impl Repo {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let repo = self.repo.as_deref();
        match self.command {
            Command::Init => {
                let made = context.repo_engine(repo, true).await?.repo_init().await?;
                context
                    .output
                    .result(&made, |made| format!("made a repository in {}", made.repo))?;
            }
            Command::Save(save) => save.run(context, repo).await?,
            Command::Snapshots { name } => {
                let engine = context.repo_engine(repo, false).await?;
                let rows = engine.repo_snapshots(name.as_ref()).await?;
                context.output.result(&rows, |rows| snapshots(rows))?;
            }
            Command::Ls { which, path } => {
                let engine = context.repo_engine(repo, false).await?;
                let path = entry_path(path.as_ref())?;
                let entries = engine.repo_ls(&which.into(), &path).await?;
                context.output.result(&entries, |entries| {
                    let rows = entries.iter().map(|entry| {
                        let size = entry.size.map(|size| size.to_string()).unwrap_or_default();
                        let mode = format!("{:04o}", entry.mode);
                        vec![entry.kind.to_owned(), mode, size, entry.path.clone()]
                    });
                    table(&["KIND", "MODE", "SIZE", "PATH"], rows.collect())
                })?;
            }
            Command::Cat { which, path } => {
                let engine = context.repo_engine(repo, false).await?;
                let path = entry_path(Some(&path))?;
                let written = engine
                    .repo_cat(&which.into(), &path, std::io::stdout())
                    .await?;
                written.map_err(OutputLost)?;
            }
            Command::Diff {
                before,
                after,
                name,
            } => {
                let engine = context.repo_engine(repo, false).await?;
                let wanted = |snapshot: String| Wanted {
                    snapshot,
                    name: name.clone(),
                };
                let found = engine.repo_diff(&wanted(before), &wanted(after)).await?;
                context.output.result(&found, |found| {
                    let lines = found
                        .iter()
                        .map(|one| format!("{:<9} {}", one.change, one.path));
                    lines.collect::<Vec<_>>().join("\n")
                })?;
            }
            Command::Stats => {
                let stats = context.repo_engine(repo, false).await?.repo_stats().await?;
                context.output.result(&stats, |stats| {
                    format!(
                        "{} snapshots of {} bytes in {} chunks of {} bytes; {} chunks of {} bytes are unused, {} damaged",
                        stats.snapshots,
                        stats.bytes,
                        stats.chunks,
                        stats.bytes_stored,
                        stats.chunks_unused,
                        stats.bytes_unused,
                        stats.chunks_damaged
                    )
                })?;
            }
        }
        Ok(Exit::Done)
    }
}

impl Save {
    async fn run(self, context: &Context, repo: Option<&str>) -> anyhow::Result<()> {
        let labels = self.label.iter().map(|label| {
            let (key, value) = label
                .split_once('=')
                .with_context(|| format!("`{label}` is not KEY=VALUE"))?;
            Ok((key.to_owned(), value.parse::<Label>()?))
        });
        let progress = Arc::default();
        let command = RepoSave {
            source: self.source,
            name: self.name,
            labels: labels.collect::<anyhow::Result<_>>()?,
            excludes: self.exclude,
            strict: self.strict,
            across_filesystems: !self.one_file_system,
            allow_shrink: self.allow_shrink,
            cancel: cancel_on_signals()?,
            progress: Arc::clone(&progress),
        };
        let engine = context.repo_engine(repo, false).await?;
        let saved = watched(
            context.output,
            "saving",
            progress,
            engine.repo_save(command),
        )
        .await?;
        for entry in saved.left_out_entries.iter().take(SHOWN) {
            context
                .output
                .say(&format!("warning: `{}` {}", entry.path, entry.words));
        }
        let more = saved.left_out_entries.len().saturating_sub(SHOWN);
        if more > 0 {
            context.output.say(&format!(
                "warning: {more} more entries were left out; --json lists a thousand"
            ));
        }
        context
            .output
            .result(&told(saved), |told| saved_words(&told.result))
    }
}

fn saved_words(saved: &RepoSaved) -> String {
    format!(
        "{} {}: {} files, {} bytes{}; read {} files, stored {} chunks of {} bytes; {} ms",
        saved.snapshot_id,
        printable(saved.name.as_str()),
        saved.totals.files,
        saved.totals.bytes,
        if saved.unchanged { ", unchanged" } else { "" },
        saved.files_read,
        saved.chunks_new,
        saved.bytes_stored,
        saved.elapsed_ms
    )
}

fn snapshots(rows: &[SnapshotRow]) -> String {
    let row = |row: &SnapshotRow| {
        let mark = match (row.active, row.pinned) {
            (true, true) => "active, pinned",
            (true, false) => "active",
            (false, true) => "pinned",
            (false, false) => "",
        };
        vec![
            row.snapshot_id.to_string(),
            row.name.to_string(),
            row.timestamp.clone(),
            row.entries.to_string(),
            row.bytes.to_string(),
            mark.to_owned(),
        ]
    };
    table(
        &["SNAPSHOT", "NAME", "TIME", "ENTRIES", "BYTES", ""],
        rows.iter().map(row).collect(),
    )
}

/// A path in a snapshot, as people type it: leading `./` and `/` and a trailing slash do not matter.
fn entry_path(typed: Option<&OsString>) -> anyhow::Result<EntryPath> {
    let bytes = typed.map(|typed| typed.as_bytes()).unwrap_or_default();
    let components = bytes
        .split(|byte| *byte == b'/')
        .filter(|name| !matches!(*name, b"" | b"."));
    let joined = components.collect::<Vec<_>>().join(&b'/');
    let path = EntryPath::parse(&joined);
    path.with_context(|| {
        format!(
            "`{}` is not a path in a snapshot",
            printable(&String::from_utf8_lossy(bytes))
        )
    })
}
