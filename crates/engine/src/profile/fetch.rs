//! Brings the archive of a snapshot to this host, without what the host already has.

use super::error::ProfileError;
use crate::archive::remote::Remote;
use crate::bridge;
use crate::error::Error;
use crate::open::Engine;
use stasis_disk::archive::{self, Archive, ArchiveError, ReadSettings};
use stasis_disk::archive_cache::{ArchiveCache, USUAL_LIMIT};
use stasis_model::digest::ArchiveDigest;
use stasis_model::manifest::ProfileManifest;
use stasis_model::pointer::Active;
use stasis_store::layout::Key;
use std::io;
use std::path::PathBuf;
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
    pub(super) async fn profile_spool(&self) -> Result<PathBuf, Error> {
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
        let (cache, spool) = (self.archive_cache().await, self.profile_spool().await?);
        let snapshot = active.archive.prefix();
        let key = Key::from_listing(&active.archive_key);
        let key = key.ok_or_else(|| ProfileError::NoArchive(snapshot.clone()))?;
        let size = manifest.archive_size_bytes;
        let remote: Arc<Remote> = Arc::new(Remote::new(self.bucket.clone(), key.clone(), size));
        let (near, cancel, wanted) = (near.to_vec(), cancel.clone(), active.archive);
        let fetched = bridge::blocking(move || {
            let name = PathBuf::from(key.as_str());
            if let Some(here) = cache.as_ref().and_then(|cache| cache.open(wanted)) {
                let settings = ReadSettings {
                    cancel: cancel.clone(),
                    ..ReadSettings::default()
                };
                if here.digest(&settings)?.0 == wanted {
                    return Ok((here, wanted, 0));
                }
            }
            let near = near.iter().find_map(|near| cache.as_ref()?.open(*near));
            let there = Archive::over(remote, &name)?;
            let file = archive::nameless(&spool)?;
            let came = archive::assemble(&there, near.as_ref(), (&file, &spool), &cancel)?;
            if let Some(cache) = cache.filter(|_| came.archive_sha256 == wanted) {
                cache.keep(wanted, &file);
            }
            let archive = Archive::over(Arc::new(file), &name)?;
            Ok((archive, came.archive_sha256, came.bytes_fetched))
        });
        let (archive, found, bytes_fetched) =
            fetched.await.map_err(|error| told(error, &snapshot))?;
        if found != wanted {
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
