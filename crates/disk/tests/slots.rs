//! Checkpoints on real filesystems, and killed at every call that changes anything.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests make the trees that they look at"
)]

use stasis_disk::form::slots::{
    CheckpointSource, Created, Manifest, OWN_PATTERNS, Pool, PoolSettings, SlotError, StatCache,
    WorkspaceRestore, manifest, portion, restore_in_place,
};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::clone::{Fallback, Method};
use stasis_disk::tree::walk::WalkSettings;
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use stasis_model::workspace::{Budget, CheckpointOrigin, Occupant, Slot, SlotForm, SlotMetadata};
use stasis_testkit::mounted_image::MountedImage;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;
use tempfile::TempDir;

const LATER: Timestamp = Timestamp::from_millis(10_000_000_000_000);

/// Makes one entry what it is in a tree, in place; `false` when it is already.
fn revert(live: &Path, tree: &RootDir, path: &EntryPath) -> Result<bool, SlotError> {
    let root = RootDir::open(live, Mounts::Stay).unwrap();
    let walk = WalkSettings::default();
    if portion(tree, path, &walk)? == portion(&root, path, &walk)? {
        return Ok(false);
    }
    let mut settings = WorkspaceRestore::new(stasis_disk::tree::restore::RestoreOrigin {
        at: LATER,
        from: "a checkpoint".to_owned(),
    });
    settings.limits.only = Some(path.clone());
    let _ = restore_in_place(tree, live, &|_| false, settings)?;
    Ok(true)
}

fn pool(session: &Path, fallback: Fallback, budget: u64) -> Pool {
    let settings = PoolSettings {
        fallback,
        ..PoolSettings::new(Budget::of_bytes(budget))
    };
    Pool::open(session, settings).unwrap()
}

fn auto(pool: &Pool, slot: u32, sequence: u64) -> Result<Created, SlotError> {
    let at = Timestamp::from_millis(sequence * 1000);
    let metadata = SlotMetadata::new(Slot::new(slot), CheckpointOrigin::Auto, at, sequence);
    let workspace = pool.path().parent().unwrap().join("workspace");
    pool.create(&CheckpointSource::of(&workspace), metadata)
}

fn list(tree: &Path, stats: &Path) -> Manifest {
    let root = RootDir::open(tree, Mounts::Stay).unwrap();
    let mut cache = StatCache::open(stats, LATER);
    let walk = WalkSettings {
        excludes: OWN_PATTERNS.map(str::to_owned).to_vec(),
        ..WalkSettings::default()
    };
    let listed = manifest(&root, &mut cache, &walk).unwrap();
    cache.save().unwrap();
    listed.0
}

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn sync(path: &Path) {
    rustix::fs::syncfs(File::open(path).unwrap()).unwrap();
}

#[test]
fn where_nothing_can_be_shared_checkpoints_are_chunks_or_copies() {
    for filesystem in ["ext4", "tmpfs"] {
        let Some(mounted) = MountedImage::new(filesystem, 64 << 20) else {
            continue;
        };
        let session = mounted.root();
        fs::create_dir(session.join("workspace")).unwrap();
        fs::write(session.join("workspace/file"), "content").unwrap();
        let chunking = pool(&session, Fallback::Refuse, 1 << 30);

        let chunked = auto(&chunking, 0, 1).unwrap();
        let copied = auto(&pool(&session, Fallback::Copy, 1 << 30), 1, 2).unwrap();

        assert_eq!(chunked.metadata.form, SlotForm::Chunked);
        assert_eq!(copied.metadata.form, SlotForm::Clone);
        assert_eq!(copied.workspace.method, Method::Copy);
        let [in_chunks, as_copy] =
            [&chunked, &copied].map(|one| chunking.contents(&one.metadata).unwrap());
        assert_eq!(in_chunks, as_copy);
        let held = chunking.usage().unwrap().held;
        assert!((1024..64 << 10).contains(&held), "{filesystem}: {held}");
    }
}

/// Bytes of the disk that are in use.
fn used(path: &Path) -> u64 {
    sync(path);
    let space = rustix::fs::statvfs(path).unwrap();
    (space.f_blocks - space.f_bfree) * space.f_frsize
}

