//! What a client sees of subjects of every kind without the store: snapshots, files, contents, differences.

use crate::profile::sqlite_in;
use crate::serve::{Answer, Served, token, two_snapshots};
use crate::session::Session;
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;

/// A directory that was saved twice.
fn shop(session: &Session) -> PathBuf {
    let dir = session.home().join("shop");
    fs::create_dir_all(dir.join("src/deep")).unwrap();
    fs::write(dir.join("src/main.rs"), "fn main() {}\n").unwrap();
    fs::write(dir.join("src/deep/er.txt"), "er\n").unwrap();
    fs::write(dir.join("big"), vec![7; 3 << 20]).unwrap();
    sqlite_in(
        &dir.join("shop.db"),
        "create table orders(id); insert into orders values(1);",
    );
    let path = dir.to_str().unwrap();
    session.json(0, &["save", path, "-m", "first"]);
    fs::write(dir.join("src/main.rs"), "fn main() { sell() }\n").unwrap();
    fs::write(dir.join("new"), "new\n").unwrap();
    sqlite_in(&dir.join("shop.db"), "insert into orders values(2);");
    session.json(0, &["save", path, "-m", "second"]);
    dir
}

/// The content of a file, as it comes.
fn content(served: &Served, token: &str, path: &str) -> (u16, Vec<u8>) {
    let mut stream = served.connect();
    // The old version of the protocol ends an answer with the connection.
    let request = format!(
        "GET {path} HTTP/1.0\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n\r\n",
        served.address
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, bytes[end + 4..].to_vec())
}

fn paths(answer: &Answer) -> Vec<&str> {
    let items = answer.body["items"].as_array();
    let items = items.unwrap_or_else(|| panic!("{}", answer.body));
    items
        .iter()
        .map(|one| one["path"].as_str().unwrap())
        .collect()
}

