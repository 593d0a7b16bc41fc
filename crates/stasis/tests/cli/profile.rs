//! Profiles without a browser: every outcome of a save and of a load, on a real store.

use crate::session::Session;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const ALICE: &str = "acme/alice";

/// A directory that looks like a profile of Chrome 131.
pub(crate) fn profile(session: &Session, name: &str) -> PathBuf {
    let dir = session.home().join(name);
    fs::create_dir_all(dir.join("Default/Local Storage/leveldb")).unwrap();
    fs::write(dir.join("Last Version"), "131.0.6778.85").unwrap();
    write_preferences(&dir, "Normal");
    fs::write(dir.join("Local State"), "{}").unwrap();
    fs::write(dir.join("DevToolsActivePort"), "1\n/x").unwrap();
    std::os::unix::fs::symlink("elsewhere-1", dir.join("SingletonLock")).unwrap();
    sqlite(
        &dir,
        "create table cookies(name text); insert into cookies values('one');",
    );
    dir
}

fn write_preferences(dir: &Path, exit_type: &str) {
    let preferences = format!("{{\"profile\":{{\"exit_type\":\"{exit_type}\"}}}}");
    fs::write(dir.join("Default/Preferences"), preferences).unwrap();
}

/// Changes the cookies as their owner would.
pub(crate) fn sqlite(dir: &Path, statements: &str) {
    sqlite_in(&dir.join("Default/Cookies"), statements);
}

/// Runs statements in a database.
pub(crate) fn sqlite_in(file: &Path, statements: &str) {
    let script = "import sqlite3,sys; d=sqlite3.connect(sys.argv[1]); d.executescript(sys.argv[2]); d.close()";
    let done = Command::new("python3")
        .args(["-c", script])
        .arg(file)
        .arg(statements)
        .status();
    assert!(done.unwrap().success());
}

pub(crate) fn cookies(dir: &Path) -> String {
    let script = "import sqlite3,sys; d=sqlite3.connect(sys.argv[1]); \
                  print(','.join(r[0] for r in d.execute('select name from cookies order by 1')))";
    let said = Command::new("python3")
        .args(["-c", script])
        .arg(dir.join("Default/Cookies"))
        .output()
        .unwrap();
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn save(session: &Session, code: i32, dir: &Path, more: &[&str]) -> Value {
    let mut words = vec!["profile", "save", ALICE, "--dir", text(dir)];
    words.extend(more);
    session.json(code, &words)
}

pub(crate) fn load(session: &Session, code: i32, dir: &Path, more: &[&str]) -> Value {
    let mut words = vec!["profile", "load", ALICE, "--dir", text(dir)];
    if !more.contains(&"--chrome-major") {
        words.extend(["--chrome-major", "131"]);
    }
    words.extend(more);
    session.json(code, &words)
}

/// The only object of the lineage whose name ends like this.
fn object(session: &Session, end: &str) -> PathBuf {
    let all = fs::read_dir(session.object("snapshots/acme/alice/131")).unwrap();
    let mut fitting = all.map(|entry| entry.unwrap().path());
    fitting.find(|path| text(path).ends_with(end)).unwrap()
}

#[test]
fn a_profile_comes_back_byte_for_byte_without_what_belongs_to_one_host() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));

    let saved = save(
        &session,
        0,
        &dir,
        &[
            "--notes",
            "first",
            "--region",
            "us-east-1",
            "--egress-geo",
            "US/NY",
        ],
    );
    let loaded = load(&session, 0, &there, &[]);

    assert_eq!(saved["outcome"], "captured");
    assert_eq!(loaded["outcome"], "success");
    assert_eq!(loaded["sha256"], saved["sha256"]);
    assert_eq!(cookies(&there), "one");
    for name in ["SingletonLock", "DevToolsActivePort"] {
        assert!(
            dir.join(name).symlink_metadata().is_ok(),
            "the live directory is not changed"
        );
        assert!(there.join(name).symlink_metadata().is_err(), "{name}");
    }
    let manifest: Value =
        serde_json::from_slice(&fs::read(object(&session, ".manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["chrome_major_version"], 131);
    assert_eq!(manifest["notes"], "first");
    assert_eq!(manifest["captured_in"]["egress_ip_geo"]["region"], "NY");
    assert_eq!(manifest["mode"], "cold");
    assert_eq!(manifest["predecessor_sha256"], "");
    let pointer: Value =
        serde_json::from_slice(&fs::read(object(&session, "latest.json")).unwrap()).unwrap();
    let prefix = &saved["sha256"].as_str().unwrap()[..12];
    assert_eq!(pointer["active_sha256_prefix"], prefix);
    assert!(object(&session, &format!("profile-{prefix}.tar.zst")).exists());
}

#[test]
fn the_same_tree_again_is_a_no_op_and_a_change_has_a_predecessor() {
    let session = Session::new();
    let dir = profile(&session, "p");

    let first = save(&session, 0, &dir, &[]);
    let again = save(&session, 0, &dir, &[]);
    sqlite(&dir, "insert into cookies values('two');");
    let changed = save(&session, 0, &dir, &[]);

    assert_eq!(again["outcome"], "deduplicated");
    assert_eq!(again["sha256"], first["sha256"]);
    assert_eq!(changed["outcome"], "captured");
    assert_eq!(changed["predecessor_sha256"], first["sha256"]);
}

#[test]
fn a_directory_that_nobody_loaded_does_not_supersede_a_snapshot() {
    let session = Session::new();
    let dir = profile(&session, "p");
    let first = save(&session, 0, &dir, &[]);
    let stranger = profile(&session, "stranger");
    sqlite(&stranger, "insert into cookies values('other');");

    let diverged = save(&session, 6, &stranger, &[]);

    assert_eq!(diverged["outcome"], "diverged");
    assert_eq!(diverged["active_sha256"], first["sha256"]);
    let loaded = load(&session, 0, &session.home().join("there"), &[]);
    assert_eq!(
        loaded["sha256"], first["sha256"],
        "the snapshot before stays"
    );
    let base = first["sha256"].as_str().unwrap();
    let adopted = save(&session, 0, &stranger, &["--base", &base[..12]]);
    assert_eq!(adopted["outcome"], "captured");
    assert_eq!(adopted["predecessor_sha256"], base);
}

#[test]
fn a_base_that_is_no_beginning_of_a_digest_is_a_usage_error() {
    let session = Session::new();
    let dir = profile(&session, "p");
    save(&session, 0, &dir, &[]);

    for base in ["", "latest", "ABCDEF", " "] {
        let words = [
            "profile",
            "save",
            ALICE,
            "--dir",
            text(&dir),
            "--base",
            base,
        ];
        let refused = session.run(&words);
        assert_eq!(refused.code, 2, "{base:?}: {}", refused.err);
        assert!(refused.err.contains("--base"), "{}", refused.err);
    }
    save(&session, 3, &dir, &["--base", "0000"]);
}

/// Saves a damaged profile and publishes it all the same, as an operator can.
fn publish_damaged(session: &Session, dir: &Path) {
    let saved = save(session, 9, dir, &[]);
    assert_eq!(saved["outcome"], "damaged", "{saved}");
    let sha = saved["sha256"].as_str().unwrap();
    let words = ["profile", "rollback", ALICE, "--sha", sha, "--confirm"];
    session.json(0, &words);
}

/// Overwrites the beginning of the last page of the cookies.
fn damage_cookies(dir: &Path) {
    sqlite(
        dir,
        "create table t(a); insert into t select hex(randomblob(500)) from (select 1 union select 2);",
    );
    let cookies = dir.join("Default/Cookies");
    let mut bytes = fs::read(&cookies).unwrap();
    let page = bytes.len() - 4096;
    bytes[page..page + 64].fill(0xff);
    fs::write(&cookies, bytes).unwrap();
}

#[test]
fn a_damaged_profile_is_stored_and_never_published_over_a_good_one() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    let good = save(&session, 0, &dir, &[]);
    let whole = fs::read(dir.join("Default/Cookies")).unwrap();
    damage_cookies(&dir);

    let damaged = save(&session, 9, &dir, &[]);
    let told = session.run(&["profile", "save", ALICE, "--dir", text(&dir)]);
    let loaded = load(&session, 0, &there, &[]);

    assert_eq!(damaged["outcome"], "damaged", "{damaged}");
    assert_eq!(damaged["damaged_databases"][0], "Default/Cookies");
    assert_eq!(damaged["active_sha256"], good["sha256"]);
    assert!(told.err.contains("not published") || told.out.contains("not published"));
    assert_eq!(loaded["sha256"], good["sha256"], "the good one stays");
    assert_eq!(cookies(&there), "one");
    let listed = session.json(0, &["profile", "list", ALICE]).to_string();
    assert!(listed.contains("damaged_databases"), "{listed}");
    // What is made good again is saved from the same base.
    fs::write(dir.join("Default/Cookies"), whole).unwrap();
    sqlite(&dir, "insert into cookies values('two');");
    let again = save(&session, 0, &dir, &[]);
    assert_eq!(again["outcome"], "captured");
    assert_eq!(again["predecessor_sha256"], good["sha256"]);
    let manifest: Value = serde_json::from_slice(
        &fs::read(object(
            &session,
            &format!("{}.manifest.json", &again["sha256"].as_str().unwrap()[..12]),
        ))
        .unwrap(),
    )
    .unwrap();
    assert!(manifest["checked_at_ms"].as_u64().unwrap() > 0);
    let events = session.data(0, &["events", "--tenant", "acme"]);
    assert!(events.contains("not_published"), "{events}");
}

#[test]
fn a_damaged_leveldb_is_not_published_either() {
    let session = Session::new();
    let dir = profile(&session, "p");
    let good = save(&session, 0, &dir, &[]);
    let leveldb = dir.join("Default/Local Storage/leveldb");
    fs::write(leveldb.join("CURRENT"), "MANIFEST-000001\n").unwrap();
    fs::write(leveldb.join("MANIFEST-000001"), vec![7; 5000]).unwrap();

    let damaged = save(&session, 9, &dir, &[]);

    assert_eq!(damaged["outcome"], "damaged", "{damaged}");
    assert_eq!(damaged["active_sha256"], good["sha256"]);
}

#[test]
fn where_the_active_snapshot_is_damaged_the_one_before_is_loaded_loudly() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    let good = save(&session, 0, &dir, &[]);
    sqlite(&dir, "insert into cookies values('two');");
    let newest = save(&session, 0, &dir, &[]);
    let sha = newest["sha256"].as_str().unwrap();
    let archive = object(&session, &format!("{}.tar.zst", &sha[..12]));
    let mut bytes = fs::read(&archive).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&archive, bytes).unwrap();
    fs::remove_dir_all(session.home().join("cache")).unwrap();

    let refused = load(&session, 9, &there, &["--on-failure", "refuse"]);
    let fresh = load(&session, 12, &there, &["--on-failure", "fresh"]);
    let older = load(&session, 13, &there, &[]);

    assert_eq!(refused["error"]["kind"], "corrupt");
    assert_eq!(fresh["reason"], "sha_mismatch");
    assert_eq!(older["outcome"], "predecessor", "{older}");
    assert_eq!(older["reason"], "sha_mismatch");
    assert_eq!(older["sha256"], good["sha256"]);
    assert_eq!(cookies(&there), "one");
    // What comes of it does not pass for a successor of the damaged one.
    sqlite(&there, "insert into cookies values('three');");
    assert_eq!(save(&session, 6, &there, &[])["active_sha256"], sha);
    let events = session.data(0, &["events", "--tenant", "acme"]);
    assert!(events.contains("predecessor_loaded"), "{events}");
}

