//! Scenarios of models that use checkpoints, over the official client.

#![expect(
    clippy::disallowed_methods,
    reason = "tests change and remove files on purpose"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod changes;
mod checkpoints;
mod compact;
mod diff;
mod fork;
mod history;
mod many;
mod odd;
mod paging;
mod protocol;
mod raw;
mod restore;
mod revert;
mod undo;
mod world;
