//! Saves and gc rounds over one small chunk store, with everything that can go wrong between them.
//!
//! Two saves, two collectors and an environment take turns in every order. The decisions are those of
//! [`stasis_model::protocol::gc`]; here are only the store, the index and the faults:
//! - every PUT and DELETE that was ever sent may land again at any later time, as often as it likes;
//! - a swap may be applied or not without anybody knowing of it, and land late while its version still holds;
//! - a manifest may be unreadable; a snapshot may be forgotten and a subject taken over at any moment;
//! - an actor may stop anywhere. A crash is an actor that never moves again, and needs no move of its own.
//!
//! *Promised after every move:* every chunk named by a manifest that the index leads to exists, and so does the manifest,
//! and no DELETE of either is under way; a save that said it is done was published; one that said it is not never was and never will be.

mod collector;
mod saver;
mod store;

use crate::explore::World;
use crate::fingerprint;
use collector::Collector;
use saver::{End, Saver};
use stasis_model::format::document::{Version, Versioned};
use stasis_model::id::OpId;
use stasis_model::protocol::gc::GcState;
use std::fmt;
use std::rc::Rc;
use store::{Bits, Change, Index, OLD, ROUNDS, Store, names_of, ones};

/// What there is before anything happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Chunk `a` lies around, named by no manifest.
    Orphan,
    /// A snapshot in the index names chunk `a`.
    Snapshot,
}

/// A mistake that the protocol must not make; each is a mutant, to show that the explorer would see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// The gc deletes what it condemned without asking the manifests again.
    NoSecondListing,
    /// The save publishes without reading `gc.json` again.
    NoSecondRead,
    /// Chunks are stored anew under the name they had.
    SameName,
    /// The save does not notice that an epoch went by.
    EpochIgnored,
    /// The gc takes an unreadable manifest for one that names nothing.
    UnreadableIgnored,
    /// The gc deletes before its list is in.
    DeletedFirst,
    /// The gc takes its list out without ending the epoch.
    EpochKept,
    /// The gc condemns nothing, and trusts that what is in use is young.
    AgeGrace,
    /// The gc throws away a list that it finds.
    ListForgotten,
    /// As first designed: a chunk is stored under its plain name unless that is condemned right now.
    PlainNames,
    /// As first designed: after an epoch went by, a name counts that exists (and that nobody ever tried to delete).
    ExistenceTrusted,
    /// The same, where a late PUT may have brought a deleted name back.
    RevivalTrusted,
    /// As it might be read: the new manifest replaces the old one in place.
    ManifestRewritten,
    /// The gc removes manifests that are not in the index, without tombstones.
    NoTombstone,
}

/// What takes part, and how much may go wrong.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What there is before.
    pub start: Start,
    /// Which of the chunks `a` (1), `b` (2) and `c` (4) each save wants; 0 for no save.
    pub wants: [u8; 2],
    /// How many collectors there are, at most two; each condemns once.
    pub collectors: u8,
    /// Whether collectors also remove manifests.
    pub manifest_gc: bool,
    /// How many requests may stay without an answer, applied or not.
    pub silences: u8,
    /// How often a manifest may be unreadable.
    pub unreadable: u8,
    /// How many snapshots may be forgotten.
    pub forgets: u8,
    /// How many subjects may be taken over.
    pub takeovers: u8,
    /// The mutant.
    pub bug: Option<Bug>,
}

impl Default for Config {
    /// Two saves that share the old chunk, two collectors; nothing else goes wrong.
    fn default() -> Self {
        Self {
            start: Start::Orphan,
            wants: [0b01, 0b11],
            collectors: 2,
            manifest_gc: false,
            silences: 0,
            unreadable: 0,
            forgets: 0,
            takeovers: 0,
            bug: None,
        }
    }
}

/// Who moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// One of the saves.
    Save(usize),
    /// One of the collectors.
    Collector(usize),
    /// Whatever else there is.
    Environment,
}

/// What a move is called.
#[derive(Clone, Copy)]
pub struct Label {
    who: Who,
    what: &'static str,
    names: Bits,
}