fn what_is_shared_is_counted_once(filesystem: &str) {
    const LARGE: u64 = 24 << 20;
    let Some(mounted) = MountedImage::new(filesystem, 512 << 20) else {
        return;
    };
    let session = mounted.root();
    fs::create_dir(session.join("workspace")).unwrap();
    let large = session.join("workspace/large");
    fs::write(&large, vec![7; 24 << 20]).unwrap();
    fs::write(session.join("workspace/tiny"), "a few bytes").unwrap();
    sync(&session);
    let budget = 40 << 20;
    let sharing = pool(&session, Fallback::Refuse, budget);
    let before = used(&session);

    for slot in 0..6 {
        let created = auto(&sharing, slot, u64::from(slot) + 1).unwrap();
        assert_eq!(
            (created.evicted.len(), created.workspace.bytes_copied),
            (0, 0)
        );
    }
    let same = sharing.usage().unwrap();
    let spent = used(&session).saturating_sub(before);
    // The live tree goes its own way, and they hold no more than before.
    fs::write(&large, vec![8; 24 << 20]).unwrap();
    sync(&session);
    let diverged = sharing.usage().unwrap();
    let part = File::options().write(true).open(&large).unwrap();
    let created = auto(&sharing, 6, 7).unwrap();
    part.write_all_at(&vec![9; 1 << 20], 0).unwrap();
    let partly = auto(&sharing, 7, 8).unwrap();

    assert!(spent < 8 << 20, "{spent}");
    assert!((LARGE..LARGE + (2 << 20)).contains(&same.held), "{same:?}");
    assert_eq!(diverged, same);
    assert!(
        same.slots
            .iter()
            .all(|one| one.total >= LARGE && one.exclusive < 1 << 20)
    );
    let evicted: Vec<u32> = created.evicted.iter().map(|slot| slot.index()).collect();
    assert_eq!(evicted, [0, 1, 2, 3, 4, 5], "they share, so all have to go");
    assert_eq!(partly.evicted, [], "a megabyte more is no reason");
    let now = sharing.usage().unwrap();
    assert!((LARGE + (1 << 20)..=budget).contains(&now.held), "{now:?}");
}

#[test]
fn what_is_shared_is_counted_once_on_xfs() {
    what_is_shared_is_counted_once("xfs");
}

#[test]
fn what_is_shared_is_counted_once_on_btrfs() {
    what_is_shared_is_counted_once("btrfs");
}

#[test]
fn a_subvolume_is_checkpointed_at_once_replaced_and_deleted() {
    let Some(mounted) = MountedImage::new("btrfs", 512 << 20) else {
        return;
    };
    let session = mounted.root();
    let workspace = session.join("workspace");
    let mut btrfs = Command::new("btrfs");
    btrfs.args(["-q", "subvolume", "create"]).arg(&workspace);
    assert!(btrfs.status().unwrap().success());
    fs::create_dir(workspace.join("deep")).unwrap();
    fs::write(workspace.join("deep/file"), "before").unwrap();
    let sharing = pool(&session, Fallback::Refuse, 1 << 30);

    let first = auto(&sharing, 0, 1).unwrap();
    fs::write(workspace.join("deep/file"), "edited").unwrap();
    let second = auto(&sharing, 0, 2).unwrap();
    fs::write(workspace.join("deep/file"), "again!").unwrap();
    let tree = sharing.tree(Slot::new(0)).unwrap();
    let path = EntryPath::parse(b"deep/file").unwrap();
    let reverted = revert(&workspace, &tree, &path).unwrap();
    let directory = revert(&workspace, &tree, &EntryPath::parse(b"deep").unwrap()).unwrap();
    drop(tree);
    sharing.delete(Slot::new(0)).unwrap();

    assert_eq!(first.workspace.method, Method::Subvolume);
    assert!(second.replaced.is_some());
    assert_eq!((reverted, directory), (true, false));
    assert_eq!(fs::read(workspace.join("deep/file")).unwrap(), b"edited");
    assert_eq!(names(sharing.path()), [".lock"]);
    let mut list = Command::new("btrfs");
    let left = list
        .args(["subvolume", "list"])
        .arg(&session)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(left.stdout).unwrap().lines().count(), 1);
}

