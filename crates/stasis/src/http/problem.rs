//! What went wrong, as RFC 9457 has it: `application/problem+json`.
//!
//! *Always true:* no path of this host and no address of the store is in it. Why something failed below is in the log, with the id of
//! the request.

use super::private::scrubbed;
use crate::report;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stasis_engine::error::{
    BucketError, BucketErrorKind, ChangeError, Error, ErrorKind, ProfileError, ReadError,
};
use stasis_engine::model::format::manifest::IndexRefusal;
use stasis_engine::model::id::Generation;
use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::io;

/// What went wrong, in a word that does not change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProblemCode {
    /// The request is not one that we understand.
    InvalidRequest,
    /// There is no token, or it does not count.
    Unauthorized,
    /// The token does not allow it.
    Forbidden,
    /// The name of the host, or the origin, is not one that we are called by.
    MisdirectedRequest,
    /// There is no such thing, or none that this token can see.
    NotFound,
    /// The route takes other methods.
    MethodNotAllowed,
    /// Another one holds the lease, or is at it.
    Held,
    /// The beginning of a name fits several things.
    Ambiguous,
    /// The lease is not the caller's any more.
    LockLost,
    /// Another snapshot counts meanwhile.
    Diverged,
    /// It was changed since the caller saw it.
    PreconditionFailed,
    /// Whoever destroys says which generation he has seen.
    PreconditionRequired,
    /// The key of the request was used for another one.
    KeyReused,
    /// Whoever did it is not heard of any more; what was done is not known.
    Interrupted,
    /// More bytes than are taken.
    TooLarge,
    /// A limit, or a policy of the tenant.
    Limit,
    /// Too many requests at once, or in a second.
    TooManyRequests,
    /// Try again, a little later.
    Retry,
    /// The store does not answer.
    Unreachable,
    /// The store does not let us in, has no room left, or does not do what we need.
    Denied,
    /// What is stored is damaged; nothing was changed.
    Corrupt,
    /// Whether it was done is not known; `op_id` names the operation.
    Unknown,
    /// The request did not come to its end in time.
    RequestTimeout,
    /// It took too long.
    TimedOut,
    /// A mistake of ours.
    Internal,
}

/// The document of a refusal.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Problem {
    /// The same as `code`, as a URI.
    #[serde(rename = "type")]
    kind: String,
    /// The same in words.
    title: &'static str,
    /// The status of the answer.
    pub(super) status: u16,
    pub(super) code: ProblemCode,
    /// What it was this time.
    pub(super) detail: String,
    /// Under which the log has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_id: Option<String>,
    /// What there is to know besides: `holder`, `op_id`, `candidates`, `generation`, ….
    #[serde(flatten)]
    more: BTreeMap<String, Value>,
}

impl ProblemCode {
    fn status(self) -> StatusCode {
        match self {
            Self::InvalidRequest => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::MisdirectedRequest => StatusCode::MISDIRECTED_REQUEST,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Held | Self::Ambiguous | Self::LockLost | Self::Diverged | Self::Interrupted => {
                StatusCode::CONFLICT
            }
            Self::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Self::PreconditionRequired => StatusCode::PRECONDITION_REQUIRED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Limit | Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::Retry | Self::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Denied => StatusCode::BAD_GATEWAY,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Self::Corrupt | Self::Unknown | Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::InvalidRequest => "The request is not valid",
            Self::Unauthorized => "A token is needed",
            Self::Forbidden => "The token does not allow this",
            Self::MisdirectedRequest => "This service is not called so",
            Self::NotFound => "There is no such thing",
            Self::MethodNotAllowed => "The route takes other methods",
            Self::Held => "Another holder is at it",
            Self::Ambiguous => "The name fits several things",
            Self::LockLost => "The lease was lost",
            Self::Diverged => "Another snapshot counts meanwhile",
            Self::PreconditionFailed => "It was changed meanwhile",
            Self::PreconditionRequired => "If-Match is needed",
            Self::KeyReused => "The key was used for another request",
            Self::Interrupted => "The request was interrupted",
            Self::TooLarge => "The request is too large",
            Self::Limit => "A limit or a policy does not allow this",
            Self::TooManyRequests => "Too many requests",
            Self::Retry => "Try again",
            Self::Unreachable => "The store does not answer",
            Self::Denied => "The store does not let the service do this",
            Self::Corrupt => "What is stored is damaged",
            Self::Unknown => "Whether it was done is not known",
            Self::RequestTimeout => "The request did not come in time",
            Self::TimedOut => "It took too long",
            Self::Internal => "A mistake of the service",
        }
    }
}

