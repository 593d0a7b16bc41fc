//! What `latest` means, through the commands that a user types one after the other.

use crate::project::{Shop, id};
use crate::session::{Session, oldest_first};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// A directory of plain files in a home of its own.
struct Plain {
    session: Session,
    dir: PathBuf,
}

impl Plain {
    fn new(name: &str) -> Self {
        let session = Session::new();
        let dir = session.home().join(name);
        fs::create_dir_all(&dir).unwrap();
        Self { session, dir }
    }

    fn write(&self, text: &str) {
        fs::write(self.dir.join("a"), text).unwrap();
    }

    fn read(&self) -> String {
        fs::read_to_string(self.dir.join("a")).unwrap()
    }

    fn words<'w>(&'w self, verb: &'w str, rest: &[&'w str]) -> Vec<&'w str> {
        let mut words = vec![verb, self.dir.to_str().unwrap()];
        words.extend(rest);
        words
    }

    fn json(&self, code: i32, verb: &str, rest: &[&str]) -> Value {
        self.session.json(code, &self.words(verb, rest))
    }

    fn project(&self, code: i32, rest: &[&str]) -> Value {
        let mut words = vec!["project"];
        words.extend(rest);
        words.extend(["--project", self.dir.to_str().unwrap()]);
        self.session.json(code, &words)
    }

    /// The one snapshot that every verb takes for the latest; fails when they differ.
    fn latest(&self) -> String {
        let log = oldest_first(&self.json(0, "log", &[]));
        let active = log
            .as_array()
            .unwrap()
            .iter()
            .filter(|row| row["active"] == true);
        let mut named: Vec<String> = active.map(id).collect();
        named.push(id(&self.json(0, "restore", &["--dry-run"])));
        named.push(id(&self.project(0, &["show", "latest"])));
        named.push(id(&self.project(0, &["verify"])));
        named.push(id(&self.project(0, &["status"])["active"]));
        let diff = self.json(0, "diff", &[]);
        named.push(diff["before"].as_str().unwrap().to_owned());
        named.dedup();
        assert_eq!(named.len(), 1, "every verb means the same: {named:?}");
        named.remove(0)
    }
}

#[test]
fn restore_returns_the_snapshot_that_save_reported() {
    let qc = Plain::new("qc");
    let run = |words: &[&str]| qc.session.data(0, &qc.words(words[0], &words[1..]));
    qc.write("good");

    run(&["save", "--label", "v=good"]);
    qc.write("broken");
    run(&["save"]);
    run(&["restore", "good"]);
    let unchanged = run(&["save"]);
    fs::remove_file(qc.dir.join("a")).unwrap();
    run(&["restore"]);

    assert_eq!(qc.read(), "good");
    let good = id(&qc.project(0, &["show", "good"]));
    assert!(unchanged.contains("Nothing changed since "), "{unchanged}");
    assert!(unchanged.contains(&good[..8]), "{unchanged}");
    assert_eq!(qc.latest(), good);
}

#[test]
fn every_verb_means_the_same_latest_after_saves_restores_and_edits() {
    let notes = Plain::new("notes");
    notes.write("one");
    let one = id(&notes.json(0, "save", &[]));
    assert_eq!(notes.latest(), one);
    notes.write("two");
    let two = id(&notes.json(0, "save", &[]));
    assert_eq!(notes.latest(), two);

    notes.json(0, "restore", &[&one]);
    assert_eq!(notes.latest(), one, "a whole restore chooses");
    notes.write("edited");
    let first = notes.json(0, "restore", &[]);
    let second = notes.json(0, "restore", &[]);
    assert_eq!(
        (notes.read().as_str(), notes.latest()),
        ("one", one.clone())
    );
    assert_ne!(first["safety_snapshot_id"], one.as_str());
    assert_eq!(
        second["safety_snapshot_id"],
        Value::Null,
        "it changed nothing: there is nothing to take back"
    );

    notes.write("three");
    let three = notes.json(0, "save", &[]);
    assert_eq!(three["parent_snapshot_id"], one.as_str());
    assert_eq!(notes.latest(), id(&three));
    notes.write("broken");
    notes.json(0, "restore", &[]);
    assert_eq!(notes.read(), "three");

    let back = first["safety_snapshot_id"].as_str().unwrap();
    notes.json(0, "restore", &[back]);
    assert_eq!(notes.read(), "edited", "a safety snapshot is a way back");
    assert_eq!(notes.latest(), back, "a user chose it");
}

