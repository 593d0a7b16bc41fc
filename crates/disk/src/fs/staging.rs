//! Where a tree grows until it is whole.
//!
//! A staging directory is called `.NAME.stasis-tmp-PID`, only its owner enters it, and it is locked as long as its maker
//! lives. Whoever makes the next one for the same name removes those that nobody holds any more.
//!
//! That of a restore in place is called `.NAME.stasis-tmp-in-PID`. If it has a journal it is not garbage: it must be
//! brought to its end. The name says so because nothing in it can: any other is the tree itself, which may have a
//! file `journal` of its own.
//!
//! What a restore in place replaced is kept in `.NAME.stasis-backup-N`, the same directory under another name: it is
//! never garbage while it has a journal, or a file `undo` that says how to take the restore back.

use crate::fs::fd::{c_name, open_dir_in, reopen_dir};
use crate::fs::lock_file::{try_lock, try_lock_if_supported};
use crate::fs::sys::listing::Listing;
use crate::fs::sys::sync;
use crate::fs::{metadata, root_dir};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, Result};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What is in a staging directory that must not be removed.
pub(crate) const JOURNAL: &CStr = c"journal";
/// How what a restore in place did is taken back; neither must it be removed.
pub(crate) const UNDO: &CStr = c"undo";
/// The longest part of the final name that the temporary one repeats.
const REPEATED: usize = 200;
/// How many trees somebody with our process id may hold.
const HELD: usize = 1000;
/// What the kernel fills with names in one call.
const BUFFER: usize = 32 << 10;
const IN_NAMES: &str = ".stasis-tmp-";
/// What follows in the name of a directory that may have a journal.
const IN_PLACE: &str = "in-";
const BACKUP: &str = ".stasis-backup-";
/// What matches the names of everything of ours that may lie in somebody's tree.
pub const OWN_PATTERNS: [&str; 2] = [".*.stasis-tmp-*", ".*.stasis-backup-*"];

/// What our own names beside `name` begin with: the same for no other name, and never too long.
pub(crate) fn stem(name: &CStr) -> Vec<u8> {
    let name = name.to_bytes();
    let mut stem = vec![b'.'];
    if name.len() <= REPEATED {
        stem.extend_from_slice(name);
    } else {
        stem.extend_from_slice(&name[..REPEATED - 20]);
        stem.push(b'~');
        stem.extend_from_slice(&blake3::hash(name).to_hex().as_bytes()[..16]);
    }
    stem
}

/// A directory beside the target, or in it, that only we enter. Dropped before it is published, it is removed.
#[derive(Debug)]
pub(crate) struct Staging {
    parent: OwnedFd,
    temp: CString,
    root: OwnedFd,
    is_ours: bool,
    /// Whether it lies in a tree that should not show that it did.
    is_inside: bool,
}

impl Staging {
    /// Makes `.NAME.stasis-tmp-PID` in `parent`, when what the dead left there has been removed.
    pub(crate) fn make(parent: OwnedFd, name: &CStr) -> Result<Self> {
        Self::make_by(parent, name, make_directory)
    }

