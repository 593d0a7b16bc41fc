//! The real clock and real chance; the only place where either is asked.

use rustix::time::{ClockId, clock_gettime};
use stasis_engine::model::id::OpId;
use stasis_engine::model::rng::Rng;
use stasis_engine::model::time::{Clock, Timestamp};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The kernel's clocks.
#[derive(Debug)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this file is where time comes from"
    )]
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

/// The most memory this process ever had resident, if the kernel tells.
pub(crate) fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// The kernel's randomness.
#[derive(Debug)]
pub(crate) struct SystemChance;

impl SystemChance {
    fn bytes<const N: usize>() -> [u8; N] {
        let mut bytes = [0; N];
        #[expect(
            clippy::disallowed_methods,
            reason = "this file is where chance comes from"
        )]
        getrandom::fill(&mut bytes).expect("the kernel gives randomness");
        bytes
    }
}

impl Rng for SystemChance {
    fn op_id(&self) -> OpId {
        OpId::from_random(Self::bytes())
    }

    fn below(&self, bound: u64) -> u64 {
        u64::from_le_bytes(Self::bytes())
            .checked_rem(bound)
            .unwrap_or_default()
    }
}
