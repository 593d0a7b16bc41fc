//! What must be done to a live tree so that it becomes the staged one, and nothing else.
//!
//! Directory by directory the two are compared by name. What only one of them has is moved whole; what both have as a
//! directory is gone into; everything else is replaced unless it is the same already. Names of one file stay only if they
//! are names of one file on both sides, and of no other; names that a live file has outside the tree are nobody's concern.

use super::contents::{Side, are_same};
use super::error::{RestoreError, entry};
use super::inplace::Changes;
use super::journal::{Journal, Step};
use crate::beneath::Beneath;
use crate::metadata::{self, Rights, Seen};
use crate::staging;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use stasis_model::tree::{EntryPath, Metadata};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering as Memory};
use std::sync::{Mutex, PoisonError};

/// What is left alone, as somebody told us.
#[derive(Default)]
pub(super) struct Told {
    /// Entries that are right as they are: 128 bits of a digest of each path.
    right: Mutex<HashSet<[u8; 16]>>,
    /// Which entries stay although the new tree does not have them.
    spared: Option<Spared>,
}

/// Whether an entry stays although the new tree does not have it; also told whether it is a directory.
pub type Spared = Box<dyn Fn(&EntryPath, bool) -> bool + Send + Sync>;

impl std::fmt::Debug for Told {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Told").finish_non_exhaustive()
    }
}

impl Told {
    pub(super) fn leave(&self, path: &EntryPath) {
        let mut told = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(key(path));
    }

    pub(super) fn spare(&mut self, spared: Spared) {
        self.spared = Some(spared);
    }

    fn has(&self, path: &EntryPath) -> bool {
        let told = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        told.contains(&key(path))
    }

    fn spares(&self, path: &EntryPath, seen: &Seen) -> bool {
        let is_directory = seen.file_type().is_dir();
        let spared = self.spared.as_ref();
        spared.is_some_and(|spared| spared(path, is_directory))
    }
}

fn key(path: &EntryPath) -> [u8; 16] {
    let digest = blake3::hash(path.as_bytes());
    *digest.as_bytes().first_chunk().expect("it has 32 bytes")
}

/// A directory that is on both sides.
#[derive(Debug)]
struct Pair {
    wanted: Metadata,
    is_dressed: bool,
}

/// A name of a file with several, on one side or the other.
#[derive(Debug)]
struct Name {
    path: EntryPath,
    /// The file that has it on the live side, if that is the same file.
    live: Option<Seen>,
    live_is_directory: bool,
}

/// Makes the plan.
#[derive(Debug)]
pub(super) struct Planner<'a> {
    pub(super) live: &'a Beneath,
    pub(super) staged: &'a Beneath,
    pub(super) told: &'a Told,
    pub(super) cancel: &'a AtomicBool,
    /// What the target is called: what is staged for it in the live root is no part of it.
    pub(super) own: &'a CStr,
    /// Whether we are staged in there ourselves.
    pub(super) is_inside: bool,
    pub(super) rights: Rights,
    changes: Changes,
    journal: Journal,
    pairs: HashMap<EntryPath, Pair>,
    linked: BTreeMap<u64, Vec<Name>>,
    pending: Vec<EntryPath>,
    removed: u64,
}

