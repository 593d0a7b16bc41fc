//! Chunks that are damaged or missing are stored again by whoever saves the same bytes, in every kind of store.

use crate::repo_world::{Shown, noise, show};
use crate::store_kinds::{KINDS, Kind, Stored, flip};
use std::fs;
use std::path::Path;

/// A way to damage a chunk.
type Damage = fn(&Path);

fn remove(path: &Path) {
    fs::remove_file(path).unwrap();
}

const DAMAGES: [Damage; 2] = [flip, remove];

/// Three files in one chunk, saved; what they are, and the snapshot.
fn stored(kind: Kind) -> (Stored, String, Shown) {
    let stored = Stored::new(kind);
    for number in 0..3 {
        stored.write(&format!("{number}"), &noise(number, 30_000));
    }
    let snapshot = stored.saved();
    assert_eq!(stored.chunks().len(), 1);
    let shown = show(&stored.tree());
    (stored, snapshot, shown)
}

fn contents(shown: &Shown) -> Vec<String> {
    let content = |text: &String| text.rsplit(' ').next().unwrap().to_owned();
    shown.values().map(content).collect()
}

#[test]
fn a_save_that_reads_the_files_again_stores_what_is_damaged_or_missing() {
    for (kind, damage) in KINDS
        .iter()
        .flat_map(|kind| DAMAGES.map(|one| (*kind, one)))
    {
        let (stored, first, shown) = stored(kind);
        damage(&stored.chunks()[0]);
        stored.touch();

        let second = stored.save();

        assert_eq!(second["chunks_healed"], 1, "{kind:?} {second}");
        assert_eq!(second["chunks_damaged"], 0, "{kind:?} {second}");
        assert!(stored.restored(&first) == shown, "{kind:?}");
        let again = stored.restored(second["snapshot_id"].as_str().unwrap());
        assert_eq!(contents(&again), contents(&shown), "{kind:?}");
    }
}

#[test]
fn what_a_failed_restore_met_is_repaired_by_the_next_save_though_nothing_changed() {
    for (kind, damage) in KINDS
        .iter()
        .flat_map(|kind| DAMAGES.map(|one| (*kind, one)))
    {
        let (stored, first, shown) = stored(kind);
        damage(&stored.chunks().remove(0));

        let (failed, _) = stored.try_restore(&first);
        let second = stored.save();

        assert_eq!(failed.code, 9, "{kind:?} {}", failed.out);
        assert_eq!(second["chunks_healed"], 1, "{kind:?} {second}");
        assert!(stored.restored(&first) == shown, "{kind:?}");
        assert_eq!(stored.save()["chunks_healed"], 0, "{kind:?}");
    }
}

#[test]
fn a_marked_chunk_is_repaired_though_no_file_need_be_read() {
    let stored = Stored::new(Kind::Everyday);
    stored.write("file", &noise(1, 30_000));
    // A file this young would be read again anyway.
    std::thread::sleep(std::time::Duration::from_millis(2200));
    let first = stored.saved();
    let shown = show(&stored.tree());
    remove(&stored.chunks()[0]);

    let unseen = stored.save();
    let checked = stored.check();
    let healed = stored.save();
    let again = stored.save();

    assert_eq!(unseen["files_read"], 0, "{unseen}");
    assert_eq!(again["chunks_healed"], 0, "it is no longer marked: {again}");
    assert_eq!(checked.code, 9, "{}", checked.out);
    assert_eq!(
        (&healed["files_read"], &healed["chunks_healed"]),
        (&0.into(), &1.into())
    );
    assert_eq!(healed["published"], false, "{healed}");
    assert!(stored.restored(&first) == shown);
    assert_eq!(stored.check().code, 0);
}

#[test]
fn what_cannot_be_rebuilt_is_not_referred_to_and_said() {
    for damage in DAMAGES {
        let (stored, first, _) = stored(Kind::Repository);
        damage(&stored.chunks()[0]);
        // Two of three files are what they were: the chunk cannot be rebuilt, and one of them is not even looked at.
        stored.write("0", &noise(7, 30_000));
        let touched = fs::File::open(stored.tree().join("1")).unwrap();
        touched
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();

        let second = stored.save();
        let checked = stored.check();

        assert_eq!(second["chunks_healed"], 0, "{second}");
        assert_eq!(second["chunks_damaged"], 1, "{second}");
        let snapshot = second["snapshot_id"].as_str().unwrap();
        assert!(stored.restored(snapshot) == show(&stored.tree()));
        assert_eq!(checked.code, 9, "{}", checked.out);
        assert!(
            checked.out.contains(&first) && !checked.out.contains(snapshot),
            "{}",
            checked.out
        );
    }
}

#[test]
fn a_large_file_of_which_a_chunk_is_missing_is_stored_again() {
    let stored = Stored::new(Kind::Repository);
    let mut bytes = noise(1, 12 << 20);
    stored.write("large", &bytes);
    let first = stored.saved();
    let shown = show(&stored.tree());
    let mut chunks = stored.chunks();
    chunks.sort_by_key(|path| fs::metadata(path).unwrap().len());
    remove(chunks.last().unwrap());
    bytes[5 << 20] ^= 1;
    stored.write("large", &bytes);

    let second = stored.save();

    let snapshot = second["snapshot_id"].as_str().unwrap();
    assert!(stored.restored(snapshot) == show(&stored.tree()));
    // Unless the changed byte lay in it, the missing chunk is whole again too.
    let healed = second["chunks_healed"].as_u64().unwrap();
    let (restored, then) = stored.try_restore(&first);
    assert_eq!(restored.code == 0, healed == 1, "{second} {}", restored.out);
    assert!(then.is_none_or(|then| then == shown));
}
