//! Deletes one snapshot: it can never be chosen again, and its bytes go with the next sweep.
//!
//! The active one, the last one and a pinned one are refused: by the rules of the pointer, in the very version that is
//! replaced, so that no publish and no pin can come between.

use super::inventory::{Inventory, SnapshotRow};
use super::subject::ShaPrefix;
use crate::address::as_typed;
use crate::error::{Error, ProfileError};
use crate::handle::Profiles;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::event::{EventKind, Severity};
use stasis_model::id::{Label, Lineage, OpId};
use stasis_model::protocol::operation::OperationKind;
use stasis_model::protocol::step::{DocumentChange, Documents, Op, step};
use stasis_store::documents::lineages::LineageError;

/// Asks for the end of a snapshot.
#[derive(Clone, Debug)]
pub struct DeleteSnapshot {
    /// Of which lineage.
    pub lineage: Lineage,
    /// Which snapshot.
    pub sha: ShaPrefix,
    /// Who does it.
    pub actor: Label,
}

/// A snapshot that would be deleted, or was.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Deleted {
    /// Of which lineage.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// Whether it was done.
    pub applied: bool,
    /// Which.
    pub sha256: ArchiveDigest,
    /// The same, in full, as it was before.
    pub details: SnapshotRow,
    /// By which operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op_id: Option<OpId>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl Profiles<'_> {
    /// Says what a delete would do, and whether it may; writes nothing.
    pub async fn plan_delete(self, cmd: &DeleteSnapshot) -> Result<Deleted, Error> {
        let inventory = self.sound_inventory(&cmd.lineage).await?;
        let plan = self.delete_plan(&inventory, cmd)?;
        let found = Documents {
            lock: inventory.lock.clone(),
            pointer: inventory.pointer.clone(),
        };
        let op = Op::Delete {
            target: plan.sha256,
            known: known(&inventory, plan.sha256),
        };
        match step(&found, &op, self.lineages.op_id(), self.lineages.now()) {
            Ok(DocumentChange::Already | DocumentChange::Lock(_) | DocumentChange::Pointer(_)) => {
                Ok(plan)
            }
            Err(refusal) => Err(LineageError::Refused {
                lineage: cmd.lineage.clone(),
                kind: OperationKind::Delete,
                refusal,
            }
            .into()),
        }
    }

    /// Deletes a snapshot.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %cmd.lineage, snapshot = %cmd.sha))]
    pub async fn delete(self, cmd: &DeleteSnapshot) -> Result<Deleted, Error> {
        self.store().ensure_trusted().await?;
        let inventory = self.sound_inventory(&cmd.lineage).await?;
        let plan = self.delete_plan(&inventory, cmd)?;
        let known = known(&inventory, plan.sha256);
        let result = self.lineages.delete(&cmd.lineage, plan.sha256, known).await;
        let moved = self.operations().settled(result).await?;
        let event = self
            .events()
            .event(EventKind::Delete, Severity::Info, &cmd.actor)
            .about(cmd.lineage.clone(), moved.op_id)
            .with("sha256", plan.sha256.to_string())
            .with(
                "captured_at_ms",
                plan.details.manifest.captured_at_ms.millis(),
            );
        let mut warnings = plan.warnings;
        warnings.extend(self.events().record(&cmd.lineage.tenant, event).await);
        Ok(Deleted {
            applied: true,
            op_id: Some(moved.op_id),
            warnings,
            ..plan
        })
    }

    fn delete_plan(self, inventory: &Inventory, cmd: &DeleteSnapshot) -> Result<Deleted, Error> {
        let chosen = inventory.choose(&cmd.sha)?;
        let sha256 = chosen.active.archive;
        if inventory.is_tombstoned(sha256) {
            let (sha, subject) = (sha256.prefix(), cmd.lineage.clone());
            return Err(ProfileError::Gone { sha, subject }.into());
        }
        Ok(Deleted {
            subject: cmd.lineage.clone(),
            applied: false,
            sha256,
            details: inventory.row(chosen),
            op_id: None,
            warnings: self.clock_warnings(),
        })
    }
}

/// What would remain, and the one that goes: only what is whole counts as remaining.
pub(super) fn known(inventory: &Inventory, target: ArchiveDigest) -> Vec<ArchiveDigest> {
    let mut known = inventory.choices();
    known.push(target);
    known
}
