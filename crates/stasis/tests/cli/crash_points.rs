//! Commands that are killed at every call that changes anything, one after the other, or for which such a call fails.
//!
//! The calls are counted as in `repo_crash`: strace delays each, and the kill comes in the pause after the n-th. Every run tries
//! some of the calls, beginning with one that differs from run to run and is printed; `STASIS_CRASH_POINTS=all` tries all of them.

use crate::repo_crash::{
    CALLS, Fault, at_points, has_strace, is_proper_end, killed_after, run_with,
};
use std::fmt::Debug;
use std::process::Command;

/// How many crash points are tried when not all are asked for.
const SOME: usize = 10;

/// Whether all cases are asked for.
pub(crate) fn all_are_tried() -> bool {
    std::env::var("STASIS_CRASH_POINTS").is_ok_and(|points| points == "all")
}

/// Whether a case is tried: one of so many in each run, others in another one, unless all are asked for.
pub(crate) fn is_tried(number: usize, of: usize) -> bool {
    all_are_tried() || number % of == std::process::id() as usize % of
}

/// A command, and what is true whatever becomes of it.
pub(crate) trait Stage {
    /// The command.
    fn command(&self) -> Command;

    /// Makes everything what it was before the command.
    fn reset(&self);

    /// Fails unless what the command does was done, by one that nobody killed.
    fn assert_done(&self);

    /// Fails unless all is well after a kill, and goes on from there.
    fn judge(&self, context: &str);
}

/// Runs a command to its end once, and then kills it at each step, or at some of them.
pub(crate) fn killed_at_each_step<S: Stage>(what: impl Debug, stage: impl FnOnce() -> S) {
    if !has_strace() {
        return;
    }
    let stage = stage();
    let (count, was_killed) = killed_after(&stage.command(), usize::MAX);
    assert!(!was_killed);
    stage.assert_done();
    let step = if all_are_tried() {
        1
    } else {
        count.div_ceil(SOME)
    };
    let first = std::process::id() as usize % step + 1;
    let mut kills = 0;
    for when in (first..=count).step_by(step) {
        stage.reset();
        let (_, was_killed) = killed_after(&stage.command(), when);
        kills += usize::from(was_killed);
        stage.judge(&format!("{what:?}, killed after call {when} of {count}"));
    }
    println!("{what:?} survived {kills} kills, every {step} of {count} from {first}");
    assert!(kills >= 3, "{kills} of {count}");
}

/// Runs a command to its end once, and then lets each call fail that changes anything, or some of them.
pub(crate) fn failed_at_each_step<S: Stage>(
    what: impl Debug,
    fault: Fault,
    stage: impl FnOnce() -> S,
) {
    if !has_strace() {
        return;
    }
    let stage = stage();
    let points = run_with(&stage.command(), Fault::Kill, CALLS, usize::MAX).points(fault);
    stage.assert_done();
    at_points(
        &format!("{what:?} {fault:?}"),
        &points,
        |call, when, context| {
            stage.reset();
            let ended = run_with(&stage.command(), fault, call, when);
            let context = format!("{context}: {:?}\n{}{}", ended.code, ended.out, ended.err);
            if let Some(code) = ended.code {
                assert!(is_proper_end(code, call), "{context}");
            }
            if ended.code == Some(0) {
                stage.assert_done();
            }
            stage.judge(&context);
            ended.hit
        },
    );
}
