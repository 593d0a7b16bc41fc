//! `stasis profile …`, and the same under the name of its contract, `stasis profile-snapshots …`

mod delete;
mod diff;
mod fork;
mod gc;
mod list;
mod pin;
mod rollback;
mod show;
mod unlock;

use super::Context;
use clap::Subcommand;
use stasis_engine::profile::Pinning;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub(super) enum Profile {
    /// List profiles, or the snapshots of one
    ///
    /// Without a subject every profile with its active snapshot; with one all its snapshots, the oldest first. Their marks:
    /// active; pinned; rolled_back_to (within 30 days); unpromoted (stored, and nothing shows that it was ever active:
    /// `rollback` adopts it); tombstoned (deleted, goes with the next gc); damaged; encrypted. Exits with 9 when something
    /// is damaged.
    List(list::List),
    /// Show a snapshot, and what the pointer and the lock of its lineage say
    Show(show::Show),
    /// Make another snapshot the active one; adopts one that was never published
    ///
    /// Flips the pointer if manifest and archive are there, whole, and were not deleted. Whoever owns the profile is
    /// thrown out: it cannot publish any more. Without --confirm nothing is written, and the exit code is 1.
    Rollback(rollback::Rollback),
    /// Keep a snapshot whatever the policy says
    Pin(pin::Pin),
    /// Keep a snapshot no longer than others
    Unpin(pin::Pin),
    /// Delete one snapshot; its bytes go with the next gc
    ///
    /// Never the active one (roll back first), the only one, or a pinned one. Without --confirm nothing is written, and
    /// the exit code is 1.
    Delete(delete::Delete),
    /// Remove deleted snapshots, and what the tenant's policy lets go
    ///
    /// Without retention (`stasis tenant policy set TENANT retention.enabled=true`) only deleted snapshots go. With it also
    /// everything but the newest 5, the active one, pinned ones and what was rolled back to within 30 days; and archives
    /// that were never finished. Safe beside running saves.
    Gc(gc::Gc),
    /// Start a new identity from a snapshot
    ///
    /// Copies the snapshot within the store, and makes it the first one of the new profile. Both must belong to one
    /// tenant, and the new one must not exist.
    Fork(fork::Fork),
    /// Show what differs between two snapshots
    ///
    /// Files by size, time and content; cookies by site and name, never values; origins with localStorage and IndexedDB.
    Diff(diff::Diff),
    /// Throw the holder of a profile out, at once
    ///
    /// Every writer is fenced before the lock is told, so the holder cannot publish any more.
    ForceUnlock(unlock::ForceUnlock),
    /// Free locks whose holders are presumed dead: one, or all
    Reap(unlock::Reap),
}

impl Profile {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let exit = match self {
            Self::List(list) => list.run(context).await?,
            Self::Show(show) => show.run(context).await?,
            Self::Rollback(rollback) => rollback.run(context).await?,
            Self::Pin(pin) => pin.run(context, Pinning::Pin).await?,
            Self::Unpin(pin) => pin.run(context, Pinning::Unpin).await?,
            Self::Delete(delete) => delete.run(context).await?,
            Self::Gc(gc) => gc.run(context).await?,
            Self::Fork(fork) => fork.run(context).await?,
            Self::Diff(diff) => diff.run(context).await?,
            Self::ForceUnlock(unlock) => unlock.run(context).await?,
            Self::Reap(reap) => return reap.run(context).await,
        };
        Ok(exit.into())
    }
}

/// The contract's own spelling.
#[derive(Debug, Subcommand)]
pub(super) enum ProfileSnapshots {
    /// The same as `profile list`
    List(list::List),
    /// The same as `profile show`
    Show(show::Show),
    /// The same as `profile rollback`
    Rollback(rollback::Rollback),
    /// The same as `profile delete --confirm`
    Delete(delete::Delete),
    /// The same as `profile force-unlock`
    ForceUnlock(unlock::ForceUnlock),
}

impl ProfileSnapshots {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let command = match self {
            Self::List(list) => Profile::List(list),
            Self::Show(show) => Profile::Show(show),
            Self::Rollback(rollback) => Profile::Rollback(rollback),
            Self::Delete(delete) => Profile::Delete(delete.confirmed()),
            Self::ForceUnlock(unlock) => Profile::ForceUnlock(unlock),
        };
        command.run(context).await
    }
}