#[test]
fn of_many_damaged_databases_a_load_names_five() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    sqlite(&dir, "create table t(a); insert into t values('x');");
    let mut bytes = fs::read(dir.join("Default/Cookies")).unwrap();
    let page = bytes.len() - 4096;
    bytes[page..page + 64].fill(0xff);
    for number in 0..7 {
        fs::write(dir.join(format!("Default/damaged{number}")), &bytes).unwrap();
    }
    publish_damaged(&session, &dir);

    let fresh = load(&session, 12, &there, &[]);

    assert_eq!(fresh["reason"], "integrity_failed", "{fresh}");
    let detail = fresh["detail"].as_str().unwrap();
    assert_eq!(detail.matches("Default/damaged").count(), 5, "{detail}");
    assert!(detail.ends_with(" and 2 more"), "{detail}");
}

#[test]
fn another_directory_in_the_place_of_a_loaded_one_has_no_base() {
    let session = Session::new();
    let dir = profile(&session, "p");
    let first = save(&session, 0, &dir, &[]);
    fs::remove_dir_all(&dir).unwrap();
    profile(&session, "p");
    sqlite(&dir, "insert into cookies values('fresh');");

    let diverged = save(&session, 6, &dir, &[]);

    assert_eq!(diverged["active_sha256"], first["sha256"], "{diverged}");
}

/// A tar of something else, sound in itself, as another program writes it.
fn stranger(session: &Session) -> Vec<u8> {
    let (dir, tar) = (profile(session, "s"), session.home().join("s.tar"));
    fs::write(dir.join("Default/strange"), "strange").unwrap();
    let tarred = Command::new("tar")
        .args(["-C", text(&dir), "-cf", text(&tar), "."])
        .status();
    assert!(tarred.unwrap().success());
    fs::read(tar).unwrap()
}

#[test]
fn what_a_cache_holds_instead_of_the_archive_never_becomes_the_directory() {
    let session = Session::new();
    let dir = profile(&session, "p");
    let noise: Vec<u8> = (0..300_000_u32)
        .flat_map(|n| n.wrapping_mul(n).to_le_bytes())
        .collect();
    fs::write(dir.join("Default/noise"), noise).unwrap();
    let saved = save(&session, 0, &dir, &[]);
    let cached = session.home().join("cache/stasis/archives");
    let cached = cached.join(format!("{}.tar.zst", saved["sha256"].as_str().unwrap()));
    let whole = fs::read(&cached).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;

    for (case, bytes) in [flipped, stranger(&session)].into_iter().enumerate() {
        let there = session.home().join(format!("there-{case}"));
        fs::write(&cached, &bytes).unwrap();
        let loaded = load(&session, 0, &there, &[]);

        assert_eq!(loaded["outcome"], "success");
        assert!(loaded["bytes_fetched"].as_u64().unwrap() > 0, "{loaded}");
        assert!(!there.join("Default/strange").exists());
        assert_eq!(cookies(&there), "one");
        assert_eq!(fs::read(&cached).unwrap(), whole, "it was replaced");
    }
}

#[test]
fn a_rotten_cache_costs_only_time() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    let first = save(&session, 0, &dir, &[]);
    let cached = session.home().join("cache/stasis/archives");
    let cached = cached.join(format!("{}.tar.zst", first["sha256"].as_str().unwrap()));
    let length = fs::metadata(&cached).unwrap().len();
    fs::write(&cached, vec![0; usize::try_from(length).unwrap()]).unwrap();
    fs::write(dir.join("Default/more"), "more").unwrap();

    let saved = save(&session, 0, &dir, &[]);
    let sha = saved["sha256"].as_str().unwrap();
    let cached = cached.with_file_name(format!("{sha}.tar.zst"));
    fs::write(&cached, "rotten").unwrap();
    let loaded = load(&session, 0, &there, &[]);

    assert_eq!(saved["outcome"], "captured");
    assert_eq!(loaded["outcome"], "success");
    assert_ne!(fs::read(&cached).unwrap(), b"rotten", "it was replaced");
}

#[test]
fn chrome_major_version_mismatch_refuses_load() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    save(&session, 0, &dir, &[]);
    fs::create_dir(&there).unwrap();
    fs::write(there.join("mine"), "mine").unwrap();
    fs::write(there.join("First Run"), "").unwrap();

    let fresh = load(&session, 12, &there, &["--chrome-major", "130"]);
    let refused = load(
        &session,
        3,
        &there,
        &["--chrome-major", "130", "--on-failure", "refuse"],
    );

    assert_eq!(fresh["outcome"], "fresh_fallback");
    assert_eq!(fresh["reason"], "version_mismatch");
    let kept = fresh["kept"].as_str().unwrap();
    assert_eq!(
        fs::read(Path::new(kept).join("mine")).unwrap(),
        b"mine",
        "never wiped"
    );
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("acme/alice@131")
    );
    // And what was written by 131 is not saved as 132.
    let wrong = session.run(&["profile", "save", "acme/alice@132", "--dir", text(&dir)]);
    assert_eq!(wrong.code, 2, "{}", wrong.err);
}

