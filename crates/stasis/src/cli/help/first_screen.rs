//! The first screen: every command in its group, on forty lines.

use super::{heading, literal};
use crate::cli::Cli;
use clap::CommandFactory;
use clap::builder::StyledStr;

/// Commands that share a line, and what they do.
pub(super) struct Row {
    pub(super) commands: &'static [&'static str],
    what: &'static str,
}

/// Commands that belong together; `Plumbing` has names only.
pub(super) struct Group {
    name: &'static str,
    note: &'static str,
    pub(super) rows: &'static [Row],
}

const fn row(commands: &'static [&'static str], what: &'static str) -> Row {
    Row { commands, what }
}

/// A row whose commands this build does not have is left out.
pub(super) const GROUPS: &[Group] = &[
    Group {
        name: "Everyday",
        note: "on the directory you are in, or on the one you name",
        rows: &[
            row(&["save"], "Save a directory"),
            row(&["list"], "List everything that is saved"),
            row(
                &["log", "show"],
                "List the snapshots; show one with all its metadata",
            ),
            row(
                &["diff"],
                "Show what changed since a snapshot, or between two",
            ),
            row(
                &["restore"],
                "Restore a snapshot (the current state is saved first)",
            ),
            row(&["undo"], "Undo the last restore"),
            row(
                &["fork"],
                "Make copies to try things in, compare them, keep one",
            ),
            row(
                &["ls", "cat", "find"],
                "List, print and find files in snapshots",
            ),
            row(&["mount"], "Browse all snapshots as read-only directories"),
            row(&["check"], "Check that everything saved can be restored"),
            row(&["pin", "forget"], "Keep a snapshot for good; forget one"),
            row(
                &["gc", "du"],
                "Forget by policy and free space; show what takes it",
            ),
        ],
    },
    Group {
        name: "Kinds",
        note: "what only one kind of subject can do",
        rows: &[
            row(
                &["workspace"],
                "Working trees of agents: checkpoints, changes, undo",
            ),
            row(&["profile"], "Browser profiles: run, save, load, verify"),
            row(
                &["project"],
                "Applications with databases: save, restore, upgrade",
            ),
            row(&["session"], "Sessions of agents: sleep, wake, reap"),
            row(
                &["container"],
                "Docker containers with their volumes: create, restore",
            ),
        ],
    },
    Group {
        name: "Agents",
        note: "",
        rows: &[
            row(
                &["protect"],
                "Protect a directory from what agents do to it",
            ),
            row(&["rewind"], "Go back to before the last prompt of an agent"),
            row(
                &["hook"],
                "Checkpoints before every prompt and command of an agent",
            ),
            row(
                &["mcp"],
                "Serve checkpoints to agents (Model Context Protocol)",
            ),
        ],
    },
    Group {
        name: "Admin",
        note: "",
        rows: &[
            row(
                &["demo", "doctor"],
                "See it work; check this machine's setup",
            ),
            row(
                &["copy", "link"],
                "Copy to another store; tie a directory to a subject",
            ),
            row(
                &["repair", "events"],
                "Repair damaged documents; show the audit log",
            ),
            row(
                &["ui", "serve", "jobs", "token", "key"],
                "A page of a directory; the store over HTTP; keys",
            ),
            row(&["completions", "man"], "Shell completions; man pages"),
        ],
    },
    Group {
        name: PLUMBING,
        note: "",
        rows: &[row(
            &[
                "repo",
                "archive",
                "clone",
                "lease",
                "store",
                "tenant",
                "operation",
                "schema",
            ],
            "",
        )],
    },
];

const PLUMBING: &str = "Plumbing";
/// Where explanations begin.
const COLUMN: usize = 20;

pub(super) fn text() -> StyledStr {
    let program = Cli::command();
    let has = |name: &&str| program.find_subcommand(name).is_some();
    let about = program.get_about().map(ToString::to_string);
    let literal = literal();
    let mut lines = vec![about.unwrap_or_default()];
    for group in GROUPS {
        lines.push(String::new());
        let rows = group.rows.iter();
        let rows: Vec<&Row> = rows.filter(|row| row.commands.iter().all(has)).collect();
        lines.extend(group.lines(&rows));
    }
    let next = [
        ("Try", "stasis demo"),
        ("Examples:", "stasis help COMMAND"),
        ("Options:", "stasis help options"),
    ];
    let next = next.map(|(what, command)| format!("{what} {literal}{command}{literal:#}."));
    lines.extend([String::new(), next.join(" ")]);
    lines.join("\n").into()
}

impl Group {
    fn lines(&self, rows: &[&Row]) -> Vec<String> {
        let (heading, literal, name) = (heading(), literal(), self.name);
        if name == PLUMBING {
            let names = rows.iter().flat_map(|row| row.commands.iter().copied());
            let names: Vec<&str> = names.collect();
            return vec![format!("{heading}{name}:{heading:#} {}", names.join(", "))];
        }
        let note = match self.note {
            "" => String::new(),
            note => format!(" ({note})"),
        };
        let line = |row: &&Row| {
            let names = row.commands.join(", ");
            let gap = " ".repeat(COLUMN.saturating_sub(names.len() + 2));
            format!("  {literal}{names}{literal:#}{gap}{}", row.what)
        };
        let head = format!("{heading}{name}{heading:#}{note}");
        [head].into_iter().chain(rows.iter().map(line)).collect()
    }
}
