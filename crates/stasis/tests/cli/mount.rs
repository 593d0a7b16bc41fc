//! Snapshots that are mounted, looked at through the kernel.

use crate::encrypted::{Keys, files};
use crate::session::{STASIS, Session, real_store};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Whether anything can be mounted here; says why not.
fn can_mount() -> bool {
    let fuse = File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = fuse {
        println!("skipped: /dev/fuse cannot be opened: {error}");
        return false;
    }
    let helper = Command::new("fusermount3").arg("-V").output();
    if helper.is_err() {
        println!("skipped: fusermount3 is not installed; Debian's package fuse3 has it");
        return false;
    }
    true
}

/// A process that shows snapshots. Dropped, it is ended and unmounted.
struct Mounted {
    child: Child,
    point: PathBuf,
    said: PathBuf,
}

impl Mounted {
    /// Mounts something, and waits until it is there.
    fn new(session: &Session, words: &[&str]) -> Self {
        let point = session.home().join("point");
        fs::create_dir_all(&point).unwrap_or_default();
        Self::on(session, words, &point)
    }

    fn on(session: &Session, words: &[&str], point: &Path) -> Self {
        let said = session.home().join("mount.err");
        let mut command = session.command(&[&["mount"], words, &[text(point)]].concat());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(File::create(&said).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        let mounted = Self {
            child,
            point: point.to_owned(),
            said,
        };
        assert!(line.starts_with("Mounted "), "{line}{}", mounted.said());
        mounted
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.point.join(path)
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", name, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// How it ended, which must not take long.
    fn ended(&mut self) -> Option<i32> {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it goes on: {}", self.said());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let unmount = Command::new("fusermount3")
            .args(["-u", "-z", "-q"])
            .arg(&self.point)
            .status();
        let _ = unmount;
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn is_mounted(point: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.contains(text(point)))
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u8::try_from(state >> 56).unwrap()
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// A directory with something of everything.
fn grow(dir: &Path) {
    fs::create_dir_all(dir.join("deep/er")).unwrap();
    fs::create_dir(dir.join("empty")).unwrap();
    for number in 0..300 {
        fs::write(
            dir.join(format!("deep/f{number}")),
            format!("file {number}"),
        )
        .unwrap();
    }
    fs::write(dir.join("deep/er/big"), noise(3, 5_000_000)).unwrap();
    fs::write(dir.join("nothing"), "").unwrap();
    fs::write(dir.join("name"), "two names").unwrap();
    fs::hard_link(dir.join("name"), dir.join("other name")).unwrap();
    symlink("deep/er/big", dir.join("link")).unwrap();
    symlink("/nowhere/at all", dir.join("dangling")).unwrap();
    let sparse = File::create(dir.join("sparse")).unwrap();
    sparse.set_len(3_000_000).unwrap();
    sparse.write_all_at(b"island", 1_500_000).unwrap();
    drop(sparse);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
    fs::set_permissions(dir.join("name"), mode).unwrap();
}

/// Everything that one can see of a tree, by path.
fn seen(top: &Path) -> Vec<String> {
    fn walk(top: &Path, dir: &Path, all: &mut Vec<String>) {
        let mut entries: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|one| one.unwrap().path())
            .collect();
        entries.sort();
        for path in entries {
            let meta = path.symlink_metadata().unwrap();
            let content = if meta.is_file() {
                let bytes = fs::read(&path).unwrap();
                assert_eq!(bytes.len() as u64, meta.len(), "{}", path.display());
                stasis_engine::model::digest::FileDigest::of(&bytes).to_string()
            } else if meta.is_symlink() {
                fs::read_link(&path).unwrap().display().to_string()
            } else {
                String::new()
            };
            let links = if meta.is_file() { meta.nlink() } else { 0 };
            let size = if meta.is_dir() { 0 } else { meta.len() };
            all.push(format!(
                "{} {:o} {} {} {} {}.{} {links} {size} {content}",
                path.strip_prefix(top).unwrap().display(),
                meta.mode(),
                meta.uid(),
                meta.gid(),
                meta.is_dir(),
                meta.mtime(),
                meta.mtime_nsec(),
            ));
            if meta.is_dir() {
                walk(top, &path, all);
            }
        }
    }
    let mut all = Vec::new();
    walk(top, top, &mut all);
    all
}

/// A session with one directory that was saved once.
fn saved(session: Session) -> (Session, PathBuf) {
    let dir = session.home().join("notes");
    fs::create_dir(&dir).unwrap();
    grow(&dir);
    session.data(0, &["save", text(&dir)]);
    (session, dir)
}

fn assert_as_restored(session: &Session, dir: &Path, mounted: &Path) {
    let target = session.home().join("restored");
    session.data(0, &["restore", text(dir), "--to", text(&target)]);
    let (is, should) = (seen(mounted), seen(&target));
    assert!(should.len() > 300);
    assert_eq!(is, should);
}

#[test]
fn a_mounted_snapshot_is_what_a_restore_gives() {
    if !can_mount() {
        return;
    }
    let (session, dir) = saved(Session::new());
    let mounted = Mounted::new(&session, &[text(&dir)]);

    assert_as_restored(&session, &dir, &mounted.at("latest"));

    let big = File::open(mounted.at("latest/deep/er/big")).unwrap();
    let should = noise(3, 5_000_000);
    for turn in 0..200_usize {
        let from = turn * 7_919_777 % 5_000_000;
        let length = (turn * 104_729 % 300_000).min(5_000_000 - from);
        let mut part = vec![0; length];
        big.read_exact_at(&mut part, from as u64).unwrap();
        assert_eq!(
            part,
            should[from..from + length],
            "{length} bytes from {from}"
        );
    }
    assert!(fs::write(mounted.at("latest/new"), "x").is_err());
    assert_eq!(mounted.said(), "");
}

#[test]
fn many_read_at_once() {
    if !can_mount() {
        return;
    }
    let (session, dir) = saved(Session::new());
    let mounted = Mounted::new(&session, &[text(&dir), "--cache", "2MiB"]);
    let top = mounted.at("latest");
    let should = seen(&dir).len();

    std::thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|_| scope.spawn(|| seen(&top))).collect();
        let mut all = all.into_iter().map(|one| one.join().unwrap());
        let first = all.next().unwrap();
        assert_eq!(first.len(), should);
        assert!(all.all(|other| other == first));
    });
}

