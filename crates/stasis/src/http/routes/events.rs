//! Forced, destructive and degraded acts.

use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply};
use crate::http::parameters::PageSize;
use crate::http::private::scrub;
use crate::http::problem::Problem;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_engine::model::format::event::AuditEvent;
use stasis_engine::model::format::token::TokenScope;

/// `GET /v1/events`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ListEvents {
    /// How many there are at most, the newest
    #[serde(default)]
    limit: PageSize,
}

/// The end of the tenant's log.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct EventPage {
    /// The oldest first.
    items: Vec<LoggedEvent>,
    /// How many lie among them that cannot be read.
    unreadable: u64,
}

/// What happened.
#[derive(Serialize, JsonSchema)]
pub(super) struct LoggedEvent {
    /// When, by the writer's clock.
    at: String,
    #[serde(flatten)]
    event: AuditEvent,
}

impl From<AuditEvent> for LoggedEvent {
    fn from(mut event: AuditEvent) -> Self {
        // Somebody else's host may be named in it, and where the store is.
        event.details.values_mut().for_each(scrub);
        Self {
            at: event.at_ms.to_string(),
            event,
        }
    }
}

impl Endpoint for ListEvents {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/events";
    const NAME: &'static str = "list_events";
    const SUMMARY: &'static str = "Show the newest forced, destructive and degraded acts";
    const ACCESS: Access = Access::Token(TokenScope::Read);
    type Body = NoBody;
    type Answer = EventPage;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<EventPage>, Problem> {
        let tenant = call.tenant()?;
        let log = call
            .engine
            .events()
            .latest(Some(&tenant), self.limit.rows());
        let log = log.await?;
        let items = log.events.into_iter().map(|(_, event)| event.into());
        Ok(EventPage {
            items: items.collect(),
            unreadable: log.unreadable.len() as u64,
        }
        .into())
    }
}
