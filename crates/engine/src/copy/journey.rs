//! A directory on its way from one store into another, snapshot by snapshot.

use super::{CopiedSubject, DAMAGED, KEY_HERE, KEY_THERE, NOTHING, with_key_hint};
use crate::bridge;
use crate::catalog::pool::closed;
use crate::catalog::port::ChunkFetcher;
use crate::catalog::references::{self, References};
use crate::catalog::{OpenedSnapshot, ensure_writable};
use crate::error::{Error, ErrorKind};
use crate::handle::DirRepo;
use crate::open::Engine;
use crate::save::{ATTEMPTS, Donors, LongSave, Naming, StoringPlace, gc_of, may_borrow};
use crate::subjects::DIR_PREFIX;
use stasis_disk::form::chunked::copy::{self, CopiedList, CopyParts};
use stasis_disk::form::chunked::list::root_of;
use stasis_disk::form::chunked::{ChunkCodec, ChunkError};
use stasis_disk::progress::Progress;
use stasis_model::digest::ChunkDigest;
use stasis_model::failure::Failure;
use stasis_model::format::manifest::{
    Indexed, Publish, RepoDocument, SnapshotIndex, SnapshotManifest, StoredManifest,
};
use stasis_model::id::{ProjectId, SnapshotId, SubjectName, TenantId};
use stasis_model::protocol::gc::{ChunkName, SaveAnswer, SaveGuard};
use stasis_model::tree::list::ListRoot;
use stasis_store::documents::roots::Root;
use stasis_store::layout::ChunkRoot;
use std::collections::HashMap;
use std::sync::Arc;

/// The snapshot of the target that the next one shares chunks and sections with.
#[derive(Default)]
struct Previous {
    id: Option<SnapshotId>,
    names: HashMap<ChunkDigest, ChunkName>,
    /// What this copy has put or seen itself, by what it is called in the source.
    moved: HashMap<ChunkName, ChunkName>,
    list: ListRoot,
}

impl Previous {
    fn name_of(&self, digest: &ChunkDigest, guard: &SaveGuard) -> Option<ChunkName> {
        usable(*self.names.get(digest)?, guard)
    }

    fn moved_to(&self, name: &ChunkName, guard: &SaveGuard) -> Option<ChunkName> {
        usable(*self.moved.get(name)?, guard)
    }
}

/// A name that a snapshot has, unless it is condemned.
fn usable(name: ChunkName, guard: &SaveGuard) -> Option<ChunkName> {
    (guard.place(name.digest(), Some(name)) == name).then_some(name)
}

/// A directory on its way from one store into another.
pub(super) struct Journey<'j> {
    from: DirRepo<'j>,
    source: Root,
    to: DirRepo<'j>,
    target: Root,
    name: SubjectName,
    repo: RepoDocument,
    /// How chunks are named and stored in the target.
    codec: ChunkCodec,
    /// The index of the source, when it was read.
    wanted: SnapshotIndex,
    progress: Arc<Progress>,
    previous: Arc<Previous>,
    pub(super) copied: CopiedSubject,
}

impl<'j> Journey<'j> {
    /// From the directory that one engine is about to the one that the other is about.
    pub(super) async fn begin(
        from: &'j Engine,
        to: &'j Engine,
        tenant: &TenantId,
        id: &ProjectId,
        progress: Arc<Progress>,
    ) -> Result<Self, Error> {
        let (from, to) = (from.dirs(), to.dirs());
        let (source, target) = (from.root(), to.root());
        let repo = from.settings(&source).await?;
        let wanted = from.believed_index(&source, &repo).await?;
        if wanted.snapshots.is_empty() {
            let said = format!(
                "nothing is saved of `{DIR_PREFIX}{id}` in `{}`",
                from.location()
            );
            let failure = Failure::of(ErrorKind::NotFound, said);
            return Err(failure.with_hint(NOTHING).into());
        }
        // Whoever cannot read it makes no pool for it, which would be a plain one.
        let readable = from.codec_of(&source, &repo).await;
        readable.map_err(|error| with_key_hint(error, KEY_HERE))?;
        to.store().ensure_trusted().await?;
        to.ensure_pool().await?;
        let repo = to.settings(&target).await?;
        ensure_writable(&repo)?;
        let codec = to.codec_of(&target, &repo).await;
        let codec = codec.map_err(|error| with_key_hint(error, KEY_THERE))?;
        if !repo.is_encrypted() {
            to.ensure_may_be_plain(&target.layout().pool_id()).await?;
        }
        let name = id.as_str().parse();
        Ok(Self {
            from,
            source,
            to,
            target,
            name: name.expect("the names of directories and of subjects follow one rule"),
            repo,
            codec,
            wanted,
            progress,
            previous: Arc::default(),
            copied: CopiedSubject::new(format!("{DIR_PREFIX}{id}"), tenant.clone()),
        })
    }

