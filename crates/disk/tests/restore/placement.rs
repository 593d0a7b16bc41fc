//! New, replaced, undone, refused.

use crate::support::*;
use stasis_disk::tree::restore::{self, PlacedTree, Placement, RestoreError, RestoreStage};
use stasis_disk::tree::write::{TreeWriteError, WriteSettings};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn kept_path(placed: &PlacedTree) -> PathBuf {
    let PlacedTree::Replaced { kept } = placed else {
        unreachable!("{placed:?}")
    };
    kept.clone()
}

#[test]
fn a_tree_is_restored_where_nothing_or_an_empty_directory_is() {
    let home = Home::new();
    let (absent, empty) = (home.path().join("absent"), home.path().join("empty"));
    std::fs::create_dir(&empty).unwrap();

    for target in [&absent, &empty] {
        let restored = restore(target, &new(), Placement::New).unwrap();

        assert_eq!(restored.placed, PlacedTree::New);
        let is_file = |item: &&Item| matches!(item, Item::File(..));
        let files = new().items.values().filter(is_file).count();
        assert_eq!(restored.written.files, files as u64);
        assert_eq!(show(target), ideal(&new()));
    }
    let refused = restore(&absent, &old(), Placement::New).unwrap_err();
    assert!(matches!(refused, RestoreError::NotEmpty(_)), "{refused}");
    assert_eq!(show(&absent), ideal(&new()));
    assert_eq!(names(home.path()), ["absent", "empty"]);
}

#[test]
fn a_replaced_tree_is_kept_and_a_restore_can_be_undone_and_redone() {
    let home = Home::new();
    let target = home.path().join("target");
    let _ = restore(&target, &old(), Placement::Replace).unwrap();
    assert!(restore::kept(&target).unwrap().is_none());

    let restored = restore(&target, &new(), Placement::Replace).unwrap();

    let kept = kept_path(&restored.placed);
    assert_eq!(show(&target), ideal(&new()));
    assert_eq!(show(&kept), ideal(&old()));
    let known = restore::kept(&target).unwrap().unwrap();
    assert_eq!(
        (known.path, known.from.as_str()),
        (kept.clone(), "snapshot 7")
    );
    assert_eq!(known.at, origin().at);
    assert_eq!(
        names(home.path()),
        [".target.stasis-kept", ".target.stasis-kept-1", "target"]
    );

    let _ = restore::undo(&target, &origin()).unwrap();
    assert_eq!(show(&target), ideal(&old()));
    assert_eq!(show(&kept), ideal(&new()));
    let _ = restore::undo(&target, &origin()).unwrap();
    assert_eq!(show(&target), ideal(&new()));

    std::fs::rename(&target, home.path().join("moved away")).unwrap();
    let _ = restore::undo(&target, &origin()).unwrap();
    assert_eq!(show(&target), ideal(&old()));
    let nothing = restore::undo(&target, &origin()).unwrap_err();
    assert!(matches!(nothing, RestoreError::NothingKept(_)), "{nothing}");
}

#[test]
fn only_the_newest_old_tree_is_kept() {
    let home = Home::new();
    let target = home.path().join("target");
    for _ in 0..3 {
        let _ = restore(&target, &old(), Placement::Replace).unwrap();
    }

    let restored = restore(&target, &new(), Placement::Replace).unwrap();

    let kept = kept_path(&restored.placed);
    assert_eq!(show(&kept), ideal(&old()));
    assert_eq!(
        names(home.path()),
        [".target.stasis-kept", ".target.stasis-kept-3", "target"]
    );
    assert!(restore::forget(&target).unwrap());
    assert!(!restore::forget(&target).unwrap());
    assert_eq!(names(home.path()), ["target"]);
}

