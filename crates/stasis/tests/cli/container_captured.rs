//! What of a container is captured and what is refused, with a real Docker engine.

use crate::container_host::{Host, REPLACE, rows, text};
use crate::live_databases::python;
use serde_json::{Value, json};
use stasis_testkit::docker::IMAGE;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::Duration;

fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2400 {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(25));
    }
    panic!("not in 60 seconds: {what}");
}

/// Writes without an end, so that it can be seen whether a container really runs.
fn begin_to_tick(host: &Host, container: &str) {
    let script = "while :; do echo >> /ticks; sleep 0.02; done";
    let words = ["exec", "-d", container, "/bin/sh", "-c", script];
    host.daemon.must(&words);
}

/// Nothing is listed, the engine has no image and no container besides, and the container runs.
fn assert_nothing_saved(host: &Host, container: &str) {
    let listed = host.json(0, "container list");
    assert_eq!(rows(&listed, "items"), Vec::<Value>::new());
    assert_eq!(host.json(0, "container stats")["snapshots"], 0);
    assert_eq!(host.images(), 0);
    let nameless = host.lines("images -q --filter dangling=true");
    assert_eq!(nameless, Vec::<String>::new());
    assert_eq!(host.lines("ps -a --format {{.Names}}"), [container]);
    assert_eq!(host.status(container), "running");
    let ticks = || host.sh(container, "/bin/busybox wc -l < /ticks");
    let before = ticks();
    soon("it runs", || ticks() != before);
}

fn message(answer: &Value) -> String {
    answer["error"].to_string()
}

/// Where the files of a volume lie.
fn place_of(host: &Host, volume: &str) -> PathBuf {
    let words = ["volume", "inspect", "-f", "{{.Mountpoint}}", volume];
    host.daemon.must(&words).into()
}

/// Runs a command as somebody who may use the engine, and may not read what is another user's alone.
fn as_less_than_root(host: &Host, words: &str) -> Output {
    let words: Vec<&str> = ["--json"].into_iter().chain(words.split(' ')).collect();
    let usual = host.command(&words);
    let mut command = Command::new("setpriv");
    command
        .arg("--bounding-set=-dac_override,-dac_read_search")
        .arg(usual.get_program())
        .args(usual.get_args())
        .env_clear();
    let variables = usual.get_envs();
    command.envs(variables.filter_map(|(name, value)| Some((name, value?))));
    command.output().unwrap()
}

/// Memory that is mounted in a directory, until this is dropped.
struct MountedWithin<'p>(&'p Path);

impl<'p> MountedWithin<'p> {
    fn new(place: &'p Path) -> Self {
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "stasis-test"]).arg(place);
        assert!(mount.status().unwrap().success());
        Self(place)
    }
}

impl Drop for MountedWithin<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn what_cannot_be_saved_whole_is_not_saved_and_leaves_nothing() {
    let Some(host) = Host::new() else {
        return;
    };
    let script = "mkdir /data/inner; echo x > /data/locked; /bin/busybox chown 1234 /data/locked; \
         /bin/busybox chmod 600 /data/locked; echo x > /more/x; dd if=/dev/urandom of=/own bs=1048576 count=16 2>/dev/null";
    host.start("web", "-v data:/data -v more:/more", script);
    // However slow the machine is, that is not why it is refused.
    let create = "container create web --max-freeze 2m";
    begin_to_tick(&host, "web");

