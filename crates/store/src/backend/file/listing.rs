//! Walking a store in byte order of its keys.
//!
//! A directory sorts as its name with a slash, because that is how the keys beneath it go on: `a-b` comes before
//! `a/b`, though `a` comes before `a-b`. So the walk never has to hold more than one directory per level.

use super::tree::{OWN, Tree, step};
use super::trouble::FileTrouble;
use crate::bucket::Listed;
use crate::layout::{Key, Prefix};
use rustix::fs::{AtFlags, Dir, FileType};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// No key of ours has as many parts.
const DEEPEST: usize = 64;

/// One walk, with what it found so far.
pub(super) struct KeyWalk<'a> {
    prefix: &'a str,
    after: &'a str,
    limit: usize,
    found: Vec<Listed>,
}

impl<'a> KeyWalk<'a> {
    pub(super) fn new(prefix: &'a Prefix, after: Option<&'a Key>, limit: usize) -> Self {
        Self {
            prefix: prefix.as_str(),
            after: after.map_or("", Key::as_str),
            limit,
            found: Vec::new(),
        }
    }

    pub(super) fn over(mut self, tree: &Tree) -> Result<Vec<Listed>, FileTrouble> {
        // What follows the last slash is the beginning of names in there.
        let above = self.prefix.rfind('/').map_or(0, |slash| slash + 1);
        let above = &self.prefix[..above];
        let parts = above.split('/').filter(|part| !part.is_empty());
        if let Some(directory) = tree.directory(parts)? {
            self.visit(&directory, above, 0)?;
        }
        if self.found.is_empty() {
            tree.still_there()?;
        }
        Ok(self.found)
    }

    /// Lists one directory whose keys begin with `path`, which is empty or ends in a slash.
    fn visit(&mut self, directory: &OwnedFd, path: &str, depth: usize) -> Result<(), FileTrouble> {
        if depth > DEEPEST {
            return Err(FileTrouble::TooDeep);
        }
        for name in sorted_names(directory, path)? {
            if self.found.len() >= self.limit {
                return Ok(());
            }
            let full = format!("{path}{name}");
            match name.strip_suffix('/') {
                _ if !full.starts_with(self.prefix) => {}
                Some(_) if self.is_behind(&full) => {}
                Some(name) => match step(directory, name) {
                    Ok(Some(inner)) => self.visit(&inner, &full, depth + 1)?,
                    // Gone, or replaced by a link, since it was read: then it has nothing of ours.
                    Ok(None) | Err(FileTrouble::Symlink(_)) => {}
                    Err(trouble) => return Err(trouble),
                },
                None => self.take(directory, &name, &full)?,
            }
        }
        Ok(())
    }

    /// Whether every key that begins with `path` comes before the start of the listing.
    fn is_behind(&self, path: &str) -> bool {
        path < self.after && !self.after.starts_with(path)
    }

    fn take(&mut self, directory: &OwnedFd, name: &str, full: &str) -> Result<(), FileTrouble> {
        if full <= self.after {
            return Ok(());
        }
        let Some(key) = Key::from_listing(full) else {
            return Ok(());
        };
        match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                self.found.push(Listed {
                    key,
                    size,
                    version: None,
                });
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The files of a directory and, with a slash, its directories; links and names that are no text are not ours.
fn sorted_names(directory: &OwnedFd, path: &str) -> Result<Vec<String>, FileTrouble> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if name == "." || name == ".." || (path.is_empty() && name == OWN) {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => kind_of(directory, name)?,
            known => known,
        };
        match kind {
            FileType::RegularFile => names.push(name.to_owned()),
            FileType::Directory => names.push(format!("{name}/")),
            _ => {}
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Asked only where the filesystem does not say it in the directory.
fn kind_of(directory: &OwnedFd, name: &str) -> Result<FileType, FileTrouble> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode)),
        Err(Errno::NOENT) => Ok(FileType::Unknown),
        Err(errno) => Err(errno.into()),
    }
}
