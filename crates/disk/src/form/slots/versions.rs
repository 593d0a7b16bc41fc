//! The versions of files that a session holds whole: `objects/<64 hex digits>`, each a clone that is named by the digest of its content
//! and does not change any more.
//!
//! They come with the chunks of a checkpoint, by the same steps (`chunks`). Which ones a checkpoint needs is said by `versions` in its
//! slot: for each the digest and the bytes that it takes of the disk, whether something else shares them or not. To remove a slot: take
//! it out of the list; remove the versions that it names and nobody else does; remove the slot.
//!
//! *Always true:* a version that has its name was durable before it had it. Whoever removes what is left of a slot removes first what
//! nobody else names, so that a crash leaves nothing in `objects/` that no slot or rest of one names. A version goes only if every slot
//! could say what it needs; one that had to stay goes when a user deletes a checkpoint, which looks at all of them.

use super::error::SlotError;
use super::{Pool, cost};
use crate::form::chunked::ChunkError;
use crate::fs::atomic_write;
use crate::fs::fd::{open_dir_in, reopen_dir};
use crate::fs::metadata;
use crate::worker_pool::lock;
use rustix::fs::{self, AtFlags, Mode, OFlags, RawDir};
use rustix::io::Errno;
use stasis_model::digest::FileDigest;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::tree::FileTime;
use stasis_model::workspace::SlotForm;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Where they are in a session directory.
pub(super) const DIRECTORY: &str = "objects";
/// Which of them a checkpoint needs, in its slot.
pub const VERSIONS: &str = "versions";
const MAGIC: &[u8; 8] = b"STVERSN1";
/// What the names of those begin with that turned out to hold something else.
pub(super) const ASIDE: &str = "damaged-";
/// What the kernel fills with names in one call.
const BUFFER: usize = 32 << 10;
/// A digest, and what the version takes of the disk.
const ROW: usize = 40;

/// Versions by their digests, each with the bytes that it takes of the disk.
pub(super) type VersionCosts = BTreeMap<FileDigest, u64>;

/// The versions of one session.
#[derive(Debug)]
pub(super) struct Versions {
    path: PathBuf,
    fd: OwnedFd,
    names: Mutex<NamesReader>,
}

/// The name of a version.
pub(super) fn name_of(digest: &FileDigest) -> CString {
    CString::new(digest.to_string()).expect("digits have no NUL")
}

impl Versions {
    /// Opens them; makes the directory if there is none.
    pub(super) fn open(session: &Path) -> Result<Self, SlotError> {
        let path = session.join(DIRECTORY);
        atomic_write::make_directory(&path)?;
        let fd = open_dir_in(fs::CWD, &path).at("open the directory", &path)?;
        let names = Mutex::default();
        Ok(Self { path, fd, names })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The versions that the checkpoint in a directory needs; none if it needs none, `None` if nobody can tell.
    pub(super) fn named(
        &self,
        slot: BorrowedFd<'_>,
        form: Option<SlotForm>,
    ) -> Option<Arc<VersionNames>> {
        lock(&self.names).named(slot, form)
    }

    /// Forgets what was read of slots: it takes much memory, and whoever comes next finds others.
    pub(super) fn forget_names(&self) {
        *lock(&self.names) = NamesReader::default();
    }

    /// Opens a version to be read.
    pub(super) fn version(&self, digest: &FileDigest) -> Result<OwnedFd, ChunkError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match fs::openat(&self.fd, &*name_of(digest), flags, Mode::empty()) {
            Err(Errno::NOENT) => Err(ChunkError::NoVersion(*digest)),
            opened => Ok(opened.at("open a version in", &self.path)?),
        }
    }

    /// What a version takes of the disk; nothing when it is not there.
    pub(super) fn cost(&self, digest: &FileDigest) -> Option<u64> {
        let seen = metadata::look(self.fd.as_fd(), &name_of(digest)).ok()?;
        Some(seen.blocks * 512)
    }

    /// Removes one, and what was set aside under its digest.
    fn remove(&self, digest: &FileDigest) -> Result<(), SlotError> {
        for name in [name_of(digest), aside_name(digest)] {
            match fs::unlinkat(&self.fd, &*name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Ok(Err(error).at("remove a version from", &self.path)?),
            }
        }
        Ok(())
    }

