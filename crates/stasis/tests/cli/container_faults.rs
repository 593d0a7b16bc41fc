//! Snapshots of containers where something fails, is missing, in use or killed, with a real Docker engine.

use crate::container_host::{Host, ODD, REPLACE, rows, text};
use serde_json::{Value, json};
use stasis_testkit::docker::{Dockerd, IMAGE};
use stasis_testkit::fake_docker::FakeDocker;
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

/// How often is looked for something that must happen, and how long is waited in between.
const LOOKS: u32 = 12_000;
const TICK: Duration = Duration::from_millis(5);

fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        sleep(TICK);
    }
    panic!("it did not come to that: {what}");
}

/// When a question to an engine is held up: before the engine hears it, or when it has done what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    Before,
    After,
}

/// A step of an operation, by the question to the engine with which it begins or ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    moment: Moment,
    /// The method, and a part of the path.
    question: &'static str,
    /// How many like it come first.
    after: usize,
}

const fn before(question: &'static str) -> Step {
    Step {
        moment: Moment::Before,
        question,
        after: 0,
    }
}

const fn after(question: &'static str) -> Step {
    Step {
        moment: Moment::After,
        ..before(question)
    }
}

impl Step {
    /// The same of a later one.
    const fn number(self, number: usize) -> Self {
        Self {
            after: number - 1,
            ..self
        }
    }

    fn is(self, line: &str) -> bool {
        let (method, path) = self.question.split_once(' ').unwrap();
        line.strip_prefix(method)
            .is_some_and(|rest| rest.starts_with(' ') && rest.contains(path))
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let moment = match self.moment {
            Moment::Before => "before",
            Moment::After => "after",
        };
        write!(f, "{moment} {} no. {}", self.question, self.after + 1)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Hold {
    /// Everything passes.
    #[default]
    Open,
    /// Somebody waits at the step.
    Holds,
    /// Whoever waits may go on.
    GoesOn,
    /// Whoever waits is gone.
    Gone,
}

#[derive(Debug, Default)]
struct GateState {
    step: Option<Step>,
    passed: usize,
    hold: Hold,
}

/// Stands between the program and an engine, and holds one question up.
struct Gate {
    address: String,
    state: Arc<(Mutex<GateState>, Condvar)>,
}

impl Gate {
    fn new(daemon: &Dockerd) -> Self {
        let socket = daemon.home().join("gate");
        let listener = UnixListener::bind(&socket).unwrap();
        let address = format!("unix://{}", socket.display());
        Self::of(daemon, address, move || Some(listener.accept().ok()?.0))
    }

    /// The same, as if the engine were on another host.
    fn elsewhere(daemon: &Dockerd) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp://{}", listener.local_addr().unwrap());
        Self::of(daemon, address, move || {
            // What is done with a stream is the same for both kinds.
            Some(UnixStream::from(OwnedFd::from(listener.accept().ok()?.0)))
        })
    }

    fn of(
        daemon: &Dockerd,
        address: String,
        mut accept: impl FnMut() -> Option<UnixStream> + Send + 'static,
    ) -> Self {
        let engine = daemon.home().join("socket");
        let state: Arc<(Mutex<GateState>, Condvar)> = Arc::default();
        let kept = state.clone();
        std::thread::spawn(move || {
            while let Some(client) = accept() {
                // Nobody listens while the engine ends.
                if let Ok(engine) = UnixStream::connect(&engine) {
                    connect(client, engine, &kept);
                }
            }
        });
        Self { address, state }
    }

    fn command(&self, host: &Host, words: &str) -> Command {
        let words: Vec<&str> = words.split(' ').collect();
        let mut command = host.command(&[&["--json"], &words[..]].concat());
        command.env("DOCKER_HOST", &self.address);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    /// Runs a command until it is held up at a step.
    fn held(&self, host: &Host, words: &str, step: Step) -> Child {
        *self.state.0.lock().unwrap() = GateState {
            step: Some(step),
            ..GateState::default()
        };
        let mut command = self.command(host, words);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        soon(&format!("{words}, {step}"), || {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "{words} ended and was never {step}");
            self.state.0.lock().unwrap().hold == Hold::Holds
        });
        child
    }

    fn become_of(&self, hold: Hold) {
        self.state.0.lock().unwrap().hold = hold;
        self.state.1.notify_all();
    }

    /// Kills a command at a step.
    fn kill(&self, host: &Host, words: &str, step: Step) {
        let mut child = self.held(host, words, step);
        child.kill().unwrap();
        child.wait().unwrap();
        // Who pauses is the watchdog, and that lives on.
        let is_own = !step.question.ends_with("/pause");
        self.become_of(if is_own { Hold::Gone } else { Hold::GoesOn });
    }

    /// Lets a command that is held up come to its end.
    fn end(&self, child: Child) -> Output {
        self.become_of(Hold::GoesOn);
        child.wait_with_output().unwrap()
    }
}

/// Passes everything on in both directions.
fn connect(client: UnixStream, engine: UnixStream, state: &Arc<(Mutex<GateState>, Condvar)>) {
    let (from, to) = (client.try_clone().unwrap(), engine.try_clone().unwrap());
    // Whether the answer is held up.
    let withheld: Arc<Mutex<bool>> = Arc::default();
    let (asked, asking) = (state.clone(), withheld.clone());
    std::thread::spawn(move || relay(from, to, |bytes| ask(bytes, &asked, &asking)));
    let answered = state.clone();
    std::thread::spawn(move || {
        relay(engine, client, |_| {
            let is_withheld = std::mem::take(&mut *withheld.lock().unwrap());
            !is_withheld || wait_at(&answered)
        });
    });
}

/// Passes bytes on for as long as each piece may pass.
fn relay(mut from: UnixStream, mut to: UnixStream, may_pass: impl Fn(&[u8]) -> bool) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if !may_pass(&bytes[..read]) || to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

/// Whether what is asked may pass; holds it up, or sees to it that the answer will be.
fn ask(bytes: &[u8], state: &(Mutex<GateState>, Condvar), withheld: &Mutex<bool>) -> bool {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(1024)]);
    let line = text.lines().next().unwrap_or_default();
    let line = line.strip_suffix(" HTTP/1.1");
    let mut now = state.0.lock().unwrap();
    let step = now
        .step
        .filter(|step| line.is_some_and(|line| step.is(line)));
    let Some(step) = step else {
        return true;
    };
    now.passed += 1;
    if now.passed != step.after + 1 {
        return true;
    }
    drop(now);
    if step.moment == Moment::Before {
        return wait_at(state);
    }
    *withheld.lock().unwrap() = true;
    true
}

