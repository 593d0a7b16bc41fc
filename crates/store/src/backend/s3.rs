//! S3 and what speaks like it: where a bucket is, who we are to it, and what its refusals mean.
//!
//! An adapter of [`object_store`](super::object_store), which does everything else.

mod error_body;
mod part_copier;

use super::object_store::{Cloud, HttpWitness, ObjectBucket, PartCopier, TransferSettings};
use crate::bucket::{BucketContext as _, BucketError, BucketErrorKind};
use crate::credentials::Credentials;
use crate::location::{AddressStyle, CredentialSource, Endpoint, S3Location};
use ::object_store::aws::{AmazonS3Builder, Checksum};
use ::object_store::client::HttpConnector as _;
use ::object_store::{ClientOptions, RetryConfig};
use part_copier::S3PartCopier;
use stasis_model::time::Clock;
use std::sync::Arc;

/// Who we are to the store.
#[derive(Clone, Debug)]
pub enum S3Access {
    /// Sign with these keys.
    Keys(Credentials),
    /// Ask the cloud's metadata service for keys. The only case in which it is ever asked.
    Instance,
    /// Do not sign.
    Anonymous,
}

/// Prepares a bucket without asking it anything.
pub fn open(
    location: &S3Location,
    access: S3Access,
    clock: Arc<dyn Clock>,
    settings: TransferSettings,
) -> Result<ObjectBucket, BucketError> {
    const UNFIT: BucketErrorKind = BucketErrorKind::Unsupported;
    let asks_instance = location.credentials == CredentialSource::Instance;
    if matches!(access, S3Access::Instance) && !asks_instance {
        let why = "the location does not say credentials=instance";
        return Err(BucketError::new(UNFIT, "prepare", location).because(why));
    }
    let sound = location.clone().checked();
    sound.bucket_error(UNFIT, "prepare", location)?;
    let witness = Arc::new(HttpWitness::new(clock, error_body::explain));
    let endpoint = location.endpoint.as_ref();
    let is_local = endpoint.is_some_and(Endpoint::is_plain_http);
    let signs = !matches!(access, S3Access::Anonymous);
    let connector = witness.connector(&settings, is_local);
    let builder = with_access(with_address(location), access)
        .with_http_connector(connector.clone())
        .with_disable_bulk_delete(true)
        // A conditional write that is sent twice can be refused by its own success.
        .with_retry(RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        });
    let built = |builder: AmazonS3Builder| {
        let store = builder.build();
        store.bucket_error(UNFIT, "prepare", location)
    };
    let store = Arc::new(built(builder.clone())?);
    let copies: Option<Arc<dyn PartCopier>> = if signs {
        let client = connector.connect(&client_options(location));
        let builder = builder
            .with_credentials(store.credentials().clone())
            .with_checksum_algorithm(Checksum::SHA256);
        Some(Arc::new(S3PartCopier {
            store: Arc::new(built(builder)?),
            client: client.bucket_error(UNFIT, "prepare", location)?,
            bucket: location.bucket.clone(),
            region: region(location).to_owned(),
        }))
    } else {
        None
    };
    let cloud = Cloud {
        objects: store.clone(),
        uploads: store.clone(),
        copies,
        pages: store,
        prefix: location.prefix.clone(),
        label: format!("S3Bucket({location})"),
        witness: Some(witness),
    };
    Ok(ObjectBucket::new(cloud, settings))
}

fn region(location: &S3Location) -> &str {
    location.region.as_deref().unwrap_or("us-east-1")
}

fn with_address(location: &S3Location) -> AmazonS3Builder {
    let style = location.address_style();
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&location.bucket)
        .with_region(region(location))
        .with_virtual_hosted_style_request(style == AddressStyle::Virtual);
    if let Some(endpoint) = &location.endpoint {
        builder = builder.with_endpoint(match style {
            AddressStyle::Path => endpoint.to_string(),
            AddressStyle::Virtual => endpoint.with_bucket(&location.bucket),
        });
    }
    builder.with_client_options(client_options(location))
}

/// Plain HTTP is for those who wrote it into the location.
fn client_options(location: &S3Location) -> ClientOptions {
    let endpoint = location.endpoint.as_ref();
    let is_plain = endpoint.is_some_and(Endpoint::is_plain_http);
    ClientOptions::new().with_allow_http(is_plain)
}

fn with_access(builder: AmazonS3Builder, access: S3Access) -> AmazonS3Builder {
    match access {
        S3Access::Instance => builder,
        S3Access::Anonymous => builder.with_skip_signature(true),
        S3Access::Keys(keys) => {
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
