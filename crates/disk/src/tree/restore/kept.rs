//! The old tree, kept beside the new one until the next restore, so that a restore can be undone.
//!
//! `.NAME.stasis-kept` is the record: one line per tree, the newest first. A tree `.NAME.stasis-kept-N` is a kept one
//! only if it is the inode that the line says: during an exchange both are written down, and which of them is true is
//! decided by the exchange itself.

use super::backup::{self, Backup};
use super::error::RestoreError;
use super::recover::recover_interrupted;
use super::take_back::take_back;
use super::target::{RestoreTarget, exchange, inode_of};
use super::{PlacedTree, RestoreOrigin};
use crate::fs::fd::write_all;
use crate::fs::lock_file::try_lock_if_supported;
use crate::fs::staging::{self, Staging};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::{self, Errno};
use stasis_model::failure::AtPath;
use stasis_model::time::Timestamp;
use std::ffi::CString;
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

const HEADER: &str = "stasis-kept 1";
/// A longer record is none of ours.
const LONGEST: usize = 64 << 10;
/// The longest origin that is written down.
const LONGEST_FROM: usize = 1000;

/// An old tree that is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptBackup {
    /// Where it is.
    pub path: PathBuf,
    /// When it was replaced.
    pub at: Timestamp,
    /// From what it was replaced.
    pub from: String,
}

/// One line of the record.
#[derive(Clone, PartialEq, Eq, Debug)]
struct BackupLine {
    number: u64,
    inode: u64,
    at: Timestamp,
    from: String,
}

