//! A live workspace becomes what it was at a checkpoint.

use crate::child;
use crate::filesystems::mounted;
use crate::support::*;
use stasis_disk::form::slots::{SlotError, WorkspaceRestore, WorkspaceRestored, restore_in_place};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::clone::{CloneSettings, Method, clone};
use stasis_disk::tree::restore::{self, Placement, RestoreLimits};
use stasis_model::tree::EntryPath;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Where a checkpoint and a workspace are.
struct World {
    home: Home,
}

impl World {
    fn new(checkpoint: &Tree, live: &Tree) -> Self {
        let world = Self { home: Home::new() };
        let _ = restore(&world.checkpoint(), checkpoint, Placement::New).unwrap();
        let _ = restore(&world.live(), live, Placement::New).unwrap();
        world
    }

    fn checkpoint(&self) -> PathBuf {
        self.home.path().join("checkpoint")
    }

    fn live(&self) -> PathBuf {
        self.home.path().join("live")
    }

    fn at(&self, name: &str) -> PathBuf {
        self.live().join(name)
    }

    fn restore_in_place(&self) -> WorkspaceRestored {
        from(&self.checkpoint(), &self.live()).unwrap()
    }

    fn inode(&self, name: &str) -> u64 {
        std::fs::symlink_metadata(self.at(name)).unwrap().ino()
    }

    fn inodes<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        names.map(|name| self.inode(name))
    }
}

/// Puts a workspace back, comparing bytes to find what is the same.
fn from(checkpoint: &Path, live: &Path) -> Result<WorkspaceRestored, SlotError> {
    let tree = RootDir::open(checkpoint, Mounts::Stay).unwrap();
    let read = |root: &Path, path: &EntryPath| std::fs::read(root.join(path.to_string())).ok();
    let same = |path: &EntryPath| {
        let was = read(checkpoint, path);
        was.is_some() && was == read(live, path)
    };
    restore_in_place(&tree, live, &same, WorkspaceRestore::new(origin()))
}

/// What a process does that is going to be killed.
pub(crate) fn beside(live: &Path) -> Result<(), SlotError> {
    from(&live.with_file_name("checkpoint"), live).map(drop)
}

#[test]
fn every_kind_of_entry_becomes_what_it_was_and_what_was_right_stays_the_same_inode() {
    for (was, is) in [(old(), new()), (new(), old())] {
        let world = World::new(&was, &is);
        let right = [
            "",
            "deep",
            "deep/er/same",
            "hard-1",
            "hard-2",
            "link-same",
            "locked/same",
            "same",
            "untouched/inner",
        ];
        let before = world.inodes(right);

        let done = world.restore_in_place();

        assert_eq!(show(&world.live()), ideal(&was));
        assert_eq!(show(&world.checkpoint()), ideal(&was));
        assert_eq!(world.inodes(right), before);
        assert_eq!(done.left, 6);
        assert_eq!(names(world.home.path()), ["checkpoint", "live"]);

        let again = world.restore_in_place();

        let changes = again.changes;
        assert_eq!(
            (changes.placed, changes.removed, changes.dressed),
            (0, 0, 0)
        );
        assert_eq!(again.written.files, 0);
    }
}

#[test]
fn a_file_that_only_looks_the_same_or_only_is_called_so_is_put_back() {
    let world = World::new(&old(), &old());
    let tree = RootDir::open(&world.checkpoint(), Mounts::Stay).unwrap();
    let rewritten = |name: &str, content: &str| {
        let time = std::fs::metadata(world.at(name))
            .unwrap()
            .modified()
            .unwrap();
        std::fs::write(world.at(name), content).unwrap();
        let file = std::fs::File::options().write(true).open(world.at(name));
        file.unwrap().set_modified(time).unwrap();
    };
    // Same length, same time, other content: only the caller knows.
    rewritten("same", "SAME");
    // Called the same, but seen to be another size, another time, other attributes.
    rewritten("changed", "longer than it was");
    let touched = std::fs::File::options().write(true).open(world.at("mode"));
    touched
        .unwrap()
        .set_modified(std::time::SystemTime::now())
        .unwrap();
    let noted = std::fs::File::open(world.at("gone")).unwrap();
    rustix::fs::fremovexattr(&noted, c"user.note").unwrap();
    let wrong = ["same", "changed", "mode", "gone"];
    let (before, kept) = (world.inodes(wrong), world.inode("deep/er/same"));

    let same = |path: &EntryPath| path.as_bytes() != b"same";
    let done =
        restore_in_place(&tree, &world.live(), &same, WorkspaceRestore::new(origin())).unwrap();

    assert_eq!(show(&world.live()), ideal(&old()));
    let after = world.inodes(wrong);
    assert!(
        before
            .iter()
            .zip(after)
            .all(|(before, after)| *before != after)
    );
    assert_eq!(world.inode("deep/er/same"), kept);
    assert_eq!((done.written.files, done.changes.placed), (4, 4));
}

