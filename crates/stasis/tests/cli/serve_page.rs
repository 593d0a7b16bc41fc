//! The page of `stasis serve` in a real browser: an operator signs in, finds a profile, goes back, and everybody sees the pointer move.

use crate::profile::{cookies, load};
use crate::profile_chromium::chromium;
use crate::serve::{Served, token, two_snapshots};
use crate::session::Session;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The pipe of the browser's conversation is what the shell has as input and output.
const BROWSER: &str = "exec chromium --headless=new --no-sandbox --disable-gpu --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync --password-store=basic \
    --remote-debugging-pipe --user-data-dir=\"$0\" about:blank 3<&0 4>&1 </dev/null >/dev/null 2>&1";

/// A tab of a real browser.
struct Tab {
    browser: Child,
    asks: ChildStdin,
    hears: BufReader<ChildStdout>,
    session: Option<String>,
    asked: u64,
    /// What the page complained about.
    complaints: Vec<String>,
}

impl Tab {
    fn open(session: &Session) -> Self {
        let dir = session.home().join("browser");
        let mut browser = Command::new("sh")
            .args(["-c", BROWSER])
            .arg(dir)
            .env("HOME", session.home())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut tab = Self {
            asks: browser.stdin.take().unwrap(),
            hears: BufReader::new(browser.stdout.take().unwrap()),
            browser,
            session: None,
            asked: 0,
            complaints: Vec::new(),
        };
        let made = tab.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": made["targetId"], "flatten": true });
        let attached = tab.call("Target.attachToTarget", &attach);
        tab.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            tab.call(domain, &json!({}));
        }
        tab
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.asked += 1;
        let mut asked = json!({ "id": self.asked, "method": method, "params": params });
        if let Some(session) = &self.session {
            asked["sessionId"] = json!(session);
        }
        let mut text = serde_json::to_vec(&asked).unwrap();
        text.push(0);
        self.asks.write_all(&text).unwrap();
        loop {
            let mut said = Vec::new();
            self.hears.read_until(0, &mut said).unwrap();
            assert_eq!(said.pop(), Some(0), "the browser ended");
            let mut said: Value = serde_json::from_slice(&said).unwrap();
            let entry = &said["params"]["entry"];
            let is_policy = entry["text"]
                .as_str()
                .is_some_and(|text| text.contains("Content Security Policy"));
            if said["method"] == "Runtime.exceptionThrown" || is_policy {
                self.complaints.push(said["params"].to_string());
            }
            if said["id"] == self.asked {
                assert!(said["error"].is_null(), "{method}: {said}");
                return said["result"].take();
            }
        }
    }

    fn evaluate(&mut self, script: &str) -> Value {
        let params = json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let mut said = self.call("Runtime.evaluate", &params);
        assert!(said["exceptionDetails"].is_null(), "{script}: {said}");
        said["result"]["value"].take()
    }

    /// Waits until something is so.
    fn until(&mut self, script: &str) {
        for _ in 0..600 {
            if self.evaluate(script) == json!(true) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let text = self.evaluate("document.body.innerText");
        panic!("never `{script}`; {:?}: {text}", self.complaints);
    }

    /// Types into a field as somebody at a keyboard does.
    fn fill(&mut self, field: &str, text: &str) {
        self.evaluate(&format!("document.querySelector('{field}').focus()"));
        self.call("Input.insertText", &json!({ "text": text }));
    }

    fn press(&mut self, key: &str, code: u32) {
        for kind in ["keyDown", "keyUp"] {
            let mut params = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" && key == "Enter" {
                params["text"] = json!("\r");
            }
            self.call("Input.dispatchKeyEvent", &params);
        }
    }

    fn click(&mut self, element: &str) {
        self.evaluate(&format!("{element}.click()"));
    }

    /// Presses the button of a row of a table that has this on it, as somebody at a keyboard does.
    fn press_in_row(&mut self, row: &str, label: &str) {
        let button = format!(
            "[...document.querySelectorAll('#row-{row} button')].find(one => one.textContent === '{label}')"
        );
        self.until(&format!("!!{button}"));
        self.evaluate(&format!("{button}.focus()"));
        self.press("Enter", 13);
    }

    fn go(&mut self, view: &str) {
        self.evaluate(&format!("location.hash = '{view}'"));
    }

    fn sign_in(&mut self, served: &Served, token: &str) {
        let url = format!("http://{}/", served.address);
        self.call("Page.navigate", &json!({ "url": url }));
        self.until("!!document.querySelector('#token')");
        self.fill("#token", token);
        self.press("Enter", 13);
        self.until("!!document.querySelector('#search')");
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        // The browser is what the shell became; its children end with their pipes.
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}

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
        json!(["Subjects", "Leases", "Operations", "Events"])
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
    tab.until("document.querySelectorAll('tbody tr').length === 5");
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

/// axe-core, which judges what stands in a document.
const AXE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../target/parts/axe/axe.min.js"
);
/// Everything that keeps somebody out, and where.
const FINDINGS: &str = "axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations \
    .filter(one => ['serious', 'critical'].includes(one.impact)) \
    .map(one => `${one.id}: ${one.nodes.map(node => node.target).join(', ')}`))";

/// What each view shows once it is there.
const VIEWS: [(&str, &str); 8] = [
    ("#/", "table"),
    ("#/leases", "table"),
    ("#/operations", "table"),
    ("#/jobs", "table"),
    ("#/events", ".events"),
    ("#/subject/profile/alice%40131", ".timeline"),
    ("#/files/profile/alice%40131/latest", "table"),
    ("#/diff/profile/alice%40131", "table"),
];

#[test]
fn no_view_keeps_somebody_out_in_light_in_the_dark_or_on_a_phone() {
    let (found, needed) = (
        Path::new(AXE).exists(),
        std::env::var_os("STASIS_REQUIRE_PARTS").is_some(),
    );
    assert!(found || !needed, "{AXE} is not there: run scripts/parts");
    if !found || !chromium() {
        println!("skipped: {AXE} or Chromium is not there; scripts/parts brings them");
        return;
    }
    let axe = fs::read_to_string(AXE).unwrap();
    let session = Session::new();
    let (first, _) = two_snapshots(&session);
    let admin = token(&session, "acme", "admin");
    let served = Served::start(&session, &[]);
    session.data(0, &["lease", "acquire", "acme/alice@131", "--ttl", "20m"]);
    let mut tab = Tab::open(&session);
    tab.sign_in(&served, &admin);
    tab.evaluate(&axe);
    // An operation, and a notice that stays.
    tab.go("#/subject/profile/alice%40131");
    tab.press_in_row(&first, "Fork …");
    tab.until("!!document.querySelector('dialog[open] #target')");
    tab.fill("#target", "bob");
    assert_eq!(tab.evaluate(FINDINGS), json!([]), "the dialog");
    tab.press("Enter", 13);
    tab.until("!!document.querySelector('.notice.good')");

    for (width, ground) in [
        (1280, "light"),
        (1280, "dark"),
        (375, "light"),
        (375, "dark"),
    ] {
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": ground }] });
        tab.call("Emulation.setEmulatedMedia", &media);
        let size =
            json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        tab.call("Emulation.setDeviceMetricsOverride", &size);
        for (view, shows) in VIEWS {
            tab.go(view);
            tab.until(&format!(
                "!document.querySelector('.loading') && !!document.querySelector('main {shows}')"
            ));
            let findings = tab.evaluate(FINDINGS);
            assert_eq!(findings, json!([]), "{view}, {ground}, {width}");
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
