//! Limits, metadata and masking of snapshots of containers, with a real Docker engine.

use crate::container_host::{Host, REPLACE, rows, text};
use crate::encrypted::files;
use crate::session::assert_published;
use serde_json::{Value, json};
use stasis_testkit::docker::IMAGE;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The limits of containers, as `stats` says them.
const LIMITS: [&str; 4] = [
    "max_per_container",
    "max_snapshots",
    "max_bytes",
    "max_age_s",
];
/// The variable of each, with something that it may say, and what that means.
const VARIABLES: [(&str, &str, u64); 4] = [
    ("STASIS_CONTAINER_MAX_PER_CONTAINER", "4", 4),
    ("STASIS_CONTAINER_MAX_SNAPSHOTS", "40", 40),
    ("STASIS_CONTAINER_MAX_BYTES", "4GB", 4_000_000_000),
    ("STASIS_CONTAINER_MAX_AGE", "4h", 14_400),
];
/// The same of the flags.
const FLAGS: [(&str, &str, u64); 4] = [
    ("--max-per-container", "5", 5),
    ("--max-snapshots", "50", 50),
    ("--max-bytes", "5GB", 5_000_000_000),
    ("--max-age", "5h", 18_000),
];
/// What nobody said anything about.
const USUAL: [u64; 4] = [10, 100, 10_000_000_000, 604_800];

/// Runs a command with variables of the environment.
fn run_with(host: &Host, variables: &[(&str, &str)], words: &[&str]) -> Output {
    let mut command = host.command(words);
    command.envs(variables.iter().copied()).output().unwrap()
}

/// What a command answers with variables of the environment, that must end so.
fn json_with(host: &Host, variables: &[(&str, &str)], code: i32, words: &str) -> Value {
    let words: Vec<&str> = ["--json"].into_iter().chain(words.split(' ')).collect();
    let output = run_with(host, variables, &words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}{out}");
    let document: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{said}"));
    assert_published(&document);
    document
}

/// What a command that must succeed tells a person, line by line.
fn told(host: &Host, words: &str) -> Vec<String> {
    let words: Vec<&str> = words.split(' ').collect();
    let output = run_with(host, &[], &words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = out.lines().map(str::trim_end);
    lines.map(str::to_owned).collect()
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{value}"))
}

fn limits(stats: &Value) -> [u64; 4] {
    LIMITS.map(|name| number(stats, name))
}

/// The snapshots that are listed, the oldest first.
fn listed(host: &Host) -> Vec<String> {
    let listed = host.json(0, "container list");
    let ids = rows(&listed, "items")
        .iter()
        .map(|one| text(one, "snapshot_id"));
    ids.rev().map(str::to_owned).collect()
}

/// Saves a container; says what the snapshot is called.
fn save(host: &Host, words: &str) -> String {
    let saved = host.json(0, &format!("container create {words}"));
    text(&saved, "snapshot_id").to_owned()
}

/// The value of one field of rows, in their order.
fn fields(all: &[Value], name: &str) -> Vec<String> {
    all.iter().map(|one| text(one, name).to_owned()).collect()
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

#[test]
fn a_limit_is_what_a_flag_says_then_a_variable_then_the_policy_and_else_the_usual() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start("web", "-v data:/data", "echo x > /data/x");
    let first = save(&host, "web");
    assert_eq!(limits(&host.json(0, "container stats")), USUAL);
    let policy = [3, 30, 3_000_000_000, 3_600];
    let settings = LIMITS.iter().zip(policy);
    let settings = settings.map(|(name, value)| format!(" containers.{name}={value}"));
    let settings: String = settings.collect();
    host.json(0, &format!("tenant policy set default{settings}"));
    assert_eq!(limits(&host.json(0, "container stats")), policy);
    let all = VARIABLES.map(|(name, said, _)| (name, said));
    let said = limits(&json_with(&host, &all, 0, "container stats"));
    assert_eq!(said, VARIABLES.map(|(_, _, meant)| meant));

    // Each of them on its own: the others stay what the next one says.
    for at in 0..LIMITS.len() {
        let (variable, said, meant) = VARIABLES[at];
        let mut wanted = policy;
        wanted[at] = meant;
        let stats = json_with(&host, &[(variable, said)], 0, "container stats");
        assert_eq!(limits(&stats), wanted, "{variable}");
        let stats = json_with(&host, &[(variable, "")], 0, "container stats");
        assert_eq!(limits(&stats), policy, "an empty variable says nothing");
        let (flag, said, meant) = FLAGS[at];
        let mut wanted = VARIABLES.map(|(_, _, meant)| meant);
        wanted[at] = meant;
        let stats = json_with(&host, &all, 0, &format!("container stats {flag} {said}"));
        assert_eq!(limits(&stats), wanted, "{flag}");
    }

    // They are obeyed, too: by the policy three are kept.
    let ids = [first, save(&host, "web"), save(&host, "web")];
    let fourth = host.json(0, "container create web");
    let removed = rows(&fourth, "removed");
    assert_eq!(fields(removed, "snapshot_id"), [ids[0].clone()]);
    let why = "its container has more than 3";
    assert_eq!(fields(removed, "because"), [why]);
    assert_eq!((listed(&host).len(), host.images()), (3, 3));
    let two = [("STASIS_CONTAINER_MAX_PER_CONTAINER", "2")];
    json_with(&host, &two, 0, "container create web --max-per-container 4");
    assert_eq!((listed(&host).len(), host.images()), (4, 4));
    json_with(&host, &two, 0, "container create web");
    assert_eq!((listed(&host).len(), host.images()), (2, 2));
    // The everyday verb keeps the same limits.
    let last = json_with(&host, &two, 0, "save container:web");
    let left = listed(&host);
    assert_eq!((left.len(), host.images()), (2, 2));
    assert_eq!(left[1], text(&last, "snapshot_id"));
}

/// What no limit can be, by the flag and by the variable.
const BAD: [(usize, &str); 9] = [
    (0, "many"),
    (0, "-1"),
    (1, "1.5"),
    (1, "99999999999999999999"),
    (2, "0"),
    (2, "ten"),
    (3, "7"),
    (3, "0s"),
    (3, "-1h"),
];

#[test]
fn a_bad_limit_is_refused_by_its_name_before_anything_is_done() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start("web", "-v data:/data", "echo x > /data/x");
    let first = save(&host, "web");
    let policy = host.json(0, "tenant policy show default");
    let refused = |variables: &[(&str, &str)], words: &str, names: &[&str]| {
        let refused = json_with(&host, variables, 2, words);
        let said = refused["error"].to_string();
        for name in names {
            assert!(said.contains(name), "{words} {variables:?}: {said}");
        }
    };

    for (at, bad) in BAD {
        let (flag, _, _) = FLAGS[at];
        refused(&[], &format!("container create web {flag}={bad}"), &[flag]);
        let (variable, _, _) = VARIABLES[at];
        refused(&[(variable, bad)], "container create web", &[variable, bad]);
    }
    for (variable, _, _) in VARIABLES {
        for command in [
            "container cleanup",
            "container stats",
            "container create web --detach",
            "save container:web",
        ] {
            refused(&[(variable, "x")], command, &[variable]);
        }
    }
    refused(&[], "container create web --detach --label x", &["`x`"]);
    for (name, bad) in [
        ("max_per_container", "many"),
        ("max_snapshots", "-1"),
        ("max_bytes", "1.5"),
        ("max_age_s", "7d"),
    ] {
        let name = format!("containers.{name}");
        let set = format!("tenant policy set default containers.max_snapshots=1 {name}={bad}");
        refused(&[], &set, &[&name, bad]);
    }

    assert_eq!(host.json(0, "tenant policy show default"), policy);
    assert_eq!((listed(&host), host.images()), (vec![first], 1));
    assert_eq!(limits(&host.json(0, "container stats")), USUAL);
    assert_eq!(host.status("web"), "running");
}

