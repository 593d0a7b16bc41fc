//! Whether there is room for something, and what could be let go if there is not.
//!
//! A change of the live tree is refused before anything is touched where its plan has no room. A checkpoint is tried: what it needs is
//! known only when it is made, and one that fails leaves nothing behind. Both say how much is needed at most, and what each checkpoint
//! would free: what neither the live tree nor another checkpoint refers to.

use super::Workspace;
use super::answers::SessionForm;
use super::plan::{ChangeVerb, WorkspacePlan};
use crate::error::{Error, Freeable, NoRoom, RoomUse, WorkspaceError};
use stasis_disk::form::slots::{Manifest, ManifestKind};
use stasis_disk::fs::free_space;
use stasis_model::tree::diff::ChangeKind;
use stasis_model::workspace::{CheckpointOrigin, Occupant, SlotForm};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// What every change and every checkpoint needs, however small: its metadata, a few pages of the database, and a journal.
const ANYWAY: u64 = 256 << 10;
/// What an entry needs besides its bytes: an inode, its name, and a line in a journal and in a list.
const ENTRY: u64 = 1024;
/// How many files every change makes besides.
const FILES: u64 = 16;

/// What room is wanted for.
pub(super) enum RoomFor<'a> {
    Checkpoint,
    Change(&'a WorkspacePlan<'a>),
}

/// What something needs at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Need {
    bytes: u64,
    entries: u64,
}

impl Need {
    /// What comes to a tree: its names, and its bytes where they are not shared.
    fn of(was: &Manifest, is: &Manifest, is_shared: bool) -> Self {
        let changes = was.diff(is);
        let comes = changes
            .iter()
            .filter(|(_, change)| *change != ChangeKind::Removed);
        let files = comes.clone().filter_map(|(path, _)| is.find(path));
        let bytes = files.map(|one| match one.what {
            ManifestKind::File { size, .. } if !is_shared => size.next_multiple_of(4096),
            _ => 0,
        });
        Self {
            bytes: bytes.fold(0, u64::saturating_add),
            entries: comes.count() as u64,
        }
    }

    fn bytes(self) -> u64 {
        let names = self.entries.saturating_mul(ENTRY);
        self.bytes.saturating_add(names).saturating_add(ANYWAY)
    }
}

impl Workspace {
    /// Refuses a change for which there is no room, before anything is touched.
    pub(super) fn check_room(&self, plan: &WorkspacePlan<'_>) -> Result<(), Error> {
        let need = self.need_of(plan);
        let own = Need {
            bytes: 0,
            entries: 0,
        };
        let places = [
            (self.directory(), need),
            // What takes it back is written down there.
            (self.session().path.as_path(), own),
        ];
        for (path, need) in places {
            let Ok(free) = free_space::free(path) else {
                continue;
            };
            let has_inodes = free
                .entries
                .is_none_or(|entries| entries >= need.entries + FILES);
            // A btrfs says that nothing is free when it means that little is: then it is tried.
            let is_short = free_space::has(path, need.bytes()).is_err();
            if is_short || !has_inodes {
                let refused = self.refusal(&RoomFor::Change(plan), path, need);
                return Err(WorkspaceError::NoRoom(Box::new(refused)).into());
            }
        }
        Ok(())
    }

    /// The same error; if it is that there is no room, with what is needed and what could be let go.
    pub(super) fn no_room(&self, error: Error, wanted: &RoomFor<'_>) -> Error {
        let is_reported = matches!(&error, Error::Workspace(error) if matches!(**error, WorkspaceError::NoRoom(_)));
        if is_reported || !free_space::is_want_of_room(&error) {
            return error;
        }
        let (path, need) = match wanted {
            RoomFor::Checkpoint => (self.session().path.as_path(), self.need_of_checkpoint()),
            RoomFor::Change(plan) => (self.directory(), self.need_of(plan)),
        };
        let refused = NoRoom {
            source: Some(Box::new(error)),
            ..self.refusal(wanted, path, need)
        };
        WorkspaceError::NoRoom(Box::new(refused)).into()
    }

    fn need_of(&self, plan: &WorkspacePlan<'_>) -> Need {
        // What takes a change back exchanges the same inodes again.
        let from = plan.source.from;
        let is_shared = from.origin == CheckpointOrigin::Undo
            || from.form != SlotForm::Chunked && self.session().form().0 == SessionForm::Clone;
        Need::of(&plan.source.is, &plan.source.becomes, is_shared)
    }

    /// What a checkpoint of the tree as it is now needs at most: all names in a clone, what is new since the newest one in chunks.
    fn need_of_checkpoint(&self) -> Need {
        let is_shared = self.session().form().0 == SessionForm::Clone;
        let live = self.live().map(|(live, _)| live).unwrap_or_default();
        let newest = self.newest_first().unwrap_or_default();
        let newest = newest.first().filter(|_| !is_shared);
        let newest = newest.and_then(|newest| self.contents(newest).ok());
        Need::of(&newest.unwrap_or_default(), &live, is_shared)
    }

    fn refusal(&self, wanted: &RoomFor<'_>, path: &Path, need: Need) -> NoRoom {
        let free_bytes = free_space::free(path).map_or(0, |free| free.bytes);
        let (checkpoints, undo_bytes) = if self.is_beside(path) {
            self.freeable()
        } else {
            // What is let go elsewhere makes no room here.
            (Vec::new(), 0)
        };
        NoRoom {
            what: match wanted {
                RoomFor::Checkpoint => RoomUse::Checkpoint,
                RoomFor::Change(plan) => match plan.source.verb {
                    ChangeVerb::Revert => RoomUse::Revert,
                    ChangeVerb::Restore => RoomUse::Restore,
                    ChangeVerb::Undo => RoomUse::Undo,
                    ChangeVerb::Promote => RoomUse::Promotion,
                },
            },
            path: path.to_owned(),
            need_bytes: need.bytes(),
            free_bytes,
            checkpoints,
            undo_bytes,
            source: None,
        }
    }

    /// Whether a path is on the filesystem of the checkpoints.
    fn is_beside(&self, path: &Path) -> bool {
        let device = |path: &Path| std::fs::metadata(path).map(|seen| seen.dev()).ok();
        device(path) == device(&self.session().path)
    }

    /// What each checkpoint would free, the most first; and what all undo checkpoints would.
    fn freeable(&self) -> (Vec<Freeable>, u64) {
        let freed = self.pool().freed(self.directory());
        let (Ok(freed), Ok(occupants)) = (freed, self.pool().list()) else {
            return (Vec::new(), 0);
        };
        let name = |slot| {
            let mut known = occupants.iter().filter_map(Occupant::known);
            known.find(|one| one.slot == slot)?.name.clone()
        };
        let all = freed.slots.iter().map(|one| Freeable {
            checkpoint: one.slot.to_string(),
            name: name(one.slot).map(|name| name.to_string()),
            bytes: one.exclusive,
        });
        let mut all: Vec<Freeable> = all.collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.bytes));
        (all, freed.undos)
    }
}
