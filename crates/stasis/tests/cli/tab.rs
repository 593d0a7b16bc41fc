//! A tab of a real browser, driven as somebody at a keyboard does, and judged by axe-core.

use crate::serve::Served;
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

/// axe-core, which judges what stands in a document.
const AXE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../target/parts/axe/axe.min.js"
);
/// Everything that keeps somebody out, and where.
const FINDINGS: &str = "axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations \
    .filter(one => ['serious', 'critical'].includes(one.impact)) \
    .map(one => `${one.id}: ${one.nodes.map(node => node.target).join(', ')}`))";

/// Whether axe-core is there; where parts are required, it has to be.
pub(crate) fn axe() -> bool {
    let found = Path::new(AXE).exists();
    let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
    assert!(found || !needed, "{AXE} is not there: run scripts/parts");
    if !found {
        println!("skipped: {AXE} is not there; scripts/parts brings it");
    }
    found
}

/// A tab of a real browser.
pub(crate) struct Tab {
    browser: Child,
    asks: ChildStdin,
    hears: BufReader<ChildStdout>,
    session: Option<String>,
    asked: u64,
    /// What the page complained about.
    pub(crate) complaints: Vec<String>,
}

impl Tab {
    pub(crate) fn open(session: &Session) -> Self {
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

    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
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

    pub(crate) fn evaluate(&mut self, script: &str) -> Value {
        let params = json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let mut said = self.call("Runtime.evaluate", &params);
        assert!(said["exceptionDetails"].is_null(), "{script}: {said}");
        said["result"]["value"].take()
    }

    /// Waits until something is so.
    pub(crate) fn until(&mut self, script: &str) {
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
    pub(crate) fn fill(&mut self, field: &str, text: &str) {
        self.evaluate(&format!("document.querySelector('{field}').focus()"));
        self.call("Input.insertText", &json!({ "text": text }));
    }

    pub(crate) fn press(&mut self, key: &str, code: u32) {
        for kind in ["keyDown", "keyUp"] {
            let mut params = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" && key == "Enter" {
                params["text"] = json!("\r");
            }
            self.call("Input.dispatchKeyEvent", &params);
        }
    }

    pub(crate) fn click(&mut self, element: &str) {
        self.evaluate(&format!("{element}.click()"));
    }

    /// Presses the button of a row of a table that has this on it, as somebody at a keyboard does.
    pub(crate) fn press_in_row(&mut self, row: &str, label: &str) {
        let button = format!(
            "[...document.querySelectorAll('#row-{row} button')].find(one => one.textContent === '{label}')"
        );
        self.until(&format!("!!{button}"));
        self.evaluate(&format!("{button}.focus()"));
        self.press("Enter", 13);
    }

    /// Loads what judges the document.
    pub(crate) fn load_axe(&mut self) {
        self.evaluate(&fs::read_to_string(AXE).unwrap());
    }

    /// Fails where something on the page keeps somebody out.
    pub(crate) fn assert_for_everybody(&mut self, what: &str) {
        assert_eq!(self.evaluate(FINDINGS), json!([]), "{what}");
    }

    /// Shows the page at this width, in light or in the dark.
    pub(crate) fn show_at(&mut self, width: u32, ground: &str) {
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": ground }] });
        self.call("Emulation.setEmulatedMedia", &media);
        let size =
            json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size);
    }

    pub(crate) fn go(&mut self, view: &str) {
        self.evaluate(&format!("location.hash = '{view}'"));
    }

    pub(crate) fn sign_in(&mut self, served: &Served, token: &str) {
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
