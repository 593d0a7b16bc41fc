//! What a profile is known by: the sites that it is signed in to, and what a newer Chrome left of them.

use crate::check::Spawn;
use crate::error::Error;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::check::{self, CheckSettings};
use stasis_disk::form::archive::{Archive, ArchiveError, ReadSettings};
use stasis_model::tree::{EntryKind, EntryPath};
use stasis_model::upgrade::{Ancestor, ProfileContents, ProfileCounts};

/// What a profile is known by, and what of it could not be read.
#[derive(Debug, Default)]
pub(super) struct CountedContents {
    pub(super) known: ProfileContents,
    pub(super) unread: Vec<String>,
}

/// How a profile came through the migration to a newer Chrome.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct UpgradeReport {
    /// What it was carried from.
    pub from: Ancestor,
    /// What it was known by; `None` when that could not be counted.
    pub before: Option<ProfileCounts>,
    /// What it is known by; `None` when that could not be counted.
    pub after: Option<ProfileCounts>,
    /// Whether there is less than before.
    pub has_lost: bool,
    /// Sites and origins of which something is missing, the first few.
    pub missing: Vec<String>,
    /// What could not be counted, and why.
    pub unread: Vec<String>,
}

/// Every entry of an archive, with the length of files.
pub(super) fn entries(
    archive: &Archive,
    settings: &CheckSettings,
) -> Result<Vec<(EntryPath, u64)>, Error> {
    let mut entries = Vec::new();
    let reading = ReadSettings {
        cancel: settings.cancel.clone(),
        ..ReadSettings::default()
    };
    archive.list(&reading, |entry| {
        let size = match entry.kind {
            EntryKind::File { size } => size,
            _ => 0,
        };
        entries.push((entry.path.clone(), size));
        Ok::<_, ArchiveError>(())
    })?;
    Ok(entries)
}

/// What the profile in an archive is known by.
pub(super) fn count(
    archive: &Archive,
    settings: &CheckSettings,
    spawn: &Spawn,
) -> Result<CountedContents, Error> {
    let entries = entries(archive, settings)?;
    let identity = check::identity(archive, &entries, settings, spawn)?;
    let local = identity.local_storage.iter();
    let local = local.map(|origin| format!("{origin} (localStorage)"));
    let indexed = identity.indexed_db.iter();
    let indexed = indexed.map(|origin| format!("{origin} (IndexedDB)"));
    Ok(CountedContents {
        known: ProfileContents {
            cookies: identity.lives,
            origins: local.chain(indexed).collect(),
        },
        unread: identity.unread,
    })
}
