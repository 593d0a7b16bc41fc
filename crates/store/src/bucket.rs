//! The port to a bucket of objects.
//!
//! Two things make it unlike a plain object store client. A conditional write has three answers, [`Swap`], because a
//! lost answer is not a lost write. And an error says which of *absent*, *unreachable*, *denied*, *corrupt* or *full*
//! it was: an outage must never read as "there is no snapshot".

use crate::layout::{Key, Prefix};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use stasis_model::failure::{ErrorKind, Failure, Kinded};
use stasis_model::format::document::Version;
use stasis_model::id::OpId;
use stasis_model::invalid::Invalid;
use stasis_model::shared_range::SharedRanges;
use stasis_model::time::Timestamp;
use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// What became of a conditional write.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "an unknown swap is settled only by reading the object again"]
pub enum Swap {
    /// It was applied; the object has this version now.
    Won(Version),
    /// The condition did not hold. A client that retried may have been refused by its own success.
    Lost,
    /// No answer, or one that settles nothing: it may have been applied, or may yet be.
    Unknown,
}

/// An object that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its bytes, all of them.
    pub body: Bytes,
    /// What a conditional write must name to replace exactly these bytes.
    pub version: Version,
}

/// What is known of an object without reading it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// How many bytes it has.
    pub size: u64,
    /// What a conditional write must name to replace it.
    pub version: Version,
}

/// One row of a listing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Listed {
    /// Where the object lies.
    pub key: Key,
    /// How many bytes it has.
    pub size: u64,
    /// The version that reading it would show, where the store lists those.
    pub version: Option<Version>,
}

/// Where a listing goes on; only the store that gave it understands it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PageToken(String);

impl PageToken {
    /// A token as a store spells it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The token as the store spelled it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One page of a listing, in whatever order the store has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListedPage {
    /// What it lists; a page in the middle may be empty.
    pub rows: Vec<Listed>,
    /// Where the next one begins; `None` on the last page.
    pub next: Option<PageToken>,
}

/// How many rows a page has where the store leaves that to us.
const PAGE: usize = 1000;

/// Bytes that arrive piece by piece.
pub type ByteStream = BoxStream<'static, std::io::Result<Bytes>>;

/// Reads a part of a file of this host, as often as it is asked.
pub type ReadRange<'a> = &'a (dyn Fn(Range<u64>) -> ByteStream + Send + Sync);

/// An object that has bytes of a new one already.
#[derive(Clone, Copy, Debug)]
pub struct CopySource<'a> {
    /// Where it lies, in the same store.
    pub key: &'a Key,
    /// How many bytes it should have.
    pub size: u64,
    /// What the new object has of it.
    pub ranges: &'a SharedRanges,
}

/// A large object that is copied in part from another one.
#[derive(Clone, Copy)]
pub struct DerivedObject<'a> {
    /// How many bytes it has.
    pub size: u64,
    /// Its bytes, which are on this host: what is not copied is sent, what is copied is compared.
    pub read: ReadRange<'a>,
    /// The other object.
    pub source: CopySource<'a>,
}

impl fmt::Debug for DerivedObject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DerivedObject({} bytes, {:?})", self.size, self.source)
    }
}

/// A bucket of objects.
///
/// Reads see every write that was acknowledged before they began. A `get` of a missing object is `None`; a missing
/// *bucket* is an error.
#[async_trait]
pub trait Bucket: fmt::Debug + Send + Sync {
    /// Reads a whole object of at most `limit` bytes; a larger one is [`BucketErrorKind::TooLarge`], unread.
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>, BucketError>;

    /// Reads part of an object; what lies beyond its end is left out.
    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Option<Bytes>, BucketError>;

    /// Asks for an object's size and version.
    async fn head(&self, key: &Key) -> Result<Option<Head>, BucketError>;

    /// How many bytes an object has, without reading it.
    async fn size(&self, key: &Key) -> Result<Option<u64>, BucketError> {
        Ok(self.head(key).await?.map(|head| head.size))
    }

    /// Writes an object that must not exist yet.
    async fn create(&self, key: &Key, body: Bytes) -> Result<Swap, BucketError>;

