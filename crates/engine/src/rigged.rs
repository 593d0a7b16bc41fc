//! A bucket in memory that does as the test wants at the very request that the test is about.

mod hosts;
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
use std::time::Duration;
use tokio::sync::RwLock;

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
    /// It is applied after this time, when nobody waits for an answer any more.
    Late(Duration),
    /// It is applied twice, and the second answer comes back.
    Twice,
}

/// A change of one object.
#[derive(Clone)]
enum Change {
    Create(Bytes),
    Swap(Version, Bytes),
    Put(Bytes),
    Delete,
}

impl Change {
    async fn apply(self, objects: Arc<MemoryBucket>, key: Key) -> Result<Swap, BucketError> {
        let done = |()| Swap::Won(Version::new("done"));
        match self {
            Self::Create(body) => objects.create(&key, body).await,
            Self::Swap(expected, body) => objects.swap(&key, &expected, body).await,
            Self::Put(body) => objects.put(&key, body).await.map(done),
            Self::Delete => objects.delete(&key).await.map(done),
        }
    }
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

/// Where writes are under way. Each holds it to read from the moment it is sent until it is applied or lost, however late that is:
/// whoever holds it to write knows that none is under way, and none is sent meanwhile.
pub(crate) type Road = Arc<RwLock<()>>;

/// The bucket.
#[derive(Default)]
pub(crate) struct Rigged {
    /// The same objects, for whoever has a better network.
    pub(crate) inner: Arc<MemoryBucket>,
    rig: Mutex<(Option<Rig>, bool)>,
    road: Road,
    log: Mutex<Vec<String>>,
    written: Mutex<Vec<String>>,
}

impl fmt::Debug for Rigged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rigged({:?})", self.inner)
    }
}

impl Rigged {
    /// Another way to these objects, along a road that others take too.
    pub(crate) fn along(inner: Arc<MemoryBucket>, road: Road) -> Self {
        Self {
            inner,
            road,
            ..Self::default()
        }
    }

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

    /// Every key that somebody wrote since the last time somebody asked.
    pub(crate) fn written(&self) -> Vec<String> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut written)
    }

    fn note(&self, verb: &str, key: &str) {
        if matches!(verb, "create" | "swap" | "put" | "delete") {
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            written.push(key.to_owned());
        }
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

    async fn conditional(&self, key: &Key, change: Change) -> Result<Swap, BucketError> {
        let apply = || change.clone().apply(self.inner.clone(), key.clone());
        let under_way = self.road.clone().read_owned().await;
        match self.turn(true, key.as_str()).await {
            Turn::Work => apply().await,
            Turn::Fail => Err(unreachable_store(key)),
            Turn::ApplySilently => {
                let _ = apply().await?;
                Ok(Swap::Unknown)
            }
            Turn::Vanish => Ok(Swap::Unknown),
            Turn::Late(by) => {
                let late = apply();
                tokio::spawn(async move {
                    tokio::time::sleep(by).await;
                    let landed = late.await;
                    drop(under_way);
                    landed
                });
                Ok(Swap::Unknown)
            }
            Turn::Twice => {
                let _ = apply().await?;
                apply().await
            }
        }
    }

    /// A change without a condition: what nobody answered has failed, as far as the caller knows.
    async fn overwrite(&self, key: &Key, change: Change) -> Result<(), BucketError> {
        match self.conditional(key, change).await? {
            Swap::Won(_) => Ok(()),
            Swap::Lost | Swap::Unknown => Err(unreachable_store(key)),
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
        self.conditional(key, Change::Create(body)).await
    }

    async fn swap(&self, key: &Key, expected: &Version, body: Bytes) -> Result<Swap, BucketError> {
        self.note("swap", key.as_str());
        self.conditional(key, Change::Swap(expected.clone(), body))
            .await
    }

    async fn put(&self, key: &Key, body: Bytes) -> Result<(), BucketError> {
        self.note("put", key.as_str());
        self.overwrite(key, Change::Put(body)).await
    }

    async fn put_stream(&self, key: &Key, body: ByteStream) -> Result<u64, BucketError> {
        self.note("put", key.as_str());
        let _under_way = self.road.read().await;
        match self.turn(true, key.as_str()).await {
            Turn::Work | Turn::Twice => self.inner.put_stream(key, body).await,
            Turn::ApplySilently | Turn::Late(_) => {
                self.inner.put_stream(key, body).await?;
                Err(unreachable_store(key))
            }
            Turn::Fail | Turn::Vanish => Err(unreachable_store(key)),
        }
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
        self.overwrite(key, Change::Delete).await
    }

    async fn written_at(&self, _key: &Key) -> Result<Option<Timestamp>, BucketError> {
        Ok(None)
    }

    fn clock_offset_ms(&self) -> Option<i64> {
        None
    }
}