#[test]
fn names_of_one_file_are_left_only_if_they_are_that_on_both_sides() {
    let joined = |second: Item, third: Item| {
        let items = [("a", file("one")), ("b", second), ("c", third)];
        tree(&items, (0o755, 1))
    };
    let (hard, apart) = (|| Item::Hard("a"), || file("one"));
    let ways = [
        joined(hard(), hard()),
        joined(hard(), apart()),
        joined(apart(), hard()),
        joined(apart(), Item::Hard("b")),
        joined(apart(), apart()),
    ];
    for was in &ways {
        for is in &ways {
            let world = World::new(was, is);

            let done = world.restore_in_place();

            assert_eq!(show(&world.live()), ideal(was), "{is:?}");
            let changes = done.changes;
            assert!(changes.placed <= 2 || done.written.files > 0, "{changes:?}");
        }
    }
    // The same on both sides: all are left. A name that only the workspace has is no reason to stage the others.
    let world = World::new(&ways[0], &ways[0]);
    std::fs::hard_link(world.at("a"), world.at("d")).unwrap();
    let before = world.inodes(["a", "b", "c"]);
    let done = world.restore_in_place();
    assert_eq!(show(&world.live()), ideal(&ways[0]));
    assert_eq!(world.inodes(["a", "b", "c"]), before);
    assert_eq!((done.left, done.changes.removed), (3, 1));
}

#[test]
fn nothing_is_reached_through_a_symbolic_link() {
    let world = World::new(&old(), &old());
    let outside = world.home.path().join("outside");
    std::fs::rename(world.at("deep"), &outside).unwrap();
    symlink(&outside, world.at("deep")).unwrap();
    std::fs::write(outside.join("er/added"), "not ours").unwrap();
    let before = show(&outside);
    let tree = RootDir::open(&world.checkpoint(), Mounts::Stay).unwrap();

    let done = restore_in_place(
        &tree,
        &world.live(),
        &|_| true,
        WorkspaceRestore::new(origin()),
    )
    .unwrap();

    assert_eq!(show(&world.live()), ideal(&old()));
    assert_eq!(show(&outside), before);
    assert_eq!(done.written.files, 2, "those that lie in `deep`");
    let link = world.home.path().join("link");
    symlink(world.live(), &link).unwrap();
    let refused = restore_in_place(&tree, &link, &|_| true, WorkspaceRestore::new(origin()));
    assert!(matches!(refused, Err(SlotError::Place(_))));
}

#[test]
fn what_is_spared_stays_a_missing_workspace_comes_back_and_a_cancelled_one_is_untouched() {
    let world = World::new(&old(), &old());
    std::fs::write(world.at("deep/added"), "kept").unwrap();
    std::fs::write(world.at("deep/dropped"), "not kept").unwrap();
    let tree = RootDir::open(&world.checkpoint(), Mounts::Stay).unwrap();
    let same = |_: &EntryPath| true;
    let settings = || WorkspaceRestore {
        limits: RestoreLimits {
            keep_if: Some(Box::new(|path, _| path.as_bytes() == b"deep/added")),
            ..RestoreLimits::default()
        },
        ..WorkspaceRestore::new(origin())
    };

    let cancelled = settings();
    cancelled
        .cancel
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let cancelled = restore_in_place(&tree, &world.live(), &same, cancelled);
    let was_there = world.at("deep/dropped").exists();
    let done = restore_in_place(&tree, &world.live(), &same, settings()).unwrap();

    assert!(matches!(cancelled, Err(SlotError::Cancelled)));
    assert!(was_there && !world.at("deep/dropped").exists());
    assert!(world.at("deep/added").exists());
    assert_eq!(done.changes.removed, 1);
    let name = std::ffi::CString::new(world.live().to_str().unwrap()).unwrap();
    stasis_disk::fs::remove::tree(rustix::fs::CWD, &name).unwrap();
    let done = restore_in_place(&tree, &world.live(), &same, settings()).unwrap();
    assert_eq!((done.changes.placed, done.left), (1, 0));
    assert_eq!(show(&world.live()), ideal(&old()));
    assert_eq!(names(world.home.path()), ["checkpoint", "live"]);
}

