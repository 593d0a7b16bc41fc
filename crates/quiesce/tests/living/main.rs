//! Services that run, are stopped, and are held still, as real processes and containers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "a test writes its own files")]

mod containers;
mod docker_engine;
mod home;
mod pausing;
mod services;
