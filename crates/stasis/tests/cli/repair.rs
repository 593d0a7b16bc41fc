//! Documents that are damaged or lost are made anew from the snapshots; a store that went back is not believed.

use crate::repo_world::show;
use crate::session::{Said, Session, oldest_first};
use crate::store_kinds::{KINDS, Kind, Stored, flip};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Two snapshots of a tree, and what it was at the first.
fn twice(stored: &Stored) -> [String; 2] {
    ["first", "second"].map(|text| {
        stored.write("plan.txt", text.as_bytes());
        stored.write("large", &crate::repo_world::noise(1, 200_000));
        stored.saved()
    })
}

/// How the subject is named to the commands that are about one.
fn subject(stored: &Stored) -> String {
    match stored.kind {
        Kind::Repository => "dir:default".to_owned(),
        Kind::Everyday => stored.tree().display().to_string(),
        Kind::Project => stored.at("shop").display().to_string(),
    }
}

fn repair(stored: &Stored, more: &[&str]) -> Said {
    let subject = subject(stored);
    let mut words = vec!["--json", "repair", &subject];
    words.extend(more);
    stored.session.run(&words)
}

fn json_of(said: &Said) -> Value {
    assert_eq!(said.code, 0, "{}\n{}", said.out, said.err);
    serde_json::from_str(&said.out).unwrap()
}

fn ids(log: &Value, key: &str) -> Vec<String> {
    let rows = log.as_array().unwrap().iter();
    rows.map(|row| row[key].as_str().unwrap().to_owned())
        .collect()
}

fn log(stored: &Stored) -> Vec<String> {
    let shop = stored.at("shop").display().to_string();
    let tree = stored.tree().display().to_string();
    let words = match stored.kind {
        Kind::Repository => vec!["repo", "snapshots"],
        Kind::Everyday => {
            let log = stored.session.json(0, &["log", &tree]);
            return ids(&oldest_first(&log), "snapshot_id");
        }
        Kind::Project => vec!["project", "list", "--project", &shop],
    };
    ids(&stored.session.json(0, &words)["items"], "snapshot_id")
}

#[test]
fn an_index_that_is_damaged_or_lost_is_made_anew_and_everything_goes_on() {
    for kind in KINDS {
        for damage in [flip_first, cut, |path: &Path| {
            fs::remove_file(path).unwrap();
        }] {
            let stored = Stored::new(kind);
            let [first, second] = twice(&stored);
            let was = show(&stored.tree());
            let index = stored.root().join("index.json");
            damage(&index);
            let spoilt = fs::read(&index).ok();

            let stopped = stored.try_save(&[]);
            let planned = stored.session.run(&["repair", &subject(&stored)]);
            let untouched = fs::read(&index).ok();
            let repaired = json_of(&repair(&stored, &["--confirm"]));
            let again = json_of(&repair(&stored, &["--confirm"]));

            assert_eq!(stopped.code, 9, "{kind:?} {}{}", stopped.out, stopped.err);
            assert!(stopped.out.contains("stasis repair"), "{}", stopped.out);
            assert_ne!(planned.code, 0, "{}", planned.out);
            assert!(planned.err.contains("would make"), "{}", planned.err);
            assert_eq!(untouched, spoilt);
            assert_eq!(repaired["snapshots"], json!([first, second]), "{repaired}");
            assert_eq!(repaired["latest"], json!(second));
            assert_eq!(again["documents"], json!([]), "{again}");
            assert_eq!(log(&stored), [first.clone(), second.clone()]);
            assert!(stored.restored(&second) == was, "{kind:?}");
            let kept = repaired["documents"][0]["kept"].as_str();
            let kept = kept.map(|key| fs::read(place(&stored, key)).unwrap());
            assert_eq!(kept, spoilt, "what was there is kept");
            stored.write("plan.txt", b"third");
            let third = stored.save();
            assert_eq!(third["parent_snapshot_id"], json!(second), "{third}");
            let checked = stored.check();
            assert_eq!(checked.code, 0, "{}", checked.out);
        }
    }
}

/// Where a store keeps a key.
fn place(stored: &Stored, key: &str) -> PathBuf {
    match stored.kind {
        Kind::Project => stored.at("shop/state").join(key),
        _ => stored.session.object(key),
    }
}