    // A file that may not be read.
    let refused = as_less_than_root(&host, create);
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("`volumes/data/locked`"), "{said}");
    assert_nothing_saved(&host, "web");

    // A part of it that is another filesystem.
    let inner = place_of(&host, "data").join("inner");
    let mounted = MountedWithin::new(&inner);
    fs::write(inner.join("precious"), "x").unwrap();
    let refused = host.json(1, create);
    let said = message(&refused);
    assert!(said.contains("`volumes/data/inner`"), "{said}");
    assert_nothing_saved(&host, "web");
    drop(mounted);

    // A volume whose files the engine does not find any more.
    let more = place_of(&host, "more");
    let aside = more.with_file_name("aside");
    fs::rename(&more, &aside).unwrap();
    let refused = host.json(1, create);
    let said = message(&refused);
    assert!(said.contains("the volume `more`"), "{said}");
    assert_nothing_saved(&host, "web");
    fs::rename(&aside, &more).unwrap();

    // More than can be written while it may stand still.
    host.sh(
        "web",
        "dd if=/dev/urandom of=/large bs=1048576 count=64 2>/dev/null",
    );
    for longest in ["50ms", "1ms"] {
        let refused = host.json(11, &format!("container create web --max-freeze {longest}"));
        let said = message(&refused);
        assert!(said.contains("--max-freeze"), "{said}");
        assert_nothing_saved(&host, "web");
    }

    host.sh("web", "rm /large");
    let saved = host.json(0, create);
    assert_eq!(rows(&saved, "volumes").len(), 2);
    assert_eq!(rows(&host.json(0, "container list"), "items").len(), 1);
    assert_eq!(host.images(), 1);
}

/// Runs a command while a container waits for its next start, and waited all the time.
fn while_restarting(host: &Host, container: &str, words: &[&str]) -> Output {
    let look = || host.inspect(container, "{{.RestartCount}} {{.State.Status}}");
    for _ in 0..600 {
        let before = look();
        let (count, status) = before.split_once(' ').unwrap();
        // Each time the engine waits twice as long.
        if status == "restarting" && count.parse::<u32>().unwrap() >= 4 {
            let output = host.output(words);
            if look() == before {
                return output;
            }
        }
        sleep(Duration::from_millis(25));
    }
    panic!("{container} never waits long enough: {}", look());
}

/// Writes a file into a container, whatever that does.
fn copy_in(host: &Host, container: &str, text: &str, place: &str) {
    let file = host.session.home().join("copied");
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    host.daemon
        .must(&["cp", file, &format!("{container}:{place}")]);
}

#[test]
fn one_that_does_not_run_is_saved_and_not_started_and_one_in_between_is_refused_by_name() {
    let Some(host) = Host::new() else {
        return;
    };
    let run = ["run", "-d", "--network", "none", "--name", "loop"];
    let how = ["--restart", "always", IMAGE, "/bin/sh", "-c", "exit 1"];
    host.daemon.must(&[&run[..], &how].concat());
    let sleeps = "--network none -v never:/data stasis-test-base /bin/sleep 1000";
    let create: Vec<&str> = ["create", "--name", "never"]
        .into_iter()
        .chain(sleeps.split(' '))
        .collect();
    host.daemon.must(&create);
    host.start("done", "-v done:/data", "true");
    host.daemon.must(&["stop", "-t", "1", "done"]);
    let read = |container: &str| host.sh(container, "cat /data/n /own");

    for (container, status) in [("never", "created"), ("done", "exited")] {
        copy_in(&host, container, "one\n", "/data/n");
        copy_in(&host, container, "one\n", "/own");
        let found = host.json(0, &format!("container validate {container}"));
        assert_eq!(
            (&found["is_valid"], text(&found, "status")),
            (&true.into(), status)
        );
        let saved = host.json(0, &format!("container create {container}"));
        assert_eq!(saved["frozen_ms"], 0);
        assert_eq!(host.status(container), status);
        let shown = host.json(0, &format!("container show latest {container}"));
        assert_eq!(text(&shown, "container_status"), status);

        copy_in(&host, container, "two\n", "/data/n");
        copy_in(&host, container, "two\n", "/own");
        let beside = host.json(0, &format!("container restore latest {container}"));
        let name = text(&beside, "container_name");
        assert_eq!(
            (&beside["started"], host.status(name).as_str()),
            (&false.into(), "created")
        );
        host.daemon.must(&["start", name]);
        assert_eq!(read(name), "one\none");
        let replace = format!("container restore latest {container} {REPLACE}");
        assert_eq!(host.json(0, &replace)["started"], false);
        assert_eq!(host.status(container), "created");
        host.daemon.must(&["start", container]);
        assert_eq!(read(container), "one\none");
    }

    let listed = rows(&host.json(0, "container list"), "items").len();
    let found = while_restarting(&host, "loop", &["container", "validate", "loop"]);
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    assert_eq!(found.status.code(), Some(1), "{said}");
    let found: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&found["is_valid"], text(&found, "status")),
        (&false.into(), "restarting")
    );
    assert!(text(&found, "refused").contains("restarting"), "{found}");
    let refused = while_restarting(&host, "loop", &["container", "create", "loop"]);
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("`loop` is restarting"), "{said}");
    assert_eq!(rows(&host.json(0, "container list"), "items").len(), listed);
    host.json(3, "container list loop");
}

