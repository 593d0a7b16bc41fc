//! The page of `stasis serve` in a real browser: an operator signs in, finds a profile, goes back, and everybody sees the pointer move.

use crate::profile::{cookies, load};
use crate::profile_chromium::chromium;
use crate::serve::{Served, token, two_snapshots};
use crate::session::Session;
use crate::tab::{Tab, axe};
use serde_json::json;
use std::fs;
use std::time::Duration;

const ROLL_BACK: &str = "[...document.querySelectorAll('tbody button')].find(one => one.textContent.startsWith('Roll back'))";

#[test]
fn an_operator_signs_in_finds_a_profile_and_rolls_it_back() {
    if !chromium() {
        return;
    }
    let session = Session::new();
    let (first, second) = two_snapshots(&session);
    let admin = token(&session, "acme", "admin");
    let served = Served::start(&session, &[]);
    let mut tab = Tab::open(&session);

    tab.sign_in(&served, &admin);
    tab.fill("#search", "ali");
    tab.press("Enter", 13);
    tab.until("document.querySelector('.verdict')?.textContent.includes('newest save there is')");
    let active = tab.evaluate("document.querySelector('tr.current code').title");
    assert_eq!(active, second);

    // Escape leaves everything as it was; the server's plan is there before anything can be typed.
    tab.click(ROLL_BACK);
    tab.until("!!document.querySelector('dialog[open] #typed')");
    let plan = tab.evaluate("document.querySelector('dialog').innerText");
    assert!(plan.as_str().unwrap().contains(&first[..12]), "{plan}");
    tab.press("Escape", 27);
    tab.until("!document.querySelector('dialog')");
    tab.click(ROLL_BACK);
    tab.until("!!document.querySelector('dialog[open] #typed')");
    let refused = "document.querySelector('dialog [type=submit]').disabled";
    assert_eq!(tab.evaluate(refused), true);
    tab.fill("#typed", "alice@131");
    assert_eq!(tab.evaluate(refused), true);
    tab.fill("#reason", "logged out");
    assert_eq!(tab.evaluate(refused), false);
    tab.press("Enter", 13);
    let moved = format!("document.querySelector('tr.current code')?.title === '{first}'");
    tab.until(&moved);
    tab.until("document.querySelector('.newer')?.textContent.includes('logged out')");

    assert_eq!(tab.complaints, Vec::<String>::new());
    let loaded = session.home().join("loaded");
    load(&session, 0, &loaded, &[]);
    assert_eq!(cookies(&loaded), "one");
    let events = session.json(0, &["events", "--tenant", "acme"]);
    let events = events["items"].as_array().unwrap();
    let act = events.iter().find(|one| one["kind"] == "rollback").unwrap();
    assert_eq!(act["details"]["reason"], "logged out");
    drop(tab);
    assert_eq!(served.stop(), 0);
}

#[test]
fn whoever_may_only_read_sees_no_button_that_changes_something() {
    if !chromium() {
        return;
    }
    let session = Session::new();
    two_snapshots(&session);
    let read = token(&session, "acme", "read");
    let served = Served::start(&session, &[]);
    let mut tab = Tab::open(&session);

    tab.sign_in(&served, &read);
    tab.until("document.querySelector('.who').textContent === 'acme · read'");
    tab.evaluate("location.hash = '#/subject/profile/alice%40131'");
    tab.until("document.querySelectorAll('tbody tr').length === 2 && !!document.querySelector('.verdict')");
    assert_eq!(tab.evaluate(&format!("!{ROLL_BACK}")), true);
    assert_eq!(
        tab.evaluate("[...document.querySelectorAll('main button')].map(one => one.textContent)"),
        json!(["Refresh", "Compare two"])
    );
    let views = "[...document.querySelectorAll('nav a')].map(one => one.textContent)";
    assert_eq!(
        tab.evaluate(views),
        json!(["Subjects", "Leases", "Operations", "Storage", "Events"])
    );

    // A token that does not count any more leads back to where one is put in.
    session.data(0, &["token", "revoke", read.split('_').nth(1).unwrap()]);
    std::thread::sleep(Duration::from_secs(11));
    tab.evaluate("location.hash = '#/events'");
    tab.until("!!document.querySelector('#token')");
    assert_eq!(tab.evaluate("sessionStorage.length"), 0);
    assert_eq!(tab.complaints, Vec::<String>::new());
    drop(tab);
    assert_eq!(served.stop(), 0);
}

/// The words of a row of the table that is shown.
fn row_text(at: usize) -> String {
    format!("document.querySelectorAll('tbody tr')[{at}]?.textContent")
}

