//! Which parts of a large object are copied from another one within the store, and which are sent.
//!
//! A part may not be smaller than the store allows, unless it is the last. So a run of bytes that the other object has can be
//! copied only if it is long enough, and bytes between two copied runs have to be many enough as well: a short gap takes bytes
//! from its neighbours.

use crate::bucket::CopySource;
use stasis_model::shared_range::SharedRange;
use std::ops::Range;

/// What a store says of parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PartLimits {
    /// No part but the last is smaller.
    pub(super) smallest: u64,
    /// How large a part is that is sent; less than twice `smallest` is added where it does not divide.
    pub(super) sent: u64,
    /// No part that is copied is larger; at least twice `smallest`.
    pub(super) largest_copied: u64,
    /// There are no more parts than this.
    pub(super) most: usize,
}

impl PartLimits {
    /// What S3 says, with sent parts of a size that we choose. Parts might have 5 GiB; smaller ones are copied side by side.
    pub(super) fn of_s3(sent: u64) -> Self {
        const SMALLEST: u64 = 5 << 20;
        Self {
            smallest: SMALLEST,
            sent: sent.max(SMALLEST),
            largest_copied: 64 << 20,
            most: 10_000,
        }
    }
}

/// One part of the new object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PlannedPart {
    /// It is copied from the other object.
    Copied(SharedRange),
    /// It is sent.
    Sent(Range<u64>),
}

/// Cuts an object into parts so that as few bytes as possible are sent. `None` where less can be copied than one part has, or the
/// parts would be too many.
pub(super) fn plan(
    size: u64,
    source: &CopySource<'_>,
    limits: &PartLimits,
) -> Option<Vec<PlannedPart>> {
    let runs: Vec<SharedRange> = sound(size, source)?
        .filter(|run| run.length >= limits.smallest || run.end() == size)
        .collect();
    // The search takes longer with every run.
    if runs.len() > limits.most {
        return None;
    }
    let copied = chosen(size, &runs, limits.smallest);
    let mut parts = Vec::new();
    let mut at = 0;
    for run in &copied {
        send(&mut parts, at..run.at, limits);
        copy(&mut parts, run, limits);
        at = run.end();
    }
    send(&mut parts, at..size, limits);
    (parts.len() <= limits.most && is_worth_it(&parts, limits)).then_some(parts)
}

/// Cuts an object into parts of one length, the last one may be shorter: some stores join no others. One change sends
/// two of them at most, and the last one. `None` as before.
pub(super) fn plan_of_one_length(
    size: u64,
    source: &CopySource<'_>,
    limits: &PartLimits,
) -> Option<Vec<PlannedPart>> {
    let length = limits.smallest.max(size.div_ceil(limits.most as u64));
    if length > limits.sent {
        return None;
    }
    let mut runs = sound(size, source)?.peekable();
    let (mut parts, mut at) = (Vec::new(), 0);
    while at < size {
        let end = size.min(at + length);
        while runs.next_if(|run| run.end() <= at).is_some() {}
        let whole = runs.peek().filter(|run| run.at <= at && end <= run.end());
        parts.push(match whole {
            Some(run) => PlannedPart::Copied(SharedRange {
                at,
                from: run.from + (at - run.at),
                length: end - at,
            }),
            None => PlannedPart::Sent(at..end),
        });
        at = end;
    }
    is_worth_it(&parts, limits).then_some(parts)
}

/// Whether at least the smallest part need not be sent.
fn is_worth_it(parts: &[PlannedPart], limits: &PartLimits) -> bool {
    let copied = |part: &PlannedPart| match part {
        PlannedPart::Copied(range) => range.length,
        PlannedPart::Sent(_) => 0,
    };
    parts.iter().map(copied).sum::<u64>() >= limits.smallest
}

/// The runs, if every one lies within both objects, and each behind the one before it.
fn sound<'a>(
    size: u64,
    source: &'a CopySource<'_>,
) -> Option<impl Iterator<Item = SharedRange> + 'a> {
    let runs = source.ranges.as_slice();
    let lies_within = |run: &SharedRange| {
        let there = run.from.checked_add(run.length);
        let here = run.at.checked_add(run.length);
        here.is_some_and(|end| end <= size) && there.is_some_and(|end| end <= source.size)
    };
    let is_sound = runs.iter().all(lies_within) && runs.is_sorted_by(|a, b| a.end() <= b.at);
    is_sound.then(|| runs.iter().copied())
}

