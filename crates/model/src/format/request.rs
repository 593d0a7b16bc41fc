//! Requests of the service that outlive the connection they came over: what was asked for, and what became of it.
//!
//! 1. the document is made, by a conditional write, before anything is done   2. it is renewed while the work goes on
//! 3. it ends with the answer or with what went wrong
//!
//! *Always true:* a request with a key has one name, so that of two with one key one begins and the other finds it. One that is not
//! renewed any more is interrupted, never running: nobody knows how far it came, and nobody does it again by himself. Only one that
//! ended with nothing done, because something was busy or out of reach, begins once more under its key.

use crate::digest::RequestDigest;
use crate::format::document::Document;
use crate::format::token::TokenScope;
use crate::id::{Generation, Label, OpId, TenantId};
use crate::invalid::Invalid;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// For how long a request counts as running after it was begun, or renewed.
pub const RENEWED_WITHIN: Duration = Duration::from_secs(45);
/// For how long the answer is kept after the end.
pub const KEPT: Duration = Duration::from_hours(24);
/// The longest answer that is kept.
pub const LONGEST_ANSWER: usize = 128 << 10;
/// The longest key.
const LONGEST_KEY: usize = 255;

/// Which request it is: the name of its document, and the id of the operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct RequestId(OpId);

impl RequestId {
    /// That of a request which nobody will ever ask for again.
    pub fn new(random: OpId) -> Self {
        Self(random)
    }

    /// That of every request of a tenant with this key. The key itself is in no name.
    pub fn of_key(tenant: &TenantId, key: &IdempotencyKey) -> Self {
        let mut hash = Sha256::new();
        for part in ["stasis request", tenant.as_str(), &key.0] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        let digest: [u8; 32] = hash.finalize().into();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self(OpId::from_random(bytes))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RequestId({self})")
    }
}

impl FromStr for RequestId {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let id: OpId = text.parse()?;
        // One way to write it, because it is a name in the store.
        if id.to_string() == text {
            Ok(Self(id))
        } else {
            Err(Invalid::new("an id has lower-case digits and dashes"))
        }
    }
}

/// What a client sends to have a request done once: `Idempotency-Key`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdempotencyKey(String);

impl FromStr for IdempotencyKey {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let is_key = !text.is_empty()
            && text.len() <= LONGEST_KEY
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        let bad = || Invalid::new("a key has 1 to 255 visible characters of ASCII");
        is_key.then(|| Self(text.to_owned())).ok_or_else(bad)
    }
}

/// How a request stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RequestState {
    /// Somebody is at it.
    Running,
    /// It was done, and there is an answer.
    Done,
    /// It was not done, or not known to be; there is a problem that says which.
    Failed,
    /// Whoever was at it is not heard of any more. What was done and what was not is not known.
    Interrupted,
}

crate::display_as_serialized!(RequestState);

impl RequestState {
    /// Whether nobody is at it any more.
    pub fn is_over(self) -> bool {
        self != Self::Running
    }
}

/// How far the work has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RequestProgress {
    /// Files that are done.
    pub files: u64,
    /// Bytes that are done.
    pub bytes: u64,
    /// Files there will be, as far as is known by now; 0 while nothing is.
    pub files_expected: u64,
    /// Bytes there will be, as far as is known by now; 0 while nothing is.
    pub bytes_expected: u64,
}

/// How a request ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestEnd {
    /// It was done.
    Done {
        /// What was answered; nothing where that is too long to be kept.
        answer: Option<Value>,
        /// The generation of what it is about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        generation: Option<Generation>,
    },
    /// It failed.
    Failed {
        /// What was answered.
        problem: Value,
        /// Whether nothing was done, and it may be done under the same key.
        #[serde(default)]
        may_begin_again: bool,
    },
}

/// What is asked for, and by whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestMade {
    /// Whose data it is about.
    pub tenant: TenantId,
    /// What is to be done, as the service calls it.
    pub route: Label,
    /// What a token must allow to do it, and to see what was answered.
    pub scope: TokenScope,
    /// With which token.
    pub by: Label,
    /// Everything that was asked for: another request has another one.
    pub request_sha256: RequestDigest,
}

