//! Which tables of databases have other numbers of rows in two snapshots.
//!
//! A snapshot may be a stranger's, so that no database of it is opened here: the confined process that checks databases counts
//! them, each within limits, and all within a time. What it does not count is named.

use crate::check::Spawn;
use crate::error::{Error, OPEN_DIRECTORY};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::check::sqlite::{TableRows, table_rows};
use stasis_disk::check::{CheckSettings, SqliteAccess};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_model::failure::{AtPath, error_chain};
use stasis_model::tree::EntryPath;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// How long all databases of a comparison may take, and one of them.
const IN_ALL: Duration = Duration::from_secs(30);
const EACH: Duration = Duration::from_secs(10);
/// How much address space the process has.
const MEMORY: u64 = 256 << 20;

/// A table of a SQLite database that has another number of rows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct TableDiff {
    /// Which database.
    pub path: String,
    /// Which table.
    pub table: String,
    /// Rows before; none when there was no such table.
    pub before: Option<u64>,
    /// Rows after.
    pub after: Option<u64>,
}

/// A SQLite database of which not every table could be counted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct UncountedDatabase {
    /// Which database.
    pub path: String,
    /// What of it, and why.
    pub why: String,
}

/// What is known of the databases that differ.
#[derive(Debug, Default)]
pub(super) struct ComparedRows {
    pub(super) tables: Vec<TableDiff>,
    pub(super) uncounted: Vec<UncountedDatabase>,
}

/// Two trees with the databases of a snapshot each, which nobody else enters, and how they are counted.
pub(super) struct RowComparison<'a> {
    before: RootDir,
    after: RootDir,
    copies: &'a Path,
    spawn: &'a Spawn,
    within: Duration,
}

impl<'a> RowComparison<'a> {
    /// Opens the trees; what has to be recovered first is copied to `copies`.
    pub(super) fn open(
        before: &Path,
        after: &Path,
        copies: &'a Path,
        spawn: &'a Spawn,
    ) -> Result<Self, Error> {
        let opened = |place| RootDir::open(place, Mounts::Stay).at(OPEN_DIRECTORY, place);
        Ok(Self {
            before: opened(before)?,
            after: opened(after)?,
            copies,
            spawn,
            within: IN_ALL,
        })
    }

    /// Compares the databases at these paths; what is none on either side is passed over.
    pub(super) fn compare(&self, paths: &[EntryPath]) -> ComparedRows {
        let (began, mut found) = (Instant::now(), ComparedRows::default());
        for path in paths {
            let left = || self.within.saturating_sub(began.elapsed());
            let count = |root, side: &str| {
                let counted = self.count(root, path, left())?;
                Some(counted.map_err(|why| format!("{side}: {why}")))
            };
            let Some(before) = count(&self.before, "before") else {
                continue;
            };
            let after = before.as_ref().ok().map(|_| count(&self.after, "after"));
            let why = match (before, after) {
                (_, Some(None)) => continue,
                (Ok(before), Some(Some(Ok(after)))) => {
                    found.tables.extend(differing(path, &before, &after));
                    missing(&before, &after)
                }
                (Err(why), _) | (_, Some(Some(Err(why)))) => Some(why),
                (Ok(_), None) => None,
            };
            found.uncounted.extend(why.map(|why| UncountedDatabase {
                path: path.to_string(),
                why,
            }));
        }
        found
    }

    /// Counts one database; `None` when it is none.
    fn count(
        &self,
        root: &RootDir,
        path: &EntryPath,
        left: Duration,
    ) -> Option<Result<TableRows, String>> {
        if left.is_zero() {
            return Some(Err("no time was left for it".to_owned()));
        }
        let settings = CheckSettings {
            access: SqliteAccess::InPlace,
            time: left.min(EACH),
            memory: MEMORY,
            ..CheckSettings::new(self.copies)
        };
        let counted = table_rows(root, path, &settings, self.spawn);
        counted.unwrap_or_else(|error| Some(Err(error_chain(&error))))
    }
}

/// The tables that were counted on both sides, or are on one side only, and differ.
fn differing(path: &EntryPath, before: &TableRows, after: &TableRows) -> Vec<TableDiff> {
    let names: BTreeSet<&String> = before.counted.keys().chain(after.counted.keys()).collect();
    let is_known = |name: &&String| {
        !before.uncounted.contains_key(*name) && !after.uncounted.contains_key(*name)
    };
    let row = |name: &String| TableDiff {
        path: path.to_string(),
        table: name.clone(),
        before: before.counted.get(name).copied(),
        after: after.counted.get(name).copied(),
    };
    let rows = names.into_iter().filter(is_known).map(row);
    rows.filter(|row| row.before != row.after).collect()
}

