//! The use cases of Stasis: what every surface calls.
//!
//! [`open::Engine`] joins the parts and hands out what acts on one noun ([`handle`]): `engine.profiles()`, `engine.dirs()`.
//! Results carry their warnings as data, errors fold into a few kinds named for what the caller must do.

pub mod archive;
pub mod bridge;
pub mod catalog;
pub mod check;
pub mod clone;
pub mod copy;
pub mod demo;
pub mod diff;
pub mod doctor;
pub mod error;
pub mod events;
pub mod gc;
pub mod handle;
pub mod hold;
pub mod hook_record;
pub mod kind;
pub mod lease;
pub mod metrics;
pub mod open;
pub mod operation;
pub mod probe;
pub mod reap;
pub mod restore;
pub mod result;
pub mod save;
pub mod tenant;
pub mod undo;
mod upload;
pub mod warning;

pub use stasis_disk::progress;
pub use stasis_model as model;
pub use stasis_quiesce::watchdog;