/// The document `requests/<tenant>/<id>.json`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RequestDocument {
    version: u64,
    /// Which.
    pub id: RequestId,
    /// Whose data it is about.
    pub tenant: TenantId,
    /// What is to be done, as the service calls it.
    pub route: Label,
    /// What a token must allow to do it, and to see what was answered.
    pub scope: TokenScope,
    /// With which token.
    pub by: Label,
    /// Everything that was asked for: another request has another one.
    pub request_sha256: RequestDigest,
    /// Who is at it: one that begins again has another one.
    pub attempt: OpId,
    /// When it was begun.
    pub begun_at_ms: Timestamp,
    /// When it was last known to go on.
    pub renewed_at_ms: Timestamp,
    /// For how long after that it counts as running.
    pub renewed_within_ms: u64,
    /// How far it had come by then.
    #[serde(default)]
    pub progress: RequestProgress,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at_ms: Option<Timestamp>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<RequestEnd>,
    /// The operation that wrote these bytes.
    pub op_id: OpId,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Document for RequestDocument {
    const NAME: &'static str = "the request";
}

impl RequestDocument {
    /// The document of a request that begins now.
    pub fn begun(id: RequestId, made: RequestMade, now: Timestamp, attempt: OpId) -> Self {
        Self {
            version: Self::VERSION,
            id,
            tenant: made.tenant,
            route: made.route,
            scope: made.scope,
            by: made.by,
            request_sha256: made.request_sha256,
            attempt,
            begun_at_ms: now,
            renewed_at_ms: now,
            renewed_within_ms: u64::try_from(RENEWED_WITHIN.as_millis()).unwrap_or(u64::MAX),
            progress: RequestProgress::default(),
            ended_at_ms: None,
            end: None,
            op_id: attempt,
            extra: Map::new(),
        }
    }

    /// How it stands at `now`.
    pub fn state(&self, now: Timestamp) -> RequestState {
        match &self.end {
            Some(RequestEnd::Done { .. }) => RequestState::Done,
            Some(RequestEnd::Failed { .. }) => RequestState::Failed,
            None if self.heard_until() >= now => RequestState::Running,
            None => RequestState::Interrupted,
        }
    }

    /// Until when it counts as running unless it is renewed.
    fn heard_until(&self) -> Timestamp {
        let within = Duration::from_millis(self.renewed_within_ms);
        self.renewed_at_ms.plus(within)
    }

    /// Whether it asks for the same, and nothing was done: then it may begin once more.
    pub fn may_begin_again(&self, made: &RequestMade) -> bool {
        let is_open = matches!(
            self.end,
            Some(RequestEnd::Failed {
                may_begin_again: true,
                ..
            })
        );
        is_open && self.request_sha256 == made.request_sha256
    }

    /// Whether this attempt is the one that is at it.
    pub fn is_run_by(&self, attempt: OpId) -> bool {
        self.attempt == attempt && self.end.is_none()
    }

    /// The same, known to go on at `now`.
    #[must_use = "the document is not changed in place"]
    pub fn renewed(mut self, progress: RequestProgress, now: Timestamp, op_id: OpId) -> Self {
        self.progress = progress;
        self.renewed_at_ms = self.renewed_at_ms.max(now);
        self.op_id = op_id;
        self
    }

    /// The same, at its end.
    #[must_use = "the document is not changed in place"]
    pub fn ended(mut self, end: RequestEnd, now: Timestamp, op_id: OpId) -> Self {
        self.end = Some(end);
        self.ended_at_ms = Some(self.begun_at_ms.max(now));
        self.op_id = op_id;
        self
    }

