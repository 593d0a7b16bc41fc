//! Every document of a store of directories, damaged in every way: the right tree or an error, `check` sees what cannot be restored, gc
//! takes nothing that could be, and `repair` makes anew what can be made anew.
//!
//! Not here: lists of references beside a manifest (`save/tests/encrypted.rs` of the engine), provisional manifests
//! (`save/tests/provisional.rs`); documents of profiles, sessions, containers and copies.
//!
//! Documents are found by walking the store; one of a kind that this matrix does not know fails it. Bits are
//! flipped at some places of each document. Every run tries one case in six; `STASIS_CRASH_POINTS=all` tries all of them, and more places.

use crate::crash_points::{all_are_tried, is_tried};
use crate::encrypted::{Keys, encrypted, files};
use crate::repo_crash::copy as copy_aside;
use crate::repo_world::{Shown, noise, show};
use crate::session::Said;
use crate::store_kinds::{Kind, Stored};
use serde_json::Value;
use stasis_engine::model::chunk_name::{ChunkName, from_rows, to_rows};
use stasis_engine::model::digest::CondemnedDigest;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What a document of the store is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Document {
    Index,
    Manifest,
    Repo,
    Gc,
    Condemned,
    Key,
    Chunk,
    Quarantine,
    Event,
    Policy,
    /// What this host has seen of the store.
    Seen,
}

impl Document {
    fn of(key: &str) -> Option<Self> {
        let parts: Vec<&str> = key.split('/').collect();
        Some(match parts[..] {
            ["subjects", _, "dir", _, "index.json"] => Self::Index,
            ["subjects", _, "dir", _, "snapshots", _] => Self::Manifest,
            ["pools", _, "repo.json"] => Self::Repo,
            ["pools", _, "gc.json"] => Self::Gc,
            ["pools", _, "key.json"] => Self::Key,
            ["pools", _, "chunks", ..] => Self::Chunk,
            ["pools", _, "quarantine", _] => Self::Quarantine,
            ["pools", _, ..] if key.contains("condemned") => Self::Condemned,
            ["events", ..] => Self::Event,
            ["tenants", _, "policy.json"] => Self::Policy,
            // The workshop of a directory store.
            [".stasis", ..] => return None,
            _ => panic!("`{key}` is a document that nobody damages here"),
        })
    }

    /// Whether `repair` makes it anew when it cannot be read, or makes anew what leads to it.
    fn is_made_anew(self) -> bool {
        matches!(self, Self::Index | Self::Repo | Self::Gc | Self::Condemned)
    }

    /// Whether a document that is not what it was counts as one that cannot be read, however little was changed.
    fn is_named_by_digest(self) -> bool {
        self == Self::Condemned
    }

    /// Whether everything can be restored without it.
    fn is_beside(self) -> bool {
        matches!(
            self,
            Self::Quarantine | Self::Event | Self::Policy | Self::Seen
        )
    }
}

/// What is done to a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Damage {
    /// The bit at so many thirty-seconds of its length.
    Flip(usize),
    /// What makes no JSON and no chunk of it.
    FlipFirst,
    Cut,
    Empty,
    Delete,
    /// What lay there earlier comes back.
    Replay,
}

fn damages() -> Vec<Damage> {
    let places: Vec<usize> = if all_are_tried() {
        (1..=32).collect()
    } else {
        vec![5, 14, 23, 32]
    };
    let flips = places.into_iter().map(Damage::Flip);
    let others = [
        Damage::FlipFirst,
        Damage::Cut,
        Damage::Empty,
        Damage::Delete,
        Damage::Replay,
    ];
    flips.chain(others).collect()
}