impl BackupLine {
    fn new(number: u64, inode: u64, origin: &RestoreOrigin) -> Self {
        let from = origin.from.chars().filter(|c| !c.is_control());
        Self {
            number,
            inode,
            at: origin.at,
            from: from.take(LONGEST_FROM).collect(),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(4, ' ');
        Some(Self {
            number: fields.next()?.parse().ok()?,
            inode: fields.next()?.parse().ok()?,
            at: Timestamp::from_millis(fields.next()?.parse().ok()?),
            from: fields.next()?.to_owned(),
        })
    }

    fn name(&self, target: &RestoreTarget) -> CString {
        target.own_name(&format!(".stasis-kept-{}", self.number))
    }
}

/// Puts the staged tree in the place of the old one, and keeps that.
pub(super) fn replace(
    target: &RestoreTarget,
    mut staging: Staging,
    origin: &RestoreOrigin,
) -> Result<PlacedTree, RestoreError> {
    let lock = target.lock_parent()?;
    let path = &target.path;
    let old = inode_of(&target.parent, &target.name).at("look at", path)?;
    let old = old.ok_or(Errno::NOENT).at("find", path)?;
    let before = find(target)?;
    let number = next_number(target).at("look beside", path)?;
    let line = BackupLine::new(number, old, origin);
    let name = line.name(target);
    let renamed = staging.rename(&name);
    renamed.at("name the tree that will be kept of", path)?;
    let lines = [Some(line), before];
    write(target, lines.into_iter().flatten())?;
    swap_durably(target, &name)?;
    staging.disarm();
    drop(lock);
    collect(target);
    Ok(PlacedTree::Replaced {
        kept: target.beside(&name),
    })
}

/// Exchanges the target for what is called `name`; if that cannot be made durable, exchanges them back.
fn swap_durably(target: &RestoreTarget, name: &std::ffi::CStr) -> Result<(), RestoreError> {
    let swap = || exchange(&target.parent, name, &target.name, &target.path);
    swap()?;
    let durable = fs::fsync(&target.parent);
    if durable.is_err() {
        swap()?;
    }
    Ok(durable.at("make durable the name of", &target.path)?)
}

/// What was replaced last at `target`, and is kept: the old tree, or what came out of it in place.
pub fn kept(target: &Path) -> Result<Option<KeptBackup>, RestoreError> {
    let found = RestoreTarget::find(target)?;
    let line = find(&found)?;
    let backup = newest_backup(target)?;
    Ok(match (line, backup) {
        (Some(line), Some(backup)) if line.at >= backup.at => Some(kept_as(&found, line)),
        (_, Some(backup)) => Some(KeptBackup {
            path: backup.path,
            at: backup.at,
            from: backup.from,
        }),
        (line, None) => line.map(|line| kept_as(&found, line)),
    })
}

/// The newest backup that belongs to nobody in particular.
fn newest_backup(target: &Path) -> Result<Option<Backup>, RestoreError> {
    let mut all = backup::backups(target)?.into_iter();
    Ok(all.rfind(|one| one.label.is_empty()))
}

/// Puts the kept tree back in the place of what is there, which is kept instead: undoing twice changes nothing.
pub fn undo(target: &Path, origin: &RestoreOrigin) -> Result<KeptBackup, RestoreError> {
    let path = target;
    let target = RestoreTarget::find(path)?;
    recover_interrupted(&target)?;
    let line = find(&target)?;
    if let Some(backup) = newest_backup(path)?
        && line.as_ref().is_none_or(|line| line.at < backup.at)
        && target.seen.is_some()
    {
        let changes = take_back(path, &backup.path, origin, "", &[])?;
        return Ok(KeptBackup {
            path: changes.backup.unwrap_or(backup.path),
            at: backup.at,
            from: backup.from,
        });
    }
    let lock = target.lock_parent()?;
    let none = || RestoreError::NothingKept(target.path.clone());
    let line = find(&target)?.ok_or_else(none)?;
    let name = line.name(&target);
    let Some(seen) = &target.seen else {
        let flags = fs::RenameFlags::NOREPLACE;
        let back = fs::renameat_with(&target.parent, &*name, &target.parent, &*target.name, flags);
        back.at("rename into place", &target.path)?;
        let durable = fs::fsync(&target.parent);
        durable.at("make durable the name of", &target.path)?;
        return Ok(kept_as(&target, line));
    };
    target.check(super::Placement::Replace)?;
    let undone = BackupLine::new(line.number, seen.inode, origin);
    write(&target, [undone, line.clone()].into_iter())?;
    swap_durably(&target, &name)?;
    drop(lock);
    Ok(kept_as(&target, line))
}

fn kept_as(target: &RestoreTarget, line: BackupLine) -> KeptBackup {
    KeptBackup {
        path: target.beside(&line.name(target)),
        at: line.at,
        from: line.from,
    }
}

/// Removes the kept tree; `false` when there was none.
pub fn forget(target: &Path) -> Result<bool, RestoreError> {
    let path = target;
    let target = RestoreTarget::find(path)?;
    let _lock = target.lock_parent()?;
    let mut was_there = false;
    for backup in backup::backups(path)? {
        if backup.label.is_empty() {
            backup::remove_backup(&backup.path)?;
            was_there = true;
        }
    }
    let Some(line) = find(&target)? else {
        return Ok(was_there);
    };
    let removed = crate::fs::remove::tree(&target.parent, &line.name(&target)).and_then(|()| {
        match fs::unlinkat(&target.parent, &*record_name(&target), AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            removed => removed,
        }
    });
    removed.at("remove what is kept of", &target.path)?;
    Ok(true)
}

/// Removes trees beside the target that were to be kept once, and are not; as far as that goes.
pub(super) fn collect(target: &RestoreTarget) {
    // Whoever exchanges right now has a tree there that is not in the record yet.
    let (Ok(Some(_lock)), Ok(keep)) = (target.try_lock_parent(), find(target)) else {
        return;
    };
    let keep = keep.map(|line| line.number);
    for number in numbers(target).unwrap_or_default() {
        let name = target.own_name(&format!(".stasis-kept-{number}"));
        if keep != Some(number)
            && let Ok(Some(garbage)) = staging::abandoned(&target.parent, name)
        {
            let _ = garbage.remove(&target.parent);
        }
    }
}

/// The line whose tree is there.
fn find(target: &RestoreTarget) -> Result<Option<BackupLine>, RestoreError> {
    for line in read(target)? {
        let inode = inode_of(&target.parent, &line.name(target));
        let inode = inode.at("look at what is kept of", &target.path)?;
        if inode == Some(line.inode) {
            return Ok(Some(line));
        }
    }
    Ok(None)
}

fn numbers(target: &RestoreTarget) -> io::Result<Vec<u64>> {
    let prefix = target.own_name(".stasis-kept-");
    let is_number = |rest: &[u8]| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit);
    let names = staging::named(&target.parent, prefix.to_bytes(), is_number)?;
    let number = |name: CString| {
        let digits = &name.to_bytes()[prefix.to_bytes().len()..];
        std::str::from_utf8(digits).ok()?.parse().ok()
    };
    Ok(names.into_iter().filter_map(number).collect())
}

