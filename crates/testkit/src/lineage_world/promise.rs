//! What must never happen, checked at every move.

use super::LineageWorld;
use super::actor::UnknownOutcome;
use super::conduct::{Conduct, Duty, Ending, Task};
use super::request::{Cell, Request};
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::lease::{Fence, Lock, LockState};
use stasis_model::format::pointer::{Active, Pointer};
use stasis_model::id::{Epoch, Generation};
use stasis_model::protocol::operation::OperationFate;
use stasis_model::protocol::settle::Body;
use stasis_model::protocol::step::Doc;
use std::fmt::Display;

/// One of the promises.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Promise {
    /// A publish replaces exactly the snapshot that its writer loaded.
    Linear,
    /// Done means applied, refused means never applied, and an unknown outcome is never settled wrongly.
    Truthful,
    /// Only the writer whose fence landed last publishes.
    Fenced,
    /// Epochs never decrease, generations grow by one, documents are never deleted.
    Growing,
    /// Nobody takes a lease that is not the one it judged.
    Preserved,
    /// The active snapshot exists and is not marked for removal.
    Closed,
}

impl Promise {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Linear,
        Self::Truthful,
        Self::Fenced,
        Self::Growing,
        Self::Preserved,
        Self::Closed,
    ];
}

/// The outcome of a check: a broken promise is named first.
pub(crate) type Verdict = Result<(), String>;

impl<C: Conduct> LineageWorld<C> {
    fn hold(&self, promise: Promise, kept: bool, breach: impl Display) -> Verdict {
        if kept || !self.shared.cast.promises.contains(&promise) {
            return Ok(());
        }
        Err(format!("{promise:?}: {breach}"))
    }

    /// Checks a change of either document before it is made.
    pub(crate) fn check_change(&self, request: &Request) -> Verdict {
        match &request.body {
            Body::Lock(next) => {
                let before = self.lock.as_deref().map(|cell| &cell.value);
                self.check_lock(before, next, request)
            }
            Body::Pointer(next) => {
                let before = self.pointer.as_deref().map(|cell| &cell.value);
                self.check_pointer(before, next, request)
            }
        }
    }

    fn check_lock(&self, before: Option<&Cell<Lock>>, next: &Lock, request: &Request) -> Verdict {
        let by = format_args!("by actor {}", request.task.actor);
        let old = before.map(|cell| &cell.value);
        let grown = old.map_or(Generation(1), |old| old.generation.next());
        self.hold(
            Promise::Growing,
            next.generation == grown,
            format_args!("lock.json went to generation {} {by}", next.generation),
        )?;
        let epoch = old.map_or(Epoch(0), |old| old.epoch);
        self.hold(
            Promise::Growing,
            next.epoch >= epoch,
            format_args!("the lock's epoch fell from {epoch} to {} {by}", next.epoch),
        )?;
        let preserved = match &request.task.duty {
            Duty::Release(fence) | Duty::Renew(fence) => {
                old.is_some_and(|old| old.fence() == *fence)
            }
            Duty::Reap => before.is_some_and(|cell| cell.version == request.judged),
            Duty::Rollback { .. } | Duty::ForceUnlock(_) => {
                old.is_some_and(|old| !self.owns(old.fence()))
            }
            _ => true,
        };
        self.hold(
            Promise::Preserved,
            preserved,
            format_args!("a lease that was not the one judged was changed {by}"),
        )
    }

    fn owns(&self, fence: Fence) -> bool {
        self.owner
            .as_ref()
            .is_some_and(|owner| owner.fence == fence)
    }

    fn check_pointer(
        &self,
        before: Option<&Cell<Pointer>>,
        next: &Pointer,
        request: &Request,
    ) -> Verdict {
        let by = format_args!("by actor {}", request.task.actor);
        let old = before.map(|cell| &cell.value);
        let grown = old.map_or(Generation(1), |old| old.generation.next());
        self.hold(
            Promise::Growing,
            next.generation == grown,
            format_args!("latest.json went to generation {} {by}", next.generation),
        )?;
        let fence = old.map(|old| old.fence).unwrap_or_default();
        self.hold(
            Promise::Growing,
            next.fence == fence || next.fence.epoch > fence.epoch,
            format_args!("the fence went from {fence} to {} {by}", next.fence),
        )?;
        let active = old.and_then(Pointer::active_archive);
        self.check_effect(active, next, request)?;
        let closed = next
            .active_archive()
            .is_none_or(|active| self.stores(active) && !next.is_tombstoned(active));
        self.hold(
            Promise::Closed,
            closed,
            format_args!("the active snapshot is not there, or marked for removal, {by}"),
        )
    }

    /// Whether the act was allowed, seen from outside of the rules.
    fn check_effect(
        &self,
        active: Option<ArchiveDigest>,
        next: &Pointer,
        request: &Request,
    ) -> Verdict {
        let actor = request.task.actor;
        match &request.task.duty {
            Duty::Publish { .. } => {
                self.hold(
                    Promise::Linear,
                    active == request.loaded,
                    format_args!("writer {actor} replaced a snapshot that it had not loaded"),
                )?;
                self.hold(
                    Promise::Fenced,
                    self.owner
                        .as_ref()
                        .is_some_and(|owner| owner.actor == actor),
                    format_args!("writer {actor} published, but is not the last owner"),
                )
            }
            Duty::Rollback { .. } => Ok(()),
            Duty::ForceUnlock(seen) => {
                let newer = |owned: Fence| owned != *seen && owned.epoch >= seen.epoch;
                self.hold(
                    Promise::Preserved,
                    !self.owner.as_ref().is_some_and(|owner| newer(owner.fence)),
                    "the operator threw out a newer owner than the one seen",
                )
            }
            duty => self.hold(
                Promise::Linear,
                next.active_archive() == active,
                format_args!("{:?} changed the active snapshot", duty.kind()),
            ),
        }
    }

