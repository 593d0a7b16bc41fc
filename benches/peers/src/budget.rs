//! What we promised, as ratios against the best peer of the same run.

use crate::bench::{Measure, Samples};
use crate::tools::{ARCHIVE, CHECKPOINT, CLONE, COPY, DEDUPLICATING, GIT, REFLINK, REPO, TAR_9};
use crate::workload::Workload;
use serde::Serialize;
use std::collections::BTreeMap;

/// The median of what was measured, by tool.
pub(crate) type Results = BTreeMap<String, Samples>;

/// The middle one; of an even number, the mean of the two in the middle.
pub(crate) fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The median of one measure of one tool.
pub(crate) fn figure(results: &Results, tool: &str, measure: Measure) -> Option<f64> {
    median(results.get(tool)?.get(&measure)?)
}

/// A promise: our figure divided by the best of theirs is at most this.
struct Budget {
    workloads: &'static [Workload],
    ours: (&'static str, Measure),
    peers: &'static [&'static str],
    theirs: Measure,
    at_most: f64,
}

const ANY: &[Workload] = &Workload::ALL;
const PROFILE: &[Workload] = &[Workload::Profile];
const WORKSPACE: &[Workload] = &[Workload::Workspace];
const DATABASE: &[Workload] = &[Workload::Database];
const NOT_WORKSPACE: &[Workload] = &[Workload::Profile, Workload::Database];

const fn promise(
    workloads: &'static [Workload],
    ours: (&'static str, Measure),
    peers: &'static [&'static str],
    theirs: Measure,
    at_most: f64,
) -> Budget {
    Budget {
        workloads,
        ours,
        peers,
        theirs,
        at_most,
    }
}

const BUDGETS: [Budget; 18] = {
    use Measure::{Added, Changed, Copy, First, Memory, Restore, Size, Unchanged};
    [
        promise(PROFILE, (ARCHIVE, First), &[TAR_9], First, 1.1),
        promise(PROFILE, (ARCHIVE, Size), &[TAR_9], Size, 1.08),
        promise(PROFILE, (ARCHIVE, Changed), &[TAR_9], First, 0.25),
        promise(PROFILE, (ARCHIVE, Restore), &[TAR_9], Restore, 0.8),
        promise(ANY, (REPO, First), &DEDUPLICATING, First, 1.0),
        promise(
            NOT_WORKSPACE,
            (REPO, Unchanged),
            &DEDUPLICATING,
            Unchanged,
            1.0,
        ),
        promise(NOT_WORKSPACE, (REPO, Changed), &DEDUPLICATING, Changed, 1.0),
        promise(WORKSPACE, (REPO, Unchanged), &DEDUPLICATING, Unchanged, 0.5),
        promise(WORKSPACE, (REPO, Changed), &DEDUPLICATING, Changed, 0.5),
        promise(WORKSPACE, (REPO, Unchanged), &[GIT], Unchanged, 1.0),
        promise(WORKSPACE, (REPO, Changed), &[GIT], Changed, 1.0),
        promise(ANY, (REPO, Restore), &DEDUPLICATING, Restore, 1.0),
        promise(ANY, (REPO, Size), &DEDUPLICATING, Size, 1.0),
        promise(ANY, (REPO, Memory), &DEDUPLICATING, Memory, 1.0),
        promise(DATABASE, (REPO, Added), &DEDUPLICATING, Added, 0.2),
        promise(WORKSPACE, (CLONE, Copy), &[REFLINK], Copy, 0.7),
        promise(WORKSPACE, (CHECKPOINT, Copy), &[REFLINK], Copy, 0.7),
        promise(WORKSPACE, (CHECKPOINT, Changed), &[COPY], Copy, 0.1),
    ]
};

/// The most that we may have in memory, in megabytes, whatever the tree.
const MOST_MEMORY: f64 = 268.435_456;

/// How a promise was kept.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) tool: &'static str,
    pub(crate) measure: Measure,
    pub(crate) ours: f64,
    pub(crate) against: String,
    pub(crate) theirs: f64,
    pub(crate) ratio: f64,
    pub(crate) at_most: f64,
    pub(crate) is_met: bool,
}

/// Judges every promise about a workload for which both sides were measured.
pub(crate) fn judge(workload: Workload, results: &Results) -> Vec<Verdict> {
    let applies = |budget: &&Budget| budget.workloads.contains(&workload);
    let judged = BUDGETS.iter().filter(applies).filter_map(|budget| {
        let (tool, measure) = budget.ours;
        let ours = figure(results, tool, measure)?;
        let figures = budget.peers.iter();
        let figures =
            figures.filter_map(|peer| Some((*peer, figure(results, peer, budget.theirs)?)));
        let (against, theirs) = figures.min_by(|one, other| one.1.total_cmp(&other.1))?;
        Some(verdict(
            (tool, measure, ours),
            (against, theirs),
            budget.at_most,
        ))
    });
    let memory = [REPO, ARCHIVE, CLONE].into_iter().filter_map(|tool| {
        let ours = figure(results, tool, Measure::Memory)?;
        Some(verdict(
            (tool, Measure::Memory, ours),
            ("256 MiB", MOST_MEMORY),
            1.0,
        ))
    });
    judged.chain(memory).collect()
}

fn verdict(
    (tool, measure, ours): (&'static str, Measure, f64),
    (against, theirs): (&str, f64),
    at_most: f64,
) -> Verdict {
    let ratio = ours / theirs.max(1e-6);
    Verdict {
        tool,
        measure,
        ours,
        against: against.to_owned(),
        theirs,
        ratio,
        at_most,
        is_met: ratio <= at_most,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(figures: &[(&str, Measure, f64)]) -> Results {
        let mut results = Results::new();
        for (tool, measure, value) in figures {
            let samples = results.entry((*tool).to_owned()).or_default();
            samples.entry(*measure).or_default().push(*value);
        }
        results
    }

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 9.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 9.0, 2.0]), Some(3.0));
    }

    #[test]
    fn a_promise_is_judged_against_the_best_peer_and_only_where_both_were_measured() {
        let unchanged = Measure::Unchanged;
        let results = results(&[
            (REPO, unchanged, 0.4),
            ("restic", unchanged, 3.5),
            ("bupstash", unchanged, 0.77),
            ("casync", unchanged, 0.1),
        ]);

        let verdicts = judge(Workload::Workspace, &results);

        assert_eq!(verdicts.len(), 1);
        let only = &verdicts[0];
        assert_eq!((&*only.against, only.is_met), ("bupstash", false));
        assert!((only.ratio - 0.519).abs() < 0.001, "{}", only.ratio);
    }

    #[test]
    fn a_changed_archive_is_judged_against_a_whole_one() {
        let results = results(&[
            (ARCHIVE, Measure::Changed, 1.0),
            (TAR_9, Measure::First, 10.0),
        ]);

        let verdicts = judge(Workload::Profile, &results);

        assert_eq!(verdicts.len(), 1);
        assert!(verdicts[0].is_met && (verdicts[0].ratio - 0.1).abs() < 1e-9);
    }
}
