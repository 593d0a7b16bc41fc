//! Where the judging is done: all snapshots in order, the newest first, each with what was found about it so far.

use super::rules::{Asked, Rules, Scope, Whom};
use super::{Excess, Origin, Reason, Snapshot, Unmet, Verdict};
use crate::id::Label;
use crate::time::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) struct Bench<'a> {
    verdicts: Vec<Verdict<'a>>,
    unmet: Vec<Unmet>,
    now: Timestamp,
    ages_refused: bool,
}

impl<'a> Bench<'a> {
    pub(super) fn new(all: &'a [Snapshot], now: Timestamp, ages_refused: bool) -> Self {
        let mut sorted: Vec<&Snapshot> = all.iter().collect();
        sorted.sort_unstable_by(|one, other| other.cmp(one));
        let verdict = |snapshot| Verdict {
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

    pub(super) fn protect(&mut self, rules: &Rules) {
        let scopes: Vec<Vec<usize>> = match rules.scope {
            Scope::Group => self.groups().into_values().collect(),
            Scope::All => vec![(0..self.verdicts.len()).collect()],
        };
        for members in scopes {
            let newest = members.first().copied();
            let is_verified = |index: &&usize| self.verdicts[**index].snapshot.verified;
            let verified = members.iter().find(is_verified).copied();
            self.keep(newest, Reason::Newest);
            self.keep(verified, Reason::NewestVerified);
        }
        for index in 0..self.verdicts.len() {
            let snapshot = self.verdicts[index].snapshot;
            self.keep(snapshot.active.then_some(index), Reason::Active);
            self.keep(snapshot.pinned.then_some(index), Reason::Pinned);
            let is_named = rules.keep_names() && snapshot.origin == Origin::Named;
            self.keep(is_named.then_some(index), Reason::Named);
            if let (Some(span), Some(at)) = (rules.keep_rolled_back, snapshot.rolled_back_at) {
                let recent = self.ages_refused || self.now.since(at) <= span;
                self.keep(recent.then_some(index), Reason::RolledBackTo { at });
            }
        }
    }

    fn keep(&mut self, index: Option<usize>, reason: Reason) {
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

    pub(super) fn dismiss_what_nobody_asked_for(&mut self, asked: &Asked) {
        for members in self.groups().into_values() {
            for (rank, index) in members.into_iter().enumerate() {
                let age = self.now.since(self.verdicts[index].snapshot.created);
                let keep = asked.last;
                if (rank as u64) < keep {
                    self.keep(Some(index), Reason::AmongLast { keep });
                }
                match asked.within {
                    Some(_) if self.ages_refused => self.keep(Some(index), Reason::AgeRefused),
                    Some(span) if age <= span => self.keep(Some(index), Reason::Young),
                    _ => {}
                }
                if self.verdicts[index].kept_because.is_empty() {
                    self.dismiss(index, Excess::NotAskedFor);
                }
            }
        }
    }

    pub(super) fn dismiss_older_than(&mut self, limit: Duration) {
        for index in 0..self.verdicts.len() {
            if self.now.since(self.verdicts[index].snapshot.created) <= limit {
                continue;
            }
            if self.ages_refused {
                self.keep(Some(index), Reason::AgeRefused);
            } else if !self.is_protected(index) {
                self.dismiss(index, Excess::TooOld { limit });
            }
        }
    }

    pub(super) fn limit_each_group(&mut self, limit: u64, whom: Whom) {
        for (group, members) in self.groups() {
            let concerned = |index: &usize| {
                whom == Whom::Everybody || self.verdicts[*index].snapshot.origin == Origin::Auto
            };
            let (concerned, names): (Vec<usize>, Vec<usize>) =
                members.into_iter().partition(concerned);
            let excess = Excess::GroupCount { limit };
            self.squeeze(&concerned, (excess, Some(group)), limit, |_| 1);
            if let Whom::Automatic { names: room } = whom {
                let excess = Excess::GroupCount { limit: room };
                self.squeeze(&names, (excess, Some(group)), room, |_| 1);
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
        self.squeeze(&everybody, (excess, None), limit, weight);
    }

    /// Counts those of `members` that are still there, the protected ones first, and lets go what does not fit.
    fn squeeze(
        &mut self,
        members: &[usize],
        (excess, group): (Excess, Option<&Label>),
        limit: u64,
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
        let mut room = limit.checked_sub(reserved);
        if room.is_none() {
            self.unmet.push(Unmet {
                limit: excess,
                group: group.cloned(),
                protected: reserved,
            });
        }
        for index in others {
            room = room.and_then(|room| room.checked_sub(weight(self.verdicts[index].snapshot)));
            if room.is_none() {
                self.dismiss(index, excess);
            }
        }
    }

    /// Gives whoever is left a reason.
    pub(super) fn close(mut self, rules: &Rules) -> (Vec<Verdict<'a>>, Vec<Unmet>) {
        let reason = if rules.everything_stays {
            Reason::EverythingStays
        } else {
            Reason::WithinLimits
        };
        for verdict in &mut self.verdicts {
            if verdict.goes_because.is_none() && verdict.kept_because.is_empty() {
                verdict.kept_because.push(reason);
            }
        }
        (self.verdicts, self.unmet)
    }
}