    /// Copies what the target does not have. A snapshot that cannot be copied ends it: what comes after it would never be
    /// followed by it.
    pub(super) async fn go(&mut self) -> Result<(), Error> {
        let there = self.to.believed_index(&self.target, &self.repo).await?;
        let rest = self.left_to_copy(&there)?;
        let is_there = |row: &&Indexed| copy_of(&there, &row.id).is_some();
        let count = self.wanted.snapshots.iter().filter(is_there).count() as u64;
        self.copied.snapshots_there = count;
        let all = self.wanted.snapshots.len() as u64;
        self.copied.snapshots_left = all - count - rest.len() as u64;
        if rest.is_empty() {
            return Ok(());
        }
        self.choose(&there).await?;
        self.previous = Arc::new(self.last_copied(&there).await?);
        for row in &rest {
            self.copy_snapshot(row).await?;
        }
        Ok(())
    }

    /// The snapshots that are newer than what was copied before. A target that is not a copy of the source is refused.
    fn left_to_copy(&self, there: &SnapshotIndex) -> Result<Vec<Indexed>, Error> {
        let wanted = &self.wanted;
        if there.deleted_at_ms.is_some() {
            return Err(self.diverged("was deleted there"));
        }
        let has_original = |one: &Indexed| wanted.snapshots.iter().any(|row| is_copy_of(one, row));
        let is_of_this_life = |one: &Indexed| {
            let copied = one.copied_from.as_ref();
            copied.is_some_and(|copied| copied.incarnation == wanted.incarnation)
        };
        let mut rows = there.snapshots.iter();
        if let Some(own) = there.saved_here() {
            return Err(self.diverged(&format!("has snapshot `{}` of its own", own.id)));
        }
        if !there.snapshots.is_empty() && !rows.any(|one| has_original(one) || is_of_this_life(one))
        {
            return Err(self.diverged("is a copy of another directory"));
        }
        let is_copied = |row: &Indexed| there.snapshots.iter().any(|one| is_copy_of(one, row));
        let newest = wanted.snapshots.iter().rposition(is_copied);
        // Where everything that was copied is forgotten in one of the two, its time tells what is newer.
        let last = there.snapshots.iter().map(|one| one.at_ms).max();
        let is_newer = |(at, row): &(usize, &Indexed)| match newest {
            Some(newest) => *at > newest,
            None => last.is_none_or(|last| row.at_ms > last),
        };
        let rest = wanted.snapshots.iter().enumerate().filter(is_newer);
        Ok(rest.map(|(_, row)| row.clone()).collect())
    }

    fn diverged(&self, why: &str) -> Error {
        let (name, store) = (&self.copied.subject, self.to.location());
        let said = format!("`{name}` in `{store}` {why}: nothing was copied into it");
        let hint = "copy it under another name, with --as NAME";
        let failure = Failure::of(ErrorKind::Diverged, said);
        failure.with_hint(hint).into()
    }

    /// What the newest snapshot that was copied before has.
    async fn last_copied(&self, there: &SnapshotIndex) -> Result<Previous, Error> {
        let Some(row) = there.snapshots.last() else {
            return Ok(Previous::default());
        };
        match self.read_copy(there, &row.id).await {
            // What cannot be read helps nobody; what it shares is stored again.
            Err(error) if references::is_damage(&error) => Ok(Previous::default()),
            read => read,
        }
    }

    async fn read_copy(&self, there: &SnapshotIndex, id: &SnapshotId) -> Result<Previous, Error> {
        let opened = self.to.open_snapshot(&self.target, there, id).await?;
        let (source, list) = (self.there(), opened.list);
        let read = bridge::blocking(move || {
            let mut references = References::default();
            references.add(&source, &list)?;
            Ok::<_, ChunkError>((references, root_of(&source, &list)?))
        });
        let (references, list) = read.await?;
        let names = references.names().iter();
        Ok(Previous {
            id: Some(id.clone()),
            names: names.map(|name| (name.digest(), *name)).collect(),
            moved: HashMap::new(),
            list,
        })
    }

