//! What a change of the pointer may be, seen from outside of the protocol's own rules.

use super::{Effect, Means, Promise, Verdict, hold};
use stasis_model::format::pointer::{Pointer, PointerAct, RECENT_LIMIT, Recent};

/// The new pointer forgets nothing that it must keep.
pub(super) fn check_memory(before: &Pointer, next: &Pointer, effect: &Effect) -> Verdict {
    let (op_id, generation) = (next.op_id, next.generation);
    let entered = |last: &Recent| {
        last.op_id == op_id && last.generation == generation && last.kind == act(&effect.means)
    };
    let kept = next.recent.len().saturating_sub(1);
    let whole = kept == before.recent.len().min(RECENT_LIMIT - 1);
    let remembered = before.recent.ends_with(&next.recent[..kept]);
    hold(
        whole && remembered && next.recent.last().is_some_and(entered),
        Promise::Growing,
        format_args!("the recent operations do not continue: {effect}"),
    )?;
    let tombstones_stay = next.tombstones.starts_with(&before.tombstones);
    let more = next.tombstones.len() - before.tombstones.len().min(next.tombstones.len());
    let deletes = matches!(effect.means, Means::Delete(_));
    hold(
        tombstones_stay && more == usize::from(deletes),
        Promise::Growing,
        format_args!("tombstones were lost or added: {effect}"),
    )?;
    let pins = matches!(effect.means, Means::Pin(..));
    hold(
        pins || next.pins == before.pins,
        Promise::Growing,
        format_args!("pins were lost or added: {effect}"),
    )
}

fn act(means: &Means) -> PointerAct {
    match means {
        Means::Publish { .. } => PointerAct::Publish,
        Means::Rollback(_) => PointerAct::Rollback,
        Means::ForceUnlock(_) => PointerAct::ForceUnlock,
        Means::Delete(_) => PointerAct::Delete,
        Means::Pin(_, true) => PointerAct::Pin,
        Means::Pin(_, false) => PointerAct::Unpin,
        Means::Acquire | Means::Renew(_) | Means::Release(_) | Means::Reap => PointerAct::Acquire,
    }
}

/// What was done is what was meant, and was allowed, seen from outside of the rules.
pub(super) fn check_effect(before: &Pointer, next: &Pointer, effect: &Effect) -> Verdict {
    let (was, is) = (before.active_archive(), next.active_archive());
    let same = hold(
        was == is,
        Promise::Linear,
        format_args!("the active snapshot changed: {effect}"),
    );
    let own_fence = next.fence.op_id == next.op_id && next.fence.epoch > before.fence.epoch;
    let fences = hold(
        own_fence,
        Promise::Fenced,
        format_args!("did not write its own, higher fence: {effect}"),
    );
    match &effect.means {
        Means::Acquire | Means::ForceUnlock(_) => same.and(fences),
        Means::Rollback(to) => fences.and(hold(
            is == Some(*to),
            Promise::Linear,
            format_args!("rolled back to {is:?} instead of {to:?}: {effect}"),
        )),
        Means::Publish { .. } => check_publish(before, next, effect),
        Means::Delete(target) => {
            let marked = next.tombstones.last().map(|mark| mark.sha256) == Some(*target);
            hold(
                marked && was != Some(*target) && !before.is_pinned(*target),
                Promise::Closed,
                format_args!("an active or pinned snapshot was deleted: {effect}"),
            )?;
            same
        }
        Means::Pin(target, pinned) => {
            let others = |pointer: &Pointer| {
                let pins = pointer.pins.iter().filter(|mark| mark.sha256 != *target);
                pins.cloned().collect::<Vec<_>>()
            };
            hold(
                next.is_pinned(*target) == *pinned && others(before) == others(next),
                Promise::Growing,
                format_args!("other pins changed: {effect}"),
            )?;
            same
        }
        Means::Renew(_) | Means::Release(_) | Means::Reap => hold(
            false,
            Promise::Growing,
            format_args!("the pointer was changed: {effect}"),
        ),
    }
}

fn check_publish(before: &Pointer, next: &Pointer, effect: &Effect) -> Verdict {
    let Means::Publish {
        fence,
        loaded,
        fresh,
        to,
    } = &effect.means
    else {
        unreachable!("only publishes are checked here")
    };
    let was = before.active_archive();
    hold(
        before.fence == *fence && next.fence == *fence,
        Promise::Fenced,
        format_args!(
            "published under {fence} where the fence was {}: {effect}",
            before.fence
        ),
    )?;
    hold(
        !(*fresh && was.is_some()),
        Promise::Linear,
        format_args!("a fresh start replaced {was:?}: {effect}"),
    )?;
    hold(
        was == *loaded,
        Promise::Linear,
        format_args!("replaced {was:?}, though it had loaded {loaded:?}: {effect}"),
    )?;
    hold(
        next.active_archive() == Some(*to) && next.published_from == was,
        Promise::Linear,
        format_args!(
            "published to {:?} instead of {to:?}: {effect}",
            next.active_archive()
        ),
    )
}
