//! Why a store refused, in its own words and in ours.

use crate::bucket::BucketErrorKind;
use http::{HeaderMap, StatusCode};

/// What a store's own word for a refusal means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The object is missing, and the bucket is not.
    NoSuchObject,
    /// The bucket is missing.
    NoSuchBucket,
    /// The upload was completed, aborted, or never begun.
    NoSuchUpload,
    /// The store does not believe who we are.
    Denied,
    /// The request took the store too long: it may have been applied.
    TimedOut,
    /// The store cannot now.
    Busy,
    /// There is no room left.
    Full,
}

impl Cause {
    pub(super) fn kind(self) -> Option<BucketErrorKind> {
        match self {
            Self::NoSuchObject | Self::NoSuchUpload => None,
            Self::NoSuchBucket => Some(BucketErrorKind::Absent),
            Self::Denied => Some(BucketErrorKind::Denied),
            Self::TimedOut | Self::Busy => Some(BucketErrorKind::Unreachable),
            Self::Full => Some(BucketErrorKind::Full),
        }
    }
}

/// Why a store refused, as far as its answer says: in one line each, short, and fit to be shown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Explanation {
    /// Whether the store had a word for it.
    pub has_code: bool,
    /// What that word means.
    pub cause: Option<Cause>,
    /// What the store said, in brackets after a space; empty where it said nothing.
    pub remark: String,
    /// What a person should hear about the answer.
    pub sentence: String,
}

/// Reads why a store refused, from the status, the headers and the body of its answer.
pub type Explain = fn(StatusCode, &HeaderMap, &str) -> Explanation;
