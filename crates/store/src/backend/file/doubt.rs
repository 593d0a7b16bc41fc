//! Objects that have their name, and of which nobody knows whether the name is durable.
//!
//! When a directory cannot be synced after something in it was renamed, the kernel says so once; a later sync that succeeds
//! proves nothing about what the failed one should have written. So the object is marked, and whoever needs it next writes it
//! anew: 1. copy its bytes, which were durable before the rename   2. fsync the copy   3. rename it over the object
//! 4. fsync every directory from the root down   5. remove the mark
//!
//! *Always true:* a document that is read, and an object that is said to exist, is durable or unmarked. A mark lies beneath
//! `tmp/`, in the same memory as the name that it is about: what a power cut takes of one it may take of the other, and what is
//! read after that was durable. Two processes that come at once write the same bytes.

use super::disk::{Disk, lock_name};
use super::temp::MARK;
use super::trouble::FileTrouble;
use crate::layout::Key;
use rustix::fs::{AtFlags, Mode, OFlags};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};

/// No key is longer.
const LONGEST: u64 = 4096;

fn mark_name(key: &Key) -> String {
    let mut name = String::with_capacity(64 + MARK.len());
    for byte in Sha256::digest(key.as_str()) {
        write!(name, "{byte:02x}").expect("a string can be written to");
    }
    name + MARK
}

impl Disk {
    /// Marks an object that was renamed into a directory that could not be synced.
    pub(super) fn doubt(&self, key: &Key) {
        self.doubts.open().insert(key.clone());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let mark = || {
            let mark = rustix::fs::openat(&self.workshop.tmp, mark_name(key), flags, mode)?;
            File::from(mark).write_all(key.as_str().as_bytes())?;
            Ok::<_, FileTrouble>(())
        };
        if let Err(cause) = mark() {
            tracing::warn!(%key, %cause, "what may not be durable could be marked for this process only");
        }
    }

    fn is_doubted(&self, key: &Key) -> Result<bool, FileTrouble> {
        if self.doubts.open().contains(key) {
            return Ok(true);
        }
        super::tree::is_there(&self.workshop.tmp, &mark_name(key))
    }

    /// An object that was written again, durably, is in doubt no more.
    pub(super) fn undoubt(&self, key: &Key) {
        self.doubts.open().remove(key);
        // A mark that stays costs only another write.
        let _ = rustix::fs::unlinkat(&self.workshop.tmp, mark_name(key), AtFlags::empty());
    }

    /// Writes everything anew that is marked, as far as that succeeds; the others stay marked.
    pub(super) fn settle_doubts(&self) {
        let marks = rustix::fs::Dir::read_from(&self.workshop.tmp)
            .into_iter()
            .flatten();
        let names =
            marks.filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
        for name in names.filter(|name| name.ends_with(MARK)) {
            if let Some(key) = self.marked(&name)
                && let Err(cause) = self.settle_doubt(&key)
            {
                tracing::warn!(%key, %cause, "it may not be durable");
            }
        }
    }

    fn marked(&self, name: &str) -> Option<Key> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mark = rustix::fs::openat(&self.workshop.tmp, name, flags, Mode::empty()).ok()?;
        let mut text = String::new();
        File::from(mark)
            .take(LONGEST)
            .read_to_string(&mut text)
            .ok()?;
        Key::from_listing(&text).filter(|key| mark_name(key) == name)
    }

    /// Writes an object anew if it may not be durable.
    pub(super) fn settle_doubt(&self, key: &Key) -> Result<(), FileTrouble> {
        if !self.is_doubted(key)? {
            return Ok(());
        }
        self.write_anew(key)
            .map_err(|cause| FileTrouble::NotDurable {
                key: key.to_string(),
                cause: Box::new(cause),
            })
    }

    fn write_anew(&self, key: &Key) -> Result<(), FileTrouble> {
        let _lock = self.workshop()?.lock(&lock_name(key))?;
        // Somebody else, or our own first look at the workshop, may have been faster.
        if !self.is_doubted(key)? {
            return Ok(());
        }
        if let Some(mut object) = self.tree.object(key)? {
            let mut temp = self.workshop()?.temp()?;
            std::io::copy(&mut object, &mut temp.file)?;
            temp.file.sync_all()?;
            let parent = self.tree.make_parent(key)?;
            temp.rename_to(&parent, key.file_name())?;
            rustix::fs::fsync(&parent)?;
            let above = key.as_str().rsplit_once('/').map_or("", |(above, _)| above);
            self.tree.sync_above(above)?;
        }
        self.undoubt(key);
        Ok(())
    }
}
