//! What a state has lost since an earlier one: nearly all of its entries, or a database.
//!
//! It is said of snapshots that nobody looked at when they were made. What was left out on purpose is not lost, nor is a database that was moved.

use super::shrink;
use crate::format::manifest::{Consistency, DatabaseManifest, SnapshotManifest, StoredAs};

/// What `now` lacks that `before` has, in words.
pub fn since(before: &SnapshotManifest, now: &SnapshotManifest) -> Vec<String> {
    let (had, has) = (before.totals.entries(), now.totals.entries());
    let few = shrink::is_suspicious(had, has);
    let few = few.then(|| format!("of {had} entries {has} are left"));
    few.into_iter()
        .chain(databases(before, now))
        .chain(dumps(before, now))
        .collect()
}

/// Databases that are gone, not whole any more, or much smaller.
fn databases(before: &SnapshotManifest, now: &SnapshotManifest) -> impl Iterator<Item = String> {
    let may_be_left_out = before.patterns() != now.patterns();
    let is_moved = |one: &DatabaseManifest| {
        let mut new = now.databases.iter();
        new.any(|(path, new)| new.digest == one.digest && !before.databases.contains_key(path))
    };
    let whole = before.databases.iter();
    let whole = whole.filter(|(_, one)| one.state == StoredAs::Consistent);
    whole.filter_map(move |(path, one)| match now.databases.get(path) {
        None if may_be_left_out || is_moved(one) => None,
        None => Some(format!("database {path} is missing")),
        Some(new) if new.state != StoredAs::Consistent => {
            Some(format!("database {path} could not be copied whole"))
        }
        Some(new) if shrink::is_much_less(one.size, new.size) => {
            let (had, has) = (one.size, new.size);
            Some(format!("of {had} bytes of database {path} {has} are left"))
        }
        Some(_) => None,
    })
}

/// Dumps of servers that are gone or much smaller.
fn dumps(before: &SnapshotManifest, now: &SnapshotManifest) -> impl Iterator<Item = String> {
    let dumped = before.volume_manifests.iter();
    let dumped = dumped.filter(|(_, one)| one.consistency == Consistency::Postgres);
    dumped.filter_map(|(name, one)| {
        let has = now.volume_manifests.get(name).map_or(0, |new| new.size);
        let had = one.size;
        let is_less = shrink::is_much_less(had, has);
        is_less.then(|| format!("of {had} bytes of the dump of volume {name} {has} are left"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::FileDigest;
    use crate::id::OpId;
    use crate::time::Timestamp;

    fn state(databases: &[(&str, StoredAs, u64)]) -> SnapshotManifest {
        let (name, id) = ("shop".parse().unwrap(), "one".parse().unwrap());
        let at = Timestamp::from_millis(5);
        let mut state = SnapshotManifest::new(name, id, OpId::default(), at);
        let described = |(path, state, size): &(&str, StoredAs, u64)| {
            let (state, size) = (*state, *size);
            let digest = FileDigest::of(&size.to_le_bytes());
            (
                (*path).to_owned(),
                DatabaseManifest {
                    state,
                    size,
                    digest,
                },
            )
        };
        state.databases = databases.iter().map(described).collect();
        state.totals.files = 30;
        state
    }

    #[test]
    fn a_database_that_is_gone_broken_or_nearly_empty_is_lost() {
        const WHOLE: StoredAs = StoredAs::Consistent;
        let before = state(&[("app.db", WHOLE, 50_000)]);
        let lost = |now: &[(&str, StoredAs, u64)]| since(&before, &state(now));

        assert_eq!(lost(&[]), ["database app.db is missing"]);
        let torn = lost(&[("app.db", StoredAs::CrashConsistent, 50_000)]);
        assert_eq!(torn, ["database app.db could not be copied whole"]);
        let emptied = lost(&[("app.db", WHOLE, 4_096)]);
        assert_eq!(emptied, ["of 50000 bytes of database app.db 4096 are left"]);

        assert!(lost(&[("app.db", WHOLE, 40_000)]).is_empty());
        assert!(lost(&[("moved.db", WHOLE, 50_000)]).is_empty());
        // One that was never whole cannot be broken.
        let broken = state(&[("app.db", StoredAs::CrashConsistent, 50_000)]);
        assert!(since(&broken, &broken).is_empty());
    }

    #[test]
    fn what_was_left_out_on_purpose_is_not_lost_and_nearly_everything_is() {
        let before = state(&[("app.db", StoredAs::Consistent, 50_000)]);
        let mut now = state(&[]);
        now.excludes = vec!["*.db".to_owned()];
        assert!(since(&before, &now).is_empty());

        now.totals.files = 2;
        assert_eq!(since(&before, &now), ["of 30 entries 2 are left"]);
    }
}