/// Makes two databases, of which the second is damaged.
const DATABASES: &str = "
import shutil, sqlite3, sys
sound, damaged = sys.argv[1:]
db = sqlite3.connect(sound)
db.execute('create table entries (n integer primary key, words text)')
db.executemany('insert into entries values (?, ?)', [(n, 'words ' * 50) for n in range(500)])
db.commit()
db.close()
shutil.copy(sound, damaged)
with open(damaged, 'r+b') as file:
    file.seek(4096)
    file.write(b'damage' * 3000)
";

#[test]
fn a_damaged_database_is_named_in_the_result_and_stored_as_it_is() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start("shop", "-v data:/data", "mkdir /data/db");
    let files = ["sound.db", "damaged.db"].map(|name| host.session.home().join(name));
    let files = files.each_ref().map(|path| path.to_str().unwrap());
    python(DATABASES, &files);
    for file in files {
        host.daemon.must(&["cp", file, "shop:/data/db"]);
    }
    let sums =
        |container: &str| host.sh(container, "sha256sum /data/db/sound.db /data/db/damaged.db");
    let before = sums("shop");

    for status in ["running", "paused"] {
        if status == "paused" {
            host.daemon.must(&["pause", "shop"]);
        }
        let saved = host.json(13, "container create shop");
        assert_eq!(host.status("shop"), status);
        assert_eq!(saved["databases"], 1, "{saved}");
        let unsound = rows(&saved, "unsound_databases");
        assert_eq!(unsound.len(), 1, "{saved}");
        assert_eq!(text(&unsound[0], "path"), "volumes/data/db/damaged.db");
        assert!(!text(&unsound[0], "reason").is_empty());
        let id = text(&saved, "snapshot_id");
        let listed = host.json(0, "container list shop");
        let newest = &listed["items"][0];
        assert_eq!(
            (text(newest, "snapshot_id"), text(newest, "status")),
            (id, "complete")
        );
    }
    host.daemon.must(&["unpause", "shop"]);
    host.sh("shop", "echo other > /data/db/damaged.db");

    let restored = host.json(0, "container restore latest shop");

    let name = text(&restored, "container_name");
    let damaged = |sums: &str| sums.lines().last().unwrap().to_owned();
    assert_eq!(damaged(&sums(name)), damaged(&before));
    host.json(0, &format!("container restore latest~1 shop {REPLACE}"));
    assert_eq!(damaged(&sums("shop")), damaged(&before));
    host.json(0, "undo container:shop --yes");
    assert_eq!(host.sh("shop", "cat /data/db/damaged.db"), "other");
}

/// What is said to be left out: what, why, and what saves it.
fn left_out(answer: &Value) -> Vec<(&str, &str, Option<&str>)> {
    let all = rows(answer, "not_captured").iter();
    let row = |one| {
        (
            text(one, "what"),
            text(one, "because"),
            one["option"].as_str(),
        )
    };
    all.map(row).collect()
}

/// What no snapshot has.
const NEVER: [(&str, &str, Option<&str>); 4] = [
    ("/proc", "kernel", None),
    ("/sys", "kernel", None),
    ("/dev", "kernel", None),
    ("processes", "memory", None),
];