    /// Replaces exactly the version named; a missing object is `Lost`.
    async fn swap(&self, key: &Key, expected: &Version, body: Bytes) -> Result<Swap, BucketError>;

    /// Writes an object, whatever was there. Only for names whose bytes are always the same.
    async fn put(&self, key: &Key, body: Bytes) -> Result<(), BucketError>;

    /// Writes a large object piece by piece and returns its size; nothing is visible until all of it is durable.
    ///
    /// Only for names whose bytes are always the same: it is never a compare-and-swap.
    async fn put_stream(&self, key: &Key, body: ByteStream) -> Result<u64, BucketError>;

    /// Writes a large object of which another one has parts already: those are copied within the store, the rest is sent.
    /// Returns how many bytes were sent.
    ///
    /// `None` means that nothing was stored, and that everything has to be sent with [`Bucket::put_stream`]: the store
    /// cannot copy, the source is gone or another one, or what was copied could not be proven to be the bytes that are here.
    /// As there, only for names whose bytes are always the same.
    async fn put_derived(
        &self,
        _key: &Key,
        _object: &DerivedObject<'_>,
    ) -> Result<Option<u64>, BucketError> {
        Ok(None)
    }

    /// Lists at most `limit` objects beneath `prefix` whose key is greater than `after`, in byte order of keys.
    ///
    /// A store that lists in another order reads everything for that: whoever wants all of it asks for [`objects`].
    async fn list(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, BucketError>;

    /// Lists the objects beneath `prefix` page by page, each object once, in whatever order the store has; [`objects`] goes
    /// through all pages.
    async fn list_page(
        &self,
        prefix: &Prefix,
        token: Option<&PageToken>,
    ) -> Result<ListedPage, BucketError> {
        page_in_order(self, prefix, token).await
    }

    /// Lists what comes after `after` in the order in which the store lists, some `limit` rows of it; `next` says only whether there
    /// is more. Only for a store that is known to go on there ([`crate::probe::CheckName::ListGoesOn`]).
    async fn list_after(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<ListedPage, BucketError> {
        rows_in_order(self, prefix, after, limit).await
    }

    /// Removes an object; removing a missing one is fine.
    async fn delete(&self, key: &Key) -> Result<(), BucketError>;

    /// Whether there is an object, as cheaply as the store can tell.
    async fn exists(&self, key: &Key) -> Result<bool, BucketError> {
        Ok(self.head(key).await?.is_some())
    }

    /// When an object was last written, by the store's clock; `None` when there is none, or the store does not tell.
    async fn written_at(&self, _key: &Key) -> Result<Option<Timestamp>, BucketError> {
        Ok(None)
    }

    /// Writes an object as part of a batch: it is there, and durable, once the batch is committed; perhaps before.
    ///
    /// Only for names whose bytes are always the same.
    async fn stage(&self, _batch: OpId, key: &Key, body: Bytes) -> Result<(), BucketError> {
        self.put(key, body).await
    }

    /// Makes everything in a batch durable and visible. A batch that failed here is gone: stage it anew.
    async fn commit(&self, _batch: OpId) -> Result<(), BucketError> {
        Ok(())
    }

    /// Makes durable what others have put in place and not yet made durable.
    async fn sync(&self) -> Result<(), BucketError> {
        Ok(())
    }

    /// Drops what was staged and not committed, as far as the store can.
    async fn abandon(&self, _batch: OpId) {}

    /// The store's clock minus ours in milliseconds, as of the last answer; `None` where the store has no clock.
    fn clock_offset_ms(&self) -> Option<i64>;
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Bucket + ?Sized> Bucket for Arc<B> {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>, BucketError> {
        (**self).get(key, limit).await
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Option<Bytes>, BucketError> {
        (**self).get_range(key, range).await
    }

    async fn head(&self, key: &Key) -> Result<Option<Head>, BucketError> {
        (**self).head(key).await
    }

    async fn size(&self, key: &Key) -> Result<Option<u64>, BucketError> {
        (**self).size(key).await
    }

    async fn create(&self, key: &Key, body: Bytes) -> Result<Swap, BucketError> {
        (**self).create(key, body).await
    }

    async fn swap(&self, key: &Key, expected: &Version, body: Bytes) -> Result<Swap, BucketError> {
        (**self).swap(key, expected, body).await
    }

    async fn put(&self, key: &Key, body: Bytes) -> Result<(), BucketError> {
        (**self).put(key, body).await
    }

    async fn put_stream(&self, key: &Key, body: ByteStream) -> Result<u64, BucketError> {
        (**self).put_stream(key, body).await
    }

    async fn put_derived(
        &self,
        key: &Key,
        object: &DerivedObject<'_>,
    ) -> Result<Option<u64>, BucketError> {
        (**self).put_derived(key, object).await
    }

    async fn list(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, BucketError> {
        (**self).list(prefix, after, limit).await
    }

    async fn list_page(
        &self,
        prefix: &Prefix,
        token: Option<&PageToken>,
    ) -> Result<ListedPage, BucketError> {
        (**self).list_page(prefix, token).await
    }

    async fn list_after(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<ListedPage, BucketError> {
        (**self).list_after(prefix, after, limit).await
    }

    async fn delete(&self, key: &Key) -> Result<(), BucketError> {
        (**self).delete(key).await
    }

    async fn exists(&self, key: &Key) -> Result<bool, BucketError> {
        (**self).exists(key).await
    }

    async fn written_at(&self, key: &Key) -> Result<Option<Timestamp>, BucketError> {
        (**self).written_at(key).await
    }

    async fn stage(&self, batch: OpId, key: &Key, body: Bytes) -> Result<(), BucketError> {
        (**self).stage(batch, key, body).await
    }

    async fn commit(&self, batch: OpId) -> Result<(), BucketError> {
        (**self).commit(batch).await
    }

    async fn sync(&self) -> Result<(), BucketError> {
        (**self).sync().await
    }

    async fn abandon(&self, batch: OpId) {
        (**self).abandon(batch).await;
    }

    fn clock_offset_ms(&self) -> Option<i64> {
        (**self).clock_offset_ms()
    }
}

/// A page of a store that lists in byte order: it goes on after the last key of the page before.
pub async fn page_in_order<B: Bucket + ?Sized>(
    bucket: &B,
    prefix: &Prefix,
    token: Option<&PageToken>,
) -> Result<ListedPage, BucketError> {
    let after = token.and_then(|token| Key::from_listing(token.as_str()));
    rows_in_order(bucket, prefix, after.as_ref(), PAGE).await
}

/// The same from a key on, for stores that list in byte order.
pub async fn rows_in_order<B: Bucket + ?Sized>(
    bucket: &B,
    prefix: &Prefix,
    after: Option<&Key>,
    limit: usize,
) -> Result<ListedPage, BucketError> {
    let rows = bucket.list(prefix, after, limit).await?;
    let last = rows.last().filter(|_| rows.len() == limit);
    let next = last.map(|row| PageToken::new(row.key.as_str()));
    Ok(ListedPage { rows, next })
}

/// Every object beneath `prefix`, once each, in whatever order the store has. One page of it is held at a time.
///
/// Ends with the first error: the rest of the listing is not known then, and what is not in it must not be taken for
/// absent.
pub fn objects<'a>(
    bucket: &'a dyn Bucket,
    prefix: &'a Prefix,
) -> BoxStream<'a, Result<Listed, BucketError>> {
    let pages = stream::try_unfold(
        ListingProgress::default(),
        move |mut listing: ListingProgress| async move {
            if listing.is_over {
                return Ok(None);
            }
            let page = bucket.list_page(prefix, listing.token.as_ref()).await?;
            listing.is_over = page.next.is_none();
            if let Some(next) = &page.next
                && !listing.seen.insert(next.clone())
            {
                let stuck = BucketError::new(BucketErrorKind::Unreachable, "list", prefix);
                return Err(stuck.because("the store answers with the same page again"));
            }
            listing.token = page.next;
            Ok(Some((stream::iter(page.rows.into_iter().map(Ok)), listing)))
        },
    );
    pages.try_flatten().boxed()
}

/// How far a listing has come.
#[derive(Default)]
struct ListingProgress {
    token: Option<PageToken>,
    seen: HashSet<PageToken>,
    is_over: bool,
}

/// A piece that came from the caller of `put_stream`, or why none came.
pub(crate) fn received<T>(key: &Key, piece: std::io::Result<T>) -> Result<T, BucketError> {
    piece.map_err(|source| broken_stream(key, source))
}

/// What `put_stream` answers when its caller's bytes stop coming: the store did nothing wrong, and nothing was stored.
fn broken_stream(key: &Key, source: std::io::Error) -> BucketError {
    let why = Invalid::new("the bytes to be stored could not be read").because(source);
    BucketError::new(BucketErrorKind::Unsupported, "store", key).because(why)
}

/// What a caller can do about a [`BucketError`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum BucketErrorKind {
    /// The bucket or directory itself does not exist.
    Absent,
    /// The store did not answer, or answered that it cannot now. Nothing is known about the object.
    Unreachable,
    /// The store refused our credentials or permissions.
    Denied,
    /// What is stored cannot be what was written.
    Corrupt,
    /// There is no room left.
    Full,
    /// The object is larger than the caller is willing to read.
    TooLarge,
    /// The store does not do what we need, or the request was wrong.
    Unsupported,
}

impl BucketErrorKind {
    fn words(self) -> &'static str {
        match self {
            Self::Absent => "the store does not exist",
            Self::Unreachable => "the store cannot be reached",
            Self::Denied => "the store denies access",
            Self::Corrupt => "what is stored is damaged",
            Self::Full => "the store is full",
            Self::TooLarge => "the object is larger than it may be",
            Self::Unsupported => "the store does not do this",
        }
    }
}

/// A store operation that failed. For conditional writes an error means "not applied".
#[derive(Debug, thiserror::Error)]
#[error("could not {doing} `{what}`: {}", .kind.words())]
pub struct BucketError {
    /// What we were doing, as a verb.
    pub doing: &'static str,
    /// To which key, prefix or bucket.
    pub what: String,
    /// What the caller can do about it.
    pub kind: BucketErrorKind,
    /// Why, as far as the store or the system says.
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl BucketError {
    /// An error without a deeper reason.
    pub fn new(kind: BucketErrorKind, doing: &'static str, what: impl fmt::Display) -> Self {
        let what = what.to_string();
        Self {
            doing,
            what,
            kind,
            source: None,
        }
    }

    /// The same error with the reason the store or the system gave.
    #[must_use = "the error is not changed in place"]
    pub fn because(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            source: Some(source.into()),
            ..self
        }
    }
}

impl Kinded for BucketError {
    fn kind(&self) -> ErrorKind {
        match self.kind {
            BucketErrorKind::Absent => ErrorKind::NotFound,
            BucketErrorKind::Denied => ErrorKind::Denied,
            BucketErrorKind::Corrupt => ErrorKind::Corrupt,
            BucketErrorKind::Full | BucketErrorKind::TooLarge => ErrorKind::Limit,
            BucketErrorKind::Unsupported => ErrorKind::Invalid,
            BucketErrorKind::Unreachable => ErrorKind::Unreachable,
        }
    }
}

impl From<BucketError> for Failure {
    fn from(error: BucketError) -> Self {
        Self::of(error.kind(), error)
    }
}

/// Says of anything that failed what that means for whoever asked a bucket.
pub(crate) trait BucketContext<T> {
    /// Turns a failure into an error of the bucket, with the failure as its reason.
    fn bucket_error(
        self,
        kind: BucketErrorKind,
        doing: &'static str,
        what: impl fmt::Display,
    ) -> Result<T, BucketError>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> BucketContext<T> for Result<T, E> {
    fn bucket_error(
        self,
        kind: BucketErrorKind,
        doing: &'static str,
        what: impl fmt::Display,
    ) -> Result<T, BucketError> {
        self.map_err(|source| BucketError::new(kind, doing, what).because(source))
    }
}