    /// Whether it may be removed: it ended, or was last heard of, long enough ago.
    pub fn is_outdated(&self, now: Timestamp) -> bool {
        let last = self.ended_at_ms.unwrap_or_else(|| self.heard_until());
        last.plus(KEPT) <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::document;

    fn made(what: &str) -> RequestMade {
        RequestMade {
            tenant: "acme".parse().unwrap(),
            route: "rollback".parse().unwrap(),
            scope: TokenScope::Write,
            by: Label::nobody(),
            request_sha256: RequestDigest::of(what.as_bytes()),
        }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn begun() -> RequestDocument {
        let id = RequestId::new(OpId::from_random([1; 16]));
        RequestDocument::begun(id, made("a"), at(100), OpId::from_random([2; 16]))
    }

    fn failed(may_begin_again: bool) -> RequestEnd {
        RequestEnd::Failed {
            problem: Value::Null,
            may_begin_again,
        }
    }

    #[test]
    fn one_that_is_not_renewed_any_more_is_interrupted_and_never_running() {
        let request = begun();
        assert_eq!(request.state(at(145)), RequestState::Running);
        assert_eq!(request.state(at(146)), RequestState::Interrupted);

        let op_id = OpId::from_random([3; 16]);
        let renewed = request.renewed(RequestProgress::default(), at(140), op_id);
        assert_eq!(renewed.state(at(185)), RequestState::Running);
        assert_eq!(renewed.state(at(186)), RequestState::Interrupted);
        // A clock that went back takes nothing away.
        let earlier = renewed.renewed(RequestProgress::default(), at(50), op_id);
        assert_eq!(earlier.state(at(185)), RequestState::Running);

        let done = RequestEnd::Done {
            answer: None,
            generation: None,
        };
        let done = earlier.ended(done, at(150), op_id);
        assert_eq!(done.state(at(999_999)), RequestState::Done);
    }

    #[test]
    fn only_what_did_nothing_begins_again_and_only_for_the_same_request() {
        let op_id = OpId::from_random([3; 16]);
        assert!(!begun().may_begin_again(&made("a")));
        let closed = begun().ended(failed(false), at(110), op_id);
        assert!(!closed.may_begin_again(&made("a")));
        let open = begun().ended(failed(true), at(110), op_id);
        assert!(open.may_begin_again(&made("a")));
        assert!(!open.may_begin_again(&made("b")));
    }

    #[test]
    fn it_is_kept_for_a_day_after_its_end_or_after_it_was_last_heard_of() {
        let day = KEPT.as_secs();
        assert!(!begun().is_outdated(at(144 + day)));
        assert!(begun().is_outdated(at(145 + day)));
        let ended = begun().ended(failed(false), at(110), OpId::default());
        assert!(!ended.is_outdated(at(109 + day)));
        assert!(ended.is_outdated(at(110 + day)));
    }

    #[test]
    fn a_key_leads_to_one_name_of_its_tenant_and_is_not_in_it() {
        let key = |text: &str| text.parse::<IdempotencyKey>().unwrap();
        let (acme, other) = ("acme".parse().unwrap(), "other".parse().unwrap());
        let id = RequestId::of_key(&acme, &key("deadbeef"));

        assert_eq!(id, RequestId::of_key(&acme, &key("deadbeef")));
        assert_ne!(id, RequestId::of_key(&acme, &key("deadbeee")));
        assert_ne!(id, RequestId::of_key(&other, &key("deadbeef")));
        assert!(!id.to_string().contains("deadbeef"));
        assert_eq!(id.to_string().parse::<RequestId>().unwrap(), id);
        let upper = id.to_string().to_uppercase();
        assert!(upper.parse::<RequestId>().is_err());
        let long = "x".repeat(256);
        for bad in ["", "a b", "a\n", "ä", long.as_str()] {
            assert!(bad.parse::<IdempotencyKey>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_document_is_read_as_it_was_written() {
        let end = RequestEnd::Done {
            answer: Some(serde_json::json!({ "applied": true })),
            generation: Some(Generation(7)),
        };
        let request = begun().ended(end, at(110), OpId::default());

        let read: RequestDocument = document::parse(&document::render(&request)).unwrap();

        assert_eq!(read, request);
    }
}
