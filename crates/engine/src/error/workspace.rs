//! What can go wrong with a workspace, and with nothing else.

use crate::error_kind::{
    ErrorKind, chunk as chunk_kind, clone as clone_kind, io_kind, place as place_kind,
    walk as walk_kind,
};
use stasis_disk::form::slots::SlotError;
use stasis_disk::session_db::SessionDbError;
use stasis_disk::tree::walk::WalkError;
use stasis_disk::watch::MonitorError;
use stasis_model::failure::Failure;
use stasis_model::invalid::Invalid;
use stasis_model::tree::EntryPath;
use stasis_model::workspace::{CheckpointRef, ForkName, NoSlot, Slot};
use std::path::PathBuf;

/// Why something was not done to a workspace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// Nobody made it known.
    #[error("{} is not inside a workspace", .directory.display())]
    NotAWorkspace {
        /// Which directory.
        directory: PathBuf,
        /// Sessions of workspaces that it may have been, the likeliest first.
        lost: Vec<LostWorkspace>,
    },
    /// It cannot be one.
    #[error("`{}` cannot be a workspace: {why}", .directory.display())]
    Refused {
        /// Which directory.
        directory: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// A session directory belongs to another workspace.
    #[error("`{}` is the session directory of `{}`", .session.display(), .other.display())]
    OtherSession {
        /// Which.
        session: PathBuf,
        /// Whose.
        other: PathBuf,
    },
    /// The configuration cannot be used.
    #[error("`{}` cannot be used: {detail}", .path.display())]
    Config {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and where.
        detail: String,
    },
    /// It is no name.
    #[error(transparent)]
    BadReference(#[from] Invalid),
    /// It is no path in the workspace.
    #[error("`{path}` is not a path in the workspace: {why}")]
    BadPath {
        /// What was said.
        path: String,
        /// Why not.
        why: String,
    },
    /// There is none.
    #[error("there is no checkpoint `{0}`")]
    NoCheckpoint(CheckpointRef),
    /// There are none at all.
    #[error("there are no checkpoints yet")]
    NoCheckpoints,
    /// No agent's prompt is recorded.
    #[error("no prompt of an agent is recorded in this workspace; {0}")]
    NoPrompts(String),
    /// The last one has no checkpoint.
    #[error(
        "the last prompt, {when}, has no checkpoint ({why}): nothing can go back to just before it"
    )]
    PromptMissed {
        /// How long ago it was.
        when: String,
        /// Why there is none.
        why: String,
    },
    /// There are not that many.
    #[error("only {known} prompts are recorded in this workspace, not {wanted}")]
    FewPrompts {
        /// How many prompts to go back.
        wanted: u32,
        /// How many can be gone back to.
        known: usize,
    },
    /// There is no slot for it.
    #[error(transparent)]
    NoSlot(#[from] NoSlot),
    /// Automatic checkpoints have no names.
    #[error("an automatic checkpoint has no name")]
    NamedAuto,
    /// Something with a slot.
    #[error(transparent)]
    Slots(Box<SlotError>),
    /// The entry is nowhere.
    #[error("`{0}` is neither in the workspace nor in any checkpoint")]
    NoSuchEntry(EntryPath),
    /// The entry is not in the checkpoint that was named.
    #[error("`{path}` is neither in the workspace nor in {checkpoint}")]
    NotInCheckpoint {
        /// Which entry.
        path: EntryPath,
        /// Which checkpoint.
        checkpoint: String,
    },
    /// It may not be read, so that no undo could bring it back.
    #[error("`{0}` may not be read, and would be lost: no undo could bring it back")]
    Unreadable(EntryPath),
    /// It is in no checkpoint, so that no undo could bring it back.
    #[error(
        "`{0}` is excluded from checkpoints, and would be changed or lost: no undo could bring it back"
    )]
    Excluded(EntryPath),
    /// No checkpoint would make a difference.
    #[error("no checkpoint holds `{0}` other than it is now")]
    NothingDiffers(EntryPath),
    /// A model must have seen what it does.
    #[error(
        "this would delete {deletes} files, more than {most}: it needs the digest of its dry run"
    )]
    NeedsConfirmation {
        /// How many files go.
        deletes: u64,
        /// How many may go without.
        most: u64,
    },
    /// Commits would leave a branch, or an agent would move it.
    #[error(
        "this would move {moves} of the Git repository, and {}",
        leaving(*.commits)
    )]
    MovesGit {
        /// What moves.
        moves: String,
        /// How many commits leave; nothing where nobody can tell.
        commits: Option<u64>,
    },
    /// What would be done now is not what was shown.
    #[error(
        "what would be done now is not what was shown: the workspace or the fork changed meanwhile, or the digest is another one"
    )]
    PlanChanged,
    /// A model deletes only what it made.
    #[error("the checkpoint {0} was not made through this tool, so that only a person deletes it")]
    NotYours(Slot),
    /// A model has made as many as there may be.
    #[error("there are {max} undo checkpoints, as many as there may be")]
    UndosFull {
        /// How many there may be.
        max: usize,
    },
    /// There is nothing to take back.
    #[error("there is nothing to undo")]
    NothingToUndo,
    /// That one is not there.
    #[error("there is no undo checkpoint `u-{0}`")]
    NoUndo(u32),
    /// One is already one.
    #[error("compacting takes at least two checkpoints")]
    TooFew,
    /// Somebody is at it.
    #[error("the workspace is busy: {0}")]
    Busy(String),
    /// Somebody watches already.
    #[error("the workspace is watched already: {0}")]
    Watched(String),
    /// It could not be locked.
    #[error(transparent)]
    Lock(Failure),
    /// Somebody is at it, and there is no room to wait.
    #[error("`{}` is held: {holder}", .path.display())]
    Held {
        /// The lock.
        path: PathBuf,
        /// What its holder wrote.
        holder: String,
    },
    /// The watch on the tree.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// The database of the session.
    #[error(transparent)]
    SessionDb(#[from] SessionDbError),
    /// The live tree could not be read.
    #[error("could not read the workspace")]
    Walk(#[from] WalkError),
    /// The disk is full, or as good as full. Nothing was changed.
    #[error(transparent)]
    NoRoom(Box<NoRoom>),
    /// No fork has that name.
    #[error("there is no fork `{name}` of {}", .workspace.display())]
    NoFork {
        /// What was said.
        name: ForkName,
        /// Of which workspace.
        workspace: PathBuf,
        /// The workspace that this one is itself a fork of.
        parent: Option<PathBuf>,
    },
    /// A fork has that name.
    #[error("there is a fork `{0}` already")]
    ForkTaken(ForkName),
    /// Nothing is left of its directory.
    #[error("the fork `{name}` is gone: it was at {}", .directory.display())]
    ForkGone {
        /// Which.
        name: ForkName,
        /// Where it was.
        directory: PathBuf,
    },
    /// Another directory lies at its path.
    #[error("{} is not the fork `{name}` any more: another directory lies there, and was left alone", .directory.display())]
    ForkReplaced {
        /// Which.
        name: ForkName,
        /// Where it was.
        directory: PathBuf,
    },
    /// Work would be lost.
    #[error("the fork `{name}` has work that is nowhere else: {}", work(*.files, *.commits, .paths))]
    ForkHasWork {
        /// Which.
        name: ForkName,
        /// How many files and links.
        files: u64,
        /// How many commits; nothing where nobody can tell.
        commits: Option<u64>,
        /// The first of the files.
        paths: Vec<String>,
    },
    /// What nobody looked into would be lost.
    #[error(
        "the fork `{name}` has what may be nowhere else: {checkpoints} checkpoints of its own, excluded from checkpoints: {}",
        if .excluded.is_empty() { "nothing".to_owned() } else { .excluded.join(", ") }
    )]
    ForkHasMore {
        /// Which.
        name: ForkName,
        /// How many checkpoints were made of it.
        checkpoints: u64,
        /// What is in it and in no checkpoint; the first of those.
        excluded: Vec<String>,
    },
    /// What changed in the workspace would be overwritten.
    #[error(
        "promoting `{name}` would overwrite what changed in the workspace since it was forked: {}",
        named(*.count, .paths)
    )]
    OverwritesWork {
        /// Which.
        name: ForkName,
        /// How many entries.
        count: u64,
        /// The first of them.
        paths: Vec<String>,
    },
    /// Its forks go first.
    #[error("the fork `{name}` has forks of its own: {}", .forks.join(", "))]
    ForkHasForks {
        /// Which.
        name: ForkName,
        /// Those.
        forks: Vec<String>,
    },
    /// A watch runs in it.
    #[error("the fork `{name}` is watched: {holder}")]
    ForkWatched {
        /// Which.
        name: ForkName,
        /// By whom.
        holder: String,
    },
    /// A model removes only what it made.
    #[error("the fork `{0}` was not made through this tool, so that only a person removes it")]
    ForkNotYours(ForkName),
    /// Agents have made as many as there may be.
    #[error("agents have {} forks of this workspace, and there may be {max}", .forks.len())]
    ForksFull {
        /// How many there may be.
        max: usize,
        /// Those there are.
        forks: Vec<String>,
    },
    /// Checkpoints and forks would hold too much.
    #[error("checkpoints and forks would hold {needs} bytes together, and the budget is {budget}")]
    ForksOverBudget {
        /// How much that would be.
        needs: u64,
        /// How much it may be.
        budget: u64,
        /// The forks that there are, each with what it takes, the largest first.
        forks: Vec<(String, u64)>,
    },
    /// There is nothing to read the contents of a fork's checkpoint from.
    #[error(
        "{checkpoint}, which the fork `{name}` was made from, is gone: what differs is known, the contents are not"
    )]
    ForkBaseGone {
        /// Which.
        name: ForkName,
        /// The checkpoint.
        checkpoint: String,
    },
    /// A fork cannot be there.
    #[error("`{}` cannot be made: {why}", .directory.display())]
    BadFork {
        /// Which.
        directory: PathBuf,
        /// Why.
        why: String,
    },
}

