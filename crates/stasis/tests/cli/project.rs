//! Projects and plain directories: what people and agents do with them every day.

#![expect(clippy::too_many_lines, reason = "a story is told in one piece")]

use crate::session::{STASIS, Said, Session, oldest_first, said};
use serde_json::Value;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A project in a home of its own.
pub(crate) struct Shop {
    pub(crate) session: Session,
}

impl Shop {
    /// A project whose file says this, besides its id.
    pub(crate) fn new(toml: &str) -> Self {
        let session = Session::new();
        let shop = Self { session };
        for directory in ["state/current/files", "state/current/volumes"] {
            fs::create_dir_all(shop.at(directory)).unwrap();
        }
        shop.configure(toml);
        shop
    }

    pub(crate) fn configure(&self, toml: &str) {
        fs::write(self.at("stasis.toml"), format!("id = \"shop\"\n{toml}")).unwrap();
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.session.home().join("shop").join(path)
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.at("state/current").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at("state/current").join(path)).unwrap()
    }

    fn words<'w>(words: &[&'w str], dir: &'w str) -> Vec<&'w str> {
        let mut all = vec!["project"];
        all.extend(words);
        // What follows `--` is the command that is run.
        let end = all
            .iter()
            .position(|word| *word == "--")
            .unwrap_or(all.len());
        all.splice(end..end, ["--project", dir]);
        all
    }

    pub(crate) fn json(&self, code: i32, words: &[&str]) -> Value {
        let dir = self.at("").to_str().unwrap().to_owned();
        self.session.json(code, &Self::words(words, &dir))
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let dir = self.at("").to_str().unwrap().to_owned();
        self.session.command(&Self::words(words, &dir))
    }

    pub(crate) fn run(&self, words: &[&str]) -> Said {
        said(self.command(words).output().unwrap())
    }

    pub(crate) fn save(&self) -> String {
        id(&self.json(0, &["save"]))
    }

    /// What lies in the state directory besides the state and the snapshots.
    pub(crate) fn left_over(&self) -> Vec<String> {
        let is_ours = |name: &String| name.starts_with("capture-") || name == "restoring";
        names(&self.at("state/.stasis"))
            .into_iter()
            .filter(is_ours)
            .collect()
    }
}

pub(crate) fn id(value: &Value) -> String {
    value["snapshot_id"].as_str().unwrap().to_owned()
}

pub(crate) fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Waits until something holds, and fails when it does not within the patience.
pub(crate) fn eventually(
    patience: Duration,
    what: &str,
    mut holds: impl FnMut() -> bool,
) -> Duration {
    let began = Instant::now();
    while !holds() {
        assert!(
            began.elapsed() < patience,
            "{what}: not within {patience:?}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    began.elapsed()
}

#[test]
fn a_plain_directory_is_saved_and_restored_and_nothing_is_put_into_it() {
    let session = Session::new();
    let dir = session.home().join("notes");
    fs::create_dir_all(dir.join("deep")).unwrap();
    fs::write(dir.join("a"), "one").unwrap();
    let odd = dir.join(std::ffi::OsStr::from_bytes(b"odd \xff name"));
    fs::write(&odd, "kept").unwrap();
    let text = dir.to_str().unwrap();
    let inode = fs::metadata(&dir).unwrap().ino();

    let first = session.json(0, &["save", text]);
    let again = session.json(0, &["save", text]);
    fs::write(dir.join("a"), "two").unwrap();
    fs::remove_file(&odd).unwrap();
    fs::write(dir.join("deep/new"), "new").unwrap();
    let changed = session.json(0, &["diff", text]);
    let dry = session.json(0, &["restore", text, "--dry-run"]);
    let restored = session.json(0, &["restore", text]);
    let log = oldest_first(&session.json(0, &["log", text]));

    assert_eq!(first["published"], true);
    assert_eq!(
        (&again["published"], &again["snapshot_id"]),
        (&Value::Bool(false), &first["snapshot_id"])
    );
    let differing: Vec<(&str, &str)> = changed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            (
                entry["path"].as_str().unwrap(),
                entry["change"].as_str().unwrap(),
            )
        })
        .filter(|(_, change)| *change != "metadata")
        .collect();
    assert_eq!(
        differing,
        [
            ("a", "content"),
            ("deep/new", "added"),
            ("odd \\xff name", "removed")
        ]
    );
    assert_eq!(dry["changes"], changed["items"]);
    assert_eq!(restored["snapshot_id"], first["snapshot_id"]);
    assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "one");
    assert_eq!(fs::read_to_string(&odd).unwrap(), "kept");
    assert!(!dir.join("deep/new").exists());
    assert_eq!(
        fs::metadata(&dir).unwrap().ino(),
        inode,
        "the directory stays the same one"
    );
    assert_eq!(
        names(&dir).len(),
        3,
        "nothing is put into it: {:?}",
        names(&dir)
    );
    let reasons: Vec<&str> = log
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["reason"].as_str().unwrap())
        .collect();
    assert_eq!(reasons, ["manual", "before-restore"]);
    assert_eq!(
        log[0]["active"], true,
        "the state derives from what was restored"
    );
}

