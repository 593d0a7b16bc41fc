//! A real Docker daemon for one test, with a socket, data and containers of its own.
//!
//! Only root runs one. Everything of it is below one temporary directory and one control group, so that all of it can be found
//! and ended by its id when this is dropped: containers, the daemon, its `containerd`, what it mounted.

#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]
#![expect(
    clippy::disallowed_methods,
    reason = "a fixture writes where no other process looks"
)]

use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;

/// The image that every daemon has: a static busybox, and links for the programs that tests use.
pub const IMAGE: &str = "stasis-test-base";
/// The programs of the image.
const PROGRAMS: [&str; 12] = [
    "sh",
    "sleep",
    "cat",
    "cp",
    "dd",
    "echo",
    "ln",
    "mkdir",
    "rm",
    "sha256sum",
    "sync",
    "test",
];
/// How often a daemon that starts or ends is looked at, and how many times.
const TICK: Duration = Duration::from_millis(25);
const TICKS: u32 = 1200;
const CGROUPS: &str = "/sys/fs/cgroup";

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A daemon that runs.
#[derive(Debug)]
#[must_use = "the daemon ends when this is dropped"]
pub struct Dockerd {
    home: TempDir,
    group: String,
    options: Vec<String>,
    child: Option<Child>,
}

impl Dockerd {
    /// Starts one with the image [`IMAGE`]; `None`, after saying why, where that is not possible.
    ///
    /// # Panics
    ///
    /// Where `STASIS_REQUIRE_PARTS` says that Docker must be there, and it does not start.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with options of `dockerd` besides.
    ///
    /// # Panics
    ///
    /// As [`Dockerd::start`].
    pub fn start_with(options: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root runs a Docker daemon");
            return None;
        }
        let made = tempfile::Builder::new().prefix("dockerd-").tempdir();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut daemon = Self {
            home: made.expect("a directory for the test"),
            group: format!("stasis-test-{}-{number}", std::process::id()),
            options: options.iter().map(ToString::to_string).collect(),
            child: None,
        };
        if let Err(error) = daemon.run() {
            let log = fs::read_to_string(daemon.log()).unwrap_or_default();
            let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
            assert!(!needed, "dockerd does not start: {error}\n{log}");
            println!("skipped: dockerd does not start: {error}");
            return None;
        }
        daemon.make_image();
        Some(daemon)
    }

    /// Starts the daemon, again if it was killed, and waits until it answers.
    pub fn run(&mut self) -> io::Result<()> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.log())?;
        let mut command = program("dockerd");
        command
            .arg("--host")
            .arg(self.host())
            .arg("--data-root")
            .arg(self.path("data"))
            .arg("--exec-root")
            .arg(self.path("exec"))
            .arg("--pidfile")
            .arg(self.path("pid"))
            .arg(format!("--cgroup-parent=/{}", self.group))
            .args(["--exec-opt", "native.cgroupdriver=cgroupfs"])
            .args(["--iptables=false", "--ip6tables=false", "--bridge=none"])
            .args(&self.options);
        let stderr = log.try_clone()?;
        let command = command.stdin(Stdio::null()).stdout(log).stderr(stderr);
        self.child = Some(command.spawn()?);
        for _ in 0..TICKS {
            if self.docker(&["version"]).status.success() {
                return Ok(());
            }
            let child = self.child.as_mut().ok_or(io::ErrorKind::NotFound)?;
            if let Some(status) = child.try_wait()? {
                return Err(io::Error::other(format!("it ended: {status}")));
            }
            sleep(TICK);
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Kills the daemon at once. Containers go on if it was started with `--live-restore`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            // Its containerd dies with it. Where nobody waits for that one, its number would stay in use, and the next daemon
            // would wait for it in vain.
            let _ = fs::remove_file(self.path("exec/containerd/containerd.pid"));
        }
    }

    /// Stops the daemon where it is: it accepts connections and does not answer, until it may go on.
    pub fn hang(&self, hangs: bool) {
        let signal = if hangs { Signal::STOP } else { Signal::CONT };
        if let Some(child) = &self.child {
            send(child.id(), signal);
        }
    }

    /// Its address, as in `DOCKER_HOST`.
    pub fn host(&self) -> String {
        format!("unix://{}", self.path("socket").display())
    }

    /// The directory of all its files.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Runs the `docker` program with it: another client, to compare with.
    pub fn docker(&self, words: &[&str]) -> Output {
        let mut docker = program("docker");
        docker.arg("--host").arg(self.host()).args(words);
        // What the user of this machine has configured is not for tests.
        docker.env("DOCKER_CONFIG", self.home.path());
        let output = docker.stdin(Stdio::null()).output();
        output.expect("the docker program comes with the daemon")
    }

    /// The same, for what must succeed; returns what it printed.
    ///
    /// # Panics
    ///
    /// Where it fails.
    pub fn must(&self, words: &[&str]) -> String {
        let output = self.docker(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "docker {words:?}: {said}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn make_image(&self) {
        let bin = self.path("image/bin");
        fs::create_dir_all(&bin).expect("a directory for the image");
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].map(Path::new);
        let busybox = busybox.into_iter().find(|path| path.exists());
        let busybox = busybox.expect("busybox-static is there: see scripts/parts");
        fs::copy(busybox, bin.join("busybox")).expect("busybox can be copied");
        for name in PROGRAMS {
            symlink("busybox", bin.join(name)).expect("a link can be made");
        }
        self.import(&self.path("image"), IMAGE);
    }

    /// Makes an image of what [`IMAGE`] has and of files and directories of this host, at the same places, with the libraries that
    /// those of them need that are programs. `prepare` is given its root before it is packed.
    ///
    /// # Panics
    ///
    /// Where something of it is not there.
    pub fn make_image_with(&self, name: &str, wanted: &[PathBuf], prepare: impl FnOnce(&Path)) {
        let root = self.path(name);
        let mut copy = Command::new("cp");
        let copied = copy.arg("-a").arg(self.path("image")).arg(&root).status();
        assert!(copied.is_ok_and(|copied| copied.success()));
        let files = wanted.iter().filter(|path| path.is_file());
        let listed = Command::new("ldd").args(files).output();
        let listed = listed.expect("ldd is there").stdout;
        let listed = String::from_utf8_lossy(&listed).into_owned();
        let libraries: BTreeSet<&str> = listed
            .split_whitespace()
            .filter(|word| word.starts_with('/') && !word.ends_with(':'))
            .collect();
        let mut copy = Command::new("cp");
        let copy = copy.args(["-rL", "--parents"]).args(wanted).args(libraries);
        let copied = copy.arg(&root).status();
        assert!(copied.is_ok_and(|copied| copied.success()), "{wanted:?}");
        prepare(&root);
        self.import(&root, name);
    }

    fn import(&self, root: &Path, name: &str) {
        let archive = root.with_extension("tar");
        let mut tar = Command::new("tar");
        let tar = tar.arg("-C").arg(root).arg("-cf").arg(&archive).arg(".");
        assert!(tar.status().is_ok_and(|packed| packed.success()));
        self.must(&["import", &archive.to_string_lossy(), name]);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn log(&self) -> PathBuf {
        self.path("log")
    }

    fn remove_containers(&self) {
        // A daemon that hangs must not hold up the end of a test.
        let run = |words: &[&str]| {
            let mut docker = program("timeout");
            docker.args(["10", "docker", "--host", &self.host()]);
            let output = docker.args(words).output();
            let listed = output.map(|output| output.stdout).unwrap_or_default();
            let listed = String::from_utf8_lossy(&listed).into_owned();
            listed.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        for id in run(&["ps", "-q", "--filter", "status=paused"]) {
            run(&["unpause", &id]);
        }
        for id in run(&["ps", "-aq"]) {
            run(&["rm", "-f", "-v", &id]);
        }
        // A bridge outlives its engine, and keeps its addresses from those that come later.
        run(&["network", "prune", "-f"]);
    }

    fn end_daemon(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        send(child.id(), Signal::TERM);
        for _ in 0..400 {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            sleep(TICK);
        }
        let _ = child.kill();
        let _ = child.wait();
    }

    /// The control groups of its containers, in every hierarchy.
    fn groups(&self) -> Vec<PathBuf> {
        let mut parents = vec![Path::new(CGROUPS).join(&self.group)];
        let hierarchies = fs::read_dir(CGROUPS).into_iter().flatten().flatten();
        parents.extend(hierarchies.map(|hierarchy| hierarchy.path().join(&self.group)));
        parents.retain(|parent| parent.is_dir());
        let mut all = Vec::new();
        for parent in parents {
            let inside = fs::read_dir(&parent).into_iter().flatten().flatten();
            all.extend(
                inside
                    .map(|entry| entry.path())
                    .filter(|path| path.is_dir()),
            );
            all.push(parent);
        }
        all
    }

    /// Ends what a daemon that was killed has left: a process that is frozen does not end before it runs again.
    fn end_processes(&self) {
        let groups = self.groups();
        for group in &groups {
            let _ = fs::write(group.join("freezer.state"), "THAWED");
            let inside = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            for pid in inside.lines().filter_map(|pid| pid.parse().ok()) {
                send(pid, Signal::KILL);
            }
        }
        let home = self.home.path().as_os_str().as_encoded_bytes();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in processes {
            let name = process.file_name();
            let pid = name.to_str().and_then(|name| name.parse().ok());
            let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let ours = words.windows(home.len()).any(|part| part == home);
            let daemon =
                words.starts_with(b"containerd") || words.starts_with(b"/usr/bin/containerd");
            if let Some(pid) = pid.filter(|_| ours && daemon) {
                send(pid, Signal::KILL);
            }
        }
        for _ in 0..80 {
            if groups
                .iter()
                .all(|group| fs::remove_dir(group).is_ok() || !group.exists())
            {
                return;
            }
            sleep(TICK);
        }
    }

    /// Unmounts what is mounted below its directory, the innermost first.
    fn unmount(&self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        let mut places: Vec<&str> = places
            .filter(|place| Path::new(place).starts_with(self.home.path()))
            .collect();
        places.sort_by_key(|place| std::cmp::Reverse(place.len()));
        for place in places {
            let _ = Command::new("umount").args(["-l", place]).output();
        }
    }
}

impl Drop for Dockerd {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.hang(false);
            self.remove_containers();
        }
        self.end_daemon();
        self.end_processes();
        self.unmount();
    }
}

/// A program that may be one for administrators.
fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    if let Some(found) = ["/usr/bin", "/usr/sbin", "/usr/local/bin"]
        .map(|directory| Path::new(directory).join(name))
        .into_iter()
        .find(|path| path.exists())
    {
        let mut found = Command::new(found);
        found.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        return found;
    }
    command
}

fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let _ = pid.map(|pid| kill_process(pid, signal));
}
