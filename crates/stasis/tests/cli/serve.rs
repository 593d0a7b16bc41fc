//! `stasis serve`, as a client meets it: a real process, a real socket, and what the command line then sees of it.

use crate::profile::{ALICE, cookies, load, profile, save, sqlite};
use crate::session::{Session, assert_published};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// How long a test waits for an answer that must come.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A service that runs.
pub(crate) struct Served {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Where clients begin.
    pub(crate) url: String,
    /// Kept, so that what it says meets nobody who closed his ears.
    _said: BufReader<ChildStdout>,
}

/// What was answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    /// As it came.
    pub(crate) text: String,
    /// The same, if it is a document.
    pub(crate) body: Value,
}

impl Served {
    /// One that only answers: what it has moves when somebody asks for it.
    pub(crate) fn start(session: &Session, more: &[&str]) -> Self {
        Self::with_jobs(session, &[&["--no-jobs"], more].concat())
    }

    /// One that also does what nobody asked for.
    pub(crate) fn with_jobs(session: &Session, more: &[&str]) -> Self {
        let words = [&["--json", "serve", "--listen", "127.0.0.1:0"], more].concat();
        Self::started(session.command(&words))
    }

    /// The same by a command that prints JSON.
    pub(crate) fn started(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut text = String::new();
        // A document over several lines, and then nothing more.
        while !text.ends_with("\n}\n") {
            assert!(said.read_line(&mut text).unwrap() > 0, "{text}");
        }
        let listening: Value = serde_json::from_str(&text).unwrap();
        assert_published(&listening);
        let address = listening["listen"].as_str().unwrap().parse().unwrap();
        Self {
            child,
            address,
            url: listening["url"].as_str().unwrap().to_owned(),
            _said: said,
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    /// Asks, and reads to the end.
    pub(crate) fn ask(&self, token: &str, line: &str, headers: &str, body: &str) -> Answer {
        let mut stream = self.connect();
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n{headers}Content-Length: {length}\r\n\r\n{body}",
            self.address
        );
        stream.write_all(request.as_bytes()).unwrap();
        answer(stream)
    }

    pub(crate) fn get(&self, token: &str, path: &str) -> Answer {
        self.ask(token, &format!("GET {path}"), "", "")
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end, and waits for that.
    pub(crate) fn stop(self) -> i32 {
        let id = self.child.id().to_string();
        self.end(&id)
    }

    /// The same where another program has started it.
    pub(crate) fn stop_traced(self) -> i32 {
        let id = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        self.end(children.unwrap().trim())
    }

    fn end(mut self, id: &str) -> i32 {
        let pid = Pid::from_raw(id.parse().unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // A test that failed leaves no service behind; one that was stopped is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answer(mut stream: TcpStream) -> Answer {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Answer {
        status: status.unwrap_or_else(|| panic!("{text}")),
        head: head.to_ascii_lowercase(),
        text: body.to_owned(),
        body: serde_json::from_str(body).unwrap_or(Value::Null),
    }
}

/// The last line of what `token create` prints.
pub(crate) fn token(session: &Session, tenant: &str, scope: &str) -> String {
    let words = ["token", "create", "--tenant", tenant, "--scope", scope];
    let said = session.data(0, &words);
    said.lines().last().unwrap().to_owned()
}

/// Two snapshots of a profile; the second one is active.
pub(crate) fn two_snapshots(session: &Session) -> (String, String) {
    let dir = profile(session, "profile");
    let sha = |saved: &Value| saved["sha256"].as_str().unwrap().to_owned();
    let first = sha(&save(session, 0, &dir, &[]));
    sqlite(&dir, "insert into cookies values('two');");
    let second = sha(&save(session, 0, &dir, &[]));
    (first, second)
}

#[test]
fn an_operator_without_the_store_rolls_a_profile_back_and_everybody_sees_it() {
    let session = Session::new();
    let (first, _) = two_snapshots(&session);
    let admin = token(&session, "acme", "admin");
    let served = Served::start(&session, &[]);
    let path = "/v1/profile-snapshots/acme/alice";

    let list = served.get(&admin, path);
    assert_eq!(list.status, 200, "{}", list.body);
    assert_eq!(list.body["items"].as_array().unwrap().len(), 2);
    assert_eq!(
        served
            .get(&admin, &format!("{path}?chrome_major=130"))
            .status,
        404
    );
    let shown = served.get(&admin, &format!("{path}/{}", &first[..12]));
    assert_eq!(shown.status, 200, "{}", shown.body);
    let generation = &shown.body["lineages"][0]["pointer"]["generation"];
    assert!(
        shown.head.contains(&format!("etag: \"{generation}\"")),
        "{}",
        shown.head
    );

    // Without a word to confirm it, nothing is changed; with what somebody else saw, neither.
    let rollback = |headers: &str, body: Value| {
        served.ask(
            &admin,
            &format!("POST {path}/rollback"),
            headers,
            &body.to_string(),
        )
    };
    let wanted = json!({ "sha_prefix": &first[..12], "reason": "logged out" });
    let plan = rollback("", wanted.clone());
    assert_eq!((plan.status, &plan.body["applied"]), (200, &json!(false)));
    let mut confirmed = wanted;
    confirmed["confirm"] = json!(true);
    let old = rollback("If-Match: \"1\"\r\n", confirmed.clone());
    assert_eq!((old.status, &old.body["generation"]), (412, generation));
    let seen = format!("If-Match: \"{generation}\"\r\n");
    let done = rollback(&seen, confirmed.clone());
    assert_eq!(
        (done.status, &done.body["applied"]),
        (200, &json!(true)),
        "{}",
        done.body
    );
    assert_eq!(done.body["to_sha256"], first);

    // The command line, the next run and the log of events see what was done.
    let loaded = session.home().join("loaded");
    load(&session, 0, &loaded, &[]);
    assert_eq!(cookies(&loaded), "one");
    let events = session.json(0, &["events", "--tenant", "acme"]);
    let events = events["items"].as_array().unwrap();
    let act = events.iter().find(|one| one["kind"] == "rollback").unwrap();
    let id = admin.split('_').nth(1).unwrap();
    assert_eq!(act["actor"], format!("token:{id}"));
    assert_eq!(act["details"]["reason"], "logged out");
    assert_eq!(served.stop(), 0);
}

#[test]
fn where_the_active_manifest_is_lost_an_operator_still_rolls_back() {
    let session = Session::new();
    let (first, second) = two_snapshots(&session);
    let write = token(&session, "acme", "write");
    let served = Served::start(&session, &[]);
    let lineage = session.object("snapshots/acme/alice/131");
    let all = std::fs::read_dir(&lineage).unwrap();
    let mut all = all.map(|entry| entry.unwrap().path());
    let is_active = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.ends_with(".manifest.json") && name.contains(&second[..8])
    };
    std::fs::remove_file(all.find(is_active).unwrap()).unwrap();

    let path = "POST /v1/profile-snapshots/acme/alice/rollback";
    let mut body = json!({ "sha_prefix": &first[..12], "reason": "the manifest is gone" });
    let plan = served.ask(&write, path, "", &body.to_string());
    assert_eq!(plan.status, 200, "{}", plan.body);
    let seen = format!("If-Match: \"{}\"\r\n", plan.body["generation"]);
    body["confirm"] = json!(true);
    let done = served.ask(&write, path, &seen, &body.to_string());

    assert_eq!(done.status, 200, "{}", done.body);
    assert_eq!(done.body["to_sha256"], first);
    let loaded = session.home().join("loaded");
    load(&session, 0, &loaded, &[]);
    assert_eq!(cookies(&loaded), "one");
    assert_eq!(served.stop(), 0);
}

#[test]
fn an_operator_deletes_a_snapshot_and_throws_a_dead_holder_out() {
    let session = Session::new();
    let (first, second) = two_snapshots(&session);
    let admin = token(&session, "acme", "admin");
    let served = Served::start(&session, &[]);
    let path = "/v1/profile-snapshots/acme/alice";

    let delete = |sha: &str| served.ask(&admin, &format!("DELETE {path}/{sha}"), "", "");
    let active = delete(&second[..12]);
    assert!((400..500).contains(&active.status), "{}", active.body);
    assert!(
        active.body["detail"].as_str().unwrap().contains("active"),
        "{}",
        active.body
    );
    let gone = delete(&first[..12]);
    assert_eq!(
        (gone.status, &gone.body["applied"]),
        (200, &json!(true)),
        "{}",
        gone.body
    );

    session.data(
        0,
        &["lease", "acquire", "acme/alice@131", "--run-id", "nightly"],
    );
    let unlock = |body: Value| {
        served.ask(
            &admin,
            &format!("POST {path}/force-unlock"),
            "",
            &body.to_string(),
        )
    };
    assert_eq!(unlock(json!({ "confirm": true })).status, 400);
    let unlocked = unlock(json!({ "confirm": true, "reason": "the host is gone" }));
    assert_eq!(unlocked.status, 200, "{}", unlocked.body);
    assert_eq!(unlocked.body["holder_run_id"], "nightly");
    session.data(0, &["lease", "acquire", "acme/alice@131"]);
    assert_eq!(served.stop(), 0);
}

#[test]
fn a_stranger_learns_nothing_and_an_answer_says_nothing_of_the_host() {
    let session = Session::new();
    let (first, _) = two_snapshots(&session);
    let (own, other) = (
        token(&session, "acme", "read"),
        token(&session, "other", "admin"),
    );
    let served = Served::start(&session, &[]);
    let path = format!("/v1/profile-snapshots/acme/alice/{}", &first[..12]);

    assert_eq!(served.get(&own, &path).status, 200);
    let (foreign, nowhere) = (served.get(&other, &path), served.get(&other, "/v1/nowhere"));
    let without_id = |mut one: Answer| {
        one.body["request_id"] = Value::Null;
        (one.status, one.body)
    };
    assert_eq!(without_id(foreign), without_id(nowhere));
    assert_eq!(served.get("stasis_0_0", &path).status, 401);
    let delete = served.ask(&own, &format!("DELETE {path}"), "", "");
    assert_eq!(
        (delete.status, &delete.body["code"]),
        (403, &json!("forbidden"))
    );
    let subjects = served.get(&own, "/v1/subjects");
    let items = subjects.body["items"].as_array().unwrap();
    assert_eq!(items[0]["subject"], format!("profile:{ALICE}@131"));
    assert_eq!(served.get(&other, "/v1/subjects").body["items"], json!([]));

    // What is broken below is told without where it lies.
    let home = session.home().to_str().unwrap();
    let all = session.object("snapshots");
    let aside = session.home().join("aside");
    std::fs::rename(&all, &aside).unwrap();
    std::fs::write(&all, "no directory").unwrap();
    let broken = served.get(&own, &path);
    assert!(broken.status >= 400, "{}", broken.body);
    assert!(!broken.body.to_string().contains(home), "{}", broken.body);
    assert_eq!(served.get(&own, "/healthz").status, 200);
    std::fs::remove_file(&all).unwrap();
    std::fs::rename(&aside, &all).unwrap();
    assert_eq!(served.get(&own, "/readyz").status, 200);
    assert_eq!(served.get(&own, &path).status, 200);

    session.data(0, &["token", "revoke", own.split('_').nth(1).unwrap()]);
    let list = session.json(0, &["token", "list", "--tenant", "acme"]);
    assert_eq!(list["items"][0]["status"], "revoked");
    assert!(!list.to_string().contains(own.rsplit('_').next().unwrap()));
    served.stop();
    let again = Served::start(&session, &[]);
    assert_eq!(again.get(&own, &path).status, 401);
    again.stop();
}

#[test]
fn what_is_hostile_is_refused_within_bounds_and_others_are_answered() {
    let session = Session::new();
    session.data(0, &["tenant", "policy", "set", "acme", "grace_s=60"]);
    let served = Served::start(&session, &["--insecure-loopback"]);

    // Heads that never end, while others ask.
    let mut slow: Vec<TcpStream> = (0..50).map(|_| served.connect()).collect();
    for stream in &mut slow {
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: ")
            .unwrap();
    }
    let health = |head: &str| {
        let mut stream = served.connect();
        stream.write_all(head.as_bytes()).unwrap();
        answer(stream)
    };
    let ours = format!("Host: {}\r\nConnection: close\r\n", served.address);
    let fine = health(&format!("GET /healthz HTTP/1.1\r\n{ours}\r\n"));
    assert_eq!((fine.status, &fine.body["status"]), (200, &json!("ok")));
    // A name that is not ours; a body of a gigabyte; a head of a megabyte.
    let foreign = "GET /v1/events HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_eq!(health(foreign).status, 421);
    let post = "POST /v1/profile-snapshots/acme/alice/rollback HTTP/1.1";
    let mut stream = served.connect();
    let head = format!("{post}\r\n{ours}Content-Length: 1073741824\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let piece = vec![b' '; 1 << 16];
    // It stops reading after 1 MiB; the rest lies in the buffers of two sockets.
    let most = (64 << 20) / piece.len();
    let sent = (0..most).take_while(|_| stream.write_all(&piece).is_ok());
    assert!(sent.count() < most, "64 MiB of it were taken");
    let many = "X: y\r\n".repeat(1000);
    let refused = health(&format!("GET /healthz HTTP/1.1\r\n{ours}{many}\r\n"));
    assert!((400..500).contains(&refused.status), "{}", refused.head);
    // Every one of the slow ones is ended by the service itself.
    for mut stream in slow {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
    }
    assert_eq!(
        health(&format!("GET /readyz HTTP/1.1\r\n{ours}\r\n")).status,
        200
    );
    assert_eq!(served.stop(), 0);
}

#[test]
fn what_cannot_be_served_is_said_at_once() {
    let session = Session::new();
    let code = |words: &[&str]| session.run(words).code;

    assert_eq!(
        code(&["serve", "--listen", "0.0.0.0:0", "--insecure-loopback"]),
        2
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = session.run(&["serve", "--listen", &address]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains(&address), "{}", said.err);
    let mut command: Command = session.command(&["serve"]);
    let output = command.env("STASIS_LISTEN", "here").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("STASIS_LISTEN"));
    let document = session.data(0, &["serve", "--print-openapi"]);
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let expired = [
        "token",
        "create",
        "--tenant",
        "acme",
        "--scope",
        "read",
        "--expires",
        "0s",
    ];
    assert_eq!(code(&expired), 2);
}
