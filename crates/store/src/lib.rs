//! A bucket of objects with compare-and-swap, over a directory, memory or any S3-compatible service, and the documents
//! that Stasis keeps in one.
//!
//! Several hosts share a store without a server of their own if the store can do two things: create an object only where
//! there is none, and replace exactly the version that was read. This crate asks for those two things and for little else
//! ([`bucket::Bucket`]), says plainly when an answer settles nothing ([`bucket::Swap::Unknown`]), finds out whether a
//! service keeps its word before anybody relies on it ([`probe`]), and has a suite that every implementation must pass
//! (`contract`, behind the feature of that name).
//!
//! ```
//! use stasis_store::backend::file::FileBucket;
//! use stasis_store::bucket::{Bucket, Swap};
//! use stasis_store::layout;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = tempfile::tempdir()?;
//! let bucket = FileBucket::open(directory.path().join("store")).await?;
//! let key = layout::policy(&"acme".parse()?);
//!
//! // Publishing is one conditional write: whoever comes second is told so.
//! let Swap::Won(first) = bucket.create(&key, "{}".into()).await? else {
//!     panic!("nobody else writes here");
//! };
//! assert_eq!(bucket.create(&key, "{}".into()).await?, Swap::Lost);
//!
//! // Replacing names the version that was read.
//! let Swap::Won(_second) = bucket.swap(&key, &first, "{\"a\":1}".into()).await? else {
//!     panic!("nobody else writes here");
//! };
//! assert_eq!(bucket.swap(&key, &first, "{\"a\":2}".into()).await?, Swap::Lost);
//!
//! let read = bucket.get(&key, 1024).await?.expect("it was written");
//! assert_eq!(read.body, "{\"a\":1}");
//! # Ok(())
//! # }
//! ```
//!
//! - [`bucket`] is the port; [`backend`] has what implements it: a directory, memory, and object stores of any cloud over
//!   the `object_store` crate, of which [`backend::s3`] is the adapter. [`retry`] and [`paced`] wrap any of them.
//! - [`listed_view`] is for lists of many subjects: what a listing shows to be unchanged is not read again.
//! - [`layout`] is the only place where keys are spelled, [`location`] the only one where the URLs of stores are.
//! - [`documents`] reads and writes what Stasis keeps: pointers, locks, manifests, policies, events.
//!
//! A new cloud is an adapter of some hundred lines beside [`backend::s3`], its URL in [`location`], and the line that opens
//! it.

pub mod backend;
pub mod bucket;
#[cfg(feature = "contract")]
pub mod contract;
pub mod copying;
pub mod credentials;
pub mod documents;
mod excerpt;
pub mod layout;
pub mod listed_view;
pub mod location;
pub mod paced;
pub mod part;
pub mod probe;
pub mod retry;
