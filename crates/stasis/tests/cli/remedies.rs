//! What `check`, `repair` and `list` say of damage, and what happens when somebody types the command that they name.

use crate::encrypted::{Keys, by, encrypted};
use crate::repo_world::show;
use crate::session::{STASIS, Said, Session, said};
use crate::store_kinds::{KINDS, Kind, Stored};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The commands that are named between backticks.
fn commands(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let named = quoted.filter(|quoted| quoted.starts_with("stasis "));
    named.map(str::to_owned).collect()
}

/// Types a command that was named, and more words, into a shell.
fn typed(session: &Session, command: &str, more: &str) -> Said {
    let words = command.strip_prefix("stasis ").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("\"$STASIS\" {words} {more}")]);
    shell.env_clear().env("STASIS", STASIS);
    for (name, value) in session.command(&[]).get_envs() {
        shell.envs(value.map(|value| (name, value)));
    }
    said(shell.output().unwrap())
}

/// Two snapshots of a tree.
fn twice(stored: &Stored) -> [String; 2] {
    ["first", "second"].map(|text| {
        stored.write("plan.txt", text.as_bytes());
        stored.saved()
    })
}

/// Checks the store as a person does.
fn checked(stored: &Stored) -> Said {
    let state = stored.at("shop/state").display().to_string();
    let mut words = vec!["repo", "check"];
    if stored.kind == Kind::Project {
        words.extend(["--repo", &state]);
    }
    stored.session.run(&words)
}

fn parsed(said: &Said) -> Value {
    serde_json::from_str(&said.out).unwrap()
}

fn subject(stored: &Stored) -> String {
    match stored.kind {
        Kind::Repository => "dir:default".to_owned(),
        Kind::Everyday => stored.tree().display().to_string(),
        Kind::Project => stored.at("shop").display().to_string(),
    }
}

fn repair(stored: &Stored, more: &[&str]) -> Said {
    let subject = subject(stored);
    let words = [&["--json", "repair", &subject], more].concat();
    stored.session.run(&words)
}

#[test]
fn a_check_names_the_command_that_makes_a_lost_document_anew() {
    for kind in KINDS {
        for lost in ["index.json", "repo.json"] {
            let stored = Stored::new(kind);
            let [_, second] = twice(&stored);
            let was = show(&stored.tree());
            let place = match lost {
                "index.json" => stored.root(),
                _ => stored.pool(),
            };
            fs::write(place.join(lost), "{\"ver").unwrap();

            let found = checked(&stored);

            assert_eq!(found.code, 9, "{kind:?} {lost} {}", found.out);
            assert!(!found.out.contains("copy of the store"), "{}", found.out);
            let [command] = &commands(&found.out)[..] else {
                panic!("{kind:?} {lost}: {}", found.out);
            };
            let planned = typed(&stored.session, command, "");
            assert_eq!(planned.code, 2, "{command}: {}", planned.err);
            assert!(planned.err.contains("would make"), "{}", planned.err);
            let repaired = typed(&stored.session, command, "--confirm");
            assert_eq!(repaired.code, 0, "{command}: {}", repaired.err);
            assert_eq!(checked(&stored).code, 0, "{kind:?} {lost}");
            assert!(stored.restored(&second) == was, "{kind:?} {lost}");
        }
    }
}

/// A directory that was saved once.
fn saved(session: &Session, at: &str, before: &[&str]) -> PathBuf {
    let dir = session.home().join(at);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("plan.txt"), at).unwrap();
    session.data(0, &[before, &["save", dir.to_str().unwrap()]].concat());
    dir
}

/// Where the index of a directory lies, whatever digits its name ends with.
fn index_of(store: &Path, name: &str) -> PathBuf {
    let all = store.join("subjects/default/dir");
    let mut found = crate::repo_world::names(&all).into_iter();
    let is_called = |id: &std::ffi::OsString| id.to_string_lossy().starts_with(name);
    let id = found.find(is_called).unwrap();
    all.join(id).join("index.json")
}

