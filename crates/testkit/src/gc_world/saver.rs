//! A save: the model's guard, carried out step by step against the store, and then the swap of the index.

use super::store::{Bits, Change, DIGESTS, ROUNDS, any_birth, bits_of, digest_of, names_of};
use super::store::{bit_of, plain};
use super::{Bug, GcWorld, Label, Moves, Part, Who};
use stasis_model::id::{Generation, OpId};
use stasis_model::protocol::gc::{Names, SaveAnswer, SaveGuard, SaveStep};

/// How a save ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum End {
    /// Published.
    Done(u8),
    /// Not published, for good.
    Refused,
}

/// What a save does next.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Task {
    ReadGc,
    /// Read the index and choose names.
    Choose,
    /// Put these chunks, then give this answer.
    Put(Bits, SaveAnswer),
    PutManifest,
    CheckIndexed(Bits),
    ReadIndex,
    SwapIndex(u8),
    End(End),
}

/// One save.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Saver {
    guard: SaveGuard,
    task: Task,
    wants: u8,
    names: Bits,
    /// How many manifests were put.
    manifests: u8,
}

impl Saver {
    pub(super) fn new(wants: u8) -> Self {
        let mut guard = SaveGuard::new();
        let task = match guard.next(SaveAnswer::Begin) {
            SaveStep::ReadGc if wants != 0 => Task::ReadGc,
            _ => Task::End(End::Refused),
        };
        Self {
            guard,
            task,
            wants,
            names: 0,
            manifests: 0,
        }
    }

    pub(super) fn end(&self) -> Option<End> {
        match self.task {
            Task::End(end) => Some(end),
            _ => None,
        }
    }

    fn receive(&mut self, answer: SaveAnswer) {
        let step = self.guard.next(answer);
        self.task = match step {
            SaveStep::ReadGc => Task::ReadGc,
            SaveStep::Gather => Task::Choose,
            SaveStep::PutManifest => Task::PutManifest,
            SaveStep::CheckIndexed(names) => Task::CheckIndexed(bits_of(&names)),
            SaveStep::StoreAnew(chunks) => {
                let from: Names = chunks.iter().map(|chunk| chunk.from).collect();
                let to: Names = chunks.iter().map(|chunk| chunk.to).collect();
                self.names = self.names & !bits_of(&from) | bits_of(&to);
                Task::Put(bits_of(&to), SaveAnswer::Stored)
            }
            SaveStep::Publish => {
                // What was proved is proved: only which manifest it was matters from here.
                self.guard = SaveGuard::new();
                self.names = 0;
                Task::ReadIndex
            }
            SaveStep::GiveUp(_) => Task::End(End::Refused),
        };
    }

    /// Forgets what no longer matters, so that more states are the same.
    fn finish(&mut self, end: End) {
        *self = Self {
            task: Task::End(end),
            ..Self::new(0)
        };
    }
}

impl GcWorld {
    pub(super) fn save_moves(&self, n: usize, moves: &mut Moves) {
        let task = &self.saves[n].get().task;
        if matches!(task, Task::End(_)) {
            return;
        }
        self.save_move(n, moves, |world, saver| world.carry_out(n, saver));
        if let Task::CheckIndexed(names) = task
            && let Some(there) = self.trusted()
        {
            self.save_move(n, moves, |_, saver| {
                saver.receive(SaveAnswer::Indexed(names_of(names & there)));
                ("trusts what exists:", names & there)
            });
        }
        if self.silences > 0 && !matches!(task, Task::ReadIndex) {
            self.save_move(n, moves, |world, saver| world.unanswered(n, saver));
        }
    }

