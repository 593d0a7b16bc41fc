//! What must be done to a live tree so that it becomes the staged one, and nothing else.
//!
//! Directory by directory the two are compared by name. What only one of them has is moved whole; what both have as a
//! directory is gone into; everything else is replaced unless it is the same already. Names of one file stay only if they
//! are names of one file on both sides, and of no other; names that a live file has outside the tree are nobody's concern.

use super::changes::RestoreChanges;
use super::contents::{ContentSide, are_same};
use super::error::RestoreError;
use super::journal::{Dress, Expected, JournalMark, JournalStep, RestoreJournal};
use super::permissions::{Permissions, make_writable};
use super::scope::{DATABASE_SUFFIXES, RestoreScope, Since};
use crate::fs::fd::c_name;
use crate::fs::metadata::{self, Rights, Seen};
use crate::fs::root_dir::{self, RootDir};
use crate::fs::staging;
use rustix::fs::{self, Access, AtFlags, FileType, Mode};
use rustix::io::Errno;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::tree::{EntryPath, Metadata};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering as Memory};

/// A directory that is on both sides.
#[derive(Debug)]
struct Pair {
    /// What it should have, and what it has.
    dress: Box<[Dress; 2]>,
    is_dressed: bool,
}

/// A name of a file with several, on one side or the other.
#[derive(Debug)]
struct PlannedName {
    path: EntryPath,
    /// The file that has it on the live side, if that is the same file.
    live: Option<Seen>,
    /// What has it on the live side, whatever it is.
    there: Option<Seen>,
    staged: u64,
    /// How many names the staged file has.
    links: u64,
}

/// What a plan is made for.
#[derive(Debug)]
pub(super) struct PlanInput<'a> {
    pub(super) live: &'a RootDir,
    pub(super) staged: &'a RootDir,
    pub(super) scope: &'a RestoreScope,
    pub(super) cancel: &'a AtomicBool,
    /// What the target is called: what is staged for it in the live root is no part of it.
    pub(super) own: &'a CStr,
    /// Whether we are staged in there ourselves.
    pub(super) is_inside: bool,
}

/// A directory of both trees, open.
#[derive(Clone, Copy)]
struct OpenSides<'a> {
    live: &'a OwnedFd,
    staged: &'a OwnedFd,
}

/// Makes the plan.
#[derive(Debug)]
pub(super) struct Planner<'a> {
    input: PlanInput<'a>,
    rights: Rights,
    changes: RestoreChanges,
    journal: RestoreJournal,
    pairs: HashMap<EntryPath, Pair>,
    linked: BTreeMap<u64, Vec<PlannedName>>,
    pending: Vec<EntryPath>,
    /// Which entries of the directory that is looked at come or go.
    touched: HashSet<EntryPath>,
    permissions: Permissions<'a>,
    /// What must not be replaced.
    barred: Vec<EntryPath>,
    /// How many entries of the directory that is looked at were right when they were seen.
    found_right: usize,
}

impl<'a> Planner<'a> {
    /// A plan for the live directory that is the inode `root`.
    pub(super) fn new(input: PlanInput<'a>, root: u64, mark: JournalMark) -> Self {
        let rights = Rights::of_this_process();
        let mut journal = RestoreJournal::new(root, rights, mark);
        journal.is_limited = input.scope.limits.only.is_some();
        Self {
            permissions: Permissions::new(input.live),
            input,
            rights,
            changes: RestoreChanges::default(),
            journal,
            pairs: HashMap::new(),
            linked: BTreeMap::new(),
            pending: vec![EntryPath::root()],
            touched: HashSet::new(),
            barred: Vec::new(),
            found_right: 0,
        }
    }

    /// Compares the trees; the journal has every step that is needed.
    pub(super) fn plan(mut self) -> Result<(RestoreJournal, RestoreChanges), RestoreError> {
        let root = EntryPath::root();
        let look = |tree: &RootDir| tree.directory(b"").and_then(|fd| metadata::of(&fd));
        let live = look(self.input.live).on("look at", &root)?;
        let staged = look(self.input.staged).on("look at", &root)?;
        if self.input.scope.limits.only.is_none() {
            self.pair(&root, &live, &staged)?;
        }
        while let Some(path) = self.pending.pop() {
            self.directory(&path)?;
        }
        if !self.barred.is_empty() {
            return Err(RestoreError::NotOurs(self.barred));
        }
        self.settle_links();
        self.dress();
        Ok((self.journal, self.changes))
    }

