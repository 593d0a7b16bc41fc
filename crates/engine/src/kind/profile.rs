//! Browser identities that move between hosts: the directory that one lives in, its snapshots, and what operators do.

mod browse;
mod capture;
mod check;
mod checked;
mod choose;
mod contents;
mod damage;
mod delete;
mod diff;
mod directory;
mod fetch;
mod fork;
mod hot;
mod inventory;
mod keys;
mod list;
mod load;
mod locate;
mod logins;
mod pin;
mod record;
mod rollback;
mod run;
mod save;
mod scratch;
mod session;
mod show;
mod storage_state;
mod subject;
mod sweep;
#[cfg(test)]
mod tests;
mod undo;
mod unsaved;
mod upgrade;
mod verify;

pub use crate::error::ProfileError;
pub use capture::{BrowserState, Capture, ProfileSaved, SaveOutcome};
pub use check::{CheckedProfile, ProfileCheck, ProfileDamage};
pub use choose::{Eviction, ProfileChoice};
pub use contents::UpgradeReport;
pub use delete::{DeleteSnapshot, Deleted};
pub use diff::{Changes, CookieName, DiffSnapshots, Differing, OneSided, ProfileDiff};
pub use fork::{ForkOrigin, ForkProfile, Forked};
pub use inventory::{LockWord, SnapshotRow, SnapshotStatus};
pub(crate) use list::LineageTotals;
pub use list::{
    DamagedManifest, Orphan, ProfileList, ProfileLog, ProfileRow, ProfileSnapshotUse, ProfileUse,
    SnapshotList,
};
pub use load::{FallbackReason, LoadOutcome, OnFailure, ProfileLoad, ProfileLoaded, UpgradeWish};
pub use locate::{LocatedProfile, Wanted};
pub use logins::{InspectProfile, ProfileLogins};
pub use pin::{Pinned, Pinning};
pub use record::Record;
pub use rollback::{AgreedRollback, RollbackProfile, RolledBack};
pub use run::{AfterRun, BrowserShim, ProfileRan, ProfileRun, RunOutcome, RunStep, outcome_of};
pub use save::{OnBrowser, ProfileSave, browser_major, browser_major_for, installed_browser};
pub use show::{ShownLineage, ShownProfile};
pub use stasis_quiesce::group::become_bound;
pub use storage_state::{PassedOver, StateExported, StateImported};
pub use subject::ShaPrefix;
pub use sweep::{Collected, GcVerdict, LineageCollected, PreservedObject, ProfileGc, Removed};
pub use unsaved::{UnsavedCopy, discard_unsaved, unsaved_in};
pub use verify::{ProfileVerified, ProfileVerify};

use std::time::Duration;

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
