//! Worlds to test Stasis in.

pub mod explore;
pub mod fingerprint;
pub mod lineage_world;
pub mod sweep_world;