#[test]
fn an_operator_pins_a_snapshot_and_forks_it_into_a_profile() {
    if !chromium() {
        return;
    }
    let session = Session::new();
    let (first, _) = two_snapshots(&session);
    let write = token(&session, "acme", "write");
    let served = Served::start(&session, &[]);
    let mut tab = Tab::open(&session);
    let snapshot = format!("/v1/subjects/profile/alice@131/snapshots/{first}");

    tab.sign_in(&served, &write);
    tab.go("#/subject/profile/alice%40131");
    tab.press_in_row(&first, "Pin");
    let marks = format!(
        "[...document.querySelectorAll('#row-{first} .badge')].map(one => one.textContent)"
    );
    tab.until(&format!("{marks}.includes('pinned')"));
    assert_eq!(served.get(&write, &snapshot).body["pinned"], true);
    // Whoever works with the keyboard stays where he was.
    let focused = "document.activeElement.textContent";
    assert_eq!(tab.evaluate(focused), "Unpin");
    tab.press("Enter", 13);
    tab.until(&format!("{focused} === 'Pin'"));
    assert_eq!(served.get(&write, &snapshot).body["pinned"], false);

    tab.press_in_row(&first, "Fork …");
    tab.until("!!document.querySelector('dialog[open] #target')");
    tab.fill("#target", "bob");
    let plan = tab.evaluate("document.querySelector('dialog').innerText");
    let plan = plan.as_str().unwrap();
    assert!(
        plan.contains(&first[..12]) && plan.contains("bob@131"),
        "{plan}"
    );
    tab.press("Enter", 13);
    tab.until("!!document.querySelector('.notice.good a[href*=bob]')");
    tab.click("document.querySelector('.notice.good a[href*=bob]')");
    tab.until("document.querySelector('h1')?.textContent === 'bob@131'");
    let active = tab.evaluate("document.querySelector('tr.current code').title");
    assert_eq!(active, first);

    // The same name again is refused by the server, and both are among the operations.
    tab.press_in_row(&first, "Fork …");
    tab.until("!!document.querySelector('dialog[open] #target')");
    tab.fill("#target", "alice");
    tab.press("Enter", 13);
    tab.until("!!document.querySelector('.notice.danger')");
    tab.go("#/operations");
    tab.until(&format!("{}?.includes('failed')", row_text(0)));
    let done = tab.evaluate(&row_text(1));
    let done = done.as_str().unwrap();
    assert!(
        done.contains("done") && done.contains("bob@131 from alice@131"),
        "{done}"
    );

    assert_eq!(tab.complaints, Vec::<String>::new());
    drop(tab);
    assert_eq!(served.stop(), 0);
}

#[test]
fn an_operator_sees_who_holds_what_and_when_somebody_gives_it_back() {
    if !chromium() {
        return;
    }
    let session = Session::new();
    two_snapshots(&session);
    let admin = token(&session, "acme", "admin");
    let served = Served::start(&session, &[]);
    let lease = |subject: &str, run: &str, ttl: &str| {
        let words = ["lease", "acquire", subject, "--run-id", run, "--ttl", ttl];
        session.json(0, &[&words[..], &["--host", "worker-7"]].concat())
    };
    lease("acme/alice@131", "nightly", "20m");
    let sooner = lease("acme/bob@131", "probe", "5m");
    let mut tab = Tab::open(&session);

    tab.sign_in(&served, &admin);
    tab.go("#/leases");
    tab.until(&format!("{}?.includes('nightly')", row_text(1)));
    let first = tab.evaluate(&row_text(0));
    let first = first.as_str().unwrap();
    assert!(
        first.contains("bob@131") && first.contains("worker-7"),
        "{first}"
    );
    let clock = "document.querySelector('tbody .clock').textContent";
    assert_eq!(
        tab.evaluate(&format!("/^4:\\d\\d left$/.test({clock})")),
        true
    );

    // Nobody asks for it: the list is as fresh as what it shows.
    let token = sooner["token"].as_str().unwrap();
    session.data(0, &["lease", "release", "acme/bob@131", "--token", token]);
    tab.until(
        "document.querySelector('main [role=status]:not([hidden])').textContent === '1 lease'",
    );
    tab.until(&format!("{}?.includes('nightly')", row_text(0)));
    tab.click("document.querySelector('tbody button.danger')");
    tab.until("!!document.querySelector('dialog[open] #typed')");
    tab.fill("#typed", "alice@131");
    tab.fill("#reason", "the host is gone");
    tab.press("Enter", 13);
    tab.until("document.querySelector('.empty')?.textContent.includes('Nobody holds')");
    session.data(0, &["lease", "acquire", "acme/alice@131"]);

    tab.go("#/jobs");
    tab.until("document.querySelectorAll('tbody tr').length === 8");
    // Of each it is said what it is for.
    let said = "[...document.querySelectorAll('tbody td:first-child .quiet')].filter(one => one.textContent).length";
    assert_eq!(tab.evaluate(said), 8);
    let jobs = tab.evaluate("document.querySelector('tbody').textContent");
    assert!(jobs.as_str().unwrap().contains("lock reap"), "{jobs}");
    assert_eq!(tab.complaints, Vec::<String>::new());
    drop(tab);
    assert_eq!(served.stop(), 0);
}

