//! Holds a tree of processes still, for a short time that ends whatever happens.
//!
//! 1. begin a journal and start the watchdog; wait until it is there
//! 2. have the watchdog pause the containers, if there are any, written down durably before
//! 3. find the tree; write down what is to be stopped, durably; tell the watchdog
//! 4. send SIGSTOP, parents first; wait until every thread of each stands still (one that waits for its child to begin a
//!    program cannot: then the child runs on for a moment)
//! 5. look again: what was started meanwhile goes through 3 and 4, until nothing new is found
//! 6. the caller does its work
//! 7. see whether all still stand still; send SIGCONT, children first; unpause; dismiss the watchdog; remove the journal
//!
//! *Always true:* a process that we stopped runs again at the latest when the time is over: by [`Frozen::thaw`], by the
//! guard's drop, by a thread of ours at the deadline, by the watchdog when this process has died or hangs, or by
//! [`thaw_abandoned`] at the next start. A process that another process had stopped is not stopped by us, not written down,
//! and not made to run again. After 5 nothing in the tree can change a file: a stopped process starts no other.
//!
//! A crash before 4 leaves a journal of processes that were never stopped; SIGCONT does nothing to them. What another process
//! does during 6 is seen in 7: a process that ran, or a time that was over, makes the result worthless and is reported.

mod abandoned;
mod error;
mod hold;

use crate::docker::Container;
use crate::journal::{FreezeJournal, FrozenTarget, JournalScope};
use crate::process::{LOOK, PROC, Process, ProcessId, ProcessState, ProcessTable};
use crate::watchdog::{HelperCommand, PauseOutcome, Watchdog};
pub use abandoned::{Abandoned, thaw_abandoned};
pub use error::FreezeError;
use error::watchdog_failed;
use hold::{HoldState, start_timer};
use stasis_model::failure::AtPath;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::time::Instant;

/// How long a tree may take to stand still. A disk that answers slowly holds a process up for some tenths of a second.
const SETTLE: Duration = Duration::from_secs(2);
/// After how long one that still moves is helped.
const NUDGE: Duration = Duration::from_millis(20);
/// How often is looked whether it does.
const TICK: Duration = Duration::from_micros(500);

/// The longest time for which anything stands still, unless somebody says otherwise.
pub const MAX_FREEZE: Duration = Duration::from_secs(10);

/// How long, and with what safety, processes are held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FreezeSettings {
    /// The longest time for which anything stands still.
    pub max: Duration,
    /// Where journals are kept; the same for every engine on this host, so that each start finds what others left.
    pub journal_dir: PathBuf,
    /// How the watchdog is started.
    pub watchdog: HelperCommand,
}

impl FreezeSettings {
    /// Ten seconds at most.
    pub fn new(journal_dir: impl Into<PathBuf>, watchdog: HelperCommand) -> Self {
        Self {
            max: MAX_FREEZE,
            journal_dir: journal_dir.into(),
            watchdog,
        }
    }
}

/// Processes run again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "what was read during a freeze that did not hold is worthless"]
pub struct Thawed {
    /// For how long they stood still, from the first stop to the last continue.
    pub frozen_for: Duration,
    /// The time was over before.
    pub expired: bool,
    /// Another process made one of them run.
    pub disturbed: bool,
}

impl Thawed {
    /// Whether all stood still for the whole time: only then is what was read in it consistent.
    pub fn held(&self) -> bool {
        !self.expired && !self.disturbed
    }
}

/// A tree of processes that stands still; it runs again when this is dropped.
#[derive(Debug)]
#[must_use = "processes run again when the guard is dropped"]
pub struct Frozen {
    hold: Arc<Mutex<HoldState>>,
    journal: Option<FreezeJournal>,
    watchdog: Option<Watchdog>,
    timer: Option<(Sender<()>, JoinHandle<()>)>,
    max: Duration,
}

impl Frozen {
    /// Stops `roots` and everything they started. Blocks for as long as it takes them to stand still.
    ///
    /// The first is the one that matters: it must be there and run. Others may have ended, or be stopped by another process.
    pub fn freeze(roots: &[Process], settings: &FreezeSettings) -> Result<Self, FreezeError> {
        let mut frozen = Self::begin(settings, JournalScope::Processes)?;
        frozen.stop_all(roots)?;
        Ok(frozen)
    }