#[test]
fn a_volume_that_nobody_named_is_saved_on_request_and_else_left_alone() {
    let Some(host) = Host::new() else {
        return;
    };
    let script = "echo one > /cache/n; echo one > /data/n";
    host.start("web", "--stop-signal KILL -v data:/data -v /cache", script);
    let both = |container: &str| host.sh(container, "cat /cache/n /data/n");
    let volume = |container: &str| {
        let of = "{{range .Mounts}}{{if eq .Destination \"/cache\"}}{{.Name}}{{end}}{{end}}";
        host.inspect(container, of)
    };
    let cache = volume("web");
    let without = host.json(0, "container create web --label with=no");
    let with = host.json(0, "container create web --label with=yes --anonymous");
    let cached = ("/cache", "anonymous", Some("--anonymous"));
    assert_eq!(left_out(&without), [&[cached][..], &NEVER].concat());
    assert_eq!(left_out(&with), NEVER);
    assert_eq!(rows(&without, "volumes").len(), 1);
    let saved = rows(&with, "volumes").iter();
    let saved: Vec<&Value> = saved
        .filter(|one| one["kind"] == "anonymous_volume")
        .collect();
    assert_eq!(saved.len(), 1, "{with}");
    assert_eq!(
        (&saved[0]["mount_paths"], &saved[0]["bytes"]),
        (&json!(["/cache"]), &json!(4))
    );
    assert_eq!(text(saved[0], "name"), cache);
    let write = |words: &str| {
        host.sh(
            "web",
            &format!("echo {words} > /cache/n; echo {words} > /data/n"),
        )
    };
    write("two");

    let beside = host.json(0, "container restore with=yes web");
    let name = text(&beside, "container_name");
    assert_eq!(both(name), "one\none");
    assert_eq!(beside["not_restored"], json!([]));
    assert!(
        volume(name).starts_with("web_cache_restored_"),
        "{}",
        volume(name)
    );
    host.sh(name, "echo copy > /cache/n");
    assert_eq!(both("web"), "two\ntwo");
    let beside = host.json(0, "container restore with=no web");
    assert_eq!(beside["not_restored"], json!(["/cache"]));
    let name = text(&beside, "container_name");
    assert_eq!(host.sh(name, "cat /data/n; echo /cache/*"), "one\n/cache/*");

    host.json(0, &format!("container restore with=no web {REPLACE}"));
    assert_eq!(
        (both("web"), volume("web")),
        ("two\none".to_owned(), cache.clone())
    );
    write("three");
    host.json(0, &format!("container restore with=yes web {REPLACE}"));
    assert_eq!(
        (both("web"), volume("web")),
        ("one\none".to_owned(), cache.clone())
    );
    host.json(0, "undo container:web --yes");
    assert_eq!(
        (both("web"), volume("web")),
        ("three\nthree".to_owned(), cache)
    );
}

/// What is mounted in a container: place, kind, and whether it may be written.
fn mounts(host: &Host, container: &str) -> Vec<String> {
    let each = "{{range .Mounts}}{{.Destination}} {{.Type}} {{.RW}}\n{{end}}";
    let mut all: Vec<String> = host
        .inspect(container, each)
        .lines()
        .map(str::to_owned)
        .collect();
    all.sort();
    all
}

/// Three containers: with directories of the host, with memory, with a volume that nobody named.
fn start_with_all_sorts(host: &Host, bound: &Path, conf: &Path) {
    for directory in [bound, conf] {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("n"), "one\n").unwrap();
    }
    let options = format!(
        "-v {}:/bound -v {}:/conf:ro --tmpfs /scratch -v data:/data",
        bound.display(),
        conf.display()
    );
    host.start("web", &options, "echo one > /data/n");
    host.start("mem", "--tmpfs /scratch", "true");
    host.start("anon", "-v /cache", "true");
}

fn assert_strict_refuses(host: &Host) {
    let bound = "--bind /bound saves it";
    for (words, what, hint) in [
        ("mem", "`/scratch` of `mem`", "leave out --strict"),
        ("anon", "`/cache` of `anon`", "--anonymous saves it"),
        ("web --bind /conf", "`/bound` of `web`", bound),
        (
            "web --bind /conf --bind /bound",
            "`/scratch` of `web`",
            "leave out --strict",
        ),
    ] {
        let refused = host.json(2, &format!("container create {words} --strict"));
        let said = message(&refused);
        assert!(
            said.contains(what) && said.contains(hint),
            "{words}: {said}"
        );
    }
    let unmet = host.json(2, "container create web --bind /data");
    assert!(message(&unmet).contains("`/data`"), "{unmet}");
    let listed = host.json(0, "container list");
    assert_eq!((host.images(), &listed["items"]), (0, &json!([])));
}