#[test]
fn snapshots_appear_by_time_id_label_and_pin_and_latest_follows() {
    if !can_mount() {
        return;
    }
    let session = Session::new();
    let dir = session.home().join("notes");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("todo"), "first").unwrap();
    let first = session.json(0, &["save", text(&dir), "-m", "a/b"]);
    let mounted = Mounted::new(&session, &[text(&dir)]);
    let read = |path: &str| fs::read_to_string(mounted.at(path)).unwrap();
    assert_eq!(read("latest/todo"), "first");
    assert_eq!(read("by-name/a%2Fb/todo"), "first");
    let id = first["snapshot_id"].as_str().unwrap();
    assert_eq!(read(&format!("by-id/{}/todo", &id[..8])), "first");

    fs::write(dir.join("todo"), "second").unwrap();
    session.data(0, &["save", text(&dir)]);
    session.data(0, &["pin", text(&dir), id]);

    let until = Instant::now() + Duration::from_secs(20);
    while read("latest/todo") != "second" {
        assert!(Instant::now() < until, "the new snapshot does not appear");
        std::thread::sleep(Duration::from_millis(100));
    }
    let names = |path: &str| fs::read_dir(mounted.at(path)).unwrap().count();
    assert_eq!(
        (names("by-time"), names("by-id"), names("pinned")),
        (2, 2, 1)
    );
    assert_eq!(read(&format!("by-id/{}/todo", &id[..8])), "first");
}

#[test]
fn what_is_damaged_is_an_error_and_everything_else_is_not() {
    if !can_mount() {
        return;
    }
    let (session, dir) = saved(Session::new());
    let mounted = Mounted::new(&session, &[text(&dir)]);
    fs::read(mounted.at("latest/nothing")).unwrap();
    // The largest chunks are of the largest file, which is noise.
    let mut chunks = files(&session.object("pools/default/chunks"));
    chunks.sort_by_key(|path| std::cmp::Reverse(path.metadata().unwrap().len()));
    let mut bytes = fs::read(&chunks[0]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let mut rights = chunks[0].metadata().unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut rights, 0o600);
    fs::set_permissions(&chunks[0], rights).unwrap();
    fs::write(&chunks[0], bytes).unwrap();

    for _ in 0..2 {
        let mut read = Vec::new();
        let mut big = File::open(mounted.at("latest/deep/er/big")).unwrap();
        let refused = big.read_to_end(&mut read).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(5), "{refused}");
        assert!(
            noise(3, 5_000_000).starts_with(&read),
            "other bytes came before the error"
        );
    }
    assert_eq!(
        fs::read_to_string(mounted.at("latest/deep/f7")).unwrap(),
        "file 7"
    );
    let said = mounted.said();
    assert_eq!(said.matches("warning:").count(), 1, "{said}");
    assert!(
        said.contains("could not read deep/er/big in snapshot"),
        "{said}"
    );
    assert!(said.contains("is damaged"), "{said}");
}

