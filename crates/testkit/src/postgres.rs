//! A real PostgreSQL server for one test, on a directory and a socket of its own.
//!
//! It listens on no network, asks for a password, and is stopped when it is dropped. A server does not run as root: where
//! the test does, the server runs as `postgres` or as `nobody`.

use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;

/// Who may do everything, and how they prove it.
const USER: &str = "keeper";
const PASSWORD: &str = "correct horse";
/// How often a server that starts or stops is looked at, and how many times.
const TICK: Duration = Duration::from_millis(25);
const TICKS: u32 = 1200;

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    directory: TempDir,
    programs: PathBuf,
    owner: Option<(u32, u32)>,
    child: Option<Child>,
}

impl Server {
    /// Starts one, with a new cluster in which only the database `postgres` is.
    ///
    /// # Panics
    ///
    /// Where PostgreSQL is not installed, or does not start: `scripts/parts` installs it.
    pub fn start() -> Self {
        let directory = TempDir::new().expect("a temporary directory can be made");
        let mut server = Self {
            programs: programs().expect("PostgreSQL is installed; see scripts/parts"),
            owner: owner(directory.path()).expect("the owner of a new directory is known"),
            child: None,
            directory,
        };
        server.found().expect("a cluster can be made");
        server.run().expect("PostgreSQL starts");
        server
    }

    fn found(&self) -> io::Result<()> {
        let password = self.directory.path().join("password");
        write_for_all(&password, PASSWORD)?;
        let output = self
            .command("initdb")
            .args(["-U", USER, "-A", "scram-sha-256", "-E", "UTF8"])
            .args(["--no-locale", "--no-sync", "--pwfile"])
            .arg(&password)
            .arg("-D")
            .arg(self.data())
            .output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(io::Error::other(said))
    }

    /// Starts the server again after it was killed.
    pub fn run(&mut self) -> io::Result<()> {
        let child = self
            .command("postgres")
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(self.directory.path())
            .args(["-c", "listen_addresses=", "-c", "fsync=off"])
            .args(["-c", "max_connections=30", "-c", "shared_buffers=16MB"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.child = Some(child);
        for _ in 0..TICKS {
            let asked = self
                .command("pg_isready")
                .arg("-q")
                .arg("-h")
                .arg(self.directory.path())
                .status()?;
            if asked.success() {
                return Ok(());
            }
            sleep(TICK);
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Kills the server at once, as a power cut would.
    pub fn kill(&mut self) {
        self.end(Signal::QUIT);
    }

    fn end(&mut self, signal: Signal) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, signal));
        for _ in 0..TICKS {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            sleep(TICK);
        }
        let _ = child.kill();
        let _ = child.wait();
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir("/").env("LC_ALL", "C");
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Where the programs of the same version are.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// The directory of its socket, to connect to as a host.
    pub fn socket(&self) -> &Path {
        self.directory.path()
    }

    /// Who may do everything.
    pub fn user(&self) -> &'static str {
        USER
    }

    /// The password of that user.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// A URL of one of its databases.
    pub fn url(&self, database: &str) -> String {
        let (password, host) = (PASSWORD.replace(' ', "%20"), self.directory.path());
        format!(
            "postgres://{USER}:{password}@/{database}?host={}",
            host.display()
        )
    }

    /// One of its programs, told how to reach a database.
    pub fn program(&self, name: &str, database: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command
            .env("PGHOST", self.directory.path())
            .env("PGUSER", USER)
            .env("PGPASSWORD", PASSWORD)
            .env("PGDATABASE", database)
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    /// Runs SQL and returns the rows as lines.
    ///
    /// # Panics
    ///
    /// Where the server refuses it.
    pub fn ask(&self, database: &str, sql: &str) -> String {
        let output = self
            .program("psql", database)
            .args(["-XAtqw", "-v", "ON_ERROR_STOP=1", "-c", sql])
            .output()
            .expect("psql runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}: {said}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ends all sessions, then itself.
        self.end(Signal::INT);
    }
}

/// Where the programs of the newest version are that is installed.
pub fn programs() -> Option<PathBuf> {
    let versions = Path::new("/usr/lib/postgresql").read_dir().ok()?;
    let versions = versions.filter_map(|entry| {
        let path = entry.ok()?.path();
        let version: u32 = path.file_name()?.to_str()?.parse().ok()?;
        Some((version, path.join("bin")))
    });
    let installed = versions.filter(|(_, bin)| bin.join("initdb").is_file());
    installed.max().map(|(_, bin)| bin)
}

/// Whom the server runs as, if not as ourselves; the directory is theirs then.
fn owner(directory: &Path) -> io::Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd")?;
    let find = |wanted: &str| {
        users.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, user, group, ..] = fields[..] else {
                return None;
            };
            (name == wanted).then_some((user.parse().ok()?, group.parse().ok()?))
        })
    };
    let owner = find("postgres").or_else(|| find("nobody"));
    let (user, group) = owner.ok_or(io::ErrorKind::NotFound)?;
    std::os::unix::fs::chown(directory, Some(user), Some(group))?;
    Ok(Some((user, group)))
}

#[expect(clippy::disallowed_methods, reason = "a file of a test")]
fn write_for_all(path: &Path, text: &str) -> io::Result<()> {
    std::fs::write(path, text)
}
