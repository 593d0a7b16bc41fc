//! Stopping a browser so that it has written everything.
//!
//! 1. `Browser.close` over its own debugging port, where it has one
//! 2. SIGINT, which means the same, unless a page asks to be confirmed before it is left: then it waits for ever
//! 3. SIGTERM, which ends at once and loses the last half minute of cookies
//! 4. SIGKILL to every process that is left
//!
//! After each the browser has a share of the timeout. It is stopped when all its processes have ended: some outlive the
//! first by more than half a second, and they are the ones that write cookies and databases.
//!
//! The shares, of eight seconds: a close has four and takes 0.2 s on an idle machine, 0.8 to 1.5 s on one with four times
//! more work than cores. An interrupt has two more, and takes the same. A termination has one: it takes 0.2 s, and a browser
//! that hangs at 2 ignores it. What was killed has the last one, and needs 0.3 s under load. What a step does not use,
//! because there is no port or because it failed at once, falls to the next.

use super::cdp::Cdp;
use super::endpoint::DebugEndpoint;
use super::error::BrowserError;
use super::evidence::Directory;
use super::users::{DirectoryUser, ProcessRole, users_of};
use crate::process::{LOOK, PROC, Process, ProcessId, ProcessTable};
use rustix::process::Signal;
use serde_json::json;
use stasis_model::failure::AtPath;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// How often is looked whether all have ended.
const TICK: Duration = Duration::from_millis(25);
/// How long the browser may take to confirm the request.
const ANSWER: Duration = Duration::from_secs(2);
/// How long a script that names the directory may take to become a browser.
const LAUNCH: Duration = Duration::from_millis(500);

/// How long stopping a browser may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StopSettings {
    /// How long it may take in all. The last eighth is for ending what was killed.
    pub timeout: Duration,
}

impl Default for StopSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(8),
        }
    }
}

/// How a browser ended: by the last thing that was asked of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum BrowserExit {
    /// None was running.
    NotRunning,
    /// It was asked to close.
    Closed,
    /// By SIGINT.
    Interrupted,
    /// By SIGTERM: what it held back is lost.
    Terminated,
    /// By SIGKILL, it or some of its processes: what they held back is lost.
    Killed,
}

/// A browser does not run any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a browser that was killed did not write everything"]
pub struct BrowserStopped {
    /// How it ended.
    pub how: BrowserExit,
    /// How long it took until the last of its processes had ended.
    pub took: Duration,
    /// The browser's process, if there was one.
    pub pid: Option<u32>,
}

impl BrowserStopped {
    /// Whether the browser ended by itself and wrote what it held back; of one that did not run nothing is known.
    pub fn is_clean(&self) -> bool {
        matches!(self.how, BrowserExit::Closed | BrowserExit::Interrupted)
    }
}

/// Stops the browser that works in a directory, with all its processes.
///
/// `pid` names the browser, or its launcher, where the caller knows: a live process that is neither is refused
/// before anything is done. Scripts and readers that are not of the browser are left alone.
pub async fn stop(
    directory: &Path,
    pid: Option<u32>,
    settings: StopSettings,
) -> Result<BrowserStopped, BrowserError> {
    let began = Instant::now();
    let mut processes =
        BrowserProcesses::find(directory, began + LAUNCH.min(settings.timeout / 8)).await?;
    processes.check(pid)?;
    let first = processes.browsers.first().map(Process::pid);
    let mut how = BrowserExit::NotRunning;
    for step in [
        BrowserExit::Closed,
        BrowserExit::Interrupted,
        BrowserExit::Terminated,
        BrowserExit::Killed,
    ] {
        if processes.is_gone()? {
            break;
        }
        let until = began + settings.timeout.mul_f64(share(step));
        let was_asked = processes.ask(step, until).await?;
        if was_asked {
            how = step;
        }
        // Once the browser itself has ended, no process is left to be asked, and its children are given the time.
        if was_asked || processes.browsers.is_empty() {
            processes.wait_until_gone(until).await?;
        }
    }
    if !processes.is_gone()? {
        processes.wait_until_gone(began + settings.timeout).await?;
    }
    match processes.members.first() {
        Some(process) => Err(BrowserError::Survived { pid: process.pid() }),
        None => Ok(BrowserStopped {
            how,
            took: began.elapsed(),
            pid: first,
        }),
    }
}

/// The part of the timeout that has passed when a step is given up.
fn share(step: BrowserExit) -> f64 {
    match step {
        BrowserExit::NotRunning => 0.0,
        BrowserExit::Closed => 0.5,
        BrowserExit::Interrupted => 0.75,
        BrowserExit::Terminated => 0.875,
        BrowserExit::Killed => 1.0,
    }
}

/// The processes of a browser that have not ended, as far as they were seen.
#[derive(Debug)]
struct BrowserProcesses {
    directory: PathBuf,
    browsers: Vec<Process>,
    /// The browsers and their children.
    members: Vec<Process>,
    launchers: Vec<Process>,
}

