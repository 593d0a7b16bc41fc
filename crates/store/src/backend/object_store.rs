//! A bucket in any cloud that `object_store` has a client for, over that library's own traits.
//!
//! `object_store` signs, sends and parses; what an answer *means* is decided here, from the HTTP status that a [`HttpWitness`]
//! saw, because the library folds answers together that are not the same: a 409 settles nothing, a 412 does. Its own
//! retries are off: a conditional write that is sent twice can be refused by its own success.
//!
//! *Always true:* a conditional write that fails with an error was not applied; one that may have been is `Unknown`.
//! Every request ends within a time that grows only with its size. Requests are never redirected.

mod answer;
mod derive;
mod explanation;
mod part_plan;
mod settings;
mod upload;
mod wire;

pub use derive::{CopiedPart, PartCopier, PartCopy};
pub use explanation::{Cause, Explain, Explanation};
pub use settings::TransferSettings;
pub use wire::HttpWitness;

use crate::bucket::{
    Bucket, BucketContext as _, BucketError, BucketErrorKind, ByteStream, DerivedObject, Head,
    Listed, ListedPage, Object, PageToken, Swap, objects,
};
use crate::layout::{Key, Prefix};
use ::object_store::list::{PaginatedListOptions, PaginatedListStore};
use ::object_store::multipart::MultipartStore;
use ::object_store::path::Path;
use ::object_store::{
    GetOptions, GetRange, GetResult, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutResult,
    UpdateVersion,
};
use answer::{Answered as _, Sent, StoreFailure};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use derive::CopyLimits;
use futures_util::{StreamExt, TryStreamExt};
use http::StatusCode;
use stasis_model::format::document::Version;
use stasis_model::time::Timestamp;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use wire::traced;

/// One cloud: the library's client by each of its own traits, and what is peculiar to it.
#[derive(Clone)]
pub struct Cloud {
    /// Reads, writes and deletes.
    pub objects: Arc<dyn ObjectStore>,
    /// Uploads large objects part by part.
    pub uploads: Arc<dyn MultipartStore>,
    /// Copies ranges of objects into parts of others; `None` where the cloud cannot.
    pub copies: Option<Arc<dyn PartCopier>>,
    /// Lists page by page.
    pub pages: Arc<dyn PaginatedListStore>,
    /// What our keys begin with in the bucket; empty, or without a slash at its end.
    pub prefix: String,
    /// How the bucket is shown by `Debug`.
    pub label: String,
    /// Looks at every answer. Without one the library's errors have to say what happened, which is enough for stores that
    /// are not asked over a network.
    pub witness: Option<Arc<HttpWitness>>,
}

impl fmt::Debug for Cloud {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.label)
    }
}

/// A bucket in one cloud.
#[derive(Clone)]
pub struct ObjectBucket {
    cloud: Cloud,
    settings: TransferSettings,
    /// What the cloud was found to be unable to copy.
    copy_limits: Arc<CopyLimits>,
}

impl ObjectBucket {
    /// A bucket over a cloud's client, which must neither retry nor follow redirects.
    pub fn new(cloud: Cloud, settings: TransferSettings) -> Self {
        Self {
            cloud,
            settings,
            copy_limits: Arc::default(),
        }
    }

    /// Sends one request that moves `bytes` and keeps what was seen of its answer.
    async fn ask<T>(
        &self,
        bytes: u64,
        request: impl Future<Output = ::object_store::Result<T>>,
    ) -> Sent<T> {
        self.ask_within(self.settings.budget(bytes), request).await
    }

    /// Sends one request that may take as long as it is told.
    async fn ask_within<T>(
        &self,
        budget: Duration,
        request: impl Future<Output = ::object_store::Result<T>>,
    ) -> Sent<T> {
        let (outcome, seen) = traced(tokio::time::timeout(budget, request)).await;
        let explain = self.cloud.witness.as_ref().map(|witness| witness.explain());
        Sent::new(outcome, seen, explain)
    }

    fn path(&self, doing: &'static str, key: &Key) -> Result<Path, BucketError> {
        let whole = match self.cloud.prefix.as_str() {
            "" => key.to_string(),
            prefix => format!("{prefix}/{key}"),
        };
        Path::parse(whole).bucket_error(BucketErrorKind::Unsupported, doing, key)
    }

    async fn page(
        &self,
        prefix: &Prefix,
        options: PaginatedListOptions,
    ) -> Result<ListedPage, BucketError> {
        let spelled = self.spelled(prefix);
        let own = self.spelled(&Prefix::everything()).len();
        let page = self.cloud.pages.list_paginated(Some(&spelled), options);
        let page = self.ask(0, page).await.0;
        let page = page.while_asking("list", prefix)?;
        let row = |object: ::object_store::ObjectMeta| {
            let name = object.location.as_ref();
            let key = name.get(own..).and_then(Key::from_listing)?;
            let size = object.size;
            let version = object.e_tag.clone().map(Version::new);
            let row = Listed { key, size, version };
            name.starts_with(&spelled).then_some(row)
        };
        Ok(ListedPage {
            rows: page.result.objects.into_iter().filter_map(row).collect(),
            next: page.page_token.map(PageToken::new),
        })
    }