    /// Moves one that holds something else out of the way; nothing is made of it any more.
    pub(super) fn set_aside(&self, digest: &FileDigest) -> Result<(), SlotError> {
        let (from, to) = (name_of(digest), aside_name(digest));
        match fs::renameat(&self.fd, &*from, &self.fd, &*to) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Ok(Err(error).at("set a damaged version aside in", &self.path)?),
        }
    }

    /// Removes what was set aside under a digest that is held again. What stays goes with the last checkpoint that names it.
    pub(super) fn remove_aside(&self, digest: &FileDigest) {
        let _ = fs::unlinkat(&self.fd, &*aside_name(digest), AtFlags::empty());
    }

    /// Removes those that were set aside and that nobody names.
    fn sweep_aside(&self, named: &[Arc<VersionNames>]) -> Result<(), SlotError> {
        for name in self.names()? {
            let Some(digest) = set_aside_digest(&name) else {
                continue;
            };
            if named.iter().all(|names| names.cost(&digest).is_none()) {
                let removed = fs::unlinkat(&self.fd, &*name, AtFlags::empty());
                removed.at("remove a damaged version from", &self.path)?;
            }
        }
        Ok(())
    }

    fn names(&self) -> Result<Vec<CString>, Failure> {
        let listed = reopen_dir(&self.fd).at("list", &self.path)?;
        let mut buffer = Vec::with_capacity(BUFFER);
        let mut entries = RawDir::new(&listed, buffer.spare_capacity_mut());
        let mut found = Vec::new();
        while let Some(entry) = entries.next() {
            found.push(entry.at("list", &self.path)?.file_name().to_owned());
        }
        Ok(found)
    }

    /// All that are there.
    pub(super) fn list(&self) -> Result<Vec<FileDigest>, Failure> {
        let names = self.names()?;
        let digests = names
            .iter()
            .filter_map(|name| name.to_str().ok()?.parse().ok());
        Ok(digests.collect())
    }
}

/// What a version is called that turned out to hold something else.
fn aside_name(digest: &FileDigest) -> CString {
    CString::new(format!("{ASIDE}{digest}")).expect("digits have no NUL")
}

fn set_aside_digest(name: &CStr) -> Option<FileDigest> {
    name.to_str().ok()?.strip_prefix(ASIDE)?.parse().ok()
}

/// The versions that a checkpoint needs, as its slot keeps them: a row for each, sorted, then a digest of all.
pub(super) fn to_bytes(versions: &VersionCosts) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MAGIC.len() + versions.len() * ROW + 32);
    bytes.extend_from_slice(MAGIC);
    for (digest, cost) in versions {
        bytes.extend_from_slice(digest.as_bytes());
        bytes.extend_from_slice(&cost.to_le_bytes());
    }
    let digest = blake3::hash(&bytes);
    bytes.extend_from_slice(digest.as_bytes());
    bytes
}

/// The versions that one or several checkpoints name, sorted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct VersionNames {
    rows: Vec<(FileDigest, u64)>,
}

impl From<&VersionCosts> for VersionNames {
    fn from(costs: &VersionCosts) -> Self {
        let rows = costs.iter().map(|(digest, cost)| (*digest, *cost));
        Self {
            rows: rows.collect(),
        }
    }
}

