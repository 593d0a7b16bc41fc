//! A bucket behind any S3-compatible endpoint.
//!
//! `object_store` signs, sends and parses; what an answer *means* is decided here, from the HTTP status that `wire`
//! saw, because the library folds answers together that are not the same: a 409 settles nothing, a 412 does. Its own
//! retries are off: a conditional write that is sent twice can be refused by its own success.
//!
//! *Always true:* a conditional write that fails with an error was not applied; one that may have been is `Unknown`.
//! Every request ends within a time that grows only with its size. Requests are never redirected.

mod answer;
mod date;
mod remark;
mod settings;
mod upload;
mod wire;

pub use settings::{Access, S3Settings};

use crate::bucket::{Bucket, BucketError, BucketErrorKind, ByteStream, Head, Listed, Object, Swap};
use crate::layout::{Key, Prefix};
use crate::location::{CredentialSource, S3Location};
use answer::{Failure, Sent};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::StatusCode;
use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, GetResult, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutResult,
    RetryConfig, UpdateVersion,
};
use settings::{with_access, with_address};
use stasis_model::format::document::Version;
use stasis_model::time::{Clock, Timestamp};
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use wire::{Wire, traced};

/// A bucket behind an S3-compatible endpoint.
#[derive(Clone)]
pub struct S3Bucket {
    store: AmazonS3,
    location: Arc<S3Location>,
    wire: Arc<Wire>,
    settings: S3Settings,
}

impl S3Bucket {
    /// Prepares a bucket without asking it anything.
    pub fn new(
        location: S3Location,
        access: Access,
        clock: Arc<dyn Clock>,
        settings: S3Settings,
    ) -> Result<Self, BucketError> {
        let unfit = || BucketError::new(BucketErrorKind::Unsupported, "prepare", &location);
        let asks_instance = location.credentials == CredentialSource::Instance;
        if matches!(access, Access::Instance) && !asks_instance {
            return Err(unfit().because("the location does not say credentials=instance"));
        }
        let sound = location.clone().checked();
        sound.map_err(|source| unfit().because(source))?;
        let wire = Arc::new(Wire::new(clock));
        let builder = with_access(with_address(&location), access)
            .with_http_connector(wire::Connector::new(&wire, &location, &settings))
            .with_disable_bulk_delete(true)
            .with_retry(RetryConfig {
                max_retries: 0,
                ..RetryConfig::default()
            });
        let store = builder.build().map_err(|source| unfit().because(source))?;
        Ok(Self {
            store,
            location: Arc::new(location),
            wire,
            settings,
        })
    }

    /// Sends one request that moves `bytes` and keeps what was seen of its answer.
    async fn ask<T>(
        &self,
        bytes: u64,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Sent<T> {
        self.ask_within(self.settings.budget(bytes), request).await
    }

    /// Sends one request that may take as long as it is told.
    async fn ask_within<T>(
        &self,
        budget: Duration,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Sent<T> {
        let (outcome, seen) = traced(tokio::time::timeout(budget, request)).await;
        Sent::new(outcome, seen)
    }

    fn path(&self, doing: &'static str, key: &Key) -> Result<Path, BucketError> {
        let whole = match self.location.prefix.as_str() {
            "" => key.to_string(),
            prefix => format!("{prefix}/{key}"),
        };
        Path::parse(whole).map_err(|source| {
            BucketError::new(BucketErrorKind::Unsupported, doing, key).because(source)
        })
    }

    /// What our own keys begin with in the bucket, before `prefix`.
    fn spelled(&self, prefix: &Prefix) -> String {
        match self.location.prefix.as_str() {
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
    ) -> Result<Result<Option<GetResult>, Failure>, BucketError> {
        let path = self.path(doing, key)?;
        let failure = match self.ask(0, self.store.get_opts(&path, options)).await.0 {
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
                if failure.code().is_none() =>
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
        failure: Failure,
    ) -> Result<(), BucketError> {
        match failure.code() {
            Some("NoSuchKey") => Ok(()),
            Some("NoSuchBucket") => Err(failure.into_error(doing, key)),
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
        let listing = self.store.list_paginated(Some(path.as_ref()), options);
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
        let unreachable = || BucketError::new(BucketErrorKind::Unreachable, doing, key);
        let body: object_store::Result<Bytes> =
            tokio::time::timeout(self.settings.budget(expected), read)
                .await
                .map_err(|slow| unreachable().because(slow))?;
        let body = body.map_err(|source| unreachable().because(source.to_string()))?;
        if body.len() as u64 == expected {
            Ok(body)
        } else {
            let short = format!("{} bytes came where {expected} were promised", body.len());
            Err(unreachable().because(short))
        }
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
        let put = self.store.put_opts(&path, body.into(), options);
        Ok(self.ask(size, put).await)
    }
}

impl fmt::Debug for S3Bucket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "S3Bucket({})", self.location)
    }
}

fn version(doing: &'static str, key: &Key, etag: Option<String>) -> Result<Version, BucketError> {
    etag.map(Version::new).ok_or_else(|| {
        BucketError::new(BucketErrorKind::Unsupported, doing, key)
            .because("the store answers without an ETag")
    })
}

#[async_trait]
impl Bucket for S3Bucket {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>, BucketError> {
        let fetched = self.fetch("read", key, GetOptions::default()).await?;
        let Some(found) = fetched.map_err(|failure| failure.into_error("read", key))? else {
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
        let Some(found) = fetched.map_err(|failure| failure.into_error("look at", key))? else {
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
        let found = fetched.map_err(|failure| failure.into_error("look at", key))?;
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
        let spelled = self.spelled(prefix);
        let own = self.spelled(&Prefix::everything()).len();
        let (mut rows, mut token) = (Vec::new(), None);
        let mut tokens = std::collections::HashSet::new();
        loop {
            let options = PaginatedListOptions {
                page_token: token.clone(),
                ..PaginatedListOptions::default()
            };
            let page = self.store.list_paginated(Some(&spelled), options);
            let page = self.ask(0, page).await.0;
            let page = page.map_err(|failure| failure.into_error("list", prefix))?;
            for object in page.result.objects {
                let name = object.location.as_ref();
                let key = name.get(own..).and_then(Key::from_listing);
                let wanted = name.starts_with(&spelled) && key.as_ref() > after;
                if let (true, Some(key)) = (wanted, key) {
                    let size = object.size;
                    rows.push(Listed { key, size });
                }
            }
            match page.page_token {
                None => break,
                // The rest of the listing is not known: what is not in it must not be taken for absent.
                Some(again) if tokens.contains(&again) => {
                    let stuck = BucketError::new(BucketErrorKind::Unreachable, "list", prefix);
                    return Err(stuck.because("the store answers with the same page again"));
                }
                Some(next) => {
                    tokens.insert(next.clone());
                    token = Some(next);
                }
            }
        }
        rows.sort_unstable();
        rows.dedup();
        rows.truncate(limit);
        Ok(rows)
    }

    async fn delete(&self, key: &Key) -> Result<(), BucketError> {
        let path = self.path("delete", key)?;
        match self.ask(0, self.store.delete(&path)).await.0 {
            Ok(()) => Ok(()),
            Err(failure) if failure.status() == Some(StatusCode::NOT_FOUND) => {
                self.is_only_the_object_missing("delete", key, failure)
                    .await
            }
            Err(failure) => Err(failure.into_error("delete", key)),
        }
    }

    fn clock_offset_ms(&self) -> Option<i64> {
        self.wire.clock_offset_ms()
    }
}
