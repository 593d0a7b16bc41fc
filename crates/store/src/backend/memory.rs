//! A bucket in memory, for tests and trials: gone when the process ends.

use crate::bucket::{
    Bucket, BucketError, BucketErrorKind, ByteStream, Head, Listed, Object, Swap, received,
};
use crate::layout::{Key, Prefix};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use stasis_model::format::document::Version;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Bound, Range};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A bucket that lives in one process. Versions come from one counter, so none is ever used twice.
#[derive(Default)]
pub struct MemoryBucket {
    rows: Mutex<MemoryRows>,
}

#[derive(Default)]
struct MemoryRows {
    objects: BTreeMap<Key, MemoryObject>,
    writes: u64,
}

struct MemoryObject {
    body: Bytes,
    write: u64,
}

impl MemoryObject {
    fn version(&self) -> Version {
        Version::new(self.write.to_string())
    }
}

impl MemoryRows {
    fn write(&mut self, key: &Key, body: Bytes) -> Version {
        self.writes += 1;
        let stored = MemoryObject {
            body,
            write: self.writes,
        };
        let version = stored.version();
        self.objects.insert(key.clone(), stored);
        version
    }
}

impl MemoryBucket {
    /// An empty bucket.
    pub fn new() -> Self {
        Self::default()
    }

    /// Every change is one statement under the lock, so a panic elsewhere cannot leave half of one behind.
    fn rows(&self) -> MutexGuard<'_, MemoryRows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryBucket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objects = self.rows().objects.len();
        out.debug_struct("MemoryBucket")
            .field("objects", &objects)
            .finish()
    }
}

#[async_trait]
impl Bucket for MemoryBucket {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>, BucketError> {
        let rows = self.rows();
        let Some(stored) = rows.objects.get(key) else {
            return Ok(None);
        };
        if stored.body.len() as u64 > limit {
            return Err(BucketError::new(BucketErrorKind::TooLarge, "read", key));
        }
        Ok(Some(Object {
            body: stored.body.clone(),
            version: stored.version(),
        }))
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Option<Bytes>, BucketError> {
        let part = |stored: &MemoryObject| {
            let at = |offset: u64| {
                usize::try_from(offset).map_or(stored.body.len(), |o| o.min(stored.body.len()))
            };
            let start = at(range.start);
            stored.body.slice(start..at(range.end).max(start))
        };
        Ok(self.rows().objects.get(key).map(part))
    }

    async fn head(&self, key: &Key) -> Result<Option<Head>, BucketError> {
        let head = |stored: &MemoryObject| Head {
            size: stored.body.len() as u64,
            version: stored.version(),
        };
        Ok(self.rows().objects.get(key).map(head))
    }

    async fn create(&self, key: &Key, body: Bytes) -> Result<Swap, BucketError> {
        let mut rows = self.rows();
        if rows.objects.contains_key(key) {
            return Ok(Swap::Lost);
        }
        Ok(Swap::Won(rows.write(key, body)))
    }

    async fn swap(&self, key: &Key, expected: &Version, body: Bytes) -> Result<Swap, BucketError> {
        let mut rows = self.rows();
        if rows.objects.get(key).map(MemoryObject::version).as_ref() != Some(expected) {
            return Ok(Swap::Lost);
        }
        Ok(Swap::Won(rows.write(key, body)))
    }

    async fn put(&self, key: &Key, body: Bytes) -> Result<(), BucketError> {
        self.rows().write(key, body);
        Ok(())
    }

    async fn put_stream(&self, key: &Key, mut body: ByteStream) -> Result<u64, BucketError> {
        let mut whole = Vec::new();
        while let Some(piece) = body.next().await {
            whole.extend_from_slice(&received(key, piece)?);
        }
        let size = whole.len() as u64;
        self.rows().write(key, whole.into());
        Ok(size)
    }

    async fn list(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, BucketError> {
        let rows = self.rows();
        let start = match after.map(Key::as_str) {
            Some(after) if after >= prefix.as_str() => Bound::Excluded(after),
            _ => Bound::Included(prefix.as_str()),
        };
        let listed = rows
            .objects
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(key, _)| key.as_str().starts_with(prefix.as_str()))
            .take(limit)
            .map(|(key, stored)| Listed {
                key: key.clone(),
                size: stored.body.len() as u64,
                version: Some(stored.version()),
            });
        Ok(listed.collect())
    }

    async fn delete(&self, key: &Key) -> Result<(), BucketError> {
        self.rows().objects.remove(key);
        Ok(())
    }

    fn clock_offset_ms(&self) -> Option<i64> {
        None
    }
}
