//! How many rows a database has, for comparing two.

use super::find::is_database;
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::path::Path;

/// The number of rows of every table of a database that no other process has open; `None` when it is no database.
///
/// Tables that this build cannot read, as those of an extension, are left out.
pub fn row_counts(path: &Path) -> rusqlite::Result<Option<BTreeMap<String, u64>>> {
    if !is_database(path).unwrap_or(false) {
        return Ok(None);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags)?;
    let mut names = database.prepare(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
    )?;
    let names: Vec<String> = names
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut counts = BTreeMap::new();
    for name in names {
        let quoted = name.replace('"', "\"\"");
        let count = database.query_row(&format!("SELECT count(*) FROM \"{quoted}\""), [], |row| {
            row.get::<_, i64>(0)
        });
        if let Ok(count) = count {
            counts.insert(name, u64::try_from(count).unwrap_or_default());
        }
    }
    Ok(Some(counts))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests write files")]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_counted_whatever_its_name() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.db");
        let database = Connection::open(&path).unwrap();
        let made = "CREATE TABLE plain(x); CREATE TABLE \"odd \"\" name\"(x);
                    INSERT INTO plain VALUES (1), (2); INSERT INTO \"odd \"\" name\" VALUES (1);";
        database.execute_batch(made).unwrap();
        drop(database);
        std::fs::write(place.path().join("text"), "no database").unwrap();

        let counts = row_counts(&path).unwrap().unwrap();
        let none = row_counts(&place.path().join("text")).unwrap();

        assert_eq!(counts["plain"], 2);
        assert_eq!(counts["odd \" name"], 1);
        assert_eq!(none, None);
    }
}
