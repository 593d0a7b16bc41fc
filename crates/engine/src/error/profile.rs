//! What can go wrong with a profile, and with nothing else.

use crate::error_kind::ErrorKind;
use stasis_model::failure::{Failure, Kinded};
use stasis_model::id::{ChromeMajor, Lineage, ProfileRef};
use stasis_model::upgrade::UpgradeRefusal;
use stasis_quiesce::browser::BrowserError;
use stasis_quiesce::freeze::FreezeError;
use stasis_store::documents::lineages::ReadError;
use std::path::PathBuf;
use std::time::Duration;

/// How many of a list that may be long are named.
const NAMED: usize = 5;

/// Why a profile was not saved or loaded, or why an operator's act on it does not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// It is larger than the tenant may have.
    #[error("the profile in `{}` has {bytes} bytes, and {limit} are allowed: {}", .dir.display(), sizes(.largest))]
    TooLarge {
        /// Which directory.
        dir: PathBuf,
        /// How large it is.
        bytes: u64,
        /// How large it may be.
        limit: u64,
        /// Its largest directories.
        largest: Vec<(String, u64)>,
    },
    /// A browser that we were not told about has it open.
    #[error("the profile in `{}` is in use by process {pid}", .dir.display())]
    InUse {
        /// Which directory.
        dir: PathBuf,
        /// By whom.
        pid: u32,
    },
    /// Nobody knows which Chrome the profile belongs to.
    #[error("the Chrome major of `{0}` is not known: no Chrome has written it down")]
    NoMajor(ProfileRef),
    /// Chrome says another major than the caller.
    #[error("the profile in `{}` was written by Chrome {found}, not by Chrome {asked}", .dir.display())]
    OtherMajor {
        /// Which directory.
        dir: PathBuf,
        /// What was asked for.
        asked: ChromeMajor,
        /// What the profile says.
        found: ChromeMajor,
    },
    /// The lease was lost while we worked.
    #[error("the lease of `{lineage}` was lost: {detail}")]
    LeaseLost {
        /// Of what.
        lineage: Lineage,
        /// How.
        detail: String,
    },
    /// The base that was named is no snapshot of the lineage.
    #[error("`{base}` is not the beginning of exactly one snapshot of `{lineage}`")]
    NoSuchBase {
        /// What was named.
        base: String,
        /// Where it was looked for.
        lineage: Lineage,
    },
    /// The browser could not be found or stopped.
    #[error("could not stop the browser of `{}`", .dir.display())]
    Stop {
        /// Which directory.
        dir: PathBuf,
        /// Why.
        #[source]
        source: BrowserError,
    },
    /// Nobody can tell whether a browser uses the directory.
    #[error("could not find out who uses `{}`", .dir.display())]
    Users {
        /// Which directory.
        dir: PathBuf,
        /// Why.
        #[source]
        source: Failure,
    },
    /// A browser did not say which one it is.
    #[error("the browser did not say its version")]
    Version(#[source] BrowserError),
    /// The browser did not answer.
    #[error("the browser could not be asked for its cookies")]
    Asked(#[source] BrowserError),
    /// The browser did not take a storage state.
    #[error("the storage state could not be set in the browser, and nothing was saved")]
    StateNotSet(#[source] BrowserError),
    /// The browser did not stay.
    #[error("the browser ended with exit code {0} before it could be asked for its cookies")]
    BrowserEnded(i32),
    /// Nobody knows which browser will run.
    #[error(
        "which Chrome will run is not known: the command is not a browser, and none is installed"
    )]
    NoBrowser,
    /// The directory does not look like a browser's.
    #[error("`{}` does not look like a browser profile", .0.display())]
    NotAProfile(PathBuf),
    /// Something else is where a profile is to be.
    #[error("`{}` has files in it and does not look like a browser profile: it is not replaced by one", .0.display())]
    NotReplaced(PathBuf),
    /// It is not a copy that a run left.
    #[error("`{}` is not an unsaved copy of a profile", .0.display())]
    NotUnsaved(PathBuf),
    /// There is no command to run.
    #[error("there is no command to run")]
    NoCommand,
    /// The browser could not be held still.
    #[error("could not hold the browser of `{}` still", .dir.display())]
    Freeze {
        /// Which directory.
        dir: PathBuf,
        /// Why.
        #[source]
        source: FreezeError,
    },
    /// The browser stood still too long, or did not stand still, and the clone was discarded.
    #[error("the browser of `{}` did not stand still long enough: {frozen_for:?}", .dir.display())]
    FreezeBudget {
        /// Which directory.
        dir: PathBuf,
        /// For how long.
        frozen_for: Duration,
    },
    /// A running browser may not be captured.
    #[error("hot snapshots of `{0}` are not allowed by the tenant's policy")]
    HotNotAllowed(Lineage),
    /// The manifest of a snapshot cannot be used.
    #[error(transparent)]
    Manifest(#[from] ReadError),
    /// What was stored is not listed.
    #[error("the store does not list what was just stored for `{0}`; the pointer was not moved")]
    NotListed(Lineage),
    /// What came is not what was stored.
    #[error("the archive of snapshot {wanted} is not what was stored: its digest is {found}")]
    Sha {
        /// What was wanted.
        wanted: String,
        /// What came.
        found: String,
    },
    /// The archive is not there.
    #[error("the archive of snapshot {0} is not there")]
    NoArchive(String),
    /// Databases in it are damaged.
    #[error("databases in snapshot {snapshot} are damaged: {}", some(.databases))]
    Integrity {
        /// Which snapshot.
        snapshot: String,
        /// Which databases.
        databases: Vec<String>,
    },
    /// The snapshot is of a running browser, and such are not wanted.
    #[error("snapshot {0} was taken of a running browser, which is not accepted here")]
    HotRefused(String),
    /// The snapshot is larger than the tenant may have.
    #[error("snapshot {snapshot} has {bytes} bytes, and {limit} are allowed")]
    SnapshotTooLarge {
        /// Which snapshot.
        snapshot: String,
        /// How large it is.
        bytes: u64,
        /// How large it may be.
        limit: u64,
    },
    /// It was captured elsewhere, and the tenant's policy does not want that.
    #[error("snapshot {snapshot} was captured in `{from}`, and this is `{here}`")]
    OtherRegion {
        /// Which snapshot.
        snapshot: String,
        /// Where it was captured.
        from: String,
        /// Where we are.
        here: String,
    },
    /// There are only snapshots of other Chromes.
    #[error("`{asked}` has no snapshot, but there are some of {}; {why}", majors(.others))]
    OnlyOtherMajors {
        /// What was asked for.
        asked: Lineage,
        /// What there is.
        others: Vec<Lineage>,
        /// Why none of them is used.
        why: UpgradeRefusal,
    },
    /// Nothing is stored under that name.
    #[error("there is no profile `{subject}`{}", others(.majors))]
    NoProfile {
        /// What was asked for.
        subject: ProfileRef,
        /// Which majors there are of it.
        majors: Vec<ChromeMajor>,
    },
    /// The profile has several lineages, and the act is about one.
    #[error("`{subject}` has snapshots of several Chrome majors: {}", spelled(.majors))]
    SeveralMajors {
        /// What was asked for.
        subject: ProfileRef,
        /// Which majors there are.
        majors: Vec<ChromeMajor>,
    },
    /// No snapshot begins like that.
    #[error("there is no snapshot `{wanted}` of `{subject}`")]
    NoSnapshot {
        /// What was asked for.
        wanted: String,
        /// Of which profile.
        subject: ProfileRef,
    },
    /// Several snapshots begin like that.
    #[error("`{wanted}` is the beginning of several snapshots of `{subject}`: {}", .fits.join(", "))]
    AmbiguousSha {
        /// What was asked for.
        wanted: String,
        /// Of which profile.
        subject: ProfileRef,
        /// Those that fit, with enough digits to tell them apart.
        fits: Vec<String>,
    },
    /// No snapshot counts.
    #[error("`{0}` has no active snapshot")]
    NoActive(ProfileRef),
    /// The snapshot was deleted; its bytes may be there until the next sweep.
    #[error("snapshot {sha} of `{subject}` was deleted")]
    Gone {
        /// Its digits.
        sha: String,
        /// Of which lineage.
        subject: Lineage,
    },
    /// The snapshot is not whole.
    #[error("snapshot {sha} of `{subject}` is not whole: {why}")]
    NotWhole {
        /// Its digits.
        sha: String,
        /// Of which lineage.
        subject: Lineage,
        /// What is missing.
        why: String,
    },
    /// The manifest of a snapshot that an operator chose.
    #[error(transparent)]
    UnusableManifest(ReadError),
    /// An identity never moves to another tenant.
    #[error("`{to}` belongs to another tenant than `{from}`")]
    OtherTenant {
        /// What was to be copied.
        from: Lineage,
        /// Where to.
        to: ProfileRef,
    },
    /// A snapshot belongs to the Chrome that wrote it.
    #[error("`{to}` is of another Chrome major than `{from}`")]
    ForkedMajor {
        /// What was to be copied.
        from: Lineage,
        /// Where to.
        to: ProfileRef,
    },
    /// The new identity is not new.
    #[error("there is a profile `{0}` already")]
    ProfileExists(ProfileRef),
}

fn sizes(directories: &[(String, u64)]) -> String {
    let spelled = directories
        .iter()
        .map(|(path, bytes)| format!("`{path}` has {bytes}"));
    spelled.collect::<Vec<_>>().join(", ")
}

/// A few by name, and how many there are beside them.
fn some(databases: &[String]) -> String {
    let (named, rest) = databases.split_at(databases.len().min(NAMED));
    match rest.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn majors(lineages: &[Lineage]) -> String {
    let spelled = lineages.iter().map(|lineage| format!("`{lineage}`"));
    spelled.collect::<Vec<_>>().join(", ")
}

impl ProfileError {
    /// What the caller must do.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::TooLarge { .. }
            | Self::HotNotAllowed(_)
            | Self::HotRefused(_)
            | Self::OtherRegion { .. }
            | Self::FreezeBudget { .. }
            | Self::SnapshotTooLarge { .. } => ErrorKind::Limit,
            Self::LeaseLost { .. } => ErrorKind::Fenced,
            Self::InUse { .. } | Self::ProfileExists(_) => ErrorKind::Conflict,
            Self::NoMajor(_)
            | Self::OtherMajor { .. }
            | Self::Version(_)
            | Self::NoBrowser
            | Self::NotAProfile(_)
            | Self::NotReplaced(_)
            | Self::NotUnsaved(_)
            | Self::NoCommand
            | Self::SeveralMajors { .. }
            | Self::AmbiguousSha { .. }
            | Self::OtherTenant { .. }
            | Self::ForkedMajor { .. } => ErrorKind::Invalid,
            Self::Asked(_) | Self::Stop { .. } | Self::Users { .. } | Self::Freeze { .. } => {
                ErrorKind::Retry
            }
            Self::BrowserEnded(_) | Self::StateNotSet(_) => ErrorKind::Failed,
            Self::Manifest(error) => error.kind(),
            Self::NotListed(_) => ErrorKind::Unreachable,
            Self::NoArchive(_)
            | Self::NoSuchBase { .. }
            | Self::OnlyOtherMajors { .. }
            | Self::NoProfile { .. }
            | Self::NoSnapshot { .. }
            | Self::NoActive(_)
            | Self::Gone { .. }
            | Self::UnusableManifest(ReadError::NoManifest(_)) => ErrorKind::NotFound,
            Self::Sha { .. }
            | Self::Integrity { .. }
            | Self::NotWhole { .. }
            | Self::UnusableManifest(_) => ErrorKind::Corrupt,
        }
    }
}

fn spelled(majors: &[ChromeMajor]) -> String {
    let majors: Vec<String> = majors.iter().map(ToString::to_string).collect();
    majors.join(", ")
}

fn others(majors: &[ChromeMajor]) -> String {
    if majors.is_empty() {
        return String::new();
    }
    format!("; there are snapshots of Chrome {}", spelled(majors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_damaged_databases_five_are_named_and_the_rest_is_counted() {
        let counted = |count: usize| {
            let databases = (1..=count).map(|number| format!("d{number}")).collect();
            let snapshot = "abc".to_owned();
            ProfileError::Integrity {
                snapshot,
                databases,
            }
            .to_string()
        };
        let some = "databases in snapshot abc are damaged: d1, d2, d3, d4, d5";
        assert_eq!(counted(5), some);
        assert_eq!(counted(6), format!("{some} and 1 more"));
        assert_eq!(counted(40), format!("{some} and 35 more"));
    }
}
