//! Which snapshot of a profile somebody means who types `latest~2`, a time, or the beginning of a digest.

use super::inventory::{Damage as _, Inventory};
use super::subject::ShaPrefix;
use crate::error::{Error, ProfileError};
use crate::handle::Profiles;
use crate::system::typed_at;
use stasis_model::digest::ArchiveDigest;
use stasis_model::id::{Lineage, ProfileRef};
use stasis_model::invalid::Invalid;
use stasis_model::snapshot_ref::{Candidate, SnapshotRef, Unresolved};
use stasis_model::time::{Clock, Timestamp};
use stasis_store::documents::profiles::StoredSnapshot;
use std::borrow::Cow;
use std::fmt;
use std::slice;
use std::str::FromStr;

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
    /// Whether it was active once and can be again: `latest~2` counts no others.
    counts: bool,
}

impl Candidate for Named {
    fn id(&self) -> Cow<'_, str> {
        self.archive.to_string().into()
    }

    fn at(&self) -> Timestamp {
        self.at
    }

    fn is_automatic(&self) -> bool {
        !self.counts
    }
}

/// Which snapshot of a profile is meant: `latest`, `latest~2`, a time, or the beginning of a digest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted(SnapshotRef);

impl Default for Wanted {
    fn default() -> Self {
        Self(SnapshotRef::Latest)
    }
}

impl From<ArchiveDigest> for Wanted {
    fn from(archive: ArchiveDigest) -> Self {
        Self(SnapshotRef::Text(archive.to_string()))
    }
}

impl FromStr for Wanted {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let read: SnapshotRef = text.parse()?;
        if matches!(read, SnapshotRef::Text(_) | SnapshotRef::Checkpoint(_)) {
            // Nothing else is written like a digest.
            text.parse::<ShaPrefix>()?;
        }
        Ok(Self(read))
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Inventory {
    /// The one that is meant, which must be whole and not be deleted.
    pub(super) fn wanted_whole(
        &self,
        Wanted(wanted): &Wanted,
        clock: &dyn Clock,
    ) -> Result<&StoredSnapshot, Error> {
        match wanted {
            SnapshotRef::Latest => self.active_whole(),
            SnapshotRef::Text(text) => self.choose_whole(&digits(text, self)?),
            wanted => {
                let chosen = located_in(slice::from_ref(self), &self.subject(), wanted, clock)?;
                self.choose_whole(&chosen.sha())
            }
        }
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
        located_in(&every, subject, wanted, &*self.clock)
    }
}

/// The same among what was listed.
pub(super) fn located_in(
    every: &[Inventory],
    subject: &ProfileRef,
    wanted: &SnapshotRef,
    clock: &dyn Clock,
) -> Result<LocatedProfile, Error> {
    let latest = || every.iter().find_map(active);
    // Of a time, only what was active once: what diverged then, nobody chose.
    let by_time = matches!(wanted, SnapshotRef::Time(_));
    let all = every.iter().flat_map(named);
    let all = all.filter(|one| one.counts || !by_time);
    let found = wanted.resolve(all, latest, typed_at(clock));
    let found = found.map_err(|why| unresolved(why, subject, wanted))?;
    let is_there = |one: &&Inventory| named(one).any(|named| named.archive == found.archive);
    let inventory = every.iter().find(is_there);
    let inventory = inventory.ok_or_else(|| ProfileError::NoActive(subject.clone()))?;
    Ok(LocatedProfile {
        lineage: inventory.lineage.clone(),
        archive: found.archive,
    })
}

/// What was typed as the beginning of a digest.
fn digits(text: &str, inventory: &Inventory) -> Result<ShaPrefix, Error> {
    let none = |_| ProfileError::NoSnapshot {
        wanted: text.to_owned(),
        subject: inventory.subject(),
    };
    Ok(text.parse().map_err(none)?)
}

/// Everything that can be named: what was deleted cannot.
fn named(inventory: &Inventory) -> impl Iterator<Item = Named> {
    let published = inventory.published();
    let all = inventory.stored.snapshots.iter();
    let all = all.filter(|one| !inventory.is_tombstoned(one.active.archive));
    all.map(move |one| Named {
        archive: one.active.archive,
        at: one.manifest.captured_at_ms,
        counts: one.damage().is_none() && published.contains(&one.active.archive),
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
