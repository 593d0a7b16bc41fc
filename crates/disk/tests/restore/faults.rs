//! A restore is killed, or told that the disk is full or broken, at every single call that changes anything.
//!
//! The restore runs in a process of its own (this test binary again, told what to do by its environment) under strace,
//! which counts the calls. Afterwards there is the old tree or the new one, and the next restore finds nothing in its way.

use crate::child;
use crate::support::*;
use stasis_disk::tree::restore::{self, Placement};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Calls that change something.
const CALLS: [&str; 13] = [
    "write",
    "pwrite64",
    "ftruncate",
    "fsync",
    "syncfs",
    "rename",
    "renameat",
    "renameat2",
    "unlinkat",
    "linkat",
    "symlinkat",
    "mkdirat",
    "fchmod",
];

fn older() -> Tree {
    tree(&[("older", file("older"))], (0o755, 3))
}

/// Runs a restore in a process of its own; `None` when there is no strace.
fn run(target: &Path, placement: Placement, arguments: &[&str]) -> Option<ExitStatus> {
    run_with(target, placement, "some of new", arguments)
}

fn run_with(
    target: &Path,
    placement: Placement,
    tree: &str,
    arguments: &[&str],
) -> Option<ExitStatus> {
    let log = target.with_file_name("log");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(log).args(arguments);
    command.arg(std::env::current_exe().unwrap());
    match child::tell(&mut command, target, placement, tree).status() {
        Ok(status) => Some(status),
        Err(error) => {
            let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
            assert!(!needed, "strace is not there ({error}): run scripts/test");
            println!("skipped: strace is not there");
            None
        }
    }
}

/// A place where an old tree is, and an older one was; or nothing, for a new one.
fn place(placement: Placement) -> (Home, PathBuf) {
    let home = Home::new();
    let target = home.path().join("target");
    if placement != Placement::New {
        let _ = restore(&target, &older(), placement).unwrap();
        let _ = restore(&target, &some_of(old()), placement).unwrap();
    }
    (home, target)
}

/// How often a restore makes each call.
fn count(placement: Placement, tree: &str) -> Option<Vec<usize>> {
    let (home, target) = place(placement);
    let trace = format!("trace={}", CALLS.join(","));
    let status = run_with(&target, placement, tree, &["-e", &trace])?;
    assert!(status.success());
    let log = std::fs::read_to_string(home.path().join("log")).unwrap();
    let calls = log.lines().filter_map(|line| line.split('(').next());
    let calls: Vec<&str> = calls
        .filter_map(|line| line.split(' ').next_back())
        .collect();
    let made = |call| calls.iter().filter(|made| **made == call).count();
    Some(CALLS.map(made).to_vec())
}

/// Lets the fault happen at the first of these calls, at the second, and so on.
fn at_every_call(placement: Placement, fault: &str) {
    let Some(counts) = count(placement, "some of new") else {
        return;
    };
    for (call, count) in CALLS.iter().zip(&counts) {
        for when in 1..=*count {
            let (home, target) = place(placement);
            let inject = format!("{call}:{fault}:when={when}");
            let (trace, injected) = (format!("trace={call}"), format!("inject={inject}"));
            let arguments = ["-e", &trace, "-e", &injected];

            let status = run(&target, placement, &arguments).unwrap();

            std::fs::remove_file(home.path().join("log")).unwrap();
            check(&target, placement, status, &inject);
            if placement == Placement::New && target.exists() {
                continue;
            }
            let _ = restore(&target, &some_of(new()), placement).unwrap();
            assert!(show(&target) == ideal(&some_of(new())), "{inject}");
            let left = names(home.path());
            match placement {
                Placement::Replace => assert_eq!(left.len(), 3, "{inject}: {left:?}"),
                _ => assert_eq!(left, ["target"], "{inject}"),
            }
        }
    }
    let runs: usize = counts.iter().sum();
    println!("{placement:?} survived {runs} faults `{fault}`");
    assert!(runs > 10);
}

