//! Where an S3-compatible store listens.

use super::{bad_value, shown, user_info};
use stasis_model::invalid::Invalid;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
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

    /// Whether a bucket's name can go in front of the host: names in front of an address are no host, and those in
    /// front of `localhost` are not known to be this machine.
    pub fn takes_a_bucket(&self) -> bool {
        let is_name = host_of(&self.authority).is_some_and(|host| host.parse::<IpAddr>().is_err());
        is_name && !self.is_plain_http()
    }

    /// The same endpoint with a bucket's name in front of its host; only for one that takes it.
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
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.contains('@') {
            return Err(user_info("endpoint"));
        }
        let allowed = "https://host[:port], or http:// for a host on this machine";
        let bad = || bad_value("endpoint", text, allowed);
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
            let found = shown(host);
            return Err(Invalid::new(format!(
                "the endpoint `{found}` is not on this machine and not https: others could read and change what is stored"
            )));
        }
        let endpoint = Self {
            scheme,
            authority: authority.to_owned(),
            path: path.to_owned(),
        };
        // The client's own parser has the last word: what it refuses later, it refuses with a panic.
        match reqwest::Url::parse(&endpoint.to_string()) {
            Ok(_) => Ok(endpoint),
            Err(_) => Err(bad()),
        }
    }
}

/// The host of `name`, `name:port`, `v4`, `v4:port`, `[v6]` or `[v6]:port`; `None` if it is none of these.
fn host_of(authority: &str) -> Option<&str> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        host.parse::<Ipv6Addr>().ok()?;
        (host, port)
    } else {
        let end = authority.find(':').unwrap_or(authority.len());
        let (host, port) = authority.split_at(end);
        if !is_name(host) {
            host.parse::<Ipv4Addr>().ok()?;
        }
        (host, port)
    };
    let port_is_sound = match port.strip_prefix(':') {
        Some(digits) => digits.parse::<u16>().is_ok_and(|port| port > 0),
        None => port.is_empty(),
    };
    port_is_sound.then_some(host)
}

/// Whether `host` is a name. One whose last part is a number is meant as an address, however it is spelled.
fn is_name(host: &str) -> bool {
    let sound = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let last = host.trim_end_matches('.').rsplit('.').next();
    let is_number = last.is_some_and(|last| {
        let hexadecimal = last.strip_prefix("0x").or(last.strip_prefix("0X"));
        match hexadecimal {
            Some(digits) => digits.chars().all(|c| c.is_ascii_hexdigit()),
            None => last.chars().all(|c| c.is_ascii_digit()),
        }
    });
    host.chars().all(sound) && !is_number
}

/// Whether a host is this machine, without asking anyone: a loopback address, or the name `localhost`.
fn is_this_machine(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host == "localhost",
    }
}
