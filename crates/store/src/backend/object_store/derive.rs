//! A large object that another one has parts of: those are copied within the store.
//!
//! 1. plan the parts   2. look at the source   3. start an upload   4. copy parts, and compare each with the bytes of this host
//! 5. send the others   6. complete it
//!
//! *Always true:* what is completed consists of parts that were sent from here, and of parts for which the store named the SHA-256
//! or the MD5 of the bytes that are here. An ETag that is something else proves nothing. Whatever else goes wrong with a copy
//! costs only time: the upload is aborted before anything was sent, and the caller sends everything.

use super::ObjectBucket;
use super::answer::StoreFailure;
use super::part_plan::{PartLimits, PlannedPart, plan};
use super::upload::{AllParts, Upload, repeated};
use crate::bucket::{Bucket, BucketError, BucketErrorKind, CopySource, DerivedObject, received};
use crate::layout::Key;
use ::object_store::multipart::{MultipartStore, PartId};
use ::object_store::path::Path;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, TryStreamExt};
use http::StatusCode;
use md5::Md5;
use sha2::{Digest, Sha256};
use stasis_model::base64;
use stasis_model::format::document::Version;
use stasis_model::shared_range::SharedRange;
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// How often a copy is asked for: sending is always possible.
const ATTEMPTS: u32 = 2;

/// Copies ranges of objects into parts of an upload, within the cloud.
#[async_trait]
pub trait PartCopier: fmt::Debug + Send + Sync {
    /// What such uploads go through: it asks the store for a digest of every part.
    fn uploads(&self) -> &dyn MultipartStore;

    /// Copies one range.
    async fn copy_part(&self, copy: PartCopy<'_>) -> ::object_store::Result<CopiedPart>;
}

/// A part that was copied, as the store tells it.
#[derive(Clone, Debug)]
pub struct CopiedPart {
    /// What the completion of the upload has to name.
    pub id: PartId,
    /// Its ETag: on many stores the MD5 of its bytes.
    pub etag: String,
    /// The SHA-256 of its bytes in base64, where the store says it.
    pub sha256: Option<String>,
}

/// A range that becomes a part.
#[derive(Clone, Debug)]
pub struct PartCopy<'a> {
    /// The object that is being uploaded.
    pub to: &'a Path,
    /// Its upload.
    pub upload: &'a str,
    /// Which part of it, counted from zero.
    pub index: usize,
    /// The object that is copied from.
    pub from: &'a Path,
    /// The version that it must still have.
    pub version: &'a Version,
    /// What is copied of it.
    pub range: Range<u64>,
}

/// Why an object was not made of parts of another one.
enum NotDerived {
    /// The store did not copy a part.
    Refused(StoreFailure),
    /// It did, and did not say what.
    Unproven,
    /// The bytes of this host could not be read, or not be sent.
    Failed(BucketError),
}

/// An object that is put together.
struct Derivation<'a> {
    upload: &'a Upload<'a>,
    copier: &'a dyn PartCopier,
    object: &'a DerivedObject<'a>,
    from: Path,
    version: Version,
}

impl ObjectBucket {
    pub(super) async fn derive(
        &self,
        key: &Key,
        object: &DerivedObject<'_>,
    ) -> Result<Option<u64>, BucketError> {
        let cannot = self.cannot_copy.load(Ordering::Relaxed);
        let Some(copier) = self.cloud.copies.as_deref().filter(|_| !cannot) else {
            return Ok(None);
        };
        let limits = PartLimits::of_s3(self.settings.part_size as u64);
        let Some(parts) = plan(object.size, &object.source, &limits) else {
            return Ok(None);
        };
        let Some(version) = self.version_of(&object.source).await? else {
            return Ok(None);
        };
        let upload = match self.start(key, copier.uploads()).await {
            Err(error) if error.kind == BucketErrorKind::Unsupported => {
                self.do_not_copy_again(&error);
                return Ok(None);
            }
            started => started?,
        };
        let derivation = Derivation {
            upload: &upload,
            copier,
            object,
            from: self.path("copy", object.source.key)?,
            version,
        };
        match derivation.make(&parts).await {
            Ok((ids, sent)) => {
                let size = object.size;
                self.completed(upload.complete(AllParts { ids, size }).await, sent)
            }
            Err(why) => {
                upload.abort().await;
                self.given_up(key, why)
            }
        }
    }

    /// The version of the source, if it has the size that it should have.
    async fn version_of(&self, source: &CopySource<'_>) -> Result<Option<Version>, BucketError> {
        let head = self.head(source.key).await?;
        Ok(head
            .filter(|head| head.size == source.size)
            .map(|head| head.version))
    }

