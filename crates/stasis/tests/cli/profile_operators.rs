//! What operators do with the snapshots of profiles.

use crate::session::Session;
use serde_json::{Value, json};
use stasis_engine::model::digest::{ArchiveDigest, ManifestDigest, TreeDigest};
use stasis_engine::model::format::document::{parse, render};
use stasis_engine::model::format::manifest::{CapturedBy, NewProfileManifest, ProfileManifest};
use stasis_engine::model::format::pointer::{Active, Pointer, PointerAct};
use stasis_engine::model::id::{Lineage, OpId};
use stasis_engine::model::time::Timestamp;
use stasis_engine::model::tree::canonical::TreeHasher;
use std::path::Path;

const ALICE: &str = "acme/alice@131";

/// A store in which snapshots appear as a save would leave them.
struct World {
    session: Session,
    made: u64,
    /// Which tree the next archive is said to hold.
    tree: TreeDigest,
}

impl World {
    fn new() -> Self {
        Self {
            session: Session::new(),
            made: 0,
            tree: TreeHasher::default().finish(),
        }
    }

    fn key(subject: &str, name: &str) -> String {
        let place = subject.replace('@', "/");
        format!("snapshots/{place}/{name}")
    }

    fn document<D: stasis_engine::model::format::document::Document>(&self, key: &str) -> D {
        let bytes = std::fs::read(self.session.object(key)).unwrap();
        parse(&bytes).unwrap()
    }

    /// Stores a snapshot that nothing points to.
    fn stray(&mut self, subject: &str, bytes: &[u8]) -> (String, Active) {
        self.made += 1;
        let token = self.session.data(0, &["lease", "acquire", subject]);
        let lineage: Lineage = subject.parse().unwrap();
        let digest = ArchiveDigest::of(bytes);
        let mut manifest = ProfileManifest::new(NewProfileManifest {
            lineage,
            archive_sha256: digest,
            archive_size_bytes: bytes.len() as u64,
            tree_digest: self.tree,
            captured_at: Timestamp::from_millis(1_700_000_000_000 + self.made * 60_000),
            captured_by: CapturedBy {
                host: "modal".parse().unwrap(),
                host_run_id: "fc-01".parse().unwrap(),
                writer_version: "test".parse().unwrap(),
            },
            op_id: OpId::default(),
        });
        let pointer: Pointer = self.document(&Self::key(subject, "latest.json"));
        manifest.predecessor_sha256 = pointer.active_archive();
        manifest.lease_epoch = pointer.fence.epoch;
        let stem = format!("profile-{}", digest.prefix());
        let archive_key = Self::key(subject, &format!("{stem}.tar.zst"));
        let manifest_key = Self::key(subject, &format!("{stem}.manifest.json"));
        let written = render(&manifest);
        std::fs::write(self.session.object(&archive_key), bytes).unwrap();
        std::fs::write(self.session.object(&manifest_key), &written).unwrap();
        self.session
            .data(0, &["lease", "release", subject, "--token", &token]);
        let active = Active {
            archive: digest,
            manifest: ManifestDigest::of(&written),
            archive_key,
            manifest_key,
        };
        (digest.prefix(), active)
    }

    /// Stores a snapshot and publishes it.
    fn snapshot(&mut self, subject: &str, bytes: &[u8]) -> String {
        let (sha, active) = self.stray(subject, bytes);
        let key = Self::key(subject, "latest.json");
        let pointer: Pointer = self.document(&key);
        let now = Timestamp::from_millis(1_700_000_000_000 + self.made * 60_000);
        let mut next = pointer.successor(
            pointer.op_id,
            PointerAct::Publish,
            Some(active.archive),
            now,
        );
        next.point_at(active, now);
        std::fs::write(self.session.object(&key), render(&next)).unwrap();
        sha
    }

    fn run(&self, code: i32, arguments: &[&str]) -> Value {
        self.session.json(code, arguments)
    }

    fn marks(&self, subject: &str, sha: &str) -> Value {
        let list = self.run(0, &["profile", "list", subject]);
        let rows = list["items"].as_array().unwrap().clone();
        let row = rows.iter().find(|row| row["sha256_prefix"] == *sha);
        row.unwrap()["marks"].clone()
    }

    fn archive(&mut self, subject: &str, tree: &Path) -> String {
        let file = self.session.home().join("one.tar.zst");
        let (tree, target) = (tree.to_str().unwrap(), file.to_str().unwrap());
        let made = self.session.json(0, &["archive", "create", tree, target]);
        self.tree = made["tree_digest"].as_str().unwrap().parse().unwrap();
        let bytes = std::fs::read(&file).unwrap();
        self.snapshot(subject, &bytes)
    }
}