/// Waits until somebody says what becomes of it.
fn wait_at((state, told): &(Mutex<GateState>, Condvar)) -> bool {
    let mut now = state.lock().unwrap();
    now.hold = Hold::Holds;
    while now.hold == Hold::Holds {
        now = told.wait(now).unwrap();
    }
    now.hold == Hold::GoesOn
}

/// What a command said that was run without [`Host::json`].
fn answer(output: &Output, code: i32) -> Value {
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    serde_json::from_str(&out).unwrap()
}

/// The error of a command that must fail so.
fn refused(host: &Host, code: i32, words: &str) -> String {
    let document = host.json(code, words);
    assert_eq!(document["error"]["exit_code"], code, "{document}");
    let error = &document["error"];
    format!("{} {}", text(error, "message"), error["causes"])
}

/// The files of a directory, with everything below.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let inside = fs::read_dir(directory).into_iter().flatten().flatten();
    let each = inside.flat_map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files_below(&entry.path()),
        _ => vec![entry.path()],
    });
    each.collect()
}

fn names(host: &Host) -> Vec<String> {
    let mut names = host.lines("ps -a --format {{.Names}}");
    names.sort_unstable();
    names
}

fn volumes(host: &Host) -> BTreeSet<String> {
    host.lines("volume ls -q").into_iter().collect()
}

fn images(host: &Host) -> BTreeSet<String> {
    host.lines("images -aq --no-trunc").into_iter().collect()
}

fn mounted(host: &Host, container: &str) -> BTreeSet<String> {
    let names = host.inspect(container, "{{range .Mounts}}{{.Name}} {{end}}");
    names.split_whitespace().map(str::to_owned).collect()
}

/// A container with a volume of this host, and one that only the engine reads and writes.
fn start_web(host: &Host, script: &str) {
    let far = host.session.home().join("far");
    fs::create_dir_all(&far).unwrap();
    let device = format!("device={}", far.display());
    let create = ["volume", "create", "--opt", "type=none", "--opt", "o=bind"];
    host.daemon
        .must(&[&create[..], &["--opt", &device, "far"]].concat());
    let options = "--stop-signal KILL -v data:/data -v far:/far";
    host.start("web", options, script);
}

/// What nobody may change unnoticed: a container, its volumes, when it is started again, and what else the engine has.
fn everything(host: &Host, container: &str) -> String {
    let state = "{{.Id}} {{.Name}} {{.State.Status}} {{.State.StartedAt}} {{json .HostConfig.RestartPolicy}}";
    let state = host.inspect(container, state);
    let tree = host.tree(container, "/data");
    let (names, volumes, images) = (names(host), volumes(host), images(host));
    format!("{state} {names:?} {volumes:?} {images:?} {tree}")
}

/// Nothing of ours is there but what is listed, these containers, and their volumes and `more`.
fn assert_no_litter(host: &Host, containers: &[&str], more: &[&str], step: &str) {
    let litter = litter(host, containers, more);
    assert!(litter.is_empty(), "{step}: {litter:#?}");
}

/// What is there besides, or is not there, each with what there is and what should be.
fn litter(host: &Host, containers: &[&str], more: &[&str]) -> Vec<String> {
    let mut litter = Vec::new();
    let mut is_so = |is_so: bool, said: String| {
        if !is_so {
            litter.push(said);
        }
    };
    let listed = host.json(0, "container list");
    let items = rows(&listed, "items");
    let mut complete = items.iter();
    let is_complete = complete.all(|one| one["status"] == "complete");
    is_so(is_complete, format!("incomplete: {listed}"));
    let mut needed: BTreeSet<String> = items
        .iter()
        .map(|one| text(one, "image").to_owned())
        .collect();
    let names = names(host);
    is_so(names == containers, format!("{names:?}, {containers:?}"));
    // One that is not there has nothing.
    let there = containers
        .iter()
        .filter(|&&one| names.iter().any(|name| name == one));
    let mut wanted: BTreeSet<String> = more.iter().map(|&name| name.to_owned()).collect();
    for one in there {
        // One of which a container was made goes after that.
        let used = host.inspect(one, "{{.Config.Image}}");
        needed.extend(Some(used).filter(|image| image.starts_with("stasis-snapshot:")));
        wanted.extend(mounted(host, one));
    }
    let images = host.lines("images --format {{.Repository}}:{{.Tag}} stasis-snapshot");
    let images = BTreeSet::from_iter(images);
    is_so(
        images == needed,
        format!("{images:?}, {needed:?}: {listed}"),
    );
    let nameless = host.lines("images -q --filter dangling=true");
    is_so(nameless.is_empty(), format!("nameless: {nameless:?}"));
    let volumes = volumes(host);
    is_so(volumes == wanted, format!("{volumes:?}, {wanted:?}"));
    let state = files_below(&host.session.home().join("state/stasis"));
    let left = state.iter().filter(|path| {
        let path = path.to_string_lossy();
        path.ends_with(".replace.json")
            || path.ends_with(".restore.json")
            || path.contains("/freezes/")
    });
    let left: Vec<&PathBuf> = left.collect();
    is_so(left.is_empty(), format!("{left:?}"));
    litter
}

/// Restores every snapshot that is listed and was not yet, compares what it has, and removes it again.
fn prove_listed(
    host: &Host,
    proven: &mut BTreeSet<String>,
    wanted: &dyn Fn(&str) -> bool,
    step: &str,
) {
    let listed = host.json(0, "container list");
    for one in rows(&listed, "items") {
        let id = text(one, "snapshot_id");
        assert_eq!(one["status"], "complete", "{step}: {listed}");
        if !proven.insert(id.to_owned()) {
            continue;
        }
        let restored = host.json(0, &format!("container restore {id} --name check"));
        assert!(wanted("check"), "{step}: {id} is not what it should be");
        host.daemon.must(&["rm", "-f", "-v", "check"]);
        for volume in rows(&restored, "volumes") {
            host.daemon.must(&["volume", "rm", text(volume, "name")]);
        }
    }
}

