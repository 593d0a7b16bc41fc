//! One look at many documents that reads only those which changed since the look before.
//!
//! A listing says of each object which version it has. A document that was read under that version need not be read again, and
//! one that a whole listing does not have is not there, nor one in a directory that a part of a listing went through.
//!
//! *Always true:* what a view answers is what the store had when it was listed through that very view, or later. It is for
//! lists: whoever decides or changes something reads the store. Of chunks it notes nothing: there may be millions of them, and who
//! lists them wants their sizes.

mod passed;

use crate::bucket::{
    Bucket, BucketError, ByteStream, DerivedObject, Head, Listed, ListedPage, Object, PageToken,
    Swap,
};
use crate::layout::{self, Key, Prefix};
use async_trait::async_trait;
use bytes::Bytes;
use passed::PassedDirectories;
use stasis_model::format::document::Version;
use stasis_model::id::OpId;
use stasis_model::time::Timestamp;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Documents of one store that were read before, of so many bytes at most.
#[derive(Debug)]
pub struct DocumentMemory {
    most_bytes: usize,
    kept: Mutex<KeptDocuments>,
}

#[derive(Debug, Default)]
struct KeptDocuments {
    by_key: HashMap<Key, KeptDocument>,
    bytes: usize,
    /// How many views there were.
    views: u64,
}

#[derive(Debug)]
struct KeptDocument {
    object: Object,
    /// Which view asked for it last.
    view: u64,
}

/// Every change is one statement under the lock, so a panic elsewhere cannot leave half of one behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DocumentMemory {
    /// One that knows nothing yet.
    pub fn new(most_bytes: usize) -> Self {
        Self {
            most_bytes,
            kept: Mutex::default(),
        }
    }

    fn begin(&self) -> u64 {
        let mut kept = lock(&self.kept);
        kept.views += 1;
        kept.views
    }

    fn find(&self, key: &Key, version: &Version, view: u64) -> Option<Object> {
        let mut kept = lock(&self.kept);
        let found = kept.by_key.get_mut(key)?;
        if found.object.version != *version {
            return None;
        }
        found.view = found.view.max(view);
        Some(found.object.clone())
    }

    fn keep(&self, key: &Key, object: Object, view: u64) {
        let mut kept = lock(&self.kept);
        kept.forget(key);
        if kept.bytes + object.body.len() > self.most_bytes {
            // What this look still needs it would only have to read again.
            kept.forget_before(view);
        }
        if kept.bytes + object.body.len() <= self.most_bytes {
            kept.bytes += object.body.len();
            let document = KeptDocument { object, view };
            kept.by_key.insert(key.clone(), document);
        }
    }

    fn forget(&self, key: &Key) {
        lock(&self.kept).forget(key);
    }
}

impl KeptDocuments {
    fn forget(&mut self, key: &Key) {
        if let Some(old) = self.by_key.remove(key) {
            self.bytes -= old.object.body.len();
        }
    }

    fn forget_before(&mut self, view: u64) {
        self.by_key.retain(|_, document| document.view >= view);
        let left = self.by_key.values();
        self.bytes = left.map(|document| document.object.body.len()).sum();
    }
}

/// A bucket for one look at many documents.
#[derive(Debug)]
pub struct ListedView {
    bucket: Arc<dyn Bucket>,
    memory: Arc<DocumentMemory>,
    view: u64,
    listed: Mutex<ListedSoFar>,
}

/// What was listed through a view.
#[derive(Debug, Default)]
struct ListedSoFar {
    versions: HashMap<Key, Option<Version>>,
    /// Where the pages that were listed without a gap go on, by what they list.
    next: HashMap<Prefix, PageToken>,
    whole: HashSet<Prefix>,
    passed: PassedDirectories,
}

/// What a view knows of an object.
enum KnownObject {
    Version(Version),
    Absent,
    Unknown,
}

impl ListedSoFar {
    fn find(&self, key: &Key) -> KnownObject {
        if layout::is_chunk(key) {
            return KnownObject::Unknown;
        }
        let has_it = |prefix: &Prefix| key.as_str().starts_with(prefix.as_str());
        match self.versions.get(key) {
            Some(Some(version)) => KnownObject::Version(version.clone()),
            None if self.whole.iter().any(has_it) || self.passed.has(key) => KnownObject::Absent,
            Some(None) | None => KnownObject::Unknown,
        }
    }

    fn note(&mut self, prefix: &Prefix, token: Option<&PageToken>, page: &ListedPage) {
        let is_next = token.is_none_or(|token| self.next.get(prefix) == Some(token));
        self.next.remove(prefix);
        match &page.next {
            Some(next) if is_next => {
                self.next.insert(prefix.clone(), next.clone());
            }
            None if is_next => {
                self.whole.insert(prefix.clone());
            }
            _ => {}
        }
        self.note_versions(page);
    }

