//! What the actors of one run share.

use super::mutant::Mutant;
use super::oracle::Oracle;
use crate::faulty_bucket::{Landing, Witness};
use crate::seeded_rng::SeededRng;
use stasis_model::id::Lineage;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How often, in times per thousand awaits, something befalls a host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Perils {
    /// It crashes and starts again.
    pub(crate) crash: u64,
    /// It is suspended, perhaps beyond its lease.
    pub(crate) suspend: u64,
    /// Its wall clock jumps.
    pub(crate) jump: u64,
}

impl Perils {
    pub(crate) fn drawn(rng: &mut SeededRng) -> Self {
        let most = rng.one_of([0, 4, 12, 30]);
        Self {
            crash: rng.below(most / 2 + 1),
            suspend: rng.below(most + 1),
            jump: rng.below(most + 1),
        }
    }
}

/// The world of one run.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) lineage: Lineage,
    pub(crate) ttl: Duration,
    pub(crate) grace: Duration,
    pub(crate) perils: Perils,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) ends_at: Instant,
    pub(crate) oracle: Mutex<Oracle>,
}

impl World {
    pub(crate) fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, what: fmt::Arguments<'_>) {
        self.oracle().note(what);
    }

    /// Whether the storm is over, or a promise was broken.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.ends_at || self.oracle().breach.is_some()
    }
}

impl Witness for World {
    fn landed(&self, landing: &Landing<'_>) {
        self.oracle().landed(landing);
    }

    fn saw(&self, observation: &'static str) {
        let mut oracle = self.oracle();
        oracle.observations.add(observation);
        oracle.note(format_args!("saw: {observation}"));
    }
}
