//! The facts and rules of Stasis.
//!
//! Everything here is a pure function of its arguments: no I/O, no async, no clock, no chance. Production code, the
//! exhaustive explorer and the seeded simulator all call the same rules, so what was proved is what runs.

pub mod base64;
pub mod chrome;
pub mod digest;
pub mod failure;
pub mod format;
pub mod id;
pub mod metrics;
pub mod policy;
pub mod project;
pub mod protocol;
pub mod rng;
pub mod time;
pub mod tree;
pub mod upgrade;
pub mod varint;
pub mod workspace;
