//! What is checked whenever a change is made.

use super::{Breach, Effect, Means, Oracle, Promise, Said, Verdict, hold, rules};
use crate::faulty_bucket::{Landing, Sender};
use stasis_model::format::document::{self, BadDocument};
use stasis_model::format::lease::{Lock, LockState};
use stasis_model::format::pointer::{Active, Pointer};
use stasis_model::id::{Epoch, Generation, OpId};
use stasis_model::protocol::operation::OperationFate;
use stasis_model::protocol::step::Doc;
use stasis_store::layout::Key;

impl Oracle {
    /// Looks at a change that was made, or refused.
    pub(crate) fn landed(&mut self, landing: &Landing<'_>) {
        self.landings += 1;
        let (name, applied, sender) = (landing.key.file_name(), landing.applied, landing.sender);
        let removed = if landing.body.is_none() {
            " removed"
        } else {
            ""
        };
        self.note(format_args!(
            "landed: {name}{removed} applied={applied} {sender:?}"
        ));
        if sender == Sender::Gone
            && (*landing.key == self.pointer_key || *landing.key == self.lock_key)
        {
            self.observations.add(if applied {
                "late landing applied"
            } else {
                "late landing refused"
            });
        }
        if applied {
            let verdict = self.changed(landing);
            self.judge(verdict);
        }
    }

    fn changed(&mut self, landing: &Landing<'_>) -> Verdict {
        let (key, sender) = (landing.key, landing.sender);
        let Some(body) = landing.body else {
            return self.removed(key);
        };
        if *key == self.pointer_key {
            let next = document::parse(body).map_err(|bad| unusable(&bad))?;
            return self.pointer_changed(next, sender);
        }
        if *key == self.lock_key {
            let next = document::parse(body).map_err(|bad| unusable(&bad))?;
            return self.lock_changed(next, sender);
        }
        self.stored.insert(key.clone());
        Ok(())
    }

    fn removed(&mut self, key: &Key) -> Verdict {
        self.stored.remove(key);
        let document = *key == self.pointer_key || *key == self.lock_key;
        hold(!document, Promise::Growing, "a document was deleted")?;
        let names = |active: &&Active| {
            active.archive_key == key.as_str() || active.manifest_key == key.as_str()
        };
        let active = self.active().filter(|active| names(active));
        hold(
            active.is_none(),
            Promise::Closed,
            format_args!("`{key}` was removed, and is active"),
        )?;
        let mut published = self.pointers.iter().filter_map(|past| past.active.as_ref());
        let is_tombstoned = |active: &Active| self.tombstoned.contains(&active.archive);
        hold(
            published.find(names).is_none_or(is_tombstoned),
            Promise::Closed,
            format_args!("`{key}` was removed, and nobody had deleted it"),
        )
    }

    fn pointer_changed(&mut self, next: Pointer, sender: Sender) -> Verdict {
        let first = Pointer::empty();
        let before = self.pointers.last().unwrap_or(&first);
        self.check_pointer(before, &next)?;
        self.tombstoned
            .extend(next.tombstones.iter().map(|mark| mark.sha256));
        self.count(next.op_id, sender, Doc::Pointer);
        self.note(format_args!(
            "latest.json: generation {} by {:?}, fence {} {:?}, active {:?}",
            next.generation,
            next.op_id,
            next.fence.epoch,
            next.fence.op_id,
            next.active_archive()
        ));
        self.pointers.push(next);
        Ok(())
    }

    fn check_pointer(&self, before: &Pointer, next: &Pointer) -> Verdict {
        let effect = self.effect(next.op_id)?;
        let (from, to) = (before.generation, next.generation);
        hold(
            to == from.next(),
            Promise::Growing,
            format_args!("latest.json went from generation {from} to {to}: {effect}"),
        )?;
        let (old, new) = (before.fence, next.fence);
        hold(
            new == old || new.epoch > old.epoch,
            Promise::Growing,
            format_args!("the fence went from {old} to {new}: {effect}"),
        )?;
        let acquires = matches!(effect.means, Means::Acquire);
        hold(
            effect.pointers == 0 || acquires,
            Promise::Truthful,
            format_args!("applied twice: {effect}"),
        )?;
        hold(
            effect.said != Some(Said::Denied) && effect.settled != Some(OperationFate::NotApplied),
            Promise::Truthful,
            format_args!("said not to be applied, and applied later: {effect}"),
        )?;
        rules::check_memory(before, next, effect)?;
        rules::check_effect(before, next, effect)?;
        self.check_owner(before, effect)?;
        self.check_closed(next, effect)
    }

    /// Whoever came after the holder that the operator saw is not thrown out.
    fn check_owner(&self, before: &Pointer, effect: &Effect) -> Verdict {
        let Means::ForceUnlock(seen) = effect.means else {
            return Ok(());
        };
        let last = self.effects.get(&before.fence.op_id);
        let is_owner = last.is_some_and(|last| matches!(last.means, Means::Acquire));
        let newer = before.fence != seen && before.fence.epoch >= seen.epoch;
        hold(
            !(is_owner && newer),
            Promise::Preserved,
            format_args!("a newer owner than the one seen was thrown out: {effect}"),
        )
    }

