//! What goes wrong between a host and the store, and how often.

use crate::seeded_rng::SeededRng;
use std::ops::Range;
use std::time::Duration;

/// How often each kind of fault strikes, in times per thousand, and how slow everything is.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// A request that never arrives: nobody answers.
    pub lost: u64,
    /// A request that arrives and whose answer does not; also a 5xx after the fact.
    pub unanswered: u64,
    /// A request that arrives long after its sender gave up waiting.
    pub late: u64,
    /// A request that arrives twice, the second time refused by its own success.
    pub twice: u64,
    /// A 409, or a 5xx before the fact: an answer that settles nothing, and nothing was done.
    pub unsettling: u64,
    /// A read that fails.
    pub blind: u64,
    /// A listing that shows the past.
    pub stale: u64,
    /// Windows, in milliseconds since the beginning, during which nothing works at all.
    pub outages: Vec<Range<u64>>,
    /// From this millisecond on there are no faults any more.
    pub calm_from: u64,
    /// The longest way to the store or back, in milliseconds.
    pub slowness: u64,
    /// How long a sender waits for an answer, at most, in milliseconds.
    pub timeout: u64,
    /// How late a late request arrives, at most, in milliseconds.
    pub lateness: u64,
    /// Whether the store tells the date with each answer.
    pub tells_date: bool,
    /// A mutant: a store that accepts conditions and does not check them.
    pub ignores_conditions: bool,
}

impl FaultPlan {
    /// No faults at all, and no delay.
    pub fn fine() -> Self {
        Self::default()
    }

    /// The fault plan of one seed: from calm to a hurricane, until `calm_from`.
    pub fn drawn(rng: &mut SeededRng, calm_from: u64) -> Self {
        let severity = rng.one_of([0, 10, 40, 90, 160]);
        let mut some = |share: u64| rng.below(severity * share / 100 + 1);
        let (lost, unanswered, late) = (some(80), some(150), some(150));
        let (twice, unsettling, blind, stale) = (some(80), some(80), some(120), some(300));
        let storms = if severity < 40 { 0 } else { rng.below(3) };
        let outages = (0..storms).map(|_| {
            let from = rng.below(calm_from);
            from..(from + rng.within(200..=9_000)).min(calm_from)
        });
        Self {
            outages: outages.collect(),
            lost,
            unanswered,
            late,
            twice,
            unsettling,
            blind,
            stale,
            calm_from,
            slowness: rng.one_of([4, 20, 60, 250]),
            timeout: rng.within(100..=3_000),
            lateness: rng.one_of([900, 5_000, 30_000, 300_000]),
            tells_date: rng.happens(500),
            ignores_conditions: false,
        }
    }

    fn is_out(&self, at: u64) -> bool {
        self.outages.iter().any(|window| window.contains(&at))
    }

    fn way(&self, rng: &mut SeededRng) -> Duration {
        let spike = if rng.happens(20) { 8 } else { 1 };
        Duration::from_millis(rng.below(self.slowness * spike + 1))
    }

    /// Decides the fate of a write that is sent at `at`.
    pub(super) fn journey(&self, rng: &mut SeededRng, at: u64) -> Journey {
        let (there, back) = (self.way(rng), self.way(rng));
        let timeout = Duration::from_millis(rng.within(20..=self.timeout.max(20)));
        if at >= self.calm_from {
            return Journey::Received { there, back };
        }
        if self.is_out(at) {
            let sent = rng.happens(500);
            return if sent {
                Journey::Lost { after: timeout }
            } else {
                Journey::Refused { after: there }
            };
        }
        let mut luck = rng.below(1000);
        let mut strikes = |share: u64| {
            let struck = luck < share;
            luck = if struck { u64::MAX } else { luck - share };
            struck
        };
        if strikes(self.lost) {
            Journey::Lost { after: timeout }
        } else if strikes(self.unsettling) {
            Journey::Lost {
                after: there + back,
            }
        } else if strikes(self.unanswered) {
            Journey::Unanswered {
                there,
                after: timeout.max(there),
            }
        } else if strikes(self.late) {
            let late = Duration::from_millis(rng.within(1..=self.lateness.max(1)));
            Journey::Late {
                there: timeout + late,
                after: timeout,
            }
        } else if strikes(self.twice) {
            Journey::Twice {
                there,
                again: there + self.way(rng),
                back,
            }
        } else {
            Journey::Received { there, back }
        }
    }

    /// Decides the fate of a read that is sent at `at`: the two ways, and whether an answer comes at all.
    pub(super) fn glance(&self, rng: &mut SeededRng, at: u64) -> (Duration, Duration, bool) {
        let (there, back) = (self.way(rng), self.way(rng));
        let fails = at < self.calm_from && (self.is_out(at) || rng.happens(self.blind));
        (there, back, !fails)
    }

    /// How far a listing sent at `at` looks back, if it shows the past.
    pub(super) fn hindsight(&self, rng: &mut SeededRng, at: u64) -> Option<u64> {
        let stale = at < self.calm_from && rng.happens(self.stale);
        stale.then(|| rng.within(1..=20_000))
    }
}

/// What becomes of one write; each duration counts from the moment it was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Journey {
    /// It arrives, and the answer comes back.
    Received { there: Duration, back: Duration },
    /// It arrives, and the answer does not.
    Unanswered { there: Duration, after: Duration },
    /// It never arrives.
    Lost { after: Duration },
    /// It could not even be sent.
    Refused { after: Duration },
    /// It arrives after its sender gave up.
    Late { there: Duration, after: Duration },
    /// It arrives twice, and the second answer is received.
    Twice {
        there: Duration,
        again: Duration,
        back: Duration,
    },
}
