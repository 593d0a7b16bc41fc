//! A question at a terminal: what it is about is shown as `--dry-run` shows it, and what is done is what was shown, or nothing.

use crate::session::{Said, Session};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A directory with three snapshots.
struct Desk {
    session: Session,
    dir: PathBuf,
}

impl Desk {
    fn new() -> Self {
        let session = Session::new();
        let dir = session.home().join("notes");
        fs::create_dir(&dir).unwrap();
        let desk = Self { session, dir };
        for text in ["one", "two", "three"] {
            desk.write(text);
            desk.save();
        }
        desk
    }

    fn write(&self, text: &str) {
        fs::write(self.dir.join("plan"), text).unwrap();
    }

    fn read(&self) -> String {
        fs::read_to_string(self.dir.join("plan")).unwrap()
    }

    fn dir(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    fn save(&self) {
        self.session.data(0, &["save", self.dir()]);
    }

    /// The ids of all snapshots, the oldest first.
    fn snapshots(&self) -> Vec<String> {
        let listed = self.session.json(0, &["log", self.dir(), "--all"]);
        let items = listed["items"].as_array().unwrap().iter();
        let ids = items.filter(|item| item["kind"] == "snapshot");
        let ids = ids.map(|item| item["snapshot"].as_str().unwrap().to_owned());
        let mut ids: Vec<String> = ids.collect();
        ids.reverse();
        ids
    }

    /// Runs a command at a terminal; when it asks, `meanwhile` happens, and then it is answered.
    fn asked(&self, words: &[&str], answer: &str, meanwhile: impl FnOnce()) -> Said {
        let plain = self.session.command(words);
        let quoted = |word: &std::ffi::OsStr| format!("'{}'", word.to_str().unwrap());
        let line = [plain.get_program()].into_iter().chain(plain.get_args());
        let line: Vec<String> = line.map(quoted).collect();
        let mut script = Command::new("script");
        script.args(["-qec", &line.join(" "), "/dev/null"]);
        script.env_clear().env("SHELL", "/bin/sh");
        let variables = plain.get_envs();
        script.envs(variables.filter_map(|(name, value)| Some((name, value?))));
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = script.spawn().unwrap();
        let (mut typing, mut shown) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (mut out, mut byte) = (Vec::new(), [0]);
        while !out.ends_with(b"[y/N] ") && shown.read(&mut byte).unwrap() > 0 {
            out.push(byte[0]);
        }
        if out.ends_with(b"[y/N] ") {
            meanwhile();
        }
        let _ = writeln!(typing, "{answer}");
        drop(typing);
        shown.read_to_end(&mut out).unwrap();
        let code = child.wait().unwrap().code().unwrap_or(-1);
        let out = String::from_utf8_lossy(&out).replace("\r\n", "\n");
        let err = String::new();
        Said { code, out, err }
    }
}

/// The sentence and the lines of a plan: without what comes before and after them.
fn plan(text: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| !line.contains(" will "));
    let mut lines = lines.map(str::to_owned);
    let first = lines.next().into_iter();
    first
        .chain(lines.take_while(|line| line.starts_with("  ")))
        .collect()
}

#[test]
fn forget_and_gc_ask_and_show_what_a_dry_run_shows() {
    let desk = Desk::new();
    let ids = desk.snapshots();
    let (dir, oldest) = (desk.dir(), &ids[0][..8]);
    let commands: [&[&str]; 2] = [
        &["forget", dir, oldest, &ids[1][..8]],
        &["gc", dir, "--keep", "2"],
    ];

    for command in commands {
        let dry = [command, &["--dry-run"]].concat();
        let shown = plan(&desk.session.data(0, &dry));
        let no = desk.asked(command, "n", || {});

        assert_eq!(no.code, 130, "{}", no.out);
        assert!(no.out.contains("nothing was changed"), "{}", no.out);
        assert_eq!(plan(&no.out), shown, "{}", no.out);
        let line = format!("  delete     {oldest}");
        assert!(
            shown[1..].iter().any(|one| one.starts_with(&line)),
            "{shown:?}"
        );
        assert_eq!(desk.snapshots(), ids);
    }
    let yes = desk.asked(commands[1], "y", || {});
    assert_eq!(yes.code, 0, "{}", yes.out);
    assert_eq!(desk.snapshots(), ids[1..]);
    let unasked = desk.asked(&["forget", dir, &ids[1], "--yes"], "", || {});
    assert_eq!(unasked.code, 0, "{}", unasked.out);
    assert!(!unasked.out.contains("[y/N]"), "{}", unasked.out);
    assert_eq!(desk.snapshots(), ids[2..]);
}

#[test]
fn what_changed_since_the_question_is_not_done() {
    let desk = Desk::new();
    let ids = desk.snapshots();
    let dir = desk.dir();

    let gc = desk.asked(&["gc", dir, "--keep", "2"], "y", || {
        desk.write("four");
        desk.save();
    });
    let after_gc = desk.snapshots();
    let pinned = desk.asked(&["forget", dir, &ids[0], &ids[1]], "y", || {
        desk.session.data(0, &["pin", dir, &ids[1]]);
    });
    let after_forget = desk.snapshots();
    let restore = desk.asked(&["restore", dir, &ids[0]], "y", || {
        fs::write(desk.dir.join("other"), "somebody's work").unwrap();
    });

    assert_eq!(gc.code, 1, "{}", gc.out);
    assert!(gc.out.contains("nothing was removed"), "{}", gc.out);
    assert_eq!(after_gc[..3], ids);
    assert_ne!(pinned.code, 0, "{}", pinned.out);
    assert_eq!(after_forget, after_gc, "all or none");
    assert_eq!(restore.code, 1, "{}", restore.out);
    assert!(
        restore.out.contains("something else would change by now"),
        "{}",
        restore.out
    );
    assert_eq!(desk.read(), "four");
    assert_eq!(desk.snapshots(), after_gc, "nothing was saved either");
}

#[test]
fn a_checkpoint_that_took_the_slot_since_is_not_forgotten() {
    let desk = Desk::new();
    let dir = desk.dir();
    let workspace = ["--workspace", dir];
    desk.session.data(0, &["workspace", "init", dir]);
    let make = |name: &str| {
        let words = [&["workspace", "create", name], &workspace[..]].concat();
        desk.session.json(0, &words)["checkpoint"].clone()
    };
    let first = make("first");
    let first = first.as_str().unwrap();

    let late = desk.asked(&["forget", dir, first], "y", || {
        desk.session.data(0, &["forget", dir, first]);
        desk.write("newer");
        assert_eq!(make("second"), first, "it takes the slot that is free");
    });

    assert_eq!(late.code, 1, "{}", late.out);
    let words = [&["workspace", "list"], &workspace[..]].concat();
    let listed: Value = desk.session.json(0, &words);
    let mut rows = listed["items"].as_array().unwrap().iter();
    assert!(rows.any(|row| row["name"] == "second"), "{listed:#}");
}
