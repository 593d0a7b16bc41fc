//! What is said of sessions.

use crate::cli::byte_size::size;
use crate::cli::output::{plural, table};
use crate::cli::{duration, system_clock};
use stasis_engine::address::shell_word;
use stasis_engine::kind::session::{
    LeftBecause, ReapedSessions, SandboxHealth, SessionCaptured, SessionDeleted, SessionExported,
    SessionFate, SessionForked, SessionList, SessionRegistered, SessionRow, SessionShown,
    SessionSlept, SessionWoken, SleptState, SnapshotDeleted, WakeOutcome, WakeUndone,
};
use stasis_engine::model::id::{SessionRef, SnapshotId, TenantId};
use stasis_engine::model::session::document::SandboxDriver;
use stasis_engine::model::time::{Clock as _, Timestamp};
use stasis_engine::near::did_you_mean;
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
        "Registered {} in {}\nWill save: {}",
        one.session,
        one.dir,
        one.roots.join(", ")
    );
    if !one.not_saved.is_empty() {
        let _ = write!(
            text,
            "\nWill not save: {}\n  `--root .` saves everything",
            one.not_saved.join(", ")
        );
    }
    let _ = write!(
        text,
        "\nIdle at {} unless it beats:\n  stasis session heartbeat {}",
        one.idle_at, one.session
    );
    text
}

pub(super) fn beaten(one: &SessionRegistered) -> String {
    format!("Idle at {} unless it beats again", one.idle_at)
}