/// Saves a container whose volume has something that no other snapshot has.
fn save_other(host: &Host, container: &str) -> String {
    let script = "dd if=/dev/urandom of=/data/n bs=1000 count=300 2>/dev/null";
    host.sh(container, script);
    save(host, container)
}

/// What a cleanup would remove that lets nothing be as old as the oldest snapshot, and everything else.
fn older_than_the_first(host: &Host, options: &str) -> Value {
    let listed = host.json(0, "container list");
    let ages = rows(&listed, "items").iter().rev();
    let ages: Vec<u64> = ages.map(|one| number(one, "created_at_ms")).collect();
    let gap = ages[1] - ages[0];
    for _ in 0..20 {
        let begun = now_ms();
        let age = begun - ages[0];
        let words = format!("container cleanup --dry-run {options} --max-age {age}ms");
        let cleaned = host.json(0, &words);
        // One that took longer may have found the second one too old.
        if now_ms() - begun < gap {
            return cleaned;
        }
    }
    panic!("no cleanup took less than {gap} ms");
}

/// What a cleanup removes, in its order, and why.
fn removed(cleaned: &Value) -> Vec<[String; 3]> {
    let all = rows(cleaned, "snapshots").iter();
    let names = ["snapshot_id", "container_name", "because"];
    all.map(|one| names.map(|name| text(one, name).to_owned()))
        .collect()
}

/// Saves two containers in turn, the first one so early that no cleanup takes as long: see [`older_than_the_first`].
fn save_six(host: &Host) -> [String; 6] {
    let mut gaps = [5].into_iter();
    ["ant", "bee", "ant", "ant", "bee", "bee"].map(|name| {
        let saved = save_other(host, name);
        sleep(Duration::from_secs(gaps.next().unwrap_or(0)));
        saved
    })
}

