//! The rows of tables, counted in another process, of databases that would rather not be counted.

use super::{Home, checker, contents, forge, shell};
use stasis_disk::check::sqlite::{TableRows, table_rows};
use stasis_disk::check::{CheckSettings, Spawn, SqliteAccess};
use stasis_model::tree::EntryPath;
use std::fs;
use std::time::{Duration, Instant};

const ACCESS: [SqliteAccess; 2] = [SqliteAccess::Copy, SqliteAccess::InPlace];

impl Home {
    /// Counts the tables of `db`; nothing is left behind or changed.
    fn counted(
        &self,
        settings: &CheckSettings,
        spawn: &Spawn,
    ) -> Option<Result<TableRows, String>> {
        let before = contents(&self.at(""));
        let path = EntryPath::parse(b"db").unwrap();
        let counted = table_rows(&self.root(), &path, settings, spawn).unwrap();
        assert_eq!(contents(&self.at("")), before, "the original is as it was");
        assert_eq!(contents(&self.0.path().join("copies")), [], "no copy stays");
        counted
    }

    /// Counts them of a copy and in place: both ways must say the same.
    fn rows(&self) -> TableRows {
        let [of_copy, in_place] = ACCESS.map(|access| {
            let settings = CheckSettings {
                access,
                ..self.settings()
            };
            self.counted(&settings, &checker()).unwrap().unwrap()
        });
        assert_eq!(of_copy, in_place);
        of_copy
    }
}

#[test]
fn every_table_is_counted_whatever_its_name() {
    let home = Home::new();
    let made = "CREATE TABLE plain(x); CREATE TABLE \"odd \"\" name\n\"(x); CREATE TABLE none(x);
                CREATE VIEW v AS SELECT * FROM plain; CREATE INDEX i ON plain(x);
                INSERT INTO plain VALUES (1), (2); INSERT INTO \"odd \"\" name\n\" VALUES (1);";
    home.connection().execute_batch(made).unwrap();

    let rows = home.rows();

    let expected = [("none", 0), ("odd \" name\n", 1), ("plain", 2)];
    let expected = expected.map(|(name, rows)| (name.to_owned(), rows));
    assert_eq!(rows.counted, expected.into());
    assert!(rows.uncounted.is_empty(), "{rows:?}");
}

#[test]
fn what_lies_in_the_log_is_counted_too() {
    let home = Home::new();
    let connection = home.furnish();
    let mode = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0";
    connection.execute_batch(mode).unwrap();
    connection
        .execute_batch("INSERT INTO t(name) VALUES ('in the log')")
        .unwrap();

    assert_eq!(home.rows().counted["t"], 2001);
}

#[test]
fn what_is_no_database_has_no_tables() {
    let home = Home::new();
    let settings = home.settings();
    let dead = shell("kill -9 $$");

    assert_eq!(home.counted(&settings, &dead), None, "nothing is there");
    fs::write(home.at("db"), "").unwrap();
    assert_eq!(home.counted(&settings, &dead), None, "it is empty");
    fs::write(home.at("db"), "a letter to somebody ".repeat(500)).unwrap();
    assert_eq!(home.counted(&settings, &dead), None, "it is a letter");
}

#[test]
fn a_table_that_cannot_be_counted_is_named_and_the_others_are_counted() {
    let home = Home::new();
    let forgery = "INSERT INTO sqlite_schema VALUES ('table', 'v', 'v', 0, 'CREATE VIRTUAL TABLE v USING theirs(a)')";
    forge(&home.furnish(), forgery);

    let rows = home.rows();

    assert_eq!(rows.counted, [("t".to_owned(), 2000)].into());
    let uncounted: Vec<&String> = rows.uncounted.keys().collect();
    assert_eq!(uncounted, ["v"]);
    let home = Home::new();
    let connection = home.furnish();
    connection.execute_batch("CREATE TABLE sound(x)").unwrap();
    drop(connection);
    // The roots of `t` and of its index, whichever is counted.
    home.poke("db", 4096, &[0x5a; 2 * 4096]);

    let rows = home.rows();

    assert_eq!(rows.counted, [("sound".to_owned(), 0)].into());
    assert!(rows.uncounted["t"].contains("malformed"), "{rows:?}");
}

