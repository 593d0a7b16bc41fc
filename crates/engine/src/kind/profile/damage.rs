//! What is wrong with a lineage, as far as its documents and sizes tell.

use super::inventory::{Damage as _, Inventory};
use crate::address::SubjectAddress;
use crate::check::{Remedy, RepoDamage};
use crate::error::{EncryptionError, Error, error_chain};
use crate::handle::Profiles;
use crate::seen::WentBack;
use stasis_model::format::key::KeyOwner;
use stasis_model::id::Lineage;
use stasis_store::documents::profiles::StoredSnapshot;
use stasis_store::layout;

impl Profiles<'_> {
    /// What a listing of its snapshots shows, and whether its pointer and its key are those that were there.
    pub(crate) async fn damage_of(self, lineage: &Lineage) -> Result<Vec<RepoDamage>, Error> {
        let memory = self.memory_of_pointer(lineage).await;
        let inventory = self.inventory(lineage).await?;
        let mut found = damage_in(&inventory);
        let generation = inventory.pointer.as_ref().map(|one| one.generation);
        if let Some(generation) = generation
            && let Some(back) = memory.pointer_went_back(generation).await
        {
            let why = back.said(&newer_in(&inventory));
            found.push(RepoDamage::new("latest.json", why, Remedy::AcceptRollback));
        }
        let mut stored = inventory.stored.snapshots.iter();
        if stored.any(|one| one.manifest.is_encrypted()) {
            let owner = KeyOwner::from(lineage.clone());
            if !self.bucket.exists(&layout::data_key(&owner)).await? {
                let why = EncryptionError::NoKey(owner).to_string();
                found.push(RepoDamage::new("key.json", why, Remedy::Copy));
            }
        }
        for one in &mut found {
            one.address = Some(SubjectAddress::of_lineage(lineage));
        }
        Ok(found)
    }

    /// Why a pointer that went back is not loaded.
    pub(crate) async fn not_believed(self, lineage: &Lineage, back: &WentBack) -> Error {
        // What cannot be listed is not named; the pointer is refused all the same.
        let inventory = self.inventory(lineage).await;
        let newer = inventory.as_ref().map(newer_in).unwrap_or_default();
        back.error(&newer)
    }
}

/// Snapshots that were made after the one which the pointer leads to, and are not to be removed.
fn newer_in(inventory: &Inventory) -> Vec<String> {
    let snapshots = &inventory.stored.snapshots;
    let made = |one: &StoredSnapshot| (one.manifest.lease_epoch, one.manifest.captured_at_ms);
    let mut active = snapshots.iter();
    let active = active.find(|one| Some(one.active.archive) == inventory.active());
    let newer = snapshots.iter().filter(|one| {
        let is_newer = active.is_none_or(|active| made(one) > made(active));
        is_newer && !inventory.is_tombstoned(one.active.archive)
    });
    newer.map(|one| one.active.archive.prefix()).collect()
}

fn damage_in(inventory: &Inventory) -> Vec<RepoDamage> {
    let stored = &inventory.stored;
    let documents = inventory.damage.iter();
    let mut found: Vec<RepoDamage> = documents
        .map(|why| RepoDamage::new("latest.json or lock.json", why, Remedy::Repair))
        .collect();
    for one in &stored.snapshots {
        let archive = one.active.archive;
        if let Some(why) = one.damage().filter(|_| !inventory.is_tombstoned(archive)) {
            let what = format!("snapshot {}", archive.prefix());
            found.push(RepoDamage::new(what, why, Remedy::Copy));
        }
    }
    for (key, error) in &stored.unfit {
        let why = error_chain(error);
        found.push(RepoDamage::new(key.to_string(), why, Remedy::Copy));
    }
    let is_stored = |active| {
        stored
            .snapshots
            .iter()
            .any(|one| one.active.archive == active)
    };
    if let Some(active) = inventory.active().filter(|active| !is_stored(*active)) {
        let what = format!("snapshot {}", active.prefix());
        let why = "latest.json leads to it, and there is no manifest of it that can be used";
        found.push(RepoDamage::new(what, why, Remedy::Copy));
    }
    found
}