    /// Notes a directory that both have. `live` and `staged` were seen before it was opened.
    fn pair(&mut self, path: &EntryPath, live: &Seen, staged: &Seen) -> Result<(), RestoreError> {
        let user = |tree: &RootDir| {
            let opened = open(tree, path).and_then(metadata::attributes);
            let opened = opened.on("read the attributes of", path)?;
            Ok::<_, RestoreError>(opened.user)
        };
        let dress = |seen: &Seen, attributes| Dress {
            metadata: seen.metadata(),
            attributes: Some(attributes),
        };
        let dress = [
            dress(staged, user(self.input.staged)?),
            dress(live, user(self.input.live)?),
        ];
        let is_dressed = dress[0] != dress[1] || (path.is_root() && self.input.is_inside);
        if !self.permissions.is_own(path) {
            // Only its owner gives a directory permissions and times; nobody gives it away.
            let [wanted, has] = &dress;
            let same_owner = Metadata {
                uid: has.metadata.uid,
                gid: has.metadata.gid,
                ..wanted.metadata
            };
            if same_owner != has.metadata || wanted.attributes != has.attributes {
                self.changes.not_permitted.push(path.clone());
            }
            return Ok(());
        }
        let dress = Box::new(dress);
        self.pairs.insert(path.clone(), Pair { dress, is_dressed });
        Ok(())
    }

