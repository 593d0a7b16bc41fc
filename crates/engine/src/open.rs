//! Where the parts are chosen and joined.

use crate::bridge;
use crate::error::Error;
use crate::key_source::{KeySource, KnownPools};
use crate::metrics::SampleSink;
use crate::own_places;
use crate::warning::{self, Warning};
use stasis_disk::crypt::TenantKey;
use stasis_disk::fs::atomic_write::read_bounded;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::id::TenantId;
use stasis_model::rng::Rng;
use stasis_model::time::Clock;
use stasis_store::backend::file::FileBucket;
use stasis_store::backend::memory::MemoryBucket;
use stasis_store::backend::object_store::TransferSettings;
use stasis_store::backend::s3::{self, S3Access};
use stasis_store::bucket::Bucket;
pub use stasis_store::credentials::Secret;
use stasis_store::credentials::{self, AwsProfile, Credentials};
use stasis_store::documents::lineages::Lineages;
use stasis_store::layout::ChunkRoot;
use stasis_store::listed_view::{DocumentMemory, ListedView};
pub use stasis_store::location::StoreLocation;
use stasis_store::location::{CredentialSource, Endpoint, S3Location};
use stasis_store::retry::{RetrySettings, Retrying};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// No file with credentials is longer.
const LONGEST: u64 = 1 << 20;

/// How long a save lasts before it puts a provisional manifest.
const PROVISIONAL_AFTER: Duration = Duration::from_mins(1);

/// Where this host keeps what it can lose.
#[derive(Clone, Debug)]
pub struct LocalDirs {
    /// Caches: may vanish at any time. Without a place nothing is cached.
    pub cache: Option<PathBuf>,
    /// State: records worth keeping, such as operations whose outcome is unknown. Without a place they are only in the store.
    pub state: Option<PathBuf>,
}

/// What the usual AWS variables and files say.
#[derive(Clone, Debug, Default)]
pub struct AwsSettings {
    /// `AWS_ACCESS_KEY_ID`
    pub access_key: Option<String>,
    /// `AWS_SECRET_ACCESS_KEY`
    pub secret_key: Option<Secret>,
    /// `AWS_SESSION_TOKEN`
    pub session_token: Option<Secret>,
    /// `AWS_REGION`, else `AWS_DEFAULT_REGION`
    pub region: Option<String>,
    /// `AWS_ENDPOINT_URL_S3`, else `AWS_ENDPOINT_URL`
    pub endpoint: Option<String>,
    /// `AWS_PROFILE`
    pub profile: Option<String>,
    /// `AWS_SHARED_CREDENTIALS_FILE`, else `~/.aws/credentials`
    pub credentials_file: Option<PathBuf>,
    /// `AWS_CONFIG_FILE`, else `~/.aws/config`
    pub config_file: Option<PathBuf>,
}

/// What an engine is opened with.
#[derive(Clone, Debug)]
pub struct Open {
    /// Which store.
    pub location: StoreLocation,
    /// Whether a directory that is not there is made. Only for commands that write: to a reader, a store that is not
    /// there must not look like an empty one.
    pub create: bool,
    /// How to get into it, when it is an S3 bucket.
    pub aws: AwsSettings,
    /// Where this host keeps what it can lose.
    pub local_dirs: LocalDirs,
}

/// One store and everything that can be done with it.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) bucket: Arc<dyn Bucket>,
    pub(crate) lineages: Lineages,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) location: StoreLocation,
    pub(crate) local_dirs: LocalDirs,
    pub(crate) trusted: Arc<OnceCell<()>>,
    /// Whether listings of the store go on where they are asked to, once that is known.
    pub(crate) lists_go_on: Arc<OnceCell<bool>>,
    /// Where snapshots in chunks are kept.
    pub(crate) chunk_root: ChunkRoot,
    /// The tenant's key, for encrypted lineages and pools.
    pub(crate) tenant_key: Option<Arc<KeySource>>,
    /// What is known of pools that were met.
    pub(crate) pools: Arc<KnownPools>,
    /// How long a save may last before it puts a provisional manifest, and then another one.
    pub(crate) provisional_after: Duration,
    /// Documents that lists have read, for a process that lists again and again.
    pub(crate) documents: Option<Arc<DocumentMemory>>,
    /// Where what it does is counted.
    pub(crate) counted: SampleSink,
}

