//! Brings the archive of a snapshot to this host, without what the host already has.

use super::error::ProfileError;
use crate::archive::remote::Remote;
use crate::bridge;
use crate::error::Error;
use crate::open::Engine;
use stasis_disk::archive::{self, Archive, ArchiveError, Assembled, ReadAt, Sealed};
use stasis_disk::archive_cache::{ArchiveCache, USUAL_LIMIT};
use stasis_disk::seal::DataKey;
use stasis_model::digest::{ArchiveDigest, TreeDigest};
use stasis_model::manifest::ProfileManifest;
use stasis_model::pointer::Active;
use stasis_store::layout::Key;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// An archive that is here, and is the one that was wanted.
pub(super) struct Fetched {
    pub(super) archive: Archive,
    /// How many bytes came from the store.
    pub(super) bytes_fetched: u64,
}

impl Engine {
    /// Archives that this host has seen; `None` where it keeps no caches.
    pub(super) async fn archive_cache(&self) -> Option<ArchiveCache> {
        let root = self.places.cache.as_ref()?.join("archives");
        let made = root.clone();
        let made = bridge::blocking(move || stasis_disk::atomic_write::make_directory(&made));
        made.await.ok()?;
        Some(ArchiveCache::new(root, USUAL_LIMIT))
    }

    /// Where large files without a name lie; beside the cache, so that they can be kept there.
    pub(crate) async fn profile_spool(&self) -> Result<PathBuf, Error> {
        match &self.places.cache {
            Some(cache) => {
                let spool = cache.join("archives");
                let made = spool.clone();
                bridge::blocking(move || stasis_disk::atomic_write::make_directory(&made)).await?;
                Ok(spool)
            }
            None => Ok(std::env::temp_dir()),
        }
    }

    /// Brings the archive of a snapshot here, and proves that it is the one; `near` are snapshots it may resemble.
    pub(super) async fn fetch_archive(
        &self,
        manifest: &ProfileManifest,
        active: &Active,
        near: &[ArchiveDigest],
        cancel: &Arc<AtomicBool>,
    ) -> Result<Fetched, Error> {
        let key = self.key_to_load(manifest).await?;
        let snapshot = active.archive.prefix();
        let place = Key::from_listing(&active.archive_key);
        let place = place.ok_or_else(|| ProfileError::NoArchive(snapshot.clone()))?;
        let size = manifest.archive_size_bytes;
        let remote = Remote::new(self.bucket.clone(), place.clone(), size);
        let fetching = Fetching {
            cache: self.archive_cache().await,
            spool: self.profile_spool().await?,
            name: PathBuf::from(place.as_str()),
            wanted: active.archive,
            near: near.to_vec(),
            key,
            cancel: cancel.clone(),
        };
        let tree_digest = manifest.tree_digest;
        let fetched = bridge::blocking(move || fetching.fetch(Arc::new(remote)));
        let (archive, found, bytes_fetched, tree) =
            fetched.await.map_err(|error| told(error, &snapshot))?;
        if found != active.archive || tree.is_some_and(|tree| tree != tree_digest) {
            return Err(ProfileError::Sha {
                wanted: snapshot,
                found: found.prefix(),
            }
            .into());
        }
        Ok(Fetched {
            archive,
            bytes_fetched,
        })
    }
}

/// An archive that is being brought here.
struct Fetching {
    cache: Option<ArchiveCache>,
    spool: PathBuf,
    name: PathBuf,
    wanted: ArchiveDigest,
    near: Vec<ArchiveDigest>,
    key: Option<Arc<DataKey>>,
    cancel: Arc<AtomicBool>,
}

/// An archive, the digest of its stored bytes, how many of them came from afar, and which tree it says it is.
type Came = (Archive, ArchiveDigest, u64, Option<TreeDigest>);

impl Fetching {
    fn fetch(self, remote: Arc<dyn ReadAt>) -> Result<Came, ArchiveError> {
        let (mut found, mut bytes_fetched) = (self.wanted, 0);
        let file = if let Some(file) = self.here()? {
            file
        } else {
            let file = archive::nameless(&self.spool)?;
            let came = self.assemble(remote, &file)?;
            (found, bytes_fetched) = (came.archive_sha256, came.bytes_fetched);
            if let Some(cache) = self.cache.as_ref().filter(|_| found == self.wanted) {
                cache.keep(found, &file);
            }
            file
        };
        let archive = opened(Arc::new(file), &self.name, self.key.as_deref())?;
        let tree = archive.summary().map(|summary| summary.tree_digest);
        let tree = tree.map(|tree| self.key.as_ref().map_or(tree, |key| key.veil(&tree)));
        Ok((archive, found, bytes_fetched, tree))
    }

    /// The very archive, if this host has it undamaged.
    fn here(&self) -> Result<Option<File>, ArchiveError> {
        let Some(file) = self
            .cache
            .as_ref()
            .and_then(|cache| cache.open(self.wanted))
        else {
            return Ok(None);
        };
        let (found, _) = archive::digest(&file, &self.name, &self.cancel)?;
        if found == self.wanted {
            return Ok(Some(file));
        }
        if let Some(cache) = &self.cache {
            cache.forget(self.wanted);
        }
        Ok(None)
    }

    fn assemble(&self, remote: Arc<dyn ReadAt>, file: &File) -> Result<Assembled, ArchiveError> {
        let near = || {
            self.near
                .iter()
                .find_map(|near| self.cache.as_ref()?.open(*near))
        };
        let place = (file, &*self.spool);
        match &self.key {
            None => {
                let there = Archive::over(remote, &self.name)?;
                let near = near().and_then(|near| Archive::over(Arc::new(near), &self.name).ok());
                archive::assemble(&there, near.as_ref(), place, &self.cancel)
            }
            Some(key) => {
                let there = Sealed::open(remote, &self.name, key)?;
                let near = near();
                let near = near.and_then(|near| Sealed::open(Arc::new(near), &self.name, key).ok());
                archive::assemble_sealed(&there, near.as_ref(), place, &self.cancel)
            }
        }
    }
}

/// Opens stored bytes, through their key if they need one.
pub(super) fn opened(
    stored: Arc<dyn ReadAt>,
    name: &Path,
    key: Option<&DataKey>,
) -> Result<Archive, ArchiveError> {
    match key {
        None => Archive::over(stored, name),
        Some(key) => {
            let view = Sealed::open(stored, name, key)?;
            Archive::over(Arc::new(view), name)
        }
    }
}

/// What a failure means for a snapshot: that it is not there, that it is another one, or what it is.
fn told(error: ArchiveError, snapshot: &str) -> Error {
    match error {
        ArchiveError::Failed { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            ProfileError::NoArchive(snapshot.to_owned()).into()
        }
        ArchiveError::Failed { source, .. } if source.kind() == io::ErrorKind::UnexpectedEof => {
            ProfileError::Sha {
                wanted: snapshot.to_owned(),
                found: "of fewer bytes".to_owned(),
            }
            .into()
        }
        ArchiveError::Refused { problem, .. } => ProfileError::Sha {
            wanted: snapshot.to_owned(),
            found: problem.to_string(),
        }
        .into(),
        error => error.into(),
    }
}