#[test]
fn a_list_shows_every_snapshot_in_order_with_its_marks() {
    let mut world = World::new();
    let first = world.snapshot(ALICE, b"first");
    let second = world.snapshot(ALICE, b"second");
    let (stray, _) = world.stray(ALICE, b"stray");
    world.snapshot("acme/bob@132", b"bob");
    world.run(0, &["profile", "pin", "acme/alice", "--sha", &first]);
    let orphan = World::key(ALICE, "profile-0123456789ab.tar.zst");
    std::fs::write(world.session.object(&orphan), b"orphan").unwrap();

    let list = world.run(0, &["profile", "list", "acme/alice"]);
    let profiles = world.run(0, &["profile", "list"]);

    let rows = list["items"].as_array().unwrap();
    let shas: Vec<&Value> = rows.iter().map(|row| &row["sha256_prefix"]).collect();
    assert_eq!(shas, [&json!(first), &json!(second), &json!(stray)]);
    let marks: Vec<&Value> = rows.iter().map(|row| &row["marks"]).collect();
    assert_eq!(
        marks,
        [
            &json!(["pinned"]),
            &json!(["active"]),
            &json!(["unpromoted"])
        ]
    );
    assert_eq!(rows[0]["manifest"]["chrome_major_version"], 131);
    assert_eq!(list["orphans"][0]["key"], orphan);
    assert_eq!(profiles["items"][0]["subject"], format!("profile:{ALICE}"));
    assert_eq!(profiles["items"][0]["snapshots"], 3);
    assert_eq!(profiles["items"][0]["bytes"], 22);
    assert_eq!(profiles["items"][0]["lock"], "free");
    assert_eq!(profiles["items"][1]["subject"], "profile:acme/bob@132");
    let table = world.session.data(0, &["profile", "list", "acme/alice"]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("SHA256"), "{table}");
    assert!(
        lines[1].contains(&first) && lines[1].contains("cold"),
        "{table}"
    );
    assert!(lines[4].starts_with("orphan: "), "{table}");
}

#[test]
fn without_a_major_list_and_show_cover_all_and_acts_name_the_choices() {
    let mut world = World::new();
    world.snapshot(ALICE, b"old chrome");
    let new = world.snapshot("acme/alice@132", b"new chrome");

    let list = world.run(0, &["profile", "list", "acme/alice"]);
    let shown = world.run(0, &["profile", "show", "acme/alice"]);
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    assert_eq!(shown["lineages"].as_array().unwrap().len(), 2);
    for verb in ["rollback", "pin", "unpin", "delete"] {
        let refused = world.run(2, &["profile", verb, "acme/alice", "--sha", &new]);
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("131, 132"), "{message}");
    }
    let unlock = [
        "profile",
        "force-unlock",
        "acme/alice",
        "--reason",
        "x",
        "--confirm",
    ];
    world.run(2, &unlock);
    world.run(2, &["profile", "fork", "acme/alice", "acme/carol"]);
    let missing = world.run(3, &["profile", "show", "acme/alice@133"]);
    let message = missing["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("there are snapshots of Chrome 131, 132"),
        "{message}"
    );
    world.run(3, &["profile", "list", "acme/nobody"]);
    world.run(3, &["profile", "list", "acm/alice"]);
}

#[test]
fn show_prints_the_manifest_and_what_the_pointer_says() {
    let mut world = World::new();
    let first = world.snapshot(ALICE, b"first");
    let second = world.snapshot(ALICE, b"second");
    world
        .session
        .data(0, &["lease", "acquire", ALICE, "--run-id", "run-7"]);

    let active = world.run(0, &["profile", "show", ALICE]);
    let older = world.run(0, &["profile", "show", "acme/alice", "--sha", &first[..6]]);
    let words = world.session.data(0, &["profile", "show", ALICE]);

    let one = &active["lineages"][0];
    assert_eq!(one["snapshot"]["sha256_prefix"], *second);
    assert_eq!(one["pointer"]["active_sha256_prefix"], *second);
    assert_eq!(one["lock"]["holder_run_id"], "run-7");
    assert_eq!(one["lock_state"], "held");
    let manifest = &older["lineages"][0]["snapshot"]["manifest"];
    assert_eq!(manifest["captured_by"]["host"], "modal");
    assert!(
        words.contains("captured by: fc-01 on modal") && words.contains("run-7"),
        "{words}"
    );
    world.run(3, &["profile", "show", ALICE, "--sha", "ffffffffffff"]);
    let none = world
        .session
        .run(&["profile", "show", ALICE, "--sha", "nonsense"]);
    assert_eq!(none.code, 2);
}

