//! How long an agent is kept waiting for a checkpoint.
//!
//! An agent waits for the checkpoint before its prompt or command, but not for long: what takes longer is finished in the
//! background. Once that happened, the next hooks do not wait the whole time again to learn the same.

use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long an agent waits at most.
pub const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// How long it waits while a checkpoint is known to take longer than that.
pub const SHORT_WAIT: Duration = Duration::from_secs(2);
/// How long after one that took too long the next ones are waited for only shortly.
pub const BACK_OFF: Duration = Duration::from_mins(10);

/// The last checkpoint of a hook that took long, as it is kept with the session.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HookPace {
    /// When it was begun.
    pub began_ms: u64,
    /// How long it took; `None` while it is being made, and for good if its process was killed.
    pub took_ms: Option<u64>,
    /// How many hooks since then made none, because it was still being made.
    pub missed: u64,
}

/// How long a hook waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// As long as any.
    Whole,
    /// Only shortly.
    Short,
}

impl HookPace {
    /// How long the next hook waits.
    pub fn wait(&self, now: Timestamp) -> Wait {
        let ended = self.began_ms.saturating_add(self.took_ms.unwrap_or(0));
        let is_recent =
            (self.began_ms..=ended.saturating_add(millis(BACK_OFF))).contains(&now.millis());
        if is_recent { Wait::Short } else { Wait::Whole }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_checkpoint_that_took_too_long_hooks_wait_shortly_for_a_while() {
        let at = Timestamp::from_millis;
        let pace = |took_ms| HookPace {
            began_ms: 1_000_000,
            took_ms,
            missed: 0,
        };

        assert_eq!(pace(None).wait(at(1_000_000)), Wait::Short);
        assert_eq!(pace(None).wait(at(1_600_000)), Wait::Short);
        assert_eq!(pace(None).wait(at(1_600_001)), Wait::Whole);
        assert_eq!(pace(Some(60_000)).wait(at(1_660_000)), Wait::Short);
        assert_eq!(pace(Some(60_000)).wait(at(1_660_001)), Wait::Whole);
        // A clock that went back says nothing.
        assert_eq!(pace(Some(60_000)).wait(at(999_999)), Wait::Whole);
    }
}