    /// The same with containers besides; there need not be a process then.
    pub(crate) fn freeze_with(
        containers: &[Container],
        roots: &[Process],
        settings: &FreezeSettings,
    ) -> Result<Self, FreezeError> {
        if containers.is_empty() {
            return Self::freeze(roots, settings);
        }
        let mut frozen = Self::begin(settings, JournalScope::Containers)?;
        frozen.pause_all(containers)?;
        if !roots.is_empty() {
            frozen.stop_all(roots)?;
        }
        Ok(frozen)
    }

    /// From here on a failure drops the guard, which releases whatever was stopped by then.
    fn begin(settings: &FreezeSettings, scope: JournalScope) -> Result<Self, FreezeError> {
        let journal = FreezeJournal::create(&settings.journal_dir, scope);
        let journal = journal.at(
            "begin the journal of frozen processes in",
            &settings.journal_dir,
        )?;
        let watchdog = Watchdog::start(&settings.watchdog, settings.max, journal.path());
        let watchdog = watchdog.map_err(watchdog_failed("start"));
        let mut frozen = Self {
            hold: Arc::default(),
            journal: Some(journal),
            watchdog: None,
            timer: None,
            max: settings.max,
        };
        frozen.watchdog = Some(watchdog?);
        Ok(frozen)
    }

    /// Writes down, durably, what is to be stopped.
    fn name(&mut self, held: &[FrozenTarget]) -> Result<(), FreezeError> {
        let journal = self.journal.as_mut().expect("held until the release");
        let path = journal.path().to_owned();
        Ok(journal
            .name(held)
            .at("write the journal of frozen processes in", &path)?)
    }

    fn begin_timer(&mut self) -> Result<(), FreezeError> {
        if self.timer.is_none() {
            self.timer = Some(start_timer(&self.hold, self.max).map_err(FreezeError::Timer)?);
        }
        Ok(())
    }

    fn pause_all(&mut self, containers: &[Container]) -> Result<(), FreezeError> {
        let held: Vec<FrozenTarget> = containers
            .iter()
            .cloned()
            .map(FrozenTarget::Container)
            .collect();
        self.name(&held)?;
        self.begin_timer()?;
        self.lock().begin();
        let watchdog = self.watchdog.as_mut().expect("held until the release");
        let pausings = match watchdog.pause(containers) {
            Ok(pausings) => pausings,
            Err(source) => {
                self.give_up();
                return Err(watchdog_failed("speak to")(source));
            }
        };
        let both = || containers.iter().zip(&pausings);
        let ours = both().filter(|(_, pausing)| **pausing == PauseOutcome::Paused);
        let ours = ours.map(|(container, _)| container.clone()).collect();
        self.lock().take_over(ours);
        for (container, pausing) in both() {
            self.judge(container.id(), pausing)?;
        }
        if self.has_expired() {
            return Err(FreezeError::Expired { max: self.max });
        }
        Ok(())
    }

    fn judge(&mut self, id: &str, pausing: &PauseOutcome) -> Result<(), FreezeError> {
        let id = id.to_owned();
        let failed = |why: &String| FreezeError::Container {
            doing: "pause",
            id: id.clone(),
            source: io::Error::other(why.clone()),
        };
        match pausing {
            PauseOutcome::Paused => Ok(()),
            PauseOutcome::Theirs => Err(FreezeError::AlreadyPaused { id }),
            PauseOutcome::Failed(why) => Err(failed(why)),
            PauseOutcome::Unsure(why) => {
                let error = failed(why);
                self.lock().end();
                self.give_up();
                Err(error)
            }
        }
    }

    fn stop_all(&mut self, roots: &[Process]) -> Result<(), FreezeError> {
        loop {
            let new = self.find_new(roots)?;
            if new.is_empty() {
                return Ok(());
            }
            let identities: Vec<ProcessId> = new.iter().map(Process::identity).collect();
            let held: Vec<FrozenTarget> = identities
                .iter()
                .copied()
                .map(FrozenTarget::Process)
                .collect();
            self.name(&held)?;
            let watchdog = self.watchdog.as_mut().expect("held until the release");
            for identity in identities {
                let registered = watchdog.register(identity);
                registered.map_err(watchdog_failed("speak to"))?;
            }
            self.begin_timer()?;
            for process in new {
                self.lock().stop(process, self.max)?;
            }
            self.settle()?;
        }
    }

