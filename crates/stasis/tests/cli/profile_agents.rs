//! What agents ask of profiles, without a browser: other snapshots, private copies, waiting, caches, logins, settings.

use crate::profile::{ALICE, load, profile, save, sqlite, text};
use crate::session::{STASIS, Said, Session, said};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LINEAGE: &str = "acme/alice@131";

/// Saves what a browser changed since.
fn saved(session: &Session, dir: &Path, state: &str) -> String {
    fs::write(dir.join("Default/state"), state).unwrap();
    let saved = save(session, 0, dir, &[]);
    assert_eq!(saved["outcome"], "captured", "{saved}");
    saved["sha256"].as_str().unwrap().to_owned()
}

fn active(session: &Session) -> Value {
    let shown = session.json(0, &["profile", "show", ALICE]);
    shown["lineages"][0]["snapshot"]["manifest"]["archive_sha256"].clone()
}

fn acquire(session: &Session, run_id: &str) -> String {
    session.data(0, &["lease", "acquire", LINEAGE, "--run-id", run_id])
}

fn release(session: &Session, token: &str) {
    session.data(0, &["lease", "release", LINEAGE, "--token", token]);
}

/// A run that does something to the directory, in the background.
fn start_run(session: &Session, options: &[&str], script: &str) -> Child {
    let mut words = vec!["--json", "profile", "run", LINEAGE];
    words.extend(options);
    words.extend(["--", "sh", "-c", script, "{dir}"]);
    let mut command = session.command(&words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn end(child: Child) -> Said {
    said(child.wait_with_output().unwrap())
}

/// The report at the end of what a run says.
fn report(said: &Said) -> Value {
    let line = said.out.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|_| panic!("{}\n{}", said.out, said.err))
}

#[test]
fn an_older_snapshot_is_loaded_alone_and_what_is_saved_of_it_diverges() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    let shas = ["one", "two", "three"].map(|state| saved(&session, &dir, state));

    let before = load(&session, 0, &there, &["--sha", "latest~2"]);
    assert_eq!(
        (&before["sha256"], &before["outcome"]),
        (&json!(shas[0]), &json!("success"))
    );
    assert_eq!(before["active_sha256"], json!(shas[2]), "{before}");
    assert_eq!(
        fs::read_to_string(there.join("Default/state")).unwrap(),
        "one"
    );
    let words = [
        "profile",
        "load",
        ALICE,
        "--sha",
        &shas[1][..8],
        "--dir",
        text(&there),
    ];
    let told = session.data(0, &words);
    assert!(
        told.contains("stays the active snapshot") && told.contains(&shas[2][..8]),
        "{told}"
    );

    fs::write(there.join("Default/state"), "other").unwrap();
    let diverged = save(&session, 6, &there, &[]);
    assert_eq!(diverged["predecessor_sha256"], json!(shas[1]));
    assert_eq!(
        (&diverged["outcome"], active(&session)),
        (&json!("diverged"), json!(shas[2]))
    );

    let newest = load(&session, 0, &there, &["--sha", &shas[2]]);
    assert_eq!(newest.get("active_sha256"), None, "it is the active one");
    saved(&session, &there, "four");
    let missing = load(&session, 3, &there, &["--sha", "latest~9"]);
    assert_eq!(missing["error"]["kind"], "notfound");
    assert_eq!(
        fs::read_to_string(there.join("Default/state")).unwrap(),
        "four",
        "nothing was touched"
    );
    let both = [
        "profile",
        "load",
        ALICE,
        "--sha",
        "latest",
        "--dir",
        "x",
        "--on-failure",
        "fresh",
    ];
    assert_eq!(session.run(&both).code, 2);
}

#[test]
fn a_snapshot_that_was_asked_for_is_not_replaced_by_another_when_it_is_damaged() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    let first = saved(&session, &dir, "one");
    saved(&session, &dir, "two");
    let archive = fs::read_dir(session.object("snapshots/acme/alice/131")).unwrap();
    let mut archive = archive.map(|entry| entry.unwrap().path());
    let archive = archive.find(|path| {
        text(path).contains(&first[..12]) && path.extension().is_some_and(|end| end == "zst")
    });
    let archive = archive.unwrap();
    let mut bytes = fs::read(&archive).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&archive, bytes).unwrap();
    fs::remove_dir_all(session.home().join("cache")).unwrap();

    let refused = load(&session, 9, &there, &["--sha", &first]);

    assert_eq!(refused["error"]["kind"], "corrupt", "{refused}");
    assert!(!there.exists());
}

