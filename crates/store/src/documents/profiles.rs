//! The snapshots of a lineage: archives and the manifests beside them.
//!
//! 1. the archive
//! 2. its manifest
//! 3. a listing that shows both
//! 4. the pointer, by [`Lineages::publish`](crate::documents::lineages::Lineages)
//!
//! *Always true:* a manifest is written only after its archive is durable, a pointer only after its manifest, and no
//! object is ever replaced by another: a name that is taken by other bytes is lengthened. A crash leaves an archive
//! without a manifest, or a manifest that nothing points to; only the sweep removes either.

use crate::bucket::{
    Bucket, BucketError, BucketErrorKind, ByteStream, DerivedObject, Listed, Swap, objects,
    received,
};
use crate::documents::lineages::ReadError;
use crate::layout::{self, Key, Prefix, SnapshotKeys, SnapshotObject, Spelling, StoredForm};
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use stasis_model::digest::{ArchiveDigest, ManifestDigest};
use stasis_model::format::document::{self, Document};
use stasis_model::format::manifest::{ProfileManifest, UnfitManifest};
use stasis_model::format::pointer::Active;
use stasis_model::id::{Lineage, ProfileId, TenantId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Archives up to this size are written by one conditional request, under their short name; of larger ones a store may copy
/// what it has already.
const SHORT_NAMED: u64 = 8 << 20;
/// No archive under a short name is larger: earlier versions gave such names up to here.
pub const LARGEST_SHORT_NAMED: u64 = 16 << 20;
/// How often a write is tried.
const ATTEMPTS: u32 = 3;
/// How long to wait before the second attempt; twice as long before the third.
const PAUSE: Duration = Duration::from_millis(500);

/// An archive to be stored.
pub struct NewArchive<'a> {
    /// What it is.
    pub digest: ArchiveDigest,
    /// How many bytes.
    pub size: u64,
    /// What it is stored as.
    pub form: StoredForm,
    /// The bytes, from the beginning; asked again for each attempt.
    pub body: &'a (dyn Fn() -> ByteStream + Send + Sync),
    /// How it is put together where the store has parts of it.
    pub derived: Option<DerivedObject<'a>>,
}

impl fmt::Debug for NewArchive<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewArchive({:?}, {} bytes)", self.digest, self.size)
    }
}

/// An archive that was stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredArchive {
    /// Under which names the snapshot lies.
    pub keys: SnapshotKeys,
    /// How many bytes were sent for it.
    pub sent: u64,
}

/// A snapshot that lies in a lineage, whether a pointer leads to it or not.
#[derive(Debug)]
pub struct StoredSnapshot {
    /// What is known of it.
    pub manifest: ProfileManifest,
    /// As a pointer would name it.
    pub active: Active,
    /// How many bytes its archive has; `None` when there is none.
    pub archive_size: Option<u64>,
}

/// Everything beneath a lineage that belongs to snapshots.
#[derive(Debug, Default)]
pub struct StoredSnapshots {
    /// Those whose manifests can be used, the oldest first.
    pub snapshots: Vec<StoredSnapshot>,
    /// Manifests that cannot.
    pub unfit: Vec<(Key, ReadError)>,
    /// Archives without a manifest, with their sizes.
    pub orphans: Vec<(Key, u64)>,
}

impl StoredSnapshots {
    /// Whether nothing at all is there.
    pub fn is_nothing(&self) -> bool {
        self.snapshots.is_empty() && self.unfit.is_empty() && self.orphans.is_empty()
    }
}

/// All snapshots of one lineage.
#[derive(Clone, Copy, Debug)]
pub struct LineageSnapshots<'a> {
    bucket: &'a dyn Bucket,
    lineage: &'a Lineage,
}

impl<'a> LineageSnapshots<'a> {
    /// The snapshots of `lineage`.
    pub fn of(bucket: &'a dyn Bucket, lineage: &'a Lineage) -> Self {
        Self { bucket, lineage }
    }