#[test]
fn a_part_or_another_place_does_not_move_latest() {
    let notes = Plain::new("notes");
    notes.write("one");
    let one = id(&notes.json(0, "save", &[]));
    notes.write("two");
    let two = id(&notes.json(0, "save", &[]));
    let elsewhere = notes.session.home().join("elsewhere");

    notes.json(0, "restore", &[&one, "--path", "a"]);
    assert_eq!(
        (notes.read().as_str(), notes.latest()),
        ("one", two.clone())
    );
    notes.json(0, "restore", &[&one, "--to", elsewhere.to_str().unwrap()]);
    assert_eq!(notes.latest(), two);
    notes.json(0, "restore", &[]);
    assert_eq!((notes.read().as_str(), notes.latest()), ("two", two));
}

#[test]
fn an_argument_that_is_wrong_changes_nothing_at_all() {
    let notes = Plain::new("notes");
    notes.write("one");
    let one = id(&notes.json(0, "save", &[]));
    notes.write("edited");
    let there = notes.session.home().to_str().unwrap().to_owned();

    for (code, words) in [
        (3, &["restore", "--path", "nope"][..]),
        (3, &["restore", "--path", "a", "--path", "deep/nope"]),
        (3, &["restore", "ffffffff"]),
        (2, &["restore", "--path", "../a"]),
        (1, &["restore", "--to", &there]),
    ] {
        let said = notes.session.run(&notes.words(words[0], &words[1..]));
        assert!(
            said.code == code || words.contains(&"--to") && said.code != 0,
            "{words:?}: {} {}",
            said.code,
            said.err
        );
        let log = oldest_first(&notes.json(0, "log", &[]));
        assert_eq!(
            log.as_array().unwrap().len(),
            1,
            "{words:?}: no safety snapshot"
        );
        assert_eq!(
            (notes.read().as_str(), notes.latest()),
            ("edited", one.clone())
        );
    }
    let volume = notes.project(2, &["restore", "latest", "--volume", "db"]);
    assert!(
        volume["error"]["message"]
            .as_str()
            .unwrap()
            .contains("plain directory")
    );
    assert_eq!(
        notes.json(0, "log", &[])["items"].as_array().unwrap().len(),
        1
    );

    let shop = Shop::new("[volumes.media]\nconsistency = \"generic\"\n");
    shop.write("volumes/media/pic", "pixels");
    shop.save();
    shop.write("volumes/media/pic", "edited");
    let unknown = shop.json(3, &["restore", "latest", "--volume", "medi"]);
    let message = unknown["error"]["message"].as_str().unwrap();
    assert!(message.contains("no volume `medi`"), "{message}");
    assert_eq!(
        shop.json(0, &["list"])["items"].as_array().unwrap().len(),
        1
    );
    assert_eq!(shop.read("volumes/media/pic"), "edited");
}

#[test]
fn what_was_never_saved_explicitly_has_no_latest_and_says_what_there_is() {
    let notes = Plain::new("notes");
    notes.write("one");
    let saved = id(&notes.project(0, &["save", "--reason", "autosave"]));
    let same = notes.project(0, &["save", "--reason", "autosave"]);
    notes.write("two");

    let none = notes.json(3, "restore", &[]);

    let message = none["error"]["message"].as_str().unwrap();
    assert!(
        message.contains(&saved) && message.contains("autosave"),
        "{message}"
    );
    assert_eq!(
        (&same["published"], id(&same)),
        (&Value::Bool(false), saved.clone())
    );
    assert_eq!(notes.project(0, &["status"])["active"], Value::Null);
    assert_eq!(
        notes.json(0, "log", &[])["items"].as_array().unwrap().len(),
        1
    );
    notes.json(0, "restore", &[&saved]);
    assert_eq!(notes.read(), "one");
    let explicit = notes.json(0, "save", &[]);
    assert_eq!(
        id(&explicit),
        saved,
        "a restore chose it: nothing changed since"
    );
}

