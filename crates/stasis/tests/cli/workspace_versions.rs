//! Checkpoints as lists of file versions, by the program: on xfs and btrfs, and in chunks on ext4.

use crate::project::names;
use crate::session::Session;
use crate::workspace::Tree;
use serde_json::Value;
use stasis_testkit::mounted_image::MountedImage;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Does the same on each filesystem; says to the test whether files are held whole there.
fn on_each(test: impl Fn(&Tree, bool)) {
    for (filesystem, is_shared) in [("xfs", true), ("btrfs", true), ("ext4", false)] {
        let Some(mounted) = MountedImage::new(filesystem, 512 << 20) else {
            continue;
        };
        let files = [("same", "same\n"), ("deep/file", "first\n")];
        let tree = Tree::of(Session::within(&mounted.root()), &files, &[]);
        test(&tree, is_shared);
    }
}

#[test]
fn a_checkpoint_is_written_out_as_a_plain_directory() {
    on_each(|tree, is_shared| {
        tree.checkpoint("one");
        let before = tree.contents();
        tree.write("deep/file", "second\n");
        let out = tree.session.home().join("out");
        let to = out.to_str().unwrap();

        let dry = tree.json(0, &["materialize", "one", "--to", to, "--dry-run"]);
        let made = tree.json(0, &["materialize", "one", "--to", to]);
        let again = tree.run(&["materialize", "one", "--to", to]);

        assert_eq!(
            (&dry["materialized"], &made["materialized"]),
            (&false.into(), &true.into())
        );
        assert_eq!(made["method"], if is_shared { "reflink" } else { "chunks" });
        assert_eq!(
            fs::read_to_string(out.join("deep/file")).unwrap(),
            "first\n"
        );
        assert_eq!(names(&out), ["deep", "same"]);
        assert_ne!(again.code, 0, "nothing is overwritten");
        tree.json(0, &["restore", "one"]);
        assert_eq!(tree.contents(), before);
    });
}

#[test]
fn what_is_replaced_without_an_undo_is_gone_and_said_to_be() {
    on_each(|tree, _| {
        tree.checkpoint("one");
        tree.write("deep/file", "second\n");
        tree.write("added", "added\n");

        let reverted = tree.run(&["revert", "deep/file", "one", "--no-undo"]);
        let restored = tree.json(0, &["restore", "one", "--no-undo"]);
        let undone = tree.run(&["undo"]);

        assert!(
            reverted.err.contains("cannot be undone"),
            "{}",
            reverted.err
        );
        assert_eq!(tree.read("deep/file"), "first\n");
        assert_eq!(restored["restored"], true);
        assert!(restored["undo"].is_null() && !tree.at("added").exists());
        assert_ne!(undone.code, 0, "{}", undone.err);
        assert_eq!(
            tree.json(0, &["status"])["undo"].as_array().unwrap().len(),
            0
        );
    });
}

#[test]
fn a_status_opens_no_directory_of_the_workspace_and_says_at_most() {
    on_each(|tree, is_shared| {
        tree.checkpoint("one");
        tree.write("deep/file", "second\n");
        tree.checkpoint("two");
        tree.write("deep/new", "new\n");
        tree.json(0, &["restore", "one"]);
        let log = tree.session.home().join("log");
        let status = tree.command(&["status"]);
        let mut strace = std::process::Command::new("strace");
        strace.args([
            "-f",
            "-qq",
            "-e",
            "trace=open,openat,openat2,getdents64",
            "-o",
        ]);
        strace
            .arg(&log)
            .arg(status.get_program())
            .args(status.get_args());
        for (name, value) in status.get_envs() {
            match value {
                Some(value) => strace.env(name, value),
                None => strace.env_remove(name),
            };
        }
        let Ok(said) = strace.output() else {
            assert!(std::env::var_os("STASIS_REQUIRE_PARTS").is_none());
            return;
        };

        let said = String::from_utf8(said.stdout).unwrap();
        let log = fs::read_to_string(log).unwrap();
        assert_eq!(said.contains("at most"), is_shared, "{said}");
        // Neither of the workspace nor of what would take the restore back.
        assert!(!log.contains("/deep") && !log.contains("\"deep\""), "{log}");
        assert!(!log.contains("/objects/"), "{log}");
        assert!(log.contains("auto_snapshots"), "{log}");
    });
}