impl<'a> Planner<'a> {
    pub(super) fn new(
        (live, staged): (&'a Beneath, &'a Beneath),
        (told, cancel): (&'a Told, &'a AtomicBool),
        (own, is_inside): (&'a CStr, bool),
        root: u64,
    ) -> Self {
        let rights = Rights::of_this_process();
        Self {
            live,
            staged,
            told,
            cancel,
            own,
            is_inside,
            rights,
            changes: Changes::default(),
            journal: Journal::new(root, rights),
            pairs: HashMap::new(),
            linked: BTreeMap::new(),
            pending: vec![EntryPath::root()],
            removed: 0,
        }
    }

    /// Compares the trees; the journal has every step that is needed.
    pub(super) fn plan(mut self) -> Result<(Journal, Changes), RestoreError> {
        let root = EntryPath::root();
        let look = |tree: &Beneath| tree.directory(b"").and_then(|fd| metadata::of(&fd));
        let live = look(self.live).map_err(entry("look at", &root))?;
        let staged = look(self.staged).map_err(entry("look at", &root))?;
        self.pair(&root, &live, &staged)?;
        while let Some(path) = self.pending.pop() {
            self.directory(&path)?;
        }
        self.settle_links();
        self.dress();
        Ok((self.journal, self.changes))
    }

    /// Notes a directory that both have. `live` and `staged` were seen before it was opened.
    fn pair(&mut self, path: &EntryPath, live: &Seen, staged: &Seen) -> Result<(), RestoreError> {
        let wanted = staged.metadata();
        let mut is_dressed = live.metadata() != wanted || (path.is_root() && self.is_inside);
        if !is_dressed {
            let user = |tree: &Beneath| {
                let opened = open(tree, path)?;
                Ok::<_, Errno>(metadata::attributes(opened)?.user)
            };
            let failed = || entry("read the attributes of", path);
            is_dressed =
                user(self.live).map_err(failed())? != user(self.staged).map_err(failed())?;
        }
        self.pairs.insert(path.clone(), Pair { wanted, is_dressed });
        Ok(())
    }

    fn directory(&mut self, path: &EntryPath) -> Result<(), RestoreError> {
        if self.cancel.load(Memory::Relaxed) {
            return Err(RestoreError::Cancelled);
        }
        let failed = || entry("open", path);
        let live = open(self.live, path).map_err(failed())?;
        let staged = open(self.staged, path).map_err(failed())?;
        let own = Some(self.own).filter(|_| path.is_root());
        let mut here = names(&live, own).map_err(entry("list", path))?.into_iter();
        let mut there = names(&staged, None)
            .map_err(entry("list", path))?
            .into_iter();
        let (mut one, mut other) = (here.next(), there.next());
        loop {
            let order = match (&one, &other) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(one), Some(other)) => one.cmp(other),
            };
            let name = if order.is_gt() { &other } else { &one };
            let name = name.clone().expect("one of them is there");
            let child = path.child(name.to_bytes());
            let child = child.map_err(|_| entry("name an entry of", path)(Errno::INVAL))?;
            match order {
                Ordering::Less => self.only_live(child, &name, &live),
                Ordering::Greater => self.only_staged(child, &name, &staged)?,
                Ordering::Equal => self.both(&child, &name, (&live, &staged))?,
            }
            if order.is_le() {
                one = here.next();
            }
            if order.is_ge() {
                other = there.next();
            }
        }
    }

    fn only_live(&mut self, path: EntryPath, name: &CStr, live: &OwnedFd) {
        let seen = metadata::look(live.as_fd(), name);
        let is_spared = seen.is_ok_and(|seen| {
            let kind = seen.file_type();
            // No tree has these, so that none says that they should go.
            kind.is_socket()
                || kind.is_block_device()
                || kind.is_char_device()
                || self.told.spares(&path, &seen)
        });
        if is_spared || self.told.has(&path) {
            self.changes.untouched += 1;
        } else {
            self.remove(path);
            self.changes.removed += 1;
        }
    }

    fn only_staged(
        &mut self,
        path: EntryPath,
        name: &CStr,
        staged: &OwnedFd,
    ) -> Result<(), RestoreError> {
        let seen = metadata::look(staged.as_fd(), name).map_err(entry("look at", &path))?;
        if seen.file_type().is_file() && seen.links > 1 {
            self.name(path, &seen, None, false);
            return Ok(());
        }
        self.place(path, &seen);
        Ok(())
    }

    fn both(
        &mut self,
        path: &EntryPath,
        name: &CStr,
        (live, staged): (&OwnedFd, &OwnedFd),
    ) -> Result<(), RestoreError> {
        let failed = || entry("look at", path);
        let wanted = metadata::look(staged.as_fd(), name).map_err(failed())?;
        let seen = match metadata::look(live.as_fd(), name) {
            Err(Errno::NOENT) => return self.only_staged(path.clone(), name, staged),
            seen => seen.map_err(failed())?,
        };
        let (was_directory, will_be) = (seen.file_type().is_dir(), wanted.file_type().is_dir());
        if was_directory && !will_be && self.told.spares(path, &seen) {
            // What must stay is in it, and the new tree has no room for it.
            return Err(entry("replace, because of what is in it,", path)(
                Errno::NOTEMPTY,
            ));
        }
        if was_directory && will_be {
            if seen.is_mount {
                return Ok(()); // looked at before: nothing of the tree is in it
            }
            if seen.device != self.live.device() {
                // A btrfs subvolume: nothing can be moved into it.
                let path = OsStr::from_bytes(path.as_bytes());
                return Err(RestoreError::MountInside(path.into()));
            }
            // One that its owner may not read is replaced whole.
            if open(self.live, path).is_ok() {
                unlock(self.staged, path, &wanted).map_err(entry("open", path))?;
                self.pair(path, &seen, &wanted)?;
                self.pending.push(path.clone());
                return Ok(());
            }
        }
        let sides = |tree, directory, seen| Side {
            tree,
            directory,
            seen,
        };
        let (mine, theirs) = (
            sides(self.live, live, seen),
            sides(self.staged, staged, wanted),
        );
        let same = !was_directory
            && are_same(name, &mine, &theirs, self.cancel).map_err(|error| match error {
                Errno::CANCELED => RestoreError::Cancelled,
                error => entry("compare", path)(error),
            })?;
        let has_names = wanted.links > 1 || (same && seen.links > 1);
        if wanted.file_type().is_file() && has_names {
            self.name(path.clone(), &wanted, same.then_some(seen), was_directory);
            return Ok(());
        }
        if same {
            self.changes.untouched += 1;
            return Ok(());
        }
        if was_directory || will_be {
            self.remove(path.clone());
        }
        self.place(path.clone(), &wanted);
        Ok(())
    }

    fn name(&mut self, path: EntryPath, staged: &Seen, live: Option<Seen>, is_directory: bool) {
        let names = self.linked.entry(staged.inode).or_default();
        names.push(Name {
            path,
            live,
            live_is_directory: is_directory,
        });
    }

    /// Decides on files with several names, now that all of them are known.
    fn settle_links(&mut self) {
        let mut claimed = HashSet::new();
        for names in std::mem::take(&mut self.linked).into_values() {
            let live = |name: &Name| name.live.map(|seen| seen.identity());
            let first = live(&names[0]);
            let is_one_file = names.iter().all(|name| live(name) == first);
            if let Some(file) = first
                && is_one_file
                && claimed.insert(file)
            {
                self.changes.untouched += names.len() as u64;
                continue;
            }
            for name in names {
                if name.live_is_directory {
                    self.remove(name.path.clone());
                }
                self.step(&Step::Place(name.path));
                self.changes.placed += 1;
            }
        }
    }

    fn remove(&mut self, path: EntryPath) {
        self.removed += 1;
        self.step(&Step::Remove(path, self.removed));
    }

    fn place(&mut self, path: EntryPath, seen: &Seen) {
        // A directory can be moved only by somebody who may write in it: it is dressed again where it arrives.
        let is_closed = seen.file_type().is_dir() && seen.raw_mode & 0o700 != 0o700;
        if is_closed && self.rights == Rights::Own {
            let (wanted, is_dressed) = (seen.metadata(), true);
            self.pairs.insert(path.clone(), Pair { wanted, is_dressed });
        }
        self.step(&Step::Place(path));
        self.changes.placed += 1;
    }

    fn step(&mut self, step: &Step) {
        let (Step::Remove(path, _) | Step::Place(path) | Step::Dress(path, _)) = step;
        let above = path
            .split_last()
            .map(|(above, _)| above)
            .unwrap_or_default();
        if let Some(pair) = self.pairs.get_mut(&above) {
            pair.is_dressed = true;
        }
        self.journal.add(step);
    }

    /// In the end directories get what they should have, each before the one it lies in.
    fn dress(&mut self) {
        let pairs = std::mem::take(&mut self.pairs).into_iter();
        let mut dressed: Vec<(EntryPath, Metadata)> = pairs
            .filter(|(_, pair)| pair.is_dressed)
            .map(|(path, pair)| (path, pair.wanted))
            .collect();
        dressed.sort_by_cached_key(|(path, _)| Reverse((path.components().count(), path.clone())));
        self.changes.dressed = dressed.len() as u64;
        for (path, metadata) in dressed {
            self.journal.add(&Step::Dress(path, metadata));
        }
    }
}

