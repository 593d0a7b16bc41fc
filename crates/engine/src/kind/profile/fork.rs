//! Starts a new identity from a snapshot of another one.
//!
//! 1. own the new lineage, which nobody ever had
//! 2. copy the archive, within the bucket, and check its digest on the way; one that is encrypted is brought here, and its
//!    frames are encrypted under the data key of the new lineage, because the old one is bound to the old lineage
//! 3. write a manifest of the new lineage
//! 4. look that both are listed
//! 5. publish; this is the beginning of the new identity
//! 6. give the lease back
//!
//! *Always true:* the source is only read, and a tenant never gets what is another's. A failure before 5 leaves a lineage
//! without a snapshot, and garbage that its sweep removes; bytes that do not match their digest are never stored.

use super::inventory::Inventory;
use super::subject::ShaPrefix;
use crate::address::as_typed;
use crate::bridge;
use crate::error::{EncryptionError, Error, ProfileError};
use crate::handle::Profiles;
use crate::keys::key_needed;
use crate::lease::Acquire;
use crate::upload;
use crate::warning::Warning;
use bytes::Bytes;
use futures_util::stream;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::archive::{Archive, EncryptSettings, encrypt_nameless};
use stasis_model::digest::{ArchiveDigest, ArchiveHasher};
use stasis_model::format::key::KeyOwner;
use stasis_model::format::lease::Holder;
use stasis_model::format::manifest::ProfileManifest;
use stasis_model::id::{Lineage, OpId, ProfileRef};
use stasis_store::bucket::{Bucket, BucketError, ByteStream};
use stasis_store::documents::leases::Lease;
use stasis_store::documents::profiles::{LineageSnapshots, NewArchive, StoredSnapshot};
use stasis_store::layout::{Key, StoredForm};
use std::error::Error as StdError;
use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// How much is copied at once.
const PIECE: u64 = 8 << 20;

/// Asks for a new identity.
#[derive(Clone, Debug)]
pub struct ForkProfile {
    /// Of which lineage the snapshot is.
    pub source: Lineage,
    /// Which snapshot; the active one when not given.
    pub sha: Option<ShaPrefix>,
    /// The new identity; of the source's major.
    pub target: ProfileRef,
    /// Who does it.
    pub holder: Holder,
}

/// An identity that has begun.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Forked {
    /// The new lineage.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// The lineage it comes from.
    pub forked_from: Lineage,
    /// The snapshot, which is now the active one of both, or of the new one.
    pub sha256: ArchiveDigest,
    /// How many bytes were copied.
    pub bytes: u64,
    /// By which operation.
    pub op_id: OpId,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

/// What the note in the manifest of a fork's first snapshot begins with.
const NOTE: &str = "forked-from";

/// Of which snapshot an identity began as a copy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ForkOrigin {
    /// The lineage that it comes from.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// The snapshot, as that lineage calls it.
    pub snapshot: ArchiveDigest,
}

impl fmt::Display for ForkOrigin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{NOTE} {} {}", self.subject, self.snapshot)
    }
}

impl ForkOrigin {
    /// The notes of a snapshot with this one at their end.
    fn added_to(&self, notes: &str) -> String {
        match notes {
            "" => self.to_string(),
            notes => format!("{notes}\n{self}"),
        }
    }

    /// What a manifest says of it, if the snapshot is the first one of a fork; what comes after that one derives from it.
    pub(crate) fn of(manifest: &ProfileManifest) -> Option<Self> {
        if manifest.predecessor_sha256.is_some() {
            return None;
        }
        // Notes are copied with the snapshot: of forks of forks, the last one made this one.
        let mut words = manifest.notes.lines().next_back()?.split(' ');
        let note = [words.next()?, words.next()?, words.next()?];
        let [NOTE, subject, snapshot] = note else {
            return None;
        };
        let (subject, snapshot) = (subject.parse().ok()?, snapshot.parse().ok()?);
        words.next().is_none().then_some(Self { subject, snapshot })
    }
}

