//! How many snapshots a tenant has, and one of its profiles.
//!
//! A listing says how many there are at most; only where that is as many as are allowed are the documents read that say which of
//! them were deleted, or belong to saves that are not over.

use super::{StorageRoom, bytes_of};
use crate::catalog::references::is_damage;
use crate::error::{Error, ErrorKind};
use crate::open::Engine;
use futures_util::{StreamExt, TryStreamExt, stream};
use stasis_model::failure::Failure;
use stasis_model::format::manifest::ProfileManifest;
use stasis_model::id::{Lineage, TenantId};
use stasis_model::policy::tenant::Quotas;
use stasis_store::documents::profiles::{ListedObject, profile_objects};
use stasis_store::documents::roots::Root;
use stasis_store::documents::subjects::listed_manifests;
use stasis_store::layout::ChunkRoot;
use std::collections::{BTreeMap, BTreeSet};

/// How many documents are read at once.
const AT_ONCE: usize = 16;

/// The manifests of profiles: how the digests of their archives begin.
type Manifests = BTreeMap<Lineage, BTreeSet<String>>;

fn manifests(objects: &[ListedObject]) -> Manifests {
    let mut found = Manifests::new();
    for one in objects.iter().filter(|one| one.object.is_manifest) {
        let of = found.entry(one.lineage.clone()).or_default();
        of.insert(one.object.digits.clone());
    }
    found
}

fn count(manifests: &Manifests) -> u64 {
    manifests.values().map(|of| of.len() as u64).sum()
}

impl StorageRoom {
    /// Refuses so many more snapshots if the tenant may not have them; 0 allows any number.
    pub(super) async fn ensure_snapshots(&self, most: u64, more: u64) -> Result<(), Error> {
        if most == 0 || more == 0 {
            return Ok(());
        }
        let enough = (most + 1).saturating_sub(more);
        let replaced = self.replaced.as_ref();
        let there = self.engine.stored_snapshots(&self.tenant, enough, replaced);
        let there = there.await?;
        if there >= enough {
            return Err(too_many_in_all(&self.tenant, most, there).into());
        }
        Ok(())
    }
}

impl Engine {
    /// How many snapshots of every kind a tenant has, without those of `replaced`. Where there are fewer than `enough`, it may be
    /// said of more than there are, but not of `enough`.
    pub(crate) async fn stored_snapshots(
        &self,
        tenant: &TenantId,
        enough: u64,
        replaced: Option<&ChunkRoot>,
    ) -> Result<u64, Error> {
        let profiles = manifests(&profile_objects(&*self.bucket, tenant, None).await?);
        let mut subjects = listed_manifests(&*self.bucket, tenant).await?;
        if let Some(replaced) = replaced {
            subjects.remove(replaced);
        }
        let listed = count(&profiles) + subjects.values().sum::<u64>();
        if listed < enough {
            return Ok(listed);
        }
        let indexed = stream::iter(subjects).map(|(root, listed)| {
            let engine = self.clone();
            async move { engine.indexed(root, listed).await }
        });
        let indexed = indexed.buffer_unordered(AT_ONCE);
        let indexed = indexed.try_fold(0, async |sum, one| Ok(sum + one)).await?;
        Ok(indexed + self.undeleted(profiles).await?)
    }

    /// How many snapshots the index of a subject has; what is listed, where it cannot be read.
    async fn indexed(&self, root: ChunkRoot, listed: u64) -> Result<u64, Error> {
        let root = Root::new(self.bucket.clone(), root);
        match root.index().await.map_err(Error::from) {
            Ok(index) => Ok(index.map_or(0, |index| index.value.finished().count() as u64)),
            Err(error) if is_damage(&error) => Ok(listed),
            Err(error) => Err(error),
        }
    }

    /// How many of the manifests of profiles are of snapshots that were not deleted.
    async fn undeleted(&self, profiles: Manifests) -> Result<u64, Error> {
        let counted = stream::iter(profiles).map(|(lineage, manifests)| {
            let engine = self.clone();
            async move { engine.undeleted_of(&lineage, &manifests).await }
        });
        let counted = counted.buffer_unordered(AT_ONCE);
        counted.try_fold(0, async |sum, one| Ok(sum + one)).await
    }

    async fn undeleted_of(
        &self,
        lineage: &Lineage,
        manifests: &BTreeSet<String>,
    ) -> Result<u64, Error> {
        let pointer = match self.lineages.pointer(lineage).await.map_err(Error::from) {
            Ok(pointer) => pointer,
            // What cannot be read says of none that it was deleted.
            Err(error) if is_damage(&error) => None,
            Err(error) => return Err(error),
        };
        let tombstones = pointer.map(|pointer| pointer.value.tombstones);
        let deleted = tombstones.iter().flatten();
        let deleted: Vec<String> = deleted.map(|mark| mark.sha256.to_string()).collect();
        let is_deleted = |digits: &&String| deleted.iter().any(|one| one.starts_with(&***digits));
        let left = manifests.iter().filter(|digits| !is_deleted(digits));
        Ok(left.count() as u64)
    }

