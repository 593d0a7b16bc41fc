//! Where the bytes of a checkpoint lie on the disk, so that what several of them share is counted once.
//!
//! A checkpoint does not change any more, so its places are found once and kept in its slot: `extents`, checked by a digest; what
//! is torn or missing is found again.

use super::cost::ENTRY;
use crate::fs::atomic_write::atomic_write;
use crate::fs::root_dir::RootDir;
use crate::fs::sys::extents;
use crate::tree::walk::{self, Visitor, WalkError, WalkSettings, WalkedDir, WalkedEntry};
use crate::worker_pool::{into_inner, lock};
use rustix::io::Errno;
use stasis_model::tree::EntryKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Mutex;

const MAGIC: &[u8; 8] = b"STEXTEN1";
const FILE: &str = "extents";

/// Where some bytes lie.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Extents {
    /// First and one past the last, sorted, neither touching nor overlapping.
    places: Vec<(u64, u64)>,
    /// Bytes that nothing else shares: those of names, and of files whose place nobody tells.
    own: u64,
}

impl Extents {
    /// Finds out where everything in a tree lies.
    pub(super) fn find(root: &RootDir, settings: &WalkSettings) -> Result<Self, WalkError> {
        let finder = ExtentFinder(Mutex::default());
        // It is a tree of ours: nothing changes in it, and nothing special is left out of it.
        let _ = walk::walk(root, &finder, settings)?;
        let mut found = into_inner(finder.0);
        found.own += ENTRY;
        found.tidy();
        Ok(found)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.join(other);
        self.tidy();
    }

    /// Where the bytes of one file lie that takes so many of the disk, its name included.
    pub(super) fn of_file(file: BorrowedFd<'_>, bytes: u64) -> Self {
        let mut found = Self::of_bytes(ENTRY);
        let mapped = extents::stretches(file, |at, length| match at {
            Some(at) => found.places.push((at, at.saturating_add(length))),
            None => found.own += length,
        });
        if mapped.is_err() {
            return Self::of_bytes(bytes + ENTRY);
        }
        found.tidy();
        found
    }

    /// Bytes that nothing shares.
    pub(super) fn of_bytes(own: u64) -> Self {
        let places = Vec::new();
        Self { places, own }
    }

    /// The bytes that nothing shares.
    pub(super) fn own(&self) -> u64 {
        self.own
    }

    /// Adds others; when all are added, they are to be put in order.
    pub(super) fn join(&mut self, other: &Self) {
        self.own += other.own;
        self.join_places(other);
    }

    /// The same, without the bytes that have no place.
    pub(super) fn join_places(&mut self, other: &Self) {
        self.places.extend_from_slice(&other.places);
    }

    /// Puts the places in order.
    pub(super) fn tidy(&mut self) {
        self.places.sort_unstable();
        let mut tidy: Vec<(u64, u64)> = Vec::with_capacity(self.places.len());
        for &(start, end) in &self.places {
            match tidy.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => tidy.push((start, end)),
            }
        }
        self.places = tidy;
    }

    /// Everything it holds, shared or not.
    pub(super) fn total(&self) -> u64 {
        let places = self.places.iter().map(|(start, end)| end - start);
        self.own + places.sum::<u64>()
    }

    /// Reads what was kept in a slot.
    pub(super) fn read(slot: &Path) -> Option<Self> {
        let bytes = std::fs::read(slot.join(FILE)).ok()?;
        let (body, digest) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
        if blake3::hash(body).as_bytes() != digest {
            return None;
        }
        let numbers = body.strip_prefix(MAGIC)?.as_chunks::<8>();
        let (own, places) = numbers.0.split_first()?;
        let pairs = places.as_chunks::<2>().0.iter();
        let places =
            pairs.map(|[start, end]| (u64::from_le_bytes(*start), u64::from_le_bytes(*end)));
        let own = u64::from_le_bytes(*own);
        Some(Self {
            places: places.collect(),
            own,
        })
    }

    /// Keeps it in a slot; what could not be kept is only found again.
    pub(super) fn keep(&self, slot: &Path) {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.own.to_le_bytes());
        for (start, end) in &self.places {
            bytes.extend_from_slice(&start.to_le_bytes());
            bytes.extend_from_slice(&end.to_le_bytes());
        }
        let digest = blake3::hash(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        let _ = atomic_write(&slot.join(FILE), &bytes);
    }
}

