//! The other process: started, listened to, and ended whatever it does.
//!
//! A thread reads what it says, no more than [`MOST`] bytes, until it closes its output; meanwhile we wait for the
//! deadline. Then it is killed if it still lives, and always waited for.

use super::limits::ChildLimits;
use crate::check::scratch::CheckScratch;
use crate::check::{CheckError, CheckSettings, Spawn};
use crate::fs::sys::descriptor;
use stasis_model::failure::AtPath;
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// No honest answer is longer.
const MOST: u64 = 8 << 20;
/// How often we look whether somebody wants us to stop.
const TICK: Duration = Duration::from_millis(50);

pub(super) enum ChildEnd {
    /// By itself, after saying this; whether that is a whole answer is seen from it.
    Said(String),
    /// It was killed at the deadline.
    TimedOut,
}

pub(super) fn run(
    spawn: &Spawn,
    limits: &ChildLimits,
    scratch: &CheckScratch,
    settings: &CheckSettings,
) -> Result<ChildEnd, CheckError> {
    run_with_input(spawn, limits, scratch, settings, Stdio::null())
}

pub(super) fn run_with_input(
    spawn: &Spawn,
    limits: &ChildLimits,
    scratch: &CheckScratch,
    settings: &CheckSettings,
    input: Stdio,
) -> Result<ChildEnd, CheckError> {
    let mut child = Killed(start(spawn, limits, scratch, input).at(
        "start the process that checks a database in",
        &settings.scratch,
    )?);
    let output = child.0.stdout.take().expect("its output is a pipe");
    let (sender, heard) = mpsc::channel();
    // Nobody waits for this thread: it ends when the last who could say something is gone.
    std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = output.take(MOST).read_to_end(&mut said);
        let _ = sender.send(String::from_utf8_lossy(&said).into_owned());
    });
    let mut left = settings.time;
    let ended = loop {
        if settings.cancel.load(Ordering::Relaxed) {
            break Err(CheckError::Cancelled);
        }
        match heard.recv_timeout(left.min(TICK)) {
            Ok(said) => break Ok(ChildEnd::Said(said)),
            Err(RecvTimeoutError::Disconnected) => break Ok(ChildEnd::Said(String::new())),
            Err(RecvTimeoutError::Timeout) if left.is_zero() => break Ok(ChildEnd::TimedOut),
            Err(RecvTimeoutError::Timeout) => left = left.saturating_sub(TICK),
        }
    };
    drop(child);
    ended
}

fn start(
    spawn: &Spawn,
    limits: &ChildLimits,
    scratch: &CheckScratch,
    input: Stdio,
) -> io::Result<Child> {
    // The descriptor is still open when the new process enters the directory, and closed when the program starts.
    let directory = descriptor::link_to(scratch.fd());
    Command::new(&spawn.program)
        .args(&spawn.arguments)
        .args(limits.arguments())
        .current_dir(directory)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
}

/// A process that does not outlive its guard.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, only waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
