//! A bucket in a directory: the embedded default.
//!
//! A key is a relative path beneath the root. Everything that is not an object lies beneath `.stasis/`: `locks/` (256
//! lock files, one per first byte of a key's SHA-256, never removed), `tmp/` (what is being written) and `reserve` (room for what
//! must be written when the disk is full).
//!
//! A write: 1. write a temporary file   2. fsync it   3. lock the key   4. check the condition   5. rename over the
//! object   6. fsync its directory   7. unlock. A version is the SHA-256 of the object's bytes.
//!
//! A batch: its objects are written beneath `tmp/`; one `syncfs` makes their bytes durable, then they get their names, and
//! then the names are made durable. No object of a batch is visible before its bytes are durable.
//!
//! *Always true:* a name holds all of its old bytes or all of its new ones, and an acknowledged write survives a power
//! cut. A crash before 5 leaves a temporary file, which the next `open` removes once no process holds it; after 5 the
//! write may have been applied, so a failure in 6 is `Unknown`, and the object is marked until somebody has written it anew.
//! A failed fsync is never tried again: the kernel may have dropped the bytes and would then report success. Readers take no lock. Symbolic links are never followed.

mod batch;
mod disk;
mod doubt;
mod listing;
mod pending;
mod reserve;
mod temp;
mod tree;
mod trouble;

use crate::bucket::{
    Bucket, BucketError, BucketErrorKind, ByteStream, Head, Listed, Object, Swap, received,
};
use crate::layout::{Key, Prefix};
use async_trait::async_trait;
use bytes::Bytes;
use disk::{Disk, WriteCondition, WriteOutcome};
use futures_util::StreamExt;
use stasis_model::format::document::Version;
use stasis_model::id::OpId;
use stasis_model::time::Timestamp;
use std::fmt::{self, Display};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc;
use trouble::FileTrouble;

pub use tree::OWN;

/// Whether a directory is a store.
pub fn is_store(root: &Path) -> bool {
    root.join(tree::OWN).is_dir()
}

/// A bucket in a directory. Any number of processes on one machine may share it.
#[derive(Clone)]
pub struct FileBucket {
    disk: Arc<Disk>,
}

impl FileBucket {
    /// Opens the store in a directory, making both when they do not exist.
    ///
    /// Fails with [`BucketErrorKind::Unsupported`] on a filesystem that does not tell `a` from `A`.
    pub async fn open(root: impl Into<PathBuf>) -> Result<Self, BucketError> {
        Self::opened(root.into(), Disk::open).await
    }

    /// Opens a store that must exist: a missing directory, or one that was never a store (an empty mount point), is
    /// [`BucketErrorKind::Absent`]. Opening and reading write nothing, so that a store may be read-only.
    pub async fn open_existing(root: impl Into<PathBuf>) -> Result<Self, BucketError> {
        Self::opened(root.into(), Disk::open_existing).await
    }

    async fn opened(
        root: PathBuf,
        open: fn(PathBuf) -> Result<Disk, FileTrouble>,
    ) -> Result<Self, BucketError> {
        let shown = root.display().to_string();
        let disk = blocking("open", &shown, move || open(root)).await?;
        Ok(Self {
            disk: Arc::new(disk),
        })
    }

    async fn at<T: Send + 'static>(
        &self,
        doing: &'static str,
        key: &Key,
        work: impl FnOnce(&Disk, &Key) -> Result<T, FileTrouble> + Send + 'static,
    ) -> Result<T, BucketError> {
        let (disk, owned) = (Arc::clone(&self.disk), key.clone());
        blocking(doing, key, move || work(&disk, &owned)).await
    }

    async fn write(
        &self,
        doing: &'static str,
        key: &Key,
        condition: WriteCondition,
        body: Bytes,
    ) -> Result<Swap, BucketError> {
        let written = self.at(doing, key, move |disk, key| {
            disk.write(key, &condition, &body)
        });
        Ok(match written.await? {
            WriteOutcome::Applied(version) => Swap::Won(version),
            WriteOutcome::Refused => Swap::Lost,
            WriteOutcome::Doubtful(cause) => {
                tracing::warn!(%key, %cause, "renamed, but the directory could not be synced");
                Swap::Unknown
            }
        })
    }
}

impl fmt::Debug for FileBucket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "FileBucket({})", self.disk.path().display())
    }
}

