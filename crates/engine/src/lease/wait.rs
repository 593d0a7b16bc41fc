//! Waiting for a lease that another run holds.
//!
//! acquire → held → read the lock every one to two seconds until it is free or has expired → acquire
//!
//! *Always true:* the wait ends at its bound with the refusal that was met last. Nobody is thrown out: the lease is taken
//! when its holder gives it back or lets it expire, by the same rules as without a wait.

use super::{Acquire, Acquired};
use crate::error::Error;
use crate::handle::Leases;
use stasis_model::format::lease::Lock;
use stasis_model::id::Lineage;
use stasis_model::protocol::step::Refusal;
use stasis_store::documents::lineages::LineageError;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The lock is read no more often than this.
const PAUSE: Duration = Duration::from_secs(1);
/// What is added to that by chance, so that many that wait do not ask at once.
const JITTER_MS: u64 = 1000;

/// How long to wait for a lease that another run holds.
#[derive(Clone, Debug)]
pub struct LeaseWait {
    /// After this the holder's refusal is the answer.
    pub at_most: Duration,
    /// Receives the lock that is waited for, once.
    pub held_by: Option<mpsc::UnboundedSender<Lock>>,
}

impl Leases<'_> {
    /// Makes the holder the owner of the lineage; where another run is, waits for it, if somebody wants to.
    pub async fn acquire_within(
        self,
        cmd: Acquire,
        wait: Option<&LeaseWait>,
    ) -> Result<Acquired, Error> {
        let Some(wait) = wait else {
            return self.acquire(cmd).await;
        };
        let until = Instant::now() + wait.at_most;
        let mut listener = wait.held_by.as_ref();
        loop {
            let refused = match self.acquire(cmd.clone()).await {
                Err(error) if held(&error).is_some() => error,
                settled => return settled,
            };
            if let (Some(listener), Some(lock)) = (listener.take(), held(&refused)) {
                // Nobody has to listen.
                let _ = listener.send(lock.clone());
            }
            if !self.is_free_by(&cmd.lineage, until).await? {
                return Err(refused);
            }
        }
    }

    /// Waits until nobody has to be assumed to hold the lineage; `false` when that takes too long.
    async fn is_free_by(self, lineage: &Lineage, until: Instant) -> Result<bool, Error> {
        loop {
            let pause = PAUSE + Duration::from_millis(self.rng.below(JITTER_MS));
            let now = Instant::now();
            if now >= until {
                return Ok(false);
            }
            tokio::time::sleep(pause.min(until - now)).await;
            let lock = self.lineages.lock(lineage).await?;
            let now = self.lineages.now();
            if lock.is_none_or(|lock| !lock.value.is_live(now)) {
                return Ok(true);
            }
        }
    }
}

/// The lock that stood in the way.
fn held(error: &Error) -> Option<&Lock> {
    match error {
        Error::Lineage(error) => match &**error {
            LineageError::Refused {
                refusal: Refusal::Held(lock),
                ..
            } => Some(lock),
            _ => None,
        },
        _ => None,
    }
}
