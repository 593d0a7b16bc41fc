//! Chunks on their way between the workers that make them and the store that keeps them.

use crate::bridge::Crossing;
use crate::quota::StorageRoom;
use stasis_disk::form::chunked::{
    ChunkCodec, ChunkError, ChunkLook, ChunkSink, ChunkSource, EncodedChunk, PlacedChunk,
};
use stasis_model::digest::ChunkDigest;
use stasis_model::id::OpId;
use stasis_model::protocol::gc::{ChunkName, GcEpoch, GcState, Names, SaveGuard};
use stasis_model::rng::Rng;
use stasis_store::documents::roots::Root;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// How many chunks are on their way at once; each is about a mebibyte.
const IN_FLIGHT: usize = 16;
/// After so many questions about single chunks of a distant store all of them are listed once.
const ASKED_SINGLY: usize = 64;

/// Reads chunks of a root.
#[derive(Clone, Debug)]
pub(crate) struct ChunkFetcher {
    root: Root,
    codec: ChunkCodec,
    crossing: Crossing,
}

impl ChunkFetcher {
    /// From within the async world.
    pub(crate) fn new(root: Root, codec: ChunkCodec) -> Self {
        Self {
            root,
            codec,
            crossing: Crossing::here(),
        }
    }
}

/// What became of moving a chunk.
fn moved<T, E>(name: ChunkName, result: Result<T, E>) -> Result<T, ChunkError>
where
    E: std::error::Error + Send + Sync + 'static,
{
    result.map_err(|source| ChunkError::Moving {
        name,
        source: Box::new(source),
    })
}

impl ChunkSource for ChunkFetcher {
    fn codec(&self) -> &ChunkCodec {
        &self.codec
    }

    fn fetch(&self, name: &ChunkName) -> Result<Vec<u8>, ChunkError> {
        let found = self.crossing.wait(self.root.chunk(name));
        match moved(*name, found)? {
            Some(bytes) => Ok(bytes.into()),
            None => Err(ChunkError::Absent(*name)),
        }
    }
}

/// Says under which name somebody else has some bytes, so that they need not be stored again.
type Lend = dyn Fn(&ChunkDigest) -> Option<ChunkName> + Send + Sync;

/// Stores the chunks of one save.
pub(crate) struct Storing {
    root: Root,
    codec: ChunkCodec,
    crossing: Crossing,
    rng: Arc<dyn Rng>,
    /// Gives names; what is proved of them is not its affair.
    guard: Mutex<SaveGuard>,
    /// The births of the names that were given out in this save, by what they name.
    given: Mutex<HashMap<ChunkDigest, GcEpoch>>,
    /// Names that were given out, and that gc took since.
    overtaken: Mutex<HashSet<ChunkName>>,
    /// Chunks that are known to be damaged: whoever has their bytes stores them again.
    damaged: HashSet<ChunkName>,
    /// Nothing was ever saved here, so that nothing need be looked for.
    is_empty: bool,
    /// Whether reading a chunk costs little, so that whoever relies on one reads it first.
    is_near: bool,
    /// What was found of chunks that earlier snapshots have: whether each is whole.
    looked: Mutex<HashMap<ChunkName, bool>>,
    /// All chunks of a distant store, once there was reason to list them.
    listed: Mutex<Option<HashSet<ChunkName>>>,
    /// Whether a chunk was found that another save may not have made durable yet.
    has_found: AtomicBool,
    /// Where chunks may be borrowed.
    lend: Option<Box<Lend>>,
    /// How much may be stored.
    room: Option<StorageRoom>,
    permits: Arc<Semaphore>,
    under_way: Mutex<UnderWay>,
}

/// What was put since everything was durable last.
struct UnderWay {
    batch: OpId,
    flights: Vec<JoinHandle<Result<(), ChunkError>>>,
    /// Names of what was put, and of what was found and that no snapshot of this subject has.
    names: Names,
}

impl UnderWay {
    fn new(batch: OpId) -> Self {
        Self {
            batch,
            flights: Vec::new(),
            names: Names::new(),
        }
    }
}

