//! Who asks.
//!
//! A token that was read counts for ten seconds, so that a client that asks often costs the store little, and one that was taken back
//! ends that fast. Then it is read again. Of tokens that do not count nothing is kept: how many of those are looked up in a second is
//! limited instead, and whoever shows one that counted takes nothing of that.

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
    /// Anybody, at a route that is open to everybody: nothing else is allowed to them.
    Stranger,
}

impl Caller {
    /// The only tenant whose data there is for them.
    pub(super) fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::Holder(holder) => Some(&holder.tenant),
            Self::Loopback | Self::Stranger => None,
        }
    }

    /// Whether they may know of this tenant.
    pub(super) fn may_see(&self, tenant: &TenantId) -> bool {
        match self {
            Self::Holder(holder) => holder.tenant == *tenant,
            Self::Loopback => true,
            Self::Stranger => false,
        }
    }

    /// Whether they may do what needs this.
    pub(super) fn may(&self, scope: TokenScope) -> bool {
        match self {
            Self::Holder(holder) => holder.scope >= scope,
            Self::Loopback => true,
            Self::Stranger => false,
        }
    }

    /// Whether they may do what is about this host itself.
    pub(super) fn may_on_host(&self) -> bool {
        match self {
            Self::Holder(holder) => holder.host,
            Self::Loopback => true,
            Self::Stranger => false,
        }
    }

    /// What they are called in the log of events.
    pub(super) fn actor(&self) -> Label {
        let name = match self {
            Self::Holder(holder) => format!("token:{}", holder.id),
            Self::Loopback => "loopback".to_owned(),
            Self::Stranger => "stranger".to_owned(),
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

/// What is remembered of a token that is shown.
enum Memory {
    /// It was read just now.
    Counts(TokenHolder),
    /// It counted when it was read, and that is too long ago.
    Stale,
    /// It was not read, or its secret is another one.
    Unknown,
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
    /// One that no store knows, and that ends with this process.
    own: Option<(SecretDigest, TokenHolder)>,
}

impl Tokens {
    pub(super) fn new(engine: Engine, clock: Arc<dyn Clock>, none_needed: bool) -> Self {
        Self {
            engine,
            lookups: TokenBucket::new(LOOKUPS, clock.uptime()),
            clock,
            none_needed,
            believed: Mutex::default(),
            own: None,
        }
    }

    /// The same, where this token counts as well: for the default tenant, of which it deletes nothing, and for what lies on this host.
    pub(super) fn with_own(self, token: &BearerToken) -> Self {
        let holder = TokenHolder {
            id: token.id(),
            tenant: TenantId::default(),
            scope: TokenScope::Write,
            host: true,
            expires_at: None,
        };
        Self {
            own: Some((token.digest(), holder)),
            ..self
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
        if let Some((_, holder)) = self.own.as_ref().filter(|(own, _)| *own == token.digest()) {
            return Ok(Caller::Holder(holder.clone()));
        }
        let now = self.clock.uptime();
        let memory = self.memory(&token, now);
        if let Memory::Counts(holder) = memory {
            return Ok(Caller::Holder(holder));
        }
        let pays = matches!(memory, Memory::Unknown);
        if pays && !self.lookups.take(now) {
            let said = "too many tokens were shown that are not known";
            return Err(Problem::new(ProblemCode::TooManyRequests, said));
        }
        let Some(holder) = self.engine.tokens().holder(&token).await? else {
            self.forget(&token);
            return Err(refused());
        };
        if pays {
            self.lookups.give_back();
        }
        self.remember(&token, &holder, now);
        Ok(Caller::Holder(holder))
    }

    fn memory(&self, token: &BearerToken, now: Duration) -> Memory {
        let believed = self.believed.lock().unwrap_or_else(PoisonError::into_inner);
        let known = believed.get(&token.id());
        let Some(one) = known.filter(|one| one.secret == token.digest()) else {
            return Memory::Unknown;
        };
        let end = one.holder.expires_at;
        let is_over = end.is_some_and(|end| end <= self.clock.now());
        if is_over || now.saturating_sub(one.read_at) >= BELIEVED {
            return Memory::Stale;
        }
        Memory::Counts(one.holder.clone())
    }

    /// It does not count any more; that somebody shows another secret takes nothing from whoever has the right one.
    fn forget(&self, token: &BearerToken) {
        let mut believed = self.believed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_this = |one: &Believed| one.secret == token.digest();
        if believed.get(&token.id()).is_some_and(is_this) {
            believed.remove(&token.id());
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_may_nothing_and_sees_nobody() {
        let stranger = Caller::Stranger;

        assert_eq!(stranger.tenant(), None);
        assert!(!stranger.may_see(&TenantId::default()));
        assert!(!stranger.may(TokenScope::Read));
        assert!(Caller::Loopback.may_see(&TenantId::default()));
    }
}
