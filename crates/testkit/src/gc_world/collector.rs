//! A collector: the model's manifest gc and rounds, carried out step by step against the store.

use super::store::{Bits, Change, bits_of, id_of, maker, manifest_of, names_of, ones};
use super::{Bug, Config, GcWorld, Label, Moves, Part, Who};
use stasis_model::format::document::Version;
use stasis_model::id::{Epoch, OpId};
use stasis_model::protocol::gc::manifests::{
    ListedManifest, ManifestGc, ManifestGcAnswer, ManifestGcStep, Manifests,
};
use stasis_model::protocol::gc::{GcAnswer, GcRound, GcState, GcStep};

/// What a collector is doing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Task {
    CollectManifests(ManifestGc, ManifestGcStep),
    Round(GcRound, GcStep),
    Over,
}

/// One collector.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Collector {
    number: u8,
    task: Task,
    /// Chunks of the current step that are still to be deleted.
    left: Bits,
    /// Whether chunks were listed and the manifests not asked yet.
    marking: bool,
    rounds: u8,
}

impl Collector {
    pub(super) fn new(number: u8, config: Config) -> Self {
        let mut collector = Self {
            number,
            task: Task::Over,
            left: 0,
            marking: false,
            rounds: 0,
        };
        if number < config.collectors {
            collector.begin(config.manifest_gc);
        }
        collector
    }

    fn begin(&mut self, manifest_gc: bool) {
        if manifest_gc {
            let mut manifest_gc = ManifestGc::new();
            let step = manifest_gc.next(ManifestGcAnswer::Begin);
            self.task = Task::CollectManifests(manifest_gc, step);
        } else {
            self.begin_round();
        }
    }

    fn begin_round(&mut self) {
        let op_id = OpId::from_random([self.number + 1 + 16 * self.rounds; 16]);
        self.rounds += 1;
        let mut round = GcRound::new(op_id);
        let step = round.next(GcAnswer::Begin);
        self.task = Task::Round(round, step);
    }

    fn receive(&mut self, answer: GcAnswer) {
        if let Task::Round(round, step) = &mut self.task {
            *step = round.next(answer);
            if let GcStep::Delete(names) = step {
                self.left = bits_of(names);
            }
        }
        match &self.task {
            Task::Round(_, GcStep::Done(swept)) if swept.resumed && self.rounds < 2 => {
                self.begin_round();
            }
            Task::Round(_, GcStep::Done(_) | GcStep::Aborted(_)) => self.stop(),
            _ => {}
        }
    }