impl fmt::Debug for Label {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} {}", self.who, self.what)?;
        ones(self.names).try_for_each(|at| {
            let (digest, born) = (b'a' + at / 4, at % 4);
            write!(out, " {}.{born}", char::from(digest))
        })
    }
}

/// A value with its fingerprint, so that a move hashes only what it changed.
#[derive(Clone, Debug)]
struct Part<T>(Rc<(u128, T)>);

impl<T: std::hash::Hash> Part<T> {
    fn new(value: T) -> Self {
        Self(Rc::new((fingerprint::of(&value), value)))
    }

    fn get(&self) -> &T {
        &self.0.1
    }
}

/// A swap of `gc.json` that may still land.
type LateGc = (Option<Version>, GcState);

/// The whole of it.
#[derive(Clone, Debug)]
pub struct GcWorld {
    config: Config,
    store: Store,
    index: Index,
    gc: Part<Option<Versioned<GcState>>>,
    saves: [Part<Saver>; 2],
    collectors: [Part<Collector>; 2],
    late_gc: Vec<Part<LateGc>>,
    late_index: Vec<(u8, Change)>,
    silences: u8,
    unreadable: u8,
    forgets: u8,
    takeovers: u8,
    observations: Vec<&'static str>,
}

type Moves = Vec<(Label, Result<GcWorld, String>)>;

impl GcWorld {
    /// The state before anybody has moved.
    pub fn new(config: Config) -> Self {
        let mut store = Store::default();
        store.chunks.put(1);
        let mut index = Index {
            version: 1,
            fences: [1, 1],
            active: 0,
            tombstones: 0,
            ever: 0,
        };
        if config.start == Start::Snapshot {
            store.contents[usize::from(OLD)] = 1;
            store.manifests.put(1 << OLD);
            index.apply(Change::Publish(OLD));
        }
        Self {
            config,
            store,
            index,
            gc: Part::new(None),
            saves: [0, 1].map(|save| Part::new(Saver::new(config.wants[save]))),
            collectors: [0, 1].map(|n| Part::new(Collector::new(n, config))),
            late_gc: Vec::new(),
            late_index: Vec::new(),
            silences: config.silences,
            unreadable: config.unreadable,
            forgets: config.forgets,
            takeovers: config.takeovers,
            observations: Vec::new(),
        }
    }

    fn has_bug(&self, bug: Bug) -> bool {
        self.config.bug == Some(bug)
    }

    /// The chunks named by manifests that the index leads to.
    fn indexed(&self) -> Bits {
        self.store.named_by(self.index.active)
    }

    fn gc_state(&self) -> GcState {
        let found = self.gc.get().as_ref();
        found.map_or_else(GcState::empty, |found| found.value.clone())
    }

    /// Swaps `gc.json` if the version still holds.
    fn swap_gc(&mut self, expected: Option<&Version>, mut gc: GcState) -> bool {
        let found = self.gc.get().as_ref().map(|found| &found.version);
        if found != expected {
            return false;
        }
        if !gc.is_collecting() {
            // Nobody asks who ended an epoch, so that two states need not be told apart.
            gc.op_id = OpId::default();
        }
        let version = Version::new(gc.generation.to_string());
        self.gc = Part::new(Some(Versioned { value: gc, version }));
        self.late_gc.clear();
        true
    }

    /// Swaps the index if the version still holds.
    fn swap_index(&mut self, expected: u8, change: Change) -> bool {
        let holds = self.index.version == expected;
        if holds {
            self.index.apply(change);
            self.late_index.clear();
        }
        holds
    }

    fn add(moves: &mut Moves, label: Label, after: Self) {
        let broken = after.broken_promise();
        moves.push((label, broken.map_or(Ok(after), Err)));
    }

