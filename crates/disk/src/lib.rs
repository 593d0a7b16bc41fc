//! To the files.
//!
//! Blocking code and proud of it. It reads trees ([`walk`]), clones them ([`clone`](mod@clone)), writes them ([`tree_writer`])
//! and puts them in the place of others ([`restore`]) through directory descriptors, never by path strings; it replaces one
//! small file durably, tells what happens to a live tree ([`monitor`]) and writes it down ([`ledger`]), and knows what a filesystem can do.

pub mod archive;
pub mod archive_cache;
pub mod atomic_write;
pub mod beneath;
pub mod check;
pub mod chrome;
pub mod chunked;
pub mod clone;
pub mod compare;
mod content;
mod database_set;
pub mod exclusive;
pub mod facilities;
pub mod holes;
pub mod ledger;
pub mod metadata;
pub mod monitor;
pub mod progress;
pub mod remove;
pub mod restore;
pub mod room;
pub mod seal;
pub mod skeleton;
pub mod slots;
mod staging;
mod stale;
pub mod survey;
#[expect(
    unsafe_code,
    reason = "the calls that rustix does not wrap; every block has a SAFETY line"
)]
mod sys;
pub mod tree_writer;
pub mod walk;
