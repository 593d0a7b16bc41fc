//! What is asked of a workspace.

use stasis_model::tree::EntryPath;
use stasis_model::workspace::{
    AgentCall, AgentEventKind, CheckpointName, CheckpointOrigin, CheckpointRef, EventText, ForkName,
};
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
    /// A server, without being asked.
    Serve,
}

impl Maker {
    /// The word for it in documents and results.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Mcp => "mcp",
            Self::Watch => "watch",
            Self::Hook => "hook",
            Self::Serve => "serve",
        }
    }
}

/// A workspace that is made known.
#[derive(Clone, Debug)]
pub struct InitWorkspace {
    /// The directory.
    pub directory: PathBuf,
    /// Where its checkpoints and events are kept; else under the state directory of this host.
    pub session: Option<PathBuf>,
    /// What is cloned with every checkpoint besides: a directory or an image.
    pub system: Option<PathBuf>,
    /// The most bytes of all checkpoints.
    pub budget: Option<u64>,
}

/// Whether something is done, or only shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RunMode {
    /// Done.
    #[default]
    Real,
    /// Shown.
    Dry,
}

/// A checkpoint that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateCheckpoint {
    /// What it will be called; only for a manual one.
    pub name: Option<CheckpointName>,
    /// Which pool; in one of the automatic ones none is made when nothing changed since the last.
    pub pool: CheckpointOrigin,
    /// Who asks.
    pub maker: Maker,
    /// What an agent is about to do.
    pub call: Option<AgentCall>,
    /// Whether it is done.
    pub run: RunMode,
}

impl CreateCheckpoint {
    /// One by the timer.
    pub fn automatic(maker: Maker) -> Self {
        Self {
            name: None,
            pool: CheckpointOrigin::Auto,
            maker,
            call: None,
            run: RunMode::Real,
        }
    }

    /// One that a command of ours needs, which is named in it. It is kept as those before commands of agents are.
    pub(super) fn for_command(text: &str, maker: Maker) -> Self {
        let ours = EventText::first_line("stasis").expect("it is a line");
        Self {
            pool: CheckpointOrigin::Command,
            call: Some(AgentCall {
                kind: AgentEventKind::Command,
                agent: ours,
                session: None,
                turn_id: None,
                text: EventText::first_line(text),
            }),
            ..Self::automatic(maker)
        }
    }

    /// One before an agent does something.
    pub fn before(call: AgentCall) -> Self {
        Self {
            pool: match call.kind {
                AgentEventKind::Prompt => CheckpointOrigin::Prompt,
                AgentEventKind::Command | AgentEventKind::Edit => CheckpointOrigin::Command,
            },
            call: Some(call),
            ..Self::automatic(Maker::Hook)
        }
    }
}

/// A revert that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RevertPath {
    /// Which entry.
    pub path: EntryPath,
    /// From which checkpoint; else the newest one that holds the entry and differs.
    pub checkpoint: Option<CheckpointRef>,
    /// Whether what takes it back is let go at once.
    pub no_undo: bool,
    /// The digest of the plan that was shown.
    pub confirm: Option<String>,
    /// Whether it is done.
    pub run: RunMode,
}

/// A restore of the whole workspace that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestoreWorkspace {
    /// From which checkpoint.
    pub checkpoint: CheckpointRef,
    /// Entries that are left as they are, with everything in them.
    pub except: Vec<EntryPath>,
    /// Whether what takes it back is let go at once.
    pub no_undo: bool,
    /// Whether whoever asks has agreed that commits leave the branch of a Git repository.
    pub agreed: bool,
    /// The digest of the plan that was shown.
    pub confirm: Option<String>,
    /// Whether it is done.
    pub run: RunMode,
}

/// A compaction that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompactCheckpoints {
    /// The checkpoints that become one; at least two.
    pub checkpoints: Vec<CheckpointRef>,
    /// What that will be called.
    pub name: Option<CheckpointName>,
    /// Whether it is done.
    pub run: RunMode,
}

/// Forks that are asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForkWorkspace {
    /// From which checkpoint; else from a new one, of the workspace as it is now.
    pub from: Option<CheckpointRef>,
    /// What it is called; with several, `-1`, `-2`, … are put behind it. Else `fork-1`, `fork-2`, …
    pub name: Option<ForkName>,
    /// Where it goes.
    pub place: ForkPlace,
    /// How many.
    pub count: u32,
    /// Whether it is done.
    pub run: RunMode,
}

/// Where forks go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ForkPlace {
    /// Beside the workspace, under its name with that of the fork behind it.
    Beside,
    /// To this path; with several, `-1`, `-2`, … are put behind it.
    At(PathBuf),
    /// Into this directory, under their own names.
    In(PathBuf),
}

/// A promotion that is asked for: the workspace becomes what a fork is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PromoteFork {
    /// Which fork.
    pub fork: ForkName,
    /// Entries that are left as they are, with everything in them.
    pub except: Vec<EntryPath>,
    /// Whether what changed in the workspace since the fork was made is left as it is.
    pub keep_own: bool,
    /// Whether whoever asks has agreed that such changes are overwritten, and that commits leave their branches.
    pub agreed: bool,
    /// The digest of the plan that was shown.
    pub confirm: Option<String>,
    /// Whether it is done.
    pub run: RunMode,
}

/// A removal of a fork that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoveFork {
    /// Which fork.
    pub fork: ForkName,
    /// Whether work goes that is nowhere else.
    pub discard: bool,
    /// The digest of the plan that was shown: whoever gives it has seen what goes.
    pub confirm: Option<String>,
    /// Whether it is done.
    pub run: RunMode,
}

/// A plain directory that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MaterializeCheckpoint {
    /// Of which checkpoint.
    pub checkpoint: CheckpointRef,
    /// The new directory.
    pub directory: PathBuf,
    /// Whether it is done.
    pub run: RunMode,
}

/// An undo that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UndoChange {
    /// `u-4`; else the last one.
    pub which: Option<u32>,
    /// Entries that are left as they are, with everything in them.
    pub except: Vec<EntryPath>,
    /// Whether whoever asks has agreed that commits leave the branch of a Git repository.
    pub agreed: bool,
    /// The digest of the plan that was shown.
    pub confirm: Option<String>,
    /// Whether it is done.
    pub run: RunMode,
}
