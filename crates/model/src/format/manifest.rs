//! The documents of snapshots.
//!
//! Of a profile: a manifest beside its archive. Of a chunked root: `repo.json` says how bytes are cut and stored, once and for all; `index.json` leads to every snapshot, and is the only
//! one that is rewritten, by conditional writes; each snapshot has a `metadata.json`, written once;
//! in an encrypted pool that is an [`EncryptedManifest`], which shows which chunks are needed and hides the rest.

mod container;
mod database;
mod encrypted;
mod index;
mod inline;
mod profile;
mod provisional;
mod repo;
mod snapshot;
mod volume;

pub use container::{
    BINDS, CapturedVolume, ContainerManifest, ENVIRONMENT_FILE, Environment, NewContainerManifest,
    SnapshotImage, VOLUMES, bind_path, volume_path,
};
pub use database::{DatabaseManifest, StoredAs};
pub use encrypted::{
    ENCRYPTION, EncryptedManifest, ManifestReferences, REFERENCES_LIMIT, StoredManifest,
};
pub use index::{IndexRefusal, Indexed, Publish, SnapshotIndex, StepBack, SubjectFence, Tombstone};
pub use profile::{
    Ancestor, CRASHED, CapturedBy, CapturedIn, CookieStore, ENCRYPTED, EndingRecord, Geo, Mode,
    NewProfileManifest, ProfileManifest, UnfitManifest,
};
pub use provisional::{PROVISIONAL_NAMES, ProvisionalManifest};
pub use repo::{PoolEncryption, RepoDocument};
pub use snapshot::{
    CopiedFrom, FileList, INLINE_LIMIT, ListRef, SaveReason, SnapshotManifest, Totals,
};
pub use volume::{Consistency, VolumeManifest};
