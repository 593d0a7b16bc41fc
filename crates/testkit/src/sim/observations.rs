//! Notable things that happened, counted: a simulation in which nothing happens proves nothing.

use std::collections::BTreeMap;
use std::fmt;

/// How often each notable thing was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observations(BTreeMap<&'static str, u64>);

impl Observations {
    /// What any large set of seeds must show.
    pub const EXPECTED: [&'static str; 42] = [
        "acknowledged acquire",
        "acknowledged delete",
        "acknowledged publish",
        "acknowledged force-unlock",
        "acknowledged pin",
        "acknowledged reap",
        "acknowledged release",
        "acknowledged renew",
        "acknowledged rollback",
        "acknowledged though its answer was lost",
        "answer lost",
        "clock jumped",
        "contended",
        "crash",
        "diverged",
        "forced act whose lock was not told",
        "fresh fallback kept from replacing a snapshot",
        "hand-back after a reap",
        "held by another",
        "holder changed before a force-unlock",
        "landed after its operation gave up",
        "late landing applied",
        "late landing refused",
        "lock lost",
        "marked forced",
        "outage",
        "outrun",
        "pinned snapshot kept",
        "pointer moved before a rollback",
        "read failed",
        "reaped",
        "refused by its own success",
        "request lost",
        "same bytes published again",
        "settled as applied",
        "settled as not applied",
        "stale listing",
        "still unknown at the end",
        "suspended beyond the lease",
        "take-over",
        "tombstoned snapshot kept out",
        "unknown outcome",
    ];

    /// Counts one more.
    pub fn add(&mut self, observation: &'static str) {
        *self.0.entry(observation).or_default() += 1;
    }

    /// Adds all that another run saw.
    pub fn merge(&mut self, others: &Self) {
        for (observation, count) in &others.0 {
            *self.0.entry(observation).or_default() += count;
        }
    }

    /// How often it was seen.
    pub fn count(&self, observation: &str) -> u64 {
        self.0.get(observation).copied().unwrap_or_default()
    }

    /// What should have been seen and was not.
    pub fn missing(&self) -> Vec<&'static str> {
        let unseen = |observation: &&'static str| self.count(observation) == 0;
        Self::EXPECTED.into_iter().filter(unseen).collect()
    }
}

impl fmt::Display for Observations {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|(observation, count)| writeln!(out, "{count:>10}  {observation}"))
    }
}
