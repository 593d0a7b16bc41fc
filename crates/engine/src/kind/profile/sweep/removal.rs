//! Which objects go, and their removal: manifests before archives.

use super::A_DAY;
use crate::error::Error;
use crate::handle::Profiles;
use crate::kind::profile::inventory::Inventory;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::lease::Lock;
use stasis_model::id::Lineage;
use stasis_model::time::Timestamp;
use stasis_store::bucket::BucketErrorKind;
use stasis_store::documents::profiles::{LARGEST_SHORT_NAMED, StoredSnapshot};
use stasis_store::layout::{self, Key};

/// An object that was removed, or would be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Removed {
    /// Where it lay.
    pub key: String,
    /// Of which snapshot.
    pub sha256: ArchiveDigest,
    /// How large it was; a manifest counts as nothing.
    pub size_bytes: u64,
}

/// Something that looks like garbage and was left alone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PreservedObject {
    /// A key, or a snapshot's digits.
    pub what: String,
    /// Why.
    pub because: String,
}

/// What is to be tombstoned.
#[derive(Debug, Default)]
pub(super) struct Stale {
    pub(super) snapshots: Vec<ArchiveDigest>,
    pub(super) orphans: Vec<(Key, u64, ArchiveDigest)>,
    pub(super) preserved: Vec<PreservedObject>,
}

impl Stale {
    pub(super) fn all(&self) -> impl Iterator<Item = ArchiveDigest> {
        let orphans = self.orphans.iter().map(|(_, _, digest)| *digest);
        self.snapshots.iter().copied().chain(orphans)
    }
}

