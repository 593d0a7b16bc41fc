//! Directories of the server's host over HTTP: saved from beneath a root, and snapshots written to new directories there.

use crate::profile::{cookies, profile, save, sqlite};
use crate::serve::{Answer, Served, token};
use crate::session::Session;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long something may take that must happen.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A host with a root and something beside it.
struct World {
    session: Session,
    token: String,
}

impl World {
    fn new() -> Self {
        let session = Session::new();
        for dir in ["srv/notes", "outside"] {
            fs::create_dir_all(session.home().join(dir)).unwrap();
        }
        let token = host_token(&session, "acme");
        Self { session, token }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.session.home().join(path)
    }

    fn path(&self, path: &str) -> String {
        self.at(path).to_str().unwrap().to_owned()
    }

    fn serve(&self) -> Served {
        Served::start(&self.session, &["--root", &self.path("srv")])
    }

    fn save(&self, served: &Served, name: &str, path: &str) -> Value {
        let body =
            json!({ "path": self.path(path), "message": "by http", "label": { "by": "test" } });
        ask(
            served,
            &self.token,
            &format!("/v1/subjects/dir/{name}/save"),
            &body,
        )
    }

    fn restore(&self, served: &Served, subject: &str, to: &str) -> Value {
        let path = format!("/v1/subjects/{subject}/restore");
        let body = json!({ "to": self.path(to), "confirm": true });
        ask(served, &self.token, &path, &body)
    }
}

fn host_token(session: &Session, tenant: &str) -> String {
    let words = [
        "token", "create", "--tenant", tenant, "--scope", "write", "--host",
    ];
    let said = session.data(0, &words);
    said.lines().last().unwrap().to_owned()
}

fn post(served: &Served, token: &str, path: &str, body: &Value) -> Answer {
    served.ask(token, &format!("POST {path}"), "", &body.to_string())
}

/// How an operation ends that is asked for.
pub(crate) fn ask(served: &Served, token: &str, path: &str, body: &Value) -> Value {
    let accepted = post(served, token, path, body);
    ended(served, token, &accepted)
}

