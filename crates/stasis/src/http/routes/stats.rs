//! How much of the store a tenant has.

use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply};
use crate::http::problem::Problem;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_engine::model::format::token::TokenScope;
use stasis_engine::model::id::TenantId;
use stasis_engine::model::time::Clock;
use stasis_engine::open::Engine;
use stasis_engine::store_stats::StoreStats;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// For how long a count counts: it reads every index of the tenant, and lists all its chunks.
const REMEMBERED: Duration = Duration::from_mins(1);

/// `GET /v1/stats`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ShowStats {}

/// How much the tenant has, and when that was counted.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(in crate::http) struct TenantStats {
    /// When it was counted; it is counted once a minute at most.
    counted_at: String,
    /// The same in milliseconds.
    counted_at_ms: u64,
    /// How long counting took.
    took_ms: u64,
    /// Bytes of all files of everything that is stored in chunks, divided by the bytes of those; none where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    dedup_ratio: Option<f64>,
    #[serde(flatten)]
    stats: StoreStats,
}

/// What was counted last, and when: whoever counts has it.
type LastCount = Arc<tokio::sync::Mutex<Option<(Duration, TenantStats)>>>;

/// What each tenant has. However many ask, it is counted once a minute at most.
#[derive(Debug)]
pub(in crate::http) struct CountedTenants {
    clock: Arc<dyn Clock>,
    last: Mutex<HashMap<TenantId, LastCount>>,
}

impl CountedTenants {
    pub(in crate::http) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            last: Mutex::default(),
        }
    }

    async fn of(&self, engine: &Engine, tenant: &TenantId) -> Result<TenantStats, Problem> {
        let last = {
            let mut all = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(tenant.clone()).or_default().clone()
        };
        let mut last = last.lock().await;
        let began = self.clock.uptime();
        if let Some((at, stats)) = &*last
            && began.saturating_sub(*at) < REMEMBERED
        {
            return Ok(stats.clone());
        }
        let stats = engine.store_stats(Some(tenant)).await?;
        let (now, ended) = (self.clock.now(), self.clock.uptime());
        let took = ended.saturating_sub(began);
        let counted = TenantStats {
            counted_at: now.to_string(),
            counted_at_ms: now.millis(),
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            dedup_ratio: stats.dedup_ratio(),
            stats,
        };
        *last = Some((ended, counted.clone()));
        Ok(counted)
    }
}

impl Endpoint for ShowStats {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/stats";
    const NAME: &'static str = "show_stats";
    const SUMMARY: &'static str = "Count what the tenant has: subjects, snapshots, bytes, leases";
    const ACCESS: Access = Access::Token(TokenScope::Read);
    type Body = NoBody;
    type Answer = TenantStats;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<TenantStats>, Problem> {
        let tenant = call.tenant()?;
        Ok(call.counted.of(&call.engine, &tenant).await?.into())
    }
}