impl fmt::Debug for Storing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Storing({:?})", self.root)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Storing {
    /// From within the async world.
    pub(crate) fn new(root: Root, codec: ChunkCodec, rng: Arc<dyn Rng>, guard: SaveGuard) -> Self {
        Self {
            root,
            codec,
            crossing: Crossing::here(),
            under_way: Mutex::new(UnderWay::new(rng.op_id())),
            rng,
            guard: Mutex::new(guard),
            given: Mutex::default(),
            overtaken: Mutex::default(),
            damaged: HashSet::new(),
            is_empty: false,
            is_near: false,
            looked: Mutex::default(),
            listed: Mutex::default(),
            has_found: AtomicBool::new(false),
            lend: None,
            room: None,
            permits: Arc::new(Semaphore::new(IN_FLIGHT)),
        }
    }

    /// Says which chunks are damaged, and whether nothing was ever saved.
    pub(crate) fn knowing(
        mut self,
        damaged: impl IntoIterator<Item = ChunkName>,
        is_empty: bool,
    ) -> Self {
        self.damaged.extend(damaged);
        self.is_empty = is_empty;
        self
    }

    /// Says that reading chunks costs little.
    pub(crate) fn near(mut self, is_near: bool) -> Self {
        self.is_near = is_near;
        self
    }

    /// Says where chunks may be borrowed that are not known.
    pub(crate) fn borrowing(mut self, lend: Option<Box<Lend>>) -> Self {
        self.lend = lend;
        self
    }

    /// Says how much may be stored.
    pub(crate) fn within(mut self, room: Option<StorageRoom>) -> Self {
        self.room = room;
        self
    }

    /// The name under which somebody else has these bytes, if it is not condemned.
    fn borrowed(&self, digest: ChunkDigest) -> Option<ChunkName> {
        let lent = self.lend.as_ref()?(&digest)?;
        (lock(&self.guard).place(digest, Some(lent)) == lent).then_some(lent)
    }

    /// Goes on by what was found out about gc meanwhile; these names are not used any more.
    pub(crate) fn go_on(&self, gc: GcState, overtaken: &Names) {
        *lock(&self.guard) = SaveGuard::after(gc);
        lock(&self.overtaken).extend(overtaken);
        let mut given = lock(&self.given);
        for name in overtaken {
            if given.get(&name.digest()) == Some(&name.born()) {
                given.remove(&name.digest());
            }
        }
    }

    /// The names that were given out and must not be used any more.
    pub(crate) fn overtaken_names(&self) -> HashSet<ChunkName> {
        lock(&self.overtaken).clone()
    }

    /// A way back into the async world.
    pub(crate) fn crossing(&self) -> &Crossing {
        &self.crossing
    }

    fn is_given(&self, name: &ChunkName) -> bool {
        lock(&self.given).get(&name.digest()) == Some(&name.born())
    }

    /// Chunks that are known to be damaged.
    pub(crate) fn damaged(&self) -> &HashSet<ChunkName> {
        &self.damaged
    }

    /// The chunks that were damaged and have been stored again.
    pub(crate) fn healed(&self) -> Vec<ChunkName> {
        let found = self.found_damaged();
        let all: HashSet<&ChunkName> = self.damaged.iter().chain(&found).collect();
        let healed = all.into_iter().filter(|name| self.is_given(name));
        healed.copied().collect()
    }

    /// The chunks that were found damaged or missing meanwhile, and could not be stored again.
    pub(crate) fn unhealed(&self) -> BTreeSet<ChunkName> {
        let found = self.found_damaged().into_iter();
        found.filter(|name| !self.is_given(name)).collect()
    }

    /// Whether there are chunks, of whatever snapshot, that are damaged and were not stored again.
    pub(crate) fn leaves_damage(&self) -> bool {
        let found = self.found_damaged();
        let mut all = self.damaged.iter().chain(&found);
        all.any(|name| !self.is_given(name))
    }

    /// Whether a chunk that snapshots need is damaged or missing, as far as anybody looked.
    fn is_lost(&self, name: &ChunkName) -> bool {
        self.damaged.contains(name) || lock(&self.looked).get(name) == Some(&false)
    }

    fn found_damaged(&self) -> Vec<ChunkName> {
        let looked = lock(&self.looked);
        let damaged = looked.iter().filter(|(_, is_whole)| !**is_whole);
        damaged.map(|(name, _)| *name).collect()
    }

    /// Looks at a chunk that somebody stored before; what was found is remembered.
    fn look_at(&self, name: &ChunkName, look: ChunkLook) -> Result<bool, ChunkError> {
        if let Some(known) = lock(&self.looked).get(name) {
            return Ok(*known);
        }
        let is_held = match look {
            ChunkLook::Whole if self.is_near => {
                let found = self.crossing.wait(self.root.chunk(name));
                let found = moved(*name, found)?;
                found.is_some_and(|bytes| self.codec.open(name, &bytes).is_ok())
            }
            _ => self.is_there(name)?,
        };
        if look == ChunkLook::Whole || !is_held {
            lock(&self.looked).insert(*name, is_held);
        }
        Ok(is_held)
    }

    fn is_there(&self, name: &ChunkName) -> Result<bool, ChunkError> {
        // A pool that others share may have any number of chunks.
        let is_listed = !self.is_near && self.root.layout().is_alone();
        if is_listed && lock(&self.looked).len() >= ASKED_SINGLY {
            let mut listed = lock(&self.listed);
            if listed.is_none() {
                let found = self.crossing.wait(self.root.chunks());
                let found = moved(*name, found)?;
                *listed = Some(found.into_iter().map(|(name, _)| name).collect());
            }
            // What another save stored since is not in the list, so that its absence proves nothing.
            if listed.as_ref().is_some_and(|listed| listed.contains(name)) {
                return Ok(true);
            }
        }
        let found = self.crossing.wait(self.root.has_chunk(name));
        moved(*name, found)
    }

    /// Gives a chunk its name, and says whether it has to be stored; what is known of it was named by a snapshot.
    fn placed(
        &self,
        digest: ChunkDigest,
        mut known: Option<ChunkName>,
    ) -> Result<PlacedChunk, ChunkError> {
        let name = match lock(&self.given).entry(digest) {
            // One name for some bytes, be it that an epoch went by: what is proved of it stays so.
            Entry::Occupied(given) => {
                let name = ChunkName::new(digest, *given.get());
                let is_stored = true;
                return Ok(PlacedChunk { name, is_stored });
            }
            Entry::Vacant(slot) => {
                // Looked at while nobody gives names, so that none that was overtaken meanwhile is given again.
                known = known.filter(|name| !lock(&self.overtaken).contains(name));
                let name = lock(&self.guard).place(digest, known);
                slot.insert(name.born());
                name
            }
        };
        let is_stored = if self.damaged.contains(&name) || self.is_empty {
            false
        } else {
            // We have its bytes: what is missing or damaged is stored again. A chunk that no snapshot of ours has may be
            // absent without being missed; if it lies there, it may not be durable yet.
            let is_ours = known == Some(name);
            let found =
                (is_ours || self.is_there(&name)?) && self.look_at(&name, ChunkLook::Whole)?;
            if found && !is_ours {
                self.has_found.store(true, Ordering::Relaxed);
                lock(&self.under_way).names.insert(name);
            }
            found
        };
        Ok(PlacedChunk { name, is_stored })
    }

    /// Waits until everything that was put is durable; says what was stored since the last time.
    pub(crate) async fn finish(&self) -> Result<Names, ChunkError> {
        let next = UnderWay::new(self.rng.op_id());
        let done = std::mem::replace(&mut *lock(&self.under_way), next);
        let mut failed = None;
        for flight in done.flights {
            match flight.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failed = failed.or(Some(error)),
                Err(gone) => std::panic::resume_unwind(gone.into_panic()),
            }
        }
        if let Some(error) = failed {
            self.root.abandon(done.batch).await;
            return Err(error);
        }
        let mut durable = self.root.commit(done.batch).await;
        if durable.is_ok() && self.has_found.load(Ordering::Relaxed) {
            durable = self.root.sync().await;
        }
        let first = done.names.first().copied();
        let name = first.unwrap_or(ChunkName::new(ChunkDigest::of(b""), GcEpoch::FIRST));
        moved(name, durable)?;
        Ok(done.names)
    }

    /// Notes once more that these names were stored, because nothing came of making them safe.
    pub(crate) fn note_again(&self, names: Names) {
        lock(&self.under_way).names.extend(names);
    }

    /// Drops what was put.
    pub(crate) async fn abandon(&self) {
        let next = UnderWay::new(self.rng.op_id());
        let done = std::mem::replace(&mut *lock(&self.under_way), next);
        for flight in done.flights {
            let _ = flight.await;
        }
        self.root.abandon(done.batch).await;
    }

    /// Collects flights that have landed, so that a failure is noticed soon and their list stays short.
    fn land(&self) -> Result<(), ChunkError> {
        let mut under_way = lock(&self.under_way);
        let flights = &mut under_way.flights;
        if flights.len() < 2 * IN_FLIGHT {
            return Ok(());
        }
        let (landed, flying): (Vec<_>, Vec<_>) =
            flights.drain(..).partition(JoinHandle::is_finished);
        *flights = flying;
        drop(under_way);
        for flight in landed {
            match self.crossing.wait(flight) {
                Ok(landed) => landed?,
                Err(gone) => std::panic::resume_unwind(gone.into_panic()),
            }
        }
        Ok(())
    }
}