/// Nothing stands still any more, and nobody is about to see to that.
fn runs_again(host: &Host, step: &str) {
    let journals = host.session.home().join("state/stasis/freezes");
    soon(&format!("{step}: it runs again"), || {
        let is_paused = !host.lines("ps -q --filter status=paused").is_empty();
        !is_paused && files_below(&journals).is_empty()
    });
}

/// Kills a command as soon as something is so that it does itself; begins anew where it was over before that was seen. What there is
/// before each attempt is looked at by `begin`, which returns what says whether it is so.
fn kill_when<IsSo: Fn() -> bool>(
    gate: &Gate,
    host: &Host,
    words: &str,
    what: &str,
    mut begin: impl FnMut() -> IsSo,
) {
    for _ in 0..20 {
        let is_so = begin();
        gate.become_of(Hold::Open);
        let mut command = gate.command(host, words);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let mut was_so = false;
        while child.try_wait().unwrap().is_none() && !was_so {
            was_so = is_so();
        }
        let is_killed = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        if was_so && is_killed {
            return;
        }
    }
    panic!("{words} was never killed when {what}");
}

/// Says whether there are more files in a directory than there are now.
fn more_than_now(place: &Path) -> impl Fn() -> bool {
    let there = files_below(place).len();
    move || files_below(place).len() > there
}

/// Everything that a snapshot of [`start_web`] has, or the container itself.
fn contents(host: &Host, container: &str) -> String {
    let trees = ["/data", "/far"].map(|place| host.tree(container, place));
    format!("{} {}", trees.concat(), host.sh(container, "cat /own"))
}

/// What is asked of the engine for a snapshot; the last one only where its layers are stored.
const OF_CREATE: [&str; 7] = [
    "POST /pause",
    "POST /commit",
    "POST /containers/create",
    "GET /archive",
    "DELETE /containers/",
    "POST /unpause",
    "GET /get",
];

/// The container runs after a save was killed, and everything that is listed is one of the states that are known.
fn assert_runs_and_is_saved(
    host: &Host,
    known: &[String],
    proven: &mut BTreeSet<String>,
    step: &str,
) {
    runs_again(host, step);
    assert_eq!(host.status("web"), "running", "{step}");
    let is_known = |one: &str| known.contains(&contents(host, one));
    prove_listed(host, proven, &is_known, step);
}

#[test]
fn wherever_a_save_is_killed_the_container_runs_and_what_is_listed_is_whole() {
    let Some(host) = Host::new() else {
        return;
    };
    let gate = Gate::new(&host.daemon);
    start_web(&host, &ODD.replace("/more", "/far"));
    host.sh("web", "echo own > /own");
    let started = host.inspect("web", "{{.State.StartedAt}}");
    let mut known = vec![contents(&host, "web")];
    let mut proven = BTreeSet::new();

    for question in OF_CREATE {
        let words = match question {
            "GET /get" => "container create web --portable",
            _ => "container create web",
        };
        let step = after(question);
        gate.kill(&host, words, step);
        assert_runs_and_is_saved(&host, &known, &mut proven, &step.to_string());
        host.json(0, words);
        let step = before(question);
        gate.kill(&host, words, step);
        assert_runs_and_is_saved(&host, &known, &mut proven, &step.to_string());
        host.json(0, "container cleanup");
        assert_no_litter(&host, &["web"], &[], &step.to_string());
    }
    // What it stores comes bit by bit.
    let store = host.session.home().join("data/stasis/store");
    for (what, place) in [
        ("the first chunk is stored", "pools/default/chunks"),
        ("the first pass is known", "subjects/default/container"),
        ("the layers are stored", "subjects/default/image"),
    ] {
        let script = "dd if=/dev/urandom of=/data/fresh bs=65536 count=80 2>/dev/null";
        let place = &store.join(place);
        // Each attempt has something that no snapshot has yet.
        let begin = || {
            host.sh("web", script);
            known.push(contents(&host, "web"));
            more_than_now(place)
        };
        let words = "container create web --portable";
        kill_when(&gate, &host, words, what, begin);
        assert_runs_and_is_saved(&host, &known, &mut proven, what);
        host.json(0, "container cleanup");
        assert_no_litter(&host, &["web"], &[], what);
    }

    host.json(0, "container create web --portable");
    assert_runs_and_is_saved(&host, &known, &mut proven, "the end");
    assert_eq!(host.inspect("web", "{{.State.StartedAt}}"), started);
    assert_eq!(Some(&contents(&host, "web")), known.last());
    assert!(proven.len() > OF_CREATE.len(), "{proven:?}");
}

/// Removes a container with its volumes, whatever they are called.
fn remove_with_volumes(host: &Host, container: &str) {
    let copies = mounted(host, container);
    host.daemon.must(&["rm", "-f", container]);
    for copy in copies {
        host.daemon.must(&["volume", "rm", &copy]);
    }
}

/// Cleans up after a restore that was killed; returns how many containers it made that ran. Those are what they should be.
fn clean_after_restore(host: &Host, saved: &str, step: &str) -> usize {
    let listed = host.json(0, "container list");
    assert_eq!(rows(&listed, "items").len(), 1, "{step}");
    host.json(0, "container cleanup");
    let mut made = names(host);
    made.retain(|name| name != "web");
    for name in &made {
        assert_eq!(host.status(name), "running", "{step}");
        assert_eq!(contents(host, name), saved, "{step}");
        remove_with_volumes(host, name);
    }
    assert_no_litter(host, &["web"], &[], step);
    made.len()
}