/// Saves a directory twice; what the snapshots are called.
fn two_saves(session: &Session) -> [String; 2] {
    let notes = session.home().join("notes");
    fs::create_dir(&notes).unwrap();
    ["one", "two"].map(|word| {
        fs::write(notes.join("todo"), word).unwrap();
        let saved = session.json(0, &["save", notes.to_str().unwrap()]);
        saved["snapshot_id"].as_str().unwrap().to_owned()
    })
}

#[test]
fn a_snapshot_of_a_directory_is_deleted_after_its_plan() {
    if !chromium() {
        return;
    }
    let session = Session::new();
    let [first, second] = two_saves(&session);
    let admin = token(&session, "default", "admin");
    let served = Served::start(&session, &[]);
    let mut tab = Tab::open(&session);

    tab.sign_in(&served, &admin);
    tab.until("!!document.querySelector('tbody a')");
    tab.click("document.querySelector('tbody a')");
    tab.press_in_row(&first, "Delete …");
    tab.until("!!document.querySelector('dialog[open] #typed')");
    let plan = tab.evaluate("document.querySelector('dialog').innerText");
    assert!(plan.as_str().unwrap().contains(&first[..8]), "{plan}");
    let name = tab.evaluate("document.querySelector('h1').textContent");
    tab.fill("#typed", name.as_str().unwrap());
    tab.press("Enter", 13);
    tab.until("document.querySelectorAll('tbody tr').length === 1");
    assert_eq!(
        tab.evaluate("document.querySelector('tbody tr').id"),
        format!("row-{second}")
    );

    assert_eq!(tab.complaints, Vec::<String>::new());
    drop(tab);
    assert_eq!(served.stop(), 0);
}

/// What each view shows once it is there.
const VIEWS: [(&str, &str); 9] = [
    ("#/", "table"),
    ("#/leases", "table"),
    ("#/operations", "table"),
    ("#/storage", "table"),
    ("#/jobs", "table"),
    ("#/events", ".events"),
    ("#/subject/profile/alice%40131", ".timeline"),
    ("#/files/profile/alice%40131/latest", "table"),
    ("#/diff/profile/alice%40131", "table"),
];

#[test]
fn no_view_keeps_somebody_out_in_light_in_the_dark_or_on_a_phone() {
    if !axe() || !chromium() {
        return;
    }
    let session = Session::new();
    let (first, _) = two_snapshots(&session);
    let admin = token(&session, "acme", "admin");
    let served = Served::start(&session, &[]);
    session.data(0, &["lease", "acquire", "acme/alice@131", "--ttl", "20m"]);
    let mut tab = Tab::open(&session);
    tab.sign_in(&served, &admin);
    tab.load_axe();
    // An operation, and a notice that stays.
    tab.go("#/subject/profile/alice%40131");
    tab.press_in_row(&first, "Fork …");
    tab.until("!!document.querySelector('dialog[open] #target')");
    tab.fill("#target", "bob");
    tab.assert_for_everybody("the dialog");
    tab.press("Enter", 13);
    tab.until("!!document.querySelector('.notice.good')");

    for (width, ground) in [
        (1280, "light"),
        (1280, "dark"),
        (375, "light"),
        (375, "dark"),
    ] {
        tab.show_at(width, ground);
        for (view, shows) in VIEWS {
            tab.go(view);
            tab.until(&format!(
                "!document.querySelector('.loading') && !!document.querySelector('main {shows}')"
            ));
            tab.assert_for_everybody(&format!("{view}, {ground}, {width}"));
            let beside = tab.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth",
            );
            assert_eq!(beside, 0, "{view} is wider than {width}");
        }
    }
    assert_eq!(tab.complaints, Vec::<String>::new());
    drop(tab);
    assert_eq!(served.stop(), 0);
}
