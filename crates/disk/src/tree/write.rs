//! The one writer of the house: every tree that is restored or unpacked is written through it.
//!
//! It writes into an empty directory that only we enter. Entries come from several workers at once and in any order.
//!
//! 1. directories and files as they come; a directory that something lies in is made on demand, closed to others
//! 2. [`TreeWriter::finish`]: hard links   3. named pipes   4. symbolic links
//! 5. owner, permissions and time of the directories, each before the one it lies in; the root is the last
//!
//! *Always true:* while anything is opened there is no symbolic link in the tree, and every open starts at the root
//! and would not follow one. No name is used twice. Nothing is made durable here: whoever calls syncs once.
//!
//! What is kept in memory is a packed record per directory and per entry that is made in the end, nothing per file.

mod directories;
mod file;
mod finish;
mod places;
mod report;

pub use crate::tree::content::Filled;
pub use file::NewFile;
pub use report::{TreeWriteError, WriteReport};

use crate::fs::metadata::{self, Has, Rights};
use crate::fs::root_dir::{Mounts, RootDir};
use crate::fs::sys::access_list;
use crate::progress::Progress;
use crate::worker_pool::lock;
use directories::{Directories, DirectoryState, Index, Later, ROOT, Waiting};
use places::WritePlace;
use report::WriteCounts;
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use stasis_model::failure::AtPath;
use stasis_model::tree::{Attribute, Entry, EntryKind, EntryPath, Metadata, acl};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// What most files have in the end: no need to give it to them.
const FILE_MODE: u32 = 0o644;
/// What a directory has while things are put into it, at least.
const DIRECTORY_MODE: u32 = 0o700;
/// How many workers have a place of their own where the directory they write in stays open.
const WORKERS: usize = 32;
/// In how many directories others may be made at once.
const MAKING: usize = 32;

/// How a tree is written.
#[derive(Clone, Debug)]
pub struct WriteSettings {
    /// Whether owners, setuid and setgid are given; what is withheld is counted.
    pub rights: Rights,
    /// What the tree must not exceed.
    pub limits: WriteLimits,
    /// Set by anybody at any time to end the writing soon.
    pub cancel: Arc<AtomicBool>,
    /// Where files and bytes are counted while they are written.
    pub progress: Arc<Progress>,
}

impl Default for WriteSettings {
    fn default() -> Self {
        Self {
            rights: Rights::of_this_process(),
            limits: WriteLimits::default(),
            cancel: Arc::default(),
            progress: Arc::default(),
        }
    }
}

/// What a tree must not exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteLimits {
    /// Entries of any kind; at most four billion.
    pub entries: u64,
    /// The length of all files, holes included.
    pub bytes: u64,
    /// How many directories may lie inside one another.
    pub deepest: usize,
}

impl Default for WriteLimits {
    fn default() -> Self {
        Self {
            entries: 100_000_000,
            bytes: u64::MAX >> 1,
            deepest: 1000,
        }
    }
}

/// A tree that is being written.
#[derive(Debug)]
pub struct TreeWriter {
    target: RootDir,
    settings: WriteSettings,
    made: MadeEntries,
    directories: Mutex<Directories>,
    /// Whoever makes a directory holds the lock of the one it lies in, until it is known: nobody makes it a second time.
    making: [Mutex<()>; MAKING],
    hard_links: Mutex<Later>,
    fifos: Mutex<Later>,
    symlinks: Mutex<Later>,
    /// Access lists of directories, which few have.
    access: Mutex<HashMap<EntryPath, Vec<Attribute>>>,
    /// The directory that each worker wrote in last.
    places: [Mutex<Option<WritePlace>>; WORKERS],
    counts: WriteCounts,
}

/// What a file has when it was just made here.
#[derive(Clone, Copy, Debug)]
struct MadeEntries {
    owner: Has,
    /// Permissions that are taken from whatever we make.
    withheld: u32,
}

impl MadeEntries {
    /// Makes one, to see what it has: umask, access lists and mount options all have a say.
    fn probe(root: &OwnedFd) -> rustix::io::Result<Self> {
        if fs::fstat(root)?.st_mode & 0o7777 != DIRECTORY_MODE {
            fs::fchmod(root, Mode::RWXU)?; // not setgid, which everything in it would inherit
        }
        // Nor a list of rights that everything in it would inherit; where there is none, that is what we want.
        let _ = access_list::remove_inherited(root);
        let name = c".stasis-probe";
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let probe = fs::openat(root, name, flags, Mode::from_raw_mode(0o777))?;
        fs::unlinkat(root, name, AtFlags::empty())?;
        let Metadata { mode, uid, gid, .. } = metadata::of(&probe)?.metadata();
        Ok(Self {
            owner: Has { uid, gid, mode },
            withheld: 0o777 & !mode,
        })
    }

