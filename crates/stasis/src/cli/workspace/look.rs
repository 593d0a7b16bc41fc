//! What only looks: `stasis workspace list`, `changes`, `diff` and `history`

use super::checkpoint::database_text;
use super::compare::ComparedArgs;
use super::{WorkspaceSelector, checkpoint_label, counted, entry, keep};
use crate::cli::CliContext;
use crate::cli::byte_size::size;
use crate::cli::output::{plural, printable, table};
use crate::report::Exit;
use clap::Args;
use stasis_engine::kind::workspace::{
    self, AgentEventRow, CheckpointRow, Checkpoints, DiffSide, EventCounts, PathChange, PathDiff,
    PathStatus, PathVersion, TreeRef,
};
use stasis_engine::model::tree::EntryPath;
use stasis_engine::model::workspace::AgentEventKind;
use stasis_engine::model::workspace::CheckpointRef;
use std::ffi::OsString;
use std::io::IsTerminal;

/// How many changes of each checkpoint are shown to people.
const SHOWN: usize = 20;

#[derive(Debug, Args)]
pub(super) struct WorkspaceListArgs {
    /// Show also what each changed against the one before it
    #[arg(long)]
    include_changes: bool,
}

impl WorkspaceListArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        which: &WorkspaceSelector,
    ) -> anyhow::Result<()> {
        let workspace = which.open(context).await?;
        let all = workspace.list(self.include_changes).await?;
        keep::warn_unreadable(context, &all.unreadable);
        keep::warn_of_hooks(context, all.hook_warning.as_deref());
        if all.snapshots.is_empty() {
            context
                .output
                .say("there are no checkpoints yet: `stasis workspace create NAME` makes one");
        }
        context.output.result(&all, list_text)
    }
}

