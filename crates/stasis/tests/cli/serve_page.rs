//! The page of `stasis serve` in a real browser: an operator signs in, finds a profile, goes back, and everybody sees the pointer move.

use crate::profile::{cookies, load};
use crate::profile_chromium::chromium;
use crate::serve::{Served, token, two_snapshots};
use crate::session::Session;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
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
        tab.evaluate("!document.querySelector('button.danger')"),
        true
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