#[test]
fn wherever_a_restore_is_killed_what_it_made_is_whole_or_goes() {
    let Some(host) = Host::new() else {
        return;
    };
    let gate = Gate::new(&host.daemon);
    start_web(&host, &ODD.replace("/more", "/far"));
    let script =
        "echo own > /own; dd if=/dev/urandom of=/data/large bs=65536 count=200 2>/dev/null";
    host.sh("web", script);
    host.json(0, "container create web");
    let saved = contents(&host, "web");
    let untouched = everything(&host, "web");
    let words = "container restore latest web";
    let mut ran = 0;

    for question in [
        before("POST /volumes/create"),
        before("POST /volumes/create").number(2),
        before("POST /containers/create"),
        before("POST /start"),
    ] {
        for moment in [Moment::Before, Moment::After] {
            let step = Step { moment, ..question };
            gate.kill(&host, words, step);
            ran += clean_after_restore(&host, &saved, &step.to_string());
        }
    }
    // The only one whose container was started.
    assert_eq!(ran, 1);
    let place = &host.daemon.home().join("data/volumes");
    let copies = || -> BTreeSet<PathBuf> {
        let all = fs::read_dir(place).unwrap().flatten();
        let copies = all.filter(|one| {
            let name = one.file_name();
            name.to_string_lossy().starts_with("data_restored_")
        });
        copies.map(|one| one.path()).collect()
    };
    let begin = || {
        let there = copies();
        move || {
            let copies = copies();
            let mut new = copies.difference(&there);
            new.any(|one| !files_below(&one.join("_data")).is_empty())
        }
    };
    let what = "a volume is being filled";
    kill_when(&gate, &host, words, what, begin);
    // An attempt that was not killed in time made one that is whole.
    clean_after_restore(&host, &saved, what);

    let restored = host.json(0, words);
    let name = text(&restored, "container_name");
    assert_eq!(contents(&host, name), saved);
    remove_with_volumes(&host, name);
    assert_eq!(everything(&host, "web"), untouched);
}

/// What `web` is, in all three places that a restore writes.
fn number_of(host: &Host, container: &str) -> String {
    let said = host.sh(
        container,
        "cat /data/n /far/n /own; sha256sum < /data/large",
    );
    let words: Vec<&str> = said.split_whitespace().collect();
    assert!(
        words[0] == words[1] && words[1] == words[2],
        "half one, half another: {said}"
    );
    format!("{} {}", words[0], words[3])
}

/// Makes `web` something new that is called so.
fn become_it(host: &Host, number: &str) -> String {
    let script = "for f in /data/n /far/n /own; do echo N > $f; done; \
         dd if=/dev/urandom of=/data/large bs=65536 count=20 2>/dev/null";
    host.sh("web", &script.replace('N', number));
    number_of(host, "web")
}

/// Kills a replacement at some steps, each time of a container that is `two`, by a snapshot that is `one`.
fn kill_replacements(host: &mut Host, gate: &Gate, steps: &[(Step, &str)]) {
    host.address.clone_from(&gate.address);
    start_web(host, "true");
    let one = become_it(host, "one");
    let saved = host.json(0, "container create web --max-freeze 2m");
    let words = format!(
        "container restore {} {REPLACE}",
        text(&saved, "snapshot_id")
    );
    let mut proven = BTreeSet::new();
    let kept = ["data", "far"];

    for (number, (step, wanted)) in steps.iter().enumerate() {
        let two = become_it(host, "two");
        gate.kill(host, &words, *step);
        let step = step.to_string();
        runs_again(host, &step);
        let is_known = |name: &str| [&one, &two].contains(&&number_of(host, name));
        prove_listed(host, &mut proven, &is_known, &step);
        // Either is what anybody types next: both bring back what there was, or bring it to its end.
        let wanted = if number % 2 == 0 {
            host.json(0, "container cleanup");
            if *wanted == "one" { &one } else { &two }
        } else {
            host.json(0, &words);
            prove_listed(host, &mut proven, &is_known, &step);
            host.json(0, "container cleanup");
            &one
        };
        assert_eq!(host.status("web"), "running", "{step}");
        assert_eq!(number_of(host, "web"), *wanted, "{step}");
        assert_no_litter(host, &["web"], &kept, &step);
    }
    // What is printed last takes that back, though a volume may be another one by now.
    let two = become_it(host, "two");
    host.json(0, &words);
    assert_eq!(number_of(host, "web"), one);
    host.json(0, "undo container:web --yes");
    assert_eq!(number_of(host, "web"), two);
    host.json(0, &words);
    assert_eq!(number_of(host, "web"), one);
    host.json(0, "container cleanup");
    assert_no_litter(host, &["web"], &kept, "undone, and done again");
}

#[test]
fn wherever_a_replacement_is_killed_there_is_the_old_one_or_the_new_one() {
    let Some(mut host) = Host::new() else {
        return;
    };
    let gate = Gate::new(&host.daemon);

    let steps = [
        (before("POST /update"), "two"),
        (after("POST /commit"), "two"),
        (after("POST /rename"), "two"),
        // Its volumes are what they were.
        (before("POST /containers/create?name=web"), "two"),
        (after("POST /start"), "one"),
        // All of its volumes are here by now, and nobody else is removed.
        (before("DELETE /containers/"), "one"),
        (after("DELETE /containers/"), "one"),
    ];
    kill_replacements(&mut host, &gate, &steps);
}

#[test]
fn wherever_a_replacement_on_another_host_is_killed_there_is_the_old_one_or_the_new_one() {
    let Some(mut host) = Host::new() else {
        return;
    };
    let gate = Gate::elsewhere(&host.daemon);

    let steps = [
        (after("GET /archive"), "two"),
        (after("POST /volumes/create"), "two"),
        (after("PUT /archive"), "two"),
        (before("POST /containers/create?name=web"), "two"),
        // Only that of the old one leaves volumes alone; how many helpers go before it is nobody's concern.
        (before("DELETE v=false"), "one"),
    ];
    kill_replacements(&mut host, &gate, &steps);
}

fn delete_all(host: &Host) {
    for one in rows(&host.json(0, "container list"), "items") {
        let id = text(one, "snapshot_id");
        host.json(0, &format!("container delete {id} --yes"));
    }
    host.json(0, "container cleanup");
}

