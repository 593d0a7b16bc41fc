//! Whether an archive is whole, and which tree is in it.

use super::plain::Plain;
use super::reader::{Archive, OpenedArchive, ReadSettings, go_on, read_plain};
use super::reading::ArchiveReading;
use super::tar_event::TarEvent;
use super::workers::{self, FrameWorkers};
use super::{ArchiveContext, ArchiveError, CountedBytes, Problem, ReadAt};
use crate::progress::Progress;
use stasis_model::digest::{ArchiveDigest, ArchiveHasher, FileHasher, TreeDigest};
use stasis_model::tree::canonical::TreeHasher;
use stasis_model::tree::{Entry, EntryKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What an archive was found to be.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "an archive may be whole and still be another one than expected"]
pub struct VerifyReport {
    /// SHA-256 of the stored bytes.
    pub archive_sha256: ArchiveDigest,
    /// Which tree is in it; of an archive that is not sorted nobody knows.
    pub tree_digest: Option<TreeDigest>,
    /// Entries of any kind.
    pub entries: u64,
    /// Regular files.
    pub files: u64,
    /// The length of all files.
    pub bytes: u64,
    /// The length of the tar.
    pub tar_bytes: u64,
    /// The length of the archive.
    pub stored_bytes: u64,
    /// How many frames it has; none when it has no index.
    pub frames: Option<u64>,
}

impl Archive {
    /// Reads everything and compares it with everything that is known of it.
    ///
    /// All bytes are read for the digest, and once more for what is in them: each reading counts half, so that progress ends at the
    /// length of the archive.
    pub fn verify(&self, settings: &ReadSettings) -> Result<VerifyReport, ArchiveError> {
        let progress = &settings.progress;
        let length = self.bytes().length().of_archive(self.path())?;
        progress.expect(0, length);
        let (archive_sha256, stored_bytes) =
            digest_heard(self.bytes(), self.path(), &settings.cancel, |from, to| {
                progress.advance(0, to / 2 - from / 2);
            })?;
        let mut found = VerifiedEntries::default();
        let second = SecondReading {
            progress: Arc::clone(progress),
            reached: AtomicU64::new(0),
        };
        let second = Arc::new(second);
        let frames = self.read_entries(settings, &second, &mut found)?;
        // An index, and whatever else lies behind the last entry.
        second.read(stored_bytes.saturating_sub(second.reached.load(Ordering::Relaxed)));
        let tree_digest = found.finish();
        let expected = self.summary().map(|summary| summary.tree_digest);
        if expected != tree_digest {
            return Err(Problem::OtherTree).of_archive(self.path());
        }
        Ok(VerifyReport {
            archive_sha256,
            tree_digest,
            entries: found.entries,
            files: found.files,
            bytes: found.bytes,
            tar_bytes: found.tar_bytes,
            stored_bytes,
            frames,
        })
    }

    /// Reads every entry; says how many frames there are.
    fn read_entries(
        &self,
        settings: &ReadSettings,
        second: &Arc<SecondReading>,
        found: &mut VerifiedEntries,
    ) -> Result<Option<u64>, ArchiveError> {
        match &self.0 {
            OpenedArchive::Framed(framed) => {
                let mut reading = ArchiveReading::framed(framed, settings.limits);
                let workers = FrameWorkers::new(settings.workers, settings.cancel.clone());
                found.tree = Some(TreeHasher::new());
                workers::decode(&workers, framed, |frame, tar| {
                    let stored = framed.stored(frame)?;
                    let tar = tar.bytes();
                    found.read(reading.feed(tar)?, tar);
                    second.read(stored.len() as u64);
                    Ok(())
                })?;
                reading.finish()?;
                Ok(Some(framed.index.frames.len() as u64))
            }
            OpenedArchive::Plain(plain) => {
                read_plain(&second.counting(plain), settings, |reading, tar| {
                    found.read(reading.feed(&tar)?, &tar);
                    Ok::<_, ArchiveError>(())
                })?;
                Ok(None)
            }
        }
    }
}