/// A choice of what is copied, up to the beginning of one run.
#[derive(Clone, Copy, Debug)]
struct Choice {
    run: usize,
    /// Where the copy of that run begins: behind the bytes that it gives to the gap before it.
    at: u64,
    /// Bytes that are sent before it.
    sent: u64,
    /// The choice that this one continues, and where the copy of its run ends.
    before: Option<(usize, u64)>,
}

impl Choice {
    /// Whether nothing can come of the other one that could not come of this one for less.
    fn is_as_good_as(&self, other: &Self) -> bool {
        self.sent <= other.sent && self.at <= other.at
    }
}

/// Chooses what is copied of which runs, so that as little as possible is left.
///
/// A gap that is too short takes what it lacks from the end of the run before it, whose end nobody else needs, and only then
/// from the beginning of the run behind it. Of all choices that end with one run those are kept that send the fewest bytes,
/// or leave more of that run for the gap behind it.
fn chosen(size: u64, runs: &[SharedRange], smallest: u64) -> Vec<SharedRange> {
    let mut choices: Vec<Choice> = Vec::new();
    for (run, range) in runs.iter().enumerate() {
        let mut best: Vec<Choice> = Vec::new();
        let known = choices.iter().enumerate().map(Some);
        for before in known.chain([None]) {
            let Some(choice) = continued(before, runs, run, smallest) else {
                continue;
            };
            let left = range.end() - choice.at;
            let is_enough = left >= smallest || range.end() == size;
            if is_enough && !best.iter().any(|other| other.is_as_good_as(&choice)) {
                best.retain(|other| !choice.is_as_good_as(other));
                best.push(choice);
            }
        }
        choices.extend(best);
    }
    let sent = |choice: &Choice| choice.sent + (size - runs[choice.run].end());
    let best = choices.iter().min_by_key(|choice| sent(choice));
    best.map(|best| copies(best, &choices, runs))
        .unwrap_or_default()
}

/// Copies a run after what another choice copies, or as the first.
fn continued(
    before: Option<(usize, &Choice)>,
    runs: &[SharedRange],
    run: usize,
    smallest: u64,
) -> Option<Choice> {
    let (end, can_give, sent) = match before {
        None => (0, 0, 0),
        Some((_, choice)) => {
            let end = runs[choice.run].end();
            let can_give = (end - choice.at).checked_sub(smallest)?;
            (end, can_give, choice.sent)
        }
    };
    let gap = runs[run].at - end;
    let lacking = if gap == 0 {
        0
    } else {
        smallest.saturating_sub(gap)
    };
    let given = lacking.min(can_give);
    let at = runs[run].at + (lacking - given);
    (at < runs[run].end()).then(|| Choice {
        run,
        at,
        sent: sent + (at - (end - given)),
        before: before.map(|(number, _)| (number, end - given)),
    })
}

/// What a choice copies, from the first to the last.
fn copies(last: &Choice, choices: &[Choice], runs: &[SharedRange]) -> Vec<SharedRange> {
    let mut copies = Vec::new();
    let (mut choice, mut end) = (last, runs[last.run].end());
    loop {
        let run = &runs[choice.run];
        copies.push(SharedRange {
            at: choice.at,
            from: run.from + (choice.at - run.at),
            length: end - choice.at,
        });
        let Some((before, ends)) = choice.before else {
            break;
        };
        (choice, end) = (&choices[before], ends);
    }
    copies.reverse();
    copies
}

/// Adds what is copied, in parts of about one length.
fn copy(parts: &mut Vec<PlannedPart>, run: &SharedRange, limits: &PartLimits) {
    let count = run.length.div_ceil(limits.largest_copied);
    for piece in pieces(run.length, count) {
        parts.push(PlannedPart::Copied(SharedRange {
            at: run.at + piece.start,
            from: run.from + piece.start,
            length: piece.end - piece.start,
        }));
    }
}

/// Adds what is sent, in parts of about one length, none of which is too small.
fn send(parts: &mut Vec<PlannedPart>, range: Range<u64>, limits: &PartLimits) {
    let length = range.end - range.start;
    let count = length.div_ceil(limits.sent);
    let count = count.min((length / limits.smallest).max(1));
    for piece in pieces(length, count) {
        let sent = range.start + piece.start..range.start + piece.end;
        parts.push(PlannedPart::Sent(sent));
    }
}

/// Cuts so many bytes into so many pieces, whose lengths differ by one at most.
fn pieces(length: u64, count: u64) -> impl Iterator<Item = Range<u64>> {
    let count = count.min(length);
    let start = move |piece: u64| {
        let (whole, rest) = (length / count.max(1), length % count.max(1));
        piece * whole + piece.min(rest)
    };
    (0..count).map(move |piece| start(piece)..start(piece + 1))
}

#[cfg(test)]
mod tests;
