//! Snapshots whose metadata or list is damaged for good, and the ways out: none of them hurts what can be read.

use crate::repo_crash::{has_strace, run_without, saved_without};
use crate::repo_world::{World, id, names, show};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Three snapshots of a small tree, and what the tree was.
fn three(world: &World) -> ([String; 3], Vec<crate::repo_world::Shown>) {
    let mut shown = Vec::new();
    let ids = ["one", "two", "three"].map(|content| {
        world.write("file", content.as_bytes());
        shown.push(show(&world.tree()));
        world.saved()
    });
    (ids, shown)
}

fn metadata(world: &World, id: &str) -> PathBuf {
    world.object(&format!("snapshots/{id}.json"))
}

/// Damage that still is JSON: one letter of a text.
fn spoil(path: &Path) {
    let text = fs::read_to_string(path).unwrap();
    fs::write(path, text.replacen("manual", "autosave", 1)).unwrap();
}

fn save(world: &World) -> crate::session::Said {
    world.run(&["save", world.tree().to_str().unwrap()])
}

fn hint(said: &crate::session::Said) -> String {
    let told: Value = serde_json::from_str(&said.out).unwrap();
    told["error"]["hint"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Everything works again.
fn goes_on(world: &World) {
    let saved = world.saved();
    assert!(world.restored(&saved) == show(&world.tree()));
    world.json(0, &["gc"]);
    world.check();
    world.json(0, &["stats"]);
}

fn events(world: &World) -> Vec<Value> {
    let log = world.session.json(0, &["events"]);
    log["items"].as_array().unwrap().clone()
}

#[test]
fn a_name_goes_on_from_its_newest_readable_snapshot_when_its_newest_is_damaged() {
    let world = World::new();
    let ([one, two, three], shown) = three(&world);
    spoil(&metadata(&world, &three));
    let index = fs::read(world.object("index.json")).unwrap();

    let (saved, swept) = (save(&world), world.run(&["gc"]));
    let asked = world.run(&["forget", &three, "--damaged"]);
    let untouched = fs::read(world.object("index.json")).unwrap();
    let gone = world.json(0, &["forget", &three, "--damaged", "--confirm"]);

    let command = format!("repo forget {three} --damaged --confirm");
    for stopped in [saved, swept] {
        assert_eq!(stopped.code, 9, "{}", stopped.out);
        assert!(hint(&stopped).contains(&command), "{}", stopped.out);
    }
    assert_eq!(asked.code, 2, "{}", asked.out);
    assert_eq!(index, untouched);
    assert_eq!(gone["newest"], json!({ "default": two }), "{gone}");
    assert_eq!(world.snapshots(), [one.clone(), two.clone()]);
    let event = &events(&world)[0];
    assert_eq!(event["kind"], "forget_damaged");
    assert_eq!(event["op_id"], gone["op_id"]);
    assert_eq!(event["details"]["forgotten"][0]["snapshot_id"], *three);
    let next = world.save(&[]);
    assert_eq!(next["parent_snapshot_id"], *two);
    goes_on(&world);
    assert!(!metadata(&world, &three).exists());
    assert!(world.restored(&one) == shown[0] && world.restored(&two) == shown[1]);
}

#[test]
fn a_middle_one_and_the_only_one_are_let_go_of_too() {
    let world = World::new();
    let ([one, two, three], shown) = three(&world);
    fs::remove_file(metadata(&world, &two)).unwrap();

    let swept = world.run(&["gc"]);
    let gone = world.json(0, &["forget", &two, "--damaged", "--confirm"]);

    assert_eq!(swept.code, 9, "its chunks would be missed if it came back");
    assert_eq!(gone["newest"], json!({ "default": three }));
    goes_on(&world);
    assert!(world.restored(&one) == shown[0] && world.restored(&three) == shown[2]);

    let other = id(&world.save(&["--name", "other"]));
    let document = format!("subjects/default/dir/other/snapshots/{other}.json");
    fs::write(world.object(&document), "").unwrap();
    let gone = world.json(0, &["forget", &other, "--damaged", "--confirm"]);
    let again = world.save(&["--name", "other"]);

    assert_eq!(gone["newest"], json!({ "other": null }));
    assert_eq!(again["parent_snapshot_id"], Value::Null);
    goes_on(&world);
}

#[test]
fn snapshots_of_two_subjects_go_at_once_or_none_does() {
    let world = World::new();
    let tree = world.tree().to_str().unwrap().to_owned();
    let save = |name: &str, content: &str| {
        world.write("file", content.as_bytes());
        id(&world.json(0, &["save", &tree, "--name", name]))
    };
    let [mine, other] = ["mine", "other"].map(|name| ["one", "two"].map(|text| save(name, text)));

    let with_active = world.run(&["forget", &mine[0], &other[1]]);
    let listed = || world.snapshots().len();
    let before = listed();
    world.json(0, &["forget", &mine[0], &other[0]]);

    assert_eq!(with_active.code, 11, "{}", with_active.err);
    assert_eq!((before, listed()), (4, 2));
    let at = |name: &str, id: &str| {
        world
            .session
            .object(&format!("subjects/default/dir/{name}/snapshots/{id}.json"))
    };
    spoil(&at("mine", &mine[1]));
    spoil(&at("other", &other[1]));
    let gone = world.json(
        0,
        &["forget", &mine[1], &other[1], "--damaged", "--confirm"],
    );
    assert_eq!(gone["forgotten"].as_array().unwrap().len(), 2, "{gone}");
    assert_eq!(listed(), 0);
    world.json(0, &["retire", "mine", "--confirm"]);
}

#[test]
fn what_can_be_read_is_not_taken_for_damaged() {
    let world = World::new();
    let ([one, two, three], _) = three(&world);
    let forget = |ids: &[&str]| {
        let mut words = vec!["forget"];
        words.extend(ids);
        words.extend(["--damaged", "--confirm"]);
        world.run(&words)
    };

    let readable = forget(&[&three]);
    spoil(&metadata(&world, &three));
    let with_another = forget(&[&three, &one]);
    spoil(&metadata(&world, &two));
    let onto_damage = forget(&[&three]);
    let pinned = world.json(0, &["pin", &two]);
    let while_pinned = forget(&[&three, &two]);
    world.json(0, &["unpin", &two]);
    let absent = forget(&["nothing"]);

    assert_eq!(pinned["pinned"], true);
    let codes = [
        &readable,
        &with_another,
        &onto_damage,
        &while_pinned,
        &absent,
    ];
    assert_eq!(codes.map(|said| said.code), [2, 2, 2, 11, 3]);
    assert!(hint(&onto_damage).contains(&two), "{}", onto_damage.out);
    assert_eq!(world.snapshots(), [one.clone(), two.clone(), three.clone()]);
    assert_eq!(forget(&[&three, &two]).code, 0);
    assert_eq!(world.snapshots(), [one]);
    goes_on(&world);
}

#[test]
fn metadata_of_a_later_build_is_not_damaged() {
    let world = World::new();
    let saved = world.saved();
    let path = metadata(&world, &saved);
    let mut later: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    later["incompat"] = json!(["time-travel"]);
    let later = serde_json::to_vec_pretty(&later).unwrap();
    let index = world.object("index.json");
    let text = fs::read_to_string(&index).unwrap();
    let mut parsed: Value = serde_json::from_str(&text).unwrap();
    let entry = &mut parsed["snapshots"][0]["manifest_sha256"];
    *entry = json!(stasis_engine::model::digest::ManifestDigest::of(&later));
    fs::write(&index, serde_json::to_vec(&parsed).unwrap()).unwrap();
    fs::write(&path, later).unwrap();

    let refused = world.run(&["forget", &saved, "--damaged", "--confirm"]);

    assert_eq!(refused.code, 9, "{}", refused.out);
    assert!(refused.out.contains("time-travel"), "{}", refused.out);
    assert_eq!(world.snapshots(), [saved]);
}

/// All stored chunks.
fn chunks(world: &World) -> Vec<PathBuf> {
    let directories = names(&world.object("chunks")).into_iter();
    let directories = directories.map(|name| world.object("chunks").join(name));
    directories
        .flat_map(|directory| {
            let names = names(&directory).into_iter();
            names.map(move |name| directory.join(name))
        })
        .collect()
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Two snapshots with lists of their own; those chunks that only the second has are damaged. They are its list.
fn with_a_damaged_list(world: &World) -> [String; 2] {
    for number in 0..1200 {
        world.write(&format!("d/{number}"), b"");
    }
    let first = world.saved();
    let before = chunks(world);
    for number in 0..1200 {
        world.write(&format!("e/{number}"), b"");
    }
    let second = world.saved();
    let lists = chunks(world);
    let lists: Vec<_> = lists.iter().filter(|one| !before.contains(one)).collect();
    assert!(!lists.is_empty());
    for list in lists {
        flip(list);
    }
    [first, second]
}

#[test]
fn a_damaged_list_is_let_go_of_and_stored_anew_by_the_next_save() {
    let world = World::new();
    let [first, second] = with_a_damaged_list(&world);

    let swept = world.run(&["gc"]);
    world.json(0, &["forget", &second, "--damaged", "--confirm"]);
    let again = world.save(&[]);

    assert_eq!(swept.code, 9, "{}", swept.out);
    let command = format!("repo forget {second} --damaged");
    assert!(hint(&swept).contains(&command), "{}", swept.out);
    assert_eq!(again["parent_snapshot_id"], *first);
    assert!(again["chunks_healed"].as_u64().unwrap() > 0, "{again}");
    goes_on(&world);
    assert!(world.restored(&id(&again)) == show(&world.tree()));
    assert_eq!(world.json(0, &["stats"])["chunks_damaged"], 0);
}

#[test]
fn a_damaged_list_that_a_check_found_is_healed_by_a_save_of_the_same_tree() {
    let world = World::new();
    for number in 0..1200 {
        world.write(&format!("d/{number}"), b"");
    }
    let first = world.saved();
    for list in chunks(&world) {
        flip(&list);
    }

    let found = world.json(9, &["check"]);
    world.save(&["--name", "other"]);

    assert_eq!(found["damage"][0]["snapshots"], json!([first]), "{found}");
    goes_on(&world);
    assert!(world.restored(&first) == show(&world.tree()));
}

#[test]
fn metadata_that_nobody_published_and_nobody_can_read_does_not_block_a_sweep_for_ever() {
    let world = World::new();
    world.saved();
    fs::write(metadata(&world, "stray"), "{\"half").unwrap();

    let swept = world.run(&["gc"]);
    let gone = world.json(0, &["forget", "stray", "--damaged", "--confirm"]);

    assert_eq!(swept.code, 9, "{}", swept.out);
    assert!(
        hint(&swept).contains("forget stray --damaged"),
        "{}",
        swept.out
    );
    assert_eq!(gone["newest"], json!({}));
    goes_on(&world);
    assert!(!metadata(&world, "stray").exists());
}

#[test]
fn a_chunk_that_is_whole_again_leaves_the_quarantine_with_the_next_gc() {
    let world = World::new();
    world.write("file", &crate::repo_world::noise(1, 100_000));
    world.saved();
    let chunk = chunks(&world).pop().unwrap();
    let good = fs::read(&chunk).unwrap();
    fs::write(&chunk, b"damaged").unwrap();
    world.json(9, &["check", "--read-data"]);
    world.json(0, &["gc"]);
    let still = world.json(0, &["stats"]);
    // What a save leaves that was killed after it published.
    fs::write(&chunk, good).unwrap();

    world.json(0, &["gc"]);

    assert_eq!(still["chunks_damaged"], 1);
    assert_eq!(world.json(0, &["stats"])["chunks_damaged"], 0);
    assert_eq!(world.run(&["check"]).code, 0);
}

#[test]
fn a_name_is_retired_with_all_its_snapshots_and_may_be_used_again() {
    let world = World::new();
    let (_, _) = three(&world);
    let kept = id(&world.save(&["--name", "kept"]));

    let asked = world.run(&["retire", "default"]);
    let gone = world.json(0, &["retire", "default", "--confirm"]);
    let left = world.snapshots();
    let again = world.run(&["retire", "default", "--confirm"]);
    world.json(0, &["pin", &kept]);
    let pinned = world.run(&["retire", "kept", "--confirm"]);

    assert_eq!(asked.code, 2, "{}", asked.out);
    assert_eq!(gone["forgotten"].as_array().unwrap().len(), 3);
    assert_eq!(left, std::slice::from_ref(&kept));
    assert_eq!([again.code, pinned.code], [3, 11], "{}", pinned.out);
    assert_eq!(events(&world)[0]["kind"], "retire");
    world.json(0, &["gc"]);
    assert_eq!(names(&world.object("snapshots")), [""; 0]);
    assert_eq!(world.save(&[])["parent_snapshot_id"], Value::Null);
    goes_on(&world);
    assert!(world.snapshots().contains(&kept));
}

#[test]
fn what_became_of_a_save_in_doubt_can_be_asked() {
    if !has_strace() {
        return;
    }
    let world = World::new();
    world.write("file", b"content");
    world.saved();

    let doubtful = saved_without(&world, "fsync,syncfs");
    let told: Value = serde_json::from_str(&doubtful.out).unwrap();
    let op_id = told["error"]["op_id"].as_str().unwrap();
    let written = || {
        // A number that was let go is used again: the moment tells two files of one number apart.
        let index = fs::metadata(world.object("index.json")).unwrap();
        (index.ino(), index.mtime(), index.mtime_nsec())
    };
    let before = written();
    let words = ["--json", "operation", "show", op_id];
    let while_broken = ["fsync,syncfs", "fsync"].map(|calls| run_without(&world, &words, calls));
    let shown = world.session.json(0, &["operation", "show", op_id]);

    assert_eq!(doubtful.code, 10, "{told}");
    for one in while_broken {
        assert!(!one.out.contains("\"applied\""), "{}", one.out);
        assert_ne!(one.code, 0, "{}", one.out);
    }
    assert_ne!(
        before,
        written(),
        "only what was written anew is called durable"
    );
    assert!(hint(&doubtful).contains(&format!("operation show {op_id}")));
    assert_eq!(
        (&shown["change"], &shown["fate"]),
        (&json!("save"), &json!("applied"))
    );
    assert_eq!(world.snapshots().len(), 2);
}

#[test]
fn a_pattern_that_is_none_is_refused_by_whoever_takes_one() {
    let world = World::new();
    world.write("file", b"content");
    let (tree, target) = (world.tree(), world.path("target"));
    let [tree, target] = [&tree, &target].map(|path| path.to_str().unwrap());

    for words in [
        &["repo", "save", tree][..],
        &["archive", "create", tree, target],
        &["clone", tree, target],
    ] {
        let mut words = words.to_vec();
        words.extend(["--exclude", "["]);
        let refused = world.session.json(2, &words);
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("`[`"), "{words:?} {refused}");
    }
    assert_eq!(world.snapshots(), [""; 0]);
    assert!(!world.path("target").exists());
}
