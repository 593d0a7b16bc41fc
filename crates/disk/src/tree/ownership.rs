//! Gives a whole tree to one owner.

use crate::fs::root_dir::{Mounts, RootDir};
use crate::tree::walk::{self, Visitor, WalkError, WalkSettings, WalkedDir, WalkedEntry};
use rustix::fs::{AtFlags, Gid, Uid, chownat, fchown};
use stasis_model::failure::{AtPath, Failure, OPEN_DIRECTORY};
use std::path::Path;

const GIVE: &str = "give to its owner";

/// Makes `user` and `group` the owner of a directory and of everything in it; links are given, never followed. Permissions stay, but that
/// of setuid and setgid, which a change of owner takes away.
pub fn give(tree: &Path, user: u32, group: u32) -> Result<(), WalkError> {
    let root = RootDir::open(tree, Mounts::Cross).at(OPEN_DIRECTORY, tree);
    let root = root.map_err(WalkError::from)?;
    let giver = Giver {
        user: Uid::from_raw(user),
        group: Gid::from_raw(group),
    };
    let settings = WalkSettings {
        strict: true,
        ..WalkSettings::default()
    };
    // Strict: whatever could not be given is an error.
    let _report = walk::walk(&root, &giver, &settings)?;
    Ok(())
}

struct Giver {
    user: Uid,
    group: Gid,
}

impl Visitor for Giver {
    type Error = WalkError;

    fn enter(&self, place: &WalkedDir<'_>) -> Result<(), WalkError> {
        let given = fchown(place.fd, Some(self.user), Some(self.group));
        Ok(given.on(GIVE, place.path)?)
    }

    fn visit(&self, place: &WalkedDir<'_>, entries: &[WalkedEntry<'_>]) -> Result<(), WalkError> {
        for entry in entries {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let given = chownat(
                place.fd,
                entry.name,
                Some(self.user),
                Some(self.group),
                flags,
            );
            let name = || format!("{}/{}", place.path, entry.name.to_string_lossy());
            let failed = |error| Failure::from_io(error, GIVE, name());
            given.map_err(failed)?;
        }
        Ok(())
    }
}
