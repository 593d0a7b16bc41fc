//! Dumping and restoring a real PostgreSQL, which each test starts for itself.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests make and remove files of their own"
)]

use stasis_quiesce::postgres::{
    Connection, Owners, PostgresError, PostgresSettings, Tag, discard_staged, dump, is_ready,
    restore, stage, table_counts,
};
use stasis_testkit::postgres::Server;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A server with a database `shop`, and a directory for dumps.
struct World {
    server: Server,
    directory: TempDir,
    settings: PostgresSettings,
}

impl World {
    fn new() -> Self {
        let server = Server::start();
        server.ask("postgres", "CREATE DATABASE shop");
        Self {
            settings: PostgresSettings {
                bin_dir: Some(server.programs().to_owned()),
                ..PostgresSettings::default()
            },
            directory: TempDir::new().unwrap(),
            server,
        }
    }

    fn connection(&self, database: &str) -> Connection {
        Connection::parse(&self.server.url(database)).unwrap()
    }

    fn shop(&self) -> Connection {
        self.connection("shop")
    }

    fn ask(&self, sql: &str) -> String {
        self.server.ask("shop", sql)
    }

    fn target(&self) -> PathBuf {
        self.directory.path().join("shop.dump")
    }

    fn files(&self) -> usize {
        self.directory.path().read_dir().unwrap().count()
    }

    fn databases(&self) -> String {
        let sql = "SELECT datname FROM pg_database WHERE datname LIKE 'shop%' ORDER BY 1";
        self.server.ask("postgres", sql).replace('\n', " ")
    }

    /// Fills `shop` with what pgbench makes.
    fn fill(&self) {
        let made = self
            .server
            .program("pgbench", "shop")
            .args(["-i", "-q", "-s", "1"])
            .stderr(Stdio::null())
            .status();
        assert!(made.unwrap().success());
    }

