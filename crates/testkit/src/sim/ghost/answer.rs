//! What is checked whenever an actor is told something.

use super::{Deed, Ghost, Means, Promise, Said, Verdict, hold};
use stasis_model::format::lease::LockState;
use stasis_model::id::OpId;
use stasis_model::protocol::operation::{Fate, Kind, Unsettled};
use stasis_model::protocol::step::Refusal;
use stasis_store::documents::leases::Lease;
use stasis_store::documents::lineages::LineageError;

impl Ghost {
    /// An actor is about to do something under this id.
    pub(crate) fn begin(&mut self, op_id: OpId, who: String, means: Means) {
        self.note(format_args!("begins: {who} {op_id:?} {means:?}"));
        let since = (self.pointers.len(), self.locks.len());
        let deed = Deed {
            who,
            means,
            pointers: 0,
            locks: 0,
            unheard: false,
            said: None,
            settled: None,
            since,
        };
        let again = self.deeds.insert(op_id, deed);
        assert!(again.is_none(), "operation ids are never drawn twice");
    }

    /// An actor was told how it ended.
    pub(crate) fn told<T>(&mut self, op_id: OpId, ending: &Result<T, LineageError>) {
        let verdict = match ending {
            Ok(_) => self.acknowledged(op_id),
            Err(LineageError::Refused { refusal, .. }) => {
                self.refused(op_id, refusal);
                self.denied(op_id)
            }
            Err(LineageError::Unknown(record)) => {
                self.doubted(op_id, record);
                Ok(())
            }
            Err(_) => {
                self.note(format_args!("store failed: {op_id:?}"));
                self.denied(op_id)
            }
        };
        self.judge(verdict);
    }

    fn say(&mut self, op_id: OpId, said: Said) {
        if let Some(deed) = self.deeds.get_mut(&op_id) {
            deed.said = Some(said);
        }
    }

    fn acknowledged(&mut self, op_id: OpId) -> Verdict {
        self.note(format_args!("done: {op_id:?}"));
        self.say(op_id, Said::Done);
        let deed = self.deed(op_id)?;
        hold(
            deed.applied() || self.in_effect(deed),
            Promise::Truthful,
            format_args!("said to be done, and not applied: {deed}"),
        )?;
        let (kind, unheard) = (deed.means.kind(), deed.unheard);
        self.sights.add(match kind {
            Kind::Acquire => "acknowledged acquire",
            Kind::Renew => "acknowledged renew",
            Kind::Release => "acknowledged release",
            Kind::Reap => "acknowledged reap",
            Kind::Flip => "acknowledged flip",
            Kind::Rollback => "acknowledged rollback",
            Kind::ForceUnlock => "acknowledged force-unlock",
            Kind::Delete => "acknowledged delete",
            Kind::Pin => "acknowledged pin",
            Kind::Check => "acknowledged check",
            Kind::Forget => "acknowledged forget",
        });
        if unheard {
            self.sights.add("acknowledged though its answer was lost");
        }
        Ok(())
    }

    /// Whether what the deed wants was so at some time since it began, whoever did it.
    fn in_effect(&self, deed: &Deed) -> bool {
        let (pointers, locks) = deed.since;
        let mut pointers = self.pointers[pointers.saturating_sub(1)..].iter();
        let mut locks = self.locks[locks.saturating_sub(1)..].iter();
        match &deed.means {
            Means::Release(fence) => {
                locks.any(|lock| lock.fence() == *fence && lock.state == LockState::Free)
            }
            Means::Delete(target) => pointers.any(|pointer| pointer.is_tombstoned(*target)),
            Means::Pin(target, pinned) => {
                pointers.any(|pointer| pointer.is_pinned(*target) == *pinned)
            }
            _ => false,
        }
    }

