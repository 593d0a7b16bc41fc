//! What a check of the databases in a profile means for its snapshot.
//!
//! The same reading at a save and at a load: what a load would refuse is never published.
//!
//! A database is found by its header, so one whose header was overwritten would pass for any file. Chrome's own databases
//! are known by their names too, and those of the snapshot before by its manifest.

use crate::warning::Warning;
use stasis_disk::check::CheckReport;
use stasis_model::chrome::DatabaseFiles;

/// The databases that are damaged, and the files that should be databases and are none.
pub(super) fn damaged(report: &CheckReport, files: &DatabaseFiles) -> Vec<String> {
    let all = report.databases.iter();
    let damaged = all.filter(|one| one.verdict.is_damaged());
    let mut damaged: Vec<String> = damaged.map(|one| one.path.to_string()).collect();
    // A journal beside it may bring the header back.
    let is_sound = |path: &String| {
        let mut all = report.databases.iter();
        all.any(|one| one.verdict.is_sound() && one.path.to_string() == *path)
    };
    let unrecognised = files.unrecognised(&[]).into_iter();
    damaged.extend(unrecognised.filter(|path| !is_sound(path)));
    damaged.sort();
    damaged.dedup();
    damaged
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
            verdict: (&one.verdict).into(),
        })
        .collect()
}
