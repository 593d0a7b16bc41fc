//! Where a daemon listens.

use stasis_model::failure::{ErrorKind, Failure};
use std::ffi::OsStr;

/// Where a daemon listens if nobody says otherwise.
pub(super) const DEFAULT_HOST: &str = "unix:///var/run/docker.sock";
/// The port of a daemon without TLS whose address names none.
const PLAIN_PORT: u16 = 2375;

/// Where a daemon listens, as `DOCKER_HOST` says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum DaemonAddress {
    /// The path of a socket.
    Unix(String),
    /// A host and a port, without TLS.
    Tcp(String),
}

impl DaemonAddress {
    pub(super) fn parse(host: &OsStr) -> Result<Self, Failure> {
        let refused = |why: &'static str| {
            let op = "understand the address of the Docker daemon";
            Failure::new(ErrorKind::Invalid, op, host.display())
                .because(why)
                .with_hint("set DOCKER_HOST to unix:///PATH or tcp://HOST:PORT; for ssh, forward the socket: ssh -L /tmp/docker.sock:/var/run/docker.sock HOST")
        };
        let text = host.to_str().ok_or_else(|| refused("it is not UTF-8"))?;
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(refused("it names no scheme"));
        };
        match scheme {
            "unix" if rest.starts_with('/') => Ok(Self::Unix(rest.to_owned())),
            "unix" => Err(refused("the path of a socket begins with /")),
            "tcp" => {
                let authority = rest.strip_suffix('/').unwrap_or(rest);
                if authority.is_empty() || authority.contains(['/', '?', '#', '@', ' ']) {
                    return Err(refused("it is not HOST:PORT"));
                }
                // The colons of an IPv6 address are inside brackets.
                let after = authority.rsplit(']').next().unwrap_or(authority);
                Ok(Self::Tcp(if after.contains(':') {
                    authority.to_owned()
                } else {
                    format!("{authority}:{PLAIN_PORT}")
                }))
            }
            _ => Err(refused("only unix:// and tcp:// are supported")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn sockets_and_plain_ports_are_understood() {
        let parsed = |host: &str| DaemonAddress::parse(OsStr::new(host)).unwrap();

        assert_eq!(
            parsed("unix:///a b/c"),
            DaemonAddress::Unix("/a b/c".into())
        );
        assert_eq!(
            parsed("tcp://127.0.0.1:1/"),
            DaemonAddress::Tcp("127.0.0.1:1".into())
        );
        assert_eq!(parsed("tcp://far"), DaemonAddress::Tcp("far:2375".into()));
        assert_eq!(
            parsed("tcp://[::1]"),
            DaemonAddress::Tcp("[::1]:2375".into())
        );
    }

    #[test]
    fn other_addresses_are_refused_with_what_to_write_instead() {
        let others: [&[u8]; 8] = [
            b"ssh://far",
            b"fd://",
            b"npipe:////./pipe/docker_engine",
            b"unix://relative",
            b"/var/run/docker.sock",
            b"tcp://",
            b"tcp://far:1/prefix",
            b"unix:///a\xff",
        ];
        for other in others {
            let refused = DaemonAddress::parse(OsStr::from_bytes(other)).unwrap_err();

            assert_eq!(refused.kind(), ErrorKind::Invalid);
            assert!(refused.hint().unwrap().contains("tcp://HOST:PORT"));
        }
    }
}