#[test]
fn commands_are_named_for_a_few_subjects_and_the_others_are_counted() {
    let session = Session::new();
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        let _ = saved(&session, name, &[]);
        fs::remove_file(index_of(&session.object(""), &format!("{name}-"))).unwrap();
    }

    let found = session.run(&["repo", "check"]);

    assert_eq!(found.code, 9, "{}", found.out);
    assert_eq!(commands(&found.out).len(), 3, "{}", found.out);
    assert!(found.out.contains("2 more subjects"), "{}", found.out);
    let all = session.json(9, &["repo", "check"]);
    let repairable = all["damage"].as_array().unwrap().iter();
    let repairable =
        repairable.filter(|one| one["remedy"] == "repair" && one["address"]["subject"].is_string());
    assert_eq!(repairable.count(), names.len(), "{all}");
}

#[test]
fn a_command_names_the_store_and_the_tenant_where_it_would_mean_others() {
    let session = Session::new();
    let elsewhere = session.home().join("my store");
    let store = ["--store", elsewhere.to_str().unwrap()];
    let dir = saved(&session, "notes", &store);
    let words = ["project", "save", "--project", dir.to_str().unwrap()];
    session.data(0, &[&store, &words[..], &["--tenant", "acme"]].concat());
    for index in crate::encrypted::files(&elsewhere.join("subjects")) {
        if index.ends_with("index.json") {
            fs::remove_file(index).unwrap();
        }
    }

    let found = session.run(&[&store[..], &["repo", "check"]].concat());

    assert_eq!(found.code, 9, "{}", found.out);
    let named = commands(&found.out);
    assert_eq!(named.len(), 2, "{}", found.out);
    assert!(named[1].contains("--tenant acme"), "{named:?}");
    for command in named {
        let repaired = typed(&session, &command, "--confirm");
        assert_eq!(repaired.code, 0, "{command}: {}", repaired.err);
    }
    session.data(0, &[&store[..], &["repo", "check"]].concat());
}

/// What a check finds, a repair that cannot help against it leaves over: word for word, and with its exit code.
fn assert_left_over(stored: &Stored, remedy: &str) -> Said {
    let found = stored.check();
    assert_eq!(found.code, 9, "{:?} {}", stored.kind, found.out);
    let damage = parsed(&found)["damage"].clone();
    assert_eq!(damage[0]["remedy"], json!(remedy), "{damage}");
    for more in [&[][..], &["--confirm"]] {
        let left = repair(stored, more);
        assert_eq!(left.code, 9, "{:?} {}{}", stored.kind, left.out, left.err);
        let left = parsed(&left);
        assert_eq!(left["documents"], json!([]), "{left}");
        assert_eq!(left["remaining"], damage, "{left}");
    }
    let told = stored.session.run(&["repair", &subject(stored)]);
    assert_eq!(told.code, 9, "{}", told.out);
    assert!(!told.out.contains("nothing to repair"), "{}", told.out);
    told
}

fn assert_nothing_left(stored: &Stored) {
    let told = stored.session.run(&["repair", &subject(stored)]);
    assert_eq!(told.code, 0, "{:?} {}{}", stored.kind, told.out, told.err);
    assert!(told.out.contains("nothing to repair"), "{}", told.out);
    assert_eq!(stored.check().code, 0, "{:?}", stored.kind);
}

#[test]
fn an_index_that_went_back_is_left_over_by_a_repair_and_accepted_by_the_command_that_it_names() {
    for kind in KINDS {
        let stored = Stored::new(kind);
        stored.write("plan.txt", b"first");
        stored.saved();
        // A repair counts on from the clock: what it writes has numbers that mean nothing to anybody.
        let index = stored.root().join("index.json");
        fs::remove_file(&index).unwrap();
        assert_eq!(repair(&stored, &["--confirm"]).code, 0);
        let earlier = fs::read(&index).unwrap();
        stored.write("plan.txt", b"second");
        let second = stored.saved();
        fs::write(&index, &earlier).unwrap();
        fs::remove_file(metadata(&stored, &second)).unwrap();

        let told = assert_left_over(&stored, "accept_rollback");
        assert_listed(&stored, "accept_rollback");

        assert!(told.out.contains("went back"), "{}", told.out);
        let said = told.out.lines().next().unwrap();
        let said = said.split_once("went back").unwrap().1;
        let has_digit = said.chars().any(|c| c.is_ascii_digit());
        assert!(!has_digit, "{said}");
        let [command] = &commands(&told.out)[..] else {
            panic!("{}", told.out);
        };
        let refused = stored.try_save(&[]);
        assert_eq!(refused.code, 9, "{}", refused.out);
        let hint = parsed(&refused)["error"]["hint"].to_string();
        assert!(!hint.contains("SUBJECT"), "{hint}");
        let accepted = typed(&stored.session, command, "");
        assert_eq!(accepted.code, 0, "{command}: {}", accepted.err);
        assert_nothing_left(&stored);
        stored.saved();
    }
}

