//! Clocks that the standard library does not have.

use rustix::time::{ClockId, clock_gettime};
use stasis_model::tree::FileTime;
use std::time::Duration;

/// How long the machine has been running, its sleep included.
pub fn uptime() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// The time that a file gets which changes now. It moves in ticks: a file whose time is before it will get another one when it changes again.
pub fn file_time() -> FileTime {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    FileTime {
        seconds: now.tv_sec,
        nanos: u32::try_from(now.tv_nsec).unwrap_or_default(),
    }
}
