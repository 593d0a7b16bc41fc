//! A command that is run to its end, with what it said; never for longer than it may.
//!
//! 1. start it in a process group of its own, without standard input
//! 2. read what it says, the first part of which is kept and all of which is taken, so that it never waits for us
//! 3. when it ends, listen for a moment to what is still on its way: something it left behind may keep the pipe open
//! 4. when its time is over, or the caller does not wait any more, kill the whole group
//!
//! *Always true:* the command itself does not outlive the call. What it left running in the background after its own end
//! goes on, and cannot hold the caller up.

use crate::invocation::Invocation;
use rustix::process::{Pid, Signal, kill_process_group};
use stasis_model::failure::{AtPath, Failure};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::time::Instant;

/// How much is kept of what a command says, on each of its two outputs.
pub const MAX_OUTPUT: usize = 64 << 10;
/// How long what was killed may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long is listened after the command has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// A command that is run at a certain moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HookCommand {
    /// What is run.
    pub call: Invocation,
    /// How long it may take.
    pub timeout: Duration,
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HookExit {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal of another process.
    Signalled(i32),
    /// Its time was over, and it was killed with everything it started.
    TimedOut,
}

/// The beginning of what a command said.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CapturedOutput {
    /// The first bytes, which need not be text.
    pub bytes: Vec<u8>,
    /// How many came after them and were not kept.
    pub left_out: u64,
}

impl CapturedOutput {
    /// Whether something was not kept.
    pub fn is_truncated(&self) -> bool {
        self.left_out > 0
    }

    /// As text, with a mark at what is not text and a line about what was left out.
    pub fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        if self.is_truncated() {
            format!("{text}\n[{} more bytes]\n", self.left_out)
        } else {
            text.into_owned()
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let room = MAX_OUTPUT.saturating_sub(self.bytes.len()).min(bytes.len());
        let (kept, rest) = bytes.split_at(room);
        self.bytes.extend_from_slice(kept);
        self.left_out += rest.len() as u64;
    }
}

/// What became of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a command that failed is told only here"]
pub struct HookResult {
    /// How it ended.
    pub ending: HookExit,
    /// What it said.
    pub stdout: CapturedOutput,
    /// What it complained about.
    pub stderr: CapturedOutput,
    /// How long it took.
    pub elapsed: Duration,
}

impl HookResult {
    /// Whether it ended by itself, with code 0.
    pub fn succeeded(&self) -> bool {
        self.ending == HookExit::Exited(0)
    }
}

/// Runs a command to its end. Cancelling kills it and everything it started.
pub async fn run(hook: &HookCommand) -> Result<HookResult, Failure> {
    let began = Instant::now();
    let program = hook.call.program().to_owned();
    let mut guard = KillOnDrop::new(start(&hook.call).at("start", &program)?);
    let mut output = OutputPipes::of(&mut guard.child);
    let ended = async {
        tokio::select! {
            status = guard.child.wait() => status,
            // A command that closes both outputs may still be busy.
            () = output.drain_all() => guard.child.wait().await,
        }
    };
    let ending = if let Ok(status) = tokio::time::timeout(hook.timeout, ended).await {
        let status = status.at("wait for", &program)?;
        guard.disarm();
        exit_of(status)
    } else {
        guard.kill().await;
        HookExit::TimedOut
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, output.drain_all()).await;
    Ok(HookResult {
        ending,
        stdout: output.stdout_bytes,
        stderr: output.stderr_bytes,
        elapsed: began.elapsed(),
    })
}

fn start(call: &Invocation) -> io::Result<Child> {
    let argv = call.argv();
    let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    call.prepare(program, arguments)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Both outputs of a command, and what came out of them.
struct OutputPipes {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    stdout_bytes: CapturedOutput,
    stderr_bytes: CapturedOutput,
}

impl OutputPipes {
    fn of(child: &mut Child) -> Self {
        Self {
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            stdout_bytes: CapturedOutput::default(),
            stderr_bytes: CapturedOutput::default(),
        }
    }

    /// Listens until both are closed. Safe to cancel and to begin again: nothing is lost between a read and its keeping.
    async fn drain_all(&mut self) {
        tokio::join!(
            drain(self.stdout.as_mut(), &mut self.stdout_bytes),
            drain(self.stderr.as_mut(), &mut self.stderr_bytes)
        );
    }
}

fn exit_of(status: ExitStatus) -> HookExit {
    let signal = || HookExit::Signalled(status.signal().unwrap_or_default());
    status.code().map_or_else(signal, HookExit::Exited)
}

/// Reads until the other end is closed. Safe to cancel: what was read was kept.
async fn drain(from: Option<&mut (impl AsyncRead + Unpin)>, into: &mut CapturedOutput) {
    let Some(from) = from else {
        return;
    };
    let mut bytes = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        into.take(bytes.get(..count).unwrap_or_default());
    }
}

/// A command that is killed with its group when this is dropped, unless it has ended by itself.
struct KillOnDrop {
    child: Child,
    group: Option<Pid>,
}

impl KillOnDrop {
    fn new(child: Child) -> Self {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let group = pid.and_then(Pid::from_raw);
        Self { child, group }
    }

    /// The command has ended and was waited for: its number may soon be another process's.
    fn disarm(&mut self) {
        self.group = None;
    }

    async fn kill(&mut self) {
        self.kill_group();
        // One that hangs in the kernel ends when it can.
        let _ = tokio::time::timeout(KILL_TIMEOUT, self.child.wait()).await;
    }

    fn kill_group(&mut self) {
        if let Some(group) = self.group.take() {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Not waited for yet, or the group would not be known here: the number is still its own.
        self.kill_group();
    }
}

#[cfg(test)]
mod tests;
