//! Files with several names, where files of the old tree may stay.
//!
//! The names of a file are left only if they are names of one file in both trees, and that file has no other name that the new tree
//! gives to something else. Names that nobody restores do not count.

use super::fill::Filling;
use crate::form::chunked::ChunkError;
use crate::fs::fd::c_name;
use crate::fs::metadata::{self, Seen};
use crate::worker_pool::lock;
use stasis_model::tree::EntryPath;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;

/// A file of the list that has several names, or whose place in the old tree has.
#[derive(Debug)]
pub(super) struct LinkedFile {
    /// Which of the files.
    pub(super) number: u32,
    /// What is there.
    pub(super) seen: Seen,
    /// Whether that is what it should be.
    pub(super) may_stay: bool,
}

impl Filling<'_> {
    /// Leaves the names that may stay, and writes the others.
    pub(super) fn settle_linked(&self) -> Result<(), ChunkError> {
        let mut linked = std::mem::take(&mut *lock(&self.linked));
        linked.sort_unstable_by_key(|one| one.number);
        let mut names: HashMap<(u64, u64), usize> = HashMap::new();
        let others = self.rows.links.values().flatten();
        let others: HashMap<&EntryPath, Seen> = others
            .filter_map(|entry| Some((&entry.path, self.old_file(&entry.path)?)))
            .collect();
        let all = linked.iter().map(|one| &one.seen).chain(others.values());
        for seen in all {
            *names.entry(seen.identity()).or_default() += 1;
        }
        let mut left: HashSet<EntryPath> = HashSet::new();
        for one in linked.iter().filter(|one| one.may_stay) {
            let file = &self.rows.files[one.number as usize];
            let path = self.rows.path(file);
            let links = self.rows.links.get(&path).map_or(&[][..], Vec::as_slice);
            let identity = one.seen.identity();
            let is_one_file = links.iter().all(|entry| {
                let seen = others.get(&entry.path);
                seen.is_some_and(|seen| seen.identity() == identity)
            });
            if is_one_file && names.get(&identity) == Some(&(links.len() + 1)) {
                if let Some(leave) = self.parts.leave {
                    leave(&path, &one.seen);
                    for entry in links {
                        leave(&entry.path, &one.seen);
                    }
                }
                self.has_left(file);
                self.has_reused(one.number, file);
                left.insert(path);
            } else {
                self.make(one.number, file)?;
            }
        }
        let written = self.rows.links.iter().filter(|(to, _)| !left.contains(*to));
        for entry in written.flat_map(|(_, links)| links) {
            self.parts.writer.entry(entry)?;
        }
        Ok(())
    }

    /// What is at a path of the old tree, if it is a file.
    fn old_file(&self, path: &EntryPath) -> Option<Seen> {
        let (above, name) = path.split_last()?;
        let directory = self.parts.old?.directory(above.as_bytes()).ok()?;
        let seen = metadata::look(directory.as_fd(), &c_name(name).ok()?).ok()?;
        seen.file_type().is_file().then_some(seen)
    }
}
