//! The rules by which a lineage's two documents may change.
//!
//! [`step`] is one pure function from what was read, an operation and the time to what to write, or to the reason why
//! not. It writes at most one document; the writer must make that write conditional on the version it read.
//!
//! *Always true* of every change it allows:
//! - `epoch` and `generation` grow, and a fence is compared as the pair (epoch, operation), never by number alone;
//! - publishing needs our fence **and** the base we loaded, in the very version that is replaced;
//! - a holder, a reaper and a releaser touch only the lease they mean;
//! - forced acts commit in the pointer first, where they fence every writer at once.

mod lock;
mod pointer;

use crate::digest::ArchiveDigest;
use crate::format::lease::{Fence, Holder, Lock};
use crate::format::pointer::{Active, Pointer, PointerMark};
use crate::id::{Epoch, Generation, Label, OpId};
use crate::time::Timestamp;
use std::fmt;
use std::time::Duration;

/// How long a rollback protects its target from retention.
pub const ROLLBACK_MEMORY: Duration = Duration::from_hours(30 * 24);
/// How many pins, rollbacks and tombstones a pointer holds, each.
pub const MARK_LIMIT: usize = 500;
/// A snapshot that is deleted again after this time gets a tombstone of a new date.
pub const TOMBSTONE_FRESH: Duration = Duration::from_hours(1);
/// How many findings of checks a pointer holds; the oldest go first.
pub const CHECK_LIMIT: usize = 64;
/// What the lock's holder is called after an operator took it.
pub const OPERATOR: &str = "operator-force";

/// The two documents of a lineage, as read.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Documents {
    /// `lock.json`, if there is one.
    pub lock: Option<Lock>,
    /// `latest.json`, if there is one.
    pub pointer: Option<Pointer>,
}

impl Documents {
    fn fence(&self) -> Fence {
        self.pointer
            .as_ref()
            .map(|pointer| pointer.fence)
            .unwrap_or_default()
    }

    /// An epoch no lease has had: above the lock's and above the fence's.
    fn next_epoch(&self) -> Epoch {
        let locked = self
            .lock
            .as_ref()
            .map(|lock| lock.epoch)
            .unwrap_or_default();
        locked.max(self.fence().epoch).next()
    }
}

/// One of the two documents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Doc {
    /// `lock.json`
    Lock,
    /// `latest.json`
    Pointer,
}

/// What is to be done to one document.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Take the lock: the first half of acquiring.
    Take {
        /// Who asks.
        holder: Holder,
        /// For how long.
        ttl: Duration,
    },
    /// Write the owner's fence into the pointer: the second half of acquiring.
    Fence {
        /// The lease that was taken.
        fence: Fence,
    },
    /// Prolong a lease.
    Renew {
        /// The lease that is ours.
        fence: Fence,
        /// For how long from now.
        ttl: Duration,
    },
    /// Give a lease back.
    Release {
        /// The lease that is ours.
        fence: Fence,
    },
    /// Free a lock whose holder is presumed dead.
    Reap {
        /// How long after its expiry.
        grace: Duration,
    },
    /// Make a new snapshot the active one.
    Publish {
        /// The lease that is ours.
        fence: Fence,
        /// The snapshot the new one derives from: what was loaded, `None` for a fresh start.
        base: Option<ArchiveDigest>,
        /// The new snapshot, already durable.
        to: Active,
    },
    /// Make an older snapshot the active one, and fence the owner out.
    Rollback {
        /// The chosen snapshot, already proved to exist.
        to: Active,
        /// The generation the operator saw, if the act depends on it.
        seen: Option<Generation>,
    },
    /// Fence the owner out.
    ForceUnlock {
        /// The lease the operator saw.
        seen: Fence,
    },
    /// Write into the lock what the pointer already says: the second half of a forced act.
    MarkForced {
        /// The forced act's fence, as written into the pointer.
        fence: Fence,
        /// The reason that the operator gave.
        reason: Label,
        /// How long until a reader of the plain contract takes the lock for expired.
        ttl: Duration,
    },
    /// Mark a snapshot for removal; one that is marked already gets a new date, if the mark is not fresh.
    Delete {
        /// Which.
        target: ArchiveDigest,
        /// Every snapshot in the prefix, by listing. Where it does not name `target`, only a mark that is there is dated.
        known: Vec<ArchiveDigest>,
    },
    /// Protect a snapshot from removal, or stop doing so.
    Pin {
        /// Which.
        target: ArchiveDigest,
        /// Whether it is to be protected.
        pinned: bool,
    },
    /// Record what a check of a snapshot found.
    Check {
        /// Which.
        target: ArchiveDigest,
        /// Whether it came back whole.
        sound: bool,
    },
    /// Drop the marks of removed snapshots, so that the same bytes may be stored and chosen again.
    ///
    /// No process may own the lineage, and the fence is raised: a writer that saw those bytes before they went, under whichever
    /// lease, can never publish them.
    ///
    /// A mark is meant with its date: one that was set or dated since it was read forbids something else, and stays.
    Forget {
        /// Marks of snapshots of which no listing shows anything, as they were read.
        gone: Vec<PointerMark>,
    },
}