impl ChunkSink for Storing {
    fn codec(&self) -> &ChunkCodec {
        &self.codec
    }

    fn place(
        &self,
        digest: ChunkDigest,
        known: Option<ChunkName>,
    ) -> Result<PlacedChunk, ChunkError> {
        if known.is_some() || lock(&self.given).contains_key(&digest) {
            return self.placed(digest, known);
        }
        let lent = self.borrowed(digest);
        let placed = self.placed(digest, lent)?;
        if lent == Some(placed.name) {
            // Only somebody else's snapshot has it, which may be forgotten while this save lasts.
            lock(&self.under_way).names.insert(placed.name);
        }
        Ok(placed)
    }

    fn place_list(
        &self,
        digest: ChunkDigest,
        known: Option<ChunkName>,
    ) -> Result<PlacedChunk, ChunkError> {
        // Nobody else has the list of this very tree, so that no donor is asked for one.
        let is_ours = lock(&self.given).contains_key(&digest);
        let mut placed = self.placed(digest, known)?;
        // What is near was read when it was placed.
        if placed.is_stored && !is_ours && !self.is_near {
            let found = self.crossing.wait(self.root.chunk(&placed.name));
            let found = moved(placed.name, found)?;
            placed.is_stored =
                found.is_some_and(|bytes| self.codec.open(&placed.name, &bytes).is_ok());
        }
        Ok(placed)
    }

    fn holds(&self, name: &ChunkName, look: ChunkLook) -> Result<bool, ChunkError> {
        if self.is_given(name) {
            return Ok(true);
        }
        if self.damaged.contains(name) || lock(&self.overtaken).contains(name) {
            return Ok(false);
        }
        self.look_at(name, look)
    }

    fn put(&self, chunk: EncodedChunk) -> Result<(), ChunkError> {
        self.land()?;
        // What lies there damaged, or is missing, gets back the room that it had.
        let limit = self.room.as_ref().filter(|_| !self.is_lost(&chunk.name));
        if let Some(room) = limit {
            let taken = self.crossing.wait(room.take(chunk.bytes.len() as u64));
            moved(chunk.name, taken)?;
        }
        let permit = self.crossing.wait(self.permits.clone().acquire_owned());
        let mut under_way = lock(&self.under_way);
        let (root, batch, name) = (self.root.clone(), under_way.batch, chunk.name);
        let flight = self.crossing.start(async move {
            let staged = root.stage_chunk(batch, &name, chunk.bytes.into()).await;
            drop(permit);
            moved(name, staged)
        });
        under_way.flights.push(flight);
        under_way.names.insert(name);
        Ok(())
    }
}