fn flip_first(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[0] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn cut(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

#[test]
fn what_a_new_index_cannot_prove_it_does_not_lead_to() {
    for kind in KINDS {
        let stored = Stored::new(kind);
        let [first, second] = twice(&stored);
        let metadata = stored.root().join("snapshots");
        let mut manifests: Vec<PathBuf> = fs::read_dir(&metadata)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.display().to_string().contains(&second))
            .map(|path| {
                if path.is_dir() {
                    path.join("metadata.json")
                } else {
                    path
                }
            })
            .collect();
        cut(&manifests.remove(0));
        fs::remove_file(stored.root().join("index.json")).unwrap();

        let refused = repair(&stored, &["--confirm"]);
        let repaired = json_of(&repair(&stored, &["--confirm", "--leave-out"]));

        assert_eq!(refused.code, 11, "{}", refused.out);
        assert!(refused.out.contains("--leave-out"), "{}", refused.out);
        assert_eq!(repaired["snapshots"], json!([first]), "{repaired}");
        assert_eq!(repaired["left_out"][0]["snapshot"], json!(second));
        assert_eq!(log(&stored), [first]);
    }
}

#[test]
fn a_lost_chunk_keeps_its_snapshot_out_of_a_new_index() {
    let stored = Stored::new(Kind::Everyday);
    stored.write("plan.txt", b"first");
    let first = stored.saved();
    let before = stored.chunks();
    stored.write("large", &crate::repo_world::noise(9, 300_000));
    let second = stored.saved();
    let after = stored.chunks();
    let new = after.iter().find(|chunk| !before.contains(chunk)).unwrap();
    fs::remove_file(new).unwrap();
    flip_first(&stored.root().join("index.json"));

    let refused = repair(&stored, &["--confirm"]);
    let repaired = json_of(&repair(&stored, &["--confirm", "--leave-out"]));

    assert_eq!(refused.code, 11, "{}", refused.out);
    assert_eq!(repaired["snapshots"], json!([first]), "{repaired}");
    assert_eq!(repaired["left_out"][0]["snapshot"], json!(second));
}

#[test]
fn what_says_how_a_pool_is_cut_and_swept_is_made_anew_too() {
    for kind in KINDS {
        for name in ["repo.json", "gc.json"] {
            let stored = Stored::new(kind);
            let [first, second] = twice(&stored);
            let document = stored.pool().join(name);
            fs::write(&document, "{\"ver").unwrap();

            let stopped = stored.try_save(&[]);
            let repaired = json_of(&repair(&stored, &["--confirm"]));

            assert_eq!(stopped.code, 9, "{kind:?} {name} {}", stopped.out);
            let made = repaired["documents"].as_array().unwrap();
            assert_eq!(made.len(), 1, "{repaired}");
            assert!(made[0]["document"].as_str().unwrap().ends_with(name));
            stored.write("plan.txt", b"third");
            let third = stored.save();
            assert!(third["bytes_stored"].as_u64().unwrap() < 50_000, "{third}");
            assert_eq!(log(&stored).len(), 3);
            for id in [&first, &second] {
                let _ = stored.restored(id);
            }
            assert_eq!(stored.check().code, 0);
        }
    }
}

#[test]
fn what_can_be_read_is_not_replaced() {
    for kind in KINDS {
        let stored = Stored::new(kind);
        let [_, second] = twice(&stored);
        let index = stored.root().join("index.json");
        let was = fs::read(&index).unwrap();
        let mut later: Value = serde_json::from_slice(&was).unwrap();

        let whole = json_of(&repair(&stored, &["--confirm"]));
        later["version"] = json!(2);
        fs::write(&index, serde_json::to_vec(&later).unwrap()).unwrap();
        let of_another_build = repair(&stored, &["--confirm"]);
        let kept: Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
        fs::write(&index, &was).unwrap();

        assert_eq!(whole["documents"], json!([]), "{whole}");
        assert_eq!(of_another_build.code, 9, "{}", of_another_build.out);
        assert_eq!(kept, later);
        assert_eq!(log(&stored).last(), Some(&second));
    }
}

/// Copies a directory with everything in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn a_store_that_went_back_is_not_believed_until_somebody_accepts_it() {
    for kind in KINDS {
        let stored = Stored::new(kind);
        stored.write("plan.txt", b"first");
        let first = stored.saved();
        let (store, backup) = (stored.root(), stored.at("backup"));
        copy(&store, &backup);
        stored.write("plan.txt", b"second");
        stored.saved();
        fs::remove_dir_all(store.join("snapshots")).unwrap();
        copy(&backup, &store);

        let saved = stored.try_save(&[]);
        let (restored, _) = stored.try_restore(&first);
        let checked = stored.check();
        let swept = stored.session.run(&["repo", "gc", "--keep-last", "1"]);
        let accepted = json_of(&repair(&stored, &["--accept-rollback"]));
        let again = json_of(&repair(&stored, &["--accept-rollback"]));

        for one in [&saved, &restored, &checked] {
            assert_eq!(one.code, 9, "{kind:?} {}\n{}", one.out, one.err);
            assert!(one.out.contains("went back"), "{}", one.out);
        }
        assert!(saved.out.contains("--accept-rollback"), "{}", saved.out);
        assert!(swept.code == 9 || kind == Kind::Project, "{}", swept.err);
        assert_eq!(accepted["subjects"].as_array().unwrap().len(), 1);
        assert_eq!(again["subjects"], json!([]), "it is believed");
        assert_eq!(log(&stored), [first]);
        stored.saved();
        if kind != Kind::Project {
            let events = stored.session.json(0, &["events"]);
            let is_logged = |event: &Value| event["kind"] == "rollback_accepted";
            let mut all = events["items"].as_array().unwrap().iter();
            assert!(all.any(is_logged), "{events}");
        }
    }
}