    /// The same with a directory that `create` makes: it says [`Errno::EXIST`] when the name is taken.
    pub(crate) fn make_by(
        parent: OwnedFd,
        name: &CStr,
        create: impl Fn(BorrowedFd<'_>, &CStr) -> Result<()>,
    ) -> Result<Self> {
        let names = fresh_names(name);
        Self::make_as(parent, name, names, create)
    }

    /// Makes one that may have a journal: `.NAME.stasis-tmp-in-PID`.
    pub(crate) fn make_for_moves(parent: OwnedFd, name: &CStr) -> Result<Self> {
        let names = names_with(name, IN_PLACE);
        Self::make_as(parent, name, names, make_directory)
    }

    fn make_as(
        parent: OwnedFd,
        name: &CStr,
        names: impl Iterator<Item = CString>,
        create: impl Fn(BorrowedFd<'_>, &CStr) -> Result<()>,
    ) -> Result<Self> {
        collect(&parent, name);
        for temp in names {
            match create(parent.as_fd(), &temp) {
                Err(Errno::EXIST) => continue,
                made => made?,
            }
            let root = match open_dir_in(&parent, &*temp) {
                Ok(root) => root,
                Err(Errno::NOENT) => continue,
                Err(error) => {
                    let _ = crate::fs::remove::tree(&parent, &temp);
                    return Err(error);
                }
            };
            // Somebody who clears up may have taken it for one of the dead before it was locked.
            // A filesystem without locks has nobody who clears up either.
            if !try_lock_if_supported(&root) || !is_called(&parent, &temp, &root)? {
                continue;
            }
            return Ok(Self {
                parent,
                temp,
                root,
                is_ours: true,
                is_inside: false,
            });
        }
        Err(Errno::EXIST)
    }

    /// The same in the tree itself, whose root keeps its time.
    pub(crate) fn make_inside(root: OwnedFd, name: &CStr) -> Result<Self> {
        let again = root.try_clone().map_err(|_| Errno::MFILE)?;
        let mut made = keeping_time(&again, || Self::make_for_moves(root, name))?;
        made.is_inside = true;
        Ok(made)
    }

    /// Whether it lies in the tree itself.
    pub(crate) fn is_inside(&self) -> bool {
        self.is_inside
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    pub(crate) fn parent(&self) -> BorrowedFd<'_> {
        self.parent.as_fd()
    }

    /// What it is called now.
    pub(crate) fn name(&self) -> &CStr {
        &self.temp
    }

    /// Makes everything in it durable.
    pub(crate) fn sync(&self) -> Result<()> {
        sync::filesystem(&self.root)
    }

    /// Gives the tree its name; [`Errno::EXIST`] when something has it already.
    pub(crate) fn publish(&mut self, name: &CStr) -> Result<()> {
        self.rename(name)?;
        self.is_ours = false;
        Ok(())
    }

    /// Gives it another name under which it is still removed if nothing comes of it.
    pub(crate) fn rename(&mut self, name: &CStr) -> Result<()> {
        let (parent, temp) = (&self.parent, &*self.temp);
        match fs::renameat_with(parent, temp, parent, name, RenameFlags::NOREPLACE) {
            // A filesystem that does not know the flag. A directory never replaces a file or a directory with content.
            Err(Errno::INVAL | Errno::NOSYS) => {
                if root_dir::find(parent, name)?.is_some() {
                    return Err(Errno::EXIST);
                }
                fs::renameat(parent, temp, parent, name)?;
            }
            renamed => renamed?,
        }
        name.clone_into(&mut self.temp);
        Ok(())
    }

    /// Leaves what is there to others.
    pub(crate) fn disarm(&mut self) {
        self.is_ours = false;
    }

    /// Makes the name durable.
    pub(crate) fn sync_name(&self) -> Result<()> {
        fs::fsync(&self.parent)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Under its name there may be something else by now: the tree it was exchanged for.
        let is_there = is_called(&self.parent, &self.temp, &self.root);
        if self.is_ours && is_there == Ok(true) {
            // What made us give up is the failure to tell; a tree that stays is only untidy.
            let remove = || crate::fs::remove::tree(&self.parent, &self.temp);
            let _ = if self.is_inside {
                keeping_time(&self.parent, remove)
            } else {
                remove()
            };
        }
    }
}

/// Changes what is in a directory without showing it in the directory's time.
pub(crate) fn keeping_time<T>(
    directory: &OwnedFd,
    change: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let before = metadata::of(directory)?.modified;
    let changed = change();
    // It is only the time: what was done counts.
    let _ = metadata::give_time(directory, before);
    changed
}

/// Names that nobody alive has taken, most likely the first.
pub(crate) fn fresh_names(name: &CStr) -> impl Iterator<Item = CString> {
    names_with(name, "")
}

fn make_directory(parent: BorrowedFd<'_>, temp: &CStr) -> Result<()> {
    fs::mkdirat(parent, temp, Mode::RWXU)
}

fn names_with(name: &CStr, kind: &'static str) -> impl Iterator<Item = CString> {
    let stem = stem(name);
    let pid = rustix::process::getpid().as_raw_nonzero();
    (0..HELD).filter_map(move |attempt| {
        let mut temp = stem.clone();
        temp.extend_from_slice(format!("{IN_NAMES}{kind}{pid}").as_bytes());
        if attempt > 0 {
            temp.extend_from_slice(format!("-{attempt}").as_bytes());
        }
        CString::new(temp).ok()
    })
}

/// Whether that is still the name of what was opened.
pub(crate) fn is_called(parent: impl AsFd, name: &CStr, fd: &OwnedFd) -> Result<bool> {
    let named = root_dir::find(parent, name)?.map(|seen| seen.identity());
    Ok(named == Some(metadata::of(fd)?.identity()))
}

/// Something that a dead process left behind, locked by us.
#[derive(Debug)]
pub(crate) struct Leftover {
    pub(crate) name: CString,
    pub(crate) fd: OwnedFd,
    is_directory: bool,
    /// Whether a file `journal` in it is ours.
    is_for_moves: bool,
}

impl Leftover {
    /// Whether it is a restore in place that must be brought to its end, or what one replaced.
    pub(crate) fn is_journalled(&self) -> bool {
        let has = |name| root_dir::find(&self.fd, name) != Ok(None);
        self.is_directory && self.is_for_moves && (has(JOURNAL) || has(UNDO))
    }

    /// Removes it.
    pub(crate) fn remove(self, parent: impl AsFd) -> Result<()> {
        if self.is_directory {
            return crate::fs::remove::tree(parent, &self.name);
        }
        fs::unlinkat(parent, &*self.name, AtFlags::empty())
    }
}

fn prefix(name: &CStr) -> Vec<u8> {
    let mut prefix = stem(name);
    prefix.extend_from_slice(IN_NAMES.as_bytes());
    prefix
}

fn is_number(part: &[u8]) -> bool {
    !part.is_empty() && part.iter().all(u8::is_ascii_digit)
}

/// Whether a temporary name of ours goes on like that: maybe what it is for, a process id, and maybe an attempt.
fn is_temporary(rest: &[u8]) -> bool {
    let rest = rest.strip_prefix(IN_PLACE.as_bytes()).unwrap_or(rest);
    rest.splitn(2, |byte| *byte == b'-').all(is_number)
}

/// Whether `found` is a temporary name that somebody made for `name`.
pub(crate) fn is_temporary_for(name: &CStr, found: &[u8]) -> bool {
    found.strip_prefix(&*prefix(name)).is_some_and(is_temporary)
}

/// Whether `found` is a name that we made for `name`: a temporary one, or that of a backup.
pub(crate) fn is_own_for(name: &CStr, found: &[u8]) -> bool {
    let number = found.strip_prefix(&*backup_prefix(name));
    is_temporary_for(name, found) || number.is_some_and(is_number)
}

fn backup_prefix(name: &CStr) -> Vec<u8> {
    let mut prefix = stem(name);
    prefix.extend_from_slice(BACKUP.as_bytes());
    prefix
}

/// Whether a name is that of a backup, of whatever.
pub(crate) fn is_backup(name: &[u8]) -> bool {
    let parts = name.strip_prefix(b".").and_then(|rest| {
        let at = rest
            .windows(BACKUP.len())
            .rposition(|part| part == BACKUP.as_bytes())?;
        Some(&rest[at + BACKUP.len()..])
    });
    parts.is_some_and(is_number)
}

/// The backups of `name` in `parent`, by their numbers.
pub(crate) fn backups(parent: impl AsFd, name: &CStr) -> Result<Vec<(u64, CString)>> {
    let prefix = backup_prefix(name);
    let found = named(parent, &prefix, is_number)?.into_iter();
    let numbered = found.filter_map(|name| {
        let digits = std::str::from_utf8(&name.to_bytes()[prefix.len()..]).ok()?;
        Some((digits.parse().ok()?, name))
    });
    let mut numbered: Vec<(u64, CString)> = numbered.collect();
    numbered.sort_unstable();
    Ok(numbered)
}

/// Gives a directory of ours the name of a new backup of `name` in `parent`.
pub(crate) fn rename_to_backup(
    from: BorrowedFd<'_>,
    old: &CStr,
    parent: BorrowedFd<'_>,
    name: &CStr,
) -> Result<CString> {
    let last = backups(parent, name)?.last().map_or(0, |(last, _)| *last);
    for number in last + 1.. {
        let mut new = backup_prefix(name);
        new.extend_from_slice(number.to_string().as_bytes());
        let new = c_name(new)?;
        match rename_noreplace(from, old, parent, &new) {
            Err(Errno::EXIST) => {}
            renamed => return renamed.map(|()| new),
        }
    }
    Err(Errno::EXIST)
}

/// Renames an entry to where nothing is; [`Errno::EXIST`] when something is there.
///
/// Where the filesystem does not know the flag, a link that is made fails just the same; only for a directory, which has no
/// links, there is a moment between looking and renaming, in which nothing but an empty directory can be replaced.
pub(crate) fn rename_noreplace(
    from: BorrowedFd<'_>,
    old: &CStr,
    to: BorrowedFd<'_>,
    new: &CStr,
) -> Result<()> {
    match fs::renameat_with(from, old, to, new, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {}
        renamed => return renamed,
    }
    let is_directory = root_dir::find(from, old)?.is_some_and(|seen| seen.file_type().is_dir());
    if !is_directory {
        match fs::linkat(from, old, to, new, AtFlags::empty()) {
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK) => {}
            linked => {
                linked?;
                return fs::unlinkat(from, old, AtFlags::empty());
            }
        }
    }
    if root_dir::find(to, new)?.is_some() {
        return Err(Errno::EXIST);
    }
    fs::renameat(from, old, to, new)
}

/// Finds what dead processes left in `parent` for `name`.
pub(crate) fn leftovers(parent: impl AsFd, name: &CStr) -> Result<Vec<Leftover>> {
    let prefix = prefix(name);
    let mut found = Vec::new();
    for name in named(&parent, &prefix, is_temporary)? {
        let is_for_moves = name.to_bytes()[prefix.len()..].starts_with(IN_PLACE.as_bytes());
        if let Ok(Some(left)) = abandoned(&parent, name) {
            found.push(Leftover {
                is_for_moves,
                ..left
            });
        }
    }
    Ok(found)
}

/// The entries of a directory that begin with `prefix` and go on as they should.
pub(crate) fn named(
    parent: impl AsFd,
    prefix: &[u8],
    is_one: impl Fn(&[u8]) -> bool,
) -> Result<Vec<CString>> {
    let listed = reopen_dir(parent)?;
    let mut buffer = Vec::with_capacity(BUFFER);
    let mut entries = Listing::new(&listed, buffer.spare_capacity_mut());
    let mut found = Vec::new();
    while let Some(entry) = entries.read() {
        let entry = entry?;
        let rest = entry.file_name().to_bytes().strip_prefix(prefix);
        if rest.is_some_and(&is_one) {
            found.push(entry.file_name().to_owned());
        }
    }
    Ok(found)
}

/// Takes `name` over from somebody dead; `None` when its owner lives, or it is nothing of ours.
pub(crate) fn abandoned(parent: impl AsFd, name: CString) -> Result<Option<Leftover>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = fs::openat(&parent, &*name, flags, Mode::empty())?;
    let file_type = metadata::of(&fd)?.file_type();
    if !matches!(file_type, FileType::Directory | FileType::RegularFile) {
        return Ok(None);
    }
    if try_lock(&fd) != Ok(true) || !is_called(&parent, &name, &fd)? {
        return Ok(None);
    }
    Ok(Some(Leftover {
        name,
        fd,
        is_directory: file_type.is_dir(),
        is_for_moves: false,
    }))
}

/// Removes what dead processes left, as far as that goes: what stays is only untidy.
pub(crate) fn collect(parent: impl AsFd, name: &CStr) {
    for leftover in leftovers(&parent, name).unwrap_or_default() {
        if !leftover.is_journalled() {
            let _ = leftover.remove(&parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_repeated_in_part_and_stay_apart() {
        let (one, other) = (vec![b'x'; 255], [vec![b'x'; 254], vec![b'y']].concat());
        let stems = [one, other].map(|name| stem(&CString::new(name).unwrap()));

        assert_ne!(stems[0], stems[1]);
        assert!(stems[0].len() < 200);
        assert_eq!(stem(c"short"), b".short");
    }

    #[test]
    fn a_backup_is_known_by_its_name() {
        for name in [".a.stasis-backup-1", ".a.stasis-backup-2.stasis-backup-12"] {
            assert!(is_backup(name.as_bytes()), "{name}");
        }
        for name in [
            "a.stasis-backup-1",
            ".a.stasis-backup-",
            ".a.stasis-backup-1x",
        ] {
            assert!(!is_backup(name.as_bytes()), "{name}");
        }
    }
}
