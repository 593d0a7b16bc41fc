//! Visits every state that a small world can reach.
//!
//! A [`World`] lists its possible moves; the explorer tries all of them, in every order, and remembers each state by
//! its fingerprint. Worlds that are equal up to renaming their actors may give the same fingerprint.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fmt::{self, Debug};
use std::hash::{BuildHasherDefault, Hasher};

/// A small world with finitely many states.
pub trait World: Clone {
    /// What a move is called in a counterexample.
    type Label: Copy + Debug;

    /// Equal for two worlds exactly if nothing that matters tells them apart (but for hash collisions).
    fn fingerprint(&self) -> u128;

    /// Everything that can happen next. A move that breaks a promise says which.
    fn moves(&self) -> Vec<(Self::Label, Result<Self, String>)>;

    /// Names of the notable things that have happened here, so that a test can tell whether they were possible at all.
    fn observations(&self) -> &[&'static str] {
        &[]
    }
}

/// In which order states are visited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Breadth first: the first counterexample is a shortest one.
    Shortest,
    /// Depth first: little memory.
    Frugal,
}

/// What an exploration found.
#[derive(Clone, Debug)]
pub struct Report {
    /// How many different states were visited.
    pub states: usize,
    /// How many moves were tried.
    pub transitions: usize,
    /// Whether there was nothing left to visit.
    pub exhausted: bool,
    /// The broken promise and the moves that lead to it.
    pub violation: Option<(String, Vec<String>)>,
    /// Every sight of every visited state.
    pub observations: BTreeSet<&'static str>,
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = if self.exhausted {
            "exhausted"
        } else {
            "NOT exhausted"
        };
        write!(
            out,
            "{} states, {} transitions, {all}",
            self.states, self.transitions
        )?;
        if let Some((what, moves)) = &self.violation {
            write!(out, "\nviolated after {} moves: {what}", moves.len())?;
            moves
                .iter()
                .enumerate()
                .try_for_each(|(n, step)| write!(out, "\n  {:>3}. {step}", n + 1))?;
        }
        Ok(())
    }
}

/// Fingerprints are hashes already.
#[derive(Default)]
struct Folded(u64);

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only fingerprints are hashed")
    }
    #[expect(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
    fn write_u128(&mut self, fingerprint: u128) {
        self.0 = fingerprint as u64;
    }
}

/// How a state was reached: the state before it, and the move.
type Step<L> = (u32, Option<L>);

/// Visits every state reachable from `start`, or gives up after `limit` states.
pub fn explore<W: World>(start: W, order: Order, limit: usize) -> Report {
    let mut seen: HashSet<u128, BuildHasherDefault<Folded>> = HashSet::default();
    let mut trail: Vec<Step<W::Label>> = vec![(0, None)];
    let mut waiting = VecDeque::new();
    let mut report = Report {
        states: 1,
        transitions: 0,
        exhausted: true,
        violation: None,
        observations: BTreeSet::new(),
    };
    seen.insert(start.fingerprint());
    report.observations.extend(start.observations());
    waiting.push_back((0_u32, start));
    while let Some((at, world)) = next(&mut waiting, order) {
        for (label, outcome) in world.moves() {
            report.transitions += 1;
            let after = match outcome {
                Ok(after) => after,
                Err(what) => {
                    let moves = moves_to(&trail, at, label);
                    return Report {
                        exhausted: false,
                        violation: Some((what, moves)),
                        ..report
                    };
                }
            };
            report.observations.extend(after.observations());
            if !seen.insert(after.fingerprint()) {
                continue;
            }
            if report.states == limit {
                return Report {
                    exhausted: false,
                    ..report
                };
            }
            report.states += 1;
            trail.push((at, Some(label)));
            let here =
                u32::try_from(trail.len() - 1).expect("fewer than 2^32 states fit in memory");
            waiting.push_back((here, after));
        }
    }
    report
}

fn next<W>(waiting: &mut VecDeque<(u32, W)>, order: Order) -> Option<(u32, W)> {
    match order {
        Order::Shortest => waiting.pop_front(),
        Order::Frugal => waiting.pop_back(),
    }
}

fn moves_to<L: Copy + Debug>(trail: &[Step<L>], mut at: u32, last: L) -> Vec<String> {
    let mut moves = vec![format!("{last:?}")];
    while let (before, Some(label)) = trail[at as usize] {
        moves.push(format!("{label:?}"));
        at = before;
    }
    moves.reverse();
    moves
}
