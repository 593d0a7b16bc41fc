//! Every error → words, hint, exit code.

mod encryption;
mod profile;
mod project;
mod repository;
mod workspace;

use crate::cli::color;
use crate::cli::envelope::{self, ERROR};
use crate::cli::output::{OutputLost, printable};
use crate::cli::suggestion::completed;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use stasis_engine::archive::{ArchiveError, Problem, RestoreError};
use stasis_engine::clone::CloneError;
use stasis_engine::error::{
    BucketError, BucketErrorKind, Error, ErrorKind, LineageError, ReadError,
};
use stasis_engine::lease::LockTimes;
use stasis_engine::model::failure::Failure;
use stasis_engine::model::format::lease::Lock;
use stasis_engine::model::protocol::operation::OperationKind;
use stasis_engine::model::protocol::step::Refusal;
use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::io::Write;
use std::process::ExitCode;

/// What a command ended with. The numbers are a promise to scripts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    NotFound = 3,
    Held = 4,
    LockLost = 5,
    Diverged = 6,
    Unreachable = 7,
    Denied = 8,
    Corrupt = 9,
    Unknown = 10,
    Limit = 11,
    Fresh = 12,
    /// Done, but something that a user could expect is missing.
    Incomplete = 13,
    Cancelled = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The exit code that an error deserves.
pub(crate) fn exit_code(error: &anyhow::Error) -> Exit {
    if error.downcast_ref::<OutputLost>().is_some() {
        return Exit::Failed;
    }
    let kind = error.downcast_ref::<Error>().map(Error::kind);
    kind.map_or(Exit::Usage, exit_of)
}

/// Content that was written to standard output: whoever closes it has read enough, and nothing failed. Not so for a result: that
/// nobody read it must not pass for the exit code that it would have had.
pub(crate) fn or_read_enough(written: anyhow::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if is_closed(error.downcast_ref()) => Ok(()),
        written => written,
    }
}

fn is_closed(lost: Option<&OutputLost>) -> bool {
    lost.is_some_and(|lost| lost.0.kind() == std::io::ErrorKind::BrokenPipe)
}

/// The exit code of one kind of error.
pub(crate) fn exit_of(kind: ErrorKind) -> Exit {
    match kind {
        ErrorKind::Invalid => Exit::Usage,
        ErrorKind::Unknown => Exit::Unknown,
        ErrorKind::Conflict => Exit::Held,
        ErrorKind::Fenced => Exit::LockLost,
        ErrorKind::Diverged => Exit::Diverged,
        ErrorKind::NotFound => Exit::NotFound,
        ErrorKind::Unreachable => Exit::Unreachable,
        ErrorKind::Denied => Exit::Denied,
        ErrorKind::Corrupt => Exit::Corrupt,
        ErrorKind::Limit => Exit::Limit,
        ErrorKind::Cancelled => Exit::Cancelled,
        _ => Exit::Failed,
    }
}

/// Tells the person, or the program, what went wrong and what to do now.
pub(crate) fn print(error: &anyhow::Error, as_json: bool) -> Exit {
    let exit = exit_code(error);
    if is_closed(error.downcast_ref()) {
        // Whoever was reading has seen enough.
        return exit;
    }
    // Part of it may have come from a document or a server: nothing of that may move a terminal's cursor.
    let causes: Vec<String> = error
        .chain()
        .map(|cause| completed(&printable(&cause.to_string())))
        .collect();
    let hint = error.downcast_ref::<Error>().and_then(hint);
    let hint = hint.map(|hint| completed(&hint));
    if as_json {
        let document = ErrorDocument {
            error: ReportedError::of(error, &causes, hint, exit),
        };
        // One whose text cannot be written is none that anybody could read.
        if let Ok(document) = envelope::document(ERROR, &document) {
            let _ = writeln!(std::io::stdout(), "{document}");
        }
    } else {
        let mut talk = std::io::stderr().lock();
        let said = format!("error: {}", causes.join("\n  because: "));
        let _ = writeln!(talk, "{}", color::talk(said));
        if let Some(lock) = holder(error) {
            let _ = writeln!(talk, "{}", holder_lines(lock));
        }
        if let Some(hint) = hint {
            let _ = writeln!(talk, "{}", color::talk(format!("hint: {hint}")));
        }
    }
    exit
}

/// What is printed instead of a result.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ErrorDocument {
    error: ReportedError,
}

/// What went wrong, and what to do now.
#[derive(Serialize, JsonSchema)]
struct ReportedError {
    /// What the caller must do, in a word.
    kind: String,
    /// The exit code of the process; a command that is run under a lease or a browser has 100 more.
    exit_code: u8,
    message: String,
    /// Why, from the nearest cause to the farthest.
    causes: Vec<String>,
    /// What to do now.
    hint: Option<String>,
    /// What there is to know of this error besides, each under its own name: `holder`, `op_id`, `checkpoint`, `free_bytes`, ….
    #[serde(flatten)]
    more: BTreeMap<String, Value>,
}