#[test]
fn a_mount_whose_process_was_killed_is_cleared_by_the_next() {
    if !can_mount() {
        return;
    }
    let (session, dir) = saved(Session::new());
    let mut killed = Mounted::new(&session, &[text(&dir)]);
    let again = session.run(&["mount", text(&dir), text(&killed.point)]);
    assert_eq!(again.code, 2, "{}", again.err);
    assert!(
        again.err.contains("mounted by another process"),
        "{}",
        again.err
    );
    killed.signal("KILL");
    killed.ended();
    // What the directory is, the kernel knows for another second.
    let dead = fs::read_dir(&killed.point).unwrap_err();
    assert_eq!(dead.raw_os_error(), Some(107), "{dead}");

    let mounted = Mounted::new(&session, &[text(&dir)]);

    assert!(
        mounted.said().contains("whose process is gone"),
        "{}",
        mounted.said()
    );
    assert_eq!(
        fs::read_to_string(mounted.at("latest/deep/f7")).unwrap(),
        "file 7"
    );
    std::mem::forget(killed);
}

#[test]
fn it_is_unmounted_when_it_is_asked_to_end() {
    if !can_mount() {
        return;
    }
    let (session, dir) = saved(Session::new());
    for how in ["INT", "TERM", "fusermount3"] {
        let mut mounted = Mounted::new(&session, &[text(&dir)]);
        // Somebody still has a file open.
        let open = File::open(mounted.at("latest/deep/f7")).unwrap();
        assert!(is_mounted(&mounted.point));
        if how == "fusermount3" {
            drop(open);
            let ended = Command::new(how).arg("-u").arg(&mounted.point).status();
            assert!(ended.unwrap().success());
        } else {
            mounted.signal(how);
        }

        assert_eq!(mounted.ended(), Some(0), "{how}: {}", mounted.said());
        assert!(!is_mounted(&mounted.point), "{how}");
        assert!(
            mounted.said().contains("unmounted"),
            "{how}: {}",
            mounted.said()
        );
        assert_eq!(fs::read_dir(&mounted.point).unwrap().count(), 0);
    }
}

#[test]
fn an_encrypted_directory_is_mounted_with_its_key_only() {
    if !can_mount() {
        return;
    }
    let keys = Keys::new();
    let (session, dir) = saved(Session::new().with_key(&keys.file("mine")));
    let mounted = Mounted::new(&session, &[text(&dir)]);
    assert_as_restored(&session, &dir, &mounted.at("latest"));
    drop(mounted);

    let point = session.home().join("point");
    let mut without = session.command(&["mount", text(&dir), text(&point)]);
    let without = without.env_remove("STASIS_KEY_FILE").spawn().unwrap();
    let mut without = Mounted {
        child: without,
        point,
        said: session.home().join("mount.err"),
    };
    let until = Instant::now() + Duration::from_secs(10);
    while !is_mounted(&without.point) && without.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(fs::read(without.at("latest/deep/f7")).is_err());
}

#[test]
fn snapshots_in_a_bucket_are_mounted_too() {
    let Some(store) = real_store("STASIS_TEST_S3") else {
        return;
    };
    if !can_mount() {
        return;
    }
    let store = store.replace("/test?", &format!("/mount-{}?", std::process::id()));
    let keys = Keys::new();
    let (session, dir) = saved(Session::on(&store).with_key(&keys.file("mine")));
    let mounted = Mounted::new(&session, &[text(&dir)]);
    assert_as_restored(&session, &dir, &mounted.at("latest"));
    assert_eq!(mounted.said(), "");
}