#[test]
fn runs_that_save_nothing_go_on_beside_each_other_and_beside_the_owner() {
    let session = Session::new();
    let dir = profile(&session, "p");
    let first = saved(&session, &dir, "one");
    let token = acquire(&session, "owner");
    let script =
        "cat \"$0/Default/state\"; echo changed > \"$0/Default/state\"; echo; echo \"$0\"; sleep 1";

    let both = [(); 2].map(|()| start_run(&session, &["--no-save"], script));
    let both = both.map(end);
    let writer = end(start_run(&session, &[], "true"));

    let mut places = Vec::new();
    for ran in &both {
        assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
        let mut lines = ran.out.lines();
        assert_eq!(lines.next(), Some("one"), "the snapshot is what it runs on");
        places.push(lines.next().unwrap().to_owned());
        let report = report(ran);
        assert_eq!(report["save_outcome"], "discarded", "{report}");
        assert_eq!(
            (&report["save"], &report["snapshot_failed"]),
            (&Value::Null, &json!(false))
        );
        assert_eq!(report["load"]["sha256"], json!(first));
    }
    assert_ne!(places[0], places[1]);
    assert!(
        places.iter().all(|place| !Path::new(place).exists()),
        "{places:?}"
    );
    assert_eq!(
        writer.code, 104,
        "the owner is still the owner: {}",
        writer.err
    );
    release(&session, &token);
    assert_eq!(active(&session), json!(first));
    let listed = session.json(0, &["profile", "list", ALICE]);
    assert_eq!(
        listed["items"]
            .as_array()
            .or(listed["items"].as_array())
            .map(Vec::len),
        Some(1),
        "{listed}"
    );
}

#[test]
fn a_run_that_saves_nothing_takes_any_snapshot_and_no_flag_about_saving() {
    let session = Session::new();
    let dir = profile(&session, "p");
    saved(&session, &dir, "one");
    saved(&session, &dir, "two");

    let older = ["--no-save", "--sha", "latest~1"];
    let ran = end(start_run(
        &session,
        &older,
        "cat \"$0/Default/state\"; echo",
    ));
    assert_eq!(
        (ran.code, ran.out.lines().next()),
        (0, Some("one")),
        "{}",
        ran.err
    );
    let words = [
        "profile",
        "run",
        LINEAGE,
        "--no-save",
        "--",
        "true",
        "{dir}",
    ];
    let told = session.run(&words);
    assert!(told.err.contains("not saved"), "{}", told.err);

    for flags in [
        &["--no-save", "--every", "1m"][..],
        &["--no-save", "--dir", "x"],
        &["--no-save", "--include-caches"],
        &["--no-save", "--accept-shrink"],
        &["--no-save", "--notes", "x"],
        &["--no-save", "--wait"],
        &["--sha", "latest~1"],
    ] {
        let refused = end(start_run(&session, flags, "true"));
        assert_eq!(refused.code, 2, "{flags:?}");
        assert!(
            refused.out.contains("--no-save"),
            "{flags:?}: {}",
            refused.out
        );
    }
    let nowhere = Session::new();
    let missing = end(start_run(&nowhere, &["--no-save"], "true"));
    assert_ne!(missing.code, 0, "a store that is not there is not made");
    assert!(!nowhere.home().join("data/stasis/store").exists());
}

#[test]
fn what_a_killed_run_left_of_its_private_copy_goes_when_nobody_works_on_it() {
    let session = Session::new();
    let dir = profile(&session, "p");
    saved(&session, &dir, "one");

    let mark = session.home().join("pid");
    // An agent: nothing of the directory is open, but it knows where it is.
    let agent = format!("echo $$ > {}; exec sleep 60", text(&mark));
    let mut killed = start_run(&session, &["--no-save"], &agent);
    let spool = session.home().join("cache/stasis/archives");
    let copies = || {
        let all = fs::read_dir(&spool).unwrap().flatten();
        all.filter(|one| text(&one.path()).contains("discard-"))
            .count()
    };
    let began = Instant::now();
    while !fs::read_to_string(&mark).is_ok_and(|pid| pid.ends_with('\n')) {
        assert!(began.elapsed() < Duration::from_mins(1), "never started");
        std::thread::sleep(Duration::from_millis(20));
    }
    let agent = fs::read_to_string(&mark).unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let next = || assert_eq!(end(start_run(&session, &["--no-save"], "true")).code, 0);
    next();
    let left = copies();
    let agent = Pid::from_raw(agent.trim().parse().unwrap()).unwrap();
    kill_process(agent, Signal::KILL).unwrap();

    assert_eq!(left, 1, "what it works on stays under a living agent");
    next();
    assert_eq!(copies(), 0, "and goes when that has ended");
}