/// The target is the old tree or the new one, as the restore said if it came to say something.
fn check(target: &Path, placement: Placement, status: ExitStatus, inject: &str) {
    let (before, after) = (ideal(&some_of(old())), ideal(&some_of(new())));
    if placement == Placement::InPlace {
        let was_begun = restore::recover(target).unwrap();
        let is_half_done = status.code() == Some(child::HALF_DONE);
        assert!(!is_half_done || was_begun, "{inject}");
    }
    if placement == Placement::New && !target.exists() {
        assert!(!status.success(), "{inject}");
        return;
    }
    let now = show(target);
    match status.code() {
        Some(0 | child::HALF_DONE) => assert!(now == after, "{inject}: {now:?}"),
        Some(child::REFUSED) => assert!(now == before, "{inject}: {now:?}"),
        _ => assert!(now == before || now == after, "{inject}: {now:?}"),
    }
    if placement == Placement::Replace {
        let kept = restore::kept(target).unwrap().unwrap();
        let wanted = if now == after {
            before
        } else {
            ideal(&older())
        };
        assert!(show(&kept.path) == wanted, "{inject}");
    }
}

#[test]
fn a_new_tree_is_whole_or_absent_when_its_restore_is_killed() {
    at_every_call(Placement::New, "signal=KILL");
}

#[test]
fn a_new_tree_is_whole_or_absent_on_a_broken_disk() {
    at_every_call(Placement::New, "error=EIO");
}

#[test]
fn a_replacing_restore_that_is_killed_leaves_the_old_tree_or_the_new_one() {
    at_every_call(Placement::Replace, "signal=KILL");
}

#[test]
fn a_restore_in_place_that_is_killed_leads_to_the_old_tree_or_the_new_one() {
    at_every_call(Placement::InPlace, "signal=KILL");
}

#[test]
fn a_replacing_restore_on_a_broken_disk_leaves_the_old_tree() {
    at_every_call(Placement::Replace, "error=EIO");
}

#[test]
fn a_restore_in_place_on_a_broken_disk_leads_to_the_old_tree_or_the_new_one() {
    at_every_call(Placement::InPlace, "error=EIO");
}

#[test]
fn a_replacing_restore_on_a_full_disk_leaves_the_old_tree() {
    at_every_call(Placement::Replace, "error=ENOSPC");
}

#[test]
fn a_restore_in_place_on_a_full_disk_leads_to_the_old_tree_or_the_new_one() {
    at_every_call(Placement::InPlace, "error=ENOSPC");
}

#[test]
fn the_next_restore_brings_an_interrupted_one_to_its_end_first() {
    for next in [Placement::InPlace, Placement::Replace] {
        let (home, target) = place(Placement::InPlace);
        let inject = "inject=renameat2:signal=KILL:when=4";
        let arguments = ["-e", "trace=renameat2", "-e", inject];
        let Some(status) = run(&target, Placement::InPlace, &arguments) else {
            return;
        };
        std::fs::remove_file(home.path().join("log")).unwrap();
        assert_eq!(status.code(), None);
        let half = show(&target);
        assert!(half != ideal(&some_of(old())) && half != ideal(&some_of(new())));

        let _ = restore(&target, &older(), next).unwrap();

        assert_eq!(show(&target), ideal(&older()));
        if next == Placement::Replace {
            let kept = restore::kept(&target).unwrap().unwrap();
            assert_eq!(show(&kept.path), ideal(&some_of(new())));
            assert_eq!(names(home.path()).len(), 3);
        } else {
            assert_eq!(names(home.path()), ["target"]);
        }
    }
}

#[test]
fn an_undo_that_fails_anywhere_leaves_one_tree_in_place_and_the_other_kept() {
    let (before, after) = (ideal(&some_of(old())), ideal(&older()));
    let Some(counts) = count(Placement::Replace, child::UNDO) else {
        return;
    };
    for fault in ["signal=KILL", "error=EIO"] {
        for (call, count) in CALLS.iter().zip(&counts) {
            for when in 1..=*count {
                let (_home, target) = place(Placement::Replace);
                let inject = format!("{call}:{fault}:when={when}");
                let (trace, injected) = (format!("trace={call}"), format!("inject={inject}"));
                let arguments = ["-e", &trace, "-e", &injected];

                let status = run_with(&target, Placement::Replace, child::UNDO, &arguments);

                let (now, kept) = (show(&target), restore::kept(&target).unwrap().unwrap());
                let both = (now, show(&kept.path));
                let undone = both == (after.clone(), before.clone());
                assert!(
                    undone || both == (before.clone(), after.clone()),
                    "{inject}"
                );
                match status.unwrap().code() {
                    Some(0) => assert!(undone, "{inject}"),
                    Some(child::REFUSED) => assert!(!undone, "{inject}"),
                    _ => {}
                }
            }
        }
    }
    assert!(counts.iter().sum::<usize>() > 5);
}