    /// Copies one snapshot. One that is forgotten in the source meanwhile is passed over.
    async fn copy_snapshot(&mut self, row: &Indexed) -> Result<(), Error> {
        for attempt in 1.. {
            let error = match Box::pin(self.try_snapshot(row)).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if let Error::SaveGaveUp(why) = error
                && attempt < ATTEMPTS
            {
                tracing::info!(why, "once more");
                continue;
            }
            // A full disk and a limit are no damage.
            if error.kind() != ErrorKind::Corrupt {
                return Err(error);
            }
            let now = self.from.index(&self.source).await?;
            if now.find(&row.id).is_none() {
                tracing::info!(snapshot = %row.id, "forgotten while it was copied");
                return Ok(());
            }
            let error = self.from.blame(&self.source, Some(&row.id), error).await;
            let failure = Failure::new(error.kind(), "copy snapshot", &row.id).because(error);
            return Err(failure.with_hint(DAMAGED).into());
        }
        Ok(())
    }

    async fn try_snapshot(&mut self, row: &Indexed) -> Result<(), Error> {
        let opened = self.from.open_snapshot(&self.source, &self.wanted, &row.id);
        let opened = opened.await?;
        let mut guard = SaveGuard::new();
        let _ = guard.next(SaveAnswer::Begin);
        let gc = gc_of(&self.target).await?;
        let may_borrow = may_borrow(&self.target, &gc);
        let _ = guard.next(SaveAnswer::Gc(gc));
        let index = self.to.living_index(&self.target, &self.repo).await?;
        if let Some(own) = index.saved_here() {
            return Err(self.diverged(&format!("has snapshot `{}` of its own", own.id)));
        }
        if copy_of(&index, &row.id).is_some() {
            // By somebody else, or by a request of ours that was believed to be lost.
            self.copied.snapshots_there += 1;
            return Ok(());
        }
        let is_live = |id: &SnapshotId| index.find(id).is_some();
        if !self.previous.id.as_ref().is_some_and(is_live) {
            self.previous = Arc::default();
        }
        let donors = may_borrow.then(|| self.donors(&index));
        let place = StoringPlace {
            root: &self.target,
            repo: &self.repo,
            codec: &self.codec,
            index: &index,
            quotas: None,
            reason: opened.manifest.reason,
        };
        let storing = self.to.storing(place, &guard, donors).await?;
        let list = match self.copy_tree(&opened, &guard, &storing).await {
            Ok(list) => list,
            Err(error) => {
                storing.abandon().await;
                storing.give_up(&error).await;
                return Err(error);
            }
        };
        let manifest = self.manifest(&opened.manifest, &index, &list);
        let published = match self.settled(&manifest, &list, &storing).await {
            Ok(stored) => self.publish(&manifest, &stored, &index, row).await,
            Err(error) => Err(error),
        };
        if let Err(error) = published {
            storing.give_up(&error).await;
            return Err(error);
        }
        storing.remove_documents().await;
        for name in &storing.healed() {
            self.target.release(name).await?;
        }
        self.to
            .remember_donor(&self.target, &self.repo, &manifest.snapshot_id)
            .await;
        self.copied.snapshots += 1;
        self.copied.objects += list.chunks_new;
        self.copied.bytes += list.bytes_stored;
        self.remember(&manifest, list).await;
        Ok(())
    }

    /// Puts the manifest of a copy, and makes sure that no sweep can hurt what it names.
    async fn settled(
        &self,
        manifest: &SnapshotManifest,
        list: &CopiedList,
        storing: &LongSave,
    ) -> Result<StoredManifest, Error> {
        storing.finish().await?;
        storing.ensure_room().await?;
        let stored = closed(&self.target, &self.codec, manifest, &list.names);
        let naming = Naming {
            root: &self.target,
            repo: &self.repo,
            guard: &mut storing.guard(),
            names: &list.names,
            donors: storing.donors(),
        };
        self.to.settle(naming, &stored).await?;
        Ok(stored)
    }

    /// The chunks of the target.
    fn there(&self) -> ChunkFetcher {
        ChunkFetcher::new(self.target.clone(), self.codec.clone())
    }

    /// Other subjects of the target whose chunks may be used.
    fn donors(&self, index: &SnapshotIndex) -> Arc<Donors> {
        let (engine, root) = (self.to.engine.clone(), self.target.clone());
        let is_first = index.snapshots.is_empty();
        Arc::new(Donors::new(engine, root, self.repo.clone(), is_first))
    }

