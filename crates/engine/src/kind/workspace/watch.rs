//! Automatic checkpoints and file events, for as long as somebody wants them.
//!
//! One thread hears of changes and writes them down; another makes the checkpoints, so that no sign waits for a checkpoint. Before each
//! of those everything that happened is written down, so that its range of events is right. What the monitor believes is written with the
//! events at the end, at every checkpoint and once a minute: a watch that was killed tells some events of the last minute twice.

use super::Workspace;
use super::answers::Watched;
use super::commands::Maker;
use crate::error::{Error, WorkspaceError};
use stasis_disk::form::slots::fact;
use stasis_disk::fs::atomic_write::remove_durably;
use stasis_disk::fs::lock_file::{LockAttempt, LockFile};
use stasis_disk::fs::root_dir::RootDir;
use stasis_disk::session_db::WATCH_STATE;
use stasis_disk::watch::{EventBatch, Monitor, MonitorError};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Who watches, in a session directory.
pub(super) const WATCH_LOCK: &str = "watch.lock";
/// What a watch in the background says.
pub(super) const WATCH_LOG: &str = "watch.log";
/// What asks a watch to end, whoever it is of.
pub(super) const WATCH_STOP: &str = "watch.stop";
/// How often somebody who wants to stop is heard.
const TICK: Duration = Duration::from_millis(200);
/// How often somebody who wants to watch looks whether another one still does.
const TRIES: u32 = 5;
/// How often what the monitor believes is written down.
const KEEP: Duration = Duration::from_mins(1);

impl Workspace {
    /// The file that says who watches.
    pub(super) fn watch_lock(&self) -> PathBuf {
        self.session().path.join(WATCH_LOCK)
    }

    /// The file that asks whoever watches to end.
    pub(super) fn watch_stop(&self) -> PathBuf {
        self.session().path.join(WATCH_STOP)
    }

    /// The file for what a watch says that nobody sees.
    pub fn watch_log(&self) -> PathBuf {
        self.session().path.join(WATCH_LOG)
    }

    pub(super) fn watch_now(
        &self,
        stop: &AtomicBool,
        ready: impl FnOnce(),
    ) -> Result<Watched, Error> {
        let words = format!(
            "process {} since {}",
            std::process::id(),
            self.clock().now()
        );
        let _only = self.only_watch(&words)?;
        // It was meant for another one; whoever means this one asks again.
        remove_durably(&self.watch_stop())?;
        self.recover_if_free()?;
        let mut monitor = self.monitor()?;
        let coverage = monitor.coverage();
        tracing::info!(
            inotify = coverage.watched,
            rescanned = coverage.unwatched,
            "watching the directories of the workspace"
        );
        let root = self.root()?;
        let (sender, receiver) = sync_channel::<()>(1);
        std::thread::scope(|scope| {
            let checkpoints = scope.spawn(move || self.make_when_asked(&receiver));
            let mut listening = Listening {
                workspace: self,
                root: &root,
                watched: Watched::default(),
                due: self.clock().uptime(),
                keep_at: self.clock().uptime() + KEEP,
            };
            ready();
            let heard = listening.run(&mut monitor, &sender, stop);
            drop(sender);
            let made = match checkpoints.join() {
                Ok(made) => made,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            heard.map(|()| Watched {
                checkpoints: made.0,
                skipped: made.1,
                ..listening.watched
            })
        })
    }

    /// Makes this the only watch; somebody who only looks is gone in a moment.
    pub(super) fn only_watch(&self, words: &str) -> Result<LockFile, WorkspaceError> {
        self.check_session()?;
        let mut tries = 0;
        let is_over = || {
            tries += 1;
            tries > TRIES
        };
        let path = self.watch_lock();
        let attempt = LockFile::take_within(&path, words, TICK, is_over);
        let lock = match attempt.map_err(WorkspaceError::Lock)? {
            LockAttempt::Taken(lock) => lock,
            LockAttempt::Held(holder) => return Err(WorkspaceError::Watched(holder)),
        };
        // Whoever held it may have removed the session.
        if let Err(gone) = self.check_session() {
            self.unmake_session(&path);
            return Err(gone);
        }
        Ok(lock)
    }

    /// Goes on where the last watch stopped, or begins anew.
    fn monitor(&self) -> Result<Monitor, Error> {
        let (session_db, clock) = (&self.session().db, self.shared_clock());
        let saved_state = session_db.kept(WATCH_STATE)?;
        let settings = self.session().monitoring();
        if let Some(saved_state) = saved_state {
            match Monitor::resume(
                self.directory(),
                clock.clone(),
                settings.clone(),
                &saved_state,
            ) {
                Err(MonitorError::SavedState) => {
                    tracing::warn!(
                        "the saved state of an earlier watch is damaged; beginning anew"
                    );
                }
                resumed => return Ok(resumed?),
            }
        }
        Ok(Monitor::start(self.directory(), clock, settings)?)
    }

    /// Makes an automatic checkpoint whenever it is time; says how many, and how many were not needed.
    fn make_when_asked(&self, receiver: &Receiver<()>) -> (u64, u64) {
        let (mut made, mut skipped) = (0, 0);
        while receiver.recv().is_ok() {
            match self.automatic(Maker::Watch) {
                Ok(checkpointed) if checkpointed.created => made += 1,
                Ok(_) => skipped += 1,
                Err(error) => {
                    let error = crate::error::error_chain(&error);
                    tracing::error!(error, "could not make an automatic checkpoint");
                }
            }
        }
        (made, skipped)
    }
}

/// What is written down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    Events,
    EventsAndState,
}

