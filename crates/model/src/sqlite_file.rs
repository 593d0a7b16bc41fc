//! The files of a SQLite database as seen from outside: how the file begins, what lies beside it, and which bytes are locked.
//!
//! Several parts ask whether a file is a database, which files belong to it and whether a program has it open, each with the
//! system calls of its own. What they look for is the same and is fixed by SQLite's file format and its locking protocol.

/// What every database begins with; an empty file is a database too.
pub const HEADER: &[u8; 16] = b"SQLite format 3\0";

/// The ends of the names of what SQLite keeps beside a database: its write-ahead log, its rollback journal, and the shared index of
/// the log. Only the first two hold what the database does not.
pub const COMPANIONS: [&[u8]; 3] = [b"-wal", b"-journal", b"-shm"];

/// The companions that hold what the database does not.
pub const LOGS: [&[u8]; 2] = [b"-wal", b"-journal"];

/// The name of the database that a file would belong to, going by its own name.
pub fn owner_name(name: &[u8]) -> Option<&[u8]> {
    let owner = COMPANIONS.iter().find_map(|end| name.strip_suffix(*end));
    owner.filter(|owner| !owner.is_empty())
}

/// Bytes of a file that SQLite locks; they need not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockRange {
    /// The first byte.
    pub start: i64,
    /// How many bytes.
    pub length: i64,
}

const LOCK_BYTES: i64 = 0x4000_0000;

/// Held by a writer that waits for readers to end; no new reader begins then.
pub const PENDING_LOCK: LockRange = LockRange {
    start: LOCK_BYTES,
    length: 1,
};
/// Held by the one connection that is going to write.
pub const RESERVED_LOCK: LockRange = LockRange {
    start: LOCK_BYTES + 1,
    length: 1,
};
/// Shared by readers, and held alone by a writer while it changes the database.
pub const SHARED_LOCK: LockRange = LockRange {
    start: LOCK_BYTES + 2,
    length: 510,
};
/// All three: a program with any lock on the database has one of these.
pub const DATABASE_LOCKS: LockRange = LockRange {
    start: LOCK_BYTES,
    length: 512,
};
/// The locks in the `-shm` file of a database in WAL mode: a program that has it open has one of these.
pub const INDEX_LOCKS: LockRange = LockRange {
    start: 120,
    length: 9,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_companion_names_its_database_and_a_bare_end_names_none() {
        assert_eq!(owner_name(b"app.db-wal"), Some(&b"app.db"[..]));
        assert_eq!(owner_name(b"app.db-journal"), Some(&b"app.db"[..]));
        assert_eq!(owner_name(b"app.db-shm"), Some(&b"app.db"[..]));
        assert_eq!(owner_name(b"app.db"), None);
        assert_eq!(owner_name(b"-wal"), None);
    }

    #[test]
    fn the_three_locks_are_all_of_the_lock_bytes() {
        let end = |range: LockRange| range.start + range.length;

        assert_eq!(PENDING_LOCK.start, DATABASE_LOCKS.start);
        assert_eq!(end(PENDING_LOCK), RESERVED_LOCK.start);
        assert_eq!(end(RESERVED_LOCK), SHARED_LOCK.start);
        assert_eq!(end(SHARED_LOCK), end(DATABASE_LOCKS));
    }
}
