//! Saves and gc rounds over one small pool of chunks, with everything that can go wrong between them.
//!
//! Two saves, two collectors and an environment take turns in every order. The saves are of one subject or of two, each of
//! which has an index and manifests of its own; the pool and its `gc.json` are shared, and a save may borrow names from its
//! parent and from snapshots of the other subject. The decisions are those of [`stasis_model::protocol::gc`]; here are only
//! the store, the indexes and the faults:
//! - every PUT and DELETE that was ever sent may land again at any later time, as often as it likes;
//! - a swap may be applied or not without anybody knowing of it, and land late while its version still holds;
//! - a manifest may be unreadable; a snapshot may be forgotten and a subject taken over at any moment, or deleted and made
//!   again under another incarnation;
//! - a collector looks at one subject after the other, and at the manifests of each in two pages ([`Survey`]);
//! - an actor may stop anywhere. A crash is an actor that never moves again, and needs no move of its own.
//!
//! *Promised after every move:* every chunk named by a manifest that an index leads to exists, and so does the manifest,
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
use store::{Bits, Change, Index, OLD, OLD_DONOR, Store, maker, manifests_of, names_of, ones};

/// What there is before anything happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Chunk `a` lies around, named by no manifest.
    Orphan,
    /// A snapshot of subject 0 names chunk `a`.
    Snapshot,
    /// A snapshot of subject 1 names chunk `a`.
    Donor,
    /// A snapshot of subject 0 names chunk `a`, one of subject 1 chunk `b`.
    ParentAndDonor,
}

/// How a collector looks at all manifests before it deletes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survey {
    /// All at one moment.
    AtOnce,
    /// One subject after the other, each at one moment.
    BySubject,
    /// One subject after the other; of each the later manifests are listed, then the earlier ones, then all of them are
    /// read with the index.
    ByPage,
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
    /// A manifest is removed before its snapshot is tombstoned.
    ManifestFirst,
    /// After the epoch moved, names of a donor count whether it is live or not.
    DonorNotReadAgain,
    /// A donor known from a cache counts without its index being read.
    DonorFromCache,
    /// The index of the donor is read before `gc.json`.
    DonorReadFirst,
    /// A save publishes into whatever incarnation it finds.
    IncarnationIgnored,
    /// A save of a deleted subject puts manifests of a new incarnation before an index carries it.
    ManifestBeforeIndex,
    /// The index of a deleted subject is removed, by a request that may land late.
    IndexRemoved,
    /// The gc of manifests reads the index before it lists them.
    IndexReadFirst,
    /// The gc takes a provisional manifest for one that nobody needs.
    ProvisionalTaken,
    /// Subject 1 is of another pool, and a save of subject 0 uses the names of its chunks.
    NamesCopied,
    /// The gc looks at the manifests of subject 1 only.
    OneSubjectListed,
    /// As designed: the gc deletes without reading `gc.json` after it looked at the manifests.
    NotConfirmed,
    /// As designed: a manifest that is gone when it is read names nothing.
    VanishedIgnored,
    /// The gc looks at listed manifests only, and not at what the index leads to.
    IndexNotSurveyed,
}

/// What takes part, and how much may go wrong.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What there is before.
    pub start: Start,
    /// Which of the chunks `a` (1), `b` (2) and `c` (4) each save wants; 0 for no save.
    pub wants: [u8; 2],
    /// Of which subject each save is.
    pub subjects: [usize; 2],
    /// Whether the first save also borrows from snapshots of the other subject.
    pub borrows: bool,
    /// Whether saves put a manifest when they have stored their first chunk.
    pub provisional: bool,
    /// How collectors look at manifests.
    pub survey: Survey,
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
    /// How often a subject may be deleted, and made again.
    pub deletions: u8,
    /// How often the tombstones of removed manifests may be dropped.
    pub drops: u8,
    /// How often manifests that no save can publish are removed by others than the collectors.
    pub removals: u8,
    /// The mutant.
    pub bug: Option<Bug>,
}

impl Default for Config {
    /// Two saves that share the old chunk, two collectors; nothing else goes wrong.
    fn default() -> Self {
        Self {
            start: Start::Orphan,
            wants: [0b01, 0b11],
            subjects: [0, 1],
            borrows: false,
            provisional: false,
            survey: Survey::AtOnce,
            collectors: 2,
            manifest_gc: false,
            silences: 0,
            unreadable: 0,
            forgets: 0,
            takeovers: 0,
            deletions: 0,
            drops: 0,
            removals: 0,
            bug: None,
        }
    }
}

