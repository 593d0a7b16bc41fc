//! Databases made by SQLite itself, damaged in many ways, and checked in another process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests make the databases that they look at"
)]

use rusqlite::Connection;
use stasis_disk::check::{
    self, CheckSettings, Depth, Recovered, Spawn, SqliteAccess, Verdict, sqlite,
};
use stasis_disk::form::archive::{Archive, ArchiveError, CreateSettings, ReadSettings};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_model::tree::{EntryKind, EntryPath};
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

#[path = "check/table_rows.rs"]
mod table_rows;

/// A directory with a tree to check and one for copies.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("tree")).unwrap();
        fs::create_dir(home.path().join("copies")).unwrap();
        Self(home)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join("tree").join(name)
    }

    fn settings(&self) -> CheckSettings {
        CheckSettings {
            time: Duration::from_secs(20),
            memory: 256 << 20,
            ..CheckSettings::new(self.0.path().join("copies"))
        }
    }

    fn root(&self) -> RootDir {
        RootDir::open(&self.at(""), Mounts::Stay).unwrap()
    }

    /// Checks `db`, and that nothing was left behind or changed.
    fn check_with(&self, settings: &CheckSettings, spawn: &Spawn) -> Verdict {
        let before = contents(&self.at(""));
        let path = EntryPath::parse(b"db").unwrap();
        let verdict = sqlite::check(&self.root(), &path, settings, spawn).unwrap();
        assert_eq!(contents(&self.at("")), before, "the original is as it was");
        assert_eq!(contents(&self.0.path().join("copies")), [], "no copy stays");
        verdict
    }

    /// Checks a copy of `db`, and `db` itself: both ways must say the same.
    fn check(&self, depth: Depth) -> Verdict {
        let settings = CheckSettings {
            depth,
            ..self.settings()
        };
        let in_place = CheckSettings {
            access: SqliteAccess::InPlace,
            ..settings.clone()
        };
        let verdict = self.check_with(&settings, &checker());
        assert_eq!(self.check_with(&in_place, &checker()), verdict, "in place");
        verdict
    }

    fn connection(&self) -> Connection {
        Connection::open(self.at("db")).unwrap()
    }

    /// A database of some hundred pages with an index.
    fn furnish(&self) -> Connection {
        let connection = self.connection();
        connection
            .execute_batch(
                "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT COLLATE NOCASE, body BLOB);
                 CREATE INDEX by_name ON t(name);
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
                 INSERT INTO t SELECT i, 'name ' || i, zeroblob(300) FROM n;",
            )
            .unwrap();
        connection
    }

    fn poke(&self, name: &str, offset: u64, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(self.at(name)).unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }
}

fn contents(directory: &Path) -> Vec<(OsString, u64, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let size = entry.metadata().unwrap().len();
        let bytes = if size < 64 << 20 && entry.file_type().unwrap().is_file() {
            fs::read(entry.path()).unwrap()
        } else {
            Vec::new()
        };
        all.push((entry.file_name(), size, bytes));
    }
    all.sort();
    all
}

/// The example of this crate that does nothing but check; cargo builds it with the tests.
fn checker() -> Spawn {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap().parent().unwrap();
    let program = built.join("examples/check_sqlite");
    assert!(
        program.exists(),
        "run `cargo build -p stasis-disk --examples`"
    );
    Spawn {
        program,
        arguments: Vec::new(),
    }
}

fn shell(script: &str) -> Spawn {
    Spawn {
        program: "/bin/sh".into(),
        arguments: ["-c", script].map(OsString::from).to_vec(),
    }
}

fn recovered(verdict: &Verdict) -> Recovered {
    match verdict {
        Verdict::Sound { recovered, .. } => *recovered,
        other => panic!("{other:?}"),
    }
}