#[test]
fn a_cleanup_says_first_what_it_removes_by_age_then_count_then_bytes_and_the_oldest_first() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start("ant", "-v ant:/data", "true");
    host.start("bee", "-v bee:/data", "true");
    let ids = save_six(&host);
    let look = || {
        (
            listed(&host),
            host.images(),
            host.json(0, "container stats"),
        )
    };
    let before = look();
    assert_eq!((before.0.as_slice(), before.1), (&ids[..], 6));
    let options = "--max-per-container 2 --max-snapshots 3 --max-bytes 700kB";
    let cleanup = format!("container cleanup {options}");

    let aged = older_than_the_first(&host, options);
    let dry = host.json(0, &format!("{cleanup} --dry-run"));
    let again = host.json(0, &format!("{cleanup} --dry-run"));
    let lines = told(&host, &format!("{cleanup} --dry-run"));

    let mut wanted = [
        ["ant", "its container has more than 2"],
        ["bee", "its container has more than 2"],
        ["ant", "there are more than 3 in all"],
        ["ant", "with newer ones it exceeds 700000 bytes"],
    ]
    .iter()
    .zip(&ids)
    .map(|([name, why], id)| [id.as_str(), name, why].map(str::to_owned))
    .collect::<Vec<_>>();
    assert_eq!(removed(&dry), wanted);
    assert_eq!(removed(&again), wanted);
    assert_eq!(
        [&dry["dry_run"], &dry["bytes_removed"]],
        [&json!(true), &json!(0)]
    );
    assert_eq!(rows(&dry, "images").len(), 4, "{dry}");
    assert!(lines.len() >= wanted.len(), "{lines:?}");
    for (line, [id, name, why]) in lines.iter().zip(&wanted) {
        let said = format!("Would remove {} of {name}: {why}", &id[..8]);
        assert_eq!(*line, said);
    }
    // All of that was only said.
    assert_eq!(look(), before);
    assert_pinned_ones_stay(&host, &ids[0], options);
    let done = host.json(0, &cleanup);
    assert_eq!(
        (removed(&done), &done["dry_run"]),
        (wanted.clone(), &json!(false))
    );
    assert!(number(&done, "bytes_removed") > 1_200_000, "{done}");
    assert_eq!((listed(&host).as_slice(), host.images()), (&ids[4..], 2));
    // Age comes before the others.
    let mut aged = removed(&aged);
    let why = std::mem::take(&mut aged[0][2]);
    assert!(why.starts_with("it is older than "), "{why}");
    wanted[0][2].clear();
    assert_eq!(aged, wanted);
    assert_newest_stays(&host, [&ids[4], &ids[5]]);
}

fn assert_pinned_ones_stay(host: &Host, oldest: &String, options: &str) {
    host.json(0, &format!("pin container:ant {oldest}"));
    let pinned = older_than_the_first(host, options);
    let going = fields(rows(&pinned, "snapshots"), "snapshot_id");
    assert!(!going.is_empty() && !going.contains(oldest), "{pinned}");
    host.json(0, &format!("pin container:ant {oldest} --off"));
}

/// The newest of all stays, however old it is; another one that is too old goes.
fn assert_newest_stays(host: &Host, [older, newest]: [&String; 2]) {
    let done = host.json(0, "container cleanup --max-age 1ms");
    let going = fields(rows(&done, "snapshots"), "snapshot_id");
    assert_eq!(going, [older.as_str()]);
    let restored = host.json(0, &format!("container restore {newest}"));
    let sum = "sha256sum < /data/n";
    let copy = text(&restored, "container_name");
    assert_eq!(host.sh(copy, sum), host.sh("bee", sum));
}

#[test]
fn stats_count_snapshots_and_bytes_each_once() {
    let Some(host) = Host::new() else {
        return;
    };
    let random = "dd if=/dev/urandom bs=1000 2>/dev/null";
    let script = format!("{random} of=/data/n count=400; {random} of=/own count=200");
    host.start("web", "-v data:/data", &script);
    host.start("other", "--stop-signal KILL", "true");
    let first = host.json(0, "container create web --trigger run_start");
    let second = host.json(0, "container create web --trigger on_error");
    let third = host.json(0, "container create other");
    let replaced = host.json(0, &format!("container restore latest other {REPLACE}"));
    let safety = text(&replaced, "safety_snapshot_id");
    let safety = host.json(0, &format!("container show {safety}"));

    let stats = host.json(0, "container stats");

    let own = |one: &Value| number(one, "image_bytes");
    assert!((200_000..300_000).contains(&own(&first)), "{first}");
    let counts = ["snapshots", "before_restore", "broken"].map(|name| number(&stats, name));
    assert_eq!((counts, limits(&stats)), ([4, 1, 0], USUAL));
    let triggers = json!({"manual": 1, "on_error": 1, "run_start": 1});
    assert_eq!(stats["triggers"], triggers);
    let of_web = own(&first) + own(&second);
    let of_other = own(&third) + number(&safety, "size_bytes");
    assert_eq!(own(&stats), of_web + of_other);
    let chunks = number(&stats, "chunk_bytes");
    assert!((400_000..440_000).contains(&chunks), "{stats}");
    let row = |name: &str| {
        let mut items = rows(&stats, "items").iter();
        let is_it = |one: &&Value| text(one, "container_name") == name;
        items.find(is_it).unwrap()
    };
    let (web, other) = (row("web"), row("other"));
    assert_eq!(rows(&stats, "items").len(), 2);
    assert_eq!([web, other].map(|one| number(one, "snapshots")), [2, 2]);
    assert_eq!([web, other].map(own), [of_web, of_other]);
    let of_each = [web, other].map(|one| number(one, "chunk_bytes"));
    assert_eq!(of_each.iter().sum::<u64>(), chunks);
    let newest = &host.json(0, "container list web")["items"][0];
    assert_eq!(web["newest"], newest["created_at"]);
    assert_eq!(web["newest_ms"], newest["created_at_ms"]);
    assert_stats_are_a_table(&told(&host, "container stats"));
}

