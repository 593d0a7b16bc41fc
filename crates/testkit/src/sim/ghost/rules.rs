//! What a change of the pointer may be, seen from outside of the protocol's own rules.

use super::{Deed, Means, Promise, Verdict, hold};
use stasis_model::format::pointer::{Act, Pointer, RECENT_LIMIT, Recent};

/// The new pointer forgets nothing that it must keep.
pub(super) fn check_memory(before: &Pointer, next: &Pointer, deed: &Deed) -> Verdict {
    let (op_id, generation) = (next.op_id, next.generation);
    let entered = |last: &Recent| {
        last.op_id == op_id && last.generation == generation && last.kind == act(&deed.means)
    };
    let kept = next.recent.len().saturating_sub(1);
    let whole = kept == before.recent.len().min(RECENT_LIMIT - 1);
    let remembered = before.recent.ends_with(&next.recent[..kept]);
    hold(
        whole && remembered && next.recent.last().is_some_and(entered),
        Promise::Growing,
        format_args!("the recent operations do not continue: {deed}"),
    )?;
    let buried = next.tombstones.starts_with(&before.tombstones);
    let more = next.tombstones.len() - before.tombstones.len().min(next.tombstones.len());
    let deletes = matches!(deed.means, Means::Delete(_));
    hold(
        buried && more == usize::from(deletes),
        Promise::Growing,
        format_args!("tombstones were lost or added: {deed}"),
    )?;
    let pins = matches!(deed.means, Means::Pin(..));
    hold(
        pins || next.pins == before.pins,
        Promise::Growing,
        format_args!("pins were lost or added: {deed}"),
    )
}

fn act(means: &Means) -> Act {
    match means {
        Means::Flip { .. } => Act::Flip,
        Means::Rollback(_) => Act::Rollback,
        Means::ForceUnlock(_) => Act::ForceUnlock,
        Means::Delete(_) => Act::Delete,
        Means::Pin(_, true) => Act::Pin,
        Means::Pin(_, false) => Act::Unpin,
        Means::Acquire | Means::Renew(_) | Means::Release(_) | Means::Reap => Act::Acquire,
    }
}

/// What was done is what was meant, and was allowed, seen from outside of the rules.
pub(super) fn check_deed(before: &Pointer, next: &Pointer, deed: &Deed) -> Verdict {
    let (was, is) = (before.active_archive(), next.active_archive());
    let same = hold(
        was == is,
        Promise::Linear,
        format_args!("the active snapshot changed: {deed}"),
    );
    let own_fence = next.fence.op_id == next.op_id && next.fence.epoch > before.fence.epoch;
    let fences = hold(
        own_fence,
        Promise::Fenced,
        format_args!("did not write its own, higher fence: {deed}"),
    );
    match &deed.means {
        Means::Acquire | Means::ForceUnlock(_) => same.and(fences),
        Means::Rollback(to) => fences.and(hold(
            is == Some(*to),
            Promise::Linear,
            format_args!("rolled back to {is:?} instead of {to:?}: {deed}"),
        )),
        Means::Flip { .. } => check_flip(before, next, deed),
        Means::Delete(target) => {
            let marked = next.tombstones.last().map(|mark| mark.sha256) == Some(*target);
            hold(
                marked && was != Some(*target) && !before.is_pinned(*target),
                Promise::Closed,
                format_args!("an active or pinned snapshot was deleted: {deed}"),
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
                format_args!("other pins changed: {deed}"),
            )?;
            same
        }
        Means::Renew(_) | Means::Release(_) | Means::Reap => hold(
            false,
            Promise::Growing,
            format_args!("the pointer was changed: {deed}"),
        ),
    }
}

fn check_flip(before: &Pointer, next: &Pointer, deed: &Deed) -> Verdict {
    let Means::Flip {
        fence,
        loaded,
        fresh,
        to,
    } = &deed.means
    else {
        unreachable!("only flips are checked here")
    };
    let was = before.active_archive();
    hold(
        before.fence == *fence && next.fence == *fence,
        Promise::Fenced,
        format_args!(
            "flipped under {fence} where the fence was {}: {deed}",
            before.fence
        ),
    )?;
    hold(
        !(*fresh && was.is_some()),
        Promise::Linear,
        format_args!("a fresh start replaced {was:?}: {deed}"),
    )?;
    hold(
        was == *loaded,
        Promise::Linear,
        format_args!("replaced {was:?}, though it had loaded {loaded:?}: {deed}"),
    )?;
    hold(
        next.active_archive() == Some(*to) && next.flipped_from == was,
        Promise::Linear,
        format_args!(
            "flipped to {:?} instead of {to:?}: {deed}",
            next.active_archive()
        ),
    )
}