#[test]
fn whoever_is_strict_is_told_what_would_stay_behind_and_a_bind_is_saved_as_a_copy() {
    let Some(host) = Host::new() else {
        return;
    };
    let [bound, conf] = ["bound", "conf"].map(|name| host.session.home().join(name));
    start_with_all_sorts(&host, &bound, &conf);
    assert_strict_refuses(&host);
    host.json(0, "container create anon --strict --anonymous");
    let scratch = ("/scratch", "memory", None);
    let plain = host.json(0, "container create web");
    let binds = [("/bound", "--bind /bound"), ("/conf", "--bind /conf")];
    let binds = binds.map(|(place, option)| (place, "bind", Some(option)));
    assert_eq!(left_out(&plain), [&binds[..], &[scratch], &NEVER].concat());
    let saved = host.json(0, "container create web --bind /bound --bind /conf");
    assert_eq!(left_out(&saved), [&[scratch][..], &NEVER].concat());
    let mut kinds: Vec<&str> = rows(&saved, "volumes")
        .iter()
        .map(|one| text(one, "kind"))
        .collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["bind", "bind", "named_volume"]);
    fs::write(bound.join("n"), "two\n").unwrap();

    let restored = host.json(0, "container restore latest web");

    let copy = text(&restored, "container_name");
    assert_eq!(
        host.sh(copy, "cat /bound/n /conf/n /data/n"),
        "one\none\none"
    );
    let volumes = [
        "/bound volume true",
        "/conf volume false",
        "/data volume true",
    ];
    assert_eq!(mounts(&host, copy), volumes);
    assert_eq!(restored["not_restored"], json!(["/scratch"]));
    assert!(
        host.inspect(copy, "{{json .HostConfig.Tmpfs}}")
            .contains("/scratch")
    );
    // Neither sees what the other one writes.
    host.sh(copy, "echo copy > /bound/n; echo > /bound/more");
    assert_eq!(
        host.sh("web", "cat /bound/n; echo /bound/*"),
        "two\n/bound/n"
    );
    fs::write(bound.join("n"), "three\n").unwrap();
    assert_eq!(host.sh(copy, "cat /bound/n"), "copy");
    let bound = ["/bound bind true", "/conf bind false", "/data volume true"];
    assert_eq!(mounts(&host, "web"), bound);
}

/// How many images and snapshots there are.
fn counts(host: &Host) -> (usize, usize) {
    let listed = host.json(0, "container list");
    (host.images(), rows(&listed, "items").len())
}

#[test]
fn in_everyday_words_a_container_is_saved_with_its_image_restored_beside_and_forgotten() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start(
        "web",
        "-v data:/data",
        "echo one > /data/n; echo one > /own",
    );
    let both = |container: &str| host.sh(container, "cat /data/n /own");
    let saved = host.json(0, "save container:web -m words");
    host.sh("web", "echo two > /data/n; echo two > /own");
    let made = host.json(0, "container create web");
    let (first, second) = (text(&saved, "snapshot_id"), text(&made, "snapshot_id"));
    let portable = (&saved["portable"], &made["portable"]);
    assert_eq!(portable, (&json!(true), &json!(false)));
    let shown = host.json(0, &format!("show container:web {first}"));
    assert_eq!(
        (&shown["portable"], text(&shown, "description")),
        (&json!(true), "words")
    );

    // Without their images one can be restored, and the other one cannot.
    for id in [first, second] {
        host.daemon.must(&["rmi", &format!("stasis-snapshot:{id}")]);
    }
    let refused = host.json(3, "restore container:web");
    assert!(message(&refused).contains("gone"), "{refused}");
    let restored = host.json(0, &format!("restore container:web {first}"));
    let name = text(&restored, "container_name");
    assert!(name.starts_with("web_restored_"), "{name}");
    assert_eq!(
        (text(&restored, "mode"), both(name).as_str()),
        ("new", "one\none")
    );
    assert_eq!(
        (both("web"), host.status("web")),
        ("two\ntwo".to_owned(), "running".to_owned())
    );

    let third = host.json(0, "save container:web");
    let third = text(&third, "snapshot_id");
    assert_eq!(counts(&host), (2, 3));
    host.json(0, &format!("forget container:web {third} --dry-run"));
    assert_eq!(counts(&host), (2, 3));
    // All of them go, or none.
    let unknown = "00000000-0000-8000-8000-000000000000";
    host.json(3, &format!("forget container:web {third} {unknown} --yes"));
    assert_eq!(counts(&host), (2, 3));
    let words = format!("forget container:web {third} {second} --yes");
    let forgotten = host.json(0, &words);
    assert_eq!(forgotten["deleted"], json!([third, second]));
    assert_eq!(counts(&host), (1, 1));
    host.json(3, &format!("restore container:web {third}"));

    // The image of a container that is there stays until that is gone.
    let forgotten = host.json(0, &format!("forget container:web {first} --yes"));
    assert_eq!(rows(&forgotten, "images_kept").len(), 1, "{forgotten}");
    assert_eq!(counts(&host), (1, 0));
    assert_eq!(both(name), "one\none");
    host.daemon.must(&["rm", "-f", "-v", name]);
    host.json(0, "container cleanup");
    assert_eq!(counts(&host), (0, 0));
}