fn assert_stats_are_a_table(lines: &[String]) {
    let [head, one, other, sums, triggers, undo] = lines else {
        panic!("{lines:?}");
    };
    let columns = |line: &str| -> Vec<String> {
        let words = line.split_whitespace();
        words.map(str::to_owned).collect()
    };
    let names = ["CONTAINER", "SNAPSHOTS", "IMAGES", "STORED", "NEWEST"];
    assert_eq!(columns(head), names);
    let mut all = [one, other].map(|line| columns(line)[..2].join(" "));
    all.sort();
    assert_eq!(all, ["other 2", "web 2"]);
    assert!(sums.starts_with("4 of 100 snapshots, "), "{sums}");
    let allowed = " of 9.3 GiB; at most 10 of one container, for 7d";
    assert!(sums.ends_with(allowed), "{sums}");
    assert_eq!(triggers, "by trigger: manual 1, run_start 1, on_error 1");
    assert_eq!(undo, "1 snapshot of what restores replaced, for undo");
}

/// What is said of a snapshot, in a list and by itself.
fn status(host: &Host, id: &str) -> String {
    let shown = host.json(0, &format!("container show {id}"));
    let listed = host.json(0, "container list web");
    let mut items = rows(&listed, "items").iter();
    let row = items.find(|one| text(one, "snapshot_id") == id).unwrap();
    assert_eq!(row["status"], shown["status"]);
    text(row, "status").to_owned()
}

fn remove_image(host: &Host, snapshot: &str) {
    let image = format!("stasis-snapshot:{snapshot}");
    host.daemon.must(&["rmi", &image]);
}

#[test]
fn a_snapshot_whose_image_is_gone_is_broken_and_its_volumes_are_there() {
    let Some(host) = Host::new() else {
        return;
    };
    let options = "--stop-signal KILL -v data:/data";
    host.start("web", options, "echo one > /data/n");
    let first = save(&host, "web");
    host.sh("web", "echo two > /data/n");
    let second = save(&host, "web");
    assert_eq!(status(&host, &first), "complete");

    remove_image(&host, &first);

    assert_eq!(status(&host, &first), "broken");
    assert_eq!(status(&host, &second), "complete");
    let stats = host.json(0, "container stats");
    let counts = ["broken", "snapshots"].map(|name| number(&stats, name));
    assert_eq!(counts, [1, 2]);
    let said =
        "1 snapshot broken: the image is gone; `stasis container cleanup --orphans` removes them";
    assert_eq!(told(&host, "container stats").last().unwrap(), said);
    let lines = told(&host, "container list web");
    let marked: Vec<&String> = lines
        .iter()
        .filter(|line| line.contains("broken"))
        .collect();
    assert!(marked.len() == 1, "{lines:?}");
    assert!(marked[0].starts_with(&first[..8]), "{lines:?}");
    let look = || (host.lines("ps -aq"), host.lines("volume ls -q"));
    let before = look();
    let refused = host.json(3, &format!("container restore {first}"));
    let said = text(&refused["error"], "message");
    assert!(said.contains("is gone"), "{refused}");
    assert_eq!(look(), before);
    let to = host.session.home().join("files");
    let words = format!("restore container:web {first} --to {}", to.display());
    host.json(0, &words);
    let there = std::fs::read_to_string(to.join("volumes/data/n")).unwrap();
    assert_eq!(there, "one\n");
    let dry = host.json(0, "container cleanup --orphans --dry-run");
    let going = [first.as_str(), "web", "its image is gone"].map(str::to_owned);
    assert_eq!(removed(&dry), [going]);
    assert_eq!(listed(&host), [first, second.clone()]);
    assert_only_unnamed_is_not_broken(&host, &second);
}

/// An image that others are made of stays when its name is taken away: a container can still be made of it.
fn assert_only_unnamed_is_not_broken(host: &Host, id: &str) {
    host.json(0, &format!("container restore {id} {REPLACE}"));
    let newer = save(host, "web");
    host.json(0, &format!("container restore {newer} {REPLACE}"));

    remove_image(host, id);

    assert_eq!(status(host, id), "complete");
    let restored = host.json(0, &format!("container restore {id}"));
    let copy = text(&restored, "container_name");
    assert_eq!(host.sh(copy, "cat /data/n"), "two");
}

