//! Which snapshots may go. Pure: gc obeys, and decides nothing.
//!
//! 1. protect   2. what no rule asks to keep   3. what is too old   4. too many of one group   5. too many in all
//! 6. too many bytes
//!
//! *Always true:* an active snapshot, a pinned one, the newest one and the newest verified one never go, whatever the
//! policy and the clock say; so not everything ever goes. A limit counts the protected ones first and then takes the
//! newest of the others until one does not fit: all older ones go with it, and a small old snapshot never outlives a
//! large newer one. What protection pushes over a limit is said in [`Judgement::unmet`]. The order in which snapshots
//! are given makes no difference, and judging again what was kept lets nothing more go.
//!
//! A newer snapshot makes room only by pushing others out, so none of its own group that was to go ever returns, as
//! long as nothing lost its protection to it. With limits in bytes a *large* one that it pushed out of its own group may
//! leave room for one of another.
//!
//! More of `keep_last`, `keep_within` or of any calendar period never lets more go, unless there is a limit in bytes, which what is kept
//! besides uses up.
//!
//! Clocks jump. While ours differs from the store's by an hour, or lies before the newest snapshot, no snapshot goes
//! because of its age: the others' verdicts stand, and [`Judgement::clock`] says why.

mod calendar;
mod evaluator;
mod rules;

use crate::id::{Label, SnapshotId};
use crate::time::Timestamp;
pub use calendar::{CalendarPeriod, KeepPeriods};
use evaluator::RetentionEvaluator;
pub use rules::{AgeCountBytes, Newest, Repository, RetentionPolicy, Ring};
use serde::{Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// So much may our clock and the store's differ before ages mean nothing.
pub const CLOCKS_AGREE_WITHIN: Duration = Duration::from_hours(1);

/// How a snapshot came to be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SnapshotOrigin {
    /// By itself: at the end of a run, on a timer, before a restore.
    Auto,
    /// Because a user asked for it.
    Named,
}

/// What retention needs to know of a snapshot.
///
/// `group` and `id` together name it: no two snapshots of one judgement agree in both.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Snapshot {
    /// When it was made, by the clock of the host that made it.
    pub created: Timestamp,
    /// Which one.
    pub id: SnapshotId,
    /// What it is a snapshot of, where one policy rules several: a container, a session, a workspace.
    pub group: Label,
    /// How much would be freed, as far as is known.
    pub bytes: u64,
    /// How it came to be.
    pub origin: SnapshotOrigin,
    /// Whether a pointer leads to it.
    pub active: bool,
    /// Whether it is pinned.
    pub pinned: bool,
    /// Whether all of it was read back and found right.
    pub verified: bool,
    /// When it was last rolled back to.
    pub rolled_back_at: Option<Timestamp>,
    /// What cannot be done without it.
    pub needed_for: Option<SnapshotNeed>,
}

/// What a snapshot is needed for, though no pointer leads to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SnapshotNeed {
    /// To take back the last restore.
    Undo,
}

/// What to do while the clock is in doubt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnDoubt {
    /// Lets nothing go because of its age.
    #[default]
    RefuseAges,
    /// Believes the local clock, because the caller said so.
    JudgeAnyway,
}

/// What time it is, according to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clocks {
    /// Our own clock: what ages are measured with.
    pub local: Timestamp,
    /// The store's `Date`, where it has one.
    pub store: Option<Timestamp>,
    /// What to do when they disagree.
    pub on_doubt: OnDoubt,
}

impl Clocks {
    /// The local clock alone, for a store without one.
    pub fn local(now: Timestamp) -> Self {
        Self {
            local: now,
            store: None,
            on_doubt: OnDoubt::default(),
        }
    }

    fn doubt(&self, all: &[Snapshot]) -> Option<ClockDoubt> {
        if let Some(store) = self.store {
            let apart = self.local.since(store).max(store.since(self.local));
            if apart >= CLOCKS_AGREE_WITHIN {
                let local = self.local;
                return Some(ClockDoubt::Apart { local, store });
            }
        }
        let newest = all.iter().map(|snapshot| snapshot.created).max()?;
        let (local, precedes) = (self.local, self.local < newest);
        precedes.then_some(ClockDoubt::BeforeNewest { local, newest })
    }
}

/// Why ages mean nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "doubt")]
#[non_exhaustive]
pub enum ClockDoubt {
    /// Our clock and the store's differ too much.
    Apart {
        /// What our clock says.
        local: Timestamp,
        /// What the store says.
        store: Timestamp,
    },
    /// A snapshot was made later than now.
    BeforeNewest {
        /// What our clock says.
        local: Timestamp,
        /// When the newest snapshot was made.
        newest: Timestamp,
    },
}

impl fmt::Display for ClockDoubt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apart { local, store } => write!(
                out,
                "the local clock says {local}, the store's {store}: ages mean nothing while they differ by an hour"
            ),
            Self::BeforeNewest { local, newest } => write!(
                out,
                "the local clock says {local}, but the newest snapshot was made at {newest}"
            ),
        }
    }
}

/// Why a snapshot stays.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
#[non_exhaustive]
pub enum KeepReason {
    /// A pointer leads to it.
    Active,
    /// It is pinned.
    Pinned,
    /// The last restore cannot be taken back without it.
    NeededForUndo,
    /// It is the newest.
    Newest,
    /// It is the newest that was read back and found right.
    NewestVerified,
    /// It was asked for by name, and the policy never overwrites those.
    Named,
    /// It was rolled back to not long ago.
    RolledBackTo {
        /// When.
        at: Timestamp,
    },
    /// It is among the newest that the policy asks for.
    AmongLast {
        /// How many those are.
        keep: u64,
    },
    /// It is the newest of a calendar period that the policy asks for.
    Period {
        /// Of which kind.
        period: CalendarPeriod,
    },
    /// It is as young as the policy asks for.
    Young,
    /// It would go because of its age, but the clock is in doubt.
    AgeRefused,
    /// There is room for it.
    WithinLimits,
    /// The policy lets nothing go.
    EverythingStays,
}

