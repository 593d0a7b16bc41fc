//! Everything that can happen to a lineage within small bounds, and bugs that must be found there.
//!
//! Every test says what was exhausted. In all of them every write may be answered, unanswered, refused by its own retry or
//! delayed, every lease may expire at any moment, and every actor may stop for ever at any step.

#![expect(clippy::print_stdout, reason = "proofs say what they counted")]

#[path = "explorer/deviations.rs"]
mod deviations;
#[path = "explorer/honest.rs"]
mod honest;
#[path = "explorer/mutants.rs"]
mod mutants;
#[path = "explorer/seed.rs"]
mod seed;

use stasis_testkit::explore::{Order, explore};
use stasis_testkit::lineage_world::LineageWorld;
use stasis_testkit::lineage_world::cast::Cast;
use stasis_testkit::lineage_world::conduct::Conduct;
use stasis_testkit::lineage_world::promise::Promise;

/// Asserts that a mutant breaks the promise, and gives the length of a shortest proof.
#[track_caller]
fn breaks<C: Conduct>(promise: &'static [Promise], cast: Cast) -> usize {
    let found = |thorough| {
        let promises = promise;
        let cast = Cast {
            thorough,
            promises,
            ..cast
        };
        let report = explore(LineageWorld::<C>::new(cast), Order::Shortest, 5_000_000);
        println!("{report}");
        let (what, moves) = report.violation.expect("a mutant is found");
        assert!(what.starts_with(&format!("{:?}", promise[0])), "{what}");
        moves.len()
    };

    // The short cuts must not hide it.
    found(false);
    found(true)
}
