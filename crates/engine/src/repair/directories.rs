//! The documents of a directory and of its pool, made anew from metadata and chunks.

use super::{NewDocument, Repair, overtaken};
use crate::catalog::pool::encrypted;
use crate::catalog::references::{damage, is_damage};
use crate::check::{Remedy, log};
use crate::error::{EncryptionError, Error, ErrorKind, error_chain};
use crate::handle::DirRepo;
use crate::seen::Memory;
use stasis_model::digest::ManifestDigest;
use stasis_model::failure::Failure;
use stasis_model::format::key::KeyOwner;
use stasis_model::format::manifest::{RepoDocument, SnapshotIndex, StoredManifest};
use stasis_model::id::{Label, OpId, SnapshotId};
use stasis_model::protocol::gc::{ChunkName, GcDocument, GcEpoch, GcState};
use stasis_store::documents::repair::DamagedDocument;
use stasis_store::documents::roots::Root;
use stasis_store::layout::Key;
use std::collections::HashSet;

/// What is wrong with the documents of a directory.
struct DirRepair {
    repair: Repair,
    repo: Option<NewDocument<RepoDocument>>,
    gc: Option<NewDocument<GcDocument>>,
    index: Option<NewDocument<SnapshotIndex>>,
    /// By what the chunks of snapshots were judged.
    judged_by: GcState,
}

