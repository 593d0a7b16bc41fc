//! Nobody's write is lost: programs write to a tree in every way while it is restored, taken back, and killed at each step.
//!
//! Each of nine writers numbers what it writes, and acknowledges a number once the system said that it was written. Afterwards
//! the live tree and the backups together have every acknowledged number.

use crate::child;
use crate::filesystems::mounted;
use crate::support::{Home, origin};
use stasis_disk::form::slots::{SlotError, WorkspaceRestore, restore_in_place};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::restore::{self, Placement, RestoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const KINDS: [&str; 9] = [
    "rename", "truncate", "append", "mmap", "kept", "removed", "link", "chmod", "added",
];
/// Those that have a file for each number.
const WITH_FILES: [&str; 4] = ["rename", "truncate", "chmod", "added"];
/// How many numbers a writer has that needs no file for each.
const NUMBERS: usize = 900;
/// How much of a file is mapped.
const MAPPED: usize = 4096;
/// Between two writes of one writer.
const BRIEF: Duration = Duration::from_micros(500);
/// What a writer gives a file to say that it was there.
const MARKED: u32 = 0o640;

/// A checkpoint, and a workspace in which everything is otherwise, each writer having a directory with so many files.
fn furnish(home: &Path, files: usize) {
    for (root, word) in [("checkpoint", "then"), ("live", "now")] {
        let at = |name: &str| home.join(root).join(name);
        for kind in [
            "rename", "truncate", "append", "mmap", "kept", "link", "chmod", "added",
        ] {
            fs::create_dir_all(at(kind)).unwrap();
        }
        for number in 0..files {
            for kind in ["rename", "truncate", "chmod"] {
                let file = at(&format!("{kind}/{number}"));
                fs::write(&file, word).unwrap();
                fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            }
        }
        fs::write(at("append/log"), word).unwrap();
        fs::write(at("mmap/map"), word.repeat(2_000)).unwrap();
        fs::write(at("link/one"), word).unwrap();
    }
    let live = home.join("live");
    fs::create_dir(live.join("removed")).unwrap();
    fs::write(live.join("removed/old"), "now").unwrap();
    fs::hard_link(live.join("link/one"), live.join("link/two")).unwrap();
    // What a restore adds, somebody may make meanwhile.
    for number in 0..files {
        fs::write(home.join(format!("checkpoint/added/{number}")), "then").unwrap();
    }
    // The plan finds the same file, and so has nothing to do with it but for its second name.
    fs::write(home.join("checkpoint/link/other"), "then").unwrap();
}

/// One write of one kind: done when this is `Ok`.
struct Writer {
    kind: &'static str,
    live: PathBuf,
    held: Option<File>,
    mapping: Option<Mapping>,
}

impl Writer {
    fn new(kind: &'static str, live: &Path) -> Self {
        let at = |name: &str| live.join(name);
        let held = match kind {
            "append" => OpenOptions::new().append(true).open(at("append/log")),
            "mmap" => OpenOptions::new()
                .read(true)
                .write(true)
                .open(at("mmap/map")),
            "removed" => File::open(at("removed")),
            _ => File::open(live),
        };
        let held = held.ok();
        let mapping = held.as_ref().filter(|_| kind == "mmap").map(Mapping::new);
        Self {
            kind,
            live: live.to_owned(),
            held,
            mapping,
        }
    }

    fn write(&mut self, number: usize) -> std::io::Result<()> {
        let (kind, at) = (self.kind, |name: &str| self.live.join(name));
        let token = format!("{kind} {number};");
        let held = self.held.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
        match kind {
            "rename" => {
                let temporary = at(&format!("rename/.{number}.swp"));
                fs::write(&temporary, &token)?;
                fs::rename(temporary, at(&format!("rename/{number}")))
            }
            "truncate" => OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(at(&format!("truncate/{number}")))?
                .write_all(token.as_bytes()),
            "append" => (&*held).write_all(token.as_bytes()),
            "mmap" => {
                self.mapping.as_ref().expect("it is mapped").write(number);
                Ok(())
            }
            "kept" | "added" => {
                let new = if kind == "kept" { "new-" } else { "" };
                let file = at(&format!("{kind}/{new}{number}"));
                let options = OpenOptions::new().write(true).create_new(true).open(file);
                options?.write_all(token.as_bytes())
            }
            "removed" => {
                use rustix::fs::{Mode, OFlags};
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                let mode = Mode::RUSR | Mode::WUSR;
                let file = rustix::fs::openat(held, format!("new-{number}"), flags, mode)?;
                File::from(file).write_all(token.as_bytes())
            }
            "link" => OpenOptions::new()
                .append(true)
                .open(at("link/two"))?
                .write_all(token.as_bytes()),
            _ => {
                let mode = fs::Permissions::from_mode(MARKED);
                fs::set_permissions(at(&format!("chmod/{number}")), mode)
            }
        }
    }
}

/// A file that is mapped, and stays so whatever becomes of its name.
struct Mapping(*mut u8);

#[expect(
    unsafe_code,
    reason = "a mapping is one of the ways to write to a file; nothing but this writer touches it"
)]
impl Mapping {
    fn new(file: &File) -> Self {
        use std::os::fd::AsRawFd;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a fresh mapping of a file of at least that length, at an address that the kernel chooses.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                MAPPED,
                protection,
                flags,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at.cast())
    }

    fn write(&self, number: usize) {
        let token = u32::try_from(number + 1).unwrap().to_le_bytes();
        assert!(4 * number + 4 <= MAPPED);
        // SAFETY: it is within the mapping, which nobody unmaps before this is dropped.
        unsafe { std::ptr::copy_nonoverlapping(token.as_ptr(), self.0.add(4 * number), 4) };
    }
}