    fn keys(&self, archive: &NewArchive<'_>, spelling: Spelling) -> SnapshotKeys {
        SnapshotKeys::new(self.lineage, archive.digest, spelling, archive.form)
    }

    /// Makes an archive durable; says under which names the snapshot lies.
    pub async fn put_archive(
        &self,
        archive: &NewArchive<'_>,
    ) -> Result<StoredArchive, BucketError> {
        let sent = archive.size;
        let short = self.keys(archive, Spelling::Short);
        let is_small = archive.size <= SHORT_NAMED;
        if is_small && self.create_small(archive, &short.archive).await? {
            return Ok(StoredArchive { keys: short, sent });
        }
        let keys = self.keys(archive, Spelling::Full);
        let mut first_attempt = 1;
        if !is_small && let Some(derived) = &archive.derived {
            match self.bucket.put_derived(&keys.archive, derived).await {
                Ok(Some(sent)) => return Ok(StoredArchive { keys, sent }),
                Ok(None) => {}
                // Sending everything would meet the same.
                Err(error) if is_final(error.kind) => return Err(error),
                // Its name stands for its bytes: whatever became of it, sending everything is right.
                Err(error) => {
                    tracing::warn!(%error, key = %keys.archive, "the archive was not copied in part; everything is sent");
                    first_attempt += 1;
                }
            }
        }
        let mut pause = PAUSE;
        for attempt in first_attempt.. {
            match self
                .bucket
                .put_stream(&keys.archive, (archive.body)())
                .await
            {
                Err(error) if error.kind == BucketErrorKind::Unreachable && attempt < ATTEMPTS => {
                    tracing::warn!(%error, key = %keys.archive, "the upload failed; trying again");
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                stored => {
                    stored?;
                    break;
                }
            }
        }
        Ok(StoredArchive { keys, sent })
    }

    /// Whether the name is now taken by these bytes; `false` when it belongs to others.
    async fn create_small(&self, archive: &NewArchive<'_>, key: &Key) -> Result<bool, BucketError> {
        let pieces = (archive.body)().try_fold(BytesMut::new(), async |mut all, piece| {
            all.extend_from_slice(&piece);
            Ok(all)
        });
        let body = received(key, pieces.await)?.freeze();
        for attempt in 1.. {
            let created = self.bucket.create(key, body.clone()).await?;
            if matches!(created, Swap::Won(_)) {
                return Ok(true);
            }
            // Lost, perhaps to our own earlier attempt, or without an answer: what is there decides.
            match self.bucket.get(key, SHORT_NAMED).await {
                Ok(Some(there)) => return Ok(there.body == body),
                Ok(None) if attempt < ATTEMPTS => {}
                Ok(None) => break,
                Err(error) if error.kind == BucketErrorKind::TooLarge => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Err(BucketError::new(BucketErrorKind::Unreachable, "store", key))
    }

    /// Makes a manifest durable beside its archive; one that is already there for the same archive is kept.
    pub async fn put_manifest(
        &self,
        manifest: &ProfileManifest,
        keys: &SnapshotKeys,
    ) -> Result<Active, ReadError> {
        let bytes = Bytes::from(document::render(manifest));
        let active = |bytes: &[u8]| Active {
            archive: manifest.archive_sha256,
            manifest: ManifestDigest::of(bytes),
            archive_key: keys.archive.to_string(),
            manifest_key: keys.manifest.to_string(),
        };
        for _ in 0..ATTEMPTS {
            let created = self.bucket.create(&keys.manifest, bytes.clone()).await?;
            if matches!(created, Swap::Won(_)) {
                return Ok(active(&bytes));
            }
            let limit = ProfileManifest::LIMIT as u64;
            if let Some(there) = self.bucket.get(&keys.manifest, limit).await? {
                self.parse(&keys.manifest, &there.body, Some(manifest.archive_sha256))?;
                return Ok(active(&there.body));
            }
        }
        let error = BucketError::new(BucketErrorKind::Unreachable, "store", &keys.manifest);
        Err(error.into())
    }

    /// Whether a listing shows both objects of a snapshot, the archive with all its bytes.
    pub async fn is_listed(&self, keys: &SnapshotKeys, size: u64) -> Result<bool, BucketError> {
        let prefix = Prefix::lineage(self.lineage);
        let mut listed = objects(self.bucket, &prefix);
        let (mut has_archive, mut has_manifest) = (false, false);
        while let Some(row) = listed.try_next().await? {
            has_archive |= row.key == keys.archive && row.size == size;
            has_manifest |= row.key == keys.manifest;
            if has_archive && has_manifest {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn parse(
        &self,
        key: &Key,
        bytes: &[u8],
        archive: Option<ArchiveDigest>,
    ) -> Result<ProfileManifest, ReadError> {
        let manifest: ProfileManifest = match document::parse(bytes) {
            Ok(manifest) => manifest,
            Err(source) => {
                let key = key.clone();
                return Err(ReadError::BadManifest { key, source });
            }
        };
        let archive = archive.unwrap_or(manifest.archive_sha256);
        match manifest.check(self.lineage, archive) {
            Ok(()) => Ok(manifest),
            Err(source) => {
                let key = key.clone();
                Err(ReadError::UnfitManifest { key, source })
            }
        }
    }

    /// The manifest of the snapshot that a pointer names.
    pub async fn manifest(&self, active: &Active) -> Result<ProfileManifest, ReadError> {
        let key = self.manifest_key(active);
        let object = self.bucket.get(&key, ProfileManifest::LIMIT as u64).await?;
        let object = object.ok_or_else(|| ReadError::NoManifest(key.clone()))?;
        self.named_by(active, &key, &object.body)
    }

    /// The manifest that these bytes are, wherever they come from, if they are those that a pointer names.
    pub fn understand(&self, active: &Active, bytes: &[u8]) -> Result<ProfileManifest, ReadError> {
        self.named_by(active, &self.manifest_key(active), bytes)
    }

    fn named_by(
        &self,
        active: &Active,
        key: &Key,
        bytes: &[u8],
    ) -> Result<ProfileManifest, ReadError> {
        if ManifestDigest::of(bytes) != active.manifest {
            return Err(ReadError::OtherManifest(key.clone()));
        }
        self.parse(key, bytes, Some(active.archive))
    }

    fn manifest_key(&self, active: &Active) -> Key {
        let key = Key::from_listing(&active.manifest_key)
            .filter(|_| layout::is_manifest(self.lineage, active.archive, &active.manifest_key));
        let spelled = || {
            SnapshotKeys::new(
                self.lineage,
                active.archive,
                Spelling::Short,
                StoredForm::Plain,
            )
        };
        key.unwrap_or_else(|| spelled().manifest)
    }

    /// Every snapshot that lies here.
    pub async fn all(&self) -> Result<StoredSnapshots, BucketError> {
        let mut archives: BTreeMap<String, (Key, u64)> = BTreeMap::new();
        let mut manifests = BTreeMap::new();
        let prefix = Prefix::lineage(self.lineage);
        let mut listed = objects(self.bucket, &prefix);
        while let Some(Listed { key, size, .. }) = listed.try_next().await? {
            match layout::snapshot_object(self.lineage, &key) {
                Some(object) if object.is_manifest => {
                    manifests.insert(key, object.digits);
                }
                Some(object) => {
                    archives.insert(object.digits, (key, size));
                }
                None => {}
            }
        }
        let mut found = StoredSnapshots::default();
        for (key, digits) in manifests {
            let archive = archives.remove(&digits);
            match self.read(&key, &digits).await {
                Ok((manifest, digest)) => {
                    let archive_key = archive.as_ref().map(|(key, _)| key.to_string());
                    found.snapshots.push(StoredSnapshot {
                        active: Active {
                            archive: manifest.archive_sha256,
                            manifest: digest,
                            archive_key: archive_key.unwrap_or_default(),
                            manifest_key: key.to_string(),
                        },
                        manifest,
                        archive_size: archive.map(|(_, size)| size),
                    });
                }
                Err(ReadError::Bucket(error)) => return Err(error),
                // Deleted since it was listed.
                Err(ReadError::NoManifest(_)) => {}
                Err(error) => found.unfit.push((key, error)),
            }
        }
        found.orphans = archives.into_values().collect();
        found
            .snapshots
            .sort_by_key(|snapshot| (snapshot.manifest.captured_at_ms, snapshot.active.archive));
        Ok(found)
    }

    async fn read(
        &self,
        key: &Key,
        digits: &str,
    ) -> Result<(ProfileManifest, ManifestDigest), ReadError> {
        let object = self.bucket.get(key, ProfileManifest::LIMIT as u64).await?;
        let object = object.ok_or_else(|| ReadError::NoManifest(key.clone()))?;
        let manifest = self.parse(key, &object.body, None)?;
        let named = manifest.archive_sha256.to_string();
        if !named.starts_with(digits) {
            let source = UnfitManifest::OtherArchive(manifest.archive_sha256);
            let key = key.clone();
            return Err(ReadError::UnfitManifest { key, source });
        }
        Ok((manifest, ManifestDigest::of(&object.body)))
    }
}

/// Whether a store that refused a part would refuse the whole.
fn is_final(kind: BucketErrorKind) -> bool {
    matches!(kind, BucketErrorKind::Full | BucketErrorKind::Denied)
}

/// Every lineage of one tenant, or of all.
pub async fn lineages(
    bucket: &dyn Bucket,
    tenant: Option<&TenantId>,
) -> Result<BTreeSet<Lineage>, BucketError> {
    let prefix = tenant.map_or_else(Prefix::lineages, Prefix::lineages_of);
    lineages_under(bucket, &prefix).await
}

/// Every lineage of one profile: what that takes does not depend on how many others there are.
pub async fn lineages_of_profile(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    profile: &ProfileId,
) -> Result<BTreeSet<Lineage>, BucketError> {
    lineages_under(bucket, &Prefix::profile(tenant, profile)).await
}

/// An archive or a manifest, as a listing shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedObject {
    /// Whose it is.
    pub lineage: Lineage,
    /// What it is.
    pub object: SnapshotObject,
    /// How many bytes it has.
    pub size: u64,
}

impl ListedObject {
    /// Whether it is the archive of this digest, or one with the same short name.
    pub fn may_be_archive(&self, lineage: &Lineage, digest: ArchiveDigest) -> bool {
        !self.object.is_manifest
            && self.lineage == *lineage
            && digest.to_string().starts_with(&self.object.digits)
    }
}

/// The archives and manifests of a tenant's profiles, or of one of them, over all majors; an archive without a manifest among them.
pub async fn profile_objects(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    profile: Option<&ProfileId>,
) -> Result<Vec<ListedObject>, BucketError> {
    let prefix = match profile {
        Some(profile) => Prefix::profile(tenant, profile),
        None => Prefix::lineages_of(tenant),
    };
    let found = objects(bucket, &prefix).try_filter_map(async |row| {
        let Some(lineage) = layout::lineage_of(&row.key) else {
            return Ok(None);
        };
        let object = layout::snapshot_object(&lineage, &row.key);
        Ok(object.map(|object| ListedObject {
            lineage,
            object,
            size: row.size,
        }))
    });
    found.try_collect().await
}

async fn lineages_under(
    bucket: &dyn Bucket,
    prefix: &Prefix,
) -> Result<BTreeSet<Lineage>, BucketError> {
    let listed = objects(bucket, prefix);
    let lineages = listed.try_filter_map(async |row| Ok(layout::lineage_of(&row.key)));
    lineages.try_collect().await
}

#[cfg(test)]
mod tests;
