//! One snapshot of a directory or a session is let go, or kept, by somebody who sees the store and not the host.
//!
//! *Always true:* whoever says which generation of the index he has seen changes that one, or nothing: it is compared in the very
//! version that is replaced.

use crate::catalog::{SnapshotSelector, ensure_writable};
use crate::error::Error;
use crate::open::Engine;
use crate::subjects::SubjectKind;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::failure::{ErrorKind, Failure};
use stasis_model::format::event::{EventKind, Severity};
use stasis_model::format::manifest::{IndexRefusal, Indexed, SnapshotIndex};
use stasis_model::id::{Generation, Label, ProjectId, SessionRef, SnapshotId, TenantId};
use stasis_model::protocol::operation::IndexOperation;
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_store::documents::roots::ChangeError;
use stasis_store::layout::ChunkRoot;

/// A directory or a session, as far as the store has it.
#[derive(Clone, Debug)]
pub struct TreeSubject {
    engine: Engine,
    tenant: TenantId,
    name: String,
}

/// A snapshot that is changed, by whom and what he saw.
#[derive(Clone, Debug)]
pub struct ChangeSnapshot {
    /// Which.
    pub snapshot: SnapshotRef,
    /// The generation of the index that was seen; any when not given.
    pub seen: Option<Generation>,
    /// Who does it.
    pub actor: Label,
}

/// A snapshot of a directory or a session that is let go, or would be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SnapshotForgotten {
    /// Whose.
    pub subject: String,
    /// Whether it was done.
    pub applied: bool,
    /// Which.
    pub snapshot_id: SnapshotId,
    /// When it was made.
    pub at: String,
    /// The length of all its files.
    pub bytes: u64,
    /// The generation of the index that was seen, or written.
    pub generation: Generation,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

/// A snapshot of a directory or a session that is pinned, or is not any more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SnapshotPinned {
    /// Whose.
    pub subject: String,
    /// Which.
    pub snapshot_id: SnapshotId,
    /// Whether it is pinned now.
    pub pinned: bool,
    /// The generation of the index that says so.
    pub generation: Generation,
}

impl Engine {
    /// A directory or a session of a tenant, by its name without its prefix.
    pub fn tree_subject(
        &self,
        tenant: &TenantId,
        kind: SubjectKind,
        name: &str,
    ) -> Result<TreeSubject, Error> {
        let absent = || {
            let said = format!("nothing of the name `{name}` was ever saved");
            Error::from(Failure::of(ErrorKind::NotFound, said))
        };
        let (root, subject) = match kind {
            SubjectKind::Dir => {
                let id: ProjectId = name.parse().map_err(|_| absent())?;
                (ChunkRoot::project(tenant, &id), format!("dir:{id}"))
            }
            SubjectKind::Session => {
                let session = format!("{tenant}/{name}");
                let session: SessionRef = session.parse().map_err(|_| absent())?;
                (ChunkRoot::session(&session), format!("session:{session}"))
            }
            SubjectKind::Profile | SubjectKind::Container => {
                let said = "only snapshots of directories and sessions are changed so";
                return Err(Failure::of(ErrorKind::Invalid, said).into());
            }
        };
        Ok(TreeSubject {
            engine: self.rooted(root),
            tenant: tenant.clone(),
            name: subject,
        })
    }
}

impl TreeSubject {
    /// The snapshot that is meant, as the index has it now.
    async fn find(&self, wanted: &SnapshotRef) -> Result<(SnapshotIndex, Indexed), Error> {
        self.engine.store().ensure_trusted().await?;
        let dirs = self.engine.dirs();
        let root = dirs.root();
        let repo = dirs.settings(&root).await?;
        ensure_writable(&repo)?;
        let index = dirs.believed_index(&root, &repo).await?;
        let all = [(root, index)];
        let id = dirs.resolve(&all, &SnapshotSelector::new(wanted.clone()))?;
        let [(_, index)] = all;
        let found = index.find(&id).cloned();
        Ok((index, found.ok_or(Error::LostManifest(id))?))
    }

