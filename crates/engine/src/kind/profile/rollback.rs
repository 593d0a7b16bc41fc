//! Goes back to a snapshot, or adopts one that was never published.
//!
//! 1. read the pointer
//! 2. list: the manifest is there, and the archive with all its bytes; it is not deleted
//! 3. swap the pointer, if it is still the one of step 1; this fences every writer
//! 4. tell the lock, and the events log
//!
//! *Always true:* whatever is deleted after step 2 is tombstoned in the pointer first, so step 3 does not find the
//! pointer of step 1, and the act begins anew. A change that leaves the active snapshot alone (a pin, a new owner) is
//! not the operator's matter; when another snapshot has become active, the operator decides again.

use super::inventory::{SnapshotRow, SnapshotStatus};
use super::subject::ShaPrefix;
use crate::address::as_typed;
use crate::error::{Error, ErrorKind};
use crate::handle::Profiles;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::digest::ArchiveDigest;
use stasis_model::failure::Failure;
use stasis_model::format::event::{EventKind, Severity};
use stasis_model::format::lease::Holder;
use stasis_model::format::pointer::Active;
use stasis_model::id::{Epoch, Generation, Label, Lineage, OpId};
use stasis_model::protocol::step::Refusal;
use stasis_store::documents::lineages::LineageError;
use stasis_store::documents::pointers::Moved;

/// How often the act begins anew after a change that does not concern it.
const ATTEMPTS: usize = 3;

/// Asks for another active snapshot.
#[derive(Clone, Debug)]
pub struct RollbackProfile {
    /// Of which lineage.
    pub lineage: Lineage,
    /// Which snapshot.
    pub sha: ShaPrefix,
    /// Why, in the operator's words.
    pub reason: Label,
    /// Who does it.
    pub actor: Label,
    /// What was shown and agreed to; anything else is refused.
    pub agreed: Option<AgreedRollback>,
}

/// What somebody saw when they agreed to a rollback.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgreedRollback {
    from_sha256: Option<ArchiveDigest>,
    evicts: Option<Holder>,
}

impl From<&RolledBack> for AgreedRollback {
    fn from(plan: &RolledBack) -> Self {
        Self {
            from_sha256: plan.from_sha256,
            evicts: plan.evicts.clone(),
        }
    }
}

/// A rollback: what it would do, or did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RolledBack {
    /// Of which lineage.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// Whether it was done.
    pub applied: bool,
    /// What was active.
    pub from_sha256: Option<ArchiveDigest>,
    /// What becomes active.
    pub to_sha256: ArchiveDigest,
    /// The same, in full.
    pub details: SnapshotRow,
    /// The generation of the pointer that was seen, or written.
    pub generation: Generation,
    /// Who is thrown out.
    pub evicts: Option<Holder>,
    /// By which operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op_id: Option<OpId>,
    /// Nobody below this epoch can write any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl RollbackProfile {
    /// Refuses what nobody agreed to.
    fn ensure_agreed(&self, plan: &RolledBack) -> Result<(), Error> {
        let Some(agreed) = &self.agreed else {
            return Ok(());
        };
        if *agreed == AgreedRollback::from(plan) {
            return Ok(());
        }
        let subject = &plan.subject;
        let said = format!("`{subject}` was changed, or taken by a run, since this was shown");
        let failure = Failure::of(ErrorKind::Retry, said);
        Err(failure.with_hint("nothing was changed; look again").into())
    }
}

impl RolledBack {
    /// Whether there is nothing to do.
    pub fn is_active_already(&self) -> bool {
        self.from_sha256 == Some(self.to_sha256)
    }
}

