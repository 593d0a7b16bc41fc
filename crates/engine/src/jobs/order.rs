//! Whose turn it is, of several that one job looks after.
//!
//! One that hangs takes the time of the whole job. If it came first each time, nobody else would ever have any.

use stasis_model::format::job::JobName;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which turns there were since the server started, by what the job calls what it looks after.
type Turns = BTreeMap<(JobName, String), u64>;

/// Who had a turn when, since the server started.
#[derive(Clone, Debug, Default)]
pub struct TurnOrder(Arc<Mutex<Turns>>);

impl TurnOrder {
    /// Notes that the turn of one begins.
    pub(super) fn begin(&self, job: JobName, name: &str) {
        let mut turns = self.turns();
        let last = turns.values().max().copied().unwrap_or_default();
        turns.insert((job, name.to_owned()), last + 1);
    }

    /// Those that never had a turn, then the one whose turn is longest ago; else in the order in which they are.
    pub(super) fn in_order<T>(
        &self,
        job: JobName,
        mut all: Vec<T>,
        name: impl Fn(&T) -> &str,
    ) -> Vec<T> {
        let turns = self.turns();
        all.sort_by_cached_key(|one| turns.get(&(job, name(one).to_owned())).copied());
        all
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_had_a_turn_comes_after_all_who_had_none_or_an_earlier_one() {
        const JOB: JobName = JobName::ProjectAutosave;
        let order = TurnOrder::default();
        let now = || order.in_order(JOB, vec!["a", "b", "c"], |one| one).join("");
        assert_eq!(now(), "abc");

        order.begin(JOB, "a");
        order.begin(JobName::WorkspaceCheckpoint, "b");
        assert_eq!(now(), "bca");
        order.begin(JOB, "c");
        order.begin(JOB, "a");
        assert_eq!(now(), "bca");
        order.begin(JOB, "b");

        assert_eq!(now(), "cab");
    }
}
