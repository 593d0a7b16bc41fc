//! A name or a pattern through all snapshots of a directory, in the store and on this host.

use super::{DirSnapshot, Directory};
use crate::catalog::{ListedEntry, references};
use crate::error::{Error, ErrorKind, error_chain};
use crate::result::EntryType;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::tree::restore::KeepIf;
use stasis_disk::tree::walk;
use stasis_model::failure::Failure;
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use stasis_model::workspace::CheckpointRef;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One version of an entry, and which snapshots have it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct FoundVersion {
    /// The entry, as the first of them has it.
    #[serde(flatten)]
    pub entry: ListedEntry,
    /// The first snapshot that has it so.
    pub first: String,
    /// When that was made.
    pub first_at: String,
    /// The same in milliseconds.
    pub first_at_ms: u64,
    /// The last one.
    pub last: String,
    /// When that was made.
    pub last_at: String,
    /// The same in milliseconds.
    pub last_at_ms: u64,
    /// How many have it so, one after the other.
    pub snapshots: u64,
}

/// Everything that a name or a pattern fits, in all snapshots.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct FoundVersions {
    /// By path, the oldest version first.
    pub items: Vec<FoundVersion>,
    /// How many snapshots were looked into.
    pub snapshots: u64,
    /// Snapshots that could not be read, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableSnapshot>,
}

/// A snapshot that could not be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct UnreadableSnapshot {
    /// Which.
    pub snapshot: String,
    /// Why.
    pub why: String,
}

impl Directory {
    /// Every version of the entries that a name or a pattern fits, as in a `.gitignore`. Of a directory that fits, what is in it is not
    /// named.
    pub async fn find_all(&self, pattern: &str) -> Result<FoundVersions, Error> {
        let fits = walk::matcher(&[pattern.to_owned()]).map_err(|error| {
            let said = format!("`{pattern}` is no pattern: {}", error_chain(&error));
            Failure::of(ErrorKind::Invalid, said)
                .with_hint("a name, or a pattern as in a .gitignore: `*.rs`, `src/*.rs`, `/README`")
        })?;
        let fits: Arc<KeepIf> = Arc::new(Box::new(fits));
        let mut moments = self.moments().await?;
        moments.sort_by_key(|one| one.at);
        let mut found: BTreeMap<String, Vec<FoundVersion>> = BTreeMap::new();
        let mut unreadable = Vec::new();
        let mut previous: Option<String> = None;
        for one in &moments {
            let name = one.snapshot.to_string();
            let entries = match self.fitting(&one.snapshot, Arc::clone(&fits)).await {
                Ok(entries) => entries,
                Err(error) if is_damage(&error) => {
                    unreadable.push(UnreadableSnapshot {
                        snapshot: name,
                        why: error_chain(&error),
                    });
                    continue;
                }
                Err(error) => return Err(error),
            };
            for entry in entries {
                let versions = found.entry(entry.path.clone()).or_default();
                match versions.last_mut() {
                    Some(last)
                        if Some(&last.last) == previous.as_ref()
                            && is_same(&last.entry, &entry) =>
                    {
                        last.goes_on(&name, one.at);
                    }
                    _ => versions.push(FoundVersion::new(entry, &name, one.at)),
                }
            }
            previous = Some(name);
        }
        Ok(FoundVersions {
            items: found.into_values().flatten().collect(),
            snapshots: moments.len() as u64,
            unreadable,
        })
    }

    /// The entries of one snapshot that fit.
    async fn fitting(
        &self,
        of: &DirSnapshot,
        fits: Arc<KeepIf>,
    ) -> Result<Vec<ListedEntry>, Error> {
        let is_wanted = move |entry: &ListedEntry, path: &EntryPath| {
            let above = path.split_last().map(|(above, _)| above);
            let is_in_one = above.is_some_and(|above| !above.is_root() && fits(&above, true));
            !path.is_root() && fits(path, entry.kind == EntryType::Directory) && !is_in_one
        };
        match of {
            DirSnapshot::Stored(id) => self.project()?.entries_that(id, is_wanted).await,
            DirSnapshot::Checkpoint(slot) => {
                let which = CheckpointRef::Slot(*slot);
                self.workspace()?.entries_that(&which, is_wanted).await
            }
        }
    }
}

impl FoundVersion {
    fn new(entry: ListedEntry, snapshot: &str, at: Timestamp) -> Self {
        Self {
            entry,
            first: snapshot.to_owned(),
            first_at: at.to_string(),
            first_at_ms: at.millis(),
            last: snapshot.to_owned(),
            last_at: at.to_string(),
            last_at_ms: at.millis(),
            snapshots: 1,
        }
    }

    /// The next snapshot has it just so.
    fn goes_on(&mut self, snapshot: &str, at: Timestamp) {
        snapshot.clone_into(&mut self.last);
        (self.last_at, self.last_at_ms) = (at.to_string(), at.millis());
        self.snapshots += 1;
    }
}

/// Whether a snapshot cannot be read, and others may be.
fn is_damage(error: &Error) -> bool {
    references::is_damage(error)
        || matches!(error, Error::Workspace(_)) && error.kind() == ErrorKind::Corrupt
}

/// Whether two entries of one path are the same to somebody who looks for a version.
fn is_same(one: &ListedEntry, other: &ListedEntry) -> bool {
    let key = |entry: &ListedEntry| (entry.kind, entry.mode, entry.blake3, entry.target.clone());
    key(one) == key(other)
}
