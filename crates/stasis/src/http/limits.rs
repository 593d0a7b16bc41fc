//! How much may be asked, by one tenant and in all.

use super::problem::{Problem, ProblemCode};
use stasis_engine::model::id::TenantId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What one request, one connection and one tenant may take.
#[derive(Clone, Debug)]
pub(crate) struct RequestLimits {
    /// How many connections there are at once.
    pub(crate) connections: usize,
    /// How many requests of one tenant are answered at once.
    pub(crate) at_once: u32,
    /// How many requests one tenant may make in a second.
    pub(crate) per_second: u32,
    /// How many bytes a body may have.
    pub(crate) body_bytes: usize,
    /// How long the head of a request may take, and then its body.
    pub(crate) read_timeout: Duration,
    /// For how long somebody waits for an answer.
    pub(crate) answer_timeout: Duration,
    /// For how long a connection takes requests; the last one is still answered.
    pub(crate) connection_life: Duration,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            connections: 512,
            at_once: 32,
            per_second: 100,
            body_bytes: 1 << 20,
            read_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_mins(1),
            connection_life: Duration::from_mins(1),
        }
    }
}

/// So many in a second, and as many at once after a quiet second.
#[derive(Debug)]
pub(super) struct TokenBucket {
    per_second: f64,
    state: Mutex<(f64, Duration)>,
}

impl TokenBucket {
    pub(super) fn new(per_second: u32, now: Duration) -> Self {
        let per_second = f64::from(per_second.max(1));
        Self {
            per_second,
            state: Mutex::new((per_second, now)),
        }
    }

    /// Takes one, if there is one.
    pub(super) fn take(&self, now: Duration) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, at) = *state;
        let grown = now.saturating_sub(at).as_secs_f64() * self.per_second;
        let left = (left + grown).min(self.per_second);
        let is_there = left >= 1.0;
        *state = (if is_there { left - 1.0 } else { left }, now.max(at));
        is_there
    }

    /// Gives one back that was not used.
    pub(super) fn give_back(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = (state.0 + 1.0).min(self.per_second);
    }
}

/// One tenant's share.
#[derive(Debug)]
struct Share {
    rate: TokenBucket,
    at_once: Arc<Semaphore>,
}

/// The shares of all tenants that have asked.
#[derive(Debug)]
pub(super) struct TenantShares {
    limits: RequestLimits,
    /// Only those with a token that counts are in it, so that nobody can fill it.
    shares: Mutex<HashMap<Option<TenantId>, Arc<Share>>>,
}

impl TenantShares {
    pub(super) fn new(limits: RequestLimits) -> Self {
        Self {
            limits,
            shares: Mutex::default(),
        }
    }

    /// Room for one request of a tenant, for as long as the permit lives.
    pub(super) fn admit(
        &self,
        tenant: Option<&TenantId>,
        now: Duration,
    ) -> Result<OwnedSemaphorePermit, Problem> {
        let share = {
            let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || {
                Arc::new(Share {
                    rate: TokenBucket::new(self.limits.per_second, now),
                    at_once: Arc::new(Semaphore::new(self.limits.at_once as usize)),
                })
            };
            shares.entry(tenant.cloned()).or_insert_with(new).clone()
        };
        let refused = |said: &str| Problem::new(ProblemCode::TooManyRequests, said);
        if !share.rate.take(now) {
            return Err(refused("this tenant asks too often"));
        }
        let permit = share.at_once.clone().try_acquire_owned();
        permit.map_err(|_| refused("too many requests of this tenant are being answered"))
    }
}

/// So much room for each tenant, for what lasts longer than a request.
#[derive(Debug)]
pub(super) struct ByTenant {
    each: usize,
    /// Only those with a token that counts are in it.
    rooms: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
}

impl ByTenant {
    pub(super) fn new(each: usize) -> Self {
        Self {
            each,
            rooms: Mutex::default(),
        }
    }

    /// Room for one, if there is any.
    pub(super) fn room(&self, tenant: &TenantId) -> Option<OwnedSemaphorePermit> {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Semaphore::new(self.each));
        let room = rooms.entry(tenant.clone()).or_insert_with(new);
        room.clone().try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_let_in_at_once_and_so_many_in_a_second() {
        let bucket = TokenBucket::new(3, Duration::ZERO);
        let taken = |now: u64| bucket.take(Duration::from_millis(now));

        assert_eq!([0, 0, 0, 0].map(taken), [true, true, true, false]);
        assert_eq!([333, 334, 400].map(taken), [false, true, false]);
        // A clock that stands still, or a long rest, gives no more than a second's worth.
        assert_eq!([60_000; 4].map(taken), [true, true, true, false]);
    }

    #[test]
    fn tenants_do_not_take_each_others_room() {
        let limits = RequestLimits {
            at_once: 1,
            per_second: 2,
            ..RequestLimits::default()
        };
        let shares = TenantShares::new(limits);
        let tenant = |name: &str| -> TenantId { name.parse().unwrap() };
        let (one, other) = (tenant("one"), tenant("other"));
        let admit = |tenant: &TenantId| shares.admit(Some(tenant), Duration::ZERO);

        let permit = admit(&one).unwrap();
        assert_eq!(admit(&one).unwrap_err().code, ProblemCode::TooManyRequests);
        let _other = admit(&other).unwrap();
        drop(permit);
        assert_eq!(admit(&one).unwrap_err().code, ProblemCode::TooManyRequests);
        let later = Duration::from_secs(1);
        assert!(shares.admit(Some(&one), later).is_ok());
    }
}
