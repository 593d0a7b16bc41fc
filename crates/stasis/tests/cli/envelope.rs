//! What `--json` prints, through the binary: the envelope of every command, and errors in the same one. That documents are what the
//! published schemas say is asserted where tests read them (`session.rs`).

use crate::session::{Said, Session, assert_published, said};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// A directory that is saved and a workspace, a profile, and everything that can be looked at in them.
struct Desk {
    session: Session,
    dir: PathBuf,
    seen: BTreeSet<String>,
}

impl Desk {
    fn new() -> Self {
        let session = Session::new();
        let dir = session.home().join("notes");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("todo"), "one").unwrap();
        Self {
            session,
            dir,
            seen: BTreeSet::new(),
        }
    }

    fn run(&self, line: &str) -> Said {
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = self.session.command(&[&["--json"], &words[..]].concat());
        command.env("HOME", self.session.home());
        said(command.current_dir(&self.dir).output().unwrap())
    }

    /// Runs a command, and checks what it printed: one document that is published, of this command, and nothing else.
    fn ask(&mut self, code: i32, line: &str) -> Value {
        let said = self.run(line);
        assert_eq!(said.code, code, "{line}\n{}{}", said.out, said.err);
        let document: Value = serde_json::from_str(&said.out).unwrap();
        assert_published(&document);
        let name = document["schema"].as_str().unwrap();
        assert!(
            said.out
                .trim_start()
                .starts_with("{\n  \"schema\": \"stasis.")
                || said.out.starts_with("{\"schema\":\"stasis."),
            "{}",
            said.out
        );
        self.seen.insert(name.to_owned());
        document
    }

    fn write(&self, text: &str) {
        fs::write(self.dir.join("todo"), text).unwrap();
    }
}

/// Everyday verbs, workspaces and forks.
fn an_everyday_session(desk: &mut Desk) {
    let saved = desk.ask(0, "save -m first");
    let (subject, first) = (saved["subject"].clone(), saved["snapshot"].clone());
    assert!(
        subject.as_str().unwrap().starts_with("dir:notes-"),
        "{saved}"
    );
    assert_eq!(first, saved["snapshot_id"]);
    let first = first.as_str().unwrap().to_owned();
    desk.write("two");
    desk.ask(0, "save");
    for line in [
        "log",
        "show",
        "show latest~1",
        "diff latest~1",
        "diff",
        "ls",
        "find todo",
        "du",
        "check",
        "check --all",
        "pin latest~1",
        "pin latest~1 --off",
        "restore latest~1 --dry-run",
        "restore latest~1",
        "undo --yes",
        "gc --dry-run",
        "gc --keep 5",
        "list",
        "doctor",
        "events",
        "forget latest~1 --dry-run",
        "project list",
        "project status",
        "project show latest",
        "project diff latest~1",
        "project verify",
        "project gc --dry-run",
        "repair .",
    ] {
        let document = desk.ask(0, line);
        let is_of_store = ["list", "doctor", "events", "check --all"].contains(&line);
        assert_eq!(
            document["subject"] == subject,
            !is_of_store,
            "{line}: {document}"
        );
    }
    let listed = desk.ask(0, &format!("ls {first}"));
    assert_eq!(listed["items"][0]["path"], "todo");
    assert_eq!(listed["snapshot"], first.as_str());
    desk.ask(0, "project label latest kind=draft");
    desk.ask(0, "project pin latest");
    desk.ask(0, "project save . --allow-empty");
    desk.ask(0, "copy . --to ../other-store");
}

fn a_session_in_a_workspace(desk: &mut Desk) {
    desk.ask(0, "workspace init .");
    desk.write("three");
    let made = desk.ask(0, "workspace create before");
    assert_eq!(made["snapshot"], "cp-10", "{made}");
    assert_eq!(
        made["subject"],
        desk.dir.canonicalize().unwrap().to_str().unwrap()
    );
    desk.write("four");
    for line in [
        "workspace list",
        "workspace list --include-changes",
        "workspace changes",
        "workspace diff todo",
        "workspace diff cp-10",
        "workspace history todo",
        "workspace status",
        "workspace check",
        "workspace revert todo cp-10",
        "workspace undo --yes",
        "workspace restore cp-10 --yes",
        "workspace materialize cp-10 --to ../out",
        "workspace undo --forget",
        "rewind --list",
        "log",
        "show cp-10",
        "ls cp-10",
        "diff cp-10",
        "fork --name try",
        "fork list",
        "fork diff try",
        "fork promote try --yes",
        "fork rm try --yes",
        "workspace compact cp-10 cp-0 --name merged --dry-run",
        "workspace delete before",
        "hook show",
        "protect --dry-run",
        "restore cp-0 --dry-run",
        "snapshots list",
        "snapshots",
    ] {
        desk.ask(0, line);
    }
}

