//! `stasis repo`: days with a repository, in a directory and on a real S3 server.

use crate::repo_world::{World, ended, id, names, noise, odd_name, show, write};
use crate::session::{Said, Session, real_store, said};
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn furnish(world: &World) {
    for number in 0..40_u64 {
        let length = usize::try_from(number * 431).unwrap();
        world.write(
            &format!("src/d{}/f{number}", number % 5),
            &noise(number, length),
        );
    }
    world.write("large", &noise(1000, 3 << 20));
    world.write("empty", b"");
    fs::write(world.tree().join(odd_name()), b"odd").unwrap();
    fs::create_dir_all(world.tree().join("void/inner")).unwrap();
    fs::hard_link(world.tree().join("large"), world.tree().join("void/again")).unwrap();
    std::os::unix::fs::symlink("../nowhere", world.tree().join("src/link")).unwrap();
    let sparse = fs::File::create(world.tree().join("sparse")).unwrap();
    sparse.write_all_at(b"end", 9 << 20).unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn keys(value: &Value) -> String {
    let keys: Vec<&str> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    keys.join(" ")
}

/// A repository on the real S3 server, empty and for this test alone.
fn on_s3(test: &str) -> Option<World> {
    let store = real_store("STASIS_TEST_S3")?;
    let own = format!("/repo-{test}-{}?", std::process::id());
    Some(World::with(Session::on(&store.replace("/test?", &own))))
}

/// Saves, looks, changes, compares, restores, forgets: what a user does in a week.
fn a_week(world: &World) {
    furnish(world);
    let before = show(&world.tree());
    let first = world.save(&["--label", "day=monday"]);
    let again = world.save(&[]);
    world.write("src/d1/f1", b"changed on tuesday");
    world.write("src/new", b"new");
    fs::remove_file(world.tree().join("src/d2/f2")).unwrap();
    let after = show(&world.tree());
    let second = world.save(&[]);

    assert_eq!(
        (&first["unchanged"], &first["files"]),
        (&json!(false), &json!(44))
    );
    assert_eq!(
        (&again["unchanged"], &again["chunks_new"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(
        (&again["bytes_stored"], &again["state_digest"]),
        (&json!(0), &first["state_digest"])
    );
    assert_eq!(
        (&second["unchanged"], &second["files_new"]),
        (&json!(false), &json!(2))
    );
    assert!(
        second["bytes_stored"].as_u64().unwrap() < 200_000,
        "{second}"
    );
    assert_eq!(second["parent_snapshot_id"], again["snapshot_id"]);
    let ids = [id(&first), id(&again), id(&second)];
    assert_eq!(world.snapshots(), ids);
    assert!(world.restored(&ids[0]) == before);
    assert!(world.restored(&ids[1][..13]) == before);
    assert!(world.restored("latest") == after);

    an_evening(world, &ids, before.len());
    world.check();
    a_weekend(world, &ids);
    assert!(world.restored("latest") == after);
}

/// Looks at what there is, and at what changed.
fn an_evening(world: &World, ids: &[String; 3], entries: usize) {
    let listed = world.json(0, &["ls", &ids[0]]);
    let paths: Vec<&str> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths.len(), entries);
    assert!(paths.contains(&"odd \\xff\\x0a name"), "{paths:?}");
    assert_eq!(
        world.json(0, &["ls", "latest", "./src/d1/"])["items"]
            .as_array()
            .unwrap()
            .len(),
        9
    );
    assert_eq!(
        world
            .session
            .data(0, &["repo", "cat", "latest", "src/d1/f1"]),
        "changed on tuesday"
    );
    let changes = world.json(0, &["diff", &ids[1], &ids[2]]);
    let changes: Vec<(String, String)> = changes["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (
                one["path"].as_str().unwrap().to_owned(),
                one["change"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    let of = |wanted: &str| {
        changes
            .iter()
            .filter(|(_, change)| change == wanted)
            .map(|(path, _)| path.as_str())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (of("added"), of("removed"), of("content")),
        (vec!["src/new"], vec!["src/d2/f2"], vec!["src/d1/f1"])
    );
}

/// Forgets, sweeps and counts.
fn a_weekend(world: &World, ids: &[String; 3]) {
    let planned = world.json(0, &["gc", "--keep-last", "1", "--dry-run"]);
    assert_eq!(world.snapshots().len(), 3, "a dry run does nothing");
    world.json(0, &["pin", &ids[0]]);
    assert_eq!(world.run(&["forget", &ids[0]]).code, 11, "pinned");
    assert_eq!(world.run(&["forget", &ids[2]]).code, 11, "the newest");
    assert_eq!(
        world.run(&["forget", &ids[1], &ids[2]]).code,
        11,
        "all or none"
    );
    assert_eq!(world.snapshots().len(), 3);
    world.json(0, &["gc", "--keep-last", "1"]);
    assert_eq!(
        world.snapshots(),
        [ids[0].clone(), ids[2].clone()],
        "pinned ones stay"
    );
    world.json(0, &["unpin", &ids[0]]);
    world.json(0, &["forget", &ids[0]]);
    let unused = world.json(0, &["stats"]);
    let went = world.json(0, &["gc"]);
    let stats = world.json(0, &["stats"]);

    assert_eq!(world.snapshots(), [ids[2].clone()]);
    assert_eq!(
        planned["chunks_removed"], went["chunks_removed"],
        "{planned} {went}"
    );
    assert_eq!(unused["bytes_unused"], went["bytes_removed"]);
    assert_eq!(
        (&stats["chunks_unused"], &stats["snapshots"]),
        (&json!(0), &json!(1))
    );
    world.check();
}

#[test]
fn a_week_with_a_repository_in_a_directory() {
    let world = World::new();

    a_week(&world);

    assert_eq!(world.temps(), [""; 0]);
}

#[test]
fn a_week_with_a_repository_on_a_real_s3_server() {
    if let Some(world) = on_s3("week") {
        a_week(&world);
    }
}

#[test]
fn results_have_the_fields_that_scripts_read() {
    let world = World::new();
    world.write("file", b"content");

    let saved = world.save(&[]);
    let target = world.path("target");
    let restored = world.json(0, &["restore", "latest", text(&target)]);

    let totals = "attributes_left_out bytes bytes_read bytes_stored chunks_damaged chunks_healed chunks_new databases directories elapsed_ms encrypted excluded fifos files files_held files_new files_read";
    assert!(keys(&saved).starts_with(totals), "{}", keys(&saved));
    for key in [
        "snapshot_id",
        "name",
        "parent_snapshot_id",
        "state_digest",
        "unchanged",
        "left_out_entries",
        "peak_memory_bytes",
    ] {
        assert!(saved.get(key).is_some(), "{key}");
    }
    assert_eq!(
        keys(&restored),
        "attributes_not_kept bytes bytes_reused chunks_fetched directories elapsed_ms files files_reused hard_links name owners_not_kept peak_memory_bytes placed privileges_not_kept schema snapshot snapshot_id state_digest symlinks target"
    );
    assert_eq!(
        keys(&world.json(0, &["snapshots"])["items"][0]),
        "active bytes entries name pinned snapshot_id timestamp timestamp_ms"
    );
    assert_eq!(
        keys(&world.json(0, &["ls", "latest"])["items"][0]),
        "blake3 gid kind mode mtime path size uid"
    );
    assert_eq!(
        keys(&world.json(0, &["check"])),
        "bytes_read chunks chunks_read damage elapsed_ms marked peak_memory_bytes roots schema snapshots without_key"
    );
    assert_eq!(
        keys(&world.json(0, &["gc"])),
        "bytes_removed chunks_removed dry_run elapsed_ms items manifests_removed peak_memory_bytes schema"
    );
    assert_eq!(
        keys(&world.json(0, &["stats"])),
        "bytes bytes_stored bytes_unused chunks chunks_damaged chunks_unused schema snapshots"
    );
}

#[test]
fn a_restore_that_replaces_keeps_the_old_tree() {
    let world = World::new();
    furnish(&world);
    let wanted = show(&world.tree());
    world.saved();
    let target = world.path("target");
    write(&target, "mine", b"precious");
    let mine = show(&target);

    let refused = world.run(&["restore", "latest", text(&target)]);
    let untouched = show(&target);
    let restored = world.json(
        0,
        &["restore", "latest", text(&target), "--replace", "--owner"],
    );

    assert_eq!(refused.code, 2, "{}", refused.out);
    assert!(untouched == mine);
    assert!(show(&target) == wanted);
    assert_eq!(restored["placed"], "replaced");
    assert!(show(Path::new(restored["kept"].as_str().unwrap())) == mine);
}

#[test]
fn a_restore_in_place_touches_only_what_differs() {
    let world = World::new();
    furnish(&world);
    let wanted = show(&world.tree());
    world.saved();
    let (root, untouched) = (world.tree(), world.tree().join("src/d0/f5"));
    let stat = |path: &Path| {
        let seen = fs::symlink_metadata(path).unwrap();
        (seen.ino(), seen.ctime(), seen.ctime_nsec())
    };
    let was = (fs::metadata(&root).unwrap().ino(), stat(&untouched));
    world.write("src/d1/f1", b"spoiled");
    world.write("stray", b"stray");
    fs::remove_file(root.join("src/d3/f3")).unwrap();

    let restored = world.json(
        0,
        &["restore", "latest", text(&root), "--in-place", "--owner"],
    );

    assert!(show(&root) == wanted);
    assert_eq!(restored["placed"], "in_place");
    assert_eq!((fs::metadata(&root).unwrap().ino(), stat(&untouched)), was);
    assert!(restored["before"]["snapshot_id"].is_string(), "{restored}");
    let words = ["restore", "latest", text(&root), "--in-place", "--owner"];
    let again = world.json(0, &words);
    assert!(again["before"].is_null(), "nothing to go back to: {again}");
}

#[test]
fn a_part_of_a_snapshot_is_restored_even_without_the_first_name_of_a_file() {
    let world = World::new();
    furnish(&world);
    world.saved();
    let target = world.path("part");

    let restored = world.json(
        0,
        &[
            "restore",
            "latest",
            text(&target),
            "--path",
            "void",
            "--path",
            "src/d1/f6",
        ],
    );
    let absent = world.run(&[
        "restore",
        "latest",
        text(&world.path("none")),
        "--path",
        "no/such",
    ]);

    assert_eq!(
        fs::read(target.join("void/again")).unwrap(),
        noise(1000, 3 << 20)
    );
    assert_eq!(names(&target), ["src", "void"]);
    assert_eq!(names(&target.join("src/d1")), ["f6"]);
    assert_eq!(restored["files"], 2, "{restored}");
    assert_eq!(absent.code, 3, "{}", absent.out);
    assert!(!world.path("none").exists());
}

#[test]
fn what_is_not_there_is_said_to_be_absent() {
    let world = World::new();
    world.write("file", b"content");
    let nowhere = Session::new();
    let target = world.path("target");

    let empty = world.run(&["restore", "latest", text(&target)]);
    let mut ids = vec![world.saved()];
    while ids
        .iter()
        .filter(|one| one.starts_with(&ids[0][..1]))
        .count()
        < 2
    {
        ids.push(world.saved());
    }

    assert_eq!(empty.code, 3, "{}", empty.out);
    assert_eq!(nowhere.run(&["repo", "snapshots"]).code, 3);
    assert_eq!(nowhere.run(&["repo", "save", text(&world.tree())]).code, 3);
    assert_eq!(
        names(nowhere.home()),
        [""; 0],
        "nobody made a store by asking"
    );
    for wrong in ["zzzz", "00000000-0000-4000-8000-000000000000", "../index"] {
        let said = world.run(&["restore", wrong, text(&target)]);
        assert_eq!(said.code, 3, "{wrong}: {}", said.out);
    }
    let ambiguous = world.run(&["ls", &ids[0][..1]]);
    assert_eq!(ambiguous.code, 2, "{}", ambiguous.out);
    assert_eq!(world.run(&["ls", "latest", "--name", "other"]).code, 3);
    assert_eq!(world.run(&["cat", "latest", "nothing"]).code, 3);
    assert_eq!(world.run(&["forget", "zzzz"]).code, 3);
    assert_eq!(world.run(&["save", text(&world.path("nothing"))]).code, 3);
    assert_eq!(world.run(&["init"]).code, 2, "a repository is made once");
    assert!(!target.exists());
}

#[test]
fn a_clock_that_goes_back_does_not_make_an_older_snapshot_the_latest() {
    let world = World::new();
    world.write("file", b"old");
    let first = world.saved();
    let path = world.object("index.json");
    let mut index: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let at = &mut index["snapshots"][0]["at_ms"];
    *at = json!(at.as_u64().unwrap() + 86_400_000);
    fs::write(&path, serde_json::to_vec(&index).unwrap()).unwrap();

    world.write("file", b"new");
    let second = world.saved();

    assert_eq!(world.snapshots(), [first.clone(), second.clone()]);
    assert_eq!(
        world.session.data(0, &["repo", "cat", "latest", "file"]),
        "new"
    );
    world.json(0, &["gc", "--keep-last", "1"]);
    assert_eq!(world.snapshots(), [second]);
}

/// The largest chunk.
fn a_chunk(world: &World) -> PathBuf {
    let mut chunks = Vec::new();
    for directory in names(&world.object("chunks")) {
        let directory = world.object("chunks").join(directory);
        chunks.extend(
            names(&directory)
                .into_iter()
                .map(|name| directory.join(name)),
        );
    }
    chunks
        .into_iter()
        .max_by_key(|chunk| fs::metadata(chunk).unwrap().len())
        .unwrap()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    let at = at.min(bytes.len() - 1);
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_flipped_byte_is_found_named_refused_and_healed_by_the_next_save() {
    let world = World::new();
    furnish(&world);
    let wanted = show(&world.tree());
    let snapshot = world.saved();
    let target = world.path("place/target");
    write(&target, "mine", b"precious");
    let mine = show(&target);
    let chunk = a_chunk(&world);
    flip(&chunk, 5000);
    let spoiled = fs::read(&chunk).unwrap();

    let unread = world.run(&["check"]);
    let restored = world.run(&["restore", "latest", text(&target), "--replace"]);
    let checked = world.json(9, &["check", "--read-data"]);
    let known = world.run(&["check"]);

    assert_eq!(unread.code, 0, "only reading finds it");
    assert_eq!(restored.code, 9, "{}", restored.out);
    assert!(show(&target) == mine);
    assert_eq!(
        names(&world.path("place")),
        ["target"],
        "nothing is left behind"
    );
    let damage = &checked["damage"][0];
    assert_eq!(damage["snapshots"], json!([snapshot]));
    assert_eq!(damage["files"], json!(["large"]), "{damage}");
    assert_eq!(known.code, 9, "what was found is remembered");
    assert_eq!(
        fs::read(&chunk).unwrap(),
        spoiled,
        "a check changes nothing"
    );
    assert_eq!(world.json(0, &["stats"])["chunks_damaged"], 1);

    world.saved();

    world.check();
    assert_eq!(world.run(&["check"]).code, 0);
    assert_eq!(world.json(0, &["stats"])["chunks_damaged"], 0);
    assert!(
        world.restored(&snapshot) == wanted,
        "the old snapshot is whole again"
    );
}

#[test]
fn damage_that_nobody_needs_any_more_is_forgotten_with_it() {
    let world = World::new();
    furnish(&world);
    let spoiled = world.saved();
    flip(&a_chunk(&world), 5000);
    world.json(9, &["check", "--read-data"]);
    world.write("large", b"nobody has the old bytes");
    fs::remove_file(world.tree().join("void/again")).unwrap();
    world.saved();

    world.json(0, &["gc"]);
    let before = world.json(0, &["stats"]);
    world.json(0, &["forget", &spoiled]);
    world.json(0, &["gc"]);
    let after = world.json(0, &["stats"]);

    assert_eq!(before["chunks_damaged"], 1, "it is still needed");
    assert_eq!(after["chunks_damaged"], 0);
    world.check();
}

#[test]
fn a_chunk_that_is_lost_or_cut_is_found_and_healed_too() {
    let world = World::new();
    furnish(&world);
    let wanted = show(&world.tree());
    let snapshot = world.saved();

    for cut in [Some(0), Some(11), Some(4000), None] {
        let chunk = a_chunk(&world);
        match cut {
            Some(length) => fs::OpenOptions::new()
                .write(true)
                .open(&chunk)
                .unwrap()
                .set_len(length)
                .unwrap(),
            None => fs::remove_file(&chunk).unwrap(),
        }
        let restored = world.run(&["restore", &snapshot, text(&world.path("target"))]);
        let checked = world.json(9, &["check", "--read-data"]);
        assert_eq!(restored.code, 9, "{cut:?} {}", restored.out);
        assert_eq!(checked["damage"][0]["files"], json!(["large"]), "{cut:?}");
        assert!(!world.path("target").exists());

        world.saved();

        world.check();
        assert!(world.restored(&snapshot) == wanted, "{cut:?}");
    }
}

#[test]
fn a_repository_of_the_future_is_refused_or_only_read() {
    let world = World::new();
    world.write("file", b"content");
    let snapshot = world.saved();
    let path = world.object("repo.json");
    let plain: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let with = |field: &str| {
        let mut changed = plain.clone();
        changed[field] = json!(["time-travel"]);
        fs::write(&path, serde_json::to_vec(&changed).unwrap()).unwrap();
    };

    with("incompat");
    let refused = ["snapshots", "check", "gc", "stats"].map(|verb| world.run(&[verb]).code);
    let unsaved = world.run(&["save", text(&world.tree())]);
    with("compat_write");
    let read = world.restored(&snapshot);
    let written = world.run(&["save", text(&world.tree())]);
    let swept = world.run(&["gc"]);
    let forgotten = world.run(&["forget", &snapshot]);

    assert_eq!(refused, [11; 4]);
    assert_eq!(unsaved.code, 11, "{}", unsaved.out);
    assert!(unsaved.out.contains("time-travel"), "{}", unsaved.out);
    assert!(read == show(&world.tree()));
    assert_eq!(
        [written.code, swept.code, forgotten.code],
        [11; 3],
        "{}",
        written.out
    );
}

#[test]
fn documents_that_are_spoiled_are_never_overwritten() {
    let world = World::new();
    world.write("file", b"content");
    let snapshot = world.saved();
    let manifest = format!("snapshots/{snapshot}.json");

    for (key, spoil) in [
        ("index.json", &b""[..]),
        ("index.json", b"{\"version\":1"),
        ("index.json", b"[]"),
        ("gc.json", b"nonsense"),
        ("repo.json", b"{}"),
        (manifest.as_str(), b"{\"half"),
    ] {
        let path = world.object(key);
        let good = fs::read(&path).ok();
        fs::write(&path, spoil).unwrap();
        let context = format!("{key} {:?}", String::from_utf8_lossy(spoil));

        let saved = world.run(&["save", text(&world.tree())]);
        let swept = world.run(&["gc", "--keep-last", "1"]);
        let restored = world.run(&["restore", &snapshot, text(&world.path("target"))]);

        assert_eq!(saved.code, 9, "{context} {}", saved.out);
        assert_eq!(fs::read(&path).unwrap(), spoil, "{context}");
        assert!(
            swept.code == 9 || key == manifest,
            "{context} {}",
            swept.out
        );
        if key != "gc.json" {
            assert_eq!(restored.code, 9, "{context} {}", restored.out);
            assert!(!world.path("target").exists());
        }
        if key == manifest {
            assert_eq!(world.run(&["check"]).code, 9);
        }
        match good {
            Some(good) => fs::write(&path, good).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let _ = fs::remove_dir_all(world.path("target"));
    }
    world.check();
    assert!(world.restored(&snapshot) == show(&world.tree()));
}

#[test]
fn a_tree_that_is_almost_gone_is_not_saved_by_accident() {
    let world = World::new();
    furnish(&world);
    let snapshot = world.saved();
    fs::remove_dir_all(world.tree()).unwrap();
    world.write("file", b"all that is left");

    let refused = world.run(&["save", text(&world.tree())]);
    let listed = world.snapshots();
    let saved = world.save(&["--accept-shrink"]);

    assert_eq!(refused.code, 11, "{}", refused.out);
    assert_eq!(listed, [snapshot]);
    assert_eq!(saved["files"], 1);
    assert_eq!(world.temps(), [""; 0]);
}

#[test]
fn of_saves_under_one_name_at_once_each_is_in_the_chain_or_diverged() {
    let world = World::new();
    furnish(&world);
    let mut acknowledged = vec![];
    let mut diverged = 0;

    for round in 0..6_u8 {
        world.write("src/d1/f1", &[round; 100]);
        let savers: Vec<_> = (0..3)
            .map(|_| world.start(&["save", text(&world.tree())]))
            .collect();
        for said in savers.into_iter().map(ended) {
            match said.code {
                0 => acknowledged.push(serde_json::from_str::<Value>(&said.out).unwrap()),
                6 => diverged += 1,
                code => panic!("{code}: {}", said.out),
            }
        }
    }

    let listed = world.snapshots();
    assert_eq!(listed.len(), acknowledged.len());
    assert!(
        listed.len() >= 6,
        "one of those that race wins: {diverged} diverged"
    );
    let parents = listed.iter().map(|one| {
        let found = acknowledged.iter().find(|saved| id(saved) == *one).unwrap();
        found["parent_snapshot_id"].as_str().map(str::to_owned)
    });
    let parents: Vec<Option<String>> = parents.collect();
    let chain: Vec<Option<String>> = std::iter::once(None)
        .chain(listed.iter().cloned().map(Some))
        .take(listed.len())
        .collect();
    assert_eq!(parents, chain);
    world.check();
    world.write("src/d1/f1", b"once more");
    let last = world.saved();
    world.json(0, &["gc", "--keep-last", "1"]);
    assert_eq!(
        names(&world.object("snapshots")),
        [format!("{last}.json").as_str()]
    );
    assert_eq!(
        world.json(0, &["stats"])["chunks_unused"],
        0,
        "what diverged is swept"
    );
}

/// Runs a command, slowed down, and sends it a signal after a while.
fn interrupted(world: &World, arguments: &[&str], calls: &str) -> crate::session::Said {
    let mut all = vec!["--json", "repo"];
    all.extend(arguments);
    let plain = world.session.command(&all);
    let mut command = std::process::Command::new("strace");
    // The tracer is a grandchild, so that the child is the program itself.
    command.args([
        "-D",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        &format!("trace={calls}"),
    ]);
    command.args(["-e", &format!("inject={calls}:delay_enter=60000")]);
    command
        .arg(crate::session::STASIS)
        .args(plain.get_args())
        .env_clear();
    command.envs(
        plain
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(900));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    ended(child)
}

#[test]
fn an_interrupted_save_or_restore_leaves_everything_as_it_was() {
    if std::process::Command::new("strace")
        .arg("-V")
        .output()
        .is_err()
    {
        println!("skipped: strace is not there");
        return;
    }
    let world = World::new();
    furnish(&world);
    let first = world.saved();
    for number in 0..12 {
        world.write(&format!("more/f{number}"), &noise(7000 + number, 2 << 20));
    }
    let target = world.path("place/target");
    write(&target, "mine", b"precious");
    let mine = show(&target);

    let saved = interrupted(&world, &["save", text(&world.tree())], "pread64");
    let listed = world.snapshots();
    let left = world.temps();
    let second = world.saved();
    let restored = interrupted(
        &world,
        &["restore", &second, text(&target), "--replace"],
        "write,pwrite64,fchmod",
    );

    assert_eq!(saved.code, 130, "{} {}", saved.out, saved.err);
    assert_eq!((listed, left), (vec![first], vec![]));
    assert_eq!(restored.code, 130, "{} {}", restored.out, restored.err);
    assert!(show(&target) == mine);
    assert_eq!(names(&world.path("place")), ["target"]);
    world.check();
}

/// Ends a command whose standard output is closed after the first byte.
fn read_a_byte(session: &Session, words: &[&str]) -> Said {
    let mut command = session.command(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut first = [0];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    said(child.wait_with_output().unwrap())
}

#[test]
fn whoever_has_read_enough_of_a_file_and_closes_it_meets_no_failure() {
    let world = World::new();
    world.write("large", &noise(1, 8 << 20));
    world.save(&[]);
    let archive = world.session.home().join("a.tar.zst");
    let tree = world.tree();
    let create = ["archive", "create", text(&tree), text(&archive)];
    world.session.data(0, &create);

    for words in [
        &["repo", "cat", "latest", "large"][..],
        &["archive", "cat", text(&archive), "large"],
    ] {
        let ended = read_a_byte(&world.session, words);
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{words:?}");
    }
    // What cannot be written for another reason is not written.
    let full = fs::File::create("/dev/full").unwrap();
    let mut command = world.session.command(&["repo", "cat", "latest", "large"]);
    let ended = said(command.stdout(full).output().unwrap());
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.contains("standard output"), "{}", ended.err);
}