/// What several hold together, and each of them alone.
pub(super) fn held(all: &[&Extents]) -> (u64, Vec<u64>) {
    let mut alone: Vec<u64> = all.iter().map(|one| one.own).collect();
    let mut together: u64 = alone.iter().sum();
    let mut edges = Vec::new();
    for (who, one) in all.iter().enumerate() {
        for (start, end) in &one.places {
            edges.push((*start, 1_i64, who));
            edges.push((*end, -1, who));
        }
    }
    edges.sort_unstable();
    // Of whoever is here only the number, and the exclusive or of who they are: with one, that is the one.
    let (mut here, mut who_is_here, mut since) = (0_i64, 0, 0);
    for (at, change, who) in edges {
        if here > 0 {
            together += at - since;
        }
        if here == 1 {
            alone[who_is_here] += at - since;
        }
        (here, since) = (here + change, at);
        who_is_here ^= who;
    }
    (together, alone)
}

struct ExtentFinder(Mutex<Extents>);

impl Visitor for ExtentFinder {
    type Error = WalkError;

    fn visit(&self, place: &WalkedDir<'_>, entries: &[WalkedEntry<'_>]) -> Result<(), WalkError> {
        let mut found = Extents::default();
        for entry in entries {
            found.own += ENTRY;
            match entry.kind {
                EntryKind::File { size } if size > 0 => {}
                EntryKind::Directory => {
                    found.own += entry.seen.blocks * 512;
                    continue;
                }
                _ => continue,
            }
            let Some((file, seen)) = place.open_file(entry.name)? else {
                continue;
            };
            let (before, places) = (found.own, found.places.len());
            let mapped = extents::stretches(file.as_fd(), |at, length| match at {
                Some(at) => found.places.push((at, at.saturating_add(length))),
                None => found.own += length,
            });
            match mapped {
                Ok(()) => {}
                Err(
                    Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS | Errno::INVAL | Errno::PERM,
                ) => {
                    found.places.truncate(places);
                    found.own = before + seen.blocks * 512;
                }
                Err(error) => place.could_not("find the blocks of", entry.name, error)?,
            }
        }
        let mut all = lock(&self.0);
        all.places.append(&mut found.places);
        all.own += found.own;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(places: &[(u64, u64)], own: u64) -> Extents {
        let places = places.to_vec();
        let mut extents = Extents { places, own };
        extents.tidy();
        extents
    }

    #[test]
    fn what_is_shared_is_counted_once_and_belongs_to_nobody_alone() {
        let one = at(&[(0, 100), (200, 300)], 5);
        let other = at(&[(50, 100), (300, 310)], 0);
        let third = at(&[(90, 95)], 1);

        let (together, alone) = held(&[&one, &other, &third]);

        assert_eq!(together, 100 + 110 + 6);
        assert_eq!(alone, [50 + 100 + 5, 10, 1]);
        assert_eq!(held(&[]), (0, vec![]));
    }

    #[test]
    fn places_that_touch_or_overlap_become_one() {
        let extents = at(&[(20, 30), (0, 10), (10, 20), (25, 27), (40, 50)], 0);

        assert_eq!(extents.places, [(0, 30), (40, 50)]);
        assert_eq!(extents.total(), 40);
    }

    #[test]
    fn what_was_kept_is_read_and_what_is_torn_is_not() {
        let slot = tempfile::tempdir().unwrap();
        let extents = at(&[(1, 2), (7, 9)], 77);

        extents.keep(slot.path());
        let read = Extents::read(slot.path());
        let path = slot.path().join(FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[12] ^= 1;
        atomic_write(&path, &bytes).unwrap();

        assert_eq!(read, Some(extents));
        assert_eq!(Extents::read(slot.path()), None);
    }
}
