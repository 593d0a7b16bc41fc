//! The stores: a directory, memory, an S3-compatible bucket.

pub mod file;
pub mod memory;
pub mod s3;