/// Runs it in a process of its own; `None` when there is no strace.
fn run(world: &World, arguments: &[&str]) -> Option<ExitStatus> {
    let log = world.home.path().join("log");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(log).args(arguments);
    command.arg(std::env::current_exe().unwrap());
    let told = child::tell(
        &mut command,
        &world.live(),
        Placement::InPlace,
        child::PUT_BACK,
    );
    match told.status() {
        Ok(status) => Some(status),
        Err(error) => {
            let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
            assert!(!needed, "strace is not there ({error}): run scripts/test");
            println!("skipped: strace is not there");
            None
        }
    }
}

#[test]
fn a_process_killed_at_any_call_leaves_what_is_or_leads_to_what_was() {
    let (was, is) = (some_of(old()), some_of(new()));
    let calls = [
        "renameat",
        "renameat2",
        "linkat",
        "unlinkat",
        "mkdirat",
        "fsync",
        "syncfs",
        "fchmod",
    ];
    let mut begun = 0;
    for call in calls {
        for when in 1.. {
            let world = World::new(&was, &is);
            let inject = format!("inject={call}:signal=KILL:when={when}");
            let trace = format!("trace={call}");
            let Some(status) = run(&world, &["-e", &trace, "-e", &inject]) else {
                return;
            };
            std::fs::remove_file(world.home.path().join("log")).unwrap();
            let was_begun = restore::recover(&world.live()).unwrap();
            begun += u32::from(was_begun);
            let now = show(&world.live());
            let is_whole = now == ideal(&was) || (!was_begun && now == ideal(&is));
            assert!(is_whole, "{inject}: {now:?}");
            let done = world.restore_in_place();
            assert_eq!(show(&world.live()), ideal(&was), "{inject} {done:?}");
            assert_eq!(names(world.home.path()), ["checkpoint", "live"], "{inject}");
            if status.success() {
                break;
            }
        }
    }
    assert!(begun > 5, "{begun}");
}

fn a_clone_is_put_back(filesystem: &str) {
    let Some(mounted) = mounted(filesystem) else {
        return;
    };
    let (live, kept) = (mounted.root().join("live"), mounted.root().join("kept"));
    let _ = restore(&live, &old(), Placement::New).unwrap();
    let before = show(&live);
    let _ = clone(&live, &kept, &CloneSettings::default()).unwrap();
    let elsewhere = Home::new();
    let far = elsewhere.path().join("far");
    let _ = clone(&live, &far, &CloneSettings::default()).unwrap();

    for checkpoint in [&kept, &far] {
        let _ = restore(&live, &new(), Placement::InPlace).unwrap();
        let done = from(checkpoint, &live).unwrap();
        assert_eq!(show(&live), before, "{filesystem}: {done:?}");
        assert_eq!(done.left, 6);
    }
}

#[test]
fn a_clone_is_put_back_on_xfs() {
    a_clone_is_put_back("xfs");
}

#[test]
fn a_clone_is_put_back_on_btrfs() {
    a_clone_is_put_back("btrfs");
}

#[test]
fn a_clone_is_put_back_in_memory() {
    a_clone_is_put_back("tmpfs");
}

#[test]
fn a_subvolume_is_put_back_from_its_snapshot() {
    let Some(mounted) = mounted("btrfs") else {
        return;
    };
    let (live, kept) = (mounted.root().join("live"), mounted.root().join("kept"));
    let mut made = Command::new("btrfs");
    let made = made.args(["subvolume", "create"]).arg(&live).output();
    assert!(made.unwrap().status.success());
    let _ = restore(&live, &old(), Placement::InPlace).unwrap();
    let root = std::fs::metadata(&live).unwrap().ino();
    let cloned = clone(&live, &kept, &CloneSettings::default()).unwrap();
    let _ = restore(&live, &new(), Placement::InPlace).unwrap();

    let done = from(&kept, &live).unwrap();

    assert_eq!(cloned.method, Method::Subvolume);
    assert_eq!(show(&live), ideal(&old()));
    assert_eq!(std::fs::metadata(&live).unwrap().ino(), root);
    assert_eq!(done.left, 6);
}
