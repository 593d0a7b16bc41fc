//! Sessions: an agent's workspace in a sandbox that is put to sleep when nobody uses it, and woken where it left off.
//!
//! [`document`] is what is kept of one (`session.json`), [`step`] how that may change, [`roots`] what of a workspace is saved. The
//! snapshots of a session are those of any subject, in an index of their own; of these exactly one is published.

pub mod document;
pub mod roots;
pub mod step;
