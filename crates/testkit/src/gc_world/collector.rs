//! A collector: the model's manifest gc and rounds, carried out step by step against the store.

use super::store::{
    Bits, Change, Index, OLD, ROUNDS, bits_of, id_of, manifest_of, names_of, ones, subsets,
};
use super::{Bug, Config, GcWorld, Label, Moves, Part, Survey, Who};
use stasis_model::format::document::{Version, Versioned};
use stasis_model::id::{Epoch, OpId};
use stasis_model::protocol::gc::manifests::{
    ListedManifest, ManifestGc, ManifestGcAnswer, ManifestGcStep, Manifests,
};
use stasis_model::protocol::gc::{GcAnswer, GcRound, GcState, GcStep};

/// What a collector is doing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Task {
    /// Of one subject, then of the next.
    CollectManifests(ManifestGc, ManifestGcStep, usize),
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
    look: Look,
    rounds: u8,
    /// Under the bugs by which something read earlier counts.
    stale_gc: Option<Versioned<GcState>>,
    stale_index: Option<Index>,
}

/// How far a look at all manifests has come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Look {
    subject: usize,
    /// How many pages of the subject were listed; its index is the third.
    pages: u8,
    listed: u16,
    /// Which of the names asked for stand in manifests of the subjects before.
    named: Bits,
}

impl Collector {
    pub(super) fn new(number: u8, config: Config) -> Self {
        let mut collector = Self {
            number,
            task: Task::Over,
            left: 0,
            marking: false,
            look: Look::default(),
            rounds: 0,
            stale_gc: None,
            stale_index: None,
        };
        if number < config.collectors {
            if config.manifest_gc {
                collector.begin_manifests(0);
            } else {
                collector.begin_round();
            }
        }
        collector
    }

    fn begin_manifests(&mut self, subject: usize) {
        let mut manifest_gc = ManifestGc::new();
        let step = manifest_gc.next(ManifestGcAnswer::Begin);
        self.task = Task::CollectManifests(manifest_gc, step, subject);
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

    fn receive_manifest_gc(&mut self, config: Config, answer: ManifestGcAnswer) {
        let Task::CollectManifests(manifest_gc, step, subject) = &mut self.task else {
            return;
        };
        *step = manifest_gc.next(answer);
        if let ManifestGcStep::Done(_) | ManifestGcStep::Unreachable = step {
            match *subject + 1 {
                next if config.all_subjects().contains(&next) => self.begin_manifests(next),
                _ => self.begin_round(),
            }
        }
    }

    fn stop(&mut self) {
        *self = Self {
            number: self.number,
            task: Task::Over,
            left: 0,
            marking: false,
            look: Look::default(),
            rounds: 0,
            stale_gc: None,
            stale_index: None,
        };
    }
}

impl GcWorld {
    pub(super) fn collector_moves(&self, n: usize, moves: &mut Moves) {
        match &self.collectors[n].get().task {
            Task::Over => {}
            Task::CollectManifests(_, step, subject) => {
                self.manifest_gc_moves(n, step, *subject, moves);
            }
            Task::Round(_, step) => self.round_moves(n, step, moves),
        }
    }