/// A workspace that is not at its path any more, and whose checkpoints are.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LostWorkspace {
    /// Where it was.
    pub workspace: PathBuf,
    /// Where its checkpoints are.
    pub session: PathBuf,
    /// Where the very directory was found, while another one lies at its path.
    pub found: Option<PathBuf>,
    /// The only directory around the one that was asked about that has its name.
    pub named: Option<PathBuf>,
}

/// Entries that are lost: how many, and the first of them.
fn named(count: u64, paths: &[String]) -> String {
    let more = count.saturating_sub(paths.len() as u64);
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", paths.join(", "))
}

/// What is nowhere but in a fork.
fn work(files: u64, commits: Option<u64>, paths: &[String]) -> String {
    let files = (files > 0).then(|| named(files, paths));
    let commits = match commits {
        Some(0) => None,
        Some(1) => Some("1 commit".to_owned()),
        Some(count) => Some(format!("{count} commits")),
        None => Some("which commits of it are only there is not known".to_owned()),
    };
    let all: Vec<String> = files.into_iter().chain(commits).collect();
    all.join("; ")
}

/// How many commits would leave.
fn leaving(commits: Option<u64>) -> String {
    match commits {
        Some(0) => "no commit would leave its branch".to_owned(),
        Some(1) => "1 commit would leave its branch".to_owned(),
        Some(count) => format!("{count} commits would leave their branches"),
        None => "it is not known which commits would leave their branches".to_owned(),
    }
}

