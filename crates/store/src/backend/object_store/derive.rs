//! A large object that another one has parts of: those are copied within the store.
//!
//! 1. plan the parts   2. look at the source   3. start an upload   4. copy parts, and compare each with the bytes of this host
//! 5. send the others   6. complete it
//!
//! A store that refuses 6 may want parts of one length: then all of it is done once more with such parts.
//!
//! *Always true:* what is completed is named part by part: parts that were sent from here, and parts for which the store named the
//! SHA-256 or the MD5 of the bytes that are here. An ETag that is something else proves nothing. That the store joins the parts
//! it named, in our order, is believed as it is of every upload. Whatever else goes wrong with a copy costs only time: nothing
//! is sent before every copy is proven, no copy is on its way when the upload is aborted, and the caller sends everything.

use super::ObjectBucket;
use super::answer::StoreFailure;
use super::explanation::Cause;
use super::part_plan::{PartLimits, PlannedPart, plan, plan_of_one_length};
use super::upload::{AllParts, Upload, all_of, repeated};
use crate::bucket::{Bucket, BucketError, BucketErrorKind, CopySource, DerivedObject, received};
use crate::layout::Key;
use ::object_store::multipart::{MultipartStore, PartId};
use ::object_store::path::Path;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::StatusCode;
use md5::Md5;
use sha2::{Digest, Sha256};
use stasis_model::base64;
use stasis_model::format::document::Version;
use stasis_model::shared_range::SharedRange;
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often a copy is asked for: sending is always possible.
const ATTEMPTS: u32 = 2;

/// Copies ranges of objects into parts of an upload, within the cloud.
#[async_trait]
pub trait PartCopier: fmt::Debug + Send + Sync {
    /// What such uploads go through: it asks the store for a digest of every part.
    fn uploads(&self) -> Arc<dyn MultipartStore>;

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

/// What a store was found to be unable to do, for as long as this process lives.
#[derive(Debug, Default)]
pub(super) struct CopyLimits {
    /// It does not copy parts, or not so that we could prove it.
    cannot: AtomicBool,
    /// All parts but the last must have one length.
    wants_one_length: AtomicBool,
}

/// What is copied from.
struct Source<'a> {
    copier: &'a dyn PartCopier,
    from: Path,
    version: Version,
}

/// What became of an object that is put together.
enum Made {
    /// It is there; so many bytes were sent.
    Whole(u64),
    /// The store refused to make one object of its parts; so many bytes were sent.
    NotJoined(u64, BucketError),
    /// It is not there, and nothing was sent.
    Nothing,
}

/// Why an object was not made of parts of another one.
enum NotDerived {
    /// The store did not copy a part.
    Refused(StoreFailure),
    /// It did, and did not say what.
    Unproven,
    /// It did, and says that it has other bytes than it should.
    OtherBytes,
    /// The bytes of this host could not be read.
    Unread(BucketError),
    /// They could not be sent.
    Failed(BucketError),
}

/// An object that is put together.
struct Derivation<'a> {
    upload: &'a Upload<'a>,
    object: &'a DerivedObject<'a>,
    source: &'a Source<'a>,
}

impl ObjectBucket {
    pub(super) async fn derive(
        &self,
        key: &Key,
        object: &DerivedObject<'_>,
    ) -> Result<Option<u64>, BucketError> {
        let cannot = self.copy_limits.cannot.load(Ordering::Relaxed);
        let Some(copier) = self.cloud.copies.as_deref().filter(|_| !cannot) else {
            return Ok(None);
        };
        let limits = PartLimits::of_s3(self.settings.part_size as u64);
        let Some(parts) = plan(object.size, &object.source, &limits) else {
            return Ok(None);
        };
        let from = self.path("copy", object.source.key)?;
        let Some(version) = self.version_of(&object.source).await? else {
            return Ok(None);
        };
        let source = Source {
            copier,
            from,
            version,
        };
        let mut in_vain = 0;
        if !self.copy_limits.wants_one_length.load(Ordering::Relaxed) {
            match self.made(key, object, &source, &parts).await? {
                Made::Whole(sent) => return Ok(Some(sent)),
                Made::Nothing => return Ok(None),
                Made::NotJoined(sent, why) => {
                    tracing::info!(bucket = ?self, %why, "the store does not join these parts; trying parts of one length");
                    self.copy_limits
                        .wants_one_length
                        .store(true, Ordering::Relaxed);
                    in_vain = sent;
                }
            }
        }
        let Some(parts) = plan_of_one_length(object.size, &object.source, &limits) else {
            return Ok(None);
        };
        match self.made(key, object, &source, &parts).await? {
            Made::Whole(sent) => Ok(Some(sent + in_vain)),
            Made::Nothing => Ok(None),
            Made::NotJoined(_, why) => {
                self.do_not_copy_again(&why);
                Ok(None)
            }
        }
    }