/// The thread that hears of changes.
struct Listening<'a> {
    workspace: &'a Workspace,
    root: &'a RootDir,
    watched: Watched,
    /// When the next checkpoint is made.
    due: Duration,
    keep_at: Duration,
}

impl Listening<'_> {
    fn run(
        &mut self,
        monitor: &mut Monitor,
        sender: &SyncSender<()>,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        let clock = self.workspace.shared_clock();
        let asked_to_end = self.workspace.watch_stop();
        while !stop.load(Ordering::Relaxed) && !asked_to_end.exists() {
            let now = clock.uptime();
            if now >= self.due {
                self.flush(monitor, Write::Events)?;
                // One that still runs is one that has not come to its end in a whole interval: the next is made after it.
                if let Err(TrySendError::Disconnected(())) = sender.try_send(()) {
                    break;
                }
                let every = Duration::from_secs(self.workspace.settings().auto_interval());
                self.due = now + every;
            }
            if now >= self.keep_at {
                self.keep_at = now + KEEP;
                self.flush(monitor, Write::EventsAndState)?;
            }
            let wait = TICK.min(self.due.saturating_sub(clock.uptime()));
            let batch = monitor.next(wait)?;
            self.record(&batch, None)?;
        }
        self.flush(monitor, Write::EventsAndState)
    }

    /// Writes down everything that happened until now, and if asked what is believed.
    fn flush(&mut self, monitor: &mut Monitor, write: Write) -> Result<(), Error> {
        let batch = monitor.flush()?;
        let saved_state = (write == Write::EventsAndState).then(|| monitor.saved_state());
        self.record(&batch, saved_state.as_deref())
    }

    fn record(&mut self, batch: &EventBatch, saved_state: Option<&[u8]>) -> Result<(), Error> {
        let (session_db, now) = (&self.workspace.session().db, self.workspace.clock().now());
        let recorded =
            session_db.record(batch, now, saved_state, &mut |path| fact(self.root, path));
        let recorded = recorded?;
        self.watched.events += recorded.written as u64;
        if let Some(gap) = batch.gap {
            self.watched.gaps += 1;
            tracing::warn!(
                why = gap.why.word(),
                missed = gap.missed,
                "some signs were missed; everything was looked at again"
            );
        }
        Ok(())
    }
}
