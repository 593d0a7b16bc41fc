//! The forms a saved tree has: an archive, chunks, a slot of a workspace.

pub mod archive;
pub mod archive_cache;
pub mod chunked;
pub mod git_blob;
pub mod gzip;
pub mod slots;
