//! What a change is, seen from outside.

use super::*;
use stasis_model::tree::Metadata;

fn entry(path: &str, kind: EntryKind, seconds: i64) -> Entry {
    let modified = FileTime { seconds, nanos: 0 };
    Entry {
        path: path.parse().unwrap(),
        kind,
        metadata: Metadata {
            modified,
            ..Metadata::default()
        },
        attributes: Vec::new(),
    }
}

fn file(path: &str, seconds: i64) -> Entry {
    entry(path, EntryKind::File { size: 1 }, seconds)
}

#[test]
fn what_a_save_touches_each_time_is_no_change_and_what_others_write_is_one() {
    let tree = |directory, file_at, index_at: Option<i64>| {
        let index = index_at.map(|at| file("data/app.db-shm", at));
        let own = [
            entry("data", EntryKind::Directory, directory),
            file("data/app.db", file_at),
        ];
        outside_of(own.into_iter().chain(index).collect())
    };

    let before = tree(1, 1, None);

    assert_eq!(before, tree(2, 1, None), "a journal came and went");
    assert_eq!(before, tree(2, 1, Some(2)), "a reader opened its log");
    assert_ne!(before, tree(1, 2, None));
    // Beside no database it is a file like any other.
    let alone = outside_of(vec![file("notes-shm", 1)]);
    assert_ne!(alone, outside_of(vec![file("notes-shm", 2)]));
}
