//! A name or a pattern through all snapshots of a directory, in the store and on this host.

use super::{DirSnapshot, Directory};
use crate::catalog::ListedEntry;
use crate::error::Error;
use crate::find::{FoundVersions, NamePattern, VersionFinder};
use stasis_model::tree::EntryPath;
use stasis_model::workspace::CheckpointRef;

impl Directory {
    /// Every version of the entries that a name or a pattern fits, as in a `.gitignore`. Of a directory that fits, what is in it is not
    /// named.
    pub async fn find_all(&self, pattern: &str) -> Result<FoundVersions, Error> {
        let pattern = NamePattern::parse(pattern)?;
        let mut moments = self.moments().await?;
        moments.sort_by_key(|one| one.at);
        let mut finder = VersionFinder::default();
        for one in &moments {
            let entries = self.fitting(&one.snapshot, pattern.clone()).await;
            finder.add(one.snapshot.to_string(), one.at, entries)?;
        }
        Ok(finder.finish())
    }

    /// The entries of one snapshot that fit.
    async fn fitting(
        &self,
        of: &DirSnapshot,
        pattern: NamePattern,
    ) -> Result<Vec<ListedEntry>, Error> {
        let is_wanted = move |entry: &ListedEntry, path: &EntryPath| pattern.fits(entry, path);
        match of {
            DirSnapshot::Stored(id) => self.project()?.entries_that(id, is_wanted).await,
            DirSnapshot::Checkpoint(slot) => {
                let which = CheckpointRef::Slot(*slot);
                self.workspace()?.entries_that(&which, is_wanted).await
            }
        }
    }
}
