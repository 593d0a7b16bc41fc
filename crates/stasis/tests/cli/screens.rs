//! What people see at eighty columns: one whole session on a small tree, kept as a snapshot, and rules that every line obeys.

use crate::session::{Said, Session, said};
use std::fs;
use std::path::PathBuf;

const COLUMNS: usize = 80;

/// What differs from run to run, and from one filesystem to another. Runs of spaces become two, because a table is as wide as what is in
/// it.
const FILTERS: [(&str, &str); 14] = [
    (r"(/[^\s`':]*)?/\.tmp\w{6}", "[home]"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "[time]"),
    (
        r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "[uuid]",
    ),
    (r"\b[0-9a-f]{64}\b", "[digest]"),
    (r"notes-[0-9a-f]{4,}", "notes-[tag]"),
    (r"\b[0-9a-f]{12}\b", "[sha]"),
    (r"\b[0-9a-f]{8}\b", "[id]"),
    (r"\b\d+ (s|min|h) ago\b", "[age]"),
    (r"\b\d+(\.\d)? (B|KiB|MiB|GiB|TiB)\b", "[size]"),
    (r"\b\d+ ms\b", "[n] ms"),
    (r"hint: checkpoints are kept as [^\n]*\n", ""),
    (
        r"\b(form  +|by |\()(chunked|cloned|chunks|reflink|copy|subvolume)\b(, \w+\))?",
        "$1[form]$3",
    ),
    (r"\[form\], \w+\)", "[form], [filesystem])"),
    (r" {2,}", "  "),
];

/// A home with a directory in it.
struct Desk {
    session: Session,
    dir: PathBuf,
}

impl Desk {
    fn new() -> Self {
        let session = Session::new();
        let dir = session.home().join("notes");
        fs::create_dir_all(dir.join("src")).unwrap();
        let desk = Self { session, dir };
        desk.write("plan.txt", "buy milk");
        desk.write("src/main.rs", "fn main() {}\n");
        desk
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.join(name), text).unwrap();
    }

    fn run(&self, line: &str) -> Said {
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = self.session.command(&words);
        command
            .env("HOME", self.session.home())
            .env("COLUMNS", COLUMNS.to_string());
        said(command.current_dir(&self.dir).output().unwrap())
    }

    /// What a command shows, with what was typed. What it shows as data fits the screen.
    fn screen(&self, line: &str) -> String {
        let said = self.run(line);
        assert_eq!(said.code, 0, "{line}\n{}{}", said.out, said.err);
        for shown in said.out.lines().filter(|line| !may_be_long(line)) {
            assert!(shown.chars().count() <= COLUMNS, "{line}: {shown}");
        }
        format!("$ stasis {line}\n{}{}", said.out, said.err)
    }

    fn screens(&self, lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| self.screen(line)).collect()
    }
}

/// The everyday commands, in an order in which somebody could type them.
fn a_session(desk: &Desk) -> Vec<String> {
    let mut all = desk.screens(&["list", "save -m first", "save"]);
    desk.write("plan.txt", "buy bread");
    desk.write("big", &"many words ".repeat(20_000));
    all.extend(desk.screens(&["diff", "save"]));
    desk.write("plan.txt", "buy nothing");
    fs::remove_file(desk.dir.join("big")).unwrap();
    all.extend(desk.screens(&[
        "log",
        "list",
        "show",
        "ls",
        "ls -r",
        "find plan.txt",
        "du",
        "check",
        "restore latest~1 --dry-run",
        "restore latest~1",
        "undo --yes",
        "gc --keep 1 --keep-daily 7 --dry-run",
        "gc --keep 1",
        "pin",
        "project status",
    ]));
    all
}

fn in_a_workspace(desk: &Desk) -> Vec<String> {
    let mut all = desk.screens(&["workspace init ."]);
    desk.write("plan.txt", "buy eggs");
    all.extend(desk.screens(&["workspace create before"]));
    desk.write("plan.txt", "buy tea");
    desk.write("new.txt", "new");
    all.extend(desk.screens(&[
        "workspace list",
        "workspace changes",
        "workspace status",
        "workspace history plan.txt",
        "log",
        "workspace restore before --dry-run",
        "workspace revert plan.txt before",
        "fork --name try",
        "fork list",
        "fork diff try",
        "check",
        "list",
    ]));
    all
}

fn of_an_operator(desk: &Desk) -> Vec<String> {
    let browser = desk.session.home().join("browser");
    fs::create_dir(&browser).unwrap();
    fs::write(browser.join("Last Version"), "131.0.6778.85").unwrap();
    fs::write(browser.join("state"), "one").unwrap();
    desk.screens(&[
        "profile save acme/alice --dir ../browser",
        "profile list",
        "profile list acme/alice",
        "profile show acme/alice",
        "profile gc --keep-newest 1 --dry-run",
        "list",
    ])
}

/// What is printed to be typed, or has a path of this machine, is not broken.
fn may_be_long(line: &str) -> bool {
    line.contains("stasis ") || line.split([' ', '`']).any(|word| word.starts_with('/'))
}

#[test]
fn the_everyday_screens_are_as_they_were() {
    let desk = Desk::new();

    let mut all = a_session(&desk);
    all.extend(in_a_workspace(&desk));
    all.extend(of_an_operator(&desk));

    let text = all.join("\n");
    for noun in [
        "files",
        "snapshots",
        "chunks",
        "entries",
        "checkpoints",
        "bytes",
        "objects",
        "profiles",
        "directories",
        "databases",
    ] {
        let wrong = format!(" 1 {noun}");
        assert!(!text.contains(&wrong), "`{wrong}` in\n{text}");
    }
    insta::with_settings!({ filters => FILTERS.to_vec() }, { insta::assert_snapshot!(text) });
}

#[test]
fn the_doctor_and_the_first_screen_fit_eighty_columns() {
    let desk = Desk::new();

    desk.screens(&["doctor", "help", "help save", "help gc", "help options"]);
}
