//! What a long save has stored so far, kept from gc: provisional manifests.
//!
//! Chunks that no manifest names are garbage to a sweep. A save that lasts goes through the steps 3 and 4 of a [save](super)
//! now and then, therefore, with what it has stored since the last time:
//!
//! 1. wait until that is durable   2. put a document that names it   3. read `gc.json` and judge the names
//! 4. go on; what a sweep has overtaken is read and stored again, under another name, before the list is written
//!
//! *Always true:* the documents stay until the save can publish no more; they carry its lease, and publishing raises the
//! fence. So what one of them proved stays proved, and each names only what is new. What becomes of them matters to nobody
//! else: a save that cannot put one goes on, and is judged at its end as if it had not tried. A crash leaves documents that
//! the next publish of the subject makes garbage.

use super::gather::{StoringPlace, gc_of};
use super::{Donors, Naming, words};
use crate::catalog::port::Storing;
use crate::catalog::references;
use crate::error::{Error, ErrorKind};
use crate::handle::DirRepo;
use crate::open::Engine;
use crate::quota::StorageRoom;
use stasis_disk::form::chunked::{
    ChunkCodec, ChunkError, ChunkLook, ChunkSink, EncodedChunk, PlacedChunk,
};
use stasis_model::digest::ChunkDigest;
use stasis_model::format::manifest::{
    PROVISIONAL_NAMES, ProvisionalManifest, RepoDocument, StoredManifest,
};
use stasis_model::id::{Epoch, Incarnation, SnapshotId};
use stasis_model::protocol::gc::{ChunkName, Names, SaveAnswer, SaveGuard, SaveStep};
use stasis_store::documents::roots::Root;
use stasis_store::layout::ChunkRoot;
use std::collections::HashSet;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

/// Stores the chunks of one save, and keeps gc from what it has stored so far.
pub(crate) struct LongSave {
    storing: Storing,
    engine: Engine,
    root: Root,
    repo: RepoDocument,
    donors: Option<Arc<Donors>>,
    /// How much may be stored.
    room: Option<StorageRoom>,
    incarnation: Incarnation,
    lease: Epoch,
    kept: Mutex<Kept>,
}

/// How far a save is kept from gc.
struct Kept {
    /// What is known of gc, and which names are proved.
    guard: SaveGuard,
    /// When the next document is due, by the time since boot.
    due: Duration,
    /// The documents that were put, or may have been.
    documents: Vec<SnapshotId>,
    /// How often in a row it could not be known whether they are safe.
    failed: u32,
}

impl Kept {
    /// How many times the usual interval the next document waits: what could not be judged is named again each time.
    fn intervals(&self) -> u32 {
        1 << self.failed.min(6)
    }
}

impl Deref for LongSave {
    type Target = Storing;

    fn deref(&self) -> &Storing {
        &self.storing
    }
}

impl LongSave {
    /// A save that begins now, into a subject that has this index.
    pub(super) fn new(
        engine: Engine,
        storing: Storing,
        place: StoringPlace<'_>,
        guard: SaveGuard,
        donors: Option<Arc<Donors>>,
    ) -> Self {
        let StoringPlace {
            root, repo, index, ..
        } = place;
        let due = engine
            .clock
            .uptime()
            .saturating_add(engine.provisional_after);
        Self {
            storing,
            engine,
            root: root.clone(),
            repo: repo.clone(),
            donors,
            room: None,
            incarnation: index.incarnation,
            lease: index.fence.epoch,
            kept: Mutex::new(Kept {
                guard,
                due,
                documents: Vec::new(),
                failed: 0,
            }),
        }
    }

    /// Says how much may be stored.
    pub(super) fn within(mut self, room: Option<StorageRoom>) -> Self {
        self.room = room;
        self
    }

    /// Refuses the snapshot if its tenant may not have one more. One that stored something was asked about before that.
    pub(crate) async fn ensure_room(&self) -> Result<(), Error> {
        match &self.room {
            Some(room) => room.take_snapshot().await,
            None => Ok(()),
        }
    }