/// How an operation ended that was accepted.
fn ended(served: &Served, token: &str, accepted: &Answer) -> Value {
    assert_eq!(accepted.status, 202, "{}", accepted.body);
    let id = accepted.body["operation_id"].as_str().unwrap();
    let until = Instant::now() + TIMEOUT;
    loop {
        let shown = served.get(token, &format!("/v1/operations/{id}")).body;
        if shown["state"] != "running" {
            return shown;
        }
        assert!(Instant::now() < until, "{shown}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The problem that an operation ended with, without what differs from one to the other.
fn problem(ended: &Value) -> Value {
    assert_eq!(ended["state"], "failed", "{ended}");
    let mut problem = ended["problem"].clone();
    problem["request_id"] = Value::Null;
    problem
}

fn ensure_alike(one: &Path, other: &Path) {
    let same = Command::new("diff").arg("-r").args([one, other]).output();
    let same = same.unwrap();
    assert!(
        same.status.success(),
        "{}",
        String::from_utf8_lossy(&same.stdout)
    );
}

/// The snapshot that an operation saved, in the path of the routes.
fn saved_at(ended: &Value) -> String {
    assert_eq!(ended["state"], "done", "{ended}");
    let answer = &ended["answer"];
    let (subject, id) = (answer["subject"].as_str(), answer["snapshot"].as_str());
    let name = subject.unwrap().strip_prefix("dir:").unwrap();
    format!("dir/{name}/snapshots/{}", id.unwrap())
}

/// Fills the notes; with a copy of what is in them.
fn fill(world: &World) -> PathBuf {
    let (notes, before) = (world.at("srv/notes"), world.at("before"));
    fs::write(notes.join("todo"), "buy milk").unwrap();
    fs::write(notes.join("large"), vec![7; 300_000]).unwrap();
    fs::create_dir(notes.join("old")).unwrap();
    symlink("todo", notes.join("link")).unwrap();
    let mut copy = Command::new("cp");
    let copied = copy.arg("-a").args([&notes, &before]).status();
    assert!(copied.unwrap().success());
    before
}

/// The command line sees the same subject, with what was said of it.
fn ensure_listed(world: &World) {
    let dir = world.path("srv/notes");
    let words = ["project", "--tenant", "acme", "--project", &dir, "list"];
    let log = world.session.json(0, &words);
    assert!(log.to_string().contains("by http"), "{log:#}");
}

#[test]
fn a_directory_is_saved_and_comes_back_beside_itself_byte_for_byte() {
    let world = World::new();
    let notes = world.at("srv/notes");
    let before = fill(&world);
    let served = world.serve();

    let first = world.save(&served, "notes", "srv/notes");
    let snapshot = saved_at(&first);
    fs::write(notes.join("todo"), "buy nothing").unwrap();
    let second = saved_at(&world.save(&served, "notes", "srv/notes"));
    assert_ne!(first["answer"]["published"], json!(false), "{first}");
    assert_eq!(first["answer"]["files"], 2, "{first}");
    assert!(first["progress"].is_object(), "{first}");

    // Without `confirm` it is only said.
    let path = format!("/v1/subjects/{snapshot}/restore");
    let planned = ask(
        &served,
        &world.token,
        &path,
        &json!({ "to": world.path("srv/back") }),
    );
    assert_eq!(planned["answer"]["applied"], false, "{planned}");
    assert!(!world.at("srv/back").exists());
    let back = world.restore(&served, &snapshot, "srv/back");
    assert_eq!(back["answer"]["applied"], true, "{back}");
    assert_eq!(
        (&back["answer"]["files"], &back["answer"]["bytes"]),
        (&json!(2), &json!(300_008))
    );
    ensure_alike(&before, &world.at("srv/back"));
    fs::create_dir(world.at("srv/empty")).unwrap();
    let now = world.restore(&served, &second, "srv/empty");
    assert_eq!(now["state"], "done", "{now}");
    ensure_alike(&notes, &world.at("srv/empty"));

    // What is there now is never replaced, and no answer has a path that the caller did not give.
    let again = world.restore(&served, &snapshot, "srv/back");
    assert_eq!(problem(&again)["code"], "invalid_request", "{again}");
    let over = world.restore(&served, &snapshot, "srv/notes");
    assert_eq!(problem(&over)["code"], "invalid_request", "{over}");
    assert_eq!(
        fs::read_to_string(notes.join("todo")).unwrap(),
        "buy nothing"
    );
    for said in [first, back, again].map(|said| said.to_string()) {
        assert!(!said.contains(&world.path("")), "{said}");
        assert!(!said.contains("/proc"), "{said}");
    }
    ensure_listed(&world);
    assert_eq!(served.stop(), 0);
}

#[test]
fn every_path_that_is_not_beneath_a_root_is_refused_alike() {
    let world = World::new();
    fs::write(world.at("srv/notes/todo"), "one").unwrap();
    fs::write(world.at("outside/secret"), "two").unwrap();
    symlink(world.at("outside"), world.at("srv/out")).unwrap();
    symlink(world.at("outside/nothing"), world.at("srv/dangling")).unwrap();
    let served = world.serve();
    let snapshot = saved_at(&world.save(&served, "notes", "srv/notes"));

    let restored = |to: &str| problem(&world.restore(&served, &snapshot, to));
    let wanted = restored("elsewhere");
    assert_eq!(wanted["code"], "forbidden", "{wanted}");
    for to in [
        "srv",
        "srv/.",
        "srv/../new",
        "srv/notes/../new",
        "srv/out",
        "srv/out/new",
        "srv/out/nothing/new",
        "srv/dangling",
        "outside/new",
        "outside",
        "nothing/new",
    ] {
        assert_eq!(restored(to), wanted, "{to}");
    }
    for path in ["srv", "srv/out", "outside", "nothing", "srv/../outside"] {
        let refused = world.save(&served, "outside", path);
        assert_eq!(problem(&refused), wanted, "{path}");
    }
    let left = fs::read_dir(world.at("outside")).unwrap().count();
    assert_eq!(left, 1);
    assert!(!world.at("new").exists() && !world.at("elsewhere").exists());
    assert_eq!(served.stop(), 0);
}

#[test]
fn only_a_token_of_the_host_and_of_the_tenant_does_it_and_only_with_roots() {
    let world = World::new();
    fs::write(world.at("srv/notes/todo"), "one").unwrap();
    let served = world.serve();
    let snapshot = saved_at(&world.save(&served, "notes", "srv/notes"));
    let path = format!("/v1/subjects/{snapshot}/restore");
    let body = json!({ "to": world.path("srv/back"), "confirm": true });

    let read = [
        "token", "create", "--tenant", "acme", "--scope", "read", "--host",
    ];
    let read = world.session.data(0, &read);
    for weak in [
        &token(&world.session, "acme", "admin"),
        read.lines().last().unwrap(),
    ] {
        let refused = post(&served, weak, &path, &body);
        assert_eq!(
            (refused.status, &refused.body["code"]),
            (403, &json!("forbidden"))
        );
    }
    let other = host_token(&world.session, "other");
    let foreign = ask(&served, &other, &path, &body);
    assert_eq!(problem(&foreign)["code"], "not_found", "{foreign}");
    assert!(!world.at("srv/back").exists());

    // A directory is the subject that it is, and no other one.
    fs::create_dir(world.at("srv/more")).unwrap();
    fs::write(world.at("srv/more/a"), "a").unwrap();
    for (name, dir) in [
        ("more", "srv/notes"),
        ("notes", "srv/more"),
        ("x", "srv/more"),
    ] {
        let refused = world.save(&served, name, dir);
        assert_eq!(
            problem(&refused)["code"],
            "invalid_request",
            "{name} {dir}: {refused}"
        );
    }
    fs::write(world.at("srv/more/stasis.toml"), "id = \"more\"").unwrap();
    let refused = problem(&world.save(&served, "more", "srv/more"));
    assert!(refused.to_string().contains("stasis.toml"), "{refused}");
    let container = "/v1/subjects/container/web/snapshots/latest/restore";
    let refused = problem(&ask(&served, &world.token, container, &body));
    assert!(
        refused.to_string().contains("stasis container restore"),
        "{refused}"
    );
    assert_eq!(served.stop(), 0);

    let served = Served::start(&world.session, &[]);
    let refused = world.restore(&served, &snapshot, "srv/back");
    let refused = problem(&refused);
    assert_eq!(refused["code"], "forbidden");
    assert!(
        refused["detail"].as_str().unwrap().contains("no roots"),
        "{refused}"
    );
    assert_eq!(served.stop(), 0);
}

#[test]
fn a_profile_and_a_session_are_written_to_new_directories() {
    let world = World::new();
    let dir = profile(&world.session, "profile");
    let first = save(&world.session, 0, &dir, &[]);
    sqlite(&dir, "insert into cookies values('two');");
    save(&world.session, 0, &dir, &[]);
    let workspace = world.at("ws");
    fs::create_dir_all(workspace.join("outputs")).unwrap();
    fs::write(workspace.join("outputs/a.txt"), "one").unwrap();
    let register = [
        "session",
        "register",
        "acme/42",
        "--dir",
        workspace.to_str().unwrap(),
    ];
    world.session.json(0, &register);
    world.session.json(0, &["session", "snapshot", "acme/42"]);
    let served = world.serve();

    let sha = &first["sha256"].as_str().unwrap()[..12];
    let older = world.restore(
        &served,
        &format!("profile/alice@131/snapshots/{sha}"),
        "srv/alice",
    );
    assert_eq!(older["answer"]["snapshot"], first["sha256"], "{older}");
    assert_eq!(cookies(&world.at("srv/alice")), "one");
    // Neither one that a browser may have made meanwhile nor anything else is replaced.
    let again = world.restore(&served, "profile/alice@131/snapshots/latest", "srv/alice");
    assert_eq!(problem(&again)["code"], "invalid_request", "{again}");
    assert_eq!(cookies(&world.at("srv/alice")), "one");
    let woken = world.restore(&served, "session/42/snapshots/latest", "srv/session");
    assert_eq!(woken["answer"]["applied"], true, "{woken}");
    let text = fs::read_to_string(world.at("srv/session/outputs/a.txt"));
    assert_eq!(text.unwrap(), "one");
    assert_eq!(served.stop(), 0);
}

#[test]
fn a_server_that_is_killed_leaves_nothing_that_looks_restored() {
    let world = World::new();
    for number in 0..4000 {
        let text = format!("{number} ").repeat(1000);
        fs::write(world.at("srv/notes").join(number.to_string()), text).unwrap();
    }
    let served = world.serve();
    let snapshot = saved_at(&world.save(&served, "notes", "srv/notes"));
    let path = format!("/v1/subjects/{snapshot}/restore");
    let body = json!({ "to": world.path("srv/back"), "confirm": true });

    let accepted = post(&served, &world.token, &path, &body);
    let temporary = || {
        let all = fs::read_dir(world.at("srv")).unwrap();
        let mut names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.find(|name| name.starts_with(".back.stasis-tmp-"))
    };
    let until = Instant::now() + TIMEOUT;
    while temporary().is_none() {
        assert!(Instant::now() < until, "{}", accepted.body);
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(served);

    assert!(!world.at("srv/back").exists());
    assert!(temporary().is_some());
    let served = world.serve();
    let id = accepted.body["operation_id"].as_str().unwrap();
    let shown = served.get(&world.token, &format!("/v1/operations/{id}"));
    assert_ne!(shown.body["state"], "done", "{}", shown.body);
    let restored = world.restore(&served, &snapshot, "srv/back");
    assert_eq!(restored["state"], "done", "{restored}");
    ensure_alike(&world.at("srv/notes"), &world.at("srv/back"));
    assert_eq!(temporary(), None, "what the dead one left is removed");
    assert_eq!(served.stop(), 0);
}

#[test]
fn a_root_that_is_none_ends_the_start() {
    let world = World::new();
    let fails = |root: &str| {
        let said = world
            .session
            .run(&["serve", "--listen", "127.0.0.1:0", "--root", root]);
        assert_ne!(said.code, 0, "{root}");
        said.err
    };

    assert!(fails("srv").contains("absolute"));
    assert!(fails("/").contains("whole host"));
    assert!(fails(&world.path("nothing")).contains("open the root"));
    let own = fails(world.session.home().to_str().unwrap());
    assert!(own.contains("overlap"), "{own}");
}
