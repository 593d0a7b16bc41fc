//! Our port to a bucket, and what is kept in one.
//!
//! `bucket` is the port; `file`, `memory` and `s3` implement it; `retry` wraps it; `probe` asks whether a store keeps
//! its word. `layout` is the only place where object keys are spelled.

pub mod backend;
pub mod bucket;
#[cfg(feature = "contract")]
pub mod contract;
pub mod copying;
pub mod credentials;
pub mod documents;
mod excerpt;
pub mod layout;
pub mod location;
pub mod probe;
pub mod retry;
