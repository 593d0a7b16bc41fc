//! Which process is in the middle of something, and whether it still is.

use crate::fs::sys::processes::{ProcessInfo, ProcessState};
use std::io;

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
        Ok(Self::from(&ProcessInfo::of_this()?))
    }

    /// Whether it has not ended. One that we may not see has: then too much is told, and nothing is kept back for ever.
    pub(super) fn is_alive(self) -> bool {
        let found = ProcessInfo::read(self.pid);
        found.is_some_and(|found| Self::from(&found) == self && found.state != ProcessState::Ended)
    }
}

impl From<&ProcessInfo> for OwnerProcess {
    fn from(found: &ProcessInfo) -> Self {
        Self {
            pid: found.pid(),
            started: found.identity.started().cast_signed(),
        }
    }
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
        let ended = OwnerProcess::from(&ProcessInfo::read(child.id()).unwrap());
        child.wait().unwrap();

        assert!(this.is_alive());
        assert!(!other.is_alive());
        assert!(!ended.is_alive());
    }
}
