//! Projects whose databases are written to while they are saved: real SQLite, real PostgreSQL.

#![expect(clippy::too_many_lines, reason = "a story is told in one piece")]

use crate::project::{Shop, id, names};
use serde_json::Value;
use stasis_testkit::postgres::Server;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Writes pairs of rows, each pair in one transaction, and says after each commit how far it is.
const WRITER: &str = "
import os, sqlite3, sys, time
path, writer, done = sys.argv[1:]
db = sqlite3.connect(path, timeout=60, isolation_level=None)
n = 0
while True:
    n += 1
    db.execute('begin immediate')
    for half in (0, 1):
        db.execute('insert into pairs values (?, ?, ?)', (writer, n, half))
    db.execute('commit')
    open(done + '.new', 'w').write(str(n))
    os.replace(done + '.new', done)
    time.sleep(0.001)
";

/// Says for a copy whether it is sound, and how many pairs of each writer it has; fails at a gap or at half a pair.
const READER: &str = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
assert db.execute('pragma integrity_check').fetchall() == [('ok',)]
for writer, rows, last in db.execute('select writer, count(*), max(n) from pairs group by 1 order by 1').fetchall():
    assert rows == 2 * last, (writer, rows, last)
    assert db.execute('select count(distinct n) from pairs where writer = ?', (writer,)).fetchone()[0] == last
    print(last)
";

fn python(script: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", script]).args(arguments);
    command
}

/// Processes that are ended with the test.
struct Writers(Vec<Child>);

impl Drop for Writers {
    fn drop(&mut self) {
        for writer in &mut self.0 {
            let _ = writer.kill();
            let _ = writer.wait();
        }
    }
}

fn numbers(output: &std::process::Output) -> Vec<u64> {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{err}");
    out.lines().map(|line| line.parse().unwrap()).collect()
}

/// How often; `STASIS_PROJECT_SAVES` asks for more.
fn rounds(usual: usize) -> usize {
    let asked = std::env::var("STASIS_PROJECT_SAVES").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(usual)
}

fn saves_beside_four_writers(mode: &str) {
    let shop = Shop::new("[volumes.main]\nconsistency = \"sqlite\"\n");
    shop.write("volumes/main/readme", "beside the database");
    let path = shop.at("state/current/volumes/main/shop.db");
    let text = path.to_str().unwrap();
    let make = format!(
        "import sqlite3,sys; db=sqlite3.connect(sys.argv[1]); db.execute('pragma journal_mode={mode}'); \
         db.execute('create table pairs(writer, n, half)'); db.commit()"
    );
    assert!(python(&make, &[text]).status().unwrap().success());
    let done = |writer: usize| shop.at(&format!("done{writer}"));
    let start = |writer: usize| {
        let mut command = python(
            WRITER,
            &[text, &writer.to_string(), done(writer).to_str().unwrap()],
        );
        command.stderr(Stdio::null()).spawn().unwrap()
    };
    let _writers = Writers((0..4).map(start).collect());
    let reached = || -> Vec<u64> {
        let one = |writer| fs::read_to_string(done(writer)).unwrap_or_default();
        (0..4)
            .map(|writer| one(writer).parse().unwrap_or(0))
            .collect()
    };
    crate::project::eventually(Duration::from_secs(30), "all write", || {
        reached().iter().all(|n| *n > 0)
    });

    for round in 0..rounds(6) {
        let before = reached();
        let saved = shop.json(0, &["save"]);
        let after = reached();
        let to = shop.at(&format!("copy{round}"));
        shop.json(0, &["restore", &id(&saved), "--to", to.to_str().unwrap()]);

        let copy = to.join("volumes/main/shop.db");
        assert_eq!(names(&to.join("volumes/main")), ["readme", "shop.db"]);
        let found = numbers(&python(READER, &[copy.to_str().unwrap()]).output().unwrap());
        for writer in 0..4 {
            let (before, found, after) = (before[writer], found[writer], after[writer]);
            assert!(
                before <= found && found <= after + 1,
                "{before} {found} {after}"
            );
        }
        assert_eq!(saved["volumes"]["main"]["integrity"], "ok");
        fs::remove_dir_all(&to).unwrap();
    }
    assert!(shop.left_over().is_empty());
}

#[test]
fn a_database_with_a_log_is_saved_beside_four_writers() {
    saves_beside_four_writers("wal");
}

