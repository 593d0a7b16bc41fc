//! `stasis log`: what happened to a directory, in one line of time

use super::save::MESSAGE;
use crate::cli::byte_size::size;
use crate::cli::output::{plural, printable, short, table};
use crate::cli::proof::proved;
use crate::cli::workspace::event_text;
use stasis_engine::kind::directory::{
    RestoreMark, SnapshotPlace, Timeline, TimelineEntry, TimelineItem,
};
use stasis_engine::kind::project::ProjectSnapshot;
use stasis_engine::kind::workspace::{ChangesSummary, CheckpointRow, ForkMark, GapMark, UndoRow};
use stasis_engine::model::format::manifest::SaveReason;
use stasis_engine::model::time::Timestamp;
use stasis_engine::model::workspace::CheckpointOrigin;

/// `one_is_published`: of a session, whose other snapshots are leftovers.
pub(in crate::cli) fn text(timeline: &Timeline, now: Timestamp, one_is_published: bool) -> String {
    if timeline.items.is_empty() {
        return "nothing is saved of it yet: `stasis save` saves it".to_owned();
    }
    let row = |item: &TimelineItem| {
        let place = match item.place {
            SnapshotPlace::Store => "store",
            SnapshotPlace::Here => "here",
        };
        vec![
            short(&item.snapshot),
            Timestamp::from_millis(item.at_ms).age(now),
            place.to_owned(),
            size_of(item),
            changed(item.changed.as_ref()),
            with_proof(item, what(item, one_is_published), now),
        ]
    };
    let head = ["SNAPSHOT", "AGE", "WHERE", "SIZE", "CHANGED", "WHAT"];
    let table = table(&head, timeline.items.iter().map(row).collect());
    match timeline.older {
        0 => table,
        older => format!(
            "{table}\n{} more, older; --all lists them",
            plural(older, "entry")
        ),
    }
}

fn size_of(item: &TimelineItem) -> String {
    match &item.entry {
        TimelineEntry::Snapshot(row) => size(row.bytes),
        TimelineEntry::Checkpoint(row) => size(row.bytes),
        _ => String::new(),
    }
}

/// `+3 ~1 -2`: entries that came, differ, and went.
fn changed(counts: Option<&ChangesSummary>) -> String {
    let Some(counts) = counts else {
        return String::new();
    };
    let all = [
        ('+', counts.created),
        ('~', counts.edited),
        ('-', counts.deleted),
    ];
    let all = all.iter().filter(|(_, count)| *count > 0);
    let all: Vec<String> = all.map(|(sign, count)| format!("{sign}{count}")).collect();
    match &*all {
        [] => "same".to_owned(),
        all => all.join(" "),
    }
}

fn what(item: &TimelineItem, one_is_published: bool) -> String {
    match &item.entry {
        TimelineEntry::Snapshot(row) if one_is_published && !row.active => {
            "stored, not published".to_owned()
        }
        TimelineEntry::Snapshot(row) => snapshot(row),
        TimelineEntry::Checkpoint(row) => checkpoint(row),
        TimelineEntry::Undo(row) => undo(row),
        TimelineEntry::Restore(mark) => restore(mark),
        TimelineEntry::Fork(mark) => fork(mark),
        TimelineEntry::Gap(mark) => gap(mark),
        _ => String::new(),
    }
}

/// The same with what became of a proof.
fn with_proof(item: &TimelineItem, what: String, now: Timestamp) -> String {
    match proved(item.proof.as_ref(), now) {
        Some(proved) => format!("{what}, {proved}"),
        None => what,
    }
}

fn snapshot(row: &ProjectSnapshot) -> String {
    let marks = [(row.active, "latest"), (row.pinned, "pinned")];
    let marks = marks.iter().filter(|(is, _)| *is);
    let marks = marks.map(|(_, word)| (*word).to_owned());
    let why = match row.reason {
        SaveReason::Manual => "saved".to_owned(),
        SaveReason::BeforeRestore => "before a restore".to_owned(),
        SaveReason::BeforeUpgrade => "before an upgrade".to_owned(),
        SaveReason::Autosave => "autosave".to_owned(),
        SaveReason::FirstPass => "not finished".to_owned(),
    };
    let message = row.labels.get(MESSAGE).map(ToString::to_string);
    let others = row.labels.iter().filter(|(key, _)| *key != MESSAGE);
    let others = others.map(|(key, value)| format!("{key}={value}"));
    let all = [why].into_iter().chain(marks).chain(message).chain(others);
    all.collect::<Vec<_>>().join(", ")
}

fn checkpoint(row: &CheckpointRow) -> String {
    let event = row.agent_events.first().map(event_text);
    let why = match (row.origin, &event) {
        (_, Some(event)) => format!("before {event}"),
        (CheckpointOrigin::Auto, None) => "automatic".to_owned(),
        (CheckpointOrigin::Manual, None) if row.name.is_some() => String::new(),
        (origin, None) => origin.to_string(),
    };
    let whole = (!row.complete).then(|| "incomplete".to_owned());
    let all = [Some(why), row.name.clone(), whole].into_iter().flatten();
    let all: Vec<String> = all.filter(|one| !one.is_empty()).collect();
    all.join(", ")
}

fn restore(mark: &RestoreMark) -> String {
    if mark.is_next_undo {
        return "restored; undo with: stasis undo".to_owned();
    }
    format!("restored; {} was there before", short(&mark.before))
}

fn fork(mark: &ForkMark) -> String {
    let (name, directory) = (printable(&mark.name), printable(&mark.directory));
    let gone = if mark.is_there { "" } else { ", gone" };
    format!("forked as {name}: {directory}{gone}")
}

fn gap(mark: &GapMark) -> String {
    let missed = plural(mark.missed, "change");
    match &*mark.why {
        "resumed" => format!("nobody watched: {missed} found afterwards"),
        why => format!("the watch missed {missed} ({why})"),
    }
}

fn undo(row: &UndoRow) -> String {
    let of = row.path.as_deref().unwrap_or("everything");
    let (act, of, from) = (&row.act, printable(of), &row.checkpoint);
    format!("before the {act} of {of} from {from}")
}
