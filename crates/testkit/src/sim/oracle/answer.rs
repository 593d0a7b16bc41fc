//! What is checked whenever an actor is told something.

use super::{Effect, Means, Oracle, Promise, Said, Verdict, hold};
use stasis_model::format::lease::LockState;
use stasis_model::id::OpId;
use stasis_model::protocol::operation::{OperationFate, OperationKind, Unsettled};
use stasis_model::protocol::step::Refusal;
use stasis_store::documents::leases::Lease;
use stasis_store::documents::lineages::LineageError;

impl Oracle {
    /// An actor is about to do something under this id.
    pub(crate) fn begin(&mut self, op_id: OpId, who: String, means: Means) {
        self.note(format_args!("begins: {who} {op_id:?} {means:?}"));
        let since = (self.pointers.len(), self.locks.len());
        let effect = Effect {
            who,
            means,
            pointers: 0,
            locks: 0,
            unanswered: false,
            said: None,
            settled: None,
            since,
        };
        let again = self.effects.insert(op_id, effect);
        assert!(again.is_none(), "operation ids are never drawn twice");
    }

    /// An actor was told how it ended.
    pub(crate) fn record_answer<T>(&mut self, op_id: OpId, ending: &Result<T, LineageError>) {
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
        if let Some(effect) = self.effects.get_mut(&op_id) {
            effect.said = Some(said);
        }
    }

    fn acknowledged(&mut self, op_id: OpId) -> Verdict {
        self.note(format_args!("done: {op_id:?}"));
        self.say(op_id, Said::Done);
        let effect = self.effect(op_id)?;
        hold(
            effect.applied() || self.in_effect(effect),
            Promise::Truthful,
            format_args!("said to be done, and not applied: {effect}"),
        )?;
        let (kind, unanswered) = (effect.means.kind(), effect.unanswered);
        self.observations.add(match kind {
            OperationKind::Acquire => "acknowledged acquire",
            OperationKind::Renew => "acknowledged renew",
            OperationKind::Release => "acknowledged release",
            OperationKind::Reap => "acknowledged reap",
            OperationKind::Publish => "acknowledged publish",
            OperationKind::Rollback => "acknowledged rollback",
            OperationKind::ForceUnlock => "acknowledged force-unlock",
            OperationKind::Delete => "acknowledged delete",
            OperationKind::Pin => "acknowledged pin",
            OperationKind::Check => "acknowledged check",
            OperationKind::Forget => "acknowledged forget",
        });
        if unanswered {
            self.observations
                .add("acknowledged though its answer was lost");
        }
        Ok(())
    }

    /// Whether what the act wants was so at some time since it began, whoever did it.
    fn in_effect(&self, effect: &Effect) -> bool {
        let (pointers, locks) = effect.since;
        let mut pointers = self.pointers[pointers.saturating_sub(1)..].iter();
        let mut locks = self.locks[locks.saturating_sub(1)..].iter();
        match &effect.means {
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
            self.observations.add("take-over");
        }
    }

    fn denied(&mut self, op_id: OpId) -> Verdict {
        self.say(op_id, Said::Denied);
        let effect = self.effect(op_id)?;
        hold(
            !effect.applied() || self.superseded(op_id, effect),
            Promise::Truthful,
            format_args!("said not to be applied, and was: {effect}"),
        )
    }

    /// Owning is a statement about now: what another process has ended counts as never applied.
    fn superseded(&self, op_id: OpId, effect: &Effect) -> bool {
        let pointer = self.pointers.last();
        match effect.means {
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
        self.observations.add("unknown outcome");
        self.say(op_id, Said::Unknown);
        self.unknowns.push(record.clone());
    }

    /// Somebody asked again, and got an answer.
    pub(crate) fn settled(&mut self, record: &Unsettled, fate: OperationFate) {
        let op_id = record.op_id;
        self.note(format_args!("settled: {op_id:?} {fate:?}"));
        let verdict = self.check_fate(op_id, fate);
        self.judge(verdict);
        if let Some(effect) = self.effects.get_mut(&op_id) {
            effect.settled = Some(fate);
        }
        match fate {
            OperationFate::Applied => self.observations.add("settled as applied"),
            OperationFate::NotApplied => self.observations.add("settled as not applied"),
            OperationFate::Unknown => {}
        }
    }

    fn check_fate(&self, op_id: OpId, fate: OperationFate) -> Verdict {
        let effect = self.effect(op_id)?;
        let right = match fate {
            OperationFate::Applied => effect.applied(),
            OperationFate::NotApplied => !effect.applied() || self.superseded(op_id, effect),
            OperationFate::Unknown => true,
        };
        hold(
            right,
            Promise::Truthful,
            format_args!("settled wrongly as {fate:?}: {effect}"),
        )
    }

    fn refused(&mut self, op_id: OpId, refusal: &Refusal) {
        self.note(format_args!("refused: {op_id:?} {refusal}"));
        let fresh = self
            .effects
            .get(&op_id)
            .is_some_and(|effect| matches!(effect.means, Means::Publish { fresh: true, .. }));
        self.observations.add(match refusal {
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
