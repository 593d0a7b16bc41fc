//! A question to a program, and its short answer within a limit; for threads that may not wait for long.

use crate::process::Process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::Instant;

/// Longer answers are not read.
const LONGEST: u64 = 64 << 10;

/// What a program answered.
#[derive(Debug)]
pub(crate) struct DockerReply {
    pub(crate) succeeded: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A program that was asked and has not answered yet; it is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct DockerCall {
    child: Child,
    deadline: Instant,
    limit: Duration,
}

impl DockerCall {
    /// Starts the program. It does not receive what is typed into our terminal.
    pub(crate) fn ask(program: &OsStr, words: &[OsString], limit: Duration) -> io::Result<Self> {
        let child = Command::new(program)
            .args(words)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Self {
            child,
            deadline: Instant::now() + limit,
            limit,
        })
    }

    /// Waits for the answer. Past the limit it fails with [`io::ErrorKind::TimedOut`]: what was asked may happen yet.
    pub(crate) fn answer(mut self) -> io::Result<DockerReply> {
        // A process that cannot be opened has ended already; no other process has its number before we waited for it.
        if let Some(process) = Process::open(self.child.id())?
            && !ends(&process, self.deadline)
        {
            let text = format!("no answer within {:?}", self.limit);
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        let status = self.child.wait()?;
        Ok(DockerReply {
            succeeded: status.success(),
            stdout: ready(self.child.stdout.take())?,
            stderr: ready(self.child.stderr.take())?,
        })
    }
}

impl Drop for DockerCall {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ends(process: &Process, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut polled = [PollFd::new(process, PollFlags::IN)];
        match poll(&mut polled, Some(&left)) {
            Ok(ready) if ready > 0 => return true,
            Ok(_) => return false,
            Err(_) if Instant::now() >= deadline => return false,
            Err(_) => {}
        }
    }
}

/// What is in a pipe; does not wait for another process that keeps it open.
fn ready(pipe: Option<impl AsFd + Read>) -> io::Result<String> {
    let Some(pipe) = pipe else {
        return Ok(String::new());
    };
    let flags = fcntl_getfl(&pipe)?;
    fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)?;
    let mut bytes = Vec::new();
    match pipe.take(LONGEST).read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => return Err(error),
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(script: &str, limit: Duration) -> io::Result<DockerReply> {
        let words = ["-c".into(), script.into()];
        DockerCall::ask(OsStr::new("sh"), &words, limit)?.answer()
    }

    #[test]
    fn a_program_answers_or_fails_in_its_own_words() {
        let limit = Duration::from_secs(20);
        let good = ask("echo yes", limit).unwrap();
        let bad = ask("echo no >&2; exit 1", limit).unwrap();

        assert!(good.succeeded && good.stdout == "yes\n");
        assert!(!bad.succeeded && bad.stderr == "no\n");
        let began = Instant::now();
        let left = ask("sleep 1 & echo yes", limit).unwrap();
        assert_eq!(left.stdout, "yes\n");
        assert!(began.elapsed() < Duration::from_millis(900));
    }

    #[test]
    fn a_program_that_hangs_is_given_up() {
        let began = Instant::now();

        let error = ask("exec sleep 60", Duration::from_millis(100)).unwrap_err();

        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}