/// What is in a directory of a container, without how large filesystems make directories.
fn files_in(host: &Host, container: &str, path: &str) -> Vec<String> {
    let tree = host.tree(container, path);
    let plain = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let is_directory = words.get(1) == Some(&"directory");
        words[..if is_directory { 4 } else { words.len() }].join(" ")
    };
    tree.lines().map(plain).collect()
}

/// The options of a volume.
fn options_of(host: &Host, volume: &str) -> Value {
    let words = ["volume", "inspect", "-f", "{{json .Options}}", volume];
    serde_json::from_str(&host.daemon.must(&words)).unwrap()
}

/// Makes volumes that the engine mounts when they are used: of memory, and of a directory.
fn make_volumes_with_options(host: &Host, directory: &Path) -> [Value; 2] {
    let memory = json!({"type": "tmpfs", "device": "tmpfs", "o": "size=10m,uid=1234"});
    let bound = json!({"type": "none", "device": directory, "o": "bind"});
    for (name, options) in [("mem", &memory), ("dir", &bound)] {
        let options = options.as_object().unwrap().iter();
        let options = options.flat_map(|(name, value)| {
            [
                "--opt".to_owned(),
                format!("{name}={}", value.as_str().unwrap()),
            ]
        });
        let words = [
            "volume",
            "create",
            "--driver",
            "local",
            "--label",
            "team=shop",
        ];
        let words: Vec<String> = words
            .into_iter()
            .map(str::to_owned)
            .chain(options)
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).chain([name]).collect();
        host.daemon.must(&words);
    }
    [memory, bound]
}

#[test]
fn a_volume_with_options_is_saved_with_them_and_never_written_over() {
    let Some(host) = Host::new() else {
        return;
    };
    let directory = host.session.home().join("directory");
    fs::create_dir(&directory).unwrap();
    let [memory, bound] = make_volumes_with_options(&host, &directory);
    let script = "for d in /mem /dir; do echo one > $d/n; ln -s n $d/link; mkdir -m 700 $d/s; \
         /bin/busybox chown 55:66 $d/s; echo x > $d/s/x; done";
    host.start("web", "--stop-signal KILL -v mem:/mem -v dir:/dir", script);
    let trees = |container: &str| ["/mem", "/dir"].map(|path| files_in(&host, container, path));
    let before = trees("web");

    let saved = host.json(0, "container create web");

    let shown = host.json(0, "container show latest web");
    assert_eq!(shown["volumes"], saved["volumes"]);
    for (name, options) in [("mem", &memory), ("dir", &bound)] {
        let mut all = rows(&shown, "volumes").iter();
        let volume = all.find(|one| one["name"] == name).unwrap();
        assert_eq!(
            (&volume["options"], &volume["driver"]),
            (options, &json!("local"))
        );
        assert_eq!(volume["labels"], json!({"team": "shop"}));
        assert_eq!(
            (&volume["mount_paths"], &volume["bytes"]),
            (&json!([format!("/{name}")]), &json!(6))
        );
    }
    host.sh("web", "for d in /mem /dir; do echo two > $d/n; done");
    // A copy has the files; it is no second user of what the options name.
    let restored = host.json(0, "container restore latest web");
    let copy = text(&restored, "container_name");
    assert_eq!(trees(copy), before);
    let warned = rows(&restored, "warnings").iter();
    assert_eq!(
        warned
            .filter(|one| one["code"] == "volume_is_plain")
            .count(),
        2,
        "{restored}"
    );
    for one in rows(&restored, "volumes") {
        assert!(
            options_of(&host, text(one, "name"))
                .as_object()
                .is_none_or(serde_json::Map::is_empty)
        );
    }
    host.sh(copy, "echo copy > /dir/n");
    assert_eq!(fs::read_to_string(directory.join("n")).unwrap(), "two\n");

    let replaced = host.json(0, &format!("container restore latest web {REPLACE}"));
    assert_eq!(trees("web"), before);
    for one in rows(&replaced, "volumes") {
        assert_ne!(one["name"], one["from"]);
    }
    assert_eq!(fs::read_to_string(directory.join("n")).unwrap(), "two\n");
    assert_eq!(
        [options_of(&host, "mem"), options_of(&host, "dir")],
        [memory, bound]
    );
    host.json(0, "undo container:web --yes");
    assert_eq!(host.sh("web", "cat /dir/n"), "two");
}

