//! A directory in which services of a test live, and end with it.

use stasis_quiesce::freeze::FreezeSettings;
use stasis_quiesce::invocation::Invocation;
use stasis_quiesce::process::{Process, ProcessInfo, ProcessState, ProcessTable};
use stasis_quiesce::service::{Handling, Service, Status};
use stasis_quiesce::watchdog::HelperCommand;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) struct Home {
    directory: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A service that is this script, run in this directory.
    pub(crate) fn service(&self, name: &str, script: &str) -> Service {
        let mut start = Invocation::shell(script);
        start.directory = Some(self.directory.path().to_owned());
        let handling = Handling::Command {
            start,
            stop: None,
            record: self.path(&format!("{name}.record")),
        };
        self.handled(name, handling)
    }

    pub(crate) fn handled(&self, name: &str, handling: Handling) -> Service {
        Service {
            name: name.to_owned(),
            handling,
            log: self.path(&format!("{name}.log")),
            launcher: freezer("launch"),
        }
    }

    pub(crate) fn journals(&self) -> PathBuf {
        self.path("journals")
    }

    pub(crate) fn settings(&self, max: Duration) -> FreezeSettings {
        FreezeSettings {
            max,
            ..FreezeSettings::new(self.journals(), freezer("watchdog"))
        }
    }

    pub(crate) fn has_journal(&self) -> bool {
        fs::read_dir(self.journals()).is_ok_and(|mut entries| entries.next().is_some())
    }

    pub(crate) fn written(&self, name: &str) -> u64 {
        fs::metadata(self.path(name)).map_or(0, |file| file.len())
    }

    /// Whether the file grows within a while.
    pub(crate) fn grows(&self, name: &str) -> bool {
        let before = self.written(name);
        is_soon(|| self.written(name) > before, Duration::from_millis(1500))
    }

    /// Whether the file does not grow for a tenth of a second.
    pub(crate) fn rests(&self, name: &str) -> bool {
        let before = self.written(name);
        std::thread::sleep(Duration::from_millis(100));
        self.written(name) == before
    }

    /// The process that wrote its number into a file here.
    pub(crate) fn process(&self, name: &str) -> Process {
        let read = || fs::read_to_string(self.path(name)).unwrap_or_default();
        assert!(is_soon(|| read().ends_with('\n'), LONG));
        Process::open(read().trim().parse().unwrap())
            .unwrap()
            .unwrap()
    }

    /// An engine of its own that holds services and hangs.
    pub(crate) fn paused_by_another(&self, max: Duration, services: &[String]) -> Engine {
        self.paused_at("", max, services)
    }

    /// The same, with the Docker daemon at this address.
    pub(crate) fn paused_at(&self, host: &str, max: Duration, services: &[String]) -> Engine {
        let mut engine = Command::new(freezer("").program);
        engine.env("DOCKER_HOST", host);
        engine.arg("pause").arg(self.journals());
        engine.arg(max.as_millis().to_string()).args(services);
        let mut engine = engine.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(engine.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "paused\n");
        Engine(engine)
    }
}

impl Drop for Home {
    /// Ends whatever still stands in this directory, or was started from it.
    fn drop(&mut self) {
        let here = self.directory.path().canonicalize().unwrap();
        for _ in 0..10 {
            let table = ProcessTable::read().unwrap();
            let inside = |row: &&ProcessInfo| stands_in(row.pid(), &here);
            let inside: Vec<_> = table.living().filter(inside).copied().collect();
            if inside.is_empty() {
                return;
            }
            for row in inside {
                if let Ok(Some(process)) = Process::reopen(row.identity) {
                    let _ = process.signal(rustix::process::Signal::KILL);
                }
            }
        }
    }
}

fn stands_in(pid: u32, directory: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(directory))
}

pub(crate) struct Engine(Child);

impl Engine {
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    pub(crate) fn watchdog(&self) -> Process {
        let table = ProcessTable::read().unwrap();
        let words = |row: &&ProcessInfo| fs::read(format!("/proc/{}/cmdline", row.pid()));
        let is_watchdog = |row: &&ProcessInfo| {
            let ours = row.parent == self.0.id();
            ours && words(row).is_ok_and(|words| {
                words
                    .split(|byte| *byte == 0)
                    .any(|word| word == b"watchdog")
            })
        };
        let row = table.living().find(is_watchdog).unwrap();
        Process::reopen(row.identity).unwrap().unwrap()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The example of this crate, in one of its roles; cargo builds it with the tests.
pub(crate) fn freezer(role: &str) -> HelperCommand {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap().parent().unwrap();
    let program = built.join("examples/freezer");
    let how = "run `cargo build -p stasis-quiesce --examples`";
    assert!(program.exists(), "{how}");
    HelperCommand {
        program,
        arguments: vec![role.into()],
    }
}

pub(crate) fn is_soon(mut condition: impl FnMut() -> bool, limit: Duration) -> bool {
    let began = Instant::now();
    while began.elapsed() < limit {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

pub(crate) fn is_stopped(pid: u32) -> bool {
    ProcessInfo::read(pid).is_some_and(|row| row.state == ProcessState::Stopped)
}

pub(crate) async fn pid_of(service: &Service) -> u32 {
    match service.status().await {
        Status::Running { pid } => pid,
        other => panic!("{} is {other:?}", service.name),
    }
}
