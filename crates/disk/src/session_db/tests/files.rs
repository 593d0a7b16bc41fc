//! The file: made, shared, refused, copied.

use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Every file in a directory, with its bytes.
fn all(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read(&path).unwrap_or_default())
    });
    let mut all: Vec<_> = entries.collect();
    all.sort();
    all
}

#[test]
fn a_new_database_is_its_owners_has_a_log_and_says_whose_it_is() {
    let home = Home::new();
    home.tell(&[(Created, "a")]);

    for end in ["", "-wal", "-shm"] {
        let path = home.directory.path().join(format!("{DATABASE}{end}"));
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{}", path.display());
    }
    let names: Vec<String> = all(home.directory.path())
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, [DATABASE, "session.db-shm", "session.db-wal"]);
    let number = |pragma| home.ask::<i32>(pragma).concat();
    assert_eq!(number("PRAGMA application_id"), [0x5374_6173]);
    assert_eq!(number("PRAGMA user_version"), [1]);
    assert_eq!(home.ask::<String>("PRAGMA journal_mode").concat(), ["wal"]);
    let connection = home.ledger.connection();
    let connection = connection.as_ref().unwrap();
    let asked = |pragma: &str| {
        connection
            .query_row(pragma, [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    assert_eq!(asked("PRAGMA synchronous"), 1, "NORMAL");
    assert_eq!(asked("PRAGMA busy_timeout"), 10_000);
}

#[test]
fn all_who_open_it_first_at_once_get_the_same_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(DATABASE);

    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let ledger = SessionDb::open(&path).unwrap();
                tell(&ledger, &[(Created, "a")], &mut |_| None);
            });
        }
    });

    let ledger = SessionDb::open(&path).unwrap();
    assert_eq!(ledger.last_event_id().unwrap(), 8);
    drop(ledger);
    assert_eq!(all(directory.path()).len(), 1, "nothing is left beside it");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test makes its files")]
