//! `<dir>.stasis.json`: what was loaded into a directory, so that a later save knows what it derives from.
//!
//! *Always true:* written after the directory is in place and before anybody is told, and again after a save. A record
//! of another store or lineage says nothing; a lost one costs a `diverged` save, never a wrong one.

use crate::bridge;
use crate::error::Error;
use serde::{Deserialize, Serialize};
use stasis_disk::atomic_write::atomic_write;
use stasis_model::digest::ArchiveDigest;
use stasis_model::document::{self, Document};
use stasis_model::id::Lineage;
use stasis_model::time::Timestamp;
use std::io::Read;
use std::path::{Path, PathBuf};

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
    /// How it came about: `success`, `no_snapshot`, `fresh_fallback`, `captured`, `deduplicated`.
    pub outcome: String,
    /// When.
    pub at_ms: Timestamp,
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
            outcome: outcome.to_owned(),
            at_ms,
        }
    }

    /// Where the record of a directory is.
    pub fn path(dir: &Path) -> PathBuf {
        // Without a trailing slash, which would put it inside.
        let mut name = dir.components().as_path().as_os_str().to_owned();
        name.push(".stasis.json");
        name.into()
    }

    /// The record of a directory; `None` when there is none that can be used.
    pub async fn of(dir: &Path) -> Option<Self> {
        let path = Self::path(dir);
        let read = bridge::blocking(move || {
            let mut bytes = Vec::new();
            let file = std::fs::File::open(path)?;
            file.take(Self::LIMIT as u64 + 1).read_to_end(&mut bytes)?;
            Ok::<_, std::io::Error>(bytes)
        });
        document::parse(&read.await.ok()?).ok()
    }

    /// Writes the record of a directory.
    pub async fn write(&self, dir: &Path) -> Result<(), Error> {
        let (path, bytes) = (Self::path(dir), document::render(self));
        Ok(bridge::blocking(move || atomic_write(&path, &bytes)).await?)
    }
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
        let subject: Lineage = "acme/alice@131".parse().unwrap();
        let sha = Some(ArchiveDigest::of(b"x"));
        let now = Timestamp::from_millis(5);
        let record = Record::new(subject, "file:///s".into(), sha, "success", now);

        record.write(&dir).await.unwrap();
        assert_eq!(Record::of(&dir).await, Some(record));
        atomic_write(&Record::path(&dir), b"{").unwrap();
        assert_eq!(Record::of(&dir).await, None);
    }
}
