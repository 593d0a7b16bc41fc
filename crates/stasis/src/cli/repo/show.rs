//! What only looks: `stasis repo snapshots`, `ls`, `cat`, `diff` and `stats`

use super::RepoSnapshotArgs;
use crate::cli::CliContext;
use crate::cli::directory::entry_path;
use crate::cli::output::{OutputLost, table};
use crate::report::or_read_enough;
use stasis_engine::catalog::{ListedEntry, RepoSnapshotRow, RepoStats, SnapshotSelector};
use stasis_engine::model::id::SubjectName;
use std::ffi::OsString;

pub(super) async fn snapshots(
    context: &CliContext,
    repo: Option<&str>,
    name: Option<&SubjectName>,
) -> anyhow::Result<()> {
    let rows = context
        .repo_engine(repo, false)
        .await?
        .dirs()
        .snapshots(name)
        .await?;
    context.output.result(&rows, |rows| snapshots_text(rows))
}

fn snapshots_text(rows: &[RepoSnapshotRow]) -> String {
    let row = |row: &RepoSnapshotRow| {
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

pub(super) async fn ls(
    context: &CliContext,
    repo: Option<&str>,
    which: RepoSnapshotArgs,
    path: Option<&OsString>,
) -> anyhow::Result<()> {
    let path = entry_path(path)?;
    let entries = context
        .repo_engine(repo, false)
        .await?
        .dirs()
        .ls(&which.into(), &path)
        .await?;
    context.output.result(&entries, |entries| ls_text(entries))
}

fn ls_text(entries: &[ListedEntry]) -> String {
    let rows = entries.iter().map(|entry| {
        let size = entry.size.map(|size| size.to_string()).unwrap_or_default();
        vec![
            entry.kind.to_string(),
            format!("{:04o}", entry.mode),
            size,
            entry.path.clone(),
        ]
    });
    table(&["KIND", "MODE", "SIZE", "PATH"], rows.collect())
}

pub(super) async fn cat(
    context: &CliContext,
    repo: Option<&str>,
    which: RepoSnapshotArgs,
    path: &OsString,
) -> anyhow::Result<()> {
    let path = entry_path(Some(path))?;
    let engine = context.repo_engine(repo, false).await?;
    let written = engine
        .dirs()
        .cat(&which.into(), &path, std::io::stdout())
        .await?;
    let written = written.map_err(OutputLost);
    or_read_enough(written.map(drop).map_err(Into::into))
}

pub(super) async fn diff(
    context: &CliContext,
    repo: Option<&str>,
    before: &SnapshotSelector,
    after: &SnapshotSelector,
) -> anyhow::Result<()> {
    let found = context
        .repo_engine(repo, false)
        .await?
        .dirs()
        .diff(before, after)
        .await?;
    context.output.result(&found, |found| {
        let lines = found
            .iter()
            .map(|one| format!("{:<9} {}", one.change, one.path));
        lines.collect::<Vec<_>>().join("\n")
    })
}

pub(super) async fn stats(context: &CliContext, repo: Option<&str>) -> anyhow::Result<()> {
    let stats = context
        .repo_engine(repo, false)
        .await?
        .dirs()
        .stats()
        .await?;
    context.output.result(&stats, stats_text)
}

fn stats_text(stats: &RepoStats) -> String {
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
}
