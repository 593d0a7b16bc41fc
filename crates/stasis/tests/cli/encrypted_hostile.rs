//! A store that lies about an encrypted pool: an error each time, and never a wrong tree.

use crate::encrypted::{Keys, by, chunks, encrypted};
use crate::repo_world::noise;
use crate::session::Session;
use crate::store_kinds::{Kind, Stored};
use serde_json::{Value, json};
use stasis_engine::model::digest::{ManifestDigest, ReferencesDigest};
use std::fs;
use std::path::{Path, PathBuf};

/// An encrypted store with one snapshot of a few files.
fn saved(keys: &Keys) -> (Stored, String) {
    let stored = encrypted(Kind::Everyday, keys);
    stored.write("small", b"a few bytes");
    stored.write("large", &noise(3, 2_500_000));
    let id = stored.saved();
    (stored, id)
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn manifest(stored: &Stored, id: &str) -> PathBuf {
    stored.root().join("snapshots").join(format!("{id}.json"))
}

/// Puts a manifest in the place of a genuine one, and lets the index lead to it.
fn replace(stored: &Stored, id: &str, bytes: &[u8]) {
    let index = stored.root().join("index.json");
    let mut tree = read(&index);
    for row in tree["snapshots"].as_array_mut().unwrap() {
        if row["id"] == json!(id) {
            row["manifest_sha256"] = json!(ManifestDigest::of(bytes).to_string());
        }
    }
    fs::write(manifest(stored, id), bytes).unwrap();
    fs::write(&index, serde_json::to_vec_pretty(&tree).unwrap()).unwrap();
}

/// Nothing of the snapshot is restored, listed or checked as if it were whole.
fn assert_refused(stored: &Stored, id: &str, what: &str) {
    let (said, shown) = stored.try_restore(id);
    assert!(shown.is_none() && said.code == 9, "{what}: {}", said.out);
    let ls = stored.session.run(&["--json", "repo", "cat", id, "large"]);
    assert_eq!(ls.code, 9, "{what}: {}", ls.out);
    let check = stored.check();
    assert_eq!(check.code, 9, "{what}: {}", check.out);
}

#[test]
fn a_chunk_in_the_place_of_another_is_refused() {
    let keys = Keys::new();
    let (stored, id) = saved(&keys);
    let (elsewhere, _) = saved(&keys);
    let all = chunks(&stored);
    let largest = all
        .iter()
        .max_by_key(|path| fs::metadata(path).unwrap().len());
    let victim = largest.unwrap();
    let whole = fs::read(victim).unwrap();
    let other = all.iter().find(|path| *path != victim).unwrap();

    for (what, bytes) in [
        ("another chunk", fs::read(other).unwrap()),
        (
            "a chunk of another pool",
            fs::read(&chunks(&elsewhere)[0]).unwrap(),
        ),
        ("a plain chunk", b"STCK\x01\0\0\0\x04\0\0\0end\n".to_vec()),
        ("half of it", whole[..whole.len() / 2].to_vec()),
        ("nothing", Vec::new()),
    ] {
        fs::write(victim, bytes).unwrap();
        assert_refused(&stored, &id, what);
    }
    fs::write(victim, &whole).unwrap();
    stored.restored(&id);
}

/// A change of a document.
type Edit<'a> = dyn Fn(&mut Value) + 'a;

/// The names of the chunks that a manifest needs, without the first: 36 bytes are 48 characters.
fn without_first(tree: &Value) -> String {
    tree["references"]["names"].as_str().unwrap()[48..].to_owned()
}

fn drop_reference(tree: &mut Value) {
    let names = without_first(tree);
    let rows = stasis_engine::model::base64::decode(&names).unwrap();
    tree["references"] = json!({
        "sha256": ReferencesDigest::of(&rows).to_string(),
        "count": rows.len() / 36,
        "names": names,
    });
}

#[test]
fn a_manifest_that_was_changed_is_refused_with_the_index_on_its_side() {
    let keys = Keys::new();
    let (stored, id) = saved(&keys);
    let genuine = fs::read(manifest(&stored, &id)).unwrap();
    let (elsewhere, other_id) = saved(&keys);
    let other = read(&manifest(&elsewhere, &other_id));
    let edits: [(&str, &Edit<'_>); 5] = [
        ("a dropped reference", &drop_reference),
        ("names without their digest", &|tree| {
            tree["references"]["names"] = json!(without_first(tree));
        }),
        ("another lease", &|tree| tree["leaseEpoch"] = json!(77)),
        ("another encrypted part", &|tree| {
            tree["contents"] = other["contents"].clone();
            tree["contentsId"] = other["contentsId"].clone();
        }),
        ("an unknown feature", &|tree| {
            tree["incompat"] = json!(["encryption", "colours"]);
        }),
    ];

    for (what, edit) in edits {
        let mut tree: Value = serde_json::from_slice(&genuine).unwrap();
        edit(&mut tree);
        replace(&stored, &id, &serde_json::to_vec(&tree).unwrap());
        assert_refused(&stored, &id, what);
    }
    replace(&stored, &id, &genuine);
    stored.restored(&id);
}

#[test]
fn a_manifest_from_elsewhere_is_refused() {
    let keys = Keys::new();
    let (stored, id) = saved(&keys);
    let (elsewhere, other_id) = saved(&keys);
    let plain = Stored::new(Kind::Everyday);
    plain.write("small", b"something else");
    let plain_id = plain.saved();

    for (what, from, from_id) in [
        ("a manifest of another pool", &elsewhere, &other_id),
        ("a plain manifest", &plain, &plain_id),
    ] {
        let text = fs::read_to_string(manifest(from, from_id)).unwrap();
        replace(&stored, &id, text.replace(from_id, &id).as_bytes());
        assert_refused(&stored, &id, what);
    }
    // Nor is it marked from: gc takes nothing before somebody looked.
    by(&stored, None, 9, &["repo", "gc"]);
}

#[test]
fn a_feature_that_gc_does_not_know_stops_it_without_the_key_too() {
    let keys = Keys::new();
    let (stored, id) = saved(&keys);
    let mut tree = read(&manifest(&stored, &id));
    tree["incompat"] = json!(["encryption", "colours"]);
    replace(&stored, &id, &serde_json::to_vec(&tree).unwrap());
    let before = chunks(&stored);
    fs::write(stored.pool().join("chunks").join("stray"), b"x").unwrap();
    let stray = before[0].with_file_name(format!("sha256:{}", "00".repeat(32)));
    let stray = stray
        .parent()
        .unwrap()
        .with_file_name("00")
        .join(stray.file_name().unwrap());
    fs::create_dir_all(stray.parent().unwrap()).unwrap();
    fs::write(&stray, b"garbage").unwrap();

    let refused = by(&stored, None, 9, &["repo", "gc"]);

    assert!(refused.to_string().contains("colours"), "{refused}");
    assert!(stray.exists() && before.iter().all(|path| path.exists()));
}

#[test]
fn a_plain_repo_json_where_a_key_lies_is_refused_on_every_host() {
    let keys = Keys::new();
    let (stored, id) = saved(&keys);
    let plain = Stored::new(Kind::Everyday);
    plain.write("small", b"something else");
    plain.saved();
    fs::copy(
        plain.pool().join("repo.json"),
        stored.pool().join("repo.json"),
    )
    .unwrap();
    let store = format!("file://{}", stored.session.object("").display());
    let (without, with) = (
        Session::on(&store),
        Session::on(&store).with_key(&keys.file("mine")),
    );

    for session in [&without, &with] {
        let (dir, to) = (session.home().join("dir"), session.home().join("to"));
        fs::create_dir(&dir).unwrap();
        for words in [
            vec!["repo", "restore", &id, to.to_str().unwrap()],
            vec!["save", dir.to_str().unwrap()],
            vec!["repo", "gc"],
        ] {
            let refused = session.json(9, &words);
            let said = refused["error"]["message"].as_str().unwrap();
            assert!(said.contains("though it has a data key"), "{refused}");
            let hint = refused["error"]["hint"].as_str().unwrap();
            assert!(hint.contains("with or without the key"), "{hint}");
        }
        assert!(!to.exists());
    }
}

#[test]
fn a_key_of_another_pool_is_refused_before_anything_is_written() {
    let keys = Keys::new();
    let (stored, id) = saved(&keys);
    let (elsewhere, _) = saved(&keys);
    let key = stored.pool().join("key.json");
    let genuine = fs::read(&key).unwrap();
    let before = chunks(&stored);
    stored.write("small", b"other bytes");

    // The same tenant's key wraps it, for a pool of the same name.
    fs::copy(elsewhere.pool().join("key.json"), &key).unwrap();
    let saved = stored.try_save(&[]);
    assert_eq!(saved.code, 9, "{}", saved.out);
    assert!(
        saved.out.contains("do not belong together"),
        "{}",
        saved.out
    );
    assert_eq!(chunks(&stored), before);
    assert_refused(&stored, &id, "another key.json");
    let mut moved: Value = serde_json::from_slice(&genuine).unwrap();
    moved["pool"] = json!("pools/other");
    fs::write(&key, serde_json::to_vec(&moved).unwrap()).unwrap();
    assert_refused(&stored, &id, "a key.json of another tenant's pool");
    fs::remove_file(&key).unwrap();
    assert_refused(&stored, &id, "no key.json");
    let saved = stored.try_save(&[]);
    assert_eq!(saved.code, 9, "{}", saved.out);
    assert!(!key.exists(), "nobody made another one");
    fs::write(&key, &genuine).unwrap();
    stored.restored(&id);
    stored.saved();
}
