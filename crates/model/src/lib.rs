//! The facts and rules of Stasis.
//!
//! Everything here is a pure function of its arguments: no I/O, no async, no clock, no chance. Production code, the
//! exhaustive explorer and the seeded simulator all call the same rules, so what was proved is what runs.

pub mod base64;
pub mod chance;
pub mod chrome;
pub mod chunk;
pub mod chunking;
pub mod diff;
pub mod digest;
pub mod document;
pub mod event;
pub mod file_list;
pub mod id;
pub mod key;
pub mod lease;
pub mod manifest;
pub mod metrics;
pub mod operation;
pub mod pieces;
pub mod pointer;
pub mod policy;
pub mod project;
pub mod promotion;
pub mod protocol;
pub mod retention;
pub mod shrink;
pub mod step;
pub mod sweep;
pub mod time;
pub mod tree;
pub mod upgrade;
pub mod workspace;