impl Profiles<'_> {
    /// Says what a rollback would do; writes nothing.
    pub async fn plan_rollback(self, cmd: &RollbackProfile) -> Result<RolledBack, Error> {
        Ok(self.rollback_plan(cmd).await?.0)
    }

    /// Makes another snapshot the active one, at once, and fences every writer.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %cmd.lineage, snapshot = %cmd.sha))]
    pub async fn rollback(self, cmd: &RollbackProfile) -> Result<RolledBack, Error> {
        self.store().ensure_trusted().await?;
        let (mut plan, mut to) = self.rollback_plan(cmd).await?;
        cmd.ensure_agreed(&plan)?;
        for _ in 1..ATTEMPTS {
            if plan.is_active_already() {
                return Ok(plan);
            }
            let from = plan.from_sha256;
            match self.roll_back_to(cmd, &plan, &to).await {
                Err(LineageError::Refused {
                    refusal: Refusal::PointerMoved { seen, found },
                    lineage,
                    kind,
                }) => {
                    (plan, to) = self.rollback_plan(cmd).await?;
                    cmd.ensure_agreed(&plan)?;
                    if plan.from_sha256 != from {
                        let refusal = Refusal::PointerMoved { seen, found };
                        let moved = LineageError::Refused {
                            lineage,
                            kind,
                            refusal,
                        };
                        return Err(moved.into());
                    }
                }
                result => return self.rolled_back(cmd, plan, result).await,
            }
        }
        let result = self.roll_back_to(cmd, &plan, &to).await;
        self.rolled_back(cmd, plan, result).await
    }

    async fn rollback_plan(self, cmd: &RollbackProfile) -> Result<(RolledBack, Active), Error> {
        let inventory = self.sound_inventory(&cmd.lineage).await?;
        let chosen = inventory.choose_whole(&cmd.sha)?;
        let generation = inventory.pointer.as_ref().map(|pointer| pointer.generation);
        let snapshot = inventory.row(chosen);
        let plan = RolledBack {
            subject: cmd.lineage.clone(),
            applied: false,
            from_sha256: inventory.active(),
            to_sha256: chosen.active.archive,
            details: snapshot,
            generation: generation.unwrap_or_default(),
            evicts: inventory.holder().map(|lock| lock.holder.clone()),
            op_id: None,
            epoch: None,
            warnings: self.clock_warnings(),
        };
        Ok((plan, chosen.active.clone()))
    }

    async fn roll_back_to(
        self,
        cmd: &RollbackProfile,
        plan: &RolledBack,
        to: &Active,
    ) -> Result<Moved, LineageError> {
        let seen = Some(plan.generation);
        let publish = self
            .lineages
            .rollback(&cmd.lineage, to.clone(), seen, cmd.reason.clone());
        publish.await
    }

    async fn rolled_back(
        self,
        cmd: &RollbackProfile,
        plan: RolledBack,
        result: Result<Moved, LineageError>,
    ) -> Result<RolledBack, Error> {
        let moved = self.operations().settled(result).await?;
        let from = plan.from_sha256.map(|from| from.to_string());
        let mut event = self
            .events()
            .event(EventKind::Rollback, Severity::Warning, &cmd.actor)
            .about(cmd.lineage.clone(), moved.op_id)
            .with("reason", cmd.reason.as_str())
            .with("from_sha256", from.unwrap_or_default())
            .with("to_sha256", plan.to_sha256.to_string());
        let mut warnings = plan.warnings;
        if let Some(holder) = &plan.evicts {
            event = event.with("holder_run_id", holder.run_id.as_str());
            let holder_run_id = holder.run_id.to_string();
            warnings.push(Warning::HolderEvicted { holder_run_id });
        }
        if plan.details.marks.contains(&SnapshotStatus::Unpublished) {
            event = event.with("adopted", true);
        }
        warnings.extend((!moved.lock_marked).then_some(Warning::LockNotTold));
        warnings.extend(self.events().record(&cmd.lineage.tenant, event).await);
        Ok(RolledBack {
            applied: true,
            generation: moved.pointer.generation,
            op_id: Some(moved.op_id),
            epoch: Some(moved.pointer.fence.epoch),
            warnings,
            ..plan
        })
    }
}
