//! What the guide for browser agents says, with the real frameworks on a real Chromium; and what becomes of a profile when
//! they die.

use crate::guide::commands;
use crate::session::{STASIS, Session};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const GUIDE: &str = include_str!("../../../../docs/guides/browser-agents.md");
const FRAMEWORKS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../target/parts/frameworks/node_modules"
);

/// Whether everything is here that the guide needs. Playwright needs Node 20, which not every machine has.
fn has_parts() -> bool {
    let node = Command::new("node").arg("--version").output();
    let node = node.map(|said| String::from_utf8_lossy(&said.stdout).into_owned());
    let major = node
        .ok()
        .and_then(|said| said.strip_prefix('v')?.split('.').next()?.parse().ok());
    if major.is_none_or(|major: u32| major < 20) {
        println!("skipped: Node 20 is not installed");
        return false;
    }
    let is_missing = |program: &&str| Command::new(program).arg("--version").output().is_err();
    let missing: Vec<&str> = ["chromium", "chromedriver"]
        .into_iter()
        .filter(is_missing)
        .collect();
    let found = missing.is_empty() && Path::new(FRAMEWORKS).is_dir();
    let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
    assert!(
        found || !needed,
        "run scripts/parts: {missing:?} or {FRAMEWORKS}"
    );
    if !found {
        println!("skipped: {missing:?} or the frameworks are not installed: run scripts/parts");
    }
    found
}

/// A site that signs in whoever it does not know; returns its address.
fn site() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(1000).flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    format!("http://localhost:{port}/")
}

fn answer(mut stream: TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut is_known = false;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end().to_lowercase();
        if line.is_empty() {
            break;
        }
        is_known |= line.starts_with("cookie:") && line.contains("sid=s3cret");
    }
    let (said, more) = if is_known {
        ("known", "")
    } else {
        (
            "welcome",
            "Set-Cookie: sid=s3cret; HttpOnly; Max-Age=86400\r\n",
        )
    };
    let page = format!(
        "<!doctype html><body></body><script>document.body.innerText = '{said}' + (localStorage.getItem('k') ? ' and remembered' : '');\
         localStorage.setItem('k', 'v\u{e9}')</script>"
    );
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n{more}\r\n{page}",
        page.len()
    )
    .ok()
}

/// A home in which `stasis` and the frameworks are found, and the files of the guide lie.
struct Desk {
    session: Session,
    site: String,
}

impl Desk {
    fn new() -> Self {
        let (session, site) = (Session::new(), site());
        let home = session.home();
        fs::create_dir(home.join("bin")).unwrap();
        std::os::unix::fs::symlink(STASIS, home.join("bin/stasis")).unwrap();
        std::os::unix::fs::symlink(FRAMEWORKS, home.join("node_modules")).unwrap();
        for block in GUIDE.split("<!-- file: ").skip(1) {
            let (name, rest) = block.split_once(" -->\n```js\n").unwrap();
            let (text, _) = rest.split_once("```").unwrap();
            fs::write(home.join(name), text).unwrap();
        }
        Self { session, site }
    }

    fn home(&self) -> &Path {
        self.session.home()
    }

    fn command(&self, line: &str) -> Command {
        let plain = self.session.command(&[]);
        let mut shell = Command::new("sh");
        shell.env_clear();
        let variables = plain.get_envs();
        shell.envs(variables.filter_map(|(name, value)| Some((name, value?))));
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", self.home().join("bin").display());
        shell
            .env("PATH", path)
            .env("HOME", self.home())
            .env("SITE", &self.site)
            .env("BROWSER_FLAGS", "--browser chromium --browser=--no-sandbox");
        shell.args(["-c", line]).current_dir(self.home());
        shell
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Types a line that must work; returns what it wrote.
    fn ok(&self, line: &str) -> String {
        let said = self.run(line);
        let (out, err) = (
            String::from_utf8_lossy(&said.stdout),
            String::from_utf8_lossy(&said.stderr),
        );
        assert!(said.status.success(), "$ {line}\n{out}\n{err}");
        out.trim_end().to_owned()
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(line)).unwrap()
    }

