//! A bucket behind a bad network: requests get lost, are late or arrive twice, and answers do not come back.
//!
//! One [`FaultyStore`] is the store; each host reaches it through a [`FaultyBucket`] of its own, because each host has
//! its own idea of the store's clock. What is sent goes on its way alone: a host that crashes does not stop it.
//!
//! *Always true:* the objects themselves behave as the port promises (unless a mutant does not). Every change is shown
//! to the [`Witness`] at the moment when it is made, in the order in which changes are made.

mod fault_plan;
mod store;

pub use fault_plan::FaultPlan;
pub use store::FaultyStore;

use crate::sim_clock::SimClock;
use async_trait::async_trait;
use bytes::Bytes;
use fault_plan::Journey;
use futures_util::StreamExt;
use stasis_model::format::document::Version;
use stasis_model::id::OpId;
use stasis_model::time::Timestamp;
use stasis_store::bucket::{
    Bucket, BucketError, BucketErrorKind, ByteStream, DerivedObject, Head, Listed, ListedPage,
    Object, PageToken, Swap, page_in_order, rows_in_order,
};
use stasis_store::layout::{Key, Prefix};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use store::{Condition, Request, at_once};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Somebody who sees everything that really happens in the store.
pub trait Witness: Send + Sync {
    /// A write or a removal arrived.
    fn landed(&self, landing: &Landing<'_>);

    /// Something notable happened on the way.
    fn saw(&self, observation: &'static str);
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
    /// What its sender will learn of it.
    pub sender: Sender,
}

/// What the sender of a request learns when it arrives.
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

/// One host's way to a [`FaultyStore`].
#[derive(Debug)]
pub struct FaultyBucket {
    store: Arc<FaultyStore>,
    clock: Arc<SimClock>,
    offset: Mutex<Option<i64>>,
}

impl FaultyBucket {
    fn new(store: Arc<FaultyStore>, clock: Arc<SimClock>) -> Self {
        let offset = Mutex::default();
        Self {
            store,
            clock,
            offset,
        }
    }

    /// An answer came: the host compares the date in it with its own clock.
    fn received(&self) {
        if self.store.faults.tells_date {
            let skew = self.clock.skew_ms();
            *self.offset.lock().unwrap_or_else(PoisonError::into_inner) = Some(-skew);
        }
    }

    async fn write(&self, request: Request) -> Result<Swap, BucketError> {
        let store = &self.store;
        let request = Arc::new(request);
        let journey = store.faults.journey(&mut store.rng(), store.millis());
        let send = |there, sender| store.dispatch(Arc::clone(&request), there, sender);
        match journey {
            Journey::Received { there, back } => {
                let swap = arrival(send(there, Sender::Listens)).await;
                sleep(back).await;
                self.received();
                Ok(swap)
            }
            Journey::Unanswered { there, after } => {
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
                self.received();
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
        let (there, back, answered) = store.faults.glance(&mut store.rng(), store.millis());
        sleep(there).await;
        let seen = look(store);
        sleep(back).await;
        if !answered {
            store.witness.saw("read failed");
            return Err(unreachable_store("read", what));
        }
        self.received();
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
        self.read(key, |store| at_once(store.memory.head(key)))
            .await
    }

    async fn size(&self, key: &Key) -> Result<Option<u64>, BucketError> {
        self.read(key, |store| at_once(store.memory.size(key)))
            .await
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

    /// This store cannot copy.
    async fn put_derived(
        &self,
        _key: &Key,
        _object: &DerivedObject<'_>,
    ) -> Result<Option<u64>, BucketError> {
        Ok(None)
    }

    async fn list(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, BucketError> {
        let store = &self.store;
        let now = store.millis();
        let Some(hindsight) = store.faults.hindsight(&mut store.rng(), now) else {
            return self
                .read(prefix, |store| {
                    at_once(store.memory.list(prefix, after, limit))
                })
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

    async fn list_page(
        &self,
        prefix: &Prefix,
        token: Option<&PageToken>,
    ) -> Result<ListedPage, BucketError> {
        page_in_order(self, prefix, token).await
    }

    async fn list_after(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<ListedPage, BucketError> {
        rows_in_order(self, prefix, after, limit).await
    }

    async fn delete(&self, key: &Key) -> Result<(), BucketError> {
        self.overwrite(key, None).await
    }

    async fn exists(&self, key: &Key) -> Result<bool, BucketError> {
        Ok(self.head(key).await?.is_some())
    }

    async fn written_at(&self, _key: &Key) -> Result<Option<Timestamp>, BucketError> {
        Ok(None)
    }

    async fn stage(&self, _batch: OpId, key: &Key, body: Bytes) -> Result<(), BucketError> {
        self.overwrite(key, Some(body)).await
    }

    async fn commit(&self, _batch: OpId) -> Result<(), BucketError> {
        Ok(())
    }

    async fn sync(&self) -> Result<(), BucketError> {
        Ok(())
    }

    async fn abandon(&self, _batch: OpId) {}

    fn clock_offset_ms(&self) -> Option<i64> {
        *self.offset.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
