//! What is asked of a workspace.

use stasis_model::tree::EntryPath;
use stasis_model::workspace::{CheckpointName, CheckpointRef, Origin};
use std::path::PathBuf;

/// Who asks for a checkpoint; it is kept with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maker {
    /// Somebody at a command line.
    Cli,
    /// A model.
    Mcp,
    /// The timer of a watch.
    Watch,
    /// A hook of an agent.
    Hook,
}

impl Maker {
    /// The word for it in documents and results.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Mcp => "mcp",
            Self::Watch => "watch",
            Self::Hook => "hook",
        }
    }
}

/// Whether something is done, or only shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Run {
    /// Done.
    #[default]
    Real,
    /// Shown.
    Dry,
}

/// A checkpoint that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Create {
    /// What it will be called; only for a manual one.
    pub name: Option<CheckpointName>,
    /// Which pool; an automatic one is not made when nothing changed since the last.
    pub pool: Origin,
    /// Who asks.
    pub maker: Maker,
    /// Whether it is done.
    pub run: Run,
}

/// A revert that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RevertPath {
    /// Which entry.
    pub path: EntryPath,
    /// From which checkpoint; else the newest one that holds the entry and differs.
    pub checkpoint: Option<CheckpointRef>,
    /// The digest of the plan that was shown.
    pub confirm: Option<String>,
    /// Whether it is done.
    pub run: Run,
}

/// A restore of the whole workspace that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestoreWorkspace {
    /// From which checkpoint.
    pub checkpoint: CheckpointRef,
    /// The digest of the plan that was shown.
    pub confirm: Option<String>,
    /// Whether it is done.
    pub run: Run,
}

/// A compaction that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compact {
    /// The checkpoints that become one; at least two.
    pub checkpoints: Vec<CheckpointRef>,
    /// What that will be called.
    pub name: Option<CheckpointName>,
    /// Whether it is done.
    pub run: Run,
}

/// A fork that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fork {
    /// From which checkpoint.
    pub checkpoint: CheckpointRef,
    /// The new directory; with several, `-1`, `-2`, … are put behind its name.
    pub directory: PathBuf,
    /// How many.
    pub count: u32,
    /// Whether it is done.
    pub run: Run,
}

/// An undo that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Undo {
    /// `u-4`; else the last one.
    pub which: Option<u32>,
    /// The digest of the plan that was shown.
    pub confirm: Option<String>,
    /// Whether it is done.
    pub run: Run,
}
