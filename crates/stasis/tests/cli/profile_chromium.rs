//! The canonical gate: a real Chromium, a real S3 server where there is one, two hosts.

use crate::session::{STASIS, Session};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const FLAGS: &str = "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync --password-store=basic \
    --remote-debugging-port=0";

/// Writes everything a page can keep, then says so.
const SET: &str = r"<!doctype html><script>(async () => {
  localStorage.setItem('ls', 'kept');
  document.cookie = 'page=kept; max-age=86400; SameSite=Lax';
  await new Promise((done, fail) => {
    const open = indexedDB.open('db', 1);
    open.onupgradeneeded = () => open.result.createObjectStore('s');
    open.onsuccess = () => { const t = open.result.transaction('s', 'readwrite');
      t.objectStore('s').put('kept', 'idb'); t.oncomplete = done; t.onerror = fail; };
  });
  const cache = await caches.open('c');
  await cache.put('/cached', new Response('kept'));
  const worker = await navigator.serviceWorker.register('/worker.js');
  await navigator.serviceWorker.ready;
  await fetch('/report', {method: 'POST', body: JSON.stringify({set: true})});
})().catch(e => fetch('/report', {method: 'POST', body: JSON.stringify({error: String(e)})}))</script>";

/// Reads it back.
const GET: &str = r"<!doctype html><script>(async () => {
  const idb = await new Promise((done, fail) => {
    const open = indexedDB.open('db', 1);
    open.onupgradeneeded = () => open.result.createObjectStore('s');
    open.onsuccess = () => { const g = open.result.transaction('s').objectStore('s').get('idb');
      g.onsuccess = () => done(g.result); g.onerror = fail; };
  });
  const cached = await caches.match('/cached');
  const workers = await navigator.serviceWorker.getRegistrations();
  await fetch('/report', {method: 'POST', body: JSON.stringify({
    ls: localStorage.getItem('ls'), idb, page: document.cookie,
    cached: cached ? await cached.text() : null, workers: workers.length})});
})().catch(e => fetch('/report', {method: 'POST', body: JSON.stringify({error: String(e)})}))</script>";

/// Writes, and asks whoever leaves it whether they are sure.
const STAY: &str = r"<!doctype html><script>
  addEventListener('beforeunload', e => { e.preventDefault(); e.returnValue = 'sure?'; });
  localStorage.setItem('ls', 'kept');
  document.cookie = 'page=kept; max-age=86400; SameSite=Lax';
  fetch('/report', {method: 'POST', body: JSON.stringify({set: true})});
</script>";

/// Writes all the time, everywhere, and says when it has begun.
const BUSY: &str = r"<!doctype html><script>(async () => {
  const db = await new Promise((done, fail) => {
    const open = indexedDB.open('db', 1);
    open.onupgradeneeded = () => open.result.createObjectStore('s');
    open.onsuccess = () => done(open.result); open.onerror = fail;
  });
  const write = n => new Promise((done, fail) => {
    const t = db.transaction('s', 'readwrite');
    t.objectStore('s').put('x'.repeat(2000) + n, 'key' + n % 500);
    if (n === 0) t.objectStore('s').put('kept', 'idb');
    t.oncomplete = done; t.onerror = fail;
  });
  for (let n = 0; n < 1e6; n++) {
    await write(n);
    localStorage.setItem('n' + n % 50, 'y'.repeat(500) + n);
    document.cookie = 'busy' + n % 20 + '=' + n + '; max-age=86400';
    if (n === 0) { localStorage.setItem('ls', 'kept'); }
    if (n === 50) await fetch('/report', {method: 'POST', body: JSON.stringify({set: true})});
  }
})().catch(e => fetch('/report', {method: 'POST', body: JSON.stringify({error: String(e)})}))</script>";

/// One origin, for both hosts.
struct Site {
    port: u16,
    reports: Receiver<(String, Value)>,
}