impl Damage {
    /// Does it to a file; says whether there was anything to do.
    fn apply(self, path: &Path, earlier: &Path) -> bool {
        let mut bytes = fs::read(path).unwrap();
        let last = bytes.len().saturating_sub(1);
        match self {
            _ if bytes.is_empty() && self != Self::Delete => return false,
            Self::Flip(place) => bytes[last * place / 32] ^= 1,
            Self::FlipFirst => bytes[0] ^= 1,
            Self::Cut => bytes.truncate(last / 2),
            Self::Empty => bytes.clear(),
            Self::Delete => {
                fs::remove_file(path).unwrap();
                return true;
            }
            // Nothing is called so that lay there earlier: the worst that could be believed is a list of what is needed.
            Self::Replay if path.display().to_string().contains("condemned") => {
                bytes = to_rows(&needed_chunks(path));
            }
            Self::Replay => match fs::read(earlier) {
                Ok(old) if old != bytes => bytes = old,
                _ => return false,
            },
        }
        fs::write(path, bytes).unwrap();
        true
    }

    /// Whether nothing can be read of a document afterwards.
    fn is_total(self) -> bool {
        matches!(
            self,
            Self::FlipFirst | Self::Cut | Self::Empty | Self::Delete
        )
    }
}

/// Whether a command did what it should, or refused: for want of the key, because of damage, or, where that may be so, because what it
/// read may be another build's.
fn is_proper(said: &Said, may_be_of_another_build: bool) -> bool {
    matches!(said.code, 0 | 8 | 9) || (said.code == 11 && may_be_of_another_build)
}

/// The names of all chunks in a directory of them.
fn chunk_names(chunks: &Path) -> BTreeSet<ChunkName> {
    let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().parse().unwrap();
    files(chunks).into_iter().map(name).collect()
}

/// The chunks of the pool that a condemned list belongs to, which it does not name.
fn needed_chunks(list: &Path) -> BTreeSet<ChunkName> {
    let pool = list.parent().unwrap().parent().unwrap();
    let condemned = from_rows(&fs::read(list).unwrap()).unwrap();
    let mut all = chunk_names(&pool.join("chunks"));
    all.retain(|name| !condemned.contains(name));
    all
}

/// A store in which snapshots were saved, forgotten and pinned, gc ran and is at it again, and a chunk was damaged once.
struct Scene {
    stored: Stored,
    snapshots: Vec<(String, Shown)>,
}

const KEPT: [&str; 3] = ["data", "cache", "state"];

impl Scene {
    fn new(stored: Stored) -> Self {
        let session = &stored.session;
        let mut snapshots = Vec::new();
        for number in 0..3_u64 {
            stored.write("plan", format!("plan {number}").as_bytes());
            stored.write("large", &noise(number, 60_000));
            stored.write("deep/er/same", &noise(50, 3_000));
            // Something that goes with the first one.
            stored.write("gone", &noise(70 + number.min(1), 1_500_000));
            snapshots.push((stored.saved(), show(&stored.tree())));
            if number == 1 {
                session.data(
                    0,
                    &["tenant", "policy", "set", "default", "lease_ttl_s=240"],
                );
                session.json(0, &["repo", "gc"]);
                copy_aside(session.home(), &KEPT, "", "earlier-");
            }
        }
        // A tombstone in the index, an epoch of gc, an event, and a chunk that was damaged once.
        session.data(
            0,
            &["tenant", "policy", "set", "default", "lease_ttl_s=250"],
        );
        let (first, _) = snapshots.remove(0);
        session.json(0, &["repo", "forget", &first]);
        session.json(0, &["repo", "gc"]);
        session.json(0, &["repo", "pin", &snapshots[0].0]);
        let scene = Self { stored, snapshots };
        let needed = scene.stored.chunks().pop().unwrap();
        scene.condemn();
        scene.quarantine(&needed);
        copy_aside(scene.stored.session.home(), &KEPT, "", "kept-");
        scene
    }

    /// Lets a check enter a chunk in the quarantine, and brings the chunk back.
    fn quarantine(&self, chunk: &Path) {
        let whole = fs::read(chunk).unwrap();
        fs::remove_file(chunk).unwrap();
        assert_eq!(self.stored.check().code, 9);
        fs::write(chunk, whole).unwrap();
    }

