//! Repairs that are killed, or told that the disk is full or broken, at every call that changes anything.
//!
//! Whatever happened, what a user types next gives the right tree or an error that names the cause; the repair is run again, and
//! then everything is as if the first one had ended well. The damaged bytes are kept in either case.

use crate::crash_points::{self, failed_at_each_step, killed_at_each_step};
use crate::encrypted::files;
use crate::repo_crash::{Fault, copy as copy_aside};
use crate::repo_world::{Shown, names, noise, show, write};
use crate::session::{Said, Session, oldest_first};
use crate::store_kinds::{Kind, Stored};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What happened to the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hurt {
    LostIndex,
    DamagedIndex,
    /// `repo.json`, `gc.json` and `index.json`.
    EveryDocument,
    /// Nothing is damaged, but everything is as it was before the second snapshot.
    WentBack,
}

/// What makes up a host with its store.
const KEPT: [&str; 3] = ["data", "cache", "state"];

struct Stage {
    stored: Stored,
    hurt: Hurt,
    /// The snapshots that are there in the end, with their trees.
    snapshots: Vec<(String, Shown)>,
    /// What lay in the places of damaged documents.
    spoilt: Vec<Vec<u8>>,
}

fn damage(path: &Path) -> Vec<u8> {
    let mut bytes = fs::read(path).unwrap();
    bytes[0] ^= 1;
    fs::write(path, &bytes).unwrap();
    bytes
}

/// A command that the damage may stop, and then says why and what to do.
fn may_stop(said: &Said, context: &str) {
    let context = format!("{context}\n{}\n{}", said.out, said.err);
    assert!(matches!(said.code, 0 | 9), "{context}");
    if said.code == 9 {
        assert!(said.out.contains("stasis repair"), "{context}");
    }
}

impl Stage {
    fn new(hurt: Hurt) -> Self {
        let stored = Stored::new(Kind::Everyday);
        let home = stored.session.home().to_owned();
        let mut snapshots = Vec::new();
        for (number, text) in ["first", "second"].into_iter().enumerate() {
            stored.write("plan.txt", text.as_bytes());
            stored.write("large", &noise(number as u64, 200_000));
            snapshots.push((stored.saved(), show(&stored.tree())));
            if number == 0 {
                copy_aside(&home, &["data"], "", "earlier-");
            }
        }
        // An epoch of gc, so that the pool has a document that says so.
        stored.session.json(0, &["repo", "gc", "--keep-last", "9"]);
        let (root, pool) = (stored.root(), stored.pool());
        let mut spoilt = Vec::new();
        match hurt {
            Hurt::LostIndex => fs::remove_file(root.join("index.json")).unwrap(),
            Hurt::DamagedIndex => spoilt.push(damage(&root.join("index.json"))),
            Hurt::EveryDocument => {
                fs::write(pool.join("gc.json"), "{\"ver").unwrap();
                spoilt.push(b"{\"ver".to_vec());
                spoilt.push(damage(&pool.join("repo.json")));
                spoilt.push(damage(&root.join("index.json")));
            }
            Hurt::WentBack => {
                copy_aside(&home, &["data"], "earlier-", "");
                snapshots.truncate(1);
            }
        }
        copy_aside(&home, &KEPT, "", "kept-");
        Self {
            stored,
            hurt,
            snapshots,
            spoilt,
        }
    }

    fn ids(&self) -> Vec<&str> {
        self.snapshots.iter().map(|(id, _)| id.as_str()).collect()
    }