impl Config {
    /// Which subjects there are.
    fn all_subjects(self) -> std::ops::Range<usize> {
        let has_donor = matches!(self.start, Start::Donor | Start::ParentAndDonor);
        let of_saves = (0..2).filter(|save| self.wants[*save] != 0);
        let last = of_saves.map(|save| self.subjects[save]).max();
        0..last.unwrap_or(0).max(usize::from(has_donor)) + 1
    }

    /// Of which subject a manifest is.
    fn subject_of(self, manifest: u8) -> usize {
        match maker(manifest) {
            Some(save) => self.subjects[save],
            None => usize::from(manifest == OLD_DONOR),
        }
    }

    /// All manifests that a subject can have.
    fn manifests_of(self, subject: usize) -> u16 {
        let own = |manifest: &u8| self.subject_of(*manifest) == subject;
        (0..=OLD_DONOR)
            .filter(own)
            .fold(0, |all, one| all | 1 << one)
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

/// A swap of an index that may still land.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct LateIndex {
    subject: usize,
    expected: u8,
    change: Change,
}

/// The whole of it.
#[derive(Clone, Debug)]
pub struct GcWorld {
    config: Config,
    store: Store,
    indexes: [Index; 2],
    /// What was ever published, whether an index still tells or not.
    ever: u16,
    gc: Part<Option<Versioned<GcState>>>,
    saves: [Part<Saver>; 2],
    collectors: [Part<Collector>; 2],
    late_gc: Vec<Part<LateGc>>,
    late_index: Vec<LateIndex>,
    silences: u8,
    unreadable: u8,
    forgets: u8,
    takeovers: u8,
    deletions: u8,
    drops: u8,
    removals: u8,
    observations: Vec<&'static str>,
}

type Moves = Vec<(Label, Result<GcWorld, String>)>;

impl GcWorld {
    /// The state before anybody has moved.
    pub fn new(config: Config) -> Self {
        let mut world = Self {
            config,
            store: Store::default(),
            indexes: [Index::NEW; 2],
            ever: 0,
            gc: Part::new(None),
            saves: [0, 1].map(|save| Part::new(Saver::new(save, config))),
            collectors: [0, 1].map(|n| Part::new(Collector::new(n, config))),
            late_gc: Vec::new(),
            late_index: Vec::new(),
            silences: config.silences,
            unreadable: config.unreadable,
            forgets: config.forgets,
            takeovers: config.takeovers,
            deletions: config.deletions,
            drops: config.drops,
            removals: config.removals,
            observations: Vec::new(),
        };
        match config.start {
            Start::Orphan => world.store.chunks.put(1),
            Start::Snapshot => world.begin_with(OLD, 1),
            Start::Donor => world.begin_with(OLD_DONOR, 1),
            Start::ParentAndDonor => {
                world.begin_with(OLD, 1);
                world.begin_with(OLD_DONOR, 1 << store::BIRTHS);
            }
        }
        world
    }

    fn begin_with(&mut self, manifest: u8, names: Bits) {
        self.store.chunks.put(names);
        self.store.contents[usize::from(manifest)] = names;
        self.store.manifests.put(1 << manifest);
        let index = &mut self.indexes[self.config.subject_of(manifest)];
        index.apply(Change::Publish(manifest));
        self.ever |= 1 << manifest;
    }

    fn has_bug(&self, bug: Bug) -> bool {
        self.config.bug == Some(bug)
    }

