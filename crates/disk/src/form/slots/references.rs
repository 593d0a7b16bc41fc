//! Which versions all slots need together, and by how many lists each is named: `references` in the session directory.
//!
//! Derived, and never believed alone: it says of which lists it was made, each by its file and the digest that it ends with. Whoever uses it
//! looks at the lists that the slots have now; one that came is added, one that went is taken out if it can still be read, and otherwise
//! everything is read again. So a checkpoint costs one list, however many there are. Written without waiting for the disk: what is torn
//! does not end with its digest, and is made again.
//!
//! *Always true:* what is said of some lists is what reading all of them would say. A list that several slots have is one list.

use super::versions::{VersionNames, cost_of};
use crate::fs::atomic_write;
use crate::fs::metadata;
use stasis_model::digest::FileDigest;
use stasis_model::tree::FileTime;
use std::cmp::Ordering;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Where it is in a session directory.
const FILE: &str = "references";
const MAGIC: &[u8; 8] = b"STVREFS1";
/// Which list, to the byte.
const KEY: usize = 68;
/// A digest, what the version takes, and how many lists name it.
const ROW: usize = 44;

/// Which file a list is, and in which state. Another file may end with the same digest, and be torn before that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct ListKey {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, u32),
    digest: [u8; 32],
}

impl ListKey {
    pub(super) fn of(file: &File) -> Option<Self> {
        let seen = metadata::of(file).ok()?;
        let mut digest = [0; 32];
        let end = seen.size.checked_sub(32)?;
        file.read_exact_at(&mut digest, end).ok()?;
        let FileTime { seconds, nanos } = seen.modified;
        Some(Self {
            device: seen.device,
            inode: seen.inode,
            size: seen.size,
            modified: (seconds, nanos),
            digest,
        })
    }

    fn to_bytes(self) -> [u8; KEY] {
        let mut bytes = [0; KEY];
        bytes[..8].copy_from_slice(&self.device.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.inode.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.size.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.modified.0.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.modified.1.to_le_bytes());
        bytes[36..].copy_from_slice(&self.digest);
        bytes
    }

    fn from_bytes(bytes: &[u8; KEY]) -> Option<Self> {
        let eight = |from: usize| bytes[from..from + 8].try_into().ok();
        let nanos = bytes[32..36].try_into().ok().map(u32::from_le_bytes)?;
        Some(Self {
            device: eight(0).map(u64::from_le_bytes)?,
            inode: eight(8).map(u64::from_le_bytes)?,
            size: eight(16).map(u64::from_le_bytes)?,
            modified: (eight(24).map(i64::from_le_bytes)?, nanos),
            digest: bytes[36..].try_into().ok()?,
        })
    }
}

/// A version that some lists name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reference {
    pub(super) digest: FileDigest,
    /// What it takes of the disk.
    pub(super) cost: u64,
    /// How many lists name it.
    pub(super) lists: u32,
}

/// What some lists name together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct References {
    /// Sorted, each once.
    lists: Vec<ListKey>,
    /// Sorted, each named by one list at least.
    rows: Vec<Reference>,
}

impl References {
    /// The lists that it is made of.
    pub(super) fn lists(&self) -> &[ListKey] {
        &self.lists
    }

    pub(super) fn rows(&self) -> &[Reference] {
        &self.rows
    }

    /// What is known of a version, if one of the lists names it.
    pub(super) fn find(&self, digest: &FileDigest) -> Option<&Reference> {
        let found = self.rows.binary_search_by(|one| one.digest.cmp(digest));
        found.ok().map(|at| &self.rows[at])
    }

    /// What all of them take at most, each once.
    pub(super) fn cost(&self) -> u64 {
        let costs = self.rows.iter().map(|row| cost_of(row.cost));
        costs.fold(0, u64::saturating_add)
    }

    /// Adds a list that is not among them.
    pub(super) fn add(&mut self, key: ListKey, names: &VersionNames) {
        let Err(at) = self.lists.binary_search(&key) else {
            return;
        };
        self.lists.insert(at, key);
        let mut all = Vec::with_capacity(self.rows.len().max(names.rows().len()) + 64);
        let mut others = names.rows().iter().peekable();
        let new = |(digest, cost): &(FileDigest, u64)| Reference {
            digest: *digest,
            cost: *cost,
            lists: 1,
        };
        for row in self.rows.drain(..) {
            while let Some(other) = others.next_if(|other| other.0 < row.digest) {
                all.push(new(other));
            }
            let is_named = others.next_if(|other| other.0 == row.digest).is_some();
            let lists = row.lists + u32::from(is_named);
            all.push(Reference { lists, ..row });
        }
        all.extend(others.map(new));
        self.rows = all;
    }

    /// Takes out a list that is among them.
    pub(super) fn remove(&mut self, key: &ListKey, names: &VersionNames) {
        let Ok(at) = self.lists.binary_search(key) else {
            return;
        };
        self.lists.remove(at);
        let mut others = names.rows().iter().map(|(digest, _)| digest).peekable();
        self.rows.retain_mut(|row| {
            while others.next_if(|other| **other < row.digest).is_some() {}
            if others.peek() == Some(&&row.digest) {
                row.lists = row.lists.saturating_sub(1);
            }
            row.lists > 0
        });
    }

