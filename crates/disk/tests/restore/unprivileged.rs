//! Somebody who is not root, and has taken away his own rights here and there.

use crate::child;
use crate::support::*;
use rustix::process::geteuid;
use stasis_disk::tree::restore::{self, Placement};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const NOBODY: u32 = 65_534;

/// What the tree is for somebody else.
fn theirs(tree: &Tree) -> Vec<Shown> {
    let mut shown = ideal(tree);
    for (entry, _) in &mut shown {
        (entry.metadata.uid, entry.metadata.gid) = (NOBODY, NOBODY);
    }
    shown
}

#[test]
fn somebody_who_is_not_root_restores_directories_that_he_may_not_even_read() {
    if !geteuid().is_root() {
        println!("skipped: only root becomes somebody else");
        return;
    }
    let home = Home::new();
    chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let program = Home::new();
    let program = program.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    chown(program.parent().unwrap(), Some(NOBODY), Some(NOBODY)).unwrap();
    let target = home.path().join("target");
    let run = |placement, tree: &str| {
        let mut command = Command::new(&program);
        command.uid(NOBODY).gid(NOBODY).current_dir(home.path());
        command.env("TMPDIR", home.path());
        let status = child::tell(&mut command, &target, placement, tree).status();
        assert_eq!(status.unwrap().code(), Some(0), "{placement:?} {tree}");
    };

    run(Placement::New, "old");
    assert_eq!(show(&target), theirs(&old()));
    run(Placement::InPlace, "new");
    assert_eq!(show(&target), theirs(&new()));
    run(Placement::InPlace, "old");
    assert_eq!(show(&target), theirs(&old()));
    assert_eq!(names(home.path()), ["target"]);
    run(Placement::Replace, "new");
    run(Placement::Replace, "old");
    run(Placement::Replace, "new");
    assert_eq!(show(&target), theirs(&new()));
    let kept = restore::kept(&target).unwrap().unwrap();
    assert_eq!(show(&kept.path), theirs(&old()));
    assert_eq!(names(home.path()).len(), 3, "{:?}", names(home.path()));
    a_closed_parent(home.path(), &target, &run);
}

/// The staging directory goes into the tree where it cannot be beside it.
fn a_closed_parent(home: &Path, target: &Path, run: &dyn Fn(Placement, &str)) {
    chown(home, Some(0), Some(0)).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(home, open).unwrap();

    run(Placement::InPlace, "old");

    assert_eq!(show(target), theirs(&old()));
}
