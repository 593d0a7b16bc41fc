//! Does what the journal says, as often as it takes: every step finds out by itself whether it was done before.
//!
//! Nothing of the live tree is ever overwritten or unlinked. An entry that comes takes the place of what is there by one
//! exchange, or moves to where nothing is; an entry that goes is moved. Whatever comes out, expected or not, lies in the staged
//! tree afterwards, at its own path and as the inode that it is: the staged tree becomes the backup. What finds no room there,
//! because more than one thing was in the way, is in `aside`.
//!
//! Where two entries cannot be exchanged (filesystems without the call, directories of a lower layer of overlayfs), the old one is
//! moved aside first, then the new one comes, and then the old one gets its place in the staged tree. A directory that cannot even
//! be renamed is moved entry by entry.

use super::error::RestoreError;
use super::journal::{Dress, JournalStep, RestoreJournal};
use super::permissions::{make_writable, set_mode};
use crate::fs::fd::{c_name, open_dir_in};
use crate::fs::metadata::{self, Rights, Seen};
use crate::fs::root_dir::{self, RootDir};
use crate::fs::staging::{self, rename_noreplace};
use rustix::fs::{self, AtFlags, Mode, RenameFlags};
use rustix::io::{Errno, Result};
use stasis_model::failure::AtPath;
use stasis_model::tree::EntryPath;
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

/// How often something that somebody puts in our way is moved out of it.
const ATTEMPTS: usize = 100;

/// Where things are moved from and to.
#[derive(Debug)]
pub(super) struct Moves<'a> {
    pub(super) live: &'a RootDir,
    pub(super) staged: &'a RootDir,
    /// Where old entries go that have no place in the staged tree, or not yet.
    pub(super) aside: &'a OwnedFd,
    /// Whether nothing above the entries may be moved.
    pub(super) is_limited: bool,
    pub(super) refused: RefusedMove,
}

/// A name in an open directory, whatever has it.
#[derive(Clone, Copy, Debug)]
struct EntryAt<'a> {
    parent: &'a OwnedFd,
    name: &'a CStr,
}

impl<'a> EntryAt<'a> {
    fn new(parent: &'a OwnedFd, name: &'a CStr) -> Self {
        Self { parent, name }
    }

    /// The same name in another directory.
    fn in_directory(self, parent: &'a OwnedFd) -> Self {
        Self { parent, ..self }
    }

    fn find(self) -> Result<Option<Seen>> {
        root_dir::find(self.parent, self.name)
    }

    fn open_directory(self) -> Result<OwnedFd> {
        open_dir_in(self.parent, self.name)
    }

    /// Moves what has this name to one that nothing has.
    fn rename_to(self, other: EntryAt<'_>) -> Result<()> {
        let (from, to) = (self.parent.as_fd(), other.parent.as_fd());
        rename_noreplace(from, self.name, to, other.name)
    }
}

/// What becomes of an entry that this user may not move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RefusedMove {
    /// It ends everything.
    Ends,
    /// It stays where it is.
    Stays,
}

/// What was done, and how it is taken back.
pub(super) struct SettledMoves {
    pub(super) undo: RestoreJournal,
    /// What was not what the plan expected.
    pub(super) changed: Vec<EntryPath>,
    /// What stayed because this user may not move it.
    pub(super) not_permitted: Vec<EntryPath>,
}

type Outcome<T> = std::result::Result<T, RestoreError>;

