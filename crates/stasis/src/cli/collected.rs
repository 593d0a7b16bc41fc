//! What gc takes of a store, before and after: the same words for all that collect.

use super::CliContext;
use super::ask;
use super::byte_size::size;
use super::output::plural;
use super::plan::{self, DELETE, KEEP, PlanLine};
use stasis_engine::gc::{RepoCollected, RepoGcVerdict};
use stasis_engine::model::id::SnapshotId;

/// Shows what would go and asks; `None` when somebody said no. Where no snapshot goes, nobody is asked.
pub(super) fn agreed(
    context: &CliContext,
    shown: &RepoCollected,
    label: impl Fn(&RepoGcVerdict) -> String,
) -> anyhow::Result<Option<Vec<SnapshotId>>> {
    let going = shown.verdicts.iter().filter(|verdict| !verdict.kept);
    let going: Vec<SnapshotId> = going.map(|one| one.snapshot_id.clone()).collect();
    if going.is_empty() {
        return Ok(Some(going));
    }
    context.output.insist(&text(shown, label));
    Ok(ask::is_yes("Continue?")?.then_some(going))
}

/// What goes and stays, or went, and why.
pub(super) fn text(done: &RepoCollected, label: impl Fn(&RepoGcVerdict) -> String) -> String {
    let going = done.verdicts.iter().filter(|verdict| !verdict.kept);
    let counts = [(DELETE, going.count() as u64)];
    let (bytes, chunks) = (
        size(done.bytes_removed),
        plural(done.chunks_removed, "chunk"),
    );
    let what = if done.dry_run {
        let will = plan::will(&counts, "snapshot");
        let will = if will.is_empty() {
            "delete no snapshot".to_owned()
        } else {
            will
        };
        format!("Collecting will {will} and free {bytes} in {chunks}")
    } else {
        let did = plan::did(&counts, "snapshot");
        let did = if did.is_empty() {
            "no snapshot deleted".to_owned()
        } else {
            did
        };
        let took = done.elapsed_ms;
        format!("Collected: {did} and {bytes} freed in {chunks} ({took} ms)")
    };
    // What stays is of interest before.
    let shown = done.verdicts.iter();
    let shown = shown.filter(|verdict| done.dry_run || !verdict.kept);
    let things: Vec<PlanLine> = shown
        .map(|verdict| {
            let thing = format!("{}  {}", label(verdict), verdict.because.join(", "));
            match (verdict.kept, done.dry_run) {
                (true, _) => PlanLine::new(KEEP, &thing),
                (false, true) => PlanLine::new(DELETE, &thing),
                (false, false) => PlanLine::done(DELETE, &thing),
            }
        })
        .collect();
    let all = things.len() as u64;
    plan::with_lines(&what, things, all)
}
