//! What containers are promised, on a real Docker engine: databases that are busy, engines that die, volumes that are large, rounds
//! without end.

use crate::container_host::{Host, REPLACE, rows, text};
use crate::encrypted::{Keys, files};
use crate::live_databases::python;
use crate::session::Session;
use serde_json::{Value, json};
use stasis_testkit::docker::Dockerd;
use stasis_testkit::postgres;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

/// What `scripts/full` asks for, or what is usual.
fn asked(variable: &str, usual: u64) -> u64 {
    let asked = std::env::var(variable).ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(usual)
}

/// Something of this host that a test needs; `None` means that this test is skipped.
fn part(what: &str, found: Option<PathBuf>) -> Option<PathBuf> {
    let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
    assert!(
        found.is_some() || !needed,
        "{what} is missing: run scripts/parts"
    );
    if found.is_none() {
        println!("skipped: {what} is not installed; scripts/parts installs it");
    }
    found
}

fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(25));
    }
    panic!("not in 15 seconds: {what}");
}

/// Runs something beside everything else in a container, without an end.
fn beside(host: &Host, container: &str, script: &str) {
    host.daemon
        .must(&["exec", "-d", container, "/bin/sh", "-c", script]);
}

/// Something that never rests.
const TICKS: &str = "while :; do echo >> /data/ticks; sleep 0.05; done";

/// What the engine has of ours is what is listed, and nothing else is there than these containers and volumes.
fn assert_no_litter(host: &Host, containers: usize, volumes: &[&str]) {
    let listed = host.json(0, "container list");
    let items = rows(&listed, "items");
    assert!(
        items.iter().all(|one| one["status"] == "complete"),
        "{listed}"
    );
    assert_eq!(host.images(), items.len(), "{listed}");
    let nameless = host.lines("images -q --filter dangling=true");
    assert!(nameless.is_empty(), "{nameless:?}");
    let all = host.lines("ps -a --format {{.Names}}");
    assert_eq!(all.len(), containers, "{all:?}");
    let mut there = host.lines("volume ls -q");
    there.sort();
    assert_eq!(there, volumes);
}

/// Numbers that a transaction moves from one account to another: all of it is there, or nothing.
const LEDGER: &str = "CREATE TABLE ledger(n INTEGER PRIMARY KEY, amount INTEGER); \
     CREATE TABLE account(name TEXT PRIMARY KEY, balance INTEGER); INSERT INTO account VALUES ('a', 0), ('b', 0);";
/// What every committed state has: rows without a gap, and an amount that was not lost on its way.
const SOUND: &str = "SELECT count(*), max(n), (SELECT sum(balance) FROM account), \
     (SELECT balance FROM account WHERE name = 'b') - sum(amount) FROM ledger;";

/// A shell that writes one transaction after the other for `program` to read, with something in between.
fn writes_to(program: &str, between: &str) -> String {
    format!(
        "i=0; while :; do {between}; i=$((i+1)); echo \"BEGIN; INSERT INTO ledger VALUES ($i, $i % 7); \
         UPDATE account SET balance = balance - $i % 7 WHERE name = 'a'; \
         UPDATE account SET balance = balance + $i % 7 WHERE name = 'b'; COMMIT;\"; done | {program}"
    )
}

/// How many rows a state has that must be one that was committed.
fn committed(state: &str) -> u64 {
    let numbers: Vec<&str> = state.trim().split('|').collect();
    let [count, last, "0", "0"] = numbers[..] else {
        panic!("no committed state: {state}");
    };
    assert_eq!(count, last, "rows are missing");
    count.parse().unwrap()
}

