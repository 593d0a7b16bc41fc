//! Processes that are held still, and run again whatever happens.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "a test writes its own files")]
#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]

use rustix::process::Signal;
use stasis_quiesce::freeze::{FreezeError, FreezeSettings, Frozen, thaw_abandoned};
use stasis_quiesce::process::{Process, ProcessId, ProcessInfo, ProcessState, ProcessTable};
use stasis_quiesce::watchdog::HelperCommand;
use std::fmt::Write;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::slice::from_ref;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

/// Shells that never rest: each writes how far it has come, and starts others all the time.
const BUSY: &str = "busy() { while :; do echo $1 >> $1; (: ; echo x > /dev/null); done; }; \
    busy a & busy b & (busy c) & echo ready; wait";

/// A shell that starts others all the time, each of which writes a moment later.
const BREEDING: &str = "echo ready; while :; do (sleep 0.04; echo late >> a) & sleep 0.002; done";

/// A tree of processes that ends with its test.
struct Tree {
    child: Child,
    root: Process,
    home: TempDir,
}

impl Tree {
    fn start(script: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(home.path());
        shell.process_group(0).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        assert_eq!(line(&mut child), "ready");
        let root = Process::open(child.id()).unwrap().unwrap();
        Self { child, root, home }
    }

    fn family(&self) -> Vec<ProcessInfo> {
        ProcessTable::read()
            .unwrap()
            .family(&[self.root.identity()])
    }

    /// How much the tree has written.
    fn written(&self) -> u64 {
        let sizes = ["a", "b", "c"].map(|name| {
            let file = fs::metadata(self.home.path().join(name));
            file.map_or(0, |file| file.len())
        });
        sizes.iter().sum()
    }

    /// Whether it writes within a while.
    fn moves(&self) -> bool {
        let before = self.written();
        is_soon(|| self.written() > before, Duration::from_millis(1500))
    }

    /// Whether it writes nothing for a tenth of a second, in which a busy tree writes many times.
    fn stands_still(&self) -> bool {
        let before = self.written();
        std::thread::sleep(Duration::from_millis(100));
        self.written() == before
    }

    fn journals(&self) -> PathBuf {
        self.home.path().join("journals")
    }

    fn settings(&self, max: Duration) -> FreezeSettings {
        FreezeSettings {
            max,
            ..FreezeSettings::new(self.journals(), watchdog())
        }
    }

    fn freeze(&self, max: Duration) -> Frozen {
        Frozen::freeze(from_ref(&self.root), &self.settings(max)).unwrap()
    }

    /// An engine of its own that freezes this tree and hangs.
    fn frozen_by_another(&self, max: Duration) -> Engine {
        let mut engine = Command::new(freezer());
        engine.arg("hold").arg(self.child.id().to_string());
        engine.arg(self.journals()).arg(max.as_millis().to_string());
        let mut engine = engine.stdout(Stdio::piped()).spawn().unwrap();
        assert_eq!(line(&mut engine), "frozen");
        Engine(engine)
    }

    fn has_journal(&self) -> bool {
        fs::read_dir(self.journals()).is_ok_and(|mut entries| entries.next().is_some())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // A tree that starts processes all the time is ended when nobody new is found.
        loop {
            let family = self.family();
            for row in &family {
                if let Ok(Some(process)) = Process::reopen(row.identity) {
                    let _ = process.signal(Signal::STOP);
                }
            }
            if self.family().len() <= family.len() {
                break;
            }
        }
        for row in self.family() {
            if let Ok(Some(process)) = Process::reopen(row.identity) {
                let _ = process.signal(Signal::KILL);
            }
        }
        let _ = self.child.wait();
    }
}

struct Engine(Child);