    /// The chunks named by manifests that the index of a subject leads to.
    fn indexed(&self, subject: usize) -> Bits {
        self.store.named_by(self.indexes[subject].active)
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

    /// Swaps the index of a subject if the version still holds.
    fn swap_index(&mut self, subject: usize, expected: u8, change: Change) -> bool {
        let holds = self.indexes[subject].version == expected;
        if holds {
            self.indexes[subject].apply(change);
            if let Change::Publish(manifest) | Change::Found(manifest) = change {
                self.ever |= 1 << manifest;
            }
            self.late_index.retain(|late| late.subject != subject);
        }
        holds
    }

    /// Swaps the index of a subject, whatever its version.
    fn change_index(&mut self, subject: usize, change: Change) {
        self.swap_index(subject, self.indexes[subject].version, change);
    }

    /// A swap of an index that nobody has an answer to may land while its version holds.
    fn leave_index_swap(&mut self, subject: usize, expected: u8, change: Change) {
        let late = LateIndex {
            subject,
            expected,
            change,
        };
        if self.indexes[subject].version == expected && !self.late_index.contains(&late) {
            self.late_index.push(late);
        }
    }

    fn add(moves: &mut Moves, label: Label, after: Self) {
        let broken = after.broken_promise();
        moves.push((label, broken.map_or(Ok(after), Err)));
    }

    fn broken_promise(&self) -> Option<String> {
        let active = self.indexes[0].active | self.indexes[1].active;
        if active & !self.store.manifests.certain() != 0 {
            return Some("an index leads to a manifest that does not exist".to_owned());
        }
        let dangling = self.store.named_by(active) & !self.store.chunks.certain();
        if dangling != 0 {
            let names = names_of(dangling);
            return Some(format!(
                "a snapshot names {names:?}, deleted or about to be"
            ));
        }
        (0..2).find_map(|save| self.untruth(save))
    }

    fn untruth(&self, save: usize) -> Option<String> {
        let own = manifests_of(save);
        match self.saves[save].get().end() {
            Some(End::Done(manifest)) if self.ever & 1 << manifest == 0 => {
                Some("a save said it was done and is not published".to_owned())
            }
            Some(End::Refused) if self.ever & own != 0 => {
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
        for late in &self.late_index {
            let mut after = self.calm();
            if after.swap_index(late.subject, late.expected, late.change) {
                Self::add(moves, label("lands a swap of the index"), after);
            }
        }
    }

    fn acts(&self, moves: &mut Moves) {
        for subject in self.config.all_subjects() {
            self.acts_on(subject, moves);
        }
    }

    fn act(&self, moves: &mut Moves, act: impl FnOnce(&mut Self) -> (&'static str, Bits)) {
        let mut after = self.calm();
        let (what, names) = act(&mut after);
        let who = Who::Environment;
        Self::add(moves, Label { who, what, names }, after);
    }

    /// What users do to a subject.
    fn acts_on(&self, subject: usize, moves: &mut Moves) {
        let index = self.indexes[subject];
        if self.forgets > 0 {
            for manifest in ones(index.active) {
                self.act(moves, |after| after.forget(subject, manifest));
            }
        }
        if self.takeovers > 0 && !index.deleted {
            self.act(moves, |after| {
                after.takeovers -= 1;
                after.change_index(subject, Change::TakeOver);
                ("takes over a subject", 0)
            });
        }
        if self.deletions > 0 && !index.deleted {
            self.act(moves, |after| {
                after.deletions -= 1;
                after.change_index(subject, Change::Delete);
                ("deletes a subject", 0)
            });
        }
        if index.deleted && !self.has_bug(Bug::ManifestBeforeIndex) {
            self.act(moves, |after| {
                after.change_index(subject, Change::MakeAgain);
                after.observations.push("a subject was made again");
                ("makes a subject again", 0)
            });
        }
        let dead = self.dead(subject) & self.store.manifests.certain();
        if self.removals > 0 && dead != 0 {
            self.act(moves, |after| {
                after.removals -= 1;
                after.store.manifests.delete(dead);
                after.observations.push("a manifest was removed");
                ("removes the manifests that no save can publish", 0)
            });
        }
        let removed = index.tombstones & self.store.manifests.deleted();
        if self.drops > 0 && removed != 0 {
            self.act(moves, |after| {
                after.drops -= 1;
                after.change_index(subject, Change::DropTombstones(removed));
                after.observations.push("tombstones were dropped");
                ("drops the tombstones of removed manifests", 0)
            });
        }
        if self.has_bug(Bug::IndexRemoved) && index.lease.incarnation > 0 && index.active != 0 {
            // Sent while the first incarnation was marked as deleted, and late.
            let label = Label {
                who: Who::Environment,
                what: "lands a DELETE of the index",
                names: 0,
            };
            let lost = "published snapshots are gone that nobody forgot";
            moves.push((label, Err(lost.to_owned())));
        }
    }

    /// The manifests of a subject that are neither in its index nor can be published any more.
    fn dead(&self, subject: usize) -> u16 {
        let index = self.indexes[subject];
        let is_dead = |manifest: &u8| {
            let made = self.store.lease_of(*manifest);
            index.tombstones & 1 << manifest != 0
                || index.deleted
                || made.incarnation != index.lease.incarnation
                || made.fence < index.lease.fence
        };
        let own = self.config.manifests_of(subject) & !index.active;
        ones(own).filter(is_dead).fold(0, |all, one| all | 1 << one)
    }

    fn forget(&mut self, subject: usize, manifest: u8) -> (&'static str, Bits) {
        self.forgets -= 1;
        let names = self.store.contents[usize::from(manifest)];
        if self.has_bug(Bug::ManifestFirst) {
            self.store.manifests.delete(1 << manifest);
            return ("removes the manifest of a snapshot to forget", names);
        }
        self.change_index(subject, Change::Tombstone(1 << manifest));
        ("forgets a snapshot of", names)
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
        let budgets = [
            self.silences,
            self.unreadable,
            self.forgets,
            self.takeovers,
            self.deletions,
            self.drops,
            self.removals,
        ];
        let late_gc = self.late_gc.iter().fold(0, |all, late| all ^ late.0.0);
        fingerprint::of(&(
            &self.store,
            &self.indexes,
            self.ever,
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