    /// Changes the index if it is the one that was seen.
    async fn change(
        &self,
        operation: IndexOperation,
        seen: Option<Generation>,
        rule: impl Fn(&SnapshotIndex) -> Result<SnapshotIndex, IndexRefusal> + Send + Sync,
        op_id: stasis_model::id::OpId,
    ) -> Result<SnapshotIndex, Error> {
        let root = self.engine.dirs().root();
        let rule = |index: &SnapshotIndex| {
            ensure_seen(index, seen)?;
            rule(index)
        };
        let changed = root.change(op_id, rule).await;
        let operations = self.engine.operations();
        operations.known(operation, &root, changed).await
    }

    /// Says what letting a snapshot go would do, and whether it may; writes nothing.
    pub async fn plan_forget(&self, cmd: &ChangeSnapshot) -> Result<SnapshotForgotten, Error> {
        let (index, found) = self.find(&cmd.snapshot).await?;
        ensure_seen(&index, cmd.seen).map_err(ChangeError::from)?;
        let (op_id, now) = (self.engine.rng.op_id(), self.engine.lineages.now());
        let ids = std::slice::from_ref(&found.id);
        index.forget(ids, now, op_id).map_err(ChangeError::from)?;
        Ok(self.forgotten(found, index.generation))
    }

    /// Lets a snapshot go; its bytes go with the next `gc`. What `latest` means, and what is pinned, stays.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %self.name, snapshot = %cmd.snapshot))]
    pub async fn forget(&self, cmd: &ChangeSnapshot) -> Result<SnapshotForgotten, Error> {
        let (_, found) = self.find(&cmd.snapshot).await?;
        let (op_id, now) = (self.engine.rng.op_id(), self.engine.lineages.now());
        let ids = [found.id.clone()];
        let rule = |index: &SnapshotIndex| index.forget(&ids, now, op_id);
        let index = self.change(IndexOperation::Forget, cmd.seen, rule, op_id);
        let generation = index.await?.generation;
        let event = self
            .engine
            .events()
            .event(EventKind::Delete, Severity::Info, &cmd.actor)
            .with("subject", self.name.clone())
            .with("snapshot_id", found.id.to_string());
        let warning = self.engine.events().record(&self.tenant, event).await;
        Ok(SnapshotForgotten {
            applied: true,
            warnings: warning.into_iter().collect(),
            ..self.forgotten(found, generation)
        })
    }

    /// Keeps a snapshot whatever a policy says, or no longer.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %self.name, snapshot = %cmd.snapshot))]
    pub async fn pin(&self, cmd: &ChangeSnapshot, pinned: bool) -> Result<SnapshotPinned, Error> {
        let (_, found) = self.find(&cmd.snapshot).await?;
        let op_id = self.engine.rng.op_id();
        let rule = |index: &SnapshotIndex| index.pin(&found.id, pinned, op_id);
        let index = self.change(IndexOperation::Pin, cmd.seen, rule, op_id);
        let generation = index.await?.generation;
        Ok(SnapshotPinned {
            subject: self.name.clone(),
            snapshot_id: found.id,
            pinned,
            generation,
        })
    }

    fn forgotten(&self, found: Indexed, generation: Generation) -> SnapshotForgotten {
        SnapshotForgotten {
            subject: self.name.clone(),
            applied: false,
            snapshot_id: found.id,
            at: found.at_ms.to_string(),
            bytes: found.bytes,
            generation,
            warnings: Vec::new(),
        }
    }
}

/// Refuses an index that is not the one that somebody saw.
fn ensure_seen(index: &SnapshotIndex, seen: Option<Generation>) -> Result<(), IndexRefusal> {
    let found = index.generation;
    match seen.filter(|seen| *seen != found) {
        Some(seen) => Err(IndexRefusal::Moved { seen, found }),
        None => Ok(()),
    }
}