impl ReportedError {
    fn of(error: &anyhow::Error, causes: &[String], hint: Option<String>, exit: Exit) -> Self {
        let kind = error
            .downcast_ref::<Error>()
            .map_or(ErrorKind::Invalid, Error::kind);
        Self {
            kind: kind_word(kind),
            exit_code: exit as u8,
            message: causes.first().cloned().unwrap_or_default(),
            causes: causes.iter().skip(1).cloned().collect(),
            hint,
            more: fields(error),
        }
    }
}

/// What only some errors have.
pub(crate) fn fields(error: &anyhow::Error) -> BTreeMap<String, Value> {
    let mut fields = BTreeMap::new();
    if let Some(lock) = holder(error) {
        let mut holder = json!(lock);
        if let (Value::Object(holder), Value::Object(times)) =
            (&mut holder, json!(LockTimes::from(lock)))
        {
            holder.extend(times);
        }
        fields.insert("holder".to_owned(), holder);
    }
    if let Some(LineageError::Unknown(record)) = lineage_error(error) {
        fields.insert("op_id".to_owned(), json!(record.op_id));
    }
    if let Some(Error::UnknownChange(record)) = error.downcast_ref::<Error>() {
        fields.insert("op_id".to_owned(), json!(record.op_id));
    }
    let of_workspace = workspace::fields(error).into_iter();
    fields.extend(of_workspace.map(|(name, value)| (name.to_owned(), value)));
    fields
}

fn lineage_error(error: &anyhow::Error) -> Option<&LineageError> {
    match error.downcast_ref::<Error>()? {
        Error::Lineage(error) => Some(error),
        _ => None,
    }
}

/// The lock that stood in the way.
fn holder(error: &anyhow::Error) -> Option<&Lock> {
    match lineage_error(error)? {
        LineageError::Refused {
            refusal: Refusal::Held(lock),
            ..
        } => Some(lock),
        _ => None,
    }
}

/// A lock's holder for people.
pub(crate) fn holder_lines(lock: &Lock) -> String {
    let renewed = format!("{} ({} times)", lock.renewed_at, lock.renewal_count);
    let lines = [
        ("holder_run_id", lock.holder.run_id.to_string()),
        ("holder_host", lock.holder.host.to_string()),
        ("holder_host_run_id", lock.holder.host_run_id.to_string()),
        ("acquired at", lock.acquired_at.to_string()),
        ("renewed at", renewed),
        ("expires at", lock.expires_at.to_string()),
        ("epoch", lock.epoch.to_string()),
        ("reason", lock.reason.to_string()),
    ];
    let present = lines.iter().filter(|(_, value)| !value.is_empty());
    let present: Vec<String> = present
        .map(|(name, value)| format!("  {name}: {value}"))
        .collect();
    present.join("\n")
}

/// The word for what the caller must do.
pub(crate) fn kind_word(kind: ErrorKind) -> String {
    format!("{kind:?}").to_lowercase()
}

/// What to do now: as the failure itself says, else as it is said here of the error.
pub(crate) fn hint(error: &Error) -> Option<String> {
    if let Some(hint) = repository::hint(error) {
        return Some(hint);
    }
    match error {
        Error::Lineage(error) => lineage_hint(error),
        Error::Failed(failure) => failure_hint(failure),
        Error::Read(source) => read_hint(source),
        Error::Bucket(error) => bucket_hint(error.kind),
        Error::Clone(error) => clone_hint(error),
        Error::Archive(error) => archive_hint(error),
        Error::Encryption(error) => encryption::hint(error),
        Error::Profile(error) => profile::hint(error),
        Error::Project(error) => project::hint(error),
        Error::Workspace(inner) => workspace::hint(inner, error.kind()),
        Error::UnfitPolicy { tenant, .. } => Some(format!(
            "look at it with `stasis tenant policy show {tenant}`, mend it with `policy set`"
        )),
        _ => {
            let source = StdError::source(error)?;
            let bucket = || source.downcast_ref::<BucketError>();
            let read = source.downcast_ref().and_then(read_hint);
            read.or_else(|| bucket_hint(bucket()?.kind))
        }
    }
}

/// What a failure says itself, else what helps against its cause.
fn failure_hint(failure: &Failure) -> Option<String> {
    if let Some(hint) = failure.hint() {
        return Some(hint.to_owned());
    }
    let bucket = || failure.cause::<BucketError>().map(|error| error.kind);
    let read = failure.cause().and_then(read_hint);
    read.or_else(|| bucket().and_then(bucket_hint))
}

fn clone_hint(error: &CloneError) -> Option<String> {
    let text = match error {
        CloneError::CannotShare { .. } => {
            "clone within one filesystem that can share (xfs, btrfs), or allow a copy with --fallback copy"
        }
        CloneError::Exists(_) => "choose another name, or move away what is there",
        CloneError::Overlap { .. } => "choose a place beside the source",
        _ => return None,
    };
    Some(text.to_owned())
}

