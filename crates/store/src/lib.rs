//! Our port to a bucket, and what is kept in one.
//!
//! `bucket` is the port; `file`, `memory` and `s3` implement it; `retry` wraps it; `probe` asks whether a store keeps
//! its word. `layout` is the only place where object keys are spelled.

pub mod bucket;
#[cfg(feature = "contract")]
pub mod contract;
pub mod copying;
pub mod credentials;
pub mod events;
mod excerpt;
pub mod file;
pub mod layout;
pub mod leases;
pub mod lineages;
pub mod location;
pub mod memory;
pub mod operations;
pub mod pointers;
pub mod policies;
pub mod probe;
pub mod profiles;
pub mod retry;
pub mod roots;
pub mod s3;