fn what_a_crash_left_while_it_was_made_is_no_hindrance() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(DATABASE);
    let pid = std::process::id();
    for number in 0..3 {
        let left = format!(".stasis-tmp-{pid}-{number}-{DATABASE}");
        fs::write(directory.path().join(left), "half").unwrap();
    }
    SessionDb::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "").unwrap();

    let ledger = SessionDb::open(&path).unwrap();

    tell(&ledger, &[(Created, "a")], &mut |_| None);
    assert_eq!(ledger.last_event_id().unwrap(), 1);
    let mode: String = ledger
        .connection()
        .as_ref()
        .unwrap()
        .query_row("PRAGMA journal_mode", [], |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test makes its files")]
fn a_file_that_is_not_ours_is_refused_and_left_as_it_is() {
    let text: fn(&Path) = |path| fs::write(path, "dear diary\n").unwrap();
    let link: fn(&Path) = |path| std::os::unix::fs::symlink("elsewhere", path).unwrap();
    let directory: fn(&Path) = |path| fs::create_dir(path).unwrap();
    let database: fn(&Path) = |path| {
        let connection = Connection::open(path).unwrap();
        connection.execute_batch("CREATE TABLE theirs (a)").unwrap();
    };
    // As a process that was killed leaves it: with a log that the next one to open it writes down.
    let logged: fn(&Path) = |path| {
        let connection = Connection::open(path).unwrap();
        let sql =
            "CREATE TABLE theirs (a); PRAGMA journal_mode = WAL; INSERT INTO theirs VALUES (1)";
        connection.execute_batch(sql).unwrap();
        let wal = path.with_file_name("session.db-wal");
        let bytes = (fs::read(path).unwrap(), fs::read(&wal).unwrap());
        drop(connection);
        fs::write(path, bytes.0).unwrap();
        fs::write(wal, bytes.1).unwrap();
    };
    for make in [text, link, directory, database, logged] {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(DATABASE);
        make(&path);
        let before = all(home.path());

        let refused = SessionDb::open(&path).unwrap_err();

        assert!(
            matches!(refused, SessionDbError::Foreign { .. }),
            "{refused:?}"
        );
        assert!(refused.to_string().contains(DATABASE));
        assert_eq!(all(home.path()), before);
    }
}

#[test]
fn a_database_of_a_later_version_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(DATABASE);
    drop(SessionDb::open(&path).unwrap());
    let later = Connection::open(&path).unwrap();
    later.pragma_update(None, "user_version", 2).unwrap();

    let in_the_log = SessionDb::open(&path).unwrap_err();
    drop(later);
    let before = all(directory.path());
    let in_the_file = SessionDb::open(&path).unwrap_err();

    assert!(matches!(
        in_the_log,
        SessionDbError::Newer {
            found: 2,
            known: 1,
            ..
        }
    ));
    assert!(matches!(
        in_the_file,
        SessionDbError::Newer {
            found: 2,
            known: 1,
            ..
        }
    ));
    assert_eq!(all(directory.path()), before);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test damages a file")]
fn damage_is_told_apart_from_other_failures() {
    let home = Home::new();
    for _ in 0..200 {
        home.tell(&[(Created, "some/file")]);
    }
    let (path, Home { directory, ledger }) = (home.path(), home);
    drop(ledger);
    let mut bytes = fs::read(&path).unwrap();
    for page in bytes.chunks_mut(4096).skip(1) {
        page[..64].fill(0xa5);
    }
    fs::write(&path, bytes).unwrap();

    let ledger = SessionDb::open(&path).unwrap();
    let told = ledger.events(0, None, 9).unwrap_err();

    assert!(matches!(told, SessionDbError::Damaged { .. }), "{told:?}");
    let nowhere = SessionDb::open(&directory.path().join("no/such/place")).unwrap_err();
    assert!(matches!(nowhere, SessionDbError::Failed(_)), "{nowhere:?}");
}

#[test]
fn a_copy_has_what_was_written_before_and_nothing_of_what_comes_after() {
    let home = Home::new();
    home.tell(&[(Created, "a")]);
    home.ledger.keep("key", b"value").unwrap();
    let fork = tempfile::tempdir().unwrap();
    let copy = fork.path().join(DATABASE);

    home.ledger.copy_to(&copy).unwrap();
    home.tell(&[(Created, "b")]);
    let taken = home.ledger.copy_to(&copy).unwrap_err();

    assert!(matches!(taken, SessionDbError::Failed(_)), "{taken:?}");
    assert_eq!(all(fork.path()).len(), 1, "nothing is left beside it");
    let mode = copy.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let copy = SessionDb::open(&copy).unwrap();
    assert_eq!(copy.last_event_id().unwrap(), 1);
    assert_eq!(copy.kept("key").unwrap().unwrap(), b"value");
    tell(&copy, &[(Created, "c")], &mut |_| None);
    assert_eq!(home.written(), ["created a", "created b"]);
}

#[test]
fn a_copy_of_a_database_that_is_being_written_is_one_state_of_it() {
    let home = Home::new();
    let fork = tempfile::tempdir().unwrap();

    std::thread::scope(|scope| {
        let writer = home.again();
        scope.spawn(move || {
            for _ in 0..300 {
                tell(&writer, &[(Created, "a"), (Deleted, "a")], &mut |_| None);
            }
        });
        for number in 0..10 {
            let copy = fork.path().join(number.to_string());
            home.ledger.copy_to(&copy).unwrap();
            let copy = SessionDb::open(&copy).unwrap();
            let events = copy.events(0, None, usize::MAX).unwrap();
            assert_eq!(events.len() % 2, 0, "whole transactions only");
            let checked: String = copy
                .connection()
                .as_ref()
                .unwrap()
                .query_row("PRAGMA integrity_check", [], |row| row.get(0))
                .unwrap();
            assert_eq!(checked, "ok");
        }
    });
}

#[test]
fn it_can_be_opened_while_others_write_and_their_log_is_written_down() {
    let home = Home::new();
    let writer = home.again();

    std::thread::scope(|scope| {
        let writing = scope.spawn(move || {
            for _ in 0..200 {
                let events = [(Created, "some/rather/long/path/of/a/file"); 50];
                tell(&writer, &events, &mut |_| None);
                let log = "PRAGMA wal_checkpoint(PASSIVE)";
                writer
                    .connection()
                    .as_ref()
                    .unwrap()
                    .query_row(log, [], |_| Ok(()))
                    .unwrap();
            }
        });
        while !writing.is_finished() {
            home.again().last_event_id().unwrap();
        }
    });

    assert_eq!(home.ledger.last_event_id().unwrap(), 10_000);
}

#[test]
fn whoever_waited_in_vain_can_tell_and_reads_all_the_same() {
    let home = Home::new();
    home.tell(&[(Created, "a")]);
    let other = Connection::open(home.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let busy_timeout = std::time::Duration::from_millis(1);
    home.ledger
        .connection()
        .as_ref()
        .unwrap()
        .busy_timeout(busy_timeout)
        .unwrap();

    let refused = home.ledger.keep("key", b"value").unwrap_err();
    let nothing_to_write = home.tell(&[]);

    assert!(refused.is_busy(), "{refused:?}");
    assert_eq!(nothing_to_write, RecordedEvents::default());
    assert_eq!(home.ledger.last_event_id().unwrap(), 1);
    other.execute_batch("ROLLBACK").unwrap();
    home.ledger.keep("key", b"value").unwrap();
}

#[test]
fn a_look_sees_what_is_only_in_the_log_and_writes_nothing() {
    let home = Home::new();
    let now = Timestamp::from_millis(1_000);
    home.ledger.skipped(now, "in the log").unwrap();
    let (whole, left) = (home.directory.path(), tempfile::tempdir().unwrap());
    // As whoever was killed leaves it.
    for end in ["", "-wal"] {
        let name = format!("{DATABASE}{end}");
        fs::copy(whole.join(&name), left.path().join(&name)).unwrap();
    }
    let before = all(left.path());
    let path = left.path().join(DATABASE);
    let sql = "SELECT because FROM stasis_skipped";

    let look = schema::look(&path).unwrap();
    let seen: String = look.query_row(sql, [], |row| row.get(0)).unwrap();
    drop(look);

    assert_eq!(seen, "in the log");
    assert_eq!(all(left.path()), before);
    drop(SessionDb::open(&path).unwrap());
    let look = schema::look(&path).unwrap();
    let seen: String = look.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(seen, "in the log", "also when there is no log");
    assert_eq!(all(left.path()).len(), 1);
}

#[test]
fn any_thread_may_use_it() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<SessionDb>();
}