    /// What is known of gc by now, and which names are proved.
    pub(crate) fn guard(&self) -> SaveGuard {
        self.kept().guard.clone()
    }

    /// Removes the documents of a save that ended in this error, unless it may have been published all the same. A store that does not answer
    /// is not asked again for each of them: they go with the next snapshot of the subject.
    pub(crate) async fn give_up(&self, error: &Error) {
        if !matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unreachable) {
            self.remove_documents().await;
        }
    }

    /// Who has lent names to this save.
    pub(crate) fn donors(&self) -> Option<&Donors> {
        self.donors.as_deref()
    }

    /// Removes the documents of this save, which has been published, and the fence has passed them; or will never be. What cannot be
    /// removed is left to gc.
    pub(crate) async fn remove_documents(&self) {
        let documents = std::mem::take(&mut self.kept().documents);
        for id in documents {
            if let Err(error) = self.root.remove_manifest(&id).await {
                tracing::info!(%id, %error, "a provisional manifest is left to gc");
            }
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a document if it is time; whoever comes while another worker does goes on.
    fn keep_if_due(&self) -> Result<(), ChunkError> {
        match self.kept.try_lock() {
            Ok(mut kept) => self.keep(&mut kept),
            Err(TryLockError::Poisoned(kept)) => self.keep(&mut kept.into_inner()),
            Err(TryLockError::WouldBlock) => Ok(()),
        }
    }

    fn keep(&self, kept: &mut Kept) -> Result<(), ChunkError> {
        if self.engine.clock.uptime() < kept.due {
            return Ok(());
        }
        self.storing.crossing().wait(self.keep_so_far(kept))?;
        let after = self.engine.provisional_after;
        let after = after.saturating_mul(kept.intervals());
        kept.due = self.engine.clock.uptime().saturating_add(after);
        Ok(())
    }

    /// Makes safe what was stored since the last time.
    async fn keep_so_far(&self, kept: &mut Kept) -> Result<(), ChunkError> {
        let names = self.storing.finish().await?;
        if names.is_empty() {
            return Ok(());
        }
        let documents = self.documents(&names);
        let ids = documents.iter().map(|one| one.snapshot_id().clone());
        kept.documents.extend(ids);
        let naming = Naming {
            root: &self.root,
            repo: &self.repo,
            guard: &mut kept.guard,
            names: &names,
            donors: self.donors.as_deref(),
        };
        let gathered = SaveAnswer::GatheredSoFar(names.clone());
        let kept_safe = self.engine.dirs().drive(naming, &documents, gathered).await;
        match kept_safe {
            Ok(overtaken) => {
                tracing::info!(
                    chunks = names.len(),
                    overtaken = overtaken.len(),
                    "what is stored so far is safe"
                );
                kept.failed = 0;
                self.storing.go_on(kept.guard.gc().clone(), &overtaken);
            }
            Err(error) => {
                tracing::warn!(%error, "what is stored so far could not be kept from gc");
                kept.failed += 1;
                kept.guard.go_on_without(&names);
                self.storing.note_again(names);
                self.storing.go_on(kept.guard.gc().clone(), &Names::new());
            }
        }
        Ok(())
    }

    fn documents(&self, names: &Names) -> Vec<StoredManifest> {
        let all: Vec<ChunkName> = names.iter().copied().collect();
        let (now, rng) = (self.engine.lineages.now(), &*self.engine.rng);
        let document = |names: &[ChunkName]| {
            let (id, op_id) = (ChunkRoot::new_id(now, rng), rng.op_id());
            let names = names.iter().copied().collect();
            let document =
                ProvisionalManifest::new(id, op_id, self.incarnation, self.lease, &names);
            StoredManifest::Provisional(Box::new(document))
        };
        all.chunks(PROVISIONAL_NAMES).map(document).collect()
    }
}

#[deny(clippy::missing_trait_methods)]
impl ChunkSink for LongSave {
    fn codec(&self) -> &ChunkCodec {
        self.storing.codec()
    }

    fn place(
        &self,
        digest: ChunkDigest,
        known: Option<ChunkName>,
    ) -> Result<PlacedChunk, ChunkError> {
        self.keep_if_due()?;
        self.storing.place(digest, known)
    }

    fn place_list(
        &self,
        digest: ChunkDigest,
        known: Option<ChunkName>,
    ) -> Result<PlacedChunk, ChunkError> {
        self.keep_if_due()?;
        self.storing.place_list(digest, known)
    }

    fn holds(&self, name: &ChunkName, look: ChunkLook) -> Result<bool, ChunkError> {
        self.storing.holds(name, look)
    }

    /// A short save has put nothing, and is judged at its end only.
    fn overtaken(&self) -> Result<HashSet<ChunkName>, ChunkError> {
        let mut kept = self.kept();
        if !kept.documents.is_empty() {
            kept.due = Duration::ZERO;
        }
        self.keep(&mut kept)?;
        Ok(self.storing.overtaken_names())
    }

    fn put(&self, chunk: EncodedChunk) -> Result<(), ChunkError> {
        self.storing.put(chunk)
    }
}

impl DirRepo<'_> {
    /// Puts documents that name chunks, and goes on until no sweep can hurt what they name.
    ///
    /// Says which names must not be used, because a sweep was faster: at the end of a save, that is an error, and the manifest, which was
    /// never published, is taken away again: a gc that came by it would look for a list that the sweep has taken.
    pub(super) async fn drive(
        self,
        naming: Naming<'_>,
        documents: &[StoredManifest],
        gathered: SaveAnswer,
    ) -> Result<Names, Error> {
        let (root, is_final) = (naming.root, matches!(gathered, SaveAnswer::Gathered(_)));
        let driven = self.drive_on(naming, documents, gathered).await;
        if is_final && matches!(driven, Err(Error::SaveGaveUp(_))) {
            for document in documents {
                let id = document.snapshot_id();
                if let Err(error) = root.remove_manifest(id).await {
                    tracing::info!(%id, %error, "a manifest that was not published is left to gc");
                }
            }
        }
        driven
    }

    async fn drive_on(
        self,
        naming: Naming<'_>,
        documents: &[StoredManifest],
        gathered: SaveAnswer,
    ) -> Result<Names, Error> {
        let Naming {
            root,
            repo,
            guard,
            names,
            donors,
        } = naming;
        let is_final = matches!(gathered, SaveAnswer::Gathered(_));
        let mut overtaken = Names::new();
        let mut step = guard.next(gathered);
        loop {
            let answer = match step {
                SaveStep::PutManifest => {
                    for document in documents {
                        root.put_manifest(document, names).await?;
                    }
                    SaveAnswer::Stored
                }
                SaveStep::ReadGc => SaveAnswer::Gc(gc_of(root).await?),
                SaveStep::CheckIndexed(asked) => {
                    let index = self.index(root).await?;
                    let found = references::named_by_indexed(root, repo, &index, &asked);
                    let mut found = found.await?;
                    if let Some(donors) = donors {
                        found.append(&mut donors.still_live(&asked).await?);
                    }
                    SaveAnswer::Indexed(found)
                }
                // Begun again, the save reads `gc.json` before it names anything, and stores what must be stored anew: its
                // files, and the list that leads to them, whose chunks no replacement here would have judged.
                SaveStep::StoreAnew(_) if is_final => {
                    return Err(Error::SaveGaveUp(super::OVERTAKEN));
                }
                SaveStep::StoreAnew(moves) => {
                    overtaken.extend(moves.iter().map(|chunk| chunk.from));
                    SaveAnswer::LeftOut
                }
                SaveStep::Publish if is_final => return Ok(overtaken),
                SaveStep::Gather if !is_final => return Ok(overtaken),
                SaveStep::Publish | SaveStep::Gather => {
                    return Err(Error::SaveGaveUp(super::OVERTAKEN));
                }
                SaveStep::GiveUp(why) => return Err(Error::SaveGaveUp(words(why))),
            };
            step = guard.next(answer);
        }
    }
}
