//! Brings the archive of a snapshot to this host, without what the host already has.
//!
//! The digest is not taken here: an archive is handed out [`Unproven`], so that whoever unpacks it can take its digest
//! meanwhile. *Always true:* nothing counts that was read from an archive before [`Unproven::prove`] said that it is the
//! wanted one, and none is kept before.

use crate::archive::remote::Remote;
use crate::bridge;
use crate::error::{Error, ProfileError};
use crate::handle::Profiles;
use crate::open::Engine;
pub(super) use crate::scratch::is_no_room;
use stasis_disk::crypt::DataKey;
use stasis_disk::form::archive::{
    self, Archive, ArchiveError, Assembled, EncryptedArchive, ReadAt,
};
use stasis_disk::form::archive_cache::{ArchiveCache, USUAL_LIMIT};
use stasis_model::digest::{ArchiveDigest, TreeDigest};
use stasis_model::failure::{AtPath as _, Failure};
use stasis_model::format::manifest::ProfileManifest;
use stasis_model::format::pointer::Active;
use stasis_store::layout::Key;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// An archive that is here, and as far as is known the one that was wanted.
pub(super) struct Fetched {
    pub(super) archive: Archive,
    /// How many bytes came from the store.
    pub(super) bytes_brought: u64,
    /// What has to be proven before anything of the archive counts.
    pub(super) unproven: Unproven,
}

/// Where an archive is taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Supply {
    /// From this host if it was kept here, else from the store.
    Nearest,
    /// From the store: what was kept here is not the archive.
    Store,
}

/// Stored bytes whose digest nobody has taken yet.
pub(super) struct Unproven {
    file: Arc<File>,
    name: PathBuf,
    wanted: ArchiveDigest,
    cache: Option<ArchiveCache>,
    was_here: bool,
}

/// What stored bytes turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Proof {
    /// The wanted ones.
    Wanted,
    /// Others, that this host had kept; they are forgotten.
    NotWhatWasKept,
    /// Others, that came from the store, with this digest.
    NotWhatWasStored(ArchiveDigest),
}

impl Unproven {
    /// Whether the bytes are the wanted ones: those are kept, others forgotten.
    pub(super) fn prove(&self, cancel: &AtomicBool) -> Result<Proof, ArchiveError> {
        let (found, _) = archive::digest(&*self.file, &self.name, cancel)?;
        let proof = match (found == self.wanted, self.was_here) {
            (true, _) => Proof::Wanted,
            (false, true) => Proof::NotWhatWasKept,
            (false, false) => Proof::NotWhatWasStored(found),
        };
        match (proof, &self.cache) {
            (Proof::Wanted, Some(cache)) if !self.was_here => cache.keep(found, &self.file),
            (Proof::NotWhatWasKept, Some(cache)) => cache.forget(self.wanted),
            _ => {}
        }
        Ok(proof)
    }
}

impl Profiles<'_> {
    /// The same engine, which keeps no caches; `None` when it keeps none already.
    pub(super) fn without_cache(self) -> Option<Engine> {
        self.local_dirs.cache.as_ref()?;
        let mut without = self.engine.clone();
        without.local_dirs.cache = None;
        Some(without)
    }

    /// Archives that this host has seen; `None` where it keeps no caches.
    pub(super) async fn archive_cache(self) -> Option<ArchiveCache> {
        let root = self.local_dirs.cache.as_ref()?.join("archives");
        let made = root.clone();
        let made = bridge::blocking(move || stasis_disk::fs::atomic_write::make_directory(&made));
        made.await.ok()?;
        Some(ArchiveCache::new(root, USUAL_LIMIT))
    }

    /// Brings the archive of a snapshot here, and proves that it is the one.
    pub(super) async fn fetch_archive(
        self,
        manifest: &ProfileManifest,
        active: &Active,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Archive, Error> {
        for supply in [Supply::Nearest, Supply::Store] {
            let fetched = self.fetch_unproven(WantedArchive {
                manifest,
                active,
                supply,
                near: &[],
                cancel,
            });
            let Fetched {
                archive, unproven, ..
            } = fetched.await?;
            let until = cancel.clone();
            match bridge::blocking(move || unproven.prove(&until)).await? {
                Proof::Wanted => return Ok(archive),
                Proof::NotWhatWasKept => {}
                Proof::NotWhatWasStored(found) => return Err(another(active, &found.prefix())),
            }
        }
        unreachable!("what comes from the store was not kept here")
    }

    /// Brings the archive of a snapshot here, unproven.
    pub(super) async fn fetch_unproven(self, wanted: WantedArchive<'_>) -> Result<Fetched, Error> {
        let WantedArchive {
            manifest,
            active,
            supply,
            near,
            cancel,
        } = wanted;
        let key = self.key_to_load(manifest).await?;
        let snapshot = active.archive.prefix();
        let place = Key::from_listing(&active.archive_key);
        let place = place.ok_or_else(|| ProfileError::NoArchive(snapshot.clone()))?;
        let size = manifest.archive_size_bytes;
        let remote = Remote::new(self.bucket.clone(), place.clone(), size);
        let fetching = Fetching {
            cache: self.archive_cache().await,
            spool: self.spool().await?,
            name: PathBuf::from(place.as_str()),
            wanted: active.archive,
            tree: manifest.tree_digest,
            supply,
            near: near.to_vec(),
            key,
            cancel: cancel.clone(),
        };
        let fetched = bridge::blocking(move || fetching.fetch(Arc::new(remote)));
        match fetched
            .await
            .map_err(|error| meaning_of(error, &snapshot))?
        {
            Some(fetched) => Ok(fetched),
            None => Err(another(active, "that of another tree")),
        }
    }
}

