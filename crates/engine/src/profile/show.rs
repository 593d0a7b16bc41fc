//! One snapshot, and what its lineage's pointer and lock say.

use super::refusal::{OperatorError, unusable};
use super::standing::{LockWord, Shelf, SnapshotRow};
use super::subject::ShaPrefix;
use crate::error::Error;
use crate::open::Engine;
use crate::warning::Warning;
use serde::Serialize;
use stasis_model::id::{Lineage, ProfileRef};
use stasis_model::lease::Lock;
use stasis_model::pointer::Pointer;
use stasis_store::profiles::{Snapshots, StoredSnapshot};

/// One lineage and a snapshot of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ShownLineage {
    /// Which lineage.
    pub subject: Lineage,
    /// The snapshot; `None` when none counts.
    pub snapshot: Option<SnapshotRow>,
    /// `latest.json`
    pub pointer: Option<Pointer>,
    /// Who owns it.
    pub lock_state: LockWord,
    /// `lock.json`
    pub lock: Option<Lock>,
    /// Documents that cannot be understood.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<String>,
}

/// What was asked for of a profile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ShownProfile {
    /// One per major.
    pub lineages: Vec<ShownLineage>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl Engine {
    /// Shows the snapshot whose digest begins with `sha`, else the active one of every major.
    pub async fn show_profile(
        &self,
        subject: &ProfileRef,
        sha: Option<&ShaPrefix>,
    ) -> Result<ShownProfile, Error> {
        let mut shelves = Vec::new();
        for lineage in self.lineages_of(subject).await? {
            shelves.push(self.shelf(&lineage).await?);
        }
        let lineages = match sha {
            Some(sha) => vec![self.shown_by_sha(&shelves, sha, subject)?],
            None => self.shown_active(&shelves, subject).await?,
        };
        let warnings = self.clock_warnings();
        Ok(ShownProfile { lineages, warnings })
    }

    fn shown_by_sha(
        &self,
        shelves: &[Shelf],
        sha: &ShaPrefix,
        subject: &ProfileRef,
    ) -> Result<ShownLineage, Error> {
        let all = || shelves.iter().flat_map(of_shelf);
        let chosen = sha.choose(all().map(|(_, one)| one.active.archive), subject)?;
        let (shelf, one) = all()
            .find(|(_, one)| one.active.archive == chosen)
            .expect("it was chosen among these");
        Ok(self.shown(shelf, Some(one)))
    }

    async fn shown_active(
        &self,
        shelves: &[Shelf],
        subject: &ProfileRef,
    ) -> Result<Vec<ShownLineage>, Error> {
        let mut shown = Vec::new();
        for shelf in shelves {
            let active = shelf
                .pointer
                .as_ref()
                .and_then(|found| found.active.as_ref());
            let listed = |one: &&StoredSnapshot| {
                active.is_some_and(|active| active.manifest == one.active.manifest)
            };
            let one = shelf.stored.snapshots.iter().find(listed);
            if let (Some(active), None) = (active, one) {
                // The pointer leads to something that the listing does not show as usable: why, the manifest says.
                let read = Snapshots::of(&*self.bucket, &shelf.lineage);
                read.manifest(active).await.map_err(unusable)?;
            }
            shown.push(self.shown(shelf, one));
        }
        let is_empty = |one: &ShownLineage| one.snapshot.is_none() && one.damage.is_empty();
        if shown.iter().all(is_empty) {
            return Err(OperatorError::NoActive(subject.clone()).into());
        }
        Ok(shown)
    }

    fn shown(&self, shelf: &Shelf, one: Option<&StoredSnapshot>) -> ShownLineage {
        ShownLineage {
            subject: shelf.lineage.clone(),
            snapshot: one.map(|one| shelf.row(one)),
            pointer: shelf.pointer.clone(),
            lock_state: LockWord::of(shelf.lock.as_ref(), self.lineages.now()),
            lock: shelf.lock.clone(),
            damage: shelf.damage.clone(),
        }
    }
}

fn of_shelf(shelf: &Shelf) -> impl Iterator<Item = (&Shelf, &StoredSnapshot)> {
    shelf.stored.snapshots.iter().map(move |one| (shelf, one))
}
