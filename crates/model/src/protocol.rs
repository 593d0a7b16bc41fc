//! How documents change: sans-I/O state machines that take the store's answer and return the next step.
//!
//! 1. [`step`]: one pure function from two documents, an operation and the time to the document to write, or to why not
//! 2. [`settle`]: one operation from its first read to a definite end, through lost answers and other writers
//! 3. [`operation`]: what is recorded when the end is not known, and how it is decided later from the operation id
//! 4. [`publish`]: which snapshots of a lineage were ever active
//! 5. [`gc`]: removing chunks that no snapshot needs, beside running saves
//! 6. [`job`]: what runs on one host at a time
//!
//! *Always true:* every write is conditional on the version that was read, every document carries a generation that never
//! repeats and the ids of its last operations, and an answer that was lost is settled by reading, never by trying again blindly.

pub mod gc;
pub mod job;
pub mod operation;
pub mod publish;
pub mod settle;
pub mod step;