impl Engine {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn watchdog(&self) -> Process {
        let table = ProcessTable::read().unwrap();
        let mut children = table.living().filter(|row| row.parent == self.0.id());
        Process::reopen(children.next().unwrap().identity)
            .unwrap()
            .unwrap()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn line(child: &mut Child) -> String {
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

fn is_soon(mut condition: impl FnMut() -> bool, limit: Duration) -> bool {
    let began = Instant::now();
    while began.elapsed() < limit {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

/// The example of this crate; cargo builds it with the tests.
fn freezer() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap().parent().unwrap();
    let program = built.join("examples/freezer");
    assert!(
        program.exists(),
        "run `cargo build -p stasis-quiesce --examples`"
    );
    program
}

fn watchdog() -> HelperCommand {
    HelperCommand {
        program: freezer(),
        arguments: vec!["watchdog".into()],
    }
}

const LONG: Duration = Duration::from_secs(20);

fn is_stopped(pid: u32) -> bool {
    ProcessInfo::read(pid).is_some_and(|row| row.state == ProcessState::Stopped)
}

#[test]
fn a_busy_tree_stands_still_until_it_is_thawed() {
    let tree = Tree::start(BUSY);
    assert!(tree.moves());

    let frozen = tree.freeze(LONG);
    assert!(tree.stands_still());
    assert!(
        tree.family()
            .iter()
            .all(|row| ProcessInfo::is_stopped(row.pid()))
    );
    assert!(tree.has_journal());
    let thawed = frozen.thaw().unwrap();

    assert!(thawed.held(), "{thawed:?}");
    assert!(thawed.frozen_for >= Duration::from_millis(100));
    assert!(tree.moves());
    assert!(!tree.has_journal());
}

#[test]
fn whoever_is_started_while_the_others_are_stopped_is_stopped_too() {
    let tree = Tree::start(BREEDING);
    assert!(tree.moves());

    for _ in 0..5 {
        let frozen = tree.freeze(LONG);
        assert!(tree.stands_still());
        assert!(frozen.thaw().unwrap().held());
        assert!(tree.moves());
    }
}

/// Starts a program by `vfork`, which goes on only when somebody opens the gate.
const AT_THE_GATE: &str = r#"mkfifo gate; exec python3 -c '
import os
print("ready", flush=True)
gate = [(os.POSIX_SPAWN_OPEN, 0, "gate", os.O_RDONLY, 0)]
os.posix_spawn("/bin/sleep", ["sleep", "60"], {}, file_actions=gate)
os.wait()
'"#;

/// A tree whose root waits for its child to begin a program, or nothing where there is no Python.
fn at_the_gate() -> Option<Tree> {
    let python = Command::new("python3").args(["-c", ""]).status();
    if !python.is_ok_and(|ended| ended.success()) {
        let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
        assert!(!needed, "python3 does not work");
        println!("skipped: python3 is not there");
        return None;
    }
    let tree = Tree::start(AT_THE_GATE);
    let both = || tree.family().len() == 2;
    assert!(is_soon(both, Duration::from_secs(5)));
    Some(tree)
}

#[test]
fn one_that_waits_for_its_child_to_begin_a_program_is_helped() {
    let Some(tree) = at_the_gate() else {
        return;
    };
    let gate = tree.home.path().join("gate");
    let opens = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        let both_ends = fs::OpenOptions::new().read(true).write(true).open(gate);
        both_ends.unwrap()
    });

    let thawed = tree.freeze(LONG).thaw().unwrap();

    assert!(thawed.held(), "{thawed:?}");
    drop(opens.join().unwrap());
}

#[test]
fn one_that_cannot_stand_still_is_told_and_all_run_again() {
    let Some(tree) = at_the_gate() else {
        return;
    };
    let settings = tree.settings(Duration::from_millis(500));

    let refused = Frozen::freeze(from_ref(&tree.root), &settings).unwrap_err();

    assert!(
        matches!(
            refused,
            FreezeError::Restless { .. } | FreezeError::Expired { .. }
        ),
        "{refused}"
    );
    let is_running = |row: &ProcessInfo| row.state != ProcessState::Stopped;
    assert!(is_soon(
        || tree.family().iter().all(is_running),
        Duration::from_secs(2)
    ));
    assert!(!tree.has_journal());
}

#[test]
fn a_guard_that_is_dropped_lets_all_run_again() {
    let tree = Tree::start(BUSY);

    drop(tree.freeze(LONG));

    assert!(tree.moves());
    assert!(!tree.has_journal());
}

#[test]
fn at_the_deadline_all_run_again_whatever_the_caller_does() {
    let tree = Tree::start(BUSY);
    let frozen = tree.freeze(Duration::from_millis(300));
    assert!(tree.stands_still());

    assert!(is_soon(|| frozen.has_expired(), Duration::from_secs(1)));
    assert!(tree.moves());
    let thawed = frozen.thaw().unwrap();

    assert!(thawed.expired && !thawed.held());
    assert!(thawed.frozen_for < Duration::from_millis(900), "{thawed:?}");
    assert!(!tree.has_journal());
}

#[test]
fn when_the_engine_is_killed_all_run_again_within_two_seconds() {
    let tree = Tree::start(BUSY);
    let mut engine = tree.frozen_by_another(LONG);
    assert!(tree.stands_still());

    engine.kill();
    let killed = Instant::now();

    assert!(tree.moves());
    assert!(killed.elapsed() < Duration::from_secs(2));
    assert!(is_soon(|| !tree.has_journal(), Duration::from_secs(2)));
}

#[test]
fn when_the_engine_itself_is_stopped_the_watchdog_keeps_the_deadline() {
    let tree = Tree::start(BUSY);
    let engine = tree.frozen_by_another(Duration::from_millis(300));
    let stopped = Process::open(engine.0.id()).unwrap().unwrap();
    stopped.signal(Signal::STOP).unwrap();

    assert!(is_soon(|| !tree.stands_still(), Duration::from_secs(2)));
}

#[test]
fn when_the_watchdog_is_killed_too_the_next_start_lets_all_run_again() {
    let tree = Tree::start(BUSY);
    let mut engine = tree.frozen_by_another(LONG);
    let live = thaw_abandoned(&tree.journals()).unwrap();
    engine.watchdog().signal(Signal::KILL).unwrap();
    engine.kill();
    assert!(tree.stands_still());

    let abandoned = thaw_abandoned(&tree.journals()).unwrap();

    assert!(live.thawed.is_empty(), "an engine that lives keeps its own");
    assert!(abandoned.thawed.contains(&tree.child.id()));
    assert!(tree.moves());
    assert!(!tree.has_journal());
}

#[test]
fn a_tree_that_somebody_else_stopped_is_refused_and_stays_stopped() {
    let tree = Tree::start(BUSY);
    let root = &tree.root;
    root.signal(Signal::STOP).unwrap();
    assert!(is_soon(|| is_stopped(root.pid()), Duration::from_secs(2)));

    let refused = Frozen::freeze(from_ref(root), &tree.settings(LONG)).unwrap_err();

    assert!(matches!(refused, FreezeError::AlreadyStopped { pid } if pid == root.pid()));
    assert!(is_stopped(root.pid()));
    assert!(!tree.has_journal());
    assert!(tree.moves(), "its children were not touched");
}

#[test]
fn a_second_freeze_is_refused_and_the_first_goes_on() {
    let tree = Tree::start(BUSY);
    let first = tree.freeze(LONG);

    let second = Frozen::freeze(from_ref(&tree.root), &tree.settings(LONG));

    assert!(matches!(second, Err(FreezeError::AlreadyStopped { .. })));
    assert!(tree.stands_still());
    assert!(first.thaw().unwrap().held());
}

#[test]
fn a_child_that_somebody_else_stopped_stays_stopped() {
    let tree = Tree::start(BUSY);
    let root = tree.root.pid();
    let family = tree.family();
    let child = family.iter().find(|row| row.parent == root).unwrap();
    let child = Process::reopen(child.identity).unwrap().unwrap();
    child.signal(Signal::STOP).unwrap();
    assert!(is_soon(|| is_stopped(child.pid()), Duration::from_secs(2)));

    let frozen = tree.freeze(LONG);
    let named = frozen.pids();
    let thawed = frozen.thaw().unwrap();

    assert!(thawed.held());
    assert!(!named.contains(&child.pid()) && named.contains(&root));
    assert!(is_stopped(child.pid()));
    assert!(tree.moves(), "the others run");
}

#[test]
fn a_freeze_that_somebody_else_ended_did_not_hold() {
    let tree = Tree::start(BUSY);
    let frozen = tree.freeze(LONG);
    let busy = tree.family();
    let busy = busy.iter().find(|row| row.parent == tree.child.id());
    let busy = Process::reopen(busy.unwrap().identity).unwrap().unwrap();

    busy.signal(Signal::CONT).unwrap();
    assert!(is_soon(|| !is_stopped(busy.pid()), Duration::from_secs(2)));
    let thawed = frozen.thaw().unwrap();

    assert!(thawed.disturbed && !thawed.expired && !thawed.held());
}

#[test]
fn one_that_started_us_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let ours = Process::open(std::process::id()).unwrap().unwrap();
    let parent = std::os::unix::process::parent_id();
    let parent = Process::open(parent).unwrap().unwrap();
    let settings = FreezeSettings::new(home.path(), watchdog());