/// What there was no room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names say what they mean")]
pub enum RoomUse {
    Checkpoint,
    Revert,
    Restore,
    Undo,
    Promotion,
}

impl std::fmt::Display for RoomUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Checkpoint => "a checkpoint",
            Self::Revert => "the revert",
            Self::Restore => "the restore",
            Self::Undo => "the undo",
            Self::Promotion => "the promotion",
        })
    }
}

/// What something needs that there is no room for, and what could be let go.
#[derive(Debug, thiserror::Error)]
#[error(
    "there is no room for {what}: it needs up to {need_bytes} bytes where `{}` is, and {free_bytes} are free",
    .path.display()
)]
pub struct NoRoom {
    /// What was to be made.
    pub what: RoomUse,
    /// Where it needs room.
    pub path: PathBuf,
    /// How much, at most.
    pub need_bytes: u64,
    /// How much there is.
    pub free_bytes: u64,
    /// What each checkpoint would free, the most first.
    pub checkpoints: Vec<Freeable>,
    /// What `undo --forget` would free.
    pub undo_bytes: u64,
    /// What the system said; nothing where it was not asked.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// A checkpoint that could be let go.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, schemars::JsonSchema)]
#[non_exhaustive]
pub struct Freeable {
    /// `cp-3`
    pub checkpoint: String,
    /// What it is called, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it would free.
    pub bytes: u64,
}

impl From<SlotError> for WorkspaceError {
    fn from(error: SlotError) -> Self {
        Self::Slots(Box::new(error))
    }
}

impl WorkspaceError {
    /// What the caller must do.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::NotAWorkspace { .. }
            | Self::NoCheckpoint(_)
            | Self::NoCheckpoints
            | Self::NoPrompts(_)
            | Self::PromptMissed { .. }
            | Self::FewPrompts { .. }
            | Self::NoSuchEntry(_)
            | Self::NotInCheckpoint { .. }
            | Self::NothingDiffers(_)
            | Self::NothingToUndo
            | Self::NoFork { .. }
            | Self::ForkGone { .. }
            | Self::ForkBaseGone { .. }
            | Self::NoUndo(_) => ErrorKind::NotFound,
            Self::NoSlot(_)
            | Self::UndosFull { .. }
            | Self::ForksFull { .. }
            | Self::ForksOverBudget { .. }
            | Self::NoRoom(_) => ErrorKind::Limit,
            Self::Busy(_) | Self::Watched(_) | Self::Held { .. } | Self::ForkWatched { .. } => {
                ErrorKind::Conflict
            }
            Self::NeedsConfirmation { .. }
            | Self::MovesGit { .. }
            | Self::NotYours(_)
            | Self::ForkReplaced { .. }
            | Self::ForkHasWork { .. }
            | Self::ForkHasMore { .. }
            | Self::OverwritesWork { .. }
            | Self::ForkHasForks { .. }
            | Self::ForkNotYours(_)
            | Self::Unreadable(_) => ErrorKind::Denied,
            Self::PlanChanged => ErrorKind::Retry,
            Self::Slots(error) => slots(error),
            Self::Walk(error) => walk_kind(error),
            Self::Lock(failure) => failure.kind(),
            Self::SessionDb(error) => session_db(error),
            Self::Monitor(error) => monitor(error),
            _ => ErrorKind::Invalid,
        }
    }
}

