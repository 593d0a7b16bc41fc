//! The blocking half of a bucket in a directory.

use super::listing::KeyWalk;
use super::pending::{Batches, Doubts};
use super::reserve;
use super::temp::{Temp, Workshop};
use super::tree::{OWN, RETRY_BUDGET, Tree, is_there};
use super::trouble::FileTrouble;
use crate::bucket::{Head, Listed, Object};
use crate::layout::{Key, Prefix};
use bytes::Bytes;
use rustix::fs::AtFlags;
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use stasis_model::format::document::Version;
use stasis_model::time::Timestamp;
use std::fmt::Write as _;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;
use tokio::sync::mpsc;

/// No document that is replaced on condition is larger.
const SWAPPED_MAX: u64 = 64 << 20;

/// What must be true of an object for a write to be applied.
pub(super) enum WriteCondition {
    None,
    Missing,
    Is(Version),
}

/// What became of a write.
pub(super) enum WriteOutcome {
    Applied(Version),
    Refused,
    /// Renamed, but perhaps not durable.
    Doubtful(FileTrouble),
}

impl WriteOutcome {
    /// For writes without a condition: there is nothing to be refused, and doubt is failure.
    pub(super) fn or_fail(self) -> Result<(), FileTrouble> {
        match self {
            Self::Applied(_) | Self::Refused => Ok(()),
            Self::Doubtful(trouble) => Err(trouble),
        }
    }
}

/// A store in a directory.
pub(super) struct Disk {
    pub(super) tree: Tree,
    pub(super) workshop: Workshop,
    /// Whether it is known that this directory may be written to.
    is_prepared: AtomicBool,
    /// Whether it was seen to since this was opened that there is a reserve.
    pub(super) has_reserve: AtomicBool,
    pub(super) batches: Batches,
    /// What was renamed and may not be durable.
    pub(super) doubts: Doubts,
}

impl Disk {
    pub(super) fn open(root: PathBuf) -> Result<Self, FileTrouble> {
        make_root(&root)?;
        let tree = Tree::open(root)?;
        let own = |name| tree.try_make([OWN, name])?.ok_or(FileTrouble::RootGone);
        let workshop = Workshop {
            locks: own("locks")?,
            tmp: own("tmp")?,
        };
        let disk = Self::over(tree, workshop);
        disk.workshop()?;
        Ok(disk)
    }

    fn over(tree: Tree, workshop: Workshop) -> Self {
        Self {
            tree,
            workshop,
            is_prepared: AtomicBool::new(false),
            has_reserve: AtomicBool::new(false),
            batches: Batches::default(),
            doubts: Doubts::default(),
        }
    }

