//! What is printed: tables of figures and of ratios.

use crate::bench::Measure;
use crate::budget::{Results, Verdict, figure};
use crate::workload::Workload;
use std::fmt::Write as _;

const COLUMNS: [(Measure, &str); 10] = [
    (Measure::First, "first"),
    (Measure::Unchanged, "unchanged"),
    (Measure::Changed, "changed"),
    (Measure::Restore, "restore"),
    (Measure::OneFile, "one file"),
    (Measure::Copy, "copy"),
    (Measure::Size, "size"),
    (Measure::Added, "+ changed"),
    (Measure::Inserted, "+ inserted"),
    (Measure::Memory, "memory"),
];

fn word(measure: Measure) -> &'static str {
    let column = COLUMNS.iter().find(|(one, _)| *one == measure);
    column.map_or("", |(_, word)| word)
}

/// A number with as many digits as one can trust.
fn short(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Seconds and megabytes, one line a tool; a column that nobody fills is not there.
pub(crate) fn figures(workload: Workload, order: &[String], results: &Results) -> String {
    let is_filled = |measure: Measure| {
        order
            .iter()
            .any(|tool| figure(results, tool, measure).is_some())
    };
    let columns: Vec<_> = COLUMNS
        .iter()
        .filter(|(measure, _)| is_filled(*measure))
        .collect();
    let mut table = format!("| {} |", workload.name());
    for (_, word) in &columns {
        let _ = write!(table, " {word} |");
    }
    table.push_str("\n|---|");
    table.push_str(&"---:|".repeat(columns.len()));
    let was_measured = |tool: &&String| results.get(*tool).is_some_and(|it| !it.is_empty());
    for tool in order.iter().filter(was_measured) {
        let _ = write!(table, "\n| {tool} |");
        for (measure, _) in &columns {
            let cell = figure(results, tool, *measure).map_or_else(|| "–".to_owned(), short);
            let _ = write!(table, " {cell} |");
        }
    }
    table.push('\n');
    table
}

/// Our figures against the best peer's, with what was promised.
pub(crate) fn ratios(verdicts: &[Verdict]) -> String {
    let mut table = "| Stasis | ours | best peer | theirs | ratio | promised | |\n".to_owned();
    table.push_str("|---|---:|---|---:|---:|---:|---|");
    for verdict in verdicts {
        let _ = write!(
            table,
            "\n| {}: {} | {} | {} | {} | {:.2} | ≤ {} | {} |",
            verdict.tool,
            word(verdict.measure),
            short(verdict.ours),
            verdict.against,
            short(verdict.theirs),
            verdict.ratio,
            verdict.at_most,
            if verdict.is_met { "met" } else { "**missed**" }
        );
    }
    table.push('\n');
    table
}