fn list_text(all: &Checkpoints) -> String {
    let row = |row: &CheckpointRow| {
        let whole = if row.complete { "" } else { "incomplete" };
        vec![
            row.checkpoint.clone(),
            row.name.clone().unwrap_or_default(),
            row.origin.to_string(),
            row.age.clone(),
            row.files_count.to_string(),
            size(row.bytes),
            events(&row.events),
            whole.to_owned(),
            reason(row),
        ]
    };
    let head = [
        "CHECKPOINT",
        "NAME",
        "ORIGIN",
        "AGE",
        "FILES",
        "SIZE",
        "EVENTS",
        "",
        "BEFORE",
    ];
    let table = table(&head, all.snapshots.iter().map(row).collect());
    let changes = all.snapshots.iter().filter_map(changes_text);
    [table]
        .into_iter()
        .chain(all.snapshots.iter().filter_map(left_out_text))
        .chain(all.snapshots.iter().flat_map(databases_text))
        .chain(changes)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Everything that is known of one checkpoint.
pub(in crate::cli) fn checkpoint_text(row: &CheckpointRow) -> String {
    let mut lines = vec![
        format!("checkpoint {}", row.checkpoint),
        format!("time       {} ({})", row.timestamp, row.age),
        format!("origin     {}", row.origin),
        format!(
            "contents   {}, {}",
            plural(row.files_count, "file"),
            size(row.bytes)
        ),
        format!("form       {}", row.form),
    ];
    lines.extend(
        row.name
            .iter()
            .map(|name| format!("name       {}", printable(name))),
    );
    let events = row.agent_events.iter().map(event_text);
    lines.extend(events.map(|event| format!("before     {}", printable(&event))));
    lines.extend(left_out_text(row));
    lines.extend(databases_text(row));
    lines.join("\n")
}

fn events(counts: &EventCounts) -> String {
    counted(&[
        (counts.created, "created"),
        (counts.modified, "modified"),
        (counts.deleted, "deleted"),
        (counts.restored, "restored"),
    ])
}

/// What an agent was about to do when a checkpoint was made, and how often else the tree was this one.
fn reason(row: &CheckpointRow) -> String {
    let Some(first) = row.agent_events.first() else {
        return String::new();
    };
    let more = match row.agent_events.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    format!("{}{more}", event_text(first))
}

/// `claude-code prompt 3: fix the tests`
pub(in crate::cli) fn event_text(event: &AgentEventRow) -> String {
    let number = match (event.event, event.prompt) {
        (AgentEventKind::Prompt, Some(number)) => format!(" {number}"),
        (_, Some(number)) => format!(" of prompt {number}"),
        (_, None) => String::new(),
    };
    let text = event.text.as_deref().map(|text| format!(": {text}"));
    let text = text.unwrap_or_default();
    let late = event
        .late_ms
        .map(|late| format!(" [{} s late]", late.div_ceil(1000)));
    let late = late.unwrap_or_default();
    format!("{} {}{number}{late}{text}", event.agent, event.event)
}

/// What could not be read when a checkpoint was made.
fn left_out_text(row: &CheckpointRow) -> Option<String> {
    let count = row.left_out_count?;
    let shown = row.left_out.iter().take(3).map(|path| printable(path));
    let shown: Vec<String> = shown.collect();
    let more = count.saturating_sub(shown.len() as u64);
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let checkpoint = checkpoint_label(&row.checkpoint, row.name.as_deref());
    let shown = shown.join(", ");
    Some(format!(
        "{checkpoint}: not in it, because it could not be read: {shown}{more}"
    ))
}

/// The databases of a checkpoint that could not be made consistent.
fn databases_text(row: &CheckpointRow) -> impl Iterator<Item = String> {
    let words = row.databases.iter().filter_map(database_text);
    words.map(|words| {
        format!(
            "{}: {words}",
            checkpoint_label(&row.checkpoint, row.name.as_deref())
        )
    })
}

/// What a checkpoint changed; nothing when nobody asked.
fn changes_text(row: &CheckpointRow) -> Option<String> {
    let (changes, summary) = (row.changes.as_ref()?, row.changes_summary?);
    let counts = [
        (summary.created, "created"),
        (summary.edited, "edited"),
        (summary.deleted, "deleted"),
    ];
    let counts = match summary.total {
        0 => "nothing changed".to_owned(),
        _ => counted(&counts),
    };
    let mut lines = vec![format!(
        "\n{}: {counts}",
        checkpoint_label(&row.checkpoint, row.name.as_deref())
    )];
    let shown = changes.iter().take(SHOWN);
    lines.extend(shown.map(|change| format!("  {:<9} {}", change.op, printable(&change.path))));
    let more = changes.len().saturating_sub(SHOWN);
    if more > 0 {
        lines.push(format!("  and {more} more; --json lists all"));
    }
    Some(lines.join("\n"))
}

#[derive(Debug, Args)]
pub(super) struct WorkspaceChangesArgs {
    /// Compare with this checkpoint only: cp-N, or its name
    #[arg(long, value_name = "CP")]
    since: Option<CheckpointRef>,
    /// List what differs inside .git, too
    #[arg(long)]
    git: bool,
}

impl WorkspaceChangesArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        which: &WorkspaceSelector,
    ) -> anyhow::Result<()> {
        let workspace = which.open(context).await?;
        let changes = workspace.changes(self.since, self.git).await?;
        for path in &changes.not_compared {
            let path = printable(path);
            context.output.say(&format!(
                "warning: `{path}` could not be read, and was not compared"
            ));
        }
        if changes.changes.is_empty() {
            let with = changes.compared_with.join(", ");
            context.output.say(&format!("nothing differs from {with}"));
        }
        let words = |changes: &workspace::WorkspaceChanges| match changes.changes.as_slice() {
            [] => String::new(),
            all => match &changes.git {
                Some(git) => format!("{}\n{}", changes_table(all), git_line(git)),
                None => changes_table(all),
            },
        };
        context.output.result(&changes, words)
    }
}

/// What happened to a repository, in one line.
fn git_line(git: &workspace::GitChange) -> String {
    let commits = match git.commits {
        Some(1) => "1 commit".to_owned(),
        Some(count) => format!("{count} commits"),
        None => format!("{} entries", git.entries),
    };
    let branch = git.branch.as_deref().map(printable);
    let branch = branch.map_or("no branch".to_owned(), |name| format!("branch {name}"));
    format!(".git: {commits}, {branch}")
}

fn changes_table(changes: &[PathChange]) -> String {
    let row = |change: &PathChange| {
        let since = checkpoint_label(&change.checkpoint, change.checkpoint_name.as_deref());
        vec![
            change.op.to_string(),
            change.path.clone(),
            change.kind.to_string(),
            change.size.map(size).unwrap_or_default(),
            format!("{since}, {}", change.checkpoint_age),
        ]
    };
    let head = ["CHANGE", "PATH", "KIND", "SIZE", "SINCE"];
    table(&head, changes.iter().map(row).collect())
}

#[derive(Debug, Args)]
pub(super) struct WorkspaceDiffArgs {
    /// A file, a link or a directory, and with it a checkpoint; or no path, but one or two checkpoints: then the whole tree is
    /// compared, with what is there now if only one is named. A file that is called like a checkpoint is written ./cp-3 [default:
    /// the newest checkpoint]
    #[arg(value_name = "PATH|CP")]
    first: Option<OsString>,
    /// cp-N, or its name [default: of a path, the newest that holds it and differs]
    #[arg(value_name = "CP")]
    second: Option<CheckpointRef>,
    #[command(flatten)]
    content: ComparedArgs,
}

