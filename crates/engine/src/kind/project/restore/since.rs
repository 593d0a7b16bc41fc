//! What an undo leaves as it is: entries that the restore did not touch, and that others changed since.
//!
//! *Always true:* an entry that the restore changed is taken back, with everything that leads to it; an SQLite database and its journals
//! are one entry.

use stasis_model::sqlite_file::owner_name;
use stasis_model::tree::EntryPath;
use stasis_model::tree::diff::ChangeKind;
use std::collections::{BTreeMap, BTreeSet};

/// Of what differs between the live tree and what an undo makes of it, that which the restore did not change: the topmost entries.
pub(super) fn untouched(
    differing: &[(EntryPath, ChangeKind)],
    changed: &[(EntryPath, ChangeKind)],
    is_database: impl Fn(&EntryPath) -> bool,
) -> Vec<EntryPath> {
    let database_of = |path: &EntryPath| database_of(path, &is_database);
    let mut touched: BTreeMap<EntryPath, ChangeKind> = BTreeMap::new();
    let mut leads_there: BTreeSet<EntryPath> = BTreeSet::new();
    for (path, change) in changed {
        let path = database_of(path);
        leads_there.extend(above(&path));
        touched.insert(path, *change);
    }
    let is_touched = |path: &EntryPath| touched.contains_key(path) || leads_there.contains(path);
    // Nothing stays in what becomes no directory again.
    let is_in_another_kind = |path: &EntryPath| {
        above(path).any(|one| touched.get(&one).copied() == Some(ChangeKind::Kind))
    };
    let all = differing.iter().map(|(path, _)| database_of(path));
    let all: BTreeSet<EntryPath> = all
        .filter(|path| !is_touched(path) && !is_in_another_kind(path))
        .collect();
    let is_topmost = |path: &&EntryPath| !above(path).any(|one| all.contains(&one));
    all.iter().filter(is_topmost).cloned().collect()
}

/// The directories above an entry, without the root.
fn above(path: &EntryPath) -> impl Iterator<Item = EntryPath> {
    let up = |path: &EntryPath| path.split_last().map(|(above, _)| above);
    std::iter::successors(up(path), move |path| up(path)).take_while(|path| !path.is_root())
}

/// The database that a journal belongs to, by its name; else the entry itself.
fn database_of(path: &EntryPath, is_database: impl Fn(&EntryPath) -> bool) -> EntryPath {
    let database = owner_name(path.as_bytes()).and_then(|name| EntryPath::parse(name).ok());
    let database = database.filter(is_database);
    database.unwrap_or_else(|| path.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ChangeKind::{Added, Content, Kind, Metadata, Removed};

    fn all(entries: &[(&str, ChangeKind)]) -> Vec<(EntryPath, ChangeKind)> {
        let parsed = |one: &(&str, ChangeKind)| (one.0.parse().unwrap(), one.1);
        entries.iter().map(parsed).collect()
    }

    #[track_caller]
    fn stays(now: &[(&str, ChangeKind)], restored: &[(&str, ChangeKind)], expected: &[&str]) {
        let left = untouched(&all(now), &all(restored), |path| {
            path.as_bytes().ends_with(b".db")
        });
        let left: Vec<String> = left.iter().map(ToString::to_string).collect();
        assert_eq!(left, expected);
    }

    #[test]
    fn what_the_restore_changed_is_taken_back_and_the_rest_stays() {
        stays(
            &[("a", Content), ("b", Content), ("new", Added)],
            &[("a", Content)],
            &["b", "new"],
        );
        // A directory that was made since stays as a whole.
        stays(&[("n", Added), ("n/x", Added)], &[("a", Content)], &["n"]);
    }

    #[test]
    fn what_leads_to_a_change_is_no_obstacle() {
        stays(
            &[("d", Metadata), ("d/a", Content), ("d/b", Content)],
            &[("d/a", Content)],
            &["d/b"],
        );
        // It was removed as a whole since; only what the restore had taken out of it comes back.
        stays(
            &[("d", Removed), ("d/a", Removed), ("d/b", Removed)],
            &[("d/a", Removed)],
            &["d/b"],
        );
        // Something new in a directory that the restore had made.
        stays(
            &[("d", Added), ("d/a", Added), ("d/new", Added)],
            &[("d", Added), ("d/a", Added)],
            &["d/new"],
        );
    }

    #[test]
    fn nothing_stays_in_a_directory_that_becomes_a_file() {
        stays(
            &[("d", Kind), ("d/new", Added)],
            &[("d", Kind), ("d/a", Added)],
            &[],
        );
    }

    #[test]
    fn a_database_is_one_entry_with_its_journals() {
        stays(
            &[("a.db", Content), ("a.db-wal", Added), ("b.db-wal", Added)],
            &[("a.db", Content)],
            &["b.db"],
        );
        stays(&[("a.db", Content)], &[("a.db-wal", Removed)], &[]);
        // A file that is only called so is a file of its own.
        stays(
            &[("notes", Content), ("notes-journal", Content)],
            &[("notes", Content)],
            &["notes-journal"],
        );
    }
}
