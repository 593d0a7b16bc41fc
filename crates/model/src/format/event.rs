//! Events: every forced, destructive or degraded act, for the person who asks later what happened.

use crate::display_as_serialized;
use crate::format::document::Document;
use crate::id::{Label, Lineage, OpId, PROFILE_PREFIX, SESSION_PREFIX};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// An operator fenced an owner out.
    ForceUnlock,
    /// The reaper freed the lock of a dead holder.
    LockReaped,
    /// An expired lock was taken over.
    LockTakenOver,
    /// A holder found that its lease is not its own any more.
    LockLost,
    /// An operator chose an older snapshot.
    Rollback,
    /// A snapshot was marked for removal.
    Delete,
    /// A tenant's policy was changed.
    PolicyChanged,
    /// A snapshot was stored but not published.
    Diverged,
    /// The data key of an encrypted lineage was wrapped by another key.
    Rekeyed,
    /// A snapshot was not loaded, and a run went on with a fresh profile.
    FreshFallback,
    /// A snapshot was loaded in another region than the one that it was captured in not long before.
    RegionChanged,
    /// The active snapshot could not be loaded, and a run went on with an older one.
    PredecessorLoaded,
    /// A profile was carried to a newer Chrome.
    ProfileUpgraded,
    /// A snapshot was stored but not published, because of what is in it.
    NotPublished,
    /// An operation ended without a known outcome.
    OutcomeUnknown,
    /// An operator forgot snapshots of a repository that cannot be read any more.
    ForgetDamaged,
    /// An operator had damaged documents made anew.
    Repaired,
    /// An operator accepted that a store went back to an earlier state.
    RollbackAccepted,
    /// A session was deleted with its snapshot.
    SessionDeleted,
    /// The sandbox of a session was ended although not everything in it was saved, or was found gone.
    SessionLost,
    /// A token of the service was made.
    TokenCreated,
    /// A token of the service was taken back.
    TokenRevoked,
    /// A snapshot could not be restored by the job that tries.
    ProofFailed,
    /// An operator forgot all snapshots of a name in a repository.
    #[serde(rename = "retire")]
    ForgetAll,
}

/// How loud an event is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum Severity {
    /// A user did something on purpose.
    Info,
    /// A user should look.
    Warning,
}

display_as_serialized!(EventKind, Severity);

/// The document `events/<tenant>/<day>/<id>.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditEvent {
    version: u64,
    /// The event's own id.
    pub id: OpId,
    /// What happened.
    pub kind: EventKind,
    /// How loud it is.
    pub severity: Severity,
    /// When, by the writer's clock.
    pub at_ms: Timestamp,
    /// To which lineage, if to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Lineage>,
    /// By which operation, if by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op_id: Option<OpId>,
    /// Who did it: a run, a host, an operator.
    pub actor: Label,
    /// What else there is to say, each under its own name.
    #[serde(default)]
    pub details: Map<String, Value>,
}

impl Document for AuditEvent {
    const NAME: &'static str = "the event";
}

impl AuditEvent {
    /// An event without details.
    pub fn new(
        id: OpId,
        kind: EventKind,
        severity: Severity,
        at_ms: Timestamp,
        actor: Label,
    ) -> Self {
        let (version, details) = (Self::VERSION, Map::new());
        Self {
            version,
            id,
            kind,
            severity,
            at_ms,
            subject: None,
            op_id: None,
            actor,
            details,
        }
    }

    /// The same event, about a lineage and caused by an operation.
    #[must_use = "the event is not changed in place"]
    pub fn about(self, subject: Lineage, op_id: OpId) -> Self {
        Self {
            subject: Some(subject),
            op_id: Some(op_id),
            ..self
        }
    }

    /// The subject that it happened to, as it is typed, of a profile without the major version of its browser: `dir:notes`,
    /// `profile:acme/alice`; nothing, if it happened to none.
    pub fn happened_to(&self) -> Option<String> {
        if let Some(Lineage {
            tenant, profile, ..
        }) = &self.subject
        {
            return Some(format!("{PROFILE_PREFIX}{tenant}/{profile}"));
        }
        let said = |name: &str| self.details.get(name).and_then(Value::as_str);
        if let Some(session) = said("session") {
            return Some(format!("{SESSION_PREFIX}{session}"));
        }
        let subject = said("subject")?;
        // What a command takes besides, such as the tenant, is no part of the name.
        let name = subject.split_once(' ').map_or(subject, |(name, _)| name);
        let profile = name.starts_with(PROFILE_PREFIX);
        let without_major = name.rsplit_once('@').filter(|_| profile);
        Some(without_major.map_or(name, |(name, _)| name).to_owned())
    }

    /// The same event with one more detail.
    #[must_use = "the event is not changed in place"]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    #[test]
    fn an_event_says_what_it_happened_to_whichever_way_that_is_written_down() {
        let (id, actor) = (OpId::default(), Label::nobody());
        let at = Timestamp::from_millis(0);
        let event = AuditEvent::new(id, EventKind::Delete, Severity::Info, at, actor);
        let with = |name: &str, value: &str| event.clone().with(name, value).happened_to();

        let lineage: Lineage = "acme/alice@131".parse().unwrap();
        let of_profile = event.clone().about(lineage, id).happened_to();
        assert_eq!(of_profile.as_deref(), Some("profile:acme/alice"));
        for (name, value, subject) in [
            ("session", "acme/42", "session:acme/42"),
            ("subject", "dir:notes", "dir:notes"),
            ("subject", "dir:notes --tenant acme", "dir:notes"),
            ("subject", "profile:acme/alice@131", "profile:acme/alice"),
        ] {
            assert_eq!(with(name, value).as_deref(), Some(subject), "{value}");
        }
        assert_eq!(with("token", "x"), None);
    }
}
