//! Which process is in the middle of something, and whether it still is.

use std::{fs, io};

/// A process, told from others that had or will have its number by the moment it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OwnerProcess {
    pub(super) pid: u32,
    /// In the kernel's ticks since boot.
    pub(super) started: i64,
}

impl OwnerProcess {
    /// This process.
    pub(super) fn this() -> io::Result<Self> {
        let pid = std::process::id();
        let line = fs::read(path(pid))?;
        let (started, _) = parse(&line).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { pid, started })
    }

    /// Whether it has not ended. One that we may not see has: then too much is told, and nothing is kept back for ever.
    pub(super) fn is_alive(self) -> bool {
        let line = fs::read(path(self.pid)).unwrap_or_default();
        parse(&line).is_some_and(|(started, has_ended)| started == self.started && !has_ended)
    }
}

pub(super) fn path(pid: u32) -> String {
    format!("/proc/{pid}/stat")
}

/// When it began, and whether it only waits to be forgotten. The name of a program may hold anything, also brackets.
fn parse(line: &[u8]) -> Option<(i64, bool)> {
    let close = line.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&line[close + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X" | "x");
    // The state is field 3 of the manual page, the start is field 22.
    Some((fields.nth(18)?.parse().ok()?, has_ended))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_lives_until_it_ends_and_its_number_alone_is_not_enough() {
        let this = OwnerProcess::this().unwrap();
        let other = OwnerProcess {
            started: this.started + 1,
            ..this
        };
        let mut child = Command::new("true").spawn().unwrap();
        let line = fs::read(path(child.id())).unwrap();
        let ended = OwnerProcess {
            pid: child.id(),
            started: parse(&line).unwrap().0,
        };
        child.wait().unwrap();

        assert!(this.is_alive());
        assert!(!other.is_alive());
        assert!(!ended.is_alive());
    }

    #[test]
    fn the_name_of_a_program_may_hold_brackets_and_the_dead_are_not_alive() {
        let line = |state| {
            format!("7 (a) Z ) (b) {state} 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 12345 99 1")
        };

        assert_eq!(parse(line("S").as_bytes()), Some((12345, false)));
        assert_eq!(parse(line("Z").as_bytes()), Some((12345, true)));
        assert_eq!(parse(b""), None);
    }
}
