//! Lets go of snapshots whose metadata or list is damaged for good.
//!
//! 1. prove, for each, that it cannot be read: its metadata is missing or is not what the index says, or a chunk of its
//!    list is missing or not what it is named for
//! 2. prove that what becomes the newest of its chain can be read
//! 3. enter the damaged chunks of lists in the quarantine, so that the next save that needs them stores them anew
//! 4. tombstone the snapshots and step the chains back, by one conditional write of the index
//! 5. write an event down
//!
//! *Always true:* what can be read is refused, and so is what nobody can tell about: a store that does not answer, or
//! bytes that are what they were and that a later build may understand. Whoever saved meanwhile wins over 4. A crash before
//! 4 leaves entries in the quarantine, after it a chain that goes on from its newest readable snapshot. The sweep removes
//! metadata and chunks.

use crate::bridge;
use crate::catalog::references::is_damage;
use crate::catalog::{ChunkFetcher, ensure_writable, name_of};
use crate::error::{Error, error_chain};
use crate::handle::DirRepo;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::chunked::list::root_of;
use stasis_disk::form::chunked::{ChunkError, ChunkSource, fetch};
use stasis_model::format::event::{AuditEvent, EventKind, Severity};
use stasis_model::format::manifest::{
    FileList, IndexRefusal, Indexed, SnapshotIndex, StepBack, StoredManifest,
};
use stasis_model::id::{Label, OpId, SnapshotId, SubjectName, TenantId};
use stasis_model::protocol::gc::ChunkName;
use stasis_model::protocol::operation::IndexOperation;
use stasis_store::bucket::BucketErrorKind;
use stasis_store::documents::lineages::ReadError;
use stasis_store::documents::roots::{ChangeError, Root};
use std::collections::{BTreeMap, BTreeSet};

/// A snapshot that cannot be read, and why not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DamagedSnapshot {
    /// Which.
    pub snapshot_id: SnapshotId,
    /// Of which name; none for one that was never published.
    pub name: Option<SubjectName>,
    /// What is wrong with it.
    pub why: String,
}

/// What letting go of damaged snapshots, or of a name, means.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RepoLetGo {
    /// What goes, and why.
    pub forgotten: Vec<DamagedSnapshot>,
    /// What `latest` means for each name afterwards.
    pub newest: BTreeMap<SubjectName, Option<SnapshotId>>,
    /// By which operation; none while nothing was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op_id: Option<OpId>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
    /// Damaged chunks of lists.
    #[serde(skip)]
    chunks: BTreeSet<ChunkName>,
}

/// What is wrong with a snapshot, beyond doubt.
pub(crate) struct DamageProof {
    pub(super) why: String,
    pub(super) chunks: BTreeSet<ChunkName>,
}

impl DamageProof {
    fn metadata(why: &str) -> Self {
        Self {
            why: format!("its metadata {why}"),
            chunks: BTreeSet::new(),
        }
    }
}

/// Under which name a repository's events are kept.
pub(crate) fn log() -> TenantId {
    "repo".parse().expect("a constant that is a name")
}

