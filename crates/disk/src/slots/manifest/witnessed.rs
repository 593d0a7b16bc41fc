//! What a checkpoint contains, gathered while it is cloned file by file.
//!
//! A file of the live tree that held still while its bytes were carried over, and looks as it did when it was remembered, has
//! the content that was remembered, and so has its clone. Any other is read, in the clone, which nobody changes any more.

use super::super::cache::{Remembered, StatCache};
use super::{Gathered, Listed, Manifest, SealedManifest, What, content_of};
use crate::clone::{ClonedFile, Witness};
use stasis_model::tree::EntryPath;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Gathers what is cloned; `cache` is that of the live tree.
pub(in crate::slots) struct Gatherer<'a> {
    cache: &'a StatCache,
    found: Mutex<Gathered>,
    /// Names of files that have several, and the first name of each.
    links: Mutex<Vec<(EntryPath, EntryPath)>>,
    sealed: Mutex<Option<SealedManifest>>,
}

impl<'a> Gatherer<'a> {
    pub(in crate::slots) fn new(cache: &'a StatCache) -> Self {
        Self {
            cache,
            found: Mutex::default(),
            links: Mutex::default(),
            sealed: Mutex::default(),
        }
    }

    /// Everything that was cloned, and what to remember of the live tree; `None` when nothing was shown, or not all of it.
    pub(in crate::slots) fn into_contents(self) -> Option<(SealedManifest, Known)> {
        let known = inner(self.found).1;
        Some((inner(self.sealed)?, Known(known)))
    }

    /// What was shown; `None` when that is not all.
    fn manifest(&self) -> Option<Manifest> {
        let manifest = Manifest::of(std::mem::take(&mut lock(&self.found).0));
        let links = std::mem::take(&mut *lock(&self.links));
        if manifest.entries.is_empty() || links.is_empty() {
            return Some(manifest).filter(|manifest| !manifest.entries.is_empty());
        }
        let mut names = Vec::with_capacity(links.len());
        for (path, first) in links {
            let Listed { mode, what, .. } = manifest.find(&first)?.clone();
            names.push(Listed { path, mode, what });
        }
        let mut entries = manifest.entries;
        entries.append(&mut names);
        Some(Manifest::of(entries))
    }

    fn add(&self, path: EntryPath, mode: u32, what: What) {
        let listed = Listed { path, mode, what };
        lock(&self.found).0.push(listed);
    }
}

/// What is to be remembered of a live tree.
pub(in crate::slots) struct Known(super::KnownFiles);

impl Known {
    pub(in crate::slots) fn into(self, cache: &mut StatCache) {
        cache.replace(self.0);
    }
}

impl Witness for Gatherer<'_> {
    fn file(&self, path: EntryPath, file: &ClonedFile<'_>) -> io::Result<()> {
        let known = file.source.as_ref().and_then(|seen| self.cache.find(seen));
        let digest = match known {
            Some(known) => known.digest(),
            None => content_of(file.clone.try_clone_to_owned()?)?,
        };
        let settled = file.source.filter(|seen| self.cache.is_settled(seen));
        let memory = settled.map(|seen| (seen.identity(), Remembered::new(&path, &seen, digest)));
        let (mode, size) = (file.mode, file.size);
        let what = What::File { size, digest };
        let mut found = lock(&self.found);
        found.0.push(Listed { path, mode, what });
        found.1.extend(memory);
        Ok(())
    }

    fn link(&self, path: EntryPath, first: &EntryPath) {
        lock(&self.links).push((path, first.clone()));
    }

    fn symlink(&self, path: EntryPath, target: &[u8]) {
        let target = target.into();
        self.add(path, 0, What::Symlink { target });
    }

    fn directory(&self, path: &EntryPath, mode: u32) {
        self.add(path.clone(), mode, What::Directory);
    }

    fn finish(&self) {
        *lock(&self.sealed) = self.manifest().map(|manifest| manifest.sealed());
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn inner<T>(of: Mutex<T>) -> T {
    of.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
