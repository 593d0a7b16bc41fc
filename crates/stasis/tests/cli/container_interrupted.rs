//! Replacements of containers that were interrupted, on a real Docker engine: work of nobody is thrown away, and what is said is so.

use crate::container_host::{Host, REPLACE, rows, text};
use stasis_testkit::docker::IMAGE;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

/// What a replacement says whether it works by, and for how long nobody knows.
const SLOWLY: &str = "--mode replace --stop-timeout 1s --healthy-after 4s --yes";

/// A container with two states: the first is saved, the second is what it is.
fn host_with_web() -> Option<Host> {
    let host = Host::new()?;
    host.start("web", "-v data:/data", "echo one > /data/n");
    host.json(0, "container create web");
    host.sh("web", "echo two > /data/n; echo two > /own");
    Some(host)
}

/// Kills a replacement once the new container runs.
fn interrupt(host: &Host, words: &str) {
    let words: Vec<&str> = words.split(' ').collect();
    let mut command = host.command(&words);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut looks = 0;
    while host.lines("ps -q --filter name=^web$").is_empty()
        || host.lines("ps -aq --filter name=web_replaced_").is_empty()
    {
        looks += 1;
        assert!(looks < 1000, "there is no new container");
        sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

fn aside(host: &Host) -> String {
    let found = host.lines("ps -a --filter name=web_replaced_ --format {{.Names}}");
    found[0].clone()
}

/// What is written down of a replacement.
fn journal(host: &Host) -> Option<PathBuf> {
    let place = host.session.home().join("state/stasis/containers");
    let inside = std::fs::read_dir(place).unwrap();
    let mut paths = inside.map(|entry| entry.unwrap().path());
    paths.find(|path| path.to_string_lossy().ends_with(".replace.json"))
}

fn make_old(path: &Path) {
    let file = std::fs::File::options().append(true).open(path).unwrap();
    let then = SystemTime::now() - Duration::from_hours(1);
    file.set_modified(then).unwrap();
}

#[test]
fn a_new_container_that_works_is_kept_and_not_said_to_be_the_old_one() {
    let Some(host) = host_with_web() else {
        return;
    };
    interrupt(&host, &format!("container restore latest web {SLOWLY}"));
    // Somebody looks into the old one: it cannot be removed, and what is written down of it stays.
    let aside = aside(&host);
    host.daemon.must(&["start", &aside]);
    let cleaned = host.json(13, "container cleanup");
    let left = cleaned["left"].to_string();
    assert!(left.contains("somebody has started it since"), "{left}");
    assert!(rows(&cleaned, "brought_back").is_empty(), "{cleaned}");
    let replace = format!("container restore latest web {REPLACE}");
    let refused = host.json(4, &replace);
    let said = refused["error"].to_string();
    assert!(said.contains("somebody has started it since"), "{said}");
    assert!(journal(&host).is_some());
    assert_eq!(host.sh("web", "cat /data/n"), "one");

    let planned = host.json(0, "container cleanup --dry-run");
    assert_eq!(planned["ended"][0], "web", "{planned}");
    assert!(rows(&planned, "brought_back").is_empty(), "{planned}");
    // What somebody did in it is not removed because it has ended.
    host.sh(&aside, "echo work > /work");
    host.daemon.must(&["stop", "-t", "1", &aside]);
    host.json(13, "container cleanup");
    assert_eq!(host.lines("ps -aq").len(), 2);
    host.daemon.must(&["rm", "-f", &aside]);
    let cleaned = host.json(0, "container cleanup");

    assert_eq!(cleaned["ended"][0], "web", "{cleaned}");
    assert!(rows(&cleaned, "brought_back").is_empty(), "{cleaned}");
    assert_eq!(host.lines("ps -aq").len(), 1);
    assert!(journal(&host).is_none());
    // What there was is in the snapshot, and comes back.
    host.json(0, "undo container:web --yes");
    assert_eq!(host.sh("web", "cat /data/n /own"), "two\ntwo");
}

#[test]
fn a_container_that_somebody_went_back_to_by_hand_is_his() {
    let Some(host) = host_with_web() else {
        return;
    };
    interrupt(&host, &format!("container restore latest web {SLOWLY}"));
    let aside = aside(&host);
    host.daemon.must(&["start", &aside]);
    host.json(13, "container cleanup");
    // The new one works, but he does not want it.
    host.daemon.must(&["rm", "-f", "web"]);
    host.daemon.must(&["rename", &aside, "web"]);
    host.sh("web", "echo work > /work");
    host.daemon.must(&["stop", "-t", "1", "web"]);

    host.json(0, "container cleanup");

    host.daemon.must(&["start", "web"]);
    assert_eq!(host.sh("web", "cat /own /work"), "two\nwork");
    assert!(journal(&host).is_none());
    host.json(0, "container create web");
}

#[test]
fn what_was_interrupted_long_ago_is_not_taken_back_over_somebodys_work() {
    let Some(host) = host_with_web() else {
        return;
    };
    let words = format!("container restore latest web {SLOWLY}");
    interrupt(&host, &words);
    // It ran for an hour, somebody worked with it, and it has ended since.
    host.sh("web", "echo work > /data/work");
    host.daemon.must(&["stop", "-t", "1", "web"]);
    make_old(&journal(&host).unwrap());

    let cleaned = host.json(13, "container cleanup");

    let left = cleaned["left"].to_string();
    assert!(left.contains("interrupted long ago"), "{left}");
    host.json(4, &format!("container restore latest web {REPLACE}"));
    // What it says keeps it.
    host.daemon.must(&["start", "web"]);
    let cleaned = host.json(0, "container cleanup");
    assert_eq!(cleaned["ended"][0], "web", "{cleaned}");
    assert_eq!(host.sh("web", "cat /data/n /data/work"), "one\nwork");
}

#[test]
fn an_old_container_that_somebody_started_is_not_written_to() {
    let Some(host) = host_with_web() else {
        return;
    };
    interrupt(&host, &format!("container restore latest web {SLOWLY}"));
    let aside = aside(&host);
    host.daemon.must(&["rm", "-f", "web"]);
    host.daemon.must(&["start", &aside]);
    host.sh(&aside, "echo work > /data/work");

    let cleaned = host.json(13, "container cleanup");

    let left = cleaned["left"].to_string();
    assert!(left.contains("has started"), "{left}");
    assert_eq!(host.sh(&aside, "cat /data/n /data/work"), "one\nwork");
    // Another one with its volume is not written under, either.
    host.daemon.must(&["stop", "-t", "1", &aside]);
    host.start("other", "-v data:/data", "true");
    let cleaned = host.json(13, "container cleanup");
    let left = cleaned["left"].to_string();
    assert!(left.contains("`other` runs with `data`"), "{left}");
    assert_eq!(host.sh("other", "cat /data/work"), "work");
    host.daemon.must(&["rm", "-f", "other"]);
    let cleaned = host.json(0, "container cleanup");
    assert_eq!(cleaned["brought_back"][0], "web", "{cleaned}");
    assert_eq!(host.sh("web", "cat /data/n /own"), "two\ntwo");
}

#[test]
fn limits_and_other_saves_leave_the_way_back_alone() {
    let Some(host) = host_with_web() else {
        return;
    };
    let bound = host.session.home().join("bound");
    std::fs::create_dir_all(&bound).unwrap();
    let options = format!("-v {}:/bound -v more:/more", bound.display());
    host.start("db", &options, "echo one > /bound/n; echo one > /more/n");
    host.json(0, "container create db --bind /bound");
    host.sh("db", "echo two > /bound/n; echo two > /more/n");
    interrupt(&host, &format!("container restore latest web {SLOWLY}"));
    let listed = host.json(0, "container list web");
    let undo = rows(&listed, "items")
        .iter()
        .find(|one| one["reason"] == "before-restore");
    let safety = text(undo.unwrap(), "snapshot_id").to_owned();

    // Everything else that is older than a moment goes.
    host.json(0, "container create db --max-snapshots 1 --max-age 1s");

    let listed = host.json(0, "container list web").to_string();
    assert!(listed.contains(&safety), "{listed}");
    host.daemon.must(&["rm", "-f", "web"]);
    let cleaned = host.json(0, "container cleanup");
    assert_eq!(cleaned["brought_back"][0], "web", "{cleaned}");
    assert_eq!(host.sh("web", "cat /data/n /own"), "two\ntwo");
}

#[test]
fn a_bound_directory_comes_back_too_if_the_new_container_does_not_work() {
    let Some(host) = Host::new() else {
        return;
    };
    let bound = host.session.home().join("bound");
    std::fs::create_dir_all(&bound).unwrap();
    let options = format!("-v {}:/bound -v more:/more", bound.display());
    host.start("db", &options, "echo one > /bound/n; echo one > /more/n");
    host.json(0, "container create db --bind /bound");
    host.sh("db", "echo two > /bound/n; echo two > /more/n");
    let words = format!("container restore latest db {REPLACE} --health-timeout 1s --health-cmd");
    let words: Vec<&str> = words.split(' ').chain(["false"]).collect();

    let output = host.output(&words);

    assert!(!output.status.success());
    assert_eq!(host.sh("db", "cat /bound/n /more/n"), "two\ntwo");
    assert_eq!(
        std::fs::read_to_string(bound.join("n")).unwrap(),
        "two\n",
        "the host sees the same"
    );
    host.json(0, &format!("container restore latest db {REPLACE}"));
    assert_eq!(host.sh("db", "cat /bound/n /more/n"), "one\none");
}

#[test]
fn a_container_that_is_started_again_and_again_is_replaced_by_one_that_runs() {
    let Some(host) = Host::new() else {
        return;
    };
    let script = "test -e /data/broken && exit 1; echo one > /data/n; sleep 1000";
    let run = ["run", "-d", "--network", "none", "--name", "web"];
    let how = ["-v", "data:/data", "--restart", "always", IMAGE];
    let words = [&run[..], &how, &["/bin/sh", "-c", script]].concat();
    host.daemon.must(&words);
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let mut looks = 0;
        while !is_so() {
            looks += 1;
            assert!(looks < 1000, "{what}: {}", host.status("web"));
            sleep(Duration::from_millis(20));
        }
    };
    let look = ["exec", "web", "/bin/test", "-e", "/data/n"];
    until("it is ready", &|| {
        host.daemon.docker(&look).status.success()
    });
    host.json(0, "container create web");
    // From now on it ends as soon as it is started.
    host.sh("web", "echo > /data/broken");
    host.daemon.must(&["restart", "-t", "1", "web"]);
    until("it ends again and again", &|| {
        host.status("web") == "restarting"
    });

    // What does not work either leaves it as it was: the engine tries it again and again.
    let words = format!("container restore latest web {REPLACE} --health-timeout 1s --health-cmd");
    let words: Vec<&str> = words.split(' ').chain(["false"]).collect();
    assert!(!host.output(&words).status.success());
    let starts = || host.inspect("web", "{{.RestartCount}} {{.State.StartedAt}}");
    let before = starts();
    until("it is tried again", &|| starts() != before);

    host.json(0, &format!("container restore latest web {REPLACE}"));

    assert_eq!(host.status("web"), "running");
    assert_eq!(host.sh("web", "cat /data/n"), "one");
    let policy = host.inspect("web", "{{.HostConfig.RestartPolicy.Name}}");
    assert_eq!(policy, "always");
}

#[test]
fn whoever_is_of_another_tenant_is_told_what_works() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start("web", "-v data:/data", "echo one > /data/n");
    host.json(0, "container create web --tenant acme");
    host.sh("web", "echo two > /data/n");
    let replace = format!("container restore latest web --tenant acme {REPLACE}");
    let words: Vec<&str> = replace.split(' ').collect();

    let output = host.command(&words).output().unwrap();

    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let (_, command) = said.split_once("take it back with: stasis ").unwrap();
    let back = command.trim();
    assert!(back.ends_with("--tenant acme"), "{back}");
    host.json(0, &format!("{back} --stop-timeout 1s --yes"));
    assert_eq!(host.sh("web", "cat /data/n"), "two");
    host.json(3, "undo container:web --yes");
}