impl DirRepo<'_> {
    /// Proves that snapshots cannot be read, and says what letting go of them means. Nothing is changed.
    ///
    /// They may belong to any root of the store: whoever checks a store is told of all of them.
    pub async fn damaged(self, ids: &[SnapshotId]) -> Result<RepoLetGo, Error> {
        let mut plan = RepoLetGo::nothing();
        for held in self.holding(ids).await? {
            plan.add(held.engine.dirs().damaged_here(&held.ids).await?);
        }
        Ok(plan)
    }

    async fn damaged_here(self, ids: &[SnapshotId]) -> Result<RepoLetGo, Error> {
        let root = self.root();
        let repo = self.settings(&root).await?;
        let index = self.believed_index(&root, &repo).await?;
        let mut plan = RepoLetGo::nothing();
        for id in ids {
            let proof = self.proof(&root, &index, id).await?;
            let proof = proof.ok_or_else(|| Error::NotDamaged(id.clone()))?;
            plan.chunks.extend(proof.chunks);
            plan.forgotten.push(DamagedSnapshot {
                snapshot_id: id.clone(),
                name: index.find(id).map(|_| name_of(&root)),
                why: proof.why,
            });
        }
        plan.foresee(&root, &index);
        for newest in plan.newest.values().flatten() {
            if !index.is_active(newest) {
                self.ensure_readable(&root, &index, newest).await?;
            }
        }
        Ok(plan)
    }

    /// Lets go of snapshots that cannot be read: none unless all of them are proven to be damaged, then those of one subject after
    /// the other.
    #[tracing::instrument(skip_all, err(level = "info"))]
    pub async fn forget_damaged(
        self,
        ids: &[SnapshotId],
        actor: &Label,
    ) -> Result<RepoLetGo, Error> {
        self.store().ensure_trusted().await?;
        let mut proven = Vec::new();
        for held in self.holding(ids).await? {
            let root = held.engine.dirs().root();
            ensure_writable(&held.engine.dirs().settings(&root).await?)?;
            let plan = held.engine.dirs().damaged_here(&held.ids).await?;
            proven.push((held.engine, plan));
        }
        let mut done = RepoLetGo::nothing();
        for (engine, plan) in proven {
            done.add(engine.dirs().forget_proven(plan, actor).await?);
        }
        Ok(done)
    }

    /// Enters damaged chunks in the quarantine, changes the index as foreseen, and writes the event down.
    async fn forget_proven(self, plan: RepoLetGo, actor: &Label) -> Result<RepoLetGo, Error> {
        let (root, op_id) = (self.root(), self.rng.op_id());
        self.quarantine(&root, &plan.chunks).await?;
        let event = self
            .events()
            .event(EventKind::ForgetDamaged, Severity::Warning, actor);
        let (back, now) = (plan.step_back(), self.lineages.now());
        let changed = root
            .change(op_id, |index| index.step_back(&back, now, op_id))
            .await;
        self.operations()
            .known(IndexOperation::ForgetDamaged, &root, changed)
            .await?;
        Ok(self.logged(plan, op_id, event).await)
    }

    /// What letting go of a whole name means. Nothing is changed.
    pub async fn plan_retire(self, name: &SubjectName) -> Result<RepoLetGo, Error> {
        let root = self.root_of(name);
        let repo = self.settings(&root).await?;
        let index = self.believed_index(&root, &repo).await?;
        let mut plan = RepoLetGo::nothing();
        for one in &index.snapshots {
            if one.pinned {
                return Err(ChangeError::from(IndexRefusal::Pinned(one.id.clone())).into());
            }
            plan.forgotten.push(DamagedSnapshot {
                snapshot_id: one.id.clone(),
                name: Some(name.clone()),
                why: "its name is retired".to_owned(),
            });
        }
        if !index.is_alive() {
            return Err(Error::NoSuchSnapshot {
                wanted: format!("latest` of `{name}"),
                repo: self.location.to_string(),
            });
        }
        plan.newest.insert(name.clone(), None);
        Ok(plan)
    }

    /// Deletes a subject with all its snapshots, unless one of them is pinned. What is saved under its name later is another one.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %name))]
    pub async fn retire(self, name: &SubjectName, actor: &Label) -> Result<RepoLetGo, Error> {
        self.store().ensure_trusted().await?;
        let root = self.root_of(name);
        ensure_writable(&self.settings(&root).await?)?;
        let plan = self.plan_retire(name).await?;
        let event = self
            .events()
            .event(EventKind::ForgetAll, Severity::Warning, actor);
        let (op_id, now) = (self.rng.op_id(), self.lineages.now());
        let going: BTreeSet<_> = plan.forgotten.iter().map(|one| &one.snapshot_id).collect();
        let changed = root
            .change(op_id, |index| {
                // What was saved since somebody looked is not deleted unseen.
                match index.snapshots.iter().find(|one| !going.contains(&one.id)) {
                    Some(new) => Err(IndexRefusal::Diverged {
                        active: new.id.to_string(),
                    }),
                    None => index.delete(now, op_id),
                }
            })
            .await;
        self.operations()
            .known(IndexOperation::ForgetAll, &root, changed)
            .await?;
        Ok(self.logged(plan, op_id, event).await)
    }

    /// Writes down what was let go.
    async fn logged(self, mut plan: RepoLetGo, op_id: OpId, mut event: AuditEvent) -> RepoLetGo {
        event.op_id = Some(op_id);
        let went = serde_json::to_value(&plan.forgotten).unwrap_or_default();
        let newest = serde_json::to_value(&plan.newest).unwrap_or_default();
        let event = event.with("forgotten", went).with("newest", newest);
        plan.warnings
            .extend(self.events().record(&log(), event).await);
        plan.op_id = Some(op_id);
        plan
    }

    /// What is to become the newest of a chain must be one that saves can go on from.
    async fn ensure_readable(
        self,
        root: &Root,
        index: &SnapshotIndex,
        id: &SnapshotId,
    ) -> Result<(), Error> {
        if let Some(proof) = self.proof(root, index, id).await? {
            return Err(Error::DamagedToo {
                snapshot: id.clone(),
                why: proof.why,
            });
        }
        let opened = self.open_snapshot(root, index, id).await?;
        self.read_as_restore(root, opened).await.map(drop)
    }

    /// What is wrong with a snapshot; `None` when its bytes are what they were.
    pub(crate) async fn proof(
        self,
        root: &Root,
        index: &SnapshotIndex,
        id: &SnapshotId,
    ) -> Result<Option<DamageProof>, Error> {
        let found = match index.find(id) {
            Some(indexed) => self.published(root, indexed).await?,
            None => self.unpublished(root, index, id).await?,
        };
        let list = match found {
            DamageFound::Damaged(proof) => return Ok(Some(proof)),
            DamageFound::Whole(list) => list,
        };
        let source = ChunkFetcher::new(root.clone(), self.codec(root).await?);
        let spoiled = bridge::blocking(move || spoiled(&source, &list)).await?;
        let Some(why) = spoiled.values().next().cloned() else {
            return self.wrong_tree(root, index, id).await;
        };
        Ok(Some(DamageProof {
            why: format!("its list: {why}"),
            chunks: spoiled.into_keys().collect(),
        }))
    }

    /// Proves that the tree of a list that can be read is not the one that was saved: no build can restore that.
    async fn wrong_tree(
        self,
        root: &Root,
        index: &SnapshotIndex,
        id: &SnapshotId,
    ) -> Result<Option<DamageProof>, Error> {
        if index.find(id).is_none() {
            return Ok(None);
        }
        let opened = self.open_snapshot(root, index, id).await?;
        match self.read_as_restore(root, opened).await {
            Err(error @ Error::WrongTree(_)) => Ok(Some(DamageProof {
                why: error_chain(&error),
                chunks: BTreeSet::new(),
            })),
            // What else is wrong with it a later build may understand.
            _ => Ok(None),
        }
    }

    /// Enters chunks in the quarantine.
    pub(crate) async fn quarantine(
        self,
        root: &Root,
        names: &BTreeSet<ChunkName>,
    ) -> Result<(), Error> {
        if names.is_empty() {
            return Ok(());
        }
        let known = root.quarantined().await?;
        for name in names.iter().filter(|name| !known.contains(name)) {
            let bytes = root.chunk(name).await?.unwrap_or_default();
            root.quarantine(name, bytes).await?;
        }
        Ok(())
    }

    /// Enters chunks in the quarantine, if this store can be written. What came of it must not hide what it was about.
    pub(crate) async fn mark_damaged(self, root: &Root, names: &BTreeSet<ChunkName>) -> bool {
        match self.quarantine(root, names).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "damaged chunks could not be marked"
                );
                false
            }
        }
    }

    /// Enters the chunk that made something fail in the quarantine, if it was one: the next save that has its bytes stores
    /// it anew.
    pub(crate) async fn mark_cause(self, root: &Root, error: Error) -> Error {
        if let Some(name) = damaged_chunk(&error) {
            self.mark_damaged(root, &BTreeSet::from([name])).await;
        }
        error
    }

    /// Says which snapshot it was that could not be read, if that is what went wrong.
    pub(crate) async fn blame(self, root: &Root, id: Option<&SnapshotId>, error: Error) -> Error {
        let Some(id) = id.filter(|_| is_damage(&error)) else {
            return error;
        };
        let Ok(index) = self.index(root).await else {
            return error;
        };
        match self.proof(root, &index, id).await {
            Ok(Some(_)) => Error::damaged(id, error),
            _ => error,
        }
    }
}

