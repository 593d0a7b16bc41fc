//! Who asks.
//!
//! A token that was read counts for ten seconds, so that a client that asks often costs the store little, and one that was taken back
//! ends that fast. Of tokens that do not count nothing is kept: how many of those are looked up in a second is limited instead.

use super::limits::TokenBucket;
use super::problem::{Problem, ProblemCode};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use stasis_engine::model::format::token::{BearerToken, SecretDigest, TokenId, TokenScope};
use stasis_engine::model::id::{Label, TenantId};
use stasis_engine::model::time::Clock;
use stasis_engine::open::Engine;
use stasis_engine::tokens::TokenHolder;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// For how long a token that was read counts.
const BELIEVED: Duration = Duration::from_secs(10);
/// How many are remembered.
const REMEMBERED: usize = 10_000;
/// How many tokens are looked up in a second that were not known.
const LOOKUPS: u32 = 50;

/// Who asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Caller {
    /// Whoever has this token.
    Holder(TokenHolder),
    /// Somebody on this host, who needs none.
    Loopback,
}

impl Caller {
    /// The only tenant whose data there is for them.
    pub(super) fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::Holder(holder) => Some(&holder.tenant),
            Self::Loopback => None,
        }
    }

    /// Whether they may know of this tenant.
    pub(super) fn may_see(&self, tenant: &TenantId) -> bool {
        self.tenant().is_none_or(|own| own == tenant)
    }

    /// Whether they may do what needs this.
    pub(super) fn may(&self, scope: TokenScope) -> bool {
        match self {
            Self::Holder(holder) => holder.scope >= scope,
            Self::Loopback => true,
        }
    }

    /// What they are called in the log of events.
    pub(super) fn actor(&self) -> Label {
        let name = match self {
            Self::Holder(holder) => format!("token:{}", holder.id),
            Self::Loopback => "loopback".to_owned(),
        };
        name.parse().expect("it is a label")
    }
}

/// A token that counted when it was read.
#[derive(Debug)]
struct Believed {
    secret: SecretDigest,
    holder: TokenHolder,
    read_at: Duration,
}

/// Looks up who asks.
#[derive(Debug)]
pub(super) struct Tokens {
    engine: Engine,
    clock: Arc<dyn Clock>,
    /// Whether whoever reaches us needs none.
    none_needed: bool,
    believed: Mutex<HashMap<TokenId, Believed>>,
    lookups: TokenBucket,
}

impl Tokens {
    pub(super) fn new(engine: Engine, clock: Arc<dyn Clock>, none_needed: bool) -> Self {
        Self {
            engine,
            lookups: TokenBucket::new(LOOKUPS, clock.uptime()),
            clock,
            none_needed,
            believed: Mutex::default(),
        }
    }

    /// Who asks; everything that is wrong with a token is the same refusal.
    pub(super) async fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let mut all = headers.get_all(AUTHORIZATION).iter();
        let (first, second) = (all.next(), all.next());
        let shown = match (first, second) {
            (None, _) if self.none_needed => return Ok(Caller::Loopback),
            (Some(one), None) => one.to_str().ok().and_then(bearer),
            _ => None,
        };
        let token = shown.ok_or_else(refused)?;
        let now = self.clock.uptime();
        if let Some(holder) = self.remembered(&token, now) {
            return Ok(Caller::Holder(holder));
        }
        if !self.lookups.take(now) {
            let said = "too many tokens were shown that are not known";
            return Err(Problem::new(ProblemCode::TooManyRequests, said));
        }
        let found = self.engine.tokens().holder(&token).await?;
        let holder = found.ok_or_else(refused)?;
        self.lookups.give_back();
        self.remember(&token, &holder, now);
        Ok(Caller::Holder(holder))
    }

    fn remembered(&self, token: &BearerToken, now: Duration) -> Option<TokenHolder> {
        let mut believed = self.believed.lock().unwrap_or_else(PoisonError::into_inner);
        let one = believed.get(&token.id())?;
        let is_over = one
            .holder
            .expires_at
            .is_some_and(|end| end <= self.clock.now());
        if is_over || now.saturating_sub(one.read_at) >= BELIEVED {
            believed.remove(&token.id());
            return None;
        }
        (one.secret == token.digest()).then(|| one.holder.clone())
    }

    fn remember(&self, token: &BearerToken, holder: &TokenHolder, now: Duration) {
        let mut believed = self.believed.lock().unwrap_or_else(PoisonError::into_inner);
        if believed.len() >= REMEMBERED {
            believed.retain(|_, one| now.saturating_sub(one.read_at) < BELIEVED);
        }
        if believed.len() < REMEMBERED {
            let one = Believed {
                secret: token.digest(),
                holder: holder.clone(),
                read_at: now,
            };
            believed.insert(token.id(), one);
        }
    }
}

/// The token of `Bearer …`.
fn bearer(text: &str) -> Option<BearerToken> {
    let (scheme, token) = text.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    is_bearer.then_some(token)?.trim().parse().ok()
}

fn refused() -> Problem {
    let said = "show a token that counts: `Authorization: Bearer stasis_…`";
    Problem::new(ProblemCode::Unauthorized, said)
}
