//! Saves beside sweeps, beside each other, and beside programs that go on writing.

use crate::repo_world::{Shown, World, ended, id, noise, show, write};
use crate::session::{Session, real_store};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SAVERS: u64 = 3;

/// What was acknowledged and not forgotten since.
type Acknowledged = Mutex<BTreeMap<String, Shown>>;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Saves a tree of its own again and again, and forgets all but the two newest.
fn saver(world: &World, number: u64, until: Instant, acknowledged: &Acknowledged) -> (u64, u64) {
    let tree = world.path(&format!("tree{number}"));
    let name = format!("saver{number}");
    let (mut own, mut saves, mut refused) = (Vec::new(), 0, 0);
    let mut turn = 0;
    while Instant::now() < until {
        turn += 1;
        // The same contents turn up in all trees, go away, and come back.
        for file in 0..12 {
            let seed = (turn * 3 + file * 7 + number) % 25;
            write(
                &tree,
                &format!("d{}/f{file}", file % 3),
                &noise(seed, 3000 + 500 * usize::try_from(seed).unwrap()),
            );
        }
        write(&tree, "large", &noise(500 + turn % 4, 1_300_000));
        let shown = show(&tree);
        let said = world.run(&["save", text(&tree), "--name", &name, "--accept-shrink"]);
        if said.code == 0 {
            let newest = id(&serde_json::from_str::<Value>(&said.out).unwrap());
            acknowledged.lock().unwrap().insert(newest.clone(), shown);
            own.push(newest);
            saves += 1;
        } else {
            // Sweeps were faster: said, not applied, and another attempt is free.
            assert_eq!(said.code, 1, "{}", said.out);
            assert!(said.out.contains("\"retry\""), "{}", said.out);
            refused += 1;
        }
        if own.len() > 2 {
            let oldest = own.remove(0);
            acknowledged.lock().unwrap().remove(&oldest);
            world.json(0, &["forget", &oldest]);
        }
    }
    (saves, refused)
}

/// Sweeps again and again.
fn sweeper(world: &World, over: &AtomicBool) -> u64 {
    let mut removed = 0;
    while !over.load(Ordering::Relaxed) {
        let said = world.run(&["gc"]);
        if said.code == 0 {
            let told: Value = serde_json::from_str(&said.out).unwrap();
            removed += told["chunks_removed"].as_u64().unwrap();
        } else {
            assert_eq!(said.code, 1, "{}", said.out);
        }
    }
    removed
}

/// Looks again and again: nothing is ever damaged.
fn looker(world: &World, over: &AtomicBool) -> u64 {
    let mut looks = 0;
    while !over.load(Ordering::Relaxed) {
        let said = world.run(&["check"]);
        assert_eq!(said.code, 0, "{}", said.out);
        looks += 1;
    }
    looks
}

fn saves_beside_a_sweep(world: &World, length: Duration) {
    let (acknowledged, over) = (Acknowledged::default(), AtomicBool::new(false));
    let until = Instant::now() + length;
    let counts = std::thread::scope(|scope| {
        let sweeper = scope.spawn(|| sweeper(world, &over));
        let looker = scope.spawn(|| looker(world, &over));
        let savers: Vec<_> = (0..SAVERS)
            .map(|number| {
                let acknowledged = &acknowledged;
                scope.spawn(move || saver(world, number, until, acknowledged))
            })
            .collect();
        let saved: Vec<_> = savers
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        over.store(true, Ordering::Relaxed);
        let saved: Vec<(u64, u64)> = saved.into_iter().map(Result::unwrap).collect();
        (saved, sweeper.join().unwrap(), looker.join().unwrap())
    });
    println!("saved and refused, chunks swept, looks: {counts:?}");

    world.check();
    let acknowledged = acknowledged.into_inner().unwrap();
    let listed: BTreeSet<String> = world.snapshots().into_iter().collect();
    assert_eq!(listed, acknowledged.keys().cloned().collect());
    for (snapshot, shown) in &acknowledged {
        assert!(world.restored(snapshot) == *shown, "{snapshot}");
    }
    assert!(counts.0.iter().all(|(saves, _)| *saves > 2), "{counts:?}");
    assert!(counts.1 > 0, "nothing was ever swept");
    world.json(0, &["gc"]);
    assert_eq!(world.json(0, &["stats"])["chunks_unused"], 0);
    world.check();
}