/// What the words of a diff mean.
enum DiffWanted {
    Entry(EntryPath, Option<CheckpointRef>),
    Whole(TreeRef, TreeRef),
}

impl WorkspaceDiffArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        which: &WorkspaceSelector,
    ) -> anyhow::Result<Exit> {
        let workspace = which.open(context).await?;
        let (path, checkpoint) = match self.wanted(&workspace).await? {
            DiffWanted::Entry(path, checkpoint) => (path, checkpoint),
            DiffWanted::Whole(before, after) => {
                return self
                    .content
                    .compare(context, &workspace, before, after)
                    .await;
            }
        };
        anyhow::ensure!(
            !self.content.is_any(),
            "--patch and --stat are of the whole tree: leave out the path"
        );
        let diff = workspace.diff(path, checkpoint).await?;
        if diff.truncated {
            context
                .output
                .say("warning: the difference is too long, and was cut");
        }
        if diff.status == PathStatus::Unchanged {
            let (path, checkpoint) = (printable(&diff.path), &diff.checkpoint);
            context
                .output
                .say(&format!("{path} is what it was in {checkpoint}"));
        }
        for words in mode_text(&diff).into_iter().chain(attribute_text(&diff)) {
            context.output.say(&words);
        }
        context.output.result(&diff, diff_text)?;
        Ok(Exit::Done)
    }

    /// What is meant: `cp-3` is a checkpoint, and so is the name of one that is no path here.
    async fn wanted(&self, workspace: &workspace::Workspace) -> anyhow::Result<DiffWanted> {
        let Some(first) = &self.first else {
            return Ok(DiffWanted::Whole(
                TreeRef::Checkpoint(None),
                TreeRef::Workspace,
            ));
        };
        let text = first.to_str().unwrap_or_default();
        let checkpoint = match text.parse::<CheckpointRef>().ok() {
            Some(slot @ CheckpointRef::Slot(_)) => Some(slot),
            Some(name) if std::fs::symlink_metadata(first).is_err() => {
                let all = workspace.list(false).await?;
                let mut names = all.snapshots.iter().map(|row| row.name.as_deref());
                names.any(|one| one == Some(text)).then_some(name)
            }
            _ => None,
        };
        let after = match &self.second {
            Some(second) => TreeRef::Checkpoint(Some(second.clone())),
            None => TreeRef::Workspace,
        };
        Ok(match checkpoint {
            Some(before) => DiffWanted::Whole(TreeRef::Checkpoint(Some(before)), after),
            None => DiffWanted::Entry(entry(workspace, first)?, self.second.clone()),
        })
    }
}

fn diff_text(diff: &PathDiff) -> String {
    if diff.status == PathStatus::Unchanged {
        return String::new();
    }
    let unified = diff.unified.as_deref().filter(|text| !text.is_empty());
    if let Some(unified) = unified {
        let unified = unified.strip_suffix('\n').unwrap_or(unified);
        return if std::io::stdout().is_terminal() {
            still(unified)
        } else {
            unified.to_owned()
        };
    }
    let (path, checkpoint) = (printable(&diff.path), &diff.checkpoint);
    let head = format!("{path}: {} since {checkpoint}, {}", diff.status, diff.kind);
    let before = diff
        .before
        .iter()
        .map(|side| format!("- {}", side_text(side)));
    let after = diff
        .after
        .iter()
        .map(|side| format!("+ {}", side_text(side)));
    let inside = (!diff.inside.is_empty()).then(|| changes_table(&diff.inside));
    let lines = [head].into_iter().chain(before).chain(after).chain(inside);
    lines.collect::<Vec<_>>().join("\n")
}

/// What a unified diff does not say: that permissions are other ones.
fn mode_text(diff: &PathDiff) -> Option<String> {
    let mode = |side: &Option<DiffSide>| side.as_ref().and_then(|side| side.mode.clone());
    let (before, after) = (mode(&diff.before)?, mode(&diff.after)?);
    (before != after).then(|| format!("{}: mode {before} -> {after}", printable(&diff.path)))
}

/// Neither that extended attributes are.
fn attribute_text(diff: &PathDiff) -> Option<String> {
    let (before, after) = (diff.before.as_ref()?, diff.after.as_ref()?);
    let what = match (&before.attributes, &after.attributes) {
        (before, after) if before == after => return None,
        (None, _) => "extended attributes were added",
        (_, None) => "its extended attributes are gone",
        _ => "other extended attributes",
    };
    Some(format!("{}: {what}", printable(&diff.path)))
}

