//! The use cases of Stasis: what every surface calls.
//!
//! [`open::Engine`] joins the parts and hands out what acts on one noun ([`handle`]): `engine.profiles()`, `engine.dirs()`.
//! Results carry their warnings as data, errors fold into a few kinds named for what the caller must do.
//!
//! [`Stasis`] is the engine of a program that brings nothing of its own: it opens a store by its URL, with the real clock and
//! real randomness.
//!
//! ```
//! use stasis_engine::Stasis;
//! use stasis_engine::catalog::SnapshotSelector;
//! use stasis_engine::restore::{Placement, RepoRestore};
//! use stasis_engine::save::RepoSave;
//! use std::fs;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir()?;
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let (store, notes) = (scratch.path().join("store"), scratch.path().join("notes"));
//! # fs::create_dir(&notes)?;
//! let stasis = Stasis::open(&format!("file://{}", store.display())).await?;
//! stasis.dirs().init().await?;
//!
//! // Save a directory under a name.
//! fs::write(notes.join("todo"), "buy milk")?;
//! let saved = stasis.dirs().save(RepoSave::new(&notes, "notes".parse()?)).await?;
//! assert_eq!(saved.files, 1);
//!
//! // Make it what it was; what is replaced is kept beside it.
//! fs::write(notes.join("todo"), "sell the cow")?;
//! let restore = RepoRestore {
//!     placement: Placement::InPlace,
//!     ..RepoRestore::new(SnapshotSelector::new("latest"), &notes)
//! };
//! let restored = stasis.dirs().restore(restore).await?;
//! assert_eq!(restored.snapshot_id, saved.snapshot_id);
//! assert_eq!(fs::read_to_string(notes.join("todo"))?, "buy milk");
//!
//! // Take the restore back.
//! stasis.undo(&notes).await?;
//! assert_eq!(fs::read_to_string(notes.join("todo"))?, "sell the cow");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })
//! # }
//! ```

pub mod address;
pub mod archive;
pub mod bridge;
pub mod browser;
pub mod catalog;
pub mod check;
pub mod clone;
pub mod copy;
pub mod demo;
pub mod diff;
mod dir_identity;
pub mod doctor;
pub mod error;
mod error_kind;
pub mod events;
pub mod find;
pub mod gc;
mod git_patch;
pub mod handle;
pub mod hold;
pub mod hook_record;
pub mod host_roots;
mod job_lease;
pub mod jobs;
mod key_source;
pub mod keys;
pub mod kind;
pub mod lease;
mod library;
pub mod metrics;
pub mod near;
pub mod open;
pub mod operation;
mod own_places;
mod piped;
pub mod probe;
pub mod proofs;
mod prove;
mod quota;
pub mod reap;
pub mod repair;
pub mod requests;
pub mod restore;
pub mod result;
#[cfg(test)]
mod rigged;
pub mod save;
mod scratch;
mod seen;
pub mod snapshot_change;
pub mod store_stats;
pub mod stored;
pub mod subjects;
pub mod system;
pub mod tenant;
pub mod tokens;
mod tree_patch;
pub mod undo;
mod upload;
pub mod warning;

pub use library::Stasis;
pub use stasis_disk::fs::new_file::write_new;
pub use stasis_disk::progress;
pub use stasis_model as model;
pub use stasis_quiesce::watchdog;
