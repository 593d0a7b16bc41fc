//! Large objects, part by part.
//!
//! 1. start an upload   2. send its parts, a few at a time   3. complete it
//!
//! *Always true:* the object appears with 3, whole. What fails before is aborted; what is interrupted leaves parts
//! behind that nobody sees, for the bucket's own rule about unfinished uploads. A part can be sent again without harm,
//! so it is; completing is not tried again.

use super::S3Bucket;
use crate::bucket::{Bucket, BucketError, BucketErrorKind, ByteStream, broken_stream};
use crate::layout::Key;
use bytes::{Bytes, BytesMut};
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, TryStreamExt};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use std::time::Duration;

const DOING: &str = "store";
/// How often a part is sent.
const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// A stream cut into parts of one size; the last one may be smaller.
struct Parts {
    body: ByteStream,
    waiting: BytesMut,
    part_size: usize,
}

impl Parts {
    /// The next part, or what is left; empty at the end.
    async fn next(&mut self, key: &Key) -> Result<Bytes, BucketError> {
        while self.waiting.len() < self.part_size {
            match self.body.next().await {
                Some(Ok(piece)) => self.waiting.extend_from_slice(&piece),
                Some(Err(source)) => return Err(broken_stream(key, source)),
                None => break,
            }
        }
        let length = self.part_size.min(self.waiting.len());
        Ok(self.waiting.split_to(length).freeze())
    }
}

/// An upload that was started.
struct Upload<'a> {
    bucket: &'a S3Bucket,
    key: &'a Key,
    path: Path,
    id: String,
}

impl S3Bucket {
    pub(super) async fn upload(&self, key: &Key, body: ByteStream) -> Result<u64, BucketError> {
        let mut parts = Parts {
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
        let upload = self.start(key).await?;
        match upload.send(first, parts).await {
            Ok(size) => Ok(size),
            Err(error) => {
                upload.abort().await;
                Err(error)
            }
        }
    }

    async fn start<'a>(&'a self, key: &'a Key) -> Result<Upload<'a>, BucketError> {
        let path = self.path(DOING, key)?;
        let started = self.ask(0, self.store.create_multipart(&path)).await.0;
        let id = started.map_err(|failure| failure.into_error(DOING, key))?;
        Ok(Upload {
            bucket: self,
            key,
            path,
            id,
        })
    }
}

impl Upload<'_> {
    /// Sends every part and completes; returns the size of the object.
    async fn send(&self, first: Bytes, mut parts: Parts) -> Result<u64, BucketError> {
        let mut travelling = FuturesUnordered::new();
        let mut arrived: Vec<(usize, PartId)> = Vec::new();
        let (mut size, mut index, mut part) = (0, 0, first);
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
        arrived.sort_unstable_by_key(|(index, _)| *index);
        let ids = arrived.into_iter().map(|(_, id)| id).collect();
        self.complete(ids).await?;
        Ok(size)
    }

    async fn send_part(&self, index: usize, part: Bytes) -> Result<(usize, PartId), BucketError> {
        let (bucket, size) = (self.bucket, part.len() as u64);
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            let payload = part.clone().into();
            let put = bucket.store.put_part(&self.path, &self.id, index, payload);
            let failure = match bucket.ask(size, put).await.0 {
                Ok(id) => return Ok((index, id)),
                Err(failure) => failure.into_error(DOING, self.key),
            };
            if attempt == ATTEMPTS || failure.kind != BucketErrorKind::Unreachable {
                return Err(failure);
            }
            tokio::time::sleep(pause).await;
            pause *= 3;
        }
        unreachable!("the last attempt returns")
    }

    async fn complete(&self, parts: Vec<PartId>) -> Result<(), BucketError> {
        let store = &self.bucket.store;
        let complete = store.complete_multipart(&self.path, &self.id, parts);
        match self.bucket.ask(0, complete).await.0 {
            Ok(_) => Ok(()),
            Err(failure) => {
                // A success whose body says otherwise is an error of the server.
                let said_yes = failure.status().is_some_and(|status| status.is_success());
                let error = failure.into_error(DOING, self.key);
                let kind = if said_yes {
                    BucketErrorKind::Unreachable
                } else {
                    error.kind
                };
                Err(BucketError { kind, ..error })
            }
        }
    }

    async fn abort(&self) {
        let abort = self.bucket.store.abort_multipart(&self.path, &self.id);
        if let Err(failure) = self.bucket.ask(0, abort).await.0 {
            tracing::warn!(key = %self.key, %failure, "an unfinished upload could not be aborted");
        }
    }
}
