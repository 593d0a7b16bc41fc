//! The documents of snapshots.
//!
//! Of a profile: a manifest beside its archive. Of a chunked root: `repo.json` says how bytes are cut and stored, once and for all; `index.json` leads to every snapshot, and is the only
//! one that is rewritten, by conditional writes; each snapshot has a `metadata.json`, written once.

mod database;
mod index;
mod inline;
mod profile;
mod repo;
mod snapshot;
mod volume;

pub use database::{DatabaseManifest, StoredAs};
pub use index::{IndexRefusal, Indexed, Publish, SnapshotIndex, StepBack, SubjectFence, Tombstone};
pub use profile::{
    Ancestor, CRASHED, CapturedBy, CapturedIn, CookieStore, ENCRYPTED, EndingRecord, Geo, Mode,
    NewProfileManifest, ProfileManifest, UnfitManifest,
};
pub use repo::RepoDocument;
pub use snapshot::{
    CopiedFrom, FileList, INLINE_LIMIT, ListRef, SaveReason, SnapshotManifest, Totals,
};
pub use volume::{Consistency, VolumeManifest};
