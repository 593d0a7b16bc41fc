//! Makes damaged or lost documents of a subject anew, from what lies beside them.
//!
//! 1. find the documents that cannot be read, and those that are missing although something tells of them
//! 2. prove every snapshot that a new index would lead to: its metadata, its list, each chunk there and not condemned
//! 3. keep the damaged bytes aside, and put the new documents in their places, by conditional writes
//! 4. write an event down
//!
//! *Always true:* what can be read is never replaced, nor what another build may understand, nor what somebody wrote meanwhile.
//! A new index begins another life of its subject, a new pointer fences out every owner: no save that knew the lost document
//! publishes beside the new one. A crash leaves some documents repaired; the next repair finds the others.

use crate::catalog::OpenedSnapshot;
use crate::catalog::references::{self, is_damage};
use crate::check::log;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::{DirRepo, Profiles};
use crate::subjects::DIR_PREFIX;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::failure::Failure;
use stasis_model::format::document::Document;
use stasis_model::format::event::{AuditEvent, EventKind, Severity};
use stasis_model::format::lease::Lock;
use stasis_model::format::manifest::{RepoDocument, SnapshotIndex};
use stasis_model::format::pointer::Pointer;
use stasis_model::id::{Label, Lineage, OpId, TenantId};
use stasis_model::protocol::gc::{ChunkName, GcDocument, GcEpoch, GcState};
use stasis_store::bucket::Swap;
use stasis_store::documents::lineages::{ReadError, read};
use stasis_store::documents::profiles::{self, LineageSnapshots, StoredSnapshot, StoredSnapshots};
use stasis_store::documents::repair::DamagedDocument;
use stasis_store::documents::roots::{self, Root};
use stasis_store::layout::{self, Key};
use std::collections::HashSet;

/// A document that is made anew.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RepairedDocument {
    /// Where it lies in the store.
    pub document: String,
    /// What is wrong with it.
    pub why: String,
    /// Where its damaged bytes are kept, once it was replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

/// A snapshot that a new index does not lead to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct UnprovenSnapshot {
    /// Which.
    pub snapshot: String,
    /// What is wrong with it.
    pub why: String,
}

/// What repairing a subject means.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Repair {
    /// Which subject.
    pub subject: String,
    /// What is made anew. Nothing, if every document can be read.
    pub documents: Vec<RepairedDocument>,
    /// The snapshots that a new index leads to, the oldest first.
    pub snapshots: Vec<String>,
    /// What `latest` means afterwards, if that was found out anew.
    pub latest: Option<String>,
    /// Snapshots that are there and cannot be used.
    pub left_out: Vec<UnprovenSnapshot>,
    /// By which operation; none while nothing was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op_id: Option<OpId>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl Repair {
    fn of(subject: String) -> Self {
        Self {
            subject,
            documents: Vec::new(),
            snapshots: Vec::new(),
            latest: None,
            left_out: Vec::new(),
            op_id: None,
            warnings: Vec::new(),
        }
    }

    fn add(&mut self, damaged: &DamagedDocument, why: &str) {
        let why = if damaged.is_lost() { "is missing" } else { why };
        self.documents.push(RepairedDocument {
            document: damaged.key().to_string(),
            why: why.to_owned(),
            kept: None,
        });
    }

    /// Says which snapshots of a lineage can be used, and which cannot.
    fn tell_of(&mut self, stored: &StoredSnapshots) {
        for one in &stored.snapshots {
            match unusable(one) {
                Some(why) => self.leave_out(&one.active.archive, why),
                None => self.snapshots.push(one.active.archive.to_string()),
            }
        }
        for (key, error) in &stored.unfit {
            self.leave_out(key, error_chain(error));
        }
    }

    fn leave_out(&mut self, snapshot: &impl ToString, why: impl Into<String>) {
        self.left_out.push(UnprovenSnapshot {
            snapshot: snapshot.to_string(),
            why: why.into(),
        });
    }
}

/// A document and what takes its place.
struct Replacement<D> {
    damaged: DamagedDocument,
    with: D,
}

/// What is wrong with the documents of a directory.
struct DirRepair {
    repair: Repair,
    repo: Option<Replacement<RepoDocument>>,
    gc: Option<Replacement<GcDocument>>,
    index: Option<Replacement<SnapshotIndex>>,
    /// By what the chunks of snapshots were judged.
    judged_by: GcState,
}