#[test]
fn sha256_mismatch_refuses_load_wherever_the_byte_was() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    save(&session, 0, &dir, &[]);
    let archive = object(&session, ".tar.zst");
    let whole = fs::read(&archive).unwrap();
    let other_host = || fs::remove_dir_all(session.home().join("cache")).unwrap();

    for at in [0, whole.len() / 2, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&archive, &bytes).unwrap();
        other_host();
        let loaded = load(&session, 12, &there, &[]);
        assert_eq!(loaded["reason"], "sha_mismatch", "byte {at}: {loaded}");
        assert_eq!(
            fs::read_dir(&there).unwrap().count(),
            0,
            "nothing of it was loaded"
        );
    }
    fs::write(&archive, &whole[..whole.len() - 100]).unwrap();
    other_host();
    assert_eq!(load(&session, 12, &there, &[])["reason"], "sha_mismatch");
    fs::remove_file(&archive).unwrap();
    other_host();
    assert_eq!(load(&session, 12, &there, &[])["reason"], "no_archive");
    fs::write(&archive, &whole).unwrap();
    assert_eq!(load(&session, 0, &there, &[])["outcome"], "success");
}

#[test]
fn a_run_whose_load_failed_cannot_flip() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    let first = save(&session, 0, &dir, &[]);
    let manifest = object(&session, ".manifest.json");
    let whole = fs::read_to_string(&manifest).unwrap();

    fs::write(
        &manifest,
        whole.replacen("\"version\": 1", "\"version\": 9", 1),
    )
    .unwrap();
    let other = load(&session, 12, &there, &[]);
    fs::remove_file(&manifest).unwrap();
    let gone = load(&session, 12, &there, &[]);
    fs::write(&manifest, &whole).unwrap();
    fs::write(there.join("Last Version"), "131.0.6778.85").unwrap();
    let saved = save(&session, 6, &there, &[]);

    // The pointer knows the manifest's digest, so that a manifest of another version cannot even be believed in that.
    assert_eq!(other["reason"], "manifest_invalid");
    assert_eq!(gone["reason"], "no_manifest");
    assert_eq!(saved["outcome"], "diverged");
    assert_eq!(saved["active_sha256"], first["sha256"]);
}

#[test]
fn sqlite_integrity_check_failure_refuses_load() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    let cookies = dir.join("Default/Cookies");
    sqlite(
        &dir,
        "create table t(a); insert into t select hex(randomblob(500)) from (select 1 union select 2 union select 3 union select 4);",
    );
    let mut bytes = fs::read(&cookies).unwrap();
    let page = bytes.len() / 2 / 4096 * 4096;
    bytes[page..page + 64].fill(0xff);
    fs::write(&cookies, bytes).unwrap();
    publish_damaged(&session, &dir);

    let fresh = load(&session, 12, &there, &[]);

    assert_eq!(fresh["reason"], "integrity_failed", "{fresh}");
    assert!(
        fresh["detail"]
            .as_str()
            .unwrap()
            .contains("Default/Cookies")
    );
    assert_eq!(
        load(&session, 9, &there, &["--on-failure", "refuse"])["error"]["kind"],
        "corrupt"
    );
}

#[test]
fn profile_too_large_rejects_on_the_writer_side_and_names_what_is_large() {
    let session = Session::new();
    let dir = profile(&session, "p");
    fs::create_dir_all(dir.join("Default/Cache")).unwrap();
    fs::write(dir.join("Default/Cache/big"), vec![7; 400_000]).unwrap();
    session.data(
        0,
        &[
            "tenant",
            "policy",
            "set",
            "acme",
            "max_profile_bytes=300000",
        ],
    );

    let refused = save(&session, 11, &dir, &["--include-caches"]);
    let without = save(&session, 0, &dir, &[]);

    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("Default/Cache"), "{message}");
    assert!(
        refused["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("--include-caches")
    );
    assert_eq!(without["outcome"], "captured");
    session.data(
        0,
        &["tenant", "policy", "set", "acme", "max_profile_bytes=1000"],
    );
    let fresh = load(&session, 12, &session.home().join("there"), &[]);
    assert_eq!(fresh["reason"], "too_large");
}

#[test]
fn hot_mode_is_refused_with_a_pointer_to_the_docs_unless_policy_allows_it() {
    let session = Session::new();
    let dir = profile(&session, "p");

    let refused = save(&session, 11, &dir, &["--mode", "hot"]);

    let hint = refused["error"]["hint"].as_str().unwrap();
    assert!(
        hint.contains("docs/guides/profile.md") && hint.contains("allow_hot=true"),
        "{hint}"
    );
    session.data(0, &["tenant", "policy", "set", "acme", "allow_hot=true"]);
    let saved = save(&session, 0, &dir, &["--mode", "hot"]);
    assert_eq!(saved["mode"], "cold", "no browser ran");
}

#[test]
fn an_outage_never_reads_as_no_snapshot() {
    let nobody = "s3://stasis/x?endpoint=http://127.0.0.1:1&region=us-east-1";
    let session = Session::on(nobody);
    let there = session.home().join("there");
    let mut words = vec![
        "--json",
        "profile",
        "load",
        ALICE,
        "--chrome-major",
        "131",
        "--dir",
        text(&there),
    ];
    let run = |words: &[&str]| {
        let mut command = session.command(words);
        command
            .env("AWS_ACCESS_KEY_ID", "k")
            .env("AWS_SECRET_ACCESS_KEY", "s");
        crate::session::said(command.output().unwrap())
    };

    let refused = run(&words);
    assert_eq!(refused.code, 7, "{}", refused.out);
    assert!(!there.exists(), "nothing was touched");

    words.extend(["--on-failure", "fresh"]);
    let fresh = run(&words);
    assert_eq!(fresh.code, 12, "{}", fresh.out);
    let fresh: Value = serde_json::from_str(&fresh.out).unwrap();
    assert_eq!(fresh["reason"], "bucket_unreachable");
}

#[test]
fn a_flipped_byte_in_the_pointer_stops_writers_and_never_reads_as_no_snapshot() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    save(&session, 0, &dir, &[]);
    let pointer = object(&session, "latest.json");
    let whole = fs::read(&pointer).unwrap();
    let mut damaged = whole.clone();
    let at = damaged.iter().position(|byte| *byte == b':').unwrap();
    damaged[at] = b'#';
    fs::write(&pointer, &damaged).unwrap();
    fs::write(dir.join("Default/more"), "more").unwrap();

    let loaded = load(&session, 12, &there, &[]);
    let refused = load(&session, 9, &there, &["--on-failure", "refuse"]);
    let saved = save(&session, 9, &dir, &[]);

    assert_eq!(loaded["outcome"], "fresh_fallback", "{loaded}");
    assert_eq!(refused["error"]["kind"], "corrupt");
    assert_eq!(saved["error"]["kind"], "corrupt");
    assert_eq!(
        fs::read(&pointer).unwrap(),
        damaged,
        "nothing was overwritten"
    );
    fs::write(&pointer, whole).unwrap();
    assert_eq!(load(&session, 0, &there, &[])["outcome"], "success");
}

#[test]
fn a_pointer_or_a_lock_that_is_damaged_or_lost_is_made_anew() {
    for (name, is_lost) in [
        ("latest.json", false),
        ("latest.json", true),
        ("lock.json", false),
    ] {
        let session = Session::new();
        let (dir, there) = (profile(&session, "p"), session.home().join("there"));
        save(&session, 0, &dir, &[]);
        fs::write(dir.join("Default/more"), "more").unwrap();
        let second = save(&session, 0, &dir, &[]);
        let document = object(&session, name);
        let spoilt = b"{\"version\": 1, \"act".to_vec();
        fs::write(&document, &spoilt).unwrap();
        if is_lost {
            fs::remove_file(&document).unwrap();
        }
        let repair = ["repair", "profile:acme/alice@131"];

        fs::write(dir.join("Default/more"), "yet more").unwrap();
        let stopped = save(&session, 9, &dir, &[]);
        let planned = session.run(&repair);
        let repaired = session.json(0, &[&repair[..], &["--confirm"]].concat());
        let again = session.json(0, &[&repair[..], &["--confirm"]].concat());

        assert_eq!(stopped["error"]["kind"], "corrupt", "{name} {stopped}");
        assert_ne!(planned.code, 0);
        assert!(planned.err.contains("would make"), "{}", planned.err);
        let made = repaired["documents"].as_array().unwrap();
        assert_eq!(made.len(), 1, "{name} {repaired}");
        assert_eq!(again["documents"].as_array().unwrap().len(), 0, "{again}");
        if !is_lost {
            let kept = session.object(made[0]["kept"].as_str().unwrap());
            assert_eq!(fs::read(kept).unwrap(), spoilt);
        }
        assert_eq!(load(&session, 0, &there, &[])["outcome"], "success");
        let found = fs::read_to_string(there.join("Default/more")).unwrap();
        assert_eq!(found, "more", "{second}");
        fs::write(there.join("Default/more"), "on").unwrap();
        let third = save(&session, 0, &there, &[]);
        assert_eq!(third["outcome"], "captured", "{third}");
    }
}

