//! Storage state in and out with a real Chromium: what travels, who could listen, and what a failure leaves.

use crate::profile::text;
use crate::session::{Said, Session, said};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SUBJECT: &str = "acme/alice";
const TOP: &str = "https://top.example";

/// Whether there is a Chromium; where it is needed it is missed loudly.
fn chromium() -> bool {
    let found = Command::new("chromium").arg("--version").output().is_ok();
    let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
    assert!(
        found || !needed,
        "chromium is not installed: run scripts/parts"
    );
    if !found {
        println!("skipped: chromium is not installed");
    }
    found
}

/// Imports a state into the profile with the real browser.
fn import(session: &Session, state: &Value) -> Command {
    let file = session.home().join("given.json");
    fs::write(&file, state.to_string()).unwrap();
    let words = [
        "--json",
        "profile",
        "storage-state",
        "import",
        SUBJECT,
        text(&file),
        "--browser",
        "chromium",
        "--browser=--no-sandbox",
    ];
    let mut command = session.command(&words);
    command.env("HOME", session.home());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn imported(session: &Session, state: &Value) -> (Said, Value) {
    let said = said(import(session, state).output().unwrap());
    let report = serde_json::from_str(&said.out);
    let report = report.unwrap_or_else(|_| panic!("{}\n{}", said.out, said.err));
    (said, report)
}

fn exported(session: &Session) -> Value {
    let words = ["profile", "storage-state", "export", SUBJECT];
    serde_json::from_str(&session.data(0, &words)).unwrap()
}

fn cookie(name: &str, more: &Value) -> Value {
    let mut cookie = json!({
        "name": name, "value": "v", "domain": "embedded.example", "path": "/", "expires": 4_102_444_800.0_f64,
        "httpOnly": true, "secure": true, "sameSite": "None",
    });
    let more = more.as_object().unwrap().clone();
    cookie.as_object_mut().unwrap().extend(more);
    cookie
}

#[test]
fn the_partition_of_a_cookie_comes_through_a_browser_and_back() {
    if !chromium() {
        return;
    }
    let session = Session::new();
    let state = json!({"cookies": [
        cookie("sid", &json!({"partitionKey": TOP, "_crHasCrossSiteAncestor": true})),
        cookie("sid", &json!({"partitionKey": TOP, "_crHasCrossSiteAncestor": false})),
        cookie("sid", &json!({})),
        // As Playwright reads a file that does not say it.
        cookie("unsaid", &json!({"partitionKey": TOP})),
    ]});

    let (said, report) = imported(&session, &state);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(
        (&report["cookies"], &report["refused_cookies"]),
        (&json!(4), &json!(0)),
        "{report}"
    );

    let found = exported(&session);
    let mut found: Vec<[String; 3]> = found["cookies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            ["name", "partitionKey", "_crHasCrossSiteAncestor"].map(|part| one[part].to_string())
        })
        .collect();
    found.sort();
    let of = |name: &str, site: &str, ancestor: &str| [name, site, ancestor].map(str::to_owned);
    let top = format!("\"{TOP}\"");
    let wanted = [
        of("\"sid\"", &top, "false"),
        of("\"sid\"", &top, "true"),
        of("\"sid\"", "null", "null"),
        of("\"unsaid\"", &top, "true"),
    ];
    assert_eq!(found, wanted);
}

#[test]
fn origins_that_are_no_sites_are_left_out_and_named_both_ways() {
    if !chromium() {
        return;
    }
    let session = Session::new();
    let page = session.home().join("page.html");
    let script = "<!doctype html><script>localStorage.setItem('k', 'secret')</script>";
    fs::write(&page, script).unwrap();
    let url = format!("file://{}", text(&page));
    let words = ["profile", "run", SUBJECT, "--", "chromium"];
    let mut run = session.command(&words);
    run.args(["--headless=new", "--no-sandbox", "--disable-gpu"]);
    run.args(["--no-first-run", "--password-store=basic", "--dump-dom"]);
    run.args(["--user-data-dir={dir}", &url]);
    run.env("HOME", session.home());
    let ran = said(run.output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);

    let file = session.home().join("state.json");
    let words = ["profile", "storage-state", "export", SUBJECT, text(&file)];
    let report = session.json(0, &words);
    let state: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(state["origins"], json!([]), "{state}");
    let left = &report["passed_over"][0];
    assert_eq!(
        (&left["origin"], &left["entries"], &report["origins"]),
        (&json!("file://"), &json!(1), &json!(0)),
        "{report}"
    );
    let told = session.run(&words[..4]);
    assert!(
        told.err.contains("file://") && !told.err.contains("secret"),
        "{}",
        told.err
    );

    // What an export wrote before it knew better.
    let item = json!([{"name": "k", "value": "v"}]);
    let older = json!({"origins": [
        {"origin": "file:", "localStorage": item},
        {"origin": "https://site.example", "localStorage": item},
    ]});
    let (told, report) = imported(&session, &older);
    assert_eq!(told.code, 13, "{}", told.err);
    assert_eq!(report["origins"], 1, "{report}");
    assert_eq!(report["passed_over"][0]["origin"], "file:", "{report}");
    assert_eq!(
        exported(&session)["origins"],
        json!([{"origin": "https://site.example", "localStorage": item}])
    );
}