#[test]
fn an_explicit_save_of_what_an_automatic_one_has_is_the_latest_all_the_same() {
    let notes = Plain::new("notes");
    notes.write("one");
    let one = id(&notes.json(0, "save", &[]));
    notes.write("two");
    notes.project(0, &["save", "--reason", "autosave"]);
    assert_eq!(notes.latest(), one, "nobody asked for the other one");

    let two = notes.json(0, "save", &[]);
    fs::remove_file(notes.dir.join("a")).unwrap();
    notes.json(0, "restore", &[]);

    assert_eq!(two["published"], true);
    assert_eq!((notes.read().as_str(), notes.latest()), ("two", id(&two)));
}

#[test]
fn what_is_taken_back_derives_from_what_it_derived_from_before() {
    let shop = Shop::new(
        "[services.web]\nstart = [\"sleep\", \"600\"]\nhealth = { command = \"grep -q good state/current/files/a\", timeout_s = 1 }\n",
    );
    shop.write("files/a", "bad");
    let bad = shop.save();
    shop.write("files/a", "good");
    let good = shop.save();
    shop.write("files/a", "good, edited");
    shop.json(0, &["start"]);
    let status = || id(&shop.json(0, &["status"])["active"]);

    let undone = shop.json(1, &["restore", &bad, "--auto-undo"]);
    let after_undo = (shop.read("files/a"), status());
    let upgraded = shop.json(1, &["upgrade", "--", "sh", "-c", "exit 3"]);
    let after_upgrade = (shop.read("files/a"), status());
    shop.json(0, &["stop"]);

    let codes: Vec<&str> = undone["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["code"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["not_well"], "{undone:#}");
    assert_eq!(
        undone["warnings"][0]["undone_to"],
        undone["safety_snapshot_id"]
    );
    assert_eq!(undone["undone"], true);
    assert_eq!(after_undo, ("good, edited".to_owned(), good.clone()));
    assert_eq!(upgraded["rolled_back"], true);
    assert_eq!(after_upgrade, ("good, edited".to_owned(), good.clone()));
    let saved = shop.json(0, &["save"]);
    assert_eq!(saved["parent_snapshot_id"], good.as_str());
}

/// What somebody wrote after the kill is in no snapshot: it is said where it is.
#[test]
fn a_save_that_finishes_a_killed_restore_says_what_it_replaced() {
    if !crate::repo_crash::has_strace() {
        return;
    }
    let session = crate::session::Session::new();
    let dir = session.home().join("d");
    std::fs::create_dir(&dir).unwrap();
    let write = |text: &str| {
        for number in 0..40 {
            std::fs::write(dir.join(number.to_string()), text).unwrap();
        }
    };
    let text = dir.to_str().unwrap();
    write("old");
    session.data(0, &["save", text]);
    write("new");
    let plain = session.command(&["restore", text]);
    let mut killed = std::process::Command::new("strace");
    killed.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=renameat2"]);
    killed.args(["-e", "inject=renameat2:signal=KILL:when=20"]);
    killed
        .arg(plain.get_program())
        .args(plain.get_args())
        .env_clear();
    let variables = plain
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    assert!(!killed.envs(variables).status().unwrap().success());
    let half =
        (0..40).filter(|number| std::fs::read(dir.join(number.to_string())).unwrap() == b"old");
    assert!(
        (1..40).contains(&half.count()),
        "it was killed in the middle"
    );
    for number in 0..40 {
        std::fs::write(dir.join(number.to_string()), "precious").unwrap();
    }

    let said = session.run(&["save", text]);

    assert_eq!(said.code, 0, "{}", said.err);
    let kept = said.err.split("kept=").nth(1).expect("it says where");
    let kept = kept.split_whitespace().next().unwrap().trim_matches('"');
    assert!(said.err.contains("changed="), "{}", said.err);
    let all: Vec<Vec<u8>> = std::fs::read_dir(std::path::Path::new(kept).join("tree"))
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    assert!(all.iter().any(|bytes| bytes == b"precious"), "{kept}");
}