impl Problem {
    pub(super) fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        let word = serde_json::to_value(code).unwrap_or_default();
        Self {
            kind: format!("urn:stasis:problem:{}", word.as_str().unwrap_or_default()),
            title: code.title(),
            status: code.status().as_u16(),
            code,
            detail: detail.into(),
            request_id: None,
            more: BTreeMap::new(),
        }
    }

    /// Nothing is told of what is another tenant's, not even that it is there.
    pub(super) fn nowhere() -> Self {
        Self::new(
            ProblemCode::NotFound,
            "there is no such path, or none that this token can see",
        )
    }

    /// The parameters are not what the route takes.
    pub(super) fn parameters(why: &impl ToString) -> Self {
        Self::new(ProblemCode::InvalidRequest, why.to_string())
    }

    /// The body is not what the route takes.
    pub(super) fn body(why: &serde_json::Error) -> Self {
        Self::new(ProblemCode::InvalidRequest, format!("the body: {why}"))
    }

    /// It was changed since somebody looked.
    pub(super) fn moved(now: Option<Generation>) -> Self {
        let said = "the subject is not at the generation that If-Match names";
        let problem = Self::new(ProblemCode::PreconditionFailed, said);
        match now {
            Some(now) => problem.with("generation", now),
            None => problem,
        }
    }

    /// The same as it was answered before, from its document.
    pub(super) fn kept(document: &Value) -> Self {
        let word = document.get("code").cloned().unwrap_or_default();
        let Ok(code) = serde_json::from_value::<ProblemCode>(word) else {
            return Self::bug(&"a problem was kept that this build does not know");
        };
        let own = ["type", "title", "status", "code", "detail", "request_id"];
        let detail = document.get("detail").and_then(Value::as_str);
        let all = document.as_object().into_iter().flatten();
        let more = all.filter(|(name, _)| !own.contains(&name.as_str()));
        Self {
            more: more
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            ..Self::new(code, detail.unwrap_or_default())
        }
    }

    /// Nobody is to blame but us.
    pub(super) fn bug(why: &impl ToString) -> Self {
        tracing::error!(error = why.to_string(), "a mistake of the service");
        Self::new(ProblemCode::Internal, "the log of the service says more")
    }

    /// The same with one more field.
    pub(super) fn with(mut self, name: &str, value: impl Serialize) -> Self {
        let value = serde_json::to_value(value).unwrap_or_default();
        self.more.insert(name.to_owned(), value);
        self
    }

    /// One of those.
    pub(super) fn field(&self, name: &str) -> Option<&Value> {
        self.more.get(name)
    }

    pub(super) fn status(&self) -> StatusCode {
        self.code.status()
    }

    /// Whether it is worth asking again a second later.
    pub(super) fn is_passing(&self) -> bool {
        matches!(
            self.code,
            ProblemCode::Retry | ProblemCode::Unreachable | ProblemCode::TooManyRequests
        )
    }
}

fn code(error: &Error) -> ProblemCode {
    if let Error::Profile(error) = error
        && let ProfileError::AmbiguousSha { .. } | ProfileError::SeveralMajors { .. } = &**error
    {
        return ProblemCode::Ambiguous;
    }
    if let Error::Ambiguous { .. } = error {
        return ProblemCode::Ambiguous;
    }
    if let Error::Index(ChangeError::Refused(IndexRefusal::Moved { .. })) = error {
        return ProblemCode::PreconditionFailed;
    }
    match error.kind() {
        ErrorKind::Invalid => ProblemCode::InvalidRequest,
        ErrorKind::NotFound => ProblemCode::NotFound,
        ErrorKind::Conflict => ProblemCode::Held,
        ErrorKind::Fenced => ProblemCode::LockLost,
        ErrorKind::Diverged => ProblemCode::Diverged,
        ErrorKind::Limit => ProblemCode::Limit,
        ErrorKind::Retry | ErrorKind::Cancelled => ProblemCode::Retry,
        ErrorKind::Unreachable => ProblemCode::Unreachable,
        ErrorKind::Denied => ProblemCode::Denied,
        ErrorKind::Corrupt => ProblemCode::Corrupt,
        ErrorKind::Unknown => ProblemCode::Unknown,
        _ => ProblemCode::Internal,
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let of_store = of_store(&error);
        // Whether a change was made is more than why that is not known.
        let code = match code(&error) {
            ProblemCode::Unknown => ProblemCode::Unknown,
            code => of_store.unwrap_or(code),
        };
        let mut said = match of_store {
            // A bucket or a directory may be what it names.
            Some(_) => vec!["the store failed; the log of the service says more".to_owned()],
            None => vec![error.to_string()],
        };
        // Why the rules say no is what the caller must know; why a store or a disk failed is ours.
        if !code.status().is_server_error() {
            let causes = std::iter::successors(StdError::source(&error), |one| (*one).source());
            said.extend(causes.map(ToString::to_string));
        }
        let mut problem = Self::new(code, scrubbed(&said.join(": ")));
        if let Error::Profile(error) = &error {
            match &**error {
                ProfileError::AmbiguousSha { fits, .. } => {
                    problem = problem.with("candidates", fits);
                }
                ProfileError::SeveralMajors { majors, .. } => {
                    problem = problem.with("candidates", majors);
                }
                _ => {}
            }
        }
        if let Error::Index(ChangeError::Refused(IndexRefusal::Moved { found, .. })) = &error {
            problem = problem.with("generation", found);
        }
        let error = anyhow::Error::from(error);
        if problem.status().is_server_error() {
            let chain = error.chain().map(ToString::to_string);
            let chain: Vec<String> = chain.collect();
            tracing::error!(error = chain.join(": "), "a request failed");
        }
        problem.more.extend(report::fields(&error));
        problem
    }
}

