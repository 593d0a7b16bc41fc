//! What really happened in one run, and the promises held against it.
//!
//! The oracle sees every change of the store at the moment when it is made, and learns from every actor what it means to
//! do before it begins and what it was told at the end. No actor ever sees the oracle. *Always true:* the first broken
//! promise is kept and ends the run.

mod answer;
mod landing;
mod rules;

use super::diary::Diary;
use super::observations::Observations;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::lease::{Fence, Lock};
use stasis_model::format::pointer::{Active, Pointer};
use stasis_model::id::{Lineage, OpId};
use stasis_model::protocol::operation::{OperationFate, OperationKind, Unsettled};
use stasis_store::layout::{self, Key};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use tokio::time::Instant;

/// One of the promises.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Promise {
    /// A publish replaces exactly the snapshot that its writer loaded, and a fresh start replaces none.
    Linear,
    /// Done means applied, refused means never applied, and an unknown outcome is never settled wrongly.
    Truthful,
    /// Only the lease whose fence landed last publishes.
    Fenced,
    /// Epochs never decrease, generations grow by one, documents are never deleted and forget nothing they must keep.
    Growing,
    /// Nobody changes a lease that is not the one it means.
    Preserved,
    /// The active snapshot exists and was never marked for removal.
    Closed,
    /// After the storm somebody new can own the lineage and publish.
    Live,
}

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Breach {
    /// Which one.
    pub promise: Promise,
    /// How it was broken.
    pub what: String,
}

impl Display for Breach {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}: {}", self.promise, self.what)
    }
}

/// The outcome of a check.
pub(crate) type Verdict = Result<(), Breach>;

fn hold(kept: bool, promise: Promise, what: impl Display) -> Verdict {
    if kept {
        return Ok(());
    }
    let what = what.to_string();
    Err(Breach { promise, what })
}

/// What an actor means to do.
#[derive(Clone, Debug)]
pub(crate) enum Means {
    Acquire,
    Renew(Fence),
    Release(Fence),
    Reap,
    Publish {
        fence: Fence,
        loaded: Option<ArchiveDigest>,
        fresh: bool,
        to: ArchiveDigest,
    },
    Rollback(ArchiveDigest),
    ForceUnlock(Fence),
    Delete(ArchiveDigest),
    Pin(ArchiveDigest, bool),
}

impl Means {
    pub(crate) fn kind(&self) -> OperationKind {
        match self {
            Self::Acquire => OperationKind::Acquire,
            Self::Renew(_) => OperationKind::Renew,
            Self::Release(_) => OperationKind::Release,
            Self::Reap => OperationKind::Reap,
            Self::Publish { .. } => OperationKind::Publish,
            Self::Rollback(_) => OperationKind::Rollback,
            Self::ForceUnlock(_) => OperationKind::ForceUnlock,
            Self::Delete(_) => OperationKind::Delete,
            Self::Pin(..) => OperationKind::Pin,
        }
    }

    /// Whether the lock is all that it changes.
    fn is_about_the_lock(&self) -> bool {
        matches!(self, Self::Renew(_) | Self::Release(_) | Self::Reap)
    }
}

/// What an actor was told at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Done,
    Denied,
    Unknown,
}

/// One operation: what was meant, what came of it, what was said.
#[derive(Debug)]
struct Effect {
    who: String,
    means: Means,
    /// How often it changed the pointer, and the lock.
    pointers: u32,
    locks: u32,
    /// Whether one of its changes was made without its knowing.
    unanswered: bool,
    said: Option<Said>,
    settled: Option<OperationFate>,
    /// How many pointers and locks there had been when it began.
    since: (usize, usize),
}

impl Effect {
    fn applied(&self) -> bool {
        if self.means.is_about_the_lock() {
            self.locks > 0
        } else {
            self.pointers > 0
        }
    }
}

impl Display for Effect {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} by {}", self.means.kind(), self.who)
    }
}

/// The memory of one run.
#[derive(Debug)]
pub(crate) struct Oracle {
    pub(crate) diary: Diary,
    pub(crate) observations: Observations,
    pub(crate) breach: Option<Breach>,
    pub(crate) landings: u64,
    began: Instant,
    pointer_key: Key,
    lock_key: Key,
    pointers: Vec<Pointer>,
    locks: Vec<Lock>,
    effects: BTreeMap<OpId, Effect>,
    stored: BTreeSet<Key>,
    tombstoned: BTreeSet<ArchiveDigest>,
    catalog: Vec<Active>,
    unknowns: Vec<Unsettled>,
}

impl Oracle {
    pub(crate) fn new(lineage: &Lineage, diary: Diary) -> Self {
        Self {
            diary,
            observations: Observations::default(),
            breach: None,
            landings: 0,
            began: Instant::now(),
            pointer_key: layout::pointer(lineage),
            lock_key: layout::lock(lineage),
            pointers: Vec::new(),
            locks: Vec::new(),
            effects: BTreeMap::new(),
            stored: BTreeSet::new(),
            tombstoned: BTreeSet::new(),
            catalog: Vec::new(),
            unknowns: Vec::new(),
        }
    }

    pub(crate) fn note(&mut self, what: fmt::Arguments<'_>) {
        let at = self.began.elapsed().as_millis();
        let at = u64::try_from(at).expect("a simulation is short");
        self.diary.note(at, what);
    }

    pub(crate) fn judge(&mut self, verdict: Verdict) {
        let Err(breach) = verdict else { return };
        self.note(format_args!("BROKEN PROMISE {breach}"));
        self.breach.get_or_insert(breach);
    }

    /// Every snapshot that anybody ever tried to store.
    pub(crate) fn catalog(&self) -> &[Active] {
        &self.catalog
    }

    /// Somebody is about to store a snapshot.
    pub(crate) fn announce(&mut self, snapshot: &Active) {
        if !self.catalog.contains(snapshot) {
            self.catalog.push(snapshot.clone());
        }
    }

    /// Every operation whose outcome was unknown.
    pub(crate) fn unknowns(&self) -> Vec<Unsettled> {
        self.unknowns.clone()
    }

    fn effect(&self, op_id: OpId) -> Result<&Effect, Breach> {
        self.effects.get(&op_id).ok_or_else(|| Breach {
            promise: Promise::Growing,
            what: format!("{op_id} wrote, but nobody meant to"),
        })
    }

    fn active(&self) -> Option<&Active> {
        self.pointers.last()?.active.as_ref()
    }
}
