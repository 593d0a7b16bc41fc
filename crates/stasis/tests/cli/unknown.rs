//! Outcomes that nobody can know at first, and how the truth is found later.

use crate::session::{Session, real_store};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const ALICE: &str = "acme/alice@131";

/// Which request is the last one, and what the client hears afterwards.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// The first PUT of `lock.json`; silence.
    AtTheLock,
    /// The first PUT of `latest.json` after one of a manifest; that it may not.
    AtTheFlip,
}

/// Stands between a client and a real store until it sees a certain PUT: that one is carried out (or not), never
/// answered, and nothing gets through any more.
struct Cutter {
    upstream: String,
    at: Cut,
    carries_out: bool,
    saw_manifest: AtomicBool,
    cut: AtomicBool,
}

impl Cutter {
    /// Returns the same store's URL through a new cutter.
    fn before(store: &str, at: Cut, carries_out: bool) -> String {
        let (head, rest) = store.split_once("endpoint=http://").unwrap();
        let (upstream, tail) = rest.split_once('&').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let cut = AtomicBool::new(false);
        let cutter = Arc::new(Self {
            upstream: upstream.to_owned(),
            at,
            carries_out,
            saw_manifest: AtomicBool::new(false),
            cut,
        });
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let cutter = Arc::clone(&cutter);
                std::thread::spawn(move || cutter.serve(client));
            }
        });
        format!("{head}endpoint=http://127.0.0.1:{port}&{tail}")
    }

    /// The cutter is another address and therefore probed anew: only the lineage's own documents are fatal.
    fn is_fatal(&self, request: &[u8]) -> bool {
        let line = request.split(|byte| *byte == b'\n').next();
        let line = String::from_utf8_lossy(line.unwrap_or_default());
        if !line.starts_with("PUT ") {
            return false;
        }
        if line.contains(".manifest.json") {
            self.saw_manifest.store(true, Ordering::SeqCst);
        }
        match self.at {
            Cut::AtTheLock => line.contains("lock.json"),
            Cut::AtTheFlip => {
                line.contains("latest.json") && self.saw_manifest.load(Ordering::SeqCst)
            }
        }
    }

    fn serve(&self, mut client: TcpStream) -> Option<()> {
        let request = whole_request(&mut client)?;
        let fatal = self.is_fatal(&request);
        let was_cut = if fatal {
            self.cut.swap(true, Ordering::SeqCst)
        } else {
            self.cut.load(Ordering::SeqCst)
        };
        if was_cut && self.at == Cut::AtTheFlip {
            let denial = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            return client.write_all(denial.as_bytes()).ok();
        }
        if was_cut || (fatal && !self.carries_out) {
            return None;
        }
        let mut upstream = TcpStream::connect(&self.upstream).ok()?;
        upstream.write_all(&request).ok()?;
        let mut answer = Vec::new();
        upstream.read_to_end(&mut answer).ok()?;
        if !fatal {
            client.write_all(&answer).ok()?;
        }
        client.shutdown(Shutdown::Both).ok()
    }
}

/// Reads one request with its body, and asks for the connection to be closed after it.
fn whole_request(client: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 16384]);
    loop {
        let read = client.read(&mut piece).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&piece[..read]);
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let length = head.lines().find_map(|line| {
            line.to_lowercase()
                .strip_prefix("content-length: ")?
                .parse()
                .ok()
        });
        if bytes.len() >= end + 4 + length.unwrap_or(0) {
            let body = bytes.split_off(end);
            bytes.extend_from_slice(b"\r\nConnection: close");
            bytes.extend(body);
            return Some(bytes);
        }
    }
}

