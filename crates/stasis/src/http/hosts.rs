//! By which names the service may be called: a page of somebody else must not reach a service on loopback through a name of its own.

use http::HeaderMap;
use http::header::{HOST, ORIGIN};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// The names, with their ports, as a `Host` header has them.
#[derive(Clone, Debug)]
pub(crate) struct AllowedHosts(BTreeSet<String>);

impl AllowedHosts {
    /// Those of loopback, that of the address, and what an operator names besides.
    pub(crate) fn new(address: SocketAddr, named: &[String]) -> Self {
        let port = address.port();
        let own = ["localhost", "127.0.0.1", "[::1]"];
        let own = own.iter().map(|name| format!("{name}:{port}"));
        let named = named.iter().map(|name| name.to_ascii_lowercase());
        let mut all: BTreeSet<String> = own.chain(named).collect();
        all.insert(address.to_string());
        Self(all)
    }

    /// Whether a request may be answered that calls us so, and comes from there.
    pub(super) fn allow(&self, headers: &HeaderMap) -> bool {
        let text = |name| {
            let mut all = headers.get_all(name).iter();
            let one = all.next().map(|value| value.to_str().unwrap_or_default());
            (one.map(str::to_ascii_lowercase), all.next().is_some())
        };
        let (host, two_hosts) = text(HOST);
        let (origin, two_origins) = text(ORIGIN);
        let is_ours = |host: &str| self.0.contains(host);
        let from_us = origin.is_none_or(|origin| {
            let host = origin.split_once("://");
            host.is_some_and(|(scheme, host)| matches!(scheme, "http" | "https") && is_ours(host))
        });
        host.is_some_and(|host| is_ours(&host)) && from_us && !two_hosts && !two_origins
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    fn headers(all: &[(HeaderName, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in all {
            map.append(name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn only_names_that_are_ours_and_pages_of_ours_are_answered() {
        let address = "127.0.0.1:7070".parse().unwrap();
        let hosts = AllowedHosts::new(address, &["Stasis.example".to_owned()]);
        let allow = |all: &[(HeaderName, &str)]| hosts.allow(&headers(all));

        assert!(allow(&[(HOST, "127.0.0.1:7070")]));
        assert!(allow(&[(HOST, "LOCALHOST:7070")]));
        assert!(allow(&[
            (HOST, "stasis.example"),
            (ORIGIN, "https://stasis.example")
        ]));
        for refused in [
            &[][..],
            &[(HOST, "evil.example")],
            &[(HOST, "localhost")],
            &[(HOST, "localhost:7070"), (HOST, "evil.example")],
            &[(HOST, "localhost:7070"), (ORIGIN, "https://evil.example")],
            &[(HOST, "localhost:7070"), (ORIGIN, "null")],
            &[(HOST, "localhost:7070"), (ORIGIN, "file://localhost:7070")],
        ] {
            assert!(!allow(refused), "{refused:?}");
        }
    }
}