#[test]
fn a_mount_point_must_be_empty_and_outside() {
    let (session, dir) = saved(Session::new());
    let inside = dir.join("empty");
    let store = session.object("in here");
    fs::create_dir(&store).unwrap();
    let refused = |point: &Path, said: &str| {
        let refused = session.run(&["mount", text(&dir), text(point)]);
        assert_ne!(refused.code, 0);
        assert!(refused.err.contains(said), "{}", refused.err);
    };

    refused(
        &dir.join("deep"),
        "lies in the directory whose snapshots are shown",
    );
    refused(&inside, "lies in the directory whose snapshots are shown");
    refused(&store, "lies in the store");
    refused(session.home(), "is not empty");
    refused(&session.home().join("none"), "mkdir -p");
}

#[test]
fn what_is_mounted_in_a_directory_is_no_part_of_its_snapshots() {
    if !can_mount() {
        return;
    }
    let (session, dir) = saved(Session::new());
    let around = session.home().join("around");
    let point = around.join("point");
    fs::create_dir_all(&point).unwrap();
    fs::write(around.join("own"), "mine").unwrap();
    let mut mounted = Mounted::on(&session, &[text(&dir)], &point);
    let listed = || {
        session.data(0, &["save", text(&around)]);
        session.data(0, &["ls", text(&around), "--recursive"])
    };

    let alive = listed();
    mounted.signal("KILL");
    mounted.ended();
    fs::write(around.join("own"), "mine too").unwrap();
    let dead = listed();

    for listed in [alive, dead] {
        assert!(listed.contains("own"), "{listed}");
        assert!(
            !listed.contains("by-time") && !listed.contains("f7"),
            "{listed}"
        );
    }
}

#[test]
fn a_whole_store_has_its_directories_and_profiles() {
    if !can_mount() {
        return;
    }
    let (session, dir) = saved(Session::new());
    let profile = session.home().join("chrome");
    grow(&profile);
    fs::write(profile.join("Last Version"), "141.0.1.2").unwrap();
    let saved = session.run(&["profile", "save", "acme/alice", "--dir", text(&profile)]);
    assert_eq!(saved.code, 0, "{}{}", saved.out, saved.err);
    let mounted = Mounted::new(&session, &["--all"]);
    let only = |path: &Path| {
        let all: Vec<PathBuf> = fs::read_dir(path)
            .unwrap()
            .map(|one| one.unwrap().path())
            .collect();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].clone()
    };

    let notes = only(&mounted.at("dir"));
    assert_as_restored(&session, &dir, &notes.join("latest"));
    let alice = mounted.at("profile/acme/alice@141/latest");
    let (is, was) = (seen(&alice), seen(&profile));
    let named = |all: &[String], name: &str| all.iter().find(|one| one.starts_with(name)).cloned();
    for name in ["deep/er/big ", "deep/f7 ", "sparse ", "link "] {
        let (is, was) = (named(&is, name).unwrap(), named(&was, name).unwrap());
        assert_eq!(is.rsplit(' ').next(), was.rsplit(' ').next(), "{name}");
    }
}

#[test]
fn checkpoints_of_a_workspace_are_there_too() {
    if !can_mount() {
        return;
    }
    let (session, dir) = saved(Session::new());
    session.data(0, &["workspace", "init", text(&dir)]);
    session.data(
        0,
        &["workspace", "create", "one", "--workspace", text(&dir)],
    );
    let was = seen(&dir);
    fs::write(dir.join("name"), "changed since").unwrap();
    fs::remove_file(dir.join("deep/er/big")).unwrap();
    let mounted = Mounted::new(&session, &[text(&dir)]);

    let checkpoints = fs::read_dir(mounted.at("checkpoints")).unwrap();
    let checkpoints: Vec<PathBuf> = checkpoints.map(|one| one.unwrap().path()).collect();
    let named = checkpoints.iter().any(|one| one.ends_with("cp-10"));
    assert!(named, "{checkpoints:?} {}", mounted.said());
    for checkpoint in &checkpoints {
        assert_eq!(seen(checkpoint), was, "{}", checkpoint.display());
    }
}

#[test]
fn the_program_says_what_it_needs() {
    let help = Command::new(STASIS)
        .args(["mount", "--help"])
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(
        help.contains("fuse3") && help.contains("MOUNTPOINT"),
        "{help}"
    );
}