    /// Leaves what a gc leaves that was killed before it deleted anything: garbage, a list of it, and a document that names the list.
    fn condemn(&self) {
        let stored = &self.stored;
        let chunks = stored.pool().join("chunks");
        let before = chunk_names(&chunks);
        stored.write("gone", &noise(90, 1_500_000));
        let going = stored.saved();
        stored.write("gone", &noise(71, 1_500_000));
        stored.saved();
        stored.session.json(0, &["repo", "forget", &going]);
        let garbage = &chunk_names(&chunks) - &before;
        copy_aside(stored.session.home(), &KEPT, "", "swept-");
        stored.session.json(0, &["repo", "gc"]);
        let left = chunk_names(&chunks);
        copy_aside(stored.session.home(), &KEPT, "swept-", "");
        let manifest = stored.root().join(format!("snapshots/{going}.json"));
        fs::remove_file(manifest).unwrap();
        let garbage: BTreeSet<ChunkName> = garbage.difference(&left).copied().collect();
        assert!(!garbage.is_empty());
        let place = stored.pool().join("gc.json");
        let mut gc: Value = serde_json::from_slice(&fs::read(&place).unwrap()).unwrap();
        let (list, epoch) = (to_rows(&garbage), gc["epoch"].as_u64().unwrap());
        let digest = CondemnedDigest::of(&list);
        gc["condemned_sha256"] = digest.to_string().into();
        gc["generation"] = (gc["generation"].as_u64().unwrap() + 1).into();
        fs::create_dir_all(stored.pool().join("condemned")).unwrap();
        let name = format!("condemned/{epoch:08x}-{digest}");
        fs::write(stored.pool().join(name), list).unwrap();
        fs::write(place, serde_json::to_vec(&gc).unwrap()).unwrap();
        assert_eq!(stored.check().code, 0);
    }

    fn reset(&self) {
        copy_aside(self.stored.session.home(), &KEPT, "kept-", "");
        self.stored.write("plan", b"plan 2");
    }

    fn at(&self, place: &str) -> PathBuf {
        self.stored.session.home().join(place)
    }

    /// Every document, as a path below the home; of chunks some.
    fn documents(&self) -> Vec<(Document, PathBuf)> {
        let (home, store) = (self.at(""), self.stored.session.object(""));
        let below = |root: &Path, path: &Path| {
            let key = path.strip_prefix(root).unwrap();
            key.to_str().unwrap().to_owned()
        };
        let mut found = Vec::new();
        let mut chunks = 0;
        for path in files(&store) {
            let Some(kind) = Document::of(&below(&store, &path)) else {
                continue;
            };
            chunks += usize::from(kind == Document::Chunk);
            if kind != Document::Chunk || chunks <= 3 {
                found.push((kind, PathBuf::from(below(&home, &path))));
            }
        }
        for path in files(&self.at("state/stasis/seen")) {
            found.push((Document::Seen, PathBuf::from(below(&home, &path))));
        }
        found
    }

    /// What is restored of each snapshot; a tree that comes back is the right one.
    fn restored(&self, context: &str, of_another: bool) -> Vec<bool> {
        let restore = |(id, tree): &(String, Shown)| {
            let (said, restored) = self.stored.try_restore(id);
            let context = format!("{context}\n{}{}", said.out, said.err);
            assert!(restored.as_ref().is_none_or(|now| now == tree), "{context}");
            assert!(is_proper(&said, of_another), "{context}");
            restored.is_some()
        };
        self.snapshots.iter().map(restore).collect()
    }

    fn repair(&self) -> Said {
        let words = ["--json", "repair", "dir:notes", "--confirm"];
        self.stored.session.run(&words)
    }

