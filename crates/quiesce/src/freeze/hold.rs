//! What is held, shared with the thread that ends it in time.

use super::error::{FreezeError, signal};
use crate::docker::Container;
use crate::process::{Process, ProcessId, ProcessInfo};
use rustix::process::Signal;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::time::Instant;

/// A thread that ends the hold when its time is over, unless it is ended before.
pub(super) fn start_timer(
    hold: &Arc<Mutex<HoldState>>,
    max: Duration,
) -> io::Result<(Sender<()>, JoinHandle<()>)> {
    let (cancel, cancelled) = mpsc::channel();
    let hold = Arc::clone(hold);
    let wait = move || {
        if cancelled.recv_timeout(max) == Err(RecvTimeoutError::Timeout) {
            hold.lock().unwrap_or_else(PoisonError::into_inner).end();
        }
    };
    let timer = std::thread::Builder::new().name("thaw".to_owned());
    Ok((cancel, timer.spawn(wait)?))
}

/// The processes that stand still.
#[derive(Debug, Default)]
pub(super) struct HoldState {
    /// Stopped by us, parents first.
    pub(super) stopped: Vec<Process>,
    /// Of the tree, and stopped by another process.
    pub(super) others: Vec<Process>,
    /// Containers that we paused.
    pub(super) containers: Vec<Container>,
    began: Option<Instant>,
    /// For how long it was held; nothing is stopped any more.
    pub(super) ended: Option<Duration>,
    /// Who could not be made to run again, and why.
    pub(super) failed: Option<FreezeError>,
}

impl HoldState {
    pub(super) fn knows(&self, identity: ProcessId) -> bool {
        let mut known = self.stopped.iter().chain(&self.others);
        known.any(|process| process.identity() == identity)
    }

    pub(super) fn stop(&mut self, process: Process, max: Duration) -> Result<(), FreezeError> {
        if self.ended.is_some() {
            return Err(FreezeError::Expired { max });
        }
        self.begin();
        if signal(&process, Signal::STOP, "stop")? {
            self.stopped.push(process);
        }
        Ok(())
    }

    /// Something is about to be stopped.
    pub(super) fn begin(&mut self) {
        self.began.get_or_insert_with(Instant::now);
    }

    /// Takes over some containers that were paused. If the time was over meanwhile, they run again at once.
    pub(super) fn take_over(&mut self, paused: Vec<Container>) {
        if self.ended.is_some() {
            self.unpause(&paused);
        } else {
            self.containers.extend(paused);
        }
    }

    fn unpause(&mut self, containers: &[Container]) {
        for (container, source) in Container::unpause_all(containers) {
            self.failed = Some(FreezeError::Container {
                doing: "unpause",
                id: container.id().to_owned(),
                source,
            });
        }
    }

    /// One of those that were stopped and still move.
    pub(super) fn restless(&self, max: Duration) -> Result<Option<u32>, FreezeError> {
        if self.ended.is_some() {
            return Err(FreezeError::Expired { max });
        }
        Ok(Self::moving(self.stopped.iter()))
    }

    /// Lets the children of one that still moves run for a moment.
    ///
    /// A process that starts a program by `vfork` cannot be stopped before its child has begun that program. If the child
    /// was stopped before, both wait for ever.
    pub(super) fn nudge_children_of(&self, pid: u32, max: Duration) -> Result<(), FreezeError> {
        if self.ended.is_some() {
            return Err(FreezeError::Expired { max });
        }
        let is_child = |process: &&Process| {
            let row = ProcessInfo::read(process.pid());
            row.is_some_and(|row| row.identity == process.identity() && row.parent == pid)
        };
        let children: Vec<&Process> = self.stopped.iter().filter(is_child).collect();
        for nudge in [Signal::CONT, Signal::STOP] {
            for child in &children {
                signal(child, nudge, "nudge")?;
            }
            // Long enough to begin a program; they are stopped again before another thread sees the list.
            if nudge == Signal::CONT {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Ok(())
    }

    pub(super) fn is_disturbed(&self) -> bool {
        let all = self.stopped.iter().chain(&self.others);
        let runs = |container: &Container| !matches!(container.is_paused(), Ok(true));
        Self::moving(all).is_some() || self.containers.iter().any(runs)
    }

    fn moving<'a>(mut processes: impl Iterator<Item = &'a Process>) -> Option<u32> {
        let moves =
            |process: &&Process| !ProcessInfo::is_stopped(process.pid()) && process.is_running();
        processes.find(moves).map(Process::pid)
    }

    /// Lets all run again, once, children first.
    pub(super) fn end(&mut self) -> Duration {
        if let Some(frozen_for) = self.ended {
            return frozen_for;
        }
        for process in self.stopped.iter().rev() {
            if let Err(error) = signal(process, Signal::CONT, "continue") {
                self.failed = Some(error);
            }
        }
        let containers = std::mem::take(&mut self.containers);
        self.unpause(&containers);
        let frozen_for = self.began.map(|began| began.elapsed()).unwrap_or_default();
        self.ended = Some(frozen_for);
        frozen_for
    }
}
