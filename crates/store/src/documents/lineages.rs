//! Carries out operations on a lineage: drives the model's protocol over a bucket.
//!
//! The protocol decides; this file only moves bytes and waits. *Always true:* a document that cannot be read, or not be
//! understood, ends the operation; it is never overwritten and never taken for absent. Nor is a pointer that must have
//! been there: see [`Lineages::pointer`].

use crate::bucket::{Bucket, BucketError, BucketErrorKind, Swap};
use crate::layout::{self, Key, Prefix};
use bytes::Bytes;
use stasis_model::failure::{ErrorKind, Kinded};
use stasis_model::format::document::{self, BadDocument, Document, SIZE_LIMIT, Versioned};
use stasis_model::format::lease::Lock;
use stasis_model::format::manifest::UnfitManifest;
use stasis_model::format::pointer::Pointer;
use stasis_model::id::{Lineage, OpId};
use stasis_model::protocol::operation::{OperationKind, Unsettled};
use stasis_model::protocol::settle::{
    Body, Protocol, ProtocolOutcome, ProtocolStep, StoreAnswer, UnknownWrite,
};
use stasis_model::protocol::step::{Doc, Refusal};
use stasis_model::rng::Rng;
use stasis_model::time::{Clock, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// More objects than a lineage has that belong to no snapshot.
const SOME: usize = 16;

/// Why an operation on a lineage did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineageError {
    /// The rules say no: not applied, and it will not be.
    #[error("could not {} `{lineage}`", words(*.kind))]
    Refused {
        /// Which lineage.
        lineage: Lineage,
        /// What was to be done.
        kind: OperationKind,
        /// Why not.
        #[source]
        refusal: Refusal,
    },
    /// Nobody can tell now; the record says how to ask again.
    #[error("it is unknown whether this applied: {} `{}`", words(.0.kind), .0.lineage)]
    Unknown(Box<Unsettled>),
    /// The store failed: not applied.
    #[error("could not {} `{lineage}`", words(*.kind))]
    Store {
        /// Which lineage.
        lineage: Lineage,
        /// What was to be done.
        kind: OperationKind,
        /// What the store said.
        #[source]
        source: ReadError,
    },
}

fn words(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Acquire => "acquire the lease of",
        OperationKind::Renew => "renew the lease of",
        OperationKind::Release => "release the lease of",
        OperationKind::Reap => "reap the lock of",
        OperationKind::Publish => "flip the pointer of",
        OperationKind::Rollback => "roll back",
        OperationKind::ForceUnlock => "force-unlock",
        OperationKind::Delete => "delete a snapshot of",
        OperationKind::Pin => "pin a snapshot of",
        OperationKind::Check => "record the check of a snapshot of",
        OperationKind::Forget => "forget removed snapshots of",
    }
}

/// Why a document could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The store did not give it.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// The store gave something else.
    #[error("the document `{key}` cannot be used")]
    Document {
        /// Where it lies.
        key: Key,
        /// What is wrong with it.
        #[source]
        source: BadDocument,
    },
    /// It belongs to a kind of subject that this build does not know, so that what it needs is not known either.
    #[error("this build does not know what `{0}` is: a newer one may have made it")]
    Foreign(Key),
    /// There is no pointer, though there must have been one.
    #[error("`{key}` is missing, though {evidence}")]
    PointerLost {
        /// Where it should lie.
        key: Key,
        /// What says that there was one.
        evidence: String,
    },
    /// The pointer leads out of its own lineage.
    #[error("`{key}` names `{names}`, which is not a snapshot of its lineage")]
    Strays {
        /// Where the pointer lies.
        key: Key,
        /// What it names.
        names: String,
    },
    /// The manifest of a snapshot is not there.
    #[error("there is no manifest `{0}`")]
    NoManifest(Key),
    /// It is not the one that the pointer names.
    #[error("the manifest `{0}` is not the one that the pointer names")]
    OtherManifest(Key),
    /// It is no manifest.
    #[error("the manifest `{key}` cannot be used")]
    BadManifest {
        /// Where it lies.
        key: Key,
        /// What is wrong with it.
        #[source]
        source: BadDocument,
    },
    /// It is not for this snapshot, or not for this build.
    #[error("the manifest `{key}` cannot be used")]
    UnfitManifest {
        /// Where it lies.
        key: Key,
        /// What is wrong with it.
        #[source]
        source: UnfitManifest,
    },
}