#[test]
fn a_rollback_writes_only_when_confirmed_and_throws_the_owner_out() {
    let mut world = World::new();
    let first = world.snapshot(ALICE, b"first");
    world.snapshot(ALICE, b"second");
    let token = world
        .session
        .data(0, &["lease", "acquire", ALICE, "--run-id", "run-7"]);
    let before = std::fs::read(world.session.object(&World::key(ALICE, "latest.json"))).unwrap();

    let planned = world.run(1, &["profile", "rollback", "acme/alice", "--sha", &first]);
    let untouched = std::fs::read(world.session.object(&World::key(ALICE, "latest.json"))).unwrap();
    let words = world
        .session
        .run(&["profile", "rollback", ALICE, "--sha", &first]);
    let rollback = [
        "profile",
        "rollback",
        ALICE,
        "--sha",
        &first,
        "--reason",
        "bad login",
        "--confirm",
    ];
    let done = world.run(0, &rollback);

    assert_eq!(planned["applied"], false);
    assert_eq!(planned["evicts"]["holder_run_id"], "run-7");
    assert_eq!(before, untouched);
    assert!(words.err.contains("say --confirm"), "{}", words.err);
    assert_eq!(done["applied"], true);
    assert_eq!(done["warnings"][0]["code"], "holder_evicted");
    assert_eq!(
        world.marks(ALICE, &first),
        json!(["active", "rolled_back_to"])
    );
    let renewed = world
        .session
        .run(&["lease", "renew", ALICE, "--token", &token]);
    assert_eq!(renewed.code, 5, "{}", renewed.err);
    let events = world.run(0, &["events", "--tenant", "acme"]);
    let rollback = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|event| event["kind"] == "rollback");
    assert_eq!(rollback.unwrap()["details"]["reason"], "bad login");
    let again = world.run(0, &["profile", "rollback", ALICE, "--sha", &first]);
    assert_eq!(again["applied"], false, "it is active already");
}

#[test]
fn an_unpromoted_snapshot_is_adopted_by_a_rollback() {
    let mut world = World::new();
    world.snapshot(ALICE, b"first");
    let (stray, _) = world.stray(ALICE, b"stray");

    world.run(
        0,
        &["profile", "rollback", ALICE, "--sha", &stray, "--confirm"],
    );

    assert_eq!(
        world.marks(ALICE, &stray),
        json!(["active", "rolled_back_to"])
    );
}

#[test]
fn a_rollback_to_what_is_not_whole_is_refused() {
    let mut world = World::new();
    let first = world.snapshot(ALICE, b"first");
    let second = world.snapshot(ALICE, b"second");
    world.snapshot(ALICE, b"third");
    let archive = |sha: &str| World::key(ALICE, &format!("profile-{sha}.tar.zst"));
    std::fs::remove_file(world.session.object(&archive(&first))).unwrap();
    std::fs::write(world.session.object(&archive(&second)), b"sec").unwrap();

    for sha in [&first, &second] {
        world.run(
            9,
            &["profile", "rollback", ALICE, "--sha", sha, "--confirm"],
        );
        world.run(9, &["profile", "pin", ALICE, "--sha", sha]);
    }
    let list = world.run(9, &["profile", "list", ALICE]);

    assert_eq!(list["items"][0]["marks"], json!(["damaged"]));
    assert_eq!(list["items"][0]["damage"], "its archive is missing");
}

#[test]
fn a_delete_refuses_the_active_the_pinned_and_the_last() {
    let mut world = World::new();
    let first = world.snapshot(ALICE, b"first");
    world.run(
        11,
        &["profile", "delete", ALICE, "--sha", &first, "--confirm"],
    );
    let second = world.snapshot(ALICE, b"second");
    let third = world.snapshot(ALICE, b"third");
    world.run(0, &["profile", "pin", ALICE, "--sha", &second]);

    world.run(
        11,
        &["profile", "delete", ALICE, "--sha", &third, "--confirm"],
    );
    world.run(11, &["profile", "delete", ALICE, "--sha", &second]);
    let planned = world.run(1, &["profile", "delete", ALICE, "--sha", &first]);
    world.run(
        0,
        &["profile", "delete", ALICE, "--sha", &first, "--confirm"],
    );

    assert_eq!(planned["applied"], false);
    assert_eq!(world.marks(ALICE, &first), json!(["tombstoned"]));
    world.run(
        3,
        &["profile", "rollback", ALICE, "--sha", &first, "--confirm"],
    );
    world.run(
        3,
        &["profile", "delete", ALICE, "--sha", &first, "--confirm"],
    );
    world.run(0, &["profile", "unpin", ALICE, "--sha", &second]);
    let spelled = [
        "profile-snapshots",
        "delete",
        "acme/alice",
        "--sha",
        &second,
    ];
    world.run(0, &spelled);
    let events = world.run(0, &["events", "--tenant", "acme"]);
    let deletes = events["items"].as_array().unwrap().iter();
    assert_eq!(deletes.filter(|event| event["kind"] == "delete").count(), 2);
}

