//! Where the judging is done: all snapshots in order, the newest first, each with what was found about it so far.

use super::calendar::CalendarPeriod;
use super::rules::{KeepRequest, LimitTarget, NewestScope, RetentionRules};
use super::{Excess, KeepReason, RetentionVerdict, Snapshot, SnapshotNeed, SnapshotOrigin, Unmet};
use crate::id::Label;
use crate::time::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// A limit, the reason it gives, and the group it is about, if about one.
struct GroupLimit<'g> {
    excess: Excess,
    group: Option<&'g Label>,
    limit: u64,
}

pub(super) struct RetentionEvaluator<'a> {
    verdicts: Vec<RetentionVerdict<'a>>,
    unmet: Vec<Unmet>,
    now: Timestamp,
    ages_refused: bool,
}

impl<'a> RetentionEvaluator<'a> {
    pub(super) fn new(all: &'a [Snapshot], now: Timestamp, ages_refused: bool) -> Self {
        let mut sorted: Vec<&Snapshot> = all.iter().collect();
        sorted.sort_unstable_by(|one, other| other.cmp(one));
        let verdict = |snapshot| RetentionVerdict {
            snapshot,
            kept_because: Vec::new(),
            goes_because: None,
        };
        Self {
            verdicts: sorted.into_iter().map(verdict).collect(),
            unmet: Vec::new(),
            now,
            ages_refused,
        }
    }