#[test]
fn a_profile_that_went_back_is_neither_loaded_nor_saved_until_somebody_accepts_it() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    save(&session, 0, &dir, &[]);
    let pointer = object(&session, "latest.json");
    let earlier = fs::read(&pointer).unwrap();
    fs::write(dir.join("Default/more"), "more").unwrap();
    save(&session, 0, &dir, &[]);
    fs::write(&pointer, &earlier).unwrap();

    let loaded = load(&session, 9, &there, &[]);
    let saved = save(&session, 9, &dir, &[]);
    let repair = ["repair", "profile:acme/alice@131", "--accept-rollback"];
    let accepted = session.json(0, &repair);
    let again = load(&session, 0, &there, &[]);

    for refused in [loaded, saved] {
        let hint = refused["error"]["hint"].as_str().unwrap();
        assert!(hint.contains("--accept-rollback"), "{refused}");
    }
    assert_eq!(accepted["subjects"].as_array().unwrap().len(), 1);
    assert_eq!(again["outcome"], "success");
    assert!(!there.join("Default/more").exists());
}

#[test]
fn a_lost_pointer_is_damage_and_never_no_snapshot_yet() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    let first = save(&session, 0, &dir, &[]);
    fs::write(dir.join("Default/more"), "more").unwrap();
    save(&session, 0, &dir, &[]);
    let pointer = object(&session, "latest.json");
    let whole = fs::read(&pointer).unwrap();
    session.data(
        0,
        &["tenant", "policy", "set", "acme", "retention.enabled=true"],
    );
    let lineage = session.object("snapshots/acme/alice/131");
    let objects = || fs::read_dir(&lineage).unwrap().count();
    let before = objects();

    for without in ["", "lock.json"] {
        fs::remove_file(&pointer).unwrap();
        if !without.is_empty() {
            fs::remove_file(lineage.join(without)).unwrap();
        }
        let loaded = load(&session, 9, &there, &[]);
        assert_eq!(loaded["error"]["kind"], "corrupt", "{loaded}");
        assert!(!there.exists(), "nothing was touched");
        let newer = load(&session, 9, &there, &["--chrome-major", "132"]);
        assert_eq!(
            newer["error"]["kind"], "corrupt",
            "nor is it carried: {newer}"
        );
        let saved = save(&session, 9, &dir, &[]);
        assert_eq!(saved["error"]["kind"], "corrupt", "{saved}");
        let words = ["profile", "run", "acme/alice@131", "--", "true", "{dir}"];
        assert_eq!(session.run(&words).code, 109);
        let collected = session.run(&["--json", "profile", "gc", ALICE, "--keep-newest", "1"]);
        assert!(collected.out.contains("latest.json"), "{}", collected.out);
        session.json(9, &["profile", "list", ALICE]);
        assert!(!pointer.exists(), "nothing was published over it");
        let gone = 1 + usize::from(!without.is_empty());
        assert_eq!(objects(), before - gone, "nothing was removed");
        fs::write(&pointer, &whole).unwrap();
    }
    assert_eq!(load(&session, 0, &there, &[])["outcome"], "success");
    let rollback = ["profile", "rollback", ALICE, "--confirm", "--sha"];
    let sha = first["sha256"].as_str().unwrap();
    session.json(0, &[&rollback[..], &[sha]].concat());
}

#[test]
fn a_first_owner_that_died_before_its_pointer_leaves_a_profile_that_can_begin() {
    let session = Session::new();
    let dir = profile(&session, "p");
    let token = session.data(0, &["lease", "acquire", "acme/alice@131", "--ttl", "1s"]);
    assert!(!token.is_empty());
    // What the death between the two writes of owning leaves: the lock, and nothing else.
    fs::remove_file(object(&session, "latest.json")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1200));

    let loaded = load(&session, 0, &session.home().join("there"), &[]);
    let saved = save(&session, 0, &dir, &[]);

    assert_eq!(loaded["outcome"], "no_snapshot");
    assert_eq!(saved["outcome"], "captured");
}

#[test]
fn gc_keeps_the_newest_snapshot_that_is_known_to_come_back() {
    let session = Session::new();
    let dir = profile(&session, "p");
    let good = save(&session, 0, &dir, &[]);
    let whole = fs::read(dir.join("Default/Cookies")).unwrap();
    for number in 0..2 {
        fs::write(dir.join("Default/Cookies"), &whole).unwrap();
        fs::write(dir.join("Default/number"), number.to_string()).unwrap();
        damage_cookies(&dir);
        publish_damaged(&session, &dir);
    }
    let gc = [
        "profile",
        "gc",
        ALICE,
        "--keep-newest",
        "1",
        "--keep-rollback-days",
        "0",
    ];

    let collected = session.json(0, &gc);

    let verdicts = collected["items"][0]["verdicts"].as_array().unwrap();
    let kept = |sha: &Value| {
        verdicts
            .iter()
            .any(|one| one["sha256"] == *sha && one["kept"] == true)
    };
    assert!(kept(&good["sha256"]), "{collected}");
    let rollback = ["profile", "rollback", ALICE, "--confirm", "--sha"];
    session.json(
        0,
        &[&rollback[..], &[good["sha256"].as_str().unwrap()]].concat(),
    );
    assert_eq!(
        load(&session, 0, &session.home().join("there"), &[])["outcome"],
        "success"
    );
}

#[test]
fn what_verify_finds_counts_for_gc() {
    let session = Session::new();
    let dir = profile(&session, "p");
    let older = save(&session, 0, &dir, &[]);
    fs::write(dir.join("Default/more"), "more").unwrap();
    let newer = save(&session, 0, &dir, &[]);
    let sha = newer["sha256"].as_str().unwrap();
    let archive = object(&session, &format!("{}.tar.zst", &sha[..12]));
    let mut bytes = fs::read(&archive).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&archive, bytes).unwrap();
    fs::remove_dir_all(session.home().join("cache")).unwrap();
    let gc = ["profile", "gc", ALICE, "--keep-newest", "1", "--dry-run"];
    let removed = |collected: &Value| collected["objects_removed"].as_u64().unwrap();
    assert!(
        removed(&session.json(0, &gc)) > 0,
        "nobody knows better yet"
    );

    session.json(9, &["profile", "verify", ALICE]);

    let after = session.json(0, &gc);
    assert_eq!(removed(&after), 0, "{after}");
    assert!(
        after.to_string().contains("newest verified"),
        "{older} {after}"
    );
}

#[test]
fn an_outage_at_save_leaves_the_directory_and_says_so() {
    let nobody = "s3://stasis/x?endpoint=http://127.0.0.1:1&region=us-east-1";
    let session = Session::on(nobody);
    let dir = profile(&session, "p");
    let mut command = session.command(&["--json", "profile", "save", ALICE, "--dir", text(&dir)]);
    command
        .env("AWS_ACCESS_KEY_ID", "k")
        .env("AWS_SECRET_ACCESS_KEY", "s");

    let said = crate::session::said(command.output().unwrap());

    assert_eq!(said.code, 7, "{}", said.out);
    assert_eq!(cookies(&dir), "one");
    assert!(dir.join("SingletonLock").symlink_metadata().is_ok());
}

