//! Worlds to test Stasis in.

pub mod explore;
pub mod faulty_bucket;
pub mod fingerprint;
pub mod lineage_world;
pub mod mark_world;
pub mod race;
pub mod real_time;
pub mod seeded_chance;
pub mod sim;
pub mod sim_clock;
pub mod sweep_world;