/// Runs work that waits for the disk where waiting disturbs nobody. It goes on when the caller stops waiting for it.
#[expect(
    clippy::disallowed_methods,
    reason = "one of the two places where blocking work crosses"
)]
async fn blocking<T: Send + 'static>(
    doing: &'static str,
    what: impl Display,
    work: impl FnOnce() -> Result<T, FileTrouble> + Send + 'static,
) -> Result<T, BucketError> {
    // Boxed, so that the runtime is compiled for each kind of answer only, not for each use.
    let work: Box<dyn FnOnce() -> Result<T, FileTrouble> + Send> = Box::new(work);
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|trouble| trouble.while_(doing, what)),
        Err(stopped) if stopped.is_panic() => std::panic::resume_unwind(stopped.into_panic()),
        // The runtime is shutting down; work that had begun is never cancelled, so this had not.
        Err(stopped) => {
            let unreachable = BucketError::new(BucketErrorKind::Unreachable, doing, what);
            Err(unreachable.because(stopped))
        }
    }
}

/// Hands pieces to a writer, then `None`. Without that last word the writer stores nothing.
async fn feed(
    key: &Key,
    mut body: ByteStream,
    pieces: mpsc::Sender<Option<Bytes>>,
) -> Result<(), BucketError> {
    while let Some(piece) = body.next().await {
        let piece = received(key, piece)?;
        if pieces.send(Some(piece)).await.is_err() {
            return Ok(()); // The writer hangs up only when it failed, and says why itself.
        }
    }
    pieces.send(None).await.ok();
    Ok(())
}

#[async_trait]
impl Bucket for FileBucket {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>, BucketError> {
        self.at("read", key, move |disk, key| disk.read(key, limit))
            .await
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Option<Bytes>, BucketError> {
        self.at("read a part of", key, move |disk, key| {
            disk.read_range(key, range)
        })
        .await
    }

    async fn size(&self, key: &Key) -> Result<Option<u64>, BucketError> {
        self.at("look at", key, Disk::size).await
    }

    /// Reads the whole object, for its version is a digest of all its bytes.
    async fn head(&self, key: &Key) -> Result<Option<Head>, BucketError> {
        self.at("look at", key, Disk::head).await
    }

    async fn create(&self, key: &Key, body: Bytes) -> Result<Swap, BucketError> {
        self.write("create", key, WriteCondition::Missing, body)
            .await
    }

    async fn swap(&self, key: &Key, expected: &Version, body: Bytes) -> Result<Swap, BucketError> {
        let condition = WriteCondition::Is(expected.clone());
        self.write("replace", key, condition, body).await
    }

    async fn put(&self, key: &Key, body: Bytes) -> Result<(), BucketError> {
        let written = self.at("store", key, move |disk, key| {
            disk.write(key, &WriteCondition::None, &body)?.or_fail()
        });
        written.await
    }

    async fn put_stream(&self, key: &Key, body: ByteStream) -> Result<u64, BucketError> {
        let (pieces, arriving) = mpsc::channel(4);
        let write = self.at("store", key, move |disk, key| {
            disk.write_arriving(key, arriving)
        });
        let (fed, written) = tokio::join!(feed(key, body, pieces), write);
        fed?;
        written
    }

    async fn list(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, BucketError> {
        let disk = Arc::clone(&self.disk);
        let (beneath, after) = (prefix.clone(), after.cloned());
        blocking("list", prefix, move || {
            disk.list(&beneath, after.as_ref(), limit)
        })
        .await
    }

    async fn delete(&self, key: &Key) -> Result<(), BucketError> {
        self.at("delete", key, Disk::delete).await
    }

    async fn exists(&self, key: &Key) -> Result<bool, BucketError> {
        self.at("look for", key, Disk::exists).await
    }

    async fn written_at(&self, key: &Key) -> Result<Option<Timestamp>, BucketError> {
        self.at("look at", key, Disk::written_at).await
    }

    async fn stage(&self, batch: OpId, key: &Key, body: Bytes) -> Result<(), BucketError> {
        self.at("store", key, move |disk, key| disk.stage(batch, key, &body))
            .await
    }

    async fn commit(&self, batch: OpId) -> Result<(), BucketError> {
        let disk = Arc::clone(&self.disk);
        blocking("commit", format!("batch {batch}"), move || {
            disk.commit(batch)
        })
        .await
    }

    async fn sync(&self) -> Result<(), BucketError> {
        let disk = Arc::clone(&self.disk);
        blocking("sync", self.disk.path().display().to_string(), move || {
            disk.sync()
        })
        .await
    }

    async fn abandon(&self, batch: OpId) {
        self.disk.abandon(batch);
    }

    fn clock_offset_ms(&self) -> Option<i64> {
        None
    }
}

#[cfg(test)]
mod tests;