#[test]
fn a_host_that_saw_nothing_believes_what_it_finds() {
    let stored = Stored::new(Kind::Everyday);
    let [first, second] = twice(&stored);
    let other = Session::on(&format!("file://{}", stored.session.object("").display()));

    let log = oldest_first(&other.json(0, &["log", "dir:notes"]));

    assert_eq!(ids(&log, "snapshot_id"), [first, second]);
}

#[test]
fn every_subject_of_a_store_is_accepted_at_once() {
    let stored = Stored::new(Kind::Everyday);
    stored.saved();
    let letters = stored.at("letters");
    fs::create_dir_all(&letters).unwrap();
    let save = ["save", letters.to_str().unwrap()];
    stored.session.data(0, &save);
    let (store, backup) = (stored.session.object(""), stored.at("backup"));
    copy(&store, &backup);
    for dir in [stored.tree(), letters.clone()] {
        fs::write(dir.join("new"), "new").unwrap();
        stored.session.data(0, &["save", dir.to_str().unwrap()]);
    }
    fs::remove_dir_all(&store).unwrap();
    copy(&backup, &store);
    assert_eq!(stored.session.run(&save).code, 9);
    // Nothing is accepted by somebody who did not say so.
    let confirmed = stored.session.run(&["repair", "--all", "--confirm"]);
    assert_eq!(confirmed.code, 2, "{}", confirmed.err);
    assert_eq!(stored.session.run(&save).code, 9);

    let accepted = stored
        .session
        .json(0, &["repair", "--all", "--accept-rollback"]);

    assert_eq!(
        accepted["subjects"].as_array().unwrap().len(),
        2,
        "{accepted}"
    );
    stored.session.data(0, &save);
    stored.saved();
}

#[test]
fn a_subject_that_a_backup_did_not_have_yet_is_accepted_by_name_and_others_are_left_alone() {
    let stored = Stored::new(Kind::Everyday);
    stored.saved();
    let (store, backup) = (stored.session.object(""), stored.at("backup"));
    copy(&store, &backup);
    let letters = stored.at("letters");
    fs::create_dir_all(&letters).unwrap();
    let save = ["save", letters.to_str().unwrap()];
    stored.session.data(0, &save);
    let listed = stored.session.json(0, &["list"]);
    let mut rows = listed["items"].as_array().unwrap().iter();
    let name = rows.find_map(|row| {
        row["subject"]
            .as_str()
            .filter(|name| name.contains("letters"))
    });
    let name = name.unwrap().to_owned();
    fs::remove_dir_all(&store).unwrap();
    copy(&backup, &store);
    assert_eq!(stored.session.run(&save).code, 9);

    let accept = |subject: &str| {
        let accept = ["repair", subject, "--accept-rollback"];
        stored.session.json(0, &accept)["subjects"].clone()
    };
    let other = accept("dir:notes");
    let gone = accept(&name);
    let again = accept("--all");

    assert_eq!(other, json!([]), "it did not go back");
    assert_eq!(gone, json!([name]));
    assert_eq!(again, json!([]), "it is believed");
    stored.session.data(0, &save);
    stored.saved();
}

#[test]
fn data_of_the_first_edition_is_refused_in_one_sentence() {
    let session = Session::new();
    let dir = session.home().join("notes");
    fs::create_dir_all(&dir).unwrap();
    let old = session.object("projects/default/notes-0123456789ab");
    fs::create_dir_all(&old).unwrap();
    fs::write(old.join("index.json"), "{\"version\": 1, \"subjects\": {}}").unwrap();

    let said = [
        session.run(&["save", dir.to_str().unwrap()]),
        session.run(&["list"]),
        session.run(&["repo", "snapshots"]),
    ];

    for one in said {
        assert_eq!(one.code, 2, "{}\n{}", one.out, one.err);
        assert!(one.err.contains("first edition of Stasis"), "{}", one.err);
        assert!(one.err.contains("--store"), "{}", one.err);
    }
    let stored = Stored::new(Kind::Project);
    twice(&stored);
    let index = stored.root().join("index.json");
    fs::write(&index, "{\"version\": 1, \"subjects\": {}}").unwrap();
    let refused = stored.try_save(&[]);
    assert_eq!(refused.code, 2, "{}", refused.out);
    assert!(refused.out.contains("first edition"), "{}", refused.out);
    flip(&index);
}