    fn receive_manifest_gc(&mut self, answer: ManifestGcAnswer) {
        if let Task::CollectManifests(manifest_gc, step) = &mut self.task {
            *step = manifest_gc.next(answer);
        }
        if let Task::CollectManifests(_, ManifestGcStep::Done(_) | ManifestGcStep::Unreachable) =
            &self.task
        {
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

impl GcWorld {
    pub(super) fn collector_moves(&self, n: usize, moves: &mut Moves) {
        match &self.collectors[n].get().task {
            Task::Over => {}
            Task::CollectManifests(_, step) => self.manifest_gc_moves(n, step, moves),
            Task::Round(_, step) => self.round_moves(n, step, moves),
        }
    }

    fn manifest_gc_moves(&self, n: usize, step: &ManifestGcStep, moves: &mut Moves) {
        if *step == ManifestGcStep::Survey {
            for found in self.store.manifests.looks() {
                self.collector_move(n, moves, |world, collector| world.survey(collector, found));
            }
        } else {
            self.collector_move(n, moves, |world, collector| {
                world.tombstone_unpublished(collector, step)
            });
        }
        if self.silences > 0 {
            self.collector_move(n, moves, |world, collector| {
                world.collect_manifests_unanswered(collector, step)
            });
        }
    }

    fn round_moves(&self, n: usize, step: &GcStep, moves: &mut Moves) {
        match step {
            GcStep::ListChunks => {
                for chunks in self.store.chunks.looks() {
                    self.collector_move(n, moves, |_, collector| {
                        collector.marking = true;
                        collector.receive(GcAnswer::Listed(names_of(chunks)));
                        ("lists chunks", chunks)
                    });
                }
            }
            GcStep::FindReferenced(names) => {
                let names = bits_of(names);
                let manifests = self.store.manifests.looks();
                let mut answers: Vec<Bits> = manifests
                    .map(|found| names & self.store.named_by(found))
                    .collect();
                answers.sort_unstable();
                answers.dedup();
                for found in answers {
                    self.collector_move(n, moves, |world, collector| {
                        world.find(collector, names, found)
                    });
                }
                if self.unreadable > 0 {
                    self.unreadable_moves(n, names, moves);
                }
            }
            _ => self.collector_move(n, moves, |world, collector| world.collect(collector, step)),
        }
        if self.silences > 0 {
            self.collector_move(n, moves, |world, collector| {
                world.write_unanswered(collector, step)
            });
        }
    }

    fn collector_move<F>(&self, n: usize, moves: &mut Moves, act: F)
    where
        F: FnOnce(&mut Self, &mut Collector) -> (&'static str, Bits),
    {
        let mut after = self.calm();
        let mut collector = self.collectors[n].get().clone();
        let (what, names) = act(&mut after, &mut collector);
        after.collectors[n] = Part::new(collector);
        let who = Who::Collector(n);
        Self::add(moves, Label { who, what, names }, after);
    }

    /// Does the next thing of a round that has one outcome, and gets the answer.
    fn collect(&mut self, collector: &mut Collector, step: &GcStep) -> (&'static str, Bits) {
        match step {
            GcStep::ReadGc => self.collector_reads(collector),
            GcStep::Write { expected, gc } => {
                self.collector_writes(collector, expected.as_ref(), gc.as_ref().clone())
            }
            GcStep::Delete(_) => {
                let one = collector.left & collector.left.wrapping_neg();
                self.store.chunks.delete(one);
                collector.left &= !one;
                if one != 0 {
                    self.observations.push("garbage was deleted");
                }
                if collector.left == 0 {
                    collector.receive(GcAnswer::Deleted);
                }
                ("deletes chunk", one)
            }
            _ => unreachable!("a step with many outcomes, or none"),
        }
    }

    fn collector_reads(&mut self, collector: &mut Collector) -> (&'static str, Bits) {
        let opening = matches!(&collector.task, Task::Round(round, _) if round.is_opening());
        let gc = self.gc_state();
        if opening && gc.is_collecting() {
            if self.has_bug(Bug::ListForgotten) {
                let version = self.gc.get().as_ref().map(|found| found.version.clone());
                self.swap_gc(version.as_ref(), gc.condemn(OpId::default(), names_of(0)));
            }
            self.observations
                .push("a gc round found a list that was left");
        }
        collector.receive(GcAnswer::Gc(self.gc.get().clone()));
        match &collector.task {
            Task::Round(_, step @ GcStep::Write { .. }) if self.config.silences == 0 => {
                // As for the index: reading just before winning is all there is to try.
                self.collect(collector, &step.clone())
            }
            _ => ("reads gc.json", 0),
        }
    }

    /// Learns which of the names stand in any manifest.
    fn find(
        &mut self,
        collector: &mut Collector,
        names: Bits,
        found: Bits,
    ) -> (&'static str, Bits) {
        let mut reported = found;
        if !collector.marking {
            if self.has_bug(Bug::NoSecondListing) {
                reported = 0;
            } else if self.has_bug(Bug::AgeGrace) {
                reported = names & !1;
            } else if found & !self.indexed() != 0 {
                self.observations
                    .push("a gc round kept what an unpublished manifest names");
            }
        }
        collector.marking = false;
        collector.receive(GcAnswer::Referenced(names_of(reported)));
        ("finds manifests that name", reported)
    }

    fn collector_writes(
        &mut self,
        collector: &mut Collector,
        expected: Option<&Version>,
        mut gc: GcState,
    ) -> (&'static str, Bits) {
        let condemned = bits_of(gc.condemned());
        if condemned == 0 && self.has_bug(Bug::EpochKept) {
            gc.epoch = self.gc_state().epoch;
        }
        if condemned != 0 && self.has_bug(Bug::AgeGrace) {
            collector.receive(GcAnswer::Won);
            return ("condemns nothing, but means", condemned);
        }
        if condemned != 0 && self.has_bug(Bug::DeletedFirst) {
            self.store.chunks.delete(condemned);
        }
        let won = self.swap_gc(expected, gc);
        let Task::Round(round, _) = &collector.task else {
            unreachable!("only a round writes gc.json")
        };
        if won && condemned == 0 && round.is_resumed() {
            self.observations
                .push("a gc round finished what another had begun");
        }
        if !won {
            self.observations.push("a gc round lost a swap of gc.json");
        }
        collector.receive(if won { GcAnswer::Won } else { GcAnswer::Lost });
        match (won, condemned) {
            (true, 0) => ("ends the epoch", 0),
            (true, _) => ("condemns", condemned),
            (false, _) => ("loses the swap of gc.json", condemned),
        }
    }

    /// Sends the next request of a round and gets no answer.
    fn write_unanswered(
        &mut self,
        collector: &mut Collector,
        step: &GcStep,
    ) -> (&'static str, Bits) {
        self.silences -= 1;
        match step {
            GcStep::Write { expected, gc } => {
                let found = self.gc.get().as_ref().map(|found| &found.version);
                if found == expected.as_ref() {
                    let late = Part::new((expected.clone(), gc.as_ref().clone()));
                    self.late_gc.retain(|other| other.0.0 != late.0.0);
                    self.late_gc.push(late);
                }
            }
            GcStep::Delete(_) => {
                self.store
                    .chunks
                    .delete(collector.left & collector.left.wrapping_neg());
                return ("gets no answer about its deletion", 0);
            }
            _ => {}
        }
        collector.receive(GcAnswer::Silence);
        ("gets no answer", 0)
    }

    fn unreadable_moves(&self, n: usize, names: Bits, moves: &mut Moves) {
        let manifests = self.store.manifests.certain();
        for manifest in ones(manifests) {
            let readable = self.store.named_by(manifests & !(1 << manifest));
            let ignored = self.has_bug(Bug::UnreadableIgnored);
            self.collector_move(n, moves, |world, collector| {
                world.unreadable -= 1;
                collector.marking = false;
                if ignored {
                    let others = names_of(names & readable);
                    collector.receive(GcAnswer::Referenced(others));
                } else {
                    world
                        .observations
                        .push("a gc round could not read a manifest");
                    collector.receive(GcAnswer::UnreadableManifest);
                }
                ("cannot read a manifest", 0)
            });
        }
    }

    /// Does the next thing of a manifest gc, and gets the answer.
    fn tombstone_unpublished(
        &mut self,
        collector: &mut Collector,
        step: &ManifestGcStep,
    ) -> (&'static str, Bits) {
        match step {
            ManifestGcStep::Tombstone {
                expected,
                manifests,
            } => {
                let behind = Change::Tombstone(manifest_bits(manifests));
                let answer = match version_number(expected) {
                    version if self.swap_index(version, behind) => {
                        self.observations
                            .push("a manifest behind the fence was tombstoned");
                        ManifestGcAnswer::Won
                    }
                    _ => ManifestGcAnswer::Lost,
                };
                collector.receive_manifest_gc(answer);
                ("tombstones manifests", 0)
            }
            ManifestGcStep::Remove(manifests) => {
                self.store.manifests.delete(manifest_bits(manifests));
                self.observations.push("a manifest was removed");
                collector.receive_manifest_gc(ManifestGcAnswer::Removed);
                ("removes manifests", 0)
            }
            _ => unreachable!("a step with many outcomes, or none"),
        }
    }

    /// Sends the next request of a manifest gc and gets no answer.
    fn collect_manifests_unanswered(
        &mut self,
        collector: &mut Collector,
        step: &ManifestGcStep,
    ) -> (&'static str, Bits) {
        self.silences -= 1;
        match step {
            ManifestGcStep::Tombstone {
                expected,
                manifests,
            } => {
                let late = Change::Tombstone(manifest_bits(manifests));
                let version = version_number(expected);
                if version == self.index.version && !self.late_index.contains(&(version, late)) {
                    self.late_index.push((version, late));
                }
            }
            ManifestGcStep::Remove(manifests) => {
                self.store.manifests.delete(manifest_bits(manifests));
            }
            _ => {}
        }
        collector.receive_manifest_gc(ManifestGcAnswer::Silence);
        ("gets no answer", 0)
    }

    fn survey(&mut self, collector: &mut Collector, found: u16) -> (&'static str, Bits) {
        if self.has_bug(Bug::NoTombstone) {
            self.store.manifests.delete(found & !self.index.active);
        }
        let listed = ones(found).map(|manifest| {
            let (subject, lease) = maker(manifest);
            ListedManifest {
                id: id_of(manifest),
                lease: Epoch(lease.into()),
                fence: Some(Epoch(self.index.fences[subject].into())),
                indexed: self.index.active & 1 << manifest != 0,
                tombstoned: self.index.tombstones & 1 << manifest != 0,
            }
        });
        let version = Version::new(self.index.version.to_string());
        collector.receive_manifest_gc(ManifestGcAnswer::Surveyed(version, listed.collect()));
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