    for process in [ours, parent] {
        let refused = Frozen::freeze(&[process], &settings).unwrap_err();
        assert!(matches!(refused, FreezeError::Ourselves { .. }));
    }
}

#[test]
fn without_a_watchdog_nothing_is_stopped() {
    let tree = Tree::start(BUSY);
    let settings = |program: &str, argument: &str| FreezeSettings {
        watchdog: HelperCommand {
            program: program.into(),
            arguments: vec![argument.into()],
        },
        ..tree.settings(LONG)
    };

    for settings in [settings("/no/such/program", ""), settings("/bin/false", "")] {
        let refused = Frozen::freeze(from_ref(&tree.root), &settings).unwrap_err();

        assert!(matches!(refused, FreezeError::Watchdog { .. }), "{refused}");
        assert!(tree.moves());
        assert!(!tree.has_journal());
    }
}

#[test]
fn several_trees_are_held_as_one() {
    let [one, two] = [Tree::start(BUSY), Tree::start(BUSY)];
    let roots = [one.root.clone(), two.root.clone()];

    let frozen = Frozen::freeze(&roots, &one.settings(LONG)).unwrap();

    assert!(one.stands_still() && two.stands_still());
    assert!(frozen.thaw().unwrap().held());
    assert!(one.moves() && two.moves());
    let nobody = Frozen::freeze(&[], &one.settings(LONG));
    assert!(matches!(nobody, Err(FreezeError::NoProcess)));
}

#[test]
fn a_process_that_has_ended_cannot_be_held() {
    let mut tree = Tree::start("echo ready; exec sleep 60");
    tree.child.kill().unwrap();
    tree.child.wait().unwrap();

    let refused = Frozen::freeze(from_ref(&tree.root), &tree.settings(LONG)).unwrap_err();

    assert!(matches!(refused, FreezeError::Ended { .. }));
    assert!(!tree.has_journal());
}

/// A journal that an engine left which is not there any more.
fn leave_journal(directory: &Path, stopped: &[ProcessId]) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap();
    let mut text = format!("stasis-freeze-1 {} {}\n", boot.trim(), namespace.display());
    for process in stopped {
        writeln!(text, "stopped {} {}", process.pid(), process.started()).unwrap();
    }
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("freeze-1-0.journal"), text).unwrap();
}

