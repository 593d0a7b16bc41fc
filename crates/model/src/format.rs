//! What is stored: the documents, byte for byte.

pub mod chunk;
pub mod document;
pub mod event;
pub mod job;
pub mod key;
pub mod lease;
pub mod manifest;
pub mod pointer;
pub mod proof;
pub mod request;
pub mod token;