    /// Refuses one more snapshot of a profile, or its bytes, if a quota of its tenant does not allow it.
    pub(crate) async fn ensure_profile_room(
        &self,
        quotas: &Quotas,
        lineage: &Lineage,
        new: &ProfileManifest,
    ) -> Result<(), Error> {
        if *quotas == Quotas::default() {
            return Ok(());
        }
        let there = self.objects_of(lineage).await?;
        let archive = new.archive_sha256;
        let digits = archive.to_string();
        let is_manifest = |one: &ListedObject| {
            one.object.is_manifest
                && one.lineage == *lineage
                && digits.starts_with(&one.object.digits)
        };
        if there.iter().any(is_manifest) {
            return Ok(());
        }
        let of_profile = (&*there, 1);
        self.ensure_of_profile(quotas, lineage, of_profile).await?;
        let room = StorageRoom::new(self.clone(), lineage.tenant.clone());
        let room = room.knowing(Some(quotas));
        // An archive that an earlier attempt has sent is counted already.
        let is_sent = |one: &&ListedObject| {
            one.may_be_archive(lineage, archive) && one.size == new.archive_size_bytes
        };
        match there.iter().find(is_sent) {
            Some(_) => room.take_snapshot().await,
            None => room.take(new.archive_size_bytes).await,
        }
    }

    /// Refuses to copy a lineage from another store if what this one has not yet goes beyond a quota.
    pub(crate) async fn ensure_copy_room(
        &self,
        from: &Self,
        lineage: &Lineage,
    ) -> Result<(), Error> {
        let quotas = self.tenants().policy(&lineage.tenant).await?.quotas;
        if quotas == Quotas::default() {
            return Ok(());
        }
        let there = self.objects_of(lineage).await?;
        let mut new = from.objects_of(lineage).await?;
        new.retain(|one| one.lineage == *lineage && !there.contains(one));
        let archives = new.iter().filter(|one| !one.object.is_manifest);
        let bytes = bytes_of(archives);
        let more = from.undeleted(manifests(&new)).await?;
        let of_profile = (&*there, more);
        self.ensure_of_profile(&quotas, lineage, of_profile).await?;
        let room = StorageRoom::new(self.clone(), lineage.tenant.clone());
        let room = room.knowing(Some(&quotas));
        room.take_snapshots(more).await?;
        room.take(bytes).await
    }

    async fn objects_of(&self, lineage: &Lineage) -> Result<Vec<ListedObject>, Error> {
        let (tenant, profile) = (&lineage.tenant, &lineage.profile);
        Ok(profile_objects(&*self.bucket, tenant, Some(profile)).await?)
    }

    /// Refuses so many more snapshots of a profile of which this much is there.
    async fn ensure_of_profile(
        &self,
        quotas: &Quotas,
        lineage: &Lineage,
        (there, more): (&[ListedObject], u64),
    ) -> Result<(), Error> {
        let most = quotas.max_snapshots_per_profile;
        if most == 0 || more == 0 {
            return Ok(());
        }
        let there = manifests(there);
        if count(&there) + more <= most {
            return Ok(());
        }
        let there = self.undeleted(there).await?;
        if there + more > most {
            return Err(too_many(lineage, most, there).into());
        }
        Ok(())
    }
}

fn too_many_in_all(tenant: &TenantId, most: u64, there: u64) -> Failure {
    let said = format!(
        "tenant `{tenant}` may have {most} snapshots and has {there}: there is no room for what would be new"
    );
    let hint = format!(
        "delete or forget snapshots (`stasis list` shows every subject, `stasis log` what one has), or allow more: stasis tenant policy set {tenant} quotas.max_snapshots=N"
    );
    Failure::of(ErrorKind::Limit, said).with_hint(hint)
}

fn too_many(lineage: &Lineage, most: u64, there: u64) -> Failure {
    let (tenant, profile) = (&lineage.tenant, lineage.any_major());
    let said = format!(
        "`{profile}` has {there} snapshots, and tenant `{tenant}` may have {most} of a profile"
    );
    let hint = format!(
        "delete one (`stasis log profile:{profile}` names them), or allow more: stasis tenant policy set {tenant} quotas.max_snapshots_per_profile=N"
    );
    Failure::of(ErrorKind::Limit, said).with_hint(hint)
}