fn a_session_of_an_operator(desk: &mut Desk) {
    let token = desk.ask(0, "lease acquire acme/alice@131");
    assert_eq!(token["subject"], "profile:acme/alice@131");
    let token = token["token"].as_str().unwrap().to_owned();
    let held = desk.ask(4, "lease acquire profile:acme/alice@131");
    assert_eq!(held["schema"], "stasis.error/1");
    assert_eq!(held["subject"], "profile:acme/alice@131");
    desk.ask(0, &format!("lease renew acme/alice@131 --token {token}"));
    desk.ask(0, "lease show acme/alice@131");
    desk.ask(0, &format!("lease release acme/alice@131 --token {token}"));
    desk.ask(0, "lease reap");
    let ran = desk.ask(0, "lease hold acme/alice@131 -- true");
    assert_eq!(ran["schema"], "stasis.lease.hold/1");
    let browser = desk.session.home().join("browser");
    fs::create_dir(&browser).unwrap();
    fs::write(browser.join("Last Version"), "131.0.6778.85").unwrap();
    fs::write(browser.join("state"), "one").unwrap();
    let saved = desk.ask(0, "profile save acme/alice --dir ../browser");
    let sha = saved["snapshot"].as_str().unwrap()[..12].to_owned();
    for line in [
        "profile list",
        "profile list acme/alice",
        "profile list --local",
        "profile show acme/alice",
        "profile gc --dry-run",
        "profile verify acme/alice",
        "profile load acme/alice@131 --dir ../loaded",
        "profile fork acme/alice acme/bob",
        "profile reap",
        "store probe",
        "tenant policy show acme",
        "tenant policy set acme retention.keep_daily=7",
        "key init ../key",
        "demo",
        "archive create . ../notes.tar.zst",
        "archive list ../notes.tar.zst",
        "archive verify ../notes.tar.zst",
        "archive extract ../notes.tar.zst ../unpacked",
        "clone . ../cloned",
        "man --dir ../pages",
        "repo init --repo ../repo",
        "repo save .",
        "repo snapshots",
        "repo ls latest",
        "repo stats",
        "repo check --read-data",
        "repo gc --keep-last 1",
        "repo restore latest ../restored",
    ] {
        desk.ask(0, line);
    }
    desk.ask(0, &format!("profile pin acme/alice --sha {sha}"));
    desk.ask(0, &format!("profile unpin acme/alice --sha {sha}"));
    desk.ask(0, &format!("profile diff acme/alice {sha} latest"));
    desk.ask(0, &format!("profile rollback acme/alice --sha {sha}"));
}

#[test]
fn every_command_prints_one_published_document_of_its_own_schema() {
    let mut desk = Desk::new();

    an_everyday_session(&mut desk);
    a_session_in_a_workspace(&mut desk);
    a_session_of_an_operator(&mut desk);

    assert!(desk.seen.len() > 75, "{}: {:?}", desk.seen.len(), desk.seen);
    assert!(
        !desk.seen.contains("stasis.snapshots.list/1"),
        "it is `workspace list`"
    );
}

#[test]
fn errors_have_the_envelope_and_the_subject_as_far_as_it_is_known() {
    let mut desk = Desk::new();
    let saved = desk.ask(0, "save");

    let unknown = desk.ask(3, "show no-such-snapshot");
    let elsewhere = desk.ask(3, "profile show acme/nobody");
    let misspelt = desk.ask(2, "save --no-such-option");
    let nothing = desk.ask(2, "no-such-command");

    for error in [&unknown, &elsewhere, &misspelt, &nothing] {
        assert_eq!(error["schema"], "stasis.error/1", "{error}");
        assert!(error["error"]["message"].is_string(), "{error}");
    }
    assert_eq!(unknown["subject"], saved["subject"]);
    assert_eq!(elsewhere["subject"], "profile:acme/nobody");
    assert!(nothing.get("subject").is_none());
}

#[test]
fn the_schema_of_one_command_stands_alone() {
    let session = Session::new();
    let schema = |words: &[&str]| -> Value {
        serde_json::from_str(&session.data(0, &[&["schema"], words].concat())).unwrap()
    };

    let list = schema(&["workspace", "list"]);
    let other_spelling = schema(&["snapshots.list"]);
    let bytes = session.run(&["schema", "cat"]);
    let unknown = session.run(&["schema", "no", "such"]);

    assert_eq!(
        list["properties"]["schema"]["const"],
        "stasis.workspace.list/1"
    );
    assert!(list["$defs"]["Checkpoints"].is_object(), "{list}");
    assert!(list["$defs"].get("ProfileSaved").is_none());
    assert_eq!(list, other_spelling);
    assert_eq!((bytes.code, unknown.code), (2, 2));
    assert!(bytes.err.contains("prints no JSON"), "{}", bytes.err);
}
