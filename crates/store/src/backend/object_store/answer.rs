//! What an answer means.

use super::explanation::{Cause, Explain};
use super::wire::ResponseInfo;
use crate::bucket::{BucketError, BucketErrorKind, Swap};
use crate::excerpt::excerpt;
use crate::layout::Key;
use ::object_store::PutResult;
use ::object_store::client::HttpError;
use http::{HeaderMap, StatusCode};
use stasis_model::format::document::Version;
use std::error::Error;
use std::fmt::{self, Display};
use tokio::time::error::Elapsed;

/// How much of the library's own words is shown: a key, a URL and a cause fit in.
const SOURCE_LENGTH: usize = 600;

/// What came of asking the store.
pub(super) trait Answered<T> {
    /// The answer, or the error that a caller sees.
    fn while_asking(self, doing: &'static str, what: impl Display) -> Result<T, BucketError>;
}

impl<T> Answered<T> for Result<T, StoreFailure> {
    fn while_asking(self, doing: &'static str, what: impl Display) -> Result<T, BucketError> {
        self.map_err(|failure| failure.into_error(doing, what))
    }
}

/// A request that was made, and how it ended.
pub(super) struct Sent<T>(pub(super) Result<T, StoreFailure>);

impl<T> Sent<T> {
    /// What came of a request, and of what was seen of its answer.
    pub(super) fn new(
        outcome: Result<::object_store::Result<T>, Elapsed>,
        seen: ResponseInfo,
        explain: Option<Explain>,
    ) -> Self {
        let source = match outcome {
            Ok(Ok(done)) => return Self(Ok(done)),
            Ok(Err(source)) => FailureSource::Store(source, explain),
            Err(slow) => FailureSource::Slow(slow),
        };
        let seen = match (&source, explain) {
            // Nobody could look at the answer of a store that is not asked over HTTP.
            (FailureSource::Store(error, _), None) => ResponseInfo::of(error),
            _ => seen,
        };
        let is_witnessed = explain.is_some();
        Self(Err(StoreFailure {
            seen,
            source,
            is_witnessed,
        }))
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
            Some(status) if refuses(status) && failure.cause() != Some(Cause::NoSuchBucket) => {
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
pub(super) struct StoreFailure {
    seen: ResponseInfo,
    source: FailureSource,
    is_witnessed: bool,
}

#[derive(Debug)]
enum FailureSource {
    Store(::object_store::Error, Option<Explain>),
    Slow(Elapsed),
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.seen.fmt(out)
    }
}

impl Error for StoreFailure {
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
impl fmt::Display for FailureSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slow(_) => out.write_str("it took too long"),
            Self::Store(error, explain) => {
                let text = error.to_string();
                let explained =
                    explain.map(|explain| explain(StatusCode::OK, &HeaderMap::new(), &text));
                match explained.filter(|explained| explained.has_code) {
                    Some(explained) => {
                        write!(out, "its body says otherwise{}", explained.remark)
                    }
                    None => out.write_str(&excerpt(&text, SOURCE_LENGTH)),
                }
            }
        }
    }
}

impl Error for FailureSource {}

impl StoreFailure {
    pub(super) fn status(&self) -> Option<StatusCode> {
        match &self.seen {
            ResponseInfo::Answered { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// What the store itself called it.
    pub(super) fn cause(&self) -> Option<Cause> {
        match &self.seen {
            ResponseInfo::Answered { explanation, .. } => explanation.cause,
            _ => None,
        }
    }

    /// Whether the store gave no word for its refusal.
    pub(super) fn is_unexplained(&self) -> bool {
        match &self.seen {
            ResponseInfo::Answered { explanation, .. } => !explanation.has_code,
            _ => true,
        }
    }

    /// Whether the store said yes and only left out the version.
    pub(super) fn is_success_without_etag(&self) -> bool {
        let answered = self.status().is_some_and(|status| status.is_success());
        self.is_witnessed && answered && matches!(self.source, FailureSource::Store(..))
    }

    /// Whether a write may have been applied, or may yet be. A refusal for its form or its sender settles it; a
    /// success without a version, an error of the server, a conflict and silence do not.
    pub(super) fn may_have_been_applied(&self) -> bool {
        match &self.seen {
            ResponseInfo::NotTried | ResponseInfo::NotSent => false,
            ResponseInfo::NoAnswer => true,
            ResponseInfo::Answered { status, .. } => match *status {
                StatusCode::NOT_IMPLEMENTED => false,
                StatusCode::CONFLICT
                | StatusCode::REQUEST_TIMEOUT
                | StatusCode::TOO_MANY_REQUESTS => true,
                status if status.is_success() || status.is_server_error() => true,
                _ => self.cause() == Some(Cause::TimedOut),
            },
        }
    }

    pub(super) fn kind(&self) -> BucketErrorKind {
        match &self.seen {
            ResponseInfo::NotTried | ResponseInfo::NotSent | ResponseInfo::NoAnswer => {
                BucketErrorKind::Unreachable
            }
            ResponseInfo::Answered { status, .. } => {
                let by_code = self.cause().and_then(Cause::kind);
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
            FailureSource::Slow(_) => return true,
            FailureSource::Store(source, _) => Some(source),
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

impl ResponseInfo {
    /// What the answer would have been, as the library's error tells it.
    fn of(error: &::object_store::Error) -> Self {
        use ::object_store::Error as E;
        let status = match error {
            E::NotFound { .. } => StatusCode::NOT_FOUND,
            E::AlreadyExists { .. } | E::Precondition { .. } => StatusCode::PRECONDITION_FAILED,
            E::NotModified { .. } => StatusCode::NOT_MODIFIED,
            E::PermissionDenied { .. } => StatusCode::FORBIDDEN,
            E::Unauthenticated { .. } => StatusCode::UNAUTHORIZED,
            E::NotSupported { .. } | E::NotImplemented { .. } => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::OK,
        };
        Self::answered(status)
    }
}

impl fmt::Display for ResponseInfo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::NotTried => "the request could not be made",
            Self::NotSent => "no connection to the store",
            Self::NoAnswer => "no answer from the store",
            Self::Answered { explanation, .. } => &explanation.sentence,
        })
    }
}
