//! The policies that users choose from, and the few rules that they all amount to.

use super::calendar::KeepPeriods;
use std::time::Duration;

const DAY: Duration = Duration::from_hours(24);

/// What is kept of a kind of snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RetentionPolicy {
    /// Everything.
    KeepAll,
    /// The newest of each group: a session.
    KeepOne,
    /// Age, then count, then bytes: containers.
    AgeCountBytes(AgeCountBytes),
    /// A ring of automatic ones beside those with names: a workspace.
    Ring(Ring),
    /// The newest, and what was rolled back to: a profile.
    Newest(Newest),
    /// So many of each group: a project. At least the newest is kept.
    MaxSnapshots(u64),
    /// The options of a repository.
    Repository(Repository),
}

/// Age first, then count, then bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgeCountBytes {
    /// How old a snapshot may be.
    pub max_age: Duration,
    /// How many one group may have.
    pub per_group: u64,
    /// How many there may be in all.
    pub in_all: u64,
    /// How many bytes there may be in all.
    pub max_bytes: u64,
}

impl Default for AgeCountBytes {
    fn default() -> Self {
        Self {
            max_age: 7 * DAY,
            per_group: 10,
            in_all: 100,
            max_bytes: 10_000_000_000,
        }
    }
}

/// A ring of automatic snapshots, and names that are never overwritten.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ring {
    /// How many automatic ones a group keeps.
    pub auto: u64,
    /// How many names a group has room for. One more is not removed but reported: making it must be refused.
    pub named: u64,
}

impl Default for Ring {
    fn default() -> Self {
        Self {
            auto: 10,
            named: 12,
        }
    }
}

/// The newest of each group, in addition to what is protected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Newest {
    /// How many.
    pub keep: u64,
    /// And the newest of so many calendar periods.
    pub periods: KeepPeriods,
    /// For how long going back to a snapshot protects it.
    pub keep_rolled_back: Duration,
}

impl Default for Newest {
    fn default() -> Self {
        Self {
            keep: 5,
            periods: KeepPeriods::default(),
            keep_rolled_back: 30 * DAY,
        }
    }
}

/// What is kept in a repository; without `keep_last`, `keep_within` and `periods` everything is, up to `max_bytes`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Repository {
    /// Keeps the newest of each group.
    pub keep_last: Option<u64>,
    /// Keeps what is younger.
    pub keep_within: Option<Duration>,
    /// Keeps the newest of so many calendar periods of each group.
    pub periods: KeepPeriods,
    /// Lets the oldest of the others go until the rest is no larger.
    pub max_bytes: Option<u64>,
}

/// Among whom the newest one is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NewestScope {
    /// Each group has its newest one.
    Group,
    /// There is one newest, so that a group may end.
    All,
}

/// Whom a limit is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LimitTarget {
    /// All of them.
    Everybody,
    /// Only those that came by themselves; so many names there is room for.
    Automatic { names: u64 },
}

/// What is asked for: a snapshot that fits none of it is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct KeepRequest {
    pub(super) last: u64,
    pub(super) within: Option<Duration>,
    pub(super) periods: KeepPeriods,
}

/// What every policy amounts to.
#[derive(Clone, Debug)]
pub(super) struct RetentionRules {
    pub(super) scope: NewestScope,
    pub(super) everything_stays: bool,
    pub(super) keep_rolled_back: Option<Duration>,
    pub(super) asked_for: Option<KeepRequest>,
    pub(super) max_age: Option<Duration>,
    pub(super) per_group: Option<(u64, LimitTarget)>,
    pub(super) in_all: Option<u64>,
    pub(super) max_bytes: Option<u64>,
}

impl Default for RetentionRules {
    fn default() -> Self {
        Self {
            scope: NewestScope::Group,
            everything_stays: false,
            keep_rolled_back: None,
            asked_for: None,
            max_age: None,
            per_group: None,
            in_all: None,
            max_bytes: None,
        }
    }
}

impl RetentionRules {
    pub(super) fn look_at_ages(&self) -> bool {
        let within = self.asked_for.and_then(|asked| asked.within);
        self.max_age.or(self.keep_rolled_back).or(within).is_some()
    }

    pub(super) fn keep_names(&self) -> bool {
        matches!(self.per_group, Some((_, LimitTarget::Automatic { .. })))
    }
}

impl RetentionPolicy {
    pub(super) fn rules(&self) -> RetentionRules {
        let rules = RetentionRules::default();
        match self {
            Self::KeepAll => RetentionRules {
                everything_stays: true,
                ..rules
            },
            Self::KeepOne => RetentionRules {
                per_group: Some((1, LimitTarget::Everybody)),
                ..rules
            },
            Self::MaxSnapshots(limit) => RetentionRules {
                per_group: Some((*limit, LimitTarget::Everybody)),
                ..rules
            },
            Self::AgeCountBytes(limits) => RetentionRules {
                scope: NewestScope::All,
                max_age: Some(limits.max_age),
                per_group: Some((limits.per_group, LimitTarget::Everybody)),
                in_all: Some(limits.in_all),
                max_bytes: Some(limits.max_bytes),
                ..rules
            },
            Self::Ring(ring) => RetentionRules {
                per_group: Some((ring.auto, LimitTarget::Automatic { names: ring.named })),
                ..rules
            },
            Self::Newest(newest) => RetentionRules {
                keep_rolled_back: Some(newest.keep_rolled_back),
                asked_for: Some(KeepRequest {
                    last: newest.keep,
                    within: None,
                    periods: newest.periods,
                }),
                ..rules
            },
            Self::Repository(repository) => repository.rules(),
        }
    }
}

impl Repository {
    fn rules(&self) -> RetentionRules {
        let asked = KeepRequest {
            last: self.keep_last.unwrap_or(0),
            within: self.keep_within,
            periods: self.periods,
        };
        let asks = self.keep_last.is_some() || self.keep_within.is_some() || self.periods.is_any();
        RetentionRules {
            everything_stays: !asks && self.max_bytes.is_none(),
            asked_for: asks.then_some(asked),
            max_bytes: self.max_bytes,
            ..RetentionRules::default()
        }
    }
}
