//! Forgets snapshots that a policy lets go, and removes what nothing needs any more.
//!
//! 1. judge, and tombstone in the index what goes
//! 2. remove manifests that are tombstoned, or that nobody will publish ([`ManifestGc`])
//! 3. sweep chunks, round by round, until nothing is left to take ([`GcRound`])

use crate::catalog::references::{self, AskedNames, Unread, ensure_form};
use crate::catalog::{RepoSnapshotRow, ensure_writable, name_of};
use crate::error::{Error, ErrorKind};
use crate::handle::DirRepo;
use crate::kind::workspace::RunMode;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::progress::Progress;
use stasis_model::failure::Failure;
use stasis_model::format::manifest::{
    IndexRefusal, Indexed, RepoDocument, SaveReason, SnapshotIndex,
};
use stasis_model::id::{Epoch, Label, SnapshotId, SubjectName};
use stasis_model::policy::retention::{
    self, Clocks, OnDoubt, RetentionPolicy, Snapshot, SnapshotNeed, SnapshotOrigin,
};
use stasis_model::protocol::gc::manifests::{
    ListedManifest, ManifestGc, ManifestGcAnswer, ManifestGcStep,
};
use stasis_model::protocol::gc::{Abort, ChunkName, GcAnswer, GcReport, GcRound, GcStep, Names};
use stasis_model::protocol::operation::IndexOperation;
use stasis_store::bucket::Swap;
use stasis_store::documents::roots::{ChangeError, Root};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// How often a sweep goes round before it leaves the rest to the next one.
const ROUNDS: usize = 10_000;

/// How long a tombstone stays.
const TOMBSTONES: Duration = Duration::from_hours(30 * 24);

/// What may go.
#[derive(Clone, Debug)]
pub struct RepoGc {
    /// Which snapshots are kept; without, all.
    pub policy: RetentionPolicy,
    /// Only snapshots of this name are judged.
    pub name: Option<SubjectName>,
    /// Whether ages count while clocks disagree.
    pub on_doubt: OnDoubt,
    /// What this host knows to be needed to take back a restore, beside the last one that was made before one.
    pub needed_for_undo: Vec<SnapshotId>,
    /// Only says what would be done.
    pub dry_run: bool,
    /// The snapshots that somebody agreed to let go; nothing is done if others would.
    pub agreed: Option<Vec<SnapshotId>>,
    /// Counts manifests that were read, and then bytes that were removed.
    pub progress: Arc<Progress>,
}

impl RepoGc {
    /// By that policy, for good.
    pub fn new(policy: RetentionPolicy) -> Self {
        Self {
            policy,
            name: None,
            on_doubt: OnDoubt::RefuseAges,
            needed_for_undo: Vec::new(),
            dry_run: false,
            agreed: None,
            progress: Arc::default(),
        }
    }
}

/// What went.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RepoCollected {
    /// Whether nothing was really done.
    pub dry_run: bool,
    /// Every snapshot, and why it stays or goes.
    #[serde(rename = "items")]
    pub verdicts: Vec<RepoGcVerdict>,
    /// Why ages did not count, if they did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_doubt: Option<String>,
    /// Manifests that nobody will ever publish, and that were removed.
    pub manifests_removed: u64,
    /// Chunks that were removed, or would be.
    pub chunks_removed: u64,
    /// Bytes of those.
    pub bytes_removed: u64,
    /// How long it took.
    pub elapsed_ms: u64,
}

impl RepoCollected {
    /// What a sweep finds where there is nothing yet.
    pub(crate) fn nothing(dry_run: bool) -> Self {
        Self {
            dry_run,
            verdicts: Vec::new(),
            clock_doubt: None,
            manifests_removed: 0,
            chunks_removed: 0,
            bytes_removed: 0,
            elapsed_ms: 0,
        }
    }
}

/// Snapshots that were forgotten.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RepoForgotten {
    /// Which.
    pub forgotten: Vec<SnapshotId>,
}