impl VersionNames {
    /// Reads what a slot says; `None` when that is torn.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (body, digest) = bytes.split_last_chunk::<32>()?;
        if blake3::hash(body) != *digest {
            return None;
        }
        let (rows, rest) = body.strip_prefix(MAGIC)?.as_chunks::<ROW>();
        let row = |row: &[u8; ROW]| {
            let (digest, cost) = row.split_first_chunk::<32>()?;
            let cost = u64::from_le_bytes(cost.try_into().ok()?);
            Some((FileDigest::from_document(*digest), cost))
        };
        let rows: Option<Vec<_>> = rows.iter().map(row).collect();
        let is_sorted = |rows: &Vec<(FileDigest, u64)>| rows.is_sorted_by(|a, b| a.0 < b.0);
        let rows = rows.filter(|all| rest.is_empty() && is_sorted(all))?;
        Some(Self { rows })
    }

    pub(super) fn rows(&self) -> &[(FileDigest, u64)] {
        &self.rows
    }

    /// What a version takes, if it is among them.
    pub(super) fn cost(&self, digest: &FileDigest) -> Option<u64> {
        let found = self.rows.binary_search_by(|(one, _)| one.cmp(digest));
        found.ok().map(|at| self.rows[at].1)
    }

    /// Adds what others name; both are sorted.
    pub(super) fn add_all(&mut self, others: &Self) {
        if self.rows.is_empty() {
            self.rows.clone_from(&others.rows);
            return;
        }
        let mut all = Vec::with_capacity(self.rows.len().max(others.rows.len()) + 64);
        let mut others = others.rows.iter().peekable();
        for row in self.rows.drain(..) {
            while let Some(other) = others.next_if(|other| other.0 < row.0) {
                all.push(*other);
            }
            others.next_if(|other| other.0 == row.0);
            all.push(row);
        }
        all.extend(others);
        self.rows = all;
    }

    /// Takes out what others name as well.
    fn remove_all(&mut self, others: &Self) {
        let mut others = others.rows.iter().map(|(digest, _)| digest).peekable();
        self.rows.retain(|(digest, _)| {
            while others.next_if(|other| *other < digest).is_some() {}
            others.peek() != Some(&digest)
        });
    }
}

/// Reads what slots name, each list once: what did not change from one checkpoint to the next is one file with two names, and whoever
/// makes a checkpoint asks for the same several times.
#[derive(Debug, Default)]
struct NamesReader {
    /// By the file that a list is, and the digest that it ends with, which it was found to have.
    read: HashMap<ListKey, Arc<VersionNames>>,
}

/// Which file a list is, and in which state. Another file may end with the same digest, and be torn before that.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct ListKey {
    device: u64,
    inode: u64,
    size: u64,
    modified: FileTime,
    digest: [u8; 32],
}

impl NamesReader {
    fn named(&mut self, slot: BorrowedFd<'_>, form: Option<SlotForm>) -> Option<Arc<VersionNames>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match fs::openat(slot, VERSIONS, flags, Mode::empty()) {
            // Whether something that nobody can read any more named some, nobody knows.
            Err(Errno::NOENT) => {
                let is_known = matches!(form, Some(SlotForm::Clone | SlotForm::Chunked));
                let has_list =
                    fs::statat(slot, super::packed::WORKSPACE_DOCUMENT, AtFlags::empty());
                return (is_known || has_list.is_err()).then(Arc::default);
            }
            file => File::from(file.ok()?),
        };
        let key = ListKey::of(&file)?;
        if let Some(read) = self.read.get(&key) {
            return Some(read.clone());
        }
        let names = Arc::new(read_names(file).ok().flatten()?);
        self.read.insert(key, names.clone());
        Some(names)
    }
}

impl ListKey {
    fn of(file: &File) -> Option<Self> {
        let seen = metadata::of(file).ok()?;
        let mut digest = [0; 32];
        let end = seen.size.checked_sub(32)?;
        file.read_exact_at(&mut digest, end).ok()?;
        Some(Self {
            device: seen.device,
            inode: seen.inode,
            size: seen.size,
            modified: seen.modified,
            digest,
        })
    }
}

fn read_names(mut file: File) -> io::Result<Option<VersionNames>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(VersionNames::from_bytes(&bytes))
}

/// What versions cost together, each with its inode and its name.
pub(super) fn cost_of(bytes: u64) -> u64 {
    bytes.saturating_add(cost::ENTRY)
}

impl Pool {
    /// Removes the versions that what is left of a slot names, and nothing else does; none at all while somebody's needs are unknown.
    /// Those that stay then are removed when a user deletes a checkpoint, which looks at all of them.
    pub(super) fn release(&self, gone: BorrowedFd<'_>) -> rustix::io::Result<()> {
        // Whatever it was, it is tried again as long as something is left that says what to look at.
        self.try_release(gone).map_err(|_| Errno::IO)
    }