/// Kills an import wherever it asks the engine for something, and in between.
fn kill_imports(host: &Host, gate: &Gate, import: &str) {
    for question in ["POST /images/load", "POST /tag", "DELETE /images/"] {
        for step in [before(question), after(question)] {
            gate.kill(host, import, step);
            let listed = host.json(0, "container list");
            assert!(rows(&listed, "items").is_empty(), "{step}: {listed}");
            let mut left = Vec::new();
            soon(&format!("{step}: nothing of it is left"), || {
                // An engine that loads goes on with what it has.
                host.json(0, "container cleanup");
                let now = litter(host, &["web"], &[]);
                if now != left {
                    println!("{step}: {now:?}");
                }
                left = now;
                host.images() == 0 && left.is_empty()
            });
        }
    }
    let place = host
        .session
        .home()
        .join("data/stasis/store/pools/default/chunks");
    let begin = || {
        // One that was not killed in time is made again.
        delete_all(host);
        more_than_now(&place)
    };
    kill_when(gate, host, import, "the first chunk is stored", begin);
}

/// Kills an export wherever it asks the engine for something, and while it writes its file. That one is whole, or not there; one that is
/// whole is returned under another name.
fn kill_exports(host: &Host, gate: &Gate, export: &str, file: &Path) -> Option<PathBuf> {
    let place = file.parent().unwrap();
    let inside = || fs::read_dir(place).unwrap().count();
    for step in [before("GET /get"), after("GET /get")] {
        gate.kill(host, export, step);
        host.json(0, "container cleanup");
        assert_eq!(inside(), 0, "{step}");
        assert_no_litter(host, &["web"], &[], &step.to_string());
    }
    let begin = || {
        // One that was not killed in time is made again.
        let _ = fs::remove_file(file);
        let there = inside();
        move || inside() > there && !file.exists()
    };
    kill_when(gate, host, export, "its file is being written", begin);
    let whole = host.session.home().join("whole.tar.zst");
    let is_whole = file.exists();
    if is_whole {
        // It came to that between the look and the end.
        fs::rename(file, &whole).unwrap();
    }
    host.json(0, "container cleanup");
    is_whole.then_some(whole)
}

#[test]
fn an_export_and_an_import_that_are_killed_leave_nothing_and_work_the_next_time() {
    let Some(host) = Host::new() else {
        return;
    };
    let gate = Gate::new(&host.daemon);
    start_web(&host, &ODD.replace("/more", "/far"));
    let script =
        "echo own > /own; dd if=/dev/urandom of=/data/large bs=65536 count=160 2>/dev/null";
    host.sh("web", script);
    let saved = contents(&host, "web");
    let is_same = |name: &str| contents(&host, name) == saved;
    host.json(0, "container create web");
    let place = host.session.home().join("exports");
    fs::create_dir_all(&place).unwrap();
    let file = place.join("web.tar.zst");
    let spool = host.session.home().join("cache/stasis/archives");
    let export = format!("container export latest {} --of web", file.display());

    let whole = kill_exports(&host, &gate, &export, &file);
    let left = files_below(&spool);
    assert!(left.is_empty(), "what it holds is secret: {left:?}");
    host.json(0, &export);
    let inside = files_below(&place);
    assert_eq!(inside.len(), 1, "{inside:?}");

    // On an engine that has nothing of it.
    host.json(0, "container delete latest web --yes");
    host.json(0, "container cleanup");
    assert_eq!(host.images(), 0);
    let import = format!("container import {}", file.display());
    kill_imports(&host, &gate, &import);
    let mut proven = BTreeSet::new();
    for step in ["what was killed while it was stored", "what was imported"] {
        prove_listed(&host, &mut proven, &is_same, step);
        host.json(0, "container cleanup");
        assert_no_litter(&host, &["web"], &[], step);
        host.json(0, &import);
    }
    prove_listed(&host, &mut proven, &is_same, "imported again");
    assert!(proven.len() >= 2, "{proven:?}");
    if let Some(whole) = whole {
        delete_all(&host);
        host.json(0, &format!("container import {}", whole.display()));
        let mut proven = BTreeSet::new();
        prove_listed(&host, &mut proven, &is_same, "there after all");
        assert_eq!(proven.len(), 1);
    }
    assert!(files_below(&spool).is_empty(), "{:?}", files_below(&spool));
}

/// Mounts a filesystem of its own where a volume lies, or makes it another size.
fn mount_small(host: &Host, options: &str) {
    let place = host.daemon.home().join("data/volumes/small/_data");
    let mut mount = Command::new("mount");
    let mount = mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]);
    let mounted = mount.arg(place).status().unwrap();
    assert!(mounted.success(), "{options}");
}

/// A container that says of itself whether it works, with a volume on a filesystem of its own.
fn start_checked(host: &Host) {
    host.daemon.must(&["volume", "create", "small"]);
    mount_small(host, "size=4m");
    let run = "run -d --network none --name web --restart always --stop-signal KILL -v data:/data -v small:/small \
               --health-interval 200ms --health-retries 2 --health-cmd";
    let run: Vec<&str> = run.split_whitespace().collect();
    let check = ["/bin/busybox grep -q good /data/state"];
    let what = [IMAGE, "/bin/sh", "-c", "sleep 1000"];
    host.daemon.must(&[&run[..], &check, &what].concat());
    host.sh("web", &ODD.replace("/more", "/small"));
}

/// What it is, but for when it was started, and when something was made in the volume that has a filesystem of its own.
fn checked(host: &Host) -> String {
    let state = "{{.Id}} {{.Name}} {{.State.Status}} {{json .HostConfig.RestartPolicy}}";
    let state = host.inspect("web", state);
    let (tree, small) = (host.tree("web", "/data"), host.tree("web", "/small"));
    let (_, small) = small.split_once('\n').unwrap();
    let (names, volumes, images) = (names(host), volumes(host), images(host));
    let own = host.sh("web", "cat /own");
    format!("{state} {names:?} {volumes:?} {images:?} {own} {tree} {small}")
}