impl Kinded for ReadError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Bucket(error) => Kinded::kind(error),
            Self::NoManifest(_) => ErrorKind::NotFound,
            Self::Foreign(_)
            | Self::UnfitManifest {
                source: UnfitManifest::Feature(_),
                ..
            }
            | Self::Document {
                source: BadDocument::FirstEdition { .. },
                ..
            } => ErrorKind::Invalid,
            _ => ErrorKind::Corrupt,
        }
    }
}

impl Kinded for LineageError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unknown(_) => ErrorKind::Unknown,
            Self::Store { source, .. } => source.kind(),
            Self::Refused { refusal, .. } => refused(refusal),
        }
    }
}

fn refused(refusal: &Refusal) -> ErrorKind {
    match refusal {
        Refusal::Held(_) | Refusal::HolderChanged { .. } | Refusal::PointerMoved { .. } => {
            ErrorKind::Conflict
        }
        Refusal::LockLost(_) => ErrorKind::Fenced,
        Refusal::Diverged { .. } => ErrorKind::Diverged,
        Refusal::NotHeld
        | Refusal::NoPointer
        | Refusal::Tombstoned(_)
        | Refusal::NoSuchSnapshot(_) => ErrorKind::NotFound,
        Refusal::PointerLost(_) => ErrorKind::Corrupt,
        Refusal::NotExpired => ErrorKind::Invalid,
        Refusal::IsActive(_) | Refusal::IsPinned(_) | Refusal::IsLast(_) | Refusal::Full { .. } => {
            ErrorKind::Limit
        }
        Refusal::Contended | Refusal::Outrun { .. } => ErrorKind::Retry,
        _ => ErrorKind::Bug,
    }
}

impl ReadError {
    /// A document as it was parsed; one that could not be is the error of its key.
    pub fn of_document<D>(key: &Key, parsed: Result<D, BadDocument>) -> Result<D, Self> {
        parsed.map_err(|source| Self::Document {
            key: key.clone(),
            source,
        })
    }

    /// Whether what is there may be whole, and only be meant for another build.
    pub fn is_of_another_build(&self) -> bool {
        let Self::Document { source, .. } = self else {
            return false;
        };
        matches!(
            source,
            BadDocument::Version { .. } | BadDocument::FirstEdition { .. }
        )
    }
}

/// Reads and parses one document; `None` when there is none.
pub async fn read<D: Document>(
    bucket: &dyn Bucket,
    key: &Key,
) -> Result<Option<Versioned<D>>, ReadError> {
    let object = match bucket.get(key, D::LIMIT as u64).await {
        Ok(object) => object,
        Err(error) if error.kind == BucketErrorKind::TooLarge => {
            let found = bucket.size(key).await?.unwrap_or_default();
            let too_large = BadDocument::TooLarge {
                name: D::NAME,
                found,
                limit: D::LIMIT,
            };
            return ReadError::of_document(key, Err(too_large));
        }
        Err(error) => return Err(error.into()),
    };
    let Some(object) = object else {
        return Ok(None);
    };
    let value = ReadError::of_document(key, document::parse(&object.body))?;
    Ok(Some(Versioned {
        value,
        version: object.version,
    }))
}

/// The two documents of a lineage as they were last read or written here; `None` is not known, which is not absent.
///
/// Never more than a guess at what they are now. An operation may begin with it, because its write is conditional on the
/// version.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct LastSeen {
    /// `lock.json`
    pub(crate) lock: Option<Versioned<Lock>>,
    /// `latest.json`
    pub(crate) pointer: Option<Versioned<Pointer>>,
}

impl LastSeen {
    /// Takes over what another operation saw, where that is not older: a renewal that ran beside may have read earlier.
    pub(crate) fn update(&mut self, other: Self) {
        let known = self.lock.as_ref().map(|lock| lock.value.generation);
        if let Some(lock) = other
            .lock
            .filter(|lock| Some(lock.value.generation) >= known)
        {
            self.lock = Some(lock);
        }
        let known = self.pointer.as_ref().map(|found| found.value.generation);
        let newer = |found: &Versioned<Pointer>| Some(found.value.generation) >= known;
        if let Some(pointer) = other.pointer.filter(newer) {
            self.pointer = Some(pointer);
        }
    }

    fn wrote(&mut self, body: Body, version: document::Version) {
        match body {
            Body::Lock(value) => self.lock = Some(Versioned { value, version }),
            Body::Pointer(value) => self.pointer = Some(Versioned { value, version }),
        }
    }

