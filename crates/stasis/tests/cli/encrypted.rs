//! Directories whose pool is encrypted: everything works with the key, and what needs no key works without it.

use crate::repo_world::{names, noise, show};
use crate::session::Session;
use crate::store_kinds::{KINDS, Kind, Stored};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub(crate) const MARKER: &str = "a marker that is nowhere else";

/// A tenant's key that `stasis key init` wrote.
pub(crate) struct Keys {
    place: TempDir,
}

impl Keys {
    pub(crate) fn new() -> Self {
        Self {
            place: tempfile::tempdir().unwrap(),
        }
    }

    /// The file of a key, made when it is first asked for.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        let path = self.place.path().join(name);
        if !path.exists() {
            let made = Session::new().json(0, &["key", "init", path.to_str().unwrap()]);
            assert_eq!(made["key_id"].as_str().unwrap().len(), 16, "{made}");
        }
        path
    }
}

/// A store of one kind, used with the key `mine`.
pub(crate) fn encrypted(kind: Kind, keys: &Keys) -> Stored {
    Stored::with(kind, Session::new().with_key(&keys.file("mine")))
}

/// Runs a command in the same home, with another key or none.
pub(crate) fn by(stored: &Stored, key: Option<&Path>, code: i32, words: &[&str]) -> Value {
    let mut command = stored.session.command(&[&["--json"], words].concat());
    command.env_remove("STASIS_KEY_FILE");
    if let Some(key) = key {
        command.env("STASIS_KEY_FILE", key);
    }
    let output = command.output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(code), "{words:?}\n{out}\n{err}");
    serde_json::from_str(&out).unwrap()
}

/// Every file beneath a directory.
pub(crate) fn files(place: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for name in names(place) {
        let path = place.join(name);
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push(path);
        }
    }
    all
}

pub(crate) fn chunks(stored: &Stored) -> Vec<PathBuf> {
    files(&stored.pool().join("chunks"))
}

fn message(answer: &Value) -> &str {
    answer["error"]["message"].as_str().unwrap()
}

fn fill(stored: &Stored) {
    stored.write("plan-of-the-house.txt", MARKER.as_bytes());
    stored.write("deep/large", &noise(1, 3_000_000));
    for number in 0..40 {
        stored.write(&format!("many/f{number}"), format!("{number}").as_bytes());
    }
}

#[test]
fn everything_that_is_saved_with_a_key_comes_back_with_it_and_the_store_learns_nothing() {
    let keys = Keys::new();
    for kind in KINDS {
        for is_small in [true, false] {
            let stored = encrypted(kind, &keys);
            stored.write("plan-of-the-house.txt", MARKER.as_bytes());
            if !is_small {
                fill(&stored);
            }
            let was = show(&stored.tree());

            let first = stored.save();
            let again = stored.save();
            stored.write("plan-of-the-house.txt", b"changed");
            let second = stored.saved();

            let first_id = crate::repo_world::id(&first);
            assert!(stored.restored(&first_id) == was, "{kind:?}");
            assert!(stored.restored(&second) != was, "{kind:?}");
            assert_eq!(again["chunks_new"], 0, "{kind:?} {again}");
            let pool = fs::read(stored.pool().join("repo.json")).unwrap();
            assert!(String::from_utf8_lossy(&pool).contains("aes-256-gcm"));
            let store = match kind {
                Kind::Project => [
                    stored.root().join("snapshots"),
                    stored.pool().join("chunks"),
                ],
                _ => [
                    stored.session.object("subjects"),
                    stored.session.object("pools"),
                ],
            };
            for path in store.iter().flat_map(|place| files(place)) {
                let bytes = fs::read(&path).unwrap();
                for secret in [MARKER, "plan-of-the-house", "STCK", "stateDigest", "many/f"] {
                    let is_there = bytes
                        .windows(secret.len())
                        .any(|part| part == secret.as_bytes());
                    assert!(!is_there, "{kind:?}: {secret} in {}", path.display());
                }
            }
            let digest = stasis_engine::model::digest::ChunkDigest::of(MARKER.as_bytes());
            let is_named = |path: &PathBuf| path.to_string_lossy().contains(&digest.to_string());
            assert!(!chunks(&stored).iter().any(is_named), "{kind:?}");
        }
    }
}