impl Profiles<'_> {
    /// Starts a new identity.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %cmd.target, source = %cmd.source))]
    pub async fn fork(self, cmd: &ForkProfile) -> Result<Forked, Error> {
        self.store().ensure_trusted().await?;
        let target = new_lineage(cmd)?;
        let inventory = self.sound_inventory(&cmd.source).await?;
        let snapshot = chosen(&inventory, cmd.sha.as_ref())?;
        let content = self.forkable(snapshot).await?;
        self.ensure_new(&target).await?;
        let acquired = self
            .leases()
            .acquire(Acquire {
                lineage: target.clone(),
                holder: cmd.holder.clone(),
                ttl: None,
            })
            .await?;
        let copied = self
            .copy_into(&acquired.lease, &cmd.source, snapshot, content)
            .await;
        let released = self.leases().release_lease(&acquired.lease).await;
        let copied = copied?;
        let mut warnings = acquired.warnings;
        match released {
            Ok(_) => warnings.extend(self.clock_warnings()),
            Err(_) => warnings.push(Warning::LeaseNotReleased),
        }
        warnings.dedup();
        Ok(Forked {
            subject: target,
            forked_from: cmd.source.clone(),
            sha256: copied.archive_sha256,
            bytes: copied.archive_size_bytes,
            op_id: copied.op_id,
            warnings,
        })
    }

    /// What of a snapshot is copied, if it may be: the bytes as they are stored, or the archive that only its key opens.
    async fn forkable(self, snapshot: &StoredSnapshot) -> Result<ForkContent, Error> {
        let manifest = &snapshot.manifest;
        if manifest.is_encrypted() {
            let never = Arc::default();
            let archive = self.fetch_archive(manifest, &snapshot.active, &never);
            return Ok(ForkContent::Encrypted(archive.await?));
        }
        self.key_to_load(manifest).await?;
        let lineage = manifest.lineage();
        if self
            .tenants()
            .policy(&lineage.tenant)
            .await?
            .require_encryption
        {
            let what = format!("`{lineage}` is not encrypted");
            let tenant = lineage.tenant;
            return Err(EncryptionError::Required { tenant, what }.into());
        }
        Ok(ForkContent::AsStored)
    }

    /// Encrypts an archive for another lineage; says what its manifest says of it.
    async fn encrypted_for(
        self,
        target: &Lineage,
        archive: Archive,
        manifest: &mut ProfileManifest,
    ) -> Result<Arc<File>, Error> {
        let owner = KeyOwner::from(target.clone());
        let needed = || key_needed(&owner, None);
        let tenant = self.tenant_key().await?.ok_or_else(needed)?;
        let key = self.new_data_key(&tenant, &owner).await?.key;
        let (spool, with) = (self.spool().await?, key.clone());
        let tree = archive.summary().map(|summary| summary.tree_digest);
        let encrypted = bridge::blocking(move || {
            encrypt_nameless(&archive, &with, &spool, &EncryptSettings::default())
        });
        let (report, file) = encrypted.await?;
        manifest.archive_sha256 = report.archive_sha256;
        manifest.archive_size_bytes = report.stored_bytes;
        if let Some(tree) = tree {
            manifest.tree_digest = key.veil(&tree);
        }
        Ok(Arc::new(file))
    }

    /// Refuses an identity that exists, under whichever major.
    async fn ensure_new(self, target: &Lineage) -> Result<(), Error> {
        let profile = target.any_major();
        match self.lineages_of(&profile).await {
            Err(Error::Profile(error)) if matches!(*error, ProfileError::NoProfile { .. }) => {
                Ok(())
            }
            Err(error) => Err(error),
            Ok(_) => Err(ProfileError::ProfileExists(profile).into()),
        }
    }

    async fn copy_into(
        self,
        lease: &Lease,
        source: &Lineage,
        snapshot: &StoredSnapshot,
        content: ForkContent,
    ) -> Result<ProfileManifest, Error> {
        let target = &lease.lineage;
        if lease.base.is_some() {
            return Err(ProfileError::ProfileExists(target.any_major()).into());
        }
        let archive = snapshot.active.archive;
        let mut manifest = snapshot.manifest.clone();
        let file = match content {
            ForkContent::AsStored => None,
            ForkContent::Encrypted(archive) => {
                let file = self.encrypted_for(target, archive, &mut manifest);
                Some(file.await?)
            }
        };
        let size = manifest.archive_size_bytes;
        let from = Key::from_listing(&snapshot.active.archive_key).expect("it was listed");
        let body = || match &file {
            Some(file) => upload::pieces(file.clone(), 0..size),
            None => pieces(self.bucket.clone(), from.clone(), size, archive),
        };
        let copy = NewArchive {
            digest: manifest.archive_sha256,
            size,
            form: match &file {
                Some(_) => StoredForm::Encrypted,
                None => StoredForm::Plain,
            },
            body: &body,
            derived: None,
        };
        let quotas = self.tenants().policy(&target.tenant).await?.quotas;
        self.ensure_profile_room(&quotas, target, &manifest).await?;
        let snapshots = LineageSnapshots::of(&*self.bucket, target);
        let stored = snapshots.put_archive(&copy).await;
        let keys = stored
            .map_err(|error| not_what_it_was(error, source, archive))?
            .keys;
        let op_id = self.lineages.op_id();
        let origin = ForkOrigin {
            subject: source.clone(),
            snapshot: archive,
        };
        make_first(&mut manifest, lease, op_id, &origin);
        let to = snapshots
            .put_manifest(&manifest, &keys)
            .await
            .map_err(Error::unusable)?;
        if !snapshots.is_listed(&keys, size).await? {
            let (sha, subject) = (archive.prefix(), target.clone());
            let why = "it was stored, and is not listed".to_owned();
            return Err(ProfileError::NotWhole { sha, subject, why }.into());
        }
        let result = self.lineages.publish_leased(lease, op_id, None, to).await;
        self.operations().settled(result).await?;
        Ok(manifest)
    }
}