    fn check_closed(&self, next: &Pointer, effect: &Effect) -> Verdict {
        let Some(active) = &next.active else {
            return Ok(());
        };
        let there = [&active.archive_key, &active.manifest_key]
            .iter()
            .all(|name| self.stored.contains(name.as_str()));
        hold(
            there,
            Promise::Closed,
            format_args!("active {:?} is not stored: {effect}", active.archive),
        )?;
        let is_tombstoned =
            self.tombstoned.contains(&active.archive) || next.is_tombstoned(active.archive);
        hold(
            !is_tombstoned,
            Promise::Closed,
            format_args!(
                "active {:?} was marked for removal: {effect}",
                active.archive
            ),
        )
    }

    fn lock_changed(&mut self, next: Lock, sender: Sender) -> Verdict {
        self.check_lock(self.locks.last(), &next)?;
        let freed = |lock: &Lock| lock.state == LockState::Free;
        let was_free = self.locks.last().is_some_and(freed);
        let effect = self.effect(next.write_id)?;
        let observation = match effect.means {
            Means::Renew(_) if was_free => Some("hand-back after a reap"),
            Means::Reap => Some("reaped"),
            Means::Rollback(_) | Means::ForceUnlock(_) => Some("marked forced"),
            Means::Acquire if effect.locks > 0 => Some("outrun"),
            _ => None,
        };
        if let Some(observation) = observation {
            self.observations.add(observation);
        }
        self.count(next.write_id, sender, Doc::Lock);
        self.note(format_args!(
            "lock.json: generation {} by {:?}, {:?} {} {:?} until {}",
            next.generation, next.write_id, next.state, next.epoch, next.op_id, next.expires_at
        ));
        self.locks.push(next);
        Ok(())
    }

    fn check_lock(&self, before: Option<&Lock>, next: &Lock) -> Verdict {
        let effect = self.effect(next.write_id)?;
        let from = before.map_or(Generation(0), |before| before.generation);
        let to = next.generation;
        hold(
            to == from.next(),
            Promise::Growing,
            format_args!("lock.json went from generation {from} to {to}: {effect}"),
        )?;
        let epoch = before.map_or(Epoch(0), |before| before.epoch);
        hold(
            next.epoch >= epoch,
            Promise::Growing,
            format_args!(
                "the lock's epoch fell from {epoch} to {}: {effect}",
                next.epoch
            ),
        )?;
        let denied = effect.said == Some(Said::Denied)
            || effect.means.is_about_the_lock()
                && effect.settled == Some(OperationFate::NotApplied);
        hold(
            !denied,
            Promise::Truthful,
            format_args!("said not to be applied, and applied later: {effect}"),
        )?;
        hold(
            self.preserves(before, next, effect),
            Promise::Preserved,
            format_args!("a lease that was not the one meant was changed: {effect}"),
        )
    }

    fn preserves(&self, before: Option<&Lock>, next: &Lock, effect: &Effect) -> bool {
        let same = |before: &Lock| before.fence() == next.fence();
        match &effect.means {
            Means::Acquire => {
                next.fence().op_id == next.write_id
                    && before.is_none_or(|before| before.epoch < next.epoch)
            }
            Means::Renew(fence) | Means::Release(fence) => {
                next.fence() == *fence && before.is_some_and(same)
            }
            Means::Reap => before.is_some_and(|before| {
                let unmoved = before.renewal_count == next.renewal_count;
                same(before) && unmoved && before.state == LockState::Held
            }),
            Means::Rollback(_) | Means::ForceUnlock(_) => {
                let owner = self.pointers.last().map(|pointer| pointer.fence);
                let thrown_out =
                    |before: &Lock| before.epoch < next.epoch && owner != Some(before.fence());
                effect.pointers == 1 && before.is_some_and(thrown_out)
            }
            Means::Publish { .. } | Means::Delete(_) | Means::Pin(..) => false,
        }
    }

    /// Enters a change into the books of the operation that made it.
    fn count(&mut self, op_id: OpId, sender: Sender, doc: Doc) {
        let Some(effect) = self.effects.get_mut(&op_id) else {
            return;
        };
        effect.unanswered |= sender != Sender::Listens;
        match doc {
            Doc::Pointer => effect.pointers += 1,
            Doc::Lock => effect.locks += 1,
        }
        if effect.said == Some(Said::Unknown) {
            self.observations.add("landed after its operation gave up");
        }
    }
}

fn unusable(bad: &BadDocument) -> Breach {
    Breach {
        promise: Promise::Growing,
        what: format!("a document was written that cannot be read: {bad}"),
    }
}