impl DirRepo<'_> {
    /// What of the documents of this subject must be made anew. Nothing is changed.
    pub async fn plan_repair(self) -> Result<Repair, Error> {
        let mut repair = self.find_repairs(self.rng.op_id()).await?.repair;
        repair.leaves_over(self.damage_here().await)?;
        Ok(repair)
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
            repair.leaves_over(self.damage_here().await)?;
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
        repair.leaves_over(self.damage_here().await)?;
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

/// How an index is made anew.
enum IndexCure {
    /// From the snapshots alone: nothing of it can be read.
    Rebuild,
    /// From the snapshots and from this one, which is an earlier one that came back.
    Rollback(Box<SnapshotIndex>),
    /// It is this one, with another newest snapshot.
    Head(Box<SnapshotIndex>),
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

    async fn repo(&mut self) -> Result<Option<NewDocument<RepoDocument>>, Error> {
        let why = match damage(self.root.repo().await)? {
            Ok(Some(_)) => {
                self.dirs.settings(&self.root).await?;
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
        let with = self.new_repo().await?;
        Ok(Some(NewDocument { damaged, with }))
    }

    /// What a pool says that lost its `repo.json`: never that it is plain where anything encrypted lies, and never a new key.
    async fn new_repo(&self) -> Result<RepoDocument, Error> {
        let new = RepoDocument::new(self.dirs.lineages.now(), self.op_id);
        let owner = KeyOwner::from(self.root.layout().pool_id());
        let key = match self.dirs.key_document(&owner).await? {
            Some(_) => Some(self.dirs.data_key(&owner).await?),
            None => None,
        };
        let cipher = key.as_ref().map(|key| key.pool());
        let dirs = self.dirs;
        let found = dirs.evidence(&self.root, cipher.as_ref(), |_| false);
        let found = found.await?;
        if let Some(stranger) = found.stranger {
            return Err(stranger.into());
        }
        if let Some(key) = key {
            found.fit().ensure(owner)?;
            return Ok(encrypted(new, &key));
        }
        if found.is_encrypted {
            return Err(EncryptionError::NoKey(owner).into());
        }
        if self.dirs.has_tenant_key() {
            return Err(EncryptionError::Plain(owner).into());
        }
        let pool = self.root.layout().pool_id();
        self.dirs.ensure_may_be_plain(&pool).await?;
        Ok(new)
    }

    async fn gc(
        &mut self,
        newest: GcEpoch,
    ) -> Result<(GcState, Option<NewDocument<GcDocument>>), Error> {
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
        Ok((rebuilt, Some(NewDocument { damaged, with })))
    }

    async fn index(
        &mut self,
        is_there: &(dyn Fn(&ChunkName) -> bool + Sync),
    ) -> Result<Option<NewDocument<SnapshotIndex>>, Error> {
        let memory = self.dirs.memory_of_index(&self.root).await;
        let (why, cure) = match damage(self.root.index().await)? {
            Ok(Some(found)) => match self.cure_of(found.value, memory).await? {
                Some(found) => found,
                None => return Ok(None),
            },
            Ok(None) => match self.dirs.index(&self.root).await {
                Err(Error::LostIndex(_)) => (String::new(), IndexCure::Rebuild),
                Ok(_) => return Ok(None),
                Err(error) => return Err(error),
            },
            Err(why) => (why, IndexCure::Rebuild),
        };
        let damaged = self.damaged(self.root.layout().index(), &why).await?;
        // Whatever was found first: what is replaced is what was looked at last, and that must be damaged too.
        let now = damage(self.root.index().await)?;
        let with = match (cure, now) {
            (IndexCure::Head(old), Ok(Some(now))) if now.value == *old => {
                old.with_a_head(self.op_id)
            }
            (IndexCure::Rollback(old), Ok(Some(now))) if now.value == *old => {
                self.rebuilt(is_there, Some(&old)).await?
            }
            (IndexCure::Rebuild, Ok(None) | Err(_)) => self.rebuilt(is_there, None).await?,
            _ => return Err(overtaken(damaged.key())),
        };
        let ids = with.snapshots.iter().map(|one| one.id.to_string());
        self.repair.snapshots = ids.collect();
        self.repair.latest = with.active.as_ref().map(ToString::to_string);
        Ok(Some(NewDocument { damaged, with }))
    }

    /// Why an index that can be read must be made anew all the same, and how, if it must.
    async fn cure_of(
        &self,
        index: SnapshotIndex,
        memory: Memory,
    ) -> Result<Option<(String, IndexCure)>, Error> {
        // A pool whose own document must be made anew begins anew, and of its indexes nothing is remembered.
        if let Ok(Some(repo)) = damage(self.root.repo().await)?
            && let Some(back) = memory.index_went_back(&repo, &index).await
        {
            let newer = self.dirs.newer_snapshots(&self.root, &index).await?;
            if Remedy::for_rollback(&newer) == Remedy::Repair {
                let why = back.said(&newer);
                return Ok(Some((why, IndexCure::Rollback(Box::new(index)))));
            }
        }
        let head = index.active.as_ref();
        if head.is_none_or(|head| index.find(head).is_some()) {
            return Ok(None);
        }
        let why = "leads to a newest snapshot that it does not list".to_owned();
        Ok(Some((why, IndexCure::Head(Box::new(index)))))
    }

    /// The metadata of what may be a snapshot that a new index leads to.
    async fn candidate(
        &mut self,
        id: &SnapshotId,
        earlier: Option<&SnapshotIndex>,
    ) -> Result<Option<(StoredManifest, ManifestDigest)>, Error> {
        // What was forgotten stays so.
        if earlier.is_some_and(|earlier| earlier.tombstones.contains_key(id)) {
            return Ok(None);
        }
        let (stored, digest) = match damage(self.root.manifest(id).await)? {
            // Removed since it was listed; or what a save had stored before it was over, which was never a snapshot.
            Ok(None | Some((StoredManifest::Provisional(_), _))) => return Ok(None),
            Ok(Some(found)) => found,
            Err(why) => {
                self.repair.leave_out(id, why);
                return Ok(None);
            }
        };
        match earlier.map(|earlier| (earlier, earlier.find(id))) {
            Some((_, Some(row))) if row.manifest_sha256 != digest => {
                let why = "its metadata are not those that the index leads to";
                self.repair.leave_out(id, why);
                Ok(None)
            }
            // What a killed save left was never a snapshot.
            Some((earlier, None)) if !earlier.may_have_published(&stored) => Ok(None),
            _ => Ok(Some((stored, digest))),
        }
    }

    /// An index of every snapshot that can be proven to come back: of those that an earlier index leads to, if that is what there is,
    /// and of those that may have been published after it.
    async fn rebuilt(
        &mut self,
        is_there: &(dyn Fn(&ChunkName) -> bool + Sync),
        earlier: Option<&SnapshotIndex>,
    ) -> Result<SnapshotIndex, Error> {
        // Without the key nothing can be proven, and that is no fault of the snapshots.
        self.dirs.codec(&self.root).await?;
        let ids = self.root.manifest_ids().await?;
        let listed = earlier.iter().flat_map(|earlier| &earlier.snapshots);
        for one in listed.filter(|one| !ids.contains(&one.id)) {
            self.repair.leave_out(&one.id, "its metadata are missing");
        }
        let mut proven = Vec::new();
        for id in ids {
            let Some((stored, digest)) = self.candidate(&id, earlier).await? else {
                continue;
            };
            let read = match self.dirs.understand(&self.root, stored).await {
                Ok(opened) => {
                    let manifest = opened.manifest.clone();
                    let chunks = self.dirs.read_as_restore(&self.root, opened).await;
                    chunks.map(|chunks| (manifest, chunks))
                }
                Err(error) => Err(error),
            };
            let (manifest, chunks) = match read {
                Ok(read) => read,
                // What is wrong with the whole pool is no fault of a snapshot.
                Err(Error::Encryption(error)) if !error.is_of_one_snapshot() => {
                    return Err(Error::Encryption(error));
                }
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
        let (now, op_id) = (self.dirs.lineages.now(), self.op_id);
        Ok(match earlier {
            Some(earlier) => earlier.rebuilt_with(proven, now, op_id),
            None => SnapshotIndex::rebuilt(proven, now, op_id),
        })
    }
}
