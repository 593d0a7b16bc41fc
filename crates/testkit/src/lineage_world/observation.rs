//! Notable things: a test that never saw them proved nothing about them.

/// A publish was applied and its writer knows.
pub const PUBLISHED: &str = "publish done";
/// A lock was taken from a holder whose lease had expired.
pub const TAKEN_OVER: &str = "take-over after expiry";
/// A lock was taken that an operator had freed.
pub const TAKEN_AFTER_FORCE: &str = "forced lock taken";
/// A writer was told that its lease is lost.
pub const LOCK_LOST: &str = "lock lost by the fence";
/// A writer was told that the active snapshot is not its base.
pub const DIVERGED: &str = "diverged";
/// An operation ended without anybody knowing how.
pub const UNSETTLED: &str = "unsettled";
/// An unsettled operation was found to have been applied.
pub const SETTLED_APPLIED: &str = "settled as applied";
/// An unsettled operation was found not to have been applied.
pub const SETTLED_NOT: &str = "settled as not applied";
/// A writer met a fence that was not older, took the lock again and got it.
pub const OUTRUN: &str = "outrun and acquired again";
/// A reaped lock came back to its holder.
pub const HANDED_BACK: &str = "lock handed back after reap";
/// A forced act reached the lock as well.
pub const MARKED: &str = "forced lock marked";
/// A forced act did not reach the lock.
pub const NOT_TOLD: &str = "forced lock not told";
/// An acquirer was told that another process holds the lock.
pub const HELD: &str = "held by another";
/// A lease was given back.
pub const RELEASED: &str = "released";
/// A lease was prolonged.
pub const RENEWED: &str = "renewed";
/// A lock was freed by the reaper.
pub const REAPED: &str = "reaped";
/// The reaper left a live lock alone.
pub const NOT_EXPIRED: &str = "not expired";
/// Every attempt met another process's change.
pub const CONTENDED: &str = "contended";
/// The store could not be read.
pub const UNREACHABLE: &str = "unreachable";
/// An operator chose a snapshot.
pub const ROLLED_BACK: &str = "rolled back";
/// An operator threw the holder out.
pub const FORCED: &str = "force-unlocked";
/// An operator met another holder than the one seen.
pub const HOLDER_CHANGED: &str = "holder changed";
/// An operator met another pointer than the one seen.
pub const POINTER_MOVED: &str = "pointer moved";
/// A snapshot was marked for removal.
pub const DELETED: &str = "deleted";
/// A deletion met the active snapshot.
pub const IS_ACTIVE: &str = "is active";
/// A deletion met a pinned snapshot.
pub const IS_PINNED: &str = "is pinned";
/// A publish or a rollback met a snapshot that was marked for removal.
pub const TOMBSTONED: &str = "tombstoned";
/// A snapshot was protected.
pub const PINNED: &str = "pinned";
/// A late request landed after its sender had gone on.
pub const LANDED_LATE: &str = "a request landed late";
/// An operation was begun with an earlier reading, without reading anew.
pub const UNREAD: &str = "begun with an earlier reading";
/// What an operation made of an earlier reading was refused.
pub const UNREAD_REFUSED: &str = "an earlier reading was stale";