    /// What the protocol is told of a write, which is seen if it won.
    fn after(&mut self, swap: Swap, body: Body) -> StoreAnswer {
        match swap {
            Swap::Won(version) => {
                self.wrote(body, version);
                StoreAnswer::Won
            }
            Swap::Lost => StoreAnswer::Lost,
            Swap::Unknown => StoreAnswer::Silence,
        }
    }

    fn forget(&mut self, doc: Doc) {
        match doc {
            Doc::Lock => self.lock = None,
            Doc::Pointer => self.pointer = None,
        }
    }
}

/// An operation that was applied.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    /// Under which id.
    pub(crate) op_id: OpId,
    /// What it left behind.
    pub(crate) outcome: ProtocolOutcome,
    /// Uptime just before its first write was sent: what a holder may count its lease from.
    pub(crate) sent_at: Duration,
    /// The documents as it left them.
    pub(crate) seen: LastSeen,
}

/// All lineages of one store.
#[derive(Clone, Debug)]
pub struct Lineages {
    bucket: Arc<dyn Bucket>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
}

impl Lineages {
    /// The lineages in `bucket`.
    pub fn new(bucket: Arc<dyn Bucket>, clock: Arc<dyn Clock>, rng: Arc<dyn Rng>) -> Self {
        Self { bucket, clock, rng }
    }

    pub(crate) fn bucket(&self) -> &dyn Bucket {
        &*self.bucket
    }

    /// A fresh operation id.
    pub fn op_id(&self) -> OpId {
        self.rng.op_id()
    }

    /// The time by the store's clock where it has one, else by ours.
    pub fn now(&self) -> Timestamp {
        let ours = self.clock.now();
        match self.bucket.clock_offset_ms() {
            Some(offset) => Timestamp::from_millis(ours.millis().saturating_add_signed(offset)),
            None => ours,
        }
    }

    /// The lock of a lineage.
    pub async fn lock(&self, lineage: &Lineage) -> Result<Option<Versioned<Lock>>, ReadError> {
        read(&*self.bucket, &layout::lock(lineage)).await
    }

    /// The pointer of a lineage, which never names anything outside it; `None` for a lineage that never had one.
    ///
    /// Its absence is believed only where nothing contradicts it: owning writes the pointer before anything is stored, so
    /// an archive or a manifest beside no pointer means that it was lost; and so does a lock that only an owner can have
    /// written. A lock that was taken and nothing else is what a first owner leaves that died before it wrote the
    /// pointer: nothing was ever published then, and the next owner begins.
    pub async fn pointer(
        &self,
        lineage: &Lineage,
    ) -> Result<Option<Versioned<Pointer>>, ReadError> {
        if let Some(found) = self.read_pointer(lineage).await? {
            return Ok(Some(found));
        }
        let Some(evidence) = self.evidence_of_a_pointer(lineage).await? else {
            return Ok(None);
        };
        // A first owner may have written everything since we looked; what is never deleted is there now.
        if let Some(found) = self.read_pointer(lineage).await? {
            return Ok(Some(found));
        }
        let key = layout::pointer(lineage);
        Err(ReadError::PointerLost { key, evidence })
    }

    /// What says that a lineage without a pointer had one.
    async fn evidence_of_a_pointer(&self, lineage: &Lineage) -> Result<Option<String>, ReadError> {
        if let Some(lock) = self.lock(lineage).await?
            && lock.value.proves_a_pointer()
        {
            let epoch = lock.value.epoch;
            return Ok(Some(format!("lock.json knows an owner of epoch {epoch}")));
        }
        let prefix = Prefix::lineage(lineage);
        let rows = self.bucket.list(&prefix, None, SOME).await?;
        let mut keys = rows.into_iter().map(|row| row.key);
        let stored = keys.find(|key| layout::snapshot_object(lineage, key).is_some());
        Ok(stored.map(|key| format!("`{}` lies beside it", key.file_name())))
    }

    async fn read_pointer(
        &self,
        lineage: &Lineage,
    ) -> Result<Option<Versioned<Pointer>>, ReadError> {
        let key = layout::pointer(lineage);
        let found: Option<Versioned<Pointer>> = read(&*self.bucket, &key).await?;
        if let Some(active) = found.as_ref().and_then(|found| found.value.active.as_ref()) {
            let archive = active.archive;
            let strays = |names: &String| ReadError::Strays {
                key: key.clone(),
                names: names.clone(),
            };
            if !layout::is_archive(lineage, archive, &active.archive_key) {
                return Err(strays(&active.archive_key));
            }
            if !layout::is_manifest(lineage, archive, &active.manifest_key) {
                return Err(strays(&active.manifest_key));
            }
        }
        Ok(found)
    }

