//! One question to a daemon, with an API version and a limit.
//!
//! `bollard` 0.21.1 builds `/v1.53/path` and then joins `/path` to it, which drops the version (its issue 736). So we write the
//! version ourselves, into every request: the one that both sides know, asked for once, or one that was forced. Looking,
//! pausing and unpausing are asked for without a version, which every engine understands: the way back from a pause takes
//! one request.

use super::address::{DEFAULT_HOST, DaemonAddress};
use super::error::CallError;
use bollard::{BollardRequest, ClientVersion};
use stasis_model::failure::{ErrorKind, Failure};
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::timeout;

/// The client's own limit, which has whole seconds and covers the head of an answer only: ours are shorter.
const CLIENT_TIMEOUT: u64 = 24 * 60 * 60;
/// How often a daemon that works for long is asked whether it is still there.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How many times in a row it may not answer that.
const MISSED: u32 = 2;

/// A version of the API.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ApiVersion {
    major: usize,
    minor: usize,
}

impl ApiVersion {
    /// The oldest that is supported: Docker Engine 20.10.
    pub const LOWEST: Self = Self::new(1, 41);
    /// The newest that our client knows.
    pub const HIGHEST: Self = Self::new(1, 53);

    /// A version by its numbers.
    pub const fn new(major: usize, minor: usize) -> Self {
        Self { major, minor }
    }

    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self::new(major.parse().ok()?, minor.parse().ok()?))
    }
}

impl Display for ApiVersion {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// How long a daemon may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DockerLimits {
    /// For a short question, and for a sign of life during a long one.
    pub reply: Duration,
    /// For a long one, such as a commit, or until the next bytes of a stream.
    pub work: Duration,
}

impl Default for DockerLimits {
    /// A quarter of a minute, and half an hour.
    fn default() -> Self {
        Self {
            reply: Duration::from_secs(15),
            work: Duration::from_mins(30),
        }
    }
}

/// A Docker daemon. Two are the same if they listen at the same address.
///
/// An address that is not understood is refused by the first call.
#[derive(Clone, Debug)]
pub struct Docker {
    host: OsString,
    forced: Option<ApiVersion>,
    limits: DockerLimits,
    agreed: Arc<OnceLock<ApiVersion>>,
}

impl PartialEq for Docker {
    fn eq(&self, other: &Self) -> bool {
        self.host == other.host
    }
}

impl Eq for Docker {}

impl Default for Docker {
    /// The daemon of this host.
    fn default() -> Self {
        Self::at(DEFAULT_HOST)
    }
}

impl Docker {
    /// The daemon at an address: `unix:///PATH` or `tcp://HOST:PORT`.
    pub fn at(host: impl Into<OsString>) -> Self {
        Self {
            host: host.into(),
            forced: None,
            limits: DockerLimits::default(),
            agreed: Arc::default(),
        }
    }

    /// The daemon that `DOCKER_HOST` names, as its value; the one of this host if it is empty or not set.
    pub fn from_variable(value: Option<impl Into<OsString>>) -> Self {
        let value = value.map(Into::into).filter(|value| !value.is_empty());
        value.map_or_else(Self::default, Self::at)
    }

    /// The same, asked with this version of the API and not with the newest that both sides know.
    #[must_use]
    pub fn with_api(mut self, version: ApiVersion) -> Self {
        self.forced = Some(version);
        self
    }

    /// The same, with other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: DockerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Its address.
    pub fn host(&self) -> &OsStr {
        &self.host
    }

    pub(super) fn limits(&self) -> DockerLimits {
        self.limits
    }

    pub(super) fn is_socket(&self) -> bool {
        matches!(DaemonAddress::parse(&self.host), Ok(DaemonAddress::Unix(_)))
    }

    /// A client that names no version, unless one is forced.
    pub(super) fn unversioned(&self) -> Result<bollard::Docker, CallError> {
        // It has no influence: see above.
        let unused = ClientVersion {
            major_version: ApiVersion::HIGHEST.major,
            minor_version: ApiVersion::HIGHEST.minor,
        };
        let client = match DaemonAddress::parse(&self.host)? {
            DaemonAddress::Unix(path) => {
                bollard::Docker::connect_with_unix(&path, CLIENT_TIMEOUT, &unused)?
            }
            DaemonAddress::Tcp(authority) => {
                bollard::Docker::connect_with_http(&authority, CLIENT_TIMEOUT, &unused)?
            }
        };
        Ok(match self.forced {
            Some(version) => versioned(client, version),
            None => client,
        })
    }

    /// A client that names the version that both sides know.
    async fn client(&self) -> Result<bollard::Docker, CallError> {
        let client = self.unversioned()?;
        if self.forced.is_some() {
            return Ok(client);
        }
        if let Some(version) = self.agreed.get() {
            return Ok(versioned(client, *version));
        }
        let version = agree(&client.version().await?)?;
        Ok(versioned(client, *self.agreed.get_or_init(|| version)))
    }

    /// The version of the API that is used.
    pub async fn api(&self) -> Result<ApiVersion, Failure> {
        if let Some(forced) = self.forced {
            return Ok(forced);
        }
        self.ask(
            "ask for the API version of",
            self.host.display(),
            async |_| Ok(()),
        )
        .await?;
        Ok(self.agreed.get().copied().unwrap_or(ApiVersion::LOWEST))
    }

