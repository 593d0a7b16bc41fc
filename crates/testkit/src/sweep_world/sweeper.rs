//! A sweeper: the model's burial and rounds, carried out step by step against the store.

use super::store::{Bits, Change, bits_of, id_of, maker, manifest_of, names_of, ones};
use super::{Bug, Config, Label, Moves, Part, SweepWorld, Who};
use stasis_model::format::document::Version;
use stasis_model::id::{Epoch, OpId};
use stasis_model::protocol::gc::burial::{Burial, BurialAnswer, BurialStep, Listed, Manifests};
use stasis_model::protocol::gc::{GcState, Sweep, SweepAnswer, SweepStep};

/// What a sweeper is doing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Task {
    Bury(Burial, BurialStep),
    Round(Sweep, SweepStep),
    Over,
}

/// One sweeper.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Sweeper {
    number: u8,
    task: Task,
    /// Chunks of the current step that are still to be deleted.
    left: Bits,
    /// Whether chunks were listed and the manifests not asked yet.
    marking: bool,
    rounds: u8,
}

impl Sweeper {
    pub(super) fn new(number: u8, config: Config) -> Self {
        let mut sweeper = Self {
            number,
            task: Task::Over,
            left: 0,
            marking: false,
            rounds: 0,
        };
        if number < config.sweepers {
            sweeper.begin(config.burial);
        }
        sweeper
    }

    fn begin(&mut self, burial: bool) {
        if burial {
            let mut burial = Burial::new();
            let step = burial.next(BurialAnswer::Begin);
            self.task = Task::Bury(burial, step);
        } else {
            self.begin_round();
        }
    }

    fn begin_round(&mut self) {
        let op_id = OpId::from_random([self.number + 1 + 16 * self.rounds; 16]);
        self.rounds += 1;
        let mut round = Sweep::new(op_id);
        let step = round.next(SweepAnswer::Begin);
        self.task = Task::Round(round, step);
    }

    fn hear(&mut self, answer: SweepAnswer) {
        if let Task::Round(round, step) = &mut self.task {
            *step = round.next(answer);
            if let SweepStep::Delete(names) = step {
                self.left = bits_of(names);
            }
        }
        match &self.task {
            Task::Round(_, SweepStep::Done(swept)) if swept.resumed && self.rounds < 2 => {
                self.begin_round();
            }
            Task::Round(_, SweepStep::Done(_) | SweepStep::Aborted(_)) => self.stop(),
            _ => {}
        }
    }

    fn hear_burial(&mut self, answer: BurialAnswer) {
        if let Task::Bury(burial, step) = &mut self.task {
            *step = burial.next(answer);
        }
        if let Task::Bury(_, BurialStep::Done(_) | BurialStep::Unreachable) = &self.task {
            self.begin_round();
        }
    }

    fn stop(&mut self) {
        *self = Self {
            number: self.number,
            task: Task::Over,
            left: 0,
            marking: false,
            rounds: 0,
        };
    }
}

impl SweepWorld {
    pub(super) fn sweeper_moves(&self, n: usize, moves: &mut Moves) {
        match &self.sweepers[n].get().task {
            Task::Over => {}
            Task::Bury(_, step) => self.burial_moves(n, step, moves),
            Task::Round(_, step) => self.round_moves(n, step, moves),
        }
    }

    fn burial_moves(&self, n: usize, step: &BurialStep, moves: &mut Moves) {
        if *step == BurialStep::Survey {
            for found in self.store.manifests.looks() {
                self.sweeper_move(n, moves, |world, sweeper| world.survey(sweeper, found));
            }
        } else {
            self.sweeper_move(n, moves, |world, sweeper| world.bury(sweeper, step));
        }
        if self.silences > 0 {
            self.sweeper_move(n, moves, |world, sweeper| world.bury_unheard(sweeper, step));
        }
    }

    fn round_moves(&self, n: usize, step: &SweepStep, moves: &mut Moves) {
        match step {
            SweepStep::ListChunks => {
                for chunks in self.store.chunks.looks() {
                    self.sweeper_move(n, moves, |_, sweeper| {
                        sweeper.marking = true;
                        sweeper.hear(SweepAnswer::Listed(names_of(chunks)));
                        ("lists chunks", chunks)
                    });
                }
            }
            SweepStep::FindReferenced(names) => {
                let names = bits_of(names);
                let manifests = self.store.manifests.looks();
                let mut answers: Vec<Bits> = manifests
                    .map(|found| names & self.store.named_by(found))
                    .collect();
                answers.sort_unstable();
                answers.dedup();
                for found in answers {
                    self.sweeper_move(n, moves, |world, sweeper| world.find(sweeper, names, found));
                }
                if self.unreadable > 0 {
                    self.unreadable_moves(n, names, moves);
                }
            }
            _ => self.sweeper_move(n, moves, |world, sweeper| world.sweep(sweeper, step)),
        }
        if self.silences > 0 {
            self.sweeper_move(n, moves, |world, sweeper| {
                world.sweep_unheard(sweeper, step)
            });
        }
    }