/// What a document is, or why it must be made anew; a store that does not answer, and what another build wrote, are errors.
fn damage<D>(read: Result<Option<D>, ReadError>) -> Result<Result<Option<D>, String>, Error> {
    match read {
        Ok(found) => Ok(Ok(found)),
        Err(error) if error.is_of_another_build() => Err(error.into()),
        Err(error) => {
            let error = Error::from(error);
            if is_damage(&error) {
                Ok(Err(error_chain(&error)))
            } else {
                Err(error)
            }
        }
    }
}

fn overtaken(key: &Key) -> Error {
    let said = format!("`{key}` was written by somebody else meanwhile");
    let failure = Failure::of(ErrorKind::Retry, said);
    failure
        .with_hint("it was left as it is; run the repair again")
        .into()
}

impl DirRepo<'_> {
    /// What of the documents of this subject must be made anew. Nothing is changed.
    pub async fn plan_repair(self) -> Result<Repair, Error> {
        Ok(self.find_repairs(self.rng.op_id()).await?.repair)
    }

    /// Makes the documents of this subject anew that are damaged or lost.
    #[tracing::instrument(skip_all, err(level = "info"))]
    ///
    /// Snapshots that cannot be proven to come back would be let go of, and gone with the next gc: not unless that was said.
    pub async fn repair(self, actor: &Label, leave_out: bool) -> Result<Repair, Error> {
        self.store().ensure_trusted().await?;
        let (root, op_id) = (self.root(), self.rng.op_id());
        let found = self.find_repairs(op_id).await?;
        let mut repair = found.repair;
        if repair.documents.is_empty() {
            return Ok(repair);
        }
        if let Some(one) = repair.left_out.first().filter(|_| !leave_out) {
            let said = format!(
                "snapshot `{}` cannot be proven to come back: {}",
                one.snapshot, one.why
            );
            let hint = "bring back what it lacks from a copy of the store first; or say --leave-out: a new index does not lead to such snapshots, and the next gc removes them";
            let failure = Failure::of(ErrorKind::Limit, said);
            return Err(failure.with_hint(hint).into());
        }
        let mut kept = Vec::new();
        if let Some(one) = &found.repo {
            kept.push(self.replaced(one, op_id, |repo| repo.op_id).await?);
        }
        if let Some(one) = &found.gc {
            kept.push(self.replaced(one, op_id, |gc| gc.op_id).await?);
        }
        if let Some(one) = &found.index {
            // A gc that began since then may condemn what a manifest names that was not there when it looked.
            if self.gc_now(&root).await? != found.judged_by {
                return Err(overtaken(&root.layout().gc()));
            }
            kept.push(self.replaced(one, op_id, |index| index.op_id).await?);
        }
        for (document, kept) in repair.documents.iter_mut().zip(kept) {
            document.kept = kept.map(|key| key.to_string());
        }
        let tenant = root
            .layout()
            .directory()
            .map_or_else(log, |(tenant, _)| tenant);
        self.log_repair(&mut repair, op_id, tenant, actor).await;
        Ok(repair)
    }

    async fn gc_now(self, root: &Root) -> Result<GcState, Error> {
        let found = root.gc().await?;
        Ok(found.map_or_else(GcState::empty, |found| found.value))
    }

    async fn find_repairs(self, op_id: OpId) -> Result<DirRepair, Error> {
        let root = self.root();
        let mut finding = FindingRepairs {
            dirs: self,
            repair: Repair::of(self.root_name(&root)),
            root,
            op_id,
        };
        let repo = finding.repo().await?;
        let before = damage(finding.root.gc().await)?.ok().flatten();
        let stored = finding.root.chunks().await?.into_iter();
        let stored: HashSet<ChunkName> = stored.map(|(name, _)| name).collect();
        let newest = stored.iter().map(ChunkName::born).max();
        let (judged_by, gc) = finding.gc(newest.unwrap_or(GcEpoch::FIRST)).await?;
        if before.is_some_and(|before| before.value != judged_by) {
            // What was listed may have been deleted since.
            return Err(overtaken(&finding.root.layout().gc()));
        }
        let is_there = |name: &ChunkName| stored.contains(name) && !judged_by.condemns(name);
        let index = finding.index(&is_there).await?;
        Ok(DirRepair {
            repair: finding.repair,
            repo,
            gc,
            index,
            judged_by,
        })
    }
}

/// A look at the documents of a directory, one after the other.
struct FindingRepairs<'a> {
    dirs: DirRepo<'a>,
    root: Root,
    op_id: OpId,
    repair: Repair,
}