#[test]
fn a_subvolume_is_counted_when_it_is_recorded_or_when_the_budget_asks_for_it() {
    let Some(mounted) = MountedImage::new("btrfs", 512 << 20) else {
        return;
    };
    let session = mounted.root();
    let workspace = session.join("workspace");
    let mut btrfs = Command::new("btrfs");
    btrfs.args(["-q", "subvolume", "create"]).arg(&workspace);
    assert!(btrfs.status().unwrap().success());
    fs::write(workspace.join("one"), "four").unwrap();
    fs::write(workspace.join("two"), vec![7; 3 << 20]).unwrap();
    sync(&session);
    let (ample, scarce) = (
        pool(&session, Fallback::Refuse, 10 << 30),
        pool(&session, Fallback::Refuse, 5 << 20),
    );
    let numbers = |of: &SlotMetadata| (of.files_count, of.bytes);
    let all = (2, (3 << 20) + 4);

    let made = auto(&ample, 0, 1).unwrap().metadata;
    let contents = list(&ample.path_of(Slot::new(0)), &session.join("stats"));
    let recorded = ample.record(&made, &contents).unwrap();
    let counted = auto(&scarce, 0, 2).unwrap().metadata;

    assert_eq!((numbers(&made), made.complete), ((0, 0), true));
    assert_eq!((numbers(&recorded), numbers(&counted)), (all, all));
    assert!(made.bytes_at_most > recorded.bytes_at_most);
    assert_eq!(recorded.bytes_at_most, counted.bytes_at_most);
    assert!(ample.usage().unwrap().held <= recorded.bytes_at_most.unwrap());
}

const SESSION: &str = "STASIS_TEST_SLOTS_SESSION";
const VERB: &str = "STASIS_TEST_SLOTS_VERB";
/// Calls that change something.
const CALLS: [&str; 13] = [
    "write",
    "pwrite64",
    "ftruncate",
    "copy_file_range",
    "fsync",
    "syncfs",
    "rename",
    "renameat",
    "renameat2",
    "unlinkat",
    "symlinkat",
    "mkdirat",
    "utimensat",
];

/// What a process does that is going to be killed.
#[test]
fn child() {
    let (Some(session), Ok(verb)) = (std::env::var_os(SESSION), std::env::var(VERB)) else {
        return;
    };
    let session = Path::new(&session);
    let pool = pool(session, Fallback::Copy, 1 << 30);
    let done = match verb.as_str() {
        "create" => auto(&pool, 0, 2).is_ok(),
        "delete" => pool.delete(Slot::new(0)).is_ok(),
        path => {
            let tree = pool.tree(Slot::new(0)).unwrap();
            let path = EntryPath::parse(path.as_bytes()).unwrap();
            revert(&session.join("workspace"), &tree, &path).is_ok()
        }
    };
    std::process::exit(i32::from(!done));
}

/// A session whose workspace has changed since its only checkpoint.
fn session() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join("workspace").join(name);
    fs::create_dir_all(at("deep")).unwrap();
    fs::write(at("deep/file"), "old").unwrap();
    symlink("old", at("link")).unwrap();
    let _ = auto(&pool(home.path(), Fallback::Copy, 1 << 30), 0, 1).unwrap();
    fs::write(at("deep/file"), "new").unwrap();
    fs::write(at("deep/more"), "new").unwrap();
    fs::write(at("added"), "new").unwrap();
    fs::remove_file(at("link")).unwrap();
    symlink("new", at("link")).unwrap();
    home
}

/// Runs a verb in a process of its own under strace; `None` when there is none.
fn run(home: &Path, verb: &str, arguments: &[&str]) -> Option<ExitStatus> {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(home.join("log"));
    command
        .args(arguments)
        .arg(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--test-threads=1", "-q"]);
    command.env(SESSION, home).env(VERB, verb);
    match command.stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) => Some(status),
        Err(error) => {
            let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
            assert!(!needed, "strace is not there ({error}): run scripts/test");
            println!("skipped: strace is not there");
            None
        }
    }
}

