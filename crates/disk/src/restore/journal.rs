//! What remains to be done to a live tree, written down before any of it is done.
//!
//! `stasis-journal 1`, the inode of the root it is for, what may be given away, the steps, and a BLAKE3 digest of all
//! that. A journal that is there is whole: it is synced under another name, and renamed.

use super::kept::write_all;
use crate::metadata::Rights;
use crate::staging::JOURNAL;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::{self, Errno, Result};
use stasis_model::tree::{EntryPath, FileTime, Metadata};
use std::os::fd::{AsFd, OwnedFd};

const HEADER: &[u8] = b"stasis-journal 1\n";
const DIGEST: usize = 32;

/// One thing to do to the live tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Move the entry `path` away, under this number.
    Remove(EntryPath, u64),
    /// Move the entry `path` from the staged tree to its place.
    Place(EntryPath),
    /// Give the directory `path` what it should have.
    Dress(EntryPath, Metadata),
}

/// The steps, packed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Journal {
    bytes: Vec<u8>,
}

impl Journal {
    pub(super) fn new(root: u64, rights: Rights) -> Self {
        let mut bytes = HEADER.to_vec();
        bytes.extend_from_slice(&root.to_le_bytes());
        bytes.push((rights == Rights::All).into());
        Self { bytes }
    }

    pub(super) fn add(&mut self, step: &Step) {
        let (kind, path) = match step {
            Step::Remove(path, _) => (1, path),
            Step::Place(path) => (2, path),
            Step::Dress(path, _) => (3, path),
        };
        let path = path.as_bytes();
        let length = u32::try_from(path.len()).expect("the kernel's paths are shorter");
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(path);
        match step {
            Step::Remove(_, number) => self.bytes.extend_from_slice(&number.to_le_bytes()),
            Step::Place(_) => {}
            Step::Dress(_, metadata) => {
                let FileTime { seconds, nanos } = metadata.modified;
                for number in [metadata.mode, metadata.uid, metadata.gid, nanos] {
                    self.bytes.extend_from_slice(&number.to_le_bytes());
                }
                self.bytes.extend_from_slice(&seconds.to_le_bytes());
            }
        }
    }

    /// The inode of the directory it is for.
    pub(super) fn root(&self) -> u64 {
        let bytes = &self.bytes[HEADER.len()..];
        u64::from_le_bytes(*bytes.first_chunk().expect("it was made or checked"))
    }

    /// What may be given away.
    pub(super) fn rights(&self) -> Rights {
        match self.bytes[HEADER.len() + 8] {
            0 => Rights::Own,
            _ => Rights::All,
        }
    }

    /// The steps in their order; `None` for bytes that are no step.
    pub(super) fn steps(&self) -> impl Iterator<Item = Option<Step>> {
        let mut rest = &self.bytes[HEADER.len() + 9..];
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let step = step(&mut rest);
            if step.is_none() {
                rest = &[];
            }
            Some(step)
        })
    }

    /// Writes it into the staging directory so that it is there, whole and durable, when this returns.
    pub(super) fn commit(&self, staging: impl AsFd) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = fs::openat(&staging, c"journal.new", flags, mode)?;
        write_all(&file, &self.bytes)?;
        write_all(&file, blake3::hash(&self.bytes).as_bytes())?;
        fs::fsync(&file)?;
        fs::renameat(&staging, c"journal.new", &staging, JOURNAL)?;
        fs::fsync(&staging)
    }

    /// Reads the journal of a staging directory; `None` for one that is damaged.
    pub(super) fn read(staging: impl AsFd) -> Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = fs::openat(staging, JOURNAL, flags, Mode::empty())?;
        let mut bytes = read_all(&file)?;
        let Some(length) = bytes.len().checked_sub(DIGEST) else {
            return Ok(None);
        };
        let is_whole = blake3::hash(&bytes[..length]).as_bytes() == &bytes[length..]
            && bytes.starts_with(HEADER)
            && length > HEADER.len() + 8;
        bytes.truncate(length);
        Ok(is_whole.then_some(Self { bytes }))
    }
}

fn read_all(file: &OwnedFd) -> Result<Vec<u8>> {
    let size = usize::try_from(fs::fstat(file)?.st_size).map_err(|_| Errno::FBIG)?;
    let mut bytes = vec![0; size];
    let mut length = 0;
    while length < size {
        match io::retry_on_intr(|| io::read(file, &mut bytes[length..]))? {
            0 => break,
            read => length += read,
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

fn step(rest: &mut &[u8]) -> Option<Step> {
    let (kind, after) = rest.split_first()?;
    *rest = after;
    let length = number(rest)? as usize;
    let path = EntryPath::parse(rest.get(..length)?).ok()?;
    *rest = &rest[length..];
    Some(match kind {
        1 => Step::Remove(path, long(rest)?),
        2 => Step::Place(path),
        3 => {
            let [mode, uid, gid, nanos] =
                [number(rest)?, number(rest)?, number(rest)?, number(rest)?];
            let seconds = long(rest)?.cast_signed();
            let modified = FileTime { seconds, nanos };
            Step::Dress(
                path,
                Metadata {
                    mode,
                    uid,
                    gid,
                    modified,
                },
            )
        }
        _ => return None,
    })
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u32::from_le_bytes(*number))
}

fn long(rest: &mut &[u8]) -> Option<u64> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u64::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_read_as_it_was_written_and_not_at_all_when_damaged() {
        let home = tempfile::tempdir().unwrap();
        let directory = std::fs::File::open(home.path()).unwrap();
        let path = |text: &[u8]| EntryPath::parse(text).unwrap();
        let metadata = Metadata {
            mode: 0o2755,
            uid: 1,
            gid: 2,
            modified: FileTime {
                seconds: -1,
                nanos: 3,
            },
        };
        let steps = [
            Step::Remove(path(b"old"), 7),
            Step::Place(path(b"a/\xff")),
            Step::Dress(path(b""), metadata),
        ];
        let mut journal = Journal::new(42, Rights::Own);
        for step in &steps {
            journal.add(step);
        }

        journal.commit(&directory).unwrap();
        let read = Journal::read(&directory).unwrap().unwrap();

        assert_eq!(read, journal);
        assert_eq!((read.root(), read.rights()), (42, Rights::Own));
        let all: Option<Vec<Step>> = read.steps().collect();
        assert_eq!(all.unwrap(), steps);
        let file = home.path().join("journal");
        for at in [0, 20, 30] {
            let mut bytes = std::fs::read(&file).unwrap();
            bytes[at] ^= 1;
            crate::atomic_write::atomic_write(&file, &bytes).unwrap();
            assert_eq!(Journal::read(&directory).unwrap(), None);
            bytes[at] ^= 1;
            crate::atomic_write::atomic_write(&file, &bytes).unwrap();
        }
    }
}