#[test]
fn a_busy_sqlite_database_is_one_committed_state_in_every_snapshot() {
    let sqlite = Some(PathBuf::from("/usr/bin/sqlite3")).filter(|path| path.exists());
    let (Some(sqlite), Some(host)) = (part("sqlite3", sqlite), Host::new()) else {
        return;
    };
    host.daemon
        .make_image_with("with-sqlite", &[sqlite], |_| ());
    let ask = |container: &str, sql: &str| {
        let words = ["exec", container, "/usr/bin/sqlite3", "-cmd"];
        let words = [&words[..], &[".timeout 5000", "/data/shop.db", sql]].concat();
        host.daemon.must(&words)
    };
    host.start_of("with-sqlite", "shop", "-v data:/data", "true");
    ask("shop", &format!("PRAGMA journal_mode = wal; {LEDGER}"));
    beside(
        &host,
        "shop",
        &writes_to(
            "/usr/bin/sqlite3 -bail -cmd '.timeout 5000' /data/shop.db",
            ":",
        ),
    );
    soon("a commit", || ask("shop", SOUND) != "0||0|");
    let mut last = 0;

    for _ in 0..4 {
        let before = committed(&ask("shop", SOUND));
        let saved = host.json(0, "container create shop");
        let after = committed(&ask("shop", SOUND));

        assert_eq!(saved["databases"], 1, "{saved}");
        assert_eq!(saved["unsound_databases"], json!([]), "{saved}");
        let id = text(&saved, "snapshot_id");
        let restored = host.json(0, &format!("container restore {id}"));
        let name = text(&restored, "container_name");
        assert_eq!(ask(name, "PRAGMA integrity_check"), "ok");
        let there = committed(&ask(name, SOUND));
        assert!(
            (before..=after).contains(&there),
            "{before} {there} {after}"
        );
        assert!(after > last, "nobody writes");
        last = after;
        host.daemon.must(&["rm", "-f", "-v", name]);
    }
}

/// A PostgreSQL server in a container.
struct Postgres {
    host: Host,
    programs: PathBuf,
}

impl Postgres {
    const USER: u32 = 70;

    fn new() -> Option<Self> {
        let programs = part("PostgreSQL", postgres::programs())?;
        let host = Host::new()?;
        let version = programs.parent()?;
        let share = Path::new("/usr/share/postgresql").join(version.file_name()?);
        let wanted = ["bin/postgres", "bin/initdb", "bin/psql"].map(|path| version.join(path));
        let modules = ["lib/plpgsql.so", "lib/dict_snowball.so"].map(|path| version.join(path));
        let wanted = [&wanted[..], &modules, &[share]].concat();
        host.daemon
            .make_image_with("with-postgres", &wanted, |root| {
                let users = "root:x:0:0::/:/bin/sh\nkeeper:x:70:70::/data:/bin/sh\n";
                fs::create_dir(root.join("etc")).unwrap();
                fs::write(root.join("etc/passwd"), users).unwrap();
                for place in ["data", "tmp"] {
                    fs::create_dir(root.join(place)).unwrap();
                }
                chown(root.join("data"), Some(Self::USER), Some(Self::USER)).unwrap();
                let everybody = fs::Permissions::from_mode(0o1777);
                fs::set_permissions(root.join("tmp"), everybody).unwrap();
            });
        Some(Self { host, programs })
    }

    fn start(&self) {
        let programs = self.programs.display();
        let script = format!(
            "test -e /data/db/PG_VERSION || {programs}/initdb -D /data/db -A trust --no-locale -E UTF8 --no-sync --wal-segsize=1; \
             exec {programs}/postgres -D /data/db -k /tmp -c listen_addresses= -c shared_buffers=16MB -c max_connections=10"
        );
        let run = ["run", "-d", "--network", "none", "--name", "db"];
        let options = ["-u", "70:70", "-v", "rows:/data", "with-postgres"];
        let words = [&run[..], &options, &["/bin/sh", "-c", &script]].concat();
        self.host.daemon.must(&words);
        self.wait("db");
    }

    fn psql(&self, container: &str, sql: &str) -> std::process::Output {
        let psql = self.programs.join("psql").display().to_string();
        let words = ["exec", container, &psql, "-h", "/tmp", "-XAtq", "-c", sql];
        self.host
            .daemon
            .docker(&[&words[..], &["postgres"]].concat())
    }