#[test]
fn a_save_that_is_killed_leaves_the_snapshot_before_or_the_new_one() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    fs::write(dir.join("Default/step"), "a").unwrap();
    save(&session, 0, &dir, &[]);

    for (step, letter) in ('b'..='m').enumerate() {
        fs::write(dir.join("Default/step"), letter.to_string().repeat(300_000)).unwrap();
        let mut command = session.command(&["profile", "save", ALICE, "--dir", text(&dir)]);
        let mut saving = command.spawn().unwrap();
        let wait = u64::try_from(step).unwrap() * 8;
        std::thread::sleep(std::time::Duration::from_millis(wait));
        saving.kill().unwrap();
        saving.wait().unwrap();
        let unlock = [
            "profile",
            "force-unlock",
            ALICE,
            "--reason",
            "killed",
            "--confirm",
        ];
        session.run(&unlock);

        assert_eq!(load(&session, 0, &there, &[])["outcome"], "success");
        let found = fs::read_to_string(there.join("Default/step")).unwrap();
        let first = found.chars().next().unwrap();
        assert!(
            found.chars().all(|each| each == first) && first <= letter,
            "{first}"
        );
        assert!(matches!(found.len(), 1 | 300_000), "{}", found.len());
        let spool = session.home().join("cache/stasis/archives");
        let left = fs::read_dir(spool).unwrap().flatten();
        let left: Vec<_> = left
            .filter(|entry| !text(&entry.path()).ends_with(".tar.zst"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
    let shown = session.json(0, &["profile", "show", ALICE]).to_string();
    let sha = shown.split("\"active_sha256\":\"").nth(1).unwrap()[..12].to_owned();
    assert_eq!(
        save(&session, 0, &dir, &["--base", &sha])["subject"],
        "profile:acme/alice@131"
    );
}

#[test]
fn an_empty_profile_is_a_snapshot_and_a_crash_is_a_warning() {
    let session = Session::new();
    let (empty, there) = (session.home().join("empty"), session.home().join("there"));
    fs::create_dir(&empty).unwrap();

    save(&session, 0, &empty, &["--chrome-major", "131"]);
    let loaded = load(&session, 0, &there, &[]);
    assert_eq!(loaded["outcome"], "success");
    assert_eq!(loaded["empty"], true);

    let other = profile(&session, "p");
    write_preferences(&other, "Crashed");
    let words = ["profile", "save", "acme/bob", "--dir", text(&other)];
    session.json(0, &words);
    let bob = session.json(
        0,
        &["profile", "load", "acme/bob@131", "--dir", text(&there)],
    );
    assert_eq!(bob["warnings"][0]["code"], "crashed_before_capture");
}

#[test]
fn another_region_is_a_warning_and_by_policy_a_refusal() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    save(&session, 0, &dir, &["--region", "us-east-1"]);

    let same = load(&session, 0, &there, &["--region", "us-east-1"]);
    let other = load(&session, 0, &there, &["--region", "eu-west-1"]);
    session.data(
        0,
        &["tenant", "policy", "set", "acme", "on_region_change=refuse"],
    );
    let refused = load(&session, 12, &there, &["--region", "eu-west-1"]);

    assert_eq!(same["warnings"], serde_json::json!([]));
    assert_eq!(other["warnings"][0]["code"], "region_changed");
    assert_eq!(refused["reason"], "region_refused");
}

#[test]
fn a_held_profile_is_a_conflict_and_a_token_lets_its_holder_save() {
    let session = Session::new();
    let dir = profile(&session, "p");
    let token = session.data(
        0,
        &["lease", "acquire", "acme/alice@131", "--run-id", "mine"],
    );

    let held = save(&session, 4, &dir, &[]);
    let saved = save(&session, 0, &dir, &["--token", &token]);

    assert_eq!(held["error"]["holder"]["holder_run_id"], "mine");
    assert_eq!(saved["outcome"], "captured");
    session.data(
        0,
        &["lease", "release", "acme/alice@131", "--token", &token],
    );
}

#[test]
fn names_that_differ_by_one_odd_character_never_meet_and_hostile_ones_are_refused() {
    let session = Session::new();
    let dir = profile(&session, "p");
    for subject in ["acme/alice", "acme/alice.", "Acme/alice", "acme_/alice"] {
        session.json(0, &["profile", "save", subject, "--dir", text(&dir)]);
    }
    for subject in [
        "../x/alice",
        "acme/..",
        "acme/a/b",
        "ac me/x",
        "acme/\u{430}lice",
        "acme",
        "acme/",
    ] {
        let refused = session.run(&["profile", "save", subject, "--dir", text(&dir)]);
        assert_eq!(refused.code, 2, "{subject}: {}", refused.err);
    }
    let tenants = fs::read_dir(session.object("snapshots")).unwrap().count();
    assert_eq!(tenants, 3);
}

#[test]
fn a_warm_host_fetches_only_what_changed_and_a_lost_cache_costs_only_time() {
    let session = Session::new();
    let dir = profile(&session, "p");
    let mut noise = 7_u64;
    for file in 0..30 {
        let mut bytes = Vec::new();
        while bytes.len() < 120_000 {
            noise = noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            bytes.extend_from_slice(&noise.to_le_bytes());
        }
        fs::write(dir.join(format!("Default/f{file}")), bytes).unwrap();
    }
    save(&session, 0, &dir, &[]);
    let other = Session::on(&format!(
        "file://{}",
        text(&session.object("")).trim_end_matches('/')
    ));
    let there = other.home().join("there");

    let cold = load(&other, 0, &there, &[]);
    fs::write(dir.join("Default/f3"), "changed").unwrap();
    let changed = save(&session, 0, &dir, &[]);
    let warm = load(&other, 0, &there, &[]);
    let again = load(&other, 0, &there, &[]);

    assert_eq!(cold["bytes_fetched"], cold["archive_bytes"]);
    let (fetched, all) = (
        warm["bytes_fetched"].as_u64().unwrap(),
        warm["archive_bytes"].as_u64().unwrap(),
    );
    assert!(fetched < all / 3, "{fetched} of {all}");
    assert_eq!(again["bytes_fetched"], 0);
    assert!(
        changed["bytes_reused"].as_u64().unwrap() > all / 2,
        "{changed}"
    );
    assert_eq!(fs::read(there.join("Default/f3")).unwrap(), b"changed");
}

/// A file with a tenant's key, as a flag.
fn key(session: &Session, name: &str, digit: &str) -> (PathBuf, String) {
    let path = session.home().join(name);
    fs::write(&path, digit.repeat(64) + "\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let flag = format!("--key-file={}", text(&path));
    (path, flag)
}

#[test]
fn an_encrypted_profile_opens_with_its_key_alone() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    let ((path, mine), (new, other)) = (key(&session, "mine", "a"), key(&session, "other", "b"));

    let first = save(&session, 0, &dir, &[&mine]);
    let again = save(&session, 0, &dir, &[&mine]);
    fs::write(dir.join("Default/more"), "more").unwrap();
    let command = format!("--key-command=cat {}", text(&path));
    let changed = save(&session, 0, &dir, &[&command]);
    let without = load(&session, 8, &there, &[]);
    let wrong = load(&session, 8, &there, &[&other]);
    let plain = save(&session, 8, &dir, &[]);
    fs::remove_dir_all(session.home().join("cache")).unwrap();
    let loaded = load(&session, 0, &there, &[&mine]);

    assert_eq!(again["outcome"], "deduplicated");
    assert_eq!(changed["predecessor_sha256"], first["sha256"]);
    let hint = without["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("--key-file"), "{hint}");
    let message = wrong["error"]["message"].as_str().unwrap();
    assert!(message.contains("is wrapped by key"), "{message}");
    assert_eq!(plain["error"]["kind"], "denied");
    assert_eq!(loaded["outcome"], "success");
    assert_eq!(fs::read(there.join("Default/more")).unwrap(), b"more");

    let new = format!("--new-key-file={}", text(&new));
    session.json(0, &["profile", "rekey", ALICE, &mine, &new]);
    load(&session, 8, &there, &[&mine]);
    let loaded = load(&session, 0, &there, &[&other]);
    assert_eq!(loaded["sha256"], changed["sha256"]);
}

#[test]
fn a_fork_of_an_encrypted_profile_has_a_data_key_of_its_own() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    let ((_, mine), (_, other)) = (key(&session, "mine", "a"), key(&session, "other", "b"));
    let saved = save(&session, 0, &dir, &[&mine]);
    let fork = |code, key: &[&str]| {
        session.json(
            code,
            &[&["profile", "fork", ALICE, "acme/bob"], key].concat(),
        )
    };
    let loaded = |code, key: &str| {
        let words = [
            "profile",
            "load",
            "acme/bob@131",
            "--dir",
            text(&there),
            key,
        ];
        session.json(code, &words)
    };
    let key_of = |profile: &str| {
        let key = format!("snapshots/acme/{profile}/131/key.json");
        fs::read_to_string(session.object(&key)).unwrap()
    };

    fork(8, &[]);
    fork(8, &[&other]);
    assert!(!session.object("snapshots/acme/bob").exists());
    let forked = fork(0, &[&mine]);

    assert_ne!(forked["sha256"], saved["sha256"], "other bytes");
    assert_eq!(loaded(0, &mine)["sha256"], forked["sha256"]);
    let restored = fs::read(there.join("Default/Preferences")).unwrap();
    assert_eq!(restored, fs::read(dir.join("Default/Preferences")).unwrap());
    loaded(8, &other);
    let (of_source, of_fork) = (key_of("alice"), key_of("bob"));
    assert!(of_fork.contains("acme/bob@131") && of_source != of_fork);
    // The key of one opens nothing of the other.
    let place = session.object("snapshots/acme/bob/131/key.json");
    fs::write(&place, &of_source).unwrap();
    loaded(9, &mine);
}

#[test]
fn what_is_encrypted_tells_the_bucket_nothing_and_plain_snapshots_are_refused_with_a_key() {
    let session = Session::new();
    let dir = profile(&session, "p");
    let marker = "a marker that is nowhere else";
    fs::write(dir.join("Default/marker"), marker).unwrap();
    let (_, mine) = key(&session, "mine", "a");
    session.json(0, &["profile", "save", "acme/plain", "--dir", text(&dir)]);

    save(&session, 0, &dir, &[&mine]);
    let words = [
        "profile",
        "load",
        "acme/plain@131",
        "--dir",
        text(&dir),
        &mine,
    ];
    let downgraded = session.json(8, &words);

    assert!(
        downgraded["error"]["message"]
            .as_str()
            .unwrap()
            .contains("not encrypted")
    );
    for entry in fs::read_dir(session.object("snapshots/acme/alice/131")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let found = bytes
            .windows(marker.len())
            .any(|part| part == marker.as_bytes());
        assert!(!found, "{}", path.display());
        let names = [
            "tar.zst.enc",
            "manifest.json",
            "latest.json",
            "lock.json",
            "key.json",
        ];
        assert!(
            names.iter().any(|name| text(&path).ends_with(name)),
            "{}",
            path.display()
        );
    }
}

#[test]
fn a_plain_snapshot_in_an_encrypted_lineage_is_refused_on_every_host() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    let (_, mine) = key(&session, "mine", "a");
    save(&session, 0, &dir, &[&mine]);
    // Whoever can write to the store makes a plain lineage elsewhere, and puts it in the place of the encrypted one.
    let hostile = Session::new();
    let other = profile(&hostile, "p");
    fs::write(other.join("Default/hostile"), "hostile").unwrap();
    save(&hostile, 0, &other, &[]);
    let (ours, theirs) = ("snapshots/acme/alice/131", "snapshots/acme/alice/131");
    for entry in fs::read_dir(hostile.object(theirs)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), session.object(ours).join(entry.file_name())).unwrap();
    }

    for more in [&[][..], &[&*mine]] {
        let refused = load(&session, 9, &there, more);
        assert_eq!(refused["error"]["kind"], "corrupt", "{refused}");
        let hint = refused["error"]["hint"].as_str().unwrap();
        assert!(
            hint.contains("do not load it") && !hint.contains("leave the key out"),
            "{hint}"
        );
        assert!(!there.exists());
    }
    let words = ["profile", "fork", ALICE, "acme/bob"];
    assert_eq!(session.run(&words).code, 9);
    assert_eq!(session.run(&["profile", "verify", ALICE]).code, 9);
}

