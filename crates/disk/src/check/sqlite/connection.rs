//! A database, opened by somebody who trusts nothing in it.

use super::limits::{ChildLimits, enclose};
use crate::fs::sys::descriptor;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

/// Opens the database so that nothing in it is trusted. A copy is recovered; what is opened in place has nothing to
/// recover, and is opened as a file that nobody changes: without locks, without looking beside it, and not for writing.
pub(super) fn open(limits: &ChildLimits) -> rusqlite::Result<Connection> {
    // SQLite opens what the name of our standard input leads to, so nobody may move it meanwhile.
    let input = format!("file:{}?immutable=1", descriptor::STANDARD_INPUT);
    let is_in_place = limits.task.is_in_place();
    let (name, flags) = if is_in_place {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        (&*input, flags)
    } else {
        ("db", OpenFlags::SQLITE_OPEN_READ_WRITE)
    };
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(name, flags)?;
    if is_in_place {
        // Nothing of it was parsed so far but a few numbers of its header.
        enclose().map_err(|_| rusqlite::Error::InvalidQuery)?;
    }
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Lower limits on what the schema may say would make a large honest one look malformed.
    for (limit, most) in [
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    ] {
        connection.set_limit(limit, most)?;
    }
    // With an exclusive lock the index of a log stays in memory; a constraint is an opinion, not damage.
    let heap = limits.memory / 2;
    connection.execute_batch(&format!(
        "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -8192;
         PRAGMA hard_heap_limit = {heap}; PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = OFF;
         PRAGMA ignore_check_constraints = ON;"
    ))?;
    Ok(connection)
}