    fn try_release(&self, gone: BorrowedFd<'_>) -> Result<(), SlotError> {
        let versions = self.chunks.versions();
        let Some(named) = versions.named(gone, None) else {
            return Ok(());
        };
        let own = metadata::of(gone).at("look at", self.path())?.identity();
        let mut gone = VersionNames::clone(&named);
        for (place, occupants) in [(&self.slots, self.list()?), (&self.undo, self.undos()?)] {
            for one in occupants {
                if gone.rows.is_empty() {
                    return Ok(());
                }
                let Ok(slot) = open_dir_in(place.fd(), &*super::place::name_of(one.slot())) else {
                    return Ok(());
                };
                // Where nothing can be renamed, it is removed under its own name.
                if metadata::of(&slot).at("look at", place.path())?.identity() == own {
                    continue;
                }
                let form = one.known().map(|known| known.form);
                match versions.named(slot.as_fd(), form) {
                    Some(named) => gone.remove_all(&named),
                    None => return Ok(()),
                }
            }
        }
        gone.rows
            .iter()
            .try_for_each(|(digest, _)| self.chunks.versions().remove(digest))
    }

    /// Removes every version that no checkpoint names; none at all while somebody's needs are unknown.
    pub(super) fn sweep_versions(&self) -> Result<(), SlotError> {
        let mut there = self.chunks.versions().list()?;
        there.sort_unstable();
        let rows = there.into_iter().map(|digest| (digest, 0));
        let mut gone = VersionNames {
            rows: rows.collect(),
        };
        let (versions, mut all) = (self.chunks.versions(), Vec::new());
        for (place, occupants) in [(&self.slots, self.list()?), (&self.undo, self.undos()?)] {
            for one in occupants {
                let slot = match open_dir_in(place.fd(), &*super::place::name_of(one.slot())) {
                    // Something that is no checkpoint may need anything, and stops nobody.
                    Err(Errno::NOTDIR | Errno::LOOP) => return Ok(()),
                    slot => slot.at("open a checkpoint in", place.path())?,
                };
                match versions.named(slot.as_fd(), one.known().map(|known| known.form)) {
                    Some(named) => {
                        gone.remove_all(&named);
                        all.push(named);
                    }
                    None => return Ok(()),
                }
            }
        }
        let mut gone = gone.rows.iter();
        gone.try_for_each(|(digest, _)| versions.remove(digest))?;
        versions.sweep_aside(&all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(texts: &[&str]) -> VersionNames {
        let all = texts
            .iter()
            .map(|text| (FileDigest::of(text.as_bytes()), 4096));
        let all: VersionCosts = all.collect();
        VersionNames::from_bytes(&to_bytes(&all)).unwrap()
    }

    #[test]
    fn what_a_slot_names_is_read_back_and_what_is_torn_is_not() {
        let all: VersionCosts = [(FileDigest::of(b"a"), 1), (FileDigest::of(b"b"), 2)].into();
        let mut bytes = to_bytes(&all);

        let read = VersionNames::from_bytes(&bytes).unwrap();
        bytes[10] ^= 1;

        assert_eq!(read.rows().len(), 2);
        assert_eq!(read.cost(&FileDigest::of(b"b")), Some(2));
        assert_eq!(VersionNames::from_bytes(&bytes), None);
        assert_eq!(VersionNames::from_bytes(b""), None);
    }

    #[test]
    fn what_several_name_is_there_once_and_in_order() {
        let mut all = named(&[]);

        for texts in [&["c", "a"][..], &["b", "a", "z"], &[], &["z", "d"]] {
            all.add_all(&named(texts));
        }

        assert_eq!(all, named(&["a", "b", "c", "d", "z"]));
    }

    #[test]
    fn only_what_nobody_else_names_is_gone() {
        let mut gone = named(&["a", "b", "c", "d"]);

        gone.remove_all(&named(&["b", "x"]));
        gone.remove_all(&named(&[]));
        gone.remove_all(&named(&["d", "a", "y"]));

        assert_eq!(gone, named(&["c"]));
    }
}
