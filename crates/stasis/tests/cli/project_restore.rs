//! A restore needs nothing but the snapshot: not the old data, not a server, not a host that knows the project.

use crate::project::{Shop, id, names};
use crate::session::{Said, said};
use serde_json::Value;
use stasis_testkit::postgres::Server;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// Makes a database with one row.
fn database(path: &Path, word: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let script = "import sqlite3,sys; d=sqlite3.connect(sys.argv[1]); d.executescript('create table if not exists t(x); delete from t'); \
                  d.execute('insert into t values (?)', (sys.argv[2],)); d.commit(); d.close()";
    let done = Command::new("python3")
        .args(["-c", script])
        .arg(path)
        .arg(word)
        .status();
    assert!(done.unwrap().success());
}

fn row(path: &Path) -> String {
    let script = "import sqlite3,sys; print(sqlite3.connect(sys.argv[1]).execute('select x from t').fetchone()[0])";
    let output = Command::new("python3")
        .args(["-c", script])
        .arg(path)
        .output();
    String::from_utf8(output.unwrap().stdout)
        .unwrap()
        .trim()
        .to_owned()
}

#[test]
fn a_project_comes_back_on_a_host_that_has_only_its_file() {
    let toml =
        "[volumes.main]\nconsistency = \"sqlite\"\n[volumes.media]\nconsistency = \"generic\"\n";
    let here = Shop::new(toml);
    let store = format!("file://{}/snapshots", here.session.home().display());
    let store = store.as_str();
    here.write("files/a", "1");
    here.write("volumes/media/pic", "pixels");
    database(&here.at("state/current/volumes/main/shop.db"), "paid");
    let saved = id(&here.json(0, &["save", "--store", store]));

    // Another home, another host: nothing but `stasis.toml` was checked out.
    let there = Shop::new(toml);
    fs::remove_dir_all(there.at("state")).unwrap();
    let planned = there.json(0, &["restore", "latest", "--store", store, "--dry-run"]);
    assert!(!there.at("state/current").exists(), "a plan makes nothing");
    let restored = there.json(0, &["restore", "latest", "--store", store]);

    assert_eq!(
        (id(&planned), id(&restored)),
        (saved.clone(), saved.clone())
    );
    let changes = planned["changes"].as_array().unwrap();
    assert!(
        changes
            .iter()
            .any(|one| one["path"] == "volumes/media/pic" && one["change"] == "removed")
    );
    assert_eq!(
        restored["safety_snapshot_id"],
        Value::Null,
        "there was nothing to save"
    );
    assert_eq!(there.read("files/a"), "1");
    assert_eq!(row(&there.at("state/current/volumes/main/shop.db")), "paid");
    let again = there.json(0, &["save", "--store", store]);
    assert_eq!(
        (id(&again), &again["published"]),
        (saved, &Value::Bool(false))
    );
    assert_eq!(
        there.json(0, &["list", "--store", store])["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_database_that_cannot_be_saved_is_set_aside_and_the_restore_goes_on() {
    let shop = Shop::new("[volumes.main]\nconsistency = \"sqlite\"\n");
    let path = shop.at("state/current/volumes/main/shop.db");
    database(&path, "paid");
    shop.write("volumes/main/readme", "beside it");
    shop.write("files/a", "1");
    let saved = shop.save();
    shop.write("files/a", "2");
    let mut bytes = fs::read(&path).unwrap();
    bytes[100..].fill(0xa5);
    fs::write(&path, &bytes).unwrap();
    let planned = shop.json(0, &["restore", "latest", "--dry-run"]);

    let restored = shop.json(0, &["restore", "latest"]);

    assert_eq!(id(&restored), saved);
    let changes = planned["changes"].as_array().unwrap();
    assert!(
        changes
            .iter()
            .any(|one| one["path"] == "volumes/main/shop.db"),
        "{planned:#}"
    );
    assert_eq!(
        (row(&path), shop.read("files/a")),
        ("paid".into(), "1".into())
    );
    let aside = &restored["set_aside"][0];
    assert_eq!(aside["path"], "volumes/main", "{restored:#}");
    let kept = Path::new(aside["kept_at"].as_str().unwrap());
    assert_eq!(fs::read(kept.join("shop.db")).unwrap(), bytes);
    assert!(
        !kept.join("readme").exists(),
        "what was not replaced needs no second name"
    );
    let safety = restored["safety_snapshot_id"].as_str().unwrap();

    // The way back for everything else; what it does not have, it leaves alone.
    let back = shop.json(0, &["restore", safety]);
    assert_eq!(
        (row(&path), shop.read("files/a")),
        ("paid".into(), "2".into()),
        "{back:#}"
    );
    assert_eq!(back["set_aside"], Value::Null);
    shop.json(0, &["save"]);
    assert!(shop.left_over().is_empty());
}

/// The log of the database that is replaced must not be replayed into the one that comes back.
#[test]
fn a_database_that_is_restored_alone_has_no_log_of_another_one_beside_it() {
    let shop = Shop::new("[volumes.main]\nconsistency = \"sqlite\"\n");
    let path = shop.at("state/current/volumes/main/shop.db");
    database(&path, "paid");
    shop.write("volumes/main/readme", "old");
    shop.save();
    // Whoever is killed leaves a log with committed rows beside the database.
    let script = "import os,sqlite3,sys; d=sqlite3.connect(sys.argv[1], isolation_level=None); d.execute('pragma journal_mode=wal'); \
                  d.execute('pragma wal_autocheckpoint=0'); d.execute(\"update t set x='wrong'\"); os._exit(0)";
    let done = Command::new("python3")
        .args(["-c", script])
        .arg(&path)
        .status();
    assert!(done.unwrap().success());
    let log = shop.at("state/current/volumes/main/shop.db-wal");
    assert!(fs::metadata(&log).unwrap().len() > 0);
    shop.write("volumes/main/readme", "new");
    let words = ["restore", "latest", "--path", "volumes/main/shop.db"];

    let planned = shop.json(0, &[&words[..], &["--dry-run"]].concat());
    shop.json(0, &words);

    assert_eq!(row(&path), "paid");
    assert_eq!(
        shop.read("volumes/main/readme"),
        "new",
        "only the database was asked for"
    );
    assert_eq!(
        planned["changes"].as_array().unwrap().len(),
        1,
        "{planned:#}"
    );
}

#[test]
fn what_is_gone_comes_back_and_nothing_else_is_needed() {
    let shop = Shop::new(
        "[volumes.main]\nconsistency = \"sqlite\"\n[volumes.media]\nconsistency = \"generic\"\n",
    );
    let path = shop.at("state/current/volumes/main/shop.db");
    database(&path, "paid");
    shop.write("volumes/media/pic", "pixels");
    shop.save();

    for gone in ["volumes/main", "volumes/media", "volumes", ""] {
        fs::remove_dir_all(shop.at("state/current").join(gone)).unwrap();
        shop.json(0, &["restore", "latest"]);
        assert_eq!(
            (row(&path), shop.read("volumes/media/pic")),
            ("paid".into(), "pixels".into()),
            "{gone}"
        );
    }
    assert_eq!(
        shop.json(0, &["diff", "latest"])["items"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
}

#[test]
fn only_what_differs_is_written_and_the_rest_keeps_its_inodes() {
    let shop = Shop::new("[volumes.media]\nconsistency = \"generic\"\n");
    for number in 0..300 {
        shop.write(
            &format!("volumes/media/{}/{number}", number % 10),
            &number.to_string(),
        );
    }
    shop.save();
    let inode = |path: &str| {
        fs::metadata(shop.at("state/current").join(path))
            .unwrap()
            .ino()
    };
    let stays = [
        "volumes/media/1/1",
        "volumes/media/2/2",
        "volumes/media/2",
        "",
    ];
    let before = stays.map(inode);
    fs::remove_dir_all(shop.at("state/current/volumes/media/7")).unwrap();
    shop.write("volumes/media/1/11", "edited");
    shop.write("volumes/media/1/new", "new");

    let restored = shop.json(0, &["restore", "latest"]);

    assert_eq!(stays.map(inode), before);
    assert_eq!(shop.read("volumes/media/7/7"), "7");
    assert_eq!(shop.read("volumes/media/1/11"), "11");
    assert!(!shop.at("state/current/volumes/media/1/new").exists());
    let changes = &restored["in_place"];
    assert_eq!(
        (&changes["placed"], &changes["removed"]),
        (&2.into(), &1.into()),
        "{restored:#}"
    );
    assert_eq!(
        names(&shop.at("state")),
        [
            ".stasis",
            "chunks",
            "current",
            "index.json",
            "repo.json",
            "snapshots"
        ]
    );
    // What was replaced is in the snapshot that was made before.
    let safety = restored["safety_snapshot_id"].as_str().unwrap();
    shop.json(0, &["restore", safety]);
    assert_eq!(shop.read("volumes/media/1/11"), "edited");
    assert_eq!(shop.read("volumes/media/1/new"), "new");
}

#[test]
fn room_is_checked_before_anything_is_touched() {
    let shop = Shop::new("");
    let place = shop.at("state");
    fs::remove_dir_all(&place).unwrap();
    fs::create_dir(&place).unwrap();
    let store = format!("file://{}/snapshots", shop.session.home().display());
    let store = store.as_str();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"])
        .arg(&place)
        .output();
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        println!("skipped: a filesystem cannot be mounted");
        return;
    }
    let noise = |seed: u64| crate::repo_world::noise(seed, 2_500_000);
    fs::create_dir_all(shop.at("state/current/files")).unwrap();
    fs::write(shop.at("state/current/files/large"), noise(1)).unwrap();
    shop.write("files/small", "1");
    shop.json(0, &["save", "--store", store]);
    fs::write(shop.at("state/current/files/large"), noise(2)).unwrap();
    shop.write("files/small", "2");

    let full = shop.json(11, &["restore", "latest", "--store", store]);
    let untouched = shop.read("files/small");
    let small = shop.run(&[
        "restore",
        "latest",
        "--store",
        store,
        "--path",
        "files/small",
    ]);
    let part = shop.read("files/small");
    Command::new("umount").arg(&place).status().unwrap();

    let message = full["error"].to_string();
    assert!(message.contains("room for"), "{message}");
    assert_eq!(
        (untouched.as_str(), part.as_str()),
        ("2", "1"),
        "{}",
        small.err
    );
}

/// A project with a database in a server, a second volume and a file.
struct Served {
    server: Server,
    shop: Shop,
}

impl Served {
    fn new() -> Self {
        let server = Server::start();
        let shop = Shop::new(
            "[volumes.db]\nconsistency = \"postgres\"\nurl_env = \"SHOP_DATABASE\"\n[volumes.media]\nconsistency = \"generic\"\n",
        );
        server.ask("postgres", "create database shop");
        server.ask(
            "shop",
            "create table t(x text); insert into t values ('old')",
        );
        shop.write("files/a", "old");
        shop.write("volumes/media/pic", "old");
        Self { server, shop }
    }

    fn run(&self, words: &[&str]) -> Said {
        let mut command = self.shop.command(words);
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env(
                "PATH",
                format!("{}:{path}", self.server.programs().display()),
            )
            .env("SHOP_DATABASE", self.server.url("shop"))
            .arg("--json");
        said(command.output().unwrap())
    }

    fn json(&self, words: &[&str]) -> Value {
        let said = self.run(words);
        assert_eq!(said.code, 0, "{words:?}\n{}\n{}", said.out, said.err);
        serde_json::from_str(&said.out).unwrap()
    }

    fn databases(&self) -> Vec<String> {
        let sql = "select datname from pg_database where datname like 'shop%' order by 1";
        let listed = self.server.ask("postgres", sql);
        listed.lines().map(str::to_owned).collect()
    }

    fn row(&self) -> String {
        self.server.ask("shop", "select x from t").trim().to_owned()
    }
}

#[test]
fn a_server_that_is_down_hinders_only_what_is_restored_through_it() {
    let mut served = Served::new();
    served.json(&["save"]);
    served.shop.write("files/a", "new");
    served.shop.write("volumes/media/pic", "new");
    served.server.kill();

    let volume = served.json(&["restore", "latest", "--volume", "media"]);
    let path = served.json(&["restore", "latest", "--path", "files/a"]);
    let planned = served.json(&["restore", "latest", "--volume", "media", "--dry-run"]);
    let whole = served.run(&["restore", "latest"]);

    assert_eq!(served.shop.read("volumes/media/pic"), "old");
    assert_eq!(served.shop.read("files/a"), "old");
    assert!(volume["safety_snapshot_id"].is_string() && path["safety_snapshot_id"].is_string());
    assert_eq!(planned["changes"], Value::Null);
    assert_eq!(
        whole.code, 7,
        "a database is restored through its server: {}",
        whole.err
    );
    served.server.run().unwrap();
    assert_eq!(served.row(), "old");
    let back = volume["safety_snapshot_id"].as_str().unwrap();
    served.json(&["restore", back]);
    assert_eq!(served.shop.read("volumes/media/pic"), "new");
    assert_eq!(
        served.row(),
        "old",
        "a snapshot without a volume leaves it alone"
    );
}

#[test]
fn a_database_that_was_dropped_comes_back() {
    let served = Served::new();
    served.json(&["save"]);
    served.server.ask("postgres", "drop database shop");
    served.shop.write("files/a", "new");

    let restored = served.json(&["restore", "latest"]);

    assert_eq!(
        (served.row(), served.shop.read("files/a")),
        ("old".into(), "old".into())
    );
    assert!(restored["safety_snapshot_id"].is_string(), "{restored:#}");
    assert_eq!(served.databases(), ["shop"]);
}

#[test]
fn databases_that_a_restore_leaves_are_named_and_go_after_a_week() {
    let served = Served::new();
    served.json(&["save"]);
    served.server.ask("shop", "update t set x = 'new'");
    // As restores of last year and of tomorrow would have left them, and what only looks alike.
    for name in [
        "shop_before_68000000",
        "shop_stasis_68000001",
        "shop_before_ffffffff",
        "shop_before_sale",
    ] {
        served
            .server
            .ask("postgres", &format!("create database {name}"));
    }

    let restored = served.json(&["restore", "latest", "--no-safety"]);

    assert_eq!(served.row(), "old");
    let told = restored["databases_kept"].as_array().unwrap();
    let named = |removed: bool| -> Vec<&str> {
        let those = told.iter().filter(|one| one["removed"] == removed);
        those.map(|one| one["database"].as_str().unwrap()).collect()
    };
    assert_eq!(
        named(true),
        ["shop_before_68000000", "shop_stasis_68000001"]
    );
    let kept = named(false);
    assert_eq!(kept.len(), 2, "{told:?}");
    assert_eq!(
        served.server.ask(kept[0], "select x from t").trim(),
        "new",
        "what was replaced is there"
    );
    let mut left = vec!["shop", "shop_before_sale"];
    left.extend(&kept);
    left.sort_unstable();
    assert_eq!(served.databases(), left);

    served
        .server
        .ask("postgres", "create database shop_before_68000002");
    let collected = served.json(&["gc"]);
    assert_eq!(
        collected["databases_kept"].as_array().unwrap().len(),
        3,
        "{collected:#}"
    );
    assert_eq!(served.databases(), left, "gc removes what is old, too");
    let said = served.run(&["restore", "latest"]);
    assert!(said.out.contains(kept[0]), "{}", said.out);
}
