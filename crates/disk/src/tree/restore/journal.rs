//! What remains to be done to a live tree, written down before any of it is done.
//!
//! `stasis-journal 1`, the inode of the root it is for, what may be given away, when and from what the tree is restored, a
//! label of whoever asked for it, the steps, and a BLAKE3 digest of all that. A journal that is there is whole: it is synced under
//! another name, and renamed. The file `undo` of a backup has the same format.
//!
//! A step that moves an entry in names the inode that is to move, so that a step that was done is known from one that was
//! not: an exchange is never done twice. It also says what was seen at its place when the plan was made.

use crate::fs::fd::{c_name, write_all};
use crate::fs::metadata::{Rights, Seen};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::{self, Errno, Result};
use stasis_model::time::Timestamp;
use stasis_model::tree::{Attribute, EntryPath, FileTime, Metadata};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

const HEADER: &[u8] = b"stasis-journal 1\n";
const DIGEST: usize = 32;
/// What a journal that takes another back may be longer than that one, besides half of its length.
const SLACK: u64 = 4096;

/// What a journal is called until it is whole.
fn temporary(name: &CStr) -> Result<CString> {
    c_name([name.to_bytes(), b".new"].concat())
}

/// What was seen at a path when the plan was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Expected {
    inode: u64,
    size: u64,
    raw_mode: u32,
    modified: FileTime,
}

impl From<&Seen> for Expected {
    fn from(seen: &Seen) -> Self {
        Self {
            inode: seen.inode,
            // The length of a directory is the filesystem's affair.
            size: if seen.file_type().is_dir() {
                0
            } else {
                seen.size
            },
            raw_mode: seen.raw_mode,
            modified: seen.modified,
        }
    }
}

impl Expected {
    /// Whether that is what was seen then. A directory that had to be moved entry by entry is another inode.
    pub(super) fn is_like(&self, kept: &Seen) -> bool {
        let kept = Self::from(kept);
        let inode = if rustix::fs::FileType::from_raw_mode(self.raw_mode).is_dir() {
            kept.inode
        } else {
            self.inode
        };
        Self { inode, ..*self } == kept
    }
}

/// What a directory has besides its entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Dress {
    pub(super) metadata: Metadata,
    /// Nothing where those that it has are right.
    pub(super) attributes: Option<Vec<Attribute>>,
}

/// One thing to do to the live tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum JournalStep {
    /// Move the live entry to its place in the staged tree.
    Remove(EntryPath, Option<Expected>),
    /// Move the staged entry, which is that inode, to its place in the live tree; what is there goes to the staged tree.
    Place(EntryPath, u64, Option<Expected>),
    /// Make a directory, where none is.
    Make(EntryPath),
    /// Remove a directory, if nothing is in it.
    Unmake(EntryPath),
    /// Give a directory what it should have, instead of what it had.
    Dress(EntryPath, Box<[Dress; 2]>),
    /// Nothing: a step of an undo that was taken back without it. What it needs is still in the backup.
    Kept(Box<JournalStep>),
    /// Nothing: one that was kept before, and belongs to the undo again once this is taken back.
    Again(Box<JournalStep>),
}

impl JournalStep {
    pub(super) fn path(&self) -> &EntryPath {
        match self {
            Self::Remove(path, _)
            | Self::Place(path, ..)
            | Self::Make(path)
            | Self::Unmake(path)
            | Self::Dress(path, _) => path,
            Self::Kept(step) | Self::Again(step) => step.path(),
        }
    }
}

/// Who asked for a restore, when, and from what.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct JournalMark {
    pub(super) at: Timestamp,
    pub(super) from: String,
    pub(super) label: String,
}

/// The steps, packed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RestoreJournal {
    pub(super) root: u64,
    pub(super) rights: Rights,
    pub(super) mark: JournalMark,
    /// Whether it is about one entry, so that nothing above that may be moved.
    pub(super) is_limited: bool,
    steps: Vec<u8>,
}

