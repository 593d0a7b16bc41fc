//! Everything that only reads works on a store that cannot be written to.

use crate::project::Shop;
use crate::session::{Said, Session, said};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory that nobody can write to: by its permissions for an ordinary user, as a mount for root.
struct ReadOnly {
    place: PathBuf,
    is_root: bool,
}

impl ReadOnly {
    /// None where that cannot be had.
    fn new(place: &Path) -> Option<Self> {
        let is_root = rustix::process::geteuid().is_root();
        let can = Command::new("unshare").args(["--mount", "true"]).status();
        if is_root && !can.is_ok_and(|can| can.success()) {
            println!("skipped: root cannot make a mount of its own here");
            return None;
        }
        let made = Self {
            place: place.to_owned(),
            is_root,
        };
        made.permit(false);
        Some(made)
    }

    fn permit(&self, may_write: bool) {
        if !self.is_root {
            let mode = if may_write { "u+w" } else { "a-w" };
            let done = Command::new("chmod")
                .args(["-R", mode])
                .arg(&self.place)
                .status();
            assert!(done.unwrap().success());
        }
    }

    fn run(&self, plain: &Command) -> Said {
        let mut command = Command::new(plain.get_program());
        if self.is_root {
            command = Command::new("unshare");
            let script =
                "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\" && exec \"$@\"";
            command
                .args(["--mount", "sh", "-c", script])
                .arg(&self.place);
            command.arg(plain.get_program());
        }
        command.args(plain.get_args()).env_clear();
        let set = plain.get_envs();
        command.envs(set.filter_map(|(name, value)| Some((name, value?))));
        said(command.output().unwrap())
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        self.permit(true);
    }
}

/// Every file beneath a place, with its content.
fn contents(place: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(place).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.insert(path.clone(), Vec::new());
            found.extend(contents(&path));
        } else {
            found.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    found
}

#[test]
fn a_directory_is_looked_at_and_comes_back_from_a_store_that_is_read_only() {
    let session = Session::new();
    let dir = session.home().join("notes");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("a"), "one").unwrap();
    let text = dir.to_str().unwrap();
    session.json(0, &["save", text]);
    fs::write(dir.join("a"), "two").unwrap();
    let store = session.object("");
    let before = contents(&store);
    let Some(read_only) = ReadOnly::new(&store) else {
        return;
    };
    let to = session.home().join("back");
    let to = to.to_str().unwrap();

    for words in [
        &["log", text][..],
        &["diff", text],
        &["restore", text, "--dry-run"],
        &["restore", text, "--to", to],
        &["project", "list", "--project", text],
        &["project", "status", "--project", text],
        &["project", "show", "latest", "--project", text],
        &["project", "verify", "--project", text],
        &[
            "project",
            "restore",
            "latest",
            "--to",
            &format!("{to}2"),
            "--project",
            text,
        ],
    ] {
        let said = read_only.run(&session.command(words));
        assert_eq!(said.code, 0, "{words:?}\n{}\n{}", said.out, said.err);
    }
    let save = read_only.run(&session.command(&["save", text]));

    assert_eq!(fs::read_to_string(Path::new(to).join("a")).unwrap(), "one");
    assert_eq!(save.code, 8, "{}", save.err);
    drop(read_only);
    assert_eq!(contents(&store), before, "nothing was written");
}

#[test]
fn a_project_is_looked_at_when_nothing_of_it_can_be_written() {
    let shop = Shop::new("[volumes.media]\nconsistency = \"generic\"\n");
    shop.write("files/a", "1");
    shop.write("volumes/media/pic", "pixels");
    shop.save();
    shop.write("files/a", "2");
    let Some(read_only) = ReadOnly::new(&shop.at("")) else {
        return;
    };
    let to = shop.session.home().join("back");

    for words in [
        &["list"][..],
        &["status"],
        &["show", "latest"],
        &["verify"],
        &["diff", "latest"],
        &["restore", "latest", "--dry-run"],
        &["restore", "latest", "--to", to.to_str().unwrap()],
    ] {
        let said = read_only.run(&shop.command(words));
        assert_eq!(said.code, 0, "{words:?}\n{}\n{}", said.out, said.err);
    }

    assert_eq!(fs::read_to_string(to.join("files/a")).unwrap(), "1");
}

#[test]
fn a_repository_is_looked_at_and_restored_where_it_is_read_only() {
    let session = Session::new();
    let (dir, repo) = (session.home().join("tree"), session.home().join("repo"));
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("a"), "one").unwrap();
    let (text, at) = (dir.to_str().unwrap(), repo.to_str().unwrap());
    session.json(0, &["repo", "init", "--repo", at]);
    session.json(0, &["repo", "save", text, "--repo", at]);
    fs::set_permissions(&repo, fs::Permissions::from_mode(0o755)).unwrap();
    let before = contents(&repo);
    let Some(read_only) = ReadOnly::new(&repo) else {
        return;
    };
    let to = session.home().join("back");

    for words in [
        &["repo", "snapshots"][..],
        &["repo", "ls", "latest"],
        &["repo", "cat", "latest", "a"],
        &["repo", "stats"],
        &["repo", "check"],
        &["repo", "restore", "latest", to.to_str().unwrap()],
    ] {
        let words = [words, &["--repo", at]].concat();
        let said = read_only.run(&session.command(&words));
        assert_eq!(said.code, 0, "{words:?}\n{}\n{}", said.out, said.err);
    }

    assert_eq!(fs::read_to_string(to.join("a")).unwrap(), "one");
    drop(read_only);
    assert_eq!(contents(&repo), before, "nothing was written");
}