    /// The active snapshot, and whether somebody holds the profile.
    fn profile(&self) -> (Value, Value) {
        let shown = self.json("stasis --json profile show acme/alice");
        let one = &shown["lineages"][0];
        let sha = &one["snapshot"]["manifest"]["archive_sha256"];
        (sha.clone(), one["lock_state"].clone())
    }

    /// Whether there is a snapshot, and nobody holds the profile any more.
    fn is_saved(&self) -> bool {
        let shown = self.run("stasis --json profile show acme/alice");
        shown.status.success() && self.profile().1 == "free"
    }

    /// The directory of the profile.
    fn dir(&self) -> PathBuf {
        let parent = self.home().join("state/stasis/profiles/acme");
        let all = fs::read_dir(parent).unwrap();
        let mut all = all.map(|entry| entry.unwrap().path());
        all.find(|path| path.is_dir() && !path.to_str().unwrap().contains(".unsaved"))
            .unwrap()
    }

    /// Whether a browser works in that directory.
    fn is_browsing(&self) -> bool {
        let flag = format!("--user-data-dir={}", self.dir().display());
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let mut lines = processes.filter_map(|one| fs::read(one.path().join("cmdline")).ok());
        lines.any(|line| {
            let mut words = line.split(|byte| *byte == 0);
            words.any(|word| word == flag.as_bytes())
        })
    }
}

/// Waits for something that takes a moment.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_mins(1), "never: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn every_command_of_the_guide_for_browser_agents_works_as_it_is_written() {
    if !has_parts() {
        return;
    }
    let desk = Desk::new();
    let said: Vec<(&str, String)> = commands(GUIDE)
        .into_iter()
        .map(|line| (line, desk.ok(line)))
        .collect();

    let of = |start: &str| -> Vec<&str> {
        let meant = said.iter().filter(|(line, _)| line.starts_with(start));
        meant.map(|(_, out)| out.as_str()).collect()
    };
    let known = "known and remembered";
    assert_eq!(of("node puppeteer"), ["welcome", known]);
    assert_eq!(of("node playwright"), [known]);
    assert_eq!(of("node parallel"), [format!("{known} / {known}")]);
    assert_eq!(
        of("stasis profile run acme/alice -- node selenium"),
        [known]
    );
    assert_eq!(of("node state"), [known]);
    for logins in of("stasis profile logins acme/") {
        assert!(
            logins.contains("localhost") && !logins.contains("s3cret"),
            "{logins}"
        );
    }
    let state = fs::read_to_string(desk.home().join("state.json")).unwrap();
    let state: Value = serde_json::from_str(&state).unwrap();
    let cookie = &state["cookies"][0];
    assert_eq!(
        (&cookie["name"], &cookie["value"]),
        (&json!("sid"), &json!("s3cret")),
        "{state}"
    );
    assert_eq!(
        state["origins"][0]["localStorage"],
        json!([{"name": "k", "value": "v\u{e9}"}])
    );
    // What Playwright wrote came through the import, and back out of its snapshot.
    let bob = desk.json("stasis profile storage-state export acme/bob");
    assert_eq!(bob["origins"], state["origins"]);
    assert_eq!(bob["cookies"][0]["value"], "s3cret");
    assert_eq!(bob["cookies"][0]["domain"], "localhost");
    assert!(!desk.is_browsing());
}

#[test]
fn chromedriver_finds_the_port_of_a_browser_that_a_shim_started() {
    if !has_parts() {
        return;
    }
    let desk = Desk::new();
    desk.ok("stasis profile shim acme/alice --out ./alice-browser");
    let script = fs::read_to_string(desk.home().join("selenium.mjs")).unwrap();
    let script = script.replace("'/usr/bin/chromium'", "process.cwd() + '/alice-browser'");
    // A directory that nobody named is chromedriver's own, and it kills the browser there without asking it to end.
    let script = script.replace(
        "process.env.STASIS_PROFILE_DIR",
        "process.cwd() + '/selenium'",
    );
    assert!(script.contains("alice-browser") && script.contains("'/selenium'"));
    fs::write(desk.home().join("shimmed.mjs"), script).unwrap();

    assert_eq!(desk.ok("node shimmed.mjs"), "welcome");
    until("saved", || desk.is_saved());
    assert_eq!(desk.ok("node shimmed.mjs"), "known and remembered");
}