impl Engine {
    /// Opens a store. A bucket is never made, and a directory only if that was asked for.
    pub async fn open(open: Open, clock: Arc<dyn Clock>, rng: Arc<dyn Rng>) -> Result<Self, Error> {
        let Open {
            location,
            create,
            aws,
            local_dirs,
        } = open;
        let (bucket, location): (Arc<dyn Bucket>, StoreLocation) = match location {
            StoreLocation::File(root) => {
                let opened = if create {
                    FileBucket::open(&root).await
                } else {
                    FileBucket::open_existing(&root).await
                };
                let opened = opened?;
                if let Some(state) = local_dirs.state.clone().filter(|_| create) {
                    let root = root.clone();
                    let remember = move || {
                        own_places::remember_store(&state, &root);
                        Ok::<_, Error>(())
                    };
                    bridge::blocking(remember).await?;
                }
                (Arc::new(opened), StoreLocation::File(root))
            }
            StoreLocation::Memory => (Arc::new(MemoryBucket::new()), StoreLocation::Memory),
            StoreLocation::S3(asked) => {
                // From here on the store has the name under which it is really asked: what is believed of one
                // endpoint must never be believed of another.
                let (resolved, access) = s3_access(&asked, aws).await?;
                let bucket = s3::open(
                    &resolved,
                    access,
                    clock.clone(),
                    TransferSettings::default(),
                )?;
                let bucket = Retrying::new(bucket, rng.clone(), RetrySettings::default());
                (Arc::new(bucket), StoreLocation::S3(resolved))
            }
        };
        Ok(Self::over(bucket, location, local_dirs, clock, rng))
    }

    /// An engine over a bucket that is already open.
    pub fn over(
        bucket: Arc<dyn Bucket>,
        location: StoreLocation,
        local_dirs: LocalDirs,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
    ) -> Self {
        let lineages = Lineages::new(bucket.clone(), clock.clone(), rng.clone());
        let trusted = Arc::default();
        Self {
            bucket,
            lineages,
            clock,
            rng,
            location,
            local_dirs,
            trusted,
            lists_go_on: Arc::default(),
            chunk_root: ChunkRoot::pool(&TenantId::default()),
            tenant_key: None,
            pools: Arc::default(),
            provisional_after: PROVISIONAL_AFTER,
            documents: None,
            counted: SampleSink::default(),
        }
    }

    /// The same engine, which counts there for how long programs stand still, and whom its jobs throw out.
    #[must_use = "the engine is not changed in place"]
    pub fn with_samples(self, counted: SampleSink) -> Self {
        Self { counted, ..self }
    }

    /// The same engine, whose saves put a provisional manifest when they have lasted so long, and then again and again: two
    /// requests each, and 48 bytes for each chunk that was stored since. A sweep makes a save read again what it stored since the last one.
    #[must_use = "the engine is not changed in place"]
    pub fn with_provisional_after(self, provisional_after: Duration) -> Self {
        Self {
            provisional_after,
            ..self
        }
    }

    /// The same engine, whose lists remember so many bytes of the documents that they read, and read again only what changed.
    #[must_use = "the engine is not changed in place"]
    pub fn with_document_memory(self, most_bytes: usize) -> Self {
        Self {
            documents: Some(Arc::new(DocumentMemory::new(most_bytes))),
            ..self
        }
    }

    /// The same engine for one list of many subjects: documents that are listed as they were before are not read again. Nothing is
    /// decided or changed by what it finds.
    #[must_use = "the engine itself is not changed"]
    pub fn for_listing(&self) -> Self {
        let Some(documents) = &self.documents else {
            return self.clone();
        };
        let bucket: Arc<dyn Bucket> =
            Arc::new(ListedView::new(self.bucket.clone(), documents.clone()));
        let lineages = Lineages::new(bucket.clone(), self.clock.clone(), self.rng.clone());
        Self {
            bucket,
            lineages,
            documents: None,
            ..self.clone()
        }
    }