    fn note_versions(&mut self, page: &ListedPage) {
        for row in page.rows.iter().filter(|row| !layout::is_chunk(&row.key)) {
            match self.versions.entry(row.key.clone()) {
                // One that was written through this view meanwhile stays unknown.
                Entry::Occupied(mut known) if known.get().is_some() => {
                    known.insert(row.version.clone());
                }
                Entry::Occupied(_) => {}
                Entry::Vacant(new) => {
                    new.insert(row.version.clone());
                }
            }
        }
    }
}

impl ListedView {
    /// Begins a look; what it reads is remembered for the next one.
    pub fn new(bucket: Arc<dyn Bucket>, memory: Arc<DocumentMemory>) -> Self {
        Self {
            view: memory.begin(),
            bucket,
            memory,
            listed: Mutex::default(),
        }
    }

    /// What is about to be written is not known any more.
    fn forget(&self, key: &Key) {
        lock(&self.listed).versions.insert(key.clone(), None);
        self.memory.forget(key);
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Bucket for ListedView {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>, BucketError> {
        let known = lock(&self.listed).find(key);
        let version = match known {
            KnownObject::Version(version) => version,
            KnownObject::Absent => return Ok(None),
            KnownObject::Unknown => return self.bucket.get(key, limit).await,
        };
        let remembered = self.memory.find(key, &version, self.view);
        if let Some(object) = remembered.filter(|found| found.body.len() as u64 <= limit) {
            return Ok(Some(object));
        }
        let found = self.bucket.get(key, limit).await?;
        match &found {
            Some(object) => self.memory.keep(key, object.clone(), self.view),
            None => self.memory.forget(key),
        }
        Ok(found)
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Option<Bytes>, BucketError> {
        self.bucket.get_range(key, range).await
    }

    async fn head(&self, key: &Key) -> Result<Option<Head>, BucketError> {
        self.bucket.head(key).await
    }

    async fn size(&self, key: &Key) -> Result<Option<u64>, BucketError> {
        self.bucket.size(key).await
    }

    async fn create(&self, key: &Key, body: Bytes) -> Result<Swap, BucketError> {
        self.forget(key);
        self.bucket.create(key, body).await
    }

    async fn swap(&self, key: &Key, expected: &Version, body: Bytes) -> Result<Swap, BucketError> {
        self.forget(key);
        self.bucket.swap(key, expected, body).await
    }

    async fn put(&self, key: &Key, body: Bytes) -> Result<(), BucketError> {
        self.forget(key);
        self.bucket.put(key, body).await
    }

    async fn put_stream(&self, key: &Key, body: ByteStream) -> Result<u64, BucketError> {
        self.forget(key);
        self.bucket.put_stream(key, body).await
    }

    async fn put_derived(
        &self,
        key: &Key,
        object: &DerivedObject<'_>,
    ) -> Result<Option<u64>, BucketError> {
        self.forget(key);
        self.bucket.put_derived(key, object).await
    }

    async fn list(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, BucketError> {
        self.bucket.list(prefix, after, limit).await
    }

    async fn list_page(
        &self,
        prefix: &Prefix,
        token: Option<&PageToken>,
    ) -> Result<ListedPage, BucketError> {
        let page = self.bucket.list_page(prefix, token).await?;
        lock(&self.listed).note(prefix, token, &page);
        Ok(page)
    }

    async fn list_after(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<ListedPage, BucketError> {
        let page = self.bucket.list_after(prefix, after, limit).await?;
        let mut listed = lock(&self.listed);
        listed.note_versions(&page);
        listed.passed.note(prefix, after, &page);
        Ok(page)
    }

    async fn delete(&self, key: &Key) -> Result<(), BucketError> {
        self.forget(key);
        self.bucket.delete(key).await
    }

    async fn exists(&self, key: &Key) -> Result<bool, BucketError> {
        self.bucket.exists(key).await
    }

    async fn written_at(&self, key: &Key) -> Result<Option<Timestamp>, BucketError> {
        self.bucket.written_at(key).await
    }

    async fn stage(&self, batch: OpId, key: &Key, body: Bytes) -> Result<(), BucketError> {
        self.forget(key);
        self.bucket.stage(batch, key, body).await
    }

    async fn commit(&self, batch: OpId) -> Result<(), BucketError> {
        self.bucket.commit(batch).await
    }

    async fn sync(&self) -> Result<(), BucketError> {
        self.bucket.sync().await
    }

    async fn abandon(&self, batch: OpId) {
        self.bucket.abandon(batch).await;
    }

    fn clock_offset_ms(&self) -> Option<i64> {
        self.bucket.clock_offset_ms()
    }
}

#[cfg(test)]
mod tests;
