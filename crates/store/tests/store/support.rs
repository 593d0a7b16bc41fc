//! What the tests of this crate share.

use stasis_model::id::OpId;
use stasis_model::rng::Rng;
use stasis_model::time::{Clock, Timestamp};
use stasis_store::backend::object_store::{ObjectBucket, TransferSettings};
use stasis_store::backend::s3::{self, S3Access};
use stasis_store::credentials::{Credentials, Secret};
use stasis_store::location::{S3Location, StoreLocation};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Randomness that repeats with its seed.
#[derive(Debug)]
pub(crate) struct SeededChance(AtomicU64);

impl SeededChance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// For stores that outlive a test, where names must not be used twice.
    pub(crate) fn fresh() -> Self {
        Self::new(RandomState::new().hash_one(0))
    }

    fn next(&self) -> u64 {
        let state = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Rng for SeededChance {
    fn op_id(&self) -> OpId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next().to_le_bytes());
        bytes[8..].copy_from_slice(&self.next().to_le_bytes());
        OpId::from_random(bytes)
    }

    fn below(&self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }
}

/// This machine's clock.
#[derive(Debug)]
pub(crate) struct RealClock;

impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        now()
    }

    fn uptime(&self) -> Duration {
        now().since(Timestamp::from_millis(0))
    }
}

#[expect(clippy::disallowed_methods, reason = "a test against a real server")]
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_millis(0).plus(since)
}

/// A bucket with the keys that AWS's variables hold.
pub(crate) fn bucket_at(location: &S3Location) -> ObjectBucket {
    bucket_with(location, TransferSettings::default())
}

/// The same with other settings.
pub(crate) fn bucket_with(location: &S3Location, settings: TransferSettings) -> ObjectBucket {
    let variable = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let keys = Credentials {
        access_key: variable("AWS_ACCESS_KEY_ID"),
        secret: Secret::new(variable("AWS_SECRET_ACCESS_KEY")),
        session_token: std::env::var("AWS_SESSION_TOKEN").ok().map(Secret::new),
    };
    s3::open(
        location,
        S3Access::Keys(keys),
        Arc::new(RealClock),
        settings,
    )
    .unwrap()
}

/// A place of its own in the store that `STASIS_TEST_S3` names.
pub(crate) fn store_under_test(place: &str) -> Option<ObjectBucket> {
    let mut location = location_under_test("STASIS_TEST_S3", "an S3 server")?;
    if !location.prefix.is_empty() {
        location.prefix.push('/');
    }
    location.prefix.push_str(place);
    Some(bucket_at(&location))
}

/// The store that a variable names. Where the real parts are required, its absence is a failure.
pub(crate) fn location_under_test(variable: &str, part: &str) -> Option<S3Location> {
    if let Ok(url) = std::env::var(variable) {
        let StoreLocation::S3(location) = url.parse().expect("the URL of a store") else {
            panic!("`{url}` is not an S3 store");
        };
        return Some(location);
    }
    let required = ["CI", "STASIS_REQUIRE_PARTS"];
    assert!(
        required.iter().all(|name| std::env::var_os(name).is_none()),
        "{part} is required here: set {variable} to a store URL"
    );
    println!("skipped: {part} is not there ({variable} is not set)");
    None
}