    /// The same engine, which keeps chunked snapshots elsewhere in its store.
    #[must_use = "the engine itself is not changed"]
    pub(crate) fn rooted(&self, chunk_root: ChunkRoot) -> Self {
        Self {
            chunk_root,
            ..self.clone()
        }
    }

    /// The same engine, about the directory whose own state this store is, if it is one; else about all subjects of its pool.
    pub async fn at_root(self) -> Result<Self, Error> {
        let own = ChunkRoot::state();
        let is_own =
            self.bucket.exists(&own.repo_json()).await? || self.bucket.exists(&own.index()).await?;
        Ok(if is_own { self.rooted(own) } else { self })
    }

    /// The same engine for a tenant that has a key.
    #[must_use = "the engine is not changed in place"]
    pub fn with_key(self, key: TenantKey) -> Self {
        Self {
            tenant_key: Some(Arc::new(KeySource::given(key))),
            pools: Arc::default(),
            ..self
        }
    }

    /// The same engine for a tenant whose key is read when it is first needed.
    #[must_use = "the engine is not changed in place"]
    pub fn with_key_from(
        self,
        read: impl Fn() -> Result<TenantKey, Failure> + Send + Sync + 'static,
    ) -> Self {
        Self {
            tenant_key: Some(Arc::new(KeySource::new(read))),
            pools: Arc::default(),
            ..self
        }
    }

    /// Which store this is.
    pub fn location(&self) -> &StoreLocation {
        &self.location
    }

    /// The lineages of the store, for callers that move pointers themselves.
    pub fn lineages(&self) -> &Lineages {
        &self.lineages
    }

    /// The bucket beneath.
    pub fn bucket(&self) -> &dyn Bucket {
        &*self.bucket
    }

    pub(crate) fn clock_warnings(&self) -> Vec<Warning> {
        warning::skew(self.bucket.clock_offset_ms())
            .into_iter()
            .collect()
    }
}

/// Joins the location with the usual variables and files: the location wins, then variables, then files.
async fn s3_access(asked: &S3Location, aws: AwsSettings) -> Result<(S3Location, S3Access), Error> {
    let profile = match (asked.credentials, &aws.access_key) {
        (CredentialSource::Static, None) => profile_files(&aws).await?,
        _ => AwsProfile::default(),
    };
    let variables = aws
        .access_key
        .zip(aws.secret_key)
        .map(|(access_key, secret)| Credentials {
            access_key,
            secret,
            session_token: aws.session_token,
        });
    let access = match asked.credentials {
        CredentialSource::Instance => S3Access::Instance,
        CredentialSource::Anonymous => S3Access::Anonymous,
        CredentialSource::Static => {
            let missing = || Error::no_credentials(&StoreLocation::S3(asked.clone()));
            S3Access::Keys(variables.or(profile.credentials).ok_or_else(missing)?)
        }
    };
    let mut location = asked.clone();
    location.region = location.region.or(aws.region).or(profile.region);
    if let (None, Some(endpoint)) = (&location.endpoint, aws.endpoint.or(profile.endpoint_url)) {
        let endpoint = endpoint.parse::<Endpoint>();
        let placed = endpoint.and_then(|endpoint| location.with_endpoint(endpoint));
        location = placed.map_err(Error::bad_location)?;
    }
    Ok((location, access))
}

async fn profile_files(aws: &AwsSettings) -> Result<AwsProfile, Error> {
    let name = aws.profile.clone().unwrap_or_else(|| "default".to_owned());
    let credentials = text_of(aws.credentials_file.as_deref()).await?;
    let config = text_of(aws.config_file.as_deref()).await?;
    Ok(credentials::profile(&credentials, &config, &name).unwrap_or_default())
}

/// The text of a file; nothing when there is no such file.
async fn text_of(path: Option<&Path>) -> Result<String, Error> {
    let Some(path) = path.map(Path::to_owned) else {
        return Ok(String::new());
    };
    let asked = path.clone();
    let read = bridge::blocking(move || {
        let bytes = read_bounded(&asked, LONGEST)?;
        String::from_utf8(bytes).or(Err(io::Error::from(io::ErrorKind::InvalidData)))
    });
    match read.await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => Ok(read.at("read", path)?),
    }
}