    fn unsettled(
        &self,
        lineage: &Lineage,
        kind: OperationKind,
        op_id: OpId,
        doubt: UnknownWrite,
    ) -> LineageError {
        tracing::warn!(generation = %doubt.generation, "outcome unknown");
        let record = Unsettled::new(op_id, kind, lineage.clone(), doubt, self.now());
        LineageError::Unknown(Box::new(record))
    }

    /// Drives one operation to its end.
    #[tracing::instrument(skip_all, fields(subject = %lineage, kind = ?kind, op_id = %protocol.op_id()))]
    pub(crate) async fn carry_out(
        &self,
        lineage: &Lineage,
        kind: OperationKind,
        mut protocol: Protocol,
    ) -> Result<Applied, LineageError> {
        let (mut answer, mut failure, mut sent_at, mut waits) = (StoreAnswer::Begin, None, None, 0);
        let mut seen = LastSeen::default();
        loop {
            if matches!(answer, StoreAnswer::Lost | StoreAnswer::Silence) {
                self.wait(waits).await;
                waits += 1;
            }
            answer = match protocol.next(answer, self.now()) {
                ProtocolStep::Read(Doc::Lock) => {
                    answer_of(self.lock(lineage).await, &mut failure, |lock| {
                        seen.lock.clone_from(&lock);
                        StoreAnswer::Lock(lock)
                    })
                }
                ProtocolStep::Read(Doc::Pointer) => {
                    answer_of(self.pointer(lineage).await, &mut failure, |pointer| {
                        seen.pointer.clone_from(&pointer);
                        StoreAnswer::Pointer(pointer)
                    })
                }
                ProtocolStep::Write { expected, body } => {
                    sent_at.get_or_insert_with(|| self.clock.uptime());
                    seen.forget(body.doc());
                    let written = self.write(lineage, expected, &body).await;
                    answer_of(written, &mut failure, |swap| seen.after(swap, *body))
                }
                ProtocolStep::Done(outcome) => {
                    let (op_id, now) = (protocol.op_id(), || self.clock.uptime());
                    let sent_at = sent_at.unwrap_or_else(now);
                    return Ok(Applied {
                        op_id,
                        outcome,
                        sent_at,
                        seen,
                    });
                }
                ProtocolStep::Refused(refusal) => {
                    return Err(LineageError::Refused {
                        lineage: lineage.clone(),
                        kind,
                        refusal,
                    });
                }
                ProtocolStep::Unreachable => {
                    let source = failure.expect("a protocol ends unreachable only after a failure");
                    return Err(LineageError::Store {
                        lineage: lineage.clone(),
                        kind,
                        source,
                    });
                }
                ProtocolStep::Unsettled(doubt) => {
                    return Err(self.unsettled(lineage, kind, protocol.op_id(), doubt));
                }
            };
        }
    }

    async fn write(
        &self,
        lineage: &Lineage,
        expected: Option<document::Version>,
        body: &Body,
    ) -> Result<Swap, BucketError> {
        let (key, bytes) = match body {
            Body::Lock(lock) => (layout::lock(lineage), document::render(lock)),
            Body::Pointer(pointer) => (layout::pointer(lineage), document::render(pointer)),
        };
        if bytes.len() > SIZE_LIMIT {
            // Nobody could read it any more.
            return Err(BucketError::new(BucketErrorKind::TooLarge, "write", &key));
        }
        let bytes = Bytes::from(bytes);
        let swap = match expected {
            Some(version) => self.bucket.swap(&key, &version, bytes).await?,
            None => self.bucket.create(&key, bytes).await?,
        };
        tracing::debug!(%key, ?swap, "conditional write");
        Ok(swap)
    }

    /// Waits a little longer each time, and never as long as somebody else.
    async fn wait(&self, waits: u32) {
        let most = 50_u64 << waits.min(5);
        let jitter = self.rng.below(most);
        tokio::time::sleep(Duration::from_millis(most / 2 + jitter)).await;
    }
}

/// Turns what the store said into an answer, keeping the reason of a failure for later.
fn answer_of<T, E: Into<ReadError>>(
    result: Result<T, E>,
    failure: &mut Option<ReadError>,
    answer: impl FnOnce(T) -> StoreAnswer,
) -> StoreAnswer {
    match result {
        Ok(value) => answer(value),
        Err(error) => {
            *failure = Some(error.into());
            StoreAnswer::Unreadable
        }
    }
}