    fn sweeper_move<F>(&self, n: usize, moves: &mut Moves, act: F)
    where
        F: FnOnce(&mut Self, &mut Sweeper) -> (&'static str, Bits),
    {
        let mut after = self.calm();
        let mut sweeper = self.sweepers[n].get().clone();
        let (what, names) = act(&mut after, &mut sweeper);
        after.sweepers[n] = Part::new(sweeper);
        let who = Who::Sweeper(n);
        Self::add(moves, Label { who, what, names }, after);
    }

    /// Does the next thing of a round that has one outcome, and hears of it.
    fn sweep(&mut self, sweeper: &mut Sweeper, step: &SweepStep) -> (&'static str, Bits) {
        match step {
            SweepStep::ReadGc => self.sweeper_reads(sweeper),
            SweepStep::Write { expected, gc } => {
                self.sweeper_writes(sweeper, expected.as_ref(), gc.as_ref().clone())
            }
            SweepStep::Delete(_) => {
                let one = sweeper.left & sweeper.left.wrapping_neg();
                self.store.chunks.delete(one);
                sweeper.left &= !one;
                if one != 0 {
                    self.sights.push("garbage was deleted");
                }
                if sweeper.left == 0 {
                    sweeper.hear(SweepAnswer::Deleted);
                }
                ("deletes chunk", one)
            }
            _ => unreachable!("a step with many outcomes, or none"),
        }
    }

    fn sweeper_reads(&mut self, sweeper: &mut Sweeper) -> (&'static str, Bits) {
        let opening = matches!(&sweeper.task, Task::Round(round, _) if round.is_opening());
        let gc = self.gc_state();
        if opening && gc.is_sweeping() {
            if self.has_bug(Bug::ListForgotten) {
                let version = self.gc.get().as_ref().map(|found| found.version.clone());
                self.swap_gc(version.as_ref(), gc.condemn(OpId::default(), names_of(0)));
            }
            self.sights.push("a sweep found a list that was left");
        }
        sweeper.hear(SweepAnswer::Gc(self.gc.get().clone()));
        match &sweeper.task {
            Task::Round(_, step @ SweepStep::Write { .. }) if self.config.silences == 0 => {
                // As for the index: reading just before winning is all there is to try.
                self.sweep(sweeper, &step.clone())
            }
            _ => ("reads gc.json", 0),
        }
    }

    /// Hears which of the names stand in any manifest.
    fn find(&mut self, sweeper: &mut Sweeper, names: Bits, found: Bits) -> (&'static str, Bits) {
        let mut told = found;
        if !sweeper.marking {
            if self.has_bug(Bug::NoSecondListing) {
                told = 0;
            } else if self.has_bug(Bug::AgeGrace) {
                told = names & !1;
            } else if found & !self.indexed() != 0 {
                self.sights
                    .push("a sweep spared what an unpublished manifest names");
            }
        }
        sweeper.marking = false;
        sweeper.hear(SweepAnswer::Referenced(names_of(told)));
        ("finds manifests that name", told)
    }

    fn sweeper_writes(
        &mut self,
        sweeper: &mut Sweeper,
        expected: Option<&Version>,
        mut gc: GcState,
    ) -> (&'static str, Bits) {
        let condemned = bits_of(gc.condemned());
        if condemned == 0 && self.has_bug(Bug::EpochKept) {
            gc.epoch = self.gc_state().epoch;
        }
        if condemned != 0 && self.has_bug(Bug::AgeGrace) {
            sweeper.hear(SweepAnswer::Won);
            return ("condemns nothing, but means", condemned);
        }
        if condemned != 0 && self.has_bug(Bug::DeletedFirst) {
            self.store.chunks.delete(condemned);
        }
        let won = self.swap_gc(expected, gc);
        let Task::Round(round, _) = &sweeper.task else {
            unreachable!("only a round writes gc.json")
        };
        if won && condemned == 0 && round.is_resumed() {
            self.sights.push("a sweep finished what another had begun");
        }
        if !won {
            self.sights.push("a sweep lost a swap of gc.json");
        }
        sweeper.hear(if won {
            SweepAnswer::Won
        } else {
            SweepAnswer::Lost
        });
        match (won, condemned) {
            (true, 0) => ("ends the epoch", 0),
            (true, _) => ("condemns", condemned),
            (false, _) => ("loses the swap of gc.json", condemned),
        }
    }

    /// Sends the next request of a round and hears nothing.
    fn sweep_unheard(&mut self, sweeper: &mut Sweeper, step: &SweepStep) -> (&'static str, Bits) {
        self.silences -= 1;
        match step {
            SweepStep::Write { expected, gc } => {
                let found = self.gc.get().as_ref().map(|found| &found.version);
                if found == expected.as_ref() {
                    let late = Part::new((expected.clone(), gc.as_ref().clone()));
                    self.late_gc.retain(|other| other.0.0 != late.0.0);
                    self.late_gc.push(late);
                }
            }
            SweepStep::Delete(_) => {
                self.store
                    .chunks
                    .delete(sweeper.left & sweeper.left.wrapping_neg());
                return ("hears nothing about its deletion", 0);
            }
            _ => {}
        }
        sweeper.hear(SweepAnswer::Silence);
        ("hears nothing", 0)
    }

    fn unreadable_moves(&self, n: usize, names: Bits, moves: &mut Moves) {
        let manifests = self.store.manifests.certain();
        for manifest in ones(manifests) {
            let readable = self.store.named_by(manifests & !(1 << manifest));
            let ignored = self.has_bug(Bug::UnreadableIgnored);
            self.sweeper_move(n, moves, |world, sweeper| {
                world.unreadable -= 1;
                sweeper.marking = false;
                if ignored {
                    let others = names_of(names & readable);
                    sweeper.hear(SweepAnswer::Referenced(others));
                } else {
                    world.sights.push("a sweep could not read a manifest");
                    sweeper.hear(SweepAnswer::UnreadableManifest);
                }
                ("cannot read a manifest", 0)
            });
        }
    }

    /// Does the next thing of a burial, and hears that it is done.
    fn bury(&mut self, sweeper: &mut Sweeper, step: &BurialStep) -> (&'static str, Bits) {
        match step {
            BurialStep::Tombstone {
                expected,
                manifests,
            } => {
                let behind = Change::Tombstone(manifest_bits(manifests));
                let answer = match version_number(expected) {
                    version if self.swap_index(version, behind) => {
                        self.sights
                            .push("a manifest behind the fence was tombstoned");
                        BurialAnswer::Won
                    }
                    _ => BurialAnswer::Lost,
                };
                sweeper.hear_burial(answer);
                ("tombstones manifests", 0)
            }
            BurialStep::Remove(manifests) => {
                self.store.manifests.delete(manifest_bits(manifests));
                self.sights.push("a manifest was removed");
                sweeper.hear_burial(BurialAnswer::Removed);
                ("removes manifests", 0)
            }
            _ => unreachable!("a step with many outcomes, or none"),
        }
    }

    /// Sends the next request of a burial and hears nothing.
    fn bury_unheard(&mut self, sweeper: &mut Sweeper, step: &BurialStep) -> (&'static str, Bits) {
        self.silences -= 1;
        match step {
            BurialStep::Tombstone {
                expected,
                manifests,
            } => {
                let late = Change::Tombstone(manifest_bits(manifests));
                let version = version_number(expected);
                if version == self.index.version && !self.late_index.contains(&(version, late)) {
                    self.late_index.push((version, late));
                }
            }
            BurialStep::Remove(manifests) => {
                self.store.manifests.delete(manifest_bits(manifests));
            }
            _ => {}
        }
        sweeper.hear_burial(BurialAnswer::Silence);
        ("hears nothing", 0)
    }

    fn survey(&mut self, sweeper: &mut Sweeper, found: u16) -> (&'static str, Bits) {
        if self.has_bug(Bug::Unburied) {
            self.store.manifests.delete(found & !self.index.active);
        }
        let listed = ones(found).map(|manifest| {
            let (subject, lease) = maker(manifest);
            Listed {
                id: id_of(manifest),
                lease: Epoch(lease.into()),
                fence: Some(Epoch(self.index.fences[subject].into())),
                indexed: self.index.active & 1 << manifest != 0,
                tombstoned: self.index.tombstones & 1 << manifest != 0,
            }
        });
        let version = Version::new(self.index.version.to_string());
        sweeper.hear_burial(BurialAnswer::Surveyed(version, listed.collect()));
        ("lists manifests and reads the index", 0)
    }
}

fn manifest_bits(manifests: &Manifests) -> u16 {
    let bits = manifests.iter().map(|id| 1 << manifest_of(id));
    bits.fold(0, |all, one: u16| all | one)
}

fn version_number(version: &Version) -> u8 {
    let number = version.as_str().parse();
    number.expect("versions of the index are numbers here")
}
