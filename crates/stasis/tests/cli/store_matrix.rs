//! What check reports OK can be restored and saved to, whatever is damaged, in every kind of store; and what cannot be restored
//! is reported.

use crate::repo_world::noise;
use crate::store_kinds::{KINDS, Kind, Stored, flip};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// A store with two snapshots, and where its things lie.
struct Victim {
    stored: Stored,
    root: PathBuf,
    ids: [String; 2],
}

impl Victim {
    fn new(kind: Kind) -> Self {
        let stored = Stored::new(kind);
        stored.write("one", &noise(1, 40_000));
        stored.write("deep/er/two", b"two");
        let sparse = fs::File::create(stored.tree().join("sparse")).unwrap();
        sparse.set_len(9 << 20).unwrap();
        let first = stored.saved();
        stored.write("one", &noise(2, 40_000));
        let second = stored.saved();
        let root = stored.root();
        Self {
            stored,
            root,
            ids: [first, second],
        }
    }

    fn manifest(&self) -> PathBuf {
        let (all, id) = (self.root.join("snapshots"), &self.ids[1]);
        let found = crate::repo_world::names(&all).into_iter();
        let mut found = found.filter(|name| name.to_str().unwrap().contains(id.as_str()));
        let path = all.join(found.next().unwrap());
        if path.is_dir() {
            path.join("metadata.json")
        } else {
            path
        }
    }

    /// Changes the newest snapshot's metadata as somebody would who can also write the index.
    fn rewrite(&self, change: impl Fn(&mut Value)) {
        let mut manifest: Value =
            serde_json::from_slice(&fs::read(self.manifest()).unwrap()).unwrap();
        change(&mut manifest);
        let bytes = serde_json::to_vec_pretty(&manifest).unwrap();
        let digest = json!(stasis_engine::model::digest::ManifestDigest::of(&bytes));
        fs::write(self.manifest(), bytes).unwrap();
        let index = self.root.join("index.json");
        let mut text: Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
        for one in text["snapshots"].as_array_mut().unwrap() {
            if one["id"] == self.ids[1].as_str() {
                one["manifest_sha256"] = digest.clone();
            }
        }
        fs::write(index, serde_json::to_vec(&text).unwrap()).unwrap();
    }

    /// The file entry of the newest snapshot whose path ends so.
    fn rewrite_entry(&self, name: &str, change: impl Fn(&mut Value)) {
        self.rewrite(|manifest| {
            let files = manifest["files"].as_array_mut().unwrap();
            let is_it = |one: &&mut Value| one["path"].as_str().unwrap().ends_with(name);
            change(files.iter_mut().find(is_it).unwrap());
        });
    }
}

fn remove(path: &Path) {
    fs::remove_file(path).unwrap();
}

