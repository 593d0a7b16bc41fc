//! Our port to a bucket, and what is kept in one.
//!
//! `bucket` is the port; `file`, `memory` and `s3` implement it; `retry` wraps it; `probe` asks whether a store keeps
//! its word. `layout` is the only place where object keys are spelled.

pub mod bucket;
pub mod layout;
