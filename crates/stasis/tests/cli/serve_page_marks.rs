//! What the page says of one subject in a real browser: warnings in words, and every mark of the timeline.

use crate::profile::{profile, save, sqlite};
use crate::profile_chromium::chromium;
use crate::serve::{Served, token, two_snapshots};
use crate::session::Session;
use crate::tab::{Tab, axe};
use std::fs;
use std::time::Duration;

const ALICE: &str = "acme/alice@131";
const SUBJECT: &str = "#/subject/profile/alice%40131";

/// How many of these the page shows.
fn shown(tab: &mut Tab, selector: &str) -> u64 {
    let count = tab.evaluate(&format!("document.querySelectorAll('{selector}').length"));
    count.as_u64().unwrap()
}

#[test]
fn a_profile_that_moved_and_that_a_newer_browser_has_says_so_in_words() {
    if !chromium() {
        return;
    }
    let session = Session::new();
    let dir = profile(&session, "profile");
    save(&session, 0, &dir, &["--region", "us-east-1"]);
    sqlite(&dir, "insert into cookies values('two');");
    save(&session, 0, &dir, &["--region", "eu-west-1"]);
    let newer = profile(&session, "newer");
    fs::write(newer.join("Last Version"), "132.0.1.2").unwrap();
    let newer = newer.to_str().unwrap();
    let words = ["profile", "save", "acme/alice", "--dir", newer];
    session.json(0, &words);
    let read = token(&session, "acme", "read");
    let served = Served::start(&session, &[]);

    let answer = served.get(&read, "/v1/subjects/profile/alice@131");
    let codes: Vec<&str> = answer.body["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["code"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["captured_elsewhere", "other_major_is_newer"]);

    let mut tab = Tab::open(&session);
    tab.sign_in(&served, &read);
    tab.go(SUBJECT);
    tab.until("!!document.querySelector('.verdict')");
    let panel = tab.evaluate("document.querySelector('section[aria-labelledby=why]').innerText");
    let panel = panel.as_str().unwrap();
    for words in [
        "was captured in eu-west-1",
        "in us-east-1: sites may challenge it",
        "a run with Chrome 131 does not begin with it",
    ] {
        assert!(panel.contains(words), "{words} in {panel}");
    }
    // The whole log was looked at, and nothing about the subject is in it.
    assert!(!panel.contains("not all events were looked at"), "{panel}");
    assert_eq!(tab.complaints, Vec::<String>::new());
    drop(tab);
    assert_eq!(served.stop(), 0);
}

/// A profile to whose older snapshot somebody went back, whose newer one is pinned and damaged, and with which a run began empty; the newer
/// one.
fn eventful(session: &Session) -> String {
    let (first, second) = two_snapshots(session);
    let back = ["profile", "rollback", ALICE, "--sha", &first, "--confirm"];
    session.data(0, &back);
    session.data(0, &["profile", "pin", ALICE, "--sha", &second]);
    let policy = ["tenant", "policy", "set", "acme"];
    session.data(0, &[&policy[..], &["max_profile_bytes=1"]].concat());
    let fallback = session.home().join("fallback");
    let fallback = fallback.to_str().unwrap();
    let words = ["profile", "load", ALICE, "--dir", fallback];
    session.run(&[&words[..], &["--chrome-major", "131"]].concat());
    session.data(
        0,
        &[&policy[..], &["max_profile_bytes=8000000000"]].concat(),
    );
    // An archive that is not what was stored, as long as before.
    let archive = format!("snapshots/acme/alice/131/profile-{}.tar.zst", &second[..12]);
    let archive = session.object(&archive);
    let mut bytes = fs::read(&archive).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&archive, bytes).unwrap();
    second
}

