//! The save's side: which names it may use, and when its manifest may be published. No I/O.

use super::{
    ATTEMPTS, ChunkName, GcEpoch, GcState, Names, PublishVerdict, before_publish, newborn, place,
};
use crate::digest::ChunkDigest;

/// How often a save stores chunks anew before it gives up; every time a gc round must have overtaken it.
const ROUNDS: u8 = 8;

/// What the store said to the last step.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SaveAnswer {
    /// Nothing was asked yet.
    Begin,
    /// `gc.json`, or [`GcState::empty`] where there is none.
    Gc(GcState),
    /// Every chunk is stored, under these names.
    Gathered(Names),
    /// Some chunks are stored, under these names, and the save wants them safe before it goes on. Those that an earlier
    /// provisional manifest names need not be among them.
    GatheredSoFar(Names),
    /// What was to be stored is stored.
    Stored,
    /// Before the end of a long save: what was to be stored anew is not used under any name. Whoever needs its bytes gathers
    /// them again.
    LeftOut,
    /// Which of the names asked for stand in a donor that is live.
    Indexed(Names),
    /// No answer, or one that settles nothing, in spite of retries.
    Silence,
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[must_use = "a save advances only when its steps are carried out"]
pub enum SaveStep {
    /// Read `gc.json`.
    ReadGc,
    /// Read the index and those of donors, then store every chunk under the name that [`SaveGuard::place`] gives it. After
    /// a provisional manifest: go on where it was left, under the same guard.
    Gather,
    /// Put a manifest of the names gathered, under a name that was never used, and go on only when it is acknowledged.
    PutManifest,
    /// Read the index of every subject that these names were borrowed from now, and say which of them stand in a snapshot
    /// that it leads to: one request for each donor.
    CheckIndexed(Names),
    /// Store the same bytes under new names and use those in the manifest from now on.
    StoreAnew(Vec<Replacement>),
    /// The manifest put last may be published, now or at any later time, under the lease it was made with.
    Publish,
    /// Nothing was published, and nothing will be.
    GiveUp(GaveUp),
}

/// A chunk that must not be used under its old name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Replacement {
    /// The name that may be deleted at any moment.
    pub from: ChunkName,
    /// The name to store its bytes under: taken from the source or, while it is still there, from the old object.
    pub to: ChunkName,
}

/// Why a save was given up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GaveUp {
    /// The store does not answer.
    Unreachable,
    /// Gc rounds were faster again and again.
    Outrun,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum SaveStage {
    Opening,
    Gathering,
    Writing,
    Judging,
    Checking { condemned: Names },
    Replacing(Vec<Replacement>),
    Over(Option<GaveUp>),
}

/// One save's dealings with gc, from before its first chunk until it may publish.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SaveGuard {
    stage: SaveStage,
    /// As read last.
    gc: GcState,
    /// When the first name was gathered. Names are gathered while a provisional manifest is put and judged, so that none
    /// of them was learned of later than this, whatever was read since.
    opened: GcEpoch,
    /// When the unproved names were learned of, at the earliest.
    since: GcEpoch,
    unproved: Names,
    /// Safe because a provisional manifest names them.
    proved: Names,
    is_final: bool,
    attempts_left: u8,
    rounds_left: u8,
}

impl Default for SaveGuard {
    fn default() -> Self {
        Self::new()
    }
}

impl SaveGuard {
    /// A save that has not begun.
    pub fn new() -> Self {
        Self {
            stage: SaveStage::Opening,
            gc: GcState::empty(),
            opened: GcEpoch::FIRST,
            since: GcEpoch::FIRST,
            unproved: Names::new(),
            proved: Names::new(),
            is_final: false,
            attempts_left: ATTEMPTS,
            rounds_left: ROUNDS,
        }
    }

    /// A save that gathers right after `gc` was read, for chunks that are stored while it repeats.
    pub fn after(gc: GcState) -> Self {
        Self {
            stage: SaveStage::Gathering,
            opened: gc.epoch,
            gc,
            ..Self::new()
        }
    }

    /// The name for a chunk while gathering; `indexed` is the one that a donor has for it, live in an index that was read
    /// after `gc.json`.
    pub fn place(&self, digest: ChunkDigest, indexed: Option<ChunkName>) -> ChunkName {
        place(digest, indexed, &self.gc)
    }

    /// `gc.json` as it was read last.
    pub fn gc(&self) -> &GcState {
        &self.gc
    }

    /// Goes on gathering although the steps after [`SaveAnswer::GatheredSoFar`] were not carried out to their end: nothing is
    /// proved of these names.
    pub fn go_on_without(&mut self, names: &Names) {
        for name in names {
            self.proved.remove(name);
        }
        self.unproved = Names::new();
        self.stage = SaveStage::Gathering;
        self.attempts_left = ATTEMPTS;
    }

