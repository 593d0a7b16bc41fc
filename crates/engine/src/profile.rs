//! Profiles: browser identities that move between hosts. What operators do with their snapshots.

mod delete;
mod diff;
mod fork;
mod list;
mod pin;
mod refusal;
mod rollback;
mod show;
mod standing;
mod subject;
mod sweep;

pub use delete::{Delete, Deleted};
pub use diff::{Changes, CookieName, Diff, Differing, OneSided, ProfileDiff, Wanted};
pub use fork::{Fork, Forked};
pub use list::{DamagedManifest, Orphan, ProfileList, ProfileRow, SnapshotList};
pub use pin::{Pinned, Pinning};
pub use refusal::OperatorError;
pub use rollback::{Rollback, RolledBack};
pub use show::{ShownLineage, ShownProfile};
pub use standing::{LockWord, SnapshotRow, Standing};
pub use subject::{BadSha, ShaPrefix};
pub use sweep::{Collected, GcVerdict, LineageCollected, ProfileGc, Removed, Spared};