impl KeepReason {
    /// Whether it holds against every limit.
    pub fn protects(self) -> bool {
        matches!(
            self,
            Self::Active
                | Self::Pinned
                | Self::NeededForUndo
                | Self::Newest
                | Self::NewestVerified
                | Self::Named
                | Self::RolledBackTo { .. }
        )
    }
}

impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active => f.write_str("it is active"),
            Self::Pinned => f.write_str("it is pinned"),
            Self::NeededForUndo => f.write_str("undo needs it"),
            Self::Newest => f.write_str("it is the newest"),
            Self::NewestVerified => f.write_str("it is the newest verified one"),
            Self::Named => f.write_str("it was asked for by name"),
            Self::RolledBackTo { at } => write!(f, "it was rolled back to at {at}"),
            Self::AmongLast { keep } => write!(f, "it is among the newest {keep}"),
            Self::Period { period } => write!(f, "{period} snapshot"),
            Self::Young => f.write_str("it is young enough"),
            Self::AgeRefused => f.write_str("its age is not known while the clock is in doubt"),
            Self::WithinLimits => f.write_str("there is room for it"),
            Self::EverythingStays => f.write_str("the policy lets nothing go"),
        }
    }
}

/// Why a snapshot may go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
#[non_exhaustive]
pub enum Excess {
    /// Nothing in the policy asks to keep it.
    NotAskedFor,
    /// It is older than allowed.
    TooOld {
        /// How old it may be; in results, in seconds.
        #[serde(rename = "limit_s", serialize_with = "in_seconds")]
        limit: Duration,
    },
    /// Its group has too many.
    GroupCount {
        /// How many it may have.
        limit: u64,
    },
    /// There are too many in all.
    Count {
        /// How many there may be.
        limit: u64,
    },
    /// Together with newer ones it is too large.
    Bytes {
        /// How many bytes there may be.
        limit: u64,
    },
}

fn in_seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(duration.as_secs())
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAskedFor => f.write_str("nothing in the policy asks to keep it"),
            Self::TooOld { limit } => match limit.as_secs() {
                seconds if seconds % 3600 == 0 => {
                    write!(f, "it is older than {} hours", seconds / 3600)
                }
                seconds => write!(f, "it is older than {seconds} s"),
            },
            Self::GroupCount { limit } => write!(f, "its group has more than {limit}"),
            Self::Count { limit } => write!(f, "there are more than {limit} in all"),
            Self::Bytes { limit } => write!(f, "with newer ones it exceeds {limit} bytes"),
        }
    }
}

/// What becomes of one snapshot. Exactly one of the two lists is empty.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RetentionVerdict<'a> {
    /// Which one.
    pub snapshot: &'a Snapshot,
    /// Why it stays; empty when it may go.
    pub kept_because: Vec<KeepReason>,
    /// Why it may go.
    pub goes_because: Option<Excess>,
}

impl RetentionVerdict<'_> {
    /// Whether it stays.
    pub fn is_kept(&self) -> bool {
        !self.kept_because.is_empty()
    }
}

/// A limit that cannot be met because of what is protected.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Unmet {
    /// Which limit.
    pub limit: Excess,
    /// Of which group; `None` for a limit on all.
    pub group: Option<Label>,
    /// How much the protected ones amount to, in the unit of the limit.
    pub protected: u64,
}

/// What becomes of all snapshots.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a judgement deletes nothing by itself"]
#[non_exhaustive]
pub struct Judgement<'a> {
    /// One verdict each, the newest first.
    pub verdicts: Vec<RetentionVerdict<'a>>,
    /// Limits that what is protected exceeds by itself.
    pub unmet: Vec<Unmet>,
    /// Why no snapshot went because of its age, though the policy has a rule about age.
    pub clock: Option<ClockDoubt>,
}

impl<'a> Judgement<'a> {
    /// The snapshots that may go, the newest first.
    pub fn going(&self) -> impl Iterator<Item = &'a Snapshot> {
        let going = self.verdicts.iter().filter(|verdict| !verdict.is_kept());
        going.map(|verdict| verdict.snapshot)
    }
}

/// Judges every snapshot, with reasons.
pub fn judge<'a>(policy: &RetentionPolicy, all: &'a [Snapshot], clocks: &Clocks) -> Judgement<'a> {
    let rules = policy.rules();
    let doubt = clocks.doubt(all).filter(|_| rules.look_at_ages());
    let believed = doubt.filter(|_| clocks.on_doubt == OnDoubt::RefuseAges);
    let mut evaluator = RetentionEvaluator::new(all, clocks.local, believed.is_some());
    evaluator.protect(&rules);
    if let Some(asked) = &rules.asked_for {
        evaluator.dismiss_not_asked_for(asked);
    }
    if let Some(limit) = rules.max_age {
        evaluator.dismiss_older_than(limit);
    }
    if let Some((limit, whom)) = rules.per_group {
        evaluator.limit_each_group(limit, whom);
    }
    if let Some(limit) = rules.in_all {
        evaluator.limit_all(Excess::Count { limit }, limit, |_| 1);
    }
    if let Some(limit) = rules.max_bytes {
        evaluator.limit_all(Excess::Bytes { limit }, limit, |snapshot| snapshot.bytes);
    }
    let clock = believed;
    let (verdicts, unmet) = evaluator.close(&rules);
    Judgement {
        verdicts,
        unmet,
        clock,
    }
}

#[cfg(test)]
mod tests;
