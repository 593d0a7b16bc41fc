//! Where a store is: `file:///path`, `memory:` or `s3://bucket/prefix?…`.
//!
//! *Always true:* a location holds no secret, and its `Display` is the canonical URL that parses back to the same
//! location. What is not understood is refused, never ignored: a misspelt option must not move a store elsewhere.

mod endpoint;
mod percent;

pub use endpoint::Endpoint;

use percent::{decoded, decoded_bytes, encoded};
use stasis_model::invalid::Invalid;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// Where a store is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreLocation {
    /// A directory on this machine; the path is absolute and has no `..`.
    File(PathBuf),
    /// This process's memory.
    Memory,
    /// A bucket behind an S3-compatible endpoint.
    S3(S3Location),
}

impl StoreLocation {
    /// How people would write the address of the object `name` in this store.
    pub fn object(&self, name: &str) -> String {
        match self {
            Self::File(root) => Self::File(root.join(name)).to_string(),
            Self::Memory => format!("memory:{name}"),
            Self::S3(location) => {
                let mut location = location.clone();
                if !location.prefix.is_empty() {
                    location.prefix.push('/');
                }
                location.prefix.push_str(name);
                Self::S3(location).to_string()
            }
        }
    }
}

/// Where a bucket is, and how it wants to be asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct S3Location {
    /// The bucket's name.
    pub bucket: String,
    /// What all keys begin with: empty, or without a slash at either end.
    pub prefix: String,
    /// Where the store listens; AWS itself when absent.
    pub endpoint: Option<Endpoint>,
    /// Which region requests are signed for; `us-east-1` when absent.
    pub region: Option<String>,
    /// Where the bucket's name goes; the path when absent and an endpoint is given, else the host.
    pub style: Option<AddressStyle>,
    /// Where the keys come from.
    pub credentials: CredentialSource,
}

/// Where the bucket's name goes in a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressStyle {
    /// `https://endpoint/bucket/key`.
    Path,
    /// `https://bucket.endpoint/key`.
    Virtual,
}

/// Where the keys to a bucket come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CredentialSource {
    /// The caller finds them: in the environment or in a profile file.
    #[default]
    Static,
    /// The cloud's metadata service gives them out. Asked only when the location says so.
    Instance,
    /// None: requests are not signed.
    Anonymous,
}

/// What a file URL is, for one with a host, a relative path, or no path.
const FILE_PATH: &str =
    "a file URL is file:///absolute/path, with no host, no `..`, and `%3F`, `%23` for `?`, `#`";

fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

/// Keys do not belong into a URL: URLs are shown and logged.
fn user_info(what: &str) -> Invalid {
    Invalid::new(format!(
        "the {what} contains a user or password; keys are taken from the environment or a profile, never from a URL"
    ))
}

/// An option with a value it cannot have.
fn bad_value(what: &str, value: &str, allowed: &str) -> Invalid {
    let found = shown(value);
    Invalid::new(format!(
        "the option {what} cannot be `{found}`; allowed is {allowed}"
    ))
}

impl FromStr for StoreLocation {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.starts_with('/') {
            let found = shown(text);
            let said = format!("`{found}` is a path; write it as a URL: file://{found}");
            return Err(Invalid::new(said));
        }
        if text.starts_with(['.', '~']) {
            let found = shown(text);
            let said = format!(
                "`{found}` is a path that means another place elsewhere; write the whole one: file:///absolute/path"
            );
            return Err(Invalid::new(said));
        }
        if text == "memory:" {
            return Ok(Self::Memory);
        }
        if let Some(rest) = text.strip_prefix("file://") {
            return file_path(rest).map(Self::File);
        }
        if let Some(rest) = text.strip_prefix("s3://") {
            return rest.parse().map(Self::S3);
        }
        let scheme = text.split("://").next().unwrap_or_default();
        // What stands before an `@` may be a password.
        let found = shown(scheme.rsplit('@').next().unwrap_or_default());
        Err(Invalid::new(format!(
            "`{found}` is no store; allowed are file:///absolute/path, memory: and s3://bucket/prefix"
        )))
    }
}

fn file_path(text: &str) -> Result<PathBuf, Invalid> {
    if !text.starts_with('/') || text.contains(['?', '#']) {
        return Err(Invalid::new(FILE_PATH));
    }
    let bytes = decoded_bytes("path", text)?;
    let path = PathBuf::from(OsString::from_vec(bytes));
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    let named = path.components().count() > 1 && path.components().all(plain);
    if !named || path.as_os_str().as_bytes().contains(&0) {
        return Err(Invalid::new(FILE_PATH));
    }
    Ok(path.components().collect())
}

impl FromStr for S3Location {
    type Err = Invalid;

    /// Parses what follows `s3://`.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if bucket.contains('@') {
            return Err(user_info("store URL"));
        }
        let mut location = Self {
            bucket: bucket_name(bucket)?,
            prefix: key_prefix(prefix)?,
            endpoint: None,
            region: None,
            style: None,
            credentials: CredentialSource::default(),
        };
        let mut seen = Vec::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let what = location.set(name, value)?;
            if seen.contains(&what) {
                return Err(Invalid::new(format!("the option {what} is given twice")));
            }
            seen.push(what);
        }
        location.checked()
    }
}

