//! The snapshots of a project: listed, shown, kept, let go, proven.

use super::{KeptDatabase, Project, ServiceState};
use crate::address::SubjectAddress;
use crate::catalog::{ChunkFetcher, OpenedSnapshot};
use crate::check::RepoChecked;
use crate::error::Error;
use crate::gc::{RepoCollected, RepoForgotten, RepoGc};
use crate::kind::workspace::RunMode;
use crate::proofs::ProofShown;
use crate::repair::{AcceptedRollback, Repair};
use crate::result::ProjectSnapshot;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::progress::Progress;
use stasis_model::digest::TreeDigest;
use stasis_model::format::manifest::{Indexed, SnapshotIndex, SnapshotManifest};
use stasis_model::id::{Label, ProjectId, SnapshotId};
use stasis_model::policy::retention::{Repository, RetentionPolicy};
use stasis_model::protocol::operation::IndexOperation;
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_store::layout::ProofSubject;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What may go of a project.
#[derive(Clone, Debug, Default)]
pub struct ProjectGc {
    /// What is kept; without, what the project's file says.
    pub keep: Option<Repository>,
    /// Only says what would be done.
    pub dry_run: bool,
    /// The snapshots that somebody agreed to let go; nothing is done if others would.
    pub agreed: Option<Vec<SnapshotId>>,
    /// Counts what is done.
    pub progress: Arc<Progress>,
}

/// What a project is and does now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProjectStatus {
    /// Which.
    pub project: ProjectId,
    /// Its directory.
    pub dir: String,
    /// Where its snapshots lie.
    pub store: String,
    /// Its programs.
    pub services: Vec<ServiceState>,
    /// How many snapshots it has.
    pub snapshots: u64,
    /// What `latest` means: the snapshot that the state derives from.
    pub active: Option<ProjectSnapshot>,
}

/// What a sweep of a project kept and removed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProjectCollected {
    /// Snapshots and chunks.
    #[serde(flatten)]
    pub collected: RepoCollected,
    /// Databases on servers that restores left beside those in use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub databases_kept: Vec<KeptDatabase>,
}

/// A snapshot that was brought back to a scratch place and looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "whether it comes back is said only here"]
pub struct ProjectVerified {
    /// Which.
    pub snapshot_id: SnapshotId,
    /// What its tree is.
    pub state_digest: TreeDigest,
    /// Files that came back.
    pub files: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Databases that were checked.
    pub databases: u64,
    /// Those that are damaged.
    pub damaged: Vec<String>,
}

impl Project {
    /// Its snapshots, the oldest first.
    pub async fn list(&self) -> Result<Vec<ProjectSnapshot>, Error> {
        let index = self.index().await?;
        Ok(rows(&index).collect())
    }

    /// The rows of its index.
    pub(crate) async fn indexed(&self) -> Result<Vec<Indexed>, Error> {
        Ok(self.index().await?.snapshots)
    }

    /// What became of attempts to restore its snapshots into a scratch place, by the ids of those that were tried.
    pub async fn proofs(&self) -> Result<BTreeMap<String, ProofShown>, Error> {
        let root = self.engine.dirs().root().layout().clone();
        self.engine.proofs_of(&ProofSubject::Chunked(root)).await
    }

    /// What it is called wherever a subject is named, as far as it is one of a store.
    pub(crate) fn address(&self) -> Option<SubjectAddress> {
        SubjectAddress::of_root(&self.engine.location, self.engine.dirs().root().layout())
    }

    /// The snapshot that somebody means.
    pub(crate) async fn located(&self, wanted: &SnapshotRef) -> Result<SnapshotId, Error> {
        self.find(&self.index().await?, wanted).await
    }

    /// A snapshot, ready to be read.
    pub(crate) async fn opened(
        &self,
        id: &SnapshotId,
    ) -> Result<(OpenedSnapshot, ChunkFetcher), Error> {
        let (index, root) = (self.index().await?, self.engine.dirs().root());
        let opened = self.engine.dirs().open_snapshot(&root, &index, id).await?;
        let source = opened.fetcher(&root);
        Ok((opened, source))
    }

    /// What it is and does now.
    pub async fn status(&self) -> Result<ProjectStatus, Error> {
        let rows = self.list().await?;
        let services = match &self.home.declared {
            Some(declared) => self.states(declared).await,
            None => Vec::new(),
        };
        Ok(ProjectStatus {
            project: self.home.id.clone(),
            dir: self.home.dir.display().to_string(),
            store: self.engine.location.to_string(),
            services,
            snapshots: rows.len() as u64,
            active: rows.into_iter().find(|row| row.active),
        })
    }

    /// Everything that one snapshot says of itself.
    pub async fn show(
        &self,
        wanted: &SnapshotRef,
    ) -> Result<(ProjectSnapshot, SnapshotManifest), Error> {
        let index = self.index().await?;
        let id = self.resolve(&index, wanted)?;
        let root = self.engine.dirs().root();
        let opened = self.engine.dirs().open_snapshot(&root, &index, &id).await?;
        let lost = || Error::LostManifest(id.clone());
        let indexed = index.find(&id).ok_or_else(lost)?;
        Ok((row(&index, indexed), opened.manifest))
    }

    /// Keeps a snapshot whatever a policy says, or no longer.
    pub async fn pin(&self, wanted: &SnapshotRef, pinned: bool) -> Result<ProjectSnapshot, Error> {
        let id = self.resolve(&self.index().await?, wanted)?;
        let _ = self.engine.dirs().pin(&id, pinned).await?;
        self.one(&id).await
    }

