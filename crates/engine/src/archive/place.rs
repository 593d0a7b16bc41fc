//! Where an archive is, or shall be: a file of this host, or an object in a bucket.

use super::remote::Remote;
use crate::bridge;
use crate::error::Error;
use crate::open::{Engine, StoreLocation};
use stasis_disk::form::archive::{self, Archive, CountedBytes, ReadAt as _};
use stasis_disk::progress::Progress;
use stasis_model::invalid::Invalid;
use stasis_store::layout::Key;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What a user wrote: a path, or the URL of one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ArchiveAddress {
    /// A file of this host.
    File(PathBuf),
    /// An object.
    Object {
        /// The store it is in.
        store: StoreLocation,
        /// Its name there.
        name: String,
    },
}

impl FromStr for ArchiveAddress {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if !text.contains("://") && text != "memory:" {
            return Ok(Self::File(text.into()));
        }
        match text.parse()? {
            StoreLocation::File(path) => Ok(Self::File(path)),
            StoreLocation::S3(mut location) if !location.prefix.is_empty() => {
                let prefix = std::mem::take(&mut location.prefix);
                let (above, name) = prefix.rsplit_once('/').unwrap_or(("", &prefix));
                above.clone_into(&mut location.prefix);
                let (store, name) = (StoreLocation::S3(location), name.to_owned());
                Ok(Self::Object { store, name })
            }
            location => Err(Invalid::new(format!(
                "`{location}` names no object; write s3://bucket/name.tar.zst, or a path"
            ))),
        }
    }
}

/// An archive that can be reached.
#[derive(Clone, Debug)]
pub enum ArchivePlace {
    /// A file of this host.
    File(PathBuf),
    /// An object in a bucket.
    Object {
        /// The bucket.
        engine: Box<Engine>,
        /// Which object.
        key: Key,
    },
}

impl ArchivePlace {
    /// The object called `name` in the store of `engine`.
    pub fn object(engine: Engine, name: &str) -> Result<Self, Error> {
        let key = Key::from_listing(name).ok_or_else(|| Error::NoArchive(name.to_owned()))?;
        let engine = Box::new(engine);
        Ok(Self::Object { engine, key })
    }

    /// Opens the archive where it is; of an object only what is needed is read.
    pub(crate) async fn open(&self) -> Result<Archive, Error> {
        match self {
            Self::File(path) => {
                let path = path.clone();
                Ok(bridge::blocking(move || Archive::open(&path)).await?)
            }
            Self::Object { engine, key } => {
                let remote = self.remote(engine, key).await?;
                let name = PathBuf::from(self.to_string());
                Ok(bridge::blocking(move || Archive::over(Arc::new(remote), &name)).await?)
            }
        }
    }

    async fn remote(&self, engine: &Engine, key: &Key) -> Result<Remote, Error> {
        let size = engine.bucket.size(key).await?;
        let size = size.ok_or_else(|| Error::NoArchive(self.to_string()))?;
        Ok(Remote::new(engine.bucket.clone(), key.clone(), size))
    }

    /// Opens the archive to read all of it: an object is brought here first, into `spool`, and its bytes are counted on the way.
    pub(super) async fn bring(
        &self,
        spool: &Path,
        cancel: &Arc<AtomicBool>,
        progress: &Arc<Progress>,
    ) -> Result<Archive, Error> {
        let Self::Object { engine, key } = self else {
            return self.open().await;
        };
        let remote = self.remote(engine, key).await?;
        let (remote, progress) = (Arc::new(remote), Arc::clone(progress));
        let (name, spool, cancel) = (
            PathBuf::from(self.to_string()),
            spool.to_owned(),
            cancel.clone(),
        );
        let brought = bridge::blocking(move || {
            progress.expect(0, remote.length().unwrap_or_default());
            let heard = move |from: u64, to: u64| progress.advance(0, to - from);
            let archive = Archive::over(Arc::new(CountedBytes::new(remote, heard)), &name)?;
            let file = archive::nameless(&spool)?;
            let to = archive::AssembleTarget {
                file: &file,
                path: &spool,
            };
            archive::assemble(&archive, None, to, &cancel)?;
            Archive::over(Arc::new(file), &name)
        });
        Ok(brought.await?)
    }
}

impl fmt::Display for ArchivePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Object { engine, key } => write!(f, "{}", engine.location.object(key.as_str())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_a_path_and_a_url_names_one_object() {
        let path: ArchiveAddress = "a/b.tar.zst".parse().unwrap();
        let file: ArchiveAddress = "file:///a/b.tar.zst".parse().unwrap();
        let object: ArchiveAddress = "s3://bucket/some/where/b.tar.zst".parse().unwrap();

        assert_eq!(path, ArchiveAddress::File("a/b.tar.zst".into()));
        assert_eq!(file, ArchiveAddress::File("/a/b.tar.zst".into()));
        let store = "s3://bucket/some/where".parse().unwrap();
        let name = "b.tar.zst".to_owned();
        assert_eq!(object, ArchiveAddress::Object { store, name });
        for none in ["s3://bucket", "memory:", "s3://bucket/", "gopher://x/y"] {
            assert!(none.parse::<ArchiveAddress>().is_err(), "{none}");
        }
    }
}
