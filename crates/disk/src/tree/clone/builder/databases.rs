//! Databases, each cloned with what belongs to it, when the rest of their directory has been.

use super::{At, Builder, CloneError, CloneReport, CloneSource, FileClone};
use crate::fs::metadata::{self, Seen};
use crate::tree::content::{self, CarryError, CarryLimit, Filled};
use crate::tree::database_set::{self, Set, SetMember, TakenSet};
use crate::tree::walk::{WalkError, WalkSkip, WalkedEntry};
use crate::worker_pool::lock;
use rustix::fs::{self, AtFlags};
use rustix::io::Errno;
use stasis_model::failure::AtPath;
use stasis_model::format::manifest::StoredAs;
use stasis_model::sqlite_file::owner_name;
use stasis_model::workspace::SlotDatabase;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

/// A file that waits for the others of its directory.
#[derive(Debug)]
pub(super) struct WaitingFile {
    name: CString,
    /// Whether it is known to be a database; else it may belong to one.
    is_database: bool,
}

/// A file of a set in the clone.
struct MadeMember {
    target: OwnedFd,
    /// The permissions that were asked for when it was made.
    mode: u32,
    /// What came across; nothing before the first attempt.
    filled: Option<Filled>,
}

impl MadeMember {
    fn create(at: &At<'_>, database: &CStr, member: &SetMember) -> Result<Self, CloneError> {
        let mode = member.seen.raw_mode & 0o777;
        Ok(Self {
            target: at.create(&named(database, member.suffix), mode)?,
            mode,
            filled: None,
        })
    }
}

/// A database, and the files of the clone that it was carried over to.
struct ClonedSet {
    taken: TakenSet,
    made: HashMap<&'static [u8], MadeMember>,
}

