//! `stasis profile …`, and the same under the name of its contract, `stasis profile-snapshots …`

mod delete;
mod diff;
mod discard;
pub(super) mod everyday;
mod fork;
mod gc;
mod keys;
mod list;
mod load;
mod logins;
mod metrics;
mod pin;
mod rollback;
mod run;
mod running;
mod save;
mod shim;
mod show;
mod storage_state;
mod unlock;
mod verify;
mod who;

pub(super) use discard::Discarded;
pub(super) use list::LocalCopies;
pub(super) use load::browser_setting;
pub(super) use shim::WrittenShim;
pub(super) use storage_state::WrittenState;
pub(super) use who::spawn;

use super::CliContext;
use clap::{Args, Subcommand};
use metrics::MetricsArgs;
use stasis_engine::kind::profile::Pinning;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct ProfileArgs {
    #[command(flatten)]
    metrics: MetricsArgs,
    #[command(subcommand)]
    verb: ProfileCommand,
}

#[derive(Debug, Subcommand)]
enum ProfileCommand {
    /// Run a browser on its profile: load it, hold the lease, save it at the end
    Run(run::ProfileRunArgs),
    /// Write a program that browser frameworks start in the place of the browser
    ///
    /// Puppeteer, Playwright and others take its path as executablePath. It behaves as the browser does: flags, standard
    /// streams and the debugging pipe are passed on. The profile is loaded before the browser starts, and saved when it has
    /// ended. The directory that the framework names with --user-data-dir is not used: the profile has its own.
    Shim(shim::ProfileShimArgs),
    /// Save the profile in a directory; its browser is closed first
    Save(save::ProfileSaveArgs),
    /// Restore the active snapshot of a profile into a directory
    Load(load::ProfileLoadArgs),
    /// Verify a snapshot: restore it to a temporary directory, check it, start a browser on it
    Verify(verify::ProfileVerifyArgs),
    /// List profiles, or the snapshots of one
    ///
    /// Without a subject every profile with its active snapshot; with one all its snapshots, the oldest first. Their marks:
    /// active; pinned; rolled_back_to (within 30 days); unpromoted (stored, and nothing shows that it was ever active:
    /// `rollback` adopts it); tombstoned (deleted, goes with the next gc); damaged; encrypted. Exits with 9 when something
    /// is damaged.
    List(list::ProfileListArgs),
    /// Show a snapshot, and what the pointer and the lock of its lineage say
    Show(show::ProfileShowArgs),
    /// Show where a profile seems to be signed in, and until when
    ///
    /// Read from the snapshot; no browser is started and no value is read. A site counts as signed in while it has a
    /// cookie that pages cannot read, that is sent over TLS only or called like a session's, and that has not expired. Only
    /// the site itself knows whether it still accepts it.
    Logins(logins::ProfileLoginsArgs),
    /// Exchange cookies and Local Storage with other tools, as Playwright's storageState
    #[command(subcommand)]
    StorageState(storage_state::StorageStateCommand),
    /// Make another snapshot the active one; adopts one that was never published
    ///
    /// Moves the pointer if manifest and archive exist, are intact, and were not deleted. The profile's holder is fenced:
    /// it cannot publish any more. Without --confirm nothing is written, and the exit code is 1.
    Rollback(rollback::ProfileRollbackArgs),
    /// Keep a snapshot whatever the policy says
    Pin(pin::ProfilePinArgs),
    /// Remove a pin
    Unpin(pin::ProfilePinArgs),
    /// Delete one snapshot; its bytes go with the next gc
    ///
    /// Never the active one (roll back first), the only one, or a pinned one. Without --confirm nothing is written, and
    /// the exit code is 1.
    Delete(delete::ProfileDeleteArgs),
    /// Remove deleted snapshots, and what the tenant's policy lets go
    ///
    /// Without retention (`stasis tenant policy set TENANT retention.enabled=true`) only deleted snapshots go. With it also
    /// everything but the newest 5, the active one, pinned ones and what was rolled back to within 30 days; and archives
    /// that were never finished. Safe beside running saves.
    Gc(gc::ProfileGcArgs),
    /// Start a new identity from a snapshot
    ///
    /// Copies the snapshot within the store, and makes it the first one of the new profile. Both must belong to one
    /// tenant, and the new one must not exist.
    Fork(fork::ProfileForkArgs),
    /// Show what differs between two snapshots
    ///
    /// Files by size, time and content; cookies by site and name, never values; origins with localStorage and IndexedDB.
    Diff(diff::ProfileDiffArgs),
    /// Remove what a run on this host left unsaved
    Discard(discard::ProfileDiscardArgs),
    /// Wrap the data key of an encrypted profile with another tenant key; no archive is touched
    Rekey(keys::ProfileRekeyArgs),
    /// Force-release a lease (fences its holder)
    ///
    /// Every writer is fenced before the lock is freed, so the holder cannot publish any more.
    ForceUnlock(unlock::ProfileForceUnlockArgs),
    /// Free locks whose holders are presumed dead: one, or all
    Reap(unlock::ProfileReapArgs),
}

