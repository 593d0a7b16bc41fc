//! A browser identity outlives its browser: profiles that a newer Chrome takes over.

use crate::session::{Said, Session, said};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const ALICE: &str = "acme/alice";

/// A browser as far as profiles are concerned: it says its version, migrates the directory it is given by signing it,
/// keeps what it finds there, and sets and loses what its arguments say.
const BROWSER: &str = r#"#!/usr/bin/env python3
import os, shutil, sqlite3, sys
if '--version' in sys.argv:
    print('Chromium MAJOR.0.1.2 stand-in')
    sys.exit(0)
def words(flag):
    return [word[len(flag):] for word in sys.argv if word.startswith(flag)]
here = words('--user-data-dir=')[0]
os.makedirs(here + '/Default/IndexedDB', exist_ok=True)
cookies = sqlite3.connect(here + '/Default/Cookies')
cookies.execute('create table if not exists cookies(host_key text, name text, is_persistent int, expires_utc int)')
for name in words('--set='):
    cookies.execute("insert into cookies values('.a.example', ?, 1, 99999999999999999)", (name,))
for name in words('--set-session='):
    cookies.execute("insert into cookies values('.a.example', ?, 0, 0)", (name,))
for name in words('--lose='):
    cookies.execute('delete from cookies where name = ?', (name,))
cookies.commit()
cookies.close()
for origin in words('--keep='):
    os.makedirs(here + f'/Default/IndexedDB/https_{origin}_0.indexeddb.leveldb', exist_ok=True)
for origin in words('--forget='):
    shutil.rmtree(here + f'/Default/IndexedDB/https_{origin}_0.indexeddb.leveldb')
with open(here + '/Last Version', 'w') as version:
    version.write('MAJOR.0.1.2')
"#;

/// Installs a browser of one major.
fn browser(session: &Session, major: u32) -> PathBuf {
    let path = session.home().join(format!("chrome-{major}/chromium"));
    if !path.exists() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, BROWSER.replace("MAJOR", &major.to_string())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    path
}