    /// Lets four sessions work in `shop` for long.
    fn load(&self) -> Load {
        let started = self
            .server
            .program("pgbench", "shop")
            .args(["-c", "4", "-T", "60", "-n"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Load(started.unwrap())
    }

    /// What the rows of the tables come to.
    fn checksums(&self) -> Vec<String> {
        ["accounts", "branches", "tellers", "history"]
            .map(|table| {
                self.ask(&format!(
                    "SELECT count(*), md5(string_agg(t::text, ',' ORDER BY t::text)) FROM pgbench_{table} t"
                ))
            })
            .to_vec()
    }
}

struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tag() -> Tag {
    Tag::parse("00c0ffee").unwrap()
}

async fn moment() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

#[tokio::test]
async fn what_was_dumped_under_load_comes_back_whole_after_everything_was_dropped() {
    let world = World::new();
    world.fill();
    let load = world.load();
    moment().await;

    let dumped = dump(&world.shop(), &world.target(), &world.settings)
        .await
        .unwrap();

    drop(load);
    assert!(dumped.entries > 4 && dumped.bytes > 1 << 20, "{dumped:?}");
    assert_eq!(dumped.bytes, world.target().metadata().unwrap().len());
    assert_eq!(
        world.target().metadata().unwrap().permissions().mode() & 0o777,
        0o600
    );
    world
        .server
        .ask("postgres", "DROP DATABASE shop WITH (FORCE)");

    let restored = restore(&world.shop(), &world.target(), &tag(), &world.settings)
        .await
        .unwrap();

    assert_eq!(restored.backup(), None);
    assert_eq!(world.databases(), "shop");
    // One transaction of the load changes all four tables by the same amount, so a torn dump would not add up.
    let sum = |table: &str, column: &str| {
        world.ask(&format!(
            "SELECT coalesce(sum({column}), 0) FROM pgbench_{table}"
        ))
    };
    let moved = sum("history", "delta");
    assert_eq!(sum("accounts", "abalance"), moved);
    assert_eq!(sum("branches", "bbalance"), moved);
    assert_eq!(sum("tellers", "tbalance"), moved);
    let counts = table_counts(&world.shop(), &world.settings).await.unwrap();
    assert_eq!(counts, restored.tables());
    let rows = |table: &str| counts.iter().find(|row| row.table == table).unwrap().rows;
    assert_eq!(rows("pgbench_accounts"), 100_000);
    assert!(rows("pgbench_history") > 0, "the load did something");
}

#[tokio::test]
async fn a_swap_sends_everybody_away_keeps_the_old_one_and_can_be_undone() {
    let world = World::new();
    world.fill();
    world.ask("CREATE ROLE clerk; GRANT SELECT ON pgbench_tellers TO clerk; ALTER TABLE pgbench_branches OWNER TO clerk");
    world.ask("ALTER DATABASE shop SET search_path = public, pg_catalog; REVOKE CONNECT ON DATABASE shop FROM PUBLIC");
    let before = world.checksums();
    dump(&world.shop(), &world.target(), &world.settings)
        .await
        .unwrap();
    world.ask("DELETE FROM pgbench_accounts");
    let changed = world.checksums();
    let load = world.load();
    moment().await;

    let staged = stage(&world.shop(), &world.target(), &tag(), &world.settings)
        .await
        .unwrap();
    assert_eq!(world.databases(), "shop shop_stasis_00c0ffee");
    let restored = staged.swap().await.unwrap();

    drop(load);
    assert_eq!(restored.backup(), Some("shop_before_00c0ffee"));
    assert_eq!(world.databases(), "shop shop_before_00c0ffee");
    assert_eq!(world.checksums(), before);
    let owner = "SELECT tableowner FROM pg_tables WHERE tablename = 'pgbench_branches'";
    assert_eq!(world.ask(owner), "clerk");
    assert_eq!(world.ask("SHOW search_path"), "public, pg_catalog");
    assert_eq!(
        world.ask("SELECT has_database_privilege('clerk', 'shop', 'CONNECT')"),
        "f"
    );

    let staged = restored.swap_back().await.unwrap();
    assert_eq!(world.databases(), "shop shop_stasis_00c0ffee");
    assert_ne!(world.checksums(), before);
    assert_eq!(world.checksums()[0], changed[0], "the old one is back");
    let restored = staged.swap().await.unwrap();
    restored.drop_backup().await.unwrap();
    assert_eq!(world.databases(), "shop");
    assert_eq!(world.checksums(), before);
}

#[tokio::test]
async fn a_restore_that_fails_half_way_leaves_the_old_database_and_nothing_else() {
    let world = World::new();
    world.ask("CREATE TABLE goods (n int); INSERT INTO goods SELECT generate_series(1, 1000)");
    world.ask("CREATE ROLE clerk; CREATE TABLE late (n int); ALTER TABLE late OWNER TO clerk");
    dump(&world.shop(), &world.target(), &world.settings)
        .await
        .unwrap();
    world.ask("DROP TABLE late; DROP ROLE clerk; INSERT INTO goods VALUES (7)");

    let failed = restore(&world.shop(), &world.target(), &tag(), &world.settings)
        .await
        .unwrap_err();

    assert!(
        matches!(&failed, PostgresError::ProgramFailed { said, .. } if said.contains("clerk")),
        "{failed}"
    );
    assert_eq!(world.databases(), "shop");
    assert_eq!(world.ask("SELECT count(*) FROM goods"), "1001");

    // Without the roles it can be restored as our own.
    let settings = PostgresSettings {
        owners: Owners::Ours,
        ..world.settings.clone()
    };
    let restored = restore(&world.shop(), &world.target(), &tag(), &settings).await;
    assert_eq!(restored.unwrap().tables()[0].rows, 1000);
}

#[tokio::test]
async fn a_damaged_dump_leaves_the_old_database_and_nothing_else() {
    let world = World::new();
    world.fill();
    dump(&world.shop(), &world.target(), &world.settings)
        .await
        .unwrap();
    let bytes = std::fs::read(world.target()).unwrap();
    std::fs::write(world.target(), &bytes[..bytes.len() / 2]).unwrap();
    let before = world.checksums();

    let failed = stage(&world.shop(), &world.target(), &tag(), &world.settings).await;

    assert!(
        matches!(failed, Err(PostgresError::ProgramFailed { .. })),
        "{failed:?}"
    );
    assert_eq!(world.databases(), "shop");
    assert_eq!(world.checksums(), before);
}

#[tokio::test]
async fn a_swap_whose_second_half_fails_leaves_both_as_they_were() {
    let world = World::new();
    world.ask("CREATE TABLE goods (n int)");
    dump(&world.shop(), &world.target(), &world.settings)
        .await
        .unwrap();
    world.ask("INSERT INTO goods VALUES (7)");
    let (shop, target, tag) = (world.shop(), world.target(), tag());
    let again = || stage(&shop, &target, &tag, &world.settings);
    let staged = again().await.unwrap();
    assert!(matches!(again().await, Err(PostgresError::Exists { .. })));
    // The old one can be renamed, the new one is not there.
    let rename = |from: &str, to: &str| {
        let sql = format!("ALTER DATABASE {from} RENAME TO {to}");
        world.server.ask("postgres", &sql);
    };
    rename("shop_stasis_00c0ffee", "shop_hidden");

    let failed = staged.clone().swap().await;

    rename("shop_hidden", "shop_stasis_00c0ffee");
    assert!(
        matches!(failed, Err(PostgresError::ProgramFailed { .. })),
        "{failed:?}"
    );
    assert_eq!(world.databases(), "shop shop_stasis_00c0ffee");
    assert_eq!(world.ask("SELECT count(*) FROM goods"), "1");
    discard_staged(&shop, &tag, &world.settings).await.unwrap();
    assert_eq!(world.databases(), "shop");
}

#[tokio::test]
async fn a_dump_of_a_database_that_is_not_there_fails_and_leaves_no_file() {
    let world = World::new();
    let nowhere = world.connection("nowhere");

    let failed = dump(&nowhere, &world.target(), &world.settings)
        .await
        .unwrap_err();

    let write_input = failed.to_string();
    assert!(
        write_input.contains("nowhere") && write_input.contains("does not exist"),
        "{write_input}"
    );
    assert_eq!(world.files(), 0);
    assert!(!is_ready(&nowhere, &world.settings).await);
    assert!(is_ready(&world.shop(), &world.settings).await);
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_told() {
    let world = World::new();
    let wrong = world.shop().password("much too secret");

    let failed = dump(&wrong, &world.target(), &world.settings)
        .await
        .unwrap_err();

    let write_input = format!("{failed} {failed:?} {wrong:?}");
    assert!(
        write_input.contains("authentication failed"),
        "{write_input}"
    );
    assert!(!write_input.contains("much too secret"), "{write_input}");
}

/// Stops `pg_dump` in the middle: it has to wait for a table that somebody has locked.
fn lock(world: &World) -> Load {
    let sql = "BEGIN; LOCK TABLE pgbench_tellers; SELECT pg_sleep(60)";
    let locked = world
        .server
        .program("psql", "shop")
        .args(["-Xc", sql])
        .spawn();
    Load(locked.unwrap())
}

async fn dumping(world: &World) -> bool {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'stasis' AND wait_event_type = 'Lock'";
    for _ in 0..200 {
        if world.server.ask("postgres", sql) == "1" {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_during_a_dump_fails_it_and_leaves_no_file() {
    let mut world = World::new();
    world.fill();
    let _lock = lock(&world);
    moment().await;
    let (connection, target) = (world.shop(), world.target());
    let settings = world.settings.clone();
    let dumped = tokio::spawn(async move { dump(&connection, &target, &settings).await });
    assert!(dumping(&world).await);

    world.server.kill();
    let failed = dumped.await.unwrap();

    assert!(
        matches!(failed, Err(PostgresError::Unreachable { .. })),
        "{failed:?}"
    );
    assert_eq!(world.files(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_that_is_dropped_or_too_slow_is_killed_and_leaves_no_file() {
    let world = World::new();
    world.fill();
    let _lock = lock(&world);
    moment().await;
    let settings = PostgresSettings {
        timeout: Duration::from_secs(1),
        ..world.settings.clone()
    };

    let slow = dump(&world.shop(), &world.target(), &settings).await;
    assert!(matches!(slow, Err(PostgresError::Slow { .. })), "{slow:?}");
    assert_eq!(world.files(), 0);

    let (connection, target) = (world.shop(), world.target());
    let settings = world.settings.clone();
    let dumped = tokio::spawn(async move { dump(&connection, &target, &settings).await });
    moment().await;
    dumped.abort();
    assert!(dumped.await.unwrap_err().is_cancelled());
    assert_eq!(world.files(), 0);
}

fn script(directory: &Path, name: &str, text: &str) {
    let path = directory.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn a_program_that_is_too_old_or_lies_is_told_of() {
    let world = World::new();
    let programs = TempDir::new().unwrap();
    let real = world.server.programs().display();
    for name in ["psql", "pg_restore"] {
        script(programs.path(), name, &format!("exec {real}/{name} \"$@\""));
    }
    let settings = PostgresSettings {
        bin_dir: Some(programs.path().to_owned()),
        ..world.settings.clone()
    };
    let attempt = || async {
        dump(&world.shop(), &world.target(), &settings)
            .await
            .unwrap_err()
    };

    script(
        programs.path(),
        "pg_dump",
        "echo 'pg_dump (PostgreSQL) 9.6.1'",
    );
    assert!(matches!(attempt().await, PostgresError::ServerNewer { .. }));

    let says = "[ \"$1\" = --version ] && exec echo 'pg_dump (PostgreSQL) 99.1'";
    script(programs.path(), "pg_dump", says);
    let failed = attempt().await;
    assert!(
        matches!(failed, PostgresError::ProgramFailed { .. }),
        "{failed:?}"
    );

    script(programs.path(), "pg_dump", &format!("{says}; true"));
    let failed = attempt().await;
    assert!(
        matches!(
            failed,
            PostgresError::ProgramFailed {
                program: "pg_restore",
                ..
            }
        ),
        "{failed:?}"
    );
    assert_eq!(world.files(), 0);
}

#[tokio::test]
async fn names_of_all_kinds_are_names_and_a_password_is_in_no_argument() {
    let world = World::new();
    let odd = r#"host=x 'a"b\c"#;
    let quoted = odd.replace('"', "\"\"");
    world
        .server
        .ask("postgres", &format!("CREATE DATABASE \"{quoted}\""));
    let connection = Connection::new(odd)
        .host(world.server.socket().to_str().unwrap())
        .user(world.server.user())
        .password(world.server.password());
    let sql = "CREATE TABLE \"two\nlines, \"\"quoted\"\" 'x'\" (n int)";
    let made = world.server.program("psql", odd);
    let conninfo = format!(
        "dbname='{}'",
        odd.replace('\\', "\\\\").replace('\'', "\\'")
    );
    let mut made = made;
    assert!(
        made.args(["-Xqc", sql, "-d", &conninfo])
            .status()
            .unwrap()
            .success()
    );

    dump(&connection, &world.target(), &world.settings)
        .await
        .unwrap();
    let restored = restore(&connection, &world.target(), &tag(), &world.settings)
        .await
        .unwrap();

    let expected = format!("{odd}_before_00c0ffee");
    assert_eq!(restored.backup(), Some(expected.as_str()));
    assert_eq!(restored.tables()[0].table, "two\nlines, \"quoted\" 'x'");
    restored.drop_backup().await.unwrap();
}