impl Archive {
    /// SHA-256 of the stored bytes as they are now, and how many they are.
    pub fn digest(&self, settings: &ReadSettings) -> Result<(ArchiveDigest, u64), ArchiveError> {
        digest(self.bytes(), self.path(), &settings.cancel)
    }
}

/// How far the second reading of an archive has come.
struct SecondReading {
    progress: Arc<Progress>,
    reached: AtomicU64,
}

impl SecondReading {
    /// Counts that so many bytes more were read: the half that the first reading left.
    fn read(&self, bytes: u64) {
        let from = self.reached.fetch_add(bytes, Ordering::Relaxed);
        let to = from + bytes;
        self.progress.advance(0, bytes - (to / 2 - from / 2));
    }

    /// The same tar, which is read from its beginning to its end.
    fn counting(self: &Arc<Self>, plain: &Plain) -> Plain {
        let own = Arc::clone(self);
        let heard = move |from: u64, to: u64| own.read(to - from);
        Plain {
            path: plain.path.clone(),
            compression: plain.compression,
            bytes: Arc::new(CountedBytes::new(Arc::clone(&plain.bytes), heard)),
        }
    }
}

/// Digests all bytes, in order; says how many they are.
pub fn digest(
    bytes: &dyn ReadAt,
    path: &Path,
    cancel: &AtomicBool,
) -> Result<(ArchiveDigest, u64), ArchiveError> {
    digest_heard(bytes, path, cancel, |_, _| {})
}

/// The same; `heard` is told of each stretch.
fn digest_heard(
    bytes: &dyn ReadAt,
    path: &Path,
    cancel: &AtomicBool,
    heard: impl Fn(u64, u64),
) -> Result<(ArchiveDigest, u64), ArchiveError> {
    let (mut hasher, mut length) = (ArchiveHasher::default(), 0);
    let mut buffer = vec![0; 1 << 20];
    loop {
        go_on(cancel)?;
        let read = bytes.read_at(&mut buffer, length);
        match read.of_archive(path)? {
            0 => return Ok((hasher.finish(), length)),
            read => {
                hasher.update(&buffer[..read]);
                heard(length, length + read as u64);
                length += read as u64;
            }
        }
    }
}

/// What a whole archive turns out to hold.
#[derive(Default)]
struct VerifiedEntries {
    tree: Option<TreeHasher>,
    open: Option<(Entry, FileHasher, u64)>,
    entries: u64,
    files: u64,
    bytes: u64,
    tar_bytes: u64,
}

impl VerifiedEntries {
    fn read(&mut self, events: std::vec::Drain<'_, TarEvent>, tar: &[u8]) {
        self.tar_bytes += tar.len() as u64;
        for event in events {
            match event {
                TarEvent::Entry(entry, _) => {
                    self.entries += 1;
                    if let EntryKind::File { size } = entry.kind {
                        self.files += 1;
                        self.bytes = self.bytes.saturating_add(size);
                        self.open = Some((entry, FileHasher::default(), size));
                        self.close();
                    } else if let Some(tree) = &mut self.tree {
                        tree.entry(&entry, None);
                    }
                }
                TarEvent::Content(range) => {
                    if let Some((_, hasher, left)) = &mut self.open {
                        *left -= range.len() as u64;
                        if self.tree.is_some() {
                            hasher.update(&tar[range]);
                        }
                    }
                    self.close();
                }
                // Only others store holes, and their trees have no digest.
                TarEvent::Hole(length) => {
                    if let Some((_, _, left)) = &mut self.open {
                        *left -= length;
                    }
                    self.close();
                }
            }
        }
    }

    /// Ends the file whose content is complete.
    fn close(&mut self) {
        if let Some((entry, hasher, 0)) = &self.open {
            if let Some(tree) = &mut self.tree {
                tree.entry(entry, Some(&hasher.finish()));
            }
            self.open = None;
        }
    }

    fn finish(&mut self) -> Option<TreeDigest> {
        self.tree.take().map(TreeHasher::finish)
    }
}