#[test]
fn of_a_schema_that_cannot_be_believed_nothing_is_counted() {
    let home = Home::new();
    // A view that says that it is a table, and never ends.
    let forgery = "INSERT INTO sqlite_schema VALUES ('table', 'v', 'v', 0, 'CREATE VIEW v AS \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n')";
    forge(&home.furnish(), forgery);

    let counted = home.counted(&home.settings(), &checker()).unwrap();

    assert_eq!(counted.unwrap_err(), "malformed database schema (v)");
}

/// A page of a tree whose every child is the next page.
fn page_of_children(page: u32) -> Vec<u8> {
    const CELLS: u16 = 60;
    let begin = 512 - 5 * CELLS;
    let mut bytes = vec![5, 0, 0];
    bytes.extend(CELLS.to_be_bytes());
    bytes.extend(begin.to_be_bytes());
    bytes.push(0);
    bytes.extend((page + 1).to_be_bytes());
    for cell in 0..CELLS {
        bytes.extend((begin + 5 * cell).to_be_bytes());
    }
    bytes.resize(begin.into(), 0);
    for cell in 0..u8::try_from(CELLS).unwrap() {
        bytes.extend((page + 1).to_be_bytes());
        bytes.push(cell + 1);
    }
    bytes
}

/// A page with one row of one column that holds nothing.
fn page_of_a_row() -> Vec<u8> {
    let mut bytes = vec![13, 0, 0, 0, 1];
    bytes.extend(508_u16.to_be_bytes());
    bytes.push(0);
    bytes.extend(508_u16.to_be_bytes());
    bytes.resize(508, 0);
    bytes.extend([2, 1, 2, 0]);
    bytes
}

#[test]
fn a_tree_that_says_that_it_has_more_rows_than_anybody_can_count_is_given_up() {
    const LEAF: u32 = 13;
    let home = Home::new();
    let made = "PRAGMA page_size = 512; CREATE TABLE t(x);
                WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
                INSERT INTO t SELECT zeroblob(300) FROM n;";
    home.connection().execute_batch(made).unwrap();
    let at = |page: u32| u64::from(page - 1) * 512;
    home.poke("db", at(LEAF), &page_of_a_row());
    home.poke("db", at(LEAF - 1), &page_of_children(LEAF - 1));
    home.poke("db", at(2), &page_of_children(LEAF - 2));
    // With two levels it is a table like any other.
    assert_eq!(home.rows().counted["t"], 61 * 61);

    for page in 2..LEAF {
        home.poke("db", at(page), &page_of_children(page));
    }
    for access in ACCESS {
        let settings = CheckSettings {
            access,
            time: Duration::from_secs(2),
            ..home.settings()
        };
        let began = Instant::now();

        let counted = home.counted(&settings, &checker());

        assert_eq!(counted, Some(Err("it took too long".to_owned())));
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}

#[test]
fn of_a_process_that_dies_nothing_is_believed() {
    let home = Home::new();
    drop(home.furnish());
    for access in ACCESS {
        let settings = CheckSettings {
            access,
            ..home.settings()
        };
        let all = "printf 'rows 74 1\\nwhole\\n'";
        let part = "printf 'rows 74 1\\n'; kill -ABRT $$";

        let counted = home.counted(&settings, &shell(all)).unwrap();
        let died = home.counted(&settings, &shell(part)).unwrap();

        assert_eq!(counted.unwrap().counted["t"], 1, "the process is asked");
        assert!(died.unwrap_err().contains("died without an answer"));
    }
}

#[test]
fn a_database_that_is_larger_than_allowed_is_not_opened() {
    let home = Home::new();
    drop(home.furnish());
    let bytes = fs::metadata(home.at("db")).unwrap().len();
    let counted = |largest| {
        let settings = CheckSettings {
            largest,
            ..home.settings()
        };
        home.counted(&settings, &checker()).unwrap()
    };

    assert_eq!(counted(bytes).unwrap().counted["t"], 2000);
    assert!(counted(bytes - 1).unwrap_err().contains("are allowed"));
}