fn next_number(target: &RestoreTarget) -> io::Result<u64> {
    let taken = numbers(target)?.into_iter().max().unwrap_or_default();
    let written = read(target).unwrap_or_default().into_iter();
    let written = written.map(|line| line.number).max().unwrap_or_default();
    Ok(taken.max(written).saturating_add(1))
}

fn record_name(target: &RestoreTarget) -> CString {
    target.own_name(".stasis-kept")
}

/// Reads the record; nothing was kept where there is none.
fn read(target: &RestoreTarget) -> Result<Vec<BackupLine>, RestoreError> {
    let name = record_name(target);
    let path = target.beside(&name);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match fs::openat(&target.parent, &*name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        file => file.at("read", &path)?,
    };
    let mut bytes = vec![0; LONGEST];
    let mut length = 0;
    loop {
        let read = io::retry_on_intr(|| io::read(&file, &mut bytes[length..]));
        match read.at("read", &path)? {
            0 => break,
            read => length += read,
        }
    }
    let text = std::str::from_utf8(&bytes[..length]).ok();
    let lines = text.and_then(|text| text.strip_prefix(HEADER));
    let lines = lines.ok_or(Errno::BADMSG).at("read", &path)?;
    let lines = lines.lines().filter(|line| !line.is_empty());
    let lines: Option<Vec<BackupLine>> = lines.map(BackupLine::parse).collect();
    Ok(lines.ok_or(Errno::BADMSG).at("read", &path)?)
}

/// Replaces the record, durably.
fn write(
    target: &RestoreTarget,
    lines: impl Iterator<Item = BackupLine>,
) -> Result<(), RestoreError> {
    let mut text = format!("{HEADER}\n");
    for line in lines {
        let BackupLine {
            number,
            inode,
            at,
            from,
        } = line;
        let _ = writeln!(text, "{number} {inode} {} {from}", at.millis());
    }
    let writing = "write down what is kept of";
    let (temp, file) = new_file(target).at(writing, &target.path)?;
    let written = write_all(&file, text.as_bytes())
        .and_then(|()| fs::fsync(&file))
        .and_then(|()| {
            let (parent, name) = (&target.parent, record_name(target));
            fs::renameat(parent, &*temp, parent, &*name)
        })
        .and_then(|()| fs::fsync(&target.parent));
    if written.is_err() {
        let _ = fs::unlinkat(&target.parent, &*temp, AtFlags::empty());
    }
    Ok(written.at(writing, &target.path)?)
}

/// A file beside the target that is removed by the next restore if we die.
fn new_file(target: &RestoreTarget) -> io::Result<(CString, OwnedFd)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    for temp in staging::fresh_names(&target.name) {
        match fs::openat(&target.parent, &*temp, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::EXIST) => {}
            file => {
                let file = file?;
                if try_lock_if_supported(&file) && staging::is_called(&target.parent, &temp, &file)?
                {
                    return Ok((temp, file));
                }
            }
        }
    }
    Err(Errno::EXIST)
}
