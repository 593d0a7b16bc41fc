//! Many objects that become durable together.
//!
//! 1. write each beneath `tmp/N.batch/`   2. `syncfs`: all bytes are durable   3. give each its name
//! 4. `fsync` the directories they are in, or `syncfs` again when they are many
//!
//! *Always true:* a batch whose bytes could not be made durable gets no names: it is discarded. A name exists only once its
//! bytes are durable. Names that could not be made durable are marked ([`super::doubt`]): whoever finds one writes it anew. A crash before 3 leaves a directory that the next `open`
//! removes, because the lock beside it is free; between 3 and 4 some names may be lost, and nobody was told that they exist.

use super::disk::Disk;
use super::pending::StagedBatch;
use super::temp::remove_flat;
use super::tree::RETRY_BUDGET;
use super::trouble::FileTrouble;
use crate::layout::Key;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use stasis_model::id::OpId;
use stasis_sys::sync;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// Up to so many directories are synced one by one.
const FEW: usize = 2;

impl Disk {
    pub(super) fn stage(&self, batch: OpId, key: &Key, body: &[u8]) -> Result<(), FileTrouble> {
        let (directory, number) = {
            let mut batches = self.batches.open();
            let batch = match batches.entry(batch) {
                Entry::Occupied(begun) => begun.into_mut(),
                Entry::Vacant(place) => place.insert(self.begin()?),
            };
            batch.staged.push(key.clone());
            let directory = rustix::io::fcntl_dupfd_cloexec(&batch.directory, 0)?;
            (directory, batch.staged.len() - 1)
        };
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(
            &directory,
            number.to_string(),
            flags,
            Mode::RUSR | Mode::WUSR,
        )?;
        File::from(file).write_all(body)?;
        Ok(())
    }

    fn begin(&self) -> Result<StagedBatch, FileTrouble> {
        let (mut temp, directory, name) = self.workshop()?.batch()?;
        let lock = temp.file.try_clone()?;
        let lock_name = temp.name.clone();
        temp.moved = true; // it stays until the batch is over
        Ok(StagedBatch {
            directory,
            name,
            lock_name,
            _lock: lock,
            staged: Vec::new(),
        })
    }

    pub(super) fn commit(&self, batch: OpId) -> Result<(), FileTrouble> {
        let Some(batch) = self.batches.open().remove(&batch) else {
            return Ok(());
        };
        let committed = self.publish_batch(&batch);
        self.end(&batch);
        if committed.is_ok() && !self.has_reserve.swap(true, Ordering::Relaxed) {
            super::reserve::make(self.path());
        }
        committed
    }

    fn publish_batch(&self, batch: &StagedBatch) -> Result<(), FileTrouble> {
        sync::filesystem(&batch.directory)?;
        let named = self.name_batch(batch);
        if named.is_err() {
            for key in &batch.staged {
                self.doubt(key);
            }
        }
        named
    }

    /// Gives every object its name, and makes the names durable.
    fn name_batch(&self, batch: &StagedBatch) -> Result<(), FileTrouble> {
        let mut parents: HashMap<String, OwnedFd> = HashMap::new();
        for (number, key) in batch.staged.iter().enumerate() {
            let parent = key
                .as_str()
                .rsplit_once('/')
                .map_or("", |(parent, _)| parent);
            let number = number.to_string();
            for attempt in 0.. {
                if !parents.contains_key(parent) {
                    parents.insert(parent.to_owned(), self.tree.make_parent_unsynced(key)?);
                }
                match rustix::fs::renameat(
                    &batch.directory,
                    &number,
                    &parents[parent],
                    key.file_name(),
                ) {
                    Ok(()) => break,
                    // Another key's delete found the directory empty and removed it.
                    Err(Errno::NOENT) if attempt < RETRY_BUDGET => {
                        parents.remove(parent);
                    }
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        if parents.len() > FEW || batch.staged.is_empty() {
            sync::filesystem(&batch.directory)?;
        } else {
            for (parent, directory) in &parents {
                rustix::fs::fsync(directory)?;
                self.tree.sync_above(parent)?;
            }
        }
        Ok(())
    }

    /// Makes everything durable that is in the store, whoever put it there.
    pub(super) fn sync(&self) -> Result<(), FileTrouble> {
        Ok(sync::filesystem(&self.workshop()?.tmp)?)
    }

    pub(super) fn abandon(&self, batch: OpId) {
        if let Some(batch) = self.batches.open().remove(&batch) {
            self.end(&batch);
        }
    }

    /// What cannot be removed now is removed by a later sweep.
    fn end(&self, batch: &StagedBatch) {
        if let Ok(name) = CString::new(batch.name.as_str()) {
            let _ = remove_flat(&self.workshop.tmp, &name);
        }
        let _ = rustix::fs::unlinkat(&self.workshop.tmp, &batch.lock_name, AtFlags::empty());
    }
}