impl Op {
    /// Which documents the rule looks at, in the order in which they must be read.
    pub fn reads(&self) -> &'static [Doc] {
        match self {
            Self::Take { .. } | Self::Renew { .. } | Self::Rollback { .. } => {
                &[Doc::Lock, Doc::Pointer]
            }
            // The pointer first: a process that becomes the owner after that makes the write fail, and one that became it
            // before is in the lock. The other way round an owner could slip in between the two and be thrown out.
            Self::ForceUnlock { .. } | Self::Forget { .. } => &[Doc::Pointer, Doc::Lock],
            Self::Release { .. } | Self::Reap { .. } | Self::MarkForced { .. } => &[Doc::Lock],
            Self::Fence { .. }
            | Self::Publish { .. }
            | Self::Delete { .. }
            | Self::Pin { .. }
            | Self::Check { .. } => &[Doc::Pointer],
        }
    }

    /// Which document the rule may change.
    pub fn writes(&self) -> Doc {
        match self {
            Self::Take { .. }
            | Self::Renew { .. }
            | Self::Release { .. }
            | Self::Reap { .. }
            | Self::MarkForced { .. } => Doc::Lock,
            _ => Doc::Pointer,
        }
    }
}

/// What is to be written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DocumentChange {
    /// Nothing: the documents already say what the operation wants.
    Already,
    /// A new `lock.json`.
    Lock(Lock),
    /// A new `latest.json`.
    Pointer(Pointer),
}

/// Why an operation may not happen.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Another process owns the lineage.
    #[error("held by run `{}` on `{}`", .0.holder.run_id, .0.holder.host)]
    Held(Box<Lock>),
    /// The pointer carries a fence that is not older than ours; acquire again, higher.
    #[error("the fence of epoch {} is not older than ours", .by.epoch)]
    Outrun {
        /// The fence found.
        by: Fence,
    },
    /// The lease is not ours any more.
    #[error("the lease is lost: {0}")]
    LockLost(Lost),
    /// The active snapshot is not the one we started from.
    #[error("the active snapshot is {}, not the base {}", named(.active.as_ref()), named(.base.as_ref()))]
    Diverged {
        /// What we started from.
        base: Option<ArchiveDigest>,
        /// What is active now.
        active: Option<ArchiveDigest>,
    },
    /// The lineage has no `latest.json`, though it must have had one.
    #[error("there is no latest.json")]
    NoPointer,
    /// The lineage has no `latest.json`, though its lock says that it had one.
    #[error("latest.json is missing, though lock.json knows an owner of epoch {0}")]
    PointerLost(Epoch),
    /// The snapshot was marked for removal.
    #[error("snapshot {} was deleted", .0.prefix())]
    Tombstoned(ArchiveDigest),
    /// The lock has not been expired for long enough.
    #[error("the lock has not expired")]
    NotExpired,
    /// There is no holder to throw out.
    #[error("nobody holds the lock")]
    NotHeld,
    /// Another holder came after the one the operator saw.
    #[error("the lock is now held under epoch {}, not under epoch {}", .found.epoch, .seen.epoch)]
    HolderChanged {
        /// What the operator saw.
        seen: Fence,
        /// What is there now.
        found: Fence,
    },
    /// The pointer changed after the operator looked.
    #[error("the pointer moved from generation {seen} to {found}")]
    PointerMoved {
        /// What the operator saw.
        seen: Generation,
        /// What is there now.
        found: Generation,
    },
    /// The active snapshot cannot be deleted.
    #[error("snapshot {} is the active one", .0.prefix())]
    IsActive(ArchiveDigest),
    /// A pinned snapshot cannot be deleted.
    #[error("snapshot {} is pinned", .0.prefix())]
    IsPinned(ArchiveDigest),
    /// The last snapshot cannot be deleted.
    #[error("snapshot {} is the only one left", .0.prefix())]
    IsLast(ArchiveDigest),
    /// There is no such snapshot.
    #[error("there is no snapshot {}", .0.prefix())]
    NoSuchSnapshot(ArchiveDigest),
    /// The document has no room for another mark.
    #[error("the pointer already holds {MARK_LIMIT} {what}")]
    Full {
        /// What there are too many of.
        what: &'static str,
    },
    /// Every attempt was refused by another writer's unrelated change.
    #[error("other writers came first at every attempt")]
    Contended,
}

/// How a lease was lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lost {
    /// The lock document is gone.
    NoLock,
    /// The lock is another lease's, or was given back.
    TakenOver(Fence),
    /// The pointer accepts another lease only.
    Fenced(Fence),
    /// Its holder gave it back.
    GivenBack,
}

impl fmt::Display for Lost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLock => out.write_str("lock.json is gone"),
            Self::TakenOver(by) => {
                write!(out, "the lock belongs to the lease of epoch {}", by.epoch)
            }
            Self::Fenced(by) => write!(
                out,
                "the pointer is fenced by the lease of epoch {}",
                by.epoch
            ),
            Self::GivenBack => out.write_str("it was given back"),
        }
    }
}

fn named(archive: Option<&ArchiveDigest>) -> String {
    archive.map_or_else(|| "no snapshot".to_owned(), ArchiveDigest::prefix)
}

/// Applies the rule for `op`, carried out under `op_id`, to what was read.
pub fn step(
    found: &Documents,
    op: &Op,
    op_id: OpId,
    now: Timestamp,
) -> Result<DocumentChange, Refusal> {
    match op {
        Op::Take { holder, ttl } => lock::take(found, holder, op_id, now, *ttl),
        Op::Fence { fence } => pointer::write_fence(found, *fence, now),
        Op::Renew { fence, ttl } => lock::renew(found, *fence, op_id, now, *ttl),
        Op::Release { fence } => lock::release(found, *fence, op_id, now),
        Op::Reap { grace } => lock::reap(found, op_id, now, *grace),
        Op::MarkForced { fence, reason, ttl } => {
            Ok(lock::mark_forced(found, *fence, reason, now.plus(*ttl)))
        }
        _ => pointer::move_pointer(found, op, op_id, now),
    }
}

#[cfg(test)]
mod tests;