    /// What our own keys begin with in the bucket, before `prefix`.
    fn spelled(&self, prefix: &Prefix) -> String {
        match self.cloud.prefix.as_str() {
            "" => prefix.to_string(),
            own => format!("{own}/{prefix}"),
        }
    }

    /// Asks for an object; `None` only when the object is missing and the bucket is not.
    async fn fetch(
        &self,
        doing: &'static str,
        key: &Key,
        options: GetOptions,
    ) -> Result<Result<Option<GetResult>, StoreFailure>, BucketError> {
        let path = self.path(doing, key)?;
        let failure = match self
            .ask(0, self.cloud.objects.get_opts(&path, options))
            .await
            .0
        {
            Ok(found) => return Ok(Ok(Some(found))),
            Err(failure) => failure,
        };
        match failure.status() {
            Some(StatusCode::NOT_FOUND) => {
                self.is_only_the_object_missing(doing, key, failure).await?;
                Ok(Ok(None))
            }
            // Without a word it could be our keys or our region: an answer to HEAD has no body that would say so.
            Some(StatusCode::BAD_REQUEST | StatusCode::MOVED_PERMANENTLY)
                if failure.is_unexplained() =>
            {
                self.answers(doing, key).await?;
                Ok(Err(failure))
            }
            _ => Ok(Err(failure)),
        }
    }

    /// Settles a 404: fails when it is the bucket that is missing.
    async fn is_only_the_object_missing(
        &self,
        doing: &'static str,
        key: &Key,
        failure: StoreFailure,
    ) -> Result<(), BucketError> {
        match failure.cause() {
            Some(Cause::NoSuchObject) => Ok(()),
            Some(Cause::NoSuchBucket) => Err(failure.into_error(doing, key)),
            _ => self.answers(doing, key).await,
        }
    }

    /// Fails as a listing fails, whose answers always say why.
    async fn answers(&self, doing: &'static str, key: &Key) -> Result<(), BucketError> {
        let path = self.path(doing, key)?;
        let options = PaginatedListOptions {
            max_keys: Some(1),
            ..PaginatedListOptions::default()
        };
        let listing = self
            .cloud
            .pages
            .list_paginated(Some(path.as_ref()), options);
        match self.ask(0, listing).await.0 {
            Ok(_) => Ok(()),
            Err(failure) => Err(failure.into_error(doing, key)),
        }
    }

    /// Reads the body of an answer, all of it or an error.
    async fn body(
        &self,
        doing: &'static str,
        key: &Key,
        found: GetResult,
    ) -> Result<Bytes, BucketError> {
        const KIND: BucketErrorKind = BucketErrorKind::Unreachable;
        let expected = found.range.end - found.range.start;
        let read = async {
            let mut pieces = found.into_stream();
            let mut body = BytesMut::new();
            while let Some(piece) = pieces.next().await {
                body.extend_from_slice(&piece?);
                if body.len() as u64 > expected {
                    break;
                }
            }
            Ok(body.freeze())
        };
        let read = tokio::time::timeout(self.settings.budget(expected), read).await;
        let reason = match read.bucket_error(KIND, doing, key)? {
            Ok(body) if body.len() as u64 == expected => return Ok(body),
            Ok(body) => format!("{} bytes came where {expected} were promised", body.len()),
            Err::<_, ::object_store::Error>(source) => source.to_string(),
        };
        Err(BucketError::new(KIND, doing, key).because(reason))
    }

    async fn write(
        &self,
        doing: &'static str,
        key: &Key,
        body: Bytes,
        mode: PutMode,
    ) -> Result<Sent<PutResult>, BucketError> {
        let path = self.path(doing, key)?;
        let (size, options) = (body.len() as u64, PutOptions::from(mode));
        let put = self.cloud.objects.put_opts(&path, body.into(), options);
        Ok(self.ask(size, put).await)
    }
}

impl fmt::Debug for ObjectBucket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.cloud.label)
    }
}

fn version(doing: &'static str, key: &Key, etag: Option<String>) -> Result<Version, BucketError> {
    etag.map(Version::new).ok_or_else(|| {
        BucketError::new(BucketErrorKind::Unsupported, doing, key)
            .because("the store answers without an ETag")
    })
}

