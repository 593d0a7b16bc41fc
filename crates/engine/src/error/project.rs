//! What can go wrong with a project, and with nothing else.

use crate::error_kind::ErrorKind;
use crate::result::{ProjectSnapshot, ServiceHookRun, reason_word};
use stasis_disk::tree::staging_view::StagingViewError;
use stasis_model::failure::{Failure, Kinded};
use stasis_model::id::{ProjectId, SnapshotId, VolumeName};
use stasis_model::invalid::Invalid;
use stasis_quiesce::postgres::PostgresError;
use stasis_quiesce::service::ServiceError;
use stasis_quiesce::sqlite::SqliteError;
use std::path::PathBuf;

/// Why a project was not saved, restored, started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectError {
    /// It is not what one writes in such a file.
    #[error("`{}` cannot be read: {detail}", .path.display())]
    NotToml {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and where.
        detail: String,
    },
    /// It does not fit together.
    #[error("`{}` cannot be used", .path.display())]
    Config {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Invalid,
    },
    /// There is no file.
    #[error("`{}` has no stasis.toml: it is a plain directory", .0.display())]
    Plain(PathBuf),
    /// There is no state.
    #[error("project `{project}` has no state in `{}`", .path.display())]
    NoState {
        /// Which project.
        project: ProjectId,
        /// Where it should be.
        path: PathBuf,
    },
    /// Somebody is at it.
    #[error("save_in_progress: project `{project}` is busy: {holder}")]
    InProgress {
        /// Which project.
        project: ProjectId,
        /// Who, doing what, since when.
        holder: String,
    },
    /// A database could not be copied.
    #[error("volume `{volume}` could not be captured")]
    Sqlite {
        /// Which volume.
        volume: VolumeName,
        /// Why.
        #[source]
        source: Box<SqliteError>,
    },
    /// A server could not be dumped or restored.
    #[error("the database of volume `{volume}` could not be captured or restored")]
    Postgres {
        /// Which volume.
        volume: VolumeName,
        /// Why.
        #[source]
        source: Box<PostgresError>,
    },
    /// A server keeps its data where they would be moved away.
    #[error("volume `{volume}` is a Postgres server, and `{}` is not empty: what is in it is not saved", .directory.display())]
    ServerData {
        /// Which volume.
        volume: VolumeName,
        /// Its directory.
        directory: PathBuf,
    },
    /// Something is mounted where a restore moves things.
    #[error("something is mounted in `{}`: a restore would move it away", .0.display())]
    Mounted(PathBuf),
    /// The state directory is empty, and the application lies beside it.
    #[error(
        "nothing is in `{}`, and {beside} entries of `{}` lie outside it: the layout `state` does not save those",
        .state.display(), .dir.display()
    )]
    NothingInState {
        /// What would be saved.
        state: PathBuf,
        /// The directory of the project.
        dir: PathBuf,
        /// How many entries it has besides.
        beside: usize,
    },
    /// The directory was saved as it lies, and another layout would hide that.
    #[error(
        "`{}` was saved as it lies (snapshots: {snapshots}); the layout `state` begins a history of its own, and nothing would show that one any more",
        .dir.display()
    )]
    HidesHistory {
        /// The directory.
        dir: PathBuf,
        /// How many.
        snapshots: usize,
    },
    /// There is none.
    #[error("`{project}` has no snapshot `{wanted}`")]
    NoSnapshot {
        /// Which project, or `session:TENANT/SESSION`.
        project: String,
        /// What was asked for.
        wanted: String,
    },
    /// There are snapshots, and no save that a user asked for is among them.
    #[error(
        "`{project}` has no `latest`: it was never saved explicitly. It has {}", listed(.snapshots)
    )]
    NoLatest {
        /// Which project, or `session:TENANT/SESSION`.
        project: String,
        /// What there is, the newest first.
        snapshots: Vec<ProjectSnapshot>,
    },
    /// There is no such volume.
    #[error("snapshot `{snapshot}` of `{project}` has no volume `{volume}`")]
    NoVolume {
        /// Which project.
        project: ProjectId,
        /// Which snapshot.
        snapshot: SnapshotId,
        /// What was asked for.
        volume: VolumeName,
    },
    /// What it says would be true of two projects.
    #[error("`{project}` cannot be duplicated: {why}")]
    NotDuplicable {
        /// Which project.
        project: ProjectId,
        /// What both would use.
        why: String,
    },
    /// Somebody asked us to stop.
    #[error("interrupted; nothing was changed")]
    Cancelled,
    /// It is not the address of a server.
    #[error("the URL of volume `{volume}` is not one of a Postgres server")]
    Url {
        /// Which volume.
        volume: VolumeName,
        /// Why.
        #[source]
        source: Invalid,
    },
    /// A restore came to no end.
    #[error(
        "a restore of `{project}` to snapshot `{snapshot}` was interrupted: files may be of one state and databases of another"
    )]
    HalfRestored {
        /// Which project.
        project: ProjectId,
        /// To which snapshot.
        snapshot: String,
    },
    /// What a program wanted to be run failed.
    #[error(
        "the {} hook of service `{}` {}{}", hook_word(.0), .0.service, .0.ending, complaint(&.0.stderr)
    )]
    Hook(Box<ServiceHookRun>),
    /// A program did not start.
    #[error(transparent)]
    Start(ServiceError),
    /// A program did not stop.
    #[error(transparent)]
    Stop(ServiceError),
    /// A program is not well.
    #[error(transparent)]
    Unhealthy(ServiceError),
    /// Programs could not be paused.
    #[error("the programs that write `{}` could not be paused", joined(.0))]
    Pause(Vec<VolumeName>, #[source] ServiceError),
    /// They did not stand still for the whole time.
    #[error("the programs that write `{}` did not stand still while it was cloned ({}): nothing was kept", joined(.volumes), .why)]
    PauseBroken {
        /// Which volumes.
        volumes: Vec<VolumeName>,
        /// What happened.
        why: String,
    },
    /// A variable that the project's file names is not set.
    #[error("volume `{volume}` takes its URL from the variable `{variable}`, which is not set")]
    NoVariable {
        /// Which volume.
        volume: VolumeName,
        /// Which variable.
        variable: String,
    },
    /// What was restored is damaged.
    #[error("databases in snapshot `{snapshot}` are damaged: {}", databases.join(", "))]
    Integrity {
        /// Which snapshot.
        snapshot: SnapshotId,
        /// Which databases, a few of them.
        databases: Vec<String>,
    },
    /// There is a file already.
    #[error("`{}` is there already", .0.display())]
    Exists(PathBuf),
    /// There is no place for the capture.
    #[error("there is no place for the capture")]
    Place(#[from] StagingViewError),
    /// It could not be found out whether somebody is at it.
    #[error(transparent)]
    Lock(Failure),
}

impl ProjectError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoState { .. }
            | Self::NoSnapshot { .. }
            | Self::NoLatest { .. }
            | Self::NoVolume { .. } => ErrorKind::NotFound,
            Self::NothingInState { .. } | Self::HidesHistory { .. } => ErrorKind::Limit,
            Self::Cancelled => ErrorKind::Cancelled,
            Self::Lock(failure) => failure.kind(),
            Self::InProgress { .. } => ErrorKind::Conflict,
            Self::Sqlite { source, .. } => sqlite(source),
            Self::NotToml { .. }
            | Self::Config { .. }
            | Self::Plain(_)
            | Self::Exists(_)
            | Self::NotDuplicable { .. }
            | Self::ServerData { .. }
            | Self::Mounted(_)
            | Self::Url { .. }
            | Self::NoVariable { .. } => ErrorKind::Invalid,
            Self::Hook(_) | Self::Start(_) | Self::Stop(_) | Self::Unhealthy(_) => {
                ErrorKind::Failed
            }
            Self::Pause(..) | Self::PauseBroken { .. } => ErrorKind::Retry,
            Self::Integrity { .. } | Self::HalfRestored { .. } => ErrorKind::Corrupt,
            Self::Postgres { source, .. } => postgres(source),
            Self::Place(error) => error.kind(),
        }
    }
}

