//! Outcomes that nobody can know at first, and how the truth is found later.

use crate::session::{Session, real_store};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const ALICE: &str = "acme/alice@131";

/// Stands between a client and a real store until it sees a PUT of `lock.json`: that one is carried out (or not), never
/// answered, and nothing gets through any more.
struct Cutter {
    upstream: String,
    carries_out: bool,
    cut: AtomicBool,
}

impl Cutter {
    /// Returns the same store's URL through a new cutter.
    fn before(store: &str, carries_out: bool) -> String {
        let (head, rest) = store.split_once("endpoint=http://").unwrap();
        let (upstream, tail) = rest.split_once('&').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let cut = AtomicBool::new(false);
        let cutter = Arc::new(Self {
            upstream: upstream.to_owned(),
            carries_out,
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

    fn serve(&self, mut client: TcpStream) -> Option<()> {
        let request = whole_request(&mut client)?;
        // The cutter is another address and therefore probed anew: only the lease's own lock is fatal.
        let fatal = request.starts_with(b"PUT ")
            && request
                .split(|b| *b == b'\n')
                .next()?
                .windows(9)
                .any(|w| w == b"lock.json");
        let was_cut = if fatal {
            self.cut.swap(true, Ordering::SeqCst)
        } else {
            self.cut.load(Ordering::SeqCst)
        };
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
fn release_through(carries_out: bool, code_of_show: i32) -> Option<serde_json::Value> {
    let store = real_store("STASIS_TEST_S3")?;
    let store = store.replace(
        "/test?",
        &format!("/unknown-{carries_out}-{}?", std::process::id()),
    );
    let session = Session::on(&store);
    let token = session.data(0, &["lease", "acquire", ALICE]);
    let through = Cutter::before(&store, carries_out);
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
