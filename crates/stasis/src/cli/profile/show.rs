//! `stasis profile show`

use super::list::{exit, marks};
use crate::cli::byte_size::size;
use crate::cli::output::{printable, word};
use crate::cli::proof::proved;
use crate::cli::{CliContext, system_clock};
use crate::report::{Exit, holder_lines};
use clap::Args;
use stasis_engine::kind::profile::{ShaPrefix, ShownLineage, ShownProfile, SnapshotRow};
use stasis_engine::model::format::lease::LockState;
use stasis_engine::model::format::pointer::Pointer;
use stasis_engine::model::id::ProfileRef;
use stasis_engine::model::time::Clock as _;

#[derive(Debug, Args)]
pub(in crate::cli) struct ProfileShowArgs {
    /// <tenant>/<profile>[@<chrome-major>]; without the major, all of them
    subject: ProfileRef,
    /// The beginning of the snapshot's sha256 [default: the active one]
    #[arg(long, value_name = "PREFIX")]
    sha: Option<ShaPrefix>,
}

impl ProfileShowArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let engine = context.engine().await?;
        let shown = engine
            .profiles()
            .show(&self.subject, self.sha.as_ref())
            .await?;
        context.output.warn(&shown.warnings);
        context.output.result(&shown, shown_text)?;
        Ok(exit(is_damaged(&shown)))
    }
}

/// Whether anything that is shown cannot be what was written.
pub(super) fn is_damaged(shown: &ShownProfile) -> bool {
    let hurt = |one: &ShownLineage| {
        let snapshot = one.snapshot.as_ref();
        !one.damage.is_empty() || snapshot.is_some_and(|row| row.damage.is_some())
    };
    shown.lineages.iter().any(hurt)
}

pub(super) fn shown_text(shown: &ShownProfile) -> String {
    let each = shown.lineages.iter().map(lineage);
    each.collect::<Vec<_>>().join("\n\n")
}

fn lineage(one: &ShownLineage) -> String {
    let mut lines = vec![one.subject.to_string()];
    match &one.snapshot {
        Some(row) => lines.push(snapshot(row)),
        None => lines.push("  no active snapshot".to_owned()),
    }
    lines.extend(one.pointer.as_ref().map(pointer));
    match &one.lock {
        Some(lock) if lock.state == LockState::Held => {
            lines.push(format!(
                "  lock: {}\n{}",
                word(&one.lock_state),
                holder_lines(lock)
            ));
        }
        _ => lines.push(format!("  lock: {}", word(&one.lock_state))),
    }
    for damage in &one.damage {
        lines.push(format!("  damaged: {}", printable(damage)));
    }
    lines.join("\n")
}

/// What everybody wants to know of a snapshot; `--json` has every field.
fn snapshot(row: &SnapshotRow) -> String {
    let manifest = &row.manifest;
    let (by, within) = (&manifest.captured_by, &manifest.captured_in);
    let region = within.host_region.as_ref().map(ToString::to_string);
    let geo = within.egress_ip_geo.as_ref();
    let geo = geo.map(|geo| format!("{}/{}", geo.country, geo.region));
    let predecessor = manifest.predecessor_sha256.map(|one| one.to_string());
    let ending = manifest.ending.as_ref();
    let ending = ending.map(|one| format!("{} after {} ms", one.how, one.waited_ms));
    let lines = [
        ("sha256", manifest.archive_sha256.to_string()),
        ("marks", marks(&row.marks)),
        ("damage", row.damage.clone().unwrap_or_default()),
        (
            "proof",
            proved(row.proof.as_ref(), system_clock().now()).unwrap_or_default(),
        ),
        ("captured at", manifest.captured_at_ms.to_string()),
        (
            "captured by",
            format!("{} on {}, {}", by.host_run_id, by.host, by.writer_version),
        ),
        ("captured in", region.unwrap_or_default()),
        ("egress", geo.unwrap_or_default()),
        ("mode", word(&manifest.mode)),
        (
            "chrome",
            format!(
                "{} {}",
                manifest.chrome_major_version, manifest.chrome_version
            ),
        ),
        ("browser ended", ending.unwrap_or_default()),
        ("archive", size(manifest.archive_size_bytes)),
        (
            "files",
            format!(
                "{}, {}",
                manifest.file_count,
                size(manifest.uncompressed_size_bytes)
            ),
        ),
        ("tree_digest", manifest.tree_digest.to_string()),
        ("predecessor_sha256", predecessor.unwrap_or_default()),
        ("lease epoch", manifest.lease_epoch.to_string()),
        (
            "notes",
            manifest.notes.lines().collect::<Vec<_>>().join("; "),
        ),
    ];
    named_lines(&lines)
}

fn pointer(pointer: &Pointer) -> String {
    let from = pointer.published_from.map(|from| from.prefix());
    named_lines(&[
        ("pointer generation", pointer.generation.to_string()),
        ("flipped at", pointer.published_at.to_string()),
        ("flipped from", from.unwrap_or_default()),
        ("fence epoch", pointer.fence.epoch.to_string()),
    ])
}

fn named_lines(lines: &[(&str, String)]) -> String {
    let present = lines.iter().filter(|(_, value)| !value.is_empty());
    let present = present.map(|(name, value)| format!("  {name}: {}", printable(value.trim())));
    present.collect::<Vec<_>>().join("\n")
}
