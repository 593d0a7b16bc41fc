//! What a checkpoint contains, gathered while it is cloned file by file.
//!
//! A file of the live tree that held still while its bytes were carried over, and looks as it did when it was remembered, has
//! the content that was remembered, and so has its clone. Any other is read, in the clone, which nobody changes any more, and only
//! when everything is cloned: the live tree does not wait. What cannot be read means that there is no list, not that there is no clone.

use super::{EncodedManifest, Manifest, ManifestEntry, ManifestKind, content_of};
use crate::fs::root_dir::RootDir;
use crate::tree::clone::{CloneWitness, ClonedFile};
use crate::tree::stat_cache::{CachedFile, CachedFiles, HeldContent, StatCache};
use crate::worker_pool::{WorkerPool, all_processors, into_inner, lock};
use stasis_model::tree::attributes::AttributesDigest;
use stasis_model::tree::{Attribute, EntryPath};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Gathers what is cloned; `cache` is that of the live tree.
pub(in crate::form::slots) struct Gatherer<'a> {
    cache: &'a StatCache,
    cancel: &'a AtomicBool,
    shown: Mutex<ShownEntries>,
    finished: Mutex<Option<GatheredManifest>>,
}

/// What was shown.
#[derive(Default)]
struct ShownEntries {
    entries: Vec<ManifestEntry>,
    known: CachedFiles,
    /// Files whose content nobody remembers.
    unread: Vec<(EntryPath, ClonedFile)>,
    /// Names of files that have several, and the first name of each.
    links: Vec<(EntryPath, EntryPath)>,
}

/// What a checkpoint contains, and what is to be remembered of the live tree.
pub(in crate::form::slots) struct GatheredManifest {
    pub(in crate::form::slots) contents: EncodedManifest,
    known: CachedFiles,
}

impl GatheredManifest {
    /// Remembers the live tree.
    pub(in crate::form::slots) fn remember(self, cache: &mut StatCache) -> EncodedManifest {
        cache.replace(self.known);
        self.contents
    }
}

impl<'a> Gatherer<'a> {
    pub(in crate::form::slots) fn new(cache: &'a StatCache, cancel: &'a AtomicBool) -> Self {
        Self {
            cache,
            cancel,
            shown: Mutex::default(),
            finished: Mutex::default(),
        }
    }

    /// What was gathered; `None` when nothing was shown, or not all of it could be read.
    pub(in crate::form::slots) fn into_contents(self) -> Option<GatheredManifest> {
        into_inner(self.finished)
    }

    fn list(&self, clone: &RootDir) -> io::Result<Option<GatheredManifest>> {
        let shown = std::mem::take(&mut *lock(&self.shown));
        let ShownEntries {
            mut entries,
            mut known,
            unread,
            links,
        } = shown;
        for ((path, file), held) in unread.iter().zip(self.read(clone, &unread)?) {
            known.extend(self.memory(path, file, held));
            entries.push(listed(path.clone(), file, held));
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let manifest = Manifest::of(entries);
        let mut names = Vec::with_capacity(links.len());
        for (path, first) in links {
            let Some(first) = manifest.find(&first).cloned() else {
                return Ok(None);
            };
            names.push(ManifestEntry { path, ..first });
        }
        let mut entries = manifest.entries;
        entries.append(&mut names);
        let contents = Manifest::of(entries).encoded();
        Ok(Some(GatheredManifest { contents, known }))
    }

    /// The contents of files, in their order, read by all processors.
    fn read(
        &self,
        clone: &RootDir,
        files: &[(EntryPath, ClonedFile)],
    ) -> io::Result<Vec<HeldContent>> {
        let read = Mutex::new(Vec::with_capacity(files.len()));
        WorkerPool::for_each(
            all_processors(),
            files.iter().enumerate(),
            |(at, (path, _))| {
                if self.cancel.load(Ordering::Relaxed) {
                    return Err(io::Error::from(io::ErrorKind::Interrupted));
                }
                let held = content_at(clone, path)?;
                lock(&read).push((at, held));
                Ok(())
            },
        )?;
        let mut read = into_inner(read);
        read.sort_unstable_by_key(|(at, _)| *at);
        Ok(read.into_iter().map(|(_, held)| held).collect())
    }

    /// What will be remembered of a live file, if it held still and is old enough.
    fn memory(
        &self,
        path: &EntryPath,
        file: &ClonedFile,
        held: HeldContent,
    ) -> Option<((u64, u64), CachedFile)> {
        let settled = file.source.filter(|seen| self.cache.is_settled(seen))?;
        Some((settled.identity(), CachedFile::new(path, &settled, held)))
    }

    fn add(&self, path: EntryPath, mode: u32, what: ManifestKind) {
        let listed = ManifestEntry {
            path,
            mode,
            what,
            attributes: None,
        };
        lock(&self.shown).entries.push(listed);
    }
}

fn listed(path: EntryPath, file: &ClonedFile, held: HeldContent) -> ManifestEntry {
    let (size, digest) = (file.size, held.digest);
    ManifestEntry {
        path,
        mode: file.mode,
        what: ManifestKind::File { size, digest },
        attributes: held.attributes,
    }
}

/// What a file of the clone holds.
fn content_at(clone: &RootDir, path: &EntryPath) -> io::Result<HeldContent> {
    content_of(open_at(clone, path)?)
}

/// Opens a file of the clone.
pub(super) fn open_at(clone: &RootDir, path: &EntryPath) -> io::Result<OwnedFd> {
    let (above, name) = path.split_last().ok_or(io::ErrorKind::IsADirectory)?;
    let name = CString::new(name).expect("no name of an entry has a NUL");
    let directory = clone.directory(above.as_bytes())?;
    Ok(clone.file(directory.as_fd(), &name)?)
}

impl CloneWitness for Gatherer<'_> {
    fn file(&self, path: EntryPath, file: &ClonedFile) {
        let known = file.source.as_ref().and_then(|seen| self.cache.find(seen));
        let Some(held) = known.map(CachedFile::held) else {
            lock(&self.shown).unread.push((path, *file));
            return;
        };
        let memory = self.memory(&path, file, held);
        let mut shown = lock(&self.shown);
        shown.known.extend(memory);
        shown.entries.push(listed(path, file, held));
    }

    fn link(&self, path: EntryPath, first: &EntryPath) {
        lock(&self.shown).links.push((path, first.clone()));
    }

    fn symlink(&self, path: EntryPath, target: &[u8]) {
        let target = target.into();
        self.add(path, 0, ManifestKind::Symlink { target });
    }

    fn directory(&self, path: &EntryPath, mode: u32, attributes: &[Attribute]) {
        lock(&self.shown).entries.push(ManifestEntry {
            path: path.clone(),
            mode,
            what: ManifestKind::Directory,
            attributes: AttributesDigest::of(attributes),
        });
    }

    fn finish(&self, clone: &RootDir) {
        // Whoever lists the clone later meets the same error, and says so.
        *lock(&self.finished) = self.list(clone).ok().flatten();
    }
}

#[cfg(test)]
mod tests;
