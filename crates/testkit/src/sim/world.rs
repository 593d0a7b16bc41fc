//! What the actors of one run share.

use super::ghost::Ghost;
use super::plant::Plant;
use crate::faulty_bucket::{Landing, Witness};
use crate::seeded_chance::SeededRng;
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
    pub(crate) plant: Option<Plant>,
    pub(crate) ends_at: Instant,
    pub(crate) ghost: Mutex<Ghost>,
}

impl World {
    pub(crate) fn ghost(&self) -> MutexGuard<'_, Ghost> {
        self.ghost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, what: fmt::Arguments<'_>) {
        self.ghost().note(what);
    }

    /// Whether the storm is over, or a promise was broken.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.ends_at || self.ghost().breach.is_some()
    }
}

impl Witness for World {
    fn landed(&self, landing: &Landing<'_>) {
        self.ghost().landed(landing);
    }

    fn saw(&self, sight: &'static str) {
        let mut ghost = self.ghost();
        ghost.sights.add(sight);
        ghost.note(format_args!("saw: {sight}"));
    }
}
