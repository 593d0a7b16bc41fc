//! Damaged and lost documents of containers, with a real Docker engine: nothing is deleted because of them, no other container is
//! hidden by them, and they are made anew.

use crate::container_host::{Host, rows, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// What is done to a document.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Lost,
    Cut,
    Garbled,
}

impl Harm {
    fn of(self, path: &PathBuf) {
        let bytes = fs::read(path).unwrap();
        match self {
            Self::Lost => fs::remove_file(path),
            Self::Cut => fs::write(path, &bytes[..bytes.len() / 2]),
            Self::Garbled => {
                fs::write(path, bytes.iter().map(|one| one ^ 0x20).collect::<Vec<_>>())
            }
        }
        .unwrap();
    }
}

/// Where a container's documents lie.
fn subject(host: &Host, name: &str) -> PathBuf {
    let all = host.session.object("subjects/default/container");
    let mut all = fs::read_dir(all).unwrap().map(|one| one.unwrap().path());
    let begins = format!("{name}.");
    let is_it = |path: &PathBuf| {
        let file = path.file_name().unwrap().to_string_lossy();
        file.starts_with(&begins)
    };
    all.find(is_it).unwrap()
}

fn ids(listed: &Value) -> BTreeSet<String> {
    let all = rows(listed, "items").iter();
    all.map(|one| text(one, "snapshot_id").to_owned()).collect()
}

/// What there is besides documents of indexes: images of the engine, manifests, layers and chunks of the store.
fn kept(host: &Host) -> (Vec<String>, usize, usize, usize) {
    let mut images = host.lines("images stasis-snapshot --format {{.Tag}}");
    images.sort();
    let count = |beneath: PathBuf| fs::read_dir(beneath).map_or(0, Iterator::count);
    let chunks = fs::read_dir(host.session.object("pools/default/chunks")).unwrap();
    let chunks = chunks.map(|one| count(one.unwrap().path())).sum();
    (
        images,
        count(subject(host, "web").join("snapshots")),
        count(host.session.object("subjects/default/image")),
        chunks,
    )
}

#[test]
fn a_damaged_index_deletes_nothing_hides_nobody_and_is_made_anew() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start(
        "web",
        "-v data:/data",
        "echo one > /data/n; echo one > /own",
    );
    host.start("db", "-v rows:/rows", "echo row > /rows/n");
    host.json(0, "container create web --portable --label state=one");
    host.sh("web", "echo two > /data/n; echo two > /own");
    host.json(0, "container create web");
    let db = host.json(0, "container create db --label row=one");
    let whole = text(&db, "snapshot_id").to_owned();
    let known = ids(&host.json(0, "container list web"));
    let index = subject(&host, "web").join("index.json");

    for harm in [Harm::Garbled, Harm::Cut, Harm::Lost] {
        let before = kept(&host);
        harm.of(&index);

        is_named_and_hides_nobody(&host);
        nothing_is_removed(&host);
        assert_eq!(kept(&host), before, "{harm:?}");
        let refused = host.json(9, "container restore latest web");
        let hint = refused["error"]["hint"].as_str().unwrap_or_default();
        assert!(hint.contains("stasis repair"), "{refused}");
        host.json(9, "container create web");
        host.json(9, "container restore state=one");
        // Its label may be the damaged one's, too: the whole id is needed.
        host.json(9, "container delete row=one --yes");
        host.json(0, &format!("container restore {whole} --dry-run"));

        host.json(2, "repair container:web");
        assert!(
            !index.exists() || !matches!(harm, Harm::Lost),
            "only shown so far"
        );
        let repaired = host.json(0, "repair container:web --confirm");
        assert_eq!(rows(&repaired, "documents").len(), 1, "{repaired}");

        assert_eq!(ids(&host.json(0, "container list web")), known, "{harm:?}");
        host.json(0, "container cleanup");
        assert_eq!(kept(&host).0, before.0, "{harm:?}");
    }
    let restored = host.json(0, "container restore latest web");
    let name = text(&restored, "container_name");
    assert_eq!(host.sh(name, "cat /data/n /own"), "two\ntwo");
    let oldest = host.json(0, "container restore latest~1 web");
    let name = text(&oldest, "container_name");
    assert_eq!(host.sh(name, "cat /data/n /own"), "one\none");
    host.json(0, "check container:web --read-data");
}

/// Nothing of it is beyond any limit, left over, or an orphan.
fn nothing_is_removed(host: &Host) {
    let cleanup = "container cleanup --orphans --max-snapshots 2 --max-age 1d";
    let cleaned = host.json(13, cleanup);
    let left = cleaned["left"].to_string();
    assert!(left.contains("container:web"), "{cleaned}");
    assert!(rows(&cleaned, "snapshots").is_empty(), "{cleaned}");
    assert!(rows(&cleaned, "images").is_empty(), "{cleaned}");
}