#[test]
fn a_container_is_back_if_the_health_check_of_the_new_one_fails_or_its_volume_has_no_room() {
    let Some(host) = Host::new() else {
        return;
    };
    let health = || host.inspect("web", "{{.State.Health.Status}}");
    start_checked(&host);
    host.sh("web", "echo bad > /data/state");
    let bad = host.json(0, "container create web");
    let script =
        "echo good > /data/state; dd if=/dev/urandom of=/small/large bs=65536 count=40 2>/dev/null";
    host.sh("web", script);
    let large = host.json(0, "container create web");
    host.sh(
        "web",
        "rm /data/big /small/large; echo live > /small/file; echo own > /own",
    );
    mount_small(&host, "remount,size=1m");
    soon("it is healthy", || health() == "healthy");
    let before = checked(&host);

    // The second of its volumes has no room for what was in it.
    let words = format!(
        "container restore {} {REPLACE}",
        text(&large, "snapshot_id")
    );
    let said = refused(&host, 11, &words);
    assert!(
        said.contains("`web` was not replaced, and is what it was"),
        "{said}"
    );
    assert_eq!(checked(&host), before);
    // It is started, and says that it does not work.
    let words = format!("container restore {} {REPLACE}", text(&bad, "snapshot_id"));
    let said = refused(&host, 1, &words);

    assert!(
        said.contains("`web` was not replaced, and is what it was"),
        "{said}"
    );
    assert!(said.contains("its health check failed"), "{said}");
    assert_eq!(checked(&host), before);
    soon("it is healthy again", || health() == "healthy");
    let listed = host.json(0, "container list");
    assert_eq!(
        rows(&listed, "items").len(),
        2,
        "nothing was replaced: {listed}"
    );
    host.json(3, "undo container:web --yes");
    let cleaned = host.json(0, "container cleanup");
    assert_eq!(cleaned["brought_back"], json!([]), "{cleaned}");
    assert_no_litter(&host, &["web"], &[], "at the end");
}

#[test]
fn a_second_one_at_a_container_is_told_who_is_first_whatever_it_calls_it() {
    let Some(host) = Host::new() else {
        return;
    };
    let gate = Gate::new(&host.daemon);
    let id = host.start("web", "-v data:/data", "echo x > /data/x");
    let short = &id[..12];
    host.json(0, "container create web");
    for (first, second, third) in [
        ("web", short, &id[..]),
        (short, &id[..], "web"),
        (&id[..], "web", short),
    ] {
        let words = format!("container create {first} --max-freeze 5m");
        let child = gate.held(&host, &words, after("POST /commit"));
        assert_eq!(host.status("web"), "paused");
        let holder = format!(
            "the container `web` is in use: saved by process {} since ",
            child.id()
        );

        for other in [second, third] {
            let said = refused(&host, 4, &format!("container create {other}"));
            assert!(said.contains(&holder), "{said}");
            let replace = format!("container restore latest {other} {REPLACE}");
            let said = refused(&host, 4, &replace);
            assert!(said.contains(&holder), "{said}");
        }
        // Its image is made already, and nobody else's to remove.
        let images = host.images();
        let cleaned = host.json(0, "container cleanup --orphans");
        assert_eq!(cleaned["images"], json!([]), "{cleaned}");
        assert_eq!(host.images(), images);
        assert_eq!(host.status("web"), "paused");

        let saved = answer(&gate.end(child), 0);
        assert_eq!(saved["container_name"], "web", "{saved}");
        assert_eq!(host.status("web"), "running");
        for other in [second, third] {
            host.json(0, &format!("container create {other}"));
        }
    }
    let listed = host.json(0, "container list");
    assert_eq!(rows(&listed, "items").len(), 10);
    assert_no_litter(&host, &["web"], &[], "at the end");
}

/// What the store has for contents of files. What says which files there are is shorter.
fn chunks(host: &Host) -> BTreeSet<PathBuf> {
    let place = host
        .session
        .home()
        .join("data/stasis/store/pools/default/chunks");
    let all = files_below(&place).into_iter();
    all.filter(|path| path.metadata().unwrap().len() > 65_536)
        .collect()
}

/// A restore of a snapshot, beside the container and in place, ends so, and nothing is touched.
fn assert_neither(host: &Host, code: i32, snapshot: &str, wanted: &str) {
    let before = everything(host, "web");
    for mode in ["--mode new", REPLACE] {
        let said = refused(
            host,
            code,
            &format!("container restore {snapshot} web {mode}"),
        );
        assert!(said.contains(wanted), "{said}");
        assert_eq!(everything(host, "web"), before, "{wanted}");
    }
}

/// The same while a chunk is not there.
fn assert_neither_without(host: &Host, chunk: &Path, snapshot: &str) {
    let bytes = fs::read(chunk).unwrap();
    fs::remove_file(chunk).unwrap();
    assert_neither(host, 9, snapshot, "missing");
    fs::write(chunk, bytes).unwrap();
}

#[test]
fn what_is_missing_is_said_before_anything_is_touched() {
    let Some(host) = Host::new() else {
        return;
    };
    let script = "echo old > /data/x; dd if=/dev/urandom of=/data/large bs=65536 count=50 2>/dev/null; \
         dd if=/dev/urandom of=/own bs=65536 count=30 2>/dev/null";
    host.start(
        "web",
        "--restart always --stop-signal KILL -v data:/data",
        script,
    );
    host.json(0, "container create web --label plain=yes");
    let of_volume = chunks(&host);
    host.json(0, "container create web --portable --label portable=yes");
    let of_both = chunks(&host);
    let of_layers: Vec<&PathBuf> = of_both.difference(&of_volume).collect();
    host.sh("web", "echo live > /data/x");
    assert!(of_volume.len() > 1 && of_layers.len() > 1, "{of_both:?}");

    for chunk in of_volume.iter().take(1) {
        assert_neither_without(&host, chunk, "plain=yes");
    }
    // An engine that has not the image gets none of which a layer is missing or damaged.
    let shown = host.json(0, "container show portable=yes web");
    host.daemon.must(&["rmi", text(&shown, "image")]);
    assert_neither_without(&host, of_volume.first().unwrap(), "portable=yes");
    for chunk in of_layers.iter().take(2) {
        assert_neither_without(&host, chunk, "portable=yes");
    }
    let bytes = fs::read(of_layers[0]).unwrap();
    let mut bent = bytes.clone();
    bent[bytes.len() / 2] ^= 1;
    fs::write(of_layers[0], bent).unwrap();
    assert_neither(&host, 9, "portable=yes", "damaged");
    fs::write(of_layers[0], bytes).unwrap();
    let shown = host.json(0, "container show plain=yes web");
    host.daemon.must(&["rmi", text(&shown, "image")]);
    assert_neither(&host, 3, "plain=yes", "gone from the engine");

    // With everything there it works, from the layers alone.
    host.json(0, &format!("container restore portable=yes web {REPLACE}"));
    assert_eq!(host.sh("web", "cat /data/x"), "old");
}