/// Makes the manifest of a snapshot the one of the first snapshot of another profile.
fn make_first(manifest: &mut ProfileManifest, lease: &Lease, op_id: OpId, from: &ForkOrigin) {
    manifest.profile_id = lease.lineage.profile.clone();
    manifest.predecessor_sha256 = None;
    manifest.lease_epoch = lease.fence.epoch;
    manifest.op_id = op_id;
    manifest.notes = from.added_to(&manifest.notes);
}

/// The lineage of the new identity: same tenant, same major, and not the source itself.
fn new_lineage(cmd: &ForkProfile) -> Result<Lineage, Error> {
    let (from, to) = (cmd.source.clone(), cmd.target.clone());
    if to.tenant != from.tenant {
        return Err(ProfileError::OtherTenant { from, to }.into());
    }
    if to.major.is_some_and(|major| major != from.major) {
        return Err(ProfileError::ForkedMajor { from, to }.into());
    }
    Ok(to.lineage(from.major))
}

/// What of a snapshot is copied.
enum ForkContent {
    /// Its bytes, within the store.
    AsStored,
    /// The archive that they are with their key.
    Encrypted(Archive),
}

/// The snapshot that is copied: whole, and not deleted.
fn chosen<'a>(
    inventory: &'a Inventory,
    sha: Option<&ShaPrefix>,
) -> Result<&'a StoredSnapshot, Error> {
    match sha {
        Some(sha) => inventory.choose_whole(sha),
        None => inventory.active_whole(),
    }
}

/// An archive whose bytes are wrong is the source's damage, not the store's failure.
fn not_what_it_was(error: BucketError, source: &Lineage, archive: ArchiveDigest) -> Error {
    let mut causes = std::iter::successors(StdError::source(&error), |cause| (*cause).source());
    let wrong = causes.any(|cause| {
        let cause = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        matches!(
            cause,
            Some(
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound
            )
        )
    });
    if !wrong {
        return error.into();
    }
    let (sha, subject) = (archive.prefix(), source.clone());
    let why = "its archive is not what its manifest says".to_owned();
    ProfileError::NotWhole { sha, subject, why }.into()
}

/// An object that is read from its beginning to its end.
struct Copying {
    bucket: Arc<dyn Bucket>,
    key: Key,
    size: u64,
    digest: ArchiveDigest,
    at: u64,
    hasher: ArchiveHasher,
}

/// The bytes of an object, in order; they end with an error unless they are what they should be.
fn pieces(bucket: Arc<dyn Bucket>, key: Key, size: u64, digest: ArchiveDigest) -> ByteStream {
    let copying = Copying {
        bucket,
        key,
        size,
        digest,
        at: 0,
        hasher: ArchiveHasher::default(),
    };
    Box::pin(stream::try_unfold(copying, Copying::next))
}

impl Copying {
    async fn next(mut self) -> io::Result<Option<(Bytes, Self)>> {
        let end = self.size.min(self.at + PIECE);
        if self.at == end {
            return Ok(None);
        }
        let read = self.bucket.get_range(&self.key, self.at..end).await;
        let piece = read.map_err(io::Error::other)?;
        let piece = piece.ok_or(io::ErrorKind::NotFound)?;
        if piece.len() as u64 != end - self.at {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.hasher.update(&piece);
        self.at = end;
        if end == self.size && self.hasher.clone().finish() != self.digest {
            let said = "the archive is not what its manifest says";
            return Err(io::Error::new(io::ErrorKind::InvalidData, said));
        }
        Ok(Some((piece, self)))
    }
}
