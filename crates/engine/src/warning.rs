//! What went less well than it should have, as data in the result.

use crate::address::shell_word;
use crate::error::ErrorKind;
use crate::result::DatabaseVerdict;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::id::{ChromeMajor, SnapshotId};

/// Something the caller should know although the operation was applied. What a user reads of it stands beside each.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, thiserror::Error, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Warning {
    /// Our clock and the store's differ by more than half a minute; the store's was used.
    #[error("this host's clock differs from the store's by {offset_ms} ms; the store's was used")]
    ClockSkew {
        /// The store's clock minus ours.
        offset_ms: i64,
    },
    /// The act was applied, but the events log does not show it.
    #[error("the event could not be recorded: {reason}")]
    EventNotRecorded {
        /// Why.
        reason: String,
    },
    /// The act was applied and every writer is fenced, but the lock still names its old holder until it expires.
    #[error("every writer is fenced, but lock.json still names its old holder until it expires")]
    LockNotTold,
    /// The store is this process's memory: nobody else sees it, and it ends with us.
    #[error("the store `memory:` ends with this command; nobody else sees it")]
    Ephemeral,
    /// The snapshot was captured in another region not long ago: sites may ask again who it is.
    #[error("the snapshot was captured in `{from}` and this is `{here}`: sites may challenge it")]
    RegionChanged {
        /// Where it was captured.
        from: String,
        /// Where we are.
        here: String,
    },
    /// The snapshot that counts was captured elsewhere than the one that it derives from: sites may ask again who it is.
    #[error(
        "{sha256} of `{subject}` was captured in {here}, and the snapshot that its run began with in {from}: sites may challenge it"
    )]
    CapturedElsewhere {
        /// Of which lineage.
        subject: String,
        /// The first digits of the snapshot.
        sha256: String,
        /// Where the one before it was captured.
        from: String,
        /// Where it was captured.
        here: String,
    },
    /// Another Chrome has a newer snapshot of the profile, which a run with this one does not begin with.
    #[error(
        "`{other}` has the snapshot {sha256}, which is newer than the one that counts of `{subject}`: a run with Chrome {major} does not begin with it"
    )]
    OtherMajorIsNewer {
        /// Of which lineage there is an older one.
        subject: String,
        /// The major version of its Chrome.
        major: ChromeMajor,
        /// The lineage of the other Chrome.
        other: String,
        /// The first digits of the newer one.
        sha256: String,
    },
    /// No snapshot counts for this Chrome, and others have some.
    #[error(
        "no snapshot of `{subject}` counts, and {} has one: whether a run begins with that or empty, the tenant's policy says \
         (on_major_upgrade)",
        .others.join(" and ")
    )]
    OnlyOtherMajors {
        /// Of which lineage there is none.
        subject: String,
        /// The lineages that have one.
        others: Vec<String>,
    },
    /// The browser had crashed before the snapshot was captured.
    #[error("the browser had crashed before this snapshot was captured")]
    CrashedBeforeCapture,
    /// The key to the cookies is in the keyring of the host that wrote them.
    #[error(
        "the cookies' key is in the keyring of the host that wrote them: they cannot be read elsewhere; \
         start the browser with --password-store=basic"
    )]
    CookiesInKeyring,
    /// Something in the directory vanished, changed while it was read, or could not be read.
    #[error("{entries} entries vanished, changed while they were read, or could not be read")]
    EntriesLeftOut {
        /// How many.
        entries: u64,
    },
    /// Another container writes a volume while it is saved.
    #[error(
        "the container `{container}` runs and has the volume `{volume}` too: what it writes meanwhile is not of one moment with the rest"
    )]
    VolumeShared {
        /// Which volume.
        volume: String,
        /// Which container.
        container: String,
    },
    /// A snapshot was made, and older ones that are beyond the limits are still there.
    #[error("older snapshots beyond the limits were not removed: {reason}")]
    LimitsNotKept {
        /// Why.
        reason: String,
    },
    /// A volume was restored into one that the engine keeps itself.
    #[error(
        "the volume `{volume}` was one of the driver `{driver}`, or had options: what it had is in a plain volume of the engine now"
    )]
    VolumeIsPlain {
        /// Which.
        volume: String,
        /// What kept it.
        driver: String,
    },
    /// The container that was replaced could not be removed.
    #[error(
        "what was replaced is called `{container}` now, and could not be removed; `stasis container cleanup` tries it again: {reason}"
    )]
    ReplacedIsLeft {
        /// What it is called now.
        container: String,
        /// Why.
        reason: String,
    },
    /// A directory of the host that is mounted in a container is not there any more.
    #[error("`{path}` is not on this host any more: an empty directory is mounted instead")]
    BindMissing {
        /// Which.
        path: String,
    },
    /// What the directory is now could not be written down beside it: the next save of it diverges without `--base`.
    #[error(
        "the record beside the directory was not written, the next save needs --base: {reason}"
    )]
    RecordNotWritten {
        /// Why.
        reason: String,
    },
    /// What a run before had not saved was in the directory, and is kept beside it.
    #[error(
        "the run before was not saved; what it left is kept in `{path}`: save it with \
         `stasis profile save SUBJECT --dir` that path, or remove it with `stasis profile discard` and that path"
    )]
    UnsavedStateKept {
        /// Where.
        path: String,
    },
    /// An older Chrome has a snapshot of this profile that the one of this Chrome does not derive from.
    #[error(
        "the snapshot {sha256} of `{older}` has what `{subject}` lacks ({}); begin with that one instead with: \
         stasis profile run {subject} --from-major {older_major} -- BROWSER",
        .missing.join(", ")
    )]
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
    #[error(
        "the profile was carried to a newer Chrome, and not everything in it could be compared: {reason}"
    )]
    UpgradeNotCompared {
        /// Why.
        reason: String,
    },
    /// The lease could not be given back: others wait until it expires.
    #[error("the lease could not be given back; others wait until it expires")]
    LeaseNotReleased,
    /// The command does not say where the profile is: it may run on another one.
    #[error("the command has no {{dir}}: it may run on another profile than the one that is saved")]
    DirNotInCommand,
    /// The browser did not write the cookies that it held back: those of the last half minute may be missing.
    #[error(
        "the browser did not write its newest cookies, those of the last 30 s may be missing: {reason}"
    )]
    CookiesNotFlushed {
        /// Why.
        reason: String,
    },
    /// The command had ended, its browser went on, and was closed.
    #[error(
        "the command ended and its browser went on: it was closed {after_s} s later; --linger TIME gives it longer"
    )]
    ClosedAfterLinger {
        /// How long after the command.
        after_s: u64,
    },
    /// The run took as long as it may, and the browser was closed.
    #[error("the browser was closed after {after_s} s; --max-time TIME gives it longer")]
    ClosedAfterMaxTime {
        /// How long that is.
        after_s: u64,
    },
    /// The cache could not be written, and was not used.
    #[error("the cache could not be written and was not used: {reason}")]
    CacheSkipped {
        /// Why.
        reason: String,
    },
    /// There were more unsaved copies of a directory than are kept; the oldest was removed.
    #[error("there were too many unsaved copies; the oldest was removed: `{path}`")]
    UnsavedRemoved {
        /// Which.
        path: String,
    },
    /// The browser was killed before it had written everything.
    #[error(
        "the browser was killed: cookies of the last 30 s may be missing; close it, or send it SIGINT"
    )]
    BrowserKilled,
    /// Nobody can say whether a database is sound.
    #[error("the database `{path}` could not be checked: {verdict}")]
    DatabaseUnchecked {
        /// Which.
        path: String,
        /// Why: `timed_out`, `limit`, `unable`, …
        verdict: DatabaseVerdict,
    },
    /// Somebody owned the lineage and was thrown out.
    #[error(
        "run `{holder_run_id}` owned the lineage and was thrown out; it cannot publish any more"
    )]
    HolderEvicted {
        /// The run that lost it.
        holder_run_id: String,
    },
    /// A directory was saved as a new subject, and the store has one of its name that lies nowhere on this host.
    #[error(
        "the store has {} from another place, and this is the new subject `{subject}`. If it should be the same one, join it with: \
         stasis link {} {} --confirm",
        .others.iter().map(|one| format!("`{one}`")).collect::<Vec<_>>().join(", "),
        shell_word(.dir),
        .others.first().map_or("dir:NAME", String::as_str)
    )]
    NameInStore {
        /// The directory.
        dir: String,
        /// What it was saved as.
        subject: String,
        /// Subjects of its name.
        others: Vec<String>,
    },
    /// A directory was saved as a new subject, and was another one until a directory took its place there.
    #[error(
        "this directory was `{was}` until {} took its place, and is the new subject `{subject}` from now on. Make it `{was}` again with: \
         stasis link {} {was} --confirm",
        .now.as_ref().map_or("another one".to_owned(), |now| format!("`{now}`")),
        shell_word(.dir)
    )]
    WasAnotherSubject {
        /// The directory.
        dir: String,
        /// What it was saved as.
        subject: String,
        /// What it was before.
        was: String,
        /// The directory that is that one now.
        #[serde(skip_serializing_if = "Option::is_none")]
        now: Option<String>,
    },
    /// A directory was saved as a new subject, and lies where another one lay that was moved.
    #[error(
        "`{was}`, which lay here, {}, and this directory is the new subject `{subject}`. If it should go on as `{was}`, make it that with: \
         stasis link {} {was} --confirm",
        .now.as_ref().map_or("is another directory".to_owned(), |now| format!("is `{now}` now")),
        shell_word(.dir)
    )]
    LiesWhereAnotherLay {
        /// The directory.
        dir: String,
        /// What it was saved as.
        subject: String,
        /// What lay there.
        was: String,
        /// Where that is now.
        #[serde(skip_serializing_if = "Option::is_none")]
        now: Option<String>,
    },
    /// What a program wanted to be run afterwards failed.
    #[error("{reason}")]
    HookFailed {
        /// Whose, and how.
        reason: String,
    },
    /// What a restore changed is not known any more, so that an undo cannot leave the rest alone.
    #[error(
        "the snapshot that had been restored is gone, so that everything becomes what it was before; what was changed since is in the safety snapshot"
    )]
    UndoneAsAWhole,
    /// The subject was a copy of one in another store, and has a snapshot of its own from now on.
    #[error(
        "`{subject}` in `{store}` was a copy, and goes its own way from now on: a later copy no longer brings it up to date"
    )]
    LeftCopy {
        /// Which.
        subject: String,
        /// Where it was a copy.
        store: String,
    },
    /// It is not known what is wrong besides the documents that are made anew.
    #[error("it could not be checked what else is wrong: {reason}")]
    NotChecked {
        /// What the caller must do.
        kind: ErrorKind,
        /// Why not.
        reason: String,
    },
    /// A restore that is only shown would not be done.
    #[error("the restore would be refused: {reason}")]
    WouldBeRefused {
        /// Why.
        reason: String,
    },
    /// The state is what it should be, but the next save derives from something else.
    #[error(
        "the restored state is in place, but its snapshots do not say that it derives from it: {reason}"
    )]
    NotAdopted {
        /// Why.
        reason: String,
    },
    /// A program is not well after a restore.
    #[error("{}", not_well(.reason, .undone_to.as_ref()))]
    NotWell {
        /// Which, and what it said.
        reason: String,
        /// The snapshot whose state was put back because of it, if that was asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        undone_to: Option<SnapshotId>,
    },
    /// The lock had expired; its former holder will find that out.
    #[error("the lock had expired and was taken over from run `{holder_run_id}`")]
    TookOver {
        /// The run that lost it.
        holder_run_id: String,
    },
}

fn not_well(reason: &str, undone_to: Option<&SnapshotId>) -> String {
    match undone_to {
        None => format!("the restored state is in place, but {reason}"),
        Some(snapshot) => format!(
            "the restore was undone: after it, {reason}. The state is the one of before, snapshot `{snapshot}`"
        ),
    }
}

/// Half a minute: more than this is worth a warning.
const SKEW_LIMIT_MS: u64 = 30_000;

/// The warning that an offset deserves, if it deserves one.
pub fn skew(offset_ms: Option<i64>) -> Option<Warning> {
    let offset_ms = offset_ms.filter(|offset| offset.unsigned_abs() > SKEW_LIMIT_MS)?;
    Some(Warning::ClockSkew { offset_ms })
}
