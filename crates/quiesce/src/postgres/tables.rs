//! How many rows each table has.

use super::client::Client;
use super::{Connection, PostgresError, PostgresSettings};

/// A table and how many rows it has; a partition is a table of its own, the whole it is part of is not.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TableRows {
    /// The schema it is in.
    pub schema: String,
    /// Its name.
    pub table: String,
    /// How many rows.
    pub rows: u64,
}

/// One statement for each table, in one view of the database. A row that we may not see is an error, not left out.
const COUNTS: &str = r"
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL row_security = off;
SELECT format('SELECT json_build_array(%L, %L, count(*)) FROM ONLY %I.%I', n.nspname, c.relname, n.nspname, c.relname)
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind = 'r' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
 ORDER BY n.nspname, c.relname \gexec
COMMIT;
";

/// Counts the rows of every table, in one view of the database. Reads all of it.
pub async fn table_counts(
    connection: &Connection,
    settings: &PostgresSettings,
) -> Result<Vec<TableRows>, PostgresError> {
    counts_of(Client::new(connection, settings), connection.database()).await
}

pub(super) async fn counts_of(
    client: Client<'_>,
    database: &str,
) -> Result<Vec<TableRows>, PostgresError> {
    let limit = client.settings.timeout;
    let asked = client.ask_within("count the rows of", database, COUNTS, limit);
    let mut tables = asked
        .await?
        .lines()
        .map(|line| {
            let (schema, table, rows) = serde_json::from_str(line).ok()?;
            Some(TableRows {
                schema,
                table,
                rows,
            })
        })
        .collect::<Option<Vec<_>>>()
        .ok_or(PostgresError::Answer {
            program: "psql",
            wanted: "how many rows a table has",
        })?;
    tables.sort();
    Ok(tables)
}