fn sqlite(error: &SqliteError) -> ErrorKind {
    match error {
        SqliteError::NotAFile { source, .. } => crate::error_kind::io_kind(source),
        SqliteError::Failed(failure) => failure.kind(),
        SqliteError::Busy { .. } | SqliteError::SchemaChanging { .. } => ErrorKind::Retry,
        SqliteError::NotADatabase { .. } | SqliteError::Damaged { .. } => ErrorKind::Corrupt,
        SqliteError::Cancelled { .. } => ErrorKind::Cancelled,
        _ => ErrorKind::Bug,
    }
}

fn hook_word(run: &ServiceHookRun) -> String {
    format!("{:?}", run.moment)
}

/// The last line of what a command complained about.
fn complaint(stderr: &str) -> String {
    let last = stderr.trim().lines().next_back().unwrap_or_default();
    if last.is_empty() {
        String::new()
    } else {
        format!(": {last}")
    }
}

/// How many snapshots an error names.
const LISTED: usize = 5;

/// Snapshots in one line: what a user may ask for instead.
fn listed(snapshots: &[ProjectSnapshot]) -> String {
    let one = |one: &ProjectSnapshot| {
        let reason = reason_word(one.reason);
        format!("{} ({reason}, {})", one.snapshot_id, one.timestamp)
    };
    let named: Vec<String> = snapshots.iter().take(LISTED).map(one).collect();
    let more = match snapshots.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    named.join(", ") + &more
}

fn joined(names: &[VolumeName]) -> String {
    let names: Vec<&str> = names.iter().map(VolumeName::as_str).collect();
    names.join("`, `")
}

fn postgres(error: &PostgresError) -> ErrorKind {
    match error {
        PostgresError::Slow { .. } => ErrorKind::Retry,
        PostgresError::Unreachable { .. } => ErrorKind::Unreachable,
        PostgresError::Failed(failure) => failure.kind(),
        PostgresError::SwapUnknown { .. } => ErrorKind::Unknown,
        PostgresError::ServerNewer { .. } => ErrorKind::Invalid,
        _ => ErrorKind::Failed,
    }
}
