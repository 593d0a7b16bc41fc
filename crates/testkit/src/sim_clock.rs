//! The clocks of a simulated host, driven by tokio's paused time.
//!
//! *Always true:* the wall clock is never more than an hour off, whatever jumps it makes; the uptime counts every
//! simulated moment, also those during which its host was suspended.

use stasis_model::time::{Clock, Timestamp};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// What the true wall clock says when a simulation begins.
pub const BEGINNING: Timestamp = Timestamp::from_millis(1_800_000_000_000);
/// How wrong a wall clock may be, in milliseconds.
pub const MOST_SKEW: i64 = 3_600_000;

/// One host's clocks.
#[derive(Debug)]
pub struct SimClock {
    began: Instant,
    skew: AtomicI64,
    booted_before: Duration,
}

impl SimClock {
    /// The clocks of a host that had run for `booted_before` when the simulation began at `began`.
    pub fn new(began: Instant, skew_ms: i64, booted_before: Duration) -> Self {
        let skew = AtomicI64::new(bounded(skew_ms));
        Self {
            began,
            skew,
            booted_before,
        }
    }

    /// Sets the wall clock forward or, with a negative number, back.
    pub fn jump(&self, by_ms: i64) {
        let skew = self.skew_ms().saturating_add(by_ms);
        self.skew.store(bounded(skew), Ordering::Relaxed);
    }

    /// How far the wall clock is ahead of the true time.
    pub fn skew_ms(&self) -> i64 {
        self.skew.load(Ordering::Relaxed)
    }

    /// The true time, which no host knows.
    pub fn true_time(&self) -> Timestamp {
        BEGINNING.plus(self.began.elapsed())
    }
}

fn bounded(skew_ms: i64) -> i64 {
    skew_ms.clamp(-MOST_SKEW, MOST_SKEW)
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let millis = self.true_time().millis();
        Timestamp::from_millis(millis.saturating_add_signed(self.skew_ms()))
    }

    fn uptime(&self) -> Duration {
        self.booted_before + self.began.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_wall_clock_jumps_but_the_uptime_does_not() {
        let clock = SimClock::new(Instant::now(), 5_000, Duration::from_secs(9));
        tokio::time::sleep(Duration::from_secs(1)).await;
        clock.jump(-7_000);

        assert_eq!(clock.now().millis(), BEGINNING.millis() - 1_000);
        assert_eq!(clock.uptime(), Duration::from_secs(10));
        clock.jump(i64::MIN);
        assert_eq!(clock.skew_ms(), -MOST_SKEW);
    }
}