/// The first table that could not be counted on one side, and how many more there are.
fn missing(before: &TableRows, after: &TableRows) -> Option<String> {
    let sides = [("before", before), ("after", after)];
    let all = sides.iter().flat_map(|(side, rows)| {
        let rows = rows.uncounted.iter();
        rows.map(move |(table, why)| (side, table, why))
    });
    let (side, table, why) = all.clone().next()?;
    let others: BTreeSet<&String> = all.map(|(_, table, _)| table).collect();
    let more = match others.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(format!("{side}: table `{table}`: {why}{more}"))
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests write the databases that they compare"
)]
mod tests {
    use super::*;
    use stasis_model::sqlite_file::HEADER;
    use std::ffi::OsString;
    use std::fs;
    use tempfile::TempDir;

    /// Two trees with a file each that begins like a database and ends with a number.
    struct Trees(TempDir);

    impl Trees {
        fn new(names: &[&str]) -> Self {
            let home = tempfile::tempdir().unwrap();
            for (side, end) in [("before", "1"), ("after", "2")] {
                fs::create_dir(home.path().join(side)).unwrap();
                for name in names {
                    let content = [HEADER, end.as_bytes()].concat();
                    fs::write(home.path().join(side).join(name), content).unwrap();
                }
            }
            Self(home)
        }

        /// Compares with a process that is this script, with the database as its standard input.
        fn compared(&self, names: &[&str], script: &str, within: Duration) -> ComparedRows {
            let spawn = Spawn {
                program: "/bin/sh".into(),
                arguments: ["-c", script].map(OsString::from).to_vec(),
            };
            let [before, after] = ["before", "after"].map(|side| self.0.path().join(side));
            let opened = RowComparison::open(&before, &after, self.0.path(), &spawn);
            let comparison = RowComparison {
                within,
                ..opened.unwrap()
            };
            let paths = names.iter().map(|name| name.parse().unwrap());
            comparison.compare(&paths.collect::<Vec<EntryPath>>())
        }
    }

    fn rows(found: &ComparedRows) -> Vec<(&str, Option<u64>, Option<u64>)> {
        let tables = found.tables.iter();
        tables
            .map(|row| (&*row.table, row.before, row.after))
            .collect()
    }

    #[test]
    fn what_is_said_of_both_sides_is_compared_and_what_is_no_database_is_passed_over() {
        let trees = Trees::new(&["app.db", "text"]);
        fs::write(trees.0.path().join("after/text"), "no database").unwrap();
        // `a` has as many rows as the file says, `b` as many on both sides.
        let script = "printf 'rows 61 %s\\nrows 62 7\\nwhole\\n' \"$(tail -c1)\"";

        let found = trees.compared(&["text", "app.db"], script, IN_ALL);

        assert_eq!(rows(&found), [("a", Some(1), Some(2))]);
        assert_eq!(found.tables[0].path, "app.db");
        assert_eq!(found.uncounted, []);
    }

    #[test]
    fn a_table_that_was_not_counted_is_no_table_that_is_gone() {
        let trees = Trees::new(&["app.db"]);
        let script = "case $(tail -c1) in 1) printf 'rows 61 1\\nrows 62 1\\nwhole\\n';;
            *) printf 'uncounted 61 odd\\nuncounted 63 odd\\nrows 64 1\\nwhole\\n';; esac";

        let found = trees.compared(&["app.db"], script, IN_ALL);

        assert_eq!(rows(&found), [("b", Some(1), None), ("d", None, Some(1))]);
        let why = "after: table `a`: odd (and 1 more)";
        let uncounted = UncountedDatabase {
            path: "app.db".to_owned(),
            why: why.to_owned(),
        };
        assert_eq!(found.uncounted, [uncounted]);
    }

    #[test]
    fn of_a_process_that_dies_nothing_is_believed_and_the_next_database_is_counted() {
        let trees = Trees::new(&["bad.db", "good.db"]);
        fs::write(
            trees.0.path().join("after/bad.db"),
            [HEADER, b"x".as_slice()].concat(),
        )
        .unwrap();
        let script = "end=$(tail -c1); printf 'rows 61 %s\\n' \"$end\"; test \"$end\" != x || kill -ABRT $$; echo whole";

        let found = trees.compared(&["bad.db", "good.db"], script, IN_ALL);

        assert_eq!(rows(&found), [("a", Some(1), Some(2))]);
        assert_eq!(found.tables[0].path, "good.db");
        let [bad] = &found.uncounted[..] else {
            panic!("{:?}", found.uncounted);
        };
        assert_eq!(bad.path, "bad.db");
        assert!(bad.why.starts_with("after: "), "{}", bad.why);
        assert!(bad.why.contains("died without an answer"), "{}", bad.why);
    }

    #[test]
    fn a_process_that_does_not_end_costs_what_all_may_take_and_no_more() {
        let trees = Trees::new(&["one.db", "two.db"]);
        let began = Instant::now();

        let found = trees.compared(
            &["one.db", "two.db"],
            "exec sleep 600",
            Duration::from_secs(1),
        );

        assert!(began.elapsed() < Duration::from_mins(1));
        assert_eq!(rows(&found), []);
        let whys: Vec<&str> = found.uncounted.iter().map(|one| &*one.why).collect();
        let late = "before: no time was left for it";
        assert_eq!(whys, ["before: it took too long", late]);
    }
}
