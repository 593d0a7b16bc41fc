//! A command that runs in a process group of its own, so that all of it can be stopped.

pub use rustix::process::Signal;
use rustix::process::{Pid, getppid, kill_process_group, test_kill_process_group};
use stasis_sys::process_handle::end_with_parent;
use stasis_sys::processes::{self, ProcessInfo};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Why a command could not be run or watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// It did not start.
    #[error("could not start `{}`", .program.to_string_lossy())]
    Start {
        /// Which program.
        program: OsString,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It could not be waited for.
    #[error("could not wait for process {pid}")]
    Wait {
        /// Which process.
        pid: u32,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Becomes a command that ends with its parent: the first word is the number of the process that asked for it, the others
/// are the command. Returns only if that failed.
pub fn become_bound(words: &[OsString]) -> io::Error {
    let [parent, program, arguments @ ..] = words else {
        return io::Error::from(io::ErrorKind::InvalidInput);
    };
    if let Err(error) = end_with_parent() {
        return error;
    }
    // A parent that died before that is not told to us any more.
    let is_bound = getppid().map(|pid| pid.as_raw_nonzero().to_string());
    if is_bound.is_none_or(|pid| *parent != *pid) {
        return io::Error::other("whoever asked for it is gone");
    }
    std::process::Command::new(program).args(arguments).exec()
}

/// Gives a command what we call its standard input and output as descriptors 3 and 4, where a browser with
/// `--remote-debugging-pipe` reads and writes; what it prints goes where our diagnostics go.
const ON_PIPE: &str = "exec \"$@\" 3<&0 4>&1 0</dev/null 1>&2";

/// The ends of a command's descriptors 3 and 4. Nobody else has them, and a browser closes itself when they are dropped.
#[derive(Debug)]
pub struct CommandPipe {
    pub(crate) to: ChildStdin,
    pub(crate) from: ChildStdout,
}

/// A running command and everything it started.
#[derive(Debug)]
#[must_use = "a group that is dropped goes on running"]
pub struct ProcessGroup {
    child: Child,
    pid: u32,
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandExit {
    status: ExitStatus,
}

impl CommandExit {
    /// Whether a signal ended it.
    pub fn was_signalled(&self) -> bool {
        self.status.signal().is_some()
    }

    /// The exit code as a shell gives it: 128 and the signal's number for a command that was killed.
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or_default())
    }
}

impl ProcessGroup {
    /// Starts `command` (program first) with some more variables. It reads our standard input unless that is a terminal, which a process group
    /// in the background must not touch.
    pub fn start(command: &[OsString], variables: &[(&str, String)]) -> Result<Self, GroupError> {
        Self::start_in(command, variables, None)
    }

    /// The same in a directory; in ours, if there is none.
    pub fn start_in(
        command: &[OsString],
        variables: &[(&str, String)],
        directory: Option<&Path>,
    ) -> Result<Self, GroupError> {
        let program = command.first().cloned().unwrap_or_default();
        let mut started = Command::new(&program);
        started.args(command.get(1..).unwrap_or_default());
        if let Some(directory) = directory {
            started.current_dir(directory);
        }
        if rustix::termios::isatty(io::stdin()) {
            started.stdin(Stdio::null());
        }
        Self::spawn(started, program, variables)
    }

    /// Starts a command that is spoken to over its descriptors 3 and 4. A shell puts them there, and becomes the command; that a
    /// program is not found is known from its exit code, 127.
    pub fn start_piped(
        command: &[OsString],
        variables: &[(&str, String)],
    ) -> Result<(Self, CommandPipe), GroupError> {
        let mut started = Command::new("sh");
        started.args(["-c", ON_PIPE, "sh"]).args(command);
        started.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut group = Self::spawn(started, "sh".into(), variables)?;
        let ends = group.child.stdin.take().zip(group.child.stdout.take());
        let (to, from) = ends.expect("both were asked for");
        Ok((group, CommandPipe { to, from }))
    }

    fn spawn(
        mut started: Command,
        program: OsString,
        variables: &[(&str, String)],
    ) -> Result<Self, GroupError> {
        started.process_group(0);
        started.envs(variables.iter().map(|(name, value)| (name, value)));
        let failed = |source| GroupError::Start { program, source };
        let child = started.spawn().map_err(failed)?;
        let pid = child
            .id()
            .expect("a child that was not waited for has a process id");
        Ok(Self { child, pid })
    }

    /// The process id of the command, and of its group.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for the command itself to end. Safe to cancel.
    pub async fn wait(&mut self) -> Result<CommandExit, GroupError> {
        let pid = self.pid;
        let status = self
            .child
            .wait()
            .await
            .map_err(|source| GroupError::Wait { pid, source })?;
        Ok(CommandExit { status })
    }

    /// Sends a signal to the command and everything it started; one that is already gone is fine.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.group_id() {
            let _ = kill_process_group(pid, signal);
            // A command that stands still, say because it asked for the terminal, would never receive it.
            let _ = kill_process_group(pid, Signal::CONT);
        }
    }

    /// Stops the command and everything it started: asks with SIGTERM, and after `timeout` does not ask any more.
    ///
    /// Returns how the command itself ended; a group that has already ended is left in peace.
    pub async fn stop(&mut self, timeout: Duration) -> Result<CommandExit, GroupError> {
        if self.is_running() {
            self.signal(Signal::TERM);
            if tokio::time::timeout(timeout, self.gone()).await.is_err() {
                self.signal(Signal::KILL);
                // A killed process needs a moment to end.
                let _ = tokio::time::timeout(Duration::from_secs(2), self.gone()).await;
            }
        }
        self.wait().await
    }

    /// Waits until nothing of the group is left.
    async fn gone(&mut self) {
        while self.is_running() {
            let _ = tokio::time::timeout(Duration::from_millis(20), self.wait()).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whether anything of the group runs. What has ended does not, though nobody may have waited for it yet: where the first process of a
    /// container takes over what lost its parent, nobody ever does.
    pub fn is_running(&self) -> bool {
        let is_known = self
            .group_id()
            .is_some_and(|pid| test_kill_process_group(pid).is_ok());
        is_known && has_living(self.pid)
    }

    fn group_id(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.pid).ok()?)
    }
}