#[test]
fn a_volume_of_that_name_with_other_options_is_a_conflict_and_one_that_is_gone_is_not_made_in_vain()
{
    let Some(host) = Host::new() else {
        return;
    };
    let directory = host.session.home().join("directory");
    fs::create_dir(&directory).unwrap();
    make_volumes_with_options(&host, &directory);
    host.start(
        "web",
        "-v mem:/mem -v data:/data",
        "echo one > /mem/n; echo one > /data/n",
    );
    host.json(0, "container create web");
    host.daemon.must(&["rm", "-f", "web"]);
    host.daemon.must(&["volume", "rm", "mem"]);
    host.start(
        "web",
        "-v mem:/mem -v data:/data",
        "echo other > /mem/n; echo other > /data/n",
    );
    let id = host.inspect("web", "{{.Id}}");

    let refused = host.json(4, &format!("container restore latest web {REPLACE}"));

    assert!(
        message(&refused).contains("`mem` with another driver or other options"),
        "{refused}"
    );
    assert_eq!(host.sh("web", "cat /mem/n /data/n"), "other\nother");
    assert_eq!(host.inspect("web", "{{.Id}}"), id);
    assert_eq!(
        (
            rows(&host.json(0, "container list"), "items").len(),
            host.images()
        ),
        (1, 1)
    );
    host.daemon.must(&["rm", "-f", "web"]);
    host.daemon.must(&["volume", "rm", "mem"]);
    host.start("web", "--stop-signal KILL -v data:/data", "true");
    let replaced = host.json(0, &format!("container restore latest web {REPLACE}"));
    assert_eq!(host.sh("web", "cat /mem/n /data/n"), "one\none");
    let named = rows(&replaced, "volumes")
        .iter()
        .map(|one| text(one, "name"));
    let mut named: Vec<&str> = named.chain(["dir"]).collect();
    named.sort_unstable();
    let mut there = host.lines("volume ls -q");
    there.sort();
    assert_eq!(there, named);
}

/// What somebody answers who asks for a page at a port of this host.
fn page(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.rsplit("\r\n\r\n").next()?.trim().to_owned())
}

/// An address at which nobody listens. It is below those that are given to whoever asks for any, and each process begins elsewhere,
/// so that nobody takes it meanwhile.
fn free_address() -> String {
    let first = u64::from(std::process::id()) * 37;
    let ports = (0..12_000).map(|number| 20_000 + (first + number) % 12_000);
    let mut addresses = ports.map(|port| format!("127.0.0.1:{port}"));
    addresses
        .find(|address| TcpListener::bind(address).is_ok())
        .unwrap()
}