    /// Asks a short question: `op` and `target` say what could not be done if there is no good answer.
    pub(super) async fn ask<T>(
        &self,
        op: &'static str,
        target: impl Display,
        call: impl AsyncFnOnce(bollard::Docker) -> Result<T, CallError>,
    ) -> Result<T, Failure> {
        let limit = self.limits.reply;
        // The client's futures are large.
        let asked = Box::pin(async { call(self.client().await?).await });
        let answered = timeout(limit, asked).await;
        let answered = answered.unwrap_or(Err(CallError::Silent(limit)));
        answered.map_err(|error| error.into_failure(op, target, &self.host))
    }

    /// Has the daemon do what may take long, for as long as it shows signs of life.
    pub(super) async fn work<T>(
        &self,
        op: &'static str,
        target: impl Display,
        call: impl AsyncFnOnce(bollard::Docker) -> Result<T, CallError>,
    ) -> Result<T, Failure> {
        let limit = self.limits.work;
        let client = timeout(self.limits.reply, self.client()).await;
        let done = match client.unwrap_or(Err(CallError::Silent(self.limits.reply))) {
            Ok(client) => self.while_alive(limit, Box::pin(call(client))).await,
            Err(error) => Err(error),
        };
        done.map_err(|error| error.into_failure(op, target, &self.host))
    }

    /// Waits for `work`, for `limit` at most, and no longer than the daemon shows signs of life.
    pub(super) async fn while_alive<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        tokio::select! {
            biased;
            done = timeout(limit, work) => done.unwrap_or(Err(CallError::Silent(limit))),
            error = self.no_sign_of_life() => Err(error),
        }
    }

    /// Returns when the daemon has not answered for a while.
    async fn no_sign_of_life(&self) -> CallError {
        let mut missed = 0;
        loop {
            tokio::time::sleep(HEARTBEAT.min(self.limits.reply)).await;
            let asked = async { Ok(self.unversioned()?.ping().await?) };
            let answered: Result<String, CallError> = timeout(self.limits.reply, asked)
                .await
                .unwrap_or(Err(CallError::Silent(self.limits.reply)));
            match answered {
                Ok(_) => missed = 0,
                Err(_) if missed + 1 < MISSED => missed += 1,
                Err(error) => return error,
            }
        }
    }
}

/// The same client, which writes the version into every request.
fn versioned(client: bollard::Docker, version: ApiVersion) -> bollard::Docker {
    client.with_request_modifier(move |request| name_version(request, version))
}

fn name_version(mut request: BollardRequest, version: ApiVersion) -> BollardRequest {
    let mut parts = request.uri().clone().into_parts();
    let path = parts.path_and_query.as_ref();
    let path = path.map(|path| format!("/v{version}{path}").parse());
    if let Some(Ok(path)) = path {
        parts.path_and_query = Some(path);
        if let Ok(uri) = http::Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}

/// The newest version that both sides know.
fn agree(server: &bollard::models::SystemVersion) -> Result<ApiVersion, CallError> {
    let parsed = |text: &Option<String>| text.as_deref().and_then(ApiVersion::parse);
    let Some(newest) = parsed(&server.api_version) else {
        let why = "what answered is no Docker daemon: it names no API version";
        return Err(Failure::of(ErrorKind::Invalid, why).into());
    };
    let engine = server.version.as_deref().unwrap_or("of unknown version");
    if newest < ApiVersion::LOWEST {
        let why = format!("Docker Engine {engine} speaks API {newest} at most, which is too old");
        let hint = "update Docker to 20.10 or newer";
        return Err(Failure::of(ErrorKind::Invalid, why).with_hint(hint).into());
    }
    if parsed(&server.min_api_version).is_some_and(|oldest| oldest > ApiVersion::HIGHEST) {
        let why = format!(
            "Docker Engine {engine} does not speak API {} any more",
            ApiVersion::HIGHEST
        );
        let hint = "update Stasis";
        return Err(Failure::of(ErrorKind::Invalid, why).with_hint(hint).into());
    }
    Ok(newest.min(ApiVersion::HIGHEST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::SystemVersion;

    fn server(newest: &str, oldest: &str) -> SystemVersion {
        SystemVersion {
            api_version: Some(newest.to_owned()),
            min_api_version: Some(oldest.to_owned()),
            ..SystemVersion::default()
        }
    }

    #[test]
    fn the_newest_version_that_both_sides_know_is_used() {
        assert_eq!(agree(&server("1.41", "1.12")).unwrap(), ApiVersion::LOWEST);
        assert_eq!(agree(&server("1.60", "1.44")).unwrap(), ApiVersion::HIGHEST);
        assert_eq!(
            agree(&server("1.47", "1.24")).unwrap(),
            ApiVersion::new(1, 47)
        );
    }

    #[test]
    fn a_daemon_that_is_too_old_or_too_new_or_none_is_refused() {
        for strange in [
            server("1.40", "1.12"),
            server("1.70", "1.54"),
            server("x", "y"),
        ] {
            assert!(agree(&strange).is_err(), "{strange:?}");
        }
    }

    #[test]
    fn an_empty_variable_means_the_daemon_of_this_host() {
        assert_eq!(Docker::from_variable(None::<&str>), Docker::default());
        assert_eq!(Docker::from_variable(Some("")), Docker::default());
        assert_eq!(Docker::from_variable(Some("tcp://x:1")).host(), "tcp://x:1");
    }
}