#[test]
fn a_policy_that_requires_encryption_lets_no_plain_profile_be_saved() {
    let session = Session::new();
    let dir = profile(&session, "p");
    let (_, mine) = key(&session, "mine", "a");
    let require = ["tenant", "policy", "set", "acme", "require_encryption=true"];
    session.data(0, &require);

    let refused = save(&session, 11, &dir, &[]);
    save(&session, 0, &dir, &[&mine]);

    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("requires encryption"), "{message}");
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let session = Session::new();
    let dir = profile(&session, "p");
    let (path, mine) = key(&session, "mine", "a");

    for mode in [0o644, 0o640, 0o604, 0o620] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let refused = session.run(&["profile", "save", ALICE, "--dir", text(&dir), &mine]);
        assert_eq!(refused.code, 2, "{mode:o}: {}", refused.err);
        assert!(refused.err.contains("chmod 600"), "{}", refused.err);
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    save(&session, 0, &dir, &[&mine]);
}

#[test]
fn only_browsers_are_asked_for_their_major_and_without_one_nothing_runs() {
    let session = Session::new();
    let ran = session.home().join("ran");
    let agent = session.home().join("agent");
    fs::write(&agent, format!("printf x >> {}", text(&ran))).unwrap();
    let bin = session.home().join("bin");
    fs::create_dir(&bin).unwrap();
    let run = |browser: Option<&Path>| {
        let words = [
            "profile",
            "run",
            ALICE,
            "--",
            "/bin/sh",
            text(&agent),
            "{dir}",
        ];
        let mut command = session.command(&words);
        command.env("PATH", &bin);
        if let Some(browser) = browser {
            command.env("STASIS_BROWSER", browser);
        }
        crate::session::said(command.output().unwrap())
    };

    let none = run(None);
    assert_eq!(none.code, 102, "{}", none.err);
    assert!(
        none.err.contains("--browser") && none.err.contains("STASIS_BROWSER"),
        "{}",
        none.err
    );
    assert!(!ran.exists(), "nothing ran");

    let stand_in = session.home().join("my-browser");
    fs::write(&stand_in, "#!/bin/sh\necho Chromium 155.0.1.2\n").unwrap();
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).unwrap();
    let named = run(Some(&stand_in));
    assert_eq!(named.code, 0, "{}", named.err);
    let pointer = session.object("snapshots/acme/alice/155/latest.json");
    assert!(pointer.exists());
    fs::copy(&stand_in, bin.join("chromium")).unwrap();
    assert_eq!(run(None).code, 0, "found by looking");
    assert_eq!(fs::read_to_string(&ran).unwrap(), "xx");
    for other in ["python3", "sh", "true"] {
        let words = [
            "profile",
            "run",
            ALICE,
            "--browser",
            other,
            "--",
            "true",
            "{dir}",
        ];
        assert_eq!(session.run(&words).code, 102, "{other} is no browser");
    }
}

#[test]
fn a_browser_that_left_its_lock_was_killed() {
    let session = Session::new();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let run = |script: &str, subject: &str| {
        let dir = session.home().join("run");
        let whole = format!(
            "mkdir -p {{dir}}/Default; printf 131.0.1.2 > '{{dir}}/Last Version'; {script}"
        );
        let words = [
            "--json",
            "profile",
            "run",
            subject,
            "--dir",
            text(&dir),
            "--",
            "sh",
            "-c",
            &whole,
        ];
        let said = session.run(&words);
        serde_json::from_str::<Value>(&said.out).unwrap_or_else(|_| panic!("{}", said.err))
    };
    let settings = "printf '{\"profile\":{\"exit_type\":\"Normal\"}}' > {dir}/Default/Preferences";
    let lock = format!("ln -s {}-999999 {{dir}}/SingletonLock", host.trim());

    let closed = run(settings, "acme/alice@131");
    let killed = run(
        &format!("{settings}; {lock}; touch {{dir}}/Default/new"),
        "acme/alice@131",
    );

    assert_eq!(closed["save"]["clean_exit"], true, "{closed}");
    assert_eq!(killed["save"]["clean_exit"], false, "{killed}");
    assert_eq!(killed["save"]["ending"]["how"], "killed");
    assert!(
        killed["save"]["warnings"]
            .to_string()
            .contains("browser_killed"),
        "{killed}"
    );
    assert!(
        !closed["save"]["warnings"]
            .to_string()
            .contains("browser_killed")
    );
    // People are told too.
    let again = session.home().join("again");
    let script = format!(
        "mkdir -p {{dir}}/Default; printf 131.0.1.2 > '{{dir}}/Last Version'; {settings}; {lock}"
    );
    let words = ["profile", "run", "acme/carol@131", "--dir", text(&again)];
    let said = session.run(&[&words[..], &["--", "sh", "-c", &script]].concat());
    assert!(
        said.err.contains("warning: the browser was killed"),
        "{}",
        said.err
    );
    // A directory that somebody else's browser left is told the same way.
    let dir = profile(&session, "p");
    fs::remove_file(dir.join("SingletonLock")).unwrap();
    std::os::unix::fs::symlink(format!("{}-999999", host.trim()), dir.join("SingletonLock"))
        .unwrap();
    let saved = session.json(0, &["profile", "save", "acme/bob", "--dir", text(&dir)]);
    assert_eq!(saved["clean_exit"], false, "{saved}");
}

#[test]
fn a_cache_that_cannot_be_written_is_skipped_with_a_warning() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    save(&session, 0, &dir, &[]);
    let cache = session.home().join("cache/stasis/archives");
    fs::remove_dir_all(&cache).unwrap();
    fs::write(&cache, "no directory").unwrap();

    let loaded = load(&session, 0, &there, &[]);
    fs::write(dir.join("Default/more"), "more").unwrap();
    let saved = save(&session, 0, &dir, &[]);

    assert_eq!(loaded["outcome"], "success", "{loaded}");
    assert!(
        loaded["warnings"].to_string().contains("cache_skipped"),
        "{loaded}"
    );
    assert_eq!(saved["outcome"], "captured", "{saved}");
    assert!(
        saved["warnings"].to_string().contains("cache_skipped"),
        "{saved}"
    );
}