    fn directory(&mut self, path: &EntryPath) -> Result<(), RestoreError> {
        if self.input.cancel.load(Memory::Relaxed) {
            return Err(RestoreError::Cancelled);
        }
        let live = open(self.input.live, path).on("open", path)?;
        let staged = open(self.input.staged, path).on("open", path)?;
        let sides = OpenSides {
            live: &live,
            staged: &staged,
        };
        self.touched.clear();
        self.found_right = 0;
        if let Some((name, is_last)) = self.input.scope.next_to(path) {
            let name = CString::new(name).expect("no name of an entry has a NUL");
            self.on_the_way(path, &name, is_last, sides)?;
            return self.beside(is_last, |own, name| own.on_the_way(path, name, true, sides));
        }
        let own = Some(self.input.own).filter(|_| path.is_root());
        let mut here = names(&live, own).on("list", path)?.into_iter();
        let mut there = names(&staged, own).on("list", path)?.into_iter();
        let (mut one, mut other) = (here.next(), there.next());
        loop {
            let order = match (&one, &other) {
                (None, None) => {
                    if self.found_right < self.input.scope.right_in(path) {
                        // Something that was right is gone since, and was not staged.
                        self.changes.changed_meanwhile.push(path.clone());
                    }
                    return Ok(());
                }
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(one), Some(other)) => one.cmp(other),
            };
            let name = if order.is_gt() { &other } else { &one };
            let name = name.clone().expect("one of them is there");
            let child = child_of(path, &name)?;
            match order {
                Ordering::Less => self.only_live(child, &name, &live)?,
                Ordering::Greater => self.only_staged(child, &name, &staged)?,
                Ordering::Equal => self.both(&child, &name, sides)?,
            }
            if order.is_le() {
                one = here.next();
            }
            if order.is_ge() {
                other = there.next();
            }
        }
    }

    /// What is restored with the one entry, if that is the one.
    fn beside(
        &mut self,
        is_last: bool,
        mut each: impl FnMut(&mut Self, &CStr) -> Result<(), RestoreError>,
    ) -> Result<(), RestoreError> {
        let scope = self.input.scope;
        let beside = scope.limits.beside.iter().filter(|_| is_last);
        for (_, name) in beside.filter_map(EntryPath::split_last) {
            let name = CString::new(name).expect("no name of an entry has a NUL");
            each(self, &name)?;
        }
        Ok(())
    }

    /// One entry of a directory in which nothing else is restored.
    fn on_the_way(
        &mut self,
        path: &EntryPath,
        name: &CStr,
        is_last: bool,
        sides: OpenSides<'_>,
    ) -> Result<(), RestoreError> {
        let OpenSides { live, staged } = sides;
        let child = child_of(path, name)?;
        let look = |directory: &OwnedFd| root_dir::find(directory, name).on("look at", &child);
        match (look(live)?, look(staged)?, is_last) {
            (None, None, _) => {}
            (Some(_), None, true) => self.only_live(child, name, live)?,
            (None, Some(_), true) => self.only_staged(child, name, staged)?,
            (Some(_), Some(_), true) => self.both(&child, name, sides)?,
            (Some(seen), _, false) if !seen.file_type().is_dir() => {
                return Err(RestoreError::InTheWay(child));
            }
            (Some(_), None, false) => {
                let op = "find where it is staged:";
                return Err(Failure::from_io(Errno::NOENT, op, &child).into());
            }
            (Some(_), Some(_), false) => self.pending.push(child),
            (None, Some(_), false) => self.missing(child)?,
        }
        Ok(())
    }

    /// Makes the directories that lead to the one entry that is restored; they are what they are in the staged tree.
    fn missing(&mut self, mut path: EntryPath) -> Result<(), RestoreError> {
        while let Some((name, is_last)) = self
            .input
            .scope
            .next_to(&path)
            .map(|(name, is_last)| (CString::new(name).expect("no NUL"), is_last))
        {
            let staged = open(self.input.staged, &path).on("open", &path)?;
            let seen = metadata::of(&staged).on("look at", &path)?;
            let user = metadata::attributes(&staged).on("look at", &path)?;
            let dress = Dress {
                metadata: seen.metadata(),
                attributes: Some(user.user),
            };
            let dress = Box::new([dress.clone(), dress]);
            let is_dressed = true;
            self.pairs.insert(path.clone(), Pair { dress, is_dressed });
            self.journal.add(&JournalStep::Make(path.clone()));
            let child = child_of(&path, &name)?;
            if is_last {
                self.only_staged(child, &name, &staged)?;
                return self.beside(true, |own, name| {
                    let child = child_of(&path, name)?;
                    match root_dir::find(&staged, name) {
                        Ok(None) => Ok(()),
                        _ => own.only_staged(child, name, &staged),
                    }
                });
            }
            path = child;
        }
        Ok(())
    }

    fn only_live(
        &mut self,
        path: EntryPath,
        name: &CStr,
        live: &OwnedFd,
    ) -> Result<(), RestoreError> {
        let seen = metadata::look(live.as_fd(), name).ok();
        let is_preserved = seen.is_some_and(|seen| {
            let kind = seen.file_type();
            // No tree has these, so that none says that they should go.
            kind.is_socket()
                || kind.is_block_device()
                || kind.is_char_device()
                || self.input.scope.preserves(&path, &seen)
                || self.input.scope.is_unknown(&path)
                || self.input.scope.is_excepted(&path)
                || (self.input.scope.holds_excepted(&path) && !self.input.scope.limits.looks_into)
                || self.is_at_rest(&path, name, live)
        });
        let is_directory = seen.is_some_and(|seen| seen.file_type().is_dir());
        let since = self.input.scope.has(&path, seen.as_ref());
        if since == Some(Since::Changed) {
            self.changes.changed_meanwhile.push(path.clone());
        }
        self.found_right += usize::from(matches!(since, Some(Since::Same | Since::Changed)));
        if is_preserved || since.is_some() {
            self.changes.untouched += 1;
        } else if is_unreadable(seen.as_ref(), live, name) || !self.permissions.may_move(&path) {
            // No save could read it, or it cannot be moved: it is no more known than what a save leaves out.
            self.changes.not_permitted.push(path);
        } else if is_directory && self.input.scope.limits.looks_into && self.holds_what_stays(&path)
        {
            self.enter(path)?;
        } else {
            let closed: Vec<&Seen> = seen.iter().collect();
            self.note_closed(&path, &closed);
            self.step(&JournalStep::Remove(
                path,
                seen.as_ref().map(Expected::from),
            ));
            self.changes.removed += 1;
        }
        Ok(())
    }

    /// Whether something stays of a directory that the new tree does not have.
    fn holds_what_stays(&self, path: &EntryPath) -> bool {
        let Ok(directory) = open(self.input.live, path) else {
            return false;
        };
        let found = names(&directory, None).unwrap_or_default();
        found.iter().any(|name| {
            let seen = metadata::look(directory.as_fd(), name);
            let (Ok(child), Ok(seen)) = (path.child(name.to_bytes()), seen) else {
                return false;
            };
            self.input.scope.is_excepted(&child)
                || self.input.scope.preserves(&child, &seen)
                || is_unreadable(Some(&seen), &directory, name)
                || (seen.file_type().is_dir() && self.holds_what_stays(&child))
        })
    }

    /// Looks at each entry of such a directory, which stays; what goes needs a place in the staged tree.
    fn enter(&mut self, path: EntryPath) -> Result<(), RestoreError> {
        let (above, name) = path.split_last().unwrap_or_default();
        let made = open(self.input.staged, &above).and_then(|above| {
            let name = c_name(name)?;
            fs::mkdirat(above, &*name, Mode::RWXU)
        });
        match made {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(Failure::from_io(error, "stage", &path).into()),
        }
        self.changes.untouched += 1;
        self.pending.push(path);
        Ok(())
    }

    /// Whether it is what an open connection keeps beside a database that stays, with nothing in it that has not reached that.
    fn is_at_rest(&self, path: &EntryPath, name: &CStr, live: &OwnedFd) -> bool {
        let name = name.to_bytes();
        let is_of = |suffix: &[u8]| name.strip_suffix(suffix).filter(|base| !base.is_empty());
        let Some(base) = is_of(b"-wal").or_else(|| is_of(b"-shm")) else {
            return false;
        };
        let length = |suffix: &[u8]| {
            let name = CString::new([base, suffix].concat()).ok()?;
            let seen = root_dir::find(live, &name).ok()??;
            seen.file_type().is_file().then_some(seen.size)
        };
        let above = path.split_last().map(|(above, _)| above);
        let stays = above
            .and_then(|above| above.child(base).ok())
            .is_some_and(|base| !self.touched.contains(&base));
        stays && length(b"").is_some() && length(b"-wal").unwrap_or(0) == 0
    }

    fn only_staged(
        &mut self,
        path: EntryPath,
        name: &CStr,
        staged: &OwnedFd,
    ) -> Result<(), RestoreError> {
        if self.input.scope.is_excepted(&path) {
            return Ok(());
        }
        let seen = metadata::look(staged.as_fd(), name).on("look at", &path)?;
        if seen.file_type().is_file() && seen.links > 1 {
            self.name(path, &seen, None, None);
            return Ok(());
        }
        if seen.file_type().is_dir() {
            self.take_excepted_away(&path).on("leave out", &path)?;
            self.note_gone(&path);
        }
        self.place(path, &seen, None);
        Ok(())
    }

    /// Notes directories that are gone with entries that were right, and were not staged.
    fn note_gone(&mut self, directory: &EntryPath) {
        if self.input.scope.right_in(directory) > 0 {
            self.changes.changed_meanwhile.push(directory.clone());
        }
        let Ok(opened) = open(self.input.staged, directory) else {
            return;
        };
        for name in names(&opened, None).unwrap_or_default() {
            let seen = metadata::look(opened.as_fd(), &name);
            let is_directory = seen.is_ok_and(|seen| seen.file_type().is_dir());
            if let (true, Ok(child)) = (is_directory, directory.child(name.to_bytes())) {
                self.note_gone(&child);
            }
        }
    }

    /// What is left as it is does not come with a directory that is missing.
    fn take_excepted_away(&self, directory: &EntryPath) -> rustix::io::Result<()> {
        let except = self.input.scope.limits.except.iter();
        for path in except.filter(|path| path.is_within(directory)) {
            let (above, name) = path.split_last().unwrap_or_default();
            let above = match open(self.input.staged, &above) {
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                above => above?,
            };
            for suffix in [&b""[..]].iter().chain(&DATABASE_SUFFIXES) {
                let name = c_name([name, suffix].concat())?;
                match root_dir::find(&above, &name)? {
                    None => {}
                    Some(seen) if seen.file_type().is_dir() => {
                        crate::fs::remove::tree(&above, &name)?;
                    }
                    Some(_) => fs::unlinkat(&above, &*name, AtFlags::empty())?,
                }
            }
        }
        Ok(())
    }

    fn both(
        &mut self,
        path: &EntryPath,
        name: &CStr,
        sides: OpenSides<'_>,
    ) -> Result<(), RestoreError> {
        let OpenSides { live, staged } = sides;
        let wanted = metadata::look(staged.as_fd(), name).on("look at", path)?;
        let seen = match metadata::look(live.as_fd(), name) {
            Err(Errno::NOENT) => return self.only_staged(path.clone(), name, staged),
            seen => seen.on("look at", path)?,
        };
        if self.input.scope.is_excepted(path) {
            self.changes.untouched += 1;
            return Ok(());
        }
        let (was_directory, will_be) = (seen.file_type().is_dir(), wanted.file_type().is_dir());
        let must_stay =
            self.input.scope.preserves(path, &seen) || self.input.scope.holds_excepted(path);
        if was_directory && !will_be && must_stay {
            // What must stay is in it, and the new tree has no room for it.
            let op = "replace, because of what is in it,";
            return Err(Failure::from_io(Errno::NOTEMPTY, op, path).into());
        }
        if was_directory && will_be {
            if seen.is_mount {
                return Ok(()); // looked at before: nothing of the tree is in it
            }
            if seen.device != self.input.live.device() {
                // A btrfs subvolume: nothing can be moved into it.
                let path = OsStr::from_bytes(path.as_bytes());
                return Err(RestoreError::MountInside(path.into()));
            }
            // One that its owner may not read is replaced whole.
            if open(self.input.live, path).is_ok() {
                unlock(self.input.staged, path, &wanted).on("open", path)?;
                self.pair(path, &seen, &wanted)?;
                self.pending.push(path.clone());
                return Ok(());
            }
        }
        let mine = ContentSide::new(self.input.live, live, seen);
        let theirs = ContentSide::new(self.input.staged, staged, wanted);
        let same = !was_directory && self.is_same(path, name, &mine, &theirs)?;
        if !same && self.input.scope.is_left_alone(path, &seen) {
            self.changes.left_alone.push(path.clone());
            return Ok(());
        }
        if !same
            && self.input.scope.limits.looks_into
            && Self::is_anothers_secret(&seen, live, name)
        {
            self.barred.push(path.clone());
        }
        let has_names = wanted.links > 1 || (same && seen.links > 1);
        if wanted.file_type().is_file() && has_names {
            self.name(path.clone(), &wanted, same.then_some(seen), Some(seen));
            return Ok(());
        }
        if same {
            self.changes.untouched += 1;
            return Ok(());
        }
        self.place(path.clone(), &wanted, Some(&seen));
        Ok(())
    }

    /// Whether a file belongs to another user and may not be read, so that nothing but the backup would have it.
    fn is_anothers_secret(seen: &Seen, live: &OwnedFd, name: &CStr) -> bool {
        let own = rustix::process::geteuid().as_raw();
        seen.file_type().is_file() && seen.uid != own && is_unreadable(Some(seen), live, name)
    }

    fn is_same(
        &self,
        path: &EntryPath,
        name: &CStr,
        mine: &ContentSide<'_>,
        theirs: &ContentSide<'_>,
    ) -> Result<bool, RestoreError> {
        match are_same(name, mine, theirs, self.input.cancel) {
            Err(Errno::CANCELED) => Err(RestoreError::Cancelled),
            same => Ok(same.on("compare", path)?),
        }
    }

    fn name(&mut self, path: EntryPath, staged: &Seen, live: Option<Seen>, there: Option<Seen>) {
        self.touched.insert(path.clone());
        let names = self.linked.entry(staged.inode).or_default();
        names.push(PlannedName {
            path,
            live,
            there,
            staged: staged.inode,
            links: staged.links,
        });
    }

    /// Decides on files with several names, now that all of them are known.
    fn settle_links(&mut self) {
        let mut claimed = HashSet::new();
        for names in std::mem::take(&mut self.linked).into_values() {
            let live = |name: &PlannedName| name.live.map(|seen| seen.identity());
            let first = live(&names[0]);
            let is_one_file = names.iter().all(|name| live(name) == first);
            // A further name comes with a directory that is missing.
            let are_all = names[0].links <= names.len() as u64;
            if let Some(file) = first
                && is_one_file
                && are_all
                && claimed.insert(file)
            {
                self.changes.untouched += names.len() as u64;
                continue;
            }
            for name in names {
                let expected = name.there.as_ref().map(Expected::from);
                self.step(&JournalStep::Place(name.path, name.staged, expected));
                self.changes.placed += 1;
            }
        }
    }

    fn place(&mut self, path: EntryPath, staged: &Seen, live: Option<&Seen>) {
        let both: Vec<&Seen> = [Some(staged), live].into_iter().flatten().collect();
        self.note_closed(&path, &both);
        self.step(&JournalStep::Place(
            path,
            staged.inode,
            live.map(Expected::from),
        ));
        self.changes.placed += 1;
    }

    /// A directory can be moved only by somebody who may write in it: one that its owner may not write in gets its permissions
    /// again where it arrives, now or when this is taken back. One that is exchanged may get another time by that.
    fn note_closed(&mut self, path: &EntryPath, seen: &[&Seen]) {
        let is_directory = |seen: &&&Seen| seen.file_type().is_dir();
        let mut directories = seen.iter().filter(is_directory);
        let is_closed = directories
            .clone()
            .any(|seen| seen.raw_mode & 0o700 != 0o700);
        let is_noted = is_closed && self.rights == Rights::Own || seen.len() > 1;
        if let (true, Some(first)) = (is_noted, directories.next()) {
            let last = directories.next().unwrap_or(first);
            let dress = Box::new([*first, *last].map(|seen| Dress {
                metadata: seen.metadata(),
                attributes: None,
            }));
            let is_dressed = true;
            self.pairs.insert(path.clone(), Pair { dress, is_dressed });
        }
    }

    fn step(&mut self, step: &JournalStep) {
        let (JournalStep::Remove(path, _) | JournalStep::Place(path, ..)) = step else {
            return self.journal.add(step);
        };
        let above = path
            .split_last()
            .map(|(above, _)| above)
            .unwrap_or_default();
        if let Some(pair) = self.pairs.get_mut(&above) {
            pair.is_dressed = true;
        }
        self.touched.insert(path.clone());
        self.journal.add(step);
    }

    /// In the end directories get what they should have, each before the one it lies in.
    fn dress(&mut self) {
        let pairs = std::mem::take(&mut self.pairs).into_iter();
        let mut dressed: Vec<(EntryPath, Box<[Dress; 2]>)> = pairs
            .filter(|(_, pair)| pair.is_dressed)
            .map(|(path, pair)| (path, pair.dress))
            .collect();
        dressed.sort_by_cached_key(|(path, _)| Reverse((path.components().count(), path.clone())));
        self.changes.dressed = dressed.len() as u64;
        for (path, dress) in dressed {
            self.journal.add(&JournalStep::Dress(path, dress));
        }
    }
}

