//! What the other process is for, and what it may use: the words that it is started with.

use crate::check::Depth;
use crate::fs::sys::confine;
use rustix::process::{self, Resource, Rlimit};
use std::ffi::OsString;

/// What the process is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChildTask {
    /// Checks the copy.
    Check(Depth),
    /// Checks the database that its standard input is, which nobody writes to.
    CheckInPlace(Depth),
    /// Says what each cookie in it says of itself, with its value or without.
    CookieRows(RowValues),
    /// Says how the encrypted values of cookies begin.
    CookieStore,
    /// Says how many rows each table of the copy has.
    TableRows,
    /// The same of the database that its standard input is.
    TableRowsInPlace,
}

impl ChildTask {
    /// Whether the database is the standard input, which nobody writes to.
    pub(super) fn is_in_place(self) -> bool {
        matches!(self, Self::CheckInPlace(_) | Self::TableRowsInPlace)
    }
}

/// Whether the values of cookies are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::check) enum RowValues {
    With,
    Without,
}

const TASKS: [(ChildTask, &str); 9] = [
    (ChildTask::CookieStore, "cookie-store"),
    (ChildTask::Check(Depth::Quick), "quick"),
    (ChildTask::Check(Depth::Full), "full"),
    (ChildTask::CheckInPlace(Depth::Quick), "quick-in-place"),
    (ChildTask::CheckInPlace(Depth::Full), "full-in-place"),
    (ChildTask::CookieRows(RowValues::Without), "cookie-rows"),
    (ChildTask::CookieRows(RowValues::With), "cookie-values"),
    (ChildTask::TableRows, "table-rows"),
    (ChildTask::TableRowsInPlace, "table-rows-in-place"),
];

/// What the process is for, and what it may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ChildLimits {
    pub(super) task: ChildTask,
    pub(super) memory: u64,
    pub(super) seconds: u64,
    pub(super) largest: u64,
    pub(super) messages: usize,
}

impl ChildLimits {
    /// The words that [`child`](super::child) reads.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let task = TASKS.iter().find(|(task, _)| *task == self.task);
        let task = task.map_or("quick", |(_, word)| word);
        let numbers = [
            self.memory,
            self.seconds,
            self.largest,
            self.messages as u64,
        ];
        let numbers = numbers.iter().map(u64::to_string);
        std::iter::once(task.to_owned())
            .chain(numbers)
            .map(OsString::from)
            .collect()
    }

    pub(super) fn parse(arguments: &[OsString]) -> Option<Self> {
        let [task, numbers @ ..] = arguments else {
            return None;
        };
        let number = |text: &OsString| text.to_str()?.parse::<u64>().ok();
        let numbers: Vec<u64> = numbers.iter().map(number).collect::<Option<_>>()?;
        let [memory, seconds, largest, messages] = numbers[..] else {
            return None;
        };
        Some(Self {
            task: TASKS.iter().find(|(_, word)| *task == **word)?.0,
            memory,
            seconds,
            largest,
            messages: usize::try_from(messages).ok()?,
        })
    }

    /// Binds this process to its limits, for good.
    pub(super) fn bind(&self) -> rustix::io::Result<()> {
        let limits = [
            (Resource::Core, 0),
            (Resource::As, self.memory),
            (Resource::Cpu, self.seconds),
            (Resource::Fsize, self.largest),
            (Resource::Nofile, 64),
        ];
        for (resource, limit) in limits {
            let most = process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
            let limit = Some(limit.min(most));
            let both = Rlimit {
                current: limit,
                maximum: limit,
            };
            process::setrlimit(resource, both)?;
        }
        Ok(())
    }
}

/// Makes the private directory the root of this process, and gives up the rights of root, with which it could get out again.
///
/// Only root may change its root, and only root has such rights.
pub(super) fn enclose() -> rustix::io::Result<()> {
    if process::chroot(".").is_ok() {
        process::chdir("/")?;
    }
    confine::drop_privileges();
    Ok(())
}
