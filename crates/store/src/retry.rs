//! A bucket that is asked again when it could not be reached.
//!
//! Reads, overwrites, listings and deletes can be repeated without harm. A conditional write cannot: an attempt whose
//! answer was lost may have been applied, and a second one would then be refused by the success of the first. So an
//! `Unknown` is passed on at once, and a conditional write is repeated only after an error, which means "not applied".

use crate::bucket::{
    Bucket, BucketError, BucketErrorKind, ByteStream, DerivedObject, Head, Listed, ListedPage,
    Object, PageToken, Swap,
};
use crate::layout::{Key, Prefix};
use async_trait::async_trait;
use bytes::Bytes;
use stasis_model::format::document::Version;
use stasis_model::id::OpId;
use stasis_model::rng::Rng;
use stasis_model::time::Timestamp;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long and how often to try.
#[derive(Clone, Debug)]
pub struct RetrySettings {
    /// The longest pause after the first failure; doubled with each further one. Pauses are random up to this.
    pub first_pause: Duration,
    /// No pause is longer.
    pub longest_pause: Duration,
    /// No attempt begins later than this after the first; an outage is reported after about this time.
    pub deadline: Duration,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            first_pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(5),
            deadline: Duration::from_secs(15),
        }
    }
}

/// A bucket that is asked again, after a pause, when it could not be reached.
#[derive(Clone, Debug)]
pub struct Retrying<B> {
    inner: B,
    rng: Arc<dyn Rng>,
    settings: RetrySettings,
}

impl<B: Bucket> Retrying<B> {
    /// Wraps a bucket.
    pub fn new(inner: B, rng: Arc<dyn Rng>, settings: RetrySettings) -> Self {
        Self {
            inner,
            rng,
            settings,
        }
    }

    async fn again<T, F>(&self, mut attempt: impl FnMut() -> F) -> Result<T, BucketError>
    where
        F: Future<Output = Result<T, BucketError>>,
    {
        let deadline = Instant::now() + self.settings.deadline;
        let mut longest = self.settings.first_pause;
        loop {
            let error = match attempt().await {
                Err(error) if error.kind == BucketErrorKind::Unreachable => error,
                settled => return settled,
            };
            let pause = self.pause(longest);
            if Instant::now() + pause > deadline {
                return Err(error);
            }
            if longest == self.settings.first_pause {
                tracing::warn!(%error, retry_budget = ?self.settings.deadline, "the store cannot be reached; trying again");
            }
            tracing::debug!(%error, ?pause, "asking the store again");
            sleep(pause).await;
            longest = (longest * 2).min(self.settings.longest_pause);
        }
    }

    /// Between half of `longest` and all of it: apart from others, but never at once.
    fn pause(&self, longest: Duration) -> Duration {
        let half = longest / 2;
        let span = u64::try_from(half.as_micros()).unwrap_or(u64::MAX);
        half + Duration::from_micros(self.rng.below(span.saturating_add(1)))
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Bucket> Bucket for Retrying<B> {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>, BucketError> {
        self.again(|| self.inner.get(key, limit)).await
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Option<Bytes>, BucketError> {
        self.again(|| self.inner.get_range(key, range.clone()))
            .await
    }

    async fn head(&self, key: &Key) -> Result<Option<Head>, BucketError> {
        self.again(|| self.inner.head(key)).await
    }

    async fn size(&self, key: &Key) -> Result<Option<u64>, BucketError> {
        self.again(|| self.inner.size(key)).await
    }

    async fn create(&self, key: &Key, body: Bytes) -> Result<Swap, BucketError> {
        self.again(|| self.inner.create(key, body.clone())).await
    }

    async fn swap(&self, key: &Key, expected: &Version, body: Bytes) -> Result<Swap, BucketError> {
        self.again(|| self.inner.swap(key, expected, body.clone()))
            .await
    }

    async fn put(&self, key: &Key, body: Bytes) -> Result<(), BucketError> {
        self.again(|| self.inner.put(key, body.clone())).await
    }

    /// Not repeated: a stream can be read only once.
    async fn put_stream(&self, key: &Key, body: ByteStream) -> Result<u64, BucketError> {
        self.inner.put_stream(key, body).await
    }

    /// Not repeated: what does not come through is sent whole.
    async fn put_derived(
        &self,
        key: &Key,
        object: &DerivedObject<'_>,
    ) -> Result<Option<u64>, BucketError> {
        self.inner.put_derived(key, object).await
    }

    async fn list(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, BucketError> {
        self.again(|| self.inner.list(prefix, after, limit)).await
    }

    async fn list_page(
        &self,
        prefix: &Prefix,
        token: Option<&PageToken>,
    ) -> Result<ListedPage, BucketError> {
        self.again(|| self.inner.list_page(prefix, token)).await
    }

    async fn list_after(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<ListedPage, BucketError> {
        self.again(|| self.inner.list_after(prefix, after, limit))
            .await
    }

    async fn delete(&self, key: &Key) -> Result<(), BucketError> {
        self.again(|| self.inner.delete(key)).await
    }

    async fn exists(&self, key: &Key) -> Result<bool, BucketError> {
        self.again(|| self.inner.exists(key)).await
    }

    async fn written_at(&self, key: &Key) -> Result<Option<Timestamp>, BucketError> {
        self.again(|| self.inner.written_at(key)).await
    }

    async fn stage(&self, batch: OpId, key: &Key, body: Bytes) -> Result<(), BucketError> {
        self.again(|| self.inner.stage(batch, key, body.clone()))
            .await
    }

    /// Not repeated: a batch whose commit failed is gone.
    async fn commit(&self, batch: OpId) -> Result<(), BucketError> {
        self.inner.commit(batch).await
    }

    async fn sync(&self) -> Result<(), BucketError> {
        self.again(|| self.inner.sync()).await
    }

    async fn abandon(&self, batch: OpId) {
        self.inner.abandon(batch).await;
    }

    fn clock_offset_ms(&self) -> Option<i64> {
        self.inner.clock_offset_ms()
    }
}