#[test]
fn a_volume_of_that_name_with_other_options_is_somebody_elses() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start(
        "web",
        "--stop-signal KILL -v data:/data",
        "echo old > /data/x",
    );
    let saved = host.json(0, "container create web");
    let id = text(&saved, "snapshot_id");
    host.daemon.must(&["rm", "-f", "web"]);
    host.daemon.must(&["volume", "rm", "data"]);
    let elsewhere = host.session.home().join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    let device = format!("device={}", elsewhere.display());
    let create = ["volume", "create", "--opt", "type=none", "--opt", "o=bind"];
    host.daemon
        .must(&[&create[..], &["--opt", &device, "data"]].concat());
    host.start(
        "web",
        "--stop-signal KILL -v data:/data",
        "echo precious > /data/x; echo more > /data/more",
    );
    let before = everything(&host, "web");

    for more in ["", " --dry-run"] {
        let words = format!("container restore {id} {REPLACE}{more}");
        let said = refused(&host, 4, &words);
        assert!(
            said.contains("`data` with another driver or other options"),
            "{said}"
        );
        assert_eq!(everything(&host, "web"), before);
    }

    // Beside it nothing is in the way: the copy has a name of its own.
    let restored = host.json(0, &format!("container restore {id}"));
    let copy = text(&restored, "container_name");
    assert_eq!(host.sh(copy, "echo /data/*; cat /data/x"), "/data/x\nold");
    assert_eq!(
        fs::read_to_string(elsewhere.join("x")).unwrap(),
        "precious\n"
    );
    // The same under another container's name: what is there of that name stays as it is.
    host.daemon.must(&["rm", "-f", "web"]);
    host.json(0, &format!("container restore {id} --name web"));
    assert_eq!(host.sh("web", "cat /data/x"), "old");
    assert!(!mounted(&host, "web").contains("data"));
    let kept = host.inspect("data", "{{json .Options}}");
    assert!(kept.contains(&device[7..]), "{kept}");
    assert_eq!(
        fs::read_to_string(elsewhere.join("more")).unwrap(),
        "more\n"
    );
}

/// What a restore that fails leaves as it is, whatever it stopped and started meanwhile.
fn untouched(host: &Host) -> String {
    let id = host.inspect("web", "{{.Id}} {{.Name}} {{.State.Status}}");
    let listed = host.json(0, "container list");
    let listed = rows(&listed, "items").iter();
    let listed: Vec<&str> = listed.map(|one| text(one, "snapshot_id")).collect();
    let (names, volumes) = (names(host), volumes(host));
    let tree = host.tree("web", "/data");
    format!("{id} {listed:?} {names:?} {volumes:?} {tree}")
}

/// Nothing is left of a restore that failed, and nothing has to be removed.
fn assert_nothing_left(host: &Host, volumes: &BTreeSet<String>, words: &str) {
    assert_eq!(host.status("web"), "running");
    let cleaned = host.json(0, "container cleanup");
    for what in ["containers", "volumes", "images", "brought_back"] {
        assert_eq!(cleaned[what], json!([]), "{words}: {cleaned}");
    }
    let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
    assert_no_litter(host, &["web"], &volumes, words);
}

/// Changes one byte of a file once it is what the snapshot has, so that nothing but its contents says so; returns whether it came to that
/// while a command ran.
fn bent_meanwhile(
    host: &Host,
    there: &BTreeSet<String>,
    volume: &str,
    words: &str,
) -> (bool, Output) {
    // One that an earlier attempt left is not the one that is written.
    let is_its = |name: &str| name == volume || name.starts_with(volume) && !there.contains(name);
    let mut command = host.command(&words.split(' ').collect::<Vec<_>>());
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let place = host.daemon.home().join("data/volumes");
    let is_wanted = |path: &Path| {
        let found = path.metadata().ok()?;
        let then = SystemTime::UNIX_EPOCH + Duration::from_hours(24);
        (found.len() == 3_072_000 && found.modified().ok()? == then).then_some(then)
    };
    let mut is_bent = false;
    while !is_bent && child.try_wait().unwrap().is_none() {
        let all = fs::read_dir(&place).unwrap().flatten();
        let fits = all.filter(|one| is_its(&one.file_name().to_string_lossy()));
        for one in fits {
            let path = one.path().join("_data/z");
            let Some(then) = is_wanted(&path) else {
                continue;
            };
            let Ok(mut file) = fs::File::options().read(true).write(true).open(&path) else {
                continue;
            };
            let mut byte = [0];
            file.seek(SeekFrom::Start(2_000_000)).unwrap();
            file.read_exact(&mut byte).unwrap();
            file.seek(SeekFrom::Start(2_000_000)).unwrap();
            file.write_all(&[byte[0] ^ 1]).unwrap();
            file.set_modified(then).unwrap();
            is_bent = true;
        }
    }
    (is_bent, child.wait_with_output().unwrap())
}

/// Takes back a restore that came to its end.
fn take_back(host: &Host, words: &str, restored: &Value) {
    if words.contains(REPLACE) {
        host.json(0, "undo container:web --yes");
    } else {
        remove_with_volumes(host, text(restored, "container_name"));
    }
    host.json(0, "container cleanup");
}

