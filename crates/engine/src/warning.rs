//! What went less well than it should have, as data in the result.

use crate::result::DatabaseVerdict;
use serde::Serialize;
use stasis_model::id::SnapshotId;
use std::fmt;

/// Something the caller should know although the operation was applied.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "code", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Warning {
    /// Our clock and the store's differ by more than half a minute; the store's was used.
    ClockSkew {
        /// The store's clock minus ours.
        offset_ms: i64,
    },
    /// The act was applied, but the events log does not show it.
    EventNotRecorded {
        /// Why.
        reason: String,
    },
    /// The act was applied and every writer is fenced, but the lock still names its old holder until it expires.
    LockNotTold,
    /// The store is this process's memory: nobody else sees it, and it ends with us.
    Ephemeral,
    /// The snapshot was captured in another region not long ago: sites may ask again who it is.
    RegionChanged {
        /// Where it was captured.
        from: String,
        /// Where we are.
        here: String,
    },
    /// The browser had crashed before the snapshot was captured.
    CrashedBeforeCapture,
    /// The key to the cookies is in the keyring of the host that wrote them.
    CookiesInKeyring,
    /// Something in the directory vanished, changed while it was read, or could not be read.
    EntriesLeftOut {
        /// How many.
        entries: u64,
    },
    /// What the directory is now could not be written down beside it: the next save of it diverges without `--base`.
    RecordNotWritten {
        /// Why.
        reason: String,
    },
    /// What a run before had not saved was in the directory, and is kept beside it.
    UnsavedStateKept {
        /// Where.
        path: String,
    },
    /// An older Chrome has a snapshot of this profile that the one of this Chrome does not derive from.
    OlderMajorNotCarried {
        /// What was loaded.
        subject: String,
        /// The lineage of the older Chrome.
        older: String,
        /// Its major.
        older_major: u32,
        /// The first digits of its active snapshot.
        sha256: String,
        /// Sites and origins that it has and this one lacks, the first few.
        missing: Vec<String>,
    },
    /// A profile was carried to a newer Chrome, and not all of it could be compared with what it was before.
    UpgradeNotCompared {
        /// Why.
        reason: String,
    },
    /// The lease could not be given back: others wait until it expires.
    LeaseNotReleased,
    /// The command does not say where the profile is: it may run on another one.
    DirNotInCommand,
    /// The browser did not write the cookies that it held back: those of the last half minute may be missing.
    CookiesNotFlushed {
        /// Why.
        reason: String,
    },
    /// The command had ended, its browser went on, and was closed.
    ClosedAfterLinger {
        /// How long after the command.
        after_s: u64,
    },
    /// The run took as long as it may, and the browser was closed.
    ClosedAfterMaxTime {
        /// How long that is.
        after_s: u64,
    },
    /// The cache could not be written, and was not used.
    CacheSkipped {
        /// Why.
        reason: String,
    },
    /// There were more unsaved copies of a directory than are kept; the oldest was removed.
    UnsavedRemoved {
        /// Which.
        path: String,
    },
    /// The browser was killed before it had written everything.
    BrowserKilled,
    /// Nobody can say whether a database is sound.
    DatabaseUnchecked {
        /// Which.
        path: String,
        /// Why: `timed_out`, `limit`, `unable`, …
        verdict: DatabaseVerdict,
    },
    /// Somebody owned the lineage and was thrown out.
    HolderEvicted {
        /// The run that lost it.
        holder_run_id: String,
    },
    /// What a program wanted to be run afterwards failed.
    HookFailed {
        /// Whose, and how.
        reason: String,
    },
    /// No safety snapshot was needed: there is one of this very state.
    SafetyUnchanged {
        /// Which.
        snapshot: String,
    },
    /// A restore that is only shown would not be done.
    WouldBeRefused {
        /// Why.
        reason: String,
    },
    /// The state is what it should be, but the next save derives from something else.
    NotAdopted {
        /// Why.
        reason: String,
    },
    /// A program is not well after a restore.
    NotWell {
        /// Which, and what it said.
        reason: String,
        /// The snapshot whose state was put back because of it, if that was asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        undone_to: Option<SnapshotId>,
    },
    /// The lock had expired; its former holder will find that out.
    TookOver {
        /// The run that lost it.
        holder_run_id: String,
    },
}