    /// What something made with `mode` has.
    fn mode(&self, mode: u32) -> u32 {
        mode & !self.withheld
    }
}

impl TreeWriter {
    /// Begins a tree in an empty directory that nobody else enters.
    pub fn new(root: OwnedFd, mut settings: WriteSettings) -> Result<Self, TreeWriteError> {
        let top = EntryPath::root();
        let made = MadeEntries::probe(&root).on("prepare", &top)?;
        let target = RootDir::new(root, Mounts::Stay);
        let target = target.on("look at", &top)?;
        settings.limits.entries = settings.limits.entries.min(u64::from(Index::MAX) - 1);
        Ok(Self {
            target,
            settings,
            made,
            directories: Mutex::new(Directories::new()),
            making: std::array::from_fn(|_| Mutex::default()),
            hard_links: Mutex::default(),
            fifos: Mutex::default(),
            symlinks: Mutex::default(),
            access: Mutex::default(),
            places: std::array::from_fn(|_| Mutex::default()),
            counts: WriteCounts::default(),
        })
    }

    /// Takes an entry whose bytes are not in question; a file is begun with [`TreeWriter::file`].
    pub fn entry(&self, entry: &Entry) -> Result<(), TreeWriteError> {
        let (path, metadata) = (&entry.path, &entry.metadata);
        match &entry.kind {
            EntryKind::Directory => self.directory(path, metadata, &entry.attributes),
            EntryKind::Symlink { target } => self.symlink(path, target, metadata),
            EntryKind::HardLink { to } => self.hard_link(path, to),
            EntryKind::Fifo => self.fifo(path, metadata),
            _ => Err(Errno::INVAL).on("put back", path)?,
        }
    }

    /// Makes a directory; its owner, permissions and time it gets in the end. The root may be announced too.
    pub fn directory(
        &self,
        path: &EntryPath,
        metadata: &Metadata,
        attributes: &[Attribute],
    ) -> Result<(), TreeWriteError> {
        self.go_on()?;
        self.check_depth(path)?;
        let Some((above, name)) = path.split_last() else {
            let is_first = lock(&self.directories).announce(ROOT, metadata);
            return self.announced(is_first, path, attributes);
        };
        let place = self.place(above)?;
        let making = self.making_in(place.index);
        let mut directories = lock(&self.directories);
        if let Some(made) = directories.find(path.as_bytes()) {
            let is_first = directories.announce(made, metadata);
            drop((directories, making));
            return self.announced(is_first, path, attributes);
        }
        drop(directories);
        self.count_entry()?;
        // Nobody gets past the root, so it may be open to others from the start.
        let permissions = Mode::from_raw_mode(metadata.mode & 0o777 | DIRECTORY_MODE);
        match fs::mkdirat(&place.fd, name, permissions) {
            Err(Errno::EXIST) => return Err(TreeWriteError::Duplicate(path.clone())),
            made => made.on("make the directory", path)?,
        }
        let name_at = path.as_bytes().len() - name.len();
        let state = DirectoryState::Announced(*metadata);
        lock(&self.directories).add(place.index, path.as_bytes(), name_at, state);
        drop(making);
        self.announced(true, path, attributes)
    }

    fn announced(
        &self,
        is_first: bool,
        path: &EntryPath,
        attributes: &[Attribute],
    ) -> Result<(), TreeWriteError> {
        if !is_first {
            return Err(TreeWriteError::Duplicate(path.clone()));
        }
        if attributes.is_empty() {
            return Ok(());
        }
        let opened = self.target.directory(path.as_bytes());
        let opened = opened.on("open", path)?;
        let refused = metadata::give_user_attributes(&opened, attributes);
        let refused = refused.on("set the attributes of", path)?;
        self.counts.attributes_not_kept.add(refused);
        let access = attributes.iter().filter(|one| acl::is_access(&one.name));
        let access: Vec<Attribute> = access.cloned().collect();
        if !access.is_empty() {
            // Not yet: what is made in it would inherit, and owner and permissions come last.
            lock(&self.access).insert(path.clone(), access);
        }
        Ok(())
    }

