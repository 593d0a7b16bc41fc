//! How far long work has come, for whoever wants to look.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that workers raise and a surface reads, at any time and from any thread. They only ever grow.
#[derive(Debug, Default)]
pub struct Progress {
    files: AtomicU64,
    bytes: AtomicU64,
    files_expected: AtomicU64,
    bytes_expected: AtomicU64,
}

/// What the counters said at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reached {
    /// Files that are done.
    pub files: u64,
    /// Bytes that are done.
    pub bytes: u64,
    /// Files there will be, as far as is known by now; 0 while nothing is.
    pub files_expected: u64,
    /// Bytes there will be, as far as is known by now; 0 while nothing is.
    pub bytes_expected: u64,
}

impl Progress {
    /// Says that more is done.
    pub fn advance(&self, files: u64, bytes: u64) {
        self.files.fetch_add(files, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Says that more will have to be done than was known so far.
    pub fn expect(&self, files: u64, bytes: u64) {
        self.files_expected.fetch_add(files, Ordering::Relaxed);
        self.bytes_expected.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How far the work has come.
    pub fn reached(&self) -> Reached {
        Reached {
            files: self.files.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            files_expected: self.files_expected.load(Ordering::Relaxed),
            bytes_expected: self.bytes_expected.load(Ordering::Relaxed),
        }
    }
}
