//! The process that makes the checkpoint, apart from the one that the agent waits for.
//!
//! The agent waits for `hook run`, and `hook run` waits for its worker: the same program again, with the same arguments and
//! `--worker`. What the agent said is passed on to its standard input. It has a session of its own, none of the agent's pipes, and goes
//! on when nobody waits for it any more, so that a checkpoint that takes long is finished. A byte on its standard output asks not
//! to be waited for long.
//!
//! *Always true:* whatever becomes of the worker (killed, hung, failed), the agent waits no longer than it must, and learns nothing of it.

use stasis_engine::model::workspace::pace::SHORT_WAIT;
use std::io;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// What tells the worker from the one who waits.
pub(super) const FLAG: &str = "--worker";

/// How the worker ended, as far as anybody saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WorkerOutcome {
    /// It is done.
    Done,
    /// It goes on by itself.
    Later,
}

/// Starts the worker with what the agent said, and waits for it no longer than `wait`.
pub(super) async fn supervise(said: &[u8], wait: Duration) -> io::Result<WorkerOutcome> {
    let began = Instant::now();
    let mut child = start()?;
    let ended = tokio::time::timeout_at(began + wait, attend(&mut child, said, began)).await;
    Ok(ended.unwrap_or(WorkerOutcome::Later))
}

fn start() -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(std::env::args_os().skip(1))
        .arg(FLAG)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(false);
    command.spawn()
}

async fn attend(child: &mut Child, said: &[u8], began: Instant) -> WorkerOutcome {
    if let Some(mut stdin) = child.stdin.take() {
        // A worker that does not listen has ended, which is seen below.
        let _ = stdin.write_all(said).await;
    }
    let mut word = [0; 1];
    let asked = match &mut child.stdout {
        Some(stdout) => stdout.read(&mut word).await.unwrap_or(0),
        None => 0,
    };
    let rest = child.wait();
    if asked == 0 {
        let _ = rest.await;
        return WorkerOutcome::Done;
    }
    match tokio::time::timeout_at(began + SHORT_WAIT, rest).await {
        Ok(_) => WorkerOutcome::Done,
        Err(_) => WorkerOutcome::Later,
    }
}

/// Makes this process a worker: nobody's terminal, process group or pipe ends it.
pub(super) fn detach() {
    // A process that leads a group already stays in its session; nobody starts a worker so.
    let _ = rustix::process::setsid();
}

/// Asks whoever waits not to wait long.
pub(super) fn hurry() {
    use std::io::Write as _;
    let mut stdout = io::stdout().lock();
    // Nobody may be waiting any more.
    let _ = stdout.write_all(b"s").and_then(|()| stdout.flush());
}
