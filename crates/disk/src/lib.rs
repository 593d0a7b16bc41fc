//! To the files.
//!
//! Blocking code and proud of it. Today it knows how to replace one small file durably and what a filesystem can do;
//! trees move in with the tree engine.

pub mod atomic_write;
pub mod facilities;