    /// Whether the archive is in the store.
    pub(crate) fn stores(&self, archive: ArchiveDigest) -> bool {
        self.stored().any(|active| active.archive == archive)
    }

    /// Every snapshot that is in the store.
    pub(crate) fn stored(&self) -> impl Iterator<Item = &Active> {
        let numbered = self.shared.snapshots.iter().enumerate();
        let there = numbered.filter(|(bit, _)| self.archives & (1 << bit) != 0);
        there.map(|(_, snapshot)| snapshot)
    }

    /// Checks a deletion of a document before it is made.
    pub(crate) fn check_erasure(&self, doc: Doc, task: &Task, judged: u32) -> Verdict {
        let version = self.lock.as_ref().map(|cell| cell.value.version);
        if doc == Doc::Lock && task.duty == Duty::Reap {
            self.hold(
                Promise::Preserved,
                version.is_none_or(|version| version == judged),
                "the reaper deleted a lock that it had not judged",
            )?;
        }
        self.hold(Promise::Growing, false, "a document was deleted")
    }

    /// Checks that no archive in use is gone.
    pub(crate) fn check_archives(&self) -> Verdict {
        let active = self
            .pointer
            .as_deref()
            .and_then(|cell| cell.value.value.active_archive());
        self.hold(
            Promise::Closed,
            active.is_none_or(|active| self.stores(active)),
            "the active snapshot's archive was deleted",
        )
    }

    /// Checks what an actor is told at the end of a task.
    pub(crate) fn check_ending(&self, task: &Task, ending: &Ending) -> Verdict {
        let applied = self.applied(task);
        let open = self.under_way(task).next().is_some();
        let kind = task.duty.kind();
        match ending {
            Ending::Acquired { .. } | Ending::Done { .. } => self.hold(
                Promise::Truthful,
                applied || self.in_effect(task),
                format_args!("{kind:?} of actor {} is done, but not applied", task.actor),
            ),
            Ending::Refused(_) | Ending::Unreachable => self.hold(
                Promise::Truthful,
                (!applied || self.superseded(task)) && !open,
                format_args!(
                    "{kind:?} of actor {} is refused, but applied or still under way",
                    task.actor
                ),
            ),
            Ending::Unsettled(_) => Ok(()),
        }
    }

    /// Whether what the task wants is so, whoever did it.
    fn in_effect(&self, task: &Task) -> bool {
        let pointer = self.pointer.as_deref().map(|cell| &cell.value.value);
        match &task.duty {
            Duty::Release(fence) => self
                .lock
                .as_deref()
                .map(|cell| &cell.value.value)
                .is_some_and(|lock| lock.fence() == *fence && lock.state == LockState::Free),
            Duty::Delete { target, .. } => {
                pointer.is_some_and(|pointer| pointer.is_tombstoned(*target))
            }
            Duty::Pin(target) => pointer.is_some_and(|pointer| pointer.is_pinned(*target)),
            _ => false,
        }
    }

    /// Whether the task is about owning, and what it got is another process's by now: to own is a statement about now.
    fn superseded(&self, task: &Task) -> bool {
        let fence = self.pointer.as_deref().map(|cell| cell.value.value.fence);
        match task.duty {
            Duty::Acquire => fence.is_none_or(|fence| fence.op_id != task.op_id()),
            Duty::Renew(fence) => !self.leased(fence),
            _ => false,
        }
    }

    /// Whether the lease is the one in both documents.
    fn leased(&self, fence: Fence) -> bool {
        let lock = self.lock.as_deref().map(|cell| &cell.value.value);
        let pointer = self.pointer.as_deref().map(|cell| &cell.value.value);
        lock.is_some_and(|lock| lock.fence() == fence && lock.state == LockState::Held)
            && pointer.is_some_and(|pointer| pointer.fence == fence)
    }

    /// Checks that an unknown outcome, asked about now, is not settled wrongly.
    pub(crate) fn check_unknown(&self, unknown: &UnknownOutcome) -> Result<OperationFate, String> {
        let lock = self.lock.as_deref().map(|cell| &cell.value.value);
        let pointer = self.pointer.as_deref().map(|cell| &cell.value.value);
        let fate = unknown.record.settle(lock, pointer);
        let applied = self.applied(&unknown.task);
        let effect = self.shared.cast.effect_of(&unknown.task.duty);
        let coming = self.under_way(&unknown.task).any(|doc| doc == effect);
        let right = match fate {
            OperationFate::Applied => applied,
            OperationFate::NotApplied => !applied && !coming,
            OperationFate::Unknown => true,
        };
        let kind = unknown.record.kind;
        self.hold(
            Promise::Truthful,
            right,
            format_args!("an unsettled {kind:?} is settled wrongly as {fate:?}"),
        )?;
        Ok(fate)
    }
}