    pub(super) fn open_existing(root: PathBuf) -> Result<Self, FileTrouble> {
        let tree = Tree::open(root)?;
        let own = |name: &'static str| {
            let missing = || FileTrouble::NoStore(format!("{OWN}/{name}"));
            tree.directory([OWN, name])?.ok_or_else(missing)
        };
        let workshop = Workshop {
            locks: own("locks")?,
            tmp: own("tmp")?,
        };
        Ok(Self::over(tree, workshop))
    }

    /// Where temporary files and locks are, for whoever writes.
    ///
    /// Before the first write the directory is tried and swept; whoever only reads writes nothing at all.
    pub(super) fn workshop(&self) -> Result<&Workshop, FileTrouble> {
        if !self.is_prepared.load(Ordering::Acquire) {
            self.workshop.tells_case()?;
            let has_doubts = self.workshop.remove_dead()?;
            self.is_prepared.store(true, Ordering::Release);
            if has_doubts {
                self.settle_doubts();
            }
        }
        Ok(&self.workshop)
    }

    pub(super) fn path(&self) -> &Path {
        self.tree.path()
    }

    /// What was renamed is read from memory, durable or not: what may not be is written anew first.
    pub(super) fn read(&self, key: &Key, limit: u64) -> Result<Option<Object>, FileTrouble> {
        self.settle_doubt(key)?;
        let Some(file) = self.tree.object(key)? else {
            return Ok(None);
        };
        let size = file.metadata()?.len();
        if size > limit {
            return Err(FileTrouble::TooLarge(size));
        }
        let mut body = Vec::new();
        file.take(limit.saturating_add(1)).read_to_end(&mut body)?;
        if body.len() as u64 > limit {
            return Err(FileTrouble::TooLarge(body.len() as u64));
        }
        let version = version(Sha256::new().chain_update(&body));
        let body = body.into();
        Ok(Some(Object { body, version }))
    }

    pub(super) fn read_range(
        &self,
        key: &Key,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, FileTrouble> {
        let Some(mut file) = self.tree.object(key)? else {
            return Ok(None);
        };
        let end = range.end.min(file.metadata()?.len());
        let mut body = Vec::new();
        if range.start < end {
            file.seek(SeekFrom::Start(range.start))?;
            file.take(end - range.start).read_to_end(&mut body)?;
        }
        Ok(Some(body.into()))
    }

    pub(super) fn head(&self, key: &Key) -> Result<Option<Head>, FileTrouble> {
        let Some(mut file) = self.tree.object(key)? else {
            return Ok(None);
        };
        let (size, version) = measured(&mut file)?;
        Ok(Some(Head { size, version }))
    }

    pub(super) fn size(&self, key: &Key) -> Result<Option<u64>, FileTrouble> {
        let found = self.tree.object(key)?;
        Ok(found
            .map(|file| file.metadata())
            .transpose()?
            .map(|seen| seen.len()))
    }

    pub(super) fn written_at(&self, key: &Key) -> Result<Option<Timestamp>, FileTrouble> {
        let Some(file) = self.tree.object(key)? else {
            return Ok(None);
        };
        let written = file.metadata()?.modified()?;
        let since = written.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Some(Timestamp::default().plus(since)))
    }

    pub(super) fn exists(&self, key: &Key) -> Result<bool, FileTrouble> {
        let is_there = match self.tree.parent(key)? {
            Some(parent) => is_there(&parent, key.file_name())?,
            None => false,
        };
        if is_there {
            self.settle_doubt(key)?;
        }
        Ok(is_there)
    }

    pub(super) fn write(
        &self,
        key: &Key,
        condition: &WriteCondition,
        body: &[u8],
    ) -> Result<WriteOutcome, FileTrouble> {
        match condition {
            // What is replaced on condition leads to the rest: without it nothing could be let go.
            WriteCondition::Missing | WriteCondition::Is(_) => {
                reserve::lend(self.path(), || self.write_once(key, condition, body))
            }
            WriteCondition::None => self.write_once(key, condition, body),
        }
    }

    fn write_once(
        &self,
        key: &Key,
        condition: &WriteCondition,
        body: &[u8],
    ) -> Result<WriteOutcome, FileTrouble> {
        // Cheaper than writing a file for nothing; what counts is asked again under the lock.
        if !self.holds(key, condition)? {
            return Ok(WriteOutcome::Refused);
        }
        let mut temp = self.workshop()?.temp()?;
        temp.file.write_all(body)?;
        let version = version(Sha256::new().chain_update(body));
        self.publish(key, condition, temp, version)
    }

    /// Writes what arrives until `None`; when the sender goes away before, nothing is stored.
    pub(super) fn write_arriving(
        &self,
        key: &Key,
        mut arriving: mpsc::Receiver<Option<Bytes>>,
    ) -> Result<u64, FileTrouble> {
        let mut temp = self.workshop()?.temp()?;
        let (mut size, mut digest) = (0, Sha256::new());
        loop {
            match arriving.blocking_recv() {
                None => return Err(FileTrouble::Abandoned),
                Some(None) => break,
                Some(Some(piece)) => {
                    temp.file.write_all(&piece)?;
                    digest.update(&piece);
                    size += piece.len() as u64;
                }
            }
        }
        self.publish(key, &WriteCondition::None, temp, version(digest))?
            .or_fail()?;
        Ok(size)
    }

    fn publish(
        &self,
        key: &Key,
        condition: &WriteCondition,
        mut temp: Temp<'_>,
        version: Version,
    ) -> Result<WriteOutcome, FileTrouble> {
        temp.file.sync_all()?;
        let _lock = self.workshop()?.lock(&lock_name(key))?;
        if !self.holds(key, condition)? {
            return Ok(WriteOutcome::Refused);
        }
        for _ in 0..RETRY_BUDGET {
            let parent = self.tree.make_parent(key)?;
            match temp.rename_to(&parent, key.file_name()) {
                Ok(()) => {
                    return Ok(match rustix::fs::fsync(&parent) {
                        Ok(()) => {
                            self.undoubt(key);
                            WriteOutcome::Applied(version)
                        }
                        Err(errno) => {
                            self.doubt(key);
                            WriteOutcome::Doubtful(errno.into())
                        }
                    });
                }
                // Another key's delete found the directory empty and removed it.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Errno::NOENT.into())
    }

    fn holds(&self, key: &Key, condition: &WriteCondition) -> Result<bool, FileTrouble> {
        let expected = match condition {
            WriteCondition::None => return Ok(true),
            WriteCondition::Missing => return Ok(self.tree.object(key)?.is_none()),
            WriteCondition::Is(expected) => expected,
        };
        match self.tree.object(key)? {
            // Nobody expects a version of what is too large to be read.
            Some(file) if file.metadata()?.len() > SWAPPED_MAX => Ok(false),
            Some(mut file) => Ok(measured(&mut file)?.1 == *expected),
            None => Ok(false),
        }
    }

    pub(super) fn delete(&self, key: &Key) -> Result<(), FileTrouble> {
        reserve::lend(self.path(), || self.delete_once(key))?;
        if !self.has_reserve.swap(true, Ordering::Relaxed) {
            reserve::make(self.path());
        }
        Ok(())
    }

    fn delete_once(&self, key: &Key) -> Result<(), FileTrouble> {
        let _lock = self.workshop()?.lock(&lock_name(key))?;
        let Some(parent) = self.tree.parent(key)? else {
            return Ok(());
        };
        match rustix::fs::unlinkat(&parent, key.file_name(), AtFlags::empty()) {
            Ok(()) => rustix::fs::fsync(&parent)?,
            Err(Errno::NOENT | Errno::ISDIR) => return self.tree.still_there(),
            Err(errno) => return Err(errno.into()),
        }
        self.tree.prune(key)
    }

    pub(super) fn list(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, FileTrouble> {
        KeyWalk::new(prefix, after, limit).over(&self.tree)
    }
}

/// Makes the root and what leads to it, durably, for nobody but us.
fn make_root(root: &Path) -> Result<(), FileTrouble> {
    match root.metadata() {
        Ok(found) if found.is_dir() => return Ok(()),
        // Said before it is tried: the system would only say that something is there.
        Ok(_) => return Err(io::Error::from(Errno::NOTDIR).into()),
        Err(_) => {}
    }
    DirBuilder::new().recursive(true).mode(0o700).create(root)?;
    for made in root.ancestors().skip(1) {
        if File::open(made).and_then(|above| above.sync_all()).is_err() {
            break; // Above what we may read there is nothing that we made.
        }
    }
    Ok(())
}

pub(super) fn lock_name(key: &Key) -> String {
    let digest = Sha256::digest(key.as_str());
    format!("{:02x}", digest[0])
}

/// Size and version of an open object.
fn measured(file: &mut File) -> Result<(u64, Version), FileTrouble> {
    let (mut size, mut digest) = (0, Sha256::new());
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((size, version(digest))),
            read => {
                digest.update(&buffer[..read]);
                size += read as u64;
            }
        }
    }
}

fn version(digest: Sha256) -> Version {
    let mut text = String::with_capacity(64);
    for byte in digest.finalize() {
        write!(text, "{byte:02x}").expect("a string can be written to");
    }
    Version::new(text)
}
