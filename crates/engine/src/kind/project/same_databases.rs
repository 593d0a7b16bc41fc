//! Databases that hold what a snapshot has of them, though their files differ.
//!
//! A save stores one committed state of a database as one file. The live one may have a part of the same state in its WAL, or another
//! count of changes in its header: its files are others, what is in it is not. So what differs by its bytes is copied as a save copies it,
//! and that is compared.

use crate::save::committed_digest;
use stasis_disk::form::chunked::ChunkError;
use stasis_disk::form::chunked::databases::owner_name;
use stasis_disk::fs::root_dir::RootDir;
use stasis_disk::tree::compare::compare_live;
use stasis_model::digest::FileDigest;
use stasis_model::format::manifest::{SnapshotManifest, StoredAs};
use stasis_model::tree::diff::{ChangeKind, DiffError, DigestedEntry};
use stasis_model::tree::{Entry, EntryPath, Metadata};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The databases of a snapshot, with what is needed to compare them with live ones.
pub(crate) struct StoredDatabases {
    all: BTreeMap<EntryPath, StoredDatabase>,
}

struct StoredDatabase {
    digest: FileDigest,
    was: Option<Metadata>,
    is: Option<Metadata>,
}

impl StoredDatabases {
    /// Those that the snapshot has as one committed state.
    pub(crate) fn of(manifest: &SnapshotManifest) -> Self {
        let databases = manifest.databases.iter();
        let consistent = databases.filter(|(_, one)| one.state == StoredAs::Consistent);
        let parsed = consistent.filter_map(|(path, one)| {
            let (digest, was, is) = (one.digest, None, None);
            Some((path.parse().ok()?, StoredDatabase { digest, was, is }))
        });
        Self {
            all: parsed.collect(),
        }
    }

    /// The same of a part of its tree, by their paths in that.
    pub(crate) fn of_part(manifest: &SnapshotManifest, part: &EntryPath) -> Self {
        let all = Self::of(manifest).all.into_iter();
        let inside = all.filter_map(|(path, one)| Some((path.seen_from(part)?, one)));
        Self {
            all: inside.collect(),
        }
    }

    /// What differs between a tree in which a walk found `entries` and a list, but for databases that hold the same.
    pub(crate) fn compare(
        mut self,
        live: &RootDir,
        entries: Vec<Entry>,
        listed: impl Iterator<Item = Result<DigestedEntry, ChunkError>>,
        spool: &Path,
    ) -> Result<Vec<(EntryPath, ChangeKind)>, ChunkError> {
        if !self.all.is_empty() {
            for entry in &entries {
                if let Some(one) = self.all.get_mut(&entry.path) {
                    one.is = Some(entry.metadata);
                }
            }
        }
        let listed = listed.inspect(|one| {
            if let Ok(DigestedEntry { entry, .. }) = one
                && let Some(one) = self.all.get_mut(&entry.path)
            {
                one.was = Some(entry.metadata);
            }
        });
        let found = compare_live(live, entries, listed);
        let mut found = found.map_err(DiffError::into_source)?;
        self.settle(live, spool, &mut found);
        Ok(found)
    }

    /// Takes out of some differences what is none: databases that hold the same, and what SQLite keeps beside those.
    fn settle(&self, live: &RootDir, spool: &Path, found: &mut Vec<(EntryPath, ChangeKind)>) {
        let mut same = BTreeSet::new();
        found.retain_mut(|(path, change)| {
            let Some(stored) = self.all.get(path) else {
                return true;
            };
            let is_same = *change == ChangeKind::Content
                && committed_digest(live, path, spool) == Some(stored.digest);
            if !is_same {
                return true;
            }
            same.insert(path.clone());
            *change = ChangeKind::Metadata;
            stored.has_other_owner_or_mode()
        });
        found.retain(|(path, change)| {
            let owner = path.split_last().and_then(|(above, name)| {
                let owner = owner_name(name)?;
                above.child(owner).ok()
            });
            *change != ChangeKind::Added || owner.is_none_or(|owner| !same.contains(&owner))
        });
    }
}

impl StoredDatabase {
    /// The time of a file that is written to when SQLite likes says nothing.
    fn has_other_owner_or_mode(&self) -> bool {
        let known = |one: &Metadata| (one.mode, one.uid, one.gid);
        self.was.as_ref().map(known) != self.is.as_ref().map(known)
    }
}
