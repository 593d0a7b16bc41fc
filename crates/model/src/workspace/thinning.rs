//! Which checkpoints of agents' prompts and commands are kept, and why.
//!
//! Commands: all of the last hour, then the first of every ten minutes of the day, then the first of every hour of the week.
//! The checkpoint that a prompt began with: for a week, and as long as any checkpoint of that prompt is kept; that of the last
//! prompt always. What has a name, is manual, automatic by the timer, an undo, or unreadable is not judged here.
//!
//! *Always true:* the newest few of either kind stay whatever the clock says, and so does whatever seems to be from the future:
//! a clock that jumps, forwards or back, never empties a pool.

use super::{CheckpointOrigin, Occupant, Slot, SlotMetadata};
use crate::time::Timestamp;
use std::collections::{BTreeSet, HashSet};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const WEEK: u64 = 7 * DAY;
/// So many of the newest prompts, and of the newest commands, are kept at any age.
const NEWEST: usize = 10;
/// More than this many are never kept, however many were made in a week.
const MOST: usize = 2000;

/// Why a checkpoint stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeptBecause {
    /// The last prompt began with it.
    LastPrompt,
    /// Its time is after now: some clock was wrong, and it is unknown which.
    FromTheFuture,
    /// It is among the newest of its kind.
    Newest,
    /// A prompt of the last week began with it.
    PromptOfTheWeek,
    /// A prompt began with it of which other checkpoints are kept.
    PromptInUse,
    /// It is less than an hour old.
    LastHour,
    /// It is the first of its ten minutes, less than a day ago.
    TenMinutes,
    /// It is the first of its hour, less than a week ago.
    Hourly,
}

/// Why a checkpoint goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GoesBecause {
    /// Another one of the same ten minutes, or of the same hour, stays.
    Thinned,
    /// It is more than a week old.
    Old,
    /// There are more than are kept.
    TooMany,
}

/// What becomes of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThinningVerdict {
    /// It stays.
    Keep(KeptBecause),
    /// It may go.
    Forget(GoesBecause),
}

impl ThinningVerdict {
    fn is_keep(self) -> bool {
        matches!(self, Self::Keep(_))
    }
}

/// Judges every checkpoint of agents' prompts and commands, the oldest first.
pub fn judge(occupants: &[Occupant], now: Timestamp) -> Vec<(Slot, ThinningVerdict)> {
    let known: Vec<&SlotMetadata> = occupants.iter().filter_map(Occupant::known).collect();
    let is_judged = |one: &&SlotMetadata| {
        matches!(
            one.origin,
            CheckpointOrigin::Prompt | CheckpointOrigin::Command
        ) && one.name.is_none()
    };
    let mut judged: Vec<&SlotMetadata> = known.iter().copied().filter(is_judged).collect();
    judged.sort_by_key(|one| one.age_key());
    let mut evaluator = Evaluator {
        now: now.millis(),
        last_prompt: last_prompt(occupants),
        newest: newest(&judged),
        periods: BTreeSet::new(),
    };
    let mut verdicts: Vec<ThinningVerdict> =
        judged.iter().map(|one| evaluator.judge(one)).collect();
    keep_prompts_in_use(&judged, &mut verdicts, &known);
    forget_surplus(&judged, &mut verdicts, evaluator.last_prompt);
    let slots = judged.iter().map(|one| one.slot);
    slots.zip(verdicts).collect()
}

/// The number of the last prompt of a workspace.
pub(super) fn last_prompt(occupants: &[Occupant]) -> Option<u64> {
    let known = occupants.iter().filter_map(Occupant::known);
    known.filter_map(|one| one.last_prompt()?.prompt()).max()
}

/// Whether the last prompt of all began with it.
pub(super) fn holds(one: &SlotMetadata, last_prompt: Option<u64>) -> bool {
    let own = one.last_prompt().and_then(super::agent::AgentEvent::prompt);
    own.is_some() && own == last_prompt
}

