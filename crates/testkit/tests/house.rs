//! The house as it is drawn: which crate may lean on which, and what may come in from outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "house/paths.rs"]
mod paths;
#[path = "house/system.rs"]
mod system;
#[path = "house/words.rs"]
mod words;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What each crate may depend on, of ours and of others.
const DRAWING: [(&str, &str); 8] = [
    (
        "model",
        "serde serde_json schemars sha2 subtle blake3 fastcdc uuid thiserror base64",
    ),
    // Below the arms: each of them asks this system for something.
    ("sys", "stasis-model landlock libc rustix seccompiler"),
    (
        "store",
        "stasis-model stasis-sys async-trait bytes chrono futures-util http md-5 object_store percent-encoding quick-xml reqwest rustix schemars serde serde_json sha2 thiserror \
         tokio tracing",
    ),
    (
        "disk",
        "stasis-model stasis-sys aws-lc-rs blake3 crc32c flate2 ignore rusqlite rustix snap thiserror zeroize zstd",
    ),
    (
        "quiesce",
        "stasis-model stasis-sys bollard bytes futures-util http rusqlite rustix serde serde_json thiserror tokio tokio-tungstenite tracing",
    ),
    (
        "engine",
        "stasis-model stasis-sys stasis-store stasis-disk stasis-quiesce bytes chrono futures-util getrandom rusqlite rustix schemars serde serde_json similar thiserror tokio \
         toml tracing",
    ),
    (
        "stasis",
        "stasis-engine stasis-sys anyhow bytes clap clap_complete clap_mangen comfy-table form_urlencoded fuser http http-body-util hyper hyper-util indicatif matchit \
         percent-encoding rmcp rustix schemars serde serde_json similar tokio tokio-rustls toml tracing tracing-subscriber",
    ),
    // Measures the binary from outside, beside its peers: it leans on nothing of ours.
    ("peers", "anyhow clap rusqlite rustix serde serde_json"),
];

fn drawing() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let room = |(room, may): (&'static str, &'static str)| (room, may.split_whitespace().collect());
    DRAWING.into_iter().map(room).collect()
}

fn metadata() -> Value {
    // A runner without a toolchain of its own is given the answer.
    if let Some(answer) = std::env::var_os("STASIS_CARGO_METADATA") {
        return serde_json::from_slice(&std::fs::read(answer).unwrap()).unwrap();
    }
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version=1",
            "--locked",
            "--offline",
            "--filter-platform=x86_64-unknown-linux-gnu",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

#[test]
fn the_drawing_holds() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let ours = packages
        .iter()
        .filter(|package| package["source"].is_null());

    let mut seen = BTreeSet::new();
    for package in ours {
        let directory = Path::new(text(package, "manifest_path")).parent().unwrap();
        let room = directory.file_name().unwrap().to_str().unwrap();
        seen.insert(room.to_owned());
        if room == "testkit" {
            continue;
        }
        let may = &drawing()[room];
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = text(dependency, "name");
            let for_tests = text(dependency, "kind") == "dev";
            assert!(
                for_tests || may.contains(name),
                "`{room}` must not depend on `{name}`: see docs/architecture.md"
            );
            assert!(
                !for_tests || name != "stasis",
                "nothing may lean on the app"
            );
        }
    }
    let drawn: BTreeSet<String> = drawing().keys().map(|room| (*room).to_owned()).collect();
    assert_eq!(
        seen.difference(&drawn).collect::<Vec<_>>(),
        ["testkit"],
        "every crate is in the drawing"
    );
}

#[test]
fn the_model_has_no_clock_no_randomness_and_no_files() {
    let banned = [
        "std::fs",
        "std::net",
        "SystemTime::now",
        "Instant::now",
        "tokio",
        "rand::",
        "std::env",
    ];

    for file in rust_files(&root().join("crates/model/src")) {
        let source = std::fs::read_to_string(&file).unwrap();
        for (number, line) in source
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
        {
            let found = banned.iter().find(|word| line.contains(**word));
            assert!(
                found.is_none(),
                "{}:{}: {found:?}",
                file.display(),
                number + 1
            );
        }
    }
}

