//! What changes something over HTTP: a real service, and what the command line then sees of it.

use crate::profile::{ALICE, cookies, load};
use crate::serve::{Answer, Served, token, two_snapshots};
use crate::session::Session;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};

fn post(served: &Served, token: &str, path: &str, headers: &str, body: &Value) -> Answer {
    let line = format!("POST {path}");
    served.ask(token, &line, headers, &body.to_string())
}

/// `If-Match` with the generation that an answer has as its `ETag`.
fn seen(answer: &Answer) -> String {
    let mut lines = answer.head.lines();
    let tag = lines.find_map(|line| line.strip_prefix("etag: "));
    let tag = tag.unwrap_or_else(|| panic!("{}", answer.head));
    format!("If-Match: {tag}\r\n")
}

/// Follows an operation that was accepted to the end of its stream; how it ended.
fn followed(served: &Served, token: &str, accepted: &Answer) -> Value {
    assert_eq!(accepted.status, 202, "{}", accepted.body);
    let id = accepted.body["operation_id"].as_str().unwrap();
    assert!(
        accepted
            .head
            .contains(&format!("location: /v1/operations/{id}")),
        "{}",
        accepted.head
    );
    let mut stream = served.connect();
    let request = format!(
        "GET /v1/operations/{id}/events HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n",
        served.address
    );
    stream.write_all(request.as_bytes()).unwrap();
    // It ends by itself, because the operation does.
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("content-type: text/event-stream"), "{text}");
    let (_, end) = text
        .rsplit_once("event: end\ndata: ")
        .unwrap_or_else(|| panic!("{text}"));
    let end: Value = serde_json::from_str(end.lines().next().unwrap()).unwrap();
    let shown = served.get(token, &format!("/v1/operations/{id}"));
    assert_eq!(shown.body, end);
    end
}

fn active(session: &Session) -> String {
    let shown = session.json(0, &["profile", "show", ALICE]);
    let sha = &shown["lineages"][0]["pointer"]["active_sha256"];
    sha.as_str()
        .unwrap_or_else(|| panic!("{shown:#}"))
        .to_owned()
}

#[test]
fn a_profile_is_rolled_back_once_by_whoever_says_what_he_saw() {
    let session = Session::new();
    let (first, second) = two_snapshots(&session);
    let write = token(&session, "acme", "write");
    let served = Served::start(&session, &[]);
    let path = "/v1/subjects/profile/alice@131/rollback";
    let wanted = json!({ "snapshot": &first[..12], "reason": "logged out" });
    let mut confirmed = wanted.clone();
    confirmed["confirm"] = json!(true);

    let plan = post(&served, &write, path, "", &wanted);
    assert_eq!(
        (plan.status, &plan.body["applied"]),
        (200, &json!(false)),
        "{}",
        plan.body
    );
    let unseen = post(&served, &write, path, "", &confirmed);
    assert_eq!(
        (unseen.status, &unseen.body["code"]),
        (428, &json!("precondition_required"))
    );
    let old = post(&served, &write, path, "If-Match: \"1\"\r\n", &confirmed);
    assert_eq!(
        (old.status, &old.body["generation"]),
        (412, &plan.body["generation"])
    );
    assert_eq!(active(&session), second);

    // Twice with one key: the pointer moves once, and both get the one answer.
    let headers = format!("{}Idempotency-Key: night-7\r\n", seen(&plan));
    let done = post(&served, &write, path, &headers, &confirmed);
    assert_eq!(
        (done.status, &done.body["applied"]),
        (200, &json!(true)),
        "{}",
        done.body
    );
    let again = post(&served, &write, path, &headers, &confirmed);
    assert_eq!((again.status, &again.body), (200, &done.body));
    assert_eq!(seen(&again), seen(&done));
    let events = session.json(0, &["events", "--tenant", "acme"]);
    let events = events["items"].as_array().unwrap();
    let acts = events.iter().filter(|one| one["kind"] == "rollback");
    assert_eq!(acts.count(), 1);
    let other = json!({ "snapshot": &second[..12], "confirm": true });
    let other = post(&served, &write, path, &headers, &other);
    assert_eq!(other.status, 422, "{}", other.body);
    assert_eq!(active(&session), first);
    let loaded = session.home().join("loaded");
    load(&session, 0, &loaded, &[]);
    assert_eq!(cookies(&loaded), "one");
    assert_eq!(served.stop(), 0);
}