fn archive_hint(error: &ArchiveError) -> Option<String> {
    let text = match error {
        ArchiveError::Refused { problem, .. } if problem.is_a_limit() => {
            "if you trust the archive, allow more with --max-bytes"
        }
        ArchiveError::Refused {
            problem: Problem::Sparse,
            ..
        } => "archive it again without --sparse, or with --format=posix",
        ArchiveError::Refused { .. } | ArchiveError::Write(_) => {
            "nothing was extracted; use another copy of the archive, or make it anew"
        }
        ArchiveError::NotFramed(_) => {
            "leave out --base, or name an archive made by `stasis archive create`"
        }
        ArchiveError::NoSuchEntry { .. } => "`stasis archive list` shows the names",
        ArchiveError::Restore(RestoreError::NotEmpty(_)) => {
            "choose another directory, or say --replace (keeps what is there beside it) or --in-place"
        }
        ArchiveError::Restore(
            RestoreError::TargetIsMount(_) | RestoreError::CannotExchange { .. },
        ) => "say --in-place",
        ArchiveError::TooLarge => "archive its parts one by one",
        _ => return None,
    };
    Some(text.to_owned())
}

fn lineage_hint(error: &LineageError) -> Option<String> {
    match error {
        LineageError::Unknown(record) => Some(format!(
            "nothing was cleaned up; ask what became of it with `stasis --store '{}' operation show {}`",
            record.store, record.op_id
        )),
        LineageError::Refused {
            lineage, refusal, ..
        } => refusal_hint(refusal, &lineage.to_string()),
        LineageError::Store {
            source,
            kind: OperationKind::Acquire,
            ..
        } => {
            let hint = read_hint(source)?;
            Some(format!(
                "{hint}; if the lock had been taken already, nobody owns it and it expires by itself"
            ))
        }
        LineageError::Store { source, .. } => read_hint(source),
        _ => None,
    }
}

fn refusal_hint(refusal: &Refusal, lineage: &str) -> Option<String> {
    Some(match refusal {
        Refusal::Held(_) => format!(
            "wait for it with --wait, or until it expires; if the holder is dead, `stasis lease reap {lineage}` after its \
             expiry, or `stasis lease force-unlock {lineage} --confirm --reason TEXT`"
        ),
        Refusal::LockLost(_) => {
            "stop working on this profile: somebody else may own it; acquire again to go on"
                .to_owned()
        }
        Refusal::Diverged { .. } => {
            "the snapshot is kept, unpromoted; choose which one counts with a rollback".to_owned()
        }
        Refusal::HolderChanged { .. } => {
            format!("look again with `stasis lease show {lineage}`, then decide anew")
        }
        Refusal::Contended => "try again in a moment".to_owned(),
        Refusal::IsActive(_) => format!(
            "go back to another one first: `stasis profile rollback {lineage} --sha PREFIX --confirm`"
        ),
        Refusal::IsPinned(_) => {
            format!("unpin it first: `stasis profile unpin {lineage} --sha PREFIX`")
        }
        Refusal::IsLast(_) => "a profile keeps at least one snapshot".to_owned(),
        Refusal::PointerMoved { .. } => {
            format!("look again with `stasis profile show {lineage}`, then decide anew")
        }
        Refusal::Full { .. } => {
            format!("`stasis profile gc {lineage}` drops what is over, while nobody owns it")
        }
        Refusal::NotHeld => {
            "there is nobody to throw out: the next one who asks gets the lease".to_owned()
        }
        _ => return None,
    })
}

fn read_hint(error: &ReadError) -> Option<String> {
    match error {
        ReadError::Bucket(error) => bucket_hint(error.kind),
        ReadError::PointerLost { .. } => Some(
            "nothing was published over it and gc leaves it alone; `stasis repair profile:TENANT/PROFILE@MAJOR` makes latest.json anew"
                .to_owned(),
        ),
        ReadError::Foreign(_) => Some("use a newer build of stasis; nothing was removed".to_owned()),
        error if error.is_of_another_build() => Some(
            "nothing was overwritten; use the version of Stasis that wrote it, or another store (--store)".to_owned(),
        ),
        _ => Some("nothing was overwritten; `stasis repair SUBJECT` makes indexes and pointers anew from the snapshots".to_owned()),
    }
}

fn bucket_hint(kind: BucketErrorKind) -> Option<String> {
    let text = match kind {
        BucketErrorKind::Absent => {
            "check the address; a directory is made by the first command that writes, a bucket must be created first"
        }
        BucketErrorKind::Unreachable => "check the address, and the network or the disk behind it",
        BucketErrorKind::Denied => {
            "check credentials and permissions: the store must be readable, writable and listable"
        }
        BucketErrorKind::Full => "make room, or use another store",
        _ => return None,
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_engine::model::failure::Failure;

    #[test]
    fn the_hint_of_a_failure_is_its_own() {
        let failure = |hint: Option<&'static str>| {
            let failure = Failure::new(ErrorKind::Denied, "read", "/key");
            match hint {
                Some(hint) => failure.with_hint(hint),
                None => failure,
            }
        };

        let said = hint(&failure(Some("run as its owner")).into());

        assert_eq!(said.as_deref(), Some("run as its owner"));
        assert_eq!(hint(&failure(None).into()), None);
    }
}