impl BrowserProcesses {
    /// Finds them; a script that is about to become the browser has until `deadline`.
    async fn find(directory: &Path, deadline: Instant) -> Result<Self, BrowserError> {
        loop {
            let users = users_of(directory)?;
            let with = |wanted: fn(ProcessRole) -> bool| -> Vec<Process> {
                let users = users.iter().filter(|user| wanted(user.role));
                users.map(|user| user.process.clone()).collect()
            };
            let processes = Self {
                directory: directory.to_owned(),
                browsers: with(|role| role == ProcessRole::Browser),
                members: with(|role| role <= ProcessRole::Child),
                launchers: with(|role| role == ProcessRole::Launcher),
            };
            let starting = processes.members.is_empty() && !processes.launchers.is_empty();
            if !starting || Instant::now() >= deadline {
                return Ok(processes);
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// Refuses a live process that is neither of the browser nor above it.
    fn check(&self, pid: Option<u32>) -> Result<(), BrowserError> {
        let table = ProcessTable::read().at(LOOK, PROC)?;
        let Some(pid) = pid else {
            return Ok(());
        };
        let mut known = self.members.iter().chain(&self.launchers);
        let above = |process: &Process| table.ancestors(process.pid()).contains(&pid);
        let belongs = known.any(|process| process.pid() == pid || above(process));
        let lives = table.living().any(|row| row.pid() == pid);
        if lives && !belongs {
            return Err(BrowserError::NotItsBrowser {
                pid,
                directory: self.directory.clone(),
            });
        }
        Ok(())
    }

    /// Takes the next step; returns whether a process was there to be asked.
    async fn ask(&self, step: BrowserExit, until: Instant) -> Result<bool, BrowserError> {
        match step {
            BrowserExit::NotRunning => Ok(false),
            BrowserExit::Closed => Ok(self.close(until).await),
            BrowserExit::Interrupted => signal(&self.browsers, Signal::INT),
            BrowserExit::Terminated => signal(&self.browsers, Signal::TERM),
            BrowserExit::Killed => signal(&self.members, Signal::KILL),
        }
    }

    /// Asks the browser to close. Whatever goes wrong here, a signal comes next.
    async fn close(&self, until: Instant) -> bool {
        // One that stands still receives nothing.
        let _ = signal(&self.browsers, Signal::CONT);
        let until = until.min(Instant::now() + ANSWER);
        let asked = tokio::time::timeout_at(until, self.ask_to_close()).await;
        match asked.unwrap_or(Err(BrowserError::Silent { limit: ANSWER })) {
            // It may hang up instead of answering.
            Ok(()) | Err(BrowserError::HungUp { .. }) => true,
            Err(error) => {
                tracing::debug!(%error, "the browser could not be asked to close");
                false
            }
        }
    }

    async fn ask_to_close(&self) -> Result<(), BrowserError> {
        let directory =
            Directory::open(&self.directory).at("open the directory", &self.directory)?;
        let endpoint = DebugEndpoint::find(&directory, &self.members)?;
        let mut browser = Cdp::connect(&endpoint).await?;
        browser
            .ask("Browser.close", json!({}), None)
            .await
            .map(|_| ())
    }

    /// Waits until all have ended, or until the deadline.
    async fn wait_until_gone(&mut self, deadline: Instant) -> Result<(), BrowserError> {
        while !self.is_gone()? && Instant::now() < deadline {
            tokio::time::sleep(TICK).await;
        }
        Ok(())
    }

    /// Whether all have ended, those included that were started meanwhile.
    fn is_gone(&mut self) -> Result<bool, BrowserError> {
        self.add_new_members()?;
        self.members.retain(Process::is_running);
        self.browsers.retain(Process::is_running);
        if self.members.is_empty() {
            let users = users_of(&self.directory)?;
            let of_browser = users
                .into_iter()
                .filter(|user| user.role <= ProcessRole::Child);
            for DirectoryUser { process, role } in of_browser {
                if role == ProcessRole::Browser {
                    self.browsers.push(process.clone());
                }
                self.members.push(process);
            }
        }
        Ok(self.members.is_empty())
    }

    fn add_new_members(&mut self) -> Result<(), BrowserError> {
        let table = ProcessTable::read().at(LOOK, PROC)?;
        let known: Vec<ProcessId> = self.members.iter().map(Process::identity).collect();
        let family = table.family(&known);
        let new = family
            .iter()
            .filter(|row| row.pid() != std::process::id() && !known.contains(&row.identity));
        for row in new {
            let opened = Process::reopen(row.identity).at(LOOK, PROC)?;
            self.members.extend(opened);
        }
        Ok(())
    }
}

/// Signals all; returns whether any was there to receive it.
fn signal(processes: &[Process], signal: Signal) -> Result<bool, BrowserError> {
    let mut heard = false;
    for process in processes {
        let failed = |source| BrowserError::Signal {
            pid: process.pid(),
            source,
        };
        heard |= process.signal(signal).map_err(failed)?;
        // One that stands still would receive it only when it goes on.
        let _ = process.signal(Signal::CONT);
    }
    Ok(heard)
}

#[cfg(test)]
mod tests;