/// What kills a process at a call.
const KILL: &str = "signal=KILL";
/// What makes a call fail.
const FULL: &str = "error=ENOSPC";

/// Lets a fault happen at the first call of each kind, at the second, and so on, and looks at what is left and what was said.
fn at_every_call(verb: &str, fault: &str, check: impl Fn(&Path, &str, Option<i32>)) {
    let home = session();
    let trace = format!("trace={}", CALLS.join(","));
    let Some(status) = run(home.path(), verb, &["-e", &trace]) else {
        return;
    };
    assert!(status.success());
    let log = fs::read_to_string(home.path().join("log")).unwrap();
    let mut runs = 0;
    for call in CALLS {
        let is_it = |line: &&str| line.contains(&format!(" {call}("));
        for when in 1..=log.lines().filter(is_it).count() {
            let home = session();
            let inject = format!("inject={call}:{fault}:when={when}");
            let trace = format!("trace={call}");
            let status = run(home.path(), verb, &["-e", &trace, "-e", &inject]).unwrap();
            check(home.path(), &inject, status.code());
            runs += 1;
        }
    }
    println!("`{verb}` survived {runs} faults `{fault}`");
    assert!(runs >= 5);
}

/// What the checkpoint holds, if there is one: its number, and the content of its file.
fn checkpoint(home: &Path, inject: &str) -> Option<(u64, Vec<u8>)> {
    let pool = pool(home, Fallback::Copy, 1 << 30);
    let found = pool.list().unwrap();
    assert!(
        found.len() <= 1 && found.iter().all(|one| one.known().is_some()),
        "{inject}: {found:?}"
    );
    let left = names(pool.path());
    assert!(
        left.iter()
            .all(|name| [".lock", "0"].contains(&name.as_str())),
        "{inject}: {left:?}"
    );
    let sequence = found.first().and_then(Occupant::known)?.sequence;
    let tree = pool.path_of(Slot::new(0));
    let (more, content) = (
        tree.join("deep/more").exists(),
        fs::read(tree.join("deep/file")),
    );
    assert_eq!(more, sequence == 2, "{inject}");
    let link = fs::read_link(tree.join("link")).unwrap();
    assert_eq!(
        link.to_str().unwrap().as_bytes(),
        content.as_ref().unwrap(),
        "{inject}"
    );
    Some((sequence, content.unwrap()))
}

#[test]
fn a_checkpoint_killed_at_any_call_leaves_the_old_one_or_the_new_one() {
    at_every_call("create", KILL, |home, inject, _| {
        let found = checkpoint(home, inject).expect("one of them is there");
        let old_or_new = [(1, b"old".to_vec()), (2, b"new".to_vec())];
        assert!(old_or_new.contains(&found), "{inject}: {found:?}");

        let again = auto(&pool(home, Fallback::Copy, 1 << 30), 0, 2);

        assert!(again.is_ok(), "{inject}: {again:?}");
        assert_eq!(checkpoint(home, inject), Some((2, b"new".to_vec())));
    });
}

#[test]
fn a_checkpoint_refused_at_any_call_is_there_if_it_said_so_and_not_if_not() {
    at_every_call("create", FULL, |home, inject, code| {
        let (found, _) = checkpoint(home, inject).expect("one of them is there");

        // Whatever else it says, it did not come to speak: its own output was refused.
        match code {
            Some(0) => assert_eq!(found, 2, "{inject}"),
            Some(1) => assert_eq!(found, 1, "{inject}"),
            _ => assert!(inject.contains("=write:"), "{inject}: {code:?}"),
        }
    });
}

#[test]
fn a_deletion_killed_at_any_call_leaves_a_whole_checkpoint_or_none() {
    at_every_call("delete", KILL, |home, inject, _| {
        let found = checkpoint(home, inject);

        let whole = found.is_none() || found == Some((1, b"old".to_vec()));
        assert!(whole, "{inject}: {found:?}");
    });
}

