//! Who plays, and what may go wrong.

use super::actor::REAPER;
use super::conduct::Duty;
use super::promise::Promise;
use stasis_model::protocol::step::Doc;

/// What an operator may do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// Choose the older snapshot, whatever is active.
    Rollback,
    /// Look at the pointer, then choose the older snapshot if nothing changed since.
    RollbackIfUnmoved,
    /// Choose a writer's snapshot, be it active, replaced or never published.
    Adopt,
    /// Look at the lock, then throw out the holder seen.
    ForceUnlock,
    /// Mark any snapshot there is for removal.
    Delete,
    /// Protect the older snapshot.
    Pin,
}

impl Command {
    /// Whether the operator looks at which snapshots there are.
    pub(crate) fn lists(self) -> bool {
        matches!(self, Self::Adopt | Self::Delete)
    }
}

/// How a lineage looks when the world begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Start {
    /// Neither document exists.
    Empty,
    /// Two snapshots exist, the newer one is active, and the last owner gave the lock back.
    Published,
}

/// The bounds of a world. Within them everything that can happen is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cast {
    /// How many writers run once each: acquire, load, store, publish, release. At most three.
    pub writers: u8,
    /// How often each writer may renew, at any time between acquiring and releasing.
    pub renewals: u8,
    /// Whether a writer's load may fail, so that it goes on with a fresh profile.
    pub fresh: bool,
    /// How many passes the reaper makes.
    pub reaps: u8,
    /// How many acts the operator commits.
    pub acts: u8,
    /// What each of those acts may be.
    pub repertoire: &'static [Command],
    /// How often each of a writer's operations writes before it gives up.
    pub attempts: u8,
    /// How often each of the reaper's and the operator's operations does.
    pub attempts_of_others: u8,
    /// Whether a writer begins to publish and to release with what it last saw under its lease, without reading.
    pub keeps_readings: bool,
    /// How many reads may fail in all.
    pub unreadable: u8,
    /// The state at the beginning.
    pub start: Start,
    /// Whether to go without the short cuts: every read and every write is a move of its own, crashes are moves, and
    /// unsettled operations are asked about until the end. It finds nothing more, in several times as many states.
    pub thorough: bool,
    /// The promises that are checked.
    pub promises: &'static [Promise],
    /// The document by which a writer becomes the owner.
    pub owned_by: Doc,
}

impl Default for Cast {
    fn default() -> Self {
        Self {
            writers: 2,
            renewals: 0,
            fresh: false,
            reaps: 0,
            acts: 0,
            repertoire: &[],
            attempts: 2,
            attempts_of_others: 1,
            keeps_readings: false,
            unreadable: 0,
            start: Start::Published,
            thorough: false,
            promises: &Promise::ALL,
            owned_by: Doc::Pointer,
        }
    }
}

impl Cast {
    /// The document whose change is the act.
    pub(crate) fn effect_of(&self, duty: &Duty) -> Doc {
        match duty {
            Duty::Acquire => self.owned_by,
            Duty::Renew(_) | Duty::Release(_) | Duty::Reap => Doc::Lock,
            _ => Doc::Pointer,
        }
    }

    /// How often each operation of an actor writes before it gives up.
    pub(crate) fn attempts_by(&self, actor: u8) -> u8 {
        if actor < REAPER {
            self.attempts
        } else {
            self.attempts_of_others
        }
    }
}