#[expect(unsafe_code, reason = "unmaps what was mapped")]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with that length, and is not used any more.
        unsafe { libc::munmap(self.0.cast(), MAPPED) };
    }
}

/// Everything that was acknowledged, by kind.
type Acknowledged = BTreeMap<&'static str, BTreeSet<usize>>;

/// Lets all writers write, until `work` is done and each has written something more, or has no number left.
fn while_writing(
    live: &Path,
    (files, pause): (usize, Duration),
    work: impl FnOnce(),
) -> Acknowledged {
    let is_done = AtomicBool::new(false);
    let started = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = KINDS
            .iter()
            .map(|kind| {
                let (is_done, started) = (&is_done, &started);
                scope.spawn(move || {
                    let mut writer = Writer::new(kind, live);
                    let mut acknowledged = BTreeSet::new();
                    let has_files = WITH_FILES.contains(kind);
                    let numbers = if has_files { files } else { NUMBERS };
                    for number in 0..numbers {
                        if writer.write(number).is_ok() {
                            acknowledged.insert(number);
                        }
                        if number == 2 {
                            started.fetch_add(1, Ordering::SeqCst);
                        }
                        if is_done.load(Ordering::SeqCst) && number > 4 {
                            break;
                        }
                        std::thread::sleep(pause);
                    }
                    (*kind, acknowledged)
                })
            })
            .collect();
        while started.load(Ordering::SeqCst) < KINDS.len() {
            std::thread::yield_now();
        }
        work();
        is_done.store(true, Ordering::SeqCst);
        writers.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// Everything that is written anywhere in the live tree and the backups.
fn found(home: &Path) -> Acknowledged {
    let mut all: Acknowledged = KINDS.iter().map(|kind| (*kind, BTreeSet::new())).collect();
    let mut pending = vec![];
    for entry in fs::read_dir(home).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == "live" || name.starts_with(".live.stasis") {
            pending.push(path);
        }
    }
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let seen = fs::symlink_metadata(&path).unwrap();
            if seen.is_dir() {
                pending.push(path);
            } else if seen.is_file() {
                look(&path, &seen, &mut all);
            }
        }
    }
    all
}