impl RestoreJournal {
    pub(super) fn new(root: u64, rights: Rights, mark: JournalMark) -> Self {
        Self {
            root,
            rights,
            mark,
            is_limited: false,
            steps: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(super) fn add(&mut self, step: &JournalStep) {
        put_step(&mut self.steps, step);
    }

    /// The steps in their order; `None` for bytes that are no step.
    pub(super) fn steps(&self) -> impl Iterator<Item = Option<JournalStep>> {
        let mut rest = &self.steps[..];
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

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = HEADER.to_vec();
        bytes.extend_from_slice(&self.root.to_le_bytes());
        bytes.push(u8::from(self.rights == Rights::All) | u8::from(self.is_limited) << 1);
        bytes.extend_from_slice(&self.mark.at.millis().to_le_bytes());
        put_bytes(&mut bytes, self.mark.from.as_bytes());
        put_bytes(&mut bytes, self.mark.label.as_bytes());
        bytes.extend_from_slice(&self.steps);
        let digest = blake3::hash(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (content, digest) = bytes.split_at_checked(bytes.len().checked_sub(DIGEST)?)?;
        if blake3::hash(content).as_bytes() != digest {
            return None;
        }
        let mut rest = content.strip_prefix(HEADER)?;
        let root = long(&mut rest)?;
        let (flags, after) = rest.split_first()?;
        rest = after;
        let at = Timestamp::from_millis(long(&mut rest)?);
        let from = String::from_utf8(bytes_of(&mut rest)?.to_vec()).ok()?;
        let label = String::from_utf8(bytes_of(&mut rest)?.to_vec()).ok()?;
        Some(Self {
            root,
            rights: if flags & 1 == 0 {
                Rights::Own
            } else {
                Rights::All
            },
            is_limited: flags & 2 != 0,
            mark: JournalMark { at, from, label },
            steps: rest.to_vec(),
        })
    }

    /// Writes it into a directory so that it is there, whole and durable, when this returns.
    pub(super) fn commit(&self, directory: impl AsFd, name: &CStr) -> Result<()> {
        let temp = temporary(name)?;
        // What somebody who was killed left of one, or room that was set apart for it, is written over.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = fs::openat(&directory, &*temp, flags | OFlags::CLOEXEC, mode)?;
        let bytes = self.to_bytes();
        write_all(&file, &bytes)?;
        fs::ftruncate(&file, bytes.len() as u64)?;
        fs::fsync(&file)?;
        fs::renameat(&directory, &*temp, &directory, name)?;
        fs::fsync(&directory)
    }

    /// Sets room apart for one that will be as long as this one, or a little longer, so that it can be written when the disk is full.
    pub(super) fn set_room_apart(&self, directory: impl AsFd, name: &CStr) -> Result<()> {
        let length = self.to_bytes().len() as u64;
        crate::fs::free_space::set_apart(directory, &temporary(name)?, length + length / 2 + SLACK)
    }

    /// Reads the journal of a directory; `None` for one that is damaged.
    pub(super) fn read(directory: impl AsFd, name: &CStr) -> Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = fs::openat(directory, name, flags, Mode::empty())?;
        Ok(Self::from_bytes(&read_all(&file)?))
    }
}

fn put_step(out: &mut Vec<u8>, step: &JournalStep) {
    match step {
        JournalStep::Remove(path, expected) => {
            put_path(out, 1, path);
            put_expected(out, expected.as_ref());
        }
        JournalStep::Place(path, inode, expected) => {
            put_path(out, 2, path);
            out.extend_from_slice(&inode.to_le_bytes());
            put_expected(out, expected.as_ref());
        }
        JournalStep::Make(path) => put_path(out, 3, path),
        JournalStep::Unmake(path) => put_path(out, 4, path),
        JournalStep::Dress(path, both) => {
            put_path(out, 5, path);
            for dress in both.iter() {
                put_dress(out, dress);
            }
        }
        JournalStep::Kept(step) => {
            out.push(6);
            put_step(out, step);
        }
        JournalStep::Again(step) => {
            out.push(7);
            put_step(out, step);
        }
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("the kernel's paths and attributes are shorter");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_path(out: &mut Vec<u8>, kind: u8, path: &EntryPath) {
    out.push(kind);
    put_bytes(out, path.as_bytes());
}

fn put_time(out: &mut Vec<u8>, time: FileTime) {
    out.extend_from_slice(&time.seconds.to_le_bytes());
    out.extend_from_slice(&time.nanos.to_le_bytes());
}

fn put_expected(out: &mut Vec<u8>, expected: Option<&Expected>) {
    out.push(expected.is_some().into());
    if let Some(expected) = expected {
        out.extend_from_slice(&expected.inode.to_le_bytes());
        out.extend_from_slice(&expected.size.to_le_bytes());
        out.extend_from_slice(&expected.raw_mode.to_le_bytes());
        put_time(out, expected.modified);
    }
}

fn put_dress(out: &mut Vec<u8>, dress: &Dress) {
    let Metadata {
        mode,
        uid,
        gid,
        modified,
    } = dress.metadata;
    for number in [mode, uid, gid] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    put_time(out, modified);
    let count = dress.attributes.as_ref().map_or(u32::MAX, |all| {
        u32::try_from(all.len()).expect("the kernel's lists are shorter")
    });
    out.extend_from_slice(&count.to_le_bytes());
    for attribute in dress.attributes.iter().flatten() {
        put_bytes(out, &attribute.name);
        put_bytes(out, &attribute.value);
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

fn step(rest: &mut &[u8]) -> Option<JournalStep> {
    let (kind, after) = rest.split_first()?;
    *rest = after;
    if let 6 | 7 = kind {
        // No step that waits is in another one that does, however many somebody writes.
        if let Some(6 | 7) = rest.first() {
            return None;
        }
        let waiting = Box::new(step(rest)?);
        return Some(match kind {
            6 => JournalStep::Kept(waiting),
            _ => JournalStep::Again(waiting),
        });
    }
    let path = EntryPath::parse(bytes_of(rest)?).ok()?;
    Some(match kind {
        1 => JournalStep::Remove(path, expected(rest)?),
        2 => {
            let inode = long(rest)?;
            JournalStep::Place(path, inode, expected(rest)?)
        }
        3 => JournalStep::Make(path),
        4 => JournalStep::Unmake(path),
        5 => JournalStep::Dress(path, Box::new([dress(rest)?, dress(rest)?])),
        _ => return None,
    })
}

/// `Some(None)` for a path at which nothing was expected.
#[expect(
    clippy::option_option,
    reason = "damaged bytes and no expectation are different things"
)]
fn expected(rest: &mut &[u8]) -> Option<Option<Expected>> {
    let (is_there, after) = rest.split_first()?;
    *rest = after;
    if *is_there == 0 {
        return Some(None);
    }
    Some(Some(Expected {
        inode: long(rest)?,
        size: long(rest)?,
        raw_mode: number(rest)?,
        modified: time(rest)?,
    }))
}

fn dress(rest: &mut &[u8]) -> Option<Dress> {
    let [mode, uid, gid] = [number(rest)?, number(rest)?, number(rest)?];
    let modified = time(rest)?;
    let count = Some(number(rest)?).filter(|count| *count != u32::MAX);
    let mut attributes = count.map(|_| Vec::new());
    for _ in 0..count.unwrap_or_default() {
        attributes.get_or_insert_default().push(Attribute {
            name: bytes_of(rest)?.into(),
            value: bytes_of(rest)?.into(),
        });
    }
    let metadata = Metadata {
        mode,
        uid,
        gid,
        modified,
    };
    Some(Dress {
        metadata,
        attributes,
    })
}

fn time(rest: &mut &[u8]) -> Option<FileTime> {
    Some(FileTime {
        seconds: long(rest)?.cast_signed(),
        nanos: number(rest)?,
    })
}

fn bytes_of<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = number(rest)? as usize;
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
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
    use crate::fs::staging::JOURNAL;

    #[test]
    fn steps_that_wait_in_each_other_are_none() {
        let mut one = Vec::new();
        put_step(
            &mut one,
            &JournalStep::Kept(Box::new(JournalStep::Make("a".parse().unwrap()))),
        );
        assert!(step(&mut one.as_slice()).is_some());

        let many = [&vec![6; 10_000_000][..], &one].concat();

        assert_eq!(step(&mut many.as_slice()), None);
    }

    #[test]
    fn a_journal_is_read_as_it_was_written_and_not_at_all_when_damaged() {
        let home = tempfile::tempdir().unwrap();
        let directory = std::fs::File::open(home.path()).unwrap();
        let path = |text: &[u8]| EntryPath::parse(text).unwrap();
        let modified = FileTime {
            seconds: -1,
            nanos: 3,
        };
        let dress = Dress {
            metadata: Metadata {
                mode: 0o2755,
                uid: 1,
                gid: 2,
                modified,
            },
            attributes: Some(vec![Attribute {
                name: b"user.x".as_slice().into(),
                value: b"\0y".as_slice().into(),
            }]),
        };
        let bare = Dress {
            attributes: None,
            ..dress.clone()
        };
        let expected = Expected {
            inode: 8,
            size: 9,
            raw_mode: 0o100_644,
            modified,
        };
        let steps = [
            JournalStep::Remove(path(b"old"), None),
            JournalStep::Place(path(b"a/\xff"), 7, Some(expected)),
            JournalStep::Make(path(b"made")),
            JournalStep::Unmake(path(b"made")),
            JournalStep::Dress(path(b""), Box::new([dress, bare])),
        ];
        let mark = JournalMark {
            at: Timestamp::from_millis(5),
            from: "cp-3".to_owned(),
            label: "u-1".to_owned(),
        };
        let mut journal = RestoreJournal::new(42, Rights::Own, mark);
        journal.is_limited = true;
        for step in &steps {
            journal.add(step);
        }

        journal.commit(&directory, JOURNAL).unwrap();
        let read = RestoreJournal::read(&directory, JOURNAL).unwrap().unwrap();

        assert_eq!(read, journal);
        let all: Option<Vec<JournalStep>> = read.steps().collect();
        assert_eq!(all.unwrap(), steps);
        let file = home.path().join("journal");
        for at in [0, 20, 30, 70] {
            let mut bytes = std::fs::read(&file).unwrap();
            bytes[at] ^= 1;
            crate::fs::atomic_write::atomic_write(&file, &bytes).unwrap();
            assert_eq!(RestoreJournal::read(&directory, JOURNAL).unwrap(), None);
            bytes[at] ^= 1;
            crate::fs::atomic_write::atomic_write(&file, &bytes).unwrap();
        }
    }
}