#[test]
fn a_database_with_a_journal_is_saved_beside_four_writers() {
    saves_beside_four_writers("delete");
}

#[test]
fn a_database_at_rest_makes_no_new_snapshot_and_its_rows_are_compared() {
    let shop = Shop::new("[volumes.main]\nconsistency = \"sqlite\"\n");
    let path = shop.at("state/current/volumes/main/shop.db");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let change = |statements: &str| {
        let script = "import sqlite3,sys; d=sqlite3.connect(sys.argv[1]); d.execute('pragma journal_mode=wal'); d.executescript(sys.argv[2]); d.close()";
        assert!(
            python(script, &[path.to_str().unwrap(), statements])
                .status()
                .unwrap()
                .success()
        );
    };
    change("create table a(x); create table b(x); insert into a values (1);");
    let first = shop.save();

    let again = shop.json(0, &["save"]);
    change("insert into a values (2), (3); drop table b; create table c(x);");
    let second = shop.json(0, &["save"]);
    let diff = shop.json(0, &["diff", &first, &id(&second)]);
    let status = shop.json(0, &["diff", "latest"]);

    assert_eq!(again["published"], false, "{again:#}");
    assert_eq!(second["published"], true);
    let rows = |table: &str| {
        let found = diff["tables"]
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["table"] == table);
        found.map(|row| (row["before"].clone(), row["after"].clone()))
    };
    assert_eq!(rows("a"), Some((Value::from(1), Value::from(3))));
    assert_eq!(rows("b"), Some((Value::from(0), Value::Null)));
    assert_eq!(rows("c"), Some((Value::Null, Value::from(0))));
    assert_eq!(status["items"].as_array().unwrap().len(), 0, "{status:#}");
}

