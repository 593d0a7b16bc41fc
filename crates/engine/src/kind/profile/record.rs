//! `<dir>.stasis.json`: what was loaded into a directory, so that a later save knows what it derives from.
//!
//! *Always true:* written after the directory is in place and before anybody is told, and again after a save. It is about
//! one directory, not about a path: where another directory took its place, it says nothing. Nor does a record of another
//! store or lineage. A lost one costs a `diverged` save, never a wrong one.

use crate::bridge;
use crate::error::Error;
use serde::{Deserialize, Serialize};
use stasis_disk::fs::atomic_write::atomic_write;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::document::{self, Document};
use stasis_model::id::Lineage;
use stasis_model::time::Timestamp;
use stasis_model::upgrade::Ancestor;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    version: u64,
    /// Of which lineage.
    pub subject: Lineage,
    /// In which store.
    pub store: String,
    /// The snapshot that the directory was, or began as; `None` after a fresh start.
    pub sha256: Option<ArchiveDigest>,
    /// The snapshot of an older major that the directory began as; what is saved of it is compared with that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgraded_from: Option<Ancestor>,
    /// Whether what is saved of it is not published by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held_back: bool,
    /// How it came about: `success`, `upgraded`, `predecessor`, `no_snapshot`, `fresh_fallback`, `captured`, `deduplicated`.
    pub outcome: String,
    /// When.
    pub at_ms: Timestamp,
    /// Of which directory.
    #[serde(default)]
    directory: Option<DirIdentity>,
}

/// What tells a directory from another one in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct DirIdentity {
    device: u64,
    inode: u64,
    /// When it was made, where the filesystem knows it: numbers of inodes are used again.
    born_ns: Option<u64>,
}

impl DirIdentity {
    fn of(dir: &Path) -> Option<Self> {
        let seen = std::fs::symlink_metadata(dir).ok()?;
        let born = seen.created().ok();
        let born = born.and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        Some(Self {
            device: seen.dev(),
            inode: seen.ino(),
            born_ns: born.and_then(|born| u64::try_from(born.as_nanos()).ok()),
        })
    }
}

impl Document for Record {
    const NAME: &'static str = ".stasis.json";
}

impl Record {
    /// A new record.
    pub fn new(
        subject: Lineage,
        store: String,
        sha256: Option<ArchiveDigest>,
        outcome: &str,
        at_ms: Timestamp,
    ) -> Self {
        Self {
            version: Self::VERSION,
            subject,
            store,
            sha256,
            upgraded_from: None,
            held_back: false,
            outcome: outcome.to_owned(),
            at_ms,
            directory: None,
        }
    }

    /// Where the record of a directory is.
    pub fn path(dir: &Path) -> PathBuf {
        // Without a trailing slash, which would put it inside.
        let mut name = dir.components().as_path().as_os_str().to_owned();
        name.push(".stasis.json");
        name.into()
    }

    /// The record of a directory; `None` when there is none that is about it.
    pub async fn of(dir: &Path) -> Option<Self> {
        let (path, dir) = (Self::path(dir), dir.to_owned());
        let read = bridge::blocking(move || {
            // Neither a link nor a pipe that somebody put there.
            let is_file = std::fs::symlink_metadata(&path).ok()?.is_file();
            let file = std::fs::File::open(path).ok().filter(|_| is_file)?;
            let mut bytes = Vec::new();
            let read = file.take(Self::LIMIT as u64 + 1).read_to_end(&mut bytes);
            Some((read.map(|_| bytes).ok()?, DirIdentity::of(&dir)?))
        });
        let (bytes, identity) = read.await?;
        let record: Self = document::parse(&bytes).ok()?;
        (record.directory == Some(identity)).then_some(record)
    }

    /// Writes the record of a directory.
    pub async fn write(self, dir: &Path) -> Result<(), Error> {
        let (path, dir) = (Self::path(dir), dir.to_owned());
        let written = bridge::blocking(move || {
            let directory = DirIdentity::of(&dir);
            let _ = remove_what_the_dead_left(&path);
            atomic_write(&path, &document::render(&Self { directory, ..self }))
        });
        Ok(written.await?)
    }
}

/// Removes what writers of this record that died were about to put in its place.
fn remove_what_the_dead_left(record: &Path) -> Option<()> {
    let name = record.file_name()?.to_str()?;
    for entry in std::fs::read_dir(record.parent()?).ok()?.flatten() {
        let left = entry.file_name();
        let left = left.to_str().and_then(|left| left.strip_suffix(name));
        let number = left.and_then(|left| left.strip_prefix(".stasis-tmp-"));
        let pid = number.and_then(|number| number.split('-').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !stasis_sys::processes::exists(pid)) {
            // What stays is looked for again the next time.
            let _ = stasis_disk::fs::remove::file_at(&entry.path());
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_lies_beside_the_directory_however_that_is_written() {
        for dir in ["/p/alice", "/p/alice/", "/p//alice/."] {
            assert_eq!(
                Record::path(Path::new(dir)),
                Path::new("/p/alice.stasis.json")
            );
        }
    }

    #[tokio::test]
    async fn what_was_written_is_read_and_rubbish_is_nothing() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("profile");
        stasis_disk::fs::atomic_write::make_directory(&dir).unwrap();
        let subject: Lineage = "acme/alice@131".parse().unwrap();
        let sha = Some(ArchiveDigest::of(b"x"));
        let now = Timestamp::from_millis(5);
        let record = Record::new(subject, "file:///s".into(), sha, "success", now);

        record.clone().write(&dir).await.unwrap();
        let read = Record::of(&dir).await.unwrap();
        assert_eq!((read.sha256, read.outcome), (record.sha256, record.outcome));
        stasis_disk::fs::remove::tree_at(&dir).unwrap();
        stasis_disk::fs::atomic_write::make_directory(&dir).unwrap();
        assert_eq!(Record::of(&dir).await, None, "it is another directory");
        atomic_write(&Record::path(&dir), b"{").unwrap();
        assert_eq!(Record::of(&dir).await, None);
    }
}
