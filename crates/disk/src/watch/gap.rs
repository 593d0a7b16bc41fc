//! What was told at once, and what was nearly missed.

use super::told::FileEvent;

/// Why events could be missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Why {
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

impl Why {
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

/// A time in which signs were missed, and what a rescan made of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// Why.
    pub why: Why,
    /// How many of the events were found by the rescan alone.
    pub missed: usize,
}

/// What was told at once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "what is told once is not told again"]
pub struct Batch {
    /// In the order of the first sign of each; at most one per path.
    pub events: Vec<FileEvent>,
    /// Set when signs were missed, or from now on will be.
    pub gap: Option<Gap>,
}