fn look(path: &Path, seen: &fs::Metadata, all: &mut Acknowledged) {
    let bytes = fs::read(path).unwrap();
    if path.ends_with("mmap/map") {
        for (at, token) in bytes.chunks_exact(4).enumerate() {
            if *token == u32::try_from(at + 1).unwrap().to_le_bytes() {
                all.get_mut("mmap").unwrap().insert(at);
            }
        }
        return;
    }
    let name = path.file_name().unwrap().to_str().unwrap();
    if seen.mode() & 0o777 == MARKED {
        all.get_mut("chmod").unwrap().insert(name.parse().unwrap());
    }
    let text = String::from_utf8_lossy(&bytes);
    for token in text.split(';') {
        // The first one stands behind what was in the file before.
        let token = token.trim_start_matches("now").trim_start_matches("then");
        if let Some((kind, number)) = token.split_once(' ')
            && let (Some(numbers), Ok(number)) = (all.get_mut(kind), number.parse())
        {
            numbers.insert(number);
        }
    }
}

/// Whatever was acknowledged is somewhere; says how much that was.
fn assert_none_lost(home: &Path, acknowledged: &Acknowledged, context: &str) -> usize {
    let found = found(home);
    for (kind, numbers) in acknowledged {
        let lost: Vec<_> = numbers.difference(&found[kind]).collect();
        assert!(
            lost.is_empty(),
            "{context}: {kind} lost {lost:?} of {}",
            numbers.len()
        );
        assert!(!numbers.is_empty(), "{context}: {kind} wrote nothing");
    }
    acknowledged.values().map(BTreeSet::len).sum()
}

fn put_back_live(home: &Path) -> Result<(), SlotError> {
    let tree = RootDir::open(&home.join("checkpoint"), Mounts::Stay).unwrap();
    restore_in_place(
        &tree,
        &home.join("live"),
        &|_| false,
        WorkspaceRestore::new(origin()),
    )
    .map(drop)
}

/// Restores, takes back and restores again while everybody writes; nothing is refused, and nothing is lost.
fn nothing_is_lost_on(home: &Path) {
    const FILES: usize = 200;
    furnish(home, FILES);
    let live = home.join("live");
    let acknowledged = while_writing(&live, (FILES, BRIEF), || {
        put_back_live(home).unwrap();
        let _ = restore::undo(&live, &origin()).unwrap();
        put_back_live(home).unwrap();
    });
    let count = assert_none_lost(home, &acknowledged, "restore, undo, restore");

    let _ = restore::undo(&live, &origin()).unwrap();
    assert_none_lost(home, &acknowledged, "undone when nobody wrote any more");
    println!("{count} acknowledged writes, 0 lost");
}

#[test]
fn no_write_is_lost_during_restores_and_undos() {
    nothing_is_lost_on(Home::new().path());
}

/// Each call that moves is late, so that there is time between the plan and each of them.
#[test]
fn an_addition_never_replaces_what_somebody_made_since_the_plan() {
    const FILES: usize = 30;
    let home = Home::new();
    furnish(home.path(), FILES);
    let live = home.path().join("live");
    let mut done = None;
    let acknowledged = while_writing(&live, (FILES, Duration::from_millis(30)), || {
        let late = "inject=renameat2:delay_enter=15000";
        done = run(
            &live,
            child::PUT_BACK,
            &["-e", "trace=renameat2", "-e", late],
        );
    });
    let Some(success) = done else { return };

    assert!(success);
    assert_none_lost(home.path(), &acknowledged, "late");
}

fn nothing_is_lost_on_a(filesystem: &str) {
    if let Some(mounted) = mounted(filesystem) {
        nothing_is_lost_on(&mounted.root());
        killed_at_each_step(&mounted.root().join("killed"), &["renameat2"], 9);
    }
}

#[test]
fn no_write_is_lost_on_ext4() {
    nothing_is_lost_on_a("ext4");
}

#[test]
fn no_write_is_lost_on_xfs() {
    nothing_is_lost_on_a("xfs");
}

#[test]
fn no_write_is_lost_on_btrfs() {
    nothing_is_lost_on_a("btrfs");
}

