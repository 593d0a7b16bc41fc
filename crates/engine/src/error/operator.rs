//! Why an operator's act on a profile does not happen.

use crate::error_kind::ErrorKind;
use stasis_model::id::{ChromeMajor, Lineage, ProfileRef};
use stasis_store::documents::profiles::ManifestError;

/// An act that does not happen, or a question without an answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorError {
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
    /// The manifest of a snapshot.
    #[error(transparent)]
    Manifest(ManifestError),
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
    OtherMajor {
        /// What was to be copied.
        from: Lineage,
        /// Where to.
        to: ProfileRef,
    },
    /// The new identity is not new.
    #[error("there is a profile `{0}` already")]
    ProfileExists(ProfileRef),
    /// The key of an encrypted archive is bound to its lineage.
    #[error("snapshot {sha} of `{subject}` is encrypted with a key of its own lineage")]
    Encrypted {
        /// Its digits.
        sha: String,
        /// Of which lineage.
        subject: Lineage,
    },
}

impl OperatorError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoProfile { .. }
            | Self::NoSnapshot { .. }
            | Self::NoActive(_)
            | Self::Gone { .. }
            | Self::Manifest(ManifestError::Absent(_)) => ErrorKind::NotFound,
            Self::SeveralMajors { .. }
            | Self::AmbiguousSha { .. }
            | Self::OtherTenant { .. }
            | Self::OtherMajor { .. } => ErrorKind::Invalid,
            Self::ProfileExists(_) | Self::Encrypted { .. } => ErrorKind::Limit,
            Self::NotWhole { .. } | Self::Manifest(_) => ErrorKind::Corrupt,
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