#[test]
fn a_full_cache_disk_costs_a_warning_and_not_the_profile() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    let noise: Vec<u8> = (0..300_000_u32)
        .flat_map(|n| n.wrapping_mul(n).wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    fs::write(dir.join("Default/noise"), noise).unwrap();
    save(&session, 0, &dir, &[]);
    let cache = session.home().join("cache");
    fs::remove_dir_all(&cache).unwrap();
    fs::create_dir(&cache).unwrap();
    // A filesystem of its own in a namespace of our own: nobody else sees it, and it ends with the command.
    let script = "mount -t tmpfs -o size=64k tmpfs \"$0\" && exec \"$@\"";
    let plain = session.command(&[]);
    let mut command = Command::new("unshare");
    command
        .args(["-rm", "sh", "-c", script])
        .arg(&cache)
        .arg(crate::session::STASIS);
    command.args([
        "--json",
        "profile",
        "load",
        ALICE,
        "--chrome-major",
        "131",
        "--dir",
    ]);
    command.arg(&there).env_clear();
    command.envs(
        plain
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let possible = Command::new("unshare")
        .args(["-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"])
        .output();
    if !possible.is_ok_and(|tried| tried.status.success()) {
        println!("skipped: no mount in a namespace of our own here");
        return;
    }

    let said = crate::session::said(command.output().unwrap());

    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    let loaded: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(loaded["outcome"], "success", "{loaded}");
    assert!(
        loaded["warnings"].to_string().contains("cache_skipped"),
        "{loaded}"
    );
}

#[test]
fn a_run_that_may_begin_fresh_starts_while_the_store_is_away() {
    let nobody = "s3://stasis/x?endpoint=http://127.0.0.1:1&region=us-east-1";
    let session = Session::on(nobody);
    let dir = session.home().join("p");
    let script = "mkdir -p {dir}/Default; printf 131.0.1.2 > '{dir}/Last Version'; exit 7";
    let run = |more: &[&str]| {
        let mut words = vec![
            "--json",
            "profile",
            "run",
            "acme/alice@131",
            "--dir",
            text(&dir),
        ];
        words.extend(more);
        words.extend(["--", "sh", "-c", script]);
        let mut command = session.command(&words);
        command
            .env("AWS_ACCESS_KEY_ID", "k")
            .env("AWS_SECRET_ACCESS_KEY", "s");
        crate::session::said(command.output().unwrap())
    };

    let refused = run(&[]);
    assert_eq!(refused.code, 107, "{}", refused.err);
    assert!(!dir.exists(), "nothing ran");

    let ran = run(&["--on-failure", "fresh"]);
    assert_eq!(ran.code, 107, "not saved: {}{}", ran.out, ran.err);
    let ran: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(ran["load"]["reason"], "bucket_unreachable", "{ran}");
    assert_eq!(ran["exit_code"], 7, "the browser ran");
    assert_eq!(ran["snapshot_failed"], true);
    assert!(dir.join("Last Version").exists(), "its work is still there");
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one life of a profile, told in order"
)]
fn what_a_run_left_is_kept_listed_saved_or_removed_and_an_untouched_copy_is_none() {
    let session = Session::new();
    let dir = profile(&session, "p");
    let first = save(&session, 0, &dir, &[]);
    let home = session.home();
    let copies = || {
        let listed = session.json(0, &["profile", "list", "--local", "--dir", text(&dir)]);
        listed["unsaved"].as_array().unwrap().clone()
    };
    // A command that cannot be started leaves nothing.
    for _ in 0..2 {
        let words = [
            "profile",
            "run",
            "acme/alice@131",
            "--dir",
            text(&dir),
            "--",
            "/no/such",
            "{dir}",
        ];
        assert_ne!(session.run(&words).code, 0);
    }
    assert_eq!(copies().len(), 0);

    let die = |number: usize| {
        let script = "echo $0 > \"$1/Default/left\"; kill -9 $PPID; sleep 0.2";
        let number = number.to_string();
        let words = [
            "profile",
            "run",
            "acme/alice@131",
            "--dir",
            text(&dir),
            "--",
            "sh",
            "-c",
            script,
            &number,
            "{dir}",
        ];
        session.run(&words);
        std::thread::sleep(std::time::Duration::from_millis(400));
        let unlock = [
            "profile",
            "force-unlock",
            ALICE,
            "--reason",
            "died",
            "--confirm",
        ];
        session.data(0, &unlock);
    };
    for number in 0..7 {
        die(number);
    }
    let loaded = load(&session, 0, &dir, &[]);
    assert!(
        loaded["warnings"]
            .to_string()
            .contains("unsaved_state_kept"),
        "{loaded}"
    );
    let left = copies();
    assert_eq!(left.len(), 5, "bounded: {left:?}");
    assert_eq!(left[0]["base_sha256"], first["sha256"]);
    // The newest is saved as what it is: a successor of what it began with.
    let newest = left[4]["path"].as_str().unwrap();
    assert_eq!(
        fs::read_to_string(Path::new(newest).join("Default/left"))
            .unwrap()
            .trim(),
        "6"
    );
    let saved = save(&session, 0, Path::new(newest), &[]);
    assert_eq!(saved["predecessor_sha256"], first["sha256"]);
    session.json(0, &["profile", "discard", newest]);
    assert_eq!(copies().len(), 4);
    assert!(!home.join(format!("{newest}.stasis.json")).exists());
    assert_eq!(
        session.run(&["profile", "discard", text(&dir)]).code,
        2,
        "not a copy"
    );
    assert!(dir.exists());
}

#[test]
fn hints_save_the_users_work() {
    let session = Session::new();
    let dir = profile(&session, "p");
    save(&session, 0, &dir, &[]);
    let archive = object(&session, ".tar.zst");
    let mut bytes = fs::read(&archive).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&archive, bytes).unwrap();
    fs::remove_dir_all(session.home().join("cache")).unwrap();
    let script = "mkdir -p {dir}/Default; printf 131.0.1.2 > '{dir}/Last Version'";
    let run = |script: &str| {
        session.run(&[
            "profile",
            "run",
            "acme/alice@131",
            "--dir",
            text(&dir),
            "--",
            "sh",
            "-c",
            script,
        ])
    };

    let fresh = run(script);
    assert_eq!(fresh.code, 106, "{}", fresh.err);
    assert!(
        fresh.err.contains("stasis profile verify acme/alice@131"),
        "{}",
        fresh.err
    );
    assert!(
        !fresh.err.contains("adopts it"),
        "nobody wants the empty one: {}",
        fresh.err
    );

    session.data(
        0,
        &["tenant", "policy", "set", "acme", "max_profile_bytes=10"],
    );
    let large = run("mkdir -p {dir}/Default; echo 12345678901234567890 > {dir}/Default/x");
    assert_eq!(large.code, 111, "{}", large.err);
    let hint = format!("stasis profile save acme/alice --dir {}", text(&dir));
    assert!(large.err.contains(&hint), "{}", large.err);
}

/// Works in a directory until it is interrupted, and writes down that it ended well.
const BROWSER: &str = "import os, signal, sys, time\n\
dir = sys.argv[1].split('=', 1)[1]\n\
os.makedirs(dir + '/Default', exist_ok=True)\n\
held = open(dir + '/open', 'w')\n\
def end(*_):\n    open(dir + '/Last Version', 'w').write('131.0.1.2'); sys.exit(0)\n\
signal.signal(signal.SIGINT, end)\n\
while True: time.sleep(0.05)\n";

#[test]
fn a_browser_that_outlives_its_agent_is_closed_and_saved() {
    let session = Session::new();
    let browser = session.home().join("browser.py");
    fs::write(&browser, BROWSER).unwrap();
    let script = format!(
        "setsid python3 {} --user-data-dir={{dir}} & while [ ! -e {{dir}}/open ]; do sleep 0.05; done; ",
        text(&browser)
    );
    let run = |more: &[&str], end: &str, subject: &str| {
        let dir = session.home().join(subject.replace('/', "-"));
        let whole = format!("{script}{end}");
        let mut words = vec!["--json", "profile", "run", subject, "--dir", text(&dir)];
        words.extend(more);
        words.extend(["--", "sh", "-c", &whole]);
        let said = session.run(&words);
        let report = serde_json::from_str::<Value>(&said.out);
        report.unwrap_or_else(|_| panic!("{}", said.err))
    };

    let failed = run(&["--linger", "1s"], "exit 3", "acme/failed@131");
    assert_eq!(failed["save_outcome"], "captured", "{failed}");
    assert_eq!(failed["exit_code"], 3);
    assert!(
        failed["warnings"]
            .to_string()
            .contains("closed_after_linger"),
        "{failed}"
    );

    let overdue = run(&["--max-time", "2s"], "sleep 60", "acme/overdue@131");
    assert_eq!(overdue["save_outcome"], "captured", "{overdue}");
    assert!(
        overdue["warnings"]
            .to_string()
            .contains("closed_after_max_time"),
        "{overdue}"
    );
}

