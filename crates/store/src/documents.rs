//! What is read and written as a document, over any bucket.

pub mod changing;
pub mod containers;
pub mod events;
pub mod jobs;
pub mod leases;
pub mod lineages;
pub mod operations;
pub mod pointers;
pub mod policies;
pub mod profiles;
pub mod proofs;
pub mod repair;
pub mod requests;
pub mod roots;
pub mod sessions;
pub mod subjects;
pub mod tokens;