#[test]
fn a_directory_is_looked_into_without_the_store() {
    let session = Session::new();
    let dir = shop(&session);
    let read = token(&session, "default", "read");
    let served = Served::start(&session, &[]);
    let get = |path: &str| served.get(&read, path);
    let listed = get("/v1/subjects?kind=dir");
    let id = listed.body["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(listed.body["items"][0]["subject"], format!("dir:{id}"));
    assert!(!listed.body.to_string().contains(dir.to_str().unwrap()));
    let at = format!("/v1/subjects/dir/{id}");

    let all = get(&format!("{at}/snapshots?limit=1"));
    assert_eq!(all.status, 200, "{}", all.body);
    assert_eq!(all.body["snapshots"], 2);
    assert_eq!(all.body["items"][0]["active"], true);
    let newer = all.body["items"][0]["snapshot"]
        .as_str()
        .unwrap()
        .to_owned();
    let cursor = all.body["next_cursor"].as_str().unwrap();
    let rest = get(&format!("{at}/snapshots?limit=1&cursor={cursor}"));
    let older = rest.body["items"][0]["snapshot"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_ne!(older, newer);
    assert_eq!(rest.body["next_cursor"], Value::Null);
    let shown = get(&format!("{at}/snapshots/latest"));
    assert_eq!(shown.body["snapshot"], newer);
    assert_eq!(shown.body["parent"], older);
    assert_eq!(shown.body["labels"]["message"], "second");
    let subject = get(&at);
    assert_eq!(
        subject.body["latest"][0]["snapshot"], newer,
        "{}",
        subject.body
    );
    assert_eq!(served.stop(), 0);
}

#[test]
fn what_is_in_a_snapshot_is_listed_and_read() {
    let session = Session::new();
    shop(&session);
    let read = token(&session, "default", "read");
    let served = Served::start(&session, &[]);
    let get = |path: &str| served.get(&read, path);
    let id = get("/v1/subjects").body["items"][0]["id"].clone();
    let at = format!("/v1/subjects/dir/{}", id.as_str().unwrap());
    let all = get(&format!("{at}/snapshots"));
    let older = all.body["items"][1]["snapshot"].as_str().unwrap();

    let files = get(&format!("{at}/snapshots/{older}/files"));
    assert_eq!(files.body["snapshot"], *older);
    assert!(paths(&files).contains(&"src") && !paths(&files).contains(&"new"));
    let inner = get(&format!("{at}/snapshots/latest/files?path=src"));
    assert_eq!(paths(&inner), ["src", "src/deep", "src/main.rs"]);
    let deep = get(&format!(
        "{at}/snapshots/latest/files?path=src&recursive=true&limit=3"
    ));
    let next = deep.body["next_cursor"].as_str().unwrap();
    let rest = get(&format!(
        "{at}/snapshots/latest/files?path=src&recursive=true&cursor={next}"
    ));
    assert_eq!(paths(&deep).len() + paths(&rest).len(), 4);
    assert_eq!(
        get(&format!("{at}/snapshots/latest/files?path=none")).status,
        404
    );

    let of = |snapshot: &str, path: &str| {
        content(
            &served,
            &read,
            &format!("{at}/snapshots/{snapshot}/content?path={path}"),
        )
    };
    assert_eq!(of(older, "src/main.rs"), (200, b"fn main() {}\n".to_vec()));
    assert_eq!(of("latest~1", "big"), (200, vec![7; 3 << 20]));
    assert_eq!(of("latest", "none").0, 404);
    assert_eq!(of("latest", "..%2F..%2Fetc%2Fpasswd").0, 400);
}

#[test]
fn what_differs_is_said_by_content_by_table_and_as_text() {
    let session = Session::new();
    shop(&session);
    let read = token(&session, "default", "read");
    let served = Served::start(&session, &[]);
    let id = served.get(&read, "/v1/subjects").body["items"][0]["id"].clone();
    let at = format!("/v1/subjects/dir/{}/diff", id.as_str().unwrap());
    let get = |query: &str| served.get(&read, &format!("{at}?{query}"));

    let diff = get("before=latest~1");
    assert_eq!(diff.status, 200, "{}", diff.body);
    assert!(paths(&diff).contains(&"new") && paths(&diff).contains(&"src/main.rs"));
    assert!(!paths(&diff).contains(&"big"));
    assert_eq!(diff.body["tables"][0]["table"], "orders");
    assert_eq!(diff.body["tables"][0]["after"], 2);
    assert_eq!(diff.body["patch"], Value::Null);
    let text = get("before=latest~1&path=src/main.rs&patch=true");
    assert_eq!(paths(&text), ["src/main.rs"]);
    let patch = text.body["patch"].as_str().unwrap();
    assert!(
        patch.contains("-fn main() {}\n+fn main() { sell() }\n"),
        "{patch}"
    );
    assert_eq!(get("before=latest~1&patch=true").status, 400);
    assert_eq!(get("before=latest~7").status, 404);
    assert_eq!(get("").status, 400);
}

#[test]
fn a_profile_is_looked_into_and_its_cookies_are_named() {
    let session = Session::new();
    let (first, second) = two_snapshots(&session);
    let read = token(&session, "acme", "read");
    let stranger = token(&session, "other", "admin");
    let served = Served::start(&session, &[]);
    let at = "/v1/subjects/profile/alice@131";
    let get = |path: &str| served.get(&read, &format!("{at}{path}"));

    let all = get("/snapshots");
    assert_eq!(all.status, 200, "{}", all.body);
    let row = &all.body["items"][0];
    assert_eq!(
        (&row["snapshot"], &row["active"]),
        (&second.clone().into(), &true.into())
    );
    assert_eq!(row["chrome_major"], 131);
    assert_eq!(all.body["items"][1]["snapshot"], first);
    let shown = get("");
    assert_eq!(
        shown.body["profile"]["lineages"][0]["lock_state"], "free",
        "{}",
        shown.body
    );
    let generation = &shown.body["profile"]["lineages"][0]["pointer"]["generation"];
    assert!(
        shown.head.contains(&format!("etag: \"{generation}\"")),
        "{}",
        shown.head
    );
    assert!(paths(&get("/snapshots/latest/files?recursive=true")).len() > 2);
    let diff = get(&format!("/diff?before={}", &first[..12]));
    assert_eq!(diff.status, 200, "{}", diff.body);
    assert_eq!(diff.body["before"], first);
    assert!(diff.body["cookies"].is_object(), "{}", diff.body);

    // What is another tenant's is not there.
    for path in [
        "",
        "/snapshots",
        "/snapshots/latest",
        "/snapshots/latest/files",
    ] {
        let refused = served.get(&stranger, &format!("{at}{path}"));
        assert_eq!(refused.status, 404, "{path}");
    }
    for none in [
        "/v1/subjects/profile/bob",
        "/v1/subjects/planet/earth",
        "/v1/subjects/session/1",
    ] {
        assert_eq!(served.get(&read, none).status, 404, "{none}");
    }
}