#[async_trait]
impl Bucket for ObjectBucket {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>, BucketError> {
        let fetched = self.fetch("read", key, GetOptions::default()).await?;
        let Some(found) = fetched.while_asking("read", key)? else {
            return Ok(None);
        };
        if found.meta.size > limit {
            return Err(BucketError::new(BucketErrorKind::TooLarge, "read", key));
        }
        let version = version("read", key, found.meta.e_tag.clone())?;
        let body = self.body("read", key, found).await?;
        Ok(Some(Object { body, version }))
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Option<Bytes>, BucketError> {
        const DOING: &str = "read a part of";
        let nothing = |head: Option<Head>| head.map(|_| Bytes::new());
        if range.is_empty() {
            return self.head(key).await.map(nothing);
        }
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            ..GetOptions::default()
        };
        let failure = match self.fetch(DOING, key, options).await? {
            Ok(Some(found)) => return self.body(DOING, key, found).await.map(Some),
            Ok(None) => return Ok(None),
            Err(failure) => failure,
        };
        // A range beyond the end is refused, or answered with the whole of nothing.
        if matches!(
            failure.status(),
            Some(StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::OK)
        ) {
            match self.head(key).await? {
                Some(head) if range.start < head.size => {}
                head => return Ok(nothing(head)),
            }
        }
        Err(failure.into_error(DOING, key))
    }

    async fn head(&self, key: &Key) -> Result<Option<Head>, BucketError> {
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        let fetched = self.fetch("look at", key, options).await?;
        let Some(found) = fetched.while_asking("look at", key)? else {
            return Ok(None);
        };
        Ok(Some(Head {
            size: found.meta.size,
            version: version("look at", key, found.meta.e_tag)?,
        }))
    }

    async fn written_at(&self, key: &Key) -> Result<Option<Timestamp>, BucketError> {
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        let fetched = self.fetch("look at", key, options).await?;
        let found = fetched.while_asking("look at", key)?;
        let millis = found.map(|found| found.meta.last_modified.timestamp_millis());
        Ok(millis.map(|millis| Timestamp::from_millis(u64::try_from(millis).unwrap_or(0))))
    }

    async fn create(&self, key: &Key, body: Bytes) -> Result<Swap, BucketError> {
        let sent = self.write("create", key, body, PutMode::Create).await?;
        sent.into_creation(key)
    }

    async fn swap(&self, key: &Key, expected: &Version, body: Bytes) -> Result<Swap, BucketError> {
        let mode = PutMode::Update(UpdateVersion {
            e_tag: Some(expected.as_str().to_owned()),
            version: None,
        });
        let sent = self.write("replace", key, body, mode).await?;
        sent.into_swap(key)
    }

    async fn put(&self, key: &Key, body: Bytes) -> Result<(), BucketError> {
        let sent = self.write("store", key, body, PutMode::Overwrite).await?;
        match sent.0 {
            Ok(_) => Ok(()),
            // Stored, though under a version we were not told; an overwrite needs none.
            Err(failure) if failure.is_success_without_etag() => Ok(()),
            Err(failure) => Err(failure.into_error("store", key)),
        }
    }

    async fn put_stream(&self, key: &Key, body: ByteStream) -> Result<u64, BucketError> {
        self.upload(key, body).await
    }

    async fn put_derived(
        &self,
        key: &Key,
        object: &DerivedObject<'_>,
    ) -> Result<Option<u64>, BucketError> {
        self.derive(key, object).await
    }

    /// Reads the listing of the whole prefix: not every server lists in byte order, so no page of it can be trusted.
    async fn list(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, BucketError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let all = objects(self, prefix);
        let wanted = all.try_filter(|row| {
            let is_wanted = Some(&row.key) > after;
            std::future::ready(is_wanted)
        });
        let mut rows: Vec<Listed> = wanted.try_collect().await?;
        rows.sort_unstable();
        rows.dedup();
        rows.truncate(limit);
        Ok(rows)
    }

    async fn list_page(
        &self,
        prefix: &Prefix,
        token: Option<&PageToken>,
    ) -> Result<ListedPage, BucketError> {
        let options = PaginatedListOptions {
            page_token: token.map(|token| token.as_str().to_owned()),
            ..PaginatedListOptions::default()
        };
        self.page(prefix, options).await
    }

    async fn list_after(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<ListedPage, BucketError> {
        let own = self.spelled(&Prefix::everything());
        let mut token: Option<PageToken> = None;
        loop {
            let options = PaginatedListOptions {
                offset: after.map(|after| format!("{own}{after}")),
                max_keys: Some(limit),
                page_token: token.as_ref().map(|token| token.as_str().to_owned()),
                ..PaginatedListOptions::default()
            };
            let page = self.page(prefix, options).await?;
            // What only the token leads to is asked for with it: a page may be empty and not the last one.
            if !page.rows.is_empty() || page.next.is_none() || page.next == token {
                return Ok(page);
            }
            token = page.next;
        }
    }

    async fn delete(&self, key: &Key) -> Result<(), BucketError> {
        let path = self.path("delete", key)?;
        match self.ask(0, self.cloud.objects.delete(&path)).await.0 {
            Ok(()) => Ok(()),
            Err(failure) if failure.status() == Some(StatusCode::NOT_FOUND) => {
                self.is_only_the_object_missing("delete", key, failure)
                    .await
            }
            Err(failure) => Err(failure.into_error("delete", key)),
        }
    }

    fn clock_offset_ms(&self) -> Option<i64> {
        self.cloud.witness.as_ref()?.clock_offset_ms()
    }
}
