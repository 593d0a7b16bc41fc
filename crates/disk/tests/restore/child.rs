//! A restore in a process of its own: this test binary again, told what to do by its environment.

use crate::support::*;
use stasis_disk::tree::restore::{Placement, RestoreError, undo};
use std::path::Path;
use std::process::{Command, Stdio};

const TARGET: &str = "STASIS_TEST_RESTORE_TARGET";
const PLACEMENT: &str = "STASIS_TEST_RESTORE_PLACEMENT";
const TREE: &str = "STASIS_TEST_RESTORE_TREE";

/// Instead of a tree: what was restored is undone.
pub(crate) const UNDO: &str = "undo";

/// Instead of a tree: the target becomes what the checkpoint beside it is.
pub(crate) const PUT_BACK: &str = "put back";

/// What the process says when the restore was refused.
pub(crate) const REFUSED: i32 = 10;
/// What it says when the restore was interrupted.
pub(crate) const HALF_DONE: i32 = 11;

/// Adds what the process must be told.
pub(crate) fn tell<'a>(
    command: &'a mut Command,
    target: &Path,
    placement: Placement,
    tree: &str,
) -> &'a mut Command {
    command
        .args(["--exact", "child::child", "--test-threads=1", "-q"])
        .env(TARGET, target)
        .env(PLACEMENT, format!("{placement:?}"))
        .env(TREE, tree)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
}

/// Whether this is such a process.
pub(crate) fn is_told() -> bool {
    std::env::var_os(TARGET).is_some()
}

#[test]
fn child() {
    let (Some(target), Ok(placement)) = (std::env::var_os(TARGET), std::env::var(PLACEMENT)) else {
        return;
    };
    let placement = match placement.as_str() {
        "New" => Placement::New,
        "Replace" => Placement::Replace,
        _ => Placement::InPlace,
    };
    let target = Path::new(&target);
    if std::env::var(TREE).as_deref() == Ok(PUT_BACK) {
        let done = crate::put_back::beside(target);
        std::process::exit(done.map_or(REFUSED, |()| 0));
    }
    let outcome = match std::env::var(TREE).unwrap().as_str() {
        "old" => restore(target, &old(), placement).map(drop),
        "new" => restore(target, &new(), placement).map(drop),
        UNDO => undo(target, &origin()).map(drop),
        _ => restore(target, &some_of(new()), placement).map(drop),
    };
    std::process::exit(match outcome {
        Ok(()) => 0,
        Err(RestoreError::HalfDone { .. }) => HALF_DONE,
        Err(_) => REFUSED,
    });
}
