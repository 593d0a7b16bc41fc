//! What is below `deploy/` is what its own programs take, and asks of a host and of a bucket what Stasis needs.

mod policy;

use crate::serve::{Served, token};
use crate::serve_contract::check_program;
use crate::session::{STASIS, Session, real_store, said};
use policy::Gate;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How much a host is exposed to the service at most, in tenths, as `systemd-analyze security` counts it: from 0 to 100.
const EXPOSURE: &str = "15";

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy")
        .join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(deploy(name)).unwrap()
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
    assert!(
        found || !needed,
        "{program} is not there: run scripts/parts"
    );
    if !found {
        println!("skipped: {program} is not there; scripts/parts brings it");
    }
    found
}

fn systemd(words: &[&str], unit: &Path) -> String {
    let mut command = Command::new("systemd-analyze");
    let ran = said(command.args(words).arg(unit).output().unwrap());
    assert_eq!(ran.code, 0, "{words:?}\n{}{}", ran.out, ran.err);
    // What it does not know it ignores, and says so.
    assert_eq!(ran.err, "", "{words:?}");
    ran.out
}

#[test]
fn the_unit_of_the_service_is_sound_and_shuts_it_in() {
    if !has("systemd-analyze") {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let with_program = |name: &str| {
        let to = home.path().join(name.strip_prefix("systemd/").unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        let text = read(name).replace("ExecStart=stasis ", &format!("ExecStart={STASIS} "));
        std::fs::write(&to, text).unwrap();
        to
    };
    let unit = with_program("systemd/stasis.service");
    for drop_in in ["", "tls.conf", "tenant-key.conf"] {
        if !drop_in.is_empty() {
            with_program(&format!("systemd/stasis.service.d/{drop_in}"));
        }
        systemd(&["verify", "--man=no"], &unit);
        let threshold = format!("--threshold={EXPOSURE}");
        systemd(&["security", "--offline=true", &threshold], &unit);
    }
}

/// The calls that a list of the unit names, with those of the sets in it.
fn calls(list: &str) -> BTreeSet<String> {
    let mut calls = BTreeSet::new();
    for name in list.split_whitespace() {
        if !name.starts_with('@') {
            calls.insert(name.to_owned());
            continue;
        }
        let set = systemd(&["syscall-filter"], Path::new(name));
        let names = set.lines().skip(1).map(str::trim);
        let names = names.filter(|name| !name.is_empty() && !name.starts_with('#'));
        let nested = names.collect::<Vec<_>>().join(" ");
        calls.extend(self::calls(&nested));
    }
    calls
}

#[test]
fn the_service_makes_no_call_that_its_unit_forbids() {
    if !has("systemd-analyze") || !has("strace") {
        return;
    }
    let unit = read("systemd/stasis.service");
    let lists = unit
        .lines()
        .filter_map(|line| line.strip_prefix("SystemCallFilter="));
    let mut allowed = BTreeSet::new();
    for list in lists {
        match list.strip_prefix('~') {
            Some(not) => allowed = allowed.difference(&calls(not)).cloned().collect(),
            None => allowed.extend(calls(list)),
        }
    }
    let session = Session::new();
    let admin = token(&session, "acme", "admin");
    let trace = session.home().join("trace");
    let plain = session.command(&["--json", "serve", "--listen", "127.0.0.1:0"]);
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", trace.to_str().unwrap()]);
    command
        .arg(plain.get_program())
        .args(plain.get_args())
        .env_clear();
    command.envs(
        plain
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let served = Served::started(command);
    for path in [
        "/healthz",
        "/readyz",
        "/v1/subjects",
        "/v1/events",
        "/v1/openapi.json",
    ] {
        assert_eq!(served.get(&admin, path).status, 200, "{path}");
    }
    assert_eq!(served.stop_traced(), 0);

    let trace = std::fs::read_to_string(&trace).unwrap();
    let made = trace.lines().filter_map(|line| {
        let call = line.split_once(' ')?.1.trim_start().split_once('(')?.0;
        let is_call = call.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        is_call.then(|| call.to_owned())
    });
    let made: BTreeSet<String> = made.collect();
    assert!(made.contains("accept4") && made.len() > 30, "{made:?}");
    // The program is started before the filter counts.
    let forbidden: Vec<_> = made
        .difference(&allowed)
        .filter(|call| *call != "execve")
        .collect();
    assert!(forbidden.is_empty(), "{forbidden:?}");
}

#[test]
fn the_image_is_built_as_it_should_be() {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: hadolint comes from PyPI for x86_64");
        return;
    }
    let Some(hadolint) = check_program("hadolint") else {
        return;
    };
    let mut command = Command::new(hadolint);
    let checked = command.arg(deploy("docker/Dockerfile")).output().unwrap();
    let checked = said(checked);
    assert_eq!(checked.code, 0, "{}{}", checked.out, checked.err);
}

#[test]
fn the_manifests_are_what_kubernetes_takes() {
    let Some(validate) = check_program("kubernetes-validate") else {
        return;
    };
    for name in ["stasis.yaml", "network-policy.yaml"] {
        let mut command = Command::new(&validate);
        command.args(["--strict", "--kubernetes-version", "1.37"]);
        command.arg(deploy("kubernetes").join(name));
        let checked = said(command.output().unwrap());
        assert_eq!(checked.code, 0, "{name}\n{}{}", checked.out, checked.err);
    }
}

/// A host with a gate before its store.
struct Host {
    session: Session,
    gate: Gate,
}

impl Host {
    /// Runs a command; says how it ended, what of it was refused, and what it said.
    fn run(&self, words: &[&str]) -> (i32, Vec<String>, String) {
        let ran = self.session.run(words);
        let told = format!("{words:?}\n{}{}", ran.out, ran.err);
        (ran.code, self.gate.refused(), told)
    }

    fn must(&self, words: &[&str]) {
        let (code, refused, told) = self.run(words);
        assert_eq!((code, refused), (0, Vec::new()), "{told}");
    }

    /// A directory, and a profile that is uploaded in more than one part.
    fn trees(&self) -> (PathBuf, PathBuf) {
        let dir = self.session.home().join("work");
        std::fs::create_dir(&dir).unwrap();
        let profile = crate::profile::profile(&self.session, "profile");
        let mut head = Command::new("head");
        let noise = head.args(["-c", "20000000", "/dev/urandom"]).output();
        std::fs::write(profile.join("Default/large"), noise.unwrap().stdout).unwrap();
        (dir, profile)
    }
}

#[test]
fn a_writer_that_may_not_delete_does_all_its_work_and_a_gc_all_of_its_own() {
    let Some(store) = real_store("STASIS_TEST_S3") else {
        return;
    };
    let gate = Gate::open(&store);
    let session = Session::on(&gate.store);
    let host = Host { session, gate };
    let (dir, profile) = host.trees();
    let back = host.session.home().join("back");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (work, alice, back) = (text(&dir), text(&profile), text(&back));
    let lease = "acme/alice@131";

    host.gate.obey(&read("policies/writer.json"));
    host.must(&["store", "probe"]);
    for content in ["one", "two"] {
        std::fs::write(dir.join("file"), content).unwrap();
        host.must(&["save", &work]);
        std::fs::write(profile.join("Default/small"), content).unwrap();
        host.must(&["profile", "save", "acme/alice", "--dir", &alice]);
    }
    host.must(&["restore", &work, "--to", &back]);
    host.must(&["lease", "acquire", lease, "--run-id", "nightly"]);
    host.must(&[
        "lease",
        "force-unlock",
        lease,
        "--reason",
        "test",
        "--confirm",
    ]);
    host.must(&["list"]);
    host.must(&["forget", &work, "latest~1", "--yes"]);
    // What only gc may do is refused, as what it is.
    let (code, refused, told) = host.run(&["gc", &work, "--yes"]);
    assert_eq!(code, 8, "{told}");
    assert!(refused[0].contains("s3:DeleteObject"), "{refused:?}");

    host.gate.obey(&read("policies/gc.json"));
    host.must(&["gc", &work, "--yes"]);
    host.must(&["profile", "gc", "acme/alice"]);
    host.must(&["store", "probe"]);
    let asked = host.gate.asked();
    for action in ["GetObject", "PutObject", "ListBucket", "DeleteObject"] {
        assert!(asked.contains(&format!("s3:{action}")), "{asked:?}");
    }
}