    fn manifest_gc_moves(
        &self,
        n: usize,
        step: &ManifestGcStep,
        subject: usize,
        moves: &mut Moves,
    ) {
        let is_early = self.has_bug(Bug::IndexReadFirst)
            && self.collectors[n].get().stale_index.is_none()
            && *step == ManifestGcStep::Survey;
        if is_early {
            self.collector_move(n, moves, |world, collector| {
                collector.stale_index = Some(world.indexes[subject]);
                ("reads the index first", 0)
            });
        } else if *step == ManifestGcStep::Survey {
            let own = self.config.manifests_of(subject);
            for found in self.store.manifests.looks_at(own) {
                self.collector_move(n, moves, |world, collector| {
                    world.survey(collector, subject, found)
                });
            }
        } else {
            self.collector_move(n, moves, |world, collector| {
                world.tombstone_unpublished(collector, subject, step)
            });
        }
        if self.silences > 0 {
            self.collector_move(n, moves, |world, collector| {
                world.collect_manifests_unanswered(collector, subject, step)
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
                self.look_moves(n, names, moves);
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

    /// Looks at the next manifests.
    fn look_moves(&self, n: usize, names: Bits, moves: &mut Moves) {
        let collector = self.collectors[n].get();
        let is_blind = self.has_bug(Bug::NamesCopied) || self.has_bug(Bug::OneSubjectListed);
        let subject = if is_blind { 1 } else { collector.look.subject };
        // What marking misses costs work and no chunk, so that it is not looked at more finely than by subject.
        match self.config.survey {
            Survey::AtOnce if is_blind => {
                let own = self.config.manifests_of(subject);
                self.find_moves(n, names, own, moves);
            }
            Survey::AtOnce => self.find_moves(n, names, u16::MAX, moves),
            Survey::ByPage if !collector.marking => self.page_moves(n, names, subject, moves),
            Survey::BySubject | Survey::ByPage => {
                let own = self.config.manifests_of(subject);
                self.find_moves(n, names, own, moves);
            }
        }
    }

    /// Looks at some manifests at one moment.
    fn find_moves(&self, n: usize, names: Bits, manifests: u16, moves: &mut Moves) {
        let looks = self.store.manifests.looks_at(manifests);
        let mut answers: Vec<Bits> = looks
            .map(|found| names & self.store.named_by(found))
            .collect();
        answers.sort_unstable();
        answers.dedup();
        for found in answers {
            self.collector_move(n, moves, |world, collector| {
                world.find(collector, names, found)
            });
        }
    }

    /// Lists the manifests of a subject in two pages, the first ones of each save last, and then reads them.
    fn page_moves(&self, n: usize, names: Bits, subject: usize, moves: &mut Moves) {
        let look = self.collectors[n].get().look;
        let own = self.config.manifests_of(subject);
        let first = 1 | 1 << ROUNDS | 0b11 << OLD;
        if look.pages < 2 {
            let page = if look.pages == 0 {
                own & !first
            } else {
                own & first
            };
            for found in self.store.manifests.looks_at(page) {
                self.collector_move(n, moves, |_, collector| {
                    collector.look.pages += 1;
                    collector.look.listed |= found;
                    ("lists a page of manifests", 0)
                });
            }
            return;
        }
        if look.pages == 2 && !self.has_bug(Bug::IndexNotSurveyed) {
            self.collector_move(n, moves, |world, collector| {
                collector.look.pages += 1;
                collector.look.listed |= world.indexes[subject].active;
                ("reads the index", 0)
            });
            return;
        }
        let wanted = look.listed;
        let open = wanted & self.store.manifests.open();
        for gone in subsets(open) {
            let found = names & self.store.named_by(wanted & !gone);
            if gone == 0 || self.has_bug(Bug::VanishedIgnored) {
                self.collector_move(n, moves, |world, collector| {
                    world.find(collector, names, found)
                });
            }
        }
        if open != 0 && !self.has_bug(Bug::VanishedIgnored) {
            self.collector_move(n, moves, |world, collector| {
                collector.look.pages = 0;
                collector.look.listed = 0;
                world
                    .observations
                    .push("a manifest vanished while it was looked at");
                ("finds a listed manifest gone", 0)
            });
        }
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
        let confirming = matches!(&collector.task, Task::Round(round, _) if round.is_confirming());
        if confirming && (self.has_bug(Bug::NotConfirmed) || self.has_bug(Bug::AgeGrace)) {
            let stale = collector.stale_gc.take();
            collector.receive(GcAnswer::Gc(stale));
            return ("does not read gc.json again", 0);
        }
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
        self.keep_stale(collector);
        if confirming && !matches!(&collector.task, Task::Round(_, GcStep::Delete(_))) {
            self.observations
                .push("a gc round found its epoch over before it deleted");
        }
        match &collector.task {
            Task::Round(_, step @ GcStep::Write { .. }) if self.config.silences == 0 => {
                // As for the index: reading just before winning is all there is to try.
                self.collect(collector, &step.clone())
            }
            _ => ("reads gc.json", 0),
        }
    }

    /// Under the bug by which the list is taken to be in still, as it was when the manifests were to be looked at.
    fn keep_stale(&self, collector: &mut Collector) {
        let looks = matches!(&collector.task, Task::Round(_, GcStep::FindReferenced(_)));
        if looks && self.has_bug(Bug::NotConfirmed) {
            collector.stale_gc.clone_from(self.gc.get());
        }
    }

    /// Learns which of the names stand in any manifest.
    fn find(
        &mut self,
        collector: &mut Collector,
        names: Bits,
        found: Bits,
    ) -> (&'static str, Bits) {
        let mut reported = collector.look.named | found;
        let is_blind = self.has_bug(Bug::NamesCopied) || self.has_bug(Bug::OneSubjectListed);
        let next = collector.look.subject + 1;
        if self.config.survey != Survey::AtOnce
            && !is_blind
            && self.config.all_subjects().contains(&next)
        {
            collector.look = Look {
                subject: next,
                named: reported,
                ..Look::default()
            };
            return ("looks at a subject whose manifests name", found);
        }
        if !collector.marking {
            if self.has_bug(Bug::NoSecondListing) {
                reported = 0;
            } else if self.has_bug(Bug::AgeGrace) {
                reported = names & !1;
            } else if reported & !(self.indexed(0) | self.indexed(1)) != 0 {
                self.observations
                    .push("a gc round kept what an unpublished manifest names");
            }
        }
        collector.marking = false;
        collector.look = Look::default();
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
            let version = Version::new(gc.generation.to_string());
            collector.stale_gc = Some(Versioned { value: gc, version });
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
        self.keep_stale(collector);
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
                collector.look = Look::default();
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
        subject: usize,
        step: &ManifestGcStep,
    ) -> (&'static str, Bits) {
        match step {
            ManifestGcStep::Tombstone {
                expected,
                manifests,
            } => {
                let behind = Change::Tombstone(manifest_bits(manifests));
                let answer = match version_number(expected) {
                    version if self.swap_index(subject, version, behind) => {
                        self.observations
                            .push("a manifest behind the fence was tombstoned");
                        ManifestGcAnswer::Won
                    }
                    _ => ManifestGcAnswer::Lost,
                };
                collector.receive_manifest_gc(self.config, answer);
                ("tombstones manifests", 0)
            }
            ManifestGcStep::Remove(manifests) => {
                self.store.manifests.delete(manifest_bits(manifests));
                self.observations.push("a manifest was removed");
                collector.receive_manifest_gc(self.config, ManifestGcAnswer::Removed);
                ("removes manifests", 0)
            }
            _ => unreachable!("a step with many outcomes, or none"),
        }
    }

    /// Sends the next request of a manifest gc and gets no answer.
    fn collect_manifests_unanswered(
        &mut self,
        collector: &mut Collector,
        subject: usize,
        step: &ManifestGcStep,
    ) -> (&'static str, Bits) {
        self.silences -= 1;
        match step {
            ManifestGcStep::Tombstone {
                expected,
                manifests,
            } => {
                let behind = Change::Tombstone(manifest_bits(manifests));
                self.leave_index_swap(subject, version_number(expected), behind);
            }
            ManifestGcStep::Remove(manifests) => {
                self.store.manifests.delete(manifest_bits(manifests));
            }
            _ => {}
        }
        collector.receive_manifest_gc(self.config, ManifestGcAnswer::Silence);
        ("gets no answer", 0)
    }

    fn survey(
        &mut self,
        collector: &mut Collector,
        subject: usize,
        found: u16,
    ) -> (&'static str, Bits) {
        let stale = collector.stale_index.take();
        let index = stale.unwrap_or(self.indexes[subject]);
        if self.has_bug(Bug::NoTombstone) {
            self.store.manifests.delete(found & !index.active);
        }
        if self.has_bug(Bug::ProvisionalTaken) {
            self.store.manifests.delete(found & self.store.provisional);
        }
        let mut foreign = 0;
        let listed = ones(found).map(|manifest| {
            let made = self.store.lease_of(manifest);
            let is_foreign = index.deleted || made.incarnation != index.lease.incarnation;
            foreign |= u16::from(is_foreign) << manifest;
            ListedManifest {
                id: id_of(manifest),
                lease: Epoch(made.fence.into()),
                fence: Some(Epoch(index.lease.fence.into())),
                foreign: is_foreign,
                indexed: index.active & 1 << manifest != 0,
                tombstoned: index.tombstones & 1 << manifest != 0,
            }
        });
        let listed = listed.collect();
        if foreign != 0 {
            self.observations
                .push("a manifest of another incarnation was found");
        }
        let version = Version::new(index.version.to_string());
        let answer = ManifestGcAnswer::Surveyed(version, listed);
        collector.receive_manifest_gc(self.config, answer);
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
