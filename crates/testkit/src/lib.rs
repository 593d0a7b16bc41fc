//! Worlds to test Stasis in.

pub mod explore;