/// The newest few with a prompt, and the newest few without.
fn newest(judged: &[&SlotMetadata]) -> HashSet<Slot> {
    let of = |is_prompt: bool| {
        let kind = judged.iter().rev();
        let kind = kind.filter(move |one| one.last_prompt().is_some() == is_prompt);
        kind.take(NEWEST).map(|one| one.slot)
    };
    of(true).chain(of(false)).collect()
}

struct Evaluator {
    now: u64,
    last_prompt: Option<u64>,
    newest: HashSet<Slot>,
    /// The periods that have their checkpoint, by length and number.
    periods: BTreeSet<(u64, u64)>,
}

impl Evaluator {
    fn judge(&mut self, one: &SlotMetadata) -> ThinningVerdict {
        let prompt = one.last_prompt();
        let at = prompt.map_or(one.epoch_millis, |prompt| prompt.at_ms);
        if holds(one, self.last_prompt) {
            return ThinningVerdict::Keep(KeptBecause::LastPrompt);
        }
        if at > self.now {
            return ThinningVerdict::Keep(KeptBecause::FromTheFuture);
        }
        let age = self.now - at;
        if prompt.is_some() && age < WEEK {
            return ThinningVerdict::Keep(KeptBecause::PromptOfTheWeek);
        }
        let by_age = match age {
            _ if prompt.is_some() => ThinningVerdict::Forget(GoesBecause::Old),
            0..HOUR => ThinningVerdict::Keep(KeptBecause::LastHour),
            HOUR..DAY => self.first_of(10 * MINUTE, at, KeptBecause::TenMinutes),
            DAY..WEEK => self.first_of(HOUR, at, KeptBecause::Hourly),
            _ => ThinningVerdict::Forget(GoesBecause::Old),
        };
        if !by_age.is_keep() && self.newest.contains(&one.slot) {
            return ThinningVerdict::Keep(KeptBecause::Newest);
        }
        by_age
    }

    fn first_of(&mut self, period: u64, at: u64, because: KeptBecause) -> ThinningVerdict {
        if self.periods.insert((period, at / period)) {
            ThinningVerdict::Keep(because)
        } else {
            ThinningVerdict::Forget(GoesBecause::Thinned)
        }
    }
}

/// A prompt's own checkpoint outlives all others of that prompt.
fn keep_prompts_in_use(
    judged: &[&SlotMetadata],
    verdicts: &mut [ThinningVerdict],
    known: &[&SlotMetadata],
) {
    let going: HashSet<Slot> = judged
        .iter()
        .zip(&*verdicts)
        .filter(|(_, verdict)| !verdict.is_keep())
        .map(|(one, _)| one.slot)
        .collect();
    let staying = known.iter().filter(|one| !going.contains(&one.slot));
    let in_use: HashSet<u64> = staying
        .flat_map(|one| &one.agent_events)
        .filter_map(|event| event.turn)
        .collect();
    for (one, verdict) in judged.iter().zip(verdicts) {
        let mut turns = one
            .agent_events
            .iter()
            .filter_map(super::agent::AgentEvent::prompt);
        if !verdict.is_keep() && turns.any(|turn| in_use.contains(&turn)) {
            *verdict = ThinningVerdict::Keep(KeptBecause::PromptInUse);
        }
    }
}

/// Beyond the most that are kept, the oldest go: those of commands first, that of the last prompt never.
fn forget_surplus(
    judged: &[&SlotMetadata],
    verdicts: &mut [ThinningVerdict],
    last_prompt: Option<u64>,
) {
    let kept = verdicts.iter().filter(|verdict| verdict.is_keep()).count();
    let mut surplus = kept.saturating_sub(MOST);
    for is_prompt in [false, true] {
        for (one, verdict) in judged.iter().zip(&mut *verdicts) {
            let is_meant = one.last_prompt().is_some() == is_prompt && !holds(one, last_prompt);
            if surplus > 0 && verdict.is_keep() && is_meant {
                *verdict = ThinningVerdict::Forget(GoesBecause::TooMany);
                surplus -= 1;
            }
        }
    }
}
