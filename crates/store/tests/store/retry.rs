use crate::support::SeededChance;
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use stasis_model::format::document::Version;
use stasis_store::backend::memory::MemoryBucket;
use stasis_store::bucket::{
    Bucket, BucketError, BucketErrorKind, ByteStream, Head, Listed, Object, Swap,
};
use stasis_store::layout::{self, Key, Prefix};
use stasis_store::retry::{RetrySettings, Retrying};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::time::Instant;

/// A bucket that fails the first few times it is asked.
#[derive(Debug)]
struct Stumbling {
    inner: MemoryBucket,
    failures: usize,
    kind: BucketErrorKind,
    asked: AtomicUsize,
}

impl Stumbling {
    fn new(failures: usize, kind: BucketErrorKind) -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryBucket::new(),
            failures,
            kind,
            asked: AtomicUsize::new(0),
        })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    fn stumble(&self) -> Result<(), BucketError> {
        if self.asked.fetch_add(1, Ordering::Relaxed) < self.failures {
            return Err(BucketError::new(self.kind, "ask", "the store"));
        }
        Ok(())
    }
}

#[async_trait]
impl Bucket for Stumbling {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>, BucketError> {
        self.stumble()?;
        self.inner.get(key, limit).await
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Option<Bytes>, BucketError> {
        self.stumble()?;
        self.inner.get_range(key, range).await
    }

    async fn head(&self, key: &Key) -> Result<Option<Head>, BucketError> {
        self.stumble()?;
        self.inner.head(key).await
    }

    /// Applies the write, and loses the answer.
    async fn create(&self, key: &Key, body: Bytes) -> Result<Swap, BucketError> {
        self.stumble()?;
        let _ = self.inner.create(key, body).await?;
        Ok(Swap::Unknown)
    }

    async fn swap(&self, key: &Key, expected: &Version, body: Bytes) -> Result<Swap, BucketError> {
        self.stumble()?;
        self.inner.swap(key, expected, body).await
    }

    async fn put(&self, key: &Key, body: Bytes) -> Result<(), BucketError> {
        self.stumble()?;
        self.inner.put(key, body).await
    }

    async fn put_stream(&self, key: &Key, body: ByteStream) -> Result<u64, BucketError> {
        self.stumble()?;
        self.inner.put_stream(key, body).await
    }

    async fn list(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, BucketError> {
        self.stumble()?;
        self.inner.list(prefix, after, limit).await
    }

    async fn delete(&self, key: &Key) -> Result<(), BucketError> {
        self.stumble()?;
        self.inner.delete(key).await
    }

    fn clock_offset_ms(&self) -> Option<i64> {
        Some(17)
    }
}

fn retrying(inner: &Arc<Stumbling>) -> Retrying<Arc<Stumbling>> {
    let rng = Arc::new(SeededChance::new(3));
    Retrying::new(Arc::clone(inner), rng, RetrySettings::default())
}

#[tokio::test(start_paused = true)]
async fn what_can_be_repeated_is_repeated_until_the_store_answers() {
    let key = layout::probe_result();
    let three_failures = || Stumbling::new(3, BucketErrorKind::Unreachable);

    let inner = three_failures();
    assert_eq!(retrying(&inner).get(&key, 9).await.unwrap(), None);
    assert_eq!(inner.asked(), 4);
    assert_eq!(
        retrying(&three_failures())
            .get_range(&key, 0..9)
            .await
            .unwrap(),
        None
    );
    assert_eq!(retrying(&three_failures()).head(&key).await.unwrap(), None);
    retrying(&three_failures())
        .put(&key, "x".into())
        .await
        .unwrap();
    retrying(&three_failures()).delete(&key).await.unwrap();
    let listed = retrying(&three_failures())
        .list(&Prefix::everything(), None, 9)
        .await;
    assert_eq!(listed.unwrap(), []);
    assert_eq!(retrying(&inner).clock_offset_ms(), Some(17));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_swap_is_passed_on_and_never_repeated() {
    let inner = Stumbling::new(0, BucketErrorKind::Unreachable);

    let swap = retrying(&inner)
        .create(&layout::probe_result(), "x".into())
        .await;

    assert_eq!(swap.unwrap(), Swap::Unknown);
    assert_eq!(inner.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_conditional_write_that_was_not_applied_is_repeated() {
    let (inner, key) = (
        Stumbling::new(2, BucketErrorKind::Unreachable),
        layout::probe_result(),
    );
    inner.inner.put(&key, "old".into()).await.unwrap();
    let version = inner.inner.head(&key).await.unwrap().unwrap().version;

    let swap = retrying(&inner).swap(&key, &version, "new".into()).await;

    assert!(matches!(swap.unwrap(), Swap::Won(_)));
    assert_eq!(inner.asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_not_repeated() {
    let inner = Stumbling::new(1, BucketErrorKind::Unreachable);
    let body = stream::iter([Ok(Bytes::from("x"))]).boxed();

    let stored = retrying(&inner)
        .put_stream(&layout::probe_result(), body)
        .await;

    assert!(stored.is_err());
    assert_eq!(inner.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_reported_at_the_deadline() {
    let inner = Stumbling::new(usize::MAX, BucketErrorKind::Unreachable);
    let start = Instant::now();

    let error = retrying(&inner)
        .get(&layout::probe_result(), 9)
        .await
        .unwrap_err();

    assert_eq!(error.kind, BucketErrorKind::Unreachable);
    let (spent, deadline) = (start.elapsed(), RetrySettings::default().deadline);
    let longest_pause = RetrySettings::default().longest_pause;
    assert!(spent + longest_pause > deadline, "{spent:?}");
    assert!(spent <= deadline, "{spent:?}");
    assert!((6..=15).contains(&inner.asked()), "{}", inner.asked());
}

#[tokio::test(start_paused = true)]
async fn what_waiting_does_not_help_is_not_repeated() {
    for kind in [
        BucketErrorKind::Absent,
        BucketErrorKind::Denied,
        BucketErrorKind::Corrupt,
        BucketErrorKind::Full,
        BucketErrorKind::TooLarge,
        BucketErrorKind::Unsupported,
    ] {
        let inner = Stumbling::new(1, kind);

        let error = retrying(&inner)
            .get(&layout::probe_result(), 9)
            .await
            .unwrap_err();

        assert_eq!((error.kind, inner.asked()), (kind, 1));
    }
}