fn slots(error: &SlotError) -> ErrorKind {
    match error {
        SlotError::OverBudget(_) => ErrorKind::Limit,
        SlotError::Clone { source, .. } => clone_kind(source),
        SlotError::Walk(error) | SlotError::Checkpoint(error) => walk_kind(error),
        SlotError::Empty(_) => ErrorKind::NotFound,
        SlotError::Replaced(_) => ErrorKind::Retry,
        SlotError::Unreadable { .. } | SlotError::Document(_) => ErrorKind::Corrupt,
        SlotError::Pack(error)
        | SlotError::Unpack(error)
        | SlotError::Chunks(error)
        | SlotError::Damaged { source: error, .. } => chunk_kind(error),
        SlotError::Place(error) => place_kind(error),
        SlotError::Cancelled => ErrorKind::Cancelled,
        SlotError::Failed(failure) => failure.kind(),
        _ => ErrorKind::Invalid,
    }
}

fn session_db(error: &SessionDbError) -> ErrorKind {
    match error {
        SessionDbError::Full { source, .. } => io_kind(source),
        SessionDbError::Failed(failure) => failure.kind(),
        SessionDbError::Newer { .. } => ErrorKind::Limit,
        _ => ErrorKind::Corrupt,
    }
}

fn monitor(error: &MonitorError) -> ErrorKind {
    match error {
        MonitorError::Failed(failure) => failure.kind(),
        MonitorError::RootGone { .. } => ErrorKind::NotFound,
        MonitorError::TooMany { .. } => ErrorKind::Limit,
        _ => ErrorKind::Invalid,
    }
}