#[test]
fn no_write_is_lost_on_overlayfs() {
    let Some(below) = mounted("ext4") else {
        return;
    };
    let at = |name: &str| below.root().join(name);
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(at(name)).unwrap();
    }
    // The live tree lies in the lower layer: its directories cannot be renamed.
    furnish(&at("lower"), 200);
    let options = format!(
        "lowerdir={},upperdir={},workdir={},redirect_dir=off",
        at("lower").display(),
        at("upper").display(),
        at("work").display()
    );
    let mounted = Command::new("mount")
        .args(["-t", "overlay", "overlay", "-o", &options])
        .arg(at("merged"))
        .output()
        .unwrap();
    if !mounted.status.success() {
        println!("skipped: not allowed to mount an overlay: {mounted:?}");
        return;
    }
    let home = at("merged");
    let live = home.join("live");
    let done = std::panic::catch_unwind(|| {
        let acknowledged = while_writing(&live, (200, BRIEF), || {
            put_back_live(&home).unwrap();
            let _ = restore::undo(&live, &origin()).unwrap();
        });
        assert!(!live.join("removed").exists() || live.join("removed/old").exists());
        let count = assert_none_lost(&home, &acknowledged, "overlayfs");
        println!("{count} acknowledged writes, 0 lost");
    });
    let _ = Command::new("umount").arg(at("merged")).output();
    done.unwrap();
}

/// Kills a restore, and then an undo, at each of these calls; only `every` so many of those that are many.
fn killed_at_each_step(home: &Path, calls: &[&str], every: usize) {
    const FILES: usize = 10;
    const PAUSE: Duration = Duration::from_millis(15);
    let mut killed = 0;
    for verb in [child::PUT_BACK, child::UNDO] {
        for call in calls {
            let every = if *call == "renameat2" { every } else { 1 };
            for when in (1..).step_by(every) {
                let _ = fs::remove_dir_all(home);
                fs::create_dir_all(home).unwrap();
                furnish(home, FILES);
                let live = home.join("live");
                if verb == child::UNDO {
                    put_back_live(home).unwrap();
                    fs::create_dir_all(live.join("removed")).unwrap();
                    fs::write(live.join("link/two"), "").unwrap();
                    for number in 0..FILES / 2 {
                        fs::remove_file(live.join(format!("added/{number}"))).unwrap();
                    }
                }
                let inject = format!("inject={call}:signal=KILL:when={when}");
                let mut status = None;
                let acknowledged = while_writing(&live, (FILES, PAUSE), || {
                    status = run(
                        &live,
                        verb,
                        &["-e", &format!("trace={call}"), "-e", &inject],
                    );
                    if status.is_some() {
                        recovered(&live);
                    }
                });
                let Some(success) = status else { return };
                let context = format!("{verb} {inject}");
                assert_none_lost(home, &acknowledged, &context);
                killed += usize::from(!success);
                if success {
                    break;
                }
            }
        }
    }
    assert!(killed >= calls.len(), "{killed}");
    println!("killed {killed} times, 0 lost");
}

fn recovered(live: &Path) {
    // Whoever writes has nothing to do with the journal, but another process of ours may be at its end.
    for _ in 0..50 {
        match restore::recover(live) {
            Err(RestoreError::Busy(_)) => std::thread::sleep(Duration::from_millis(20)),
            recovered => {
                recovered.unwrap();
                return;
            }
        }
    }
}

/// Runs it in a process of its own; whether it came to its end, `None` when there is no strace.
fn run(live: &Path, verb: &str, arguments: &[&str]) -> Option<bool> {
    let log = live.with_file_name("log");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(log).args(arguments);
    command.arg(std::env::current_exe().unwrap());
    match child::tell(&mut command, live, Placement::InPlace, verb).status() {
        Ok(status) => Some(status.code().is_some()),
        Err(error) => {
            let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
            assert!(!needed, "strace is not there ({error}): run scripts/test");
            println!("skipped: strace is not there");
            None
        }
    }
}

#[test]
fn no_write_is_lost_when_a_restore_or_an_undo_is_killed_at_any_step() {
    let home = Home::new();
    let calls = ["renameat2", "renameat", "unlinkat", "fsync", "syncfs"];
    killed_at_each_step(&home.path().join("world"), &calls, 5);
}
