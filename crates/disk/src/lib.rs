//! To the files.
//!
//! Blocking code and proud of it. It reads trees ([`walk`]), clones them ([`clone`](mod@clone)), writes them ([`tree_writer`])
//! and puts them in the place of others ([`restore`]) through directory descriptors, never by path strings; it replaces one
//! small file durably, tells what happens to a live tree ([`monitor`]) and writes it down ([`ledger`]), and knows what a filesystem can do.

pub mod check;
pub mod chrome;
pub mod crypt;
pub mod form;
pub mod fs;
pub mod progress;
pub mod session_db;
pub mod tree;
pub mod watch;
pub mod worker_pool;