impl FindingRepairs<'_> {
    /// Notes a document that must be made anew.
    async fn damaged(&mut self, key: Key, why: &str) -> Result<DamagedDocument, Error> {
        let damaged = DamagedDocument::look(&*self.dirs.bucket, key).await?;
        self.repair.add(&damaged, why);
        Ok(damaged)
    }

    async fn repo(&mut self) -> Result<Option<Replacement<RepoDocument>>, Error> {
        let why = match damage(self.root.repo().await)? {
            Ok(Some(repo)) => {
                repo.check_readable().map_err(Error::UnfitRepo)?;
                return Ok(None);
            }
            Ok(None) => match self.dirs.missing(&self.root).await? {
                Error::LostRepo(_) => String::new(),
                nothing => return Err(nothing),
            },
            Err(why) => why,
        };
        let damaged = self.damaged(self.root.layout().repo_json(), &why).await?;
        if let Ok(Some(_)) = damage(self.root.repo().await)? {
            return Err(overtaken(damaged.key()));
        }
        let with = RepoDocument::new(self.dirs.lineages.now(), self.op_id);
        Ok(Some(Replacement { damaged, with }))
    }

    async fn gc(
        &mut self,
        newest: GcEpoch,
    ) -> Result<(GcState, Option<Replacement<GcDocument>>), Error> {
        let why = match damage(self.root.gc().await)? {
            Ok(Some(found)) => return Ok((found.value, None)),
            Ok(None) if newest == GcEpoch::FIRST => return Ok((GcState::empty(), None)),
            Ok(None) => String::new(),
            Err(why) => why,
        };
        let rebuilt = GcState::rebuilt(newest, self.dirs.lineages.now(), self.op_id);
        let damaged = self.damaged(self.root.layout().gc(), &why).await?;
        if let Ok(Some(_)) = damage(self.root.gc().await)? {
            return Err(overtaken(damaged.key()));
        }
        let with = rebuilt.document();
        Ok((rebuilt, Some(Replacement { damaged, with })))
    }

    async fn index(
        &mut self,
        is_there: &(dyn Fn(&ChunkName) -> bool + Sync),
    ) -> Result<Option<Replacement<SnapshotIndex>>, Error> {
        let (why, with) = match damage(self.root.index().await)? {
            Ok(Some(found)) => {
                let index = found.value;
                let head = index.active.as_ref();
                if head.is_none_or(|head| index.find(head).is_some()) {
                    return Ok(None);
                }
                let why = "leads to a newest snapshot that it does not list".to_owned();
                (why, Some(index.with_a_head(self.op_id)))
            }
            Ok(None) => match self.dirs.index(&self.root).await {
                Err(Error::LostIndex(_)) => (String::new(), None),
                Ok(_) => return Ok(None),
                Err(error) => return Err(error),
            },
            Err(why) => (why, None),
        };
        let damaged = self.damaged(self.root.layout().index(), &why).await?;
        // Whatever was found first: what is replaced is what was looked at last, and that must be damaged too.
        let now = damage(self.root.index().await)?;
        let with = match (with, now) {
            (Some(with), Ok(Some(now))) if now.value.generation.next() == with.generation => with,
            (None, Ok(None) | Err(_)) => self.rebuilt(is_there).await?,
            _ => return Err(overtaken(damaged.key())),
        };
        let ids = with.snapshots.iter().map(|one| one.id.to_string());
        self.repair.snapshots = ids.collect();
        self.repair.latest = with.active.as_ref().map(ToString::to_string);
        Ok(Some(Replacement { damaged, with }))
    }

    /// An index of every snapshot that can be proven to come back.
    async fn rebuilt(
        &mut self,
        is_there: &(dyn Fn(&ChunkName) -> bool + Sync),
    ) -> Result<SnapshotIndex, Error> {
        let mut proven = Vec::new();
        for id in self.root.manifest_ids().await? {
            let (manifest, digest) = match damage(self.root.manifest(&id).await)? {
                Ok(Some(found)) => found,
                // Removed since it was listed.
                Ok(None) => continue,
                Err(why) => {
                    self.repair.leave_out(&id, why);
                    continue;
                }
            };
            let read = match references::list_of(&manifest) {
                Ok(list) => {
                    let manifest = manifest.clone();
                    let opened = OpenedSnapshot { manifest, list };
                    self.dirs.read_as_restore(&self.root, opened).await
                }
                Err(error) => Err(error),
            };
            let chunks = match read {
                Ok(chunks) => chunks,
                Err(error) if is_damage(&error) => {
                    self.repair.leave_out(&id, error_chain(&error));
                    continue;
                }
                Err(error) => return Err(error),
            };
            match chunks.iter().find(|chunk| !is_there(&chunk.name)) {
                Some(lost) => {
                    let why = format!("chunk {} is missing", lost.name);
                    self.repair.leave_out(&id, why);
                }
                None => proven.push((manifest, digest)),
            }
        }
        Ok(SnapshotIndex::rebuilt(
            proven,
            self.dirs.lineages.now(),
            self.op_id,
        ))
    }
}

