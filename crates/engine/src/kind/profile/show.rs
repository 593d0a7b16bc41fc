//! One snapshot, and what its lineage's pointer and lock say.

use super::inventory::{Inventory, LockWord, SnapshotRow};
use super::load::judge::{known_flaws, moved_since};
use super::subject::ShaPrefix;
use crate::address::as_typed;
use crate::error::{Error, ProfileError};
use crate::handle::Profiles;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::format::lease::Lock;
use stasis_model::format::manifest::ProfileManifest;
use stasis_model::format::pointer::Pointer;
use stasis_model::id::{Lineage, ProfileRef};
use stasis_store::documents::profiles::{LineageSnapshots, StoredSnapshot};

/// One lineage and a snapshot of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ShownLineage {
    /// Which lineage.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// The snapshot; `None` when none counts.
    pub snapshot: Option<SnapshotRow>,
    /// `latest.json`
    #[schemars(with = "Option<serde_json::Value>")]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ShownProfile {
    /// One per major.
    pub lineages: Vec<ShownLineage>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl Profiles<'_> {
    /// Shows the snapshot whose digest begins with `sha`, else the active one of every major.
    pub async fn show(
        self,
        subject: &ProfileRef,
        sha: Option<&ShaPrefix>,
    ) -> Result<ShownProfile, Error> {
        let mut every = Vec::new();
        for lineage in self.lineages_of(subject).await? {
            every.push(self.inventory(&lineage).await?);
        }
        let mut lineages = match sha {
            Some(sha) => vec![self.shown_by_sha(&every, sha, subject)?],
            None => self.shown_active(&every, subject).await?,
        };
        let mut warnings = self.clock_warnings();
        for one in &mut lineages {
            self.add_proofs(&one.subject, &mut one.snapshot).await?;
            let inventory = every.iter().find(|found| found.lineage == one.subject);
            let manifest = one.snapshot.as_ref().map(|row| &row.manifest);
            warnings.extend(inventory.zip(manifest).into_iter().flat_map(about_snapshot));
            // Whoever asks for one snapshot knows which browser it is of.
            if sha.is_none() && one.damage.is_empty() {
                warnings.extend(self.other_majors(&one.subject, manifest).await);
            }
        }
        Ok(ShownProfile { lineages, warnings })
    }

    fn shown_by_sha(
        self,
        every: &[Inventory],
        sha: &ShaPrefix,
        subject: &ProfileRef,
    ) -> Result<ShownLineage, Error> {
        let all = || every.iter().flat_map(of_inventory);
        let chosen = sha.choose(all().map(|(_, one)| one.active.archive), subject)?;
        let (inventory, one) = all()
            .find(|(_, one)| one.active.archive == chosen)
            .expect("it was chosen among these");
        Ok(self.shown(inventory, Some(one)))
    }

    async fn shown_active(
        self,
        every: &[Inventory],
        subject: &ProfileRef,
    ) -> Result<Vec<ShownLineage>, Error> {
        let mut shown = Vec::new();
        for inventory in every {
            let active = inventory
                .pointer
                .as_ref()
                .and_then(|found| found.active.as_ref());
            let listed = |one: &&StoredSnapshot| {
                active.is_some_and(|active| active.manifest == one.active.manifest)
            };
            let one = inventory.stored.snapshots.iter().find(listed);
            if let (Some(active), None) = (active, one) {
                // The pointer leads to something that the listing does not show as usable: why, the manifest says.
                let read = LineageSnapshots::of(&*self.bucket, &inventory.lineage);
                read.manifest(active).await.map_err(Error::unusable)?;
            }
            shown.push(self.shown(inventory, one));
        }
        let is_empty = |one: &ShownLineage| one.snapshot.is_none() && one.damage.is_empty();
        if shown.iter().all(is_empty) {
            return Err(ProfileError::NoActive(subject.clone()).into());
        }
        Ok(shown)
    }

    fn shown(self, inventory: &Inventory, one: Option<&StoredSnapshot>) -> ShownLineage {
        ShownLineage {
            subject: inventory.lineage.clone(),
            snapshot: one.map(|one| inventory.row(one)),
            pointer: inventory.pointer.clone(),
            lock_state: LockWord::of(inventory.lock.as_ref(), self.lineages.now()),
            lock: inventory.lock.clone(),
            damage: inventory.damage.clone(),
        }
    }
}

/// What a load of a snapshot would say, as far as its manifest and that of the one before it tell.
fn about_snapshot((inventory, manifest): (&Inventory, &ProfileManifest)) -> Vec<Warning> {
    let mut stored = inventory.stored.snapshots.iter();
    let before = manifest.predecessor_sha256;
    let before = stored.find(|one| Some(one.active.archive) == before);
    let moved = before.and_then(|before| moved_since(&before.manifest, manifest));
    moved.into_iter().chain(known_flaws(manifest)).collect()
}

fn of_inventory(inventory: &Inventory) -> impl Iterator<Item = (&Inventory, &StoredSnapshot)> {
    inventory
        .stored
        .snapshots
        .iter()
        .map(move |one| (inventory, one))
}
