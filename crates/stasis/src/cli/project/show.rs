//! What only looks: `stasis project list`, `show`, `status` and `diff`

use super::save::MESSAGE;
use crate::cli::byte_size::size;
use crate::cli::output::{plural, printable, short, table, word};
use crate::cli::{CliContext, system_clock};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::diff::TreeDifference;
use stasis_engine::kind::project::{
    Project, ProjectDiff, ProjectSnapshot, ProjectStatus, ServiceState, TableDiff,
    UncountedDatabase,
};
use stasis_engine::model::format::manifest::SnapshotManifest;
use stasis_engine::model::snapshot_ref::SnapshotRef;
use stasis_engine::model::time::{Clock as _, Timestamp};
use stasis_engine::model::tree::diff::ChangeKind;
use stasis_engine::proofs::ProofShown;

pub(in crate::cli) async fn list(context: &CliContext, project: &Project) -> anyhow::Result<()> {
    let rows = project.list().await?;
    let now = system_clock().now();
    context.output.result(&rows, |rows| list_text(rows, now))
}

fn list_text(rows: &[ProjectSnapshot], now: Timestamp) -> String {
    if rows.is_empty() {
        return "nothing is saved of it yet".to_owned();
    }
    let row = |row: &ProjectSnapshot| {
        let marks = [(row.active, "latest"), (row.pinned, "pinned")];
        let marks = marks.iter().filter(|(is, _)| *is);
        let marks = marks.map(|(_, word)| (*word).to_owned());
        let message = row.labels.get(MESSAGE).map(ToString::to_string);
        let others = row.labels.iter().filter(|(key, _)| *key != MESSAGE);
        let others = others.map(|(key, value)| format!("{key}={value}"));
        let notes: Vec<String> = marks.chain(message).chain(others).collect();
        vec![
            short(&row.snapshot_id),
            Timestamp::from_millis(row.timestamp_ms).age(now),
            word(&row.reason),
            row.entries.to_string(),
            size(row.bytes),
            notes.join(", "),
        ]
    };
    table(
        &["SNAPSHOT", "AGE", "WHY", "ENTRIES", "SIZE", ""],
        rows.iter().map(row).collect(),
    )
}

/// How long ago something was, for people.
fn age(millis: u64) -> String {
    Timestamp::from_millis(millis).age(system_clock().now())
}

/// A snapshot with everything that it says of itself.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct SnapshotDetails {
    #[serde(flatten)]
    row: ProjectSnapshot,
    /// The stored document, as docs/formats.md describes it.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    metadata: SnapshotManifest,
    /// What became of the last attempt to restore it into a scratch place, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    proof: Option<ProofShown>,
}

pub(in crate::cli) async fn show(
    context: &CliContext,
    project: &Project,
    snapshot: &SnapshotRef,
) -> anyhow::Result<()> {
    let (row, metadata) = project.show(snapshot).await?;
    let mut proofs = project.proofs().await?;
    let shown = SnapshotDetails {
        proof: proofs.remove(row.snapshot_id.as_str()),
        row,
        metadata,
    };
    context.output.result(&shown, details_text)
}

fn details_text(shown: &SnapshotDetails) -> String {
    let SnapshotDetails {
        row,
        metadata,
        proof,
    } = shown;
    let mut lines = vec![
        format!("snapshot   {}", row.snapshot_id),
        format!("time       {} ({})", row.timestamp, age(row.timestamp_ms)),
        format!("reason     {}", word(&row.reason)),
        format!("digest     {}", metadata.state_digest),
        format!(
            "contents   {}, {}",
            plural(metadata.totals.files, "file"),
            size(row.bytes)
        ),
    ];
    if let Some(parent) = &metadata.parent_snapshot_id {
        lines.push(format!("parent     {parent}"));
    }
    if let Some(version) = &metadata.app_version {
        lines.push(format!("app        {}", printable(version.as_str())));
    }
    lines.extend(proof.as_ref().and_then(proof_line));
    for (name, volume) in &metadata.volume_manifests {
        lines.push(format!(
            "volume     {name}: {}, {}, {}, integrity {}",
            volume.consistency,
            volume.format,
            size(volume.size),
            volume.integrity
        ));
    }
    for (key, value) in &row.labels {
        lines.push(format!(
            "label      {}={}",
            printable(key),
            printable(value.as_str())
        ));
    }
    lines.join("\n")
}

