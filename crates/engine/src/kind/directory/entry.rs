//! Which entry of a snapshot somebody means who stands in a directory of the subject.

use super::{DirSnapshot, Directory};
use crate::bridge;
use stasis_model::tree::EntryPath;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// What an entry is looked for in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryIn {
    /// The snapshot alone.
    Snapshot,
    /// The snapshot, and what is there now.
    SnapshotOrNow,
}

impl Directory {
    /// The entry that a path means from `here`, which lies below the top, if there is one; otherwise paths go from the top. A whole path of
    /// this host is one of its entries, too.
    pub async fn entry_from(
        &self,
        of: &DirSnapshot,
        typed: &Path,
        here: &Path,
        within: EntryIn,
    ) -> Option<EntryPath> {
        let top = self.top().await?;
        if here == top && typed.is_relative() {
            return None;
        }
        let entry = below(&top, typed, here)?;
        let live = top.join(OsStr::from_bytes(entry.as_bytes()));
        let is_live = within == EntryIn::SnapshotOrNow && live.symlink_metadata().is_ok();
        if is_live || self.has(of, &entry).await {
            return Some(entry);
        }
        // Neither here nor from the top: then it is missed where it was looked for first.
        let from_top = below(&top, typed, &top);
        match from_top {
            Some(from_top) if self.has(of, &from_top).await => None,
            _ => Some(entry),
        }
    }

    async fn has(&self, of: &DirSnapshot, entry: &EntryPath) -> bool {
        let listed = self.ls(of, entry).await;
        listed.is_ok_and(|listed| !listed.is_empty())
    }

    /// The directory that the entries of its snapshots lie in.
    async fn top(&self) -> Option<PathBuf> {
        let top = match (&self.workspace, &self.project) {
            (Some(workspace), _) => workspace.directory().to_owned(),
            (None, Some(project)) => project.live(),
            (None, None) => return None,
        };
        bridge::blocking(move || top.canonicalize().ok()).await
    }
}

/// The entry of a directory that a path leads to from a place in it; none if it leads out of it.
fn below(top: &Path, typed: &Path, here: &Path) -> Option<EntryPath> {
    let mut place: Vec<&[u8]> = Vec::new();
    let whole = here.join(typed);
    for component in whole.strip_prefix(top).ok()?.components() {
        match component {
            Component::Normal(name) => place.push(name.as_bytes()),
            Component::ParentDir => {
                place.pop()?;
            }
            _ => {}
        }
    }
    EntryPath::parse(&place.join(&b'/')).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(typed: &str, here: &str) -> Option<String> {
        let found = below(
            Path::new("/home/me/notes"),
            Path::new(typed),
            Path::new(here),
        );
        found.map(|entry| entry.to_string())
    }

    #[test]
    fn a_path_goes_from_where_one_stands_and_not_out_of_the_directory() {
        let read = |typed| entry(typed, "/home/me/notes/src/cli");
        assert_eq!(read("mod.rs").as_deref(), Some("src/cli/mod.rs"));
        assert_eq!(read("./mod.rs").as_deref(), Some("src/cli/mod.rs"));
        assert_eq!(read("../lib.rs").as_deref(), Some("src/lib.rs"));
        assert_eq!(read("/home/me/notes/a").as_deref(), Some("a"));
        assert_eq!(read("../../../a"), None);
        assert_eq!(read("/etc/passwd"), None);
        assert_eq!(entry("a", "/elsewhere"), None);
    }
}