#[test]
fn a_check_names_the_checkpoint_that_lost_a_file() {
    on_each(|tree, is_shared| {
        tree.checkpoint("one");
        tree.write("deep/file", "second\n");
        tree.checkpoint("two");
        let whole = tree.json(0, &["check"]);
        assert_eq!(
            (
                &whole["checkpoints"],
                whole["damaged"].as_array().unwrap().len()
            ),
            (&2.into(), 0)
        );
        if !is_shared {
            return;
        }
        let status = tree.json(0, &["status"]);
        let objects = format!("{}/objects", status["session"].as_str().unwrap());
        let is_second = |path: &std::path::PathBuf| fs::read(path).unwrap() == b"second\n";
        let all = fs::read_dir(&objects)
            .unwrap()
            .map(|one| one.unwrap().path());
        fs::remove_file({ all }.find(is_second).unwrap()).unwrap();
        let healed = tree.json(0, &["check"]);
        assert_eq!(healed["healed"], serde_json::json!(["deep/file"]));
        let mut all = fs::read_dir(&objects)
            .unwrap()
            .map(|one| one.unwrap().path());
        fs::remove_file(all.find(is_second).unwrap()).unwrap();
        tree.write("deep/file", "third\n");

        let checked = tree.json(9, &["check"]);
        let listed = tree.json(0, &["list"]);
        let status = tree.json(0, &["status"]);
        let lost = tree.run(&["materialize", "two", "--to", "out"]);
        let kept = tree.json(0, &["restore", "one"]);

        let damaged = checked["damaged"].as_array().unwrap();
        assert_eq!((damaged.len(), &damaged[0]["name"]), (1, &"two".into()));
        assert_eq!(damaged[0]["files"], serde_json::json!(["deep/file"]));
        assert_eq!(listed["items"].as_array().unwrap().len(), 2);
        assert!(status["held_bytes"].as_u64().unwrap() > 0);
        assert_eq!(lost.code, 9, "{}", lost.err);
        assert!(lost.err.contains("deep/file"), "{}", lost.err);
        assert!(
            lost.err
                .contains(damaged[0]["checkpoint"].as_str().unwrap())
        );
        assert_eq!(kept["restored"], true);
    });
}

#[test]
fn an_unchanged_automatic_checkpoint_is_skipped_and_a_touch_is_no_change() {
    on_each(|tree, _| {
        let first = tree.json(0, &["create", "--auto"]);
        let same = tree.json(0, &["create", "--auto"]);
        let later = fs::FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH);
        fs::File::options()
            .write(true)
            .open(tree.at("same"))
            .unwrap()
            .set_times(later)
            .unwrap();
        let touched = tree.json(0, &["create", "--auto"]);
        tree.write("same", "other\n");
        let edited = tree.json(0, &["create", "--auto"]);

        let created = [&first, &same, &touched, &edited].map(|one| one["created"] == true);
        assert_eq!(created, [true, false, false, true]);
        assert_eq!(same["checkpoint"], first["checkpoint"]);
    });
}

#[test]
fn checkpoints_that_are_replaced_during_a_check_are_not_called_damaged() {
    on_each(|tree, _| {
        tree.checkpoint("named");
        let (is_over, replaced) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut number, mut slots) = (0, BTreeSet::new());
                while !is_over.load(Ordering::Relaxed) {
                    tree.write("deep/file", &format!("{number}\n"));
                    let made = tree.json(0, &["create", "--auto"]);
                    if !slots.insert(made["slot"].as_u64()) {
                        replaced.fetch_add(1, Ordering::Relaxed);
                    }
                    number += 1;
                }
            });
            let mut found = Vec::new();
            while found.len() < 15 || (replaced.load(Ordering::Relaxed) < 5 && found.len() < 300) {
                found.push(tree.run(&["check"]));
            }
            is_over.store(true, Ordering::Relaxed);
            for one in found {
                assert_eq!(one.code, 0, "{}", one.out);
            }
        });
        assert!(replaced.load(Ordering::Relaxed) >= 5, "{replaced:?}");
    });
}

