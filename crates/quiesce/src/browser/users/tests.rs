#![expect(clippy::disallowed_methods, reason = "a test writes its own files")]

use super::super::fake_browser::{FakeBrowser, home};
use super::*;
use crate::process::ProcessState;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

const OURS: u32 = 90;

fn seen(pid: u32, parent: u32, words: &str) -> Evidence {
    Evidence {
        row: ProcessInfo {
            identity: ProcessId::new(pid, u64::from(pid)),
            parent,
            group: 1,
            session: 1,
            state: ProcessState::Alive,
        },
        claim: DirectoryClaim {
            names_it: words.contains("names"),
            is_helper: words.contains("helper"),
        },
        opened: words.contains("opened"),
        line: words.replace("copy ", "").into_bytes(),
    }
}

/// The roles, as `pid role`, that come of what was seen; a process of which nothing was seen has no words.
fn judged(all: &[(u32, u32, &str)], lock: Option<u32>) -> Vec<String> {
    let all: Vec<Evidence> = all
        .iter()
        .map(|(pid, parent, words)| seen(*pid, *parent, words))
        .collect();
    let table: ProcessTable = all.iter().map(|found| found.row).collect();
    let roles = roles(&table, &all, lock, OURS);
    let told = roles
        .iter()
        .map(|(identity, role)| format!("{} {role:?}", identity.pid()));
    told.collect()
}

#[test]
fn a_copy_that_has_not_begun_its_program_is_a_child() {
    let all = [(30, 1, "names opened"), (31, 30, "copy names opened")];

    assert_eq!(judged(&all, None), ["30 Browser", "31 Child"]);
}

#[test]
fn the_lock_names_the_browser_and_who_started_it_is_its_launcher() {
    let all = [
        (20, 1, "names opened, a script"),
        (30, 20, "names opened"),
        (31, 30, "names helper"),
        (32, 31, ""),
    ];

    assert_eq!(
        judged(&all, Some(30)),
        ["30 Browser", "31 Child", "32 Child", "20 Bystander"]
    );
    assert_eq!(judged(&all, None), judged(&all, Some(30)));
}

#[test]
fn a_lock_of_a_process_that_works_elsewhere_is_stale() {
    let all = [(20, 1, ""), (30, 1, "names opened"), (40, 1, "helper")];

    assert_eq!(judged(&all, Some(20)), ["30 Browser"]);
    assert_eq!(judged(&all, Some(40)), ["30 Browser"]);
    assert_eq!(judged(&all, Some(77)), ["30 Browser"]);
}

#[test]
fn a_browser_in_its_usual_directory_is_known_by_its_helpers() {
    let all = [(30, 1, "opened"), (31, 30, "helper"), (40, 1, "opened")];

    assert_eq!(
        judged(&all, None),
        ["30 Browser", "31 Child", "40 Bystander"]
    );
}

#[test]
fn who_only_names_the_directory_is_no_browser() {
    let all = [(30, 1, "names"), (40, 1, "opened")];

    assert_eq!(judged(&all, None), ["30 Launcher", "40 Bystander"]);
}

#[test]
fn helpers_whose_browser_has_ended_are_still_of_it() {
    let all = [(30, 1, "names helper"), (31, 1, "helper")];

    assert_eq!(judged(&all, None), ["30 Child"]);
}

#[test]
fn neither_we_nor_those_who_started_us_are_launchers() {
    let all = [(30, 1, "names"), (OURS, 30, ""), (40, 1, "names")];

    assert_eq!(judged(&all, None), ["40 Launcher"]);
}

#[test]
fn we_are_no_child_even_if_the_browser_started_us() {
    let all = [(30, 1, "names opened"), (OURS, 30, "")];

    assert_eq!(judged(&all, Some(30)), ["30 Browser"]);
}

const WORKS: &str = "exec 9>ada/open; echo ready; read never";
const OPENS_NOTHING: &str = "echo ready; read never";

