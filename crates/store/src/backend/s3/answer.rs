//! What an answer means.

use super::remark::Remark;
use super::wire::Seen;
use crate::bucket::{BucketError, BucketErrorKind, Swap};
use crate::excerpt::excerpt;
use crate::layout::Key;
use http::StatusCode;
use object_store::PutResult;
use object_store::client::HttpError;
use stasis_model::format::document::Version;
use std::error::Error;
use std::fmt::{self, Display};
use tokio::time::error::Elapsed;

/// How much of the library's own words is shown: a key, a URL and a cause fit in.
const SOURCE_LENGTH: usize = 600;

/// A request that was made, and how it ended.
pub(super) struct Sent<T>(pub(super) Result<T, Failure>);

impl<T> Sent<T> {
    pub(super) fn new(outcome: Result<object_store::Result<T>, Elapsed>, seen: Seen) -> Self {
        Self(match outcome {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(source)) => Err(Failure {
                seen,
                source: Source::Store(source),
            }),
            Err(slow) => Err(Failure {
                seen,
                source: Source::Slow(slow),
            }),
        })
    }
}

impl Sent<PutResult> {
    /// Judges a write that had to find nothing.
    pub(super) fn into_creation(self, key: &Key) -> Result<Swap, BucketError> {
        self.judged("create", key, |status| {
            matches!(
                status,
                StatusCode::PRECONDITION_FAILED | StatusCode::NOT_MODIFIED
            )
        })
    }

    /// Judges a write that had to find one version. To some stores a missing object is a failed condition, to others
    /// it is missing.
    pub(super) fn into_swap(self, key: &Key) -> Result<Swap, BucketError> {
        self.judged("replace", key, |status| {
            matches!(
                status,
                StatusCode::PRECONDITION_FAILED | StatusCode::NOT_FOUND
            )
        })
    }

    fn judged(
        self,
        doing: &'static str,
        key: &Key,
        refuses: impl Fn(StatusCode) -> bool,
    ) -> Result<Swap, BucketError> {
        let failure = match self.0 {
            Ok(PutResult {
                e_tag: Some(etag), ..
            }) => return Ok(Swap::Won(Version::new(etag))),
            Ok(_) => return Ok(Swap::Unknown),
            Err(failure) => failure,
        };
        match failure.status() {
            Some(status) if refuses(status) && failure.code() != Some("NoSuchBucket") => {
                Ok(Swap::Lost)
            }
            _ if failure.may_have_been_applied() => {
                tracing::debug!(%key, %failure, "a conditional write without a clear answer");
                Ok(Swap::Unknown)
            }
            _ => Err(failure.into_error(doing, key)),
        }
    }
}

/// A request that did not succeed.
#[derive(Debug)]
pub(super) struct Failure {
    seen: Seen,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Store(object_store::Error),
    Slow(Elapsed),
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.seen.words())
    }
}

impl Error for Failure {
    /// A refusal has said everything; of anything else the library knows more.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self.status() {
            Some(status) if !status.is_success() => None,
            _ => Some(&self.source),
        }
    }
}

/// The library's errors already say what lies beneath them, so they are the end of the chain. They also quote what a
/// server sent, so they are cut.
impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slow(_) => out.write_str("it took too long"),
            Self::Store(error) => {
                let text = error.to_string();
                match Remark::in_body(&text) {
                    remark if remark.code.is_some() => {
                        write!(out, "its body says otherwise{remark}")
                    }
                    _ => out.write_str(&excerpt(&text, SOURCE_LENGTH)),
                }
            }
        }
    }
}

impl Error for Source {}

impl Failure {
    pub(super) fn status(&self) -> Option<StatusCode> {
        match &self.seen {
            Seen::Answer { status, .. } => Some(*status),
            _ => None,
        }
    }

    pub(super) fn code(&self) -> Option<&str> {
        match &self.seen {
            Seen::Answer { remark, .. } => remark.code.as_deref(),
            _ => None,
        }
    }

