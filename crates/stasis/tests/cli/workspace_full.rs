//! Workspaces and stores on a disk that is full: what reads works, what frees works, and what needs room is refused and changes nothing.
//!
//! Real filesystems, filled to the last block or inode: xfs, btrfs and ext4 on loop devices for root, a small tmpfs for everybody.

use crate::session::{STASIS, Said, Session, said};
use crate::workspace::Tree;
use serde_json::Value;
use stasis_testkit::mounted_image::MountedImage;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A filesystem of its own that can be filled.
struct Disk(MountedImage);

impl Disk {
    /// Mounts a new filesystem, or says why this test is skipped.
    fn new(filesystem: &str, megabytes: u64, options: &[&str]) -> Option<Self> {
        MountedImage::with_options(filesystem, megabytes << 20, options).map(Self)
    }

    fn root(&self) -> PathBuf {
        self.0.root()
    }

    /// Takes everything that is free: blocks, and what small files find room for.
    fn fill(&self) {
        self.fill_blocks();
        self.fill_with_files("small", b"some bytes");
        self.fill_with_files("empty", b"");
        self.sync();
        // What was free only when everything was written.
        self.fill_with_files("late", b"some bytes");
        self.sync();
    }

    fn fill_blocks(&self) {
        let path = self.root().join("filler");
        let filler = File::create(&path).unwrap();
        let mut at = 0;
        for step in [64 << 20, 1 << 20, 64 << 10, 4 << 10] {
            let flags = rustix::fs::FallocateFlags::empty();
            while rustix::fs::fallocate(&filler, flags, at, step).is_ok() {
                at += step;
            }
        }
        self.sync();
    }

    /// Makes small files until no more can be made.
    fn fill_with_files(&self, name: &str, bytes: &[u8]) {
        let directory = self.root().join(name);
        if fs::create_dir(&directory).is_err() {
            return;
        }
        for number in 0.. {
            let made = File::create(directory.join(number.to_string()));
            if !made.is_ok_and(|mut file| file.write_all(bytes).is_ok()) {
                break;
            }
        }
    }

    /// Takes all room for metadata, which on btrfs is another room than that for data.
    fn fill_metadata(&self) {
        let directory = self.root().join("attributes");
        fs::create_dir(&directory).unwrap();
        let value = [7; 3000];
        'all: for number in 0.. {
            let path = directory.join(number.to_string());
            if File::create(&path).is_err() {
                break;
            }
            for attribute in ["user.a", "user.b", "user.c", "user.d"] {
                let flags = rustix::fs::XattrFlags::empty();
                if rustix::fs::setxattr(&path, attribute, &value, flags).is_err() {
                    break 'all;
                }
            }
        }
        for number in 0.. {
            let name = format!("{}{number}", "n".repeat(200));
            if File::create(directory.join(name)).is_err() {
                break;
            }
        }
        self.sync();
    }

    fn sync(&self) {
        let root = File::open(self.root()).unwrap();
        let _ = rustix::fs::syncfs(&root);
    }

    fn free(&self) -> u64 {
        self.sync();
        let space = rustix::fs::statvfs(self.root()).unwrap();
        space.f_bavail * space.f_frsize
    }
}

/// Bytes that neither compress nor repeat.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

const BIG: usize = 8 << 20;

/// A workspace with two checkpoints of 8 MiB each, something to undo, a prompt, and changes since.
fn furnished(disk: &Disk) -> Tree {
    let session = Session::within(&disk.root());
    let tree = Tree::of(
        session,
        &[("a", "one\n"), ("deep/er/b", "one\n")],
        &["--budget", "1GB"],
    );
    for number in 0..40 {
        tree.write(&format!("many/{number}"), &format!("file {number}\n"));
    }
    fs::write(tree.at("big"), noise(1, BIG)).unwrap();
    tree.checkpoint("first");
    fs::write(tree.at("big"), noise(2, BIG)).unwrap();
    tree.write("a", "two\n");
    tree.checkpoint("second");
    assert_eq!(prompt(&tree).code, 0);
    tree.json(0, &["revert", "a", "first"]);
    tree.write("new", "new\n");
    fs::remove_file(tree.at("deep/er/b")).unwrap();
    // What reads remembers the tree while there is room for it.
    tree.json(0, &["changes"]);
    tree
}

