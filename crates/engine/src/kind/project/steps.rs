//! The ten steps of a save, as they are told.
//!
//! The order is the contract's, but for the last two: programs run again before the lock is released, so that a crash
//! between the two leaves nobody paused.

use serde::Serialize;
use stasis_model::time::Clock;
use std::sync::Arc;
use std::time::Duration;

/// One of the ten.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProjectStep {
    /// Look up the project, and confirm that its state is there.
    Resolve,
    /// Keep others from starting, stopping, saving and restoring it.
    Lock,
    /// Run what its programs want to be run before.
    PreSaveHooks,
    /// See that all of that ended well.
    Quiesce,
    /// Choose the moment: copy databases, ask servers for dumps, pause and clone the rest.
    Checkpoint,
    /// Store what is new.
    Copy,
    /// Say what the snapshot is.
    Metadata,
    /// Make it exist.
    Index,
    /// Let everybody go on.
    Resume,
    /// Let others at it.
    Release,
}

/// A step that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct StepTaken {
    /// Which.
    pub step: ProjectStep,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// The steps as they are taken.
#[derive(Debug)]
pub(super) struct Steps {
    clock: Arc<dyn Clock>,
    taken: Vec<StepTaken>,
    now: Option<(ProjectStep, Duration)>,
}

impl Steps {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            taken: Vec::new(),
            now: None,
        }
    }

    /// Ends the step before, and begins this one.
    pub(super) fn begin(&mut self, step: ProjectStep) {
        self.end();
        // A step that is taken again is told once, with what it took in the end.
        self.taken.retain(|taken| taken.step != step);
        tracing::info!(?step, "step");
        self.now = Some((step, self.clock.uptime()));
    }

    fn end(&mut self) {
        if let Some((step, began)) = self.now.take() {
            let elapsed = self.clock.uptime().saturating_sub(began);
            let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            self.taken.push(StepTaken { step, elapsed_ms });
        }
    }

    /// All that were taken.
    pub(super) fn finish(mut self) -> Vec<StepTaken> {
        self.end();
        self.taken
    }
}
