//! A bucket in memory that does as it was told, turn by turn, and remembers what it was asked.

use async_trait::async_trait;
use bytes::Bytes;
use stasis_model::format::document::Version;
use stasis_store::backend::memory::MemoryBucket;
use stasis_store::bucket::{
    Bucket, BucketError, BucketErrorKind, ByteStream, Head, Listed, Object, Swap,
};
use stasis_store::layout::{Key, Prefix};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;

/// What happens to one read or one conditional write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// It is carried out.
    Work,
    /// It fails, and nothing was applied.
    Fail,
    /// A write is lost to somebody else.
    Lose,
    /// A write is applied and its answer is lost.
    ApplySilently,
    /// A write is lost together with its answer.
    Vanish,
}

/// A bucket with a script for reads and one for conditional writes; after its end everything works.
#[derive(Debug, Default)]
pub(crate) struct ScriptedBucket {
    pub(crate) inner: MemoryBucket,
    reads: Mutex<VecDeque<Turn>>,
    writes: Mutex<VecDeque<Turn>>,
    listings: Mutex<usize>,
}

impl ScriptedBucket {
    pub(crate) fn with(
        reads: impl IntoIterator<Item = Turn>,
        writes: impl IntoIterator<Item = Turn>,
    ) -> Self {
        Self {
            reads: Mutex::new(reads.into_iter().collect()),
            writes: Mutex::new(writes.into_iter().collect()),
            ..Self::default()
        }
    }

    /// How often it was listed.
    pub(crate) fn listings(&self) -> usize {
        *self.listings.lock().unwrap()
    }

    fn read(&self, key: &Key) -> Result<(), BucketError> {
        match next(&self.reads) {
            Turn::Work => Ok(()),
            _ => Err(failed(key)),
        }
    }

    async fn write(
        &self,
        key: &Key,
        written: impl Future<Output = Result<Swap, BucketError>>,
    ) -> Result<Swap, BucketError> {
        match next(&self.writes) {
            Turn::Work => written.await,
            Turn::Fail => Err(failed(key)),
            Turn::Lose => Ok(Swap::Lost),
            Turn::ApplySilently => written.await.map(|_| Swap::Unknown),
            Turn::Vanish => Ok(Swap::Unknown),
        }
    }
}

fn next(script: &Mutex<VecDeque<Turn>>) -> Turn {
    script.lock().unwrap().pop_front().unwrap_or(Turn::Work)
}

fn failed(key: &Key) -> BucketError {
    BucketError::new(BucketErrorKind::Unreachable, "ask for", key)
}

#[async_trait]
impl Bucket for ScriptedBucket {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>, BucketError> {
        self.read(key)?;
        self.inner.get(key, limit).await
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Option<Bytes>, BucketError> {
        self.inner.get_range(key, range).await
    }

    async fn head(&self, key: &Key) -> Result<Option<Head>, BucketError> {
        self.inner.head(key).await
    }

    async fn create(&self, key: &Key, body: Bytes) -> Result<Swap, BucketError> {
        self.write(key, self.inner.create(key, body)).await
    }

    async fn swap(&self, key: &Key, expected: &Version, body: Bytes) -> Result<Swap, BucketError> {
        self.write(key, self.inner.swap(key, expected, body)).await
    }

    async fn put(&self, key: &Key, body: Bytes) -> Result<(), BucketError> {
        self.inner.put(key, body).await
    }

    async fn put_stream(&self, key: &Key, body: ByteStream) -> Result<u64, BucketError> {
        self.inner.put_stream(key, body).await
    }

    async fn list(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, BucketError> {
        *self.listings.lock().unwrap() += 1;
        self.inner.list(prefix, after, limit).await
    }

    async fn delete(&self, key: &Key) -> Result<(), BucketError> {
        self.inner.delete(key).await
    }

    fn clock_offset_ms(&self) -> Option<i64> {
        None
    }
}