/// A container with something of everything that its metadata can say.
fn start_with_everything(host: &Host) -> String {
    let home = host.session.home();
    let (srv, device) = (home.join("srv"), home.join("device"));
    std::fs::create_dir(&srv).unwrap();
    std::fs::create_dir(&device).unwrap();
    let create = ["network", "create", "--subnet", "10.213.79.0/24", "metanet"];
    host.daemon.must(&create);
    let label = ["volume", "create", "--label", "team=blue", "data"];
    host.daemon.must(&label);
    let device = format!("device={}", device.display());
    let bound = ["volume", "create", "--opt", "type=none", "--opt", "o=bind"];
    host.daemon
        .must(&[&bound[..], &["--opt", &device, "bound"]].concat());
    let bind = format!("{}:/srv", srv.display());
    let run = ["run", "-d", "--name", "web", "--network", "metanet"];
    let mounts = ["-v", "data:/data", "-v", "bound:/bound", "-v", "/cache"];
    let others = ["--tmpfs", "/scratch", "-v", &bind, "-e", "TOKEN=s3cret"];
    let rest = [
        "-l",
        "app=shop",
        "-w",
        "/bin",
        "-u",
        "0:0",
        "--stop-signal",
        "KILL",
    ];
    let what = [IMAGE, "/bin/sleep", "1000"];
    let id = host
        .daemon
        .must(&[&run[..], &mounts, &others, &rest, &what].concat());
    host.sh(
        "web",
        "echo hello > /data/x; echo hi > /bound/x; echo own > /own",
    );
    id
}

