//! What a command will do, said the same way by all that only show it or ask before they do it: a sentence, and a line for each thing.
//!
//! `Restoring cp-3 will change 1 entry, bring back 2 and delete 3`

use super::output::{plural, printable};

/// How many things of a plan are shown to people.
pub(super) const SHOWN: usize = 10;

/// Something that is done to a thing, before and afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PlanAct {
    pub(super) will: &'static str,
    pub(super) did: &'static str,
}

/// It becomes another one.
pub(super) const CHANGE: PlanAct = PlanAct {
    will: "change",
    did: "changed",
};
/// It was there before.
pub(super) const BRING_BACK: PlanAct = PlanAct {
    will: "bring back",
    did: "brought back",
};
/// It comes from elsewhere.
pub(super) const ADD: PlanAct = PlanAct {
    will: "add",
    did: "added",
};
/// It goes.
pub(super) const DELETE: PlanAct = PlanAct {
    will: "delete",
    did: "deleted",
};
/// It stays as it is.
pub(super) const KEEP: PlanAct = PlanAct {
    will: "keep",
    did: "kept",
};

/// What will be done to how many: `change 1 entry, bring back 2 and delete 3`.
pub(super) fn will(counts: &[(PlanAct, u64)], noun: &str) -> String {
    joined(counts, noun, |act, count| format!("{} {count}", act.will))
}

/// The same afterwards: `1 entry changed, 2 brought back and 3 deleted`.
pub(super) fn did(counts: &[(PlanAct, u64)], noun: &str) -> String {
    joined(counts, noun, |act, count| format!("{count} {}", act.did))
}

fn joined(
    counts: &[(PlanAct, u64)],
    noun: &str,
    phrase: impl Fn(PlanAct, String) -> String,
) -> String {
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    // The noun stands with the first number only.
    let mut phrases: Vec<String> = Vec::new();
    for (act, count) in counts {
        let counted = match phrases.as_slice() {
            [] => plural(*count, noun),
            _ => count.to_string(),
        };
        phrases.push(phrase(*act, counted));
    }
    match phrases.as_slice() {
        [before @ .., last] if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => phrases.concat(),
    }
}

/// A thing of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PlanLine {
    act: PlanAct,
    word: &'static str,
    thing: String,
}

impl PlanLine {
    /// What will be done, and to what; that may come from elsewhere.
    pub(super) fn new(act: PlanAct, thing: &str) -> Self {
        let (word, thing) = (act.will, printable(thing));
        Self { act, word, thing }
    }

    /// The same afterwards.
    pub(super) fn done(act: PlanAct, thing: &str) -> Self {
        let word = act.did;
        Self {
            word,
            ..Self::new(act, thing)
        }
    }
}

/// A sentence, and the first things of a plan: those that go before the others. `all` is how many there are, shown or not.
pub(super) fn with_lines(what: &str, mut things: Vec<PlanLine>, all: u64) -> String {
    things.sort_by_key(|line| line.act != DELETE);
    let shown = things.iter().take(SHOWN);
    let more = all.saturating_sub(shown.len() as u64);
    let lines = shown.map(|line| format!("  {:<10} {}", line.word, line.thing));
    let more = (more > 0).then(|| format!("  and {more} more"));
    let all: Vec<String> = std::iter::once(what.to_owned())
        .chain(lines)
        .chain(more)
        .collect();
    all.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_counts_each_act_and_names_the_noun_once() {
        let counts = [(CHANGE, 1), (BRING_BACK, 0), (DELETE, 3)];

        assert_eq!(will(&counts, "entry"), "change 1 entry and delete 3");
        assert_eq!(did(&counts, "entry"), "1 entry changed and 3 deleted");
        assert_eq!(will(&[(DELETE, 2)], "snapshot"), "delete 2 snapshots");
        assert_eq!(will(&[(DELETE, 0)], "snapshot"), "");
    }

    #[test]
    fn what_goes_is_shown_first_and_no_more_than_ten_things() {
        let kept = (0..10).map(|number| PlanLine::new(KEEP, &format!("kept-{number}")));
        let things = kept.chain([PlanLine::new(DELETE, "odd\u{1b}name")]);

        let text = with_lines("Collecting will delete 1 snapshot", things.collect(), 14);

        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], r"  delete     odd\u{1b}name");
        assert_eq!(lines[2], "  keep       kept-0");
        assert_eq!((lines.len(), lines[11]), (12, "  and 4 more"));
    }
}
