//! Databases on their way into chunks: copied with what belongs to them while nobody writes to them, and cut from that copy at leisure.

use super::super::error::SlotError;
use crate::form::chunked::databases::{DatabaseCapture, DatabaseCopy, LiveDatabase, SetFile};
use crate::fs::fd::open_dir;
use crate::fs::metadata;
use crate::fs::root_dir::RootDir;
use crate::fs::sys::unnamed;
use crate::tree::clone::Fallback;
use crate::tree::content::{self, CarryError, CarryLimit};
use crate::tree::database_set::{self, Set, SetWaitBudget};
use rustix::io::Errno;
use stasis_model::failure::AtPath;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Takes the databases of one tree.
pub(super) struct Sets<'a> {
    root: &'a RootDir,
    spool: OwnedFd,
    cancel: &'a AtomicBool,
    wait_budget: SetWaitBudget,
}

impl<'a> Sets<'a> {
    pub(super) fn new(
        root: &'a RootDir,
        spool: &Path,
        cancel: &'a AtomicBool,
    ) -> Result<Self, SlotError> {
        let opened = open_dir(spool).at("open", spool)?;
        Ok(Self {
            root,
            spool: opened,
            cancel,
            wait_budget: SetWaitBudget::default(),
        })
    }

    /// A file without a name.
    fn nameless(&self) -> rustix::io::Result<OwnedFd> {
        match unnamed::within(&self.spool) {
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => unnamed::in_memory(),
            made => made,
        }
    }

    fn taken(&self, database: &LiveDatabase<'_>) -> Result<DatabaseCopy, CarryError> {
        let set = Set {
            root: self.root,
            directory: database.directory,
            name: database.name,
            wait_budget: &self.wait_budget,
        };
        let mut copies: HashMap<&'static [u8], OwnedFd> = HashMap::new();
        let taken = database_set::take(&set, &mut |member, deadline| {
            let copy = self.nameless()?;
            let (from, to) = (member.source.as_fd(), copy.as_fd());
            let stop = CarryLimit {
                cancel: self.cancel,
                deadline,
                progress: None,
            };
            content::carry_until(from, to, member.seen.size, Fallback::Copy, stop)?;
            copies.insert(member.suffix, copy);
            Ok(())
        })?;
        let mut files = Vec::with_capacity(taken.members.len());
        for member in taken.members {
            let Some(file) = copies.remove(member.suffix) else {
                continue;
            };
            files.push(SetFile {
                suffix: member.suffix,
                file,
                live: member.seen,
                attributes: metadata::attributes(&member.source)?.user,
            });
        }
        let (state, why) = (taken.state, taken.why);
        Ok(DatabaseCopy::Set { files, state, why })
    }
}

impl DatabaseCapture for Sets<'_> {
    fn capture(&self, database: &LiveDatabase<'_>) -> DatabaseCopy {
        match self.taken(database) {
            Ok(copy) => copy,
            Err(CarryError::Cancelled) => DatabaseCopy::Cancelled,
            Err(CarryError::Failed(error) | CarryError::CannotShare(error)) => {
                DatabaseCopy::Refused {
                    why: std::io::Error::from(error).to_string(),
                }
            }
            Err(CarryError::Late) => DatabaseCopy::Refused {
                why: "it takes too long to copy".to_owned(),
            },
        }
    }

    fn takes_sets(&self) -> bool {
        true
    }
}