fn assert_metadata(shown: &Value, saved: &Value, container: &str) {
    let id = text(saved, "snapshot_id");
    let image = format!("stasis-snapshot:{id}");
    let words = [
        ("snapshot_id", id),
        ("container_id", container),
        ("container_name", "web"),
        ("image", &image),
        ("original_image", IMAGE),
        ("trigger", "before_action"),
        ("description", "before the agent"),
        ("run_id", "run-7"),
        ("action_context", "fill in the form"),
        ("status", "complete"),
        ("container_status", "running"),
    ];
    for (name, wanted) in words {
        assert_eq!(text(shown, name), wanted, "{name}");
    }
    assert_eq!(shown["labels"], json!({"state": "good"}));
    assert_eq!(
        (&shown["portable"], &shown["parent"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(shown["restorations"], json!([]));
    // Six bytes, three bytes, and what the image has besides that of its container.
    let own = number(saved, "image_bytes");
    assert_eq!(number(shown, "size_bytes"), 6 + 3 + own);
    let config = &shown["config"];
    assert_eq!(config["Labels"]["app"], "shop");
    assert_eq!(
        (&config["WorkingDir"], &config["User"]),
        (&json!("/bin"), &json!("0:0"))
    );
    let variables = rows(config, "Env");
    assert!(variables.contains(&json!("TOKEN=********")), "{config}");
    assert_eq!(
        shown["networks"]
            .as_object()
            .unwrap()
            .keys()
            .collect::<Vec<_>>(),
        ["metanet"]
    );
    assert_mounts(shown);
}

/// What is mounted, and what of the container is not in the snapshot.
fn assert_mounts(shown: &Value) {
    let mounts = rows(shown, "mounts").iter();
    let mounts = mounts.map(|one| (text(one, "destination"), text(one, "kind")));
    let wanted = [
        ("/bound", "named_volume"),
        ("/cache", "anonymous_volume"),
        ("/data", "named_volume"),
        ("/scratch", "tmpfs"),
        ("/srv", "bind"),
    ];
    assert_eq!(mounts.collect::<BTreeMap<_, _>>(), BTreeMap::from(wanted));
    let left = rows(shown, "not_captured").iter();
    let left = left.map(|one| (text(one, "what"), text(one, "because")));
    let wanted = [
        ("/cache", "anonymous"),
        ("/scratch", "memory"),
        ("/srv", "bind"),
        ("/proc", "kernel"),
        ("/sys", "kernel"),
        ("/dev", "kernel"),
        ("processes", "memory"),
    ];
    assert_eq!(left.collect::<BTreeMap<_, _>>(), BTreeMap::from(wanted));
}

/// What a snapshot says of one of its volumes.
fn volume<'v>(shown: &'v Value, name: &str) -> &'v Value {
    let mut volumes = rows(shown, "volumes").iter();
    volumes.find(|one| text(one, "name") == name).unwrap()
}

#[test]
fn everything_that_is_known_of_a_snapshot_is_shown_by_its_name() {
    let Some(host) = Host::new() else {
        return;
    };
    let container = start_with_everything(&host);
    let begun = now_ms();
    let create = ["container", "create", "web", "--trigger", "before_action"];
    let said = ["--description", "before the agent", "--run-id", "run-7"];
    let more = ["--context", "fill in the form", "--label", "state=good"];
    let output = host.output(&[&create[..], &said, &more].concat());
    let saved: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{saved}");

    let shown = host.json(0, "container show state=good");

    assert_metadata(&shown, &saved, &container);
    assert!((begun..=now_ms()).contains(&number(&shown, "created_at_ms")));
    let made_of = host.inspect(
        text(&shown, "image"),
        "{{index .Config.Labels \"stasis.snapshot\"}}",
    );
    assert_eq!(made_of, text(&saved, "snapshot_id"));
    assert_eq!(rows(&shown, "volumes").len(), 2);
    let (data, bound) = (volume(&shown, "data"), volume(&shown, "bound"));
    assert_eq!(
        (text(data, "driver"), &data["options"]),
        ("local", &json!({}))
    );
    assert_eq!(data["labels"], json!({"team": "blue"}));
    assert_eq!(
        (&data["mount_paths"], number(data, "bytes")),
        (&json!(["/data"]), 6)
    );
    assert_eq!(
        (&bound["mount_paths"], number(bound, "bytes")),
        (&json!(["/bound"]), 3)
    );
    assert_eq!(
        (&bound["options"]["type"], &bound["options"]["o"]),
        (&json!("none"), &json!("bind"))
    );
    assert_ne!(data["digest"], bound["digest"]);
    // What a list has is the same.
    let listed = host.json(0, "container list web")["items"][0].clone();
    for (name, value) in listed.as_object().unwrap() {
        assert_eq!(shown[name], *value, "{name}");
    }
    assert_another_address_is_no_other_setting(&host);
}

/// What an engine makes anew when a container is started is nothing that somebody changed.
fn assert_another_address_is_no_other_setting(host: &Host) {
    let address = || host.inspect("web", "{{.NetworkSettings.Networks.metanet.IPAddress}}");
    let before = address();
    host.daemon.must(&["stop", "web"]);
    let run = ["run", "-d", "--name", "other", "--network", "metanet"];
    let what = [IMAGE, "/bin/sleep", "1000"];
    host.daemon.must(&[&run[..], &what].concat());
    host.daemon.must(&["start", "web"]);
    assert_ne!(address(), before);
    save(host, "web");

    let diff = host.json(0, "container diff state=good latest --of web");

    assert_eq!(diff["config"], json!([]));
}

#[test]
fn a_chain_of_snapshots_names_its_first_image_its_parents_and_what_was_made_of_each() {
    let Some(host) = Host::new() else {
        return;
    };
    let options = "--stop-signal KILL -v data:/data";
    host.start("web", options, "echo one > /data/n; echo one > /own");
    let first = save(&host, "web");
    host.sh("web", "echo two > /data/n");
    host.json(0, &format!("container restore {first} {REPLACE}"));
    let replaced = host.inspect("web", "{{.Id}}");
    let second = save(&host, "web --portable");
    host.sh("web", "echo three > /data/n");
    let third = save(&host, "web");
    let copy = host.json(0, &format!("container restore {first}"));
    let name = text(&copy, "container_name");
    let fourth = save(&host, name);

    let [first, second, third, fourth] =
        [first, second, third, fourth].map(|id| host.json(0, &format!("container show {id}")));

    for shown in [&first, &second, &third, &fourth] {
        assert_eq!(text(shown, "original_image"), IMAGE);
    }
    for shown in [&second, &third, &fourth] {
        assert_eq!(shown["restorations"], json!([]));
    }
    assert_eq!(second["parent"], first["snapshot_id"]);
    assert_eq!(third["parent"], second["snapshot_id"]);
    assert_eq!(fourth["parent"], Value::Null, "it is its container's first");
    assert_eq!(second["container_id"], replaced.as_str());
    let portable = [&first, &second, &third].map(|one| one["portable"] == true);
    assert_eq!(portable, [false, true, false]);
    let digest = |one: &Value| one["volumes"][0]["digest"].clone();
    assert_eq!(digest(&second), digest(&first), "the same contents again");
    assert_ne!(digest(&third), digest(&first));
    let of_copy = host.inspect(name, "{{.Id}}");
    let made = [(replaced.as_str(), "web"), (of_copy.as_str(), name)];
    let rows = rows(&first, "restorations").iter();
    let named = rows.map(|one| {
        assert!(text(one, "at") > text(&first, "created_at"), "{one}");
        (text(one, "container_id"), text(one, "container_name"))
    });
    assert_eq!(named.collect::<Vec<_>>(), made);
    let words = format!("container show {}", text(&first, "snapshot_id"));
    let told = told(&host, &words);
    let wanted = format!("restored     {name} ({}) at ", &of_copy[..8]);
    let is_it = |line: &String| line.starts_with(&wanted);
    assert!(told.iter().any(is_it), "{told:?}");
}

/// Values of variables that nobody may read.
const SECRETS: [&str; 3] = ["zq7-t0ken-Xw", "kv9-m0re-Pm", "wd4-0ther-Lr"];

/// Everything that a command says, and notes of what it does, in which no value of the environment is.
fn assert_masked(host: &Host, code: i32, words: &str) -> String {
    let words: Vec<&str> = words.split(' ').collect();
    let output = run_with(host, &[("STASIS_LOG", "trace")], &words);
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {out}{said}");
    for secret in SECRETS {
        for text in [&out, &said] {
            let found = text.lines().find(|line| line.contains(secret));
            assert_eq!(found, None, "{words:?}");
        }
    }
    assert!(
        said.contains("TRACE") || said.contains("DEBUG"),
        "{words:?} notes nothing: {said}"
    );
    out
}

#[test]
fn values_of_the_environment_are_masked_in_what_is_shown_and_in_every_log() {
    let Some(host) = Host::new() else {
        return;
    };
    let [first, more, second] = SECRETS;
    let options = |token| format!("--stop-signal KILL -v data:/data -e EMPTY= -e TOKEN={token}");
    host.start("web", &options(first), "echo one > /data/n");
    let masked = |words: &str| assert_masked(&host, 0, words);
    masked("container validate web");
    masked("container create web");
    let copy = format!("container restore latest web --env MORE={more} --name");
    masked(&format!("{copy} copy"));
    // What goes wrong says why, and not with what.
    assert_masked(&host, 4, &format!("{copy} copy"));
    assert_masked(&host, 2, &format!("{copy} no/name"));
    let variables = host.sh("copy", "echo $TOKEN $MORE");
    assert_eq!(variables, format!("{first} {more}"));
    host.daemon.must(&["rm", "-f", "web"]);
    host.start("web", &options(second), "echo one > /data/n");

    masked("container diff latest --of web");
    masked("save container:web");
    let diff = masked("container diff latest~1 latest --of web");
    let wanted = "Config.Env.TOKEN: \"********\" -> \"********\"";
    assert!(diff.lines().any(|line| line == wanted), "{diff}");
    let shown = masked("container show latest web");
    for wanted in ["TOKEN=********", "EMPTY=********"] {
        let wanted = format!("variable     {wanted}");
        assert!(shown.lines().any(|line| line == wanted), "{shown}");
    }
    for command in EVERYDAY {
        masked(command);
        masked(&format!("--json --log-format json {command}"));
    }
    masked(&format!("container restore latest~1 web {REPLACE}"));
    assert_eq!(host.sh("web", "echo $TOKEN"), first);
    masked("undo container:web --yes");
    assert_eq!(host.sh("web", "echo $TOKEN"), second);
    let file = host.session.home().join("web.tar.zst");
    let file = file.display();
    masked(&format!("container export latest {file} --of web"));
    masked(&format!("container import {file} --restore --name again"));
    assert_eq!(host.sh("again", "echo $TOKEN"), second);
    masked("container cleanup");
    assert_nothing_is_kept_beside_the_store(&host);
    assert_files_are_for_their_owner(&host);
}

/// What is looked at every day.
const EVERYDAY: [&str; 6] = [
    "show container:web",
    "diff container:web",
    "log container:web",
    "check container:web",
    "container list",
    "container stats",
];

fn assert_nothing_is_kept_beside_the_store(host: &Host) {
    for place in ["state", "cache", "config"] {
        let place = host.session.home().join(place);
        let all = if place.exists() {
            files(&place)
        } else {
            Vec::new()
        };
        for path in all {
            let bytes = std::fs::read(&path).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            let found = SECRETS.iter().find(|secret| text.contains(**secret));
            assert_eq!(found, None, "{}", path.display());
        }
    }
}

/// The values are where only somebody finds them who asks for them.
fn assert_files_are_for_their_owner(host: &Host) {
    let to = host.session.home().join("files");
    let words = format!("restore container:web --to {}", to.display());
    assert_masked(host, 0, &words);
    let path = to.join("environment.json");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let written = std::fs::read_to_string(&path).unwrap();
    let written: Vec<String> = serde_json::from_str(&written).unwrap();
    assert!(
        written.contains(&format!("TOKEN={}", SECRETS[2])),
        "{written:?}"
    );
    assert!(written.contains(&"EMPTY=".to_owned()), "{written:?}");
    let data = std::fs::read_to_string(to.join("volumes/data/n")).unwrap();
    assert_eq!(data, "one\n");
    // The look would find them where they are.
    let words = ["cat", "container:web", "latest", "environment.json"];
    let output = run_with(host, &[("STASIS_LOG", "trace")], &words);
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(out.contains(SECRETS[2]), "{out}");
}

/// What a diff says of settings: what was, and what is.
fn settings(diff: &Value) -> BTreeMap<String, (Value, Value)> {
    let all = rows(diff, "config").iter();
    all.map(|one| {
        let values = (one["before"].clone(), one["after"].clone());
        (text(one, "setting").to_owned(), values)
    })
    .collect()
}

/// What a diff says of files: the change of each, but for what only became of their directory.
fn changes(diff: &Value, part: &str) -> BTreeMap<String, String> {
    let all = rows(diff, part).iter();
    let all = all.map(|one| (text(one, "path").to_owned(), text(one, "change").to_owned()));
    all.filter(|(path, _)| !path.is_empty() && path != ".")
        .collect()
}

fn map<const N: usize>(rows: [(&str, &str); N]) -> BTreeMap<String, String> {
    let rows = rows.map(|(name, value)| (name.to_owned(), value.to_owned()));
    BTreeMap::from(rows)
}

fn assert_nothing_differs(diff: &Value) {
    for part in ["config", "volumes", "image"] {
        assert_eq!(diff[part], json!([]), "{part}");
    }
    assert!(diff.get("not_compared").is_none(), "{diff}");
}

#[test]
fn a_diff_has_settings_files_and_volumes_by_content_and_no_values_of_variables() {
    let Some(host) = Host::new() else {
        return;
    };
    let options =
        "--stop-signal KILL -v data:/data --memory 64m --memory-swap 128m -l app=shop -e TOKEN=";
    let first = format!("{options}{}", SECRETS[0]);
    host.start("web", &first, "true");
    let write = "echo 1 > stays; echo 1 > goes; echo 1 > changes";
    host.sh(
        "web",
        &format!("mkdir /own; cd /own; {write}; cd /data; {write}"),
    );
    save(&host, "web --label n=1");
    assert_nothing_differs(&host.json(0, "container diff n=1 --of web"));
    host.daemon
        .must(&["update", "--memory", "96m", "--memory-swap", "192m", "web"]);
    let change = "echo 1 > comes; rm goes; echo 2 > changes";
    host.sh("web", &format!("cd /own; {change}; cd /data; {change}"));
    save(&host, "web --label n=2");

    let diff = host.json(0, "container diff n=1 n=2 --of web");

    let memory = [
        (
            "HostConfig.Memory".to_owned(),
            (json!(67_108_864), json!(100_663_296)),
        ),
        (
            "HostConfig.MemorySwap".to_owned(),
            (json!(134_217_728), json!(201_326_592)),
        ),
    ];
    assert_eq!(settings(&diff), BTreeMap::from(memory.clone()));
    let own = map([
        ("/own/changes", "modified"),
        ("/own/comes", "added"),
        ("/own/goes", "deleted"),
    ]);
    assert_eq!(changes(&diff, "image"), own);
    let volume = map([
        ("changes", "content"),
        ("comes", "added"),
        ("goes", "removed"),
    ]);
    assert_eq!(changes(&diff, "volumes"), volume);
    assert_eq!(diff["volumes"][0]["volume"], "data");
    // As it is now it differs from the first one in the same way, and from the second one in nothing.
    let live = host.json(0, "container diff n=1 --of web");
    assert_eq!(settings(&live), BTreeMap::from(memory));
    assert_eq!(
        (changes(&live, "image"), changes(&live, "volumes")),
        (own, volume)
    );
    assert_nothing_differs(&host.json(0, "container diff n=2 --of web"));
    assert_another_container_differs(&host, options);
    // What was replaced is what it was, in everything that is compared.
    host.json(0, &format!("container restore n=1 {REPLACE}"));
    assert_nothing_differs(&host.json(0, "container diff n=1 --of web"));
    save(&host, "web --label n=4");
    assert_nothing_differs(&host.json(0, "container diff n=1 n=4 --of web"));
}

/// Somebody makes another container of the name: of another image, with other labels and other variables.
fn assert_another_container_differs(host: &Host, options: &str) {
    host.daemon.must(&["rm", "-f", "web"]);
    host.daemon.must(&["tag", IMAGE, "newer:2"]);
    let options = options.replace("64m", "96m").replace("128m", "192m");
    let options = options.replace("app=shop", "app=store -l com.shop.team=blue");
    let options = format!("{options}{} -e MORE={}", SECRETS[2], SECRETS[1]);
    host.start_of("newer:2", "web", &options, "true");
    save(host, "web --label n=3");

    let diff = host.json(0, "container diff n=2 n=3 --of web");

    let masked = || json!("********");
    let wanted = [
        ("Config.Image", (json!(IMAGE), json!("newer:2"))),
        ("Config.Labels.app", (json!("shop"), json!("store"))),
        ("Config.Labels.com.shop.team", (Value::Null, json!("blue"))),
        ("Config.Env.TOKEN", (masked(), masked())),
        ("Config.Env.MORE", (Value::Null, masked())),
    ];
    let wanted = wanted.map(|(name, values)| (name.to_owned(), values));
    assert_eq!(settings(&diff), BTreeMap::from(wanted));
    let lines = told(host, "container diff n=2 n=3 --of web");
    for line in [
        "Config.Labels.app: \"shop\" -> \"store\"",
        "Config.Labels.com.shop.team: - -> \"blue\"",
        "Config.Env.MORE: - -> \"********\"",
    ] {
        assert!(lines.iter().any(|one| one == line), "{lines:?}");
    }
    for secret in SECRETS {
        assert!(!diff.to_string().contains(secret) && !lines.concat().contains(secret));
    }
}
