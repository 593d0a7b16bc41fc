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
use super::references::{ListKey, References};
use super::{Pool, cost};
use crate::form::chunked::ChunkError;
use crate::fs::atomic_write;
use crate::fs::fd::{open_dir_in, reopen_dir};
use crate::fs::metadata;
use crate::fs::staging;
use crate::fs::sys::listing::Listing;
use crate::worker_pool::lock;
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use stasis_model::digest::FileDigest;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::workspace::SlotForm;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
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
    session: PathBuf,
    memory: Mutex<ListMemory>,
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
        Ok(Self {
            path,
            fd,
            session: session.to_owned(),
            memory: Mutex::default(),
        })
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
        let file = match open_list(slot, form) {
            OpenedList::List(file) => file,
            OpenedList::Nothing => return Some(Arc::default()),
            OpenedList::Unknown => return None,
        };
        let key = ListKey::of(&file)?;
        let mut memory = lock(&self.memory);
        if let Some((_, read)) = memory.lists.iter().find(|(one, _)| *one == key) {
            return Some(read.clone());
        }
        let names = Arc::new(read_names(file).ok().flatten()?);
        memory.lists.truncate(MOST_LISTS - 1);
        memory.lists.push_front((key, names.clone()));
        Some(names)
    }

    /// What some slots need together, as far as they can say it. Only lists are read that were not there the last time; `gone` is a slot
    /// that is none of them any more.
    pub(super) fn needed(
        &self,
        slots: &[SlotList],
        gone: Option<&SlotList>,
        keep: KeepReferences,
    ) -> NeededVersions {
        let wanted: BTreeSet<ListKey> = slots.iter().filter_map(|one| one.needs.list()).collect();
        let known = lock(&self.memory).references.clone();
        let kept = known.or_else(|| References::read(&self.session).map(Arc::new));
        let mut all = kept.clone().unwrap_or_default();
        for key in all.lists().to_vec() {
            if wanted.contains(&key) {
                continue;
            }
            let own = gone.filter(|gone| gone.needs == SlotNeed::List(key));
            let Some(names) = own.and_then(|gone| self.named(gone.slot.as_fd(), None)) else {
                all = Arc::default();
                break;
            };
            Arc::make_mut(&mut all).remove(&key, &names);
        }
        let mut is_complete = true;
        for slot in slots {
            match slot.needs {
                SlotNeed::Nothing => {}
                SlotNeed::List(key) if all.lists().binary_search(&key).is_ok() => {}
                SlotNeed::List(key) => match self.named(slot.slot.as_fd(), None) {
                    Some(names) => Arc::make_mut(&mut all).add(key, &names),
                    None => is_complete = false,
                },
                SlotNeed::Unknown => is_complete = false,
            }
        }
        if keep == KeepReferences::Yes && kept.as_ref() != Some(&all) {
            all.keep(&self.session);
        }
        lock(&self.memory).references = Some(all.clone());
        NeededVersions {
            references: all,
            is_complete,
        }
    }

    /// Forgets what was read of slots: it takes much memory, and whoever comes next finds others.
    pub(super) fn forget_names(&self) {
        *lock(&self.memory) = ListMemory::default();
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

    /// What was set aside, with the bytes that each takes of the disk.
    pub(super) fn aside(&self) -> Result<Vec<SetAside>, SlotError> {
        set_aside_in(&self.fd, &self.path)
    }

    /// Removes those that were set aside and that nobody names.
    fn sweep_aside(&self, named: &References) -> Result<(), SlotError> {
        for name in self.names()? {
            let Some(digest) = set_aside_digest(&name) else {
                continue;
            };
            if named.find(&digest).is_none() {
                let removed = fs::unlinkat(&self.fd, &*name, AtFlags::empty());
                removed.at("remove a damaged version from", &self.path)?;
            }
        }
        Ok(())
    }

    fn names(&self) -> Result<Vec<CString>, Failure> {
        let listed = reopen_dir(&self.fd).at("list", &self.path)?;
        let mut buffer = Vec::with_capacity(BUFFER);
        let mut entries = Listing::new(&listed, buffer.spare_capacity_mut());
        let mut found = Vec::new();
        while let Some(entry) = entries.read() {
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

/// Something that a check found to hold other bytes than its name says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetAside {
    /// Where it is now.
    pub path: PathBuf,
    /// What it takes of the disk.
    pub bytes: u64,
}

/// What was set aside in a directory.
pub(super) fn set_aside_in(directory: &OwnedFd, path: &Path) -> Result<Vec<SetAside>, SlotError> {
    let is_any = |_: &[u8]| true;
    let names = staging::named(directory, ASIDE.as_bytes(), is_any).at("list", path)?;
    let found = names.into_iter().filter_map(|name| {
        // What went meanwhile takes nothing.
        let seen = metadata::look(directory.as_fd(), &name).ok()?;
        Some(SetAside {
            path: path.join(OsStr::from_bytes(name.to_bytes())),
            bytes: cost_of(seen.blocks * 512),
        })
    });
    Ok(found.collect())
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

impl From<&References> for VersionNames {
    fn from(all: &References) -> Self {
        let rows = all.rows().iter().map(|row| (row.digest, row.cost));
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
}

/// What was read of slots while somebody holds the lock. Of lists only the last two: a list of a million files takes much memory.
#[derive(Debug, Default)]
struct ListMemory {
    lists: VecDeque<(ListKey, Arc<VersionNames>)>,
    references: Option<Arc<References>>,
}

/// How many lists stay in memory: the newest, and that of a slot that goes.
const MOST_LISTS: usize = 2;

/// The list of what is in a slot.
#[derive(Debug)]
pub(super) struct SlotList {
    slot: OwnedFd,
    pub(super) needs: SlotNeed,
}

/// What a slot says that it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotNeed {
    Nothing,
    /// What is in this list.
    List(ListKey),
    /// Nobody can tell.
    Unknown,
}

impl SlotNeed {
    pub(super) fn list(self) -> Option<ListKey> {
        match self {
            Self::List(key) => Some(key),
            Self::Nothing | Self::Unknown => None,
        }
    }
}

/// The list of a slot, opened.
enum OpenedList {
    Nothing,
    List(File),
    Unknown,
}

impl SlotList {
    pub(super) fn of(slot: OwnedFd, form: Option<SlotForm>) -> Self {
        let needs = match open_list(slot.as_fd(), form) {
            OpenedList::List(file) => ListKey::of(&file).map_or(SlotNeed::Unknown, SlotNeed::List),
            OpenedList::Nothing => SlotNeed::Nothing,
            OpenedList::Unknown => SlotNeed::Unknown,
        };
        Self { slot, needs }
    }

    fn identity(&self) -> Option<(u64, u64)> {
        metadata::of(&self.slot).ok().map(|seen| seen.identity())
    }
}

/// Whether what was found out is kept for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeepReferences {
    /// Whoever holds the lock keeps it.
    Yes,
    No,
}

/// What all slots need together.
#[derive(Clone, Debug)]
pub(super) struct NeededVersions {
    pub(super) references: Arc<References>,
    /// Whether every slot could say what it needs.
    pub(super) is_complete: bool,
}

fn open_list(slot: BorrowedFd<'_>, form: Option<SlotForm>) -> OpenedList {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match fs::openat(slot, VERSIONS, flags, Mode::empty()) {
        // Whether something that nobody can read any more named some, nobody knows.
        Err(Errno::NOENT) => {
            let is_known = matches!(form, Some(SlotForm::Clone | SlotForm::Chunked));
            let has_list = fs::statat(slot, super::packed::WORKSPACE_DOCUMENT, AtFlags::empty());
            if is_known || has_list.is_err() {
                OpenedList::Nothing
            } else {
                OpenedList::Unknown
            }
        }
        Ok(file) => OpenedList::List(File::from(file)),
        Err(_) => OpenedList::Unknown,
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
        if named.rows().is_empty() {
            return Ok(());
        }
        let gone = reopen_dir(gone).at("open a checkpoint in", self.path())?;
        let gone = SlotList::of(gone, None);
        let Some(mut slots) = self.slot_lists()? else {
            return Ok(());
        };
        // Where nothing can be renamed, it is removed under its own name.
        let own = gone.identity();
        slots.retain(|one| one.identity() != own);
        let needed = versions.needed(&slots, Some(&gone), KeepReferences::Yes);
        if !needed.is_complete {
            return Ok(());
        }
        let digests = named.rows().iter().map(|(digest, _)| digest);
        let mut unneeded = digests.filter(|digest| needed.references.find(digest).is_none());
        unneeded.try_for_each(|digest| versions.remove(digest))
    }

    /// The lists of all slots; nothing if something that is no checkpoint is in one of them, which may need anything.
    pub(super) fn slot_lists(&self) -> Result<Option<Vec<SlotList>>, SlotError> {
        let mut lists = Vec::new();
        for (place, occupants) in [(&self.slots, self.list()?), (&self.undo, self.undos()?)] {
            for one in occupants {
                let slot = match open_dir_in(place.fd(), &*super::place::name_of(one.slot())) {
                    Err(Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                    slot => slot.at("open a checkpoint in", place.path())?,
                };
                let form = one.known().map(|known| known.form);
                lists.push(SlotList::of(slot, form));
            }
        }
        Ok(Some(lists))
    }

    /// Removes every version that no checkpoint names; none at all while somebody's needs are unknown.
    pub(super) fn sweep_versions(&self) -> Result<(), SlotError> {
        let versions = self.chunks.versions();
        let there = versions.list()?;
        let Some(slots) = self.slot_lists()? else {
            return Ok(());
        };
        let needed = versions.needed(&slots, None, KeepReferences::Yes);
        if !needed.is_complete {
            return Ok(());
        }
        let mut unneeded = there.iter();
        unneeded.try_for_each(|digest| match needed.references.find(digest) {
            Some(_) => Ok(()),
            None => versions.remove(digest),
        })?;
        versions.sweep_aside(&needed.references)
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
}