#[test]
fn a_profile_is_pinned_forked_and_freed_of_a_snapshot() {
    let session = Session::new();
    let (first, second) = two_snapshots(&session);
    let admin = token(&session, "acme", "admin");
    let served = Served::start(&session, &[]);
    let subject = "/v1/subjects/profile/alice@131";
    let snapshot = format!("{subject}/snapshots/{}", &first[..12]);
    let delete = |query: &str, headers: &str| {
        served.ask(&admin, &format!("DELETE {snapshot}{query}"), headers, "")
    };

    let pinned = post(&served, &admin, &format!("{snapshot}/pin"), "", &json!({}));
    assert_eq!(pinned.body["pinned"], true, "{}", pinned.body);
    assert_eq!(delete("?confirm=true", &seen(&pinned)).status, 422);
    let unpinned = post(
        &served,
        &admin,
        &format!("{snapshot}/unpin"),
        "",
        &json!({}),
    );
    assert_eq!(unpinned.body["pinned"], false, "{}", unpinned.body);

    let forked = post(
        &served,
        &admin,
        &format!("{subject}/fork"),
        "",
        &json!({ "target": "bob", "snapshot": &first[..12] }),
    );
    let forked = followed(&served, &admin, &forked);
    assert_eq!(forked["state"], "done", "{forked}");
    assert_eq!(forked["answer"]["sha256"], first);
    session.json(0, &["profile", "show", "acme/bob"]);
    let taken = post(
        &served,
        &admin,
        &format!("{subject}/fork"),
        "",
        &json!({ "target": "bob", "snapshot": &first[..12] }),
    );
    let taken = followed(&served, &admin, &taken);
    assert_eq!(taken["problem"]["status"], 409, "{taken}");

    let plan = delete("", "");
    assert_eq!((plan.status, &plan.body["applied"]), (200, &json!(false)));
    assert_eq!(delete("?confirm=true", "").status, 428);
    assert_eq!(delete("?confirm=true", "If-Match: \"1\"\r\n").status, 412);
    let gone = delete("?confirm=true", &seen(&plan));
    assert_eq!(
        (gone.status, &gone.body["applied"]),
        (200, &json!(true)),
        "{}",
        gone.body
    );
    assert_eq!(active(&session), second);

    assert_eq!(served.stop(), 0);
}

#[test]
fn a_lease_is_refused_with_its_holder_who_is_thrown_out_by_whoever_saw_him() {
    let session = Session::new();
    two_snapshots(&session);
    let admin = token(&session, "acme", "admin");
    let served = Served::start(&session, &[]);
    let subject = "/v1/subjects/profile/alice@131";

    let lease = json!({ "id": "alice@131", "run_id": "nightly" });
    let held = post(&served, &admin, "/v1/leases", "", &lease);
    assert_eq!(held.status, 200, "{}", held.body);
    let refused = post(&served, &admin, "/v1/leases", "", &lease);
    assert_eq!(
        (refused.status, &refused.body["holder"]["holder_run_id"]),
        (409, &json!("nightly"))
    );
    let unlock = format!("{subject}/force-unlock");
    let plan = post(&served, &admin, &unlock, "", &json!({}));
    let confirmed = json!({ "confirm": true, "reason": "the host is gone" });
    let done = post(&served, &admin, &unlock, &seen(&plan), &confirmed);
    assert_eq!(
        (done.status, &done.body["applied"]),
        (200, &json!(true)),
        "{}",
        done.body
    );
    session.data(0, &["lease", "acquire", "acme/alice@131"]);
    assert_eq!(served.stop(), 0);
}