/// Whether nobody but its owner, or not even that one, may read an entry.
fn is_unreadable(seen: Option<&Seen>, live: &OwnedFd, name: &CStr) -> bool {
    let what = match seen.map(Seen::file_type) {
        Some(FileType::RegularFile) => Access::READ_OK,
        Some(FileType::Directory) => Access::READ_OK | Access::EXEC_OK,
        _ => return false,
    };
    fs::accessat(live, name, what, AtFlags::empty()) == Err(Errno::ACCESS)
}

/// The path of an entry of a directory.
fn child_of(directory: &EntryPath, name: &CStr) -> Result<EntryPath, Failure> {
    let child = directory.child(name.to_bytes()).ok();
    child.ok_or(Errno::INVAL).on("name an entry of", directory)
}

/// Opens a directory for reading.
fn open(tree: &RootDir, path: &EntryPath) -> rustix::io::Result<OwnedFd> {
    tree.directory(path.as_bytes())
}

/// Makes a directory of a tree of ours one that its owner can read and change; what it was is known.
fn unlock(tree: &RootDir, path: &EntryPath, seen: &Seen) -> rustix::io::Result<()> {
    if seen.raw_mode & 0o700 == 0o700 || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    make_writable(tree, path)
}

/// What is in a directory, in order, without what is staged or kept there for a target of that name.
fn names(directory: &OwnedFd, without: Option<&CStr>) -> rustix::io::Result<Vec<CString>> {
    let is_staged = |name: &[u8]| without.is_some_and(|own| staging::is_own_for(own, name));
    let is_entry = |name: &[u8]| !matches!(name, b"." | b"..") && !is_staged(name);
    let mut names = staging::named(directory, b"", is_entry)?;
    names.sort_unstable();
    Ok(names)
}
