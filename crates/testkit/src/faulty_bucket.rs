//! A bucket behind a bad network: requests get lost, are late or arrive twice, and answers do not come back.
//!
//! One [`FaultyStore`] is the store; each host reaches it through a [`FaultyBucket`] of its own, because each host has
//! its own idea of the store's clock. What is sent goes on its way alone: a host that crashes does not stop it.
//!
//! *Always true:* the objects themselves behave as the port promises (unless that bug is planted). Every change is shown
//! to the [`Witness`] at the moment when it is made, in the order in which changes are made.

mod weather;

pub use weather::Weather;

use crate::seeded_chance::SeededRng;
use crate::sim_clock::SimClock;
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use stasis_model::document::Version;
use stasis_store::bucket::{
    Bucket, BucketError, BucketErrorKind, ByteStream, Head, Listed, Object, Swap,
};
use stasis_store::layout::{Key, Prefix};
use stasis_store::memory::MemoryBucket;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use weather::Journey;

/// Somebody who sees everything that really happens in the store.
pub trait Witness: Send + Sync {
    /// A write or a removal arrived.
    fn landed(&self, landing: &Landing<'_>);

    /// Something notable happened on the way.
    fn saw(&self, sight: &'static str);
}

/// The arrival of one write or removal.
#[derive(Debug)]
pub struct Landing<'a> {
    /// Where.
    pub key: &'a Key,
    /// What is written; `None` removes.
    pub body: Option<&'a Bytes>,
    /// Whether the condition held, so that the change was made.
    pub applied: bool,
    /// What its sender will hear of it.
    pub sender: Sender,
}

/// What the sender of a request hears when it arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    /// What became of it.
    Listens,
    /// Nothing, or that it was refused by its own success.
    Deaf,
    /// Nothing: it gave up before the request arrived.
    Gone,
}

/// A witness that looks away.
#[derive(Clone, Copy, Debug)]
pub struct Nobody;

