//! TLS: who we are, by a certificate that may change while we run.
//!
//! Both files are looked at every few seconds. What they hold is used from the next connection on, if it is a certificate and the key that
//! belongs to it; else what was used before stays in use, and the log says why. So it does not matter in which order somebody writes the
//! two. Connections that are open keep what they began with.

use anyhow::{Context as _, bail};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// How often the files are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// How large one of them may be.
const MAX_BYTES: u64 = 1 << 20;

/// Where a certificate and its key lie.
#[derive(Clone, Debug)]
pub(crate) struct TlsFiles {
    /// The certificate of the service, then those that lead from it to one that clients know; PEM.
    pub(crate) certificate: PathBuf,
    /// The key of the first of them; PEM, not encrypted.
    pub(crate) key: PathBuf,
}

/// A certificate with its chain, and a key; whether they belong together is not known yet.
#[derive(PartialEq, Eq)]
struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl TlsFiles {
    async fn read(&self) -> anyhow::Result<Identity> {
        let (text, _) = read(&self.certificate).await?;
        let chain: Result<Vec<_>, PemError> = CertificateDer::pem_slice_iter(&text).collect();
        let named = self.certificate.display();
        let chain = chain.with_context(|| format!("`{named}` is not valid PEM"))?;
        if chain.is_empty() {
            bail!("`{named}` has no certificate in it");
        }
        let (text, _) = read(&self.key).await?;
        let named = self.key.display();
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
            PemError::NoItemsFound => {
                anyhow::anyhow!("`{named}` has no key in it; an encrypted one cannot be read")
            }
            error => anyhow::Error::new(error).context(format!("`{named}` is not valid PEM")),
        })?;
        Ok(Identity { chain, key })
    }

    /// Whether everybody on this host may read the key.
    pub(crate) async fn everybody_reads_the_key(&self) -> anyhow::Result<bool> {
        let (_, permissions) = read(&self.key).await?;
        Ok(permissions.mode() & 0o004 != 0)
    }
}

async fn read(path: &Path) -> anyhow::Result<(Vec<u8>, Permissions)> {
    let failed = || format!("could not read `{}`", path.display());
    let file = File::open(path).await.with_context(failed)?;
    let metadata = file.metadata().await.with_context(failed)?;
    let mut content = Vec::new();
    let mut bounded = file.take(MAX_BYTES);
    let read = bounded.read_to_end(&mut content).await;
    read.with_context(failed)?;
    Ok((content, metadata.permissions()))
}

/// The settings of one identity, if its certificate and its key belong together.
fn settings(identity: &Identity) -> anyhow::Result<ServerConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let settings = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(identity.chain.clone(), identity.key.clone_key());
    let mut settings = settings.context("the certificate and the key cannot be used together")?;
    settings.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(settings)
}

/// Certificates as they are now.
pub(super) type CurrentTls = watch::Receiver<Arc<ServerConfig>>;

/// What is used of two files.
pub(crate) struct Tls {
    files: TlsFiles,
    used: Identity,
    settings: watch::Sender<Arc<ServerConfig>>,
    /// Why the files cannot be used as they are, if somebody was told.
    fault: Option<String>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = f.debug_struct("Tls");
        fields.field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads both files, which must fit together.
    pub(crate) async fn open(files: TlsFiles) -> anyhow::Result<Self> {
        let used = files.read().await?;
        let settings = settings(&used).with_context(|| {
            let (certificate, key) = (files.certificate.display(), files.key.display());
            format!("could not use `{certificate}` with `{key}`")
        })?;
        Ok(Self {
            files,
            used,
            settings: watch::Sender::new(Arc::new(settings)),
            fault: None,
        })
    }

    pub(super) fn current(&self) -> CurrentTls {
        self.settings.subscribe()
    }

    /// Looks at the files again and again.
    pub(super) async fn follow(mut self) {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            match self.look().await {
                Ok(true) => tracing::info!("another certificate is used from now on"),
                Ok(false) => {}
                Err(error) => self.report(&error),
            }
        }
    }

    /// Uses what the files hold; says whether it is something else than before.
    async fn look(&mut self) -> anyhow::Result<bool> {
        let found = self.files.read().await?;
        let is_new = found != self.used;
        if is_new {
            self.settings.send_replace(Arc::new(settings(&found)?));
            self.used = found;
        }
        self.fault = None;
        Ok(is_new)
    }

    /// Says once why the files cannot be used.
    fn report(&mut self, error: &anyhow::Error) {
        let fault = format!("{error:#}");
        if self.fault.as_ref() != Some(&fault) {
            tracing::warn!(error = %fault, "the certificate stays the one that was used before");
            self.fault = Some(fault);
        }
    }
}
