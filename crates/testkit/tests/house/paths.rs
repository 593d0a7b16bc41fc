//! The map of the code: every path that `docs/architecture.md` names leads somewhere.
//!
//! A path is written from the root (`crates/model/src/id.rs`), by its crate (`model/id.rs`, without `src`), or, after one of
//! these in the same row or section, by its end (`lease.rs`, `step/lock.rs`) in the crate that was named last.

use super::root;
use std::collections::BTreeSet;
use std::path::Path;

const CRATES: [&str; 8] = [
    "model", "sys", "store", "disk", "quiesce", "engine", "stasis", "testkit",
];

/// Every file and directory of the crates, from the root.
fn places() -> BTreeSet<String> {
    fn add(directory: &Path, name: &str, places: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{name}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                add(&entry.path(), &name, places);
            }
            places.insert(name);
        }
    }
    let mut places = BTreeSet::new();
    for room in CRATES {
        let name = format!("crates/{room}");
        add(&root().join(&name), &name, &mut places);
    }
    places
}

/// The words in backticks that are paths.
fn named(line: &str) -> impl Iterator<Item = &str> {
    let is_path = |word: &&str| {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        let is_file = Path::new(word).extension().is_some_and(|end| end == "rs");
        let is_place = word.contains('/') || is_file;
        is_place && !word.starts_with(['/', '.']) && word.chars().all(is_name)
    };
    line.split('`').skip(1).step_by(2).filter(is_path)
}

/// Where a path leads, given the crate that was named before it.
fn found(word: &str, before: Option<&str>, places: &BTreeSet<String>) -> Option<String> {
    let word = word.trim_end_matches('/');
    let has = |place: &String| places.contains(place) || root().join(place).exists();
    let (first, rest) = word.split_once('/').unwrap_or(("", word));
    let by_crate = || {
        CRATES
            .contains(&first)
            .then(|| format!("crates/{first}/src/{rest}"))
    };
    let in_crates = || CRATES.contains(&first).then(|| format!("crates/{word}"));
    let by_end = || {
        let (room, end) = (format!("crates/{}/", before?), format!("/{word}"));
        let mut places = places.iter();
        places
            .find(|place| place.starts_with(&room) && place.ends_with(&end))
            .cloned()
    };
    let from_root = (!first.is_empty()).then(|| word.to_owned());
    let spelled = [from_root, by_crate(), in_crates()];
    spelled.into_iter().flatten().find(has).or_else(by_end)
}

/// The paths of a document that lead nowhere.
fn lost(document: &str, places: &BTreeSet<String>) -> Vec<String> {
    let mut lost = Vec::new();
    let (mut before, mut is_code) = (None, false);
    for (number, line) in document.lines().enumerate() {
        is_code ^= line.starts_with("```");
        if is_code {
            continue;
        }
        if line.starts_with(['#', '|']) {
            before = None;
        }
        for word in named(line) {
            let Some(place) = found(word, before.as_deref(), places) else {
                lost.push(format!("line {}: {word}", number + 1));
                continue;
            };
            let room = place
                .strip_prefix("crates/")
                .and_then(|rest| rest.split('/').next());
            before = room.map(str::to_owned).or(before);
        }
    }
    lost
}

#[test]
fn every_path_on_the_map_leads_somewhere() {
    let map = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();

    let lost = lost(&map, &places());

    assert!(lost.is_empty(), "docs/architecture.md: {lost:#?}");
}

/// The words of the floor plan, by crate.
fn floor_plan(map: &str) -> Vec<(&str, BTreeSet<&str>)> {
    let plan = map.split("## The floor plan").nth(1).unwrap();
    let plan = plan.split("```").nth(1).unwrap();
    let mut rooms: Vec<(&str, BTreeSet<&str>)> = Vec::new();
    for line in plan.lines().skip(1) {
        let mut line = line;
        if let Some((room, rest)) = line
            .split_once('/')
            .filter(|(room, _)| CRATES.contains(room))
        {
            rooms.push((room, BTreeSet::new()));
            line = rest;
        }
        let words = line
            .split([',', ' '])
            .map(|word| word.trim_end_matches('/'));
        rooms.last_mut().unwrap().1.extend(words);
    }
    rooms
}

#[test]
fn every_module_is_on_the_floor_plan() {
    let map = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();

    let plan = floor_plan(&map);

    assert_eq!(plan.len(), CRATES.len() - 1, "all crates but testkit");
    for (room, words) in plan {
        for entry in std::fs::read_dir(root().join("crates").join(room).join("src")).unwrap() {
            let entry = entry.unwrap().path();
            let module = entry.file_stem().unwrap().to_str().unwrap();
            let is_known = ["lib", "main"].contains(&module) || words.contains(module);
            assert!(is_known, "`{module}` of `{room}` is not on the floor plan");
        }
    }
}

#[test]
fn a_path_that_leads_nowhere_is_named() {
    let places = places();
    for well in [
        "`crates/model/src/id.rs`, `digest.rs`",
        "`model/protocol/step.rs` and `step/lock.rs`",
        "`crates/testkit/tests/house.rs`, `scripts/test`",
        "`latest.json`, `/`, `.NAME.stasis-tmp-1`",
    ] {
        assert_eq!(lost(well, &places), [""; 0], "{well}");
    }
    for wrong in [
        "`crates/model/src/nowhere.rs`",
        "`model/nowhere.rs`",
        "`id.rs`, which no crate was named for",
        "`crates/store/src/layout.rs`, `retention.rs`",
    ] {
        assert_eq!(lost(wrong, &places).len(), 1, "{wrong}");
    }
}