#[test]
fn gc_takes_what_was_deleted_and_with_a_policy_what_is_old() {
    let mut world = World::new();
    let shas: Vec<String> = [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]
        .iter()
        .map(|bytes| world.snapshot(ALICE, *bytes))
        .collect();
    world.run(
        0,
        &["profile", "delete", ALICE, "--sha", &shas[3], "--confirm"],
    );

    let planned = world.run(0, &["profile", "gc", "--dry-run"]);
    let off = world.run(0, &["profile", "gc", ALICE]);
    world.session.data(
        0,
        &["tenant", "policy", "set", "acme", "retention.enabled=true"],
    );
    world.run(0, &["profile", "pin", ALICE, "--sha", &shas[0]]);
    let on = world.run(0, &["profile", "gc"]);
    let fewer = world.run(0, &["profile", "gc", "--keep-newest", "2"]);

    assert_eq!(
        (&planned["objects_removed"], &off["objects_removed"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(on["objects_removed"], 0, "five newest and a pin: {on:#}");
    assert_eq!(fewer["objects_removed"], 6, "{fewer:#}");
    assert!(fewer["items"][0]["spared"].is_array(), "{fewer:#}");
    let list = world.run(0, &["profile", "list", ALICE]);
    let left: Vec<&Value> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["sha256_prefix"])
        .collect();
    assert_eq!(left, [&json!(shas[0]), &json!(shas[5]), &json!(shas[6])]);
}

#[test]
fn a_damaged_pointer_stops_every_act_and_hides_no_snapshot() {
    let mut world = World::new();
    let first = world.snapshot(ALICE, b"first");
    world.snapshot("acme/bob@131", b"bob");
    let key = world.session.object(&World::key(ALICE, "latest.json"));
    std::fs::write(&key, "{").unwrap();

    let list = world.run(9, &["profile", "list", ALICE]);
    let all = world.run(9, &["profile", "list"]);
    let swept = world.run(9, &["profile", "gc", "--keep-newest", "1"]);

    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(all["items"].as_array().unwrap().len(), 2);
    assert!(swept["items"][0]["failure"].is_string());
    world.run(
        9,
        &["profile", "rollback", ALICE, "--sha", &first, "--confirm"],
    );
    world.run(9, &["profile", "pin", ALICE, "--sha", &first]);
    assert_eq!(std::fs::read(&key).unwrap(), b"{");
}

#[test]
fn the_contracts_own_spelling_works() {
    let mut world = World::new();
    let first = world.snapshot(ALICE, b"first");
    world.snapshot(ALICE, b"second");
    world
        .session
        .data(0, &["lease", "acquire", ALICE, "--run-id", "run-7"]);
    let alice = "acme/alice";

    world.run(0, &["profile-snapshots", "list", alice]);
    world.run(0, &["profile-snapshots", "show", alice, "--sha", &first]);
    world.run(
        1,
        &["profile-snapshots", "rollback", alice, "--sha", &first],
    );
    let unlock = [
        "profile-snapshots",
        "force-unlock",
        alice,
        "--reason",
        "host is gone",
    ];
    world.run(2, &unlock);
    let unlocked = world.run(0, &[&unlock[..], &["--confirm"]].concat());
    let reaped = world.run(0, &["profile", "reap"]);

    assert_eq!(unlocked["holder_run_id"], "run-7");
    assert_eq!(reaped["scanned"], 1);
    let lock = world.run(0, &["lease", "show", ALICE]);
    assert_eq!(lock["holder_run_id"], "operator-force");
}

#[test]
fn a_fork_begins_a_new_identity_within_its_tenant() {
    let mut world = World::new();
    let first = world.snapshot(ALICE, b"first");
    let second = world.snapshot(ALICE, b"second");

    let forked = world.run(0, &["profile", "fork", "acme/alice", "acme/carol"]);
    world.run(
        0,
        &["profile", "fork", ALICE, "acme/dave@131", "--sha", &first],
    );

    assert_eq!(forked["subject"], "profile:acme/carol@131");
    let shown = world.run(0, &["profile", "show", "acme/carol"]);
    let one = &shown["lineages"][0];
    assert_eq!(one["snapshot"]["sha256_prefix"], *second);
    assert_eq!(one["snapshot"]["manifest"]["predecessor_sha256"], "");
    assert_eq!(one["lock_state"], "free");
    let notes = one["snapshot"]["manifest"]["notes"].as_str().unwrap();
    assert!(notes.starts_with("forked-from acme/alice@131 "), "{notes}");
    let copy = World::key("acme/carol@131", &format!("profile-{second}.tar.zst"));
    assert_eq!(
        std::fs::read(world.session.object(&copy)).unwrap(),
        b"second"
    );
    assert_eq!(world.marks("acme/dave", &first), json!(["active"]));
    world.run(2, &["profile", "fork", ALICE, "other/alice"]);
    world.run(2, &["profile", "fork", ALICE, "acme/erin@132"]);
    world.run(4, &["profile", "fork", ALICE, "acme/carol"]);
    world.run(4, &["profile", "fork", ALICE, "acme/alice"]);
}

#[test]
fn a_fork_of_bytes_that_are_not_what_they_were_stores_nothing() {
    let mut world = World::new();
    let sha = world.snapshot(ALICE, b"first");
    let archive = World::key(ALICE, &format!("profile-{sha}.tar.zst"));
    std::fs::write(world.session.object(&archive), b"fIrst").unwrap();

    world.run(9, &["profile", "fork", ALICE, "acme/carol"]);

    let place = world.session.object("snapshots/acme/carol/131");
    let names = std::fs::read_dir(place)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    assert!(
        names
            .into_iter()
            .all(|name| !name.to_string_lossy().starts_with("profile-"))
    );
    world.run(3, &["profile", "show", "acme/carol"]);
}

#[test]
fn a_diff_names_files_cookies_and_origins_and_never_a_value() {
    let mut world = World::new();
    let tree = world.session.home().join("tree");
    let profile = tree.join("Default");
    std::fs::create_dir_all(profile.join("IndexedDB/https_old.example_0.indexeddb.leveldb"))
        .unwrap();
    std::fs::write(profile.join("same"), "same").unwrap();
    std::fs::write(profile.join("edited"), "aaaa").unwrap();
    std::fs::write(profile.join("gone"), "gone").unwrap();
    std::fs::write(profile.join("Cookies"), "no database").unwrap();
    let before = world.archive(ALICE, &tree);
    std::fs::remove_file(profile.join("gone")).unwrap();
    std::fs::write(profile.join("edited"), "bbbb").unwrap();
    std::fs::write(profile.join("new"), "new!!").unwrap();
    std::fs::write(profile.join("same"), "same").unwrap();
    std::fs::rename(
        profile.join("IndexedDB/https_old.example_0.indexeddb.leveldb"),
        profile.join("IndexedDB/http_new.example_8080.indexeddb.leveldb"),
    )
    .unwrap();
    world.archive(ALICE, &tree);

    let diff = world.run(0, &["profile", "diff", "acme/alice", &before, "latest"]);
    let words = world
        .session
        .data(0, &["profile", "diff", ALICE, &before, "latest"]);

    let added: Vec<&Value> = diff["files"]["added"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["path"])
        .collect();
    let indexed = "Default/IndexedDB/http_new.example_8080.indexeddb.leveldb";
    assert_eq!(added, [&json!(indexed), &json!("Default/new")]);
    let changed = json!([{ "path": "Default/edited", "before_bytes": 4, "after_bytes": 4 }]);
    assert_eq!(
        diff["items"], changed,
        "a file that was only touched is the same"
    );
    assert_eq!(
        diff["indexed_db"]["added"],
        json!(["http://new.example:8080"])
    );
    assert_eq!(
        diff["indexed_db"]["removed"],
        json!(["https://old.example"])
    );
    let unread = diff["unread"][0].as_str().unwrap();
    assert!(unread.starts_with("Default/Cookies: "), "{unread}");
    assert!(words.contains("- file Default/gone (4 B)"), "{words}");
    let same = world
        .session
        .data(0, &["profile", "diff", ALICE, "latest", "latest"]);
    assert_eq!(same, "no differences");
}