fn found(home: &TempDir, name: &str) -> Vec<(u32, ProcessRole)> {
    let users = users_of(&home.path().join(name)).unwrap();
    let found = users.iter().map(|user| (user.process.pid(), user.role));
    found
        .filter(|(_, role)| *role != ProcessRole::Child)
        .collect()
}

#[test]
fn a_directory_is_recognised_by_any_of_its_names() {
    let home = home();
    let whole = format!("--user-data-dir={}", home.path().join("ada").display());

    for argument in [
        whole.as_str(),
        "--user-data-dir=ada",
        "--user-data-dir=./link/",
        "--user-data-dir=ada2/../ada",
    ] {
        let browser = FakeBrowser::start(&home, OPENS_NOTHING, argument);

        assert_eq!(
            found(&home, "ada"),
            [(browser.pid(), ProcessRole::Launcher)]
        );
        assert_eq!(
            found(&home, "link"),
            [(browser.pid(), ProcessRole::Launcher)]
        );
        assert_eq!(found(&home, "ada2"), []);
    }
}

#[test]
fn the_lock_counts_only_on_this_host_and_for_a_process_that_works_here() {
    let home = home();
    let host = rustix::system::uname();
    let host = host.nodename().to_str().unwrap();
    let lock = home.path().join("ada/SingletonLock");
    let fake_browser = FakeBrowser::start(&home, OPENS_NOTHING, "--user-data-dir=ada");
    let stranger = FakeBrowser::start(&home, OPENS_NOTHING, "--user-data-dir=ada2");
    let locked = |by: String| {
        let _ = std::fs::remove_file(&lock);
        symlink(by, &lock).unwrap();
        found(&home, "ada")
    };

    let here = locked(format!("{host}-{}", fake_browser.pid()));
    let elsewhere = locked(format!("not-{host}-{}", fake_browser.pid()));
    let by_stranger = locked(format!("{host}-{}", stranger.pid()));
    let by_nobody = locked("nonsense".to_owned());

    assert_eq!(here, [(fake_browser.pid(), ProcessRole::Browser)]);
    for stale in [elsewhere, by_stranger, by_nobody] {
        assert_eq!(stale, [(fake_browser.pid(), ProcessRole::Launcher)]);
    }
}

#[test]
fn open_files_make_a_browser_of_who_names_the_directory_and_a_bystander_of_who_does_not() {
    let home = home();
    let browser = FakeBrowser::start(&home, WORKS, "--user-data-dir=ada");
    let reader = FakeBrowser::start(&home, WORKS, "--user-data-dir=ada2");

    assert_eq!(
        found(&home, "ada"),
        [
            (browser.pid(), ProcessRole::Browser),
            (reader.pid(), ProcessRole::Bystander)
        ]
    );
    assert_eq!(
        found(&home, "ada2"),
        [(reader.pid(), ProcessRole::Launcher)]
    );
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let error = users_of(Path::new("/not/there")).unwrap_err();

    assert_eq!(error.to_string(), "/not/there: no such directory");
}

#[test]
fn whoever_has_a_directory_in_its_environment_uses_it_until_it_has_ended() {
    let home = home();
    let [ada, other] = ["ada", "ada2"].map(|name| home.path().join(name));
    let (variable, script) = (
        "STASIS_TEST_PLACE",
        "STASIS_TEST_PLACE=\"$1\" exec sh -c 'echo; read x'",
    );
    assert!(!is_used(&ada, variable), "nobody is there yet");

    let told = FakeBrowser::start(&home, script, ada.to_str().unwrap());

    assert!(is_used(&ada, variable) && is_used(&home.path().join("link"), variable));
    assert!(!is_used(&other, variable) && !is_used(&ada, "STASIS_TEST"));
    drop(told);
    assert!(!is_used(&ada, variable));
    assert!(!is_used(&home.path().join("missing"), variable));
}