    /// What must hold after a document was damaged.
    fn judge(&self, kind: Document, damage: Damage, context: &str) {
        // `repo.json` names how chunks are cut and stored: one letter makes such a name that of something else.
        let of_another = kind == Document::Repo && matches!(damage, Damage::Flip(_));
        let before = self.restored(context, of_another);
        let checked = self.stored.check();
        let context = format!("{context}: {before:?}\n{}", checked.out);
        assert!(is_proper(&checked, of_another), "{context}");
        if before.contains(&false) {
            assert_ne!(checked.code, 0, "{context}");
        }
        if kind.is_beside() || kind == Document::Condemned {
            assert!(!before.contains(&false), "{context}");
        }
        let is_total = damage.is_total() || kind.is_named_by_digest();
        if kind.is_named_by_digest() {
            assert_eq!(checked.code, 9, "{context}");
        }

        let swept = self.stored.session.run(&["--json", "repo", "gc"]);
        assert!(is_proper(&swept, of_another), "{context}\n{}", swept.out);
        if kind.is_named_by_digest() {
            assert_eq!(swept.code, 9, "{context}\n{}", swept.out);
        }
        let after = self.restored(&context, of_another);
        let is_worse = before.iter().zip(&after).any(|(was, is)| *was && !*is);
        assert!(!is_worse, "gc took something: {context}\n{}", swept.out);

        let repaired = self.repair();
        // It also stops where a snapshot that the index leads to is gone, until somebody says --leave-out.
        assert!(is_proper(&repaired, true), "{context}\n{}", repaired.out);
        let after = self.restored(&context, of_another);
        if kind.is_made_anew() && is_total {
            assert_eq!(repaired.code, 0, "{context}\n{}", repaired.out);
            assert!(!after.contains(&false), "{context}\n{}", repaired.out);
            let checked = self.stored.check();
            assert_eq!(checked.code, 0, "{context}\n{}", checked.out);
        }

        self.stored.write("plan", b"plan 3");
        let saved = self.stored.try_save(&[]);
        assert!(is_proper(&saved, of_another), "{context}\n{}", saved.out);
        if saved.code == 0 {
            let saved: Value = serde_json::from_str(&saved.out).unwrap();
            let id = saved["snapshot_id"].as_str().unwrap();
            let (said, tree) = self.stored.try_restore(id);
            let is_right = tree.is_some_and(|tree| tree == show(&self.stored.tree()));
            assert!(is_right, "{context}\n{}", said.out);
        }
    }
}

fn every_document_in_every_way(stored: Stored, wanted: &[Document]) {
    let scene = Scene::new(stored);
    let documents = scene.documents();
    let kinds: BTreeSet<Document> = documents.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, wanted.iter().copied().collect());
    let mut cases = 0;
    for (place, (kind, path)) in documents.iter().enumerate() {
        for (way, damage) in damages().into_iter().enumerate() {
            // Another way for the next document, so that each run tries every way.
            if !is_tried(place + way, 6) {
                continue;
            }
            scene.reset();
            let earlier = scene.at(&format!("earlier-{}", path.display()));
            if !damage.apply(&scene.at(path.to_str().unwrap()), &earlier) {
                continue;
            }
            cases += 1;
            let context = format!("{kind:?} {} {damage:?}", path.display());
            scene.judge(*kind, damage, &context);
        }
    }
    println!("{cases} cases of {} documents", documents.len());
    assert!(cases > 5, "{cases}");
}

const PLAIN: [Document; 10] = [
    Document::Index,
    Document::Manifest,
    Document::Repo,
    Document::Gc,
    Document::Condemned,
    Document::Chunk,
    Document::Quarantine,
    Document::Event,
    Document::Policy,
    Document::Seen,
];

#[test]
fn every_document_of_a_plain_store_is_damaged_in_every_way() {
    every_document_in_every_way(Stored::new(Kind::Everyday), &PLAIN);
}

#[test]
fn every_document_of_an_encrypted_store_is_damaged_in_every_way() {
    let keys = Keys::new();
    let kinds = [&PLAIN[..], &[Document::Key]].concat();
    every_document_in_every_way(encrypted(Kind::Everyday, &keys), &kinds);
}
