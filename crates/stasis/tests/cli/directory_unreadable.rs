//! Restores of a directory with entries that somebody may not read or change: nothing of them is moved, and nothing is half done.

use crate::session::{Said, Session, said};
use serde_json::{Value, json};
use stasis_testkit::unprivileged::{as_unprivileged, give_to_unprivileged};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory of somebody with no privileges.
struct Theirs {
    session: Session,
    dir: PathBuf,
    is_root: bool,
}

impl Theirs {
    /// One with these files, saved; nothing where nobody else can run the program.
    fn new(files: &[(&str, &str)]) -> Option<Self> {
        let session = Session::new();
        let dir = session.home().join("app");
        for (path, content) in files {
            fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
            fs::write(dir.join(path), content).unwrap();
        }
        let is_root = rustix::process::geteuid().is_root();
        let theirs = Self {
            session,
            dir,
            is_root,
        };
        give_to_unprivileged(theirs.session.home());
        let saved = theirs.run(&["save", theirs.text()]);
        if saved.code == 126 || saved.code == 127 {
            println!("skipped: nobody else can run the program: {}", saved.err);
            return None;
        }
        assert_eq!(saved.code, 0, "{}{}", saved.out, saved.err);
        Some(theirs)
    }

    fn text(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    fn write(&self, path: &str, content: &str, mode: u32) {
        fs::write(self.dir.join(path), content).unwrap();
        give_to_unprivileged(&self.dir.join(path));
        fs::set_permissions(self.dir.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.dir.join(path)).unwrap()
    }

    /// Runs a command without privileges.
    fn run(&self, words: &[&str]) -> Said {
        let plain = self.session.command(words);
        said(as_unprivileged(&plain).output().unwrap())
    }

    fn json(&self, code: i32, words: &[&str]) -> Value {
        let told = self.run(&[words, &["--json"]].concat());
        assert_eq!(told.code, code, "{words:?}: {}{}", told.out, told.err);
        let told: Value = serde_json::from_str(&told.out).unwrap();
        told.get("result").cloned().unwrap_or(told)
    }
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

#[test]
fn a_file_that_may_not_be_read_stays_where_it_is() {
    let Some(theirs) = Theirs::new(&[("code", "one")]) else {
        return;
    };
    theirs.write("code", "two", 0o644);
    theirs.write("secret", "mine", 0o000);
    let secret = inode(&theirs.dir.join("secret"));
    let text = theirs.text();

    let told = theirs.run(&["restore", text]);

    assert_eq!(told.code, 13, "{}{}", told.out, told.err);
    let all = told.out + &told.err;
    assert!(all.contains("may not read or change them: secret"), "{all}");
    assert_eq!(theirs.read("code"), "one");
    assert_eq!(inode(&theirs.dir.join("secret")), secret);

    // What was asked for is no news.
    theirs.write("code", "two", 0o644);
    let around = theirs.json(0, &["restore", text, "--except", "secret"]);
    assert_eq!(theirs.read("code"), "one", "{around:#}");
    assert_eq!(inode(&theirs.dir.join("secret")), secret);
}

#[test]
fn a_directory_of_another_user_is_left_alone_or_refused_before_anything_is_changed() {
    let Some(theirs) = Theirs::new(&[("code", "one"), ("data/a", "one")]) else {
        return;
    };
    if !theirs.is_root {
        println!("skipped: only root gives directories away");
        return;
    }
    let text = theirs.text();
    let at = |path: &str| theirs.dir.join(path);
    // A container left one that the snapshot does not have.
    fs::create_dir(at("volume")).unwrap();
    fs::write(at("volume/file"), "theirs").unwrap();
    fs::set_permissions(at("volume"), fs::Permissions::from_mode(0o700)).unwrap();
    theirs.write("code", "two", 0o644);

    let told = theirs.json(13, &["restore", text]);

    assert_eq!(
        told["in_place"]["not_permitted"],
        json!(["volume"]),
        "{told:#}"
    );
    assert_eq!(
        (theirs.read("code"), theirs.read("volume/file")),
        ("one".into(), "theirs".into())
    );

    // It changed one that the snapshot has.
    theirs.write("code", "two", 0o644);
    theirs.write("data/a", "two", 0o644);
    for (path, mode) in [("data", 0o755), ("data", 0o700)] {
        chown(at(path), Some(0), Some(0)).unwrap();
        fs::set_permissions(at(path), fs::Permissions::from_mode(mode)).unwrap();
        for _ in 0..2 {
            let refused = theirs.run(&["restore", text]);
            assert_eq!(refused.code, 8, "{mode:o}: {}{}", refused.out, refused.err);
            assert!(
                refused.err.contains("belongs to another user"),
                "{}",
                refused.err
            );
            assert!(refused.err.contains("--except data"), "{}", refused.err);
            assert_eq!(
                (theirs.read("code"), theirs.read("data/a")),
                ("two".into(), "two".into())
            );
        }
    }
    let around = theirs.json(13, &["restore", text, "--except", "data"]);
    assert_eq!(
        around["in_place"]["not_permitted"],
        json!(["volume"]),
        "{around:#}"
    );
    assert_eq!(
        (theirs.read("code"), theirs.read("data/a")),
        ("one".into(), "two".into())
    );
    let around = theirs.json(
        0,
        &["restore", text, "--except", "data", "--except", "volume"],
    );
    assert!(around["in_place"]["backup"].is_null(), "{around:#}");
}

/// Nobody can see beforehand that the system will not move a file: everything else comes to its end, and the next command is free.
#[test]
fn what_the_system_refuses_to_move_when_others_have_been_moved_stays_and_is_named() {
    let Some(theirs) = Theirs::new(&[("a", "one"), ("b", "one"), ("c", "one")]) else {
        return;
    };
    for name in ["a", "b", "c"] {
        theirs.write(name, "two", 0o644);
    }
    let fixed = theirs.dir.join("b");
    let set = |flag: &str| Command::new("chattr").arg(flag).arg(&fixed).status();
    if !theirs.is_root || !set("+i").is_ok_and(|status| status.success()) {
        println!("skipped: nobody can make a file immutable here");
        return;
    }
    let text = theirs.text();

    let told = theirs.run(&["restore", text, "--json"]);
    let state = ["a", "b", "c"].map(|name| theirs.read(name));
    let again = theirs.run(&["restore", text, "--no-safety", "--json"]);
    let saved = theirs.run(&["save", text]);
    let unset = set("-i");
    let last = theirs.run(&["restore", text, "--json"]);

    assert!(unset.unwrap().success());
    assert_eq!(told.code, 13, "{}{}", told.out, told.err);
    let told: Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!(told["in_place"]["not_permitted"], json!(["b"]), "{told:#}");
    assert_eq!(state, ["one", "two", "one"]);
    assert_ne!(again.code, 0, "nothing can be moved: {}", again.out);
    assert_eq!(saved.code, 0, "{}", saved.err);
    assert_eq!(last.code, 0, "{}{}", last.out, last.err);
    assert_eq!(theirs.read("b"), "two", "that is what was saved last");
}

#[test]
fn what_may_not_be_read_stays_also_deep_in_a_directory_that_goes() {
    let Some(theirs) = Theirs::new(&[("code", "one")]) else {
        return;
    };
    let deep = theirs.dir.join("new/deep");
    fs::create_dir_all(&deep).unwrap();
    give_to_unprivileged(&theirs.dir.join("new"));
    theirs.write("new/deep/secret", "mine", 0o000);
    theirs.write("new/deep/open", "x", 0o644);

    let told = theirs.json(13, &["restore", theirs.text()]);

    assert_eq!(
        told["in_place"]["not_permitted"],
        json!(["new/deep/secret"]),
        "{told:#}"
    );
    assert!(deep.join("secret").exists() && !deep.join("open").exists());
}

#[test]
fn a_file_that_became_anothers_secret_is_not_replaced_and_a_dry_run_says_so() {
    let Some(theirs) = Theirs::new(&[("code", "one"), ("sec", "one"), ("sub/f", "one")]) else {
        return;
    };
    if !theirs.is_root {
        println!("skipped: only root gives files away");
        return;
    }
    theirs.write("code", "two", 0o644);
    theirs.write("sec", "theirs", 0o600);
    chown(theirs.dir.join("sec"), Some(0), Some(0)).unwrap();

    let refused = theirs.run(&["restore", theirs.text()]);

    assert_eq!(refused.code, 8, "{}{}", refused.out, refused.err);
    assert!(refused.err.contains("--except sec"), "{}", refused.err);
    assert_eq!(
        (theirs.read("code"), theirs.read("sec")),
        ("two".into(), "theirs".into())
    );
    give_to_unprivileged(&theirs.dir.join("sec"));
    theirs.write("sub/f", "two", 0o644);
    chown(theirs.dir.join("sub"), Some(0), Some(0)).unwrap();
    let dry = theirs.run(&["restore", theirs.text(), "--dry-run"]);
    assert!(
        dry.err.contains("would be refused") && dry.err.contains("sub/f"),
        "{}{}",
        dry.out,
        dry.err
    );
}