impl S3Location {
    /// Takes one option and returns its name.
    fn set(&mut self, name: &str, value: &str) -> Result<&'static str, Invalid> {
        let bad = |what, allowed| bad_value(what, value, allowed);
        match name {
            "endpoint" => {
                self.endpoint = Some(decoded("endpoint", value)?.parse()?);
                Ok("endpoint")
            }
            "region" => {
                let region = decoded("region", value)?;
                let sound = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
                if region.is_empty() || region.len() > 64 || !region.chars().all(sound) {
                    return Err(bad("region", "a name such as eu-central-1"));
                }
                self.region = Some(region);
                Ok("region")
            }
            "style" => {
                self.style = Some(match value {
                    "path" => AddressStyle::Path,
                    "virtual" => AddressStyle::Virtual,
                    _ => return Err(bad("style", "path or virtual")),
                });
                Ok("style")
            }
            "credentials" => {
                self.credentials = match value {
                    "static" => CredentialSource::Static,
                    "instance" => CredentialSource::Instance,
                    "anonymous" => CredentialSource::Anonymous,
                    _ => return Err(bad("credentials", "static, instance or anonymous")),
                };
                Ok("credentials")
            }
            _ => {
                let found = shown(name);
                Err(Invalid::new(format!(
                    "`{found}` is no option of a store; allowed are endpoint, region, style and credentials"
                )))
            }
        }
    }

    /// The same location behind `endpoint`, if that one can be asked in the location's style.
    pub fn with_endpoint(self, endpoint: Endpoint) -> Result<Self, Invalid> {
        let endpoint = Some(endpoint);
        Self { endpoint, ..self }.checked()
    }

    /// The same location, if its parts fit together.
    pub(crate) fn checked(self) -> Result<Self, Invalid> {
        match &self.endpoint {
            Some(endpoint)
                if self.address_style() == AddressStyle::Virtual && !endpoint.takes_a_bucket() =>
            {
                let found = shown(&endpoint.to_string());
                Err(Invalid::new(format!(
                    "style=virtual puts the bucket's name in front of the host, so the endpoint must be https and have a host name, not `{found}`; leave the option out, or say style=path"
                )))
            }
            _ => Ok(self),
        }
    }

    /// Where the bucket's name goes, after the defaults.
    pub fn address_style(&self) -> AddressStyle {
        let usual = match self.endpoint {
            Some(_) => AddressStyle::Path,
            None => AddressStyle::Virtual,
        };
        self.style.unwrap_or(usual)
    }
}

fn bucket_name(text: &str) -> Result<String, Invalid> {
    let sound = |(i, c): (usize, char)| c.is_ascii_alphanumeric() || i > 0 && "._-".contains(c);
    let length = (1..=63).contains(&text.len());
    if !length || !text.chars().enumerate().all(sound) || text.contains("..") {
        let found = shown(text);
        return Err(Invalid::new(format!(
            "`{found}` is no bucket name; allowed are 1 to 63 of A-Z a-z 0-9 . _ - and a letter or digit first"
        )));
    }
    Ok(text.to_owned())
}

fn key_prefix(text: &str) -> Result<String, Invalid> {
    let text = decoded("prefix", text)?;
    let prefix = text.strip_suffix('/').unwrap_or(&text);
    let sound =
        |part: &str| !matches!(part, "" | "." | "..") && !part.contains(|c: char| c.is_control());
    if !prefix.is_empty() && !prefix.split('/').all(sound) {
        let found = shown(prefix);
        return Err(Invalid::new(format!(
            "the prefix `{found}` has an empty, `.` or `..` part or a control character"
        )));
    }
    Ok(prefix.to_owned())
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(out, "file://{}", file_url_path(path)),
            Self::Memory => out.write_str("memory:"),
            Self::S3(location) => location.fmt(out),
        }
    }
}

fn file_url_path(path: &Path) -> String {
    encoded(path.as_os_str().as_bytes())
}

impl fmt::Display for S3Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "s3://{}", self.bucket)?;
        if !self.prefix.is_empty() {
            write!(out, "/{}", encoded(self.prefix.as_bytes()))?;
        }
        let style = self.style.map(|style| match style {
            AddressStyle::Path => "path".to_owned(),
            AddressStyle::Virtual => "virtual".to_owned(),
        });
        let credentials = match self.credentials {
            CredentialSource::Static => None,
            CredentialSource::Instance => Some("instance".to_owned()),
            CredentialSource::Anonymous => Some("anonymous".to_owned()),
        };
        let endpoint = self.endpoint.as_ref().map(Endpoint::to_string);
        let options = [
            ("endpoint", endpoint.map(|e| encoded(e.as_bytes()))),
            ("region", self.region.clone()),
            ("style", style),
            ("credentials", credentials),
        ];
        let mut mark = '?';
        for (name, value) in options {
            if let Some(value) = value {
                write!(out, "{mark}{name}={value}")?;
                mark = '&';
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