    /// Hears the answer to the last step and says the next one.
    pub fn next(&mut self, answer: SaveAnswer) -> SaveStep {
        let stage = match (&self.stage, answer) {
            (_, SaveAnswer::Begin) => SaveStage::Opening,
            (SaveStage::Opening, SaveAnswer::Gc(gc)) => {
                self.opened = gc.epoch;
                self.gc = gc;
                SaveStage::Gathering
            }
            (SaveStage::Gathering, SaveAnswer::Gathered(names)) => self.write(&names, true),
            (SaveStage::Gathering, SaveAnswer::GatheredSoFar(names)) => self.write(&names, false),
            (SaveStage::Writing, SaveAnswer::Stored) => SaveStage::Judging,
            (SaveStage::Judging, SaveAnswer::Gc(gc)) => self.judge(gc),
            (SaveStage::Checking { condemned }, SaveAnswer::Indexed(named)) => {
                let anew = condemned | &(&self.unproved - &named);
                self.unproved = &self.unproved & &named;
                self.replace(&anew)
            }
            (SaveStage::Replacing(moves), SaveAnswer::Stored) => {
                self.unproved.extend(moves.iter().map(|chunk| chunk.to));
                SaveStage::Writing
            }
            (SaveStage::Replacing(moves), SaveAnswer::LeftOut) if !self.is_final => {
                for chunk in moves {
                    self.proved.remove(&chunk.to);
                }
                // The manifest that was put names what is still to be judged.
                if self.unproved.is_empty() {
                    SaveStage::Gathering
                } else {
                    SaveStage::Judging
                }
            }
            _ => return self.again(),
        };
        self.enter(stage)
    }

    /// What a provisional manifest has made safe stays so: it is there until this save can publish no more.
    fn write(&mut self, names: &Names, is_final: bool) -> SaveStage {
        self.unproved = names - &self.proved;
        self.since = self.opened;
        self.is_final = is_final;
        self.rounds_left = ROUNDS;
        if !is_final {
            self.proved.extend(names);
        }
        SaveStage::Writing
    }

    fn judge(&mut self, now: GcState) -> SaveStage {
        let verdict = before_publish(self.since, &now, &self.unproved);
        self.since = now.epoch;
        self.gc = now;
        self.unproved = Names::new();
        match verdict {
            PublishVerdict::Publish if !self.is_final => SaveStage::Gathering,
            PublishVerdict::Publish => SaveStage::Over(None),
            PublishVerdict::StoreAnew(condemned) => self.replace(&condemned),
            PublishVerdict::CheckIndexed {
                doubtful,
                condemned,
            } => {
                self.unproved = doubtful;
                SaveStage::Checking { condemned }
            }
        }
    }

    fn replace(&mut self, names: &Names) -> SaveStage {
        if names.is_empty() {
            return SaveStage::Judging;
        }
        if self.rounds_left == 0 {
            return SaveStage::Over(Some(GaveUp::Outrun));
        }
        self.rounds_left -= 1;
        let replacement = |&from: &ChunkName| Replacement {
            from,
            to: newborn(from.digest(), &self.gc),
        };
        let moves: Vec<_> = names.iter().map(replacement).collect();
        if !self.is_final {
            self.proved = &self.proved - names;
            self.proved.extend(moves.iter().map(|chunk| chunk.to));
        }
        SaveStage::Replacing(moves)
    }

    fn enter(&mut self, stage: SaveStage) -> SaveStep {
        self.stage = stage;
        self.attempts_left = ATTEMPTS;
        self.step()
    }

    /// Everything a save asks for can be asked again.
    fn again(&mut self) -> SaveStep {
        self.attempts_left = self.attempts_left.saturating_sub(1);
        if self.attempts_left == 0 && !matches!(self.stage, SaveStage::Over(_)) {
            self.stage = SaveStage::Over(Some(GaveUp::Unreachable));
        }
        self.step()
    }

    fn step(&self) -> SaveStep {
        match &self.stage {
            SaveStage::Opening | SaveStage::Judging => SaveStep::ReadGc,
            SaveStage::Gathering => SaveStep::Gather,
            SaveStage::Writing => SaveStep::PutManifest,
            SaveStage::Checking { .. } => SaveStep::CheckIndexed(self.unproved.clone()),
            SaveStage::Replacing(moves) => SaveStep::StoreAnew(moves.clone()),
            SaveStage::Over(None) => SaveStep::Publish,
            SaveStage::Over(Some(why)) => SaveStep::GiveUp(*why),
        }
    }
}
