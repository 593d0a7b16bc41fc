//! A checkpoint whose list was exchanged for that of another one.

use crate::{auto, check, on_each, pool, restored, try_restored};
use stasis_disk::form::slots::{CheckedContent, SlotError};
use stasis_model::time::Timestamp;
use stasis_model::workspace::{CheckpointOrigin, Slot, SlotMetadata};
use std::fs;

const DOCUMENT: &str = "workspace.json";

#[test]
fn nothing_is_made_of_a_list_that_is_another_checkpoints() {
    on_each(&["xfs", "ext4"], |session| {
        let workspace = session.join("workspace");
        let pool = pool(session);
        let slot = |number: u32| pool.path().join(number.to_string()).join(DOCUMENT);
        fs::write(workspace.join("file"), "first").unwrap();
        let first = auto(&pool, 0, 1).unwrap().metadata;
        fs::write(workspace.join("file"), "second").unwrap();
        let second = auto(&pool, 1, 2).unwrap().metadata;
        let unchanged = auto(&pool, 2, 3).unwrap().metadata;
        let at = Timestamp::from_millis(first.epoch_millis);
        let copy = SlotMetadata::new(Slot::new(12), CheckpointOrigin::Manual, at, 4);
        let copy = SlotMetadata {
            form: first.form,
            ..copy
        };
        let copy = pool.copy(&first, copy, None).unwrap().metadata;
        let others = [(&first, 1), (&unchanged, 0), (&copy, 1)];

        for (of, other) in others {
            let own = fs::read(slot(of.slot.index())).unwrap();
            let bytes = fs::read(slot(other)).unwrap();
            fs::remove_file(slot(of.slot.index())).unwrap();
            fs::write(slot(of.slot.index()), bytes).unwrap();

            let restored = try_restored(&pool, of, &workspace);
            let forked = pool.view(of, &[]).map(|_| ());
            let checked = pool.check(of, &workspace, &mut CheckedContent::default());
            let checked = checked.map(|_| ());

            let what = of.slot;
            for said in [restored.map(|_| ()), forked, checked] {
                assert!(
                    matches!(said, Err(SlotError::Document(_))),
                    "{what} {said:?}"
                );
            }
            assert!(pool.problem(of).is_some() && !pool.has_all(of).unwrap());
            assert_eq!(fs::read(workspace.join("file")).unwrap(), b"second");
            fs::write(slot(of.slot.index()), own).unwrap();
            let _ = check(&pool, of);
        }
        restored(&pool, &copy, &workspace);
        assert_eq!(fs::read(workspace.join("file")).unwrap(), b"first");
        assert_eq!(unchanged.workspace_digest, second.workspace_digest);
    });
}
