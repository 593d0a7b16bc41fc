//! The stores: a directory, memory, and object stores of any cloud.
//!
//! Another cloud is an adapter like [`s3`]: the library's client for it, how it is reached, and what its refusals mean. The
//! rest is [`object_store`], written over the library's own traits.

pub mod file;
pub mod memory;
pub mod object_store;
pub mod s3;