    /// Makes an object of these parts.
    async fn made(
        &self,
        key: &Key,
        object: &DerivedObject<'_>,
        source: &Source<'_>,
        parts: &[PlannedPart],
    ) -> Result<Made, BucketError> {
        let upload = match self.start(key, source.copier.uploads()).await {
            Err(error) if error.kind == BucketErrorKind::Unsupported => {
                self.do_not_copy_again(&error);
                return Ok(Made::Nothing);
            }
            started => started?,
        };
        let derivation = Derivation {
            upload: &upload,
            object,
            source,
        };
        let (ids, sent) = match derivation.parts(parts).await {
            Ok(made) => made,
            Err(why) => {
                upload.abort().await;
                self.given_up(&derivation, why).await?;
                return Ok(Made::Nothing);
            }
        };
        let size = object.size;
        match upload.complete(AllParts { ids, size }).await {
            Ok(_) => Ok(Made::Whole(sent)),
            Err(error) if error.kind == BucketErrorKind::Unsupported => {
                Ok(Made::NotJoined(sent, error))
            }
            Err(error) => Err(error),
        }
    }

    /// The version of the source, if it has the size that it should have.
    async fn version_of(&self, source: &CopySource<'_>) -> Result<Option<Version>, BucketError> {
        let head = self.head(source.key).await?;
        Ok(head
            .filter(|head| head.size == source.size)
            .map(|head| head.version))
    }

    /// Decides what the next object may expect; an error is one that sending everything would meet too.
    async fn given_up(
        &self,
        derivation: &Derivation<'_>,
        why: NotDerived,
    ) -> Result<(), BucketError> {
        let key = derivation.upload.key;
        let source = derivation.object.source;
        match why {
            // A store that does not know the checksums that come with the parts refuses them.
            NotDerived::Failed(error) if error.kind == BucketErrorKind::Unsupported => {
                self.do_not_copy_again(&error);
            }
            NotDerived::Failed(error) | NotDerived::Unread(error) => return Err(error),
            NotDerived::Unproven => {
                tracing::warn!(%key, "the store copied a part and did not prove it; everything is sent");
                self.copy_limits.cannot.store(true, Ordering::Relaxed);
            }
            NotDerived::OtherBytes => {
                tracing::warn!(
                    %key, source = %source.key,
                    "the store has other bytes in the source than were stored there: verify the snapshot that it belongs to; everything is sent"
                );
            }
            NotDerived::Refused(failure) => match failure.status() {
                // It was replaced since we looked; or the store does not know its own ETag again.
                Some(StatusCode::PRECONDITION_FAILED) => {
                    let now = self.version_of(&source).await?;
                    if now.as_ref() == Some(&derivation.source.version) {
                        self.do_not_copy_again(&failure);
                    }
                }
                _ => self.refused(key, failure)?,
            },
        }
        Ok(())
    }

    fn refused(&self, key: &Key, failure: StoreFailure) -> Result<(), BucketError> {
        let is_gone = failure.status() == Some(StatusCode::NOT_FOUND);
        match failure.kind() {
            _ if is_gone => {}
            BucketErrorKind::Unreachable => {}
            BucketErrorKind::Unsupported => {
                self.do_not_copy_again(&failure);
                return Ok(());
            }
            // Who may write need not be allowed to copy; but a token that expired says nothing about that.
            BucketErrorKind::Denied if failure.cause() != Some(Cause::Denied) => {
                self.do_not_copy_again(&failure);
                return Ok(());
            }
            _ => return Err(failure.into_error("copy a part of", key)),
        }
        tracing::debug!(%key, %failure, "a part was not copied; everything is sent");
        Ok(())
    }

    fn do_not_copy_again(&self, why: &dyn fmt::Display) {
        tracing::info!(bucket = ?self, %why, "the store does not copy parts; everything is sent");
        self.copy_limits.cannot.store(true, Ordering::Relaxed);
    }
}