    fn words(&self) -> Vec<&'static str> {
        match self.hurt {
            Hurt::WentBack => vec!["--json", "repair", "--all", "--accept-rollback"],
            _ => vec!["--json", "repair", "dir:notes", "--confirm"],
        }
    }

    /// What the command says that it did; nothing, once it was done.
    fn done(&self, said: &Value) -> Vec<Value> {
        let field = match self.hurt {
            Hurt::WentBack => "subjects",
            _ => "documents",
        };
        said[field].as_array().unwrap().clone()
    }

    /// Nothing is left to do, and all is well.
    fn is_done(&self, since: Option<&String>, context: &str) {
        let again = self.stored.session.run(&self.words());
        assert_eq!(again.code, 0, "{context}\n{}", again.out);
        let again = serde_json::from_str(&again.out).unwrap();
        assert_eq!(self.done(&again), [] as [Value; 0], "{context}: {again}");
        self.is_whole(since, context);
    }

    /// The snapshots are those that there were, and one that was saved since, if one was; their trees come back.
    fn is_whole(&self, since: Option<&String>, context: &str) {
        let tree = self.stored.tree().display().to_string();
        let log = oldest_first(&self.stored.session.json(0, &["log", &tree]));
        let rows = log.as_array().unwrap().iter();
        let rows: Vec<&str> = rows
            .map(|row| row["snapshot_id"].as_str().unwrap())
            .collect();
        let mut wanted = self.ids();
        wanted.extend(since.map(String::as_str));
        assert_eq!(rows, wanted, "{context}");
        for (id, shown) in &self.snapshots {
            assert!(self.stored.restored(id) == *shown, "{context}");
        }
        let checked = self.stored.check();
        assert_eq!(checked.code, 0, "{context}\n{}", checked.out);
        for spoilt in &self.spoilt {
            let damaged = self.stored.session.object("damaged");
            let mut all = files(&damaged).into_iter();
            let is_kept = all.any(|path| fs::read(path).unwrap() == *spoilt);
            assert!(is_kept, "what was damaged is kept: {context}");
        }
    }
}

impl crash_points::Stage for Stage {
    fn command(&self) -> Command {
        self.stored.session.command(&self.words())
    }

    fn reset(&self) {
        copy_aside(self.stored.session.home(), &KEPT, "kept-", "");
    }

    fn assert_done(&self) {
        self.is_done(None, "it was done");
    }

    fn judge(&self, context: &str) {
        let (stored, session) = (&self.stored, &self.stored.session);
        let listed = session.run(&["--json", "list"]);
        assert!(matches!(listed.code, 0 | 9), "{context}\n{}", listed.out);
        for (id, shown) in &self.snapshots {
            let (said, restored) = stored.try_restore(id);
            may_stop(&said, context);
            assert!(restored.is_none_or(|now| now == *shown), "{context}");
        }
        // Of an earlier state the newest files are not what was saved last, and saving them is no repair.
        let mut since = None;
        if self.hurt != Hurt::WentBack {
            let saved = stored.try_save(&[]);
            may_stop(&saved, context);
            let saved: Value = serde_json::from_str(&saved.out).unwrap();
            let is_new = saved["published"] == true;
            let id = saved["snapshot_id"].as_str().filter(|_| is_new);
            since = id.map(str::to_owned);
        }
        let checked = stored.check();
        assert!(matches!(checked.code, 0 | 9), "{context}\n{}", checked.out);

        let again = session.run(&self.words());
        assert_eq!(again.code, 0, "{context}\n{}\n{}", again.out, again.err);
        self.is_done(since.as_ref(), context);

        stored.write("plan.txt", b"third");
        let next = stored.save();
        let newest = since.unwrap_or_else(|| self.ids().pop().unwrap().to_owned());
        assert_eq!(next["parent_snapshot_id"], json!(newest), "{context}");
        session.json(0, &["repo", "gc", "--keep-last", "9"]);
        let stats = session.json(0, &["repo", "stats"]);
        assert_eq!(stats["chunks_unused"], 0, "{context}: {stats}");
        assert_eq!(stored.check().code, 0, "{context}");
        let left = names(&session.object(".stasis/tmp"));
        assert!(left.is_empty(), "{context}: {left:?}");
        // The tree is what it was when the damage was done, for the next run.
        stored.write("plan.txt", b"second");
    }
}

#[test]
fn a_repair_of_a_lost_index_that_is_killed_is_run_again() {
    killed_at_each_step(Hurt::LostIndex, || Stage::new(Hurt::LostIndex));
}

#[test]
fn a_repair_of_a_damaged_index_that_is_killed_is_run_again() {
    killed_at_each_step(Hurt::DamagedIndex, || Stage::new(Hurt::DamagedIndex));
}