    fn completed(
        &self,
        completed: Result<u64, BucketError>,
        sent: u64,
    ) -> Result<Option<u64>, BucketError> {
        match completed {
            Ok(_) => Ok(Some(sent)),
            // Some stores want parts of one size, and say so only now.
            Err(error) if error.kind == BucketErrorKind::Unsupported => {
                self.do_not_copy_again(&error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn given_up(&self, key: &Key, why: NotDerived) -> Result<Option<u64>, BucketError> {
        match why {
            // A store that does not know the checksums that come with the parts refuses them.
            NotDerived::Failed(error) if error.kind == BucketErrorKind::Unsupported => {
                self.do_not_copy_again(&error);
            }
            NotDerived::Failed(error) => return Err(error),
            NotDerived::Unproven => {
                tracing::warn!(%key, "the store copied a part and did not prove it; everything is sent");
                self.cannot_copy.store(true, Ordering::Relaxed);
            }
            NotDerived::Refused(failure) if is_about_the_source(&failure) => {
                tracing::debug!(%key, %failure, "a part was not copied; everything is sent");
            }
            NotDerived::Refused(failure) => self.do_not_copy_again(&failure),
        }
        Ok(None)
    }

    fn do_not_copy_again(&self, why: &dyn fmt::Display) {
        tracing::info!(bucket = ?self, %why, "the store does not copy parts; everything is sent");
        self.cannot_copy.store(true, Ordering::Relaxed);
    }
}

/// Whether a copy failed for a reason that another one need not have: the source is gone or was replaced, or the store was
/// not to be reached.
fn is_about_the_source(failure: &StoreFailure) -> bool {
    let status = failure.status();
    let source = [StatusCode::NOT_FOUND, StatusCode::PRECONDITION_FAILED];
    status.is_some_and(|status| source.contains(&status))
        || failure.kind() == BucketErrorKind::Unreachable
}

impl Derivation<'_> {
    /// Copies, then sends; returns all parts in order, and how many bytes were sent.
    async fn make(&self, parts: &[PlannedPart]) -> Result<(Vec<PartId>, u64), NotDerived> {
        let most = self.upload.bucket.settings.parts_in_flight.max(1);
        let mut done: Vec<(usize, PartId)> = Vec::new();
        let mut copying = FuturesUnordered::new();
        for (index, part) in parts.iter().enumerate() {
            if let PlannedPart::Copied(range) = part {
                copying.push(self.copy(index, *range));
            }
            if copying.len() >= most {
                done.extend(copying.try_next().await?);
            }
        }
        while let Some(copied) = copying.try_next().await? {
            done.push(copied);
        }
        let (mut sending, mut sent) = (FuturesUnordered::new(), 0);
        for (index, part) in parts.iter().enumerate() {
            if let PlannedPart::Sent(range) = part {
                sent += range.end - range.start;
                sending.push(self.send(index, range.clone()));
            }
            if sending.len() >= most {
                done.extend(sending.try_next().await.map_err(NotDerived::Failed)?);
            }
        }
        while let Some(part) = sending.try_next().await.map_err(NotDerived::Failed)? {
            done.push(part);
        }
        done.sort_unstable_by_key(|(index, _)| *index);
        Ok((done.into_iter().map(|(_, id)| id).collect(), sent))
    }

    /// Copies one part, and proves that it is what is here.
    async fn copy(&self, index: usize, range: SharedRange) -> Result<(usize, PartId), NotDerived> {
        let bucket = self.upload.bucket;
        let budget = bucket.settings.copy_budget(range.length);
        let copied = repeated(ATTEMPTS, || {
            let copy = self.copier.copy_part(PartCopy {
                to: &self.upload.path,
                upload: &self.upload.id,
                index,
                from: &self.from,
                version: &self.version,
                range: range.from..range.from + range.length,
            });
            bucket.ask_within(budget, copy)
        });
        let copied = copied.await.map_err(NotDerived::Refused)?;
        let here = range.at..range.end();
        let is_proven = if let Some(sha256) = &copied.sha256 {
            let digest = self.digest::<Sha256>(here).await?;
            *sha256 == base64::encode(&digest)
        } else {
            let digest = self.digest::<Md5>(here).await?;
            let etag = copied.etag.trim_matches('"');
            etag.eq_ignore_ascii_case(&hex(&digest))
        };
        if is_proven {
            Ok((index, copied.id))
        } else {
            Err(NotDerived::Unproven)
        }
    }

    /// The digest of bytes of this host.
    async fn digest<D: Digest + Send>(&self, range: Range<u64>) -> Result<Vec<u8>, NotDerived> {
        let mut hasher = D::new();
        let mut pieces = (self.object.read)(range);
        while let Some(piece) = pieces.next().await {
            let piece = received(self.upload.key, piece);
            hasher.update(piece.map_err(NotDerived::Failed)?);
        }
        Ok(hasher.finalize().to_vec())
    }

    async fn send(&self, index: usize, range: Range<u64>) -> Result<(usize, PartId), BucketError> {
        let part = self.bytes(range).await?;
        self.upload.send_part(index, part).await
    }

    /// Bytes of this host, all that were asked for.
    async fn bytes(&self, range: Range<u64>) -> Result<Bytes, BucketError> {
        let length = range.end - range.start;
        let mut pieces = (self.object.read)(range);
        let mut bytes = BytesMut::new();
        while let Some(piece) = pieces.next().await {
            bytes.extend_from_slice(&received(self.upload.key, piece)?);
        }
        if bytes.len() as u64 == length {
            return Ok(bytes.freeze());
        }
        received(
            self.upload.key,
            Err(std::io::ErrorKind::UnexpectedEof.into()),
        )
    }
}

fn hex(digest: &[u8]) -> String {
    let mut text = String::new();
    for byte in digest {
        write!(text, "{byte:02x}").expect("a string takes everything");
    }
    text
}