/// What `list` says of the only subject of a store: the command that it names is the one against what is wrong.
fn assert_listed(stored: &Stored, remedy: &str) {
    // A project has its snapshots beside it, and is in no list.
    if stored.kind == Kind::Project {
        return;
    }
    let listed = stored.session.run(&["list"]);
    assert_eq!(listed.code, 9, "{}{}", listed.out, listed.err);
    assert!(listed.out.contains("damaged"), "{}", listed.out);
    assert_eq!(commands(&listed.err).len(), 1, "{}", listed.err);
    let items = stored.session.json(9, &["list"])["items"].clone();
    assert_eq!(items[0]["error"]["remedy"], remedy, "{items}");
    assert_eq!(items[0]["error"]["kind"], "corrupt", "{items}");
}

#[test]
fn an_index_that_went_back_beside_newer_snapshots_is_not_accepted_and_a_repair_leads_to_them() {
    for kind in KINDS {
        let stored = Stored::new(kind);
        stored.write("plan.txt", b"first");
        let first = stored.saved();
        let index = stored.root().join("index.json");
        let earlier = fs::read(&index).unwrap();
        stored.write("plan.txt", b"second");
        let second = stored.saved();
        let was = show(&stored.tree());
        fs::write(&index, &earlier).unwrap();

        let found = stored.check();
        let accepted = repair(&stored, &["--accept-rollback"]);
        let saved = stored.try_save(&[]);
        let told = checked(&stored);

        assert_eq!(found.code, 9, "{kind:?} {}", found.out);
        let damage = parsed(&found)["damage"].clone();
        assert_eq!(damage.as_array().unwrap().len(), 1, "{damage}");
        assert_eq!(damage[0]["remedy"], "repair", "{damage}");
        for refused in [accepted, saved] {
            assert_eq!(refused.code, 9, "{kind:?} {}", refused.out);
            let error = parsed(&refused)["error"].clone();
            assert!(error.to_string().contains(&second), "{error}");
            let hint = error["hint"].as_str().unwrap();
            assert!(!hint.contains("--accept-rollback"), "{hint}");
            assert_eq!(commands(hint).len(), 1, "{hint}");
        }
        if kind != Kind::Project {
            let all = ["repair", "--all", "--accept-rollback"];
            stored.session.json(9, &all);
        }
        assert_listed(&stored, "repair");
        let [command] = &commands(&told.out)[..] else {
            panic!("{}", told.out);
        };
        let planned = typed(&stored.session, command, "");
        assert_eq!(planned.code, 2, "{command}: {}", planned.err);
        assert!(planned.err.contains(&second), "{}", planned.err);
        assert_eq!(fs::read(&index).unwrap(), earlier, "a plan changes nothing");
        let repaired = typed(&stored.session, command, "--confirm");
        assert_eq!(repaired.code, 0, "{command}: {}", repaired.err);
        let kept = repaired.out.split_once("is kept in ").unwrap().1;
        let kept = kept.lines().next().unwrap();
        let store = match kind {
            Kind::Project => stored.at("shop/state"),
            _ => stored.session.object(""),
        };
        assert_eq!(fs::read(store.join(kept)).unwrap(), earlier, "{kept}");
        assert_nothing_left(&stored);
        assert!(stored.restored(&second) == was, "{kind:?}");
        // Nor does the next save take it for what a killed one left.
        stored.write("plan.txt", b"third");
        stored.saved();
        assert!(stored.restored(&second) == was, "{kind:?}");
        let _ = stored.restored(&first);
    }
}