#[test]
fn what_does_not_look_like_a_profile_is_not_saved_as_one() {
    let session = Session::new();
    let dir = session.home().join("etc");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("passwd"), "root").unwrap();

    let refused = save(&session, 2, &dir, &["--chrome-major", "131"]);
    let forced = save(&session, 0, &dir, &["--chrome-major", "131", "--force"]);

    assert!(
        refused["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("--force"),
        "{refused}"
    );
    assert_eq!(forced["outcome"], "captured");
}

#[test]
fn what_does_not_look_like_a_profile_is_not_replaced_by_one() {
    let session = Session::new();
    save(&session, 0, &profile(&session, "p"), &[]);
    let dir = session.home().join("etc");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("passwd"), "root").unwrap();
    let beside = || fs::read_dir(session.home()).unwrap().count();
    let before = beside();

    let refused = load(&session, 2, &dir, &[]);
    let mut words = vec!["--json", "profile", "run", "acme/alice@131", "--dir"];
    words.extend([text(&dir), "--", "true"]);
    let ran = session.run(&words);

    let hint = refused["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("a new directory"), "{refused}");
    assert_eq!(ran.code, 102, "{}", ran.out);
    assert_eq!(fs::read_to_string(dir.join("passwd")).unwrap(), "root");
    assert_eq!(beside(), before, "nothing was moved aside");
    // The lease is free again.
    fs::remove_dir_all(&dir).unwrap();
    load(&session, 0, &dir, &[]);
    let again = session.run(&words);
    assert_eq!(again.code, 0, "{}", again.out);
}

#[test]
fn a_profile_that_lost_almost_everything_is_stored_and_not_published() {
    let session = Session::new();
    let dir = profile(&session, "p");
    let good = save(&session, 0, &dir, &[]);
    load(&session, 0, &dir, &[]);
    fs::remove_dir_all(&dir).unwrap();
    fs::create_dir(&dir).unwrap();

    let base = good["sha256"].as_str().unwrap();
    let from = ["--chrome-major", "131", "--base", base];
    let told = save(&session, 11, &dir, &from);
    let there = session.home().join("there");
    let loaded = load(&session, 0, &there, &[]);
    let meant = [&from[..], &["--accept-shrink", "--notes", "meant"]].concat();
    let meant = save(&session, 0, &dir, &meant);

    assert_eq!(told["outcome"], "shrunk", "{told}");
    assert_eq!(told["active_sha256"], good["sha256"]);
    assert_eq!(loaded["sha256"], good["sha256"]);
    assert_eq!(meant["outcome"], "captured", "{meant}");
}

#[test]
fn a_database_whose_header_was_overwritten_is_damaged_and_not_published() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    let sound = fs::read(dir.join("Default/Cookies")).unwrap();
    fs::create_dir(dir.join("Default/Network")).unwrap();
    // Known by its name, and known only because it was a database before.
    for path in ["Default/Network/Cookies", "Default/unheard-of.db"] {
        fs::write(dir.join(path), &sound).unwrap();
    }
    let good = save(&session, 0, &dir, &[]);

    for path in [
        "Default/Cookies",
        "Default/Network/Cookies",
        "Default/unheard-of.db",
    ] {
        let mut bytes = sound.clone();
        bytes[..64].fill(0);
        fs::write(dir.join(path), bytes).unwrap();

        let damaged = save(&session, 9, &dir, &[]);

        assert_eq!(damaged["outcome"], "damaged", "{path}: {damaged}");
        assert_eq!(damaged["damaged_databases"], serde_json::json!([path]));
        assert_eq!(damaged["active_sha256"], good["sha256"]);
        fs::write(dir.join(path), &sound).unwrap();
    }
    assert_eq!(load(&session, 0, &there, &[])["sha256"], good["sha256"]);
    let again = save(&session, 0, &dir, &[]);
    assert_eq!(again["outcome"], "captured", "{again}");
}

#[test]
fn a_load_refuses_cookies_that_are_no_database() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    fs::write(dir.join("Default/Cookies"), "no database at all").unwrap();
    publish_damaged(&session, &dir);

    let fresh = load(&session, 12, &there, &[]);

    assert_eq!(fresh["reason"], "integrity_failed", "{fresh}");
    assert!(
        fresh["detail"]
            .as_str()
            .unwrap()
            .contains("Default/Cookies")
    );
}

#[test]
fn a_profile_without_its_login_databases_is_stored_and_not_published() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    let logins = dir.join("Default/Login Data");
    fs::copy(dir.join("Default/Cookies"), &logins).unwrap();
    let good = save(&session, 0, &dir, &[]);
    let cookies_file = dir.join("Default/Cookies");
    let whole = fs::read(&cookies_file).unwrap();

    fs::remove_file(&cookies_file).unwrap();
    let gone = save(&session, 11, &dir, &[]);
    let told = session.run(&["profile", "save", ALICE, "--dir", text(&dir)]);
    fs::write(&cookies_file, &whole).unwrap();
    fs::write(&logins, "").unwrap();
    let empty = save(&session, 11, &dir, &[]);
    let loaded = load(&session, 0, &there, &[]);

    assert_eq!(gone["outcome"], "shrunk", "{gone}");
    assert_eq!(gone["missing_databases"][0], "Default/Cookies");
    assert_eq!(gone["active_sha256"], good["sha256"]);
    assert!(told.out.contains("Default/Cookies is gone"), "{}", told.out);
    assert!(told.out.contains("--accept-shrink"), "{}", told.out);
    assert_eq!(empty["missing_databases"][0], "Default/Login Data");
    assert_eq!(loaded["sha256"], good["sha256"], "the good one stays");
    let meant = save(&session, 0, &dir, &["--accept-shrink"]);
    assert_eq!(meant["outcome"], "captured", "{meant}");
}

#[test]
fn cookies_that_were_cleared_or_moved_by_the_browser_are_published() {
    let session = Session::new();
    let dir = profile(&session, "p");
    save(&session, 0, &dir, &[]);

    sqlite(&dir, "delete from cookies;");
    let cleared = save(&session, 0, &dir, &[]);
    fs::create_dir(dir.join("Default/Network")).unwrap();
    let newer = dir.join("Default/Network/Cookies");
    fs::rename(dir.join("Default/Cookies"), newer).unwrap();
    let moved = save(&session, 0, &dir, &[]);

    assert_eq!(cleared["outcome"], "captured", "{cleared}");
    assert_eq!(moved["outcome"], "captured", "{moved}");
}

#[test]
fn a_browser_that_does_not_start_is_said_at_once_with_how_flags_are_passed() {
    let session = Session::new();
    let dir = profile(&session, "p");
    save(&session, 0, &dir, &[]);
    let began = std::time::Instant::now();

    let words = ["profile", "verify", ALICE, "--browser", "false"];
    let failed = session.run(&words);

    assert_eq!(failed.code, 1, "{}", failed.err);
    assert!(
        failed.err.contains("ended with exit code 1"),
        "{}",
        failed.err
    );
    let hint = "--browser chromium --browser=--no-sandbox";
    assert!(failed.err.contains(hint), "{}", failed.err);
    assert!(began.elapsed() < std::time::Duration::from_secs(15));
}

#[test]
fn metrics_add_up_over_processes() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    let file = session.home().join("stasis.prom");
    let metrics = ["--metrics-file", text(&file)];

    save(&session, 0, &dir, &metrics);
    save(&session, 0, &dir, &metrics);
    load(&session, 0, &there, &metrics);
    load(
        &session,
        12,
        &there,
        &["--chrome-major", "130", metrics[0], metrics[1]],
    );

    let told = fs::read_to_string(&file).unwrap();
    for part in [
        "stasis_profile_load_total{outcome=\"success\",",
        "stasis_profile_load_total{outcome=\"version_mismatch\",",
        "stasis_profile_lock_acquire_total{outcome=\"acquired\"} 2",
        "stasis_profile_load_extract_seconds_count 1",
    ] {
        assert!(told.contains(part), "{part} in\n{told}");
    }
    // What was there already is a success, too, as the contract says.
    let saved =
        |line: &&str| line.starts_with("stasis_profile_snapshot_total{outcome=\"success\",");
    let saved = told.lines().find(saved).unwrap();
    assert!(saved.ends_with(" 2"), "{saved}");
    assert!(!told.contains("alice"), "no tenant, no profile");
}