impl Witness for Nobody {
    fn landed(&self, _: &Landing<'_>) {}
    fn saw(&self, _: &'static str) {}
}

/// A change of one object.
struct Request {
    key: Key,
    condition: Condition,
    body: Option<Bytes>,
}

enum Condition {
    Whatever,
    Absent,
    Is(Version),
}

/// What every object's appearance and disappearance was, and when.
type Changes = Vec<(u64, Key, Option<u64>)>;

/// The store that all hosts share.
pub struct FaultyStore {
    memory: MemoryBucket,
    weather: Weather,
    began: Instant,
    rng: Mutex<SeededRng>,
    changes: Mutex<Changes>,
    witness: Arc<dyn Witness>,
}

impl FaultyStore {
    /// An empty store that behaves as `weather` says, beginning now.
    pub fn new(weather: Weather, rng: SeededRng, witness: Arc<dyn Witness>) -> Arc<Self> {
        Arc::new(Self {
            memory: MemoryBucket::new(),
            weather,
            began: Instant::now(),
            rng: Mutex::new(rng),
            changes: Mutex::default(),
            witness,
        })
    }

    /// The way to this store from the host with this clock.
    pub fn reached_from(self: &Arc<Self>, clock: Arc<SimClock>) -> FaultyBucket {
        FaultyBucket {
            store: Arc::clone(self),
            clock,
            offset: Mutex::default(),
        }
    }

    fn rng(&self) -> MutexGuard<'_, SeededRng> {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn millis(&self) -> u64 {
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
            (Some(body), Condition::Absent) if !self.weather.ignores_conditions => {
                self.memory.create(key, body.clone()).await
            }
            (Some(body), Condition::Is(version)) if !self.weather.ignores_conditions => {
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
    fn dispatch(
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
    fn past_listing(&self, prefix: &Prefix, moment: u64) -> Vec<Listed> {
        let mut sizes = BTreeMap::new();
        let changes = self.changes();
        for (_, key, size) in changes.iter().take_while(|(at, ..)| *at <= moment) {
            match size {
                Some(size) => sizes.insert(key.clone(), *size),
                None => sizes.remove(key),
            };
        }
        let rows = sizes.into_iter().map(|(key, size)| Listed { key, size });
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
fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("memory answers at once")
}

/// One host's way to a [`FaultyStore`].
#[derive(Debug)]
pub struct FaultyBucket {
    store: Arc<FaultyStore>,
    clock: Arc<SimClock>,
    offset: Mutex<Option<i64>>,
}

impl FaultyBucket {
    /// An answer came: the host compares the date in it with its own clock.
    fn heard(&self) {
        if self.store.weather.tells_date {
            let skew = self.clock.skew_ms();
            *self.offset.lock().unwrap_or_else(PoisonError::into_inner) = Some(-skew);
        }
    }

    async fn write(&self, request: Request) -> Result<Swap, BucketError> {
        let store = &self.store;
        let request = Arc::new(request);
        let journey = store
            .weather
            .journey(&mut store.rng(), store.millis());
        let send = |there, sender| store.dispatch(Arc::clone(&request), there, sender);
        match journey {
            Journey::Heard { there, back } => {
                let swap = arrival(send(there, Sender::Listens)).await;
                sleep(back).await;
                self.heard();
                Ok(swap)
            }
            Journey::Unheard { there, after } => {
                store.witness.saw("answer lost");
                drop(send(there, Sender::Deaf));
                sleep(after).await;
                Ok(Swap::Unknown)
            }
            Journey::Late { there, after } => {
                drop(send(there, Sender::Gone));
                sleep(after).await;
                Ok(Swap::Unknown)
            }
            Journey::Lost { after } => {
                store.witness.saw("request lost");
                sleep(after).await;
                Ok(Swap::Unknown)
            }
            Journey::Refused { after } => {
                store.witness.saw("outage");
                sleep(after).await;
                Err(unreachable_store("write", &request.key))
            }
            Journey::Twice { there, again, back } => {
                let (first, second) = (send(there, Sender::Deaf), send(again, Sender::Deaf));
                let (first, second) = (arrival(first).await, arrival(second).await);
                if matches!((&first, &second), (Swap::Won(_), Swap::Lost)) {
                    store.witness.saw("refused by its own success");
                }
                sleep(back).await;
                self.heard();
                Ok(second)
            }
        }
    }

    /// A write without a condition: what nobody answered has failed, as far as the caller knows.
    async fn overwrite(&self, key: &Key, body: Option<Bytes>) -> Result<(), BucketError> {
        let (key, condition) = (key.clone(), Condition::Whatever);
        let request = Request {
            key,
            condition,
            body,
        };
        let what = request.key.clone();
        match self.write(request).await? {
            Swap::Won(_) => Ok(()),
            Swap::Lost | Swap::Unknown => Err(unreachable_store("write", &what)),
        }
    }

    /// Reads whatever `look` reads, at the moment when the request arrives.
    async fn read<T: Send>(
        &self,
        what: &(impl fmt::Display + Sync),
        look: impl FnOnce(&FaultyStore) -> Result<T, BucketError> + Send,
    ) -> Result<T, BucketError> {
        let store = &self.store;
        let (there, back, answered) = store
            .weather
            .glance(&mut store.rng(), store.millis());
        sleep(there).await;
        let seen = look(store);
        sleep(back).await;
        if !answered {
            store.witness.saw("read failed");
            return Err(unreachable_store("read", what));
        }
        self.heard();
        seen
    }
}

async fn arrival(landing: JoinHandle<Swap>) -> Swap {
    landing.await.expect("a landing does not panic")
}

fn unreachable_store(doing: &'static str, what: impl fmt::Display) -> BucketError {
    BucketError::new(BucketErrorKind::Unreachable, doing, what)
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Bucket for FaultyBucket {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>, BucketError> {
        self.read(key, |store| at_once(store.memory.get(key, limit)))
            .await
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Option<Bytes>, BucketError> {
        self.read(key, |store| at_once(store.memory.get_range(key, range)))
            .await
    }

    async fn head(&self, key: &Key) -> Result<Option<Head>, BucketError> {
        self.read(key, |store| at_once(store.memory.head(key))).await
    }

    async fn create(&self, key: &Key, body: Bytes) -> Result<Swap, BucketError> {
        let (key, condition, body) = (key.clone(), Condition::Absent, Some(body));
        self.write(Request {
            key,
            condition,
            body,
        })
        .await
    }

    async fn swap(&self, key: &Key, expected: &Version, body: Bytes) -> Result<Swap, BucketError> {
        let condition = Condition::Is(expected.clone());
        let (key, body) = (key.clone(), Some(body));
        self.write(Request {
            key,
            condition,
            body,
        })
        .await
    }

    async fn put(&self, key: &Key, body: Bytes) -> Result<(), BucketError> {
        self.overwrite(key, Some(body)).await
    }

    async fn put_stream(&self, key: &Key, mut body: ByteStream) -> Result<u64, BucketError> {
        let mut whole = Vec::new();
        while let Some(piece) = body.next().await {
            let broken = |source| {
                BucketError::new(BucketErrorKind::Unsupported, "store", key).because(source)
            };
            whole.extend_from_slice(&piece.map_err(broken)?);
        }
        let size = whole.len() as u64;
        self.overwrite(key, Some(whole.into())).await?;
        Ok(size)
    }

    async fn list(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, BucketError> {
        let store = &self.store;
        let now = store.millis();
        let Some(hindsight) = store.weather.hindsight(&mut store.rng(), now) else {
            return self
                .read(prefix, |store| at_once(store.memory.list(prefix, after, limit)))
                .await;
        };
        store.witness.saw("stale listing");
        let past = |store: &FaultyStore| {
            let rows = store.past_listing(prefix, now.saturating_sub(hindsight));
            let beyond = rows.into_iter().filter(|row| Some(&row.key) > after);
            Ok(beyond.take(limit).collect())
        };
        self.read(prefix, past).await
    }

    async fn delete(&self, key: &Key) -> Result<(), BucketError> {
        self.overwrite(key, None).await
    }

    fn clock_offset_ms(&self) -> Option<i64> {
        *self.offset.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
