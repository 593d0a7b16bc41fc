//! Which entry of a snapshot somebody means who stands in a directory of the subject.

use super::{DirSnapshot, Directory};
use crate::bridge;
use crate::error::{Error, ErrorKind};
use stasis_model::failure::Failure;
use stasis_model::tree::EntryPath;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// What an entry is looked for in.
#[derive(Clone, Copy, Debug)]
pub enum EntryIn<'a> {
    /// A snapshot alone.
    Snapshot(&'a DirSnapshot),
    /// A snapshot, and what is there now.
    SnapshotOrNow(&'a DirSnapshot),
    /// What taking back a change of the workspace moves, and what is there now; without a number, of the last one.
    UndoOrNow(Option<u32>),
}

impl Directory {
    /// The entry that a path means from `here`, which lies below the top, if there is one; otherwise paths go from the top. A whole path of
    /// this host is one of its entries, too.
    pub async fn entry_from(
        &self,
        typed: &Path,
        here: &Path,
        within: EntryIn<'_>,
    ) -> Option<EntryPath> {
        let top = self.top().await?;
        if here == top && typed.is_relative() {
            return None;
        }
        let entry = below(&top, typed, here)?;
        if self.has(within, &top, &entry).await {
            return Some(entry);
        }
        // Neither here nor from the top: then it is missed where it was looked for first.
        match below(&top, typed, &top) {
            Some(from_top) if self.has(within, &top, &from_top).await => None,
            _ => Some(entry),
        }
    }

    /// Refuses to leave an entry as it is that is nowhere: whoever misspelt it would find changed what they wanted to keep. What is restored
    /// from the store looks for it there.
    pub async fn ensure_entry(&self, entry: &EntryPath, within: EntryIn<'_>) -> Result<(), Error> {
        let comes_back = match within {
            EntryIn::Snapshot(DirSnapshot::Stored(_))
            | EntryIn::SnapshotOrNow(DirSnapshot::Stored(_)) => return Ok(()),
            EntryIn::Snapshot(of) | EntryIn::SnapshotOrNow(of) => format!("in {of}"),
            EntryIn::UndoOrNow(_) => "in what would come back".to_owned(),
        };
        let Some(top) = self.top().await else {
            return Ok(());
        };
        if self.has(within, &top, entry).await {
            return Ok(());
        }
        let said = format!("there is no entry `{entry}`, neither here now nor {comes_back}");
        let hint = "nothing was changed; a path goes from where you stand in the directory, else from its top, as in `src/main.rs`";
        let failure = Failure::of(ErrorKind::NotFound, said);
        Err(failure.with_hint(hint).into())
    }

    async fn has(&self, within: EntryIn<'_>, top: &Path, entry: &EntryPath) -> bool {
        let live = top.join(OsStr::from_bytes(entry.as_bytes()));
        let is_now = !matches!(within, EntryIn::Snapshot(_));
        if is_now && live.symlink_metadata().is_ok() {
            return true;
        }
        match (within, &self.workspace) {
            (EntryIn::Snapshot(of) | EntryIn::SnapshotOrNow(of), _) => {
                let listed = self.ls(of, entry).await;
                listed.is_ok_and(|listed| !listed.is_empty())
            }
            (EntryIn::UndoOrNow(which), Some(workspace)) => {
                let moved = workspace.is_moved_by_undo(which, entry.clone()).await;
                moved.unwrap_or(false)
            }
            (EntryIn::UndoOrNow(_), None) => false,
        }
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
