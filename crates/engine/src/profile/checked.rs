//! What a check of the databases in a profile means for its snapshot.
//!
//! The same reading at a save and at a load: what a load would refuse is never published.

use crate::warning::Warning;
use stasis_disk::check::CheckReport;

/// The databases that are damaged.
pub(super) fn damaged(report: &CheckReport) -> Vec<String> {
    let damaged = report
        .databases
        .iter()
        .filter(|one| one.verdict.is_damaged());
    damaged.map(|one| one.path.to_string()).collect()
}

/// The databases of which nobody can say whether they are sound.
pub(super) fn unchecked(report: &CheckReport) -> Vec<Warning> {
    let doubtful = report
        .databases
        .iter()
        .filter(|one| !one.verdict.is_sound() && !one.verdict.is_damaged());
    doubtful
        .map(|one| Warning::DatabaseUnchecked {
            path: one.path.to_string(),
            verdict: one.verdict.word(),
        })
        .collect()
}