    /// Reads what was kept; nothing if there is nothing, or it is torn.
    pub(super) fn read(session: &Path) -> Option<Self> {
        Self::from_bytes(&std::fs::read(session.join(FILE)).ok()?)
    }

    /// Keeps it; what could not be kept is made again.
    pub(super) fn keep(&self, session: &Path) {
        let _ = atomic_write::replace_unsynced(&session.join(FILE), &self.to_bytes());
    }

    fn to_bytes(&self) -> Vec<u8> {
        let length = 12 + self.lists.len() * KEY + self.rows.len() * ROW + 32;
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(MAGIC);
        let count = u32::try_from(self.lists.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&count.to_le_bytes());
        for key in &self.lists {
            bytes.extend_from_slice(&key.to_bytes());
        }
        for row in &self.rows {
            bytes.extend_from_slice(row.digest.as_bytes());
            bytes.extend_from_slice(&row.cost.to_le_bytes());
            bytes.extend_from_slice(&row.lists.to_le_bytes());
        }
        let digest = blake3::hash(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (body, digest) = bytes.split_last_chunk::<32>()?;
        if blake3::hash(body) != *digest {
            return None;
        }
        let (count, rest) = body.strip_prefix(MAGIC)?.split_first_chunk::<4>()?;
        let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
        let (keys, rows) = rest.split_at_checked(count.checked_mul(KEY)?)?;
        let lists = keys.as_chunks::<KEY>().0.iter().map(ListKey::from_bytes);
        let lists: Vec<ListKey> = lists.collect::<Option<_>>()?;
        let (rows, rest) = rows.as_chunks::<ROW>();
        let row = |row: &[u8; ROW]| {
            let (digest, rest) = row.split_first_chunk::<32>()?;
            let (cost, lists) = rest.split_first_chunk::<8>()?;
            Some(Reference {
                digest: FileDigest::from_document(*digest),
                cost: u64::from_le_bytes(*cost),
                lists: u32::from_le_bytes(lists.try_into().ok()?),
            })
        };
        let rows: Vec<Reference> = rows.iter().map(row).collect::<Option<_>>()?;
        let is_sorted = rows.is_sorted_by(|a, b| a.digest.cmp(&b.digest) == Ordering::Less)
            && lists.is_sorted_by(|a, b| a < b);
        (rest.is_empty() && is_sorted).then_some(Self { lists, rows })
    }
}

#[cfg(test)]
mod tests {
    use super::super::versions::VersionCosts;
    use super::*;

    fn names(texts: &[&str]) -> VersionNames {
        let all = texts
            .iter()
            .map(|text| (FileDigest::of(text.as_bytes()), 4096));
        VersionNames::from(&all.collect::<VersionCosts>())
    }

    fn key(inode: u64) -> ListKey {
        ListKey {
            device: 1,
            inode,
            size: 100,
            modified: (5, 6),
            digest: [7; 32],
        }
    }

    fn counts(of: &References, texts: &[&str]) -> Vec<u32> {
        let found = texts
            .iter()
            .map(|text| of.find(&FileDigest::of(text.as_bytes())));
        found
            .map(|found| found.map_or(0, |one| one.lists))
            .collect()
    }

    #[test]
    fn lists_that_come_and_go_leave_what_all_of_them_would_give() {
        let lists = [
            names(&["a", "b"]),
            names(&["b", "c"]),
            names(&[]),
            names(&["z", "a"]),
        ];
        let mut all = References::default();
        for (inode, list) in (1..).zip(&lists) {
            all.add(key(inode), list);
        }

        let before = counts(&all, &["a", "b", "c", "z", "x"]);
        let cost = all.cost();
        all.add(key(1), &lists[0]);
        all.remove(&key(4), &lists[3]);
        all.remove(&key(9), &lists[1]);
        let mut anew = References::default();
        for at in [2, 1, 0] {
            anew.add(key(at as u64 + 1), &lists[at]);
        }

        assert_eq!(before, [2, 2, 1, 1, 0]);
        assert_eq!(cost, 4 * cost_of(4096));
        assert_eq!(all, anew);
        assert_eq!(counts(&all, &["a", "b", "c", "z"]), [1, 2, 1, 0]);
    }

    #[test]
    fn what_was_kept_is_read_and_what_is_torn_is_not() {
        let mut all = References::default();
        all.add(key(1), &names(&["a", "b"]));
        all.add(key(2), &names(&["b"]));
        let bytes = all.to_bytes();

        assert_eq!(References::from_bytes(&bytes), Some(all));
        for at in [0, 9, 40, 90, bytes.len() - 1] {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            assert_eq!(References::from_bytes(&torn), None, "{at}");
        }
        assert_eq!(References::from_bytes(&bytes[..bytes.len() - 44]), None);
    }
}