fn unchecked(verdict: &Verdict) -> Vec<String> {
    match verdict {
        Verdict::Sound { unchecked, .. } => unchecked.kept().to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Changes the schema behind SQLite's back.
fn forge(connection: &Connection, statement: &str) {
    let forged = format!("PRAGMA writable_schema = ON; {statement}; PRAGMA writable_schema = OFF;");
    connection.execute_batch(&forged).unwrap();
}

#[test]
fn a_sound_database_is_sound() {
    let home = Home::new();
    drop(home.furnish());

    for depth in [Depth::Quick, Depth::Full] {
        let verdict = home.check(depth);

        assert!(
            matches!(verdict, Verdict::Sound { pages: 100.., .. }),
            "{verdict:?}"
        );
        assert_eq!(recovered(&verdict), Recovered::Nothing);
        assert!(unchecked(&verdict).is_empty());
    }
}

/// Says that a database is sound if it is there as a copy, or in `input` if it is the standard input.
fn asked_for(is_copy: bool) -> Spawn {
    let found = if is_copy { "-s db" } else { "! -e db" };
    shell(&format!(
        "test {found} || exit 1; printf 'pages 1\\nclaim sound\\n'"
    ))
}

#[test]
fn only_what_has_something_to_recover_is_copied_in_a_tree_that_nobody_enters() {
    let home = Home::new();
    drop(home.furnish());
    let in_place = CheckSettings {
        access: SqliteAccess::InPlace,
        ..home.settings()
    };
    let is_copied = |settings: &CheckSettings| {
        let copied = home.check_with(settings, &asked_for(true)).is_sound();
        let opened = home.check_with(settings, &asked_for(false)).is_sound();
        (copied, opened)
    };

    let by_default = is_copied(&home.settings());
    let at_rest = is_copied(&in_place);
    fs::write(home.at("db-journal"), b"").unwrap();
    let with_empty_journal = is_copied(&in_place);
    fs::write(home.at("db-wal"), b"x").unwrap();
    let with_log = is_copied(&in_place);

    assert_eq!(by_default, (true, false));
    // Whoever cannot open it in place is given a copy.
    assert_eq!(at_rest, (true, true));
    assert_eq!(with_empty_journal, (true, true));
    assert_eq!(with_log, (true, false));
}

#[test]
fn nothing_at_all_is_an_empty_database_and_something_else_is_none() {
    let home = Home::new();
    fs::write(home.at("db"), "").unwrap();
    assert!(matches!(
        home.check(Depth::Full),
        Verdict::Sound { pages: 0, .. }
    ));

    fs::write(home.at("db"), "a letter to somebody ".repeat(500)).unwrap();
    assert_eq!(home.check(Depth::Quick), Verdict::NotADatabase);
}

#[test]
fn damage_is_found_wherever_it_is() {
    type Wound = fn(&Home);
    let wounds: [(&str, Wound); 7] = [
        ("a page of rubbish", |home| {
            home.poke("db", 4096 * 20, &[0x5a; 4096]);
        }),
        ("a page of zeros", |home| {
            home.poke("db", 4096 * 9, &[0; 4096]);
        }),
        ("cut off", |home| {
            let file = OpenOptions::new().write(true).open(home.at("db")).unwrap();
            file.set_len(4096 * 40).unwrap();
        }),
        ("a lie about the page size", |home| {
            home.poke("db", 16, &[0x00, 0x03]);
        }),
        ("another page size", |home| {
            home.poke("db", 16, &[0x20, 0x00]);
        }),
        ("reserved bytes that leave nothing", |home| {
            home.poke("db", 20, &[0xff]);
        }),
        ("a schema that is none", |home| {
            let connection = home.connection();
            forge(
                &connection,
                "UPDATE sqlite_schema SET sql = 'CREATE TABLE t(' WHERE name = 't'",
            );
        }),
    ];
    for (name, wound) in wounds {
        let home = Home::new();
        drop(home.furnish());
        wound(&home);

        let verdict = home.check(Depth::Quick);

        assert!(verdict.is_damaged(), "{name}: {verdict:?}");
    }
}

#[test]
fn an_index_that_disagrees_with_its_table_is_found_by_a_full_check() {
    let home = Home::new();
    let connection = home.furnish();
    connection
        .execute_batch("CREATE TABLE e(a); CREATE INDEX i ON e(a)")
        .unwrap();
    let empty =
        "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'i')
                 WHERE name = 'by_name'; DELETE FROM sqlite_schema WHERE name = 'i'";
    forge(&connection, empty);
    drop(connection);

    let verdict = home.check(Depth::Full);

    assert!(verdict.is_damaged(), "{verdict:?}");
}

/// Leaves a transaction unfinished on the disk, as a killed program does: returns database and journal.
fn unfinished(home: &Home) -> (Vec<u8>, Vec<u8>) {
    let connection = home.furnish();
    connection
        .execute_batch("PRAGMA cache_size = 5; PRAGMA cache_spill = 1; BEGIN; UPDATE t SET body = randomblob(900), name = 'x' || id;")
        .unwrap();
    (
        fs::read(home.at("db")).unwrap(),
        fs::read(home.at("db-journal")).unwrap(),
    )
}

#[test]
fn an_unfinished_transaction_is_rolled_back_in_the_copy() {
    let (database, journal) = unfinished(&Home::new());
    let home = Home::new();
    fs::write(home.at("db"), &database).unwrap();
    let alone = home.check(Depth::Full);
    fs::write(home.at("db-journal"), &journal).unwrap();

    let verdict = home.check(Depth::Full);

    assert!(
        !alone.is_sound(),
        "without its journal it is not whole: {alone:?}"
    );
    assert_eq!(recovered(&verdict), Recovered::Journal);
}

#[test]
fn a_journal_cannot_remove_a_file_elsewhere() {
    let (database, mut journal) = unfinished(&Home::new());
    let home = Home::new();
    // A name as SQLite gives one to such files; it removes no others.
    let canary = home.0.path().join("canary-mj0123459AB");
    fs::write(&canary, "alive").unwrap();
    let name = canary.to_str().unwrap().as_bytes();
    let sum: u32 = name.iter().map(|byte| u32::from(*byte)).sum();
    journal.extend_from_slice(&[0, 4, 0, 1]);
    journal.extend_from_slice(name);
    journal.extend_from_slice(&u32::try_from(name.len()).unwrap().to_be_bytes());
    journal.extend_from_slice(&sum.to_be_bytes());
    journal.extend_from_slice(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7");
    fs::write(home.at("db"), &database).unwrap();
    fs::write(home.at("db-journal"), &journal).unwrap();

    let verdict = home.check(Depth::Full);

    assert_eq!(recovered(&verdict), Recovered::Journal);
    assert_eq!(fs::read(&canary).unwrap(), b"alive");
}

#[test]
fn a_log_is_taken_in_and_one_with_wrong_checksums_is_passed_over() {
    let source = Home::new();
    let connection = source.connection();
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t(a);",
        )
        .unwrap();
    connection
        .execute_batch("INSERT INTO t VALUES (randomblob(9000));")
        .unwrap();
    let home = Home::new();
    fs::copy(source.at("db"), home.at("db")).unwrap();
    fs::copy(source.at("db-wal"), home.at("db-wal")).unwrap();

    let whole = home.check(Depth::Full);
    home.poke("db-wal", 40, &[0xff; 64]);
    let wrong = home.check(Depth::Full);

    assert_eq!(recovered(&whole), Recovered::Wal);
    assert!(
        matches!(whole, Verdict::Sound { pages: 3.., .. }),
        "{whole:?}"
    );
    assert!(wrong.is_sound(), "{wrong:?}");
}

#[test]
fn what_we_lack_is_no_damage() {
    let forgeries = [
        (
            "UPDATE sqlite_schema SET sql = replace(sql, 'NOCASE', 'theirs')",
            "theirs",
        ),
        (
            "UPDATE sqlite_schema SET sql = 'CREATE INDEX by_name ON t(theirs(name))' WHERE name = 'by_name'",
            "theirs",
        ),
    ];
    for (forgery, lacking) in forgeries {
        let home = Home::new();
        let connection = home.furnish();
        connection
            .execute_batch("CREATE TABLE plain(a); INSERT INTO plain VALUES (1)")
            .unwrap();
        forge(&connection, forgery);
        drop(connection);

        let verdict = home.check(Depth::Full);

        let unchecked = unchecked(&verdict);
        assert_eq!(unchecked.len(), 1, "{forgery} {unchecked:?}");
        assert!(
            unchecked[0].starts_with("t: ") && unchecked[0].contains(lacking),
            "{unchecked:?}"
        );
    }
    let home = Home::new();
    let module = "INSERT INTO sqlite_schema VALUES ('table', 'v', 'v', 0, 'CREATE VIRTUAL TABLE v USING theirs(a)')";
    forge(&home.furnish(), module);
    assert!(home.check(Depth::Full).is_sound());
}

#[test]
fn damage_beside_what_we_lack_is_still_found() {
    let home = Home::new();
    let connection = home.furnish();
    connection
        .execute_batch("CREATE TABLE plain(a); INSERT INTO plain SELECT randomblob(3000) FROM t;")
        .unwrap();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'plain'";
    let page: u32 = connection.query_row(root, [], |row| row.get(0)).unwrap();
    forge(
        &connection,
        "UPDATE sqlite_schema SET sql = replace(sql, 'NOCASE', 'theirs')",
    );
    drop(connection);
    home.poke("db", u64::from(page - 1) * 4096, &[0x77; 200]);

    let verdict = home.check(Depth::Quick);

    assert!(verdict.is_damaged(), "{verdict:?}");
}

#[test]
fn hostile_schemas_are_only_looked_at() {
    let hostile = [
        "CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT load_extension('/tmp/x'); END",
        "CREATE VIEW v AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
        "CREATE VIEW a AS SELECT * FROM b; CREATE VIEW b AS SELECT * FROM a",
        "CREATE TABLE c(a CHECK (a > (length(hex(zeroblob(100000000))))));
         PRAGMA ignore_check_constraints = ON; INSERT INTO c VALUES (1)",
        "CREATE VIRTUAL TABLE f USING fts5(a); INSERT INTO f VALUES ('some words')",
    ];
    for schema in hostile {
        let home = Home::new();
        home.furnish().execute_batch(schema).unwrap();

        let verdict = home.check(Depth::Full);

        assert!(verdict.is_sound(), "{schema}: {verdict:?}");
    }
    let home = Home::new();
    let connection = home.furnish();
    connection
        .execute_batch(
            "CREATE TABLE g(a, b AS (abs(a)) STORED NOT NULL); INSERT INTO g(a) VALUES (1)",
        )
        .unwrap();
    forge(
        &connection,
        "UPDATE sqlite_schema SET sql = replace(sql, 'abs(a)', 'load_extension(a)') WHERE name = 'g'",
    );
    drop(connection);
    let verdict = home.check(Depth::Full);
    assert!(
        !matches!(verdict, Verdict::Damaged { .. } | Verdict::TimedOut),
        "{verdict:?}"
    );
}

#[test]
fn a_damaged_full_text_index_is_found() {
    let home = Home::new();
    let connection = home.furnish();
    connection
        .execute_batch(
            "CREATE VIRTUAL TABLE f USING fts5(a); INSERT INTO f SELECT name || ' words' FROM t;
             UPDATE f_data SET block = randomblob(length(block)) WHERE id > 10;",
        )
        .unwrap();
    drop(connection);

    let verdict = home.check(Depth::Full);

    assert!(verdict.is_damaged(), "{verdict:?}");
}

#[test]
fn a_database_that_claims_a_terabyte_costs_neither_time_nor_memory() {
    let home = Home::new();
    drop(home.furnish());
    home.poke("db", 28, &u32::MAX.to_be_bytes());
    let file = OpenOptions::new().write(true).open(home.at("db")).unwrap();
    if file.set_len(1 << 40).is_err() {
        return; // a filesystem without such files has no such databases
    }
    let limited = home.check(Depth::Quick);
    let settings = CheckSettings {
        time: Duration::from_secs(2),
        largest: u64::MAX,
        memory: 64 << 20,
        ..home.settings()
    };

    let verdict = home.check_with(&settings, &checker());

    assert!(matches!(limited, Verdict::Limit { .. }), "{limited:?}");
    assert!(!verdict.is_sound(), "{verdict:?}");
}

#[test]
fn a_process_that_hangs_raves_or_dies_says_nothing_about_the_database() {
    let home = Home::new();
    drop(home.furnish());
    let settings = CheckSettings {
        time: Duration::from_millis(300),
        ..home.settings()
    };
    let ended = |script| home.check_with(&settings, &shell(script));

    assert_eq!(ended("exec sleep 600"), Verdict::TimedOut);
    assert_eq!(ended("sleep 2 & sleep 600"), Verdict::TimedOut);
    assert_eq!(ended("exec 1>&-; exec sleep 600").word(), "unable");
    assert_eq!(ended("exec yes claim").word(), "unable");
    assert_eq!(ended("kill -SEGV $$").word(), "unable");
    assert_eq!(ended("echo pages 3").word(), "unable");
    assert_eq!(ended("echo claim sound").word(), "sound");
}

#[test]
fn a_check_that_needs_more_memory_than_allowed_is_a_limit() {
    let home = Home::new();
    let connection = home.connection();
    connection
        .execute_batch(
            "CREATE TABLE z(b); CREATE INDEX i ON z(hex(b)); INSERT INTO z VALUES (zeroblob(8000000));",
        )
        .unwrap();
    drop(connection);
    let enough = home.check(Depth::Full);
    let settings = CheckSettings {
        memory: 24 << 20,
        depth: Depth::Full,
        ..home.settings()
    };

    let verdict = home.check_with(&settings, &checker());

    assert!(enough.is_sound(), "{enough:?}");
    assert!(matches!(verdict, Verdict::Limit { .. }), "{verdict:?}");
}

#[test]
fn no_bytes_hang_or_kill_the_process() {
    let home = Home::new();
    drop(home.furnish());
    let whole = fs::read(home.at("db")).unwrap();
    let mut dice = 0x5eed_u64;
    let mut roll = |sides: usize| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        usize::try_from(dice >> 11).unwrap() % sides
    };
    let mut damaged = 0;
    for round in 0..60 {
        let mut bytes = whole.clone();
        for _ in 0..=roll(20) {
            // Half of them in the header and the schema.
            let within = if roll(2) == 0 { 4096 } else { bytes.len() };
            let at = roll(within);
            bytes[at] = roll(256).to_le_bytes()[0];
        }
        fs::write(home.at("db"), &bytes).unwrap();

        let verdict = home.check(Depth::Full);

        assert!(
            !matches!(verdict.word(), "timed_out" | "changed"),
            "{round}: {verdict:?}"
        );
        damaged += u32::from(!verdict.is_sound());
    }
    assert!(damaged > 10, "{damaged}");
}

#[test]
fn no_journal_hangs_the_process_or_fills_the_disk() {
    let (database, journal) = unfinished(&Home::new());
    let home = Home::new();
    fs::write(home.at("db"), &database).unwrap();
    let mut verdicts = Vec::new();
    // Where it says how many records follow, which size the database had, and how large sectors and pages are.
    for at in (8..28).step_by(4) {
        for lie in [0, 1, 0x200, 0x7fff_ffff, u32::MAX] {
            let mut lying = journal.clone();
            lying[at..at + 4].copy_from_slice(&u32::to_be_bytes(lie));
            fs::write(home.at("db-journal"), &lying).unwrap();

            let verdict = home.check(Depth::Quick);

            assert_ne!(verdict, Verdict::TimedOut, "{lie} at {at}");
            verdicts.push(verdict.word());
        }
    }
    assert!(verdicts.contains(&"damaged"), "{verdicts:?}");
}

#[test]
fn a_tree_is_searched_by_content_and_everything_found_is_reported() {
    let home = Home::new();
    drop(home.furnish());
    fs::create_dir(home.at("deep")).unwrap();
    fs::copy(home.at("db"), home.at("deep/Cookies")).unwrap();
    let mut bytes = fs::read(home.at("db")).unwrap();
    bytes[4096 * 9..4096 * 10].fill(1);
    fs::write(home.at("deep/History"), &bytes).unwrap();
    fs::write(home.at("deep/letter.db"), "no database").unwrap();
    fs::write(
        home.at("gone-journal"),
        b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7 and more",
    )
    .unwrap();
    fs::create_dir(home.at("level")).unwrap();
    fs::write(home.at("level/CURRENT"), "MANIFEST-000001\n").unwrap();
    std::os::unix::fs::symlink(home.at("db"), home.at("link")).unwrap();

    let report = check::tree(&home.root(), &home.settings(), &checker()).unwrap();

    let found = report.databases.iter();
    let found: Vec<String> = found
        .map(|one| format!("{} {:?} {}", one.path, one.kind, one.verdict.word()))
        .collect();
    let expected = [
        "db Sqlite sound",
        "deep/Cookies Sqlite sound",
        "deep/History Sqlite damaged",
        "gone Sqlite unable",
        "level LevelDb damaged",
    ];
    assert_eq!(found, expected);
    assert!(!report.is_all_sound());
    assert_eq!(report.walk.symlinks, 1);
}

#[test]
fn a_check_can_be_cancelled() {
    let home = Home::new();
    drop(home.furnish());
    let settings = home.settings();
    settings
        .cancel
        .store(true, std::sync::atomic::Ordering::Relaxed);

    let ended = check::tree(&home.root(), &settings, &checker());

    assert!(ended.is_err());
}

/// What `tree` looks like to whoever compares identities.
fn identity(home: &Home) -> check::ProfileIdentity {
    let file = home.0.path().join("profile.tar.zst");
    let made = stasis_disk::form::archive::create(&home.at(""), &file, &CreateSettings::default());
    let _ = made.unwrap();
    let archive = Archive::open(&file).unwrap();
    let mut entries = Vec::new();
    archive
        .list(&ReadSettings::default(), |entry| {
            let size = match entry.kind {
                EntryKind::File { size } => size,
                _ => 0,
            };
            entries.push((entry.path.clone(), size));
            Ok::<_, ArchiveError>(())
        })
        .unwrap();
    let found = check::identity(&archive, &entries, &home.settings(), &checker()).unwrap();
    assert_eq!(contents(&home.0.path().join("copies")), [], "no copy stays");
    found
}

#[test]
fn cookies_in_an_archive_are_named_by_site_and_never_by_value() {
    let home = Home::new();
    for (place, name) in [("Default", "sid"), ("Profile 1/Network", "token")] {
        fs::create_dir_all(home.at(place)).unwrap();
        let cookies = Connection::open(home.at(place).join("Cookies")).unwrap();
        cookies
            .execute_batch("CREATE TABLE cookies (host_key TEXT, name TEXT, value TEXT)")
            .unwrap();
        let rows = "INSERT INTO cookies VALUES ('.example.com', ?, 'secret'), ('a\tb', 'x\u{1b}[2J', 'secret')";
        cookies.execute(rows, [name]).unwrap();
    }

    let found = identity(&home);

    let named = |site: &str, name: &str| (site.to_owned(), name.to_owned());
    let expected = [
        named(".example.com", "sid"),
        named(".example.com", "token"),
        named("a b", "x\u{fffd}[2J"),
    ];
    assert_eq!(found.cookies, expected.into());
    assert_eq!(found.unread, [""; 0]);
    assert!(!format!("{found:?}").contains("secret"));
}

#[test]
fn cookies_that_cannot_be_read_are_never_taken_for_none() {
    let home = Home::new();
    fs::create_dir(home.at("Default")).unwrap();
    let schemas = [
        "CREATE TABLE other (x)",
        "CREATE TABLE t (a); CREATE VIEW cookies AS SELECT a AS host_key, a AS name FROM t",
    ];
    for schema in schemas {
        let at = home.at("Default").join("Cookies");
        let _ = fs::remove_file(&at);
        Connection::open(&at)
            .unwrap()
            .execute_batch(schema)
            .unwrap();

        let found = identity(&home);

        assert!(found.cookies.is_empty());
        assert!(
            found.unread[0].starts_with("Default/Cookies: "),
            "{found:?}"
        );
    }
    fs::create_dir_all(home.at("Default/Local Storage/leveldb")).unwrap();
    fs::write(home.at("Default/Local Storage/leveldb/CURRENT"), "nonsense").unwrap();
    assert_eq!(identity(&home).unread.len(), 2);
}