#[test]
fn everything_in_the_live_state_comes_back_wherever_somebody_put_it() {
    let shop = Shop::new("[volumes.media]\nconsistency = \"generic\"\n");
    shop.write("volumes/media/pic", "pixels");
    shop.write("TOP", "a file at the top");
    shop.write("config/a", "a directory that nobody declared");
    shop.write("volumes/loose", "a file among volumes");
    let odd = shop
        .at("state/current/volumes")
        .join(std::ffi::OsStr::from_bytes(b"odd\xff"));
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join("x"), "x").unwrap();
    let saved = shop.save();
    fs::remove_dir_all(shop.at("state/current")).unwrap();
    fs::create_dir(shop.at("state/current")).unwrap();

    shop.json(0, &["restore", &saved, "--no-safety"]);

    assert_eq!(shop.read("TOP"), "a file at the top");
    assert_eq!(shop.read("config/a"), "a directory that nobody declared");
    assert_eq!(shop.read("volumes/loose"), "a file among volumes");
    assert_eq!(shop.read("volumes/media/pic"), "pixels");
    assert_eq!(fs::read_to_string(odd.join("x")).unwrap(), "x");
}

#[test]
fn what_was_never_part_of_a_tree_is_left_alone_by_a_restore() {
    let session = Session::new();
    let dir = session.home().join("work");
    fs::create_dir_all(dir.join("sub")).unwrap();
    fs::write(dir.join("a"), "one").unwrap();
    fs::write(dir.join("debug.log"), "long").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
    let store = format!("file://{}", dir.join("sub/store").display());
    let text = dir.to_str().unwrap();
    let run = |words: &[&str]| session.json(0, &[words, &["--store", &store]].concat());

    let first = run(&["save", text, "--exclude", "*.log"]);
    fs::write(dir.join("a"), "two").unwrap();
    let second = run(&["save", text]);
    run(&["restore", text, &id(&first)]);
    let again = run(&["restore", text, &id(&first)]);
    let log = oldest_first(&run(&["log", text]));

    assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "one");
    assert_eq!(fs::read_to_string(dir.join("debug.log")).unwrap(), "long");
    assert!(dir.join("socket").exists());
    assert_eq!(again["snapshot_id"], first["snapshot_id"]);
    assert!(
        log.as_array()
            .unwrap()
            .iter()
            .any(|row| row["snapshot_id"] == second["snapshot_id"]),
        "the store is there"
    );
}

#[test]
fn a_directory_that_is_gone_comes_back_and_restoring_twice_changes_nothing() {
    let session = Session::new();
    let dir = session.home().join("notes");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("a"), "one").unwrap();
    let text = dir.to_str().unwrap();
    session.json(0, &["save", text]);
    session.json(0, &["save", text, "--label", "state=good"]);
    fs::remove_dir_all(&dir).unwrap();

    session.json(0, &["restore", text]);
    fs::remove_file(dir.join("a")).unwrap();
    session.json(0, &["restore", text]);
    session.json(0, &["restore", text]);
    let labelled = session.json(0, &["restore", text, "good", "--dry-run"]);

    assert_eq!(
        fs::read_to_string(dir.join("a")).unwrap(),
        "one",
        "what a restore replaced is not the latest"
    );
    assert_eq!(
        labelled["changes"],
        Value::Null,
        "a label is kept although nothing changed"
    );
}

