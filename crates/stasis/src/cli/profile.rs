//! `stasis profile …`, and the same under the name of its contract, `stasis profile-snapshots …`

mod delete;
mod diff;
mod discard;
mod fork;
mod gc;
mod keys;
mod list;
mod load;
mod metrics;
mod pin;
mod rollback;
mod run;
mod save;
mod show;
mod unlock;
mod verify;
mod who;

pub(super) use who::spawn;

use super::Context;
use clap::{Args, Subcommand};
use keys::Keys;
use metrics::Metrics;
use stasis_engine::kind::profile::Pinning;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct Profile {
    #[command(flatten)]
    metrics: Metrics,
    #[command(flatten)]
    keys: Keys,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a browser on its profile: load it, keep the lease, save it in the end
    Run(run::Run),
    /// Save the profile in a directory; its browser is closed first
    Save(save::Save),
    /// Make a directory the profile that was saved last
    Load(load::Load),
    /// Prove that a snapshot comes back: restore it to a place of its own, check it, start a browser on it
    Verify(verify::Verify),
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
    /// Remove a pin
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
    /// Remove what a run on this host left unsaved
    Discard(discard::Discard),
    /// Wrap the data key of an encrypted profile with another tenant key; no archive is touched
    Rekey(keys::Rekey),
    /// Force-release a lease (fences its holder)
    ///
    /// Every writer is fenced before the lock is told, so the holder cannot publish any more.
    ForceUnlock(unlock::ForceUnlock),
    /// Free locks whose holders are presumed dead: one, or all
    Reap(unlock::Reap),
}

impl Profile {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let (metrics, keys) = (&self.metrics, &self.keys);
        let exit = match self.verb {
            Verb::Run(run) => return run.run(context, metrics, keys).await,
            Verb::Save(save) => save.run(context, metrics, keys).await?,
            Verb::Load(load) => load.run(context, metrics, keys).await?,
            Verb::Verify(verify) => {
                let engine = keys.give(context.engine().await?)?;
                verify.run(context, engine).await?
            }
            Verb::Rekey(rekey) => {
                let engine = keys.give(context.engine().await?)?;
                rekey.run(context, engine).await?
            }
            Verb::List(list) => list.run(context).await?,
            Verb::Show(show) => show.run(context).await?,
            Verb::Rollback(rollback) => rollback.run(context, metrics).await?,
            Verb::Pin(pin) => pin.run(context, Pinning::Pin).await?,
            Verb::Unpin(pin) => pin.run(context, Pinning::Unpin).await?,
            Verb::Delete(delete) => delete.run(context).await?,
            Verb::Gc(gc) => gc.run(context).await?,
            Verb::Fork(fork) => fork.run(context).await?,
            Verb::Diff(diff) => diff.run(context, keys).await?,
            Verb::Discard(discard) => discard.run(context).await?,
            Verb::ForceUnlock(unlock) => unlock.run(context, metrics).await?,
            Verb::Reap(reap) => return reap.run(context, metrics).await,
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
        let verb = match self {
            Self::List(list) => Verb::List(list),
            Self::Show(show) => Verb::Show(show),
            Self::Rollback(rollback) => Verb::Rollback(rollback),
            Self::Delete(delete) => Verb::Delete(delete.confirmed()),
            Self::ForceUnlock(unlock) => Verb::ForceUnlock(unlock),
        };
        let (metrics, keys) = (Metrics::none(), Keys::default());
        let profile = Profile {
            metrics,
            keys,
            verb,
        };
        profile.run(context).await
    }
}
