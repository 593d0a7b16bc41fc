//! Who we are to a store, how patient we are with it, and where it is, in the words of the library.

use crate::credentials::Credentials;
use crate::location::{AddressStyle, S3Location};
use object_store::ClientOptions;
use object_store::aws::AmazonS3Builder;
use std::time::Duration;

/// Who we are to the store.
#[derive(Clone, Debug)]
pub enum Access {
    /// Sign with these keys.
    Keys(Credentials),
    /// Ask the cloud's metadata service for keys. The only case in which it is ever asked.
    Instance,
    /// Do not sign.
    Anonymous,
}

/// How patient a bucket is, and how much it holds in memory.
#[derive(Clone, Debug)]
pub struct S3Settings {
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How long a small request may take from the first byte sent to the last one read.
    pub request_timeout: Duration,
    /// Large requests may take longer: as much as their bytes need at this rate, in bytes per second.
    pub slowest_rate: u64,
    /// How large the parts of a large object are: at least 5 MiB, and up to 10,000 parts fit into one object.
    pub part_size: usize,
    /// How many parts travel at once; each of them is held in memory.
    pub parts_in_flight: usize,
    /// How long a store may take to make one object of its parts; large objects may take longer. Only what is silent
    /// costs this time, and the object is looked for afterwards.
    pub completion_timeout: Duration,
}

/// How much faster than they travelled the parts of an object are put together: nothing leaves the store.
const ASSEMBLY_SPEEDUP: u64 = 64;

impl S3Settings {
    /// How long a request that moves `bytes` may take.
    pub(super) fn budget(&self, bytes: u64) -> Duration {
        let moving = Duration::from_secs(bytes / self.slowest_rate.max(1));
        self.request_timeout.saturating_add(moving)
    }

    /// How long the completion of an upload of `bytes` may take.
    pub(super) fn completion_budget(&self, bytes: u64) -> Duration {
        let rate = self.slowest_rate.max(1).saturating_mul(ASSEMBLY_SPEEDUP);
        let assembling = Duration::from_secs(bytes / rate);
        self.completion_timeout.saturating_add(assembling)
    }
}

impl Default for S3Settings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            slowest_rate: 128 * 1024,
            part_size: 8 * 1024 * 1024,
            parts_in_flight: 4,
            completion_timeout: Duration::from_mins(5),
        }
    }
}

pub(super) fn with_address(location: &S3Location) -> AmazonS3Builder {
    let style = location.address_style();
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&location.bucket)
        .with_region(location.region.as_deref().unwrap_or("us-east-1"))
        .with_virtual_hosted_style_request(style == AddressStyle::Virtual);
    if let Some(endpoint) = &location.endpoint {
        let plain = endpoint.is_plain_http();
        builder = builder
            .with_endpoint(match style {
                AddressStyle::Path => endpoint.to_string(),
                AddressStyle::Virtual => endpoint.with_bucket(&location.bucket),
            })
            .with_client_options(ClientOptions::new().with_allow_http(plain));
    }
    builder
}

pub(super) fn with_access(builder: AmazonS3Builder, access: Access) -> AmazonS3Builder {
    match access {
        Access::Instance => builder,
        Access::Anonymous => builder.with_skip_signature(true),
        Access::Keys(keys) => {
            let signed = builder
                .with_access_key_id(keys.access_key)
                .with_secret_access_key(keys.secret.reveal());
            match keys.session_token {
                Some(token) => signed.with_token(token.reveal()),
                None => signed,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completing_has_minutes_and_more_for_large_objects() {
        let settings = S3Settings::default();
        let minutes = |bytes| settings.completion_budget(bytes).as_secs() / 60;

        assert_eq!(minutes(0), 5);
        assert_eq!(minutes(8_000_000_000), 20);
    }
}
