//! Archives that this host has seen, kept for a while: what did not change since is neither compressed nor fetched again.
//!
//! *Always true:* everything here can be lost, and nothing is believed: whoever takes an archive from here checks its
//! digest, or the digest of every frame it uses. The newest archive is always kept, older ones only within the limit.

use crate::fs::sys::unnamed;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, unlinkat, utimensat};
use stasis_model::digest::ArchiveDigest;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How many bytes are kept when nobody says otherwise.
pub const USUAL_LIMIT: u64 = 4_000_000_000;

/// A directory of archives, each under its digest.
#[derive(Clone, Debug)]
pub struct ArchiveCache {
    root: PathBuf,
    limit: u64,
}

impl ArchiveCache {
    /// The cache in the directory `root`, which exists.
    pub fn new(root: PathBuf, limit: u64) -> Self {
        Self { root, limit }
    }

    fn path(&self, digest: ArchiveDigest) -> PathBuf {
        self.root.join(format!("{digest}.tar.zst"))
    }

    /// The bytes of an archive that is here, if it is; from now on it counts as the newest.
    pub fn open(&self, digest: ArchiveDigest) -> Option<File> {
        let path = self.path(digest);
        let archive = File::open(&path).ok()?;
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        // Only its turn to go is wrong when this fails.
        let _ = utimensat(CWD, &path, &times, AtFlags::empty());
        Some(archive)
    }

    /// Keeps the archive in `file`, which has no name yet and lies on the same filesystem; removes what is too much.
    pub fn keep(&self, digest: ArchiveDigest, file: &File) {
        // One that is there already, or a filesystem that cannot, costs only time later.
        let _ = unnamed::give_name(file, &self.path(digest));
        self.trim();
    }

    /// Forgets an archive that is not what its name says.
    pub fn forget(&self, digest: ArchiveDigest) {
        let _ = unlinkat(CWD, self.path(digest), AtFlags::empty());
    }

    fn trim(&self) {
        let Ok(entries) = std::fs::read_dir(&self.root) else {
            return;
        };
        let mut kept: Vec<(SystemTime, u64, PathBuf)> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let seen = entry.metadata().ok()?;
                Some((seen.modified().ok()?, seen.len(), entry.path()))
            })
            .filter(|(_, _, path)| is_ours(path))
            .collect();
        kept.sort();
        let mut bytes: u64 = kept.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, length, path) in kept.iter().take(kept.len().saturating_sub(1)) {
            if bytes <= self.limit {
                return;
            }
            if unlinkat(CWD, path, AtFlags::empty()).is_ok() {
                bytes -= length;
            }
        }
    }
}

fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.strip_suffix(".tar.zst"))
        .is_some_and(|digest| digest.parse::<ArchiveDigest>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::archive::{Archive, CreateSettings, create_nameless, nameless};
    use std::io::Write;
    use std::sync::Arc;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test makes its tree")]
    fn the_oldest_go_first_the_newest_stays_and_strangers_are_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let cache = ArchiveCache::new(home.path().to_owned(), 2500);
        std::fs::write(home.path().join("README"), "somebody's").unwrap();
        let digests: Vec<ArchiveDigest> = (0..4)
            .map(|number| {
                let mut file = nameless(home.path()).unwrap();
                file.write_all(&[number; 1000]).unwrap();
                let digest = ArchiveDigest::of(&[number; 1000]);
                cache.keep(digest, &file);
                std::thread::sleep(std::time::Duration::from_millis(20));
                digest
            })
            .collect();

        let here: Vec<bool> = digests
            .iter()
            .map(|digest| cache.open(*digest).is_some())
            .collect();

        assert_eq!(here, [false, false, true, true]);
        assert!(home.path().join("README").exists());
        let tiny = ArchiveCache::new(home.path().to_owned(), 1);
        tiny.trim();
        assert!(tiny.open(digests[3]).is_some(), "the newest stays");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test makes its tree")]
    fn an_archive_that_was_made_without_a_name_can_be_kept() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join("tree")).unwrap();
        std::fs::write(home.path().join("tree/file"), "content").unwrap();
        let cache = ArchiveCache::new(home.path().to_owned(), USUAL_LIMIT);

        let settings = CreateSettings::default();
        let (made, file) =
            create_nameless(&home.path().join("tree"), home.path(), &settings).unwrap();
        cache.keep(made.archive_sha256, &file);

        let kept = cache.open(made.archive_sha256).unwrap();
        let kept = Archive::over(Arc::new(kept), home.path()).unwrap();
        assert_eq!(kept.summary().unwrap().tree_digest, made.tree_digest);
    }
}
