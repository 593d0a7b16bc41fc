//! Saves, restores and sweeps that are killed, or told that the disk is full or broken, at every call that changes anything.
//!
//! strace delays each of these calls. For a kill the test counts them over all threads and kills in the pause that follows
//! the n-th; errors are injected by strace itself, which counts in each thread, once and from then on. Afterwards nothing
//! dangles, what was acknowledged is there, what failed is not, and the next save and sweep find nothing in their way.
//!
//! Every run tries some of the calls, chosen by a seed that is printed; `STASIS_CRASH_POINTS=all` tries all of them.

use crate::repo_world::{Shown, World, id, names, noise, show, write};
use crate::session::{STASIS, Said, said};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// Calls that change something.
pub(crate) const CALLS: &str = "write,pwrite64,pwritev,ftruncate,fsync,fdatasync,syncfs,rename,renameat,renameat2,unlink,unlinkat,\
                     rmdir,link,linkat,symlinkat,mkdir,mkdirat,fchmod,fchownat,utimensat";

/// How many crash points one test tries when not all are asked for.
const SOME: usize = 8;

/// How long a run may take.
const PATIENCE: Duration = Duration::from_secs(8);

/// How long a run may take in which nothing goes wrong, and every call is delayed and counted.
const COUNTED: Duration = Duration::from_mins(1);

/// What happens while a fault is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    FirstSave,
    SecondSave,
    Restore,
    Gc,
}