/// A restore fails in the end because a file of the volume changes before that is compared. One that was quicker is taken back, and made
/// again.
fn assert_caught(host: &Host, volume: &str, words: &str) {
    for _ in 0..10 {
        let (before, volumes) = (untouched(host), volumes(host));
        let (is_bent, output) = bent_meanwhile(host, &volumes, volume, words);
        if !is_bent || output.status.code() != Some(1) {
            take_back(host, words, &answer(&output, 0));
            continue;
        }
        let error = answer(&output, 1)["error"].clone();
        let said = format!("{} {}", text(&error, "message"), error["causes"]);
        let wanted = "the volume `data` is not what the snapshot has: `z` differs";
        assert!(said.contains(wanted), "{said}");
        assert_eq!(untouched(host), before, "{words}");
        assert_nothing_left(host, &volumes, words);
        return;
    }
    panic!("{words}: what was bent was never seen");
}

#[test]
fn a_volume_that_is_not_what_the_snapshot_has_fails_the_restore_and_goes() {
    let Some(mut host) = Host::new() else {
        return;
    };
    let gate = Gate::elsewhere(&host.daemon);
    // What comes before it takes long enough to be compared.
    let fill = "cd /data; for n in 1 2 3 4; do dd if=/dev/urandom of=b$n bs=1048576 count=8 2>/dev/null; done; \
         dd if=/dev/urandom of=z bs=1024 count=3000 2>/dev/null; /bin/busybox touch -d @86400 z";
    host.start("web", "--stop-signal KILL -v data:/data", fill);
    let saved = host.json(0, "container create web");
    host.sh("web", "echo live > /data/z; rm /data/b3");
    let beside = format!("container restore {} --json", text(&saved, "snapshot_id"));
    let replace = format!("{beside} {REPLACE}");
    let socket = host.address.clone();

    for (address, words, volume) in [
        (&socket, &beside, "data_restored_"),
        (&gate.address, &beside, "data_restored_"),
        (&socket, &replace, "data"),
        (&gate.address, &replace, "data_restored_"),
    ] {
        host.address.clone_from(address);
        assert_caught(&host, volume, words);
    }
}

/// What a command says that asks an engine which does not answer: why, or what is known all the same.
fn assert_unanswered(words: &str, output: &Output, [why, hint]: [&str; 2], snapshot: &Value) {
    if !words.contains("list") && !words.contains("show") {
        let error = answer(output, 7)["error"].clone();
        assert_eq!(error["kind"], "unreachable", "{words}: {error}");
        assert!(
            error["causes"].to_string().contains(why),
            "{words}: {error}"
        );
        assert!(text(&error, "hint").contains(hint), "{words}: {error}");
        return;
    }
    let said = answer(output, 0);
    let item = said["items"].get(0).unwrap_or(&said);
    assert_eq!(item["status"], "unknown", "{words}: {said}");
    assert_eq!(
        item["snapshot_id"], snapshot["snapshot_id"],
        "{words}: {said}"
    );
    if words.contains("list") {
        assert!(text(&said, "engine_error").contains(why), "{said}");
    }
}

#[test]
fn without_an_engine_that_answers_everything_ends_with_a_reason_and_what_is_saved_is_listed() {
    let Some(mut host) = Host::new() else {
        return;
    };
    host.start("web", "-v data:/data", "echo x > /data/x");
    host.json(0, "container create web");
    let snapshot = host.json(0, "container list")["items"][0].clone();
    let hung = FakeDocker::hung();
    let real = host.address.clone();
    let nowhere = format!("unix://{}", host.session.home().join("nowhere").display());
    let replace = format!("container restore latest web {REPLACE}");
    let commands = [
        "container create web",
        "container restore latest web",
        &replace,
        "container cleanup",
        "container cleanup --dry-run",
        "container validate web",
        "container list",
        "container list web",
        "container show latest web",
    ];

    for (address, said) in [
        (
            nowhere,
            ["could not reach the Docker daemon", "DOCKER_HOST"],
        ),
        (hung.host(), ["no answer within", "does not answer"]),
    ] {
        host.address = address;
        // All at once: each waits as long as it may.
        let begun = commands.map(|words| {
            let words: Vec<&str> = words.split(' ').collect();
            let mut command = host.command(&[&["--json"], &words[..]].concat());
            let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        });
        for (words, child) in commands.iter().zip(begun) {
            let output = child.wait_with_output().unwrap();
            assert_unanswered(words, &output, said, &snapshot);
        }
    }

    // It was nobody's fault but the engine's.
    host.address = real;
    let listed = host.json(0, "container list");
    assert_eq!(listed["items"], json!([snapshot]));
    assert_no_litter(&host, &["web"], &[], "the engine is back");
    host.json(0, "container create web");
}

/// The most memory that a command had that succeeds, in KiB.
fn peak_of(host: &Host, words: &str) -> u64 {
    let mut command = host.command(&words.split(' ').collect::<Vec<_>>());
    let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(&status).unwrap_or_default();
        let now = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = now.and_then(|now| now.split_whitespace().next()?.parse().ok());
        peak = now.unwrap_or(0).max(peak);
        sleep(TICK);
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{words}: {output:?}");
    peak
}

#[test]
fn a_large_volume_is_restored_in_little_memory() {
    let Some(host) = Host::new() else {
        return;
    };
    // Half of it is one file.
    let script = "cd /data; dd if=/dev/urandom of=one bs=1048576 count=128 2>/dev/null; \
         for n in 1 2 3 4 5 6 7 8; do dd if=/dev/urandom of=f$n bs=1048576 count=16 2>/dev/null; done";
    host.start("big", "--stop-signal KILL -v data:/data", script);
    let sums = "cd /data; sha256sum one f1 f2 f3 f4 f5 f6 f7 f8";
    let saved = host.sh("big", sums);
    host.json(0, "container create big");
    host.sh("big", "rm /data/f1; echo x > /data/f2; echo y > /data/one");

    let beside = peak_of(&host, "container restore latest big --name copy");
    let in_place = peak_of(&host, &format!("container restore latest big {REPLACE}"));

    println!("{beside} KiB beside, {in_place} KiB in place");
    for peak in [beside, in_place] {
        assert!((1..256 << 10).contains(&peak), "{peak} KiB");
    }
    for name in ["copy", "big"] {
        assert_eq!(host.sh(name, sums), saved, "{name}");
    }
}