impl RepoLetGo {
    fn nothing() -> Self {
        Self {
            forgotten: Vec::new(),
            newest: BTreeMap::new(),
            op_id: None,
            warnings: Vec::new(),
            chunks: BTreeSet::new(),
        }
    }

    /// Adds what it means for another subject.
    fn add(&mut self, other: Self) {
        self.forgotten.extend(other.forgotten);
        self.newest.extend(other.newest);
        self.op_id = other.op_id.or(self.op_id);
        self.warnings.extend(other.warnings);
        self.chunks.extend(other.chunks);
    }

    /// Finds what `latest` will mean if a subject loses something.
    fn foresee(&mut self, root: &Root, index: &SnapshotIndex) {
        let gone = self.forgotten.iter().filter(|one| one.name.is_some());
        let gone: Vec<SnapshotId> = gone.map(|one| one.snapshot_id.clone()).collect();
        if !gone.is_empty() {
            let left = index.active_without(&gone);
            self.newest.insert(name_of(root), left);
        }
    }

    fn step_back(&self) -> StepBack {
        let (published, unpublished): (Vec<_>, Vec<_>) =
            self.forgotten.iter().partition(|one| one.name.is_some());
        let ids = |some: Vec<&DamagedSnapshot>| {
            let ids: BTreeSet<_> = some.iter().map(|one| one.snapshot_id.clone()).collect();
            ids.into_iter().collect()
        };
        StepBack {
            gone: ids(published),
            newest: self.newest.values().flatten().next().cloned(),
            unpublished: ids(unpublished),
        }
    }
}

enum DamageFound {
    Damaged(DamageProof),
    Whole(FileList),
}