impl Profiles<'_> {
    /// What of the documents of a lineage must be made anew. Nothing is changed.
    pub async fn plan_repair(self, lineage: &Lineage) -> Result<Repair, Error> {
        Ok(self.find_repairs(lineage, self.rng.op_id()).await?.repair)
    }

    /// Makes the pointer and the lock of a lineage anew if they are damaged or lost.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %lineage))]
    pub async fn repair(self, lineage: &Lineage, actor: &Label) -> Result<Repair, Error> {
        self.store().ensure_trusted().await?;
        let op_id = self.rng.op_id();
        let found = self.find_repairs(lineage, op_id).await?;
        let mut repair = found.repair;
        if repair.documents.is_empty() {
            return Ok(repair);
        }
        let mut kept = Vec::new();
        if let Some(one) = &found.pointer {
            kept.push(self.replaced(one, op_id, |pointer| pointer.op_id).await?);
        }
        if let Some(one) = &found.lock {
            kept.push(self.replaced(one, op_id, |lock| lock.write_id).await?);
        }
        for (document, kept) in repair.documents.iter_mut().zip(kept) {
            document.kept = kept.map(|key| key.to_string());
        }
        let tenant = lineage.tenant.clone();
        self.log_repair(&mut repair, op_id, tenant, actor).await;
        Ok(repair)
    }

    async fn find_repairs(self, lineage: &Lineage, op_id: OpId) -> Result<LineageRepair, Error> {
        let mut repair = Repair::of(format!("profile:{lineage}"));
        let stored = LineageSnapshots::of(&*self.bucket, lineage).all().await?;
        let leases = stored.snapshots.iter().map(|one| one.manifest.lease_epoch);
        let lock = damage(self.lineages.lock(lineage).await)?;
        let lock_epoch = lock.as_ref().ok().and_then(|lock| lock.as_ref());
        let lock_epoch = lock_epoch.map(|lock| lock.value.epoch);
        let epoch = leases.chain(lock_epoch).max().unwrap_or_default();
        let pointer_key = layout::pointer(lineage);
        let (pointer, fence) = match damage(self.lineages.pointer(lineage).await)? {
            Ok(found) => (
                None,
                found.map(|found| found.value.fence).unwrap_or_default(),
            ),
            Err(why) => {
                let damaged = DamagedDocument::look(&*self.bucket, pointer_key).await?;
                if damage(self.lineages.pointer(lineage).await)?.is_ok() {
                    return Err(overtaken(damaged.key()));
                }
                repair.add(&damaged, &why);
                let newest = newest_of(&stored.snapshots);
                if newest.is_none() && !stored.is_nothing() {
                    return Err(nothing_usable(lineage));
                }
                let with = Pointer::rebuilt(
                    newest.map(|one| one.active.clone()),
                    epoch,
                    op_id,
                    self.lineages.now(),
                );
                repair.latest = with.active_archive().map(|archive| archive.to_string());
                let fence = with.fence;
                (Some(Replacement { damaged, with }), fence)
            }
        };
        if pointer.is_some() {
            repair.tell_of(&stored);
        }
        let lock = match lock {
            Ok(_) => None,
            Err(why) => {
                let damaged = DamagedDocument::look(&*self.bucket, layout::lock(lineage)).await?;
                if damage(self.lineages.lock(lineage).await)?.is_ok() {
                    return Err(overtaken(damaged.key()));
                }
                repair.add(&damaged, &why);
                let with = Lock::made_anew(fence, op_id, self.lineages.now());
                Some(Replacement { damaged, with })
            }
        };
        Ok(LineageRepair {
            repair,
            pointer,
            lock,
        })
    }
}

/// What is wrong with the documents of a lineage.
struct LineageRepair {
    repair: Repair,
    pointer: Option<Replacement<Pointer>>,
    lock: Option<Replacement<Lock>>,
}

fn nothing_usable(lineage: &Lineage) -> Error {
    let said = format!("no snapshot of `{lineage}` can be used");
    let hint = "bring its archives and manifests back from the bucket's versions or a copy first; nothing was changed";
    let failure = Failure::of(ErrorKind::Corrupt, said);
    failure.with_hint(hint).into()
}