#[test]
fn what_was_pinned_or_forgotten_stays_so_where_an_index_that_went_back_is_made_anew() {
    let stored = Stored::new(Kind::Everyday);
    let [first, gone] = twice(&stored);
    stored.write("plan.txt", b"third");
    stored.saved();
    stored.session.json(0, &["repo", "pin", &first]);
    stored.session.json(0, &["repo", "forget", &gone]);
    let index = stored.root().join("index.json");
    let earlier = fs::read(&index).unwrap();
    stored.write("plan.txt", b"fourth");
    let newest = stored.saved();
    // What was forgotten is still there, until a gc comes.
    assert!(metadata(&stored, &gone).exists());
    fs::write(&index, &earlier).unwrap();

    let repaired = repair(&stored, &["--confirm"]);

    assert_eq!(repaired.code, 0, "{}{}", repaired.out, repaired.err);
    let repaired = parsed(&repaired);
    assert_eq!(repaired["latest"], json!(newest), "{repaired}");
    let snapshots = repaired["snapshots"].as_array().unwrap();
    assert_eq!(snapshots.len(), 3, "{repaired}");
    assert!(!snapshots.contains(&json!(gone)), "{repaired}");
    let refused = stored.session.run(&["repo", "forget", &first]);
    assert_ne!(refused.code, 0, "it is pinned: {}", refused.out);
}

#[test]
fn a_snapshot_that_cannot_be_proven_stops_the_repair_of_an_index_that_went_back() {
    let stored = Stored::new(Kind::Everyday);
    let [first, second] = twice(&stored);
    let index = stored.root().join("index.json");
    let earlier = fs::read(&index).unwrap();
    stored.write("plan.txt", b"third");
    stored.saved();
    fs::write(&index, &earlier).unwrap();
    fs::remove_file(metadata(&stored, &first)).unwrap();

    let stopped = repair(&stored, &["--confirm"]);

    assert_eq!(stopped.code, 11, "{}", stopped.out);
    assert!(stopped.out.contains(&first), "{}", stopped.out);
    assert_eq!(fs::read(&index).unwrap(), earlier);
    let left = repair(&stored, &["--confirm", "--leave-out"]);
    assert_eq!(left.code, 0, "{}{}", left.out, left.err);
    assert_nothing_left(&stored);
    let _ = stored.restored(&second);
}

/// Where the metadata of a snapshot lies.
fn metadata(stored: &Stored, id: &str) -> PathBuf {
    let all = crate::encrypted::files(&stored.root().join("snapshots"));
    let mut all = all.into_iter();
    let found = all.find(|path| path.display().to_string().contains(id));
    found.unwrap()
}

#[test]
fn a_snapshot_that_is_missing_is_left_over_by_a_repair_and_forgotten_by_the_command_that_it_names()
{
    for kind in KINDS {
        let stored = Stored::new(kind);
        let [first, second] = twice(&stored);
        fs::remove_file(metadata(&stored, &first)).unwrap();

        let told = assert_left_over(&stored, "forget");

        let [command] = &commands(&told.out)[..] else {
            panic!("{}", told.out);
        };
        assert!(command.contains(&first), "{command}");
        let planned = typed(&stored.session, command, "");
        assert_eq!(planned.code, 2, "{command}: {}", planned.err);
        let forgotten = typed(&stored.session, command, "--confirm");
        assert_eq!(forgotten.code, 0, "{command}: {}", forgotten.err);
        assert_nothing_left(&stored);
        let _ = stored.restored(&second);
    }
}

#[test]
fn a_key_that_is_missing_is_left_over_by_a_repair() {
    let keys = Keys::new();
    for kind in KINDS {
        let stored = encrypted(kind, &keys);
        twice(&stored);
        let key = stored.pool().join("key.json");
        let whole = fs::read(&key).unwrap();
        fs::remove_file(&key).unwrap();

        let told = assert_left_over(&stored, "copy");

        assert!(told.out.contains("key.json: "), "{}", told.out);
        assert!(told.out.contains("from a copy of the store"));
        // Nor does it look whole to somebody without a key, on whatever host.
        if kind != Kind::Project {
            let other = Session::on(&format!("file://{}", stored.session.object("").display()));
            let found = other.json(9, &["repo", "check"]);
            assert_eq!(found["damage"][0]["what"], "key.json", "{found}");
            by(&stored, None, 9, &["repo", "check"]);
        }
        fs::write(&key, whole).unwrap();
        assert_nothing_left(&stored);
    }
}