#[test]
fn saves_beside_a_sweep_in_a_directory_lose_nothing() {
    let world = World::new();

    saves_beside_a_sweep(&world, Duration::from_secs(seconds()));

    assert_eq!(world.temps(), [""; 0]);
}

#[test]
fn saves_beside_a_sweep_on_a_real_s3_server_lose_nothing() {
    let Some(store) = real_store("STASIS_TEST_S3") else {
        return;
    };
    let own = format!("/beside-{}?", std::process::id());
    let world = World::with(Session::on(&store.replace("/test?", &own)));

    saves_beside_a_sweep(&world, Duration::from_secs(seconds()));
}

fn seconds() -> u64 {
    let asked = std::env::var("STASIS_BESIDE_SECONDS").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(5)
}

/// Appends, cuts, renames and removes until it is told to stop.
fn restless(tree: &Path, over: &AtomicBool) {
    let mut turn = 0_u64;
    while !over.load(Ordering::Relaxed) {
        turn += 1;
        let log = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(tree.join("busy/log"));
        log.unwrap().write_all(&noise(turn, 5000)).unwrap();
        if turn.is_multiple_of(50) {
            let cut = fs::OpenOptions::new()
                .write(true)
                .open(tree.join("busy/log"))
                .unwrap();
            cut.set_len(1_200_000).unwrap();
        }
        let (here, there) = (tree.join("busy/here"), tree.join("busy/there"));
        fs::write(&here, noise(turn, 2000)).unwrap();
        fs::rename(&here, &there).unwrap();
        let number = turn % 200;
        fs::write(tree.join(format!("busy/f{number}")), noise(turn, 900)).unwrap();
        let _ = fs::remove_file(tree.join(format!("busy/f{}", (number + 100) % 200)));
    }
}

#[test]
fn a_tree_that_changes_while_it_is_saved_is_reported_and_still_comes_back() {
    let world = World::new();
    for number in 0..150_u64 {
        world.write(&format!("calm/f{number}"), &noise(number, 4000));
    }
    world.write("busy/log", &noise(1, 1_500_000));
    let (tree, over) = (world.tree(), AtomicBool::new(false));
    let mut reasons: BTreeSet<String> = BTreeSet::new();
    let mut strict = Vec::new();

    std::thread::scope(|scope| {
        scope.spawn(|| restless(&tree, &over));
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until && (reasons.len() < 2 || strict.is_empty()) {
            let saved = world.save(&["--accept-shrink"]);
            let left = saved["left_out_entries"].as_array().unwrap();
            reasons.extend(
                left.iter()
                    .map(|one| one["reason"].as_str().unwrap().to_owned()),
            );
            assert!(
                left.iter()
                    .all(|one| one["path"].as_str().unwrap().starts_with("busy")),
                "{saved}"
            );
            let said = world.run(&["save", text(&tree), "--strict", "--accept-shrink"]);
            strict.extend((said.code != 0).then_some(said.out));
        }
        over.store(true, Ordering::Relaxed);
    });

    println!(
        "left out because: {reasons:?}; {} strict saves failed",
        strict.len()
    );
    assert!(
        reasons.contains("changed") && reasons.contains("vanished"),
        "{reasons:?}"
    );
    assert!(!strict.is_empty(), "a strict save does not look away");
    world.check();
    for snapshot in world.snapshots() {
        let shown = world.restored(&snapshot);
        let calm = shown
            .keys()
            .filter(|path| path.to_str().unwrap().starts_with("calm/"));
        assert_eq!(calm.count(), 150);
    }
}

#[test]
fn many_names_saved_at_once_are_all_in_the_index() {
    let world = World::new();
    world.write("file", b"content");

    let savers: Vec<_> = (0..12)
        .map(|number| world.start(&["save", text(&world.tree()), "--name", &format!("n{number}")]))
        .collect();
    let codes: Vec<i32> = savers.into_iter().map(|saver| ended(saver).code).collect();

    assert_eq!(codes, [0; 12]);
    assert_eq!(world.snapshots().len(), 12);
    world.check();
}