impl Profiles<'_> {
    /// Archives without a manifest that nobody will ever give one: a day old, in a lineage that nobody owns.
    pub(super) async fn stale_orphans(self, inventory: &Inventory) -> Result<Stale, Error> {
        let mut stale = Stale::default();
        for (key, size) in &inventory.stored.orphans {
            let preserved = |because: &str| PreservedObject {
                what: key.to_string(),
                because: because.to_owned(),
            };
            if inventory
                .lock
                .as_ref()
                .is_some_and(|lock| !Lock::is_given_up(lock))
            {
                let because =
                    "a save may be on its way: somebody owns the lineage, or may come back";
                stale.preserved.push(preserved(because));
                continue;
            }
            let Some(written) = self.bucket.written_at(key).await? else {
                stale
                    .preserved
                    .push(preserved("the store does not say when it was written"));
                continue;
            };
            if self.lineages.now().since(written) < A_DAY {
                stale
                    .preserved
                    .push(preserved("it was written within the last day"));
                continue;
            }
            match self.digest_of_orphan(inventory, key).await? {
                Some(digest) if inventory.is_tombstoned(digest) => {}
                Some(digest) => stale.orphans.push((key.clone(), *size, digest)),
                None => stale
                    .preserved
                    .push(preserved("it is not what its name says")),
            }
        }
        Ok(stale)
    }

    /// Which snapshot an archive without a manifest is: a name says so in full, or only how it begins.
    async fn digest_of_orphan(
        self,
        inventory: &Inventory,
        key: &Key,
    ) -> Result<Option<ArchiveDigest>, Error> {
        let Some(object) = layout::snapshot_object(&inventory.lineage, key) else {
            return Ok(None);
        };
        if let Ok(digest) = object.digits.parse() {
            return Ok(Some(digest));
        }
        match self.bucket.get(key, LARGEST_SHORT_NAMED).await {
            Ok(found) => {
                let digest = found.map(|found| ArchiveDigest::of(&found.body));
                Ok(digest.filter(|digest| digest.prefix() == object.digits))
            }
            Err(error) if error.kind == BucketErrorKind::TooLarge => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What a sweep would remove if `stale` were tombstoned.
    pub(super) async fn would_go(
        self,
        inventory: &Inventory,
        stale: &Stale,
    ) -> Result<Vec<Removed>, Error> {
        let mut removed = self.tombstoned(inventory).await?;
        let goes = |one: &&StoredSnapshot| stale.snapshots.contains(&one.active.archive);
        for one in inventory.stored.snapshots.iter().filter(goes) {
            removed.extend(objects(one));
        }
        let orphan = |(key, size, sha256): &(Key, u64, ArchiveDigest)| Removed {
            key: key.to_string(),
            sha256: *sha256,
            size_bytes: *size,
        };
        removed.extend(stale.orphans.iter().map(orphan));
        Ok(removed)
    }

    /// Removes everything of what is tombstoned, as long as the marks that are read here let it.
    pub(super) async fn remove_tombstoned(self, lineage: &Lineage) -> Result<Vec<Removed>, Error> {
        // Counted by the uptime from here on, so that neither a nap nor a clock that is set back makes a mark younger.
        let (looked_at, since) = (self.lineages.now(), self.clock.uptime());
        let inventory = self.sound_inventory(lineage).await?;
        let mut removed = self.tombstoned(&inventory).await?;
        for (done, one) in removed.iter().enumerate() {
            let now = looked_at.plus(self.clock.uptime().saturating_sub(since));
            if !lets_remove(&inventory, one.sha256, now) {
                tracing::warn!(subject = %lineage, key = one.key, "left to the next sweep: this one took too long");
                removed.truncate(done);
                break;
            }
            let key = Key::from_listing(&one.key).expect("it was listed");
            self.bucket.delete(&key).await?;
            tracing::info!(subject = %lineage, %key, bytes = one.size_bytes, "removed");
        }
        Ok(removed)
    }

    /// The objects of what is tombstoned, manifests before archives.
    async fn tombstoned(self, inventory: &Inventory) -> Result<Vec<Removed>, Error> {
        let mut found = Vec::new();
        let gone = |one: &&StoredSnapshot| inventory.is_tombstoned(one.active.archive);
        for one in inventory.stored.snapshots.iter().filter(gone) {
            found.extend(objects(one));
        }
        // A manifest that cannot be read any more is known by its name; its archive is an orphan from then on.
        for (key, _) in &inventory.stored.unfit {
            found.extend(mark_of(inventory, key).map(|sha256| manifest(key.to_string(), sha256)));
        }
        for (key, size) in &inventory.stored.orphans {
            if mark_of(inventory, key).is_none() {
                continue;
            }
            let digest = self.digest_of_orphan(inventory, key).await?;
            if let Some(sha256) = digest.filter(|digest| inventory.is_tombstoned(*digest)) {
                found.push(Removed {
                    key: key.to_string(),
                    sha256,
                    size_bytes: *size,
                });
            }
        }
        Ok(found)
    }
}

/// The objects of a snapshot, in the order in which they go.
fn objects(one: &StoredSnapshot) -> Vec<Removed> {
    let sha256 = one.active.archive;
    let mut both = vec![manifest(one.active.manifest_key.clone(), sha256)];
    both.extend(one.archive_size.map(|size_bytes| Removed {
        key: one.active.archive_key.clone(),
        sha256,
        size_bytes,
    }));
    both
}

fn manifest(key: String, sha256: ArchiveDigest) -> Removed {
    Removed {
        key,
        sha256,
        size_bytes: 0,
    }
}

/// The tombstone that an object's name begins like.
fn mark_of(inventory: &Inventory, key: &Key) -> Option<ArchiveDigest> {
    let object = layout::snapshot_object(&inventory.lineage, key)?;
    let marks = &inventory.pointer.as_ref()?.tombstones;
    let fits = |digest: &ArchiveDigest| digest.to_string().starts_with(&object.digits);
    marks.iter().map(|mark| mark.sha256).find(fits)
}

/// Whether the mark of a snapshot lets requests be sent that remove it.
fn lets_remove(inventory: &Inventory, archive: ArchiveDigest, now: Timestamp) -> bool {
    let mut marks = inventory.pointer.iter().flat_map(|found| &found.tombstones);
    marks.any(|mark| mark.sha256 == archive && mark.lets_remove(now))
}

/// Whether anything of a snapshot lies there.
pub(super) fn is_listed(inventory: &Inventory, archive: ArchiveDigest) -> bool {
    let spelled = archive.to_string();
    let named = |key: &Key| {
        let object = layout::snapshot_object(&inventory.lineage, key);
        object.is_some_and(|object| spelled.starts_with(&object.digits))
    };
    let stored = &inventory.stored;
    stored
        .snapshots
        .iter()
        .any(|one| one.active.archive == archive)
        || stored.unfit.iter().any(|(key, _)| named(key))
        || stored.orphans.iter().any(|(key, _)| named(key))
}
