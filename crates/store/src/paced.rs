//! A bucket whose content takes its turn on a line of so many bytes a second.
//!
//! Content is what has many bytes and no hurry: chunks, archives, whatever is written once. It waits before it is sent, and after it came.
//! Documents are small, and some of them keep leases: they are counted, so that content waits for them, and never wait themselves. What is
//! asked for again after a failure is counted by what gets through.
//!
//! *Always true:* after the first second, content of all who share a line is no more than the line has, but for the last piece of each, which
//! may have been on its way. A line that was idle has saved up one second.

use crate::bucket::{
    Bucket, BucketError, ByteStream, DerivedObject, Head, Listed, ListedPage, Object, PageToken,
    Swap,
};
use crate::layout::{Key, Prefix, Role, role};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use stasis_model::format::document::Version;
use stasis_model::id::OpId;
use stasis_model::time::Timestamp;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How long a line saves up what nobody uses.
const SAVED_UP: Duration = Duration::from_secs(1);

/// A line that has so many bytes a second, for all who share it.
#[derive(Debug)]
pub struct Bandwidth {
    bytes_per_second: NonZeroU64,
    /// When everything that was counted until now has gone through.
    free_at: Mutex<Option<Instant>>,
}

impl Bandwidth {
    /// A line that nobody uses yet.
    pub fn new(bytes_per_second: NonZeroU64) -> Self {
        Self {
            bytes_per_second,
            free_at: Mutex::new(None),
        }
    }

    /// Counts bytes; says when they have gone through.
    fn count(&self, bytes: u64) -> Instant {
        let now = Instant::now();
        let idle = now.checked_sub(SAVED_UP).unwrap_or(now);
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.get());
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let through = free_at.map_or(idle, |at| at.max(idle)) + takes;
        *free_at = Some(through);
        through
    }

    /// Waits until these bytes have gone through.
    async fn take(&self, bytes: u64) {
        sleep_until(self.count(bytes)).await;
    }
}

/// A bucket that is reached over such a line.
#[derive(Clone, Debug)]
pub struct Paced<B> {
    inner: B,
    line: Arc<Bandwidth>,
}

impl<B: Bucket> Paced<B> {
    /// Wraps a bucket.
    pub fn new(inner: B, line: Arc<Bandwidth>) -> Self {
        Self { inner, line }
    }

    /// Counts what goes or came under a key, and waits if it is content.
    async fn pass(&self, key: &Key, bytes: u64) {
        if role(key) == Role::Content {
            self.line.take(bytes).await;
        } else {
            self.line.count(bytes);
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Bucket> Bucket for Paced<B> {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>, BucketError> {
        let found = self.inner.get(key, limit).await?;
        if let Some(found) = &found {
            self.pass(key, found.body.len() as u64).await;
        }
        Ok(found)
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Option<Bytes>, BucketError> {
        let found = self.inner.get_range(key, range).await?;
        if let Some(found) = &found {
            self.pass(key, found.len() as u64).await;
        }
        Ok(found)
    }

    async fn head(&self, key: &Key) -> Result<Option<Head>, BucketError> {
        self.inner.head(key).await
    }

    async fn size(&self, key: &Key) -> Result<Option<u64>, BucketError> {
        self.inner.size(key).await
    }

    async fn create(&self, key: &Key, body: Bytes) -> Result<Swap, BucketError> {
        self.pass(key, body.len() as u64).await;
        self.inner.create(key, body).await
    }

    async fn swap(&self, key: &Key, expected: &Version, body: Bytes) -> Result<Swap, BucketError> {
        self.pass(key, body.len() as u64).await;
        self.inner.swap(key, expected, body).await
    }

    async fn put(&self, key: &Key, body: Bytes) -> Result<(), BucketError> {
        self.pass(key, body.len() as u64).await;
        self.inner.put(key, body).await
    }

    async fn put_stream(&self, key: &Key, body: ByteStream) -> Result<u64, BucketError> {
        let line = self.line.clone();
        let paced = body.then(move |piece| {
            let line = line.clone();
            async move {
                if let Ok(piece) = &piece {
                    line.take(piece.len() as u64).await;
                }
                piece
            }
        });
        self.inner.put_stream(key, paced.boxed()).await
    }

    /// Waits after it: what is sent and what only compared is known by then.
    async fn put_derived(
        &self,
        key: &Key,
        object: &DerivedObject<'_>,
    ) -> Result<Option<u64>, BucketError> {
        let sent = self.inner.put_derived(key, object).await?;
        self.pass(key, sent.unwrap_or_default()).await;
        Ok(sent)
    }

    async fn list(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, BucketError> {
        self.inner.list(prefix, after, limit).await
    }

    async fn list_page(
        &self,
        prefix: &Prefix,
        token: Option<&PageToken>,
    ) -> Result<ListedPage, BucketError> {
        self.inner.list_page(prefix, token).await
    }

    async fn list_after(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<ListedPage, BucketError> {
        self.inner.list_after(prefix, after, limit).await
    }

    async fn delete(&self, key: &Key) -> Result<(), BucketError> {
        self.inner.delete(key).await
    }

    async fn exists(&self, key: &Key) -> Result<bool, BucketError> {
        self.inner.exists(key).await
    }

    async fn written_at(&self, key: &Key) -> Result<Option<Timestamp>, BucketError> {
        self.inner.written_at(key).await
    }

    async fn stage(&self, batch: OpId, key: &Key, body: Bytes) -> Result<(), BucketError> {
        self.pass(key, body.len() as u64).await;
        self.inner.stage(batch, key, body).await
    }

    async fn commit(&self, batch: OpId) -> Result<(), BucketError> {
        self.inner.commit(batch).await
    }

    async fn sync(&self) -> Result<(), BucketError> {
        self.inner.sync().await
    }

    async fn abandon(&self, batch: OpId) {
        self.inner.abandon(batch).await;
    }

    fn clock_offset_ms(&self) -> Option<i64> {
        self.inner.clock_offset_ms()
    }
}