#[test]
fn a_revert_killed_at_any_call_leaves_what_was_or_what_is() {
    for verb in ["deep/file", "deep", "added", "link"] {
        at_every_call(verb, KILL, |home, inject, _| {
            let at = |name: &str| home.join("workspace").join(name);
            stasis_disk::tree::restore::recover(&home.join("workspace")).unwrap();
            let new = list(&at(""), &home.join("stats"));
            let old = list(
                &home.join("auto_snapshots/0/workspace"),
                &home.join("stats-0"),
            );
            let path = EntryPath::parse(verb.as_bytes()).unwrap();
            let whole = match verb {
                "deep" => {
                    [&b"old"[..], b"new"].contains(&&*fs::read(at("deep/file")).unwrap())
                        && at("deep/more").exists()
                            == (fs::read(at("deep/file")).unwrap() == b"new")
                }
                "added" => true,
                _ => new.find(&path).is_some() && old.find(&path).is_some(),
            };
            assert!(whole, "{inject}");
            let link = fs::read_link(at("link")).unwrap();
            assert!(["old", "new"].contains(&link.to_str().unwrap()));

            let pool = pool(home, Fallback::Copy, 1 << 30);
            let tree = pool.tree(Slot::new(0)).unwrap();
            let again = revert(&home.join("workspace"), &tree, &path).unwrap();

            let now = list(&at(""), &home.join("stats"));
            assert_eq!(now.find(&path), old.find(&path), "{inject} {again:?}");
            let left = [names(&at("")), names(&at("deep"))].concat();
            let is_left = |name: &String| name.contains("stasis-tmp");
            assert!(!left.iter().any(is_left), "{inject}: {left:?}");
        });
    }
}

/// `cargo test -p stasis-disk --test slots -- --ignored --nocapture`
#[test]
#[ignore = "it measures, and takes a while"]
fn how_long_it_takes_with_fifty_thousand_files() {
    for filesystem in ["xfs", "btrfs"] {
        let Some(mounted) = MountedImage::new(filesystem, 3 << 30) else {
            return;
        };
        let session = mounted.root();
        let workspace = session.join("workspace");
        for number in 0..50_000_u32 {
            let directory = workspace.join(format!("d{}", number / 100));
            if number % 100 == 0 {
                fs::create_dir_all(&directory).unwrap();
            }
            let content = number.to_string().repeat(300);
            fs::write(directory.join(format!("f{number}")), content).unwrap();
        }
        sync(&session);
        let time = |what: &str, work: &mut dyn FnMut()| {
            let start = Instant::now();
            work();
            println!("{filesystem}: {what}: {:?}", start.elapsed());
        };
        let sharing = pool(&session, Fallback::Refuse, 3 << 30);
        time("cp -a --reflink=always", &mut || {
            let mut copy = Command::new("cp");
            let copy = copy.args(["-a", "--reflink=always"]).arg(&workspace);
            assert!(copy.arg(session.join("copy")).status().unwrap().success());
            sync(&session);
        });
        time("create", &mut || drop(auto(&sharing, 0, 1).unwrap()));
        time("replace", &mut || drop(auto(&sharing, 0, 2).unwrap()));
        let _ = auto(&sharing, 1, 3).unwrap();
        time("usage, two slots, first time", &mut || {
            drop(sharing.usage().unwrap());
        });
        time("usage, two slots, again", &mut || {
            drop(sharing.usage().unwrap());
        });
        let stats = session.join("stats");
        time("manifest, cold cache", &mut || {
            drop(list(&workspace, &stats));
        });
        time("manifest, warm cache", &mut || {
            drop(list(&workspace, &stats));
        });
        fs::write(workspace.join("d1/f100"), "edited").unwrap();
        let tree = sharing.tree(Slot::new(0)).unwrap();
        let path = EntryPath::parse(b"d1/f100").unwrap();
        time("revert of a file", &mut || {
            assert!(revert(&workspace, &tree, &path).unwrap());
        });
        time("list", &mut || drop(sharing.list().unwrap()));
        time("delete", &mut || sharing.delete(Slot::new(1)).unwrap());
    }
}