    fn broken_promise(&self) -> Option<String> {
        if self.index.active & !self.store.manifests.certain() != 0 {
            return Some("the index leads to a manifest that does not exist".to_owned());
        }
        let dangling = self.indexed() & !self.store.chunks.certain();
        if dangling != 0 {
            let names = names_of(dangling);
            return Some(format!(
                "a snapshot names {names:?}, deleted or about to be"
            ));
        }
        (0..2).find_map(|save| self.untruth(save))
    }

    fn untruth(&self, save: usize) -> Option<String> {
        let own = 0b11_1111 << (save * usize::from(ROUNDS));
        match self.saves[save].get().end() {
            Some(End::Done(manifest)) if self.index.ever & 1 << manifest == 0 => {
                Some("a save said it was done and is not published".to_owned())
            }
            Some(End::Refused) if self.index.ever & own != 0 => {
                Some("a save said it was refused and is published".to_owned())
            }
            _ => None,
        }
    }

    /// Under the bug by which a manifest's name is used again, an older PUT of it lands late.
    fn rewritten(&self, moves: &mut Moves) {
        for manifest in 0..OLD {
            let names = self.store.contents[usize::from(manifest)];
            if names != 0 {
                let mut after = self.calm();
                after.land_manifest(manifest);
                let label = Label {
                    who: Who::Environment,
                    what: "lands a late PUT of a manifest of",
                    names,
                };
                Self::add(moves, label, after);
            }
        }
    }

    /// Swaps without an answer land, while their version holds.
    fn late_swaps(&self, moves: &mut Moves) {
        let label = |what| Label {
            who: Who::Environment,
            what,
            names: 0,
        };
        for late in &self.late_gc {
            let mut after = self.calm();
            let (expected, gc) = late.get();
            if after.swap_gc(expected.as_ref(), gc.clone()) {
                after.observations.push("a swap of gc.json landed late");
                Self::add(moves, label("lands a swap of gc.json"), after);
            }
        }
        for (expected, change) in &self.late_index {
            let mut after = self.calm();
            if after.swap_index(*expected, *change) {
                Self::add(moves, label("lands a swap of the index"), after);
            }
        }
    }

    fn acts(&self, moves: &mut Moves) {
        let label = |what, names| Label {
            who: Who::Environment,
            what,
            names,
        };
        if self.forgets > 0 {
            for manifest in ones(self.index.active) {
                let mut after = self.calm();
                after.forgets -= 1;
                after.swap_index(self.index.version, Change::Tombstone(1 << manifest));
                let names = self.store.contents[usize::from(manifest)];
                Self::add(moves, label("forgets a snapshot of", names), after);
            }
        }
        if self.takeovers > 0 {
            for subject in 0..2 {
                let mut after = self.calm();
                after.takeovers -= 1;
                after.swap_index(self.index.version, Change::TakeOver(subject));
                Self::add(moves, label("takes over a subject", 0), after);
            }
        }
    }

    /// A copy in which nothing has been seen yet.
    fn calm(&self) -> Self {
        Self {
            observations: Vec::new(),
            ..self.clone()
        }
    }
}

impl World for GcWorld {
    type Label = Label;

    fn fingerprint(&self) -> u128 {
        let parts = [
            self.gc.0.0,
            self.saves[0].0.0,
            self.saves[1].0.0,
            self.collectors[0].0.0,
            self.collectors[1].0.0,
        ];
        let budgets = [self.silences, self.unreadable, self.forgets, self.takeovers];
        let late_gc = self.late_gc.iter().fold(0, |all, late| all ^ late.0.0);
        fingerprint::of(&(
            &self.store,
            &self.index,
            parts,
            budgets,
            late_gc,
            &self.late_index,
        ))
    }

    fn moves(&self) -> Moves {
        let mut moves = Vec::with_capacity(12);
        for save in 0..2 {
            self.save_moves(save, &mut moves);
        }
        for collector in 0..2 {
            self.collector_moves(collector, &mut moves);
        }
        if self.has_bug(Bug::ManifestRewritten) {
            self.rewritten(&mut moves);
        }
        self.late_swaps(&mut moves);
        self.acts(&mut moves);
        moves
    }

    fn observations(&self) -> &[&'static str] {
        &self.observations
    }
}
