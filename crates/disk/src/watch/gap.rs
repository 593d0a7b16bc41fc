//! What was reported at once, and what was nearly missed.

use super::file_event::FileEvent;

/// Why events could be missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GapReason {
    /// More happened at once than the kernel keeps.
    Overflow,
    /// The kernel, or the settings, allow no more watches.
    WatchLimit,
    /// A directory may not be read.
    Unreadable,
    /// Looking had failed half-way.
    Failed,
    /// Nobody looked between an earlier monitor and this one.
    Resumed,
}

impl GapReason {
    /// The word for it in results.
    pub fn word(self) -> &'static str {
        match self {
            Self::Overflow => "overflow",
            Self::WatchLimit => "watch_limit",
            Self::Unreadable => "unreadable",
            Self::Failed => "failed",
            Self::Resumed => "resumed",
        }
    }
}

/// A time in which events were missed, and what a rescan made of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// Why.
    pub why: GapReason,
    /// How many of the events were found by the rescan alone.
    pub missed: usize,
}

/// What was reported at once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "events are handed out once"]
pub struct EventBatch {
    /// In the order of the first event of each; at most one per path.
    pub events: Vec<FileEvent>,
    /// Set when events were missed, or from now on will be.
    pub gap: Option<Gap>,
}