/// A container that serves a page in a network of its own, with a directory of the host.
fn start_shop(host: &Host, bound: &Path) {
    let network = ["network", "create", "--subnet", "10.213.143.0/24", "optnet"];
    host.daemon.must(&network);
    let bind = format!("{}:/bound", bound.display());
    let serve = "test -e /www/index.html || echo page > /www/index.html; exec /bin/busybox httpd -f -p 80 -h /www";
    let run = ["run", "-d", "--name", "shop", "--network", "optnet"];
    let how = ["-p", "127.0.0.1::80", "-e", "COLOR=red", "-e", "KEPT=kept"];
    let mounts = ["-v", "www:/www", "-v", &bind, "--tmpfs", "/scratch", IMAGE];
    let words = [&run[..], &how, &mounts, &["/bin/sh", "-c", serve]].concat();
    host.daemon.must(&words);
    let published = host.lines("port shop 80/tcp")[0].clone();
    soon("it serves", || page(&published).as_deref() == Some("page"));
}

/// What nobody can mean is refused, and makes nothing.
fn assert_refused(host: &Host) {
    let before = host.lines("ps -aq").len();
    for (wrong, code) in [
        ("--env COLOR", 2),
        ("--port 80", 2),
        ("--port auto --port 1:2", 2),
        ("--name other --port auto", 4),
        ("--mode replace --name other", 2),
    ] {
        host.json(code, &format!("container restore latest shop {wrong}"));
    }
    assert_eq!(host.lines("ps -aq").len(), before);
}

#[test]
fn a_restore_takes_ports_variables_and_mounts_as_they_are_said_and_a_plan_makes_nothing() {
    let Some(host) = Host::new() else {
        return;
    };
    let bound = host.session.home().join("bound");
    fs::create_dir(&bound).unwrap();
    start_shop(&host, &bound);
    host.json(0, "container create shop");
    let address = free_address();
    let said = format!(
        "container restore latest shop --name other --port {address}:80 --env COLOR=blue --env NEW=a=b --drop-mounts --no-start"
    );

    let plan = host.json(0, &format!("{said} --dry-run"));

    assert_eq!(
        (&plan["dry_run"], text(&plan, "container_id")),
        (&json!(true), "")
    );
    assert_eq!(host.lines("ps -a --format {{.Names}}"), ["shop"]);
    assert_eq!(host.lines("volume ls -q"), ["www"]);
    let shown = host.json(0, "container show latest shop");
    assert_eq!(shown["restorations"], json!([]));
    let made = host.json(0, &said);
    for answer in [&plan, &made] {
        assert_eq!(
            (text(answer, "container_name"), &answer["started"]),
            ("other", &json!(false))
        );
        assert_eq!(answer["ports"], json!({"80/tcp": [address]}));
        assert_eq!(answer["not_restored"], json!(["/bound", "/scratch"]));
    }
    assert_eq!(host.status("other"), "created");
    assert_eq!(mounts(&host, "other"), ["/www volume true"]);
    let memory = host.inspect("other", "{{json .HostConfig.Tmpfs}}");
    assert!(!memory.contains("scratch"), "{memory}");
    host.daemon.must(&["start", "other"]);
    soon("it serves there", || {
        page(&address).as_deref() == Some("page")
    });
    let variables = host.inspect("other", "{{range .Config.Env}}{{println .}}{{end}}");
    let colors = variables.lines().filter(|one| one.starts_with("COLOR="));
    assert_eq!(colors.collect::<Vec<_>>(), ["COLOR=blue"]);
    assert_eq!(host.sh("other", "echo $COLOR $KEPT $NEW"), "blue kept a=b");
    assert_eq!(host.sh("shop", "echo $COLOR"), "red");
    assert_refused(&host);

    // Without a word about it, what was bound is bound again.
    let shared = host.json(0, "container restore latest shop --port auto");
    host.sh(text(&shared, "container_name"), "echo shared > /bound/n");
    assert_eq!(fs::read_to_string(bound.join("n")).unwrap(), "shared\n");
    let replace = format!("container restore latest shop --env COLOR=green --no-start {REPLACE}");
    assert_eq!(host.json(0, &replace)["started"], false);
    assert_eq!(host.status("shop"), "created");
    host.daemon.must(&["start", "shop"]);
    assert_eq!(host.sh("shop", "echo $COLOR $KEPT"), "green kept");
}