/// The sockets on which some process of this host listens.
fn listening() -> BTreeSet<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let lines = tables.map(|table| fs::read_to_string(table).unwrap_or_default());
    let lines = lines.iter().flat_map(|table| table.lines());
    let rows = lines.map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.get(3) == Some(&"0A"))
        .filter_map(|row| Some(format!("socket:[{}]", row.get(9)?)))
        .collect()
}

/// Whether browsers work beneath a directory, and whether one of them listens anywhere.
fn browsers(place: &Path) -> (bool, bool) {
    let flag = format!("--user-data-dir={}", text(place));
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let ours = processes.map(|one| one.path()).filter(|process| {
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&flag)
    });
    let (mut seen, mut listens) = (false, false);
    for process in ours {
        seen = true;
        let open = fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        let open = open.filter_map(|one| fs::read_link(one.path()).ok());
        let (open, sockets): (Vec<_>, _) = (open.collect(), listening());
        listens |= open.iter().any(|one| sockets.contains(text(one)));
    }
    (seen, listens)
}

#[test]
fn nobody_else_can_speak_to_the_browser_that_gets_a_state_or_is_verified() {
    if !chromium() {
        return;
    }
    let session = Session::new();
    let item = json!([{"name": "k", "value": "v"}]);
    let origins =
        (0..20).map(|n| json!({"origin": format!("https://{n}.example"), "localStorage": item}));
    let state = json!({"origins": origins.collect::<Vec<_>>()});
    let place = session.home().join("cache/stasis/archives");
    let words = ["profile", "verify", SUBJECT, "--browser", "chromium"];
    let mut verify = session.command(&words);
    verify.arg("--browser=--no-sandbox");
    verify.env("HOME", session.home());
    verify.stdout(Stdio::piped()).stderr(Stdio::piped());

    for mut command in [import(&session, &state), verify] {
        let mut child = command.spawn().unwrap();
        let (mut seen, mut listened) = (false, false);
        while child.try_wait().unwrap().is_none() {
            let now = browsers(&place);
            seen |= now.0;
            listened |= now.1;
            std::thread::sleep(Duration::from_millis(5));
        }
        let ended = said(child.wait_with_output().unwrap());
        assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
        assert!(seen, "no browser was seen in {}", place.display());
        assert!(!listened, "its debugging port is open to every local user");
    }
    assert_eq!(exported(&session)["origins"].as_array().unwrap().len(), 20);
}

#[test]
fn a_real_browser_ends_with_a_killed_import_and_the_profile_is_as_it_was() {
    if !chromium() {
        return;
    }
    let session = Session::new();
    let (said, _) = imported(&session, &json!({"cookies": [cookie("sid", &json!({}))]}));
    assert_eq!(said.code, 0, "{}", said.err);
    let before = exported(&session);
    let item = json!([{"name": "k", "value": "v"}]);
    let origins =
        (0..200).map(|n| json!({"origin": format!("https://{n}.example"), "localStorage": item}));
    let state = json!({"origins": origins.collect::<Vec<_>>()});
    let place = session.home().join("cache/stasis/archives");

    let mut killed = import(&session, &state).spawn().unwrap();
    while !browsers(&place).0 {
        assert!(killed.try_wait().unwrap().is_none(), "it ended before");
        std::thread::sleep(Duration::from_millis(20));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    for _ in 0..500 {
        if !browsers(&place).0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }

    assert!(
        !browsers(&place).0,
        "the browser went on without its import"
    );
    let unlock = ["profile", "force-unlock", SUBJECT, "--reason", "killed"];
    session.data(0, &[&unlock[..], &["--confirm"]].concat());
    let ran = session.run(&["profile", "run", SUBJECT, "--", "true", "{dir}"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!ran.err.contains("unsaved"), "{}", ran.err);
    let local = session.json(0, &["profile", "list", "--local"]);
    assert_eq!(local["unsaved"], json!([]), "{local}");
    assert_eq!(exported(&session), before);
    let left = fs::read_dir(&place).unwrap().flatten();
    let left: Vec<_> = left.map(|one| one.file_name()).collect();
    let is_import = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("import-");
    assert!(!left.iter().any(is_import), "{left:?}");
}