    /// Whether the store said yes and only left out the version.
    pub(super) fn is_success_without_etag(&self) -> bool {
        let answered = self.status().is_some_and(|status| status.is_success());
        answered && matches!(self.source, Source::Store(_))
    }

    /// Whether the store cannot even have heard of it.
    pub(super) fn was_never_sent(&self) -> bool {
        matches!(self.seen, Seen::Nothing | Seen::NotSent)
    }

    /// Whether a write may have been applied, or may yet be. A refusal for its form or its sender settles it; a
    /// success without a version, an error of the server, a conflict and silence do not.
    pub(super) fn may_have_been_applied(&self) -> bool {
        match &self.seen {
            Seen::Nothing | Seen::NotSent => false,
            Seen::NoAnswer => true,
            Seen::Answer { status, .. } => match *status {
                StatusCode::NOT_IMPLEMENTED => false,
                StatusCode::CONFLICT
                | StatusCode::REQUEST_TIMEOUT
                | StatusCode::TOO_MANY_REQUESTS => true,
                status if status.is_success() || status.is_server_error() => true,
                _ => self.code() == Some("RequestTimeout"),
            },
        }
    }

    fn kind(&self) -> BucketErrorKind {
        match &self.seen {
            Seen::Nothing | Seen::NotSent | Seen::NoAnswer => BucketErrorKind::Unreachable,
            Seen::Answer { status, .. } => {
                let by_code = self.code().and_then(kind_of_code);
                by_code.unwrap_or_else(|| self.kind_of_status(*status))
            }
        }
    }

    fn kind_of_status(&self, status: StatusCode) -> BucketErrorKind {
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => BucketErrorKind::Denied,
            // An object that is missing was handled before: this is the bucket.
            StatusCode::NOT_FOUND => BucketErrorKind::Absent,
            StatusCode::INSUFFICIENT_STORAGE => BucketErrorKind::Full,
            StatusCode::NOT_IMPLEMENTED => BucketErrorKind::Unsupported,
            StatusCode::CONFLICT | StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
                BucketErrorKind::Unreachable
            }
            status if status.is_server_error() => BucketErrorKind::Unreachable,
            status if status.is_success() && self.broke_off() => BucketErrorKind::Unreachable,
            _ => BucketErrorKind::Unsupported,
        }
    }

    /// Whether an answer began well and did not end.
    fn broke_off(&self) -> bool {
        let mut cause: Option<&(dyn Error + 'static)> = match &self.source {
            Source::Slow(_) => return true,
            Source::Store(source) => Some(source),
        };
        while let Some(error) = cause {
            if error.is::<HttpError>() {
                return true;
            }
            cause = error.source();
        }
        false
    }

    /// The error a caller sees.
    pub(super) fn into_error(self, doing: &'static str, what: impl Display) -> BucketError {
        BucketError::new(self.kind(), doing, what).because(self)
    }
}

/// What a store's own word says more clearly than its status.
fn kind_of_code(code: &str) -> Option<BucketErrorKind> {
    match code {
        "NoSuchBucket" => Some(BucketErrorKind::Absent),
        "ExpiredToken"
        | "InvalidToken"
        | "TokenRefreshRequired"
        | "InvalidAccessKeyId"
        | "RequestTimeTooSkewed" => Some(BucketErrorKind::Denied),
        "RequestTimeout" | "SlowDown" | "InternalError" | "ServiceUnavailable" => {
            Some(BucketErrorKind::Unreachable)
        }
        "QuotaExceeded" | "XMinioStorageFull" | "XMinioAdminBucketQuotaExceeded" => {
            Some(BucketErrorKind::Full)
        }
        _ => None,
    }
}

impl Seen {
    fn words(&self) -> String {
        match self {
            Self::Nothing => "the request could not be made".to_owned(),
            Self::NotSent => "no connection to the store".to_owned(),
            Self::NoAnswer => "no answer from the store".to_owned(),
            Self::Answer { status, remark } => remark.words(*status),
        }
    }
}