/// What became of the last attempt to restore it.
fn proof_line(proof: &ProofShown) -> Option<String> {
    let restored = proof.restored_at_ms.map(age);
    if proof.broken {
        let before = restored.map_or_else(String::new, |at| format!("; it did {at}"));
        let tried = age(proof.tried_at_ms);
        return Some(format!("restored   it did not come back {tried}{before}"));
    }
    restored.map(|at| format!("restored   {at} into a scratch place, and was right"))
}

pub(in crate::cli) async fn status(context: &CliContext, project: &Project) -> anyhow::Result<()> {
    let status = project.status().await?;
    context.output.result(&status, |status: &ProjectStatus| {
        let mut lines = vec![
            format!("project    {}", status.project),
            format!("directory  {}", printable(&status.dir)),
            format!("store      {}", printable(&status.store)),
            format!("snapshots  {}", status.snapshots),
        ];
        if let Some(active) = &status.active {
            lines.push(format!(
                "latest     {} ({})",
                short(&active.snapshot_id),
                age(active.timestamp_ms)
            ));
        }
        lines.extend(status.services.iter().map(service_line));
        lines.join("\n")
    })
}

pub(in crate::cli) fn services(
    context: &CliContext,
    states: &Vec<ServiceState>,
) -> anyhow::Result<()> {
    context.output.result(states, |states| {
        let lines: Vec<String> = states.iter().map(service_line).collect();
        lines.join("\n")
    })
}

fn service_line(state: &ServiceState) -> String {
    let more = match (&state.pid, &state.detail) {
        (Some(pid), _) => format!(" as process {pid}"),
        (None, Some(detail)) => format!(": {}", printable(detail)),
        (None, None) => String::new(),
    };
    format!("service    {} {}{more}", state.service, state.status)
}

/// A line for each entry that differs.
pub(in crate::cli) fn differences(entries: &[TreeDifference]) -> Vec<String> {
    let line = |entry: &TreeDifference| {
        let change = match entry.change {
            ChangeKind::Content => "changed".to_owned(),
            change => change.to_string(),
        };
        format!("{change:<9} {}", printable(&entry.path))
    };
    entries.iter().map(line).collect()
}

pub(in crate::cli) async fn diff(
    context: &CliContext,
    project: &Project,
    before: &SnapshotRef,
    after: Option<&SnapshotRef>,
) -> anyhow::Result<()> {
    let diff = project.diff(before, after).await?;
    let text = |diff: &ProjectDiff| listed_text(&diff.items, &diff.tables, &diff.uncounted);
    context.output.result(&diff, text)
}

/// Entries that differ, tables that have other numbers of rows, and databases that could not be counted.
pub(in crate::cli) fn listed_text(
    items: &[TreeDifference],
    tables: &[TableDiff],
    uncounted: &[UncountedDatabase],
) -> String {
    let entries = differences(items).into_iter();
    let rows = |rows: Option<u64>| rows.map_or("none".to_owned(), |rows| rows.to_string());
    let tables = tables.iter().map(|table| {
        format!(
            "rows      {} {}: {} -> {}",
            printable(&table.path),
            printable(&table.table),
            rows(table.before),
            rows(table.after)
        )
    });
    let uncounted = uncounted.iter().map(|one| {
        let (path, why) = (printable(&one.path), printable(&one.why));
        format!("rows      {path}: could not be counted: {why}")
    });
    let lines = entries.chain(tables).chain(uncounted);
    lines.collect::<Vec<_>>().join("\n")
}