/// Where the version of a text lies.
fn version_of(tree: &Tree, text: &str) -> PathBuf {
    let status = tree.json(0, &["status"]);
    let objects = format!("{}/objects", status["session"].as_str().unwrap());
    let all = fs::read_dir(objects).unwrap();
    let mut all = all.map(|one| one.unwrap().path());
    all.find(|path| fs::read(path).unwrap() == text.as_bytes())
        .unwrap()
}

#[test]
fn an_automatic_checkpoint_after_damage_was_found_leaves_one_that_can_be_restored() {
    on_each(|tree, is_shared| {
        if !is_shared {
            return;
        }
        tree.json(0, &["create", "--auto"]);
        fs::write(version_of(tree, "first\n"), "FIRST\n").unwrap();
        tree.write("deep/file", "edited\n");
        let checked = tree.json(9, &["check"]);
        tree.write("deep/file", "first\n");

        let next = tree.json(0, &["create", "--auto"]);

        let out = tree.session.home().join("out");
        let newest = next["checkpoint"].as_str().unwrap();
        tree.json(0, &["materialize", newest, "--to", out.to_str().unwrap()]);
        let held = fs::read_to_string(out.join("deep/file")).unwrap();
        assert_eq!(checked["damaged"].as_array().unwrap().len(), 1);
        assert_eq!(held, "first\n");
        tree.json(0, &["check"]);
    });
}

#[test]
fn a_check_heals_what_was_renamed_since() {
    on_each(|tree, is_shared| {
        if !is_shared {
            return;
        }
        tree.checkpoint("one");
        fs::rename(tree.at("same"), tree.at("renamed")).unwrap();
        tree.checkpoint("two");
        fs::remove_file(version_of(tree, "same\n")).unwrap();

        let checked = tree.json(0, &["check"]);

        assert_eq!(checked["healed"], serde_json::json!(["renamed"]));
        assert_eq!(checked["damaged"].as_array().unwrap().len(), 0);
    });
}

#[test]
fn a_damaged_newest_checkpoint_is_named_and_another_is_made() {
    on_each(|tree, is_shared| {
        let first = tree.json(0, &["create", "--auto"]);
        let status = tree.json(0, &["status"]);
        let session = status["session"].as_str().unwrap().to_owned();
        let slot = format!("{session}/auto_snapshots/{}", first["slot"]);
        let document = if is_shared { "versions" } else { "chunks" };
        fs::write(format!("{slot}/{document}"), "torn").unwrap();

        let status = tree.json(0, &["status"]);
        let checked = tree.json(9, &["check"]);
        let next = tree.json(0, &["create", "--auto"]);
        let after = tree.json(0, &["status"]);

        assert_eq!(status["unreadable"][0]["checkpoint"], first["checkpoint"]);
        let problem = checked["damaged"][0]["problem"].as_str().unwrap();
        assert!(problem.contains(document), "{problem}");
        assert_eq!(next["created"], true, "{next}");
        assert_eq!(after["unreadable"].as_array().unwrap().len(), 0);
        assert_eq!(after["newest"], next["checkpoint"]);
    });
}

/// Saves the workspace into a store of its own; says what was answered, and which files of the tree were opened.
fn saved_into(tree: &Tree, session: &Session, store: &Path) -> Option<(Value, BTreeSet<String>)> {
    let (dir, log) = (tree.dir(), session.home().join("log"));
    let words = ["--json", "--store", store.to_str().unwrap(), "save", &dir];
    let save = session.command(&words);
    let mut strace = std::process::Command::new("strace");
    strace.args(["-f", "-qq", "-y", "-e", "trace=open,openat,openat2", "-o"]);
    strace
        .arg(&log)
        .arg(save.get_program())
        .args(save.get_args());
    for (name, value) in save.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    let Ok(said) = strace.output() else {
        assert!(std::env::var_os("STASIS_REQUIRE_PARTS").is_none());
        return None;
    };
    let error = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{error}");
    let saved = serde_json::from_slice(&said.stdout).unwrap();
    let log = fs::read_to_string(log).unwrap();
    let opened = log.lines().filter_map(|line| {
        let path = line.rsplit_once(" = ")?.1.split_once('<')?.1;
        let path = path.strip_suffix('>')?.strip_prefix(&dir)?;
        tree.at("")
            .join(path.trim_start_matches('/'))
            .is_file()
            .then(|| path.to_owned())
    });
    Some((saved, opened.collect()))
}