impl Builder<'_> {
    /// Whether a file may belong to a database beside it, going by its name.
    pub(super) fn waits(&self, found: &WalkedEntry<'_>) -> bool {
        self.takes_sets && found.seen.links == 1 && owner_name(found.name.to_bytes()).is_some()
    }

    /// Whether an open file is a database.
    pub(super) fn is_set(&self, found: &WalkedEntry<'_>, source: &OwnedFd) -> bool {
        self.takes_sets
            && found.seen.links == 1
            && database_set::may_be(found.seen.size)
            && database_set::is_database(source)
    }

    pub(super) fn put_aside(&self, at: &At<'_>, found: &WalkedEntry<'_>, is_database: bool) {
        let name = found.name.to_owned();
        let mut aside = lock(&self.aside);
        let here = aside.entry(at.place.path.clone()).or_default();
        here.push(WaitingFile { name, is_database });
    }

    /// Clones what waits in a directory.
    pub(super) fn waiting(&self, at: &At<'_>, counts: &mut CloneReport) -> Result<(), CloneError> {
        let aside = lock(&self.aside).remove(at.place.path);
        let aside = aside.unwrap_or_default();
        let names = aside.iter().filter(|one| one.is_database);
        let names: HashSet<&[u8]> = names.map(|one| one.name.to_bytes()).collect();
        for one in &aside {
            let owner = owner_name(one.name.to_bytes());
            if one.is_database {
                self.set(at, &one.name, counts)?;
            } else if owner.is_none_or(|owner| !names.contains(owner)) {
                self.stray(at, &one.name, counts)?;
            }
        }
        Ok(())
    }

    /// Clones a file that is only called like what belongs to a database; it may be one itself.
    fn stray(&self, at: &At<'_>, name: &CStr, counts: &mut CloneReport) -> Result<(), CloneError> {
        let Some((file, seen)) = at.place.open_file(name)? else {
            return Ok(());
        };
        if database_set::may_be(seen.size) && database_set::is_database(&file) {
            return self.set(at, name, counts);
        }
        self.whole_file(at, name, CloneSource { file, seen }, counts)
    }

    fn set(&self, at: &At<'_>, name: &CStr, counts: &mut CloneReport) -> Result<(), CloneError> {
        let mut made: HashMap<&'static [u8], MadeMember> = HashMap::new();
        let mut failed = None;
        let set = Set {
            root: at.place.root(),
            directory: at.place.fd,
            name,
            wait_budget: &self.wait_budget,
        };
        let taken = database_set::take(&set, &mut |member, deadline| {
            if !made.contains_key(member.suffix) {
                match MadeMember::create(at, name, member) {
                    Ok(new) => made.insert(member.suffix, new),
                    Err(error) => {
                        failed = Some(error);
                        return Err(CarryError::Failed(Errno::IO));
                    }
                };
            }
            let Some(made) = made.get_mut(member.suffix) else {
                return Err(CarryError::Failed(Errno::IO));
            };
            if made.filled.is_some() {
                fs::ftruncate(&made.target, 0)?;
            }
            let (from, to) = (member.source.as_fd(), made.target.as_fd());
            let stop = CarryLimit {
                cancel: self.cancel,
                deadline,
                progress: None,
            };
            made.filled = Some(Filled::Copied(0));
            let carried = content::carry_until(from, to, member.seen.size, self.fallback, stop)?;
            made.filled = Some(carried);
            Ok(())
        });
        let taken = match (taken, failed) {
            (Err(_), Some(error)) => return Err(error),
            (Err(trouble), None) => return Err(at.trouble(name, trouble)),
            (Ok(taken), _) => taken,
        };
        self.settle_set(at, name, ClonedSet { taken, made }, counts)
    }

    fn settle_set(
        &self,
        at: &At<'_>,
        name: &CStr,
        set: ClonedSet,
        counts: &mut CloneReport,
    ) -> Result<(), CloneError> {
        let ClonedSet { taken, mut made } = set;
        let is_there = !taken.members.is_empty();
        for member in taken.members {
            if let Some(made) = made.remove(member.suffix) {
                if let Some(filled) = made.filled {
                    counts.carried(filled);
                }
                let file = FileClone {
                    name: &named(name, member.suffix),
                    source: member.source,
                    target: made.target,
                    mode: made.mode,
                };
                self.settle_member(at, &file, &member.seen, counts)?;
            }
        }
        for suffix in made.into_keys() {
            let name = named(name, suffix);
            let removed = fs::unlinkat(at.target, &*name, AtFlags::empty());
            removed.on("remove", at.path(&name))?;
        }
        if !is_there {
            return Ok(at.place.skip(name, WalkSkip::Vanished)?);
        }
        self.index(at, &named(name, b"-shm"), counts)?;
        let path = at.place.child(name)?;
        if taken.state != StoredAs::Consistent && at.place.is_strict() {
            let reason = WalkSkip::Inconsistent;
            return Err(WalkError::Incomplete { path, reason }.into());
        }
        counts.databases.push(SlotDatabase {
            path: path.to_string(),
            state: taken.state,
            why: taken.why,
        });
        Ok(())
    }

    fn settle_member(
        &self,
        at: &At<'_>,
        file: &FileClone<'_>,
        seen: &Seen,
        counts: &mut CloneReport,
    ) -> Result<(), CloneError> {
        let given = self.dress(at, file, seen, counts)?;
        self.count(seen.size, 0, counts);
        let now = metadata::of(&file.source).on("look at", at.path(file.name))?;
        let source = now.is_unchanged_since(seen).then_some(*seen);
        self.show(at, file, source, given)
    }

    /// Clones the index of a WAL as it is at any moment: whoever opens the database first makes it anew.
    fn index(&self, at: &At<'_>, name: &CStr, counts: &mut CloneReport) -> Result<(), CloneError> {
        let Ok(source) = at.place.root().file(at.place.fd, name) else {
            return Ok(());
        };
        let seen = metadata::of(&source).on("look at", at.path(name))?;
        if !seen.file_type().is_file() {
            return Ok(());
        }
        let mode = seen.raw_mode & 0o777;
        let target = at.create(name, mode)?;
        let (from, to) = (source.as_fd(), target.as_fd());
        let carried = content::carry(from, to, seen.size, self.fallback, self.cancel);
        counts.carried(carried.map_err(|trouble| at.trouble(name, trouble))?);
        let file = FileClone {
            name,
            source,
            target,
            mode,
        };
        self.settle_member(at, &file, &seen, counts)
    }
}

fn named(name: &CStr, suffix: &[u8]) -> CString {
    let name = [name.to_bytes(), suffix].concat();
    CString::new(name).expect("neither has a NUL")
}