/// What an agent does before a prompt.
fn prompt(tree: &Tree) -> Said {
    let mut command = tree.session.command(&["hook", "run", "claude-code"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said_by_agent = serde_json::json!({
        "hook_event_name": "UserPromptSubmit",
        "prompt": "make it better",
        "session_id": "s1",
        "cwd": tree.dir(),
    });
    let mut stdin = child.stdin.take().unwrap();
    stdin
        .write_all(said_by_agent.to_string().as_bytes())
        .unwrap();
    drop(stdin);
    said(child.wait_with_output().unwrap())
}

/// Lengths and times of files.
type Seen = BTreeMap<PathBuf, (u64, i64, i64)>;

/// Every file beneath a place but locks, with its length and time.
fn seen(place: &Path) -> Seen {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(place).unwrap() {
        let path = entry.unwrap().path();
        let seen = path.symlink_metadata().unwrap();
        if seen.is_dir() {
            // A cache that finds no room leaves nothing but a time.
            found.insert(path.clone(), (0, 0, 0));
            found.extend(self::seen(&path));
        } else if !path.to_string_lossy().ends_with("lock") {
            found.insert(path, (seen.len(), seen.mtime(), seen.mtime_nsec()));
        }
    }
    found
}

/// Everything in the tree, by content, length and time.
fn state(tree: &Tree) -> (BTreeMap<PathBuf, String>, Seen) {
    (tree.contents(), seen(&tree.at("")))
}

fn names(place: &Path) -> Vec<String> {
    let names = fs::read_dir(place).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn listed(tree: &Tree) -> Vec<String> {
    let listed = tree.json(0, &["list"]);
    let names = listed["items"].as_array().unwrap().iter();
    let names = names.filter_map(|one| one["name"].as_str().map(str::to_owned));
    names.collect()
}

/// Everything that only looks works, and leaves the session as it is.
fn reads(tree: &Tree) {
    let before = (seen(&tree.kept()), state(tree));
    for words in [
        &["list"][..],
        &["status"],
        &["changes"],
        &["changes", "--since", "first"],
        &["diff", "a", "second"],
        &["diff", "deep", "first"],
        &["history", "a"],
        &["create", "never", "--dry-run"],
        &["restore", "first", "--dry-run"],
        &["revert", "deep/er/b", "first", "--dry-run"],
        &["undo", "--dry-run"],
        &["delete", "first", "--dry-run"],
        &["compact", "first", "second", "--dry-run"],
    ] {
        let done = tree.run(words);
        assert_eq!(done.code, 0, "{words:?}: {}{}", done.out, done.err);
        // What a hook could not do is told by `status`, and nothing else complains.
        let complains = ["no room", "No space", "could not"].map(|word| done.err.contains(word));
        let is_told = words == ["status"] || complains == [false; 3];
        assert!(is_told, "{words:?}: {}", done.err);
    }
    let dir = tree.dir();
    for words in [
        &["rewind", "--list"][..],
        &["rewind", "--prompts", "1", "--dry-run"],
    ] {
        let words = [words, &["--workspace", &dir]].concat();
        let done = tree.session.run(&words);
        assert_eq!(done.code, 0, "{words:?}: {}{}", done.out, done.err);
    }
    let diff = tree.json(0, &["diff", "a", "second"]);
    let unified = diff["unified"].as_str().unwrap();
    assert!(
        unified.contains("-two") && unified.contains("+one"),
        "{diff}"
    );
    assert_eq!(
        (seen(&tree.kept()), state(tree)),
        before,
        "something was written"
    );
}

/// What a refusal for want of room says.
fn is_refused(tree: &Tree, words: &[&str]) -> Value {
    let refused = tree.json(11, words);
    let error = &refused["error"];
    assert_eq!(error["kind"], "limit", "{words:?}: {refused}");
    let need = error["need_bytes"]
        .as_u64()
        .unwrap_or_else(|| panic!("{words:?}: {refused}"));
    assert!(need > 0, "{refused}");
    let frees = error["frees"].as_array().unwrap();
    let first = frees.iter().find(|one| one["name"] == "first").unwrap();
    // Nothing but it refers to its large file.
    let bytes = first["bytes"].as_u64().unwrap();
    assert!(bytes >= BIG as u64 && bytes < 2 * BIG as u64, "{refused}");
    let second = frees.iter().find(|one| one["name"] == "second").unwrap();
    assert!(
        second["bytes"].as_u64().unwrap() < (BIG / 2) as u64,
        "the tree has it too: {refused}"
    );
    let hint = error["hint"].as_str().unwrap();
    assert!(
        hint.contains("stasis workspace delete") && hint.contains("\"first\""),
        "{hint}"
    );
    refused
}

/// What needs room is refused before anything is touched, and leaves nothing.
fn refuses(tree: &Tree) {
    let before = (
        state(tree),
        names(tree.session.home()),
        names(&tree.kept().join("auto_snapshots")),
    );
    is_refused(tree, &["create", "third"]);
    for words in [
        &["restore", "first"][..],
        &["revert", "many", "first"],
        &["revert", "deep/er/b", "first"],
        &["undo"],
    ] {
        is_refused_or_same(tree, words);
    }
    let after = (
        state(tree),
        names(tree.session.home()),
        names(&tree.kept().join("auto_snapshots")),
    );
    assert_eq!(after, before);
    assert_eq!(names(&tree.kept().join("undo")), ["1"]);
}

/// An entry that is what it was needs no room.
fn is_refused_or_same(tree: &Tree, words: &[&str]) {
    if words == ["revert", "many", "first"] {
        assert_eq!(tree.json(0, words)["action"], "unchanged");
    } else {
        is_refused(tree, words);
    }
}

/// Agents go on, and somebody who asks is told why there is no checkpoint.
fn hooks_do_not_block(tree: &Tree, is_recorded: bool) {
    let before = state(tree);
    let done = prompt(tree);
    assert_eq!((done.code, done.out.as_str()), (0, ""), "{}", done.err);
    assert_eq!(state(tree), before);
    if is_recorded {
        let hooks = tree
            .session
            .home()
            .join("state/stasis/hooks/claude-code.json");
        let record: Value = serde_json::from_slice(&fs::read(hooks).unwrap()).unwrap();
        let why = record["last"]["message"].as_str();
        assert!(why.is_some_and(|why| why.contains("no room")), "{record}");
    }
}

/// What is let go makes room, and then everything works again.
fn frees(tree: &Tree, disk: &Disk) {
    let before = disk.free();
    tree.json(0, &["delete", "first"]);
    let freed = disk.free().saturating_sub(before);
    assert!(freed > (BIG / 2) as u64, "{freed} bytes were freed");
    assert!(!listed(tree).contains(&"first".to_owned()));
    assert!(
        tree.kept().join("reserve").exists(),
        "there is room for it again"
    );
    tree.json(0, &["create", "third"]);
    assert_eq!(tree.json(0, &["restore", "second"])["restored"], true);
    assert_eq!(tree.read("a"), "two\n");
    assert_eq!(tree.json(0, &["undo"])["undone"], true);
    assert_eq!(tree.read("a"), "one\n");
    assert_eq!(tree.read("new"), "new\n");
}

fn on_a_full(disk: &Disk, is_recorded: bool, fill: impl Fn()) {
    let tree = furnished(disk);
    fill();
    reads(&tree);
    refuses(&tree);
    hooks_do_not_block(&tree, is_recorded);
    reads(&tree);
    frees(&tree, disk);
}

#[test]
fn on_a_full_xfs_reading_and_deleting_work() {
    let Some(disk) = Disk::new("xfs", 320, &["-q"]) else {
        return;
    };
    on_a_full(&disk, true, || disk.fill());
}

#[test]
fn on_a_full_btrfs_reading_and_deleting_work() {
    let Some(disk) = Disk::new("btrfs", 160, &["-q"]) else {
        return;
    };
    on_a_full(&disk, false, || disk.fill_blocks());
}

#[test]
fn on_a_btrfs_without_room_for_metadata_reading_and_deleting_work() {
    let Some(disk) = Disk::new("btrfs", 160, &["-q"]) else {
        return;
    };
    let tree = furnished(&disk);
    disk.fill_blocks();
    disk.fill_metadata();
    reads(&tree);
    refuses(&tree);
    hooks_do_not_block(&tree, false);
    let before = tree.contents();
    tree.json(0, &["delete", "first"]);
    assert_eq!(listed(&tree), ["second"]);
    tree.json(0, &["undo", "--forget"]);
    assert_eq!(tree.contents(), before);
    // A few small files less are not enough room for metadata; what filled it is.
    fs::remove_dir_all(disk.root().join("attributes")).unwrap();
    disk.sync();
    tree.json(0, &["create", "third"]);
    assert_eq!(tree.json(0, &["restore", "second"])["restored"], true);
    assert_eq!(tree.read("a"), "two\n");
}

#[test]
fn on_a_full_ext4_reading_and_deleting_work() {
    let Some(disk) = Disk::new("ext4", 96, &["-q", "-m", "0", "-b", "4096"]) else {
        return;
    };
    on_a_full(&disk, true, || disk.fill());
}

#[test]
fn on_an_ext4_without_inodes_reading_and_deleting_work() {
    let Some(disk) = Disk::new("ext4", 96, &["-q", "-m", "0", "-b", "4096", "-N", "512"]) else {
        return;
    };
    let tree = furnished(&disk);
    disk.fill_with_files("empty", b"");
    disk.sync();
    reads(&tree);
    refuses(&tree);
    hooks_do_not_block(&tree, true);
    tree.json(0, &["delete", "first"]);
    tree.json(0, &["undo", "--forget"]);
    assert!(!listed(&tree).contains(&"first".to_owned()));
}

#[test]
fn forgetting_what_could_be_undone_works_on_a_full_disk() {
    let Some(disk) = Disk::new("xfs", 320, &["-q"]) else {
        return;
    };
    let session = Session::within(&disk.root());
    let tree = Tree::of(session, &[], &["--budget", "1GB"]);
    fs::write(tree.at("big"), noise(1, BIG)).unwrap();
    tree.checkpoint("first");
    fs::write(tree.at("big"), noise(2, BIG)).unwrap();
    tree.json(0, &["restore", "first"]);
    disk.fill();
    let before = disk.free();

    tree.json(0, &["undo", "--forget"]);

    assert!(disk.free() > before + (BIG / 2) as u64);
    assert_eq!(tree.json(0, &["status"])["undo"], serde_json::json!([]));
    tree.json(0, &["create", "third"]);
}

#[test]
fn a_log_that_a_killed_process_left_is_read_on_a_full_disk() {
    let Some(disk) = Disk::new("xfs", 320, &["-q"]) else {
        return;
    };
    let tree = furnished(&disk);
    // To ask where it is opens it, and tidies up.
    let kept = tree.kept();
    let database = kept.join("session.db");
    // Whoever was killed leaves the log, and here not what is beside it.
    let script = "import sqlite3,sys,os\n\
        c=sqlite3.connect(sys.argv[1]);c.execute('pragma wal_autocheckpoint=0')\n\
        c.execute(\"insert into stasis_skipped (timestamp, because) values ('2030', 'only in the log')\")\n\
        c.commit();os.kill(os.getpid(),9)";
    let killed = Command::new("python3")
        .args(["-c", script])
        .arg(&database)
        .status();
    assert!(!killed.unwrap().success());
    fs::remove_file(kept.join("session.db-shm")).unwrap();
    assert!(kept.join("session.db-wal").metadata().unwrap().len() > 0);
    disk.fill();
    let before = seen(&kept);

    let status = tree.json(0, &["status"]);

    assert_eq!(status["last_skipped"], "2030: only in the log");
    assert_eq!(seen(&kept), before);
}

/// A small tmpfs in a namespace of its own, where an ordinary user may mount one.
#[test]
fn on_a_full_tmpfs_reading_and_deleting_work() {
    let allowed = Command::new("unshare").args(["-Urm", "true"]).output();
    if !allowed.is_ok_and(|allowed| allowed.status.success()) {
        println!("skipped: not allowed to make a namespace");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let script = r#"
        mount -t tmpfs -o size=24m none . || { echo skipped; exit 0; }
        cd "$PWD"
        for name in DATA CONFIG CACHE STATE; do export XDG_${name}_HOME="$PWD/$name"; done
        mkdir work && cd work
        head -c 3000000 /dev/urandom > big; echo one > a
        "$STASIS" workspace init . --no-checkpoint --budget 1GB > /dev/null
        "$STASIS" workspace create first > /dev/null
        head -c 3000000 /dev/urandom > big; echo two > a
        "$STASIS" workspace create second > /dev/null
        "$STASIS" workspace revert a first > /dev/null
        cat /dev/zero > ../filler 2> /dev/null
        before=$(sha256sum a big)
        say() { name=$1; shift; "$STASIS" "$@" > /dev/null 2>&1; echo "$name $?"; }
        say list workspace list; say status workspace status; say changes workspace changes
        say diff workspace diff a second; say history workspace history a
        say dry workspace restore first --dry-run
        say create workspace create third; say restore workspace restore first; say undo workspace undo
        [ "$before" = "$(sha256sum a big)" ] && echo untouched 0
        say delete workspace delete first
        say forget workspace undo --forget
        rm ../filler; say again workspace create third; say back workspace restore second
        cat a
    "#;
    let output = Command::new("unshare")
        .args(["-Urm", "sh", "-c", script])
        .current_dir(home.path())
        .env("STASIS", STASIS)
        .output()
        .unwrap();
    let done = said(output);
    if done.out.starts_with("skipped") {
        println!("skipped: not allowed to mount a tmpfs");
        return;
    }
    let expected = "list 0\nstatus 0\nchanges 0\ndiff 0\nhistory 0\ndry 0\ncreate 11\nrestore 11\nundo 11\nuntouched 0\n\
        delete 0\nforget 0\nagain 0\nback 0\ntwo\n";
    assert_eq!(done.out, expected, "{}", done.err);
}

/// Where nothing can be renamed, as on a btrfs without room for metadata, a checkpoint is deleted where it is; killed at any call, it is
/// whole, or gone, or known to be neither.
#[test]
fn a_delete_without_renames_that_is_killed_leaves_no_half_checkpoint() {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("skipped: strace is not there");
        return;
    }
    for (errno, kill) in [("ENOSPC", None), ("EDQUOT", None)]
        .into_iter()
        .chain((1..=12).map(|when| ("ENOSPC", Some(when))))
    {
        let tree = Tree::new(&[("a", "one"), ("deep/b", "one")]);
        let config = tree.kept().join("config.toml");
        fs::write(&config, "fallback = \"copy\"\n").unwrap();
        let slot = tree.checkpoint("first");
        let plain = tree.command(&["delete", "first"]);
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null"]);
        command.args(["-e", "trace=renameat2,unlinkat"]);
        command.args(["-e", &format!("inject=renameat2:error={errno}")]);
        if let Some(when) = kill {
            command.args(["-e", &format!("inject=unlinkat:signal=KILL:when={when}")]);
        }
        command.arg(plain.get_program()).args(plain.get_args());
        command.env_clear();
        let set = plain.get_envs();
        command.envs(set.filter_map(|(name, value)| Some((name, value?))));
        let done = said(command.output().unwrap());
        if kill.is_none() {
            assert_eq!(done.code, 0, "{errno}: {}{}", done.out, done.err);
        }

        let listed = tree.json(0, &["list"]);
        let whole = listed["items"].as_array().unwrap();
        let unreadable = listed["unreadable"].as_array().unwrap();
        if done.code == 0 {
            assert_eq!((whole.len(), unreadable.len()), (0, 0), "{listed}");
            continue;
        }
        assert!(whole.len() + unreadable.len() <= 1, "{kill:?}: {listed}");
        if whole.len() == 1 {
            let target = tree.session.home().join("fork");
            tree.json(0, &["fork", "first", target.to_str().unwrap()]);
            assert_eq!(names(&target), ["a", "deep"], "{kill:?}");
            assert_eq!(names(&target.join("deep")), ["b"], "{kill:?}");
        }
        if whole.len() + unreadable.len() == 1 {
            tree.json(0, &["delete", &slot]);
        }
        let left = names(&tree.kept().join("auto_snapshots"));
        assert_eq!(left, [".lock"], "{kill:?}");
    }
}

/// Stores in a directory: what reads works on a full disk, and what is let go makes room.
fn a_store_on(disk: &Disk, fill: fn(&Disk)) {
    let session = Session::within(&disk.root());
    let dir = session.home().join("notes");
    fs::create_dir(&dir).unwrap();
    let text = dir.to_str().unwrap().to_owned();
    let text = text.as_str();
    fs::write(dir.join("a"), "one").unwrap();
    fs::write(dir.join("big"), noise(1, BIG)).unwrap();
    session.json(0, &["save", text]);
    fs::write(dir.join("big"), noise(2, BIG)).unwrap();
    session.json(0, &["save", text]);
    fs::write(dir.join("a"), "two").unwrap();
    fill(disk);
    let elsewhere = disk.0.home().join("back");
    let elsewhere = elsewhere.to_str().unwrap();
    let store = seen(&session.object(""));
    for words in [
        &["log", text][..],
        &["diff", text],
        &["restore", text, "--dry-run"],
        &["restore", text, "--to", elsewhere],
        &["project", "list", "--project", text],
        &["project", "status", "--project", text],
        &["project", "show", "latest", "--project", text],
        &["project", "verify", "--project", text],
    ] {
        let done = session.run(words);
        assert_eq!(done.code, 0, "{words:?}: {}{}", done.out, done.err);
    }
    assert_eq!(seen(&session.object("")), store, "something was written");
    let refused = session.run(&["save", text]);
    assert_eq!(refused.code, 11, "{}{}", refused.out, refused.err);

    let before = disk.free();
    session.json(0, &["project", "gc", "--keep", "1", "--project", text]);
    let freed = disk.free().saturating_sub(before);
    assert!(freed > (BIG / 2) as u64, "{freed} bytes were freed");
    session.json(0, &["save", text]);
    assert!(session.object(".stasis/reserve").exists());
}

#[test]
fn a_store_on_a_full_xfs_is_read_and_freed() {
    let Some(disk) = Disk::new("xfs", 320, &["-q"]) else {
        return;
    };
    a_store_on(&disk, Disk::fill);
}

#[test]
fn a_store_on_a_full_ext4_is_read_and_freed() {
    let Some(disk) = Disk::new("ext4", 96, &["-q", "-m", "0", "-b", "4096"]) else {
        return;
    };
    a_store_on(&disk, Disk::fill);
}

#[test]
fn a_store_on_a_full_btrfs_is_read_and_freed() {
    let Some(disk) = Disk::new("btrfs", 160, &["-q"]) else {
        return;
    };
    a_store_on(&disk, Disk::fill_blocks);
}
