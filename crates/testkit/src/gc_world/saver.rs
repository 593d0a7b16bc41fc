//! A save: the model's guard, carried out step by step against the store, and then the swap of the index.

use super::store::{Bits, Change, DIGESTS, OLD_DONOR, ROUNDS, any_birth, bit_of, bits_of};
use super::store::{digest_of, first_manifest, maker, manifests_of, names_of, plain};
use super::{Bug, Config, GcWorld, Label, Moves, Part, Who};
use stasis_model::id::{Generation, OpId};
use stasis_model::protocol::gc::{GcState, Names, SaveAnswer, SaveGuard, SaveStep};

/// How a save ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum End {
    /// Published.
    Done(u8),
    /// Not published, for good.
    Refused,
    /// Its swap has no answer, and what could tell was replaced by another incarnation.
    Unknown,
}

/// What a save does next.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Task {
    ReadGc,
    /// Read the index of its subject.
    ReadParent,
    /// Read the index of the other subject, after knowing the parent's names.
    ReadDonor,
    /// Put these chunks, which is the last of gathering or of storing anew.
    Put(Bits, PutFor),
    PutManifest,
    /// Read the index of its subject again.
    CheckIndexed(Bits),
    /// Read that of the other subject again; these were found in its own.
    CheckDonor(Bits, Bits),
    ReadIndex,
    SwapIndex(u8),
    End(End),
}

/// What chunks are put for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum PutFor {
    Gathering,
    StoringAnew,
}

/// One save.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Saver {
    guard: SaveGuard,
    task: Task,
    wants: u8,
    names: Bits,
    /// What its parent has, between the reads of two indexes.
    parent: Bits,
    /// What the donor has, under the bugs by which it is not asked when it should be.
    lent: Option<Bits>,
    /// Chunks to put once a provisional manifest is safe.
    rest: Bits,
    wants_provisional: bool,
    /// Whether a swap of the index has no answer.
    is_unsure: bool,
    /// How many manifests were put.
    manifests: u8,
}

impl Saver {
    pub(super) fn new(save: usize, config: Config) -> Self {
        let wants = config.wants[save];
        let mut saver = Self::over(End::Refused);
        saver.wants = wants;
        saver.wants_provisional = config.provisional;
        if wants != 0 && saver.guard.next(SaveAnswer::Begin) == SaveStep::ReadGc {
            saver.task = match config.bug {
                Some(Bug::DonorReadFirst) if save == 0 => Task::ReadDonor,
                _ => Task::ReadGc,
            };
        }
        saver
    }

    /// One that has ended, and forgets what no longer matters, so that more states are the same.
    fn over(end: End) -> Self {
        Self {
            guard: SaveGuard::new(),
            task: Task::End(end),
            wants: 0,
            names: 0,
            parent: 0,
            lent: None,
            rest: 0,
            wants_provisional: false,
            is_unsure: false,
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
            SaveStep::Gather if self.rest != 0 => {
                Task::Put(std::mem::take(&mut self.rest), PutFor::Gathering)
            }
            SaveStep::Gather => Task::ReadParent,
            SaveStep::PutManifest => Task::PutManifest,
            SaveStep::CheckIndexed(names) => Task::CheckIndexed(bits_of(&names)),
            SaveStep::StoreAnew(chunks) => {
                let from: Names = chunks.iter().map(|chunk| chunk.from).collect();
                let to: Names = chunks.iter().map(|chunk| chunk.to).collect();
                self.names = self.names & !bits_of(&from) | bits_of(&to);
                Task::Put(bits_of(&to), PutFor::StoringAnew)
            }
            SaveStep::Publish => {
                // What was proved is proved: only which manifest it was matters from here.
                self.guard = SaveGuard::new();
                self.names = 0;
                self.lent = None;
                Task::ReadIndex
            }
            SaveStep::GiveUp(_) => Task::End(End::Refused),
        };
    }

