//! Worlds to test Stasis in.

#[cfg(feature = "worlds")]
pub mod explore;
#[cfg(feature = "worlds")]
pub mod faulty_bucket;
#[cfg(feature = "worlds")]
pub mod fingerprint;
#[cfg(feature = "worlds")]
pub mod gc_world;
#[cfg(feature = "worlds")]
pub mod lineage_world;
#[cfg(feature = "worlds")]
pub mod mark_world;
pub mod mounted_image;
pub mod postgres;
#[cfg(feature = "worlds")]
pub mod race;
#[cfg(feature = "worlds")]
pub mod real_time;
#[cfg(feature = "worlds")]
pub mod seeded_rng;
#[cfg(feature = "worlds")]
pub mod sim;
#[cfg(feature = "worlds")]
pub mod sim_clock;
pub mod unprivileged;