/// The damaged container is named with what is wrong, and the other one is listed as always.
fn is_named_and_hides_nobody(host: &Host) {
    let all = host.json(9, "list");
    let row = |name: &str| {
        let mut all = rows(&all, "items").iter();
        all.find(|one| text(one, "subject") == name).cloned()
    };
    let web = row("container:web").unwrap();
    assert_eq!(web["error"]["remedy"], "repair", "{web}");
    let address = web["error"]["address"]["subject"].as_str().unwrap();
    assert!(address.starts_with("container:web."), "{web}");
    assert!(row("container:db").unwrap().get("error").is_none());
    let listed = host.json(9, "container list");
    assert_eq!(rows(&listed, "items").len(), 1, "{listed}");
    assert!(text(&listed["items"][0], "subject") == "container:db");
    assert!(listed["unreadable"][0].as_str().unwrap().contains("web"));
    assert_eq!(ids(&host.json(0, "container list db")).len(), 1);
    let stats = host.json(9, "container stats");
    assert_eq!(stats["snapshots"], 1, "{stats}");
    assert_eq!(rows(&stats, "unreadable").len(), 1, "{stats}");
}

#[test]
fn bytes_of_layers_in_the_store_count_and_containers_of_one_image_share_them() {
    let Some(host) = Host::new() else {
        return;
    };
    let noise = "dd if=/dev/urandom of=/data/n bs=1024 count=64 2>/dev/null";
    host.start("one", "-v a:/data", noise);
    host.start("two", "-v b:/data", noise);
    let plain = host.json(0, "container create one");
    assert_eq!(plain["portable"], false, "{plain}");
    let without = host.json(0, "container stats")["chunk_bytes"]
        .as_u64()
        .unwrap();

    host.json(0, "container create one --portable");
    let first = host.json(0, "container stats")["chunk_bytes"]
        .as_u64()
        .unwrap();
    host.json(0, "container create two --portable");
    let both = host.json(0, "container stats")["chunk_bytes"]
        .as_u64()
        .unwrap();

    let layers = first - without;
    assert!(layers > 256 * 1024, "the layers of a shell: {layers}");
    // What the second one adds is its volume and what it wrote itself, not the image that both have.
    let added = both - first;
    assert!(added < layers / 4, "{added} beside {layers}");
    // They count for the limit, too: the oldest goes first.
    let limit = both - 1;
    let going = host.json(
        0,
        &format!("container cleanup --dry-run --max-bytes {limit}"),
    );
    assert!(!rows(&going, "snapshots").is_empty(), "{going}");
    let enough = both * 4;
    let kept = host.json(
        0,
        &format!("container cleanup --dry-run --max-bytes {enough}"),
    );
    assert!(rows(&kept, "snapshots").is_empty(), "{kept}");
}

#[test]
fn an_export_as_files_says_which_containers_were_made_of_the_snapshot() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start("web", "-v data:/data", "echo one > /data/n");
    let saved = host.json(0, "container create web");
    let id = text(&saved, "snapshot_id").to_owned();
    let restored = host.json(0, "container restore latest web --name copy");

    let place = host.session.home().join("files");
    let export = format!(
        "container export latest {} --of web --layout seed",
        place.display()
    );
    host.json(0, &export);

    let metadata = fs::read(place.join(format!("metadata/{id}.json"))).unwrap();
    let metadata: Value = serde_json::from_slice(&metadata).unwrap();
    let made = rows(&metadata, "restorations");
    assert_eq!(made.len(), 1, "{metadata}");
    assert_eq!(made[0]["container_id"], restored["container_id"]);
    assert!(text(&made[0], "at").ends_with('Z'), "{metadata}");
}

#[test]
fn sockets_and_devices_in_a_volume_are_named_and_a_strict_save_takes_no_device_for_granted() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start("web", "-v data:/data", "echo one > /data/n; mkdir /data/in");
    let place =
        PathBuf::from(
            host.daemon
                .must(&["volume", "inspect", "-f", "{{.Mountpoint}}", "data"]),
        );
    let socket = std::os::unix::net::UnixListener::bind(place.join("socket")).unwrap();

    let saved = host.json(0, "container create web --strict");

    let left = |saved: &Value| -> Vec<(String, String)> {
        let all = rows(saved, "not_captured").iter();
        let all = all.map(|one| {
            (
                text(one, "what").to_owned(),
                text(one, "because").to_owned(),
            )
        });
        all.filter(|(what, _)| what.starts_with("/data")).collect()
    };
    let pair = |what: &str, because: &str| (what.to_owned(), because.to_owned());
    assert_eq!(left(&saved), [pair("/data/socket", "socket")]);
    drop(socket);
    host.sh("web", "/bin/busybox mknod /data/in/null c 1 3");
    let refused = host.json(2, "container create web --strict");
    assert!(refused.to_string().contains("/data/in/null"), "{refused}");
    assert_eq!(host.images(), 1, "nothing is left of what was refused");
    let saved = host.json(0, "container create web");
    let both = [
        pair("/data/in/null", "device"),
        pair("/data/socket", "socket"),
    ];
    assert_eq!(left(&saved), both);
    let shown = host.json(0, "container show latest web");
    assert_eq!(left(&shown), both);
}