#[test]
fn keys_are_spelled_in_one_file_only() {
    let roots = [
        "\"snapshots/",
        "\"events/",
        "\"tenants/",
        "\"operations/",
        "\"meta/",
        "latest.json\")",
        "lock.json\")",
    ];

    for file in rust_files(&root().join("crates/store/src")) {
        if file.ends_with("layout.rs") {
            continue;
        }
        let source = std::fs::read_to_string(&file).unwrap();
        let production = source.split("#[cfg(test)]").next().unwrap();
        let found = roots.iter().find(|root| production.contains(**root));
        assert!(
            found.is_none(),
            "{} spells a key: {found:?}",
            file.display()
        );
    }
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let inner = directories
        .iter()
        .flat_map(|directory| rust_files(directory));
    files
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .chain(inner)
        .collect()
}

/// A line that names no test would leave one out of a run without a word.
#[test]
fn every_line_in_the_lists_of_tests_names_one() {
    let sources: Vec<String> = rust_files(&root().join("crates"))
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    let lines = || sources.iter().flat_map(|source| source.lines());
    let is_module = |end: &str| {
        lines().any(|line| {
            line.contains("mod ") && line.trim_end_matches([';', ' ', '{']).ends_with(end)
        })
    };
    let is_test = |part: &str| {
        lines().any(|line| {
            line.split_once("fn ")
                .is_some_and(|(_, name)| name.contains(part))
        })
    };

    for list in [".config/root-tests", ".config/slow-tests"] {
        let wanted = std::fs::read_to_string(root().join(list)).unwrap();
        let wanted = wanted.lines().filter(|line| !line.starts_with('#'));
        for line in wanted.filter(|line| !line.is_empty()) {
            let (modules, test) = line.rsplit_once("::").unwrap_or(("", line));
            let mut modules = modules.split("::").filter(|module| !module.is_empty());
            assert!(
                modules.all(is_module) && is_test(test),
                "{list}: no test is named `{line}`"
            );
        }
    }
}

/// Nobody but root can start a Docker engine: a test that needs one, and runs as an ordinary user only, never runs at all.
#[test]
fn tests_with_a_docker_engine_run_as_root() {
    let list = std::fs::read_to_string(root().join(".config/root-tests")).unwrap();
    let mut needy = 0;
    for file in rust_files(&root().join("crates")) {
        let source = std::fs::read_to_string(&file).unwrap();
        let uses = [
            "use stasis_testkit::docker::",
            "use crate::container_host::",
        ];
        let is_needy = |line: &str| uses.iter().any(|start| line.starts_with(start));
        let has_tests = |line: &str| line == "#[test]" || line.starts_with("#[tokio::test");
        if !source.lines().any(is_needy) || !source.lines().any(has_tests) {
            continue;
        }
        needy += 1;
        let module = format!("{}::", file.file_stem().unwrap().to_str().unwrap());
        let is_named = |line: &str| line == module || source.contains(&format!("fn {line}("));
        assert!(
            list.lines().any(is_named),
            "{}: no line of .config/root-tests names its tests",
            file.display()
        );
    }
    assert!(needy >= 8, "only {needy} files were found");
}

#[test]
fn what_comes_in_is_allowed() {
    let rules: toml::Value =
        toml::from_str(&std::fs::read_to_string(root().join("deny.toml")).unwrap()).unwrap();
    let list = |section: &str, name: &str| rules[section][name].as_array().unwrap().clone();
    let allowed: Vec<String> = list("licenses", "allow")
        .iter()
        .map(|licence| licence.as_str().unwrap().to_owned())
        .collect();
    let banned: Vec<String> = list("bans", "deny")
        .iter()
        .map(|entry| entry["name"].as_str().unwrap().to_owned())
        .collect();

    for package in metadata()["packages"].as_array().unwrap() {
        let (name, source, licence) = (
            text(package, "name"),
            text(package, "source"),
            text(package, "license"),
        );
        assert!(
            !banned.iter().any(|banned| banned == name),
            "`{name}` is banned"
        );
        assert!(
            source.is_empty() || source.starts_with("registry+"),
            "`{name}` comes from {source}"
        );
        assert!(
            is_allowed(licence, &allowed),
            "`{name}` has licence `{licence}`"
        );
    }
}

/// Whether a licence expression can be satisfied: every part of an AND, any part of an OR.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let plain = expression.replace('/', " OR ").replace(['(', ')'], "");
    let one = |name: &str| allowed.iter().any(|allowed| allowed == name.trim());
    plain.split(" AND ").all(|part| part.split(" OR ").any(one))
}
