//! A name or a pattern through all snapshots of a subject: every version of what fits, and which snapshots have it.

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
use std::collections::BTreeMap;
use std::fmt;
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

/// A name, or a pattern as in a `.gitignore`.
#[derive(Clone)]
pub(crate) struct NamePattern(Arc<KeepIf>);

impl fmt::Debug for NamePattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("NamePattern").finish_non_exhaustive()
    }
}

impl NamePattern {
    pub(crate) fn parse(pattern: &str) -> Result<Self, Error> {
        let fits = walk::matcher(&[pattern.to_owned()]).map_err(|error| {
            let said = format!("`{pattern}` is no pattern: {}", error_chain(&error));
            Failure::of(ErrorKind::Invalid, said)
                .with_hint("a name, or a pattern as in a .gitignore: `*.rs`, `src/*.rs`, `/README`")
        })?;
        Ok(Self(Arc::new(Box::new(fits))))
    }

    /// Whether an entry fits. What is in a directory that fits is not named besides.
    pub(crate) fn fits(&self, entry: &ListedEntry, path: &EntryPath) -> bool {
        let fits = &self.0;
        let above = path.split_last().map(|(above, _)| above);
        let is_in_one = above.is_some_and(|above| !above.is_root() && fits(&above, true));
        !path.is_root() && fits(path, entry.kind == EntryType::Directory) && !is_in_one
    }
}

/// Takes what fits from one snapshot after the other, the oldest first, and tells versions apart.
#[derive(Debug, Default)]
pub(crate) struct VersionFinder {
    found: BTreeMap<String, Vec<FoundVersion>>,
    unreadable: Vec<UnreadableSnapshot>,
    previous: Option<String>,
    snapshots: u64,
}

impl VersionFinder {
    /// What fits in the next snapshot. One that is damaged is noted; any other error ends the search.
    pub(crate) fn add(
        &mut self,
        snapshot: String,
        at: Timestamp,
        entries: Result<Vec<ListedEntry>, Error>,
    ) -> Result<(), Error> {
        self.snapshots += 1;
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) if is_damage(&error) => {
                let why = error_chain(&error);
                self.unreadable.push(UnreadableSnapshot { snapshot, why });
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for entry in entries {
            let versions = self.found.entry(entry.path.clone()).or_default();
            match versions.last_mut() {
                Some(last)
                    if Some(&last.last) == self.previous.as_ref()
                        && is_same(&last.entry, &entry) =>
                {
                    last.goes_on(&snapshot, at);
                }
                _ => versions.push(FoundVersion::new(entry, &snapshot, at)),
            }
        }
        self.previous = Some(snapshot);
        Ok(())
    }

    pub(crate) fn finish(self) -> FoundVersions {
        FoundVersions {
            items: self.found.into_values().flatten().collect(),
            snapshots: self.snapshots,
            unreadable: self.unreadable,
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
        || matches!(
            error,
            Error::Workspace(_) | Error::Profile(_) | Error::Archive(_)
        ) && error.kind() == ErrorKind::Corrupt
}

/// Whether two entries of one path are the same to somebody who looks for a version. An archive says nothing of contents: there, size and
/// time tell.
fn is_same(one: &ListedEntry, other: &ListedEntry) -> bool {
    let key = |entry: &ListedEntry| {
        let by_time = (entry.blake3.is_none() && entry.kind == EntryType::File)
            .then_some((entry.size, entry.mtime));
        (
            entry.kind,
            entry.mode,
            entry.blake3,
            entry.target.clone(),
            by_time,
        )
    };
    key(one) == key(other)
}