/// The names of everything that a store holds in its pool.
fn stored(store: &Path) -> BTreeSet<String> {
    let mut find = std::process::Command::new("find");
    let found = find
        .arg(store.join("pools"))
        .args(["-name", "sha256:*", "-printf", "%f\n"]);
    let found = String::from_utf8(found.output().unwrap().stdout).unwrap();
    found.lines().map(str::to_owned).collect()
}

#[test]
fn a_save_takes_from_the_newest_checkpoint_what_looks_as_it_did_then() {
    on_each(|tree, is_shared| {
        let large: Vec<String> = (0..60_000_u32)
            .map(|n| format!("{:x}\n", n.wrapping_mul(2_654_435_761)))
            .collect();
        let large = large.concat().repeat(4);
        assert!(large.len() > 2 << 20);
        tree.write("large", &large);
        tree.write("empty", "");
        tree.write("twin", "same\n");
        fs::hard_link(tree.at("same"), tree.at("linked")).unwrap();
        std::os::unix::fs::symlink("same", tree.at("link")).unwrap();
        // Old enough to be cached.
        std::thread::sleep(std::time::Duration::from_millis(2500));
        tree.checkpoint("one");
        let (here, elsewhere) = (tree.session.home(), Session::new());
        let [first, second] = ["first", "second"].map(|name| here.join(name));
        let [other, third] = ["other", "third"].map(|name| elsewhere.home().join(name));

        let Some((held, opened)) = saved_into(tree, &tree.session, &first) else {
            return;
        };
        let (read, all) = saved_into(tree, &elsewhere, &other).unwrap();
        tree.write("deep/file", "edited\n");
        let (edited, one) = saved_into(tree, &tree.session, &second).unwrap();
        let (reread, _) = saved_into(tree, &elsewhere, &third).unwrap();

        // What is not cloned is taken only if it was old when the checkpoint read it.
        let expected: &[&str] = if is_shared {
            &[]
        } else {
            &["/deep/file", "/large", "/linked", "/twin"]
        };
        assert_eq!(Vec::from_iter(&opened), expected);
        assert_eq!(held["files_held"], if is_shared { 5 } else { 1 });
        assert!(all.len() >= 4 && read["files_held"] == 0, "{all:?}");
        assert_eq!(held["state_digest"], read["state_digest"]);
        assert_eq!(stored(&first), stored(&other));
        assert!(!stored(&first).is_empty());
        let expected = [expected, &["/deep/file"]].concat();
        assert_eq!(
            one,
            expected.iter().map(|path| (*path).to_owned()).collect()
        );
        assert_eq!(edited["state_digest"], reread["state_digest"]);
        assert_eq!(stored(&second), stored(&third));
        assert_ne!(edited["state_digest"], held["state_digest"]);
    });
}

#[test]
fn a_save_reads_from_the_tree_what_its_checkpoint_has_lost() {
    on_each(|tree, is_shared| {
        if !is_shared {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(2500));
        tree.checkpoint("one");
        fs::write(version_of(tree, "first\n"), "FIRST\n").unwrap();
        fs::remove_file(version_of(tree, "same\n")).unwrap();
        let elsewhere = Session::new();
        let stores = [tree.session.home(), elsewhere.home()].map(|home| home.join("store"));

        let Some((held, opened)) = saved_into(tree, &tree.session, &stores[0]) else {
            return;
        };
        let (read, _) = saved_into(tree, &elsewhere, &stores[1]).unwrap();

        assert_eq!(Vec::from_iter(&opened), ["/deep/file", "/same"]);
        assert_eq!(held["state_digest"], read["state_digest"]);
        assert_eq!(stored(&stores[0]), stored(&stores[1]));
    });
}