/// Whether a process of a group has not ended; where none of it can be seen, one counts as living.
fn has_living(group: u32) -> bool {
    let look = || {
        let Ok(all) = processes::all() else {
            return true;
        };
        let rows = all.into_iter().filter_map(ProcessInfo::read);
        let mut members = rows.filter(|row| row.group == group).peekable();
        members.peek().is_none() || members.any(|row| !ProcessInfo::has_ended(row.pid()))
    };
    // One that was begun after the list was read, by one that ended before it was looked at, is in the next list.
    look() || look()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> ProcessGroup {
        ProcessGroup::start(&["sh".into(), "-c".into(), script.into()], &[]).unwrap()
    }

    #[tokio::test]
    async fn the_exit_code_is_the_one_a_shell_would_give() {
        assert_eq!(shell("exit 7").wait().await.unwrap().code(), 7);
        assert_eq!(shell("kill -9 $$").wait().await.unwrap().code(), 137);
    }

    #[tokio::test]
    async fn a_command_that_ignores_the_question_is_killed_with_its_children() {
        let mut group = shell("trap '' TERM; sleep 60 & sleep 60; sleep 60");
        tokio::time::sleep(Duration::from_millis(200)).await;

        let ending = group.stop(Duration::from_millis(300)).await.unwrap();

        assert_eq!(ending.code(), 137);
        assert!(!group.is_running(), "nothing of the group is left");
    }

    #[tokio::test]
    async fn what_has_ended_does_not_run_though_nobody_waited_for_it() {
        let mut group = shell("exit 3");
        while !ProcessInfo::has_ended(group.pid()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }

        assert!(!group.is_running());
        assert_eq!(group.wait().await.unwrap().code(), 3);
    }

    #[tokio::test]
    async fn what_a_command_left_behind_is_stopped_too() {
        let mut group = shell("sleep 60 & exit 4");
        assert_eq!(group.wait().await.unwrap().code(), 4);
        assert!(group.is_running(), "its child goes on");

        let ending = group.stop(Duration::from_secs(5)).await.unwrap();

        assert_eq!(ending.code(), 4);
        assert!(!group.is_running());
    }

    #[tokio::test]
    async fn a_command_is_spoken_to_over_its_descriptors_and_prints_elsewhere() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let script = "read word; echo printed; read said <&3; echo \"$said, heard; $word\" >&4";
        let words = ["sh", "-c", script].map(OsString::from);

        let (mut group, mut pipe) = ProcessGroup::start_piped(&words, &[]).unwrap();
        pipe.to.write_all(b"said\n").await.unwrap();
        let mut heard = String::new();
        pipe.from.read_to_string(&mut heard).await.unwrap();

        assert_eq!(heard, "said, heard; \n");
        assert_eq!(group.wait().await.unwrap().code(), 0);
        let missing = ProcessGroup::start_piped(&["no-such-program".into()], &[]);
        assert_eq!(missing.unwrap().0.wait().await.unwrap().code(), 127);
    }

    #[tokio::test]
    async fn a_program_that_does_not_exist_is_named() {
        let error = ProcessGroup::start(&["no-such-program".into()], &[]).unwrap_err();

        assert_eq!(error.to_string(), "could not start `no-such-program`");
    }
}