impl Derivation<'_> {
    /// Copies, then sends; returns all parts in order, and how many bytes were sent.
    async fn parts(&self, parts: &[PlannedPart]) -> Result<(Vec<PartId>, u64), NotDerived> {
        let most = self.upload.bucket.settings.parts_in_flight;
        let (mut copied, mut sent) = (Vec::new(), Vec::new());
        for (index, part) in parts.iter().enumerate() {
            match part {
                PlannedPart::Copied(range) => copied.push((index, *range)),
                PlannedPart::Sent(range) => sent.push((index, range.clone())),
            }
        }
        let bytes = sent.iter().map(|(_, range)| range.end - range.start).sum();
        let copying = copied
            .into_iter()
            .map(|(index, range)| self.copy(index, range));
        let mut done: Vec<(usize, PartId)> = all_of(most, copying).await?;
        let sending = sent
            .into_iter()
            .map(|(index, range)| self.send(index, range));
        done.extend(all_of(most, sending).await?);
        done.sort_unstable_by_key(|(index, _)| *index);
        Ok((done.into_iter().map(|(_, id)| id).collect(), bytes))
    }

    /// Copies one part, and proves that it is what is here.
    async fn copy(&self, index: usize, range: SharedRange) -> Result<(usize, PartId), NotDerived> {
        let bucket = self.upload.bucket;
        let budget = bucket.settings.copy_budget(range.length);
        let copied = repeated(ATTEMPTS, || {
            let copy = self.source.copier.copy_part(PartCopy {
                to: &self.upload.path,
                upload: &self.upload.id,
                index,
                from: &self.source.from,
                version: &self.source.version,
                range: range.from..range.from + range.length,
            });
            bucket.ask_within(budget, copy)
        });
        let copied = copied.await.map_err(NotDerived::Refused)?;
        let here = range.at..range.end();
        if let Some(sha256) = &copied.sha256 {
            let digest = self.digest::<Sha256>(here).await?;
            if *sha256 != base64::encode(&digest) {
                return Err(NotDerived::OtherBytes);
            }
            return Ok((index, copied.id));
        }
        let digest = self.digest::<Md5>(here).await?;
        let etag = copied.etag.trim_matches('"');
        if etag.eq_ignore_ascii_case(&hex(&digest)) {
            Ok((index, copied.id))
        } else {
            Err(NotDerived::Unproven)
        }
    }

    /// The digest of bytes of this host.
    async fn digest<D: Digest + Send>(&self, range: Range<u64>) -> Result<Vec<u8>, NotDerived> {
        let mut left = range.end - range.start;
        let mut hasher = D::new();
        let mut pieces = (self.object.read)(range);
        while let Some(piece) = pieces.next().await {
            let piece = received(self.upload.key, piece).map_err(NotDerived::Unread)?;
            left = left.saturating_sub(piece.len() as u64);
            hasher.update(piece);
        }
        if left > 0 {
            return Err(NotDerived::Unread(self.too_short()));
        }
        Ok(hasher.finalize().to_vec())
    }

    async fn send(&self, index: usize, range: Range<u64>) -> Result<(usize, PartId), NotDerived> {
        let part = self.bytes(range).await.map_err(NotDerived::Unread)?;
        let sent = self.upload.send_part(index, part).await;
        sent.map_err(NotDerived::Failed)
    }

    /// Bytes of this host, all that were asked for.
    async fn bytes(&self, range: Range<u64>) -> Result<Bytes, BucketError> {
        let length = range.end - range.start;
        let mut pieces = (self.object.read)(range);
        let mut bytes = BytesMut::with_capacity(usize::try_from(length).unwrap_or(0));
        while let Some(piece) = pieces.next().await {
            bytes.extend_from_slice(&received(self.upload.key, piece)?);
        }
        if bytes.len() as u64 == length {
            Ok(bytes.freeze())
        } else {
            Err(self.too_short())
        }
    }

    /// A file of this host that has fewer bytes than it had.
    fn too_short(&self) -> BucketError {
        let ended: std::io::Result<()> = Err(std::io::ErrorKind::UnexpectedEof.into());
        received(self.upload.key, ended).expect_err("it is an error")
    }
}

fn hex(digest: &[u8]) -> String {
    let mut text = String::new();
    for byte in digest {
        write!(text, "{byte:02x}").expect("a string takes everything");
    }
    text
}