#[test]
fn a_long_transaction_is_a_failure_with_a_name_and_nothing_is_saved() {
    let shop = Shop::new("[volumes.main]\nconsistency = \"sqlite\"\n");
    let path = shop.at("state/current/volumes/main/shop.db");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let script = "import sqlite3,sys,time; d=sqlite3.connect(sys.argv[1], isolation_level=None); d.execute('create table t(x)'); \
                  d.execute('begin exclusive'); d.execute('create table u(x)'); open(sys.argv[2],'w').write('x'); time.sleep(120)";
    let held = shop.at("held");
    let child = python(script, &[path.to_str().unwrap(), held.to_str().unwrap()])
        .spawn()
        .unwrap();
    let _writers = Writers(vec![child]);
    crate::project::eventually(Duration::from_secs(20), "it holds", || held.exists());

    let busy = shop.run(&["save"]);

    assert_eq!(busy.code, 1, "{}", busy.err);
    assert!(busy.err.contains("somebody was writing"), "{}", busy.err);
    assert!(
        shop.json(0, &["list"])["items"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    assert!(shop.left_over().is_empty());
}

/// A project with a database in a server.
fn with_server(server: &Server, database: &str) -> Shop {
    let shop = Shop::new("[volumes.db]\nconsistency = \"postgres\"\nurl_env = \"SHOP_DATABASE\"\n");
    shop.write("files/a", "1");
    server.ask("postgres", &format!("create database {database}"));
    shop
}

fn run(shop: &Shop, server: &Server, words: &[&str]) -> Value {
    let mut command = shop.command(words);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", server.programs().display()));
    command
        .env("SHOP_DATABASE", server.url("shop"))
        .arg("--json");
    let output = command.output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{words:?}\n{out}\n{err}");
    assert!(
        !format!("{out}{err}").contains(server.password()),
        "a password was told"
    );
    serde_json::from_str(&out).unwrap()
}

#[test]
fn a_server_is_saved_under_load_and_comes_back_after_everything_was_dropped() {
    let server = Server::start();
    let shop = with_server(&server, "shop");
    let bench = |arguments: &[&str]| {
        let mut command = server.program("pgbench", "shop");
        command
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    };
    assert!(bench(&["-i", "-q", "-s", "1"]).status().unwrap().success());
    let load = bench(&["-c", "2", "-T", "60", "-n"]).spawn().unwrap();
    let load = Writers(vec![load]);
    // Without a transaction there are no books to compare.
    crate::project::eventually(Duration::from_secs(30), "transactions", || {
        let begun = server.ask("shop", "select count(*) > 9 from pgbench_history");
        begun.trim() == "t"
    });
    let under_load = run(&shop, &server, &["save"]);
    drop(load);
    let sums = || {
        let balance = server.ask(
            "shop",
            "select sum(abalance), count(*) from pgbench_accounts",
        );
        let history = server.ask(
            "shop",
            "select count(*), coalesce(sum(delta), 0) from pgbench_history",
        );
        let digest = server.ask(
            "shop",
            "select md5(string_agg(a::text, ',' order by aid)) from pgbench_accounts a",
        );
        format!("{balance}|{history}|{digest}")
    };
    let (expected, saved) = (sums(), run(&shop, &server, &["save"]));
    let again = run(&shop, &server, &["save"]);

    server.ask(
        "shop",
        "drop table pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers",
    );
    run(&shop, &server, &["restore", &id(&saved)]);
    let restored = sums();
    run(&shop, &server, &["restore", &id(&under_load)]);
    let books = server.ask("shop", "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)");

    assert_eq!(restored, expected);
    assert_eq!(
        again["published"], false,
        "an unchanged database is the same dump"
    );
    assert_eq!(books.trim(), "t", "what was saved under load is one moment");
    let volume = &saved["volumes"]["db"];
    assert_eq!(
        (&volume["format"], &volume["integrity"]),
        (&"pg_dump-custom".into(), &"ok".into())
    );
    assert!(volume["details"]["serverVersion"].is_string());
    assert!(
        !shop.at("state/current/volumes/db/db.dump").exists(),
        "the dump is in the snapshot only"
    );
    let databases = server.ask(
        "postgres",
        "select datname from pg_database where datname like 'shop%'",
    );
    assert_eq!(databases.trim(), "shop", "nothing is left beside it");
    assert!(shop.left_over().is_empty());
}

/// An application as it lies there: its code, and a `.env` that names its server, which no shell has read.
#[test]
fn a_server_that_only_a_dotenv_file_names_is_proposed_saved_and_restored_in_place() {
    let server = Server::start();
    server.ask("postgres", "create database shop");
    server.ask(
        "shop",
        "create table t(n int); insert into t values(1), (2)",
    );
    let session = crate::session::Session::new();
    let app = session.home().join("app");
    std::fs::create_dir(&app).unwrap();
    std::fs::write(app.join("main.py"), "one").unwrap();
    let url = server.url("shop");
    std::fs::write(
        app.join(".env"),
        format!("SECRET=1\nDATABASE_URL='{url}'\n"),
    )
    .unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", server.programs().display());
    let run = |words: &[&str]| {
        let mut command = session.command(words);
        let output = command.current_dir(&app).env("PATH", &path).output();
        let said = crate::session::said(output.unwrap());
        assert_eq!(said.code, 0, "{words:?}\n{}\n{}", said.out, said.err);
        let told = format!("{}{}", said.out, said.err);
        assert!(!told.contains(server.password()), "a password was told");
        said.out
    };

    run(&["project", "init"]);
    let toml = std::fs::read_to_string(app.join("stasis.toml")).unwrap();
    assert!(toml.contains("url_env = \"DATABASE_URL\""), "{toml}");
    assert!(!toml.contains(server.password()), "{toml}");
    run(&["project", "save"]);
    server.ask("shop", "drop table t");
    std::fs::write(app.join("main.py"), "two").unwrap();
    let restored = run(&["project", "restore", "latest", "--json"]);

    assert_eq!(server.ask("shop", "select count(*), sum(n) from t"), "2|3");
    assert_eq!(std::fs::read_to_string(app.join("main.py")).unwrap(), "one");
    // What was there before the restore is a way back too.
    let restored: Value = serde_json::from_str(&restored).unwrap();
    let before = restored["safety_snapshot_id"].as_str().unwrap();
    run(&["project", "restore", before]);
    assert_eq!(std::fs::read_to_string(app.join("main.py")).unwrap(), "two");
    assert_eq!(server.ask("shop", "select to_regclass('t') is null"), "t");
}

#[test]
fn a_server_that_is_gone_fails_the_save_and_leaves_nothing() {
    let mut server = Server::start();
    let shop = with_server(&server, "shop");
    let (url, programs) = (server.url("shop"), server.programs().to_owned());
    server.kill();

    let mut command = shop.command(&["save"]);
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("SHOP_DATABASE", url);
    let failed = crate::session::said(command.output().unwrap());

    assert_eq!(failed.code, 7, "{}", failed.err);
    assert!(failed.err.contains("volume `db`"), "{}", failed.err);
    assert!(failed.err.contains("cannot be reached"), "{}", failed.err);
    assert!(
        shop.json(0, &["list"])["items"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    assert!(shop.left_over().is_empty());
}

/// One in a hundred pages of a large database changes: what is stored is a small part of it.
#[test]
fn a_large_database_of_which_little_changed_costs_little() {
    let mib: usize = std::env::var("STASIS_DATABASE_MIB")
        .ok()
        .and_then(|asked| asked.parse().ok())
        .unwrap_or(48);
    let shop = Shop::new("[volumes.main]\nconsistency = \"sqlite\"\n");
    let path = shop.at("state/current/volumes/main/shop.db");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let fill = "import sqlite3,sys,os; d=sqlite3.connect(sys.argv[1]); d.execute('create table t(id integer primary key, b blob)')\n\
                for i in range(int(sys.argv[2])*256): d.execute('insert into t values (?,?)', (i, os.urandom(3900)))\n\
                d.commit()";
    assert!(
        python(fill, &[path.to_str().unwrap(), &mib.to_string()])
            .status()
            .unwrap()
            .success()
    );
    shop.save();
    let change = "import sqlite3,sys,os; d=sqlite3.connect(sys.argv[1])\n\
                  for i in range(0, int(sys.argv[2])*256, 100): d.execute('update t set b=? where id=?', (os.urandom(3900), i))\n\
                  d.commit()";
    assert!(
        python(change, &[path.to_str().unwrap(), &mib.to_string()])
            .status()
            .unwrap()
            .success()
    );

    let saved = shop.json(0, &["save"]);

    let (stored, size) = (saved["bytes_stored"].as_u64().unwrap(), size(&path));
    assert!(stored * 10 < size, "{stored} of {size}");
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// A volume whose name begins like another one's is another volume, in a server and in files.
#[test]
fn restoring_one_volume_leaves_the_one_whose_name_begins_alike() {
    let server = Server::start();
    let shop = Shop::new(
        "[volumes.db]\nconsistency = \"postgres\"\nurl_env = \"SHOP_DATABASE\"\n\
         [volumes.db2]\nconsistency = \"postgres\"\nurl_env = \"SHOP_OTHER\"\n\
         [volumes.media]\nconsistency = \"generic\"\n[volumes.media2]\nconsistency = \"generic\"\n",
    );
    let run = |words: &[&str]| {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = shop.command(words);
        command
            .env("PATH", format!("{}:{path}", server.programs().display()))
            .env("SHOP_DATABASE", server.url("shop"))
            .env("SHOP_OTHER", server.url("shop2"))
            .arg("--json");
        let said = crate::session::said(command.output().unwrap());
        assert_eq!(said.code, 0, "{words:?}\n{}\n{}", said.out, said.err);
        serde_json::from_str::<Value>(&said.out).unwrap()
    };
    let databases = ["shop", "shop2"];
    let state = || {
        let rows = databases.map(|name| server.ask(name, "select x from t").trim().to_owned());
        let files = ["media", "media2"].map(|name| shop.read(&format!("volumes/{name}/x")));
        [rows, files].concat()
    };
    for name in databases {
        server.ask("postgres", &format!("create database {name}"));
        server.ask(name, "create table t(x text); insert into t values ('old')");
    }
    for name in ["media", "media2"] {
        shop.write(&format!("volumes/{name}/x"), "old");
    }
    run(&["save"]);
    for name in databases {
        server.ask(name, "update t set x = 'new'");
    }
    for name in ["media", "media2"] {
        shop.write(&format!("volumes/{name}/x"), "new");
    }
    let changed = |planned: &Value| -> Vec<String> {
        let changes = planned["changes"].as_array().unwrap().iter();
        let content = changes.filter(|one| one["change"] == "content");
        content
            .map(|one| one["path"].as_str().unwrap().to_owned())
            .collect()
    };
    let words = ["restore", "latest", "--volume", "db", "--volume", "media"];

    let planned = run(&[&words[..], &["--dry-run"]].concat());
    let untouched = state();
    run(&words);

    assert_eq!(changed(&planned), ["volumes/db/db.dump", "volumes/media/x"]);
    assert_eq!(untouched, ["new", "new", "new", "new"]);
    assert_eq!(
        state(),
        ["old", "new", "old", "new"],
        "what the plan named, and nothing else"
    );
}