#[test]
fn an_old_journal_does_not_touch_a_process_that_has_the_number_now() {
    let tree = Tree::start("echo ready; kill -STOP $$");
    let now = tree.root.identity();
    assert!(is_soon(|| is_stopped(now.pid()), Duration::from_secs(2)));
    let before = ProcessId::new(now.pid(), now.started() - 1);

    leave_journal(&tree.journals(), &[before]);
    let other = thaw_abandoned(&tree.journals()).unwrap();
    let stays = is_stopped(now.pid());
    leave_journal(&tree.journals(), &[now]);
    let same = thaw_abandoned(&tree.journals()).unwrap();

    assert!(other.thawed.is_empty() && stays);
    assert_eq!(same.thawed, [now.pid()]);
    assert!(!tree.has_journal());
}

#[test]
fn a_journal_that_is_not_understood_is_left_and_told() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("freeze-1-0.journal");
    fs::write(&path, "stasis-freeze-9 a b\nstopped 1 1\n").unwrap();

    let abandoned = thaw_abandoned(home.path()).unwrap();

    assert_eq!(abandoned.left, from_ref(&path));
    assert!(path.exists());
}

#[test]
fn where_nothing_was_ever_frozen_there_is_nothing_to_do() {
    let home = tempfile::tempdir().unwrap();

    let abandoned = thaw_abandoned(&home.path().join("never")).unwrap();

    assert_eq!(abandoned, stasis_quiesce::freeze::Abandoned::default());
}
