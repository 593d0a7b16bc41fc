//! Sockets on which processes of this machine listen.

use crate::processes;
use std::fs;
use std::net::{IpAddr, SocketAddr};

/// The addresses on which a process listens at this port, with the number of each socket.
pub fn listeners(port: u16) -> Vec<(IpAddr, u64)> {
    ["/proc/self/net/tcp", "/proc/self/net/tcp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|text| text.lines().filter_map(listener).collect::<Vec<_>>())
        .filter(|(address, _)| address.port() == port)
        .map(|(address, inode)| (address.ip(), inode))
        .collect()
}

/// Reads one line of `/proc/net/tcp` or `tcp6`, if it is of a socket that listens.
fn listener(line: &str) -> Option<(SocketAddr, u64)> {
    const LISTENS: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, local, _, state, _, _, _, _, _, inode, ..] = fields[..] else {
        return None;
    };
    let (address, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let inode = inode.parse().ok()?;
    (state == LISTENS).then_some((SocketAddr::new(address_of(address)?, port), inode))
}

/// The kernel prints an address as words in the machine's own byte order.
fn address_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match hex.len() {
        8 => Some(IpAddr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(IpAddr::from(bytes))
        }
        _ => None,
    }
}

/// The numbers of the sockets that a process holds, as far as that may be looked at.
pub fn held_by(pid: u32) -> Vec<u64> {
    let opened = processes::open_files(pid).into_iter().flatten();
    opened
        .filter_map(|file| {
            let target = file.path()?;
            let inode = target.to_str()?.strip_prefix("socket:[")?;
            inode.strip_suffix(']')?.parse().ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_kernels_lines_are_understood() {
        let four =
            "1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 77 1";
        let six = "1: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A \
                   00000000:00000000 00:00000000 00000000 0 0 78 1";
        let connected = four.replace(" 0A ", " 01 ");

        assert_eq!(
            listener(four),
            Some(("127.0.0.1:8080".parse().unwrap(), 77))
        );
        assert_eq!(listener(six), Some(("[::1]:8080".parse().unwrap(), 78)));
        assert_eq!(listener(&connected), None);
    }

    #[test]
    fn a_socket_that_listens_is_held_by_its_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();

        let found = listeners(address.port());

        assert!(
            matches!(found[..], [(ip, _)] if ip == address.ip()),
            "{found:?}"
        );
        assert!(held_by(std::process::id()).contains(&found[0].1));
    }
}
