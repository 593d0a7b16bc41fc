//! A small process that lets frozen programs run again when the one that froze them cannot.
//!
//! It is this program again, in a session of its own, with a pipe to read from. It reads one line before each process is
//! stopped, and opens that process at once. Containers it pauses itself when it reads their line, and answers `settle` with
//! one line for each: at any moment it knows which pauses are still on their way to the daemon, also when the engine has
//! died meanwhile. It lets all of them run again
//!
//! 1. when the pipe is closed without a `done`: the engine was killed, and then the journal is removed too
//! 2. a moment after the freeze should have ended: the engine hangs, or was itself stopped
//!
//! *Always true:* nothing is stopped before the watchdog has said that it is there and knows of it. A line that was
//! written before the engine died is read, because a pipe keeps what was written into it. A container that another process
//! paused first is not made to run again. A daemon that does not answer is asked again for a while; then the journal stays.

mod pauses;

use crate::docker::{Container, UNDO_TIMEOUT};
use crate::journal;
use crate::process::{Process, ProcessId};
pub(crate) use pauses::PauseOutcome;
use pauses::PendingPauses;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use tokio::time::Instant;

/// The engine thaws at its deadline; the watchdog waits this much longer.
const MARGIN: Duration = Duration::from_millis(250);
/// How long a watchdog may take to say that it is there: a loaded machine starts programs slowly.
const START: Duration = Duration::from_secs(5);
/// How long it may take to end once it is not needed any more.
const END: Duration = Duration::from_secs(1);
/// How long is waited before something that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// For how long a daemon is asked again to let a container run.
const DAEMON_RETRY_BUDGET: Duration = Duration::from_mins(10);

/// How a watchdog is started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HelperCommand {
    /// The program.
    pub program: PathBuf,
    /// The words before ours.
    pub arguments: Vec<OsString>,
}

impl HelperCommand {
    /// This very program, even if its file was replaced since, with some words.
    pub fn this_program(words: &[&str]) -> Self {
        Self {
            program: stasis_sys::host::this_program(),
            arguments: words.iter().map(OsString::from).collect(),
        }
    }
}

/// A watchdog that watches this process.
#[derive(Debug)]
pub(crate) struct Watchdog {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    /// How long it may take to end.
    end: Duration,
    /// Whether it goes on by itself.
    is_left: bool,
}

impl Watchdog {
    /// Starts one and waits until it is there.
    pub(crate) fn start(spawn: &HelperCommand, max: Duration, journal: &Path) -> io::Result<Self> {
        let mut child = Command::new(&spawn.program)
            .args(&spawn.arguments)
            .arg(max.as_millis().to_string())
            .arg(journal)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let piped = "a child that was given pipes has them";
        let mut watchdog = Self {
            stdin: child.stdin.take(),
            stdout: child.stdout.take().expect(piped),
            child,
            end: END,
            is_left: false,
        };
        let mut said = [0; READY.len()];
        let there = is_readable(&watchdog.stdout, Some(START))
            && watchdog.stdout.read_exact(&mut said).is_ok()
            && said == *READY;
        // One that is dropped here is ended there.
        there.then_some(watchdog).ok_or_else(|| {
            let silent = "the watchdog did not say that it is there";
            io::Error::new(io::ErrorKind::TimedOut, silent)
        })
    }

    /// Tells it of a process that is about to be stopped.
    pub(crate) fn register(&mut self, identity: ProcessId) -> io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(stdin, "stop {} {}", identity.pid(), identity.started())
    }

    /// Has it pause some containers, all at once; returns what became of each.
    pub(crate) fn pause(&mut self, containers: &[Container]) -> io::Result<Vec<PauseOutcome>> {
        // From now on it may have to wait for a daemon.
        self.end = END + UNDO_TIMEOUT;
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        for container in containers {
            writeln!(stdin, "pause {}", container.to_line())?;
        }
        writeln!(stdin, "settle")?;
        let answers = containers
            .iter()
            .map(|_| self.read_line().map(|line| PauseOutcome::parse(&line)));
        answers.collect()
    }

    /// One line of what it says. Each may come after a pause that took its whole limit, and was then undone.
    fn read_line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        loop {
            if !is_readable(&self.stdout, Some(START + UNDO_TIMEOUT)) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut byte = [0];
            self.stdout.read_exact(&mut byte)?;
            if byte == *b"\n" {
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            line.extend(byte);
        }
    }

    /// Leaves the rest to it: it goes on trying when this process has ended.
    pub(crate) fn leave(mut self) {
        self.stdin = None;
        self.is_left = true;
    }

    /// Tells it that everything runs again.
    pub(crate) fn dismiss(mut self) {
        if let Some(mut stdin) = self.stdin.take() {
            let _ = stdin.write_all(b"done\n");
        }
    }
}

