//! A Chromium of a test's own, spoken to from outside.

use futures_util::{SinkExt, StreamExt};
use rustix::process::Signal;
use serde_json::{Value, json};
use stasis_quiesce::browser::{ProcessRole, users_of};
use stasis_quiesce::process::{Process, ProcessTable};
use stasis_quiesce::programs;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

const FLAGS: &str = "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync --password-store=basic";

/// Whether a browser can be spoken to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    Open,
    None,
}

/// Where Chromium is, or nothing where it is not installed and need not be.
pub(crate) async fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = programs::find(&names, OsStr::new(&path), &["--version"]).await;
    if found.is_none() {
        let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
        assert!(!needed, "chromium is not installed: run scripts/parts");
        println!("skipped: chromium is not installed");
    }
    found.map(|found| found.path)
}

/// A running browser, which ends with its test.
pub(crate) struct Browser {
    child: Child,
    pub(crate) directory: PathBuf,
}

impl Browser {
    pub(crate) async fn start(directory: &Path, port: Port) -> Option<Self> {
        let program = program().await?;
        let _ = fs::remove_file(directory.join("DevToolsActivePort"));
        fs::create_dir_all(directory).unwrap();
        let log = File::create(directory.with_extension("log")).unwrap();
        let mut command = Command::new(program);
        command.args(FLAGS.split_whitespace());
        command.arg(format!("--user-data-dir={}", directory.display()));
        if port == Port::Open {
            command.arg("--remote-debugging-port=0");
        }
        command.arg("about:blank").stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let browser = Self {
            child: command.spawn().unwrap(),
            directory: directory.to_owned(),
        };
        browser.ready(port).await;
        Some(browser)
    }

    /// Waits until it works: a page of its own, and the port if it has one.
    async fn ready(&self, port: Port) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let is_ready = || {
            let written = fs::read_to_string(self.directory.join("DevToolsActivePort"));
            let listens = port == Port::None || written.is_ok_and(|text| text.contains('\n'));
            listens && self.renderers() > 0
        };
        while !is_ready() {
            let log = || fs::read_to_string(self.directory.with_extension("log"));
            assert!(Instant::now() < deadline, "not ready: {:?}", log());
            sleep(Duration::from_millis(30)).await;
        }
    }

    fn renderers(&self) -> usize {
        let pids = self.family();
        let pids = pids.iter().map(Process::pid);
        let lines = pids.filter_map(|pid| fs::read(format!("/proc/{pid}/cmdline")).ok());
        lines
            .filter(|line| String::from_utf8_lossy(line).contains("--type=renderer"))
            .count()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All its processes, itself first.
    pub(crate) fn family(&self) -> Vec<Process> {
        let Ok(Some(root)) = Process::open(self.pid()) else {
            return Vec::new();
        };
        let family = ProcessTable::read().unwrap().family(&[root.identity()]);
        family
            .iter()
            .filter_map(|row| Process::reopen(row.identity).unwrap())
            .collect()
    }

    /// Whether nothing of it is left; helpers that name the directory count too.
    pub(crate) fn is_gone(&self) -> bool {
        let users = users_of(&self.directory).unwrap();
        !users.iter().any(|user| user.role <= ProcessRole::Child)
    }

    pub(crate) async fn speak(&self) -> Speech {
        Speech::open(&self.directory).await
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        for process in self.family() {
            let _ = process.signal(Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A conversation with a browser.
pub(crate) struct Speech {
    socket: WebSocketStream<TcpStream>,
    id: u64,
}

impl Speech {
    async fn open(directory: &Path) -> Self {
        let text = fs::read_to_string(directory.join("DevToolsActivePort")).unwrap();
        let (port, path) = text.split_once('\n').unwrap();
        let stream = TcpStream::connect(format!("127.0.0.1:{port}"))
            .await
            .unwrap();
        let url = format!("ws://127.0.0.1:{port}{path}");
        let (socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
        Self { socket, id: 0 }
    }

    /// Asks and waits for the answer; fails the test when there is none within ten seconds.
    pub(crate) async fn ask(&mut self, method: &str, parameters: Value, page: &str) -> Value {
        self.id += 1;
        let mut question = json!({"id": self.id, "method": method, "params": parameters});
        if !page.is_empty() {
            question["sessionId"] = page.into();
        }
        let question = Message::text(question.to_string());
        self.socket.send(question).await.unwrap();
        let answer = async {
            loop {
                let heard = self.socket.next().await.unwrap().unwrap();
                let heard: Value = serde_json::from_str(heard.to_text().unwrap()).unwrap();
                if heard["id"] == self.id {
                    assert!(heard["error"].is_null(), "{method}: {heard}");
                    return heard["result"].clone();
                }
            }
        };
        let answered = timeout(Duration::from_secs(10), answer).await;
        answered.unwrap_or_else(|_| panic!("no answer to {method}"))
    }

    /// Attaches to the first page.
    pub(crate) async fn page(&mut self) -> String {
        let targets = self.pages().await;
        let attach = json!({"targetId": targets[0], "flatten": true});
        let attached = self.ask("Target.attachToTarget", attach, "").await;
        attached["sessionId"].as_str().unwrap().to_owned()
    }

    /// The pages that are open.
    pub(crate) async fn pages(&mut self) -> Vec<String> {
        let answer = self.ask("Target.getTargets", json!({}), "").await;
        let targets = answer["targetInfos"].as_array().unwrap().iter();
        let pages = targets.filter(|target| target["type"] == "page");
        pages
            .map(|page| page["targetId"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Sets a cookie that lives for years.
    pub(crate) async fn set_cookie(&mut self, name: &str) {
        let cookie = json!({"name": name, "value": "kept", "domain": "a.test", "path": "/", "expires": 2_000_000_000});
        let cookies = json!({"cookies": [cookie]});
        self.ask("Storage.setCookies", cookies, "").await;
    }

    pub(crate) async fn cookies(&mut self) -> Vec<String> {
        let answer = self.ask("Storage.getCookies", json!({}), "").await;
        let cookies = answer["cookies"].as_array().unwrap().iter();
        cookies
            .map(|cookie| cookie["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Makes the page ask for confirmation before it is left, as if somebody had worked on it.
    pub(crate) async fn confirm_leaving(&mut self) {
        let page = self.page().await;
        let script = "addEventListener('beforeunload', e => { e.preventDefault(); e.returnValue = 'stay' }); 1";
        let evaluate = json!({"expression": script, "userGesture": true});
        let answer = self.ask("Runtime.evaluate", evaluate, &page).await;
        assert_eq!(answer["result"]["value"], 1);
        for kind in ["mousePressed", "mouseReleased"] {
            let click = json!({"type": kind, "x": 9, "y": 9, "button": "left", "clickCount": 1});
            self.ask("Input.dispatchMouseEvent", click, &page).await;
        }
    }
}