fn cut(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

fn empty(path: &Path) {
    fs::write(path, "").unwrap();
}

/// A name for people, what is done, and whether check finds it.
type Case = (&'static str, fn(&Victim), bool);

const CASES: &[Case] = &[
    ("nothing", |_| {}, false),
    ("chunk flipped", |v| flip(&v.stored.chunks()[0]), true),
    ("chunk removed", |v| remove(&v.stored.chunks()[0]), true),
    ("chunk cut", |v| cut(&v.stored.chunks()[0]), true),
    ("chunk emptied", |v| empty(&v.stored.chunks()[0]), true),
    ("metadata flipped", |v| flip(&v.manifest()), true),
    ("metadata removed", |v| remove(&v.manifest()), true),
    ("metadata cut", |v| cut(&v.manifest()), true),
    (
        "index removed",
        |v| remove(&v.root.join("index.json")),
        true,
    ),
    ("index cut", |v| cut(&v.root.join("index.json")), true),
    (
        "repo.json removed",
        |v| remove(&v.stored.pool().join("repo.json")),
        true,
    ),
    (
        "repo.json cut",
        |v| cut(&v.stored.pool().join("repo.json")),
        true,
    ),
    (
        "garbage in gc.json",
        |v| fs::write(v.stored.pool().join("gc.json"), "garbage").unwrap(),
        true,
    ),
    (
        "another stateDigest",
        |v| {
            v.rewrite(|manifest| {
                let digest = manifest["stateDigest"].as_str().unwrap();
                let (last, other) = (digest.len() - 1, digest.ends_with('0'));
                let end = if other { "1" } else { "0" };
                manifest["stateDigest"] = json!(format!("{}{end}", &digest[..last]));
            });
        },
        true,
    ),
    (
        "a hole of 2^62",
        |v| {
            v.rewrite_entry("sparse", |entry| {
                entry["size"] = json!(1_u64 << 62);
                entry["chunks"] = json!([{ "length": 1_u64 << 62 }]);
            });
        },
        true,
    ),
    (
        "a directory that is a file",
        |v| {
            v.rewrite_entry("er", |entry| {
                entry["kind"] = json!("symlink");
                entry["target"] = json!("elsewhere");
            });
        },
        true,
    ),
    (
        "a link to nothing",
        |v| {
            v.rewrite_entry("two", |entry| {
                let object = entry.as_object_mut().unwrap();
                for key in ["size", "blake3", "chunks"] {
                    object.remove(key);
                }
                object.insert("kind".to_owned(), json!("hard-link"));
                object.insert("target".to_owned(), json!("nowhere"));
            });
        },
        true,
    ),
    (
        "a pattern that is none",
        |v| v.rewrite(|manifest| manifest["excludes"] = json!(["["])),
        true,
    ),
    (
        "a newest snapshot that is not listed",
        |v| {
            let index = v.root.join("index.json");
            let text = fs::read_to_string(&index).unwrap();
            let active = format!("\"active\": \"{}\"", v.ids[1]);
            assert!(text.contains(&active));
            let other = active.replace(&v.ids[1][..4], "0000");
            fs::write(index, text.replacen(&active, &other, 1)).unwrap();
        },
        true,
    ),
];

#[test]
fn check_and_restore_and_save_agree() {
    for kind in KINDS {
        for (name, damage, is_found) in CASES {
            let victim = Victim::new(kind);
            damage(&victim);

            let checked = victim.stored.check();
            let restored = victim
                .ids
                .each_ref()
                .map(|id| victim.stored.try_restore(id).0);
            victim.stored.write("three", b"three");
            let saved = victim.stored.try_save(&[]);

            let what = format!("{kind:?}, {name}: {}", checked.out);
            assert_eq!(checked.code, if *is_found { 9 } else { 0 }, "{what}");
            for one in restored.iter().chain([&saved]) {
                assert!([0, 9].contains(&one.code), "{what}\n{}", one.out);
                assert!(checked.code == 9 || one.code == 0, "{what}\n{}", one.out);
            }
        }
    }
}

#[test]
fn a_healthy_snapshot_of_a_project_is_not_taken_for_damaged() {
    for kind in [Kind::Everyday, Kind::Project] {
        let victim = Victim::new(kind);
        let root = victim.root.display().to_string();
        let mut words = vec![
            "--json",
            "repo",
            "forget",
            &victim.ids[1],
            "--damaged",
            "--confirm",
        ];
        if kind == Kind::Project {
            words.extend(["--repo", &root]);
        }

        let checked = victim.stored.check();
        let forgotten = victim.stored.session.run(&words);

        assert_eq!(checked.code, 0, "{}", checked.out);
        let checked: Value = serde_json::from_str(&checked.out).unwrap();
        assert_eq!(checked["snapshots"], 2, "{checked}");
        assert_eq!(forgotten.code, 2, "{}", forgotten.out);
        victim.stored.restored(&victim.ids[1]);
    }
}

#[test]
fn forgetting_is_advised_only_for_what_is_proven_to_be_lost_and_then_works() {
    for kind in KINDS {
        let victim = Victim::new(kind);
        let root = victim.root.display().to_string();
        let at = |words: &[&str]| {
            let mut all = words.to_vec();
            if kind == Kind::Project {
                all.extend(["--repo", &root]);
            }
            victim.stored.session.run(&all)
        };
        flip(&victim.stored.chunks()[0]);

        let of_a_chunk = at(&["repo", "check", "--read-data"]);
        flip(&victim.manifest());
        let of_metadata = at(&["repo", "check"]);
        let forgotten = at(&["repo", "forget", &victim.ids[1], "--damaged", "--confirm"]);

        assert_eq!(of_a_chunk.code, 9, "{}", of_a_chunk.out);
        assert!(!of_a_chunk.out.contains("forget"), "{}", of_a_chunk.out);
        assert!(of_a_chunk.out.contains("marked"), "{}", of_a_chunk.out);
        let command = format!("repo forget {} --damaged", victim.ids[1]);
        assert!(of_metadata.out.contains(&command), "{}", of_metadata.out);
        assert_eq!(forgotten.code, 0, "{}{}", forgotten.out, forgotten.err);
        // The tree of the second snapshot is still there: saved again, with what was damaged.
        let again = victim.stored.saved();
        victim.stored.restored(&again);
    }
}

#[test]
fn a_store_that_lost_its_index_lists_nothing_and_deletes_nothing() {
    let victim = Victim::new(Kind::Repository);
    let chunks = victim.stored.chunks();
    remove(&victim.root.join("index.json"));
    let session = &victim.stored.session;

    let said = ["snapshots", "gc", "stats"].map(|verb| session.run(&["repo", verb]));
    let saved = victim.stored.try_save(&[]);

    for one in said.iter().chain([&saved]) {
        assert_eq!(one.code, 9, "{}{}", one.out, one.err);
    }
    assert_eq!(victim.stored.chunks(), chunks);
}