    fn finish(&mut self, end: End) {
        *self = Self::over(end);
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
                let mut gc = match self.config.bug {
                    // That of its own pool, where nothing ever happens.
                    Some(Bug::NamesCopied) => GcState::empty(),
                    _ => self.gc_state(),
                };
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
            Task::ReadParent => self.read_parent(n, saver),
            Task::ReadDonor => self.read_donor(n, saver),
            Task::Put(names, why) => self.put(names, why, saver),
            Task::PutManifest => {
                self.put_manifest(n, saver);
                ("puts its manifest of", saver.names)
            }
            Task::CheckIndexed(names) => self.check_indexed(n, names, saver),
            Task::CheckDonor(names, own) => {
                let found = names & self.indexed(other(self.config.subjects[n]));
                if found != 0 {
                    self.observations.push("a save found its donor live again");
                }
                saver.receive(SaveAnswer::Indexed(names_of(own | found)));
                ("looks whether the donor is live that has", names)
            }
            Task::ReadIndex => self.read_index(n, saver),
            Task::SwapIndex(version) => self.publish(n, version, saver),
            Task::End(_) => unreachable!("a save that ended does not move"),
        }
    }

    fn publish(&mut self, n: usize, version: u8, saver: &mut Saver) -> (&'static str, Bits) {
        let manifest = last_manifest(n, saver);
        let change = self.publication(n, manifest);
        if self.swap_index(self.config.subjects[n], version, change) {
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

    fn publication(&self, n: usize, manifest: u8) -> Change {
        if self.indexes[self.config.subjects[n]].deleted {
            // Under the bug by which the index carries an incarnation only when something is published in it.
            Change::Found(manifest)
        } else {
            Change::Publish(manifest)
        }
    }

    /// Learns under which lease it works, and what its subject has.
    fn read_parent(&mut self, n: usize, saver: &mut Saver) -> (&'static str, Bits) {
        let subject = self.config.subjects[n];
        let index = self.indexes[subject];
        let mut lease = index.lease;
        if index.deleted {
            if !self.has_bug(Bug::ManifestBeforeIndex) {
                saver.finish(End::Refused);
                return ("finds its subject deleted", 0);
            }
            (lease.incarnation, lease.fence) = (lease.incarnation + 1, 1);
        }
        self.store.made[n] = lease;
        saver.parent = self.indexed(subject);
        if !self.config.borrows || n != 0 {
            self.choose(saver, 0);
        } else if let Some(lent) = saver.lent.take() {
            self.choose(saver, lent);
        } else if self.has_bug(Bug::DonorFromCache) {
            self.choose(saver, self.store.contents[usize::from(OLD_DONOR)]);
        } else {
            saver.task = Task::ReadDonor;
        }
        ("reads the index and will use", saver.names)
    }

    /// Learns what the other subject has that is live.
    fn read_donor(&mut self, n: usize, saver: &mut Saver) -> (&'static str, Bits) {
        let lent = self.indexed(other(self.config.subjects[n]));
        if self.has_bug(Bug::DonorReadFirst) {
            saver.lent = Some(lent);
            saver.task = Task::ReadGc;
            return ("reads the index of the donor first", 0);
        }
        self.choose(saver, lent);
        if self.has_bug(Bug::DonorNotReadAgain) {
            saver.lent = Some(lent);
        }
        ("reads the index of the donor and will use", saver.names)
    }

    /// Reads the index of its subject again, and will read that of the donor if it still needs to.
    fn check_indexed(&mut self, n: usize, names: Bits, saver: &mut Saver) -> (&'static str, Bits) {
        let subject = self.config.subjects[n];
        let found = names & self.indexed(subject);
        if found != 0 {
            self.observations
                .push("a save found names in the index again");
        }
        let rest = names & !found;
        if let Some(lent) = saver.lent.filter(|_| self.has_bug(Bug::DonorNotReadAgain)) {
            let believed = names_of(found | rest & lent);
            saver.receive(SaveAnswer::Indexed(believed));
        } else if rest != 0 && self.config.borrows && n == 0 {
            saver.task = Task::CheckDonor(rest, found);
        } else {
            saver.receive(SaveAnswer::Indexed(names_of(found)));
        }
        ("looks whether the index names", names)
    }

    /// Chooses names: the parent's, else the donor's, else new ones.
    fn choose(&mut self, saver: &mut Saver, lent: Bits) {
        let parent = std::mem::take(&mut saver.parent);
        let mut fresh = 0;
        for digest in (0..DIGESTS).filter(|digest| saver.wants & 1 << digest != 0) {
            let known = |names: Bits| names_of(names & any_birth(digest)).pop_first();
            let indexed = known(parent).or_else(|| known(lent));
            let mut name = bit_of(&saver.guard.place(digest_of(digest), indexed));
            if self.has_bug(Bug::PlainNames) {
                name = self.plain_unless_condemned(name);
            }
            if name & (parent | lent) == 0 {
                fresh |= name;
            } else if name & parent != 0 {
                self.observations.push("a save used a name from the index");
            } else {
                self.observations
                    .push("a save borrowed a name from a donor");
            }
            saver.names |= name;
        }
        if fresh == 0 {
            self.observations.push("a save borrowed all its names");
            saver.receive(SaveAnswer::Gathered(names_of(saver.names)));
        } else {
            saver.task = Task::Put(fresh, PutFor::Gathering);
        }
    }

    fn plain_unless_condemned(&self, name: Bits) -> Bits {
        let plain = plain(name);
        let condemned = bits_of(self.gc_state().condemned());
        if condemned & plain == 0 { plain } else { name }
    }

    /// Stores one of the chunks, unless it is there for certain.
    fn put(&mut self, names: Bits, why: PutFor, saver: &mut Saver) -> (&'static str, Bits) {
        let stored = self.stored_as(lowest(names));
        let there = self.store.chunks.certain() & stored == stored;
        self.store.chunks.put(stored);
        if there {
            self.observations
                .push("a save used a chunk that lay around");
        }
        match (names & !lowest(names), why) {
            (0, PutFor::StoringAnew) => {
                self.observations.push("a save stored a chunk anew");
                saver.receive(SaveAnswer::Stored);
            }
            (0, PutFor::Gathering) => {
                saver.receive(SaveAnswer::Gathered(names_of(saver.names)));
            }
            (rest, PutFor::Gathering) if saver.wants_provisional => {
                saver.wants_provisional = false;
                saver.rest = rest;
                let so_far = names_of(saver.names & !rest);
                saver.receive(SaveAnswer::GatheredSoFar(so_far));
            }
            (rest, why) => saver.task = Task::Put(rest, why),
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
        self.store.contents[usize::from(manifest)] = self.stored_as(saver.names & !saver.rest);
        if saver.rest != 0 {
            self.store.provisional |= 1 << manifest;
            self.observations.push("a save put a provisional manifest");
        }
        self.land_manifest(manifest);
        saver.receive(SaveAnswer::Stored);
        if self.has_bug(Bug::NoSecondRead) && saver.rest == 0 {
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
        let index = &mut self.indexes[self.config.subject_of(manifest)];
        if index.active & own != 0 {
            index.active &= !own;
            index.active |= self.store.manifests.certain() & own;
        }
    }

    fn read_index(&mut self, n: usize, saver: &mut Saver) -> (&'static str, Bits) {
        let manifest = last_manifest(n, saver);
        let one = 1 << manifest;
        let index = self.indexes[self.config.subjects[n]];
        let made = self.store.made[n];
        let mut is_other_life = index.deleted || index.lease.incarnation != made.incarnation;
        if self.has_bug(Bug::IncarnationIgnored) {
            is_other_life = index.deleted;
        } else if self.has_bug(Bug::ManifestBeforeIndex) {
            let next = index.lease.incarnation + u8::from(index.deleted);
            is_other_life = next != made.incarnation;
        }
        if index.recent & one != 0 {
            self.observations.push("a save found its own swap applied");
            saver.finish(End::Done(manifest));
            ("finds itself published", 0)
        } else if is_other_life {
            self.observations
                .push("a save was refused by another incarnation");
            let is_lost = saver.is_unsure && index.lease.incarnation != made.incarnation;
            saver.finish(if is_lost { End::Unknown } else { End::Refused });
            ("finds its subject deleted", 0)
        } else if index.lease.fence != made.fence && !index.deleted {
            self.observations.push("a save was fenced");
            saver.finish(End::Refused);
            ("finds its lease lost", 0)
        } else if index.tombstones & one != 0 {
            saver.finish(End::Refused);
            ("finds its manifest tombstoned", 0)
        } else {
            saver.task = Task::SwapIndex(index.version);
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
                let change = self.publication(n, last_manifest(n, saver));
                self.leave_index_swap(self.config.subjects[n], *version, change);
                saver.task = Task::ReadIndex;
                saver.is_unsure = true;
                return ("gets no answer about its swap of the index", 0);
            }
            Task::Put(names, _) => {
                self.store.chunks.put_unanswered(lowest(*names));
                return ("gets no answer about chunk", lowest(*names));
            }
            Task::PutManifest => {
                let manifest = first_manifest(n) + saver.manifests;
                self.store.contents[usize::from(manifest)] = saver.names & !saver.rest;
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

/// The subject that a save borrows from.
fn other(subject: usize) -> usize {
    1 - subject
}

/// All manifests that the same save can have put.
fn own_manifests(manifest: u8) -> u16 {
    maker(manifest).map_or(0, manifests_of)
}
