//! The machine's own clock and chance, for tests that run real processes.

use rustix::time::{ClockId, clock_gettime};
use stasis_model::id::OpId;
use stasis_model::rng::Rng;
use stasis_model::time::{Clock, Timestamp};
use std::io::Read;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The kernel's clocks.
#[derive(Debug)]
pub struct RealClock;

impl Clock for RealClock {
    #[expect(clippy::disallowed_methods, reason = "real processes run in real time")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn uptime(&self) -> Duration {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
    }
}

/// The kernel's randomness.
#[derive(Debug)]
pub struct SystemRng;

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut source = std::fs::File::open("/dev/urandom").expect("Linux has /dev/urandom");
    source
        .read_exact(&mut bytes)
        .expect("randomness does not end");
    bytes
}

impl Rng for SystemRng {
    fn op_id(&self) -> OpId {
        OpId::from_random(random())
    }

    fn below(&self, bound: u64) -> u64 {
        u64::from_le_bytes(random())
            .checked_rem(bound)
            .unwrap_or_default()
    }
}