impl Moves<'_> {
    /// Does all steps, and says which could not be done; `None` when the journal has bytes that are no step.
    pub(super) fn run(&self, journal: &RestoreJournal) -> Outcome<Option<HashSet<usize>>> {
        let mut stayed = HashSet::new();
        for (number, step) in journal.steps().enumerate() {
            let Some(step) = step else {
                return Ok(None);
            };
            let (done, doing) = match &step {
                JournalStep::Remove(path, _) => (self.remove(path, number), "move away"),
                JournalStep::Place(path, inode, expected) => {
                    let placed = self.place(path, *inode, number, expected.is_some());
                    (placed, "move into place")
                }
                JournalStep::Make(path) => (self.way(path, number).map(drop), "make"),
                JournalStep::Unmake(path) => (self.unmake(path), "remove"),
                JournalStep::Dress(path, both) => {
                    let dressed = self.dress(path, &both[0], journal.rights);
                    (dressed, "set owner, mode and time of")
                }
                JournalStep::Kept(_) | JournalStep::Again(_) => (Ok(()), "leave"),
            };
            match done {
                Err(Errno::ACCESS | Errno::PERM) if self.refused == RefusedMove::Stays => {
                    stayed.insert(number);
                }
                done => done.on(doing, step.path())?,
            }
        }
        Ok(Some(stayed))
    }

    /// Whether no step has moved anything yet, so that there is still a way back: removes the directories that were made.
    pub(super) fn give_up(&self, journal: &RestoreJournal) -> bool {
        let steps: Option<Vec<JournalStep>> = journal.steps().collect();
        let (Some(steps), Ok(true)) = (steps, self.crowded().map(|all| all.is_empty())) else {
            return false;
        };
        let is_untouched = |step: &JournalStep| match step {
            JournalStep::Place(path, inode, _) => {
                let staged = find(self.staged, path);
                staged.is_ok_and(|staged| staged.is_some_and(|seen| seen.inode == *inode))
            }
            JournalStep::Remove(path, _) => find(self.staged, path) == Ok(None),
            JournalStep::Make(_)
            | JournalStep::Dress(..)
            | JournalStep::Kept(_)
            | JournalStep::Again(_) => true,
            JournalStep::Unmake(_) => false,
        };
        let is_untouched = steps.iter().all(is_untouched);
        for step in steps.iter().rev().filter(|_| is_untouched) {
            if let JournalStep::Make(path) = step {
                let _ = self.unmake(path);
            }
        }
        is_untouched
    }

    /// Looks at what came out, when everything is done but for some steps; `None` when the journal has bytes that are no step.
    pub(super) fn settle(
        &self,
        journal: &RestoreJournal,
        stayed: &HashSet<usize>,
    ) -> Outcome<Option<SettledMoves>> {
        let (mut changed, mut not_permitted) = (Vec::new(), Vec::new());
        let crowded = self.crowded().on("list", EntryPath::root())?;
        let (mut back, mut dresses, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        for (number, step) in journal.steps().enumerate() {
            match step {
                None => return Ok(None),
                Some(step) if stayed.contains(&number) => {
                    not_permitted.push(step.path().clone());
                    // What it needs is still there, for when this is taken back in turn.
                    if let JournalStep::Place(..) | JournalStep::Remove(..) = &step {
                        waiting.push(JournalStep::Kept(Box::new(step)));
                    }
                }
                Some(
                    JournalStep::Remove(path, expected) | JournalStep::Place(path, _, expected),
                ) => {
                    let kept = find(self.staged, &path).on("look at", &path)?;
                    let is_expected = match (&kept, &expected) {
                        (Some(kept), Some(expected)) => expected.is_like(kept),
                        (kept, expected) => kept.is_none() && expected.is_none(),
                    };
                    if !is_expected || crowded.contains(&number) {
                        changed.push(path.clone());
                    }
                    back.push(match kept {
                        Some(kept) => JournalStep::Place(path, kept.inode, None),
                        None => JournalStep::Remove(path, None),
                    });
                }
                Some(JournalStep::Make(path)) => back.push(JournalStep::Unmake(path)),
                Some(JournalStep::Unmake(path)) => back.push(JournalStep::Make(path)),
                Some(JournalStep::Dress(path, both)) => {
                    let [wanted, was] = *both;
                    dresses.push(JournalStep::Dress(path, Box::new([was, wanted])));
                }
                Some(JournalStep::Kept(step)) => waiting.push(JournalStep::Kept(step)),
                Some(JournalStep::Again(step)) => waiting.push(*step),
            }
        }
        let mut undo = RestoreJournal::new(journal.root, journal.rights, journal.mark.clone());
        for step in back.iter().rev().chain(&dresses).chain(&waiting) {
            undo.add(step);
        }
        Ok(Some(SettledMoves {
            undo,
            changed,
            not_permitted,
        }))
    }

    /// The numbers of the steps that found more in their way than has a place in the staged tree.
    fn crowded(&self) -> Result<HashSet<usize>> {
        let names = staging::named(self.aside, b"", |name| !matches!(name, b"." | b".."))?;
        let numbers = names.iter().filter_map(|name| {
            let (number, _) = name.to_str().ok()?.split_once('-')?;
            number.parse().ok()
        });
        Ok(numbers.collect())
    }

    fn remove(&self, path: &EntryPath, number: usize) -> Result<()> {
        let (above, name) = split(path)?;
        let to = writable(self.staged, &above)?;
        let to = EntryAt::new(&to, &name);
        if to.find()?.is_some() {
            return Ok(());
        }
        let from = match writable(self.live, &above) {
            // It went with the directory that it was in.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => None,
            from => Some(from?),
        };
        if let Some(from) = from {
            let from = to.in_directory(&from);
            match self.carry(path, from, to) {
                Err(Errno::XDEV) => self.set_aside(path, from, number)?,
                Err(Errno::NOENT) => {}
                carried => carried?,
            }
        }
        self.fetch_from_aside(number, to)
    }

    fn place(&self, path: &EntryPath, inode: u64, number: usize, is_expected: bool) -> Result<()> {
        let (above, name) = split(path)?;
        let from = writable(self.staged, &above)?;
        let from = EntryAt::new(&from, &name);
        let Some(seen) = from.find()?.filter(|seen| seen.inode == inode) else {
            // It was done before.
            return self.fetch_from_aside(number, from);
        };
        let to = self.way(&above, number)?;
        let to = from.in_directory(&to);
        if is_half_linked(to, &seen)? {
            return fs::unlinkat(from.parent, from.name, AtFlags::empty());
        }
        let opened = Self::open_up(self.staged, path, &seen)?;
        let mut may_exchange = is_expected;
        for _ in 0..ATTEMPTS {
            let placed = if may_exchange {
                self.exchange(path, from, to)
            } else {
                from.rename_to(to)
            };
            match placed {
                Ok(()) => {
                    close_again(to, opened)?;
                    return self.fetch_from_aside(number, from);
                }
                // Whoever is in the way, or was, is asked again for.
                Err(Errno::EXIST) if !may_exchange => may_exchange = true,
                Err(Errno::NOENT) if may_exchange => may_exchange = false,
                Err(Errno::INVAL | Errno::NOSYS | Errno::XDEV | Errno::OPNOTSUPP)
                    if may_exchange =>
                {
                    self.set_aside(path, to, number)?;
                    may_exchange = false;
                }
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EXIST)
    }

    /// Exchanges a staged entry for a live one.
    fn exchange(&self, path: &EntryPath, from: EntryAt<'_>, to: EntryAt<'_>) -> Result<()> {
        let live = to.find()?.ok_or(Errno::NOENT)?;
        let staged = from.find()?.ok_or(Errno::NOENT)?;
        let opened = Self::open_up(self.live, path, &live)?;
        let flags = RenameFlags::EXCHANGE;
        fs::renameat_with(from.parent, from.name, to.parent, to.name, flags)?;
        // xfs takes a directory that gets another parent for one that was changed.
        for (at, seen) in [(from, &live), (to, &staged)] {
            if seen.file_type().is_dir() {
                let times = metadata::times(seen.modified);
                let _ = fs::utimensat(at.parent, at.name, &times, AtFlags::SYMLINK_NOFOLLOW);
            }
        }
        close_again(from, opened)
    }

    /// Moves a live entry to where nothing is.
    fn carry(&self, path: &EntryPath, from: EntryAt<'_>, to: EntryAt<'_>) -> Result<()> {
        let live = from.find()?.ok_or(Errno::NOENT)?;
        let opened = Self::open_up(self.live, path, &live)?;
        from.rename_to(to)?;
        close_again(to, opened)
    }

    /// A directory can be moved only by somebody who may write in it; says which permissions it had.
    fn open_up(tree: &RootDir, path: &EntryPath, seen: &Seen) -> Result<Option<u32>> {
        let is_closed = seen.file_type().is_dir() && seen.raw_mode & 0o700 != 0o700;
        if !is_closed || is_root() {
            return Ok(None);
        }
        make_writable(tree, path)?;
        Ok(Some(seen.raw_mode & 0o7777))
    }

    /// Moves what is in our way aside, entry by entry if it must be.
    fn set_aside(&self, path: &EntryPath, from: EntryAt<'_>, number: usize) -> Result<()> {
        for attempt in 0..ATTEMPTS {
            let name = aside_name(number, attempt);
            let to = EntryAt::new(self.aside, &name);
            match self.carry(path, from, to) {
                Err(Errno::EXIST) => {}
                Err(Errno::XDEV) => return move_parts(from, to),
                Err(Errno::NOENT) => return Ok(()),
                carried => return carried,
            }
        }
        Err(Errno::EXIST)
    }

    /// Gives what was moved aside its place in the staged tree; what came after the first stays where it is.
    fn fetch_from_aside(&self, number: usize, to: EntryAt<'_>) -> Result<()> {
        let name = aside_name(number, 0);
        let aside = EntryAt::new(self.aside, &name);
        if aside.find()?.is_none() {
            return Ok(());
        }
        match aside.rename_to(to) {
            Err(Errno::EXIST) => Ok(()),
            fetched => fetched,
        }
    }

    /// Opens a directory of the live tree, making it if somebody took it away.
    fn way(&self, path: &EntryPath, number: usize) -> Result<OwnedFd> {
        match writable(self.live, path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            opened => return opened,
        }
        let mut here = EntryPath::root();
        for name in path.components() {
            let above = writable(self.live, &here)?;
            here = here.child(name).map_err(|_| Errno::INVAL)?;
            let name = c_name(name)?;
            let in_the_way = EntryAt::new(&above, &name);
            match in_the_way.find()? {
                Some(seen) if seen.file_type().is_dir() => continue,
                Some(_) if self.is_limited => return Err(Errno::NOTDIR),
                // Never the first name: that is for what belongs at the place of the step itself.
                Some(_) => {
                    let free = (1..ATTEMPTS).find_map(|attempt| {
                        let to = aside_name(number, attempt);
                        match self.carry(&here, in_the_way, EntryAt::new(self.aside, &to)) {
                            Err(Errno::EXIST) => None,
                            Err(Errno::NOENT) => Some(Ok(())),
                            carried => Some(carried),
                        }
                    });
                    free.unwrap_or(Err(Errno::EXIST))?;
                }
                None => {}
            }
            match fs::mkdirat(&above, &*name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        writable(self.live, path)
    }

    fn unmake(&self, path: &EntryPath) -> Result<()> {
        let (above, name) = split(path)?;
        let Ok(above) = writable(self.live, &above) else {
            return Ok(());
        };
        match fs::unlinkat(&above, &*name, AtFlags::REMOVEDIR) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            removed => removed,
        }
    }

    fn dress(&self, path: &EntryPath, wanted: &Dress, rights: Rights) -> Result<()> {
        let directory = match self.live.directory(path.as_bytes()) {
            Err(Errno::ACCESS) => match make_writable(self.live, path) {
                Err(Errno::PERM | Errno::ACCESS) => return Ok(()),
                made => {
                    made?;
                    self.live.directory(path.as_bytes())
                }
            },
            directory => directory,
        };
        let directory = match directory {
            // Somebody took it away since.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            directory => directory?,
        };
        // Only its owner changes these, and a directory of somebody else must not keep everything else from coming to its end.
        let owner = metadata::of(&directory)?.uid;
        if !is_root() && owner != rustix::process::geteuid().as_raw() {
            return Ok(());
        }
        if let Some(user) = &wanted.attributes
            && metadata::attributes(&directory)?.user != *user
        {
            make_writable(self.live, path)?;
            metadata::replace_attributes(&directory, user)?;
        }
        metadata::give(directory, &wanted.metadata, rights)?;
        Ok(())
    }
}

/// Whether a step without the call for it was interrupted between the new name and the removal of the old one.
fn is_half_linked(to: EntryAt<'_>, staged: &Seen) -> Result<bool> {
    let live = to.find()?;
    let is_file = !staged.file_type().is_dir();
    Ok(is_file && live.is_some_and(|live| live.identity() == staged.identity()))
}

fn aside_name(number: usize, attempt: usize) -> CString {
    CString::new(format!("{number}-{attempt}")).expect("digits")
}

fn close_again(at: EntryAt<'_>, mode: Option<u32>) -> Result<()> {
    match mode {
        Some(mode) => set_mode(at.parent, at.name, mode),
        None => Ok(()),
    }
}

/// Moves a directory that cannot be renamed: makes another one, and moves what is in it until it can be removed.
fn move_parts(from: EntryAt<'_>, to: EntryAt<'_>) -> Result<()> {
    let source = from.open_directory()?;
    match fs::mkdirat(to.parent, to.name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    let target = to.open_directory()?;
    let (seen, user) = (metadata::of(&source)?, metadata::attributes(&source)?.user);
    for _ in 0..ATTEMPTS {
        let is_entry = |name: &[u8]| !matches!(name, b"." | b"..");
        for name in staging::named(&source, b"", is_entry)? {
            let part = EntryAt::new(&source, &name);
            let there = part.in_directory(&target);
            match part.rename_to(there) {
                Err(Errno::NOENT) => {}
                Err(Errno::XDEV) => move_parts(part, there)?,
                Err(Errno::EXIST) => move_again(part, &target)?,
                moved => moved?,
            }
        }
        match fs::unlinkat(from.parent, from.name, AtFlags::REMOVEDIR) {
            // Somebody put something into it meanwhile.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            removed => {
                removed?;
                metadata::give_user_attributes(&target, &user)?;
                metadata::give(&target, &seen.metadata(), Rights::of_this_process())?;
                return Ok(());
            }
        }
    }
    Err(Errno::BUSY)
}

/// Moves something whose name was moved before: a directory that was moved in part, or what somebody made anew since.
fn move_again(part: EntryAt<'_>, target: &OwnedFd) -> Result<()> {
    let is_directory = |at: EntryAt<'_>| {
        let seen = at.find();
        seen.map(|seen| seen.is_some_and(|seen| seen.file_type().is_dir()))
    };
    if is_directory(part)? && is_directory(part.in_directory(target))? {
        return move_parts(part, part.in_directory(target));
    }
    for attempt in 1..ATTEMPTS {
        let name = [part.name.to_bytes(), format!("~{attempt}").as_bytes()].concat();
        let name = c_name(name)?;
        match part.rename_to(EntryAt::new(target, &name)) {
            Err(Errno::EXIST) => {}
            moved => return moved,
        }
    }
    Err(Errno::EXIST)
}

/// What is at a path of a tree.
fn find(tree: &RootDir, path: &EntryPath) -> Result<Option<Seen>> {
    let (above, name) = split(path)?;
    match writable(tree, &above) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        above => root_dir::find(above?, &name),
    }
}

/// Opens a directory in which its owner may change something.
fn writable(tree: &RootDir, path: &EntryPath) -> Result<OwnedFd> {
    let opened = tree.directory(path.as_bytes());
    if is_root() {
        return opened;
    }
    match opened {
        Ok(opened) if metadata::of(&opened)?.raw_mode & 0o700 == 0o700 => Ok(opened),
        Ok(_) | Err(Errno::ACCESS) => {
            make_writable(tree, path)?;
            tree.directory(path.as_bytes())
        }
        Err(error) => Err(error),
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn split(path: &EntryPath) -> Result<(EntryPath, CString)> {
    let (above, name) = path.split_last().ok_or(Errno::INVAL)?;
    Ok((above, c_name(name)?))
}