    fn making_in(&self, above: Index) -> MutexGuard<'_, ()> {
        lock(&self.making[above as usize % MAKING])
    }

    /// Tells whoever watches how much there will be.
    pub fn expect(&self, files: u64, bytes: u64) {
        self.settings.progress.expect(files, bytes);
    }

    /// Counts a file of that length as done that need not be written: it is right where it is, or has another name.
    pub fn has_left(&self, bytes: u64) {
        self.settings.progress.advance(1, bytes);
    }

    /// Refuses to go on when the filesystem has less room than so many bytes need, before any of them is written.
    pub fn check_room(&self, needed: u64) -> Result<(), TreeWriteError> {
        let root = EntryPath::root();
        let seen = self.target.directory(b"").and_then(fs::fstatvfs);
        let seen = seen.on("measure the free space of", &root)?;
        let blocks = if rustix::process::geteuid().is_root() {
            seen.f_bfree
        } else {
            seen.f_bavail
        };
        let free = blocks.saturating_mul(seen.f_frsize);
        if needed > free {
            return Err(TreeWriteError::NoRoom { needed, free });
        }
        Ok(())
    }

    /// Makes a regular file of `size` bytes, all of them a hole.
    pub fn file(&self, path: &EntryPath, size: u64) -> Result<NewFile<'_>, TreeWriteError> {
        self.go_on()?;
        self.count_entry()?;
        let announced = &self.counts.bytes_announced;
        let before = announced.fetch_add(size, Ordering::Relaxed);
        let limit = self.settings.limits.bytes;
        if before.checked_add(size).is_none_or(|bytes| bytes > limit) {
            return Err(TreeWriteError::TooManyBytes(limit));
        }
        let (above, name) = named(path)?;
        let place = self.place(above)?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match fs::openat(&place.fd, name, flags, Mode::from_raw_mode(FILE_MODE)) {
            Err(Errno::EXIST) => return Err(self.taken(path)),
            fd => fd.on("create", path)?,
        };
        self.counts.files_begun.add(1);
        Ok(NewFile {
            writer: self,
            path: path.clone(),
            size,
            fd,
            end: AtomicU64::new(0),
            reported: AtomicU64::new(0),
        })
    }

    /// Remembers a symbolic link: it is made in the end, so that nothing ever passes through it.
    pub fn symlink(
        &self,
        path: &EntryPath,
        target: &[u8],
        metadata: &Metadata,
    ) -> Result<(), TreeWriteError> {
        self.wait(&self.symlinks, path, target, metadata)
    }

    /// Remembers another name of a file of this tree, which may come later than its names.
    pub fn hard_link(&self, path: &EntryPath, to: &EntryPath) -> Result<(), TreeWriteError> {
        self.wait(&self.hard_links, path, to.as_bytes(), &Metadata::default())
    }

    /// Remembers a named pipe.
    pub fn fifo(&self, path: &EntryPath, metadata: &Metadata) -> Result<(), TreeWriteError> {
        self.wait(&self.fifos, path, b"", metadata)
    }

    fn wait(
        &self,
        later: &Mutex<Later>,
        path: &EntryPath,
        leads_to: &[u8],
        metadata: &Metadata,
    ) -> Result<(), TreeWriteError> {
        self.go_on()?;
        self.count_entry()?;
        let (above, name) = named(path)?;
        let above = self.place(above)?.index;
        lock(later).add(Waiting {
            above,
            name,
            leads_to,
            metadata: *metadata,
        });
        Ok(())
    }

    fn go_on(&self) -> Result<(), TreeWriteError> {
        if self.settings.cancel.load(Ordering::Relaxed) {
            return Err(TreeWriteError::Cancelled);
        }
        Ok(())
    }

    fn check_depth(&self, directory: &EntryPath) -> Result<(), TreeWriteError> {
        let limit = self.settings.limits.deepest;
        if directory.components().count() > limit {
            let top = directory.components().next().unwrap_or_default();
            let top = EntryPath::parse(top).unwrap_or_default();
            return Err(TreeWriteError::TooDeep { limit, top });
        }
        Ok(())
    }

    fn count_entry(&self) -> Result<(), TreeWriteError> {
        let limit = self.settings.limits.entries;
        if self.counts.entries.next() > limit {
            return Err(TreeWriteError::TooManyEntries(limit));
        }
        Ok(())
    }

    /// Why nothing can be made at `path`, where something is.
    fn taken(&self, path: &EntryPath) -> TreeWriteError {
        let directories = lock(&self.directories);
        let made = directories.find(path.as_bytes());
        match made.map(|made| directories.state(made)) {
            Some(DirectoryState::Unannounced) => TreeWriteError::NotDirectory(path.clone()),
            _ => TreeWriteError::Duplicate(path.clone()),
        }
    }
}

/// The directory an entry lies in, and its name; the root is there already.
fn named(path: &EntryPath) -> Result<(EntryPath, &[u8]), TreeWriteError> {
    path.split_last()
        .ok_or_else(|| TreeWriteError::Duplicate(path.clone()))
}

#[cfg(test)]
mod tests;