/// What becomes of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RepoGcVerdict {
    /// Which.
    pub snapshot_id: SnapshotId,
    /// Of which name.
    pub name: SubjectName,
    /// Whether it stays.
    pub kept: bool,
    /// Why.
    pub because: Vec<String>,
}

/// A judgement, put into words.
struct RepoJudgement {
    verdicts: Vec<RepoGcVerdict>,
    going: Vec<SnapshotId>,
    clock_doubt: Option<String>,
}

impl DirRepo<'_> {
    /// Forgets, buries and sweeps.
    #[tracing::instrument(skip_all, err(level = "info"))]
    pub async fn gc(self, command: RepoGc) -> Result<RepoCollected, Error> {
        let started = self.clock.uptime();
        self.store().ensure_trusted().await?;
        let root = self.root();
        let repo = self.settings(&root).await?;
        ensure_writable(&repo)?;
        let subjects = self.subjects_here(command.name.as_ref()).await?;
        let judged = self.judged(&subjects, &command);
        let (manifests_removed, removed);
        if command.dry_run {
            manifests_removed = 0;
            let (going, progress) = (&judged.going, &command.progress);
            removed = self.would_remove(&root, &repo, going, progress).await?;
        } else {
            ensure_agreed(command.agreed.as_deref(), &judged.going)?;
            for (root, index) in &subjects {
                let going = judged.going.iter();
                let going: Vec<_> = going.filter(|id| index.find(id).is_some()).collect();
                let going: Vec<SnapshotId> = going.into_iter().cloned().collect();
                if !going.is_empty() {
                    self.forget_of(root, &going, IndexOperation::Gc).await?;
                }
            }
            // Of all subjects of the pool: what a save of another one left may name chunks that are gone, and end the sweep.
            let mut gone = 0;
            for root in root.pool_roots().await? {
                // An index that went back takes what it does not know for what nobody will publish.
                if root.index().await?.is_some() {
                    self.believed_index(&root, &repo).await?;
                }
                gone += self.tombstone_unpublished(&root, &repo).await?;
                if repo.is_encrypted() {
                    self.remove_references(&root).await?;
                }
            }
            manifests_removed = gone;
            for (root, _) in &subjects {
                self.drop_tombstones(root).await?;
            }
            let progress = &command.progress;
            removed = self.sweep_chunks(&root, &repo, progress).await?;
            self.leave_quarantine(&root, &repo).await?;
        }
        let elapsed = self.clock.uptime().saturating_sub(started);
        Ok(RepoCollected {
            dry_run: command.dry_run,
            verdicts: judged.verdicts,
            clock_doubt: judged.clock_doubt,
            manifests_removed,
            chunks_removed: removed.0,
            bytes_removed: removed.1,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Forgets snapshots of one subject, all of them or none.
    pub async fn forget(self, ids: &[SnapshotId]) -> Result<RepoForgotten, Error> {
        self.forget_or_look(ids, RunMode::Real).await
    }

    /// The same, or only says whether it could.
    pub(crate) async fn forget_or_look(
        self,
        ids: &[SnapshotId],
        run: RunMode,
    ) -> Result<RepoForgotten, Error> {
        self.store().ensure_trusted().await?;
        let repo = self.settings(&self.root()).await?;
        ensure_writable(&repo)?;
        let all = self.holding(ids).await?;
        for held in &all {
            let dirs = held.engine.dirs();
            let index = dirs.believed_index(&dirs.root(), &repo).await?;
            // Of several subjects none is changed unless all can be.
            let checked = index.forget(&held.ids, self.lineages.now(), self.rng.op_id());
            checked.map_err(ChangeError::from)?;
        }
        for held in all.iter().filter(|_| run == RunMode::Real) {
            let dirs = held.engine.dirs();
            let (root, forget) = (dirs.root(), IndexOperation::Forget);
            dirs.forget_of(&root, &held.ids, forget).await?;
        }
        Ok(RepoForgotten {
            forgotten: ids.to_vec(),
        })
    }

    /// Lets go of snapshots of one subject, all or none.
    pub(crate) async fn forget_of(
        self,
        root: &Root,
        ids: &[SnapshotId],
        operation: IndexOperation,
    ) -> Result<(), Error> {
        let (op_id, now) = (self.rng.op_id(), self.lineages.now());
        let changed = root
            .change(op_id, |index| index.forget(ids, now, op_id))
            .await;
        self.operations().known(operation, root, changed).await?;
        Ok(())
    }

    /// Keeps a snapshot whatever a policy says, or no longer.
    pub async fn pin(self, id: &SnapshotId, pinned: bool) -> Result<RepoSnapshotRow, Error> {
        self.store().ensure_trusted().await?;
        let repo = self.settings(&self.root()).await?;
        ensure_writable(&repo)?;
        let held = self.holding(std::slice::from_ref(id)).await?;
        let absent = || ChangeError::from(IndexRefusal::Absent(id.clone()));
        let engine = held.into_iter().next().ok_or_else(absent)?.engine;
        let (root, op_id) = (engine.dirs().root(), self.rng.op_id());
        engine.dirs().believed_index(&root, &repo).await?;
        let changed = root
            .change(op_id, |index| index.pin(id, pinned, op_id))
            .await;
        self.operations()
            .known(IndexOperation::Pin, &root, changed)
            .await?;
        let rows = engine.dirs().snapshots(None).await?;
        let row = rows.into_iter().find(|row| row.snapshot_id == *id);
        row.ok_or_else(|| Error::LostManifest(id.clone()))
    }

    fn judged(self, subjects: &[(Root, SnapshotIndex)], command: &RepoGc) -> RepoJudgement {
        let mut names = HashMap::new();
        let mut all: Vec<Snapshot> = Vec::new();
        for (root, index) in subjects {
            let name = name_of(root);
            let before_restore = last_before_restore(index);
            for one in &index.snapshots {
                let is_needed =
                    before_restore == Some(&one.id) || command.needed_for_undo.contains(&one.id);
                names.insert(one.id.clone(), name.clone());
                all.push(Snapshot {
                    created: one.at_ms,
                    id: one.id.clone(),
                    group: name.as_str().parse().unwrap_or_else(|_| Label::nobody()),
                    bytes: one.bytes,
                    origin: match one.reason {
                        SaveReason::Manual => SnapshotOrigin::Named,
                        _ => SnapshotOrigin::Auto,
                    },
                    active: index.is_active(&one.id),
                    pinned: one.pinned,
                    verified: false,
                    rolled_back_at: None,
                    needed_for: is_needed.then_some(SnapshotNeed::Undo),
                });
            }
        }
        let store = self.bucket.clock_offset_ms().map(|_| self.lineages.now());
        let clocks = Clocks {
            local: self.clock.now(),
            store,
            on_doubt: command.on_doubt,
        };
        let judgement = retention::judge(&command.policy, &all, &clocks);
        let mut verdicts = Vec::new();
        for verdict in &judgement.verdicts {
            let because = match &verdict.goes_because {
                Some(excess) if !verdict.is_kept() => vec![excess.to_string()],
                _ => verdict
                    .kept_because
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
            };
            verdicts.push(RepoGcVerdict {
                snapshot_id: verdict.snapshot.id.clone(),
                name: names[&verdict.snapshot.id].clone(),
                kept: verdict.is_kept(),
                because,
            });
        }
        RepoJudgement {
            going: judgement.going().map(|one| one.id.clone()).collect(),
            clock_doubt: judgement.clock.as_ref().map(ToString::to_string),
            verdicts,
        }
    }

    /// What a sweep would take if some snapshots were forgotten.
    async fn would_remove(
        self,
        root: &Root,
        repo: &RepoDocument,
        going: &[SnapshotId],
        progress: &Progress,
    ) -> Result<(u64, u64), Error> {
        let chunks = root.chunks().await?;
        let all: Names = chunks.iter().map(|(name, _)| *name).collect();
        let asked = AskedNames {
            names: &all,
            going,
            progress,
        };
        let named = references::named_by_all(root, repo, asked).await?;
        let unused = chunks.iter().filter(|(name, _)| !named.contains(name));
        Ok(unused.fold((0, 0), |total, (_, size)| (total.0 + 1, total.1 + size)))
    }

    /// Removes manifests that nobody will ever publish.
    pub(crate) async fn tombstone_unpublished(
        self,
        root: &Root,
        repo: &RepoDocument,
    ) -> Result<u64, Error> {
        let mut burial = ManifestGc::new();
        let mut step = burial.next(ManifestGcAnswer::Begin);
        loop {
            let answer = match step {
                ManifestGcStep::Survey => match self.survey(root, repo).await? {
                    Some(answer) => answer,
                    None => return Ok(0),
                },
                ManifestGcStep::Tombstone {
                    expected,
                    manifests,
                } => {
                    let found = root.index().await?;
                    match found.filter(|found| found.version == expected) {
                        None => ManifestGcAnswer::Lost,
                        Some(found) => {
                            let next = found.value.tombstone_unpublished(
                                &manifests,
                                self.lineages.now(),
                                self.rng.op_id(),
                            );
                            match root.swap_index(Some(&expected), &next).await? {
                                Swap::Won(_) => ManifestGcAnswer::Won,
                                Swap::Lost => ManifestGcAnswer::Lost,
                                Swap::Unknown => ManifestGcAnswer::Silence,
                            }
                        }
                    }
                }
                ManifestGcStep::Remove(manifests) => {
                    for id in &manifests {
                        root.remove_manifest(id).await?;
                    }
                    ManifestGcAnswer::Removed
                }
                ManifestGcStep::Done(removed) => return Ok(removed.len() as u64),
                ManifestGcStep::Unreachable => {
                    return Err(Error::SweepGaveUp(
                        "the index was changed by others again and again",
                    ));
                }
            };
            step = burial.next(answer);
        }
    }

    /// Removes lists of references whose manifest is gone, or was never put and cannot be published any more.
    ///
    /// In this order: a save puts the list, then the manifest, then publishes; the fence passes everything that is published.
    async fn remove_references(self, root: &Root) -> Result<(), Error> {
        let lists = root.reference_lists().await?;
        if lists.is_empty() {
            return Ok(());
        }
        let manifests = root.manifest_ids().await?;
        let Some(index) = root.index().await? else {
            return Ok(());
        };
        let (index, fence) = (&index.value, index.value.fence.epoch);
        for (list, id, lease) in lists {
            let is_needed = manifests.contains(&id) || index.find(&id).is_some();
            if !is_needed && lease < fence {
                root.remove_references(&list).await?;
            }
        }
        Ok(())
    }

    /// Forgets what was forgotten long ago, so that the index does not grow for ever.
    async fn drop_tombstones(self, root: &Root) -> Result<(), Error> {
        let before = self.lineages.now().minus(TOMBSTONES);
        let index = self.index(root).await?;
        if index
            .tombstones
            .values()
            .all(|tombstone| tombstone.at_ms >= before)
        {
            return Ok(());
        }
        let listed = root.manifest_ids().await?.into_iter().collect();
        let op_id = self.rng.op_id();
        let changed = root
            .change(op_id, |index| {
                Ok(index.without_tombstones(before, &listed, op_id))
            })
            .await;
        self.operations()
            .known(IndexOperation::Gc, root, changed)
            .await?;
        Ok(())
    }

    /// All manifests, and what the index, read afterwards, says about each.
    async fn survey(
        self,
        root: &Root,
        repo: &RepoDocument,
    ) -> Result<Option<ManifestGcAnswer>, Error> {
        let ids = root.manifest_ids().await?;
        let Some(index) = root.index().await? else {
            return Ok(None);
        };
        let mut listed = Vec::new();
        for id in ids {
            let indexed = index.value.find(&id).is_some();
            let tombstoned = index.value.tombstones.contains_key(&id);
            if indexed {
                continue;
            }
            if tombstoned {
                // What it says does not matter any more, not even whether it can be read.
                let (lease, fence) = (Epoch::default(), None);
                listed.push(ListedManifest {
                    id,
                    lease,
                    fence,
                    foreign: false,
                    indexed,
                    tombstoned,
                });
                continue;
            }
            let found = root.manifest(&id).await.map_err(Error::from);
            let found = found.map_err(|error| Unread::of(&id, error))?;
            let Some((manifest, _)) = found else {
                continue;
            };
            ensure_form(root, repo, &manifest).map_err(|error| Unread::of(&id, error))?;
            let is_of_this_life =
                index.value.is_alive() && manifest.incarnation() == index.value.incarnation;
            listed.push(ListedManifest {
                id,
                lease: manifest.lease_epoch(),
                fence: Some(index.value.fence.epoch),
                foreign: !is_of_this_life,
                indexed,
                tombstoned,
            });
        }
        Ok(Some(ManifestGcAnswer::Surveyed(index.version, listed)))
    }

    /// Sweeps until nothing is left to take.
    async fn sweep_chunks(
        self,
        root: &Root,
        repo: &RepoDocument,
        progress: &Progress,
    ) -> Result<(u64, u64), Error> {
        let mut removed = (0, 0);
        let mut sweep = Sweep {
            progress,
            sizes: HashMap::new(),
            is_announced: false,
        };
        for _ in 0..ROUNDS {
            sweep.sizes.clear();
            let swept = self.sweep_round(root, repo, &mut sweep).await?;
            for name in &swept.deleted {
                removed.0 += 1;
                removed.1 += sweep.size(name);
            }
            if !swept.more && !swept.resumed {
                break;
            }
        }
        Ok(removed)
    }

    /// Takes out of quarantine what was swept, because nothing needs it any more, and what is whole again: the save that
    /// healed it may have been killed before it could say so.
    async fn leave_quarantine(self, root: &Root, repo: &RepoDocument) -> Result<(), Error> {
        let (mut gone, mut whole) = (Names::new(), Names::new());
        let quarantined = root.quarantined().await?;
        // Without the key of the pool nobody can tell whether a chunk is whole.
        let codec = if quarantined.is_empty() {
            None
        } else {
            self.codec(root).await.ok()
        };
        let is_whole = |name: &ChunkName, bytes: &[u8]| {
            let codec = codec.as_ref();
            codec.is_some_and(|codec| codec.open(name, bytes).is_ok())
        };
        for name in quarantined {
            match root.chunk(&name).await? {
                None => gone.insert(name),
                Some(bytes) if is_whole(&name, &bytes) => whole.insert(name),
                Some(_) => continue,
            };
        }
        if !gone.is_empty() {
            let asked = AskedNames {
                names: &gone,
                going: &[],
                progress: &Progress::default(),
            };
            let named = references::named_by_all(root, repo, asked).await?;
            gone.retain(|name| !named.contains(name));
        }
        if !whole.is_empty() {
            // Another save may be about to heal it, and what we read not be durable yet.
            root.sync().await?;
        }
        for name in gone.union(&whole) {
            root.release(name).await?;
        }
        Ok(())
    }

    async fn sweep_round(
        self,
        root: &Root,
        repo: &RepoDocument,
        sweep: &mut Sweep<'_>,
    ) -> Result<GcReport, Error> {
        let mut unread = None;
        let mut round = GcRound::new(self.rng.op_id());
        let mut step = round.next(GcAnswer::Begin);
        loop {
            let answer = match step {
                GcStep::ReadGc => GcAnswer::Gc(root.gc().await?),
                GcStep::ListChunks => {
                    sweep.sizes.extend(root.chunks().await?);
                    GcAnswer::Listed(sweep.sizes.keys().copied().collect())
                }
                GcStep::FindReferenced(asked) => {
                    match references::named_by_all(root, repo, sweep.asks(&asked)).await {
                        Ok(named) => {
                            sweep.announce(&asked, &named);
                            GcAnswer::Referenced(named)
                        }
                        Err(error @ Unread::Manifest(..)) => {
                            unread = Some(error.into());
                            GcAnswer::UnreadableManifest
                        }
                        Err(Unread::Vanished) => GcAnswer::Vanished,
                        Err(Unread::Store(error)) => return Err(error),
                    }
                }
                GcStep::Write { expected, gc } => {
                    match root.write_gc(expected.as_ref(), &gc).await? {
                        Swap::Won(_) => GcAnswer::Won,
                        Swap::Lost => GcAnswer::Lost,
                        Swap::Unknown => GcAnswer::Silence,
                    }
                }
                GcStep::Delete(names) => {
                    let gone = |name: &ChunkName| sweep.progress.advance(0, sweep.size(name));
                    root.remove_chunks(&names, gone).await?;
                    GcAnswer::Deleted
                }
                GcStep::Done(swept) => return Ok(swept),
                GcStep::Aborted(why) => {
                    return Err(unread.unwrap_or(Error::SweepGaveUp(words(why))));
                }
            };
            step = round.next(answer);
        }
    }
}

/// The snapshot that the last restore of a subject is taken back with, whichever host made it.
fn last_before_restore(index: &SnapshotIndex) -> Option<&SnapshotId> {
    let safety = |one: &&Indexed| one.reason == SaveReason::BeforeRestore;
    let safety = index.snapshots.iter().filter(safety);
    safety.max_by_key(|one| one.at_ms).map(|one| &one.id)
}

/// A sweep of a pool, round by round.
struct Sweep<'a> {
    progress: &'a Progress,
    /// The chunks that were listed last.
    sizes: HashMap<ChunkName, u64>,
    /// Whether it was said how much there is to remove.
    is_announced: bool,
}

impl<'a> Sweep<'a> {
    fn size(&self, name: &ChunkName) -> u64 {
        self.sizes.get(name).copied().unwrap_or_default()
    }

    fn asks<'n>(&self, names: &'n Names) -> AskedNames<'n>
    where
        'a: 'n,
    {
        AskedNames {
            names,
            going: &[],
            progress: self.progress,
        }
    }

    /// Says how much there is to remove: the first look at all chunks that are there tells it for all rounds.
    fn announce(&mut self, asked: &Names, named: &Names) {
        if self.is_announced || self.sizes.is_empty() {
            return;
        }
        self.is_announced = true;
        let garbage = asked.difference(named).map(|name| self.size(name));
        self.progress.expect(0, garbage.sum());
    }
}

/// Refuses to let others go than somebody agreed to.
fn ensure_agreed(agreed: Option<&[SnapshotId]>, going: &[SnapshotId]) -> Result<(), Error> {
    let all = |ids: &[SnapshotId]| ids.iter().cloned().collect::<BTreeSet<_>>();
    match agreed {
        Some(agreed) if all(agreed) != all(going) => {
            let said = "other snapshots would go by now than those that were shown";
            let failure = Failure::of(ErrorKind::Retry, said);
            Err(failure.with_hint("nothing was removed; look again").into())
        }
        _ => Ok(()),
    }
}

fn words(why: Abort) -> &'static str {
    match why {
        Abort::UnreadableManifest => {
            "a snapshot's metadata or list cannot be read, so that nothing may be deleted; run `repo check`"
        }
        Abort::Unreachable => "the store does not answer, or others are always faster",
        Abort::Exhausted => "there are no epochs left",
    }
}
