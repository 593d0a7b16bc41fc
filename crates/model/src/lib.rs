//! The formats and rules of Stasis, without any I/O.
//!
//! Everything here is a pure function of its arguments: no files, no network, no async, no clock, no randomness. The caller passes
//! the time and random bytes in and carries the steps out. Production code, the exhaustive explorer and the seeded simulator call
//! the same rules, so that what was explored is what runs.
//!
//! # The map
//!
//! Three parts carry the protocol; each leans on those before it:
//!
//! - [`tree`]: what a snapshot holds. Entries with their metadata, the canonical digest of a tree, the file list in sections,
//!   content-defined chunking, and the difference of two trees.
//! - [`mod@format`]: what is stored, byte for byte. The pointer (`latest.json`), the lock (`lock.json`), manifests, the snapshot
//!   index, chunk headers and key documents. A document keeps fields it does not know.
//! - [`protocol`]: how documents change. [`protocol::step`] says which change a rule allows, [`protocol::settle`] drives one
//!   operation through lost answers to a definite end, [`protocol::operation`] settles what stayed unknown, and [`protocol::gc`]
//!   removes chunks beside running saves.
//!
//! | below them | |
//! |---|---|
//! | [`id`], [`digest`], [`chunk_name`], [`time`] | identities: parsed once, impossible to mistake for one another |
//! | [`rng`] | randomness as an argument |
//! | [`varint`], [`base64`] | encodings |
//! | [`shared_range`] | which bytes two files share |
//! | [`failure`], [`invalid`] | the two errors that all crates share; an enum stands where a caller branches |
//!
//! | above them | |
//! |---|---|
//! | [`policy`] | which snapshots go ([`policy::retention`]), what a tenant allows, what looks like a loss |
//! | [`snapshot_ref`], [`subject_ref`], [`time_ref`] | what a user types to name a snapshot, a subject, a moment |
//! | [`nearest`] | what a user may have meant who typed none of these |
//! | [`workspace`], [`project`], [`session`], [`upgrade`] | the rules of one kind: checkpoints, `stasis.toml`, sleep and wake, a newer Chrome |
//! | [`chrome`], [`sqlite_file`] | what files of other programs look like from outside |
//! | [`metrics`] | the series that a host reports |
//!
//! Refusals, reports and stored documents are `#[non_exhaustive]` where a caller does not make them. Steps, answers and outcomes
//! are not: a driver that does not know every one of them cannot carry out the protocol, and the compiler should say so. The
//! feature `schema` adds JSON Schemas of what surfaces show.
//!
//! # Publishing a snapshot by hand
//!
//! A [`Protocol`](protocol::settle::Protocol) takes the store's answer and returns the next step. The driver only
//! obeys: here the store is two variables, in production it is a bucket with conditional writes.
//!
//! ```
//! use stasis_model::digest::{ArchiveDigest, ManifestDigest};
//! use stasis_model::format::document::{Version, Versioned};
//! use stasis_model::format::lease::{Holder, Lock};
//! use stasis_model::format::pointer::{Active, Pointer};
//! use stasis_model::id::OpId;
//! use stasis_model::protocol::settle::{Body, Protocol, ProtocolOutcome, ProtocolStep, StoreAnswer};
//! use stasis_model::protocol::step::{Doc, Op};
//! use stasis_model::time::Timestamp;
//! use std::time::Duration;
//!
//! #[derive(Default)]
//! struct Store {
//!     lock: Option<Versioned<Lock>>,
//!     pointer: Option<Versioned<Pointer>>,
//!     writes: u32,
//! }
//!
//! impl Store {
//!     /// Carries one operation out to its end.
//!     fn run(&mut self, mut protocol: Protocol) -> ProtocolStep {
//!         let now = Timestamp::from_millis(1_700_000_000_000);
//!         let mut answer = StoreAnswer::Begin;
//!         loop {
//!             answer = match protocol.next(answer, now) {
//!                 ProtocolStep::Read(Doc::Lock) => StoreAnswer::Lock(self.lock.clone()),
//!                 ProtocolStep::Read(Doc::Pointer) => StoreAnswer::Pointer(self.pointer.clone()),
//!                 ProtocolStep::Write { expected, body } => self.write(expected, *body),
//!                 end => return end,
//!             };
//!         }
//!     }
//!
//!     /// A conditional write: applied only over the version that was read.
//!     fn write(&mut self, expected: Option<Version>, body: Body) -> StoreAnswer {
//!         let current = match body.doc() {
//!             Doc::Lock => self.lock.as_ref().map(|lock| lock.version.clone()),
//!             Doc::Pointer => self.pointer.as_ref().map(|pointer| pointer.version.clone()),
//!         };
//!         if current != expected {
//!             return StoreAnswer::Lost;
//!         }
//!         self.writes += 1;
//!         let version = Version::new(self.writes.to_string());
//!         match body {
//!             Body::Lock(value) => self.lock = Some(Versioned { value, version }),
//!             Body::Pointer(value) => self.pointer = Some(Versioned { value, version }),
//!         }
//!         StoreAnswer::Won
//!     }
//! }
//!
//! let mut store = Store::default();
//! let holder = Holder {
//!     run_id: "run-1".parse()?,
//!     host: "host".parse()?,
//!     host_run_id: "container".parse()?,
//! };
//!
//! // Own the lineage: take the lock, then write the fence into the pointer.
//! let acquire = Protocol::acquire(OpId::from_random([1; 16]), holder, Duration::from_secs(300));
//! let ProtocolStep::Done(ProtocolOutcome::Acquired { fence, base, .. }) = store.run(acquire) else {
//!     panic!("the lineage is free");
//! };
//! assert_eq!(base, None, "there is no snapshot yet");
//!
//! // Archive and manifest are durable by now; this makes them the active snapshot.
//! let to = Active {
//!     archive: ArchiveDigest::of(b"archive"),
//!     manifest: ManifestDigest::of(b"manifest"),
//!     archive_key: "archives/1".to_owned(),
//!     manifest_key: "manifests/1".to_owned(),
//! };
//! let publish = Op::Publish { fence, base: None, to: to.clone() };
//! let end = store.run(Protocol::new(OpId::from_random([2; 16]), publish.clone()));
//! assert!(matches!(end, ProtocolStep::Done(_)));
//! assert_eq!(store.pointer.as_ref().and_then(|pointer| pointer.value.active.clone()), Some(to));
//!
//! // A second writer that loaded nothing is refused: the pointer moved since.
//! let end = store.run(Protocol::new(OpId::from_random([3; 16]), publish));
//! assert!(matches!(end, ProtocolStep::Refused(_)));
//! # Ok::<(), stasis_model::invalid::Invalid>(())
//! ```

pub mod base64;
pub mod chrome;
pub mod chunk_name;
mod closed_set;
pub mod container;
pub mod digest;
pub mod failure;
pub mod filesystem;
pub mod format;
pub mod id;
pub mod invalid;
pub mod logins;
pub mod metrics;
pub mod nearest;
pub mod policy;
pub mod project;
pub mod protocol;
pub mod rng;
pub mod session;
pub mod shared_range;
pub mod snapshot_ref;
pub mod sqlite_file;
pub mod storage_state;
pub mod subject_ref;
pub mod time;
pub mod time_ref;
pub mod tree;
pub mod upgrade;
pub mod varint;
pub mod workspace;