pub(super) fn captured(one: &SessionCaptured) -> String {
    let Some(id) = &one.snapshot_id else {
        return format!(
            "Nothing is there to save of {}{}",
            one.session,
            not_saved(one)
        );
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
    let (names, verb) = match one.not_saved.as_slice() {
        [] => return String::new(),
        [name] => (name.clone(), "is"),
        names => (names.join(", "), "are"),
    };
    format!(
        "\n  {names} {verb} in none of its roots; to save everything, register it with `--root .`"
    )
}

fn names(all: &[SessionRef]) -> String {
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    all.join(", ")
}

pub(super) fn slept(one: &SessionSlept) -> String {
    let mut text = match one.state {
        SleptState::Sleeping if one.saved.is_none() => format!("{} sleeps already", one.session),
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
        let others = names(&one.sandbox_kept_for);
        let _ = write!(text, "\n  its sandbox goes on for {others}");
        let _ = write!(text, "\n  --with-others puts them to sleep, too");
    }
    if !one.slept_with.is_empty() {
        let _ = write!(
            text,
            "\nSo do, with its sandbox: {}",
            names(&one.slept_with)
        );
    }
    if one.state == SleptState::Sleeping {
        let _ = write!(text, "\nWake it with: stasis session wake {}", one.session);
    }
    text
}

/// What somebody wants to know of a session that woke up besides what the wake says.
pub(super) struct Awake {
    /// Where it stands now; nothing where that could not be read.
    pub(super) shown: Option<SessionShown>,
    /// Whether anything lies in its workspace.
    pub(super) has_entries: bool,
}

pub(super) fn woken(one: &SessionWoken, awake: &Awake) -> String {
    let (session, dir) = (&one.session, &one.dir);
    let mut text = match one.outcome {
        WakeOutcome::Present => format!("{session} is awake already in {dir}"),
        WakeOutcome::Fresh if awake.has_entries => {
            format!("{session} has no snapshot: its workspace is as it was\n  {dir}")
        }
        WakeOutcome::Fresh => {
            format!("{session} has no snapshot: it begins with nothing in\n  {dir}")
        }
        WakeOutcome::Restored => {
            let id = one.snapshot_id.as_ref().map(short).unwrap_or_default();
            format!(
                "{session} woke up in {dir}\n  {}, {} from {id}; {} were here already",
                plural(one.files, "file"),
                size(one.bytes),
                size(one.bytes_reused)
            )
        }
    };
    if let Some(lost) = &one.lost {
        let gone = match one.snapshot_id {
            Some(_) => "What was done since that snapshot is lost",
            None => "Nothing of it had been saved",
        };
        let _ = write!(text, "\n{gone}:\n  {lost}");
    }
    if let Some(backup) = &one.backup {
        let _ = write!(
            text,
            "\nWhat was there before is kept for seven days in\n  {backup}"
        );
    }
    text + &awake.shown.as_ref().map(runs).unwrap_or_default()
}

/// What runs a session that is awake, or how to say so.
fn runs(one: &SessionShown) -> String {
    let Some(sandbox) = &one.runs_in else {
        let (session, dir) = (&one.row.session, &one.row.dir);
        let dir = shell_word(dir);
        return format!(
            "\nNothing runs it yet. Once something does, say so with:\n  stasis session register {session} --dir {dir} --pid PID"
        );
    };
    match &sandbox.driver {
        SandboxDriver::Process { pid, .. } => {
            format!("\nIts sandbox {} is process {pid}", sandbox.name)
        }
        SandboxDriver::Docker {
            container, name, ..
        } => {
            let id = container.get(..12).unwrap_or(container);
            format!(
                "\nIts sandbox {} is the container {name} ({id})",
                sandbox.name
            )
        }
        SandboxDriver::Command => format!("\nIts sandbox is {}", sandbox.name),
    }
}

fn row(one: &SessionRow, now: Timestamp) -> Vec<String> {
    let saved = one.saved_ms.map(|at| Timestamp::from_millis(at).age(now));
    let saved = saved.unwrap_or_else(|| "never".to_owned());
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

pub(super) fn list(all: &SessionList, none: impl FnOnce() -> String) -> String {
    if all.items.is_empty() && all.unreadable.is_empty() {
        return none();
    }
    let head = ["SESSION", "STATE", "SANDBOX", "SIZE", "SAVED", "HOST"];
    let now = system_clock().now();
    let rows = all.items.iter().map(|one| row(one, now));
    let mut lines = vec![table(&head, rows.collect())];
    for one in &all.items {
        if let Some(problem) = &one.problem {
            lines.push(format!("{}: {}", one.session, problem.message));
        }
    }
    lines.extend(all.unreadable.iter().map(|one| format!("damaged: {one}")));
    lines.join("\n")
}

/// What is said where there is no session, of a tenant or at all; with tenants that may have been meant.
pub(super) fn none(tenant: Option<&TenantId>, near: &[String]) -> String {
    let begin = "`stasis session register TENANT/SESSION --dir DIR` begins one";
    let Some(tenant) = tenant else {
        return format!("No sessions. {begin}");
    };
    let said = format!("No session of tenant `{tenant}`");
    match did_you_mean(near) {
        Some(question) => format!("{said}: {question}"),
        None => format!("{said}. `stasis session list` lists those of all tenants"),
    }
}

pub(super) fn shown(one: &SessionShown) -> String {
    let health = match &one.health {
        SandboxHealth::Healthy => "healthy".to_owned(),
        SandboxHealth::Unreachable { because } => format!("unreachable: {because}"),
        SandboxHealth::Starting => "starting".to_owned(),
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
    let table = table(&["", ""], rows.collect());
    // Its columns need no names.
    let rows = table.split_once('\n').map(|(_, rows)| rows.to_owned());
    rows.unwrap_or(table)
}

pub(super) fn reaped(all: &ReapedSessions, dry_run: bool) -> String {
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
    text + &reap_counts(all, dry_run)
}

/// All sessions, each counted once.
fn reap_counts(all: &ReapedSessions, dry_run: bool) -> String {
    let count = |is: fn(&SessionFate) -> bool| {
        let those = all.items.iter().filter(|one| is(&one.fate));
        those.count() as u64
    };
    let asleep = if dry_run {
        count(|fate| *fate == SessionFate::Left(LeftBecause::WouldSleep))
    } else {
        count(|fate| {
            let ended = [SleptState::Sleeping, SleptState::Terminated];
            ended.map(SessionFate::Slept).contains(fate)
        })
    };
    let in_use = all.in_use + count(|fate| *fate == SessionFate::Slept(SleptState::InUse));
    let damaged = all.unreadable.len() as u64;
    let others = asleep + in_use + all.asleep + damaged;
    let verb = if dry_run { "would be put" } else { "put" };
    let mut counts = vec![
        format!("{asleep} {verb} to sleep"),
        format!("{in_use} in use"),
        format!("{} asleep already", all.asleep),
    ];
    for (count, what) in [
        (all.scanned.saturating_sub(others), "left"),
        (damaged, "damaged"),
    ] {
        if count > 0 {
            counts.push(format!("{count} {what}"));
        }
    }
    let ended = if dry_run {
        String::new()
    } else {
        format!("; {} ended", plural(all.sandboxes_ended, "sandbox"))
    };
    let sessions = plural(all.scanned, "session");
    format!("{sessions}: {}{ended}", counts.join(", "))
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
