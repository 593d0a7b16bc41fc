//! Where a browser can be spoken to, if it listens there itself.
//!
//! `DevToolsActivePort` is written at start and never removed: the port in it may belong to any process by now. It is used
//! only if every socket that would be reached there is held by a process of this browser.

use super::error::BrowserError;
use super::evidence::Directory;
use crate::process::Process;
use stasis_sys::sockets;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A browser's debugging port and the name of its socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DebugEndpoint {
    pub(super) address: SocketAddr,
    pub(super) path: String,
}

impl DebugEndpoint {
    /// Finds where the processes of the browser in this directory listen.
    pub(super) fn find(directory: &Directory, family: &[Process]) -> Result<Self, BrowserError> {
        let (port, path) = read(directory).ok_or(BrowserError::NoPort)?;
        let listeners = sockets::listeners(port);
        let (ip, inodes) = reached(&listeners).ok_or(BrowserError::NotItsPort { port })?;
        let held = family.iter().map(|process| sockets::held_by(process.pid()));
        if !inodes.is_subset(&held.flatten().collect()) {
            return Err(BrowserError::NotItsPort { port });
        }
        let address = SocketAddr::new(ip, port);
        Ok(Self { address, path })
    }
}

/// The port and the path that the browser wrote down.
fn read(directory: &Directory) -> Option<(u16, String)> {
    let file = fs::File::open(directory.join("DevToolsActivePort")).ok()?;
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text).ok()?;
    let (port, path) = text.split_once('\n')?;
    let path = path.trim();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-".contains(&byte);
    let expected = path.starts_with("/devtools/browser/") && path.bytes().all(is_plain);
    expected.then_some((port.trim().parse().ok()?, path.to_owned()))
}

/// Which sockets a connection from this host may reach, and by which address: the more exact one comes first.
fn reached(listeners: &[(IpAddr, u64)]) -> Option<(IpAddr, BTreeSet<u64>)> {
    let (four, six) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
    let ways: [(IpAddr, IpAddr); 4] = [
        (four, four),
        (four, Ipv4Addr::UNSPECIFIED.into()),
        (six, six),
        (six, Ipv6Addr::UNSPECIFIED.into()),
    ];
    ways.into_iter().find_map(|(to, listens)| {
        let at = listeners.iter().filter(|(ip, _)| *ip == listens);
        let inodes: BTreeSet<u64> = at.map(|(_, inode)| *inode).collect();
        (!inodes.is_empty()).then_some((to, inodes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[expect(clippy::disallowed_methods, reason = "a test writes its own files")]
    fn written(text: &str) -> (tempfile::TempDir, Directory) {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("DevToolsActivePort"), text).unwrap();
        let directory = Directory::open(home.path()).unwrap();
        (home, directory)
    }

    #[test]
    fn a_port_is_used_only_if_the_family_listens_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (_home, directory) = written(&format!("{port}\n/devtools/browser/a-1"));
        let ours = Process::open(std::process::id()).unwrap().unwrap();

        let found = DebugEndpoint::find(&directory, &[ours]).unwrap();
        let foreign = DebugEndpoint::find(&directory, &[]).unwrap_err();

        assert_eq!(found.address, listener.local_addr().unwrap());
        assert_eq!(found.path, "/devtools/browser/a-1");
        assert!(matches!(foreign, BrowserError::NotItsPort { port: p } if p == port));
    }

    #[test]
    fn a_port_where_nobody_listens_any_more_is_not_used() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let (_home, directory) = written(&format!("{port}\n/devtools/browser/a-1"));

        let stale = DebugEndpoint::find(&directory, &[]).unwrap_err();

        assert!(matches!(stale, BrowserError::NotItsPort { .. }));
    }

    #[test]
    fn a_file_that_says_something_else_is_no_endpoint() {
        for text in [
            "",
            "80",
            "80\n",
            "80\n/other",
            "x\n/devtools/browser/a",
            "80\n/devtools/browser/a b",
        ] {
            let (_home, directory) = written(text);

            assert_eq!(read(&directory), None, "{text:?}");
        }
    }

    #[test]
    fn the_most_exact_address_is_the_one_reached() {
        let any = IpAddr::from(Ipv4Addr::UNSPECIFIED);
        let own = IpAddr::from(Ipv4Addr::LOCALHOST);

        assert_eq!(reached(&[(any, 1), (own, 2)]), Some((own, [2].into())));
        assert_eq!(reached(&[(any, 1), (any, 3)]), Some((own, [1, 3].into())));
        assert_eq!(reached(&[("10.0.0.1".parse().unwrap(), 1)]), None);
    }
}