/// Text of a file as a terminal may show it: nothing moves the cursor but tabs and ends of lines.
pub(super) fn still(text: &str) -> String {
    let escape = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        c if c.is_control() => c.escape_default().to_string(),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}

fn side_text(side: &DiffSide) -> String {
    let more = [
        side.size.map(size),
        side.mode.as_ref().map(|mode| format!("mode {mode}")),
        side.digest.as_ref().map(|hash| format!("blake3 {hash}")),
    ];
    let all = [side.kind.to_string()].into_iter();
    all.chain(more.into_iter().flatten())
        .collect::<Vec<_>>()
        .join(", ")
}

#[derive(Debug, Args)]
pub(super) struct WorkspaceHistoryArgs {
    /// A file, a symbolic link or a directory, from here or from the top of the workspace
    path: OsString,
}

impl WorkspaceHistoryArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        which: &WorkspaceSelector,
    ) -> anyhow::Result<()> {
        let workspace = which.open(context).await?;
        let path = entry(&workspace, &self.path)?;
        let history = workspace.history(path).await?;
        context.output.result(&history, history_text)
    }
}

fn history_text(history: &workspace::PathHistory) -> String {
    let now = vec![
        "now".to_owned(),
        String::new(),
        String::new(),
        String::new(),
        history.current_size.map(size).unwrap_or_default(),
        history.current_status.to_string(),
    ];
    let row = |version: &PathVersion| {
        vec![
            version.checkpoint.clone(),
            version.name.clone().unwrap_or_default(),
            version.origin.to_string(),
            version.age.clone(),
            version.size.map(size).unwrap_or_default(),
            version.status.to_string(),
        ]
    };
    let rows = history.versions.iter().map(row);
    let head = ["CHECKPOINT", "NAME", "ORIGIN", "AGE", "SIZE", "STATUS"];
    table(&head, [now].into_iter().chain(rows).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_engine::kind::workspace::DiffKind;
    use stasis_engine::result::EntryType;

    fn file(size: u64, mode: &str) -> DiffSide {
        DiffSide {
            kind: EntryType::File,
            size: Some(size),
            mode: Some(mode.to_owned()),
            digest: None,
            attributes: None,
        }
    }

    fn diff(unified: Option<&str>) -> PathDiff {
        PathDiff {
            path: "a".to_owned(),
            checkpoint: "cp-3".to_owned(),
            status: PathStatus::Modified,
            kind: DiffKind::Text,
            unified: unified.map(str::to_owned),
            truncated: false,
            before: Some(file(3, "644")),
            after: Some(file(3, "755")),
            inside: Vec::new(),
        }
    }

    #[test]
    fn a_unified_diff_is_printed_as_it_is_and_modes_are_shown_beside_it() {
        let text = diff(Some("@@ -1 +1 @@\n-one\n+two\n"));
        let mode_only = diff(Some(""));

        assert_eq!(diff_text(&text), "@@ -1 +1 @@\n-one\n+two");
        assert_eq!(mode_text(&text).unwrap(), "a: mode 644 -> 755");
        assert_eq!(
            diff_text(&mode_only),
            "a: modified since cp-3, text\n- file, 3 B, mode 644\n+ file, 3 B, mode 755"
        );
    }

    #[test]
    fn the_text_of_a_file_moves_no_cursor() {
        assert_eq!(still("+a\tb\n-\u{1b}[2Jé\r"), "+a\tb\n-\\u{1b}[2Jé\\r");
    }

    #[test]
    fn a_reason_names_agent_event_prompt_and_text() {
        let event = |event, prompt, text: Option<&str>| AgentEventRow {
            event,
            agent: "codex".to_owned(),
            session: None,
            prompt,
            turn_id: None,
            text: text.map(str::to_owned),
            timestamp: String::new(),
            timestamp_ms: 0,
            late_ms: None,
        };

        let prompt = event(AgentEventKind::Prompt, Some(3), Some("fix the tests"));
        assert_eq!(event_text(&prompt), "codex prompt 3: fix the tests");
        let command = event(AgentEventKind::Command, Some(3), Some("rm -r src"));
        assert_eq!(event_text(&command), "codex command of prompt 3: rm -r src");
        assert_eq!(
            event_text(&event(AgentEventKind::Edit, None, None)),
            "codex edit"
        );
    }

    #[test]
    fn events_are_counted_without_those_that_did_not_happen() {
        let counts = EventCounts {
            created: 2,
            restored: 1,
            ..EventCounts::default()
        };

        assert_eq!(events(&counts), "2 created, 1 restored");
        assert_eq!(events(&EventCounts::default()), "");
    }
}