    /// A lease begins with the snapshot that was active in the very version that carries its fence.
    pub(crate) fn owned(&mut self, lease: &Lease) {
        let landed = self
            .pointers
            .iter()
            .find(|pointer| pointer.fence == lease.fence);
        let base = lease.base.as_ref();
        let right = landed.is_some_and(|landed| landed.active.as_ref() == base);
        let verdict = hold(
            right,
            Promise::Truthful,
            format_args!(
                "the lease {} begins with a base that is not its own",
                lease.fence
            ),
        );
        self.judge(verdict);
        let taken = lease.took_over.as_ref();
        if taken.is_some_and(|lock| lock.state == LockState::Held) {
            self.sights.add("take-over");
        }
    }

    fn denied(&mut self, op_id: OpId) -> Verdict {
        self.say(op_id, Said::Denied);
        let deed = self.deed(op_id)?;
        hold(
            !deed.applied() || self.superseded(op_id, deed),
            Promise::Truthful,
            format_args!("said not to be applied, and was: {deed}"),
        )
    }

    /// Owning is a statement about now: what somebody else has ended counts as never applied.
    fn superseded(&self, op_id: OpId, deed: &Deed) -> bool {
        let pointer = self.pointers.last();
        match deed.means {
            Means::Acquire => pointer.is_none_or(|pointer| pointer.fence.op_id != op_id),
            Means::Renew(fence) => {
                let fenced = pointer.is_none_or(|pointer| pointer.fence != fence);
                fenced || self.locks.last().is_none_or(|lock| lock.write_id != op_id)
            }
            _ => false,
        }
    }

    fn doubted(&mut self, op_id: OpId, record: &Unsettled) {
        self.note(format_args!("unknown: {op_id:?}"));
        self.sights.add("unknown outcome");
        self.say(op_id, Said::Unknown);
        self.riddles.push(record.clone());
    }

    /// Somebody asked again, and got an answer.
    pub(crate) fn settled(&mut self, record: &Unsettled, fate: Fate) {
        let op_id = record.op_id;
        self.note(format_args!("settled: {op_id:?} {fate:?}"));
        let verdict = self.check_fate(op_id, fate);
        self.judge(verdict);
        if let Some(deed) = self.deeds.get_mut(&op_id) {
            deed.settled = Some(fate);
        }
        match fate {
            Fate::Applied => self.sights.add("settled as applied"),
            Fate::NotApplied => self.sights.add("settled as not applied"),
            Fate::StillUnknown => {}
        }
    }

    fn check_fate(&self, op_id: OpId, fate: Fate) -> Verdict {
        let deed = self.deed(op_id)?;
        let right = match fate {
            Fate::Applied => deed.applied(),
            Fate::NotApplied => !deed.applied() || self.superseded(op_id, deed),
            Fate::StillUnknown => true,
        };
        hold(
            right,
            Promise::Truthful,
            format_args!("settled wrongly as {fate:?}: {deed}"),
        )
    }

    fn refused(&mut self, op_id: OpId, refusal: &Refusal) {
        self.note(format_args!("refused: {op_id:?} {refusal}"));
        let fresh = self
            .deeds
            .get(&op_id)
            .is_some_and(|deed| matches!(deed.means, Means::Flip { fresh: true, .. }));
        self.sights.add(match refusal {
            Refusal::Held(_) => "held by another",
            Refusal::LockLost(_) => "lock lost",
            Refusal::Diverged { .. } if fresh => "fresh fallback kept from replacing a snapshot",
            Refusal::Diverged { .. } => "diverged",
            Refusal::Tombstoned(_) => "tombstoned snapshot kept out",
            Refusal::HolderChanged { .. } => "holder changed before a force-unlock",
            Refusal::PointerMoved { .. } => "pointer moved before a rollback",
            Refusal::IsPinned(_) => "pinned snapshot kept",
            Refusal::IsActive(_) => "active snapshot kept",
            Refusal::Contended => "contended",
            _ => "refused otherwise",
        });
    }
}