#[test]
fn what_needs_no_key_works_without_and_what_does_says_which_one() {
    let keys = Keys::new();
    let stored = encrypted(Kind::Everyday, &keys);
    fill(&stored);
    let first = stored.saved();
    stored.write("more", &noise(2, 2_000_000));
    let second = stored.saved();
    let tree = stored.tree().display().to_string();
    let to = stored.at("there").display().to_string();

    let log = by(&stored, None, 0, &["log", &tree]);
    assert_eq!(log["items"].as_array().unwrap().len(), 2, "{log}");
    by(&stored, None, 0, &["list"]);
    by(&stored, None, 0, &["repo", "snapshots"]);
    by(&stored, None, 0, &["repo", "stats"]);
    by(&stored, None, 0, &["repo", "pin", &second]);
    by(&stored, None, 0, &["repo", "unpin", &second]);
    let checked = by(&stored, None, 0, &["repo", "check", "--read-data"]);
    assert_eq!(checked["without_key"], true, "{checked}");
    assert!(checked["chunks"].as_u64().unwrap() > 3, "{checked}");
    let with = by(
        &stored,
        Some(&keys.file("mine")),
        0,
        &["repo", "check", "--read-data"],
    );
    assert_eq!(with["without_key"], false, "{with}");
    assert!(with["chunks_read"].as_u64().unwrap() > 3, "{with}");
    for words in [
        vec!["restore", &tree, &first, "--to", &to],
        vec!["save", &tree],
        vec!["diff", &tree, &first],
        vec!["repo", "ls", &first],
    ] {
        let refused = by(&stored, None, 8, &words);
        assert!(message(&refused).contains("it needs key"), "{refused}");
        let hint = refused["error"]["hint"].as_str().unwrap();
        assert!(
            hint.contains("--key-file") && hint.contains("STASIS_KEY_FILE"),
            "{hint}"
        );
        let wrong = by(&stored, Some(&keys.file("other")), 8, &words);
        assert!(message(&wrong).contains("is wrapped by key"), "{wrong}");
    }
    assert!(!Path::new(&to).exists());

    let before = chunks(&stored).len();
    by(&stored, None, 0, &["repo", "forget", &first]);
    let collected = by(&stored, None, 0, &["repo", "gc"]);
    assert!(chunks(&stored).len() < before, "{collected}");
    let left = show(&stored.tree());
    assert!(stored.restored(&second) == left);
    let check = stored.check();
    assert_eq!(check.code, 0, "{}", check.out);
    stored.write("more", b"after the gc");
    let third = stored.saved();
    assert!(stored.restored(&third) == show(&stored.tree()));

    let subject = names(&stored.session.object("subjects/default/dir")).remove(0);
    let name = subject.into_string().unwrap();
    by(&stored, None, 0, &["repo", "retire", &name, "--confirm"]);
    by(&stored, None, 0, &["repo", "gc"]);
    assert_eq!(chunks(&stored).len(), 0);
}

#[test]
fn entries_are_listed_shown_compared_and_put_back_with_the_key() {
    let keys = Keys::new();
    let stored = encrypted(Kind::Everyday, &keys);
    fill(&stored);
    let first = stored.saved();
    let was = show(&stored.tree());
    let tree = stored.tree().display().to_string();
    stored.write("plan-of-the-house.txt", b"changed");
    let second = stored.saved();

    let listed = stored.session.json(0, &["repo", "ls", &first]);
    let cat = stored
        .session
        .data(0, &["repo", "cat", &first, "plan-of-the-house.txt"]);
    let differs = stored.session.json(0, &["repo", "diff", &first, &second]);
    stored.session.json(0, &["restore", &tree, &first]);

    assert!(
        listed.to_string().contains("plan-of-the-house.txt"),
        "{listed}"
    );
    assert_eq!(cat, MARKER);
    assert!(
        differs.to_string().contains("plan-of-the-house.txt"),
        "{differs}"
    );
    assert!(show(&stored.tree()) == was);
}