impl DirRepo<'_> {
    /// The metadata of a snapshot that the index leads to, by its digest: bytes that are what they were are not damaged,
    /// whatever this build makes of them.
    async fn published(self, root: &Root, indexed: &Indexed) -> Result<DamageFound, Error> {
        let why = match root.manifest_digest(&indexed.id).await {
            Ok(Some(digest)) if digest == indexed.manifest_sha256 => None,
            Ok(Some(_)) => Some("is not what the index says"),
            Ok(None) => Some("is missing"),
            Err(error) if error.kind == BucketErrorKind::TooLarge => {
                Some("is larger than any can be")
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(why) = why {
            return Ok(DamageFound::Damaged(DamageProof::metadata(why)));
        }
        let lost = || Error::LostManifest(indexed.id.clone());
        let (manifest, _) = root.manifest(&indexed.id).await?.ok_or_else(lost)?;
        let opened = self.understand(root, manifest).await?;
        Ok(DamageFound::Whole(opened.list))
    }

    /// The metadata of a snapshot that was never published: only that it is no metadata at all can be seen.
    async fn unpublished(
        self,
        root: &Root,
        index: &SnapshotIndex,
        id: &SnapshotId,
    ) -> Result<DamageFound, Error> {
        if index.tombstones.contains_key(id) {
            return Err(ChangeError::from(IndexRefusal::Gone(id.clone())).into());
        }
        let absent = || ChangeError::from(IndexRefusal::Absent(id.clone()));
        match root.manifest(id).await {
            Ok(Some((StoredManifest::Provisional(found), _))) => {
                let unfit = |source| Error::UnfitSnapshot {
                    snapshot: id.clone(),
                    source,
                };
                found.check().map_err(unfit)?;
                match found.names() {
                    // It is no snapshot; who says that its save is over lets go of what it holds.
                    Ok(_) => Ok(DamageFound::Damaged(DamageProof {
                        why: "it is what a save had stored before it was over".to_owned(),
                        chunks: BTreeSet::new(),
                    })),
                    Err(error) => Ok(DamageFound::Damaged(DamageProof {
                        why: error.to_string(),
                        chunks: BTreeSet::new(),
                    })),
                }
            }
            Ok(Some((manifest, _))) => {
                let opened = self.understand(root, manifest).await?;
                Ok(DamageFound::Whole(opened.list))
            }
            Ok(None) => Err(absent().into()),
            Err(ReadError::Bucket(error)) if error.kind == BucketErrorKind::TooLarge => Ok(
                DamageFound::Damaged(DamageProof::metadata("is larger than any can be")),
            ),
            Err(error @ ReadError::Bucket(_)) => Err(error.into()),
            Err(error) if error.is_of_another_build() => Err(error.into()),
            Err(error) => Ok(DamageFound::Damaged(DamageProof {
                why: error_chain(&error),
                chunks: BTreeSet::new(),
            })),
        }
    }
}

/// The chunk that is missing or damaged, if that is what went wrong.
fn damaged_chunk(error: &Error) -> Option<ChunkName> {
    // Our own error says what a chunk's says, and passes it over among its causes.
    let mut cause: Option<&(dyn std::error::Error + 'static)> = match error {
        Error::Chunk(error) => Some(error),
        error => Some(error),
    };
    while let Some(error) = cause {
        match error.downcast_ref::<ChunkError>() {
            Some(ChunkError::Absent(name) | ChunkError::Damaged { name, .. }) => {
                return Some(*name);
            }
            _ => cause = error.source(),
        }
    }
    None
}

/// The chunks of a list that are missing or are not what they are named for, each with what is wrong with it.
pub(super) fn spoiled(
    source: &dyn ChunkSource,
    list: &FileList,
) -> Result<BTreeMap<ChunkName, String>, ChunkError> {
    let mut spoiled = BTreeMap::new();
    let FileList::Stored(at) = list else {
        return Ok(spoiled);
    };
    let mut names = BTreeSet::from([at.root]);
    if fetch(source, &at.root).is_ok() {
        let sections = root_of(source, list)?.sections;
        names.extend(sections.iter().map(|place| place.slice.chunk.name));
    }
    for name in names {
        match fetch(source, &name) {
            Ok(_) => {}
            Err(error @ (ChunkError::Absent(_) | ChunkError::Damaged { .. })) => {
                spoiled.insert(name, error_chain(&error));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(spoiled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_model::digest::ChunkDigest;
    use stasis_model::protocol::gc::GcEpoch;

    #[test]
    fn the_chunk_that_stopped_a_restore_is_found_in_its_error() {
        let name = ChunkName::new(ChunkDigest::of(b"bytes"), GcEpoch::FIRST);

        let found = damaged_chunk(&Error::from(ChunkError::Absent(name)));

        assert_eq!(found, Some(name));
        assert_eq!(damaged_chunk(&Error::NoRepo("here".to_owned())), None);
    }
}
