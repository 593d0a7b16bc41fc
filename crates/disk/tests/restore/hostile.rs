//! Somebody changes the live tree while we do.

use crate::support::*;
use rustix::fs::{CWD, RenameFlags};
use stasis_disk::tree::restore::Placement;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_directory_swapped_for_a_link_during_a_restore_in_place_changes_nothing_outside() {
    let home = Home::new();
    let (target, outside) = (home.path().join("target"), home.path().join("outside"));
    let _ = restore(&target, &old(), Placement::New).unwrap();
    let _ = restore(&outside, &old(), Placement::New).unwrap();
    let before = show(&outside);
    let (inside, decoy) = (target.join("deep"), home.path().join("decoy"));
    symlink(&outside, &decoy).unwrap();
    let is_done = AtomicBool::new(false);
    let mut succeeded = 0;

    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let flags = RenameFlags::EXCHANGE;
                let _ = rustix::fs::renameat_with(CWD, &inside, CWD, &decoy, flags);
            }
        });
        for round in 0..30 {
            let tree = if round % 2 == 0 { new() } else { old() };
            // It may fail; it may not reach outside.
            succeeded += u32::from(restore(&target, &tree, Placement::InPlace).is_ok());
        }
        is_done.store(true, Ordering::Relaxed);
    });

    assert_eq!(show(&outside), before);
    assert!(succeeded > 0);
    let _ = restore(&target, &new(), Placement::InPlace).unwrap();
    assert_eq!(show(&target), ideal(&new()));
    let left: Vec<_> = names(home.path())
        .into_iter()
        .filter(|name| name.contains("stasis-tmp"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