#[test]
fn a_check_names_what_cannot_be_undone_any_more() {
    on_each(|tree, _| {
        tree.checkpoint("one");
        tree.write("deep/file", "second\n");
        tree.write("added", "added\n");
        tree.json(0, &["restore", "one"]);
        let whole = tree.json(0, &["check"]);
        let kept = tree.kept().join("undo/1/workspace/backup/tree");
        fs::remove_file(kept.join("deep/file")).unwrap();

        let checked = tree.json(9, &["check"]);
        fs::write(tree.kept().join("undo/1/metadata.json"), "{").unwrap();
        let unreadable = tree.json(9, &["check"]);

        assert_eq!(
            (&whole["undos"], &whole["damaged"]),
            (&1.into(), &serde_json::json!([]))
        );
        let damaged = &checked["damaged"][0];
        assert_eq!(damaged["checkpoint"], "u-1");
        assert_eq!(damaged["files"], serde_json::json!(["deep/file"]));
        assert_eq!(unreadable["damaged"][0]["checkpoint"], "u-1");
        assert!(unreadable["damaged"][0]["problem"].is_string());
    });
}

#[test]
fn a_status_names_what_was_set_aside() {
    on_each(|tree, is_shared| {
        if !is_shared {
            return;
        }
        tree.checkpoint("one");
        fs::write(version_of(tree, "first\n"), "FIRST\n").unwrap();
        tree.write("deep/file", "edited\n");
        let before = tree.json(0, &["status"]);
        tree.json(9, &["check"]);

        let status = tree.json(0, &["status"]);
        let words = tree.run(&["status"]);

        assert_eq!(
            (&before["set_aside_count"], &status["set_aside_count"]),
            (&0.into(), &1.into())
        );
        let path = status["set_aside"][0].as_str().unwrap();
        assert!(path.contains("objects/damaged-"), "{path}");
        let bytes = |of: &Value, name: &str| of[name].as_u64().unwrap();
        let grown = bytes(&status, "held_bytes") - bytes(&before, "held_bytes");
        assert_eq!(grown, bytes(&status, "set_aside_bytes"));
        assert!(words.out.contains("set aside   1 damaged"), "{}", words.out);
    });
}

/// Puts the list of the checkpoint `from` into the slot of `to`, as another file: they may be one. Says where, and what was there.
fn exchange(tree: &Tree, from: &str, to: &str) -> (PathBuf, Vec<u8>) {
    let status = tree.json(0, &["status"]);
    let slots = Path::new(status["session"].as_str().unwrap()).join("auto_snapshots");
    let of = |name: &str| {
        let slots = fs::read_dir(&slots).unwrap();
        let mut slots = slots.map(|slot| slot.unwrap().path());
        let is_it = |slot: &PathBuf| {
            let metadata = fs::read(slot.join("metadata.json"));
            let metadata = metadata.ok().map(|bytes| serde_json::from_slice(&bytes));
            metadata.is_some_and(|one: Result<Value, _>| one.unwrap()["name"] == name)
        };
        slots.find(is_it).unwrap().join("workspace.json")
    };
    let (path, bytes) = (of(to), fs::read(of(from)).unwrap());
    let own = fs::read(&path).unwrap();
    assert_ne!(bytes, own);
    fs::remove_file(&path).unwrap();
    fs::write(&path, bytes).unwrap();
    (path, own)
}

#[test]
fn a_checkpoint_with_the_list_of_another_is_named_and_nothing_is_made_of_it() {
    on_each(|tree, _| {
        tree.checkpoint("one");
        tree.write("deep/file", "second\n");
        tree.checkpoint("two");
        tree.checkpoint("same");
        tree.write("deep/file", "third\n");
        let live = tree.contents();
        let out = tree.session.home().join("out");
        let to = out.to_str().unwrap();

        for name in ["one", "same"] {
            let other = if name == "one" { "two" } else { "one" };
            let (path, own) = exchange(tree, other, name);
            let refused = [
                tree.run(&["materialize", name, "--to", to]),
                tree.run(&["restore", name]),
                tree.run(&["revert", "deep/file", name]),
                tree.run(&["check"]),
            ];
            for said in &refused {
                assert_eq!(said.code, 9, "{name}: {}{}", said.out, said.err);
            }
            assert!(
                refused[0].err.contains("another checkpoint"),
                "{}",
                refused[0].err
            );
            assert!(!out.exists() && tree.contents() == live);
            fs::write(path, own).unwrap();
            tree.json(0, &["check"]);
        }
        tree.json(0, &["restore", "two"]);
        assert_eq!(tree.read("deep/file"), "second\n");
    });
}
