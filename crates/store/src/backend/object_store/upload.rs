//! Large objects, part by part.
//!
//! 1. start an upload   2. send its parts, a few at a time   3. complete it
//!
//! *Always true:* the object appears with 3, whole. What fails before is aborted, and so is what nobody waits for any more, as
//! long as the process lives; what is left behind even so nobody sees, and the bucket's own rule about unfinished uploads
//! removes it. A part can be sent again without harm, so it is; completing is not tried again. Once it was asked for, an upload
//! is aborted only if the store clearly refused: otherwise it may still be at it. A completion without a clear answer is
//! settled by looking for the object, whose name stands for its bytes.

use super::ObjectBucket;
use super::answer::{Answered as _, Sent, StoreFailure};
use super::explanation::Cause;
use crate::bucket::{Bucket, BucketError, BucketErrorKind, ByteStream, received};
use crate::layout::Key;
use ::object_store::MultipartId;
use ::object_store::multipart::{MultipartStore, PartId};
use ::object_store::path::Path;
use bytes::{Bytes, BytesMut};
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, TryStreamExt};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(super) const DOING: &str = "store";
/// How often a part is sent.
const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// A stream cut into parts of one size; the last one may be smaller.
struct UploadParts {
    body: ByteStream,
    waiting: BytesMut,
    part_size: usize,
}

impl UploadParts {
    /// The next part, or what is left; empty at the end.
    async fn next(&mut self, key: &Key) -> Result<Bytes, BucketError> {
        while self.waiting.len() < self.part_size {
            let Some(piece) = self.body.next().await else {
                break;
            };
            self.waiting.extend_from_slice(&received(key, piece)?);
        }
        let length = self.part_size.min(self.waiting.len());
        Ok(self.waiting.split_to(length).freeze())
    }
}

/// An upload that was started.
pub(super) struct Upload<'a> {
    pub(super) bucket: &'a ObjectBucket,
    /// What its parts go through.
    pub(super) uploads: Arc<dyn MultipartStore>,
    pub(super) key: &'a Key,
    pub(super) path: Path,
    pub(super) id: String,
    /// It was neither aborted nor is it being completed: whoever drops it now leaves its parts behind.
    is_open: AtomicBool,
}

/// Every part of an object, in order.
pub(super) struct AllParts {
    pub(super) ids: Vec<PartId>,
    pub(super) size: u64,
}

/// Sends a request that can be sent again without harm, a few times while the store cannot be reached.
pub(super) async fn repeated<T, F>(
    attempts: u32,
    mut ask: impl FnMut() -> F,
) -> Result<T, StoreFailure>
where
    F: Future<Output = Sent<T>>,
{
    let mut pause = FIRST_PAUSE;
    for _ in 1..attempts {
        match ask().await.0 {
            Err(failure) if failure.kind() == BucketErrorKind::Unreachable => {}
            settled => return settled,
        }
        tokio::time::sleep(pause).await;
        pause *= 3;
    }
    ask().await.0
}

/// Makes all requests, so many at once. After a failure none begins, and those on their way are waited for.
pub(super) async fn all_of<T, E, F>(
    most: usize,
    mut requests: impl Iterator<Item = F>,
) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut running = FuturesUnordered::new();
    let (mut done, mut failed) = (Vec::new(), None);
    loop {
        while failed.is_none() && running.len() < most.max(1) {
            let Some(request) = requests.next() else {
                break;
            };
            running.push(request);
        }
        match running.next().await {
            None => return failed.map_or(Ok(done), Err),
            Some(Ok(one)) => done.push(one),
            Some(Err(error)) => {
                failed.get_or_insert(error);
            }
        }
    }
}

impl ObjectBucket {
    pub(super) async fn upload(&self, key: &Key, body: ByteStream) -> Result<u64, BucketError> {
        let mut parts = UploadParts {
            body,
            waiting: BytesMut::new(),
            part_size: self.settings.part_size,
        };
        let first = parts.next(key).await?;
        if first.len() < self.settings.part_size {
            let size = first.len() as u64;
            self.put(key, first).await?;
            return Ok(size);
        }
        let upload = self.start(key, self.cloud.uploads.clone()).await?;
        match upload.send(first, parts).await {
            Ok(sent) => upload.complete(sent).await,
            Err(error) => {
                upload.abort().await;
                Err(error)
            }
        }
    }

    /// Starts an upload.
    pub(super) async fn start<'a>(
        &'a self,
        key: &'a Key,
        uploads: Arc<dyn MultipartStore>,
    ) -> Result<Upload<'a>, BucketError> {
        let path = self.path(DOING, key)?;
        let started = self.ask(0, uploads.create_multipart(&path)).await.0;
        let id = started.while_asking(DOING, key)?;
        Ok(Upload {
            bucket: self,
            uploads,
            key,
            path,
            id,
            is_open: AtomicBool::new(true),
        })
    }
}