#[test]
fn a_browser_that_outlives_a_killed_run_keeps_its_private_copy_until_it_has_ended() {
    let session = Session::new();
    let dir = profile(&session, "p");
    saved(&session, &dir, "one");
    let mark = session.home().join("mark");
    // Has a file of the directory open as a browser does, and knows nothing from its environment.
    let script = format!(
        "exec env -u STASIS_PROFILE_DIR sh -c 'exec 9> \"$0/open\"; echo $$ \"$0\" > {}; exec sleep 60' \"$0\"",
        text(&mark)
    );
    let mut killed = start_run(&session, &["--no-save"], &script);
    let began = Instant::now();
    let told = loop {
        match fs::read_to_string(&mark) {
            Ok(told) if told.ends_with('\n') => break told,
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
        assert!(began.elapsed() < Duration::from_mins(1), "never started");
    };
    let (browser, place) = told.trim().split_once(' ').unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let next = || assert_eq!(end(start_run(&session, &["--no-save"], "true")).code, 0);
    next();
    let is_left = Path::new(place).join("Default/state").exists();
    let browser = Pid::from_raw(browser.parse().unwrap()).unwrap();
    kill_process(browser, Signal::KILL).unwrap();

    assert!(is_left, "the browser goes on with its files");
    next();
    assert!(!Path::new(place).exists(), "and goes when that has ended");
}

#[test]
fn a_run_waits_for_the_owner_and_says_once_who_that_is() {
    let session = Session::new();
    let dir = profile(&session, "p");
    saved(&session, &dir, "one");
    let token = acquire(&session, "owner");

    let words = ["profile", "run", LINEAGE, "--wait=1m", "--", "sh", "-c"];
    let mut command = session.command(&words);
    command.args(["echo two > \"$0/Default/state\"", "{dir}"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let waiting = command.spawn().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    release(&session, &token);
    let began = Instant::now();
    let ran = end(waiting);

    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("saved acme/alice@131"), "{}", ran.err);
    assert_eq!(ran.err.matches("waiting for").count(), 1, "{}", ran.err);
    assert!(ran.err.contains("`owner`"), "{}", ran.err);
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_run_waits_for_another_on_the_same_host_whose_browser_is_in_the_directory() {
    let session = Session::new();
    let dir = profile(&session, "p");
    saved(&session, &dir, "one");
    let mark = session.home().join("mark");
    // Names the directory and has a file in it open, as a browser does.
    let browser = format!("exec 9> \"${{0#*=}}/open\"; touch {}; sleep 5", text(&mark));
    let words = ["profile", "run", LINEAGE, "--", "sh", "-c", &browser];
    let mut command = session.command(&words);
    command.arg("--user-data-dir={dir}");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let owner = command.spawn().unwrap();
    let began = Instant::now();
    while !mark.exists() {
        assert!(began.elapsed() < Duration::from_mins(1), "never started");
        std::thread::sleep(Duration::from_millis(50));
    }

    let second = end(start_run(&session, &["--wait=1m"], "test -e \"$0/open\""));

    assert_eq!(second.code, 0, "{}", second.err);
    assert_eq!(report(&second)["load"]["outcome"], "success");
    let owner = end(owner);
    assert_eq!(owner.code, 0, "{}", owner.err);
}

#[test]
fn a_wait_ends_at_its_bound_with_the_refusal_and_at_once_when_interrupted() {
    let session = Session::new();
    let dir = profile(&session, "p");
    saved(&session, &dir, "one");
    let token = acquire(&session, "owner");

    let began = Instant::now();
    let held = session.run(&["lease", "acquire", LINEAGE, "--wait=2s"]);
    let took = began.elapsed();
    assert_eq!(held.code, 4, "{}", held.err);
    assert!(
        took >= Duration::from_secs(2) && took < Duration::from_secs(20),
        "{took:?}"
    );
    assert_eq!(
        save(&session, 4, &dir, &["--wait=1s"])["error"]["holder"]["holder_run_id"],
        "owner"
    );
    assert_eq!(end(start_run(&session, &["--wait=1s"], "true")).code, 104);

    let waiting = start_run(&session, &["--wait"], "true");
    std::thread::sleep(Duration::from_secs(2));
    let pid = Pid::from_raw(i32::try_from(waiting.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(end(waiting).code, 130);
    release(&session, &token);
}

#[test]
fn caches_are_left_out_unless_somebody_wants_them() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    let (cache, kept) = (
        dir.join("Default/Cache"),
        dir.join("Default/Service Worker/CacheStorage"),
    );
    for (place, name) in [(&cache, "big"), (&kept, "page")] {
        fs::create_dir_all(place).unwrap();
        fs::write(place.join(name), vec![7; 200_000]).unwrap();
    }
    for number in 0..300 {
        fs::write(cache.join(number.to_string()), "x").unwrap();
    }

    let whole = save(&session, 0, &dir, &["--include-caches"]);
    let without = save(&session, 0, &dir, &[]);
    let again = save(&session, 0, &dir, &[]);

    assert_eq!(whole["caches_left_out"], false);
    assert_eq!(
        (&without["outcome"], &without["caches_left_out"]),
        (&json!("captured"), &json!(true)),
        "{without}"
    );
    assert_eq!(again["outcome"], "deduplicated");
    assert_eq!(
        whole["files"].as_u64().unwrap() - without["files"].as_u64().unwrap(),
        301
    );
    load(&session, 0, &there, &[]);
    assert!(!there.join("Default/Cache").exists());
    assert!(
        there
            .join("Default/Service Worker/CacheStorage/page")
            .exists()
    );
    assert_eq!(save(&session, 0, &there, &[])["outcome"], "deduplicated");
}

/// The table of cookies as Chromium 156 makes it, as far as anybody reads it.
fn chrome_cookies(dir: &Path, rows: &str) {
    fs::remove_file(dir.join("Default/Cookies")).unwrap();
    sqlite(
        dir,
        &format!(
            "create table meta(key text, value text); insert into meta values('version', '24');
             create table cookies(host_key text, top_frame_site_key text, name text, value text, encrypted_value blob, path text,
                expires_utc integer, is_secure integer, is_httponly integer, is_persistent integer, samesite integer);
             insert into cookies values {rows};"
        ),
    );
}

/// 2100 and 2001, in microseconds since 1601.
const LATER: &str = "15746745600000000";
const EARLIER: &str = "12622780800000000";

fn cookies(dir: &Path) {
    let rows = [
        format!("('.mail.example','','sid','secret-1',x'','/',{LATER},1,1,1,0)"),
        format!("('mail.example','','theme','secret-2',x'','/',{LATER},0,0,1,-1)"),
        format!("('old.example','','auth','secret-3',x'','/',{EARLIER},0,1,1,1)"),
        format!("('shop.example','','cart','secret-4',x'','/',{LATER},0,0,1,2)"),
        "('now.example','','sid','secret-5',x'','/',0,1,1,0,1)".to_owned(),
        format!("('far.example','','sid','',x'763131001122','/',{LATER},1,1,1,1)"),
    ];
    chrome_cookies(dir, &rows.join(","));
}

#[test]
fn logins_are_told_by_what_cookies_say_of_themselves_and_never_by_a_value() {
    let session = Session::new();
    let dir = profile(&session, "p");
    cookies(&dir);
    save(&session, 0, &dir, &[]);

    let shown = session.data(0, &["profile", "logins", ALICE]);
    let all = session.json(0, &["profile", "logins", ALICE, "--all"]);

    let sites = all["items"].as_array().unwrap();
    let found: Vec<_> = sites
        .iter()
        .map(|one| {
            (
                one["site"].as_str().unwrap(),
                one["state"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("far.example", "signed_in"),
            ("mail.example", "signed_in"),
            ("old.example", "expired"),
            ("shop.example", "cookies_only"),
        ]
    );
    assert_eq!(
        (&sites[1]["cookies"], &sites[1]["session_cookies"]),
        (&json!(2), &json!(["sid"]))
    );
    assert_eq!(
        (&sites[2]["cookies"], &sites[2]["expired"]),
        (&json!(0), &json!(1))
    );
    assert!(
        shown.contains("mail.example") && shown.contains("signed in"),
        "{shown}"
    );
    assert!(
        shown.contains(" days ago") && shown.contains("1 site with other cookies"),
        "{shown}"
    );
    assert!(!shown.contains("shop.example"), "{shown}");
    assert!(
        shown.lines().all(|line| line.chars().count() <= 80),
        "{shown}"
    );
    assert!(!format!("{shown}{all}").contains("secret"));
}

#[test]
fn storage_state_comes_out_of_a_snapshot_for_its_owner_alone() {
    let session = Session::new();
    let dir = profile(&session, "p");
    cookies(&dir);
    save(&session, 0, &dir, &[]);
    let file = session.home().join("state.json");
    let words = ["profile", "storage-state", "export", ALICE, text(&file)];

    // The value that a keyring encrypted cannot be read: that is said.
    let said = session.run(&words);
    let again = session.run(&words);
    let printed = session.data(13, &words[..4]);

    assert_eq!(said.code, 13, "{}", said.err);
    assert!(
        said.err.contains("1 cookie") && said.out.contains("5 cookies"),
        "{}{}",
        said.out,
        said.err
    );
    assert!(!format!("{}{}", said.out, said.err).contains("secret"));
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(again.code, 2, "what is there stays: {}", again.err);
    let state: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), state);
    let mail = &state["cookies"][0];
    assert_eq!(
        (&mail["domain"], &mail["value"]),
        (&json!(".mail.example"), &json!("secret-1"))
    );
    assert_eq!(
        (&mail["httpOnly"], &mail["secure"], &mail["sameSite"]),
        (&json!(true), &json!(true), &json!("None"))
    );
    assert_eq!(mail["expires"], json!(4_102_272_000.0));
    assert_eq!(
        state["cookies"][4]["expires"],
        json!(-1.0),
        "it ends with the browser"
    );
}

#[test]
fn a_file_that_is_no_storage_state_is_refused_without_repeating_it() {
    let session = Session::new();
    let file = session.home().join("state.json");
    fs::write(&file, "{\"cookies\": [{\"name\": \"secret\"}]}").unwrap();

    let refused = session.run(&["profile", "storage-state", "import", ALICE, text(&file)]);

    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(
        refused.err.contains("line 1") && !refused.err.contains("secret"),
        "{}",
        refused.err
    );
}

#[test]
fn profiles_of_the_browser_that_an_export_leaves_out_are_said() {
    let session = Session::new();
    let dir = profile(&session, "p");
    let row = format!("('a.example','','sid','secret',x'','/',{LATER},1,1,1,1)");
    chrome_cookies(&dir, &row);
    save(&session, 0, &dir, &[]);
    let words = ["profile", "storage-state", "export", ALICE];
    session.data(0, &words);

    let other = dir.join("Profile 1/Network");
    fs::create_dir_all(&other).unwrap();
    fs::copy(dir.join("Default/Cookies"), other.join("Cookies")).unwrap();
    save(&session, 0, &dir, &[]);
    let said = session.run(&words);

    assert_eq!(said.code, 13, "{}", said.err);
    assert!(said.err.contains("Profile 1"), "{}", said.err);
    assert_eq!(said.out.matches("a.example").count(), 1, "{}", said.out);
}

/// Imports a state with something that is no browser, which changes the profile first; in the background.
fn start_import(session: &Session, ending: &str) -> Child {
    let (state, script) = (
        session.home().join("state.json"),
        session.home().join("browser.sh"),
    );
    fs::write(&state, "{\"cookies\": []}").unwrap();
    let change = "for word do case $word in --user-data-dir=*) \
                  echo changed > \"${word#*=}/Default/state\" ;; esac; done";
    fs::write(&script, format!("{change}\n{ending}\n")).unwrap();
    let script = format!("--browser={}", text(&script));
    let words = ["profile", "storage-state", "import", LINEAGE, text(&state)];
    let mut command = session.command(&words);
    command.args(["--browser", "/bin/sh", &script]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// That an import left the profile as it was: nothing is published, and nothing is there to be saved.
fn left_nothing(session: &Session, first: &str) {
    assert_eq!(active(session), json!(first));
    let next = end(start_run(session, &[], "cat \"$0/Default/state\"; echo"));
    assert_eq!(next.code, 0, "{}", next.err);
    assert_eq!(next.out.lines().next(), Some("one"));
    let report = report(&next);
    assert_eq!(report["load"]["warnings"], json!([]), "{report}");
    let local = session.json(0, &["profile", "list", "--local"]);
    assert_eq!(local["unsaved"], json!([]), "{local}");
}

#[test]
fn an_import_that_did_not_set_everything_leaves_the_profile_as_it_was() {
    let session = Session::new();
    let dir = profile(&session, "p");
    let first = saved(&session, &dir, "one");

    let ended = end(start_import(&session, "exit 3"));
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.contains("exit code 3"), "{}", ended.err);
    left_nothing(&session, &first);

    let mark = session.home().join("mark");
    let script = format!("echo $$ > {}; exec sleep 60", text(&mark));
    let started = || {
        let importing = start_import(&session, &script);
        let began = Instant::now();
        while !fs::read_to_string(&mark).is_ok_and(|pid| pid.ends_with('\n')) {
            assert!(began.elapsed() < Duration::from_mins(1), "never started");
            std::thread::sleep(Duration::from_millis(20));
        }
        let browser = fs::read_to_string(&mark).unwrap();
        fs::remove_file(&mark).unwrap();
        (
            importing,
            Pid::from_raw(browser.trim().parse().unwrap()).unwrap(),
        )
    };
    let (importing, _) = started();
    let pid = Pid::from_raw(i32::try_from(importing.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let ended = end(importing);
    assert_eq!(ended.code, 130, "{}", ended.err);
    left_nothing(&session, &first);

    let (mut killed, browser) = started();
    killed.kill().unwrap();
    killed.wait().unwrap();
    kill_process(browser, Signal::KILL).unwrap();
    let unlock = ["profile", "force-unlock", ALICE, "--reason", "killed"];
    session.data(0, &[&unlock[..], &["--confirm"]].concat());
    left_nothing(&session, &first);
}

#[test]
fn an_export_that_cannot_be_written_leaves_no_file() {
    let session = Session::new();
    let dir = profile(&session, "p");
    // In JSON each of these bytes is six.
    let value = "replace(hex(zeroblob(400000)), '00', char(1))";
    let row = format!("('a.example','','sid',{value},x'','/',{LATER},1,1,1,1)");
    chrome_cookies(&dir, &row);
    save(&session, 0, &dir, &[]);
    let there = session.home().join("there");
    fs::create_dir(&there).unwrap();
    let file = there.join("state.json");
    let plain = session.command(&[]);
    // No file may grow beyond a megabyte or so: what a full disk says, at the same place.
    let script = "trap '' XFSZ; ulimit -f 2400; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", STASIS]);
    command.args(["profile", "storage-state", "export", ALICE, text(&file)]);
    command.env_clear();
    let variables = plain.get_envs();
    command.envs(variables.filter_map(|(name, value)| Some((name, value?))));

    let failed = said(command.output().unwrap());

    assert_ne!(failed.code, 0, "{}", failed.out);
    assert!(failed.err.contains("state.json"), "{}", failed.err);
    assert_eq!(fs::read_dir(&there).unwrap().count(), 0, "{}", failed.err);
    let words = ["profile", "storage-state", "export", ALICE, text(&file)];
    session.data(0, &words);
    assert!(fs::metadata(&file).unwrap().len() > 2_000_000);
}

#[test]
fn the_directories_above_profiles_are_their_owners_alone_also_when_they_were_not() {
    let session = Session::new();
    let dir = profile(&session, "p");
    saved(&session, &dir, "one");
    let all = session.home().join("state/stasis/profiles");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;

    assert_eq!(end(start_run(&session, &[], "true")).code, 0);
    assert_eq!((mode(&all), mode(&all.join("acme"))), (0o700, 0o700));

    for path in [&all, &all.join("acme")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    assert_eq!(end(start_run(&session, &[], "true")).code, 0);
    assert_eq!((mode(&all), mode(&all.join("acme"))), (0o700, 0o700));
}

/// Runs with variables.
fn with(session: &Session, variables: &[(&str, &str)], words: &[&str]) -> Said {
    let mut command = session.command(words);
    command.envs(variables.iter().copied());
    said(command.output().unwrap())
}

fn configure(session: &Session, text: &str) {
    let place = session.home().join("config/stasis");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("config.toml"), text).unwrap();
}

#[test]
fn settings_of_captures_come_from_flag_variable_file_in_this_order() {
    let session = Session::new();
    let dir = profile(&session, "p");
    fs::create_dir_all(dir.join("Default/Cache")).unwrap();
    fs::write(dir.join("Default/Cache/x"), "x").unwrap();
    configure(
        &session,
        "[profile]\nregion = \"file-1\"\negress_geo = \"DE/BE\"\ncaches = \"include\"\n",
    );
    let variables = [
        ("STASIS_REGION", "variable-1"),
        ("STASIS_EGRESS_GEO", "FR/75"),
        ("STASIS_CACHES", "exclude"),
    ];
    let flags = [
        "--region",
        "flag-1",
        "--egress-geo",
        "US/NY",
        "--include-caches",
    ];
    let none: &[(&str, &str)] = &[];
    for (variables, flags, wanted) in [
        (none, &[][..], ("file-1", "DE", false)),
        (&variables[..], &[], ("variable-1", "FR", true)),
        (&variables[..], &flags[..], ("flag-1", "US", false)),
    ] {
        fs::write(dir.join("Default/state"), wanted.0).unwrap();
        let mut words = vec!["--json", "profile", "save", ALICE, "--dir", text(&dir)];
        words.extend(flags);
        let saved = with(&session, variables, &words);
        assert_eq!(saved.code, 0, "{}{}", saved.out, saved.err);
        let saved: Value = serde_json::from_str(&saved.out).unwrap();
        let shown = session.json(0, &["profile", "show", ALICE]);
        let within = &shown["lineages"][0]["snapshot"]["manifest"]["captured_in"];
        assert_eq!(
            (
                &within["host_region"],
                &within["egress_ip_geo"]["country"],
                &saved["caches_left_out"]
            ),
            (&json!(wanted.0), &json!(wanted.1), &json!(wanted.2)),
            "{within}"
        );
    }
}

#[test]
fn settings_of_loads_and_leases_come_from_flag_variable_file_in_this_order() {
    let session = Session::new();
    let (dir, there) = (profile(&session, "p"), session.home().join("there"));
    save(&session, 0, &dir, &["--region", "us-east-1"]);
    session.data(
        0,
        &["tenant", "policy", "set", "acme", "on_region_change=refuse"],
    );
    configure(
        &session,
        "[profile]\nregion = \"elsewhere\"\non_failure = \"refuse\"\nbrowser = \"/no/such/file\"\nwait = \"1s\"\n",
    );
    let words = ["profile", "load", "acme/alice@131", "--dir", text(&there)];

    assert_eq!(with(&session, &[], &words).code, 11, "the file refuses");
    let fresh = [("STASIS_ON_FAILURE", "fresh")];
    assert_eq!(with(&session, &fresh, &words).code, 12);
    let flagged = [&words[..], &["--on-failure", "refuse"]].concat();
    assert_eq!(with(&session, &fresh, &flagged).code, 11);
    assert_eq!(
        with(&session, &[("STASIS_REGION", "us-east-1")], &words).code,
        0
    );

    let unsaid = ["profile", "load", ALICE, "--dir", text(&there)];
    let file = with(&session, &[], &unsaid);
    assert!(file.err.contains("/no/such/file"), "{}", file.err);
    let variable = with(&session, &[("STASIS_BROWSER", "/no/other")], &unsaid);
    assert!(variable.err.contains("/no/other"), "{}", variable.err);
    let flag = [&unsaid[..], &["--browser", "/no/third"]].concat();
    let flag = with(&session, &[("STASIS_BROWSER", "/no/other")], &flag);
    assert!(flag.err.contains("/no/third"), "{}", flag.err);

    let token = acquire(&session, "owner");
    let again = ["lease", "acquire", LINEAGE];
    assert!(
        with(&session, &[], &again).err.contains("up to 1s"),
        "the file waits"
    );
    let variable = [("STASIS_WAIT", "1s500ms")];
    assert!(
        with(&session, &variable, &again)
            .err
            .contains("up to 1s500ms")
    );
    let none = [&again[..], &["--wait=0s"]].concat();
    assert!(!with(&session, &variable, &none).err.contains("waiting"));
    let bad = with(&session, &[("STASIS_WAIT", "long")], &again);
    assert!(
        bad.code == 2 && bad.err.contains("STASIS_WAIT"),
        "{}",
        bad.err
    );
    release(&session, &token);
}