/// What came from the store is not what was stored there.
pub(super) fn another(wanted: &Active, found: &str) -> Error {
    let (wanted, found) = (wanted.archive.prefix(), found.to_owned());
    ProfileError::Sha { wanted, found }.into()
}

/// The archive of a snapshot that is wanted here.
#[derive(Clone, Copy)]
pub(super) struct WantedArchive<'a> {
    pub(super) manifest: &'a ProfileManifest,
    pub(super) active: &'a Active,
    pub(super) supply: Supply,
    /// Snapshots that it may resemble: what this host has kept of them is not fetched.
    pub(super) near: &'a [ArchiveDigest],
    pub(super) cancel: &'a Arc<AtomicBool>,
}

/// An archive that is being brought here.
struct Fetching {
    cache: Option<ArchiveCache>,
    spool: PathBuf,
    name: PathBuf,
    wanted: ArchiveDigest,
    tree: TreeDigest,
    supply: Supply,
    near: Vec<ArchiveDigest>,
    key: Option<Arc<DataKey>>,
    cancel: Arc<AtomicBool>,
}

impl Fetching {
    /// Brings the archive; `None` when it says that it is another one.
    fn fetch(self, remote: Arc<dyn ReadAt>) -> Result<Option<Fetched>, ArchiveError> {
        if let Some(here) = self.here() {
            return Ok(Some(here));
        }
        let file = Arc::new(archive::nameless(&self.spool)?);
        let bytes_brought = self.assemble(remote, &file)?.bytes_fetched;
        let view = opened_view(file.clone(), &self.name, self.key.as_deref())?;
        let archive = view.archive;
        let is_another = !self.is_of_the_tree(&archive);
        Ok((!is_another).then(|| Fetched {
            archive,
            bytes_brought,
            unproven: self.unproven(file),
        }))
    }

    /// The archive that this host has kept, if it looks like the one; else it is forgotten.
    fn here(&self) -> Option<Fetched> {
        let cache = self.cache.as_ref();
        let cache = cache.filter(|_| self.supply == Supply::Nearest)?;
        let file = Arc::new(cache.open(self.wanted)?);
        let view = opened_view(file.clone(), &self.name, self.key.as_deref()).ok();
        let archive = view.map(|view| view.archive);
        let Some(archive) = archive.filter(|archive| self.is_of_the_tree(archive)) else {
            cache.forget(self.wanted);
            return None;
        };
        Some(Fetched {
            archive,
            bytes_brought: 0,
            unproven: Unproven {
                was_here: true,
                ..self.unproven(file)
            },
        })
    }

    fn unproven(&self, file: Arc<File>) -> Unproven {
        Unproven {
            file,
            name: self.name.clone(),
            wanted: self.wanted,
            cache: self.cache.clone(),
            was_here: false,
        }
    }

    /// Whether an archive does not say that it is of another tree.
    fn is_of_the_tree(&self, archive: &Archive) -> bool {
        let tree = archive.summary().map(|summary| summary.tree_digest);
        let tree = tree.map(|tree| self.key.as_ref().map_or(tree, |key| key.veil(&tree)));
        tree.is_none_or(|tree| tree == self.tree)
    }

    fn assemble(&self, remote: Arc<dyn ReadAt>, file: &File) -> Result<Assembled, ArchiveError> {
        let near = || {
            self.near
                .iter()
                .find_map(|near| self.cache.as_ref()?.open(*near))
        };
        let place = archive::AssembleTarget {
            file,
            path: &self.spool,
        };
        match &self.key {
            None => {
                let there = Archive::over(remote, &self.name)?;
                let near = near().and_then(|near| Archive::over(Arc::new(near), &self.name).ok());
                archive::assemble(&there, near.as_ref(), place, &self.cancel)
            }
            Some(key) => {
                let there = EncryptedArchive::open(remote, &self.name, key)?;
                let near = near();
                let near = near
                    .and_then(|near| EncryptedArchive::open(Arc::new(near), &self.name, key).ok());
                archive::assemble_encrypted(&there, near.as_ref(), place, &self.cancel)
            }
        }
    }
}

/// Stored bytes that were opened.
pub(super) struct StoredView {
    pub(super) archive: Archive,
    /// The same bytes as they are encrypted, if they are.
    pub(super) encrypted: Option<Arc<EncryptedArchive>>,
    /// How many bytes are stored.
    pub(super) size: u64,
}

/// Opens stored bytes, through their key if they need one.
pub(super) fn opened_view(
    stored: Arc<dyn ReadAt>,
    name: &Path,
    key: Option<&DataKey>,
) -> Result<StoredView, ArchiveError> {
    let size = stored.length().at("read", name)?;
    let (archive, encrypted) = match key {
        None => (Archive::over(stored, name)?, None),
        Some(key) => {
            let view = Arc::new(EncryptedArchive::open(stored, name, key)?);
            (Archive::over(view.clone(), name)?, Some(view))
        }
    };
    Ok(StoredView {
        archive,
        encrypted,
        size,
    })
}

/// What a failure means for a snapshot: that it is not there, that it is another one, or what it is.
fn said(failure: &Failure) -> Option<io::ErrorKind> {
    failure.io_source().map(io::Error::kind)
}

fn meaning_of(error: ArchiveError, snapshot: &str) -> Error {
    match error {
        ArchiveError::Failed(failure) if said(&failure) == Some(io::ErrorKind::NotFound) => {
            ProfileError::NoArchive(snapshot.to_owned()).into()
        }
        ArchiveError::Failed(failure) if said(&failure) == Some(io::ErrorKind::UnexpectedEof) => {
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
