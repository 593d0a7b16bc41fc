//! Where an S3-compatible store listens.

use super::{BadLocation, shown};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// `https://host[:port][/path]`; plain http only to this machine. Never ends in a slash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    scheme: &'static str,
    authority: String,
    path: String,
}

impl Endpoint {
    /// Whether what is sent goes unencrypted (to this machine).
    pub fn is_plain_http(&self) -> bool {
        self.scheme == "http"
    }

    /// The same endpoint with a bucket's name in front of its host.
    pub fn with_bucket(&self, bucket: &str) -> String {
        format!("{}://{bucket}.{}{}", self.scheme, self.authority, self.path)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}://{}{}", self.scheme, self.authority, self.path)
    }
}

impl FromStr for Endpoint {
    type Err = BadLocation;

    fn from_str(text: &str) -> Result<Self, BadLocation> {
        if text.contains('@') {
            return Err(BadLocation::UserInfo { what: "endpoint" });
        }
        let bad = || BadLocation::Value {
            what: "endpoint",
            found: shown(text),
            allowed: "https://host[:port], or http:// for a host on this machine",
        };
        let (scheme, rest) = match text.split_once("://") {
            Some(("https", rest)) => ("https", rest),
            Some(("http", rest)) => ("http", rest),
            _ => return Err(bad()),
        };
        let odd = |c: char| c.is_control() || c.is_whitespace() || "?#\\%".contains(c);
        if rest.contains(odd) || rest.contains("..") {
            return Err(bad());
        }
        let rest = rest.trim_end_matches('/');
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let host = host_of(authority).ok_or_else(bad)?;
        if scheme == "http" && !is_this_machine(host) {
            return Err(BadLocation::Insecure { found: shown(host) });
        }
        Ok(Self {
            scheme,
            authority: authority.to_owned(),
            path: path.to_owned(),
        })
    }
}

/// The host of `host`, `host:port` or `[v6]:port`; `None` if it is none of these.
fn host_of(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port)
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port_is_sound = match port.strip_prefix(':') {
        Some(digits) => digits.parse::<u16>().is_ok_and(|port| port > 0),
        None => port.is_empty(),
    };
    (port_is_sound && !host.is_empty()).then_some(host)
}

/// Whether a host is this machine, without asking anyone: a loopback address, or the name `localhost`.
fn is_this_machine(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host == "localhost",
    }
}