/// Releases a lease through a cutter and returns what `operation show` says afterwards, over the real store.
fn release_through(carries_out: bool, code_of_show: i32) -> Option<Value> {
    let store = real_store("STASIS_TEST_S3")?;
    let store = store.replace(
        "/test?",
        &format!("/unknown-{carries_out}-{}?", std::process::id()),
    );
    let session = Session::on(&store);
    let token = session.data(0, &["lease", "acquire", ALICE]);
    let through = Cutter::before(&store, Cut::AtTheLock, carries_out);
    let unknown = session.json(
        10,
        &[
            "--store", &through, "lease", "release", ALICE, "--token", &token,
        ],
    );

    let id = unknown["error"]["op_id"].as_str().unwrap().to_owned();
    assert!(
        unknown["error"]["hint"]
            .as_str()
            .unwrap()
            .contains(&format!("operation show {id}")),
        "{unknown}"
    );
    let elsewhere = session.json(2, &["operation", "show", &id]);
    assert!(
        elsewhere["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("--same-store"),
        "{elsewhere}"
    );
    let shown = session.json(code_of_show, &["operation", "show", &id, "--same-store"]);
    assert_eq!(
        (&shown["kind"], &shown["lineage"]),
        (&"release".into(), &ALICE.into())
    );
    Some(shown)
}

#[test]
fn a_release_that_was_applied_but_never_answered_is_found_to_be_applied() {
    let Some(shown) = release_through(true, 0) else {
        return;
    };

    assert_eq!(shown["fate"], "applied");
}

#[test]
fn a_release_that_may_still_be_on_its_way_stays_unknown() {
    let Some(shown) = release_through(false, 10) else {
        return;
    };

    assert_eq!(shown["fate"], "still_unknown");
}

/// Saves a change through a cutter; says what the first snapshot was, and what `operation show` says of the second.
fn save_through(carries_out: bool, code_of_show: i32) -> Option<(Session, String, Value)> {
    let store = real_store("STASIS_TEST_S3")?;
    let own = format!("/flip-{carries_out}-{}?", std::process::id());
    let store = store.replace("/test?", &own);
    let session = Session::on(&store);
    let dir = session.home().join("p");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("Last Version"), "131.0.6778.85").unwrap();
    let dir = dir.to_str().unwrap();
    let save = ["profile", "save", ALICE, "--dir", dir];
    let first = session.json(0, &save)["sha256"]
        .as_str()
        .unwrap()
        .to_owned();
    std::fs::write(format!("{dir}/state"), "second").unwrap();
    let through = Cutter::before(&store, Cut::AtTheFlip, carries_out);

    let cut = ["--store", &through, "--base", &first];
    let unknown = session.json(10, &[&save[..], &cut].concat());

    assert_eq!(unknown["error"]["kind"], "unknown");
    let id = unknown["error"]["op_id"].as_str().unwrap();
    let show = ["operation", "show", id, "--same-store"];
    let shown = session.json(code_of_show, &show);
    assert_eq!(shown["kind"], "flip");
    Some((session, first, shown))
}

/// The next save works, and every snapshot is whole.
fn go_on(session: &Session, base: &str) {
    let unlock = [
        "profile",
        "force-unlock",
        ALICE,
        "--reason",
        "cut",
        "--confirm",
    ];
    session.json(0, &unlock);
    let dir = session.home().join("p");
    std::fs::write(dir.join("state"), "third").unwrap();
    let dir = dir.to_str().unwrap();
    let save = ["profile", "save", ALICE, "--dir", dir, "--base", base];
    let saved = session.json(0, &save);
    assert_eq!(saved["outcome"], "captured");
    assert_eq!(saved["predecessor_sha256"], base);
    let list = session.json(0, &["profile", "list", ALICE]);
    let rows = list["items"].as_array().unwrap();
    assert_eq!(rows.len(), 3, "{list}");
    assert!(rows.iter().all(|row| row["damage"].is_null()), "{list}");
    session.json(0, &["profile", "verify", ALICE]);
}

fn active(session: &Session) -> String {
    let shown = session.json(0, &["profile", "show", ALICE]);
    let active = &shown["lineages"][0]["pointer"]["active_sha256"];
    active.as_str().unwrap().to_owned()
}

#[test]
fn a_save_whose_flip_was_made_and_never_answered_is_unknown_and_then_found_to_be_applied() {
    let Some((session, first, shown)) = save_through(true, 0) else {
        return;
    };

    assert_eq!(shown["fate"], "applied");
    let second = active(&session);
    assert_ne!(second, first);
    go_on(&session, &second);
}

#[test]
fn a_save_whose_flip_may_still_be_on_its_way_is_unknown_and_the_pointer_stays() {
    let Some((session, first, shown)) = save_through(false, 10) else {
        return;
    };

    assert_eq!(shown["fate"], "still_unknown");
    assert_eq!(active(&session), first);
    go_on(&session, &first);
}