/// Looks again and again until a proof has failed.
fn until_a_proof_failed(tab: &mut Tab) {
    const REFRESH: &str =
        "[...document.querySelectorAll('button')].find(one => one.textContent === 'Refresh')";
    for _ in 0..60 {
        if shown(tab, ".timeline .proof:not(.came)") > 0 {
            return;
        }
        std::thread::sleep(Duration::from_secs(1));
        tab.click(REFRESH);
        tab.until("!document.querySelector('.loading') && !!document.querySelector('.timeline')");
    }
    panic!("no proof failed");
}

#[test]
fn the_timeline_marks_pins_ways_back_runs_that_began_empty_and_proofs_that_failed() {
    if !chromium() {
        return;
    }
    let session = Session::new();
    let second = eventful(&session);
    let config = session.home().join("jobs.toml");
    fs::write(&config, "[serve.jobs.proof]\nevery = \"1s\"\n").unwrap();
    let read = token(&session, "acme", "read");
    let served = Served::with_jobs(&session, &["--config", config.to_str().unwrap()]);
    let mut tab = Tab::open(&session);
    tab.sign_in(&served, &read);
    tab.go(SUBJECT);
    tab.until("!!document.querySelector('.timeline')");
    until_a_proof_failed(&mut tab);

    for (mark, count) in [
        (".timeline .proof:not(.came)", 1),
        (".timeline .pin", 1),
        (".timeline .back", 1),
        (".timeline .empty-run", 1),
    ] {
        assert_eq!(shown(&mut tab, mark), count, "{mark}");
    }
    let legend = tab.evaluate("document.querySelector('.legend').innerText");
    let legend = legend.as_str().unwrap();
    for words in ["rolled back", "a run began empty", "proof failed", "pinned"] {
        assert!(legend.contains(words), "{words} in {legend}");
    }
    // The table says the same to whoever sees no picture.
    let row = format!("document.querySelector('#row-{second}').innerText");
    let row = tab.evaluate(&row);
    let row = row.as_str().unwrap();
    assert!(
        row.contains("proof failed") && row.contains("pinned"),
        "{row}"
    );
    assert_eq!(tab.complaints, Vec::<String>::new());
    drop(tab);
    assert_eq!(served.stop(), 0);
}

#[test]
fn the_sign_in_errors_and_the_text_side_by_side_keep_nobody_out() {
    if !axe() || !chromium() {
        return;
    }
    let session = Session::new();
    let notes = session.home().join("notes");
    fs::create_dir_all(&notes).unwrap();
    for text in ["one\ntwo\n", "one\nthree\n"] {
        fs::write(notes.join("list.txt"), text).unwrap();
        session.data(0, &["save", notes.to_str().unwrap()]);
    }
    let (read, served) = (
        token(&session, "default", "read"),
        Served::start(&session, &[]),
    );
    let rows = served.get(&read, "/v1/subjects?kind=dir");
    let id = rows.body["items"][0]["id"].as_str().unwrap().to_owned();
    let mut tab = Tab::open(&session);

    tab.sign_in(&served, &read);
    tab.load_axe();
    for ground in ["light", "dark"] {
        tab.show_at(1280, ground);
        tab.go(&format!("#/diff/dir/{id}?path=list.txt"));
        tab.until("document.querySelector('table.sides')?.innerText.includes('three') === true");
        tab.assert_for_everybody(&format!("the text side by side, {ground}"));
        tab.go("#/subject/dir/nothing-of-this-name");
        tab.until("document.title === 'Problem · Stasis'");
        tab.assert_for_everybody(&format!("a problem, {ground}"));
    }
    session.data(0, &["token", "revoke", read.split('_').nth(1).unwrap()]);
    std::thread::sleep(Duration::from_secs(11));
    tab.go("#/events");
    tab.until("!!document.querySelector('#token')");
    for ground in ["light", "dark"] {
        tab.show_at(375, ground);
        tab.assert_for_everybody(&format!("the sign-in, {ground}"));
    }
    drop(tab);
    assert_eq!(served.stop(), 0);
}
