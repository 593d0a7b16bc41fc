//! The store at the other end of the network.

use super::{FaultPlan, FaultyBucket, Landing, Sender, Witness};
use crate::seeded_rng::SeededRng;
use crate::sim_clock::SimClock;
use bytes::Bytes;
use futures_util::FutureExt;
use stasis_model::format::document::Version;
use stasis_store::backend::memory::MemoryBucket;
use stasis_store::bucket::{Bucket, Listed, Swap};
use stasis_store::layout::{Key, Prefix};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// A change of one object.
pub(super) struct Request {
    pub(super) key: Key,
    pub(super) condition: Condition,
    pub(super) body: Option<Bytes>,
}

pub(super) enum Condition {
    Whatever,
    Absent,
    Is(Version),
}

/// What every object's appearance and disappearance was, and when.
type Changes = Vec<(u64, Key, Option<u64>)>;

/// The store that all hosts share.
pub struct FaultyStore {
    pub(super) memory: MemoryBucket,
    pub(super) faults: FaultPlan,
    began: Instant,
    rng: Mutex<SeededRng>,
    changes: Mutex<Changes>,
    pub(super) witness: Arc<dyn Witness>,
}

impl FaultyStore {
    /// An empty store that behaves as `faults` says, beginning now.
    pub fn new(faults: FaultPlan, rng: SeededRng, witness: Arc<dyn Witness>) -> Arc<Self> {
        Arc::new(Self {
            memory: MemoryBucket::new(),
            faults,
            began: Instant::now(),
            rng: Mutex::new(rng),
            changes: Mutex::default(),
            witness,
        })
    }

    /// The way to this store from the host with this clock.
    pub fn reached_from(self: &Arc<Self>, clock: Arc<SimClock>) -> FaultyBucket {
        FaultyBucket::new(Arc::clone(self), clock)
    }

    pub(super) fn rng(&self) -> MutexGuard<'_, SeededRng> {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn millis(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).expect("a simulation is short")
    }

    /// Makes the change if its condition holds, and shows it to the witness.
    fn land(&self, request: &Request, sender: Sender) -> Swap {
        let swap = at_once(self.change(request));
        let (key, body) = (&request.key, request.body.as_ref());
        let applied = matches!(swap, Swap::Won(_));
        if applied {
            let size = body.map(|body| body.len() as u64);
            self.changes().push((self.millis(), key.clone(), size));
        }
        self.witness.landed(&Landing {
            key,
            body,
            applied,
            sender,
        });
        swap
    }

    async fn change(&self, request: &Request) -> Swap {
        let key = &request.key;
        let done = match (&request.body, &request.condition) {
            (None, _) => {
                let gone = self.memory.delete(key).await;
                gone.map(|()| Swap::Won(Version::new("gone")))
            }
            (Some(body), Condition::Absent) if !self.faults.ignores_conditions => {
                self.memory.create(key, body.clone()).await
            }
            (Some(body), Condition::Is(version)) if !self.faults.ignores_conditions => {
                self.memory.swap(key, version, body.clone()).await
            }
            (Some(body), _) => {
                let put = self.memory.put(key, body.clone()).await;
                put.expect("memory does not fail");
                let head = self.memory.head(key).await;
                let head = head.expect("memory does not fail");
                Ok(Swap::Won(head.expect("it was just written").version))
            }
        };
        done.expect("memory does not fail")
    }

    /// Sends a change on its way; it arrives even if nobody waits for it any more.
    pub(super) fn dispatch(
        self: &Arc<Self>,
        request: Arc<Request>,
        there: Duration,
        sender: Sender,
    ) -> JoinHandle<Swap> {
        let store = Arc::clone(self);
        tokio::spawn(async move {
            sleep(there).await;
            store.land(&request, sender)
        })
    }

    /// What a listing showed at a moment that is over.
    pub(super) fn past_listing(&self, prefix: &Prefix, moment: u64) -> Vec<Listed> {
        let mut sizes = BTreeMap::new();
        let changes = self.changes();
        for (_, key, size) in changes.iter().take_while(|(at, ..)| *at <= moment) {
            match size {
                Some(size) => sizes.insert(key.clone(), *size),
                None => sizes.remove(key),
            };
        }
        let rows = sizes.into_iter().map(|(key, size)| Listed {
            key,
            size,
            version: None,
        });
        rows.filter(|row| row.key.as_str().starts_with(prefix.as_str()))
            .collect()
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("FaultyStore")
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

/// The answer of something that never waits.
pub(super) fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("memory answers at once")
}