impl Site {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, reports) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(1000).flatten() {
                let sender = sender.clone();
                std::thread::spawn(move || answer(stream, &sender));
            }
        });
        Self { port, reports }
    }

    fn url(&self, page: &str) -> String {
        format!("http://localhost:{}/{page}", self.port)
    }

    /// What a page reported, with the cookies that its request carried.
    fn report(&self) -> (String, Value) {
        self.reports.recv_timeout(Duration::from_mins(1)).unwrap()
    }
}

fn answer(mut stream: TcpStream, reports: &Sender<(String, Value)>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let (mut length, mut cookies) = (0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let lower = line.trim_end().to_lowercase();
        if lower.is_empty() {
            break;
        }
        if let Some(number) = lower.strip_prefix("content-length:") {
            length = number.trim().parse().ok()?;
        }
        if lower.starts_with("cookie:") {
            line["cookie:".len()..].trim().clone_into(&mut cookies);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let page = first.split(' ').nth(1)?.to_owned();
    let (kind, text, more) = match &*page {
        "/set" => (
            "text/html",
            SET,
            "Set-Cookie: only=kept; HttpOnly; Max-Age=86400\r\n\
             Set-Cookie: secure=kept; Secure; SameSite=None; Max-Age=86400\r\n\
             Set-Cookie: strict=kept; SameSite=Strict; Max-Age=86400\r\n\
             Set-Cookie: session=gone\r\n",
        ),
        "/get" => ("text/html", GET, ""),
        "/busy" => ("text/html", BUSY, ""),
        "/stay" => ("text/html", STAY, ""),
        "/worker.js" => (
            "text/javascript",
            "self.addEventListener('fetch', () => {});",
            "",
        ),
        "/report" => {
            let report = serde_json::from_slice(&body).ok()?;
            reports.send((cookies, report)).ok()?;
            ("text/plain", "ok", "")
        }
        _ => ("text/plain", "", ""),
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n{more}\r\n{text}",
        text.len()
    )
    .ok()
}

/// Whether there is a Chromium; where it is needed it is missed loudly.
pub(crate) fn chromium() -> bool {
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

/// A store of this test's own: in a bucket where there is one.
pub(crate) fn store(home: &Path, name: &str) -> String {
    match std::env::var("STASIS_TEST_S3") {
        Ok(store) => store.replace("/test?", &format!("/{name}-{}?", std::process::id())),
        Err(_) => format!("file://{}", home.join("store").display()),
    }
}

fn start(session: &Session, dir: &Path, url: &str, before: &[&str]) -> Child {
    start_browser(session, "chromium", dir, url, before)
}

fn start_browser(
    session: &Session,
    browser: &str,
    dir: &Path,
    url: &str,
    before: &[&str],
) -> Child {
    let plain = session.command(&[]);
    let mut command = match before.split_first() {
        Some((program, rest)) => {
            let mut command = Command::new(program);
            command.args(rest).arg(STASIS);
            command.env_clear();
            command.envs(
                plain
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            );
            command
        }
        None => plain,
    };
    command.args(["--json", "profile", "run", "acme/alice", "--dir"]);
    command
        .arg(dir)
        .arg("--")
        .args(browser.split_whitespace())
        .args(FLAGS.split_whitespace());
    command.args(["--user-data-dir={dir}", url]);
    command.env("HOME", session.home());
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Interrupts a run as Ctrl-C would, and reads its report.
fn interrupt(child: Child) -> (i32, Value) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().last().unwrap_or_default();
    (
        output.status.code().unwrap_or(-1),
        serde_json::from_str(line).unwrap(),
    )
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one story, told from its beginning to its end"
)]
fn integration_full_round_trip_between_two_hosts_paths_names_and_users() {
    if !chromium() {
        return;
    }
    let shared = tempfile::tempdir().unwrap();
    let (site, store) = (Site::open(), store(shared.path(), "round-trip"));
    let (one, two) = (Session::on(&store), Session::on(&store));
    let (here, there) = (one.home().join("here"), two.home().join("some/where/else"));
    std::fs::create_dir_all(there.parent().unwrap()).unwrap();

    let run = start(&one, &here, &site.url("set"), &[]);
    let (_, set) = site.report();
    assert_eq!(set["set"], true, "{set}");
    let (code, first) = interrupt(run);
    std::fs::remove_dir_all(&here).unwrap();

    assert_eq!(
        (code, &first["save_outcome"]),
        (0, &"captured".into()),
        "{first}"
    );
    assert_eq!(first["load"]["outcome"], "no_snapshot");
    assert_eq!(first["save"]["clean_exit"], true);
    assert_eq!(first["save"]["ending"]["how"], "closed");
    let subject = first["subject"].as_str().unwrap();
    let shown = one.json(0, &["profile", "show", subject]).to_string();
    assert!(shown.contains("\"cookie_store\":\"basic\""), "{shown}");
    let verified = one.json(
        0,
        &[
            "profile",
            "verify",
            subject,
            "--browser",
            "chromium",
            "--browser=--no-sandbox",
        ],
    );
    assert_eq!(verified["cookies"]["localhost"], 4, "{verified}");

    // Another path, another host name, and another user where we may.
    let everything = ["chown", "-R", "65534:65534", two.home().to_str().unwrap()];
    let may = rustix::process::geteuid().is_root() && std::env::var("STASIS_TEST_S3").is_ok();
    let as_somebody = [
        "unshare",
        "--uts",
        "sh",
        "-c",
        "hostname elsewhere && exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$0\" \"$@\"",
    ];
    let before: &[&str] = if may { &as_somebody } else { &[] };
    if may {
        assert!(
            Command::new(everything[0])
                .args(&everything[1..])
                .status()
                .unwrap()
                .success()
        );
        open_to_all(two.home());
    }
    let run = start(&two, &there, &site.url("get"), before);
    let (cookies, got) = site.report();
    let (code, second) = interrupt(run);

    assert_eq!(
        (code, &second["load"]["outcome"]),
        (0, &"success".into()),
        "{second}"
    );
    assert_eq!(second["load"]["sha256"], first["save"]["sha256"]);
    for cookie in ["page=kept", "only=kept", "secure=kept", "strict=kept"] {
        assert!(cookies.contains(cookie), "{cookie} in {cookies}");
    }
    for (what, value) in [("ls", "kept"), ("idb", "kept"), ("cached", "kept")] {
        assert_eq!(got[what], value, "{what}: {got}");
    }
    assert_eq!(got["workers"], 1, "{got}");
    assert_eq!(
        second["save"]["predecessor_sha256"],
        first["save"]["sha256"]
    );
}

/// An older Chromium, and what it needs to run without a display, if `scripts/parts` could install it.
fn older_chromium() -> Option<String> {
    let parts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/parts");
    let browser = Path::new(parts).join("older-chromium/chromium");
    if !browser.exists() {
        println!("skipped: there is no older Chromium; scripts/parts installs it");
        return None;
    }
    Some(format!(
        "{} --no-zygote --use-gl=angle --use-angle=swiftshader --enable-unsafe-swiftshader",
        browser.display()
    ))
}

/// The upgrade that every image of a browser gets every four weeks, with two real majors.
#[test]
fn a_real_older_chromium_leaves_a_profile_that_the_next_major_takes_over() {
    let Some(older) = older_chromium().filter(|_| chromium()) else {
        return;
    };
    let (site, session) = (Site::open(), Session::new());
    let dir = |name: &str| session.home().join(name);

    let run = start_browser(&session, &older, &dir("older"), &site.url("set"), &[]);
    let (_, set) = site.report();
    assert_eq!(set["set"], true, "{set}");
    let (code, first) = interrupt(run);
    assert_eq!(
        (code, &first["save_outcome"]),
        (0, &"captured".into()),
        "{first}"
    );
    let run = start(&session, &dir("newer"), &site.url("get"), &[]);
    let (cookies, got) = site.report();
    let (code, second) = interrupt(run);
    let run = start(&session, &dir("again"), &site.url("get"), &[]);
    let (still, _) = site.report();
    let (_, third) = interrupt(run);

    assert_eq!(
        (code, &second["load"]["outcome"]),
        (0, &"upgraded".into()),
        "{second}"
    );
    assert_ne!(first["subject"], second["subject"]);
    assert_eq!(
        second["load"]["upgraded_from"]["sha256"],
        first["save"]["sha256"]
    );
    for cookie in ["page=kept", "only=kept", "secure=kept", "strict=kept"] {
        assert!(cookies.contains(cookie), "{cookie} in {cookies}");
        assert!(still.contains(cookie), "{cookie} in {still}");
    }
    for (what, value) in [("ls", "kept"), ("idb", "kept"), ("cached", "kept")] {
        assert_eq!(got[what], value, "{what}: {got}");
    }
    assert_eq!(got["workers"], 1, "{got}");
    assert_eq!(second["save_outcome"], "captured", "{second}");
    assert_eq!(second["save"]["upgrade"]["has_lost"], false, "{second}");
    assert_eq!(third["load"]["outcome"], "success", "{third}");
}

/// The directory above a test's home is private to whoever runs the tests.
fn open_to_all(home: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(home, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn cold_mode_snapshot_of_a_running_chrome_waits_for_its_exit_and_the_manifest_says_so() {
    if !chromium() {
        return;
    }
    let (site, session) = (Site::open(), Session::new());
    let dir = session.home().join("p");
    let mut browser = Command::new("chromium");
    browser.args(FLAGS.split_whitespace());
    browser
        .arg(format!("--user-data-dir={}", dir.display()))
        .arg(site.url("set"));
    let mut browser = browser
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(site.report().1["set"], true);
    let dir = dir.to_str().unwrap();

    let stranger = session.json(4, &["profile", "save", "acme/alice", "--dir", dir]);
    let saved = session.json(
        0,
        &["profile", "save", "acme/alice", "--dir", dir, "--stop"],
    );
    browser.wait().unwrap();

    assert!(
        stranger["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("--stop")
    );
    assert_eq!(saved["ending"]["how"], "closed");
    assert_eq!(saved["clean_exit"], true);
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one story, told from its beginning to its end"
)]
fn a_hot_snapshot_of_a_writing_browser_comes_back_whole_and_the_browser_goes_on() {
    if !chromium() {
        return;
    }
    let (site, session) = (Site::open(), Session::new());
    session.data(0, &["tenant", "policy", "set", "acme", "allow_hot=true"]);
    let (dir, there) = (session.home().join("p"), session.home().join("there"));
    let run = start(&session, &dir, &site.url("set"), &[]);
    assert_eq!(site.report().1["set"], true);

    // The run holds the lease, so the copy is saved as somebody else's.
    let dir = dir.to_str().unwrap();
    let saved = session.json(
        0,
        &[
            "profile",
            "save",
            "acme/copy",
            "--dir",
            dir,
            "--mode",
            "hot",
        ],
    );
    let (code, ran) = interrupt(run);

    assert_eq!(saved["mode"], "hot");
    assert!(saved["freeze_ms"].as_u64().unwrap() < 10_000, "{saved}");
    assert_eq!(
        saved["warnings"],
        serde_json::json!([]),
        "cookies were flushed"
    );
    assert_eq!(
        (code, &ran["save_outcome"]),
        (0, &"captured".into()),
        "{ran}"
    );
    let major = saved["subject"]
        .as_str()
        .unwrap()
        .rsplit('@')
        .next()
        .unwrap()
        .to_owned();
    let words = [
        "profile",
        "load",
        "acme/copy",
        "--chrome-major",
        &major,
        "--dir",
        there.to_str().unwrap(),
    ];
    let cold_only: Vec<&str> = words
        .iter()
        .copied()
        .chain(["--policy", "cold-only"])
        .collect();
    assert_eq!(session.json(12, &cold_only)["reason"], "hot_refused");
    assert_eq!(session.json(0, &words)["outcome"], "success");
    let run = start_on(&session, "acme/copy", &there, &site.url("get"));
    let (cookies, got) = site.report();
    interrupt(run);
    assert!(
        cookies.contains("only=kept") && cookies.contains("page=kept"),
        "{cookies}"
    );
    assert_eq!(got["idb"], "kept");
}

fn start_on(session: &Session, subject: &str, dir: &Path, url: &str) -> Child {
    let mut command = session.command(&["--json", "profile", "run", subject, "--dir"]);
    command
        .arg(dir)
        .arg("--")
        .arg("chromium")
        .args(FLAGS.split_whitespace());
    command
        .args(["--user-data-dir={dir}", url])
        .env("HOME", session.home());
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// How many snapshots of a writing browser are taken: a few here, a hundred and more by `scripts/full`.
fn hot_captures() -> usize {
    let asked = std::env::var("STASIS_HOT_CAPTURES").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(3)
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one story, told from its beginning to its end"
)]
fn hot_captures_under_writing_load_are_never_corrupt() {
    if !chromium() {
        return;
    }
    let (site, session) = (Site::open(), Session::new());
    session.data(0, &["tenant", "policy", "set", "acme", "allow_hot=true"]);
    let (dir, there) = (session.home().join("p"), session.home().join("there"));
    let run = start(&session, &dir, &site.url("busy"), &[]);
    assert_eq!(site.report().1["set"], true);
    let (mut frozen, mut flushed) = (Vec::new(), 0);
    let dir = dir.to_str().unwrap();

    for round in 0..hot_captures() {
        let saved = session.json(
            0,
            &["profile", "save", "acme/hot", "--dir", dir, "--mode", "hot"],
        );
        assert_eq!(
            (&saved["mode"], &saved["outcome"]),
            (&"hot".into(), &"captured".into()),
            "{saved}"
        );
        frozen.push(saved["freeze_ms"].as_u64().unwrap());
        flushed += usize::from(saved["warnings"] == serde_json::json!([]));
        let loaded = session.json(
            0,
            &[
                "profile",
                "load",
                saved["subject"].as_str().unwrap(),
                "--dir",
                there.to_str().unwrap(),
            ],
        );
        assert_eq!(loaded["outcome"], "success", "{loaded}");
        if round % 10 == 0 {
            let run = start_on(&session, "acme/hot", &there, &site.url("get"));
            let (cookies, got) = site.report();
            interrupt(run);
            assert!(cookies.contains("busy1="), "{cookies}");
            assert_eq!(got["idb"], "kept", "{got}");
            std::fs::remove_file(format!("{dir}.stasis.json")).unwrap();
            let latest = session.json(0, &["profile", "show", "acme/hot"]);
            let sha = latest["lineages"][0]["pointer"]["active_sha256"]
                .as_str()
                .unwrap()
                .to_owned();
            session.json(
                0,
                &[
                    "profile", "save", "acme/hot", "--dir", dir, "--mode", "hot", "--base", &sha,
                ],
            );
        }
    }
    interrupt(run);

    frozen.sort_unstable();
    println!(
        "stood still for {:?} ms (median, most) in {} captures, {flushed} flushed",
        (frozen[frozen.len() / 2], frozen.last()),
        frozen.len()
    );
    assert_eq!(flushed, frozen.len());
}

#[test]
fn a_launcher_that_ends_at_once_does_not_end_the_run_and_saves_in_between_are_counted() {
    if !chromium() {
        return;
    }
    let (site, session) = (Site::open(), Session::new());
    session.data(0, &["tenant", "policy", "set", "acme", "allow_hot=true"]);
    let dir = session.home().join("p");
    let script = format!(
        "chromium {FLAGS} --user-data-dir=\"$0\" {} & exit 0",
        site.url("set")
    );
    let mut command = session.command(&["--json", "profile", "run", "acme/alice", "--every", "1s"]);
    let major = session_major(&session);
    command.args(["--chrome-major", &major, "--dir"]).arg(&dir);
    command
        .args(["--", "sh", "-c", &script, "{dir}"])
        .env("HOME", session.home());
    let run = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(site.report().1["set"], true);
    std::thread::sleep(Duration::from_secs(3));

    let (code, ran) = interrupt(run);

    // A save in between can be the one that finds what the browser left when it was closed.
    let outcome = ran["save_outcome"].as_str().unwrap();
    assert_eq!(code, 0, "{ran}");
    assert!(matches!(outcome, "captured" | "deduplicated"), "{ran}");
    assert!(ran["saved_between"].as_u64().unwrap() >= 1, "{ran}");
    assert_eq!(ran["failed_between"], 0, "{ran}");
    assert_eq!(ran["save"]["ending"]["how"], "closed");
}

/// The major of the installed Chromium.
fn session_major(session: &Session) -> String {
    let said = Command::new("chromium")
        .arg("--version")
        .env("HOME", session.home())
        .output()
        .unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    let version = text
        .split_whitespace()
        .find(|word| word.contains('.'))
        .unwrap();
    version.split('.').next().unwrap().to_owned()
}

#[test]
fn a_page_that_asks_before_it_is_left_is_closed_within_the_deadline_and_its_state_is_saved() {
    if !chromium() {
        return;
    }
    let (site, session) = (Site::open(), Session::new());
    let (dir, there) = (session.home().join("p"), session.home().join("there"));

    let run = start(&session, &dir, &site.url("stay"), &[]);
    assert_eq!(site.report().1["set"], true);
    let (code, ran) = interrupt(run);
    let run = start(&session, &there, &site.url("get"), &[]);
    let (cookies, got) = site.report();
    interrupt(run);

    assert_eq!(
        (code, &ran["save_outcome"]),
        (0, &"captured".into()),
        "{ran}"
    );
    let ending = &ran["save"]["ending"];
    assert_eq!(ending["how"], "closed", "{ending}");
    assert!(ending["waited_ms"].as_u64().unwrap() < 8000, "{ending}");
    assert_eq!(ran["save"]["clean_exit"], true);
    assert_eq!(got["ls"], "kept", "{got}");
    assert!(cookies.contains("page=kept"), "{cookies}");
}

#[test]
fn a_diff_of_two_snapshots_of_a_real_browser_names_the_origins_that_came() {
    if !chromium() {
        return;
    }
    let (site, session) = (Site::open(), Session::new());
    let dir = session.home().join("p");
    let visit = |url: &str| {
        let run = start(&session, &dir, url, &[]);
        assert_eq!(site.report().1["set"], true);
        let (code, ran) = interrupt(run);
        assert_eq!(code, 0, "{ran}");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&ran["subject"]), text(&ran["save"]["sha256"]))
    };
    let other = site.url("set").replace("localhost", "127.0.0.1");

    let (subject, before) = visit(&site.url("set"));
    let (_, after) = visit(&other);
    let diff = session.json(0, &["profile", "diff", &subject, &before[..12], &after]);
    let back = session.json(0, &["profile", "diff", &subject, &after, &before]);

    let came = serde_json::json!([format!("http://127.0.0.1:{}", site.port)]);
    let nothing = serde_json::json!([]);
    for storage in ["local_storage", "indexed_db"] {
        assert_eq!(diff[storage]["added"], came, "{storage}: {diff}");
        assert_eq!(diff[storage]["removed"], nothing, "{storage}");
        assert_eq!(back[storage]["removed"], came, "{storage}: {back}");
        assert_eq!(back[storage]["added"], nothing, "{storage}");
    }
    assert_eq!(diff["unread"], nothing);
    let cookie = serde_json::json!({ "site": "127.0.0.1", "name": "only" });
    let cookies = diff["cookies"]["added"].as_array().unwrap();
    assert!(cookies.contains(&cookie), "{cookies:?}");
    assert!(!diff.to_string().contains("kept"), "never a value");
    // For people: who the profile is known to, before all the files that change with every start.
    let words = session.data(0, &["profile", "diff", &subject, &before, &after]);
    let kinds: Vec<&str> = words
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|kind| ["cookie", "localStorage", "IndexedDB", "file"].contains(kind))
        .collect();
    let mut sorted = kinds.clone();
    sorted.sort_by_key(|kind| *kind == "file");
    assert_eq!(kinds, sorted, "{words}");
    assert_eq!(
        (kinds[0], *kinds.last().unwrap()),
        ("cookie", "file"),
        "{words}"
    );
}
