//! `stasis check` of one directory, of its checkpoints, and of the whole store.

use crate::session::Session;
use std::fs;
use std::path::{Path, PathBuf};

/// A directory that was saved, and the id of its snapshot.
fn saved(session: &Session, name: &str) -> (String, String) {
    let dir = session.home().join(name);
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("plan.txt"), format!("the plan of {name}")).unwrap();
    let dir = dir.to_str().unwrap().to_owned();
    let saved = session.json(0, &["save", &dir]);
    (dir, saved["snapshot_id"].as_str().unwrap().to_owned())
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let (dirs, mut all): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
    all.extend(dirs.iter().flat_map(|dir| files(dir)));
    all
}

#[test]
fn a_check_is_of_one_directory_and_of_the_whole_store_when_it_is_asked_for() {
    let session = Session::new();
    let (notes, _) = saved(&session, "notes");
    let (diary, id) = saved(&session, "diary");
    let all = files(&session.object(""));
    let is_manifest = |path: &&PathBuf| path.ends_with(format!("snapshots/{id}.json"));
    let manifest = all.iter().find(is_manifest).unwrap();

    let whole = session.run(&["check", &diary]);
    fs::write(manifest, "{").unwrap();
    let other = session.json(0, &["check", &notes]);
    let damaged = session.json(9, &["check", &diary]);
    let everything = session.json(9, &["check", "--all"]);

    assert_eq!(whole.out, "OK: 1 snapshot, 1 chunk, all present\n");
    assert_eq!(
        (&other["snapshots"], other["damage"].as_array()),
        (&1.into(), Some(&vec![]))
    );
    assert_eq!(
        damaged["damage"][0]["snapshots"][0],
        id.as_str(),
        "{damaged}"
    );
    assert_eq!(
        everything["roots"].as_array().unwrap().len(),
        2,
        "{everything}"
    );
    let refused = session.run(&["check", "--all", &notes]);
    assert_eq!(refused.code, 2, "{}", refused.err);
}

#[test]
fn a_check_reads_every_byte_when_it_is_told_to() {
    let session = Session::new();
    let (notes, _) = saved(&session, "notes");
    let all = files(&session.object(""));
    let is_chunk = |path: &&PathBuf| path.components().any(|part| part.as_os_str() == "chunks");
    let chunk = all.iter().find(is_chunk).unwrap();
    let mut bytes = fs::read(chunk).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(chunk, bytes).unwrap();

    session.data(0, &["check", &notes]);
    session.data(9, &["check", &notes, "--read-data"]);
}

#[test]
fn a_check_of_a_workspace_is_of_its_checkpoints_too() {
    let session = Session::new();
    let (notes, _) = saved(&session, "notes");
    let app = session.home().join("app");
    fs::create_dir(&app).unwrap();
    fs::write(app.join("main.rs"), "fn main() {}").unwrap();
    let app = app.to_str().unwrap();
    let unknown = session.run(&["check", app]);
    for dir in [app, &notes] {
        session.data(0, &["workspace", "init", dir]);
    }

    let unsaved = session.json(0, &["check", app]);
    let both = session.json(0, &["check", &notes]);
    let all = files(&session.home().join("state"));
    let documents = all.iter().filter(|path| path.ends_with("metadata.json"));
    for document in documents {
        fs::write(document, "{").unwrap();
    }

    assert_eq!(unknown.code, 3, "{}", unknown.err);
    assert_eq!(unsaved["workspace"]["checkpoints"], 1, "{unsaved}");
    assert!(unsaved.get("snapshots").is_none(), "{unsaved}");
    assert_eq!(
        (&both["snapshots"], &both["workspace"]["checkpoints"]),
        (&1.into(), &1.into())
    );
    for dir in [app, &notes] {
        let damaged = session.json(9, &["check", dir]);
        let damaged = damaged["workspace"]["damaged"].as_array().unwrap();
        assert_eq!(damaged.len(), 1);
    }
}
