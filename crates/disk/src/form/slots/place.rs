//! The directory of the slots: what is in it, and how something leaves it.

use super::{METADATA, SYSTEM, WORKSPACE};
use crate::fs::fd::{open_dir_in, reopen_dir};
use crate::fs::metadata;
use crate::fs::root_dir;
use crate::fs::sys::listing::Listing;
use crate::fs::{atomic_write, free_space, remove, staging};
use rustix::fs::{self, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::workspace::{LARGEST_METADATA, Occupant, Slot, SlotForm, SlotMetadata};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What is done before what is left of a slot is removed, with the directory that it is; what was refused is done again before the
/// directory goes.
pub(super) type BeforeRemoval<'a> = &'a dyn Fn(BorrowedFd<'_>) -> rustix::io::Result<()>;

/// What a tree is called that is made of chunks only to be looked at, beside the slots.
pub(super) const VIEW: &CStr = c"view";
/// What the kernel fills with names in one call.
const BUFFER: usize = 32 << 10;

/// An open directory of slots.
#[derive(Debug)]
pub(super) struct SlotDir {
    path: PathBuf,
    fd: OwnedFd,
}

/// The name of a slot's directory.
pub(super) fn name_of(slot: Slot) -> CString {
    CString::new(slot.index().to_string()).expect("digits have no NUL")
}

impl SlotDir {
    pub(super) fn open(path: PathBuf) -> Result<Self, Failure> {
        let fd = open_dir_in(fs::CWD, &path);
        let fd = fd.at("open the directory", &path)?;
        Ok(Self { path, fd })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Where a slot is.
    pub(super) fn slot(&self, slot: Slot) -> PathBuf {
        self.path.join(slot.index().to_string())
    }

    pub(super) fn again(&self) -> Result<OwnedFd, Failure> {
        reopen_dir(&self.fd).at("open the directory", &self.path)
    }

    fn names(&self) -> Result<Vec<CString>, Failure> {
        let listed = self.again()?;
        let mut buffer = Vec::with_capacity(BUFFER);
        let mut entries = Listing::new(&listed, buffer.spare_capacity_mut());
        let mut names = Vec::new();
        while let Some(entry) = entries.read() {
            let entry = entry.at("list", &self.path)?;
            names.push(entry.file_name().to_owned());
        }
        Ok(names)
    }

    /// What is in the slots, in their order.
    pub(super) fn list(&self) -> Result<Vec<Occupant>, Failure> {
        let names = self.names()?;
        let slots = names
            .iter()
            .filter_map(|name| Slot::from_directory(name.to_str().ok()?));
        let mut slots: Vec<Slot> = slots.collect();
        slots.sort_unstable();
        let mut found = Vec::with_capacity(slots.len());
        for slot in slots {
            // One that was deleted since is not there any more.
            found.extend(self.occupant(slot)?);
        }
        Ok(found)
    }

    /// What is in a slot.
    pub(super) fn occupant(&self, slot: Slot) -> Result<Option<Occupant>, Failure> {
        let unreadable = |why: String| Some(Occupant::Unreadable { slot, why });
        let opened = match open_dir_in(&self.fd, &*name_of(slot)) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Ok(unreadable("it is not a directory".to_owned()));
            }
            Err(error) => return Err(error).at("open", self.slot(slot)),
        };
        let bytes = match read_small(opened.as_fd(), METADATA) {
            Ok(bytes) => bytes,
            // Deleted or exchanged while we looked: its inside goes after its name.
            Err(_) if !self.is_still(slot, &opened) => return self.occupant(slot),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(unreadable(
                    "it has no metadata: it was deleted in part, or is damaged".to_owned(),
                ));
            }
            Err(error) => return Ok(unreadable(format!("its metadata cannot be read: {error}"))),
        };
        Ok(match SlotMetadata::parse(slot, &bytes) {
            Err(bad) => unreadable(bad.to_string()),
            Ok(metadata) if has_tree(&opened, metadata.form) => Some(Occupant::Known(metadata)),
            Ok(_) if self.is_still(slot, &opened) => unreadable("it has no tree".to_owned()),
            Ok(_) => return self.occupant(slot),
        })
    }

    fn is_still(&self, slot: Slot, opened: &OwnedFd) -> bool {
        staging::is_called(&self.fd, &name_of(slot), opened).unwrap_or(true)
    }

    /// Takes a slot out of the list, durably, and then removes it.
    pub(super) fn remove(&self, slot: Slot, before: BeforeRemoval<'_>) -> Result<(), Failure> {
        let (path, name) = (self.slot(slot), name_of(slot));
        for aside in staging::fresh_names(&name) {
            match fs::renameat_with(&self.fd, &*name, &self.fd, &*aside, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => continue,
                Err(error) if free_space::is_errno(error) => {
                    return self.remove_in_place(slot, before);
                }
                renamed => renamed.at("move aside", &path)?,
            }
            match fs::fsync(&self.fd) {
                // Whatever becomes of the new name, nothing that is half of a checkpoint may look like a whole one.
                Err(error) if free_space::is_errno(error) => {
                    self.disown(&aside).at("remove", &path)?;
                }
                synced => synced.at("make durable", &self.path)?,
            }
            // It is deleted; what stays of it is removed when the pool is opened the next time.
            let _ = self.discard(&aside, before);
            return Ok(());
        }
        Err(Errno::EXIST).at("move aside", &path)
    }

    /// Removes a slot under its own name, on a disk so full that nothing can be renamed: a btrfs without room for metadata. A crash
    /// meanwhile leaves something without metadata, which is no checkpoint and can be deleted again.
    fn remove_in_place(&self, slot: Slot, before: BeforeRemoval<'_>) -> Result<(), Failure> {
        let (path, name) = (self.slot(slot), name_of(slot));
        let removed = self.disown(&name);
        let removed = removed.and_then(|()| self.discard(&name, before));
        removed.at("remove", &path)?;
        // What was unlinked is gone, and made room.
        match fs::fsync(&self.fd) {
            Err(error) if free_space::is_errno(error) => Ok(()),
            synced => synced.at("make durable", &self.path),
        }
    }

    /// Takes away from what was a slot what says that it is a checkpoint, durably as far as there is room for that.
    fn disown(&self, name: &CStr) -> rustix::io::Result<()> {
        let inside = match open_dir_in(&self.fd, name) {
            // Nothing that could be taken for a checkpoint.
            Err(Errno::LOOP | Errno::NOTDIR) => return Ok(()),
            opened => opened?,
        };
        match fs::unlinkat(&inside, METADATA, fs::AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => {}
            Err(error) => return Err(error),
        }
        match fs::fsync(&inside) {
            Err(error) if !free_space::is_errno(error) => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn sync(&self) -> Result<(), Failure> {
        fs::fsync(&self.fd).at("make durable", &self.path)
    }

    /// Removes what was a slot, or should have become one.
    pub(super) fn discard(&self, name: &CStr, before: BeforeRemoval<'_>) -> rustix::io::Result<()> {
        let seen = root_dir::find(&self.fd, name)?;
        if !seen.is_some_and(|seen| seen.file_type().is_dir()) {
            return match fs::unlinkat(&self.fd, name, fs::AtFlags::empty()) {
                Err(Errno::NOENT) => Ok(()),
                removed => removed,
            };
        }
        let inside = open_dir_in(&self.fd, name)?;
        before(inside.as_fd())?;
        for tree in [WORKSPACE, SYSTEM] {
            // Subvolumes go at once when they are removed by name.
            remove::tree(&inside, &CString::new(tree).expect("words have no NUL"))?;
        }
        remove::tree(&self.fd, name)
    }

    /// Removes what dead processes left, beside the slots and in them, as far as that goes.
    pub(super) fn collect(&self, before: BeforeRemoval<'_>) {
        for name in self.names().unwrap_or_default() {
            let slot = name.to_str().ok().and_then(Slot::from_directory);
            if slot.is_some() {
                if let Ok(inside) = open_dir_in(&self.fd, &*name) {
                    atomic_write::collect(&inside);
                }
            } else if is_left(&name)
                && let Ok(Some(_locked)) = staging::abandoned(&self.fd, name.clone())
            {
                let _ = self.discard(&name, before);
            }
        }
    }
}

/// Whether the tree of a checkpoint is where its form says.
fn has_tree(slot: &OwnedFd, form: SlotForm) -> bool {
    let (name, wanted) = match form {
        SlotForm::Clone => (c"workspace", FileType::Directory),
        SlotForm::Chunked | SlotForm::Versions => (c"workspace.json", FileType::RegularFile),
    };
    let seen = root_dir::find(slot, name).ok().flatten();
    seen.is_some_and(|seen| seen.file_type() == wanted)
}

/// Whether a name is a temporary one for some slot, or for a tree that was only looked at.
fn is_left(name: &CStr) -> bool {
    let slot = name.to_str().ok().and_then(|name| {
        let (slot, _) = name.strip_prefix('.')?.split_once('.')?;
        Slot::from_directory(slot)
    });
    slot.is_some_and(|slot| staging::is_temporary_for(&name_of(slot), name.to_bytes()))
        || staging::is_temporary_for(VIEW, name.to_bytes())
}

/// Reads a small file of ours.
fn read_small(directory: BorrowedFd<'_>, name: &str) -> std::io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::openat(directory, name, flags, Mode::empty())?;
    if !metadata::of(&file)?.file_type().is_file() {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    let most = LARGEST_METADATA as u64 + 1;
    File::from(file).take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
