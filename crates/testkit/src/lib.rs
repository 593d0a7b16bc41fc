//! Worlds to test Stasis in.

pub mod explore;
pub mod fingerprint;
pub mod lineage_world;
pub mod race;
pub mod real_time;
pub mod sweep_world;