    fn save_move<F>(&self, n: usize, moves: &mut Moves, act: F)
    where
        F: FnOnce(&mut Self, &mut Saver) -> (&'static str, Bits),
    {
        let mut after = self.calm();
        let mut saver = self.saves[n].get().clone();
        let (what, names) = act(&mut after, &mut saver);
        after.saves[n] = Part::new(saver);
        let who = Who::Save(n);
        Self::add(moves, Label { who, what, names }, after);
    }

    /// What a save trusts because it exists, under the bugs by which that counts.
    fn trusted(&self) -> Option<Bits> {
        let chunks = &self.store.chunks;
        match self.config.bug {
            Some(Bug::ExistenceTrusted) => Some(chunks.certain()),
            Some(Bug::RevivalTrusted) => Some(chunks.certain() | chunks.open()),
            _ => None,
        }
    }

    fn stored_as(&self, name: Bits) -> Bits {
        if self.has_bug(Bug::SameName) {
            plain(name)
        } else {
            name
        }
    }

    /// Does the next thing, and gets the answer.
    fn carry_out(&mut self, n: usize, saver: &mut Saver) -> (&'static str, Bits) {
        match saver.task.clone() {
            Task::ReadGc => {
                let mut gc = self.gc_state();
                // The guard asks neither who wrote it nor when, so that two states need not be told apart.
                (gc.op_id, gc.generation) = (OpId::default(), Generation::default());
                if self.has_bug(Bug::EpochIgnored) && saver.manifests > 0 {
                    gc.epoch = stasis_model::protocol::gc::GcEpoch::FIRST;
                }
                saver.receive(SaveAnswer::Gc(gc));
                if matches!(saver.task, Task::CheckIndexed(_)) {
                    self.observations.push("a save met a new epoch");
                }
                ("reads gc.json", 0)
            }
            Task::Choose => {
                self.choose(saver);
                ("reads the index and will use", saver.names)
            }
            Task::Put(names, answer) => self.put(names, answer, saver),
            Task::PutManifest => {
                self.put_manifest(n, saver);
                ("puts its manifest of", saver.names)
            }
            Task::CheckIndexed(names) => {
                let found = names & self.indexed();
                if found != 0 {
                    self.observations
                        .push("a save found names in the index again");
                }
                saver.receive(SaveAnswer::Indexed(names_of(found)));
                ("looks whether the index names", names)
            }
            Task::ReadIndex => self.read_index(n, saver),
            Task::SwapIndex(version) => {
                let manifest = last_manifest(n, saver);
                if self.swap_index(version, Change::Publish(manifest)) {
                    if self.has_bug(Bug::ManifestRewritten) {
                        self.follow(manifest);
                    }
                    saver.finish(End::Done(manifest));
                    ("publishes", self.store.contents[usize::from(manifest)])
                } else {
                    self.observations.push("a save lost a swap of the index");
                    saver.task = Task::ReadIndex;
                    ("loses the swap of the index", 0)
                }
            }
            Task::End(_) => unreachable!("a save that ended does not move"),
        }
    }

    fn choose(&mut self, saver: &mut Saver) {
        let indexed = self.indexed();
        let mut fresh = 0;
        for digest in (0..DIGESTS).filter(|digest| saver.wants & 1 << digest != 0) {
            let known = names_of(indexed & any_birth(digest)).pop_first();
            let mut name = bit_of(&saver.guard.place(digest_of(digest), known));
            if self.has_bug(Bug::PlainNames) {
                name = self.plain_unless_condemned(name);
            }
            if name & indexed == 0 {
                fresh |= name;
            } else {
                self.observations.push("a save used a name from the index");
            }
            saver.names |= name;
        }
        let answer = SaveAnswer::Gathered(names_of(saver.names));
        saver.task = Task::Put(fresh, answer);
        if fresh == 0 {
            self.put(fresh, SaveAnswer::Gathered(names_of(saver.names)), saver);
        }
    }

    fn plain_unless_condemned(&self, name: Bits) -> Bits {
        let plain = plain(name);
        let condemned = bits_of(self.gc_state().condemned());
        if condemned & plain == 0 { plain } else { name }
    }

    /// Stores one of the chunks, unless it is there for certain.
    fn put(&mut self, names: Bits, answer: SaveAnswer, saver: &mut Saver) -> (&'static str, Bits) {
        let stored = self.stored_as(lowest(names));
        let there = self.store.chunks.certain() & stored == stored;
        self.store.chunks.put(stored);
        if there && stored != 0 {
            self.observations
                .push("a save used a chunk that lay around");
        }
        if answer == SaveAnswer::Stored {
            self.observations.push("a save stored a chunk anew");
        }
        match names & !lowest(names) {
            0 => saver.receive(answer),
            rest => saver.task = Task::Put(rest, answer),
        }
        let what = if there { "finds chunk" } else { "puts chunk" };
        (what, stored)
    }

    fn put_manifest(&mut self, n: usize, saver: &mut Saver) {
        assert!(
            saver.manifests < ROUNDS,
            "two collectors cannot outrun a save that often"
        );
        saver.manifests += 1;
        let manifest = last_manifest(n, saver);
        self.store.contents[usize::from(manifest)] = self.stored_as(saver.names);
        self.land_manifest(manifest);
        saver.receive(SaveAnswer::Stored);
        if self.has_bug(Bug::NoSecondRead) {
            saver.task = Task::ReadIndex;
        }
    }

    /// A PUT of a manifest reaches the store.
    pub(super) fn land_manifest(&mut self, manifest: u8) {
        let one = 1 << manifest;
        self.store.manifests.put(one);
        if self.has_bug(Bug::ManifestRewritten) {
            let others = own_manifests(manifest) & !one;
            self.store.manifests.doubt(others);
            self.follow(manifest);
        }
    }

    /// Under the bug by which a manifest's name is used again, the index leads to whatever landed there last.
    fn follow(&mut self, manifest: u8) {
        let own = own_manifests(manifest);
        if self.index.active & own != 0 {
            self.index.active &= !own;
            self.index.active |= self.store.manifests.certain() & own;
        }
    }

    fn read_index(&mut self, n: usize, saver: &mut Saver) -> (&'static str, Bits) {
        let manifest = last_manifest(n, saver);
        let one = 1 << manifest;
        if self.index.ever & one != 0 {
            self.observations.push("a save found its own swap applied");
            saver.finish(End::Done(manifest));
            ("finds itself published", 0)
        } else if self.index.fences[n] > 1 {
            self.observations.push("a save was fenced");
            saver.finish(End::Refused);
            ("finds its lease lost", 0)
        } else if self.index.tombstones & one != 0 {
            saver.finish(End::Refused);
            ("finds its manifest tombstoned", 0)
        } else {
            saver.task = Task::SwapIndex(self.index.version);
            if self.config.silences == 0 {
                // A swap that is lost is tried again, so that reading just before winning is all there is to try.
                return self.carry_out(n, saver);
            }
            ("reads the index", 0)
        }
    }

    /// Sends the next request and gets no answer.
    fn unanswered(&mut self, n: usize, saver: &mut Saver) -> (&'static str, Bits) {
        self.silences -= 1;
        match &saver.task {
            Task::SwapIndex(version) => {
                let publish = (*version, Change::Publish(last_manifest(n, saver)));
                if *version == self.index.version && !self.late_index.contains(&publish) {
                    self.late_index.push(publish);
                }
                saver.task = Task::ReadIndex;
                return ("gets no answer about its swap of the index", 0);
            }
            Task::Put(names, _) => {
                self.store.chunks.put_unanswered(lowest(*names));
                return ("gets no answer about chunk", lowest(*names));
            }
            Task::PutManifest => {
                let manifest = first_manifest(n) + saver.manifests;
                self.store.contents[usize::from(manifest)] = saver.names;
                self.store.manifests.put_unanswered(1 << manifest);
            }
            _ => {}
        }
        saver.receive(SaveAnswer::Silence);
        ("gets no answer", 0)
    }
}

fn lowest(names: Bits) -> Bits {
    names & names.wrapping_neg()
}

fn last_manifest(n: usize, saver: &Saver) -> u8 {
    first_manifest(n) + saver.manifests - 1
}

fn first_manifest(n: usize) -> u8 {
    if n == 0 { 0 } else { ROUNDS }
}

/// All manifests that the same save can have put.
fn own_manifests(manifest: u8) -> u16 {
    0b11_1111 << (manifest / ROUNDS * ROUNDS)
}