#[test]
fn a_repair_of_every_document_that_is_killed_is_run_again() {
    killed_at_each_step(Hurt::EveryDocument, || Stage::new(Hurt::EveryDocument));
}

#[test]
fn a_rollback_whose_acceptance_is_killed_is_accepted_again() {
    killed_at_each_step(Hurt::WentBack, || Stage::new(Hurt::WentBack));
}

#[test]
fn a_repair_on_a_full_or_broken_disk_is_run_again() {
    for hurt in [Hurt::DamagedIndex, Hurt::EveryDocument] {
        failed_at_each_step(hurt, Fault::Once("EIO"), || Stage::new(hurt));
        failed_at_each_step(hurt, Fault::FromThenOn("ENOSPC"), || Stage::new(hurt));
    }
}

#[test]
fn a_rollback_is_accepted_on_a_full_or_broken_disk_or_again_later() {
    let hurt = Hurt::WentBack;
    failed_at_each_step(hurt, Fault::Once("EIO"), || Stage::new(hurt));
    failed_at_each_step(hurt, Fault::FromThenOn("ENOSPC"), || Stage::new(hurt));
}

/// A profile whose pointer and lock are damaged.
struct ProfileStage {
    session: Session,
    wanted: Shown,
}

const ALICE: &str = "acme/alice@131";

impl ProfileStage {
    fn new() -> Self {
        let session = Session::new();
        let dir = session.home().join("source");
        write(&dir, "Last Version", b"131.0.6778.85");
        let save = ["profile", "save", ALICE, "--dir", dir.to_str().unwrap()];
        for number in 0..2 {
            write(&dir, "Default/file", &noise(number, 50_000));
            session.json(0, &save);
        }
        let wanted = show(&dir);
        let all = files(&session.object("")).into_iter();
        let documents = all.filter(|path| {
            let name = path.to_str().unwrap();
            name.ends_with("latest.json") || name.ends_with("lock.json")
        });
        let documents: Vec<PathBuf> = documents.collect();
        assert_eq!(documents.len(), 2, "{documents:?}");
        for document in documents {
            fs::write(document, "{\"version\": 1, \"act").unwrap();
        }
        copy_aside(session.home(), &KEPT, "", "kept-");
        Self { session, wanted }
    }

    fn words() -> [&'static str; 3] {
        ["repair", "profile:acme/alice@131", "--confirm"]
    }

    fn try_load(&self) -> (Said, Option<Shown>) {
        let target = self.session.home().join("there");
        let load = ["--json", "profile", "load", ALICE, "--dir"];
        let said = self
            .session
            .run(&[&load[..], &[target.to_str().unwrap()]].concat());
        let is_loaded = said.code == 0 && said.out.contains("\"outcome\": \"success\"");
        let shown = is_loaded.then(|| show(&target));
        let _ = fs::remove_dir_all(&target);
        let _ = fs::remove_file(target.with_extension("stasis.json"));
        (said, shown)
    }
}

impl crash_points::Stage for ProfileStage {
    fn command(&self) -> Command {
        self.session.command(&Self::words())
    }

    fn reset(&self) {
        copy_aside(self.session.home(), &KEPT, "kept-", "");
    }

    fn assert_done(&self) {
        let again = self.session.json(0, &Self::words());
        assert_eq!(again["documents"], json!([]), "{again}");
        let (said, shown) = self.try_load();
        assert!(shown.as_ref() == Some(&self.wanted), "{}", said.out);
    }

    fn judge(&self, context: &str) {
        let (said, shown) = self.try_load();
        // A load that finds no pointer begins afresh, and says why.
        let is_said = said.out.contains("latest.json") || said.out.contains("lock.json");
        assert!(shown.is_some() || is_said, "{context}\n{}", said.out);
        assert!(shown.is_none_or(|now| now == self.wanted), "{context}");
        self.session.json(0, &Self::words());
        self.assert_done();
        let dir = self.session.home().join("source");
        let save = ["profile", "save", ALICE, "--dir", dir.to_str().unwrap()];
        self.session.json(0, &save);
    }
}

#[test]
fn a_repair_of_a_profile_that_is_killed_is_run_again() {
    killed_at_each_step("a profile", ProfileStage::new);
}