/// Runs a browser of one major on the profile; `more` are flags of ours, `flags` the browser's.
fn run(session: &Session, major: u32, more: &[&str], flags: &[&str]) -> (i32, Value) {
    let browser = browser(session, major);
    let mut words = vec!["--json", "profile", "run", ALICE];
    words.extend(more);
    words.extend(["--", text(&browser), "--user-data-dir={dir}"]);
    words.extend(flags);
    let said = session.run(&words);
    let report = serde_json::from_str(said.out.trim());
    let report = report.unwrap_or_else(|_| panic!("{}\n{}", said.out, said.err));
    (said.code, report)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The cookies in the directory of a major, when nobody says another one.
fn cookies(session: &Session, major: u32) -> String {
    let profiles = session.home().join("state/stasis/profiles/acme");
    let database = profiles.join(format!("alice@{major}/Default/Cookies"));
    let script = "import sqlite3,sys; d=sqlite3.connect(sys.argv[1]); \
                  print(','.join(r[0] for r in d.execute('select name from cookies order by 1')))";
    let mut python = Command::new("python3");
    let said = said(python.args(["-c", script]).arg(database).output().unwrap());
    said.out.trim().to_owned()
}

fn pointer(session: &Session, major: u32) -> Value {
    let path = session.object(&format!("snapshots/acme/alice/{major}/latest.json"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn load(session: &Session, code: i32, major: &str, more: &[&str]) -> Value {
    let dir = session.home().join("loaded");
    let mut words = vec!["profile", "load", ALICE, "--chrome-major", major, "--dir"];
    words.push(text(&dir));
    words.extend(more);
    session.json(code, &words)
}

fn warns(report: &Value) -> bool {
    report["warnings"]
        .to_string()
        .contains("older_major_not_carried")
}

/// A profile that Chrome 156 has left: two cookies that last, one that does not, and an origin that keeps something.
fn left_by_156() -> Session {
    let session = Session::new();
    let flags = [
        "--set=sid",
        "--set=cart",
        "--set-session=tab",
        "--keep=a.example",
    ];
    let (code, ran) = run(&session, 156, &[], &flags);
    assert_eq!(
        (code, &ran["save_outcome"]),
        (0, &"captured".into()),
        "{ran}"
    );
    session
}

#[test]
fn a_newer_chrome_takes_the_profile_over_and_after_that_has_its_own() {
    let session = left_by_156();
    let before = pointer(&session, 156);

    let (code, carried) = run(&session, 157, &[], &["--lose=tab", "--set=new"]);
    let (again, restored) = run(&session, 157, &[], &[]);

    assert_eq!(code, 0, "{carried}");
    assert_eq!(carried["load"]["outcome"], "upgraded");
    assert_eq!(carried["load"]["upgraded_from"]["chrome_major"], 156);
    assert_eq!(carried["load"]["sha256"], before["active_sha256"]);
    assert_eq!(carried["save_outcome"], "captured");
    let upgrade = &carried["save"]["upgrade"];
    assert_eq!(
        upgrade["before"]["cookies"], 2,
        "a session's cookie ends with it: {upgrade}"
    );
    assert_eq!(upgrade["after"]["cookies"], 3);
    assert_eq!(upgrade["after"]["origins"], 1);
    assert_eq!(upgrade["has_lost"], false);
    assert_eq!(cookies(&session, 157), "cart,new,sid");
    assert_eq!(
        (again, &restored["load"]["outcome"]),
        (0, &"success".into())
    );
    assert_eq!(
        restored["load"]["upgraded_from"],
        carried["load"]["upgraded_from"]
    );
    assert!(!warns(&restored["load"]), "{restored}");
    assert_eq!(
        pointer(&session, 156),
        before,
        "the older lineage is only read"
    );
    let sha = carried["save"]["sha256"].as_str().unwrap();
    let shown = session.json(
        0,
        &["profile", "show", "acme/alice@157", "--sha", &sha[..12]],
    );
    assert!(
        shown
            .to_string()
            .contains("\"upgraded_from\":{\"chrome_major\":156"),
        "{shown}"
    );
    let events = session.data(0, &["events", "--tenant", "acme"]);
    assert!(events.contains("profile_upgraded"), "{events}");
    // The ancestry goes on with every later snapshot.
    let (_, changed) = run(&session, 157, &[], &["--set=later"]);
    assert_eq!(changed["save_outcome"], "captured");
    let (_, later) = run(&session, 157, &[], &[]);
    assert_eq!(
        later["load"]["upgraded_from"],
        carried["load"]["upgraded_from"]
    );
}

#[test]
fn a_migration_that_loses_a_cookie_or_an_origin_is_stored_and_not_published() {
    let session = left_by_156();

    for lossy in ["--lose=sid", "--forget=a.example"] {
        let (code, ran) = run(&session, 157, &[], &[lossy]);

        assert_eq!(code, 113, "{ran}");
        assert_eq!(
            ran["load"]["outcome"], "upgraded",
            "the next run carries again"
        );
        assert_eq!(ran["save_outcome"], "upgrade_incomplete");
        let missing = ran["save"]["upgrade"]["missing"].to_string();
        assert!(missing.contains("a.example"), "{missing}");
        assert_eq!(pointer(&session, 157)["active_sha256"], "");
    }
    let (code, ran) = run(&session, 157, &[], &[]);
    assert_eq!(
        (code, &ran["save_outcome"]),
        (0, &"captured".into()),
        "{ran}"
    );
    assert_eq!(cookies(&session, 157), "cart,sid,tab");
}

#[test]
fn without_an_upgrade_a_profile_is_fresh_and_every_later_load_says_what_it_lacks() {
    let session = left_by_156();

    let (code, fresh) = run(&session, 157, &["--no-upgrade"], &["--set=alone"]);
    assert_eq!(code, 112, "{fresh}");
    assert_eq!(fresh["load"]["reason"], "version_mismatch");
    for _ in 0..2 {
        let (code, ran) = run(&session, 157, &[], &[]);
        assert_eq!(code, 0, "{ran}");
        assert!(warns(&ran["load"]), "{ran}");
        assert_eq!(cookies(&session, 157), "alone");
    }
    let told: Said = session.run(&[
        "profile",
        "load",
        "acme/alice@157",
        "--dir",
        text(&session.home().join("l")),
    ]);
    assert!(told.err.contains("--from-major 156"), "{}", told.err);

    let replaced = pointer(&session, 157)["active_sha256"].clone();
    let (code, carried) = run(&session, 157, &["--from-major", "156"], &["--lose=tab"]);
    assert_eq!(code, 0, "{carried}");
    assert_eq!(carried["load"]["outcome"], "upgraded");
    assert_eq!(carried["save"]["predecessor_sha256"], replaced);
    let (_, after) = run(&session, 157, &[], &[]);
    assert_eq!(after["load"]["outcome"], "success");
    assert!(!warns(&after["load"]), "{after}");
    assert_eq!(cookies(&session, 157), "cart,sid");
}

#[test]
fn what_is_saved_later_under_an_older_major_is_advised_only_if_a_user_would_miss_it() {
    let session = left_by_156();
    let (code, carried) = run(&session, 157, &[], &["--lose=tab", "--set=new"]);
    assert_eq!(code, 0, "{carried}");
    let ancestor = pointer(&session, 156)["active_sha256"].clone();

    // Nothing that lasts, or nothing that the newer one has not.
    for flag in ["--set-session=junk", "--lose=cart", "--lose=sid"] {
        let (_, junk) = run(&session, 156, &[], &[flag]);
        assert_eq!(junk["save_outcome"], "captured", "{junk}");
        let (_, ran) = run(&session, 157, &[], &[]);
        assert!(!warns(&ran["load"]), "{flag}: {ran}");
    }
    // A site that is known to the older one only.
    run(&session, 156, &[], &["--set=elsewhere", "--keep=b.example"]);
    let (_, ran) = run(&session, 157, &[], &[]);
    assert!(warns(&ran["load"]), "{ran}");
    let warning = ran["load"]["warnings"].to_string();
    assert!(warning.contains("b.example"), "{warning}");
    assert!(warning.contains(".a.example"), "{warning}");
    // An older state of the older one is what this one was carried from, or came before that.
    let sha = ancestor.as_str().unwrap();
    let words = [
        "profile",
        "rollback",
        "acme/alice@156",
        "--sha",
        sha,
        "--confirm",
    ];
    session.json(0, &words);
    let (_, ran) = run(&session, 157, &[], &[]);
    assert!(!warns(&ran["load"]), "{ran}");
}

#[test]
fn a_profile_that_began_with_its_own_chrome_is_not_told_of_junk_in_an_older_one() {
    let session = Session::new();
    run(&session, 157, &[], &["--set=sid"]);

    run(&session, 156, &[], &[]);
    let (code, ran) = run(&session, 157, &[], &[]);

    assert_eq!(code, 0, "{ran}");
    assert_eq!(ran["load"]["outcome"], "success");
    assert!(!warns(&ran["load"]), "{ran}");
}

#[test]
fn a_browser_of_another_major_is_refused_before_anything_runs() {
    let session = Session::new();
    let other = browser(&session, 156);
    let words = [
        "profile",
        "run",
        "acme/alice@157",
        "--browser",
        text(&other),
    ];
    let dir = session.home().join("state/stasis/profiles/acme/alice@157");

    let refused = session.run(&[&words[..], &["--", "sh", "-c", "touch {dir}/ran"]].concat());

    assert_eq!(refused.code, 102, "{}", refused.err);
    assert!(refused.err.contains("is Chrome 156"), "{}", refused.err);
    assert!(!dir.exists(), "nothing ran");
}

#[test]
fn a_policy_keeps_profiles_where_they_are() {
    let session = left_by_156();
    session.data(
        0,
        &["tenant", "policy", "set", "acme", "on_major_upgrade=refuse"],
    );

    let refused = load(&session, 3, "157", &["--on-failure", "refuse"]);
    let fresh = load(&session, 12, "157", &[]);
    let named = load(&session, 3, "157", &["--from-major", "156"]);

    let hint = refused["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("on_major_upgrade=carry"), "{hint}");
    assert_eq!(fresh["reason"], "version_mismatch");
    assert!(
        named["error"]["message"]
            .as_str()
            .unwrap()
            .contains("policy"),
        "{named}"
    );
}

#[test]
fn a_profile_goes_to_newer_majors_only() {
    let session = left_by_156();

    let older = load(&session, 12, "155", &[]);
    let newest = {
        run(&session, 157, &[], &[]);
        load(&session, 0, "160", &[])
    };

    assert_eq!(older["reason"], "version_mismatch");
    assert_eq!(
        newest["upgraded_from"]["chrome_major"], 157,
        "the newest of the older ones"
    );
    let words = [
        "profile",
        "load",
        "acme/alice@156",
        "--from-major",
        "157",
        "--dir",
        "x",
    ];
    assert_eq!(session.run(&words).code, 2);
    let absent = load(&session, 3, "160", &["--from-major", "140"]);
    assert!(
        absent["error"]["message"]
            .as_str()
            .unwrap()
            .contains("Chrome 140")
    );
}

#[test]
fn of_two_hosts_that_carry_at_once_one_publishes_and_the_other_diverges() {
    let session = left_by_156();
    let dirs = ["one", "two"].map(|name| session.home().join(name));
    let browser = browser(&session, 157);

    for (number, dir) in dirs.iter().enumerate() {
        let words = ["profile", "load", "acme/alice@157", "--dir", text(dir)];
        assert_eq!(session.json(0, &words)["outcome"], "upgraded");
        let migrated = Command::new(&browser)
            .arg(format!("--user-data-dir={}", text(dir)))
            .arg(format!("--set=host{number}"))
            .status();
        assert!(migrated.unwrap().success());
    }
    let save =
        |code: i32, dir: &Path| session.json(code, &["profile", "save", ALICE, "--dir", text(dir)]);
    let first = save(0, &dirs[0]);
    let second = save(6, &dirs[1]);

    assert_eq!(first["subject"], "profile:acme/alice@157");
    assert_eq!(first["upgrade"]["from"]["chrome_major"], 156);
    assert_eq!(second["outcome"], "diverged");
    assert_eq!(second["active_sha256"], first["sha256"]);
}

#[test]
fn what_was_carried_and_never_started_is_still_the_older_chromes() {
    let session = left_by_156();
    let dir = session.home().join("carried");
    session.json(
        0,
        &["profile", "load", "acme/alice@157", "--dir", text(&dir)],
    );
    fs::write(dir.join("Default/more"), "more").unwrap();

    let saved = session.json(0, &["profile", "save", ALICE, "--dir", text(&dir)]);

    assert_eq!(saved["subject"], "profile:acme/alice@156");
    assert_eq!(
        saved["outcome"], "captured",
        "it derives from what was loaded"
    );
}

#[test]
fn a_run_that_dies_before_it_is_saved_is_carried_again_and_loses_nothing() {
    let session = left_by_156();
    let dir = session.home().join("p");
    let go = session.home().join("never");
    let script = "printf 157.0.1.2 > \"$0/Last Version\"; touch \"$0/started\"; while [ ! -e \"$1\" ]; do sleep 0.05; done";
    let mut command = session.command(&["profile", "run", "acme/alice@157", "--dir"]);
    command
        .arg(&dir)
        .args(["--", "sh", "-c", script, "{dir}"])
        .arg(&go);
    let mut running = command.spawn().unwrap();
    while !dir.join("started").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    running.kill().unwrap();
    running.wait().unwrap();
    fs::write(&go, "").unwrap();
    let unlock = [
        "profile",
        "force-unlock",
        "acme/alice@157",
        "--reason",
        "died",
        "--confirm",
    ];
    session.data(0, &unlock);

    let (code, again) = run(&session, 157, &["--dir", text(&dir)], &[]);

    assert_eq!(
        (code, &again["load"]["outcome"]),
        (0, &"upgraded".into()),
        "{again}"
    );
    let kept = again["load"]["kept"].as_str().unwrap();
    assert!(Path::new(kept).join("started").exists(), "{kept}");
}

#[test]
fn an_older_snapshot_that_cannot_be_loaded_is_not_replaced_by_a_fresh_profile() {
    let session = left_by_156();
    let lineage = session.object("snapshots/acme/alice/156");
    let mut archive = fs::read_dir(lineage)
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let archive = archive
        .find(|path| text(path).ends_with(".tar.zst"))
        .unwrap();
    let mut bytes = fs::read(&archive).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&archive, &bytes).unwrap();
    fs::remove_dir_all(session.home().join("cache")).unwrap();

    let (code, ran) = run(&session, 157, &[], &["--set=alone"]);

    assert_eq!(ran["load"]["reason"], "sha_mismatch", "{ran}");
    assert_eq!(
        (code, &ran["save_outcome"]),
        (106, &"diverged".into()),
        "{ran}"
    );
    assert_eq!(pointer(&session, 157)["active_sha256"], "");
    bytes[middle] ^= 1;
    fs::write(&archive, bytes).unwrap();
    assert_eq!(
        run(&session, 157, &[], &[]).1["load"]["outcome"],
        "upgraded"
    );
}

#[test]
fn an_encrypted_profile_is_carried_with_its_tenants_key() {
    let session = Session::new();
    let key = session.home().join("key");
    fs::write(&key, "a".repeat(64)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let flag = format!("--key-file={}", text(&key));
    run(&session, 156, &[&flag], &["--set=sid"]);

    let (code, carried) = run(&session, 157, &[&flag], &[]);
    let (without, _) = run(&session, 158, &[], &[]);

    assert_eq!(code, 0, "{carried}");
    assert_eq!(carried["load"]["outcome"], "upgraded");
    assert_eq!(carried["save"]["upgrade"]["before"]["cookies"], 1);
    assert_eq!(without, 108, "no key, no profile");
    let lineage = session.object("snapshots/acme/alice/157");
    let mut names = fs::read_dir(lineage)
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    assert!(names.any(|path| text(&path).ends_with(".tar.zst.enc")));
}
