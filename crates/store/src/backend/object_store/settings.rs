//! How long requests may take, and how large the parts of an upload are.

use std::time::Duration;

/// How long a bucket waits for its store, and how much it holds in memory.
#[derive(Clone, Debug)]
pub struct TransferSettings {
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How long a small request may take from the first byte sent to the last one read.
    pub request_timeout: Duration,
    /// Large requests may take longer: as much as their bytes need at this rate, in bytes per second.
    pub slowest_rate: u64,
    /// How large the parts of a large object are: at least 5 MiB, and up to 10,000 parts fit into one object.
    pub part_size: usize,
    /// How many parts travel at once; each of them is held in memory.
    pub parts_in_flight: usize,
    /// How long a store may take to make one object of its parts; large objects may take longer. Only what is silent
    /// costs this time, and the object is looked for afterwards.
    pub completion_timeout: Duration,
}

/// How much faster than they travelled the parts of an object are put together: nothing leaves the store.
const ASSEMBLY_SPEEDUP: u64 = 64;

impl TransferSettings {
    /// How long a request that moves `bytes` may take.
    pub(super) fn budget(&self, bytes: u64) -> Duration {
        let moving = Duration::from_secs(bytes / self.slowest_rate.max(1));
        self.request_timeout.saturating_add(moving)
    }

    /// How long the completion of an upload of `bytes` may take.
    pub(super) fn completion_budget(&self, bytes: u64) -> Duration {
        self.completion_timeout
            .saturating_add(self.within_the_store(bytes))
    }

    /// How long a copy of `bytes` from one object to another may take.
    pub(super) fn copy_budget(&self, bytes: u64) -> Duration {
        self.request_timeout
            .saturating_add(self.within_the_store(bytes))
    }

    fn within_the_store(&self, bytes: u64) -> Duration {
        let rate = self.slowest_rate.max(1).saturating_mul(ASSEMBLY_SPEEDUP);
        Duration::from_secs(bytes / rate)
    }
}

impl Default for TransferSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            slowest_rate: 128 * 1024,
            part_size: 8 * 1024 * 1024,
            parts_in_flight: 4,
            completion_timeout: Duration::from_mins(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completing_has_minutes_and_more_for_large_objects() {
        let settings = TransferSettings::default();
        let minutes = |bytes| settings.completion_budget(bytes).as_secs() / 60;

        assert_eq!(minutes(0), 5);
        assert_eq!(minutes(8_000_000_000), 20);
    }
}
