//! What is said of sessions.

use crate::cli::byte_size::size;
use crate::cli::duration;
use crate::cli::output::{plural, table};
use stasis_engine::kind::session::{
    ReapedSessions, SandboxHealth, SessionCaptured, SessionDeleted, SessionExported, SessionFate,
    SessionForked, SessionList, SessionRegistered, SessionRow, SessionShown, SessionSlept,
    SessionWoken, SleptState, SnapshotDeleted, WakeOutcome, WakeUndone,
};
use stasis_engine::model::id::SnapshotId;
use std::fmt::Write as _;
use std::time::Duration;

fn short(id: &SnapshotId) -> &str {
    id.as_str().get(..8).unwrap_or(id.as_str())
}

/// The word that JSON has for it.
fn word(value: impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().replace('_', " ")
}

pub(super) fn registered(one: &SessionRegistered) -> String {
    let mut text = format!(
        "Registered {} in {}\nSaved of it: {}",
        one.session,
        one.dir,
        one.roots.join(", ")
    );
    if !one.not_saved.is_empty() {
        let _ = write!(
            text,
            "\nnot saved: {}; `--root .` saves everything",
            one.not_saved.join(", ")
        );
    }
    let _ = write!(
        text,
        "\nIdle at {} unless it beats: stasis session heartbeat {}",
        one.idle_at, one.session
    );
    text
}

pub(super) fn beaten(one: &SessionRegistered) -> String {
    format!("Idle at {} unless it beats again", one.idle_at)
}

pub(super) fn captured(one: &SessionCaptured) -> String {
    let Some(id) = &one.snapshot_id else {
        return format!("Nothing to save in {}{}", one.session, not_saved(one));
    };
    let what = if one.unchanged { "Unchanged" } else { "Saved" };
    format!(
        "{what} {} as {}: {}, {}; {} stored{}{}",
        one.session,
        short(id),
        plural(one.files, "file"),
        size(one.bytes),
        size(one.bytes_stored),
        left_out(one),
        frozen(one)
    )
}

/// What is no file, and is in no snapshot.
fn left_out(one: &SessionCaptured) -> String {
    match one.left_out {
        0 => String::new(),
        count => format!(
            "; left out: {} (sockets, named pipes, devices)",
            plural(count, "entry")
        ),
    }
}

fn frozen(one: &SessionCaptured) -> String {
    match one.frozen_ms {
        Some(time) => format!("; its sandbox stood still for {time} ms"),
        None => String::new(),
    }
}

/// What lies in a workspace of which nothing was saved.
fn not_saved(one: &SessionCaptured) -> String {
    match one.not_saved.as_slice() {
        [] => String::new(),
        names => format!(": {} are in no root of it", names.join(", ")),
    }
}

pub(super) fn slept(one: &SessionSlept) -> String {
    let mut text = match one.state {
        SleptState::Sleeping => format!("{} sleeps", one.session),
        SleptState::Terminated => format!("{} was terminated, and is not all saved", one.session),
        SleptState::SnapshotFailed => format!("{} was not saved, and goes on", one.session),
        SleptState::TerminateFailed => format!("{} was saved, and could not be ended", one.session),
        SleptState::InUse => format!("{} is in use, and goes on", one.session),
        SleptState::Saved => format!("{} was saved, and goes on with its sandbox", one.session),
        SleptState::Ended => format!(
            "the sandbox of {} has ended, and what it wrote last is not saved yet",
            one.session
        ),
    };
    if let Some(saved) = &one.saved
        && let Some(id) = &saved.snapshot_id
    {
        let _ = write!(text, "; snapshot {}, {}", short(id), size(saved.bytes));
    }
    if let Some(saved) = &one.saved
        && saved.snapshot_id.is_none()
    {
        let _ = write!(text, "; nothing was there to save{}", not_saved(saved));
    }
    if let Some(problem) = &one.problem {
        let _ = write!(text, "\n  because: {problem}");
    }
    if !one.sandbox_kept_for.is_empty() {
        let others: Vec<String> = one
            .sandbox_kept_for
            .iter()
            .map(ToString::to_string)
            .collect();
        let _ = write!(text, "\n  its sandbox goes on for {}", others.join(", "));
        let _ = write!(text, "\n  --with-others puts them to sleep, too");
    }
    if one.state == SleptState::Sleeping {
        let _ = write!(text, "\nWake it with: stasis session wake {}", one.session);
    }
    text
}

pub(super) fn woken(one: &SessionWoken) -> String {
    let mut text = match one.outcome {
        WakeOutcome::Present => format!("{} is awake in {}", one.session, one.dir),
        WakeOutcome::Fresh => format!(
            "{} begins with nothing in {}: it has no snapshot",
            one.session, one.dir
        ),
        WakeOutcome::Restored => {
            let id = one.snapshot_id.as_ref().map(short).unwrap_or_default();
            format!(
                "{} woke up in {}: {}, {}, from {id}; {} were here already",
                one.session,
                one.dir,
                plural(one.files, "file"),
                size(one.bytes),
                size(one.bytes_reused)
            )
        }
    };
    if let Some(lost) = &one.lost {
        let _ = write!(text, "\nLost since that snapshot: {lost}");
    }
    if let Some(backup) = &one.backup {
        let _ = write!(
            text,
            "\nWhat was there before is kept for seven days in {backup}"
        );
    }
    text
}