#[test]
fn a_link_in_the_way_of_a_path_is_not_followed_and_neighbours_are_not_touched() {
    let session = Session::new();
    let dir = session.home().join("work");
    let outside = session.home().join("outside");
    let neighbour = session.home().join("capture-4194999-holiday");
    for place in [&dir.join("d"), &outside, &neighbour] {
        fs::create_dir_all(place).unwrap();
    }
    fs::write(dir.join("d/s"), "inside").unwrap();
    fs::write(outside.join("s"), "outside").unwrap();
    let text = dir.to_str().unwrap();
    session.json(0, &["save", text]);
    fs::remove_dir_all(dir.join("d")).unwrap();
    std::os::unix::fs::symlink(&outside, dir.join("d")).unwrap();

    session.json(0, &["restore", text, "--path", "d/s"]);

    assert_eq!(fs::read_to_string(outside.join("s")).unwrap(), "outside");
    assert!(dir.join("d").symlink_metadata().unwrap().is_dir());
    assert_eq!(fs::read_to_string(dir.join("d/s")).unwrap(), "inside");
    assert!(neighbour.exists());
}

#[test]
fn what_a_save_leaves_lies_where_the_contract_says() {
    let shop = Shop::new("app_version = \"1.4.2\"\n[volumes.media]\nconsistency = \"generic\"\n");
    shop.write("files/a.txt", "a");
    shop.write("volumes/media/pic", "pixels");

    let saved = shop.json(0, &["save", "--label", "release=one"]);
    let directory = names(&shop.at("state/snapshots")).remove(0);

    let (stamp, of) = directory.split_once('-').unwrap();
    assert_eq!(of, id(&saved));
    assert!(
        stamp.len() == 16 && stamp.ends_with('Z') && stamp.as_bytes()[8] == b'T',
        "{stamp}"
    );
    let metadata = fs::read(
        shop.at("state/snapshots")
            .join(&directory)
            .join("metadata.json"),
    )
    .unwrap();
    let metadata: Value = serde_json::from_slice(&metadata).unwrap();
    assert_eq!(metadata["snapshotId"], saved["snapshot_id"]);
    assert_eq!(metadata["parentSnapshotId"], Value::Null);
    assert_eq!(metadata["reason"], "manual");
    assert_eq!(metadata["appVersion"], "1.4.2");
    assert_eq!(metadata["labels"]["release"], "one");
    assert_eq!(metadata["stateDigest"], saved["state_digest"]);
    let media = &metadata["volumeManifests"]["media"];
    assert_eq!(
        (&media["consistency"], &media["format"], &media["size"]),
        (&"generic".into(), &"files".into(), &6.into())
    );
    assert!(media["digest"].is_string() && media["integrity"].is_string());
    let paths: Vec<&str> = metadata["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    assert_eq!(
        paths,
        [
            "files",
            "files/a.txt",
            "volumes",
            "volumes/media",
            "volumes/media/pic"
        ]
    );
    assert!(shop.at("state/index.json").is_file() && shop.at("state/chunks").is_dir());
    let steps: Vec<&str> = saved["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["step"].as_str().unwrap())
        .collect();
    let ten = [
        "resolve",
        "lock",
        "pre_save_hooks",
        "quiesce",
        "checkpoint",
        "copy",
        "metadata",
        "index",
        "resume",
        "release",
    ];
    assert_eq!(steps, ten);
    assert!(shop.left_over().is_empty());
}

#[test]
fn two_saves_within_one_second_are_two_snapshots_and_an_unchanged_state_is_none() {
    let shop = Shop::new("");
    shop.write("files/a", "1");

    let first = shop.save();
    shop.write("files/a", "2");
    let second = shop.json(0, &["save"]);
    let third = shop.json(0, &["save"]);
    let forced = shop.json(0, &["save", "--allow-empty"]);

    assert_ne!(first, id(&second));
    assert_eq!(third["published"], false);
    assert_eq!(forced["parent_snapshot_id"], second["snapshot_id"]);
    assert_eq!(names(&shop.at("state/snapshots")).len(), 3);
}

#[test]
fn after_a_restore_the_next_save_derives_from_what_was_restored() {
    let shop = Shop::new("");
    shop.write("files/a", "1");
    let first = shop.save();
    shop.write("files/a", "2");
    shop.save();

    let restored = shop.json(0, &["restore", &first[..8]]);
    shop.write("files/b", "new");
    let next = shop.json(0, &["save"]);

    assert_eq!(shop.read("files/a"), "1");
    assert_eq!(restored["snapshot_id"], first.as_str());
    assert_eq!(next["parent_snapshot_id"], first.as_str());
}

#[test]
fn one_at_a_time_and_the_second_is_told_at_once_who_is_there() {
    let shop = Shop::new(
        "[services.web]\nstart = [\"sleep\", \"60\"]\nhooks.pre_save = \"touch hooked; sleep 6\"\n",
    );
    shop.write("files/a", "1");
    let mut first = shop
        .command(&["save"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually(Duration::from_secs(20), "the hook runs", || {
        shop.at("hooked").exists()
    });

    for words in [&["save"][..], &["restore", "latest"], &["start"], &["stop"]] {
        let began = Instant::now();
        let refused = shop.run(words);

        assert_eq!(refused.code, 4, "{words:?}: {}", refused.err);
        assert!(refused.err.contains("save_in_progress"), "{}", refused.err);
        assert!(
            refused
                .err
                .contains(&format!("save by process {}", first.id())),
            "{}",
            refused.err
        );
        assert!(began.elapsed() < Duration::from_secs(2));
    }
    assert!(first.wait().unwrap().success());
}

#[test]
fn a_hook_that_fails_ends_the_save_and_the_one_after_it_runs_all_the_same() {
    let shop = Shop::new(
        "[services.web]\nstart = [\"sleep\", \"60\"]\n[services.web.hooks]\n\
         pre_save = \"echo out; echo the disk is upside down >&2; exit 7\"\npost_save = \"echo $STASIS_HOOK $STASIS_REASON > after\"\n",
    );
    shop.write("files/a", "1");

    let failed = shop.run(&["save"]);

    assert_eq!(failed.code, 1, "{}", failed.err);
    assert!(
        failed.err.contains("exited 7") && failed.err.contains("upside down"),
        "{}",
        failed.err
    );
    assert_eq!(
        fs::read_to_string(shop.at("after")).unwrap(),
        "post_save manual\n"
    );
    assert!(
        shop.json(0, &["list"])["items"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    assert!(shop.left_over().is_empty());
}

#[test]
fn a_hook_that_takes_too_long_is_ended_with_everything_it_started() {
    let shop = Shop::new(
        "[services.web]\nstart = [\"sleep\", \"60\"]\n[services.web.hooks]\npre_save = \"sleep 987 & echo $! > child; wait\"\ntimeout_s = 1\n",
    );
    shop.write("files/a", "1");

    let failed = shop.run(&["save"]);

    assert_eq!(failed.code, 1, "{}", failed.err);
    assert!(failed.err.contains("timed out"), "{}", failed.err);
    let child = fs::read_to_string(shop.at("child")).unwrap();
    eventually(Duration::from_secs(5), "the child is gone", || {
        !Path::new("/proc").join(child.trim()).exists()
    });
}

/// A program that writes a number into one file, and then into another one.
const TWINS: &str = "import itertools, os\nhome = 'state/current/volumes/media/'\nfor n in itertools.count(1):\n  for name in 'ab':\n    open('new', 'w').write(str(n))\n    os.rename('new', home + name)\n";

pub(crate) fn with_twins() -> Shop {
    let shop = Shop::new(
        "[volumes.media]\nconsistency = \"generic\"\nservices = [\"twins\"]\n[services.twins]\nstart = [\"python3\", \"twins.py\"]\n",
    );
    fs::write(shop.at("twins.py"), TWINS).unwrap();
    shop.write("volumes/media/a", "");
    shop.write("volumes/media/b", "");
    // Between the two in the order of names, so that a copy of something that moves takes long enough to be seen.
    for number in 0..300 {
        shop.write(&format!("volumes/media/aa/{number}"), "some bytes");
    }
    shop
}

/// Starts the twins, and waits until they write: before that, a version manager's `python3` is a script with children.
pub(crate) fn start_twins(shop: &Shop) -> u64 {
    shop.write("volumes/media/b", "");
    let pid = shop.json(0, &["start"])["items"][0]["pid"]
        .as_u64()
        .unwrap();
    eventually(Duration::from_secs(20), "it writes", || {
        !shop.read("volumes/media/b").is_empty()
    });
    pid
}

pub(crate) fn stop(shop: &Shop) {
    shop.json(0, &["stop"]);
}

fn state_of(pid: u64) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rsplit_once(") ").map_or("X", |(_, rest)| rest);
    after.chars().next().unwrap_or('X')
}

#[test]
fn a_volume_is_cloned_while_its_writer_stands_still() {
    let shop = with_twins();
    let pid = start_twins(&shop);

    for round in 0..5 {
        let saved = shop.json(0, &["save"]);
        let to = shop.at(&format!("copy{round}"));
        shop.json(0, &["restore", &id(&saved), "--to", to.to_str().unwrap()]);

        let [a, b] = ["a", "b"].map(|name| {
            let text = fs::read_to_string(to.join("volumes/media").join(name)).unwrap();
            text.parse::<u64>().unwrap()
        });
        assert!(b <= a && a - b <= 1, "one moment has {a} and {b}");
        assert!(saved["volumes"]["media"]["details"]["pausedMs"].is_u64());
    }
    assert_ne!(state_of(pid), 'T', "it runs again");
    stop(&shop);
    assert_eq!(
        shop.json(0, &["status"])["services"][0]["status"],
        "stopped"
    );
}

#[test]
fn a_writer_that_was_paused_runs_again_when_the_engine_is_killed() {
    let shop = with_twins();
    // Enough to clone that the pause can be seen.
    for number in 0..4000 {
        shop.write(
            &format!("volumes/media/many/{}/{number}", number % 40),
            "some bytes",
        );
    }
    let pid = start_twins(&shop);

    let mut engine = shop
        .command(&["save"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually(Duration::from_secs(20), "it stands still", || {
        state_of(pid) == 'T'
    });
    engine.kill().unwrap();
    engine.wait().unwrap();
    let again = eventually(Duration::from_secs(2), "it runs again", || {
        state_of(pid) != 'T'
    });
    let saved = shop.run(&["save"]);

    assert!(again < Duration::from_secs(2));
    assert_eq!(saved.code, 0, "{}", saved.err);
    assert!(
        shop.left_over().is_empty(),
        "what the dead one left is gone: {:?}",
        shop.left_over()
    );
    stop(&shop);
}

#[test]
fn a_writer_that_is_killed_while_it_is_paused_makes_the_capture_worthless() {
    let shop = with_twins();
    for number in 0..6000 {
        let path = format!("volumes/media/many/{}/{number}", number % 40);
        shop.write(&path, "some bytes");
    }
    // A kill can come a moment too late: then the save is right, and it is tried again.
    for round in 0..10 {
        let pid = start_twins(&shop);
        let before = shop.json(0, &["list"])["items"].as_array().unwrap().len();
        let mut engine = shop.command(&["save"]);
        let engine = engine
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        eventually(Duration::from_secs(20), "it stands still", || {
            state_of(pid) == 'T'
        });
        let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
        assert!(killed.unwrap().success());
        let ended = said(engine.wait_with_output().unwrap());
        let after = shop.json(0, &["list"])["items"].as_array().unwrap().len();
        assert!(shop.left_over().is_empty());
        if ended.code == 0 {
            println!("round {round}: too late");
            continue;
        }

        assert_eq!((ended.code, after), (1, before), "{}", ended.err);
        // While it was being paused, or while it stood still.
        let is_told = ended.err.contains("ended or began meanwhile: twins")
            || ended.err.contains(&format!("process {pid} has ended"));
        assert!(is_told, "{}", ended.err);
        let next = shop.run(&["save"]);
        assert_eq!(
            next.code, 0,
            "a program that does not run needs no pause: {}",
            next.err
        );
        return;
    }
    panic!("the kill was too late ten times");
}

#[test]
fn a_disk_that_is_full_fails_the_save_and_harms_nothing() {
    let shop = Shop::new("[volumes.media]\nconsistency = \"generic\"\n");
    let place = shop.at("state");
    fs::remove_dir_all(&place).unwrap();
    fs::create_dir(&place).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=6m", "tmpfs"])
        .arg(&place)
        .output();
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        println!("skipped: a filesystem cannot be mounted");
        return;
    }
    let unmount = || Command::new("umount").arg(&place).status().unwrap();
    let noise = |seed: u64| crate::repo_world::noise(seed, 1_200_000);
    fs::create_dir_all(shop.at("state/current/volumes/media")).unwrap();
    fs::create_dir_all(shop.at("state/current/files")).unwrap();
    fs::write(shop.at("state/current/files/a"), noise(1)).unwrap();
    let saved = shop.save();
    fs::write(shop.at("state/current/files/b"), noise(2)).unwrap();
    fs::write(shop.at("state/current/volumes/media/c"), noise(3)).unwrap();

    let full = shop.run(&["save"]);
    let listed = shop.json(0, &["list"]);
    let (left, current) = (
        shop.left_over(),
        fs::read(shop.at("state/current/files/b")).unwrap(),
    );
    fs::remove_file(shop.at("state/current/files/b")).unwrap();
    fs::remove_file(shop.at("state/current/volumes/media/c")).unwrap();
    let verified = shop.run(&["verify", &saved]);
    unmount();

    assert_eq!(full.code, 11, "{}", full.err);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert!(left.is_empty() && current == noise(2), "{left:?}");
    assert_eq!(verified.code, 0, "{}", verified.err);
}

/// How often; `STASIS_RACES` asks for more.
fn races(usual: usize) -> usize {
    let asked = std::env::var("STASIS_RACES").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(usual)
}

#[test]
fn a_save_beside_a_sweep_loses_no_chunk() {
    let shop = Shop::new("");
    for number in 0..20 {
        shop.write(
            &format!("files/{number}"),
            &format!("{number}").repeat(3000),
        );
    }
    shop.save();
    for round in 0..races(15) {
        // What was let go comes back, so that a save wants what a sweep is about to take.
        for number in 0..20 {
            let text = format!("{}", (number + round) % 7).repeat(2000 + round % 5);
            shop.write(&format!("files/{number}"), &text);
        }
        let sweep = shop
            .command(&["gc", "--keep", "1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let saved = shop.run(&["save"]);
        let swept = said(sweep.wait_with_output().unwrap());

        assert_eq!(
            (saved.code, swept.code),
            (0, 0),
            "{round}: {} {}",
            saved.err,
            swept.err
        );
        let verified = shop.run(&["verify"]);
        assert_eq!(verified.code, 0, "{round}: {}", verified.err);
    }
}

#[test]
fn a_restore_stops_the_programs_and_starts_them_again_and_says_when_one_is_not_well() {
    let shop = Shop::new(
        "[services.web]\nstart = [\"sleep\", \"600\"]\nhealth = { command = \"grep -q good state/current/files/a\", timeout_s = 1 }\n",
    );
    shop.write("files/a", "bad");
    let bad = shop.save();
    shop.write("files/a", "good");
    let good = shop.save();
    let before = shop.json(0, &["start"])["items"][0]["pid"].clone();

    let ill = shop.json(1, &["restore", &bad]);
    let restarted = shop.json(0, &["status"])["services"][0]["pid"].clone();
    let back = shop.json(0, &["restore", &good]);
    let undone = shop.json(1, &["restore", &bad, "--auto-undo"]);

    assert_eq!(ill["warnings"][0]["code"], "not_well");
    assert_ne!(restarted, before);
    assert_eq!(back["restarted"][0], "web");
    assert_eq!(undone["undone"], true);
    assert_eq!(shop.read("files/a"), "good");
    stop(&shop);
}

#[test]
fn a_part_is_restored_and_everything_else_stays() {
    let shop = Shop::new(
        "[volumes.media]\nconsistency = \"generic\"\n[volumes.other]\nconsistency = \"generic\"\n",
    );
    for path in ["files/a", "files/b", "volumes/media/pic", "volumes/other/x"] {
        shop.write(path, "old");
    }
    let saved = shop.save();
    for path in [
        "files/a",
        "files/b",
        "volumes/media/pic",
        "volumes/media/added",
        "volumes/other/x",
    ] {
        shop.write(path, "new");
    }

    let would = shop.json(0, &["restore", &saved, "--volume", "media", "--dry-run"]);
    shop.json(
        0,
        &["restore", &saved, "--volume", "media", "--path", "files/a"],
    );
    let none = shop.run(&["restore", &saved, "--path", "files/nothing"]);

    let paths: Vec<&str> = would["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["path"].as_str().unwrap())
        .collect();
    assert!(
        paths.contains(&"volumes/media/added") && !paths.contains(&"files/b"),
        "{paths:?}"
    );
    assert_eq!(
        (shop.read("files/a"), shop.read("files/b")),
        ("old".into(), "new".into())
    );
    assert_eq!(shop.read("volumes/media/pic"), "old");
    assert!(!shop.at("state/current/volumes/media/added").exists());
    assert_eq!(shop.read("volumes/other/x"), "new");
    assert_eq!(none.code, 3, "{}", none.err);
    assert!(shop.left_over().is_empty());
}

#[test]
fn what_is_damaged_is_refused_and_the_state_stays_as_it_was() {
    type Harm = fn(&Shop, &str);
    let harms: [(&str, Harm); 3] = [
        ("metadata", |shop, _| {
            let directory = names(&shop.at("state/snapshots")).remove(0);
            damage(
                &shop
                    .at("state/snapshots")
                    .join(directory)
                    .join("metadata.json"),
            );
        }),
        ("index", |shop, _| damage(&shop.at("state/index.json"))),
        ("chunk", |shop, _| {
            let inner = names(&shop.at("state/chunks")).remove(0);
            let inner = shop.at("state/chunks").join(inner);
            damage(&inner.join(names(&inner).remove(0)));
        }),
    ];
    for (what, harm) in harms {
        let shop = Shop::new("");
        shop.write("files/a", "once upon a time");
        let saved = shop.save();
        shop.write("files/a", "now");
        harm(&shop, &saved);

        let refused = shop.run(&["restore", &saved, "--no-safety"]);

        assert_eq!(refused.code, 9, "{what}: {} {}", refused.out, refused.err);
        assert_eq!(shop.read("files/a"), "now", "{what}");
        assert!(shop.left_over().is_empty(), "{what}");
    }
}

fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x20;
    fs::write(path, bytes).unwrap();
}

#[test]
fn snapshots_are_labelled_pinned_let_go_collected_and_proven() {
    let shop = Shop::new("[retention]\nmax_snapshots = 2\n");
    let mut ids = Vec::new();
    for number in 0..5 {
        shop.write("files/a", &number.to_string());
        ids.push(shop.save());
    }

    shop.json(0, &["label", &ids[0], "release=one"]);
    shop.json(0, &["pin", &ids[0]]);
    let by_label = shop.json(0, &["show", "release=one"]);
    let verified = shop.json(0, &["verify", "one"]);
    let active = shop.run(&["delete", &ids[4]]);
    shop.json(0, &["delete", &ids[1]]);
    shop.json(0, &["gc"]);
    let left: Vec<String> = shop.json(0, &["list"])["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(id)
        .collect();
    let diff = shop.json(0, &["diff", &ids[0], "latest"]);

    assert_eq!(id(&by_label), ids[0]);
    assert_eq!(verified["files"], 1);
    assert_eq!(active.code, 11, "{}", active.err);
    assert_eq!(left, [&*ids[0], &*ids[3], &*ids[4]]);
    assert_eq!(names(&shop.at("state/snapshots")).len(), 3);
    assert_eq!(diff["items"][0]["path"], "files/a");
}

#[test]
fn an_upgrade_that_fails_is_taken_back_and_one_that_works_stays() {
    let shop = Shop::new(
        "[services.web]\nstart = [\"sleep\", \"600\"]\nhealth = { command = \"test ! -e state/current/files/broken\", timeout_s = 1 }\n",
    );
    shop.write("files/version", "1");
    let current = shop.at("state/current/files");
    let script = |text: &str| text.replace("FILES", current.to_str().unwrap());

    let failed = shop.json(
        1,
        &[
            "upgrade",
            "--",
            "sh",
            "-c",
            &script("echo 2 > FILES/version; exit 3"),
        ],
    );
    let version = shop.read("files/version");
    shop.json(0, &["start"]);
    let ill = shop.json(
        1,
        &[
            "upgrade",
            "--",
            "sh",
            "-c",
            &script("echo 2 > FILES/version; touch FILES/broken"),
        ],
    );
    let still = shop.read("files/version");
    let done = shop.json(
        0,
        &[
            "upgrade",
            "--",
            "sh",
            "-c",
            &script("printf 2 > FILES/version"),
        ],
    );

    assert_eq!(
        (failed["rolled_back"].as_bool(), &*version),
        (Some(true), "1")
    );
    assert_eq!(
        shop.json(0, &["status"])["services"][0]["status"],
        "running",
        "what ran, runs"
    );
    assert_eq!((ill["rolled_back"].as_bool(), &*still), (Some(true), "1"));
    assert_eq!(
        (done["rolled_back"].as_bool(), &*shop.read("files/version")),
        (Some(false), "2")
    );
    stop(&shop);
}

#[test]
fn a_duplicate_is_a_project_of_its_own() {
    let shop = Shop::new("[volumes.media]\nconsistency = \"generic\"\n");
    shop.write("files/a", "same");
    shop.write("volumes/media/pic", "pixels");
    shop.save();
    let to = shop.session.home().join("twin");

    shop.json(0, &["duplicate", to.to_str().unwrap(), "--id", "twin"]);
    fs::write(to.join("state/current/files/a"), "other").unwrap();
    let saved = shop
        .session
        .json(0, &["project", "save", to.to_str().unwrap()]);
    let again = shop.run(&["duplicate", to.to_str().unwrap(), "--id", "twin"]);

    assert_eq!(saved["project"], "twin");
    assert_eq!(
        fs::read_to_string(to.join("state/current/volumes/media/pic")).unwrap(),
        "pixels"
    );
    assert_eq!(shop.read("files/a"), "same");
    assert_eq!(again.code, 2, "{}", again.err);
}

#[test]
fn autosave_saves_a_while_after_the_last_change_and_not_without_one() {
    let shop = Shop::new("");
    shop.write("files/a", "1");
    let mut auto = shop
        .command(&["autosave", "--debounce", "1"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let count = || names(&shop.at("state/snapshots")).len();

    eventually(
        Duration::from_secs(20),
        "what nobody watched is saved",
        || count() == 1,
    );
    shop.write("files/a", "2");
    let took = eventually(Duration::from_secs(20), "a change is saved", || {
        count() == 2
    });
    std::thread::sleep(Duration::from_secs(3));
    let idle = count();
    Command::new("kill")
        .arg(auto.id().to_string())
        .status()
        .unwrap();
    let ended = auto.wait().unwrap();

    assert!(took >= Duration::from_millis(900), "{took:?}");
    assert_eq!(idle, 2, "nothing changed, nothing is saved");
    assert!(ended.success(), "{ended:?}");
    assert_eq!(shop.json(0, &["list"])["items"][1]["reason"], "autosave");
}

#[test]
fn ten_thousand_files_are_saved_and_come_back() {
    let shop = Shop::new("");
    for number in 0..10_000 {
        shop.write(
            &format!("files/{}/{number}", number % 100),
            &format!("content {number}"),
        );
    }

    let saved = shop.json(0, &["save"]);
    fs::remove_dir_all(shop.at("state/current/files/7")).unwrap();
    shop.json(0, &["restore", "latest", "--no-safety"]);

    assert_eq!(saved["files"], 10_000);
    assert_eq!(names(&shop.at("state/current/files/7")).len(), 100);
    assert_eq!(
        shop.json(0, &["diff", "latest"])["items"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
}

#[test]
fn snapshots_in_a_bucket_come_back_on_a_project_that_has_none() {
    let Some(store) = crate::session::real_store("STASIS_TEST_S3") else {
        return;
    };
    let shop = Shop::new("[volumes.media]\nconsistency = \"generic\"\n");
    shop.write("files/a", "1");
    shop.write("volumes/media/pic", "pixels");
    let tenant = format!("t{}", std::process::id());
    let words = |words: &[&str]| {
        let mut all = words.to_vec();
        let (store, tenant): (&str, &str) = (&store, &tenant);
        all.extend(["--store", store, "--tenant", tenant]);
        shop.json(0, &all)
    };

    let saved = words(&["save"]);
    fs::remove_dir_all(shop.at("state/current")).unwrap();
    fs::create_dir(shop.at("state/current")).unwrap();
    words(&["restore", "latest", "--no-safety"]);

    assert_eq!(shop.read("volumes/media/pic"), "pixels");
    assert!(!shop.at("state/chunks").exists());
    assert_eq!(
        words(&["list"])["items"][0]["snapshot_id"],
        saved["snapshot_id"]
    );
}

#[test]
fn a_file_that_is_wrong_is_explained() {
    let shop = Shop::new("[volumes.db]\nconsistency = \"postgres\"\n");

    let wrong = shop.run(&["save"]);
    let plain = Command::new(STASIS)
        .args(["project", "start", "--project", "/tmp"])
        .output()
        .unwrap();

    assert_eq!(wrong.code, 2, "{}", wrong.err);
    assert!(wrong.err.contains("`url_env`"), "{}", wrong.err);
    assert_eq!(plain.status.code(), Some(2));
}