/// Opens a directory for reading.
fn open(tree: &Beneath, path: &EntryPath) -> rustix::io::Result<OwnedFd> {
    tree.directory(path.as_bytes())
}

/// Makes a directory of a tree of ours one that its owner can read and change; what it was is known.
fn unlock(tree: &Beneath, path: &EntryPath, seen: &Seen) -> rustix::io::Result<()> {
    if seen.raw_mode & 0o700 == 0o700 || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    make_writable(tree, path)
}

/// Gives its owner all rights to a directory, though he may not even open it.
pub(super) fn make_writable(tree: &Beneath, path: &EntryPath) -> rustix::io::Result<()> {
    let (above, name) = path.split_last().unwrap_or_default();
    let above = tree.directory(above.as_bytes())?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = if path.is_root() {
        b".".as_slice()
    } else {
        name
    };
    let found = fs::openat(&above, name, flags, Mode::empty())?;
    let mode = metadata::of(&found)?.raw_mode & 0o7777;
    if mode & 0o700 == 0o700 {
        return Ok(());
    }
    // By the descriptor, which nobody can make lead elsewhere.
    let link = format!("/proc/self/fd/{}", found.as_raw_fd());
    fs::chmod(link, Mode::from_raw_mode(mode | 0o700)).map_err(|error| match error {
        // Not the directory is absent, but `/proc`.
        Errno::NOENT => Errno::OPNOTSUPP,
        error => error,
    })
}

/// What is in a directory, in order, without what is staged there for a target of that name.
fn names(directory: &OwnedFd, without: Option<&CStr>) -> rustix::io::Result<Vec<CString>> {
    let is_staged = |name: &[u8]| without.is_some_and(|own| staging::is_temporary_for(own, name));
    let is_entry = |name: &[u8]| !matches!(name, b"." | b"..") && !is_staged(name);
    let mut names = staging::named(directory, b"", is_entry)?;
    names.sort_unstable();
    Ok(names)
}
