//! A bucket in memory that does as the test wants at the very request that the test is about.

pub(crate) mod pool;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use stasis_model::format::document::Version;
use stasis_model::time::Timestamp;
use stasis_store::backend::memory::MemoryBucket;
use stasis_store::bucket::{
    Bucket, BucketError, BucketErrorKind, ByteStream, Head, Listed, Object, Swap,
};
use stasis_store::layout::{Key, Prefix};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What becomes of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// It is carried out.
    Work,
    /// It fails, and nothing was applied.
    Fail,
    /// It is applied, and its answer is lost.
    ApplySilently,
    /// It is lost, and so is its answer.
    Vanish,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    writes: bool,
    key: String,
    /// Whether a manifest was stored since the bucket was rigged.
    after_manifest: bool,
}

impl Asked {
    /// Whether it writes an object whose name ends like this.
    pub(crate) fn writes(&self, end: &str) -> bool {
        self.writes && self.key.ends_with(end)
    }

    /// Whether it writes a chunk.
    pub(crate) fn writes_chunk(&self) -> bool {
        self.writes && self.key.contains("/chunks/")
    }

    /// Whether it reads an object whose name ends like this.
    pub(crate) fn reads(&self, end: &str) -> bool {
        !self.writes && self.key.ends_with(end)
    }

    /// Whether it is the one that publishes a snapshot which is stored already.
    pub(crate) fn publishes(&self) -> bool {
        self.writes("latest.json") && self.after_manifest
    }
}

type Rig = Arc<dyn Fn(Asked) -> BoxFuture<'static, Turn> + Send + Sync>;

/// The bucket.
#[derive(Default)]
pub(crate) struct Rigged {
    /// The same objects, for whoever has a better network.
    pub(crate) inner: Arc<MemoryBucket>,
    rig: Mutex<(Option<Rig>, bool)>,
    log: Mutex<Vec<String>>,
}

impl fmt::Debug for Rigged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rigged({:?})", self.inner)
    }
}

impl Rigged {
    fn state(&self) -> MutexGuard<'_, (Option<Rig>, bool)> {
        self.rig.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on every request is shown to `rig`, which may do anything before it decides.
    pub(crate) fn rig(
        &self,
        rig: impl Fn(Asked) -> BoxFuture<'static, Turn> + Send + Sync + 'static,
    ) {
        *self.state() = (Some(Arc::new(rig)), false);
    }

    /// The same for a decision that takes no time.
    pub(crate) fn decide(&self, decide: impl Fn(&Asked) -> Turn + Send + Sync + 'static) {
        self.rig(move |asked| {
            let turn = decide(&asked);
            Box::pin(async move { turn })
        });
    }

    /// Everything works again.
    pub(crate) fn mend(&self) {
        *self.state() = (None, false);
    }

    /// Every request since the last time somebody asked, as `verb name`.
    pub(crate) fn requests(&self) -> Vec<String> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut log)
    }

    fn note(&self, verb: &str, key: &str) {
        let name = key.trim_end_matches('/').rsplit('/').next().unwrap_or(key);
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(format!("{verb} {name}"));
    }

    async fn turn(&self, writes: bool, key: &str) -> Turn {
        let (rig, asked) = {
            let state = self.state();
            let (key, after_manifest) = (key.to_owned(), state.1);
            let asked = Asked {
                writes,
                key,
                after_manifest,
            };
            (state.0.clone(), asked)
        };
        let turn = match rig {
            Some(rig) => rig(asked).await,
            None => Turn::Work,
        };
        if writes && turn == Turn::Work && key.ends_with(".manifest.json") {
            self.state().1 = true;
        }
        turn
    }

    async fn reading(&self, key: &(impl fmt::Display + Sync)) -> Result<(), BucketError> {
        match self.turn(false, &key.to_string()).await {
            Turn::Work => Ok(()),
            _ => Err(unreachable_store(key)),
        }
    }

    async fn conditional(
        &self,
        key: &Key,
        write: impl Future<Output = Result<Swap, BucketError>> + Send,
    ) -> Result<Swap, BucketError> {
        match self.turn(true, key.as_str()).await {
            Turn::Work => write.await,
            Turn::Fail => Err(unreachable_store(key)),
            Turn::ApplySilently => {
                let _ = write.await?;
                Ok(Swap::Unknown)
            }
            Turn::Vanish => Ok(Swap::Unknown),
        }
    }

    async fn writing(&self, key: &Key) -> Result<(), BucketError> {
        match self.turn(true, key.as_str()).await {
            Turn::Work | Turn::ApplySilently => Ok(()),
            Turn::Fail | Turn::Vanish => Err(unreachable_store(key)),
        }
    }
}

fn unreachable_store(key: impl fmt::Display) -> BucketError {
    BucketError::new(BucketErrorKind::Unreachable, "reach", key)
}

#[async_trait]
impl Bucket for Rigged {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>, BucketError> {
        self.note("get", key.as_str());
        self.reading(key).await?;
        self.inner.get(key, limit).await
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Option<Bytes>, BucketError> {
        self.note("range", key.as_str());
        self.reading(key).await?;
        self.inner.get_range(key, range).await
    }

    async fn head(&self, key: &Key) -> Result<Option<Head>, BucketError> {
        self.note("head", key.as_str());
        self.reading(key).await?;
        self.inner.head(key).await
    }

    async fn create(&self, key: &Key, body: Bytes) -> Result<Swap, BucketError> {
        self.note("create", key.as_str());
        self.conditional(key, self.inner.create(key, body)).await
    }

    async fn swap(&self, key: &Key, expected: &Version, body: Bytes) -> Result<Swap, BucketError> {
        self.note("swap", key.as_str());
        self.conditional(key, self.inner.swap(key, expected, body))
            .await
    }

    async fn put(&self, key: &Key, body: Bytes) -> Result<(), BucketError> {
        self.note("put", key.as_str());
        self.writing(key).await?;
        self.inner.put(key, body).await
    }

    async fn put_stream(&self, key: &Key, body: ByteStream) -> Result<u64, BucketError> {
        self.note("put", key.as_str());
        self.writing(key).await?;
        self.inner.put_stream(key, body).await
    }

    async fn list(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, BucketError> {
        self.note("list", prefix.as_str());
        self.reading(prefix).await?;
        self.inner.list(prefix, after, limit).await
    }

    async fn delete(&self, key: &Key) -> Result<(), BucketError> {
        self.note("delete", key.as_str());
        self.writing(key).await?;
        self.inner.delete(key).await
    }

    async fn written_at(&self, _key: &Key) -> Result<Option<Timestamp>, BucketError> {
        Ok(None)
    }

    fn clock_offset_ms(&self) -> Option<i64> {
        None
    }
}