impl Drop for Watchdog {
    /// Closes the pipe: unless it was dismissed, it thaws what it knows. Waits for its end, which comes at once.
    fn drop(&mut self) {
        self.stdin = None;
        // It closes what it speaks through when it ends.
        let ends = is_readable(&self.stdout, Some(self.end));
        if !ends && self.is_left {
            return;
        }
        if !ends {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

const READY: &[u8; 6] = b"ready\n";

/// Waits until something can be read, or the other end is closed.
fn is_readable(fd: impl AsFd, limit: Option<Duration>) -> bool {
    let mut polled = [PollFd::new(&fd, PollFlags::IN)];
    let limit = limit.map(|limit| Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    poll(&mut polled, limit.as_ref()).is_ok_and(|ready| ready > 0)
}

/// The watchdog itself: returns when the engine has said that all is well, or has died and everything runs again.
///
/// Its arguments are the length of the freeze in milliseconds and the path of the journal.
pub fn run(arguments: &[OsString]) -> io::Result<()> {
    let [max, journal] = arguments else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let max = max.to_str().and_then(|max| max.parse().ok());
    let max = Duration::from_millis(max.ok_or(io::ErrorKind::InvalidInput)?);
    // What ends the engine's terminal or group must not end this; and no mount is held by standing in it.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    let mut stdout = io::stdout();
    stdout.write_all(READY)?;
    stdout.flush()?;
    let mut watch = WatchdogState {
        max,
        deadline: None,
        stopped: Vec::new(),
        pauses: PendingPauses::default(),
        buffer: Vec::new(),
    };
    if watch.is_dismissed() {
        return Ok(());
    }
    watch.thaw_with_retries()?;
    // A dying engine closes one thing after the other: the lock on its journal may go a moment later than the pipe.
    let gives_up = Instant::now() + END;
    while !journal::forget(Path::new(journal))? && Instant::now() < gives_up {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

struct WatchdogState {
    max: Duration,
    deadline: Option<Instant>,
    stopped: Vec<Process>,
    pauses: PendingPauses,
    /// What came after the last whole line.
    buffer: Vec<u8>,
}

impl WatchdogState {
    /// Listens until the engine says that all is well, or says nothing any more.
    fn is_dismissed(&mut self) -> bool {
        let mut stdin = io::stdin().lock();
        let mut bytes = [0; 4096];
        loop {
            let left = self.deadline.map(|at| at - Instant::now());
            if !is_readable(&stdin, left) {
                if self.deadline.is_some_and(|at| at <= Instant::now()) {
                    // What cannot be done now is tried again soon, and when the engine ends.
                    let again = self.thaw().is_err().then(|| Instant::now() + RETRY);
                    self.deadline = again;
                }
                continue;
            }
            match stdin.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => self.buffer.extend(bytes.iter().take(count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if self.process_lines() {
                return true;
            }
        }
    }

    /// Obeys every whole line; returns whether one of them was the last.
    fn process_lines(&mut self) -> bool {
        while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match words[..] {
                ["done"] => return true,
                ["stop", pid, started] => {
                    if let (Ok(pid), Ok(started)) = (pid.parse(), started.parse()) {
                        self.track(ProcessId::new(pid, started));
                    }
                }
                ["pause", ..] => {
                    let container = line
                        .trim()
                        .strip_prefix("pause ")
                        .and_then(Container::parse);
                    if let Some(container) = container {
                        self.begin();
                        self.pauses.begin(container);
                    }
                }
                ["settle"] => self.answer(),
                _ => {}
            }
        }
        false
    }

    /// The time runs from the first that is stopped.
    fn begin(&mut self) {
        self.deadline
            .get_or_insert_with(|| Instant::now() + self.max + MARGIN);
    }

    /// Tells the engine what became of its pauses. If it has died, it reads the end of the pipe next.
    fn answer(&mut self) {
        let lines = self.pauses.settle().into_iter();
        let lines: String = lines.map(|pausing| pausing.to_line()).collect();
        let mut stdout = io::stdout();
        let _ = stdout.write_all(lines.as_bytes());
        let _ = stdout.flush();
    }

    fn track(&mut self, identity: ProcessId) {
        self.begin();
        if let Ok(Some(process)) = Process::reopen(identity) {
            self.stopped.push(process);
        }
    }

    /// Lets all run again, children first, so that a browser finds them running.
    fn thaw(&mut self) -> io::Result<()> {
        let mut all = Ok(());
        for process in std::mem::take(&mut self.stopped).into_iter().rev() {
            if let Err(error) = process.signal(Signal::CONT) {
                self.stopped.insert(0, process);
                all = Err(error);
            }
        }
        let unpaused = self.pauses.undo();
        all.and(unpaused)
    }

    /// Lets all run again, for as long as that may help.
    fn thaw_with_retries(&mut self) -> io::Result<()> {
        let gives_up = Instant::now() + DAEMON_RETRY_BUDGET;
        loop {
            match self.thaw() {
                Err(error) if self.pauses.is_empty() || Instant::now() >= gives_up => {
                    return Err(error);
                }
                Err(_) => std::thread::sleep(RETRY),
                Ok(()) => return Ok(()),
            }
        }
    }
}