/// Why a snapshot is not one to go on from.
fn unusable(one: &StoredSnapshot) -> Option<&'static str> {
    if one.archive_size.is_none() {
        return Some("its archive is missing");
    }
    let is_damaged = !one.manifest.damaged_databases.is_empty();
    is_damaged.then_some("its save found damaged databases, and did not publish it")
}

/// The snapshot that the last owner made.
fn newest_of(all: &[StoredSnapshot]) -> Option<&StoredSnapshot> {
    let usable = all.iter().filter(|one| unusable(one).is_none());
    usable.max_by_key(|one| (one.manifest.lease_epoch, one.manifest.captured_at_ms))
}

impl crate::open::Engine {
    /// Puts a document in the place of a damaged one; says where that is kept.
    async fn replaced<D: Document>(
        &self,
        one: &Replacement<D>,
        op_id: OpId,
        written_by: impl Fn(&D) -> OpId,
    ) -> Result<Option<Key>, Error> {
        let Replacement { damaged, with } = one;
        let (kept, swap) = damaged.replace(&*self.bucket, op_id, with).await?;
        if matches!(swap, Swap::Won(_)) {
            return Ok(kept);
        }
        // Lost, perhaps to our own request, or without an answer: what is there decides.
        let now = read::<D>(&*self.bucket, damaged.key()).await?;
        match now.filter(|now| written_by(&now.value) == written_by(with)) {
            Some(_) => Ok(kept),
            None => Err(overtaken(damaged.key())),
        }
    }

    async fn log_repair(&self, repair: &mut Repair, op_id: OpId, tenant: TenantId, actor: &Label) {
        repair.op_id = Some(op_id);
        let events = self.events();
        let mut event: AuditEvent = events.event(EventKind::Repaired, Severity::Warning, actor);
        event.op_id = Some(op_id);
        let documents = serde_json::to_value(&repair.documents).unwrap_or_default();
        let left_out = serde_json::to_value(&repair.left_out).unwrap_or_default();
        let event = event
            .with("subject", repair.subject.clone())
            .with("documents", documents)
            .with("left_out", left_out);
        let warning = events.record(&tenant, event).await;
        repair.warnings.extend(warning);
    }
}

/// Subjects whose documents went back, and are believed again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct AcceptedRollback {
    /// Which.
    pub subjects: Vec<String>,
}

impl crate::open::Engine {
    /// Believes every document of the store again, also those of which this host has seen later ones.
    pub async fn accept_rollback_of_all(&self, actor: &Label) -> Result<AcceptedRollback, Error> {
        let mut subjects = Vec::new();
        for layout in roots::directories(&self.bucket, None).await? {
            let engine = self.rooted(layout);
            subjects.extend(engine.dirs().accept_rollback(actor).await?.subjects);
        }
        for lineage in profiles::lineages(&*self.bucket, None).await? {
            let accepted = self.profiles().accept_rollback(&lineage, actor).await?;
            subjects.extend(accepted.subjects);
        }
        Ok(AcceptedRollback { subjects })
    }

    async fn accepted(
        &self,
        subject: String,
        key: &Key,
        tenant: &TenantId,
        actor: &Label,
    ) -> Result<AcceptedRollback, Error> {
        let was_seen = self.accept(&subject, key, tenant, actor).await?;
        let subjects = was_seen.then_some(subject).into_iter().collect();
        Ok(AcceptedRollback { subjects })
    }
}

impl DirRepo<'_> {
    /// Believes the index of this subject again, although this host has seen a later one.
    pub async fn accept_rollback(self, actor: &Label) -> Result<AcceptedRollback, Error> {
        let root = self.root();
        let known = root.layout().directory();
        let subject = match &known {
            Some((_, id)) => format!("{DIR_PREFIX}{id}"),
            None => self.root_name(&root),
        };
        let tenant = known.map_or_else(log, |(tenant, _)| tenant);
        let key = root.layout().index();
        self.accepted(subject, &key, &tenant, actor).await
    }
}

impl Profiles<'_> {
    /// Believes the pointer of a lineage again, although this host has seen a later one.
    pub async fn accept_rollback(
        self,
        lineage: &Lineage,
        actor: &Label,
    ) -> Result<AcceptedRollback, Error> {
        let (subject, key) = (format!("profile:{lineage}"), layout::pointer(lineage));
        self.accepted(subject, &key, &lineage.tenant, actor).await
    }
}