/// What the caller is told where the store itself failed: nothing that he asked for was wrong.
fn of_store(error: &Error) -> Option<ProblemCode> {
    Some(match bucket_error(error)?.kind {
        BucketErrorKind::Absent | BucketErrorKind::Unreachable => ProblemCode::Unreachable,
        BucketErrorKind::Corrupt | BucketErrorKind::TooLarge => ProblemCode::Corrupt,
        // No access, no room, or something that it cannot do.
        _ => ProblemCode::Denied,
    })
}

/// The store's own failure, if that is what is behind an error.
fn bucket_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a BucketError> {
    let mut all = std::iter::successors(Some(error), |one| (*one).source());
    all.find_map(|one| {
        let inner = one.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        match inner {
            // It is not its own source: those of an error of the system are those of what is in it.
            Some(inner) => bucket_error(inner),
            None => direct(one),
        }
    })
}

/// The store's failure where an error is one, or only passes its words on: such an error is not its own source.
fn direct<'a>(one: &'a (dyn StdError + 'static)) -> Option<&'a BucketError> {
    let inner: &'a (dyn StdError + 'static) = if let Some(found) = one.downcast_ref::<BucketError>()
    {
        return Some(found);
    } else if let Some(ReadError::Bucket(found)) = one.downcast_ref::<ReadError>() {
        return Some(found);
    } else if let Some(ChangeError::Write(found)) = one.downcast_ref::<ChangeError>() {
        return Some(found);
    } else if let Some(ChangeError::Read(error)) = one.downcast_ref::<ChangeError>() {
        error
    } else if let Some(error) = one.downcast_ref::<Box<Error>>() {
        &**error
    } else {
        match one.downcast_ref::<Error>()? {
            Error::Bucket(found) => return Some(found),
            Error::Read(error) => error,
            Error::Index(error) => error,
            Error::Lineage(error) => &**error,
            Error::Failed(error) => error.io_source()?,
            Error::Profile(error) => match &**error {
                ProfileError::Manifest(error) | ProfileError::UnusableManifest(error) => error,
                _ => return None,
            },
            _ => return None,
        }
    };
    bucket_error(inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_engine::model::failure::Failure;

    #[test]
    fn what_the_store_does_wrong_is_not_the_callers_mistake_and_tells_nothing() {
        use BucketErrorKind as Kind;
        let failed = |kind| BucketError::new(kind, "read", "secret-bucket").because("secret-cause");
        for (kind, code) in [
            (Kind::Absent, ProblemCode::Unreachable),
            (Kind::Unreachable, ProblemCode::Unreachable),
            (Kind::Denied, ProblemCode::Denied),
            (Kind::Full, ProblemCode::Denied),
            (Kind::Unsupported, ProblemCode::Denied),
            (Kind::Corrupt, ProblemCode::Corrupt),
            (Kind::TooLarge, ProblemCode::Corrupt),
        ] {
            let read = || ReadError::Bucket(failed(kind));
            let io = io::Error::other(failed(kind));
            for error in [
                Error::Bucket(failed(kind)),
                Error::Read(read()),
                Error::Index(ChangeError::Read(read())),
                Error::Index(ChangeError::Write(failed(kind))),
                ProfileError::Manifest(read()).into(),
                ProfileError::UnusableManifest(read()).into(),
                Failure::new(ErrorKind::NotFound, "open", "x")
                    .because(io)
                    .into(),
            ] {
                let problem = Problem::from(error);
                assert_eq!(problem.code, code, "{kind:?}");
                assert!(problem.status().is_server_error(), "{kind:?}");
                let text = serde_json::to_string(&problem).unwrap();
                assert!(!text.contains("secret"), "{text}");
            }
        }
    }
}
