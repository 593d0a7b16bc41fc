//! Figures of the page in a real browser: what a tenant's data takes of the store, and what the timeline of a subject marks.

use crate::profile_chromium::chromium;
use crate::serve::{Served, token, two_snapshots};
use crate::session::Session;
use crate::tab::Tab;
use serde_json::json;
use std::fs;
use std::time::{Duration, Instant};

/// How long something may take that must happen.
const TIMEOUT: Duration = Duration::from_mins(1);

#[test]
fn what_a_tenant_has_is_counted_by_kind_and_an_empty_tenant_sees_what_would_be() {
    if !chromium() {
        return;
    }
    let session = Session::new();
    two_snapshots(&session);
    let notes = session.home().join("notes");
    fs::create_dir(&notes).unwrap();
    // The same bytes twice: the chunks are stored once.
    let bytes: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    for name in ["one", "two"] {
        fs::write(notes.join(name), &bytes).unwrap();
    }
    let tenant = ["--tenant", "acme", "--project", notes.to_str().unwrap()];
    session.data(0, &[&["project"], &tenant[..], &["save"]].concat());
    let (acme, other) = (
        token(&session, "acme", "read"),
        token(&session, "other", "read"),
    );
    let served = Served::start(&session, &[]);
    let counted = served.get(&acme, "/v1/stats").body;
    let mut tab = Tab::open(&session);

    tab.sign_in(&served, &acme);
    tab.click("[...document.querySelectorAll('nav a')].find(one => one.textContent === 'Storage')");
    tab.until("document.querySelector('h1')?.textContent === 'Storage'");
    let rows = "[...document.querySelectorAll('tbody tr')].map(row => [...row.cells].slice(0, 3).map(one => one.textContent))";
    let rows = tab.evaluate(rows);
    assert_eq!(rows[0], json!(["Directories", "1", "1"]), "{rows}");
    assert_eq!(rows[3], json!(["Profiles", "1", "2"]), "{rows}");
    let ratio = counted["dedup_ratio"].as_f64().unwrap();
    assert!(ratio >= 2.0, "{counted}");
    let shown = tab.evaluate("document.querySelector('.tally').textContent");
    let wanted = format!("Deduplication{ratio:.1}×");
    assert!(shown.as_str().unwrap().contains(&wanted), "{shown}");
    // Light and heavy are told apart without reading a number.
    let widths = "[...document.querySelectorAll('.share .part')].map(one => one.getBoundingClientRect().width)";
    let widths = tab.evaluate(widths);
    assert!(widths[0].as_f64() > widths[1].as_f64(), "{widths}");
    tab.click("document.querySelector('tbody a')");
    tab.until("document.querySelector('#kind')?.value === 'dir'");

    // Of another tenant nothing is counted, and its page says what would be.
    tab.click("document.querySelector('#top button')");
    tab.until("!!document.querySelector('#token')");
    tab.sign_in(&served, &other);
    tab.go("#/storage");
    tab.until("document.querySelector('.empty')?.textContent.includes('Nothing is stored yet')");

    assert_eq!(tab.complaints, Vec::<String>::new());
    drop(tab);
    assert_eq!(served.stop(), 0);
}

#[test]
fn a_count_that_nobody_answers_is_a_problem_that_says_so() {
    if !chromium() {
        return;
    }
    let session = Session::new();
    two_snapshots(&session);
    let read = token(&session, "acme", "read");
    let served = Served::start(&session, &[]);
    let mut tab = Tab::open(&session);
    tab.sign_in(&served, &read);

    assert_eq!(served.stop(), 0);
    tab.go("#/storage");
    tab.until("!!document.querySelector('.problem button')");
    let said = tab.evaluate("document.querySelector('.problem').textContent");
    let said = said.as_str().unwrap();
    assert!(
        said.contains("The service does not answer") && said.ends_with("Try again"),
        "{said}"
    );
    assert_eq!(tab.evaluate("document.title"), "Problem · Stasis");
}

#[test]
fn the_timeline_marks_where_a_profile_was_forked_and_what_a_proof_restored() {
    if !chromium() {
        return;
    }
    let session = Session::new();
    let (first, _) = two_snapshots(&session);
    let words = ["profile", "fork", "acme/alice@131", "acme/bob", "--sha"];
    session.data(0, &[&words[..], &[&first[..12]]].concat());
    let read = token(&session, "acme", "read");
    let config = session.home().join("jobs.toml");
    fs::write(&config, "[serve.jobs.proof]\nevery = \"1s\"\n").unwrap();
    let served = Served::with_jobs(&session, &["--config", config.to_str().unwrap()]);
    let snapshots = "/v1/subjects/profile/bob@131/snapshots";
    let until = Instant::now() + TIMEOUT;
    let row = loop {
        let row = served.get(&read, snapshots).body["items"][0].clone();
        if row["proof"]["restored_at_ms"].is_u64() {
            break row;
        }
        assert!(Instant::now() < until, "{row}");
        std::thread::sleep(Duration::from_millis(100));
    };
    let origin = json!({ "subject": "profile:acme/alice@131", "snapshot": first });
    assert_eq!(row["forked_from"], origin);
    let own = served.get(&read, "/v1/subjects/profile/alice@131/snapshots");
    assert!(
        !own.body.to_string().contains("forked_from"),
        "{}",
        own.body
    );
    let mut tab = Tab::open(&session);

    tab.sign_in(&served, &read);
    tab.go("#/subject/profile/bob%40131");
    tab.until("!!document.querySelector('.timeline .proof.came')");
    let fork = tab.evaluate("document.querySelector('.timeline .fork title').textContent");
    let wanted = format!("forked from alice@131, snapshot {}", &first[..12]);
    assert_eq!(fork, wanted);
    let cells = tab.evaluate("document.querySelector('tbody tr').textContent");
    assert!(
        cells.as_str().unwrap().contains("restored by a proof"),
        "{cells}"
    );
    tab.click("document.querySelector('tbody a[href*=alice]')");
    tab.until("document.querySelector('h1')?.textContent === 'alice@131'");
    tab.until("!!document.querySelector('.timeline')");
    assert_eq!(
        tab.evaluate("document.querySelectorAll('.timeline .fork').length"),
        0
    );

    assert_eq!(tab.complaints, Vec::<String>::new());
    drop(tab);
    assert_eq!(served.stop(), 0);
}