#[test]
fn a_pool_stays_what_it_was_born_as_on_every_host() {
    let keys = Keys::new();
    let (key, plain) = (keys.file("mine"), Stored::new(Kind::Everyday));
    plain.write("a", b"plain");
    plain.saved();
    let tree = plain.tree().display().to_string();

    let refused = by(&plain, Some(&key), 8, &["save", &tree]);
    assert!(message(&refused).contains("not encrypted"), "{refused}");
    let hint = refused["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("makes an encrypted store"), "{hint}");
    assert!(!plain.pool().join("key.json").exists());
    plain.write("a", b"still plain");
    plain.saved();

    let stored = encrypted(Kind::Everyday, &keys);
    stored.write("a", b"encrypted");
    let id = stored.saved();
    let store = format!("file://{}", stored.session.object("").display());
    let other = Session::on(&store);
    let dir = other.home().join("dir");
    fs::create_dir(&dir).unwrap();
    let refused = other.json(8, &["save", dir.to_str().unwrap()]);
    assert!(message(&refused).contains("it needs key"), "{refused}");
    let other = Session::on(&store).with_key(&key);
    let to = other.home().join("to");
    other.json(0, &["repo", "restore", &id, to.to_str().unwrap()]);
    assert_eq!(fs::read(to.join("a")).unwrap(), b"encrypted");
}

#[test]
fn a_key_file_that_others_can_read_is_refused_and_none_is_overwritten() {
    let keys = Keys::new();
    let stored = encrypted(Kind::Everyday, &keys);
    stored.write("a", b"bytes");
    let (key, tree) = (keys.file("mine"), stored.tree().display().to_string());
    let text = fs::read_to_string(&key).unwrap();
    assert_eq!(
        fs::metadata(&key).unwrap().permissions().mode() & 0o777,
        0o600
    );

    let twice = Session::new().run(&["key", "init", key.to_str().unwrap()]);
    assert_eq!(twice.code, 2, "{}", twice.err);
    assert_eq!(fs::read_to_string(&key).unwrap(), text);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = stored.session.json(2, &["save", &tree]);

    assert!(message(&refused).contains("others may read"), "{refused}");
    assert!(
        !refused.to_string().contains(text.trim()),
        "no key in an error"
    );
    assert!(!stored.session.object("pools/default/repo.json").exists());
    // What needs no key does not even look at it.
    stored.session.json(0, &["list"]);
}

#[test]
fn what_is_encrypted_is_said_and_a_key_that_is_not_there_is_a_mistake() {
    let keys = Keys::new();
    let stored = encrypted(Kind::Everyday, &keys);
    stored.write("a", b"bytes");
    let tree = stored.tree().display().to_string();

    let saved = stored.session.json(0, &["save", &tree]);
    assert_eq!(saved["encrypted"], true, "{saved}");
    let listed = by(&stored, None, 0, &["list"]);
    assert_eq!(listed["items"][0]["encrypted"], true, "{listed}");
    // Not the exit code of a snapshot that is not there: whether there is one is not known.
    let absent = keys.place.path().join("absent");
    let refused = by(&stored, Some(&absent), 2, &["save", &tree]);
    assert!(message(&refused).contains("absent"), "{refused}");
}

#[test]
fn a_rotated_key_opens_everything_and_the_old_one_nothing() {
    let keys = Keys::new();
    let stored = encrypted(Kind::Everyday, &keys);
    fill(&stored);
    let id = stored.saved();
    let (mine, new) = (keys.file("mine"), keys.file("new"));
    let flag = format!("--new-key-file={}", new.display());
    let chunk_bytes: Vec<Vec<u8>> = chunks(&stored)
        .iter()
        .map(|path| fs::read(path).unwrap())
        .collect();

    by(
        &stored,
        Some(&keys.file("other")),
        8,
        &["key", "rotate", &flag],
    );
    let rotated = by(&stored, Some(&mine), 0, &["key", "rotate", &flag]);
    let again = by(&stored, Some(&mine), 0, &["key", "rotate", &flag]);

    assert_eq!(rotated["items"][0]["subject"], "pools/default", "{rotated}");
    assert_eq!(rotated, again);
    let now: Vec<Vec<u8>> = chunks(&stored)
        .iter()
        .map(|path| fs::read(path).unwrap())
        .collect();
    assert!(now == chunk_bytes, "no chunk was touched");
    let to = stored.at("there").display().to_string();
    by(&stored, Some(&mine), 8, &["repo", "restore", &id, &to]);
    by(&stored, Some(&new), 0, &["repo", "restore", &id, &to]);
    assert!(show(Path::new(&to)) == show(&stored.tree()));
}

#[test]
fn a_tenant_whose_policy_requires_encryption_stores_nothing_plain() {
    let keys = Keys::new();
    let stored = Stored::new(Kind::Everyday);
    stored.write("a", b"bytes");
    let tree = stored.tree().display().to_string();
    let require = [
        "tenant",
        "policy",
        "set",
        "default",
        "require_encryption=true",
    ];
    stored.session.json(0, &require);

    let unborn = stored.session.json(11, &["save", &tree]);
    assert!(!stored.session.object("pools/default/repo.json").exists());
    by(&stored, Some(&keys.file("mine")), 0, &["save", &tree]);

    assert!(message(&unborn).contains("requires encryption"), "{unborn}");
    let plain = Stored::new(Kind::Everyday);
    plain.write("a", b"bytes");
    plain.saved();
    plain.session.json(0, &require);
    plain.write("a", b"more");
    let tree = plain.tree().display().to_string();
    let refused = plain.session.json(11, &["save", &tree]);
    assert!(
        message(&refused).contains("requires encryption"),
        "{refused}"
    );
}

#[test]
fn a_lost_repo_json_is_made_anew_with_the_key_and_never_as_a_plain_one() {
    let keys = Keys::new();
    let stored = encrypted(Kind::Everyday, &keys);
    fill(&stored);
    let id = stored.saved();
    let (repo, key) = (
        stored.pool().join("repo.json"),
        stored.pool().join("key.json"),
    );
    let subject = stored.tree().display().to_string();
    fs::remove_file(&repo).unwrap();

    by(&stored, None, 8, &["repair", &subject, "--confirm"]);
    assert!(!repo.exists());
    let wrapped = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    by(&stored, None, 9, &["repair", &subject, "--confirm"]);
    by(
        &stored,
        Some(&keys.file("mine")),
        9,
        &["repair", &subject, "--confirm"],
    );
    by(&stored, Some(&keys.file("mine")), 9, &["save", &subject]);
    assert!(!repo.exists() && !key.exists(), "no plain pool, no new key");
    fs::write(&key, &wrapped).unwrap();
    by(
        &stored,
        Some(&keys.file("mine")),
        0,
        &["repair", &subject, "--confirm"],
    );

    assert_eq!(fs::read(&key).unwrap(), wrapped);
    assert!(stored.restored(&id) == show(&stored.tree()));
    stored.write("more", b"bytes");
    stored.saved();

    fs::remove_file(stored.root().join("index.json")).unwrap();
    by(&stored, None, 8, &["repair", &subject, "--confirm"]);
    by(
        &stored,
        Some(&keys.file("mine")),
        0,
        &["repair", &subject, "--confirm"],
    );
    assert!(stored.restored(&id) != show(&stored.tree()));
}

#[test]
fn a_copy_has_a_data_key_of_its_own_and_another_tenants_key_where_that_is_asked_for() {
    let keys = Keys::new();
    let stored = encrypted(Kind::Everyday, &keys);
    fill(&stored);
    stored.saved();
    let copy = stored.at("copy").display().to_string();
    let flag = format!("--to-key-file={}", keys.file("new").display());
    let restore = |key: &str, code: i32| {
        let to = stored.at("there").display().to_string();
        let words = ["repo", "restore", "latest", &to, "--repo", &copy];
        by(&stored, Some(&keys.file(key)), code, &words);
        code == 0 && show(Path::new(&to)) == show(&stored.tree())
    };

    by(&stored, None, 8, &["copy", "--all", "--to", &copy]);
    let mine = keys.file("mine");
    by(
        &stored,
        Some(&mine),
        0,
        &["copy", "--all", "--to", &copy, &flag],
    );

    assert!(!restore("mine", 8));
    assert!(restore("new", 0));
}