    fn wait(&self, container: &str) {
        soon("the server answers", || {
            self.psql(container, "SELECT 1").status.success()
        });
    }

    /// How many rows are committed, of which none is half there.
    fn committed(&self, container: &str) -> u64 {
        let output = self.psql(container, SOUND);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        committed(&String::from_utf8_lossy(&output.stdout))
    }

    fn log(&self, container: &str) -> String {
        let output = self.host.daemon.docker(&["logs", container]);
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn begin_to_write(&self) {
        let made = self.psql("db", LEDGER);
        assert!(made.status.success(), "{made:?}");
        let psql = format!("{}/psql -h /tmp -Xq postgres", self.programs.display());
        beside(&self.host, "db", &writes_to(&psql, ":"));
        soon("a commit", || {
            !self.psql("db", SOUND).stdout.starts_with(b"0|")
        });
    }
}

#[test]
fn a_busy_postgres_recovers_in_a_snapshot_and_is_replaced_and_taken_back() {
    let Some(server) = Postgres::new() else {
        return;
    };
    server.start();
    server.begin_to_write();
    let before = server.committed("db");
    let saved = server.host.json(0, "container create db");
    let after = server.committed("db");
    let id = text(&saved, "snapshot_id");

    let restored = server.host.json(0, &format!("container restore {id}"));

    let name = text(&restored, "container_name");
    server.wait(name);
    let there = server.committed(name);
    assert!(
        (before..=after).contains(&there),
        "{before} {there} {after}"
    );
    let log = server.log(name);
    assert!(log.contains("automatic recovery"), "{log}");
    // Everybody who writes goes with the container that is replaced.
    let reached = server.committed("db");
    server
        .host
        .json(0, &format!("container restore {id} {REPLACE}"));
    server.wait("db");
    assert_eq!(server.committed("db"), there);
    let more = server.psql("db", "INSERT INTO ledger VALUES (-1, 0)");
    assert!(more.status.success(), "{more:?}");
    server.host.json(0, "undo container:db --yes");
    server.wait("db");
    let undone = server.committed("db");
    assert!(undone >= reached, "{undone} of {reached}");
}

/// Begins a snapshot, and waits until the container stands still for it.
fn create_until_paused(host: &Host, container: &str) -> Child {
    let mut command = host.command(&["--json", "container", "create", container]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    soon("a pause", || {
        host.status(container) == "paused" || child.try_wait().unwrap().is_some()
    });
    child
}

/// Kills the engine while it commits, perhaps with the one who saves, and starts it again; returns how the save ended.
fn kill_engine_during_commit(host: &mut Host, delay: u64, with_us: bool) -> Option<i32> {
    let mut child = create_until_paused(host, "web");
    sleep(Duration::from_millis(delay));
    host.daemon.kill();
    if with_us {
        child.kill().unwrap();
    }
    host.daemon.run().unwrap();
    let ended = child.wait_with_output().unwrap();
    // Nobody has to do anything for that.
    soon("it runs again", || host.status("web") == "running");
    host.json(0, "container cleanup");
    let ticks = || host.sh("web", "/bin/busybox wc -l < /data/ticks");
    let before = ticks();
    soon("it really runs", || ticks() != before);
    ended.status.code()
}

#[test]
fn an_engine_that_is_killed_in_mid_commit_leaves_nothing_half_and_nothing_paused() {
    let Some(daemon) = Dockerd::start_with(&["--live-restore"]) else {
        return;
    };
    let mut host = Host::with(Session::new(), daemon);
    let script = "dd if=/dev/urandom of=/own bs=1048576 count=160 2>/dev/null";
    host.start("web", "-v data:/data", script);
    beside(&host, "web", TICKS);
    let own = host.sh("web", "sha256sum < /own");
    let mut failed = 0;

    for (delay, with_us) in [(0, false), (150, true), (500, false)] {
        let code = kill_engine_during_commit(&mut host, delay, with_us);

        assert!(matches!(code, Some(0 | 7)) || with_us, "{code:?}");
        failed += usize::from(code != Some(0));
        assert_no_litter(&host, 1, &["data"]);
    }
    println!("{failed} of 3 were interrupted");
    assert!(failed > 0, "no commit was interrupted");
    host.json(0, "container create web");
    let listed = host.json(0, "container list");
    for one in rows(&listed, "items") {
        let id = text(one, "snapshot_id");
        let restored = host.json(0, &format!("container restore {id}"));
        let name = text(&restored, "container_name");
        assert_eq!(host.sh(name, "sha256sum < /own"), own);
    }
}

/// Runs a command, and returns what it said and the most memory that it had, in KiB.
fn measured(host: &Host, words: &str) -> (Value, u64) {
    let words: Vec<&str> = words.split(' ').collect();
    let mut command = host.command(&[&["--json"], &words[..]].concat());
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(&status).unwrap_or_default();
        let now = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = now.and_then(|now| now.split_whitespace().next()?.parse().ok());
        peak = now.unwrap_or(0).max(peak);
        sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    (serde_json::from_slice(&output.stdout).unwrap(), peak)
}

#[test]
fn a_large_volume_takes_little_memory_a_short_pause_and_little_room_the_second_time() {
    let Some(host) = Host::new() else {
        return;
    };
    let mib = asked("STASIS_VOLUME_MIB", 256);
    host.start("big", "-v data:/data", "true");
    // Half of it is one file, and one in a hundred pieces of that will be others.
    let half = mib / 2;
    host.sh("big", &format!("dd if=/dev/urandom of=/data/one bs=1048576 count={half} 2>/dev/null; i=0; while test $i -lt {half}; do dd if=/dev/urandom of=/data/f$i bs=1048576 count=4 2>/dev/null; i=$((i+4)); done"));
    beside(&host, "big", TICKS);
    // The times of files that are younger are not trusted.
    sleep(Duration::from_millis(2500));

    let (first, first_peak) = measured(&host, "container create big");
    let pieces = mib * 16 / 100;
    host.sh("big", &format!("i=0; while test $i -lt {pieces}; do dd if=/dev/urandom of=/data/one bs=65536 count=1 seek=$((i*50)) conv=notrunc 2>/dev/null; i=$((i+1)); done"));
    sleep(Duration::from_millis(2500));
    let (second, second_peak) = measured(&host, "container create big");

    let number = |of: &Value, name: &str| of[name].as_u64().unwrap();
    let figures =
        |of: &Value| ["elapsed_ms", "frozen_ms", "bytes_stored"].map(|name| number(of, name));
    println!(
        "{mib} MiB: ms, ms frozen, bytes stored {:?} {:?}, peaks {first_peak} {second_peak} KiB",
        figures(&first),
        figures(&second)
    );
    assert!(number(&first, "bytes_stored") >= mib << 20, "{first}");
    assert!(
        number(&second, "bytes_stored") * 20 < number(&first, "bytes_stored"),
        "{second}"
    );
    for (saved, peak) in [(&first, first_peak), (&second, second_peak)] {
        assert!((1..256 << 10).contains(&peak), "{peak} KiB");
        assert!(number(saved, "frozen_ms") < 10_000, "{saved}");
    }
    // What was read while it ran is not read again while it stands still.
    assert!(
        number(&first, "frozen_ms") * 3 < number(&first, "elapsed_ms"),
        "{first}"
    );
    let sums = "cd /data; sha256sum one f0";
    let restored = host.json(0, "container restore latest big");
    assert_eq!(
        host.sh(text(&restored, "container_name"), sums),
        host.sh("big", sums)
    );
}

#[test]
fn round_after_round_of_saving_and_replacing_leaves_what_there_was() {
    let Some(host) = Host::new() else {
        return;
    };
    // It ends at once when it is stopped.
    let options = "--stop-signal KILL -v data:/data";
    host.start("web", options, "echo x > /data/stays");
    let rounds = asked("STASIS_CONTAINER_ROUNDS", 5);

    for round in 0..rounds {
        host.sh(
            "web",
            &format!(
                "echo {round} > /data/n; echo {round} > /own; echo {round} > /data/of-{round}"
            ),
        );
        let saved = host.json(0, "container create web");
        host.sh(
            "web",
            "echo other > /data/n; echo other > /own; echo > /data/more; rm /data/stays",
        );
        let restored = host.json(0, &format!("container restore latest web {REPLACE}"));

        assert_eq!(restored["snapshot_id"], saved["snapshot_id"]);
        let layers = host.inspect("web", "{{.Image}}");
        let layers = host.inspect(&layers, "{{len .RootFS.Layers}}");
        assert!(layers.parse::<u64>().unwrap() <= 100, "{layers} layers");
        let wanted = format!("{round}\n{round}\nx\n{round}");
        assert_eq!(
            host.sh(
                "web",
                &format!("cat /data/n /own /data/stays /data/of-{round}")
            ),
            wanted
        );
        let files = host.sh("web", "echo /data/*").split(' ').count();
        assert_eq!(files as u64, round + 3, "of {round}");
    }
    host.json(0, "container cleanup");
    assert_no_litter(&host, 1, &["data"]);
    let shown = host.json(0, "container show latest web");
    let layers = shown["image_layers"].as_u64().unwrap();
    println!("{rounds} rounds, {layers} layers");
    assert!(layers <= 100.min(rounds + 2), "{layers} layers");
    let listed = host.json(0, "container list web");
    assert!(rows(&listed, "items").len() <= 11, "{listed}");
}

/// Writes an image of many layers, as `docker save` does: with a configuration, files that a later layer takes away, and odd ones.
const MANY_LAYERS: &str = r#"
import hashlib, io, json, platform, sys, tarfile
root, out, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
def layer(fill):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode='w') as tar: fill(tar)
    return made.getvalue()
def add(tar, name, text=b'', mode=0o644, owner=0, **more):
    entry = tarfile.TarInfo(name)
    entry.mode, entry.uid, entry.gid, entry.size, entry.mtime = mode, owner, owner, len(text), 86400
    for key, value in more.items(): setattr(entry, key, value)
    tar.addfile(entry, io.BytesIO(text))
def odd(tar):
    for name in ['srv', 'srv/app', 'vol', 'layers']: add(tar, name, mode=0o755, type=tarfile.DIRTYPE)
    add(tar, 'srv/app/run', b'run', 0o4755, 1000)
    add(tar, 'srv/app/twin', type=tarfile.LNKTYPE, linkname='srv/app/run')
    add(tar, 'srv/app/link', type=tarfile.SYMTYPE, linkname='../nowhere')
    add(tar, 'srv/app/pipe', type=tarfile.FIFOTYPE)
    add(tar, 'srv/app/secret', b's', 0o600, 33)
    add(tar, 'vol/seed', b'seed', owner=1000)
def numbered(n):
    def fill(tar):
        add(tar, f'layers/{n}', str(n).encode())
        if n == 50: add(tar, 'layers/.wh.10')
    return fill
layers = [layer(lambda tar: tar.add(root, '.')), layer(odd)]
layers += [layer(numbered(n)) for n in range(count - 2)]
config = {
    'Env': ['PATH=/bin', 'COLOR=blue and $green'], 'Entrypoint': ['/bin/sleep'], 'Cmd': ['1000'], 'WorkingDir': '/srv/app',
    'User': '1000:1000', 'Labels': {'app': 'shop', 'odd': 'a "quoted" $value \\ of\ntwo lines'}, 'ExposedPorts': {'8080/tcp': {}},
    'Healthcheck': {'Test': ['CMD', '/bin/test', '-e', '/srv/app/run'], 'Interval': 1000000000, 'Retries': 2},
    'StopSignal': 'SIGINT', 'Volumes': {'/vol': {}},
}
machine = {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(platform.machine(), platform.machine())
diffs = ['sha256:' + hashlib.sha256(one).hexdigest() for one in layers]
image = {'architecture': machine, 'os': 'linux', 'config': config, 'rootfs': {'type': 'layers', 'diff_ids': diffs}}
names = [f'{n}.tar' for n in range(count)]
with tarfile.open(out, 'w') as tar:
    for name, one in zip(names, layers): add(tar, name, one)
    add(tar, 'image.json', json.dumps(image).encode())
    add(tar, 'manifest.json', json.dumps([{'Config': 'image.json', 'RepoTags': ['deep:1'], 'Layers': names}]).encode())
"#;

/// What of a configuration an image has.
const CONFIGURED: [&str; 9] = [
    "Env",
    "Entrypoint",
    "Cmd",
    "WorkingDir",
    "User",
    "ExposedPorts",
    "Healthcheck",
    "StopSignal",
    "Volumes",
];

/// What an image or a container is configured with.
fn config_of(host: &Host, kind: &str, name: &str) -> Value {
    let shown = host
        .daemon
        .must(&["inspect", "--type", kind, "-f", "{{json .Config}}", name]);
    serde_json::from_str(&shown).unwrap()
}

fn as_root(host: &Host, container: &str, script: &str) -> String {
    host.daemon
        .must(&["exec", "-u", "0", container, "/bin/sh", "-c", script])
}

/// Starts a container of an image that has more layers than are kept.
fn start_deep(host: &Host) {
    let home = host.daemon.home();
    let (root, archive) = (home.join("image"), home.join("deep.tar"));
    let archive = archive.to_str().unwrap();
    python(MANY_LAYERS, &[root.to_str().unwrap(), archive, "101"]);
    host.daemon.must(&["load", "-i", archive]);
    let run = ["run", "-d", "--network", "none", "--name", "deep"];
    let words = [&run[..], &["-v", "data:/data", "deep:1"]].concat();
    host.daemon.must(&words);
    as_root(
        host,
        "deep",
        "echo own > /own; echo x > /data/x; rm /layers/20",
    );
}

/// Its files, and what is in them. What an engine makes of a directory is another one each time.
fn deep_files(host: &Host, container: &str) -> String {
    let script = "/bin/busybox find /srv /layers /vol | /bin/busybox sort | while read -r f; do \
         /bin/busybox stat -c '%n %F %a %u:%g' \"$f\"; test -d \"$f\" || /bin/busybox stat -c '%s %h %Y' \"$f\"; \
         test -f \"$f\" && cat \"$f\"; done; cat /own /data/x";
    as_root(host, container, script)
}

#[test]
fn an_image_of_too_many_layers_becomes_one_with_the_same_files_and_configuration() {
    let Some(host) = Host::new() else {
        return;
    };
    start_deep(&host);
    let before = deep_files(&host, "deep");
    let volumes = host.lines("volume ls -q");
    // Killed while it becomes one, it leaves what a cleanup finds.
    for name in ["-layers", "-files"] {
        let mut child = host.command(&["container", "create", "deep"]);
        let mut child = child.stdout(Stdio::null()).spawn().unwrap();
        soon(name, || {
            let tags = host.lines("images --format {{.Tag}} stasis-snapshot");
            tags.iter().any(|tag| tag.ends_with(name))
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }
    soon("nothing of it is left", || {
        host.json(0, "container cleanup");
        host.images() == 0 && host.lines("ps -aq").len() == 1
    });
    let nameless = host.lines("images -q --filter dangling=true");
    assert!(nameless.is_empty(), "{nameless:?}");

    let saved = host.json(0, "container create deep");

    let shown = host.json(0, "container show latest deep");
    assert!(shown["image_layers"].as_u64().unwrap() <= 2, "{shown}");
    let mut volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
    volumes.sort_unstable();
    assert_no_litter(&host, 1, &volumes);
    let made = config_of(&host, "image", text(&saved, "image"));
    let original = config_of(&host, "image", "deep:1");
    for field in CONFIGURED {
        assert_eq!(made[field], original[field], "{field}");
    }
    for (label, value) in original["Labels"].as_object().unwrap() {
        assert_eq!(made["Labels"][label], *value);
    }
    let restored = host.json(0, "container restore latest deep");
    let name = text(&restored, "container_name");
    assert_eq!(deep_files(&host, name), before);
    let restored = config_of(&host, "container", name);
    for field in CONFIGURED {
        assert_eq!(restored[field], original[field], "{field}");
    }
    // One that was replaced is flat, and so is what is saved of it.
    let replaced = format!("container restore latest deep {REPLACE} --health-timeout 20s");
    host.json(0, &replaced);
    assert_eq!(deep_files(&host, "deep"), before);
    host.json(0, "container create deep");
    let shown = host.json(0, "container show latest deep");
    assert!(shown["image_layers"].as_u64().unwrap() <= 4, "{shown}");
}

#[test]
fn with_a_key_a_container_comes_back_and_its_secrets_are_nowhere_in_clear() {
    const TOKEN: &str = "zq7-t0ken-Xw";
    const ROW: &str = "kv9-r0w-Pm";
    let (keys, Some(mut host)) = (Keys::new(), Host::new()) else {
        return;
    };
    let options = format!("--stop-signal KILL -v data:/data -e TOKEN={TOKEN}");
    host.start(
        "web",
        &options,
        &format!("echo {ROW} > /data/row; echo {ROW} > /own"),
    );
    let holders = |host: &Host, secret: &str| -> Vec<PathBuf> {
        let holds = |path: &PathBuf| {
            let bytes = fs::read(path).unwrap();
            bytes
                .windows(secret.len())
                .any(|part| part == secret.as_bytes())
        };
        files(host.session.home())
            .into_iter()
            .filter(holds)
            .collect()
    };
    // Without a key both are found: the look would see them.
    host.json(0, "container create web");
    assert!(!holders(&host, TOKEN).is_empty() && !holders(&host, ROW).is_empty());
    host.session = Session::new().with_key(&keys.file("mine"));

    host.json(0, "container create web --portable");
    host.sh("web", "echo other > /data/row");
    let restored = host.json(0, "container restore latest web");
    host.json(0, &format!("container restore latest web {REPLACE}"));

    for name in [text(&restored, "container_name"), "web"] {
        assert_eq!(
            host.sh(name, "cat /data/row /own; echo $TOKEN"),
            format!("{ROW}\n{ROW}\n{TOKEN}")
        );
    }
    host.json(0, "undo container:web --yes");
    assert_eq!(host.sh("web", "cat /data/row"), "other");
    assert_eq!(holders(&host, TOKEN), Vec::<PathBuf>::new());
    assert_eq!(holders(&host, ROW), Vec::<PathBuf>::new());
    for command in ["container restore latest web", "container create web"] {
        let words: Vec<&str> = command.split(' ').collect();
        let mut command = host.command(&[&["--json"], &words[..]].concat());
        let refused = command.env_remove("STASIS_KEY_FILE").output().unwrap();
        assert_eq!(refused.status.code(), Some(8), "{refused:?}");
    }
}

/// Stands between the program and an engine, which seems to know this version of the API and no newer one; notes what is asked.
struct Between {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Between {
    fn new(daemon: &Dockerd, version: &'static str) -> Self {
        let engine = daemon.home().join("socket");
        let socket = daemon.home().join(format!("api-{version}"));
        let listener = UnixListener::bind(&socket).unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let notes = asked.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let engine = UnixStream::connect(&engine).unwrap();
                let (from, to) = (client.try_clone().unwrap(), engine.try_clone().unwrap());
                let notes = notes.clone();
                std::thread::spawn(move || relay(from, to, |bytes| note(bytes, &notes)));
                std::thread::spawn(move || relay(engine, client, |bytes| pretend(bytes, version)));
            }
        });
        Self {
            address: format!("unix://{}", socket.display()),
            asked,
        }
    }
}

fn relay(mut from: UnixStream, mut to: UnixStream, look: impl Fn(&mut [u8])) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        look(&mut bytes[..read]);
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

fn note(bytes: &mut [u8], notes: &Mutex<Vec<String>>) {
    let text = String::from_utf8_lossy(bytes);
    let line = text
        .lines()
        .next()
        .filter(|line| line.ends_with("HTTP/1.1"));
    let path = line.and_then(|line| line.split(' ').nth(1));
    notes.lock().unwrap().extend(path.map(str::to_owned));
}

fn pretend(bytes: &mut [u8], version: &str) {
    let name = b"\"ApiVersion\":\"";
    let found: Vec<usize> = (0..bytes.len().saturating_sub(name.len() + version.len()))
        .filter(|at| bytes[*at..].starts_with(name))
        .collect();
    for at in found {
        bytes[at + name.len()..][..version.len()].copy_from_slice(version.as_bytes());
    }
}

/// Saves, lists, restores, replaces, takes back and cleans up.
fn go_through_everything(host: &Host) {
    let both = |container: &str| host.sh(container, "cat /data/n /own");
    host.json(0, "container validate web");
    host.json(0, "container create web");
    host.sh("web", "echo two > /data/n; echo two > /own");
    let differs = host.json(0, "container diff latest --of web");
    assert_eq!(rows(&differs, "volumes").len(), 1, "{differs}");
    let restored = host.json(0, "container restore latest web");
    assert_eq!(both(text(&restored, "container_name")), "one\none");
    host.json(0, &format!("container restore latest web {REPLACE}"));
    assert_eq!(both("web"), "one\none");
    host.json(0, "undo container:web --yes");
    assert_eq!(both("web"), "two\ntwo");
    let listed = host.json(0, "container list");
    let mut items = rows(&listed, "items").iter();
    assert!(items.all(|one| one["status"] == "complete"), "{listed}");
    host.json(0, "container cleanup");
}

#[test]
fn with_the_oldest_api_everything_works_and_with_an_older_one_nothing_is_begun() {
    let Some(mut host) = Host::new() else {
        return;
    };
    let known = ["version", "-f", "{{.Server.MinAPIVersion}}"];
    let known = host.daemon.must(&known);
    let (_, oldest) = known.split_once('.').unwrap();
    if oldest.parse::<u32>().unwrap() > 41 {
        println!("skipped: this engine does not speak API 1.41 any more");
        return;
    }
    let script = "echo one > /data/n; echo one > /own";
    host.start("web", "--stop-signal KILL -v data:/data", script);
    let lowest = Between::new(&host.daemon, "1.41");
    host.address.clone_from(&lowest.address);
    go_through_everything(&host);
    let asked = lowest.asked.lock().unwrap().clone();
    let named = asked.iter().filter(|path| path.starts_with("/v1."));
    let named: Vec<&String> = named.collect();
    assert!(named.len() > 20, "{asked:?}");
    assert!(
        named.iter().all(|path| path.starts_with("/v1.41/")),
        "{named:?}"
    );

    let older = Between::new(&host.daemon, "1.40");
    host.address.clone_from(&older.address);
    for command in ["create web", "restore latest web", "cleanup"] {
        let refused = host.json(2, &format!("container {command}"));
        let said = refused["error"]["causes"].to_string();
        assert!(
            said.contains("API 1.40 at most, which is too old"),
            "{said}"
        );
        let hint = text(&refused["error"], "hint");
        assert!(hint.contains("20.10"), "{hint}");
    }
    let asked = older.asked.lock().unwrap().clone();
    let mut asked = asked.iter();
    assert!(asked.all(|path| path.ends_with("/version")), "{asked:?}");
    assert_eq!(host.status("web"), "running");
}
