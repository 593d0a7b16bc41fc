//! A store and a real Docker engine, for tests of containers.

use crate::session::{Session, assert_published};
use serde_json::Value;
use stasis_testkit::docker::{Dockerd, IMAGE};
use std::process::{Command, Output};
use std::time::Duration;

/// Runs something in a shell until it has done what it must before anybody looks.
const READY: &str = "/ready";

/// A store with an engine.
pub(crate) struct Host {
    pub(crate) session: Session,
    pub(crate) daemon: Dockerd,
    /// How the engine is reached.
    pub(crate) address: String,
}

impl Host {
    pub(crate) fn new() -> Option<Self> {
        let daemon = Dockerd::start()?;
        Some(Self::with(Session::new(), daemon))
    }

    pub(crate) fn with(session: Session, daemon: Dockerd) -> Self {
        let address = daemon.host();
        Self {
            session,
            daemon,
            address,
        }
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.session.command(words);
        command.env("DOCKER_HOST", &self.address);
        command
    }

    pub(crate) fn output(&self, words: &[&str]) -> Output {
        self.command(&[&["--json"], words].concat())
            .output()
            .unwrap()
    }

    /// What a command answers that must end so.
    pub(crate) fn json(&self, code: i32, words: &str) -> Value {
        let words: Vec<&str> = words.split(' ').collect();
        let output = self.output(&words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}{out}");
        let text = if code == 0 || !out.is_empty() {
            out
        } else {
            said
        };
        let document: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
        assert_published(&document);
        document
    }

    /// Starts a container that runs a script, and waits until that says that it is ready.
    pub(crate) fn start(&self, name: &str, options: &str, script: &str) -> String {
        self.start_of(IMAGE, name, options, script)
    }

    /// The same of another image with a shell.
    pub(crate) fn start_of(&self, image: &str, name: &str, options: &str, script: &str) -> String {
        let options: Vec<&str> = options.split(' ').collect();
        // One that is made of a snapshot finds what it did before, and does it once.
        let script = format!("test -e {READY} || {{ {script}; echo > {READY}; }}; sleep 1000");
        let run = ["run", "-d", "--network", "none", "--name", name];
        let words = [&run[..], &options, &[image, "/bin/sh", "-c", &script]].concat();
        let id = self.daemon.must(&words);
        for _ in 0..400 {
            let look = self
                .daemon
                .docker(&["exec", name, "/bin/test", "-e", READY]);
            if look.status.success() {
                return id;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{name} is not ready");
    }

    pub(crate) fn sh(&self, container: &str, script: &str) -> String {
        self.daemon
            .must(&["exec", container, "/bin/sh", "-c", script])
    }

    /// Everything in a directory of a container: kinds, modes, owners, times, contents.
    pub(crate) fn tree(&self, container: &str, path: &str) -> String {
        let script = format!(
            "cd {path} && /bin/busybox find . | /bin/busybox sort | while read -r f; do /bin/busybox stat -c '%n %F %a %u:%g %s %h %Y' \"$f\"; test -L \"$f\" && /bin/busybox readlink \"$f\"; test -f \"$f\" && sha256sum < \"$f\"; done; true"
        );
        self.sh(container, &script)
    }

    pub(crate) fn inspect(&self, container: &str, what: &str) -> String {
        self.daemon.must(&["inspect", "-f", what, container])
    }

    pub(crate) fn status(&self, container: &str) -> String {
        self.inspect(container, "{{.State.Status}}")
    }

    /// How many images of snapshots the engine has.
    pub(crate) fn images(&self) -> usize {
        self.lines("images -q stasis-snapshot").len()
    }

    pub(crate) fn lines(&self, words: &str) -> Vec<String> {
        let words: Vec<&str> = words.split(' ').collect();
        let listed = self.daemon.must(&words);
        let lines = listed.lines().filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect()
    }
}

/// Odd files, in a volume.
pub(crate) const ODD: &str = "cd /data; mkdir -p a/b; echo hi > a/b/f; ln a/b/f hard; ln -s ../nowhere dangling; ln -s a/b/f link; \
     /bin/busybox mkfifo pipe; /bin/busybox chmod 4755 a/b/f; /bin/busybox chown 1234:99 a/b/f; mkdir -m 700 secret; \
     /bin/busybox chown 55:66 secret; echo x > 'secret/with space'; dd if=/dev/urandom of=big bs=1024 count=3000 2>/dev/null; \
     echo > empty; /bin/busybox touch -d @86400 empty; cd /more; echo second > file";

/// How a container is replaced without anybody waiting for long.
pub(crate) const REPLACE: &str = "--mode replace --stop-timeout 1s --healthy-after 100ms --yes";

pub(crate) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap()
}

pub(crate) fn rows<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().unwrap()
}