#[test]
fn a_stage_that_is_dropped_or_cancelled_leaves_nothing() {
    for placement in [Placement::New, Placement::Replace, Placement::InPlace] {
        let home = Home::new();
        let target = home.path().join("target");
        if placement != Placement::New {
            let _ = restore(&target, &old(), Placement::New).unwrap();
        }
        let before = names(home.path());

        let stage = RestoreStage::begin(&target, placement, Arc::default()).unwrap();
        let _ = crate::support::stage(&stage, &new(), &[]).unwrap();
        drop(stage);
        let cancel = Arc::new(AtomicBool::new(false));
        let stage = RestoreStage::begin(&target, placement, cancel.clone()).unwrap();
        let settings = WriteSettings {
            cancel: cancel.clone(),
            ..WriteSettings::default()
        };
        let writer = stage.writer(settings).unwrap();
        let _ = writer.file(&path("half"), 9).unwrap();
        cancel.store(true, Ordering::Relaxed);
        let cancelled = writer.file(&path("more"), 9).unwrap_err();
        drop(writer);
        let report = stasis_disk::tree::write::WriteReport::default();
        let not_swapped = stage.swap(report, &origin()).unwrap_err();

        assert!(matches!(cancelled, TreeWriteError::Cancelled));
        assert!(matches!(not_swapped, RestoreError::Cancelled));
        assert_eq!(names(home.path()), before);
        if placement != Placement::New {
            assert_eq!(show(&target), ideal(&old()));
        }
    }
}

#[test]
fn targets_that_are_no_directory_of_their_own_are_refused() {
    let home = Home::new();
    let at = |name: &str| home.path().join(name);
    std::fs::create_dir(at("dir")).unwrap();
    symlink("dir", at("link")).unwrap();
    std::fs::write(at("file"), "").unwrap();
    let refused = |target: PathBuf, placement| {
        RestoreStage::begin(&target, placement, Arc::default())
            .map(drop)
            .unwrap_err()
    };

    for placement in [Placement::New, Placement::Replace, Placement::InPlace] {
        let refused = |target| refused(target, placement);
        let everything = refused("/".into());
        assert!(matches!(everything, RestoreError::TargetIsEverything));
        let everything = refused("/usr/..".into());
        assert!(matches!(everything, RestoreError::TargetIsEverything));
        for link in ["link", "link/"] {
            let link = refused(at(link));
            assert!(matches!(link, RestoreError::TargetIsSymlink(_)), "{link}");
        }
        let file = refused(at("file"));
        assert!(matches!(file, RestoreError::NotDirectory(_)), "{file}");
        let nowhere = refused(at("no/where"));
        assert!(matches!(nowhere, RestoreError::Failed(_)), "{nowhere}");
    }
    let mount = refused("/proc".into(), Placement::Replace);
    assert!(matches!(mount, RestoreError::TargetIsMount(_)), "{mount}");
    assert_eq!(names(home.path()), ["dir", "file", "link"]);
}

#[test]
fn what_a_dead_restore_left_is_removed_and_what_a_live_one_holds_is_not() {
    let home = Home::new();
    let target = home.path().join("target");
    let _ = restore(&target, &old(), Placement::New).unwrap();
    for name in [".target.stasis-tmp-1", ".target.stasis-kept-9"] {
        std::fs::create_dir(home.path().join(name)).unwrap();
        std::fs::write(home.path().join(name).join("half"), "a fil").unwrap();
        // The tree's own: it says nothing about what is to be done here.
        std::fs::write(home.path().join(name).join("journal"), "dear diary").unwrap();
    }
    std::fs::write(home.path().join(".target.stasis-tmp-2"), "half a record").unwrap();
    let live = RestoreStage::begin(&target, Placement::Replace, Arc::default()).unwrap();
    let written = stage(&live, &new(), &[]).unwrap();

    let _ = restore(&target, &new(), Placement::InPlace).unwrap();
    let _ = restore(&target, &old(), Placement::InPlace).unwrap();

    let _ = live.swap(written, &origin()).unwrap();
    assert_eq!(show(&target), ideal(&new()));
    assert_eq!(
        names(home.path()),
        [".target.stasis-kept", ".target.stasis-kept-1", "target"]
    );
}