    /// Copies the list and the chunks of a snapshot.
    async fn copy_tree(
        &self,
        opened: &OpenedSnapshot,
        guard: &SaveGuard,
        storing: &Arc<LongSave>,
    ) -> Result<CopiedList, Error> {
        let from = ChunkFetcher::new(self.source.clone(), opened.codec.clone());
        let there = self.there();
        let (list, storing) = (opened.list.clone(), storing.clone());
        let (guard, progress) = (guard.clone(), self.progress.clone());
        let previous = self.previous.clone();
        let level = self.repo.compression.level;
        let copied = bridge::blocking(move || {
            let is_damaged = |name: &ChunkName| storing.damaged().contains(name);
            let known = |digest: &ChunkDigest| previous.name_of(digest, &guard);
            let held = |name: &ChunkName| {
                let moved = previous.moved_to(name, &guard);
                moved.filter(|name| !is_damaged(name))
            };
            let mut parent = previous.list.clone();
            parent
                .sections
                .retain(|place| !is_damaged(&place.slice.chunk.name));
            copy::copy(&CopyParts {
                list: &list,
                from: &from,
                to: &*storing,
                there: &there,
                held: &held,
                known: &known,
                parent: &parent,
                level,
                progress: &progress,
            })
        });
        let copied = copied.await?;
        opened.ensure_tree(copied.digest)?;
        Ok(copied)
    }

    fn manifest(
        &self,
        original: &SnapshotManifest,
        index: &SnapshotIndex,
        list: &CopiedList,
    ) -> SnapshotManifest {
        let id = ChunkRoot::new_id(original.timestamp_ms, &*self.to.rng);
        let op_id = self.to.rng.op_id();
        let mut manifest = original.copied(id, op_id, &list.list, self.wanted.incarnation);
        manifest.name = self.name.clone();
        manifest.incarnation = index.incarnation;
        manifest.lease_epoch = index.fence.epoch;
        let parent = original.parent_snapshot_id.as_ref();
        manifest.parent_snapshot_id = parent.and_then(|parent| copy_of(index, parent));
        manifest
    }

    async fn publish(
        &self,
        manifest: &SnapshotManifest,
        stored: &StoredManifest,
        index: &SnapshotIndex,
        original: &Indexed,
    ) -> Result<(), Error> {
        let mut snapshot = Indexed::of(manifest, stored);
        snapshot.pinned = original.pinned;
        snapshot.labels.clone_from(&original.labels);
        let publish = Publish {
            incarnation: index.incarnation,
            lease: index.fence.epoch,
            base: index.active.clone(),
            snapshot,
            activates: self.becomes_latest(index, original, manifest),
        };
        self.to.publish(&self.target, manifest, publish).await?;
        Ok(())
    }

    /// Remembers what the target has by now, for the next snapshot. What cannot be read of it is stored again with that one: this one
    /// is published.
    async fn remember(&mut self, manifest: &SnapshotManifest, copied: CopiedList) {
        let (source, list) = (self.there(), copied.list);
        let list = match bridge::blocking(move || root_of(&source, &list)).await {
            Ok(list) => list,
            Err(error) => {
                tracing::info!(snapshot = %manifest.snapshot_id, %error, "what was just copied could not be read");
                self.previous = Arc::default();
                return;
            }
        };
        let names = copied.names.iter();
        self.previous = Arc::new(Previous {
            id: Some(manifest.snapshot_id.clone()),
            names: names.map(|name| (name.digest(), *name)).collect(),
            moved: copied.moved,
            list,
        });
    }

    /// Whether `latest` means a copy from now on: that of what it means in the source and, as long as that is not there, the
    /// newest that it could mean.
    fn becomes_latest(
        &self,
        index: &SnapshotIndex,
        original: &Indexed,
        copy: &SnapshotManifest,
    ) -> bool {
        match &self.wanted.active {
            Some(active) if *active == original.id => true,
            Some(active) => copy.may_be_latest() && copy_of(index, active).is_none(),
            None => false,
        }
    }

    /// Lets `latest` mean in the target what it means in the source, if that is there already. It comes before anything new is
    /// published, so that no copy that stops leaves it behind.
    async fn choose(&self, there: &SnapshotIndex) -> Result<(), Error> {
        let active = self.wanted.active.as_ref();
        let chosen = active.and_then(|id| copy_of(there, id));
        if chosen.is_none() || chosen == there.active {
            return Ok(());
        }
        let seen = there.active.as_ref();
        self.to.adopt(&self.target, chosen.as_ref(), seen).await
    }
}

pub(super) fn is_copy_of(copy: &Indexed, original: &Indexed) -> bool {
    let copied = copy.copied_from.as_ref();
    copied.is_some_and(|copied| copied.snapshot_id == original.id)
}

/// The copy of a snapshot, if an index leads to one.
pub(super) fn copy_of(index: &SnapshotIndex, original: &SnapshotId) -> Option<SnapshotId> {
    let mut rows = index.snapshots.iter();
    let found = rows.find(|one| {
        let copied = one.copied_from.as_ref();
        copied.is_some_and(|copied| copied.snapshot_id == *original)
    });
    found.map(|one| one.id.clone())
}