    /// The groups with their members, the newest first.
    fn groups(&self) -> BTreeMap<&'a Label, Vec<usize>> {
        let mut groups: BTreeMap<&Label, Vec<usize>> = BTreeMap::new();
        for (index, verdict) in self.verdicts.iter().enumerate() {
            let members = groups.entry(&verdict.snapshot.group).or_default();
            members.push(index);
        }
        groups
    }

    pub(super) fn protect(&mut self, rules: &RetentionRules) {
        let scopes: Vec<Vec<usize>> = match rules.scope {
            NewestScope::Group => self.groups().into_values().collect(),
            NewestScope::All => vec![(0..self.verdicts.len()).collect()],
        };
        for members in scopes {
            let newest = members.first().copied();
            let is_verified = |index: &&usize| self.verdicts[**index].snapshot.verified;
            let verified = members.iter().find(is_verified).copied();
            self.keep(newest, KeepReason::Newest);
            self.keep(verified, KeepReason::NewestVerified);
        }
        for index in 0..self.verdicts.len() {
            let snapshot = self.verdicts[index].snapshot;
            self.keep(snapshot.active.then_some(index), KeepReason::Active);
            self.keep(snapshot.pinned.then_some(index), KeepReason::Pinned);
            let for_undo = snapshot.needed_for.map(|SnapshotNeed::Undo| index);
            self.keep(for_undo, KeepReason::NeededForUndo);
            let is_named = rules.keep_names() && snapshot.origin == SnapshotOrigin::Named;
            self.keep(is_named.then_some(index), KeepReason::Named);
            if let (Some(span), Some(at)) = (rules.keep_rolled_back, snapshot.rolled_back_at) {
                let recent = self.ages_refused || self.now.since(at) <= span;
                self.keep(recent.then_some(index), KeepReason::RolledBackTo { at });
            }
        }
    }

    fn keep(&mut self, index: Option<usize>, reason: KeepReason) {
        if let Some(index) = index {
            self.verdicts[index].kept_because.push(reason);
        }
    }

    fn is_protected(&self, index: usize) -> bool {
        let reasons = &self.verdicts[index].kept_because;
        reasons.iter().any(|reason| reason.protects())
    }

    fn dismiss(&mut self, index: usize, excess: Excess) {
        let verdict = &mut self.verdicts[index];
        verdict.kept_because.clear();
        verdict.goes_because = Some(excess);
    }

    pub(super) fn dismiss_not_asked_for(&mut self, asked: &KeepRequest) {
        for members in self.groups().into_values() {
            self.keep_periods(asked, &members);
            for (rank, index) in members.into_iter().enumerate() {
                let age = self.now.since(self.verdicts[index].snapshot.created);
                let keep = asked.last;
                if (rank as u64) < keep {
                    self.keep(Some(index), KeepReason::AmongLast { keep });
                }
                match asked.within {
                    Some(_) if self.ages_refused => self.keep(Some(index), KeepReason::AgeRefused),
                    Some(span) if age <= span => self.keep(Some(index), KeepReason::Young),
                    _ => {}
                }
                if self.verdicts[index].kept_because.is_empty() {
                    self.dismiss(index, Excess::NotAskedFor);
                }
            }
        }
    }

    /// Keeps the newest of each calendar period that is asked for, of one group.
    fn keep_periods(&mut self, asked: &KeepRequest, members: &[usize]) {
        let moment = |index: &usize| {
            let snapshot = &self.verdicts[*index].snapshot;
            (snapshot.created, snapshot.origin == SnapshotOrigin::Named)
        };
        let moments: Vec<(Timestamp, bool)> = members.iter().map(moment).collect();
        for period in CalendarPeriod::ALL {
            for place in asked.periods.kept(period, &moments) {
                self.keep(Some(members[place]), KeepReason::Period { period });
            }
        }
    }

    pub(super) fn dismiss_older_than(&mut self, limit: Duration) {
        for index in 0..self.verdicts.len() {
            if self.now.since(self.verdicts[index].snapshot.created) <= limit {
                continue;
            }
            if self.ages_refused {
                self.keep(Some(index), KeepReason::AgeRefused);
            } else if !self.is_protected(index) {
                self.dismiss(index, Excess::TooOld { limit });
            }
        }
    }

    pub(super) fn limit_each_group(&mut self, limit: u64, whom: LimitTarget) {
        for (group, members) in self.groups() {
            let concerned = |index: &usize| {
                whom == LimitTarget::Everybody
                    || self.verdicts[*index].snapshot.origin == SnapshotOrigin::Auto
            };
            let (concerned, names): (Vec<usize>, Vec<usize>) =
                members.into_iter().partition(concerned);
            let excess = Excess::GroupCount { limit };
            self.squeeze(
                &concerned,
                &GroupLimit {
                    excess,
                    group: Some(group),
                    limit,
                },
                |_| 1,
            );
            if let LimitTarget::Automatic { names: room } = whom {
                let excess = Excess::GroupCount { limit: room };
                self.squeeze(
                    &names,
                    &GroupLimit {
                        excess,
                        group: Some(group),
                        limit: room,
                    },
                    |_| 1,
                );
            }
        }
    }

    pub(super) fn limit_all(
        &mut self,
        excess: Excess,
        limit: u64,
        weight: impl Fn(&Snapshot) -> u64,
    ) {
        let everybody: Vec<usize> = (0..self.verdicts.len()).collect();
        self.squeeze(
            &everybody,
            &GroupLimit {
                excess,
                group: None,
                limit,
            },
            weight,
        );
    }

    /// Counts those of `members` that are still there, the protected ones first, and lets go what does not fit.
    fn squeeze(
        &mut self,
        members: &[usize],
        bound: &GroupLimit<'_>,
        weight: impl Fn(&Snapshot) -> u64,
    ) {
        let here = |index: &usize| self.verdicts[*index].goes_because.is_none();
        let (protected, others): (Vec<usize>, Vec<usize>) = members
            .iter()
            .filter(|index| here(index))
            .partition(|index| self.is_protected(**index));
        let weigh = |index: usize| weight(self.verdicts[index].snapshot);
        let reserved = protected
            .into_iter()
            .map(weigh)
            .fold(0, u64::saturating_add);
        let mut room = bound.limit.checked_sub(reserved);
        if room.is_none() {
            self.unmet.push(Unmet {
                limit: bound.excess,
                group: bound.group.cloned(),
                protected: reserved,
            });
        }
        for index in others {
            room = room.and_then(|room| room.checked_sub(weight(self.verdicts[index].snapshot)));
            if room.is_none() {
                self.dismiss(index, bound.excess);
            }
        }
    }

    /// Gives every snapshot that is left a reason.
    pub(super) fn close(
        mut self,
        rules: &RetentionRules,
    ) -> (Vec<RetentionVerdict<'a>>, Vec<Unmet>) {
        let reason = if rules.everything_stays {
            KeepReason::EverythingStays
        } else {
            KeepReason::WithinLimits
        };
        for verdict in &mut self.verdicts {
            if verdict.goes_because.is_none() && verdict.kept_because.is_empty() {
                verdict.kept_because.push(reason);
            }
        }
        (self.verdicts, self.unmet)
    }
}
