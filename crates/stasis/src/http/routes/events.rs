//! Forced, destructive and degraded acts.

use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply};
use crate::http::parameters::{PageSize, page};
use crate::http::private::scrub;
use crate::http::problem::Problem;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_engine::events::EventPlace;
use stasis_engine::model::format::event::AuditEvent;
use stasis_engine::model::format::token::TokenScope;
use stasis_engine::model::time::Timestamp;

/// `GET /v1/events`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ListEvents {
    /// Where the page before this one ended: its `next_cursor`; the newest, without one
    #[serde(default)]
    cursor: Option<EventCursor>,
    /// How many there are at most: the newest before that
    #[serde(default)]
    limit: PageSize,
}

/// Where an event stands in the log: the milliseconds of its moment, and its id.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct EventCursor(EventPlace);

impl TryFrom<String> for EventCursor {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        let place = || {
            let (at, id) = text.split_once('.')?;
            let at_ms = Timestamp::from_millis(at.parse().ok()?);
            let id = id.parse().ok()?;
            Some(EventPlace { at_ms, id })
        };
        place().map(Self).ok_or("it is the `next_cursor` of a page")
    }
}

impl JsonSchema for EventCursor {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "EventCursor".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let id = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
        schemars::json_schema!({ "type": "string", "pattern": format!("^[0-9]{{1,15}}[.]{id}$") })
    }
}

/// A part of the tenant's log, the last one without a cursor.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct EventPage {
    /// The oldest first.
    items: Vec<LoggedEvent>,
    /// How many lie among them that cannot be read.
    unreadable: u64,
    /// Where the page of older ones begins; there is none where this is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
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
        let place = self.cursor.map(|cursor| cursor.0);
        let log = call.engine.events();
        let log = log.before(&tenant, place, self.limit.rows() + 1).await?;
        let newest_first = log.events.into_iter().rev().map(|event| {
            let place = format!("{}.{}", event.at_ms.millis(), event.id);
            (place, LoggedEvent::from(event))
        });
        let rows = newest_first.collect();
        // What comes before the cursor was left out where it was read.
        let (rows, next_cursor) = page(rows, None, self.limit, |(place, _)| place);
        Ok(EventPage {
            items: rows.into_iter().rev().map(|(_, event)| event).collect(),
            unreadable: log.unreadable.len() as u64,
            next_cursor,
        }
        .into())
    }
}
