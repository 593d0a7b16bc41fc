//! Leases: who may write which profile.
//!
//! A lease is held by whoever has its token, `<epoch>.<operation>`, which `POST /v1/leases` answers and no list shows.

use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply};
use crate::http::parameters::{PageSize, ProfileName, page};
use crate::http::problem::Problem;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_engine::lease::{Acquire, Acquired, Changed, LeaseRow, UnreadableLease};
use stasis_engine::model::format::lease::{Fence, Holder};
use stasis_engine::model::format::token::TokenScope;
use stasis_engine::model::id::Label;
use std::num::NonZeroU64;
use std::time::Duration;

/// What `acquire` answered, and whoever has it may renew and release.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct LeaseToken(Fence);

impl TryFrom<String> for LeaseToken {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let fence = text.parse::<Fence>();
        Ok(Self(fence.map_err(|why| why.to_string())?))
    }
}

impl JsonSchema for LeaseToken {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "LeaseToken".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9]+[.].+$" })
    }
}

fn duration(ttl_ms: Option<NonZeroU64>) -> Option<Duration> {
    ttl_ms.map(|ttl| Duration::from_millis(ttl.get()))
}

/// `GET /v1/leases`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ListLeases {
    /// Where the page before this one ended: its `next_cursor`
    #[serde(default)]
    cursor: Option<String>,
    /// How many there are at most: those that expire next
    #[serde(default)]
    limit: PageSize,
}

/// Who holds what.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct LeasePage {
    /// Those that somebody holds come first, the one that expires next at the head; then the others by name.
    items: Vec<LeaseRow>,
    /// How many there are in all.
    total: u64,
    /// Those that cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<UnreadableLease>,
    /// Where the next page begins; there is none where this is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// Where a lease stands in the list, whenever somebody asks: a text that sorts as the list does.
fn place(row: &LeaseRow) -> String {
    if row.live {
        format!("held {} {}", row.expires_at, row.subject)
    } else {
        format!("nobody {}", row.subject)
    }
}

impl Endpoint for ListLeases {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/leases";
    const NAME: &'static str = "list_leases";
    const SUMMARY: &'static str = "List who holds which profile; what expires next comes first";
    const ACCESS: Access = Access::Token(TokenScope::Read);
    type Body = NoBody;
    type Answer = LeasePage;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<LeasePage>, Problem> {
        let engine = call.engine.for_listing();
        let list = engine.leases().list(&call.tenant()?).await?;
        let total = list.items.len() as u64;
        let rows = list.items.into_iter().map(|row| (place(&row), row));
        let mut rows: Vec<(String, LeaseRow)> = rows.collect();
        rows.sort_by(|(one, _), (other, _)| one.cmp(other));
        let cursor = self.cursor.as_deref();
        let (rows, next_cursor) = page(rows, cursor, self.limit, |(place, _)| place);
        Ok(LeasePage {
            items: rows.into_iter().map(|(_, row)| row).collect(),
            total,
            next_cursor,
            unreadable: list.unreadable,
        }
        .into())
    }
}

/// `POST /v1/leases`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct AcquireLease {}

/// Which profile, and for whom.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct AcquireBody {
    /// The profile with its major version of Chrome: `alice@131`
    id: ProfileName,
    /// The run, as the caller knows it; without it, one is made up
    #[serde(default)]
    run_id: Option<Label>,
    /// Where the holder runs
    #[serde(default)]
    host: Label,
    /// What that host calls the run
    #[serde(default)]
    host_run_id: Label,
    /// For how long without a renewal; the tenant's policy says it when this is not given
    #[serde(default)]
    ttl_ms: Option<NonZeroU64>,
}

impl Endpoint for AcquireLease {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/v1/leases";
    const NAME: &'static str = "acquire_lease";
    const SUMMARY: &'static str =
        "Become the owner of a profile; a 409 has the `holder` where it has one";
    const ACCESS: Access = Access::Token(TokenScope::Write);
    type Body = AcquireBody;
    type Answer = Acquired;

    async fn serve(self, body: AcquireBody, call: &Call) -> Result<Reply<Acquired>, Problem> {
        let leases = call.engine.leases();
        let run_id = body.run_id.filter(|run_id| *run_id != Label::nobody());
        let cmd = Acquire {
            lineage: body.id.of(&call.tenant()?),
            holder: Holder {
                run_id: run_id.unwrap_or_else(|| leases.new_run_id()),
                host: body.host,
                host_run_id: body.host_run_id,
            },
            ttl: duration(body.ttl_ms),
        };
        let acquired = leases.acquire(cmd).await;
        let samples = call.metrics.of_profiles().leased(&acquired);
        call.metrics.add(samples);
        Ok(acquired?.into())
    }
}

/// `POST /v1/leases/{id}/renew`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RenewLease {
    /// The profile with its major version of Chrome: `alice@131`
    id: ProfileName,
}

/// Which lease of it, and for how long.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RenewBody {
    /// What `acquire` answered: `<epoch>.<operation>`
    token: LeaseToken,
    /// For how long from now; the tenant's policy says it when this is not given
    #[serde(default)]
    ttl_ms: Option<NonZeroU64>,
}

impl Endpoint for RenewLease {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/v1/leases/{id}/renew";
    const NAME: &'static str = "renew_lease";
    const SUMMARY: &'static str =
        "Prolong a lease; a 409 says that it is lost: stop working on the profile then";
    const ACCESS: Access = Access::Token(TokenScope::Write);
    type Body = RenewBody;
    type Answer = Changed;

    async fn serve(self, body: RenewBody, call: &Call) -> Result<Reply<Changed>, Problem> {
        let lineage = self.id.of(&call.tenant()?);
        let (token, ttl) = (body.token.0, duration(body.ttl_ms));
        let renewed = call.engine.leases().renew(&lineage, token, ttl).await?;
        let generation = renewed.lock.generation;
        Ok(Reply::of(renewed, Some(generation)))
    }
}

/// `POST /v1/leases/{id}/release`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ReleaseLease {
    /// The profile with its major version of Chrome: `alice@131`
    id: ProfileName,
}

/// Which lease of it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ReleaseBody {
    /// What `acquire` answered: `<epoch>.<operation>`
    token: LeaseToken,
}

impl Endpoint for ReleaseLease {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/v1/leases/{id}/release";
    const NAME: &'static str = "release_lease";
    const SUMMARY: &'static str = "Give a lease back; once more does no harm";
    const ACCESS: Access = Access::Token(TokenScope::Write);
    type Body = ReleaseBody;
    type Answer = Changed;

    async fn serve(self, body: ReleaseBody, call: &Call) -> Result<Reply<Changed>, Problem> {
        let lineage = self.id.of(&call.tenant()?);
        let released = call.engine.leases().release(&lineage, body.token.0).await?;
        let generation = released.lock.generation;
        Ok(Reply::of(released, Some(generation)))
    }
}