#[test]
fn a_snapshot_of_a_directory_is_pinned_and_let_go_in_the_index_that_was_seen() {
    let session = Session::new();
    let notes = session.home().join("notes");
    fs::create_dir(&notes).unwrap();
    let save = |word: &str| {
        fs::write(notes.join("todo"), word).unwrap();
        let saved = session.json(0, &["save", notes.to_str().unwrap()]);
        saved["snapshot_id"].as_str().unwrap().to_owned()
    };
    let (first, second) = (save("one"), save("two"));
    let admin = token(&session, "default", "admin");
    let served = Served::start(&session, &[]);
    let list = served.get(&admin, "/v1/subjects?kind=dir");
    let name = list.body["items"][0]["subject"].as_str().unwrap();
    let subject = format!("/v1/subjects/dir/{}", name.strip_prefix("dir:").unwrap());
    let delete = |id: &str, query: &str, headers: &str| {
        let line = format!("DELETE {subject}/snapshots/{id}{query}");
        served.ask(&admin, &line, headers, "")
    };
    let pin = |what: &str| {
        let path = format!("{subject}/snapshots/{first}/{what}");
        post(&served, &admin, &path, "", &json!({}))
    };

    let plan = delete(&first, "", "");
    assert_eq!(
        (plan.status, &plan.body["applied"]),
        (200, &json!(false)),
        "{}",
        plan.body
    );
    assert_eq!(delete(&first, "?confirm=true", "").status, 428);
    let pinned = pin("pin");
    assert_eq!(pinned.body["pinned"], true, "{}", pinned.body);
    let old = delete(&first, "?confirm=true", &seen(&plan));
    assert_eq!(
        (old.status, &old.body["generation"]),
        (412, &pinned.body["generation"]),
        "{}",
        old.body
    );
    let kept = delete(&first, "?confirm=true", &seen(&pinned));
    assert_eq!(kept.status, 422, "{}", kept.body);
    let unpinned = pin("unpin");
    let gone = delete(&first, "?confirm=true", &seen(&unpinned));
    assert_eq!(
        (gone.status, &gone.body["applied"]),
        (200, &json!(true)),
        "{}",
        gone.body
    );
    assert_eq!(delete(&second, "", "").status, 422);

    let log = session
        .json(0, &["log", notes.to_str().unwrap()])
        .to_string();
    assert!(!log.contains(&first) && log.contains(&second), "{log}");
    assert_eq!(served.stop(), 0);
}

#[test]
fn a_session_of_the_servers_host_sleeps_and_wakes_as_operations() {
    let session = Session::new();
    let workspace = session.home().join("ws");
    fs::create_dir_all(workspace.join("outputs")).unwrap();
    fs::write(workspace.join("outputs/a.txt"), "one").unwrap();
    let dir = workspace.to_str().unwrap();
    session.json(0, &["session", "register", "acme/42", "--dir", dir]);
    let write = token(&session, "acme", "write");
    let words = [
        "token", "create", "--tenant", "acme", "--scope", "write", "--host",
    ];
    let said = session.data(0, &words);
    let host = said.lines().last().unwrap();
    let served = Served::start(&session, &[]);
    let act = |token: &str, what: &str| {
        let path = format!("/v1/sessions/42/{what}");
        post(&served, token, &path, "", &json!({}))
    };

    let beaten = act(&write, "heartbeat");
    assert_eq!(beaten.status, 200, "{}", beaten.body);
    assert_eq!(beaten.body["state"], "running");
    let refused = act(&write, "sleep");
    assert_eq!(refused.status, 403, "{}", refused.body);
    let slept = followed(&served, host, &act(host, "sleep"));
    assert_eq!(slept["answer"]["state"], "sleeping", "{slept}");
    assert_eq!(act(&write, "heartbeat").status, 409);
    fs::remove_dir_all(workspace.join("outputs")).unwrap();
    let woken = followed(&served, host, &act(host, "wake"));

    assert_eq!(woken["answer"]["outcome"], "restored", "{woken}");
    assert!(!woken.to_string().contains(dir), "{woken}");
    let text = fs::read_to_string(workspace.join("outputs/a.txt")).unwrap();
    assert_eq!(text, "one");
    assert_eq!(served.stop(), 0);
}
