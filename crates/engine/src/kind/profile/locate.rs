//! Which snapshot of a profile somebody means who types `latest~2`, a time, or the beginning of a digest.

use super::inventory::Inventory;
use super::subject::ShaPrefix;
use crate::error::{Error, ProfileError};
use crate::handle::Profiles;
use crate::system::typed_at;
use stasis_model::digest::ArchiveDigest;
use stasis_model::id::{Lineage, ProfileRef};
use stasis_model::snapshot_ref::{Candidate, SnapshotRef, Unresolved};
use stasis_model::time::Timestamp;
use std::borrow::Cow;

/// One snapshot of a profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocatedProfile {
    /// Of which lineage.
    pub lineage: Lineage,
    /// Which.
    pub archive: ArchiveDigest,
}

impl LocatedProfile {
    /// How the verbs of profiles name it.
    pub fn sha(&self) -> ShaPrefix {
        ShaPrefix::from(self.archive)
    }
}

/// A snapshot, as far as its name is concerned.
#[derive(Clone, Copy)]
struct Named {
    archive: ArchiveDigest,
    at: Timestamp,
}

impl Candidate for Named {
    fn id(&self) -> Cow<'_, str> {
        self.archive.to_string().into()
    }

    fn at(&self) -> Timestamp {
        self.at
    }
}

impl Profiles<'_> {
    /// The snapshot that somebody means. A digest is looked for under every major; `latest` and times need one major, named or the only one.
    pub async fn locate(
        self,
        subject: &ProfileRef,
        wanted: &SnapshotRef,
    ) -> Result<LocatedProfile, Error> {
        let lineages = match wanted {
            SnapshotRef::Text(_) => self.lineages_of(subject).await?,
            _ => vec![self.one_lineage(subject).await?],
        };
        let mut every = Vec::new();
        for lineage in &lineages {
            every.push(self.inventory(lineage).await?);
        }
        let latest = || every.iter().find_map(active);
        let clock = &*self.clock;
        let found = wanted.resolve(every.iter().flat_map(named), latest, typed_at(clock));
        let found = found.map_err(|why| unresolved(why, subject, wanted))?;
        let is_there = |one: &&Inventory| named(one).any(|named| named.archive == found.archive);
        let inventory = every.iter().find(is_there);
        let inventory = inventory.ok_or_else(|| ProfileError::NoActive(subject.clone()))?;
        Ok(LocatedProfile {
            lineage: inventory.lineage.clone(),
            archive: found.archive,
        })
    }
}

/// Everything that can be named: what was deleted cannot.
fn named(inventory: &Inventory) -> impl Iterator<Item = Named> {
    let all = inventory.stored.snapshots.iter();
    let all = all.filter(|one| !inventory.is_tombstoned(one.active.archive));
    all.map(|one| Named {
        archive: one.active.archive,
        at: one.manifest.captured_at_ms,
    })
}

fn active(inventory: &Inventory) -> Option<Named> {
    let archive = inventory.active()?;
    named(inventory).find(|one| one.archive == archive)
}

fn unresolved(why: Unresolved<Named>, subject: &ProfileRef, wanted: &SnapshotRef) -> Error {
    let (wanted, subject) = (wanted.to_string(), subject.clone());
    match why {
        Unresolved::Absent => ProfileError::NoSnapshot { wanted, subject },
        Unresolved::NoLatest => ProfileError::NoActive(subject),
        Unresolved::Ambiguous(fits) => ProfileError::AmbiguousSha {
            wanted,
            subject,
            fits: fits.iter().map(|one| one.archive.prefix()).collect(),
        },
    }
    .into()
}