fn row(one: &SessionRow) -> Vec<String> {
    let saved = one.saved.clone().unwrap_or_else(|| "never".to_owned());
    let sandbox = one.sandbox.as_ref().map(ToString::to_string);
    vec![
        one.session.to_string(),
        word(one.state),
        sandbox.unwrap_or_default(),
        size(one.bytes),
        saved,
        one.host.to_string(),
    ]
}

pub(super) fn list(all: &SessionList) -> String {
    if all.items.is_empty() && all.unreadable.is_empty() {
        return "No sessions. `stasis session register TENANT/SESSION --dir DIR` begins one"
            .to_owned();
    }
    let head = ["SESSION", "STATE", "SANDBOX", "SIZE", "SAVED", "HOST"];
    let mut text = table(&head, all.items.iter().map(row).collect());
    text.push('\n');
    for one in &all.items {
        if let Some(problem) = &one.problem {
            let _ = writeln!(text, "{}: {}", one.session, problem.message);
        }
    }
    for one in &all.unreadable {
        let _ = writeln!(text, "damaged: {one}");
    }
    text
}

pub(super) fn shown(one: &SessionShown) -> String {
    let health = match &one.health {
        SandboxHealth::Healthy => "healthy".to_owned(),
        SandboxHealth::Unreachable { because } => format!("unreachable: {because}"),
        SandboxHealth::Gone => "gone".to_owned(),
        SandboxHealth::None => "none".to_owned(),
        SandboxHealth::NotKnown => "not known here".to_owned(),
    };
    let row = &one.row;
    let time = |millis: u64| duration::text(Duration::from_millis(millis / 1000 * 1000));
    let snapshot = row.snapshot_id.as_ref().map_or("none", short);
    let sandbox = row.sandbox.as_ref().map(ToString::to_string);
    let mut lines = vec![
        ("session", row.session.to_string()),
        ("state", word(row.state)),
        ("workspace", format!("{} on {}", row.dir, row.host)),
        ("roots", one.roots.join(", ")),
        (
            "sandbox",
            sandbox.map_or_else(|| health.clone(), |name| format!("{name} ({health})")),
        ),
        ("last heartbeat", row.heartbeat.clone()),
        (
            "idle",
            format!(
                "for {} of {}",
                time(one.idle_for_ms),
                time(one.idle_timeout_ms)
            ),
        ),
        ("snapshot", format!("{snapshot}, {}", size(row.bytes))),
    ];
    if let Some(saved) = &row.saved {
        lines.push(("saved", saved.clone()));
    }
    if let Some(claim) = &one.claim {
        let by = format!(
            "{} by {} until {}",
            word(claim.act),
            claim.by,
            claim.expires_at
        );
        lines.push(("claimed", by));
    }
    if let Some(problem) = &row.problem {
        lines.push(("problem", problem.message.to_string()));
    }
    if let Some(from) = &one.forked_from {
        lines.push(("forked from", from.to_string()));
    }
    if let Some(kept) = &one.kept {
        lines.push(("before the wake", format!("kept in {kept}")));
    }
    let rows = lines
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), value]);
    table(&["", ""], rows.collect())
}

pub(super) fn reaped(all: &ReapedSessions) -> String {
    let mut text = String::new();
    for one in &all.items {
        match one.fate {
            SessionFate::Slept(_) => {
                let _ = writeln!(text, "{}", slept(&one.slept));
            }
            SessionFate::Left(why) => {
                let _ = writeln!(text, "{}: {}", one.slept.session, word(why));
            }
        }
    }
    for one in &all.unreadable {
        let _ = writeln!(text, "damaged: {one}");
    }
    let _ = write!(
        text,
        "{}: {} in use, {} asleep already; {} ended",
        plural(all.scanned, "session"),
        all.in_use,
        all.asleep,
        plural(all.sandboxes_ended, "sandbox")
    );
    text
}

pub(super) fn forked(one: &SessionForked) -> String {
    format!(
        "Forked {} from {}; {} stored\nWake it with: stasis session wake {} --dir DIR",
        one.session,
        one.forked_from,
        size(one.bytes_stored),
        one.session
    )
}

pub(super) fn exported(one: &SessionExported) -> String {
    format!(
        "Exported {} to {}: {}, {}",
        one.session,
        one.target,
        plural(one.files, "file"),
        size(one.bytes)
    )
}

pub(super) fn deleted(one: &SessionDeleted) -> String {
    if one.was_there {
        format!("Deleted {}", one.session)
    } else {
        format!("{} was not there", one.session)
    }
}

pub(super) fn snapshot_deleted(one: &SnapshotDeleted) -> String {
    match one.deleted.as_slice() {
        [] => format!("{} had no snapshot", one.session),
        _ => format!("Deleted the snapshot of {}", one.session),
    }
}

pub(super) fn wake_undone(one: &WakeUndone) -> String {
    let verb = if one.dry_run { "Would take" } else { "Took" };
    let mut text = format!(
        "{verb} back the wake of {} in {}: {} back, {} gone",
        one.session,
        one.dir,
        plural(one.back.len() as u64, "entry"),
        one.away.len()
    );
    for (mark, paths) in [('+', &one.back), ('-', &one.away)] {
        for path in paths.iter().take(20) {
            let _ = write!(text, "\n  {mark} {path}");
        }
    }
    if !one.dry_run {
        let _ = write!(
            text,
            "\nWhat was there is kept in {}; once more takes this back",
            one.backup
        );
    }
    text
}
