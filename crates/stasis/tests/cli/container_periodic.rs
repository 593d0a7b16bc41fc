//! Snapshots of containers that a server makes without being asked, with a real Docker engine.

use crate::container_host::{Host, rows, text};
use crate::project::eventually;
use crate::serve::{Served, token};
use serde_json::Value;
use std::time::Duration;

/// How long something may take that happens by itself.
const SOON: Duration = Duration::from_mins(1);

/// A server that looks at these containers every second.
fn serve(host: &Host, containers: &str) -> Served {
    let config = host.session.home().join("jobs.toml");
    let text = format!("[serve.jobs.container_snapshot]\nevery = \"1s\"\n{containers}");
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let words = ["--json", "serve", "--listen", "127.0.0.1:0"];
    Served::started(host.command(&[&words[..], &["--config", config]].concat()))
}

fn job(served: &Served, admin: &str) -> Value {
    let list = served.get(admin, "/v1/jobs");
    let all = rows(&list.body, "items").iter();
    let mut all = all.filter(|row| row["name"] == "container_snapshot");
    all.next()
        .unwrap_or_else(|| panic!("{}", list.body))
        .clone()
}

/// Waits for a run that begins from now on and finds so many containers unchanged.
fn until_unchanged(served: &Served, admin: &str, count: u64) {
    let before = job(served, admin)["last_began_at_ms"].as_u64();
    eventually(SOON, "nothing changed", || {
        let row = job(served, admin);
        row["last_began_at_ms"].as_u64() > before && row["counts"]["unchanged"] == count
    });
}

/// The snapshots of a container, the newest first; none before the first.
fn snapshots(host: &Host, container: &str) -> Vec<Value> {
    let all = host.json(0, "container list");
    let all = rows(&all, "items").iter();
    let of = all.filter(|row| row["container_name"] == container);
    of.cloned().collect()
}

fn periodic(host: &Host, container: &str) -> Vec<String> {
    let all = snapshots(host, container);
    let all = all.iter().filter(|row| row["trigger"] == "periodic");
    all.map(|row| {
        assert_eq!(row["reason"], "autosave", "{row}");
        assert_eq!(row["is_latest"], false, "{row}");
        text(row, "snapshot_id").to_owned()
    })
    .collect()
}

/// Changes a container, and waits until there is another newest one of it.
fn saved_after(host: &Host, container: &str, change: impl FnOnce()) -> Vec<String> {
    let before = periodic(host, container).first().cloned();
    change();
    eventually(SOON, "it is saved", || {
        periodic(host, container).first().cloned() != before
    });
    periodic(host, container)
}

#[test]
fn a_container_is_saved_when_it_changed_and_only_automatic_snapshots_go_for_new_ones() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start("web", "-v data:/data", "echo 1 > /data/orders");
    let idle = host.start("idle", "-e TOKEN=x", "echo v1 > /version");
    let admin = token(&host.session, "default", "admin");
    host.json(
        0,
        "tenant policy set default containers.max_per_container=2",
    );
    let by_hand = host.json(0, "container create web --label state=good");
    let by_hand = text(&by_hand, "snapshot_id").to_owned();
    let short = idle.get(..12).unwrap();
    let containers = format!(
        "[serve.containers.web]\nevery = \"100ms\"\n[serve.containers.quiet]\ncontainer = \"{short}\"\nevery = \"100ms\"\n\
         [serve.containers.gone]\nevery = \"100ms\"\n"
    );
    let served = serve(&host, &containers);

    // What was saved by hand has it all; of the other one there was nothing yet.
    eventually(SOON, "the other one is saved", || {
        periodic(&host, "idle").len() == 1
    });
    until_unchanged(&served, &admin, 2);
    assert_eq!(job(&served, &admin)["counts"]["skipped"], 1);
    assert_eq!((periodic(&host, "web").len(), host.images()), (0, 2));

    // A volume, the container's own files, and the volume again.
    let in_web = |script: &str| {
        saved_after(&host, "web", || {
            host.sh("web", script);
        })
    };
    let first = in_web("echo 2 >> /data/orders");
    let second = in_web("echo v2 > /version");
    assert_eq!(second[1], first[0]);
    in_web("echo 3 >> /data/orders");
    until_unchanged(&served, &admin, 2);
    let third = periodic(&host, "web");
    assert_eq!((third.len(), &third[1]), (2, &second[0]));
    let all = snapshots(&host, "web");
    assert!(
        all.iter().any(|row| row["snapshot_id"] == by_hand),
        "{all:?}"
    );
    assert_eq!(host.images(), 4);
    assert_eq!(
        (host.status("web"), periodic(&host, "idle").len()),
        ("running".to_owned(), 1)
    );
    let scraped = served.get(&admin, "/metrics").text;
    let frozen = "stasis_freeze_seconds_count{kind=\"container\"} ";
    assert!(scraped.contains(frozen), "{scraped}");
    // Whoever cleans up by hand finds nothing that is too many.
    let cleaned = host.json(0, "container cleanup");
    assert!(rows(&cleaned, "snapshots").is_empty(), "{cleaned}");
    assert_eq!(served.stop(), 0);

    // A server that has seen nothing yet finds in the store what there is.
    let served = serve(&host, &containers);
    until_unchanged(&served, &admin, 2);
    assert_eq!((periodic(&host, "web"), host.images()), (third, 4));
    assert_eq!(served.stop(), 0);
}

#[test]
fn another_container_of_the_same_name_is_another_one_and_one_that_ended_is_saved_once() {
    let Some(host) = Host::new() else {
        return;
    };
    let first = host.start("web", "-v data:/data", "true");
    let admin = token(&host.session, "default", "admin");
    let served = serve(&host, "[serve.containers.web]\nevery = \"100ms\"\n");
    eventually(SOON, "it is saved", || periodic(&host, "web").len() == 1);

    let mut second = String::new();
    saved_after(&host, "web", || {
        host.daemon.must(&["rm", "-f", "web"]);
        second = host.start("web", "-v data:/data", "true");
    });
    until_unchanged(&served, &admin, 1);
    let all = snapshots(&host, "web");
    let mut of: Vec<&str> = all.iter().map(|row| text(row, "container_id")).collect();
    // It may have been seen before it was ready.
    of.dedup();
    assert_eq!(of, [second.as_str(), first.as_str()]);

    // What it did last is kept, and nothing follows: it does not run.
    saved_after(&host, "web", || {
        host.sh("web", "echo last > /data/word");
        host.daemon.must(&["stop", "-t", "1", "web"]);
    });
    until_unchanged(&served, &admin, 1);
    let saved = periodic(&host, "web");
    until_unchanged(&served, &admin, 1);
    assert_eq!(periodic(&host, "web"), saved);
    // One whose image somebody removed is no snapshot any more.
    let image = format!("stasis-snapshot:{}", saved[0]);
    saved_after(&host, "web", || {
        host.daemon.must(&["rmi", &image]);
    });
    assert_eq!(host.status("web"), "exited");
    assert_eq!(served.stop(), 0);
}