    /// Those of the tree that are not stopped yet. Those that another process stopped are kept in mind.
    fn find_new(&self, roots: &[Process]) -> Result<Vec<Process>, FreezeError> {
        let first = roots.first().ok_or(FreezeError::NoProcess)?;
        let pid = first.pid();
        let table = ProcessTable::read().at(LOOK, PROC)?;
        let roots: Vec<ProcessId> = roots.iter().map(Process::identity).collect();
        let family = table.family(&roots);
        if family.iter().any(|row| row.pid() == std::process::id()) {
            return Err(FreezeError::Ourselves { pid });
        }
        let mut hold = self.lock();
        let mut new = Vec::new();
        for row in family {
            if hold.knows(row.identity) {
                continue;
            }
            let opened = Process::reopen(row.identity).at(LOOK, PROC)?;
            match row.state {
                ProcessState::Stopped if row.identity == first.identity() => {
                    return Err(FreezeError::AlreadyStopped { pid });
                }
                ProcessState::Stopped => hold.others.extend(opened),
                _ => new.extend(opened),
            }
        }
        if !first.is_running() {
            return Err(FreezeError::Ended { pid });
        }
        Ok(new)
    }

    /// Waits until every thread of those that were stopped stands still.
    fn settle(&self) -> Result<(), FreezeError> {
        let deadline = Instant::now() + SETTLE.min(self.max);
        let mut nudge_at = Instant::now() + NUDGE;
        loop {
            let restless = self.lock().restless(self.max)?;
            let Some(pid) = restless else {
                return Ok(());
            };
            if Instant::now() >= deadline {
                let waited = SETTLE.min(self.max);
                return Err(FreezeError::Restless { pid, waited });
            }
            if Instant::now() >= nudge_at {
                self.lock().nudge_children_of(pid, self.max)?;
                nudge_at = Instant::now() + NUDGE;
            }
            std::thread::sleep(TICK);
        }
    }

    /// Whether the time is over: what is read from now on is worthless.
    pub fn has_expired(&self) -> bool {
        self.lock().ended.is_some()
    }

    /// The processes that stand still because of us.
    pub fn pids(&self) -> Vec<u32> {
        self.lock().stopped.iter().map(Process::pid).collect()
    }

    /// Lets everything that we stopped run again, and says whether it stood still for the whole time.
    pub fn thaw(mut self) -> Result<Thawed, FreezeError> {
        self.release()
    }

    fn release(&mut self) -> Result<Thawed, FreezeError> {
        let (thawed, failed) = {
            let mut hold = self.lock();
            let expired = hold.ended.is_some();
            let disturbed = !expired && hold.is_disturbed();
            let frozen_for = hold.end();
            let thawed = Thawed {
                frozen_for,
                expired: expired || frozen_for > self.max,
                disturbed,
            };
            (thawed, hold.failed.take())
        };
        if let Some((register, timer)) = self.timer.take() {
            drop(register);
            let _ = timer.join();
        }
        if let Some(error) = failed {
            self.give_up();
            return Err(error);
        }
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.dismiss();
        }
        if let Some(journal) = self.journal.take() {
            let path = journal.path().to_owned();
            let removed = journal.remove();
            removed.at("remove the journal of frozen processes in", &path)?;
        }
        Ok(thawed)
    }

    /// Leaves the rest to the watchdog, which tries once more; if it cannot either, the journal stays for the next start.
    fn give_up(&mut self) {
        // It takes a journal that no process holds for one of an engine that died, and removes it when all runs.
        self.journal = None;
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.leave();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HoldState> {
        // A thread that panicked while it held this left a list that is still right.
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if self.journal.is_some()
            && let Err(error) = self.release()
        {
            tracing::warn!(%error, "a freeze did not end as it should");
        }
    }
}