impl Upload<'_> {
    /// Sends every part.
    async fn send(&self, first: Bytes, mut parts: UploadParts) -> Result<AllParts, BucketError> {
        let mut travelling = FuturesUnordered::new();
        let mut arrived: Vec<(usize, PartId)> = Vec::new();
        let (mut size, mut index, mut part) = (0, 0, first);
        let sending = async {
            while !part.is_empty() {
                size += part.len() as u64;
                travelling.push(self.send_part(index, part));
                index += 1;
                if travelling.len() >= self.bucket.settings.parts_in_flight.max(1) {
                    arrived.extend(travelling.try_next().await?);
                }
                part = parts.next(self.key).await?;
            }
            while let Some(sent) = travelling.try_next().await? {
                arrived.push(sent);
            }
            Ok(())
        };
        let sent = sending.await;
        // It is aborted next, and a part that arrived after that would stay.
        while travelling.next().await.is_some() {}
        sent?;
        arrived.sort_unstable_by_key(|(index, _)| *index);
        let ids = arrived.into_iter().map(|(_, id)| id).collect();
        Ok(AllParts { ids, size })
    }

    pub(super) async fn send_part(
        &self,
        index: usize,
        part: Bytes,
    ) -> Result<(usize, PartId), BucketError> {
        let (bucket, size) = (self.bucket, part.len() as u64);
        let sent = repeated(ATTEMPTS, || {
            let payload = part.clone().into();
            let put = self.uploads.put_part(&self.path, &self.id, index, payload);
            bucket.ask(size, put)
        });
        let id = sent.await.while_asking(DOING, self.key)?;
        Ok((index, id))
    }

    /// Makes the object of its parts; returns its size.
    pub(super) async fn complete(&self, parts: AllParts) -> Result<u64, BucketError> {
        let (bucket, size) = (self.bucket, parts.size);
        self.is_open.store(false, Ordering::Relaxed);
        let complete = self
            .uploads
            .complete_multipart(&self.path, &self.id, parts.ids);
        let budget = bucket.settings.completion_budget(size);
        let Err(failure) = bucket.ask_within(budget, complete).await.0 else {
            return Ok(size);
        };
        // Whoever asked a second time for us is told that there is no such upload any more.
        if failure.may_have_been_applied() || failure.cause() == Some(Cause::NoSuchUpload) {
            return self.settle(size, failure).await;
        }
        self.is_open.store(true, Ordering::Relaxed);
        self.abort().await;
        Err(failure.into_error(DOING, self.key))
    }

    /// Finds out whether the object is there although the answer was not clear.
    async fn settle(&self, size: u64, failure: StoreFailure) -> Result<u64, BucketError> {
        tracing::debug!(key = %self.key, %failure, "a completion without a clear answer");
        let mut pause = FIRST_PAUSE;
        for _ in 1..ATTEMPTS {
            match self.bucket.head(self.key).await {
                Ok(Some(head)) if head.size == size => return Ok(size),
                Err(error) if error.kind == BucketErrorKind::Unreachable => {}
                _ => break,
            }
            tokio::time::sleep(pause).await;
            pause *= 3;
        }
        let kind = BucketErrorKind::Unreachable;
        let error = failure.into_error(DOING, self.key);
        Err(BucketError { kind, ..error })
    }

    /// Gives it up. Nothing of it may be on its way any more, or the store may keep what arrives later.
    pub(super) async fn abort(&self) {
        let aborted = aborted(self.bucket, &*self.uploads, &self.path, &self.id);
        if let Err(failure) = aborted.await {
            tracing::warn!(key = %self.key, %failure, "an unfinished upload could not be aborted");
        }
        self.is_open.store(false, Ordering::Relaxed);
    }
}

async fn aborted(
    bucket: &ObjectBucket,
    uploads: &dyn MultipartStore,
    path: &Path,
    id: &MultipartId,
) -> Result<(), StoreFailure> {
    repeated(ATTEMPTS, || {
        bucket.ask(0, uploads.abort_multipart(path, id))
    })
    .await
}

/// Whoever stops waiting for an upload cannot wait for its end either: that is a task of its own.
impl Drop for Upload<'_> {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if !self.is_open.load(Ordering::Relaxed) {
            return;
        }
        let (bucket, uploads) = (self.bucket.clone(), self.uploads.clone());
        let (path, id) = (self.path.clone(), self.id.clone());
        runtime.spawn(async move {
            if let Err(failure) = aborted(&bucket, &*uploads, &path, &id).await {
                tracing::warn!(%path, %failure, "an unfinished upload could not be aborted");
            }
        });
    }
}