impl ProfileArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<ExitCode> {
        let metrics = &self.metrics;
        let exit = match self.verb {
            ProfileCommand::Run(run) => return run.run(context, metrics).await,
            ProfileCommand::Shim(shim) => shim.run(context)?,
            ProfileCommand::Save(save) => save.run(context, metrics).await?,
            ProfileCommand::Load(load) => load.run(context, metrics).await?,
            ProfileCommand::Verify(verify) => {
                let engine = context.engine().await?;
                verify.run(context, engine).await?
            }
            ProfileCommand::Rekey(rekey) => rekey.run(context).await?,
            ProfileCommand::List(list) => list.run(context).await?,
            ProfileCommand::Show(show) => show.run(context).await?,
            ProfileCommand::Logins(logins) => logins.run(context).await?,
            ProfileCommand::StorageState(state) => state.run(context).await?,
            ProfileCommand::Rollback(rollback) => rollback.run(context, metrics).await?,
            ProfileCommand::Pin(pin) => pin.run(context, Pinning::Pin).await?,
            ProfileCommand::Unpin(pin) => pin.run(context, Pinning::Unpin).await?,
            ProfileCommand::Delete(delete) => delete.run(context).await?,
            ProfileCommand::Gc(gc) => gc.run(context).await?,
            ProfileCommand::Fork(fork) => fork.run(context).await?,
            ProfileCommand::Diff(diff) => diff.run(context).await?,
            ProfileCommand::Discard(discard) => discard.run(context).await?,
            ProfileCommand::ForceUnlock(unlock) => unlock.run(context, metrics).await?,
            ProfileCommand::Reap(reap) => return reap.run(context, metrics).await,
        };
        Ok(exit.into())
    }
}

/// The contract's own spelling.
#[derive(Debug, Subcommand)]
pub(super) enum ProfileSnapshotsCommand {
    /// The same as `profile list`
    List(list::ProfileListArgs),
    /// The same as `profile show`
    Show(show::ProfileShowArgs),
    /// The same as `profile rollback`
    Rollback(rollback::ProfileRollbackArgs),
    /// The same as `profile delete --confirm`
    Delete(delete::ProfileDeleteArgs),
    /// The same as `profile force-unlock`
    ForceUnlock(unlock::ProfileForceUnlockArgs),
}

impl ProfileSnapshotsCommand {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<ExitCode> {
        let verb = match self {
            Self::List(list) => ProfileCommand::List(list),
            Self::Show(show) => ProfileCommand::Show(show),
            Self::Rollback(rollback) => ProfileCommand::Rollback(rollback),
            Self::Delete(delete) => ProfileCommand::Delete(delete.confirmed()),
            Self::ForceUnlock(unlock) => ProfileCommand::ForceUnlock(unlock),
        };
        let metrics = MetricsArgs::none();
        let profile = ProfileArgs { metrics, verb };
        profile.run(context).await
    }
}