impl fmt::Display for Warning {
    #[expect(clippy::too_many_lines, reason = "one sentence for each warning")]
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClockSkew { offset_ms } => {
                write!(
                    out,
                    "this host's clock differs from the store's by {offset_ms} ms; the store's was used"
                )
            }
            Self::EventNotRecorded { reason } => {
                write!(out, "the event could not be recorded: {reason}")
            }
            Self::Ephemeral => {
                out.write_str("the store `memory:` ends with this command; nobody else sees it")
            }
            Self::LockNotTold => out.write_str(
                "every writer is fenced, but lock.json still names its old holder until it expires",
            ),
            Self::RegionChanged { from, here } => write!(
                out,
                "the snapshot was captured in `{from}` and this is `{here}`: sites may challenge it"
            ),
            Self::CrashedBeforeCapture => {
                out.write_str("the browser had crashed before this snapshot was captured")
            }
            Self::CookiesInKeyring => out.write_str(
                "the cookies' key is in the keyring of the host that wrote them: they cannot be read elsewhere; \
                 start the browser with --password-store=basic",
            ),
            Self::EntriesLeftOut { entries } => write!(
                out,
                "{entries} entries vanished, changed while they were read, or could not be read"
            ),
            Self::RecordNotWritten { reason } => write!(
                out,
                "the record beside the directory was not written, the next save needs --base: {reason}"
            ),
            Self::UnsavedStateKept { path } => write!(
                out,
                "the run before was not saved; what it left is kept in `{path}`: save it with \
                 `stasis profile save SUBJECT --dir` that path, or remove it with `stasis profile discard` and that path"
            ),
            Self::OlderMajorNotCarried {
                subject,
                older,
                older_major,
                sha256,
                missing,
            } => write!(
                out,
                "the snapshot {sha256} of `{older}` has what `{subject}` lacks ({}); begin with that one instead with: \
                 stasis profile run {subject} --from-major {older_major} -- BROWSER",
                missing.join(", ")
            ),
            Self::UpgradeNotCompared { reason } => write!(
                out,
                "the profile was carried to a newer Chrome, and not everything in it could be compared: {reason}"
            ),
            Self::LeaseNotReleased => out.write_str(
                "the lease could not be given back; others wait until it expires",
            ),
            Self::DirNotInCommand => out.write_str(
                "the command has no {dir}: it may run on another profile than the one that is saved",
            ),
            Self::CookiesNotFlushed { reason } => write!(
                out,
                "the browser did not write its newest cookies, those of the last 30 s may be missing: {reason}"
            ),
            Self::ClosedAfterLinger { after_s } => write!(
                out,
                "the command ended and its browser went on: it was closed {after_s} s later; --linger TIME gives it longer"
            ),
            Self::ClosedAfterMaxTime { after_s } => write!(
                out,
                "the browser was closed after {after_s} s; --max-time TIME gives it longer"
            ),
            Self::CacheSkipped { reason } => write!(
                out,
                "the cache could not be written and was not used: {reason}"
            ),
            Self::UnsavedRemoved { path } => write!(
                out,
                "there were too many unsaved copies; the oldest was removed: `{path}`"
            ),
            Self::BrowserKilled => out.write_str(
                "the browser was killed: cookies of the last 30 s may be missing; close it, or send it SIGINT",
            ),
            Self::DatabaseUnchecked { path, verdict } => {
                write!(out, "the database `{path}` could not be checked: {verdict}")
            }
            Self::HolderEvicted { holder_run_id } => {
                write!(
                    out,
                    "run `{holder_run_id}` owned the lineage and was thrown out; it cannot publish any more"
                )
            }
            Self::HookFailed { reason } => write!(out, "{reason}"),
            Self::SafetyUnchanged { snapshot } => {
                write!(out, "nothing changed since snapshot `{snapshot}`: it is the safety snapshot")
            }
            Self::WouldBeRefused { reason } => write!(out, "the restore would be refused: {reason}"),
            Self::NotAdopted { reason } => write!(
                out,
                "the restored state is in place, but its snapshots do not say that it derives from it: {reason}"
            ),
            Self::NotWell {
                reason,
                undone_to: None,
            } => write!(out, "the restored state is in place, but {reason}"),
            Self::NotWell {
                reason,
                undone_to: Some(snapshot),
            } => write!(
                out,
                "the restore was undone: after it, {reason}. The state is the one of before, snapshot `{snapshot}`"
            ),
            Self::TookOver { holder_run_id } => {
                write!(
                    out,
                    "the lock had expired and was taken over from run `{holder_run_id}`"
                )
            }
        }
    }
}

/// Half a minute: more than this is worth a warning.
const SKEW_LIMIT_MS: u64 = 30_000;

/// The warning that an offset deserves, if it deserves one.
pub fn skew(offset_ms: Option<i64>) -> Option<Warning> {
    let offset_ms = offset_ms.filter(|offset| offset.unsigned_abs() > SKEW_LIMIT_MS)?;
    Some(Warning::ClockSkew { offset_ms })
}