/// What becomes of the n-th call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Kill,
    Once(&'static str),
    FromThenOn(&'static str),
}

/// What a run ended with.
pub(crate) struct Ended {
    /// `None` when it was killed.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    /// Whether the fault happened at all.
    pub(crate) hit: bool,
    /// The calls that were seen.
    calls: Vec<String>,
}

impl Ended {
    /// Which calls a command makes when nothing goes wrong: all of them for a kill, each kind by itself for an error.
    pub(crate) fn points(self, fault: Fault) -> Vec<(String, usize)> {
        assert_eq!(self.code, Some(0), "{}", self.err);
        if fault == Fault::Kill {
            let points = 1..=self.calls.len();
            return points.map(|when| (CALLS.to_owned(), when)).collect();
        }
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let counted = self.calls.into_iter().map(|call| {
            let count = counts.entry(call.clone()).or_default();
            *count += 1;
            (call, *count)
        });
        counted.collect()
    }
}

struct Stage {
    world: World,
    before: Shown,
    after: Shown,
    old: Shown,
    act: Act,
}

impl Stage {
    /// A repository as it is before the act, kept aside so that every run begins alike.
    fn new(act: Act) -> Self {
        let world = World::new();
        for number in 0..12_u64 {
            let length = 300 + usize::try_from(number).unwrap() * 900;
            world.write(
                &format!("src/d{}/f{number}", number % 3),
                &noise(number, length),
            );
        }
        world.write("large", &noise(77, 1_500_000));
        fs::hard_link(world.tree().join("large"), world.tree().join("src/again")).unwrap();
        std::os::unix::fs::symlink("../large", world.tree().join("src/link")).unwrap();
        fs::create_dir(world.tree().join("void")).unwrap();
        let before = show(&world.tree());
        if act != Act::FirstSave {
            world.saved();
        }
        world.write("src/d1/f4", b"changed");
        world.write("src/new", &noise(99, 70_000));
        let mut large = noise(77, 1_500_000);
        large[700_000..700_100].fill(7);
        world.write("large", &large);
        fs::remove_file(world.tree().join("src/d0/f3")).unwrap();
        let after = show(&world.tree());
        if matches!(act, Act::Restore | Act::Gc) {
            world.saved();
        }
        let target = world.path("place/target");
        write(&target, "old/file", b"an old tree");
        write(&target, "large", &noise(77, 1_500_000));
        let old = show(&target);
        copy(
            world.session.home(),
            &["data", "cache", "state", "place"],
            "",
            "kept-",
        );
        Self {
            world,
            before,
            after,
            old,
            act,
        }
    }

    fn reset(&self) {
        copy(
            self.world.session.home(),
            &["data", "cache", "state", "place"],
            "kept-",
            "",
        );
    }

    fn arguments(&self) -> Vec<String> {
        let (tree, target) = (self.world.tree(), self.world.path("place/target"));
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let words: Vec<String> = match self.act {
            Act::FirstSave | Act::SecondSave => vec!["save".into(), text(&tree)],
            Act::Restore => {
                let first = self.world.snapshots().remove(0);
                let place = ["--replace".into(), "--owner".into()];
                [vec!["restore".into(), first, text(&target)], place.to_vec()].concat()
            }
            Act::Gc => ["gc", "--keep-last", "1"].map(String::from).to_vec(),
        };
        [vec!["--json".into(), "repo".into()], words].concat()
    }

    fn points(&self, fault: Fault) -> Vec<(String, usize)> {
        self.reset();
        self.run(Fault::Kill, CALLS, usize::MAX).points(fault)
    }

    fn run(&self, fault: Fault, calls: &str, when: usize) -> Ended {
        let arguments = self.arguments();
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        run_with(&self.world.session.command(&words), fault, calls, when)
    }

    /// What must hold whatever happened.
    fn judge(&self, ended: &Ended, call: &str, context: &str) {
        let world = &self.world;
        let context = format!("{context}: {:?}\n{}{}", ended.code, ended.out, ended.err);
        let checked = world.run(&["check", "--read-data"]);
        assert_eq!(checked.code, 0, "{context}\n{}", checked.out);
        let listed = world.snapshots();
        let trees: Vec<&Shown> = match self.act {
            Act::FirstSave => vec![&self.after],
            Act::Gc if listed.len() == 1 => vec![&self.after],
            _ => vec![&self.before, &self.after],
        };
        assert!(listed.len() <= trees.len(), "{context}");
        for (snapshot, tree) in listed.iter().zip(&trees) {
            assert!(world.restored(snapshot) == **tree, "{snapshot}: {context}");
        }
        let is_settled = !matches!(ended.code, None | Some(1 | 10 | 101));
        match self.act {
            Act::FirstSave | Act::SecondSave => {
                let was = usize::from(self.act == Act::SecondSave);
                assert!(listed.len() >= was, "{context}");
                if ended.code == Some(0) {
                    let acknowledged = id(&serde_json::from_str(&ended.out).unwrap());
                    assert_eq!(listed.last(), Some(&acknowledged), "{context}");
                } else if is_settled {
                    assert_eq!(listed.len(), was, "an error means not applied: {context}");
                }
            }
            Act::Restore => self.judge_target(ended, is_settled, &context),
            Act::Gc => assert!(!listed.is_empty(), "{context}"),
        }
        if let Some(code) = ended.code {
            assert!(is_proper_end(code, call), "{context}");
        }
    }

    fn judge_target(&self, ended: &Ended, is_settled: bool, context: &str) {
        let now = show(&self.world.path("place/target"));
        match ended.code {
            Some(0) => assert!(now == self.before, "{context}"),
            Some(_) if is_settled => assert!(now == self.old, "{context}"),
            _ => assert!(now == self.old || now == self.before, "{context}"),
        }
    }

    /// What comes next works, and leaves nothing behind.
    fn go_on(&self, context: &str) {
        let world = &self.world;
        if self.act == Act::Restore {
            let arguments = self.arguments();
            let words: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
            world.session.data(0, &words);
            assert!(
                show(&world.path("place/target")) == self.before,
                "{context}"
            );
            let left = names(&world.path("place"));
            assert!(left.len() <= 3, "{context}: {left:?}");
            return;
        }
        let next = world.saved();
        let collected = world.json(0, &["gc", "--keep-last", "1"]);
        assert_eq!(
            world.snapshots(),
            std::slice::from_ref(&next),
            "{context} {collected}"
        );
        assert_eq!(world.temps(), [""; 0], "{context}");
        let stats = world.json(0, &["stats"]);
        assert_eq!(stats["chunks_unused"], 0, "{context} {stats}");
        let manifests = names(&world.object("snapshots"));
        assert_eq!(manifests.len(), 1, "{context}: {manifests:?}");
        world.check();
        assert!(world.restored(&next) == self.after, "{context}");
    }
}

/// Whether a command may end so for which some call failed: it says that it was done, or that it was not, or that nobody knows. It
/// panics only where its runtime could not wake its own threads, which is a write.
pub(crate) fn is_proper_end(code: i32, call: &str) -> bool {
    matches!(code, 0 | 1 | 7 | 10 | 11) || (code == 101 && call == "write")
}

/// Starts a command under strace.
fn spawn(plain: &Command, fault: Fault, calls: &str, when: usize) -> Child {
    let inject = match fault {
        Fault::Kill => format!("inject={calls}:delay_exit=2500"),
        Fault::Once(error) => format!("inject={calls}:error={error}:when={when}"),
        Fault::FromThenOn(error) => format!("inject={calls}:error={error}:when={when}+"),
    };
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", &format!("trace={CALLS}"), "-e", &inject]);
    command.arg(STASIS).args(plain.get_args()).env_clear();
    let set = plain.get_envs();
    command.envs(set.filter_map(|(name, value)| Some((name, value?))));
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs a command with a fault at the n-th of some calls.
pub(crate) fn run_with(plain: &Command, fault: Fault, calls: &str, when: usize) -> Ended {
    let mut child = spawn(plain, fault, calls, when);
    let (over, watched) = std::sync::mpsc::channel::<()>();
    let strace = child.id();
    let longest = if when == usize::MAX {
        COUNTED
    } else {
        PATIENCE
    };
    let watchdog = std::thread::spawn(move || {
        let hangs = watched.recv_timeout(longest) == Err(RecvTimeoutError::Timeout);
        if hangs {
            kill_children_of(strace);
        }
        hangs
    });
    let stderr = child.stderr.take().unwrap();
    let (mut seen, mut hit, mut err) = (Vec::new(), false, String::new());
    for line in BufReader::new(stderr).lines() {
        let line = line.unwrap_or_default();
        seen.extend(call(&line));
        if fault == Fault::Kill && seen.len() == when && !hit {
            hit = true;
            kill_children_of(child.id());
        }
        hit |= line.contains("(INJECTED)") && fault != Fault::Kill;
        if !line.starts_with("[pid") && call(&line).is_none() {
            err.push_str(&line);
            err.push('\n');
        }
    }
    let mut out = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .unwrap();
    // strace ends as its tracee ended, by the same signal.
    let code = child.wait().unwrap().code();
    drop(over);
    let hung = watchdog.join().unwrap();
    // A runtime that cannot wake its own threads stands still; those calls cannot fail in earnest.
    assert!(
        !hung || calls == "write",
        "{fault:?} at {calls} number {when}\n{err}"
    );
    Ended {
        code,
        out,
        err,
        hit,
        calls: seen,
    }
}

pub(crate) fn copy(home: &Path, directories: &[&str], from: &str, to: &str) {
    for name in directories {
        let (from, to) = (
            home.join(format!("{from}{name}")),
            home.join(format!("{to}{name}")),
        );
        let _ = fs::remove_dir_all(&to);
        if from.exists() {
            let copied = Command::new("cp").arg("-a").arg(&from).arg(&to).status();
            assert!(copied.unwrap().success());
        }
    }
}

/// The call that strace tells has begun.
pub(crate) fn call(line: &str) -> Option<String> {
    let line = line.strip_prefix("[pid").map_or(Some(line), |rest| {
        rest.split_once("] ").map(|(_, rest)| rest)
    });
    let (name, _) = line?.split_once('(')?;
    let is_ours = CALLS.split(',').any(|call| call == name);
    is_ours.then(|| name.to_owned())
}

pub(crate) fn kill_children_of(strace: u32) {
    let children = format!("/proc/{strace}/task/{strace}/children");
    let children = fs::read_to_string(children).unwrap_or_default();
    for child in children.split_whitespace() {
        let pid = child.parse().ok().and_then(rustix::process::Pid::from_raw);
        let _ = rustix::process::kill_process(pid.unwrap(), rustix::process::Signal::KILL);
    }
}

pub(crate) fn has_strace() -> bool {
    let there = Command::new("strace").arg("-V").output().is_ok();
    let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
    assert!(there || !needed, "strace is not there: run scripts/test");
    if !there {
        println!("skipped: strace is not there");
    }
    there
}

/// Lets a fault happen at each of some points, or at some of them, and prints how many did happen.
pub(crate) fn at_points(
    what: &str,
    points: &[(String, usize)],
    mut happen: impl FnMut(&str, usize, &str) -> bool,
) {
    let all = std::env::var("STASIS_CRASH_POINTS").is_ok_and(|points| points == "all");
    let step = if all { 1 } else { points.len().div_ceil(SOME) };
    let first = std::process::id() as usize % step;
    // Errors are counted in each thread, so that some numbers are never reached: then others are tried as well.
    let (chosen, others): (Vec<_>, Vec<_>) = points
        .iter()
        .enumerate()
        .partition(|(number, _)| number % step == first);
    let (mut hits, enough) = (0, chosen.len());
    for (tried, (_, (call, when))) in chosen.into_iter().chain(others).enumerate() {
        if tried >= enough && hits >= 3 {
            break;
        }
        let context = format!("{what} at {call} number {when}");
        hits += usize::from(happen(call, *when, &context));
    }
    let count = points.len();
    println!("{what}: survived {hits} faults, every {step} of {count} from {first}");
    assert!(hits >= 3, "{what}: {hits} of {count}");
}

/// Lets the fault happen at the first call, at the second, and so on, or at some of these.
fn at_calls(act: Act, fault: Fault) {
    if !has_strace() {
        return;
    }
    let stage = Stage::new(act);
    let points = stage.points(fault);
    at_points(
        &format!("{act:?} {fault:?}"),
        &points,
        |call, when, context| {
            stage.reset();
            let ended = stage.run(fault, call, when);
            stage.judge(&ended, call, context);
            stage.go_on(context);
            ended.hit
        },
    );
}

#[test]
fn a_first_save_that_is_killed_leaves_nothing_or_a_snapshot() {
    at_calls(Act::FirstSave, Fault::Kill);
}

#[test]
fn a_second_save_that_is_killed_leaves_the_first_or_both() {
    at_calls(Act::SecondSave, Fault::Kill);
}

#[test]
fn a_restore_that_is_killed_leaves_the_old_tree_or_the_new_one() {
    at_calls(Act::Restore, Fault::Kill);
}

#[test]
fn a_sweep_that_is_killed_leaves_every_kept_snapshot_whole() {
    at_calls(Act::Gc, Fault::Kill);
}

#[test]
fn a_save_on_a_full_disk_is_refused_and_nothing_dangles() {
    at_calls(Act::SecondSave, Fault::Once("ENOSPC"));
    at_calls(Act::SecondSave, Fault::FromThenOn("ENOSPC"));
}

#[test]
fn a_save_on_a_broken_disk_is_refused_and_nothing_dangles() {
    at_calls(Act::SecondSave, Fault::Once("EIO"));
    at_calls(Act::SecondSave, Fault::FromThenOn("EIO"));
}

#[test]
fn a_restore_on_a_full_or_broken_disk_leaves_the_old_tree() {
    at_calls(Act::Restore, Fault::Once("EIO"));
    at_calls(Act::Restore, Fault::FromThenOn("ENOSPC"));
}

#[test]
fn a_sweep_on_a_full_or_broken_disk_takes_nothing_that_is_needed() {
    at_calls(Act::Gc, Fault::Once("EIO"));
    at_calls(Act::Gc, Fault::FromThenOn("ENOSPC"));
}

/// Saves while directories can be renamed into, but not synced.
pub(crate) fn saved_without(world: &World, calls: &str) -> Said {
    let tree = world.tree();
    run_without(
        world,
        &["--json", "repo", "save", tree.to_str().unwrap()],
        calls,
    )
}

/// Runs a command for which these calls fail in the store's own directories.
pub(crate) fn run_without(world: &World, words: &[&str], calls: &str) -> Said {
    let store = world.object("");
    let plain = world.session.command(words);
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null"]);
    let index = world.object("index.json").parent().unwrap().to_owned();
    for place in [index, store.join(".stasis/tmp")] {
        let place = place.to_str().unwrap().trim_end_matches('/').to_owned();
        command.args(["-P", &place]);
    }
    command.args(["-e", &format!("trace={calls}")]);
    command.args(["-e", &format!("inject={calls}:error=EIO")]);
    command.arg(STASIS).args(plain.get_args()).env_clear();
    let set = plain.get_envs();
    command.envs(set.filter_map(|(name, value)| Some((name, value?))));
    said(command.output().unwrap())
}

#[test]
fn a_save_whose_index_may_not_be_durable_is_not_acknowledged() {
    if !has_strace() {
        return;
    }
    let world = World::new();
    world.write("file", b"content");
    world.saved();

    // Nothing is new, so that the index is all that is synced in these places.
    let doubtful = saved_without(&world, "fsync,syncfs").code;
    let meanwhile = saved_without(&world, "fsync").code;
    let other = World::new();
    other.write("file", b"content");
    other.saved();
    let with_syncfs = saved_without(&other, "fsync").code;

    assert_eq!(doubtful, 10, "nobody knows whether it was applied");
    assert_eq!(meanwhile, 7, "what is in doubt cannot be built upon");
    assert_eq!(
        with_syncfs, 10,
        "the kernel tells of a failure once: a syncfs that succeeds afterwards proves nothing"
    );
    world.check();
    assert_eq!(world.temps(), [""; 0], "what was in doubt was written anew");
}

/// Runs a command under strace, and kills it in the pause after the n-th call that changes something; says how many of them
/// were seen, and whether it was killed.
pub(crate) fn killed_after(plain: &Command, kill_after: usize) -> (usize, bool) {
    let mut command = Command::new("strace");
    let (trace, inject) = (
        format!("trace={CALLS}"),
        format!("inject={CALLS}:delay_exit=2500"),
    );
    command.args(["-f", "-qq", "-e", &trace, "-e", &inject]);
    command.arg(STASIS).args(plain.get_args()).env_clear();
    let set = plain.get_envs();
    command.envs(set.filter_map(|(name, value)| Some((name, value?))));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let mut seen = 0;
    for line in stderr.lines() {
        let is_call = call(&line.unwrap_or_default()).is_some();
        seen += usize::from(is_call);
        if is_call && seen == kill_after {
            kill_children_of(child.id());
        }
    }
    // strace ends as its tracee ended, by the same signal.
    (seen, child.wait().unwrap().code().is_none())
}