#[test]
fn a_profile_whose_pointer_went_back_or_whose_archive_is_gone_is_not_said_to_need_no_repair() {
    let session = Session::new();
    let profile = session.home().join("profile");
    let put = |path: &str, text: &str| {
        let path = profile.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("Last Version", "131.0.6778.85");
    put("Local State", "{}");
    put(
        "Default/Preferences",
        "{\"profile\":{\"exit_type\":\"Normal\"}}",
    );
    let save = [
        "profile",
        "save",
        "acme/alice",
        "--dir",
        profile.to_str().unwrap(),
    ];
    session.json(0, &save);
    let pointer = session.object("snapshots/acme/alice/131/latest.json");
    let earlier = fs::read(&pointer).unwrap();
    put("Local State", "{\"more\": 1}");
    session.json(0, &save);
    let newer = fs::read(&pointer).unwrap();
    let subject = "profile:acme/alice@131";
    fs::write(&pointer, &earlier).unwrap();

    let went_back = session.run(&["repair", subject]);
    fs::write(&pointer, &newer).unwrap();
    let whole = session.run(&["repair", subject]);
    let archives = crate::encrypted::files(&session.object("snapshots/acme/alice/131"));
    let mut archives = archives.into_iter();
    let is_archive = |path: &PathBuf| path.display().to_string().ends_with(".tar.zst");
    fs::remove_file(archives.find(is_archive).unwrap()).unwrap();
    let without = session.run(&["repair", subject, "--confirm"]);

    assert_eq!(went_back.code, 9, "{}{}", went_back.out, went_back.err);
    let newer: Value = serde_json::from_slice(&newer).unwrap();
    let newer = newer["active_sha256_prefix"].as_str().unwrap();
    assert!(went_back.out.contains(newer), "{}", went_back.out);
    let accept = format!("stasis repair {subject} --accept-rollback");
    assert_eq!(commands(&went_back.out), [accept], "{}", went_back.out);
    assert_eq!(whole.code, 0, "{}{}", whole.out, whole.err);
    assert_eq!(without.code, 9, "{}{}", without.out, without.err);
    assert!(
        without.out.contains("its archive is missing"),
        "{}",
        without.out
    );
}

#[test]
fn a_list_shows_all_others_and_says_after_the_table_what_is_wrong_with_one() {
    let session = Session::new();
    for name in ["a", "b", "c"] {
        let _ = saved(&session, name, &[]);
    }
    fs::write(index_of(&session.object(""), "b-"), "{").unwrap();

    let listed = session.run(&["list"]);
    let items = session.json(9, &["list"])["items"].clone();

    assert_eq!(listed.code, 9, "{}", listed.err);
    let rows: Vec<&str> = listed.out.lines().collect();
    assert_eq!(rows.len(), 4, "{}", listed.out);
    let damaged: Vec<_> = rows.iter().filter(|row| row.contains("damaged")).collect();
    assert_eq!(damaged.len(), 1, "{}", listed.out);
    assert!(damaged[0].starts_with("dir:b-"), "{}", listed.out);
    assert!(!listed.out.contains("cannot be used"), "{}", listed.out);
    assert!(listed.err.starts_with("error: dir:b-"), "{}", listed.err);
    assert!(listed.err.contains("because: "), "{}", listed.err);
    let items = items.as_array().unwrap();
    assert_eq!(items.len(), 3);
    assert!(items[0].get("error").is_none() && items[2].get("error").is_none());
    let error = &items[1]["error"];
    assert_eq!(error["kind"], "corrupt", "{error}");
    assert_eq!(error["remedy"], "repair", "{error}");
    assert!(error["message"].is_string(), "{error}");
    let [command] = &commands(&listed.err)[..] else {
        panic!("{}", listed.err);
    };
    let repaired = typed(&session, command, "--confirm");
    assert_eq!(repaired.code, 0, "{command}: {}", repaired.err);
    // Nobody looked at what the documents lead to: nothing is said to be well.
    let listed = session.run(&["list"]);
    assert_eq!(listed.code, 0, "{}", listed.err);
    let mut words = listed.out.split_whitespace();
    assert!(words.all(|word| word != "ok"), "{}", listed.out);
}

#[test]
fn a_list_ends_with_the_code_of_damage_whatever_is_wrong_with_what_comes_before_it() {
    let session = Session::new();
    let dir = saved(&session, "b", &[]);
    let words = ["project", "save", "--project", dir.to_str().unwrap()];
    session.data(0, &[&words[..], &["--tenant", "acme"]].concat());
    let place = session.object("pools/acme/repo.json");
    let mut repo: Value = serde_json::from_slice(&fs::read(&place).unwrap()).unwrap();
    repo["incompat"] = json!(["what comes later"]);
    fs::write(&place, repo.to_string()).unwrap();
    session.json(11, &["list"]);
    fs::write(index_of(&session.object(""), "b-"), "{").unwrap();

    let listed = session.json(9, &["list"]);

    let kinds: Vec<&Value> = listed["items"].as_array().unwrap().iter().collect();
    let kinds = kinds.iter().map(|item| item["error"]["kind"].clone());
    assert_eq!(kinds.collect::<Vec<_>>(), ["limit", "corrupt"], "{listed}");
}

#[test]
fn a_repair_whose_check_fails_tells_what_it_did_and_does_not_end_as_if_all_were_well() {
    let stored = Stored::new(Kind::Everyday);
    let [_, second] = twice(&stored);
    fs::write(stored.pool().join("gc.json"), "{").unwrap();
    // Nothing but a check looks there, and no store follows a link.
    let quarantine = stored.pool().join("quarantine");
    std::os::unix::fs::symlink("nowhere", &quarantine).unwrap();
    let subject = subject(&stored);

    let planned = stored.session.run(&["repair", &subject]);
    let repaired = stored.session.run(&["repair", &subject, "--confirm"]);
    let nothing = stored.session.run(&["repair", &subject]);
    let checked = checked(&stored);

    assert_eq!(planned.code, 2, "{}", planned.err);
    assert!(planned.err.contains("would make"), "{}", planned.err);
    assert!(
        planned.err.contains("could not be checked"),
        "{}",
        planned.err
    );
    assert!(repaired.out.contains("made pools/"), "{}", repaired.out);
    assert!(
        repaired.err.contains("could not be checked"),
        "{}",
        repaired.err
    );
    assert_ne!(checked.code, 0, "{}", checked.out);
    assert_eq!(repaired.code, checked.code, "{}", checked.err);
    assert_eq!(nothing.code, checked.code, "{}{}", nothing.out, nothing.err);
    fs::remove_file(quarantine).unwrap();
    assert_nothing_left(&stored);
    let _ = stored.restored(&second);
}

#[test]
fn a_hint_to_forget_names_a_few_snapshots_and_counts_the_others() {
    let stored = Stored::new(Kind::Everyday);
    let mut ids = Vec::new();
    for number in 0..6 {
        stored.write("plan.txt", format!("plan {number}").as_bytes());
        ids.push(stored.saved());
    }
    for id in &ids[..5] {
        fs::remove_file(metadata(&stored, id)).unwrap();
    }

    let found = checked(&stored);

    assert_eq!(found.code, 9, "{}", found.out);
    let [command] = &commands(&found.out)[..] else {
        panic!("{}", found.out);
    };
    let named = ids.iter().filter(|id| command.contains(id.as_str()));
    assert_eq!(named.count(), 3, "{command}");
    assert!(found.out.contains("2 more snapshots"), "{}", found.out);
    let forgotten = typed(&stored.session, command, "--confirm");
    assert_eq!(forgotten.code, 0, "{command}: {}", forgotten.err);
    assert_eq!(stored.check().code, 9, "two are left");
}

#[test]
fn what_is_wrong_with_a_pool_is_listed_with_each_of_its_subjects_and_said_once() {
    let session = Session::new();
    for name in ["a", "b"] {
        let _ = saved(&session, name, &[]);
    }
    fs::remove_file(session.object("pools/default/repo.json")).unwrap();

    let listed = session.run(&["list"]);

    assert_eq!(listed.code, 9, "{}", listed.err);
    assert_eq!(listed.out.matches("damaged").count(), 2, "{}", listed.out);
    assert_eq!(listed.err.matches("error: ").count(), 1, "{}", listed.err);
    let [command] = &commands(&listed.err)[..] else {
        panic!("{}", listed.err);
    };
    assert_eq!(typed(&session, command, "--confirm").code, 0);
    session.data(0, &["list"]);
}

#[test]
fn a_stray_key_beside_what_is_plain_is_named_once_and_may_be_removed() {
    let keys = Keys::new();
    let (plain, other) = (
        Stored::new(Kind::Everyday),
        encrypted(Kind::Everyday, &keys),
    );
    let [first, second] = twice(&plain);
    twice(&other);
    let key = plain.pool().join("key.json");
    fs::copy(other.pool().join("key.json"), &key).unwrap();
    let other_host = Session::on(&format!("file://{}", plain.session.object("").display()));

    let found = other_host.json(9, &["repo", "check"]);
    let told = other_host.run(&["repo", "check"]);

    let damage = found["damage"].as_array().unwrap();
    assert_eq!(damage.len(), 1, "{found}");
    assert_eq!(damage[0]["what"], "key.json");
    assert_eq!(damage[0]["remedy"], "stray_key");
    assert!(told.out.contains("may be removed"), "{}", told.out);
    let [accept] = &commands(&told.out)[..] else {
        panic!("{}", told.out);
    };
    let remedy_in_list = |host: &Session| {
        let listed = host.json(9, &["list"]);
        listed["items"][0]["error"]["remedy"].clone()
    };
    assert_eq!(remedy_in_list(&other_host), "stray_key");
    // A snapshot that is missing is named all the same.
    let aside = fs::read(metadata(&plain, &first)).unwrap();
    let missing = metadata(&plain, &first);
    fs::remove_file(&missing).unwrap();
    let found = other_host.json(9, &["repo", "check"]);
    assert_eq!(found["damage"].as_array().unwrap().len(), 2, "{found}");
    fs::write(missing, aside).unwrap();
    fs::remove_file(&key).unwrap();
    let host = Session::on(&format!("file://{}", plain.session.object("").display()));
    host.data(0, &["repo", "check"]);
    let to = host.home().join("to");
    let words = ["repo", "restore", &second, to.to_str().unwrap()];
    host.data(0, &words);
    // A host that has seen the key says so, once, and goes on after the command that was named.
    let found = other_host.json(9, &["repo", "check"]);
    let damage = found["damage"].as_array().unwrap();
    assert_eq!(damage.len(), 1, "{found}");
    assert_eq!(damage[0]["what"], "key.json");
    assert_eq!(damage[0]["remedy"], "accept_rollback");
    let told = other_host.run(&["repo", "check"]);
    assert_eq!(&commands(&told.out), std::slice::from_ref(accept));
    assert_eq!(remedy_in_list(&other_host), "accept_rollback");
    let accepted = typed(&other_host, accept, "");
    assert_eq!(accepted.code, 0, "{accept}: {}", accepted.err);
    other_host.data(0, &["repo", "check"]);
    other_host.data(0, &["list"]);
    let to = other_host.home().join("to");
    let words = ["repo", "restore", &second, to.to_str().unwrap()];
    other_host.data(0, &words);
}

#[test]
fn where_something_is_encrypted_it_is_not_the_key_that_is_too_much() {
    let keys = Keys::new();
    let (plain, other) = (
        Stored::new(Kind::Everyday),
        encrypted(Kind::Everyday, &keys),
    );
    twice(&plain);
    twice(&other);
    let repo = fs::read(plain.pool().join("repo.json")).unwrap();
    fs::write(other.pool().join("repo.json"), repo).unwrap();
    let found = by(&other, None, 9, &["repo", "check"]);
    assert_eq!(found["damage"][0]["what"], "repo.json", "{found}");
    assert_eq!(found["damage"][0]["remedy"], "copy", "{found}");
    fs::remove_file(other.pool().join("key.json")).unwrap();
    let found = by(&other, None, 9, &["repo", "check"]);
    assert_eq!(found["damage"][0]["what"], "key.json", "{found}");
    assert_eq!(found["damage"][0]["remedy"], "copy", "{found}");
}

#[test]
fn a_stray_key_that_was_removed_and_an_index_that_went_back_are_mended_one_after_the_other() {
    let keys = Keys::new();
    let (plain, other) = (
        Stored::new(Kind::Everyday),
        encrypted(Kind::Everyday, &keys),
    );
    plain.write("plan.txt", b"first");
    plain.saved();
    let index = plain.root().join("index.json");
    let earlier = fs::read(&index).unwrap();
    plain.write("plan.txt", b"second");
    let second = plain.saved();
    twice(&other);
    let key = plain.pool().join("key.json");
    fs::copy(other.pool().join("key.json"), &key).unwrap();
    assert_eq!(plain.check().code, 9);
    fs::remove_file(&key).unwrap();
    fs::write(&index, &earlier).unwrap();

    let refused = repair(&plain, &["--accept-rollback"]);
    let repaired = repair(&plain, &["--confirm"]);

    assert_eq!(refused.code, 9, "{}", refused.out);
    assert!(refused.out.contains(&second), "{}", refused.out);
    assert_eq!(repaired.code, 0, "{}{}", repaired.out, repaired.err);
    assert_nothing_left(&plain);
    let _ = plain.restored(&second);
}
