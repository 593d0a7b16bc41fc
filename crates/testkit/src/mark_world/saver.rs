//! A save: lease, archive, manifest, publish.

use super::{Label, MarkWorld, Moves, op_id, snapshot};
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::lease::{Fence, Holder};
use stasis_model::id::Label as Name;
use stasis_model::protocol::step::{Op, Refusal};
use std::time::Duration;

/// Where a save stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    Begins,
    /// It owns the lineage, and loaded what was active.
    Owns(Fence, Option<ArchiveDigest>),
    /// Its archive is there.
    Archived(Fence, Option<ArchiveDigest>),
    /// Its manifest is there, too.
    Stored(Fence, Option<ArchiveDigest>),
    Over,
}

/// One saver.
#[derive(Clone, Hash, Debug)]
pub(super) struct Saver {
    kind: u8,
    stage: Stage,
}

impl Saver {
    /// A saver of the kind that a letter means.
    pub(super) fn new(kind: u8) -> Self {
        let stage = Stage::Begins;
        Self { kind, stage }
    }

    fn borrows(&self) -> bool {
        self.kind == b'b'
    }

    fn saves(&self) -> &'static str {
        if self.kind == b'y' { "y" } else { "x" }
    }

    /// The lease under which it may still publish.
    pub(super) fn lease(&self) -> Option<Fence> {
        match self.stage {
            Stage::Owns(fence, _) | Stage::Archived(fence, _) | Stage::Stored(fence, _) => {
                Some(fence).filter(|_| !self.borrows())
            }
            _ => None,
        }
    }
}

impl MarkWorld {
    pub(super) fn saver_moves(&self, number: usize, moves: &mut Moves) {
        let saver = &self.savers[number];
        let mut after = self.calm();
        let outcome = match saver.stage {
            Stage::Begins if saver.borrows() => {
                let shown = self.savers[0].lease();
                shown.map(|fence| (self.owning(fence), "is shown the lease"))
            }
            Stage::Begins => after.acquire(number),
            Stage::Owns(fence, base) if saver.saves() == "y" => {
                Some(after.publish((number, "y"), fence, base))
            }
            Stage::Owns(fence, base) => {
                after.there[1] |= saver.saves() == "x";
                Some((Stage::Archived(fence, base), "stores its archive"))
            }
            Stage::Archived(fence, base) => {
                after.there[0] |= saver.saves() == "x";
                Some((Stage::Stored(fence, base), "stores its manifest"))
            }
            Stage::Stored(fence, base) => Some(after.publish((number, saver.saves()), fence, base)),
            Stage::Over => None,
        };
        if let Some((stage, what)) = outcome {
            after.savers[number].stage = stage;
            Self::add(moves, Label("save", number, what), after);
        }
    }

    fn owning(&self, fence: Fence) -> Stage {
        Stage::Owns(fence, self.pointer.get().active_archive())
    }

    /// Takes the lock and writes the fence: how these two are torn apart is exhausted elsewhere.
    fn acquire(&mut self, number: usize) -> Option<(Stage, &'static str)> {
        let holder = Holder {
            run_id: Name::nobody(),
            host: Name::nobody(),
            host_run_id: Name::nobody(),
        };
        let ttl = Duration::ZERO;
        let take = Op::Take { holder, ttl };
        self.act(&take, own_number(number)).ok()?;
        let fence = self.lock.get().fence();
        self.act(&Op::Fence { fence }, 0).ok()?;
        Some((self.owning(fence), "owns the lineage"))
    }

    /// Publishes; whether it was refused or not, the lease is given back by whoever took it.
    fn publish(
        &mut self,
        (number, name): (usize, &str),
        fence: Fence,
        base: Option<ArchiveDigest>,
    ) -> (Stage, &'static str) {
        let to = snapshot(name);
        let was_marked = self.mark().is_some();
        let what = match self.act(&Op::Publish { fence, base, to }, own_number(number)) {
            Ok(()) => {
                if name == "x" && !was_marked {
                    self.observations.push("x was published");
                }
                "publishes"
            }
            Err(Refusal::Tombstoned(_)) => {
                self.observations.push("a tombstone kept a save out");
                "is refused by the tombstone"
            }
            Err(_) => {
                self.observations.push("a save lost its lease");
                "is refused"
            }
        };
        if !self.savers[number].borrows() {
            let _lost = self.act(&Op::Release { fence }, own_number(number));
        }
        (Stage::Over, what)
    }
}

fn own_number(number: usize) -> u8 {
    let number = u8::try_from(number).expect("few savers");
    debug_assert_ne!(op_id(number + 1), op_id(0), "fences differ");
    number + 1
}
