//! One entry of a tree, with everything in it; the rest of the tree is not looked at.

use super::manifest::{ManifestEntry, ManifestKind, attributes_of, content_of, manifest};
use crate::fs::metadata::Seen;
use crate::fs::root_dir::{self, Mounts, RootDir};
use crate::session_db::LeftEntry;
use crate::tree::stat_cache::StatCache;
use crate::tree::walk::{self, WalkError, WalkSettings};
use rustix::fs::{self, FileType};
use rustix::io::Errno;
use stasis_model::failure::AtPath;
use stasis_model::time::Timestamp;
use stasis_model::tree::{EntryKind, EntryPath};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The directory that holds an entry, the entry's name, and what it is; `None` when there is none.
fn find(root: &RootDir, path: &EntryPath) -> io::Result<Option<(OwnedFd, CString, Seen)>> {
    let Some((above, name)) = path.split_last() else {
        return Ok(None);
    };
    let name = CString::new(name).expect("no name of an entry has a NUL");
    let directory = match root.directory(above.as_bytes()) {
        // Behind something that is no directory there is nothing.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        directory => directory?,
    };
    let seen = root_dir::find(&directory, &name)?;
    Ok(seen.map(|seen| (directory, name, seen)))
}

/// What is at a path, and in it if it is a directory; nothing when nothing is, or something that no checkpoint has.
pub fn portion(
    root: &RootDir,
    path: &EntryPath,
    settings: &WalkSettings,
) -> Result<Vec<ManifestEntry>, WalkError> {
    let Some((directory, name, seen)) = find(root, path).on("look at", path)? else {
        return Ok(Vec::new());
    };
    let listed = |mode: u32, what: ManifestKind| ManifestEntry {
        path: path.clone(),
        mode,
        what,
        attributes: None,
    };
    let mode = seen.metadata().mode;
    match seen.file_type() {
        FileType::Symlink => {
            let target = fs::readlinkat(&directory, &*name, Vec::new());
            let target = target.on("read the link", path)?;
            let target = target.into_bytes().into();
            Ok(vec![listed(0, ManifestKind::Symlink { target })])
        }
        FileType::RegularFile => {
            let opened = root.file(directory.as_fd(), &name).map_err(io::Error::from);
            let held = opened.and_then(content_of).on("read", path)?;
            let (size, digest) = (seen.size, held.digest);
            Ok(vec![ManifestEntry {
                attributes: held.attributes,
                ..listed(mode, ManifestKind::File { size, digest })
            }])
        }
        FileType::Directory => {
            let opened = root.directory(path.as_bytes()).ok();
            let mut all = vec![ManifestEntry {
                attributes: opened.and_then(attributes_of),
                ..listed(mode, ManifestKind::Directory)
            }];
            all.extend(inside(root, path, settings)?);
            Ok(all)
        }
        _ => Ok(Vec::new()),
    }
}

fn inside(
    root: &RootDir,
    path: &EntryPath,
    settings: &WalkSettings,
) -> Result<Vec<ManifestEntry>, WalkError> {
    let opened = root.directory(path.as_bytes());
    let opened = opened.and_then(|fd| RootDir::new(fd, Mounts::Stay));
    let opened = opened.on("open", path)?;
    // Nothing is remembered: a file is read for this once.
    let mut nothing = StatCache::open(Path::new(""), Timestamp::default());
    let (found, _) = manifest(&opened, &mut nothing, settings)?;
    let below = found.entries().iter().cloned().map(|one| {
        let whole = below(path, &one.path);
        ManifestEntry { path: whole, ..one }
    });
    Ok(below.collect())
}

/// The entries beneath a path that these patterns exclude, without what is in them.
pub fn excluded_in(
    root: &RootDir,
    path: &EntryPath,
    patterns: &[String],
) -> Result<Vec<EntryPath>, WalkError> {
    let is_excluded = walk::matcher(patterns)?;
    let Ok(directory) = root.directory(path.as_bytes()) else {
        return Ok(Vec::new());
    };
    let opened = RootDir::new(directory, Mounts::Stay);
    let opened = opened.on("open", path)?;
    let (entries, _) = walk::list(&opened, &WalkSettings::default())?;
    let mut found: Vec<EntryPath> = Vec::new();
    for entry in entries {
        let whole = below(path, &entry.path);
        let is_directory = matches!(entry.kind, EntryKind::Directory);
        let is_covered = found.last().is_some_and(|last| whole.is_within(last));
        if !is_covered && is_excluded(&whole, is_directory) {
            found.push(whole);
        }
    }
    Ok(found)
}

fn below(path: &EntryPath, rest: &EntryPath) -> EntryPath {
    rest.components().fold(path.clone(), |at, name| {
        at.child(name).expect("it is part of a good path")
    })
}

/// What is at a path now, without following a link.
pub fn fact(root: &RootDir, path: &EntryPath) -> Option<LeftEntry> {
    let (_, _, seen) = find(root, path).ok().flatten()?;
    Some(LeftEntry::from(&seen))
}

/// The first bytes of a regular file, and no more than `most` of them; `None` when it is none.
pub fn read_file(root: &RootDir, path: &EntryPath, most: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = open_file(root, path)? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// A regular file; `None` when it is none.
pub(super) fn open_file(root: &RootDir, path: &EntryPath) -> io::Result<Option<File>> {
    let Some((directory, name, seen)) = find(root, path)? else {
        return Ok(None);
    };
    if !seen.file_type().is_file() {
        return Ok(None);
    }
    let file = File::from(root.file(directory.as_fd(), &name)?);
    Ok(file.metadata()?.is_file().then_some(file))
}