/// A script that visits the site in the shim's browser and then does something else than to close it.
fn ends_badly(desk: &Desk, ending: &str) {
    let script = fs::read_to_string(desk.home().join("puppeteer.mjs")).unwrap();
    let script = script.replace("await browser.close();", ending);
    fs::write(desk.home().join("badly.mjs"), script).unwrap();
    desk.run("node badly.mjs");
}

#[test]
fn a_shim_that_is_killed_publishes_nothing_and_the_next_run_says_what_it_left() {
    if !has_parts() {
        return;
    }
    let desk = Desk::new();
    desk.ok("stasis profile shim acme/alice --out ./alice-browser");
    desk.ok("node puppeteer.mjs");
    let (first, state) = desk.profile();
    assert_eq!(state, "free");

    ends_badly(
        &desk,
        "process.kill(-browser.process().pid, 'SIGKILL'); process.exit(0)",
    );

    until("the browser ends with its shim", || !desk.is_browsing());
    assert_eq!(
        desk.profile(),
        (first.clone(), json!("held")),
        "nobody gave it back"
    );
    let again = desk.run("node puppeteer.mjs");
    let err = String::from_utf8_lossy(&again.stderr);
    assert!(
        !again.status.success() && err.contains("held by run"),
        "{err}"
    );
    desk.ok("stasis profile force-unlock acme/alice --reason 'it was killed' --confirm");
    let next = desk.run("stasis profile run acme/alice -- true {dir}");
    let err = String::from_utf8_lossy(&next.stderr);
    assert!(next.status.success() && err.contains(".unsaved-"), "{err}");
    assert_eq!(desk.profile().0, first);
    let left = desk.ok("stasis profile list --local");
    assert!(left.contains(".unsaved-"), "{left}");
}

#[test]
fn a_framework_that_dies_takes_its_browser_with_it_and_the_profile_is_saved() {
    if !has_parts() {
        return;
    }
    let desk = Desk::new();
    desk.ok("stasis profile shim acme/alice --out ./alice-browser");

    ends_badly(
        &desk,
        "process.kill(process.pid, 'SIGKILL'); await new Promise(() => {})",
    );

    until("saved", || desk.is_saved());
    assert!(!desk.is_browsing());
    assert_eq!(desk.ok("node puppeteer.mjs"), "known and remembered");
}

#[test]
fn a_shim_is_written_once_for_its_owner_and_answers_as_its_browser() {
    if !has_parts() {
        return;
    }
    let desk = Desk::new();
    let shown = desk.json("stasis --json profile shim acme/alice");
    assert!(
        shown["path"].as_str().unwrap().ends_with("/alice-browser"),
        "{shown}"
    );
    let version = desk.ok("./alice-browser --version");
    assert!(version.starts_with("Chromium "), "{version}");
    assert_eq!(desk.ok("stat -c %a alice-browser"), "700");
    let reads = desk.ok("stasis profile shim acme/alice --out reads -- --no-save");
    let script = fs::read_to_string(desk.home().join("reads")).unwrap();
    for said in [reads, script] {
        assert!(said.contains("saves nothing"), "{said}");
    }

    let again = desk.run("stasis profile shim acme/alice");
    assert_eq!(again.status.code(), Some(2));
    for options in ["--no-save --every 1m", "--nonsense", "x"] {
        let refused = desk.run(&format!(
            "stasis profile shim acme/alice --out other -- {options}"
        ));
        assert_eq!(refused.status.code(), Some(2), "{options}");
        assert!(!desk.home().join("other").exists());
    }
}