    /// Gives a snapshot a label, or takes it away.
    pub async fn label(
        &self,
        wanted: &SnapshotRef,
        key: &str,
        value: Option<&Label>,
    ) -> Result<ProjectSnapshot, Error> {
        let id = self.resolve(&self.index().await?, wanted)?;
        let (root, op_id) = (self.engine.dirs().root(), self.engine.rng.op_id());
        let changed = root
            .change(op_id, |index| index.label(&id, key, value, op_id))
            .await;
        self.engine
            .operations()
            .known(IndexOperation::Label, &root, changed)
            .await?;
        self.one(&id).await
    }

    async fn one(&self, id: &SnapshotId) -> Result<ProjectSnapshot, Error> {
        let index = self.index().await?;
        let found = index.find(id).map(|one| row(&index, one));
        found.ok_or_else(|| Error::LostManifest(id.clone()))
    }

    /// Lets a snapshot go; the next `gc` removes its bytes. The active one and pinned ones stay.
    pub async fn delete(&self, wanted: &SnapshotRef) -> Result<RepoForgotten, Error> {
        let id = self.resolve(&self.index().await?, wanted)?;
        self.engine.dirs().forget(&[id]).await
    }

    /// Lets snapshots go, all or none; the next `gc` removes their bytes. The active one and pinned ones stay.
    pub async fn forget(&self, ids: &[SnapshotId], run: RunMode) -> Result<(), Error> {
        let _ = self.engine.dirs().forget_or_look(ids, run).await?;
        Ok(())
    }

    /// Brings a snapshot back to a scratch place, and checks every database in it.
    pub async fn verify(
        &self,
        wanted: &SnapshotRef,
        progress: Arc<Progress>,
    ) -> Result<ProjectVerified, Error> {
        let index = self.index().await?;
        let id = self.resolve(&index, wanted)?;
        let (wanted, spawn) = (self.wanted(&id), self.host.check.clone());
        let proved = self.engine.dirs().prove(wanted, spawn, progress).await?;
        Ok(ProjectVerified {
            snapshot_id: id,
            state_digest: proved.state_digest,
            files: proved.files,
            bytes: proved.bytes,
            databases: proved.databases,
            damaged: proved.damaged,
        })
    }

    /// Whether everything of it that was saved can be restored; with `read_data` every chunk is read.
    pub async fn check(
        &self,
        read_data: bool,
        progress: Arc<Progress>,
    ) -> Result<RepoChecked, Error> {
        self.ensure_known().await?;
        match self.engine.dirs().check(read_data, progress).await {
            Err(Error::NoRepo(_)) if self.is_before_all().await? => Ok(RepoChecked::default()),
            checked => checked,
        }
    }

    /// Whether this is a session of a tenant of which nothing was ever saved: the first snapshot makes the place for all.
    async fn is_before_all(&self) -> Result<bool, Error> {
        let is_unsaved = self.home.is_elsewhere() && self.index().await?.snapshots.is_empty();
        let root = self.engine.dirs().root();
        // Where chunks are, the documents beside them are lost, and that is another matter.
        Ok(is_unsaved && root.chunks().await?.is_empty())
    }

    /// What of its documents must be made anew. Nothing is changed.
    pub async fn plan_repair(&self) -> Result<Repair, Error> {
        self.ensure_known().await?;
        self.engine.dirs().plan_repair().await
    }

    /// Makes its documents anew that are damaged or lost.
    pub async fn repair(&self, actor: &Label, leave_out: bool) -> Result<Repair, Error> {
        self.ensure_known().await?;
        self.engine.dirs().repair(actor, leave_out).await
    }

    /// Believes its index again, although this host has seen a later one.
    pub async fn accept_rollback(&self, actor: &Label) -> Result<AcceptedRollback, Error> {
        self.engine.dirs().accept_rollback(actor).await
    }

    /// Lets snapshots go that are more than are kept, and removes what nothing needs any more.
    ///
    /// Databases that restores left on servers go too, once they are old.
    pub async fn gc(&self, command: ProjectGc) -> Result<ProjectCollected, Error> {
        let dry_run = command.dry_run;
        self.ensure_known().await?;
        let said = self.home.declared.as_ref();
        let said = said.map(|declared| declared.config.retention);
        let keep = command
            .keep
            .unwrap_or_else(|| said.unwrap_or_default().policy());
        let collect = RepoGc {
            needed_for_undo: self.needed_for_undo().await?,
            dry_run,
            agreed: command.agreed,
            progress: command.progress,
            ..RepoGc::new(RetentionPolicy::Repository(keep))
        };
        let collected = match self.engine.dirs().gc(collect).await {
            Err(Error::NoRepo(_)) if self.is_before_all().await? => RepoCollected::nothing(dry_run),
            collected => collected?,
        };
        let databases_kept = match &self.home.declared {
            Some(declared) if !dry_run => {
                let servers: Vec<_> = declared.servers_of().cloned().collect();
                self.kept_databases(declared, &servers).await
            }
            _ => Vec::new(),
        };
        Ok(ProjectCollected {
            collected,
            databases_kept,
        })
    }
}

/// The snapshots of an index, the oldest first.
pub(super) fn rows(index: &SnapshotIndex) -> impl DoubleEndedIterator<Item = ProjectSnapshot> {
    index.finished().map(|one| row(index, one))
}

fn row(index: &SnapshotIndex, one: &Indexed) -> ProjectSnapshot {
    ProjectSnapshot {
        snapshot_id: one.id.clone(),
        timestamp: one.at_ms.to_string(),
        timestamp_ms: one.at_ms.millis(),
        reason: one.reason,
        entries: one.entries,
        bytes: one.bytes,
        active: index.is_active(&one.id),
        pinned: one.pinned,
        labels: one.labels.clone(),
    }
}
