//! The buckets, their wrappers and the probe, seen from outside.
//!
//! Tests against a real S3 server run when `STASIS_TEST_S3` holds a store URL (and AWS's variables the keys), and
//! against a server that ignores conditions when `STASIS_TEST_S3_CARELESS` does. With `CI` or `STASIS_REQUIRE_PARTS`
//! set, a missing server is a failure.

#[cfg(test)]
mod contract;
#[cfg(test)]
mod copying;
#[cfg(test)]
mod deriving;
#[cfg(test)]
mod fake_server;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod paced;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod probe;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod retry;
#[cfg(test)]
mod s3;
#[cfg(test)]
mod scripted_bucket;
#[cfg(test)]
mod support;
