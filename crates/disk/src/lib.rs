//! To the files.
//!
//! Blocking code and proud of it. It reads trees ([`tree::walk`]), clones them ([`tree::clone`](mod@tree::clone)), writes them ([`tree::write`](mod@tree::write))
//! and puts them in the place of others ([`tree::restore`](mod@tree::restore)) through directory descriptors, never by path strings; it replaces one
//! small file durably, reports what happens to a live tree ([`watch`]) and records it ([`session_db`]), and knows what a filesystem can do.

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
